"""The network computes what its definition says, and every switch does what it promises."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from triptych.core.axioms import check_structure
from triptych.core.protocols import Density, Masked, NextToken
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.layers import Attention, ProjectionNorm, mapped, rotate
from triptych.models.transformer import Shape, Transformer

VOCAB, LENGTH, WIDTH = 5, 6, 8


def network(seed=0, *, dtype=torch.float64, init_scale=0.4, **switches):
    switches = {"width": WIDTH, "layers": 2, "heads": 2, **switches}
    net = Transformer(
        Shape(VOCAB, LENGTH, **switches), seed=seed, dtype=dtype, init_scale=init_scale
    )
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():  # biases start at 0: make them matter
        for name, parameter in net.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3, generator=generator)
    return net


def some_tokens(batch=3, t=LENGTH, seed=0):
    return torch.randint(VOCAB, (batch, t), generator=torch.Generator().manual_seed(seed))


def bare(**switches):
    """One layer that is nothing but attention."""
    return {
        "layers": 1,
        "feedforward": 0,
        "norm": "none",
        "residual": False,
        "bias": False,
        "positions": "none",
        **switches,
    }


SWITCHES = [
    {},
    {"causal": False},
    *({"positions": kind} for kind in ("learned", "linear", "rotary", "none")),
    *({"norm": kind} for kind in ("pre", "post", "projection", "feedforward", "kept", "none")),
    {"norm": "none", "final_norm": True},
    {"norm": "projection", "final_norm": True},
    {"norm": "projection", "norm_constant": 0.0},
    {"embedding": "one_hot"},
    {"embedding": "one_hot", "tied": True},
    {"tied": True},
    {"residual": False},
    {"bias": False},
    {"bias": False, "norm": "post"},
    {"activation": "relu"},
    {"feedforward": 0},
    {"feedforward": 3},
    {"layers": 1},
    {"layers": 3},
    {"heads": 1},
    {"heads": 4, "positions": "rotary"},
    {"scale_attention": False},
    {"output_projection": False},
    {"final_norm": False},
    {"input_norm": True},
    {"output_layer": True},
    {"input_norm": True, "output_layer": True, "norm": "post", "tied": True, "causal": False},
    bare(),
    bare(output_projection=False, causal=False),
]


def named(switches):
    return ",".join(f"{name}={value}" for name, value in switches.items()) or "default"


@pytest.mark.parametrize("switches", SWITCHES, ids=named)
def test_every_switch_gives_logits_that_inspect_repeats(switches):
    net, tokens = network(**switches), some_tokens()
    logits, seen = net(tokens), net.inspect(tokens)
    layers, heads = net.shape.layers, net.shape.heads
    assert logits.shape == (3, LENGTH, VOCAB)
    assert torch.isfinite(logits).all()
    torch.testing.assert_close(seen.logits, logits, rtol=1e-10, atol=1e-10)
    assert [x.shape for x in seen.hidden] == [(3, LENGTH, WIDTH)] * (layers + 1)
    assert [x.shape for x in seen.patterns] == [(3, heads, LENGTH, LENGTH)] * layers
    assert [x.shape for x in seen.heads] == [(3, heads, LENGTH, WIDTH)] * layers
    torch.testing.assert_close(net.read_out(seen.hidden[-1]), logits)
    for pattern in seen.patterns:
        torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))


@pytest.mark.parametrize("switches", SWITCHES, ids=named)
def test_gradients_reach_every_parameter_that_is_not_frozen(switches):
    net = network(**switches)
    (net(some_tokens()) ** 2).sum().backward()
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name
        else:
            assert parameter.grad is None, name


@pytest.mark.parametrize("switches", SWITCHES, ids=named)
def test_only_a_bidirectional_network_looks_ahead(switches):
    net, tokens = network(**switches), some_tokens()
    other = tokens.clone()
    other[:, 4] = (other[:, 4] + 1) % VOCAB
    change = (net(tokens) - net(other)).abs().amax(-1)
    assert (change[:, 4] > 1e-9).all()
    if net.shape.causal:
        assert (change[:, :4] == 0).all()
    else:
        assert (change[:, :4] > 1e-9).all()


# ---------------------------------------------------------------------- the definition, by hand


def test_worked_value_of_attention():
    shape = Shape(1, 2, width=1, heads=1, embedding="given", output_projection=False, **bare())
    net = Transformer(shape, seed=0, dtype=torch.float64)
    for name, value in (("query", math.log(3)), ("key", 1.0), ("value", 2.0)):
        net.set_matrix(f"blocks.0.attention.{name}.weight", torch.tensor([[value]]))
    net.set_matrix("output.weight", torch.tensor([[1.0]]))
    seen = net.inspect(vectors=torch.tensor([[[0.0], [1.0]]], dtype=torch.float64))
    expected = torch.tensor([[1.0, 0.0], [0.25, 0.75]], dtype=torch.float64)
    torch.testing.assert_close(seen.patterns[0][0, 0], expected)
    torch.testing.assert_close(seen.logits[0, :, 0], torch.tensor([0.0, 1.5], dtype=torch.float64))


def test_maps_at_once_by_hand():
    linear = nn.Linear(2, 1)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 2.0]]))
        linear.bias.fill_(0.5)
    x = torch.tensor([[3.0, 4.0], [0.0, -1.0]])
    for at_once in (True, False):
        for found in mapped([linear, linear], x, at_once=at_once):
            torch.testing.assert_close(found, torch.tensor([[11.5], [-1.5]]))


@pytest.mark.parametrize("bias", [True, False])
def test_gradients_of_maps_at_once_are_those_of_the_maps(bias):
    torch.manual_seed(0)
    linears = [nn.Linear(6, 4, bias=bias).double() for _ in range(3)]
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    wanted = [x, *(p for linear in linears for p in linear.parameters())]

    def gradients(at_once):
        found = mapped(linears, x, at_once=at_once)
        total = sum((k * part.sin()).sum() for k, part in enumerate(found, start=1))
        return torch.autograd.grad(total, wanted)

    for found, expected in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("scaled", "share"), [(True, 3 / 4), (False, 9 / 10)])
def test_scores_are_divided_by_the_root_of_the_head_width(scaled, share):
    """Head width 4 and a product q·k = 2 log 3: the odds are 3 with the scale ½, 9 without."""
    shape = Shape(1, 2, width=4, heads=1, embedding="given", scale_attention=scaled, **bare())
    net = Transformer(shape, seed=0, dtype=torch.float64)
    net.set_matrix("blocks.0.attention.query.weight", 2 * math.log(3) * torch.eye(4))
    net.set_matrix("blocks.0.attention.key.weight", torch.eye(4))
    vectors = torch.zeros(1, 2, 4, dtype=torch.float64)
    vectors[0, 1, 0] = 1.0
    pattern = net.inspect(vectors=vectors).patterns[0]
    assert pattern[0, 0, 1, 1].item() == pytest.approx(share)


def test_the_whole_layer_agrees_with_torchs_own():
    """An independent implementation: torch.nn.TransformerEncoderLayer, pre and post norm."""
    for norm in ("pre", "post"):
        net = network(norm=norm, layers=1, causal=False, positions="none", final_norm=False)
        block = net.blocks[0]
        peer = torch.nn.TransformerEncoderLayer(
            WIDTH, 2, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=norm == "pre"
        ).double()
        attention, inner = block.attention, block.feedforward
        three = (attention.query, attention.key, attention.value)
        with torch.no_grad():
            peer.self_attn.in_proj_weight.copy_(torch.cat([part.weight for part in three]))
            peer.self_attn.in_proj_bias.copy_(torch.cat([part.bias for part in three]))
        peer.self_attn.out_proj.load_state_dict(attention.output.state_dict())
        peer.linear1.load_state_dict(inner.inner.state_dict())
        peer.linear2.load_state_dict(inner.outer.state_dict())
        peer.norm1.load_state_dict(block.attention_norm.state_dict())
        peer.norm2.load_state_dict(block.feedforward_norm.state_dict())
        tokens = some_tokens()
        torch.testing.assert_close(net.inspect(tokens).hidden[1], peer(net.embed(tokens)))


def test_bert_is_bert():
    """Logits, and their gradients at the inputs, of `transformers.BertForMaskedLM`."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 7, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(
        **sizes, intermediate_size=32, max_position_embeddings=6, attn_implementation="eager"
    )
    theirs = transformers.BertForMaskedLM(config).double().eval()
    net = Transformer(
        Shape.bert(7, 6, width=8, layers=2, heads=2), seed=0, init_scale=0.4, dtype=torch.float64
    )
    with torch.no_grad():
        for number, parameter in enumerate(theirs.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter.normal_(0.2, 0.4, generator=generator)
    embeddings, head = theirs.bert.embeddings, theirs.cls.predictions
    segment = embeddings.token_type_embeddings.weight[0]  # one segment: a part of every position
    weights = {
        "embedding.weight": embeddings.word_embeddings.weight,
        "output.weight": embeddings.word_embeddings.weight,
        "position.weight": embeddings.position_embeddings.weight + segment,
        "output.bias": head.bias,
    }
    modules = {"input_norm": embeddings.LayerNorm}
    modules |= {"output_layer.linear": head.transform.dense}
    modules |= {"output_layer.norm": head.transform.LayerNorm}
    for i, layer in enumerate(theirs.bert.encoder.layer):
        own = layer.attention.self
        modules |= {
            f"blocks.{i}.{name}": module
            for name, module in {
                "attention.query": own.query,
                "attention.key": own.key,
                "attention.value": own.value,
                "attention.output": layer.attention.output.dense,
                "attention_norm": layer.attention.output.LayerNorm,
                "feedforward.inner": layer.intermediate.dense,
                "feedforward.outer": layer.output.dense,
                "feedforward_norm": layer.output.LayerNorm,
            }.items()
        }
    for name, module in modules.items():
        weights |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
    net.load_state_dict(weights)
    tokens = some_tokens()
    torch.testing.assert_close(net(tokens), theirs(input_ids=tokens).logits)
    vectors = [net.embed(tokens).detach().requires_grad_() for _ in range(2)]
    net(vectors=vectors[0]).square().sum().backward()
    theirs(inputs_embeds=vectors[1]).logits.square().sum().backward()
    torch.testing.assert_close(vectors[0].grad, vectors[1].grad)


def test_the_sizes_of_bert():
    """By hand, width w = 768, f = 3072, n = 512, v = 11: a layer has 4 (w² + w) in attention,
    2 w f + w + f in the feed-forward and 4 w in its norms, 7,087,872 in all. Next to the six:
    v w + n w, 2 w of the input's norm, w² + w + 2 w of the output layer and v biases."""
    net = Transformer(Shape.bert(11, 512, width=768, layers=6, heads=12), seed=0)
    beside = (11 + 512) * 768 + 2 * 768 + 768**2 + 3 * 768 + 11
    assert sum(p.numel() for p in net.parameters()) == 6 * 7_087_872 + beside == 43_522_571


def test_the_output_layer_by_hand():
    """relu((1, -2, 3)) = (1, 0, 3) has mean 4/3 and variance 14/9, and the output sums it."""
    net = network(width=3, heads=1, output_layer=True, norm="none", activation="relu", layers=1)
    net.set_matrix("output_layer.linear.weight", torch.eye(3).double())
    net.set_matrix("output_layer.linear.bias", torch.zeros(3).double())
    net.set_matrix("output_layer.norm.bias", torch.zeros(3).double())
    net.set_matrix("output.weight", torch.eye(VOCAB, 3).double())
    net.set_matrix("output.bias", torch.zeros(VOCAB).double())
    given = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    wanted = (torch.tensor([1.0, 0.0, 3.0]).double() - 4 / 3) / math.sqrt(14 / 9 + 1e-5)
    torch.testing.assert_close(net.read_out(given), torch.cat([wanted, torch.zeros(2).double()]))


def test_projection_norm_by_hand():
    """(3, 1, 2) has mean 2 and centred part (1, -1, 0) of length √2."""
    x = torch.tensor([[3.0, 1.0, 2.0], [5.0, 5.0, 5.0]], dtype=torch.float64)
    unit = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)
    zero = torch.zeros(3, dtype=torch.float64)
    torch.testing.assert_close(ProjectionNorm(0.0)(x), torch.stack([unit / 2**0.5, zero]))
    torch.testing.assert_close(ProjectionNorm(2.0)(x), torch.stack([unit / 2.0, zero]))


