"""Training of translators: batches, corruption, losses by hand, resuming, a toy language."""

import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.training import translation
from triptych.training.corpus import PairCorpus
from triptych.training.recorded import RecordedSteps
from triptych.training.step import Descent, Recipe
from triptych.training.translation import (
    END,
    FIRST_WORD,
    MASK,
    PAD,
    Corruption,
    causal_losses,
    cross_entropy,
    fit_lengths,
    fit_translator,
    fitting_steps,
    parallel_losses,
)

VOCAB = 15


def shape(*, causal: bool, dropout: float = 0.0) -> PairShape:
    return PairShape(
        VOCAB, 8, width=32, layers=1, heads=2, feedforward=32, causal=causal, dropout=dropout
    )


def toy(count: int = 200) -> tuple[list[list[int]], list[list[int]]]:
    """Sources of 2 to 6 words; a target has every word raised by one, and one more at the end."""
    sources = [
        [FIRST_WORD + (7 * i + 3 * j * j) % 9 for j in range(2 + i % 5)] for i in range(count)
    ]
    return sources, [[*(word + 1 for word in source), FIRST_WORD] for source in sources]


def corpus(tokens: int = 48) -> PairCorpus:
    return PairCorpus(*toy(), tokens=tokens, widths=(4, 7))


# ------------------------------------------------------------------ batches


def test_batches_have_one_shape_in_each_group() -> None:
    pairs, rng = corpus(), TorchRng(0)
    shapes = {tuple(pairs.batch(step, rng).target.shape) for step in range(40)}
    assert shapes == {(12, 4), (6, 7)}  # 48 tokens / 4, 48 / 7


def test_groups_come_as_often_as_their_share_of_the_work() -> None:
    pairs = corpus()
    assert [len(group.source) for group in pairs.groups] == [80, 120]
    counts = Counter(pairs.group_at(step) for step in range(1000))
    wanted = (80 / 12) / (80 / 12 + 120 / 6)  # batches of each group in a pass over the corpus
    assert counts[0] / 1000 == pytest.approx(wanted, abs=0.005)


def test_a_batch_holds_pairs_of_the_corpus() -> None:
    sources, targets = toy()
    known = {(*a, -1, *b) for a, b in zip(sources, targets, strict=True)}
    batch = corpus().batch(3, TorchRng(1))
    for row in range(len(batch.source)):
        source = batch.source[row, : batch.source_lengths[row]].tolist()
        target = batch.target[row, : batch.target_lengths[row]].tolist()
        assert (*source, -1, *target) in known
        assert (batch.target[row, batch.target_lengths[row] :] == PAD).all()


def test_a_corpus_that_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="1 sources and 2 targets"):
        PairCorpus([[5]], [[5], [6]], tokens=8, widths=[4])
    with refused("tokens"):
        PairCorpus([[5] * 5], [[5]], tokens=8, widths=[4])


# ------------------------------------------------------------------ corruption and losses


def test_corruption_keeps_the_share_that_it_says() -> None:
    target = torch.full((200, 100), 7)
    target[:, 90:] = PAD
    seen = Corruption(right=0.15).first_hypothesis(target, 1000, TorchRng(0))
    assert (seen[:, 90:] == PAD).all()
    inside = seen[:, :90]
    # A random word is the right one with probability 1/995. Five standard deviations of 18,000.
    share = 0.15 + 0.85 / 995
    assert (inside == 7).double().mean().item() == pytest.approx(
        share, abs=5 * math.sqrt(share * (1 - share) / 18_000)
    )
    assert int(inside.min()) >= FIRST_WORD
    assert int(inside.max()) == 999
    assert not (inside == MASK).any()


def test_corruption_can_mask() -> None:
    target = torch.full((20, 50), 7)
    seen = Corruption(right=0.0, masked=1.0).first_hypothesis(target, 30, TorchRng(0))
    assert (seen == MASK).all()
    assert torch.equal(Corruption(right=1.0).first_hypothesis(target, 30, TorchRng(0)), target)


