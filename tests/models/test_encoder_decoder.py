"""The encoder-decoder: what it may see, its cache, padding, size, and one value by hand."""

import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.models.encoder_decoder import DecoderCache, EncoderDecoder, PairShape


def small(*, causal: bool, positional: bool = True, seed: int = 0) -> EncoderDecoder:
    shape = PairShape(
        11,
        9,
        width=16,
        layers=2,
        heads=4,
        feedforward=32,
        causal=causal,
        positional_attention=positional,
    )
    return EncoderDecoder(shape, seed=seed).eval()


SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]])
LENGTHS = torch.tensor([5, 3])
TARGET = torch.tensor([[2, 5, 6, 7, 8, 9], [2, 9, 8, 7, 6, 5]])


@pytest.mark.parametrize("positional", [True, False])
def test_a_causal_decoder_does_not_see_what_comes_later(positional: bool) -> None:
    net = small(causal=True, positional=positional)
    encoded = net.encode(SOURCE, LENGTHS)
    before = net.decode(TARGET, encoded)
    changed = TARGET.clone()
    changed[:, 4] = 10
    after = net.decode(changed, encoded)
    torch.testing.assert_close(after[:, :4], before[:, :4])
    assert (after[:, 4:] - before[:, 4:]).abs().amax() > 1e-3


def test_a_parallel_decoder_sees_every_position() -> None:
    net = small(causal=False)
    encoded, lengths = net.encode(SOURCE, LENGTHS), torch.tensor([6, 6])
    before = net.decode(TARGET, encoded, lengths)
    for position in range(6):
        changed = TARGET.clone()
        changed[:, position] = 10
        moved = (net.decode(changed, encoded, lengths) - before).abs().amax(-1)
        assert (moved > 1e-5).all()


@pytest.mark.parametrize("positional", [True, False])
def test_a_cache_gives_what_recomputation_gives(positional: bool) -> None:
    net = small(causal=True, positional=positional)
    encoded, cache = net.encode(SOURCE, LENGTHS), DecoderCache()
    whole = net.decode(TARGET, encoded)
    parts = [net.decode(TARGET[:, a:b], encoded, cache=cache) for a, b in ((0, 1), (1, 2), (2, 6))]
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    assert cache.used == 6


def test_rows_of_a_cache_can_be_exchanged() -> None:
    net, swap = small(causal=True), torch.tensor([1, 0])
    encoded, cache = net.encode(SOURCE, LENGTHS), DecoderCache()
    net.decode(TARGET[:, :3], encoded, cache=cache)
    cache.keep_rows(swap)
    after = net.decode(TARGET[swap, 3:], encoded.rows(swap), cache=cache)
    torch.testing.assert_close(after, net.decode(TARGET, encoded)[swap, 3:])


@pytest.mark.parametrize("causal", [True, False])
def test_padding_changes_nothing(causal: bool) -> None:
    net = small(causal=causal)
    lengths = torch.tensor([6, 4])
    together = net.encode(SOURCE, LENGTHS)
    logits = net.decode(TARGET, together, lengths)
    alone = net.encode(SOURCE[1:, :3], LENGTHS[1:])
    torch.testing.assert_close(
        net.decode(TARGET[1:, :4], alone, lengths[1:])[0], logits[1, :4], atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(net.length_logits(alone)[0], net.length_logits(together)[1])


def test_its_size_at_the_published_shape_is_67_million() -> None:
    shape = PairShape(32_128, 256, causal=False)
    attention, feedforward = 4 * 512**2, 2 * 512 * 2048
    expected = 32_128 * 512 + 2 * 256 * 512 + 256 * 512  # embedding, positions, lengths
    expected += 6 * (attention + feedforward) + 6 * (3 * attention + feedforward)
    expected += 512 * (6 * 2 + 6 * 5 + 2)  # norms
    assert shape.parameter_count == expected
    assert round(expected / 1e6) == 67


@pytest.mark.parametrize("positional", [True, False])
def test_the_parameter_count_is_that_of_the_network(positional: bool) -> None:
    net = small(causal=True, positional=positional)
    assert net.shape.parameter_count == sum(p.numel() for p in net.parameters())


def test_inspecting_writes_out_the_last_attention() -> None:
    net = small(causal=False)
    encoded, lengths = net.encode(SOURCE, LENGTHS), torch.tensor([6, 4])
    seen = net.inspect(TARGET, encoded, lengths)
    torch.testing.assert_close(seen.logits, net.decode(TARGET, encoded, lengths))
    assert seen.own.shape == (2, 4, 6, 6)
    assert seen.cross.shape == (2, 4, 6, 5)
    torch.testing.assert_close(seen.own.sum(-1), torch.ones(2, 4, 6))
    assert (seen.own[1, :, :, 4:] == 0).all()
    assert (seen.cross[1, :, :, 3:] == 0).all()


def test_inspecting_a_causal_decoder_is_causal() -> None:
    net = small(causal=True)
    encoded = net.encode(SOURCE, LENGTHS)
    seen = net.inspect(TARGET, encoded)
    torch.testing.assert_close(seen.logits, net.decode(TARGET, encoded))
    assert (seen.own.triu(1) == 0).all()


def test_one_layer_by_hand() -> None:
    shape = PairShape(3, 2, width=2, layers=1, heads=1, feedforward=1, causal=False)
    net = EncoderDecoder(shape, seed=0).eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if not name.endswith("norm.weight"):
                parameter.zero_()
        net.embedding.weight.copy_(torch.tensor([[0.0, 0.0], [3.0, 1.0], [0.0, 2.0]]))
    encoded = net.encode(torch.tensor([[1]]), torch.tensor([1]))
    logits = net.decode(torch.tensor([[1]]), encoded, torch.tensor([1]))
    # Every layer adds 0; the norm of (3, 1) is (1, -1), and logits are its products with the rows.
    expected = torch.tensor([[[0.0, 2.0, -2.0]]])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_the_likeliest_lengths_come_first() -> None:
    net = small(causal=False)
    encoded = net.encode(SOURCE, LENGTHS)
    order = net.length_logits(encoded).argsort(-1, descending=True)[:, :3] + 1
    assert net.likely_lengths(encoded, 3).tolist() == order.tolist()


def test_weights_depend_on_the_seed_alone() -> None:
    first, again, other = small(causal=True), small(causal=True), small(causal=True, seed=1)
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)
    )
    assert not torch.equal(first.embedding.weight, other.embedding.weight)
    scale = first.embedding.weight.std().item()
    assert math.isclose(scale, 16**-0.5, rel_tol=0.2)


def test_inputs_have_entries_of_size_one() -> None:
    """Embedding plus position: two tables of variance 1/width, times √width: variance 2."""
    net, seen = small(causal=False), []
    net.drop.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    net.encode(torch.arange(9)[None], torch.tensor([9]))
    assert seen[0].var().item() == pytest.approx(2.0, rel=0.4)


def test_what_cannot_be_done_is_said() -> None:
    net = small(causal=False)
    encoded = net.encode(SOURCE, LENGTHS)
    with pytest.raises(UserError, match="needs the length of every target"):
        net.decode(TARGET, encoded)
    with refused("cache"):
        net.decode(TARGET, encoded, torch.tensor([6, 6]), DecoderCache())
    with refused("needed"):
        net.encode(torch.zeros(1, 10, dtype=torch.long), torch.tensor([10]))
    with refused("width"):
        PairShape(5, 5, width=10, heads=4)
