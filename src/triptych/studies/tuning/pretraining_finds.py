"""When does pretraining find it? Heads and prompts along training, next to two controls [wei, 5].

A prompt of k vectors has many parameters of its own. So the same head and prompt are also tuned on
a network that was never trained, and on one that was pretrained on another HMM of the same size:
what they reach there is their own capacity, and the rest of the gain is due to pretraining on the
right law.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from triptych.core.estimates import mean
from triptych.core.validation import UserError
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Bench, Rows, Scale, Settings, Study, Unit
from triptych.studies.tuning.shared.downstream import (
    LAPTOP,
    LAPTOP_RATES,
    PAPER,
    SMOKE,
    Tuned,
    downstream,
    exact_head_accuracy,
    kl_at_first,
    kl_of_constant,
    linear_head,
    prompt_and_head,
)
from triptych.studies.tuning.shared.networks import (
    VOCAB,
    pretrained,
    use_fast_products,
    vanilla,
    vanilla_name,
)
from triptych.studies.tuning.shared.trials import OnNetwork, best_rate, sizes_of

Source = Literal["own", "other"]


@dataclass(frozen=True)
class PretrainingFinds(Tuned, Settings):
    """As `Tuned`, for hidden sizes below and above the number of symbols.

    first_seed    of the trials, which have the seeds first_seed, first_seed + 1, …
    """

    hidden: tuple[int, ...] = (10, 25)
    learning_rates: tuple[float, ...] = (2e-3,)
    first_seed: int = 1


@dataclass(frozen=True, kw_only=True)
class TuneAlong(Tuned, Unit):
    """One task, on networks of its own law or at the end of another law's training."""

    states: int
    source: Source
    learning_rate: float


@dataclass(frozen=True)
class AtSnapshot(OnNetwork):
    """A head and a prompt on a network after `step` steps of training on a law.

    source    "own": the law of the task; "other": another one of the same size
    """

    source: Source
    step: int
    head: float
    best_head: float
    prompt: float
    best_prompt: float
    prompt_train: float
    prompt_loss: float


def units(settings: PretrainingFinds) -> Sequence[TuneAlong]:
    """One task each, on networks of its own law or of another law."""
    if min(settings.hidden) < 1:
        raise UserError("hidden sizes must be at least 1")
    sources: tuple[Source, ...] = ("own", "other")
    return [
        TuneAlong.of(settings, states=states, source=source, learning_rate=rate, seed=seed)
        for rate in settings.learning_rates
        for seed in range(settings.first_seed, settings.first_seed + settings.seeds)
        for states in settings.hidden
        for source in sources
    ]


def run(unit: TuneAlong, bench: Bench) -> Iterable[AtSnapshot]:
    """A row per network: every snapshot of its own training, or the end of another law's."""
    states, seed, rate = unit.states, unit.seed, unit.learning_rate
    use_fast_products(bench.device)
    law = vanilla(states, unit.length, seed)
    data = downstream(law.to(bench.device), unit, seed, bench.rng("inputs"))
    of = seed if unit.source == "own" else seed + 1
    trained_on = vanilla(states, unit.length, of)
    found = pretrained(bench, trained_on, vanilla_name(states, of), unit, rate, of)
    for snapshot in found if unit.source == "own" else found[-1:]:
        head = linear_head(snapshot.lm, data, unit, seed)
        prompt = prompt_and_head(snapshot.lm, data, unit, seed)
        yield AtSnapshot(
            states=states,
            seed=seed,
            learning_rate=rate,
            draws=data.draws,
            majority=data.majority,
            kl_first=kl_at_first(snapshot.lm, data.test),
            kl_constant=kl_of_constant(data.test),
            exact_head=exact_head_accuracy(data),
            source=unit.source,
            step=snapshot.step,
            head=head.trained,
            best_head=head.best,
            prompt=prompt.trained,
            best_prompt=prompt.best,
            prompt_train=prompt.training_set,
            prompt_loss=prompt.loss,
        )


def _prompt(row: AtSnapshot) -> float:
    return row.prompt


def _head(row: AtSnapshot) -> float:
    return row.head


def _along(
    groups: Sequence[Sequence[AtSnapshot]],
    accuracy: Callable[[AtSnapshot], float],
    label: str,
    kind: SeriesKind,
    *,
    line: bool = True,
) -> Series:
    """The mean accuracy of each group of rows, over its mean KL to the truth."""
    kl = [mean([row.kl_first for row in group]).value for group in groups]
    found = [mean([accuracy(row) for row in group]) for group in groups]
    ends = [(max(0.0, e.low), min(1.0, e.high)) if e.n > 1 else (e.value, e.value) for e in found]
    low, high = ([100 * end[side] for end in ends] for side in (0, 1))
    return Series(label, kind, kl, [100 * e.value for e in found], low, high, line=line)


def _panel(rows: Sequence[AtSnapshot], states: int) -> Panel:
    own = [row for row in rows if row.states == states and row.source == "own"]
    other = [row for row in rows if row.states == states and row.source == "other"]
    steps = [[row for row in own if row.step == step] for step in sorted({row.step for row in own})]
    series = [
        _along(steps, _prompt, "prompt tuning", "ours"),
        _along(steps, _head, "head tuning", "control"),
    ]
    if other:
        series.append(_along([other], _prompt, "prompt, another HMM", "ours", line=False))
        series.append(_along([other], _head, "head, another HMM", "control", line=False))
    if steps:
        majority = 100 * mean([row.majority for row in own]).value
        ends = [series[0].x[0], series[0].x[-1]]
        series.append(Series("always the majority label", "truth", ends, [majority, majority]))
    size = f"|H| = {states}: " + ("more" if states > VOCAB else "no more")
    return Panel(
        series,
        "KL to the truth at the first position (nats)",
        "test accuracy (%)",
        f"{size} states than symbols",
        x_log=True,
    )


def training_figure(rows: Rows[AtSnapshot]) -> Figure:
    """Accuracy against the distance to the truth, with both controls."""
    chosen = best_rate(rows.of(AtSnapshot))
    return Figure(
        "pretraining_finds",
        "What heads and prompts reach along pretraining, and on a network of another HMM",
        [_panel(chosen, states) for states in sizes_of(chosen)],
        "One line is one training, from the untrained network (right) to the end (left); means "
        "over trials with 95 % intervals. Single marks: the same tuning on a network pretrained on "
        "another HMM of the same size.",
    )


STUDY = Study(
    name="pretraining_finds",
    question="How much of what prompts reach is pretraining, and how much their own capacity?",
    settings={
        Scale.SMOKE: PretrainingFinds(
            seeds=1, **vars(replace(SMOKE, tuning_steps=3, head_steps=5))
        ),
        # The seeds are among those of head_vs_prompt, so that networks are trained once for both.
        Scale.LAPTOP: PretrainingFinds(
            seeds=3, first_seed=100, learning_rates=LAPTOP_RATES, **vars(LAPTOP)
        ),
        Scale.PAPER: PretrainingFinds(
            seeds=5,
            learning_rates=(1e-4,),
            **vars(replace(PAPER, snapshots=(0.0, 0.0625, 0.125, 0.25, 0.5, 1.0))),
        ),
    },
    units=units,
    run=run,
    rows=(AtSnapshot,),
    figures=[training_figure],
    revision=2,
)
