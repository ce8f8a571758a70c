"""The rows of `masked_samples`: identities, bounds on masks and on sequences."""

from dataclasses import dataclass

DEFINED, PROOF = "loss as defined", "loss of the proof"
LEMMA, POINT, UNIFORM = "Lemma 4.3.5", "Corollary 4.3.1", "Corollary 4.3.2"


@dataclass(frozen=True)
class Averaged:
    """Lemma 4.3.2 on one model: p(x_K | x_-K) against its mean over the mask.

    error    largest difference, over all x and K
    moved    largest |p(x_K | x_-K, K) - p(x_K | x_-K)|: what the mean undoes
    """

    model: str
    seed: int
    law: str
    adaptive: bool
    error: float
    moved: float


@dataclass(frozen=True)
class Bounded:
    """Proposition 4.3.2 on one model: divergences in units of ln(1/β), β the least conditional."""

    model: str
    seed: int
    law: str
    laws: int
    least: float
    most: float


@dataclass(frozen=True)
class MaskBound:
    """One statement on masks, on one model at one θ.

    statement    Lemma 4.3.5, Corollary 4.3.1 or 4.3.2
    settings     (ε, t) or δ that were tried
    point        number of the parameters θ; 0 is the truth
    telling      of these, with a bound below ln(1/β), which no difference of losses exceeds
    chance       of missing the bound, over the allowed one: the largest
    needed       share of the bound, of those in FACTORS, that would do in every setting; 1 at most
    """

    statement: str
    model: str
    seed: int
    law: str
    point: int
    reading: str
    n: int
    m: int
    settings: int
    telling: int
    chance: float
    needed: float


@dataclass(frozen=True)
class EmpiricalLaw:
    """Lemma 4.3.6 for one law: the chance of missing the bound over δ, the largest.

    telling      δ whose bound is below 1, which no distance exceeds
    """

    outcomes: int
    seed: int
    law: str
    n: int
    telling: int
    chance: float


Row = Averaged | Bounded | MaskBound | EmpiricalLaw
ROWS = (Averaged, Bounded, MaskBound, EmpiricalLaw)
