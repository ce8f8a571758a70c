"""The tool that trains diffusion models of text: its rows, and one model from tokens to a file."""

import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from triptych.models.saved import load_lm

PATH = Path(__file__).parents[2] / "tools" / "diffusion_on_gpu.py"
spec = importlib.util.spec_from_file_location("diffusion_on_gpu", PATH)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


def test_articles_and_records():
    assert tool.articles(" = A = \n x \n = = B = = \n = C = \n") == [
        " = A = \n x \n = = B = = \n",
        " = C = \n",
    ]
    source = 'class A:\n    def f(self, x):\n        "doc"\n'
    first, second = map(json.loads, tool.records(source))
    assert first == {"name": "A", "kind": "class", "line": 1, "doc": False}
    assert second["args"] == ["self", "x"]
    assert (second["kind"], second["doc"]) == ("method", True)


def test_rows():
    chain = tool.as_rows([[7] * 300], whole=False)
    assert chain.shape == (1, 256)
    rows = tool.as_rows([[7] * 200, [8] * 100, [9] * 300], whole=True)
    assert rows.shape == (2, 256)
    assert rows[0, 200] == tool.END
    assert rows[0, 201] == tool.PAD
    letters = tool.as_characters(["AB\n", "ä"])
    assert letters.shape == (1, 128)
    assert letters[0, :4].tolist() == [35, 36, 1, 0]


@pytest.mark.parametrize("kind", ["masked", "json"])
def test_a_model_of_text(kind, tmp_path, capsys):
    """Two steps of a tiny network, its rows, and the file that `load_lm` reads."""
    data = tmp_path / "data"
    data.mkdir()
    draw = np.random.default_rng(0)
    arrays = {"bytes": np.ones(50, dtype=np.uint8)}
    for part in ("train", "valid", "test"):
        for name in tool.DOMAINS:
            arrays[f"{name}.{part}"] = draw.integers(5, 50, (4, 256)).astype(np.uint16)
        arrays[f"characters.{part}"] = draw.integers(0, 97, (4, 128)).astype(np.uint8)
    np.savez(data / "tokens.npz", **arrays)
    (data / "facts.json").write_text(json.dumps({"words": 50, "digest": "none"}))
    options = {
        "kind": kind,
        "data": str(data),
        "out": str(tmp_path / "out"),
        "back": str(tmp_path / "back"),
    }
    options |= {
        "device": "cpu",
        "size": "tiny",
        "seed": 0,
        "batch": 2,
        "rate": 1e-3,
        "seconds": 60.0,
    }
    options |= {
        "reserve": 1.0,
        "steps": 2,
        "draws": 1,
        "most": 2,
        "compile": False,
        "no_weights": False,
    }
    (tmp_path / "back").mkdir()
    tool.train(argparse.Namespace(**options))
    text = (tmp_path / "back" / f"{kind}-0.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert rows[-1]["kind"] == "done"
    bounds = [row for row in rows if row["kind"] == "bound"]
    assert len(bounds) == (2 if kind == "json" else 8)
    assert all(row["bits_per_token"] > 4 for row in bounds)
    lm, about = load_lm(tmp_path / "back" / f"{kind}-0.safetensors")
    assert about["objective"] == kind
    assert lm.vocab_size == (97 if kind == "json" else 50)
