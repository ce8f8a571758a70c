import itertools

import numpy as np
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.core.validation import ImpossibleEvidence
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM, examples

pytestmark = pytest.mark.numerical


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def worked():
    emission = f64([[1.0, 0.0], [0.5, 0.5]]).reshape(2, 1, 1, 2)
    return MemoryHMM(f64([0.5, 0.5]), f64([1.0]), f64([[1.0]]), emission, 2)


def test_worked_value():
    """½·1·1 + ½·½·½ = 5/8; after 0, 0 the memory is value 0 with (½) / (5/8) = 4/5."""
    tokens = torch.tensor([[0, 0]])
    assert worked().log_prob(tokens).exp().item() == pytest.approx(5 / 8)
    posteriors = worked().posteriors(tokens, torch.zeros_like(tokens).bool())
    torch.testing.assert_close(posteriors.memory, f64([[0.8, 0.2]]))
    torch.testing.assert_close(posteriors.cell(0), f64([[0.8, 0.2]]))
    # A third token would be 0 with 4/5 · 1 + 1/5 · ½ = 9/10.
    longer = worked().with_length(3)
    torch.testing.assert_close(longer.next_token_log_probs(tokens).exp(), f64([[0.9, 0.1]]))


def brute_force(model, tokens, hidden):
    """p(m, h-path, shown tokens) by the definition, for one row."""
    table = {}
    for m in itertools.product(range(model.values), repeat=model.cells):
        for path in itertools.product(range(model.cells * model.syntax), repeat=model.length):
            p = float(model.memory[m])
            for t, h in enumerate(path):
                cell, syntax = divmod(h, model.syntax)
                p *= float(model.initial[h] if t == 0 else model.transition[path[t - 1], h])
                if not hidden[t]:
                    p *= float(model.emission[m[cell], cell, syntax, tokens[t]])
            table[m, path] = p
    return table


@pytest.mark.parametrize(
    ("values", "cells", "syntax"), [(2, 1, 2), (2, 2, 1), (2, 3, 1), (3, 2, 1)]
)
def test_all_posteriors_by_brute_force(values, cells, syntax):
    model = MemoryHMM.random(values, cells, syntax, 3, 3, seed=values + cells)
    tokens = torch.tensor([[0, 2, 1]])
    for pattern in [(False, False, False), (True, False, True), (True, True, True)]:
        hidden = torch.tensor([pattern])
        posteriors = model.posteriors(tokens, hidden)
        joint = brute_force(model, tokens[0].tolist(), pattern)
        total = sum(joint.values())
        memory = np.zeros([values] * cells)
        addressed = np.zeros((3, values, cells, syntax))
        for (m, path), p in joint.items():
            memory[m] += p / total
            for t, h in enumerate(path):
                cell, s = divmod(h, syntax)
                addressed[t, m[cell], cell, s] += p / total
        np.testing.assert_allclose(posteriors.memory[0], memory, atol=1e-13)
        np.testing.assert_allclose(posteriors.addressed[0], addressed, atol=1e-13)
        np.testing.assert_allclose(posteriors.hidden[0], addressed.sum(1), atol=1e-13)
        for j in range(cells):
            others = tuple(axis for axis in range(cells) if axis != j)
            np.testing.assert_allclose(posteriors.cell(j)[0], memory.sum(others), atol=1e-13)


@pytest.mark.parametrize("name", list(examples()))
def test_it_is_the_lifted_hmm(name):
    model = examples()[name]
    lifted = model.as_hmm()
    tokens = model.sample(40, TorchRng(0))
    hidden = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.4
    torch.testing.assert_close(model.log_prob(tokens), lifted.log_prob(tokens))
    torch.testing.assert_close(
        model.masked_log_probs(tokens, hidden), lifted.masked_log_probs(tokens, hidden)
    )
    count = len(model.assignments)
    state = lifted.log_posterior(tokens, hidden).exp().unflatten(-1, (count, -1))
    torch.testing.assert_close(model.log_posterior(tokens, hidden).exp(), state.sum(2))


def test_long_sequences_and_many_assignments():
    model = MemoryHMM.random(3, 3, 2, 10, 512, seed=0)
    tokens = model.sample(4, TorchRng(0))
    posteriors = model.posteriors(tokens, tokens == 0)
    total = posteriors.hidden.sum((-1, -2))
    torch.testing.assert_close(total, torch.ones_like(total), atol=1e-10, rtol=0)
    assert torch.isfinite(model.log_prob(tokens)).all()


# ------------------------------------------------------------------ the embedding model


def test_lifting_repeats_and_lowering_averages():
    """Two cells of two values, one syntax state: η(v)[m, j] = v[m_j, j]; φ undoes it."""
    model = MemoryHMM.random(2, 2, 1, 2, 3, seed=0)
    v = f64([10.0, 20.0, 11.0, 21.0])  # v[value, cell]: value 0 is (10, 20), value 1 is (11, 21)
    lifted = model.lift(v).reshape(4, 2)  # memories 00, 01, 10, 11; then the cell
    torch.testing.assert_close(lifted, f64([[10, 20], [10, 21], [11, 20], [11, 21]]))
    torch.testing.assert_close(model.lower(model.lift(v)), v)


