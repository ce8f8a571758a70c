"""Kept evidence: what is committed is judged again; files go out and come back as they were."""

import dataclasses
import json
import lzma
import re
import tomllib
from pathlib import Path

import pytest
from tests.support import toy_studies

from triptych.core.estimates import Status
from triptych.core.files import FolderInUse, lock_folder
from triptych.lab.results import evidence, judging, terminal
from triptych.lab.results import gathering as results
from triptych.lab.results.ledger import load_ledger
from triptych.lab.results.packed import called, packed, read, write
from triptych.lab.results.plots import to_svg
from triptych.lab.results.ranking import ClaimFinding, StudyRun, judge_ledger
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.selection import ChosenStudy
from triptych.lab.running.store import Store
from triptych.studies.api.decide import decide, exactly
from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import AnyStudy, Claim, Rows, Scale

ROOT = Path(__file__).parents[3]
COMMITTED = evidence.files(evidence.folder())
NONE_YET = pytest.param(None, marks=pytest.mark.skip(reason="evidence/ has no study rows yet"))
ENTRY = "wei.prop-3.4"


def judge(rows):
    shares = [row.share for row in rows.of(toy_studies.Drawn)]
    share = sum(shares) / len(shares) if shares else 0.0
    return decide(exactly("mean share", share, below=1.0), measured={"s": share})


def figure(rows):
    shares = [row.share for row in rows.of(toy_studies.Drawn)]
    return Figure("share", "Shares", [Panel([Series("s", "ours", shares, shares)], "x", "y")])


TOY = dataclasses.replace(
    toy_studies.STUDY,
    settings={Scale.LAPTOP: toy_studies.ToySettings(), Scale.PAPER: toy_studies.ToySettings()},
    claims=[Claim(ENTRY, judge, [])],
    figures=[figure],
)
NAME, LAPTOP = TOY.name, Scale.LAPTOP


def run_toy(folder: Path, seeds: int = 1, study: AnyStudy = TOY, **overrides: str):
    with Store.open(folder) as store:
        return run_study(
            Plan.of(study, LAPTOP, overrides, seeds), store=store, workers=0, old_rows="keep"
        )


def export(folder: Path, to: Path, **more):
    return evidence.export(folder, [], LAPTOP, to, **more)


def bring_in(folder: Path, *files: Path, study: AnyStudy = TOY, **more):
    return evidence.bring_in(folder, list(map(str, files)), {study.name: study}, **more)


def changed(file: Path, change) -> Path:
    """The file with its parsed content changed, and written again."""
    content = json.loads(read(file))
    change(content)
    write(file, json.dumps(content))
    return file


@pytest.fixture
def file(tmp_path) -> Path:
    """Six units of the toy study, kept."""
    run_toy(tmp_path / "there")
    export(tmp_path / "there", tmp_path / "kept")
    return tmp_path / "kept" / "toy.plain.laptop.json.xz"


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """The package has the toy study alone, and ships what lies in the folder `kept`."""
    monkeypatch.setattr(results, "find_studies", lambda: {NAME: TOY})
    monkeypatch.setattr(evidence, "folder", lambda: tmp_path / "kept")

    def verdict(store: Store | None = None):
        return next(line for line in results.gather(store).published if line.id == ENTRY)

    return verdict


def page_of(path: Path, store: Store | None = None) -> str:
    results.write_report_of(results.gather(store), path)
    return path.read_text()


# ------------------------------------------------------------------------- what is committed


