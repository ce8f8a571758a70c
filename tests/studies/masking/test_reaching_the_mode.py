"""The rows of the study are what they say; its judges see each way to be wrong."""

import math
from dataclasses import replace

import pytest
import torch

from triptych.core.enumeration import exact_transition_matrix
from triptych.core.estimates import Status
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError
from triptych.inference.chains import gibbs
from triptych.lab.results.plots import to_svg
from triptych.lab.running.fingerprint import fingerprint
from triptych.lab.running.workbench import WorkBench
from triptych.models import constructions
from triptych.structures.ising import Ising
from triptych.studies.api.figures import Figure, Panel
from triptych.studies.api.study import Rows, Scale, override
from triptych.studies.masking.reaching_the_mode import decoders, steps
from triptych.studies.masking.reaching_the_mode.bounds import (
    BoundReaching,
    BoundStuck,
    CompareModes,
    Separate,
    random_model,
)
from triptych.studies.masking.reaching_the_mode.claims import FIGURE_HELD
from triptych.studies.masking.reaching_the_mode.decoders import WriteDecoders
from triptych.studies.masking.reaching_the_mode.figures import steps_figure
from triptych.studies.masking.reaching_the_mode.judge import (
    PAIR_MARGIN,
    fits,
    in_pair_edge,
    judge_corollary,
    judge_figure,
    judge_maps,
    judge_modes,
    judge_products,
    judge_reach,
    judge_stuck,
    never_from,
    share_fits,
)
from triptych.studies.masking.reaching_the_mode.rows import (
    BlockStep,
    DecoderStep,
    Lumping,
    MadeMap,
    MadeZeros,
    Modes,
    SpinRun,
    Steps,
)
from triptych.studies.masking.reaching_the_mode.steps import (
    BOUNDS,
    FIGURE,
    CompareLumping,
    CountSteps,
    RunOnSpins,
    compared,
)
from triptych.studies.masking.reaching_the_mode.study import STUDY
from triptych.theory.masking import ferromagnet
from triptych.theory.masking.blocks.dynamics import BlockDynamics
from triptych.theory.masking.ferromagnet import Ferromagnet
from triptych.theory.numerics.hitting import Hitting

pytestmark = pytest.mark.slow  # the study runs at smoke scale in test_studies

DELTAS = (0.9, 0.1)
COUPLINGS = (2.0, 3.0, 5.0, 7.0, 10.0)


