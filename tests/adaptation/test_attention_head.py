"""The attention head of (4.1)-(4.2): a value by hand, its limit, ties, shapes, errors."""

import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.adaptation.attention import AttentionHead


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def worked(*, hard, query=(1.0, 0.0), tie=1e-9):
    return AttentionHead(
        query=f64(query),
        key=torch.eye(2).double(),
        position=torch.zeros(3, 2).double(),
        value=torch.eye(2).double(),
        mix=f64([[2.0, 3.0]]),
        embedding=torch.ones(3, 2).double(),
        hard=hard,
        tie=tie,
    )


PROBS = f64([[[1.0, 0.0], [0.0, 1.0]]])
SYMBOLS = torch.tensor([[0, 2]])


def test_worked_value():
    """Scores 1 and 0, values 2 and 3."""
    hard, soft = worked(hard=True), worked(hard=False)
    torch.testing.assert_close(hard.scores(PROBS), f64([[1.0, 0.0]]))
    torch.testing.assert_close(hard.values(PROBS, SYMBOLS), f64([[[2.0], [3.0]]]))
    torch.testing.assert_close(hard(PROBS, SYMBOLS), f64([[2.0]]))
    wanted = (2 * math.e + 3) / (math.e + 1)
    torch.testing.assert_close(soft(PROBS, SYMBOLS), f64([[wanted]]))


def test_every_parameter_has_its_place():
    """By hand: score_i = qᵀ(Θ_K G_i + β_i), value_i = B ((Θ_V G_i) ∘ e(x_i))."""
    head = AttentionHead(
        query=f64([1.0, 2.0, -1.0]),
        key=f64([[1.0, 0.0], [0.0, 3.0], [1.0, 1.0]]),
        position=f64([[0.0, 0.0, 0.0], [5.0, 0.0, 1.0]]),
        value=f64([[1.0, 2.0], [4.0, 0.0]]),
        mix=f64([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]),
        embedding=f64([[1.0, 10.0], [2.0, 20.0], [0.5, 0.0]]),
        hard=True,
    )
    probs = f64([[[0.25, 0.75], [0.5, 0.5]]])
    # Θ_K G: (¼, 9/4, 1) and (½, 3/2, 1); with q: ¼ + 4½ - 1 = 3¾ and ½ + 3 - 1 = 2½, plus 5 - 1.
    torch.testing.assert_close(head.scores(probs), f64([[3.75, 6.5]]))
    # Θ_V G: (7/4, 1) and (3/2, 2); with token 1 at the second place: (3, 40).
    values = head.values(probs, torch.tensor([[2, 1]]))
    torch.testing.assert_close(values[0, 0], f64([0.875, 0.0, 0.875]))
    torch.testing.assert_close(values[0, 1], f64([3.0, 40.0, -37.0]))
    torch.testing.assert_close(head(probs, torch.tensor([[2, 1]])), f64([[3.0, 40.0, -37.0]]))


def test_soft_attention_becomes_hard_as_the_query_grows():
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand((20, 5, 4), generator=generator, dtype=torch.float64).softmax(-1)
    symbols = torch.randint(5, (20, 5), generator=generator)
    soft = AttentionHead.random(4, 5, seed=1, dtype=torch.float64)
    hard = AttentionHead.random(4, 5, seed=1, dtype=torch.float64)
    hard.hard = True
    gaps = []
    with torch.no_grad():
        wanted = hard(probs, symbols)
        for _ in range(6):
            gaps.append(float((soft(probs, symbols) - wanted).abs().max()))
            soft.query.mul_(10)
    assert gaps[0] > 0.01
    assert gaps[-1] < 1e-9


def test_ties_share_the_attention():
    even = worked(hard=True, query=(1.0, 1.0))
    torch.testing.assert_close(even.attention(PROBS), f64([[0.5, 0.5]]))
    torch.testing.assert_close(even(PROBS, SYMBOLS), f64([[2.5]]))
    near = worked(hard=True, query=(1.0, 1.0 - 1e-10))
    torch.testing.assert_close(near.attention(PROBS), f64([[0.5, 0.5]]))
    strict = worked(hard=True, query=(1.0, 1.0 - 1e-10), tie=1e-12)
    torch.testing.assert_close(strict.attention(PROBS), f64([[1.0, 0.0]]))


def test_shapes_and_sums():
    head = AttentionHead.random(4, 7, classes=3, seed=0)
    probs = torch.full((2, 5, 4), 0.25)
    symbols = torch.full((2, 5), 4)
    assert head.length == 7
    assert head(probs, symbols).shape == (2, 3)
    torch.testing.assert_close(head.attention(probs).sum(-1), torch.ones(2))
    head(probs, symbols).sum().backward()
    moved = dict(head.named_parameters())
    assert all(moved[name].grad is not None for name in ("query", "position", "value", "mix"))
    again = AttentionHead.random(4, 7, classes=3, seed=0)
    torch.testing.assert_close(again(probs, symbols), head(probs, symbols))


def test_nan_is_not_hidden_by_hard_attention():
    assert worked(hard=True)(PROBS * float("nan"), SYMBOLS).isnan().all()


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("name", "shape"),
    [("key", (3, 2)), ("position", (3, 1)), ("value", (2, 3)), ("mix", (1, 3))],
)
def test_a_wrong_shape_is_named(name, shape):
    parts = {
        "query": f64([1.0, 0.0]),
        "key": torch.eye(2).double(),
        "position": torch.zeros(3, 2).double(),
        "value": torch.eye(2).double(),
        "mix": f64([[2.0, 3.0]]),
        "embedding": torch.ones(3, 2).double(),
    }
    parts[name] = torch.zeros(shape).double()
    with pytest.raises(ValueError, match=f"{name} has shape"):
        AttentionHead(**parts, hard=True)


def test_the_embedding_has_a_row_for_no_token():
    with refused("embedding"):
        AttentionHead(
            query=f64([1.0, 0.0]),
            key=torch.eye(2).double(),
            position=torch.zeros(3, 2).double(),
            value=torch.eye(2).double(),
            mix=f64([[2.0, 3.0]]),
            embedding=torch.ones(2, 2).double(),
            hard=True,
        )


def test_too_many_positions_are_refused():
    with pytest.raises(ValueError, match="the input has 4 positions; this head knows 3"):
        worked(hard=True).scores(torch.full((1, 4, 2), 0.5).double())


@pytest.mark.parametrize("hard", [False, True])
def test_forward_is_the_weighted_mean_of_the_values(hard):
    """Rows are added up by symbol; here position by position, for every row of a batch."""
    head = AttentionHead.random(4, 6, keys=3, values=5, classes=3, seed=1, dtype=torch.float64)
    head.hard = hard
    generator = torch.Generator().manual_seed(2)
    probs = torch.rand(7, 6, 4, generator=generator, dtype=torch.float64).softmax(-1)
    symbols = torch.randint(0, 5, (7, 6), generator=generator)
    with torch.no_grad():
        head.position.normal_(generator=generator)
    scores = ((probs @ head.key.T + head.position) @ head.query).detach()
    torch.testing.assert_close(head.scores(probs), scores)
    values = ((probs @ head.value.T) * head.embedding[symbols]) @ head.mix.T
    torch.testing.assert_close(head.values(probs, symbols), values)
    mean = torch.einsum("bt,btc->bc", head.attention(probs), values)
    torch.testing.assert_close(head(probs, symbols), mean)
    ours, theirs = (
        (
            torch.autograd.grad(found.square().sum(), list(head.parameters()), retain_graph=True)
            for found in (head(probs, symbols), mean)
        )
        if not hard
        else ((), ())
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
