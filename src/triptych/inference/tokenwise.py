"""Tokenwise rejection sampling: redraw one token until the process verifier accepts the prefix
[li, Definition 3.1.5].

The last token that survives at a prefix s has law p(t | s) V(st) / Σ p(· | s) V(s·), so a string
gets the product of these, which is *not* p restricted to the accepted strings.
"""

import itertools

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.protocols import NextToken, Rng, Value
from triptych.core.samplers import OneShot
from triptych.core.table import Table


def sample(
    lm: NextToken, verifier: Value, length: int, rng: Rng, *, tries: int | None = None
) -> Int[Tensor, "1 {length}"] | None:
    """One string, every draw one query of the model; None if some token fails `tries` times."""
    prefix = torch.zeros((1, 0), dtype=torch.long, device=getattr(lm, "device", "cpu"))
    for _ in range(length):
        for count in itertools.count(1):
            drawn = rng.categorical(lm.next_token_log_probs(prefix))
            longer = torch.cat([prefix, drawn[:, None]], dim=1)
            if verifier.log_value(longer) > -torch.inf:
                prefix = longer
                break
            if tries is not None and count >= tries:
                return None
    return prefix


def law(lm: Table, verifier: Value) -> Table:
    """The exact law of `sample`: every next-token law, restricted and renormalised."""
    log_probs = torch.zeros(len(lm.sequences), dtype=torch.float64)
    for t in range(lm.length):
        prefixes = lm.sequences[:, :t]
        every = torch.arange(lm.vocab_size)
        longer = torch.cat(
            [
                prefixes[:, None].expand(-1, lm.vocab_size, -1),
                every.expand(len(prefixes), -1)[..., None],
            ],
            -1,
        )
        value = verifier.log_value(longer.flatten(0, 1)).reshape(len(prefixes), -1)
        weight = lm.next_token_log_probs(prefixes) + value
        step = weight - weight.logsumexp(-1, keepdim=True).nan_to_num(neginf=0.0)
        log_probs = log_probs + step.gather(1, lm.sequences[:, t : t + 1])[:, 0]
    return Table(lm.vocab_size, lm.length, log_probs)


class _SomeZero:
    """Accepts a full string with a zero, and every shorter prefix."""

    def __init__(self, length: int) -> None:
        self.length = length

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        fine = (prefix == 0).any(-1) | (prefix.shape[1] < self.length)
        return torch.where(fine, 0.0, -torch.inf).double()


def examples() -> dict[str, OneShot]:
    """The wrong law it really has; and, with one try per token, the restricted law again, which
    shows that the redraws are what bends it."""
    p, verifier = Table.random(vocab_size=2, length=3, seed=0), _SomeZero(3)

    def once(rng: Rng) -> tuple[int, ...] | None:
        tokens = sample(p, verifier, 3, rng, tries=1)
        return None if tokens is None else tuple(tokens[0].tolist())

    def until_accepted(rng: Rng) -> tuple[int, ...] | None:
        tokens = sample(p, verifier, 3, rng)
        return None if tokens is None else tuple(tokens[0].tolist())

    def support(table: Table) -> dict[tuple[int, ...], float]:
        return {x: q for x, q in table.as_dict().items() if q > 0}

    return {
        "one try": OneShot(once, support(p.tilt(verifier.log_value))),
        "redrawn until accepted": OneShot(until_accepted, support(law(p, verifier)), cutoff=1e-9),
    }
