"""A decoder with a cache is a decoder without one, under any order of operations."""

import shutil

import pytest
import torch
from tests.support.grids import pairs
from tests.support.refusals import refused

from triptych.core import compiled
from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder
from triptych.models.cache import CachedDecoder, _runs
from triptych.models.language_models import CausalLM
from triptych.models.transformer import Shape, Transformer
from triptych.structures.hidden_markov.hmm import HMM

VOCAB, LENGTH = 4, 9


def model(seed=0, *, dtype=torch.float64, **switches):
    shape = Shape(VOCAB + 1, LENGTH, **{"width": 8, "layers": 2, "heads": 2, **switches})
    net = Transformer(shape, seed=seed, dtype=dtype, init_scale=0.4)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # biases start at 0: make them matter
        for name, parameter in net.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3, generator=generator)
    return CausalLM(net)


class Script:
    """Random operations, applied to several decoders alike."""

    def __init__(self, seed, *decoders):
        self.generator = torch.Generator().manual_seed(seed)
        self.decoders = decoders

    def integers(self, highest, size=()):
        return torch.randint(highest + 1, size, generator=self.generator)

    def step(self):
        first = self.decoders[0]
        lengths = first.lengths
        batch = len(lengths)
        # an append is most likely, so that rows grow
        match ("append", "append", "append", "rollback", "fork", "extend")[int(self.integers(5))]:
            case "append":
                rows = torch.randperm(batch, generator=self.generator)
                rows = rows[: 1 + int(self.integers(batch - 1))]
                rows = rows[lengths[rows] < LENGTH]
                tokens = self.integers(VOCAB - 1, (len(rows),))
                for decoder in self.decoders:
                    decoder.append(tokens, rows)
            case "rollback":
                counts = (self.integers(3, (batch,))).minimum(lengths)
                for decoder in self.decoders:
                    decoder.rollback(counts)
            case "fork":
                rows = self.integers(batch - 1, (1 + int(self.integers(4)),))
                self.decoders = tuple(decoder.fork(rows) for decoder in self.decoders)
            case "extend":
                t = min(3, LENGTH - int(lengths.max()))
                tokens = self.integers(VOCAB - 1, (batch, t))
                for decoder in self.decoders:
                    decoder.extend(tokens)


def assert_equal_decoders(cached, plain, net, tolerance):
    """The same rows and the same laws; with a `net`, also its hidden states."""
    assert torch.equal(cached.lengths, plain.lengths)
    assert torch.equal(cached.tokens, plain.tokens)
    rows = torch.nonzero(plain.lengths < LENGTH)[:, 0]
    if len(rows) == 0:
        return
    got, wanted = cached.next_log_probs(rows), plain.next_log_probs(rows)
    assert got.dtype == torch.float64
    assert (got - wanted).abs().max() <= tolerance
    if net is None:
        return
    for state, row in zip(cached.hidden_state(rows), rows.tolist(), strict=True):
        prefix = plain.tokens[row, : int(plain.lengths[row])]
        inputs = torch.cat([torch.tensor([VOCAB]), prefix])[None]
        assert (state - net.inspect(inputs).hidden[-1][0, -1]).abs().max() <= tolerance


SWITCHES = [
    {"layers": 1},
    {"layers": 3, "positions": "rotary"},
    {"heads": 1},
    {"heads": 4, "positions": "rotary"},
    {"feedforward": 0, "residual": False, "norm": "none"},
    {"output_projection": False, "scale_attention": False},
    {"embedding": "one_hot", "tied": True, "bias": False},
    {"activation": "relu", "final_norm": False},
]
POSITIONS = ("learned", "linear", "rotary", "none")
NORMS = ("pre", "post", "projection", "feedforward", "kept", "none")
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}


def assert_a_cache_equals_recomputation(switches, dtype, tolerance=None):
    tolerance = TOLERANCES[dtype] if tolerance is None else tolerance
    lm = model(dtype=dtype, **switches)
    for seed in range(3):
        script = Script(seed, CachedDecoder(lm, 3), RecomputingDecoder(lm, 3))
        for step in range(20):
            script.step()
            if step % (1 + seed) == 0:  # asked always, or with several operations pending
                net = lm.net if step % 6 == 0 else None
                assert_equal_decoders(*script.decoders, net, tolerance)


