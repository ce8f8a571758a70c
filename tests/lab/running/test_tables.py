"""Rows as a DataFrame and as Parquet, read back by pyarrow and pandas."""

import json
import math
import sys

import pytest

from triptych.core.errors import UserError
from triptych.lab.running.tables import frame_of, write_parquet

RECORDS = [
    {"scale": "smoke", "seed": 1, "kind": "Loss", "loss": 0.1 + 0.2, "curve": [1.0, 2.5]},
    {"scale": "smoke", "seed": 2, "kind": "Loss", "loss": math.nan, "curve": []},
    {"scale": "smoke", "seed": 3, "kind": "Size", "size": 4, "by": {"a": 1}},
]


def test_a_frame_has_a_column_for_every_field():
    frame = frame_of(RECORDS)
    assert list(frame.columns) == ["scale", "seed", "kind", "loss", "curve", "size", "by"]
    assert frame["loss"][0] == 0.1 + 0.2


def test_parquet_keeps_numbers_bit_for_bit_lists_and_what_is_missing(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is in the extra tables")
    path = tmp_path / "rows.parquet"
    write_parquet(RECORDS, path, {"study": "mine"})
    table = parquet.read_table(path)
    back = table.to_pylist()
    assert back[0]["loss"] == 0.1 + 0.2
    assert back[0]["curve"] == [1.0, 2.5]
    assert math.isnan(back[1]["loss"])
    assert back[2]["loss"] is None
    assert back[2]["by"] == {"a": 1}
    assert json.loads(table.schema.metadata[b"triptych"]) == {"study": "mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_a_column_of_several_types_is_refused(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is in the extra tables")
    mixed = [{"value": 1}, {"value": "one"}]
    with pytest.raises(UserError, match="'value' has values of several types") as caught:
        write_parquet(mixed, tmp_path / "rows.parquet", {})
    assert caught.value.parameter == "kind"
    assert not list(tmp_path.iterdir())


def test_without_the_extra_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"triptych\[tables\]"):
        write_parquet(RECORDS, tmp_path / "rows.parquet", {})
    with pytest.raises(UserError, match=r"triptych\[tables\]"):
        frame_of(RECORDS)
