"""The ideal refiner: what the best possible network answers under the training of PaDIR, exactly.

In training a network reads a corrupted target h and predicts the target y [li, 4.2.2.2]. Its loss
is a cross-entropy at each position, so the best answer is the posterior

    f_i(v | h) = P(y_i = v | h) ∝ Σ_y p(y) [y_i = v] q(h | y),

where q(h | y) says how h is made from y:

    one stage    every token of y is kept with probability r and is uniform otherwise [li, fn. 17]:
                 q_1(h | y) = Π_i (r [h_i = y_i] + (1 - r) / V)
    two stages   half of the loss reads the network's own answer to such a hypothesis:
                 q = ½ q_1 + ½ q_2,   q_2(h | y) = Σ_h0 q_1(h0 | y) [argmax f(h0) = h]

With two stages f appears on both sides: the ideal refiner is a fixed point, found by iterating.

All V^N hypotheses are listed, so sentences must be short.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.table import Table, all_sequences, places
from triptych.core.validation import (
    Count,
    Number,
    Numbers,
    Tokens,
    UserError,
    as_count,
    as_floats,
    as_integers,
    as_probability,
    as_size,
    as_tokens,
    check_room,
    set_fields,
)
from triptych.inference.answers import check_sums
from triptych.inference.chains.refinement import SAME, Refiner

MAX_HYPOTHESES = 2**20


@dataclass(frozen=True, eq=False)
class TabledRefiner:
    """A refiner given by its answers to all hypotheses, in lexicographic order.

    log_laws[rank of h, i, v] = log f_i(v | h)
    """

    log_laws: Float[Tensor, "hypotheses length vocab"]

    def __post_init__(self) -> None:
        laws = as_floats("log_laws", self.log_laws, shape=(None, None, None), finite=False)
        hypotheses, length, vocab = laws.shape
        if hypotheses != vocab**length:
            raise UserError(
                f"log_laws has shape {tuple(laws.shape)}; {length} positions and {vocab} tokens "
                f"have {vocab**length} hypotheses",
                parameter="log_laws",
            )
        check_sums(laws, "log_laws", lambda k: f"for hypothesis {k // length}")
        set_fields(self, log_laws=laws)

    @classmethod
    @renamed(vocab="vocab_size")
    def of(cls, refiner: Refiner, vocab_size: Count, length: Count) -> "TabledRefiner":
        """The answers of any refiner, asked about every hypothesis."""
        every = hypotheses(vocab_size, length)
        lengths = torch.full((len(every),), every.shape[1])
        return cls(refiner.log_probs(every, lengths).double().log_softmax(-1))

    @property
    def vocab_size(self) -> int:
        return self.log_laws.shape[2]

    @property
    def length(self) -> int:
        return self.log_laws.shape[1]

    def log_probs(
        self, hypotheses: Tokens, lengths: Numbers
    ) -> Float[Tensor, "batch length vocab"]:
        rows = as_tokens(hypotheses, self.vocab_size, length=self.length, name="hypotheses")
        if (as_integers("lengths", lengths, dimensions=1) != self.length).any():
            raise UserError(f"every row of this refiner has {self.length} tokens")
        return self.log_laws[(rows * places(self.vocab_size, self.length)).sum(-1)]

    @property
    def answers(self) -> Int[Tensor, "hypotheses length"]:
        """The most probable tokens for every hypothesis; of equal ones the lowest."""
        best = self.log_laws.amax(-1, keepdim=True) - SAME
        return (self.log_laws >= best).to(torch.uint8).argmax(-1)


class Ideal(NamedTuple):
    """The ideal refiner, and how it was found.

    rounds    rounds of the fixed-point iteration: 0 for one stage
    settled   the last two rounds have the same answers; else they repeat in a cycle, and the last
              round is taken
    """

    refiner: TabledRefiner
    rounds: int
    settled: bool


@renamed(vocab="vocab_size")
def hypotheses(vocab_size: Count, length: Count) -> Int[Tensor, "count length"]:
    """Every sequence of this many tokens, as long as they can be listed."""
    vocab_size, length = as_size("vocab_size", vocab_size), as_size("length", length)
    if vocab_size**length > MAX_HYPOTHESES:
        raise UserError(
            f"{vocab_size} tokens and {length} positions make {vocab_size}^{length} hypotheses; at "
            f"most {MAX_HYPOTHESES} are listed"
        )
    return all_sequences(vocab_size, length)


@renamed(vocab="vocab_size")
def corruption(
    targets: Tokens, vocab_size: Count, right: Number = 0.15
) -> Float[Tensor, "targets hypotheses"]:
    """q_1(h | y): each token of y is kept with probability `right`, and is uniform otherwise.

    Worked value: y = 0 0, two words, r = 0: every hypothesis has ¼. r = 1: h = y.
    """
    vocab_size, right = as_size("vocab_size", vocab_size), as_probability("right", right)
    rows = as_tokens(targets, vocab_size, name="targets")
    every = hypotheses(vocab_size, rows.shape[1])
    check_room("the corruption", len(rows), len(every))
    law = torch.ones((len(rows), len(every)), dtype=torch.float64)
    for i in range(rows.shape[1]):
        law *= right * (rows[:, i, None] == every[:, i]).double() + (1 - right) / vocab_size
    return law


def ideal_refiner(
    table: Table, *, right: Number = 0.15, stages: Count = 1, max_rounds: Count = 50
) -> Ideal:
    """The Bayes-optimal refiner of the law `table` under the corruption of training.

    Hypotheses that training never makes (r = 1) are answered by the marginals.

    Worked value: one position, p = (½, ½), two words: f(0 | h = 0) = (1 + r) / 2.
    """
    if not isinstance(table, Table):
        raise UserError(
            f"table is a {type(table).__name__}; it must be a Table: Table.of makes one",
            parameter="table",
        )
    right = as_probability("right", right)
    stages = as_count("stages", stages, at_least=1, at_most=2)
    max_rounds = as_count("max_rounds", max_rounds, at_least=1)
    targets = table.support
    log_p = table.log_prob(targets)
    first = corruption(targets, table.vocab_size, right)
    refiner = _posterior(targets, log_p, first, table.vocab_size)
    if stages == 1:
        return Ideal(refiner, 0, True)
    seen: list[Tensor] = []
    for number in range(1, max_rounds + 1):
        answers = (refiner.answers * places(table.vocab_size, table.length)).sum(-1)
        if any(torch.equal(answers, earlier) for earlier in seen):
            return Ideal(refiner, number - 1, torch.equal(answers, seen[-1]))
        seen.append(answers)
        second = torch.zeros_like(first).index_add_(1, answers, first)
        refiner = _posterior(targets, log_p, (first + second) / 2, table.vocab_size)
    return Ideal(refiner, max_rounds, False)


def _posterior(
    targets: Int[Tensor, "targets length"],
    log_p: Float[Tensor, " targets"],
    law: Float[Tensor, "targets hypotheses"],
    vocab: int,
) -> TabledRefiner:
    """log P(y_i = v | h) for every h, given q(h | y)."""
    joint = (law * log_p.exp()[:, None]).T
    joint = torch.where(joint.sum(-1, keepdim=True) > 0, joint, log_p.exp())
    points = torch.nn.functional.one_hot(targets, vocab).double().flatten(1)
    found = (joint @ points).reshape(len(joint), targets.shape[1], vocab)
    return TabledRefiner((found / found.sum(-1, keepdim=True)).log())
