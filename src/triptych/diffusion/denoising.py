"""The cursor of a sampler: a batch of canvases that are written, what they cost, what happened.

A sampler asks for laws, draws, writes and hides through it, so that every question is counted and
every answer is checked. All of it belongs to rows: a row that is done, or out of its budget, is
closed, and nothing is asked or written for it any more.
"""

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Rng
from triptych.core.validation import as_count, as_number, set_fields
from triptych.diffusion.denoiser import Canvas, Denoiser, ReadsItself
from triptych.inference.answers import check_answer, check_sums
from triptych.inference.chains.positions import draw
from triptych.inference.guided.costs import Costs
from triptych.inference.guided.transforms import Transform

_QUESTIONS_AT_ONCE = 2**12
_ENTRIES_CHECKED = 2**22


class Stop(StrEnum):
    """Why a row is not complete."""

    QUESTIONS = "question budget used up"
    TIME = "time budget used up"
    STEPS = "steps used up"


@dataclass(frozen=True)
class QuestionBudget:
    """The most that a canvas may cost; None is no limit.

    questions   to the model, for one row. It is looked at before each step: the questions of a
                step are all asked, and the last of them may be over the budget
    seconds     since the sampler began, the same for all rows
    """

    questions: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.questions is not None:
            set_fields(self, questions=as_count("questions", self.questions))
        if self.seconds is not None:
            seconds = as_number("seconds", self.seconds, at_least=0, finite=False)
            set_fields(self, seconds=seconds)


class Step(NamedTuple):
    """The canvases after one step.

    block, number   of the step
    tokens          what stands there
    hidden          masks, and blocks that are not begun
    written         positions that were written in this step
    erased          positions that were shown before and are hidden, or noise again
    """

    block: int
    number: int
    tokens: Int[Tensor, "batch length"]
    hidden: Bool[Tensor, "batch length"]
    written: Bool[Tensor, "batch length"]
    erased: Bool[Tensor, "batch length"]


