"""particles (Chopin and Papaspiliopoulos): resampling schemes."""

import random
from collections.abc import Mapping
from typing import Any

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("particles")

WEIGHTS = [0.45, 0.3, 0.25]
RUNS_IN_PYTHON = "three particles; numba is switched off, so that the same source runs as Python"


def _scheme(name: str, target: definitions.Law, **more: Any) -> Case:
    import numpy as np
    from particles import resampling

    def program() -> tuple[int, ...]:
        return tuple(int(i) for i in resampling.resampling(name, np.array(WEIGHTS)))

    return Case(program, target, **more)


def shares(law: Mapping[Any, float]) -> dict[int, float]:
    """Particle -> mean share of the offspring: what an unbiased scheme promises."""
    found: dict[int, float] = {}
    for ancestors, p in law.items():
        for k in ancestors:
            found[k] = found.get(k, 0.0) + p / len(ancestors)
    return found


@SHELF.add(
    "systematic",
    promise="Systematic resampling",
    source="docstring",
    note=RUNS_IN_PYTHON,
)
def systematic() -> Case:
    return _scheme("systematic", definitions.systematic_resampling(WEIGHTS, 3))


@SHELF.add(
    "stratified",
    promise="Stratified resampling",
    source="docstring",
    note=RUNS_IN_PYTHON,
)
def stratified() -> Case:
    return _scheme("stratified", definitions.stratified_resampling(WEIGHTS, 3))


@SHELF.add(
    "multinomial",
    promise="sample N independently from the multinomial distribution that generates n with probability W^n ... "
    "the output of this function is ordered",
    source="docstring",
    note=f"{RUNS_IN_PYTHON}. Ordered uniforms are ratios of sums of exponentials, which no door cuts into finite "
    "choices: draws alone",
    entered=False,
)
def multinomial() -> Case:
    target = definitions.merged(
        definitions.multinomial_resampling(WEIGHTS, 3), lambda drawn: tuple(sorted(drawn))
    )
    return _scheme("multinomial", target)


@SHELF.add(
    "ssp",
    promise="number of off-springs is either k or k + 1, with k <= N W^n",
    source="docstring; offspring numbers with mean N W^n (Gerber, Chopin and Whiteley, 2019)",
    note=RUNS_IN_PYTHON,
)
def ssp() -> Case:
    return _scheme("ssp", dict(enumerate(WEIGHTS)), reading=shares)


@SHELF.add(
    "killing",
    promise="keeps the current value (with probability W[i] / W.max()), or replaces it by a draw from the multinomial "
    "distribution",
    source="docstring; a survivor chosen at random has the law of the weights",
    note=f"{RUNS_IN_PYTHON}. Draws alone, for it draws by `multinomial`",
    entered=False,
)
def killing() -> Case:
    import numpy as np
    from particles import resampling

    def program() -> int:
        return random.choice(resampling.resampling("killing", np.array(WEIGHTS)).tolist())

    return Case(program, dict(enumerate(WEIGHTS)))


@SHELF.add(
    "multinomial_once",
    promise="a single draw from the discrete distribution that generates n with probability W[n]",
    source="docstring",
    note="three particles",
)
def once() -> Case:
    import numpy as np
    from particles import resampling

    return Case(
        lambda: int(resampling.multinomial_once(np.array(WEIGHTS))), dict(enumerate(WEIGHTS))
    )
