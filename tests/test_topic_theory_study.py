"""The study of one layer on topics: its rows against the theory, its judges on made-up rows."""

import json
import math

import pytest
import torch

from triptych.core.estimates import Outcome
from triptych.lab.workbench import WorkBench
from triptych.studies import topic_theory as study
from triptych.studies import topic_theory_figures as figures
from triptych.studies import topic_theory_judges as judges
from triptych.studies.figures import Heatmap
from triptych.studies.study import Scale, Unit
from triptych.theory import topics
from triptych.theory.topic_attention import Value, attention_loss
from triptych.theory.topics import Setting


@pytest.fixture
def gather(tmp_path):
    def rows(seed=0, **parameters):
        unit = Unit(parameters, seed)
        return list(study.run(unit, WorkBench(unit.seed, "cpu", tmp_path)))

    return rows


# ------------------------------------------------------------------ rows


def test_rows_of_the_optima(gather):
    rows = gather(kind="optima", masking="as in BERT", topics=3, words=(1, 2))
    assert [(row["words"], row["drawn"]) for row in rows] == [
        (v, tau) for v in (1, 2) for tau in (1, 2, 3)
    ]
    for row in rows:
        assert row["family"] == 3 * (row["words"] - 1) + 1
        assert (row["free"] == row["family"]) == (row["drawn"] < 3)
        assert row["loss_error"] < 1e-12
        assert row["reached_error"] < 1e-12
        assert row["from_least_norm"] > 0.1  # the start is remembered where the loss is flat
        assert (row["distance"] < 1e-9) == (row["drawn"] < 3)
        setting = Setting(3, row["words"], row["drawn"])
        off = topics.ridge(setting, 1e-4) - topics.printed_ridge_limit(setting)
        at = row["penalties"].index(1e-4)
        assert row["ridge_errors"][at] == pytest.approx(float(off.abs().max()))
        assert row["c1"] == pytest.approx(setting.constants[0])
    json.dumps(rows)


