"""The claims of `reaching_the_mode`: rows on which each judge holds, and rows that refute it."""

import math
from dataclasses import replace

from triptych.studies.api.study import Claim
from triptych.studies.masking.reaching_the_mode.judge import (
    FEWEST_CASES,
    FEWEST_MODELS,
    judge_corollary,
    judge_figure,
    judge_maps,
    judge_modes,
    judge_products,
    judge_reach,
    judge_stuck,
)
from triptych.studies.masking.reaching_the_mode.rows import (
    BlockStep,
    DecoderStep,
    Lumping,
    MadeLaw,
    MadeMap,
    MadeZeros,
    Modes,
    Reached,
    Row,
    Separated,
    SpinRun,
    Steps,
    Stuck,
)
from triptych.studies.masking.reaching_the_mode.steps import BOUNDS, FIGURE, REPEATS

_COUPLINGS = (2.0, 3.0, 5.0, 10.0)
_GRID = {  # k: E min(T, 1000) at these J, rounded; 0 is independent parallel
    0: (4.2, 552.0, 1000.0, 1000.0),
    1: (45.5, 953.0, 1000.0, 1000.0),
    2: (13.3, 382.0, 1000.0, 1000.0),
    3: (7.4, 29.5, 64.2, 1000.0),
    4: (5.1, 10.4, 19.0, 208.2),
    8: (1.87, 1.92, 2.26, 3.0),
    10: (1.0, 1.0, 1.0, 1.0),
}


def _steps(j: float, k: int, mean: float) -> Steps:
    """A cell of the figure. Blocks that do not arrive in time still differ in log E[T]."""
    far = mean >= 999.0
    return Steps(
        times=(1, 1000),
        exact_shares=(0.5, 1.0),
        counts=(1000, 2000),
        runs=2000,
        coupling=j,
        k=k,
        capped_mean=mean,
        log_mean=20.0 - k if far else math.log(mean),
        log_reached=-20.0 if far else 0.0,
        repeats=(mean,) * REPEATS,
    )


def spin_run(setting: str, k: int) -> SpinRun:
    """A run that fits: half of the chains arrive in the first step."""
    return SpinRun((1, 30), (0.5, 1.0), (1000, 2000), 2000, setting, 1.0, k)


_AROUND = [Lumping(1, 0.0), spin_run(FIGURE, 0), spin_run(FIGURE, 2)]
_CELLS = {
    (j, k): _steps(j, k, mean)
    for k, means in _GRID.items()
    for j, mean in zip(_COUPLINGS, means, strict=True)
}
FIGURE_HELD: list[Row] = [*_AROUND, *_CELLS.values()]


def _figure(changed: dict[tuple[float, int], Steps]) -> list[Row]:
    return [*_AROUND, *(_CELLS | changed).values()]


FIGURE_REFUTED = [
    _figure({(j, 8): replace(_CELLS[j, 8], log_mean=math.log(500.0)) for j in (2.0, 3.0)}),
    _figure({(j, 4): replace(_CELLS[j, 4], capped_mean=5.1) for j in _COUPLINGS}),
    _figure({(5.0, 4): replace(_CELLS[5.0, 4], capped_mean=5.1)}),
    _figure({(10.0, 4): replace(_CELLS[10.0, 4], log_reached=-20.0)}),
    _figure({(5.0, 0): replace(_CELLS[5.0, 0], log_reached=-1.0)}),
    # Nothing depends on k or J, and independent parallel arrives as well.
    _figure(
        {
            at: replace(row, capped_mean=20.0, log_mean=3.0, log_reached=0.0)
            for at, row in _CELLS.items()
        }
    ),
]

_MODE = Modes(0, 2, 2, 3.0, (1.0, 0.25), 0, 3.5, 2.5, 2.5, 4.0, 2.5, 0.0)
_EQUAL = Modes(0, 2, 2, 3.0, (1.0, 0.0), 0, 4.0, 2.0, 2.0, 4.0, 2.0, 0.0)
MODES_HELD: list[Row] = [_EQUAL, *[_MODE] * FEWEST_MODELS]
MODES_REFUTED: list[list[Row]] = [
    [*MODES_HELD, replace(_MODE, large_over_small=0.0)],
    [*MODES_HELD, replace(_MODE, large_over_small=-1.0)],
    [*MODES_HELD, replace(_MODE, small_over_rest=3.5)],
    [*MODES_HELD, replace(_MODE, small_over_rest=3.0)],
    [*MODES_HELD, replace(_MODE, flipped=2.6)],
]

