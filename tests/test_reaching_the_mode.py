"""The rows of the study are what they say; its judges see each way to be wrong."""

import math
import zlib

import pytest
import torch

from triptych.core.estimates import Outcome
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.studies import mode_decoders, mode_figures
from triptych.studies import mode_judges as judges
from triptych.studies import reaching_the_mode as study
from triptych.studies.figures import Figure, Panel
from triptych.studies.study import Scale, Unit
from triptych.theory import ferromagnet
from triptych.theory.ferromagnet import Ferromagnet
from triptych.theory.hitting import Hitting

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
    found += rows("sampler", setting="figure", coupling=2.5, blocks=(0, 1, 8), runs=300)
    for coupling in (2.0, 5.0, 7.0, 10.0):
        found += rows("figure", coupling=coupling, runs=300)
    return found


@pytest.fixture(scope="module")
def bound_rows():
    return rows("sampler", setting="bounds", coupling=0.42, blocks=(0, 8, 10), runs=300)


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
    verdict = mode_figures.judge_figure(figure_rows)
    assert verdict.outcome is Outcome.HOLDS
    assert "all 3 cells" in verdict.because
    for words in ("from J = 5 on", "up to J = 2 independent parallel does", "k ≤ 3 never", "50"):
        assert words in verdict.because
    assert verdict.measured["never_from"]["0"] == 5.0
    assert verdict.measured["never_from"]["4"] is None


def test_thin_evidence_for_the_figure_is_undecided(figure_rows):
    few = [row for row in figure_rows if row.get("coupling") not in (7.0, 10.0)]
    assert mode_figures.judge_figure(few).outcome is Outcome.UNDECIDED
    holes = [row for row in figure_rows if (row.get("coupling"), row["k"]) != (5.0, 3)]
    assert mode_figures.judge_figure(holes).outcome is Outcome.UNDECIDED
    assert mode_figures.judge_figure(mode_figures.FIGURE_HELD[1:]).outcome is Outcome.UNDECIDED


def test_a_small_fall_is_told_and_a_visible_one_fails():
    """k = 1: 10, 20, 30, then 30 (1 - 7e-7), rounded up to 7e-07; a fall by 0.2 % is one."""
    held = mode_figures.FIGURE_HELD
    last = next(row for row in held if (row.get("coupling"), row["k"]) == (3.0, 1))
    for fall, outcome in ((6.6e-7, Outcome.HOLDS), (2e-3, Outcome.FAILS)):
        changed = last | {"coupling": 4.0, "exact": 30.0 * (1 - fall)}
        verdict = mode_figures.judge_figure([*held, changed])
        assert verdict.outcome is outcome
        told = "falls of the mean by at most 7e-07" in verdict.because
        assert told is (outcome is Outcome.HOLDS)
    assert "fall" not in mode_figures.judge_figure(held).because
    creeping = [last | {"coupling": 3.0 + i, "exact": 30.0 * (1 - 6e-4 * i)} for i in range(3)]
    at_five = [row | {"coupling": 5.0} for row in held if row.get("coupling") == 4.0]
    verdict = mode_figures.judge_figure([*held, *at_five, *creeping])
    assert verdict.outcome is Outcome.FAILS  # 0.12 % in all, 0.06 % at a time


def test_runs_on_the_spins_are_needed(figure_rows):
    for k in (0, 1):
        without = [r for r in figure_rows if r["kind"] != "sampler" or (r["k"] == 0) is (k == 0)]
        assert mode_figures.judge_figure(without).outcome is Outcome.UNDECIDED


def test_shares_at_quantiles_by_hand():
    """T geometric with ½: half by t = 1, three quarters by 2; the quantiles of 10 steps are 1, 2, 7
    and, cut, 10."""
    matrix = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64).log()
    half = Hitting(matrix, torch.tensor([False, True]))
    found = mode_figures.compared(half, torch.tensor([1, 2, 3]), 2)
    assert found["times"] == [1, 2]
    assert found["exact_shares"] == pytest.approx([0.5, 0.75])
    assert (found["counts"], found["runs"]) == ([1, 2], 3)
    assert mode_figures.compared(half, torch.tensor([1]), 10)["times"] == [1, 2, 7, 10]
    assert mode_figures.compared(half, torch.tensor([1]), 20)["times"] == [1, 2, 7, 10, 20]


