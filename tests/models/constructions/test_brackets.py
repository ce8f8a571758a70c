"""First layers, and the constructions of Theorem 2.2.1 and Corollary 2.2.1 against the truth."""

import functools
import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.support.refusals import refused

from triptych.core.axioms import check_structure
from triptych.core.conditionals import every_next_token_log_probs
from triptych.core.protocols import NextToken
from triptych.core.validation import UserError
from triptych.models.constructions.balanced import (
    balanced,
    balanced_scores,
    log_ratios,
    uniform,
)
from triptych.models.constructions.brackets import BracketTransformer, first_layer, kinds, levels
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.parse import type_and_depth

Q = 0.3


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scores_for(types, max_depth, *, scale=2.0, seed=0):
    count = 2 * types * max_depth + 1
    return balanced_scores(scale * normal(count, count, seed=seed), types, max_depth)


# ------------------------------------------------------------------ first layers


def test_levels_and_kinds_by_hand():
    tokens = Dyck.prefixes(2, 3, 4, q=Q).tokens("[()]")
    assert levels(tokens).tolist() == [[1, 2, 2, 1]]
    assert kinds(tokens, 2, 3).tolist() == [[12, 0, 7, 10, 3]]


def test_levels_agree_with_the_structure():
    tokens = Dyck.prefixes(3, 4, 40, q=0.5).sample(20, 0)
    assert torch.equal(levels(tokens), type_and_depth(tokens, 3)[1])


def test_first_layers_by_hand():
    """k = 1, D = 2: kinds "[" at 1, "[" at 2, "]" at 1, "]" at 2, start."""
    joint = first_layer(1, 2)
    assert torch.equal(joint, torch.eye(5).double())
    separate = first_layer(1, 2, "separate")
    assert separate[1].tolist() == [1, 0, 0, 1, 0]  # "[" ⊕ depth 2
    assert separate[4].tolist() == [0, 0, 0, 0, 1]
    angle = first_layer(1, 2, "angle")  # θ_1 = arctan(1/3), θ_2 = arctan(2/2) = 45°
    assert angle[0, 2:4].tolist() == pytest.approx([3 / math.sqrt(10), 1 / math.sqrt(10)])
    assert angle[1, 2:4].tolist() == pytest.approx([math.sqrt(0.5), math.sqrt(0.5)])


def test_the_printed_depth_makes_two_kinds_one():
    """(2.55) with the depth after a closing bracket: "]" at depth 0 is "[" at depth D."""
    printed = first_layer(2, 3, "joint", closing="after")
    assert torch.equal(printed[3], printed[2])  # "]" of level 1 and "[" of level 3
    assert torch.linalg.matrix_rank(printed) == 2 * 2 * 3 + 1 - 2
    assert torch.linalg.matrix_rank(first_layer(2, 3)) == 13


@pytest.mark.parametrize("encoding", ["separate", "angle"])
def test_separate_encodings_are_independent_at_a_depth_but_not_together(encoding):
    vectors = first_layer(2, 4, encoding)
    for level in range(4):
        at_one_depth = vectors[[4 * token + level for token in range(4)] + [16]]
        assert torch.linalg.matrix_rank(at_one_depth) == 5
    assert torch.linalg.matrix_rank(vectors) < 17


def test_unknown_encodings_are_refused(unchecked_shapes):
    with pytest.raises(UserError, match="encoding is 'other'"):
        first_layer(2, 2, "other")


# ------------------------------------------------------------------ balance


def test_balanced_scores_are_balanced_and_keep_the_rest():
    free = normal(13, 13)
    scores = balanced_scores(free, 2, 3)
    rows = log_ratios(scores, 2, 3)
    assert rows.shape == (6, 4)
    assert torch.allclose(rows, rows[:, :1].expand_as(rows))
    changed = (scores != free).nonzero().tolist()
    closing, queries = {3, 4, 5, 9, 10, 11}, {4, 5, 10, 11}
    assert all(key in closing and query in queries for key, query in changed)


def test_unbalanced_scores_are_refused():
    with refused("scores"):
        balanced(2, 3, 8, q=Q, scores=normal(13, 13))
    with refused("vectors"):
        balanced(2, 3, 8, q=Q, vectors=first_layer(2, 3, "separate"))


# ------------------------------------------------------------------ optimal prediction


def model_of(which, types, max_depth):
    count = 2 * types * max_depth + 1
    if which == "uniform":
        return uniform(types, max_depth, 6, q=Q)
    scores = None if which == "equal scores" else scores_for(types, max_depth, seed=types)
    wide = normal(count, 2 * count, seed=7) if which == "random vectors" else None
    return balanced(types, max_depth, 6, q=Q, scores=scores, vectors=wide)


@pytest.mark.parametrize("which", ["equal scores", "random scores", "random vectors", "uniform"])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (2, 2), (2, 4), (3, 3)])
def test_every_prediction_is_exact(which, sizes, unchecked_shapes):
    """On every prefix of an enumerable length, and along sampled prefixes of 60 tokens."""
    model = model_of(which, *sizes)
    for tokens, wanted in known(*sizes):
        assert float((model.outputs(tokens)[:, :-1] - wanted).abs().max()) < 1e-15


