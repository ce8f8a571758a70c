"""Who wins when: the model and its target by enumeration, the measures and the winners by hand."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from tests.support.fake_bench import Bench
from tests.support.grids import some
from tests.support.refusals import refused

from triptych.core.decoders import RecomputingDecoder
from triptych.core.divergences import expected_distance
from triptych.core.protocols import Density, NextToken, Value
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.inference.guided import ancestral, backtracking, best_of_n, blocks, rejection
from triptych.inference.guided.generation import Costs, Result
from triptych.lab.results.plots import to_svg
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.faulty import LeakyBrackets
from triptych.studies.api.study import Rows, Scale
from triptych.studies.generation.who_wins import figures
from triptych.studies.generation.who_wins import study as who_wins
from triptych.studies.generation.who_wins.rows import Measured
from triptych.verifiers.noisy import Flipped


def leaky(length=4, types=(0.2, 0.8), leak=0.3):
    law = torch.tensor(types, dtype=torch.float64)
    return LeakyBrackets(Dyck.fixed_length(length, type_probs=law, q=0.5), leak)


# ------------------------------------------------------------------ the model and its target


def test_the_model_by_hand():
    model = leaky(2, (1.0,), 0.5)
    assert isinstance(model, NextToken)
    assert isinstance(model, Density)
    probs = model.log_prob(torch.tensor([[0, 1], [1, 0], [0, 0], [1, 1]])).exp()
    assert torch.allclose(probs, torch.tensor([9 / 16, 1 / 8, 3 / 16, 1 / 8]).double())
    # two types: at depth 0 one opens, 0.7 · 0.2 + 0.3 / 4 = 0.215 for the rare type
    first = leaky().next_token_log_probs(torch.zeros(1, 0, dtype=torch.long)).exp()
    assert torch.allclose(first, torch.tensor([[0.215, 0.075, 0.635, 0.075]]).double())
    with refused("leak"):
        leaky(leak=1.5)


def test_the_chain_rule_against_the_table():
    model = leaky()
    table = Table.of(model)
    assert model.log_prob(table.sequences).exp().sum() == pytest.approx(1.0, abs=1e-12)
    for t in range(4):
        prefix = all_sequences(4, t)
        laws = model.next_token_log_probs(prefix)
        assert torch.allclose(laws.exp(), table.next_token_log_probs(prefix).exp(), atol=1e-12)


def test_the_target_against_a_tilted_table():
    model = leaky()
    wanted = Table.of(model).tilt(model.dyck.log_value)
    target = who_wins.target_of(model)
    assert torch.equal(target.strings, wanted.support)
    assert len(target.strings) == 2 * 2**2  # Catalan(2) shapes of 2 brackets of 2 types
    assert torch.allclose(target.log_probs, wanted.log_prob(target.strings), atol=1e-12)
    # "[]" of one type is the only string of length 2
    assert who_wins.target_of(leaky(2, (1.0,), 0.5)).log_probs.tolist() == [0.0]


def test_looked_up_answers_are_the_answers():
    model = leaky()
    noisy = Flipped(model.dyck, 0.3, 0.3, seed=5, soft=0.3)
    laws = who_wins.tabulated(model, 4)
    values = who_wins.tabulated_value(noisy, 4, 4)
    assert isinstance(laws, NextToken)
    assert isinstance(values, Value)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    prefix = all_sequences(4, 3)[order]
    assert torch.equal(laws.next_token_log_probs(prefix), model.next_token_log_probs(prefix))
    full = all_sequences(4, 4).flip(0)
    assert torch.equal(values.log_value(full), noisy.log_value(full))
    assert torch.equal(values.log_value(prefix[:, :0]), noisy.log_value(prefix[:, :0]))


# ------------------------------------------------------------------ what is measured


def returned(strings, length):
    """A result whose rows are these strings; None was given up."""
    tokens = torch.tensor([x or (-1,) * length for x in strings])
    lengths = torch.tensor([len(x or ()) for x in strings])
    whole = torch.tensor([x is not None for x in strings])
    zero = torch.zeros_like(lengths)
    costs = Costs(*[zero] * 6)
    reasons = tuple(None if one else "left" for one in whole.tolist())
    return Result(tokens, lengths, (), costs, zero, whole, whole, whole, reasons, None)


def test_measures_by_hand():
    a, b, wrong = (0, 1), (2, 3), (1, 1)
    target = who_wins.Target(torch.tensor([a, b]), torch.tensor([0.5, 0.5]).double().log())
    unit = who_wins.RunAlgorithm("rejection", 0.1, (1,), 2, 0.3, 4, seed=0)
    found = who_wins.measured(returned([a, a, None, None], 2), target, unit, 1)
    assert found.accuracy == 0.5
    assert found.distance == pytest.approx(0.5)
    assert found.skew == pytest.approx(0.5)
    assert (found.distinct, found.returned) == (1, 2)
    # a, b, b, wrong: ½ (|¼ - ½| + |½ - ½| + ¼) = ¼; of the right ones ½ (1/6 + 1/6) = 1/6
    found = who_wins.measured(returned([a, b, b, wrong], 2), target, unit, 1)
    assert (found.accuracy, found.returned, found.distinct) == (0.75, 4, 2)
    assert found.distance == pytest.approx(0.25)
    assert found.skew == pytest.approx(1 / 6)
    assert found.floor == pytest.approx(3 / 16)  # of 4 tosses: mean |K - 2| / 4 = ¾ / 4
    assert found.skew_floor == pytest.approx(1 / 4)  # of 3 tosses: mean |K - 3/2| / 3 = ¾ / 3
    refused = replace(returned([a, b], 2), complete=torch.tensor([True, False]))
    assert who_wins.measured(refused, target, unit, 1).accuracy == 0.5
    nothing = who_wins.measured(returned([wrong, None], 2), target, unit, 1)
    assert (nothing.accuracy, nothing.distance, nothing.skew) == (0.0, 1.0, None)


@pytest.mark.parametrize(("probs", "n"), [((0.5, 0.5), 1), ((0.5, 0.5), 2), ((0.2, 0.3, 0.5), 5)])
def test_expected_distance_by_enumeration(probs, n):
    wanted = 0.0
    for draws in itertools.product(range(len(probs)), repeat=n):
        gaps = (abs(draws.count(k) / n - p) for k, p in enumerate(probs))
        wanted += math.prod(probs[k] for k in draws) * 0.5 * sum(gaps)
    found = expected_distance(torch.tensor(probs, dtype=torch.float64), n)
    assert found == pytest.approx(wanted, abs=1e-12)


def test_expected_distance_of_what_is_certain():
    assert expected_distance(torch.tensor([1.0, 0.0]).double(), 7) == 0.0


# ------------------------------------------------------------------ the algorithms


def by_name(name, knob, strings=4000, error=0.2, seed=3):
    unit = who_wins.RunAlgorithm(name, error, (knob,), 4, 0.3, strings, seed=seed)
    (row,) = who_wins.run(unit, Bench())
    return row


def mass_on_balanced(law, model):
    return float(
        law.log_prob(all_sequences(4, 4)).exp()[model.dyck.completable(law.sequences)].sum()
    )


def exact_laws(model, noisy):
    """How often each algorithm is right, by other means than sampling."""
    table = Table.of(model)
    yes = noisy.log_value(table.sequences) == 0
    accepted = float(table.log_probs.exp()[yes].sum())
    tilted = table.tilt(noisy.log_value)
    probs, good = table.log_probs.exp(), model.dyck.completable(table.sequences)
    answers = [noisy.log_value(table.sequences[:, :t]) == 0 for t in range(1, 5)]
    smooth = torch.stack(answers).all(0)
    balanced = {tuple(x) for x in table.sequences[good].tolist()}
    laws, values = who_wins.tabulated(model, 4), who_wins.tabulated_value(noisy, 4, 4)

    def printed(stride):
        law = backtracking.law(laws, values, 4, 2, stride)
        return sum(q for x, q in law.items() if x in balanced)

    return {
        ("ancestral", 1): mass_on_balanced(table, model),
        ("rejection", 2): (1 - (1 - accepted) ** 2) * mass_on_balanced(tilted, model),
        ("best of n", 4): mass_on_balanced(best_of_n.law(table, noisy, 4), model),
        ("blocks of 2", 4): mass_on_balanced(blocks.law(table, noisy, 2, 4), model),
        ("blocks of 4", 2): mass_on_balanced(blocks.law(table, noisy, 4, 2), model),
        ("Alg. 1, B = 2", 2): printed(2),
        ("Alg. 1, B = 4", 2): printed(4),
        # one refusal erases everything, and the second string is drawn without a question
        ("Alg. 1, drawn", 1): float(probs[smooth & good].sum())
        + float(probs[~smooth].sum()) * mass_on_balanced(table, model),
    }


@pytest.mark.parametrize("seed", some(1, [3, 4, 5]))
def test_accuracies_are_those_of_the_exact_laws(seed):
    """4000 strings: five standard errors are below 0.04, a chance of 6e-7 for each algorithm."""
    model = leaky()
    noisy = Flipped(model.dyck, 0.3, 0.3, seed=seed)
    for (name, knob), wanted in exact_laws(model, noisy).items():
        row = by_name(name, knob, error=0.3, seed=seed)
        assert row.accuracy == pytest.approx(wanted, abs=0.04), name


def test_costs_come_from_the_ledger():
    plain = by_name("ancestral", 1, strings=10)
    assert (plain.generator_calls, plain.verifier_calls) == (4.0, 0.0)
    best = by_name("best of n", 4, strings=10)
    assert (best.generator_calls, best.verifier_calls) == (16.0, 4.0)
    two = by_name("blocks of 2", 4, strings=10)
    assert (two.generator_calls, two.verifier_calls) == (16.0, 8.0)


@pytest.mark.parametrize("name", who_wins.ALGORITHMS)
def test_a_perfect_verifier_never_lets_a_wrong_string_pass(name):
    """With no errors, and enough candidates, whatever is returned is balanced."""
    knob = {"VGB, leaf": 64, "VGB, node": 4, "ancestral": 1, "greedy": 1}.get(name, 32)
    row = by_name(name, knob, strings=100, error=0.0)
    if name != "ancestral":
        assert row.accuracy == row.returned / row.strings
        assert row.accuracy > (0.1 if name == "VGB, node" else 0.9)
    assert row.distinct == 1 if name == "greedy" else 1 < row.distinct <= 8


def test_soft_answers_go_to_walks_and_soft_particles_alone():
    soft = {name for name, algorithm in who_wins.ALGORITHMS.items() if algorithm.soft}
    assert soft == {"SMC, soft", "VGB, leaf", "VGB, node"}
    # one hard particle dies at a false no, one soft particle is the model
    assert by_name("SMC, soft", 1).returned == 4000
    assert by_name("SMC, yes/no", 1).returned < 4000


def test_rows_do_not_depend_on_the_order_of_units():
    first, again = (by_name("rejection", 2, strings=50) for _ in range(2))
    assert replace(first, seconds=0.0) == replace(again, seconds=0.0)
    other = by_name("rejection", 2, strings=50, seed=4)
    assert other.accuracy != first.accuracy


def test_units_are_one_for_each_algorithm_error_and_seed():
    settings = who_wins.WhoWins(seeds=3, errors=(0.0, 0.1), points=2)
    units = who_wins.units(settings)
    assert len(units) == len(who_wins.ALGORITHMS) * 2 * 3
    assert len(set(units)) == len(units)
    assert all(len(unit.knobs) <= 2 for unit in units)
    assert {unit.seed for unit in units} == {0, 1, 2}
    assert set(figures.LOOKS) == set(who_wins.ALGORITHMS)
    for bad, sentence in (
        ({"length": 5}, "even"),
        ({"length": 12}, "from 2 to 10"),
        ({"errors": (0.5,)}, "between 0 and ½"),
        ({"points": 0}, "points"),
    ):
        with pytest.raises(ValueError, match=sentence):
            who_wins.units(who_wins.WhoWins(**bad))


# ------------------------------------------------------------------ the winners


def point(algorithm, knob, calls, accuracy, *, seed=0, error=0.0, asked=1.0, distance=None):
    return Measured(
        algorithm=algorithm,
        error=error,
        knob=knob,
        seed=seed,
        length=4,
        strings=10,
        returned=10,
        accuracy=accuracy,
        distance=1 - accuracy if distance is None else distance,
        floor=0.01,
        skew=None,
        skew_floor=None,
        distinct=1,
        generator_calls=calls,
        verifier_calls=asked,
        seconds=0.0,
    )


ROWS = [
    point("A", 1, 5.0, 0.6, asked=50.0, distance=0.1),
    point("A", 2, 30.0, 0.9, asked=100.0, distance=0.3),
    point("B", 1, 15.0, 0.8, asked=2.0, distance=0.2),
]


def test_winners_by_hand():
    found = figures.winners(Rows(ROWS), measure="accuracy", budgets=(10.0, 20.0, 40.0))
    assert [(w.algorithm, w.knob, w.value) for w in found] == [
        ("A", 1, 0.6),
        ("B", 1, 0.8),
        ("A", 2, 0.9),
    ]
    assert [w.cost for w in found] == [5.0, 15.0, 30.0]
    assert all(w.tied == () for w in found)
    closest = figures.winners(Rows(ROWS), measure="distance", budgets=(40.0,))
    assert [(w.algorithm, w.value) for w in closest] == [("A", 0.1)]
    asked = figures.winners(
        Rows(ROWS), measure="accuracy", cost="verifier_calls", budgets=(2.0, 60.0, 1.0)
    )
    assert [(w.budget, w.algorithm) for w in asked] == [(2.0, "B"), (60.0, "B")]
    assert figures.winners(Rows(), measure="accuracy", budgets=(9.0,)) == []
    better = [*ROWS, point("greedy", 1, 1.0, 1.0)]
    assert figures.winners(Rows(better), measure="accuracy", budgets=(40.0,)) == found[2:]


def test_equally_good_ones_are_ranked_by_cost_and_named():
    rows = [point("A", 1, 9.0, 1.0), point("B", 1, 8.0, 1.0), point("C", 1, 7.0, 0.9)]
    (winner,) = figures.winners(Rows(rows), measure="accuracy", budgets=(10.0,))
    assert (winner.algorithm, winner.tied) == ("B", ("A",))


def test_ties_are_paired_by_seed():
    """A - B is 0.1 at every seed although both vary by 0.4; A - C is +0.3, -0.2, +0.1."""
    scores = {"A": (0.5, 0.7, 0.9), "B": (0.4, 0.6, 0.8), "C": (0.2, 0.9, 0.8)}
    rows = [
        point(name, 1, 5.0 + seed, value + 1e-3 * seed * (name == "B"), seed=seed)
        for name, values in scores.items()
        for seed, value in enumerate(values)
    ]
    (winner,) = figures.winners(Rows(rows), measure="accuracy", budgets=(6.0,))
    assert (winner.algorithm, winner.tied, winner.cost) == ("A", ("C",), 6.0)
    assert winner.value == pytest.approx(0.7)


def test_the_sentence_joins_rates_with_the_same_winner():
    rows = [
        point(name, 1, 5.0 + ord(name), accuracy, error=error)
        for error, scores in (
            (0.0, {"A": 0.8, "B": 0.8, "C": 0.7}),
            (0.05, {"A": 0.5, "B": 0.6, "C": 0.6}),
            (0.1, {"A": 0.5, "B": 0.6, "C": 0.5}),
            (0.3, {"A": 0.4, "B": 0.4, "C": 0.4}),
        )
        for name, accuracy in scores.items()
    ]
    told = figures.winners(Rows(rows), measure="accuracy", budgets=(90.0,))
    assert figures.sentence(told, "best") == (
        "the best is A or B at 0 % errors, B at 5 to 10 % and A or one of 2 others at 30 %"
    )
    assert figures.sentence([], "best") == "nobody is the best yet"


def test_the_figures_say_what_the_rows_say():
    settings = who_wins.STUDY.settings[Scale.SMOKE]
    names = ("ancestral", "tokenwise", "best of n")
    units = [unit for unit in who_wins.units(settings) if unit.algorithm in names]
    rows = [row for unit in units for row in who_wins.run(unit, Bench())]
    assert len(rows) == 2 * (1 + 2 + 2)
    best, right, law = (figure(Rows(rows)) for figure in who_wins.STUDY.figures)
    assert [len(panel.series) for panel in best.panels] == [3, 4, 4]
    line = next(s for s in best.panels[0].series if s.label == "tokenwise")
    assert line.x == (0.0, 20.0)
    assert line.y == tuple(
        100
        * max(
            row.accuracy
            for row in rows
            if row.algorithm == "tokenwise"
            and row.error == error
            and row.generator_calls <= 16  # four strings of 4 tokens
        )
        for error in (0.0, 0.2)
    )
    nearest = next(s for s in best.panels[1].series if s.label == "best of n")
    mine = [row for row in rows if row.algorithm == "best of n" and row.error == 0]
    assert nearest.y[0] == min(row.distance for row in mine)
    assert [len(panel.series) for panel in right.panels] == [3, 3, 2, 2]  # nobody asks in ancestral
    assert [len(panel.series) for panel in law.panels] == [4, 4]
    assert law.panels[0].series[-1].y[0] == rows[0].floor
    drawn = next(s for s in right.panels[0].series if s.label == "best of n")
    mine = [row for row in rows if row.algorithm == "best of n" and row.error == 0]
    assert drawn.y == tuple(100 * row.accuracy for row in mine)
    assert drawn.x == (4.0, 8.0)
    told = figures.winners(Rows(rows), measure="accuracy", budgets=(16.0,))
    assert best.title.startswith("Within 16 generator calls")
    assert right.title.startswith("Within 128 generator calls")
    assert all(winner.algorithm in best.title for winner in told)
    for figure in (best, right, law):
        assert to_svg(figure).startswith("<svg")
    for figure in who_wins.STUDY.figures:
        assert to_svg(figure(Rows())).startswith("<svg")


def test_rejection_and_ancestral_agree_with_their_modules():
    """The study adds nothing of its own: the same rng gives the same strings."""
    model = leaky()
    noisy = Flipped(model.dyck, 0.2, 0.2, seed=3)
    looked_up = who_wins.tabulated_value(noisy, 4, 4)
    for name, run in (
        ("rejection", lambda d, r: rejection.sample(d, noisy, length=4, attempts=2, rng=r)),
        ("ancestral", lambda d, r: ancestral.sample(d, length=4, rng=r)),
    ):
        mine = who_wins.ALGORITHMS[name].run(
            RecomputingDecoder(who_wins.tabulated(model, 4), 50), looked_up, 4, 2, TorchRng(1)
        )
        plain = run(RecomputingDecoder(model, 50), TorchRng(1))
        assert mine.completions() == plain.completions()
