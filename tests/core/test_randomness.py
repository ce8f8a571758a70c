import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.refusals import refused

from triptych.core import randomness
from triptych.core.enumeration import ExactLaw, exact_law, exact_transition_matrix
from triptych.core.estimates import tv_tolerance
from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng, as_rng
from triptych.core.validation import UserError

LAW = torch.tensor([0.5, 0.0, 0.25, 0.25, 0.0], dtype=torch.float64)


def frequencies(draws, outcomes):
    return torch.bincount(draws.reshape(-1), minlength=outcomes) / draws.numel()


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("draws", [16, 10**9])  # alias tables for many draws, and never
def test_draws_follow_the_law_with_and_without_rows(calls, draws, monkeypatch):
    monkeypatch.setattr(randomness, "_ALIAS_DRAWS", draws)
    n, rng = 40_000, TorchRng(0)
    table = torch.stack([LAW, LAW.flip(0), torch.eye(5, dtype=torch.float64)[3]]).log()
    rows = torch.arange(n) % 3
    for _ in range(calls):
        drawn = rng.categorical(table, rows)
    reach = tv_tolerance(n // 3, 5, failure=1e-9)
    for row in range(3):
        tv = 0.5 * (frequencies(drawn[rows == row], 5) - table[row].exp()).abs().sum()
        assert tv < reach
        assert (frequencies(drawn[rows == row], 5)[torch.isneginf(table[row])] == 0).all()
    plain = TorchRng(0).categorical(LAW.log().expand(n, -1))
    assert 0.5 * (frequencies(plain, 5) - LAW).abs().sum() < tv_tolerance(n, 5, failure=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9).filter(lambda w: sum(w) > 1e-3))
@settings(deadline=None, max_examples=60)
def test_alias_tables_hold_exactly_the_law(weights):
    probs = torch.tensor([weights, weights[::-1]], dtype=torch.float64)
    probs = probs / probs.sum(-1, keepdim=True)
    alias = randomness._Alias.of(probs.log())
    outcomes = probs.shape[1]
    keep, other = alias.keep.reshape(2, -1), alias.other.reshape(2, -1)
    law = torch.zeros_like(probs).scatter_add(1, other, 1 - keep) + keep
    torch.testing.assert_close(law / outcomes, probs, atol=1e-14, rtol=0)
    assert (keep[probs == 0] == 0).all()


def test_a_uniform_just_under_one_stays_in_its_row(monkeypatch):
    """row + (1 - 2^-53) rounds to row + 1: the draw must not slip into the next row."""
    top = torch.full((2,), 1 - 2.0**-53, dtype=torch.float64)
    monkeypatch.setattr(TorchRng, "_uniform", lambda self, shape: top.clone())
    table = torch.stack([LAW, LAW, LAW]).log()
    rng = TorchRng(0)
    assert rng.categorical(table, torch.tensor([1, 2])).tolist() == [3, 3]
    monkeypatch.setattr(randomness, "_ALIAS_DRAWS", 0)
    by_alias = rng.categorical(table, torch.tensor([1, 2]))
    assert (LAW[by_alias] > 0).all()
    assert rng.categorical(table[:2]).tolist() == [3, 3]


def test_a_changed_table_is_not_remembered():
    table = torch.tensor([[1.0, 0.0]], dtype=torch.float64).log()
    rng, rows = TorchRng(0), torch.zeros(20, dtype=torch.long)
    assert rng.categorical(table, rows).sum() == 0
    table.copy_(table.flip(-1))
    assert rng.categorical(table, rows).sum() == 20


def test_the_stream_depends_on_the_seed_alone():
    """Not on whether a table was seen before, was copied, or is an inference tensor."""
    law = LAW.log().expand(100, -1)
    table, rows = torch.stack([LAW, LAW.flip(0)]).log(), torch.arange(200) % 2
    first, second = TorchRng(1), TorchRng(1)
    for _ in range(3):
        with torch.inference_mode():
            copied = second.categorical(table.clone(), rows)
        assert torch.equal(first.categorical(table, rows), copied)
    assert torch.equal(TorchRng(7).categorical(law), TorchRng(7).categorical(law))
    assert not torch.equal(TorchRng(7).categorical(law), TorchRng(8).categorical(law))


@pytest.mark.parametrize("bad", [torch.tensor([0.0, 0.0]), torch.tensor([float("nan"), 0.0])])
def test_weights_that_are_not_normalised_are_refused(bad):
    with refused("log_probs"):
        TorchRng(0).categorical(bad)
    with refused("log_probs"):
        exact_law(lambda rng: int(rng.categorical(bad)))


def test_another_device_is_refused_with_the_remedy():
    elsewhere = torch.zeros((1, 1), device="meta")
    with refused("log_probs"):
        TorchRng(0).categorical(elsewhere)


def test_rows_need_a_table():
    with refused("log_probs"):
        TorchRng(0).categorical(LAW.log(), torch.zeros(3, dtype=torch.long))


def test_both_rngs_are_doors():
    assert isinstance(TorchRng(0), Rng)


def coin(p):
    return torch.tensor([1 - p, p], dtype=torch.float64).log()


