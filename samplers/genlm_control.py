"""genlm-control: constrained generation by properly weighted samples."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("genlm-control")

VOCABULARY = ["a", "b", "c"]
NEXT = {"a": 0.4, "b": 0.25, "c": 0.2, "": 0.15}  # "" ends a string
ALLOWED = {"a": False, "b": True, "c": True, "": True}
PROPERLY = "Sample a token and weight that are properly weighted with respect to the target potential's `logw_next` method"


def _language_model(chances: Mapping[str, float]) -> Any:
    """A potential: tokens are drawn independently until the end."""
    from genlm.control import Potential

    class Independent(Potential):
        async def prefix(self, context: list[str]) -> float:
            return sum(math.log(chances[x]) for x in context)

        async def complete(self, context: list[str]) -> float:
            return await self.prefix(context) + math.log(chances[""])

    return Independent(VOCABULARY)


def _condition() -> Any:
    """A potential that is 0 where every token is allowed."""
    from genlm.control import Potential

    class Allowed(Potential):
        async def prefix(self, context: list[str]) -> float:
            return 0.0 if all(ALLOWED[x] for x in context) else -math.inf

        async def complete(self, context: list[str]) -> float:
            return await self.prefix(context)

    return Allowed(VOCABULARY)


def _name(token: Any) -> str:
    return token if isinstance(token, str) else ""


def _weights(law: Mapping[Any, float]) -> dict[Any, float]:
    """Outcome -> E[weight; outcome]: what proper weighting promises."""
    found: dict[Any, float] = {}
    for (outcome, log_weight), p in law.items():
        found[outcome] = found.get(outcome, 0.0) + p * math.exp(log_weight)
    return found


def _token(sampler: Any, target: Mapping[str, float]) -> Case:
    def program() -> tuple[str, float]:
        token, log_weight, _ = asyncio.run(sampler.sample([]))
        return _name(token), round(float(log_weight), 9)

    return Case(program, dict(target), reading=_weights)


def _allowed() -> dict[str, float]:
    return {x: p for x, p in NEXT.items() if ALLOWED[x]}


@SHELF.add(
    "AWRS.sample, recursive",
    promise="It draws properly weighted samples from the product of a non-boolean potential and a boolean condition",
    source="docstring of AWRS",
    note="four tokens, of which the likeliest is not allowed; mean weight of each token",
    rounding=1e-8,
)
def awrs() -> Case:
    from genlm.control import AWRS

    return _token(AWRS(_language_model(NEXT), _condition(), autobatch=False), _allowed())


@SHELF.add(
    "AWRS.sample, a proposal of its own",
    promise="the returned weight is corrected by `target/proposal` so the sample stays properly weighted",
    source="docstring of AWRS",
    note="tokens proposed from another law",
    rounding=1e-8,
)
def awrs_with_proposal() -> Case:
    from genlm.control import AWRS

    proposal = _language_model({"a": 0.3, "b": 0.2, "c": 0.3, "": 0.2})
    sampler = AWRS(_language_model(NEXT), _condition(), proposal=proposal, autobatch=False)
    return _token(sampler, _allowed())


@SHELF.add(
    "DirectTokenSampler.sample, with a proposal",
    promise=PROPERLY,
    source="docstring of DirectTokenSampler.sample",
    note="importance weights against another law; draws by Gumbel keys",
    rounding=1e-8,
)
def direct() -> Case:
    from genlm.control.sampler.token import DirectTokenSampler

    proposal = _language_model({"a": 0.3, "b": 0.2, "c": 0.3, "": 0.2})
    return _token(DirectTokenSampler(_language_model(NEXT), proposal, autobatch=False), NEXT)


@SHELF.add(
    "SMC, two particles, resampling at every step",
    promise="the resulting sequences are properly weighted with respect to the product of the unit sampler's target "
    "potential and the critic potential",
    source="docstring of SMC",
    note="strings of at most one token before the end, a critic that counts c three times; mean weight of each string",
    rounding=1e-8,
)
def smc() -> Case:
    from genlm.control import SMC, Potential
    from genlm.control.sampler.token import DirectTokenSampler

    class Counts(Potential):
        async def prefix(self, context: list[str]) -> float:
            return math.log(3.0) * context.count("c")

        async def complete(self, context: list[str]) -> float:
            return await self.prefix(context)

    sampler = DirectTokenSampler(_language_model(NEXT), autobatch=False)
    algorithm = SMC(sampler, Counts(VOCABULARY), autobatch=False)

    def program() -> tuple[tuple[str, float], ...]:
        found = asyncio.run(algorithm(n_particles=2, ess_threshold=1.0, max_tokens=2))
        return tuple(("".join(map(_name, context)), round(float(w), 9)) for context, w in found)

    def reading(law: Mapping[Any, float]) -> dict[str, float]:
        means: dict[str, float] = {}
        for particles, p in law.items():
            for outcome, log_weight in particles:
                if log_weight > -math.inf:
                    share = p * math.exp(log_weight) / len(particles)
                    means[outcome] = means.get(outcome, 0.0) + share
        return means

    critic = {"a": 1.0, "b": 1.0, "c": 3.0, "": 1.0}
    target = {x: NEXT[x] * critic[x] * NEXT[""] for x in VOCABULARY}
    return Case(program, {**target, "": NEXT[""]}, reading=reading)


WEIGHTS = [0.45, 0.3, 0.25]


def _resample(method: str, target: definitions.Law) -> Case:
    import numpy as np
    from genlm.control.sampler.resampling import get_resampling_fn

    resample = get_resampling_fn(method)
    return Case(lambda: tuple(int(i) for i in resample(np.array(WEIGHTS))), target)


@SHELF.add(
    "systematic_resample",
    promise="Generates N equally spaced probe points in [0, 1] with a single random offset between 0 and 1/N",
    source="docstring of systematic_resample",
    note="three particles",
)
def systematic() -> Case:
    return _resample("systematic", definitions.systematic_resampling(WEIGHTS, 3))


@SHELF.add(
    "stratified_resample",
    promise="Divides [0, 1] into N equal strata and draws one uniform point independently within each",
    source="docstring of stratified_resample",
    note="three particles",
)
def stratified() -> Case:
    return _resample("stratified", definitions.stratified_resampling(WEIGHTS, 3))


@SHELF.add(
    "residual_resample",
    promise="Takes floor(N * w_i) copies of each particle deterministically, then resamples the remaining slots from "
    "the fractional residuals using multinomial resampling",
    source="docstring of residual_resample",
    note="three particles",
)
def residual() -> Case:
    return _resample("residual", definitions.residual_resampling(WEIGHTS, 3))


@SHELF.add(
    "inverse_cdf",
    promise="Inverse-CDF draw over the last dim, one uniform per row",
    source="docstring of inverse_cdf",
    note="one row of three",
)
def inverse_cdf() -> Case:
    import torch
    from genlm.control.util import inverse_cdf as draw

    rows = torch.tensor(WEIGHTS, dtype=torch.float64).log()
    return Case(lambda: int(draw(rows)), dict(enumerate(WEIGHTS)))
