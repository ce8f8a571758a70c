"""Data for fitting a chain: rows of tokens, and what a pass over them expects.

`ChainData` is for an HMM, `ShownData` for a Markov chain, and `MemoryData` for an HMM with a
memory, one chain for each row and memory. Rows of similar length are read together.

Symbols: 0..V-1 are tokens, V is a hidden one, V + 1 says that the row is over.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.ragged import Ragged
from triptych.core.table import all_sequences
from triptych.fitting.rows import Expected, Parameters
from triptych.structures.hidden_markov.expected_counts import ChainCounts, chain_counts

_BUCKET = 2**14  # tokens of a bucket: in a smaller one, calls would cost more than padding
_CHAINS_AT_ONCE = 2**22  # rows x assignments x positions of one block


@dataclass(frozen=True, eq=False)
class ChainData:
    """Rows for a chain of hidden states.

    Parameters: initial [1, states], transition [states, states], emission [states, vocab].
    """

    ragged: Ragged
    weights: Float[Tensor, " batch"]
    vocab_size: int

    @property
    def rows(self) -> int:
        return len(self.weights)

    @property
    def shown(self) -> int:
        return self.ragged.shown

    def some(self, rows: Int[Tensor, " rows"]) -> "ChainData":
        return type(self)(self.ragged.some(rows), self.weights[rows], self.vocab_size)

    @cached_property
    def symbols(self) -> list[tuple[Int[Tensor, "rows length"], Float[Tensor, " rows"]]]:
        """Rows of similar length with their weights; the lengths of a bucket differ by a third."""
        order = self.ragged.lengths.argsort(descending=True, stable=True)
        lengths = self.ragged.lengths[order].tolist()
        marked = self.ragged.tokens.masked_fill(self.ragged.hidden, self.vocab_size)
        marked = marked.masked_fill(~self.ragged.inside, self.vocab_size + 1)
        buckets, first = [], 0
        for last in range(1, len(lengths) + 1):
            cut = last < len(lengths) and lengths[last] < 0.75 * lengths[first]
            if last == len(lengths) or (cut and (last - first) * lengths[first] >= _BUCKET):
                rows = order[first:last]
                symbols = marked[rows, : lengths[first]].contiguous()
                buckets.append((symbols, self.weights[rows]))
                first = last
        return buckets

    def expected(self, parameters: Parameters) -> Expected:
        """One pass forward and back."""
        initial, transition, emission = (
            parameters[part] for part in ("initial", "transition", "emission")
        )
        table = torch.cat([emission.T, torch.ones_like(initial)])
        found = [
            chain_counts(initial[0], transition, table, symbols, weights)
            for symbols, weights in self.symbols
        ]
        logs = torch.cat([one.log_evidence for one in found])
        weights = torch.cat([weights for _, weights in self.symbols])
        counts = {
            "initial": _sum(found, "first")[None],
            "transition": _sum(found, "pairs"),
            "emission": _sum(found, "emitted")[:-1].T.contiguous(),
        }
        return Expected(weighted(logs, weights), counts)


def weighted(logs: Float[Tensor, " batch"], weights: Float[Tensor, " batch"]) -> float:
    """Σ w_b log p(row b); a row of weight 0 may be impossible."""
    return float(torch.where(weights > 0, weights * logs, 0.0).sum())


def _sum(found: list[ChainCounts], name: str) -> Tensor:
    return torch.stack([getattr(one, name) for one in found]).sum(0)


@dataclass(frozen=True, eq=False)
class ShownData(ChainData):
    """Rows for a Markov chain: what is shown is its state, and counting is all there is to do.

    Parameters: initial [1, vocab], transition [vocab, vocab]. Rows without a hidden token are
    counted once; only the others need messages.
    """

    def expected(self, parameters: Parameters) -> Expected:
        initial, transition = parameters["initial"], parameters["transition"]
        first, pairs = self._counted
        logs = torch.where(first > 0, first * initial.log(), 0.0).sum()
        logs = logs + torch.where(pairs > 0, pairs * transition.log(), 0.0).sum()
        counts = {"initial": first.clone(), "transition": pairs.clone()}
        total = float(logs)
        if self._gaps is not None:
            shown = torch.eye(self.vocab_size, dtype=torch.float64)
            found = self._gaps.expected(parameters | {"emission": shown})
            counts = {part: counts[part] + found.counts[part] for part in counts}
            total += found.log_likelihood
        return Expected(total, counts)

    @cached_property
    def _whole(self) -> Tensor:
        return ~(self.ragged.hidden & self.ragged.inside).any(1)

    @cached_property
    def _gaps(self) -> ChainData | None:
        """The rows with a hidden token."""
        rows = torch.nonzero(~self._whole)[:, 0]
        if not len(rows):
            return None
        return ChainData(self.ragged.some(rows), self.weights[rows], self.vocab_size)

    @cached_property
    def _counted(self) -> tuple[Tensor, Tensor]:
        """First tokens and pairs of the rows without a hidden token, with their weights."""
        rows = torch.nonzero(self._whole)[:, 0]
        tokens, weights, vocab = self.ragged.tokens[rows], self.weights[rows], self.vocab_size
        first = torch.bincount(tokens[:, 0], weights, minlength=vocab)[None]
        both = self.ragged.inside[rows][:, 1:]
        pair = (tokens[:, :-1] * vocab + tokens[:, 1:])[both]
        often = weights[:, None].expand_as(both)[both]
        return first, torch.bincount(pair, often, minlength=vocab**2).reshape(vocab, vocab)


@dataclass(frozen=True, eq=False)
class MemoryData(ChainData):
    """Rows for an HMM with a memory of `cells` cells of `values` values.

    Parameters: memory [1, assignments], initial [1, hidden], transition [hidden, hidden], emission
    [values * hidden, vocab], rows in the order value, cell, syntax.
    """

    values: int = 1
    cells: int = 1

    def some(self, rows: Int[Tensor, " rows"]) -> "MemoryData":
        part = self.ragged.some(rows), self.weights[rows]
        return MemoryData(*part, self.vocab_size, self.values, self.cells)

    def expected(self, parameters: Parameters) -> Expected:
        """Two passes: what each memory explains, and then counts with its posterior as weight."""
        memory, initial = parameters["memory"][0], parameters["initial"][0]
        hidden, vocab, count = len(initial), self.vocab_size, self.values**self.cells
        emission = parameters["emission"].reshape(self.values, hidden, vocab)
        assigned = all_sequences(self.values, self.cells)
        of_state = torch.arange(hidden) // (hidden // self.cells)  # the cell that a state reads
        value = assigned[:, of_state]  # [assignments, hidden]
        given = emission[value, torch.arange(hidden)]  # W(m_j, j, s, x)
        ones = torch.ones((count, 1, hidden), dtype=torch.float64)
        table = torch.cat([given.transpose(1, 2), ones], 1).flatten(0, 1)
        offset = (vocab + 1) * torch.arange(count)
        totals = {part: torch.zeros_like(p) for part, p in parameters.items()}
        emitted = torch.zeros((count, vocab + 1, hidden), dtype=torch.float64)
        logs = 0.0
        for symbols, weights in self.symbols:
            rows = max(1, _CHAINS_AT_ONCE // (count * symbols.shape[1]))
            for own, w in zip(symbols.split(rows), weights.split(rows), strict=True):
                over = (own == vocab + 1)[:, None, :]
                chains = (own[:, None, :] + offset[:, None]).masked_fill(over, len(table))
                chains = chains.flatten(0, 1)
                even = torch.ones(len(chains), dtype=torch.float64)
                alone = chain_counts(initial, parameters["transition"], table, chains, even)
                joint = alone.log_evidence.reshape(-1, count) + memory.log()
                total = joint.logsumexp(-1)
                logs += weighted(total, w)
                if not math.isfinite(logs):
                    return Expected(logs, totals)
                posterior = (joint - total[:, None]).exp() * w[:, None]
                found = chain_counts(
                    initial, parameters["transition"], table, chains, posterior.reshape(-1)
                )
                totals["memory"] += posterior.sum(0)
                totals["initial"] += found.first
                totals["transition"] += found.pairs
                emitted += found.emitted.reshape(count, vocab + 1, hidden)
        by_value = torch.zeros((self.values, hidden, vocab), dtype=torch.float64)
        places = value, torch.arange(hidden).expand_as(value)
        by_value.index_put_(places, emitted[:, :-1].transpose(1, 2), accumulate=True)
        totals["emission"] = by_value.reshape(self.values * hidden, vocab)
        return Expected(logs, totals)
