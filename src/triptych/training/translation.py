"""Training of a translator: one that writes from left to right, or one that refines.

An autoregressive decoder learns y_i from y_<i and the source. A parallel decoder learns y from a
hypothesis: X^(0) is the target with most tokens replaced, and stage s reads what stage s-1 answered

    L = (1/S) Σ_s CE(decode(X^(s-1)), y) + CE(length)       X^(s) = argmax decode(X^(s-1))

[li, 4.2.2.2]. No gradient goes through the argmax. The authors' code sums the stages; the thesis
averages them, and so does the default here.

The predictor of lengths is fitted once more at the end, on the encoder as it stands.

Training is counted in steps, and can be given seconds: then the number of steps is cut to what
fits, and the learning rate rises in at most a tenth of them and comes down to 0 at that number.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.corruption import corrupt
from triptych.core.randomness import TorchRng
from triptych.core.validation import (
    UserError,
    as_flag,
    as_number,
    as_probability,
    as_size,
    set_fields,
)
from triptych.models.encoder_decoder import EncoderDecoder
from triptych.training.checkpoints import STATE, locked, resume, save
from triptych.training.classifier import train_classifier
from triptych.training.corpus import PairBatch, PairCorpus
from triptych.training.recorded import RecordedSteps
from triptych.training.step import Descent, Recipe

# The tokens that are no words; they stand first in every vocabulary.
PAD, UNKNOWN, START, END, MASK = range(5)
FIRST_WORD = 5

_CHUNK = 25  # steps between two looks at the clock
_LOOKS = 8  # over which the speed is measured
_LENGTHS_AT_ONCE = 400  # sentences of a step of the predictor of lengths


@dataclass(frozen=True)
class Corruption:
    """What stands in the first hypothesis of training.

    right     share of tokens that are those of the target
    masked    share of the others that become the mask token; the rest are random words
    stages    S
    sum_stages    add the stages up instead of averaging them
    """

    right: float = 0.15
    masked: float = 0.0
    stages: int = 2
    sum_stages: bool = False

    def __post_init__(self) -> None:
        set_fields(self, right=as_probability("right", self.right))
        set_fields(self, masked=as_probability("masked", self.masked))
        set_fields(self, stages=as_size("stages", self.stages))
        set_fields(self, sum_stages=as_flag("sum_stages", self.sum_stages))

    def first_hypothesis(
        self, target: Int[Tensor, "batch t"], vocab_size: int, rng: TorchRng
    ) -> Int[Tensor, "batch t"]:
        """X^(0): the target with tokens replaced; padding stays."""
        words = vocab_size - FIRST_WORD
        seen = corrupt(
            target - FIRST_WORD,
            rng,
            words=words,
            mask_token=words,  # not among the words, so that it can be told from them
            p_m=1 - self.right,
            p_c=0.0,
            p_r=1 - self.masked,
        ).tokens
        seen = torch.where(seen == words, MASK, seen + FIRST_WORD)
        return torch.where(target == PAD, PAD, seen)


@dataclass
class TranslationHistory:
    """What happened.

    losses    of every step
    steps     that were done; fewer than planned where the seconds were over
    recorded  whether steps ran as CUDA graphs; `why_not` says why not
    """

    losses: list[float] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    recorded: bool = False
    why_not: str | None = None


Score = Callable[[Tensor, Tensor, float], Tensor]
"""Logits, wanted tokens and smoothing to a loss, as in `cross_entropy`."""


class Losses(NamedTuple):
    """words: of the target's tokens, all stages. length: of the length predictor."""

    words: Float[Tensor, ""]
    length: Float[Tensor, ""]


def causal_losses(
    net: EncoderDecoder, batch: PairBatch, *, smoothing: float, score: Score | None = None
) -> Losses:
    """Every target token from those before it, and the end token at the end."""
    encoded = net.encode(batch.source, batch.source_lengths)
    start = torch.full_like(batch.target[:, :1], START)
    wanted = F.pad(batch.target, (0, 1), value=PAD)
    wanted = wanted.scatter(1, batch.target_lengths[:, None], END)
    logits = net.decode(torch.cat([start, batch.target], 1), encoded)
    words = (score or cross_entropy)(logits, wanted, smoothing)
    return Losses(words, torch.zeros_like(words))


def parallel_losses(
    net: EncoderDecoder,
    batch: PairBatch,
    hypothesis: Int[Tensor, "batch target"],
    *,
    stages: int,
    sum_stages: bool,
    smoothing: float,
    score: Score | None = None,
) -> Losses:
    """Every target token from a hypothesis of the whole target, in stages.

    score    `cross_entropy`, or a faster program of it
    """
    encoded = net.encode(batch.source, batch.source_lengths)
    lengths = net.length_logits(encoded).float()
    length_loss = F.cross_entropy(lengths, batch.target_lengths - 1, label_smoothing=smoothing)
    total = length_loss.new_zeros(())
    for stage in range(stages):
        logits = net.decode(hypothesis, encoded, batch.target_lengths)
        total = total + (score or cross_entropy)(logits, batch.target, smoothing)
        if stage + 1 < stages:
            answer = logits.detach().argmax(-1)
            hypothesis = torch.where(batch.target == PAD, PAD, answer)
    return Losses(total if sum_stages else total / stages, length_loss)