class Denoising:
    """Canvases under way.

    tokens   what stands there
    masked   positions that tell nothing
    free     positions of the block that is written now
    open     rows of that block that are not done
    memory   a number for each position that a sampler keeps between steps; 0 at a block's start
    sizes    how many positions each row has in this block
    """

    def __init__(
        self,
        denoiser: Denoiser,
        tokens: Int[Tensor, "batch length"],
        hidden: Bool[Tensor, "batch length"],
        rng: Rng,
        *,
        uniform: bool = False,
        transform: Transform | None = None,
        budget: QuestionBudget | None = None,
    ) -> None:
        self.denoiser, self.rng, self.uniform = denoiser, rng, uniform
        self.transform, self.budget = transform, budget or QuestionBudget()
        self.tokens, self.masked = tokens.masked_fill(hidden, 0), hidden.clone()
        self.free = torch.zeros_like(hidden)
        self.open = torch.zeros_like(hidden[:, 0])
        self.memory = torch.zeros(hidden.shape, dtype=torch.float64, device=hidden.device)
        self.before: Float[Tensor, "batch block vocab"] | None = None
        self.written, self.erased = torch.zeros_like(hidden), torch.zeros_like(hidden)
        self.costs = Costs.empty(len(tokens), tokens.device)
        self.stops: list[Stop | None] = [None] * len(tokens)
        self.began = time.perf_counter()

    # ------------------------------------------------------------------ blocks and rows

    def begin(self, free: Bool[Tensor, "batch length"]) -> None:
        """Take up a block: its positions, all of them masked, or noise."""
        self.free = free & self.masked & self._unstopped()[:, None]
        self.open = self.free.any(-1)
        self.memory = torch.zeros_like(self.memory)
        self.before = None
        if self.uniform:
            self.noise(self.free)

    @property
    def sizes(self) -> Int[Tensor, " batch"]:
        return self.free.sum(-1)

    @property
    def columns(self) -> tuple[int, int]:
        """Where the block begins and ends, over all rows."""
        at = torch.nonzero(self.free.any(0))[:, 0]
        return (int(at[0]), int(at[-1]) + 1) if len(at) else (0, self.free.shape[1])

    @property
    def hidden(self) -> Bool[Tensor, "batch length"]:
        """Positions of the block that are to be written."""
        return self.masked & self.free & self.open[:, None]

    @property
    def shown(self) -> Bool[Tensor, "batch length"]:
        """Positions of the block that are written."""
        return ~self.masked & self.free & self.open[:, None]

    def close(self, rows: Bool[Tensor, " batch"]) -> None:
        """Nothing more is done in these rows of this block."""
        self.open = self.open & ~rows

    def spent(self) -> None:
        """Close the rows whose budget is used up."""
        over: list[tuple[Stop, Tensor]] = []
        if self.budget.questions is not None:
            over.append((Stop.QUESTIONS, self.costs.generator_calls >= self.budget.questions))
        if self.budget.seconds is not None:
            late = time.perf_counter() - self.began >= self.budget.seconds
            over.append((Stop.TIME, torch.full_like(self.open, late)))
        for why, rows in over:
            self.stop(rows & self.open, why)

    def stop(self, rows: Bool[Tensor, " batch"], why: Stop) -> None:
        """Close rows for good, and say why."""
        for row in torch.nonzero(rows)[:, 0].tolist():
            self.stops[row] = why
        self.close(rows)

    def _unstopped(self) -> Bool[Tensor, " batch"]:
        going = [why is None for why in self.stops]
        return torch.tensor(going, dtype=torch.bool, device=self.open.device)

    # ------------------------------------------------------------------ questions

    def ask(
        self, at: Bool[Tensor, "batch length"], survival: float | None = None
    ) -> Float[Tensor, "asked vocab"]:
        """log p(x_i = · | the row's canvas) at some positions, row by row from the left."""
        rows = torch.nonzero(at.any(-1))[:, 0]
        if len(rows) == 0:
            return torch.zeros((0, self.denoiser.vocab_size), device=at.device).double()
        laws = self.ask_variants(rows, self.tokens[rows], self.masked[rows], at[rows], survival)
        self.remember(at, laws)
        return laws

    def ask_variants(
        self,
        rows: Int[Tensor, " variants"],
        tokens: Int[Tensor, "variants length"],
        masked: Bool[Tensor, "variants length"],
        at: Bool[Tensor, "variants length"],
        survival: float | None = None,
    ) -> Float[Tensor, "asked vocab"]:
        """The same for other canvases of these rows, all in one pass."""
        start, stop = self.columns
        noisy = self.free[rows] & ~masked if self.uniform else torch.zeros_like(masked)
        laws = []
        asked = time.perf_counter()
        for part in torch.arange(len(rows), device=rows.device).split(_QUESTIONS_AT_ONCE):
            who = rows[part]
            canvas = Canvas(
                tokens[part],
                masked[part],
                noisy[part],
                survival,
                start,
                stop,
                who,
                None if self.before is None else self.before[who],
            )
            answer = self.denoiser.clean_log_probs(canvas, at[part])
            places = int(at[part].sum())
            name = type(self.denoiser).__name__
            check_answer(answer, (places, self.denoiser.vocab_size), tokens.device, name)
            laws.append(answer)
            self.costs.forward_passes += 1
        self.costs.generator_seconds += time.perf_counter() - asked
        self.costs.generator_calls.index_add_(0, rows, torch.ones_like(rows))
        every = laws[0] if len(laws) == 1 else torch.cat(laws)
        self._check_sums(every, type(self.denoiser).__name__)
        if self.transform is not None:
            every, shape = self.transform(every), tuple(every.shape)
            check_answer(every, shape, tokens.device, "the transform")
            self._check_sums(every, "the transform")
        return every

    def _check_sums(self, laws: Float[Tensor, "asked vocab"], whose: str) -> None:
        """Those of a large network are checked where they are drawn from."""
        if laws.numel() <= _ENTRIES_CHECKED:
            check_sums(laws, whose, lambda k: f"at the asked position number {k}")

    def ask_without(self, at: Bool[Tensor, "batch length"]) -> Float[Tensor, "asked vocab"]:
        """log p(x_i = · | the canvas without position i) at some positions that are shown.

        One question for each position, all in one pass.
        """
        rows, columns = torch.nonzero(at, as_tuple=True)
        if len(rows) == 0:
            return torch.zeros((0, self.denoiser.vocab_size), device=at.device).double()
        one = torch.zeros_like(self.masked[rows])
        one[torch.arange(len(rows), device=rows.device), columns] = True
        return self.ask_variants(rows, self.tokens[rows], self.masked[rows] | one, one)

    def remember(
        self, at: Bool[Tensor, "batch length"], laws: Float[Tensor, "asked vocab"]
    ) -> None:
        """The laws that were used, for a denoiser that reads them in the next step."""
        if not (isinstance(self.denoiser, ReadsItself) and self.denoiser.reads_itself):
            return
        start, stop = self.columns
        block = at[:, start:stop]
        if self.before is None:
            shape = (*block.shape, laws.shape[-1])
            self.before = torch.zeros(shape, dtype=laws.dtype, device=laws.device)
        self.before = self.before.masked_scatter(block[..., None], laws)

    # ------------------------------------------------------------------ draws and what is written

    def draw(
        self, laws: Float[Tensor, "places outcomes"], at: Bool[Tensor, "batch length"]
    ) -> Int[Tensor, " places"]:
        """One draw for each of the positions `at`."""
        return draw(self.rng, laws, torch.nonzero(at)[:, 0])

    def noise(self, at: Bool[Tensor, "batch length"]) -> None:
        """A token uniform over the vocabulary at each of these positions."""
        size = self.denoiser.vocab_size
        law = torch.full((1, size), 1 / size, dtype=torch.float64, device=at.device).log()
        self.tokens = self.tokens.masked_scatter(at, self.draw(law.expand(int(at.sum()), -1), at))
        self.masked = self.masked & ~at

    def chance(
        self, probability: float, at: Bool[Tensor, "batch length"]
    ) -> Bool[Tensor, "batch length"]:
        """Each of these positions by itself with this probability."""
        if probability <= 0 or probability >= 1:
            return at if probability >= 1 else torch.zeros_like(at)
        law = torch.tensor([[1 - probability, probability]], dtype=torch.float64, device=at.device)
        drawn = self.draw(law.log().expand(int(at.sum()), -1), at)
        return torch.zeros_like(at).masked_scatter(at, drawn.bool())

    def write(self, at: Bool[Tensor, "batch length"], tokens: Int[Tensor, " places"]) -> None:
        """These tokens at these positions, which are shown from now on."""
        self.tokens = self.tokens.masked_scatter(at, tokens)
        self.masked = self.masked & ~at
        self.written = self.written | at
        self.costs.generated += at.sum(-1)

    def hide(self, at: Bool[Tensor, "batch length"]) -> None:
        """Take back what stands at these positions."""
        taken = at & ~self.masked
        self.tokens = self.tokens.masked_fill(at, 0)
        self.masked = self.masked | at
        self.erased = self.erased | taken
        self.costs.erased += taken.sum(-1)

    def step(self, block: int, number: int) -> Step:
        """What the step has done, once it is over."""
        done = Step(block, number, self.tokens, self.masked, self.written, self.erased)
        self.written, self.erased = torch.zeros_like(self.free), torch.zeros_like(self.free)
        return done
