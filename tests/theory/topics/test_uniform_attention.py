"""Uniform attention on topic documents: loss and optima against enumeration of the documents."""

import itertools
import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.structures.topics import Topics
from triptych.theory.topics import uniform_attention as theory
from triptych.theory.topics.uniform_attention import Setting

pytestmark = pytest.mark.numerical

HALF = {"p_m": 0.5, "p_c": 0.25, "p_r": 0.25}
SETTINGS = [
    Setting(2, 1, 1, **HALF),
    Setting(3, 2, 2),
    Setting(4, 3, 1, p_m=0.3, p_c=0.2, p_r=0.4),
    Setting(4, 2, 3, p_m=0.8, p_c=0.0, p_r=0.1),
    Setting(5, 2, 2, p_m=0.15, p_c=0.1, p_r=0.0),
]
DENSE = [Setting(1, 3, 1), Setting(3, 2, 3), Setting(2, 1, 2, **HALF)]
each = pytest.mark.parametrize("setting", SETTINGS, ids=str)
every = pytest.mark.parametrize("setting", SETTINGS + DENSE, ids=str)


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def documents(setting):
    """y and P of every topic set, from the structure."""
    structure = Topics(setting.topics, setting.words, setting.drawn, length=1)
    sets = list(itertools.combinations(range(setting.topics), setting.drawn))
    present = torch.zeros((len(sets), setting.topics), dtype=torch.bool)
    for row, chosen in enumerate(sets):
        present[row, list(chosen)] = True
    masking = {"p_m": setting.p_m, "p_c": setting.p_c, "p_r": setting.p_r}
    y = structure.limit_corrupted_probs(present, **masking)
    words = structure.limit_word_probs(present)
    return y, torch.cat([words, torch.zeros_like(words[:, :1])], dim=1)


def loss_by_enumeration(setting, weight, bias=None):
    """Mean over documents and over the word that stands at a masked position."""
    total, (ys, ps) = 0.0, documents(setting)
    for y, p in zip(ys, ps, strict=True):
        guess = weight @ y + (0 if bias is None else bias)
        for word in range(setting.vocab):
            target = torch.zeros(setting.vocab, dtype=torch.float64)
            target[word] = 1.0
            total += float(p[word] * (guess - target).square().sum()) / len(ys)
    return total


# ------------------------------------------------------------------ setting and moments


def test_worked_constants():
    setting = Setting(2, 1, 1, **HALF)
    assert (setting.left, setting.masked, setting.replaced) == (5 / 8, 1 / 4, 1 / 16)
    assert setting.constants == pytest.approx((2 / 5, 3.0, 8 / 5))
    assert setting.vocab == 3
    assert setting.least_loss == 0.0
    assert Setting(10, 10, 4).least_loss == pytest.approx(1 - 1 / 40)