@pytest.mark.slow
@pytest.mark.parametrize("path", COMMITTED or [NONE_YET], ids=lambda path: path and called(path))
@pytest.mark.usefixtures("unchecked_shapes")
def test_what_is_committed_is_judged_again(path):
    found = evidence.load(path)
    own = evidence.file_name(found.study, found.scale)
    label = rf"{found.study}\.[a-z-]+\.{found.scale.value}\.json"
    assert called(path) == own or re.fullmatch(label, called(path))
    assert read(path) == evidence.text(found), "it was edited by hand"
    assert not re.search(r'"(/|[A-Z]:\\\\)\w', read(path)), "a path of a machine"
    study = find_studies()[found.study]
    layout = evidence.laid_out(found, study)
    done = [unit for unit in layout.units if unit.status == "done"]
    assert done, "the study plans none of these units any more"
    assert len(done) + len(layout.others) == len(found.units)
    if called(path) != own:
        assert layout.plan.settings != study.settings[found.scale], (
            "units of the study's own plan need no label"
        )
        assert not layout.others
    rows = Rows(study.row_from_json(row) for unit in done for row in unit.rows)
    for claim in study.claims:
        assert claim.verdict(rows).outcome in Status
    for draw in study.figures:
        assert to_svg(draw(rows)).startswith("<svg")


@pytest.mark.usefixtures("unchecked_shapes")
def test_what_is_committed_is_shown_without_problems():
    runs, problems = results.bundled_runs(evidence.folder())
    assert not problems
    assert len(runs) == len(COMMITTED)
    notes = [note for run in runs for found in run.findings.values() for note in found.notes]
    assert not [note for note in notes if "The judge raised" in note]


def test_the_file_of_the_plan_comes_before_those_with_a_label(tmp_path):
    names = [
        "a.shorter.paper.json",
        "a.paper.json",
        "a_b.paper.json",
        "a.first.paper.json.xz",
        "x.json",
        "x.json.xz",
    ]
    for name in names:
        (tmp_path / name).write_text("")
    found = [called(path) for path in evidence.files(tmp_path)]
    labelled = ["a.first.paper.json", "a.shorter.paper.json"]
    assert found == ["a.paper.json", *labelled, "a_b.paper.json"]


def test_speed_rows_are_not_study_evidence():
    folder = evidence.folder()
    assert folder == ROOT / "evidence"
    assert (folder / "core_cuda.json").is_file()
    assert not [path for path in COMMITTED if path.name.endswith("_cuda.json")]


# --------------------------------------------------------------------------- where it lives


def test_the_folder_is_found_in_a_checkout_and_in_a_wheel(tmp_path):
    checkout, wheel = tmp_path / "code" / "src" / "triptych", tmp_path / "site" / "triptych"
    for package in (checkout, wheel):
        package.mkdir(parents=True)
        assert evidence.folder(package) is None
    (tmp_path / "evidence").mkdir()  # lies next to site-packages by chance: nobody's evidence
    (tmp_path / "code" / "evidence").mkdir()
    assert evidence.folder(checkout) is None
    (tmp_path / "code" / "pyproject.toml").touch()
    assert evidence.folder(checkout) == tmp_path / "code" / "evidence"
    assert evidence.folder(wheel) is None
    (wheel / "evidence").mkdir()
    assert evidence.folder(wheel) == wheel / "evidence"
    assert evidence.files(None) == []


def test_the_wheel_ships_it():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert wheel["targets"]["wheel"]["force-include"] == {
        "evidence": "triptych/evidence",
        "src/triptych_pytest.py": "triptych_pytest.py",
    }
    ignored = (ROOT / ".gitignore").read_text().splitlines()  # what git ignores is not built
    assert not {"evidence/", "*.json", "*.xz"} & set(ignored)


# --------------------------------------------------------------------- compressed and plain


def test_a_text_is_the_same_bytes_and_comes_back(tmp_path):
    """Compressed bytes may differ between versions of liblzma; a text may not."""
    text = '{"é": [1e-300, NaN, "\U0001f600"]}\n' * 50
    assert packed(text) == packed(text)
    assert len(packed(text)) < len(text) / 10
    for path in (tmp_path / "a.json", tmp_path / "a.json.xz"):
        write(path, text)
        assert read(path) == text
        assert called(path) == "a.json"
    assert lzma.decompress((tmp_path / "a.json.xz").read_bytes()) == text.encode()


