"""When a matrix over words is block-wise by topic, or diagonal: what is measured and called so.

Blocks are measured in units of the spread of entries between different topics:

    score        (same-topic mean - different-topic mean) / spread, the diagonal left out
    height       (diagonal mean - different-topic mean) / spread
    diagonality  (diagonal - same topic) / (diagonal - different topic): from 0, uniform blocks,
                 to 1, diagonal
    p_value      words dealt to topics at random are as block-wise as the topics this often
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.estimates import Status
from triptych.core.randomness import TorchRng
from triptych.studies.api.decide import Check, Need, above, at_least
from triptych.studies.api.figures import Heatmap
from triptych.studies.topics.shared.networks import PAIRS, Documents, Optimiser, pair_name
from triptych.studies.topics.shared.runs import SEEDS, mean_of_runs
from triptych.theory.topics.uniform_attention import blocks_of
from triptych.training.objectives import LossName

VISIBLE = 0.5  # of the off-block spread: less cannot be seen in a picture
CHANCE = 0.01  # largest p-value
DIAGONAL = 0.65  # diagonality from which a matrix is called diagonal
Pattern = Literal["blocks", "diagonal", "neither"]
Corner = tuple[tuple[float, ...], ...]


# ------------------------------------------------------------------ what is measured


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Block statistics of a matrix over words; the base of the rows that have them.

    same_word, same_topic, different_topic, spread
        Mean of the diagonal, of other entries within topics, of entries between topics; standard
        deviation of these last.
    block
        Mean entry within topics, the diagonal counted, as the source counts.
    score, diagonality
        None where the spread, or the height of the diagonal, is 0.
    """

    same_word: float
    same_topic: float
    different_topic: float
    spread: float
    block: float
    score: float | None
    diagonality: float | None
    p_value: float

    @property
    def height(self) -> float | None:
        if not self.spread:
            return None
        return (self.same_word - self.different_topic) / self.spread


def statistics(
    matrix: Float[Tensor, "V V"], documents: Documents, rng: TorchRng, permutations: int = 999
) -> Blocks:
    """What a study keeps of a matrix; rows and columns beyond the words are left out."""
    topic = documents.topic_of_words()
    found, words = blocks_of(matrix, topic), documents.words
    return Blocks(
        **found._asdict(),
        block=(found.same_word + (words - 1) * found.same_topic) / words,
        score=_finite(found.score),
        diagonality=_finite(found.diagonality),
        p_value=permutation_share(matrix, topic, rng, permutations),
    )


def columns(found: Blocks) -> dict[str, float]:
    """The statistics alone, to make a row of: Row(seed=1, **columns(found))."""
    return {field.name: getattr(found, field.name) for field in fields(Blocks)}


def permutation_share(
    matrix: Float[Tensor, "V V"], topic: Int[Tensor, " words"], rng: TorchRng, permutations: int
) -> float:
    """How often words dealt to topics at random are as block-wise as the topics: a p-value.

    The statistic is same-topic mean minus different-topic mean, the diagonal left out; the
    topics themselves count as one of the permutations. Worked value: on a constant matrix 1.
    """
    n, topics = len(topic), int(topic.max()) + 1
    off = matrix[:n, :n].double().clone().fill_diagonal_(0.0)
    noise = torch.rand((permutations, n), generator=rng.generator, dtype=torch.float64)
    dealt = torch.cat([topic[None], topic[noise.argsort(1)]])
    member = torch.nn.functional.one_hot(dealt, topics).double()  # permutation word topic
    same = torch.einsum("pwt,pwt->p", torch.einsum("wu,put->pwt", off, member), member)
    pairs = float((topic[:, None] == topic).sum() - n)
    contrast = same / pairs - (off.sum() - same) / (n * (n - 1) - pairs)
    room = 1e-12 * float(off.abs().max())
    return float((contrast >= contrast[0] - room).double().mean())


def corner(matrix: Float[Tensor, "V V"], words: int, size: int = 40) -> Corner:
    """The first `size` of the words by the same, three digits: for a picture."""
    shown = min(size, words)
    lines = matrix[:shown, :shown].tolist()
    return tuple(tuple(float(f"{x:.3g}") for x in line) for line in lines)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# ------------------------------------------------------------------ what it is called