@every
def test_moments_are_means_over_the_documents(setting):
    y, p = documents(setting)
    n = len(y)
    moments = setting.moments
    torch.testing.assert_close(moments.y, y.mean(0))
    torch.testing.assert_close(moments.p, p.mean(0))
    torch.testing.assert_close(moments.yy, y.T @ y / n)
    torch.testing.assert_close(moments.py, p.T @ y / n)
    assert moments.square == pytest.approx(float(p.square().sum(1).mean()))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"drawn": 4}, "cannot have 4 of 3 topics"),
        ({"drawn": 0}, "drawn is 0"),
        ({"p_m": 1.0}, "0 < p_m < 1"),
        ({"p_c": -0.1}, "p_c, p_r >= 0"),
        ({"p_c": 0.5, "p_r": 0.5}, r"p_c \+ p_r < 1"),
        ({"p_m": math.nan}, "p_m is nan"),
    ],
)
def test_what_is_no_setting_is_refused(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        Setting(**{"topics": 3, "words": 2, "drawn": 2, **given})


# ------------------------------------------------------------------ the loss


@every
def test_the_loss_is_the_mean_over_documents_and_words(setting):
    weight, bias = noise(setting.vocab, setting.vocab), noise(setting.vocab, seed=1)
    wanted = loss_by_enumeration(setting, weight)
    assert float(theory.population_loss(setting, weight)) == pytest.approx(wanted)
    wanted = loss_by_enumeration(setting, weight, bias)
    assert float(theory.population_loss(setting, weight, bias)) == pytest.approx(wanted)


def test_predicting_nothing_costs_one():
    setting = Setting(3, 2, 2)
    assert float(theory.population_loss(setting, torch.zeros(7, 7).double())) == 1.0
    with refused("weight"):
        theory.population_loss(setting, torch.zeros(6, 6).double())


def test_the_loss_is_differentiable_in_both():
    setting = Setting(3, 2, 1, **HALF)
    weight, bias = noise(7, 7).requires_grad_(), noise(7, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda w, b: theory.population_loss(setting, w, b), (weight, bias)
    )


# ------------------------------------------------------------------ Lemma 2.1.1


def test_worked_optimum():
    weight = theory.optimum(Setting(2, 1, 1, **HALF))
    wanted = torch.tensor([[8 / 5, 0, -2 / 5], [0, 8 / 5, -2 / 5], [0, 0, 0]])
    torch.testing.assert_close(weight, wanted.double())
    u = torch.tensor([1.0, 0.0, 2.0])
    weight = theory.optimum(Setting(2, 1, 1, **HALF), u)
    wanted = torch.tensor([[13 / 5, 1, -17 / 5], [0, 8 / 5, -2 / 5], [2, 2, -6]])
    torch.testing.assert_close(weight, wanted.double())


@every
def test_every_optimum_predicts_the_words_of_each_document(setting):
    """W y = P, and so the least loss; also with deviations that differ from topic to topic."""
    y, p = documents(setting)
    v, n = setting.words, setting.vocab - 1
    weight = theory.optimum(setting, noise(setting.vocab), noise(setting.vocab, v, seed=1))
    apart = noise(setting.vocab, setting.topics, v, seed=2)
    apart -= apart.mean(-1, keepdim=True)
    for more in (0.0, apart.reshape(setting.vocab, n)):
        weight[:, :n] += more
        torch.testing.assert_close(y @ weight.T, p)
        assert float(theory.population_loss(setting, weight)) == pytest.approx(
            setting.least_loss, abs=1e-10
        )
        assert theory.satisfies_lemma(setting, weight)
    torch.testing.assert_close(
        theory.fitted_constants(setting, weight), noise(setting.vocab), atol=1e-10, rtol=0
    )


@each
def test_the_family_is_all_of_the_minimisers(setting):
    """A minimiser is any solution of W E[y yᵀ] = E[P yᵀ]: those found by algebra are members."""
    m = setting.moments
    values, vectors = torch.linalg.eigh(m.yy)
    null = vectors[:, values < 1e-12]
    free, family = theory.degrees_of_freedom(setting)
    assert null.shape[1] == free == family == setting.topics * (setting.words - 1) + 1
    found = m.py @ torch.linalg.pinv(m.yy, hermitian=True)
    found = found + noise(setting.vocab, free) @ null.T
    assert theory.distance_from_optima(setting, found) < 1e-9
    range_of = vectors[:, values >= 1e-12]
    for k in range(range_of.shape[1]):  # and any step out of it costs
        moved = found + 0.1 * noise(setting.vocab, 1, seed=k) @ range_of[:, k : k + 1].T
        assert float(theory.population_loss(setting, moved)) > setting.least_loss + 1e-9
        assert not theory.satisfies_lemma(setting, moved)


@pytest.mark.parametrize("setting", DENSE, ids=str)
def test_with_all_topics_in_each_document_there_are_more_minimisers(setting):
    free, family = theory.degrees_of_freedom(setting)
    assert free == setting.vocab - 1 > family or setting.topics == 1
    if setting.topics > 1:  # a prediction that looks at the mask alone
        weight = torch.zeros((setting.vocab,) * 2, dtype=torch.float64)
        weight[:-1, -1] = 1 / (setting.vocab - 1) / setting.masked
        loss = float(theory.population_loss(setting, weight))
        assert loss == pytest.approx(setting.least_loss)
        assert not theory.satisfies_lemma(setting, weight)


def test_worked_distance():
    setting = Setting(2, 1, 1, **HALF)
    weight = theory.optimum(setting, noise(3))
    assert theory.distance_from_optima(setting, weight) < 1e-12
    weight[0, 0] += 1.0
    assert theory.distance_from_optima(setting, weight) == pytest.approx(10 / 11)
    assert not theory.satisfies_lemma(setting, weight)
    assert theory.satisfies_lemma(setting, weight, tolerance=0.95)


def test_block_sums_by_hand():
    weight = torch.arange(25.0, dtype=torch.float64).reshape(5, 5)
    sums = theory.block_sums(Setting(2, 2, 1), weight)
    assert sums.tolist() == [[10 * i + 1, 10 * i + 5] for i in range(5)]


# ------------------------------------------------------------------ Theorem 2.1.2


@pytest.mark.parametrize(("topics", "words"), [(2, 1), (2, 2), (4, 3)])
def test_the_closed_form_needs_fewer_topics_than_there_are(topics, words):
    """With τ = T every document is the same, more matrices are optimal, and the least is smaller
    than the least of the theorem's family."""
    everything = Setting(topics, words, topics)
    with refused("setting"):
        theory.ridge_limit(everything)
    printed = theory.printed_ridge_limit(everything)
    loss = theory.population_loss(everything, printed).item()
    assert loss == pytest.approx(everything.least_loss, abs=1e-9)
    assert theory.ridge(everything, 1e-9).norm() < 0.9 * printed.norm()


def test_one_topic_has_the_closed_form():
    """T = τ = 1: the family of Lemma 2.1.1 has all optima, T (v - 1) + 1 = v dimensions of them."""
    alone = Setting(1, 2, 1)
    assert theory.degrees_of_freedom(alone) == (2, 2)
    torch.testing.assert_close(
        theory.ridge_limit(alone), theory.ridge(alone, 1e-9), atol=1e-6, rtol=0
    )


@each
def test_vanishing_ridge_is_the_printed_matrix(setting):
    found = theory.ridge_limit(setting)
    c1, c2, c3 = setting.constants
    n = setting.vocab - 1
    below = c2**2 + n
    other, mask = -(c1 * c2 + c3) / below, (c2 * c3 - c1 * n) / below
    wanted = torch.full((n + 1, n + 1), other, dtype=torch.float64)
    for i in range(n):
        for j in range(n):
            if i // setting.words == j // setting.words:
                wanted[i, j] += c3 / setting.words
    wanted[:, n], wanted[n] = mask, 0.0
    torch.testing.assert_close(found, wanted)
    m = setting.moments
    least = m.py @ torch.linalg.pinv(m.yy, hermitian=True)
    torch.testing.assert_close(found, least, atol=1e-10, rtol=0)
    errors = [float((theory.ridge(setting, p) - found).abs().max()) for p in (1e-7, 2e-7)]
    assert errors[0] < 1e-3
    assert errors[1] / errors[0] == pytest.approx(2, rel=0.05)  # the error is linear in λ
    twice = 2 * theory.ridge(setting, 1e-7) - theory.ridge(setting, 2e-7)
    assert float((twice - found).abs().max()) < 1e-6


def test_ridge_minimises_the_penalised_loss():
    setting, penalty = Setting(3, 2, 2), 0.01
    weight = theory.ridge(setting, penalty).requires_grad_()
    loss = theory.population_loss(setting, weight) + penalty * weight.square().sum()
    assert float(torch.autograd.grad(loss, weight)[0].abs().max()) < 1e-12
    with refused("penalty"):
        theory.ridge(setting, 0.0)


@each
def test_the_diagonal_optimum(setting):
    found = theory.diagonal_optimum(setting)
    assert theory.satisfies_lemma(setting, found)
    off = found[:-1, :-1] - found[:-1, :-1].diag().diag()
    assert not off.any()
    assert not found[-1].any()
    assert float(theory.fitted_constants(setting, found).abs().max()) < 1e-12


# ------------------------------------------------------------------ Theorem 2.1.1


def test_the_bias_is_zero_on_the_mask():
    bias = theory.embedding_bias(Setting(2, 1, 1, **HALF))
    assert bias.tolist() == pytest.approx([-1 / 10, -1 / 10, 0.0])


@each
def test_the_bias_moves_into_the_masks_column(setting):
    y, _ = documents(setting)
    weight = noise(setting.vocab, setting.vocab)
    moved = theory.absorbed_bias(setting, weight)
    torch.testing.assert_close(y @ moved.T, y @ weight.T + theory.embedding_bias(setting))


def test_worked_embedding():
    products = theory.embedding_optimum(Setting(2, 1, 1, **HALF), 1.0)
    wanted = torch.tensor([[13 / 5, 1, -3], [1, 13 / 5, -3], [-3, -3, 9]]).double()
    torch.testing.assert_close(products, wanted)


@each
@pytest.mark.parametrize("level", [0.0, 0.3, 2.0])
def test_embeddings_with_any_constants_that_are_possible(setting, level):
    d = noise(setting.topics, setting.words)
    d = (d - d.mean(-1, keepdim=True)).reshape(-1) * (level > 0)
    products = theory.embedding_optimum(setting, level, d)
    torch.testing.assert_close(products, products.T)
    assert float(torch.linalg.eigvalsh(products).min()) > -1e-9
    loss = theory.population_loss(setting, products, theory.embedding_bias(setting))
    assert float(loss) == pytest.approx(setting.least_loss, abs=1e-10)
    moved = theory.absorbed_bias(setting, products)
    assert theory.satisfies_lemma(setting, moved)
    u = theory.fitted_constants(setting, moved)
    c2 = setting.constants[1]
    torch.testing.assert_close(u[:-1], level + d, atol=1e-9, rtol=0)
    assert float(u[-1]) == pytest.approx(-c2 * level)


@pytest.mark.parametrize(
    ("level", "deviation"), [(-0.1, [0.0] * 4), (0.0, [1.0, -1.0, 0.0, 0.0]), (1.0, [1.0, 0, 0, 0])]
)
def test_constants_that_no_embedding_has(level, deviation):
    with refused("level"):
        theory.embedding_optimum(Setting(2, 2, 1), level, torch.tensor(deviation))


def test_constants_that_no_embedding_has_make_a_negative_direction():
    """Symmetric members of the family, however large within topics, are then indefinite."""
    setting = Setting(3, 2, 1, **HALF)
    c1, c2, _ = setting.constants
    d = torch.tensor([1.0, -1.0] * 3, dtype=torch.float64)
    for level, deviation in ((-0.2, 0 * d), (0.0, d)):
        u = torch.cat([level + deviation, torch.full((1,), -c2 * level, dtype=torch.float64)])
        weight = theory.optimum(setting, u)
        weight[:-1, -1] += c1  # with the bias
        weight[-1, :-1] = weight[:-1, -1]
        weight[:-1, :-1] += deviation[None] * 1.0  # sums over topics stay: symmetric now
        weight[:-1, :-1] += 1e3 * torch.outer(d, d)
        torch.testing.assert_close(weight, weight.T)
        assert theory.satisfies_lemma(setting, theory.absorbed_bias(setting, weight))
        assert float(torch.linalg.eigvalsh(weight).min()) < -1e-6


def test_the_printed_example_predicts_the_mask():
    """W_E = √c₃ I, given in the source as the simplest optimum, loses (c₃ ρ)² on the mask's row."""
    setting = Setting(3, 2, 2)
    c3 = setting.constants[2]
    loss = theory.population_loss(
        setting, c3 * torch.eye(7, dtype=torch.float64), theory.embedding_bias(setting)
    )
    assert float(loss) - setting.least_loss == pytest.approx((c3 * setting.masked) ** 2)


def test_a_bias_on_the_mask_moves_its_own_product():
    """Then E_00 = c₁ - c₂ u_0 at an optimum, which is not what is printed."""
    setting = Setting(3, 2, 2)
    bias = theory.embedding_bias(setting)
    bias[-1] = bias[0]
    products = theory.embedding_optimum(setting, 0.5)
    worse = theory.population_loss(setting, products, bias)
    assert float(worse) - setting.least_loss == pytest.approx(float(bias[0]) ** 2)
    products[-1, -1] += setting.constants[0]
    best = theory.population_loss(setting, products, bias)
    assert float(best) == pytest.approx(setting.least_loss, abs=1e-12)


# ------------------------------------------------------------------ what a matrix looks like


def test_block_statistics_by_hand():
    matrix = torch.tensor(
        [[5.0, 2, 1, 0, 9], [2, 5, 0, -1, 9], [0, 1, 7, 4, 9], [-1, 0, 4, 7, 9], [9, 9, 9, 9, 9]]
    )
    found = theory.blocks_of(matrix, torch.tensor([0, 0, 1, 1]))
    assert found[:3] == (6.0, 3.0, 0.0)
    assert found.spread == pytest.approx(math.sqrt(4 / 7))
    assert found.score == pytest.approx(3 / math.sqrt(4 / 7))
    assert found.diagonality == pytest.approx(0.5)


def test_block_statistics_without_blocks():
    identity = theory.blocks_of(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    assert identity[:4] == (1.0, 0.0, 0.0, 0.0)
    assert identity.diagonality == 1.0
    assert math.isnan(identity.score)
    uniform = theory.blocks_of(
        torch.kron(torch.eye(2), torch.ones(2, 2)), torch.tensor([0, 0, 1, 1])
    )
    assert uniform.score == math.inf
    assert uniform.diagonality == 0.0
    assert math.isnan(theory.blocks_of(torch.zeros(2, 2), torch.tensor([0, 0])).diagonality)
    alone = theory.blocks_of(torch.eye(2), torch.tensor([0, 1]))
    assert math.isnan(alone.same_topic)
    assert math.isnan(alone.score)
