"""Tokenwise rejection sampling: redraw one token until the verifier accepts the prefix
[li, Definition 3.1.5].

A token t that is kept at a prefix s has law p(t | s) a(st) / Σ p(· | s) a(s·), where a(st) is the
probability that it is accepted: 1[V(st) ≥ threshold], or V(st) itself. A string gets the product of
these, which is not p restricted to the accepted strings. Worked value: for uniform bits and the
strings with some 0, 1^(D-1) 0 gets 2^-(D-1) and every other string 2^-D [li, Proposition 3.1.2].
"""

from dataclasses import dataclass
from typing import Literal, Unpack, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.logspace import log1mexp, log_normalise
from triptych.core.protocols import Decoder, Rng, Value, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table, all_sequences
from triptych.core.validation import Count, Number, UserError
from triptych.inference.answers import values_of
from triptych.inference.guided.algorithm import Algorithm, Shared, option
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import (
    check_choice,
    check_full_length,
    check_table,
    log_threshold,
)
from triptych.inference.guided.result import Reason, Result

Accept = Literal["threshold", "value"]
ACCEPT: tuple[Accept, ...] = get_args(Accept)

TRIES = 1000
"""Draws of one token where no number is given. Where a token is accepted with probability a, a row
is given up with probability (1 - a)^1000: 2e-9 for a = 0.02, 4e-5 for 0.01 and 0.37 for 0.001."""


@dataclass(frozen=True)
class Tokenwise(Algorithm[None]):
    """Complete every row, every draw one call of the generator.

    accept   "threshold" keeps a token if V ≥ threshold, "value" with probability V

    A redraw is one more call, but no forward pass: the law at the prefix is known. A row that is
    given up keeps the tokens that were accepted and is not complete. With a verifier that has masks
    a token is drawn from what the mask allows: the law is the same, and one draw is enough.
    """

    title = "Tokenwise rejection sampling"
    promise = (
        "every prefix is accepted; each token has its law given that, and the string does not have "
        "the law p(x | accepted)"
    )

    tries: int = option(50, "draws of one token at most", at_least=1)
    accept: Accept = option("threshold", "keep a token by threshold, or by value")
    threshold: float = option(0.5, "a prefix with V below it is refused", at_least=0, at_most=1)

    @property
    def smallest(self) -> float | None:
        """log V from which a text is accepted."""
        return log_threshold(self.threshold) if self.accept == "threshold" else None

    def run(self, run: Generation) -> None:
        """Draw every token until it is accepted."""
        size, smallest = (run.batch, run.decoder.vocab_size), log_threshold(self.threshold)
        laws = torch.zeros(size, dtype=torch.float64, device=run.owner.device)
        failures = torch.zeros_like(run.owner)  # of the token that is being drawn
        while len(rows := run.open_rows()):
            fresh = rows[failures[rows] == 0]
            if len(fresh):
                laws[fresh], mass = run.allowed_laws(fresh)
                run.stop(fresh[torch.isneginf(mass)], Reason.NOTHING)
                rows = rows[~run.stopped()[rows]]
            run.put(run.choose(laws[rows], rows), rows, "draw")
            values = run.drawn_log_values(rows)
            by_value = self.accept == "value" and not run.mask_says_all
            kept = _kept(run, values, rows) if by_value else values >= smallest
            refused = run.judge(rows, values, kept)
            failures[rows[kept]] = 0
            failures[refused] += 1
            if len(refused):
                run.erase(torch.ones_like(refused), refused, None)
                run.stop(refused[failures[refused] >= self.tries], Reason.TRIES)


def sample(
    decoder: Decoder,
    verifier: VerifierLike,
    *,
    accept: Accept = "threshold",
    threshold: Number = 0.5,
    tries: Count | None = None,
    **shared: Unpack[Shared],
) -> Result[None]:
    """Complete every row token by token; `tries` None is `TRIES`."""
    most = TRIES if tries is None else tries
    own = {"tries": most, "accept": accept, "threshold": threshold}
    return Tokenwise.of(own).sample(decoder, verifier, **shared)


def _kept(
    run: Generation, log_values: Float[Tensor, " rows"], rows: Int[Tensor, " rows"]
) -> Bool[Tensor, " rows"]:
    """True with probability V, drawn for each row."""
    log_keep = log_values.clamp(max=0.0)
    return run.choose(torch.stack([log1mexp(log_keep), log_keep], -1), rows) == 1


