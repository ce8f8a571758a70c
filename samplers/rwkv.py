"""rwkv: the sampler of its pipeline."""

from typing import Any

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("rwkv")

LOGITS = [0.4, 1.3, -0.2, 0.9, 0.1]


def _sample(**options: Any) -> Any:
    from rwkv.utils import PIPELINE

    logits = torch.tensor(LOGITS)
    # The class reads a tokenizer's file when it is made; the method needs none.
    pipeline = PIPELINE.__new__(PIPELINE)
    return lambda: pipeline.sample_logits(logits.clone(), **options)


def _sharpened(law: definitions.Law, temperature: float) -> definitions.Law:
    return definitions.normalised({x: p ** (1 / temperature) for x, p in law.items()})


@SHELF.add(
    "PIPELINE.sample_logits, top_p and temperature",
    promise="temperature=1.0, top_p=0.85, top_k=0",
    source="signature; names of the field",
    note="top_p 0.7 on the probabilities at temperature 1, temperature 1.5 after it: the order is the library's choice",
    rounding=1e-6,
)
def top_p() -> Case:
    law = _sharpened(definitions.nucleus(definitions.softmax(LOGITS), 0.7), 1.5)
    return Case(_sample(temperature=1.5, top_p=0.7), law)


@SHELF.add(
    "PIPELINE.sample_logits, top_k",
    promise="top_k = 100, # top_k = 0 then ignore",
    source="README",
    note="top_k 2 of five tokens",
    rounding=1e-6,
)
def top_k() -> Case:
    return Case(_sample(top_p=1.0, top_k=2), definitions.top_k(definitions.softmax(LOGITS), 2))
