"""A sampler of a diffusion language model as a value: a dataclass of its options, with a step.

    @dataclass(frozen=True)
    class LeftToRight(Sampler):
        title = "From left to right"
        promise = "one position a round: the law of the model, read from the left"

        def rounds(self, size: int) -> int: ...
        def step(self, run: Denoising, number: int) -> None: ...

A step sees the canvases and what they remember, and nothing else: so a sampler is a Markov chain on
canvases, and `triptych.diffusion.law` knows its exact law on a small model, step by step.

`samplers()` finds the classes: a new sampler is a new file in `samplers/`.
"""

import functools
import inspect
import pkgutil
import time
from abc import abstractmethod
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from triptych.core.display import card, counted, facts_table
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Hidden,
    Tokens,
    UserError,
    as_flag,
    as_masked,
    as_size,
    check_callable,
    shown,
)
from triptych.diffusion.denoiser import as_denoiser
from triptych.diffusion.denoising import Denoising, QuestionBudget, Step, Stop
from triptych.inference.chains.parallel import blank as blank
from triptych.inference.guided.costs import Costs
from triptych.inference.guided.transforms import Transform
from triptych.inference.settable import Settable

Keeps = Literal["always", "one position a round", "as steps grow", "no"]
"""When the law of what comes out is the model's own, for a model whose answers are consistent."""


@dataclass(frozen=True, eq=False)
class Denoised:
    """What came out.

    tokens     the rows; 0 where nothing was written
    hidden     what is still hidden, in rows that were stopped
    complete   every position of the row is written
    stops      why each row is not complete (a `Stop`), None for one that is
    costs      questions, tokens written and taken back for each row; passes of the batch
    trace      every step in order, empty unless record=True
    """

    tokens: Int[Tensor, "batch length"]
    hidden: Bool[Tensor, "batch length"]
    complete: Bool[Tensor, " batch"]
    stops: tuple[Stop | None, ...]
    costs: Costs
    trace: tuple[Step, ...]

    def __repr__(self) -> str:
        done, passes = (
            int(self.complete.sum()),
            counted(self.costs.forward_passes, "pass", "passes"),
        )
        return f"Denoised({counted(len(self.tokens), 'row')}, {done} complete, {passes})"

    def _repr_html_(self) -> str:
        return card(repr(self), facts_table(self.costs.totals()))


