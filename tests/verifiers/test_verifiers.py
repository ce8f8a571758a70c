"""Verifiers: values by hand and by enumeration, dials that do what they say, probes and fits."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from tests.support.refusals import refused

from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law
from triptych.core.protocols import Question, ReadsStates, Value, Verifier
from triptych.core.randomness import TorchRng
from triptych.core.streams import hashed_uniform
from triptych.core.table import Table, all_sequences
from triptych.models.cache import CachedDecoder
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.constraints import AllZeros, EvenParity, SomeZero
from triptych.structures.hidden_markov.hmm import HMM
from triptych.training.classifier import train_classifier
from triptych.training.step import Recipe
from triptych.verifiers.exact import (
    DyckVerifier,
    ExactValue,
    Outcome,
    RatioValue,
    Rule,
    finished,
)
from triptych.verifiers.noisy import AverageCase, Delayed, Flipped, WithinFactor
from triptych.verifiers.probe import RECIPE, Probe, split_score
from triptych.verifiers.values import TokenValue, one_hot_positions, rollout_values

INF = math.inf


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def prefix(*rows):
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1)


EMPTY = prefix(())


def fair(length):
    return Table(2, length, torch.full((2**length,), -length * math.log(2), dtype=torch.float64))


def every_prefix(vocab_size, length):
    return [all_sequences(vocab_size, t) for t in range(length + 1)]


def answers(value, vocab_size, length):
    """log V of every prefix of the tree, shortest first."""
    return torch.cat([value.log_value(x) for x in every_prefix(vocab_size, length)])


# ------------------------------------------------------------------ exact values


def test_worked_value_of_a_table():
    tau = Rule(lambda x: [1.0, 0.5, 0.0, 0.0][2 * x[0] + x[1]])
    value = ExactValue(fair(2), tau)
    assert isinstance(value, Value)
    torch.testing.assert_close(value.log_value(prefix((0,), (1,))).exp(), f64([0.75, 0.0]))
    torch.testing.assert_close(value.log_value(EMPTY).exp(), f64([0.375]))
    torch.testing.assert_close(value.log_value(prefix((0, 1))).exp(), f64([0.5]))


def test_the_exact_value_is_a_conditional_expectation():
    """Against sums over a dictionary, and as weights: p(x|prefix) V*(prefix x) gives p τ / Z."""
    p = Table.random(3, 3, seed=1)
    tau = Rule(lambda x: (1 + sum(x)) / 8)
    value = ExactValue(p, tau)
    law = p.as_dict()
    for rows in every_prefix(3, 3):
        for x, found in zip(rows.tolist(), value.log_value(rows).exp().tolist(), strict=True):
            below = {y: w for y, w in law.items() if list(y[: len(x)]) == x}
            wanted = sum(w * (1 + sum(y)) / 8 for y, w in below.items()) / sum(below.values())
            assert found == pytest.approx(wanted, rel=1e-12)

    def guided(rng):
        x = []
        while len(x) < 3:
            here = prefix(*[x] * 3)
            children = torch.cat([here, torch.arange(3)[:, None]], 1)
            weights = p.next_token_log_probs(here[:1])[0] + value.log_value(children)
            x.append(int(rng.categorical(weights.log_softmax(-1))))
        return tuple(x)

    target = p.tilt(tau.log_value).as_dict()
    assert exact_law(guided).total_variation(target) < 1e-12


def test_the_exact_value_is_zero_where_nothing_good_follows():
    dyck = Dyck.fixed_length(4, type_probs=f64([0.2, 0.8]), q=0.5)
    value = ExactValue(Table.of(dyck), dyck)
    for rows in every_prefix(4, 4):  # the support is the language: V* is 1 on it and 0 off it
        torch.testing.assert_close(value.log_value(rows), dyck.log_value(rows), atol=1e-12, rtol=0)
    with refused("prefix"):
        value.log_value(torch.zeros((1, 5), dtype=torch.long))
    with refused("hidden"):
        value.log_value(prefix((4,)))


def repeater():
    """First bit 1 with ¾; the second repeats it."""
    return Table(2, 2, f64([0.25, 0.0, 0.0, 0.75]).log())


def test_worked_ratio():
    value = RatioValue(fair(2), repeater())
    assert isinstance(value, Value)
    found = [value.log_value(x).exp().item() for x in (EMPTY, prefix((1,)), prefix((1, 1)))]
    assert found == pytest.approx([1.0, 1.5, 3.0])
    torch.testing.assert_close(value.log_value(prefix((1, 0), (0, 0))), f64([-INF, 0.0]))


class Ratio:
    """τ = q/p on full strings, from their tables."""

    def __init__(self, p, q):
        self.p, self.q = p, q

    def log_value(self, prefix):
        log_q = self.q.log_prob(prefix)
        return torch.where(torch.isneginf(log_q), log_q, log_q - self.p.log_prob(prefix))


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (Table.random(3, 4, seed=0), Table.random(3, 4, seed=1)),
        (Table.random(4, 6, seed=2), Dyck.fixed_length(6, type_probs=f64([0.3, 0.7]), q=0.4)),
        (
            Dyck.fixed_length(6, type_probs=f64([0.5, 0.5]), q=0.5),
            Dyck.fixed_length(6, type_probs=f64([0.2, 0.8]), q=0.4, max_depth=2),
        ),
        (HMM.random(states=3, vocab_size=2, length=5, seed=0), Table.random(2, 5, seed=3)),
    ],
    ids=["tables", "brackets in a table", "brackets", "an HMM"],
)
def test_the_ratio_is_the_exact_value(p, q):
    table = Table.of(p)
    summed = ExactValue(table, Ratio(table, Table.of(q)))
    chained = RatioValue(p, q)
    for rows in every_prefix(p.vocab_size, p.length):
        torch.testing.assert_close(
            chained.log_value(rows), summed.log_value(rows), atol=1e-10, rtol=0
        )


class Asked:
    """A model that writes down which prefixes it was asked about."""

    def __init__(self, model):
        self.model, self.vocab_size, self.rows = model, model.vocab_size, []

    def next_token_log_probs(self, prefix):
        self.rows += [tuple(row) for row in prefix.tolist()]
        return self.model.next_token_log_probs(prefix)


def test_a_ratio_at_a_length_that_no_table_has(monkeypatch):
    """Two Dyck laws of 32 tokens, against log_prob; every law is asked for once."""
    p = Asked(Dyck.fixed_length(32, type_probs=f64([0.5, 0.5]), q=0.5, max_depth=12))
    q = Asked(Dyck.fixed_length(32, type_probs=f64([0.2, 0.8]), q=0.4, max_depth=12))
    strings = q.model.sample(3, TorchRng(0))
    wanted = q.model.log_prob(strings) - p.model.log_prob(strings)
    value = RatioValue(p, q)
    value.log_value(strings[[0, 1, 2, 1], :20])
    torch.testing.assert_close(value.log_value(strings[[0, 1, 2, 0]]), wanted[[0, 1, 2, 0]])
    for law in (p, q):
        assert len(law.rows) == len(set(law.rows))
        assert set(law.rows) == {tuple(x[:t]) for x in strings.tolist() for t in range(32)}
    from triptych.verifiers import exact

    monkeypatch.setattr(exact, "_REMEMBERED", 40)  # then it forgets, and is right again
    torch.testing.assert_close(value.log_value(strings), wanted)
    assert len(p.rows) > len(set(p.rows))


def test_a_target_outside_the_model_is_an_error():
    value = RatioValue(repeater(), fair(2))
    for _ in range(2):
        with refused("target"):
            value.log_value(prefix((0, 0), (1, 0)))
    with refused("lm"):
        RatioValue(fair(2), Table.random(3, 2, seed=0))


def test_worked_brackets():
    dyck = Dyck.fixed_length(4, type_probs=f64([0.5, 0.5]), q=0.5)
    value = DyckVerifier(dyck)
    assert isinstance(value, Value)
    assert value.log_value(dyck.tokens("[(", "[]", "[)", "]]")).tolist() == [0, 0, -INF, -INF]
    assert value.log_value(dyck.tokens("[[[", "[[]")).tolist() == [-INF, 0]
    assert value.log_value(prefix((0, 7), (0, 1))).tolist() == [-INF, 0]
    assert value.log_value(prefix((0, 1, 0, 1, 0), (0, 0, 1, 1, 1))).tolist() == [-INF, -INF]
    for rows in every_prefix(4, 4):
        assert torch.equal(value.log_value(rows), dyck.log_value(rows))


def test_worked_rules():
    hard, soft = Rule(lambda x: sum(x) <= 1), Rule(lambda x: 0.5 ** sum(x))
    assert isinstance(hard, Value)
    assert hard.log_value(EMPTY).tolist() == [0.0]
    assert hard.log_value(prefix((1, 0), (1, 1))).tolist() == [0.0, -INF]
    torch.testing.assert_close(soft.log_value(prefix((0, 1), (1, 1))), f64([0.5, 0.25]).log())
    for kind in (np.bool_, np.float32, torch.tensor, int):
        assert Rule(lambda x, kind=kind: kind(True)).log_value(EMPTY).tolist() == [0.0]


@pytest.mark.parametrize("answer", [1.5, -0.1, math.nan, None, "yes", [True], 1j])
def test_a_rule_that_answers_something_else(answer):
    with refused("function"):
        Rule(lambda x: x.clear() or answer).log_value(prefix((3, 1)))


def test_worked_outcome():
    value = Outcome(AllZeros(2), 2)
    assert isinstance(value, Value)
    assert value.log_value(EMPTY).tolist() == [0.0]
    assert value.log_value(prefix((1,), (0,))).tolist() == [0.0, 0.0]
    assert value.log_value(prefix((1, 0), (0, 0))).tolist() == [-INF, 0.0]
    ends = Outcome(Rule(lambda x: len(x) > 1), length=3, end_token=2)
    assert ends.log_value(prefix((2,), (1,))).tolist() == [-INF, 0.0]
    assert finished(prefix((2,), (1,)), None, 2).tolist() == [True, False]
    several = Outcome(Rule(lambda x: len(x) > 1), length=3, end_token=(1, 2))
    assert several.log_value(prefix((2,), (1,), (0,))).tolist() == [-INF, -INF, 0.0]
    assert finished(prefix((2,), (1,), (0,)), None, [2, 1]).tolist() == [True, True, False]
    assert finished(EMPTY, 0, 2).tolist() == [True]
    assert finished(EMPTY, 1, 2).tolist() == [False]


# ------------------------------------------------------------------ noise with a dial

P = Table.random(3, 6, seed=5)
TAU = Rule(lambda x: (1 + x.count(0)) / 7)
EXACT = ExactValue(P, TAU)
HARD = SomeZero(9)
INNER = sum(3**t for t in range(6))  # prefixes that are not full strings
NOISE = [
    WithinFactor(EXACT, 0.5, seed=1, length=6),
    WithinFactor(EXACT, 0.5, seed=1, length=6, extremes=True),
    AverageCase(EXACT, 0.5, seed=1, rare=0.2, length=6),
    Flipped(Rule(lambda x: 2 not in x), 0.3, 0.4, seed=1, length=6),
]


@pytest.mark.parametrize("noisy", NOISE, ids=lambda n: type(n).__name__)
def test_noise_is_fixed_and_full_strings_are_exact(noisy):
    assert isinstance(noisy, Value)
    exact, found = answers(noisy.value, 3, 6), answers(noisy, 3, 6)
    assert torch.equal(found, answers(noisy, 3, 6))
    assert torch.equal(found[INNER:], exact[INNER:])
    assert (found[:INNER] != exact[:INNER]).any()
    assert not torch.equal(answers(replace(noisy, seed=2), 3, 6), found)
    everywhere = answers(replace(noisy, length=None), 3, 6)
    assert torch.equal(everywhere[:INNER], found[:INNER])
    assert not torch.equal(everywhere[INNER:], found[INNER:])
    some = torch.tensor([5, 0, 80])
    rows = all_sequences(3, 4)
    assert torch.equal(noisy.log_value(rows[some]), noisy.log_value(rows)[some])
    ended = replace(noisy, length=None, end_token=1).log_value(rows)
    last = rows[:, -1] == 1
    assert torch.equal(ended[last], noisy.value.log_value(rows)[last])
    assert torch.equal(ended[~last], noisy.log_value(rows)[~last])


def test_within_a_factor():
    exact = answers(EXACT, 3, 6)
    for epsilon in (0.0, 0.1, 2.0):
        noise = (answers(WithinFactor(EXACT, epsilon, seed=0), 3, 6) - exact) / math.log1p(
            epsilon or 1.0
        )
        assert noise.abs().max() <= (1 + 1e-12 if epsilon else 0)
        if epsilon:  # s is uniform on [-1, 1): by Dvoretzky-Kiefer-Wolfowitz, failure 1e-9
            n = len(noise)
            grid = (torch.arange(n) + 0.5) / n * 2 - 1
            off = (noise.sort().values - grid).abs().max() / 2
            assert off < math.sqrt(math.log(2 / 1e-9) / (2 * n)) + 1 / n
    ends = answers(WithinFactor(EXACT, 1.0, seed=0, extremes=True), 3, 6) - exact
    up = ends > 0
    torch.testing.assert_close(ends, torch.where(up, 1.0, -1.0).double() * math.log(2))
    assert abs(up.double().mean() - 0.5) < rate_tolerance(len(up))


def rate_tolerance(n, failure=1e-9):
    """Hoeffding: a mean of n bits is further from its expectation with less than this chance."""
    return math.sqrt(math.log(2 / failure) / (2 * n))


def test_within_a_factor_by_hand(monkeypatch):
    given(monkeypatch, 0.75)
    value = Rule(lambda x: 0.5)
    found = WithinFactor(value, 1.0, seed=0).log_value(EMPTY)
    torch.testing.assert_close(found.exp(), f64([math.sqrt(2) / 2]))
    found = WithinFactor(value, 1.0, seed=0, extremes=True).log_value(EMPTY)
    torch.testing.assert_close(found.exp(), f64([1.0]))
    given(monkeypatch, 0.25)
    found = WithinFactor(value, 1.0, seed=0, extremes=True).log_value(EMPTY)
    torch.testing.assert_close(found.exp(), f64([0.25]))


def given(monkeypatch, *numbers):
    """Put these uniform numbers in the place of the hashed ones."""
    from triptych.verifiers import noisy

    monkeypatch.setattr(noisy, "hashed_uniform", lambda seed, prefix: f64(numbers))


def test_average_case_by_hand(monkeypatch):
    value = AverageCase(Rule(lambda x: 0.25), 1 / 40, seed=0, rare=0.1)
    assert value.factor == pytest.approx(2.0)
    given(monkeypatch, 0.0, 0.049, 0.051, 0.099, 0.101, 0.999)
    found = value.log_value(torch.zeros((6, 1), dtype=torch.long)).exp()
    torch.testing.assert_close(found, f64([0.125, 0.125, 0.5, 0.5, 0.25, 0.25]))


@pytest.mark.parametrize(("epsilon", "rare"), [(0.5, 0.01), (0.1, 0.3), (3.0, 1.0), (0.0, 0.5)])
def test_average_case_on_average(epsilon, rare):
    """E[V̂/V] and E[V/V̂] by integrating over u exactly, and on 3^9 prefixes by their mean."""
    noisy = AverageCase(Rule(lambda x: True), epsilon, seed=3, rare=rare)
    m = noisy.factor
    assert 1 - rare + rare * (m + 1 / m) / 2 == pytest.approx(1 + epsilon)
    found = answers(noisy, 3, 9)
    assert set(found.unique().tolist()) <= {-math.log(m), 0.0, math.log(m)}
    n = len(found)
    for sign in (1, -1):
        ratio = (sign * found).exp()
        assert abs(ratio.mean() - 1 - epsilon) <= 6 * ratio.std() / math.sqrt(n)  # failure 2e-9
    assert abs((found != 0).double().mean() - (rare if epsilon else 0)) < rate_tolerance(n)


def test_rare_errors_are_large():
    factors = [AverageCase(TAU, 0.1, seed=0, rare=rare).factor for rare in (0.1, 0.01, 1e-6)]
    assert factors == sorted(factors)
    assert factors[-1] == pytest.approx(2 * (0.1 / 1e-6 + 1), rel=1e-6)


def test_delayed():
    value = AllZeros(3)
    late = Delayed(value)
    assert isinstance(late, Value)
    assert late.log_value(EMPTY).tolist() == [0.0]
    assert late.log_value(prefix((1,), (0,))).tolist() == [0.0, 0.0]
    assert late.log_value(prefix((1, 0), (0, 1))).tolist() == [-INF, 0.0]
    assert late.log_value(prefix((0, 0, 1))).tolist() == [0.0]
    assert Delayed(value, length=3).log_value(prefix((0, 0, 1))).tolist() == [-INF]
    assert Delayed(value, length=3).log_value(prefix((0, 1))).tolist() == [0.0]
    ended = Delayed(value, end_token=1).log_value(prefix((0, 1), (0, 0)))
    assert ended.tolist() == [-INF, 0.0]
    for t in range(1, 6):
        rows = all_sequences(3, t)
        assert torch.equal(Delayed(EXACT, 6).log_value(rows), EXACT.log_value(rows[:, :-1]))
    assert torch.equal(Delayed(EXACT).log_value(EMPTY), EXACT.log_value(EMPTY))


@pytest.mark.parametrize("rates", [(0.0, 0.0), (1.0, 1.0), (0.25, 0.0), (0.0, 0.6), (0.1, 0.4)])
def test_rates_of_flips(rates):
    hard = Rule(lambda x: x.count(0) % 2 == 0)
    right = answers(hard, 3, 8) == 0
    noisy = answers(Flipped(hard, *rates, seed=7), 3, 8) == 0
    for good, rate in zip((False, True), rates, strict=True):
        flips = (noisy != right)[right == good].double()
        if rate in (0.0, 1.0):
            assert (flips == rate).all()
        assert abs(flips.mean() - rate) < rate_tolerance(len(flips))
    more = answers(Flipped(hard, *(min(1.0, r + 0.2) for r in rates), seed=7), 3, 8) == 0
    assert ((noisy != right) <= (more != right)).all()


def test_flips_by_hand(monkeypatch):
    good, bad = Rule(lambda x: True), Rule(lambda x: False)
    given(monkeypatch, 0.2, 0.3, 0.4)
    three = torch.zeros((3, 1), dtype=torch.long)
    assert Flipped(good, 0.0, 0.3, seed=0).log_value(three).tolist() == [-INF, 0, 0]
    assert Flipped(bad, 0.35, 0.0, seed=0).log_value(three).tolist() == [0, 0, -INF]
    soft = Flipped(good, 0.0, 0.3, seed=0, soft=0.1).log_value(three)
    torch.testing.assert_close(soft, f64([0.1, 0.9, 0.9]).log(), rtol=1e-15, atol=0)
    leaves = Flipped(good, 0.0, 0.3, seed=0, soft=0.1, length=1).log_value(three)
    assert leaves.tolist() == [0, 0, 0]


def test_noise_of_noise():
    """A factor on top of a factor is the product, and zero stays zero."""
    inner = WithinFactor(EXACT, 0.5, seed=1)
    outer = WithinFactor(inner, 0.2, seed=2)
    rows = all_sequences(3, 4)
    alone = WithinFactor(EXACT, 0.2, seed=2).log_value(rows) - EXACT.log_value(rows)
    torch.testing.assert_close(outer.log_value(rows), inner.log_value(rows) + alone)
    bits = all_sequences(2, 9)
    hard = HARD.log_value(bits)
    for noisy in (WithinFactor(HARD, 0.5, seed=0), AverageCase(HARD, 0.5, seed=0, rare=1.0)):
        assert torch.equal(noisy.log_value(bits) == -INF, hard == -INF)
    late = Delayed(Flipped(EvenParity(9), 0.3, 0.3, seed=0), length=9)
    inner = late.value
    assert torch.equal(late.log_value(bits), inner.log_value(bits))
    assert torch.equal(late.log_value(bits[:, :5]), inner.log_value(bits[:, :4]))
    assert torch.equal(  # the noise is the hashed number of the prefix itself
        WithinFactor(Rule(lambda x: True), 1.0, seed=4).log_value(rows),
        (2 * hashed_uniform(4, rows) - 1) * math.log(2),
    )


def test_bad_dials():
    for epsilon in (-0.1, math.nan, INF):
        for kind in (WithinFactor, AverageCase):
            with refused("epsilon"):
                kind(TAU, epsilon, seed=0)
    for rare in (0.0, -0.1, 1.1, math.nan):
        with refused("rare"):
            AverageCase(TAU, 0.1, seed=0, rare=rare)
    for rate in (-0.1, 1.1, math.nan):
        with refused("false_accept"):
            Flipped(TAU, rate, 0.0, seed=0)
        with refused("false_reject"):
            Flipped(TAU, 0.0, rate, seed=0)
    for soft in (-0.1, 0.5, math.nan):
        with refused("soft"):
            Flipped(TAU, 0.0, 0.0, seed=0, soft=soft)
    with pytest.raises(ValueError, match=r"only the answers of a hard .* of \[1, 0\]"):
        Flipped(Rule(lambda x: 0.5), 0.1, 0.1, seed=0).log_value(prefix((1, 0)))


# ------------------------------------------------------------------ probes


def gaussian(n, width, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=generator, dtype=torch.float64).to(dtype)


def separable(n, width, seed, dtype=torch.float64):
    """Two clouds a long way apart, on features of very different sizes."""
    x = gaussian(n, width, seed)
    correct = torch.arange(n) % 3 == 0
    x[:, 0] += torch.where(correct, 4.0, -4.0)
    sizes = 10.0 ** (torch.arange(width) % 5 - 2)
    return (x * sizes + 3).to(dtype), correct


def worked_probe(**options):
    weights = (f64([[0.0], [1.0]]),)
    return Probe(f64([1.0]), f64([2.0]), weights, (f64([0.0, 0.0]),), **options)


def test_worked_probe():
    found = worked_probe().log_prob_correct(f64([[3.0], [1.0]])).exp()
    torch.testing.assert_close(found, f64([math.e / (1 + math.e), 0.5]))
    assert worked_probe().score(f64([[3.0], [0.0], [5.0]]), torch.tensor([1, 0, 0])) == 2 / 3
    floored = worked_probe(floor=0.25)
    low, high = f64([[-9.0]]), f64([[3.0]])  # P = 1 / (1 + e⁵), below the floor
    torch.testing.assert_close(floored.log_value_of(low).exp(), f64([0.25]))
    assert torch.equal(floored.log_value_of(high), floored.log_prob_correct(high))
    assert torch.equal(worked_probe().log_value_of(low), worked_probe().log_prob_correct(low))
    deep = Probe(  # 3 → 1 → relu(±1) = (1, 0) → scores (0, 2·1 - 3·0 + ½)
        f64([1.0]),
        f64([2.0]),
        (f64([[1.0], [-1.0]]), f64([[0.0, 0.0], [2.0, -3.0]])),
        (f64([0.0, 0.0]), f64([0.0, 0.5])),
    )
    torch.testing.assert_close(
        deep.log_prob_correct(f64([[3.0]])).exp(), f64([1 / (1 + math.exp(-2.5))])
    )


FEW = replace(RECIPE, steps=60, learning_rate=0.03)


@pytest.mark.parametrize(
    ("depth", "dtype"),
    [
        (1, torch.float32),
        (1, torch.float64),
        (1, torch.bfloat16),
        (2, torch.float32),
        (4, torch.float64),
    ],
)
def test_probes_separate_what_is_separable(depth, dtype):
    states, correct = separable(600, 20, seed=0, dtype=dtype)
    new, truth = separable(600, 20, seed=1, dtype=dtype)
    probe = Probe.fit(states, correct, depth=depth, width=32, recipe=FEW)
    assert isinstance(probe, Verifier)
    assert isinstance(probe, ReadsStates)
    assert [w.shape[0] for w in probe.weights] == [32] * (depth - 1) + [2]
    assert probe.score(new, truth) > 0.99
    log_prob = probe.log_prob_correct(new)
    assert log_prob.dtype == torch.float64
    assert log_prob[truth].mean() > log_prob[~truth].mean() + 1
    again = Probe.fit(states, correct.long(), depth=depth, width=32, recipe=FEW)
    assert torch.equal(again.log_prob_correct(new), log_prob)
    other = Probe.fit(states, correct, depth=depth, width=32, recipe=FEW, seed=1)
    assert not torch.equal(other.log_prob_correct(new), log_prob)


def test_a_linear_probe_is_logistic_regression():
    """Two classes with an L2 penalty of ½ λ|W|² on both rows are one row w with ¼ λ|w|²; with no
    penalty at all, scikit-learn and the probe have the same only minimum."""
    x = gaussian(400, 5, seed=0) * f64([1.0, 30.0, 0.1, 2.0, 1.0]) + 7
    chance = ((x - 7) @ f64([1.0, 0.03, -5.0, 0.0, 0.5])).sigmoid()
    correct = torch.rand(400, generator=torch.Generator().manual_seed(1)).double() < chance
    recipe = Recipe(steps=800, batch=400, learning_rate=0.05, decay="cosine")
    probe = Probe.fit(x, correct, recipe=recipe)
    scaled = (x - x.mean(0)) / x.std(0, correction=0)
    peer = LogisticRegression(C=1e12, tol=1e-10, max_iter=10000)
    peer.fit(scaled.numpy(), correct.numpy())
    wanted = torch.from_numpy(peer.predict_log_proba(scaled.numpy())[:, 1])
    torch.testing.assert_close(probe.log_prob_correct(x), wanted, atol=1e-4, rtol=0)


def test_standardisation_is_stored_and_makes_units_irrelevant():
    states, correct = separable(100, 4, seed=2)
    states[:, 3] = 0.1  # never changes in training
    probe = Probe.fit(states, correct)
    torch.testing.assert_close(probe.mean[:3], states.mean(0)[:3])
    torch.testing.assert_close(probe.scale[:3], states.std(0, correction=0)[:3])
    assert probe.scale[3] == 1
    units = f64([1000.0, 0.01, 3.0, 1.0])
    metric = Probe.fit(states * units + 5, correct)
    torch.testing.assert_close(
        metric.log_prob_correct(states * units + 5), probe.log_prob_correct(states)
    )


def test_random_labels_are_chance_on_new_states():
    """Labels that have nothing to do with the states: right on half of the 10 · 300 new ones."""
    states = gaussian(1000, 30, seed=3, dtype=torch.float32)
    labels = torch.rand(1000, generator=torch.Generator().manual_seed(4)) < 0.5
    recipe = FEW
    found = split_score(states, labels, train=700, repetitions=5, recipe=recipe, seed=1)
    assert found.shape == (5,)
    # 1500 guesses on 1000 states: not fewer than 300 independent ones; failure 1e-6
    assert abs(found.mean() - 0.5) < rate_tolerance(300, failure=1e-6)
    assert len(found.unique()) > 1
    again = split_score(states, labels, train=700, repetitions=5, recipe=recipe, seed=1)
    assert torch.equal(again, found)


def test_split_scores_are_of_states_left_out():
    """Every state has a feature of its own: nothing learnt helps with the others, all else does."""
    states, labels = torch.eye(60, dtype=torch.float64), torch.arange(60) % 2
    assert Probe.fit(states, labels).score(states, labels) == 1.0
    found = split_score(states, labels, train=40, repetitions=8, recipe=FEW)
    assert abs(found.mean() - 0.5) < 0.35
    clouds, correct = separable(120, 5, seed=0)
    assert split_score(clouds, correct, train=90, repetitions=3, recipe=FEW).min() > 0.9
    for train in (60, 61):
        with refused("train"):
            split_score(states, labels, train=train)


def tiny_lm():
    shape = Shape(4, 6, width=8, layers=3, heads=2, causal=True)
    return CausalLM(Transformer(shape, seed=0, init_scale=0.5))


def about(decoder, rows):
    """A question about rows of a decoder, which are prompts."""
    lengths = decoder.lengths[rows]
    over = torch.zeros_like(rows, dtype=torch.bool)
    return Question(decoder.tokens[rows], lengths, lengths, over, rows, decoder, rows)


def test_a_probe_reads_the_layer_it_was_trained_on():
    lm = tiny_lm()
    rows = torch.randint(0, 3, (40, 4), generator=torch.Generator().manual_seed(0))
    decoder = CachedDecoder(lm, 40, layer=2)
    decoder.extend(rows)
    states = decoder.hidden_state()
    correct = rows[:, -1] == 0
    probe = Probe.fit(states, correct, layer=decoder.layer)
    assert probe.score(states, correct) > 0.9
    some = torch.tensor([3, 17])
    found = probe.log_values(about(decoder, some))
    torch.testing.assert_close(found, probe.log_prob_correct(states[some]), atol=1e-6, rtol=0)
    floored = replace(probe, floor=0.5).log_values(about(decoder, torch.arange(40)))
    assert floored.min().exp() == pytest.approx(0.5)
    for layer in (1, -1):
        other = CachedDecoder(lm, 40, layer=layer)
        other.extend(rows)
        with pytest.raises(ValueError, match=r"trained on layer 2 and the decoder .* layer=2"):
            probe.log_values(about(other, some))
    with refused("layer"):
        probe.log_values(about(RecomputingDecoder(lm, 40), some))
    with pytest.raises(ValueError, match="does not know its layer"):
        replace(probe, layer=None).log_values(about(decoder, some))
    with refused("layer"):
        Probe.fit(states, correct, layer=-1)


@pytest.mark.parametrize("depth", [1, 3])
def test_a_probe_is_saved_as_tensors(tmp_path, depth):
    states, correct = separable(50, 3, seed=0, dtype=torch.float32)
    probe = Probe.fit(states, correct, depth=depth, width=4, layer=7, floor=0.125)
    save_file(probe.state(), tmp_path / "probe.safetensors")
    back = Probe.from_state(load_file(tmp_path / "probe.safetensors"))
    assert torch.equal(back.log_value_of(states), probe.log_value_of(states))
    assert (back.layer, back.floor, len(back.weights)) == (7, 0.125, depth)
    assert Probe.from_state(replace(probe, layer=None).state()).layer is None
    assert not any(value.requires_grad for value in probe.state().values())
    lacking = {name: value for name, value in probe.state().items() if name != "bias.0"}
    for wrong in (lacking, {}, {**probe.state(), "more": states}):
        with refused("state"):
            Probe.from_state(wrong)


def test_probes_refuse_what_they_cannot_use(unchecked_shapes):
    states, correct = separable(20, 3, seed=0)
    nan = states.clone()
    nan[4, 1] = math.nan
    probe = Probe.fit(states, correct)
    for bad, match in (
        ((states[:0], correct[:0]), "one row of features for every label"),
        ((states, correct[:5]), "one row of features for every label"),
        ((states[:, 0], correct), "one row of features for every label"),
        ((states, torch.ones(20)), "all 20 states are correct: a probe needs"),
        ((states, torch.zeros(20, dtype=torch.bool)), "all 20 states are wrong"),
        ((nan, correct), "the state in row 4 is not finite"),
        ((states, torch.arange(20)), "labels are True and False"),
        ((states, torch.full((20,), math.nan)), "labels are True and False"),
    ):
        with pytest.raises(ValueError, match=match):
            Probe.fit(*bad)
    for wrong in (states[:, :2], states[0]):
        with refused("states"):
            probe.log_prob_correct(wrong)
    with pytest.raises(ValueError, match="the state in row 4 is not finite"):
        probe.log_prob_correct(nan)
    with refused("states"):
        probe.log_prob_correct(states.to("meta"))
    with refused("states"):
        probe.score(states[:0], correct[:0])
    for option in ("depth", "width"):
        with pytest.raises(ValueError, match=f"{option} is 0; it must be at least 1"):
            Probe.fit(states, correct, **{option: 0})
    for floor in (-0.1, 1.0, math.nan):
        with refused("floor"):
            Probe.fit(states, correct, floor=floor)
    with pytest.raises(ValueError, match="a bias for each of its weights, and two classes"):
        replace(probe, biases=())


@pytest.mark.cuda
def test_probes_on_a_gpu():
    states, correct = separable(300, 10, seed=0, dtype=torch.float32)
    here = Probe.fit(states, correct, depth=2, width=16)
    there = Probe.fit(states.cuda(), correct.cuda(), depth=2, width=16)
    assert there.log_prob_correct(states.cuda()).is_cuda
    assert there.score(states.cuda(), correct.cuda()) > 0.99
    assert there.to("cpu").score(states, correct) > 0.99
    moved = here.to("cuda").log_prob_correct(states.cuda()).cpu()
    torch.testing.assert_close(moved, here.log_prob_correct(states), atol=1e-4, rtol=1e-4)
    assert split_score(states.cuda(), correct.cuda(), train=200, repetitions=2).min() > 0.9
    bits = all_sequences(2, 6, "cuda")
    for noisy in (
        WithinFactor(SomeZero(6), 0.5, seed=0),
        Flipped(SomeZero(6), 0.2, 0.2, seed=0),
        AverageCase(SomeZero(6), 0.5, seed=0),
        Delayed(SomeZero(6)),
    ):
        torch.testing.assert_close(noisy.log_value(bits).cpu(), noisy.log_value(bits.cpu()))


# ------------------------------------------------------------------ classifiers with soft labels


def test_soft_labels_by_hand():
    """SGD on scores θ = 0 with the label (¼, ¾): the slope is (½ - ¼, ½ - ¾)."""
    theta = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    recipe = Recipe(steps=1, batch=4, optimiser="sgd", learning_rate=2.0)
    losses = train_classifier(
        lambda rows: theta.expand(len(rows), 2),
        f64([[0.25, 0.75]] * 2),
        [theta],
        recipe,
        TorchRng(0),
    )
    assert losses == pytest.approx([math.log(2)])
    torch.testing.assert_close(theta.detach(), f64([-0.5, 0.5]))
    for bad in ([[0.5, 0.6]], [[-0.5, 1.5]], [[math.nan, 1.0]]):
        with refused("labels"):
            train_classifier(lambda rows: theta[None], f64(bad), [theta], recipe, TorchRng(0))
    with refused("labels"):
        train_classifier(lambda rows: theta[None], f64([[0, 1.0]]), [theta], recipe, TorchRng(0))


# ------------------------------------------------------------------ values from rollouts


def test_rollouts_by_hand():
    """Fair bits, no 1 allowed: 0 has value ½, 1 has 0; rows of any length, the decoder stays."""
    decoder = RecomputingDecoder(fair(2), 3)
    decoder.extend(prefix((0, -1), (1, -1), (0, 0)))
    found = rollout_values(decoder, AllZeros(2), rollouts=3000, length=2, rng=TorchRng(0))
    assert abs(found[0] - 0.5) < rate_tolerance(3000)
    assert found[1:].tolist() == [0.0, 1.0]
    assert decoder.lengths.tolist() == [1, 1, 2]
    one = RecomputingDecoder(fair(2), 1)
    few = rollout_values(one, AllZeros(2), rollouts=8, length=1, rng=TorchRng(0))
    assert few.item() in [k / 8 for k in range(9)]


@pytest.mark.parametrize("rollouts", [1, 2])
def test_rollouts_have_no_bias(rollouts):
    """The exact law of the estimate, by enumeration: its mean is V* at every rows' prefix."""
    p = Table.random(2, 3, seed=0)
    tau = Rule(lambda x: (1 + sum(x)) / 4)
    value = ExactValue(p, tau)

    def estimates(rng):
        decoder = RecomputingDecoder(p, 2)
        decoder.extend(prefix((0, -1), (1, 0)))
        found = rollout_values(decoder, tau, rollouts=rollouts, length=3, rng=rng)
        return tuple(found.tolist())

    law = exact_law(estimates)
    for row, x in enumerate((prefix((0,)), prefix((1, 0)))):
        mean = law.expectation(lambda found, row=row: found[row])
        assert mean == pytest.approx(value.log_value(x).exp().item(), rel=1e-12)


