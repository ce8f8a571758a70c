"""One layer with uniform attention on topic documents, in closed form [li, 2.1.3, 2.1.4.2].

In an infinitely long document with the topic set S the attention output is y, the frequencies after
masking, the same at every position, and the network predicts W y + b. With the squared loss the
population loss is an exact quadratic of W in the moments of y and of the word frequencies P:

    L(W, b) = E ‖W y + b - P‖² + 1 - E ‖P‖²,     minimum 1 - 1/(τ v), where W y + b = P always.

S is uniform among the sets of τ topics, so with s_t = [t in S]: E s_t = τ/T, E s_t s_u =
τ(τ-1) / (T(T-1)), and no set needs to be enumerated.

Constants of the source, for words i of T v and the mask:

    a  = 1 - (1 - p_c) p_m          what is left of a word       ρ = p_m (1 - p_c - p_r)   masks
    c₁ = p_r / ((1 - p_c - p_r) a T v)      c₂ = 1/ρ - 1         c₃ = 1/a

Words are 0..Tv-1 and the mask is T v, the last (the source has the mask first, as token 0).

Notation
--------
T   topics     v   words per topic     τ   topics of a document
W   [V, V] with V = T v + 1, rows are predictions, columns what is attended to
u   the free constants of an optimum   [V]
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.deprecation import renamed_names
from triptych.core.validation import (
    Number,
    UserError,
    as_number,
    as_size,
    check_shape,
    set_fields,
)

__getattr__ = renamed_names(__name__, Blocks="BlockMeans")


class Moments(NamedTuple):
    """Moments of y and P over documents, and E ‖P‖²."""

    y: Float[Tensor, " V"]
    yy: Float[Tensor, "V V"]
    p: Float[Tensor, " V"]
    py: Float[Tensor, "V V"]
    square: float


@dataclass(frozen=True)
class Setting:
    """Documents of τ topics of T, v words each, in the infinite limit, and how they are masked.

    Worked value, T = 2, v = 1, τ = 1, p_m = ½, p_c = p_r = ¼: a = 5/8, ρ = ¼, c₂ = 3.
    """

    topics: int
    words: int
    drawn: int
    p_m: float = 0.15
    p_c: float = 0.1
    p_r: float = 0.1

    def __post_init__(self) -> None:
        for name in ("topics", "words", "drawn"):
            set_fields(self, **{name: as_size(name, getattr(self, name))})
        for name in ("p_m", "p_c", "p_r"):
            set_fields(self, **{name: as_number(name, getattr(self, name))})
        if self.drawn > self.topics:
            raise UserError(
                f"a document cannot have {self.drawn} of {self.topics} topics", parameter="topics"
            )
        inside = 0 < self.p_m < 1 and self.p_c >= 0 and self.p_r >= 0
        if not inside or not self.p_c + self.p_r < 1:
            raise UserError(
                f"masking needs 0 < p_m < 1, p_c, p_r >= 0 and p_c + p_r < 1; "
                f"given p_m = {self.p_m}, p_c = {self.p_c}, p_r = {self.p_r}"
            )

    @property
    def vocab(self) -> int:
        """V = T v + 1 with the mask."""
        return self.topics * self.words + 1

    @property
    def left(self) -> float:
        """a = 1 - (1 - p_c) p_m: the share of a word that masking leaves in place."""
        return 1 - (1 - self.p_c) * self.p_m

    @property
    def masked(self) -> float:
        """ρ = p_m (1 - p_c - p_r): the share of the mask token."""
        return self.p_m * (1 - self.p_c - self.p_r)

    @property
    def replaced(self) -> float:
        """p_m p_r / (T v): what random replacement adds to every word; p₂ of the source."""
        return self.p_m * self.p_r / (self.topics * self.words)

    @property
    def constants(self) -> tuple[float, float, float]:
        """(c₁, c₂, c₃) of Theorem 2.1.2."""
        c1 = self.p_r / ((1 - self.p_c - self.p_r) * self.left * self.topics * self.words)
        return c1, 1 / self.masked - 1, 1 / self.left

    @property
    def least_loss(self) -> float:
        """1 - 1/(τ v): the word is uniform on the words of the document, whatever is seen.

        Worked value, τ = 1, v = 1: 0, a document of one word is known.
        """
        return 1 - 1 / (self.drawn * self.words)

    @cached_property
    def moments(self) -> Moments:
        """E y, E y yᵀ, E P, E P yᵀ and E ‖P‖² over the topic sets."""
        topics, v, tau = self.topics, self.words, self.drawn
        once = tau / topics
        twice = once * (tau - 1) / (topics - 1) if topics > 1 else 0.0
        n = topics * v
        topic = torch.arange(n) // v
        same = topic[:, None] == topic
        frequency = 1 / (tau * v)
        ss = twice + (once - twice) * same.double()  # E s_t s_u for the topics of two words
        y = torch.empty(n + 1, dtype=torch.float64)
        y[:n] = self.left * frequency * once + self.replaced
        y[n] = self.masked
        yy = torch.empty((n + 1, n + 1), dtype=torch.float64)
        scale = self.left * frequency
        yy[:n, :n] = scale**2 * ss + 2 * scale * self.replaced * once + self.replaced**2
        yy[n] = y[n] * y
        yy[:, n] = y[n] * y
        p = torch.zeros(n + 1, dtype=torch.float64)
        p[:n] = frequency * once
        py = torch.zeros((n + 1, n + 1), dtype=torch.float64)
        py[:n, :n] = frequency * (scale * ss + self.replaced * once)
        py[:n, n] = p[:n] * self.masked
        return Moments(y, yy, p, py, 1 / (tau * v))


# ------------------------------------------------------------------ the loss


def population_loss(
    setting: Setting, weight: Float[Tensor, "V V"], bias: Float[Tensor, " V"] | None = None
) -> Float[Tensor, ""]:
    """E ‖W y + b - X_j‖² over documents and masked positions; differentiable in W and b.

    Worked value: W = 0, b = 0 predicts nothing, and a one-hot has norm 1: loss 1.
    """
    check_shape("weight", weight, (setting.vocab,) * 2, "one row and column per word and the mask")
    m = setting.moments
    loss = ((weight @ m.yy) * weight).sum() - 2 * (weight * m.py).sum() + 1
    if bias is not None:
        loss = loss + 2 * bias @ (weight @ m.y) + bias.square().sum() - 2 * bias @ m.p
    return loss


def embedding_bias(setting: Setting) -> Float[Tensor, " V"]:
    """b of Theorem 2.1.1: -p_m p_r / (a T v) on words, 0 on the mask.

    The statement says it of every i; its proof needs 0 on the mask, which is never the answer.
    """
    bias = torch.full((setting.vocab,), -setting.replaced / setting.left, dtype=torch.float64)
    bias[-1] = 0.0
    return bias


# ------------------------------------------------------------------ the optima


def optimum(
    setting: Setting,
    u: Float[Tensor, " V"] | None = None,
    within: Float[Tensor, "V words"] | None = None,
) -> Float[Tensor, "V V"]:
    """A minimiser with free constants u, uniform within each block or with deviations `within`.

    Only the sum of a row over each topic is determined [li, Lemma 2.1.1]: `within[i]` is added,
    less its mean, to every topic of row i. Worked value, T = 2, v = 1, τ = 1, p_m = ½,
    p_c = p_r = ¼, u = 0: a word has weight 8/5 on itself, 0 on the other, -c₁ = -2/5 on the mask.
    """
    c1, c2, c3 = setting.constants
    v, n = setting.words, setting.vocab - 1
    u = torch.zeros(setting.vocab, dtype=torch.float64) if u is None else u.double()
    weight = u[:, None].repeat(1, setting.vocab)
    topic = torch.arange(n) // v
    weight[:n, :n] += (topic[:, None] == topic).double() * (c3 / v)
    weight[:, n] = -c2 * u
    weight[:n, n] -= c1
    if within is not None:
        weight[:, :n] += (within - within.mean(1, keepdim=True)).double().repeat(1, setting.topics)
    return weight


def printed_ridge_limit(setting: Setting) -> Float[Tensor, "V V"]:
    """The matrix that Theorem 2.1.2 prints, the least of the family of Lemma 2.1.1.

    Row i costs (c₁ + c₂ u)² + (T - 1) v u² + v (u + c₃/v)², least at u = -(c₁c₂ + c₃)/(c₂² + Tv);
    the mask's row has u = 0. It is an optimum for every τ; the least of all optima for τ < T.
    """
    c1, c2, c3 = setting.constants
    best = -(c1 * c2 + c3) / (c2**2 + setting.vocab - 1)
    u = torch.full((setting.vocab,), best, dtype=torch.float64)
    u[-1] = 0.0
    return optimum(setting, u)


def ridge_limit(setting: Setting) -> Float[Tensor, "V V"]:
    """The optimum of least norm, which vanishing L2 picks: the closed form of Theorem 2.1.2.

    With τ = T > 1 there is one document and many more optima than the theorem's family has, and
    the least of them is another: that is refused.
    """
    if setting.drawn == setting.topics > 1:
        raise UserError(
            f"drawn is {setting.drawn}, all of the topics: every document is the same, and the "
            "closed form holds for fewer topics only (ridge computes the optimum of any setting)",
            parameter="setting",
        )
    return printed_ridge_limit(setting)


def ridge(setting: Setting, penalty: Number) -> Float[Tensor, "V V"]:
    """argmin L(W) + λ ‖W‖²_F = E[P yᵀ] (E[y yᵀ] + λ)^-1, numerically."""
    penalty = as_number("penalty", penalty)
    if not penalty > 0:
        raise UserError(
            f"penalty is {penalty}; it must be positive (ridge_limit is the limit)",
            parameter="penalty",
        )
    m = setting.moments
    system = m.yy + penalty * torch.eye(setting.vocab, dtype=torch.float64)
    return torch.linalg.solve(system, m.py.T).T


def diagonal_optimum(setting: Setting) -> Float[Tensor, "V V"]:
    """D^V: the optimum that is diagonal among words [li, Def. 2.1.2]; it exists and has u = 0."""
    c1, _, c3 = setting.constants
    weight = torch.eye(setting.vocab, dtype=torch.float64) * c3
    weight[-1] = 0.0
    weight[:-1, -1] = -c1
    return weight


def block_sums(setting: Setting, weight: Float[Tensor, "V V"]) -> Float[Tensor, "V topics"]:
    """Σ_{l in t} W_il for every row and topic."""
    words = weight[:, : setting.vocab - 1]
    return words.reshape(setting.vocab, setting.topics, setting.words).sum(-1)


def distance_from_optima(setting: Setting, weight: Float[Tensor, "V V"]) -> float:
    """How far the equations of Lemma 2.1.1 are from holding, at the best u: largest violation.

    The mask's column and the sums of a row over each topic are affine in u_i; u_i is fitted.
    Worked value, T = 2, v = 1, c₂ = 3: 0 at every `optimum`; with one word's weight on itself
    raised by 1 its equations are off by (1, 0, 0), u takes 1/11 of (1, 1, -3), and 10/11 is left.
    """
    return float(_fitted(setting, weight)[1].abs().max())


def fitted_constants(setting: Setting, weight: Float[Tensor, "V V"]) -> Float[Tensor, " V"]:
    """The u that fits the equations of Lemma 2.1.1 best, by least squares in each row.

    Worked value: the u that an `optimum` was made with.
    """
    return _fitted(setting, weight)[0]


def satisfies_lemma(
    setting: Setting, weight: Float[Tensor, "V V"], tolerance: float = 1e-9
) -> bool:
    """Does the matrix belong to the family of Lemma 2.1.1?"""
    return distance_from_optima(setting, weight) <= tolerance


def _fitted(
    setting: Setting, weight: Float[Tensor, "V V"]
) -> tuple[Float[Tensor, " V"], Float[Tensor, "V equations"]]:
    """u of every row, and what is left of its equations: one per topic, and the mask's column."""
    c1, c2, c3 = setting.constants
    topics, v, n = setting.topics, setting.words, setting.vocab - 1
    known = torch.zeros((setting.vocab, topics + 1), dtype=torch.float64)
    known[torch.arange(n), torch.arange(n) // v] = c3
    known[:n, topics] = -c1
    found = torch.cat([block_sums(setting, weight), weight[:, -1:]], dim=1).double() - known
    along = torch.tensor([v] * topics + [-c2], dtype=torch.float64)  # d(equation)/du
    u = found @ along / along.square().sum()
    return u, found - u[:, None] * along


def degrees_of_freedom(setting: Setting) -> tuple[int, int]:
    """Free dimensions of an optimal row: of the loss (nullity of E y yᵀ), and of Lemma 2.1.1.

    The family has u and, within each topic, v - 1 deviations: T (v - 1) + 1. Both agree as long as
    τ < T; with τ = T there is one document and many more optima.
    """
    rank = int(torch.linalg.matrix_rank(setting.moments.yy, hermitian=True))
    return setting.vocab - rank, setting.topics * (setting.words - 1) + 1


# ------------------------------------------------------------------ the embeddings


def absorbed_bias(setting: Setting, weight: Float[Tensor, "V V"]) -> Float[Tensor, "V V"]:
    """E' with E' y = E y + b, b of Theorem 2.1.1: c₁ less in the mask's column, for every word.

    E is optimal with the bias exactly when E' is in the family of Lemma 2.1.1.
    """
    moved = weight.clone()
    moved[:-1, -1] -= setting.constants[0]
    return moved


def embedding_optimum(
    setting: Setting, level: float = 0.0, deviation: Float[Tensor, " words"] | None = None
) -> Float[Tensor, "V V"]:
    """E = f fᵀ / m + c₃ [same topic] / v, optimal with `embedding_bias`: every u that E can have.

    E = W_Eᵀ W_E is symmetric and positive semidefinite, which leaves few u of Theorem 2.1.1. Since
    E_0l = E_l0 = -c₂ u_l, the sums of row 0 say that u has the mean m = -u_0 / c₂ within every
    topic, and E_00 = c₂² m says m >= 0. With m = 0 the mask's embedding is 0 and so is every u.
    With m > 0 all else is possible: f is u on words (m = `level`, plus a `deviation` of mean 0 in
    each topic) and -c₂ m on the mask.

    Worked value, T = 2, v = 1, c₂ = 3, c₃ = 8/5, m = 1: E_00 = 9, -3 between the mask and a word,
    1 between the words, 1 + 8/5 from a word to itself.
    """
    n, v = setting.vocab - 1, setting.words
    d = torch.zeros(n, dtype=torch.float64) if deviation is None else deviation.double()
    spread = float(d.reshape(setting.topics, v).sum(-1).abs().max())
    if not level >= 0 or spread > 1e-9 or (level == 0 and bool(d.any())):
        raise UserError(
            f"no embedding has these constants: the level must be at least 0 (given {level}), "
            f"deviations must sum to 0 in each topic (off by {spread:.2g}) and vanish at level 0",
            parameter="level",
        )
    f = torch.cat([level + d, torch.tensor([-setting.constants[1] * level], dtype=torch.float64)])
    products = torch.outer(f, f) / level if level else torch.zeros((n + 1, n + 1)).double()
    topic = torch.arange(n) // v
    products[:n, :n] += (topic[:, None] == topic).double() * (setting.constants[2] / v)
    return products


# ------------------------------------------------------------------ what a matrix looks like


class BlockMeans(NamedTuple):
    """Means over word pairs: same word, same topic, different topic; and the off-block spread."""

    same_word: float
    same_topic: float
    different_topic: float
    spread: float

    @property
    def score(self) -> float:
        """(same topic - different topic) / spread: how visible the blocks are; words apart.

        Without any spread it is ±inf, and nan if there is no difference either.
        """
        step = self.same_topic - self.different_topic
        if self.spread:
            return step / self.spread
        return math.inf if step > 0 else -math.inf if step < 0 else math.nan

    @property
    def diagonality(self) -> float:
        """(diagonal - same topic) / (diagonal - different topic): 0 uniform blocks, 1 diagonal."""
        whole = self.same_word - self.different_topic
        return (self.same_word - self.same_topic) / whole if whole else math.nan


def blocks_of(matrix: Float[Tensor, "V V"], topic: Int[Tensor, " words"]) -> BlockMeans:
    """Block statistics of the word-by-word part of a matrix (special tokens left out).

    `topic[w]` of every word, the first rows and columns. Worked value: the identity on 2 topics of
    2 words: same word 1, same topic 0, different topic 0, spread 0.
    """
    n = len(topic)
    words = matrix[:n, :n].double()
    same_word = torch.eye(n, dtype=torch.bool, device=matrix.device)
    same_topic: Bool[Tensor, "n n"] = (topic[:, None] == topic) & ~same_word
    different = topic[:, None] != topic
    return BlockMeans(
        float(words[same_word].mean()),
        float(words[same_topic].mean()) if same_topic.any() else math.nan,
        float(words[different].mean()) if different.any() else math.nan,
        float(words[different].std()) if different.any() else math.nan,
    )
