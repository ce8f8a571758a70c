"""Tasks, linear heads and soft prompts: values by hand, peers, and laws that every model keeps."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import scipy.optimize
import torch
import transformers
from sklearn.linear_model import LogisticRegression
from tests.support.grids import pairs
from tests.support.refusals import refused
from torch import nn

from triptych.adaptation import prompts as prompts_module
from triptych.adaptation.linear import (
    PAPER_RECIPE,
    RIDGES,
    LinearHead,
    best_linear_head,
)
from triptych.adaptation.prompts import Tuning
from triptych.adaptation.tasks import Task, draw_task, majority_rate, sparse_weights
from triptych.core.protocols import SoftMasked
from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.models.language_models import MaskedLM, in_precision
from triptych.models.layers import Shape
from triptych.models.pretrained.masked import PretrainedMaskedLM
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov import hmm as hmm_module
from triptych.structures.hidden_markov.hmm import HMM
from triptych.theory.tuning import essential, heads, prompts
from triptych.training.classifier import train_classifier
from triptych.training.step import Recipe


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def random(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ------------------------------------------------------------------ tasks

SIZES = (4, 8, 10, 12, 15, 25, 30)
DEGENERATE = (6, 2, 3, 1, 3, 2, 1)  # first draws of seeds 1 to 20 that give all inputs one label


def test_worked_labels():
    """Scores of (0.6, 0.4) are 0.6 and 0.4, of (0.3, 0.7) are 0.3 and 0.7."""
    task = Task(f64([[1.0, 0.0], [0.0, 1.0]]))
    assert task.labels(f64([[0.6, 0.4], [0.3, 0.7]])).tolist() == [0, 1]
    skew = Task(f64([[1.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))  # 0.7 against 0.6, and 0.7 against 0.9
    assert skew.labels(f64([[0.7, 0.2, 0.1], [0.7, 0.3, 0.0]])).tolist() == [0, 1]


def test_ties_go_to_the_smallest_label():
    even = Task(f64([[1.0, 0.0], [0.0, 1.0]]))
    assert even.labels(f64([[0.5, 0.5]])).tolist() == [0]
    nothing = Task(torch.zeros(2, 3, dtype=torch.float64))
    assert nothing.labels(random(5, 3)).tolist() == [0] * 5
    three = Task(f64([[0.0, 0.0], [2.0, 0.0], [2.0, 0.0]]))
    assert three.labels(f64([[1.0, 0.0]])).tolist() == [1]


def test_labels_are_the_argmax_of_the_scores():
    weights, posterior = random(3, 5, seed=1) - 0.5, random(200, 5, seed=2)
    wanted = [int(np.argmax([w @ p for w in weights.numpy()])) for p in posterior.numpy()]
    assert Task(weights).labels(posterior).tolist() == wanted


@pytest.mark.parametrize(("states", "distinct"), [(4, 4.65), (30, 5.95)])
def test_distinct_entries_are_those_of_the_authors_seeds(states, distinct):
    """Six draws with replacement from 2H places; the means are over seeds 1 to 20, exactly."""
    counts = [int((sparse_weights(states, seed) != 0).sum()) for seed in range(1, 21)]
    assert sum(counts) / 20 == pytest.approx(distinct, abs=1e-12)


@pytest.mark.parametrize("states", [1, 4, 30])
@pytest.mark.slow
def test_entries_are_drawn_with_replacement(states):
    """E distinct = 2H (1 - (1 - 1/2H)^6). The count lies in 1..6, so by Hoeffding the mean of n
    misses by 5 √(log(2/δ) / 2n) with probability at most δ = 1e-9."""
    n = 2000
    counts = [int((sparse_weights(states, seed) != 0).sum()) for seed in range(n)]
    assert min(counts) >= 1
    assert max(counts) <= 6
    places = 2 * states
    expected = places * (1 - (1 - 1 / places) ** 6)
    assert abs(sum(counts) / n - expected) < 5 * math.sqrt(math.log(2 / 1e-9) / (2 * n))


@pytest.mark.slow
def test_entries_are_standard_normal_at_uniform_places():
    """3000 draws of one entry: Kolmogorov-Smirnov and chi-square, each with p above 1e-6."""
    weights = torch.stack([sparse_weights(3, seed, entries=1) for seed in range(3000)])
    assert ((weights != 0).sum((1, 2)) == 1).all()
    values = weights[weights != 0].numpy()
    assert scipy.stats.kstest(values, "norm").pvalue > 1e-6
    places = (weights.flatten(1) != 0).sum(0).numpy()
    assert scipy.stats.chisquare(places).pvalue > 1e-6


@pytest.mark.slow
def test_degenerate_first_draws_are_the_published_ones(unchecked_shapes):
    """Places first and values after them is the reading of the authors' code under which the
    numbers of degenerate first draws come out, all seven of them."""
    found = []
    for states in SIZES:
        degenerate = 0
        for seed in range(1, 21):
            hmm = HMM.random_permutation_mixture(states, 10, 129, seed=seed)
            tokens = hmm.sample(100, TorchRng(seed))
            hidden = torch.zeros_like(tokens, dtype=torch.bool)
            hidden[:, 0] = True
            labels = Task(sparse_weights(states, seed)).labels(
                hmm.log_posterior(tokens, hidden)[:, 0].exp()
            )
            degenerate += int(labels.min() == labels.max())
        found.append(degenerate)
    assert found == list(DEGENERATE)


def test_a_degenerate_task_is_drawn_again_and_counted():
    posterior = torch.eye(4).double()
    again = 0
    for seed in range(60):
        task, labels = draw_task(posterior, seed=seed)
        assert set(labels.tolist()) == {0, 1}
        assert torch.equal(task.labels(posterior), labels)
        drawn = [
            Task(sparse_weights(4, seed if k == 0 else [seed, k])).labels(posterior)
            for k in range(task.draws)
        ]
        assert torch.equal(drawn[-1], labels)
        assert all(earlier.min() == earlier.max() for earlier in drawn[:-1])
        again += task.draws > 1
    assert again > 0
    assert torch.equal(
        draw_task(posterior, seed=3)[0].weights, draw_task(posterior, seed=3)[0].weights
    )


def test_a_task_that_cannot_be_drawn_is_explained():
    same = f64([[0.5, 0.5]]).expand(7, -1)
    with refused("posterior"):
        draw_task(same, seed=0)
    with refused("entries"):
        draw_task(same, seed=0, entries=0)


def test_majority_rate_by_hand():
    assert majority_rate(torch.tensor([0, 1, 1, 0, 1])) == pytest.approx(0.6)
    assert majority_rate(torch.tensor([2, 2, 0])) == pytest.approx(2 / 3)
    assert majority_rate(torch.tensor([1, 1])) == 1.0


# ------------------------------------------------------------------ linear heads


def blobs(classes=2, features=3, n=120, seed=0, noise=1.0):
    """Labels from noisy linear scores: not separable unless the noise is 0."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=generator, dtype=torch.float64)
    w = torch.randn(features, classes, generator=generator, dtype=torch.float64)
    e = torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return x, (x @ w + noise * e).argmax(-1)


