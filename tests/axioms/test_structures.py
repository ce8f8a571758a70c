"""Laws every structure obeys. A new file in `structures/` with `examples()` is picked up here."""

import importlib
import inspect
import math
import pkgutil

import pytest
import torch
from tests.support.refusals import refused

import triptych.structures
from triptych.core.axioms import Counterexample, Finding, check_sampler, check_structure
from triptych.core.enumeration import exact_law
from triptych.core.protocols import Density, Latent, Structure
from triptych.core.samplers import Chain, OneShot
from triptych.core.table import Table, examples
from triptych.core.validation import UserError
from triptych.lab.axioms.discovery import package_examples

pytestmark = pytest.mark.numerical

EXAMPLES = package_examples("triptych.structures")
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.label)
# Other sizes of what a quicker example has; each takes a second.
SLOW = {
    "dyck: prefixes of one type",
    "dyck: fixed length, depth 1",
    "dyck: fixed length as printed",
}
SLOW |= {"hmm: sparse", "cfg: one word"}


def quick_and_slow(examples):
    return [
        pytest.param(
            example, id=example.label, marks=[pytest.mark.slow] if example.label in SLOW else []
        )
        for example in examples
    ]


@pytest.mark.parametrize("example", quick_and_slow(EXAMPLES))
def test_every_law_holds(example):
    for finding in check_structure(example.value):
        assert finding.holds, str(finding)


@each_example
def test_is_a_whole_structure(example):
    assert isinstance(example.value, Structure)


FEW_CHOICES = [
    example
    for example in EXAMPLES
    if example.value.vocab_size**example.value.length <= 100
    and example.module != "memory_hmm"  # hidden choices multiply: up to 10^5 paths
    and example.label not in {"hmm: more states than tokens", "hmm: permutation mixture"}
]


@pytest.mark.parametrize("example", quick_and_slow(FEW_CHOICES))
def test_sampling_by_enumeration_is_exactly_the_law(example, unchecked_shapes):
    """Every choice the sampler can make, with its probability: no noise, no tolerance for it."""
    structure = example.value
    law = exact_law(lambda rng: tuple(structure.sample(1, rng)[0].tolist()))
    truth = {x: p for x, p in Table.of(structure).as_dict().items() if p > 0}
    assert law.probs == pytest.approx(truth, rel=1e-9)


LATENT = [example for example in EXAMPLES if isinstance(example.value, Latent)]


@pytest.mark.parametrize("example", LATENT, ids=lambda e: e.label)
def test_a_posterior_over_hidden_states_is_normalised(example):
    structure = example.value
    tokens = Table.of(structure).support[:20]
    for pattern in (torch.zeros_like(tokens), torch.ones_like(tokens)):
        total = structure.log_posterior(tokens, pattern.bool()).logsumexp(-1)
        torch.testing.assert_close(total, torch.zeros_like(total), atol=1e-9, rtol=0)


@each_example
def test_an_empty_batch_is_answered(example):
    structure = example.value
    tokens = torch.zeros((0, structure.length), dtype=torch.long)
    assert structure.log_prob(tokens).shape == (0,)
    assert structure.next_token_log_probs(tokens[:, :0]).shape == (0, structure.vocab_size)
    answer = structure.masked_log_probs(tokens, tokens.bool())
    assert answer.shape == (0, structure.length, structure.vocab_size)


@pytest.mark.parametrize(
    "module",
    [
        info.name
        for info in pkgutil.walk_packages(triptych.structures.__path__, "triptych.structures.")
    ],
)
def test_no_density_escapes_the_laws(module):
    loaded = importlib.import_module(module)
    densities = {
        cls
        for _, cls in inspect.getmembers(loaded, inspect.isclass)
        if cls.__module__ == loaded.__name__ and hasattr(cls, "log_prob") and hasattr(cls, "sample")
    }
    checked = {type(example.value) for example in EXAMPLES}
    assert densities <= checked


def test_the_table_obeys_its_own_laws():
    for finding in check_structure(examples()["random"]):
        assert finding.holds, str(finding)


class _Broken(Table):
    """A table with one planted fault."""


def test_the_laws_catch_a_wrong_next_token():
    class Wrong(_Broken):
        def next_token_log_probs(self, prefix):
            return super().next_token_log_probs(prefix).flip(-1)

    assert not _all_hold(Wrong)


def test_the_laws_catch_a_wrong_mask():
    class Wrong(_Broken):
        def masked_log_probs(self, tokens, hidden):
            return super().masked_log_probs(tokens, torch.ones_like(hidden))

    assert not _all_hold(Wrong)


def test_the_laws_catch_a_biased_sampler():
    class Wrong(_Broken):
        def sample(self, n, rng):
            return super().sample(n, rng).flip(1)

    assert not _all_hold(Wrong)


