"""Positions that are written next: worked values, ties, and draws by their exact law."""

import pytest
import torch

from triptych.core.enumeration import exact_law
from triptych.core.validation import UserError
from triptych.inference.chains.positions import drawn_positions, highest


def test_the_highest_by_hand():
    scores = [[0.5, 0.9, 0.5, 0.7], [0.1, -float("inf"), 0.3, 0.2]]
    among = [[1, 1, 1, 0], [0, 1, 1, 0]]
    assert highest(scores, among, [2, 2]).tolist() == [
        [True, True, False, False],
        [False, True, True, False],
    ]
    assert not highest(scores, among, [0, 0]).any()


def test_draws_without_replacement_by_hand(unchecked_shapes):
    """Weights 1, 1, 2, two of them: the last is among them with 5/6."""
    weights = torch.tensor([[1.0, 1.0, 2.0]]).double().log()
    law = exact_law(lambda rng: tuple(drawn_positions(weights, [[1, 1, 1]], [2], rng)[0].tolist()))
    assert sum(p for chosen, p in law.probs.items() if chosen[2]) == pytest.approx(5 / 6)
    assert all(sum(chosen) == 2 for chosen in law.probs)


def test_weights_of_zero_come_last(unchecked_shapes):
    weights = [[0.0, -float("inf"), -float("inf")]]
    law = exact_law(lambda rng: tuple(drawn_positions(weights, [[1, 1, 1]], [2], rng)[0].tolist()))
    assert law.probs == pytest.approx({(True, True, False): 0.5, (True, False, True): 0.5})


def test_shapes_must_fit():
    with pytest.raises(UserError, match="among has shape"):
        highest([[0.5, 0.9]], [[1]], [1])
    with pytest.raises(UserError, match="counts has"):
        highest([[0.5, 0.9]], [[1, 1]], [1, 1])
