"""pomegranate: hidden Markov models and Bayesian networks."""

from typing import Any

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("pomegranate")

INITIAL = [0.6, 0.4]
TRANSITION = [[0.7, 0.3], [0.2, 0.8]]
EMISSION = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]
GENERATED = (
    "This method will return `n` samples generated from the underlying probability distribution"
)
FLOAT32 = 1e-6


@SHELF.add(
    "DenseHMM.sample",
    promise=GENERATED,
    source="docstring of DenseHMM.sample",
    note="two states, three symbols, length 3: the law of the symbols",
    rounding=FLOAT32,
)
def dense() -> Case:
    import numpy as np
    from pomegranate.distributions import Categorical
    from pomegranate.hmm import DenseHMM

    model = DenseHMM(
        [Categorical([row]) for row in EMISSION],
        edges=TRANSITION,
        starts=INITIAL,
        sample_length=3,
        random_state=np.random.mtrand._rand,
    )

    def program() -> tuple[int, ...]:
        return tuple(int(x) for x in model.sample(1)[0][:, 0])

    joint = definitions.hidden_markov(INITIAL, TRANSITION, EMISSION, 3)
    return Case(program, definitions.merged(joint, lambda pair: pair[1]))


@SHELF.add(
    "BayesianNetwork.sample",
    promise=GENERATED,
    source="docstring of BayesianNetwork.sample",
    note="a root with two children of two values",
    rounding=FLOAT32,
)
def network() -> Case:
    from pomegranate.bayesian_network import BayesianNetwork
    from pomegranate.distributions import Categorical, ConditionalCategorical

    root, children = [0.3, 0.7], [[[0.9, 0.1], [0.4, 0.6]], [[0.2, 0.8], [0.5, 0.5]]]
    parts: list[Any] = [Categorical([root]), *(ConditionalCategorical([c]) for c in children)]
    model = BayesianNetwork(parts, edges=[(parts[0], child) for child in parts[1:]])

    def program() -> tuple[int, ...]:
        return tuple(model.sample(1)[0].tolist())

    target = {
        (a, b, c): root[a] * children[0][a][b] * children[1][a][c]
        for a in range(2)
        for b in range(2)
        for c in range(2)
    }
    return Case(program, target)


@SHELF.add(
    "MarkovChain.sample",
    promise=GENERATED,
    source="docstring of MarkovChain.sample",
    note="order 2, two values, length 3",
    rounding=FLOAT32,
)
def chain() -> Case:
    from pomegranate.distributions import Categorical, ConditionalCategorical
    from pomegranate.markov_chain import MarkovChain

    third = [TRANSITION, [[0.1, 0.9], [0.6, 0.4]]]  # given both values before
    model = MarkovChain(
        [
            Categorical([INITIAL]),
            ConditionalCategorical([TRANSITION]),
            ConditionalCategorical([third]),
        ]
    )

    def program() -> tuple[int, ...]:
        return tuple(model.sample(1)[0, :, 0].tolist())

    def following(prefix: tuple[int, ...]) -> definitions.Law:
        row: Any = (INITIAL, TRANSITION, third)[len(prefix)]
        for value in prefix:
            row = row[value]
        return dict(enumerate(row))

    return Case(program, definitions.sequences(following, 3))
