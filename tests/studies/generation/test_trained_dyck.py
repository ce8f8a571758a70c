"""What the studies of brackets are made of: prompts, mistakes, target laws, pictures, clusters."""

import itertools
from dataclasses import replace

import networkx
import pytest
import torch
from sklearn.manifold import TSNE
from tests.support.refusals import refused

from triptych.core.decoders import PAD
from triptych.core.protocols import Question
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.inference.guided import backtracking
from triptych.inference.guided.generation import Costs, Event, Result
from triptych.inference.guided.transforms import nucleus
from triptych.models.cache import CachedDecoder
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.parse import DyckError
from triptych.studies.api.study import Scale
from triptych.studies.generation.dyck_backtracking.study import STUDY
from triptych.studies.generation.shared.completions import (
    Mistakes,
    complete,
    complete_each,
    completed_anyhow,
    correct_like,
    correct_with_same_end,
    cut,
    draw_prompts,
    gather_mistakes,
    last_tokens,
    memory_of,
    plainly,
    read,
    refused_strings,
    states_of,
)
from triptych.studies.generation.shared.neighbours import (
    agreement_by_chance,
    clusters_holding,
    neighbour_agreement,
)
from triptych.studies.generation.shared.perfect_model import (
    completion_probs,
    depth_law,
    perfect_diversity,
)
from triptych.studies.generation.shared.trained_dyck import SMALL, DyckNetwork, Trained, language
from triptych.studies.generation.shared.tsne import divergence, joint_probabilities, tsne
from triptych.studies.generation.vgb_dyck.study import RememberedOutcome, target_law
from triptych.verifiers.leaves import ExactLeaves

P = DyckNetwork(length=4, shortest_prompt=1, longest_prompt=3, top_p=1.0, most_prompts=2000)
LENGTHS = {"shortest": 1, "longest": 3}


@pytest.fixture(scope="module")
def model():
    law = language(P, 0.25, "cpu")
    shape = Shape(law.vocab_size + 1, law.length + 1, width=8, layers=1, heads=2)
    lm = CausalLM(Transformer(shape, seed=0, init_scale=0.5))
    return Trained(lm, 0.0, law, language(P, 0.75, "cpu"))


def result_of(tokens, complete, trace=(), start=0):
    tokens = torch.tensor(tokens)
    lengths = (tokens != PAD).sum(1)
    costs = Costs.empty(len(tokens), torch.device("cpu"))
    prompts = torch.full_like(lengths, start)
    whole, info = torch.tensor(complete), backtracking.Info(lengths * 0, lengths * 0)
    reasons = tuple(None if one else "left" for one in complete)
    return Result(tokens, lengths, trace, costs, prompts, whole, whole, whole, reasons, info)


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
    prompts = draw_prompts(model.ood, 300, TorchRng(1), **LENGTHS)
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
    prompts = draw_prompts(model.ood, 7, TorchRng(4), **LENGTHS)
    greedy = plainly(model.law, 0.0, TorchRng(0))
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
    found = refused_strings([result], prefixes)
    assert found.tokens.tolist() == [[0, 1, 3], [2, 0, 3]]
    assert found.prefix.tolist() == [0, 1]
    again = refused_strings([result, result], prefixes.repeat(2, 1))  # two batches
    assert again.prefix.tolist() == [0, 1, 2, 3]
    nothing = refused_strings([], prefixes)
    assert nothing.tokens.shape == (0, 0)
    assert nothing.prefix.shape == (0,)


def test_strings_that_have_ended_count_as_they_stand(model):
    right, early = [0, 1, 2, 3, 4], [0, 1, 4, PAD, PAD]
    sampling = plainly(model.law, 0.0, TorchRng(0))
    (found,) = completed_anyhow(model, torch.tensor([right, early]), [sampling])
    assert found.tolist() == [True, False]


def test_completed_anyhow_is_complete_where_strings_go_on(model):
    """Some have ended and some have not; each is what it is alone."""
    strings = torch.tensor([[0, 1, 2, 3, 4], [0, 1, PAD, PAD, PAD], [2, 0, 1, PAD, PAD]])
    ways = [plainly(model.law, 0.0, TorchRng(0)), plainly(model.law, 0.0, TorchRng(1))]
    first, second = completed_anyhow(model, strings, ways)
    assert torch.equal(first, second)  # argmax
    for row, length in ((1, 2), (2, 3)):
        alone = read(model.law, complete(model.lm, strings[[row], :length], ways[0]))
        assert first[row] == alone.right[0]