def test_projection_stands_between_attention_and_residual():
    net, tokens = (
        network(norm="projection", layers=1, feedforward=0, norm_constant=0.0),
        some_tokens(),
    )
    seen = net.inspect(tokens)
    attended = seen.heads[0].sum(1) + net.blocks[0].attention.output.bias
    update = seen.hidden[1] - seen.hidden[0]
    torch.testing.assert_close(update, ProjectionNorm(0.0)(attended))
    torch.testing.assert_close(update.norm(dim=-1), torch.ones_like(update[..., 0]))


@pytest.mark.parametrize("norm", ["feedforward", "kept"])
def test_one_norm_stands_before_the_feedforward(norm):
    """y = x + a(x), and x' = y + f(LN(y)), or x' = z + f(z) with z = y + LN(y)."""
    net, tokens = network(norm=norm, layers=1), some_tokens()
    seen, block = net.inspect(tokens), net.blocks[0]
    y = seen.hidden[0] + seen.heads[0].sum(1) + block.attention.output.bias
    normed = block.feedforward_norm(y)
    if norm == "feedforward":
        wanted = y + block.feedforward(normed)
    else:
        wanted = y + normed + block.feedforward(y + normed)
    torch.testing.assert_close(seen.hidden[1], wanted)
    assert block.attention_norm is None


