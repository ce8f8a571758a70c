"""Laws every structure obeys. A new file in `structures/` with `examples()` is picked up here."""

import importlib
import inspect
import pkgutil

import pytest
import torch

import triptych.structures
from triptych.core.laws import Finding, check_structure
from triptych.core.protocols import Density, Latent, Structure
from triptych.core.randomness import exact_law
from triptych.core.table import Table, examples
from triptych.lab.discovery import package_examples

EXAMPLES = package_examples("triptych.structures")
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.label)


@each_example
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


@pytest.mark.parametrize("example", FEW_CHOICES, ids=lambda e: e.label)
def test_sampling_by_enumeration_is_exactly_the_law(example):
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
        total = structure.posterior(tokens, pattern.bool()).logsumexp(-1)
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
    "module", [info.name for info in pkgutil.iter_modules(triptych.structures.__path__)]
)
def test_no_density_escapes_the_laws(module):
    loaded = importlib.import_module(f"triptych.structures.{module}")
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


def test_a_finding_of_nan_does_not_hold():
    assert not Finding("law", float("nan"), 1.0).holds


def test_too_large_and_too_little():
    with pytest.raises(ValueError, match="shorter example"):
        check_structure(triptych.structures.uniform.Uniform(10, 10))
    with pytest.raises(ValueError, match="log_prob"):
        check_structure(object())
    assert not isinstance(object(), Density)