@pytest.fixture(scope="module")
def gather(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    return lambda unit: list(STUDY.run(unit, WorkBench(unit.seed, "cpu", folder)))


@pytest.fixture(scope="module")
def figure_rows(gather):
    found = gather(CompareLumping((0, 1, 10), seed=0))
    found += gather(RunOnSpins(FIGURE, 2.5, (0, 1, 8), 300, seed=0))
    for coupling in COUPLINGS:
        found += gather(CountSteps(coupling, 300, seed=0))
    return Rows(found)


@pytest.fixture(scope="module")
def bound_rows(gather):
    return gather(RunOnSpins(BOUNDS, 0.42, (0, 8, 10), 300, seed=0))


@pytest.fixture(scope="module")
def reach_rows(gather):
    return gather(BoundReaching(3, DELTAS, 300, seed=0))


@pytest.fixture(scope="module")
def pair_rows(gather):
    return gather(BoundStuck(2, DELTAS, 300, seed=0))


@pytest.fixture(scope="module")
def eight_rows(gather):
    return gather(BoundStuck(8, DELTAS, 300, seed=0))


@pytest.fixture(scope="module")
def decoder_rows(gather):
    return Rows(gather(WriteDecoders(("2^3", "3^2"), seed=0)))


def outcome(judge, rows):
    return judge(Rows(rows)).outcome


def checks(verdict):
    return {check.sentence: check for check in verdict.checks}


# ------------------------------------------------------------------ Figure 4.3


def test_the_figure_by_hand(figure_rows):
    """k = N draws from p: R_1 in all but e^-40 of the draws. At J = 10 a smaller block must hold
    the clique, which a step does with C(6, k - 4) / C(10, k), so T is geometric, cut at 1000."""
    table = {(row.coupling, row.k): row for row in figure_rows.of(Steps)}
    assert table[10.0, 10].capped_mean == pytest.approx(1.0, abs=1e-8)
    for k in range(4, 10):
        p = math.comb(6, k - 4) / math.comb(10, k)
        assert table[10.0, k].capped_mean == pytest.approx((1 - (1 - p) ** 1000) / p, rel=1e-6)
        assert math.exp(table[10.0, k].log_mean) == pytest.approx(1 / p, rel=1e-6)
    assert [table[10.0, k].capped_mean for k in (0, 1, 2)] == pytest.approx([1000.0] * 3)
    # All four rise at once from R_-1 with sigmoid(2 (5 - 3J)) each, and there is no quicker way.
    rise = 1 / (1 + math.exp(50.0))
    assert table[10.0, 0].log_reached > math.log(1000 * rise**4)
    assert all(len(row.repeats) == 10 for row in table.values())
    assert max(row.lumping_error for row in figure_rows.of(Lumping)) < 1e-12
    # The remark of the ledger: outside of Assumption 4.1.5 twice, whatever J up to 50.
    for j, unmet in ((10.0, 2), (50.0, 2), (51.0, 1)):
        assert len(Ferromagnet.equal(10, 4, j, 5.0, 5.0).violations) == unmet


def test_the_figure_holds_except_for_blocks_of_all_spins(figure_rows):
    verdict = judge_figure(figure_rows)
    assert verdict.outcome is Status.HOLDS
    assert verdict.exceptions == ("k = N",)
    assert never_from(figure_rows.of(Steps), 0) == 5.0
    assert never_from(figure_rows.of(Steps), 4) is None
    shown = [check for check in verdict.checks if check.rule == "shown"]
    assert [check.value for check in shown] == [5.0]


def test_independent_parallel_arrives_at_weak_couplings(figure_rows):
    """The remark of the ledger: 4.2 steps at J = 2, 552 at J = 3, less than 1-Gibbs."""
    table = {(row.coupling, row.k): row.capped_mean for row in figure_rows.of(Steps)}
    assert table[2.0, 0] == pytest.approx(4.234, abs=1e-3)
    assert table[3.0, 0] == pytest.approx(552.36, abs=1e-2)
    assert table[2.0, 0] < table[2.0, 1]
    assert table[3.0, 0] < table[3.0, 1]
    assert never_from(figure_rows.of(Steps), 3) == 7.0


def test_thin_evidence_for_the_figure_is_undecided(figure_rows):
    def left_out(drop):
        return [row for row in figure_rows if not (isinstance(row, Steps) and drop(row))]

    assert outcome(judge_figure, left_out(lambda row: row.coupling > 5.0)) is Status.UNDECIDED
    assert outcome(judge_figure, left_out(lambda row: row.coupling == 2.0)) is Status.UNDECIDED
    holes = left_out(lambda row: (row.coupling, row.k) == (3.0, 3))
    assert outcome(judge_figure, holes) is Status.UNDECIDED
    for gone in (Lumping, SpinRun):
        rest = [row for row in figure_rows if not isinstance(row, gone)]
        assert outcome(judge_figure, rest) is Status.UNDECIDED
    for k in (0, 1):
        rest = [r for r in figure_rows if not isinstance(r, SpinRun) or (r.k == 0) is (k == 0)]
        assert outcome(judge_figure, rest) is Status.UNDECIDED


def test_strong_couplings_alone_say_nothing_about_growth(figure_rows):
    """From J = 7 on k ≥ 4 takes as long as at J = 10, which is no evidence against growth."""
    alone = [row for row in figure_rows if not isinstance(row, Steps) or row.coupling >= 5.0]
    assert outcome(judge_figure, alone) is Status.UNDECIDED


def test_a_small_fall_is_no_fall_and_a_visible_one_fails():
    """k = 4: 5.1, 10.4, 19, 208.2, then 208.2 (1 - 7e-7); a fall by 0.2 % is one."""
    last = next(r for r in FIGURE_HELD if isinstance(r, Steps) and (r.coupling, r.k) == (10.0, 4))
    ends = [r for r in FIGURE_HELD if isinstance(r, Steps) and r.coupling == 10.0]

    def judged(*falls):
        more = []
        for number, fall in enumerate(falls, start=1):
            at = 10.0 + number
            more += [replace(row, coupling=at) for row in ends if row.k != 4]
            more.append(replace(last, coupling=at, capped_mean=208.2 * (1 - fall)))
        return outcome(judge_figure, [*FIGURE_HELD, *more])

    assert judged(6.6e-7) is Status.HOLDS
    assert judged(2e-3) is Status.FAILS
    assert judged(6e-4, 12e-4) is Status.FAILS  # 0.12 % in all, 0.06 % at a time


def test_draws_that_do_not_fit_leave_the_figure_undecided(figure_rows):
    """They say that our own code is wrong, and nothing about the figure."""
    cell = next(row for row in figure_rows.of(Steps) if row.k == 8)
    spoiled = [replace(r, counts=(0,) * len(r.counts)) if r is cell else r for r in figure_rows]
    assert outcome(judge_figure, spoiled) is Status.UNDECIDED
    lumped = figure_rows.of(Lumping)[0]
    spoiled = [replace(r, lumping_error=0.1) if r is lumped else r for r in figure_rows]
    assert outcome(judge_figure, spoiled) is Status.UNDECIDED


def test_shares_at_quantiles_by_hand():
    """T geometric with ½: half by t = 1, three quarters by 2; the quantiles of 10 steps are 1, 2, 7
    and, cut, 10."""
    matrix = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64).log()
    half = Hitting(matrix, torch.tensor([False, True]))
    found = compared(half, torch.tensor([1, 2, 3]), 2)
    assert found.times == (1, 2)
    assert found.exact_shares == pytest.approx((0.5, 0.75))
    assert (found.counts, found.runs) == ((1, 2), 3)
    assert compared(half, torch.tensor([1]), 10).times == (1, 2, 7, 10)
    assert compared(half, torch.tensor([1]), 20).times == (1, 2, 7, 10, 20)


