"""Rows made by hand: those for which each claim holds, and those that break one check alone."""

from typing import Any

from triptych.studies.refinement.real_translation.judge import (
    ABLATED,
    ABLATION_STEPS,
    CHANGES,
    DECIDES,
    STEPS,
    TIMED,
)
from triptych.studies.refinement.shared.rows import (
    Attended,
    Compared,
    Row,
    Scored,
    SpedUp,
    Timed,
    Trained,
)
from triptych.studies.refinement.shared.scoring import AUTOREGRESSIVE

_RUNS: list[dict[str, Any]] = [
    {"data": "multi30k", "direction": direction, "seed": seed}
    for direction in ("en-de", "de-en")
    for seed in (0, 1)
]


def _trained(model: str, steps: int) -> list[Row]:
    return [
        Trained(
            **run,
            model=model,
            parameters=10_000_000,
            pairs=29_000,
            steps=steps,
            seconds=100.0,
            recorded=True,
            loss=3.0,
        )
        for run in _RUNS
    ]


def _scored(
    run: dict[str, Any], model: str, how: str, on: str, *, bleu: float = 30.0, repeats: int = 0
) -> Scored:
    return Scored(
        **run,
        model=model,
        how=how,
        on=on,
        sentences=1000,
        bleu=bleu,
        chrf=50.0,
        repeats=repeats,
        words=12_000,
        token_repeats=0,
        tokens=15_000,
        passes=4.0,
        signature="",
    )


def _all_compared(first: str, second: str, on: str, difference: float) -> list[Row]:
    return [
        Compared(
            **run,
            first=first,
            second=second,
            on=on,
            difference=difference + 0.05 * (-1) ** number,
            low=difference - 0.4,
            high=difference + 0.4,
        )
        for number, run in enumerate(_RUNS)
    ]


def _baseline(model: str, bleu: float) -> list[Row]:
    return [_scored(run, model, "beam 5", "val", bleu=bleu) for run in _RUNS]


def _against_beam(four: float, ten: float) -> list[Row]:
    return [
        *_trained("padir", STEPS),
        *_baseline("teacher", 38.0),
        *_baseline("student", 37.5),
        *_all_compared("padir T=4", AUTOREGRESSIVE, DECIDES, four),
        *_all_compared("padir T=10", AUTOREGRESSIVE, DECIDES, ten),
    ]


TRANSLATIONS_HELD = _against_beam(-0.5, -0.4)
TRANSLATIONS_REFUTED = [_against_beam(-4.0, -0.4), _against_beam(-0.5, -4.0)]


def _speeds(median: float, p99: float) -> list[Row]:
    found: list[Row] = []
    for run in (_RUNS[0], _RUNS[2]):
        for at, ratio in (("median", median), ("p99", p99)):
            found.append(
                SpedUp(
                    **run,
                    device="a GPU",
                    first="padir T=4",
                    second=AUTOREGRESSIVE,
                    at=at,
                    ratio=ratio,
                    low=0.9 * ratio,
                    high=1.1 * ratio,
                )
            )
        found.append(
            Timed(
                **run,
                device="a GPU",
                model="padir",
                how="T=4",
                sentences=TIMED,
                median=0.02,
                p99=0.03,
                passes=4.0,
            )
        )
    return found


SPEED_HELD = _speeds(3.0, 7.0)
SPEED_REFUTED = [_speeds(1.0, 7.0), _speeds(3.0, 2.0)]


def _counted(refinement: int, beam: int, *, elsewhere: int | None = None) -> list[Row]:
    """Repeats of both systems; of refinement from German others, if given."""
    systems = (("padir", "T=4", refinement), ("student", "beam 5", beam))
    return _trained("padir", STEPS) + [
        _scored(
            run,
            model,
            how,
            DECIDES,
            repeats=elsewhere
            if elsewhere is not None and (model, run["direction"]) == ("padir", "de-en")
            else repeats,
        )
        for run in _RUNS
        for model, how, repeats in systems
    ]


STUTTER_HELD = _counted(40, 4)
STUTTER_REFUTED = [_counted(20, 20), _counted(2, 20), _counted(40, 4, elsewhere=1)]


def _attending(**ratios: float) -> list[Row]:
    """Pairs that stutter have these ratios to the others; what is not named has those published."""
    usual = {"self_avg": 0.97, "tv_avg": 0.57, "cosine_avg": 0.5, "cross_top1": 1.43}
    found = _trained("padir", STEPS)
    for number, run in enumerate(_RUNS):
        for measure, ratio in (usual | ratios).items():
            for yes in (True, False):
                value = 0.2 * (ratio + 0.01 * number if yes else 1.0)
                found.append(
                    Attended(
                        **run,
                        steps=4,
                        stutter=yes,
                        measure=measure,
                        count=300 if yes else 60_000,
                        mean=value,
                        deviation=0.1,
                    )
                )
    return found


ATTENTION_HELD = _attending()
SELF_REFUTED = [_attending(self_avg=2.0)]
CROSS_REFUTED = [
    _attending(tv_avg=1.0),
    _attending(cosine_avg=1.0),
    _attending(cross_top1=1.0),
]


def _ablated(**gains: float) -> list[Row]:
    found = _trained("ablation reference", ABLATION_STEPS)
    for change in CHANGES:
        found += _trained(f"ablation {change}", ABLATION_STEPS)
        reference = "raw_pairs" if change == "raw_other_vocabulary" else "reference"
        first, second = f"ablation {change} T=4", f"ablation {reference} T=4"
        found += _all_compared(first, second, ABLATED, -gains.get(change, 1.0))
    return found


ABLATION_HELD = _ablated()
ABLATION_REFUTED = [_ablated(**{change: -1.0}) for change in CHANGES]
