"""Old names work, warn at the user's line, and are no second way to say the same."""

import importlib
import inspect
import pkgutil
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from tests.support.refusals import refused

import triptych
from triptych.core import enumeration
from triptych.core.deprecation import (
    RENAMED,
    Renamed,
    renamed,
    renamed_fields,
    renamed_names,
)
from triptych.inference.chains import gibbs, parallel
from triptych.structures.hidden_markov.hmm import HMM

TRITON = "triptych.models.short_attention_kernels"  # Triton is on machines with a GPU alone
LEFT_OUT = ("triptych.lab", "triptych.studies", "triptych.__main__", TRITON)


@contextmanager
def warned(*words: str):
    """One DeprecationWarning with these words, at a line of this file that has the old name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    (warning,) = caught
    assert warning.category is DeprecationWarning
    assert all(word in str(warning.message) for word in words), warning.message
    assert Path(warning.filename) == Path(__file__)
    assert "# here" in Path(__file__).read_text("utf-8").splitlines()[warning.lineno - 1]


@renamed(vocab="vocab_size")
def half(vocab_size: int) -> int:
    return vocab_size // 2


@renamed_fields(model="lm")
@dataclass(frozen=True)
class Ratio:
    lm: int
    target: int


class Model:
    def log_posterior(self, tokens: int) -> int:
        return -tokens

    posterior = Renamed("log_posterior")


def test_a_parameter():
    assert half(8) == half(vocab_size=8) == 4
    with warned("half(vocab=…)", "half(vocab_size=…)"):
        assert half(vocab=8) == 4  # here
    with refused("vocab_size"):
        half(vocab=8, vocab_size=8)
    with pytest.raises(TypeError):
        half(words=8)
    assert list(inspect.signature(half).parameters) == ["vocab_size"]


def test_a_field():
    ratio = Ratio(1, target=2)
    with warned("Ratio(model=…)", "Ratio(lm=…)"):
        assert Ratio(model=1, target=2) == ratio  # here
    with warned("Ratio.model", "Ratio.lm"):
        assert ratio.model == 1  # here
    assert replace(ratio, target=3) == Ratio(1, 3)
    assert repr(ratio) == "Ratio(lm=1, target=2)"


def test_a_method():
    assert Model().log_posterior(3) == -3
    with warned("Model.posterior", "Model.log_posterior"):
        assert Model().posterior(3) == -3  # here
    with warned("Model.log_posterior"):
        assert Model.posterior(Model(), 3) == -3  # here
    assert dict(inspect.getmembers(Model))["posterior"].new == "log_posterior"  # looking is silent


def test_a_name_of_a_module():
    look = renamed_names("triptych.core.enumeration", Law="ExactLaw")
    with warned("enumeration.Law", "enumeration.ExactLaw"):
        assert look("Law") is enumeration.ExactLaw  # here
    with warned("enumeration.ExactLaw"):
        assert enumeration.Law is enumeration.ExactLaw  # here
    with pytest.raises(AttributeError, match="no attribute 'Laws'"):
        look("Laws")


def test_old_names_of_our_own():
    """A worked value of each kind, as a user of the last version wrote it."""
    with warned("HMM.random(vocab_size=…)"):
        hmm = HMM.random(states=2, vocab=3, length=4, seed=0)  # here
    assert torch.equal(hmm.emission, HMM.random(2, 3, 4, seed=0).emission)
    tokens = hmm.sample(2, rng=0)
    with warned("HMM.log_posterior"):
        old = hmm.posterior(tokens)  # here
    assert torch.equal(old, hmm.log_posterior(tokens))
    with warned("most_confident(n=…)"):
        chosen = parallel.most_confident([[0.5, 0.9]], [[1, 1]], count=1)  # here
    assert chosen.tolist() == [[False, True]]
    with warned("block_log_probs(lm=…)"):
        gibbs.block_log_probs(oracle=hmm, tokens=tokens, hidden=tokens >= 0)  # here


def ours():
    for found in pkgutil.walk_packages(triptych.__path__, "triptych."):
        if not found.name.startswith(LEFT_OUT):
            yield importlib.import_module(found.name)


def test_what_was_renamed_is_there_under_its_new_name():
    """And not under the old one, which may be no parameter of another meaning."""
    seen = set()
    for module in ours():
        for _, thing in inspect.getmembers(module):
            if getattr(thing, "__module__", "") != module.__name__:
                continue
            inside = list(vars(thing).values()) if inspect.isclass(thing) else []
            for function in (thing, *inside):
                function = getattr(function, "__func__", function)
                if isinstance(function, Renamed):
                    assert hasattr(thing, function.new) or function.new in thing.__annotations__
                    assert getattr(thing, function.old) is function
                elif inspect.isfunction(function):
                    names = RENAMED.get(key := f"{function.__module__}.{function.__qualname__}")
                    if names:
                        seen.add(key)
                        parameters = inspect.signature(function).parameters
                        assert names.keys().isdisjoint(parameters), key
                        assert set(names.values()) <= parameters.keys(), key
    assert len(seen) > 40
