"""The benchmark of guided decoding compares equals; the cache is right where it runs in parts."""

import pytest
import torch
from tests.support.grids import pairs

from benchmarks import guided
from benchmarks.timing import Seconds
from triptych.core.decoders import RecomputingDecoder
from triptych.models import cache
from triptych.models.cache import CachedDecoder
from triptych.models.language_models import CausalLM
from triptych.models.transformer import Shape, Transformer

VOCAB, LENGTH = 3, 12


def model():
    shape = Shape(VOCAB + 1, LENGTH, width=8, layers=2, heads=2, positions="rotary")
    return CausalLM(Transformer(shape, seed=0, dtype=torch.float64, init_scale=0.4))


def ragged(generator, rows):
    """Prompts that begin alike: copies of three, cut at random and changed at the end."""
    tokens = torch.randint(VOCAB, (3, 9), generator=generator)
    tokens = tokens[torch.randint(3, (rows,), generator=generator)]
    tokens[:, 5:] = torch.randint(VOCAB, (rows, 4), generator=generator)
    sizes = torch.randint(2, 10, (rows, 1), generator=generator)
    return tokens.masked_fill(torch.arange(9) >= sizes, -1)


def assert_same(cached, plain, layer, rows=None):
    torch.testing.assert_close(cached.next_log_probs(rows), plain.next_log_probs(rows))
    rows = torch.arange(len(plain.lengths)) if rows is None else rows
    for state, row in zip(cached.hidden_state(rows), rows.tolist(), strict=True):
        prefix = plain.tokens[row, : int(plain.lengths[row])]
        inputs = torch.cat([torch.tensor([VOCAB]), prefix])[None]
        torch.testing.assert_close(state, plain.lm.net.inspect(inputs).hidden[layer][0, -1])


@pytest.mark.parametrize(
    ("parts", "layer"), pairs([(1, 1), (8, 2), (40, 3), (2048, 64)], [0, 1, 2])
)
def test_a_cache_run_in_parts_equals_recomputation(monkeypatch, parts, layer):
    at_once, copied = parts
    monkeypatch.setattr(cache, "_SLOTS_ON_A_CPU", at_once)
    monkeypatch.setattr(cache, "_ROWS_COPIED", copied)
    lm, generator = model(), torch.Generator().manual_seed(at_once)
    for _ in range(3):
        given = ragged(generator, 10)
        cached, plain = CachedDecoder(lm, 10, layer=layer), RecomputingDecoder(lm, 10)
        for decoder in (cached, plain):
            decoder.extend(given)
        some = torch.randperm(10, generator=generator)[:6]
        assert_same(cached, plain, layer, some)
        counts = torch.randint(3, (10,), generator=generator)
        more, tokens = torch.arange(1, 10, 2), torch.randint(VOCAB, (5,), generator=generator)
        for decoder in (cached, plain):
            decoder.rollback(counts)
            decoder.append(tokens, more)
        assert_same(cached, plain, layer)


def slots_read(lm):
    read = []
    lm.net.blocks[0].attention.query.register_forward_hook(
        lambda module, inputs, output: read.append(inputs[0].shape[0] * inputs[0].shape[1])
    )
    return read


@pytest.mark.parametrize(("at_once", "slots"), [(1000, 100), (80, 15), (32, 7)])
def test_a_common_beginning_runs_once(monkeypatch, at_once, slots):
    """20 rows of 4 tokens, the first 3 alike, 3 different last ones.

    Sharing all 4 tokens saves 5 · 17 slots of 100, sharing 3 of them 4 · 19: so the 3 strings run,
    15 slots. Of those, sharing 3 tokens saves 4 · 2 more: the common 4 slots and 3 last ones run.
    """
    monkeypatch.setattr(cache, "_SLOTS_ON_A_CPU", at_once)
    lm = model()
    read = slots_read(lm)
    decoder, plain = CachedDecoder(lm, 20), RecomputingDecoder(lm, 20)
    tokens = torch.tensor([[0, 1, 2]]).repeat(20, 1)
    tokens = torch.cat([tokens, torch.arange(20)[:, None] % VOCAB], dim=1)
    decoder.extend(tokens)
    plain.extend(tokens)
    got = decoder.next_log_probs()
    assert sum(read) == slots
    torch.testing.assert_close(got, plain.next_log_probs())


