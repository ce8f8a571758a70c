"""`python -m benchmarks.cuda [FILE]`: the laws of every structure on a GPU, and its speed there.

Needs torch, numpy, scipy and jaxtyping only. Every law runs with all tensors on the GPU, so a
step that silently fell back to the CPU would fail with a device error. Writes a JSON FILE.
"""

import json
import sys
import time
from pathlib import Path

import torch

from triptych.core.laws import check_structure
from triptych.core.randomness import TorchRng
from triptych.lab.discovery import package_examples
from triptych.structures.hmm import HMM
from triptych.structures.memory_hmm import MemoryHMM


def timed(program, repeats: int = 5) -> float:
    program()
    best = float("inf")
    for _ in range(repeats):
        torch.cuda.synchronize()
        started = time.perf_counter()
        program()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return best


def posterior(states: int, device: str) -> dict[str, float]:
    """Difference from the CPU, and tokens per second for two batch sizes."""
    hmm = HMM.random(states, 10, 128, seed=0)
    tokens = hmm.sample(1000, TorchRng(0))
    hidden = tokens == 0
    there = hmm.to(device)
    far, mask = tokens.to(device), hidden.to(device)
    gap = (there.posterior(far, mask).cpu().exp() - hmm.posterior(tokens, hidden).exp()).abs()
    many, masks = far.repeat(20, 1), mask.repeat(20, 1)
    return {
        "largest_difference_from_cpu": gap.max().item(),
        "tokens_per_second_1000_rows": 128e3 / timed(lambda: there.posterior(far, mask)),
        "tokens_per_second_20000_rows": 2.56e6 / timed(lambda: there.posterior(many, masks)),
    }


def main() -> None:
    device = "cuda"
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    failures = []
    for example in package_examples("triptych.structures"):
        for finding in check_structure(example.value.to(device), device=device):
            if not finding.holds:
                failures.append(f"{example.label}: {finding}")
    report["laws_failing"] = failures
    for states in (10, 64):
        report[f"posterior_{states}"] = posterior(states, device)
    hmm = HMM.random(10, 10, 10240, seed=0, device=device)
    rng = TorchRng(0, device)
    report["sample_tokens_per_second"] = 51.2e6 / timed(lambda: hmm.sample(5000, rng), repeats=2)
    memory = MemoryHMM.random(3, 3, 2, 10, 128, seed=0, device=device)
    drawn = memory.sample(100, rng)
    vectors = memory.lift(memory.embed(drawn)).requires_grad_()
    memory.soft_masked_probs(vectors).sum().backward()
    report["gradient_device"] = str(vectors.grad.device) if vectors.grad is not None else "none"
    text = json.dumps(report, indent=2)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
