"""The rows of `learned_kernel`, and how its figures call what is compared."""

from dataclasses import dataclass

from triptych.inference.chains.parallel import Reveal

STRUCTURES = {"weak": "Weak clique", "strong": "Strong clique", "hmm": "HMM, three words"}
MASKINGS = {
    "one": "one position hidden",
    "15%": "15 % hidden",
    "40%": "40 % hidden",
    "80%": "80 % hidden",
    "all": "all hidden",
    "any": "any number hidden",
}
SAMPLERS = {
    "1-Gibbs": "1-Gibbs",
    "k-Gibbs": "half the positions, in turn",
    "block at once": "half the positions, at once",
    "independent": "all positions, at once",
}
ORDERS: dict[Reveal, str] = {
    "random": "random positions",
    "confident position": "confident positions",
    "confident token": "confident tokens",
}


@dataclass(frozen=True)
class Oracle:
    """How well an oracle answers.

    masking         how much was hidden in training; "truth" for the exact conditionals
    inconsistency   of its conditionals with one joint law, mean and worst
    hidden, kl      KL of its answers from the exact ones (nats), by positions hidden
    """

    structure: str
    masking: str
    seed: int
    length: int
    inconsistency: float
    worst_inconsistency: float
    hidden: tuple[int, ...]
    kl: tuple[float, ...]


@dataclass(frozen=True)
class Chain:
    """The exact laws of one chain on an oracle, from the sequence 00...0.

    steps, tv         total variation to the truth after this many steps
    long_run_tv       the same in the long run
    irreversibility   of the chain in its stationary law
    queries, passes   sequences asked about, and passes of the network, per step
    """

    structure: str
    masking: str
    seed: int
    length: int
    sampler: str
    steps: tuple[int, ...]
    tv: tuple[float, ...]
    long_run_tv: float
    irreversibility: float
    queries: float
    passes: float


@dataclass(frozen=True)
class Unmasked:
    """The exact law of filling in from nothing, in this many rounds: its distance to the truth."""

    structure: str
    masking: str
    seed: int
    length: int
    order: str
    rounds: int
    tv: float


Row = Chain | Unmasked | Oracle
ROWS = (Chain, Unmasked, Oracle)