def test_empty_rows_have_the_start_in_common(monkeypatch):
    monkeypatch.setattr(cache, "_SLOTS_ON_A_CPU", 4)
    lm = model()
    read = slots_read(lm)
    decoder = CachedDecoder(lm, 6)
    laws = decoder.next_log_probs()
    assert read == [1]
    torch.testing.assert_close(laws, lm.next_token_log_probs(torch.empty(6, 0).long()))


def test_what_rows_have_in_common():
    """0 1, 0 1, 0 2 share the start and one token; brute force on random rows."""
    common = cache._common_beginnings(torch.tensor([[0, 1], [0, 2], [0, 1]]))
    assert common.saved.tolist() == [2, 4, 3]
    assert common.groups(1).tolist() == [0, 0, 0]
    assert common.groups(2).tolist() == [0, 1, 0]
    tokens = torch.randint(2, (15, 6), generator=torch.Generator().manual_seed(0))
    common = cache._common_beginnings(tokens)
    for depth in range(7):
        begun = [tuple(row[:depth]) for row in tokens.tolist()]
        assert common.saved[depth] == (depth + 1) * (15 - len(set(begun)))
        numbers = common.groups(depth).tolist()
        assert len(set(zip(begun, numbers, strict=True))) == len(set(begun)) == len(set(numbers))


def test_one_by_one_is_the_same_algorithm():
    """The same strings, and as many passes as our own count of calls says."""
    lm, probe, given = (
        guided.network(34, 1024, "cpu"),
        guided.Probe.random("cpu"),
        guided.prompts(14, "cpu"),
    )
    assert (given != -1).sum(1).tolist() == sorted([*range(25, 32)] * 2)
    result = guided.together(lm, probe, given)
    single = guided.OneByOne(lm, probe)
    calls = result.costs.generator_calls + result.costs.verifier_calls
    backtracked = torch.nonzero(result.info.quota_left < 4)[:, 0].tolist()
    assert 0 < len(backtracked) < 14
    for row in {backtracked[0], backtracked[-1], 6}:
        before = single.passes
        assert single.complete(given[row], row) == result.tokens[row].tolist()
        assert single.passes - before == calls[row]


def test_the_network_has_laws_that_differ():
    lm, given = guided.network(34, 1024, "cpu"), guided.prompts(7, "cpu")[:, :25]
    laws = lm.next_token_log_probs(given).exp()
    assert laws.min() > 1e-4
    assert laws.max() < 0.99
    assert laws.std(0).max() > 0.02


def test_a_walk_has_a_row_of_the_table():
    row = guided.walk("cpu", batch=2, to_go=2, steps=8, forgetful_steps=4, turns=1)
    assert row["same_strings"] == row["compared_strings"] == 2
    assert row["ratio"] == row["low"] == row["high"] == row["theirs"] / row["ours"]
    assert row["bar"] == 5.0


def test_ratios_are_of_turns():
    """Turns of 2 against 1, 4 against 2 and 9 against 3 seconds: ratios 2, 2, 3.

    On the wall the last turn took 3 against 3; on a GPU that is what counts.
    """
    pairs = [(1.0, 2.0, 2.0), (2.0, 4.0, 4.0), (3.0, 9.0, 3.0)]
    turns = [(Seconds(ours, ours), Seconds(busy, wall)) for ours, busy, wall in pairs]
    processor = {"ours": 2.0, "theirs": 4.0, "ratio": 2.0, "low": 2.0, "high": 3.0}
    wall = {"ours": 2.0, "theirs": 3.0, "ratio": 2.0, "low": 1.0, "high": 2.0}
    on_wall = {f"wall_{name}": value for name, value in wall.items()}
    assert guided._ratios(turns, "cpu") == {**processor, **on_wall}
    assert guided._ratios(turns, "cuda") == {**wall, **on_wall}


def test_brackets_cannot_hold_the_end_token():
    value = guided.OnBrackets(guided.brackets())
    prefix = torch.tensor([[0, 1], [0, 3], [0, 4], [0, 2]])
    assert value.log_value(prefix).exp().tolist() == [1.0, 0.0, 0.0, 1.0]
