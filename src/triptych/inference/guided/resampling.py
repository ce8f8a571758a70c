"""Weighted particles, n for each row: which are open, how even their weights are, and new draws.

The algorithms of sequential Monte Carlo share this. They differ in how a particle gets its next
token and its next weight.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.logspace import log_normalise
from triptych.core.protocols import Ends, Question, Value
from triptych.inference.answers import value_of
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import path_counter
from triptych.inference.guided.result import ParticleSet, Reason

Text = tuple[int, ...]
MAX_FOLLOWED = 20
"""Particles of a law: of two tokens each, they make 2^20 choices."""
_FAR = 1e6  # the sum of larger logarithms rounds to more than 1e-10


def open_particles(
    cloud: Generation, log_weights: Float[Tensor, "batch n"]
) -> Int[Tensor, " rows"]:
    """Particles that are alive and not finished, of rows that go on."""
    alive = ~torch.isneginf(log_weights.reshape(-1))
    return cloud.within_budget(torch.nonzero(~cloud.finished() & ~cloud.stopped() & alive)[:, 0])


def effective_size(log_weights: Float[Tensor, "batch n"]) -> Float[Tensor, " batch"]:
    """(Σ w)² / Σ w², 0 where all weights are 0. Worked value: weights 1, 1, 2 have 16/6."""
    shares = normalised(log_weights).exp()
    squares = (shares**2).sum(-1)
    return torch.where(squares > 0, 1 / squares, 0.0)


def normalised(log_weights: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
    """log_weights less the logarithm of their sum; a row of only -inf stays -inf."""
    largest = log_weights.amax(-1, keepdim=True)
    far = torch.isfinite(largest) & (largest.abs() > _FAR)
    return log_normalise(log_weights - torch.where(far, largest, 0.0))


def as_they_stand(cloud: Generation, log_weights: Float[Tensor, "batch n"]) -> ParticleSet:
    """All particles of each row, with their weights."""
    places = cloud.every_row().reshape(log_weights.shape)
    return ParticleSet(cloud.decoder.tokens[places], cloud.decoder.lengths[places], log_weights)


def even_out(
    run: Generation,
    cloud: Generation,
    log_weights: Float[Tensor, "batch n"],
    values: Float[Tensor, "batch n"],
    ess: float,
) -> tuple[Generation, Float[Tensor, "batch n"], Float[Tensor, "batch n"], Float[Tensor, " batch"]]:
    """Resample every row that goes on and whose effective size is below ess · n.

    Cloud, weights and values after it, and the effective sizes before it. With ess = 1 every row
    that goes on is resampled.
    """
    size = effective_size(log_weights)
    going = torch.zeros_like(run.owner, dtype=torch.bool)
    going[cloud.owner[open_particles(cloud, log_weights)]] = True
    few = (size < ess * log_weights.shape[1]) | (ess == 1.0)
    again = torch.nonzero(going & few)[:, 0]
    if len(again):
        cloud, log_weights, values = resample(cloud, again, log_weights, values)
    return cloud, log_weights, values, size


class Ended(NamedTuple):
    """What is said of the particles of each row in the end; see the `Info` of an algorithm."""

    died: Bool[Tensor, " batch"]
    log_normaliser: Float[Tensor, " batch"]
    particles: ParticleSet


def finish(
    run: Generation,
    cloud: Generation,
    log_weights: Float[Tensor, "batch n"],
    values: Float[Tensor, "batch n"],
    last: Float[Tensor, "batch n"] | None = None,
) -> Ended:
    """Go on with one particle a row, drawn by weight; a row without weight stops at its prompt.

    last   the last weight above 0 of each particle: with these, a row that died or was stopped
           keeps the unfinished text of the largest one
    """
    log_weights, values = _weigh_cut_off(cloud, log_weights, values)
    log_normaliser = log_weights.logsumexp(-1) - math.log(log_weights.shape[1])
    died = torch.isneginf(log_normaliser)
    every = as_they_stand(cloud, log_weights)
    pick(run, cloud, log_weights, values, died, last)
    run.stop(torch.nonzero(died & ~run.finished())[:, 0], Reason.PARTICLES)
    return Ended(died, log_normaliser, every)


def _weigh_cut_off(
    cloud: Generation, log_weights: Float[Tensor, "batch n"], values: Float[Tensor, "batch n"]
) -> tuple[Float[Tensor, "batch n"], Float[Tensor, "batch n"]]:
    """Particles that are cut off count as finished texts, where the verifier tells these apart.

    Their weight has V of a prefix in it, and gets V of a finished text in its place. A row in which
    nothing would be left stays as it is: an unfinished text is better than none.
    """
    alive = ~torch.isneginf(log_weights.reshape(-1))
    cut = torch.nonzero(cloud.cut_off() & ~cloud.stopped() & alive)[:, 0]
    said = cloud.finished_log_values(cut) if len(cut) else None
    if said is None:
        return log_weights, values
    after, heard = log_weights.reshape(-1).clone(), values.reshape(-1).clone()
    after[cut] += said - heard[cut]
    heard[cut] = said
    after, heard = after.reshape(log_weights.shape), heard.reshape(values.shape)
    left = ~torch.isneginf(after).all(-1, keepdim=True)
    return torch.where(left, after, log_weights), torch.where(left, heard, values)


def resample(
    cloud: Generation,
    again: Int[Tensor, " rows"],
    log_weights: Float[Tensor, "batch n"],
    values: Float[Tensor, "batch n"],
) -> tuple[Generation, Float[Tensor, "batch n"], Float[Tensor, "batch n"]]:
    """n draws from the particles of each row in `again`, at the mean weight."""
    n = log_weights.shape[1]
    old = cloud.every_row().reshape(-1, n)
    laws = normalised(log_weights[again]).repeat_interleave(n, 0)
    picked = cloud.choose(laws, old[again].reshape(-1)).reshape(-1, n)
    parents = old.clone()
    parents[again] = old[again].gather(1, picked)
    cloud = cloud.fork(parents.reshape(-1))
    values = values.reshape(-1)[parents]
    mean = (log_weights.logsumexp(-1, keepdim=True) - math.log(n)).expand_as(log_weights)
    cloud.note("choose", old[again].reshape(-1), values[again].reshape(-1))
    return cloud, log_weights.index_copy(0, again, mean[again]), values


def pick(
    run: Generation,
    cloud: Generation,
    log_weights: Float[Tensor, "batch n"],
    values: Float[Tensor, "batch n"],
    died: Bool[Tensor, " batch"],
    last: Float[Tensor, "batch n"] | None = None,
) -> None:
    """Go on with one particle a row, drawn by weight.

    Other rows go back to their prompts, or keep the particle whose `last` weight is the largest.
    """
    alive, dead = torch.nonzero(~died & ~run.stopped())[:, 0], torch.nonzero(died)[:, 0]
    picked = torch.zeros_like(run.owner) if last is None else last.argmax(-1)
    if len(alive):
        picked[alive] = run.choose(normalised(log_weights[alive]), alive)
    said = values.gather(1, picked[:, None])[:, 0]
    places = run.every_row() * log_weights.shape[1] + picked
    run.adopt(cloud, places, alive, said[alive], keep=last is not None)
    if len(dead) and last is None:
        run.erase((run.decoder.lengths - run.start)[dead], dead, "restart")


def cloud_law(
    extend: Callable[[Text, float], list[tuple[Text, float, float]]],
    length: int,
    ends: frozenset[int],
    n: int,
    ess: float,
    verifier: object = None,
) -> dict[Text, float]:
    """The exact law of the particle that is picked in the end, by following every cloud.

    extend   what a particle (its text, its log-weight) can become in one step: the same two, and
             the probability. It is asked about particles that are alive and not finished.
    verifier   of one that `ReadsOver`, particles that are cut off count as finished texts; one
               that `Ends` texts ends them early

    The probabilities sum to that of not dying.
    """
    found: dict[Text, float] = {}

    def is_over(x: Text) -> bool:
        if not x or not isinstance(verifier, Ends):
            return False
        return bool(verifier.over(Question.about(torch.tensor([x])))[0])

    def is_open(x: Text, weight: float) -> bool:
        full = len(x) == length or (x and x[-1] in ends)
        return not full and weight > -math.inf and not is_over(x)

    paths: list[tuple[tuple[Text, ...], list[float], float]] = [(((),) * n, [0.0] * n, 1.0)]
    count_path = path_counter()
    while paths:
        cloud, weights, mass = paths.pop()
        if not any(map(is_open, cloud, weights)):
            cut = [len(x) == length and not (x and x[-1] in ends) for x in cloud]
            weights = _finished_weights(verifier, cloud, weights, cut)
            for x, share in zip(cloud, _shares(weights), strict=True):
                if share > 0:
                    found[x] = found.get(x, 0.0) + mass * share
            continue
        choices = [
            extend(x, w) if is_open(x, w) else [(x, w, 1.0)]
            for x, w in zip(cloud, weights, strict=True)
        ]
        for after in itertools.product(*choices):
            count_path()
            moved, weighed, probs = zip(*after, strict=True)
            reached, shares = mass * math.prod(probs), _shares(weighed)
            going = any(map(is_open, moved, weighed))
            few = any(shares) and 1 / sum(w * w for w in shares) < ess * n
            if not (going and (few or ess == 1.0)):
                paths.append((moved, list(weighed), reached))
                continue
            mean = torch.tensor(weighed, dtype=torch.float64).logsumexp(0).item() - math.log(n)
            for parents in itertools.product(range(n), repeat=n):
                count_path()
                chance = reached * math.prod(shares[k] for k in parents)
                if chance > 0:
                    paths.append((tuple(moved[k] for k in parents), [mean] * n, chance))
    return found


def _finished_weights(
    verifier: object, cloud: Sequence[Text], weights: Sequence[float], cut: Sequence[bool]
) -> list[float]:
    """`_weigh_cut_off` of one row, particle by particle."""
    after = list(weights)
    if isinstance(verifier, Value):
        for k, x in enumerate(cloud):
            if cut[k] and weights[k] > -math.inf:
                after[k] += value_of(verifier, x, over=True) - value_of(verifier, x)
    return after if max(after) > -math.inf else list(weights)


def _shares(log_weights: Sequence[float]) -> list[float]:
    """The weights divided by their sum; all 0 if they are."""
    return normalised(torch.tensor([log_weights], dtype=torch.float64))[0].exp().tolist()
