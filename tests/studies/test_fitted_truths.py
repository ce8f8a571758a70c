"""The study of fits to a truth's own samples: its rows, and its figures."""

import math

import pytest
import torch
from tests.support.fake_bench import Bench

from triptych.fitting.result import Fit, Parameter
from triptych.studies.api.study import Rows
from triptych.studies.training import fitted_truths
from triptych.studies.training.fitted_truths import NAMES, FitOne, Recovered

SLOW = ("hmm", "hmm, gaps", "cfg")  # the smoke run of all studies fits them too
CASES = [pytest.param(t, marks=[pytest.mark.slow] if t in SLOW else []) for t in NAMES]


@pytest.mark.parametrize("truth", CASES)
def test_a_fit_is_near_its_truth(truth):
    """Every truth with 300 rows: converged, and near; the states of an HMM are matched."""
    (row,) = fitted_truths.run(FitOne(truth, 300, seed=0), Bench())
    assert row.converged
    assert row.error < 0.15
    assert row.covered >= 0.5 * row.judged > 0


def test_the_states_of_the_truth_are_put_into_the_order_of_the_fit(monkeypatch):
    """A fit that is the truth with its states swapped has no error."""
    truth = fitted_truths.TWO_STATES
    order = torch.tensor([1, 0])

    def swapped(*args, **kwargs):
        hmm = type(truth)(
            truth.initial[order], truth.transition[order][:, order], truth.emission[order], 12
        )
        flat = [*hmm.initial.tolist(), *hmm.transition.flatten().tolist()]
        values = [*flat, *hmm.emission.flatten().tolist()]
        parts = tuple(Parameter(f"p[{i}]", v, 0.1) for i, v in enumerate(values))
        return Fit(hmm, 0.0, 0.0, 10, 120, 7, True, 1, 0.0, 0.0, "", parameters=parts)

    monkeypatch.setattr(fitted_truths.HMM, "fit", swapped)
    (row,) = fitted_truths.run(FitOne("hmm", 10, seed=0), Bench())
    assert row.error == pytest.approx(0, abs=1e-12)
    assert row.covered == row.judged == 12


def test_figures_show_the_rate():
    rows = [Recovered("hmm", n, 0, 1 / math.sqrt(n), 9, 10, True) for n in (100, 400, 1600)]
    figure = fitted_truths.errors_figure(Rows(rows))
    (panel,) = figure.panels
    ours, rate = panel.series
    assert list(ours.y) == pytest.approx(list(rate.y))
    assert list(fitted_truths.coverage_figure(Rows(rows)).panels[0].series[0].y) == [90.0] * 3
