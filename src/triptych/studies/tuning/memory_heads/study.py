"""An attention head on a memory HMM against a linear head on a vanilla HMM of equal size [wei, 5].

The memory of the first never changes, so every position of an input says something about it, and an
attention head may gather that; the task on the vanilla HMM is about the first hidden state, and a
linear head reads the network's law at the masked first position. Both heads are trained on both
kinds of data, so that what is due to the head and what to the data can be told apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triptych.core.validation import UserError
from triptych.studies.api.study import Bench, Scale, Settings, Study, Unit
from triptych.studies.tuning.memory_heads.figures import accuracy_figure, crossed_figure
from triptych.studies.tuning.memory_heads.judge import CLAIMS
from triptych.studies.tuning.memory_heads.rows import Data, Trial
from triptych.studies.tuning.shared.downstream import (
    LAPTOP,
    LAPTOP_RATES,
    PAPER,
    SMOKE,
    Tuned,
    attention_head,
    downstream,
    exact_head_accuracy,
    kl_at_first,
    kl_of_constant,
    linear_head,
)
from triptych.studies.tuning.shared.networks import (
    pretrained,
    use_fast_products,
    vanilla,
    vanilla_name,
    with_memory,
    with_memory_name,
)

HIDDEN = 4  # |H| of the memory HMMs; the states are |M| |H|


@dataclass(frozen=True)
class MemoryHeads(Tuned, Settings):
    """As `Tuned`, for every memory size and learning rate of the pretraining.

    memories         |M|, with |H| = 4: 4 |M| states in all, and as many in the vanilla HMM
    learning_rates   of the pretraining; the paper prints 1e-5
    data             memory, vanilla or both
    first_seed       of the trials, which have the seeds first_seed, first_seed + 1, …; the paper's
                     have the seeds 1 to 5
    """

    memories: tuple[int, ...] = (2, 5)
    learning_rates: tuple[float, ...] = (2e-3,)
    data: tuple[Data, ...] = ("memory", "vanilla")
    first_seed: int = 1


@dataclass(frozen=True, kw_only=True)
class TuneHeads(Tuned, Unit):
    """One pretrained network and one task.

    values    |M|; without a memory, the HMM has as many states
    """

    data: Data
    values: int
    learning_rate: float


def units(settings: MemoryHeads) -> Sequence[TuneHeads]:
    """The memory HMMs of a seed come first."""
    if min(settings.memories) < 2:
        raise UserError("a memory needs at least 2 values: with one there is nothing to tell")
    for data in settings.data:
        if data not in ("memory", "vanilla"):
            raise UserError(f"data has {data!r}; it must be memory or vanilla")
    return [
        TuneHeads.of(settings, data=data, values=values, learning_rate=rate, seed=seed)
        for rate in settings.learning_rates
        for seed in range(settings.first_seed, settings.first_seed + settings.seeds)
        for data in settings.data
        for values in settings.memories
    ]


def run(unit: TuneHeads, bench: Bench) -> Iterable[Trial]:
    """Pretrain, then tune both heads."""
    values, seed, rate = unit.values, unit.seed, unit.learning_rate
    use_fast_products(bench.device)
    states = values * HIDDEN
    if unit.data == "memory":
        law = with_memory(values, HIDDEN, unit.length, seed)
        name = with_memory_name(values, HIDDEN, seed)
    else:
        law, name = vanilla(states, unit.length, seed), vanilla_name(states, seed)
    last = pretrained(bench, law, name, unit, rate, seed)[-1]
    data = downstream(law.to(bench.device), unit, seed, bench.rng("inputs"))
    linear = linear_head(last.lm, data, unit, seed)
    yield Trial(
        states=states,
        seed=seed,
        learning_rate=rate,
        draws=data.draws,
        majority=data.majority,
        kl_first=kl_at_first(last.lm, data.test),
        kl_constant=kl_of_constant(data.test),
        exact_head=exact_head_accuracy(data),
        data=unit.data,
        kl=last.kl,
        linear=linear.trained,
        best_linear=linear.best,
        attention=attention_head(last.lm, data, unit, seed),
    )


STUDY = Study(
    name="memory_heads",
    question="Does long memory in the data let an attention head learn the task?",
    settings={
        Scale.SMOKE: MemoryHeads(seeds=1, memories=(2,), **vars(SMOKE)),
        Scale.LAPTOP: MemoryHeads(
            seeds=4, first_seed=100, learning_rates=LAPTOP_RATES, **vars(LAPTOP)
        ),
        Scale.PAPER: MemoryHeads(
            seeds=10, memories=(2, 3, 5, 7), learning_rates=(1e-4,), **vars(PAPER)
        ),
    },
    units=units,
    run=run,
    rows=(Trial,),
    claims=CLAIMS,
    figures=[accuracy_figure, crossed_figure],
    revision=2,
)
