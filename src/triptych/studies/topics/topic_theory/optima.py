"""Uniform attention: documents after masking, optimal value matrices, trained embeddings."""

from collections.abc import Iterable
from itertools import combinations, islice
from typing import Any, get_args

import numpy as np
import scipy.optimize
import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.corruption import corrupt
from triptych.core.enumeration import exact_law
from triptych.core.protocols import Rng
from triptych.studies.topics.topic_theory.rows import (
    Biased,
    Embedding,
    FindOptima,
    MaskDocuments,
    Masked,
    Optima,
    TrainEmbedding,
)
from triptych.theory.topics import uniform_attention as uniform
from triptych.theory.topics.uniform_attention import Setting

MASKINGS = {  # p_m, p_c, p_r
    "as in BERT": (0.15, 0.1, 0.1),
    "many masked": (0.45, 0.05, 0.05),
    "many kept and replaced": (0.45, 0.4, 0.4),
    "most masked": (0.8, 0.1, 0.1),  # the two below are outside Assumption 2.1.4
    "mostly replaced": (0.15, 0.02, 0.5),
}
PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
SMALL = 1e-4  # the penalty of the extrapolated limit, in units of the least eigenvalue above 0
DOCUMENTS = 100  # topic sets of each size, at most
PICTURED = (4, 3, 2)  # T, v and τ of the E that is drawn, with masking as in BERT


# ------------------------------------------------------------------ Proposition 2.1.1


def masked_documents(unit: MaskDocuments) -> Iterable[Masked]:
    """Frequencies of all tokens after masking, by enumeration of its choices."""
    for v in unit.words:
        law = corruption_law(Setting(unit.topics, v, 1, *MASKINGS[unit.masking]))
        for drawn in range(1, unit.topics + 1):
            setting = Setting(unit.topics, v, drawn, *MASKINGS[unit.masking])
            yield _masked(setting, law, unit)


def corruption_law(setting: Setting) -> Float[Tensor, "words V"]:
    """P(token after masking | word), one row per word; the mask is last.

    A position is masked independently of the others, so documents of one word tell it all. Worked
    value, T = 2, v = 1, p_m = ½, p_c = p_r = ¼: a word stays with ½ + ½ (¼ + ¼/2) = 11/16.
    """
    n = setting.vocab - 1
    table = torch.zeros((n, n + 1), dtype=torch.float64)
    for word in range(n):

        def seen(rng: Rng, word: int = word) -> int:
            scheme = {"p_m": setting.p_m, "p_c": setting.p_c, "p_r": setting.p_r}
            document = torch.tensor([[word]])
            return int(corrupt(document, rng, words=n, mask_token=n, **scheme).tokens)

        for token, probability in exact_law(seen).probs.items():
            table[word, token] = probability
    return table


