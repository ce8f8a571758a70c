"""Blocks and diagonals: statistics against brute force and scipy, the labels and judges by hand."""

import itertools
import math

import pytest
import torch

from triptych.core.estimates import Outcome
from triptych.core.randomness import TorchRng
from triptych.lab.plots import to_svg
from triptych.studies import topic_judges as judges
from triptych.studies import topic_matrices
from triptych.studies.study import Scale, Unit
from triptych.studies.trained_topics import Documents
from triptych.theory.topics import Setting, population_loss, ridge

TINY = Documents(topics=2, words=2, min_length=4, length=4)


class Bench:
    device = "cpu"

    def rng(self, purpose=""):
        return TorchRng(sum(map(ord, purpose)))

    def tensors(self, key, make):
        return make()


# ------------------------------------------------------------------ statistics


def contrast(matrix, topic):
    pairs = [(i, j) for i, j in itertools.permutations(range(len(topic)), 2)]
    same = [float(matrix[i, j]) for i, j in pairs if topic[i] == topic[j]]
    other = [float(matrix[i, j]) for i, j in pairs if topic[i] != topic[j]]
    return sum(same) / len(same) - sum(other) / len(other)


def test_permutation_share_against_all_permutations():
    """Of 6 words in 3 topics, 720 orders; 4000 drawn ones are within five standard errors."""
    generator = torch.Generator().manual_seed(2)
    topic = torch.arange(6) // 2
    matrix = torch.randn((7, 7), generator=generator, dtype=torch.float64)
    matrix[:6, :6] += 0.4 * (topic[:, None] == topic)
    own = contrast(matrix, topic.tolist())
    every = [
        contrast(matrix, [int(topic[i]) for i in order])
        for order in itertools.permutations(range(6))
    ]
    share = sum(value >= own - 1e-12 for value in every) / 720
    assert 0.05 < share < 0.95
    found = judges.permutation_share(matrix, topic, TorchRng(3), 4000)
    assert found == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 4000) + 1e-3)


def test_permutation_share_at_the_ends():
    topic = torch.arange(20) // 2
    blocks = (topic[:, None] == topic).double()
    assert judges.permutation_share(blocks, topic, TorchRng(0), 99) == pytest.approx(0.01)
    assert judges.permutation_share(torch.ones(20, 20), topic, TorchRng(0), 99) == 1.0
    assert judges.permutation_share(-blocks, topic, TorchRng(0), 99) == 1.0
    # the diagonal alone is no block
    assert judges.permutation_share(torch.eye(20), topic, TorchRng(0), 99) == 1.0


def test_block_row_by_hand():
    """Topics {0, 1}, {2, 3}; the mask's row and column are left out."""
    matrix = torch.full((5, 5), 100.0)
    matrix[:4, :4] = torch.tensor(
        [[5.0, 2.0, 0.0, 1.0], [4.0, 5.0, 1.0, 0.0], [0.0, 1.0, 7.0, 3.0], [1.0, 0.0, 3.0, 7.0]]
    )
    found = judges.block_row(matrix, TINY, TorchRng(0), 50)
    assert (found["same_word"], found["same_topic"], found["different_topic"]) == (6.0, 3.0, 0.5)
    assert found["block"] == pytest.approx((6 + 3) / 2)
    assert found["spread"] == pytest.approx(math.sqrt(8 * 0.25 / 7))
    assert found["score"] == pytest.approx(2.5 / math.sqrt(2 / 7))
    assert found["diagonality"] == pytest.approx(3 / 5.5)
    assert 0 < found["p_value"] <= 1


def test_corner_has_three_digits():
    matrix = torch.tensor([[0.123456, 2.0, 9.0], [-1e-5, 3.0, 9.0], [9.0, 9.0, 9.0]])
    assert judges.corner(matrix) == [[0.123, 2.0], [-1e-5, 3.0]]
    assert judges.corner(matrix, 1) == [[0.123]]


