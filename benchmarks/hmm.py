"""Exact HMM inference and sampling against hmmlearn, pomegranate and dynamax.

Ours twice: with torch, as it runs by itself, and with the C programs of `use_compiled()`.
"""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import hmmlearn.hmm
import numpy as np
import torch

from benchmarks.timing import Comparison, compare, fastest, measured, one_core, with_programs
from triptych.core.randomness import TorchRng
from triptych.structures.hidden_markov.hmm import HMM

Row = dict[str, Any]
ROWS, LENGTH, VOCAB = 1000, 128, 10


BARS = {(10, False): 30.0, (64, False): 70.0, (10, True): 40.0, (64, True): 100.0}


def run() -> Iterator[Row]:
    with one_core():
        for against in (posteriors, posteriors_dynamax):
            for states in (10, 64):
                for compiled in (False, True):
                    yield with_programs(compiled, lambda c, a=against, s=states: a(s, c))
        for states in (10, 64):
            yield posteriors_pomegranate(states)
        for compiled in (False, True):
            yield with_programs(compiled, sampling)
        yield autograd()
        yield growth("length", "linear: at most 1.15", [64, 128, 256, 512, 1024])
        yield growth("states", "quadratic: at most 2.0", [16, 32, 64, 128, 256])


def _what(states: int, compiled: bool) -> str:
    ours = ", in C" if compiled else ""
    return f"posteriors{ours}, {ROWS} x {LENGTH} tokens, {states} states"


def _peer(hmm: HMM) -> hmmlearn.hmm.CategoricalHMM:
    peer = hmmlearn.hmm.CategoricalHMM(n_components=hmm.states)
    peer.startprob_, peer.transmat_ = hmm.initial.numpy(), hmm.transition.numpy()
    peer.emissionprob_, peer.n_features = hmm.emission.numpy(), hmm.vocab_size
    return peer


def _data(states: int) -> tuple[HMM, torch.Tensor, torch.Tensor]:
    hmm = HMM.random(states, VOCAB, LENGTH, seed=0)
    tokens = hmm.sample(ROWS, TorchRng(0))
    hidden = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.15
    return hmm, tokens, hidden


def posteriors(states: int, compiled: bool) -> Row:
    """Ours with 15 % of the tokens hidden; hmmlearn, which cannot hide tokens, with all shown."""
    hmm, tokens, hidden = _data(states)
    peer = _peer(hmm)
    rows = ROWS if states <= 10 else ROWS // 5
    flat, lengths = tokens[:rows].reshape(-1, 1).numpy(), [LENGTH] * rows
    _, theirs = peer.score_samples(flat, lengths)
    ours = hmm.log_posterior(tokens[:rows], torch.zeros_like(hidden[:rows])).exp()
    gap = np.abs(ours.reshape(-1, states).numpy() - theirs).max()
    result = compare(
        lambda: hmm.log_posterior(tokens, hidden),
        lambda: peer.score_samples(flat, lengths),
        turns=7,
        repeats=5,
        scale=ROWS / rows,
    )
    return {
        "what": _what(states, compiled),
        "peer": "hmmlearn",
        "bar": BARS[states, compiled],
        "largest_difference": float(gap),
        **result._asdict(),
    }


def posteriors_dynamax(states: int, compiled: bool) -> Row:
    """Both with the same tokens hidden, in float64; dynamax is compiled for all rows at once.

    It gives probabilities, ours are logarithms.
    """
    what = _what(states, compiled)
    try:
        import jax
        from dynamax.hidden_markov_model import hmm_smoother
    except Exception as error:  # a peer that does not install is a finding, not a crash
        return {"what": what, "peer": "dynamax", "not_run": f"{error}; pip install dynamax"}
    hmm, tokens, hidden = _data(states)
    symbols = tokens.masked_fill(hidden, hmm.vocab_size)
    ones = torch.ones(1, states, dtype=torch.float64)
    shown = torch.cat([hmm.emission.T, ones]).log()  # the last row: a hidden token says nothing
    with jax.enable_x64(True):
        initial, transition, table, given = (
            jax.numpy.asarray(part.numpy())
            for part in (hmm.initial, hmm.transition, shown, symbols)
        )

        @jax.jit
        @jax.vmap
        def smooth(row: Any) -> Any:
            return hmm_smoother(initial, transition, table[row]).smoothed_probs

        theirs = np.asarray(jax.block_until_ready(smooth(given)))  # compiles
        gap = np.abs(hmm.log_posterior(tokens, hidden).exp().numpy() - theirs).max()
        result = compare(
            lambda: hmm.log_posterior(tokens, hidden),
            lambda: jax.block_until_ready(smooth(given)),
            turns=9,
        )
    return {
        "what": what,
        "peer": "dynamax (JAX, compiled)",
        "largest_difference": float(gap),
        **result._asdict(),
    }


