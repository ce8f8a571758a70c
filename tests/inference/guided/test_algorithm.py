"""The algorithms as values: options with bounds, found without a list, those of strangers too."""

import dataclasses
import importlib.metadata
import inspect
import sys
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest
from tests.support.refusals import refused
from tests.support.toy_guided import Noisy, standing_at

from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.guided.algorithm import (
    GROUP,
    Algorithm,
    Option,
    Shared,
    algorithm_of,
    algorithms,
    option,
)
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.best_of_n import BestOfN
from triptych.inference.guided.vgb import Vgb

KINDS = algorithms()
each_algorithm = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def test_all_algorithms_are_found():
    named = "adaptive ancestral backtracking best_of_n blocks particles rejection tokenwise vgb"
    assert set(KINDS) >= set(named.split())
    assert KINDS["best_of_n"] is BestOfN


@each_algorithm
def test_an_algorithm_is_a_value_of_its_module(kind):
    module = sys.modules[kind.__module__]
    assert module.__name__ == f"triptych.inference.guided.{kind.name}"
    assert algorithm_of(module) is kind
    assert module.examples()
    assert kind.title
    assert kind.promise
    assert not kind.promise.endswith(".")
    assert kind() == kind()
    assert hash(kind()) == hash(kind())
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind().extra = 3


@each_algorithm
def test_options_are_the_parameters_of_sample(kind):
    """Those that are plain values: `outcome` is a verifier, `block_end` one or several tokens,
    `answer` a function; what all algorithms share is in `Shared`."""
    parameters = inspect.signature(sys.modules[kind.__module__].sample).parameters
    own = [name for name in parameters if name not in ("decoder", "verifier", "shared")]
    plain = sorted({*own} - {"outcome", "block_end", "answer"})
    assert sorted(each.name for each in kind.options()) == plain
    assert sorted(own) == sorted(each.name for each in dataclasses.fields(kind))
    asked = set(inspect.signature(kind.sample).parameters) - {"self", "decoder", "verifier"}
    assert asked == set(Shared.__annotations__)


@each_algorithm
@pytest.mark.usefixtures("unchecked_shapes")
def test_every_option_has_a_meaning_and_refuses_what_is_out_of_bounds(kind):
    for each in kind.options():
        assert each.meaning
        wrong = {int: -1, float: -0.5, bool: "no", str: "other"}[each.type]
        with pytest.raises(UserError, match=f"^{each.name} is "):
            kind.of({each.name: wrong})


def test_options_of_one_name_have_one_type():
    """They are one option of the command."""
    types = {}
    for kind in KINDS.values():
        for each in kind.options():
            assert types.setdefault(each.name, each.type) is each.type


@pytest.mark.usefixtures("unchecked_shapes")
def test_values_are_cleaned_and_compared():
    assert Backtracking(np.int64(3)) == Backtracking(quota=3)
    assert type(Backtracking(np.int64(3)).quota) is int
    assert Backtracking(quota=2).settings() == {
        "quota": 2,
        "stride": 4,
        "redo_argmax": True,
        "verify_redone": False,
        "threshold": 0.5,
        "into_prompt": 0,
    }
    assert Backtracking.of({"stride": 1}) == Backtracking(stride=1)
    assert Vgb.parse(["candidates=all", "lazy=no"]) == Vgb(candidates=None, lazy=False)


def test_names_that_are_not_there_are_refused():
    assert BestOfN.parse(["n=7"]) == BestOfN(7)
    for make, sentence in (
        (lambda: BestOfN.of({"m": 5}), "best_of_n has no --m; it takes --n"),
        (lambda: BestOfN.parse(["m=5"]), "best_of_n has no --m"),
        (lambda: BestOfN.parse(["n"]), "'n' sets no option; it must be OPTION=VALUE"),
        (lambda: BestOfN.parse(["n=1.5"]), "n is '1.5'; it must be a whole number"),
        (lambda: KINDS["ancestral"].of({"n": 1}), "it takes no option of its own"),
    ):
        with pytest.raises(UserError, match=sentence):
            make()


def test_words_become_values():
    assert Option("ess", float, 0.5, "").parse("0.25") == 0.25
    assert Option("n", int, 1, "").parse(" 4 ") == 4
    flag = Option("into_prompt", bool, True, "")
    assert flag.flag == "--into-prompt"
    assert [flag.parse(word) for word in ("yes", "True", "no", "0")] == [True, True, False, False]
    word = Option("returns", str, "leaf", "", ("leaf", "last"))
    assert word.parse("last") == "last"
    with refused("name"):
        word.parse("node")
    with refused("name"):
        flag.parse("maybe")


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Option("n", int, 0.5, ""), "the default of option n is 0.5; .* a whole number"),
        (lambda: Option("n", int, True, ""), "the default of option n is True"),
        (lambda: Option("n", list, [], ""), "the type of option n is .*; it must be int, float"),
        (lambda: Option("w", str, "c", "", ("a",)), "default of option w is 'c'; .* one of a"),
        (lambda: Option("n", int, 1, "", ("1",)), "the choices of option n"),
    ],
)
def test_options_that_are_wrong_are_refused(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()


# ----------------------------------------------------------------------------- of a stranger


@dataclasses.dataclass(frozen=True)
class FirstOrLast(Algorithm[None]):
    """The likeliest token everywhere, or a draw."""

    title = "First or last"
    promise = "none"
    needs_verifier = False

    which: Literal["first", "draw"] = option("first", "what is taken")

    def run(self, run):
        while len(rows := run.open_rows()):
            run.take_argmax(rows) if self.which == "first" else run.draw(rows)


class NoDataclass(Algorithm[None]):
    def run(self, run): ...


@pytest.fixture
def installed(monkeypatch):
    """Packages that name these things in the entry point group."""

    def install(**loads):
        points = [
            SimpleNamespace(name=name, value=f"strange:{name}", load=lambda load=load: load())
            for name, load in loads.items()
        ]
        monkeypatch.setattr(
            "triptych.inference.guided.algorithm.entry_points",
            lambda group: points if group == GROUP else [],
        )
        algorithms.cache_clear()

    yield install
    algorithms.cache_clear()


def test_an_installed_package_brings_an_algorithm(installed):
    installed(one=lambda: FirstOrLast)
    found = algorithms()
    assert found["first_or_last"] is FirstOrLast
    assert list(found)[:-1] == list(KINDS)
    result = found["first_or_last"]().sample(
        standing_at(Table.random(3, 4, seed=0), [], [1]), Noisy(), length=4, rng=0
    )
    assert result.complete.all()
    assert [each.choices for each in FirstOrLast.options()] == [("first", "draw")]


def test_a_broken_package_is_left_out_with_a_warning(installed):
    def broken():
        raise ImportError("no such file")

    installed(a=broken, b=lambda: 3, c=lambda: BestOfN, d=lambda: NoDataclass)
    with pytest.warns(UserWarning, match="an installed package") as warned:
        assert algorithms() == KINDS
    said = " ".join(str(each.message) for each in warned)
    for part in ("ImportError: no such file", "an algorithm best_of_n already", "is no dataclass"):
        assert part in said
    assert len(warned) == 4


def test_real_entry_points_are_read():
    """The group as packages are installed: none here names any."""
    assert all(point.group == GROUP for point in importlib.metadata.entry_points(group=GROUP))
