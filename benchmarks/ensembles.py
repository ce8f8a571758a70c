"""`python -m benchmarks.ensembles [DEVICE] [FILE]`: 40 networks at once against one after another.

The 2-layer network of width 50 on Dyck_{2,4} [li, 2.2.3], 100 strings a step. Weights, data and the
first kernels are not counted: each way runs a few steps first. On a CPU one core is used and its
own time is counted, so that other programs do not matter. Writes a JSON FILE.
"""

import json
import sys
import time
from collections.abc import Callable

import torch

from triptych.core.files import write_text
from triptych.core.randomness import TorchRng
from triptych.studies.brackets.shared.networks import (
    DATA_SEED,
    Architecture,
    Language,
    at_closing_brackets,
    new_network,
)
from triptych.training.corpus import Corpus
from triptych.training.ensembles import fit_ensemble
from triptych.training.loop import fit
from triptych.training.step import Recipe

LANGUAGE, ARCHITECTURE, RATE = Language(2, 4, "complete"), Architecture("standard", 2), 3e-3
BAR = 10.0  # times, on an H200
REPEATS = 3  # of training at once


def timed(program: Callable[[], list[float]], device: str) -> tuple[float, list[float]]:
    """Seconds, and the last losses."""
    on_gpu = torch.device(device).type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    if on_gpu:
        torch.cuda.synchronize()
    started = clock()
    losses = program()
    if on_gpu:
        torch.cuda.synchronize()
    return clock() - started, losses


def compare(
    device: str, *, members: int = 40, steps: int = 60, batch: int = 100
) -> dict[str, object]:
    """Seconds of both ways, their ratio, and how far their last losses are apart."""
    law, objective = LANGUAGE.law(), at_closing_brackets(LANGUAGE.types)
    corpus = Corpus.draw(law, 3572, TorchRng(DATA_SEED), chunk=law.length, device=device)

    def together(count: int) -> tuple[float, list[float]]:
        models = [new_network(LANGUAGE, ARCHITECTURE, seed, device) for seed in range(members)]
        rngs = [TorchRng(seed, device) for seed in range(members)]
        recipe = Recipe(count, batch, learning_rate=RATE)

        def program() -> list[float]:
            histories = fit_ensemble(models, corpus, objective, recipe, rngs)
            return [history.losses[-1] for history in histories]

        return timed(program, device)

    def alone(seed: int, count: int) -> tuple[float, list[float]]:
        model, rng = new_network(LANGUAGE, ARCHITECTURE, seed, device), TorchRng(seed, device)
        recipe = Recipe(count, batch, learning_rate=RATE)
        return timed(lambda: [fit(model, corpus.sample, objective, recipe, rng).losses[-1]], device)

    together(5)
    at_once = sorted(together(steps) for _ in range(REPEATS))
    alone(0, 5)
    one_by_one = [alone(seed, steps) for seed in range(members)]
    apart = sum(seconds for seconds, _ in one_by_one)
    losses = [losses[0] for _, losses in one_by_one]
    gaps = [abs(a - b) for a, b in zip(at_once[0][1], losses, strict=True)]
    return {
        "what": f"training {members} networks of 2 layers, width 50, {batch} strings a step",
        "device": torch.cuda.get_device_name() if device != "cpu" else "one CPU core",
        "torch": torch.__version__,
        "steps": steps,
        "bar": BAR,
        "seconds_at_once": [seconds for seconds, _ in at_once],
        "seconds_one_after_another": apart,
        "ratio": apart / at_once[REPEATS // 2][0],
        "ratio_low": apart / at_once[-1][0],
        "largest_difference_of_last_losses": max(gaps),
    }


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    text = json.dumps(compare(device), indent=2)
    print(text)
    if len(sys.argv) > 2:
        write_text(sys.argv[2], text + "\n")


if __name__ == "__main__":
    main()
