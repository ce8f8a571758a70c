"""Networks on topic documents: objectives, losses and attention against brute force and by hand."""

import dataclasses
import math

import pytest
import torch

from triptych.core.corruption import corrupt
from triptych.core.enumeration import exact_law
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.bags import BagLM, UniformBagLM, token_vectors
from triptych.studies.api.study import Scale
from triptych.studies.topics import embedding_or_attention, topic_attention, two_stages
from triptych.studies.topics.shared.measures import (
    attention_means,
    embedding_products,
    exact_loss,
    has_learnt,
    held_out,
    held_out_loss,
    held_out_meter,
    norms,
    value_matrix,
)
from triptych.studies.topics.shared.networks import (
    AuthorsNetwork,
    Documents,
    TopicSettings,
    TopicUnit,
    Training,
    best_by_held_out_loss,
    masked_words,
    network,
    pair_name,
    reader,
    trained,
)
from triptych.studies.topics.shared.runs import mean_of_runs
from triptych.studies.topics.topic_matrices import study as topic_matrices

SMALL = Documents(topics=2, words=2, min_length=6, length=8, count=50)


def names_of_trained(training):
    net = network(SMALL, training, 0)
    return {name for name, p in net.named_parameters() if p.requires_grad}


# ------------------------------------------------------------------ what is trained


def test_only_what_is_trained_moves():
    part = "blocks.0.attention."
    value = {part + "value.weight", part + "value.bias"}
    scores = {part + f"{name}.{kind}" for name in ("query", "key") for kind in ("weight", "bias")}
    assert names_of_trained(Training()) == value | scores | {"output.bias"}
    assert names_of_trained(Training(attention=False)) == value | {"output.bias"}
    alone = names_of_trained(Training(embedding=True, attention=False, value=False))
    assert alone == {"embedding.weight", "output.bias"}
    everything = names_of_trained(Training(embedding=True))
    assert everything == value | scores | {"embedding.weight", "output.bias"}


def test_frozen_parts_are_what_they_should_be():
    net = network(SMALL, Training(attention=False, value=False, input_length=3.0), 0)
    assert torch.equal(net.embedding.weight, 3 * torch.eye(5))
    assert torch.equal(net.output.weight, torch.eye(5))
    assert torch.equal(value_matrix(net), torch.eye(5))
    assert norms(net) == (0.0, 0.0, pytest.approx(math.sqrt(5)))
    assert network(SMALL, Training(start=True), 0).shape.vocab_size == 6


def test_initial_scales():
    documents = Documents(topics=10, words=10)
    net = network(documents, Training(embedding=True, init_scale=0.01, embedding_scale=2.0), 3)
    assert float(net.embedding.weight.detach().std()) == pytest.approx(2.0, rel=0.05)
    assert float(value_matrix(net).std()) == pytest.approx(0.01, rel=0.05)
    diagonal = embedding_products(net).diagonal()
    assert torch.allclose(diagonal, net.embedding.weight.square().sum(1), rtol=1e-5)
    # the embedding's transpose reads out: its rows are words on both sides
    assert net.output.weight is net.embedding.weight


def test_norms_by_hand():
    net = network(SMALL, Training(), 0)
    for name, scale in (("query", 2.0), ("key", 3.0), ("value", 4.0)):
        net.set_matrix(f"blocks.0.attention.{name}.weight", scale * torch.eye(5))
    found = norms(net)
    assert found.query == pytest.approx(2 * math.sqrt(5))
    assert found.key == pytest.approx(3 * math.sqrt(5))
    assert found.value == pytest.approx(4 * math.sqrt(5))


# ------------------------------------------------------------------ the authors' network

AUTHORS = Training(
    embedding=True, authors=True, embedding_scale=1.0, init_scale=0.5, start=True, blind=True
)