def law(
    lm: Table, verifier: Value, *, accept: Accept = "threshold", threshold: Number = 0.5
) -> Table:
    """The exact law of `sample` without a limit on tries, from the empty prompt.

    log q(x) = Σ_t log [p(x_t | x_<t) a(x_≤t) / Σ_y p(y | x_<t) a(x_<t y)]

    With accept="value" a value above 1 stands for V divided by its bound, which cancels here.
    `sample` needs it divided: V is its probability to keep a token, and it refuses one above 1.
    Worked value: one fair bit and V = 1, 2 or ½, 1 give ⅓, ⅔; `sample` takes ½, 1 alone.
    """
    check_table(lm)
    check_full_length(verifier)
    check_choice("accept", accept, ACCEPT)
    smallest = log_threshold(threshold)
    total = torch.zeros(1, dtype=torch.float64, device=lm.device)  # log q of each prefix
    for t in range(1, lm.length + 1):
        prefixes = all_sequences(lm.vocab_size, t, lm.device)
        value = values_of(verifier, prefixes)
        if accept == "threshold":
            value = torch.where(value >= smallest, 0.0, -torch.inf).double()
        # p(x_<t) cancels in the ratio, so the mass of the whole prefix may stand for p(x_t | x_<t)
        mass = lm.log_probs.reshape(len(prefixes), -1).logsumexp(-1)
        step = log_normalise((mass + value).reshape(len(total), lm.vocab_size))
        stuck = torch.isneginf(step).all(-1) & ~torch.isneginf(total)
        if stuck.any():
            where = all_sequences(lm.vocab_size, t - 1, lm.device)[stuck.nonzero()[0, 0]].tolist()
            raise UserError(
                f"the prefix {where} is reached and every token after it is refused, so the "
                "sampler never stops; a process verifier would have refused the prefix",
                parameter="verifier",
            )
        total = (total[:, None] + step).reshape(-1)
    return Table(lm.vocab_size, lm.length, total)


class _SomeZero:
    """Accepts a full string with a zero, and every shorter prefix."""

    def __init__(self, length: int) -> None:
        self.length = length

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        fine = (prefix == 0).any(-1) | (prefix.shape[1] < self.length)
        return torch.where(fine, 0.0, -torch.inf).double()


class _Soft:
    """V = (1 + number of zeros) / (1 + t)."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        return ((1.0 + (prefix == 0).sum(-1).double()) / (1 + prefix.shape[1])).log()


class _Doubt:
    """V = 7/8 after a 1."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        return torch.where(prefix[:, -1] == 1, 0.875, 1.0).double().log()


def examples() -> dict[str, OneShot]:
    """The wrong law it really has; and, with one try per token, the law p Π a again, normalised,
    which shows that the redraws are what bends it. For a process verifier of a set that is p
    restricted to the set."""
    p, hard, soft = Table.random(vocab_size=2, length=3, seed=0), _SomeZero(3), _Soft()
    doubt = _Doubt()

    def case(
        verifier: Value, accept: Accept, tries: int | None, target: Table, cutoff: float = 0.0
    ) -> OneShot:
        def one(rng: Rng) -> tuple[int, ...] | None:
            decoder = RecomputingDecoder(p, 1)
            result = sample(decoder, verifier, length=3, accept=accept, tries=tries, rng=rng)
            return result.completions()[0] if result.complete[0] else None

        return OneShot(one, {x: q for x, q in target.as_dict().items() if q > 0}, cutoff)

    def along(tokens: Int[Tensor, "count length"]) -> Tensor:
        """log Π_t V(x_≤t)."""
        return sum((soft.log_value(tokens[:, :t]) for t in (1, 2, 3)), torch.zeros(len(tokens)))

    return {
        "one try": case(hard, "threshold", 1, p.tilt(hard.log_value)),
        "redrawn until accepted": case(hard, "threshold", None, law(p, hard), 1e-5),
        "value, one try": case(soft, "value", 1, p.tilt(along)),
        "value, redrawn until accepted": case(
            doubt, "value", None, law(p, doubt, accept="value"), 1e-5
        ),
        "soft threshold": case(soft, "threshold", None, law(p, soft), 1e-6),
    }
