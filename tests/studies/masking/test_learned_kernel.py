"""Learned kernels: what is trained, what is measured on the truth, and the figures by hand."""

import json
import math
from dataclasses import replace

import pytest
import torch

from triptych.core.counting import Counted
from triptych.core.enumeration import exact_law
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.chains import gibbs, parallel
from triptych.lab.results.plots import to_svg
from triptych.lab.running.workbench import WorkBench
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.studies.api.study import Rows, Scale
from triptych.studies.masking.learned_kernel import figures
from triptych.studies.masking.learned_kernel import study as learned_kernel
from triptych.studies.masking.learned_kernel.rows import ORDERS, SAMPLERS, Chain, Oracle, Unmasked
from triptych.studies.masking.learned_kernel.study import LearnedKernel, Named
from triptych.theory.masking.kernels import Conditionals

TINY = LearnedKernel(
    seeds=1, spins=4, words=3, steps=4, batch=8, width=8, layers=1, moments=(1, 3, 10)
)


NAMED = Named("strong", "any", 0, 4)


@pytest.fixture
def bench(tmp_path):
    return WorkBench(0, "cpu", tmp_path)


def rows_on_truth(structure):
    exact = Conditionals.of(structure, structure.length)
    law = Table.of(structure).log_probs.exp()
    return list(learned_kernel.measured(exact, exact, law, (1, 5, 2000), NAMED))


def hand_made(masking="any", seeds=2):
    """Rows of one structure as the study yields them, with round numbers."""
    rows = []
    for seed in range(seeds):
        named = Named("strong", masking, seed, 4)
        for sampler, queries in zip(SAMPLERS, (1.0, 2.0, 1.0, 4.0), strict=True):
            tv = (0.5 + seed / 10, 0.1, 0.0001)
            settled = 0.2 + seed / 10
            rows.append(Chain(*named, sampler, (1, 2, 4), tv, settled, 0.0, queries, queries))
        rows += [Unmasked(*named, order, r, 0.4 / r) for order in ORDERS for r in (1, 2)]
        rows.append(Oracle(*named, 0.1, 0.2, (1, 2), (0.01, 0.1)))
    return rows


def of(rows, kind):
    return [row for row in rows if isinstance(row, kind)]


# ------------------------------------------------------------------ training


def test_any_number_of_hidden_positions_is_equally_likely():
    """Two positions: one of them hidden with ¼ each, both with ½."""
    objective = learned_kernel.any_number(2)

    def one(rng):
        found = objective(torch.tensor([[0, 1]]), rng)
        assert torch.equal(found.seen == 2, found.scored)
        assert found.tokens.tolist() == [[0, 1]]
        return tuple(found.scored[0].tolist())

    law = exact_law(one).probs
    assert law == pytest.approx({(True, False): 0.25, (False, True): 0.25, (True, True): 0.5})


def test_maskings_hide_what_they_say():
    tokens = torch.zeros(2000, 5, dtype=torch.long)

    def hidden(masking):
        return learned_kernel.objective(masking, 3, 5)(tokens, TorchRng(0)).scored.sum(-1)

    assert (hidden("one") == 1).all()
    assert (hidden("all") == 5).all()
    # means of 10000 positions: six standard errors of at most 0.005 fail with 2e-9
    assert abs(hidden("15%").double().mean() / 5 - 0.15) < 0.03
    assert abs(hidden("80%").double().mean() / 5 - 0.80) < 0.03
    assert set(hidden("any").tolist()) == {1, 2, 3, 4, 5}


def test_kept_tokens_are_not_shown_in_training():
    """80/10/10 would leave some selected tokens readable, which no sampler does."""
    seen = learned_kernel.objective("40%", 3, 5)(torch.zeros(500, 5).long(), TorchRng(0))
    assert torch.equal(seen.seen == 3, seen.scored)