def test_rollouts_end_and_may_be_transformed():
    """Token 1 ends: of fair bits, ended strings have lengths 1, 2, 3 with ½, ¼, ¼."""
    tau = Rule(lambda x: {1: 0.0, 2: 0.5, 3: 1.0}[len(x)] if 1 not in x[:-1] else 1j)

    def estimate(rng):
        decoder = RecomputingDecoder(fair(3), 1)
        return rollout_values(decoder, tau, rollouts=1, length=3, end_token=1, rng=rng).item()

    assert exact_law(estimate).expectation(lambda v: v) == pytest.approx(0.25 / 2 + 0.25)
    at_once = RecomputingDecoder(fair(3), 1)
    values = rollout_values(at_once, tau, rollouts=2, length=3, end_token=[0, 1], rng=TorchRng(0))
    assert values.tolist() == [0.0]  # every first token ends

    def never_one(log_probs):
        return f64([0.0, -INF]).expand_as(log_probs)

    decoder = RecomputingDecoder(fair(3), 1)
    decoder.extend(prefix((1,)))  # a prompt is not ended by what it holds
    found = rollout_values(
        decoder,
        Rule(lambda x: x == [1, 0, 0]),
        rollouts=3,
        length=3,
        end_token=1,
        transform=never_one,
        rng=TorchRng(0),
    )
    assert found.item() == 1.0


