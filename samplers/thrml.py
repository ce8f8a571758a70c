"""thrml: block Gibbs sampling of Ising models."""

import itertools
import math
from typing import Any

from samplers import definitions
from samplers.jax_draws import jax_draws
from samplers.record import Case, Shelf

SHELF = Shelf("thrml")

BIASES = [0.3, -0.2, 0.5]
COUPLINGS = [0.7, -0.4]
BETA = 0.8


def _chain() -> tuple[Any, Any, Any]:
    """A chain of three spins; the outer two are free, and the middle one is clamped."""
    import jax.numpy as jnp
    from thrml import Block, SpinNode
    from thrml.models import IsingEBM, IsingSamplingProgram

    nodes = [SpinNode() for _ in range(3)]
    model = IsingEBM(
        nodes,
        list(itertools.pairwise(nodes)),
        jnp.array(BIASES),
        jnp.array(COUPLINGS),
        jnp.array(BETA),
    )
    free, middle = Block(nodes[::2]), Block(nodes[1:2])
    return model, free, IsingSamplingProgram(model, [free], clamped_blocks=[middle])


@SHELF.add(
    "sample_blocks with IsingSamplingProgram",
    promise="efficient block Gibbs sampling",
    source="README; the energy is in the docstring of IsingEBM",
    note="the outer two of a chain of three spins are redrawn, given that the middle one is up; "
    "draws of jax.random come from torch",
    rounding=1e-6,
)
def sweep() -> Case:
    import jax
    import jax.numpy as jnp
    from thrml.block_sampling import sample_blocks

    _, _, program = _chain()

    def draw() -> tuple[bool, ...]:
        before, up = [jnp.array([False, True])], [jnp.array([True])]
        with jax_draws(loops=False):
            after, _ = sample_blocks(jax.random.key(0), before, up, program, [None])
        return tuple(after[0].tolist())

    weights = {}
    for first, last in itertools.product((False, True), repeat=2):
        s = [1 if up else -1 for up in (first, True, last)]
        minus_energy = sum(b * x for b, x in zip(BIASES, s, strict=True))
        minus_energy += sum(
            j * x * y for j, (x, y) in zip(COUPLINGS, itertools.pairwise(s), strict=True)
        )
        weights[first, last] = math.exp(BETA * minus_energy)
    return Case(draw, definitions.normalised(weights))


@SHELF.add(
    "hinton_init",
    promise="Initialize the blocks according to the marginal bias",
    source="docstring of hinton_init, with the formula P(S_i = 1) = sigma(beta h_i)",
    note="two spins. The formula is kept; a lone spin of this energy has sigma(2 beta h_i)",
    rounding=1e-6,
)
def start() -> Case:
    import jax
    from thrml.models import hinton_init

    model, free, _ = _chain()

    def program() -> tuple[bool, ...]:
        with jax_draws(loops=False):
            (drawn,) = hinton_init.__wrapped__(jax.random.key(0), model, [free], ())
        return tuple(drawn.tolist())

    laws = []
    for bias in BIASES[::2]:
        up = 1 / (1 + math.exp(-BETA * bias))
        laws.append({True: up, False: 1 - up})
    return Case(program, definitions.product(*laws))
