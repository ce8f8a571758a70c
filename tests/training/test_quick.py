"""A quick recipe: logits where they are scored, data drawn ahead, a fused optimiser."""

import math
from itertools import product

import pytest
import torch
from tests.support.grids import pairs
from tests.support.refusals import refused
from torch import nn

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.bags import BagLM, UniformBagLM
from triptych.models.language_models import MaskedLM, ScoredLogits, in_precision
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.training import loop
from triptych.training.classifier import train_classifier
from triptych.training.loop import AHEAD, AnswersScored, fit, loss_of_answers, predictions
from triptych.training.objectives import (
    LossName,
    Prediction,
    loss,
    masked,
    places_needed,
    scored_loss,
    scored_places,
)
from triptych.training.step import Descent, Recipe

TRUTH = HMM.random_permutation_mixture(3, 4, 6, seed=1)


def masked_lm(seed: int = 0, **more) -> MaskedLM:
    sizes = {"width": 8, "heads": 2, "layers": 2, "causal": False} | more
    return MaskedLM(Transformer(Shape(5, 6, **sizes), seed=seed, init_scale=0.5))


def gradients(value: torch.Tensor, net: nn.Module) -> list[torch.Tensor]:
    parameters = [p for p in net.parameters() if p.requires_grad]
    found = torch.autograd.grad(value, parameters, allow_unused=True)
    pairs = zip(parameters, found, strict=True)
    return [torch.zeros_like(p) if gradient is None else gradient for p, gradient in pairs]


def assert_same_loss(model, prediction: Prediction, name: LossName) -> None:
    """The loss and its gradient, from all logits and from the scored ones."""
    whole = loss(model.token_logits(prediction.seen), prediction, name)
    logits = model.scored_logits(prediction.seen, prediction.scored)
    scored = scored_loss(logits, prediction, name)
    assert scored.item() == pytest.approx(whole.item(), rel=1e-5)
    ours, theirs = gradients(scored, model.net), gradients(whole, model.net)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


SHAPES = [{}, {"norm": "post"}, {"positions": "rotary"}, {"layers": 1}]
LOSSES = list(product(["cross_entropy", "squared"], [False, True]))


@pytest.mark.parametrize(("shape", "measured"), pairs(SHAPES, LOSSES))
def test_placed_logits_give_the_same_loss_and_gradient(
    shape: dict, measured: tuple[LossName, bool]
) -> None:
    """What a recorded step computes on a GPU: logits at as many positions of every row."""
    name, exact = measured
    objective = masked(words=4, p_m=0.3, truth=TRUTH if exact else None)
    prediction, model = objective(TRUTH.sample(9, 0), TorchRng(1)), masked_lm(**shape)
    recipe = Recipe(steps=1, loss=name)
    whole = loss_of_answers(model, prediction, recipe)
    placed = loss_of_answers(model, prediction, recipe, most=int(prediction.scored.sum(1).max()))
    assert placed.item() == pytest.approx(whole.item(), rel=1e-5)
    ours, theirs = gradients(placed, model.net), gradients(whole, model.net)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    few = loss_of_answers(model, prediction, recipe, most=1)
    assert few.isnan()  # a scored position is missing: no number, and never a wrong one


@pytest.mark.parametrize("causal", [True, False])
def test_logits_at_places(causal: bool) -> None:
    net = masked_lm().net if not causal else Transformer(Shape(5, 6, width=8), seed=0)
    tokens = torch.randint(4, (3, 6), generator=torch.Generator().manual_seed(0))
    at = torch.tensor([[0, 5], [3, 3], [2, 1]])
    whole = net(tokens)
    wanted = torch.stack([whole[row][places] for row, places in enumerate(at)])
    torch.testing.assert_close(net.logits_at(tokens, at), wanted)


