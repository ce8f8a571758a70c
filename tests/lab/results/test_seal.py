"""What is under seal, what breaks it, and how rows that are made again turn it."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.refusals import refused
from typer.testing import CliRunner

from triptych.core.validation import UserError
from triptych.lab.cli.app import app
from triptych.lab.results import evidence, seal, verification
from triptych.lab.results.packed import read, write
from triptych.lab.running.discovery import find_studies, load_study
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale

FILE = """from dataclasses import dataclass

from triptych.studies.api.study import Scale, Settings, Study, Unit

STEP = 2


@dataclass(frozen=True)
class Count(Unit):
    number: int


@dataclass(frozen=True)
class Counted:
    number: int
    total: float


def units(settings):
    return [Count(number, seed=0) for number in range(4)]


def run(unit, bench):
    total = 0.1 * unit.number * STEP
    yield Counted(unit.number, total)


STUDY = Study("counted", "How many?", {Scale.PAPER: Settings()}, units, run, (Counted,))
"""


@dataclass
class Bundle:
    """A study in a file of its own, and a folder with its evidence."""

    source: Path
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "counted.paper.json.xz"

    def study(self):
        return load_study(self.source)

    def edit(self, before: str, after: str) -> None:
        text = self.source.read_text()
        assert before in text
        self.source.write_text(text.replace(before, after))

    def sealed(self) -> seal.SealedFile:
        (found,) = seal.sealed_files({"counted": self.study()}, where=self.folder)
        return found

    def verify(self, **options) -> verification.Verified:
        return verification.verify(self.file, self.study(), **options)

    def rows(self) -> list:
        return [unit["rows"] for unit in json.loads(read(self.file))["units"]]


@pytest.fixture
def bundle(tmp_path):
    source = tmp_path / "counted_of_mine.py"
    source.write_text(FILE)
    made = Bundle(source, tmp_path / "evidence")
    with Store.open(tmp_path / "runs") as store:
        run_study(Plan.of(made.study(), Scale.PAPER), store=store, workers=0)
    evidence.export(tmp_path / "runs", ["counted"], Scale.PAPER, made.folder)
    return made


def test_what_breaks_a_seal_and_what_does_not(bundle):
    assert (bundle.sealed().whole, bundle.sealed().broken) == (4, 0)
    bundle.edit("total = 0.1", "amount: float = 0.1")
    bundle.edit("unit.number, total", "unit.number, amount")
    assert (bundle.sealed().whole, bundle.sealed().broken) == (4, 0)
    bundle.edit("STEP = 2", "STEP = 3")
    found = bundle.sealed()
    assert (found.whole, found.broken, found.older) == (0, 4, 0)
    assert found.broken_hours == found.hours


def test_units_of_an_earlier_revision_are_not_under_seal(bundle):
    bundle.edit("(Counted,))", "(Counted,), revision=2)")
    found = bundle.sealed()
    assert (found.whole, found.broken, found.older) == (0, 0, 4)
    assert bundle.verify().skipped == {"they are of an earlier revision of the study": 4}


def test_rows_that_agree_turn_the_seal(bundle):
    rows = bundle.rows()
    bundle.edit("0.1 * unit.number * STEP", "STEP * 0.1 * unit.number")
    assert bundle.sealed().broken == 4
    assert bundle.verify(record=False).agrees
    assert bundle.sealed().broken == 4, "it was only compared"
    found = bundle.verify(sample=2)
    assert found.agrees
    assert (len(found.compared), found.recorded) == (2, 4)
    assert (bundle.sealed().whole, bundle.sealed().broken) == (4, 0)
    assert bundle.rows() == rows
    assert bundle.verify().recorded == 0, "the second time there is nothing to record"


def test_rows_that_differ_do_not(bundle):
    before = bundle.file.read_bytes()
    bundle.edit("STEP = 2", "STEP = 3")
    found = bundle.verify(sample=4)
    assert not found.agrees
    assert [bool(each.reason) for each in found.compared].count(True) == 3, "0 times 3 is 0 too"
    assert bundle.file.read_bytes() == before


def test_rounding_is_stated_and_not_more(bundle):
    bundle.edit("0.1 * unit.number * STEP", "0.1 * unit.number * STEP * (1 + 1e-12)")
    assert not bundle.verify(sample=4, rounding=1e-14, record=False).agrees
    found = bundle.verify(sample=4, rounding=1e-9)
    assert found.agrees
    assert 0 < max(each.difference for each in found.compared) <= 1e-9


def test_a_unit_that_fails_does_not_agree(bundle):
    bundle.edit("    yield Counted", "    assert unit.number < 2\n    yield Counted")
    found = bundle.verify(sample=4)
    assert sorted("it failed" in each.reason for each in found.compared) == [False] * 2 + [True] * 2
    assert found.recorded == 0


def test_units_that_cannot_be_made_here_are_left_out(bundle):
    text = read(bundle.file)
    write(bundle.file, text.replace('"device": "cpu"', '"device": "cuda"', 3))
    found = bundle.verify()
    # where there is a GPU the three are made there, with the same rows
    assert len(found.compared) + sum(found.skipped.values()) == 4
    assert bundle.verify(limit_s=1e-9).skipped.keys() >= {"they took longer than 1e-09 s"}
    assert not bundle.verify(limit_s=1e-9).agrees, "nothing was compared"
    with pytest.raises(UserError):
        bundle.verify(sample=0)


def test_the_sample_depends_on_its_seed_alone(bundle):
    def chosen(seed):
        return [each.label for each in bundle.verify(sample=2, seed=seed).compared]

    assert chosen(1) == chosen(1)
    assert len({tuple(chosen(seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize(
    ("old", "new", "apart"),
    [
        (2.0, 2.2, 0.2 / 2.2),
        (0.0, 1e-12, 1e-12),
        (float("nan"), float("nan"), 0.0),
        (float("inf"), float("inf"), 0.0),
        (float("inf"), 1.0, float("inf")),
        (3, 3, 0.0),
        (3, 4, float("inf")),
        (True, 1, float("inf")),
        (None, 0.0, float("inf")),
        ("a", "b", float("inf")),
        ([1.0, 2.0], [1.0, 2.5], 0.2),
        ([1.0], [1.0, 2.0], float("inf")),
        ({"a": 1.0}, {"a": 1.0}, 0.0),
        ({"a": 1.0}, {"b": 1.0}, float("inf")),
    ],
)
def test_how_far_values_are_apart(old, new, apart):
    assert verification.difference(old, new) == pytest.approx(apart, nan_ok=True)
    assert verification.difference(new, old) == pytest.approx(apart, nan_ok=True)


def test_the_code_under_seal_and_what_was_edited_of_it(bundle):
    git = ["git", "-C", str(bundle.source.parent), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    bundle.edit("0.1 * unit.number", "0.2 * unit.number")
    found = {each.name: each for each in seal.definitions(bundle.study(), "HEAD")}
    assert set(found) == {"STEP", "Count", "Counted", "units", "run"}
    assert [name for name, each in found.items() if each.edited] == ["run"]
    assert (found["run"].first, found["run"].last) == (23, 25)
    assert (found["Count"].first, found["Count"].last) == (8, 10), "with its decorator"
    with refused("against"):
        seal.definitions(bundle.study(), "HAED")
    assert seal.definitions(bundle.study()) == seal.definitions(bundle.study(), "HEAD")


def test_the_code_under_seal_where_there_is_no_commit(bundle, monkeypatch):
    """As in an installed package, and in a repository that is new."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(bundle.source.parent.parent))
    for _ in range(2):
        found = seal.definitions(bundle.study())
        assert {each.name for each in found} == {"STEP", "Count", "Counted", "units", "run"}
        assert not any(each.edited for each in found)
        subprocess.run(["git", "init", "-q", str(bundle.source.parent)], check=True)


