"""`triptych claims`, `rows`, `report`, `export` and `import`: what is done with stored rows."""

import csv
import io
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.command_line import run

from triptych.core.status import Status
from triptych.lab.cli.claims import ChapterName
from triptych.lab.results import terminal
from triptych.lab.results.changes import Change
from triptych.lab.results.ledger import CHAPTERS, chapter, load_ledger
from triptych.lab.results.ranking import ClaimFinding, Judged
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale
from triptych.studies.api.verdicts import Check

COUNTED = sum(not entry.extension for entry in load_ledger())


def test_claims_fit_a_screen_and_can_be_filtered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(run("claims").stdout.splitlines()) <= 40
    listed = run("claims", "--chapter", "refinement").stdout
    assert "li.padir-speed" in listed
    assert "li.fig-4.1 " not in listed
    entries = [entry for entry in load_ledger() if chapter(entry.source) == "refinement"]
    assert f"Not run yet ({sum(not entry.extension for entry in entries)}, and " in listed
    ids = {entry.id for entry in load_ledger() if entry.source.startswith("li:3.1")}
    found = json.loads(run("claims", "--source", "li:3.1", "--json").stdout)
    assert (
        {line["id"] for line in found}
        == ids
        == {f"li.{n}" for n in ("thm-3.1.1", "thm-3.1.2", "prop-3.1.1", "prop-3.1.2")}
    )
    assert run("claims", "--source", "own").stdout.strip() == "No claim fits."
    assert run("claims", "--status", "fails").stdout.strip() == "No claim fits."
    assert run("claims", "--chapter", "nothing").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_claims_in_an_empty_folder_write_nothing(tmp_path):
    done = run("claims", "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "there are no results in" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_chapters_of_the_command_line_are_those_of_the_ledger():
    assert [name.value for name in ChapterName] == list(CHAPTERS)
    assert {chapter(entry.source) for entry in load_ledger()} == set(CHAPTERS)
    assert chapter("li:2.1.7.1") == "topics"
    assert chapter("li:4.2.1.1") == "masking"
    assert chapter("li:4.2.3 Speed") == "refinement"
    assert chapter("li:4 (contributions), 4.2.2") == "refinement"
    assert chapter("mine") == ""


def test_three_lines_after_a_run():
    page = Path("runs/report.html")
    entry = load_ledger()[0]
    code_runs = ClaimFinding("exact_heads", "smoke", False, "code runs")
    found = ClaimFinding("exact_heads", "laptop", False, "fails")
    smoke = Judged(entry, "not run yet", (code_runs,), "exact_heads")
    fails = Judged(entry, "fails", (found,), "exact_heads")
    holds = Judged(entry, "holds", (replace(found, status="holds"),), "exact_heads")
    change = Change(entry.id, entry.title, "holds", "fails")
    assert terminal.closing(None, page, [smoke]) == [
        "Changed: this is the first run here; 0 claims have a verdict.",
        "Open runs/report.html",
        "Next: `triptych run exact_heads --scale laptop` gives a verdict.",
    ]
    assert terminal.closing([change], page, [fails]) == [
        "Changed: wei.prop-3.4 fails.",
        "Open runs/report.html",
        "Next: `triptych claims wei.prop-3.4` shows why wei.prop-3.4 fails.",
    ]
    lines = terminal.closing([], page, [holds])
    assert lines[0] == "Changed: no verdict since the run before."
    assert "triptych report --lecture wei.prop-3.4" in lines[2]
    assert "and 2 more." in terminal.closing([change] * 6, page, [])[0]
    assert "triptych new study" in terminal.closing([], page, [])[2]


def test_rows_for_a_spreadsheet(tmp_path):
    out = str(tmp_path / "runs")
    run("run", "exact_heads", "--scale", "smoke", "--seeds", "1", "--workers", "0", "--out", out)
    table = list(
        csv.DictReader(io.StringIO(run("rows", "exact_heads", "--csv", "--out", out).stdout))
    )
    assert {row["kind"] for row in table} == {"Conditional", "Head", "Twins", "Defeat"}
    assert {row["scale"] for row in table} == {"smoke"}
    heads = run("rows", "exact_heads", "--kind", "Head", "--out", out).stdout.splitlines()
    assert all("wrong_labels" in json.loads(line) for line in heads)
    missing = run("rows", "exact_gap", "--csv", "--out", out)
    assert missing.exit_code == 2
    assert "has no rows of study exact_gap, nor are any bundled" in missing.stderr
    assert "`triptych run exact_gap` makes them" in missing.stderr


def test_bundled_rows_where_the_folder_has_none(tmp_path, monkeypatch):
    """Standard error says what they are, and a row says its file; own rows go before them."""
    monkeypatch.undo()  # of the fixture that hides them
    monkeypatch.chdir(tmp_path)
    printed = run("rows", "memory_heads", "--csv")
    assert printed.exit_code == 0, printed.output
    table = list(csv.DictReader(io.StringIO(printed.stdout)))
    files = Counter(row["file"] for row in table)
    assert set(files) == {"memory_heads.paper.json", "memory_heads.linear-readout.paper.json"}
    assert {row["scale"] for row in table} == {"paper"}
    assert printed.stderr == (
        "triptych: these rows are bundled, not of your own run: "
        + ", ".join(f"{n} rows of {file}" for file, n in files.items())
        + "\n"
    )
    assert not (tmp_path / "runs").exists()
    run("run", "exact_heads", "--scale", "smoke", "--seeds", "1", "--workers", "0")
    own = run("rows", "exact_heads")
    assert (own.stderr, "file" in json.loads(own.stdout.splitlines()[0])) == ("", False)
    for more in (["--bundled"], ["--scale", "paper"]):
        bundled = run("rows", "exact_heads", "--kind", "Head", *more)
        lines = [json.loads(line) for line in bundled.stdout.splitlines()]
        assert {line["scale"] for line in lines} == {"paper"}
        assert f"{len(lines)} rows of exact_heads.paper.json" in bundled.stderr
    wrong = run("rows", "exact_head")
    assert "nor are any bundled; did you mean exact_heads?" in wrong.stderr
    away = run("rows", "exact_heads", "--out", str(tmp_path / "elsewhere"))
    assert away.exit_code == 2, "a folder that was named must be there"


def test_bundled_evidence_from_one_folder_to_another(tmp_path, monkeypatch):
    """Run, export, and continue from the file elsewhere; the verdicts are shown as bundled."""
    there, here, kept = (str(tmp_path / name) for name in ("there", "here", "kept"))
    small = ["run", "exact_heads", "--scale", "laptop", "--workers", "0", "--set", "strings=20"]
    small += ["--set", "states=4", "--set", "wide=7"]
    run(*small, "--seeds", "1", "--out", there)
    told = run("export", "--scale", "laptop", "--out", there, "--to", kept)
    assert told.exit_code == 0, told.output
    file = tmp_path / "kept" / "exact_heads.laptop.json.xz"
    done = len(json.loads(run("evidence", str(file)).stdout)["units"])
    assert told.stdout.strip() == f"{file}: {done} units, {done} of them new"

    monkeypatch.setattr("triptych.lab.results.evidence.folder", lambda: tmp_path / "kept")
    monkeypatch.chdir(tmp_path)
    before = run("claims")
    assert before.exit_code == 0
    shown = run("claims", "wei.prop-3.4").stdout
    assert "laptop scale, bundled, cpu: holds" in shown
    assert "2 of these verdicts rest on bundled rows." in " ".join(before.stdout.split())
    line = json.loads(run("claims", "--json").stdout)[0]
    assert (line["status"], line["findings"][0]["bundled"]) == ("holds", True)
    assert line["findings"][0]["done"] == done - 1
    left_out = "1 more units of other settings are left out"  # DrawRegular with 20 strings
    assert left_out in line["findings"][0]["notes"]

    brought = run("import", "exact_heads.laptop", "--out", here)
    assert brought.exit_code == 0, brought.output
    assert f"{done} units brought in" in brought.stdout
    again = run(*small, "--seeds", "1", "--out", here)
    assert again.exit_code == 0, again.output
    assert "bundled, cpu" not in again.stdout  # all of it is a part of this run
    assert "imported)" in (tmp_path / "here" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export"], "there are no results in"),
        (["import", "no.paper.json"], "there is no file no.paper.json (no rows came with"),
    ],
)
def test_mistakes_about_kept_rows_are_one_sentence(arguments, sentence, tmp_path):
    result = run(*arguments, "--out", str(tmp_path / "runs"))
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "runs").exists()


