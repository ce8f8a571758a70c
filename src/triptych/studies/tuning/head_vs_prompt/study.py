"""Head tuning against prompt tuning on a pretrained network, as the hidden size grows [wei, 5].

A masked LM is pretrained on a random HMM with 10 symbols; a task on the hidden state at a masked
first position is then learned by a linear head on the network's law there, or by a soft prompt with
such a head. The network's distance to the truth and the majority rate stand next to every accuracy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triptych.core.validation import UserError
from triptych.studies.api.study import Bench, Scale, Settings, Study, Unit
from triptych.studies.tuning.head_vs_prompt.figures import (
    accuracy_figure,
    best_figure,
    plateau_figure,
)
from triptych.studies.tuning.head_vs_prompt.judge import CLAIMS
from triptych.studies.tuning.head_vs_prompt.rows import HIDDEN, Trial
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
    pretrained,
    use_fast_products,
    vanilla,
    vanilla_name,
)


@dataclass(frozen=True)
class HeadVsPrompt(Tuned, Settings):
    """As `Tuned`, for every hidden size and learning rate of the pretraining.

    hidden           |H| of the HMMs; they have 10 symbols
    learning_rates   of the pretraining; the paper prints 1e-5
    first_seed       of the trials, which have the seeds first_seed, first_seed + 1, …; the paper's
                     HMMs and tasks have the seeds 1 to 20
    """

    hidden: tuple[int, ...] = (4, 10, 15, 25)
    learning_rates: tuple[float, ...] = (2e-3,)
    first_seed: int = 1


@dataclass(frozen=True, kw_only=True)
class TuneBoth(Tuned, Unit):
    """One pretrained network and one task."""

    states: int
    learning_rate: float


def units(settings: HeadVsPrompt) -> Sequence[TuneBoth]:
    """All sizes of a seed before the next seed."""
    if min(settings.hidden) < 1:
        raise UserError("hidden sizes must be at least 1")
    return [
        TuneBoth.of(settings, states=states, learning_rate=rate, seed=seed)
        for rate in settings.learning_rates
        for seed in range(settings.first_seed, settings.first_seed + settings.seeds)
        for states in settings.hidden
    ]


def run(unit: TuneBoth, bench: Bench) -> Iterable[Trial]:
    """Pretrain, then tune a head and a prompt on one task."""
    states, seed, rate = unit.states, unit.seed, unit.learning_rate
    use_fast_products(bench.device)
    law = vanilla(states, unit.length, seed)
    last = pretrained(bench, law, vanilla_name(states, seed), unit, rate, seed)[-1]
    data = downstream(law.to(bench.device), unit, seed, bench.rng("inputs"))
    head = linear_head(last.lm, data, unit, seed)
    prompt = prompt_and_head(last.lm, data, unit, seed)
    yield Trial(
        states=states,
        seed=seed,
        learning_rate=rate,
        draws=data.draws,
        majority=data.majority,
        kl_first=kl_at_first(last.lm, data.test),
        kl_constant=kl_of_constant(data.test),
        exact_head=exact_head_accuracy(data),
        kl=last.kl,
        head=head.trained,
        best_head=head.best,
        prompt=prompt.trained,
        best_prompt=prompt.best,
        prompt_train=prompt.training_set,
        prompt_loss=prompt.loss,
    )


STUDY = Study(
    name="head_vs_prompt",
    question="Does prompt tuning beat head tuning at every hidden size, most where |H| > |X|?",
    settings={
        Scale.SMOKE: HeadVsPrompt(seeds=1, hidden=(4, 12), **vars(SMOKE)),
        Scale.LAPTOP: HeadVsPrompt(
            seeds=5, first_seed=100, learning_rates=LAPTOP_RATES, **vars(LAPTOP)
        ),
        Scale.PAPER: HeadVsPrompt(seeds=20, hidden=HIDDEN, learning_rates=(1e-4,), **vars(PAPER)),
    },
    units=units,
    run=run,
    rows=(Trial,),
    claims=CLAIMS,
    figures=[accuracy_figure, best_figure, plateau_figure],
    revision=2,
)
