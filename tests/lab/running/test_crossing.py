"""Combinations of settings: which there are, and what is no list of values."""

from dataclasses import dataclass

import pytest

from triptych.core.errors import UserError
from triptych.lab.running.crossing import Crossing, values_in
from triptych.studies.api.study import Scale, Settings, Study, Unit


@dataclass(frozen=True)
class Sizes(Settings):
    size: int = 1
    names: tuple[str, ...] = ("a",)


@dataclass(frozen=True)
class Trial(Unit):
    size: int


@dataclass(frozen=True)
class Row:
    value: float


STUDY = Study(
    name="crossed",
    question="?",
    settings={Scale.SMOKE: Sizes(seeds=2)},
    units=lambda settings: [Trial.of(settings, seed=s) for s in range(settings.seeds)],
    run=lambda unit, bench: [Row(unit.size)],
    rows=(Row,),
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("2", ["2"]),
        ("2,3", ["2", "3"]),
        (" x , y ", ["x", "y"]),
        ("[100, 400],[1600]", ["[100, 400]", "[1600]"]),
        ('"a,b",c', ['"a,b"', "c"]),
    ],
)
def test_values_between_commas(text, values):
    assert values_in(text) == values


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "an empty value"), ("1,,2", "an empty value"), ("1,1", "a value twice"), ("[1,2", "end")],
)
def test_what_is_no_list_of_values(text, words):
    with pytest.raises(UserError, match=words) as caught:
        values_in(text, "size")
    assert caught.value.parameter == "assign"


def test_all_combinations_the_last_field_turning_fastest():
    crossing = Crossing.of(STUDY, Scale.SMOKE, {"size": "1,2", "names": "a,b"}, seeds=3)
    assert [point.values for point in crossing.points] == [
        ("1", "a"),
        ("1", "b"),
        ("2", "a"),
        ("2", "b"),
    ]
    settings = [point.plan.settings for point in crossing.points]
    assert settings[3] == Sizes(seeds=3, size=2, names=("b",))
    keys = [{unit.key for unit in point.plan.units} for point in crossing.points]
    assert keys[0] == keys[1] != keys[2], "the names are no field of a unit"


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        ({}, "several values"),
        ({"size": "2"}, "given: size=2"),
        ({"sise": "1,2"}, "did you mean 'size'"),
        ({"size": "1,x"}, "size"),
    ],
)
def test_what_cannot_be_crossed(assignments, words):
    with pytest.raises(UserError, match=words):
        Crossing.of(STUDY, Scale.SMOKE, assignments)