@pytest.mark.parametrize(
    "switches", SWITCHES, ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items())
)
def test_a_cache_equals_recomputation(switches):
    assert_a_cache_equals_recomputation(switches, torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize(
    "switches", SWITCHES, ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items())
)
def test_a_cache_equals_recomputation_in_single_precision(switches):
    assert_a_cache_equals_recomputation(switches, torch.float32)


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
@pytest.mark.parametrize(
    "switches", SWITCHES, ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items())
)
def test_a_cache_with_the_c_programs_equals_recomputation(switches):
    """Heads of width 8 and 16, which the program for attention serves; those of 4 are torch's.
    Logits of these wider networks go up to 20, so that rounding is more."""
    compiled.use_compiled()
    try:
        wide = switches | {"width": 16}
        assert_a_cache_equals_recomputation(wide, torch.float32, tolerance=1e-4)
    finally:
        compiled.use_compiled(False)


@pytest.mark.parametrize(("positions", "norm"), pairs(POSITIONS, NORMS))
def test_a_cache_with_every_kind_of_positions_and_norms(positions, norm):
    for dtype in TOLERANCES:
        assert_a_cache_equals_recomputation({"positions": positions, "norm": norm}, dtype)


def test_forks_and_their_origin_live_apart():
    lm = model()
    origin = CachedDecoder(lm, 2)
    origin.extend(torch.tensor([[0, 1], [2, 3]]))
    before = origin.next_log_probs()
    copy = origin.fork(torch.tensor([1, 1, 0]))
    assert torch.equal(copy.next_log_probs(), before[[1, 1, 0]])
    copy.append(torch.tensor([0, 1, 2]))
    copy.next_log_probs()
    copy.rollback(torch.tensor([3, 3, 3]))
    copy.extend(torch.tensor([[3], [3], [3]]))
    copy.next_log_probs()
    assert torch.equal(origin.next_log_probs(), before)
    assert origin.tokens.tolist() == [[0, 1], [2, 3]]
    origin.append(torch.tensor([1]), torch.tensor([0]))
    assert copy.tokens.tolist() == [[3], [3], [3]]


class CountingLM(CausalLM):
    """How many positions the network's first matrix has read."""

    def positions_read(self):
        read = []
        query = self.net.blocks[0].attention.query
        query.register_forward_hook(lambda module, inputs, output: read.append(inputs[0].shape[:2]))
        return read


def test_only_new_tokens_run_through_the_network():
    lm = CountingLM(model().net)
    read = lm.positions_read()
    decoder = CachedDecoder(lm, 4)
    decoder.extend(torch.zeros(4, 5, dtype=torch.long))
    decoder.next_log_probs()
    assert read == [(4, 6)]  # the start token and five more
    decoder.append(torch.tensor([1, 2]), torch.tensor([0, 3]))
    decoder.next_log_probs()
    assert read[1:] == [(2, 1)]
    decoder.rollback(torch.tensor([3, 0, 5, 1]))
    decoder.next_log_probs()
    decoder.hidden_state()
    decoder.fork(torch.tensor([2, 0])).next_log_probs()
    assert read[2:] == []  # nothing to run after a rollback or a fork
    decoder.append(torch.tensor([1, 1]), torch.tensor([0, 1]))
    decoder.next_log_probs(torch.tensor([1, 2]))
    assert read[2:] == [(1, 1)]  # row 0 was not asked about


def test_tokens_are_padded_and_lengths_are_a_copy():
    for decoder in (CachedDecoder(model(), 3), RecomputingDecoder(model(), 3)):
        assert isinstance(decoder, Decoder)
        assert decoder.tokens.shape == (3, 0)
        decoder.append(torch.tensor([2, 1]), torch.tensor([2, 0]))
        decoder.append(torch.tensor([3]), torch.tensor([2]))
        assert decoder.tokens.tolist() == [[1, -1], [-1, -1], [2, 3]]
        decoder.lengths.zero_()
        assert decoder.lengths.tolist() == [1, 0, 2]


def test_a_whole_sequence_has_its_log_prob():
    """The last token fits without being run; the chain rule gives log p(x)."""
    lm = model()
    tokens = torch.randint(VOCAB, (5, LENGTH), generator=torch.Generator().manual_seed(0))
    decoder = CachedDecoder(lm, 5)
    total = torch.zeros(5, dtype=torch.float64)
    for t in range(LENGTH):
        total += decoder.next_log_probs().gather(1, tokens[:, t : t + 1])[:, 0]
        decoder.append(tokens[:, t])
    torch.testing.assert_close(total, lm.log_prob(tokens))
    assert torch.equal(decoder.tokens, tokens)