def test_prompts_run_once_give_the_same_completions(model):
    """Every way of sampling, in its own stream, as if it were alone; and the prompts are run once
    in all."""
    prompts = draw_prompts(model.ood, 9, TorchRng(5), **LENGTHS)
    tokens = []

    def counted(decoder):
        before = decoder.slots_run
        result = plainly(model.law, 1.0, TorchRng(6))(decoder)
        tokens.append(decoder.slots_run - before)
        return result

    one, other = complete_each(model.lm, prompts, [counted, plainly(model.law, 0.0, TorchRng(7))])
    alone = complete(model.lm, prompts, counted)
    assert torch.equal(read(model.law, one).tokens, read(model.law, alone).tokens)
    greedy = complete(model.lm, prompts, plainly(model.law, 0.0, TorchRng(8)))
    assert torch.equal(read(model.law, other).tokens, read(model.law, greedy).tokens)
    assert tokens[1] - tokens[0] == int((prompts != PAD).sum()) + len(prompts)  # with the start
    parts = complete_each(model.lm, prompts, [plainly(model.law, 0.0, TorchRng(0))], at_once=4)
    assert [len(result.lengths) for result in parts[0]] == [4, 4, 1]


def test_a_memory_changes_no_completion(model):
    prompts = draw_prompts(model.ood, 40, TorchRng(0), **LENGTHS)

    def found(memory):
        ways = [plainly(model.law, top_p, TorchRng(1)) for top_p in (1.0, 0.8, 0.0)]
        every = complete_each(model.lm, prompts, ways, memory=memory)
        return [result.tokens for (result,) in every]

    memory = memory_of(model.lm)
    assert memory is not None
    for with_memory, without in zip(found(memory), found(None), strict=True):
        assert torch.equal(with_memory, without)
    passes = memory.passes
    found(memory)
    assert memory.passes == passes  # the same completions again ask nothing


def test_an_outcome_is_asked_for_once(model):
    class Counting:
        asked = 0

        def log_value(self, prefix):
            self.asked += len(prefix)
            return model.law.log_value(prefix)

    counting = Counting()
    remembered = RememberedOutcome(counting)
    strings = model.law.tokens("[]()", "[(])", "[]()")
    assert remembered.log_value(strings).tolist() == [0.0, -torch.inf, 0.0]
    assert remembered.log_value(strings[1:]).tolist() == [-torch.inf, 0.0]
    assert remembered.log_value(strings[:, :3]).tolist() == [0.0, -torch.inf, 0.0]
    assert counting.asked == 4  # two strings and two beginnings


def test_cutting_by_hand():
    tokens = torch.tensor([[0, 1, 2], [3, 4, 5]])
    assert cut(tokens, torch.tensor([1, 3])).tolist() == [[0, PAD, PAD], [3, 4, 5]]


def test_partners_end_in_the_same_token(model):
    mistakes = gather_mistakes(P, model, 60, TorchRng(2))
    partners = correct_with_same_end(mistakes, model.ood, TorchRng(3))
    chosen = Mistakes(mistakes.tokens[partners.found], mistakes.lengths[partners.found], 0)
    assert len(partners.found) > 0
    assert torch.equal((partners.tokens != PAD).sum(1), chosen.lengths)
    same = last_tokens(chosen._replace(tokens=partners.tokens))
    assert torch.equal(same, last_tokens(chosen))
    for row in partners.tokens.tolist():
        assert model.ood.completable(torch.tensor([[t for t in row if t != PAD]])).all()
    # Those without one have none: no correct string has this token at this length.
    left = set(range(60)) - set(partners.found.tolist())
    for row in left:
        length, token = int(mistakes.lengths[row]), int(last_tokens(mistakes)[row])
        strings = model.ood.sample(2000, TorchRng(4))
        assert not (strings[:, length - 1] == token).any()


