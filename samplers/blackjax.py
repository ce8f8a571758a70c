"""BlackJAX: resampling of its sequential Monte Carlo."""

from samplers import definitions
from samplers.jax_draws import seed
from samplers.record import Case, Shelf

SHELF = Shelf("blackjax")

WEIGHTS = [0.45, 0.3, 0.25]
DRAWS = "three particles; a compiled program of jax, with a fresh key for every draw"


def _scheme(name: str, target: definitions.Law) -> Case:
    import jax
    import jax.numpy as jnp
    from blackjax.smc import resampling

    resample = jax.jit(getattr(resampling, name), static_argnums=2)
    weights = jnp.array(WEIGHTS)

    def program() -> tuple[int, ...]:
        return tuple(resample(jax.random.key(seed()), weights, 3).tolist())

    return Case(program, target)


@SHELF.add(
    "smc.resampling.systematic",
    promise="Systematic resampling",
    source="docstring",
    note=DRAWS,
    entered=False,
)
def systematic() -> Case:
    return _scheme("systematic", definitions.systematic_resampling(WEIGHTS, 3))


@SHELF.add(
    "smc.resampling.stratified",
    promise="Stratified resampling",
    source="docstring",
    note=DRAWS,
    entered=False,
)
def stratified() -> Case:
    return _scheme("stratified", definitions.stratified_resampling(WEIGHTS, 3))


@SHELF.add(
    "smc.resampling.multinomial",
    promise="if your algorithm *REALLY* needs independent samples",
    source="docstring; its ancestors come sorted, as those of particles do",
    note=f"{DRAWS}; held against sorted independent draws. In this order they are not independent of their place",
    entered=False,
)
def multinomial() -> Case:
    target = definitions.merged(
        definitions.multinomial_resampling(WEIGHTS, 3), lambda drawn: tuple(sorted(drawn))
    )
    return _scheme("multinomial", target)


@SHELF.add(
    "smc.resampling.residual",
    promise="This code is adapted from https://github.com/nchopin/particles",
    source="docstring of residual; residual resampling by its name",
    note=DRAWS,
    entered=False,
)
def residual() -> Case:
    return _scheme("residual", definitions.residual_resampling(WEIGHTS, 3))
