"""Dataclasses go to JSON and come back; what does not fit its type is named."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triptych.core.validation import UserError
from triptych.studies.api.records import RecordError, from_json, has_nan, to_json
from triptych.studies.api.study import Rows, Study, Unit


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclass(frozen=True)
class Everything:
    count: int
    share: float
    name: str
    flag: bool
    maybe: float | None
    mode: Literal["a", "b"]
    colour: Colour
    pair: tuple[int, float]
    many: tuple[tuple[int, ...], ...]
    named: Mapping[str, float]
    point: Point
    points: tuple[Point, ...] = ()
    either: int | str = 0
    default: Mapping[str, int] = field(default_factory=dict)


WHOLE = Everything(
    3,
    0.5,
    "é",
    True,
    None,
    "a",
    Colour.RED,
    (1, 2.0),
    ((1,), ()),
    {"k": 1.5},
    Point(1.0),
    (Point(2.0),),
)


def test_there_and_back_through_text():
    text = json.dumps(to_json(WHOLE))
    assert from_json(Everything, json.loads(text)) == WHOLE
    assert json.loads(text)["pair"] == [1, 2.0]
    assert json.loads(text)["colour"] == "red"


def test_an_int_is_a_float_where_a_float_is_declared_and_stays_an_int_in_a_union():
    point = from_json(Point, {"x": 1})
    assert point == Point(1.0, 0.0)
    assert type(point.x) is float
    values = to_json(WHOLE) | {"either": 4}
    assert from_json(Everything, values).either == 4
    assert from_json(Everything, values | {"either": "four"}).either == "four"


@given(st.floats(allow_nan=False), st.one_of(st.none(), st.floats(allow_nan=False)))
def test_floats_come_back_bit_for_bit(share, maybe):
    @dataclass(frozen=True)
    class Row:
        share: float
        maybe: float | None

    row = Row(share, maybe)
    assert from_json(Row, json.loads(json.dumps(to_json(row)))) == row


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"count": 1.5}, "Everything: count is 1.5; it must be int"),
        ({"count": True}, "count is True; it must be int"),
        ({"share": "a"}, "share is 'a'; it must be float"),
        ({"mode": "c"}, "mode is 'c'; it must be 'a' or 'b'"),
        ({"colour": "blue"}, "colour is 'blue'; it must be Colour"),
        ({"pair": [1]}, "pair is a list; it must be tuple[int, float]"),
        ({"named": {"k": "v"}}, "named is a dict; it must be Mapping[str, float]"),
        ({"maybe": "a"}, "maybe is 'a'; it must be float | None"),
        ({"point": {"x": 1.0, "z": 2.0}}, "Point has no field 'z' (fields: x, y)"),
        ({"extra": 1}, "Everything has no field 'extra'"),
    ],
)
def test_what_does_not_fit_is_named(values, sentence):
    with pytest.raises(UserError) as error:
        from_json(Everything, to_json(WHOLE) | values)
    assert sentence in str(error.value)


def test_a_missing_field_is_named():
    with pytest.raises(UserError, match="Point needs the field 'x'"):
        from_json(Point, {"y": 1.0})


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (torch.tensor(1.0), "x is a Tensor; it must be float; .item() or .tolist()"),
        (numpy.float64(1.0), "; .item() or .tolist() turns it into plain numbers"),
        ([1.0], "x is a list; it must be float"),
    ],
)
def test_what_a_study_must_not_yield(x, sentence, unchecked_shapes):
    with pytest.raises(UserError) as error:
        to_json(Point(x), where="row 3, Point")
    assert str(error.value).startswith("row 3, Point: x is")
    assert sentence in str(error.value)


def test_nan_is_found_wherever_it_is():
    assert has_nan(math.nan)
    assert has_nan(Point(1.0, math.nan))
    assert has_nan({"a": (1.0, Point(math.nan))})
    assert not has_nan((1.0, -math.inf, None, "nan"))


def test_rows_of_one_kind():
    rows = Rows([Point(1.0), WHOLE, Point(2.0)])
    assert rows.of(Point) == [Point(1.0), Point(2.0)]
    assert (len(rows), rows[1], list(rows[:1])) == (3, WHOLE, [Point(1.0)])
    assert rows.asked == {Point}


@dataclass(frozen=True)
class Toss(Unit):
    bias: float
    steps: int = 3


def a_study(**more):
    return Study("toy", "?", {}, lambda s: [], lambda u, b: [], (Point,), **more)


def test_a_unit_is_named_by_its_fields_and_the_revision():
    study = a_study()
    assert study.parameters(Toss(0.5, seed=2)) == {"kind": "Toss", "bias": 0.5, "steps": 3}
    key = study.key(Toss(0.5, seed=2))
    assert key == "5ee58384f9157fa3"  # the same on every machine
    others = [
        study.key(Toss(0.25, seed=2)),
        study.key(Toss(0.5, seed=1)),
        study.key(Toss(0.5, 4, seed=2)),
        a_study(revision=2).key(Toss(0.5, seed=2)),
    ]
    assert len({key, *others}) == 5
    assert a_study(revision=2).key(Toss(0.5, seed=2), revision=1) == key


def test_a_study_says_what_its_rows_are():
    study = a_study()
    stored = study.row_to_json(Point(1.0), 0)
    assert stored == {"kind": "Point", "x": 1.0, "y": 0.0}
    assert study.row_from_json(stored) == Point(1.0)
    with pytest.raises(UserError, match="row 4 is a dict; study toy has rows of: Point"):
        study.row_to_json({"x": 1}, 4)
    with pytest.raises(UserError, match="no rows of kind 'Line'"):
        study.row_from_json({"kind": "Line"})

    @dataclass(frozen=True)
    class Kinded:
        kind: str

    with pytest.raises(UserError, match="a field 'kind'"):
        Study("toy", "?", {}, lambda s: [], lambda u, b: [], (Kinded,))


def test_the_order_of_a_union_is_kept():
    """Equal types are converted by their own order: the first that fits."""

    @dataclass(frozen=True)
    class Both:
        whole_first: tuple[int, ...] | tuple[float, ...]
        real_first: tuple[float, ...] | tuple[int, ...]

    read = from_json(Both, {"whole_first": [1, 2], "real_first": [1, 2]})
    assert str(read.whole_first) == "(1, 2)"
    assert str(read.real_first) == "(1.0, 2.0)"


def test_long_curves_are_checked_item_by_item():
    @dataclass(frozen=True)
    class Curve:
        values: tuple[float, ...]
        steps: tuple[int, ...]

    assert from_json(Curve, {"values": [1, 2.5], "steps": [1]}) == Curve((1.0, 2.5), (1,))
    assert str(from_json(Curve, {"values": [1, 2.5], "steps": []}).values) == "(1.0, 2.5)"
    for wrong in ({"values": [1.0, "2"], "steps": [1]}, {"values": [1.0], "steps": [1, 2.0]}):
        with pytest.raises(RecordError, match="it must be tuple"):
            from_json(Curve, wrong)
    with pytest.raises(RecordError):
        to_json(Curve((1.0, True), (1,)))
