import itertools
import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.corruption import corrupt
from triptych.core.enumeration import exact_law
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.structures.topics import LDA, Topics

pytestmark = pytest.mark.numerical


def shown(tokens):
    return torch.zeros_like(tokens, dtype=torch.bool)


def test_worked_value():
    """T = 3, v = 2, τ = 2: (0, 1) share a topic, p = 1/16 · 2/3; (0, 2) do not, p = 1/16 · 1/3."""
    topics = Topics(topics=3, words=2, drawn=2, length=2)
    probs = topics.log_prob(torch.tensor([[0, 1], [0, 2]])).exp()
    torch.testing.assert_close(probs, torch.tensor([1 / 24, 1 / 48]).double())


def test_by_the_definition():
    """Σ over topic sets of the set's probability times (τ v)^-N where every word fits."""
    topics = Topics(topics=4, words=2, drawn=2, length=3)
    sets = list(itertools.combinations(range(4), 2))
    for document in itertools.product(range(8), repeat=3):
        fitting = sum(all(word // 2 in chosen for word in document) for chosen in sets)
        wanted = fitting / len(sets) / 4**3
        got = topics.log_prob(torch.tensor([document])).exp().item()
        assert got == pytest.approx(wanted)


def test_set_posterior_and_closed_form_agree():
    topics = Topics(topics=5, words=2, drawn=3, length=4)
    tokens = topics.sample(30, TorchRng(0))
    hidden = torch.tensor([True, False, True, False]).expand_as(tokens)
    sets, log_posterior = topics.log_set_posterior(tokens, hidden)
    inside = torch.zeros((len(sets), 5), dtype=torch.float64).scatter(1, sets, 1.0)
    torch.testing.assert_close(log_posterior.exp().sum(-1), torch.ones(30).double())
    by_sets = log_posterior.exp() @ inside
    seen = torch.zeros((30, 5), dtype=torch.bool).scatter(1, tokens[:, 1::2] // 2, True)
    torch.testing.assert_close(by_sets, topics.topic_probs(seen))
    position = topics.log_posterior(tokens, hidden).exp()[:, 0]
    torch.testing.assert_close(position, by_sets / 3)


def test_a_long_document_tends_to_the_infinite_one():
    """With every topic of the document seen, the next word has the limit's frequencies."""
    topics = Topics(topics=6, words=3, drawn=2, length=60)
    tokens = topics.sample(20, TorchRng(0))
    present = torch.zeros((20, 6), dtype=torch.bool).scatter(1, tokens[:, :59] // 3, True)
    following = topics.next_token_log_probs(tokens[:, :59]).exp()
    torch.testing.assert_close(following, topics.limit_word_probs(present))
    torch.testing.assert_close(following.sum(-1), torch.ones(20).double())


def test_worked_value_of_the_corrupted_frequencies():
    topics = Topics(topics=2, words=1, drawn=1, length=1)
    present = torch.tensor([[True, False]])
    got = topics.limit_corrupted_probs(present, p_m=0.5, p_c=0.25, p_r=0.25)
    torch.testing.assert_close(got, torch.tensor([[11 / 16, 1 / 16, 4 / 16]]).double())


def test_corrupted_frequencies_are_those_of_the_masking_scheme():
    """The exact law of one corrupted word, averaged over the words of the document."""
    topics = Topics(topics=3, words=2, drawn=1, length=1)
    scheme = {"p_m": 0.3, "p_c": 0.1, "p_r": 0.2}
    average = torch.zeros(7, dtype=torch.float64)
    for word in (2, 3):  # the document's topic is the second one
        law = exact_law(
            lambda rng, word=word: corrupt(
                torch.tensor([[word]]), rng, words=6, mask_token=6, **scheme
            ).tokens.item()
        )
        for token, p in law.probs.items():
            average[token] += p / 2
    present = torch.tensor([[False, True, False]])
    torch.testing.assert_close(topics.limit_corrupted_probs(present, **scheme)[0], average)


def test_the_masking_scheme_by_enumeration():
    """p_m = ½, p_c = ¼, p_r = ¼, two words: kept ½ + ½(¼ + ¼·½) = 11/16 as token 0, 1/16 as 1."""

    def one(rng):
        seen = corrupt(torch.tensor([[0]]), rng, words=2, mask_token=2, p_m=0.5, p_c=0.25, p_r=0.25)
        return seen.tokens.item(), seen.selected.item()

    law = exact_law(one)
    assert law.probs == pytest.approx(
        {(0, False): 1 / 2, (0, True): 3 / 16, (1, True): 1 / 16, (2, True): 1 / 4}
    )
    with pytest.raises(ValueError, match=r"p_c \+ p_r is 1.5"):
        corrupt(
            torch.tensor([[0]]), TorchRng(0), words=2, mask_token=2, p_m=0.5, p_c=0.75, p_r=0.75
        )


def test_worked_value_of_lda():
    """Two topics of one word, α = 1: the urn gives p(0, 0) = ½ · 2/3 and p(0, 1) = ½ · 1/3."""
    lda = LDA(topics=2, words=1, concentration=1.0, min_length=2, length=2)
    probs = lda.log_prob(torch.tensor([[0, 0], [0, 1]])).exp()
    torch.testing.assert_close(probs, torch.tensor([1 / 3, 1 / 6]).double())


def test_lda_is_the_dirichlet_integral():
    """p(counts) = ∫ Π θ_t^{n_t} Dirichlet(θ; α): by Monte Carlo over θ, six standard errors."""
    alpha = 0.7
    lda = LDA(topics=3, words=2, concentration=alpha, min_length=4, length=4)
    torch.manual_seed(0)
    theta = torch.distributions.Dirichlet(torch.full((3,), alpha).double()).sample((200_000,))
    for document in ([0, 1, 2, 0], [4, 4, 5, 2]):
        likelihood = torch.stack([theta[:, w // 2] / 2 for w in document]).prod(0)
        error = likelihood.std() / math.sqrt(len(theta))
        got = lda.log_prob(torch.tensor([document])).exp()
        assert abs(got - likelihood.mean()) < 6 * error


def test_lda_lengths_are_uniform():
    lda = LDA(topics=2, words=2, concentration=0.1, min_length=3, length=6)
    tokens = lda.sample(8000, TorchRng(0))
    lengths = (tokens != lda.end_token).sum(1)
    counts = torch.bincount(lengths, minlength=7)[3:]
    assert counts.sum() == 8000
    assert (counts - 2000).abs().max() < 6 * math.sqrt(8000 * 0.25 * 0.75)
    # The last word may be the last of the document: after 3 words, N is 3..6 equally likely.
    ending = lda.next_token_log_probs(torch.tensor([[0, 0, 0]])).exp()[0, lda.end_token]
    assert ending.item() == pytest.approx(1 / 4)


def test_many_topics_do_not_underflow():
    topics = Topics(topics=10_000, words=1, drawn=300, length=3000)
    tokens = topics.sample(2, TorchRng(0))
    assert torch.isfinite(topics.log_prob(tokens)).all()
    assert torch.isfinite(topics.next_token_log_probs(tokens[:, :2999]).max())
    with refused("topics"):
        Topics(40, 2, 20, 4).log_set_posterior(
            torch.zeros((1, 4)).long(), torch.ones((1, 4)).bool()
        )


@pytest.mark.parametrize("alpha", [0.1, 0.7])
def test_the_posterior_topic_of_lda_is_the_topic_of_the_word(alpha):
    """Sum the law of a hidden word over the words of each topic, by the table."""
    lda = LDA(topics=2, words=2, concentration=alpha, min_length=2, length=3)
    table = Table.of(lda)
    tokens, hidden = table.support[:40], torch.tensor([False, True, True]).expand(40, -1)
    words = table.masked_log_probs(tokens, hidden).exp()
    wanted = torch.stack([words[..., :2].sum(-1), words[..., 2:4].sum(-1), words[..., 4]], -1)
    torch.testing.assert_close(lda.log_posterior(tokens, hidden).exp(), wanted)


def test_bad_input_is_explained():
    with pytest.raises(ValueError, match="4 distinct topics cannot be drawn of 3"):
        Topics(topics=3, words=2, drawn=4, length=2)
    with refused("words"):
        Topics(topics=3, words=0, drawn=1, length=2)
    with refused("concentration"):
        LDA(topics=3, words=2, concentration=0.0, min_length=2, length=2)
    with refused("length"):
        LDA(topics=3, words=2, concentration=1.0, min_length=2, length=1)
    with refused("topics"):
        Topics(2, 1, 1, 1).limit_word_probs(torch.tensor([[True, True]]))