def test_claims_before_anything_was_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("claims")
    assert result.exit_code == 0
    assert f"{COUNTED} are not run yet" in " ".join(result.stdout.split())
    assert run("report", "--to", "page.html").exit_code == 0
    assert "<html" in (tmp_path / "page.html").read_text()
    elsewhere = run("claims", "--out", "typo")
    assert elsewhere.exit_code == 2
    assert "there are no results in typo" in elsewhere.stderr


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "runs"
    with Store.open(folder) as store:
        run_study(Plan.of(find_studies()["exact_tuning"], Scale.SMOKE), store=store, workers=0)
    return str(folder)


def test_figures_are_written_as_files_that_stand_alone(small_run, tmp_path):
    done = run("report", "--out", small_run, "--figures", str(tmp_path / "figures"))
    assert done.exit_code == 0
    assert "1 figures in" in done.output
    (picture,) = (tmp_path / "figures").iterdir()
    assert picture.name == "exact_tuning-smoke-exact_tuning.svg"
    assert "var(--" not in picture.read_text()
    arguments = ["--format", "png, pdf,png", "--theme", "light,dark", "--out", small_run]
    done = run("figures", str(tmp_path / "more"), *arguments, "--study", "exact_tuning")
    assert done.stdout.strip() == f"4 files in {tmp_path / 'more'}"
    assert {
        path.name.removeprefix("exact_tuning-smoke-") for path in (tmp_path / "more").iterdir()
    } == {f"exact_tuning{end}" for end in (".png", ".pdf", "-dark.png", "-dark.pdf")}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["figures", "to", "--format", "gif"],
            "no format 'gif': choose from svg, png, pdf",
        ),
        (["figures", "to", "--theme", ","], "no theme is given: choose from light, dark"),
        (["figures", "to", "--study", "x"], "there is no study 'x': choose from exact_tuning"),
        (["report", "--lecture"], "--lecture needs the ids of claims"),
        (["report", "wei.fig-3-left"], "is an id without --lecture"),
        (["report", "--lecture", "wei.fig"], "there is no claim 'wei.fig'; did you mean"),
    ],
)
def test_mistakes_about_pages_are_one_sentence(
    arguments, sentence, small_run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments, "--out", small_run)
    assert done.exit_code == 2, done.output
    assert sentence in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_lecture_of_ones_own(small_run, tmp_path):
    path = tmp_path / "lecture.html"
    done = run("report", "--lecture", "li.fig-4.2", "--out", small_run, "--to", str(path))
    assert done.stdout.strip() == f"Open {path}"
    assert 'id="shown-li.fig-4.2"' in path.read_text()
    assert 'class="claim"' not in path.read_text()


