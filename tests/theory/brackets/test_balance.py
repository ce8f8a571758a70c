"""Balance, pumping and the exact loss against the network itself and against enumeration."""

import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.conditionals import every_next_token_log_probs
from triptych.core.table import all_sequences
from triptych.core.validation import UserError
from triptych.models.constructions.balanced import balanced, balanced_scores, uniform
from triptych.models.constructions.brackets import BracketTransformer, first_layer
from triptych.models.constructions.normalised import Layer, layer_norm
from triptych.structures.brackets.dyck import Dyck
from triptych.theory.brackets import balance, loss, pumping
from triptych.theory.brackets.balance import Attention
from triptych.theory.brackets.pumping import Pump

Q = 0.4


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_scores(model, scores):
    """The same network with other attention; the vectors must be one-hot."""
    (layer,) = model.layers
    changed = Layer(torch.eye(len(scores)).double(), scores, layer.value, layer.mlp)
    return BracketTransformer(model.types, model.max_depth, model.length, model.vectors, (changed,))


# ------------------------------------------------------------------ (2.47)-(2.53)


def one_dimensional():
    """k = 2, D = 2, scores 0, values by hand: opening 3, closing -1, start 10."""
    values = torch.tensor([[3.0, 3.0], [-1.0, -1.0]]).repeat(2, 1).reshape(8, 1).double()
    values = torch.cat([values, torch.tensor([[10.0]]).double()])
    return Attention(2, 2, torch.zeros(9, 9).double(), values)


def test_effects_by_hand():
    attention = one_dimensional()
    assert (balance.pair_effects(attention) == 2.0).all()
    stacks = torch.tensor([[0], [1]])
    effect = balance.prefix_effect(attention, 0, 2, stacks)  # 10 + 3 + (3 - 1)
    assert effect.tolist() == [[15.0], [15.0]]
    found = balance.rivals(attention, 0, 2)
    assert found.norm == 15.0
    assert found.best.tolist() != found.other.tolist()
    assert balance.balance_violation(attention) == pytest.approx(2 / 15)
    assert float(balance.measured_constants(attention, 30).max()) == pytest.approx(4.0)


def test_scores_weigh_the_effects():
    """B = ln 2 on one opening kind doubles it for that query."""
    scores = torch.zeros(9, 9).double()
    scores[0, 3] = math.log(2)  # key: opening, type 0, level 1; query: closing, type 0, level 2
    attention = one_dimensional()._replace(scores=scores)
    effects = balance.pair_effects(attention)
    assert float(effects[0, 0, 0, 1]) == pytest.approx(5.0)
    assert float(effects[0, 0, 1, 1]) == pytest.approx(2.0)
    assert balance.balance_errors(attention).tolist() == pytest.approx([math.log(2), 0, 0, 0])


def test_rivals_by_brute_force():
    model = with_scores(balanced(3, 3, 9, q=Q), normal(19, 19))
    attention = Attention.of(model)
    stacks = all_sequences(3, 2)
    for j in range(3):
        norms = balance.prefix_effect(attention, j, 3, stacks).norm(dim=1).tolist()
        best = min(range(9), key=lambda s: norms[s])
        rest = [norms[s] for s in range(9) if stacks[s, -1] != stacks[best, -1]]
        found = balance.rivals(attention, j, 3)
        assert found.norm == pytest.approx(min(rest))
        assert found.best.tolist() == stacks[best].tolist()


def test_balanced_weights_have_no_effects():
    scores = balanced_scores(2 * normal(13, 13), 2, 3)
    attention = Attention.of(balanced(2, 3, 9, q=Q, scores=scores))
    assert float(balance.balance_errors(attention).max()) < 1e-12
    assert float(balance.pair_effects(attention)[:, :, :, 1:].abs().max()) < 1e-12
    assert float(balance.pair_effects(attention)[:, :, :, 0].abs().max()) > 0.1  # depth 0 is free
    assert balance.balance_violation(attention) < 1e-12


def test_zero_effects_imply_the_balance_condition():
    """The last step of the proof: S = 0 and values that are not 0 give (2.47)."""
    scores = balanced_scores(normal(13, 13), 2, 3)
    attention = Attention.of(balanced(2, 3, 9, q=Q, scores=scores))
    kinds = attention.kinds
    size = attention.values.norm(dim=1)
    logs = (size[kinds.closing] / size[kinds.opening]).log().flatten()
    ratio = scores[kinds.opening.flatten()] - scores[kinds.closing.flatten()]
    for query in kinds.inner_closing.tolist():
        assert torch.allclose(ratio[:, query], logs)