def test_partners_by_hand():
    """Two mistakes of one token that opens with "[" find partners; one that ends at once has
    none."""
    law = language(P, 0.5, "cpu")
    strings = torch.tensor([[0, PAD], [0, PAD], [4, PAD], [0, 4]])
    mistakes = Mistakes(strings, torch.tensor([1, 1, 1, 2]), 4)
    partners = correct_with_same_end(mistakes, law, TorchRng(0))
    assert partners.found.tolist() == [0, 1]
    assert partners.tokens[:, 0].tolist() == [0, 0]


def test_a_correct_string_is_the_partner_of_one_mistake():
    """Mistakes that end in "[" at once use up all strings that begin so; none is left for those
    that end in "]" after two tokens."""
    law = language(P, 0.5, "cpu")
    strings = torch.tensor([[0, PAD]] * 30 + [[0, 1]] * 10)
    mistakes = Mistakes(strings, (strings != PAD).sum(1), 40)
    drawn = law.sample(40, TorchRng(1))
    fitting = int((drawn[:, 0] == 0).sum())
    assert 0 < fitting <= 30
    assert (drawn[:, 1] == 1).any()
    partners = correct_with_same_end(mistakes, law, TorchRng(1), tries=1)
    assert partners.found.tolist() == list(range(fitting))


def test_exact_leaves_by_hand():
    class Half:
        def log_values(self, asked):
            return torch.full((len(asked.row),), 0.5, dtype=torch.float64).log()

    class NoOnes:
        def log_value(self, prefix):
            return torch.where((prefix == 1).any(-1), -torch.inf, 0.0).double()

    tokens, every = torch.tensor([[0, PAD], [0, 0], [0, 1], [2, PAD]]), torch.arange(4)
    lengths = (tokens != PAD).sum(1)
    asked = Question(tokens, lengths, torch.zeros_like(lengths), every < 0, every)
    values = ExactLeaves(Half(), NoOnes(), length=2, end_token=2)
    found = values.log_values(asked).exp()
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
    with refused("points"):
        tsne(points[:2])