_REACHED = Reached(4, 2, 3, 0.1, 0.5, 1.0, 0, 5, 0.05, 4, -0.5, -0.6, 0.04, 40, 1000)
REACH_HELD: list[Row] = [spin_run(BOUNDS, 4), *[_REACHED] * FEWEST_CASES]
REACH_REFUTED: list[list[Row]] = [
    [*REACH_HELD, replace(_REACHED, missed=0.11)],
    [*REACH_HELD, replace(_REACHED, missed=1.0)],
]

_STAYED = Stuck(8, 2.0, 0.01, 0.5, 0, 2.9, 2.1, 1, 0.99, 50.0, 0.995, 995, 1000)
_PAIR = replace(
    _STAYED, clique=2, margin=0.05, delta=0.9, radius=-0.95, stayed=0.28, drawn_stayed=None
)
_EDGE = replace(_PAIR, margin=0.001, field=1e-6, delta=0.7372, radius=-0.999, stayed=0.2505)
STUCK_HELD: list[Row] = [_STAYED, _PAIR, _EDGE, spin_run(BOUNDS, 0)]
STUCK_REFUTED: list[list[Row]] = [
    [*STUCK_HELD, replace(_STAYED, stayed=0.4)],
    [*STUCK_HELD, replace(_STAYED, stayed=0.0)],
    [*STUCK_HELD, replace(_PAIR, margin=0.0072, delta=0.75, stayed=0.249)],
]

_SEPARATED = Separated(1, 0.5, 25, 100, 100, 0, 11.0, math.log(0.25), -900.0, 0.25, 0.25, 250, 1000)
COROLLARY_HELD: list[Row] = [_SEPARATED, replace(_SEPARATED, block=99)]
COROLLARY_REFUTED: list[list[Row]] = [
    [*COROLLARY_HELD, replace(_SEPARATED, failure=0.6, log_gibbs_missed=math.log(0.6))],
    [*COROLLARY_HELD, replace(_SEPARATED, failure=1.25, log_parallel_reached=0.0)],
]

_MAP = MadeMap(0, "2^3", 8, 7, 0)
MAPS_HELD: list[Row] = [_MAP, replace(_MAP, name="3^2", states=9)]
MAPS_REFUTED: list[list[Row]] = [
    [*MAPS_HELD, replace(_MAP, wrong=1)],
    [*MAPS_HELD, replace(_MAP, wrong=49)],  # a network that stays where it is
]

_STEP = DecoderStep(0, "random weights", 0.0, 0.0)
_LAW = MadeLaw(0, 8, 0.0)
_ZEROS = MadeZeros(0, 12, 1e-26, 1e-26, 0.0, 0)
_BLOCK = BlockStep(0, "clique, J = 1", 2, True, 0.3, 0.2, 0.38, 0.0, 0.1, 0.2, 0.3)
PRODUCTS_HELD: list[Row] = [
    *[_STEP] * 4,
    _LAW,
    _ZEROS,
    _BLOCK,
    replace(_BLOCK, k=3),
    replace(_BLOCK, k=1, distance=0.1, given_block=0.0),
]
PRODUCTS_REFUTED: list[list[Row]] = [
    [*PRODUCTS_HELD, replace(_STEP, distance=0.01)],
    [*PRODUCTS_HELD, replace(_LAW, error=0.01)],
    [*PRODUCTS_HELD, replace(_ZEROS, truncated_error=0.01)],
    [*PRODUCTS_HELD, replace(_ZEROS, zeros_left=1)],
    [*PRODUCTS_HELD, replace(_BLOCK, distance=0.0)],
    [*PRODUCTS_HELD, replace(_BLOCK, given_block=0.0)],
    [*PRODUCTS_HELD, replace(_BLOCK, distance=0.0, correlation=0.0, given_block=0.0)],
]

CLAIMS = [
    Claim("li.fig-4.3", judge_figure, FIGURE_REFUTED, FIGURE_HELD),
    Claim("li.prop-4.3.3", judge_modes, MODES_REFUTED, MODES_HELD),
    Claim("li.prop-4.1.4", judge_reach, REACH_REFUTED, REACH_HELD),
    Claim("li.prop-4.1.5", judge_stuck, STUCK_REFUTED, STUCK_HELD),
    Claim("li.cor-4.1.1", judge_corollary, COROLLARY_REFUTED, COROLLARY_HELD),
    Claim("li.prop-4.1.2", judge_maps, MAPS_REFUTED, MAPS_HELD),
    Claim("li.prop-4.1.3", judge_products, PRODUCTS_REFUTED, PRODUCTS_HELD),
]
