"""Algorithms on models that answer draws: the promised laws, enumerated with any number of tokens a
request, and what is asked."""

import math

import pytest
import torch
from tests.support.refusals import refused
from tests.support.toy_guided import RECORDS, FirstDraws, Noisy, Values

from triptych.core.axioms import check_sampler
from triptych.core.decoders import RecomputingDecoder
from triptych.core.draws import LocalDraws
from triptych.core.enumeration import exact_law
from triptych.core.protocols import Drawn, Draws
from triptych.core.samplers import OneShot
from triptych.core.streams import RowStreams
from triptych.core.table import Table
from triptych.inference.guided import (
    adaptive,
    ancestral,
    backtracking,
    best_of_n,
    blocks,
    greedy,
    majority,
    particles,
    rejection,
    tokenwise,
    vgb,
)
from triptych.inference.guided.ahead import Ahead
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.transforms import nucleus

ON_DRAWS = {
    "ancestral": ancestral,
    "rejection": rejection,
    "tokenwise": tokenwise,
    "backtracking": backtracking,
    "best_of_n": best_of_n,
    "blocks": blocks,
    "majority": majority,
    "particles": particles,
    "adaptive": adaptive,
    "vgb": vgb,
}
_TOO_MANY = {  # alternatives make many more choices than laws do
    "redrawn until accepted",
    "value, redrawn until accepted",
    "soft threshold",
    "until accepted",
}
_QUICK = {  # one of each kind; the others take up to a quarter of a minute each
    ("ancestral", "whole law", 3),
    ("ancestral", "nucleus", 2),
    ("rejection", "two attempts", 2),
    ("tokenwise", "one try", 2),
    ("tokenwise", "value, one try", 3),
    ("backtracking", "quota 2, stride 2", 2),
    ("backtracking", "quota 1, stride 3", 3),
    ("best_of_n", "ties, n = 3", 2),
    ("blocks", "blocks of 2, n = 2", 3),
    ("majority", "n = 3, the last bit", 2),
    ("particles", "n = 2, never resampled", 2),
    ("adaptive", "n = 2, resampled, an end token", 1),
    ("vgb", "last node, two candidates of three", 1),
}
CASES = [
    pytest.param(
        name, case, ahead, marks=[] if (name, case, ahead) in _QUICK else [pytest.mark.slow]
    )
    for name, module in ON_DRAWS.items()
    for case, example in module.examples().items()
    for ahead in (1, 2, 3)
    if isinstance(example, OneShot) and not (ahead > 1 and case in _TOO_MANY)
]


def on_draws(monkeypatch, module, ahead):
    """The module's examples make draws of their decoders from now on."""
    monkeypatch.setattr(
        module,
        "RecomputingDecoder",
        lambda lm, batch: LocalDraws(RecomputingDecoder(lm, batch), ahead=ahead),
    )


@pytest.mark.parametrize(("name", "case", "ahead"), CASES)
def test_the_promised_law_stays_whatever_is_drawn_ahead(name, case, ahead, monkeypatch):
    on_draws(monkeypatch, ON_DRAWS[name], ahead)
    findings = check_sampler(ON_DRAWS[name].examples()[case])
    assert all(finding.holds for finding in findings), findings


def test_every_algorithm_says_what_it_needs():
    needs = {name: record.needs for name, record in RECORDS.items() if record.needs != "laws"}
    assert needs.keys() == ON_DRAWS.keys()
    assert needs.pop("adaptive") == "log_probs"
    assert needs.pop("vgb") == "top_laws"
    assert set(needs.values()) == {"draws"}


# ---------------------------------------------------------------- planted mistakes


class KeepsWhatWasErased(Ahead):
    """Wrong: what was drawn after a token that is gone is taken where the row stands next."""

    def erased(self, rows, lengths):
        pass

    def _here(self, row, length, last):
        return bool(self._waiting[row].get(length))


