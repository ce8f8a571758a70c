"""Candidates with values, particles with weights: texts against the algorithms' own tokens."""

import math

import pytest
from tests.support.tiny_text_model import tiny_lm

from triptych.guidance.guide import guide
from triptych.inference.guided.best_of_n import BestOfN
from triptych.inference.guided.particles import Particles
from triptych.inference.guided.rejection import Rejection

LM = tiny_lm()
PROMPTS = ["a", "b0", "ab"]


def few_zeros(text):
    return 0.5 ** text.count("0")


def test_best_of_n_shows_all_candidates():
    found = guide(LM, PROMPTS, few_zeros, BestOfN(n=5), max_new_tokens=6, rng=0, batch=2)
    assert [len(several) for several in found.candidates] == [5, 5, 5]
    for text, several in zip(found.texts, found.candidates, strict=True):
        values = [candidate.value for candidate in several]
        assert values == pytest.approx([few_zeros(candidate.text) for candidate in several])
        assert several[values.index(max(values))].text == text
    assert found.weights is None
    assert found.log_evidence is None
    assert "candidates" in found._repr_html_()


def test_candidates_do_not_depend_on_the_batch():
    options = {"max_new_tokens": 6, "rng": 4}
    together = guide(LM, PROMPTS, few_zeros, BestOfN(3), **options)
    alone = guide(LM, PROMPTS, few_zeros, BestOfN(3), batch=1, **options)
    assert together.candidates == alone.candidates


def test_particles_have_weights_that_sum_to_one():
    found = guide(LM, PROMPTS, few_zeros, Particles(n=6, ess=0.0), max_new_tokens=6, rng=1)
    for text, several, evidence in zip(found.texts, found.weights, found.log_evidence, strict=True):
        assert sum(math.exp(particle.log_weight) for particle in several) == pytest.approx(1)
        assert text in [particle.text for particle in several]
        # without resampling the weight of a particle is V of its text
        values = [few_zeros(particle.text) for particle in several]
        shares = [math.exp(particle.log_weight) for particle in several]
        assert shares == pytest.approx([value / sum(values) for value in values])
        assert math.exp(evidence) == pytest.approx(sum(values) / 6)
    assert found.candidates is None
    assert "particles" in found._repr_html_()


def test_when_every_particle_is_refused():
    found = guide(LM, ["a"], lambda text: False, Particles(n=2), max_new_tokens=3, rng=0)
    assert found.log_evidence == [-math.inf]
    assert [particle.log_weight for particle in found.weights[0]] == [-math.inf] * 2
    assert found.texts == [""]
    assert found.reasons == ["every particle was refused"]


def test_other_algorithms_have_neither():
    found = guide(LM, ["a"], few_zeros, "blocks", max_new_tokens=3, rng=0)
    assert found.candidates is None
    assert found.weights is None


def test_a_rule_may_be_told_the_prompt():
    seen = set()

    def rule(text, prompt, finished=False):
        seen.add(prompt)
        return text.count("0") <= prompt.count("0")

    found = guide(LM, PROMPTS, rule, Rejection(attempts=200), max_new_tokens=4, rng=0)
    assert seen == set(PROMPTS)
    assert all(found.accepted)
    for text, prompt in zip(found.texts, found.prompts, strict=True):
        assert text.count("0") <= prompt.count("0")


def test_in_a_conversation_the_prompt_is_what_was_said():
    seen = []
    talk = [{"role": "user", "content": "ab"}]

    def rule(text, prompt):
        seen.append(prompt)
        return True

    guide(LM, [talk], rule, max_new_tokens=2, chat=True)
    guide(LM, ["b"], rule, max_new_tokens=2, chat=True)
    assert seen[0] == talk
    assert seen[-1] == "b"


def test_a_batched_rule_gets_lists():
    class Together:
        batched = True

        def __call__(self, texts, prompt):
            assert isinstance(texts, list)
            assert len(prompt) == len(texts)
            return [text.count("0") <= 1 for text in texts]

    one_by_one = guide(LM, PROMPTS, lambda text: text.count("0") <= 1, max_new_tokens=6, rng=2)
    together = guide(LM, PROMPTS, Together(), max_new_tokens=6, rng=2)
    assert together.texts == one_by_one.texts
    assert together.accepted == one_by_one.accepted


def test_a_text_that_is_cut_off_is_taken_if_it_counts_as_finished():
    """No end in sight: a text of 3 tokens is over, and must not end in 0 then."""

    def ends_well(text, finished):
        return not (finished and text.endswith("0"))

    found = guide(LM, PROMPTS * 4, ends_well, Particles(n=3), max_new_tokens=3, rng=0)
    for text, accepted, several in zip(found.texts, found.accepted, found.weights, strict=True):
        right = [not particle.text.endswith("0") for particle in several]
        assert accepted == any(right) == (not text.endswith("0"))