def _masked(setting: Setting, law: Float[Tensor, "words V"], unit: MaskDocuments) -> Masked:
    n, v = setting.vocab - 1, setting.words
    p_2 = setting.p_m * setting.p_r / (v * setting.topics)  # as printed
    p_1 = (1 - (1 - setting.p_c) * setting.p_m) / (v * setting.drawn) + p_2
    mask = setting.p_m * (1 - setting.p_c - setting.p_r)
    sets = list(islice(combinations(range(setting.topics), setting.drawn), DOCUMENTS))
    off: dict[str, list[float]] = {"present": [], "absent": [], "mask": []}
    for chosen in sets:
        inside = torch.isin(torch.arange(n) // v, torch.tensor(chosen))
        frequency = law[inside].mean(0)
        off["present"].append(float((frequency[:n][inside] - p_1).abs().max()))
        off["mask"].append(abs(float(frequency[n]) - mask))
        if not inside.all():
            off["absent"].append(float((frequency[:n][~inside] - p_2).abs().max()))
    return Masked(
        seed=unit.seed,
        masking=unit.masking,
        topics=setting.topics,
        words=v,
        drawn=setting.drawn,
        documents=len(sets),
        present_error=max(off["present"]),
        absent_error=max(off["absent"]) if off["absent"] else None,
        mask_error=max(off["mask"]),
    )


# ------------------------------------------------------------------ Lemma 2.1.1, Theorem 2.1.2


def optima(unit: FindOptima, generator: torch.Generator) -> Iterable[Optima]:
    """The family of Lemma 2.1.1 against the minimisers of the loss; the limit of ridge."""
    for v in unit.words:
        for drawn in range(1, unit.topics + 1):
            setting = Setting(unit.topics, v, drawn, *MASKINGS[unit.masking])
            yield _optima(setting, unit, generator)


def _optima(setting: Setting, unit: FindOptima, generator: torch.Generator) -> Optima:
    """A random member of the family, where gradient flow from a random start ends, and ridge."""
    vocab, v, moments = setting.vocab, setting.words, setting.moments
    member = uniform.optimum(setting, _noise(generator, vocab), _noise(generator, vocab, v))
    apart = _noise(generator, vocab, setting.topics, v)
    member[:, :-1] += (apart - apart.mean(-1, keepdim=True)).flatten(1)
    values, axes = torch.linalg.eigh(moments.yy)
    flat = values < 1e-12 * values[-1]
    null = axes[:, flat]
    solution = moments.py @ torch.linalg.pinv(moments.yy, hermitian=True)
    reached = solution + _noise(generator, vocab, vocab) @ null @ null.T
    free, family = uniform.degrees_of_freedom(setting)
    closed_form, small = (
        uniform.printed_ridge_limit(setting),
        SMALL * float(values[~flat].min()),
    )
    extrapolated = 2 * uniform.ridge(setting, small) - uniform.ridge(setting, 2 * small)
    return Optima(
        seed=unit.seed,
        masking=unit.masking,
        topics=setting.topics,
        words=v,
        drawn=setting.drawn,
        free=free,
        family=family,
        loss_error=abs(float(uniform.population_loss(setting, member)) - setting.least_loss),
        reached_error=abs(float(uniform.population_loss(setting, reached)) - setting.least_loss),
        distance=uniform.distance_from_optima(setting, reached),
        from_least_norm=_apart(reached, solution),
        least_norm_error=_apart(solution, closed_form),
        penalties=PENALTIES,
        ridge_errors=tuple(_apart(uniform.ridge(setting, p), closed_form) for p in PENALTIES),
        limit_error=_apart(extrapolated, closed_form),
        c1=setting.constants[0],
    )


def _apart(first: Float[Tensor, "V V"], second: Float[Tensor, "V V"]) -> float:
    return float((first - second).abs().max())


def _noise(generator: torch.Generator, *shape: int) -> Float[Tensor, "..."]:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


# ------------------------------------------------------------------ Theorem 2.1.1


def embeddings(unit: TrainEmbedding, generator: torch.Generator) -> Iterable[Embedding]:
    """W_E trained from a random start, with the bias on the words alone and on the mask too."""
    setting = Setting(unit.topics, unit.words, unit.drawn, *MASKINGS[unit.masking])
    start = 0.5 * _noise(generator, unit.width, setting.vocab)
    for where in get_args(Biased):
        yield _embedding(setting, unit, where, start)


def _embedding(
    setting: Setting, unit: TrainEmbedding, where: Biased, start: Float[Tensor, "width V"]
) -> Embedding:
    c1, c2, c3 = setting.constants
    bias = uniform.embedding_bias(setting)
    example = uniform.population_loss(
        setting, c3 * torch.eye(setting.vocab, dtype=torch.float64), bias
    )
    if where == "mask too":
        bias[-1] = bias[0]
    products, loss = trained_products(setting, bias, start)
    moved = uniform.absorbed_bias(setting, products)
    violation = uniform.distance_from_optima(setting, moved)
    if where == "mask too":
        moved[-1, -1] -= c1
    u = uniform.fitted_constants(setting, moved)
    sizes = (unit.topics, unit.words, unit.drawn)
    pictured = sizes == PICTURED and unit.masking == "as in BERT" and unit.seed == 0
    return Embedding(
        seed=unit.seed,
        masking=unit.masking,
        topics=unit.topics,
        words=unit.words,
        drawn=unit.drawn,
        width=unit.width,
        bias=where,
        excess=loss - setting.least_loss,
        violation=violation,
        corrected=uniform.distance_from_optima(setting, moved),
        mask_off=float(products[-1, -1] + c2 * u[-1]),
        c1=c1,
        level=-float(u[-1]) / c2,
        topic_means=tuple(u[:-1].reshape(setting.topics, setting.words).mean(1).tolist()),
        example_excess=float(example) - setting.least_loss,
        matrix=tuple(tuple(round(x, 4) for x in line) for line in products.tolist())
        if pictured and where == "words"
        else None,
    )


def trained_products(
    setting: Setting, bias: Float[Tensor, " V"], start: Float[Tensor, "width V"]
) -> tuple[Float[Tensor, "V V"], float]:
    """E = W_Eᵀ W_E after training W_E on the exact loss with L-BFGS, and the loss.

    Worked value: with W_E square the least loss 1 - 1/(τ v) is reached.
    """

    def loss_at(x: np.ndarray) -> tuple[float, np.ndarray]:
        weight = torch.from_numpy(x).reshape(start.shape).requires_grad_()
        loss = uniform.population_loss(setting, weight.T @ weight, bias)
        gradient = torch.autograd.grad(loss, weight)[0]
        return float(loss.detach()), gradient.reshape(-1).numpy()

    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 0.0, "gtol": 1e-13, "maxcor": 50}
    found: Any = scipy.optimize.minimize(
        loss_at, start.reshape(-1).numpy(), jac=True, method="L-BFGS-B", options=options
    )
    weight = torch.from_numpy(found.x).reshape(start.shape)
    return weight.T @ weight, float(found.fun)
