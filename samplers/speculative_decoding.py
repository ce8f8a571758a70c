"""speculative-decoding (lucidrains): algorithm 1 of the paper, with caches."""

from collections.abc import Callable
from typing import Any

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("speculative-decoding")


def _network(seed: int, tokens: int) -> Callable[..., Any]:
    """A stand-in for a decoder: logits that depend on the token before. Its cache holds nothing."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(tokens, tokens, dtype=torch.float64, generator=generator)

    def net(seen: torch.Tensor, **_: Any) -> Any:
        return table[seen], (torch.zeros(1, 1, seen.shape[-1], 1), None)

    return net


def _speculate(tokens: int, gamma: int, temperature: float, thres: float, keep: int) -> Case:
    from speculative_decoding import speculative_decoding

    big, small = _network(1, tokens), _network(2, tokens)
    prompt = torch.tensor([[0]])

    def program() -> tuple[int, ...]:
        written, _ = speculative_decoding(
            big, small, prompt, 3, gamma=gamma, temperature=temperature, filter_thres=thres
        )
        return tuple(written[0].tolist())

    def following(prefix: tuple[int, ...]) -> definitions.Law:
        before = prefix[-1] if prefix else 0
        logits = big(torch.tensor([[before]]))[0][0, 0].tolist()
        return definitions.top_k(definitions.softmax(logits, temperature), keep)

    return Case(program, definitions.sequences(following, 2))


ALGORITHM_1 = "eq. algorithm 1 in paper https://arxiv.org/abs/2211.17192"


@SHELF.add(
    "speculative_decoding",
    promise=ALGORITHM_1,
    source="docstring of speculative_decoding",
    note="strings of two tokens out of two, two draft tokens, temperature 0.8, every token allowed",
    rounding=1e-6,
)
def plain() -> Case:
    return _speculate(2, 2, 0.8, 0.0, 2)


@SHELF.add(
    "speculative_decoding, top-k filter",
    promise=ALGORITHM_1,
    source="docstring of speculative_decoding",
    note="both models keep two of three tokens, one draft token",
    rounding=1e-6,
)
def filtered() -> Case:
    return _speculate(3, 1, 1.0, 0.4, 2)
