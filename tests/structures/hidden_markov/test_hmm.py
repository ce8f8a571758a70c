import itertools
import shutil

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.refusals import refused

from triptych.core import compiled
from triptych.core.enumeration import exact_law
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.core.validation import ImpossibleEvidence
from triptych.structures.hidden_markov import fast_messages, messages
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.markov import Markov

pytestmark = pytest.mark.numerical


@pytest.fixture(scope="module", params=["torch", "compiled"])
def both_ways(request):
    """The test runs with torch, and again with the C program."""
    if request.param == "compiled" and not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    compiled.use_compiled(request.param == "compiled")
    yield
    compiled.use_compiled(False)


both = pytest.mark.usefixtures("both_ways")


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def shown(tokens):
    return torch.zeros_like(tokens, dtype=torch.bool)


def worked():
    return HMM(f64([0.5, 0.5]), f64([[0.75, 0.25], [0.25, 0.75]]), f64([[1.0, 0.0], [0.5, 0.5]]), 2)


def test_worked_value():
    """½·1·¼·½ + ½·½·¾·½ = 5/32 (first state 0 or 1; token 1 is emitted by state 1 only)."""
    assert worked().log_prob(torch.tensor([[0, 1]])).exp().item() == pytest.approx(5 / 32)


@both
def test_worked_posterior_and_next_token():
    """After 0, 1 the first state was 0 with probability (½·1·¼·½) / (5/32) = 2/5; after 0 alone
    the state is (2/3, 1/3), then (7/12, 5/12), so token 1 follows with 5/12 · ½ = 5/24."""
    tokens = torch.tensor([[0, 1]])
    posterior = worked().log_posterior(tokens, shown(tokens)).exp()
    torch.testing.assert_close(posterior[0], f64([[2 / 5, 3 / 5], [0.0, 1.0]]))
    following = worked().next_token_log_probs(tokens[:, :1]).exp()
    torch.testing.assert_close(following[0], f64([19 / 24, 5 / 24]))


def test_worked_value_of_a_markov_chain():
    chain_ = Markov(f64([0.25, 0.75]), f64([[0.9, 0.1], [0.3, 0.7]]), 3)
    assert chain_.log_prob(torch.tensor([[1, 0, 0]])).exp().item() == pytest.approx(0.2025)


def brute_force_joint(hmm):
    """p(z, x) for all hidden paths and all strings, by the definition."""
    paths = list(itertools.product(range(hmm.states), repeat=hmm.length))
    strings = list(itertools.product(range(hmm.vocab_size), repeat=hmm.length))
    joint = np.zeros((len(paths), len(strings)))
    for i, z in enumerate(paths):
        for j, x in enumerate(strings):
            p = hmm.initial[z[0]] * hmm.emission[z[0], x[0]]
            for t in range(1, hmm.length):
                p = p * hmm.transition[z[t - 1], z[t]] * hmm.emission[z[t], x[t]]
            joint[i, j] = p
    return np.array(paths), np.array(strings), joint


@both
def test_posterior_by_brute_force_over_paths():
    hmm = HMM.random(3, 2, 3, seed=5)
    paths, strings, joint = brute_force_joint(hmm)
    tokens = torch.tensor([[1, 0, 1]])
    for pattern in itertools.product([False, True], repeat=3):
        hidden = torch.tensor([pattern])
        agrees = ((strings == tokens.numpy()) | np.array(pattern)).all(1)
        weight = joint[:, agrees].sum(1)
        wanted = (
            np.array([[weight[paths[:, t] == z].sum() for z in range(3)] for t in range(3)])
            / weight.sum()
        )
        got = hmm.log_posterior(tokens, hidden).exp()[0].numpy()
        np.testing.assert_allclose(got, wanted, atol=1e-14)


def as_hmmlearn(hmm):
    other = pytest.importorskip("hmmlearn.hmm").CategoricalHMM(n_components=hmm.states)
    other.startprob_, other.transmat_ = hmm.initial.numpy(), hmm.transition.numpy()
    other.emissionprob_, other.n_features = hmm.emission.numpy(), hmm.vocab_size
    return other