def pattern(row: Blocks) -> Pattern:
    """Diagonal: the diagonal stands out, and its neighbours have less than 35 % of its height.

    Worked value, spread 1, different topic 0: diagonal 2, same topic 0.6 is "diagonal"
    (diagonality 0.7), diagonal 2, same topic 0.8 is "blocks", diagonal 0.4 is "neither".
    An exact diagonal, which has no spread, is one.
    """
    if row.diagonality is None:
        return "neither"
    if row.diagonality >= DIAGONAL and (row.height is None or row.height > VISIBLE):
        return "diagonal"
    seen = row.score is not None and row.score > VISIBLE and row.p_value <= CHANCE
    return "blocks" if seen else "neither"


@dataclass(frozen=True, kw_only=True)
class OfPair(Blocks):
    """A matrix that one loss and optimiser made; `corner` for a picture, if this run has one."""

    seed: int
    loss: LossName
    optimiser: Optimiser
    corner: Corner | None


def of_pair(rows: Sequence[OfPair], loss: LossName, optimiser: Optimiser) -> Sequence[OfPair]:
    return [row for row in rows if (row.loss, row.optimiser) == (loss, optimiser)]


def pair_sentence(loss: LossName, optimiser: Optimiser, about: str = "") -> str:
    """What `score` is, in words; `about` comes first and says which network."""
    return (
        f"{about}{pair_name(loss, optimiser)}: mean entry within topics minus mean entry between "
        "topics, in standard deviations of the latter"
    )


def pair_checks(rows: Sequence[OfPair], about: str = "") -> list[Check]:
    """For each loss and optimiser: the score is above VISIBLE, by the 95 % interval over runs.

    Four comparisons, each at 95 %: the claim fails where one whole interval is below. A pair with
    fewer than SEEDS runs is undecided, one without runs is left to `pair_needs`.
    """
    found = []
    for loss, optimiser in PAIRS:
        scores = [row.score for row in of_pair(rows, loss, optimiser) if row.score is not None]
        if scores:
            sentence = pair_sentence(loss, optimiser, about)
            found.append(above(sentence, mean_of_runs(scores), VISIBLE))
    return found


def pair_needs(rows: Sequence[OfPair], checks: Sequence[Check], what: str = "runs") -> list[Need]:
    """Enough runs of every pair, and blocks that topics dealt at random do not have.

    One pair that fails is enough to refute, so then no more runs are asked for.
    """
    if any(check.outcome is Status.FAILS for check in checks):
        return []
    seen = [row for row in rows if row.score is not None and row.score > VISIBLE]
    beaten = sum(row.p_value <= CHANCE for row in seen)
    return [
        *(
            at_least(f"{what} of {pair_name(*pair)}", len(of_pair(rows, *pair)), SEEDS)
            for pair in PAIRS
        ),
        at_least(f"runs whose blocks chance does not make, p ≤ {CHANCE}", beaten, len(seen)),
    ]


# ------------------------------------------------------------------ rows for the judges' tests


def made(
    *, spread: float = 1.0, diagonal: float = 5.0, same: float = 5.0, p: float = 0.001
) -> dict[str, float]:
    """The columns of a matrix with these entries and 0 between topics, in topics of 10 words."""
    return {
        "same_word": diagonal,
        "same_topic": same,
        "different_topic": 0.0,
        "spread": spread,
        "block": 0.1 * diagonal + 0.9 * same,
        "score": same / spread,
        "diagonality": (diagonal - same) / diagonal,
        "p_value": p,
    }


# ------------------------------------------------------------------ pictures


def maps(rows: Sequence[OfPair]) -> list[Heatmap]:
    """The first run's matrix of each pair, its mean score over runs in the title."""
    found = []
    for loss, optimiser in PAIRS:
        mine = of_pair(rows, loss, optimiser)
        scores = [row.score for row in mine if row.score is not None]
        drawn = next((row.corner for row in mine if row.corner), None)
        if drawn and scores:
            title = f"{pair_name(loss, optimiser)}: score {sum(scores) / len(scores):.2g}"
            found.append(Heatmap(drawn, title, "word", "word"))
    return found
