"""Rejection sampling: draw whole strings until the verifier accepts one [li, Definition 3.1.4].

An accepted string has the law p(x | V(x) ≥ threshold) exactly. The verifier sees full strings
only, so a row that needs D more tokens costs D oracle calls an attempt and D / P(accepted) in all.
Worked value: for A = {0^D} and uniform bits that is 2^D D [li, Proposition 3.1.1].
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder, Rng, Value, VerifierLike
from triptych.core.randomness import RngLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import Count, EndTokens, Number
from triptych.inference.guided.algorithm import Algorithm, Option
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import Lengths, as_limit, log_threshold
from triptych.inference.guided.result import Reason, Result
from triptych.inference.guided.transforms import Transform

ATTEMPTS = 100_000
"""Strings drawn for a row where no number is given; of rows whose strings are accepted with
probability 0.001 one in e^100 is given up."""


class Info(NamedTuple):
    """attempts   strings drawn for each row"""

    attempts: Int[Tensor, " batch"]


def sample(
    decoder: Decoder,
    verifier: VerifierLike,
    *,
    length: Lengths,
    attempts: Count | None = None,
    threshold: Number = 0.5,
    end_token: EndTokens | None = None,
    transform: Transform | None = None,
    record: bool = False,
    budget: Budget | None = None,
    rng: RngLike,
) -> Result[Info]:
    """Complete every row with an accepted string; V < threshold is a refusal.

    attempts   strings drawn for a row before it is given up; None is `ATTEMPTS`

    A refused string is never returned: a row that is given up stands at its prompt and is not
    complete. A prompt of full length is judged once, since it can only be drawn again as it is.
    """
    most = as_limit("attempts", ATTEMPTS if attempts is None else attempts, at_least=1)
    smallest = log_threshold(threshold)
    run = Generation(
        decoder,
        verifier,
        rng,
        length,
        end_token,
        transform,
        record,
        smallest=smallest,
        budget=budget,
    )
    used = torch.zeros_like(run.start)
    accepted = torch.zeros_like(run.start, dtype=torch.bool)
    limit = torch.full_like(used, most).masked_fill(run.start >= run.limits, 1)
    while (trying := ~accepted & (used < limit) & ~run.stopped()).any():
        if len(growing := run.within_budget(torch.nonzero(trying & ~run.finished())[:, 0])):
            run.draw(growing)
        if len(judged := torch.nonzero(trying & run.finished())[:, 0]) == 0:
            continue
        values = run.log_values(judged)
        refusing = values < smallest
        run.note("accept", judged[~refusing], values[~refusing])
        run.note("reject", judged[refusing], values[refusing])
        used[judged] += 1
        accepted[judged] = ~refusing
        refused = judged[refusing]
        if len(refused):
            run.erase((run.decoder.lengths - run.start)[refused], refused, "restart")
    begun = torch.nonzero(run.stopped() & (run.decoder.lengths > run.start))[:, 0]
    if len(begun):
        run.erase((run.decoder.lengths - run.start)[begun], begun, "restart")
    run.stop(torch.nonzero(~accepted & ~run.finished())[:, 0], Reason.ATTEMPTS)
    return run.result(Info(used))


ALGORITHM = Algorithm(
    "rejection",
    "Rejection sampling",
    sample,
    options=(
        Option("attempts", int, 100, "strings drawn for a row at most"),
        Option("threshold", float, 0.5, "a string with V below it is refused"),
    ),
    promise="an accepted string has the law p(x | accepted), exactly",
)


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
