"""What the rows of `topic_theory` decide; attention weights are in `judge_weights`."""

from collections.abc import Sequence
from dataclasses import replace

from triptych.studies.api.decide import (
    EXACT,
    Check,
    Need,
    Verdict,
    at_edge,
    at_least,
    decide,
    exactly,
    largest,
    none,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.topics.topic_theory.judge_weights import WEIGHT_CLAIMS
from triptych.studies.topics.topic_theory.rows import Embedding, Masked, Optima, Row

AT_THE_END = 1e-14  # excess loss of a minimisation that has ended
TRAINED = 1e-5  # equations there: the excess is at least 0.0027 times the square of a violation
NUMERICAL_LIMIT = 1e-6  # extrapolation leaves 2 (1e-4)² of the entries, which are about 1
EVERY_TOPIC = "τ = T"  # with more than one topic: all documents are alike


# ------------------------------------------------------------------ Proposition 2.1.1


def judge_masked(rows: Rows[Row]) -> Verdict:
    """p₁ for words of the document, p₂ for others, p_m (1 - p_c - p_r) for the mask."""
    settings = rows.of(Masked)
    absent = [row.absent_error for row in settings if row.absent_error is not None]
    return decide(
        exactly(
            "words of the document: largest difference between their share and p₁",
            largest([row.present_error for row in settings]),
        ),
        exactly("other words: largest difference between their share and p₂", largest(absent)),
        exactly(
            "the mask: largest difference between its share and p_m (1 - p_c - p_r)",
            largest([row.mask_error for row in settings]),
        ),
        needs=_varied(settings),
    )


def _varied(rows: Sequence[Masked] | Sequence[Optima]) -> list[Need]:
    return [
        at_least("numbers of topics T", len({row.topics for row in rows}), 2),
        at_least("numbers of words v", len({row.words for row in rows}), 2),
    ]


# ------------------------------------------------------------------ Lemma 2.1.1, Theorem 2.1.4


def judge_family(rows: Rows[Row]) -> Verdict:
    """The family is the whole set of minimisers.

    Its members have the least loss, minimisers found without it belong to it, and both sets have
    as many dimensions. What gradient flow reaches says something if it has the least loss.
    """
    inner, edge = _by_edge(rows.of(Optima))
    ended = [row for row in inner if row.reached_error <= EXACT]
    return decide(
        none(
            "settings with τ < T whose optimal maps are a space of another dimension than the "
            "family",
            sum(row.free != row.family for row in inner),
            of=len(inner),
        ),
        exactly(
            "random members of the family: largest loss minus the least possible one",
            largest([row.loss_error for row in inner]),
        ),
        exactly(
            "optimal maps found from random starts: largest distance of an entry from the family",
            largest([row.distance for row in ended]),
        ),
        at_edge(
            EVERY_TOPIC,
            none(
                "settings with τ = T whose optimal maps are a space of another dimension than "
                "the family",
                sum(row.free != row.family for row in edge),
                of=len(edge),
            ),
        ),
        needs=[
            *_varied(inner),
            at_least("settings with τ = T", len(edge), 1),
            at_least("starts with τ < T that reached the least loss", len(ended), len(inner)),
        ],
    )


def _by_edge(rows: Sequence[Optima]) -> tuple[list[Optima], list[Optima]]:
    """Rows with τ < T, and with τ = T."""
    inner = [row for row in rows if row.drawn < row.topics]
    return inner, [row for row in rows if row.drawn == row.topics]


# ------------------------------------------------------------------ Theorem 2.1.2


def judge_ridge(rows: Rows[Row]) -> Verdict:
    """Ridge tends to the closed form as the penalty vanishes.

    The limit exists and is the optimum of least norm, so that one is compared too.
    """
    inner, edge = _by_edge(rows.of(Optima))
    return decide(
        exactly(
            "τ < T: largest entry of W^V minus the printed one, extrapolated to a vanishing "
            "L2 term",
            largest([row.limit_error for row in inner]),
            below=NUMERICAL_LIMIT,
        ),
        exactly(
            "τ < T: largest entry of the optimal W^V of least norm minus the printed one",
            largest([row.least_norm_error for row in inner]),
        ),
        at_edge(
            EVERY_TOPIC,
            exactly(
                "τ = T: largest entry of the optimal W^V of least norm minus the printed one",
                largest([row.least_norm_error for row in edge]),
            ),
        ),
        *_beside_ridge(inner),
        needs=[*_varied(inner), at_least("settings with τ = T", len(edge), 1)],
    )


def _beside_ridge(rows: Sequence[Optima]) -> list[Check]:
    if not rows:
        return []
    last = [row.ridge_errors[-1] for row in rows]
    return [
        shown(
            "at the smallest weight of L2: largest entry of W^V minus the printed one",
            largest(last),
        ),
        shown("largest c₁, which is printed to be below 1", largest([row.c1 for row in rows])),
    ]


# ------------------------------------------------------------------ Theorem 2.1.1


def judge_embedding(rows: Rows[Row]) -> Verdict:
    """Trained embeddings satisfy the equations, with the bias on the words and 0 on the mask.

    A start that has not come down to the least loss is no optimum and says nothing. With d < T the
    least loss is out of reach, and the start of least loss is taken.
    """
    trained = rows.of(Embedding)
    words = [row for row in trained if row.bias == "words"]
    wide = [row for row in words if row.width >= row.topics]
    inner = [row for row in wide if row.drawn < row.topics]
    ended = [row for row in inner if _ended(row)]
    edge = [row for row in wide if row.drawn == row.topics and _ended(row)]
    narrow = _best_starts([row for row in words if row.width < row.topics])
    settings = {_setting(row) for row in inner}
    twice = [s for s in settings if sum(_setting(row) == s for row in ended) >= 2]
    both = [row for row in trained if row.bias == "mask too" and _ended(row)]
    return decide(
        exactly(
            "embeddings of d ≥ T dimensions, τ < T: largest violation of the printed equations",
            largest([row.violation for row in ended]),
            below=TRAINED,
        ),
        at_edge(
            EVERY_TOPIC,
            exactly(
                "embeddings, τ = T: largest violation of the printed equations",
                largest([row.violation for row in edge]),
                below=TRAINED,
            ),
        ),
        at_edge(
            "d < T",
            exactly(
                "embeddings of d < T dimensions, best starts: largest violation of the "
                "printed equations",
                largest([row.violation for row in narrow]),
                below=TRAINED,
            ),
        ),
        *_beside_embedding([row for row in both if row.drawn < row.topics]),
        needs=[
            at_least("settings with τ < T and d ≥ T", len(settings), 2),
            at_least("of these, with two starts at the least loss", len(twice), len(settings)),
            at_least("starts at the least loss with τ = T", len(edge), 1),
            at_least("settings with d < T", len(narrow), 1),
        ],
    )


def _beside_embedding(both: Sequence[Embedding]) -> list[Check]:
    if not both:
        return []
    off = largest([row.mask_off / row.c1 for row in both])
    return [
        shown(
            "with the bias on the mask too: largest (E_00 + c₂ u_0) / c₁, which the theorem "
            "has at 0",
            off,
        )
    ]


def _ended(row: Embedding) -> bool:
    return abs(row.excess) <= AT_THE_END


def _setting(row: Embedding) -> tuple[int, int, int, int, str]:
    return row.topics, row.words, row.drawn, row.width, row.masking


def _best_starts(rows: Sequence[Embedding]) -> list[Embedding]:
    """The start of least loss in every setting."""
    best: dict[tuple[int, int, int, int, str], Embedding] = {}
    for row in rows:
        if _setting(row) not in best or row.excess < best[_setting(row)].excess:
            best[_setting(row)] = row
    return list(best.values())


# ------------------------------------------------------------------ rows that hold and refute

_MASKED = Masked(0, "m", 3, 2, 2, 3, 0.0, 0.0, 0.0)
_OTHER_MASKED = replace(_MASKED, topics=2, words=1, documents=1, absent_error=None)
MASKED_HELD = [_OTHER_MASKED, _MASKED]
MASKED_REFUTED = [
    [_OTHER_MASKED, replace(_MASKED, present_error=0.01)],
    [_OTHER_MASKED, replace(_MASKED, absent_error=0.01)],
    [_OTHER_MASKED, replace(_MASKED, mask_error=0.01)],
]

_OPTIMA = Optima(
    seed=0,
    masking="m",
    topics=3,
    words=2,
    drawn=2,
    free=4,
    family=4,
    loss_error=0.0,
    reached_error=0.0,
    distance=0.0,
    from_least_norm=1.0,
    least_norm_error=0.0,
    penalties=(1e-5, 1e-6),
    ridge_errors=(1e-4, 1e-5),
    limit_error=0.0,
    c1=0.1,
)
OPTIMA_HELD = [
    replace(_OPTIMA, topics=2, words=1, drawn=1, free=1, family=1),
    replace(_OPTIMA, drawn=3, free=6, distance=0.5, least_norm_error=0.3),
    _OPTIMA,
]
FAMILY_REFUTED = [
    [*OPTIMA_HELD, replace(_OPTIMA, free=5)],
    [*OPTIMA_HELD, replace(_OPTIMA, loss_error=1e-3)],
    [*OPTIMA_HELD, replace(_OPTIMA, distance=0.1)],
]
RIDGE_REFUTED = [
    [*OPTIMA_HELD, replace(_OPTIMA, limit_error=0.1)],
    [*OPTIMA_HELD, replace(_OPTIMA, least_norm_error=0.1)],
]

_EMBEDDING = Embedding(
    seed=0,
    masking="m",
    topics=3,
    words=2,
    drawn=2,
    width=7,
    bias="words",
    excess=0.0,
    violation=1e-8,
    corrected=1e-8,
    mask_off=0.0,
    c1=0.2,
    level=0.1,
    topic_means=(0.1, 0.1, 0.1),
    example_excess=0.01,
    matrix=None,
)
EMBEDDING_HELD = [
    replace(_EMBEDDING, bias="mask too", violation=0.1, mask_off=0.2),
    replace(_EMBEDDING, drawn=3, violation=1.0),
    replace(_EMBEDDING, width=2, excess=0.1, violation=0.7),
    *[replace(_EMBEDDING, topics=t, seed=seed) for t in (3, 4) for seed in (0, 1)],
]
EMBEDDING_REFUTED = [[*EMBEDDING_HELD, replace(_EMBEDDING, violation=0.1)]]

CLAIMS = [
    Claim("li.lem-2.1.1", judge_family, FAMILY_REFUTED, OPTIMA_HELD),
    Claim("li.prop-2.1.1", judge_masked, MASKED_REFUTED, MASKED_HELD),
    Claim("li.thm-2.1.1", judge_embedding, EMBEDDING_REFUTED, EMBEDDING_HELD),
    Claim("li.thm-2.1.2", judge_ridge, RIDGE_REFUTED, OPTIMA_HELD),
    Claim("li.thm-2.1.4", judge_family, FAMILY_REFUTED, OPTIMA_HELD),
    *WEIGHT_CLAIMS,
]