def objective(theta, x, labels, ridge):
    """Mean cross-entropy + ½ λ |θ|², and its gradient, with numpy from the definition."""
    x = np.concatenate([x, np.ones((len(x), 1))], 1)
    theta = theta.reshape(-1, x.shape[1])
    scores = x @ theta.T
    scores = scores - scores.max(1, keepdims=True)
    log_probs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    value = -log_probs[np.arange(len(x)), labels].mean() + 0.5 * ridge * (theta**2).sum()
    residual = np.exp(log_probs)
    residual[np.arange(len(x)), labels] -= 1
    return value, (residual.T @ x / len(x) + ridge * theta).reshape(-1)


def test_worked_head():
    """x = ∓1 with labels 0, 1. By symmetry the weights are (-a, a) and the bias 0, and the slope
    is zero where λ a = 1 / (1 + exp(2a)). With a = ½ log 3 the right side is ¼, so
    λ = 1 / (2 log 3)."""
    x, labels = f64([[-1.0], [1.0]]), torch.tensor([0, 1])
    head = LinearHead(ridge=1 / (2 * math.log(3))).fit(x, labels)
    half = 0.5 * math.log(3)
    torch.testing.assert_close(head.weights, f64([[-half], [half]]), atol=1e-9, rtol=0)
    torch.testing.assert_close(head.bias, f64([0.0, 0.0]), atol=1e-9, rtol=0)
    torch.testing.assert_close(head.decision(f64([[2.0]])), f64([[-2 * half, 2 * half]]))


@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_newton_is_at_the_minimum_that_scipy_finds(classes, ridge):
    x, labels = blobs(classes, seed=classes)
    head = LinearHead(ridge=ridge).fit(x, labels)
    assert head.gradient_norm < 1e-9
    ours = torch.cat([head.weights, head.bias[:, None]], 1).numpy()
    arguments = (x.numpy(), labels.numpy(), ridge)
    value, slope = objective(ours, *arguments)
    assert np.linalg.norm(slope) < 1e-9
    found = scipy.optimize.minimize(
        objective,
        np.zeros(ours.size),
        arguments,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-9, "ftol": 1e-16, "maxiter": 5000},
    )
    assert value <= found.fun + 1e-12
    centred = ours - ours.mean(0)  # the sum over classes is fixed by λ alone: 0 at the minimum
    np.testing.assert_allclose(ours, centred, atol=1e-7)
    theirs = found.x.reshape(ours.shape)
    np.testing.assert_allclose(ours, theirs - theirs.mean(0), atol=2e-5)


