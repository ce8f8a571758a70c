"""The study of k-pseudolikelihood: its data, its rows, and every way its judge can answer."""

import math
from dataclasses import replace

import pytest
import torch

from triptych.core.estimates import Status
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.lab.results.plots import to_svg
from triptych.lab.running.workbench import WorkBench
from triptych.structures.ising import Ising
from triptych.studies.api.figures import Panel
from triptych.studies.api.study import Rows, Scale
from triptych.studies.masking.masking_more import study
from triptych.studies.masking.masking_more.errors import (
    complete,
    errors_by_size,
    in_published_order,
    limit_ratios,
)
from triptych.studies.masking.masking_more.judge import FEWEST, made, refuting
from triptych.studies.masking.masking_more.rows import PEAKY, WEAK, Descended, Fitted
from triptych.studies.masking.masking_more.study import STUDY, FitData, MaskingMore, gather
from triptych.theory.masking import estimators
from triptych.theory.masking import information as masking
from triptych.theory.masking.families import IsingFamily


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    found, folder = [], tmp_path_factory.mktemp("cache")
    for unit in STUDY.units(MaskingMore(seeds=1, sizes=(100, 500), repeats=100)):
        found += STUDY.run(unit, WorkBench(unit.seed, "cpu", folder))
    return Rows(found)


def of(rows, kind=Fitted, **wanted):
    found = [row for row in rows if isinstance(row, kind)]
    return [row for row in found if all(getattr(row, n) == value for n, value in wanted.items())]


# ------------------------------------------------------------------ data and rows


def test_every_k_sees_the_same_sequences(monkeypatch):
    monkeypatch.setattr(study, "_AT_ONCE", 120)  # three parts
    data = gather(Ising.clique_and_free(4, 4, 0.3, 0.0), samples=50, repeats=5, rng=TorchRng(0))
    for k in (1, 2, 3, 4):
        assert data.drawn[k].shape == (5, math.comb(4, k), 16)
        assert data.drawn[k].sum((1, 2)).tolist() == [50.0] * 5
        torch.testing.assert_close(data.drawn[k].sum(1), data.drawn[4][:, 0])
        torch.testing.assert_close(data.every[k].sum(1), data.drawn[4][:, 0])
        spread = data.every[k] - data.every[k].mean(1, keepdim=True)
        assert spread.abs().max() < 1e-12  # all blocks alike


def test_rows_are_fits_of_the_data(rows, tmp_path):
    """One row again from the pieces, and the limits by theory."""
    bench = WorkBench(0, "cpu", tmp_path)
    first = next(iter(STUDY.run(FitData(0.3, 100, 100, seed=0), bench)))
    ising = Ising.clique_and_free(4, 4, 0.3, 0.0)
    data = gather(ising, 100, 100, TorchRng(bench.rng("data, fit, J = 0.3, n = 100").seed))
    family, one = IsingFamily(ising), MaskLaw.of_size(4, 1)
    found = estimators.fit(family, one, data.drawn[1])
    wanted = (found.theta - family.theta).square().sum(1)
    assert (first.k, first.masks, first.samples) == (1, "one", 100)
    for error, value, exists in zip(first.errors, wanted, found.exists, strict=True):
        assert (error is None) == (not bool(exists))
        assert error is None or error == pytest.approx(float(value), rel=1e-5)  # six digits
    assert first.without_estimate == first.errors.count(None) > 0
    assert first.limit == pytest.approx(float(masking.asymptotic_covariance(family, one).trace()))


def test_with_all_masks_two_or_more_hidden_spins_are_one_estimate(rows):
    for coupling in (WEAK, PEAKY):
        by_size = errors_by_size(rows, coupling, "all")
        for errors in by_size.values():
            whole = complete(errors)
            assert whole[2] == pytest.approx(whole[4], rel=2e-5)
            assert whole[3] == pytest.approx(whole[4], rel=2e-5)
            assert whole[1] != pytest.approx(whole[4], rel=1e-5)


def test_maximum_likelihood_needs_no_masks(rows):
    for n in (100, 500):
        one, every = (of(rows, k=4, masks=m, samples=n, coupling=WEAK)[0] for m in ("one", "all"))
        assert one.errors == pytest.approx(every.errors, rel=1e-6)
    for k in (1, 2, 3, 4):
        limit = of(rows, k=k, masks="all", coupling=WEAK)[0].limit
        assert limit == pytest.approx(10.1116, rel=1e-4)


def test_descent_finds_the_same_minimum(rows):
    found = of(rows, Descended)
    assert len(found) == 8
    assert all(row.gap < 1e-3 and row.data_sets == 10 for row in found)
    assert all(row.steps > 10 for row in found)


def _series(figure):
    return [panel.series for panel in figure.panels if isinstance(panel, Panel)]