def test_a_file_with_this_text_stays_as_another_version_wrote_it(tmp_path):
    path = tmp_path / "a.json.xz"
    path.write_bytes(lzma.compress(b"[1]", preset=0))
    before = path.read_bytes()
    write(path, "[1]")
    assert path.read_bytes() == before
    write(path, "[2]")
    assert read(path) == "[2]"


def test_what_is_no_xz_is_a_sentence(file, tmp_path, monkeypatch):
    whole, text = file.read_bytes(), read(file)
    spoiled = [b"", text.encode(), whole[:-9], whole[: len(whole) // 2], whole + b"x", whole * 2]
    for data in spoiled:
        file.write_bytes(data)
        with pytest.raises(evidence.EvidenceError) as refused:
            evidence.load(file)
        assert "toy.plain.laptop.json" in str(refused.value)
    file.write_bytes(whole)
    monkeypatch.setattr("triptych.lab.results.packed._MOST_BYTES", len(text.encode()) - 1)
    with pytest.raises(evidence.EvidenceError, match="more than"):
        evidence.load(file)


def test_a_plain_file_is_read_and_exported_compressed(file, tmp_path):
    plain = file.with_name(called(file))
    plain.write_text(read(file), "utf-8")
    file.unlink()
    assert evidence.files(plain.parent) == [plain]
    assert len(evidence.load(plain).units) == 6
    bring_in(tmp_path / "here", plain)
    run_toy(tmp_path / "there", units="7")
    (told,) = export(tmp_path / "there", plain.parent)
    assert told.endswith("7 units, 1 of them new")
    assert evidence.files(plain.parent) == [file]
    assert not plain.exists()


def test_a_file_in_both_forms_is_an_error_until_it_is_packed(file):
    plain = file.with_name(called(file))
    plain.write_text(read(file), "utf-8")
    changed(file, lambda content: content["units"].__delitem__(slice(2, None)))
    with pytest.raises(evidence.EvidenceError, match="--pack"):
        evidence.files(file.parent)
    (told,) = evidence.pack(file.parent)
    assert "6 units" in told
    assert evidence.files(file.parent) == [file]
    assert len(evidence.load(file).units) == 6
    assert evidence.pack(file.parent) == []


def test_packing_refuses_other_rows(file):
    plain = file.with_name(called(file))
    plain.write_text(read(file), "utf-8")
    changed(plain, spoil)
    with pytest.raises(evidence.EvidenceError, match="other rows"):
        evidence.pack(file.parent)
    assert plain.exists()


def test_what_is_committed_is_compressed():
    assert {path.suffix for path in COMMITTED} == {".xz"}
    head = [evidence.study_in(path) for path in COMMITTED]
    assert "" not in head


# --------------------------------------------------------------------------- there and back


def test_a_file_says_what_was_run_and_nothing_of_the_machine(file, tmp_path):
    content = json.loads(read(file))
    assert list(content) == ["format", "study", "scale", "settings", "units"]
    assert content["settings"] == {"seeds": 1, "units": 6, "sleep_s": 0.0, "sizes": [2]}
    first = content["units"][0]
    assert first["parameters"] == {"kind": "Draw", "number": 0, "size": 2, "sleep_s": 0.0}
    assert (first["seed"], first["device"], len(first["rows"])) == (0, "cpu", 2)
    assert first["revision"] == 1
    assert first["code"]["fingerprint"]
    assert "torch" in first["versions"]
    assert str(tmp_path) not in read(file)
    assert len([line for line in read(file).splitlines() if '"share"' in line]) == 12


def test_export_is_the_same_bytes_and_numbers_are_ordered_as_numbers(file, tmp_path):
    before = file.read_bytes()
    (told,) = export(tmp_path / "there", file.parent)
    assert told == f"{file}: 6 units, 0 of them new"
    assert file.read_bytes() == before
    run_toy(tmp_path / "there", seeds=2, units="11")
    (told,) = export(tmp_path / "there", file.parent)
    assert told.endswith("22 units, 16 of them new")
    units = evidence.load(file).units
    order = [(unit.parameters["number"], unit.seed) for unit in units]
    assert order == [(number, seed) for number in range(11) for seed in range(2)]


def test_import_and_export_give_the_same_bytes(file, tmp_path):
    bring_in(tmp_path / "here", file)
    export(tmp_path / "here", tmp_path / "again")
    assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    with Store.read(tmp_path / "here") as here, Store.read(tmp_path / "there") as there:
        for mine, theirs in zip(*(s.units(NAME, LAPTOP) for s in (here, there)), strict=True):
            assert mine.rows == theirs.rows
            assert mine.versions == theirs.versions | {"imported": "yes"}
            assert (mine.seconds, mine.finished_at) == (theirs.seconds, theirs.finished_at)


def test_a_run_does_only_what_is_missing(file, tmp_path):
    changed(file, lambda content: content["units"].__delitem__(slice(2, None)))
    here = tmp_path / "here"
    (told,) = bring_in(here, file)
    assert told == (
        f"{NAME} with --scale laptop: 2 units brought in; 4 to run: "
        f"triptych run {NAME} --scale laptop --out {here}"
    )
    with Store.read(here) as store:
        (run,), _ = results.stored_runs(store, [ChosenStudy(TOY)])
    assert [unit.status for unit in run.units] == ["done"] * 2 + ["pending"] * 4
    assert [unit.imported for unit in run.units] == [True] * 2 + [False] * 4
    summary = run_toy(here)
    assert (summary.done, summary.skipped) == (4, 2)
    with Store.read(here) as store, Store.read(tmp_path / "there") as there:
        assert store.rows(NAME, LAPTOP) == there.rows(NAME, LAPTOP)
    assert bring_in(here, file) == [
        f"{NAME} with --scale laptop: 0 units brought in, 2 were there; nothing is left to run"
    ]


def test_import_keeps_the_plan_of_the_folder(file, tmp_path):
    """A user's own settings stay in force; what they do not plan waits in the store."""
    here = tmp_path / "here"
    run_toy(here, units="4")
    (told,) = bring_in(here, file)
    assert "2 units brought in, 4 were there, 2 are of other settings than the plan" in told
    with Store.read(here) as store:
        assert len(store.units(NAME, LAPTOP)) == 4
    assert run_toy(here).done == 0


def test_import_of_a_study_that_is_not_known(file, tmp_path):
    (told,) = evidence.bring_in(tmp_path / "here", [str(file)], {})
    assert told.endswith(
        "6 units brought in; the study is not part of Triptych: run its file to see it"
    )
    assert run_toy(tmp_path / "here").skipped == 6


def test_a_unit_that_failed_is_replaced_by_a_kept_one(file, tmp_path):
    def breaks(unit, bench):
        raise ArithmeticError("no")

    here = tmp_path / "here"
    assert run_toy(here, study=dataclasses.replace(TOY, run=breaks)).failed == 6
    bring_in(here, file)
    with Store.read(here) as store:
        assert {(unit.status, unit.error) for unit in store.units(NAME, LAPTOP)} == {("done", None)}


def test_import_waits_for_no_run(file, tmp_path):
    here = tmp_path / "here"
    Store.open(here).close()
    with lock_folder(here), pytest.raises(FolderInUse, match="another run is using this folder"):
        bring_in(here, file)


# ------------------------------------------------------------------------------- conflicts


def spoil(content):
    content["units"][1]["rows"][0]["share"] = 7.0


CLASH = r"toy/plain with --scale laptop: the unit \(number=1, .*seed=0\) has other rows in "


def test_export_refuses_other_rows(file, tmp_path):
    before = changed(file, spoil).read_bytes()
    with pytest.raises(
        evidence.EvidenceError, match=CLASH + ".*there than in toy.plain.laptop.json"
    ):
        export(tmp_path / "there", file.parent)
    assert file.read_bytes() == before
    export(tmp_path / "there", file.parent, replace=True)
    assert evidence.load(file).units[1].rows[0]["share"] < 7


def test_import_refuses_other_rows(file, tmp_path):
    here = tmp_path / "here"
    bring_in(here, file)
    changed(file, spoil)
    with pytest.raises(
        evidence.EvidenceError, match=CLASH + "the file than in .*here; nothing was"
    ):
        bring_in(here, file)
    (told,) = bring_in(here, file, replace=True)
    assert "6 units brought in" in told
    with Store.read(here) as store:
        assert store.rows(NAME, LAPTOP)[2]["share"] == 7.0
        assert len(store.rows(NAME, LAPTOP)) == 12


def test_two_files_that_disagree(file, tmp_path):
    other = tmp_path / "other.laptop.json.xz"
    other.write_bytes(file.read_bytes())
    changed(other, spoil)
    with pytest.raises(evidence.EvidenceError, match=CLASH + "other.laptop.json than in the files"):
        bring_in(tmp_path / "here", file, other)
    assert not (tmp_path / "here").exists()


def test_export_of_what_is_not_there(file, tmp_path):
    with pytest.raises(evidence.EvidenceError, match="no finished units with --scale paper$"):
        evidence.export(tmp_path / "there", [], Scale.PAPER, tmp_path)
    with pytest.raises(
        evidence.EvidenceError, match=r"of toy with --scale laptop \(there are some of toy/"
    ):
        evidence.export(tmp_path / "there", ["toy"], LAPTOP, tmp_path)


def test_export_adds_to_no_file_of_another_study(file, tmp_path):
    write(file, read(file).replace('"toy/plain"', '"toy.plain"'))
    with pytest.raises(evidence.EvidenceError, match="has rows of toy.plain with --scale laptop"):
        export(tmp_path / "there", file.parent)


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        (lambda text: text[: len(text) // 2], "is damaged .it is not JSON"),
        (lambda text: "<<<<<<< ours\n" + text, "is damaged .it is not JSON"),
        (lambda text: "[]", "the file is a list and not a dictionary"),
        (lambda text: text.replace('"format": 2', '"format": 3'), "has format 3.*upgrade Triptych"),
        (lambda text: text.replace('"format": 2', '"format": 1'), "has format 1.*have no types"),
        (lambda text: text.replace('"scale": "laptop"', '"scale": "big"'), "no scale 'big'"),
        (lambda text: text.replace('"seed"', '"sead"', 1), "unit 1 lacks seed"),
        (lambda text: text.replace('"format": 2,', '"format": 2, "host": 2,'), "the unknown host"),
        (lambda text: text.replace('"seed": 0', '"seed": "a"', 1), "unit 1 has seed = 'a'"),
        (lambda text: text.replace('"rows": [', '"rows": [3, ', 1), "unit 1 has a row that is not"),
        (lambda text: text.replace('"number": 0', '"number": 1'), "it has a unit twice"),
        (lambda text: text.replace('"library"', '"libary"', 1), "unit 1 has code = "),
    ],
)
def test_a_damaged_file_is_a_sentence(file, tmp_path, shown, spoiled, said):
    write(file, spoiled(read(file)))
    with pytest.raises(evidence.EvidenceError, match=f"^toy.plain.laptop.json .*{said}"):
        bring_in(tmp_path / "here", file)
    assert not (tmp_path / "here").exists()
    assert shown().status == "not run yet"
    runs, (problem,) = results.bundled_runs(file.parent)
    assert not runs
    assert re.search(said, problem)
    page = page_of(tmp_path / "report.html")
    assert "The evidence in toy.plain.laptop.json is not shown:" in page


# ------------------------------------------------------------------------ judged and shown


def test_without_own_runs_the_bundled_verdict_is_the_headline(file, shown):
    line = shown()
    assert (line.status, line.study) == ("holds", NAME)
    assert (line.headline.scale, line.headline.bundled) == ("laptop", True)
    assert (line.headline.device, line.headline.done, line.headline.planned) == ("cpu", 6, 6)
    assert line.headline.measured["s"] < 1
    assert [check.sentence for check in line.headline.checks] == ["mean share"]


def test_of_one_scale_an_own_run_has_the_first_word(file, shown, tmp_path):
    """The bundled rows fail, the own ones hold; and the other way round."""
    changed(file, lambda content: [u["rows"][0].update(share=9.0) for u in content["units"]])
    run_toy(tmp_path / "here")
    with Store.read(tmp_path / "here") as store:
        line = shown(store)
    assert [(f.bundled, f.status) for f in line.findings] == [(False, "holds"), (True, "fails")]
    assert line.status == "holds"
    assert not terminal.failing([line])
    told = terminal.as_json([line])[0]
    assert [found["status"] for found in told["findings"]] == ["holds", "fails"]
    assert shown().status == "fails"
    assert not terminal.failing([shown()]), "bundled evidence never sets the exit code"
    own = dataclasses.replace(line.findings[0], status="fails")
    assert terminal.failing([dataclasses.replace(line, findings=(own,))])


def test_an_own_run_that_failed_is_not_hidden(file, shown, tmp_path):
    def breaks(unit, bench):
        raise ArithmeticError("no")

    run_toy(tmp_path / "here", study=dataclasses.replace(TOY, run=breaks))
    with Store.read(tmp_path / "here") as store:
        line = shown(store)
    assert (line.status, line.headline.bundled) == ("holds", True)
    own = line.findings[1]
    assert (own.status, own.bundled) == ("undecided", False)
    assert own.notes[0] == "0 of 6 units, 6 failed"
    assert "ArithmeticError: no" in own.notes[1]


def test_what_was_imported_is_not_said_twice(file, shown, tmp_path):
    bring_in(tmp_path / "here", file)
    with Store.read(tmp_path / "here") as store:
        assert [found.bundled for found in shown(store).findings] == [False]
        changed(file, spoil)
        assert [found.bundled for found in shown(store).findings] == [False, True]


def test_a_part_of_the_units_says_so(file, shown, capsys):
    changed(file, lambda content: content["units"].__delitem__(slice(2, None)))
    line = shown()
    assert line.headline.notes == ("2 of 6 units",)
    assert (line.headline.done, line.headline.planned) == (2, 6)
    terminal.print_results(results.gather(None), everything=False)
    told = " ".join(capsys.readouterr().out.split())
    assert "holds wei.prop-3.4" in told
    assert "laptop scale, bundled, cpu: holds (2 of 6 units)" in told
    assert "1 of these verdicts rests on bundled rows." in told


def test_units_of_other_settings_are_left_out_and_told(file, shown, tmp_path):
    run_toy(tmp_path / "there", sizes="5")
    export(tmp_path / "there", file.parent)
    assert len(evidence.load(file).units) == 12
    line = shown()
    assert line.headline.notes == ("6 more units of other settings are left out",)
    assert line.headline.planned == 6


def test_evidence_of_other_settings_alone_is_judged_under_its_own_plan(shown, tmp_path):
    run_toy(tmp_path / "there", sizes="[3,4]", units="2")
    export(tmp_path / "there", tmp_path / "kept")
    line = shown()
    assert line.headline.notes == ("changed settings: units, sizes",)
    assert (line.headline.done, line.headline.planned) == (4, 4)


def test_evidence_of_the_plans_units_and_more_is_judged_under_its_own_plan(shown, tmp_path):
    """As more seeds of the same settings: no unit of one run is left out."""
    run_toy(tmp_path / "there", sizes="[2,5]")
    export(tmp_path / "there", tmp_path / "kept")
    line = shown()
    assert (line.headline.done, line.headline.planned) == (12, 12)


@pytest.mark.parametrize(
    ("commits", "sentence"),
    [
        (["abc"] * 6, None),
        ([""] * 6, "no commit is recorded"),
        ([None] * 6, "no commit is recorded"),
        (["abc", "", None, "abc", "", "abc"], "no commit is recorded for 3 of 6 units"),
    ],
    ids=["all", "none", "no code at all", "some"],
)
def test_rows_without_a_commit_are_told_next_to_their_day(file, shown, tmp_path, commits, sentence):
    def change(content):
        for unit, commit in zip(content["units"], commits, strict=True):
            code = unit["code"] | {"commit": commit, "clean": True} if commit is not None else None
            unit["code"] = code

    changed(file, change)
    made = shown().headline.made
    day = json.loads(read(file))["units"][0]["finished_at"][:10]
    assert made.startswith(day)
    assert ("no commit" in made) == (sentence is not None)
    assert ("commit abc" in made) == (commits[-1] == "abc")
    page = page_of(tmp_path / "page.html")
    assert made in page
    assert sentence is None or f"{sentence})" in page


@pytest.mark.usefixtures("unchecked_shapes")
def test_bundled_evidence_says_where_no_commit_is_recorded(monkeypatch):
    """Some rows were made on machines that did not know the commit."""
    monkeypatch.setattr(judging, "_drawn", lambda *_: ())
    told, without = {}, {}
    for run in results.bundled_runs(evidence.folder())[0]:
        units = evidence.load(evidence.named(run.file)).units
        without[run.file] = sum(not (unit.code and unit.code.commit) for unit in units)
        told[run.file] = "no commit is recorded" in run.made
        if without[run.file] == len(units):
            assert run.made.endswith("no commit is recorded")
    assert {name for name in told if told[name]} == {name for name in without if without[name]}
    assert any(told.values())


def test_only_units_that_were_made_are_old(file, shown, monkeypatch):
    later = dataclasses.replace(TOY, revision=2)
    monkeypatch.setattr(results, "find_studies", lambda: {NAME: later})
    changed(file, lambda content: content["units"].__delitem__(slice(2, None)))
    earlier = "2 of these units are of an earlier revision of the study"
    assert shown().headline.notes == ("2 of 6 units", earlier)


def test_evidence_of_an_earlier_revision_is_shown_with_its_age(file, shown, tmp_path, monkeypatch):
    """It is judged by today's judges; a run here does not count it as done."""
    later = dataclasses.replace(TOY, revision=2)
    monkeypatch.setattr(results, "find_studies", lambda: {NAME: later})
    line = shown()
    assert (line.status, line.headline.done) == ("holds", 6)
    assert line.headline.notes == ("6 of these units are of an earlier revision of the study",)
    assert line.headline.edited == 0
    bring_in(tmp_path / "here", file, study=later)
    assert run_toy(tmp_path / "here", study=later).done == 6


def test_an_edit_of_the_code_is_said_wherever_claims_are_listed(file, shown, capsys, monkeypatch):
    """Of an earlier revision they are old, and that is said with the rows."""

    def listed() -> str:
        terminal.print_summary(results.gather(None))
        return capsys.readouterr().out

    assert "Edited" not in listed()
    changed(file, lambda content: content["units"][0]["code"].update(fingerprint="0", shape="1"))
    assert "Edited since their rows were made: toy" in listed()
    assert shown().headline.edited == 1
    later = dataclasses.replace(TOY, revision=2)
    monkeypatch.setattr(results, "find_studies", lambda: {NAME: later})
    assert "Edited" not in listed()


def test_the_gpu_is_named(file, shown):
    def on_gpu(content):
        for unit in content["units"]:
            unit["device"] = "cuda"
            unit["versions"]["gpu"] = "NVIDIA H200, NVIDIA H200"

    changed(file, on_gpu)
    assert shown().headline.device == "NVIDIA H200"


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("toy/gone", {}, "there is no study toy/plain any more"),
        (NAME, {"units": lambda settings: []}, "none of its units is planned"),
        (NAME, {"units": lambda settings: 1 / 0}, "division by zero"),
        (NAME, {"settings": {}}, "has no scale laptop"),
    ],
)
def test_a_study_that_has_changed_is_told_and_nothing_breaks(
    file, shown, tmp_path, monkeypatch, name, values, said
):
    study = dataclasses.replace(TOY, name=name, **values)
    monkeypatch.setattr(results, "find_studies", lambda: {name: study})
    found = results.gather(None)
    assert {line.status for line in found.published} == {"not run yet"}
    assert len(found.problems) == 1
    assert said in found.problems[0]
    assert said in page_of(tmp_path / "report.html")


