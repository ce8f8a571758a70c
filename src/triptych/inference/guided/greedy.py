"""Greedy decoding with a rule: at every position the likeliest token that is accepted.

    x_{t+1} = argmax of p(y | x_≤t) over the tokens y with V(x_≤t y) ≥ threshold

Ties go to the smaller id. Nothing is drawn. The text is not the likeliest accepted text: a first
token that is likelier may have only unlikely continuations. Worked value: the first of two tokens
is 0 or 1 with probabilities 0.6 and 0.4; after 0 four tokens are alike, after 1 always the same one
comes. Greedy takes 0 and has a text of probability 0.15; the likeliest text has 0.4.
"""

from dataclasses import dataclass
from typing import Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder, Draws, Rng, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import Number
from triptych.inference.guided.algorithm import Algorithm, Shared, option
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import log_threshold
from triptych.inference.guided.result import Action, Reason, Result

_MORE = 4  # times as many tokens are asked about where all before were refused


@dataclass(frozen=True)
class Greedy(Algorithm[None]):
    """Complete every row by the likeliest accepted tokens.

    The verifier is asked about the likeliest token first, and about more where it is refused. A row
    in which every token is refused keeps what it has and is not complete.
    """

    title = "Greedy decoding with a rule"
    promise = (
        "every token is the likeliest one that is accepted; the text need not be the likeliest "
        "accepted one"
    )

    threshold: float = option(0.5, "a prefix with V below it is refused", at_least=0, at_most=1)

    @property
    def smallest(self) -> float:
        """log V from which a text is accepted."""
        return log_threshold(self.threshold)

    @property
    def settles(self) -> tuple[Action, ...]:
        """A token that was taken stays."""
        return ("argmax",)

    def run(self, run: Generation) -> None:
        """Take the likeliest accepted token everywhere."""
        while len(rows := run.open_rows()):
            laws, mass = run.allowed_laws(rows)
            tokens, values = _first_accepted(run, rows, laws, self.smallest)
            none = (tokens < 0) | torch.isneginf(mass)
            run.stop(rows[none], Reason.NOTHING)
            going, values = rows[~none], values[~none]
            run.put(tokens[~none], going, "argmax")
            run.hear(going, values)
            run.note("accept", going, values)


def _first_accepted(
    run: Generation,
    rows: Int[Tensor, " rows"],
    laws: Float[Tensor, "rows vocab"],
    smallest: float,
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
    """The likeliest accepted token of each row with its log V; -1 where there is none."""
    found = torch.full_like(rows, -1)
    log_values = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    if run.mask_says_all:
        return laws.argmax(-1), log_values
    order = laws.argsort(dim=-1, descending=True, stable=True)
    pending, rank, size = torch.arange(len(rows), device=rows.device), 0, 1
    while len(pending):
        chosen = order[pending, rank : rank + size]
        possible = laws[pending].gather(1, chosen) > -torch.inf
        place, column = torch.nonzero(possible, as_tuple=True)
        if len(place) == 0:
            break
        values = torch.full(chosen.shape, -torch.inf, dtype=torch.float64, device=rows.device)
        tokens = chosen[place, column]
        values[place, column] = run.child_log_values(rows[pending[place]], tokens)
        kept = values >= smallest
        kept &= ~torch.isneginf(values)
        some, first = kept.any(-1), kept.long().argmax(-1, keepdim=True)
        found[pending[some]] = chosen.gather(1, first)[some, 0]
        log_values[pending[some]] = values.gather(1, first)[some, 0]
        pending, rank, size = pending[~some], rank + size, size * _MORE
    return found, log_values


def sample(
    decoder: Decoder | Draws,
    verifier: VerifierLike,
    *,
    threshold: Number = 0.5,
    **shared: Unpack[Shared],
) -> Result[None]:
    """Complete every row by the likeliest accepted tokens; see `Greedy`."""
    return Greedy.of({"threshold": threshold}).sample(decoder, verifier, **shared)


class _NoTwoAlike:
    """Refuses a prefix whose last two tokens are equal."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        same = prefix[:, -1] == prefix[:, -2] if prefix.shape[1] > 1 else prefix[:, 0] < 0
        return torch.where(same, -torch.inf, 0.0).double()


def examples() -> dict[str, OneShot]:
    """One text, with probability 1: found by looking at every token of every prefix."""
    p, verifier = Table.random(vocab_size=3, length=4, seed=1), _NoTwoAlike()

    def one(rng: Rng) -> tuple[int, ...]:
        decoder = RecomputingDecoder(p, 1)
        return sample(decoder, verifier, length=4, rng=rng).completions()[0]

    text: tuple[int, ...] = ()
    for _ in range(4):
        probs = p.next_token_log_probs(torch.tensor([text]).long().reshape(1, -1))[0].tolist()
        fine = [token for token in range(3) if not text or token != text[-1]]
        text = (*text, max(fine, key=lambda token, probs=probs: probs[token]))
    return {"no two alike": OneShot(one, {text: 1.0})}
