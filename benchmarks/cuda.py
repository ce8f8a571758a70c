"""`python -m benchmarks.cuda [FILE]`: the laws of every structure on a GPU, and its speed there.

Needs torch, numpy, scipy and jaxtyping only. Every law runs with all tensors on the GPU, so a
step that silently fell back to the CPU would fail with a device error. Writes a JSON FILE.
"""

import json
import sys
import time

import torch

from triptych.core.axioms import check_structure
from triptych.core.decoders import RecomputingDecoder
from triptych.core.files import write_text
from triptych.core.randomness import TorchRng
from triptych.lab.axioms.discovery import package_examples
from triptych.models.cache import CachedDecoder
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.training.ensembles import fit_ensemble
from triptych.training.loop import fit, gap_meter
from triptych.training.objectives import next_token
from triptych.training.step import Recipe


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
    gap = (
        there.log_posterior(far, mask).cpu().exp() - hmm.log_posterior(tokens, hidden).exp()
    ).abs()
    many, masks = far.repeat(20, 1), mask.repeat(20, 1)
    return {
        "largest_difference_from_cpu": gap.max().item(),
        "tokens_per_second_1000_rows": 128e3 / timed(lambda: there.log_posterior(far, mask)),
        "tokens_per_second_20000_rows": 2.56e6 / timed(lambda: there.log_posterior(many, masks)),
    }


def training(device: str) -> dict[str, object]:
    """A network trained on the GPU in bfloat16, decoded with its cache, and an ensemble."""
    truth = HMM.random(4, 5, 16, seed=0, device=device)
    shape = Shape(6, 17, width=64, layers=2, heads=4)
    lm = CausalLM(Transformer(shape, seed=0, device=device))
    recipe = Recipe(steps=300, batch=128, learning_rate=2e-3, autocast="bfloat16", warmup=10)
    meter = gap_meter(next_token(truth), truth.sample(500, TorchRng(9, device)))
    before = meter(lm).kl
    history = fit(lm, truth.sample, next_token(truth), recipe, TorchRng(1, device), meter=meter)
    cached, plain = CachedDecoder(lm, 8), RecomputingDecoder(lm, 8, device=device)
    rng, gap = TorchRng(2, device), 0.0
    for _ in range(12):
        law, wanted = cached.next_log_probs(), plain.next_log_probs()
        gap = max(gap, float((law - wanted).abs().max()))
        drawn = rng.categorical(law)
        for decoder in (cached, plain):
            decoder.append(drawn)
    members = 16
    nets = [CausalLM(Transformer(shape, seed=s, device=device)) for s in range(members)]
    quick = Recipe(steps=30, batch=32)
    rngs = [TorchRng(s, device) for s in range(members)]
    fit_ensemble(nets, truth.sample, next_token(), Recipe(steps=3, batch=32), rngs)
    torch.cuda.synchronize()
    started = time.perf_counter()
    fit_ensemble(nets, truth.sample, next_token(), quick, rngs)
    torch.cuda.synchronize()
    together = time.perf_counter() - started
    started = time.perf_counter()
    for net, member_rng in zip(nets, rngs, strict=True):
        fit(net, truth.sample, next_token(), quick, member_rng)
    torch.cuda.synchronize()
    apart = time.perf_counter() - started
    return {
        "kl_before": before,
        "kl_after": history.gaps[-1][1].kl,
        "cache_gap": gap,
        "ensemble_members": members,
        "ensemble_speedup": apart / together,
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
    report["training"] = training(device)
    report["gradient_device"] = str(vectors.grad.device) if vectors.grad is not None else "none"
    text = json.dumps(report, indent=2)
    print(text)
    if len(sys.argv) > 1:
        write_text(sys.argv[1], text + "\n")


if __name__ == "__main__":
    main()
