"""The C programs of a decoder's layers, by hand and against float64; `test_cache.py` has whole
networks."""

import copy
import math
import shutil

import pytest
import torch
from torch import nn

from triptych.core import compiled
from triptych.models import cache
from triptych.models.compiled_layers import PackedLinear, attend_rows, is_attended, packed
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


@pytest.fixture(autouse=True)
def _compiled():
    compiled.use_compiled()
    yield
    compiled.use_compiled(False)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------- attention


def test_a_pattern_by_hand():
    """Keys 0 and log 3 and the query 1: the pattern is (¼, ¾), and (1) for the first slot alone."""
    keys, values, query = (torch.zeros(1, 3, 1, 8) for _ in range(3))
    keys[0, 1, 0, 0] = math.log(3)
    values[0, :, 0, 0] = torch.tensor([4.0, 8.0, math.nan])  # nobody sees the third
    query = torch.zeros(1, 1, 2, 8)
    query[..., 0] = 1.0
    rows, slots = torch.tensor([0]), torch.tensor([[0, 1]])
    mixed = attend_rows(query, keys, values, rows, slots, 1.0)
    assert mixed[0, 0, :, 0].tolist() == pytest.approx([4.0, 7.0])
    assert not mixed[..., 1:].any()


def slow_attention(query, keys, values, rows, slots, scale):
    """One query after the other, in float64."""
    mixed = torch.empty(query.shape, dtype=torch.float64)
    for r, row in enumerate(rows.tolist()):
        for i, last in enumerate(slots[r].tolist()):
            key, value = keys[row, : last + 1].double(), values[row, : last + 1].double()
            scores = scale * torch.einsum("hd,jhd->hj", query[r, :, i].double(), key)
            mixed[r, :, i] = torch.einsum("hj,jhd->hd", scores.softmax(-1), value)
    return mixed


@pytest.mark.parametrize("width", [8, 16, 24, 32, 64])
@pytest.mark.parametrize("scale", [0.3, 30.0])  # patterns that are flat, and with one slot in them
def test_attention_is_that_of_a_slow_version(width: int, scale: float):
    batch, length, heads, t = 5, 19, 3, 2
    keys, values = (random(batch, length, heads, width, seed=s) for s in (1, 2))
    rows = torch.tensor([4, 0, 2, 2])
    slots = torch.tensor([[0, 1], [7, 7], [8, 18], [3, 4]])  # around whole vectors of 8
    query = random(len(rows), heads, t, width, seed=3)
    found = attend_rows(query, keys, values, rows, slots, scale)
    wanted = slow_attention(query, keys, values, rows, slots, scale)
    assert (found - wanted).abs().max() < 2e-5 * max(1.0, scale)


def test_scores_far_apart_and_not_a_number():
    """Scores of 1e4 do not overflow; a nan among them is in the answer and nowhere else."""
    keys = values = random(2, 9, 1, 8)
    query = 1e4 * random(2, 1, 1, 8, seed=1)
    rows, slots = torch.arange(2), torch.full((2, 1), 8)
    found = attend_rows(query, keys, values, rows, slots, 1.0)
    wanted = slow_attention(query, keys, values, rows, slots, 1.0)
    assert (found - wanted).abs().max() < 1e-5
    spoiled = keys.clone()
    spoiled[1, 4, 0, 3] = math.nan
    found = attend_rows(query, spoiled, values, rows, slots, 1.0)
    assert found[1].isnan().all()
    assert (found[0] - wanted[0]).abs().max() < 1e-5


def test_what_the_program_does_not_serve():
    keys = random(1, 4, 2, 8)
    assert is_attended(random(1, 2, 8, 8), keys)
    assert not is_attended(random(1, 2, 9, 8), keys)  # more queries than pay
    assert not is_attended(random(1, 2, 1, 4), keys[..., :4])  # half a vector
    assert not is_attended(random(1, 2, 1, 8).double(), keys.double())
    compiled.use_compiled(False)
    assert not is_attended(random(1, 2, 1, 8), keys)


