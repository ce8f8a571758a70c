"""The rows of the study are what they say; its judges see each way to be wrong."""

import math
import zlib

import pytest
from scipy import stats

from triptych.core.estimates import Outcome
from triptych.core.randomness import TorchRng
from triptych.studies import mode_decoders, mode_figures
from triptych.studies import mode_judges as judges
from triptych.studies import reaching_the_mode as study
from triptych.studies.figures import Figure, Panel
from triptych.studies.study import Scale, Unit

DELTAS = (0.9, 0.1)


class Bench:
    device = "cpu"

    def rng(self, purpose=""):
        return TorchRng(zlib.crc32(purpose.encode()))

    def tensors(self, key, make):
        return make()


def rows(kind, seed=0, **parameters):
    return list(study.run(Unit({"kind": kind, **parameters}, seed), Bench()))


@pytest.fixture(scope="module")
def figure_rows():
    found = rows("lumping", blocks=(0, 1, 10))
    for coupling in (2.0, 5.0, 7.0, 10.0):
        found += rows("figure", coupling=coupling, runs=300)
    return found


@pytest.fixture(scope="module")
def reach_rows():
    return rows("reach", clique=3, deltas=DELTAS, runs=300)


@pytest.fixture(scope="module")
def pair_rows():
    return rows("stuck", clique=2, deltas=DELTAS, runs=300)


@pytest.fixture(scope="module")
def decoder_rows():
    return rows("decoders", maps=("2^3", "3^2"))


# ------------------------------------------------------------------ figure 4.3


def test_the_figure_by_hand(figure_rows):
    """k = N draws from p: R_1 in all but e^-40 of the draws. At J = 10 a smaller block must hold
    the clique, which a step does with C(6, k - 4) / C(10, k), so T is geometric, cut at 1000."""
    table = {(row["coupling"], row["k"]): row for row in figure_rows if row["kind"] == "figure"}
    assert table[10.0, 10]["exact"] == pytest.approx(1.0, abs=1e-8)
    for k in range(4, 10):
        p = math.comb(6, k - 4) / math.comb(10, k)
        assert table[10.0, k]["exact"] == pytest.approx((1 - (1 - p) ** 1000) / p, rel=1e-6)
        assert math.exp(table[10.0, k]["log_mean"]) == pytest.approx(1 / p, rel=1e-6)
    assert [table[10.0, k]["exact"] for k in (0, 1, 2)] == pytest.approx([1000.0] * 3)
    # All four rise at once from R_-1 with sigmoid(2 (5 - 3J)) each, and there is no quicker way.
    rise = 1 / (1 + math.exp(50.0))
    assert table[10.0, 0]["log_reached"] > math.log(1000 * rise**4)
    assert all(len(row["repeats"]) == 10 for row in table.values())
    assert {row["violated"] for row in table.values()} == {2}
    assert max(row["lumping_error"] for row in figure_rows if row["kind"] == "lumping") < 1e-12


def test_the_figure_holds_with_its_conditions(figure_rows):
    verdict = judges.judge_figure(figure_rows)
    assert verdict.outcome is Outcome.HOLDS
    for words in ("from J = 5 on", "up to J = 2 independent parallel does", "k ≤ 3 never", "50"):
        assert words in verdict.because
    assert verdict.measured["never_from"]["0"] == 5.0
    assert verdict.measured["never_from"]["4"] is None


def test_thin_evidence_for_the_figure_is_undecided(figure_rows):
    few = [row for row in figure_rows if row.get("coupling") not in (7.0, 10.0)]
    assert judges.judge_figure(few).outcome is Outcome.UNDECIDED
    holes = [row for row in figure_rows if (row.get("coupling"), row["k"]) != (5.0, 3)]
    assert judges.judge_figure(holes).outcome is Outcome.UNDECIDED
    assert judges.judge_figure(judges.FIGURE_HELD[1:]).outcome is Outcome.UNDECIDED


