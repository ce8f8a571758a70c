"""The records of the algorithms: complete, true of `sample`, and found without a list."""

import inspect
import sys

import pytest

from triptych.core.validation import UserError
from triptych.inference.guided import rejection
from triptych.inference.guided.algorithm import SHARED, Algorithm, Option, algorithms

RECORDS = algorithms()
each_algorithm = pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)


def test_all_algorithms_are_found():
    named = "adaptive ancestral backtracking best_of_n blocks particles rejection tokenwise vgb"
    assert set(RECORDS) >= set(named.split())
    assert RECORDS["rejection"] is rejection.ALGORITHM


@each_algorithm
def test_a_record_belongs_to_its_module(record):
    module = sys.modules[record.sample.__module__]
    assert module.__name__ == f"triptych.inference.guided.{record.name}"
    assert module.ALGORITHM is record
    assert module.sample is record.sample
    assert module.examples()
    assert record.title
    assert record.promise
    assert not record.promise.endswith(".")


@each_algorithm
def test_options_are_the_parameters_of_sample(record):
    """All that are plain values: `outcome` is a verifier, and `block_end` one or several tokens."""
    parameters = inspect.signature(record.sample).parameters
    own = [name for name in parameters if name not in (*SHARED, "outcome", "block_end")]
    assert sorted(option.name for option in record.options) == sorted(own)
    for name in own:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


def test_options_of_one_name_have_one_type():
    """They are one option of the command."""
    types = {}
    for record in RECORDS.values():
        for option in record.options:
            assert types.setdefault(option.name, option.type) is option.type
            assert option.meaning


def sample(decoder, verifier, *, depth=1, length, rng): ...


def test_settings_by_hand():
    record = Algorithm("own", "Own", sample, (Option("depth", int, 3, "how deep"),))
    assert record.settings() == {"depth": 3}
    assert record.settings({"depth": 5}) == {"depth": 5}
    assert record.parse(["depth=7"]) == {"depth": 7}
    with pytest.raises(UserError, match="own has no --dept; it takes --depth"):
        record.settings({"dept": 5})
    with pytest.raises(UserError, match="own has no --dept"):
        record.parse(["dept=5"])
    with pytest.raises(UserError, match="'depth' sets no option; it must be OPTION=VALUE"):
        record.parse(["depth"])
    with pytest.raises(UserError, match="depth is '1.5'; it must be a whole number"):
        record.parse(["depth=1.5"])


def test_words_become_values():
    assert Option("ess", float, 0.5, "").parse("0.25") == 0.25
    assert Option("n", int, 1, "").parse(" 4 ") == 4
    flag = Option("into_prompt", bool, True, "")
    assert flag.flag == "--into-prompt"
    assert [flag.parse(word) for word in ("yes", "True", "no", "0")] == [True, True, False, False]
    word = Option("returns", str, "leaf", "", ("leaf", "last"))
    assert word.parse("last") == "last"
    with pytest.raises(UserError, match="returns is 'node'; it must be one of leaf, last"):
        word.parse("node")
    with pytest.raises(UserError, match="into_prompt is 'maybe'; it must be True or False"):
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
        (lambda: Algorithm("own", "Own", 3), "sample is 3; it must be a function"),
        (lambda: Algorithm("own", "Own", sample, [1]), "the options of own are no tuple"),
        (
            lambda: Algorithm("own", "Own", sample, (Option("deep", int, 3, ""),)),
            "own has an option deep, and its `sample` has no parameter of that name",
        ),
    ],
)
def test_records_that_are_wrong_are_refused(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()
