"""What the units of `topic_theory` are, and the rows that they give."""

from dataclasses import dataclass
from typing import Literal

from triptych.studies.api.study import Unit
from triptych.theory.topics.attention import Reading

Matrix = tuple[tuple[float, ...], ...]
ValueName = Literal["diagonal", "blocks"]
Biased = Literal["words", "mask too"]


# ------------------------------------------------------------------ units


@dataclass(frozen=True)
class FindOptima(Unit):
    """The minimisers under uniform attention: T topics of each v, with every τ."""

    masking: str
    topics: int
    words: tuple[int, ...]


@dataclass(frozen=True)
class TrainEmbedding(Unit):
    """An embedding of `width` dimensions, trained from a random start."""

    masking: str
    topics: int
    words: int
    drawn: int
    width: int


@dataclass(frozen=True)
class FindWeights(Unit):
    """The best attention weights for growing T, with τ = T^a for each exponent a.

    dense: τ as shares of T, at the two smallest T
    """

    masking: str
    words: int
    growing: tuple[int, ...]
    exponents: tuple[float, ...]
    dense: tuple[float, ...]


@dataclass(frozen=True)
class DrawLandscape(Unit):
    """The loss over both attention weights, T = 100, v = 300, masking as in BERT."""

    value: ValueName
    drawn: int


@dataclass(frozen=True)
class MaskDocuments(Unit):
    """Documents after masking: T topics of each v, with every τ."""

    masking: str
    topics: int
    words: tuple[int, ...]


# ------------------------------------------------------------------ rows


@dataclass(frozen=True)
class Optima:
    """The minimisers under uniform attention, and the family of Lemma 2.1.1.

    free, family        dimensions of an optimal row: of all minimisers, and of the family
    loss_error          of a random member of the family, from the least loss
    reached_error       of the end of gradient flow from a random start, from the least loss
    distance            of that end from the family
    from_least_norm     of that end from the optimum of least norm
    least_norm_error    of the optimum of least norm from the closed form of Theorem 2.1.2
    ridge_errors        of the optimum under each penalty from the closed form
    limit_error         of the limit of ridge, extrapolated from two penalties that are small for
                        this setting, from the closed form
    """

    seed: int
    masking: str
    topics: int
    words: int
    drawn: int
    free: int
    family: int
    loss_error: float
    reached_error: float
    distance: float
    from_least_norm: float
    least_norm_error: float
    penalties: tuple[float, ...]
    ridge_errors: tuple[float, ...]
    limit_error: float
    c1: float


@dataclass(frozen=True)
class Embedding:
    """E = W_Eᵀ W_E of a trained embedding, and the equations of Theorem 2.1.1.

    width           rows of W_E, d of the source
    bias            where it is not 0: on the words, or on the mask too
    excess          of the loss over the least
    violation       of the equations, the largest
    corrected       the same with c₁ taken from E_00, where the bias is on the mask too
    mask_off        E_00 + c₂ u_0, which the equations say is 0
    level           -u_0 / c₂;  topic_means: of u over the words of each topic
    example_excess  loss of the example of the proof, W_E = √c₃ I, over the least
    matrix          E, of the one that is drawn
    """

    seed: int
    masking: str
    topics: int
    words: int
    drawn: int
    width: int
    bias: Biased
    excess: float
    violation: float
    corrected: float
    mask_off: float
    c1: float
    level: float
    topic_means: tuple[float, ...]
    example_excess: float
    matrix: Matrix | None


@dataclass(frozen=True)
class Weights:
    """The best attention weights, and what Theorems 2.1.3 and 2.1.5 say of them.

    sparse          τ = T^rate, else τ = rate T, where nothing is promised
    assumed         v and the masking are as Assumptions 2.1.3 and 2.1.4 want them
    gamma           for uniform blocks, between λ₁ (τ - 1) and λ₂ T
    gamma_proved    the lower bound with the factor that the proof gives instead of λ₁
    alpha, beta     for the diagonal: β between λ₃ τ and λ₄ T, α below ratio = λ₅ times β
    limit           of γ/τ and β/(v τ) as T grows, exactly
    """

    seed: int
    masking: str
    words: int
    topics: int
    drawn: int
    sparse: bool
    rate: float
    reading: Reading
    assumed: bool
    gamma: float
    gamma_low: float
    gamma_proved: float
    gamma_high: float
    alpha: float
    beta: float
    beta_low: float
    beta_high: float
    ratio: float
    limit: float


@dataclass(frozen=True)
class Landscape:
    """The region of low loss in the plane of (α, β), for each share of the range of the loss.

    alpha, beta, gamma  of least loss;  ratio: λ₅
    edges               from where to where β (for uniform blocks γ) lies in the region
    gaps                places of the grid between the least and the largest β of the region at
                        which no α is in it
    steepest            the largest α/β in the region
    strays              points of the grid at which lying in the region and lying within the edges
                        are not the same, at most
    arms                the region reaches α = 1e-4 and β = 1e-4
    least, most         of the loss on the grid
    picture             the loss on a coarser grid as a share of its range, β from the top
    """

    seed: int
    value: ValueName
    drawn: int
    reading: Reading
    alpha: float
    beta: float
    gamma: float
    ratio: float
    shares: tuple[float, ...]
    edges: tuple[tuple[float, float], ...]
    gaps: tuple[int, ...]
    steepest: tuple[float, ...]
    strays: int
    arms: bool
    least: float
    most: float
    picture: Matrix | None


@dataclass(frozen=True)
class Masked:
    """Token frequencies after masking, and what Proposition 2.1.1 says of them.

    documents       topic sets that were tried, each with every word of its topics equally often
    present_error   of a word of the document, the largest distance from p₁
    absent_error    of a word of another topic, from p₂; None where all topics are in the document
    mask_error      of the mask, from p_m (1 - p_c - p_r)
    """

    seed: int
    masking: str
    topics: int
    words: int
    drawn: int
    documents: int
    present_error: float
    absent_error: float | None
    mask_error: float


Row = Optima | Embedding | Weights | Landscape | Masked
