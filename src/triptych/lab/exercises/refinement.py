"""Exercises on parallel decoding: what a step that writes all positions at once must lose."""

from typing import Any

from triptych.core.table import Table
from triptych.lab.exercises.checking import Exercise, near
from triptych.structures.translation import Translations, TranslationWorld
from triptych.theory.refinement.ideal import ideal_refiner
from triptych.theory.refinement.output_laws import output_laws, quality

WORDS = 4
WANTED = 0.5  # nats
RIGHT = 0.5


def _law(agreement: float) -> Translations:
    return TranslationWorld.orders(agreement=agreement, words=WORDS).translations(0)


def _repeats(answer: Any) -> str:
    marginals = _law(1.0).marginals
    return near(answer, float((marginals[1:] * marginals[:-1]).sum()))


def _total_correlation(answer: Any) -> str:
    return near(answer, _law(1.0).total_correlation())


def _agreement(answer: Any) -> str:
    found = _law(float(answer)).total_correlation()
    if abs(found - WANTED) <= 0.005:
        return ""
    return f"With this agreement it is {found:.3f} nats."


def _mixed_after_steps(answer: Any) -> str:
    law = _law(1.0)
    truth = Table.of(law)
    refiner = ideal_refiner(truth, right=RIGHT).refiner
    written = output_laws(refiner, steps=3)[-1]
    return near(answer, quality(written, truth, law.is_one_way(truth.sequences)).mixed, within=0.01)


def _nothing_to_lose(answer: Any) -> str:
    """A law of translations that a parallel step writes exactly, of sentences that are right."""
    law = _law(1.0)
    if not isinstance(answer, Translations):
        return "The answer is a `Translations`, as `law` is."
    lost = answer.total_correlation()
    if lost > 1e-9:
        return f"A parallel step loses {lost:.3f} nats of it."
    table, truth = Table.of(answer), Table.of(law)
    written = table.sequences[table.log_probs.exp() > 1e-12]
    if answer.length != law.length or bool((truth.log_prob(written) == -float("inf")).any()):
        return "It writes a sentence that is no translation."
    return ""


EXERCISES = (
    Exercise(
        _repeats,
        "Positions are independent, so a word is repeated at places i and i + 1 with probability "
        "Σ_v p_i(v) p_{i+1}(v). Add over the neighbouring places; `law.marginals` has p_i(v).",
    ),
    Exercise(
        _total_correlation,
        "Sum of the entropies of the marginals, minus the entropy of the law, in nats. At "
        "agreement 1 the law has three sentences, with 40, 30 and 30 %.",
    ),
    Exercise(
        _agreement,
        "Total correlation grows with the agreement from 0. Halve an interval, with "
        "`TranslationWorld.orders(agreement=c, words=4).translations(0).total_correlation()`.",
    ),
    Exercise(
        _mixed_after_steps,
        "`output_laws(refiner, steps=3)` has the law after each step in its rows; `quality(law, "
        "truth, one_way).mixed` is the share of sentences that mix two ways.",
    ),
    Exercise(
        _nothing_to_lose,
        "A law of one sentence is a product. This is what distillation leaves: look at the methods "
        "of `law`.",
    ),
)