WIDTHS = (80, 120, 200)


def check(sentence, value, wanted, **more):
    return Check(sentence, value, value - 1, value + 1, wanted, Status.HOLDS, "above", **more)


def table_of(checks, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    entry = next(entry for entry in load_ledger() if entry.id == "wei.thm-3.3")
    finding = ClaimFinding("s", "laptop", False, "holds", checks=checks)
    line = Judged(entry, "holds", (finding,), "s")
    terminal.print_results(Results([line]), ids={line.id}, everything=True, total=False)
    return capsys.readouterr().out


class Results:
    """What is there to print."""

    def __init__(self, lines):
        self.published, self.own = lines, {}


@pytest.mark.parametrize("width", WIDTHS)
def test_no_number_of_a_check_is_broken_over_lines(width, monkeypatch, capsys):
    """And no line is wider than COLUMNS, or ends in spaces, where a pipe reads."""
    checks = (
        check("a long sentence that says what is measured and where", 12.11, "> 9", published=10.3),
        check("share of networks " * 4, 0.1, "0 of 1043200", edge="a fact of the edge " * 3),
        check("short", 1e-7, "≤ 1e-09"),
    )
    text = table_of(checks, width, monkeypatch, capsys)
    assert max(map(len, text.splitlines())) <= width
    assert all(line == line.rstrip() for line in text.splitlines())
    for each in checks:
        assert terminal.found(each) in text
        assert each.wanted in text
    assert "published 10.3" in text


def test_numbers_go_below_the_sentence_where_there_is_no_room(monkeypatch, capsys):
    checks = (check("a sentence", 12.11, "> 9", published=10.3),)
    wide = table_of(checks, 120, monkeypatch, capsys)
    narrow = table_of(checks, 60, monkeypatch, capsys)
    assert re.search(r"a sentence +12\.11 \[11\.11, 13\.11\] +> 9 +published 10\.3$", wide, re.M)
    assert re.search(
        r"a sentence\n +12\.11 \[11\.11, 13\.11\], asked > 9, published 10\.3$", narrow, re.M
    )