def test_a_fast_cell_drawn_slowly_is_found_out(figure_rows):
    """k = 10 arrives in one step; 2000 draws with a mean of 8 must not pass, nor a tail of 2 %."""
    one = next(r for r in figure_rows if r["kind"] == "figure" and r["k"] == 10)
    assert one["exact"] < 1.01
    assert judges.first_misfit([one]) is None
    for late in (2000, 40):
        counts = [2000 - late if t < 8 else 2000 for t in one["times"]]
        assert judges.first_misfit([one | {"counts": counts, "runs": 2000}]) is not None


def test_the_samplers_are_run_on_the_spins(figure_rows, bound_rows):
    """P(T = 1) by hand: with k = 8 of 10 spins the block holds the clique with C(6, 4) / C(10, 8) =
    1/3 and draws it up but for e^-8; in the bounds' model all at once from R_-1, J_0 = 0.1."""
    table = {
        (row["setting"], row["k"]): row for row in figure_rows + bound_rows if "setting" in row
    }
    eight = table["figure", 8]
    assert eight["exact_shares"][0] == pytest.approx(1 / 3, abs=1e-3)
    assert abs(eight["counts"][0] - 100) < 50  # 6 standard errors of 300 runs
    stay = 1 / (1 + math.exp(2 * (0.05 - 3 * 0.42)))
    freed = 1 - stay**4 - 4 * stay**3 * (1 - stay)  # two or more of the four rise
    stuck = table["bounds", 0]
    assert stuck["times"][0] == 1
    assert stuck["exact_shares"][0] == pytest.approx(freed)
    for row in table.values():
        assert 0 < row["counts"][-1] <= row["runs"] == 300
        assert row["counts"] == sorted(row["counts"])
        assert row["times"][-1] == 30
    assert Ferromagnet.equal(10, 4, 0.42, 0.05, 0.02).violations == []


@pytest.mark.parametrize("k", [8, 0])
def test_another_sampler_would_be_found_out(k, monkeypatch):
    """Blocks of one spin fewer; independent parallel that leaves the last spin of the clique."""
    step, together = study.gibbs.step, study.independent_step

    def smaller(ising, tokens, masks, rng):
        return step(ising, tokens, MaskLaw.of_size(10, 7), rng)

    def leaves_one(ising, tokens, rng):
        moved = together(ising, tokens, rng)
        moved[:, 3] = tokens[:, 3]
        return moved

    monkeypatch.setattr(study.gibbs, "step", smaller)
    monkeypatch.setattr(study, "independent_step", leaves_one)
    found = rows("sampler", setting="figure", coupling=2.5, blocks=(k,), runs=1000)
    assert judges.first_misfit(found) is not None


def test_rare_events_are_not_found_wrong():
    """One in 2000 is no contradiction of p = 1e-5; ten are."""
    assert judges.share_fits(1, 2000, 1e-5)
    assert not judges.share_fits(10, 2000, 1e-5)
    assert judges.share_fits(0, 2000, 0.0)
    assert not judges.share_fits(1, 2000, 0.0)
    assert judges.share_fits(None, 2000, 0.5)


# ------------------------------------------------------------------ the propositions


def test_modes_fail_by_an_equality_alone():
    found = rows("modes", models=15)
    verdict = judges.judge_modes(found)
    assert verdict.outcome is Outcome.FAILS
    assert "[1.0, 0.0] both sides of the log-ratio are 4" in verdict.because
    assert "With ≥" in verdict.because
    assert "counts every pair once" in verdict.because
    assert "ordered pairs" in verdict.because
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


