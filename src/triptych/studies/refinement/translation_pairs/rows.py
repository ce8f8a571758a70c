"""What the study of the number of pairs finds: typed facts, no limits."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Which corpus, direction, seed, and how many training pairs there were."""

    data: str
    direction: str
    seed: int
    pairs: int


@dataclass(frozen=True, kw_only=True)
class Learned(Trial):
    """One training.

    validation    -log p of a token of the validation targets, after each tenth of the steps; where
                  a training ended by its seconds, after those tenths that it reached, and its end
    """

    model: str
    steps: int
    seconds: float
    validation: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Scored(Trial):
    """One system on one set.

    system     "beam 5", "beam 1" (greedy), or "T=4"
    brevity    BLEU's factor for outputs that are too short; None without sacrebleu
    """

    system: str
    on: str
    bleu: float | None
    brevity: float | None


@dataclass(frozen=True, kw_only=True)
class Gap(Trial):
    """BLEU of refinement minus that of beam search, with a bootstrap interval over sentences."""

    steps: int
    on: str
    difference: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Left:
    """What is left to lose after this many pairs, in a world whose law is known (`exact`).

    unseen               probability that the next sentence's clue was in none of the pairs
    total_correlation    of what the reader of the pairs expects, the mean over sentences, nats
    one_step_kl          KL from that law to what one parallel step writes, the mean, nats
    mixed                share of sentences that mix ways, by T = 1, 2, 4, 10
    left_to_right        the same for exact decoding from left to right
    """

    world: str
    clues: int
    pairs: int
    unseen: float
    total_correlation: float
    one_step_kl: float
    mixed: tuple[float, float, float, float]
    left_to_right: float


Row = Learned | Scored | Gap | Left
KINDS = (Learned, Scored, Gap, Left)
