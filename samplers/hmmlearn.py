"""hmmlearn: strings of a hidden Markov model."""

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("hmmlearn")

INITIAL = [0.6, 0.4]
TRANSITION = [[0.7, 0.3], [0.2, 0.8]]
EMISSION = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]


@SHELF.add(
    "CategoricalHMM.sample",
    promise="Generate random samples from the model",
    source="docstring of sample",
    note="two states, three symbols, length 3: the joint law of states and symbols",
)
def categorical() -> Case:
    import numpy as np
    from hmmlearn.hmm import CategoricalHMM

    model = CategoricalHMM(n_components=2)
    model.startprob_ = np.array(INITIAL)
    model.transmat_ = np.array(TRANSITION)
    model.emissionprob_ = np.array(EMISSION)
    model.n_features = 3

    def program() -> tuple[tuple[int, ...], tuple[int, ...]]:
        symbols, states = model.sample(3)
        return tuple(int(z) for z in states), tuple(int(x) for x in symbols[:, 0])

    return Case(program, definitions.hidden_markov(INITIAL, TRANSITION, EMISSION, 3))