def clouds(*sizes, apart=100.0):
    """Clouds of this many points, far apart on a line in three dimensions."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)) * apart
    noise = torch.randn((sum(sizes), 3), generator=generator, dtype=torch.float64)
    return noise + centres[:, None]


def test_clusters_by_hand():
    line = torch.tensor([[0.0], [1.0], [10.0], [11.0], [12.0]])
    assert clusters_holding(line, share=0.8, neighbours=1) == 2
    assert clusters_holding(line, share=0.9, neighbours=1) == 3
    assert clusters_holding(line, share=0.4, neighbours=1) == 1


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ((60,), 1),
        ((40, 40), 2),
        ((30, 30, 30), 3),
        ((90, 6), 1),  # a few stragglers are not needed to hold 90 %
        ((20,) * 15, 14),
    ],
)
def test_clouds_are_counted(sizes, wanted):
    points = clouds(*sizes)
    assert clusters_holding(points) == wanted
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(2))
    assert clusters_holding(points[order]) == wanted
    assert clusters_holding(7.0 * points + 3.0) == wanted


def test_clusters_are_connected_components():
    """Against a graph library, on points without structure."""
    generator = torch.Generator().manual_seed(3)
    points = torch.rand((80, 2), generator=generator, dtype=torch.float64)
    for neighbours in (1, 2, 3, 5):
        near = torch.cdist(points, points).fill_diagonal_(torch.inf).topk(neighbours, largest=False)
        chosen = [set(row) for row in near.indices.tolist()]
        graph = networkx.Graph()
        graph.add_nodes_from(range(80))
        graph.add_edges_from((i, j) for i in range(80) for j in chosen[i] if i in chosen[j])
        sizes = sorted(map(len, networkx.connected_components(graph)), reverse=True)
        held = list(itertools.accumulate(sizes))
        wanted = 1 + sum(count < 72 for count in held)
        assert clusters_holding(points, neighbours=neighbours) == wanted


def test_shuffled_kinds_agree_by_chance_alone():
    points, labels = clusters()
    chance = agreement_by_chance(points, labels)
    assert neighbour_agreement(points, labels) > chance
    # 60 of one kind and 30 of the other agree with probability 5/9; no shuffle comes near to 1.
    assert 5 / 9 < chance < 0.75
    mixed = torch.arange(90) % 2 == 0  # says nothing about the places
    assert neighbour_agreement(points, mixed) <= agreement_by_chance(points, mixed)


# ------------------------------------------------------------------ a model without error


def grown(law, prompt, draws, transform):
    """Σ_y 1 - (1 - p(y | prompt))^draws, by asking the law for the next token again and again."""
    strings, log_probs = prompt[None], torch.zeros(1, dtype=torch.float64)
    for _ in range(law.length - len(prompt)):
        longer = log_probs[:, None] + transform(law.next_token_log_probs(strings))
        rows, tokens = torch.nonzero(longer > -torch.inf, as_tuple=True)
        strings = torch.cat([strings[rows], tokens[:, None]], dim=1)
        log_probs = longer[rows, tokens]
    assert float(log_probs.exp().sum()) == pytest.approx(1)
    return float((1 - (1 - log_probs.exp()) ** draws).sum())


def test_completions_of_a_perfect_model_by_hand():
    law = language(P, 0.25, "cpu")
    probs = completion_probs(law, 1, 1).tolist()
    assert sorted(probs) == pytest.approx([1 / 8, 1 / 8, 3 / 8, 3 / 8])
    # argmax closes at once (½ against ⅜ and ⅛), then opens a round bracket: one completion
    assert completion_probs(law, 1, 1, top_p=0.0).tolist() == pytest.approx([1.0])
    # After three tokens the rest is forced: one completion however often it is drawn.
    assert perfect_diversity(law, shortest=3, longest=3, draws=7) == pytest.approx(1)
    # After two, depth 2 (½) leaves one completion and depth 0 (½) two, with chances ¼ and ¾.
    two = 2 - 0.25**2 - 0.75**2
    wanted = (1 + two) / 2
    assert perfect_diversity(law, shortest=2, longest=2, draws=2) == pytest.approx(wanted)
    assert perfect_diversity(law, shortest=2, longest=3, draws=2) == pytest.approx((wanted + 1) / 2)


def test_depths_of_prompts():
    law = Dyck.fixed_length(4, type_probs=torch.tensor([1.0]).double(), q=0.25)
    assert depth_law(law, 2).tolist() == pytest.approx([0.75, 0, 0.25])
    law = language(SMALL, 0.2, "cpu")
    tokens = law.sample(20_000, TorchRng(0))[:, :25]
    depth = (1 - 2 * (tokens % 2)).sum(1)
    counts = torch.bincount(depth, minlength=law.max_depth + 1) / 20_000
    assert (counts - depth_law(law, 25)).abs().max() < 0.02  # 5 σ of a share of ½ is 0.018


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_a_perfect_model_against_its_own_next_tokens(top_p):
    law = language(DyckNetwork(length=8), 0.2, "cpu")
    total = 0.0
    for length in (4, 5):
        for depth, chance in enumerate(depth_law(law, length).tolist()):
            if chance:
                pairs = [0, 1] * ((length - depth) // 2)
                prompt = torch.tensor([*pairs, *[0] * depth])
                total += chance * grown(law, prompt, 10, nucleus(top_p)) / 2
    found = perfect_diversity(law, shortest=4, longest=5, draws=10, top_p=top_p)
    assert found == pytest.approx(total)


def test_the_published_diversity_needs_short_prompts():
    """Of ten completions 2.97 are distinct after 25 to 31 tokens, 6.08 after 25; 5.84 were
    published."""
    law = language(DyckNetwork(), 0.2, "cpu")
    assert perfect_diversity(law, shortest=25, longest=31, draws=10) == pytest.approx(
        2.974, abs=1e-3
    )
    assert perfect_diversity(law, shortest=25, longest=25, draws=10) == pytest.approx(
        6.078, abs=1e-3
    )


def test_settings_that_make_no_prompts():
    settings = STUDY.settings
    with pytest.raises(UserError, match="shortest_prompt"):
        STUDY.units(replace(settings[Scale.LAPTOP], shortest_prompt=40))
    for name, value in (("tries", 0), ("pictured", 3), ("seeds", 0)):
        with pytest.raises(UserError, match=f"{name} is {value}"):
            STUDY.units(replace(settings[Scale.LAPTOP], **{name: value}))


def test_seeds_are_counted_from_the_first():
    units = STUDY.units(replace(STUDY.settings[Scale.SMOKE], seeds=3, first_seed=7))
    assert [unit.seed for unit in units] == [7, 8, 9]
    assert {unit.length for unit in units} == {12}
