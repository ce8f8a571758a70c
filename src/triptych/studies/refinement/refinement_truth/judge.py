"""Judges of two claims of our own, on translations whose law is known.

Stutter. Compared are trained networks, four steps with argmax, with an exact autoregressive
decoder, which draws from the truth itself. Words have two tokens here, so that dropping repeated
tokens at the end, as the thesis does, does not hide a repeated word. The networks are trained on
the truth and not on a teacher's choice: a distilled law has one sentence, and nothing stutters.

Practices. A practice matters if a network without it writes more sentences that mix ways. Each
difference is taken on the same world and seed. Of the four practices that the thesis calls critical
this world has two: distillation, and mostly random tokens in training. A second stage is shown.
Positional attention and a vocabulary of its own are parts of networks for real text.

The published claims are judged on real sentences (`real_translation`, `translation_rules`).
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.decide import Verdict, above, at_least, decide, none, shown
from triptych.studies.api.study import Claim, Rows
from triptych.studies.api.summaries import scaled
from triptych.studies.refinement.refinement_truth.rows import Decoded, Learned, Row, Truth

STEPS = 4  # of the thesis' tables
ENOUGH = 3  # networks
WORDS = "split words"


def _points(shares: Sequence[float]) -> Estimate:
    """The mean in per cent; nan without values, or where one is nan."""
    if not shares or any(math.isnan(share) for share in shares):
        return Estimate(math.nan, math.nan, math.nan, len(shares))
    return scaled(mean(shares), 100.0)


# ------------------------------------------------------------------ stutter


def judge_stutter(rows: Rows[Row]) -> Verdict:
    """Word stutter of trained networks against twice that of exact autoregressive decoding."""
    exact = {
        row.agreement: row.word_stutter
        for row in rows.of(Truth)
        if (row.world, row.data) == (WORDS, "truth")
    }
    nets = [
        row
        for row in rows.of(Learned)
        if (row.world, row.steps) == (WORDS, STEPS) and row.agreement in exact
    ]
    base = [row for row in nets if row.variant == "base"]
    ideal = [
        row
        for row in rows.of(Decoded)
        if (row.world, row.data, row.steps) == (WORDS, "truth", STEPS)
        and (row.decoding, row.remask, row.stages) == ("argmax", "previous", 2)
        and row.agreement in exact
        and row.agreement > 0
    ]
    rarer = [row for row in ideal if not row.word_stutter >= 2 * exact[row.agreement]]
    settings = len({(row.agreement, row.right) for row in ideal})
    distilled = [row.word_stutter for row in nets if row.variant == "distilled"]
    return decide(
        above(
            "trained networks, 4 steps, without distillation: per cent of neighbouring words that "
            "are equal, minus twice those of exact decoding from left to right",
            _points([row.word_stutter - 2 * exact[row.agreement] for row in base]),
            0.0,
        ),
        none(
            "ideal refiner: settings at which it repeats words less than twice as often as exact "
            "decoding from left to right",
            len(rarer),
            of=settings,
        ),
        shown(
            "trained networks: neighbouring words that are equal, per cent",
            _points([row.word_stutter for row in base]),
        ),
        shown(
            "exact decoding from left to right: neighbouring words that are equal, per cent",
            100 * max((exact[row.agreement] for row in base), default=math.nan),
        ),
        shown(
            "trained on a teacher's choice: neighbouring words that are equal, per cent",
            _points(distilled),
        ),
        needs=[
            at_least("networks on words of two tokens", len(base), ENOUGH),
            at_least("settings of the ideal refiner", settings, 1),
        ],
    )


# ------------------------------------------------------------------ ablations

PARTS = {
    "half right": "85 % random tokens in training instead of 50 %",
    "one stage": "a second stage of training, which the thesis does not call critical",
}
_AVOIDED = "4 steps: percentage points fewer sentences that mix ways, with {}"


def judge_practices(rows: Rows[Row]) -> Verdict:
    """Sentences that mix ways, without a practice minus with it."""
    nets = [row for row in rows.of(Learned) if row.steps == STEPS]
    base = {_place(row): row.mixed for row in nets if row.variant == "base"}

    def gained(variant: str) -> list[float]:
        return [
            row.mixed - base[_place(row)]
            for row in nets
            if row.variant == variant and _place(row) in base
        ]

    distilled = [-more for more in gained("distilled")]
    return decide(
        above(_AVOIDED.format("distillation"), _points(distilled), 0.0),
        above(_AVOIDED.format(PARTS["half right"]), _points(gained("half right")), 0.0),
        shown(_AVOIDED.format(PARTS["one stage"]), _points(gained("one stage"))),
        shown(
            "4 steps: per cent of sentences that mix ways, without distillation",
            _points(list(base.values())),
        ),
        needs=[
            at_least("networks trained on a teacher's choice", len(distilled), ENOUGH),
            at_least("networks trained with 50 % right tokens", len(gained("half right")), ENOUGH),
        ],
    )


def _place(row: Learned) -> tuple[str, float, int]:
    return (row.world, row.agreement, row.seed)


# ------------------------------------------------------------------ what would refute the claims


def _truth(word_stutter: float) -> Truth:
    return Truth(
        WORDS, 0.9, "truth", 4, 1.9, 1.9, 0.6, 0.1, 0.0, word_stutter, (None, 2.0, 1.5, 1.0)
    )


def _ideal(word_stutter: float) -> Decoded:
    return Decoded(
        WORDS,
        0.9,
        "truth",
        right=0.15,
        stages=2,
        settled=True,
        decoding="argmax",
        remask="previous",
        steps=STEPS,
        tv=0.4,
        kl=None,
        mixed=0.4,
        stutter=0.0,
        word_stutter=word_stutter,
    )


def _nets(variant: str, mixed: float, word_stutter: float = 0.3) -> list[Learned]:
    """Three networks around these shares."""
    return [
        Learned(
            WORDS,
            0.9,
            variant,
            seed,
            kl_from_ideal=0.01,
            steps=STEPS,
            mixed=mixed + 0.002 * seed,
            stutter=0.0,
            word_stutter=word_stutter + 0.002 * seed,
            ideal_mixed=mixed,
            ideal_word_stutter=word_stutter,
        )
        for seed in range(3)
    ]


_STUTTERS: list[Row] = [_truth(0.006), _ideal(0.36), *_nets("base", 0.4)]

_WITHOUT = {"half right": 0.5, "one stage": 0.5, "distilled": 0.0}


def _ablated(**changed: float) -> list[Row]:
    """Networks without each part, by their share of mixed sentences; the base has 0.4."""
    shares = _WITHOUT | {name.replace("_", " "): share for name, share in changed.items()}
    return [
        *_nets("base", 0.4),
        *(
            replace(net, mixed=net.mixed - 0.001 * net.seed)
            for variant, share in shares.items()
            for net in _nets(variant, share)
        ),
    ]


CLAIMS: list[Claim[Row]] = [
    Claim(
        "li.stutter-exact",
        judge_stutter,
        refuted_by=[
            [_truth(0.1), _ideal(0.36), *_nets("base", 0.4, word_stutter=0.1)],  # no effect
            [_truth(0.006), _ideal(0.011), *_nets("base", 0.4)],
            [_truth(0.3), _ideal(0.36), *_nets("base", 0.4)],
        ],
        held_by=_STUTTERS,
    ),
    Claim(
        "li.practices-exact",
        judge_practices,
        refuted_by=[_ablated(half_right=0.3), _ablated(distilled=0.5)],
        held_by=_ablated(),
    ),
]
