"""Automata on canvases, against every filling."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triptych.core.table import all_sequences
from triptych.core.validation import UserError
from triptych.diffusion.guided.automaton import Automaton


def automaton(following, accepting):
    return Automaton(torch.tensor(following), torch.tensor(accepting))


def drawn(seed, states=3, vocab=3):
    generator = torch.Generator().manual_seed(seed)
    following = torch.randint(-1, states, (states, vocab), generator=generator)
    return Automaton(following, torch.rand(states, generator=generator) < 0.5)


def reads(automaton, row):
    """The definition, token by token."""
    state = automaton.start
    for token in row:
        state = int(automaton.following[state, token])
        if state < 0:
            return False
    return bool(automaton.accepting[state])


def test_worked_value():
    even = automaton([[0, 1], [1, 0]], [True, False])
    tokens = torch.tensor([[1, 0, 0]])
    holes = torch.tensor([[False, True, True]])
    assert even.completable(tokens, holes).tolist() == [True]
    assert int(even.accepts([[1, a, b] for a in (0, 1) for b in (0, 1)]).sum()) == 2
    assert even.allowed([[1, 0]], [[False, True]])[0].tolist() == [[False, True], [False, True]]
    assert even.accepts([[1, 0], [1, 1]]).tolist() == [False, True]


@given(st.integers(0, 500))
def test_every_canvas_against_every_filling(seed):
    automaton = drawn(seed)
    every = all_sequences(3, 3)
    right = torch.tensor([reads(automaton, row) for row in every.tolist()])
    assert torch.equal(automaton.accepts(every), right)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 3, (4, 3), generator=generator)
    hidden = torch.rand(4, 3, generator=generator) < 0.6
    fits = ((every == tokens[:, None]) | hidden[:, None]).all(-1) & right
    assert torch.equal(automaton.completable(tokens, hidden), fits.any(-1))
    allowed = automaton.allowed(tokens, hidden)
    for row, place, token in itertools.product(range(4), range(3), range(3)):
        wanted = bool((fits[row] & (every[:, place] == token)).any())
        assert bool(allowed[row, place, token]) == wanted


def test_listing():
    automaton = Automaton.listing([[0, 1], [1]], 2)
    assert automaton.accepts([[0, 1], [1, 1], [0, 0]]).tolist() == [True, False, False]
    assert automaton.accepts([[1], [0]]).tolist() == [True, False]


def test_alive():
    found = automaton([[1, 2], [-1, -1], [2, 2]], [False, True, False])
    assert found.alive.tolist() == [True, True, False]


def test_shared_kinds():
    found = automaton([[0, 0, 1], [1, 1, -1]], [True, True])
    assert sorted(len(tokens) for tokens in found.kinds.members) == [1, 2]


@pytest.mark.parametrize(
    "given_",
    [
        ([[0, 2]], [True], 0),
        ([[0, 0]], [True, False], 0),
        ([[0, 0]], [True], 1),
        ([[0.5, 0]], [True], 0),
        ([[-2, 0]], [True], 0),
        ([0, 0], [True], 0),
    ],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_what_is_no_automaton(given_):
    with pytest.raises(UserError):
        Automaton(*given_)


def test_a_token_beyond():
    with pytest.raises(UserError):
        drawn(0).accepts([[3]])
    with pytest.raises(UserError):
        Automaton.listing([], 2)
