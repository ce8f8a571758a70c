"""What Tables 2.3 and 2.4 and Figure 2.3 claim, as checks on encoders [li, 2.1.2.2, 2.1.5.4].

Table 2.5 is in `often_together`, where common words count.

Encoders decide. A causal model and the stand-in are shown next to them: the source has neither. A
number is that of the model and threshold where the claim is weakest. Its interval goes from the
lowest to the highest end of the bootstrap intervals of the fits of LDA.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.decide import (
    Check,
    Need,
    Verdict,
    above,
    at_least,
    decide,
    none,
    shown,
    within,
)
from triptych.studies.api.study import Rows
from triptych.studies.topics.shared.fits import (
    ENCODERS,
    FITS,
    Found,
    cells,
    furthest,
    lowest,
    worst,
)
from triptych.theory.topics.real_text import (
    GROUPS,
    AttentionRatio,
    EmbeddingRatio,
    Fitted,
    HeadRatios,
    Measure,
    Measured,
    TopPairs,
    Weights,
    WordMap,
)
from triptych.theory.topics.topic_mixtures import TopicMixture
from triptych.theory.topics.word_pairs import group_gaps

Row = Fitted | EmbeddingRatio | AttentionRatio | HeadRatios | TopPairs | WordMap | TopicMixture

RANDOM = 0.01  # how far from 1 a random model may be
# the smallest ratios of Tables 2.3 and 2.4 for a pretrained model, one topic per word and several
COSINE, DOT, ATTENTION, ATTENTION_SEVERAL = 1.11, 1.13, 1.22, 1.11
MOSTLY = (
    13 / 15
)  # of the models and thresholds of Table 2.4 have a larger cosine, as many a product


_MEASURES: tuple[Measure, ...] = ("cosine", "dot")


# ------------------------------------------------------------------ rows of some kind


def embedding(
    rows: Rows[Row],
    measure: Measure,
    *,
    weights: Weights = "trained",
    several: bool = False,
    family: str = "encoder",
) -> list[Found]:
    """Ratios of word embeddings; of a random copy, of what its first layer reads."""
    vectors = "word" if weights == "trained" else "input"
    return [
        Found(row.model, row.threshold, row.seed, row.ratio, row.low, row.high)
        for row in rows.of(EmbeddingRatio)
        if (row.family, row.measure, row.weights) == (family, measure, weights)
        and (row.vectors, row.several) == (vectors, several)
    ]


def attention(
    rows: Rows[Row],
    *,
    weights: Weights = "trained",
    several: bool = False,
    family: str = "encoder",
    dealt: bool = False,
) -> list[Found]:
    """Ratios of attention, all layers and heads together."""
    return [
        Found(row.model, row.threshold, row.seed, row.ratio, row.low, row.high)
        for row in rows.of(AttentionRatio)
        if (row.family, row.weights, row.several) == (family, weights, several)
        and row.layer is None
        and row.shuffled == dealt
    ]


def enough(rows: Rows[Row], kind: type[Measured] = EmbeddingRatio) -> list[Need]:
    """Two pretrained encoders with three fits of LDA each."""
    fits: dict[str, set[int]] = {}
    for row in rows.of(kind):
        if row.family == "encoder":
            fits.setdefault(row.model, set()).add(row.seed)
    done = sum(len(seeds) >= FITS for seeds in fits.values())
    return [at_least(f"pretrained encoders with {FITS} fits of LDA", done, ENCODERS)]


def encoders_in(rows: Rows[Row]) -> bool:
    """Whether a pretrained encoder was measured; without one there is nothing to check."""
    return any(row.family == "encoder" for row in rows.of(EmbeddingRatio))


# ------------------------------------------------------------------ the claims


def one_topic(rows: Rows[Row]) -> Verdict:
    """Table 2.3: all three ratios exceed 1 at every threshold, and are 1 in a random model."""
    matched = [
        row.matched
        for row in rows.of(EmbeddingRatio)
        if row.family == "encoder" and row.vectors == "word" and row.matched is not None
    ]
    if not encoders_in(rows):
        return decide(*_beside(rows, "cosine", "embedding cosine"), needs=enough(rows))
    dealt = attention(rows, dealt=True)
    where = "words of one topic over words of two topics, the lowest of models and thresholds"
    cosine, dot = (lowest(embedding(rows, measure)) for measure in _MEASURES)
    return decide(
        above(f"embedding cosine, {where}", cosine, 1.0, published=COSINE),
        above(f"dot product, {where}", dot, 1.0, published=DOT),
        above(f"attention, {where}", lowest(attention(rows)), 1.0, published=ATTENTION),
        *_random(rows, several=False),
        *_beside(rows, "cosine", "embedding cosine"),
        *(
            [
                shown(
                    "embedding cosine, one topic over two topics whose words are as frequent: the "
                    "lowest of models and thresholds",
                    min(matched),
                )
            ]
            if matched
            else []
        ),
        *(
            [
                shown(
                    "attention if topics are given to words at random: one topic over two",
                    furthest(dealt),
                )
            ]
            if dealt
            else []
        ),
        needs=enough(rows),
        measured=_measured(rows),
    )


def several_topics(rows: Rows[Row]) -> Verdict:
    """Table 2.4: attention always, embeddings mostly; 1 in a random model."""
    if not encoders_in(rows):
        return decide(needs=enough(rows))
    found = lowest(attention(rows, several=True))
    checks = [
        above(
            "attention, words of one topic over words of two topics, the lowest of models and "
            "thresholds",
            found,
            1.0,
            published=ATTENTION_SEVERAL,
        )
    ]
    measures: dict[Measure, str] = {"cosine": "embedding cosine", "dot": "dot product"}
    for measure, name in measures.items():
        share = _share_above(cells(embedding(rows, measure, several=True)).values())
        sentence = (
            f"{name}: share of models and thresholds in which words of one topic have the "
            "larger one"
        )
        checks.append(above(sentence, share, 0.5, published=MOSTLY))
    return decide(*checks, *_random(rows, several=True), needs=enough(rows))


def map_of_words(rows: Rows[Row]) -> Verdict:
    """Figure 2.3: every word is nearer to its group than to the others."""
    maps = [
        row
        for row in rows.of(WordMap)
        if row.family == "encoder" and row.weights == "trained" and row.words == sum(GROUPS, ())
    ]
    needs = [at_least("pretrained encoders", len({row.model for row in maps}), ENCODERS)]
    if not maps:
        return decide(needs=needs)
    gaps = [gaps_of(row) for row in maps]
    least = worst([mean(each) for each in gaps], lambda each: -each.low)
    wrong = sum(gap <= 0 for each in gaps for gap in each)
    pieces = sum(number > 1 for row in maps for number in row.tokens)
    return decide(
        above(
            "mean cosine of a word to its own group minus that to the others, the lowest model",
            least,
            0.0,
        ),
        none(
            "words that are nearer to the other groups than to their own",
            wrong,
            of=sum(map(len, gaps)),
        ),
        shown("words of several tokens, whose embeddings are averaged", float(pieces)),
        needs=needs,
    )


def gaps_of(row: WordMap) -> list[float]:
    """For every word, its mean cosine to its group minus that to the others."""
    return group_gaps(torch.tensor(row.cosines, dtype=torch.float64), row.groups).tolist()


def _random(rows: Rows[Row], *, several: bool) -> list[Check]:
    """A random model has ratios of 1."""
    kinds: dict[str, list[Found]] = {
        "embedding cosine": embedding(rows, "cosine", weights="random", several=several),
        "dot product": embedding(rows, "dot", weights="random", several=several),
        "attention": attention(rows, weights="random", several=several),
    }
    return [
        within(
            f"copy with random weights: {name}, one topic over two, the furthest from 1",
            furthest(found),
            1.0,
            by=RANDOM,
        )
        for name, found in kinds.items()
    ]


def _beside(rows: Rows[Row], measure: Measure, name: str) -> list[Check]:
    """The causal model and the stand-in, which decide nothing."""
    found = []
    for family in ("causal", "stand-in"):
        cosines = embedding(rows, measure, family=family)
        if cosines:
            found.append(shown(f"{family} model: {name}, the lowest", lowest(cosines)))
        attended = attention(rows, family=family)
        if attended:
            found.append(shown(f"{family} model: attention, the lowest", lowest(attended)))
    return found


def _share_above(estimates: Iterable[Estimate]) -> Estimate:
    """The share that is above 1, from those surely above to those that may be."""
    given = list(estimates)
    if not given:
        return Estimate(math.nan, math.nan, math.nan, 0)
    sure = sum(each.low > 1 for each in given) / len(given)
    may_be = sum(not each.high <= 1 for each in given) / len(given)
    return Estimate(sum(each.value > 1 for each in given) / len(given), sure, may_be, len(given))


def _measured(rows: Rows[Row]) -> dict[str, list[float]]:
    """Ratios by threshold, for every model."""
    found: dict[str, list[float]] = {}
    tables = {
        "cosine": cells(embedding(rows, "cosine")),
        "attention": cells(attention(rows)),
        "random_cosine": cells(embedding(rows, "cosine", weights="random")),
    }
    for name, table in tables.items():
        for (model, _), estimate in sorted(table.items()):
            if not math.isnan(estimate.value):
                found.setdefault(f"{model}_{name}", []).append(round(estimate.value, 4))
    return found


# ------------------------------------------------------------------ rows that hold, and that refute


def _rows() -> list[Row]:
    found: list[Row] = []
    for model in ("first", "second"):
        for seed in range(FITS):
            about: Any = {"model": model, "family": "encoder", "seed": seed}
            for threshold in (0.0005, 0.001):
                for several in (False, True):
                    same = {"threshold": threshold, "several": several}
                    found += _ratio_rows(about, same)
        words = sum(GROUPS, ())
        of = [i // 3 for i in range(9)]
        near = [[1.0 if i == j else 0.5 if of[i] == of[j] else 0.1 + 0.001 * i for j in range(9)]
                for i in range(9)]  # fmt: skip
        found.append(
            WordMap(
                model=model,
                family="encoder",
                seed=0,
                weights="trained",
                words=words,
                groups=tuple(of),
                tokens=(1,) * 9,
                cosines=tuple(map(tuple, near)),
            )
        )
    return found


def _ratio_rows(about: Any, same: Any) -> list[Row]:
    found: list[Row] = []
    weights: dict[Weights, float] = {"trained": 1.5, "random": 1.0}
    for name, ratio in weights.items():
        numbers: Any = {"same": ratio * 0.01, "different": 0.01, "ratio": ratio}
        ends: Any = {"low": ratio - 0.002, "high": ratio + 0.002}
        for measure in _MEASURES:
            found.append(
                EmbeddingRatio(
                    **about, **same, **numbers, **ends, weights=name, measure=measure, words=900,
                    vectors="word" if name == "trained" else "input",
                )
            )  # fmt: skip
        found.append(
            AttentionRatio(
                **about, **same, **numbers, **ends, weights=name, shuffled=False, layer=None,
                pairs=500,
            )
        )  # fmt: skip
    return found


HELD = _rows()


def _with(kind: type, change: dict, **where: object) -> list[Row]:
    """HELD with other values in the rows of a kind that have these fields."""
    return [
        replace(row, **change)
        if isinstance(row, kind) and all(getattr(row, k) == v for k, v in where.items())
        else row
        for row in HELD
    ]


_ONE = {"ratio": 1.0, "low": 0.98, "high": 1.02}
_OFF = {"ratio": 1.05, "low": 1.04, "high": 1.06}
_BELOW = {"ratio": 0.9, "low": 0.88, "high": 0.92}


def _ratios_refuted(several: bool) -> list[list[Row]]:
    """Each check broken alone."""
    broken = _BELOW if several else _ONE
    return [
        _with(EmbeddingRatio, broken, measure="cosine", weights="trained", several=several),
        _with(EmbeddingRatio, broken, measure="dot", weights="trained", several=several),
        _with(AttentionRatio, _ONE, weights="trained", several=several),
        _with(EmbeddingRatio, _OFF, measure="cosine", weights="random", several=several),
        _with(EmbeddingRatio, _OFF, measure="dot", weights="random", several=several),
        _with(AttentionRatio, _OFF, weights="random", several=several),
    ]


ONE_TOPIC_REFUTED = [
    *_ratios_refuted(several=False),
    _with(EmbeddingRatio, _BELOW, weights="trained", model="second", threshold=0.001),
]
SEVERAL_REFUTED = _ratios_refuted(several=True)
_FLAT = tuple(tuple(1.0 if i == j else 0.3 + 0.001 * i for j in range(9)) for i in range(9))
_ONE_WRONG = tuple(
    tuple(
        1.0 if i == j else (0.1 if 0 in (i, j) else 0.5) if i // 3 == j // 3
        else 0.3 if 0 in (i, j) else 0.1
        for j in range(9)
    )
    for i in range(9)
)  # fmt: skip
_REVERSED = tuple(
    tuple(1.0 if i == j else 0.1 + 0.001 * i if i // 3 == j // 3 else 0.5 for j in range(9))
    for i in range(9)
)
MAP_REFUTED = [
    _with(WordMap, {"cosines": _REVERSED}),
    _with(WordMap, {"cosines": _FLAT}, model="second"),
    _with(WordMap, {"cosines": _ONE_WRONG}, model="first"),
]
