"""Refinement: worked values, stops per row, stutter, ranking, and its law against simulation."""

import itertools

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.counting import Counted
from triptych.core.enumeration import exact_law
from triptych.core.estimates import tv_tolerance
from triptych.core.randomness import TorchRng
from triptych.core.streams import RowStreams
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.chains import parallel
from triptych.inference.chains.refinement import (
    MaskedRefiner,
    Refiner,
    best_hypotheses,
    drop_stutter,
    mask_start,
    random_start,
    refine,
    scores,
    stutters,
)


class Rewrites:
    """A refiner that maps hypotheses to hypotheses by a function of one row."""

    def __init__(self, function, vocab):
        self.function, self.vocab, self.read = function, vocab, []

    def log_probs(self, hypotheses, lengths):
        self.read.append(hypotheses.clone())
        out = torch.full((*hypotheses.shape, self.vocab), torch.nan, dtype=torch.float64)
        for row, n in enumerate(lengths.tolist()):
            answer = self.function(hypotheses[row, :n].tolist())
            for i, token in enumerate(answer):
                out[row, i] = -torch.inf
                out[row, i, token] = 0.0
        return out


class Same:
    """The law (0.6, 0.4) at every position, whatever is read."""

    def log_probs(self, hypotheses, lengths):
        law = torch.tensor([0.6, 0.4], dtype=torch.float64).log()
        return law.expand(*hypotheses.shape, 2)


def swapped(row):
    """Bits change places: 01 becomes 10."""
    return row[::-1]


def towards_zero(row):
    return [max(0, token - 1) for token in row]


def test_worked_value_of_one_step():
    out = refine(Same(), [[1, 1], [0, 1]], [2, 2], steps=1)
    assert out.tokens.tolist() == [[0, 0], [0, 0]]
    assert out.log_probs.exp().tolist() == [[pytest.approx(0.6)] * 2] * 2
    assert isinstance(Same(), Refiner)


def test_a_row_stops_when_it_does_not_change():
    """3 needs three steps to reach 0 and one to see that it stays; 0 stops at once."""
    refiner = Rewrites(towards_zero, 4)
    out = refine(refiner, [[3, 1], [0, 1]], [2, 1], steps=9, stutter="keep", record=True)
    assert out.tokens.tolist() == [[0, 0], [0, 1]]  # beyond the length nothing is written
    assert out.steps.tolist() == [4, 1]
    assert out.costs.forward_passes == len(refiner.read) == len(out.trace) == 4
    assert out.costs.generator_calls.tolist() == [4, 1]
    assert out.costs.generated.tolist() == [8, 1]
    assert [it.active.tolist() for it in out.trace] == [[True, True]] + [[True, False]] * 3
    assert [it.tokens[0].tolist() for it in out.trace] == [[2, 0], [1, 0], [0, 0], [0, 0]]


def test_a_stopped_row_is_not_changed_any_more():
    """A refiner that changes its mind: the row that had stopped keeps its tokens."""

    class Moody:
        calls = 0

        def log_probs(self, hypotheses, lengths):
            Moody.calls += 1
            wanted = hypotheses if Moody.calls == 1 else 1 - hypotheses
            wanted = wanted.clone()
            wanted[1] = 1 - hypotheses[1]
            return torch.nn.functional.one_hot(wanted, 2).double().log()

    out = refine(Moody(), [[0, 1], [0, 1]], [2, 2], steps=3)
    assert out.tokens.tolist() == [[0, 1], [1, 0]]
    assert out.steps.tolist() == [1, 3]


def test_steps_are_all_taken_when_stability_is_not_asked_for():
    out = refine(Rewrites(towards_zero, 4), [[0]], [1], steps=5, stop_when_stable=False)
    assert out.steps.tolist() == [5]
    assert out.trace == ()


@pytest.mark.parametrize(
    ("stutter", "second"),
    [("previous", [2, 1]), ("initial", [2, 1]), ("mask", [0, 3]), ("keep", [0, 0])],
)
def test_what_replaces_stutter(stutter, second):
    """From 2 1 the refiner writes 0 0: the second 0 equals its left neighbour."""
    refiner = Rewrites(lambda row: [0, 0], 3)
    out = refine(refiner, [[2, 1]], [2], steps=2, stutter=stutter, mask_token=3, record=True)
    expected = [0, second[1]]
    assert refiner.read[1].tolist() == [expected]
    assert out.tokens.tolist() == [[0, 0]]  # after the last step nothing is replaced
    assert out.trace[0].replaced.tolist() == [[False, stutter != "keep"]]
    assert not out.trace[-1].replaced.any()
    assert out.costs.erased.tolist() == [0 if stutter == "keep" else 1]


def test_previous_and_initial_differ_from_the_second_step_on():
    """0 0 is written always; before the third step 'previous' puts back what stood there before."""
    writes = {(1, 2): [0, 3], (0, 3): [0, 0]}
    for stutter, third in [("previous", [0, 3]), ("initial", [0, 2])]:
        refiner = Rewrites(lambda row: writes.get(tuple(row), [1, 1]), 4)
        refine(
            refiner, [[1, 2]], [2], steps=3, stutter=stutter, stop_when_stable=False, record=True
        )
        assert refiner.read[2].tolist() == [third]


