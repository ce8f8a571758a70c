"""What `reaching_the_mode` gathers, one class for each kind of fact.

T is the first step at which a chain is in the set it should reach. R_1 and R_-1 are the clique all
up and all down; δ, J_0, h_G, |C| and M are those of the thesis [li, 4.1.4.2].
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Drawn:
    """How many of the drawn T are at most t, next to P(T ≤ t), at some t.

    Shares, because the mean of a fast cell says little: a tail of few runs can carry it anywhere.
    """

    times: tuple[int, ...]
    exact_shares: tuple[float, ...]
    counts: tuple[int, ...]
    runs: int


# ------------------------------------------------------------------ Figure 4.3


@dataclass(frozen=True)
class Steps(Drawn):
    """Steps from R_-1 to R_1 in the setting of Figure 4.3.

    k             block size of k-Gibbs, 0 for independent parallel
    capped_mean   E min(T, 1000), exactly
    log_mean      log E[T], exactly
    log_reached   log P(T ≤ 1000), exactly; not below -1e6
    repeats       min(T, 1000) of the first ten draws, which are the figure's repetitions
    """

    coupling: float
    k: int
    capped_mean: float
    log_mean: float
    log_reached: float
    repeats: tuple[float, ...]


@dataclass(frozen=True)
class Lumping:
    """The chain of the number of up spins against the chain of all 2^10 states."""

    k: int
    lumping_error: float


@dataclass(frozen=True)
class SpinRun(Drawn):
    """A sampler run on ten spins, next to the exact law of the chain of the count.

    setting   figure: that of Figure 4.3; bounds: a model within Assumption 4.1.5
    k         block size of k-Gibbs, 0 for independent parallel
    """

    setting: str
    coupling: float
    k: int


# ------------------------------------------------------------------ the statements of 4.1.4.2


@dataclass(frozen=True)
class Modes:
    """The log-ratios of Proposition 4.3.3 in one model, the least over all states.

    violated            conditions of Assumption 4.1.5 that the model does not meet
    large_over_small    min log p(x) / p(y), x in R_1, y in R_-1
    small_over_rest     min log p(y) / p(z), z in neither
    flipped             log p(x) / p(f(x)), f turns the clique over
    enumeration_error   largest difference of the three from all 2^N states; None beyond ten spins
    """

    seed: int
    spins: int
    clique: int
    coupling: float
    clique_fields: tuple[float, ...]
    violated: int
    twice_margin: float
    twice_clique_sum: float
    large_over_small: float
    small_over_rest: float
    flipped: float
    enumeration_error: float | None


@dataclass(frozen=True)
class Reached:
    """The bound of Proposition 4.1.4 on k-Gibbs next to the exact law of T.

    margin, clique_sum   J_0, h_G
    steps                ⌈log_c δ⌉, as promised
    missed               P(T > steps) from the worst start
    exact_steps          steps after which T is over with probability 1 - δ from the worst start
    log_step             log P(T = 1) from the worst start; the proof has it above log_step_bound
    missed_from_small    P(T > steps) from R_-1, for the draws
    drawn_missed         how many of the runs; None where they would take too long
    """

    spins: int
    clique: int
    block: int
    delta: float
    margin: float
    clique_sum: float
    violated: int
    steps: int
    missed: float
    exact_steps: int
    log_step: float
    log_step_bound: float
    missed_from_small: float
    drawn_missed: int | None
    runs: int


@dataclass(frozen=True)
class Stuck:
    """The bound of Proposition 4.1.5 on independent parallel next to the exact law of T.

    margin              J_0
    field               h_G
    radius, exponent    r and c_stuck of the proof
    steps               ⌊δ/2 exp(c_stuck)⌋, as promised
    stayed              P(the magnetisation stays at most -2 for so long), from the worst start
    log_mean            log of the mean time until it exceeds -2, from R_-1
    stayed_from_small   the same chance from R_-1, for the draws
    """

    clique: int
    margin: float
    field: float
    delta: float
    violated: int
    radius: float
    exponent: float
    steps: int
    stayed: float
    log_mean: float
    stayed_from_small: float
    drawn_stayed: int | None
    runs: int


@dataclass(frozen=True)
class Separated:
    """Corollary 4.1.1 with the smallest clique, field and margin that it allows.

    violated               conditions of Assumptions 4.1.5 and 4.1.6 that are not met
    log_gibbs_missed       log P(one step of k-Gibbs does not end in R_1), from the worst start
    log_parallel_reached   log P(independent parallel is in R_1 within M steps); not below -1e6
    failure                the sum of the two probabilities
    """

    horizon: int
    delta: float
    clique: int
    spins: int
    block: int
    violated: int
    radius: float
    log_gibbs_missed: float
    log_parallel_reached: float
    failure: float
    missed_from_small: float
    drawn_missed: int
    runs: int


# ------------------------------------------------------------------ the statements of 4.1.4.1


@dataclass(frozen=True)
class MadeMap:
    """A random map f on all sequences, and the network written down for it, applied t = 1..steps.

    wrong   pairs of a start and a t at which the network's argmax is not f applied t times
    """

    seed: int
    name: str
    states: int
    steps: int
    wrong: int


@dataclass(frozen=True)
class MadeLaw:
    """A chain of product laws, and the chain of the network that was written down for it.

    error   largest difference of two transition probabilities
    """

    seed: int
    states: int
    error: float


@dataclass(frozen=True)
class MadeZeros:
    """Product laws with zeros, which a softmax cannot say, and the network written down for them.

    leak              most that the softmax gives to a zero
    softmax_error     largest difference of the softmax from the laws
    truncated_error   the same after the tail is cut off
    zeros_left        zeros that can still be drawn then
    """

    seed: int
    zeros: int
    leak: float
    softmax_error: float
    truncated_error: float
    zeros_left: int


@dataclass(frozen=True)
class DecoderStep:
    """One step of a parallel decoder, enumerated by running it on every choice it can make.

    distance      total variation from the product of its marginals, at the state with the most
    correlation   its total correlation there, nats
    """

    seed: int
    name: str
    distance: float
    correlation: float


@dataclass(frozen=True)
class BlockStep:
    """One step of k-Gibbs as a matrix.

    coupled                 whether any two spins are
    distance, correlation   as in DecoderStep, of the step with its random block
    given_block             the largest distance of a step whose block is given
    joint_off               total variation of the stationary law from the truth
    factorised_off          the same when the block is drawn position by position, independently
    closest_off             of the closest product chain
    independent_off         of independent parallel
    """

    seed: int
    model: str
    k: int
    coupled: bool
    distance: float
    correlation: float
    given_block: float
    joint_off: float
    factorised_off: float
    closest_off: float
    independent_off: float


Row = (
    Steps
    | Lumping
    | SpinRun
    | Modes
    | Reached
    | Stuck
    | Separated
    | MadeMap
    | MadeLaw
    | MadeZeros
    | DecoderStep
    | BlockStep
)
