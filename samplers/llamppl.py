"""llamppl: sequential Monte Carlo for language model programs."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("llamppl")

FIRST = {0: 0.5, 1: 0.3, 2: 0.2}
SCORE = {0: 0.2, 1: 1.0, 2: 2.0}
WEIGHTS = [0.45, 0.3, 0.25]


def _model(steps: int) -> Any:
    """Draws from FIRST, each scored by SCORE: a model whose posterior is a product."""
    import random

    from llamppl import Model

    class Draws(Model):
        def __init__(self) -> None:
            super().__init__()
            self.drawn: tuple[int, ...] = ()

        async def step(self) -> None:
            x = random.choices(list(FIRST), list(FIRST.values()))[0]
            self.drawn = (*self.drawn, x)
            self.score(math.log(SCORE[x]))
            if len(self.drawn) == steps:
                self.finish()

    return Draws()


def _means(law: Mapping[Any, float]) -> dict[Any, float]:
    """Outcome -> E[mean weight of the particles that hold it]."""
    found: dict[Any, float] = {}
    for particles, p in law.items():
        for outcome, log_weight in particles:
            found[outcome] = found.get(outcome, 0.0) + p * math.exp(log_weight) / len(particles)
    return found


def _posterior(steps: int) -> definitions.Law:
    one = {x: p * SCORE[x] for x, p in FIRST.items()}
    return definitions.product(*[one] * steps)


@SHELF.add(
    "smc_standard, two particles",
    promise="Standard sequential Monte Carlo algorithm",
    source="docstring of smc_standard",
    note="two draws, resampling whenever weights differ; mean weight of each outcome, and so the evidence",
)
def standard() -> Case:
    from llamppl import smc_standard

    def program() -> tuple[Any, ...]:
        particles = asyncio.run(smc_standard(_model(2), 2, ess_threshold=1.0))
        return tuple((p.drawn, round(float(p.weight), 9)) for p in particles)

    return Case(program, _posterior(2), reading=_means)


@SHELF.add(
    "smc_steer, two particles, two beams",
    promise="Modified sequential Monte Carlo algorithm that uses without-replacement resampling",
    source="docstring of smc_steer; the abstract that it cites keeps the estimates unbiased",
    note="one draw; mean weight of each outcome. The weights of resample_optimal are the cause",
    issue="llamppl-find-c.md",
)
def steer() -> Case:
    from llamppl import smc_steer

    def program() -> tuple[Any, ...]:
        particles = asyncio.run(smc_steer(_model(1), 2, 2))
        return tuple((p.drawn, round(float(p.weight), 9)) for p in particles)

    return Case(program, _posterior(1), reading=_means)


@SHELF.add(
    "resample_optimal of smc_steer",
    promise="Use optimal resampling to resample",
    source="comment in smc_steer; Fearnhead and Clifford (2003) keep the mean of every weight",
    note="two of four weights 0.05, 0.05, 0.1, 0.8. find_c returns 2 where 1 / c is the threshold; "
    "the three small weights are drawn with probability 5 w and kept with weight 1 / 2, so that their mean is 2.5 w",
    issue="llamppl-find-c.md",
)
def optimal() -> Case:
    import numpy as np
    from llamppl.inference.smc_steer import resample_optimal

    weights = [0.05, 0.05, 0.1, 0.8]

    def program() -> tuple[tuple[int, float], ...]:
        certain, drawn, c = resample_optimal(np.array(weights), 2)
        kept = [(int(i), weights[i]) for i in certain]
        return (*kept, *((int(i), round(1 / float(c), 9)) for i in drawn))

    def reading(law: Mapping[Any, float]) -> dict[Any, float]:
        means: dict[Any, float] = {}
        for particles, p in law.items():
            for i, weight in particles:
                means[i] = means.get(i, 0.0) + p * weight
        return means

    return Case(program, dict(enumerate(weights)), reading=reading)


def _resample(method: str, target: definitions.Law) -> Case:
    import numpy as np
    from llamppl.inference.resampling import get_resampling_fn

    resample = get_resampling_fn(method)
    return Case(lambda: tuple(int(i) for i in resample(np.array(WEIGHTS))), target)


@SHELF.add(
    "systematic_resample",
    promise="Each index i is resampled exactly floor(N * w_i) or ceil(N * w_i) times",
    source="docstring of systematic_resample",
    note="three particles; the whole law of the ancestors",
)
def systematic() -> Case:
    return _resample("systematic", definitions.systematic_resampling(WEIGHTS, 3))


@SHELF.add(
    "residual_resample",
    promise="Takes floor(N * w_i) copies of each particle deterministically, then resamples the remaining slots",
    source="docstring of residual_resample",
    note="three particles",
)
def residual() -> Case:
    return _resample("residual", definitions.residual_resampling(WEIGHTS, 3))


@SHELF.add(
    "multinomial_resample",
    promise="Each of the N ancestor indices is drawn independently",
    source="docstring of multinomial_resample",
    note="three particles",
)
def multinomial() -> Case:
    return _resample("multinomial", definitions.multinomial_resampling(WEIGHTS, 3))