@pytest.mark.parametrize(
    ("diagonal", "same", "p", "wanted"),
    [
        (2.0, 0.9, 0.001, "diagonal"),
        (2.0, 1.1, 0.001, "blocks"),
        (2.0, 1.1, 0.02, "neither"),  # blocks that chance can make
        (0.4, 0.0, 0.5, "neither"),  # a diagonal that cannot be seen
        (0.4, 0.4, 0.001, "neither"),
        (2.0, 1.0, 0.001, "diagonal"),  # exactly half
    ],
)
def test_pattern_by_hand(diagonal, same, p, wanted):
    assert judges.pattern(judges.block_values("value", diagonal=diagonal, same=same, p=p)) == wanted


# ------------------------------------------------------------------ judges


def judge_of(name):
    return next(claim.judge for claim in topic_matrices.STUDY.claims if claim.id == name)


def test_pairs_need_three_runs_of_each():
    rows = [row for row in judges.JOINT_HELD if (row["loss"], row["seed"]) != ("squared", 2)]
    assert judge_of("li.fig-2.6")(rows).outcome is Outcome.UNDECIDED
    assert judge_of("li.fig-2.6")(judges.JOINT_HELD).outcome is Outcome.HOLDS


def test_chance_and_noise_leave_pairs_open():
    unlikely = [row | {"value_p_value": 0.2} for row in judges.JOINT_HELD]
    assert judge_of("li.fig-2.6")(unlikely).outcome is Outcome.UNDECIDED
    noisy = [row | {"value_score": [-3.0, 1.0, 6.0][row["seed"]]} for row in judges.JOINT_HELD]
    assert judge_of("li.fig-2.6")(noisy).outcome is Outcome.UNDECIDED


def test_measured_values_have_the_names_of_the_published_ones():
    for name, held in (("li.fig-2.5", judges.PLAIN_HELD), ("li.fig-2.6", judges.JOINT_HELD)):
        measured = judge_of(name)(held).measured
        assert {"squared_sgd_block_mean", "off_block_mean", "off_block_std"} <= measured.keys()
        assert measured["squared_sgd_block_mean"] == pytest.approx(5.0)


def test_theorem_rows_are_needed():
    for name, held in (("li.fig-2.2", judges.RIDGE_HELD), ("li.fig-2.5", judges.PLAIN_HELD)):
        rows = [row for row in held if row["kind"] != "theorem"]
        assert judge_of(name)(rows).outcome is Outcome.UNDECIDED


def test_one_diagonal_run_decides_nothing():
    diagonal = {"kind": "joint", "loss": "squared", "optimiser": "sgd", "embedding": False}
    diagonal |= judges.block_values("value", same=0.0)
    judge = judge_of("li.fig-2.10")
    assert judge([*judges.JOINT_HELD, *judges.JOINT_HELD, diagonal]).outcome is Outcome.UNDECIDED
    assert judge(judges.JOINT_HELD).outcome is Outcome.UNDECIDED  # 12 runs, none diagonal
    found = judge([diagonal, diagonal])
    assert found.outcome is Outcome.HOLDS
    assert found.measured["diagonal"] == 2
    assert found.measured["diagonal_with_trained_embeddings"] == 0
    # runs with L2 do not count
    ridge_rows = [diagonal | {"kind": "ridge"}] * 2
    assert judge(ridge_rows).outcome is Outcome.UNDECIDED


# ------------------------------------------------------------------ the study


def theorem_unit(l2, steps=900):
    settings = topic_matrices.STUDY.settings[Scale.SMOKE]
    unit = next(
        unit
        for unit in topic_matrices.units(settings)
        if unit.parameters["kind"] == "theorem" and unit.parameters["l2"] == l2
    )
    return Unit({**unit.parameters, "steps": steps}, 0)


def test_descent_ends_at_the_closed_forms():
    (row,) = topic_matrices.run(theorem_unit(1e-3), Bench())
    assert row["to_ridge"] < 1e-6
    setting = Setting(3, 3, 2)
    away = float((ridge(setting, 1e-3) - topic_matrices.ridge_limit(setting)).abs().max())
    assert row["to_limit"] == pytest.approx(away, abs=1e-6)
    excess = float(population_loss(setting, ridge(setting, 1e-3))) - (1 - 1 / 6)
    assert row["excess"] == pytest.approx(excess, abs=1e-7)
    (free,) = topic_matrices.run(theorem_unit(0.0), Bench())
    assert free["to_family"] < 1e-8
    assert free["to_ridge"] is None
    assert free["to_limit"] > 1e-5  # another optimum: what it began with stays
    (early,) = topic_matrices.run(theorem_unit(0.0, steps=3), Bench())
    assert early["to_family"] > 0.01