def test_cross_entropy_by_hand() -> None:
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.9, 0.05, 0.05]]]))
    wanted = torch.tensor([[1, 2, PAD]])
    plain = -(math.log(0.25) + math.log(0.8)) / 2
    assert cross_entropy(logits, wanted, 0.0).item() == pytest.approx(plain)
    spread = -(math.log(0.5 * 0.25 * 0.25) + math.log(0.1 * 0.1 * 0.8)) / 6
    smooth = cross_entropy(logits, wanted, 0.1).item()
    assert smooth == pytest.approx(0.9 * plain + 0.1 * spread)


def test_stages_read_what_the_stage_before_answered() -> None:
    """The loss of two stages is the mean of two single stages, the second on the first's answer."""
    net = EncoderDecoder(shape(causal=False), seed=3).eval()
    batch = corpus().batch(0, TorchRng(0))
    first = Corruption().first_hypothesis(batch.target, VOCAB, TorchRng(1))

    def one(hypothesis: torch.Tensor, stages: int, sums: bool = False) -> torch.Tensor:
        return parallel_losses(
            net, batch, hypothesis, stages=stages, sum_stages=sums, smoothing=0.0
        ).words

    encoded = net.encode(batch.source, batch.source_lengths)
    answer = net.decode(first, encoded, batch.target_lengths).argmax(-1)
    second = torch.where(batch.target == PAD, PAD, answer)
    both = one(first, 1) + one(second, 1)
    torch.testing.assert_close(one(first, 2), both / 2)
    torch.testing.assert_close(one(first, 2, sums=True), both)


def test_the_causal_loss_is_the_log_probability_of_target_and_end() -> None:
    net = EncoderDecoder(shape(causal=True), seed=3).eval()
    pairs = PairCorpus([[5, 6]], [[7, 8, 9]], tokens=4, widths=[4])
    batch = pairs.batch(0, TorchRng(0))
    encoded = net.encode(batch.source, batch.source_lengths)
    log_probs = net.decode(torch.tensor([[2, 7, 8, 9]]), encoded).log_softmax(-1)[0]
    wanted = torch.tensor([7, 8, 9, END])
    expected = -log_probs[range(4), wanted].mean()
    torch.testing.assert_close(causal_losses(net, batch, smoothing=0.0).words, expected)


# ------------------------------------------------------------------ lengths


def test_lengths_are_fitted_on_the_encoder_as_it_stands() -> None:
    """A linear predictor with zero weights begins at log(length); the rest of the network stays."""
    net = EncoderDecoder(shape(causal=False), seed=3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    pairs = corpus(60)
    losses = fit_lengths(net, pairs, 0, epochs=200)
    assert losses[0] == pytest.approx(math.log(net.shape.length), rel=1e-4)
    assert losses[-1] < 0.7 * losses[0]
    after = net.state_dict()
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"length_head.weight"}
    # the likeliest length is right more often than the most frequent one would be
    batch = pairs.batch(0, TorchRng(0))
    likely = net.likely_lengths(net.encode(batch.source, batch.source_lengths), 1)[:, 0]
    counts = torch.bincount(batch.target_lengths)
    assert (likely == batch.target_lengths).sum() > counts.max()


@pytest.mark.usefixtures("unchecked_shapes")
def test_training_ends_with_a_fit_of_the_lengths() -> None:
    nets = [EncoderDecoder(shape(causal=False), seed=0) for _ in range(2)]
    for net, refit in zip(nets, (True, False), strict=True):
        fit_translator(net, corpus(), recipe(4), 0, corruption=Corruption(), refit_lengths=refit)
    with_it, without = (net.state_dict() for net in nets)
    differ = {name for name in with_it if not torch.equal(with_it[name], without[name])}
    assert differ == {"length_head.weight"}


def test_lengths_are_read_off_the_mean_of_the_source_s_states() -> None:
    """Of two tokens and padding, the mean of two states; of one token, its state."""
    net = EncoderDecoder(shape(causal=False), seed=3).eval()
    encoded = net.encode(torch.tensor([[5, 6, 0], [7, 0, 0]]), torch.tensor([2, 1]))
    wanted = torch.stack([(encoded.states[0, 0] + encoded.states[0, 1]) / 2, encoded.states[1, 0]])
    torch.testing.assert_close(net.mean_state(encoded), wanted)