def test_the_tolerance_of_a_mean():
    """2 · 3 · L / (3 n) = 2 for n = L = log(2e9); and draws of a fair coin stay within it."""
    log = math.log(2e9)
    assert judges.mean_tolerance(0.0, 3.0, 10) == pytest.approx(2 * log / 10)
    assert judges.mean_tolerance(0.5, 0.0, 100) == pytest.approx(0.5 * math.sqrt(2 * log / 100))
    reach = judges.mean_tolerance(0.5, 1.0, 1000) * 1000
    assert 2 * stats.binom(1000, 0.5).sf(500 + reach) < 1e-9


def test_rare_events_are_not_found_wrong():
    """One in 2000 is no contradiction of p = 1e-5; ten are."""
    assert judges._share_fits(1, 2000, 1e-5)
    assert not judges._share_fits(10, 2000, 1e-5)
    assert judges._share_fits(0, 2000, 0.0)
    assert not judges._share_fits(1, 2000, 0.0)
    assert judges._share_fits(None, 2000, 0.5)


# ------------------------------------------------------------------ the propositions


def test_modes_fail_by_an_equality_alone():
    found = rows("modes", models=15)
    verdict = judges.judge_modes(found)
    assert verdict.outcome is Outcome.FAILS
    assert "[1.0, 0.0] both sides of the log-ratio are 4" in verdict.because
    assert "With ≥" in verdict.because
    assert verdict.measured["error"] < 1e-12
    assert verdict.measured["least_excess"] == 0.0
    others = [row for row in found if row["small_over_rest"] > row["twice_margin"]]
    assert len(others) >= len(found) - 5
    assert judges.judge_modes(others).outcome is Outcome.HOLDS
    assert {row["violated"] for row in found} == {0}
    assert judges.judge_modes([row | {"violated": 1} for row in others]).outcome is (
        Outcome.UNDECIDED
    )


def test_random_models_satisfy_the_assumption():
    rng = TorchRng(3)
    models = [study._random_model(rng) for _ in range(80)]
    assert all(model.violations == [] for model in models)
    assert {model.clique for model in models} == {2, 3, 4, 5, 6}
    assert any(min(model.clique_fields) < 0 for model in models)
    assert any(model.free_fields for model in models)


def test_the_bound_on_k_gibbs_holds(reach_rows):
    found = reach_rows
    verdict = judges.judge_reach(found)
    assert verdict.outcome is Outcome.HOLDS
    # N = k: every step draws from p, so T needs log δ / log(1 - p(R_1)) steps exactly
    row = next(row for row in found if row["block"] == row["spins"] and row["delta"] == 0.1)
    p = math.exp(row["log_step"])
    assert row["exact_steps"] == math.ceil(math.log(0.1) / math.log(1 - p))
    assert row["missed"] == pytest.approx((1 - p) ** row["steps"])
    assert all(row["steps"] >= row["exact_steps"] for row in found)
    assert any(row["simulated_missed"] is not None for row in found)
    assert judges.judge_reach(found[:3]).outcome is Outcome.UNDECIDED


def test_the_stuck_bound_fails_in_its_corner_alone(pair_rows):
    two = pair_rows
    eight = rows("stuck", clique=8, deltas=DELTAS, runs=300)
    verdict = judges.judge_stuck(two + eight)
    assert verdict.outcome is Outcome.FAILS
    assert "r > 0, or |C| ≥ 3, saves the statement" in verdict.because
    assert verdict.measured["broken_with_positive_radius"] == 0
    broken = [r for r in two if r["steps"] >= 1 and r["stayed"] < 1 - r["delta"]]
    assert verdict.measured["broken"] == len(broken)
    assert {row["margin"] for row in broken} <= {0.0005, 0.001, 0.005}
    for row in broken:  # both spins stay down with the sigmoids of 2 J and 2 (J - h)
        stay = [1 / (1 + math.exp(-2 * x)) for x in (row["margin"], row["margin"] + 1e-6)]
        assert row["stayed"] == pytest.approx(math.prod(stay), rel=1e-9)
    kept = [row for row in two if row not in broken]
    assert judges.judge_stuck(kept + eight).outcome is Outcome.HOLDS
    assert judges.judge_stuck(eight).outcome is Outcome.UNDECIDED
    assert judges.judge_stuck(kept).outcome is Outcome.UNDECIDED