def test_recomputing_works_on_an_exact_structure():
    hmm = HMM.random(states=3, vocab_size=VOCAB, length=5, seed=0)
    decoder = RecomputingDecoder(hmm, 2)
    decoder.extend(torch.tensor([[0, 1], [2, 3]]))
    decoder.append(torch.tensor([3]), torch.tensor([1]))
    got = decoder.next_log_probs()
    assert torch.equal(got[:1], hmm.next_token_log_probs(torch.tensor([[0, 1]])))
    assert torch.equal(got[1:], hmm.next_token_log_probs(torch.tensor([[2, 3, 3]])))


class Unbounded:
    """A NextToken oracle without a length."""

    vocab_size = 2

    def next_token_log_probs(self, prefix):
        return torch.full((len(prefix), 2), 0.5, dtype=torch.float64).log()


def test_recomputing_has_no_bound_where_the_oracle_has_none():
    decoder = RecomputingDecoder(Unbounded(), 2)
    tokens = torch.randint(2, (2, 50), generator=torch.Generator().manual_seed(0))
    decoder.extend(tokens[:, :10])
    for t in range(10, 50):
        decoder.append(tokens[:, t])
    assert torch.equal(decoder.tokens, tokens)
    assert decoder.next_log_probs().exp().tolist() == [[0.5, 0.5]] * 2


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("kind", [CachedDecoder, RecomputingDecoder])
def test_bad_operations_are_sentences_and_change_nothing(kind):
    decoder = kind(model(), 2)
    decoder.extend(torch.zeros(2, 3, dtype=torch.long))
    decoder.extend(torch.zeros(2, LENGTH - 4, dtype=torch.long))
    decoder.append(torch.tensor([1]), torch.tensor([1]))
    ids = torch.tensor
    cases = [
        (lambda: decoder.append(ids([0]), ids([1])), "row 1 has 9 tokens and cannot take 1 more"),
        (lambda: decoder.extend(torch.zeros(2, 2, dtype=torch.long)), "cannot take 2 more"),
        (lambda: decoder.next_log_probs(), "row 1 already has 9 tokens"),
        (lambda: decoder.rollback(ids([9, 0])), "cannot erase 9 tokens of row 0, which has 8"),
        (lambda: decoder.rollback(ids([0, -1])), "cannot erase -1"),
        (lambda: decoder.rollback(ids([1])), "1 counts are given for 2 rows"),
        (lambda: decoder.append(ids([0]), ids([2])), "row 2 is outside 0..1"),
        (lambda: decoder.append(ids([0]), ids([-1])), "row -1 is outside 0..1"),
        (lambda: decoder.append(ids([0, 0]), ids([0, 0])), "named twice"),
        (lambda: decoder.append(ids([0]), ids([0, 1])), "given for 1 rows, but 2"),
        (lambda: decoder.append(ids([VOCAB]), ids([0])), "outside 0..3"),
        (lambda: decoder.fork(ids([0, 5])), "row 5 is outside"),
        (lambda: decoder.next_log_probs(ids([7])), "row 7 is outside"),
        (lambda: kind(model(), 0), "batch is 0"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    assert decoder.lengths.tolist() == [LENGTH - 1, LENGTH]
    assert torch.isfinite(decoder.next_log_probs(ids([0]))).all()


@pytest.mark.cuda
def test_a_cache_on_the_gpu_equals_recomputation_on_the_cpu():
    here = model(positions="rotary")
    there = CausalLM(model(positions="rotary").net.to("cuda"))
    cached, plain = CachedDecoder(there, 2), RecomputingDecoder(here, 2)
    tokens, rows = torch.tensor([[0, 1], [2, 3]]), torch.tensor([1])
    cached.extend(tokens.cuda())
    plain.extend(tokens)
    cached.append(tokens[:1, 0].cuda(), rows.cuda())
    plain.append(tokens[:1, 0], rows)
    torch.testing.assert_close(cached.next_log_probs().cpu(), plain.next_log_probs())


@pytest.mark.parametrize("kind", [CachedDecoder, RecomputingDecoder])
def test_prompts_of_different_lengths_are_one_extension(kind):
    """Padded with -1 at the end; rows of length 0 and rows that already hold something too."""
    lm = model()
    together, apart = kind(lm, 4), [kind(lm, 1) for _ in range(4)]
    prompts = [[0, 1, 2], [], [3], [1, 1]]
    together.append(torch.tensor([2]), torch.tensor([3]))
    apart[3].append(torch.tensor([2]))
    together.extend(torch.tensor([[0, 1, 2], [-1, -1, -1], [3, -1, -1], [1, 1, -1]]))
    for decoder, prompt in zip(apart, prompts, strict=True):
        decoder.extend(torch.tensor(prompt).long().reshape(1, -1))
    assert together.lengths.tolist() == [3, 0, 1, 3]
    assert together.tokens.tolist() == [[0, 1, 2], [-1] * 3, [3, -1, -1], [2, 1, 1]]
    alone = torch.cat([decoder.next_log_probs() for decoder in apart])
    torch.testing.assert_close(together.next_log_probs(), alone)
    with refused("tokens"):
        together.extend(torch.tensor([[0, 1], [-1, 2], [0, -1], [0, 0]]))
    assert together.lengths.tolist() == [3, 0, 1, 3]


def assert_states_of_layer(decoder, lm, layer):
    for row, length in enumerate(decoder.lengths.tolist()):
        inputs = torch.cat([torch.tensor([VOCAB]), decoder.tokens[row, :length]])[None]
        wanted = lm.net.inspect(inputs).hidden[layer][:, -1]
        torch.testing.assert_close(decoder.hidden_state(torch.tensor([row])), wanted)


@pytest.mark.parametrize("layer", [0, 1, 2, 3, -1])
def test_the_states_of_any_layer_are_the_networks(layer):
    lm = model(layers=3)
    decoder = CachedDecoder(lm, 3, layer=layer)
    assert_states_of_layer(decoder, lm, layer)  # of the start token
    decoder.extend(torch.tensor([[0, 1, 2], [3, -1, -1], [-1, -1, -1]]))
    assert_states_of_layer(decoder, lm, layer)
    decoder.rollback(torch.tensor([2, 0, 0]))
    decoder.append(torch.tensor([3, 2]), torch.tensor([0, 2]))
    assert_states_of_layer(decoder, lm, layer)
    copy = decoder.fork(torch.tensor([2, 0, 2, 1]))
    copy.append(torch.tensor([1]), torch.tensor([0]))
    assert_states_of_layer(copy, lm, layer)
    assert_states_of_layer(decoder, lm, layer)
    plain = RecomputingDecoder(lm, 3)
    plain.extend(decoder.tokens)
    torch.testing.assert_close(decoder.next_log_probs(), plain.next_log_probs())


@pytest.mark.parametrize("layer", [-2, 3])
def test_a_layer_that_is_not_there(layer):
    with refused("layer"):
        CachedDecoder(model(), 1, layer=layer)


def test_runs_of_neighbours_by_hand():
    """Long runs are read in place, the rest in parts of at most 64."""
    assert _runs([*range(5, 41), 90, 80]) == [(0, 36, 5), (36, 38, -1)]
    assert _runs([3]) == [(0, 1, -1)]
    assert _runs(list(range(0, 200, 2))) == [(0, 64, -1), (64, 100, -1)]
    assert _runs([0, 2, *range(10, 30), 40]) == [(0, 2, -1), (2, 22, 10), (22, 23, -1)]


def test_scattered_rows_are_those_of_a_small_batch():
    """Forty rows of which some are asked: runs, rests and single rows give the same laws."""
    lm = model()
    tokens = torch.randint(VOCAB, (40, 5), generator=torch.Generator().manual_seed(0))
    cached, plain = CachedDecoder(lm, 40), RecomputingDecoder(lm, 40)
    for decoder in (cached, plain):
        decoder.extend(tokens)
        decoder.next_log_probs()
    rows = torch.tensor([0, 2, *range(5, 25), 27, 31, 39])
    for decoder in (cached, plain):
        decoder.append(torch.zeros_like(rows), rows)
    assert (cached.next_log_probs(rows) - plain.next_log_probs(rows)).abs().max() < 1e-10
