"""Rejection sampling: draw whole strings until the verifier accepts one [li, Definition 3.1.4].

An accepted string has the law p(x | V(x) ≥ threshold) exactly. The verifier sees full strings
only, so a row that needs D more tokens costs D oracle calls an attempt and D / P(accepted) in all.
Worked value: for A = {0^D} and uniform bits that is 2^D D [li, Proposition 3.1.1].
"""

from dataclasses import dataclass
from typing import NamedTuple, Unpack

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder, Draws, Rng, Value, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import Count, Number
from triptych.inference.guided.algorithm import Algorithm, Shared, option
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import log_threshold
from triptych.inference.guided.result import Reason, Result

ATTEMPTS = 100_000
"""Strings drawn for a row where no number is given; of rows whose strings are accepted with
probability 0.001 one in e^100 is given up."""


class Info(NamedTuple):
    """attempts   strings drawn for each row"""

    attempts: Int[Tensor, " batch"]


@dataclass(frozen=True)
class Rejection(Algorithm[Info]):
    """Complete every row with an accepted string; V < threshold is a refusal.

    A refused string is never returned: a row that is given up stands at its prompt and is not
    complete. A prompt of full length is judged once, since it can only be drawn again as it is.
    """

    title = "Rejection sampling"
    promise = "an accepted string has the law p(x | accepted), exactly"
    needs = "draws"

    attempts: int = option(100, "strings drawn for a row at most", at_least=1)
    threshold: float = option(0.5, "a string with V below it is refused", at_least=0, at_most=1)

    @property
    def smallest(self) -> float:
        """log V from which a text is accepted."""
        return log_threshold(self.threshold)

    def run(self, run: Generation) -> Info:
        """Draw strings until one is accepted."""
        used = torch.zeros_like(run.start)
        accepted = torch.zeros_like(run.start, dtype=torch.bool)
        limit = torch.full_like(used, self.attempts).masked_fill(run.start >= run.limits, 1)
        while (trying := ~accepted & (used < limit) & ~run.stopped()).any():
            if len(growing := run.within_budget(torch.nonzero(trying & ~run.finished())[:, 0])):
                run.draw(growing, run.unjudged)
            if len(judged := torch.nonzero(trying & run.finished())[:, 0]) == 0:
                continue
            values = run.log_values(judged)
            refused = run.judge(judged, values, values >= self.smallest)
            used[judged] += 1
            accepted[judged] = values >= self.smallest
            if len(refused):
                run.erase((run.decoder.lengths - run.start)[refused], refused, "restart")
        begun = torch.nonzero(run.stopped() & (run.decoder.lengths > run.start))[:, 0]
        if len(begun):
            run.erase((run.decoder.lengths - run.start)[begun], begun, "restart")
        run.stop(torch.nonzero(~accepted & ~run.finished())[:, 0], Reason.ATTEMPTS)
        return Info(used)


def sample(
    decoder: Decoder | Draws,
    verifier: VerifierLike,
    *,
    attempts: Count | None = None,
    threshold: Number = 0.5,
    **shared: Unpack[Shared],
) -> Result[Info]:
    """Complete every row with an accepted string; `attempts` None is `ATTEMPTS`."""
    most = ATTEMPTS if attempts is None else attempts
    own = {"attempts": most, "threshold": threshold}
    return Rejection.of(own).sample(decoder, verifier, **shared)


class _EvenSum:
    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        return torch.where(prefix.sum(-1) % 2 == 0, 0.0, -torch.inf).double()


class _SomeZero:
    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        return torch.where((prefix == 0).any(-1), 0.0, -torch.inf).double()


def examples() -> dict[str, OneShot]:
    """An arbitrary law restricted to the accepted strings, in one attempt and in many."""
    p = Table.random(vocab_size=2, length=3, seed=0)

    def case(verifier: Value, attempts: int | None, cutoff: float = 0.0) -> OneShot:
        def one(rng: Rng) -> tuple[int, ...] | None:
            decoder = RecomputingDecoder(p, 1)
            result = sample(decoder, verifier, length=3, attempts=attempts, rng=rng)
            return result.completions()[0] if result.complete[0] else None

        target = p.tilt(verifier.log_value).as_dict()
        return OneShot(one, {x: q for x, q in target.items() if q > 0}, cutoff)

    return {
        "one attempt": case(_EvenSum(), 1),
        "two attempts": case(_EvenSum(), 2),
        "until accepted": case(_SomeZero(), None, cutoff=1e-6),
    }