def test_the_laws_catch_a_normaliser_that_is_off():
    class Wrong(_Broken):
        def log_prob(self, tokens):
            return super().log_prob(tokens) + 1e-6

    assert not _all_hold(Wrong)


def _all_hold(cls):
    table = Table.random(2, 3, seed=0)
    return all(f.holds for f in check_structure(cls(2, 3, table.log_probs)))


def _found(cls, law, probs=(0.5, 0.25, 0.25, 0.0)):
    """The finding for one law on two bits with these probabilities of 00, 01, 10, 11."""
    table = cls(2, 2, torch.tensor(probs, dtype=torch.float64).log())
    return next(f for f in check_structure(table) if f.axiom == law)


def test_a_counterexample_is_the_prefix_that_is_furthest_off():
    class Wrong(_Broken):
        def next_token_log_probs(self, prefix):
            log_probs = super().next_token_log_probs(prefix)
            if prefix.shape[1] == 1:
                log_probs[prefix[:, 0] == 0, 1] += math.log(1.5)  # 1/3 becomes 1/2
            return log_probs

    found = _found(Wrong, "next token equals the table")
    assert found.error == pytest.approx(math.log(1.5))
    assert found.counterexample == Counterexample(
        "P(next token 1 | [0])", "0.3333333333", "0.5", "next_token_log_probs"
    )
    assert "P(next token 1 | [0]): expected 0.3333333333, got 0.5" in str(found)
    total = _found(Wrong, "log_prob is the sum of next tokens")
    assert total.counterexample == Counterexample("P([0, 1])", "0.375", "0.25", "log_prob")
    good = _found(_Broken, "next token equals the table")
    assert good.holds
    assert good.counterexample is None


def test_a_counterexample_of_a_mask_shows_what_is_hidden():
    class Wrong(_Broken):
        def masked_log_probs(self, tokens, hidden):
            log_probs = super().masked_log_probs(tokens, hidden)
            alone = hidden[:, 1] & ~hidden[:, 0] & (tokens[:, 0] == 0)
            log_probs[alone, 1] = log_probs[alone, 1].flip(-1)
            return log_probs

    found = _found(Wrong, "masked equals the table").counterexample
    assert found is not None
    assert found.asked in ("P(token 0 at position 1 | [0, ?])", "P(token 1 at position 1 | [0, ?])")
    assert {found.expected, found.got} == {"0.6666666667", "0.3333333333"}


def test_a_counterexample_of_answers_that_must_not_come():
    class Answers(_Broken):
        def next_token_log_probs(self, prefix):
            return torch.zeros((len(prefix), 2), dtype=torch.float64)

        def sample(self, n, rng):
            return torch.ones((n, 2), dtype=torch.int64)

    probs = (0.5, 0.5, 0.0, 0.0)
    found = _found(Answers, "an impossible prefix raises", probs)
    assert found.counterexample == Counterexample(
        "next token after [1], which has probability 0",
        "ImpossibleEvidence",
        "an answer",
        "next_token_log_probs",
    )
    outside = _found(Answers, "no sample is outside the support", probs).counterexample
    assert outside is not None
    assert outside.asked == "samples equal to [1, 1], which has probability 0"
    assert (outside.expected, outside.got) == ("0", "20000")


def test_an_answer_of_another_shape_is_no_answer():
    class Narrow(_Broken):
        def next_token_log_probs(self, prefix):
            return super().next_token_log_probs(prefix)[:, :1]

    with pytest.raises(UserError, match=r"next_token_log_probs answers with shape \(3, 1\) where"):
        _found(Narrow, "next token equals the table")


def test_counterexamples_of_samplers():
    (found,) = check_sampler(OneShot(lambda rng: 0, {0: 0.75, 1: 0.25}))
    assert found.counterexample == Counterexample(
        "probability of outcome 0", "0.75", "1", "attempt"
    )
    around = Chain(lambda state, rng: (state + 1) % 3, {0: 0.5, 1: 0.25, 2: 0.25}, reversible=True)
    invariant, balance = check_sampler(around)
    assert invariant.counterexample == Counterexample(
        "probability of state 0 after one step from the target", "0.5", "0.25", "step"
    )
    assert balance.counterexample == Counterexample(
        "P(at 0, then 1)", "0, the probability of the way back", "0.5", "step"
    )


def test_a_finding_of_nan_does_not_hold():
    assert not Finding("law", float("nan"), 1.0).holds


def test_too_large_and_too_little():
    with refused("structure"):
        check_structure(triptych.structures.uniform.Uniform(10, 10))
    with refused("structure"):
        check_structure(object())
    assert not isinstance(object(), Density)
