"""Three positions of a real masked model, exactly: the table of docs/unmasking.md.

    triptych fetch sapiens
    python tools/antibody_blocks.py FOLDER_OF_SAPIENS

The model has 20 amino acids, so the 8,000 states of three hidden positions are listed. The chain is
the example of the package's own README (version 1.0.2), which hides positions 0, 1 and 5.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import torch

from triptych.models.pretrained.small_masked import AMINO_ACIDS, amino_acids, load_sapiens
from triptych.theory.masking.windows import Window, conditionals, cycles, filled, settle

CHAIN = (
    "QVQLVQSGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAYMELKSLQFDDTAVYY"
    "CARRDYRFDMGFDYWGQGTTVTVSS"
)
WINDOWS = {
    "the README's": (0, 1, 5),
    "in the loop that binds": (98, 99, 100),
    "apart in it": (98, 101, 104),
}


class Remembered:
    """A masked oracle that is asked each question once."""

    def __init__(self, oracle: Window) -> None:
        self.oracle, self.vocab_size = oracle, oracle.vocab_size
        self.known: dict[tuple[int, ...], torch.Tensor] = {}

    def masked_log_probs(self, tokens: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """The answers, from memory where they are known."""
        keys = [tuple(row) for row in tokens.masked_fill(hidden, -1).tolist()]
        new = [number for number, key in enumerate(keys) if key not in self.known]
        if new:
            laws = self.oracle.masked_log_probs(tokens[new], hidden[new])
            for number, law in zip(new, laws, strict=True):
                self.known[keys[number]] = law
        return torch.stack([self.known[key] for key in keys])


def measured(name: str, places: tuple[int, ...], model: object, tokens: torch.Tensor) -> dict:
    began = time.time()
    window = Remembered(Window(model, tokens, places))  # pyright: ignore[reportArgumentType]
    logs = conditionals(window, 3)
    orders = {order: filled(window, order).exp() for order in itertools.permutations(range(3))}
    laws = list(orders.values())
    apart = [float((a - b).abs().sum() / 2) for a, b in itertools.combinations(laws, 2)]
    settled = settle(logs)
    hidden = torch.ones((1, 3), dtype=torch.bool)
    alone = window.masked_log_probs(torch.zeros((1, 3), dtype=torch.long), hidden)[0].exp()
    at_once = torch.einsum("a,b,c->abc", *alone)
    mean = torch.stack(laws).mean(0)
    greedy = tuple(int(law.argmax()) for law in alone)
    best = divmod_state(int(mean.argmax()))
    cycle = cycles(logs)

    def tv(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a - b).abs().sum() / 2)

    def kl(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a * (a.log() - b.log())).sum())

    return {
        "window": name,
        "positions": list(places),
        "orders_apart": max(apart),
        "cycle": cycle.worst,
        "cycle_likely": cycle.likely,
        "least_error": cycle.least,
        "settled_from_orders": tv(settled.law, mean),
        "gap": settled.gap,
        "residual": settled.residual,
        "at_once_from_orders": tv(at_once, mean),
        "lost_at_once": kl(mean, at_once),
        "greedy": "".join(AMINO_ACIDS[word] for word in greedy),
        "greedy_chance": float(mean[greedy]),
        "best": "".join(AMINO_ACIDS[word] for word in best),
        "best_chance": float(mean[best]),
        "questions": len(window.known),
        "seconds": round(time.time() - began, 1),
    }


def divmod_state(number: int) -> tuple[int, int, int]:
    """The three words of a state of 20 x 20 x 20."""
    return number // 400, number // 20 % 20, number % 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    model = load_sapiens(options.folder)
    words, _ = amino_acids(CHAIN)
    for name, places in WINDOWS.items():
        print(json.dumps(measured(name, places, model, torch.tensor(words))), flush=True)


if __name__ == "__main__":
    main()
