"""litgpt: sampling and speculative decoding."""

import functools
from collections.abc import Callable

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("litgpt")

LOGITS = [0.4, 1.3, -0.2, 0.9, 0.1]


def _sample(temperature: float, top_k: int | None, top_p: float, law: definitions.Law) -> Case:
    from litgpt.generate.base import sample

    logits = torch.tensor(LOGITS, dtype=torch.float64)[None, None]
    return Case(lambda: int(sample(logits, temperature=temperature, top_k=top_k, top_p=top_p)), law)


@SHELF.add(
    "generate.base.sample, top_p",
    promise="crop the logits to smallest set of logits with a cumulative probability above top_p",
    source="comment in sample",
    note="five tokens, temperature 0.8, top_p 0.7",
)
def top_p() -> Case:
    return _sample(0.8, None, 0.7, definitions.nucleus(definitions.softmax(LOGITS, 0.8), 0.7))


@SHELF.add(
    "generate.base.sample, top_k",
    promise="crop the logits to only the top k options",
    source="comment in sample",
    note="five tokens, temperature 0.8, top_k 3",
)
def top_k() -> Case:
    return _sample(0.8, 3, 1.0, definitions.top_k(definitions.softmax(LOGITS, 0.8), 3))


SPECULATIVE = 'This implements the speculative decoding algorithm from "Fast Inference from Transformers via Speculative Decoding"'


Model = Callable[..., torch.Tensor]


def _table(seed: int) -> Model:
    """A stand-in for GPT: logits of three tokens that depend on the token before and on the position."""
    table = torch.randn(6, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    def model(idx: torch.Tensor, input_pos: torch.Tensor, input_pos_maxp1: int) -> torch.Tensor:
        return table[input_pos, idx[0]][None]

    return model


def _constant(logits: list[float]) -> Model:
    """The same logits everywhere."""
    row = torch.tensor(logits, dtype=torch.float64)
    return lambda idx, input_pos, input_pos_maxp1: row.expand(1, idx.shape[1], -1)


def _speculate(
    draft: Model,
    target: Model,
    law: Callable[[list[float]], definitions.Law],
    **options: float,
) -> Case:
    from litgpt.generate.speculative_decoding import speculative_decoding

    def program() -> int | str:
        at = torch.tensor([0]), torch.tensor([0]), 1
        try:
            return int(speculative_decoding(draft, target, *at, speculative_k=1, **options)[0])
        except RuntimeError:
            return "RuntimeError"

    logits = target(torch.tensor([[0]]), torch.tensor([0]), 1)[0, 0]
    return Case(program, law(logits.tolist()))


@SHELF.add(
    "speculative_decoding, temperature 0.7",
    promise=SPECULATIVE,
    source="docstring of speculative_decoding",
    note="three tokens, one draft token; the law of the first token",
)
def speculative() -> Case:
    law = functools.partial(definitions.softmax, temperature=0.7)
    return _speculate(_table(1), _table(2), law, temperature=0.7)


@SHELF.add(
    "speculative_decoding, temperature 0",
    promise=SPECULATIVE,
    source="docstring of speculative_decoding; in the paper temperature 0 is the argmax of the target",
    note="sample returns softmax(logits) as the law of an argmax, so that a draft is accepted with a probability "
    "instead of when it is the target's best token. The target alone always writes its best token",
    issue="litgpt-speculation.md",
)
def greedy() -> Case:
    draft, target = _constant([1.0, 0.0, 0.0]), _constant([0.0, 1.0, 0.9])
    return _speculate(
        draft, target, lambda logits: {max(range(3), key=logits.__getitem__): 1.0}, temperature=0.0
    )


@SHELF.add(
    "speculative_decoding, top_p 0.7",
    promise="top_p: If <1.0, only sample from tokens whose cumulative probability exceeds top_p",
    source="docstring of litgpt.generate.speculative_decoding.generate",
    note="a rejected draft raises a RuntimeError of torch.multinomial: the adjusted probabilities go through "
    "sample_top_p as if they were logits, and come back with -inf. The error counts as an outcome here",
    issue="litgpt-speculation.md",
)
def speculative_top_p() -> Case:
    def law(logits: list[float]) -> definitions.Law:
        return definitions.nucleus(definitions.softmax(logits), 0.7)

    draft, target = _constant([1.0, 0.0, 0.0]), _constant([0.0, 1.0, 0.9])
    return _speculate(draft, target, law, temperature=1.0, top_p=0.7)
