"""The best attention weights for a fixed value matrix, and the loss around them."""

from collections.abc import Iterable
from typing import get_args

import torch

from triptych.studies.topics.topic_theory.optima import MASKINGS
from triptych.studies.topics.topic_theory.rows import (
    DrawLandscape,
    FindWeights,
    Landscape,
    Weights,
)
from triptych.theory.topics import attention
from triptych.theory.topics.attention import Reading, Value, attention_loss
from triptych.theory.topics.uniform_attention import Setting

SHARES = (0.01, 0.05, 0.1, 0.2)  # of the range of the loss: how far from the least still counts
LOWEST, HIGHEST = -4, 7  # exponents of ten: the weights of the landscapes
PER_DECADE = 4  # points of the pictures; edges are found on a finer grid


# ------------------------------------------------------------------ Theorems 2.1.3 and 2.1.5


def weights(unit: FindWeights) -> Iterable[Weights]:
    """The best weights for both matrices: documents of few topics (τ = T^a), and of many."""
    few = [(t, round(t**a), a, True) for t in unit.growing for a in unit.exponents]
    many = [(t, round(t * s), s, False) for t in unit.growing[:2] for s in unit.dense]
    for count, tau, rate, sparse in few + many:
        setting = Setting(count, unit.words, tau, *MASKINGS[unit.masking])
        for reading in get_args(Reading):
            yield _weights(setting, reading, unit, rate=rate, sparse=sparse)


def _weights(
    setting: Setting, reading: Reading, unit: FindWeights, *, rate: float, sparse: bool
) -> Weights:
    """The minimisers for both matrices, what the theorems say of them, and their exact limits."""
    blocks = attention.minimiser(setting, Value.blocks(setting), reading)
    diagonal = attention.minimiser(setting, Value.diagonal(setting), reading)
    bounds = attention.bounds(setting)
    a, seen = setting.left, 1 - setting.masked
    return Weights(
        seed=unit.seed,
        masking=unit.masking,
        words=setting.words,
        topics=setting.topics,
        drawn=setting.drawn,
        sparse=sparse,
        rate=rate,
        reading=reading,
        assumed=attention.within_assumptions(setting),
        gamma=blocks.gamma,
        gamma_low=bounds.lambda_1 * (setting.drawn - 1),
        gamma_proved=seen * (2 * a - 1) / (2 * a) * (setting.drawn - 1),
        gamma_high=bounds.lambda_2 * setting.topics,
        alpha=diagonal.alpha,
        beta=diagonal.beta,
        beta_low=bounds.lambda_3 * setting.drawn,
        beta_high=bounds.lambda_4 * setting.topics,
        ratio=bounds.lambda_5,
        limit=attention.limit_per_topic(setting, reading),
    )


# ------------------------------------------------------------------ Figures 2.7 and 2.8


def landscapes(unit: DrawLandscape) -> Iterable[Landscape]:
    """The loss over (α, β) in 1e-4 .. 1e7, T = 100, v = 300, masking as in BERT."""
    setting = Setting(100, 300, unit.drawn, *MASKINGS["as in BERT"])
    value = Value.blocks(setting) if unit.value == "blocks" else Value.diagonal(setting)
    for reading in get_args(Reading):
        yield _landscape(setting, value, reading, unit)


def _landscape(setting: Setting, value: Value, reading: Reading, unit: DrawLandscape) -> Landscape:
    """Where the loss is within a share of its range of the least, on a grid of 441 by 2201."""
    coarse = torch.logspace(LOWEST, HIGHEST, 441, dtype=torch.float64)
    fine = torch.logspace(LOWEST, HIGHEST, 2201, dtype=torch.float64)
    table = attention_loss(setting, value, coarse[:, None], fine[None], reading)
    least, most = float(table.min()), float(table.max())
    v = setting.words
    gamma = (v - 1) / v * coarse[:, None] + fine[None] / v
    place = gamma if unit.value == "blocks" else fine.expand_as(table)
    edges, gaps, steepest, strays, arms = [], [], [], [], []
    for share in SHARES:
        near = table <= least + share * (most - least)
        low, high = float(place[near].min()), float(place[near].max())
        edges.append((low, high))
        taken = near.any(0).nonzero()[:, 0]  # places of β
        gaps.append(int(taken[-1] - taken[0]) + 1 - len(taken))
        steepest.append(float((coarse[:, None] / fine[None])[near].max()))
        strays.append(int((near != ((place >= low) & (place <= high))).sum()))
        arms.append(bool(near[0].any() and near[:, 0].any()))
    found = attention.minimiser(setting, value, reading)
    return Landscape(
        seed=unit.seed,
        value=unit.value,
        drawn=setting.drawn,
        reading=reading,
        alpha=found.alpha,
        beta=found.beta,
        gamma=found.gamma,
        ratio=attention.bounds(setting).lambda_5,
        shares=SHARES,
        edges=tuple(edges),
        gaps=tuple(gaps),
        steepest=tuple(steepest),
        strays=max(strays),
        arms=all(arms),
        least=least,
        most=most,
        picture=_picture(setting, value, reading) if reading == "printed" else None,
    )


def _picture(setting: Setting, value: Value, reading: Reading) -> tuple[tuple[float, ...], ...]:
    """The loss as a share of its range, β from the top and α from the left."""
    points = (HIGHEST - LOWEST) * PER_DECADE + 1
    axis = torch.logspace(LOWEST, HIGHEST, points, dtype=torch.float64)
    table = attention_loss(setting, value, axis[None], axis.flip(0)[:, None], reading)
    share = (table - table.min()) / (table.max() - table.min())
    return tuple(tuple(round(x, 3) for x in line) for line in share.tolist())
