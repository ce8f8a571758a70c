"""The rows of `exact_masking`: what was found about one model, one mask law, one sample size."""

from dataclasses import dataclass

READINGS = ("cross-entropy", "divergence")  # of the masked loss: as defined, and as in the proof


@dataclass(frozen=True)
class PairKernel:
    """The kernel (4.26) on pairs (x, K), which keeps K.

    form_error      of the two ways to its Dirichlet form, relative
    balance_error   p(a) P(a, b) - p(b) P(b, a), largest
    gap             1 / its Poincaré constant
    score_share     least vᵀ Var v / vᵀ I v, with Var that of the conditional score on pairs
    score_error     of Var against the covariance of the masked score, relative
    """

    form_error: float
    balance_error: float
    gap: float
    score_share: float
    score_error: float


@dataclass(frozen=True)
class MaskedTraining:
    """What training under one mask law costs on one model.

    condition           of the Fisher information I: how many digits whitened matrices may lose
    poincare            C of the block dynamics on sequences with the same masks
    information_error   Hessian of the loss against the covariance of the scores, relative
    gradient_error      largest entry of the gradient of the loss at the truth
    worst_ratio         largest eigenvalue of I^½ Γ I^½: variance over that of maximum likelihood
    trace_ratio         tr Γ / tr I⁻¹
    dirichlet_error     of the two ways to the Dirichlet form on sequences, relative
    pairs               None where there are too many pairs
    """

    model: str
    seed: int
    condition: float
    law: str
    adaptive: bool
    blocks: int
    poincare: float
    information_error: float
    gradient_error: float
    worst_ratio: float
    trace_ratio: float
    dirichlet_error: float
    pairs: PairKernel | None


@dataclass(frozen=True)
class Step:
    """From blocks of k positions to blocks of k + 1, on one model.

    most_kept, least_kept   ends of the spectrum of Γ_k^-½ Γ_{k+1} Γ_k^-½: the share of the variance
                            that a direction keeps
    all_masks_kept          most_kept where every sequence is seen under all of its masks
    """

    model: str
    seed: int
    condition: float
    k: int
    most_kept: float
    least_kept: float
    all_masks_kept: float


@dataclass(frozen=True)
class Curvature:
    """The masked loss at random parameters.

    least_eigenvalue   of the Hessian, in units of its largest
    least_chord        mean of the loss at two parameters less the loss at their mean
    formula_error      Hessian against the mean of conditional covariances, relative
    """

    model: str
    ising: bool
    law: str
    adaptive: bool
    points: int
    least_eigenvalue: float
    least_chord: float
    formula_error: float | None


@dataclass(frozen=True)
class Example:
    """The example of Lemma 4.3.1: a conditional given the block, and without it.

    reading   "as printed" conditions x_1 on K = {0}, which is not x_K; "K = {0}" and "K = {1}" do
    """

    reading: str
    with_block: float
    without: float


@dataclass(frozen=True)
class Forgetting:
    """Where training goes with infinite data under masks that prefer ones.

    strength         a: a block is drawn in proportion to e^(a · ones in it)
    bias, distance   largest error of a parameter, total variation, if the loss forgets the block
    given_...        the same if the loss conditions on it
    gradient_error   of that loss at the truth
    """

    strength: float
    bias: float
    distance: float
    given_bias: float
    given_distance: float
    gradient_error: float


@dataclass(frozen=True)
class EntropyRate:
    """One bit with P(1) = chance, redrawn whole in continuous time, C_AT = 1, from (0.4, 0.6).

    over_printed   largest KL(p_t, q) / (e^(-2t) KL(p_0, q)): above 1 the printed rate is not met
    over_proved    the same with e^(-t)
    """

    chance: float
    over_printed: float
    over_proved: float


@dataclass(frozen=True)
class Bounded:
    """Both sides of Theorem 4.1.4 on samples of one size, for one δ and one reading of the loss.

    Its right side is not known exactly, but between two others: `smallest` has one cell, ε = 0 and
    the Poincaré constant for C_AT; `largest` a covering number and a proved bound of C_AT.

    held, held_largest   samples in which the distance is below the smallest, the largest one
    distance             total variation to the truth, mean
    smallest, largest    right sides, means
    below_one            samples whose smallest right side is below 1: else it says nothing
    largest_below_one    the same for the largest
    closest              largest distance / smallest right side
    """

    model: str
    law: str
    n: int
    radius: float
    reading: str
    delta: float
    repeats: int
    held: int
    held_largest: int
    distance: float
    smallest: float
    largest: float
    below_one: int
    largest_below_one: int
    closest: float


@dataclass(frozen=True)
class OneParameter:
    """The law of √n (θ̂ - θ*) for one parameter, against its normal limit.

    direction           number of the parameter of the model that is free
    at_least, at_most   bounds of Kolmogorov's distance that are proved
    """

    model: str
    law: str
    adaptive: bool
    direction: int
    n: int
    at_least: float
    at_most: float


@dataclass(frozen=True)
class Estimates:
    """Drawn estimates of all parameters, against their normal limit.

    parameters    d
    comparisons   directions along which the law is compared, and its length
    distance      largest Kolmogorov distance of them
    scale         mean of n (θ̂ - θ*)ᵀ Γ⁻¹ (θ̂ - θ*) / d, of the estimates that exist
    """

    model: str
    law: str
    adaptive: bool
    seed: int
    n: int
    repeats: int
    parameters: int
    comparisons: int
    without_estimate: int
    distance: float
    scale: float | None


@dataclass(frozen=True)
class Tensorised:
    """Both sides of Proposition 4.3.1 at random parameters, for the truth or a law of samples.

    sequences      of the empirical law; None for the truth
    reading        of the masked loss
    points         parameters θ
    over_largest   largest KL(p, p_θ) / (C L), with a proved upper bound of C_AT for C
    over_smallest  the same with a lower bound of C_AT that a law attains
    """

    model: str
    law: str
    sequences: int | None
    reading: str
    points: int
    over_largest: float
    over_smallest: float


Row = (
    MaskedTraining
    | Step
    | Curvature
    | Example
    | Forgetting
    | EntropyRate
    | Bounded
    | OneParameter
    | Estimates
    | Tensorised
)
ROWS = (
    MaskedTraining,
    Step,
    Curvature,
    Example,
    Forgetting,
    EntropyRate,
    Bounded,
    OneParameter,
    Estimates,
    Tensorised,
)
