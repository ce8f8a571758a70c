"""Attention by kind of pair: the tables' judges by hand, the map between words by definition."""

import math

import pytest
import torch

from triptych.core.estimates import Outcome
from triptych.core.randomness import TorchRng
from triptych.lab.ledger import load_ledger
from triptych.lab.plots import to_svg
from triptych.studies import topic_attention as study
from triptych.studies.study import Scale
from triptych.studies.topic_judges import block_values
from triptych.studies.trained_topics import Documents, Training, has_learnt, network

SMALL = Documents(topics=2, words=2, min_length=6, length=8, count=50)
JUDGES = {claim.id: claim for claim in study.STUDY.claims}


class Bench:
    device = "cpu"

    def rng(self, purpose=""):
        return TorchRng(sum(map(ord, purpose)))

    def tensors(self, key, make):
        return make()


def test_published_values_are_those_of_the_ledger():
    entries = {entry.id: entry.published for entry in load_ledger()}
    for name, rows, table in (
        ("li.tab-2.1", study.ROWS, study.PUBLISHED),
        ("li.tab-2.2", study.DIAGONAL_ROWS, study.DIAGONAL_PUBLISHED),
    ):
        assert list(rows) == entries[name]["rows"]
        for column, values in table.items():
            assert list(values) == entries[name][column]


def test_word_map_is_what_one_word_adds_to_the_logits():
    training = Training(embedding=True, embedding_scale=0.8, init_scale=0.5)
    net = network(SMALL, training, 3)
    found = study.word_map(net)
    zero = net(vectors=torch.zeros(1, 1, 5))[0, 0]
    for word in range(5):
        logits = net(torch.tensor([[word]]))[0, 0]
        assert torch.allclose(found[:, word], logits - zero, atol=1e-6)
    one_hot = network(SMALL, Training(init_scale=0.5), 3)
    assert torch.equal(study.word_map(one_hot), one_hot.blocks[0].attention.value.weight)


def test_failed_runs_by_hand():
    rows = [{"guess": 4.6, "held_out": loss} for loss in (3.1, 3.39, 3.41, 4.5)]
    assert [has_learnt(row, rows) for row in rows] == [True, True, False, False]
    spoiled = {"guess": 4.6, "held_out": math.nan}
    assert not has_learnt(spoiled, rows)


def test_shape_of_an_exact_diagonal():
    values = block_values("map", same=0.0) | {"map_spread": 0.0, "map_score": None}
    assert study.shape_of(values) == "diagonal"
    flat = values | {"map_same_topic": 5.0}
    assert study.shape_of(flat) == "neither"
    assert study.shape_of(block_values("map")) == "blocks"


# ------------------------------------------------------------------ judges


def held(name):
    return [dict(row) for row in JUDGES[name].held_by]


def test_blocks_measured_side_by_side():
    verdict = JUDGES["li.tab-2.1"].judge(held("li.tab-2.1"))
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.measured["rows"] == list(study.ROWS)
    assert verdict.measured["same_word"] == pytest.approx([0.0081] * 5)
    assert verdict.measured["different"] == pytest.approx([0.00695] * 5)
    assert "Same word exceeds same topic in 0 of these 5" in verdict.because


def test_failed_and_diagonal_runs_are_left_out_of_the_table():
    rows = held("li.tab-2.1")
    for row in rows:
        if row["row"] == "SGD 0.01":
            row |= {"held_out": 4.5, "different": 0.5}
        if row["row"] == "Adam 0.03":
            row |= block_values("map", same=0.0) | {"different": 0.5}
    verdict = JUDGES["li.tab-2.1"].judge(rows)
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.measured["different"][2] is None
    assert verdict.measured["different"][3] is None
    assert "SGD 0.01 (0 runs)" in verdict.because
    few = [row for row in rows if row["row"] != "SGD 0.03"]
    assert JUDGES["li.tab-2.1"].judge(few).outcome is Outcome.UNDECIDED
    other = [row | {"kind": "equation"} for row in held("li.tab-2.1")]
    assert JUDGES["li.tab-2.1"].judge(other).outcome is Outcome.UNDECIDED


def test_a_value_matrix_that_is_held_confirms_nothing():
    rows = [row | {"value_trained": False} for row in held("li.tab-2.2")]
    verdict = JUDGES["li.tab-2.2"].judge(rows)
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.measured["same_word"] == pytest.approx([0.09, 0.09])
    assert "0 of 0 runs" in verdict.because
    wrong = [row | {"same_topic": 0.004, "same_word": 0.5} for row in rows]
    both = JUDGES["li.tab-2.2"].judge([*held("li.tab-2.2"), *wrong])
    assert both.outcome is Outcome.HOLDS  # trained ones decide where there are enough
    assert both.measured["same_word"] == pytest.approx([0.09, 0.09])
    one_row = [row for row in held("li.tab-2.2") if row["row"] == "Adam 0.01"]
    assert JUDGES["li.tab-2.2"].judge(one_row).outcome is Outcome.UNDECIDED


# ------------------------------------------------------------------ the study


def test_units():
    units = study.units(study.TopicAttention(seeds=3))
    kinds = [unit.parameters["kind"] for unit in units]
    counted = {kind: kinds.count(kind) for kind in set(kinds)}
    assert counted == {"code": 18, "equation": 9, "identity": 6, "everything": 6}
    by_kind = {unit.parameters["kind"]: unit.parameters for unit in units}
    assert by_kind["code"]["input_length"] == pytest.approx(math.sqrt(102))
    assert by_kind["code"]["start"]
    assert by_kind["code"]["blind"]
    assert by_kind["equation"]["input_length"] == 1.0
    assert not by_kind["equation"]["start"]
    assert not by_kind["identity"]["value"]
    assert all(unit.parameters["loss"] == "cross_entropy" for unit in units)


def test_runs_and_figures():
    units = study.units(study.STUDY.settings[Scale.SMOKE])
    chosen = {unit.parameters["kind"]: unit for unit in units}
    rows = [row for unit in chosen.values() for row in study.run(unit, Bench())]
    by_kind = {row["kind"]: row for row in rows}
    assert by_kind["equation"]["special"] is None
    assert 0 < by_kind["code"]["special"] < 1
    assert by_kind["identity"]["value_same_word"] == 1.0
    assert by_kind["identity"]["value_score"] is None
    assert study.shape_of(by_kind["identity"]) == "diagonal"
    assert by_kind["code"]["map_same_word"] == pytest.approx(
        math.sqrt(11) * by_kind["code"]["value_same_word"], rel=1e-4
    )
    for figure in study.STUDY.figures:
        assert to_svg(figure(rows)).startswith("<svg")
        assert to_svg(figure([])).startswith("<svg")