def test_no_rivals_with_one_type_or_at_level_one():
    with refused("level"):
        balance.rivals(Attention.of(balanced(1, 3, 9, q=Q)), 0, 2)
    with refused("level"):
        balance.rivals(one_dimensional(), 0, 1)
    with refused("model"):
        Attention.of(uniform(2, 2, 9, q=Q))


def test_numbers_of_the_theorem_by_hand():
    assert balance.most_pairs(17, 2, 2) == 5
    assert balance.log10_loss_bound(2, 0.5, 17) == pytest.approx(-17 * math.log10(16))
    delta = balance.separation(2.0, 0.0, 0.5)
    assert delta == pytest.approx(math.sqrt(2) / 4)
    constant = balance.largest_constant(2.0, 0.0, 0.5, length=18, max_depth=2, level=2)
    assert constant == pytest.approx(2 * (4 / delta + 1) * 18 / 5)
    assert balance.largest_constant(2, 0.4, 0.5, length=18, max_depth=2, level=2) == math.inf


def test_lemma_2_2_1_with_a_constant_that_does_not_depend_on_the_vectors():
    """‖r‖ ≥ (4/ε + 1) max(‖a‖, ‖b‖) puts the two directions within ε."""
    for epsilon in (0.05, 0.3, 1.0):
        a, b, r = normal(500, 5), normal(500, 5, seed=1), normal(500, 5, seed=2)
        size = torch.maximum(a.norm(dim=1), b.norm(dim=1)) * (4 / epsilon + 1)
        r = r * (size / r.norm(dim=1))[:, None]
        first, second = a + r, b + r
        apart = first / first.norm(dim=1)[:, None] - second / second.norm(dim=1)[:, None]
        assert float(apart.norm(dim=1).max()) <= epsilon


def test_conditions_name_what_fails():
    model = balanced(2, 2, 40, q=0.5)
    said = balance.conditions(model, q=0.5, length=17, loss=0.0)
    assert said.hold
    said = balance.conditions(model, q=0.5, length=16, loss=1e-6)
    failed = {
        condition.name: condition.margin for condition in said.conditions if not condition.holds
    }
    assert set(failed) == {"N > 8 D", "loss"}
    assert failed["loss"] == pytest.approx(-6 + 16 * math.log10(16))


# ------------------------------------------------------------------ pumping


def unbalanced():
    return with_scores(balanced(2, 3, 40, q=Q), 0.7 * normal(13, 13, seed=3))


def test_pumped_prefixes_by_hand():
    dyck = Dyck.prefixes(2, 3, 11, q=Q)
    tokens = pumping.pumped(Pump(1, 2, 0, 2), torch.tensor([1]), 1, 3)
    assert dyck.text(tokens) == ["[()[[]]]([]"]
    assert dyck.completable(tokens).all()
    with refused("stack"):
        pumping.pumped(Pump(1, 2, 0, 2), torch.tensor([1, 0]), 1, 3)


@pytest.mark.parametrize("pairs", [0, 1, 7, 200])
def test_counts_are_all_that_the_network_sees(pairs):
    model, pump, stack = unbalanced(), Pump(1, 3, 0, 3), torch.tensor([1, 0])
    written = model.next_token_probs(pumping.pumped(pump, stack, pairs, 3))[0]
    counts = pumping.kind_counts(pump, stack, pairs, model)
    counted = pumping.output_from_counts(model, counts, pumping.query_kind(pump, 3))
    assert torch.allclose(written, counted, atol=1e-9)


@pytest.mark.parametrize("pump", [Pump(1, 3, 0, 3), Pump(0, 1, 1, 2), Pump(0, 2, 0, 3)])
def test_the_limit_and_its_rate(pump):
    model, stack = unbalanced(), torch.tensor([1, 0])[: pump.query_level - 1]
    found = pumping.limit(model, pump)
    rate = pumping.rate_constant(model, pump, stack)
    query = pumping.query_kind(pump, 3)
    for pairs, near in ((1e3, 0.1), (1e6, 1e-3)):
        counts = pumping.kind_counts(pump, stack, pairs, model)
        direction = pumping.direction_from_counts(model, counts, query)
        scaled = pairs * float((direction - found.direction).norm())
        assert scaled == pytest.approx(rate, rel=near)
    said = pumping.output_from_counts(model, counts, query)
    assert torch.allclose(said, found.output, atol=1e-3)