def test_units_cover_pairs_and_seeds():
    settings = topic_matrices.TopicMatrices(seeds=3, rates=(0.01, 0.03))
    units = topic_matrices.units(settings)
    kinds = [unit.parameters["kind"] for unit in units]
    assert all(
        kinds.count(kind) == 12 for kind in ("embeddings", "small", "ridge", "plain", "joint")
    )
    assert kinds.count("search") == 16
    assert kinds.count("theorem") == 3
    by_kind = {unit.parameters["kind"]: unit.parameters for unit in units}
    assert by_kind["ridge"]["l2"] > 0
    assert by_kind["plain"]["l2"] == by_kind["joint"]["l2"] == 0
    assert not by_kind["plain"]["attention"]
    assert by_kind["joint"]["attention"]
    assert by_kind["embeddings"]["embedding"]
    assert all(unit.parameters["learning_rate"] == 0.01 for unit in units if unit.seed == 1)


def test_a_run_keeps_small_rows():
    settings = topic_matrices.STUDY.settings[Scale.SMOKE]
    unit = next(
        unit
        for unit in topic_matrices.units(settings)
        if unit.parameters["kind"] == "embeddings" and unit.parameters["optimiser"] == "adam"
    )
    (row,) = topic_matrices.run(unit, Bench())
    assert len(row["embedding_corner"]) == len(row["embedding_corner"][0]) == 9
    assert [point[0] for point in row["path"]] == list(range(1, 21))
    assert row["path"][-1][1:] == pytest.approx([row["value_block"], row["value_different_topic"]])
    assert row["initial_score"] != row["embedding_score"]
    (other,) = topic_matrices.run(Unit(unit.parameters, 1), Bench())
    assert "embedding_corner" not in other


def test_figures_of_no_rows_and_of_few():
    row = judges.JOINT_HELD[0] | {"value_corner": [[1.0, 0.0], [0.0, 1.0]], "path": [[1, 2.0, 0.1]]}
    sgd = row | {"loss": "squared", "optimiser": "sgd", "embedding": True}
    sgd |= judges.block_values("value", same=0.0)
    for figure in topic_matrices.STUDY.figures:
        assert to_svg(figure([])).startswith("<svg")
        assert to_svg(figure([row, sgd])).startswith("<svg")
    titles = [panel.title for panel in topic_matrices.diagonal_figure([row, sgd]).panels]
    assert titles[1] == "a diagonal W^V: squared loss + SGD"
    (shown,) = topic_matrices.joint_figure([row]).panels
    assert shown.title == "cross-entropy + SGD: score 5"


def test_an_unfinished_run_refutes_nothing_but_its_blocks_count():
    claim = next(c for c in topic_matrices.STUDY.claims if c.id == "li.fig-2.1")
    (bad,) = claim.refuted_by
    assert claim.judge(bad).outcome is Outcome.FAILS
    slow = [
        row | {"held_out": 4.5} if (row["loss"], row["optimiser"]) == judges.PAIRS[0] else row
        for row in bad
    ]
    assert claim.judge(slow).outcome is Outcome.UNDECIDED
    short = [row | {"steps": 4999} for row in bad]
    assert claim.judge(short).outcome is Outcome.UNDECIDED
    good = [row | {"held_out": 4.5 if row["optimiser"] == "sgd" else 3.0} for row in claim.held_by]
    assert claim.judge(good).outcome is Outcome.HOLDS
    for odd in (math.nan, math.inf):
        assert claim.judge([row | {"held_out": odd} for row in bad]).outcome is not Outcome.HOLDS


def test_diagonal_matrices_between_coordinates_decide_nothing():
    claim = next(c for c in topic_matrices.STUDY.claims if c.id == "li.fig-2.10")
    turned = [row | {"embedding": True} for row in claim.held_by]
    assert claim.judge(turned).outcome is Outcome.UNDECIDED
