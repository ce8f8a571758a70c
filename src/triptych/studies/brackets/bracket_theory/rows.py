"""What the units of `bracket_theory` are, and the rows that they give."""

from dataclasses import dataclass
from typing import Literal

from triptych.studies.api.study import Unit

Matrix = tuple[tuple[float, ...], ...]
Scores = Literal["uniform", "random", "uniform in both layers"]
Weights = Literal["balanced", "leak", "random scores"]
Near = Literal["balanced", "leak", "noise"]


# ------------------------------------------------------------------ units


@dataclass(frozen=True)
class Predict(Unit):
    """The construction of Theorem 2.2.1 or Corollary 2.2.1 against the truth.

    enumerated: every prefix of up to this many tokens;  long: tokens of a sampled prefix
    """

    types: int
    max_depth: int
    scores: Scores
    enumerated: int
    long: int


@dataclass(frozen=True)
class ComparePatterns(Unit):
    """The patterns of optimal models with random balanced scores, on [[[[]]]](((())))."""

    models: int
    scale: float


@dataclass(frozen=True)
class DrawBaseline(Unit):
    """Random patterns of this many positions, 40 at a time."""

    positions: int
    repeats: int


@dataclass(frozen=True)
class Encode(Unit):
    """The first layers (2.55)-(2.57)."""

    types: int
    max_depth: int


@dataclass(frozen=True)
class PumpPairs(Unit):
    """Pairs inserted into prefixes, for every kind of pair and query."""

    types: int
    max_depth: int
    weights: Weights
    pairs: tuple[int, ...]


@dataclass(frozen=True)
class Approximate(Unit):
    """A model that is optimal or nearly so at length N, and its constant ‖S‖ N / P.

    amount: of the leak, or the size of the noise on the value matrix
    """

    types: int
    max_depth: int
    length: int
    near: Near
    amount: float


@dataclass(frozen=True)
class Decay(Unit):
    """Descent on the loss with weight decay, from the construction; k = D = 2."""

    length: int
    decay: float
    steps: int


@dataclass(frozen=True)
class TrainConstants(Unit):
    """Networks with seeds seed, seed + 1, … trained at once on prefixes of `length` tokens.

    decay: λ of the penalty λ/2 ‖θ‖²
    """

    types: int
    max_depth: int
    length: int
    decay: float
    members: int
    steps: int
    batch: int
    width: int


@dataclass(frozen=True)
class Prune(Unit):
    """A random transformer pruned to a given one."""

    width: int
    hidden: int
    layers: int
    block: int


@dataclass(frozen=True)
class Share(Unit):
    """Two functions pruned from one random transformer, with one layer in common."""

    width: int
    hidden: int
    block: int
    layer: int


@dataclass(frozen=True)
class SilenceHead(Unit):
    """Any attention with a head of 0."""

    types: int
    max_depth: int


# ------------------------------------------------------------------ rows


@dataclass(frozen=True)
class Predicted:
    """How far a construction is from the truth.

    prefixes        that were enumerated;  error: of a probability, largest
    positions       of the long prefix that were compared, its last ones
    strings         that were generated;  invalid: those that are no prefix of Dyck
    width           of the widest layer of the MLP
    """

    seed: int
    types: int
    max_depth: int
    scores: Scores
    prefixes: int
    error: float
    long: int
    positions: int
    long_error: float
    strings: int
    invalid: int
    mlp_layers: int
    width: int


@dataclass(frozen=True)
class Patterns:
    """Attention patterns of optimal models.

    variation       mean ‖A - A'‖² over pairs of models;  random: of patterns uniform on simplices
    likeness        to a stack, of each model;  uniform: of uniform attention; 1 is a stack
    error           of the predictions on the word, largest over the models
    pictures        of the first models
    """

    seed: int
    models: int
    scale: float
    variation: float
    random: float
    likeness: tuple[float, ...]
    uniform: float
    error: float
    pictures: tuple[Matrix, ...]


@dataclass(frozen=True)
class Baseline:
    """Mean variation of 40 random causal patterns: by formula, and its mean and spread over
    repeats."""

    seed: int
    positions: int
    formula: float
    mean: float
    spread: float
    repeats: int


@dataclass(frozen=True)
class Encoded:
    """A minimal first layer.

    as_stated       the encodings of each depth are independent, as the theorem asks
    as_used         all of them are, as its proof needs
    apart           distance of the two stacks that uniform attention tells apart least
    """

    seed: int
    types: int
    max_depth: int
    encoding: str
    closing: str
    as_stated: bool
    as_used: bool
    apart: float