def test_a_fast_cell_drawn_slowly_is_found_out(figure_rows):
    """k = 10 arrives in one step; 2000 draws with a mean of 8 must not pass, nor a tail of 2 %."""
    one = next(row for row in figure_rows.of(Steps) if row.k == 10)
    assert one.capped_mean < 1.01
    assert fits(one)
    for late in (2000, 40):
        counts = tuple(2000 - late if t < 8 else 2000 for t in one.times)
        assert not fits(replace(one, counts=counts, runs=2000))


def test_the_samplers_are_run_on_the_spins(figure_rows, bound_rows):
    """P(T = 1) by hand: with k = 8 of 10 spins the block holds the clique with C(6, 4) / C(10, 8) =
    1/3 and draws it up but for e^-8; in the bounds' model all at once from R_-1, J_0 = 0.1."""
    table = {(row.setting, row.k): row for row in figure_rows.of(SpinRun) + bound_rows}
    eight = table[FIGURE, 8]
    assert eight.exact_shares[0] == pytest.approx(1 / 3, abs=1e-3)
    assert abs(eight.counts[0] - 100) < 50  # 6 standard errors of 300 runs
    stay = 1 / (1 + math.exp(2 * (0.05 - 3 * 0.42)))
    freed = 1 - stay**4 - 4 * stay**3 * (1 - stay)  # two or more of the four rise
    stuck = table[BOUNDS, 0]
    assert stuck.times[0] == 1
    assert stuck.exact_shares[0] == pytest.approx(freed)
    for row in table.values():
        assert 0 < row.counts[-1] <= row.runs == 300
        assert list(row.counts) == sorted(row.counts)
        assert row.times[-1] == 30
    assert Ferromagnet.equal(10, 4, 0.42, 0.05, 0.02).violations == []


@pytest.mark.parametrize("k", [8, 0])
@pytest.mark.slow
def test_another_sampler_would_be_found_out(k, monkeypatch, gather):
    """Blocks of one spin fewer; independent parallel that leaves the last spin of the clique."""
    step, together = steps.gibbs.step, steps.independent_step

    def smaller(ising, tokens, masks, rng):
        return step(ising, tokens, MaskLaw.of_size(10, 7), rng)

    def leaves_one(ising, tokens, rng):
        moved = together(ising, tokens, rng)
        moved[:, 3] = tokens[:, 3]
        return moved

    unit = RunOnSpins(FIGURE, 2.5, (k,), 1000, seed=0)
    assert all(map(fits, gather(unit)))
    monkeypatch.setattr(steps.gibbs, "step", smaller)
    monkeypatch.setattr(steps, "independent_step", leaves_one)
    assert not any(map(fits, gather(unit)))