def test_figures_of_a_small_run(rows):
    for figure in STUDY.figures:
        assert to_svg(figure(rows)).startswith("<svg")
    error, gain, ten = (_series(figure(rows)) for figure in STUDY.figures)
    assert [series.kind for series in error[0]] == ["ours"] * 4 + ["truth"] * 4
    truth = error[0][-1]
    assert truth.y == pytest.approx([10.1116, 10.1116], rel=1e-4)
    assert truth.x == (100, 500)
    measured = gain[1][0]
    assert measured.x == (1, 2, 3, 4)
    whole = complete(errors_by_size(rows, PEAKY, "one")[500])
    assert measured.y[0] == pytest.approx(500 * sum(whole[1]) / len(whole[1]))
    assert [series.kind for series in ten[0]] == ["ours", "control"]


# ------------------------------------------------------------------ the judge

CLAIMS = {coupling: claim for claim, coupling in zip(STUDY.claims, (WEAK, PEAKY), strict=True)}
each = pytest.mark.parametrize("coupling", CLAIMS)
STEPS = ("k = 1 to 2", "k = 2 to 3", "k = 3 to 4")


def deciding(said):
    return [check for check in said.checks if check.outcome is not None]


def shown(said):
    return {check.sentence: check for check in said.checks if check.outcome is None}


@each
def test_errors_that_fall_hold(coupling):
    """Errors at their limits save what the limits say: 1 at every step."""
    said = CLAIMS[coupling].verdict(made(coupling))
    assert said.outcome is Status.HOLDS
    assert [check.value for check in deciding(said)] == pytest.approx([1.0] * 3)
    assert [check.published for check in deciding(said)] == [1.0] * 3
    assert [check.sentence[:10] for check in deciding(said)] == list(STEPS)
    for k in (1, 2, 3, 4):
        ratio = shown(said)[
            f"k = {k}: squared error divided by its limit Tr(Γ)/n, at the largest n"
        ]
        assert ratio.value == pytest.approx(1.0)


@each
def test_each_refutation_names_its_step(coupling):
    wrong = [{0}, {1}, {2}, {0, 1, 2}, {2}]
    for rows, steps in zip(refuting(coupling), wrong, strict=True):
        said = CLAIMS[coupling].verdict(rows)
        assert said.outcome is Status.FAILS
        fails = {i for i, check in enumerate(deciding(said)) if check.outcome is Status.FAILS}
        assert fails == steps


@each
def test_no_effect_fails(coupling):
    """Equal errors save 0, which excludes half of what the limits say."""
    said = CLAIMS[coupling].verdict(made(coupling, dict.fromkeys((1, 2, 3, 4), 10.0)))
    assert said.outcome is Status.FAILS
    assert [check.value for check in deciding(said)] == pytest.approx([0.0] * 3)


@each
def test_the_other_coupling_says_nothing(coupling):
    other = PEAKY if coupling == WEAK else WEAK
    assert CLAIMS[coupling].verdict(made(other)).outcome is Status.UNDECIDED


def changed(kind=Fitted, only=lambda row: True, **changes):
    return [
        replace(row, **changes) if isinstance(row, kind) and only(row) else row
        for row in made(WEAK)
    ]


def with_errors(change, only=lambda row: True):
    """The rows that hold, with other errors: change(error, its number)."""
    return [
        replace(row, errors=tuple(change(e, i) for i, e in enumerate(row.errors)))
        if isinstance(row, Fitted) and only(row)
        else row
        for row in made(WEAK)
    ]


def undecided(rows, sentence):
    said = CLAIMS[WEAK].verdict(rows)
    assert said.outcome is Status.UNDECIDED
    assert any(sentence in line for line in said.missing), said.missing


def test_thin_evidence_is_undecided():
    rows, sizes = made(WEAK), "sizes with 100 data sets and estimates for 95% of them"
    descent = "gradient descent ends where Newton's method does"
    undecided([row for row in rows if row.samples == 1000], f"{sizes}: 1 of 2")
    undecided([row for row in rows if row.k != 3], f"{sizes}: 0 of 2")
    short = [replace(r, errors=r.errors[:99]) if isinstance(r, Fitted) else r for r in rows]
    undecided(short, f"{sizes}: 0 of 2")
    undecided(of(rows), f"{descent}: 0 of 4")
    undecided(changed(Descended, gap=0.1), f"{descent}: 0 of 4")
    for k in (1, 2, 3, 4):

        def at(row, k=k):
            return row.k == k

        gone = [row for row in rows if not (isinstance(row, Descended) and at(row))]
        undecided(gone, f"{descent}: 3 of 4")
        undecided(changed(Descended, at, gap=None, data_sets=0), f"{descent}: 3 of 4")
        undecided(changed(Descended, at, data_sets=0), f"{descent}: 3 of 4")
        undecided(changed(Descended, at, gap=0.1), f"{descent}: 3 of 4")
    undecided(changed(largest_gradient=1e-3), "reached the minimum of their loss: 0 of 8")


def test_the_worst_size_is_shown():
    """Half of the effect is left at one size of data: it holds, and that is the number."""
    rows = with_errors(
        lambda error, i: error * 10.5 / 10.0, lambda row: (row.k, row.samples) == (4, 1000)
    )
    said = CLAIMS[WEAK].verdict(rows)
    assert deciding(said)[2].value == pytest.approx(0.5)
    assert said.outcome is Status.HOLDS


