"""Beam search against all strings, against greedy decoding, and by hand."""

import itertools
import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.decoders import RecomputingDecoder
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.beam import Beams, beam_search

END = 2


def search(table: Table, **options: object) -> Beams:
    return beam_search(RecomputingDecoder(table, 1), length=table.length, end_token=END, **options)


def ended_strings(table: Table) -> dict[tuple[int, ...], float]:
    """log p of every string before its first end token, by sums over the table."""
    found: dict[tuple[int, ...], float] = {}
    for tokens in itertools.product(range(3), repeat=table.length):
        string = tokens[: tokens.index(END)] if END in tokens else tokens
        found[string] = found.get(string, 0.0) + math.exp(
            table.log_prob(torch.tensor([tokens])).item()
        )
    return {string: math.log(p) for string, p in found.items()}


@pytest.mark.parametrize("seed", range(5))
def test_with_enough_beams_it_orders_all_strings(seed: int) -> None:
    table = Table.random(3, 3, seed=seed)
    found = search(table, beams=30)
    expected = sorted(ended_strings(table).items(), key=lambda item: -item[1])
    for rank, (string, log_prob) in enumerate(expected):
        assert found.tokens[0, rank, : len(string)].tolist() == list(string)
        assert found.lengths[0, rank] == len(string)
        assert found.log_probs[0, rank].item() == pytest.approx(log_prob)
    assert (found.log_probs[0, len(expected) :] == -math.inf).all()


@pytest.mark.parametrize("seed", range(5))
def test_one_beam_is_greedy(seed: int) -> None:
    table = Table.random(3, 4, seed=seed)
    prefix: list[int] = []
    while len(prefix) < 4:
        law = table.next_token_log_probs(torch.tensor([prefix], dtype=torch.long).reshape(1, -1))
        token = int(law.argmax())
        if token == END:
            break
        prefix.append(token)
    found = search(table, beams=1)
    assert found.tokens[0, 0, : len(prefix)].tolist() == prefix
    assert found.lengths.item() == len(prefix)


def test_two_beams_find_what_greedy_misses() -> None:
    probs = torch.zeros(3, 3, dtype=torch.float64)
    probs[0, 0], probs[0, 1], probs[1, 1], probs[1, 0] = 0.30, 0.30, 0.36, 0.04
    table = Table(3, 2, probs.flatten().log())
    assert search(table, beams=1).log_probs.item() == pytest.approx(math.log(0.30))
    found = search(table, beams=2)
    assert found.tokens[0, 0].tolist() == [1, 1]
    assert found.log_probs[0, 0].item() == pytest.approx(math.log(0.36))


def test_a_length_penalty_prefers_longer_strings() -> None:
    probs = torch.full((3, 3), 0.0, dtype=torch.float64)
    probs[END, END], probs[0, 1] = 0.55, 0.45  # the empty string, and 0 1
    table = Table(3, 2, probs.flatten().log())
    assert search(table, beams=3).lengths[0, 0] == 0
    # log 0.45 / (7/6)^5 = -0.37 against log 0.55 / (5/6)^5 = -1.49
    assert search(table, beams=3, length_penalty=5.0).lengths[0, 0] == 2


def test_rows_do_not_disturb_one_another() -> None:
    table = Table.random(3, 4, seed=7)
    decoder = RecomputingDecoder(table, 2)
    decoder.append(torch.tensor([0, 1]))
    together = beam_search(decoder, beams=3, length=3, end_token=END)
    assert decoder.lengths.tolist() == [1, 1]
    for row in range(2):
        alone = RecomputingDecoder(table, 1)
        alone.append(torch.tensor([row]))
        found = beam_search(alone, beams=3, length=3, end_token=END)
        assert torch.equal(found.tokens[0], together.tokens[row])
        torch.testing.assert_close(found.log_probs[0], together.log_probs[row])


def test_it_stops_when_every_beam_has_ended() -> None:
    probs = torch.zeros(3, 3, 3, dtype=torch.float64)
    probs[END, END, END] = 1.0
    table = Table(3, 3, probs.flatten().log())
    found = search(table, beams=1)
    assert (found.passes, found.lengths.item(), bool(found.ended.all())) == (1, 0, True)


def test_an_end_token_that_does_not_exist_is_refused() -> None:
    decoder = RecomputingDecoder(Table.random(3, 3, seed=0), 1)
    with refused("end_token"):
        beam_search(decoder, beams=2, length=3, end_token=9)


@pytest.mark.parametrize("beams", [1, 3])
def test_every_row_has_its_own_limit(beams: int) -> None:
    table = Table.random(3, 4, seed=7)
    begun = torch.tensor([0, 1, 0, 1])
    limits = [1, 2, 3, 2]
    decoder = RecomputingDecoder(table, 4)
    decoder.append(begun)
    together = beam_search(decoder, beams=beams, length=limits, end_token=END)
    same = beam_search(decoder, beams=beams, length=torch.tensor(limits), end_token=END)
    assert torch.equal(together.tokens, same.tokens)
    cut = 0
    for row, limit in enumerate(limits):
        alone = RecomputingDecoder(table, 1)
        alone.append(begun[row : row + 1])
        found = beam_search(alone, beams=beams, length=limit, end_token=END)
        assert torch.equal(found.tokens[0], together.tokens[row, :, :limit])
        assert (together.tokens[row, :, limit:] == -1).all()
        assert torch.equal(found.lengths[0], together.lengths[row])
        assert torch.equal(found.ended[0], together.ended[row])
        torch.testing.assert_close(found.log_probs[0], together.log_probs[row])
        cut += int((~found.ended & (found.lengths == limit)).sum())
    assert cut > 0  # some rows do reach their limit


def test_limits_that_do_not_fit_the_rows_are_refused() -> None:
    decoder = RecomputingDecoder(Table.random(3, 3, seed=0), 2)
    with refused("length"):
        beam_search(decoder, beams=2, length=[1, 2, 3], end_token=END)
    with pytest.raises(UserError, match="the smallest length is 0"):
        beam_search(decoder, beams=2, length=[0, 2], end_token=END)
