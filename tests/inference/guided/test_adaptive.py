"""Particles with adaptive rejection: the estimator by paths, weights, questions, budgets."""

import itertools
import math
import random

import pytest
import torch
from tests.support.refusals import refused
from tests.support.toy_guided import FirstDraws, Noisy, Values, ledger_of, standing_at

from triptych.core.counting import Counted
from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law
from triptych.core.randomness import TorchRng
from triptych.core.streams import RowStreams
from triptych.core.table import Table
from triptych.inference.guided import adaptive, particles
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.result import Reason
from triptych.structures.uniform import Uniform


class Coins:
    """The same law at every place."""

    def __init__(self, *probs):
        self.vocab_size, self.log_probs = len(probs), torch.tensor(probs, dtype=torch.float64).log()

    def next_token_log_probs(self, prefix):
        return self.log_probs.expand(len(prefix), -1)


class Only:
    """Accepts strings of these tokens alone; keeps what it was asked."""

    def __init__(self, *tokens):
        self.tokens, self.asked = set(tokens), []

    def log_value(self, prefix):
        self.asked += prefix.tolist()
        fine = [set(row) <= self.tokens for row in prefix.tolist()]
        return torch.tensor(fine, dtype=torch.float64).log()


# ------------------------------------------------------------------------------ one step, by paths


@pytest.mark.parametrize("tries", [1, 2, 3, None])
@pytest.mark.parametrize("estimates", [1, 2, 4])
@pytest.mark.parametrize("vocabs", [(1, 2, 3), pytest.param((4,), marks=pytest.mark.slow)])
def test_a_step_is_properly_weighted(tries, estimates, vocabs):
    """Σ probability · weight = p(t) for accepted t, over all paths; the probabilities sum to 1."""
    draws = random.Random(0)
    for vocab in vocabs:
        for accepted in itertools.product([True, False], repeat=vocab):
            weights = [draws.random() for _ in range(vocab)]
            probs = [weight / sum(weights) for weight in weights]
            found = adaptive.proposals(probs, accepted, tries=tries, estimates=estimates)
            assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
            for t, p in enumerate(probs):
                got = sum(q * w for (token, w), q in found.items() if token == t)
                assert got == pytest.approx(p if accepted[t] else 0.0, abs=1e-12)


def test_a_step_by_hand():
    """The worked value of the module: (½, ¼, ¼), token 0 is refused."""
    found = adaptive.proposals([0.5, 0.25, 0.25], [False, True, True])
    one = {weight: q for (token, weight), q in found.items() if token == 1}
    assert one == pytest.approx({1.0: 1 / 12, 0.25: 1 / 6, 0.5: 1 / 4})
    two_tries = adaptive.proposals([0.5, 0.25, 0.25], [False, True, False], tries=2)
    assert two_tries == pytest.approx(
        {(1, 0.25): 1 / 4, (1, 0.5): 1 / 4, (1, 0.75): 1 / 12, (-1, 0.0): 1 / 4 + 1 / 6}
    )


def test_nothing_is_accepted_and_everything_is():
    assert adaptive.proposals([0.5, 0.5], [False, False]) == {(-1, 0.0): 1.0}
    assert adaptive.proposals([0.5, 0.5], [True, True]) == {(0, 1.0): 0.5, (1, 1.0): 0.5}
    assert adaptive.proposals([1.0], [True]) == {(0, 1.0): 1.0}


@pytest.mark.usefixtures("unchecked_shapes")
def test_odd_steps_are_answered_by_a_sentence():
    with refused("probs"):
        adaptive.proposals([0.25, 0.25], [True, True])
    with refused("accepted"):
        adaptive.proposals([0.5, 0.5], [True, 1])


