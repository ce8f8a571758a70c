"""Are words of one topic more alike than words of different topics? Means over pairs of words.

For vectors e_w and the membership M of words in topics, over unordered pairs of different words,

    same        mean of e_v · e_w over pairs that share a topic
    different   mean of e_v · e_w over pairs that share none

and their ratio; for cosines the vectors have length 1. Where `different` is not away from 0 the
ratio says nothing (0/0) and is None: so it is for the raw embeddings of a random model.

A resample of topics, with multiplicities m_t, gives a pair that shares topics the mean of their m,
and a pair that shares none the product of the means of m over the topics of its two words. Then
the sums over pairs, split by topics, are all that a resample needs:

    same(m) = Σ_t m_t a_t / Σ_t m_t p_t        different(m) = m'Dm / m'Nm

Notation
--------
a, p   sums and numbers of pairs that share topic t           [topics]
D, N   sums and numbers of pairs of different topics          [topics, topics]
M      membership                                             [words, topics]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import UserError, as_count, check_shape

RESAMPLES = 1000
_ROWS = 512  # of the table of pairs that are in memory at once


class Ratio(NamedTuple):
    """Means over pairs and their ratio with a 95 % interval; None where it would be 0/0."""

    same: float
    different: float
    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, eq=False)
class PairSums:
    """a, p, D and N of the page above."""

    same: Float[Tensor, " topics"]
    same_pairs: Float[Tensor, " topics"]
    different: Float[Tensor, "topics topics"]
    different_pairs: Float[Tensor, "topics topics"]

    def means(
        self, times: Float[Tensor, "resamples topics"] | None = None
    ) -> tuple[Float[Tensor, " resamples"], Float[Tensor, " resamples"]]:
        """Same and different, for every row of multiplicities; all 1 without them."""
        m = torch.ones(1, len(self.same), dtype=torch.float64) if times is None else times
        same = (m @ self.same) / (m @ self.same_pairs)
        different = ((m @ self.different) * m).sum(1) / ((m @ self.different_pairs) * m).sum(1)
        return same, different


def pair_sums(
    vectors: Float[Tensor, "words width"], membership: Bool[Tensor, "words topics"]
) -> PairSums:
    """The sums of dot products over pairs of words that a topic has."""
    vectors, membership = _members(vectors, membership)
    one_each = bool((membership.sum(1) == 1).all())
    return (_one_topic_sums if one_each else _table_sums)(vectors, membership)


def _members(vectors: Tensor, membership: Tensor) -> tuple[Tensor, Tensor]:
    check_shape("vectors", vectors[:, :1], (len(membership), 1), "the words of the membership")
    inside = membership.any(1)
    if int(inside.sum()) < 2:
        raise UserError("the topics have fewer than two words; there are no pairs")
    return vectors[inside].double(), membership[inside].double()


def _one_topic_sums(vectors: Tensor, membership: Tensor) -> PairSums:
    """Sums of vectors are enough where every word has one topic."""
    topics, of = membership.shape[1], membership.argmax(1)
    total = torch.zeros(topics, vectors.shape[1], dtype=torch.float64).index_add(0, of, vectors)
    number = membership.sum(0)
    own = torch.zeros_like(number).index_add(0, of, vectors.square().sum(1))
    products, pairs = total @ total.T, number[:, None] * number
    return PairSums(
        (products.diagonal() - own) / 2,
        (pairs.diagonal() - number) / 2,
        products - torch.diag(products.diagonal()),
        pairs - torch.diag(pairs.diagonal()),
    )


def _table_sums(vectors: Tensor, membership: Tensor) -> PairSums:
    """The definition, over the table of all pairs, some rows at a time.

    Products are float32, which is twice as fast, and their sums float64.
    """
    topics = membership.shape[1]
    vectors, membership = vectors.float(), membership.float()
    share = membership / membership.sum(1, keepdim=True)
    same, same_pairs = torch.zeros(2, topics, dtype=torch.float64)
    different, different_pairs = torch.zeros(2, topics, topics, dtype=torch.float64)
    for begin in range(0, len(vectors), _ROWS):
        rows = slice(begin, begin + _ROWS)
        products = vectors[rows] @ vectors.T
        shared = membership[rows] @ membership.T
        weight = torch.where(shared > 0, 1 / shared.clamp(min=1), 0.0)
        weight[torch.arange(len(weight)), torch.arange(begin, begin + len(weight))] = 0.0
        apart = (shared == 0).float()
        same += (membership[rows] * ((products * weight) @ membership)).sum(0) / 2
        same_pairs += (membership[rows] * (weight @ membership)).sum(0) / 2
        different += share[rows].T @ ((products * apart) @ share)
        different_pairs += share[rows].T @ (apart @ share)
    return PairSums(same, same_pairs, different, different_pairs)


def topic_ratio(sums: PairSums, rng: RngLike, *, resamples: int = RESAMPLES) -> Ratio:
    """Same over different, with an interval from resampled topics."""
    same, different = (float(mean) for mean in sums.means())
    topics = len(sums.same)
    if topics < 2:
        return Ratio(same, different, None, None, None)
    times = multiplicities(topics, as_count("resamples", resamples, at_least=1), rng)
    return ratio_of(same, different, *sums.means(times))


def ratio_of(
    same: float,
    different: float,
    same_again: Float[Tensor, " resamples"],
    different_again: Float[Tensor, " resamples"],
) -> Ratio:
    """A ratio with the percentiles of its resamples; None where the denominator may be 0.

    Worked value: 2 over 4, resampled as (1, 4), (2, 4), (3, 4): 0.5 with an interval inside
    [0.25, 0.75]. Denominators 1 and -1 give None.
    """
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    same_again, different_again = same_again.double(), different_again.double()
    fine = torch.isfinite(same_again) & torch.isfinite(different_again)
    below = different_again[fine].quantile(ends) if fine.any() else torch.zeros(2)
    if not fine.any() or float(below[0]) <= 0 <= float(below[1]) or different == 0:
        return Ratio(same, different, None, None, None)
    low, high = (same_again / different_again)[fine].quantile(ends).tolist()
    value = same / different
    return Ratio(same, different, value, min(low, value), max(high, value))


def multiplicities(of: int, resamples: int, rng: RngLike) -> Float[Tensor, "resamples of"]:
    """How often each of `of` things is drawn, when as many are drawn with replacement."""
    uniform = torch.zeros(1, of, dtype=torch.float64).log_softmax(-1)
    drawn = as_rng(rng).categorical(uniform, torch.zeros(resamples, of, dtype=torch.long))
    ones = torch.ones(resamples, of, dtype=torch.float64)
    return torch.zeros_like(ones).scatter_add(1, drawn, ones)


# ---------------------------------------------------------------------- controls


def shuffled(
    membership: Bool[Tensor, "words topics"], rng: RngLike
) -> Bool[Tensor, "words topics"]:
    """The same topics for other words: rows of words that a topic has change places."""
    inside = torch.nonzero(membership.any(1))[:, 0]
    found = membership.clone()
    found[inside] = membership[inside[permutation(len(inside), rng)]]
    return found


@renamed(number="n")
def permutation(n: int, rng: RngLike) -> Int[Tensor, " n"]:
    """0, 1, …, n - 1 in random order, drawn through the door."""
    uniform = torch.zeros(1, 1024, dtype=torch.float64).log_softmax(-1)
    drawn = as_rng(rng).categorical(uniform, torch.zeros(n, 4, dtype=torch.long))
    key = (drawn * torch.tensor([1, 2**10, 2**20, 2**30])).sum(1)  # 40 bits: hardly ever a tie
    return key.argsort(stable=True)


def matched_ratio(
    vectors: Float[Tensor, "words width"],
    membership: Bool[Tensor, "words topics"],
    frequency: Float[Tensor, " words"],
    *,
    bins: int = 5,
) -> float | None:
    """Same over different, where the different pairs are as frequent as the same ones.

    Words are sorted into `bins` of rising frequency. The mean of different pairs is taken in every
    pair of bins, and weighted as the pairs of the same topic are spread over these. Every word
    must have one topic. None where a pair of bins has no different pair, or the mean is 0.
    """
    inside = membership.any(1)
    vectors, membership = _members(vectors, membership)
    if not bool((membership.sum(1) == 1).all()):
        raise UserError("matched_ratio needs one topic per word")
    order = frequency[inside].argsort(stable=True)
    bin_of = torch.empty_like(order)
    bin_of[order] = torch.arange(len(order)) * as_count("bins", bins, at_least=1) // len(order)
    one_hot = torch.nn.functional.one_hot(bin_of, bins).double()
    cell = membership.argmax(1) * bins + bin_of  # a topic and a bin
    cells = membership.shape[1] * bins
    total = torch.zeros(cells, vectors.shape[1], dtype=torch.float64).index_add(0, cell, vectors)
    total = total.reshape(-1, bins, vectors.shape[1])
    number = torch.bincount(cell, minlength=cells).double().reshape(-1, bins)
    inside_topics = torch.einsum("tqd,trd->qr", total, total)
    pairs_inside = torch.einsum("tq,tr->qr", number, number)
    own = torch.diag(one_hot.T @ vectors.square().sum(1))
    own_pairs = torch.diag(one_hot.sum(0))
    all_vectors, all_words = total.sum(0), number.sum(0)
    apart = all_vectors @ all_vectors.T - inside_topics
    pairs_apart = all_words[:, None] * all_words - pairs_inside
    same, weight = (inside_topics - own).sum(), pairs_inside - own_pairs
    if bool(((weight > 0) & (pairs_apart == 0)).any()) or not float(weight.sum()):
        return None
    different = float((weight * apart / pairs_apart.clamp(min=1)).sum())
    return float(same) / different if different else None


# ---------------------------------------------------------------------- pairs that occur together


@renamed(number="n")
def top_pairs(passages: Any, n: int) -> Int[Tensor, "pairs 2"]:
    """The pairs of words that stand together in the most passages, the most frequent first.

    `passages` has a row per passage and a column per word, above 0 where the word occurs. Of pairs
    with equal counts those with smaller numbers come first.
    """
    n = as_count("n", n, at_least=1)
    occurs = scipy.sparse.csr_matrix(passages, dtype=np.float32)
    occurs.data[:] = 1.0
    together: Any = scipy.sparse.triu(occurs.T @ occurs, k=1).tocoo()
    if together.nnz < n:
        raise UserError(
            f"{together.nnz} pairs of words occur together, and {n} are wanted; give "
            "more text, or keep fewer words of a topic",
            parameter="n",
        )
    order = np.lexsort((together.col, together.row, -together.data))[:n]
    chosen = np.stack([together.row[order], together.col[order]], 1).astype(np.int64)
    return torch.from_numpy(chosen)


def mean_of_pairs(
    vectors: Float[Tensor, "words width"], pairs: Int[Tensor, "pairs 2"]
) -> Float[Tensor, " pairs"]:
    """The dot product of each pair."""
    return (vectors[pairs[:, 0]].double() * vectors[pairs[:, 1]].double()).sum(1)


def unit_vectors(vectors: Float[Tensor, "words width"]) -> Float[Tensor, "words width"]:
    """The same directions with length 1: their dot products are cosines."""
    return torch.nn.functional.normalize(vectors.double(), dim=1)


def group_gaps(
    cosines: Float[Tensor, "words words"], groups: Sequence[int]
) -> Float[Tensor, " words"]:
    """For every word, its mean cosine to its group without itself, minus that to all others.

    Worked value: cosines 1, .5, .1 of a word to itself, its only mate and the only other: .4.
    """
    of = torch.tensor(list(groups))
    mates = (of[:, None] == of) & ~torch.eye(len(of), dtype=torch.bool)
    others = of[:, None] != of
    if not bool(mates.any(1).all()) or not bool(others.any(1).all()):
        raise UserError(
            "every group of words needs two words or more, and there must be two groups",
            parameter="groups",
        )
    within = (cosines * mates).sum(1) / mates.sum(1)
    return within - (cosines * others).sum(1) / others.sum(1)
