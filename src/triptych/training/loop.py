"""The only training loop: optimisers and schedules from torch, checkpoints, and the gap live.

Fresh sequences at every step by default, so there is no training set to overfit. A run that was
stopped continues from its checkpoint to bitwise the same result on the same device.
"""

import functools
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.core.randomness import TorchRng
from triptych.core.validation import (
    UserError,
    as_count,
    as_flag,
    as_list,
    as_number,
    set_fields,
)
from triptych.training.gap import Gap, measure_on
from triptych.training.objectives import LossName, Objective, loss

_LOSSES_AT_ONCE = 50

Sampler = Callable[[int, TorchRng], Int[Tensor, "batch length"]]


@runtime_checkable
class Trainable(Protocol):
    """A language model around a network: `CausalLM` or `MaskedLM`."""

    @property
    def net(self) -> nn.Module: ...

    def token_logits(
        self, seen: Int[Tensor, "batch length"], /
    ) -> Float[Tensor, "batch length vocab"]: ...


@dataclass(frozen=True)
class Recipe:
    """Everything that decides how a network is trained.

    warmup     steps of linear growth of the learning rate
    decay      what follows: "none", "linear" to 0, or "cosine" to 0 at the last step
    clip       largest gradient norm, 0 for none
    ema        decay of the exponential moving average of the weights, 0 for none
    autocast   "none" or "bfloat16"
    """

    steps: int
    batch: int = 64
    optimiser: Literal["adamw", "adam", "sgd", "adafactor"] = "adamw"
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

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch", 1), ("warmup", 0), ("meter_every", 0)):
            set_fields(self, **{name: as_count(name, getattr(self, name), at_least=least)})
        set_fields(self, learning_rate=as_number("learning_rate", self.learning_rate, above=0))
        for name in ("weight_decay", "momentum", "clip", "l2"):
            set_fields(self, **{name: as_number(name, getattr(self, name), at_least=0)})
        betas = tuple(as_number("betas", beta) for beta in as_list("betas", self.betas, "numbers"))
        if len(betas) != 2:
            raise UserError(f"betas is {betas}; it must be two numbers")
        set_fields(self, betas=betas, compile=as_flag("compile", self.compile))
        for name, choices in (
            ("optimiser", ("adamw", "adam", "sgd", "adafactor")),
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


@dataclass
class History:
    """What happened: the training loss of every step, and the gap where it was measured."""

    losses: list[float] = field(default_factory=list)
    gaps: list[tuple[int, Gap]] = field(default_factory=list)


def optimiser_for(recipe: Recipe, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """The recipe's optimiser over these parameters; one kernel for all of them on a GPU."""
    rate, decay = recipe.learning_rate, recipe.weight_decay
    on_gpu = all(parameter.is_cuda for parameter in parameters)
    match recipe.optimiser:
        case "adamw":
            return torch.optim.AdamW(
                parameters, rate, betas=recipe.betas, weight_decay=decay, fused=on_gpu
            )
        case "adam":
            return torch.optim.Adam(
                parameters, rate, betas=recipe.betas, weight_decay=decay, fused=on_gpu
            )
        case "sgd":
            return torch.optim.SGD(parameters, rate, momentum=recipe.momentum, weight_decay=decay)
        case "adafactor":
            return torch.optim.Adafactor(parameters, rate, weight_decay=decay)
        case _:
            raise UserError(f"optimiser is {recipe.optimiser!r}; see Recipe")


def set_rate(optimiser: torch.optim.Optimizer, recipe: Recipe, step: int) -> None:
    """The learning rate of this step; a function of the step alone, so nothing to restore."""
    for group in optimiser.param_groups:
        group["lr"] = recipe.learning_rate * recipe.rate_at(step)


def fit(
    model: Trainable,
    sample: Sampler,
    objective: Objective,
    recipe: Recipe,
    rng: TorchRng,
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
    net = model.net
    parameters = [p for p in net.parameters() if p.requires_grad]
    optimiser = optimiser_for(recipe, parameters)
    average = [p.detach().clone() for p in parameters] if recipe.ema else None
    history, first = History(), 0
    if checkpoint is not None and (checkpoint / "state.json").exists():
        first = _resume(checkpoint, recipe, net, optimiser, average, rng, history)
    device_type = parameters[0].device.type
    if recipe.autocast == "bfloat16" and device_type == "cpu":
        raise UserError(
            "autocast='bfloat16' is for a GPU: on a CPU it is slower than float32, and some "
            "virtual CPUs announce bfloat16 units that they do not have and crash"
        )
    forward = torch.compile(model.token_logits) if recipe.compile else model.token_logits
    net.train()
    waiting: list[Tensor] = []
    last = recipe.steps if stop_after is None else min(recipe.steps, stop_after)
    for step in range(first, last):
        set_rate(optimiser, recipe, step)
        prediction = objective(sample(recipe.batch, rng), rng)
        cast = (
            torch.autocast(device_type, torch.bfloat16)
            if recipe.autocast == "bfloat16"
            else nullcontext()
        )
        with cast:
            logits = forward(prediction.seen)
        value = loss(logits, prediction, recipe.loss)
        total = value
        if recipe.l2:
            total = value + recipe.l2 * sum(p.square().sum() for p in parameters)
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        if recipe.clip:
            nn.utils.clip_grad_norm_(parameters, recipe.clip)
        optimiser.step()
        if average is not None:
            for mean, parameter in zip(average, parameters, strict=True):
                mean.lerp_(parameter.detach(), 1 - recipe.ema)
        waiting.append(value.detach())
        measured = meter is not None and _is_due(step + 1, recipe)
        kept = checkpoint is not None and (
            step + 1 == last or (checkpoint_every and (step + 1) % checkpoint_every == 0)
        )
        # Asking a GPU for a number makes it wait: many steps are asked for at once.
        if measured or kept or report or len(waiting) == _LOSSES_AT_ONCE or step + 1 == last:
            history.losses += _finite(waiting, step + 1, recipe)
            waiting.clear()
        gap = None
        if meter is not None and measured:
            net.eval()
            with _averaged(parameters, average):  # what is measured is what will be returned
                gap = meter(model)
            history.gaps.append((step + 1, gap))
            net.train()
        if report is not None:
            report(step + 1, history.losses[-1], gap)
        if checkpoint is not None and kept:
            _save(checkpoint, recipe, net, optimiser, step + 1, average, rng, history)
    if average is not None and last == recipe.steps:
        with torch.no_grad():
            for parameter, mean in zip(parameters, average, strict=True):
                parameter.copy_(mean)
    net.eval()
    return history


def _finite(losses: list[Tensor], end: int, recipe: Recipe) -> list[float]:
    """The losses of the steps before `end` as numbers; the first that is none is an error."""
    values = torch.stack(losses).tolist()
    for step, value in enumerate(values, start=end - len(values)):
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the loss is {value} at step {step}; lower the learning rate "
                f"(now {recipe.learning_rate}) or clip gradients"
            )
    return values


def gap_meter(
    objective: Objective, tokens: Int[Tensor, "batch length"], seed: int = 0
) -> Callable[[Trainable], Gap]:
    """A meter on fixed sequences with fixed hidden positions, so that its curve has no noise."""
    prediction = functools.cache(lambda: objective(tokens, TorchRng(seed, tokens.device)))
    return lambda model: measure_on(model.token_logits, prediction())


@contextmanager
def _averaged(parameters: list[nn.Parameter], average: list[Tensor] | None) -> Iterator[None]:
    """The network with the averaged weights in place of its own, for a while."""
    own = [p.detach().clone() for p in parameters] if average is not None else []
    with torch.no_grad():
        for parameter, mean in zip(parameters, average or [], strict=average is not None):
            parameter.copy_(mean)
    yield
    with torch.no_grad():
        for parameter, kept in zip(parameters, own, strict=average is not None):
            parameter.copy_(kept)


def _is_due(step: int, recipe: Recipe) -> bool:
    return step == recipe.steps or (recipe.meter_every > 0 and step % recipe.meter_every == 0)


def _save(
    folder: Path,
    recipe: Recipe,
    net: nn.Module,
    optimiser: torch.optim.Optimizer,
    step: int,
    average: list[Tensor] | None,
    rng: TorchRng,
    history: History,
) -> None:
    """Tensors as safetensors, the rest as JSON; the JSON is replaced last and names the tensors."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = optimiser.state_dict()
    tensors = {f"net.{name}": p.detach().clone() for name, p in net.state_dict().items()}
    scalars: dict[str, Any] = {}
    for index, values in state["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimiser.{index}.{name}"] = value.detach().clone().contiguous()
            else:
                scalars[f"{index}.{name}"] = value
    for index, mean in enumerate(average or []):
        tensors[f"ema.{index}"] = mean.clone()
    tensors["rng"] = rng.generator.get_state()
    name = f"step-{step}.safetensors"
    save_file(tensors, folder / name)
    record = {
        "step": step,
        "tensors": name,
        "recipe": asdict(recipe),
        "seed": rng.seed,
        "optimiser_scalars": scalars,
        "losses": history.losses,
        "gaps": [[at, list(gap)] for at, gap in history.gaps],
    }
    temporary = folder / "state.json.new"
    temporary.write_text(json.dumps(record))
    os.replace(temporary, folder / "state.json")
    for old in folder.glob("step-*.safetensors"):
        if old.name != name:
            old.unlink()


def _resume(
    folder: Path,
    recipe: Recipe,
    net: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: list[Tensor] | None,
    rng: TorchRng,
    history: History,
) -> int:
    """Restore everything and say at which step to go on."""
    from safetensors.torch import load_file

    record = json.loads((folder / "state.json").read_text())
    wanted = json.loads(json.dumps(asdict(recipe)))
    if record["recipe"] != wanted:
        changed = sorted(k for k in wanted if record["recipe"].get(k) != wanted[k])
        raise UserError(
            f"the checkpoint in {folder} was made with another recipe ({', '.join(changed)} "
            "differ); use another folder or remove it"
        )
    if record["seed"] != rng.seed:
        raise UserError(
            f"the checkpoint in {folder} was made from seed {record['seed']}, not {rng.seed}; "
            "use another folder or remove it"
        )
    device = next(net.parameters()).device
    tensors = load_file(folder / record["tensors"], device=str(device))
    net.load_state_dict(
        {name[4:]: value for name, value in tensors.items() if name.startswith("net.")}
    )
    state = optimiser.state_dict()
    restored: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".", 2)
            restored.setdefault(int(index), {})[key] = value
    for name, value in record["optimiser_scalars"].items():
        index, key = name.split(".", 1)
        restored.setdefault(int(index), {})[key] = value
    state["state"] = restored
    optimiser.load_state_dict(state)
    for index, mean in enumerate(average or []):
        mean.copy_(tensors[f"ema.{index}"])
    rng.generator.set_state(tensors["rng"].cpu())
    history.losses[:] = record["losses"]
    history.gaps[:] = [(at, Gap(*values)) for at, values in record["gaps"]]
    return record["step"]
