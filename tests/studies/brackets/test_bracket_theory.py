"""The study of brackets: its rows against the theory and enumeration, its judges at the edges."""

import math
from dataclasses import replace

import pytest
import torch

from triptych.core.estimates import Status
from triptych.core.randomness import TorchRng
from triptych.lab.running.workbench import WorkBench
from triptych.structures.brackets.dyck import Dyck
from triptych.studies.api.study import Rows
from triptych.studies.brackets.bracket_theory import (
    figures,
    judge,
    judge_near_balance,
    near_balance,
    study,
)
from triptych.studies.brackets.bracket_theory.predictions import every_prefix, long_prefix
from triptych.studies.brackets.bracket_theory.rows import (
    Approximate,
    ComparePatterns,
    Decay,
    DrawBaseline,
    Encode,
    Encoded,
    Predict,
    Prune,
    PumpPairs,
    Share,
    SilenceHead,
)

CLAIMS = {claim.id: claim for claim in study.STUDY.claims}


@pytest.fixture
def gather(tmp_path, unchecked_shapes):
    def rows(unit):
        found = list(study.run(unit, WorkBench(unit.seed, "cpu", tmp_path)))
        for number, row in enumerate(found):  # they can be stored
            assert study.STUDY.row_from_json(study.STUDY.row_to_json(row, number)) == row
        return found

    return rows


# ------------------------------------------------------------------ predictions


def test_a_long_prefix_has_the_laws_of_the_structure(unchecked_shapes):
    tokens, laws = long_prefix(3, 4, 30, TorchRng(0))
    truth = Dyck.prefixes(3, 4, 30, q=0.5)
    assert truth.completable(tokens).all()
    torch.testing.assert_close(laws[:-1], truth.every_next_token_log_probs(tokens)[0].exp())


def test_long_prefixes_follow_the_law(unchecked_shapes):
    """Of 400 strings "[]" and "[[" half are closed."""
    rng = TorchRng(0)
    closed = sum(int(long_prefix(1, 2, 2, rng)[0][0, 1]) for _ in range(400))
    assert 140 < closed < 260  # 6 standard deviations


def test_every_prefix_by_hand():
    """k = 1, D = 2, two tokens: "[[" and "[]"."""
    tokens, laws = every_prefix(1, 2, 2)
    assert tokens.tolist() == [[0, 0], [0, 1]]
    assert laws[0].tolist() == [[1.0, 0.0], [0.5, 0.5]]


@pytest.mark.parametrize("scores", ["random", "uniform in both layers"])
def test_constructions_are_exact(gather, scores):
    (row,) = gather(Predict(2, 3, scores, 4, 200, seed=0))
    assert row.error < 1e-15
    assert row.long_error < 1e-15
    assert row.invalid == 0
    assert row.mlp_layers == 6


def test_patterns_vary_and_predictions_do_not(gather):
    (row,) = gather(ComparePatterns(4, 2.5, seed=0))
    assert row.error < 1e-15
    assert row.variation > row.random
    assert len(row.likeness) == 4
    assert max(row.likeness) < 1
    drawn = figures.pattern_figure(Rows([row]))
    assert len(drawn.panels) == 3


def test_baselines_and_encodings(gather):
    (drawn,) = gather(DrawBaseline(16, 20, seed=0))
    assert drawn.mean == pytest.approx(drawn.formula, abs=5 * drawn.spread / math.sqrt(20))
    found = {(row.encoding, row.closing): row for row in gather(Encode(2, 3, seed=0))}
    assert found["joint", "partner"].as_used
    assert not found["joint", "after"].as_used  # two kinds share a vector
    assert found["separate", "partner"].apart == pytest.approx(0)


def test_a_head_of_zero(gather):
    (row,) = gather(SilenceHead(2, 2, seed=0))
    assert row.largest_output == 0
    assert row.variation > 1


# ------------------------------------------------------------------ near balance


