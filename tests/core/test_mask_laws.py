"""Mask laws: worked values, counts, draws against their law, bad input."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.enumeration import exact_law
from triptych.core.mask_laws import MAX_BLOCKS, MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences

pytestmark = pytest.mark.numerical


def as_dict(law, tokens=None):
    """Block as a tuple of positions -> probability, at one sequence."""
    tokens = torch.zeros(1, law.length, dtype=torch.long) if tokens is None else tokens
    probs = law.log_prob(tokens)[0].exp().tolist()
    blocks = [tuple(torch.nonzero(row)[:, 0].tolist()) for row in law.blocks]
    assert len(set(blocks)) == len(blocks)
    return dict(zip(blocks, probs, strict=True))


def doubling(tokens):
    return tokens.double() * math.log(2)


LOOKING = MaskLaw.looking(2, [[0], [1]], doubling)


def test_blocks_of_a_size():
    assert as_dict(MaskLaw.of_size(3, 2)) == pytest.approx(
        {(0, 1): 1 / 3, (0, 2): 1 / 3, (1, 2): 1 / 3}
    )
    assert as_dict(MaskLaw.of_size(4, 4)) == pytest.approx({(0, 1, 2, 3): 1.0})
    law = MaskLaw.of_size(7, 3)
    assert len(law.blocks) == math.comb(7, 3)
    assert (law.blocks.sum(1) == 3).all()
    assert not law.adaptive


def test_spans_hide_the_middle_more_often():
    law = MaskLaw.spans(4, 2)
    assert as_dict(law) == pytest.approx({(0, 1): 1 / 3, (1, 2): 1 / 3, (2, 3): 1 / 3})
    hidden = law.log_probs.exp() @ law.blocks.double()
    assert hidden.tolist() == pytest.approx([1 / 3, 2 / 3, 2 / 3, 1 / 3])


def test_independent_positions_given_that_one_is_hidden():
    assert as_dict(MaskLaw.independent(2, 0.5)) == pytest.approx(
        {(0,): 1 / 3, (1,): 1 / 3, (0, 1): 1 / 3}
    )
    # rate ¼ on two positions: 3/16, 3/16, 1/16 of the 7/16 where something is hidden
    assert as_dict(MaskLaw.independent(2, 0.25)) == pytest.approx(
        {(0,): 3 / 7, (1,): 3 / 7, (0, 1): 1 / 7}
    )
    law = MaskLaw.independent(5, 0.3)
    sizes = Counter(law.blocks.sum(1).tolist())
    assert sizes == {k: math.comb(5, k) for k in range(1, 6)}
    hidden = law.log_probs.exp() @ law.blocks.double()
    torch.testing.assert_close(hidden, torch.full((5,), 0.3 / (1 - 0.7**5)).double())


def test_weights_are_normalised_and_may_be_zero():
    law = MaskLaw.weighted(3, [[0], [1, 2], [2]], [3.0, 1.0, 0.0])
    assert as_dict(law) == pytest.approx({(0,): 0.75, (1, 2): 0.25, (2,): 0.0})


def test_a_law_that_looks_at_the_sequence():
    assert LOOKING.adaptive
    assert as_dict(LOOKING, torch.tensor([[1, 0]])) == pytest.approx({(0,): 2 / 3, (1,): 1 / 3})
    every = LOOKING.log_prob(all_sequences(2, 2)).exp()
    torch.testing.assert_close(
        every[:, 0], torch.tensor([1 / 2, 1 / 3, 2 / 3, 1 / 2], dtype=torch.float64)
    )


@pytest.mark.parametrize("law", [MaskLaw.weighted(2, [[0], [1]], [1.0, 3.0]), LOOKING])
def test_draws_follow_the_law(law):
    """By enumeration: two sequences at once are two independent draws."""
    tokens = torch.tensor([[1, 0], [0, 0]])
    found = exact_law(lambda rng: tuple(law.draw(tokens, rng).tolist())).probs
    probs = law.log_prob(tokens).exp()
    wanted = {(a, b): float(probs[0, a] * probs[1, b]) for a in range(2) for b in range(2)}
    assert found == pytest.approx(wanted)
    assert law.draw(tokens, TorchRng(0)).shape == (2,)


def test_moving_keeps_the_law():
    assert as_dict(MaskLaw.spans(3, 2).to("cpu")) == as_dict(MaskLaw.spans(3, 2))
    assert LOOKING.to("cpu").adaptive
    assert repr(LOOKING) == "MaskLaw(2 blocks of 1 position, length 2, looks at the sequence)"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: MaskLaw.of_size(3, 4), "blocks of 4 positions do not fit in 3"),
        (lambda: MaskLaw.of_size(3, 0), "k is 0"),
        (lambda: MaskLaw.of_size(60, 30), f"more than {MAX_BLOCKS}"),
        (lambda: MaskLaw.spans(3, 4), "runs of 4 positions"),
        (lambda: MaskLaw.independent(3, 1.0), "strictly between 0 and 1"),
        (lambda: MaskLaw.independent(30, 0.5), "more than can be held"),
        (lambda: MaskLaw.weighted(2, [[0], [0]]), r"positions \[1\] of length 2"),
        (
            lambda: MaskLaw.weighted(2, [[0], [1]], [1.0, 0.0]),
            r"positions \[1\] of length 2 are in no",
        ),
        (lambda: MaskLaw.weighted(2, [[0, 0], [1]]), "distinct positions"),
        (lambda: MaskLaw.weighted(2, [[0, 2], [1]]), "distinct positions in 0..1"),
        (lambda: MaskLaw.weighted(2, [[0], [1]], [1.0]), "1 weights for 2 blocks"),
        (
            lambda: MaskLaw.weighted(2, [[0], [1]], [1.0, -1.0]),
            "weights.1. is -1.0; it must",
        ),
        (lambda: MaskLaw.weighted(2, [[0], [1]], [math.nan, 1.0]), "finite"),
        (lambda: MaskLaw.weighted(2, []), "0 blocks"),
        (
            lambda: MaskLaw(torch.ones(1, 2).bool(), torch.tensor([0.5], dtype=torch.float64)),
            "sums to",
        ),
        (lambda: LOOKING.log_prob(torch.zeros(1, 3, dtype=torch.long)), "tokens has shape"),
    ],
)
def test_bad_input_is_answered_by_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_an_adaptive_law_must_answer_with_probabilities():
    none = MaskLaw.looking(2, [[0], [1]], lambda x: torch.full((len(x), 2), -torch.inf))
    with refused("probs"):
        none.log_prob(torch.tensor([[0, 1]]))
    few = MaskLaw(LOOKING.blocks, LOOKING.log_probs, lambda x: torch.zeros(len(x), 1).double())
    with pytest.raises(ValueError, match="one row per sequence"):
        few.log_prob(torch.tensor([[0, 1]]))


def test_a_tiny_rate_hides_one_position_at_a_time():
    """At rate 1e-200 two positions together have weight 1e-400, which is no float."""
    law = MaskLaw.independent(2, 1e-200)
    log_probs = dict(zip(map(tuple, law.blocks.tolist()), law.log_probs.tolist(), strict=True))
    assert log_probs[True, False] == pytest.approx(-math.log(2))
    assert log_probs[True, True] == pytest.approx(-math.log(2) + math.log(1e-200), rel=1e-12)


def test_weights_whose_sum_is_no_float():
    law = MaskLaw.weighted(2, [[0], [1]], [1.5e308, 0.5e308])
    assert law.log_probs.exp().tolist() == pytest.approx([0.75, 0.25])


@pytest.mark.usefixtures("unchecked_shapes")
def test_numpy_sizes_and_lists():
    law = MaskLaw.of_size(np.int64(3), np.int32(2))
    assert law.blocks.tolist() == MaskLaw.of_size(3, 2).blocks.tolist()
    given = MaskLaw([[True, False], [False, True]], [math.log(0.25), math.log(0.75)])
    assert given.log_prob([[0, 1]]).exp()[0].tolist() == pytest.approx([0.25, 0.75])
    for size in (2.0, 2.5, -1, "a", None):
        for make in (MaskLaw.of_size, MaskLaw.spans):
            with refused("k"):
                make(3, size)
            with refused("length"):
                make(size, 1)