@pytest.mark.parametrize("page", [1, 2, 3, 256])
@pytest.mark.parametrize(("tries", "estimates"), [(None, 1), (1, 1), (2, 1), (3, 2)])
def test_the_program_draws_tokens_and_weights_with_the_law_of_a_step(
    tries, estimates, page, monkeypatch, unchecked_shapes
):
    """One particle, one token: (token, weight) of `sample`, enumerated, is that of `proposals`.
    Also where a page of the vocabulary is drawn first."""
    monkeypatch.setattr(adaptive, "_PAGE", page)
    probs = (0.3, 0.1, 0.2, 0.4)

    def program(rng):
        decoder = RecomputingDecoder(Coins(*probs), 1)
        result = adaptive.sample(
            decoder, Only(1, 3), length=1, n=1, tries=tries, estimates=estimates, rng=rng
        )
        token = result.completions()[0][0] if result.complete[0] else -1
        return token, round(result.info.log_normaliser.exp().item(), 12)

    wanted = {}
    accepted = [False, True, False, True]
    step = adaptive.proposals(probs, accepted, tries=tries, estimates=estimates)
    for (token, weight), q in step.items():
        key = token, round(weight, 12)
        wanted[key] = wanted.get(key, 0.0) + q
    assert exact_law(program).probs == pytest.approx(wanted, abs=1e-12)


# ------------------------------------------------------------------------------------ whole strings


class SometimesZero:
    """Soft values; a prefix that ends in 1, 0 has value 0."""

    def log_value(self, prefix):
        bad = torch.zeros(len(prefix), dtype=torch.bool)
        if prefix.shape[1] > 1:
            bad = (prefix[:, -2] == 1) & (prefix[:, -1] == 0)
        return Noisy().log_value(prefix).masked_fill(bad, -torch.inf)


@pytest.mark.parametrize(
    ("ess", "tries"), [(0.9, None), pytest.param(1.0, None, marks=pytest.mark.slow)]
)
def test_the_mean_weight_is_unbiased(ess, tries, unchecked_shapes):
    """E[exp log_normaliser] = Σ p(x) V(x) over the strings with no prefix of value 0."""
    lm, verifier = Table.random(2, 2, seed=6), SometimesZero()

    def program(rng):
        decoder = RecomputingDecoder(lm, 1)
        result = adaptive.sample(decoder, verifier, length=2, n=2, ess=ess, tries=tries, rng=rng)
        return result.info.log_normaliser.exp().item()

    wanted = sum(
        q * verifier.log_value(torch.tensor([x])).exp().item() for x, q in lm.as_dict().items()
    )
    assert exact_law(program).expectation(float) == pytest.approx(wanted, rel=1e-12)


def test_many_particles_have_the_restricted_law():
    """Bits with at most two 0s, 400 rows of 50 particles. By Hoeffding's inequality the share of
    a string is off by more than 0.16 with probability below 3e-9."""
    p = Table.random(2, 4, seed=3)

    class Leaning:
        def log_value(self, prefix):
            return torch.where((prefix == 0).sum(-1) > 2, -torch.inf, 0.0).double()

    result = adaptive.sample(RecomputingDecoder(p, 400), Leaning(), length=4, n=50, rng=TorchRng(0))
    wanted = {x: q for x, q in p.as_dict().items() if x.count(0) <= 2}
    total = sum(wanted.values())
    texts = result.completions()
    assert set(texts) <= set(wanted)
    for x, q in wanted.items():
        assert texts.count(x) / 400 == pytest.approx(q / total, abs=0.16)
    mean = result.info.log_normaliser.exp().mean().item()
    assert mean == pytest.approx(total, abs=0.02)


def test_a_certain_verifier_never_loses_a_particle():
    """One accepted token of fifty: plain particles die, these do not."""
    lm = Uniform(50, 4)
    decoder = RecomputingDecoder(lm, 3)
    result = adaptive.sample(decoder, Only(7), length=4, n=2, rng=TorchRng(0))
    assert result.completions() == [(7, 7, 7, 7)] * 3
    assert result.accepted.all()
    plain = particles.sample(RecomputingDecoder(lm, 3), Only(7), length=4, n=2, rng=TorchRng(0))
    assert plain.info.died.all()


