"""Random transformers pruned to given ones [li, Theorem 2.2.3 and Corollary 2.2.3]."""

from collections.abc import Iterable

import torch

from triptych.studies.brackets.bracket_theory.rows import Prune, Pruned, Share, Shared
from triptych.theory.brackets import pruning

_POSITIONS, _INPUTS, _ASCENTS, _STEPS = 5, 32, 4, 8


def _drawing(generator: torch.Generator) -> pruning.Draw:
    def draw(*shape: int) -> torch.Tensor:
        return 2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1

    return draw


def prunings(unit: Prune, generator: torch.Generator) -> Iterable[Pruned]:
    """One target and one random transformer."""
    draw = _drawing(generator)
    target = pruning.random_target(unit.width, unit.hidden, unit.layers, draw)
    large = pruning.random_large(target, unit.block, draw)
    pruned = pruning.pruned_transformer(large, target)
    inputs = draw(_INPUTS, _POSITIONS, unit.width)
    errors = pruning.relative_errors(pruned, target, inputs)
    every = [matrix for layer in pruned.layers for matrix in layer.matrices().values()]
    kept, size = sum(int((m != 0).sum()) for m in every), sum(m.numel() for m in every)
    worst = pruning.worst_input(pruned, target, inputs[errors.topk(_ASCENTS).indices], steps=_STEPS)
    yield Pruned(
        unit.seed,
        unit.width,
        unit.hidden,
        unit.layers,
        unit.block,
        large.width,
        len(large.layers[0].mlp[0]),
        pruning.is_pruning(pruned, large),
        max(worst, float(errors.max())),
        float(errors.median()),
        kept / size,
    )


def shared(unit: Share, generator: torch.Generator) -> Iterable[Shared]:
    """Two targets, one random transformer, one layer that both prunings make the identity."""
    draw = _drawing(generator)
    one, two = (pruning.random_target(unit.width, unit.hidden, 1, draw) for _ in range(2))
    targets = (one, two)
    large = pruning.random_large(one, unit.block, draw)
    inputs = draw(_INPUTS, _POSITIONS, unit.width)
    made = [pruning.pruned_transformer(large, target, identity_at=unit.layer) for target in targets]
    errors = [
        float(pruning.relative_errors(pruned, target, inputs).max())
        for pruned, target in zip(made, targets, strict=True)
    ]
    first, second = (list(each.layers[unit.layer].matrices().values()) for each in made)
    yield Shared(
        unit.seed,
        unit.width,
        unit.block,
        unit.layer,
        float(pruning.relative_errors(one, two, inputs).max()),
        errors[0],
        errors[1],
        len(first),
        sum(not torch.equal(a, b) for a, b in zip(first, second, strict=True)),
        sum(int((matrix != 0).sum()) for matrix in first),
    )
