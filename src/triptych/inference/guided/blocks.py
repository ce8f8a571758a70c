"""Block best-of-n: of n candidates for each block of tokens, keep the most valued [li, 3.2.2.6].

A block has `block` tokens, fewer where the row ends first. With `block_end`, a token or several, a
block also ends after the first of them: a block that ends with a line break is a line. Given the
prefix, the kept block has the law of `best_of_n`, with the value of the prefix that it leads to; a
string gets the product over its blocks. With one block this is best-of-n, and with n = 1 it is the
model. Worked value: two fair bits, V the number of ones, blocks of 1, n = 2: each bit is 1 with ¾,
so P(11) = 9/16, while the best of 2 whole strings is 11 with 7/16. If a block ends after a 1 and
has at most two bits, the first block is 1, 01 or 00 with V = 1, 1, 0 and has two candidates: 00
with 1/16, 01 with 5/16, 1 with 5/8; a second block follows the 1 alone, so P(11) = 5/8 · 3/4.
"""

from dataclasses import dataclass
from typing import NamedTuple, Unpack

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder, is_end
from triptych.core.protocols import Decoder, Draws, Rng, Value, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table, all_sequences
from triptych.core.validation import Count, EndToken, EndTokens, as_count, as_end_token, set_fields
from triptych.inference.answers import probs_after, value_of, values_of
from triptych.inference.guided.algorithm import Algorithm, Shared, option
from triptych.inference.guided.best_of_n import (
    branch,
    keep_best,
    kept_probs,
    values_of_full_prompts,
)
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import (
    as_copies,
    check_full_length,
    check_table,
    end_set,
)
from triptych.inference.guided.result import Action, Result


class Info(NamedTuple):
    """log_value   of each row as it stands; 0 where no block was chosen"""

    log_value: Float[Tensor, " batch"]


@dataclass(frozen=True)
class Blocks(Algorithm[Info]):
    """Complete every row block by block; the first block begins where the prompt ends.

    block       tokens of a block, or the most of them where it may end earlier
    block_end   a token that ends a block, or several; the row goes on after it

    The tokens of all candidates and a question to the verifier for each of them are counted. About
    a prompt of full length the verifier is asked once. A row that is over its budget keeps the
    blocks that were chosen.
    """

    title = "Block best-of-n"
    promise = "each block is the one of largest V among n draws from the model; `law` is exact"
    probability = False
    needs = "draws"

    block: int = option(4, "tokens of a block", at_least=1)
    n: int = option(4, "candidates", at_least=1)
    block_end: EndTokens | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, block_end=as_end_token(self.block_end, name="block_end"))

    @property
    def held_back(self) -> int:
        """The block that is being chosen."""
        return self.block

    @property
    def settles(self) -> tuple[Action, ...]:
        """Blocks that were chosen stay."""
        return ("choose",)

    def run(self, run: Generation) -> Info:
        """Write block after block."""
        n = as_copies(self.n, run.batch)
        block_end = as_end_token(self.block_end, run.decoder.vocab_size, name="block_end")
        latest = values_of_full_prompts(run)
        while len(rows := run.open_rows(tokens=n)):
            counts = torch.ones_like(run.owner).index_fill(0, rows, n)  # finished rows come once
            ahead = None if run.unjudged is None else self.block
            candidates = branch(run, run.every_row().repeat_interleave(counts), ahead)
            begun = run.decoder.lengths[candidates.owner]
            for more in range(self.block - 1, 0, -1):
                growing = candidates.open_rows()
                if block_end is not None:
                    growing = growing[~_ended(candidates, begun, block_end)[growing]]
                if len(growing) == 0:
                    break
                candidates.draw(growing, None if ahead is None else more)
            rows = rows[~run.stopped()[rows]]
            first = counts.cumsum(0) - counts
            groups = first[rows][:, None] + torch.arange(n, device=rows.device)
            best, latest[rows] = keep_best(candidates, groups)
            run.adopt(candidates, first.index_copy(0, rows, best), rows, latest[rows])
        return Info(latest)


def sample(
    decoder: Decoder | Draws,
    verifier: VerifierLike,
    *,
    block: Count,
    n: Count,
    block_end: EndTokens | None = None,
    **shared: Unpack[Shared],
) -> Result[Info]:
    """Complete every row block by block; see `Blocks`."""
    own = {"block": block, "n": n, "block_end": block_end}
    return Blocks.of(own).sample(decoder, verifier, **shared)


