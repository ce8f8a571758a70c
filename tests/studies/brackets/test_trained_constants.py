"""Constants of trained networks: hand-made heads, and rows against the theory's functions."""

import math

import pytest
import torch
from tests.support.fake_bench import Bench

from triptych.structures.brackets.dyck import Dyck
from triptych.studies.api.study import Rows
from triptych.studies.brackets.bracket_theory import figures, judge_near_balance, study
from triptych.studies.brackets.bracket_theory.rows import TrainConstants, TrainedConstant
from triptych.studies.brackets.bracket_theory.trained_constants import excess_loss, head_lipschitz
from triptych.studies.brackets.shared.networks import Architecture, Language, new_network

UNIT = TrainConstants(2, 2, 17, 1e-3, 2, 3, 4, 12, seed=5)


def network():
    return new_network(Language(2, 2, "prefixes"), Architecture("joint", 1, width=12), 0)


def test_a_network_that_says_nothing_loses_the_squares_of_the_law():
    """D = 1: brackets open with (½, ½) and close for sure, so that Σ p² is ½, 1, ½, 1."""
    model = new_network(Language(2, 1, "prefixes"), Architecture("joint", 1, width=12), 0)
    with torch.no_grad():
        model.net.output.weight.zero_()
    assert excess_loss(model, Dyck.prefixes(2, 1, 4, q=0.5)) == pytest.approx(0.75)
    with torch.no_grad():  # the end token, which never comes, adds 0.3²
        model.net.output.bias[4] = 0.3
    assert excess_loss(model, Dyck.prefixes(2, 1, 4, q=0.5)) == pytest.approx(0.75 + 0.09)


def test_the_slope_of_a_head_by_hand():
    """A head that reads one coordinate with weight 3, after a gain of 2: γ = 6 √12."""
    model = network()
    with torch.no_grad():
        model.net.output.weight.zero_()
        model.net.output.weight[0, 1] = 3.0
        norm = model.net.blocks[0].attention_norm
        norm.weight.fill_(2.0)
    assert head_lipschitz(model) == pytest.approx(6 * math.sqrt(12))


def test_rows_of_a_unit(unchecked_shapes):
    first, second = study.run(UNIT, Bench())
    assert isinstance(first, TrainedConstant)
    assert isinstance(second, TrainedConstant)
    assert (first.seed, second.seed) == (5, 6)
    assert first.constant != second.constant
    assert first.constant >= first.typical > 0
    # 16^-17 is 10^-20.47
    assert first.log10_missed == pytest.approx(math.log10(first.excess) + 17 * math.log10(16))


def test_decay_makes_weights_small(unchecked_shapes):
    units = [TrainConstants(2, 2, 17, decay, 1, 40, 4, 12, seed=5) for decay in (0.0, 0.1)]
    (free,), (held,) = ([*study.run(unit, Bench())] for unit in units)
    assert isinstance(free, TrainedConstant)
    assert isinstance(held, TrainedConstant)
    assert held.norm < 0.8 * free.norm


def test_trained_networks_are_shown_and_decide_nothing():
    claims = judge_near_balance.NEAR_CLAIMS
    row = TrainedConstant(0, 2, 2, 17, 0.0, 9, 1e6, 1e5, 10.0, 0.1, 5.0, 19.5)
    for claim, decay in zip(claims, (0.0, 1e-3), strict=True):
        rows = [TrainedConstant(**{**vars(row), "decay": decay, "seed": s}) for s in range(3)]
        verdict = claim.verdict([*claim.held_by, *rows])
        assert verdict.outcome == claim.verdict(claim.held_by).outcome
        label = f"trained, λ = {decay:g}, N = 17: largest ‖S‖ N / P, mean of networks"
        assert [c.value for c in verdict.checks if c.sentence == label] == [1e6]
    figure = figures.trained_constant_figure(Rows([row]))
    assert [panel.title for panel in figure.panels] == ["Balance", "Loss"]