@pytest.mark.parametrize("cells", [1, 2, 3])
def test_lowering_inverts_lifting(cells):
    model = MemoryHMM.random(3, cells, 2, 2, 3, seed=0)
    v = torch.rand((5, 3 * cells * 2), generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(model.lower(model.lift(v)), v)


@pytest.mark.parametrize("name", list(examples()))
def test_on_lifted_proper_embeddings_it_is_the_masked_lm(name):
    model = examples()[name]
    tokens = model.sample(20, TorchRng(1))
    got = model.soft_masked_probs(model.lift(model.embed(tokens)))
    for i in range(model.length):
        hidden = torch.zeros_like(tokens, dtype=torch.bool)
        hidden[:, i] = True
        wanted = model.masked_log_probs(tokens, hidden)[:, i].exp()
        torch.testing.assert_close(got[:, i], wanted, atol=1e-12, rtol=0)


def test_a_soft_prompt_conditions_the_memory():
    """[wei, (C.6)]: u = 1 where cell 0 holds value 1 leaves only memories with m_0 = 1."""
    model = MemoryHMM.random(2, 2, 1, 3, 4, seed=1)
    keep = (model.assignments[:, 0] == 1).double()
    u = keep[:, None].expand(-1, 2).reshape(-1)
    tokens = all_sequences(3, 3)
    vectors = torch.cat([u.expand(len(tokens), 1, -1), model.lift(model.embed(tokens))], dim=1)
    got = model.soft_masked_probs(vectors)[:, 1:]
    from dataclasses import replace

    sure = replace(
        model, memory=f64([[0.0, 0.0], [1.0, 1.0]]) * model.memory / model.memory[1].sum()
    )
    hidden = torch.tensor([True, False, False, False]).expand(len(tokens), -1)
    padded = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], dim=1)
    for i in range(1, 4):
        also = hidden.clone()
        also[:, i] = True
        wanted = sure.masked_log_probs(padded, also)[:, i].exp()
        torch.testing.assert_close(got[:, i - 1], wanted, atol=1e-12, rtol=0)


def test_zero_mass_is_zero_with_finite_gradients():
    model = examples()["a one-hot emission"]
    vectors = model.lift(model.embed(model.sample(2, TorchRng(0))))
    vectors[0, 0] = 0.0
    vectors.requires_grad_()
    answer = model.soft_masked_probs(vectors)
    assert (answer[0, 1:] == 0).all()
    answer[..., 0].sum().backward()
    assert torch.isfinite(vectors.grad).all()


def test_the_gradient_is_right():
    model = MemoryHMM.random(2, 2, 1, 2, 3, seed=0)
    generator = torch.Generator().manual_seed(0)
    vectors = torch.rand((1, 3, 8), generator=generator, dtype=torch.float64) + 0.1
    assert torch.autograd.gradcheck(model.soft_masked_probs, (vectors.requires_grad_(),))


def test_the_experiments_model_has_a_doubly_stochastic_syntax():
    model = MemoryHMM.random_permutation_mixture(5, 4, 10, 8, seed=1)
    assert (model.values, model.cells, model.syntax) == (5, 1, 4)
    torch.testing.assert_close(model.transition.sum(0), torch.ones(4).double())


@pytest.mark.usefixtures("unchecked_shapes")
def test_bad_input_is_explained():
    good = worked()
    with refused("memory"):
        MemoryHMM(f64([0.5, 0.25, 0.25]), good.initial, good.transition, good.emission, 2)
    with refused("initial"):
        MemoryHMM(good.memory, f64([0.5, 0.5]), good.transition, good.emission, 2)
    with refused("probs"):
        MemoryHMM(f64([0.5, 0.4]), good.initial, good.transition, good.emission, 2)
    sure = MemoryHMM(f64([1.0, 0.0]), good.initial, good.transition, good.emission, 2)
    tokens = torch.tensor([[0, 1]])
    assert sure.log_prob(tokens).item() == -np.inf
    with refused("log_evidence", ImpossibleEvidence):
        sure.posteriors(tokens, torch.zeros_like(tokens).bool())
    with pytest.raises(ValueError, match="4096"):
        MemoryHMM.random(8, 4, 2, 2, 2, seed=0).as_hmm()


def test_a_position_that_is_not_there_is_explained():
    model = MemoryHMM.random(2, 1, 2, 3, 3, seed=0)
    vectors = model.lift(model.embed(torch.zeros((2, 3), dtype=torch.long)))
    assert torch.equal(
        model.soft_masked_probs(vectors, at=1)[:, 0], model.soft_masked_probs(vectors)[:, 1]
    )
    for at in (-1, 3):
        with refused("at"):
            model.soft_masked_probs(vectors, at=at)
