"""A network on word counts against the same network on the documents, token by token."""

import dataclasses

import pytest
import torch

from triptych.core.validation import UserError
from triptych.models.bags import (
    BagLM,
    StackedBags,
    bag_attention,
    bag_logits,
    count_tokens,
    only_attention,
)
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.training.loop import Trainable

PLAIN = Shape(
    vocab_size=6,
    length=8,
    width=6,
    layers=1,
    heads=1,
    feedforward=0,
    causal=False,
    positions="none",
    embedding="one_hot",
    tied=True,
    residual=False,
    norm="none",
    final_norm=False,
    output_projection=False,
)
SHAPES = {
    "one head": PLAIN,
    "three heads": dataclasses.replace(PLAIN, heads=3, embedding="learned"),
    "all the rest": dataclasses.replace(
        PLAIN, width=12, heads=2, embedding="learned", tied=False, output_projection=True
    ),
    "unscaled, final norm": dataclasses.replace(
        PLAIN, heads=2, embedding="learned", scale_attention=False, final_norm=True
    ),
}
each = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
# three documents, -1 beyond their ends; 5 stands at the head of the first like a start token
DOCUMENTS = torch.tensor(
    [[5, 0, 1, 1, 4, 4, 4, 2], [3, 3, 0, -1, -1, -1, -1, -1], [2, -1, 1, 2, -1, 0, 4, -1]]
)


def network(shape, dtype=torch.float64):
    net = Transformer(shape, seed=3, dtype=dtype, init_scale=0.8)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return net


def token_by_token(net, document):
    """Logits and patterns of one document without its gaps."""
    found = net.inspect(document[document >= 0][None])
    return found.logits[0], found.patterns[0][0]


@each
def test_logits_are_those_of_the_document(shape):
    net = network(shape)
    for document in DOCUMENTS:
        shown = document[document >= 0][None]
        found = bag_logits(net, count_tokens(document[None], 6), shown)
        torch.testing.assert_close(found[0], token_by_token(net, document)[0])


@each
def test_attention_is_summed_over_the_copies(shape):
    net = network(shape)
    for document in DOCUMENTS:
        shown = document[document >= 0]
        found = bag_attention(net, count_tokens(document[None], 6), shown[None])[0]
        pattern = token_by_token(net, document)[1]
        wanted = torch.zeros(shape.heads, len(shown), 6, dtype=torch.float64)
        for place, token in enumerate(shown.tolist()):
            wanted[:, :, token] += pattern[:, :, place]
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))


@each
def test_a_batch_with_padding_and_missing_questions(shape):
    """Also what the network itself does when padding is hidden from it."""
    net = network(shape)
    questions = torch.tensor([[4, 5, -1], [3, -1, -1], [0, 2, 4]])
    model = BagLM(net, length=8)
    found = model.token_logits(torch.cat([DOCUMENTS, questions], dim=1))
    assert found.shape == (3, 3, 6)
    padded = net.forward(DOCUMENTS.clamp(min=0), padding=DOCUMENTS < 0)
    for row, asked in enumerate(questions.tolist()):
        for column, token in enumerate(asked):
            if token >= 0:
                place = DOCUMENTS[row].tolist().index(token)
                torch.testing.assert_close(found[row, column], padded[row, place])
    assert isinstance(model, Trainable)


@each
def test_gradients_are_those_of_the_document(shape):
    net, rows = network(shape), DOCUMENTS.clamp(min=0)
    trained = [p for p in net.parameters() if p.requires_grad]
    weights = torch.randn(
        (3, 8, 6), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    by_counts = (bag_logits(net, count_tokens(rows, 6), rows) * weights).sum()
    by_tokens = (net.forward(rows) * weights).sum()
    for fast, slow in zip(
        torch.autograd.grad(by_counts, trained, allow_unused=True),
        torch.autograd.grad(by_tokens, trained, allow_unused=True),
        strict=True,
    ):
        assert (fast is None) == (slow is None)
        if fast is not None and slow is not None:
            torch.testing.assert_close(fast, slow)


def test_in_float32_as_it_is_trained():
    net = network(SHAPES["three heads"], torch.float32)
    rows = DOCUMENTS.clamp(min=0)
    found = bag_logits(net, count_tokens(rows, 6), rows)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, net.forward(rows))


def test_counts_by_hand():
    counts = count_tokens(torch.tensor([[2, 0, 2, -1], [-1, -1, -1, 1]]), 3)
    assert counts.tolist() == [[1, 0, 2], [0, 1, 0]]