def test_without_any_layer_parts_the_network_is_the_bag_of_words():
    """[li, (2.7)] with uniform attention: logits = W^V (mean of the one-hot tokens)."""
    net = network(
        **bare(embedding="one_hot", tied=True, causal=False, width=VOCAB, heads=1),
        output_projection=False,
    )
    tokens = some_tokens()
    counts = torch.nn.functional.one_hot(tokens, VOCAB).double().mean(1)
    expected = counts @ net.blocks[0].attention.value.weight.T
    logits = net(tokens, attention="uniform")
    torch.testing.assert_close(logits, expected[:, None].expand_as(logits))


# ---------------------------------------------------------------------- attention replaced


@pytest.mark.parametrize("causal", [True, False])
def test_uniform_attention_is_the_mean_of_values(causal):
    net, tokens = network(**bare(causal=causal)), some_tokens()
    attention = net.blocks[0].attention
    values = attention.value(net.embed(tokens))
    if causal:
        steps = torch.arange(1, LENGTH + 1, dtype=torch.float64)[:, None]
        mean = values.cumsum(1) / steps
    else:
        mean = values.mean(1, keepdim=True).expand_as(values)
    seen = net.inspect(tokens, attention="uniform")
    torch.testing.assert_close(seen.hidden[1], attention.output(mean))
    torch.testing.assert_close(net(tokens, attention="uniform"), seen.logits)


