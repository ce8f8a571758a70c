"""What a parallel step loses: the dependence between the positions that it writes together.

A step that writes the positions K at once draws each from its own law given what is shown. It loses

    C(K) = Σ_{i in K} H(x_i | shown) - H(x_K | shown) = KL( p(x_K | shown) ‖ Π_i p(x_i | shown) ),

their total correlation. In an order of K it is a sum of parts, one for each position,

    C(K) = Σ_i I( x_i ; earlier positions | shown ),

and C(K) ≥ Σ I(x_i ; x_j) over the edges of any tree on K. Where all continuations can be listed,
everything is exact. Elsewhere a masked oracle is asked along draws of its own chain: it writes K
position by position, and the parts are means of log p(x_i | shown, earlier) - log p(x_i | shown).

A network has no joint law. Its chains in two orders may disagree; the numbers are those of the law
that the chain in this order writes.

    dependence        of the hidden positions of one row
    path_dependence   of every step of a recorded sampler: where parallel writing was free

Notation
--------
K   hidden positions, k of them      I(i, j)   mutual information of two positions, given the shown
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.display import card, facts_table
from triptych.core.estimates import Estimate, mean
from triptych.core.protocols import Masked
from triptych.core.randomness import RngLike, as_rng
from triptych.core.table import all_sequences
from triptych.core.validation import (
    Count,
    Hidden,
    Tokens,
    UserError,
    as_count,
    as_masked,
    as_size,
    check_can,
    raise_if_impossible,
)
from triptych.diffusion.sampler import Denoised

MOST_CONTINUATIONS = 2**16
_ROWS_AT_ONCE = 2**12


@runtime_checkable
class ScoresTexts(Masked, Protocol):
    """A masked oracle with a joint law that it can be asked for."""

    def log_prob(self, tokens: Int[Tensor, "batch length"], /) -> Float[Tensor, " batch"]:
        """log p(x) of whole rows."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Dependence:
    """What writing some positions of a row at once would lose, in nats.

    positions   the hidden ones, from the left
    entropies   H(x_i | shown), one for each
    parts       I(x_i ; positions before it | shown), in the order of `positions`; they sum to total
    total       C(K): the loss of one step that writes them all
    pairs       I(x_i ; x_j | shown)
    tree        the largest sum of pairs over a tree: never more than the total of a joint law
    exact       all of it is, to rounding; else intervals are those of a mean over draws
    """

    positions: Int[Tensor, " k"]
    entropies: Float[Tensor, " k"]
    parts: tuple[Estimate, ...]
    total: Estimate
    pairs: Float[Tensor, "k k"]
    tree: Estimate
    exact: bool

    def __repr__(self) -> str:
        how = "exact" if self.exact else f"{self.total.n} draws"
        return f"Dependence({len(self.positions)} positions, {self.total} nats, {how})"

    def _repr_html_(self) -> str:
        facts = {"positions": len(self.positions), "lost at once": str(self.total)}
        return card(repr(self), facts_table(facts))


def dependence(
    model: Masked,
    tokens: Tokens,
    hidden: Hidden,
    *,
    rng: RngLike = 0,
    draws: Count = 128,
    pairs: bool = True,
    most: Count = MOST_CONTINUATIONS,
) -> Dependence:
    """What is lost when all hidden positions of one row are written in one step.

    It is exact where the model has `log_prob` and the hidden positions have at most `most`
    continuations. Elsewhere `draws` chains are written from left to right, and with `pairs` the
    model is asked once more for each position and draw.

    Worked value: p uniform on {00, 11}, both hidden: total log 2, parts 0 and log 2.
    """
    check_can("model", model, "masked_log_probs", "vocab_size")
    tokens, hidden = as_masked(tokens, hidden, model.vocab_size)
    if len(tokens) != 1:
        raise UserError(
            f"tokens has {len(tokens)} rows; dependence is that of one row", parameter="tokens"
        )
    draws, most = as_size("draws", draws, at_least=2), as_count("most", most)
    places = torch.nonzero(hidden[0])[:, 0]
    if isinstance(model, ScoresTexts) and _can_be_listed(model, len(places), most):
        return _exact(model, tokens, places)
    return _drawn(model, tokens, hidden, places, as_rng(rng, tokens.device), draws, pairs)