@dataclass(frozen=True)
class Sampler(Settable):
    """A sampler with its options.

    noise      what stands on a fresh canvas: masks, or uniform tokens
    keeps      when its law is the model's own: `Keeps`
    source     where it was published
    when       when to take it
    returns    it may take back what it wrote, so a row is not done when nothing is hidden
    """

    noise: ClassVar[Literal["masks", "uniform"]] = "masks"
    keeps: ClassVar[Keeps] = "no"
    source: ClassVar[str] = ""
    when: ClassVar[str] = ""
    returns: ClassVar[bool] = False

    @abstractmethod
    def rounds(self, size: int) -> int:
        """The most steps that a block of this many positions takes."""
        raise NotImplementedError

    @abstractmethod
    def step(self, run: Denoising, number: int) -> None:
        """Write on all open rows of the block, from what stands there."""
        raise NotImplementedError

    def end(self, run: Denoising) -> None:
        """What is done once at the end of a block; nothing, if a sampler does not say."""

    def sample(
        self,
        model: object,
        tokens: Tokens,
        hidden: Hidden | None = None,
        *,
        rng: RngLike,
        block_length: Count | None = None,
        transform: Transform | None = None,
        budget: QuestionBudget | None = None,
        record: bool = False,
    ) -> Denoised:
        """Write the hidden positions of every row.

        model          a denoiser, or what `as_denoiser` makes one of
        tokens, hidden the rows and what is to be written; all of it, if hidden is None
        rng            a seed, or where the draws come from
        block_length   write block after block of so many hidden positions, from the left
                       (semi-autoregressive); None is one block
        transform      of the model's laws, as a temperature
        budget         what a row may cost
        record         keep a trace of all steps
        """
        run, blocks = self.start(
            model,
            tokens,
            hidden,
            rng,
            block_length=block_length,
            transform=transform,
            budget=budget,
        )
        record, trace = as_flag("record", record), []
        for block, free in enumerate(blocks):
            run.begin(free)
            if record:
                trace.append(run.step(block, -1))
            for number in range(self.rounds_of(run)):
                run.spent()
                if not bool(run.open.any()):
                    break
                self.advance(run, number)
                if record:
                    trace.append(run.step(block, number))
            run.stop(run.hidden.any(-1), Stop.STEPS)
            self.end(run)
        run.costs.seconds = time.perf_counter() - run.began
        left, stops = run.masked, tuple(run.stops)
        going = torch.tensor([why is None for why in stops], device=left.device)
        complete = ~left.any(-1) & going
        return Denoised(run.tokens, left, complete, stops, run.costs, tuple(trace))

    def advance(self, run: Denoising, number: int) -> None:
        """One step, after which rows are closed that are done."""
        self.step(run, number)
        if not self.returns and self.noise == "masks":
            run.close(~run.hidden.any(-1))

    def start(
        self,
        model: object,
        tokens: Tokens,
        hidden: Hidden | None,
        rng: RngLike,
        *,
        block_length: Count | None = None,
        transform: Transform | None = None,
        budget: QuestionBudget | None = None,
    ) -> tuple[Denoising, list[Bool[Tensor, "batch length"]]]:
        """The canvases before the first block, and the positions of each block."""
        denoiser = as_denoiser(model)
        if hidden is None:
            rows = torch.as_tensor(tokens)
            hidden = torch.ones(rows.shape, dtype=torch.bool, device=rows.device)
        tokens, hidden = as_masked(tokens, hidden, denoiser.vocab_size)
        if tokens.numel() == 0:
            raise UserError(
                f"there is nothing to write on: tokens have shape {tuple(tokens.shape)}, and need "
                "rows and positions",
                parameter="tokens",
            )
        if transform is not None:
            check_callable("transform", transform, "transform(log_probs)")
        if budget is not None and not isinstance(budget, QuestionBudget):
            raise UserError(
                f"budget is {shown(budget)}; it must be a QuestionBudget(questions=...), or None",
                parameter="budget",
            )
        run = Denoising(
            denoiser,
            tokens,
            hidden,
            as_rng(rng, tokens.device),
            uniform=self.noise == "uniform",
            transform=transform,
            budget=budget,
        )
        return run, blocks_of(hidden, block_length)

    def rounds_of(self, run: Denoising) -> int:
        """The most steps that the block takes, over all rows."""
        return max(map(self.rounds, set(run.sizes.tolist()) - {0}), default=0)


def blocks_of(
    hidden: Bool[Tensor, "batch length"], block_length: Count | None
) -> list[Bool[Tensor, "batch length"]]:
    """The hidden positions of each row, so many at a time, from the left.

    Worked value: 0?0??? in blocks of two: positions 1 and 3, then 4 and 5.
    """
    if block_length is None:
        return [hidden]
    block_length = as_size("block_length", block_length)
    number = (hidden.cumsum(-1) - 1) // block_length
    most = int(hidden.sum(-1).max())
    return [hidden & (number == block) for block in range(-(-most // block_length))]


def sampler_of(name: str) -> type[Sampler] | None:
    """The sampler that the file samplers/`name` defines."""
    module = import_module(f"triptych.diffusion.samplers.{name}")
    found = [
        each
        for each in vars(module).values()
        if inspect.isclass(each)
        and issubclass(each, Sampler)
        and each.__module__ == module.__name__
    ]
    if len(found) > 1:
        names = " and ".join(each.__name__ for each in found)
        raise UserError(f"{module.__name__} has the samplers {names}; a file has one")
    return found[0] if found else None


@functools.cache
def samplers() -> dict[str, type[Sampler]]:
    """Every sampler of this package by its name."""
    package = import_module("triptych.diffusion.samplers")
    found: dict[str, type[Sampler]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        own = sampler_of(module.name)
        if own is not None:
            found[own.name] = own
    return found
