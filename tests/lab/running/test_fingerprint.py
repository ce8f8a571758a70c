"""Rows know their code: what changes a fingerprint, what does not, and what a run does about it."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import toy_studies
from tests.support.installed import package_in, put_on_path
from typer.testing import CliRunner

from triptych.lab.cli.app import app
from triptych.lab.results import evidence
from triptych.lab.running import fingerprint as code
from triptych.lab.running import sources
from triptych.lab.running.discovery import find_studies, load_study
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import EditedStudy, run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale

FILE = '''"""A study of one's own."""
from dataclasses import dataclass
import other_of_mine
from beside_of_mine import RATE, unused
from triptych.core.estimates import Status
from triptych.studies.api.decide import decide, exactly
from triptych.studies.api.figures import Figure
from triptych.studies.api.study import Claim, Scale, Settings, Study, Unit

@dataclass(frozen=True)
class Count(Unit):
    number: int

@dataclass(frozen=True)
class Counted:
    """What was counted."""
    number: int
    total: float

STEP = 2  # a constant that run uses
LIMIT = 1.0  # one that the judge uses

def units(settings):
    return [Count(number, seed=0) for number in range(3)]

def total(number):
    """A sum."""
    return number * STEP * RATE + other_of_mine.shift()

def run(unit, bench):
    from late_of_mine import late
    yield Counted(unit.number, float(total(unit.number) + late))

def judge(rows):
    return decide(exactly("largest", max((r.total for r in rows), default=0.0), below=LIMIT))

def draw(rows):
    return Figure("x", "A title", [])

