"""How much dependency is left after n pairs, in a world whose law is known.

A sentence can be written in K ways. A teacher writes every sentence in one way, and a clue in the
source says in which: the clue c has its way k(c), drawn once with the weights π. Clues have Zipf
frequencies q_c ∝ 1 / c. Who has seen one pair with the clue knows the way. Who has not expects the
mixture of the ways, with the weights π:

    u(n) = Σ_c q_c (1 - q_c)^n            probability that the next clue was never seen
    total correlation left = u(n) · TC    TC: of the mixture; a single way has none

One parallel step that knows all this loses exactly what is left. Decoding from left to right from
the same law loses nothing: it never mixes two ways.

Worked value: two clues of frequency ½ and one pair. The next clue was never seen with u(1) = ½. The
ways 0 1 and 1 0, with weight ½ each, have TC = log 2. So ½ log 2 nats are left.
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.table import Table
from triptych.structures.translation import Translations, TranslationWorld
from triptych.studies.refinement.translation_pairs.rows import Left
from triptych.theory.refinement.ideal import ideal_refiner
from triptych.theory.refinement.output_laws import output_laws, quality

STEPS = (1, 2, 4, 10)
RIGHT = 0.15  # of the tokens in training, as in the thesis


def zipf(count: int) -> Float[Tensor, " clues"]:
    """q_c ∝ 1 / c."""
    weights = 1 / torch.arange(1, count + 1, dtype=torch.float64)
    return weights / weights.sum()


def unseen(frequencies: Float[Tensor, " clues"], pairs: int) -> float:
    """u(n) = Σ_c q_c (1 - q_c)^n."""
    return float((frequencies * (1 - frequencies).pow(pairs)).sum())


def mixture(world: str) -> Translations:
    """What a sentence with an unknown clue may be: its ways with their weights."""
    match world:
        case "dialects":
            return TranslationWorld.dialects(agreement=1.0).translations(0)
        case "orders":
            return TranslationWorld.orders(agreement=1.0, words=4).translations(0)
        case _:
            return TranslationWorld.split_words(agreement=1.0, words=1).translations(0)


def one_way(law: Translations, way: int) -> Translations:
    """What a sentence with a known clue is."""
    one = torch.ones(1, dtype=torch.float64)
    return Translations(law.sentences[way : way + 1], one, 1.0, law.vocab_size)


def written(law: Translations, ways: Translations) -> tuple[float, float, list[float], float]:
    """Total correlation of a law, what one step loses, mixed sentences by T; and itself.

    The step knows the law and reads nothing of use. Refinement reads, and is the ideal refiner. The
    last is the share of mixed sentences of decoding from left to right, which draws from the law.
    """
    table = Table.of(law)
    whole = ways.is_one_way(table.sequences)
    nothing = ideal_refiner(table, right=0.0).refiner
    step = output_laws(nothing, steps=1, sample=True)[0]
    laws = output_laws(ideal_refiner(table, right=RIGHT).refiner, steps=max(STEPS))
    mixed = [quality(laws[steps - 1], table, whole).mixed for steps in STEPS]
    itself = quality(table.log_probs.exp(), table, whole).mixed
    return law.total_correlation(), quality(step, table, whole).kl, mixed, itself


def what_is_left(world: str, clues: int, pairs: Sequence[int]) -> Iterable[Left]:
    """A row for each number of pairs: means over the next sentence's clue, seen or not."""
    ways = mixture(world)
    unknown = written(ways, ways)
    known = [written(one_way(ways, way), ways) for way in range(len(ways.sentences))]
    seen = [
        sum(float(w) * each for w, each in zip(ways.weights, values, strict=True))
        for values in zip(*(_flat(each) for each in known), strict=True)
    ]
    frequencies = zipf(clues)
    for n in pairs:
        u = unseen(frequencies, n)
        tc, kl, *mixed, itself = (
            u * a + (1 - u) * b for a, b in zip(_flat(unknown), seen, strict=True)
        )
        yield Left(
            world=world,
            clues=clues,
            pairs=n,
            unseen=u,
            total_correlation=tc,
            one_step_kl=kl,
            mixed=(mixed[0], mixed[1], mixed[2], mixed[3]),
            left_to_right=itself,
        )


def _flat(found: tuple[float, float, list[float], float]) -> list[float]:
    return [found[0], found[1], *found[2], found[3]]