def test_words_enter_normalised():
    """LayerNorm(e_w + t) by its definition; t and the norm are trained, nothing is tied."""
    net = network(SMALL, AUTHORS, 2)
    assert isinstance(net, AuthorsNetwork)
    with torch.no_grad():
        net.input_norm.weight.copy_(torch.arange(1.0, 7.0))
        net.input_norm.bias.copy_(torch.arange(6.0))
    raw = (net.embedding.weight + net.every_word).detach()
    centred = raw - raw.mean(1, keepdim=True)
    wanted = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
    wanted = wanted * torch.arange(1.0, 7.0) + torch.arange(6.0)
    assert torch.allclose(token_vectors(net), wanted, atol=1e-5)
    assert net.output.weight is not net.embedding.weight
    assert {"every_word", "input_norm.weight", "output.weight"} <= names_of_trained(AUTHORS)
    # W_E' W_E is of the embeddings alone
    weight = net.embedding.weight.detach()
    assert torch.allclose(embedding_products(net), weight @ weight.T)


def test_the_authors_network_on_counts_is_the_network_on_positions():
    documents = dataclasses.replace(SMALL, p_m=0.4)
    net = network(documents, AUTHORS, 1)
    prediction = held_out(documents, dataclasses.replace(AUTHORS, blind=False), 3, 20)
    found = reader(net, documents, AUTHORS).token_logits(prediction.seen)
    length, checked = documents.length + 1, 0
    for b in range(20):
        tokens = prediction.seen[b, :length]
        tokens = tokens[tokens >= 0]
        for q in torch.nonzero(prediction.scored[b])[:, 0].tolist():
            place = int((tokens == prediction.seen[b, length + q]).nonzero()[0])
            assert torch.allclose(found[b, q], net(tokens[None])[0, place], atol=1e-5)
            checked += 1
    assert checked > 20


def test_the_authors_network_starts_from_normal_embeddings():
    documents = Documents(topics=10, words=10)
    net = network(documents, dataclasses.replace(AUTHORS, init_scale=0.0577), 3)
    assert float(net.embedding.weight.detach().std()) == pytest.approx(1.0, rel=0.05)
    assert float(net.every_word.detach().std()) == pytest.approx(1.0, rel=0.3)
    assert float(net.output.weight.detach().std()) == pytest.approx(0.0577, rel=0.05)
    assert float(value_matrix(net).std()) == pytest.approx(0.0577, rel=0.05)
    # LayerNorm makes every word √V long
    assert torch.allclose(token_vectors(net).norm(dim=1), torch.tensor(102.0).sqrt(), rtol=1e-3)


def test_the_authors_network_has_trained_embeddings():
    with pytest.raises(UserError, match="embedding=True"):
        Training(authors=True)


# ------------------------------------------------------------------ stopping


def scripted(losses):
    """A held-out loss that follows a script, and the steps at which it was asked for."""
    asked = []

    def meter(net):
        asked.append(len(asked))
        return losses[len(asked) - 1]

    return meter, asked


@pytest.mark.parametrize(
    ("losses", "patience", "best", "asked", "finished"),
    [
        ([3.0, 2.0, 2.5, 2.4, 1.0], 2, (2, 2.0), 4, True),  # the worked value
        ([3.0, 2.0, 2.0, 2.0], 2, (2, 2.0), 4, True),  # as low is no new least
        ([3.0, 2.0, 2.5, 1.9, 1.8], 2, (5, 1.8), 5, False),  # still falling at the last step
        ([3.0, 2.0, 2.5, 2.4, 2.4], 4, (2, 2.0), 5, False),  # too patient
        ([3.0, 4.0], 1, (1, 3.0), 2, True),
    ],
)
def test_a_run_ends_when_its_loss_has_not_fallen_for_long(losses, patience, best, asked, finished):
    documents = dataclasses.replace(SMALL, p_m=0.3)
    training = Training(steps=5 * 3, learning_rate=0.05)
    meter, seen = scripted(losses)
    found = best_by_held_out_loss(
        documents,
        training,
        0,
        every=3,
        patience=3 * patience,
        look=value_matrix,
        held_out_loss=meter,
    )
    assert (found.step, found.loss) == (3 * best[0], best[1])
    assert len(seen) == asked
    assert found.finished is finished


def test_what_is_looked_at_is_kept_as_it_was():
    """The value matrix of the best step, though training went on."""
    documents = dataclasses.replace(SMALL, p_m=0.3)
    training = Training(steps=12, learning_rate=0.05)
    meter, _ = scripted([3.0, 2.0, 2.5, 2.6])
    found = best_by_held_out_loss(
        documents,
        training,
        0,
        every=3,
        patience=6,
        look=lambda net: value_matrix(net).clone(),
        held_out_loss=meter,
    )
    wanted, _ = trained(documents, dataclasses.replace(training, steps=6), 0)
    assert torch.equal(found.found, value_matrix(wanted))


