"""What the studies of brackets are made of: prompts, mistakes, target laws, pictures, judges."""

import itertools

import pytest
import torch
from sklearn.manifold import TSNE

from triptych.core.decoders import PAD, RecomputingDecoder
from triptych.core.estimates import Outcome
from triptych.core.randomness import TorchRng
from triptych.inference.run import Event, Ledger, Result
from triptych.models.cache import CachedDecoder
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.bracket_parse import DyckError
from triptych.structures.uniform import Uniform
from triptych.studies.dyck_tables import by_network, fewer, judge_remaining, paired, pooled
from triptych.studies.judging import without_nan
from triptych.studies.study import Verdict
from triptych.studies.trained_dyck import (
    Mistakes,
    Trained,
    complete,
    completed_anyhow,
    correct_like,
    draw_prompts,
    gather_mistakes,
    language,
    plainly,
    read,
    refused_prefixes,
    states_of,
)
from triptych.studies.tsne import divergence, joint_probabilities, neighbour_agreement, tsne
from triptych.studies.vgb_dyck import target_law
from triptych.verifiers.leaves import ExactLeaves

P = {
    "length": 4,
    "q": 0.5,
    "shortest_prompt": 1,
    "longest_prompt": 3,
    "top_p": 1.0,
    "most_prompts": 2000,
}


@pytest.fixture(scope="module")
def model():
    law = language(P, 0.25, "cpu")
    shape = Shape(law.vocab_size + 1, law.length + 1, width=8, layers=1, heads=2)
    lm = CausalLM(Transformer(shape, seed=0, init_scale=0.5))
    return Trained(lm, 0.0, law, language(P, 0.75, "cpu"))


def result_of(tokens, complete, trace=(), start=0):
    tokens = torch.tensor(tokens)
    lengths = (tokens != PAD).sum(1)
    ledger = Ledger.empty(len(tokens), torch.device("cpu"))
    prompts = torch.full_like(lengths, start)
    return Result(tokens, lengths, trace, ledger, prompts, torch.tensor(complete), {})


def test_strings_of_the_language_end(model):
    """[ ] opens with 0 and closes with 1, ( ) with 2 and 3, and 4 ends after 4 brackets."""
    tokens = model.law.sample(200, TorchRng(0))
    assert tokens.shape == (200, 5)
    assert (tokens[:, -1] == 4).all()
    assert (tokens[:, :-1] < 4).all()
    first = (tokens[:, 0] == 0).double().mean()  # square, with probability ¼; ±5 σ
    assert abs(float(first) - 0.25) < 5 * (0.25 * 0.75 / 200) ** 0.5


def test_the_end_comes_once_and_not_before():
    law = language(P, 0.25, "cpu")
    strings = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 4, 4, 4], [0, 3, 0, 1, 4], [0, 1, 0, 0, 4]])
    found = law.parse(strings)
    wanted = [
        DyckError.NONE,
        DyckError.PREMATURE_END,
        DyckError.WRONG_CLOSE,
        DyckError.TOO_LATE,
    ]
    assert found.error.tolist() == wanted
    assert found.position.tolist() == [5, 2, 1, 3]
    assert found.log_prob[0].exp() == pytest.approx(
        0.25 * 0.5 * 0.75
    )  # [ then ] (½) then (, forced


def test_prompts_are_beginnings(model):
    prompts = draw_prompts(P, model.ood, 300, TorchRng(1))
    lengths = (prompts != PAD).sum(1)
    assert sorted(lengths.unique().tolist()) == [1, 2, 3]
    counts = torch.bincount(lengths)[1:].double()
    assert (counts - 100).abs().max() < 45  # 5 σ of a count with mean 100 is 41
    for row, length in zip(prompts.tolist(), lengths.tolist(), strict=True):
        assert model.law.completable(torch.tensor([row[:length]])).all()
        assert row[length:] == [PAD] * (3 - length)


def test_reading_what_came_out(model):
    found = read(
        model.law,
        [
            result_of([[0, 1, 2, 3, 4], [0, 1, 4, PAD, PAD]], [True, True]),
            result_of([[0, 1, 2, PAD]], [False]),
        ],
    )
    assert found.right.tolist() == [True, False, False]
    assert found.accuracy == pytest.approx(1 / 3)
    assert found.errors == 2
    assert found.tokens[1].tolist() == [0, 1, 4, 4, 4]


