"""Independence as the theorem states it, and as its proof needs it."""

import pytest
import torch
from tests.support.refusals import refused

from triptych.models.constructions.brackets import first_layer, kinds
from triptych.models.constructions.normalised import Layer, Mlp
from triptych.structures.brackets.dyck import Dyck
from triptych.theory.brackets.encodings import independence, twin_stacks


def test_ranks_by_hand():
    found = independence(first_layer(1, 2), 1, 2)
    assert (found.together, found.kinds, found.at_a_depth, found.kinds_at_a_depth) == (5, 5, 3, 3)
    found = independence(first_layer(2, 3, "separate"), 2, 3)
    assert found.as_stated
    assert not found.as_used
    assert found.together == 4 + 3 - 1 + 1  # types and depths share a constant; the start token


def test_joint_encodings_tell_all_stacks_apart():
    twins = twin_stacks(first_layer(2, 4), 2, 4)
    assert twins.apart > 0.1
    assert twins.stack[-1] != twins.other[-1]


@pytest.mark.parametrize("encoding", ["separate", "angle"])
@pytest.mark.parametrize("closing", ["partner", "after"])
def test_separate_encodings_forget_the_order(encoding, closing):
    """By hand: o_[ + o_( + o_1 + o_2 is the sum of "[(" and of "(["."""
    twins = twin_stacks(first_layer(2, 3, encoding, closing=closing), 2, 3)
    assert twins.apart < 1e-12
    assert twins.stack.tolist() == twins.other.tolist()[::-1]


def test_depth_two_has_no_twins_for_separate_encodings():
    assert twin_stacks(first_layer(2, 2, "separate"), 2, 2).apart > 0.1


def test_any_network_with_uniform_attention_confuses_the_twins():
    """The network itself, with random values, on two prefixes whose next brackets differ."""
    generator = torch.Generator().manual_seed(0)
    vectors = first_layer(2, 3, "separate")
    width = vectors.shape[1]
    value = torch.randn(width, width, generator=generator, dtype=torch.float64)
    silent = torch.zeros(1, width, dtype=torch.float64)
    layer = Layer(silent, silent, value, Mlp((value,), (value[0],)))
    dyck = Dyck.prefixes(2, 3, 5, q=0.5)
    prefixes = dyck.tokens("[([]", "([[]")
    laws = dyck.next_token_log_probs(prefixes)
    assert not torch.allclose(laws[0], laws[1])
    said = layer(vectors[kinds(prefixes, 2, 3)])[:, -1]
    assert torch.allclose(said[0], said[1], atol=1e-12)
    apart = layer(first_layer(2, 3)[kinds(prefixes, 2, 3)][..., :width])[:, -1]
    assert not torch.allclose(apart[0], apart[1])


def test_wrong_sizes_are_refused():
    with refused("vectors"):
        independence(first_layer(2, 2), 2, 3)
    with refused("types"):
        twin_stacks(first_layer(1, 3), 1, 3)