def test_stopping_needs_a_step_to_ask_at():
    with pytest.raises(UserError, match="every is 9"):
        best_by_held_out_loss(
            SMALL,
            Training(steps=5),
            0,
            every=9,
            patience=1,
            look=value_matrix,
            held_out_loss=lambda net: 0.0,
        )


def test_the_meter_is_the_held_out_loss():
    net = network(SMALL, Training(init_scale=0.5), 0)
    meter = held_out_meter(SMALL, Training(), 4, 50)
    assert meter(net) == meter(net) == held_out_loss(net, SMALL, Training(), 4, 50)


def test_failed_runs_by_hand():
    assert [has_learnt(loss, 4.6, 3.1) for loss in (3.1, 3.39, 3.41, 4.5)] == [
        True,
        True,
        False,
        False,
    ]
    assert not has_learnt(math.nan, 4.6, 3.1)


def test_means_of_runs():
    found = mean_of_runs([1.0, 2.0, 3.0])
    assert (found.value, found.half_width) == pytest.approx((2.0, 4.302653 / 3**0.5), rel=1e-6)
    few = mean_of_runs([1.0, 2.0])
    assert (few.value, few.low, few.high) == (1.5, -math.inf, math.inf)
    for nothing in ([], [1.0, math.nan, 2.0, 3.0]):
        estimate = mean_of_runs(nothing)
        assert math.isnan(estimate.value)
        assert (estimate.low, estimate.high) == (-math.inf, math.inf)
    wide = mean_of_runs([1.0, 2.0, 3.0], confidence=0.99)
    assert wide.half_width == pytest.approx(9.924843 / 3**0.5, rel=1e-6)


# ------------------------------------------------------------------ settings and units


def test_sizes_reach_the_documents():
    settings = TopicSettings(topics=3, words=4, min_length=5, length=6, count=7, seeds=2)
    unit = TopicUnit.of(settings, seed=9)
    assert unit.documents == settings.documents == Documents(3, 4, 0.1, 5, 6, 7)
    assert list(settings.run_seeds) == [100, 101]
    assert pair_name("squared", "sgd") == "squared loss + SGD"


@pytest.mark.parametrize(
    "study",
    [m.STUDY for m in (topic_matrices, topic_attention, two_stages, embedding_or_attention)],
    ids=lambda study: study.name,
)
def test_seeds_that_decide_are_fresh(study):
    """Judges were changed after rows of seeds 0 to 4 had been seen."""
    for scale in (Scale.LAPTOP, Scale.PAPER):
        for unit in study.units(study.settings[scale]):
            if type(unit).__name__ not in ("TrainTied", "Descend"):  # shown next to; exact
                assert unit.seed >= 100


# ------------------------------------------------------------------ the objective


def read(prediction, length):
    """document -> sorted (seen token, answer) pairs of what is asked."""
    rows = []
    for b in range(len(prediction.tokens)):
        scored = prediction.scored[b]
        queries = prediction.seen[b, length:][scored].tolist()
        rows.append((prediction.seen[b, :length].tolist(), queries, prediction.tokens[b][scored]))
    return rows


def test_questions_are_the_selected_words():
    documents = dataclasses.replace(SMALL, p_m=0.5, p_c=0.0, p_r=0.0)
    tokens = documents.lda.sample(300, TorchRng(1))
    for row, (seen, queries, answers) in enumerate(
        read(masked_words(documents, Training())(tokens, TorchRng(2)), 8)
    ):
        original = tokens[row].tolist()
        masked = [i for i, token in enumerate(seen) if token == 4]
        ends = [i for i, token in enumerate(seen) if token == -1]
        assert [original[i] for i in ends] == [4] * len(ends)  # LDA's end token is not asked about
        assert all(original[i] < 4 for i in masked)
        assert queries == [4] * len(masked)
        assert answers.tolist() == [original[i] for i in masked]
        kept = [i for i in range(8) if i not in masked + ends]
        assert [seen[i] for i in kept] == [original[i] for i in kept]


