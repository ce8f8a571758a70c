"""The page on `triptych generate` runs as it stands, on a tiny model."""

import json
import re
from pathlib import Path

from tests.support.command_line import run
from tests.support.tiny_model_folder import save_tiny_model

from triptych.lab.generating.rows import COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "generate.md").read_text()


def block(kind, text=PAGE):
    return re.search(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)[1]


def test_the_commands_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tiny_model(tmp_path / "model")
    (tmp_path / "prompts.jsonl").write_text(block("json"))
    (tmp_path / "rule.py").write_text(block("python"))
    commands = block("sh", PAGE.split("## Run it")[1]).splitlines()
    assert len(commands) == 2
    for command in commands:
        done = run(*command.split()[1:])
        assert done.exit_code == 0, done.output
    for name in ("texts", "other"):
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert [row["id"] for row in rows] == [1, "second", "talk"]
    assert (tmp_path / "texts.settings.json").exists()
    assert len((tmp_path / "other.trace.jsonl").read_text().splitlines()) == 3
    assert all(row["text"].count("0") <= 1 for row in rows if row["accepted"])


def test_the_page_names_every_column():
    table = PAGE.split("## Rows")[1].split("\n\n")[2]
    assert re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines())) == [
        *COLUMNS
    ]
