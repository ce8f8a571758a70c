"""Counting questions: worked values, brute force, and runs against their expectations."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.counting import Counted
from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law
from triptych.core.estimates import Status, mean
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.inference.guided import rejection, tokenwise
from triptych.inference.guided.generation import VerifierError
from triptych.structures.constraints import AllZeros, EvenParity, Knapsack, SomeZero
from triptych.structures.parity import HiddenParity
from triptych.structures.uniform import Uniform
from triptych.studies.generation.query_complexity import judge, study
from triptych.studies.generation.query_complexity.rows import RareEven, TokenwiseLaw
from triptych.theory.generation import queries

pytestmark = pytest.mark.numerical


class SumsUpTo:
    """Hard, and no process verifier of anything: prefixes whose sum is at most `most`."""

    def __init__(self, most):
        self.most = most

    def log_value(self, prefix):
        return torch.where(prefix.sum(-1) <= self.most, 0.0, -torch.inf).double()


class Halves:
    """Soft: ½ for every token that is not 0."""

    def log_value(self, prefix):
        return -math.log(2) * (prefix > 0).sum(-1).double()


class Ones:
    """`least` for a 0 and twice that for a 1, at the last token."""

    def __init__(self, least):
        self.least = least

    def log_value(self, prefix):
        return (self.least * (1 + prefix[:, -1].double())).log()


# ------------------------------------------------------------------ the hidden string


def test_worked_bounds():
    assert [queries.secrets(d) for d in (2, 3, 12)] == [2, 4, 2048]
    assert [queries.fewest_questions(d) for d in (2, 3, 4)] == [1.0, 9 / 4, 35 / 8]
    assert queries.fewest_questions_until_asked(3) == 5 / 2
    assert queries.fewest_questions_if_even_is_rare(2, 0.5) == pytest.approx(7 / 2)
    with refused("length"):
        queries.secrets(1)
    with pytest.raises(ValueError, match="probability is 0"):
        queries.fewest_questions_if_even_is_rare(3, 0.0)


@pytest.mark.parametrize("length", [2, 3, 4])
def test_no_strategy_is_better_than_the_formula(length):
    found = queries.fewest_questions_by_search(length)
    assert found == pytest.approx(queries.fewest_questions(length), abs=1e-12)
    assert found < queries.secrets(length)  # the printed bound


def test_the_search_of_all_strategies_has_an_end():
    with pytest.raises(ValueError, match="D = 5 is too long, 4 is the most"):
        queries.fewest_questions_by_search(5)


@pytest.mark.parametrize("probability", [1.0, 2 / 3, 0.5, 0.2])
def test_a_rare_even_bit_in_turns(probability):
    """Σ_t t P(found at t), for N = 4 asked in turns; other orders are no better."""
    n = 4

    def expected(order):
        asked, total = [0] * n, 0.0
        for t, secret in enumerate(order, start=1):
            total += t * probability * (1 - probability) ** asked[secret] / n
            asked[secret] += 1
        return total

    turns = list(range(n)) * 200
    wanted = queries.fewest_questions_if_even_is_rare(3, probability)
    assert expected(turns) == pytest.approx(wanted, rel=1e-6)
    twice = [s for s in range(n) for _ in range(2)] * 100
    assert expected(twice) >= wanted - 1e-9
    assert (wanted >= n) == (probability <= 2 / 3)  # where the printed bound is met


@pytest.mark.parametrize("length", [2, 3, 5])
def test_search_finds_the_string_and_counts_its_questions(length):
    every = all_sequences(2, length - 1)
    questions = []
    for place, secret in enumerate(every):
        lm = Counted(HiddenParity(secret))
        found = queries.search(lm, every[None])
        assert lm.queries == int(found.questions[0]) == min(place + 1, len(every) - 1)
        assert HiddenParity(secret).log_prob(found.tokens) > -torch.inf
        assert EvenParity(length).completable(found.tokens).all()
        questions.append(float(found.questions[0]))
    assert sum(questions) / len(every) == pytest.approx(queries.fewest_questions(length))


def test_several_searches_at_once():
    lm = HiddenParity(torch.tensor([1, 0]))
    orders = torch.tensor([[0, 1, 2, 3], [2, 3, 1, 0], [0, 1, 3, 2]])
    found = queries.search(lm, all_sequences(2, 2)[orders])
    assert found.questions.tolist() == [3, 1, 3]
    assert found.tokens.tolist() == [[1, 0, 1]] * 3


def test_an_order_has_every_prefix_once():
    lm = HiddenParity(torch.tensor([1, 0]))
    every = all_sequences(2, 2)
    for wrong in (every[:3], every[[0, 1, 1, 2]]):
        with pytest.raises(ValueError, match="each of the 4 once"):
            queries.search(lm, wrong[None])


def test_a_random_start_is_as_good_under_every_secret():
    """By enumeration of its coins: the place of a secret is uniform."""
    for secret in all_sequences(2, 2):

        def one(rng, secret=secret):
            order = queries.orders_from_random_starts(3, 1, rng)
            return int(queries.search(HiddenParity(secret), order).questions[0])

        law = exact_law(one)
        assert law.probs == pytest.approx({1: 0.25, 2: 0.25, 3: 0.5})
        assert law.expectation(float) == queries.fewest_questions(3)


def test_a_searcher_without_memory():
    """Geometric with 1/N: 4000 runs, and the mean within 5 standard errors of 4."""
    lm = Counted(HiddenParity(torch.tensor([0, 1])))
    found = queries.questions_without_memory(lm, 3, 4000, TorchRng(0)).double()
    assert lm.queries == int(found.sum())
    assert abs(float(found.mean()) - 4) < 5 * math.sqrt(12 / 4000)
    assert abs(float((found == 1).double().mean()) - 0.25) < 5 * math.sqrt(3 / 16 / 4000)


def test_tokenwise_rejection_that_starts_anew():
    """The first attempt by enumeration; then E = (1 - s)(cost of a failure + E) + s D."""
    length, tries = 3, 2
    lm, verifier = HiddenParity(torch.tensor([1, 0])), EvenParity(length)

    def attempt(rng):
        result = tokenwise.sample(
            RecomputingDecoder(lm, 1), verifier, length=length, tries=tries, rng=rng
        )
        return bool(result.complete[0]), int(result.costs.generator_calls[0])

    law = exact_law(attempt)
    success = sum(p for (done, _), p in law.probs.items() if done)
    spent = law.expectation(lambda outcome: float(outcome[1]))
    assert success == pytest.approx(1 / 4)
    assert queries.retried_calls(length, tries) == pytest.approx(spent / success)
    assert queries.retried_calls(2, 3) == 6.0
    assert queries.retried_calls(5, 1) == 5 * 16


# ------------------------------------------------------------------ calls


def test_worked_calls():
    bits = Table.of(Uniform(2, 2))
    assert queries.rejection_calls(bits, AllZeros(2)) == pytest.approx(8)
    assert queries.tokenwise_calls(bits, AllZeros(2)) == pytest.approx(4)
    # of 1 one draw, then 11 is refused half of the time: 1 + ½ · 1 + ½ · 2
    assert queries.tokenwise_calls(bits, SomeZero(2)) == pytest.approx(2.5)
    # each token is kept with probability ½ + ½ · ½, then a 1 halves all that follows
    assert queries.tokenwise_calls(bits, Halves()) == pytest.approx(4 / 3 * (1 + 2 / 3 + 2 / 3))
    nothing = SumsUpTo(-1)
    assert queries.rejection_calls(bits, nothing) == math.inf
    assert queries.tokenwise_calls(bits, nothing) == math.inf


@pytest.mark.parametrize("verifier", [SumsUpTo(2), Halves()], ids=["hard", "soft"])
def test_tokenwise_calls_of_any_table(verifier):
    """E(s) = 1 + Σ_y p(y | s) [V(sy) E(sy) + (1 - V(sy)) E(s)], solved for E(s)."""
    table = Table.random(3, 3, seed=0)

    def expected(prefix):
        if len(prefix) == 3:
            return 0.0
        below = [torch.tensor([(*prefix, y)]) for y in range(3)]
        law = table.next_token_log_probs(torch.tensor([prefix]).long().reshape(1, -1))[0].exp()
        kept = [float(law[y] * verifier.log_value(x).exp()) for y, x in enumerate(below)]
        after = [expected((*prefix, y)) if k > 0 else 0.0 for y, k in enumerate(kept)]
        return (1 + sum(k * e for k, e in zip(kept, after, strict=True))) / sum(kept)

    assert queries.tokenwise_calls(table, verifier) == pytest.approx(expected(()))


def test_rejection_calls_of_any_table():
    """3 calls an attempt, over the enumerated probability that one is accepted."""
    table, verifier = Table.random(3, 3, seed=1), SumsUpTo(2)

    def accepted(rng):
        decoder = RecomputingDecoder(table, 1)
        return bool(rejection.sample(decoder, verifier, length=3, attempts=1, rng=rng).complete[0])

    wanted = 3 / exact_law(accepted).probs[True]
    assert queries.rejection_calls(table, verifier) == pytest.approx(wanted)


@pytest.mark.parametrize("sampler", ["rejection", "tokenwise"])
def test_ledgers_agree_with_the_formulas(sampler):
    """Means of 2000 runs within 5 standard errors."""
    table, verifier = Table.random(2, 4, seed=2), SomeZero(4)
    sample, formula = {
        "rejection": (rejection.sample, queries.rejection_calls),
        "tokenwise": (tokenwise.sample, queries.tokenwise_calls),
    }[sampler]
    result = sample(RecomputingDecoder(table, 2000), verifier, length=4, rng=TorchRng(0))
    calls = result.costs.generator_calls.double()
    wanted = formula(table, verifier)
    assert abs(float(calls.mean()) - wanted) < 5 * float(calls.std()) / math.sqrt(2000)


def test_calls_pass_over_prefixes_without_mass():
    """The hidden string: the last bit is certain, and the even one comes after 10 alone."""
    table = Table.of(HiddenParity(torch.tensor([1, 0])))
    assert queries.tokenwise_calls(table, SumsUpTo(3)) == pytest.approx(3)
    assert queries.rejection_calls(table, EvenParity(3)) == pytest.approx(12)
    certain = Table.of(HiddenParity(torch.tensor([], dtype=torch.long)))  # 0 alone
    longer = Table(2, 2, torch.tensor([1.0, 0.0, 0.0, 0.0]).double().log())
    assert queries.tokenwise_calls(certain, SumsUpTo(1)) == pytest.approx(1)
    assert queries.tokenwise_calls(longer, SumsUpTo(2)) == pytest.approx(2)


def test_a_value_above_one_stands_for_its_share_of_a_bound():
    """One fair bit with V = 1, 2: ⅓ and ⅔, as with ½, 1, which alone can be sampled."""
    bit = Table.of(Uniform(2, 1))

    def one(value, rng):
        decoder = RecomputingDecoder(bit, 1)
        result = tokenwise.sample(decoder, value, length=1, accept="value", tries=1, rng=rng)
        return result.completions()[0] if result.complete[0] else None

    for value in (Ones(1.0), Ones(0.5)):
        assert tokenwise.law(bit, value, accept="value").as_dict()[1,] == pytest.approx(2 / 3)
    drawn = exact_law(lambda rng: one(Ones(0.5), rng)).probs
    assert drawn == pytest.approx({None: 1 / 4, (0,): 1 / 4, (1,): 1 / 2})
    with pytest.raises(VerifierError, match="at most 0"):
        exact_law(lambda rng: one(Ones(1.0), rng))


# ------------------------------------------------------------------ subset sum


def test_worked_subsets():
    assert queries.subsets_with_sum((3, 5, 2), 5).tolist() == [[0, 1, 0], [1, 0, 1]]
    assert queries.subsets_with_sum((4, 6), 5).tolist() == []


def test_subsets_by_another_way():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        weights = tuple(torch.randint(0, 9, (6,), generator=generator).tolist())
        capacity = int(torch.randint(0, 20, (1,), generator=generator))
        wanted = {
            bits
            for bits in itertools.product((0, 1), repeat=6)
            if sum(itertools.compress(weights, bits)) == capacity
        }
        assert {tuple(x) for x in queries.subsets_with_sum(weights, capacity).tolist()} == wanted


def test_generation_solves_subset_sum_or_fails():
    solution, calls = study.generate(Knapsack((3, 5, 2), 5), TorchRng(0))
    assert solution in {(0, 1, 0), (1, 0, 1)}
    assert calls >= 3
    assert study.generate(Knapsack((4, 6), 5), TorchRng(0)) == (None, 0)


# ------------------------------------------------------------------ the study


def test_runs_are_cut_from_attempts():
    """Attempts of D = 2 calls, hit by 00 with ¼: runs are the gaps between hits."""
    kept = []

    def attempts():
        rng = TorchRng(1)
        while True:
            decoder = RecomputingDecoder(Uniform(2, 2), 7)
            result = rejection.sample(decoder, AllZeros(2), length=2, attempts=1, rng=rng)
            kept.append(result.complete)
            yield result

    found = study.calls_until_accepted(attempts(), 30)
    hits = torch.nonzero(torch.cat(kept))[:30, 0].tolist()
    gaps = [b - a for a, b in itertools.pairwise([-1, *hits])]
    assert found == [2.0 * gap for gap in gaps]
    estimate = mean(study.calls_until_accepted(attempts(), 400), confidence=0.9999)
    assert estimate.low < 8 < estimate.high
    with pytest.raises(ValueError, match="ended after 0 of 2 runs"):
        study.calls_until_accepted(iter([]), 2)


def test_too_short_strings_are_refused():
    with pytest.raises(ValueError, match="at least 2"):
        study.units(study.QueryComplexity(depths=(1, 2)))


CLAIMS = {claim.id: claim for claim in judge.CLAIMS}


@pytest.mark.slow
def test_a_task_that_needs_as_many_questions_as_printed():
    """The lower bound over all strategies meets the formula N (1 - q)/q + (N + 1)/2 from below."""
    assert queries.questions_if_even_is_rare_at_least(2, 1.0, horizon=1) == 1.0
    assert queries.questions_if_even_is_rare_at_least(2, 1.0) == 1.5  # (1 + 2) / 2: asked in turn
    for length, probability in ((2, 0.5), (2, 2 / 3), (3, 2 / 3), (4, 2 / 3)):
        least = queries.questions_if_even_is_rare_at_least(length, probability)
        formula = queries.fewest_questions_if_even_is_rare(length, probability)
        assert 0.99 * formula < least <= formula
        shorter = queries.questions_if_even_is_rare_at_least(length, probability, horizon=6)
        assert shorter < least
    assert queries.questions_if_even_is_rare_at_least(4, 2 / 3) > 8
    with pytest.raises(ValueError, match="too long"):
        queries.questions_if_even_is_rare_at_least(5, 0.5)
    with pytest.raises(ValueError, match="above 0"):
        queries.questions_if_even_is_rare_at_least(3, 0.0)


def test_our_own_mistakes_leave_the_theorem_undecided():
    claim = CLAIMS["li.thm-3.1.1"]
    for spoil in (
        lambda row: replace(row, at_least=row.optimum + 1) if isinstance(row, RareEven) else row,
        lambda row: replace(row, at_least=0.5 * row.optimum) if isinstance(row, RareEven) else row,
        lambda row: row if isinstance(row, RareEven) else replace(row, expected=99.0),
    ):
        verdict = claim.verdict([spoil(row) for row in claim.held_by])
        assert verdict.outcome is Status.UNDECIDED
        assert verdict.missing


def test_the_law_of_three_bits_by_hand():
    """110 has ¼ and the others ⅛: ¼ - 1/7 from the restricted law, which has 1/7 everywhere."""
    table, constraint = Table.of(Uniform(2, 3)), SomeZero(3)
    law = tokenwise.law(table, constraint).as_dict()
    (row,) = CLAIMS["li.prop-3.1.2"].held_by
    assert isinstance(row, TokenwiseLaw)
    assert law[1, 1, 0] == pytest.approx(row.special_probability)
    far = sum(max(0.0, p - 1 / 7) for p in law.values())
    assert far == pytest.approx(row.total_variation)


def test_one_sort_of_instances_is_not_enough():
    claim = CLAIMS["li.thm-3.1.2"]
    for rows in (claim.held_by[:1], claim.held_by[1:]):
        assert claim.verdict(rows).outcome is Status.UNDECIDED


def test_few_runs_decide_nothing():
    claim = CLAIMS["li.prop-3.1.1"]
    row = replace(claim.held_by[0], rejection_calls=(4.0, 12.0))
    assert claim.verdict([row]).outcome is Status.UNDECIDED