def test_start_token_and_blindness():
    documents = dataclasses.replace(SMALL, p_m=0.5, p_c=0.5, p_r=0.0)
    tokens = documents.lda.sample(100, TorchRng(1))
    start = masked_words(documents, Training(start=True))(tokens, TorchRng(2))
    assert (start.seen[:, 0] == documents.start_token).all()
    assert documents.start_token == 5
    plain = masked_words(documents, Training())(tokens, TorchRng(2))
    assert torch.equal(start.seen[:, 1:], plain.seen)
    blind = masked_words(documents, Training(blind=True))(tokens, TorchRng(2))
    assert torch.equal(blind.seen[:, 8:], plain.seen[:, 8:])
    assert torch.equal(blind.scored, plain.scored)
    seen = [int((row >= 0).sum()) for row in blind.seen[:, :8]]
    words = [int((row >= 0).sum()) for row in plain.seen[:, :8]]
    asked = plain.scored.sum(1).tolist()
    assert seen == [w - a for w, a in zip(words, asked, strict=True)]
    assert max(asked) > 0


def test_corruption_has_the_law_of_the_corruption():
    """Two words, every fate: the same probabilities as `core.corruption.corrupt`."""
    documents = dataclasses.replace(SMALL, min_length=2, length=2, p_m=0.4, p_c=0.3, p_r=0.2)
    tokens = torch.tensor([[3, 0]])

    def mine(rng):
        seen = masked_words(documents, Training())(tokens, rng)
        return tuple(seen.seen[0, :2].tolist()), tuple(sorted(seen.tokens[seen.scored].tolist()))

    def reference(rng):
        seen, selected = corrupt(tokens, rng, words=4, mask_token=4, p_m=0.4, p_c=0.3, p_r=0.2)
        return tuple(seen[0].tolist()), tuple(sorted(tokens[selected].tolist()))

    wanted, found = exact_law(reference), exact_law(mine)
    assert len(wanted.probs) > 30
    assert found.total_variation(wanted) < 1e-12


# ------------------------------------------------------------------ the network on counts


@pytest.mark.parametrize("start", [False, True])
def test_logits_are_those_of_the_network(start):
    """Attention, value and output written out position by position."""
    documents = dataclasses.replace(SMALL, p_m=0.4)
    training = Training(start=start, init_scale=0.7, input_length=1.5)
    net = network(documents, training, 1)
    prediction = held_out(documents, training, seed=3, count=20)
    length = documents.length + start
    found = BagLM(net, length).token_logits(prediction.seen)
    for b in range(20):
        document = prediction.seen[b, :length]
        tokens = document[document >= 0]
        for q in torch.nonzero(prediction.scored[b])[:, 0].tolist():
            query = prediction.seen[b, length + q]
            place = int((tokens == query).nonzero()[0])  # any position that shows the token
            alone = net(tokens[None])[0, place]
            assert torch.allclose(found[b, q], alone, atol=1e-5)


def test_uniform_attention_has_one_answer():
    training = Training(attention=False, init_scale=0.5)
    net = network(SMALL, training, 1)
    seen = held_out(SMALL, training, seed=3, count=30).seen
    fast, slow = (reader(net, SMALL.length).token_logits(seen) for reader in (UniformBagLM, BagLM))
    assert torch.allclose(fast, slow, atol=1e-6)
    assert float(slow.detach().abs().max()) > 0.1


# ------------------------------------------------------------------ losses


def test_held_out_loss_of_a_guess():
    net = network(SMALL, Training(init_scale=1e-9), 0)
    assert held_out_loss(net, SMALL, Training(), 1, 200) == pytest.approx(math.log(5), abs=1e-5)
    squared = held_out_loss(net, SMALL, Training(loss="squared"), 1, 200)
    assert squared == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("name", ["cross_entropy", "squared"])