def test_distance_from_the_limit_is_shown_and_not_judged():
    rows = with_errors(lambda error, i: 1.5 * error)
    said = CLAIMS[WEAK].verdict(rows)
    assert said.outcome is Status.HOLDS
    ratio = shown(said)["k = 2: squared error divided by its limit Tr(Γ)/n, at the largest n"]
    assert ratio.value == pytest.approx(1.5)


def test_every_unit_has_data_of_its_own(tmp_path):
    """All couplings, sizes and seeds; a stream is named by what its unit is."""
    seen = []

    class Recording(WorkBench):
        def rng(self, purpose=""):
            seen.append((self._seed, purpose))
            return TorchRng(0)

    found = STUDY.units(MaskingMore(seeds=2, sizes=(1000, 2000), repeats=1))
    for unit in found:
        next(iter(STUDY.run(unit, Recording(unit.seed, "cpu", tmp_path))))
    assert len(set(seen)) == len(found) == 10


def test_seeds_are_fresh_where_they_decide():
    for scale in (Scale.LAPTOP, Scale.PAPER):
        settings = STUDY.settings[scale]
        seeds = {unit.seed for unit in STUDY.units(settings)}
        assert seeds == set(range(100, 100 + settings.seeds))
    with pytest.raises(UserError, match="repeats and sizes must be at least 1"):
        STUDY.units(MaskingMore(repeats=0))


def test_noisy_errors_are_undecided():
    """Differences of 0.5 ± 5: an interval that holds 0 and half of the effect."""
    rows = with_errors(
        lambda error, i: error + (-1) ** i * 5.0 / 1000,
        lambda row: (row.k, row.samples) == (4, 1000),
    )
    said = CLAIMS[WEAK].verdict(rows)
    assert said.outcome is Status.UNDECIDED
    assert [check.outcome for check in deciding(said)] == [
        Status.HOLDS,
        Status.HOLDS,
        Status.UNDECIDED,
    ]


def test_a_size_with_many_missing_estimates_is_not_judged():
    def lost(count):
        return with_errors(
            lambda error, i: None if i < count else error,
            lambda row: (row.k, row.samples) == (1, 1000),
        )

    undecided(lost(6), "estimates for 95% of them: 1 of 2")
    assert CLAIMS[WEAK].verdict(lost(5)).outcome is Status.HOLDS


def test_pairs_are_kept_where_estimates_are_missing():
    errors = {1: [1.0, None, 3.0, 4.0], 2: [5.0, 6.0, None, 8.0]}
    assert complete(errors) == {1: [1.0, 4.0], 2: [5.0, 8.0]}


def test_seeds_are_joined_in_the_same_order_for_every_k():
    first = of(made(WEAK))[0]
    rows = [
        replace(first, samples=10, k=k, seed=seed, errors=(10.0 * seed + k,))
        for k, seed in [(1, 1), (1, 0), (2, 0), (2, 1)]
    ]
    assert errors_by_size(Rows(rows), WEAK, "one") == {10: {1: [1.0, 11.0], 2: [2.0, 12.0]}}


def test_experiments_of_ten_by_hand():
    """Two experiments: the first in order, the second not; with swapped data, none."""
    errors = {1: [3.0] * 10 + [1.0] * 10, 2: [2.0] * 10 + [1.5] * 10}
    assert in_published_order(errors) == (1, 2)
    assert in_published_order(errors, same=False) == (1, 2)  # 3 > 1.5, and 1 < 2
    falling = {1: [3.0] * 10 + [1.0] * 10, 2: [2.0] * 10 + [0.5] * 10}
    assert in_published_order(falling) == (2, 2)
    assert in_published_order(falling, same=False) == (1, 2)


def test_ratio_to_the_limit_by_hand():
    rows = [
        replace(row, errors=(1.2 * row.limit / row.samples,) * 100)
        if isinstance(row, Fitted) and row.k == 2
        else row
        for row in made(PEAKY)
    ]
    found = limit_ratios(Rows(rows), PEAKY, 1000)
    assert found[2].value == pytest.approx(1.2)
    assert found[2].half_width == pytest.approx(0.0, abs=1e-12)
    assert found[3].value == pytest.approx(1.0)
    # a hundred ratios of 0.9 and 1.1: sd 0.1005, and the 98.75 % point of t with 99 degrees is 2.54
    assert found[3].half_width == pytest.approx(2.544 * 0.1005 / 10, rel=1e-2)


def test_nan_is_never_passed_over():
    """Errors are tuples, where the common test of nan does not look."""
    spoiled = with_errors(
        lambda error, i: math.nan if i == 3 else error,
        lambda row: (row.k, row.samples) == (2, 1000),
    )
    undecided(spoiled, "numbers instead of nan: Fitted.errors in 1 rows")
    lost = changed(only=lambda row: row.k == 4, limit=math.nan)
    assert CLAIMS[WEAK].verdict(lost).outcome is Status.UNDECIDED
    undecided(changed(Descended, gap=math.nan), "Newton's method does: 0 of 4")


def test_judges_have_names_of_their_own():
    assert {claim.id for claim in STUDY.claims} == {"li.fig-4.1", "li.fig-4.2"}
    assert FEWEST >= 30
