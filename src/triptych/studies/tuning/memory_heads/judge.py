"""Judges of Figure 3 right, and of the reason that the paper gives for its linear head.

Compared are trials of the best learning rate whose networks have left their plateau (`trials`).

Figure 3 right: at each number of states, the attention head must be near 100 % (a mean above 95 %;
the published means are 97.8 to 99.9) and above the linear head on vanilla data of equal size. Where
that linear head is at the ceiling, nothing can be above it: such a size is an edge of the
statement, and the verdict says "except there" if the difference is absent. Text and legend of the
figure name a linear head on vanilla data, and the verdict is about that one. The authors' scripts
train an attention head on both kinds of data: that difference is shown.

The reason: "an attention head would perform worse" on vanilla data. Both heads were trained on the
same networks, so their difference is taken trial by trial.

Each interval has 95 % confidence by itself. HOLDS needs all of them; FAILS needs one that lies
below its limit or excludes half of the published difference.
"""

from collections.abc import Sequence
from dataclasses import replace

from triptych.studies.api.decide import Check, Need, Verdict, above, at_least, decide, shown
from triptych.studies.api.study import Claim, Rows
from triptych.studies.tuning.memory_heads.rows import MEMORY, STATES, VANILLA, Data, Trial
from triptych.studies.tuning.shared.trials import (
    best_rate,
    gap,
    left_out,
    off_plateau,
    points,
    rounded,
    sizes_of,
    unless_at_ceiling,
)

PUBLISHED = {
    size: round(memory - plain, 1)
    for size, memory, plain in zip(STATES, MEMORY, VANILLA, strict=True)
}
DIFFERENCE = round(sum(PUBLISHED.values()) / len(PUBLISHED), 1)  # 25.7 points over all four sizes
OVERALL = (
    "accuracy of an attention head on memory data minus accuracy of a linear head on vanilla data, "
    "percentage points"
)
REASON = (
    "vanilla data: accuracy of a linear head minus accuracy of an attention head, percentage points"
)
NEAR = 95.0  # per cent: "near 100 %"
ENOUGH = 4  # trials at each size, of each kind of data


def judge(rows: Rows[Trial]) -> Verdict:
    """Memory minus vanilla over all trials and at every size; near 100 % at every size."""
    every = best_rate(rows.of(Trial))
    trials = off_plateau(every)
    sizes = sizes_of(every)
    at = {size: [t for t in trials if t.states == size] for size in sizes}
    plain = _of(trials, "vanilla")
    return decide(
        above(
            OVERALL,
            gap(_attention(trials), _linear(trials)),
            0.0,
            published=DIFFERENCE,
        ),
        *(check for size in sizes_of(trials) for check in _at_size(size, at[size])),
        shown(
            "an attention head on both kinds of data, as in the authors' scripts: accuracy on "
            "memory data minus accuracy on vanilla data, percentage points",
            gap(_attention(trials), [t.attention for t in plain]),
        ),
        shown("attention head on vanilla data: accuracy, %", points([t.attention for t in plain])),
        shown(
            "best possible linear head on vanilla data: accuracy, %",
            points([t.best_linear for t in plain]),
        ),
        left_out(every),
        needs=_needs(sizes, trials),
        measured={
            "states": sizes,
            "memory": [rounded(_attention(at[size])) for size in sizes],
            "vanilla": [rounded(_linear(at[size])) for size in sizes],
        },
    )


def judge_reason(rows: Rows[Trial]) -> Verdict:
    """Linear minus attention head on vanilla data, trial by trial: the paper expects above 0."""
    every = _of(best_rate(rows.of(Trial)), "vanilla")
    trials = off_plateau(every)
    sizes = sizes_of(every)
    return decide(
        above(REASON, points([t.linear - t.attention for t in trials]), 0.0),
        *(
            shown(
                f"{size} states: {REASON.removeprefix('vanilla data: ')}",
                points([t.linear - t.attention for t in chosen]),
            )
            for size in sizes
            for chosen in [[t for t in trials if t.states == size]]
        ),
        shown(
            "vanilla data: accuracy of the best possible linear head minus that of a trained "
            "attention head, percentage points",
            points([t.best_linear - t.attention for t in trials]),
        ),
        left_out(every),
        needs=[
            at_least("numbers of states", len(sizes), 1),
            *(
                at_least(
                    f"vanilla trials with {size} states, off the plateau",
                    sum(t.states == size for t in trials),
                    ENOUGH,
                )
                for size in sizes
            ),
        ],
    )