def cross_entropy(
    logits: Float[Tensor, "batch t vocab"], wanted: Int[Tensor, "batch t"], smoothing: float
) -> Float[Tensor, ""]:
    """-log p of the wanted tokens, the mean over those that are no padding.

    Smoothing gives that share of the target's weight to all tokens alike.
    """
    return F.cross_entropy(
        logits.flatten(0, 1).float(),
        wanted.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
    )


@locked
def fit_translator(
    net: EncoderDecoder,
    corpus: PairCorpus,
    recipe: Recipe,
    rng: TorchRng | int,
    *,
    corruption: Corruption | None = None,
    smoothing: float = 0.1,
    refit_lengths: bool = True,
    seconds: float | None = None,
    recorded: bool = False,
    checkpoint: Path | None = None,
    checkpoint_every: int = 0,
    report: Callable[[int, float], None] | None = None,
    stop_after: int | None = None,
) -> TranslationHistory:
    """Train in place; the averaged weights are in place at the end, where the recipe has them.

    A parallel decoder needs a `corruption`; its predictor of lengths is fitted once more at the
    end, with `refit_lengths`. `recorded` runs steps as CUDA graphs where there is a GPU. With a
    `checkpoint` folder a run that was stopped goes on, on the same device to the same weights; with
    `seconds` it depends on the clock which steps are done. `report(steps, loss)` is called now and
    then. The batch size is the corpus's own, not the recipe's. A recipe with `compile` trains a
    compiled copy: the same training with other rounding and draws of dropout.
    """
    if net.shape.causal == (corruption is not None):
        raise UserError(
            "corruption is given for a causal decoder; leave it out"
            if net.shape.causal
            else "a parallel decoder learns from corrupted targets; pass corruption=Corruption()"
        )
    smoothing = as_number("smoothing", smoothing, at_least=0, below=1)
    refit_lengths = as_flag("refit_lengths", refit_lengths)
    parameters = [p for p in net.parameters() if p.requires_grad]
    device = net.device
    rng = rng if isinstance(rng, TorchRng) else TorchRng(rng, device)
    recorded = recorded and device.type == "cuda"
    # On a GPU the loss is computed by a copy in bfloat16: a third fewer kernels than autocast has.
    half = recipe.autocast == "bfloat16" and device.type == "cuda"
    worker = copy.deepcopy(net) if half or recipe.compile else net
    worker = worker.to(torch.bfloat16) if half else worker
    working = [p for p in worker.parameters() if p.requires_grad] if worker is not net else None
    score = cross_entropy
    if recipe.compile:
        worker.compile_layers()
        score = torch.compile(cross_entropy, dynamic=True)
    descent = Descent(recipe, parameters, recorded=recorded, working=working, unbiased=True)
    history, done, saved = TranslationHistory(), 0, 0
    clock = _Clock(seconds, recipe.steps)
    if recorded:
        torch.manual_seed(rng.seed)
    if checkpoint is not None and (checkpoint / STATE).exists():
        record = resume(checkpoint, descent, net, rng)
        done, descent.losses[:] = record["step"], record["losses"]
        descent.noted = saved = done
        clock.resume(record.get("clock"), device)
        if worker is not net:
            worker.load_state_dict(net.state_dict())

    def loss(inputs: Sequence[Tensor]) -> Float[Tensor, ""]:
        batch = PairBatch(*inputs[:4])
        if corruption is None:
            found = causal_losses(worker, batch, smoothing=smoothing, score=score)
        else:
            found = parallel_losses(
                worker,
                batch,
                inputs[4],
                stages=corruption.stages,
                sum_stages=corruption.sum_stages,
                smoothing=smoothing,
                score=score,
            )
        return found.words + found.length

    def inputs_at(step: int) -> list[Tensor]:
        batch = corpus.batch(step, rng)
        if corruption is None:
            return list(batch)
        first = corruption.first_hypothesis(batch.target, net.shape.vocab_size, rng)
        return [*batch, first]

    worker.train()
    steps = RecordedSteps(descent, loss)
    began, planned = time.perf_counter() - clock.spent, clock.planned
    descent.recipe = _cut(recipe, planned)
    last = planned if stop_after is None else min(planned, stop_after)
    looks = [(done, clock.spent)]
    while done < last:
        for step in range(done, min(done + _CHUNK, last)):
            inputs = inputs_at(step)
            if not recorded:  # dropout has no generator of its own
                torch.manual_seed(rng.seed * 1_000_003 + step)
            steps.step(step, inputs)
            done = step + 1
            if checkpoint is not None and checkpoint_every and done % checkpoint_every == 0:
                clock.spent, clock.planned = time.perf_counter() - began, planned
                _save(checkpoint, descent, recipe, net, done, rng, clock)
                saved = done
        if seconds is not None:
            descent.settle(done)  # waits for the GPU, so that the clock tells the truth
            looks.append((done, time.perf_counter() - began))
            planned = min(recipe.steps, fitting_steps(looks, seconds))
            last = planned if stop_after is None else min(planned, stop_after)
            # The rate comes down to 0 at the last step that fits.
            descent.recipe = _cut(recipe, planned)
        if report is not None:
            descent.settle(done)
            report(done, descent.losses[-1])
    descent.settle(done)
    if checkpoint is not None and saved < done:  # a step that is there is not written again
        clock.spent, clock.planned = time.perf_counter() - began, planned
        _save(checkpoint, descent, recipe, net, done, rng, clock)
    if done >= planned:
        descent.use_average()
        if corruption is not None and refit_lengths:
            fit_lengths(net, corpus, TorchRng(rng.seed + 1, device))
    net.eval()
    history.losses, history.steps = descent.losses, done
    history.seconds = time.perf_counter() - began
    history.why_not = steps.failed if recorded else "not asked for, or no GPU"
    history.recorded = recorded and steps.failed is None
    return history