def test_stutter_replaced_by_the_same_hypothesis_is_a_fixed_point():
    """1 2 -> 2 2 -> put back to 2 2? No: position 1 gets 2 again, so 2 2 is read and stays."""
    refiner = Rewrites(lambda row: [2, 2], 3)
    out = refine(refiner, [[1, 2]], [2], steps=9)
    assert out.steps.tolist() == [2]
    assert drop_stutter(out.tokens, [2])[0].tolist() == [[2, 0]]


def test_random_replacement_never_counts_as_stable():
    refiner = Rewrites(lambda row: [0, 0], 3)
    out = refine(refiner, [[0, 0]], [2], steps=6, stutter="random", rng=0, lowest=1)
    assert out.steps.tolist() == [6]
    assert all(int(read[0, 1]) in (1, 2) for read in refiner.read[1:])


def test_worked_values_of_stutter():
    tokens = torch.tensor([[3, 3, 1, 1, 1, 3], [3, 3, 3, 1, 1, 1]])
    assert stutters(tokens, [6, 4]).long().tolist() == [[0, 1, 0, 1, 1, 0], [0, 1, 1, 0, 0, 0]]
    dropped, lengths = drop_stutter(tokens, [6, 4], fill=9)
    assert dropped.tolist() == [[3, 1, 3, 9, 9, 9], [3, 1, 9, 9, 9, 9]]
    assert lengths.tolist() == [3, 2]


def test_the_first_position_has_no_left_neighbour():
    """The authors' code compares it with the last one; the printed algorithm has no such rule."""
    assert not stutters([[1, 0, 1]], [3]).any()
    assert drop_stutter([[1, 0, 1]], [3])[1].tolist() == [3]


def test_dropping_is_groupby():
    rows = torch.tensor(list(itertools.product(range(3), repeat=4)))
    dropped, lengths = drop_stutter(rows, torch.full((81,), 4))
    for row, new, n in zip(rows.tolist(), dropped.tolist(), lengths.tolist(), strict=True):
        assert new[:n] == [token for token, _ in itertools.groupby(row)]


def test_a_token_equal_to_its_start_is_kept():
    """The authors blank positions that equal the first hypothesis; a right token would be lost."""
    out = refine(Rewrites(lambda row: row, 3), [[2, 1]], [2], steps=3)
    assert drop_stutter(out.tokens, [2])[0].tolist() == [[2, 1]]


def test_starts():
    start = random_start([3, 1], 5, rng=0, lowest=2)
    assert start.shape == (2, 3)
    assert start[1, 1:].tolist() == [0, 0]
    assert 2 <= int(start[0].min()) <= int(start[0].max()) <= 4
    many = random_start([1] * 6000, 5, rng=1, lowest=2)[:, 0]
    # each count has standard deviation √(6000 · 2/9) = 37; six of them fail with 1e-8
    assert all(abs(int((many == token).sum()) - 2000) < 220 for token in (2, 3, 4))
    assert mask_start([2, 1], 7).tolist() == [[7, 7], [7, 0]]


def test_scores_and_ranking():
    log_probs = torch.tensor(
        [[-1.0, -3.0, 5.0], [-2.0, -2.0, -2.5], [-1.0, 0.0, 0.0], [-1.5, 0, 0]]
    )
    lengths = [2, 3, 1, 1]
    assert scores(log_probs, lengths, by="sum").tolist() == [-4.0, -6.5, -1.0, -1.5]
    assert scores(log_probs, lengths).tolist() == [-2.0, pytest.approx(-6.5 / 3), -1.0, -1.5]
    assert best_hypotheses(log_probs, lengths, each=2).tolist() == [0, 2]
    tied = torch.full((4, 1), -0.5)
    assert best_hypotheses(tied, [1] * 4, each=4).tolist() == [0]
    longer = torch.tensor([[-0.6, 0.0], [-0.5, -0.5]])
    assert best_hypotheses(longer, [1, 2], each=2, by="sum").tolist() == [0]
    assert best_hypotheses(longer, [1, 2], each=2, by="mean").tolist() == [1]


def test_the_refiner_of_a_masked_oracle():
    """p(x_i | x_-i) from the table, and the mask hides a position from all others."""
    table = Table.random(3, 3, seed=2)
    grid = table.log_probs.exp().reshape(3, 3, 3)
    laws = MaskedRefiner(table, mask_token=3).log_probs([[0, 2, 3]], [3]).exp()[0]
    assert torch.allclose(laws[0], grid[:, 2].sum(-1) / grid[:, 2].sum())
    assert torch.allclose(laws[1], grid[0].sum(-1) / grid[0].sum())
    assert torch.allclose(laws[2], grid[0, 2] / grid[0, 2].sum())
    counted = Counted(table)
    refine(MaskedRefiner(counted), [[0, 2, 1]], [3], steps=2, stop_when_stable=False)
    assert (counted.calls, counted.queries) == (2, 6)