@both
@pytest.mark.parametrize("states", [1, 4, 10, 30])
@pytest.mark.parametrize("make", [HMM.random, HMM.random_permutation_mixture])
def test_agrees_with_hmmlearn(states, make):
    hmm = make(states, 10, 60, seed=states)
    tokens = hmm.sample(20, TorchRng(1))
    flat = tokens.reshape(-1, 1).numpy()
    log_prob, posterior = as_hmmlearn(hmm).score_samples(flat, [60] * 20)
    ours = hmm.log_posterior(tokens, shown(tokens)).exp().reshape(-1, states)
    np.testing.assert_allclose(ours.numpy(), posterior, atol=1e-10)
    np.testing.assert_allclose(hmm.log_prob(tokens).sum().item(), log_prob, rtol=1e-10)


shapes = st.tuples(
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3, 0.6]),
    st.integers(0, 2**32 - 1),
)


def hmm_with_zeros(states, vocab, length, sparsity, seed):
    source = np.random.default_rng(seed)

    def rows(n, outcomes):
        weights = source.gamma(1.0, size=(n, outcomes)) * (source.random((n, outcomes)) >= sparsity)
        weights[weights.sum(1) == 0, 0] = 1.0
        return f64(weights / weights.sum(1, keepdims=True))

    return HMM(rows(1, states)[0], rows(states, states), rows(states, vocab), length)


@both
@given(shapes, st.data())
@settings(deadline=None, max_examples=80)
def test_any_parameters_any_mask_against_the_table(shape, data):
    hmm = hmm_with_zeros(*shape)
    table = Table.of(hmm)
    tokens = table.support
    pattern = data.draw(st.lists(st.booleans(), min_size=hmm.length, max_size=hmm.length))
    hidden = torch.tensor(pattern).expand_as(tokens)
    torch.testing.assert_close(
        hmm.masked_log_probs(tokens, hidden), table.masked_log_probs(tokens, hidden)
    )
    t = data.draw(st.integers(0, hmm.length - 1))
    torch.testing.assert_close(
        hmm.next_token_log_probs(tokens[:, :t]), table.next_token_log_probs(tokens[:, :t])
    )


@both
@given(shapes)
@settings(deadline=None, max_examples=40)
def test_the_three_ways_of_message_passing_agree(shape):
    hmm = hmm_with_zeros(*shape)
    everything = all_sequences(hmm.vocab_size, hmm.length)
    evidence = hmm.embed(everything)
    reference = messages.log_messages(hmm.initial.log(), hmm.transition.log(), evidence.log())
    scaled = messages.scaled_messages(hmm.initial, hmm.transition, evidence)
    torch.testing.assert_close(
        scaled.before.log() + scaled.log_before[..., None], reference.before, atol=1e-9, rtol=0
    )
    torch.testing.assert_close(
        scaled.after.log() + scaled.log_after[..., None], reference.after, atol=1e-9, rtol=0
    )
    smoothed = fast_messages.smooth(hmm.initial, hmm.transition, hmm.emission.T, everything)
    joint = reference.before + evidence.log() + reference.after
    torch.testing.assert_close(smoothed.log_evidence, joint[:, -1].logsumexp(-1), atol=1e-9, rtol=0)
    filtered = fast_messages.filter_forward(hmm.initial, hmm.transition, hmm.emission.T, everything)
    torch.testing.assert_close(filtered.log_evidence, smoothed.log_evidence, atol=1e-9, rtol=0)


@pytest.mark.parametrize("length", [2048, pytest.param(10240, marks=pytest.mark.slow)])
def test_thousands_of_tokens_do_not_underflow(length, unchecked_shapes):
    hmm = HMM.random(5, 10, length, seed=0)
    tokens = hmm.sample(3, TorchRng(0))
    log_prob = hmm.log_prob(tokens)
    assert (log_prob < -length).all()
    assert torch.isfinite(log_prob).all()
    hidden = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    posterior = hmm.log_posterior(tokens, hidden)
    total = posterior.logsumexp(-1)
    torch.testing.assert_close(total, torch.zeros_like(total), atol=1e-9, rtol=0)
    reference = messages.log_messages(
        hmm.initial.log(), hmm.transition.log(), hmm.embed(tokens, hidden).log()
    )
    joint = reference.before + hmm.embed(tokens, hidden).log() + reference.after
    wanted = joint - joint.logsumexp(-1, keepdim=True)
    torch.testing.assert_close(posterior, wanted, atol=1e-8, rtol=0)