def test_places_by_hand() -> None:
    scored = torch.tensor([[False, True, False, True], [True, False, False, False]])
    assert scored_places(scored, 3).tolist() == [[1, 3, 0], [0, 1, 2]]
    assert places_needed(torch.ones(2, 7, dtype=torch.bool)) == 7
    rows = torch.arange(512) < torch.tensor([24, 26])[:, None]
    assert places_needed(rows) == 80  # 25 + 8 · 5 + 8 = 73
    assert places_needed(rows[:, :30]) == 30  # no more than there are


@pytest.mark.parametrize(("shape", "measured"), pairs(SHAPES, LOSSES))
def test_scored_logits_give_the_same_loss_and_gradient(
    shape: dict, measured: tuple[LossName, bool]
) -> None:
    name, exact = measured
    objective = masked(words=4, p_m=0.3, truth=TRUTH if exact else None)
    prediction = objective(TRUTH.sample(9, 0), TorchRng(1))
    assert_same_loss(masked_lm(**shape), prediction, name)


@pytest.mark.parametrize("kind", [BagLM, UniformBagLM])
@pytest.mark.parametrize("name", ["cross_entropy", "squared"])
def test_scored_logits_of_bags(kind, name: LossName) -> None:
    shape = Shape(
        5, 8, width=5, layers=1, heads=1, feedforward=0, causal=False, positions="none",
        embedding="one_hot", residual=False, norm="none", output_projection=False,
    )  # fmt: skip
    net = Transformer(shape, seed=2, init_scale=0.5)
    if kind is UniformBagLM:
        for part in ("query", "key"):
            net.set_matrix(f"blocks.0.attention.{part}.weight", torch.zeros(5, 5))
    # documents of up to 4 tokens, then three questions each, -1 where there is none
    seen = torch.tensor([[0, 1, 4, 4, 4, 4, 1], [2, 4, -1, -1, 4, -1, -1]])
    scored = torch.tensor([[True, True, True], [True, False, False]])
    tokens = torch.tensor([[1, 3, 1], [2, 0, 0]])
    assert_same_loss(kind(net, 4), Prediction(seen, tokens, scored, None), name)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("causal", [False, True])
def test_logits_where_chosen(causal: bool, positions: str) -> None:
    shape = Shape(5, 6, width=8, heads=2, causal=causal, positions=positions)  # pyright: ignore[reportArgumentType]
    net = Transformer(shape, seed=3, init_scale=0.5)
    tokens = TRUTH.sample(4, 0)
    chosen = torch.tensor([[1, 0, 1, 0, 0, 1], [0] * 6, [1] * 6, [0, 0, 0, 0, 1, 0]]).bool()
    torch.testing.assert_close(net.logits_where(tokens, chosen), net(tokens)[chosen])


def test_scored_loss_by_hand() -> None:
    """Two positions share the answer (0, log 3), a law (¼, ¾): -log ¼ and -log ¾, their mean.

    Squared, on the answer (0, 1): 2 for the token 0 and 0 for the token 1, their mean is 1.
    """
    tokens = torch.tensor([[0, 1, 1]])
    prediction = Prediction(tokens, tokens, torch.tensor([[True, True, False]]), None)
    place = torch.tensor([0, 0])
    logits = ScoredLogits(torch.tensor([[0.0, math.log(3)]]), place)
    expected = -(math.log(0.25) + math.log(0.75)) / 2
    assert scored_loss(logits, prediction).item() == pytest.approx(expected)
    logits = ScoredLogits(torch.tensor([[0.0, 1.0]]), place)
    assert scored_loss(logits, prediction, "squared").item() == pytest.approx(1.0)


def test_a_step_that_scores_nothing_has_loss_zero() -> None:
    tokens = TRUTH.sample(3, 0)
    prediction = Prediction(tokens, tokens, torch.zeros_like(tokens, dtype=torch.bool), None)
    model = masked_lm()
    logits = model.scored_logits(tokens, prediction.scored)
    assert scored_loss(logits, prediction).item() == 0.0


