"""Objectives against enumeration, the loop against itself, ensembles against one by one."""

import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from tests.support.refusals import refused

from triptych.core.enumeration import exact_law
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.parse import minimal_first_layer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.training.corpus import Corpus
from triptych.training.ensembles import Contrast, fit_ensemble
from triptych.training.gap import Gap, measure
from triptych.training.loop import History, fit, gap_meter
from triptych.training.objectives import (
    Prediction,
    RowByRow,
    loss,
    masked,
    member_losses,
    next_token,
    positions,
)
from triptych.training.step import Recipe

TRUTH = HMM.random(3, 3, 5, seed=0)


def causal(seed=0, dtype=torch.float32, **options):
    shape = Shape(vocab_size=4, length=6, width=16, layers=1, heads=2, causal=True, **options)
    return CausalLM(Transformer(shape, seed=seed, dtype=dtype))


def bidirectional(seed=0, dtype=torch.float32):
    shape = Shape(vocab_size=4, length=6, width=16, layers=1, heads=2, causal=False)
    return MaskedLM(Transformer(shape, seed=seed, dtype=dtype))


# ------------------------------------------------------------------ objectives


def test_worked_losses():
    """Two tokens, logits (log 3, 0): p = (¾, ¼). Token 0: -log ¾; exact law (½, ½):
    -½ log ¾ - ½ log ¼; squared on token 0: (log 3 - 1)² + 0."""
    logits = torch.tensor([[[math.log(3), 0.0]]], dtype=torch.float64)
    token = torch.zeros((1, 1), dtype=torch.long)
    everywhere = torch.ones((1, 1), dtype=torch.bool)
    sampled = Prediction(token, token, everywhere, None)
    half = torch.full((1, 1, 2), 0.5, dtype=torch.float64).log()
    exact = Prediction(token, token, everywhere, half)
    assert loss(logits, sampled).item() == pytest.approx(-math.log(0.75))
    assert loss(logits, exact).item() == pytest.approx(-0.5 * math.log(0.75 * 0.25))
    assert loss(logits, sampled, "squared").item() == pytest.approx((math.log(3) - 1) ** 2)


