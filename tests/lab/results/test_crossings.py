"""A study at crossed settings: what is stored, told and drawn, and what it leaves alone."""

import csv
import io
import json
import math

import pytest
from tests.support.command_line import OWN_STUDY, run, run_own

from triptych.core.errors import UserError
from triptych.lab.results import crossings, report_studies
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale

CROSSED = (
    OWN_STUDY.replace("a: int\n", "a: float\n    b: str\n")
    .replace("[Trial(1, seed=seed)", "[Trial.of(settings, seed=seed)")
    .replace(
        "yield Gain(unit.seed, -1.0 - 0.1 * unit.seed)",
        "if unit.a == 9: raise ValueError('nine')\n"
        "    yield Gain(unit.seed, (1 if unit.b == 'up' else -1) * (unit.a + 0.1 * unit.seed))",
    )
    .replace(
        "def units(",
        "@dataclass(frozen=True)\nclass Ours(Settings):\n    a: float = 1\n    b: str = 'up'\n\n"
        "def units(",
    )
    .replace("Settings(seeds=3)", "Ours(seeds=3)")
    .replace("Scale.SMOKE: Settings()", "Scale.SMOKE: Ours()")
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The study at four settings, after a plain run; what was printed, and the folder."""
    folder = tmp_path_factory.mktemp("crossed")
    file = folder / "mine.py"
    file.write_text(CROSSED)
    plain = run_own(file, "--no-report")
    assert plain.exit_code == 0, plain.output
    done = run_own(file, "--set", "a=1,4", "--set", "b=up,down", "--cross")
    assert done.exit_code == 0, done.output
    return file, folder / "runs", done.stdout


@pytest.fixture(autouse=True)
def nothing_bundled(monkeypatch):
    monkeypatch.setattr("triptych.lab.results.evidence.folder", lambda: None)


@pytest.fixture(scope="module", autouse=True)
def nothing_bundled_while_running():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triptych.lab.results.evidence.folder", lambda: None)
        yield


def test_each_combination_is_judged_by_its_own_rows(made):
    """By hand: gains a, a + 0.1, a + 0.2 with the sign of b; published is 2, half of it 1."""
    _, out, printed = made
    (found,) = crossings.kept(out)
    said = {point.values: point.verdicts["mine.gain"] for point in found.points}
    assert said[("4", "up")] == "holds"
    assert said[("1", "down")] == said[("4", "down")] == "fails"
    values = {point.values: point.measures[0].value for point in found.points}
    assert values[("1", "up")] == pytest.approx(1.1)
    assert values[("4", "down")] == pytest.approx(-4.1)
    titles, rows = crossings.table(found, "mine.gain")
    assert titles == ["a", "b=up", "b=down"]
    assert [row[0] for row in rows] == ["1", "4"]
    assert rows[1][1:] == ["holds", "fails"]
    assert "✓ 4.1 [" in printed


def test_the_verdicts_of_the_folder_stay(made):
    """The plain plan is the current one again; its units were run once."""
    _, out, _ = made
    with Store.read(out) as store:
        current = store.units("mine", Scale.LAPTOP)
        stored = store.units("mine", Scale.LAPTOP, outdated=True)
    assert [(unit.parameters["a"], unit.parameters["b"]) for unit in current] == [(1.0, "up")] * 3
    assert len(stored) == 12
    listed = json.loads(run("claims", "mine.gain", "--json", "--out", str(out)).stdout)
    assert listed[0]["status"] in ("holds", "undecided", "fails")


def test_rows_with_their_settings(made):
    _, out, _ = made
    printed = run("rows", "mine", "--crossed", "--csv", "--out", str(out)).stdout
    table = list(csv.DictReader(io.StringIO(printed)))
    assert len(table) == 12
    assert {(row["set.a"], row["set.b"]) for row in table} == {
        (a, b) for a in "14" for b in ("up", "down")
    }
    assert float(table[-1]["gain"]) == pytest.approx(-4.2)
    plain = run("rows", "mine", "--out", str(out)).stdout.splitlines()
    assert len(plain) == 3


def test_the_report_has_a_figure_and_tables(made):
    _, out, _ = made
    (found,) = crossings.kept(out)
    figure = crossings.figure(found)
    (panel,) = figure.panels
    assert [series.label for series in panel.series] == ["b=up", "b=down"]
    assert panel.series[0].x == (1.0, 4.0)
    assert panel.series[1].y == pytest.approx((-1.1, -4.1))
    view = report_studies.crossed_view(0, found)
    assert view["figure"].error == ""
    page = (out / "report.html").read_text()
    assert 'id="crossings"' in page
    assert "✗" in page[page.index('id="crossings"') :]


def test_json_and_one_field_of_words(made, tmp_path):
    file, _, _ = made
    out = ["--out", str(tmp_path / "runs"), "--workers", "0", "--no-report", "--json"]
    done = run("run", str(file), "--set", "b=down,up", "--cross", *out)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [point["values"] for point in found["points"]] == [["down"], ["up"]]
    (kept,) = crossings.kept(tmp_path / "runs")
    assert crossings.figure(kept).panels[0].x_names == ["down", "up"]
    assert crossings.table(kept, "mine.gain")[0] == ["b", "verdict"]


def test_a_unit_that_fails_sets_the_exit_code_and_is_named(made, tmp_path):
    file, _, _ = made
    out = ["--out", str(tmp_path / "runs"), "--workers", "0", "--no-report"]
    done = run("run", str(file), "--set", "a=9,1", "--cross", *out)
    assert done.exit_code == 1
    assert "a=9: 3 units failed" in done.stderr
    (kept,) = crossings.kept(tmp_path / "runs")
    assert [point.done for point in kept.points] == [0, 3]
    assert kept.points[0].verdicts["mine.gain"] == "undecided"


def test_a_study_without_claims_has_the_means_of_its_columns(made, tmp_path):
    file = tmp_path / "plain.py"
    claim = CROSSED[CROSSED.index("    claims=[") : CROSSED.index("    figures=")]
    file.write_text(CROSSED.replace(claim, ""))
    out = ["--out", str(tmp_path / "runs"), "--workers", "0", "--no-report"]
    done = run("run", str(file), "--set", "a=1,4", "--cross", *out)
    assert done.exit_code == 0, done.output
    (kept,) = crossings.kept(tmp_path / "runs")
    assert kept.measures == [("", "mean of Gain.gain")]
    assert kept.points[1].measures[0].value == pytest.approx(4.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "FILE", "FILE", "--set", "a=1,4", "--cross"], "2 are named"),
        (["run", "FILE", "--cross"], "several values"),
        (["rows", "mine", "--crossed"], "no crossed settings"),
        (["rows", "mine", "--crossed", "--bundled"], "leave --bundled out"),
    ],
)
def test_what_cannot_be_done(made, tmp_path, arguments, words):
    file, _, _ = made
    given = [str(file) if each == "FILE" else each for each in arguments]
    done = run(*given, "--out", str(tmp_path / "runs"))
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_file_that_was_changed_is_refused(tmp_path):
    (tmp_path / crossings.FOLDER).mkdir()
    (tmp_path / crossings.FOLDER / "mine.laptop.json").write_text('{"study": 3}')
    with pytest.raises(UserError, match="no file of crossed settings"):
        crossings.kept(tmp_path)


def test_a_number_without_an_interval():
    alone = crossings.Measure("c", "s", 0.5, math.nan, math.nan, "holds")
    assert str(alone) == "✓ 0.5"
    assert str(crossings.Measure("c", "s", 0.5, 0.4, 0.6)) == "0.5 [0.4, 0.6]"
