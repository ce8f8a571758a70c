"""The samplers of a masked oracle as exact laws and matrices: the truth, or a trained network.

A masked oracle on short sequences is a finite table: its answers to all (V + 1)^N contexts, where a
context is a sequence over the tokens and one more symbol, "hidden". From that table every way to
fill the hidden positions of a context has an exact law,

    F[e, y] = P(the context e is filled to the sequence y),

and every chain that hides a block and fills it has an exact transition matrix,

    P[x, y] = Σ_K p(K | x) F[x with K hidden, y],

also for conditionals that belong to no joint law, as those of a network. What such a sampler
returns after any number of steps, and in the long run, is then known without sampling.

Notation
--------
V   vocabulary   N   length          count = V^N sequences, contexts = (V + 1)^N
e   context      [contexts], lexicographic, with V for a hidden position
m   m[e, i, w] = log p(x_i = w | e)     [contexts, length, vocab]
F   law of the filled sequence       [contexts, count]
P   transition matrix                [count, count]
π   stationary law, π P = π          [count]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Masked
from triptych.core.table import all_sequences, places
from triptych.core.validation import ImpossibleEvidence, check_count, check_shape
from triptych.inference.chains.gibbs import Order, check_choice
from triptych.inference.chains.parallel import Reveal, most_confident
from triptych.theory.masking.parallel import site_products

MAX_ENTRIES = 2**27  # of one dense matrix
_ROWS_AT_ONCE = 2**14
_LEAST = 1e-290  # what leaves a state, at least: below, digits are lost


@dataclass(frozen=True, eq=False)
class Conditionals:
    """Every answer of a masked oracle; itself a masked oracle.

    log_probs[e, i, w] = log p(x_i = w | e), read where i is hidden in e; a context of probability 0
    has only -inf.
    """

    vocab_size: int
    length: int
    log_probs: Float[Tensor, "contexts length vocab"]

    @classmethod
    @renamed(oracle="lm")
    def of(cls, lm: Masked, length: int, *, device: torch.device | str = "cpu") -> "Conditionals":
        """Ask about all (V + 1)^N contexts: 9 for two bits, 6561 for eight.

        `device` is where the oracle answers; the table is kept on the CPU.
        """
        check_count("length", length, at_least=1)
        vocab = lm.vocab_size
        if (vocab + 1) ** length * vocab**length > MAX_ENTRIES:
            raise ValueError(
                f"{vocab + 1}^{length} contexts of {vocab}^{length} sequences are too many to "
                "tabulate; use a shorter sequence or a smaller vocabulary"
            )
        every = all_sequences(vocab + 1, length, device)
        answers = [_answers(lm, part, vocab) for part in every.split(_ROWS_AT_ONCE)]
        return cls(vocab, length, torch.cat(answers))

    @cached_property
    def contexts(self) -> Int[Tensor, "contexts length"]:
        return all_sequences(self.vocab_size + 1, self.length)

    @cached_property
    def sequences(self) -> Int[Tensor, "count length"]:
        return all_sequences(self.vocab_size, self.length)

    @cached_property
    def hidden(self) -> Bool[Tensor, "contexts length"]:
        return self.contexts == self.vocab_size

    @cached_property
    def at_once(self) -> Float[Tensor, "contexts count"]:
        """Π_i m(y_i | e) over the hidden i, where y agrees with what e shows."""
        out = _agrees(self)
        for i in range(self.length):
            probs = self.log_probs[:, i].exp()[:, self.sequences[:, i]]
            out = torch.where(self.hidden[:, i, None], out * probs, out)
        return out

    def rank(
        self, tokens: Int[Tensor, "rows length"], hidden: Bool[Tensor, "rows length"]
    ) -> Int[Tensor, " rows"]:
        """Which context this is."""
        seen = tokens.masked_fill(hidden, self.vocab_size)
        return (seen * places(self.vocab_size + 1, self.length)).sum(-1)

    def masked_log_probs(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        """Look the answers up."""
        return self.possible(self.rank(tokens, hidden))

    def possible(self, contexts: Int[Tensor, " rows"]) -> Float[Tensor, "rows length vocab"]:
        """The answers for these contexts; one of probability 0 raises."""
        found = self.log_probs[contexts]
        dead = torch.isneginf(found).all(-1).any(-1)
        if dead.any():
            seen = self.contexts[contexts[dead][0]].tolist()
            shown = "".join("?" if w == self.vocab_size else str(w) for w in seen)
            raise ImpossibleEvidence(
                f"the oracle gives probability 0 to {shown}, so a sampler that stands there has no "
                "next step; transition matrices need conditionals for every context"
            )
        return found


def _answers(lm: Masked, seen: Int[Tensor, "rows length"], vocab: int) -> Tensor:
    """masked_log_probs, with -inf for the rows that the oracle calls impossible."""
    hidden = seen == vocab
    try:
        return lm.masked_log_probs(seen.masked_fill(hidden, 0), hidden).double().cpu()
    except ImpossibleEvidence:
        if len(seen) == 1:
            return torch.full((1, seen.shape[1], vocab), -torch.inf, dtype=torch.float64)
        half = len(seen) // 2
        return torch.cat([_answers(lm, part, vocab) for part in (seen[:half], seen[half:])])


# ------------------------------------------------------------------ filling a context


def filled_in_turn(
    conditionals: Conditionals, order: Order = "left to right"
) -> Float[Tensor, "contexts count"]:
    """F of drawing one hidden position after another, each given those before.

    F[e] = Σ_i w(i | e) Σ_v m(v | e, i) F[e with v at i], where w picks the first hidden position or
    a uniform one. Worked value: two bits whose oracle says ½ for both when nothing is shown, x_1
    fair given x_0, and x_0 = x_1 with 0.8 given x_1: 00 has ¼ from the left and ½ (¼ + ½ · 0.8) =
    0.325 in random order.
    """
    check_choice("order", order, get_args(Order))
    vocab, hidden = conditionals.vocab_size, conditionals.hidden
    place = places(vocab + 1, conditionals.length)
    out = _agrees(conditionals).masked_fill(hidden.any(-1)[:, None], 0.0)
    first = hidden & (hidden.cumsum(-1) == 1)
    counts = hidden.sum(-1)
    for count in range(1, conditionals.length + 1):
        for i in range(conditionals.length):
            next_one = first[:, i] if order == "left to right" else hidden[:, i]
            rows = torch.nonzero(next_one & (counts == count))[:, 0]
            probs = conditionals.log_probs[rows, i].exp()
            probs = probs if order == "left to right" else probs / count
            for v in range(vocab):
                out[rows] += probs[:, v, None] * out[rows - (vocab - v) * place[i]]
    return out


def filled_at_once(conditionals: Conditionals) -> Float[Tensor, "contexts count"]:
    """F of drawing all hidden positions independently from one answer: Π_i m(y_i | e).

    Worked value: the oracle of two bits above: ¼ for each pair.
    """
    return conditionals.at_once


def unmask_law(
    conditionals: Conditionals, schedule: Sequence[int], order: Reveal = "random"
) -> Float[Tensor, " count"]:
    """The law of `parallel.unmask` from nothing shown.

    Every round moves the law on contexts: fill all that is hidden, and keep what the order reveals.
    Worked value: independent bits with P(1) = 0.1 and 0.4, one a round by confident tokens:
    P(x_0 = 1) = 0.01.
    """
    if sum(schedule) != conditionals.length or min(schedule) < 1:
        raise ValueError(
            f"the schedule {list(schedule)} must be of positive numbers that sum to the "
            f"{conditionals.length} positions"
        )
    filled, hidden = filled_at_once(conditionals), conditionals.hidden
    law = torch.zeros(len(hidden), dtype=torch.float64)
    law[-1] = 1.0  # everything hidden is the last context
    for count in schedule:
        after = torch.zeros_like(law)
        at = torch.nonzero(law > 0)[:, 0]
        conditionals.possible(at)
        context, y = torch.nonzero(filled[at] > 0, as_tuple=True)
        context = at[context]
        mass = law[context] * filled[context, y]
        tokens, left = conditionals.sequences[y], hidden[context]
        for weight, now in _revealed(conditionals, context, tokens, left, count, order):
            after.index_add_(0, conditionals.rank(tokens, left & ~now), mass * weight)
        law = after
    y = conditionals.sequences
    return law[conditionals.rank(y, torch.zeros_like(y, dtype=torch.bool))]


def _revealed(
    conditionals: Conditionals,
    context: Int[Tensor, " rows"],
    tokens: Int[Tensor, "rows length"],
    left: Bool[Tensor, "rows length"],
    count: int,
    order: Reveal,
) -> list[tuple[Float[Tensor, " rows"], Bool[Tensor, "rows length"]]]:
    """Sets of positions that a round may keep, with their probabilities."""
    one = torch.ones(len(context), dtype=torch.float64)
    check_choice("order", order, get_args(Reveal))
    if order == "random":
        sets = all_sequences(2, conditionals.length).bool()
        sets = sets[sets.sum(-1) == count]
        inside = [(~now | left).all(-1).double() for now in sets]
        total = torch.stack(inside).sum(0)
        return [(w / total, now & left) for w, now in zip(inside, sets, strict=True)]
    if order == "left to right":
        return [(one, left & (left.cumsum(-1) <= count))]
    laws = conditionals.log_probs[context]
    if order == "confident position":
        return [(one, most_confident(laws.amax(-1).exp(), left, count))]
    drawn = laws.gather(-1, tokens[..., None])[..., 0]
    return [(one, most_confident(drawn.exp(), left, count))]


def _agrees(conditionals: Conditionals) -> Float[Tensor, "contexts count"]:
    """1 where the sequence is equal to the context at its shown positions."""
    every, y = conditionals.contexts, conditionals.sequences
    out = torch.ones((len(every), len(y)), dtype=torch.float64)
    for i in range(conditionals.length):
        same = every[:, i, None] == y[:, i]
        out *= (same | conditionals.hidden[:, i, None]).double()
    return out


# ------------------------------------------------------------------ transition matrices


def block_matrix(
    conditionals: Conditionals, masks: MaskLaw, filled: Float[Tensor, "contexts count"]
) -> Float[Tensor, "count count"]:
    """P[x, y] = Σ_K p(K | x) F[x with K hidden, y], for any way F to fill a context.

    `filled_in_turn` makes it block Gibbs, `filled_at_once` `parallel.block_step`. Where the blocks
    look at the sequence this is the chain that draws as if they did not.
    """
    out = torch.zeros((filled.shape[1],) * 2, dtype=torch.float64)
    for probs, context in _blocks(conditionals, masks):
        out += probs[:, None] * filled[context]
    return out


def gibbs_matrix(
    conditionals: Conditionals, masks: MaskLaw, order: Order = "left to right"
) -> Float[Tensor, "count count"]:
    """P of `gibbs.step`; with blocks that look at the sequence, the one with p(K | x_K) in it.

    Worked value: p uniform on {00, 11} and the block of both: every row is (½, 0, 0, ½).
    """
    filled = filled_in_turn(conditionals, order)
    if not masks.adaptive:
        return block_matrix(conditionals, masks, filled)
    out = torch.zeros((filled.shape[1],) * 2, dtype=torch.float64)
    for probs, context in _blocks(conditionals, masks):
        weight = filled[context] * probs  # F[e, y] p(K | y)
        total = weight.sum(-1, keepdim=True)  # 0 only where K is never drawn: p(K | x) = 0 too
        out += probs[:, None] * weight / total.masked_fill(total == 0, 1.0)
    return out


def independent_matrix(conditionals: Conditionals) -> Float[Tensor, "count count"]:
    """P[x, y] = Π_i p(y_i | x_-i) of `parallel.independent_step`."""
    x, sites = conditionals.sequences, torch.eye(conditionals.length, dtype=torch.bool)
    laws = [
        conditionals.masked_log_probs(x, alone.expand_as(x))[:, i] for i, alone in enumerate(sites)
    ]
    return site_products(torch.stack(laws, dim=1).exp())


def _blocks(
    conditionals: Conditionals, masks: MaskLaw
) -> list[tuple[Float[Tensor, " count"], Int[Tensor, " count"]]]:
    """For every block: p(K | x), and the context that x becomes."""
    x = conditionals.sequences
    if masks.length != conditionals.length:
        raise ValueError(
            f"blocks of {masks.length} positions on sequences of {conditionals.length}"
        )
    probs = masks.log_prob(x).exp()
    found = []
    for m, block in enumerate(masks.blocks):
        context = conditionals.rank(x, block.expand_as(x))
        conditionals.possible(context[probs[:, m] > 0])
        found.append((probs[:, m], context))
    return found


# ------------------------------------------------------------------ what a chain does


def stationary_law(matrix: Float[Tensor, "count count"]) -> Float[Tensor, " count"]:
    """π with πP = π, reversible or not; 0 on states that the chain leaves forever.

    By elimination of one state after another without subtractions (Grassmann, Taksar, Heyman), so
    that chains which hardly mix are right to rounding too. Where there are several such laws, as
    when the chain falls apart, it raises. Worked value: P = ((½, ½), (¼, ¾)): π = (⅓, ⅔).
    """
    check_shape("matrix", matrix, (len(matrix),) * 2, "a transition matrix")
    off = (matrix.sum(-1) - 1).abs().max()
    if not off < 1e-6 or (matrix < 0).any():
        raise ValueError(f"the rows of a transition matrix must be laws; one is off by {off:.3g}")
    closed = _closed_classes(matrix)
    if len(closed) > 1:
        ends = " and ".join(str(int(members[0])) for members in closed[:2])
        raise ValueError(
            f"the chain has {len(closed)} closed classes of states (numbers {ends} never meet), so "
            "its long-run law depends on the start; use law_after"
        )
    members = closed[0]
    p = matrix[members][:, members].numpy().copy()
    for n in range(len(p) - 1, 0, -1):
        away = p[n, :n].sum()
        if not away >= _LEAST:
            raise ValueError(
                f"state {int(members[n])} is left with a probability of {away:.3g} a step, which "
                f"is too small for floats: the long-run law needs at least {_LEAST:g}"
            )
        p[:n, n] /= away
        p[:n, :n] += p[:n, n, None] * p[n, :n]
    law = np.ones(len(p))
    for n in range(1, len(p)):
        law[n] = law[:n] @ p[:n, n]
        law[: n + 1] /= max(1.0, law[n])  # the largest stays 1: no overflow
    out = torch.zeros(len(matrix), dtype=torch.float64)
    out[members] = torch.from_numpy(law / law.sum())
    return out


def _closed_classes(matrix: Float[Tensor, "count count"]) -> list[Int[Tensor, " members"]]:
    """Sets of states that reach one another and nothing else."""
    graph = scipy.sparse.csr_array((matrix > 0).numpy())
    count, label = scipy.sparse.csgraph.connected_components(graph, connection="strong")
    start, end = graph.nonzero()
    leaving = set(label[start][label[start] != label[end]].tolist())
    return [torch.from_numpy(np.flatnonzero(label == c)) for c in range(count) if c not in leaving]


def law_after(
    matrix: Float[Tensor, "count count"], start: Float[Tensor, " count"], steps: Sequence[int]
) -> Float[Tensor, "moments count"]:
    """The law after each number of steps, which must not decrease; no row for no number.

    Worked value: P = ((½, ½), (¼, ¾)) from state 0: (½, ½) after one step, (3/8, 5/8) after two.
    """
    if any(b < a for a, b in zip([0, *steps], steps, strict=False)):
        raise ValueError(f"steps are {list(steps)}; they must not be negative nor decrease")
    law, done, found = start, 0, []
    for wanted in steps:
        for _ in range(wanted - done):
            law = law @ matrix
        done = wanted
        found.append(law)
    return torch.stack(found) if found else start.new_empty((0, len(start)))


def distances(
    laws: Float[Tensor, "moments count"], truth: Float[Tensor, " count"]
) -> Float[Tensor, " moments"]:
    """TV of each law to the truth."""
    return 0.5 * (laws - truth).abs().sum(-1)


def irreversibility(matrix: Float[Tensor, "count count"], law: Float[Tensor, " count"]) -> float:
    """TV between the moves of a chain in its law and the same moves seen backwards.

    ½ Σ |π(x) P(x, y) - π(y) P(y, x)|, 0 for a reversible chain. Worked value: a chain that goes
    round three states, P(0, 1) = P(1, 2) = P(2, 0) = 1, never comes back the way it went: 1.
    """
    flow = law[:, None] * matrix
    return float(0.5 * (flow - flow.T).abs().sum())
