"""Best of n: draw n whole strings and keep the one that the verifier values most [li, 3.1].

With F(v) = P(V ≤ v) and F(v-) = P(V < v) under p, the j-th string x is kept if those before it are
below its value v and those after it not above, so that

    P(x) = p(x) Σ_{j=1..n} F(v-)^(j-1) F(v)^(n-j)        (= F(v)^n - F(v-)^n if no other x has v)

Ties go to the first. Worked value: a fair bit, V(1) > V(0), n = 2: P(1) = ½ (1 + ½) = ¾.
"""

from dataclasses import dataclass
from typing import NamedTuple, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder, Draws, Rng, Value, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import Count, Numbers, UserError, as_count, as_floats
from triptych.inference.answers import values_of
from triptych.inference.guided.algorithm import Algorithm, Shared, option
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import (
    as_copies,
    check_full_length,
    check_table,
)
from triptych.inference.guided.result import Candidates, Result

_MOST_TERMS = 2**16  # the law of the best of n is a sum of n


class Info(NamedTuple):
    """log_value    of what each row kept; -inf says that all n were refused, or the row stopped
    candidates   all n of each row, with their values
    """

    log_value: Float[Tensor, " batch"]
    candidates: Candidates


@dataclass(frozen=True)
class BestOfN(Algorithm[Info]):
    """Complete every row n times and keep the completion with the largest V of the full string.

    Every candidate's tokens and its question to the verifier are counted. A row that is over its
    budget before its candidates are done keeps none of them.
    """

    title = "Best of n"
    promise = "the string of largest V among n draws from the model; `law` is exact"
    probability = False
    needs = "draws"

    n: int = option(4, "candidates", at_least=1)

    def run(self, run: Generation) -> Info:
        """Write n strings a row and keep one."""
        candidates, groups, done = whole_strings(run, self.n)
        best, values = keep_best(candidates, groups[done])
        every = all_candidates(candidates, groups, done)
        run.adopt(candidates, groups[:, 0].index_copy(0, done, best), done, values)
        kept = torch.full((run.batch,), -torch.inf, dtype=values.dtype, device=values.device)
        return Info(kept.index_copy(0, done, values), every)


def sample(
    decoder: Decoder | Draws, verifier: VerifierLike, *, n: Count, **shared: Unpack[Shared]
) -> Result[Info]:
    """Complete every row with the best of n; see `BestOfN`."""
    return BestOfN.of({"n": n}).sample(decoder, verifier, **shared)


def whole_strings(
    run: Generation, n: int
) -> tuple[Generation, Int[Tensor, "rows n"], Int[Tensor, " done"]]:
    """n whole strings for every row: a fork that has them, where they stand in it, and the rows
    that were not stopped before they had all of theirs."""
    n = as_copies(n, run.batch)
    run.open_rows(tokens=n)  # stops rows that have no token for each candidate
    candidates = branch(run, run.every_row().repeat_interleave(n), run.unjudged)
    while len(rows := candidates.open_rows()):
        candidates.draw(rows, candidates.unjudged)
    groups = candidates.every_row().reshape(-1, n)
    return candidates, groups, torch.nonzero(~run.stopped())[:, 0]


def branch(run: Generation, copies: Int[Tensor, " copies"], ahead: int | None = None) -> Generation:
    """A fork of some rows whose unfinished copies have drawn one token.

    The law that the copies of a row draw from is asked for once; of a model that answers draws each
    copy asks for `ahead` tokens of its own.
    """
    unfinished = ~run.finished() & ~run.stopped()
    fork = run.fork(copies)
    growing = torch.nonzero(unfinished[copies])[:, 0]
    if len(growing) and run.draws:
        fork.draw(growing, ahead)
    elif len(growing):
        laws = run.laws(torch.nonzero(unfinished)[:, 0])
        place = (unfinished.cumsum(0) - 1)[copies[growing]]
        fork.put(fork.choose(laws[place], growing), growing, "draw")
    return fork


def all_candidates(
    candidates: Generation, groups: Int[Tensor, "rows n"], done: Int[Tensor, " done"]
) -> Candidates:
    """What the rows chose among; the verifier was asked about those of the rows in `done`."""
    tokens, lengths = candidates.decoder.tokens, candidates.decoder.lengths
    log_values = torch.full_like(groups, -torch.inf, dtype=torch.float64)
    log_values[done] = candidates.said(groups[done])
    return Candidates(tokens[groups], lengths[groups], log_values)