def test_error_inducing_prefixes_by_hand():
    strings = torch.tensor([[0, 3, PAD], [0, 1, 3]])
    mistakes = Mistakes(strings, torch.tensor([2, 3]), 10)
    assert mistakes.inducing().tolist() == [[0, PAD, PAD], [0, 1, PAD]]
    assert mistakes.take(1, 2).tokens.tolist() == [[0, 1, 3]]


def test_gathered_mistakes_end_with_their_first_error(model):
    mistakes = gather_mistakes(P, model, 40, TorchRng(2))
    assert len(mistakes.tokens) == 40
    for row, length in zip(mistakes.tokens.tolist(), mistakes.lengths.tolist(), strict=True):
        assert not model.law.completable(torch.tensor([row[:length]])).any()
        assert model.law.completable(torch.tensor([row[: length - 1]])).all()
    correct = correct_like(mistakes, model.ood, TorchRng(3))
    assert torch.equal((correct != PAD).sum(1), mistakes.lengths)
    for row in correct.tolist():
        assert model.ood.completable(torch.tensor([[t for t in row if t != PAD]])).all()


def test_the_target_law_by_brute_force(model):
    """Every string of 5 tokens, weighed by the network and kept if it is right."""
    prompt = torch.tensor([2])
    target = target_law(model, prompt)
    weights = {}
    for rest in itertools.product(range(5), repeat=4):
        string = (2, *rest)
        if model.law.completable(torch.tensor([string]))[0]:
            conditional = model.lm.log_prob(torch.tensor([string])) - model.lm.log_prob(
                prompt[None]
            )
            weights[string] = float(conditional.exp())
    total = sum(weights.values())
    assert target.mass == pytest.approx(total, rel=1e-4)
    assert set(target.strings) == set(weights)
    for string, index in target.strings.items():
        assert float(target.probs[index]) == pytest.approx(
            weights[string] / total, rel=1e-4
        )  # float32


def test_completions_do_not_depend_on_the_batches(model):
    prompts = draw_prompts(P, model.ood, 7, TorchRng(4))
    greedy = plainly(P, model.law, 0.0, TorchRng(0))
    whole = read(model.law, complete(model.lm, prompts, greedy))
    parts = read(model.law, complete(model.lm, prompts, greedy, at_once=2))
    assert torch.equal(whole.tokens, parts.tokens)


def test_states_are_the_networks_last(model):
    strings = torch.tensor([[0, 1, PAD], [2, 3, 2]])
    states = states_of(model.lm, strings)
    for state, row in zip(states, ([0, 1], [2, 3, 2]), strict=True):
        seen = model.lm.net.inspect(torch.tensor([[model.lm.start_token, *row]]))
        assert torch.allclose(state, seen.hidden[-1][0, -1], atol=1e-6)


def test_refused_prefixes_by_hand():
    """Row 0 is refused after its prompt; row 1 after its prompt was cut to one token."""
    trace = (
        Event(0, "reject", (3,), -1.0, 1, 1, 2),
        Event(0, "accept", (1,), 0.0, 2, 2, 2),
        Event(1, "reject", (0, 3), -1.0, 2, 2, 1),
    )
    result = result_of([[0, 1, 1], [2, 0, 3]], [True, True], trace)
    prefixes = torch.tensor([[0, 1], [2, 3]])
    assert refused_prefixes([result], prefixes).tolist() == [[0, 1, 3], [2, 0, 3]]
    assert refused_prefixes([], prefixes).shape == (0, 0)


def test_strings_that_have_ended_count_as_they_stand(model):
    right, early = [0, 1, 2, 3, 4], [0, 1, 4, PAD, PAD]
    sampling = plainly(P, model.law, 0.0, TorchRng(0))
    assert completed_anyhow(model, torch.tensor([right, early]), sampling) == 0.5


def test_exact_leaves_by_hand():
    class Half:
        def decoder_log_value(self, decoder, rows):
            return torch.full((len(rows),), 0.5, dtype=torch.float64).log()

    class NoOnes:
        def log_value(self, prefix):
            return torch.where((prefix == 1).any(-1), -torch.inf, 0.0).double()

    decoder = RecomputingDecoder(Uniform(3, 3), 4)
    decoder.extend(torch.tensor([[0, PAD], [0, 0], [0, 1], [2, PAD]]))
    values = ExactLeaves(Half(), NoOnes(), length=2, end_token=2)
    found = values.decoder_log_value(decoder, torch.arange(4)).exp()
    assert found.tolist() == pytest.approx([0.5, 1.0, 0.0, 1.0])  # the last row has ended