def _of(trials: Sequence[Trial], data: Data) -> list[Trial]:
    return [t for t in trials if t.data == data]


def _attention(trials: Sequence[Trial]) -> list[float]:
    """What the figure shows of memory data."""
    return [t.attention for t in _of(trials, "memory")]


def _linear(trials: Sequence[Trial]) -> list[float]:
    """What it shows of vanilla data: the linear head, trained as the attention head is."""
    return [t.linear for t in _of(trials, "vanilla")]


def _at_size(size: int, trials: Sequence[Trial]) -> list[Check]:
    difference = above(
        f"{size} states: accuracy, attention head on memory data minus linear head on vanilla "
        "data, percentage points",
        gap(_attention(trials), _linear(trials)),
        0.0,
        published=PUBLISHED.get(size),
    )
    return [
        unless_at_ceiling(difference, f"{size} states", _linear(trials)),
        above(
            f"{size} states: accuracy of an attention head on memory data, %",
            points(_attention(trials)),
            NEAR,
        ),
    ]


def _needs(sizes: Sequence[int], trials: Sequence[Trial]) -> list[Need]:
    kinds: tuple[Data, ...] = ("memory", "vanilla")
    return [
        at_least("numbers of states", len(sizes), 1),
        *(
            at_least(
                f"{data} trials with {size} states, off the plateau",
                sum(t.states == size for t in _of(trials, data)),
                ENOUGH,
            )
            for size in sizes
            for data in kinds
        ),
    ]


# ------------------------------------------------------------------ what would refute the claim


def _trials(size: int, data: Data, shown_accuracy: float) -> list[Trial]:
    """Five trials around this accuracy, in per cent, of the head that the figure shows."""
    return [
        Trial(
            states=size,
            seed=seed,
            learning_rate=1e-4,
            draws=1,
            majority=0.65,
            kl_first=0.05,
            kl_constant=1.7,
            exact_head=0.9,
            data=data,
            kl=0.05,
            linear=0.7 if data == "memory" else shown_accuracy / 100 + spread,
            best_linear=0.8,
            attention=shown_accuracy / 100 + 0.1 * spread if data == "memory" else 0.7,
        )
        for seed in range(1, 6)
        for spread in [0.01 * (seed - 3)]
    ]


_HELD = [
    trial
    for size, memory, plain in zip(STATES, MEMORY, VANILLA, strict=True)
    for trial in [*_trials(size, "memory", memory), *_trials(size, "vanilla", plain)]
]


def _no_effect(size: int) -> list[Trial]:
    """Both heads near 100 %, with and without a memory."""
    return [*_trials(size, "memory", 98.0), *_trials(size, "vanilla", 98.0)]


def _without(size: int) -> list[Trial]:
    return [trial for trial in _HELD if trial.states != size]


def _no_need_of_attention(size: int) -> list[Trial]:
    """On vanilla data an attention head is 10 points worse, as the paper expects."""
    return [
        replace(trial, attention=trial.linear - 0.1 - 0.01 * (trial.seed - 3))
        for trial in _trials(size, "vanilla", 80.0)
    ]


_EXPECTED = [trial for size in STATES for trial in _no_need_of_attention(size)]


def _lower(trials: Sequence[Trial], points: float) -> list[Trial]:
    """The same with an attention head that is this many points worse."""
    return [replace(trial, attention=trial.attention - points / 100) for trial in trials]


CLAIMS: list[Claim[Trial]] = [
    Claim(
        "wei.fig-3-right",
        judge,
        refuted_by=[
            [trial for size in STATES for trial in _no_effect(size)],
            *([*_no_effect(size), *_without(size)] for size in STATES),  # no effect at one size
            _lower(_HELD, 8.0),  # near 100 % nowhere, and still above vanilla data
            *(
                [*_lower([t for t in _HELD if t.states == size], 8.0), *_without(size)]
                for size in STATES
            ),
        ],
        held_by=_HELD,
    ),
    Claim(
        "wei.vanilla-attention",
        judge_reason,
        refuted_by=[
            _lower(_EXPECTED, -20.0),  # an attention head is 10 points better at every size
            _lower(_EXPECTED, -11.0),  # and 1 point better
        ],
        held_by=_EXPECTED,
    ),
]