def test_training_brings_a_network_nearer(bench):
    """With everything hidden there are only the marginals to learn, and little to read."""
    given = replace(learned_kernel.units(TINY)[0], structure="hmm", masking="all")
    kl = {}
    for steps in (1, 40):
        unit = replace(given, steps=steps, learning_rate=0.02)
        (oracle,) = of(learned_kernel.run(unit, bench), Oracle)
        kl[steps] = oracle.kl
    assert kl[40][-1] < 0.3 * kl[1][-1]


# ------------------------------------------------------------------ the truth as oracle


@pytest.mark.parametrize("name", learned_kernel.STRUCTURES)
def test_the_truth_as_oracle(name):
    structure = learned_kernel.truth(name, 4, 4)
    rows = rows_on_truth(structure)
    chains = {row.sampler: row for row in of(rows, Chain)}
    assert set(chains) == set(SAMPLERS)
    for sampler in ("1-Gibbs", "k-Gibbs"):
        assert chains[sampler].long_run_tv < 1e-10
        assert chains[sampler].tv[-1] < 1e-6
        assert chains[sampler].irreversibility < 1e-12
    for sampler in ("block at once", "independent"):
        assert chains[sampler].long_run_tv > 0.01
        assert chains[sampler].tv[-1] == pytest.approx(chains[sampler].long_run_tv, abs=1e-6)
    last = {row.order: row.tv for row in of(rows, Unmasked) if row.rounds == structure.length}
    assert last["random"] < 1e-12
    assert last["confident position"] < 1e-12
    assert last["confident token"] > 0.05
    (oracle,) = of(rows, Oracle)
    assert oracle.worst_inconsistency < 1e-12
    assert oracle.kl == pytest.approx([0.0] * structure.length, abs=1e-12)


def test_chains_start_from_zeros():
    """The first moment is one row of the transition matrix."""
    structure = learned_kernel.truth("strong", 4, 3)
    exact = Conditionals.of(structure, 4)
    law = Table.of(structure).log_probs.exp()
    first = next(iter(learned_kernel.measured(exact, exact, law, (1,), NAMED)))
    name, matrix, _ = next(iter(learned_kernel.chains(exact)))
    assert isinstance(first, Chain)
    assert first.sampler == name == "1-Gibbs"
    assert first.tv == pytest.approx([float(0.5 * (matrix[0] - law).abs().sum())])
    assert first.tv != pytest.approx([float(0.5 * (matrix[-1] - law).abs().sum())])


def test_structures_and_their_errors():
    strong = learned_kernel.truth("strong", 4, 3)
    assert isinstance(strong, Ising)
    assert strong.coupling[0, 1] == 0.5
    assert strong.coupling[2, 3] == 0.0  # two spins are free
    down, up = torch.zeros(1, 4, dtype=torch.long), torch.ones(1, 4, dtype=torch.long)
    assert strong.log_prob(down) < strong.log_prob(up)  # chains start in the smaller mode
    assert isinstance(learned_kernel.truth("hmm", 4, 3), HMM)
    with pytest.raises(UserError, match="structure is 'potts'"):
        learned_kernel.truth("potts", 4, 3)
    with pytest.raises(UserError, match="did you mean 'strong'"):
        LearnedKernel(structures=("stron",))
    with pytest.raises(UserError, match="did you mean '15%'"):
        LearnedKernel(maskings=("15",))


def test_costs_are_what_the_samplers_ask():
    hmm = HMM.random(2, 2, 4, seed=0)
    oracle, tokens = Counted(hmm), torch.zeros(10, 4, dtype=torch.long)
    single, half = MaskLaw.of_size(4, 1), MaskLaw.of_size(4, 2)
    steps = {
        "1-Gibbs": lambda: gibbs.step(oracle, tokens, single, TorchRng(0)),
        "k-Gibbs": lambda: gibbs.step(oracle, tokens, half, TorchRng(0), order="random"),
        "block at once": lambda: parallel.block_step(oracle, tokens, half, TorchRng(0)),
        "independent": lambda: parallel.independent_step(oracle, tokens, TorchRng(0)),
    }
    for name, _, cost in learned_kernel.chains(Conditionals.of(hmm, 4)):
        oracle.reset()
        steps[name]()
        assert (oracle.queries / 10, oracle.calls) == (cost.queries, cost.passes)


