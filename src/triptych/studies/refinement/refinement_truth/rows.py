"""The rows of `refinement_truth`, and how its figures call what is compared."""

from dataclasses import dataclass

from triptych.structures.translation import Translations, TranslationWorld

WORLDS = {
    "dialects": "Two dialects",
    "orders": "Three word orders",
    "split words": "Words of two tokens",
}
PIECES = {"dialects": 1, "orders": 1, "split words": 2}
"""Tokens of a word."""

VARIANTS = {
    "base": "15 % right tokens, two stages, no distillation",
    "one stage": "one stage of training",
    "half right": "50 % right tokens",
    "distilled": "trained on a teacher's choice",
}
"""Networks: the base, and those that are compared with it."""


def translations(world: str, agreement: float) -> Translations:
    """The law of the translations of the first source sentence of a world."""
    match world:
        case "dialects":
            return TranslationWorld.dialects(agreement=agreement).translations(0)
        case "orders":
            return TranslationWorld.orders(agreement=agreement, words=4).translations(0)
        case _:
            return TranslationWorld.split_words(agreement=agreement, words=1).translations(0)


@dataclass(frozen=True)
class Truth:
    """The law that is to be written, exactly.

    data                "truth", or "distilled": the teacher's most probable sentence alone
    total_correlation   nats
    one_step_kl         KL from the truth to one sampled step that reads nothing of use, nats
    product_tv          total variation between the truth and the product of its marginals
    mixed               probability of a sentence that is written in no single way
    stutter             share of neighbouring tokens that are equal
    word_stutter        the same for words; an exact autoregressive decoder has these shares too
    poincare            Poincaré constant of the sampler that redraws k positions jointly, for
                        k = 1, 2, ...; None where the sampler cannot reach every sentence
    """

    world: str
    agreement: float
    data: str
    length: int
    total_correlation: float
    one_step_kl: float
    product_tv: float
    mixed: float
    stutter: float
    word_stutter: float
    poincare: tuple[float | None, ...]


@dataclass(frozen=True)
class Decoded:
    """The exact law of what the ideal refiner writes, from a uniform random start.

    right      share of right tokens in training
    stages     of training
    settled    the ideal refiner of two stages is a fixed point (else the iteration goes in a cycle)
    decoding   "argmax" or "sample"
    remask     what replaces stutter between steps: "previous", "random", or "keep": nothing
    steps      T
    kl         KL from the truth, nats; None where it is infinite
    """

    world: str
    agreement: float
    data: str
    right: float
    stages: int
    settled: bool
    decoding: str
    remask: str
    steps: int
    tv: float
    kl: float | None
    mixed: float
    stutter: float
    word_stutter: float


@dataclass(frozen=True)
class Learned:
    """A trained network, asked about every hypothesis, so that its law is exact too.

    variant         one of VARIANTS
    kl_from_ideal   mean KL of its answers from those of the ideal refiner with one stage, nats a
                    sentence, over the hypotheses of training
    steps           T, with argmax and stutter replaced by the previous token
    ideal_...       the same for the ideal refiner of this variant
    """

    world: str
    agreement: float
    variant: str
    seed: int
    kl_from_ideal: float
    steps: int
    mixed: float
    stutter: float
    word_stutter: float
    ideal_mixed: float
    ideal_word_stutter: float


Row = Truth | Decoded | Learned
ROWS = (Truth, Decoded, Learned)
