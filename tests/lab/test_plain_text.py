"""What others wrote cannot steer a terminal, run in a spreadsheet or leave a folder."""

import csv
import io
import re
import sys
from dataclasses import dataclass, replace

import pytest
from tests.support import toy_studies
from tests.support.command_line import run

from triptych.core.validation import UserError
from triptych.lab.cli import errors
from triptych.lab.plain_text import echo, escape, plain
from triptych.lab.results import evidence
from triptych.lab.running.plan import Plan
from triptych.lab.running.progress import Bar, Lines
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.figures import Figure
from triptych.studies.api.study import Scale, Unit

HOSTILE = "\x1b[2J\x1b]0;title\x07[red]a\u202eb\x9bc\rd\n\tü 文 🙂\ud800"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800]")


def test_worked_texts():
    assert plain("\x07a") == r"\x07a"
    assert plain(HOSTILE) == (
        r"\x1b[2J\x1b]0;title\x07[red]a\u202eb\x9bc\rd" + "\n\tü 文 🙂" + r"\ud800"
    )
    assert plain("a\n\tb", lines=False) == r"a\n\tb"
    assert escape("[red]\x1b") == r"\[red]\x1b"


def test_every_sign_that_steers_is_written_out():
    for number in [*range(0x300), *range(0x2000, 0x2100), 0x61C]:
        sign = chr(number)
        controls = number < 32 or 127 <= number < 160
        turns = number in (0x61C, 0x200E, 0x200F, 0x2028, 0x2029)
        turns |= 0x202A <= number <= 0x202E or 0x2066 <= number <= 0x2069
        kept = not (controls or turns) or sign in "\n\t"
        assert (plain(sign) == sign) is kept, hex(number)


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_a_pipe_gets_the_text_and_a_terminal_a_plain_one(monkeypatch):
    for stream, wanted in ((io.StringIO(), "\u202ea\x07\n"), (Screen(), "\\u202ea\\x07\n")):
        monkeypatch.setattr(sys, "stdout", stream)
        echo("\u202ea\x07")
        assert stream.getvalue() == wanted


def test_an_error_is_plain(capsys):
    errors.warn(f"there is no file {HOSTILE}")
    assert not STEERING.search(capsys.readouterr().err)


@dataclass(frozen=True)
class Named(Unit):
    name: str


def hostile_units(settings):
    return [Named(name, seed=0) for name in (HOSTILE[:-1], "=b", "+c")]


def run_hostile(unit, bench):
    if unit.name == "+c":
        raise ArithmeticError(HOSTILE[:-1])
    yield Cell(HOSTILE[:-1], "=cmd|' /C calc'!A0", -1.5, (unit.name,))


@dataclass(frozen=True)
class Cell:
    text: str
    formula: str
    number: float
    several: tuple[str, ...]


HOSTILE_STUDY = replace(
    toy_studies.STUDY, name="toy/hostile", units=hostile_units, run=run_hostile, rows=(Cell,)
)


@pytest.mark.parametrize("display", [Lines, Bar])
def test_progress_is_plain(tmp_path, display):
    stream = io.StringIO()
    show = display(stream)
    with show, Store.open(tmp_path) as store:
        run_study(Plan.of(HOSTILE_STUDY, Scale.SMOKE), store=store, workers=0, progress=show)
        show.say(HOSTILE)
    said = stream.getvalue()
    assert not STEERING.search(said)
    assert r"\x1b[2J" in said
    assert r"[red]a\u202eb" in said


def test_csv_runs_nothing_in_a_spreadsheet(tmp_path):
    with Store.open(tmp_path) as store:
        run_study(Plan.of(HOSTILE_STUDY, Scale.SMOKE), store=store, workers=0)
    out = run("rows", "toy/hostile", "--csv", "--out", str(tmp_path)).stdout
    assert not STEERING.search(out)
    first, second = csv.DictReader(io.StringIO(out, newline=""))
    assert first["formula"] == "'=cmd|' /C calc'!A0"
    assert first["number"] == "-1.5"
    assert first["text"] == plain(HOSTILE[:-1])
    assert (first["several"][0], second["several"]) == ("[", '["=b"]')


def test_every_start_of_a_formula(tmp_path):
    from triptych.lab.cli.rows import _cell

    for start in "=+-@\t\r":
        assert _cell(f"{start}1").startswith("'")
    for kept in (-1.5, 3, True, None, "a=1", "", "1-2", "'=1"):
        assert _cell(kept) == kept


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", ".", "..", "../../etc/x", "/a", "a/", "a//b", "a/../b", "a/.b", "-a", ".a"),
        *("x'; DROP TABLE units;--", "a b", "a\n", "a\\b", "a\x1b[2J", "a:b", "a" * 101),
    ],
)
def test_odd_names_of_studies_and_figures(name, tmp_path):
    with pytest.raises(UserError, match="the name of a study is"):
        replace(toy_studies.STUDY, name=name)
    with pytest.raises(UserError, match="the name of a figure is"):
        Figure(name, "", [])
    file = tmp_path / "x.smoke.json"
    found = evidence.Evidence(name, Scale.SMOKE, {}, [])
    file.write_text(evidence.text(found), "utf-8")
    with pytest.raises(evidence.EvidenceError, match="is damaged"):
        evidence.load(file)


def test_names_that_are_fine():
    for name in ("a", "toy/plain", "my_study-2.1", "größe", "a/b/c", "_x", "a" * 100):
        assert replace(toy_studies.STUDY, name=name).name == name
    assert Figure("loss_gap-2.1", "", []).name == "loss_gap-2.1"
    with pytest.raises(UserError, match="the name of a figure is 'a/b'"):
        Figure("a/b", "", [])
