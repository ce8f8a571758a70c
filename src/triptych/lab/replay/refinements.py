"""Ready-made sentences for the replay of a refinement, by the ideal refiner of a known truth.

orders        four words in three word orders: the same word can be written twice
split-words   words of two tokens in two orders: a word can be written twice, a token not
dialects      four words in two dialects: a sentence can mix them
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.core.validation import Number, UserError, as_count, as_size
from triptych.inference.chains.refinement import Refined, Stutter, random_start, refine
from triptych.lab.replay.demonstrations import named
from triptych.structures.translation import Translations, TranslationWorld

AGREEMENT = 0.9
RIGHT = 0.15


class Sentences(NamedTuple):
    """A law of translations, and how its tokens are written."""

    law: Translations
    names: Sequence[str]
    about: str


def _orders() -> Sentences:
    law = TranslationWorld.orders(agreement=AGREEMENT, words=4).translations(0)
    about = "A sentence a b c d is written b a c d (40 %), a b c d (30 %) or a c b d (30 %)"
    return Sentences(law, list("abcd"), about)


def _split_words() -> Sentences:
    law = TranslationWorld.split_words(agreement=AGREEMENT, words=1).translations(0)
    names = ["ba", "by", "eve", "ning", "to", "night", "la", "ter"]
    about = "Two words of two tokens: evening baby (40 %), baby tonight (30 %) or baby later (30 %)"
    return Sentences(law, names, about)


def _dialects() -> Sentences:
    law = TranslationWorld.dialects(agreement=AGREEMENT).translations(0)
    about = "A sentence is written a b c d in one dialect (60 %) and A B C D in another (40 %)"
    return Sentences(law, list("abcdABCD"), about)


TASKS = {"orders": _orders, "split-words": _split_words, "dialects": _dialects}


@dataclass(frozen=True)
class IdealTranslator:
    """The best refiner that training can give for this law, at any length."""

    law: Translations
    right: float = RIGHT

    def log_probs(
        self, hypotheses: Int[Tensor, "batch length"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch length vocab"]:
        return self.law.denoised_log_probs(hypotheses, self.right)


class Replayed(NamedTuple):
    """A recorded refinement of some random starts."""

    sentences: Sentences
    refined: Refined
    lengths: Int[Tensor, " rows"]

    def lines(self) -> list[str]:
        """What came out of each row: whether it mixes ways, and how many steps it took."""
        mixed = ~self.sentences.law.is_one_way(self.refined.tokens)
        names: list[str] = list(self.sentences.names)
        return [
            " ".join(names[token] for token in tokens)
            + ("  mixes ways" if wrong else "  is written in one way")
            + f"; {steps} passes of the decoder"
            for tokens, wrong, steps in zip(
                self.refined.tokens.tolist(),
                mixed.tolist(),
                self.refined.steps.tolist(),
                strict=True,
            )
        ]


def replayed(
    task: str, *, rows: int = 1, seed: int = 0, settings: Mapping[str, str] | None = None
) -> Replayed:
    """Refine random starts of a task; settings are `steps`, `stutter` and `sample`."""
    sentences = TASKS[named("task", task, TASKS)]()
    given = dict(settings or {})
    steps = as_count("steps", _whole("steps", given.pop("steps", "6")), at_least=1, at_most=1000)
    stutter: Stutter = given.pop("stutter", "previous")  # pyright: ignore[reportAssignmentType]
    sample = _yes("sample", given.pop("sample", "no"))
    if given:
        raise UserError(
            f"a refinement has no option {next(iter(given))!r} (options: steps, stutter, sample)"
        )
    law, rng = sentences.law, TorchRng(seed)
    lengths = torch.full((as_size("rows", rows),), law.length)
    start = random_start(lengths, law.vocab_size, rng)
    refined = refine(
        IdealTranslator(law),
        start,
        lengths,
        steps=steps,
        stutter=stutter,
        sample=sample,
        record=True,
        rng=rng,
    )
    return Replayed(sentences, refined, lengths)


def about(sentences: Sentences, agreement: Number = AGREEMENT) -> str:
    """What the page says above the steps."""
    share = float(agreement)
    return (
        f"{sentences.about}. {100 * share:g} % of the sentences are in one way throughout; in the "
        "others every position chooses alone. The refiner is the best that training on 15 % right "
        "and 85 % random tokens can give. It starts from random tokens and writes all positions at "
        "once in every step."
    )


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{name} is {text!r}; it must be a whole number", parameter=name) from None


def _yes(name: str, text: str) -> bool:
    if text not in ("yes", "no"):
        raise UserError(f"{name} is {text!r}; it must be yes or no", parameter=name)
    return text == "yes"