@pytest.mark.parametrize("page", [1, 256])
def test_a_row_draws_alike_alone_and_among_others(page, monkeypatch):
    monkeypatch.setattr(adaptive, "_PAGE", page)
    lm, prompts = Table.random(3, 5, seed=0), [[], [0, 1], [2], [2]]

    def run(numbers):
        decoder = standing_at(lm, *[prompts[k] for k in numbers])
        rng = RowStreams(3, torch.tensor(numbers))
        return adaptive.sample(decoder, SometimesZero(), length=5, n=3, ess=0.9, rng=rng)

    together = run([0, 1, 2, 3])
    for number in range(4):
        alone = run([number])
        assert alone.completions()[0] == together.completions()[number]
        assert ledger_of(alone)[0] == ledger_of(together)[number]
        one, all_rows = alone.info.particles, together.info.particles
        torch.testing.assert_close(one.log_weights[0], all_rows.log_weights[number])


# --------------------------------------------------------------------------------- what it costs


def test_questions_and_calls_by_hand():
    """One particle draws 0 (refused) and 1 (accepted), then 2 for the estimate: three questions,
    three calls, one token. w = ¼ + ¼ · 1 = ½."""
    verifier = Only(1, 2)
    result = adaptive.sample(
        RecomputingDecoder(Coins(0.5, 0.25, 0.25), 1),
        verifier,
        length=1,
        n=1,
        record=True,
        rng=FirstDraws(0, 1, 2),
    )
    assert verifier.asked == [[0], [1], [2]]
    assert ledger_of(result) == [(3, 1, 0, 3)]
    assert result.costs.forward_passes == 1
    assert result.info.log_normaliser.exp().item() == pytest.approx(0.5)
    assert result.info.questions.tolist() == [3]
    assert result.info.refused.tolist() == [1]
    events = [(event.action, event.tokens) for event in result.trace]
    assert events == [("reject", (0,)), ("draw", (1,)), ("accept", (1,)), ("choose", (1,))]


def test_particles_with_the_same_text_share_answers():
    """Both draw 0 and then 1; both ask about 2 for the estimate: three questions, not six."""
    verifier = Only(1, 2)
    decoder = RecomputingDecoder(Coins(0.5, 0.25, 0.25), 1)
    result = adaptive.sample(decoder, verifier, length=1, n=2, rng=FirstDraws(0, 0, 1, 1, 2, 2))
    assert verifier.asked == [[0], [1], [2]]
    assert ledger_of(result) == [(6, 2, 0, 3)]


def test_questions_are_what_an_outside_counter_sees():
    verifier = Only(0, 2)
    result = adaptive.sample(
        RecomputingDecoder(Table.random(3, 4, seed=1), 5), verifier, length=4, n=3, rng=0
    )
    assert len(verifier.asked) == int(result.info.questions.sum())
    assert torch.equal(result.info.questions, result.costs.verifier_calls)


def test_a_prompt_goes_through_the_model_once():
    """The particles of a row share its first law: one question for two rows of one length."""
    lm = Counted(Table.random(2, 3, seed=1))
    result = adaptive.sample(standing_at(lm, [0], [1]), Values(), length=2, n=4, rng=0)
    assert lm.calls == result.costs.forward_passes == 1


def test_a_budget_of_questions_ends_a_search():
    """All is refused, ten tokens, room for three questions: it stops in the middle of a step."""
    result = adaptive.sample(
        standing_at(Uniform(10, 2), [], [1, 1]),
        Only(),
        length=2,
        n=1,
        budget=Budget(verifier_calls=3),
        rng=0,
    )
    assert result.reasons == (Reason.QUESTIONS, None)
    assert result.costs.verifier_calls.tolist() == [3, 1]
    assert result.completions() == [(), ()]


def test_tries_used_up_is_a_particle_lost():
    result = adaptive.sample(
        RecomputingDecoder(Uniform(10, 2), 1), Only(9), length=2, n=1, tries=2, rng=FirstDraws(0, 1)
    )
    assert result.reasons == (Reason.PARTICLES,)
    assert result.info.particles.log_weights.tolist() == [[-math.inf]]
    assert result.costs.verifier_calls.tolist() == [2]