def test_formula_2_49():
    """LN(p_β) = (v + β S) / ‖v + β S‖."""
    model, pump, stack = unbalanced(), Pump(1, 3, 0, 3), torch.tensor([1, 0])
    v = pumping.what_does_not_grow(model, pump, stack)
    effect = balance.pair_effects(Attention.of(model))[1, 2, 0, 2]
    for pairs in (0.0, 3.0, 50.0):
        counts = pumping.kind_counts(pump, stack, pairs, model)
        direction = pumping.direction_from_counts(model, counts, pumping.query_kind(pump, 3))
        wanted = (v + pairs * effect) / (v + pairs * effect).norm()
        assert torch.allclose(direction, wanted, atol=1e-12)


def test_unbalanced_models_confuse_and_balanced_ones_do_not():
    pump, stack, other = Pump(1, 3, 0, 3), torch.tensor([1, 0]), torch.tensor([1, 1])
    truth = math.sqrt(2) * (1 - Q)
    leaky = balanced(2, 3, 40, q=Q, leak=0.5)
    assert pumping.confusion(leaky, pump, stack, other, 1, q=Q).apart == pytest.approx(truth)
    lost = pumping.confusion(leaky, pump, stack, other, 1e6, q=Q)
    assert lost.apart == 0.0
    assert lost.error == pytest.approx(truth / 2)
    right = balanced(2, 3, 40, q=Q, scores=balanced_scores(normal(13, 13), 2, 3))
    assert pumping.limit(right, pump) is None
    assert pumping.confusion(right, pump, stack, other, 1e6, q=Q).apart == pytest.approx(truth)
    with pytest.raises(UserError, match="different brackets"):
        pumping.confusion(leaky, pump, stack, stack, 1, q=Q)


# ------------------------------------------------------------------ the exact loss


def test_the_loss_by_enumeration_of_all_prefixes():
    """(2.40) summed over every string of Dyck, with the network run on each."""
    length, model = 6, with_scores(balanced(2, 2, 6, q=Q), normal(9, 9))
    dyck = Dyck.prefixes(2, 2, length, q=Q)
    every = all_sequences(4, length)
    every = every[dyck.completable(every)]
    mass = dyck.log_prob(every).exp()
    laws = every_next_token_log_probs(dyck, every).exp()
    said = model.outputs(every)[:, :-1]
    one_hot = torch.nn.functional.one_hot(every, 4)
    total = float(mass @ (said - one_hot).square().sum(-1).mean(1))
    excess = float(mass @ (said - laws).square().sum(-1).mean(1))
    found = loss.exact_loss(model, loss.prefix_states(2, 2, length, q=Q))
    assert found.excess == pytest.approx(excess, rel=1e-9)
    assert found.least + found.excess == pytest.approx(total, rel=1e-9)
    assert found.worst == pytest.approx(float((said - laws).norm(dim=-1).max()))


def test_least_losses_by_hand():
    assert loss.exact_loss(balanced(1, 1, 4, q=Q), loss.prefix_states(1, 1, 4, q=Q)).least == 0
    states = loss.prefix_states(2, 1, 2, q=Q)
    assert loss.exact_loss(balanced(2, 1, 4, q=Q), states).least == pytest.approx(0.25)
    states = loss.prefix_states(2, 2, 17, q=0.5)
    found = loss.exact_loss(balanced(2, 2, 17, q=0.5), states)
    assert float(states.weight.sum()) == pytest.approx(1)
    assert found.excess < 1e-30
    assert found.least > 0.4  # the printed bound is 16^-17


def test_the_layer_norm_of_counts_is_that_of_the_layer():
    model = balanced(2, 2, 6, q=Q, constant=0.3, scores=balanced_scores(normal(9, 9), 2, 2))
    tokens = Dyck.prefixes(2, 2, 4, q=Q).tokens("[()]")
    counts = torch.tensor([1, 0, 1, 0, 0, 1, 0, 1, 1]).double()
    wanted = model.layers[0].mixed(model.inputs(tokens))[0, -1] - model.vectors[2]
    assert torch.allclose(pumping.direction_from_counts(model, counts, 2), wanted)
    assert layer_norm(wanted).shape == (first_layer(2, 2).shape[1],)