@dataclass(frozen=True)
class Pumped:
    """A pair (i, d') inserted β times before the query (j, d).

    size            ‖S‖;  balance: the largest |left side of (2.47)| of the pair
    distances       of the layer norm from its limit, for each β; empty where S = 0
    rate            β times the last of them;  formula: ‖v_⊥‖ / ‖S‖
    apart           what is between the outputs of two stacks for each β;  truth: of the laws
    errors          ‖T - law‖ of the first stack, for each β
    written         pairs of the prefix that was written out;  written_error: counts against it
    """

    seed: int
    types: int
    max_depth: int
    weights: Weights
    pair_type: int
    pair_level: int
    query_type: int
    query_level: int
    size: float
    balance: float
    pairs: tuple[int, ...]
    distances: tuple[float, ...]
    rate: float | None
    formula: float | None
    apart: tuple[float, ...]
    truth: float | None
    errors: tuple[float, ...]
    written: int
    written_error: float


@dataclass(frozen=True)
class Approximated:
    """The constant of Theorem 2.2.2.

    constant        ‖S‖ N / P, largest over pairs and queries with d ≥ 2
    share           the largest of constant / bound, the bound written out with γ and the errors
    measured        the same, with the separation of the layer norms that was measured
    error           on the prefixes of the bound, largest
    lipschitz       γ: product of the spectral norms
    depth_zero      ‖S‖ N / ‖Q‖ for queries that leave nothing open, largest
    least, excess   of the loss (2.40), exactly; None where there are too many prefixes
    log10_bound     of the loss that the theorem asks for
    """

    seed: int
    types: int
    max_depth: int
    length: int
    near: Near
    amount: float
    constant: float
    share: float
    measured: float
    error: float
    lipschitz: float
    depth_zero: float
    least: float | None
    excess: float | None
    log10_bound: float


@dataclass(frozen=True)
class Decayed:
    """A point with a lower penalised loss than the construction.

    norm            ‖θ*‖² of the construction
    start, end      penalised excess loss
    lambda_needed   log10 of the decay at which excess ≤ λ ‖θ*‖²/2 meets the bound of the theorem
    constant, share, measured   as in `Approximated`
    """

    seed: int
    length: int
    decay: float
    norm: float
    start: float
    end: float
    excess: float
    error: float
    constant: float
    share: float
    measured: float
    lambda_needed: float


@dataclass(frozen=True)
class TrainedConstant:
    """One trained network.

    constant        ‖S‖ N / P, largest over pairs and queries with d ≥ 2;  typical: their mean
    norm            ‖θ‖²
    excess          the squared loss over that of the truth, on strings that were drawn
    lipschitz       γ of the head after the layer norm
    log10_missed    log10 of the excess over the loss that the theorem asks for
    """

    seed: int
    types: int
    max_depth: int
    length: int
    decay: float
    steps: int
    constant: float
    typical: float
    norm: float
    excess: float
    lipschitz: float
    log10_missed: float


@dataclass(frozen=True)
class Pruned:
    """A pruning and its target.

    error           ‖f(X) - g(X)‖ / ‖X‖, largest found by ascent;  typical: median of random X
    kept            share of the random weights that are kept
    """

    seed: int
    width: int
    hidden: int
    layers: int
    block: int
    large_width: int
    large_hidden: int
    is_pruning: bool
    error: float
    typical: float
    kept: float


@dataclass(frozen=True)
class Shared:
    """Two prunings of one random transformer.

    apart           of the two functions, largest over random X
    errors          of each, as `Pruned.error`
    differ          matrices of the layer that are not the same in both
    kept            weights of the layer that are not 0
    """

    seed: int
    width: int
    block: int
    layer: int
    apart: float
    first_error: float
    second_error: float
    matrices: int
    differ: int
    kept: int


@dataclass(frozen=True)
class Silenced:
    """Networks with other attention and a head of 0: their outputs, and their patterns."""

    seed: int
    types: int
    max_depth: int
    largest_output: float
    variation: float


Row = (
    Predicted
    | Patterns
    | Baseline
    | Encoded
    | Pumped
    | Approximated
    | Decayed
    | TrainedConstant
    | Pruned
    | Shared
    | Silenced
)
