"""What the thesis says about real translation, as checks [li, 4.2.2 to 4.2.4].

Rows of Multi30k decide; those of software texts are shown, those of the toy language are not. A
number is a mean over directions and seeds, with Student's interval over them, unless it says
otherwise. The test set that decides, test_2017_flickr, was not looked at before. The published
numbers are of other data (WMT, with 67 million parameters, distilled from a commercial translator),
so directions are compared.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from triptych.core.estimates import Estimate, mean, proportion
from triptych.studies.api.decide import (
    Need,
    Verdict,
    above,
    at_least,
    below,
    decide,
    exactly,
    shown,
)
from triptych.studies.api.study import Rows
from triptych.studies.refinement.real_translation.rows import (
    Attended,
    Compared,
    Row,
    Run,
    Scored,
    SpedUp,
    Timed,
    Trained,
)
from triptych.studies.refinement.real_translation.scoring import AUTOREGRESSIVE

DECIDES_ON = "multi30k"
DECIDES = "test_2017_flickr"  # kept aside
ABLATED = "test_2016_flickr"
DIRECTIONS, SEEDS = 2, 2
ABOUT_A_POINT = -1.5  # the largest published loss against the baseline is 1.35
PUBLISHED_LOSS = -0.85  # the mean of Table 4.1 with 4 steps
# Fewest steps of training before refinement counts. Set after a run had to be cut short at about
# 1,500 steps, before any of its scores was looked at; a trial of 4,188 steps came near its teacher.
STEPS, ABLATION_STEPS = 4000, 1000
ALIKE = 1.1  # self-attention that is not larger; published 0.032 / 0.033
TWICE = 2 / 3  # of all repeats are made by the system that makes twice as many as the other
TIMED = 1000  # sentences: a 99th percentile of fewer says little
GRAPHICS = "cpu"  # a device whose name does not begin so is a GPU

RowT = TypeVar("RowT", bound=Run)


def real(rows: Rows[Row], kind: type[RowT]) -> list[RowT]:
    """Rows of a kind that are about the real pairs that decide."""
    return [row for row in rows.of(kind) if row.data == DECIDES_ON]


def over_runs(values: Iterable[float]) -> Estimate:
    """The mean over directions and seeds; unknown with less than two."""
    found = list(values)
    if len(found) < 2:
        return Estimate(float("nan"), float("nan"), float("nan"), len(found))
    return mean(found)


def enough(rows: Sequence[Run], trained: Sequence[Trained], *, steps: int = STEPS) -> list[Need]:
    """Two directions of real pairs with two seeds each, and refinement trained long enough."""
    seeds: dict[str, set[int]] = {}
    for row in rows:
        seeds.setdefault(row.direction, set()).add(row.seed)
    done = sum(len(each) >= SEEDS for each in seeds.values())
    own = "padir" if steps == STEPS else "ablation reference"
    fewest = min((row.steps for row in trained if row.model == own), default=0)
    return [
        at_least(f"directions of real pairs with {SEEDS} seeds", done, DIRECTIONS),
        at_least(f"steps of training of {own}, the fewest", fewest, steps),
    ]


# ------------------------------------------------------------------ the claims


def translations(rows: Rows[Row]) -> Verdict:
    """Table 4.1: about as good as the autoregressive model on the same distilled data."""
    compared = real(rows, Compared)

    def loss(steps: int, on: str) -> list[float]:
        return [
            row.difference
            for row in compared
            if (row.first, row.second, row.on) == (f"padir T={steps}", AUTOREGRESSIVE, on)
        ]

    decided = [row for row in compared if row.on == DECIDES and row.first == "padir T=4"]
    sentence = "BLEU of refinement with {} steps minus beam search, {}"
    return decide(
        *(
            above(
                sentence.format(steps, DECIDES),
                over_runs(loss(steps, DECIDES)),
                ABOUT_A_POINT,
                published=PUBLISHED_LOSS,
            )
            for steps in (4, 10)
        ),
        *(
            shown(sentence.format(steps, on), over_runs(loss(steps, on)))
            for on in (DECIDES, "test_2016_flickr")
            for steps in (1, 2, 4, 10)
            if (on, steps) not in ((DECIDES, 4), (DECIDES, 10)) and loss(steps, on)
        ),
        *(
            shown(sentence.format(steps, "software texts"), over_runs(found))
            for steps in (1, 4, 10)
            if (found := _on_software(rows, steps))
        ),
        needs=enough(decided, real(rows, Trained)),
        measured=_table(rows),
    )


def speed(rows: Rows[Row]) -> Verdict:
    """Faster than beam search with a cache, one sentence at a time, on a GPU."""
    found = [row for row in real(rows, SpedUp) if row.first == "padir T=4"]
    deciding = [
        row for row in found if not row.device.startswith(GRAPHICS) and row.second == AUTOREGRESSIVE
    ]
    timed = [row for row in real(rows, Timed) if (row.model, row.how) == ("padir", "T=4")]
    most = max((row.passes for row in timed), default=float("nan"))
    directions = len({row.direction for row in deciding})
    on_gpu = [row for row in real(rows, Timed) if not row.device.startswith(GRAPHICS)]
    both = [row for row in on_gpu if f"{row.model} {row.how}" in ("padir T=4", AUTOREGRESSIVE)]
    fewest = min((row.sentences for row in both), default=0)
    return decide(
        above("times faster than beam 5 at the median, GPU", _lowest(deciding, "median"), 2.0),
        above(
            "times faster than beam 5 at the 99th percentile, GPU", _lowest(deciding, "p99"), 5.0
        ),
        exactly("passes of the decoder beyond 4, mean", max(0.0, most - 4), below=0.0),
        *(
            shown(
                f"times faster than {row.second} at the {row.at}, {row.direction}, {row.device}",
                Estimate(row.ratio, row.low, row.high, 1),
            )
            for row in found
            if row not in deciding
        ),
        needs=[
            at_least("directions timed on a GPU", directions, DIRECTIONS),
            at_least("sentences timed on a GPU, the fewest of a system", fewest, TIMED),
        ],
    )


def stutter(rows: Rows[Row]) -> Verdict:
    """Repeated words, counted over all sets, directions and seeds."""
    scored = [row for row in real(rows, Scored) if row.model in ("student", "padir")]

    def share(how: str) -> tuple[Estimate, float, float]:
        """Of the repeats of both systems, that of refinement; and both rates per 1000 words."""
        own = [row for row in scored if row.how == how]
        other = [row for row in scored if f"{row.model} {row.how}" == AUTOREGRESSIVE]
        counts = [sum(row.repeats for row in some) for some in (own, other)]
        words = [sum(row.words for row in some) for some in (own, other)]
        rates = [1000 * c / max(1, w) for c, w in zip(counts, words, strict=True)]
        if sum(counts) == 0:
            return Estimate(float("nan"), float("nan"), float("nan"), 0), rates[0], rates[1]
        return proportion(counts[0], sum(counts)), rates[0], rates[1]

    four, ours, theirs = share("T=4")
    decided = [row for row in scored if row.how == "T=4"]
    sentence = "share of repeated words that refinement makes, of its own and beam search's"
    return decide(
        above(f"{sentence}, 4 steps", four, TWICE),
        *(shown(f"{sentence}, {how}", share(how)[0]) for how in ("T=1", "T=10") if decided),
        *([shown("repeated words per 1000, refinement with 4 steps", ours)] if decided else []),
        *([shown("repeated words per 1000, beam search", theirs)] if decided else []),
        *(
            shown(f"repeated tokens per 1000 before they were dropped, {how}", _dropped(own))
            for how in ("T=1", "T=4", "T=10")
            if (own := [row for row in scored if row.how == how])
        ),
        needs=enough(decided, real(rows, Trained)),
    )


def _dropped(rows: Sequence[Scored]) -> float:
    """Tokens equal to their left neighbour in the last hypothesis, per 1000 tokens of it."""
    return 1000 * sum(row.token_repeats for row in rows) / max(1, sum(row.tokens for row in rows))


def self_attention(rows: Rows[Row]) -> Verdict:
    """Table 4.4: neighbours that stutter do not attend more to each other."""
    ratios = _over_others(rows, 4)
    return decide(
        below(
            "self-attention between neighbours that stutter over others, mean of the heads",
            ratios("self_avg"),
            ALIKE,
        ),
        *(
            shown(f"the same, {name}", _over_others(rows, steps)(measure))
            for steps, measure, name in (
                (4, "self_max", "largest head"),
                (4, "self_top1", "top 1"),
                (4, "self_top2", "top 2"),
                (1, "self_avg", "after one step"),
            )
            if real(rows, Attended)
        ),
        needs=_stuttering(rows),
    )


def cross_attention(rows: Rows[Row]) -> Verdict:
    """Table 4.5: neighbours that stutter look at the same source words."""
    over = _over_others(rows, 4)
    sentence = "between neighbours that stutter, over others, mean of the heads"
    return decide(
        below(f"total variation {sentence}", over("tv_avg"), 1.0, published=0.13 / 0.23),
        below(f"cosine distance {sentence}", over("cosine_avg"), 1.0, published=0.10 / 0.20),
        above(
            "the same source token is attended to most, share over that of others",
            over("cross_top1"),
            1.0,
            published=0.57 / 0.40,
        ),
        *(
            shown(f"{name}, over others", _over_others(rows, steps)(measure))
            for steps, measure, name in (
                (4, "tv_min", "total variation, smallest head"),
                (4, "tv_max", "total variation, largest head"),
                (4, "cross_top2", "top 2 overlap"),
                (1, "tv_avg", "total variation after one step"),
            )
            if real(rows, Attended)
        ),
        needs=_stuttering(rows),
    )


CHANGES = {
    "raw_pairs": "distillation",
    "one_stage": "two stages of training",
    "no_positions": "positional attention",
    "half_right": "85 % random tokens in place of 50 %",
    "raw_other_vocabulary": "a vocabulary of its own",
}


def ablations(rows: Rows[Row]) -> Verdict:
    """Each practice that is said to matter is worth some BLEU with 4 steps."""
    compared = [row for row in real(rows, Compared) if row.on == ABLATED]

    def gain(change: str, how: str) -> list[float]:
        return [-r.difference for r in compared if r.first == f"ablation {change} {how}"]

    decided = [row for row in compared if row.first == "ablation raw_pairs T=4"]
    missing = [change for change in CHANGES if not gain(change, "T=4")]
    return decide(
        *(
            above(f"BLEU gained by {name}, 4 steps", over_runs(gain(change, "T=4")), 0.0)
            for change, name in CHANGES.items()
        ),
        *(
            shown(f"BLEU gained by {name}, {how}", over_runs(gain(change, how)))
            for change, name in CHANGES.items()
            for how in ("T=1", "T=10")
            if gain(change, how)
        ),
        needs=[
            *enough(decided, real(rows, Trained), steps=ABLATION_STEPS),
            at_least("practices that were left out in turn", len(CHANGES) - len(missing), 5),
        ],
    )


# ------------------------------------------------------------------ parts


def _on_software(rows: Rows[Row], steps: int) -> list[float]:
    """BLEU of refinement minus beam search on the test set of software texts."""
    return [
        row.difference
        for row in rows.of(Compared)
        if (row.data, row.on, row.first) == ("software", "test", f"padir T={steps}")
    ]


def _table(rows: Rows[Row]) -> dict[str, float]:
    """Mean BLEU of every system on the set that decides."""
    groups: dict[str, list[float]] = {}
    for row in real(rows, Scored):
        if row.on == DECIDES and row.bleu is not None:
            groups.setdefault(f"{row.direction} {row.model} {row.how}", []).append(row.bleu)
    return {name: round(sum(each) / len(each), 2) for name, each in groups.items()}


def _lowest(found: Sequence[SpedUp], at: str) -> Estimate:
    """Of the direction with the smallest speedup, with the bootstrap interval over sentences."""
    rows = [row for row in found if row.at == at]
    if not rows:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    row = min(rows, key=lambda each: each.low)
    return Estimate(row.ratio, row.low, row.high, len(rows))


def _over_others(rows: Rows[Row], steps: int) -> Callable[[str], Estimate]:
    """For a measure: its mean over pairs that stutter, over that of other adjacent pairs."""
    found: dict[tuple[str, str, int, str, bool], float] = {}
    for row in real(rows, Attended):
        if row.steps == steps:
            found[row.data, row.direction, row.seed, row.measure, row.stutter] = row.mean

    def ratio(measure: str) -> Estimate:
        values = []
        for (data, direction, seed, name, stutters), mean_yes in found.items():
            other = found.get((data, direction, seed, name, False))
            if name == measure and stutters and other:
                values.append(mean_yes / other)
        return over_runs(values)

    return ratio


def _stuttering(rows: Rows[Row]) -> list[Need]:
    found = [
        row
        for row in real(rows, Attended)
        if row.steps == 4 and row.stutter and row.measure == "tv_avg"
    ]
    pairs = sum(row.count for row in found)
    needs = enough(found, real(rows, Trained))
    return [*needs, at_least("adjacent pairs that stutter", pairs, 100)]


# ------------------------------------------------------------------ rows that hold and that refute

_RUNS = [
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


def _all_compared(first: str, second: str, on: str, difference: float) -> list[Row]:
    return [
        Compared(
            **run,
            first=first,
            second=second,
            on=on,
            difference=difference + 0.05 * (-1) ** number,
            low=difference - 0.8,
            high=difference + 0.8,
        )
        for number, run in enumerate(_RUNS)
    ]


def _against_beam(four: float, ten: float) -> list[Row]:
    return [
        *_trained("padir", STEPS),
        *_all_compared("padir T=4", AUTOREGRESSIVE, DECIDES, four),
        *_all_compared("padir T=10", AUTOREGRESSIVE, DECIDES, ten),
    ]


TRANSLATIONS_HELD = _against_beam(-0.5, -0.4)
TRANSLATIONS_REFUTED = [_against_beam(-4.0, -0.4), _against_beam(-0.5, -4.0)]


def _speeds(median: float, p99: float, passes: float = 4.0) -> list[Row]:
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
                passes=passes,
            )
        )
    return found


SPEED_HELD = _speeds(3.0, 7.0)
SPEED_REFUTED = [_speeds(1.0, 7.0), _speeds(3.0, 2.0), _speeds(3.0, 7.0, passes=5.0)]


def _counted(refinement: int, beam: int) -> list[Row]:
    systems = (("padir", "T=4", refinement), ("student", "beam 5", beam))
    return _trained("padir", STEPS) + [
        Scored(
            **run,
            model=model,
            how=how,
            on=DECIDES,
            sentences=1000,
            bleu=30.0,
            chrf=50.0,
            repeats=repeats,
            words=12_000,
            token_repeats=0,
            tokens=15_000,
            passes=4.0,
            signature="",
        )
        for run in _RUNS
        for model, how, repeats in systems
    ]


STUTTER_HELD = _counted(20, 2)
STUTTER_REFUTED = [_counted(20, 20), _counted(2, 20)]


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
        reference = "raw_pairs" if change == "raw_other_vocabulary" else "reference"
        first, second = f"ablation {change} T=4", f"ablation {reference} T=4"
        found += _all_compared(first, second, ABLATED, -gains.get(change, 1.0))
    return found


ABLATION_HELD = _ablated()
ABLATION_REFUTED = [_ablated(**{change: -1.0}) for change in CHANGES]