def posteriors_pomegranate(states: int) -> Row:
    what = _what(states, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from pomegranate.distributions import Categorical
            from pomegranate.hmm import DenseHMM
        except Exception as error:  # a peer that does not install is a finding, not a crash
            return {"what": what, "peer": "pomegranate", "not_run": str(error)}
        torch.set_num_threads(1)  # importing it resets the number of threads
        hmm, tokens, hidden = _data(states)
        peer = DenseHMM(
            [Categorical(row[None].float()) for row in hmm.emission],
            edges=hmm.transition.float(),
            starts=hmm.initial.float(),
            ends=torch.full((states,), 1e-6),
        )
        rows = ROWS // 5
        flat = tokens[:rows, :, None]
        result = compare(
            lambda: hmm.log_posterior(tokens, hidden),
            lambda: peer.predict_proba(flat),
            turns=3,
            repeats=5,
            scale=ROWS / rows,
        )
    return {"what": what, "peer": "pomegranate (float32)", **result._asdict()}


def sampling(compiled: bool) -> Row:
    """hmmlearn draws a part of the tokens, and its time is scaled."""
    documents, length, cut = 5000, 10240, 20_000
    hmm = HMM.random(10, VOCAB, length, seed=0)
    peer, total = _peer(hmm), documents * length
    hmm.with_length(100).sample(documents, TorchRng(0))
    turns = []
    for turn in range(3):
        theirs = measured(lambda turn=turn: peer.sample(cut, random_state=turn))
        ours = measured(lambda: hmm.sample(documents, TorchRng(0)))
        turns.append((ours, theirs.times(total / cut)))
    result = Comparison.of(turns)
    ours = ", in C" if compiled else ""
    return {
        "what": f"sampling{ours}, {total / 1e6:.1f} million tokens, 10 states",
        "peer": "hmmlearn",
        "bar": 200.0 if compiled else 100.0,
        **result._asdict(),
        "tokens_per_second": total / result.ours,
    }


def autograd() -> Row:
    """The differentiable embedding model, forward and backward, against the plain posterior."""
    hmm, tokens, hidden = _data(10)
    vectors = hmm.embed(tokens, hidden).requires_grad_()

    def differentiate() -> None:
        vectors.grad = None
        hmm.soft_masked_probs(vectors).square().sum().backward()

    result = compare(lambda: hmm.masked_log_probs(tokens, hidden), differentiate, turns=5)
    return {
        "what": f"masked probabilities, {ROWS} x {LENGTH} tokens, 10 states",
        "peer": "our own forward and backward through autograd",
        **result._asdict(),
    }


def growth(what: str, bar: str, sizes: list[int]) -> Row:
    """Slope of log time against log size, over a factor of 16."""
    times = []
    for size in sizes:
        states, length = (10, size) if what == "length" else (size, LENGTH)
        hmm = HMM.random(states, VOCAB, length, seed=0)
        tokens = hmm.sample(200, TorchRng(0))
        hidden = torch.zeros_like(tokens, dtype=torch.bool)
        times.append(fastest(lambda h=hmm, t=tokens, m=hidden: h.log_posterior(t, m), repeats=7))
    slope = math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0])
    return {
        "what": f"growth with {what}, {sizes[0]} to {sizes[-1]}",
        "peer": f"exponent ({bar})",
        "exponent": slope,
        "sizes": sizes,
        "seconds": times,
    }