def test_without_queries_and_keys_attention_is_the_frequency():
    net = network(PLAIN)
    for name in ("query", "key"):
        net.set_matrix(f"blocks.0.attention.{name}.weight", torch.zeros(6, 6))
        net.set_matrix(f"blocks.0.attention.{name}.bias", torch.zeros(6))
    found = bag_attention(net, count_tokens(DOCUMENTS[:1], 6), torch.tensor([[4, 0]]))
    wanted = torch.tensor([1, 2, 1, 0, 3, 1]).double() / 8
    torch.testing.assert_close(found, wanted.expand(1, 1, 2, 6))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layers": 2}, "layers = 2, not 1"),
        ({"positions": "learned"}, "positions = 'learned', not 'none'"),
        ({"causal": True}, "causal attention"),
        ({"residual": True}, "a residual"),
        ({"feedforward": 4}, "a feed-forward"),
        ({"norm": "pre"}, "norm = 'pre', not 'none'"),
        ({"input_norm": True}, "a norm of its inputs"),
        ({"embedding": "given", "tied": False}, "no embedding of its own"),
    ],
)
def test_a_network_that_counts_cannot_stand_for_is_refused(change, sentence):
    net = Transformer(dataclasses.replace(PLAIN, **change), seed=0)
    with pytest.raises(ValueError, match=sentence):
        BagLM(net, length=8)
    with pytest.raises(ValueError, match=sentence):
        bag_logits(net, torch.ones(1, 6), torch.tensor([[0]]))


def test_the_only_attention():
    net = network(PLAIN)
    assert only_attention(net) is net.blocks[0].attention


def one_hot_network(seed=0, scale=0.5, length=1.0, **more):
    shape = Shape(
        5, 8, width=5, layers=1, heads=1, feedforward=0, causal=False, positions="none",
        embedding="one_hot", residual=False, norm="none", output_projection=False, **more,
    )  # fmt: skip
    net = Transformer(shape, seed=seed, init_scale=scale)
    net.set_matrix("embedding.weight", length * torch.eye(5))
    net.set_matrix("output.weight", torch.eye(5))
    return net


SEEN = torch.tensor([[0, 1, 4, 4, 4, 4, 1], [2, 4, -1, -1, 4, -1, -1]])  # 4 tokens, 3 questions
SCORED = torch.tensor([[True, True, True], [True, False, False]])


def test_a_network_of_columns_answers_where_it_is_asked_also_after_a_step():
    """Its parameters are looked up once, so a step that moves them must be seen."""
    net = one_hot_network(length=3.0)
    lm = BagLM(net, 4)
    for _ in range(2):
        answers, place = lm.scored_logits(SEEN, SCORED)
        torch.testing.assert_close(answers[place], lm.token_logits(SEEN)[SCORED])
        with torch.no_grad():
            for number, parameter in enumerate(filter(lambda p: p.requires_grad, net.parameters())):
                parameter.add_(0.1 * (1 + number))


def test_stacked_networks_answer_as_each_alone():
    nets = [one_hot_network(0), one_hot_network(1, length=3.0), one_hot_network(2, scale=0.1)]
    stacked = StackedBags(nets, 4)
    answers, place = stacked.scored_logits(SEEN, SCORED)
    for net, found in zip(nets, answers, strict=True):
        torch.testing.assert_close(found[place], BagLM(net, 4).token_logits(SEEN)[SCORED])
        assert len(found) == 3  # the mask twice in the first document, and a word; one mask
    for part in ("query", "key", "value"):
        alone = [getattr(only_attention(net), part).weight.norm() for net in nets]
        torch.testing.assert_close(stacked.norms(part), torch.stack(alone).detach())


def test_stacked_parameters_go_back_into_the_networks():
    nets = [one_hot_network(0), one_hot_network(1)]
    stacked = StackedBags(nets, 4)
    with torch.no_grad():
        for parameter in stacked.parameters():
            parameter.add_(1.0)
    before = [net.output.bias.detach().clone() for net in nets]
    stacked.put_back()
    answers, place = stacked.scored_logits(SEEN, SCORED)
    for net, found, bias in zip(nets, answers, before, strict=True):
        torch.testing.assert_close(found[place], BagLM(net, 4).token_logits(SEEN)[SCORED])
        torch.testing.assert_close(net.output.bias, bias + 1.0)


def test_networks_that_cannot_be_stacked_are_refused():
    other = one_hot_network(0)
    other.set_matrix("output.weight", 2 * torch.eye(5))
    with pytest.raises(UserError, match="identity"):
        StackedBags([other], 4)
    with pytest.raises(UserError, match="identity"):
        StackedBags([one_hot_network(0, output_layer=True)], 4)
    with pytest.raises(UserError, match="one shape"):
        StackedBags([one_hot_network(0), one_hot_network(0, scale_attention=False)], 4)
    with pytest.raises(UserError, match="one shape"):
        StackedBags([], 4)
