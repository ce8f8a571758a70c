"""Twenty steps of EM on an HMM against hmmlearn and dynamax: the same start, the same steps.

Every row has the largest difference of the log-likelihoods after each step. Ours is the whole call
of `HMM.fit`, from tokens to a `Fit`; hmmlearn runs as it is by default and with the faster
implementation that it also has; dynamax is one compiled program, whose compilation is not timed.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import hmmlearn.hmm
import numpy as np
import torch

from benchmarks.timing import compare, one_core, with_programs
from triptych.core.randomness import TorchRng
from triptych.fitting.result import Fit, NotConverged
from triptych.fitting.search import Search
from triptych.structures.hidden_markov.hmm import HMM

Row = dict[str, Any]
ROWS, LENGTH, VOCAB, STEPS = 1000, 128, 10, 20
SEARCH = Search(
    method="em", restarts=1, max_steps=STEPS, tolerance=0.0, standard_errors=False
)  # all steps, and no more


def run() -> Iterator[Row]:
    with one_core():
        for against in (by_default, by_scaling, against_dynamax):
            for states in (10, 64):
                for compiled in (False, True):
                    yield with_programs(compiled, lambda c, a=against, s=states: a(s, c))


def _what(states: int, compiled: bool) -> str:
    ours = ", in C" if compiled else ""
    return f"{STEPS} steps of EM{ours}, {ROWS} x {LENGTH} tokens, {states} states"


def _data(states: int, rows: int) -> tuple[torch.Tensor, HMM]:
    tokens = HMM.random(states, VOCAB, LENGTH, seed=0).sample(rows, TorchRng(0))
    return tokens, HMM.random(states, VOCAB, LENGTH, seed=1)


def fitted(tokens: torch.Tensor, start: HMM) -> Fit[HMM]:
    """Ours; that it did not converge in twenty steps is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)
        return HMM.fit(tokens, start=start, search=SEARCH)


def by_default(states: int, compiled: bool) -> Row:
    """hmmlearn as it is: in log-space."""
    row = against_hmmlearn(states, compiled, "log", ROWS // 5 if states <= 10 else ROWS // 50)
    return row | ({"bar": 20.0} if compiled else {})


def by_scaling(states: int, compiled: bool) -> Row:
    """Its faster implementation, which has to be asked for."""
    return against_hmmlearn(states, compiled, "scaling", ROWS if states <= 10 else ROWS // 10)


def against_hmmlearn(states: int, compiled: bool, implementation: str, rows: int) -> Row:
    """hmmlearn fits a part of the rows, and its time is scaled."""
    tokens, start = _data(states, ROWS)
    part = tokens[:rows]
    flat, lengths = part.reshape(-1, 1).numpy(), [LENGTH] * rows

    def theirs() -> hmmlearn.hmm.CategoricalHMM:
        peer = hmmlearn.hmm.CategoricalHMM(
            n_components=states, n_features=VOCAB, n_iter=STEPS, tol=-np.inf, init_params="",
            implementation=implementation,
        )  # fmt: skip
        peer.startprob_, peer.transmat_ = start.initial.numpy(), start.transition.numpy()
        peer.emissionprob_ = start.emission.numpy()
        return peer.fit(flat, lengths)

    steps = np.array(theirs().monitor_.history)  # its own list keeps the last ones alone
    gap = np.abs(np.array(fitted(part, start).trace[:STEPS])[-len(steps) :] - steps).max()
    result = compare(lambda: fitted(tokens, start), theirs, turns=3, repeats=3, scale=ROWS / rows)
    return {
        "what": _what(states, compiled),
        "peer": "hmmlearn" + (", its scaling" if implementation == "scaling" else ""),
        "largest_difference": float(gap),
        **result._asdict(),
    }


def against_dynamax(states: int, compiled: bool) -> Row:
    what = _what(states, compiled)
    try:
        import jax
        from dynamax.hidden_markov_model import CategoricalHMM
    except Exception as error:  # a peer that does not install is a finding, not a crash
        return {"what": what, "peer": "dynamax", "not_run": f"{error}; pip install dynamax"}
    tokens, start = _data(states, ROWS)
    with jax.enable_x64(True):
        flat = 1.0  # a flat prior: maximum likelihood
        peer = CategoricalHMM(states, 1, VOCAB, flat, flat, emission_prior_concentration=flat)
        emission = jax.numpy.asarray(start.emission.numpy())[:, None]
        params, props = peer.initialize(
            initial_probs=jax.numpy.asarray(start.initial.numpy()),
            transition_matrix=jax.numpy.asarray(start.transition.numpy()),
            emission_probs=emission,
        )
        given = jax.numpy.asarray(tokens.numpy())[..., None]

        @jax.jit
        def twenty(params: Any, given: Any) -> Any:
            return peer.fit_em(params, props, given, num_iters=STEPS, verbose=False)

        def theirs() -> Any:
            return jax.block_until_ready(twenty(params, given))

        steps = np.asarray(theirs()[1]) - float(peer.log_prior(params))  # a constant, if flat
        gap = np.abs(np.array(fitted(tokens, start).trace[:STEPS]) - steps).max()
        result = compare(lambda: fitted(tokens, start), theirs, turns=5)
    return {
        "what": what,
        "peer": "dynamax (JAX, compiled)",
        "largest_difference": float(gap),
        **({"bar": 3.0} if compiled else {}),
        **result._asdict(),
    }