@pytest.mark.parametrize("switches", SWITCHES, ids=named)
def test_the_learned_patterns_given_back_change_nothing(switches):
    net, tokens = network(**switches), some_tokens()
    seen = net.inspect(tokens)
    torch.testing.assert_close(net(tokens, attention=seen.patterns), seen.logits)


def test_given_patterns_are_used_and_differentiable():
    net, tokens = network(**bare(heads=1)), some_tokens(batch=1)
    pattern = torch.zeros(1, 1, LENGTH, LENGTH, dtype=torch.float64, requires_grad=True)
    net(tokens, attention=[pattern]).sum().backward()
    assert pattern.grad is not None
    assert pattern.grad.abs().sum() > 0
    attention = net.blocks[0].attention
    last = torch.zeros_like(pattern[0]).index_fill(-1, torch.tensor([LENGTH - 1]), 1.0)[None]
    ahead = net.inspect(tokens, attention=[last]).hidden[1]
    expected = attention.output(attention.value(net.embed(tokens)[:, -1:])).expand_as(ahead)
    torch.testing.assert_close(ahead, expected)


@pytest.mark.parametrize("output_projection", [True, False])
def test_per_head_outputs_sum_to_the_attention_output(output_projection):
    net = network(heads=4, output_projection=output_projection, layers=2)
    tokens = some_tokens()
    seen = net.inspect(tokens)
    for layer, block in enumerate(net.blocks):
        attended = block.attention(block.before(seen.hidden[layer])).output
        bias = block.attention.output.bias if output_projection else 0.0
        torch.testing.assert_close(seen.heads[layer].sum(1) + bias, attended)
        torch.testing.assert_close(
            block.after(seen.hidden[layer], attended), seen.hidden[layer + 1]
        )


# ---------------------------------------------------------------------- padding and positions


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("attention", ["learned", "uniform"])
def test_padding_on_the_right_is_as_if_it_were_not_there(causal, attention):
    net, tokens = network(causal=causal), some_tokens()
    padding = torch.arange(LENGTH).expand(3, LENGTH) >= torch.tensor([[2], [4], [6]])
    for run in (net, lambda *a, **k: net.inspect(*a, **k).logits):
        logits = run(tokens, padding=padding, attention=attention)
        for row, t in enumerate((2, 4, 6)):
            alone = run(tokens[row : row + 1, :t], attention=attention)
            torch.testing.assert_close(logits[row : row + 1, :t], alone)


