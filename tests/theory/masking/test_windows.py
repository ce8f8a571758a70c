"""Windows of a masked oracle: a truth is consistent, an oracle by hand is not."""

import math
from itertools import permutations

import pytest
import torch

from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.theory.masking.windows import Window, conditionals, cycles, filled, settle

TRUTH = Table.random(3, 5, seed=8)
TOKENS = torch.tensor([0, 2, 1, 1, 0])


class TwoBits:
    """Fair bits; given x_1, x_0 is equal to it with 0.8; given x_0, x_1 is fair."""

    vocab_size = 2

    def masked_log_probs(self, tokens, hidden):
        law = torch.full((*tokens.shape, 2), 0.5, dtype=torch.float64)
        known = hidden[:, 0] & ~hidden[:, 1]
        equal = torch.nn.functional.one_hot(tokens[:, 1], 2).double()
        law[:, 0] = torch.where(known[:, None], 0.2 + 0.6 * equal, law[:, 0])
        return law.log()


def test_the_window_of_a_truth_is_its_conditional():
    window = Window(TRUTH, TOKENS, [0, 2, 3])
    rows = TRUTH.sequences
    fits = (rows[:, 1] == 2) & (rows[:, 4] == 0)
    wanted = TRUTH.log_probs[fits].log_softmax(0).reshape(3, 3, 3)
    for order in permutations(range(3)):
        torch.testing.assert_close(filled(window, order), wanted)
    logs = conditionals(window, 3)
    for place, law in enumerate(logs):
        torch.testing.assert_close(law, wanted - wanted.logsumexp(place, keepdim=True))
    found = settle(logs)
    torch.testing.assert_close(found.law, wanted.exp(), atol=1e-9, rtol=0)
    assert found.residual < 1e-11
    assert cycles(logs).worst < 1e-9


def test_two_bits_by_hand():
    oracle = TwoBits()
    assert filled(oracle, (0, 1)).exp().reshape(-1).tolist() == pytest.approx([0.25] * 4)
    other = filled(oracle, (1, 0)).exp().reshape(-1).tolist()
    assert other == pytest.approx([0.4, 0.1, 0.1, 0.4])
    logs = conditionals(oracle, 2)
    found = settle(logs)
    assert found.law.reshape(-1).tolist() == pytest.approx([0.325, 0.175, 0.175, 0.325])
    assert cycles(logs).worst == pytest.approx(2 * math.log(4))
    assert cycles(logs).least == pytest.approx(math.log(4) / 4)
    assert cycles(logs).likely == pytest.approx(2 * math.log(4))


def test_the_gap_is_that_of_the_matrix():
    """Two bits: the second eigenvalue of the transition matrix over states."""
    logs = conditionals(Window(TRUTH, TOKENS, [1, 4]), 2)
    given = [law.exp() for law in logs]
    matrix = torch.zeros(9, 9, dtype=torch.float64)
    for state in range(9):
        x = divmod(state, 3)
        for value in range(3):
            matrix[state, value * 3 + x[1]] += 0.5 * given[0][value, x[1]]
            matrix[state, x[0] * 3 + value] += 0.5 * given[1][x[0], value]
    sizes = torch.linalg.eigvals(matrix).abs().sort(descending=True).values
    assert settle(logs).gap == pytest.approx(1 - float(sizes[1]), abs=1e-6)


def test_what_a_window_refuses():
    with pytest.raises(UserError):
        Window(TRUTH, TOKENS, [5])
    with pytest.raises(UserError):
        filled(Window(TRUTH, TOKENS, [0, 1]), (0, 0))
