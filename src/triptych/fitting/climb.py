"""Climbing to a maximum: EM, stepwise EM on batches of rows, and gradients. Each says how it ended.

    em         the M-step of the expected counts, again and again
    gradient   L-BFGS on logits; the gradient is made of the same expected counts
    both       fifty steps of EM, then gradients, where EM alone would take thousands

EM never lowers the objective, log-likelihood plus log-prior. It converges at a constant rate r, so
the ratio of its last two gains says what is still to gain: g r / (1 - r) after a gain of g. A climb
is called converged when that is below the tolerance, and never because it has used up its steps.

Stepwise EM (Cappé and Moulines) mixes the counts of a batch into those so far, with weight
(k + 2)^-0.7 at step k. Its sweeps come first, and EM on all rows ends the climb.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.optimize import minimize

from triptych.core.validation import UserError
from triptych.fitting.rows import Expected, Groups, Parameters, RowModel
from triptych.fitting.search import Search

_POWER = 0.7  # of the weights of stepwise EM: between ½ and 1 they converge
_SWEEPS = 20
_FIRST_STEPS = 50  # of EM, before gradients end a climb by both
_DOUBLINGS = 60
_ROUNDING = 1e-12  # of an objective, relative: a smaller gain is none


@dataclass
class Climb:
    """Where a climb is: parameters, and the objective after every step, from its start on.

    gain        of the last step
    remaining   what is still to gain, as far as the last gains tell; inf where they do not
    """

    parameters: Parameters
    trace: list[float] = field(default_factory=list)
    log_likelihood: float = -math.inf
    converged: bool = False
    remaining: float = math.inf
    ended: str = "used up its steps"

    @property
    def steps(self) -> int:
        return len(self.trace) - 1

    @property
    def gain(self) -> float:
        return self.trace[-1] - self.trace[-2] if len(self.trace) > 1 else 0.0


def climb(model: RowModel, start: Parameters, groups: Groups, search: Search) -> Climb:
    """From one start to where the search ends."""
    if search.method == "gradient":
        return _by_gradient(model, start, groups, search, search.max_steps)
    if search.batch is not None and search.batch < model.rows:
        start = _sweeps(model, start, groups, search)
    if search.method == "em":
        return _by_em(model, start, groups, search, search.max_steps)
    first = _by_em(model, start, groups, search, min(_FIRST_STEPS, search.max_steps))
    left = search.max_steps - first.steps
    if first.converged or left < 1:
        return first
    then = _by_gradient(model, first.parameters, groups, search, left)
    then.trace = first.trace + then.trace[1:]
    return then


def expected_at(model: RowModel, parameters: Parameters) -> Expected:
    """A pass over the data; refused where the start excludes what is shown."""
    found = model.expected(parameters)
    if math.isinf(found.log_likelihood):
        raise UserError(
            "the start gives some row of tokens probability 0, so nothing can be fitted from "
            "there: its zeros exclude what is shown",
            parameter="start",
        )
    return found


# ------------------------------------------------------------------ EM


def _by_em(model: RowModel, start: Parameters, groups: Groups, search: Search, steps: int) -> Climb:
    now = Climb(start)
    expected = expected_at(model, start)
    now.log_likelihood = expected.log_likelihood
    now.trace.append(expected.log_likelihood + groups.log_prior(start))
    limit = search.tolerance * model.shown
    for _ in range(steps):
        moved = _step(model, now, expected, groups)
        if moved is None:
            now.ended, now.remaining = "no step gains more", 0.0
            now.converged = True
            break
        now.parameters, expected, objective = moved
        now.log_likelihood = expected.log_likelihood
        now.trace.append(objective)
        now.remaining = _remaining(now.trace)
        if now.remaining <= limit and search.tolerance > 0:
            now.converged, now.ended = True, "what is still to gain is below the tolerance"
            break
    return now


def _step(
    model: RowModel, now: Climb, expected: Expected, groups: Groups
) -> tuple[Parameters, Expected, float] | None:
    """An EM step; with a normaliser one that does not lower the objective, or None."""
    larger = 1.0
    for _ in range(_DOUBLINGS):
        trial = groups.maximised(now.parameters, expected, larger)
        found = model.expected(trial)
        objective = found.log_likelihood + groups.log_prior(trial)
        if expected.normaliser is None or objective >= now.trace[-1]:
            return trial, found, objective
        larger *= 2
    return None


def _remaining(trace: list[float]) -> float:
    """What EM may still gain. Worked value: gains 8, 4, 2, ...: after 8 and 4, 4 more remain."""
    if len(trace) < 3:
        return math.inf
    before, last = trace[-2] - trace[-3], trace[-1] - trace[-2]
    if last <= _ROUNDING * max(1.0, abs(trace[-1])):
        return max(last, 0.0)
    rate = last / before if before > 0 else math.inf
    return last * rate / (1 - rate) if rate < 1 else math.inf


def _sweeps(model: RowModel, start: Parameters, groups: Groups, search: Search) -> Parameters:
    """Stepwise EM, a sweep over all batches at a time, until a sweep gains little."""
    generator = np.random.default_rng(search.seed)
    assert search.batch is not None
    parameters, best, k, kept = start, -math.inf, 0, start
    sums: Parameters | None = None
    for _ in range(min(_SWEEPS, search.max_steps)):
        order = torch.from_numpy(generator.permutation(model.rows))
        seen = 0.0
        for rows in order.split(search.batch):
            found = expected_at(model.some(rows), parameters)
            seen += found.log_likelihood
            share = model.rows / len(rows)
            weight = 1.0 if sums is None else (k + 2) ** -_POWER
            mixed = {
                part: weight * share * c + (1 - weight) * (0.0 if sums is None else sums[part])
                for part, c in found.counts.items()
            }
            sums, k = mixed, k + 1
            extra = None
            if found.normaliser is not None:
                extra = {part: share * e for part, e in found.normaliser.items()}
            parameters = groups.maximised(parameters, Expected(0.0, mixed, extra))
        if seen < best + 1e-5 * model.shown:  # seen along the way, so about the sweep before
            return parameters if seen > best else kept
        best, kept = seen, parameters
    return parameters


# ------------------------------------------------------------------ gradients


def _by_gradient(
    model: RowModel, start: Parameters, groups: Groups, search: Search, steps: int
) -> Climb:
    """L-BFGS on the logits of the free groups; the gradient is c̃ - p Σ c̃, by Fisher's identity."""
    now = Climb(start)
    first = expected_at(model, start)
    now.trace.append(first.log_likelihood + groups.log_prior(start))
    at = Logits(groups, start)
    passes: dict[bytes, float] = {}

    def downhill(x: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = at.parameters(x)
        found = model.expected(parameters)
        value = found.log_likelihood + groups.log_prior(parameters)
        passes.clear()
        passes[x.tobytes()] = value
        return -value, -at.gradient(parameters, found)

    def note(x: np.ndarray) -> None:
        known = passes.get(x.tobytes())
        now.trace.append(-downhill(x)[0] if known is None else known)

    if not at.size:
        now.converged, now.ended, now.remaining = True, "nothing is free", 0.0
        now.log_likelihood = first.log_likelihood
        return now
    flat = 1e-9 * max(1, model.shown)  # a slope of this size moves no probability
    done = minimize(
        downhill, at.x, jac=True, method="L-BFGS-B", callback=note,
        options={"maxiter": steps, "gtol": flat, "ftol": 0.0, "maxcor": 20, "maxfun": 20 * steps},
    )  # fmt: skip
    now.parameters = at.parameters(done.x)
    found = model.expected(now.parameters)
    now.log_likelihood = found.log_likelihood
    slope = at.gradient(now.parameters, found)
    now.remaining = 0.5 * float(slope @ done.hess_inv.matvec(slope))  # by the curvature it has seen
    now.converged = now.remaining <= search.tolerance * model.shown and now.steps < steps
    now.ended = f"the largest slope of a logit is {np.abs(slope).max():.2g}"
    return now


class Logits:
    """The free groups as one vector: a logit for each outcome that is not a zero."""

    def __init__(self, groups: Groups, start: Parameters) -> None:
        self.groups, self.start = groups, start
        self.parts = [part for part in start if groups.free[part]]
        self.open = {part: ~groups.zero[part] for part in self.parts}
        logs = [
            groups.one_of_each(part, start[part]).clamp(min=1e-300).log()[self.open[part]]
            for part in self.parts
        ]
        self.x = torch.cat(logs).numpy() if logs else np.zeros(0)
        self.size = len(self.x)

    def parameters(self, x: np.ndarray) -> Parameters:
        """The rows of these logits."""
        out, at = dict(self.start), 0
        for part in self.parts:
            chosen = self.open[part]
            count = int(chosen.sum())
            logits = torch.full(chosen.shape, -torch.inf, dtype=torch.float64)
            logits[chosen] = torch.from_numpy(np.ascontiguousarray(x[at : at + count]))
            out[part] = self.groups.spread(part, logits.softmax(-1))
            at += count
        return out

    def gradient(self, parameters: Parameters, expected: Expected) -> np.ndarray:
        """∂ objective / ∂ logit = c̃ - p Σ c̃."""
        found = []
        for part in self.parts:
            weights = self.groups.weights(part, expected)
            p = self.groups.one_of_each(part, parameters[part])
            found.append((weights - p * weights.sum(-1, keepdim=True))[self.open[part]])
        return torch.cat(found).numpy()