@both
def test_a_state_lost_to_underflow_and_needed_later_is_not_lost():
    """State 1 falls 1e-400 behind state 0 and is then the only one that explains the rest.

    Both states stay forever; token 0 is 1e-100 times as likely under state 1, token 1 is
    impossible under state 0. Rescaling alone would drop state 1 and call the string impossible.
    """
    tiny = 1e-100
    hmm = HMM(
        f64([0.5, 0.5]), f64([[1.0, 0.0], [0.0, 1.0]]), f64([[1.0, 0.0], [tiny, 1 - tiny]]), 8
    )
    tokens = torch.tensor([[0, 0, 0, 0, 0, 0, 0, 1]])
    wanted = np.log(0.5) + 7 * np.log(tiny)
    assert hmm.log_prob(tokens).item() == pytest.approx(wanted, rel=1e-12)
    posterior = hmm.log_posterior(tokens, shown(tokens)).exp()
    torch.testing.assert_close(posterior[0, 0], f64([0.0, 1.0]))
    hidden = shown(tokens)
    hidden[0, 3] = True
    assert hmm.masked_log_probs(tokens, hidden)[0, 3, 1].exp().item() == pytest.approx(1 - tiny)
    assert hmm.next_token_log_probs(tokens[:, :7]).exp()[0, 1].item() == pytest.approx(0, abs=1e-12)
    together = hmm.every_next_token_log_probs(tokens).gather(-1, tokens[..., None])
    assert together.sum().item() == pytest.approx(wanted, rel=1e-12)


@both
@pytest.mark.parametrize(
    ("emission", "length"),
    [([[1e-3, 0.999], [0.999, 1e-3]], 110), ([[0.5, 0.5], [0.9, 0.1]], 1300)],
)
def test_a_state_that_the_past_excludes_does_not_spoil_the_rest(emission, length):
    """State 1 is never visited but explains the string ever better: its message about the future
    overflows relative to the others. The answers do not involve it."""
    hmm = HMM(f64([1.0, 0.0]), torch.eye(2).double(), f64(emission), length)
    tokens = torch.zeros((1, length), dtype=torch.long)
    posterior = hmm.log_posterior(tokens, shown(tokens)).exp()
    torch.testing.assert_close(posterior[0], f64([1.0, 0.0]).expand(length, -1))
    vectors = hmm.embed(tokens).requires_grad_()
    probs = hmm.soft_masked_probs(vectors)
    torch.testing.assert_close(probs[0].detach(), f64(emission[0]).expand(length, -1))
    probs[..., 0].sum().backward()
    assert torch.isfinite(vectors.grad).all()


@both
@given(shapes.filter(lambda shape: shape[0] > 1))
@settings(deadline=None, max_examples=12)
def test_long_unlikely_strings_of_chains_with_zeros(shape):
    """Strings not drawn from the model, 300 tokens: fast and soft answers against log-space."""
    hmm = hmm_with_zeros(*shape).with_length(300)
    generator = torch.Generator().manual_seed(shape[-1] % 2**31)
    tokens = torch.randint(hmm.vocab_size, (4, 300), generator=generator)
    tokens = tokens[~torch.isneginf(hmm.log_prob(tokens))]
    evidence = hmm.embed(tokens)
    reference = messages.log_messages(hmm.initial.log(), hmm.transition.log(), evidence.log())
    joint = reference.before + evidence.log() + reference.after
    wanted = (joint - joint.logsumexp(-1, keepdim=True)).exp()
    torch.testing.assert_close(
        hmm.log_posterior(tokens, shown(tokens)).exp(), wanted, atol=1e-10, rtol=0
    )
    without = reference.before + reference.after
    wanted = (without - without.logsumexp(-1, keepdim=True)).exp() @ hmm.emission
    torch.testing.assert_close(hmm.soft_masked_probs(evidence), wanted, atol=1e-10, rtol=0)


def test_probabilities_too_small_for_scaling_go_to_log_space():
    hmm = HMM(f64([1.0]), f64([[1.0]]), f64([[1e-200, 1.0 - 1e-200]]), 4)
    tokens = torch.zeros((1, 4), dtype=torch.long)
    assert hmm.log_prob(tokens).item() == pytest.approx(4 * np.log(1e-200))


def test_a_block_is_the_same_as_the_whole(monkeypatch):
    hmm = HMM.random(4, 3, 9, seed=2)
    tokens = hmm.sample(50, TorchRng(0))
    hidden = tokens == 0
    whole = hmm.log_posterior(tokens, hidden)
    monkeypatch.setattr(fast_messages, "_BLOCK_BYTES", 8 * 9 * 4 * 7)  # seven rows at a time
    torch.testing.assert_close(hmm.log_posterior(tokens, hidden), whole)


