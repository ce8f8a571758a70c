"""The only training step, and the only loop around it.

A `Descent` takes parameters down a loss: the optimiser, its learning rate at every step, the L2
term, clipping, the moving average, and losses that are numbers or an error. `descend` repeats it.
Everything that is trained here goes through them: one network (`loop.fit`), many members at once
(`ensembles.fit_ensemble`), a classifier on fixed examples (`classifier.train_classifier`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from triptych.core.validation import (
    UserError,
    as_count,
    as_flag,
    as_list,
    as_number,
    set_fields,
)
from triptych.training.muon import Muon
from triptych.training.objectives import LossName

_SMALL = 150_000  # parameters of a network whose optimiser's calls cost more than its arithmetic
_LOSSES_AT_ONCE = 50  # asking a GPU for a number makes it wait: many steps are asked for at once


@dataclass(frozen=True)
class Recipe:
    """Everything that decides how a network is trained.

    warmup     steps of linear growth of the learning rate
    decay      what follows: "none", "linear" to 0, or "cosine" to 0 at the last step
    clip       largest gradient norm, 0 for none
    ema        decay of the exponential moving average of the weights, 0 for none
    autocast   "none" or "bfloat16"
    quick      on a CPU: a fused optimiser; and in `fit`, logits where they are scored alone, and
               the data of several steps drawn at once. The same law with other draws and rounding.
               On a GPU: data drawn at once where steps are recorded, nothing else
    optimiser  "muon": see `muon.Muon`; for networks with layers, in `fit`
    recorded   on a GPU: steps run as CUDA graphs (see `recorded`), with adam or adamw; the same
               draws, other rounding. With bfloat16, `fit` trains a copy in that format (see
               `loop.half_copy`). Nothing changes on a CPU
    """

    steps: int
    batch: int = 64
    optimiser: Literal["adamw", "adam", "sgd", "adafactor", "muon"] = "adamw"
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    momentum: float = 0.0
    warmup: int = 0
    decay: Literal["none", "linear", "cosine"] = "none"
    clip: float = 0.0
    ema: float = 0.0
    l2: float = 0.0
    loss: LossName = "cross_entropy"
    autocast: Literal["none", "bfloat16"] = "none"
    compile: bool = False
    meter_every: int = 0
    quick: bool = False
    recorded: bool = False

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch", 1), ("warmup", 0), ("meter_every", 0)):
            set_fields(self, **{name: as_count(name, getattr(self, name), at_least=least)})
        set_fields(self, learning_rate=as_number("learning_rate", self.learning_rate, above=0))
        for name in ("weight_decay", "momentum", "clip", "l2"):
            set_fields(self, **{name: as_number(name, getattr(self, name), at_least=0)})
        betas = tuple(as_number("betas", beta) for beta in as_list("betas", self.betas, "numbers"))
        if len(betas) != 2:
            raise UserError(f"betas is {betas}; it must be two numbers", parameter="betas")
        set_fields(self, betas=betas)
        for name in ("compile", "quick", "recorded"):
            set_fields(self, **{name: as_flag(name, getattr(self, name))})
        for name, choices in (
            ("optimiser", ("adamw", "adam", "sgd", "adafactor", "muon")),
            ("decay", ("none", "linear", "cosine")),
            ("loss", ("cross_entropy", "squared")),
            ("autocast", ("none", "bfloat16")),
        ):
            if getattr(self, name) not in choices:
                raise UserError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(choices)}"
                )
        set_fields(self, ema=as_number("ema", self.ema, at_least=0, below=1))

    def rate_at(self, step: int) -> float:
        """Learning rate of step 0, 1, …, relative to `learning_rate`."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        if self.decay == "linear":
            return 1.0 - progress
        if self.decay == "cosine":
            return 0.5 * (1.0 + torch.cos(torch.tensor(torch.pi * progress)).item())
        return 1.0


