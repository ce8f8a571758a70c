"""The judges of `masked_samples`, with rows that hold and rows that refute.

Chances are summed and never too small, so one case in which a bound is missed more often than it
may be refutes the statement.
"""

from collections.abc import Callable
from dataclasses import replace

from triptych.studies.api.decide import (
    Verdict,
    at_least,
    decide,
    exactly,
    largest,
    none,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.masking.masked_samples.rows import (
    DEFINED,
    LEMMA,
    POINT,
    PROOF,
    UNIFORM,
    Averaged,
    Bounded,
    EmpiricalLaw,
    MaskBound,
    Row,
)

SURE = 1e-12  # of a chance: what rounding may add to it
ENOUGH = 3  # models or settings


def judge_average(rows: Rows[Row]) -> Verdict:
    """Lemma 4.3.2."""
    models = rows.of(Averaged)
    looking = [row for row in models if row.adaptive]
    return decide(
        exactly(
            "p(x_K | x_-K) against the mean of p(x_K | x_-K, K') over the mask K': largest "
            "difference",
            largest([row.error for row in models]),
        ),
        *(
            [
                shown(
                    "by how much a conditional changes when the mask is given too, largest",
                    largest([row.moved for row in looking]),
                )
            ]
            if looking
            else []
        ),
        needs=[
            at_least(
                "models under masks that look at the sequence",
                len({row.model for row in looking}),
                ENOUGH,
            )
        ],
    )


def judge_bounded(rows: Rows[Row]) -> Verdict:
    """Proposition 4.3.2."""
    models = rows.of(Bounded)
    return decide(
        exactly(
            "divergence of the learned conditional from the empirical one, divided by ln(1/β): "
            "largest excess over 1",
            largest([row.most for row in models]) - 1,
        ),
        exactly(
            "how far this divergence falls below 0, largest",
            largest([-row.least for row in models]),
        ),
        shown("empirical laws and parameters tried", float(sum(row.laws for row in models))),
        needs=[at_least("models", len({row.model for row in models}), ENOUGH)],
    )


def _judge_masks(rows: Rows[Row], statement: str) -> Verdict:
    chosen = [row for row in rows.of(MaskBound) if row.statement == statement]
    checks, needs = [], []
    for reading in (DEFINED, PROOF):
        mine = [row for row in chosen if row.reading == reading]
        telling = [row for row in mine if row.telling]
        checks.append(
            none(
                f"{reading}: cases in which the bound is missed more often than allowed",
                sum(row.chance > 1 + SURE for row in mine),
                of=len(mine),
            )
        )
        checks.append(
            shown(
                f"{reading}: largest chance of missing the bound, as a multiple of the allowed one",
                largest([row.chance for row in telling]),
            )
        )
        checks.append(
            shown(
                f"{reading}: share of the bound that would do, largest",
                largest([row.needed for row in telling]),
            )
        )
        models = len({(row.model, row.law) for row in telling})
        needs.append(
            at_least(f"models whose bound is below the largest loss, {reading}", models, ENOUGH)
        )
    return decide(*checks, needs=needs)


def judge_lemma(rows: Rows[Row]) -> Verdict:
    """Lemma 4.3.5."""
    return _judge_masks(rows, LEMMA)


def judge_point(rows: Rows[Row]) -> Verdict:
    """Corollary 4.3.1."""
    return _judge_masks(rows, POINT)


def judge_uniform(rows: Rows[Row]) -> Verdict:
    """Corollary 4.3.2, with the smallest right side it can have, and a bound over all θ."""
    return _judge_masks(rows, UNIFORM)


def judge_sequences(rows: Rows[Row]) -> Verdict:
    """Lemma 4.3.6."""
    every = rows.of(EmpiricalLaw)
    telling = [row for row in every if row.telling]
    return decide(
        none(
            "laws and sizes at which the bound is missed more often than with chance δ",
            sum(row.chance > 1 + SURE for row in every),
            of=len(every),
        ),
        shown(
            "largest chance of missing the bound, divided by δ",
            largest([row.chance for row in telling]),
        ),
        shown("laws and sizes tried", float(len(every))),
        needs=[
            at_least("laws and sizes whose bound is below 1", len(telling), ENOUGH),
            at_least("numbers of outcomes", len({row.outcomes for row in telling}), 2),
        ],
    )


# ------------------------------------------------------------------ rows made by hand

_NAMES = ("chain 2 0.4", "chain 3 0.5", "hmm 2")
_AVERAGED = Averaged("chain 2 0.4", 0, "ones 1.5", True, 1e-16, 0.2)
_BOUNDED = Bounded("chain 2 0.4", 0, "size 1", 100, 0.0, 1.0)
_MASKS = MaskBound(LEMMA, "chain 2 0.4", 0, "size 1", 0, DEFINED, 8, 10_000, 12, 9, 1e-20, 0.05)
_EMPIRICAL = EmpiricalLaw(2, 0, "uniform", 10, 7, 0.3)


def _on_models(row: Averaged | Bounded) -> list[Row]:
    return [replace(row, model=name) for name in _NAMES]


def _masks_claim(name: str, judge: Callable[[Rows[Row]], Verdict], statement: str) -> Claim[Row]:
    held = [
        replace(_MASKS, statement=statement, model=model, reading=reading)
        for model in _NAMES
        for reading in (DEFINED, PROOF)
    ]
    return Claim(
        name,
        judge,
        refuted_by=[[*held, replace(row, chance=1.5)] for row in held[:2]],
        held_by=held,
    )


CLAIMS: list[Claim[Row]] = [
    Claim(
        "li.lem-4.3.2",
        judge_average,
        refuted_by=[[*_on_models(_AVERAGED), replace(_AVERAGED, error=0.01)]],
        held_by=_on_models(_AVERAGED),
    ),
    Claim(
        "li.prop-4.3.2",
        judge_bounded,
        refuted_by=[
            [*_on_models(_BOUNDED), replace(_BOUNDED, most=1.01)],
            [*_on_models(_BOUNDED), replace(_BOUNDED, least=-0.01)],
        ],
        held_by=_on_models(_BOUNDED),
    ),
    _masks_claim("li.lem-4.3.5", judge_lemma, LEMMA),
    _masks_claim("li.cor-4.3.1", judge_point, POINT),
    _masks_claim("li.cor-4.3.2", judge_uniform, UNIFORM),
    Claim(
        "li.lem-4.3.6",
        judge_sequences,
        refuted_by=[[_EMPIRICAL, replace(_EMPIRICAL, outcomes=4), replace(_EMPIRICAL, chance=1.2)]],
        held_by=[
            _EMPIRICAL,
            replace(_EMPIRICAL, outcomes=4),
            replace(_EMPIRICAL, law="random"),
        ],
    ),
]