# ------------------------------------------------------------------ the embedding model


def leave_one_out(hmm, tokens):
    columns = []
    for i in range(tokens.shape[1]):
        hidden = shown(tokens)
        hidden[:, i] = True
        columns.append(hmm.masked_log_probs(tokens, hidden)[:, i].exp())
    return torch.stack(columns, 1)


@pytest.mark.parametrize("name", ["random", "random_sparse"])
def test_on_proper_embeddings_it_is_the_masked_lm(name):
    hmm = getattr(HMM, name)(5, 3, 6, seed=1)
    tokens = hmm.sample(30, TorchRng(0))
    torch.testing.assert_close(
        hmm.soft_masked_probs(hmm.embed(tokens)), leave_one_out(hmm, tokens), atol=1e-12, rtol=0
    )


def test_a_soft_prompt_is_a_fake_token():
    """[wei, Lemma B.1]: prepend u; compare with the HMM that has the fake token, by its table."""
    hmm = HMM.random(3, 2, 4, seed=3)
    u = f64([0.9, 0.0, 0.4])
    tokens = all_sequences(2, 3)
    vectors = torch.cat([u.expand(len(tokens), 1, -1), hmm.embed(tokens)], dim=1)
    got = hmm.soft_masked_probs(vectors)

    def joint(x, i, word):
        """p(fake token at 1, tokens x with x_i replaced by word), by the forward recursion."""
        message = hmm.initial * u
        for t, token in enumerate(x):
            message = (message @ hmm.transition) * hmm.emission[:, word if t == i else token]
        return message.sum()

    for row, x in enumerate(tokens.tolist()):
        for i in range(3):
            weights = torch.stack([joint(x, i, word) for word in range(2)])
            torch.testing.assert_close(got[row, i + 1], weights / weights.sum())


def test_zero_mass_is_zero_and_has_a_gradient():
    hmm = HMM.random_sparse(4, 3, 5, seed=0)
    vectors = hmm.embed(hmm.sample(2, TorchRng(0)))
    vectors[0, 0] = 0.0
    vectors.requires_grad_()
    answer = hmm.soft_masked_probs(vectors)
    assert (answer[0, 1:] == 0).all()
    assert answer[0, 0].sum().item() == pytest.approx(1)  # G_1 does not read the first vector
    answer[..., 0].sum().backward()
    assert torch.isfinite(vectors.grad).all()


def test_the_gradient_is_right():
    hmm = HMM.random(3, 2, 4, seed=0)
    generator = torch.Generator().manual_seed(0)
    vectors = torch.rand((2, 4, 3), generator=generator, dtype=torch.float64) + 0.1
    assert torch.autograd.gradcheck(hmm.soft_masked_probs, (vectors.requires_grad_(),))


def test_a_hidden_embedding_is_ones():
    hmm = HMM.random(3, 2, 2, seed=0)
    tokens = torch.tensor([[-1, 1]])
    embedded = hmm.embed(tokens, torch.tensor([[True, False]]))
    torch.testing.assert_close(
        embedded[0], torch.stack([torch.ones(3).double(), hmm.emission[:, 1]])
    )


# ------------------------------------------------------------------ constructors


@pytest.mark.parametrize(
    ("states", "symbols"),
    [(4, 4.05), (8, 6.7), (10, 7.6), (12, 8.05), (15, 8.7), (25, 9.65), (30, 9.9)],
)
def test_permutation_mixtures_are_those_of_the_experiments(states, symbols):
    """Symbols that some state emits with probability > 0.05, mean over seeds 1..20: the numbers
    that the published experiments' generator gives for the same seeds."""
    counts = [
        (HMM.random_permutation_mixture(states, 10, 2, seed=seed).emission > 0.05).any(0).sum()
        for seed in range(1, 21)
    ]
    assert float(sum(counts)) / 20 == pytest.approx(symbols, abs=1e-9)


def test_permutation_mixtures_are_doubly_stochastic():
    hmm = HMM.random_permutation_mixture(8, 10, 2, seed=1)
    torch.testing.assert_close(hmm.transition.sum(0), torch.ones(8).double())
    torch.testing.assert_close(hmm.stationary(), torch.full((8,), 1 / 8).double())
    assert (hmm.initial.max() / hmm.initial.min()) < 1.2