def test_quick_training_ends_where_plain_training_does() -> None:
    """On the same rows in the same order, hidden where the tokens before say, to rounding."""
    rows = TRUTH.sample(2 * AHEAD * 4, 3)

    def trained(quick: bool) -> tuple[list[float], list[torch.Tensor]]:
        model, taken = masked_lm(), 0

        def sample(n: int, rng: TorchRng) -> torch.Tensor:
            nonlocal taken
            taken += n
            return rows[taken - n : taken]

        def hide_after_zero(tokens: torch.Tensor, rng) -> Prediction:
            scored = tokens.roll(1, 1) == 0
            return Prediction(tokens.masked_fill(scored, 4), tokens, scored, None)

        # not Adam, which makes large steps of a gradient that is 0 but for rounding
        how = {"optimiser": "sgd", "learning_rate": 0.1, "clip": 1.0}
        recipe = Recipe(steps=AHEAD + 4, batch=4, quick=quick, **how)
        history = fit(model, sample, hide_after_zero, recipe, TorchRng(0))
        return history.losses, [p.detach() for p in model.net.parameters()]

    (losses, weights), (quick_losses, quick_weights) = trained(False), trained(True)
    assert quick_losses == pytest.approx(losses, rel=1e-3)
    for one, other in zip(weights, quick_weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_quick_data_is_drawn_ahead_and_all_of_it_is_used() -> None:
    drawn: list[int] = []
    batches: list[torch.Tensor] = []

    def sample(n: int, rng: TorchRng) -> torch.Tensor:
        drawn.append(n)
        return torch.arange(n)[:, None].expand(-1, 6) % 4

    class Watching(MaskedLM):
        def scored_logits(self, seen, scored):
            batches.append(seen)
            return super().scored_logits(seen, scored)

    def show_all(tokens: torch.Tensor, rng) -> Prediction:
        return Prediction(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool), None)

    model = Watching(masked_lm().net)
    assert isinstance(model, AnswersScored)
    fit(model, sample, show_all, Recipe(steps=AHEAD + 1, batch=3, quick=True), TorchRng(0))
    assert drawn == [3 * AHEAD, 3 * AHEAD]
    first = torch.cat(batches[:AHEAD])[:, 0]
    torch.testing.assert_close(first, torch.arange(3 * AHEAD) % 4)
    assert len(batches) == AHEAD + 1


def test_quick_optimiser_makes_the_same_steps_to_rounding() -> None:
    ends = []
    for quick in (False, True):
        parameter = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        descent = Descent(Recipe(steps=20, weight_decay=0.1, quick=quick), [parameter])
        assert bool(descent.optimiser.param_groups[0]["fused"]) == quick
        for step in range(20):
            descent.step(step, parameter.pow(4).sum())
        ends.append(parameter.detach())
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-5, atol=1e-6)


def test_a_quick_recipe_refuses_a_checkpoint(tmp_path) -> None:
    recipe = Recipe(steps=2, batch=2, quick=True)
    objective = masked(words=4, p_m=0.3)
    with pytest.raises(UserError, match="checkpoint"):
        fit(masked_lm(), TRUTH.sample, objective, recipe, TorchRng(0), checkpoint=tmp_path / "run")


# ------------------------------------------------------------------ recorded steps


def recorded_pair(device="cpu", **more):
    """The same network trained with and without recorded steps: weights and losses."""
    found = []
    for recorded in (True, False):
        net = Transformer(Shape(vocab_size=5, length=6, width=8, causal=False), seed=0)
        lm = MaskedLM(net.to(device))
        truth = HMM.random(states=3, vocab_size=4, length=6, seed=0).to(device)
        recipe = Recipe(steps=20, batch=4, clip=1.0, recorded=recorded, **more)
        history = fit(
            lm, truth.sample, masked(words=4, p_m=0.5, truth=truth), recipe, TorchRng(0, device)
        )
        found.append((history.losses, [p.detach().cpu() for p in lm.net.parameters()]))
    return found


