"""dynamax: hidden states given what was seen, and strings of a model."""

from samplers import definitions
from samplers.jax_draws import jax_draws
from samplers.record import Case, Shelf

SHELF = Shelf("dynamax")

INITIAL = [0.6, 0.4]
TRANSITION = [[0.7, 0.3], [0.2, 0.8]]
EMISSION = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]
SEEN = (0, 2)


@SHELF.add(
    "hmm_posterior_sample",
    promise="Sample a latent sequence from the posterior",
    source="docstring",
    note="two states, three symbols, length 2: p(states | symbols); jax without compilation, draws of jax.random from torch",
    rounding=1e-5,
)
def posterior() -> Case:
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import hmm_posterior_sample

    seen = jnp.log(jnp.array([[row[x] for row in EMISSION] for x in SEEN]))
    initial, transition = jnp.array(INITIAL), jnp.array(TRANSITION)

    def program() -> tuple[int, ...]:
        with jax_draws():
            _, states = hmm_posterior_sample(jax.random.key(0), initial, transition, seen)
        return tuple(states.tolist())

    joint = definitions.hidden_markov(INITIAL, TRANSITION, EMISSION, 2)
    posterior = definitions.given(joint, lambda pair: pair[1] == SEEN)
    return Case(program, definitions.merged(posterior, lambda pair: pair[0]))


@SHELF.add(
    "CategoricalHMM.sample",
    promise="Sample states z_{1:T} and emissions y_{1:T} given parameters",
    source="docstring of SSM.sample",
    note="two states, three symbols, length 2; a compiled program of jax, with a fresh key for every draw",
    rounding=1e-5,
    entered=False,
)
def sample() -> Case:
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import CategoricalHMM

    from samplers.jax_draws import seed

    model = CategoricalHMM(2, 1, 3)
    parameters, _ = model.initialize(
        initial_probs=jnp.array(INITIAL),
        transition_matrix=jnp.array(TRANSITION),
        emission_probs=jnp.array(EMISSION)[:, None],
    )
    draw = jax.jit(jax.vmap(lambda key: model.sample(parameters, key, 2)))
    waiting: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def program() -> tuple[tuple[int, ...], tuple[int, ...]]:
        if not waiting:
            states, symbols = draw(jax.random.split(jax.random.key(seed()), 5_000))
            pairs = zip(states.tolist(), symbols[..., 0].tolist(), strict=True)
            waiting.extend((tuple(z), tuple(x)) for z, x in pairs)
        return waiting.pop()

    program()  # compiles it
    return Case(program, definitions.hidden_markov(INITIAL, TRANSITION, EMISSION, 2))