@pytest.mark.parametrize(("states", "successors"), [(2, 2), (5, 2), (40, 3)])
def test_sparse_chains_are_sparse_and_ergodic(states, successors):
    for seed in range(5):
        hmm = HMM.random_sparse(states, 10, 2, seed=seed, successors=successors)
        assert ((hmm.transition > 0).sum(1) == successors).all()
        graph = networkx.from_numpy_array(hmm.transition.numpy(), create_using=networkx.DiGraph)
        assert networkx.is_strongly_connected(graph)
        assert networkx.is_aperiodic(graph)
        law = hmm.stationary()
        torch.testing.assert_close(law @ hmm.transition, law, atol=1e-12, rtol=0)


def test_states_come_with_the_tokens():
    hmm = HMM.random_permutation_mixture(6, 10, 50, seed=2)
    drawn = hmm.sample_with_states(200, TorchRng(3))
    assert torch.equal(drawn.tokens, hmm.sample(200, TorchRng(3)))


def test_states_and_tokens_have_their_joint_law():
    """Enumerate the sampler: p(z, x) of every pair, by the definition."""
    hmm = HMM.random(2, 2, 2, seed=4)

    def one(rng):
        drawn = hmm.sample_with_states(1, rng)
        return tuple(drawn.states[0].tolist()), tuple(drawn.tokens[0].tolist())

    law = exact_law(one)
    paths, strings, joint = brute_force_joint(hmm)
    wanted = {
        (tuple(map(int, z)), tuple(map(int, x))): joint[i, j]
        for i, z in enumerate(paths)
        for j, x in enumerate(strings)
    }
    assert law.probs == pytest.approx(wanted)


def test_seeds_name_models():
    first, again = HMM.random(3, 4, 5, seed=1), HMM.random(3, 4, 5, seed=1)
    assert torch.equal(first.transition, again.transition)
    assert not torch.equal(first.transition, HMM.random(3, 4, 5, seed=2).transition)
    assert repr(first) == "HMM(3 states, 4 symbols, length 5)"


# ------------------------------------------------------------------ bad input

GOOD = {
    "initial": f64([0.5, 0.5]),
    "transition": f64([[0.5, 0.5], [0.5, 0.5]]),
    "emission": f64([[1.0, 0.0], [0.0, 1.0]]),
    "length": 3,
}


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("transition", f64([[0.5, 0.6], [0.5, 0.5]]), r"transition\[0\] sums to 1.1"),
        ("initial", f64([0.5, 0.4]), "initial sums to 0.9"),
        ("emission", f64([[1.5, -0.5], [0.0, 1.0]]), r"emission\[0, 1\] is -0.5"),
        ("emission", f64([[float("nan"), 1.0], [0.0, 1.0]]), r"emission\[0, 0\] is nan"),
        ("transition", torch.full((2, 2), 0.5), "transition.double()"),
        ("transition", f64([[0.5, 0.5]]), r"transition has shape \(1, 2\)"),
        ("emission", f64([[1.0, 0.0]]), r"emission has shape \(1, 2\)"),
        ("length", 0, "length is 0; it must be at least 1"),
    ],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_bad_parameters_are_explained(field, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        HMM(**(GOOD | {field: value}))


def test_bad_tokens_are_explained():
    hmm = HMM(**GOOD)
    with refused("hidden"):
        hmm.log_prob(torch.tensor([[0, -1, 0]]))
    with refused("hidden"):
        hmm.log_posterior(torch.tensor([[0, 0, 0], [2, 0, 0]]), torch.zeros((2, 3)).bool())
    with refused("tokens"):
        hmm.log_prob(torch.tensor([[0, 1]]))
    with refused("prefix"):
        hmm.next_token_log_probs(torch.tensor([[0, 1, 0]]))


@both
def test_impossible_evidence_is_explained():
    certain = HMM(f64([1.0, 0.0]), torch.eye(2).double(), torch.eye(2).double(), 3)
    tokens = torch.tensor([[0, 0, 0], [0, 1, 0]])
    assert certain.log_prob(tokens).tolist() == [0.0, -np.inf]
    with refused("log_evidence", ImpossibleEvidence):
        certain.log_posterior(tokens, shown(tokens))
    with refused("log_evidence", ImpossibleEvidence):
        certain.next_token_log_probs(tokens[:, :2])


def test_bad_soft_tokens_are_explained():
    hmm = HMM(**GOOD)
    with refused("vectors"):
        hmm.soft_masked_probs(torch.ones((1, 4, 3), dtype=torch.float64))
    with refused("vectors"):
        hmm.soft_masked_probs(-torch.ones((1, 4, 2), dtype=torch.float64))