def test_rows_and_slots_that_are_not_there_are_refused():
    keys, query = random(2, 4, 1, 8), random(1, 1, 1, 8)
    for rows, slots, name in (([2], [[0]], "rows"), ([0], [[4]], "slots"), ([0], [[-1]], "slots")):
        with pytest.raises(IndexError, match=name):
            attend_rows(query, keys, keys, torch.tensor(rows), torch.tensor(slots), 1.0)
    apart = random(2, 8, 1, 8)[:, ::2]
    with pytest.raises(ValueError, match="contiguous"):
        attend_rows(query, apart, apart, torch.tensor([0]), torch.tensor([[0]]), 1.0)


# ---------------------------------------------------------------------- products


def linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    made = nn.Linear(inputs, outputs, bias=bias)
    with torch.no_grad():
        made.weight.copy_(random(outputs, inputs, seed=1))
        if bias:
            made.bias.copy_(random(outputs, seed=2))
    return made


@torch.no_grad()
def test_a_product_by_hand():
    made = linear(2, 2)
    made.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    made.bias.copy_(torch.tensor([1.0, 0.0]))
    assert PackedLinear(made)(torch.ones(2)).tolist() == [4.0, 7.0]


@torch.no_grad()
@pytest.mark.parametrize("columns", [1, 15, 16, 31, 32, 33, 64, 70])
def test_products_of_every_size(columns: int):
    """Blocks of six, four, two and one row, panels that are full and that are not."""
    for inputs in (1, 7, 40):
        made = linear(inputs, columns, bias=inputs != 7)
        fast, exact = PackedLinear(made), copy.deepcopy(made).double()
        for rows in (*range(14), 64):
            x = random(rows, inputs, seed=rows)
            found, wanted = fast(x), exact(x.double())
            assert found.shape == wanted.shape
            assert torch.allclose(found.double(), wanted, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_rows_that_are_not_contiguous_and_of_any_shape():
    made = linear(6, 5)
    fast, x = PackedLinear(made), random(4, 6, 3).transpose(1, 2)
    torch.testing.assert_close(fast(x), made(x))


def test_with_gradients_and_in_double_precision_it_is_torch():
    made = linear(6, 5)
    x = random(3, 6).requires_grad_()
    PackedLinear(made)(x).sum().backward()
    torch.testing.assert_close(x.grad, made.weight.sum(0).expand(3, -1))
    with torch.no_grad():
        double = random(3, 6).double()
        with pytest.raises(RuntimeError):  # as nn.Linear: float32 weights and float64 rows
            PackedLinear(made)(double)


# ---------------------------------------------------------------------- layers


def network(dtype: torch.dtype = torch.float32) -> Transformer:
    return Transformer(Shape(5, 6, width=16, layers=2, heads=2), seed=0, dtype=dtype)


def test_layers_are_packed_beside_the_network():
    """Its own modules stay, and a packed layer has its parameters and not copies of them."""
    net = network()
    before = [type(module) for module in net.modules()]
    found = packed(net.blocks)
    assert [type(module) for module in net.modules()] == before
    own = {id(parameter) for parameter in net.parameters()}
    assert {id(parameter) for parameter in found.parameters()} <= own
    assert sum(isinstance(module, PackedLinear) for module in found.modules()) == 12
    assert not any(type(module) is nn.Linear for module in found.modules())


@pytest.mark.parametrize("wanted", [True, False])
def test_a_decoder_asks_the_programs(wanted, monkeypatch):
    """Once for each layer that attends to earlier slots; and for products in every layer."""
    compiled.use_compiled(wanted)
    asked = []
    monkeypatch.setattr(cache, "attend_rows", lambda *given: asked.append(1) or attend_rows(*given))
    decoder = cache.CachedDecoder(CausalLM(network()), 2)
    decoder.next_log_probs()  # the start: nothing stands before it
    decoder.append(torch.tensor([0, 1]))
    decoder.next_log_probs()
    assert len(asked) == (2 if wanted else 0)
    assert any(isinstance(m, PackedLinear) for m in decoder._blocks.modules()) == wanted


def test_layers_that_are_not_served_stay():
    double = network(torch.float64)
    assert packed(double.blocks) is double.blocks
    compiled.use_compiled(False)
    net = network()
    assert packed(net.blocks) is net.blocks
