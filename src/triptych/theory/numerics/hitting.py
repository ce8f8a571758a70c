"""When a finite Markov chain first reaches a set, exactly, however rarely that happens.

Probabilities are kept as logarithms and only added and multiplied, so an escape of probability
e^-1000 keeps its digits, and so do its complement and the mean time until it happens.

Notation
--------
P   transition   [states, states], as log_matrix        Q   P outside of the set
T   the first t ≥ 1 at which the chain is in the set
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.logspace import log1mexp, log_matmul
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import check_count, check_shape

_MOST_SQUARES = 400  # 2^400 steps, after which a quantile is given up


@dataclass(frozen=True, eq=False)
class Hitting:
    """The first time t ≥ 1 at which a chain is in a set, from every state.

    Worked value: two states, 0 goes to 1 with probability q: from 0, T is geometric with mean 1/q.
    """

    log_matrix: Float[Tensor, "states states"]
    target: Bool[Tensor, " states"]

    def __post_init__(self) -> None:
        size = len(self.target)
        check_shape("log_matrix", self.log_matrix, (size, size), f"a chain of {size} states")
        if not self.log_matrix.logsumexp(-1).abs().max() < 1e-8:
            raise ValueError("every row of log_matrix must be the logarithms of a probability law")
        if not self.target.any():
            raise ValueError("the set has no state: it is never reached")

    def _parts(self) -> tuple[Float[Tensor, "states rest"], Float[Tensor, " states"]]:
        """log P(x, y) to states y outside of the set, and log P(x, the set)."""
        return self.log_matrix[:, ~self.target], self.log_matrix[:, self.target].logsumexp(-1)

    def _squares(self) -> Iterator[tuple[Float[Tensor, "rest rest"], Float[Tensor, " rest"]]]:
        """Q^t and log P(T ≤ t) from the states outside of the set, for t = 1, 2, 4, ...

        Q's rows and what leaves them sum to 1; keeping that true after each squaring is what keeps
        2^100 steps from drifting.
        """
        inside, out = (part[~self.target] for part in self._parts())
        while True:
            yield inside, out
            out = _then(inside, out, out).clamp(max=0.0)
            inside = _completed(log_matmul(inside, inside), out)

    def within(self, steps: int) -> tuple[Float[Tensor, " states"], Float[Tensor, " states"]]:
        """(log P(T ≤ t), log P(T > t)) from every state: each is right to rounding where small."""
        check_count("steps", steps, at_least=0)
        reached = torch.full(self.target.shape, -torch.inf, dtype=torch.float64)
        missed = torch.zeros(self.target.shape, dtype=torch.float64)
        if steps == 0:
            return reached, missed
        first, first_out = self._parts()
        reached, missed, left = reached[~self.target], missed[~self.target], steps - 1
        for inside, out in self._squares():
            if left & 1:
                reached = _then(inside, out, reached)
                missed = (inside + missed).logsumexp(-1)
            left >>= 1
            if left == 0:
                break
        reached = _then(first, first_out, reached).clamp(max=0.0)
        return reached, (first + missed).logsumexp(-1).clamp(max=0.0)

    def log_mean(self) -> Float[Tensor, " states"]:
        """log E[T] from every state, by eliminating states: no subtraction, no overflow.

        Without state s, a move into s becomes the stay there and the move out of it: 1 / (1 - P_ss)
        visits, where 1 - P_ss is added up from the ways out.
        """
        work, out = self._parts()
        spent = torch.zeros(len(work), dtype=torch.float64)  # log mean time of a move
        for place, state in reversed(list(enumerate(torch.nonzero(~self.target)[:, 0].tolist()))):
            row, leave, time = work[state, :place], out[state], spent[state]
            away = torch.cat([row, leave[None]]).logsumexp(0)
            if torch.isneginf(away):
                raise ValueError(f"from state {state} the set is never reached: its mean time is ∞")
            come = work[:, place] - away
            spent = torch.logaddexp(spent, come + time)
            out = torch.logaddexp(out, come + leave)
            work = torch.logaddexp(work[:, :place], come[:, None] + row)
        return spent

    def survival(self, steps: int, start: int) -> Float[Tensor, " times"]:
        """P(T > t) for t = 0..steps, one step at a time."""
        return self._by_step(steps, start)[0]

    def _by_step(
        self, steps: int, start: int
    ) -> tuple[Float[Tensor, " times"], Float[Tensor, " times"]]:
        """P(T > t) and P(T ≤ t) for t = 0..steps; neither is taken from 1."""
        check_count("steps", steps, at_least=0)
        inside, out = (part.exp() for part in self._parts())
        law, arrived = inside[start], out[start]
        alive, reached = [law.new_ones(())], [law.new_zeros(())]
        for _ in range(steps):
            alive.append(law.sum())
            reached.append(reached[-1] + arrived)
            arrived = law @ out[~self.target]
            law = law @ inside[~self.target]
        return torch.stack(alive), torch.stack(reached)

    def capped_mean(self, budget: int, start: int) -> tuple[float, float]:
        """Mean and standard deviation of min(T, budget).

        The variance is Σ_{s, t < budget} Cov(1[T > s], 1[T > t]), and each term is
        P(T ≤ min) P(T > max). Worked value: T geometric with ½, budget 2: 1 or 2 with ½ each, 3/2
        and ½.
        """
        check_count("budget", budget, at_least=1)
        alive, reached = self._by_step(budget - 1, start)
        before = reached.cumsum(0) - reached
        variance = (alive * (reached + 2 * before)).sum()
        return float(alive.sum()), math.sqrt(float(variance))

    def quantile(self, q: float, start: int | None = None) -> int:
        """The least t with P(T ≤ t) ≥ q; without a start, from every state.

        Worked value: T geometric with ½, q = 0.7: 2.
        """
        if not 0 < q < 1:
            raise ValueError(f"q is {q}; a quantile needs 0 < q < 1")
        starts = slice(None) if start is None else [start]
        first, first_out = (part[starts] for part in self._parts())

        def enough(later: Float[Tensor, " rest"]) -> bool:
            """Whether a step and then `later` reach the set with probability q."""
            return float(_then(first, first_out, later).exp().min()) >= q

        later = torch.full((first.shape[1],), -torch.inf, dtype=torch.float64)
        if enough(later):
            return 1
        squares: list[tuple[Tensor, Tensor]] = []
        for inside, out in self._squares():
            squares.append((inside, out))
            if enough(out):
                break
            if len(squares) > _MOST_SQUARES:
                raise ValueError(f"the set is not reached with probability {q} in 2^400 steps")
        steps = 1  # the most after which it is too early
        for power in reversed(range(len(squares))):
            inside, out = squares[power]
            longer = _then(inside, out, later)
            if not enough(longer):
                steps, later = steps + 2**power, longer
        return steps + 1


def whole_exp(factor: float, exponent: float) -> int:
    """⌊factor · e^exponent⌋, in the digits of a float also where floats end (e^709).

    Worked value: factor ½, exponent log 5: 2.
    """
    if exponent < 700:
        return math.floor(factor * math.exp(exponent))
    doublings = int(exponent / math.log(2))
    rest = factor * math.exp(exponent - doublings * math.log(2))
    return int(math.ldexp(rest, 60)) << (doublings - 60)


def _then(
    inside: Float[Tensor, "states rest"],
    out: Float[Tensor, " states"],
    later: Float[Tensor, " rest"],
) -> Float[Tensor, " states"]:
    """log P(out now, or inside now and out later)."""
    return torch.logaddexp(out, (inside + later).logsumexp(-1))


def _completed(
    inside: Float[Tensor, "rest rest"], out: Float[Tensor, " rest"]
) -> Float[Tensor, "rest rest"]:
    """Rows scaled to sum to 1 - exp(out), where that is known better than their own sum."""
    total = inside.logsumexp(-1)
    known = (out < math.log(0.5)) & ~torch.isneginf(total)
    shift = torch.where(known, log1mexp(out) - total, 0.0)
    return inside + shift[:, None]


def simulate(
    hitting: Hitting, start: Int[Tensor, " chains"], budget: int, rng: RngLike
) -> Int[Tensor, " chains"]:
    """T of many chains at once, from their starts; `budget` + 1 where it is not reached by then."""
    check_count("budget", budget, at_least=1)
    rng = as_rng(rng, start.device)
    found = torch.full_like(start, budget + 1)
    running, state = torch.arange(len(start)), start
    for step in range(1, budget + 1):
        state = rng.categorical(hitting.log_matrix, state)
        done = hitting.target[state]
        found[running[done]] = step
        running, state = running[~done], state[~done]
        if len(running) == 0:
            break
    return found
