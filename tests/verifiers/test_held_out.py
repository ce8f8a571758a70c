"""Which examples are left out of a probe's training."""

import torch
from tests.support.refusals import refused

from triptych.verifiers.probe import held_out


def test_worked_value():
    """Of 10 correct and 5 wrong examples, a share of 0.2 leaves out 2 and 1."""
    labels = torch.tensor([True] * 10 + [False] * 5)
    out = held_out(labels, 0.2)
    assert (int(out[:10].sum()), int(out[10:].sum())) == (2, 1)
    assert held_out(labels, 0.2).tolist() == out.tolist()
    assert any(held_out(labels, 0.2, seed=s).tolist() != out.tolist() for s in range(1, 5))


def test_one_of_each_kind_stays_and_one_goes():
    assert sorted(held_out([1, 1, 0, 0], 0.01).tolist()) == [False, False, True, True]
    with refused("labels"):
        held_out([1, 1, 0], 0.2)