@pytest.mark.parametrize("classes", [2, 4])
def test_newton_agrees_with_scikit_learn(classes):
    """Its objective is C Σ loss + ½ |θ|²; two classes share one row of weights w = θ_1 - θ_0, whose
    penalty ½ |w|² is twice ours. A column of ones takes the place of a free intercept."""
    x, labels = blobs(classes, seed=10 + classes)
    ridge = 0.02
    head = LinearHead(ridge=ridge).fit(x, labels)
    with_ones = torch.cat([x, torch.ones(len(x), 1).double()], 1).numpy()
    c = (2 if classes == 2 else 1) / (ridge * len(x))
    peer = LogisticRegression(C=c, fit_intercept=False, tol=1e-12, max_iter=10_000)
    peer.fit(with_ones, labels.numpy())
    ours = torch.cat([head.weights, head.bias[:, None]], 1).numpy()
    wanted = peer.coef_ if classes > 2 else np.concatenate([-peer.coef_, peer.coef_]) / 2
    np.testing.assert_allclose(ours, wanted - wanted.mean(0), atol=1e-6)
    assert head.score(x, labels) == pytest.approx(peer.score(with_ones, labels.numpy()))


@pytest.mark.parametrize("seed", [136, 172, 208])
def test_rounding_does_not_stop_newton_short_of_the_minimum(seed):
    """Where one step is left, the objective no longer shows a decrease."""
    generator = torch.Generator().manual_seed(seed)
    n, features, classes = (
        int(torch.randint(low, high, (1,), generator=generator))
        for low, high in ((4, 400), (1, 12), (2, 5))
    )
    scale = 10.0 ** float(torch.rand(1, generator=generator) * 6 - 3)
    x = torch.randn(n, features, generator=generator, dtype=torch.float64) * scale
    w = torch.randn(features, classes, generator=generator, dtype=torch.float64)
    labels = (x @ w).argmax(-1)
    assert LinearHead(ridge=1.0).fit(x, labels).gradient_norm < 1e-9


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_separable_data_are_separated(scale):
    x, labels = blobs(3, n=200, noise=0.0)
    head = LinearHead(ridge=1e-8 * scale).fit(scale * x, labels)
    assert head.gradient_norm < 1e-9
    assert head.score(scale * x, labels) > 0.99
    line = f64([[-2.0], [-1.0], [1.0], [3.0]])
    two = torch.tensor([0, 0, 1, 1])
    assert LinearHead().fit(line, two).score(line, two) == 1.0


def test_a_label_that_does_not_occur():
    x, labels = blobs(2)
    gap = LinearHead(ridge=1e-3).fit(x, 2 * labels)
    assert gap.weights.shape == (3, 3)
    assert gap.gradient_norm < 1e-9
    assert set(gap.predict(x).tolist()) == {0, 2}
    both = torch.cat([gap.weights, gap.bias[:, None]], 1).numpy()
    _, slope = objective(both, x.numpy(), 2 * labels.numpy(), 1e-3)
    assert np.linalg.norm(slope) < 1e-9


def test_the_score_is_the_share_of_right_predictions():
    head = LinearHead().fit(f64([[-1.0], [1.0]]), torch.tensor([0, 1]))
    assert head.predict(f64([[-3.0], [2.0], [5.0]])).tolist() == [0, 1, 1]
    assert head.score(f64([[-3.0], [2.0], [5.0]]), torch.tensor([0, 0, 1])) == pytest.approx(2 / 3)


def test_features_of_less_precision_are_fitted_in_float64():
    x, labels = blobs(2)
    head = LinearHead(ridge=1e-3).fit(x.float(), labels)
    assert head.weights.dtype == torch.float64
    assert head.gradient_norm < 1e-9
    same = LinearHead(ridge=1e-3).fit(x.float().double(), labels)
    assert torch.equal(head.weights, same.weights)


SHORT = Recipe(steps=300, batch=32, learning_rate=0.05, warmup=30, decay="linear")


def test_the_recipe_comes_near_the_minimum_and_is_its_seed():
    x, labels = blobs(3, n=300, seed=4)
    best = LinearHead().fit(x, labels)
    trained = LinearHead("recipe", recipe=SHORT, seed=1).fit(x, labels)
    assert trained.score(x, labels) > best.score(x, labels) - 0.03
    with torch.random.fork_rng():
        torch.manual_seed(99)  # the global generator has no say
        again = LinearHead("recipe", recipe=SHORT, seed=1).fit(x, labels)
    assert torch.equal(trained.weights, again.weights)
    assert torch.equal(trained.bias, again.bias)
    other = LinearHead("recipe", recipe=SHORT, seed=2).fit(x, labels)
    assert not torch.equal(trained.weights, other.weights)
    assert (PAPER_RECIPE.steps, PAPER_RECIPE.batch, PAPER_RECIPE.warmup) == (4000, 128, 500)
    assert (PAPER_RECIPE.learning_rate, PAPER_RECIPE.decay) == (0.01, "linear")