def values_of_full_prompts(run: Generation) -> Float[Tensor, " batch"]:
    """log V of the prompts that nothing is added to, 0 for the others."""
    log_values = torch.zeros(run.batch, dtype=torch.float64, device=run.owner.device)
    if len(full := torch.nonzero(run.finished())[:, 0]):
        log_values[full] = run.log_values(full)
    return log_values


def keep_best(
    candidates: Generation, groups: Int[Tensor, "rows n"]
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
    """The candidate of each group with the largest log V, the first among equals; and that."""
    values = candidates.log_values(groups.reshape(-1)).reshape(groups.shape)
    chosen = values.argmax(-1, keepdim=True)
    others = torch.ones_like(groups, dtype=torch.bool).scatter(1, chosen, False)
    candidates.note("reject", groups[others], values[others])
    return groups.gather(1, chosen)[:, 0], values.gather(1, chosen)[:, 0]


def kept_probs(probs: Numbers, values: Numbers, n: Count) -> Float[Tensor, "rows outcomes"]:
    """The law of the best of n draws from each row of `probs`.

    Worked value: probs (½, ¼, ¼) with values (1, 1, 2) and n = 2 give (3/8, 3/16, 7/16).
    """
    n = as_count("n", n, at_least=1, at_most=_MOST_TERMS)
    probs = as_floats("probs", probs, shape=(None, None), meaning="[rows, outcomes]")
    alike = f"{tuple(probs.shape)}, that of probs"
    values = as_floats("values", values, shape=probs.shape, meaning=alike, finite=False)
    if (probs < 0).any():
        raise UserError(
            f"probs holds {probs.min().item()}; it must not be negative", parameter="probs"
        )
    ranked, order = values.sort(-1)
    below = torch.nn.functional.pad(probs.gather(-1, order).cumsum(-1), (1, 0))
    below = below / torch.where(below[:, -1:] > 0, below[:, -1:], 1.0)
    less = below.gather(-1, torch.searchsorted(ranked, values.contiguous()))
    upto = below.gather(-1, torch.searchsorted(ranked, values.contiguous(), right=True))
    return probs * sum((less**j * upto ** (n - 1 - j) for j in range(n)), torch.zeros_like(probs))


def law(lm: Table, verifier: Value, n: Count) -> Table:
    """The exact law of `sample` from the empty prompt."""
    check_table(lm)
    check_full_length(verifier)
    values = values_of(verifier, lm.sequences)
    probs = kept_probs(lm.log_probs.exp()[None], values[None], n)[0]
    return Table(lm.vocab_size, lm.length, probs.log())


class _Weights:
    """V = Σ_i 2^i x_i, no two alike; or the plain sum of x, which has ties."""

    def __init__(self, ties: bool) -> None:
        self.ties = ties

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        place = torch.arange(1.0, prefix.shape[1] + 1, dtype=torch.float64)
        return (prefix.double() @ (torch.ones_like(place) if self.ties else 2.0**place)).log()


def examples() -> dict[str, OneShot]:
    """F(v)^n - F(v-)^n for distinct values; shared out by p among strings of equal value."""
    p = Table.random(vocab_size=2, length=2, seed=2)

    def case(n: int, ties: bool) -> OneShot:
        verifier = _Weights(ties)

        def one(rng: Rng) -> tuple[int, ...]:
            return sample(RecomputingDecoder(p, 1), verifier, length=2, n=n, rng=rng).completions()[
                0
            ]

        return OneShot(one, _by_hand(p, verifier, n))

    return {
        "distinct values, n = 3": case(3, ties=False),
        "ties, n = 3": case(3, ties=True),
        "n = 1 is the model": OneShot(case(1, ties=False).attempt, p.as_dict()),
    }


def _by_hand(p: Table, verifier: Value, n: int) -> dict[tuple[int, ...], float]:
    """p(x) (F(v)^n - F(v-)^n) / P(V = v), string by string."""
    probs = p.as_dict()
    value = {x: verifier.log_value(torch.tensor([x])).item() for x in probs}
    wanted = {}
    for x, prob in probs.items():
        less = sum(q for y, q in probs.items() if value[y] < value[x])
        same = sum(q for y, q in probs.items() if value[y] == value[x])
        wanted[x] = prob * ((less + same) ** n - less**n) / same
    return wanted