@pytest.mark.parametrize("name", ["cross_entropy", "squared"])
def test_exact_targets_are_the_expected_loss(name):
    """E over the token of the sampled loss = the loss with the exact law as target."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((1, 1, 3), generator=generator, dtype=torch.float64)
    law = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    where = torch.ones((1, 1), dtype=torch.bool)
    expected = sum(
        p * loss(logits, Prediction(t, t, where, None), name).item()
        for k, p in enumerate(law.tolist())
        for t in [torch.tensor([[k]])]
    )
    token = torch.zeros((1, 1), dtype=torch.long)
    exact = loss(logits, Prediction(token, token, where, law.log()[None, None]), name)
    assert exact.item() == pytest.approx(expected)


def test_next_token_targets_are_the_exact_conditionals():
    tokens = TRUTH.sample(4, TorchRng(0))
    prediction = next_token(TRUTH)(tokens, TorchRng(0))
    table = Table.of(TRUTH)
    for t in range(5):
        torch.testing.assert_close(prediction.law[:, t], table.next_token_log_probs(tokens[:, :t]))
    assert prediction.scored.all()
    assert next_token()(tokens, TorchRng(0)).law is None


def test_masked_targets_are_given_the_mask():
    tokens = TRUTH.sample(50, TorchRng(0))
    prediction = masked(words=3, p_m=0.3, truth=TRUTH)(tokens, TorchRng(1))
    assert ((prediction.seen == 3) == prediction.scored).all()
    wanted = Table.of(TRUTH).masked_log_probs(tokens, prediction.scored)
    torch.testing.assert_close(prediction.law, wanted)
    with pytest.raises(ValueError, match="exact targets need p_c = p_r = 0"):
        masked(words=3, p_m=0.3, p_c=0.1, truth=TRUTH)


def test_masks_are_redrawn():
    tokens, rng = TRUTH.sample(50, TorchRng(0)), TorchRng(1)
    objective = masked(words=3, p_m=0.5)
    assert not torch.equal(objective(tokens, rng).scored, objective(tokens, rng).scored)


def test_k_positions_by_enumeration():
    """k = 2 of 3 positions: each of the three pairs with probability 1/3."""
    tokens = torch.zeros((1, 3), dtype=torch.long)
    law = exact_law(lambda rng: tuple(positions(2, words=3)(tokens, rng).scored[0].tolist()))
    assert law.probs == pytest.approx(
        {(True, True, False): 1 / 3, (True, False, True): 1 / 3, (False, True, True): 1 / 3}
    )
    with refused("k"):
        positions(4, words=3)(tokens, TorchRng(0))


# ------------------------------------------------------------------ the gap


def test_the_truth_has_no_gap():
    """Logits that are the exact log-probabilities: KL 0 and loss = entropy."""
    tokens = TRUTH.sample(64, TorchRng(0))

    def exact_logits(seen):
        return TRUTH.every_next_token_log_probs(seen)

    gap = measure(exact_logits, next_token(TRUTH), tokens, TorchRng(0))
    assert gap.kl == pytest.approx(0.0, abs=1e-12)
    assert gap.loss == pytest.approx(gap.bayes_loss)


def test_the_gap_of_a_uniform_guess():
    """KL(p ‖ uniform) = log V - H(p)."""
    tokens = TRUTH.sample(64, TorchRng(0))
    gap = measure(
        lambda seen: torch.zeros((*seen.shape, 3)), next_token(TRUTH), tokens, TorchRng(0)
    )
    assert gap.loss == pytest.approx(math.log(3))
    assert gap.kl == pytest.approx(math.log(3) - gap.bayes_loss)
    with pytest.raises(ValueError, match="exact targets"):
        measure(lambda seen: torch.zeros((*seen.shape, 3)), next_token(), tokens, TorchRng(0))


# ------------------------------------------------------------------ the loop


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_training_brings_the_network_to_the_truth(kind, exact):
    model = causal() if kind == "causal" else bidirectional()
    target = TRUTH if exact else None

    def objective(truth):
        if kind == "causal":
            return next_token(truth)
        return masked(words=3, p_m=0.3, truth=truth)

    meter = gap_meter(objective(TRUTH), TRUTH.sample(500, TorchRng(9)))
    before = meter(model).kl
    recipe = Recipe(steps=60, batch=64, learning_rate=1e-2, decay="cosine", warmup=5, clip=1.0)
    history = fit(model, TRUTH.sample, objective(target), recipe, TorchRng(0), meter=meter)
    assert len(history.losses) == 60
    assert history.gaps[-1][0] == 60
    assert history.gaps[-1][1].kl < 0.3 * before


@pytest.mark.parametrize("optimiser", ["adamw", "adam", "sgd", "adafactor"])
def test_an_interrupted_run_ends_bitwise_the_same(optimiser, tmp_path):
    recipe = Recipe(
        steps=12,
        batch=8,
        optimiser=optimiser,
        momentum=0.9 if optimiser == "sgd" else 0.0,
        warmup=3,
        decay="linear",
        ema=0.9,
        clip=1.0,
        weight_decay=0.01,
        meter_every=4,
    )
    meter = gap_meter(next_token(TRUTH), TRUTH.sample(20, TorchRng(5)))

    def train(folder, **options):
        model = causal(seed=3)
        history = fit(
            model,
            TRUTH.sample,
            next_token(),
            recipe,
            TorchRng(1),
            meter=meter,
            checkpoint=folder,
            **options,
        )
        return model, history

    whole, history = train(tmp_path / "whole")
    train(tmp_path / "parts", stop_after=5)
    train(tmp_path / "parts", stop_after=6)
    resumed, again = train(tmp_path / "parts")
    assert history.losses == again.losses
    assert history.gaps == again.gaps
    for a, b in zip(whole.net.parameters(), resumed.net.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not list(tmp_path.rglob("*.pt")) + list(tmp_path.rglob("*.pkl"))
    with refused("folder"):
        fit(
            causal(seed=3),
            TRUTH.sample,
            next_token(),
            Recipe(**{**recipe.__dict__, "learning_rate": 0.5}),
            TorchRng(1),
            checkpoint=tmp_path / "parts",
        )


@pytest.mark.slow
def test_a_minimal_first_layer_learns_brackets():
    """One layer that is told type and depth learns Dyck prefixes [li, 2.2]."""
    dyck = Dyck.prefixes(types=2, max_depth=2, length=8, q=0.5)
    shape = Shape(5, 9, width=18, layers=1, heads=1, embedding="given", positions="none")
    lm = CausalLM(
        Transformer(shape, seed=0), first_layer=lambda ids: minimal_first_layer(ids, 2, 2)
    )
    meter = gap_meter(next_token(dyck), dyck.sample(200, TorchRng(1)))
    before = meter(lm).kl
    recipe = Recipe(steps=150, batch=64, learning_rate=1e-2)
    fit(lm, dyck.sample, next_token(dyck), recipe, TorchRng(0))
    assert meter(lm).kl < 0.2 * before
    with pytest.raises(ValueError, match="pass a first_layer"):
        CausalLM(Transformer(shape, seed=0))


def test_the_schedule_by_hand():
    recipe = Recipe(steps=10, warmup=4, decay="linear")
    assert [recipe.rate_at(s) for s in (0, 3, 4, 7)] == pytest.approx([0.25, 1.0, 1.0, 0.5])
    assert Recipe(steps=10, decay="cosine").rate_at(5) == pytest.approx(0.5)


def test_the_average_of_the_weights_by_hand():
    """ema = ½ over two steps: mean = ¼ w0 + ¼ w1 + ½ w2."""
    seen = []
    model = causal(seed=0)
    start = [p.detach().clone() for p in model.net.parameters()]

    def report(step, value, gap):
        seen.append([p.detach().clone() for p in model.net.parameters()])

    recipe = Recipe(steps=2, batch=4, ema=0.5, learning_rate=0.1)
    fit(model, TRUTH.sample, next_token(), recipe, TorchRng(0), report=report)
    for p, w0, w1, w2 in zip(model.net.parameters(), start, *seen, strict=True):
        torch.testing.assert_close(p.detach(), 0.25 * w0 + 0.25 * w1 + 0.5 * w2)


def test_the_last_gap_is_that_of_the_network_returned():
    model = causal(seed=0)
    meter = gap_meter(next_token(TRUTH), TRUTH.sample(50, TorchRng(3)))
    recipe = Recipe(steps=20, batch=16, ema=0.9, learning_rate=0.01)
    history = fit(model, TRUTH.sample, next_token(), recipe, TorchRng(0), meter=meter)
    assert history.gaps[-1][1].kl == pytest.approx(meter(model).kl, rel=1e-6)


def test_l2_has_a_gradient():
    """One SGD step of size η with λ: w ← w - η (∇L + 2 λ w)."""
    plain, decayed = causal(seed=1), causal(seed=1)
    recipe = {"steps": 1, "batch": 4, "optimiser": "sgd", "learning_rate": 0.1}
    before = [p.detach().clone() for p in plain.net.parameters()]
    fit(plain, TRUTH.sample, next_token(), Recipe(**recipe), TorchRng(0))
    fit(decayed, TRUTH.sample, next_token(), Recipe(**recipe, l2=0.5), TorchRng(0))
    for w, a, b in zip(before, plain.net.parameters(), decayed.net.parameters(), strict=True):
        torch.testing.assert_close(b.detach(), a.detach() - 0.1 * 2 * 0.5 * w)


def test_bfloat16_on_a_cpu_is_refused():
    recipe = Recipe(steps=1, autocast="bfloat16")
    with pytest.raises(ValueError, match="is for a GPU"):
        fit(causal(), TRUTH.sample, next_token(), recipe, TorchRng(0))


@pytest.mark.cuda
def test_bfloat16_trains_on_a_gpu():
    shape = Shape(vocab_size=4, length=6, width=16, layers=1, heads=2, causal=True)
    model = CausalLM(Transformer(shape, seed=0, device="cuda"))
    recipe = Recipe(steps=30, autocast="bfloat16")
    history = fit(model, TRUTH.to("cuda").sample, next_token(), recipe, TorchRng(0, "cuda"))
    assert history.losses[-1] < history.losses[0]


COMPILED = """
import torch
from triptych.core.randomness import TorchRng
from triptych.models.language_models import CausalLM
from triptych.models.transformer import Shape, Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.training.loop import fit
from triptych.training.step import Recipe
from triptych.training.objectives import next_token

