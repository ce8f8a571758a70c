"""Does prompt tuning need full precision [wei, D]? The same networks and prompts, both ways.

"We found that it was important to train prompt tuning with full precision, since the gradients are
relatively small and become zero with discretization." So prompts are tuned through the network in
float32, and through a copy of it whose weights, states and gradients have 16 bits. Prompt and head
keep 32 bits, and the loss is not scaled up, which would keep small gradients from becoming 0. On a
GPU, "full precision" has float32 numbers whose products are rounded to 19 bits; their exponents,
which decide what becomes 0, have all 8 bits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from triptych.adaptation.prompts import Tuning
from triptych.core.validation import UserError
from triptych.models.language_models import MaskedLM, in_precision
from triptych.studies.api.decide import Verdict, above, at_least, decide, shown
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.tuning.shared.downstream import (
    LAPTOP,
    LAPTOP_RATES,
    PAPER,
    SMOKE,
    Downstream,
    Tuned,
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
)
from triptych.studies.tuning.shared.trials import (
    OnNetwork,
    best_rate,
    left_out,
    off_plateau,
    points,
    sizes_of,
)
from triptych.training.step import Recipe

ENOUGH = 6  # networks
IMPORTANT = 1.0  # percentage points; the paper says "important" and prints no number
GRADIENT_INPUTS = 128  # on which zeros of a gradient are counted: a batch of the paper
NEEDED = (
    "accuracy of prompts tuned in full precision minus accuracy of prompts tuned in float16, "
    "percentage points"
)


@dataclass(frozen=True)
class PromptPrecision(Tuned, Settings):
    """As `Tuned`, for every hidden size and learning rate of the pretraining.

    short_steps    of tuning, for the 5 epochs that the paper prints
    """

    hidden: tuple[int, ...] = (10, 25)
    learning_rates: tuple[float, ...] = (2e-3,)
    first_seed: int = 300
    short_steps: int = 157


@dataclass(frozen=True, kw_only=True)
class TunePrecisely(Tuned, Unit):
    """One pretrained network and one task."""

    states: int
    learning_rate: float
    short_steps: int


@dataclass(frozen=True)
class Trial(OnNetwork):
    """Prompts with a linear head on one network and task, tuned in several precisions.

    full, float16, bfloat16        accuracies by the format of the network while it is tuned; all
                                   are tested on the network in float32
    zeros_float16, zeros_bfloat16  share of the prompt's gradient that is 0 at the first step, over
                                   a batch of inputs
    zeros_full                     the same in float32
    head                           accuracy of a linear head alone
    short_head, short_prompt       accuracies after 5 epochs of tuning, in full precision
    """

    kl: float
    full: float
    float16: float
    bfloat16: float
    zeros_full: float
    zeros_float16: float
    zeros_bfloat16: float
    head: float
    short_head: float
    short_prompt: float


@dataclass(frozen=True)
class Rounded:
    """A network that computes in another format, for vectors and answers in the usual one."""

    whole: MaskedLM
    copy: MaskedLM
    dtype: torch.dtype

    @classmethod
    def of(cls, model: MaskedLM, dtype: torch.dtype) -> "Rounded":
        return cls(model, in_precision(model, dtype), dtype)

    @property
    def vocab_size(self) -> int:
        return self.whole.vocab_size

    @property
    def soft_range(self) -> tuple[float, float]:
        return self.whole.soft_range

    def embed(
        self, tokens: Int[Tensor, "batch t"], hidden: Bool[Tensor, "batch t"] | None = None
    ) -> Float[Tensor, "batch t width"]:
        return self.whole.embed(tokens, hidden)

    def soft_masked_probs(
        self, vectors: Float[Tensor, "batch t width"], *, at: int | None = None
    ) -> Float[Tensor, "batch positions vocab"]:
        """As the network, with vectors, states and their gradients rounded to the format."""
        return self.copy.soft_masked_probs(vectors.to(self.dtype), at=at)


def units(settings: PromptPrecision) -> Sequence[TunePrecisely]:
    """All sizes of a seed before the next seed."""
    if min(settings.hidden) < 1 or settings.short_steps < 1:
        raise UserError("hidden sizes and short_steps must be at least 1")
    return [
        TunePrecisely.of(settings, states=states, learning_rate=rate, seed=seed)
        for rate in settings.learning_rates
        for seed in range(settings.first_seed, settings.first_seed + settings.seeds)
        for states in settings.hidden
    ]


def run(unit: TunePrecisely, bench: Bench) -> Iterable[Trial]:
    """Pretrain, then tune the same prompt in three formats."""
    states, seed, rate = unit.states, unit.seed, unit.learning_rate
    use_fast_products(bench.device)
    law = vanilla(states, unit.length, seed)
    last = pretrained(bench, law, vanilla_name(states, seed), unit, rate, seed)[-1]
    data = downstream(law.to(bench.device), unit, seed, bench.rng("inputs"))
    half, brief = Rounded.of(last.lm, torch.float16), Rounded.of(last.lm, torch.bfloat16)
    short = replace(unit, head_steps=unit.short_steps, tuning_steps=unit.short_steps)
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
        full=_accuracy(last.lm, last.lm, data, unit, seed),
        float16=_accuracy(half, last.lm, data, unit, seed),
        bfloat16=_accuracy(brief, last.lm, data, unit, seed),
        zeros_full=vanished(last.lm, data, unit, seed),
        zeros_float16=vanished(half, data, unit, seed),
        zeros_bfloat16=vanished(brief, data, unit, seed),
        head=linear_head(last.lm, data, unit, seed).trained,
        short_head=linear_head(last.lm, data, short, seed).trained,
        short_prompt=_accuracy(last.lm, last.lm, data, short, seed),
    )


def _accuracy(
    model: MaskedLM | Rounded, whole: MaskedLM, data: Downstream, sizes: Tuned, seed: int
) -> float:
    """Tuned through `model`, tested through `whole`."""
    recipe = Recipe(
        steps=sizes.tuning_steps,
        batch=sizes.tuning_batch,
        learning_rate=sizes.tuning_rate,
        warmup=sizes.tuning_steps // 8,
        decay="linear",
        quick=True,
        recorded=True,
    )
    tuned = Tuning(model, prompt_length=sizes.prompt_length, recipe=recipe, seed=seed)
    tuned.fit(data.train.tokens, data.train.labels)
    tuned.model = whole
    return tuned.score(data.test.tokens, data.test.labels)


def vanished(model: MaskedLM | Rounded, data: Downstream, sizes: Tuned, seed: int) -> float:
    """The share of the prompt's gradient that is 0 before the first step, input by input.

    The loss is the mean over the inputs. Worked value: a model that ignores the prompt has 1.
    """
    tokens = data.train.tokens[:GRADIENT_INPUTS]
    labels = data.train.labels[:GRADIENT_INPUTS]
    tuning = Tuning(model, prompt_length=sizes.prompt_length, seed=seed)
    vectors = tuning.embedded(tokens)
    generator = torch.Generator().manual_seed(seed)
    shape = (len(tokens), sizes.prompt_length, vectors.shape[-1])
    one = torch.rand(shape[1:], generator=generator) - 0.5
    prompt = one.to(vectors).expand(shape).clone().requires_grad_()
    weight = torch.rand((2, model.vocab_size), generator=generator) - 0.5
    law = model.soft_masked_probs(torch.cat([prompt, vectors], 1), at=sizes.prompt_length)[:, 0]
    scores = law @ (2 * model.vocab_size**-0.5 * weight).to(law).T
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(scores, labels), prompt)
    return float((gradient == 0).double().mean())


# ------------------------------------------------------------------ the judge


def judge(rows: Rows[Trial]) -> Verdict:
    """Full precision minus float16 on the same networks: more than a percentage point."""
    every = best_rate(rows.of(Trial))
    trials = off_plateau(every)
    return decide(
        above(NEEDED, points([t.full - t.float16 for t in trials]), IMPORTANT),
        shown(
            "accuracy of prompts tuned in full precision minus that of prompts tuned in bfloat16, "
            "percentage points",
            points([t.full - t.bfloat16 for t in trials]),
        ),
        shown("accuracy of prompts tuned in full precision, %", points([t.full for t in trials])),
        shown(
            "share of the prompt's gradient that is 0 at the first step, float16, %",
            points([t.zeros_float16 for t in trials]),
        ),
        shown(
            "share of this gradient that is 0, bfloat16, %",
            points([t.zeros_bfloat16 for t in trials]),
        ),
        shown(
            "share of this gradient that is 0, full precision, %",
            points([t.zeros_full for t in trials]),
        ),
        shown(
            "100 epochs of tuning, as in the scripts: accuracy with a prompt minus accuracy of a "
            "head, percentage points",
            points([t.full - t.head for t in trials]),
        ),
        shown(
            "5 epochs of tuning, as printed: accuracy with a prompt minus accuracy of a head "
            "alone, percentage points",
            points([t.short_prompt - t.short_head for t in trials]),
        ),
        left_out(every),
        needs=[
            at_least("numbers of hidden states", len(sizes_of(trials)), 1),
            at_least("networks off their plateau", len(trials), ENOUGH),
        ],
    )


_TRIALS = [
    Trial(
        states=25,
        seed=seed,
        learning_rate=1e-4,
        draws=1,
        majority=0.65,
        kl_first=0.05,
        kl_constant=1.7,
        exact_head=0.85,
        kl=0.05,
        full=0.98,
        float16=0.7 + 0.01 * seed,
        bfloat16=0.97,
        zeros_full=0.0,
        zeros_float16=0.9,
        zeros_bfloat16=0.0,
        head=0.8,
        short_head=0.75,
        short_prompt=0.75,
    )
    for seed in range(ENOUGH)
]

STUDY = Study(
    name="prompt_precision",
    question="Does prompt tuning need full precision?",
    settings={
        Scale.SMOKE: PromptPrecision(
            seeds=1, hidden=(4,), first_seed=1, short_steps=4, **vars(SMOKE)
        ),
        Scale.LAPTOP: PromptPrecision(seeds=1, learning_rates=LAPTOP_RATES, **vars(LAPTOP)),
        Scale.PAPER: PromptPrecision(
            seeds=6,
            hidden=(25,),
            learning_rates=(1e-4,),
            short_steps=200,
            **vars(replace(PAPER, tuning_steps=1000)),
        ),
    },
    units=units,
    run=run,
    rows=(Trial,),
    claims=[
        Claim(
            "wei.prompt-precision",
            judge,
            refuted_by=[
                [replace(t, float16=t.full + 0.01 + 0.001 * t.seed) for t in _TRIALS],
                [replace(t, float16=t.full - 0.001 * (t.seed - 2)) for t in _TRIALS],  # no effect
            ],
            held_by=_TRIALS,
        )
    ],
)