STUDY = Study(
    "mine", "How many?", {Scale.SMOKE: Settings(), Scale.LAPTOP: Settings()}, units, run,
    (Counted,),
    claims=[Claim("mine.count", judge, [], title="It counts.")],
    figures=[draw],
)
'''
BESIDE = "RATE = 1.0\n\ndef unused():\n    return 1\n"
OTHER = "def shift():\n    return 0\n"
LATE = "late = 0\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a study of one's own and three modules next to it, forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("beside", BESIDE), ("other", OTHER), ("late", LATE)):
        (tmp_path / f"{name}_of_mine.py").write_text(text)
        monkeypatch.delitem(sys.modules, f"{name}_of_mine", raising=False)
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path


def fingerprint_in_a_new_process(folder: Path) -> str:
    """As the next command sees it: nothing is imported yet."""
    script = (
        "import sys; from triptych.lab.running.discovery import load_study; "
        "from triptych.lab.running.fingerprint import fingerprint; "
        "print(fingerprint(load_study(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder / "mine.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def edited(folder: Path, file: str, before: str, after: str) -> None:
    text = (folder / file).read_text()
    assert before in text
    (folder / file).write_text(text.replace(before, after))


def test_what_changes_a_fingerprint_and_what_does_not(folder):
    def now():
        return code.fingerprint(load_study(folder / "mine.py"))

    first = now()
    same = [
        ("mine.py", "# a constant that run uses", "# another comment"),
        ("mine.py", '"""A sum."""', '"""Another docstring."""'),
        ("mine.py", "LIMIT = 1.0", "LIMIT = 7.0"),
        ("mine.py", 'exactly("largest"', 'exactly("the largest"'),
        ("mine.py", "A title", "Another title"),
        ("mine.py", 'title="It counts."', 'title="It counts well."'),
        ("beside_of_mine.py", "return 1", "return 2"),
    ]
    for file, before, after in same:
        edited(folder, file, before, after)
    assert now() == first
    different = [
        ("mine.py", "STEP = 2", "STEP = 3"),
        ("mine.py", "number * STEP", "number + STEP"),
        ("mine.py", "range(3)", "range(2)"),
        ("mine.py", "    number: int\n    total", "    other: int\n    total"),
        ("beside_of_mine.py", "RATE = 1.0", "RATE = 2.0"),
        ("other_of_mine.py", "return 0", "return 1"),
        ("late_of_mine.py", "late = 0", "late = 1"),
    ]
    seen = {first}
    for file, before, after in different:
        edited(folder, file, before, after)
        assert now() not in seen, (file, before)
        seen.add(now())


def test_it_does_not_depend_on_where_the_file_lies_or_what_was_run_before(folder, tmp_path):
    before = code.fingerprint(load_study(folder / "mine.py"))
    assert before == fingerprint_in_a_new_process(folder)
    run_into(tmp_path / "runs", load_study(folder / "mine.py"))
    assert code.fingerprint(load_study(folder / "mine.py")) == before


def test_it_does_not_depend_on_how_the_file_is_loaded():
    by_path = load_study(Path(toy_studies.__file__))
    assert by_path is not toy_studies.STUDY
    assert code.fingerprint(by_path) == code.fingerprint(toy_studies.STUDY)


def test_every_study_of_ours_has_one_and_reaches_what_it_shares():
    found = {name: code.fingerprint(study) for name, study in find_studies().items()}
    assert all(len(text) == 12 for text in found.values())
    assert len(set(found.values())) == len(found)


def test_a_lambda_or_a_partial_stands_for_its_module():
    whole = dataclasses.replace(toy_studies.STUDY, run=lambda unit, bench: [])
    assert code.fingerprint(whole) not in ("", code.fingerprint(toy_studies.STUDY))


def test_a_cached_tensor_depends_on_the_code_that_makes_it():
    def make():
        return {}

    assert code.fingerprint_of(make)
    assert code.fingerprint_of(make) != code.fingerprint_of(toy_studies.run)
    assert code.fingerprint_of(json.dumps) == "", "not a study's own code"


def test_the_library_and_the_commit_are_known():
    found = code.code_of(toy_studies.STUDY)
    assert len(found.library) == 12
    assert found.commit == "" or len(found.commit) == 12


# ------------------------------------------------------------------------------ what a run does


def run_into(folder, study, **options):
    with Store.open(folder) as store:
        return run_study(Plan.of(study, Scale.SMOKE), store=store, workers=0, **options)


def rows_in(folder):
    with Store.read(folder) as store:
        return [row["total"] for row in store.rows("mine", Scale.SMOKE)]


def test_old_rows_are_never_used_unsaid(folder, tmp_path):
    out = tmp_path / "runs"
    assert run_into(out, load_study(folder / "mine.py")).done == 3
    edited(folder, "mine.py", "STEP = 2", "STEP = 5")
    study = load_study(folder / "mine.py")
    with pytest.raises(EditedStudy, match="was edited since 3 of its 3 units .* --fresh .* --keep"):
        run_into(out, study)
    assert rows_in(out) == [0.0, 2.0, 4.0]
    kept = run_into(out, study, old_rows="keep")
    assert (kept.done, kept.skipped, kept.older) == (0, 3, 3)
    assert run_into(out, study, old_rows="fresh").done == 3
    assert rows_in(out) == [0.0, 5.0, 10.0]
    assert run_into(out, study, old_rows="fresh").done == 0, "rows of today's code are fresh"
    assert run_into(out, study).skipped == 3


def test_a_new_revision_makes_new_units(folder, tmp_path):
    out = tmp_path / "runs"
    study = load_study(folder / "mine.py")
    run_into(out, study)
    later = dataclasses.replace(study, revision=2)
    assert run_into(out, later).done == 3
    with Store.read(out) as store:
        assert [unit.revision for unit in store.units("mine", Scale.SMOKE)] == [2, 2, 2]
        assert len(store.units("mine", Scale.SMOKE, outdated=True)) == 6


def test_the_library_changed_is_said_and_no_reason_to_stop(folder, tmp_path, monkeypatch):
    out, study = tmp_path / "runs", load_study(folder / "mine.py")
    run_into(out, study)
    monkeypatch.setattr(code, "library_digest", lambda: "other")
    again = run_into(out, study)
    assert (again.done, again.skipped, again.older) == (0, 3, 3)
    assert run_into(out, study, old_rows="fresh").done == 3


def test_the_command_line_asks(folder, tmp_path, monkeypatch):
    """A script is refused with a sentence; the options decide."""
    monkeypatch.setattr(
        "triptych.lab.results.evidence.folder", lambda: None
    )  # nothing bundled to draw
    out = str(tmp_path / "runs")

    def run(*more):
        line = ["run", str(folder / "mine.py"), "--scale", "smoke", "--workers", "0", "--out", out]
        return CliRunner().invoke(app, [*line, *more])

    assert run().exit_code == 0
    assert run("--seeds", "4").exit_code == 0  # a larger plan is the current one now
    edited(folder, "mine.py", "STEP = 2", "STEP = 5")
    refused = run()
    assert refused.exit_code == 2
    assert "study mine was edited since 3 of its 3 units" in refused.stderr
    both = run("--fresh", "--keep")
    assert (both.exit_code, "opposite things" in both.stderr) == (2, True)
    kept = run("--keep")
    assert kept.exit_code == 0
    assert "3 units were made by other code than today's" in kept.stderr
    page = (tmp_path / "runs" / "report.html").read_text()
    assert "edited since 3 of these units were made" in page
    assert run("--fresh").exit_code == 0
    assert rows_in(tmp_path / "runs") == [0.0, 5.0, 10.0]
    edited(folder, "mine.py", "LIMIT = 1.0", "LIMIT = 50.0")
    assert run().exit_code == 0, "a judge is no reason to make rows again"


def test_a_renaming_is_no_edit(folder, tmp_path):
    """Rows stay good when a constant gets another name, and not when it gets another value."""
    out, study = tmp_path / "runs", load_study(folder / "mine.py")
    before = code.code_of(study)
    assert run_into(out, study).done == 3
    edited(folder, "mine.py", "STEP", "PACE")
    renamed = load_study(folder / "mine.py")
    assert code.fingerprint(renamed) != before.fingerprint
    assert code.shape_digest(renamed) == before.shape
    assert run_into(out, renamed).skipped == 3
    edited(folder, "mine.py", "PACE = 2", "PACE = 3")
    with pytest.raises(EditedStudy):
        run_into(out, load_study(folder / "mine.py"))


def test_rows_without_a_shape_are_known_by_their_fingerprint():
    """Units of runs from before there were shapes."""
    today = code.Code("a", "library", shape="s")
    assert code.same_study_code(code.Code("a", "library"), today)
    assert code.same_study_code(code.Code("b", "other", shape="s"), today)
    assert not code.same_study_code(code.Code("b", "library"), today)
    assert not code.same_study_code(code.Code("b", "library"), code.Code("a", "library"))
    assert not code.same_code(code.Code("b", "other", shape="s"), today)


def test_bundled_rows_were_made_by_code_that_is_known():
    """Evidence without a fingerprint is older than fingerprints, and evidence of an earlier
    revision says itself that it is old; any other is of today's code."""
    studies = find_studies()
    today = {name: code.code_of(study) for name, study in studies.items()}
    for file in evidence.files(evidence.folder()):
        for unit in evidence.load(file).units:
            if unit.code is not None and unit.revision >= studies[unit.study].revision:
                assert code.same_study_code(unit.code, today[unit.study]), file.name
                assert unit.code.shape == today[unit.study].shape, file.name


# ------------------------------------------------------------------------- whose a module is


def test_a_package_is_installed_wherever_it_lies(tmp_path, monkeypatch):
    """`pip install --target FOLDER` puts packages outside of site-packages."""
    target, mine = tmp_path / "target", tmp_path / "project"
    theirs = package_in(target, "theirs_for_a_test")
    own = package_in(mine, "mine_for_a_test", installed=False)
    put_on_path(monkeypatch, target, mine)
    assert not sources.is_own(sources.Source("theirs_for_a_test", theirs))
    assert sources.is_own(sources.Source("mine_for_a_test", own))


def test_python_and_its_packages_are_no_files_of_a_user():
    for module in (json, pytest, subprocess):
        source = sources.source_of_module(module.__name__)
        assert source is not None
        assert not sources.is_own(source)


def test_an_editable_project_is_its_users_own(tmp_path, monkeypatch):
    """Its distribution lists no file of the package, which lies in the user's folder."""
    site, project = tmp_path / "site", tmp_path / "project"
    own = package_in(project, "edited_for_a_test", installed=False)
    info = site / "edited_for_a_test-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: edited_for_a_test\nVersion: 1\n")
    (info / "RECORD").write_text("edited.pth,,\n")
    (info / "top_level.txt").write_text("edited_for_a_test\n")
    put_on_path(monkeypatch, site, project)
    assert sources.is_own(sources.Source("edited_for_a_test", own))