def optimiser_for(
    recipe: Recipe,
    parameters: list[nn.Parameter],
    *,
    recorded: bool = False,
    matrices: Sequence[nn.Parameter] = (),
) -> torch.optim.Optimizer:
    """The recipe's optimiser over these parameters; one kernel for all of them on a GPU.

    On a CPU, small parameters go through each operation together. The numbers are the same bit for
    bit, and fewer calls save a quarter of the time. Large ones would leave the cache in between.
    A `quick` recipe has one kernel there too, four times as fast, with other rounding.
    `recorded`: its steps are part of a CUDA graph, so the rate is a tensor (adam and adamw only).
    `matrices`: those of the parameters that muon moves as matrices.
    """
    rate, decay = recipe.learning_rate, recipe.weight_decay
    on_gpu = all(parameter.is_cuda for parameter in parameters)
    if recorded:
        kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
        if recipe.optimiser not in kinds:
            raise UserError(
                f"optimiser is {recipe.optimiser!r}; a recorded step needs adamw or adam",
                parameter="recorded",
            )
        return kinds[recipe.optimiser](
            parameters,
            torch.tensor(rate, device=parameters[0].device),
            betas=recipe.betas,
            weight_decay=decay,
            fused=on_gpu,
            capturable=True,
        )
    small = sum(parameter.numel() for parameter in parameters) <= _SMALL
    how = {"fused": True} if on_gpu or recipe.quick else {"foreach": small}
    match recipe.optimiser:
        case "adamw":
            return torch.optim.AdamW(
                parameters, rate, betas=recipe.betas, weight_decay=decay, **how
            )
        case "adam":
            return torch.optim.Adam(parameters, rate, betas=recipe.betas, weight_decay=decay, **how)
        case "sgd":
            one_kernel = (recipe.quick and not on_gpu) or None  # None: as torch chooses
            return torch.optim.SGD(
                parameters, rate, momentum=recipe.momentum, weight_decay=decay, fused=one_kernel
            )
        case "adafactor":
            return torch.optim.Adafactor(parameters, rate, weight_decay=decay)
        case "muon":
            among = {id(matrix) for matrix in matrices}
            others = [parameter for parameter in parameters if id(parameter) not in among]
            fused = True if on_gpu or recipe.quick else None
            rest = None
            if others:
                rest = torch.optim.AdamW(
                    others, rate, betas=recipe.betas, weight_decay=decay, fused=fused
                )
            return Muon(matrices, rate, weight_decay=decay, rest=rest)
        case _:
            raise UserError(f"optimiser is {recipe.optimiser!r}; see Recipe", parameter="recipe")