def test_a_position_that_may_attend_to_nothing_gets_nothing_and_no_nan():
    net, tokens = network(), some_tokens()
    padding = torch.zeros(3, LENGTH, dtype=torch.bool)
    padding[0] = True
    padding[1, :2] = True
    seen = net.inspect(tokens, padding=padding)
    assert (seen.patterns[0][0] == 0).all()
    assert (seen.patterns[0][1, :, :2] == 0).all()
    torch.testing.assert_close(net(tokens, padding=padding), seen.logits)
    for logits in (net(tokens, padding=padding), seen.logits):
        net.zero_grad()
        logits.square().sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in net.parameters())


def test_rotary_attention_depends_on_differences_of_positions_only():
    net = network(positions="rotary", causal=False)
    attention = net.blocks[0].attention
    x = torch.randn(2, 3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    allowed = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    patterns = [
        attention(x, rotation=net.rotation(positions), allowed=allowed, explicit=True).pattern
        for positions in (torch.arange(3), torch.arange(3) + 3, torch.tensor([0, 2, 4]))
    ]
    torch.testing.assert_close(patterns[0], patterns[1])
    assert (patterns[0] - patterns[2]).abs().max() > 1e-3


def test_rotary_shifted_by_padding_on_the_left():
    net, tokens = network(positions="rotary"), some_tokens(t=4)
    shifted = torch.nn.functional.pad(tokens, (2, 0))
    padding = (torch.arange(LENGTH) < 2).expand(3, LENGTH)
    torch.testing.assert_close(net(shifted, padding=padding)[:, 2:], net(tokens))


def test_rotation_by_hand():
    """Head width 2 has one angle, the position itself: (1, 0) at position 1 is (cos 1, sin 1)."""
    net = Transformer(
        Shape(2, 4, width=2, heads=1, positions="rotary"), seed=0, dtype=torch.float64
    )
    x = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(1, 1, 2, 2)
    turned = rotate(x, net.rotation(torch.arange(2)))[0, 0]
    expected = torch.tensor([[1.0, 0.0], [math.cos(1), math.sin(1)]], dtype=torch.float64)
    torch.testing.assert_close(turned, expected)


def test_linear_positions_add_a_multiple_of_one_direction():
    net, tokens = network(positions="linear"), some_tokens()
    direction = torch.eye(WIDTH)[-1]
    net.set_matrix("position_direction", direction)
    added = net.inspect(tokens).hidden[0] - net.embed(tokens)
    share = torch.arange(LENGTH, dtype=torch.float64) / LENGTH
    expected = (share[:, None] * direction).expand_as(added)
    torch.testing.assert_close(added, expected)


def test_without_positions_a_bidirectional_network_does_not_see_the_order():
    net, tokens = network(positions="none", causal=False), some_tokens()
    torch.testing.assert_close(net(tokens.flip(1)).flip(1), net(tokens))
    for kind in ("learned", "linear", "rotary"):
        ordered = network(positions=kind, causal=False)
        assert (ordered(tokens.flip(1)).flip(1) - ordered(tokens)).abs().max() > 1e-3


# ---------------------------------------------------------------------- embeddings and weights


def test_one_hot_learned_and_given_embeddings_agree():
    tokens = some_tokens()
    one_hot, given = network(embedding="one_hot"), network(embedding="given")
    weights = {k: v for k, v in one_hot.state_dict().items() if not k.startswith("embedding")}
    given.load_state_dict(weights)
    vectors = torch.nn.functional.one_hot(tokens, WIDTH).double()
    torch.testing.assert_close(one_hot.embed(tokens), vectors)
    torch.testing.assert_close(one_hot(tokens), given(vectors=vectors))
    learned = network()
    torch.testing.assert_close(learned(tokens), learned(vectors=learned.embed(tokens)))
    assert not one_hot.embedding.weight.requires_grad


def test_tied_matrices_share_memory_also_in_copies():
    net = network(tied=True)
    for one in (net, copy.deepcopy(net), copy.deepcopy(net).float()):
        assert one.output.weight is one.embedding.weight
    names = net.parameter_names()
    assert "embedding.weight" in names
    assert "output.weight" not in names
    net.set_matrix("output.weight", torch.ones(VOCAB, WIDTH))
    assert (net.embedding.weight == 1).all()


def test_frozen_matrices_get_no_gradient_and_are_not_moved():
    net = network()
    net.freeze("blocks.0.attention.query.weight", "output.bias")
    net.set_matrix("blocks.1.attention.value.weight", torch.eye(WIDTH))
    net.set_matrix("blocks.1.attention.key.weight", torch.eye(WIDTH), freeze=False)
    net(some_tokens()).sum().backward()
    still = {name for name, p in net.named_parameters() if p.grad is None}
    assert still == {
        "blocks.0.attention.query.weight",
        "output.bias",
        "blocks.1.attention.value.weight",
    }
    assert torch.equal(net.blocks[1].attention.value.weight, torch.eye(WIDTH).double())


def test_a_seed_names_the_weights_and_nothing_else_is_drawn():
    before = torch.get_rng_state()
    nets = [Transformer(Shape(VOCAB, LENGTH), seed=seed) for seed in (3, 3, 4)]
    double = Transformer(Shape(VOCAB, LENGTH), seed=3, dtype=torch.float64)
    assert torch.equal(torch.get_rng_state(), before)
    first, again, other = (net.state_dict() for net in nets)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(torch.equal(first[name].double(), w) for name, w in double.state_dict().items())
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


def test_init_scale_is_the_standard_deviation():
    """10^5 normal numbers: the estimate is within 2% but for a probability below 1e-15."""
    net = Transformer(Shape(400, 4, width=256, layers=2), seed=0, init_scale=0.1)
    assert net.embedding.weight.std().item() == pytest.approx(0.1, rel=0.02)
    written = net.blocks[0].feedforward.outer.weight.std().item()
    assert written == pytest.approx(0.1 / 2, rel=0.02)  # √(2 layers) = 2
    alike = Transformer(Shape(400, 4, width=256, layers=2), seed=0, init_scale=0.1, init="bert")
    assert torch.equal(alike.embedding.weight, net.embedding.weight)
    assert alike.blocks[0].feedforward.outer.weight.std().item() == pytest.approx(0.1, rel=0.02)
    assert (net.output.bias == 0).all()
    assert (net.final_norm.weight == 1).all()


@pytest.mark.parametrize("positions", ["learned", "linear", "rotary"])
def test_many_networks_run_at_once_under_vmap(positions):
    nets = [network(seed=seed, positions=positions) for seed in range(3)]
    tokens = some_tokens()
    parameters, buffers = stack_module_state(nets)
    skeleton = copy.deepcopy(nets[0]).to("meta")

    def run(weights, buffers):
        return functional_call(skeleton, (weights, buffers), (tokens,))

    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no rule for vmap on the CPU
        together = vmap(run)(parameters, buffers)
    torch.testing.assert_close(together, torch.stack([net(tokens) for net in nets]))


# ---------------------------------------------------------------------- language models


@pytest.mark.parametrize("positions", ["learned", "linear", "rotary", "none"])
def test_a_causal_model_keeps_the_laws_of_a_structure(positions):
    shape = Shape(4, 4, width=8, positions=positions)
    lm = CausalLM(Transformer(shape, seed=0, dtype=torch.float64, init_scale=0.5))
    assert isinstance(lm, NextToken)
    assert isinstance(lm, Density)
    assert (lm.vocab_size, lm.length) == (3, 4)
    assert all(finding.holds for finding in check_structure(lm))


def test_causal_logits_are_those_of_the_protocol():
    lm, tokens = CausalLM(network()), some_tokens() % 4
    logits = lm.token_logits(tokens)
    assert logits.requires_grad
    assert logits.shape == (3, LENGTH, 4)
    for t in range(LENGTH):
        log_probs = lm.next_token_log_probs(tokens[:, :t])
        assert not log_probs.requires_grad
        torch.testing.assert_close(logits[:, t].log_softmax(-1), log_probs)
    every = lm.every_next_token_log_probs(tokens)
    assert not every.requires_grad
    torch.testing.assert_close(every, logits.log_softmax(-1))
    assert lm.log_prob(tokens[:, :0]).tolist() == [0.0] * 3
    single = CausalLM(network(dtype=torch.float32))
    assert single.next_token_log_probs(tokens[:, :2]).dtype == torch.float64


def test_a_masked_model_does_not_read_what_is_hidden():
    lm, tokens = MaskedLM(network(causal=False)), some_tokens() % 4
    assert isinstance(lm, Masked)
    hidden = torch.arange(LENGTH).expand(3, LENGTH) % 2 == 0
    log_probs = lm.masked_log_probs(tokens, hidden)
    garbage = tokens.masked_fill(hidden, -7)
    assert torch.equal(lm.masked_log_probs(garbage, hidden), log_probs)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3, LENGTH, dtype=torch.float64))
    shown = torch.nn.functional.one_hot(tokens, 4).double()
    assert torch.equal(log_probs.exp()[~hidden], shown[~hidden])
    logits = lm.token_logits(tokens.masked_fill(hidden, lm.mask_token))
    assert logits.requires_grad
    torch.testing.assert_close(logits.log_softmax(-1)[hidden], log_probs[hidden])


