"""FilterPy: resampling of particle filters."""

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("filterpy")

WEIGHTS = [0.45, 0.3, 0.25]


def _scheme(name: str, target: definitions.Law) -> Case:
    import numpy as np
    from filterpy import monte_carlo

    resample = getattr(monte_carlo, name)
    return Case(lambda: tuple(int(i) for i in resample(np.array(WEIGHTS))), target)


@SHELF.add(
    "residual_resample",
    promise="Take int(N*w^i) samples of each particle i, and then resample any remaining using a standard resampling "
    "algorithm",
    source="docstring",
    note="weights 0.45, 0.3, 0.25. The rest is computed as w - int(N w), where N w - int(N w) is meant: here the first "
    "particle takes every place",
    issue="filterpy-residual.md",
)
def residual() -> Case:
    return _scheme("residual_resample", definitions.residual_resampling(WEIGHTS, 3))


@SHELF.add(
    "stratified_resample",
    promise="divides the cumulative sum of the weights into N equal divisions, and then selects one particle randomly "
    "from each division",
    source="docstring",
    note="three particles",
)
def stratified() -> Case:
    return _scheme("stratified_resample", definitions.stratified_resampling(WEIGHTS, 3))


@SHELF.add(
    "systematic_resample",
    promise="A single random offset is used to to choose where to sample from for all divisions",
    source="docstring",
    note="three particles",
)
def systematic() -> Case:
    return _scheme("systematic_resample", definitions.systematic_resampling(WEIGHTS, 3))


@SHELF.add(
    "multinomial_resample",
    promise="use binary search to select the resampled point based on a uniformly distributed random number",
    source="docstring",
    note="three particles",
)
def multinomial() -> Case:
    return _scheme("multinomial_resample", definitions.multinomial_resampling(WEIGHTS, 3))