@functools.cache
def known(types, max_depth):
    """Every prefix of six tokens and some of sixty, each with the laws of its next tokens."""
    truth = Dyck.prefixes(types, max_depth, 6, q=Q)
    tokens = torch.zeros(1, 0, dtype=torch.long)
    for _ in range(6):
        laws = truth.next_token_log_probs(tokens)
        rows, added = (laws > -torch.inf).nonzero().T
        tokens = torch.cat([tokens[rows], added[:, None]], 1)
    longer = Dyck.prefixes(types, max_depth, 60, q=Q)
    return [
        (prefixes, every_next_token_log_probs(law, prefixes).exp())
        for law, prefixes in ((truth, tokens), (longer, longer.sample(10, rng=1)))
    ]


@pytest.mark.parametrize("make", [balanced, uniform])
def test_a_construction_obeys_the_axioms(make, unchecked_shapes):
    model = make(2, 2, 4, q=Q)
    assert isinstance(model, NextToken)
    findings = check_structure(model)
    assert len(findings) >= 5
    assert [finding for finding in findings if not finding.holds] == []


def test_a_wrong_weight_breaks_the_prediction(unchecked_shapes):
    model = balanced(2, 3, 40, q=Q)
    (layer,) = model.layers
    layer.value[:, 4] *= 1.5  # closing brackets of type 0, level 2
    truth = Dyck.prefixes(2, 3, 40, q=Q)
    tokens = truth.sample(20, rng=0)
    wanted = truth.every_next_token_log_probs(tokens).exp()
    assert float((model.outputs(tokens)[:, :-1] - wanted).abs().max()) > 0.1


def test_without_a_start_token_uniform_attention_confuses():
    """[li, footnote 12]: p and pp have the same means, and other depths."""
    model = uniform(2, 2, 8, q=Q)
    first = model.layers[0]
    once = model.vectors[torch.tensor([[0]])]
    twice = model.vectors[torch.tensor([[0, 0]])]
    assert torch.allclose(first.mixed(once)[:, -1], first.mixed(twice)[:, -1])
    with_start = [model.next_token_probs(prefix)[0] for prefix in ([[0]], [[0, 0]])]
    assert not torch.allclose(*with_start)


def test_generated_strings_are_brackets(unchecked_shapes):
    model = uniform(2, 3, 60, q=0.5)
    strings = model.sample(20, rng=0)
    truth = Dyck.prefixes(2, 3, 60, q=0.5)
    assert truth.completable(strings).all()


def test_a_leak_is_optimal_up_to_its_length_only(unchecked_shapes):
    leaky = balanced(2, 2, 10, q=Q, leak=4.0)
    truth = Dyck.prefixes(2, 2, 80, q=Q)
    tokens = truth.sample(10, rng=0)
    wanted = truth.every_next_token_log_probs(tokens).exp()
    off = (leaky.outputs(tokens)[:, :-1] - wanted).abs().amax((0, 2))
    assert float(off[:11].max()) < 1e-15
    assert float(off[-20:].max()) > 0.1


def test_a_positive_constant_is_not_optimal_for_long(unchecked_shapes):
    """C > 0: the share of an open bracket in the attention output falls below C."""
    model = balanced(2, 2, 20, q=Q, constant=0.2)
    truth = Dyck.prefixes(2, 2, 80, q=Q)
    tokens = truth.sample(5, rng=0)
    wanted = truth.every_next_token_log_probs(tokens).exp()
    off = (model.outputs(tokens)[:, :-1] - wanted).abs().amax((0, 2))
    assert float(off[:4].max()) < 1e-15
    assert float(off[-20:].max()) > 0.1


def test_weights_go_to_a_file_and_back(tmp_path):
    model = balanced(2, 3, 9, q=Q, scores=scores_for(2, 3))
    save_file(model.weights(), tmp_path / "weights.safetensors")
    again = BracketTransformer.from_weights(load_file(tmp_path / "weights.safetensors"))
    tokens = Dyck.prefixes(2, 3, 9, q=Q).sample(5, rng=0)
    assert torch.equal(again.outputs(tokens), model.outputs(tokens))
    assert torch.equal(again.pattern(tokens), model.pattern(tokens))
    with pytest.raises(UserError, match="have no"):
        BracketTransformer.from_weights({})


def test_attention_can_be_anything(unchecked_shapes):
    """Two optimal models whose patterns are as far apart as patterns get."""
    tokens = Dyck.prefixes(2, 4, 16, q=0.5).tokens("[[[[]]]](((())))")
    first, second = (
        balanced(2, 4, 16, q=0.5, scores=scores_for(2, 4, scale=4.0, seed=seed)).pattern(tokens)
        for seed in (0, 1)
    )
    assert torch.allclose(first.sum(-1), torch.ones(1, 17).double())
    assert float((first - second).square().sum()) > 5.0
