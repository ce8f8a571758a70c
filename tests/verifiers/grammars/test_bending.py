"""How far a mask bends a law: by hand, against the law of tokenwise sampling, and by draws."""

import math

import pytest
import torch

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Question
from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError
from triptych.inference.guided import tokenwise
from triptych.structures.uniform import Uniform
from triptych.verifiers.grammars.bending import estimated, exactly
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import Vocabulary

LETTERS = Vocabulary(["a", "b"])
ENDED = Vocabulary(["1", "0", ",", "[", "]", ""], (5,))


def test_three_choices_of_four_by_hand(engine):
    """q is ¼, ¼, ½ and the law of right texts ⅓ each: log 3 - 3/2 log 2."""
    verifier = Grammar.from_choices(["aa", "ab", "ba"]).on(LETTERS, engine)
    found = exactly(Uniform(2, 2), verifier, length=2)
    assert found.nats == pytest.approx(math.log(3) - 1.5 * math.log(2), abs=1e-12)
    assert found.log_right == pytest.approx(math.log(3 / 4), abs=1e-12)
    assert (found.unfinished, found.texts, found.exact) == (0.0, 3, True)


class Full:
    """The grammar about strings of full length: what `tokenwise.law` asks."""

    def __init__(self, verifier, length):
        self.verifier, self.length = verifier, length

    def log_value(self, prefix):
        over = prefix.shape[1] == self.length
        return self.verifier.log_values(Question.about(prefix, over=over))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pattern", ["a[ab]{3}|b{4}|abab", "(a|b)*a(a|b){2}", "aaaa|bbbb|baaa"])
def test_it_is_the_divergence_of_the_law_of_tokenwise_sampling(engine, seed, pattern):
    """KL(law of tokenwise ‖ p given right), both by enumeration, to 1e-9."""
    verifier, lm = Grammar.from_regex(pattern).on(LETTERS, engine), Table.random(2, 4, seed=seed)
    if "*" in pattern:
        verifier = Grammar.from_regex("[ab]a[ab]{2}").on(LETTERS, engine)
    full = Full(verifier, 4)
    law = tokenwise.law(lm, full)
    right = full.log_value(all_sequences(2, 4))
    target = (lm.log_probs + right).log_softmax(-1)
    q = law.log_probs.exp()
    want = float((q * (law.log_probs - target))[q > 0].sum())
    found = exactly(lm, verifier, length=4)
    assert found.nats == pytest.approx(want, abs=1e-9)
    assert found.log_right == pytest.approx(float((lm.log_probs + right).logsumexp(-1)), abs=1e-9)
    assert found.nats > 1e-6


def test_texts_that_end_themselves_and_others_that_do_not(engine):
    """By enumeration of all strings of four tokens, without any mask."""
    grammar = Grammar.from_regex(r"\[(1|0)(,(1|0)){0,3}\]|10*")
    verifier, lm = grammar.on(ENDED, engine), Table.random(6, 4, seed=3)
    found = exactly(lm, verifier, length=4)
    mass: dict[tuple[int, ...], float] = {}
    for text in ("[1]", "[0]", "1", "10", "100", "1000"):
        tokens = ENDED.spelled(text)
        tokens += [] if len(tokens) == 4 or text[-1] == "]" else [5]
        rows = torch.tensor([tokens])
        steps = [lm.next_token_log_probs(rows[:, :t])[0, tokens[t]] for t in range(len(tokens))]
        mass[tuple(tokens)] = float(sum(steps))
    assert found.texts == len(mass)
    assert found.log_right == pytest.approx(math.log(sum(map(math.exp, mass.values()))), abs=1e-12)
    assert 0 < found.unfinished < 1
    assert found.nats > 0


@pytest.mark.parametrize("seed", range(4))
def test_estimates_cover_the_exact_number(engine, seed):
    verifier = Grammar.from_regex(r"\[(1|0)(,(1|0)){0,1}\]|10*").on(ENDED, engine)
    lm = Table.random(6, 5, seed=seed)
    exact = exactly(lm, verifier, length=5)
    found = estimated(RecomputingDecoder(lm, 1500), verifier, length=5, rng=seed)
    width = found.high - found.low
    assert abs(found.nats - exact.nats) < 3 * width  # beyond 11 standard errors
    assert found.log_right == pytest.approx(exact.log_right, abs=0.3)
    assert found.unfinished == pytest.approx(exact.unfinished, abs=0.08)
    assert not found.exact


def test_a_mask_that_bends_nothing():
    """Where the grammar forces whole texts of one length, q is the law itself."""
    verifier = Grammar.from_choices(["aa", "ba"]).on(LETTERS, "triptych")
    assert exactly(Uniform(2, 2), verifier, length=2).nats == pytest.approx(0, abs=1e-12)


def test_too_many_texts_are_left_to_draws():
    verifier = Grammar.from_regex("[ab]*").on(Vocabulary(["a", "b"]), "triptych")
    assert exactly(Uniform(2, 12), verifier, length=12, most=100) is None


def test_where_nothing_is_right():
    verifier = Grammar.from_choices(["aaaaa"]).on(LETTERS, "triptych")
    with pytest.raises(UserError, match="no text of at most 3 tokens is right"):
        exactly(Uniform(2, 3), verifier, length=3)
    with pytest.raises(UserError, match="none of 5 texts was right"):
        estimated(RecomputingDecoder(Uniform(2, 3), 5), verifier, length=3, rng=0)