class SharesDraws(Ahead):
    """Wrong: all copies of a row take the same draws."""

    def moved(self, rows):
        other = SharesDraws(len(rows))
        for place, row in enumerate(rows):
            other._waiting[place] = {k: list(v) for k, v in self._waiting[row].items()}
        return other


@pytest.mark.parametrize(
    ("name", "case", "wrong"),
    [
        ("backtracking", "quota 2, stride 2", KeepsWhatWasErased),
        ("particles", "n = 2, always resampled", SharesDraws),
    ],
)
def test_a_wrong_buffer_has_another_law(name, case, wrong, monkeypatch):
    on_draws(monkeypatch, ON_DRAWS[name], 3)
    monkeypatch.setattr("triptych.inference.guided.generation.Ahead", wrong)
    findings = check_sampler(ON_DRAWS[name].examples()[case])
    assert not all(finding.holds for finding in findings)


# ---------------------------------------------------------------- what waits


def drawn(*rows):
    width = max(map(len, rows))
    table = torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows])
    return Drawn(table, torch.where(table >= 0, -table.double(), torch.nan))


def test_tokens_wait_at_their_place():
    ahead = Ahead(1)
    assert ahead.add([0], [3], drawn([5, 7])) == 2
    assert ahead.lacking([0], [3], [1]) == []
    assert ahead.take(torch.tensor([0]), [3])[0].tolist() == [5]
    assert ahead.lacking([0], [4], [5]) == []
    assert ahead.lacking([0], [4], [6]) == [0]  # another token stands before


def test_what_waits_beyond_an_erased_token_is_gone_and_before_it_stays():
    ahead = Ahead(1)
    ahead.add([0, 0], [3, 3], drawn([5, 7], [8]))
    ahead.take(torch.tensor([0]), [3])
    ahead.erased([0], [3])
    assert ahead.lacking([0], [4], [5]) == [0]
    assert ahead.take(torch.tensor([0]), [3])[0].tolist() == [8]
    assert ahead.lacking([0], [3], [1]) == [0]


def test_one_copy_of_a_row_has_what_waits():
    ahead = Ahead(1)
    ahead.add([0], [0], drawn([1, 2]))
    assert ahead.moved([0, 0]).lacking([0, 1], [0, 0], [-1, -1]) == [1]


# ---------------------------------------------------------------- draws of a decoder


def at(lm, *, ahead=1, batch=1, **more):
    return LocalDraws(RecomputingDecoder(lm, batch), ahead=ahead, **more)


def test_draws_of_a_law_by_hand():
    lm = Table(3, 1, torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64).log())
    draws, row, one = at(lm), torch.tensor([0]), torch.tensor([1])
    assert isinstance(draws, Draws)
    said = draws.draw(row, one, FirstDraws(1), [frozenset({0})])
    assert said.tokens.tolist() == [[1]]
    assert said.log_probs.tolist() == [[pytest.approx(math.log(0.5))]]
    tokens, log_probs = draws.top_law(row, 2)
    assert tokens.tolist() == [[0, 1]]
    assert log_probs.exp().tolist() == [[pytest.approx(0.5)] * 2]
    assert draws.lengths.tolist() == [0]
    with refused("banned"):
        draws.draw(row, one, FirstDraws(0), [frozenset({0, 1})])


def test_nothing_is_drawn_after_an_end_token():
    draws = at(Table.random(2, 3, seed=0), batch=2, end_token=1)
    said = draws.draw(torch.tensor([0, 1]), torch.tensor([3, 2]), FirstDraws(1, 0, 0, 0))
    assert said.tokens.tolist() == [[1, -1, -1], [0, 0, -1]]


def test_a_row_draws_the_same_alone_and_in_a_batch():
    lm, verifier = Table.random(3, 4, seed=0), Noisy()
    together = tokenwise.sample(
        at(lm, ahead=3, batch=3), verifier, tries=4, length=4, rng=RowStreams(0, torch.arange(3))
    )
    for row in range(3):
        streams = RowStreams(0, torch.tensor([row]))
        alone = tokenwise.sample(at(lm, ahead=3), verifier, tries=4, length=4, rng=streams)
        assert alone.completions()[0] == together.completions()[row]


