"""What the tuning studies stand on: summaries, corpora, snapshots, labels, and their judges."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from triptych.adaptation.linear import best_linear_head
from triptych.adaptation.prompts import Tuning
from triptych.adaptation.tasks import draw_task
from triptych.core.estimates import Outcome, tv_tolerance
from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.lab.ledger import load_ledger
from triptych.lab.workbench import WorkBench
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hmm import HMM
from triptych.structures.memory_hmm import MemoryHMM
from triptych.studies import downstream as shared
from triptych.studies import exact_tuning, head_vs_prompt, judging, memory_heads, pretraining_finds
from triptych.studies.downstream import SMOKE, Labelled, Tuned
from triptych.studies.study import Scale
from triptych.theory.essential import random_with_zeros
from triptych.training.corpus import Corpus
from triptych.training.gap import measure
from triptych.training.loop import Recipe, fit, gap_meter
from triptych.training.objectives import masked, next_token


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def hidden_first(tokens):
    hidden = torch.zeros_like(tokens, dtype=torch.bool)
    hidden[:, 0] = True
    return hidden


def posterior_by_paths(hmm, tokens):
    """P[z_1, z_2 | x_2, …, x_L] summed over all hidden paths, from the definition."""
    paths = all_sequences(hmm.states, tokens.shape[1])
    prior = hmm.initial[paths[:, 0]]
    for before, after in itertools.pairwise(paths.T):
        prior = prior * hmm.transition[before, after]
    joint = torch.zeros(len(tokens), hmm.states, hmm.states, dtype=torch.float64)
    for row, string in enumerate(tokens):
        weight = prior.clone()
        for t in range(1, tokens.shape[1]):
            weight = weight * hmm.emission[paths[:, t], string[t]]
        joint[row].index_put_((paths[:, 0], paths[:, 1]), weight, accumulate=True)
    return joint / joint.sum((1, 2), keepdim=True)


# ------------------------------------------------------------------ the suffix as two soft tokens


def strings_of(hmm, length):
    """All (·, x) of positive probability, the first token being hidden."""
    rest = all_sequences(hmm.vocab_size, length - 1)
    after = replace(hmm, initial=hmm.initial @ hmm.transition, length=length - 1)
    rest = rest[~torch.isneginf(after.log_prob(rest))]
    return torch.nn.functional.pad(rest, (1, 0))


def random_prompt(states, k, seed, zeros=False):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(1, k, states, generator=generator, dtype=torch.float64)
    return values * (torch.rand(1, k, states, generator=generator) < 0.6) if zeros else values


SUMMARISED = {
    "dense": HMM.random(3, 2, 5, seed=0),
    "more states than tokens": HMM.random(5, 3, 5, seed=1),
    "experiments": HMM.random_permutation_mixture(6, 4, 5, seed=2),
    "sparse": HMM.random_sparse(4, 3, 5, seed=3),
    "zeros": random_with_zeros(5, 3, seed=4).with_length(5),
}
each_hmm = pytest.mark.parametrize("hmm", SUMMARISED.values(), ids=SUMMARISED.keys())


@each_hmm
def test_two_soft_tokens_act_as_the_whole_suffix(hmm):
    """At ∅, under no prompt and under any prompt, also one with zeros."""
    tokens = strings_of(hmm, 5)
    hidden = hidden_first(tokens)
    short = exact_tuning.summary(hmm, hmm.posterior(tokens, hidden)[:, 1].exp())
    assert short.shape == (len(tokens), 2, hmm.states)
    assert (short[:, 0] == 1).all()
    assert (short >= 0).all()
    torch.testing.assert_close(short.amax((1, 2)), torch.ones(len(tokens)).double())
    whole = hmm.embed(tokens, hidden)
    for seed, k in itertools.product(range(3), range(4)):
        prompt = random_prompt(hmm.states, k, seed, zeros=seed == 2).expand(len(tokens), -1, -1)
        wanted = hmm.soft_masked_probs(torch.cat([prompt, whole], 1), at=k)
        found = hmm.soft_masked_probs(torch.cat([prompt, short], 1), at=k)
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


def test_worked_summary():
    """π = (½, ½), A = [[¾, ¼], [½, ½]], W = [[1, 0], [½, ½]]: for x = (0), P[x | z] = (1, ½); for
    x = (1), (0, ½), which is (0, 1) after scaling."""
    hmm = HMM(f64([0.5, 0.5]), f64([[0.75, 0.25], [0.5, 0.5]]), f64([[1.0, 0.0], [0.5, 0.5]]), 2)
    tokens = torch.tensor([[0, 0], [0, 1]])
    posterior = hmm.posterior(tokens, hidden_first(tokens))[:, 1].exp()
    found = exact_tuning.summary(hmm, posterior)
    torch.testing.assert_close(found[:, 1], f64([[1.0, 0.5], [0.0, 1.0]]))


def test_a_state_without_a_law_has_no_summary():
    """State 0 cannot be second, so its posterior is 0 whatever x is; two soft tokens later a
    prompted chain may be in it, and P[x | 0] counts."""
    hmm = HMM(f64([1.0, 0.0]), f64([[0.0, 1.0], [0.5, 0.5]]), f64([[0.9, 0.1], [0.2, 0.8]]), 3)
    tokens = torch.tensor([[0, 0, 1]])
    posterior = hmm.posterior(tokens, hidden_first(tokens))[:, 1].exp()
    with pytest.raises(ValueError, match="state 0 cannot stand at the first token"):
        exact_tuning.summary(hmm, posterior)


@each_hmm
def test_one_soft_token_does_what_any_number_does(hmm):
    """(u_1, …, u_k) reach ∅ through a_k = (…((π ∘ u_1) A ∘ u_2) A…) ∘ u_k alone: the one token
    u = a_k / π, scaled into [0, 1], gives the same G there."""
    assert (hmm.initial > 0).all()
    tokens = strings_of(hmm, 5)
    whole = hmm.embed(tokens, hidden_first(tokens))
    for seed, k in itertools.product(range(3), (2, 3, 6)):
        prompt = random_prompt(hmm.states, k, seed, zeros=seed == 2)
        message = hmm.initial * prompt[0, 0]
        for vector in prompt[0, 1:]:
            message = (message @ hmm.transition) * vector
        one = message / hmm.initial
        one = one / max(float(one.max()), 1e-300)
        assert ((one >= 0) & (one <= 1)).all()
        many = torch.cat([prompt.expand(len(tokens), -1, -1), whole], 1)
        single = torch.cat([one.expand(len(tokens), 1, -1), whole], 1)
        wanted = hmm.soft_masked_probs(many, at=k)
        torch.testing.assert_close(hmm.soft_masked_probs(single, at=1), wanted, atol=1e-12, rtol=0)


def test_a_unit_of_the_exact_study(tmp_path):
    study = exact_tuning.STUDY
    unit = study.units(study.settings[Scale.SMOKE])[1]
    rows = list(study.run(unit, WorkBench(unit.seed, "cpu", tmp_path)))
    assert [row["prompt_length"] for row in rows] == [1, 2]
    p = unit.parameters
    hmm = shared.vanilla(12, p["inputs"] + 1, unit.seed)
    tokens = hmm.sample(p["train"] + p["test"], WorkBench(unit.seed, "cpu", tmp_path).rng("inputs"))
    law = hmm.masked_log_probs(tokens, hidden_first(tokens))[:, 0].exp()
    posterior = hmm.posterior(tokens, hidden_first(tokens))[:, 0].exp()
    task, labels = draw_task(posterior[:80], seed=unit.seed)
    wanted = task.labels(posterior[80:])
    for row in rows:
        assert row["summary_error"] < 1e-12
        assert row["states"] == 12
        assert row["margin"] == 0.0  # more states than symbols
        assert row["head"] == best_linear_head(law[:80], labels).score(law[80:], wanted)
        assert row["majority"] == float(max(wanted.double().mean(), 1 - wanted.double().mean()))


# ------------------------------------------------------------------ corpus


def cycle(states, length):
    """Emits 0, 1, …, states - 1, 0, …: every token tells its place."""
    eye = torch.eye(states).double()
    return HMM(eye[0], eye.roll(1, 1), eye, length)


def test_chunks_lie_inside_documents():
    """Documents 0, 1, …, 11 in chunks of 4: only 0-3, 4-7 and 8-11 occur, in this order."""
    corpus = Corpus.draw(cycle(12, 12), 5, TorchRng(0), chunk=4)
    assert corpus.chunks.tolist() == torch.arange(12).reshape(3, 4).repeat(5, 1).tolist()
    still = HMM(
        torch.full((6,), 1 / 6, dtype=torch.float64),
        torch.eye(6).double(),
        torch.eye(6).double(),
        8,
    )
    chunks = Corpus.draw(still, 40, TorchRng(1), chunk=2).chunks
    assert (chunks == chunks[:, :1]).all()
    by_document = chunks[:, 0].reshape(40, 4)
    assert (by_document == by_document[:, :1]).all()
    assert len(set(by_document[:, 0].tolist())) > 1
    assert torch.equal(
        Corpus.draw(still, 40, TorchRng(1), chunk=8).chunks.long(), still.sample(40, TorchRng(1))
    )


def test_the_same_rng_gives_the_same_chunks():
    corpus = Corpus.draw(HMM.random(3, 4, 12, seed=0), 10, TorchRng(2), chunk=6)
    again = Corpus.draw(HMM.random(3, 4, 12, seed=0), 10, TorchRng(2), chunk=6)
    assert torch.equal(corpus.chunks, again.chunks)
    assert torch.equal(corpus.sample(50, TorchRng(3)), again.sample(50, TorchRng(3)))
    assert not torch.equal(corpus.sample(50, TorchRng(3)), corpus.sample(50, TorchRng(4)))
    rng = TorchRng(5)
    assert not torch.equal(corpus.sample(50, rng), corpus.sample(50, rng))


def test_a_corpus_is_kept_small_and_read_as_long():
    small = Corpus.draw(cycle(256, 256), 1, TorchRng(0), chunk=64)
    assert small.chunks.dtype == torch.uint8
    assert small.sample(3, TorchRng(0)).dtype == torch.long
    assert torch.equal(small.chunks.long().flatten(), torch.arange(256))
    large = Corpus.draw(cycle(257, 257), 1, TorchRng(0), chunk=257)
    assert large.chunks.dtype == torch.int32
    assert large.sample(1, TorchRng(0)).max() == 256


def test_chunks_are_drawn_uniformly():
    """30 different chunks; the law of 30 000 draws is within the tolerance but for 1e-9."""
    corpus = Corpus(torch.arange(30)[:, None])
    drawn = corpus.sample(30_000, TorchRng(0))[:, 0]
    share = torch.bincount(drawn, minlength=30).double() / len(drawn)
    assert 0.5 * (share - 1 / 30).abs().sum() < tv_tolerance(30_000, 30, 1e-9)


def test_documents_that_do_not_divide_are_explained():
    with pytest.raises(ValueError, match="documents of 12 tokens do not divide into chunks of 5"):
        Corpus.draw(cycle(3, 12), 2, TorchRng(0), chunk=5)
    with pytest.raises(ValueError, match="chunk is 0; it must be at least 1"):
        Corpus.draw(cycle(3, 12), 2, TorchRng(0), chunk=0)


# ------------------------------------------------------------------ the loop

TRUTH = HMM.random(3, 3, 5, seed=0)


def small_lm(seed=0):
    shape = Shape(4, 6, width=8, layers=1, heads=2, causal=False)
    return MaskedLM(Transformer(shape, seed=seed))


OBJECTIVE = masked(words=3, p_m=0.4)


@pytest.mark.parametrize("steps", [1, 50, 51])
def test_losses_in_blocks_are_the_losses_step_by_step(steps):
    recipe = Recipe(steps=steps, batch=4)
    blocks = fit(small_lm(), TRUTH.sample, OBJECTIVE, recipe, TorchRng(0))
    told = []
    each = fit(
        small_lm(),
        TRUTH.sample,
        OBJECTIVE,
        recipe,
        TorchRng(0),
        report=lambda step, value, gap: told.append((step, value)),
    )
    assert len(blocks.losses) == steps
    assert blocks.losses == each.losses == [value for _, value in told]
    assert [step for step, _ in told] == list(range(1, steps + 1))


class NanAt:
    """A masked LM whose logits are nan at one call of `token_logits`, counted from 0."""

    def __init__(self, at, first=0):
        self.lm, self.at, self.calls = small_lm(), at, first
        self.net = self.lm.net

    def token_logits(self, seen):
        self.calls += 1
        return self.lm.token_logits(seen) * (math.nan if self.calls - 1 == self.at else 1.0)


@pytest.mark.parametrize("at", [0, 7, 49, 50, 60])
def test_a_loss_that_is_no_number_is_named_with_its_step(at):
    with pytest.raises(FloatingPointError, match=f"the loss is nan at step {at}; lower"):
        fit(NanAt(at), TRUTH.sample, OBJECTIVE, Recipe(steps=65, batch=4), TorchRng(0))


def test_steps_are_counted_through_an_interruption(tmp_path):
    recipe = Recipe(steps=75, batch=4)
    options = {"checkpoint": tmp_path, "checkpoint_every": 30}
    fit(small_lm(), TRUTH.sample, OBJECTIVE, recipe, TorchRng(0), stop_after=30, **options)
    with pytest.raises(FloatingPointError, match="the loss is nan at step 72;"):
        fit(NanAt(72, first=30), TRUTH.sample, OBJECTIVE, recipe, TorchRng(0), **options)
    whole = fit(small_lm(), TRUTH.sample, OBJECTIVE, recipe, TorchRng(0))
    resumed = fit(small_lm(), TRUTH.sample, OBJECTIVE, recipe, TorchRng(0), **options)
    assert resumed.losses == whole.losses


def test_the_meter_asks_once_and_measures_the_same():
    calls, tokens = [], TRUTH.sample(40, TorchRng(1))
    exact = masked(words=3, p_m=0.3, truth=TRUTH)

    def counted(tokens, rng):
        calls.append(1)
        return exact(tokens, rng)

    meter = gap_meter(counted, tokens, seed=7)
    for seed in range(3):
        lm = small_lm(seed)
        assert meter(lm) == measure(lm.token_logits, exact, tokens, TorchRng(7))
    assert len(calls) == 1
    assert meter(small_lm(0)) != gap_meter(exact, tokens, seed=8)(small_lm(0))


def test_a_meter_without_exact_targets_is_explained():
    with pytest.raises(ValueError, match="exact targets: pass truth=structure"):
        gap_meter(OBJECTIVE, TRUTH.sample(4, TorchRng(0)))(small_lm())
    nowhere = masked(words=3, p_m=0.0, truth=TRUTH)
    with pytest.raises(ValueError, match="no position was scored"):
        gap_meter(nowhere, TRUTH.sample(4, TorchRng(0)))(small_lm())
    assert next_token()(TRUTH.sample(4, TorchRng(0)), TorchRng(0)).law is None


# ------------------------------------------------------------------ pretrained networks


def settings(**changes):
    return shared.parameters(Tuned(**(SMOKE | {"steps": 32, "batch": 4} | changes)))


class Trainings:
    """Counts trainings, and keeps the weights after every step of the last one."""

    def __init__(self, monkeypatch):
        self.count, self.weights, self.samplers = 0, [], []
        monkeypatch.setattr(shared, "fit", self.fit)

    def fit(self, lm, sample, objective, recipe, rng, **options):
        self.count += 1
        self.samplers.append(sample)
        self.weights = [self._copy(lm)]
        done = fit(
            lm,
            sample,
            objective,
            recipe,
            rng,
            report=lambda step, value, gap: self.weights.append(self._copy(lm)),
            **options,
        )
        self.last = self._copy(lm)
        return done

    def _copy(self, lm):
        return {name: value.clone() for name, value in lm.net.state_dict().items()}


@pytest.fixture
def trainings(monkeypatch):
    return Trainings(monkeypatch)


LAW = shared.vanilla(4, 8, 1)
NAME = {"kind": "hmm", "states": 4, "seed": 1}


def same_weights(lm, weights):
    state = lm.net.state_dict()
    return state.keys() == weights.keys() and all(torch.equal(state[n], weights[n]) for n in state)


@pytest.mark.parametrize(
    ("steps", "shares", "wanted"),
    [
        (32, (0.0, 0.25, 0.5, 1.0), [0, 8, 16, 32]),
        (33, (0.25, 1.0), [8, 33]),
        (8, (0.5, 1.0), [4, 8]),
        (5, (1.0,), [5]),
    ],
)
def test_snapshots_are_the_network_after_these_steps(steps, shares, wanted, trainings, tmp_path):
    p = settings(steps=steps, snapshots=shares)
    found = shared.pretrained(WorkBench(1, "cpu", tmp_path), LAW, NAME, p, 1e-3, 1)
    assert [snapshot.step for snapshot in found] == wanted
    for snapshot in found:
        assert same_weights(snapshot.lm, trainings.weights[snapshot.step]), snapshot.step
        assert not any(parameter.requires_grad for parameter in snapshot.lm.net.parameters())
    assert same_weights(found[-1].lm, trainings.last)
    law = LAW.with_length(p["length"])
    meter = gap_meter(
        masked(words=10, p_m=p["mask_rate"], truth=law), law.sample(256, TorchRng(1_000_001)), 1
    )
    for snapshot in found:
        assert snapshot.kl == pytest.approx(meter(snapshot.lm).kl, rel=1e-12)


def test_an_untrained_snapshot_is_the_network_of_its_seed(tmp_path):
    p = settings(snapshots=(0.0, 1.0))
    found = shared.pretrained(WorkBench(1, "cpu", tmp_path), LAW, NAME, p, 1e-3, 1)
    fresh = Transformer(found[0].lm.net.shape, seed=1)
    assert same_weights(found[0].lm, fresh.state_dict())
    assert fresh.shape == Shape(
        11, p["prompt_length"] + 1 + p["inputs"], width=16, layers=1, heads=2, causal=False
    )
    assert not same_weights(found[1].lm, fresh.state_dict())


def test_a_network_is_trained_once(trainings, tmp_path):
    p = settings(steps=4)

    def again(p=p, rate=1e-3, seed=1, name=NAME):
        return shared.pretrained(WorkBench(1, "cpu", tmp_path), LAW, name, p, rate, seed)[-1]

    first, second = again(), again()
    assert trainings.count == 1
    assert same_weights(first.lm, second.lm.net.state_dict())
    assert first.kl == second.kl
    again(p | {"head_steps": 7, "tuning_rate": 0.5, "train": 9, "prompt_length": 1})
    assert trainings.count == 1
    for change in (
        {"p": p | {"steps": 5}},
        {"p": p | {"mask_rate": 0.2}},
        {"p": p | {"length": 12}},
        {"rate": 2e-3},
        {"seed": 2},
        {"name": NAME | {"seed": 2}},
    ):
        before = trainings.count
        again(**change)
        assert trainings.count == before + 1, change


def test_pretraining_on_a_corpus_of_documents(trainings, tmp_path):
    p = settings(
        documents=3, document_length=20, targets="sampled", corrupted=0.1, norm="post", tied=True
    )
    law = shared.vanilla(4, 8, 5)
    found = shared.pretrained(WorkBench(5, "cpu", tmp_path), law, NAME, p, 1e-3, 5)[-1]
    assert math.isfinite(found.kl)
    assert found.lm.net.output.weight is found.lm.net.embedding.weight
    corpus = Corpus.draw(law.with_length(20), 3, TorchRng(5), chunk=10)
    drawn = trainings.samplers[-1](20, TorchRng(0))
    assert torch.equal(drawn, corpus.sample(20, TorchRng(0)))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"precision": "float16"}, "precision is 'float16'; it must be float32 or bfloat16"),
        ({"decay": "cosin"}, "decay is 'cosin'; it must be none or linear or cosine"),
        ({"prompt_length": 0}, "prompt_length is 0; it must be at least 1"),
        ({"inputs": 100}, "positions that were never trained would be read"),
        ({"documents": 3, "targets": "sampled"}, "documents need a document_length"),
        ({"targets": "soft"}, "targets is 'soft'; it must be sampled or exact"),
        ({"norm": "none"}, "norm is 'none'; it must be pre or post"),
        ({"corrupted": 0.1}, "exact targets need corrupted = 0"),
        ({"snapshots": (0.5,)}, "snapshots are shares"),
        ({"snapshots": (-0.5, 1.0)}, "snapshots are shares"),
        ({"snapshots": (0.5, 0.25, 1.0)}, "in rising order"),
        ({"snapshots": ()}, "snapshots are shares"),
        ({"train": 0}, "must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_explained(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        Tuned(**changes)


# ------------------------------------------------------------------ downstream data

TINY = {"inputs": 3, "train": 30, "test": 20}


def test_labels_are_those_of_the_first_state_by_enumeration():
    law = HMM.random(3, 3, 9, seed=3)
    data = shared.downstream(law, TINY, 4, TorchRng(0))
    drawn = law.with_length(4).sample(50, TorchRng(0))
    assert torch.equal(torch.cat([data.train.tokens, data.test.tokens]), drawn[:, 1:])
    posterior = posterior_by_paths(law, drawn).sum(2)
    task, labels = draw_task(posterior[:30], seed=4)
    assert torch.equal(data.train.labels, labels)
    assert torch.equal(data.test.labels, task.labels(posterior[30:]))
    assert data.draws == task.draws
    exact = torch.cat([data.train.law, data.test.law])
    torch.testing.assert_close(exact, posterior @ law.emission)
    share = data.test.labels.double().mean()
    assert data.row == {"draws": task.draws, "majority": float(max(share, 1 - share))}


def test_labels_are_those_of_the_memory_by_enumeration():
    law = MemoryHMM.random(3, 1, 2, 3, 9, seed=5)
    data = shared.downstream(law, TINY, 4, TorchRng(0))
    drawn = law.with_length(4).sample(50, TorchRng(0))
    joint = torch.zeros(50, 3, 3, dtype=torch.float64)  # row, memory, first token
    for memory, *path in itertools.product(range(3), *[range(2)] * 4):
        prior = law.memory[memory] * law.initial[path[0]]
        for before, after in itertools.pairwise(path):
            prior = prior * law.transition[before, after]
        seen = torch.ones(50, dtype=torch.float64)
        for t in range(1, 4):
            seen = seen * law.emission[memory, 0, path[t]][drawn[:, t]]
        joint[:, memory] += prior * seen[:, None] * law.emission[memory, 0, path[0]]
    joint = joint / joint.sum((1, 2), keepdim=True)
    task, labels = draw_task(joint[:30].sum(2), seed=4)
    assert torch.equal(data.train.labels, labels)
    assert torch.equal(data.test.labels, task.labels(joint[30:].sum(2)))
    torch.testing.assert_close(torch.cat([data.train.law, data.test.law]), joint.sum(1))


def test_the_block_of_inputs_does_not_matter():
    law = HMM.random(3, 3, 9, seed=3)
    data = shared.downstream(law, TINY | {"train": 900, "test": 300}, 4, TorchRng(0))
    assert len(data.train.tokens) == len(data.train.labels) == len(data.train.law) == 900
    assert len(data.test.tokens) == len(data.test.labels) == len(data.test.law) == 300
    padded = torch.nn.functional.pad(data.test.tokens, (1, 0))
    law = law.with_length(4)
    wanted = law.masked_log_probs(padded, hidden_first(padded))[:, 0].exp()
    torch.testing.assert_close(data.test.law, wanted)


class Exact:
    """The truth in place of a network, at any length."""

    def __init__(self, law):
        self.law, self.vocab_size = law, law.vocab_size

    def masked_log_probs(self, tokens, hidden):
        return self.law.with_length(tokens.shape[1]).masked_log_probs(tokens, hidden)


def test_the_distance_at_the_first_position(unchecked_shapes):
    """Σ_x p log(p / q) by hand over 600 inputs, in more than one block; 0 for the truth."""
    law = HMM.random(3, 3, 9, seed=3)
    data = shared.downstream(law, TINY | {"test": 600}, 4, TorchRng(0))
    assert shared.kl_at_first(Exact(law), data.test) == pytest.approx(0.0, abs=1e-12)
    lm = small_lm()
    total = 0.0
    padded = torch.nn.functional.pad(data.test.tokens, (1, 0))
    predicted = lm.masked_log_probs(padded, hidden_first(padded))[:, 0].exp()
    for p, q in zip(data.test.law.tolist(), predicted.tolist(), strict=True):
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)
    assert shared.kl_at_first(lm, data.test) == pytest.approx(total / 600, rel=1e-9)
    worked = Labelled(torch.zeros((1, 1), dtype=torch.long), torch.tensor([0]), f64([[0.5, 0.5]]))
    biased = HMM(f64([1.0]), f64([[1.0]]), f64([[0.75, 0.25]]), 2)
    wanted = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert shared.kl_at_first(Exact(biased), worked) == pytest.approx(wanted)


def test_accuracies_are_those_of_tunings_with_these_recipes():
    law, lm = HMM.random(3, 3, 9, seed=3), small_lm()
    p = TINY | {
        "prompt_length": 1,
        "head_steps": 16,
        "tuning_steps": 16,
        "tuning_rate": 0.05,
        "tuning_batch": 8,
    }
    data = shared.downstream(law, p, 4, TorchRng(0))
    train, test = data.train, data.test
    plain = Recipe(steps=16, batch=128, learning_rate=0.01, warmup=2, decay="linear")
    found = shared.head_accuracies(lm, data, p, 1)
    head = Tuning(lm, recipe=plain, seed=1).fit(train.tokens, train.labels)
    best = best_linear_head(head.features(train.tokens), train.labels)
    assert found == {
        "head": head.score(test.tokens, test.labels),
        "best_head": best.score(head.features(test.tokens), test.labels),
    }
    attention = Tuning(lm, head="attention", recipe=plain, seed=1).fit(train.tokens, train.labels)
    assert shared.head_accuracies(lm, data, p, 1, "attention") == {
        "head": attention.score(test.tokens, test.labels)
    }
    recipe = replace(plain, batch=8, learning_rate=0.05)
    tuned = Tuning(lm, prompt_length=1, recipe=recipe, seed=1).fit(train.tokens, train.labels)
    refitted = best_linear_head(tuned.features(train.tokens), train.labels)
    assert shared.prompt_accuracies(lm, data, p, 1) == {
        "prompt": tuned.score(test.tokens, test.labels),
        "best_prompt": refitted.score(tuned.features(test.tokens), test.labels),
        "prompt_train": tuned.score(train.tokens, train.labels),
        "prompt_loss": pytest.approx(sum(tuned.losses) / 16),
    }
    exact = best_linear_head(train.law, train.labels)
    assert shared.exact_head_accuracy(data) == exact.score(test.law, test.labels)


def test_rows_do_not_depend_on_what_was_trained_before(tmp_path):
    """A network belongs to the seed of its law, whichever unit asks for it first."""
    study = pretraining_finds.STUDY
    few = replace(study.settings[Scale.SMOKE], seeds=2, hidden=(4,), steps=2, train=20, test=10)
    units = {(unit.seed, unit.parameters["source"]): unit for unit in study.units(few)}

    def rows(unit, folder):
        return list(study.run(unit, WorkBench(unit.seed, "cpu", tmp_path / folder)))

    alone = rows(units[2, "own"], "alone")
    other = rows(units[1, "other"], "after")
    assert rows(units[2, "own"], "after") == alone
    assert rows(units[1, "other"], "after") == other
    assert [row["step"] for row in alone] == [0, 2]
    assert [row["step"] for row in other] == [2]
    assert {row["source"] for row in other} == {"other"}
    assert alone[0]["kl_first"] != alone[1]["kl_first"]


# ------------------------------------------------------------------ judges


def trials(*sizes, seeds=range(1, 6), rate=1e-4, kl=0.05):
    """Rows for (states, prompt, head, best_head), with a little spread over the seeds."""
    return [
        {
            "kind": "tuned",
            "states": states,
            "learning_rate": rate,
            "seed": seed,
            "kl_first": kl,
            "prompt": prompt + 0.001 * seed,
            "head": head,
            "best_head": best,
        }
        for states, prompt, head, best in sizes
        for seed in seeds
    ]


def memory_trials(attention, linear, best, *, seeds=range(1, 6), rate=1e-4, kl=0.05, **extra):
    common = {"kind": "tuned", "states": 8, "learning_rate": rate, "kl_first": kl}
    rows = []
    for seed in seeds:
        spread = 0.001 * (seed - 3)
        accuracies = {"attention": attention, "linear": linear, "best_linear": best}
        # what the claim does not compare is set far off
        rows.append(common | {"data": "memory", "seed": seed} | accuracies | {"linear": 0.0})
        rows.append(common | {"data": "vanilla", "seed": seed} | accuracies | {"attention": 0.0})
        rows[-2]["attention"] += spread
        rows[-1]["linear"] += spread
    return [row | extra for row in rows]


@pytest.mark.parametrize("study", [head_vs_prompt, memory_heads])
def test_two_trials_decide_nothing(study):
    claim = study.STUDY.claims[0]
    assert claim.judge(claim.held_by).outcome is Outcome.HOLDS
    two = [row for row in claim.held_by if row["seed"] <= 2]
    assert claim.judge(two).outcome is Outcome.UNDECIDED
    one_kind = [
        row for row in claim.held_by if row.get("data", "memory") == "memory" and row["states"] < 9
    ]
    assert claim.judge(one_kind).outcome is Outcome.UNDECIDED


@pytest.mark.parametrize("study", [head_vs_prompt, memory_heads])
def test_every_refutation_is_refused_and_names_what_is_open(study):
    claim = study.STUDY.claims[0]
    for rows in claim.refuted_by:
        verdict = claim.judge(rows)
        assert verdict.outcome is Outcome.FAILS
        assert "not shown: " in verdict.because
        assert claim.judge(list(reversed(rows))).outcome is Outcome.FAILS


@pytest.mark.parametrize(
    ("study", "id_", "columns"),
    [
        (head_vs_prompt, "wei.fig-3-left", ("hidden", "prompt", "head")),
        (memory_heads, "wei.fig-3-right", ("states", "memory", "vanilla")),
    ],
)
def test_published_values_are_those_of_the_ledger(study, id_, columns):
    entry = next(entry for entry in load_ledger() if entry.id == id_)
    assert {name: list(study.PUBLISHED[name]) for name in study.PUBLISHED} == {
        name: entry.published[name] for name in columns
    }
    assert study.STUDY.claims[0].id == id_


def test_like_is_compared_with_like():
    """Prompt 0.903 on average against a trained head at 0.8 and the best one at 0.7."""
    verdict = head_vs_prompt.judge(trials((4, 0.8, 0.79, 0.79), (25, 0.9, 0.8, 0.7)))
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.measured["gain_beyond"][0] == pytest.approx(0.103, abs=1e-4)
    assert verdict.measured["gain_more"][0] == pytest.approx(0.09, abs=1e-4)
    assert verdict.measured["gain"][0] == pytest.approx((0.103 + 0.013) / 2, abs=1e-4)
    assert verdict.measured["gain_best"][0] == pytest.approx(0.203, abs=1e-4)
    assert verdict.measured["hidden"] == [4, 25]
    assert verdict.measured["prompt"] == [80.3, 90.3]
    assert verdict.measured["best_head"] == [79.0, 70.0]
    refitted = trials((4, 0.8, 0.79, 0.79), (25, 0.9, 0.8, 0.95))
    assert head_vs_prompt.judge(refitted).outcome is Outcome.FAILS
    for row in refitted:
        row["best_prompt"] = 0.99  # the prompt with the best head, where it was measured
    assert head_vs_prompt.judge(refitted).outcome is Outcome.HOLDS
    weak = trials((4, 0.8, 0.7, 0.7), (25, 0.75, 0.5, 0.8))  # only the optimum beats the prompt
    assert head_vs_prompt.judge(weak).outcome is Outcome.FAILS


def test_a_size_at_the_ceiling_leaves_nothing_to_win():
    """|H| = 8: the prompt loses to a head of 99.6 %, which is allowed, or of 99 %, which is not."""
    others = trials((4, 0.9, 0.88, 0.88), (25, 0.9, 0.6, 0.6))
    at_ceiling = trials((8, 0.98, 0.996, 0.996))
    below = trials((8, 0.97, 0.99, 0.99))
    assert head_vs_prompt.judge(others + at_ceiling).outcome is Outcome.HOLDS
    verdict = head_vs_prompt.judge(others + below)
    assert verdict.outcome is Outcome.FAILS
    assert "|H| = [8]" in verdict.because


def test_the_rate_of_the_closer_networks_is_judged():
    good = trials((4, 0.9, 0.88, 0.88), (25, 0.9, 0.6, 0.6), rate=1e-4, kl=0.1)
    bad = trials((4, 0.5, 0.88, 0.88), (25, 0.5, 0.6, 0.6), rate=1e-5, kl=0.2)
    assert head_vs_prompt.judge(good + bad).outcome is Outcome.HOLDS
    assert head_vs_prompt.judge(bad + good).outcome is Outcome.HOLDS
    swapped = [row | {"kl_first": 0.3 - row["kl_first"]} for row in good + bad]
    assert head_vs_prompt.judge(swapped).outcome is Outcome.FAILS
    assert head_vs_prompt.judge(swapped).measured["hidden"] == [4, 25]


def test_the_rate_of_the_closer_networks_is_judged_for_memory_too():
    good = memory_trials(0.99, 0.6, 0.7, rate=1e-4, kl=0.1)
    bad = memory_trials(0.6, 0.8, 0.7, rate=1e-5, kl=0.2)
    assert memory_heads.judge(good + bad).outcome is Outcome.HOLDS
    swapped = [row | {"kl_first": 0.3 - row["kl_first"]} for row in good + bad]
    assert memory_heads.judge(swapped).outcome is Outcome.FAILS
    two = memory_trials(0.99, 0.6, 0.7, seeds=(1, 2))  # two rates do not make four trials of two
    doubled = two + [row | {"learning_rate": 1e-5, "kl_first": 0.3} for row in two]
    assert memory_heads.judge(doubled).outcome is Outcome.UNDECIDED


def test_a_rate_that_has_only_begun_does_not_win_by_its_easy_trials():
    whole = trials((4, 0.9, 0.88, 0.88), kl=0.02) + trials((25, 0.9, 0.6, 0.6), kl=0.3)
    begun = trials((4, 0.9, 0.88, 0.88), rate=1e-5, kl=0.1, seeds=(1,))
    assert {row["learning_rate"] for row in shared.best_rate(begun + whole)} == {1e-4}
    assert len(shared.best_rate(begun + whole)) == 10
    better = trials((4, 0.9, 0.88, 0.88), rate=1e-5, kl=0.01, seeds=(1,))
    assert shared.best_rate(whole + better) == better
    apart = trials((8, 0.9, 0.88, 0.88), rate=1e-5, kl=0.01, seeds=(1,))  # no trial in common
    assert shared.best_rate(apart + whole) == whole
    assert shared.best_rate(whole) == whole


def test_memory_is_compared_with_the_trained_linear_head():
    for best in (0.6, 0.99):
        verdict = memory_heads.judge(memory_trials(0.97, 0.9, best))
        assert verdict.outcome is Outcome.HOLDS
        measured = [verdict.measured[name] for name in ("states", "memory", "vanilla")]
        assert measured == [[8], [97.0], [90.0]]
        assert verdict.measured["best_linear_on_vanilla"] == 100 * best
        assert f"the best linear head reaches {best:.1%}" in verdict.because
        fails = memory_heads.judge(memory_trials(0.97, 0.99, best))
        assert fails.outcome is Outcome.FAILS


def test_near_100_per_cent_is_a_mean_above_95():
    def judged(*values):
        rows = memory_trials(0.0, 0.5, 0.5)
        for row, value in zip(rows[::2], values, strict=True):
            row["attention"] = value
        return memory_heads.judge(rows).outcome

    assert judged(0.99, 1.0, 1.0, 0.98, 1.0) is Outcome.HOLDS
    assert judged(0.96, 0.97, 0.96, 0.98, 0.97) is Outcome.HOLDS
    assert judged(1.0, 1.0, 1.0, 1.0, 0.7) is Outcome.UNDECIDED
    assert judged(0.94, 0.93, 0.94, 0.92, 0.94) is Outcome.FAILS


def test_units_that_cannot_be_are_explained():
    with pytest.raises(ValueError, match="a memory needs at least 2 values"):
        memory_heads.units(memory_heads.MemoryHeads(memories=(1, 2)))
    with pytest.raises(ValueError, match="data has 'both'; it must be memory or vanilla"):
        memory_heads.units(memory_heads.MemoryHeads(data=("both",)))
    with pytest.raises(ValueError, match="hidden sizes must be at least 1"):
        head_vs_prompt.units(head_vs_prompt.HeadVsPrompt(hidden=(0, 4)))


def test_all_of_is_the_worst():
    holds, fails, undecided = Outcome.HOLDS, Outcome.FAILS, Outcome.UNDECIDED
    assert judging.all_of([holds, holds]) is holds
    assert judging.all_of([holds, undecided]) is undecided
    assert judging.all_of([undecided, fails, holds]) is fails


def test_difference_adds_squared_half_widths():
    """Two values a, b have the t interval ± 12.7062 |a - b| / 2 around their mean."""
    found = judging.difference([1.0, 1.06], [0.0, 0.08])
    assert found.value == pytest.approx(0.99)
    assert found.half_width == pytest.approx(12.7062 * 0.05, rel=1e-5)  # 0.03, 0.04 -> 0.05
    assert found.n == 4


def test_means_by_place_end_where_accuracies_end():
    rows = [{"size": 8, "a": 1.0}, {"size": 4, "a": 0.9}, {"size": 4, "a": 1.0}]
    found = judging.mean_series(rows, "size", "a", "label", "ours")
    assert (found.x, found.y) == ((4.0, 8.0), (95.0, 100.0))
    assert found.high == (100.0, 100.0)
    assert found.low == (pytest.approx(95 - 12.7062 * 5, rel=1e-4), 100.0)
    raw = judging.mean_series(rows, "size", "a", "label", "ours", percent=False)
    assert raw.high[0] == pytest.approx(0.95 + 12.7062 * 0.05, rel=1e-4)