def test_many_rollouts_go_in_parts(monkeypatch):
    from triptych.verifiers import values

    monkeypatch.setattr(values, "_AT_ONCE", 3)
    sizes = []

    class Forks(RecomputingDecoder):
        def fork(self, rows):
            sizes.append(len(rows))
            return super().fork(rows)

    decoder = Forks(fair(2), 2)
    decoder.extend(prefix((0, 0), (0, 1)))
    found = rollout_values(decoder, AllZeros(2), rollouts=5, length=2, rng=TorchRng(0))
    assert found.tolist() == [1.0, 0.0]
    assert sizes == [3, 3, 3, 1]


def test_rollouts_refuse():
    decoder = RecomputingDecoder(fair(3), 1)
    decoder.extend(prefix((0, 0)))
    options = {"rollouts": 1, "length": 3, "rng": TorchRng(0)}
    for wrong, match in (
        ({"rollouts": 0}, "rollouts is 0; it must be at least 1"),
        ({"length": 1}, "length is 1, and a row has 2 tokens already"),
        ({"end_token": 2}, r"end_token is 2; it must be a token, 0\.\.1"),
    ):
        with pytest.raises(ValueError, match=match):
            rollout_values(decoder, TAU, **{**options, **wrong})

    class Broken:
        def log_value(self, prefix):
            return torch.full((len(prefix),), math.nan)

    with refused("prefix"):
        rollout_values(decoder, Broken(), **options)