@pytest.mark.parametrize(
    ("features", "labels", "sentence"),
    [
        ([[1.0], [2.0]], [0, 1, 1], r"shape \(2, 1\) and there are 3 labels"),
        ([[1.0], [math.nan]], [0, 1], "features must be finite"),
        ([[1.0], [2.0]], [1, 1], "at least two kinds"),
        ([[1.0], [2.0]], [-1, 1], "at least two kinds"),
        (np.zeros((0, 1)), [], "at least two kinds"),
    ],
)
def test_bad_examples_are_explained(features, labels, sentence, unchecked_shapes):
    with pytest.raises(ValueError, match=sentence):
        LinearHead().fit(torch.tensor(features), torch.tensor(labels, dtype=torch.long))


def test_bad_heads_are_explained(unchecked_shapes):
    with refused("solver"):
        LinearHead("lbfgs")
    for ridge in (0.0, -1.0, math.nan):
        with refused("ridge"):
            LinearHead(ridge=ridge)
    with pytest.raises(RuntimeError, match="call fit first"):
        LinearHead().predict(f64([[1.0]]))


def test_every_epoch_has_every_example_once():
    """10 examples in batches of 3: epochs of three batches, one example left out of each."""
    seen, theta = [], nn.Parameter(torch.zeros(2))
    labels = torch.tensor([0, 1] * 5)

    def scores(rows):
        seen.append(rows.tolist())
        return theta.expand(len(rows), 2)

    losses = train_classifier(scores, labels, [theta], Recipe(steps=7, batch=3), TorchRng(0))
    assert len(losses) == 7
    assert losses[0] == pytest.approx(math.log(2))
    assert [len(rows) for rows in seen] == [3] * 7
    for epoch in (seen[:3], seen[3:6]):
        assert len({row for rows in epoch for row in rows}) == 9
    assert seen[:3] != seen[3:6]
    seen.clear()
    train_classifier(scores, labels, [theta], Recipe(steps=2, batch=64), TorchRng(0))
    assert [sorted(rows) for rows in seen] == [list(range(10))] * 2


def test_a_step_of_training_by_hand():
    """SGD on scores θ (no features): the slope is softmax(θ) - mean(one-hot), clipped to c."""
    labels = torch.tensor([0, 0, 0, 1])  # slope (½ - ¾, ½ - ¼) = (-¼, ¼), of norm √2 / 4
    for clip, factor in ((0.0, 1.0), (0.1, 0.1 / (math.sqrt(2) / 4))):
        theta = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        recipe = Recipe(steps=1, batch=4, optimiser="sgd", learning_rate=2.0, clip=clip)
        train_classifier(
            lambda rows, theta=theta: theta.expand(len(rows), 2),
            labels,
            [theta],
            recipe,
            TorchRng(0),
        )
        wanted = f64([0.5, -0.5]) * factor
        torch.testing.assert_close(theta.detach(), wanted, atol=1e-5, rtol=0)


def test_a_loss_that_is_no_number_is_named():
    theta, calls = nn.Parameter(torch.zeros(2)), []

    def scores(rows):
        calls.append(1)
        return theta.expand(len(rows), 2) * (math.nan if len(calls) == 4 else 1.0)

    with pytest.raises(FloatingPointError, match="the loss is nan at step 3; lower"):
        train_classifier(scores, torch.tensor([0, 1]), [theta], Recipe(steps=9), TorchRng(0))


# ------------------------------------------------------------------ vectors instead of tokens


def masked_lm(seed=0, dtype=torch.float64, words=4, length=12, **options):
    shape = Shape(words + 1, length, width=8, layers=2, heads=2, causal=False, **options)
    return MaskedLM(Transformer(shape, seed=seed, dtype=dtype, init_scale=0.5))


def bert(dtype=torch.float64):
    """A tiny random Bert with four words."""
    config = transformers.BertConfig(
        vocab_size=9,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=16,
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = transformers.BertForMaskedLM(config).to(dtype)
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape).to(dtype)
    return PretrainedMaskedLM(model, 4, torch.arange(5, 9), (2,), (3,))


def exact():
    return HMM.random(5, 4, 6, seed=2)


MODELS = {"hmm": exact, "network": masked_lm, "bert": bert}
each_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())


def question(vocab, batch=5, t=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocab, (batch, t), generator=generator)
    hidden = torch.rand((batch, t), generator=generator) < 0.5
    hidden[:, 0] = True
    return tokens, hidden