# ---------------------------------------------------------------------- bad input


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"positions": "rotery"}, "did you mean 'rotary'"),
        ({"embedding": "onehot"}, "did you mean 'one_hot'"),
        ({"norm": "proj"}, "did you mean 'projection'"),
        ({"activation": "rely"}, "did you mean 'relu'"),
        ({"width": 9}, "does not divide into 2 heads"),
        ({"width": 6, "positions": "rotary"}, "must be even"),
        ({"width": 4, "embedding": "one_hot"}, "at least vocab_size"),
        ({"embedding": "given", "tied": True}, "there is none"),
        ({"layers": 0}, "layers is 0"),
        ({"feedforward": -1}, "feedforward is -1"),
        ({"norm_constant": -1.0}, "norm_constant is -1.0; it must be at least 0"),
    ],
)
def test_bad_shapes_are_sentences(switches, message):
    with pytest.raises(ValueError, match=message):
        Shape(VOCAB, LENGTH, **{"width": WIDTH, **switches})


@pytest.mark.usefixtures("unchecked_shapes")
def test_bad_inputs_are_sentences():
    net, tokens = network(), some_tokens()
    vectors = torch.zeros(3, LENGTH, WIDTH, dtype=torch.float64)
    pattern = torch.zeros(3, 2, LENGTH, LENGTH, dtype=torch.float64)
    cases = [
        (lambda: net(), "exactly one"),
        (lambda: net(tokens, vectors=vectors), "exactly one"),
        (lambda: net(some_tokens(t=LENGTH + 1)), "reads at most 6"),
        (lambda: net(vectors=vectors[..., :3]), "width 8"),
        (lambda: net(tokens, attention="unifrom"), "did you mean 'uniform'"),
        (lambda: net(tokens, attention=[pattern]), "2 layers"),
        (lambda: net(tokens, attention=[pattern, pattern[:1]]), "attention\\[1\\] has shape"),
        (lambda: net(tokens, padding=torch.zeros(3, 2, dtype=torch.bool)), "padding has shape"),
        (lambda: network(embedding="given")(tokens), "pass vectors"),
        (lambda: net.freeze("blocks.0.attention.qery.weight"), "attention.query.weight"),
        (lambda: net.set_matrix("output.wieght", torch.eye(2)), "'output.weight'"),
        (lambda: net.set_matrix("output.weight", torch.eye(2)), "has shape \\(2, 2\\)"),
        (lambda: CausalLM(network(causal=False)), "needs a network with causal=True"),
        (lambda: MaskedLM(network()), "needs a network with causal=False"),
        (lambda: CausalLM(network(embedding="given")), "reads tokens"),
        (lambda: CausalLM(net).next_token_log_probs(tokens % 4), "no token follows"),
        (lambda: CausalLM(net).log_prob(torch.full((1, 2), 4)), "outside 0..3"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.cuda
def test_the_gpu_agrees_with_the_cpu():
    shape = Shape(VOCAB, LENGTH, width=WIDTH, positions="rotary")
    here = Transformer(shape, seed=0, dtype=torch.float64)
    there = Transformer(shape, seed=0, dtype=torch.float64, device="cuda")
    tokens = some_tokens()
    padding = torch.zeros(3, LENGTH, dtype=torch.bool)
    padding[0] = True
    for mask in (None, padding):
        moved = None if mask is None else mask.cuda()
        torch.testing.assert_close(
            there(tokens.cuda(), padding=moved).cpu(), here(tokens, padding=mask)
        )


def test_attention_is_a_module_of_its_own():
    attention = Attention(Shape(VOCAB, LENGTH, width=WIDTH))
    assert attention(torch.zeros(1, 2, WIDTH)).output.shape == (1, 2, WIDTH)