NO_DECAY = Recipe(steps=600, batch=4096, learning_rate=0.01, decay="cosine")


def padded_tree(vocab_size, length):
    parts = [
        torch.nn.functional.pad(x, (0, length - x.shape[1]), value=-1)
        for x in every_prefix(vocab_size, length)
    ]
    return torch.cat(parts)


def test_worked_one_hot():
    found = one_hot_positions(prefix((1,)), 2, 2)
    assert found.tolist() == [[0, 1, 0, 0, 0, 1]]
    assert torch.equal(one_hot_positions(prefix((1, -1)), 2, 2), found)
    assert one_hot_positions(EMPTY, 2, 1).tolist() == [[0, 0, 1]]


def test_values_of_tokens_are_close_to_the_truth():
    """All 40 prefixes of 3 letters, n = 1000 completions each: means are off by less than the
    Hoeffding bound, and the network is off from the means by less than the same again."""
    p = Table.random(3, 3, seed=0)
    tau = Rule(lambda x: sum(x) % 2 == 0)
    tree, n = padded_tree(3, 3), 1000
    decoder = RecomputingDecoder(p, len(tree))
    decoder.extend(tree)
    means = rollout_values(decoder, tau, rollouts=n, length=3, rng=TorchRng(0))
    truth = answers(ExactValue(p, tau), 3, 3).exp()
    noise = math.sqrt(math.log(2 * len(tree) / 1e-6) / (2 * n))  # failure 1e-6 over the tree
    assert (means - truth).abs().max() < noise
    value = TokenValue.fit(tree, means, vocab_size=3, length=3, width=64, recipe=NO_DECAY)
    assert isinstance(value, Value)
    fitted = answers(value, 3, 3).exp()
    assert (fitted - means).abs().max() < noise
    assert (fitted - truth).abs().max() < 2 * noise
    again = TokenValue.fit(tree, means, vocab_size=3, length=3, width=64, recipe=NO_DECAY)
    assert torch.equal(answers(again, 3, 3).exp(), fitted)


