"""The exact law of what refinement writes, step by step, and how far it is from the truth.

The start is uniform on all hypotheses. Given a hypothesis h, a sampled step writes

    P(y | h) = Π_i f_i(y_i | h):        a product, whatever the refiner.

If the refiner learns nothing from h (a hypothesis of masks, or r = 0), then f_i is the marginal of
the truth and one step writes the product of the marginals. What that loses is the equation of this
page: of all laws that one parallel step can write, it is the closest to p, and

    KL(p ‖ Π_i p_i) = Σ_i H(p_i) - H(p) = the total correlation of p.

With argmax a step is a function of h, and the law over random starts is no product: the start
breaks the tie between the ways to write a sentence.
"""

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.divergences import kl_divergence, total_variation
from triptych.core.table import Table, places
from triptych.core.validation import (
    Count,
    Numbers,
    UserError,
    as_count,
    as_flag,
    as_floats,
    as_size,
)
from triptych.inference.guided.options import check_choice
from triptych.theory.refinement.ideal import TabledRefiner, hypotheses

Stutter = Literal["previous", "random", "keep"]

_ENTRIES_AT_ONCE = 2**22


def output_laws(
    refiner: TabledRefiner,
    *,
    steps: Count,
    sample: bool = False,
    stutter: Stutter = "previous",
    start: Numbers | None = None,
) -> Float[Tensor, "steps hypotheses"]:
    """Row t - 1 is the law of the tokens after t steps, stutter included, as `refine` returns them.

    `start` is the law of the first hypothesis; uniform if it is not given. A row of `refine` that
    stops early is at a fixed point, so with argmax its law is the same; draws go on here.

    Worked value: two positions with the law (½, ½) whatever is read: every row is ¼ four times if
    `sample` is set, and a point mass at 0 0 if not.
    """
    if not isinstance(refiner, TabledRefiner):
        raise UserError(
            f"refiner is a {type(refiner).__name__}; it must be a TabledRefiner: "
            "TabledRefiner.of(refiner, vocab, length) makes one",
            parameter="refiner",
        )
    steps = as_count("steps", steps, at_least=1)
    sample = as_flag("sample", sample)
    check_choice("stutter", stutter, get_args(Stutter))
    every = hypotheses(refiner.vocab_size, refiner.length)
    law = _as_start(start, len(every))
    laws, answers = refiner.log_laws.exp(), refiner.answers
    step = _Step(every, refiner.vocab_size, stutter)
    found = []
    for _ in range(steps):
        written, law = step.drawn(laws, law) if sample else step.taken(answers, law)
        found.append(written)
    return torch.stack(found)


