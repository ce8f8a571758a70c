"""Exact HMM inference and sampling against hmmlearn and pomegranate."""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import hmmlearn.hmm
import numpy as np
import torch

from benchmarks.timing import compare, fastest, seconds
from triptych.core.randomness import TorchRng
from triptych.structures.hidden_markov.hmm import HMM

Row = dict[str, Any]
ROWS, LENGTH, VOCAB = 1000, 128, 10


def run() -> Iterator[Row]:
    for states in (10, 64):
        yield posteriors(states)
    for states in (10, 64):
        yield posteriors_pomegranate(states)
    yield sampling()
    yield autograd()
    yield growth("length", "linear: at most 1.15", [64, 128, 256, 512, 1024])
    yield growth("states", "quadratic: at most 2.0", [16, 32, 64, 128, 256])


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


def posteriors(states: int) -> Row:
    """Ours with 15 % of the tokens hidden; hmmlearn, which cannot hide tokens, with all shown."""
    hmm, tokens, hidden = _data(states)
    peer = _peer(hmm)
    rows = ROWS if states <= 10 else ROWS // 5
    flat, lengths = tokens[:rows].reshape(-1, 1).numpy(), [LENGTH] * rows
    _, theirs = peer.score_samples(flat, lengths)
    ours = hmm.posterior(tokens[:rows], torch.zeros_like(hidden[:rows])).exp()
    gap = np.abs(ours.reshape(-1, states).numpy() - theirs).max()
    result = compare(
        lambda: hmm.posterior(tokens, hidden),
        lambda: peer.score_samples(flat, lengths),
        turns=9,
        repeats=5,
        scale=ROWS / rows,
    )
    return {
        "what": f"posteriors, {ROWS} x {LENGTH} tokens, {states} states",
        "peer": "hmmlearn",
        "bar": {10: 30.0, 64: 70.0}[states],
        "largest_difference": float(gap),
        **result._asdict(),
    }


def posteriors_pomegranate(states: int) -> Row:
    what = f"posteriors, {ROWS} x {LENGTH} tokens, {states} states"
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
            lambda: hmm.posterior(tokens, hidden),
            lambda: peer.predict_proba(flat),
            turns=3,
            repeats=5,
            scale=ROWS / rows,
        )
    return {"what": what, "peer": "pomegranate (float32)", **result._asdict()}


def sampling() -> Row:
    documents, length, cut = 5000, 10240, 20_000
    hmm = HMM.random(10, VOCAB, length, seed=0)
    peer = _peer(hmm)
    ours = seconds(lambda: hmm.sample(documents, TorchRng(0)))
    pairs = []
    for turn in range(3):
        theirs = seconds(lambda turn=turn: peer.sample(cut, random_state=turn))
        ours = seconds(lambda: hmm.sample(documents, TorchRng(0)))
        pairs.append((ours, theirs * documents * length / cut))
    ratios = sorted(peer_ / mine for mine, peer_ in pairs)
    return {
        "what": f"sampling {documents * length / 1e6:.1f} million tokens, 10 states",
        "peer": "hmmlearn",
        "bar": 100.0,
        "ours": sorted(mine for mine, _ in pairs)[1],
        "theirs": sorted(peer_ for _, peer_ in pairs)[1],
        "ratio": ratios[1],
        "low": ratios[0],
        "high": ratios[-1],
        "tokens_per_second": documents * length / sorted(mine for mine, _ in pairs)[1],
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
        times.append(fastest(lambda h=hmm, t=tokens, m=hidden: h.posterior(t, m), repeats=7))
    slope = math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0])
    return {
        "what": f"growth with {what}, {sizes[0]} to {sizes[-1]}",
        "peer": f"exponent ({bar})",
        "exponent": slope,
        "sizes": sizes,
        "seconds": times,
    }