def test_rare_events_are_not_found_wrong():
    """One in 2000 is no contradiction of p = 1e-5; ten are."""
    assert share_fits(1, 2000, 1e-5)
    assert not share_fits(10, 2000, 1e-5)
    assert share_fits(0, 2000, 0.0)
    assert not share_fits(1, 2000, 0.0)
    assert share_fits(None, 2000, 0.5)


# ------------------------------------------------------------------ Proposition 4.3.3


def test_modes_hold_except_for_an_equality(gather):
    found = gather(CompareModes(15, seed=0))
    verdict = judge_modes(Rows(found))
    assert verdict.outcome is Status.HOLDS
    assert verdict.exceptions == ("|C| = 2 with a clique field of 0",)
    assert (
        checks(verdict)[
            "logarithm of p(state of R_-1) / p(state outside both modes) minus 2 J_0: smallest"
        ].value
        == 0.0
    )
    assert max(row.enumeration_error for row in found if row.enumeration_error is not None) < 1e-12
    # J = 3, clique fields (1, 0): y = (-,-) has log-weight 2 and z = (+,-) has -2.
    assert (found[0].small_over_rest, found[0].twice_margin) == (4.0, 4.0)
    edge = [row for row in found if row.clique == 2 and 0.0 in row.clique_fields]
    others = [row for row in found if row not in edge]
    assert all(row.small_over_rest == row.twice_margin for row in edge)
    assert all(row.small_over_rest > row.twice_margin for row in others)
    assert len(edge) >= 2
    assert {row.violated for row in found} == {0}
    assert outcome(judge_modes, others) is Status.UNDECIDED  # nothing from the edge
    assert outcome(judge_modes, [replace(r, violated=1) for r in found]) is Status.UNDECIDED
    assert outcome(judge_modes, [replace(r, enumeration_error=0.1) for r in found]) is (
        Status.UNDECIDED
    )


def test_the_equality_needs_a_pair_and_a_field_of_zero():
    """For |C| = 2 the ratio exceeds 2 J_0 by twice the smaller |field|; more spins add 2 J each."""
    for smaller in (-0.5, -0.25, 0.0, 0.25, 0.5):
        model = Ferromagnet(5.0, (1.0, smaller), (0.25,))
        assert model.violations == []
        excess = ferromagnet.mode_ratios(model).small_over_rest - 2 * model.margin
        assert excess == 2 * abs(smaller)
    for free in ((), (0.25,)):
        model = Ferromagnet(5.0, (1.0, 0.0, 0.0), free)
        excess = ferromagnet.mode_ratios(model).small_over_rest - 2 * model.margin
        assert excess == 2 * 5.0


def test_random_models_satisfy_the_assumption():
    rng = TorchRng(3)
    models = [random_model(rng) for _ in range(80)]
    assert all(model.violations == [] for model in models)
    assert {model.clique for model in models} == {2, 3, 4, 5, 6}
    assert any(min(model.clique_fields) < 0 for model in models)
    assert any(model.free_fields for model in models)


# ------------------------------------------------------------------ Proposition 4.1.4


def test_the_bound_on_k_gibbs_holds(reach_rows, bound_rows):
    found = reach_rows
    assert outcome(judge_reach, found) is Status.UNDECIDED  # no run on the spins
    verdict = judge_reach(Rows(found + bound_rows))
    assert verdict.outcome is Status.HOLDS
    # N = k: every step draws from p, so T needs log δ / log(1 - p(R_1)) steps exactly
    row = next(row for row in found if row.block == row.spins and row.delta == 0.1)
    p = math.exp(row.log_step)
    assert row.exact_steps == math.ceil(math.log(0.1) / math.log(1 - p))
    assert row.missed == pytest.approx((1 - p) ** row.steps)
    assert all(row.steps >= row.exact_steps for row in found)
    assert all(row.log_step >= row.log_step_bound for row in found)  # what the proof shows
    assert any(row.drawn_missed is not None for row in found)
    assert outcome(judge_reach, found[:3] + bound_rows) is Status.UNDECIDED
    wrong = [replace(r, drawn_missed=r.runs) if r.drawn_missed is not None else r for r in found]
    assert outcome(judge_reach, wrong + bound_rows) is Status.UNDECIDED