def test_one_length_needs_no_predictor() -> None:
    net = EncoderDecoder(shape(causal=False), seed=3)
    before = net.length_head.weight.clone()
    pairs = PairCorpus([[5, 6], [6]], [[7, 8], [8, 9]], tokens=4, widths=[4])
    assert fit_lengths(net, pairs, 0) == []
    assert torch.equal(net.length_head.weight, before)


# ------------------------------------------------------------------ training


def recipe(steps: int) -> Recipe:
    return Recipe(steps, learning_rate=5e-3, warmup=10, decay="cosine", clip=1.0, ema=0.9)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("causal", [True, False])
def test_it_learns_a_toy_language(causal: bool) -> None:
    net = EncoderDecoder(shape(causal=causal), seed=0)
    corruption = None if causal else Corruption()
    history = fit_translator(net, corpus(96), recipe(150), 0, corruption=corruption, smoothing=0.0)
    assert history.steps == 150
    assert history.losses[-1] < 0.25 * history.losses[0]


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    def run(folder: Path | None, *stops: int | None) -> EncoderDecoder:
        for stop in stops:
            net = EncoderDecoder(shape(causal=False, dropout=0.3), seed=0)
            fit_translator(
                net,
                corpus(),
                recipe(12),
                5,
                corruption=Corruption(),
                checkpoint=folder,
                stop_after=stop,
            )
        return net

    whole, parts = run(None, None), run(tmp_path / "run", 5, None)
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(a, b)


def test_seconds_cut_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    net = EncoderDecoder(shape(causal=True), seed=0)
    monkeypatch.setattr(translation, "_CHUNK", 3)
    history = fit_translator(net, corpus(), recipe(100_000), 0, seconds=0.001)
    assert history.steps == 3  # the clock is looked at after a few steps


def test_a_slow_beginning_does_not_end_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 2 steps take half of the time, the others a tenth of a second: all 8 fit."""
    ticks = iter([0.0, 5.0, 5.1, 5.2, 5.3, 5.4, 5.5])
    monkeypatch.setattr(translation.time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(translation, "_CHUNK", 2)
    net = EncoderDecoder(shape(causal=True), seed=0)
    assert fit_translator(net, corpus(), recipe(8), 0, seconds=10.0).steps == 8


def test_steps_that_fit_by_hand() -> None:
    assert fitting_steps([(0, 0.0), (25, 5.0)], 10.0) == 50
    assert fitting_steps([(0, 0.0), (25, 5.0), (50, 6.0)], 10.0) == 150
    assert fitting_steps([(0, 0.0), (25, 5.0), (50, 11.0)], 10.0) == 50


def test_a_run_with_seconds_that_is_over_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command once more trains no further; with more seconds it goes on."""
    monkeypatch.setattr(translation, "_CHUNK", 3)

    def run(seconds: float) -> tuple[int, list[torch.Tensor]]:
        net = EncoderDecoder(shape(causal=True), seed=0)
        history = fit_translator(
            net, corpus(), recipe(100_000), 0, seconds=seconds, checkpoint=tmp_path
        )
        return history.steps, [p.detach().clone() for p in net.parameters()]

    steps, weights = run(0.001)
    again, same = run(0.001)
    assert steps == again == 3
    assert all(torch.equal(a, b) for a, b in zip(weights, same, strict=True))
    assert run(0.002)[0] == 6