def test_rows_of_the_embeddings(gather):
    named = {"topics": 3, "words": 2, "drawn": 1, "masking": "as in BERT"}
    words, both = gather(kind="embedding", seed=1, **named)
    setting = Setting(3, 2, 1)
    c1, _, c3 = setting.constants
    assert (words["bias"], both["bias"]) == ("words", "mask too")
    assert max(words["excess"], both["excess"]) < 1e-12
    assert max(words["violation"], words["corrected"], both["corrected"]) < 1e-6
    assert both["violation"] > c1 / 10
    assert both["mask_off"] == pytest.approx(c1, abs=1e-6)
    assert words["mask_off"] == pytest.approx(0.0, abs=1e-6)
    assert words["topic_means"] == pytest.approx([words["level"]] * 3, abs=1e-6)
    assert words["level"] > 0
    assert words["deviation"] > 1e-3  # within a topic u is free
    assert words["least_eigenvalue"] > -1e-9
    assert words["example_excess"] == pytest.approx((c3 * setting.masked) ** 2)
    assert "matrix" not in words
    shown = gather(kind="embedding", **study.SHOWN)[0]["matrix"]
    assert len(shown) == 13
    drawn = figures.embedding_figure(gather(kind="embedding", **study.SHOWN)).panels[1]
    assert isinstance(drawn, Heatmap)
    a = Setting(4, 3, 2).left
    for word, line in enumerate(drawn.values):  # own topic less the others
        own = line[word // 3]
        assert all(own - x == pytest.approx(1 / a, abs=1e-3) for x in line if x != own)


def test_training_follows_the_loss():
    setting = Setting(2, 2, 1)
    start = torch.eye(5, dtype=torch.float64)
    products, loss = study.trained_products(setting, topics.embedding_bias(setting), start)
    assert loss == pytest.approx(setting.least_loss, abs=1e-12)
    again = topics.population_loss(setting, products, topics.embedding_bias(setting))
    assert float(again) == pytest.approx(loss)


def test_rows_of_the_weights(gather):
    sizes = {"topics": (100,), "words": 10}
    rows = gather(kind="attention", masking="as in BERT", exponents=(0.5,), dense=(0.9,), **sizes)
    assert [(r["topics"], r["drawn"], r["sparse"]) for r in rows[::3]] == [
        (100, 10, True),
        (100, 90, False),
    ]
    assert {row["reading"] for row in rows} == {"shared", "ignored", "printed"}
    first, a = rows[0], 0.865
    assert first["assumed"]
    assert first["gamma_low"] == pytest.approx(0.88 * 1.135 / (2 * a) * 9)
    assert first["gamma_proved"] == pytest.approx(0.88 * (1 - 2 * 0.135) / (2 * a) * 9)
    assert first["gamma_high"] == pytest.approx(100 * (a / 0.015 + 1) * 100)
    assert first["beta_low"] == pytest.approx(0.88 / 100 * 10 * 10)
    assert first["ratio"] == pytest.approx(1 / (9 * a))
    assert first["limit"] == pytest.approx(1 / 0.135)
    setting = Setting(100, 10, 10)
    gamma = torch.tensor([first["gamma"]], dtype=torch.float64)
    best = attention_loss(setting, Value.blocks(setting), gamma, gamma)
    axis = torch.logspace(0, 4, 400, dtype=torch.float64)
    assert float(best) <= float(attention_loss(setting, Value.blocks(setting), axis, axis).min())


@pytest.mark.parametrize("name", ["diagonal", "blocks"])
def test_rows_of_a_landscape(gather, name):
    rows = gather(kind="landscape", value=name, drawn=40)
    shown = next(row for row in rows if row["reading"] == "printed")
    setting = Setting(100, 300, 40)
    value = getattr(Value, name)(setting)
    size = 11 * study.PER_DECADE + 1
    assert len(shown["picture"]) == len(shown["picture"][0]) == size
    assert min(map(min, shown["picture"])) == 0.0
    assert max(map(max, shown["picture"])) == 1.0
    # the corners: α grows to the right and β to the top
    axis = torch.logspace(-4, 7, size, dtype=torch.float64)
    table = attention_loss(setting, value, axis[:, None], axis[None], "printed")
    share = (table - table.min()) / (table.max() - table.min())
    assert shown["picture"][0][-1] == pytest.approx(float(share[-1, -1]), abs=1e-3)
    assert shown["picture"][0][0] == pytest.approx(float(share[0, -1]), abs=1e-3)
    assert shown["picture"][-1][-1] == pytest.approx(float(share[-1, 0]), abs=1e-3)
    place = "beta" if name == "diagonal" else "gamma"
    for (low, high), share in zip(shown["edges"], shown["shares"], strict=True):
        assert low <= shown[place] <= high
        limit = shown["least"] + share * (shown["most"] - shown["least"])
        if name == "blocks":  # at the edge the loss has the value that makes it one
            for edge in (low, high):
                point = torch.full((1,), edge, dtype=torch.float64)
                loss = float(attention_loss(setting, value, point, point, "printed"))
                assert loss == pytest.approx(limit, abs=0.02 * (shown["most"] - shown["least"]))
    if name == "blocks":
        assert shown["strays"] == 0
        assert shown["arms"]
    assert len(json.dumps(rows)) < 40_000


def test_units_of_unknown_maskings_are_refused():
    with pytest.raises(ValueError, match="maskings are as in BERT"):
        study.units(study.TopicTheory(maskings=("none",)))


def test_every_masking_is_inside_or_outside_as_it_says():
    for settings in study.STUDY.settings.values():
        assert isinstance(settings, study.TopicTheory)
        for inside, names in ((True, settings.maskings), (False, settings.outside)):
            for name in names:
                p_m, p_c, p_r = study.MASKINGS[name]
                assert (p_m < 0.5 and p_c == p_r) == inside


# ------------------------------------------------------------------ judges


def test_the_boundary_is_told_and_not_judged():
    rows = judges.FAMILY_HELD
    verdict = judges.judge_family(rows)
    assert verdict.outcome is Outcome.HOLDS
    assert "τ < T, which is not printed" in verdict.because
    inner = [row for row in rows if row["drawn"] < row["topics"]]
    assert "not printed" not in judges.judge_family(inner).because
    assert judges.judge_family(inner[:1]).outcome is Outcome.UNDECIDED
    assert judges.judge_ridge(inner[:1]).outcome is Outcome.UNDECIDED


def test_training_that_has_not_ended_decides_nothing():
    rows = [*judges.EMBEDDING_HELD, judges.EMBEDDING_HELD[-1] | {"excess": 1e-6, "violation": 1.0}]
    assert judges.judge_embedding(rows).outcome is Outcome.UNDECIDED
    assert judges.judge_embedding(judges.EMBEDDING_HELD[1:2]).outcome is Outcome.UNDECIDED
    assert "c1 and not 0" in judges.judge_embedding(judges.EMBEDDING_HELD).because


def test_weights_outside_the_assumptions_or_at_small_t_are_told_and_not_judged():
    last = judges.WEIGHTS_HELD[-1]
    bad = {"gamma": 1.0, "beta": 1.0}
    extra = [
        last | bad | {"assumed": False},
        last | bad | {"sparse": False},
        last | bad | {"topics": 100},
    ]
    for judge in (judges.judge_blocks, judges.judge_diagonal):
        verdict = judge([*judges.WEIGHTS_HELD, *extra])
        assert verdict.outcome is Outcome.HOLDS
        assert verdict.measured["beyond_outside"] == 1
        assert verdict.measured["dense_outside"] == 1
        assert verdict.measured["small_outside"] == 1


def test_weights_need_growth():
    for judge in (judges.judge_blocks, judges.judge_diagonal):
        assert judge(judges.WEIGHTS_HELD[:-1]).outcome is Outcome.UNDECIDED  # one T
        one_v = [row for row in judges.WEIGHTS_HELD if row["words"] == 10]
        assert judge(one_v * 2).outcome is Outcome.UNDECIDED
    far = judges.WEIGHTS_HELD[-1] | {"gamma": 4e5, "beta": 4e6, "alpha": 0.0}
    rows = [*judges.WEIGHTS_HELD[:-1], far]  # inside, but further from the limit than before
    assert judges.judge_blocks(rows).outcome is Outcome.UNDECIDED
    assert judges.judge_diagonal(rows).outcome is Outcome.UNDECIDED


def test_exponents_by_hand():
    rows = [
        {"assumed": True, "sparse": True, "topics": t, "drawn": tau, "words": v, "masking": "m"}
        | {"reading": "shared", "one": 3.0 * v * tau, "two": v * math.sqrt(tau * t)}
        for t in (10**5, 10**6, 10**7)
        for tau in (10, 50, 1000)
        for v in (10, 20)
    ]
    rows.append(rows[0] | {"topics": 10, "one": 1e9, "two": 1e9})  # too small to count
    assert judges.exponents(rows, "one") == pytest.approx((1.0, 0.0))
    assert judges.exponents(rows, "two") == pytest.approx((0.5, 0.5))


def test_landscapes_need_four_values():
    for judge, rows in (
        (figures.judge_diagonal_picture, figures.DIAGONAL_PICTURE_HELD),
        (figures.judge_blocks_picture, figures.BLOCKS_PICTURE_HELD),
    ):
        assert judge(rows).outcome is Outcome.HOLDS
        assert judge(rows[:3]).outcome is Outcome.UNDECIDED
        other = [row | {"reading": "shared"} for row in rows]
        other[-1] = other[-1] | {"edges": rows[0]["edges"]}
        assert judge([*rows, *other]).outcome is Outcome.FAILS  # every reading counts
        assert judge(other).outcome is Outcome.UNDECIDED  # without the printed one


def test_figures_of_nothing():
    for draw in study.STUDY.figures:
        assert draw([]).title


def test_the_published_landscapes_are_in_the_plan():
    for scale in (Scale.LAPTOP, Scale.PAPER):
        units = study.STUDY.units(study.STUDY.settings[scale])
        found = [unit.parameters for unit in units if unit.parameters["kind"] == "landscape"]
        assert {(each["value"], each["drawn"]) for each in found} == {
            (name, tau) for name in ("diagonal", "blocks") for tau in (20, 40, 60, 80)
        }