torch.set_num_threads(1)
truth, losses = HMM.random(3, 3, 5, seed=0), []
for compiled in (False, True):
    lm = CausalLM(Transformer(Shape(4, 6, width=16, layers=1), seed=0))
    recipe = Recipe(steps=5, batch=8, compile=compiled)
    losses.append(fit(lm, truth.sample, next_token(), recipe, TorchRng(0)).losses)
assert max(abs(a - b) for a, b in zip(*losses)) < 1e-4, losses
"""


@pytest.mark.slow
def test_a_compiled_network_trains_as_an_eager_one():
    """In a process of its own: run-time shape checks and the compiler do not go together. On a
    CPU the compiler needs a C++ compiler."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_loss_that_explodes_is_explained():
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        fit(
            causal(),
            TRUTH.sample,
            next_token(),
            Recipe(steps=60, optimiser="sgd", learning_rate=1e9),
            TorchRng(0),
        )


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("steps", 0, "steps is 0"),
        ("learning_rate", -1.0, "learning_rate is -1.0; it must be above 0"),
        ("ema", 1.0, "ema is 1.0"),
    ],
)
def test_bad_recipes_are_explained(field, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        Recipe(**{"steps": 5, field: value})
    with pytest.raises(TypeError, match="learning_rat"):
        Recipe(steps=5, learning_rat=1.0)


# ------------------------------------------------------------------ ensembles


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_an_ensemble_is_its_members_one_by_one(optimiser):
    recipe = Recipe(
        steps=8,
        batch=8,
        optimiser=optimiser,
        learning_rate=0.01,
        warmup=2,
        clip=0.1,
        l2=1e-3,
        weight_decay=0.01,
    )
    # Without biases: a key bias has gradient 0, and Adam would blow its rounding error up.
    together = [causal(seed, dtype=torch.float64, bias=False) for seed in range(3)]
    apart = [causal(seed, dtype=torch.float64, bias=False) for seed in range(3)]
    histories = fit_ensemble(
        together, TRUTH.sample, next_token(), recipe, [TorchRng(s) for s in range(3)]
    )
    for seed, model in enumerate(apart):
        history = fit(model, TRUTH.sample, next_token(), recipe, TorchRng(seed))
        assert histories[seed].losses == pytest.approx(history.losses, rel=1e-6)
        for a, b in zip(together[seed].net.parameters(), model.net.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-5)


def test_members_draw_from_a_corpus_what_each_would_alone():
    corpus = Corpus(torch.arange(60).reshape(20, 3))
    together = corpus.sample_each(4, [TorchRng(5), TorchRng(6)])
    assert together.tolist() == [corpus.sample(4, TorchRng(seed)).tolist() for seed in (5, 6)]


@pytest.mark.parametrize("name", ["cross_entropy", "squared"])
@pytest.mark.parametrize("truth", [None, TRUTH])
def test_losses_of_members_are_their_own(name, truth):
    """Bit for bit, with another number of scored positions for each, and none for the last."""
    tokens = TRUTH.sample(6, TorchRng(0))
    logits = torch.randn((3, 2, 5, 3), generator=torch.Generator().manual_seed(0))
    every = next_token(truth)(tokens, TorchRng(0))
    scored = torch.arange(30).reshape(6, 5) % 4 < torch.tensor([1, 1, 3, 3, 0, 0])[:, None]
    every = every._replace(scored=scored)
    found = member_losses(logits, every, name)
    for member in range(3):
        own = slice(2 * member, 2 * member + 2)
        parts = [None if part is None else part[own] for part in every]
        assert found[member] == loss(logits[member], Prediction(*parts), name)
    assert found[2] == 0


def test_an_ensemble_on_a_corpus_is_its_members_one_by_one():
    """All draws at once, member by member, and by `fit`: the same weights."""
    recipe = Recipe(steps=6, batch=8, learning_rate=0.01)
    corpus = Corpus.draw(TRUTH, 30, TorchRng(1), chunk=5)
    nets = [[causal(seed, dtype=torch.float64, bias=False) for seed in range(3)] for _ in range(3)]
    assert isinstance(next_token(), RowByRow)
    fit_ensemble(nets[0], corpus, next_token(), recipe, [0, 1, 2])
    fit_ensemble(nets[1], corpus, lambda x, rng: next_token()(x, rng), recipe, [0, 1, 2])
    for seed, model in enumerate(nets[2]):
        fit(model, corpus.sample, next_token(), recipe, seed)
        for a, b, c in zip(*(models[seed].net.parameters() for models in nets), strict=True):
            assert torch.equal(a, b)
            torch.testing.assert_close(a, c, atol=1e-7, rtol=1e-5)


def test_a_contrast_is_part_of_the_loss():
    """The first loss of a member by hand: cross-entropy + 0.5 · mean (T(p ⊕ s) - T(s))²."""
    recipe, before = Recipe(steps=1, batch=4), torch.tensor([1])
    model = causal(dtype=torch.float64)
    tokens = TRUTH.sample(4, TorchRng(3))
    longer = torch.cat([before.expand(4, 1), tokens], 1)
    logits = model.token_logits(tokens).detach()
    apart = (model.token_logits(longer)[:, 1:] - logits).square().mean()
    wanted = loss(logits, next_token()(tokens, TorchRng(0))) + 0.5 * apart
    contrast = Contrast(lambda step: before, 0.5)
    (history,) = fit_ensemble(
        [model], TRUTH.sample, next_token(), recipe, [TorchRng(3)], contrast=contrast
    )
    assert history.losses == [pytest.approx(wanted.item())]
    assert apart > 1e-6


def test_an_ensemble_with_a_contrast_is_its_members_one_by_one():
    recipe = Recipe(steps=5, batch=8, learning_rate=0.01)
    contrast = Contrast(lambda step: torch.tensor([step % 3]), 0.5)
    together, apart = (
        [causal(seed, dtype=torch.float64, bias=False) for seed in range(2)] for _ in range(2)
    )
    fit_ensemble(together, TRUTH.sample, next_token(), recipe, [0, 1], contrast=contrast)
    for seed, model in enumerate(apart):
        fit_ensemble([model], TRUTH.sample, next_token(), recipe, [seed], contrast=contrast)
        for a, b in zip(together[seed].net.parameters(), model.net.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-5)


def test_bad_ensembles_are_explained():
    with pytest.raises(ValueError, match="2 models and 1 rngs"):
        fit_ensemble(
            [causal(), causal()], TRUTH.sample, next_token(), Recipe(steps=1), [TorchRng(0)]
        )
    with pytest.raises(ValueError, match="adamw, adam or sgd"):
        fit_ensemble(
            [causal()],
            TRUTH.sample,
            next_token(),
            Recipe(steps=1, optimiser="adafactor"),
            [TorchRng(0)],
        )
    with pytest.raises(ValueError, match="an ensemble has no ema, autocast"):
        fit_ensemble(
            [causal()],
            TRUTH.sample,
            next_token(),
            Recipe(steps=1, ema=0.5, autocast="bfloat16"),
            [TorchRng(0)],
        )


def test_cross_entropy_is_torchs():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn((4, 5, 3), generator=generator)
    tokens = torch.randint(3, (4, 5), generator=generator)
    ours = loss(logits, Prediction(tokens, tokens, torch.ones_like(tokens).bool(), None))
    torch.testing.assert_close(ours, F.cross_entropy(logits.flatten(0, 1), tokens.flatten()))


@pytest.mark.parametrize("field", ["decay", "autocast"])
def test_a_misspelt_choice_is_explained(field):
    recipe = Recipe(steps=1)
    object.__setattr__(recipe, field, "cosin")  # past the checked signature of the tests
    with pytest.raises(ValueError, match=f"{field} is 'cosin'; it must be one of none"):
        recipe.__post_init__()


def test_a_history_prints_on_one_line():
    assert repr(History([2.0, 1.5])) == "History(2 steps, loss 2 to 1.5)"
    long = History([1.0] * 400, [(400, Gap(1.25, 1.0, 0.25))])
    assert str(long) == "History(400 steps, loss 1 to 1, KL from the truth 0.25 at step 400)"
    assert repr(History()) == "History(0 steps)"