class _Step:
    """One step for all hypotheses: the law of what is written, and of the next hypothesis."""

    def __init__(self, every: Int[Tensor, "count length"], vocab: int, stutter: Stutter) -> None:
        self.every, self.vocab, self.stutter = every, vocab, stutter
        self.place = places(vocab, every.shape[1])
        self.repeated = torch.zeros_like(every, dtype=torch.bool)
        self.repeated[:, 1:] = every[:, 1:] == every[:, :-1]

    def taken(
        self, answers: Int[Tensor, "count length"], law: Float[Tensor, " count"]
    ) -> tuple[Float[Tensor, " count"], Float[Tensor, " count"]]:
        """Every hypothesis has one answer."""
        rank = (answers * self.place).sum(-1)
        written = torch.zeros_like(law).index_add_(0, rank, law)
        if self.stutter == "previous":
            following = torch.where(self.repeated[rank], self.every, answers)
            rank = (following * self.place).sum(-1)
            return written, torch.zeros_like(law).index_add_(0, rank, law)
        return written, written if self.stutter == "keep" else self._redrawn(written)

    def drawn(
        self, laws: Float[Tensor, "count length vocab"], law: Float[Tensor, " count"]
    ) -> tuple[Float[Tensor, " count"], Float[Tensor, " count"]]:
        """Every position is drawn from its law, given the hypothesis."""
        written = torch.zeros_like(law)
        following = torch.zeros_like(law)
        kept = (self.every * self.place * ~self.repeated).sum(-1)
        repeated = self.repeated.double().T
        for rows in torch.nonzero(law)[:, 0].split(max(1, _ENTRIES_AT_ONCE // len(law))):
            moved = law[rows, None] * _products(laws[rows])
            written += moved.sum(0)
            if self.stutter == "previous":
                old = (self.every[rows] * self.place).double() @ repeated
                following.index_add_(0, (kept + old.long()).reshape(-1), moved.reshape(-1))
        if self.stutter == "previous":
            return written, following
        return written, written if self.stutter == "keep" else self._redrawn(written)

    def _redrawn(self, written: Float[Tensor, " count"]) -> Float[Tensor, " count"]:
        """Every repeated position becomes uniform."""
        length = self.every.shape[1]
        grids = torch.zeros([self.vocab] * length, dtype=torch.float64)
        for pattern in self.repeated.unique(dim=0):
            rows = (self.repeated == pattern).all(-1)
            part = torch.where(rows, written, 0.0).reshape([self.vocab] * length)
            for i in torch.nonzero(pattern)[:, 0].tolist():
                part = part.mean(i, keepdim=True).expand([self.vocab] * length)
            grids += part
        return grids.reshape(-1)


def _products(laws: Float[Tensor, "rows length vocab"]) -> Float[Tensor, "rows count"]:
    out = laws.new_ones(len(laws), 1)
    for i in range(laws.shape[1]):
        out = (out[:, :, None] * laws[:, i, None, :]).reshape(len(laws), -1)
    return out


def _as_start(start: Numbers | None, count: int) -> Float[Tensor, " count"]:
    if start is None:
        return torch.full((count,), 1 / count, dtype=torch.float64)
    law = as_floats("start", start, shape=(count,), meaning=f"[{count}], one for each hypothesis")
    if (law < 0).any() or not (law.sum() - 1).abs() < 1e-8:
        raise UserError(
            f"start sums to {law.sum().item():.6g}; it must be a law on all hypotheses",
            parameter="start",
        )
    return law


# ------------------------------------------------------------------ how good it is


def product_of_marginals(table: Table) -> Table:
    """Π_i p_i(y_i): what one parallel step writes when it knows p and nothing of the others."""
    grid = table.log_probs.exp().reshape([table.vocab_size] * table.length)
    rest = [[j for j in range(table.length) if j != i] for i in range(table.length)]
    marginals = torch.stack([grid.sum(axes) if axes else grid for axes in rest])
    return Table(table.vocab_size, table.length, _products(marginals[None])[0].log())


def total_correlation(table: Table) -> float:
    """KL(p ‖ product of its marginals), nats.

    Worked value: 00 and 11 with ½ each: log 2.
    """
    product = product_of_marginals(table)
    return max(0.0, float(kl_divergence(table.log_probs, product.log_probs)))


class Quality(NamedTuple):
    """How far a law of translations is from the truth.

    tv             total variation from the truth
    kl             KL(truth ‖ law), nats; infinite where the law never writes what the truth does
    mixed          probability of a sentence that is written in no single way
    stutter        share of neighbouring tokens that are equal
    word_stutter   share of neighbouring words that are equal, for words of `pieces` tokens
    """

    tv: float
    kl: float
    mixed: float
    stutter: float
    word_stutter: float


def quality(
    law: Numbers, truth: Table, one_way: Bool[Tensor, " count"], *, pieces: Count = 1
) -> Quality:
    """Measure a law on all sequences; `one_way` marks the sentences that do not mix ways."""
    pieces = as_size("pieces", pieces)
    if truth.length % pieces:
        raise UserError(
            f"pieces is {pieces}; it must divide the {truth.length} tokens", parameter="pieces"
        )
    probs = as_floats("law", law, shape=(len(truth.log_probs),), meaning="[count]")
    every = truth.sequences
    words = every.reshape(len(every), -1, pieces)
    return Quality(
        tv=float(total_variation(probs.log(), truth.log_probs)),
        kl=float(kl_divergence(truth.log_probs, probs.log())),
        mixed=float(probs[~one_way].sum()),
        stutter=_expected(probs, every[:, 1:] == every[:, :-1]),
        word_stutter=_expected(probs, (words[:, 1:] == words[:, :-1]).all(-1)),
    )


def _expected(probs: Float[Tensor, " count"], repeated: Bool[Tensor, "count pairs"]) -> float:
    """The expected share of pairs that are repeated; 0 where there are no pairs."""
    if repeated.shape[1] == 0:
        return 0.0
    return float((probs * repeated.double().mean(-1)).sum())
