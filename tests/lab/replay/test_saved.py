"""A trace that a gateway gave, opened by `triptych replay`."""

import json
import re

import pytest
from starlette.testclient import TestClient
from tests.support.command_line import run
from tests.support.tiny_text_model import tiny_lm

from triptych.apps.gateway.rules import Rule, Rules
from triptych.apps.gateway.site import Gateway
from triptych.inference.guided.backtracking import Backtracking
from triptych.lab.replay.saved import read_trace


@pytest.fixture(scope="module")
def answer():
    rule = Rule("short", "no b", "text", lambda: lambda text: "b" not in text)
    rules = Rules("tiny", [rule], Backtracking(quota=3, stride=2))
    gateway = Gateway(tiny_lm(seed=3), rules)
    client = TestClient(gateway.app(), base_url="http://localhost")
    body = {"prompt": "a", "n": 3, "max_tokens": 10, "seed": 1, "triptych": {"trace": True}}
    found = client.post("/v1/completions", json=body).json()
    gateway.workers.close(30)
    return found


def data_of(page):
    (side,) = json.loads(re.search(r'id="trace-data">(.*?)</script>', page, re.DOTALL)[1])["sides"]
    return side


def test_the_page_has_what_happened(answer, tmp_path):
    file, out = tmp_path / "answer.json", tmp_path / "replay.html"
    file.write_text(json.dumps(answer))
    done = run("replay", str(file), "--out", str(out))
    assert done.exit_code == 0, done.output
    data = data_of(out.read_text())
    assert len(data["rows"]) == 3
    for row, choice, about in zip(
        data["rows"], answer["choices"], answer["triptych"]["choices"], strict=True
    ):
        text = "".join(data["names"][token] for token in row["final"])
        assert text == choice["text"]
        assert row["totals"] == about["costs"]
        assert row["generated"][-1] == about["costs"]["generated"]
    assert any(event[0] == "backtrack" for row in data["rows"] for event in row["events"])


def test_the_trace_alone_is_the_same(answer, tmp_path):
    whole, alone = tmp_path / "whole.json", tmp_path / "alone.json"
    whole.write_text(json.dumps(answer))
    alone.write_text(json.dumps(answer["triptych"]["trace"]))
    one, other = read_trace(whole), read_trace(alone)
    assert one.result.trace == other.result.trace
    assert one.names == other.names


@pytest.mark.parametrize(
    "change",
    [
        lambda trace: {},
        lambda trace: [],
        lambda trace: {"triptych": {"trace": 1}},
        lambda trace: {"triptych": 1},
        lambda trace: trace | {"format": "x"},
        lambda trace: trace | {"rows": []},
        lambda trace: trace | {"rows": [{}]},
        lambda trace: trace | {"rows": 1},
        lambda trace: trace | {"names": {}},
        lambda trace: trace | {"options": None},
    ],
)
def test_what_is_no_trace_is_a_sentence(answer, tmp_path, change):
    file = tmp_path / "x.json"
    file.write_text(json.dumps(change(answer["triptych"]["trace"])))
    done = run("replay", str(file), "--out", str(tmp_path / "x.html"))
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("triptych: ")


def test_a_file_that_is_not_there_is_a_sentence(tmp_path):
    (tmp_path / "half.json").write_text("{")
    for name in ("absent.json", "half.json"):
        assert run("replay", str(tmp_path / name)).exit_code == 2
