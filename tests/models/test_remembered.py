"""A decoder on a memory of prefixes answers as one without, and asks the network less."""

import pytest
import torch
from tests.models.test_cache import LENGTH, Script, assert_equal_decoders, model
from tests.support.refusals import refused

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder
from triptych.inference.guided import ancestral
from triptych.models.cache import CachedDecoder
from triptych.models.remembered import PrefixMemory, RememberedDecoder
from triptych.structures.hidden_markov.hmm import HMM


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_operations_gives_what_other_decoders_give(seed):
    lm = model(seed, positions=("rotary", "learned", "linear", "none")[seed % 4])
    decoders = RememberedDecoder(PrefixMemory(lm), 3), CachedDecoder(lm, 3)
    script = Script(seed, *decoders, RecomputingDecoder(lm, 3))
    for _ in range(20):
        script.step()
        remembered, cached, plain = script.decoders
        assert_equal_decoders(remembered, cached, lm.net, 1e-12)
        assert_equal_decoders(remembered, plain, None, 1e-12)
        assert remembered.slots_run == cached.slots_run  # costs do not depend on the memory


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_states_of_every_layer(layer):
    lm = model()
    tokens = torch.tensor([[0, 1, 2], [0, 1, 3], [3, 3, 3]])
    remembered, cached = (
        RememberedDecoder(PrefixMemory(lm, layer=layer), 3),
        CachedDecoder(lm, 3, layer=layer),
    )
    for decoder in (remembered, cached):
        decoder.extend(tokens)
    assert remembered.layer == layer
    assert (remembered.hidden_state() - cached.hidden_state()).abs().max() < 1e-12


def test_a_prefix_is_run_once():
    """The worked value: rows 0 1 and 0 2 are four prefixes, and six tokens without a memory."""
    memory = PrefixMemory(model())
    decoder = RememberedDecoder(memory, 2)
    decoder.extend(torch.tensor([[0, 1], [0, 2]]))
    decoder.next_log_probs()
    assert (len(memory), decoder.slots_run) == (4, 6)
    passes = memory.passes
    again = RememberedDecoder(memory, 3)
    again.extend(torch.tensor([[0, 2], [0, 1], [0, 2]]))
    assert torch.equal(again.next_log_probs([1, 2]), decoder.next_log_probs())
    assert (len(memory), memory.passes, again.slots_run) == (4, passes, 6)


def test_samples_are_those_of_a_decoder_without_memory():
    lm = model()
    results = []
    for decoder in (RememberedDecoder(PrefixMemory(lm), 50), CachedDecoder(lm, 50)):
        results.append(ancestral.sample(decoder, length=LENGTH, rng=0))
    assert torch.equal(results[0].tokens, results[1].tokens)


@pytest.mark.usefixtures("unchecked_shapes")
def test_it_is_a_decoder_and_says_what_it_needs():
    memory = PrefixMemory(model())
    assert isinstance(RememberedDecoder(memory, 1), Decoder)
    with refused("layer"):
        PrefixMemory(model(), layer=3)
    with refused("lm"):
        PrefixMemory(HMM.random(states=2, vocab_size=2, length=2, seed=0))  # pyright: ignore[reportArgumentType]
    with refused("memory"):
        RememberedDecoder(model(), 1)  # pyright: ignore[reportArgumentType]