def assert_soft_masked(model, tokens, hidden):
    """G(embed(x, hidden)) = exp masked_log_probs where hidden, and `at` is a slice of it."""
    assert isinstance(model, SoftMasked)
    vectors = model.embed(tokens, hidden)
    soft = model.soft_masked_probs(vectors)
    wanted = model.masked_log_probs(tokens, hidden).exp()
    torch.testing.assert_close(soft[hidden], wanted[hidden], atol=1e-12, rtol=0)
    torch.testing.assert_close(soft.sum(-1), torch.ones_like(soft[..., 0]))
    for at in range(tokens.shape[1]):
        one = model.soft_masked_probs(vectors, at=at)
        assert one.shape == (len(tokens), 1, model.vocab_size)
        torch.testing.assert_close(one, soft[:, at : at + 1], atol=1e-12, rtol=0)
    other = tokens.masked_fill(hidden, 0)  # what stands at a hidden place is never read
    assert torch.equal(model.embed(other, hidden), vectors)
    low, high = model.soft_range
    assert ((vectors >= low) & (vectors <= high)).all()


@each_model
def test_vectors_and_tokens_are_one_question(make):
    model = make()
    assert_soft_masked(model, *question(model.vocab_size))


@pytest.mark.parametrize("hmm", hmm_module.examples().values(), ids=hmm_module.examples().keys())
def test_vectors_and_tokens_are_one_question_to_every_hmm(hmm):
    tokens = hmm.sample(20, TorchRng(0))
    hidden = question(hmm.vocab_size, 20, hmm.length)[1]
    assert_soft_masked(hmm, tokens, hidden)