# ---------------------------------------------------------------- costs


def test_requests_of_backtracking_by_hand():
    """12 tokens, nothing is refused, stride 4: three requests and no token too many."""
    lm = Table.random(2, 12, seed=0)
    run = backtracking.sample(at(lm, ahead=9), Values(), quota=2, stride=4, length=12, rng=0)
    assert (run.costs.requests.tolist(), run.costs.drawn.tolist()) == ([3], [12])


def test_a_refusal_costs_at_most_what_was_drawn_after_it():
    """The first token is refused: 4 are thrown away, 1 is redone, and nobody is asked any more."""
    values = Values(_0=0.0, _1=0.0)
    lm = Table.random(2, 9, seed=0)
    run = backtracking.sample(at(lm), values, quota=1, stride=4, length=9, rng=0)
    assert (run.costs.requests.tolist(), run.costs.drawn.tolist()) == ([3], [4 + 1 + 8])
    assert run.costs.generated.tolist() == [10]


def test_strings_that_nobody_judges_before_their_end_are_one_request():
    run = best_of_n.sample(at(Table.random(2, 6, seed=0)), Values(), n=3, length=6, rng=0)
    assert (run.costs.requests.tolist(), run.costs.drawn.tolist()) == ([3], [18])


def test_laws_are_no_requests():
    run = ancestral.sample(RecomputingDecoder(Table.random(2, 6, seed=0), 1), length=6, rng=0)
    assert (run.costs.requests.tolist(), run.costs.drawn.tolist()) == ([0], [0])


def test_a_budget_holds():
    lm = Table.random(2, 6, seed=0)
    run = ancestral.sample(at(lm), length=6, budget=Budget(tokens=4), rng=0)
    assert run.lengths.tolist() == [4]


# ---------------------------------------------------------------- what is refused


def test_what_a_model_does_not_give_is_a_sentence():
    lm = Table.random(2, 3, seed=0)
    with refused("decoder"):
        greedy.sample(at(lm), Values(), length=3, rng=0)

    class DrawsAlone(LocalDraws):
        gives = frozenset({"draws"})

    for module, options in ((adaptive, {"n": 2}), (vgb, {"steps": 5})):
        alone = DrawsAlone(RecomputingDecoder(lm, 1))
        with refused("decoder"):
            module.sample(alone, Values(), length=3, rng=0, **options)
    with refused("candidates"):
        vgb.sample(at(lm), Values(), steps=5, candidates=None, length=3, rng=0)


def test_a_verifier_of_states_needs_them():
    class OfStates:
        layer = None

        def log_values(self, asked):
            raise AssertionError

    lm = Table.random(2, 3, seed=0)
    with refused("verifier"):
        backtracking.sample(at(lm), OfStates(), quota=1, stride=1, length=3, rng=0)


def test_draws_that_are_none_are_refused():
    class Wrong(LocalDraws):
        def draw(self, rows, counts, rng, banned=None, *, weigh=True):
            return drawn(*[[9]] * len(rows))

    with refused("decoder"):
        ancestral.sample(Wrong(RecomputingDecoder(Table.random(2, 3, seed=0), 1)), length=3, rng=0)


def test_vgb_says_what_is_cut():
    lm = Table(3, 1, torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log())
    run = vgb.sample(at(lm), Values(), steps=9, candidates=2, length=1, rng=0)
    assert run.info.covered.tolist() == [pytest.approx(0.8)]


def test_a_transform_changes_what_is_drawn():
    lm, cut = Table(3, 1, torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()), nucleus(0.6)
    law = exact_law(
        lambda rng: ancestral.sample(at(lm), length=1, transform=cut, rng=rng).completions()[0]
    )
    assert law.probs == pytest.approx({(0,): 0.625, (1,): 0.375})
