"""Constructions against the truth, their patterns, and the encodings that they need."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.conditionals import every_next_token_log_probs
from triptych.core.randomness import TorchRng
from triptych.models.constructions.balanced import balanced, balanced_scores, uniform
from triptych.models.constructions.brackets import BracketTransformer, first_layer
from triptych.structures.brackets.dyck import Dyck
from triptych.studies.brackets.bracket_theory.rows import (
    Baseline,
    ComparePatterns,
    DrawBaseline,
    Encode,
    Encoded,
    Matrix,
    Patterns,
    Predict,
    Predicted,
    Silenced,
    SilenceHead,
)
from triptych.theory.brackets.encodings import independence, twin_stacks
from triptych.theory.brackets.patterns import (
    mean_variation,
    random_variation,
    stack_likeness,
    variation,
)

Q = 0.5
WORD = "[[[[]]]](((())))"
SCALE = 1.5  # of random scores: weights between e^-4 and e^4
_COMPARED = 200  # positions at the end of a long prefix
_STRINGS, _STRING_LENGTH = 20, 60
_AT_ONCE = 40  # patterns of one variation, as in the thesis


def random_scores(
    types: int, max_depth: int, scale: float, generator: torch.Generator
) -> Float[Tensor, "kinds kinds"]:
    """Balanced scores with independent normal entries, but for those that balance decides."""
    count = 2 * types * max_depth + 1
    free = torch.randn(count, count, generator=generator, dtype=torch.float64)
    return balanced_scores(scale * free, types, max_depth)


def construction(unit: Predict, generator: torch.Generator) -> BracketTransformer:
    """The weights that the unit asks for."""
    sizes = (unit.types, unit.max_depth, _STRING_LENGTH)
    if unit.scores == "uniform in both layers":
        return uniform(*sizes, q=Q)
    if unit.scores == "uniform":
        return balanced(*sizes, q=Q)
    scores = random_scores(unit.types, unit.max_depth, SCALE, generator)
    return balanced(*sizes, q=Q, scores=scores)


def predictions(unit: Predict, rng: TorchRng, generator: torch.Generator) -> Iterable[Predicted]:
    """Errors on every short prefix, on a long one, and on strings that it writes."""
    model = construction(unit, generator)
    prefixes, laws = every_prefix(unit.types, unit.max_depth, unit.enumerated)
    error = float((model.outputs(prefixes)[:, :-1] - laws).abs().max())
    tokens, truth = long_prefix(unit.types, unit.max_depth, unit.long, rng)
    first = max(0, unit.long - _COMPARED)
    said = model.outputs(tokens, first)[0]
    written = model.sample(_STRINGS, rng)
    valid = Dyck.prefixes(unit.types, unit.max_depth, _STRING_LENGTH, q=Q).completable(written)
    mlp = model.layers[-1].mlp
    yield Predicted(
        unit.seed,
        unit.types,
        unit.max_depth,
        unit.scores,
        len(prefixes),
        error,
        unit.long,
        len(said),
        float((said - truth[first:]).abs().max()),
        _STRINGS,
        int((~valid).sum()),
        len(mlp.weights),
        max(layer.mlp.width for layer in model.layers),
    )


def every_prefix(
    types: int, max_depth: int, length: int
) -> tuple[Int[Tensor, "prefixes length"], Float[Tensor, "prefixes length vocab"]]:
    """All prefixes of Dyck of this many tokens, with the laws of each of their tokens."""
    truth = Dyck.prefixes(types, max_depth, length, q=Q)
    tokens = torch.zeros(1, 0, dtype=torch.long)
    for _ in range(length):
        rows, added = (truth.next_token_log_probs(tokens) > -torch.inf).nonzero().T
        tokens = torch.cat([tokens[rows], added[:, None]], 1)
    return tokens, every_next_token_log_probs(truth, tokens).exp()


def long_prefix(
    types: int, max_depth: int, length: int, rng: TorchRng
) -> tuple[Int[Tensor, "1 length"], Float[Tensor, "positions vocab"]]:
    """A prefix drawn from (2.39) by a stack, and the law after each of its tokens.

    The same law as `Dyck.prefixes`, a hundred times as fast for one long string.
    """
    rows = torch.zeros(length, dtype=torch.long)
    opens = rng.categorical(torch.tensor([[1 - Q, Q]]).double().log(), rows).tolist()
    drawn = rng.categorical(torch.zeros(1, types).double().log_softmax(-1), rows).tolist()
    laws = torch.zeros(length + 1, 2 * types, dtype=torch.float64)
    stack: list[int] = []
    tokens: list[int] = []
    for place in range(length + 1):
        share = 1.0 if not stack else 0.0 if len(stack) == max_depth else Q
        laws[place, 0::2] = share / types
        if stack:
            laws[place, 2 * stack[-1] + 1] = 1 - share
        if place == length:
            break
        if not stack or (len(stack) < max_depth and opens[place]):
            stack.append(drawn[place])
            tokens.append(2 * stack[-1])
        else:
            tokens.append(2 * stack.pop() + 1)
    return torch.tensor([tokens]), laws


# ------------------------------------------------------------------ patterns


def patterns(unit: ComparePatterns, generator: torch.Generator) -> Iterable[Patterns]:
    """Models that are all optimal, on the word of the thesis."""
    truth = Dyck.prefixes(2, 4, len(WORD), q=Q)
    word = truth.tokens(WORD)
    laws = truth.every_next_token_log_probs(word).exp()
    found, errors = [], []
    for _ in range(unit.models):
        model = balanced(2, 4, 16, q=Q, scores=random_scores(2, 4, unit.scale, generator))
        found.append(model.pattern(word)[0])
        errors.append(float((model.outputs(word)[:, :-1] - laws).abs().max()))
    flat = balanced(2, 4, 16, q=Q).pattern(word)[0]
    yield Patterns(
        unit.seed,
        unit.models,
        unit.scale,
        mean_variation(torch.stack(found)),
        random_variation(len(WORD) + 1),
        tuple(stack_likeness(each, word[0], 2) for each in found),
        stack_likeness(flat, word[0], 2),
        max(errors),
        tuple(_matrix(each) for each in found[:3]),
    )


def baselines(unit: DrawBaseline, generator: torch.Generator) -> Iterable[Baseline]:
    """Rows uniform on the simplex: exponentials, normalised."""
    n = unit.positions
    means = []
    for _ in range(unit.repeats):
        uniforms = torch.rand(_AT_ONCE, n, n, generator=generator, dtype=torch.float64)
        drawn = (-uniforms.log()).tril()
        means.append(mean_variation(drawn / drawn.sum(-1, keepdim=True)))
    every = torch.tensor(means, dtype=torch.float64)
    spread = float(every.std()) if unit.repeats > 1 else 0.0
    yield Baseline(unit.seed, n, random_variation(n), float(every.mean()), spread, unit.repeats)


def silenced(unit: SilenceHead, generator: torch.Generator) -> Iterable[Silenced]:
    """Two networks with different attention whose last matrix is 0 [li, Proposition 2.2.1]."""
    truth = Dyck.prefixes(unit.types, unit.max_depth, 20, q=Q)
    words = truth.sample(50, TorchRng(unit.seed))
    found, outputs = [], []
    for _ in range(2):
        scores = random_scores(unit.types, unit.max_depth, SCALE, generator)
        model = balanced(unit.types, unit.max_depth, 20, q=Q, scores=scores)
        (layer,) = model.layers
        mlp = layer.mlp
        silent = replace(
            mlp,
            weights=(*mlp.weights[:-1], 0 * mlp.weights[-1]),
            biases=(*mlp.biases[:-1], 0 * mlp.biases[-1]),
        )
        quiet = replace(model, layers=(replace(layer, mlp=silent),))
        found.append(quiet.pattern(words))
        outputs.append(float(quiet.outputs(words).abs().max()))
    apart = torch.stack([variation(*pair) for pair in zip(*found, strict=True)])
    yield Silenced(unit.seed, unit.types, unit.max_depth, max(outputs), float(apart.mean()))


# ------------------------------------------------------------------ encodings


def encodings(unit: Encode) -> Iterable[Encoded]:
    """Every first layer, with both depths of a closing bracket."""
    for encoding in ("joint", "separate", "angle"):
        for closing in ("partner", "after"):
            vectors = first_layer(unit.types, unit.max_depth, encoding, closing=closing)
            found = independence(vectors, unit.types, unit.max_depth)
            twins = twin_stacks(vectors, unit.types, unit.max_depth)
            yield Encoded(
                unit.seed,
                unit.types,
                unit.max_depth,
                encoding,
                closing,
                found.as_stated,
                found.as_used,
                twins.apart,
            )


def _matrix(pattern: Float[Tensor, "n n"]) -> Matrix:
    return tuple(tuple(round(weight, 4) for weight in row) for row in pattern.tolist())