@pytest.mark.parametrize("positions", ["learned", "rotary", "linear", "none"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_vectors_and_tokens_are_one_question_to_every_network(norm, positions):
    assert_soft_masked(masked_lm(norm=norm, positions=positions), *question(4))


def test_the_ranges_of_the_entries():
    assert exact().soft_range == (0.0, 1.0)
    assert masked_lm().soft_range == bert().soft_range == (-math.inf, math.inf)


@each_model
def test_a_position_that_is_not_there_is_explained(make):
    model = make()
    vectors = model.embed(torch.zeros((2, 3), dtype=torch.long))
    for at in (-1, 3):
        with refused("at"):
            model.soft_masked_probs(vectors, at=at)


@pytest.mark.parametrize(
    ("kind", "more"),
    pairs(
        product([False, True], ["pre", "post", "projection", "none"]),
        product([1, 2], ["learned", "rotary"]),
    ),
)
def test_one_position_is_a_slice_of_all(kind, more):
    """Values and gradients, with padding, with uniform and with given attention."""
    (causal, norm), (layers, positions) = kind, more
    shape = Shape(5, 7, width=8, layers=layers, causal=causal, norm=norm, positions=positions)
    net = Transformer(shape, seed=1, dtype=torch.float64, init_scale=0.5)
    vectors = (random(3, 6, 8) - 0.5).requires_grad_()
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[0, 3:], padding[1, 1] = True, True
    given = [random(3, 2, 6, 6, seed=k).softmax(-1) for k in range(layers)]
    for options in (
        {},
        {"padding": padding},
        {"attention": "uniform"},
        {"attention": "uniform", "padding": padding},
        {"attention": given},
    ):
        whole = net(vectors=vectors, **options)
        for at in (0, 3, 5):
            one = net(vectors=vectors, at=at, **options)
            assert one.shape == (3, 1, 5)
            wanted = whole[:, at : at + 1]
            torch.testing.assert_close(one, wanted, atol=1e-12, rtol=0)
            probe = random(3, 1, 5, seed=9)
            wrt = [vectors, *net.parameters()]
            slopes = torch.autograd.grad((one * probe).sum(), wrt, allow_unused=True)
            expected = torch.autograd.grad(
                (wanted * probe).sum(), wrt, retain_graph=True, allow_unused=True
            )
            for slope, right in zip(slopes, expected, strict=True):
                assert (slope is None) == (right is None)
                if slope is not None:
                    torch.testing.assert_close(slope, right, atol=1e-11, rtol=1e-9)


def test_one_position_of_tokens_and_bad_ones():
    net = masked_lm().net
    tokens = torch.tensor([[0, 1, 2, 4]])
    torch.testing.assert_close(net(tokens, at=2), net(tokens)[:, 2:3], atol=1e-12, rtol=0)
    for at in (-1, 4):
        with refused("at"):
            net(tokens, at=at)


# ------------------------------------------------------------------ tuning


def examples_for(model, n=60, t=5, seed=0):
    """Sequences whose label says whether the first token is small."""
    tokens = torch.randint(model.vocab_size, (n, t), generator=torch.Generator().manual_seed(seed))
    return tokens, (tokens[:, 0] * 2 >= model.vocab_size).long()


def behind_mask(model, tokens):
    """The vectors of (∅, x)."""
    padded = torch.nn.functional.pad(tokens, (1, 0))
    hidden = torch.zeros_like(padded, dtype=torch.bool)
    hidden[:, 0] = True
    return model.embed(padded, hidden)


FEW = Recipe(steps=25, batch=32, learning_rate=0.1, warmup=3, decay="linear")


@each_model
def test_without_a_prompt_it_is_a_linear_head_on_the_law(make):
    model = make()
    tokens, labels = examples_for(model)
    law = model.soft_masked_probs(behind_mask(model, tokens))[:, 0].detach()
    for solver in ("newton", "recipe"):
        tuned = Tuning(model, solver=solver, recipe=FEW, seed=3).fit(tokens, labels)
        head = LinearHead(solver, recipe=FEW, seed=3).fit(law, labels)
        assert torch.equal(tuned.predict(tokens), head.predict(law))
        assert tuned.score(tokens, labels) == head.score(law, labels)
        assert len(tuned.prompt) == 0


@pytest.mark.parametrize(
    ("name", "tuned_with"), pairs(MODELS, product([0, 1, 3], ["linear", "attention"]))
)
def test_the_prediction_is_the_head_on_the_prompted_model(name, tuned_with):
    """(u_1, …, u_k, ∅, x) by hand: the law at place k, or everywhere with no symbol at the first
    k + 1 places."""
    model, (k, head) = MODELS[name](), tuned_with
    tokens, labels = examples_for(model)
    tuned = Tuning(model, prompt_length=k, head=head, recipe=FEW, seed=1).fit(tokens, labels)
    low, high = model.soft_range
    assert tuned.prompt.shape[0] == k
    assert ((tuned.prompt >= low) & (tuned.prompt <= high)).all()
    with torch.no_grad():
        inputs = behind_mask(model, tokens)
        law = model.soft_masked_probs(
            torch.cat([tuned.prompt.expand(len(tokens), -1, -1), inputs], 1)
        )
        if head == "attention":
            none = torch.full((len(tokens), k + 1), model.vocab_size)
            assert tuned._head.length == k + 6
            scores = tuned._head(law, torch.cat([none, tokens], 1))
        elif k:
            scores = tuned._readout(law[:, k])
        else:
            scores = tuned._head.decision(law[:, 0])
        found = tuned._decision(tuned._probs(tuned.embedded(tokens)), tuned.symbols(tokens))
    torch.testing.assert_close(found, scores, atol=1e-12, rtol=0)
    assert torch.equal(tuned.predict(tokens), scores.argmax(-1))
    if k or head == "attention":
        assert len(tuned.losses) == 25
        assert sum(tuned.losses[-5:]) < sum(tuned.losses[:5])


def test_a_prompt_can_be_tuned_on_a_copy_of_the_network(monkeypatch):
    """A copy in the same precision gives the same prompt; the network itself answers afterwards.

    On a GPU the copy is bfloat16, which not every CPU can multiply.
    """
    model = masked_lm()
    tokens, labels = examples_for(model)
    plain, copied = (Tuning(model, prompt_length=2, recipe=FEW, seed=1) for _ in range(2))
    copies = []

    def copy_for_training(device):
        copies.append(in_precision(model, torch.float64))
        return copies[0]

    assert copied._copy_for_training(torch.device("cpu")) is None
    monkeypatch.setattr(copied, "_copy_for_training", copy_for_training)
    plain.fit(tokens, labels)
    copied.fit(tokens, labels)
    assert len(copies) == 1
    assert copies[0].net is not model.net
    assert copied.losses == plain.losses
    assert torch.equal(copied.prompt, plain.prompt)
    with torch.no_grad():
        copies[0].net.output.weight.fill_(0.0)
    assert torch.equal(copied.predict(tokens), plain.predict(tokens))


@each_model
def test_the_slope_in_the_prompt_is_right(make):
    """Through the sigmoid and the model, against finite differences."""
    model = make()
    tokens, _ = examples_for(model, n=2, t=3)
    vectors = behind_mask(model, tokens).detach()
    tuned = Tuning(model, prompt_length=2, recipe=replace(FEW, steps=1)).fit(
        tokens, torch.tensor([0, 1])
    )

    def law(raw):
        tuned._raw = raw
        return tuned._probs(vectors)

    raw = (random(2, vectors.shape[-1], seed=4) - 0.5).requires_grad_()
    assert torch.autograd.gradcheck(law, (raw,))
    assert law(raw).shape == (2, 1, model.vocab_size)


def test_where_a_prompt_starts():
    """Uniform in [-½, ½], or its sigmoid; a vanishing learning rate leaves it there."""
    still = Recipe(steps=1, learning_rate=1e-30)
    net, hmm = masked_lm(dtype=torch.float64), exact()
    tokens, labels = examples_for(hmm)
    free = torch.cat(
        [
            Tuning(net, prompt_length=6, recipe=still, seed=s).fit(tokens, labels).prompt.flatten()
            for s in range(20)
        ]
    ).detach()
    assert scipy.stats.kstest(free.numpy() + 0.5, "uniform").pvalue > 1e-6
    assert free.abs().max() <= 0.5
    held = Tuning(hmm, prompt_length=40, recipe=still).fit(tokens, labels).prompt.detach()
    assert held.min() >= 1 / (1 + math.exp(0.5))
    assert held.max() <= 1 / (1 + math.exp(-0.5))
    assert scipy.stats.kstest(held.flatten().logit().numpy() + 0.5, "uniform").pvalue > 1e-6


def test_a_prompt_of_the_truth_stays_in_its_range():
    hmm = exact()
    tokens, labels = examples_for(hmm)
    wild = Recipe(steps=40, batch=32, learning_rate=5.0)
    tuned = Tuning(hmm, prompt_length=2, recipe=wild).fit(tokens, labels)
    assert tuned.prompt.min() >= 0
    assert tuned.prompt.max() <= 1
    assert tuned.prompt.max() - tuned.prompt.min() > 0.9


@pytest.mark.parametrize("head", ["linear", "attention"])
@pytest.mark.parametrize("kind", ["network", "bert"])
def test_the_network_is_left_alone(kind, head):
    model = MODELS[kind]()
    net = model.net if kind == "network" else model.model
    before = {name: value.clone() for name, value in net.state_dict().items()}
    tokens, labels = examples_for(model)
    tuned = Tuning(model, prompt_length=2, head=head, recipe=FEW).fit(tokens, labels)
    tuned.predict(tokens)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("head", ["linear", "attention"])
def test_a_seed_names_the_result(head):
    model = masked_lm(dtype=torch.float32)
    tokens, labels = examples_for(model)

    def tune(seed):
        return Tuning(model, prompt_length=2, head=head, recipe=FEW, seed=seed).fit(tokens, labels)

    first, other = tune(1), tune(2)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        again = tune(1)
    assert torch.equal(first.prompt, again.prompt)
    assert first.losses == again.losses
    assert torch.equal(first.predict(tokens), again.predict(tokens))
    assert not torch.equal(first.prompt, other.prompt)
    assert first.losses != other.losses


@pytest.mark.parametrize(("k", "head"), [(0, "linear"), (2, "linear"), (2, "attention")])
def test_blocks_of_rows_do_not_matter(k, head, monkeypatch):
    model = masked_lm()
    tokens, labels = examples_for(model)

    def tune():
        tuned = Tuning(model, prompt_length=k, head=head, recipe=FEW).fit(tokens, labels)
        return tuned, tuned.predict(tokens)

    whole, predicted = tune()
    monkeypatch.setattr(prompts_module, "ROWS_AT_ONCE", 7)
    parts, again = tune()
    assert torch.equal(predicted, again)
    torch.testing.assert_close(whole.prompt, parts.prompt, atol=1e-9, rtol=0)
    assert len(parts.predict(tokens[:0])) == 0


def test_bad_tuning_is_explained(unchecked_shapes):
    model = exact()
    tokens, labels = examples_for(model)
    for call in (
        lambda: Tuning(model).predict(tokens),
        lambda: Tuning(model, prompt_length=1).score(tokens, labels),
        lambda: Tuning(model).prompt,
    ):
        with pytest.raises(RuntimeError, match="has not been fitted: call fit first"):
            call()
    with refused("prompt_length"):
        Tuning(model, prompt_length=-1)
    with refused("head"):
        Tuning(model, head="deep")
    for options in ({"prompt_length": 1}, {"head": "attention"}):
        with pytest.raises(ValueError, match="only that problem is convex"):
            Tuning(model, solver="newton", **options)
    with refused("solver"):
        Tuning(model, solver="best").fit(tokens, labels)
    for options in ({}, {"prompt_length": 1}, {"head": "attention"}):
        with refused("labels"):
            Tuning(model, recipe=FEW, **options).fit(tokens, torch.zeros_like(labels))


# ------------------------------------------------------------------ Theorem 3.6, tuned


def beyond_heads(seed):
    """An HMM with 6 states and 4 tokens, all strings with a clear label, and the theorem's case.

    The model that is tuned starts at H_1, where the prompt stands."""
    hmm = HMM.random_sparse(6, 4, 1, seed=seed)
    task = essential.random_task(hmm, seed=seed)
    tokens = all_sequences(4, 4)
    tokens = tokens[heads.in_support(hmm, tokens)]
    truth = heads.state_before(hmm, tokens) @ task
    clear = truth.abs() > 0.02
    model = replace(hmm, initial=hmm.initial @ hmm.transition)
    return hmm, task, model, tokens[clear], (truth[clear] > 0).long()


def no_head_computes(hmm, tokens, labels):
    law = heads.masked_first(hmm, tokens)
    assert not heads.linearly_separable(law, labels.bool(), 1e-6)
    return LinearHead(ridge=1e-9).fit(law, labels).score(law, labels)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_the_witness_put_into_a_tuning_computes_what_no_head_does(seed):
    hmm, task, model, tokens, labels = beyond_heads(seed)
    assert no_head_computes(hmm, tokens, labels) < 1.0
    witness = prompts.witness(hmm, task)
    tuned = Tuning(model, prompt_length=1, recipe=replace(FEW, steps=1)).fit(tokens, labels)
    tuned._raw = nn.Parameter((60 * (2 * witness.prompt - 1))[None])  # σ(±60): 1, and 1e-26
    with torch.no_grad():
        tuned._readout.weight.copy_(torch.stack([-witness.head, witness.head]))
        tuned._readout.bias.zero_()
    assert tuned.score(tokens, labels) == 1.0
    law = tuned._probs(tuned.embedded(tokens))[:, 0].detach()
    wanted = prompts.masked_second(hmm, witness.prompt, tokens)
    possible = wanted.sum(-1) > 0
    torch.testing.assert_close(law[possible], wanted[possible], atol=1e-12, rtol=0)


@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.slow
def test_near_the_witness_training_ends_all_right(seed):
    """From entries ⅔ and ⅓ instead of 1 and 0, and 30 times the witness' head: a small head has
    small margins, and then cross-entropy asks for something else than right labels."""
    hmm, task, model, tokens, labels = beyond_heads(seed)
    best = no_head_computes(hmm, tokens, labels)
    witness = prompts.witness(hmm, task)
    tuned = Tuning(model, prompt_length=1, recipe=replace(FEW, steps=1)).fit(tokens, labels)
    tuned._raw = nn.Parameter((math.log(2) * (2 * witness.prompt - 1))[None])
    with torch.no_grad():
        tuned._readout.weight.copy_(30 * torch.stack([-witness.head, witness.head]))
        tuned._readout.bias.zero_()
    assert tuned.score(tokens, labels) < 1.0
    vectors, none = tuned.embedded(tokens), tuned.symbols(tokens)
    recipe = Recipe(steps=300, batch=256, learning_rate=0.3, warmup=10, decay="linear")
    train_classifier(
        lambda rows: tuned._decision(tuned._probs(vectors[rows]), none[rows]),
        labels,
        [tuned._raw, *tuned._readout.parameters()],
        recipe,
        TorchRng(0),
    )
    assert tuned.score(tokens, labels) == 1.0 > best


def test_tuning_from_scratch_finds_what_no_head_does():
    hmm, _, model, tokens, labels = beyond_heads(3)
    assert no_head_computes(hmm, tokens, labels) < 0.95
    recipe = Recipe(steps=400, batch=256, learning_rate=0.1, warmup=20, decay="linear")
    tuned = Tuning(model, prompt_length=1, recipe=recipe).fit(tokens, labels)
    assert tuned.score(tokens, labels) == 1.0
    assert ((tuned.prompt >= 0) & (tuned.prompt <= 1)).all()


def test_the_best_head_is_not_held_back_by_a_ridge():
    """Two classes a millionth apart need weights of a million, which λ = 1e-6 forbids."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (400,), generator=generator)
    noise = torch.rand(400, 2, generator=generator, dtype=torch.float64)
    features = torch.cat([noise, 1e-6 * labels[:, None].double()], dim=1)
    held_back = LinearHead(ridge=1e-6).fit(features, labels)
    best = best_linear_head(features, labels)
    assert held_back.score(features, labels) < 0.7
    assert best.score(features, labels) == 1.0
    assert best.ridge < 1e-6


def test_the_best_head_prefers_the_strongest_ridge_that_does():
    features = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    assert best_linear_head(features, torch.tensor([0, 1])).ridge == max(RIDGES)


def test_features_are_the_law_at_the_hidden_position():
    hmm = HMM.random(3, 4, 1, seed=2)
    tokens = torch.tensor([[0, 1], [2, 3]])
    found = Tuning(hmm).features(tokens)
    hidden = torch.tensor([[True, False, False]]).expand(2, 3)
    padded = torch.nn.functional.pad(tokens, (1, 0))
    wanted = hmm.with_length(3).masked_log_probs(padded, hidden)[:, 0].exp()
    torch.testing.assert_close(found, wanted)
    with pytest.raises(ValueError, match="an attention head reads every position"):
        Tuning(hmm, head="attention").features(tokens)