def test_pumping_rows(gather):
    rows = gather(PumpPairs(2, 2, "leak", (1, 1_000_000), seed=0))
    assert len(rows) == 4  # two types, two levels, one level of the query
    for row in rows:
        assert row.size == pytest.approx(0.5)
        assert row.rate == pytest.approx(row.formula, rel=1e-4)
        assert row.apart[-1] == 0
        assert row.truth == pytest.approx(math.sqrt(0.5))
    for row in gather(PumpPairs(1, 3, "random scores", (1, 1_000_000), seed=0)):
        assert row.balance > 0
        assert max(row.errors) < 1e-12


def test_the_law_of_a_stack_by_hand():
    law = near_balance.stack_law(torch.tensor([0, 1]), 2, 3)
    assert law.tolist() == [0.25, 0.0, 0.25, 0.5]
    assert near_balance.stack_law(torch.tensor([1]), 2, 1).tolist() == [0, 0, 0, 1]


def test_the_constant_of_a_leak_by_hand(gather):
    """k = D = 2: S = c less its mean part, P = ‖start + open + c‖, and both without the mean."""
    (row,) = gather(Approximate(2, 2, 17, "leak", 1.0, seed=0))
    assert row.constant == pytest.approx(17 / math.sqrt(3))  # 1 / √(1 + 1 + 1)
    assert row.excess == pytest.approx(0, abs=1e-30)
    assert row.least == pytest.approx(7.5 / 17)  # empty and depth 2 in turn with depth 1
    assert 0 < row.share < row.measured <= 1


def test_weight_decay_stays_near_the_construction(gather):
    (row,) = gather(Decay(17, 1e-6, 1, seed=0))
    assert row.end < row.start == pytest.approx(5e-7 * row.norm)
    assert row.excess <= row.decay * row.norm / 2
    assert row.measured <= 1


# ------------------------------------------------------------------ pruning


def test_pruning_rows(gather):
    (row,) = gather(Prune(2, 4, 1, 16, seed=0))
    assert row.is_pruning
    assert row.typical <= row.error
    assert 0 < row.kept < 0.1
    (row,) = gather(Share(2, 4, 16, 1, seed=0))
    assert row.differ == 0
    assert row.kept > 0


# ------------------------------------------------------------------ judges at their edges


@pytest.mark.parametrize(
    ("claim", "edge"),
    [
        ("li.thm-2.2.1-necessary", judge.ONE_TYPE),
        ("li.thm-2.2.2", judge_near_balance.DEPTH_ZERO),
        ("li.cor-2.2.2", judge_near_balance.NO_DECAY),
    ],
)
def test_edges_are_named(claim, edge):
    verdict = CLAIMS[claim].verdict(CLAIMS[claim].held_by)
    assert verdict.outcome is Status.HOLDS
    assert verdict.exceptions == (edge,)


def test_growth_that_is_not_proportional_is_none():
    flat = [replace(row, depth_zero=10.0) for row in judge_near_balance.APPROXIMATE_HELD]
    verdict = CLAIMS["li.thm-2.2.2"].verdict(flat)
    assert verdict.outcome is Status.HOLDS
    assert verdict.exceptions == ()


def test_dependent_encodings_stand_beside_and_are_no_exception():
    """Two first layers are independent at each depth alone; one of them confuses stacks."""
    claim = CLAIMS["li.thm-2.2.1-sufficient"]
    rows = [row for row in claim.held_by if not isinstance(row, Encoded)]
    dependent = [row for row in claim.held_by if isinstance(row, Encoded) and not row.as_used]
    told = [replace(dependent[0], apart=0.5), *dependent[1:]]
    verdict = claim.verdict([*rows, *told])
    assert (verdict.outcome, verdict.exceptions) == (Status.HOLDS, ())
    found = {check.sentence: check.value for check in verdict.checks}
    assert (found[judge.DEPENDENT], found[judge.CONFUSED]) == (2, 1)