def test_a_cached_decoder_of_one_layer_shows_it(model):
    decoder = CachedDecoder(model.lm, 1, layer=0)
    decoder.extend(torch.tensor([[0, 1]]))
    seen = model.lm.net.inspect(torch.tensor([[model.lm.start_token, 0, 1]]))
    assert torch.allclose(decoder.hidden_state()[0], seen.hidden[0][0, -1], atol=1e-6)


def clusters():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn((90, 12), generator=generator, dtype=torch.float64)
    points[30:60] += 4
    points[60:] -= 4
    return points, torch.arange(90) >= 60


def test_tsne_is_as_good_a_picture_as_scikit_learns():
    points, labels = clusters()
    p = joint_probabilities(points, 15.0)
    ours = divergence(p, tsne(points, perplexity=15.0))
    theirs = TSNE(perplexity=15.0, method="exact", init="random", random_state=0)
    theirs = theirs.fit(points.numpy()).kl_divergence_
    assert ours < 1.1 * theirs
    assert neighbour_agreement(tsne(points, perplexity=15.0), labels) > 0.95


def test_joint_probabilities_have_the_perplexity():
    points, _ = clusters()
    p = joint_probabilities(points, 15.0)
    assert float(p.sum()) == pytest.approx(1)
    assert torch.allclose(p, p.T)
    # Two points: each is the other's only neighbour, whatever the width.
    four = torch.tensor([[0.0], [1.0], [10.0], [11.0]], dtype=torch.float64)
    near = joint_probabilities(four, 1.01)
    assert float(near[0, 1]) == pytest.approx(0.25, abs=1e-3)


def test_neighbour_agreement_by_hand():
    line = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    together = torch.tensor([True, True, False, False])
    crossed = torch.tensor([True, False, True, False])
    assert neighbour_agreement(line, together, neighbours=1) == 1.0
    assert neighbour_agreement(line, crossed, neighbours=1) == 0.0


def test_bad_pictures():
    points, _ = clusters()
    with pytest.raises(ValueError, match="perplexity"):
        tsne(points, perplexity=90.0)
    with pytest.raises(ValueError, match="points"):
        tsne(points[:2])


def test_comparisons_within_a_network_by_hand():
    rows = [
        {"seed": 0, "kind": "a", "x": 1.0, "which": "one"},
        {"seed": 0, "kind": "a", "x": 3.0, "which": "one"},
        {"seed": 1, "kind": "a", "x": 5.0, "which": "one"},
        {"seed": 1, "kind": "a", "x": 9.0, "which": "two"},
    ]
    assert by_network(rows, "x", which="one") == {0: 2.0, 1: 5.0}
    assert paired({0: 2.0, 1: 5.0}, {0: 1.0, 1: 2.0}).value == pytest.approx(2.0)
    ratio = fewer({0: 1.5, 1: 3.5}, {0: 3.5, 1: 7.5})
    assert ratio.value == pytest.approx(-(2**0) * 0.6931, abs=1e-4)  # log ½ in both
    assert ratio.half_width == pytest.approx(0, abs=1e-9)


def test_pooled_shares_by_hand():
    found = pooled([1, 3], [2, 4])
    assert found.value == pytest.approx(4 / 6)
    # Pseudo-values 2·⅔ - ¾ and 2·⅔ - ½: mean 17/24, standard error ⅛, t with one degree 12.706.
    assert found.half_width == pytest.approx(12.706 * 0.125, rel=1e-3)
    assert pooled([1], [2]).high == float("inf")


def test_a_nan_leaves_a_judge_undecided():
    judge = without_nan(lambda rows: Verdict(Outcome.HOLDS, "fine"))
    assert judge([{"kind": "a", "x": 1.0}]).outcome is Outcome.HOLDS
    for value in (float("nan"), [1.0, float("nan")]):
        verdict = judge([{"kind": "a", "x": value}])
        assert verdict.outcome is Outcome.UNDECIDED
        assert "x of a row of kind a" in verdict.because


def test_what_remains_is_told_of_the_variant_too():
    common = {"kind": "unseen", "quota": 4, "redo_argmax": True, "into_prompt": False}
    rows = [
        common
        | {
            "seed": seed,
            "top_p": 0.9,
            "verify_redone": verify,
            "errors": 10,
            "error_kinds": {"wrong_close": 10},
            "quota_used_up": 10 if verify else 2,
        }
        for seed in range(3)
        for verify in (True, False)
    ]
    verdict = judge_remaining(rows)
    assert verdict.outcome is Outcome.FAILS
    assert "in 20.0 % the quota was used up" in verdict.because
    assert "100.0 and 100.0 % if redone tokens are verified too" in verdict.because