# ----------------------------------------------------------------------------- the command line


def invoke(*line):
    return CliRunner().invoke(app, [str(each) for each in line])


def test_the_seal_of_our_own_evidence_is_whole():
    """Nobody edits sealed code without making rows again: see CONTRIBUTING."""
    said = invoke("seal", "--json")
    assert said.exit_code == 0
    files = json.loads(said.stdout)["files"]
    assert {each["study"] for each in files} <= find_studies().keys()
    assert {each["name"]: each["broken"] for each in files if each["broken"]} == {}


def test_seal_lists_the_code_of_a_study():
    said = invoke("seal", "vgb_walk")
    assert said.exit_code == 0
    assert "src/triptych/studies/generation/vgb_walk.py" in said.stdout
    assert "_walked" in said.stdout
    assert "exact_heads" not in said.stdout
    assert invoke("seal", "no_such_study").exit_code == 2


@pytest.mark.numerical
def test_verify_rows_makes_bundled_rows_again(tmp_path):
    """The rows of this study were made on another machine."""
    name = "query_complexity.paper.json.xz"
    here = evidence.folder()
    assert here is not None
    (tmp_path / name).write_bytes((here / name).read_bytes())
    said = invoke(
        "verify-rows", "query_complexity", "--sample", 2, "--limit", 1, "--evidence", tmp_path
    )
    assert said.exit_code == 0, said.output
    assert said.stdout.count("the same") == 2
    assert (tmp_path / name).read_bytes() == (here / name).read_bytes(), "the seal is whole"
    assert invoke("verify-rows", "no_such_study").exit_code == 2
    assert invoke("verify-rows", "exact_gap").exit_code == 2, "no rows of it are bundled"