def test_without_the_power_the_constant_would_be_wrong():
    """2 |C| - 2 instead of 2^|C| - 2: four spins with hardly any coupling are all up in 1/16 of
    the draws, and 1 - c would be 1/8."""
    model = Ferromagnet.with_margin(4, 4, margin=1e-6, clique_field=1e-7)
    chain = ferromagnet.gibbs_chain(model, 4)
    step = float(Hitting(chain.log_matrix, chain.large).within(1)[0][0].exp())
    assert step == pytest.approx(1 / 16, abs=1e-4)
    assert math.exp(ferromagnet.log_reaching(model, 4)) == pytest.approx(1 / 16, abs=1e-4)
    e = math.exp(2 * model.margin)
    up = math.exp(2 * (model.margin + model.clique_sum))
    assert step < up / (up + e + 2 * 4 - 2)


def test_the_steps_that_are_needed_are_those_of_the_worst_start(reach_rows):
    """The least t at which R_1 is missed with at most δ from every number of up spins."""
    for row in reach_rows[::7]:
        extra = row.spins - row.clique
        free = row.clique_sum / 2 / extra if extra else 0.0
        model = Ferromagnet.with_margin(
            row.spins, 3, margin=row.margin, clique_field=row.clique_sum / 3, free_field=free
        )
        chain = ferromagnet.gibbs_chain(model, row.block)
        hitting = Hitting(chain.log_matrix, chain.large)
        missed = [hitting.within(row.exact_steps - late)[1].max().exp() for late in (0, 1)]
        assert missed[0] <= row.delta * (1 + 1e-12) < missed[1] * (1 + 1e-12)


# ------------------------------------------------------------------ Proposition 4.1.5


def test_the_stuck_bound_holds_except_at_its_edge(pair_rows, eight_rows, bound_rows):
    found = pair_rows + eight_rows + bound_rows
    verdict = judge_stuck(Rows(found))
    assert verdict.outcome is Status.HOLDS
    assert verdict.exceptions == ("|C| = 2 with J_0 < 0.0072",)
    promised = [row for row in pair_rows + eight_rows if row.steps >= 1]
    broken = [row for row in promised if row.stayed < 1 - row.delta]
    assert {row.margin for row in broken} == {0.0005, 0.001, 0.005, 0.007}
    assert all(in_pair_edge(row) for row in broken)
    assert {row.margin for row in promised if row.clique == 2} >= {0.0072, 0.0075, 0.01, 0.05}
    for row in broken:  # both spins stay down with the sigmoids of 2 J and 2 (J - h)
        stay = [1 / (1 + math.exp(-2 * x)) for x in (row.margin, row.margin + 1e-6)]
        assert row.stayed == pytest.approx(math.prod(stay), rel=1e-9)
    kept = [row for row in found if row not in broken]
    assert judge_stuck(Rows(kept)).exceptions == ()
    assert outcome(judge_stuck, pair_rows + eight_rows) is Status.UNDECIDED
    assert outcome(judge_stuck, eight_rows + bound_rows) is Status.UNDECIDED
    assert outcome(judge_stuck, pair_rows + bound_rows) is Status.UNDECIDED
    wrong = [replace(row, drawn_stayed=0) for row in eight_rows if row.drawn_stayed]
    assert outcome(judge_stuck, pair_rows + wrong + bound_rows) is Status.UNDECIDED