def test_exact_law_of_two_coins():
    law = exact_law(lambda rng: int(rng.categorical(coin(0.25))) + int(rng.categorical(coin(0.5))))
    assert law.probs == pytest.approx({0: 0.375, 1: 0.5, 2: 0.125})
    assert law.missing == 0
    assert law.expectation(float) == pytest.approx(0.75)


def test_a_batch_is_enumerated_as_independent_choices():
    law = exact_law(lambda rng: tuple(rng.categorical(coin(0.25).expand(2, -1)).tolist()))
    assert law.probs[1, 1] == pytest.approx(1 / 16)
    table, rows = torch.stack([coin(0.0), coin(1.0), coin(0.5)]), torch.tensor([1, 2])
    law = exact_law(lambda rng: tuple(rng.categorical(table, rows).tolist()))
    assert law.probs == pytest.approx({(1, 0): 0.5, (1, 1): 0.5})


def test_a_program_that_may_not_stop_reports_what_is_missing():
    def heads_before_tails(rng):
        count = 0
        while rng.categorical(coin(0.5)) == 1:
            count += 1
        return count

    law = exact_law(heads_before_tails, cutoff=1e-3)
    assert law.probs[3] == pytest.approx(1 / 16)
    assert sum(law.probs.values()) + law.missing == pytest.approx(1)
    assert 0 < law.missing < 2e-3  # both branches of the last coin fall under the cutoff
    with refused("max_runs"):
        exact_law(heads_before_tails, max_runs=50)


def test_a_program_runs_once_for_every_sequence_of_its_choices():
    """Three tosses, the third only after two heads: five sequences, the last branch first."""
    runs = []

    def tosses(rng):
        first, second = (int(rng.categorical(coin(0.5))) for _ in range(2))
        runs.append((first, second, int(rng.categorical(coin(0.25))) if first and second else None))
        return runs[-1]

    law = exact_law(tosses)
    assert runs == [(1, 1, 1), (1, 1, 0), (1, 0, None), (0, 1, None), (0, 0, None)]
    assert list(law.probs.items()) == [
        *(((1, 1, 1), 0.0625), ((1, 1, 0), 0.1875)),
        *((run, 0.25) for run in runs[2:]),
    ]
    # branches: the start, two of the first toss, four of the second, two of the third
    assert exact_law(tosses, max_runs=9).probs == law.probs
    with refused("max_runs"):
        exact_law(tosses, max_runs=8)


def test_a_program_may_catch_its_own_errors():
    def careless(rng):
        try:
            return int(rng.categorical(coin(0.25)))
        except Exception:
            return "failed"

    assert exact_law(careless).probs == pytest.approx({0: 0.75, 1: 0.25})


def test_a_tensor_is_no_outcome():
    with refused("program"):
        exact_law(lambda rng: rng.categorical(coin(0.5)))


def test_laws_are_conditioned_and_compared():
    law = ExactLaw({"a": 0.5, "b": 0.3, None: 0.2})
    accepted = law.given(lambda x: x is not None)
    assert accepted.probs == pytest.approx({"a": 0.625, "b": 0.375})
    assert accepted.total_variation({"a": 0.625, "c": 0.375}) == pytest.approx(0.375)
    with refused("condition"):
        law.given(lambda x: x == "z")


def test_exact_transition_matrix_of_a_walk_on_three_points():
    def step(x, rng):
        return (x + 1 + int(rng.categorical(coin(0.25)))) % 3

    matrix = exact_transition_matrix([0, 1, 2], step)
    wanted = torch.tensor([[0, 0.75, 0.25], [0.25, 0, 0.75], [0.75, 0.25, 0]]).double()
    torch.testing.assert_close(matrix, wanted)
    with refused("step"):
        exact_transition_matrix([0, 1], step)
    assert math.isclose(matrix.sum().item(), 3)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("copies", [1, 100])  # few draws search, many use alias tables
@pytest.mark.parametrize(("rows", "said"), [([0, 2], "0..2"), ([-1], "-1..-1"), ([7], "7..7")])
def test_a_row_that_is_not_there_is_refused(rows, said, copies):
    table = torch.stack([coin(0.25), coin(0.5)])
    with refused("rows"):
        TorchRng(0).categorical(table, torch.tensor(rows * copies))


@pytest.mark.usefixtures("unchecked_shapes")
def test_laws_as_lists_and_numpy_arrays():
    rows = [[0.0, -math.inf], [-math.inf, 0.0]]
    for laws in (rows, np.array(rows)):
        assert TorchRng(0).categorical(laws).tolist() == [0, 1]
        assert TorchRng(np.int64(0)).categorical(laws, [1, 1, 0]).tolist() == [1, 1, 0]
    for bad in ("a", None, [], 3):
        with refused("log_probs"):
            TorchRng(0).categorical(bad)


def test_a_whole_number_is_the_seed_of_an_rng(unchecked_shapes):
    rng = as_rng(3)
    assert isinstance(rng, TorchRng)
    assert rng.seed == 3
    assert as_rng(rng) is rng
    assert as_rng(np.int64(3)).seed == 3
    for odd in (True, 0.5, None, "0"):
        with refused("rng"):
            as_rng(odd)
    with pytest.raises(UserError):
        as_rng(-1)
