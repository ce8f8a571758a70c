"""Data for fitting an Ising model: the exact likelihood, and masked prediction where it has none.

Parameters θ: the fields that are free, then the free couplings J_ij, i < j. The features T(x) are
s_i and s_i s_j, so log p_θ(x) = θ·T(x) - log Z.

    exact             Σ_b w_b log p(what row b shows), gradient Σ_b w_b (E[T | shown] - E T)
    pseudolikelihood  Σ_b w_b Σ_K p(K | x_b) log p(x_K | x_-K, K) [li, Defs 4.1.2, 4.1.3]

The covariance of the exact estimate is the inverse of the observed information. That of masked
prediction, with all masks of every row, is the sandwich of [li, Lemma 4.1.1],

    H⁻¹ V H⁻¹ / n,   H = mean of Σ_K p(K | x) Cov(T | x_-K, K),   V = mean of g gᵀ

with g = Σ_K p(K | x) g_K and g_K = T(x) - E[T | x_-K, K]. `theory.masking.information` has the
same at a truth.

Notation
--------
w   weights  [batch]        s   spins  [batch, length]        K   a block of positions
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import all_sequences, rows_by_pattern

_LOW_SPINS = 16
_STATES_AT_ONCE = 2**_LOW_SPINS


@dataclass(frozen=True, eq=False)
class SpinData:
    """Rows of spins, and which parameters are free.

    fields, pairs   positions whose field is free, and pairs whose coupling is
    fixed_field, fixed_coupling   the rest of the model
    """

    tokens: Int[Tensor, "batch length"]
    hidden: Bool[Tensor, "batch length"]
    weights: Float[Tensor, " batch"]
    fields: Int[Tensor, " free_fields"]
    pairs: Int[Tensor, "2 free_pairs"]
    fixed_field: Float[Tensor, " length"]
    fixed_coupling: Float[Tensor, "length length"]

    @property
    def length(self) -> int:
        return self.tokens.shape[1]

    @property
    def size(self) -> int:
        return len(self.fields) + self.pairs.shape[1]

    @property
    def total(self) -> float:
        return float(self.weights.sum())

    @property
    def names(self) -> list[str]:
        fields = [f"field[{i}]" for i in self.fields.tolist()]
        return fields + [f"coupling[{i}, {j}]" for i, j in self.pairs.T.tolist()]

    def some(self, rows: Int[Tensor, " rows"]) -> "SpinData":
        part = self.tokens[rows], self.hidden[rows], self.weights[rows]
        free = self.fields, self.pairs, self.fixed_field, self.fixed_coupling
        return SpinData(*part, *free)

    def model(self, theta: Float[Tensor, " d"]) -> tuple[Tensor, Tensor]:
        """Field and coupling of some parameters."""
        field, coupling = self.fixed_field.clone(), self.fixed_coupling.clone()
        field[self.fields] = theta[: len(self.fields)]
        i, j = self.pairs
        coupling[i, j] = coupling[j, i] = theta[len(self.fields) :]
        return field, coupling

    def theta(self, field: Tensor, coupling: Tensor) -> Float[Tensor, " d"]:
        """The free parameters of a model."""
        return torch.cat([field[self.fields], coupling[self.pairs[0], self.pairs[1]]])

    def chosen(self, first: Tensor, second: Tensor) -> Float[Tensor, "*rows d"]:
        """What belongs to θ of values per position and per pair."""
        i, j = self.pairs
        return torch.cat([first[..., self.fields], second[..., i, j]], -1)

    # ------------------------------------------------------------------ the exact likelihood

    def exact(self, theta: Float[Tensor, " d"]) -> tuple[float, Float[Tensor, " d"]]:
        """Σ_b w_b log p(shown) and its gradient, by enumerating what is not shown."""
        field, coupling = self.model(theta)
        log_z, first, second = _moments(field, coupling)
        value, seen = -self.total * log_z, -self.total * self.chosen(first, second)
        if not self.hidden.any():  # θ·T, and what the fixed parameters add, of the sums of T alone
            first, second = self._sums
            value += float(field @ first) + 0.5 * float((coupling * second).sum())
            return value, seen + self.chosen(first, second)
        for rows, pattern in self.patterns:
            log_sum, own_first, own_second = _shown_moments(
                field, coupling, self.tokens[rows], pattern
            )
            weights = self.weights[rows]
            value += float(weights @ log_sum)
            seen = seen + weights @ self.chosen(own_first, own_second)
        return value, seen

    def covariance(self, theta: Float[Tensor, " d"]) -> Float[Tensor, "d d"]:
        """Cov(T) under the model, by all states: the Fisher information of one row."""
        field, coupling = self.model(theta)
        log_z = _moments(field, coupling)[0]
        mean = torch.zeros(self.size, dtype=torch.float64)
        square = torch.zeros((self.size, self.size), dtype=torch.float64)
        i, j = self.pairs
        for inner in _states(self.length):
            logs = 0.5 * ((inner @ coupling) * inner).sum(-1) + inner @ field
            features = torch.cat([inner[:, self.fields], inner[:, i] * inner[:, j]], 1)
            weighted = (logs - log_z).exp()[:, None] * features
            mean += weighted.sum(0)
            square += weighted.T @ features
        return square - torch.outer(mean, mean)

    @cached_property
    def _sums(self) -> tuple[Float[Tensor, " length"], Float[Tensor, "length length"]]:
        """Σ_b w_b s and Σ_b w_b s sᵀ."""
        spins = (2 * self.tokens - 1).double()
        return self.weights @ spins, (self.weights[:, None] * spins).T @ spins

    @cached_property
    def patterns(self) -> list[tuple[Int[Tensor, " rows"], Bool[Tensor, " length"]]]:
        """Rows with the same hidden positions; rows of one pattern at most some thousands."""
        found = []
        for same, pattern in rows_by_pattern(self.hidden):
            rows = torch.nonzero(same)[:, 0]
            each = max(1, _STATES_AT_ONCE // (2 ** int(pattern.sum()) * self.length))
            found += [(part, pattern) for part in rows.split(each)]
        return found

    # ------------------------------------------------------------------ masked prediction

    def masked(
        self, theta: Float[Tensor, " d"], masks: MaskLaw
    ) -> tuple[float, Float[Tensor, " d"]]:
        """Σ_b w_b Σ_K p(K | x_b) log p(x_K | x_-K, K) and its gradient."""
        value, scores, _ = self._blocks(theta, masks, curvature=False)
        return float(self.weights @ value), self.weights @ scores

    def sandwich(
        self, theta: Float[Tensor, " d"], masks: MaskLaw
    ) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d d"]]:
        """H and V of the module docstring, as means over the rows."""
        _, scores, hessian = self._blocks(theta, masks, curvature=True)
        share = self.weights / self.total
        return hessian / self.total, (share[:, None] * scores).T @ scores

    def _blocks(
        self, theta: Float[Tensor, " d"], masks: MaskLaw, *, curvature: bool
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch d"], Float[Tensor, "d d"]]:
        """Per row, Σ_K p(K | x) of the log-probability and of g_K; and Σ_b w_b of Cov(T)."""
        field, coupling = self.model(theta)
        n, spins = len(self.tokens), (2 * self.tokens - 1).double()
        log_masks = masks.log_prob(self.tokens)
        value = torch.zeros(n, dtype=torch.float64)
        scores = torch.zeros((n, self.size), dtype=torch.float64)
        hessian = torch.zeros((self.size, self.size), dtype=torch.float64)
        for m, block in enumerate(masks.blocks):
            at = torch.nonzero(block)[:, 0]
            if not len(at):
                continue
            states = all_sequences(2, len(at))
            inner = (2 * states - 1).double()
            rest = spins.masked_fill(block, 0.0)
            pull = field[at] + rest @ coupling[:, at]
            within = 0.5 * ((inner @ coupling[at][:, at]) * inner).sum(-1)
            logits = pull @ inner.T + within
            if masks.adaptive:
                logits = logits + torch.stack(
                    [
                        masks.log_prob(self.tokens.index_copy(1, at, row.expand(n, -1)))[:, m]
                        for row in states
                    ],
                    1,
                )
            law = logits.log_softmax(-1)
            true = (self.tokens[:, at] * 2 ** torch.arange(len(at) - 1, -1, -1)).sum(-1)
            weight = log_masks[:, m].exp()
            value += weight * law.gather(1, true[:, None])[:, 0].nan_to_num(neginf=-1e300)
            touched = self._touching(block)
            features = self._features(spins, at, inner, touched)  # [n, states, touched]
            probs = law.exp()
            mean = torch.einsum("ns,nsf->nf", probs, features)
            own = features.gather(1, true[:, None, None].expand(-1, 1, features.shape[2]))[:, 0]
            scores[:, touched] += weight[:, None] * (own - mean)
            if curvature:
                centred = features - mean[:, None]
                scaled = (self.weights * weight)[:, None, None] * probs[..., None] * centred
                hessian[touched[:, None], touched] += torch.einsum("nsf,nsg->fg", scaled, centred)
        return value, scores, hessian

    def _touching(self, block: Bool[Tensor, " length"]) -> Int[Tensor, " touched"]:
        """The parameters whose feature changes with the block."""
        i, j = self.pairs
        return torch.nonzero(torch.cat([block[self.fields], block[i] | block[j]]))[:, 0]

    def _features(
        self, spins: Tensor, at: Tensor, inner: Tensor, touched: Tensor
    ) -> Float[Tensor, "n states touched"]:
        """T of every row with every state of the block in it."""
        count = len(self.fields)
        full = spins[:, None].expand(-1, len(inner), -1).clone()
        full[:, :, at] = inner
        first = full[..., self.fields[touched[touched < count]]]
        i, j = self.pairs[:, touched[touched >= count] - count]
        return torch.cat([first, full[..., i] * full[..., j]], -1)


def _moments(field: Tensor, coupling: Tensor) -> tuple[float, Tensor, Tensor]:
    """log Z, E[s] and E[s sᵀ], by all states of the spins."""
    nothing = torch.zeros((1, len(field)), dtype=torch.long)
    log_z, first, second = _shown_moments(
        field, coupling, nothing, torch.ones(len(field), dtype=torch.bool)
    )
    return float(log_z[0]), first[0], second[0]


def _shown_moments(
    field: Float[Tensor, " length"],
    coupling: Float[Tensor, "length length"],
    tokens: Int[Tensor, "rows length"],
    pattern: Bool[Tensor, " length"],
) -> tuple[
    Float[Tensor, " rows"], Float[Tensor, "rows length"], Float[Tensor, "rows length length"]
]:
    """log Σ exp(weight), E[s] and E[s sᵀ] over the states of the hidden spins, for every row.

    With hidden spins u and shown ones v, weights are uᵀ(h + J v) + ½ uᵀJu and a number of v alone.
    """
    at = torch.nonzero(pattern)[:, 0]
    rows = len(tokens)
    spins = (2 * tokens - 1).double().masked_fill(pattern, 0.0)
    alone = 0.5 * ((spins @ coupling) * spins).sum(-1) + spins @ field
    pull = field[at] + spins @ coupling[:, at]
    log_sum = torch.full((rows,), -torch.inf, dtype=torch.float64)
    first = torch.zeros((rows, len(at)), dtype=torch.float64)
    second = torch.zeros((rows, len(at), len(at)), dtype=torch.float64)
    for inner in _states(len(at)):  # sums so far are relative to their logarithm
        logs = pull @ inner.T + 0.5 * ((inner @ coupling[at][:, at]) * inner).sum(-1)
        new = torch.logaddexp(log_sum, logs.logsumexp(-1))
        old = (log_sum - new).exp()
        probs = (logs - new[:, None]).exp()
        first = first * old[:, None] + probs @ inner
        if rows == 1:
            outer = ((inner * probs[0, :, None]).T @ inner)[None]
        else:
            outer = probs @ (inner[:, :, None] * inner[:, None, :]).flatten(1)
            outer = outer.unflatten(1, (len(at), len(at)))
        second = second * old[:, None, None] + outer
        log_sum = new
    every = spins.clone()
    every[:, at] = first
    both = every[:, :, None] * every[:, None, :]
    both[:, at[:, None], at] = second
    return log_sum + alone, every, both


def _states(spins: int) -> Iterator[Float[Tensor, "states spins"]]:
    """All states of some spins, in lexicographic order, 2^16 at a time at most."""
    low = min(spins, _LOW_SPINS)
    few = _few_states(low)
    for high in _few_states(spins - low):
        yield torch.cat([high.expand(len(few), -1), few], 1) if spins > low else few


@lru_cache(maxsize=32)
def _few_states(spins: int) -> Float[Tensor, "states spins"]:
    return (2 * all_sequences(2, spins) - 1).double()