def test_the_bound_on_k_gibbs_holds(reach_rows, bound_rows):
    found = reach_rows
    assert judges.judge_reach(found).outcome is Outcome.UNDECIDED  # no run on the spins
    verdict = judges.judge_reach(found + bound_rows)
    assert verdict.outcome is Outcome.HOLDS
    assert "k-Gibbs on the spins in 2" in verdict.because
    # N = k: every step draws from p, so T needs log δ / log(1 - p(R_1)) steps exactly
    row = next(row for row in found if row["block"] == row["spins"] and row["delta"] == 0.1)
    p = math.exp(row["log_step"])
    assert row["exact_steps"] == math.ceil(math.log(0.1) / math.log(1 - p))
    assert row["missed"] == pytest.approx((1 - p) ** row["steps"])
    assert all(row["steps"] >= row["exact_steps"] for row in found)
    assert any(row["drawn_missed"] is not None for row in found)
    assert judges.judge_reach(found[:3] + bound_rows).outcome is Outcome.UNDECIDED


def test_the_steps_that_are_needed_are_those_of_the_worst_start(reach_rows):
    """The least t at which R_1 is missed with at most δ from every number of up spins."""
    for row in reach_rows[::7]:
        extra = row["spins"] - row["clique"]
        free = row["clique_sum"] / 2 / extra if extra else 0.0
        model = Ferromagnet.with_margin(
            row["spins"],
            3,
            margin=row["margin"],
            clique_field=row["clique_sum"] / 3,
            free_field=free,
        )
        chain = ferromagnet.gibbs_chain(model, row["block"])
        hitting = Hitting(chain.log_matrix, chain.large)
        missed = [hitting.within(row["exact_steps"] - late)[1].max().exp() for late in (0, 1)]
        assert missed[0] <= row["delta"] * (1 + 1e-12) < missed[1] * (1 + 1e-12)


def test_the_stuck_bound_fails_in_its_corner_alone(pair_rows, bound_rows):
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
    assert judges.judge_stuck(kept + eight).outcome is Outcome.UNDECIDED
    assert judges.judge_stuck(kept + eight + bound_rows).outcome is Outcome.HOLDS
    assert judges.judge_stuck(eight + bound_rows).outcome is Outcome.UNDECIDED
    assert judges.judge_stuck(kept + bound_rows).outcome is Outcome.UNDECIDED


def test_the_corollary_holds():
    found = rows("corollary", horizon=1, deltas=DELTAS, runs=300)
    verdict = judges.judge_corollary(found)
    assert verdict.outcome is Outcome.HOLDS
    assert {row["violated"] for row in found} == {0}
    assert all(row["radius"] > 0 for row in found)
    power = int(verdict.because.rsplit("10^", 1)[1])
    largest = max(row["log_parallel_reached"] for row in found)
    assert (power - 1) * math.log(10) < largest <= power * math.log(10)
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
    zeros = next(row for row in found if row["what"] == "zeros")
    assert zeros["zeros"] == zeros["zeros_after_truncation"] == 12  # of 24 rows every other one
    assert zeros["leak"] == pytest.approx(math.exp(-60.0))  # the floor of `compiled_law`
    assert zeros["truncated_error"] < 1e-12
    assert "softmax cannot say 0" in verdict.because
    assert mode_decoders.judge_decoders([r for r in found if r["what"] != "zeros"]).outcome is (
        Outcome.UNDECIDED
    )
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
        assert isinstance(settings, study.ReachingTheMode)
        kinds = [unit.parameters["kind"] for unit in study.units(settings)]
        assert kinds.count("figure") == len(settings.couplings)
        assert kinds.count("sampler") == len(settings.sampled) + 1
        assert 0 in settings.blocks
        assert max(settings.blocks) >= 8
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
    caption = mode_figures.steps_figure(found).caption
    assert "true from J = 5 on, where blocks of k ≤ 2 do not arrive either" in caption
    later = [row for row in found if row.get("coupling") != 5.0]
    assert "true from J = 7 on" in mode_figures.steps_figure(later).caption
    assert mode_figures.never_from(figure_rows[3:], 4) is None
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
