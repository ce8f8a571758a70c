"""Rows made by hand: those for which each claim holds, and those that break one check alone."""

from typing import Any

from triptych.studies.refinement.shared.judging import DECIDES, STEPS
from triptych.studies.refinement.shared.rows import Compared, Scored, Trained
from triptych.studies.refinement.translation_rules.judge import RULES, Row

_RUNS: list[dict[str, Any]] = [
    {"data": "multi30k", "direction": direction, "seed": seed}
    for direction in ("en-de", "de-en")
    for seed in (0, 1)
]
_TRAINED: list[Row] = [
    Trained(
        **run,
        model="padir",
        parameters=10_000_000,
        pairs=29_000,
        steps=STEPS,
        seconds=100.0,
        recorded=True,
        loss=3.0,
    )
    for run in _RUNS
]


def _scored(run: dict[str, Any], model: str, how: str, repeats: int) -> Scored:
    return Scored(
        **run,
        model=model,
        how=how,
        on=DECIDES,
        sentences=1000,
        bleu=30.0,
        chrf=None,
        repeats=repeats,
        words=12_000,
        token_repeats=0,
        tokens=15_000,
        passes=4.0,
        signature="",
    )


def _counted(program: dict[str, int], beam: int, printed: int) -> list[Row]:
    """Repeats by the program's rule in each direction, of beam search, and by the printed rule."""
    found = list(_TRAINED)
    for run in _RUNS:
        found.append(_scored(run, "rules", "program T=4", program[run["direction"]]))
        found.append(_scored(run, "student", "beam 5", beam))
        found.append(_scored(run, "padir", "T=4", printed))
    return found


STUTTER_HELD = _counted({"en-de": 80, "de-en": 80}, 10, 60)
STUTTER_REFUTED = [
    _counted({"en-de": 20, "de-en": 20}, 20, 60),  # no effect
    _counted({"en-de": 2, "de-en": 80}, 10, 60),
    _counted({"en-de": 80, "de-en": 2}, 10, 60),
]


def _changed(**gains: float) -> list[Row]:
    """BLEU gained by each rule and number of steps, as least_sure_4; 0 where it is not named."""
    return [
        *_TRAINED,
        *(
            Compared(
                **run,
                on=DECIDES,
                first=f"rules {rule} T={steps}",
                second=f"padir T={steps}",
                difference=gain + 0.05 * (-1) ** number,
                low=gain - 0.3,
                high=gain + 0.3,
            )
            for number, run in enumerate(_RUNS)
            for rule in RULES
            for steps in (4, 10)
            for gain in [gains.get(f"{rule}_{steps}", 0.0)]
        ),
    ]


REMASKING_HELD = _changed()
REMASKING_REFUTED = [
    _changed(**{f"{rule}_{steps}": gain})
    for rule, gain in (("least_sure", 3.0), ("random", -3.0), ("keep", -3.0))
    for steps in (4, 10)
]