def test_one_sampled_step_is_the_independent_parallel_sampler():
    table = Table.random(2, 3, seed=5)
    start = torch.tensor([[0, 1, 1]])

    def refined(rng):
        out = refine(MaskedRefiner(table), start, [3], steps=1, sample=True, rng=rng)
        return tuple(out.tokens[0].tolist())

    def stepped(rng):
        return tuple(parallel.independent_step(table, start, rng)[0].tolist())

    assert exact_law(refined).total_variation(exact_law(stepped)) < 1e-12


@pytest.mark.parametrize("stutter", ["previous", "random"])
def test_the_enumerated_law_against_simulation(stutter, unchecked_shapes):
    """20,000 rows from the start 0 0; the tolerance fails with probability 1e-9."""
    table = Table.random(2, 2, seed=4)
    refiner, n = MaskedRefiner(table), 20_000

    def program(rng):
        out = refine(refiner, [[0, 0]], [2], steps=2, stutter=stutter, sample=True, rng=rng)
        return tuple(out.tokens[0].tolist())

    law, rng = exact_law(program), TorchRng(7)
    lengths = torch.full((n,), 2)
    start = torch.zeros((n, 2), dtype=torch.long)
    out = refine(refiner, start, lengths, steps=2, stutter=stutter, sample=True, rng=rng)
    counts = torch.bincount(out.tokens[:, 0] * 2 + out.tokens[:, 1], minlength=4)
    found = {(k // 2, k % 2): count / n for k, count in enumerate(counts.tolist())}
    assert law.missing == 0
    assert law.total_variation(found) < tv_tolerance(n, 4, failure=1e-9)


def test_a_row_draws_the_same_alone_and_in_a_batch():
    table = Table.random(3, 3, seed=6)
    refiner, lengths = MaskedRefiner(table), torch.full((5,), 3)
    options = {"steps": 3, "stutter": "random", "sample": True}
    together = refine(
        refiner, torch.zeros((5, 3)).long(), lengths, rng=RowStreams(0, torch.arange(5)), **options
    )
    for row in range(5):
        alone = refine(refiner, [[0, 0, 0]], [3], rng=RowStreams(0, torch.tensor([row])), **options)
        assert alone.tokens[0].tolist() == together.tokens[row].tolist()
        assert alone.steps[0] == together.steps[row]


def test_equal_tokens_go_to_the_lowest_whatever_the_rounding():
    """0.5 as 0.5 and as 0.1 + 0.4 - 1e-17 are one number here."""

    class Tied:
        def log_probs(self, hypotheses, lengths):
            law = torch.tensor([0.0, 0.5 - 1e-14, 0.5 + 1e-14], dtype=torch.float64).log()
            return law.expand(*hypotheses.shape, 3)

    assert refine(Tied(), [[0, 0]], [2], steps=1).tokens.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"refiner": object()}, "needs log_probs"),
        ({"lengths": [3]}, "only 2 positions"),
        ({"lengths": [0]}, "at least one token"),
        ({"lengths": [2, 2]}, "1 rows and lengths has 2"),
        ({"initial": [[-1, 0]]}, "numbers from 0"),
        ({"steps": 0}, "at least 1"),
        ({"stutter": "blank"}, "one of 'previous'"),
        ({"stutter": "mask"}, "mask_token is None"),
        ({"stutter": "random"}, "rng is None"),
        ({"sample": True}, "rng is None"),
    ],
)
def test_wrong_input_is_refused_in_a_sentence(change, sentence, unchecked_shapes):
    right = {"refiner": Same(), "initial": [[0, 1]], "lengths": [2], "steps": 2}
    given = right | change
    with pytest.raises(UserError, match=sentence):
        refine(given.pop("refiner"), given.pop("initial"), given.pop("lengths"), **given)


@pytest.mark.parametrize(
    "answer",
    [
        torch.zeros(1, 2, dtype=torch.float64),
        torch.zeros(1, 3, 2, dtype=torch.float64),
        torch.zeros(1, 2, 2, dtype=torch.float64),
        torch.full((1, 2, 2), torch.nan),
        None,
    ],
)
def test_a_refiner_that_answers_no_laws_is_refused(answer, unchecked_shapes):
    class Odd:
        def log_probs(self, hypotheses, lengths):
            return answer

    with pytest.raises(UserError, match="Odd"):
        refine(Odd(), [[0, 1]], [2], steps=1)


def test_a_masked_oracle_needs_full_rows_and_ranking_needs_groups():
    with refused("lengths"):
        MaskedRefiner(Table.random(2, 2, seed=0)).log_probs([[0, 1], [0, 0]], [2, 1])
    with refused("each"):
        best_hypotheses(torch.zeros(3, 1), [1, 1, 1], each=2)