def test_the_corollary_holds():
    found = rows("corollary", horizon=1, deltas=DELTAS, runs=300)
    verdict = judges.judge_corollary(found)
    assert verdict.outcome is Outcome.HOLDS
    assert {row["violated"] for row in found} == {0}
    assert all(row["radius"] > 0 for row in found)
    whole = [row for row in found if row["block"] == row["spins"]]
    assert judges.judge_corollary(whole).outcome is Outcome.UNDECIDED


def test_decoders(decoder_rows):
    found = decoder_rows
    verdict = mode_decoders.judge_decoders(found)
    assert verdict.outcome is Outcome.HOLDS
    assert "false for the random position" in verdict.because
    pair = {row["k"]: row for row in found if row["name"] == "pair, J = 0" and "joint_off" in row}
    assert pair[1]["distance"] == pytest.approx(1 / 8)  # q²/2 with q = ½
    assert pair[2]["distance"] < 1e-12  # independent spins: a draw from p is a product
    assert not pair[2]["coupled"]
    scans = [row["distance"] for row in found if row["what"] == "scan"]
    assert len(scans) == 3
    assert max(scans) < 1e-12
    clique = [row for row in found if row["name"] == "clique, J = 1" and row["what"] == "gibbs"]
    assert max(row["joint_off"] for row in clique) < 1e-12
    assert clique[0]["factorised_off"] < 1e-12  # k = 1
    assert min(row["factorised_off"] for row in clique[1:]) > 1e-3
    without = [row for row in found if row["name"] != "random weights"]
    assert mode_decoders.judge_decoders(without).outcome is Outcome.UNDECIDED
    assert mode_decoders.judge_decoders([r for r in found if r["what"] != "map"]).outcome is (
        Outcome.UNDECIDED
    )


@pytest.mark.parametrize("claim", study.STUDY.claims, ids=lambda claim: claim.id)
def test_each_condition_of_a_claim_can_break_alone(claim):
    assert claim.judge(claim.held_by).outcome is Outcome.HOLDS
    reasons = [claim.judge(refuting) for refuting in claim.refuted_by]
    assert [verdict.outcome for verdict in reasons] == [Outcome.FAILS] * len(reasons)
    assert len({verdict.because for verdict in reasons}) == len(reasons)  # each says why


# ------------------------------------------------------------------ units and figures


def test_units_name_the_work():
    for scale in Scale:
        settings = study.STUDY.settings[scale]
        kinds = [unit.parameters["kind"] for unit in study.units(settings)]
        assert kinds.count("figure") == len(settings.couplings)
        assert kinds.count("modes") == kinds.count("decoders") == settings.seeds
        assert kinds.count("reach") == kinds.count("stuck") == len(settings.cliques)


def test_figures_show_what_was_found(figure_rows, reach_rows, pair_rows, decoder_rows):
    found = [*figure_rows, *reach_rows, *pair_rows, *decoder_rows]
    for draw in study.STUDY.figures:
        figure = draw(found)
        assert isinstance(figure, Figure)
        assert figure.title
        assert figure.caption
        for panel in figure.panels:
            assert isinstance(panel, Panel)
            assert all(len(series.x) for series in panel.series)
        assert draw([]).name == figure.name
    small, large, together = mode_figures.steps_figure(found).panels
    assert isinstance(small, Panel)
    assert isinstance(large, Panel)
    assert isinstance(together, Panel)
    assert [series.label for series in small.series] == ["k = 1", "k = 2", "k = 3", "exact"]
    assert [series.label for series in together.series][1] == "independent parallel"
    last = next(r for r in figure_rows if (r.get("coupling"), r["k"]) == (10.0, 4))
    assert large.series[0].y[-1] == pytest.approx(sum(last["repeats"]) / 10)
    other = next(r for r in figure_rows if (r.get("coupling"), r["k"]) == (7.0, 4))
    assert last["repeats"] != other["repeats"]  # units draw their own noise
