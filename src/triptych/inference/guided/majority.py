"""Majority of n: draw n whole strings, count what each answers, keep one of the commonest answer.

This is self-consistency [Wang et al. 2023, arXiv 2203.11171]. A string votes with its value V: with
a rule of 0 and 1 the accepted strings have a vote each, without a verifier all have. The answer of
a string is what `answer` makes of it, and the string itself where there is none. Among answers with
equally many votes the one that was drawn first wins, and its first string is kept. The n strings
are independent, so the law is

    P(x) = Σ p(x_1) ... p(x_n) over the n-tuples whose winner's first string is x

Worked value: a bit that is 1 with 3/4, n = 3: 1 wins with (3/4)³ + 3 (3/4)² (1/4) = 27/32.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder, Draws, Rng, Value, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import Count, as_count, check_callable
from triptych.inference.answers import values_of
from triptych.inference.guided.algorithm import Algorithm, Shared, option
from triptych.inference.guided.best_of_n import all_candidates, whole_strings
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import check_full_length, check_table, path_counter
from triptych.inference.guided.result import Candidates, Result

Answer = Callable[[Any], Hashable]


class Info(NamedTuple):
    """share        of all votes of a row that the kept answer has; 0 where nobody voted
    candidates   all n of each row, with their values
    """

    share: Float[Tensor, " batch"]
    candidates: Candidates


@dataclass(frozen=True)
class Majority(Algorithm[Info]):
    """Complete every row n times and keep a completion of the commonest answer.

    answer   what a completion answers: of its text where `guide` runs it, else of its tokens, as a
             tuple; None compares whole completions
    """

    title = "Majority of n"
    promise = "a string of the answer with the most votes, V each, among n draws; `law` is exact"
    soft = True
    probability = False
    needs_verifier = False
    needs = "draws"

    n: int = option(8, "candidates", at_least=1)
    answer: Answer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answer is not None:
            check_callable("answer", self.answer, "answer(completion)")

    def of_text(self, decode: Callable[[Sequence[int]], str]) -> "Majority":
        """The same, whose answers are of texts."""
        answer = self.answer
        return self if answer is None else replace(self, answer=lambda x: answer(decode(x)))

    def run(self, run: Generation) -> Info:
        """Write n strings a row, and count."""
        strings, groups, done = whole_strings(run, self.n)
        values = strings.log_values(groups[done].reshape(-1)).reshape(-1, groups.shape[1])
        starts, lengths = run.start.tolist(), strings.decoder.lengths.tolist()
        tokens, best, share = strings.decoder.tokens.tolist(), [], torch.zeros(run.batch).double()
        for row, votes in zip(done.tolist(), values.exp().tolist(), strict=True):
            texts = [tuple(tokens[p][starts[row] : lengths[p]]) for p in groups[row].tolist()]
            place, part = winner(texts, votes, self.answer)
            best.append(place)
            share[row] = part
        chosen = torch.tensor(best, dtype=torch.long, device=groups.device)
        kept = groups[done].gather(1, chosen[:, None])[:, 0]
        every = all_candidates(strings, groups, done)
        said = values.gather(1, chosen[:, None])[:, 0]
        run.adopt(strings, groups[:, 0].index_copy(0, done, kept), done, said)
        return Info(share.to(values.device), every)


def winner(
    texts: Sequence[tuple[int, ...]], votes: Sequence[float], answer: Answer | None = None
) -> tuple[int, float]:
    """The place of the first string with the answer that wins, and that answer's share.

    Worked value: the strings a, b, b with votes 1, 1/2, 1/4 and themselves as answers: a wins, 4/7.
    """
    answers = [text if answer is None else answer(text) for text in texts]
    count: dict[Hashable, float] = {}
    for said, vote in zip(answers, votes, strict=True):
        count[said] = count.get(said, 0.0) + vote
    best = max(count, key=lambda said: count[said])  # the first among equals
    total = math.fsum(votes)
    voted = [k for k, said in enumerate(answers) if said == best and (votes[k] > 0 or total == 0)]
    return voted[0], count[best] / total if total > 0 else 0.0


def sample(
    decoder: Decoder | Draws,
    verifier: VerifierLike | None = None,
    *,
    n: Count,
    answer: Answer | None = None,
    **shared: Unpack[Shared],
) -> Result[Info]:
    """Complete every row by majority; see `Majority`."""
    return Majority.of({"n": n, "answer": answer}).sample(decoder, verifier, **shared)


def law(lm: Table, verifier: Value, n: Count, *, answer: Answer | None = None) -> Table:
    """The exact law of `sample` from the empty prompt, by all n-tuples: slow and obvious."""
    check_table(lm)
    check_full_length(verifier)
    n = as_count("n", n, at_least=1, at_most=20)  # of two strings, 2^20 tuples
    if answer is not None:
        check_callable("answer", answer, "answer(completion)")
    probs, votes = lm.log_probs.exp().tolist(), values_of(verifier, lm.sequences).exp().tolist()
    strings = [tuple(row) for row in lm.sequences.tolist()]
    found, count_path = torch.zeros_like(lm.log_probs), path_counter()
    for drawn in itertools.product(range(len(strings)), repeat=n):
        count_path()
        place, _ = winner([strings[k] for k in drawn], [votes[k] for k in drawn], answer)
        found[drawn[place]] += math.prod(probs[k] for k in drawn)
    return Table(lm.vocab_size, lm.length, found.log())


class _FewOnes:
    """V = 1, 1/2 or 0 with no, one or two ones."""

    def log_value(self, prefix: Tensor) -> Tensor:
        return (1.0 - 0.5 * prefix.double().sum(-1)).clamp(min=0.0).log()


def examples() -> dict[str, OneShot]:
    """The law over all tuples, with votes of all sizes, and with answers of several strings."""
    p = Table.random(vocab_size=2, length=2, seed=2)

    def case(n: int, verifier: Value | None, answer: Answer | None) -> OneShot:
        def one(rng: Rng) -> tuple[int, ...]:
            decoder = RecomputingDecoder(p, 1)
            result = sample(decoder, verifier, length=2, n=n, answer=answer, rng=rng)
            return result.completions()[0]

        judge = verifier or _All()
        found = law(p, judge, n, answer=answer).as_dict()
        return OneShot(one, {x: q for x, q in found.items() if q > 0})

    return {
        "n = 3, votes by value": case(3, _FewOnes(), None),
        "n = 3, the last bit": case(3, None, lambda x: x[-1]),
        "n = 1 is the model": case(1, None, None),
    }


class _All:
    def log_value(self, prefix: Tensor) -> Tensor:
        return torch.zeros(len(prefix), dtype=torch.float64)
