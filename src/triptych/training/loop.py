"""Training of one language model: fresh data at every step, checkpoints, and the gap live.

Fresh sequences at every step by default, so there is no training set to overfit. A run that was
stopped continues from its checkpoint to bitwise the same result on the same device.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from triptych.core.deprecation import renamed
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.language_models import CausalLM, MaskedLM, ScoredLogits, in_precision
from triptych.training.checkpoints import STATE, locked, resume, save
from triptych.training.gap import Gap, measure_on
from triptych.training.objectives import (
    Objective,
    Prediction,
    loss,
    placed_loss,
    places_needed,
    scored_loss,
    scored_places,
)
from triptych.training.recorded import RecordedSteps
from triptych.training.step import Descent, Recipe, descend

Sampler = Callable[[int, TorchRng], Int[Tensor, "batch length"]]
AHEAD = 16  # steps whose data a quick recipe draws at once: a small batch costs mostly calls


@runtime_checkable
class Trainable(Protocol):
    """A language model around a network: `CausalLM` or `MaskedLM`."""

    @property
    def net(self) -> nn.Module: ...

    def token_logits(
        self, seen: Int[Tensor, "batch length"], /
    ) -> Float[Tensor, "batch length vocab"]: ...


@runtime_checkable
class AnswersScored(Protocol):
    """A language model that computes logits at scored positions alone, for less."""

    def scored_logits(
        self, seen: Int[Tensor, "batch columns"], scored: Bool[Tensor, "batch positions"], /
    ) -> ScoredLogits: ...


@runtime_checkable
class AnswersPlaces(Protocol):
    """A language model that computes logits at as many positions of every row, for less."""

    def placed_logits(
        self, seen: Int[Tensor, "batch columns"], at: Int[Tensor, "batch places"], /
    ) -> Float[Tensor, "batch places vocab"]: ...


@dataclass(repr=False)
class History:
    """What happened: the training loss of every step, and the gap where it was measured.

    Worked value: History([2.0, 1.5]) prints as "History(2 steps, loss 2 to 1.5)".
    """

    losses: list[float] = field(default_factory=list)
    gaps: list[tuple[int, Gap]] = field(default_factory=list)

    def __repr__(self) -> str:
        steps = len(self.losses)
        said = [f"{steps} step" + ("" if steps == 1 else "s")]
        if self.losses:
            said.append(f"loss {self.losses[0]:.4g} to {self.losses[-1]:.4g}")
        if self.gaps:
            said.append(f"KL from the truth {self.gaps[-1][1].kl:.4g} at step {self.gaps[-1][0]}")
        return f"History({', '.join(said)})"


@renamed(model="lm")
@locked
def fit(
    lm: Trainable,
    sample: Sampler,
    objective: Objective,
    recipe: Recipe,
    rng: TorchRng | int,
    *,
    meter: Callable[[Trainable], Gap] | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 0,
    report: Callable[[int, float, Gap | None], None] | None = None,
    stop_after: int | None = None,
) -> History:
    """Train in place and say what happened; with a `checkpoint` folder, resume what is there.

    `sample(n, rng)` gives fresh sequences; `meter(model)` measures the gap every
    `recipe.meter_every` steps and at the end; `report(step, loss, gap)` is called at each step;
    `stop_after` ends this call early, as an interruption would.
    """
    net = lm.net
    parameters = trained_parameters(net)
    device_type = parameters[0].device.type
    rng = rng if isinstance(rng, TorchRng) else TorchRng(rng, parameters[0].device)
    if recipe.autocast == "bfloat16" and device_type == "cpu":
        raise UserError(
            "autocast='bfloat16' is for a GPU: on a CPU it is slower than float32, and some "
            "virtual CPUs announce bfloat16 units that they do not have and crash"
        )
    recorded = recipe.recorded and device_type == "cuda"
    worker = half_copy(lm, recipe)
    descent = Descent(
        recipe,
        parameters,
        recorded=recorded,
        working=None if worker is None else trained_parameters(worker.net),
        matrices=hidden_matrices(net) if recipe.optimiser == "muon" else (),
    )
    history, first = History(), 0
    if checkpoint is not None and (checkpoint / STATE).exists():
        record = resume(checkpoint, descent, net, rng)
        first, descent.losses[:] = record["step"], record["losses"]
        history.gaps = [(at, Gap(*values)) for at, values in record["gaps"]]
    history.losses = descent.losses
    last = recipe.steps if stop_after is None else min(recipe.steps, stop_after)
    quick = recipe.quick and device_type == "cpu"
    if quick and checkpoint is not None:
        raise UserError("a quick recipe draws data ahead, which a checkpoint does not keep")
    if recipe.recorded and checkpoint is not None:
        raise UserError("the steps of a recorded recipe cannot be resumed from a checkpoint")
    drawn_ahead = AHEAD if recipe.quick and (quick or recorded) else 1
    data = _first_checked(lm, predictions(sample, objective, recipe.batch, rng, ahead=drawn_ahead))
    most = 0
    if recorded and isinstance(lm, AnswersPlaces):
        drawn = next(data)
        most = places_needed(drawn.scored)
        data = itertools.chain([drawn], data)

    learner, how = (lm, recipe) if worker is None else (worker, replace(recipe, autocast="none"))

    def answer(prediction: Prediction) -> Float[Tensor, ""]:
        return loss_of_answers(learner, prediction, how, most=most, cached=not recorded)

    answer_loss = torch.compile(answer) if recipe.compile else answer
    net.train()
    learner.net.train()

    def loss_of(prediction: Prediction) -> Float[Tensor, ""]:
        if quick and not recipe.compile and isinstance(lm, AnswersScored):
            logits = lm.scored_logits(prediction.seen, prediction.scored)
            return scored_loss(logits, prediction, recipe.loss)
        return answer_loss(prediction)

    def after(done: int) -> None:
        """Measure, report and save where that is due."""
        gap = None
        if meter is not None and _is_due(done, recipe):
            descent.settle(done)
            net.eval()
            with descent.averaged():  # what is measured is what will be returned
                gap = meter(lm)
            history.gaps.append((done, gap))
            net.train()
        if report is not None:
            descent.settle(done)
            report(done, history.losses[-1], gap)
        due = done == last or (checkpoint_every and done % checkpoint_every == 0)
        if checkpoint is not None and due:
            descent.settle(done)
            gaps = [[at, list(gap)] for at, gap in history.gaps]
            save(checkpoint, descent, net, done, rng, gaps)

    if recipe.recorded:
        steps = RecordedSteps(descent, lambda inputs: loss_of(Prediction.of(inputs)))
        for step in range(first, last):
            steps.step(step, next(data).tensors)
            after(step + 1)
        descent.settle(last)
    else:
        descend(descent, lambda _: loss_of(next(data)), first=first, last=last, after=after)
    if last == recipe.steps:
        descent.use_average()
    net.eval()
    return history


def trained_parameters(net: nn.Module) -> list[nn.Parameter]:
    """Those that are not frozen."""
    return [p for p in net.parameters() if p.requires_grad]


def hidden_matrices(net: nn.Module) -> list[nn.Parameter]:
    """The matrices of the linear maps inside its layers, without those that read or write tokens.

    Those that are frozen are left out.
    """
    blocks = getattr(net, "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        raise UserError(
            f"muon needs a network with layers in `blocks`; a {type(net).__name__} has none",
            parameter="net",
        )
    linears = [module for module in blocks.modules() if isinstance(module, nn.Linear)]
    inside = {id(linear.weight) for linear in linears}
    return [parameter for parameter in trained_parameters(net) if id(parameter) in inside]


@renamed(model="lm")
def half_copy(lm: Trainable, recipe: Recipe) -> CausalLM | MaskedLM | None:
    """A copy in bfloat16 that a recorded recipe trains on a GPU; its gradients move the model.

    With `autocast` alone, every matrix is rounded on the way in and every gradient widened on the
    way out, each by a kernel of its own, and states stay in full precision. None where no copy is
    wanted, and with `l2`, which is a loss of the weights themselves.
    """
    wanted = recipe.recorded and recipe.autocast == "bfloat16" and not recipe.l2
    if not (wanted and isinstance(lm, (CausalLM, MaskedLM)) and lm.net.device.type == "cuda"):
        return None
    return in_precision(lm, torch.bfloat16)


@renamed(model="lm")
def loss_of_answers(
    lm: Trainable, prediction: Prediction, recipe: Recipe, *, most: int = 0, cached: bool = True
) -> Float[Tensor, ""]:
    """The loss of what the model answers, at every position, or at `most` of every row.

    most      0: at every position. Otherwise the model must have `placed_logits`
    cached    whether weights in half precision are kept from one use to the next in a step
    """
    kind, half = prediction.seen.device.type, recipe.autocast == "bfloat16"
    at = None
    if 0 < most < prediction.seen.shape[1]:
        at = scored_places(prediction.scored, most)
    with torch.autocast(kind, torch.bfloat16, enabled=half, cache_enabled=cached):
        if at is None:
            logits = lm.token_logits(prediction.seen)
        else:
            logits = cast(AnswersPlaces, lm).placed_logits(prediction.seen, at)
    if at is None:
        return loss(logits, prediction, recipe.loss)
    return placed_loss(logits, at, prediction, recipe.loss)


def predictions(
    sample: Sampler, objective: Objective, batch: int, rng: TorchRng, *, ahead: int = AHEAD
) -> Iterator[Prediction]:
    """What to predict at every step, forever; drawn for `ahead` steps at a time.

    Only what has a row for every sequence can be drawn ahead: an objective in several stages asks
    the network as it stands, and gives more rows.
    """
    while True:
        drawn = objective(sample(ahead * batch, rng), rng)
        if ahead == 1:
            yield drawn
            continue
        if len(drawn.seen) != ahead * batch:
            raise UserError(
                f"the objective gives {len(drawn.seen)} rows for {ahead * batch} sequences; a "
                "quick recipe needs one for each",
                parameter="objective",
            )
        yield from drawn.split(batch)


@renamed(model="lm")
def check_tokens(lm: Trainable, prediction: Prediction) -> None:
    """The model has an id for every token, and one more for its start or mask token."""
    if not isinstance(lm, (CausalLM, MaskedLM)):
        return
    words, length = lm.vocab_size, prediction.seen.shape[1]
    if length > lm.length:
        raise UserError(
            f"the sequences have {length} tokens and the network has length {lm.length}: its "
            f"Shape needs length={length}, and one more to be asked what follows all of them",
            parameter="lm",
        )
    special = "start" if isinstance(lm, CausalLM) else "mask"
    if prediction.law is None:  # what is read may hold the special token, the last id
        judged = prediction.tokens[prediction.scored].long() + 1
        given = int(torch.cat([judged, prediction.seen.flatten().long()]).max())
    else:
        given = prediction.law.shape[-1]
    if given > words or (prediction.law is not None and given < words):
        raise UserError(
            f"the sequences have {given} tokens and the network has ids for {words} besides its "
            f"{special} token: its Shape needs vocab_size={given + 1}, the tokens and one more"
        )


def _first_checked(model: Trainable, data: Iterator[Prediction]) -> Iterator[Prediction]:
    """The same predictions, the first of them checked when it is drawn."""
    first = next(data)
    check_tokens(model, first)
    yield first
    yield from data


def gap_meter(
    objective: Objective, tokens: Int[Tensor, "batch length"], seed: int = 0
) -> Callable[[Trainable], Gap]:
    """A meter on fixed sequences with fixed hidden positions, so that its curve has no noise."""
    prediction = functools.cache(lambda: objective(tokens, TorchRng(seed, tokens.device)))

    def measure(model: Trainable) -> Gap:
        check_tokens(model, prediction())
        return measure_on(model.token_logits, prediction())

    return measure


def _is_due(step: int, recipe: Recipe) -> bool:
    return step == recipe.steps or (recipe.meter_every > 0 and step % recipe.meter_every == 0)