def test_a_judge_or_a_figure_that_raises_is_shown(file, shown, tmp_path, monkeypatch):
    def breaks(rows):
        raise KeyError("share")

    study = dataclasses.replace(TOY, claims=[Claim(ENTRY, breaks, [])], figures=[breaks])
    monkeypatch.setattr(results, "find_studies", lambda: {NAME: study})
    line = shown()
    assert (line.status, line.headline.bundled) == ("undecided", True)
    assert "The judge raised KeyError" in line.headline.notes[0]
    found = results.gather(None)
    assert any("breaks raised KeyError" in problem for problem in found.problems)
    assert "breaks raised KeyError" in page_of(tmp_path / "report.html")


def test_the_report_has_a_section_for_bundled_evidence(file, shown, tmp_path):
    run_toy(tmp_path / "here", units="3")
    with Store.read(tmp_path / "here") as store:
        page = page_of(tmp_path / "report.html", store)
    sections = re.findall(r'<details class="study[^"]*" id="([^"]+)"', page)
    assert sections == ["study-toy-plain-laptop", "study-toy-plain-laptop-bundled"]
    bundled = page.partition('id="study-toy-plain-laptop-bundled"')[2]
    assert "<code>toy.plain.laptop.json</code>, from a run on cpu" in bundled
    assert "6 of 6 done" in bundled
    assert "<svg" in bundled