def test_the_last_try_has_the_mass_that_was_left():
    """9 is found by the second of two tries: w = 1 - p(0) = 0.9, and no draw for an estimate."""
    result = adaptive.sample(
        RecomputingDecoder(Uniform(10, 1), 1), Only(9), length=1, n=1, tries=2, rng=FirstDraws(0, 9)
    )
    assert result.info.log_normaliser.exp().item() == pytest.approx(0.9)
    assert ledger_of(result) == [(2, 1, 0, 2)]


@pytest.mark.parametrize(
    ("page", "draws"), [(256, (0, 1, 2)), (2, (0, 0, 0, 1, 1, 0)), (1, (0, 0, 1, 0, 2, 0))]
)
def test_accepted_mass_that_is_tiny_keeps_its_digits(page, draws, monkeypatch):
    """All but 1e-12 is refused; 1 - p(R) would have four digits left. With pages, a draw of the
    page comes before that of the token."""
    monkeypatch.setattr(adaptive, "_PAGE", page)
    tiny = 1e-12
    lm = Coins(0.5, 0.5 - tiny, tiny / 2, tiny / 2)
    decoder = RecomputingDecoder(lm, 1)
    result = adaptive.sample(decoder, Only(2, 3), length=1, n=1, tries=3, rng=FirstDraws(*draws))
    assert result.info.log_normaliser.exp().item() == pytest.approx(tiny, rel=1e-12)


# ------------------------------------------------------------------------------ texts cut off


class EndsInOne:
    """Every prefix may go on; a text that is over must end in 1."""

    def log_value(self, prefix):
        return torch.zeros(len(prefix), dtype=torch.float64)

    reads_over = True

    def log_values(self, asked):
        last = asked.tokens.gather(1, asked.lengths[:, None] - 1)[:, 0]
        return torch.where(asked.over, self.of_last(last), 0.0)

    def of_last(self, last):
        return (last == 1).double().log()


class NeverOver(EndsInOne):
    def of_last(self, last):
        return torch.full((len(last),), -math.inf, dtype=torch.float64)


def test_a_particle_that_is_cut_off_counts_as_a_finished_text_by_hand():
    """Two fair coins, two particles: one of them ends in 1 with probability 3/4, and is taken.

    If both end in 0, one of these is taken all the same.
    """
    law = particles.law(Coins(0.5, 0.5), EndsInOne(), 2, 2, ess=0.0)
    assert law == pytest.approx({(0, 1): 3 / 8, (1, 1): 3 / 8, (0, 0): 1 / 8, (1, 0): 1 / 8})


@pytest.mark.parametrize("verifier", [EndsInOne(), NeverOver()])
@pytest.mark.parametrize("algorithm", [particles, adaptive])
@pytest.mark.parametrize("end", [None, 0])
def test_the_law_of_texts_that_are_cut_off(algorithm, verifier, end):
    lm = Coins(0.7, 0.3)

    def draw(rng):
        result = algorithm.sample(
            RecomputingDecoder(lm, 1), verifier, length=2, n=2, ess=0.5, end_token=end, rng=rng
        )
        return tuple(result.completions()[0]) if result.complete[0] else None

    expected = algorithm.law(lm, verifier, 2, 2, ess=0.5, end_token=end)
    found = exact_law(draw).probs
    assert {x: q for x, q in found.items() if x is not None} == pytest.approx(expected)


def test_what_is_cut_off_is_told_as_finished():
    """The value of the text that is taken, and the estimate of the accepted mass, 1/2."""
    result = particles.sample(
        RecomputingDecoder(Coins(0.5, 0.5), 400), EndsInOne(), length=2, n=8, rng=TorchRng(0)
    )
    tokens = torch.tensor(result.completions())
    assert (tokens[:, 1] == 1).double().mean() > 0.98  # all but 2^-8 of the rows
    assert result.info.log_normaliser.exp().mean().item() == pytest.approx(0.5, abs=0.05)
    assert not result.info.died.any()
