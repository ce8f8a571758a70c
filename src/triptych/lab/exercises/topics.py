"""Exercises on topics: what one layer learns from words that occur together."""

from typing import Any

import torch

from triptych.lab.exercises.checking import Exercise, matrix, near
from triptych.theory.topics import uniform_attention as theory

SETTING = theory.Setting(topics=10, words=10, drawn=3, p_m=0.15, p_c=0.1, p_r=0.1)


def _share(answer: Any) -> str:
    in_document = SETTING.left / (SETTING.drawn * SETTING.words) + SETTING.replaced
    return near(answer, in_document)


def _least_loss(answer: Any) -> str:
    return near(answer, SETTING.least_loss, within=1e-4)


def _another_optimum(answer: Any) -> str:
    weight = matrix(answer, SETTING.vocab, SETTING.vocab)
    known = (theory.ridge_limit(SETTING), theory.diagonal_optimum(SETTING))
    if min(float((weight - each).abs().max()) for each in known) < 1e-3:
        return "This is an optimum that you know already: give another one."
    loss = float(theory.population_loss(SETTING, weight))
    if loss > SETTING.least_loss + 1e-9:
        return f"Its loss is {loss:.6f}, above the least one by {loss - SETTING.least_loss:.2g}."
    return ""


def _gain_of_topic(answer: Any) -> str:
    found = theory.blocks_of(theory.ridge_limit(SETTING), _topic_of_word())
    return near(answer, found.same_topic - found.different_topic)


def _rate(answer: Any) -> str:
    rate = float(answer)
    largest = 1 / float(torch.linalg.eigvalsh(SETTING.moments.yy)[-1])
    if _descends(0.98 * rate) and not _descends(1.02 * rate):
        return ""
    return (
        f"Descent at 0.98 of this rate {'also stops' if rate > largest else 'goes on, as at 1.02'}."
    )


def _descends(rate: float) -> bool:
    """Whether 400 steps of gradient descent from a random start lower the loss."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(SETTING.vocab, SETTING.vocab, generator=generator, dtype=torch.float64)
    moments = SETTING.moments
    first = float(theory.population_loss(SETTING, weight))
    for _ in range(400):
        weight = weight - rate * 2 * (weight @ moments.yy - moments.py)
    loss = float(theory.population_loss(SETTING, weight))
    return bool(torch.isfinite(weight).all()) and loss < first


def _topic_of_word() -> torch.Tensor:
    return torch.arange(SETTING.topics * SETTING.words) // SETTING.words


EXERCISES = (
    Exercise(
        _share,
        "A word keeps 1 - (1 - p_c) p_m of its share 1/(τ v), and random replacement adds p_m p_r "
        "/ (T v) to every word.",
    ),
    Exercise(
        _least_loss,
        "Nothing tells which word of the document stood at a masked place: it is uniform on τ v "
        "words. A one-hot e and the mean m of them have E|e - m|² = 1 - |m|².",
    ),
    Exercise(
        _another_optimum,
        "Only the sum of a row over each topic is determined (Lemma 2.1.1). Move weight within a "
        "topic: add to one column, and take from another of the same topic.",
    ),
    Exercise(
        _gain_of_topic,
        "Take the mean over entries of one topic without the diagonal, and the mean over entries "
        "of two topics; leave out the row and column of the mask. In the matrix `best` each of "
        "them is one number.",
    ),
    Exercise(
        _rate,
        "The loss is quadratic in W with the Hessian 2 E[y yᵀ]. Descent on a quadratic converges "
        "below 2 / (its largest eigenvalue).",
    ),
)