# ----------------------------------------------------------------- the strongest evidence first


def found_by(scale, status="holds", *, bundled=False, missing=(), done=6, changed=None):
    finding = ClaimFinding(NAME, scale, bundled, status, missing=missing, done=done, planned=6)
    return StudyRun(
        NAME,
        "",
        scale,
        {},
        [],
        [],
        bundled=bundled,
        changed=changed or {},
        findings={ENTRY: finding},
    )


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        (found_by("paper", bundled=True), found_by("laptop")),
        (found_by("paper", "undecided"), found_by("laptop", "fails")),
        (found_by("laptop"), found_by("paper", "undecided", missing=("trials: 1 of 3",))),
        (found_by("paper", "fails", missing=("trials: 1 of 3",)), found_by("laptop")),
        (found_by("laptop"), found_by("laptop", bundled=True)),
        (found_by("laptop"), found_by("paper", changed={"steps": 3})),
        (found_by("laptop", bundled=True), found_by("smoke", "code runs")),
        (found_by("laptop"), found_by("paper", "undecided", done=0)),
    ],
)
def test_the_strongest_evidence_has_the_headline(stronger, weaker):
    for runs in ([stronger, weaker], [weaker, stronger]):
        (line, *_) = judge_ledger(load_ledger(), runs)
        assert [dataclasses.replace(found, scope="", differs="") for found in line.findings] == [
            stronger.findings[ENTRY],
            weaker.findings[ENTRY],
        ]
        assert line.status == stronger.findings[ENTRY].status


def test_a_smoke_run_is_no_finding():
    (line, *_) = judge_ledger(load_ledger(), [found_by("smoke", "code runs")])
    assert (line.status, line.headline) == ("not run yet", None)
    assert line.findings[0].status == "code runs"
