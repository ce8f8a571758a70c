"""What is measured: how far a sampler's law is from the truth, plans, and lists written at once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampled:
    """A sampler on one law, exactly; in nats.

    way        the sampler and its options but the number of rounds
    rounds     as it was asked; None for one that chooses them
    passes     questions to the model for a row, on average over draws
    tv         total variation to the truth
    kl         of the truth from what is written; None where it never writes a possible text
    outside    mass of texts that the structure forbids
    entropy    of what is written; of_truth: of the truth
    """

    structure: str
    way: str
    rounds: int | None
    passes: float
    tv: float
    kl: float | None
    outside: float
    entropy: float
    of_truth: float


@dataclass(frozen=True)
class Planned:
    """The best that plans of this many rounds can do on one law: KL of the truth, in nats.

    sets     fixed sets of positions, the best of all        sizes    uniform sets of the best sizes
    even     uniform sets of sizes as even as can be
    """

    structure: str
    rounds: int
    sets: float
    sizes: float
    even: float


@dataclass(frozen=True)
class Lists:
    """A task on a list of n items, written in rounds: what it loses, exactly and by a formula.

    task      copy, replace, shuffle
    lost      C of all positions, by enumeration       formula      in closed form, in nats
    right     probability of a right list, all positions at once, exactly
    right_formula   the same in closed form
    """

    task: str
    items: int
    lost: float
    formula: float
    right: float
    right_formula: float


@dataclass(frozen=True)
class Bounded:
    """The entropy-bounded sampler: its divergence, and γ times the steps that can lose.

    steps   at most this many steps write two positions or more
    """

    structure: str
    gamma: float
    steps: int
    kl: float
    passes: float


Row = Sampled | Planned | Lists | Bounded