def fit_lengths(
    net: EncoderDecoder, corpus: PairCorpus, rng: TorchRng | int, *, epochs: int = 15
) -> list[float]:
    """Fit the predictor of lengths again, on the encoder as it stands; the loss of every step.

    Trained together with the encoder for many epochs, it learns the lengths of its training
    sentences by heart, and the likely lengths of others are wrong.
    """
    epochs = as_size("epochs", epochs)
    rng = rng if isinstance(rng, TorchRng) else TorchRng(rng, net.device)
    states, lengths = list[Tensor](), list[Tensor]()
    net.eval()
    with torch.no_grad():
        for group, size in zip(corpus.groups, corpus.sizes, strict=True):
            for rows in torch.arange(len(group.source), device=net.device).split(size):
                batch = PairBatch(*(part[rows].long() for part in group))
                states.append(net.mean_state(net.encode(batch.source, batch.source_lengths)))
                lengths.append(batch.target_lengths - 1)
    features, wanted = torch.cat(states), torch.cat(lengths)
    if wanted.min() == wanted.max():  # one length: nothing to tell apart
        return []
    weight = next(net.length_head.parameters())  # it has no bias
    with torch.no_grad():
        weight.zero_()
    steps = epochs * max(1, len(wanted) // _LENGTHS_AT_ONCE)
    recipe = Recipe(steps, batch=_LENGTHS_AT_ONCE, learning_rate=3e-3, weight_decay=0.01)
    return train_classifier(lambda rows: features[rows] @ weight.T, wanted, [weight], recipe, rng)


def fitting_steps(looks: Sequence[tuple[int, float]], seconds: float) -> int:
    """How many steps will be done after `seconds`, from looks at the clock: (steps, seconds).

    The speed is that of the last looks: the first steps are slow, because kernels are chosen and
    steps recorded.

    Worked value: 25 steps after 5 seconds and 50 after 6, with 10 seconds in all. In the last look
    25 steps took a second, so 100 more fit: 150.
    """
    done, spent = looks[-1]
    before, then = looks[max(1 if len(looks) > 2 else 0, len(looks) - 1 - _LOOKS)]
    each = (spent - then) / (done - before)
    return done + int(max(0.0, seconds - spent) / each) if each > 0 else done


def _cut(recipe: Recipe, planned: int) -> Recipe:
    """The recipe for this many steps: at most a tenth of them are spent on raising the rate."""
    warmup = recipe.warmup if planned >= recipe.steps else min(recipe.warmup, planned // 10)
    return replace(recipe, steps=max(planned, 1), warmup=warmup)


@dataclass
class _Clock:
    """What a run that goes on has to know next to its weights.

    budget     seconds that were asked for, or None
    planned    steps that fit into them
    spent      seconds so far
    """

    budget: float | None
    planned: int
    spent: float = 0.0

    def as_json(self, device: torch.device) -> dict[str, Any]:
        """With the state of the generator that dropout draws from on a GPU."""
        state = torch.cuda.get_rng_state(device).tolist() if device.type == "cuda" else None
        return vars(self) | {"dropout": state}

    def resume(self, kept: Mapping[str, Any] | None, device: torch.device) -> None:
        """Steps and seconds of before; with another budget the steps are planned again."""
        if kept is None:
            return
        self.spent = float(kept["spent"])
        if kept["budget"] == self.budget:
            self.planned = int(kept["planned"])
        if kept["dropout"] is not None and device.type == "cuda":
            torch.cuda.set_rng_state(torch.tensor(kept["dropout"], dtype=torch.uint8), device)


def _save(
    folder: Path,
    descent: Descent,
    recipe: Recipe,
    net: EncoderDecoder,
    done: int,
    rng: TorchRng,
    clock: _Clock,
) -> None:
    """The recipe in the record is the one that was asked for, not the one cut to the seconds."""
    descent.settle(done)
    cut, descent.recipe = descent.recipe, recipe
    save(folder, descent, net, done, rng, [], {"clock": clock.as_json(net.device)})
    descent.recipe = cut