def _ended(
    candidates: Generation, begun: Int[Tensor, " rows"], block_end: EndToken
) -> Bool[Tensor, " rows"]:
    """Candidates whose last token ends a block that began at `begun`."""
    tokens, lengths = candidates.decoder.tokens, candidates.decoder.lengths
    last = tokens.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
    return (lengths > begun) & is_end(last, block_end)


def law(
    lm: Table, verifier: Value, block: Count, n: Count, *, block_end: EndTokens | None = None
) -> Table:
    """The exact law of `sample` from the empty prompt."""
    check_table(lm)
    check_full_length(verifier)
    block, n = as_count("block", block, at_least=1), as_count("n", n, at_least=1)
    ends = end_set(block_end, lm.vocab_size, name="block_end")
    if ends:
        return _law_by_prefix(lm, verifier, block, n, ends)
    log_probs = torch.zeros(1, dtype=torch.float64, device=lm.device)
    before = torch.zeros(1, dtype=torch.float64, device=lm.device)  # log p of each prefix
    for start in range(0, lm.length, block):
        end = min(start + block, lm.length)
        mass = lm.log_probs.reshape(lm.vocab_size**end, -1).logsumexp(-1)
        possible = ~torch.isneginf(mass)
        values = torch.full_like(mass, -torch.inf)
        written = all_sequences(lm.vocab_size, end, lm.device)[possible]
        values[possible] = values_of(verifier, written)
        inside = mass.reshape(len(before), -1)
        conditional = inside - torch.where(torch.isneginf(before), 0.0, before)[:, None]
        kept = kept_probs(conditional.exp(), values.reshape(inside.shape), n)
        log_probs = (log_probs[:, None] + kept.log()).reshape(-1)
        before = mass
    return Table(lm.vocab_size, lm.length, log_probs)


def _law_by_prefix(lm: Table, verifier: Value, block: int, n: int, ends: frozenset[int]) -> Table:
    """The law where blocks differ in length, by following every prefix at which a block begins."""
    probs = torch.zeros_like(lm.log_probs)
    begun: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while begun:
        start, mass = begun.pop()
        written, chances = [], []
        growing = [(start, 1.0)]
        while growing:
            s, chance = growing.pop()
            for token, prob in enumerate(probs_after(lm, s)):
                longer = (*s, token)
                if prob == 0:
                    continue
                whole = token in ends or len(longer) in (len(start) + block, lm.length)
                if whole:
                    written.append(longer)
                    chances.append(chance * prob)
                else:
                    growing.append((longer, chance * prob))
        values = [value_of(verifier, longer) for longer in written]
        kept = kept_probs([chances], [values], n)[0].tolist()
        for longer, chance in zip(written, kept, strict=True):
            if len(longer) < lm.length:
                begun.append((longer, mass * chance))
            else:
                place = sum(x * lm.vocab_size**k for k, x in enumerate(reversed(longer)))
                probs[place] += mass * chance
    return Table(lm.vocab_size, lm.length, probs.log())


class _Bumpy:
    """Values without structure, below and above 1, with ties among prefixes of equal sum."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        return torch.sin(2.0 * prefix.double().sum(-1) + prefix.shape[1])


def examples() -> dict[str, OneShot]:
    """The product over blocks; the last block may be shorter than the others."""
    p, verifier = Table.random(vocab_size=2, length=3, seed=1), _Bumpy()

    def case(block: int, n: int, target: Table, block_end: int | None = None) -> OneShot:
        def one(rng: Rng) -> tuple[int, ...]:
            decoder = RecomputingDecoder(p, 1)
            result = sample(
                decoder, verifier, length=3, block=block, n=n, block_end=block_end, rng=rng
            )
            return result.completions()[0]

        return OneShot(one, target.as_dict())

    return {
        "blocks of 1, n = 2": case(1, 2, law(p, verifier, 1, 2)),
        "blocks of 2, n = 2": case(2, 2, law(p, verifier, 2, 2)),
        "one block, n = 2": case(5, 2, law(p, verifier, 3, 2)),
        "n = 1 is the model": case(2, 1, p),
        "a block ends after a 1": case(2, 2, law(p, verifier, 2, 2, block_end=1), 1),
    }