# ------------------------------------------------------------------ units and rows


def test_units_are_networks_and_the_truth_once():
    found = learned_kernel.units(TINY)
    assert len(found) == 3 * (1 + 6)
    assert sum(unit.masking == "truth" for unit in found) == 3
    laptop = learned_kernel.STUDY.settings[Scale.LAPTOP]
    assert laptop.seeds >= 3
    assert len(learned_kernel.units(laptop)) == 3 * (1 + 6 * laptop.seeds)


def test_rows_go_to_json_and_back(bench):
    unit = replace(learned_kernel.units(TINY)[2], masking="15%", seed=1)
    rows = list(learned_kernel.run(unit, bench))
    assert [type(row) for row in rows] == [Chain] * 4 + [Unmasked] * 12 + [Oracle]
    assert all((row.masking, row.seed, row.length) == ("15%", 1, 4) for row in rows)
    written = [learned_kernel.STUDY.row_to_json(row, i) for i, row in enumerate(rows)]
    text = json.dumps(written, allow_nan=False)
    assert [learned_kernel.STUDY.row_from_json(row) for row in json.loads(text)] == rows
    again = list(learned_kernel.run(unit, bench))
    assert again == rows


# ------------------------------------------------------------------ figures


def test_curves_are_means_and_end_at_the_floor():
    figure = figures.spins_figure(Rows(hand_made() + hand_made("truth", seeds=1)))
    truth, network = figure.panels
    assert [series.kind for series in truth.series] == ["control"] * 4
    assert [series.kind for series in network.series] == ["ours"] * 4
    first = network.series[0]
    assert first.x == (1.0, 2.0)
    assert first.y == pytest.approx((math.sqrt(0.5 * 0.6), 0.1))  # means of logarithms
    reach = 12.706 * (math.log(0.6) - math.log(0.5)) / 2  # t of one degree of freedom
    assert first.low[0] == pytest.approx(first.y[0] * math.exp(-reach), rel=1e-3)
    assert first.high[0] == 1.0  # no distance is larger


def test_questions_stretch_the_axis_by_the_cost_of_a_step():
    (panel,) = figures.questions_figure(Rows(hand_made())).panels
    assert [series.x for series in panel.series] == [
        (1.0, 2.0),
        (2.0, 4.0),
        (1.0, 2.0),
        (4.0, 8.0),
        (1.0, 2.0),
    ]
    assert panel.series[-1].y == pytest.approx((0.4, 0.2))


def test_masking_is_drawn_by_how_much_is_hidden():
    rows = [row for m in ("one", "40%", "all", "any", "truth") for row in hand_made(m)]
    (panel,) = figures.masking_figure(Rows(rows)).panels
    assert panel.series[0].x == (40.0, 100.0)
    assert panel.series[0].y == pytest.approx([math.sqrt(0.2 * 0.3)] * 2)
    assert [series.kind for series in panel.series] == ["ours"] * 4 + ["control"] * 3
    # one of 4 positions; and 1 to 4 of them, on average 2.5
    assert [series.x for series in panel.series[4:]] == [(25.0,), (25.0,), (62.5,)]


def test_unmasking_and_errors():
    rows = Rows(hand_made() + hand_made("truth", seeds=1) + hand_made("40%"))
    figure = figures.unmasking_figure(rows)
    assert [len(panel.series) for panel in figure.panels] == [3, 3]
    (panel,) = figures.errors_figure(rows).panels
    assert [series.label for series in panel.series] == ["40 % hidden"]
    assert panel.series[0].y == pytest.approx((0.01, 0.1))


def test_figures_without_rows():
    for figure in learned_kernel.STUDY.figures:
        assert to_svg(figure(Rows())).startswith("<svg")