def _can_be_listed(model: Masked, places: int, most: int) -> bool:
    return places * math.log(model.vocab_size) <= math.log(max(most, 1)) + 1e-9


def continuation_log_probs(
    model: ScoresTexts, tokens: Int[Tensor, "1 length"], places: Int[Tensor, " k"]
) -> Float[Tensor, " continuations"]:
    """log p(x_K | shown) of every continuation, in the order of `all_sequences`."""
    words = all_sequences(model.vocab_size, len(places), tokens.device)
    rows = tokens.repeat(len(words), 1)
    rows[:, places] = words
    weights = torch.cat([model.log_prob(part) for part in rows.split(_ROWS_AT_ONCE)])
    total = weights.logsumexp(0)
    raise_if_impossible(total[None], "what is shown")
    return weights - total


def _exact(
    model: ScoresTexts, tokens: Int[Tensor, "1 length"], places: Int[Tensor, " k"]
) -> Dependence:
    count, words = len(places), model.vocab_size
    probs = continuation_log_probs(model, tokens, places).exp().reshape([words] * count)
    alone = [_entropy(_marginal(probs, [i])) for i in range(count)]
    single = torch.tensor(alone, dtype=torch.float64)
    upto = [0.0] + [_entropy(_marginal(probs, list(range(i + 1)))) for i in range(count)]
    parts = [float(single[i]) - (upto[i + 1] - upto[i]) for i in range(count)]
    both = torch.zeros(count, count, dtype=torch.float64)
    for i in range(count):
        for j in range(i):
            value = float(single[i] + single[j]) - _entropy(_marginal(probs, [j, i]))
            both[i, j] = both[j, i] = max(0.0, value)
    known = [_known(max(0.0, part)) for part in parts]
    tree = _known(math.fsum(float(both[i, j]) for i, j in widest_tree(both)))
    total = _known(max(0.0, float(single.sum()) - upto[count]))
    return Dependence(places, single, tuple(known), total, both, tree, True)


def _drawn(
    model: Masked,
    tokens: Int[Tensor, "1 length"],
    hidden: Bool[Tensor, "1 length"],
    places: Int[Tensor, " k"],
    rng: Any,
    draws: int,
    pairs: bool,
) -> Dependence:
    """Means over chains that write the positions from the left."""
    count = len(places)
    first = model.masked_log_probs(tokens, hidden)[0, places]
    entropies = -(first.exp() * first).nan_to_num(0.0).sum(-1)
    rows, left = tokens.repeat(draws, 1), hidden.repeat(draws, 1)
    gains = torch.zeros(draws, count, dtype=torch.float64)
    for number, place in enumerate(places.tolist()):
        law = model.masked_log_probs(rows, left)[:, place].double()
        drawn = rng.categorical(law.log_softmax(-1))
        said = law.gather(1, drawn[:, None])[:, 0] - first[number].double()[drawn]
        gains[:, number] = said.cpu()
        rows[:, place] = drawn
        left[:, place] = False
    both = torch.zeros(count, count, dtype=torch.float64)
    tree = _known(0.0, low=0.0, high=math.inf)
    if pairs and count > 1:
        both, tree = _drawn_pairs(model, tokens, hidden, places, rows, first)
    parts = tuple(mean(gains[:, number].tolist()) for number in range(count))
    total = mean(gains.sum(1).tolist()) if count else _known(0.0)
    return Dependence(places, entropies, parts, total, both, tree, False)


def _drawn_pairs(
    model: Masked,
    tokens: Int[Tensor, "1 length"],
    hidden: Bool[Tensor, "1 length"],
    places: Int[Tensor, " k"],
    rows: Int[Tensor, "draws length"],
    first: Float[Tensor, "k vocab"],
) -> tuple[Float[Tensor, "k k"], Estimate]:
    """I(x_i ; x_j) as the mean over draws of x_i of KL( p(x_j | x_i) ‖ p(x_j) ).

    The tree is chosen by one half of the draws and measured by the other.
    """
    count, draws = len(places), len(rows)
    found = torch.zeros(draws, count, count, dtype=torch.float64)
    base = tokens.repeat(draws, 1)
    for number, place in enumerate(places.tolist()):
        known, left = base.clone(), hidden.repeat(draws, 1)
        known[:, place] = rows[:, place]
        left[:, place] = False
        law = model.masked_log_probs(known, left)[:, places].double()
        each = (law.exp() * (law - first.double())).nan_to_num(0.0).sum(-1)
        each[:, number] = 0
        found[:, number] = each.cpu()
    half = draws // 2
    guess = found[:half].mean(0)
    edges = widest_tree((guess + guess.T) / 2)
    values = sum((found[half:, i, j] for i, j in edges), start=torch.zeros(draws - half).double())
    both = found.mean(0)
    return (both + both.T) / 2, mean(values.tolist())


