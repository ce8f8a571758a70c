"""Fitting LDA with disjoint topics: the concentration of Pólya's urn, and the range of lengths.

    log p(c) = log Γ(Tα) - log Γ(Tα + n) + Σ_t (log Γ(α + c_t) - log Γ(α)) - n log v

for a document that shows c_t words of topic t, n together. Hidden words change nothing else, since
draws of an urn are exchangeable. In u = log α the first two derivatives are sums of digamma and
trigamma functions. Lengths are uniform from the shortest document seen to the longest.

Notation
--------
α   concentration      T   topics      v   words of a topic      c   counts   [documents, topics]
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from triptych.core.validation import Number, UserError, as_list, as_number
from triptych.fitting.fit import split_rows
from triptych.fitting.result import Fit, Parameter, Score, warn_unless_converged
from triptych.fitting.search import Search, as_search, as_share
from triptych.structures.string_data import StringData

LOW, HIGH = 1e-6, 1e6  # of the concentration, as LDA has them
CLEAR = 1e-4  # nats by which a maximum must exceed both ends
L = TypeVar("L")


def fit_urn(
    strings: StringData,
    make: Callable[[float, int], L],
    topics: int,
    words: int,
    *,
    prior: Any,
    held_out: Number,
    search: Search | None,
) -> Fit[L]:
    """`LDA.fit`; make(concentration, shortest length) is the structure."""
    search, share = as_search(search), as_share(held_out)
    shape, rate = _as_prior(prior)
    apart = None
    least = int((strings.tokens != topics * words).sum(1).min())
    if least < 1:
        raise UserError("tokens has a document without a word", parameter="tokens")
    if share:
        chosen, rest = split_rows(strings.rows, share, search.seed)
        strings, apart = strings.some(rest), strings.some(chosen)
    counts = _counts(strings, topics, words)
    trace: list[float] = []

    def objective(alpha: float) -> float:
        urn = log_urn(counts, alpha, words) @ strings.weights
        extra = 0.0 if prior is None else (shape - 1) * math.log(alpha) - rate * alpha
        return float(urn) + extra

    def downhill(u: float) -> float:
        trace.append(objective(math.exp(u)))
        return -trace[-1]

    bounds = (math.log(LOW), math.log(HIGH))
    done = minimize_scalar(
        downhill, bounds=bounds, method="bounded", options={"xatol": 1e-10, "maxiter": 500}
    )
    alpha = min(max(math.exp(float(done.x)), LOW), HIGH)
    gradient, curvature = _derivatives(counts, strings.weights, alpha, shape, rate, prior)
    inside = objective(alpha) > max(objective(LOW), objective(HIGH)) + CLEAR and curvature > 0
    notes = ["topics are disjoint and known, so this is the exact likelihood"]
    if not inside:
        ends = objective(LOW), objective(HIGH)
        why = "the data say nothing about the concentration"
        if max(ends) - min(ends) > CLEAR:
            why = (
                "each document has one topic"
                if ends[0] > ends[1]
                else ("documents mix topics as evenly as they can")
            )
        notes.append(f"the likelihood has no maximum between {LOW:g} and {HIGH:g}: {why}")
    error = alpha / math.sqrt(curvature) if inside else None
    spread = math.log(strings.length - least + 1)
    value = float((log_urn(counts, alpha, words) - spread) @ strings.weights)
    why = "" if inside else "no maximum"
    found = Fit(
        structure=make(alpha, least),
        log_likelihood=value,
        objective=objective(alpha),
        rows=strings.rows,
        tokens=strings.shown,
        free_parameters=1,
        converged=bool(done.success) and inside,
        steps=len(trace),
        gain=0.0,
        remaining=0.5 * gradient**2 / curvature if curvature > 0 else math.inf,
        ended="the interval of the concentration is narrower than 1e-10 in its logarithm",
        trace=tuple(trace),
        ends=(value,),
        parameters=(Parameter("concentration", alpha, error, why),),
        held_out=None if apart is None else _score(apart, topics, words, alpha, spread),
        notes=tuple(notes),
    )
    warn_unless_converged(found, notes[-1])
    return found


def log_urn(
    counts: Float[Tensor, "documents topics"], alpha: float, words: int
) -> Float[Tensor, " documents"]:
    """log p of the words that are shown. Worked value: α = 1, T = 2, v = 1, c = (2, 0): log ⅓."""
    prior = torch.full_like(counts, alpha)
    total, shown = prior.sum(-1), counts.sum(-1)
    urn = torch.lgamma(total) - torch.lgamma(total + shown)
    urn = urn + (torch.lgamma(prior + counts) - torch.lgamma(prior)).sum(-1)
    return urn - shown * math.log(words)


def _derivatives(
    counts: Tensor, weights: Tensor, alpha: float, shape: float, rate: float, prior: Any
) -> tuple[float, float]:
    """The first derivative of the objective in u = log α, and minus the second."""
    topics = counts.shape[1]
    a, total = torch.full_like(counts, alpha), torch.full_like(counts[:, 0], topics * alpha)
    shown = counts.sum(-1)
    first = topics * (torch.digamma(total) - torch.digamma(total + shown))
    first = first + (torch.digamma(a + counts) - torch.digamma(a)).sum(-1)
    second = topics**2 * (torch.polygamma(1, total) - torch.polygamma(1, total + shown))
    second = second + (torch.polygamma(1, a + counts) - torch.polygamma(1, a)).sum(-1)
    slope, bend = float(first @ weights), float(second @ weights)
    if prior is not None:
        slope += (shape - 1) / alpha - rate
        bend -= (shape - 1) / alpha**2
    return alpha * slope, -(alpha**2 * bend + alpha * slope)


def _counts(strings: StringData, topics: int, words: int) -> Float[Tensor, "documents topics"]:
    """How often each topic is shown in each document."""
    word = strings.seen & (strings.tokens != topics * words)
    topic = torch.where(word, strings.tokens, 0) // words
    counts = torch.zeros((strings.rows, topics), dtype=torch.float64)
    return counts.scatter_add(1, topic, word.double())


def _score(apart: StringData, topics: int, words: int, alpha: float, spread: float) -> Score:
    logs = log_urn(_counts(apart, topics, words), alpha, words) - spread
    return Score(float(logs @ apart.weights), apart.rows, apart.shown)


def _as_prior(prior: Any) -> tuple[float, float]:
    """Shape and rate of a Gamma law."""
    if prior is None:
        return 1.0, 0.0
    given = as_list("prior", prior, "a shape and a rate")
    if len(given) != 2:
        raise UserError("prior must be a shape and a rate, two numbers", parameter="prior")
    return as_number("prior", given[0], above=0), as_number("prior", given[1], above=0)
