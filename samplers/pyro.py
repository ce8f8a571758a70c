"""Pyro: importance resampling."""

from typing import Any

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("pyro-ppl")

LOGITS = [0.5, -0.3, 0.9]


def _resampler(stable: bool) -> Any:
    from pyro.infer.resampler import Resampler

    def program() -> tuple[int, ...]:
        resampler = Resampler.__new__(Resampler)  # the draw alone, without a model
        resampler._gumbels = None
        logits = torch.tensor(LOGITS, dtype=torch.float64)
        return tuple(resampler._categorical_sample(logits, 2, stable).tolist())

    law = definitions.softmax(LOGITS)
    return Case(program, definitions.product(law, law))


@SHELF.add(
    "Resampler, stable",
    promise="Implement stable categorical sampling via the Gumbel-max trick",
    source="comment in Resampler._categorical_sample",
    note="two draws of three",
    rounding=1e-8,
)
def stable() -> Case:
    return _resampler(True)


@SHELF.add(
    "Resampler, multinomial",
    promise="False for Monte Carlo integration",
    source="docstring of Resampler.sample, argument stable",
    note="two draws of three",
)
def multinomial() -> Case:
    return _resampler(False)