def widest_tree(pairs: Float[Tensor, "k k"]) -> list[tuple[int, int]]:
    """The edges of the tree with the largest sum (Chow and Liu), by Prim's algorithm.

    Worked value: I(0,1) = 3, I(0,2) = 2, I(1,2) = 1: the edges (0, 1) and (0, 2).
    """
    count = len(pairs)
    inside, edges = {0}, []
    while len(inside) < count:
        options = [
            (float(pairs[i, j]), i, j) for i in inside for j in range(count) if j not in inside
        ]
        _, i, j = max(options, key=lambda edge: edge[0])
        inside.add(j)
        edges.append((i, j))
    return edges


@dataclass(frozen=True)
class StepLoss:
    """What one step of a path lost.

    number      of the step in the trace
    written     how many positions it wrote
    lost        C of these positions, given what was shown before it
    """

    number: int
    written: int
    lost: Estimate


def path_dependence(
    model: Masked,
    path: Denoised,
    *,
    row: Count = 0,
    rng: RngLike = 0,
    draws: Count = 64,
    most: Count = MOST_CONTINUATIONS,
) -> list[StepLoss]:
    """What every step of one recorded row lost, given what it saw; steps of one position lose 0.

    The sampler must have been run with record=True, and write on masks.
    """
    row = as_count("row", row)
    if not path.trace:
        raise UserError("the path has no steps: sample with record=True", parameter="path")
    if row >= len(path.tokens):
        raise UserError(
            f"row is {row}; the path has rows 0 to {len(path.tokens) - 1}", parameter="row"
        )
    found = []
    for before, after in zip(path.trace[:-1], path.trace[1:], strict=True):
        written = after.written[row]
        if not bool(written.any()):
            continue
        shown = before.hidden[row] | after.erased[row]
        lost = _lost_of(model, before.tokens[row], shown, written, rng, draws, most)
        found.append(StepLoss(after.number, int(written.sum()), lost))
    return found


def _lost_of(
    model: Masked,
    tokens: Int[Tensor, " length"],
    hidden: Bool[Tensor, " length"],
    written: Bool[Tensor, " length"],
    rng: RngLike,
    draws: Count,
    most: Count,
) -> Estimate:
    """C of the written positions; other hidden ones stay hidden, and are summed out."""
    if int(written.sum()) < 2:
        return _known(0.0)
    places = torch.nonzero(hidden)[:, 0]
    if isinstance(model, ScoresTexts) and _can_be_listed(
        model, len(places), as_count("most", most)
    ):
        grid = continuation_log_probs(model, tokens[None], places).exp()
        grid = grid.reshape([model.vocab_size] * len(places))
        kept = [axis for axis, place in enumerate(places.tolist()) if bool(written[place])]
        alone = math.fsum(_entropy(_marginal(grid, [axis])) for axis in kept)
        return _known(max(0.0, alone - _entropy(_marginal(grid, kept))))
    view = _Kept(model, hidden & ~written)
    inside = dependence(
        view, tokens[None], written[None], rng=rng, draws=draws, pairs=False, most=most
    )
    return inside.total


class _Kept:
    """A masked oracle some of whose positions stay hidden, whatever is asked."""

    def __init__(self, model: Masked, away: Bool[Tensor, " length"]) -> None:
        self.model, self.away = model, away

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    def masked_log_probs(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        """What the model says with these positions hidden too."""
        return self.model.masked_log_probs(tokens, hidden | self.away)


def _marginal(probs: Float[Tensor, "..."], kept: Sequence[int]) -> Float[Tensor, " cells"]:
    away = [axis for axis in range(probs.ndim) if axis not in kept]
    return (probs.sum(away) if away else probs).reshape(-1)


def _entropy(probs: Float[Tensor, " cells"]) -> float:
    return float(-torch.special.xlogy(probs, probs).sum())


def _known(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(
        value, value if low is None else low, value if high is None else high, 1, confidence=1.0
    )