def test_exact_loss_against_the_urn(name):
    """Pólya: a word of topic t has (n_t + α) / (n + T α) / v, n_t the shown words of t."""
    documents = dataclasses.replace(SMALL, p_m=0.4, p_c=0.0, p_r=0.0)
    prediction = held_out(documents, Training(), seed=5, count=60)
    total, asked = 0.0, 0
    for seen, _, answers in read(prediction, 8):
        shown = [token for token in seen if 0 <= token < 4]
        counts = [sum(token // 2 == topic for token in shown) for topic in range(2)]
        law = [(counts[w // 2] + 0.1) / (len(shown) + 0.2) / 2 for w in range(4)]
        for word in answers.tolist():
            asked += 1
            if name == "cross_entropy":
                total -= math.log(law[word])
            else:
                total += sum((p - (w == word)) ** 2 for w, p in enumerate(law))
    assert exact_loss(documents, name, 5, 60) == pytest.approx(total / asked, abs=1e-9)


def test_exact_loss_needs_masks_and_survives_documents_without_any():
    with pytest.raises(UserError, match="p_c = p_r = 0"):
        exact_loss(SMALL, "cross_entropy", 0, 10)
    rare = dataclasses.replace(SMALL, p_m=0.02, p_c=0.0, p_r=0.0)
    assert math.isfinite(exact_loss(rare, "cross_entropy", 0, 50))


# ------------------------------------------------------------------ training


def test_training_is_repeatable_and_watched():
    documents = dataclasses.replace(SMALL, p_m=0.3)
    training = Training(steps=5, learning_rate=0.05)
    steps = []
    net, history = trained(documents, training, 0, watch=lambda step, _: steps.append(step))
    again, _ = trained(documents, training, 0)
    other, _ = trained(documents, training, 1)
    assert steps == [0, 1, 2, 3, 4, 5]
    assert len(history.losses) == 5
    assert torch.equal(value_matrix(net), value_matrix(again))
    assert not torch.equal(value_matrix(net), value_matrix(other))


def test_training_learns_and_leaves_frozen_parts():
    documents = Documents(topics=2, words=2, min_length=20, length=24, count=300, p_m=0.3)
    training = Training(attention=False, steps=150, learning_rate=0.1)
    before = held_out_loss(network(documents, training, 0), documents, training, 9, 300)
    net, _ = trained(documents, training, 0)
    assert norms(net).key == 0.0
    assert torch.equal(net.embedding.weight, torch.eye(5))
    # two topics, Dirichlet 0.1: the topic is mostly known, so about log 2 of log 5 is left
    assert before == pytest.approx(math.log(5), abs=0.01)
    assert held_out_loss(net, documents, training, 9, 300) < 1.1


def test_l2_shrinks():
    documents = dataclasses.replace(SMALL, p_m=0.3)
    free, _ = trained(documents, Training(steps=60, attention=False, init_scale=0.5), 0)
    held, _ = trained(documents, Training(steps=60, attention=False, init_scale=0.5, l2=1.0), 0)
    assert norms(held).value < 0.7 * norms(free).value


# ------------------------------------------------------------------ attention by kind of pair


@pytest.mark.parametrize("start", [False, True])
def test_attention_means_against_positions(start):
    net = network(SMALL, Training(start=start, init_scale=1.0), 4)
    found = attention_means(net, SMALL, start=start, seed=7, count=6, cut=6)
    words = SMALL.lda.sample(6, TorchRng(7))[:, : 6 - start]
    sums, pairs = dict.fromkeys("wtds", 0.0), dict.fromkeys("wtds", 0)
    for row in words:
        tokens = row.tolist()
        if start:
            tokens = [5, *tokens]
        pattern = net.inspect(torch.tensor([tokens])).patterns[0][0, 0].detach()
        for i, a in enumerate(tokens):
            for j, b in enumerate(tokens):
                if a == 5:
                    continue  # from the start token nobody looks
                kind = "s" if b == 5 else "w" if a == b else "t" if a // 2 == b // 2 else "d"
                sums[kind] += float(pattern[i, j])
                pairs[kind] += 1
    assert found.same_word == pytest.approx(sums["w"] / pairs["w"], abs=1e-6)
    assert found.same_topic == pytest.approx(sums["t"] / pairs["t"], abs=1e-6)
    assert found.different_topic == pytest.approx(sums["d"] / pairs["d"], abs=1e-6)
    if start:
        assert found.special == pytest.approx(sums["s"] / pairs["s"], abs=1e-6)
    else:
        assert found.special is None


def test_even_attention_is_one_over_the_length():
    net = network(SMALL, Training(attention=False), 0)
    found = attention_means(net, SMALL, start=False, seed=1, count=20, cut=5)
    for value in (found.same_word, found.same_topic, found.different_topic):
        assert value == pytest.approx(0.2, abs=1e-7)