class Descent:
    """Parameters on their way down a loss, one step after the other.

    members
        How many networks are trained at once: the first dimension of every parameter, and the
        length of the losses. None for one network, whose loss is one number.
    finite
        Losses must be numbers, and one that is none is an error; else it is kept.
    losses
        The loss of every step that is settled; a list of one per member where there are members.
    working
        A copy of the parameters in another precision, in which the loss is computed: gradients
        come from it and weights go back to it, all of them at once. None where there is no copy.
    unbiased
        The moving average starts at 0 and is divided by 1 - ema^n after n steps, so that nothing
        of the initial weights is in it. Otherwise it starts at them, which matters in short runs.
    matrices
        Those of the parameters that the optimiser "muon" moves as matrices.
    noted
        How many steps are done.
    """

    def __init__(
        self,
        recipe: Recipe,
        parameters: Sequence[nn.Parameter],
        *,
        members: int | None = None,
        recorded: bool = False,
        working: Sequence[nn.Parameter] | None = None,
        finite: bool = True,
        unbiased: bool = False,
        matrices: Sequence[nn.Parameter] = (),
    ) -> None:
        self.recipe, self.parameters, self.members = recipe, list(parameters), members
        self.finite = finite
        self.working = None if working is None else list(working)
        self.optimiser = optimiser_for(
            recipe, self.parameters, recorded=recorded, matrices=matrices
        )
        self.average: list[Tensor] | None = None
        if recipe.ema:
            self.average = [
                torch.zeros_like(p) if unbiased else p.detach().clone() for p in self.parameters
            ]
        self.unbiased, self.noted = unbiased, 0
        self.losses: list[Any] = []
        self._waiting: list[Tensor] = []

    def step(self, number: int, value: Float[Tensor, "*members"]) -> None:
        """One step against the gradient of `value`; `number` counts from 0 and sets the rate."""
        self.set_rate(number)
        self.update(value)
        self.note(number, value.detach())

    def set_rate(self, number: int) -> None:
        """The learning rate of a step: a function of its number, so there is nothing to restore."""
        rate = self.recipe.learning_rate * self.recipe.rate_at(number)
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def update(self, value: Float[Tensor, "*members"]) -> None:
        """Move the parameters, and their average, against the gradient of `value`."""
        recipe, parameters = self.recipe, self.parameters
        total = value if self.members is None else value.sum()
        if recipe.l2:
            total = total + recipe.l2 * sum(p.square().sum() for p in parameters)
        self.optimiser.zero_grad(set_to_none=True)
        for copy in self.working or ():
            copy.grad = None
        total.backward()
        if self.working is not None:
            self._take_gradients(self.working)
        if recipe.clip and self.members is None:
            nn.utils.clip_grad_norm_(parameters, recipe.clip)
        elif recipe.clip:
            _clip_each(parameters, recipe.clip)
        self.optimiser.step()
        if self.working is not None:
            with torch.no_grad():
                _copy_all(self.working, parameters)
                if self.average is not None:
                    _average_all(self.average, parameters, 1 - recipe.ema)
        elif self.average is not None:
            for mean, parameter in zip(self.average, parameters, strict=True):
                mean.lerp_(parameter.detach(), 1 - recipe.ema)

    @torch.no_grad()
    def _take_gradients(self, working: Sequence[nn.Parameter]) -> None:
        """The gradients of the working copy as those of the parameters, in their precision."""
        pairs = [
            (parameter, copy.grad)
            for parameter, copy in zip(self.parameters, working, strict=True)
            if copy.grad is not None
        ]
        gradients = [torch.empty_like(parameter) for parameter, _ in pairs]
        _copy_all(gradients, [gradient for _, gradient in pairs])
        for (parameter, _), gradient in zip(pairs, gradients, strict=True):
            parameter.grad = gradient

    def note(self, number: int, value: Float[Tensor, "*members"]) -> None:
        """Keep the loss of a step; many are asked for at once."""
        self.noted += 1
        self._waiting.append(value)
        if len(self._waiting) == _LOSSES_AT_ONCE:
            self.settle(number + 1)

    def use_average(self) -> None:
        """Put the averaged weights instead of the last ones, where an average is kept.

        Worked value: ema 0.5, weights 1 and then 3 after two steps. From 0 the average is 0.5 and
        then 1.75, and 1.75 / (1 - 0.25) = 7/3: the weights 1 and 3 in the shares 1/3 and 2/3.
        """
        if self.average is None or (self.unbiased and self.noted == 0):
            return
        share = 1 - self.recipe.ema**self.noted if self.unbiased else 1.0
        with torch.no_grad():
            for parameter, mean in zip(self.parameters, self.average, strict=True):
                parameter.copy_(mean / share if self.unbiased else mean)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The averaged weights instead of the last ones, for a while."""
        own = [p.detach().clone() for p in self.parameters] if self.average is not None else []
        self.use_average()
        yield
        with torch.no_grad():
            for parameter, kept in zip(self.parameters, own, strict=False):
                parameter.copy_(kept)

    def settle(self, end: int) -> None:
        """The losses of the steps before `end` as numbers; the first that is none is an error."""
        if not self._waiting:
            return
        values = torch.stack(self._waiting).tolist()
        self._waiting.clear()
        for step, found in enumerate(values, start=end - len(values)):
            for member, value in enumerate([found] if self.members is None else found):
                if self.finite and not math.isfinite(value):
                    whose = "" if self.members is None else f" of member {member}"
                    raise FloatingPointError(
                        f"the loss{whose} is {value} at step {step}; lower the learning rate (now "
                        f"{self.recipe.learning_rate}) or clip gradients"
                    )
        self.losses += values


def descend(
    descent: Descent,
    loss_at: Callable[[int], Float[Tensor, "*members"]],
    *,
    first: int = 0,
    last: int | None = None,
    after: Callable[[int], None] | None = None,
) -> None:
    """Steps first, first + 1, …, last - 1; `after(n)` is called when n steps are done."""
    last = descent.recipe.steps if last is None else last
    for step in range(first, last):
        descent.step(step, loss_at(step))
        if after is not None:
            after(step + 1)
    descent.settle(last)


# Many tensors by one kernel each; torch has these without types.
_copy_all: Callable[[Sequence[Tensor], Sequence[Tensor]], None] = getattr(torch, "_foreach_copy_")  # noqa: B009
_average_all: Callable[[Sequence[Tensor], Sequence[Tensor], float], None] = getattr(  # noqa: B009
    torch, "_foreach_lerp_"
)


def _clip_each(parameters: Sequence[nn.Parameter], largest: float) -> None:
    """Scale the gradient of every member to norm at most `largest`, each by its own norm."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squared = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0)
    factor = (largest / (squared.sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.reshape(-1, *[1] * (gradient.ndim - 1)))
