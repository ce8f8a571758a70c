"""Attention weights α and β: the loss against explicit documents, the optima against fine grids."""

import math
from typing import Any

import pytest
import torch

from triptych.theory.topics import attention as theory
from triptych.theory.topics import uniform_attention as uniform
from triptych.theory.topics.attention import Value, attention_loss, minimiser
from triptych.theory.topics.uniform_attention import Setting

pytestmark = pytest.mark.numerical

HALF = {"p_m": 0.5, "p_c": 0.25, "p_r": 0.25}
READINGS = ("shared", "ignored", "printed")


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def document(setting, present):
    """Every token of a document whose frequencies are those of an infinitely long one.

    p_m = ½, p_c = p_r = ¼: words of the document 5/(8 v τ) + 1/(8 T v), others 1/(8 T v), masks ¼.
    """
    topics, v, tau = setting.topics, setting.words, setting.drawn
    n = 8 * topics * v * tau
    tokens = []
    for word in range(topics * v):
        copies = tau + (5 * topics if word // v in present else 0)
        tokens += [word] * copies
    tokens += [topics * v] * (2 * topics * v * tau)
    assert len(tokens) == n
    return tokens


def matrix(setting, value):
    v, n = setting.words, setting.vocab - 1
    weight = torch.zeros((n + 1, n + 1), dtype=torch.float64)
    for i in range(n):
        for j in range(n):
            same = value.same_word if i == j else value.same_topic
            weight[i, j] = same if i // v == j // v else value.different_topic
        weight[i, n] = value.mask
    return weight


def slow_loss(setting, value, alpha, beta, reading, present):
    """Straight from the definition, one document token by token."""
    v, n, tokens = setting.words, setting.vocab - 1, document(setting, present)
    uniform_blocks = value.same_word == value.same_topic
    weight = matrix(setting, value)

    def prediction(shown):
        output = torch.zeros(n + 1, dtype=torch.float64)
        scores = []
        for token in tokens:
            if token == n:
                scores.append(1.0 if reading == "shared" else 0.0)
            elif token == shown:
                scores.append(beta)
            else:
                scores.append(alpha if token // v == shown // v else 1.0)
        for token, score in zip(tokens, scores, strict=True):
            output[token] += score / sum(scores)
        if reading != "printed":
            return weight @ output
        a, guess = setting.left, torch.zeros(n + 1, dtype=torch.float64)
        for i in range(n):
            mates = [j for j in range(n) if j // v == i // v] if uniform_blocks else [i]
            x = sum(float(output[j]) for j in mates) / len(mates)
            guess[i] = x / a - setting.p_m * setting.p_r / (a * n)
        return guess

    words = [w for w in range(n) if w // v in present]
    total = 0.0
    for shown in range(n):
        guess = prediction(shown)
        for true in words:
            chance = (setting.p_c * (shown == true) + setting.p_r / n) / len(words)
            target = torch.zeros(n + 1, dtype=torch.float64)
            target[true] = 1.0
            total += chance * float((guess - target).square().sum())
    return total


# ------------------------------------------------------------------ the loss


@pytest.mark.parametrize(
    ("kind", "reading"),
    [
        *((kind, reading) for kind in ("blocks", "diagonal") for reading in READINGS),
        ("any", "shared"),  # what is printed is for the two matrices of the source
        ("any", "ignored"),
    ],
)
@pytest.mark.parametrize(
    ("sizes", "present"),
    [((3, 2, 2), {0, 2}), ((3, 2, 2), {1, 2}), ((4, 3, 1), {2}), ((2, 2, 2), {0, 1})],
)
def test_the_loss_of_an_explicit_document(sizes, present, kind, reading):
    setting = Setting(*sizes, **HALF)
    value = Value(0.7, -0.2, 0.1, 0.3) if kind == "any" else getattr(Value, kind)(setting)
    pairs = [(1.0, 1.0), (3.0, 0.2), (0.0, 5.0), (0.5, 40.0)]
    found = attention_loss(
        setting, value, tensor(*(a for a, _ in pairs)), tensor(*(b for _, b in pairs)), reading
    )
    wanted = [slow_loss(setting, value, a, b, reading, present) for a, b in pairs]
    assert found.tolist() == pytest.approx(wanted, rel=1e-10)


def test_one_word_by_hand():
    """½ (1 - W)²: with masks ignored the word is all that is seen."""
    setting = Setting(1, 1, 1, **HALF)
    value = Value.blocks(setting)
    loss = attention_loss(setting, value, tensor(1.0), tensor(1.0), "ignored")
    assert float(loss) == pytest.approx(0.5 * (1 - value.same_word) ** 2)
    # c₁ = 4/5, c₂ = 3, c₃ = 8/5: u = -(12/5 + 8/5)/10 = -2/5, W = 6/5, and the loss is ½ · 1/25
    assert float(loss) == pytest.approx(0.02)


@pytest.mark.parametrize("sizes", [(3, 2, 2), (5, 4, 2)])
def test_uniform_attention_with_an_optimal_matrix(sizes):
    """α = β = 1 is uniform attention: every word shown costs what Lemma 2.1.1 says."""
    setting = Setting(*sizes)
    for value in (Value.blocks(setting), Value.diagonal(setting)):
        loss = float(attention_loss(setting, value, tensor(1.0), tensor(1.0)))
        assert loss == pytest.approx((setting.p_c + setting.p_r) * setting.least_loss)


@pytest.mark.parametrize("setting", [Setting(3, 2, 2), Setting(4, 3, 1, **HALF)], ids=str)
def test_values_are_the_matrices_of_the_theorems(setting):
    blocks = matrix(setting, Value.blocks(setting))
    torch.testing.assert_close(blocks, uniform.ridge_limit(setting))
    diagonal = matrix(setting, Value.diagonal(setting))
    torch.testing.assert_close(diagonal, uniform.diagonal_optimum(setting))


@pytest.mark.parametrize("setting", [Setting(3, 2, 2), Setting(4, 3, 1, **HALF)], ids=str)
def test_uniform_blocks_are_as_printed(setting):
    """Theorem 2.1.2, entry by entry."""
    c1, c2, c3 = setting.constants
    n, v = setting.vocab - 1, setting.words
    different = -(c1 * c2 + c3) / (c2**2 + n)
    found = uniform.printed_ridge_limit(setting)
    assert float(found[0, -1]) == pytest.approx((c2 * c3 - c1 * n) / (c2**2 + n))
    assert float(found[0, v]) == pytest.approx(different)
    assert float(found[0, v - 1]) == pytest.approx(different + c3 / v)
    assert not found[-1].any()


def formulas(setting, kind, alpha, beta):
    """The sums of 2.1.7.7 and 2.1.7.8 as they are printed."""
    topics, v, tau = setting.topics, setting.words, setting.drawn
    p_m, p_c, p_r = setting.p_m, setting.p_c, setting.p_r
    left = 1 - (1 - p_c) * p_m
    p1, p2 = left / (v * tau) + p_m * p_r / (v * topics), p_m * p_r / (v * topics)
    z1 = beta * p1 + alpha * p1 * (v - 1) + p1 * v * (tau - 1) + p2 * v * (topics - tau)
    z2 = beta * p2 + alpha * p2 * (v - 1) + p1 * v * tau + p2 * v * (topics - tau - 1)

    def q(x):
        return x / left - p_m * p_r / (left * topics * v)

    if kind == "blocks":
        g = (v - 1) / v * alpha + beta / v
        rest = q(p1 / z1) ** 2 * v * (tau - 1) + q(p2 / z1) ** 2 * v * (topics - tau)
        one = (1 - q(p1 * g / z1)) ** 2 + q(p1 * g / z1) ** 2 * (v - 1) + rest
        two = (1 - q(p1 / z1)) ** 2 + q(p1 * g / z1) ** 2 * v
        two += q(p1 / z1) ** 2 * (v * (tau - 1) - 1) + q(p2 / z1) ** 2 * v * (topics - tau)
        three = (1 - q(p1 / z2)) ** 2 + q(p1 / z2) ** 2 * (v * tau - 1)
        three += q(p2 * g / z2) ** 2 * v + q(p2 / z2) ** 2 * v * (topics - tau - 1)
        return (
            (p_c + p_r / topics) * one
            + p_r * (tau - 1) / topics * two
            + p_r * (1 - tau / topics) * three
        )
    rest = q(p1 / z1) ** 2 * v * (tau - 1) + q(p2 / z1) ** 2 * v * (topics - tau)
    one = (1 - q(p1 * beta / z1)) ** 2 + q(p1 * alpha / z1) ** 2 * (v - 1) + rest
    two = (1 - q(p1 * alpha / z1)) ** 2 + q(p1 * beta / z1) ** 2
    two += q(p1 * alpha / z1) ** 2 * (v - 2) + rest
    three = (1 - q(p1 / z1)) ** 2 + q(p1 * beta / z1) ** 2 + q(p1 * alpha / z1) ** 2 * (v - 1)
    three += q(p1 / z1) ** 2 * (v * (tau - 1) - 1) + q(p2 / z1) ** 2 * v * (topics - tau)
    four = (1 - q(p1 / z2)) ** 2 + q(p1 / z2) ** 2 * (v * tau - 1) + q(p2 * beta / z2) ** 2
    four += q(p2 * alpha / z2) ** 2 * (v - 1) + q(p2 / z2) ** 2 * v * (topics - tau - 1)
    return (
        (p_c + p_r / (v * topics)) * one
        + p_r / topics * (1 - 1 / v) * two
        + p_r * (tau - 1) / topics * three
        + p_r * (1 - tau / topics) * four
    )


@pytest.mark.parametrize("kind", ["blocks", "diagonal"])
@pytest.mark.parametrize("setting", [Setting(100, 300, 20), Setting(7, 3, 5, **HALF)], ids=str)
def test_the_printed_reading_is_what_is_printed(setting, kind):
    value = getattr(Value, kind)(setting)
    for alpha, beta in ((1e-4, 1e7), (2.0, 3.0), (50.0, 1e4), (1e5, 1e-4)):
        found = float(attention_loss(setting, value, tensor(alpha), tensor(beta), "printed"))
        assert found == pytest.approx(formulas(setting, kind, alpha, beta), rel=1e-10)


def test_uniform_blocks_see_the_mean_weight_alone():
    setting = Setting(20, 7, 4)
    value, gamma = Value.blocks(setting), 11.0
    alpha = tensor(0.0, 3.0, gamma, 7 / 6 * gamma)
    beta = 7 * gamma - 6 * alpha
    for reading in READINGS:
        losses = attention_loss(setting, value, alpha, beta, reading)
        assert float(losses.max() - losses.min()) < 1e-12


def test_weights_broadcast_and_readings_have_names():
    setting = Setting(3, 2, 2)
    value = Value.diagonal(setting)
    table = attention_loss(setting, value, tensor(1.0, 2.0, 3.0)[:, None], tensor(4.0, 5.0)[None])
    assert table.shape == (3, 2)
    alone = attention_loss(setting, value, tensor(3.0)[0], tensor(4.0)[0])
    assert float(table[2, 0]) == pytest.approx(float(alone))


def test_an_unknown_reading_is_refused(unchecked_shapes):
    setting = Setting(3, 2, 2)
    unknown: Any = "none"
    with pytest.raises(ValueError, match="reading is 'none'; it must be 'shared'"):
        attention_loss(setting, Value.blocks(setting), tensor(1.0), tensor(1.0), unknown)


# ------------------------------------------------------------------ bounds


def test_worked_bounds():
    found = theory.bounds(Setting(5, 17, 2, **HALF))
    assert found == pytest.approx((33 / 40, 600.0, 51 / 400, 510 / 19, 1 / 10))


def test_the_printed_constants_term_by_term():
    p_m, p_c, p_r, v = 0.3, 0.2, 0.2, 40
    left = 1 - (1 - p_c) * p_m
    found = theory.bounds(Setting(9, v, 3, p_m, p_c, p_r))
    assert found.lambda_1 == pytest.approx((left + p_m * p_r) * (1 + (1 - p_c) * p_m) / (2 * left))
    assert found.lambda_2 == pytest.approx(100 * (left / (p_m * p_r) + 1))
    assert found.lambda_3 == pytest.approx((left + p_m * p_r) / 100 * v)
    root = left / (math.sqrt(v - 1) - 2 + (1 - p_c) * p_m)
    assert found.lambda_4 == pytest.approx(root * (1 - (1 - p_c - p_r) * p_m) / (p_m * p_r) * v)
    assert found.lambda_5 == pytest.approx(1 / ((v - 1) * left))


def test_within_assumptions():
    assert theory.within_assumptions(Setting(9, 6, 2))
    assert not theory.within_assumptions(Setting(9, 5, 2))  # v > 5.65
    assert theory.within_assumptions(Setting(9, 10, 2, 0.499, 0.001, 0.001))
    for masking in ((0.5, 0.1, 0.1), (0.15, 0.1, 0.2), (0.15, 0.0, 0.0)):
        assert not theory.within_assumptions(Setting(9, 100, 2, *masking))


def test_worked_limits():
    setting = Setting(9, 10, 2, **HALF)
    assert theory.limit_per_topic(setting) == pytest.approx(8 / 3)
    assert theory.limit_per_topic(setting, "ignored") == pytest.approx(2.0)
    assert theory.limit_per_topic(setting, "printed") == pytest.approx(2.0)


@pytest.mark.parametrize("masking", [(0.15, 0.1, 0.1), (0.45, 0.4, 0.4)])
@pytest.mark.parametrize("reading", ["shared", "printed"])
def test_the_best_weights_approach_the_limit(masking, reading):
    """τ = √T: the relative distance shrinks like 1/τ + τ/T, a factor 100 from 1e4 to 1e8."""
    apart = []
    for topics, drawn in ((10**4, 100), (10**8, 10_000)):
        setting = Setting(topics, 20, drawn, *masking)
        limit = theory.limit_per_topic(setting, reading)
        gamma = minimiser(setting, Value.blocks(setting), reading).gamma / drawn
        beta = minimiser(setting, Value.diagonal(setting), reading).beta / (20 * drawn)
        apart.append((abs(gamma / limit - 1), abs(beta / limit - 1)))
    for side in range(2):
        values = [pair[side] for pair in apart]
        assert values[1] < values[0] / 50
        assert values[1] < 2e-3


# ------------------------------------------------------------------ minimisers


CASES = [
    Setting(100, 300, 20),
    Setting(100, 10, 3),
    Setting(4, 10, 2, 0.15, 0.02, 0.5),
    Setting(6, 3, 6, **HALF),
    Setting(10**6, 10, 32),
    Setting(10**6, 17, 31_623, 0.45, 0.4, 0.4),
]


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("kind", ["blocks", "diagonal"])
@pytest.mark.parametrize("setting", CASES, ids=str)
def test_nothing_on_a_fine_grid_is_better(setting, kind, reading):
    value = getattr(Value, kind)(setting)
    found = minimiser(setting, value, reading)
    axis = torch.logspace(-7, 13, 201, dtype=torch.float64)  # ten for every factor of ten
    near = torch.linspace(0.97, 1.03, 61, dtype=torch.float64)
    alphas = torch.cat([tensor(0.0), axis, found.alpha * near])
    betas = torch.cat([axis, found.beta * near])
    table = attention_loss(setting, value, alphas[:, None], betas[None], reading)
    assert found.loss <= float(table.min()) + 1e-14
    here = attention_loss(setting, value, tensor(found.alpha), tensor(found.beta), reading)
    assert found.loss == pytest.approx(float(here), abs=1e-14)
    v = setting.words
    assert found.gamma == pytest.approx((v - 1) / v * found.alpha + found.beta / v)


def test_a_flat_valley_is_followed_by_its_gradient():
    """Losses differ in the 11th digit along the valley; the stationary point is found all the same.

    And where the loss grows with α from 0 on, α = 0 is the answer.
    """
    setting = Setting(10**6, 300, 1000)
    value = Value.diagonal(setting)
    found = minimiser(setting, value)
    place = tensor(math.log(found.alpha), math.log(found.beta)).requires_grad_()
    alpha, beta = place.exp()
    loss = attention_loss(setting, value, alpha, beta)
    assert float(torch.autograd.grad(loss, place)[0].abs().max()) < 1e-15
    assert 0.3 < found.alpha < 1.0
    setting = Setting(100, 300, 20)
    value = Value.diagonal(setting)
    assert minimiser(setting, value).alpha == 0.0
    at = tensor(0.0).requires_grad_()
    beta = tensor(minimiser(setting, value).beta)
    slope = torch.autograd.grad(attention_loss(setting, value, at, beta).sum(), at)[0]
    assert float(slope) > 0
