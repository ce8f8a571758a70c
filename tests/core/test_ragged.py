"""Rows of different length: every structure answers about them as about its marginal laws."""

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.ragged import as_ragged, as_weights, inside, log_shown, seen_vocab
from triptych.core.table import Table
from triptych.lab.axioms.discovery import package_examples
from triptych.structures.cfg import CFG
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.structures.topics import LDA

EXAMPLES = {
    e.label: e.value
    for e in package_examples("triptych.structures")
    if hasattr(e.value, "masked_log_probs")
}
EXAMPLES["core table"] = Table.random(3, 3, seed=0)
each = pytest.mark.parametrize("label", EXAMPLES)


def rows_of(structure, n=12):
    """Samples, some tokens hidden, cut at different lengths."""
    generator = torch.Generator().manual_seed(0)
    tokens = structure.sample(n, 0)
    hidden = torch.rand(tokens.shape, generator=generator) < 0.3
    lengths = torch.randint(1, structure.length + 1, (n,), generator=generator)
    if getattr(structure, "end_token", None) is not None:  # whole strings: the end is known
        ended = tokens == structure.end_token
        lengths = torch.where(ended.any(1), ended.double().argmax(1), structure.length).clamp(min=1)
    return tokens, hidden, lengths


def by_table(structure, tokens, hidden, lengths):
    """log p(what is shown) by enumeration, a row at a time."""
    table = Table.of(structure)
    sequences, out = table.sequences, []
    end = getattr(structure, "end_token", None)
    for row, unseen, n in zip(tokens, hidden, lengths.tolist(), strict=True):
        fits = torch.ones(len(sequences), dtype=torch.bool)
        for i in range(structure.length):
            if i < n and not unseen[i]:
                fits &= sequences[:, i] == row[i]
            elif i >= n and end is not None:
                fits &= sequences[:, i] == end
        out.append(table.log_probs[fits].logsumexp(0))
    return torch.stack(out)


@each
def test_what_is_shown_has_the_probability_of_the_table(label):
    structure = EXAMPLES[label]
    tokens, hidden, lengths = rows_of(structure)
    wanted = by_table(structure, tokens, hidden, lengths)
    found = structure.log_prob(tokens, hidden=hidden, lengths=lengths)
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=1e-9)
    all_shown = torch.zeros_like(hidden)
    wanted = by_table(structure, tokens, all_shown, lengths)
    torch.testing.assert_close(
        structure.log_prob(tokens, lengths=lengths), wanted, atol=1e-9, rtol=1e-9
    )


@each
def test_a_row_of_a_batch_is_answered_as_alone(label):
    """Each row with its own length; what stands behind the end, and where hidden, is not read."""
    structure = EXAMPLES[label]
    tokens, hidden, lengths = rows_of(structure)
    behind = ~inside(lengths, structure.length)
    garbage = tokens.masked_fill(behind | hidden, 97)
    questions = [structure.masked_log_probs]
    questions += [structure.log_posterior] if hasattr(structure, "log_posterior") else []
    for ask in questions:
        answer = ask(garbage, hidden, lengths=lengths)
        assert answer.shape[1] == structure.length
        assert torch.isneginf(answer[behind]).all()
        for b, n in enumerate(lengths.tolist()):
            alone = ask(tokens[b : b + 1, :n], hidden[b : b + 1, :n], lengths=lengths[b : b + 1])
            torch.testing.assert_close(answer[b, :n], alone[0], atol=1e-12, rtol=1e-12)
            assert alone.shape[1] == n


ENDLESS = [label for label, e in EXAMPLES.items() if getattr(e, "end_token", None) is None]


@pytest.mark.parametrize("label", ENDLESS)
def test_full_lengths_are_the_old_question(label):
    structure = EXAMPLES[label]
    tokens, hidden, _ = rows_of(structure)
    full = torch.full((len(tokens),), structure.length)
    assert torch.equal(
        structure.masked_log_probs(tokens, hidden, lengths=full),
        structure.masked_log_probs(tokens, hidden),
    )
    torch.testing.assert_close(structure.log_prob(tokens, lengths=full), structure.log_prob(tokens))


@pytest.mark.parametrize("kind", [HMM, MemoryHMM, CFG, LDA])
def test_the_fast_ways_are_the_chain_rule(kind):
    structure = next(e for e in EXAMPLES.values() if isinstance(e, kind))
    tokens = structure.sample(20, 0)
    hidden = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.4
    slow = log_shown(structure, tokens, hidden)
    torch.testing.assert_close(structure.log_prob(tokens, hidden=hidden), slow)


def test_a_marginal_of_a_chain_is_the_shorter_chain():
    hmm = HMM.random(3, 4, 9, seed=0)
    tokens = hmm.sample(5, 0)
    short = hmm.with_length(6)
    lengths = torch.full((5,), 6)
    torch.testing.assert_close(hmm.log_prob(tokens, lengths=lengths), short.log_prob(tokens[:, :6]))
    torch.testing.assert_close(
        hmm.log_posterior(tokens, None, lengths=lengths)[:, :6], short.log_posterior(tokens[:, :6])
    )


def test_the_posteriors_of_a_memory():
    model = MemoryHMM.random(2, 2, 1, 2, 4, seed=0)
    tokens = model.sample(3, 0)
    found = model.posteriors(tokens, lengths=[2, 4, 1])
    alone = model.with_length(2).posteriors(tokens[:1, :2])
    torch.testing.assert_close(found.memory[:1], alone.memory)
    torch.testing.assert_close(found.addressed[:1, :2], alone.addressed)
    assert found.hidden[0, 2:].eq(0).all()


def test_worked_values():
    rows = as_ragged([[0, None, 1], [1]], 2)
    assert rows.tokens.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert rows.hidden.tolist() == [[False, True, False], [False, True, True]]
    assert rows.lengths.tolist() == [3, 1]
    assert (rows.shown, seen_vocab(rows)) == (3, 2)
    assert rows.some(torch.tensor([1])).tokens.tolist() == [[1]]
    assert inside(torch.tensor([1, 2]), 2).tolist() == [[True, False], [True, True]]
    coins = HMM.random(1, 2, 2, seed=0)
    half = coins.emission[0, 0].log()
    found = log_shown(coins, torch.tensor([[0, 0]]), torch.tensor([[False, True]]))
    assert found.item() == pytest.approx(half.item())
    assert as_weights(None, 2).tolist() == [1.0, 1.0]


@pytest.mark.usefixtures("unchecked_shapes")
def test_mistakes_are_sentences():
    hmm = HMM.random(2, 2, 3, seed=0)
    tokens = [[0, 1, 0], [1, 1, 0]]
    for lengths in ([1], [0, 1], [1, 4], [1.0, 2.0], "ab", [[1, 2]], 3):
        with refused("lengths"):
            hmm.log_prob(tokens, lengths=lengths)
    with refused("tokens"):
        hmm.log_prob([[0, 1, 0, 1]], lengths=[2])
    with refused("hidden"):
        hmm.log_prob(tokens, hidden=[[0, 1]], lengths=[1, 2])
    with refused("hidden"):  # a token that is not hidden and out of range
        hmm.log_prob([[0, 5, 0]], lengths=[3])
