"""What a diffusion language model answers: the law of the clean token at every position asked.

A sampler writes on a *canvas*. Two kinds of noise stand on it:

    masks     a position is hidden, and tells nothing; absorbing noise [MDLM, LLaDA, BERT]
    uniform   a position holds a token that is the clean one with probability α, and else uniform
              over the vocabulary [D3PM, DiffusionGemma, refinement]

A `Denoiser` answers, for a canvas z and every position i that it is asked about,

    log p(x_i = w | z),    x the clean text,

one law per position and in one pass. It says nothing about two positions together: that is what a
sampler which draws several positions from one answer loses.

    MaskedDenoiser    any `Masked` oracle: a structure, our `MaskedLM`, a masked LM of Hugging Face
    RefinerDenoiser   any `Refiner`, which reads a whole hypothesis as noise
    ExactDenoiser     a `Table`: the truth, under both kinds of noise

`as_denoiser` takes any of these.

Notation
--------
z     canvas       tokens [rows, length], hidden, noisy
α     survival     the chance that a noisy token is the clean one
x     clean text   [rows, length]
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Masked
from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError, raise_if_impossible, shown
from triptych.inference.answers import check_answer
from triptych.inference.chains.refinement import Refiner

_ENTRIES_AT_ONCE = 2**24


@dataclass(frozen=True, eq=False)
class Canvas:
    """What a denoiser reads: some rows of a batch, partly written.

    tokens    what stands there; at a hidden position it is never read
    hidden    positions that tell nothing: masks, and what is not begun yet
    noisy     positions whose token may be noise; all others are shown as they are
    survival  α at the noisy positions; None where the sampler does not say
    start, stop   columns of the block that is written now. A model that writes block after block
              reads nothing from `stop` on
    rows      which rows of the batch these are, for a denoiser that holds something of each row
    before    the laws of the block that the sampler used in the step before, None in the first:
              for a denoiser that reads its own answers (`ReadsItself`)
    """

    tokens: Int[Tensor, "rows length"]
    hidden: Bool[Tensor, "rows length"]
    noisy: Bool[Tensor, "rows length"]
    survival: float | None
    start: int
    stop: int
    rows: Int[Tensor, " rows"]
    before: Float[Tensor, "rows block vocab"] | None = None


@runtime_checkable
class Denoiser(Protocol):
    """A model of clean text, given a canvas."""

    @property
    def vocab_size(self) -> int: ...

    def clean_log_probs(
        self, canvas: Canvas, asked: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "asked vocab"]:
        """log p(x_i = · | canvas) at the asked positions, row by row from the left."""
        ...


@runtime_checkable
class ReadsItself(Protocol):
    """A denoiser that reads `Canvas.before`, its own last answers (self-conditioning)."""

    @property
    def reads_itself(self) -> bool: ...


@runtime_checkable
class AskedMasked(Masked, Protocol):
    """A masked oracle that answers about some positions alone, for less."""

    def asked_log_probs(
        self,
        tokens: Int[Tensor, "batch length"],
        hidden: Bool[Tensor, "batch length"],
        asked: Bool[Tensor, "batch length"],
    ) -> Float[Tensor, "asked vocab"]:
        """What `masked_log_probs` says at the asked positions, row by row from the left."""
        ...


@dataclass(frozen=True, eq=False)
class MaskedDenoiser:
    """A masked oracle as a denoiser of masks.

    Where a token is shown the answer is a point mass, as of every `Masked`.

    Worked value: p uniform on {00, 11}; the canvas 0? is answered with 0 for sure, ?? with ½, ½.
    """

    lm: Masked

    def __post_init__(self) -> None:
        if not isinstance(self.lm, Masked):
            raise UserError(
                f"lm is {shown(self.lm)}; it must have masked_log_probs and vocab_size",
                parameter="lm",
            )

    def __repr__(self) -> str:
        return f"MaskedDenoiser({type(self.lm).__name__})"

    @property
    def vocab_size(self) -> int:
        return self.lm.vocab_size

    def clean_log_probs(
        self, canvas: Canvas, asked: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "asked vocab"]:
        """What the model says of masks; it refuses noise."""
        name = type(self.lm).__name__
        if bool(canvas.noisy.any()):
            raise UserError(
                f"{name} answers about masks, and this sampler writes on uniform noise; give it a "
                "Table (Table.of(structure) makes one), a refiner or a model of uniform noise"
            )
        if isinstance(self.lm, AskedMasked):
            return self.lm.asked_log_probs(canvas.tokens, canvas.hidden, asked)
        answer = self.lm.masked_log_probs(canvas.tokens, canvas.hidden)
        shape = (*canvas.tokens.shape, self.vocab_size)
        check_answer(answer, shape, canvas.tokens.device, name)
        return answer[asked]


@dataclass(frozen=True, eq=False)
class RefinerDenoiser:
    """A refiner as a denoiser: it reads the canvas as a hypothesis, and does not ask how noisy.

    Row b of the batch belongs to row b of what the refiner holds, so all rows are asked in each
    pass. A position that is hidden is read as `mask_token`, where the refiner has one.
    """

    refiner: Refiner
    vocab_size: int
    mask_token: int | None = None
    lengths: Int[Tensor, " batch"] | None = None

    def __repr__(self) -> str:
        return f"RefinerDenoiser({type(self.refiner).__name__}, {self.vocab_size} symbols)"

    def clean_log_probs(
        self, canvas: Canvas, asked: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "asked vocab"]:
        """What the refiner says, asked about all rows that it holds."""
        tokens = canvas.tokens
        if bool(canvas.hidden.any()):
            if self.mask_token is None:
                raise UserError(
                    f"{type(self.refiner).__name__} knows no mask, and positions are hidden; "
                    "say which token the mask is: RefinerDenoiser(refiner, vocab_size, mask_token)"
                )
            tokens = tokens.masked_fill(canvas.hidden, self.mask_token)
        lengths = self.lengths
        if lengths is None:
            lengths = torch.full_like(tokens[:, 0], tokens.shape[1])
            answer = self.refiner.log_probs(tokens, lengths)
        else:
            every = tokens.new_zeros((len(lengths), tokens.shape[1]))
            every[canvas.rows] = tokens
            answer = self.refiner.log_probs(every, lengths)[canvas.rows]
        shape = (*tokens.shape, self.vocab_size)
        check_answer(answer, shape, tokens.device, type(self.refiner).__name__)
        return answer[asked]


@dataclass(frozen=True, eq=False)
class ExactDenoiser:
    """The truth as a denoiser, under masks and under uniform noise:

        p(x_i = w | z) ∝ Σ_{x: x_i = w} p(x) Π_j q(z_j | x_j),

    where q is 1 at a hidden position, [z_j = x_j] where z is shown, and α [z_j = x_j] + (1 - α)/V
    where it is noisy.

    Worked value: p uniform on {00, 11}, z = 01, both noisy with α = ½: 0 and 1 are as likely at
    both positions. z = 00: 00 has weight (¾)², 11 has (¼)², so 0 has 9/10.
    """

    table: Table

    def __post_init__(self) -> None:
        if not isinstance(self.table, Table):
            raise UserError(
                f"table is {shown(self.table)}; Table.of(structure) makes one of a small structure",
                parameter="table",
            )

    def __repr__(self) -> str:
        return f"ExactDenoiser({self.table!r})"

    @property
    def vocab_size(self) -> int:
        return self.table.vocab_size

    def clean_log_probs(
        self, canvas: Canvas, asked: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "asked vocab"]:
        """The posterior of each asked position, by a sum over all texts."""
        if not bool(canvas.noisy.any()):
            return self.table.masked_log_probs(canvas.tokens, canvas.hidden)[asked]
        if canvas.survival is None:
            raise UserError(
                "the truth needs to know how noisy the canvas is, and this sampler does not say; "
                "its samplers are those that follow a schedule of noise"
            )
        size, length = self.vocab_size, self.table.length
        every = all_sequences(size, length, canvas.tokens.device)
        weights = self._log_evidence(canvas, every) + self.table.log_probs
        total = weights.logsumexp(-1, keepdim=True)
        raise_if_impossible(total[:, 0], "the canvas")
        probs = (weights - total).exp()
        rows, columns = torch.nonzero(asked, as_tuple=True)
        words = every[:, columns].T
        laws = torch.stack([(probs[rows] * (words == word)).sum(-1) for word in range(size)], -1)
        return (laws / laws.sum(-1, keepdim=True)).log()

    def _log_evidence(
        self, canvas: Canvas, every: Int[Tensor, "count length"]
    ) -> Float[Tensor, "rows count"]:
        """Σ_j log q(z_j | x_j) of every text x."""
        alpha, size = float(canvas.survival or 0.0), self.vocab_size
        chances = {"noisy": (alpha + (1 - alpha) / size, (1 - alpha) / size)}
        chances["clean"] = (1.0, 0.0)
        log_chances = {
            kind: torch.tensor(pair, dtype=torch.float64, device=every.device).log()
            for kind, pair in chances.items()
        }
        total = torch.zeros(
            (len(canvas.tokens), len(every)), dtype=torch.float64, device=every.device
        )
        for place in range(every.shape[1]):
            differs = (canvas.tokens[:, place, None] != every[:, place]).long()
            noisy = canvas.noisy[:, place, None]
            here = torch.where(noisy, log_chances["noisy"][differs], log_chances["clean"][differs])
            total += here.masked_fill(canvas.hidden[:, place, None], 0.0)
        return total


def as_denoiser(lm: object) -> Denoiser:
    """The model as a denoiser: a `Denoiser` itself, a `Table`, or any `Masked` oracle.

    A refiner does not say how large its vocabulary is: RefinerDenoiser(refiner, vocab_size) does.
    """
    if isinstance(lm, Denoiser):
        return lm
    if isinstance(lm, Table):
        return ExactDenoiser(lm)
    if isinstance(lm, Masked):
        return MaskedDenoiser(lm)
    hint = ""
    if isinstance(lm, Refiner):
        hint = "; make RefinerDenoiser(refiner, vocab_size), which says what a refiner does not"
    raise UserError(
        f"lm is {shown(lm)}; it must answer clean_log_probs or masked_log_probs{hint}",
        parameter="lm",
    )
