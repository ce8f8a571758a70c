"""How many questions does constrained generation need, with and without a verifier [li, 3.1]?

Theorem 3.1.1: searchers for a hidden string, against the best possible one. Theorem 3.1.2: subset
sum solved by constrained generation. Proposition 3.1.1: calls of rejection and of tokenwise
rejection. Proposition 3.1.2: the law that tokenwise rejection has.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.divergences import total_variation
from triptych.core.protocols import NextToken, Rng
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError
from triptych.inference.guided import rejection, tokenwise
from triptych.inference.guided.generation import Result
from triptych.structures.constraints import AllZeros, EvenParity, Knapsack, SomeZero, restricted
from triptych.structures.parity import HiddenParity
from triptych.structures.uniform import Uniform
from triptych.studies.api.study import Bench, Scale, Settings, Study
from triptych.studies.generation.query_complexity.figures import FIGURES
from triptych.studies.generation.query_complexity.judge import CLAIMS
from triptych.studies.generation.query_complexity.rows import (
    AskHidden,
    Calls,
    Enumerate,
    Hidden,
    HitZeros,
    LeastQuestions,
    QueryUnit,
    RareEven,
    Row,
    SolveSums,
    SubsetSum,
    TokenwiseLaw,
)
from triptych.theory.generation import queries

TRIES = 3  # of the last bit, before tokenwise rejection starts again
_BATCH = 16_384  # attempts side by side
_SEARCHED = 4  # the longest D whose strategies are all gone through
RARE = 2 / 3  # how often the bit after the hidden string is even, in the task that needs 2^(D-1)


@dataclass(frozen=True)
class QueryComplexity(Settings):
    """Sizes.

    depths      D of the strings
    runs        runs of each algorithm for each D
    secrets     a searcher in a fixed order meets all secrets, or this many if there are more
    instances   of subset sum, for each D and seed: as many planted as random
    weights     the weights are at most 2^min(D, weights)
    """

    seeds: int = 2
    depths: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
    runs: int = 120
    secrets: int = 40
    instances: int = 10
    weights: int = 12


def units(settings: QueryComplexity) -> Sequence[QueryUnit]:
    """One per statement and length; subset sum also per seed."""
    if min(settings.depths) < 2:
        raise UserError(f"depths are {settings.depths}; they must be at least 2")
    found: list[QueryUnit] = []
    for depth in settings.depths:
        found += [
            AskHidden(depth, settings.runs, settings.secrets, seed=0),
            HitZeros(depth, settings.runs, seed=0),
            Enumerate(depth, seed=0),
        ]
        found += [
            SolveSums(depth, settings.instances, settings.weights, seed=seed)
            for seed in range(settings.seeds)
        ]
    return [*found, *(LeastQuestions(depth, seed=0) for depth in settings.depths)]


def run(unit: QueryUnit, bench: Bench) -> Iterable[Row]:
    """What one length says about its statement."""
    rng = TorchRng(bench.rng("queries").seed)
    match unit:
        case AskHidden():
            yield from _hidden(unit, rng)
        case LeastQuestions():
            yield _rare(unit)
        case HitZeros():
            yield _calls(unit, rng)
        case Enumerate():
            yield _law(unit)
        case SolveSums():
            yield from _subset_sums(unit, rng)


# ------------------------------------------------------------------ runs from attempts


def calls_until_accepted(attempts: Iterator[Result], runs: int) -> list[float]:
    """Calls of the generator in each run, where a run is a stretch of attempts up to a success.

    Attempts are independent, so a long batch of them is many runs one after the other: as slow to
    wait for as one attempt. Worked value: attempts of 2, 2, 3 calls of which the second and third
    succeed are runs of 4 and 3 calls.
    """
    found, spent = [], 0
    for result in attempts:
        calls, accepted = result.costs.generator_calls.tolist(), result.complete.tolist()
        for cost, success in zip(calls, accepted, strict=True):
            spent += cost
            if success:
                found.append(float(spent))
                spent = 0
                if len(found) == runs:
                    return found
    raise ValueError(f"the attempts ended after {len(found)} of {runs} runs")


def _rejection_attempts(
    lm: NextToken, verifier: EvenParity | AllZeros, rng: Rng, runs: int
) -> Iterator[Result]:
    length = verifier.length
    size = min(_BATCH, runs * 2**length)  # one of 2^D or 2^(D-1) succeeds
    while True:
        decoder = RecomputingDecoder(lm, size)
        yield rejection.sample(decoder, verifier, length=length, attempts=1, rng=rng)


def _tokenwise_attempts(
    lm: NextToken, verifier: EvenParity | AllZeros, rng: Rng, runs: int, tries: int | None
) -> Iterator[Result]:
    """Without a limit on tries each attempt at {0^D} succeeds, with one few do."""
    size = runs if tries is None else min(_BATCH, runs * 2**verifier.length)
    while True:
        decoder = RecomputingDecoder(lm, size)
        yield tokenwise.sample(decoder, verifier, length=verifier.length, tries=tries, rng=rng)


# ------------------------------------------------------------------ Theorem 3.1.1


def _hidden(unit: AskHidden, rng: TorchRng) -> Iterator[Hidden]:
    """Questions of five algorithms that find the even string, averaged over the secret."""
    depth, runs = unit.depth, unit.runs
    n, verifier = queries.secrets(depth), EvenParity(depth)
    every = all_sequences(2, depth - 1)
    met = _uniform_bits(unit.secrets, depth - 1, rng) if n > unit.secrets else every
    hidden = HiddenParity(met[0])  # as good as any other for an algorithm that draws uniformly

    def asked(secret: Int[Tensor, " bits"], orders: Int[Tensor, "runs secrets bits"]) -> list:
        lm = HiddenParity(secret)
        found = queries.search(lm, orders)
        if lm.log_prob(found.tokens).isneginf().any() or (found.tokens.sum(-1) % 2).any():
            raise AssertionError("the search returned a string that is odd or has no mass")
        return found.questions.double().tolist()

    optimum = queries.fewest_questions(depth)
    starts = queries.orders_from_random_starts(depth, runs, rng)
    measured = {
        "each prefix once, in order": (
            optimum,
            [asked(secret, every[None])[0] for secret in met],
        ),
        "each prefix once, from a random start": (optimum, asked(met[0], starts)),
        "a random prefix each time": (
            float(n),
            queries.questions_without_memory(hidden, depth, runs, rng).double().tolist(),
        ),
        "rejection": (
            float(n * depth),
            calls_until_accepted(_rejection_attempts(hidden, verifier, rng, runs), runs),
        ),
        f"tokenwise rejection, anew after {TRIES} refusals": (  # a name in rows; prose: said
            queries.retried_calls(depth, TRIES),
            calls_until_accepted(_tokenwise_attempts(hidden, verifier, rng, runs, TRIES), runs),
        ),
    }
    searched = queries.fewest_questions_by_search(depth) if depth <= _SEARCHED else None
    for algorithm, (expected, questions) in measured.items():
        yield Hidden(depth, algorithm, expected, tuple(questions), float(n), optimum, searched)


def _rare(unit: LeastQuestions) -> RareEven:
    """A task that does need 2^(D-1) questions: the oracle is even after ŝ two times in three."""
    searched = unit.depth <= _SEARCHED
    return RareEven(
        depth=unit.depth,
        probability=RARE,
        optimum=queries.fewest_questions_if_even_is_rare(unit.depth, RARE),
        at_least=queries.questions_if_even_is_rare_at_least(unit.depth, RARE) if searched else None,
    )


def _uniform_bits(rows: int, bits: int, rng: Rng) -> Int[Tensor, "rows bits"]:
    half = torch.full((1, 2), 0.5, dtype=torch.float64).log()
    return rng.categorical(half, torch.zeros((rows, bits), dtype=torch.long))


# ------------------------------------------------------------------ Theorem 3.1.2


def _subset_sums(unit: SolveSums, rng: TorchRng) -> Iterator[SubsetSum]:
    """Subset sum by constrained generation, and by trying all subsets."""
    depth, most = unit.depth, 2 ** min(unit.depth, unit.weights)
    weight = torch.full((1, most), 1 / most, dtype=torch.float64).log()
    for number in range(2 * unit.instances):
        weights = (rng.categorical(weight, torch.zeros(depth, dtype=torch.long)) + 1).tolist()
        if number % 2 == 0:  # planted: some subset has this sum
            chosen = _uniform_bits(1, depth, rng)[0].tolist()
            capacity = sum(w for w, bit in zip(weights, chosen, strict=True) if bit)
        else:
            sums = torch.full((1, sum(weights)), 1 / sum(weights), dtype=torch.float64).log()
            capacity = int(rng.categorical(sums)[0]) + 1
        instance = Knapsack(tuple(weights), capacity)
        solutions = queries.subsets_with_sum(instance.weights, capacity)
        answer, calls = generate(instance, rng)
        yield SubsetSum(
            depth=depth,
            solvable=len(solutions) > 0,
            answered=answer is not None,
            right=answer is None or answer in {tuple(x) for x in solutions.tolist()},
            calls=calls,
            membership_operations=2 * depth,  # D products, D - 1 sums, a comparison
            rejection_calls=depth * 2**depth / len(solutions) if len(solutions) else None,
        )


def generate(instance: Knapsack, rng: Rng) -> tuple[tuple[int, ...] | None, int]:
    """An element of A, or None for FAIL; with the calls of the model.

    Definition 3.1.2 by tokenwise rejection on uniform bits: the process verifier is asked about the
    empty prefix first, and then about every drawn token.
    """
    if not bool(instance.completable(torch.zeros((1, 0), dtype=torch.long))[0]):
        return None, 0
    decoder = RecomputingDecoder(Uniform(2, instance.length), 1)
    result = tokenwise.sample(decoder, instance, length=instance.length, rng=rng)
    return result.completions()[0], int(result.costs.generator_calls[0])


# ------------------------------------------------------------------ Propositions 3.1.1 and 3.1.2


def _calls(unit: HitZeros, rng: TorchRng) -> Calls:
    """Calls of the model until {0^D} is hit, by rejection and token by token."""
    depth, runs = unit.depth, unit.runs
    lm, constraint = Uniform(2, depth), AllZeros(depth)
    table = Table.of(lm)
    return Calls(
        depth=depth,
        rejection_calls=tuple(
            calls_until_accepted(_rejection_attempts(lm, constraint, rng, runs), runs)
        ),
        tokenwise_calls=tuple(
            calls_until_accepted(_tokenwise_attempts(lm, constraint, rng, runs, None), runs)
        ),
        rejection_expected=queries.rejection_calls(table, constraint),
        tokenwise_expected=queries.tokenwise_calls(table, constraint),
    )


def _law(unit: Enumerate) -> TokenwiseLaw:
    """The exact law of tokenwise rejection on "at least one 0" against the restricted law."""
    base, constraint = Table.of(Uniform(2, unit.depth)), SomeZero(unit.depth)
    law, target = tokenwise.law(base, constraint), restricted(base, constraint)
    special = torch.tensor([[1] * (unit.depth - 1) + [0]])
    return TokenwiseLaw(
        depth=unit.depth,
        special_probability=float(law.log_prob(special).exp()),
        restricted_probability=float(target.log_prob(special).exp()),
        total_variation=float(total_variation(law.log_probs, target.log_probs)),
    )


STUDY = Study(
    name="query_complexity",
    question="How many questions does constrained generation need, with and without a verifier?",
    settings={
        Scale.SMOKE: QueryComplexity(seeds=1, depths=(2, 3), runs=50, instances=2),
        Scale.LAPTOP: QueryComplexity(),
        Scale.PAPER: QueryComplexity(
            seeds=10, depths=tuple(range(2, 15)), runs=400, secrets=256, instances=50
        ),
    },
    units=units,
    run=run,
    rows=(Hidden, RareEven, SubsetSum, Calls, TokenwiseLaw),
    claims=CLAIMS,
    figures=FIGURES,
)
