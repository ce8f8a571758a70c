"""What the thesis says about real translation, as checks [li, 4.2.2 to 4.2.4].

Image captions (Multi30k) decide. Software texts are shown, and count for the attention of
neighbours (Tables 4.4 and 4.5). Rows of the toy language decide nothing. A number is a mean over
directions and seeds, with Student's interval over them, unless it says otherwise. Differences in
BLEU have the chance of the sentences in their interval too: all runs translate the same test
sentences. The captions of 2017 decide. Nothing is chosen on them: settings are chosen on the
validation set, and practices are left out and compared on the captions of 2016. The published
numbers are of other data (WMT, with 67 million parameters, distilled from a commercial translator),
so directions are compared.

Repeated words and remasking are judged by `translation_rules`, latencies by `translation_speed`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from triptych.core.estimates import Estimate
from triptych.studies.api.decide import Check, Need, Verdict, above, at_least, below, decide, shown
from triptych.studies.api.study import Rows
from triptych.studies.refinement.shared.judging import (
    CAPTIONS,
    DECIDES,
    DIRECTIONS,
    SEEDS,
    by_system,
    captions,
    enough,
    over_runs,
    over_sentences,
)
from triptych.studies.refinement.shared.rows import Attended, Compared, Row, Scored, Trained
from triptych.studies.refinement.shared.scoring import AUTOREGRESSIVE

ABLATED = "test_2016_flickr"
ABOUT_A_POINT = -1.5  # the largest published loss against the baseline is 1.35
PUBLISHED_LOSS = {4: -0.85, 10: -0.80}  # means of Table 4.1, by steps
ABLATION_STEPS = 1000
A_POINT = 1.0  # of BLEU that an autoregressive student may be below its teacher, or it is too weak
EQUAL = 0.02  # ablations differ by at most this share of their steps
ALIKE = 1.1  # self-attention that is not larger; published 0.032 / 0.033
MOST = 2 / 3  # of the BLEU of beam search: "reasonable translations" has no number in the source
WMT = {"wmt14": ("de-en", "en-de"), "wmt16": ("ro-en", "en-ro"), "wmt17": ("zh-en", "en-zh")}
"""Corpora of Tables 4.1 to 4.3, and their directions."""
TEXTS = {CAPTIONS: "captions", "software": "software texts"}
SETS = (
    ("captions of 2017", CAPTIONS, DECIDES),
    ("captions of 2016", CAPTIONS, "test_2016_flickr"),
    ("software texts", "software", "test"),
)
"""What a set is called, its corpus and its name; the first decides."""
TO = {"en-de": "English to German", "de-en": "German to English"}


def translations(rows: Rows[Row]) -> Verdict:
    """Table 4.1: about as good as the autoregressive model on the same distilled data."""
    every, compared = rows.of(Compared), captions(rows, Compared)
    decided = _against_beam(compared, 4, DECIDES)
    return decide(
        *(
            # The published loss is shown too: it is no effect that could be absent.
            replace(
                above(
                    f"captions of 2017: BLEU of refinement with {steps} steps minus that of beam "
                    "search with 5 beams",
                    over_sentences(_against_beam(compared, steps, DECIDES)),
                    ABOUT_A_POINT,
                ),
                published=PUBLISHED_LOSS[steps],
            )
            for steps in (4, 10)
        ),
        *_size(captions(rows, Trained)),
        *(
            shown(
                f"{text}: BLEU of refinement with {_steps(steps)} minus that of beam search",
                over_sentences(found),
            )
            for text, data, on in SETS
            for steps in (1, 2, 4, 10)
            if (text, steps) not in ((SETS[0][0], 4), (SETS[0][0], 10))
            if (found := _against_beam([r for r in every if r.data == data], steps, on))
        ),
        *_brevity(rows),
        needs=[
            *enough(decided, captions(rows, Trained)),
            at_least(
                "left-to-right networks within a point of BLEU of their teachers, validation",
                sum(gap >= -A_POINT for gap in _below_teachers(rows)),
                DIRECTIONS * SEEDS,
            ),
        ],
        measured=_table(rows),
    )


def published_tables(rows: Rows[Row]) -> Verdict:
    """Tables 4.1 to 4.3 on their own data, for whoever has it: a loss of about a point at most."""
    found = [
        row
        for data, directions in WMT.items()
        for row in rows.of(Compared)
        if (row.data, row.first, row.second) == (data, "padir T=4", AUTOREGRESSIVE)
        and row.direction in directions
        and row.on == "test"
    ]
    return decide(
        above(
            "news texts (WMT): BLEU of refinement with 4 steps minus that of beam search with 5 "
            "beams",
            over_sentences(found),
            ABOUT_A_POINT,
        ),
        needs=[
            at_least(
                "directions of WMT14, WMT16 and WMT17 (the pairs cannot be had here)",
                len({(row.data, row.direction) for row in found}),
                sum(map(len, WMT.values())),
            )
        ],
    )


def one_pass(rows: Rows[Row]) -> Verdict:
    """One forward pass gives reasonable translations: most of what beam search reaches."""
    one, beam = (
        {
            (row.data, row.on, row.direction, row.seed): row.bleu
            for row in by_system(rows.of(Scored), system)
            if row.bleu is not None
        }
        for system in ("padir T=1", AUTOREGRESSIVE)
    )

    def share(data: str, on: str) -> Estimate:
        return over_runs(
            bleu / beam[key] for key, bleu in one.items() if key[:2] == (data, on) and beam.get(key)
        )

    decided = [
        row
        for row in by_system(captions(rows, Scored), "padir T=1")
        if row.on == DECIDES and row.bleu is not None
    ]
    return decide(
        above(
            "captions of 2017: BLEU after one pass of the decoder, as a share of that of beam "
            "search with 5 beams",
            share(CAPTIONS, DECIDES),
            MOST,
        ),
        *(
            shown(
                f"{text}: BLEU after one pass, as a share of that of beam search", share(data, on)
            )
            for text, data, on in SETS[1:]
            if any(key[:2] == (data, on) for key in one)
        ),
        *(
            shown(
                f"{text}, {TO[direction]}: BLEU after one pass",
                over_runs(bleu for key, bleu in one.items() if key[:3] == (data, on, direction)),
            )
            for text, data, on in (SETS[0], SETS[2])
            for direction in TO
            if any(key[:3] == (data, on, direction) for key in one)
        ),
        needs=enough(decided, captions(rows, Trained)),
    )


# ------------------------------------------------------------------ attention

NEIGHBOURS = "neighbours that wrote the same token divided by neighbours that wrote different ones"


def self_attention(rows: Rows[Row]) -> Verdict:
    """Table 4.4: neighbours that stutter do not attend more to each other."""
    return decide(
        below(
            f"attention to each other in the decoder's last layer: {NEIGHBOURS}",
            _over_others(rows, 4)("self_avg"),
            ALIKE,
        ),
        *_beside(
            rows,
            (
                (
                    4,
                    "self_max",
                    f"attention to each other in the head where it is largest: {NEIGHBOURS}",
                ),
                (
                    4,
                    "self_top1",
                    f"how often the neighbour is what a position attends to most: {NEIGHBOURS}",
                ),
                (
                    4,
                    "self_top2",
                    "how often the neighbour is among the two positions attended to most: "
                    f"{NEIGHBOURS}",
                ),
                (1, "self_avg", f"attention to each other after one step: {NEIGHBOURS}"),
            ),
        ),
        *_by_text(rows, "self_avg"),
        needs=_stuttering(rows),
    )


def cross_attention(rows: Rows[Row]) -> Verdict:
    """Table 4.5: neighbours that stutter look at the same source words."""
    over = _over_others(rows, 4)
    return decide(
        below(
            f"total variation of what two positions attend to in the source: {NEIGHBOURS}",
            over("tv_avg"),
            1.0,
            published=0.13 / 0.23,
        ),
        below(
            f"cosine distance of what two positions attend to in the source: {NEIGHBOURS}",
            over("cosine_avg"),
            1.0,
            published=0.10 / 0.20,
        ),
        above(
            f"how often two positions attend most to one source token: {NEIGHBOURS}",
            over("cross_top1"),
            1.0,
            published=0.57 / 0.40,
        ),
        *_beside(
            rows,
            (
                (4, "tv_min", f"total variation in the head where it is smallest: {NEIGHBOURS}"),
                (4, "tv_max", f"total variation in the head where it is largest: {NEIGHBOURS}"),
                (
                    4,
                    "cross_top2",
                    f"how often their two most attended source tokens overlap: {NEIGHBOURS}",
                ),
                (1, "tv_avg", f"total variation after one step: {NEIGHBOURS}"),
            ),
        ),
        *_by_text(rows, "tv_avg"),
        needs=_stuttering(rows),
    )


def _beside(rows: Rows[Row], named: Sequence[tuple[int, str, str]]) -> list[Check]:
    if not _attended(rows):
        return []
    return [shown(text, _over_others(rows, steps)(measure)) for steps, measure, text in named]


IN_WORDS = {
    "self_avg": "attention to each other",
    "tv_avg": "total variation of what two positions attend to",
}


def _by_text(rows: Rows[Row], measure: str) -> list[Check]:
    """The deciding ratio for each kind of text alone."""
    return [
        shown(f"{text} alone, {IN_WORDS[measure]}: {NEIGHBOURS}", over_runs(values))
        for data, text in TEXTS.items()
        if len(values := _ratios(rows, 4, measure, (data,))) > 1
    ]


# ------------------------------------------------------------------ practices

CHANGES = {
    "raw_pairs": "without distillation",
    "no_positions": "without positional attention",
    "half_right": "with 50 % random tokens in training instead of 85 %",
    "raw_other_vocabulary": "with a vocabulary learned on other texts instead of its own",
}
"""The four practices that the thesis calls critical."""
NOT_CRITICAL = {"one_stage": "with one stage of training instead of two (not called critical)"}


def ablations(rows: Rows[Row]) -> Verdict:
    """Each of four practices is worth some BLEU with 4 steps."""
    compared = [row for row in captions(rows, Compared) if row.on == ABLATED]

    def gain(change: str, how: str) -> list[Compared]:
        """What the practice is worth: the difference that leaving it out makes, turned round."""
        return [
            replace(r, difference=-r.difference, low=-r.high, high=-r.low)
            for r in compared
            if r.first == f"ablation {change} {how}"
        ]

    trained = [row for row in captions(rows, Trained) if row.model.startswith("ablation ")]
    decided = [row for row in compared if row.first == "ablation raw_pairs T=4"]
    missing = [change for change in CHANGES if not gain(change, "T=4")]
    sentence = "captions of 2016, {}: BLEU that is lost {}"
    return decide(
        *(
            above(sentence.format("4 steps", name), over_sentences(gain(change, "T=4")), 0.0)
            for change, name in CHANGES.items()
        ),
        *(
            shown(sentence.format(_steps(steps), name), over_sentences(found))
            for change, name in (NOT_CRITICAL | CHANGES).items()
            for steps in ((4, 1, 10) if change in NOT_CRITICAL else (1, 10))
            if (found := gain(change, f"T={steps}"))
        ),
        needs=[
            *enough(decided, trained, ablation=ABLATION_STEPS),
            at_least("practices that were left out in turn", len(CHANGES) - len(missing), 4),
            at_least(
                f"shorter runs that differ by at most {EQUAL:.0%} of their steps",
                _equally_long(trained),
                len(trained),
            ),
        ],
    )


# ------------------------------------------------------------------ parts


def _below_teachers(rows: Rows[Row]) -> list[float]:
    """BLEU of every student minus that of its teacher on the validation set, both by beam search.

    Without it, refinement could be within a point of a baseline that was hardly trained.
    """
    found = {
        (row.model, row.direction, row.seed): row.bleu
        for row in captions(rows, Scored)
        if (row.how, row.on) == ("beam 5", "val") and row.bleu is not None
    }
    return [
        bleu - found["teacher", direction, seed]
        for (model, direction, seed), bleu in found.items()
        if model == "student" and ("teacher", direction, seed) in found
    ]


def _equally_long(trained: Sequence[Trained]) -> int:
    """How many have about as many steps as the longest: seconds alone would favour the quick."""
    most = max((row.steps for row in trained), default=0)
    return sum(row.steps >= (1 - EQUAL) * most for row in trained)


def _brevity(rows: Rows[Row]) -> list[Check]:
    """How short the outputs are, and what is left of the loss when BLEU does not punish it."""
    found = {
        (f"{row.model} {row.how}", row.direction, row.seed): row
        for row in captions(rows, Scored)
        if row.on == DECIDES and row.bleu is not None and row.brevity
    }
    pairs = [
        (own, found[AUTOREGRESSIVE, direction, seed])
        for (system, direction, seed), own in found.items()
        if system == "padir T=4" and (AUTOREGRESSIVE, direction, seed) in found
    ]
    if not pairs:
        return []
    penalties = [
        over_runs(each.brevity or 0.0 for each in side) for side in zip(*pairs, strict=True)
    ]
    words = [[(each.bleu or 0.0) / (each.brevity or 1.0) for each in both] for both in pairs]
    return [
        shown("captions of 2017: BLEU's factor for short outputs, 4 steps", penalties[0]),
        shown("captions of 2017: BLEU's factor for short outputs, beam search", penalties[1]),
        shown(
            "captions of 2017: without that factor, BLEU with 4 steps minus that of beam search",
            over_runs(own - other for own, other in words),
        ),
    ]


def _steps(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"


def _against_beam(rows: Sequence[Compared], steps: int, on: str) -> list[Compared]:
    """Refinement minus beam search on one set."""
    asked = (f"padir T={steps}", AUTOREGRESSIVE, on)
    return [row for row in rows if (row.first, row.second, row.on) == asked]


def _size(trained: Sequence[Trained]) -> list[Check]:
    """How much smaller all of it is than in the source."""
    own = [row for row in trained if row.model == "padir"]
    if not own:
        return []
    return [
        shown("training pairs (published: 4,500,000)", float(max(row.pairs for row in own))),
        shown("parameters, million (published: 67)", max(row.parameters for row in own) / 1e6),
        shown("training steps (published: 500,000)", float(max(row.steps for row in own))),
    ]


def _table(rows: Rows[Row]) -> dict[str, float]:
    """Mean BLEU of every system on the set that decides."""
    groups: dict[str, list[float]] = {}
    for row in captions(rows, Scored):
        if row.on == DECIDES and row.bleu is not None:
            groups.setdefault(f"{row.direction} {row.model} {row.how}", []).append(row.bleu)
    return {name: round(sum(each) / len(each), 2) for name, each in groups.items()}


def _attended(rows: Rows[Row]) -> list[Attended]:
    """Checks on captions and software texts: the same question about the same kind of network."""
    return [row for row in rows.of(Attended) if row.data in TEXTS]


def _ratios(
    rows: Rows[Row], steps: int, measure: str, corpora: Sequence[str] = tuple(TEXTS)
) -> list[float]:
    """For every network: the mean of pairs that stutter over that of other neighbours.

    Worked value: 0.3 for pairs that stutter and 0.2 for the others: 1.5.
    """
    found = {
        (row.stutter, (row.data, row.direction, row.seed)): row.mean
        for row in _attended(rows)
        if (row.steps, row.measure) == (steps, measure) and row.data in corpora
    }
    return [
        value / other
        for (stutters, network), value in found.items()
        if stutters and (other := found.get((False, network)))
    ]


def _over_others(rows: Rows[Row], steps: int) -> Callable[[str], Estimate]:
    """For a measure: the mean of the networks' ratios."""
    return lambda measure: over_runs(_ratios(rows, steps, measure))


def _stuttering(rows: Rows[Row]) -> list[Need]:
    found = [
        row for row in _attended(rows) if row.steps == 4 and row.stutter and row.measure == "tv_avg"
    ]
    needs = enough([row for row in found if row.data == CAPTIONS], captions(rows, Trained))
    pairs = sum(row.count for row in found)
    return [*needs, at_least("neighbouring positions that wrote the same token", pairs, 100)]
