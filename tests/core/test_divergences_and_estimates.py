"""Divergences, log-space algebra, estimates with intervals, counting."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.refusals import refused

from triptych.core import estimates
from triptych.core.counting import Counted
from triptych.core.divergences import chi_square, entropy, kl_divergence, total_variation
from triptych.core.logspace import log1mexp, log_conditional, log_matmul, log_normalise, point_mass
from triptych.core.table import Table, all_sequences
from triptych.core.validation import ImpossibleEvidence, UserError, check_tokens

pytestmark = pytest.mark.numerical

P = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64).log()
Q = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64).log()


def test_worked_divergences():
    """TV = ½(¼ + 0 + ¼) = ¼; KL = ½ log 2; χ² = (¼)²/¼ + (¼)²/¼ = ½; H(Q) = 3/2 log 2."""
    assert total_variation(P, Q).item() == pytest.approx(0.25)
    assert kl_divergence(P, Q).item() == pytest.approx(0.5 * math.log(2))
    assert chi_square(P, Q).item() == pytest.approx(0.5)
    assert entropy(Q).item() == pytest.approx(1.5 * math.log(2))
    assert kl_divergence(Q, P).item() == math.inf
    assert chi_square(Q, P).item() == math.inf


weights = st.lists(st.floats(1e-3, 1.0), min_size=4, max_size=4)


@given(weights, weights)
@settings(deadline=None)
def test_pinsker_and_friends(a, b):
    p, q = (torch.tensor(w, dtype=torch.float64) for w in (a, b))
    p, q = (p / p.sum()).log(), (q / q.sum()).log()
    tv, kl, chi = (f(p, q).item() for f in (total_variation, kl_divergence, chi_square))
    assert 0 <= tv <= 1
    assert 2 * tv**2 <= kl + 1e-12  # Pinsker
    assert kl <= math.log1p(chi) + 1e-12
    assert kl == pytest.approx(scipy.stats.entropy(p.exp(), q.exp()), abs=1e-12)


@pytest.mark.parametrize("f", [lambda p: kl_divergence(p, Q), entropy])
def test_zero_probabilities_have_finite_gradients(f):
    logits = torch.tensor([0.3, 0.1, -math.inf], dtype=torch.float64, requires_grad=True)
    f(logits.log_softmax(-1)).backward()
    assert torch.isfinite(logits.grad[:2]).all()


def test_divergences_are_batched():
    assert total_variation(torch.stack([P, Q]), torch.stack([Q, Q])).tolist() == pytest.approx(
        [0.25, 0.0]
    )


def test_log_algebra():
    a = torch.tensor([[0.0, 2.0], [3.0, 0.0]], dtype=torch.float64)
    b = torch.tensor([[1.0, 0.0], [5.0, 4.0]], dtype=torch.float64)
    torch.testing.assert_close(log_matmul(a.log(), b.log()).exp(), a @ b)
    assert log_normalise(torch.tensor([-1e4, -1e4]).double()).tolist() == pytest.approx(
        [-math.log(2)] * 2
    )
    nothing = torch.full((1, 2), -math.inf, dtype=torch.float64)
    assert torch.isneginf(log_normalise(nothing)).all()
    with refused("log_evidence", ImpossibleEvidence):
        log_conditional(nothing, "the prefix")
    small = torch.tensor([-1e-20, -1.0, -50.0, -math.inf]).double()
    wanted = [math.log(1e-20), math.log1p(-math.exp(-1)), -math.exp(-50), 0.0]
    assert log1mexp(small).tolist() == pytest.approx(wanted)
    assert point_mass(torch.tensor([1]), 3).exp().tolist() == [[0.0, 1.0, 0.0]]


# ------------------------------------------------------------------ the table


def test_worked_table():
    """p(00) = 0.4, p(01) = 0.1, p(10) = 0.2, p(11) = 0.3."""
    table = Table(2, 2, torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64).log())
    first = table.next_token_log_probs(torch.zeros((1, 0), dtype=torch.long)).exp()
    assert first[0].tolist() == pytest.approx([0.5, 0.5])
    assert table.next_token_log_probs(torch.tensor([[1]])).exp()[0].tolist() == pytest.approx(
        [0.4, 0.6]
    )
    tokens, hidden = torch.tensor([[9, 1]]), torch.tensor([[True, False]])
    masked = table.masked_log_probs(tokens, hidden).exp()
    assert masked[0].tolist() == [pytest.approx([0.25, 0.75]), [0.0, 1.0]]
    tilted = table.tilt(lambda x: x.sum(-1).double().log())
    assert tilted.as_dict() == pytest.approx(
        {(0, 0): 0.0, (0, 1): 1 / 9, (1, 0): 2 / 9, (1, 1): 6 / 9}
    )
    assert all_sequences(3, 2)[5].tolist() == [1, 2]
    assert all_sequences(3, 0).shape == (1, 0)


def test_a_bad_table_is_explained():
    with refused("log_probs"):
        Table(2, 2, torch.zeros(3).double())
    with refused("log_probs"):
        Table(2, 2, torch.zeros(4).double())


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("tokens", "hidden", "sentence"),
    [
        (torch.zeros(2).long(), None, r"tokens has shape \(2,\); it needs 2 dimensions"),
        (torch.zeros((1, 2)), None, r"tokens has dtype torch.float32; pass tokens.long\(\)"),
        (np.zeros((1, 2), dtype=int), None, r"tokens is a ndarray; pass torch.tensor\(tokens\)"),
        (torch.zeros((1, 2)).long(), torch.zeros((1, 2)), "hidden is torch.float32; it must be"),
        (torch.zeros((1, 2)).long(), torch.zeros((1, 3)).bool(), "they must be equal"),
    ],
)
def test_bad_tensors_are_explained(tokens, hidden, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_tokens(tokens, 2, hidden)


# ------------------------------------------------------------------ estimates


def test_worked_wilson_interval():
    """8 of 10 at 95 %: centre (8 + z²/2) / (10 + z²), z = 1.96: [0.4902, 0.9433]."""
    estimate = estimates.proportion(8, 10)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx(
        (0.8, 0.4901625, 0.9433178), abs=1e-6
    )
    nothing = estimates.proportion(0, 10)
    assert nothing.low == 0
    assert 0.2 < nothing.high < 0.35


def test_worked_t_interval():
    """1, 2, 3: mean 2, standard error 1/√3, t(0.975, 2) = 4.3027: 2 ± 2.4841."""
    estimate = estimates.mean([1.0, 2.0, 3.0])
    assert (estimate.low, estimate.high) == pytest.approx((2 - 2.4841377, 2 + 2.4841377))
    assert estimates.mean([5.0]).high == math.inf
    assert str(estimate) == "2 [-0.4841, 4.484]"


@pytest.mark.parametrize("make", [estimates.mean, estimates.bootstrap])
def test_intervals_cover(make):
    """Of 200 intervals from 30 normal samples at 95 %, between 170 and 200 cover the mean;
    a correct interval fails this with probability below 1e-6."""
    source = np.random.default_rng(0)
    options = {"resamples": 400} if make is estimates.bootstrap else {}
    covered = 0
    for _ in range(200):
        estimate = make(source.normal(1.0, 2.0, size=30), **options)
        covered += estimate.low <= 1.0 <= estimate.high
    assert 170 <= covered <= 200


def test_bootstrap_of_a_median_and_of_constants():
    estimate = estimates.bootstrap([1.0, 2.0, 3.0, 4.0, 100.0], np.median)
    assert estimate.value == 3.0
    assert 1.0 <= estimate.low < 3.0 < estimate.high <= 100.0
    assert estimates.bootstrap([2.0, 2.0, 2.0]).half_width == 0
    tied = estimates.bootstrap([0.0, 0.0, 0.0, 0.0, 1.0], np.median)
    assert (tied.low, tied.high) == (0.0, 1.0)


def test_paired_differences_remove_what_is_common():
    base = np.random.default_rng(1).normal(size=20) * 100
    first = base + 1.0 + np.random.default_rng(2).normal(size=20) * 0.1
    estimate = estimates.paired_difference(list(first), list(base))
    assert estimate.low > 0.9


def test_bad_samples_are_explained():
    with refused("samples"):
        estimates.mean([])
    with refused("samples"):
        estimates.mean([1.0, math.nan])
    with refused("first"):
        estimates.paired_difference([1.0], [1.0, 2.0])
    with refused("successes"):
        estimates.proportion(11, 10)


def test_the_tolerance_of_total_variation():
    """½ √(100/10000) + √(log(10⁹) / 20000) = 0.05 + 0.0322."""
    assert estimates.tv_tolerance(10_000, 100, 1e-9) == pytest.approx(0.08219, abs=1e-5)


# ------------------------------------------------------------------ counting


def test_every_question_is_counted():
    counted = Counted(Table.random(2, 5, seed=0))
    counted.next_token_log_probs(torch.zeros((3, 2), dtype=torch.long))
    counted.next_token_log_probs(torch.zeros((1, 4), dtype=torch.long))
    assert (counted.queries, counted.calls, counted.tokens) == (4, 2, 10)
    tokens = torch.zeros((2, 5), dtype=torch.long)
    counted.masked_log_probs(tokens, tokens.bool())
    assert (counted.queries, counted.calls, counted.tokens) == (6, 3, 20)
    assert counted.seconds > 0
    counted.reset()
    assert (counted.queries, counted.seconds) == (0, 0.0)


def test_a_question_that_raises_is_counted_too():
    counted = Counted(Table.random(2, 2, seed=0))
    with refused("hidden"):
        counted.next_token_log_probs(torch.tensor([[7]]))
    assert counted.queries == 1
    with pytest.raises(UserError, match="Table has no method log_value"):
        counted.log_value(torch.zeros((1, 1), dtype=torch.long))
