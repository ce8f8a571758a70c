"""Unbalanced and nearly balanced models: pumping, the constant ‖S‖ N / P, weight decay."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.models.constructions.balanced import balanced
from triptych.models.constructions.brackets import BracketTransformer
from triptych.models.constructions.normalised import Layer, Mlp
from triptych.studies.brackets.bracket_theory.predictions import SCALE, Q, random_scores
from triptych.studies.brackets.bracket_theory.rows import (
    Approximate,
    Approximated,
    Decay,
    Decayed,
    Pumped,
    PumpPairs,
    Weights,
)
from triptych.theory.brackets import balance, loss, pumping
from triptych.theory.brackets.balance import Attention
from triptych.theory.brackets.pumping import Pump

ENUMERABLE = 17  # longest N with an exact loss, for k = D = 2
LEAK = 0.5
WRITTEN = 100  # pairs of a prefix that is written out


# ------------------------------------------------------------------ pumping


def pumps(unit: PumpPairs, generator: torch.Generator) -> Iterable[Pumped]:
    """One row for every type and level of the pair, and every level of the query."""
    model = _model(unit.types, unit.max_depth, unit.weights, generator)
    attention = Attention.of(model)
    errors = balance.balance_errors(attention).reshape(unit.types, unit.max_depth)
    sizes = balance.pair_effects(attention).norm(dim=-1)
    for i in range(unit.types):
        for pair_level in range(1, unit.max_depth + 1):
            for level in range(2, unit.max_depth + 1):
                pump = Pump(i, pair_level, (i + 1) % unit.types, level)
                at = (i, pair_level - 1, pump.query_type, level - 1)
                yield _pumped(unit, model, pump, float(sizes[at]), float(errors[at[:2]]))


def _model(
    types: int, max_depth: int, weights: Weights, generator: torch.Generator
) -> BracketTransformer:
    """The construction, one that leaks, or one whose scores were replaced by random ones."""
    if weights == "balanced":
        scores = random_scores(types, max_depth, SCALE, generator)
        return balanced(types, max_depth, 40, q=Q, scores=scores)
    if weights == "leak":
        return balanced(types, max_depth, 40, q=Q, leak=LEAK)
    model = balanced(types, max_depth, 40, q=Q)
    count = len(model.vectors)
    free = torch.randn(count, model.vectors.shape[1], generator=generator, dtype=torch.float64)
    (layer,) = model.layers
    return replace(model, layers=(replace(layer, key=model.vectors, query=0.7 * free),))


def _pumped(
    unit: PumpPairs, model: BracketTransformer, pump: Pump, size: float, off: float
) -> Pumped:
    stack = torch.tensor([i % unit.types for i in range(pump.query_level - 1)])
    other = stack.clone()
    other[-1] = (int(stack[-1]) + 1) % unit.types
    query = pumping.query_kind(pump, unit.max_depth)
    law = stack_law(stack, unit.types, unit.max_depth)
    every = torch.stack([pumping.kind_counts(pump, stack, n, model) for n in unit.pairs])
    queries = torch.full((len(every),), query)
    said = pumping.output_from_counts(model, every, queries)
    limit = pumping.limit(model, pump)
    distances: Sequence[float] = ()
    rate = formula = None
    if limit is not None:
        directions = pumping.direction_from_counts(model, every, queries)
        distances = (directions - limit.direction).norm(dim=-1).tolist()
        rate = unit.pairs[-1] * distances[-1]
        formula = pumping.rate_constant(model, pump, stack)
    apart, truth = [], None
    if unit.types > 1:
        found = [pumping.confusion(model, pump, stack, other, n, q=Q) for n in unit.pairs]
        apart, truth = [each.apart for each in found], found[0].truth
    tokens = pumping.pumped(pump, stack, WRITTEN, unit.max_depth)
    counts = pumping.kind_counts(pump, stack, WRITTEN, model)
    written = model.next_token_probs(tokens)[0]
    counted = pumping.output_from_counts(model, counts, query)
    return Pumped(
        unit.seed,
        unit.types,
        unit.max_depth,
        unit.weights,
        pump.pair_type,
        pump.pair_level,
        pump.query_type,
        pump.query_level,
        size,
        off,
        unit.pairs,
        tuple(distances),
        rate,
        formula,
        tuple(apart),
        truth,
        tuple((said - law).norm(dim=-1).tolist()),
        WRITTEN,
        float((written - counted).abs().max()),
    )


def stack_law(stack: Int[Tensor, " open"], types: int, max_depth: int) -> Float[Tensor, " vocab"]:
    """The law of the next token after a prefix with these open brackets, at least one."""
    opens = 0.0 if len(stack) == max_depth else Q
    law = torch.zeros(2 * types, dtype=torch.float64)
    law[0::2] = opens / types
    law[2 * int(stack[-1]) + 1] = 1 - opens
    return law


# ------------------------------------------------------------------ Theorem 2.2.2


class Constant(NamedTuple):
    """‖S‖ N / P, largest, and what bounds it.

    share       largest share of the bound with γ and the errors
    measured    the same with the separation of the layer norms as it is, instead of theirs
    error       on the prefixes of the bound, largest
    """

    constant: float
    share: float
    measured: float
    error: float


def constant_of(model: BracketTransformer, length: int) -> Constant:
    """The constants of all pairs and queries against the bound of each."""
    attention = Attention.of(model)
    constants = balance.measured_constants(attention, length)
    lipschitz = model.layers[-1].mlp.lipschitz
    share = measured = largest = 0.0
    for i in range(model.types):
        for pair_level in range(1, model.max_depth + 1):
            for j in range(model.types):
                for level in range(2, model.max_depth + 1):
                    pump = Pump(i, pair_level, j, level)
                    error, apart = _at_the_ends(model, attention, pump, length)
                    bound = balance.largest_constant(
                        lipschitz, error, Q, length=length, max_depth=model.max_depth, level=level
                    )
                    found = float(constants[i, pair_level - 1, j, level - 2])
                    pairs = balance.most_pairs(length, model.max_depth, level)
                    share, largest = max(share, found / bound), max(largest, error)
                    measured = max(measured, found / (2 * (4 / apart + 1) * length / pairs))
    return Constant(float(constants.max()), share, measured, largest)


def _at_the_ends(
    model: BracketTransformer, attention: Attention, pump: Pump, length: int
) -> tuple[float, float]:
    """On the four prefixes that bound the constant, 0 or the most pairs before either stack: the
    largest error, and the least distance that the layer norm puts between the stacks."""
    found = balance.rivals(attention, pump.query_type, pump.query_level)
    most = balance.most_pairs(length, model.max_depth, pump.query_level)
    query = pumping.query_kind(pump, model.max_depth)
    stacks = (found.best, found.other)
    laws = torch.stack([stack_law(each, model.types, model.max_depth) for each in stacks])
    errors, apart = [], []
    for n in (0, most):
        counts = torch.stack([pumping.kind_counts(pump, each, n, model) for each in stacks])
        queries = torch.full((2,), query)
        said = pumping.output_from_counts(model, counts, queries)
        first, second = pumping.direction_from_counts(model, counts, queries)
        errors.append(float((said - laws).norm(dim=-1).max()))
        apart.append(float((first - second).norm()))
    return max(errors), min(apart)


def approximations(unit: Approximate, generator: torch.Generator) -> Iterable[Approximated]:
    """The constant of one model, with its exact loss where prefixes can be summed."""
    model = _nearly(unit, generator)
    attention = Attention.of(model)
    found = constant_of(model, unit.length)
    least = excess = None
    if (unit.types, unit.max_depth) == (2, 2) and unit.length <= ENUMERABLE:
        least, excess, _ = loss.exact_loss(model, loss.prefix_states(2, 2, unit.length, q=Q))
    yield Approximated(
        unit.seed,
        unit.types,
        unit.max_depth,
        unit.length,
        unit.near,
        unit.amount,
        found.constant,
        found.share,
        found.measured,
        found.error,
        model.layers[-1].mlp.lipschitz,
        _at_depth_zero(attention) * unit.length,
        least,
        excess,
        balance.log10_loss_bound(unit.types, Q, unit.length),
    )


def _nearly(unit: Approximate, generator: torch.Generator) -> BracketTransformer:
    sizes = (unit.types, unit.max_depth, unit.length)
    if unit.near == "leak":
        return balanced(*sizes, q=Q, leak=unit.amount)
    scores = random_scores(unit.types, unit.max_depth, 1.0, generator)
    model = balanced(*sizes, q=Q, scores=scores)
    if unit.near == "balanced":
        return model
    (layer,) = model.layers
    noise = torch.randn(layer.value.shape, generator=generator, dtype=torch.float64)
    return replace(model, layers=(replace(layer, value=layer.value + unit.amount * noise),))


def _at_depth_zero(attention: Attention) -> float:
    """‖S‖ / ‖Q‖ of queries of level 1, which leave nothing open, largest."""
    sizes = balance.pair_effects(attention)[..., 0, :].norm(dim=-1)  # types levels types
    nothing = torch.zeros(1, 0, dtype=torch.long)
    prefix = [
        float(balance.prefix_effect(attention, j, 1, nothing).norm())
        for j in range(attention.types)
    ]
    return float((sizes / torch.tensor(prefix, dtype=torch.float64)).max())


# ------------------------------------------------------------------ Corollary 2.2.2


def decayed(unit: Decay) -> Iterable[Decayed]:
    """Descent with weight decay from the construction, a step only where the loss falls."""
    model = balanced(2, 2, unit.length, q=Q)
    states = loss.prefix_states(2, 2, unit.length, q=Q)
    start = _parameters(model)

    def penalised(parameters: Sequence[Tensor]) -> Tensor:
        errors = loss.squared_errors(_with_parameters(model, parameters), states)
        return states.weight @ errors + unit.decay / 2 * _norm(parameters)

    first = float(penalised(start))
    here, value, size = start, first, 1e-3
    for _ in range(unit.steps):
        tracked = [each.detach().requires_grad_(True) for each in here]
        slopes = torch.autograd.grad(penalised(tracked), tracked)
        while size > 1e-12:
            tried = [
                (p - size / unit.decay * g).detach() for p, g in zip(here, slopes, strict=True)
            ]
            found = float(penalised(tried))
            if found < value:
                here, value, size = tried, found, 1.5 * size
                break
            size /= 3
    ended = _with_parameters(model, here)
    found = constant_of(ended, unit.length)
    norm = float(_norm(start))
    bound = balance.log10_loss_bound(2, Q, unit.length)
    yield Decayed(
        unit.seed,
        unit.length,
        unit.decay,
        norm,
        first,
        value,
        loss.exact_loss(ended, states).excess,
        found.error,
        found.constant,
        found.share,
        found.measured,
        bound + math.log10(2 / norm),
    )


def _parameters(model: BracketTransformer) -> list[Tensor]:
    (layer,) = model.layers
    return [layer.key, layer.query, layer.value, *layer.mlp.weights, *layer.mlp.biases]


def _with_parameters(model: BracketTransformer, parameters: Sequence[Tensor]) -> BracketTransformer:
    key, query, value, *rest = parameters
    half = len(rest) // 2
    layer = Layer(key, query, value, Mlp(tuple(rest[:half]), tuple(rest[half:])))
    return replace(model, layers=(layer,))


def _norm(parameters: Sequence[Tensor]) -> Float[Tensor, ""]:
    return torch.stack([each.square().sum() for each in parameters]).sum()