def test_recorded_steps_change_nothing_on_a_cpu():
    (own, weights), (plain, others) = recorded_pair(quick=False)
    assert own == plain
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


@pytest.mark.cuda
def test_recorded_steps_are_the_same_to_rounding_on_a_gpu():
    (own, _), (plain, _) = recorded_pair("cuda")
    assert own == pytest.approx(plain, rel=1e-3)


def test_a_copy_in_another_precision_moves_the_network(monkeypatch):
    """The gradients of a float64 copy are those of the network, so it goes the same way.

    On a GPU the copy is bfloat16, which not every CPU can multiply.
    """
    (plain, expected), _ = recorded_pair(quick=False)
    monkeypatch.setattr(loop, "half_copy", lambda model, _: in_precision(model, torch.float64))
    (own, weights), _ = recorded_pair(quick=False)
    assert own == pytest.approx(plain, abs=1e-4)
    for found, wanted in zip(weights, expected, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted, atol=2e-4, rtol=0)


def test_the_copy_is_apart_from_the_network():
    lm = MaskedLM(Transformer(Shape(vocab_size=5, length=6, width=8, causal=False), seed=0))
    copied = in_precision(lm, torch.float64)
    tokens = TRUTH.sample(3, 1)
    torch.testing.assert_close(
        copied.token_logits(tokens), lm.token_logits(tokens).double(), atol=1e-6, rtol=0
    )
    with torch.no_grad():
        copied.net.output.bias.fill_(7.0)
    assert float(lm.net.output.bias.detach().abs().max()) == 0


def test_half_copies_are_for_recorded_steps_on_a_gpu():
    lm = MaskedLM(Transformer(Shape(vocab_size=5, length=6, width=8, causal=False), seed=0))
    for recipe in (
        Recipe(steps=1, autocast="bfloat16", recorded=True),  # on a CPU
        Recipe(steps=1, recorded=True),
        Recipe(steps=1, autocast="bfloat16"),
    ):
        assert loop.half_copy(lm, recipe) is None


def test_a_recorded_recipe_takes_no_checkpoint(tmp_path):
    lm = MaskedLM(Transformer(Shape(vocab_size=5, length=6, width=8, causal=False), seed=0))
    truth = HMM.random(states=3, vocab_size=4, length=6, seed=0)
    recipe = Recipe(steps=2, batch=4, recorded=True)
    with pytest.raises(UserError, match="recorded recipe"):
        fit(lm, truth.sample, masked(words=4, p_m=0.5), recipe, 0, checkpoint=tmp_path / "kept")


def test_recorded_classifiers_see_the_same_examples():
    """Seven examples in batches of three: two batches an epoch, the same with both."""
    seen = {True: [], False: []}
    for recorded, rows_seen in seen.items():
        weight = torch.nn.Parameter(torch.zeros(2))

        def scores(rows, weight=weight, rows_seen=rows_seen):
            rows_seen.append(rows.tolist())
            return weight.expand(len(rows), 2)

        recipe = Recipe(steps=5, batch=3, recorded=recorded)
        labels = torch.tensor([0, 1, 0, 1, 1, 0, 1])
        losses = train_classifier(scores, labels, [weight], recipe, TorchRng(3))
        assert len(losses) == 5
    assert seen[True] == seen[False]
    first, second = seen[True][:2]
    assert len({*first, *second}) == 6


def test_an_objective_with_more_rows_is_one_step():
    """Two rows for every sequence, as of two stages, are one step; they are not drawn ahead."""

    def twice(tokens, rng):
        once = masked(words=4, p_m=0.5)(tokens, rng)
        return Prediction(*(torch.cat([part, part]) for part in once[:3]), None)

    first = next(predictions(TRUTH.sample, twice, 3, TorchRng(0), ahead=1))
    assert first.seen.shape == (6, 6)
    with refused("objective"):
        next(predictions(TRUTH.sample, twice, 3, TorchRng(0), ahead=16))
