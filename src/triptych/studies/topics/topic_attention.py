"""Does a word attend to its own topic, and what if the value matrix is diagonal [li, 2.1.5.3]?

Mean attention between positions of unmasked documents, by kind of pair: the same word, another word
of the same topic, a word of another topic; the start token is a class of its own. Cross-entropy:

    code        one-hot words as the authors' code makes them, a start token      Table 2.1
    equation    one-hot words as the thesis has them, no start token
    authors     the authors' network, everything trained
    tied        the same with the network as printed: tied, without LayerNorm
    identity    as code, with W^V held at the identity                            Table 2.2

The code normalises its inputs (LayerNorm), which makes a one-hot word about √V = 10 long, and
nobody attends to a word that is to be predicted. A step of SGD on inputs of length s is one of s²
times the rate on unit inputs, and one of Adam s times: the printed rates are those of the code.
SGD 0.003 is left out, as in the source: it does not learn.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from triptych.core.estimates import mean, proportion
from triptych.core.randomness import TorchRng
from triptych.studies.api.decide import Check, Need, Verdict, above, at_least, decide, shown
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Study
from triptych.studies.topics.shared.blocks import Blocks, columns, made, pattern, statistics
from triptych.studies.topics.shared.measures import (
    LEARNT,
    attention_means,
    guess,
    has_learnt,
    held_out_loss,
    value_matrix,
)
from triptych.studies.topics.shared.networks import (
    DEFAULT,
    TINY,
    Optimiser,
    TopicSettings,
    TopicUnit,
    Training,
    trained,
)
from triptych.studies.topics.shared.runs import SEEDS, mean_of_runs

ROWS = ("Adam 0.003", "Adam 0.01", "Adam 0.03", "SGD 0.01", "SGD 0.03")  # of Table 2.1
PUBLISHED = {
    "same_word": (0.00759, 0.00811, 0.00453, 0.0105, 0.0140),
    "same_topic": (0.0108, 0.010, 0.0116, 0.0106, 0.0103),
    "different": (0.00689, 0.00707, 0.00665, 0.00673, 0.00641),
}
DIAGONAL_ROWS = ("Adam 0.003", "Adam 0.01")  # of Table 2.2
DIAGONAL_PUBLISHED = {
    "same_word": (0.0916, 0.0918),
    "same_topic": (0.00185, 0.00182),
    "different": (0.00256, 0.00256),
}
ENDED = 0.7  # of ten runs have a visible diagonal, in the text
MUCH = 10.0  # what "≫" means
FASTEST = 0.03  # the rate of SGD that `sgd_steps` is for
Network = Literal["code", "equation", "authors", "tied", "identity"]


@dataclass(frozen=True, kw_only=True)
class TopicAttention(TopicSettings):
    """Sizes.

    adam_steps      of Adam on one-hot words
    sgd_steps       of SGD at 0.03; at 0.01 three times as many
    diagonal_runs   of the authors' network, a rate
    diagonal_steps  of the runs for diagonal value matrices
    cut, inspected  length and number of the documents that attention is read on
    """

    seeds: int = 3
    adam_steps: int = 1000
    sgd_steps: int = 4000
    diagonal_runs: int = 10
    diagonal_steps: int = 1000
    cut: int = 100
    inspected: int = 500


@dataclass(frozen=True, kw_only=True)
class TrainAttention(TopicUnit):
    """One of the networks, with an optimiser."""

    network: Network
    optimiser: Optimiser
    learning_rate: float
    steps: int
    cut: int
    inspected: int

    @property
    def training(self) -> Training:
        """How this network is trained: as the code of the authors, or with one thing changed."""
        vocab = self.documents.mask_token + 2
        code = Training(
            init_scale=DEFAULT,
            start=True,
            blind=True,
            input_length=math.sqrt(vocab),
            optimiser=self.optimiser,
            learning_rate=self.learning_rate,
            steps=self.steps,
        )
        free = replace(code, embedding=True, embedding_scale=1.0, input_length=1.0)
        return {
            "code": code,
            "equation": replace(code, start=False, blind=False, input_length=1.0),
            "identity": replace(code, value=False),
            "authors": replace(free, authors=True),
            "tied": replace(free, blind=False),
        }[self.network]


@dataclass(frozen=True, kw_only=True)
class Attended(Blocks):
    """Attention of one run by kind of pair, and the block statistics of its W^V.

    row         of the table, as "Adam 0.003"
    special     from a word to the start token; None without one
    held_out    loss on fresh documents; guess: that of a uniform guess
    """

    network: Network
    row: str
    seed: int
    steps: int
    same_word_attention: float
    same_topic_attention: float
    different_attention: float
    special: float | None
    held_out: float
    guess: float


Row = Attended


def units(settings: TopicAttention) -> Sequence[TrainAttention]:
    """One per network, optimiser, rate and seed."""
    chosen: list[tuple[Network, str, int, int]] = []
    for name in ROWS:
        optimiser, rate = name.split()
        slow = round(settings.sgd_steps * FASTEST / float(rate))
        steps = settings.adam_steps if optimiser == "Adam" else slow
        chosen.append(("code", name, steps, settings.seeds))
        if optimiser == "Adam":
            chosen.append(("equation", name, steps, settings.seeds))
        if name in DIAGONAL_ROWS:
            few = settings.diagonal_steps
            chosen.append(("identity", name, few, settings.seeds))
            chosen.append(("tied", name, few, settings.seeds))
            chosen.append(("authors", name, few, settings.diagonal_runs))
    return [
        TrainAttention.of(
            settings,
            network=network,
            optimiser=name.split()[0].lower(),
            learning_rate=float(name.split()[1]),
            steps=steps,
            seed=settings.first_seed + number,
        )
        for network, name, steps, runs in chosen
        for number in range(runs)
    ]


def run(unit: TrainAttention, bench: Bench) -> Iterable[Row]:
    """Train, then look at the attention between words and at the value matrix."""
    documents, training = unit.documents, unit.training
    net, _ = trained(documents, training, unit.seed)
    found = attention_means(
        net,
        documents,
        start=training.start,
        seed=20_000 + unit.seed,
        count=unit.inspected,
        cut=unit.cut,
    )
    rng = TorchRng(bench.rng("permutations").seed)
    yield Attended(
        network=unit.network,
        row=f"{'Adam' if unit.optimiser == 'adam' else 'SGD'} {unit.learning_rate:g}",
        seed=unit.seed,
        steps=unit.steps,
        same_word_attention=found.same_word,
        same_topic_attention=found.same_topic,
        different_attention=found.different_topic,
        special=found.special,
        held_out=held_out_loss(net, documents, training, 10_000 + unit.seed),
        guess=guess(documents, training),
        **columns(statistics(value_matrix(net), documents, rng)),
    )


# ------------------------------------------------------------------ judges


def _learnt(rows: Sequence[Attended]) -> list[Attended]:
    """The runs whose loss came LEARNT of the way from a guess to the best run."""
    best = min((row.held_out for row in rows), default=math.nan)
    return [row for row in rows if has_learnt(row.held_out, row.guess, best)]


def _table(groups: Sequence[Sequence[Attended]], names: Sequence[str]) -> dict[str, list]:
    """Means by row of a table, under the names of the published ones."""

    def means(values: Sequence[Sequence[float]]) -> list[float | None]:
        return [sum(some) / len(some) if some else None for some in values]

    return {
        "rows": list(names),
        "same_word": means([[r.same_word_attention for r in some] for some in groups]),
        "same_topic": means([[r.same_topic_attention for r in some] for some in groups]),
        "different": means([[r.different_attention for r in some] for some in groups]),
    }


def judge_blocks(rows: Rows[Row]) -> Verdict:
    """In the rows of the table: same topic over different topic, by runs that learnt and whose W^V
    has blocks, as the source selects them. Five comparisons, each at 95 %.

    The source leaves out a row whose runs did not learn, and so does this; it names it, and asks
    for all rows but one. The network of the code decides. That of the text, with inputs of length 1
    and no start token, is the second finding, in the three rows of Adam.
    """
    code, text = (
        [row for row in rows.of(Attended) if row.network == name] for name in ("code", "equation")
    )
    checks, groups = _block_checks(code, ROWS)
    about = "text, inputs of length 1: "
    printed = _block_checks(text, ROWS[:3], about)[0] if text else []
    words = [
        sum(r.same_word_attention - r.same_topic_attention for r in some) > 0 for some in groups
    ]
    used = sum(len(some) >= SEEDS for some in groups)
    what = f"rows of the table with {SEEDS} runs that learnt, with a block-like W^V"
    return decide(
        *checks,
        shown(
            "rows of the table in which a word attends to itself more than to its topic, of five",
            float(sum(words)),
            published=1.0,
        ),
        needs=[at_least(what, used, len(ROWS) - 1)],
        measured=_table(groups, ROWS),
        printed=printed,
    )


def _block_checks(
    rows: Sequence[Attended], names: Sequence[str], about: str = ""
) -> tuple[list[Check], list[list[Attended]]]:
    """A check for each row of the table that has runs which count, and those runs."""
    good = [row for row in _learnt(rows) if pattern(row) == "blocks"]
    groups = [[row for row in good if row.row == name] for name in names]
    checks: list[Check] = []
    for name, some in zip(names, groups, strict=True):
        if len(some) < SEEDS:
            sentence = f"{about}{name} is left out: runs that learnt and have a W^V with blocks"
            checks.append(shown(sentence, float(len(some))))
            continue
        ratio = mean_of_runs([r.same_topic_attention / r.different_attention for r in some])
        place = ROWS.index(name)
        published = PUBLISHED["same_topic"][place] / PUBLISHED["different"][place]
        sentence = (
            f"{about}{name}: attention to other words of the same topic divided by attention to "
            "words of other topics"
        )
        checks.append(above(sentence, ratio, 1.0, published=published))
    return checks, groups


def judge_diagonal(rows: Rows[Row]) -> Verdict:
    """One-hot words with W^V held at the identity: same word over MUCH times different topic, and
    different topic over same topic, in both rows of the table. Four comparisons.

    The caption verifies Theorem 2.1.5, which holds W^V at a diagonal, and no network whose
    embeddings are trained can have a W^V that is diagonal between words. The second finding is
    what the text says of its runs: W^V is trained, and most runs end at a diagonal.
    """
    every = rows.of(Attended)
    groups = [_runs_of(every, "identity", name) for name in DIAGONAL_ROWS]
    checks: list[Check] = []
    needs: list[Need] = []
    for place, (name, some) in enumerate(zip(DIAGONAL_ROWS, groups, strict=True)):
        needs.append(at_least(f"{name}: runs with W^V held at the identity", len(some), SEEDS))
        if not some:
            continue
        word, same, other = (
            DIAGONAL_PUBLISHED[kind][place] for kind in ("same_word", "same_topic", "different")
        )
        checks += [
            above(
                f"{name}: attention to the same word divided by attention to words of other topics",
                mean_of_runs([r.same_word_attention / r.different_attention for r in some]),
                MUCH,
                published=word / other,
            ),
            above(
                f"{name}: attention to words of other topics divided by attention to other words "
                "of the same topic",
                mean_of_runs([r.different_attention / r.same_topic_attention for r in some]),
                1.0,
                published=other / same,
            ),
        ]
    beside: list[Check] = []
    free: dict[Network, str] = {
        "authors": "network of the code, everything trained",
        "tied": "network of the text, everything trained",
    }
    for network, what in free.items():
        some = [row for name in DIAGONAL_ROWS for row in _runs_of(every, network, name)]
        if some:
            words = [row.same_word_attention / row.different_attention for row in some]
            others = [row.different_attention / row.same_topic_attention for row in some]
            beside += [
                shown(
                    f"{what}: attention to the same word divided by that to other topics",
                    mean_of_runs(words),
                ),
                shown(
                    f"{what}: attention to other topics divided by that to the same topic",
                    mean_of_runs(others),
                ),
            ]
    return decide(
        *checks,
        *beside,
        needs=needs,
        measured=_table(groups, DIAGONAL_ROWS),
        printed=_ends_diagonal(every),
    )


def _runs_of(rows: Sequence[Attended], network: Network, name: str) -> list[Attended]:
    return [row for row in rows if (row.network, row.row) == (network, name)]


def _ends_diagonal(rows: Sequence[Attended]) -> list[Check]:
    """How often training W^V ends at a diagonal, where the text has 7 of 10 runs."""
    names: dict[Network, str] = {
        "code": "one-hot words, W^V trained",
        "authors": "network of the code, everything trained",
    }
    found: list[Check] = []
    for network, what in names.items():
        some = [row for name in DIAGONAL_ROWS for row in _runs_of(rows, network, name)]
        if some:
            ended = sum(pattern(row) == "diagonal" for row in some)
            sentence = f"{what}: share of runs whose W^V ends at a diagonal between words"
            found.append(above(sentence, proportion(ended, len(some)), 0.0, published=ENDED))
    return found


# ------------------------------------------------------------------ rows that hold, and refute


def _rows(
    network: Network,
    names: Sequence[str],
    published: dict[str, tuple[float, ...]],
    matrix: dict[str, float],
) -> list[Attended]:
    """Runs at the published attention, a little more of it to the same topic at every seed."""
    return [
        Attended(
            network=network,
            row=name,
            seed=seed,
            steps=1000,
            same_word_attention=published["same_word"][place],
            same_topic_attention=published["same_topic"][place] * (1 + 0.01 * seed),
            different_attention=published["different"][place],
            special=0.01,
            held_out=3.2,
            guess=4.6,
            **matrix,
        )
        for place, name in enumerate(names)
        for seed in range(SEEDS)
    ]


def _in_row(rows: Sequence[Attended], name: str | None, **factors: float) -> list[Attended]:
    """The rows, some of their attention multiplied, in one row of the table or in all."""
    return [
        replace(row, **{n: getattr(row, n) * factor for n, factor in factors.items()})
        if name in (None, row.row)
        else row
        for row in rows
    ]


_BLOCKS_HELD = _rows("code", ROWS, PUBLISHED, made())
_DIAGONAL_HELD = _rows("identity", DIAGONAL_ROWS, DIAGONAL_PUBLISHED, made(same=0.0))
_EVEN = [
    replace(row, same_topic_attention=0.01 + 1e-5 * row.seed, different_attention=0.01)
    for row in _BLOCKS_HELD
]
_BLOCKS_REFUTED = [
    *(_in_row(_BLOCKS_HELD, name, different_attention=2.0) for name in ROWS),
    _in_row(_BLOCKS_HELD, None, different_attention=2.0),
    _EVEN,
]
_DIAGONAL_REFUTED = [
    *(_in_row(_DIAGONAL_HELD, name, same_word_attention=0.1) for name in DIAGONAL_ROWS),
    *(_in_row(_DIAGONAL_HELD, name, same_topic_attention=3.0) for name in DIAGONAL_ROWS),
    [
        replace(
            row,
            same_word_attention=0.01,
            same_topic_attention=0.01 + 1e-5 * row.seed,
            different_attention=0.01,
        )
        for row in _DIAGONAL_HELD
    ],
]


# ------------------------------------------------------------------ pictures


_KINDS = {"same_word": "same word", "same_topic": "same topic", "different": "different topic"}


def _means(
    rows: Sequence[Attended], names: Sequence[str], column: str, label: str, kind: SeriesKind
) -> Series:
    places, found = [], []
    for place, name in enumerate(names, 1):
        some = [_attention(row, column) for row in rows if row.row == name]
        if some:
            places.append(place)
            found.append(mean(some))
    low = [e.low if e.n > 1 else e.value for e in found]
    high = [e.high if e.n > 1 else e.value for e in found]
    return Series(label, kind, places, [e.value for e in found], low, high, line=False)


def _attention(row: Attended, column: str) -> float:
    match column:
        case "same_word":
            return row.same_word_attention
        case "same_topic":
            return row.same_topic_attention
        case _:
            return row.different_attention


def _axis(names: Sequence[str]) -> str:
    return ", ".join(f"{place} {name}" for place, name in enumerate(names, 1))


def table_figure(rows: Rows[Row]) -> Figure:
    """Three kinds of pairs, by optimiser and rate, with the published values."""
    code, equation = (
        [row for row in rows.of(Attended) if row.network == name] for name in ("code", "equation")
    )
    panels = [
        Panel(
            [
                _means(_learnt(code), ROWS, column, "inputs as in the code", "ours"),
                _means(equation, ROWS, column, "inputs as printed, no start token", "control"),
                Series("published", "published", range(1, 6), PUBLISHED[column], line=False),
            ],
            "Adam: 1 0.003, 2 0.01, 3 0.03; SGD: 4 0.01, 5 0.03",
            "mean attention weight; 0.01 is even",
            name,
        )
        for column, name in _KINDS.items()
    ]
    return Figure(
        "topic_attention",
        "Attention to the same word, to the same topic and to different topics",
        panels,
        "Means over runs with 95 % intervals; documents cut to 100 tokens, so even attention is "
        f"0.01. Runs whose loss came less than {LEARNT:.0%} of the way from a guess to the best "
        "run are left out, as in the source. Weights need not sum to 1 over the three kinds: the "
        "start token has the rest.",
    )


def diagonal_figure(rows: Rows[Row]) -> Figure:
    """Attention when W^V is the identity, and with trained embeddings."""
    labels: dict[Network, tuple[str, SeriesKind]] = {
        "authors": ("authors' network, all trained", "ours"),
        "identity": ("W^V held at I", "truth"),
        "tied": ("network as printed, all trained", "control"),
    }
    panels = []
    for column, name in _KINDS.items():
        series = [
            _means(
                [row for row in rows.of(Attended) if row.network == network],
                DIAGONAL_ROWS,
                column,
                label,
                kind,
            )
            for network, (label, kind) in labels.items()
        ]
        series.append(
            Series("published", "published", (1, 2), DIAGONAL_PUBLISHED[column], line=False)
        )
        label = "mean attention weight; 0.01 is even"
        panels.append(Panel(series, _axis(DIAGONAL_ROWS), label, name, y_log=True))
    return Figure(
        "diagonal_attention",
        "Attention with the value matrix at the identity, and when everything is trained",
        panels,
        "Means over all runs with 95 % intervals, whatever their W^V looks like. With trained "
        "embeddings rows and columns of W^V are coordinates and not words.",
    )


STUDY = Study(
    name="topic_attention",
    question="Does a word attend to its own topic, and what if the value matrix is diagonal?",
    settings={
        Scale.SMOKE: TopicAttention(
            **TINY,
            first_seed=0,
            adam_steps=20,
            sgd_steps=20,
            diagonal_runs=1,
            diagonal_steps=10,
            cut=12,
            inspected=50,
        ),
        Scale.LAPTOP: TopicAttention(),
        Scale.PAPER: TopicAttention(
            seeds=5, adam_steps=5000, sgd_steps=10_000, diagonal_steps=5000
        ),
    },
    units=units,
    run=run,
    rows=(Attended,),
    claims=[
        Claim("li.tab-2.1", judge_blocks, _BLOCKS_REFUTED, held_by=_BLOCKS_HELD),
        Claim("li.tab-2.2", judge_diagonal, _DIAGONAL_REFUTED, held_by=_DIAGONAL_HELD),
    ],
    figures=[table_figure, diagonal_figure],
    revision=2,
)