def test_a_checkpoint_does_not_change_the_rate_of_a_run_with_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 of 100 steps fit; a checkpoint after every step leaves their rates as they are."""
    monkeypatch.setattr(translation, "_CHUNK", 4)
    weights = []
    for folder in (None, tmp_path):
        monkeypatch.setattr(translation, "fitting_steps", lambda *_: 12)
        net = EncoderDecoder(shape(causal=True), seed=0)
        fit_translator(
            net,
            corpus(),
            recipe(100),
            0,
            seconds=1e6,
            checkpoint=folder,
            checkpoint_every=1 if folder else 0,
        )
        weights.append([p.detach().clone() for p in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_a_run_that_is_cut_short_raises_its_rate_in_a_tenth_of_its_steps() -> None:
    cut = translation._cut(replace(recipe(1000), warmup=300), 100)
    assert (cut.steps, cut.warmup) == (100, 10)
    assert cut.rate_at(9) == 1.0
    assert cut.rate_at(99) < 0.01
    whole = translation._cut(replace(recipe(1000), warmup=300), 1000)
    assert whole.warmup == 300


def test_nothing_of_the_initial_weights_is_in_the_average() -> None:
    """After one step of Adam a weight has moved by the rate; of an average that begins with the
    initial weights it would be a thousandth of that."""
    net = EncoderDecoder(shape(causal=True), seed=0)
    how = replace(recipe(1), ema=0.999, warmup=0)
    before = [p.detach().clone() for p in net.parameters()]
    fit_translator(net, corpus(), how, 0)
    moved = [(a - b).abs().max() for a, b in zip(before, net.parameters(), strict=True)]
    assert max(moved) > 0.5 * how.learning_rate  # not a thousandth of a step


def test_recorded_steps_are_plain_steps_on_a_cpu() -> None:
    nets = [EncoderDecoder(shape(causal=True), seed=0) for _ in range(2)]
    pairs, batches = corpus(), []
    for step in range(8):
        batches.append(list(pairs.batch(step, TorchRng(step))))
    from triptych.training.corpus import PairBatch

    for net, recorded in zip(nets, (True, False), strict=True):
        descent = Descent(recipe(8), list(net.parameters()))

        def loss(inputs: list[torch.Tensor], net: EncoderDecoder = net) -> torch.Tensor:
            return causal_losses(net, PairBatch(*inputs), smoothing=0.1).words

        steps = RecordedSteps(descent, loss)
        for number, batch in enumerate(batches):
            if recorded:
                steps.step(number, batch)
            else:
                descent.step(number, loss(batch))
        descent.settle(8)
        assert len(descent.losses) == 8
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.cuda
def test_recorded_steps_are_plain_steps_on_a_gpu() -> None:
    losses = []
    for recorded in (True, False):
        net = EncoderDecoder(shape(causal=True), seed=0, device="cuda")
        pairs = PairCorpus(*toy(), tokens=48, widths=(4, 7), device="cuda")
        history = fit_translator(net, pairs, recipe(60), 0, recorded=recorded)
        assert history.recorded == recorded
        losses.append(history.losses)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_corruption_belongs_to_a_parallel_decoder() -> None:
    with pytest.raises(UserError, match="leave it out"):
        fit_translator(
            EncoderDecoder(shape(causal=True), seed=0),
            corpus(),
            recipe(2),
            0,
            corruption=Corruption(),
        )
    with pytest.raises(UserError, match="pass corruption"):
        fit_translator(EncoderDecoder(shape(causal=False), seed=0), corpus(), recipe(2), 0)


COMPILED = """
from dataclasses import replace
from tests.training.test_translation import *
for causal in (True, False):
    runs = []
    for compiled in (False, True):
        net = EncoderDecoder(shape(causal=causal), seed=0)
        how = replace(recipe(20), compile=compiled)
        corruption = None if causal else Corruption()
        history = fit_translator(net, corpus(), how, 0, corruption=corruption)
        assert all(layer._compiled_call_impl is None for layer in (*net.encoder, *net.decoder))
        runs.append((history.losses, list(net.parameters())))
    assert runs[0][0] == pytest.approx(runs[1][0], rel=1e-4)
    assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(runs[0][1], runs[1][1]))
"""


@pytest.mark.slow
def test_a_compiled_copy_learns_the_same() -> None:
    """Without dropout, whose draws differ; the network that comes out is not compiled.

    In a process of its own: torch's compiler warns, and does not read checked signatures.
    """
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