def test_soft_targets_are_fixed_points():
    """One token, one feature each: the fit can have any values, and has the targets."""
    targets = f64([0.1, 0.35, 0.8, 0.5])
    recipe = replace(NO_DECAY, steps=600, learning_rate=0.05)
    rows = torch.arange(4)[:, None]
    value = TokenValue.fit(rows, targets, vocab_size=4, length=1, depth=1, recipe=recipe)
    torch.testing.assert_close(value.log_value(rows).exp(), targets, atol=1e-4, rtol=0)


def test_fitting_means_is_fitting_every_outcome():
    """Ten outcomes of each prefix, or their mean: the same loss up to a constant."""
    rows = torch.arange(4)[:, None]
    outcomes = torch.tensor([[1] * k + [0] * (10 - k) for k in (1, 3, 8, 5)])
    options = {"vocab_size": 4, "length": 1, "recipe": replace(NO_DECAY, steps=100), "width": 8}
    means = TokenValue.fit(rows, outcomes.double().mean(1), **options)
    singles = TokenValue.fit(rows.repeat_interleave(10, 0), outcomes.flatten().double(), **options)
    found, wanted = singles.log_value(rows), means.log_value(rows)
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=0)


def test_a_floor_keeps_values_positive():
    rows, targets = torch.arange(3)[:, None], f64([0.0, 1.0, 0.5])
    options = {"vocab_size": 3, "length": 1, "depth": 1, "recipe": NO_DECAY}
    free = TokenValue.fit(rows, targets, **options).log_value(rows).exp()
    kept = TokenValue.fit(rows, targets, floor=0.2, **options).log_value(rows).exp()
    assert free[0] < 0.1
    torch.testing.assert_close(kept, free.clamp(min=0.2))


def test_token_values_refuse():
    rows, targets = torch.arange(3)[:, None], f64([0.1, 0.9, 0.5])
    options = {"vocab_size": 3, "length": 1, "depth": 1, "recipe": Recipe(steps=1)}
    value = TokenValue.fit(rows, targets, **options)
    for wrong, match in (
        (prefix((0, 1)), "the prefix has 2 tokens; these values know 1"),
        (prefix((3,)), "token 3 at row 0"),
        (prefix((-1,)), "token -1 at row 0"),
    ):
        with pytest.raises(ValueError, match=match):
            value.log_value(wrong)
    with pytest.raises(ValueError, match="-1 pads the end of a prefix"):
        one_hot_positions(prefix((-1, 0)), 3, 2)
    with refused("hidden"):
        one_hot_positions(prefix((-2, 0)), 3, 2)
    with refused("probe"):
        TokenValue(value.probe, 3, 2)
    with pytest.raises(ValueError, match="labels are True and False"):
        TokenValue.fit(rows, targets * 2, **options)