def test_the_edge_ends_where_the_promise_and_the_chance_meet():
    """2 exp(-(1 - t)²) = 1 - ((1 + t) / 2)² with t = tanh J_0, by bisection: J_0 = 0.0071977."""

    def gap(margin):
        low, high = ferromagnet.stuck_gap(margin)
        t = math.tanh(margin)
        assert low == pytest.approx(2 * math.exp(-((1 - t) ** 2)))
        assert high == pytest.approx(1 - ((1 + t) / 2) ** 2)
        return high - low

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(middle) > 0 else (low, middle)
    assert low == pytest.approx(0.00719774, abs=1e-8)
    assert low < PAIR_MARGIN < low + 1e-5
    margins = [0.0001 * 1.05**i for i in range(200)]
    gaps = [gap(margin) for margin in margins]
    assert gaps == sorted(gaps, reverse=True)  # so that it is false below and true above


def test_the_bound_fails_nowhere_else():
    """Every |C| up to 16, J_0 from 0.001 to 4, fields near 0, at each δ where T grows by one: the
    hardest ones. The chance to leave is computed here from binomial sums, for one step."""

    def leaving(clique, margin):
        """P(two or more spins rise from R_-1 or less, from the worst of all starts with Σ ≤ -2)."""
        worst = 0.0
        for up in range((clique - 2) // 2 + 1):
            others = [2 * up - (clique - 1), 2 * (up - 1) - (clique - 1)]  # of a spin down, up
            down_rises, up_stays = (1 / (1 + math.exp(-2 * margin * m)) for m in others)
            law = [1.0]
            for p in [up_stays] * up + [down_rises] * (clique - up):
                law = [a * (1 - p) + b * p for a, b in zip([*law, 0.0], [0.0, *law], strict=True)]
            worst = max(worst, sum(law[(clique - 2) // 2 + 1 :]))
        return worst

    broken, vacuous = [], set(range(2, 17))
    for clique in range(2, 17):
        for margin in [0.001 * 1.2**i for i in range(46)]:
            exponent = ferromagnet.stuck_exponent(clique, margin)
            once = leaving(clique, margin)
            for number in (1, 2, 3, 10, 100):
                delta = 2 * number * math.exp(-exponent)
                if delta >= 1:
                    break
                vacuous.discard(clique)
                # P(leaves within T) ≤ T P(leaves in a step), with equality for T = 1
                if number * once > delta:
                    broken.append((clique, margin, number))
    assert {(clique, number) for clique, _, number in broken} == {(2, 1)}
    assert max(margin for _, margin, _ in broken) < PAIR_MARGIN
    assert vacuous == {3, 4}


# ------------------------------------------------------------------ Corollary 4.1.1


def test_the_corollary_holds(gather):
    found = gather(Separate(1, DELTAS, 300, seed=0))
    verdict = judge_corollary(Rows(found))
    assert verdict.outcome is Status.HOLDS
    assert {row.violated for row in found} == {0}
    assert all(row.radius > 0 for row in found)  # what its proof needs of Proposition 4.1.5
    for row in found:
        both = math.exp(row.log_gibbs_missed) + math.exp(row.log_parallel_reached)
        assert row.failure == pytest.approx(both)
    whole = [row for row in found if row.block == row.spins]
    assert outcome(judge_corollary, whole) is Status.UNDECIDED
    wrong = [replace(row, drawn_missed=row.runs) for row in found]
    assert outcome(judge_corollary, wrong) is Status.UNDECIDED


# ------------------------------------------------------------------ Propositions 4.1.2 and 4.1.3


def test_maps_and_products_hold(decoder_rows):
    assert judge_maps(decoder_rows).outcome is Status.HOLDS
    assert judge_products(decoder_rows).outcome is Status.HOLDS
    assert [(row.name, row.states) for row in decoder_rows.of(MadeMap)] == [("2^3", 8), ("3^2", 9)]
    zeros = decoder_rows.of(MadeZeros)[0]
    assert (zeros.zeros, zeros.zeros_left) == (12, 0)  # of 24 laws every other one
    assert zeros.leak == pytest.approx(math.exp(-60.0))  # the floor of `compiled_law`
    for gone in (DecoderStep, MadeZeros, BlockStep, decoders.MadeLaw):
        rest = [row for row in decoder_rows if not isinstance(row, gone)]
        assert outcome(judge_products, rest) is Status.UNDECIDED
    rest = [row for row in decoder_rows if not isinstance(row, MadeMap)]
    assert outcome(judge_maps, rest) is Status.UNDECIDED


def test_distances_from_a_product_by_hand(decoder_rows):
    """Two spins. J = 0, k = 1: q²/2 with q = ½. k = 2 draws both from p, whose bits agree with
    sigmoid(2J) and are fair each: tanh(J) / 2 from a product, log 2 - H(sigmoid 2J) nats."""
    found = {(row.model, row.k): row for row in decoder_rows.of(BlockStep)}
    assert found["pair, J = 0", 1].distance == pytest.approx(1 / 8)
    assert found["pair, J = 0", 2].distance < 1e-12
    assert not found["pair, J = 0", 2].coupled
    pair = found["pair, J = 1", 2]
    assert pair.distance == pytest.approx(math.tanh(1.0) / 2)
    assert pair.given_block == pytest.approx(math.tanh(1.0) / 2)
    p = 1 / (1 + math.exp(-2.0))
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert pair.correlation == pytest.approx(math.log(2) - entropy)
    assert all(row.given_block < 1e-12 for row in found.values() if row.k == 1)
    clique = [found["clique, J = 1", k] for k in (1, 2, 3, 4)]
    assert max(row.joint_off for row in clique) < 1e-12
    assert clique[0].factorised_off < 1e-12  # k = 1
    assert min(row.factorised_off for row in clique[1:]) > 1e-3
    assert min(row.given_block for row in clique[1:]) > 0.05


@pytest.mark.parametrize("k", [1, 2, 3])
def test_blocks_given_and_drawn_are_those_of_the_sampler(k):
    """The mean over blocks is the matrix of k-Gibbs, and both are what `gibbs.step` does."""
    ising = Ising.random(3, scale=1.0, seed=4)
    table, masks = Table.of(ising), MaskLaw.of_size(3, k)
    given = [decoders.given_block(table.log_probs.exp(), hidden) for hidden in masks.blocks]
    mean = torch.stack(given).mean(0)
    torch.testing.assert_close(mean, BlockDynamics(table, masks).transition())

    def move(state, rng):
        return tuple(gibbs.step(ising, torch.tensor([state]), masks, rng)[0].tolist())

    states = [tuple(x) for x in all_sequences(2, 3).tolist()]
    torch.testing.assert_close(mean, exact_transition_matrix(states, move))


def test_a_block_given_by_hand():
    """p uniform on {00, 11}, but for a little everywhere: the second bit follows the first."""
    probs = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64)
    found = decoders.given_block(probs, torch.tensor([False, True]))
    wanted = [[0.8, 0.2, 0, 0], [0.8, 0.2, 0, 0], [0, 0, 0.4, 0.6], [0, 0, 0.4, 0.6]]
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64))


@pytest.mark.slow
def test_a_decoder_that_looks_at_its_own_draws_is_found_out(monkeypatch, gather):
    """Positions drawn one after the other, each given what was drawn before: no product law."""

    def in_turn(oracle, tokens, rng):
        out = tokens.clone()
        for place in range(tokens.shape[1]):
            hidden = torch.zeros_like(tokens, dtype=torch.bool)
            hidden[:, place] = True
            out[:, place] = rng.categorical(oracle.masked_log_probs(out, hidden)[:, place])
        return out

    monkeypatch.setattr(decoders, "independent_step", in_turn)
    found = Rows(gather(WriteDecoders(("2^3",), seed=1)))
    wrong = [row.name for row in found.of(DecoderStep) if row.distance > 1e-3]
    assert "random weights, each position given the others" in wrong
    assert "independent parallel, random couplings" in wrong
    assert judge_products(found).outcome is Status.FAILS


def test_every_decoder_moves_differently(decoder_rows):
    names = [row.name for row in decoder_rows.of(DecoderStep)]
    assert len(names) == len(set(names)) == 9
    ways = decoders._random_decoders(0)
    chains = [decoders._enumerated(step, 3) for step in ways.values()]
    for i, chain in enumerate(chains):
        torch.testing.assert_close(chain.sum(-1), torch.ones(8, dtype=torch.float64))
        assert all((chain - other).abs().max() > 0.01 for other in chains[:i])
    assert (chains[1] == 0).any()  # the nucleus drops something
    assert ((chains[2] == 0) | (chains[2] == 1)).all()  # argmax


@pytest.mark.slow
def test_a_wrong_network_is_found_out(monkeypatch, gather):
    """A network that confuses two sequences, and one whose laws are a little flatter."""
    written, law = constructions.compiled_map, constructions.compiled_law

    def confused(images, vocab):
        images = images.clone()
        images[0] = (images[0] + 1) % vocab
        return written(images, vocab)

    monkeypatch.setattr(decoders.constructions, "compiled_map", confused)
    monkeypatch.setattr(
        decoders.constructions, "compiled_law", lambda laws: law(0.9 * laws + 0.1 / laws.shape[-1])
    )
    found = Rows(gather(WriteDecoders(("2^3", "3^2"), seed=1)))
    assert judge_maps(found).outcome is Status.FAILS
    assert judge_products(found).outcome is Status.FAILS


# ------------------------------------------------------------------ units and figures


def test_units_name_the_work():
    for scale in Scale:
        settings = STUDY.settings[scale]
        kinds = [type(unit) for unit in STUDY.units(settings)]
        assert kinds.count(CountSteps) == len(settings.couplings)
        assert kinds.count(RunOnSpins) == len(settings.sampled) + 1
        assert 0 in settings.blocks
        assert max(settings.blocks) >= 8
        assert kinds.count(CompareModes) == kinds.count(WriteDecoders) == settings.seeds
        assert kinds.count(BoundReaching) == kinds.count(BoundStuck) == len(settings.cliques)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("blocks", "[0, 11]", "must be in 0..10"),
        ("couplings", "[1.0, -2.0]", "must be above 0"),
        ("cliques", "[1]", "at least 2"),
        ("deltas", "[0.5, 1.0]", "strictly between 0 and 1"),
        ("runs", "0", "runs must be at least 1"),
        ("maps", '["23"]', "must be V\\^N"),
        ("maps", '["9^9"]', "1 to 4096 sequences"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name, text, sentence):
    with pytest.raises(UserError, match=sentence):
        STUDY.units(override(STUDY.settings[Scale.SMOKE], {name: text}))


def test_judges_and_figures_are_no_part_of_the_fingerprint(monkeypatch):
    """What is drawn and how it is judged decides no row."""
    before = fingerprint(STUDY)
    reached = replace(STUDY, claims=(), figures=())
    assert fingerprint(reached) == before


def test_figures_show_what_was_found(figure_rows, reach_rows, pair_rows, decoder_rows):
    found = Rows([*figure_rows, *reach_rows, *pair_rows, *decoder_rows])
    for draw in STUDY.figures:
        figure = draw(found)
        assert isinstance(figure, Figure)
        assert figure.title
        assert figure.caption
        for panel in figure.panels:
            assert isinstance(panel, Panel)
            assert all(len(series.x) for series in panel.series)
        assert draw(Rows()).name == figure.name
        assert to_svg(figure).startswith("<svg")
    caption = steps_figure(found).caption
    assert "true from J = 5 on, where blocks of k ≤ 2 do not arrive either" in caption
    later = [row for row in found if not (isinstance(row, Steps) and row.coupling == 5.0)]
    assert "true from J = 7 on" in steps_figure(Rows(later)).caption
    small, large, together = steps_figure(found).panels
    assert isinstance(small, Panel)
    assert isinstance(large, Panel)
    assert isinstance(together, Panel)
    assert [series.label for series in small.series] == ["k = 1", "k = 2", "k = 3", "exact"]
    assert [series.label for series in together.series][1] == "independent parallel"
    table = {(row.coupling, row.k): row for row in figure_rows.of(Steps)}
    assert large.series[0].y[-1] == pytest.approx(sum(table[10.0, 4].repeats) / 10)
    assert table[10.0, 4].repeats != table[7.0, 4].repeats  # units draw their own noise


def test_rows_survive_the_store(decoder_rows, pair_rows):
    for row in [*decoder_rows, *pair_rows[:3], *[r for r in pair_rows if isinstance(r, Modes)]]:
        assert STUDY.row_from_json(STUDY.row_to_json(row, 0)) == row
