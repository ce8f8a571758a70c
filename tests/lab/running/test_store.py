"""The store keeps what it is given, says what is wrong, and loses nothing."""

import errno
import json
import math
import random
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from tests.support.refusals import refused
from tests.support.toy_studies import ToySettings

from triptych.lab.running.checksums import checksum_of_rows, read_code
from triptych.lab.running.database import SCHEMA, StoreError
from triptych.lab.running.fingerprint import Code
from triptych.lab.running.plan import PlannedUnit
from triptych.lab.running.store import FILE, Store
from triptych.studies.api.study import Scale, unit_key

STUDY, SCALE = "toy/plain", Scale.SMOKE
CODE = Code("f1", "l1", "0.1", "c1", True)


def unit_of(number):
    return PlannedUnit(unit_key({"number": number}, 7, 1), {"number": number}, 7)


UNITS = [unit_of(number) for number in range(3)]
ROWS = [{"kind": "Loss", "loss": 0.1 + 0.2, "part": part} for part in range(2)]


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "run") as opened:
        yield opened


def plan(store, units=UNITS, settings=None):
    return store.plan(STUDY, SCALE, settings or ToySettings(), units)


def run(store, unit, rows=ROWS):
    store.start(unit, "cpu", {"torch": "2"}, CODE)
    store.finish(unit, rows, 1.5)


def statuses(store):
    return [unit.status for unit in store.units(STUDY, SCALE)]


def test_a_unit_goes_from_pending_over_running_to_done(store):
    first, second, third = plan(store)
    assert (first.status, first.parameters, first.seed) == ("pending", {"number": 0}, 7)
    assert first.key == UNITS[0].key
    store.start(first, "cpu", {"torch": "2"}, CODE)
    assert statuses(store) == ["running", "pending", "pending"]
    store.finish(first, ROWS, 1.5)
    store.start(second, "cpu", {}, CODE)
    store.fail(second, "it broke", 0.5)
    done, failed, pending = store.units(STUDY, SCALE)
    assert (done.status, done.seconds, done.device, done.versions, done.rows) == (
        "done",
        1.5,
        "cpu",
        {"torch": "2"},
        ROWS,
    )
    assert done.started_at <= done.finished_at
    assert (done.code, done.revision) == (CODE, 1)
    assert pending.code is None
    assert done.settings == {"seeds": 1, "units": 6, "sleep_s": 0.0, "sizes": [2]}
    assert (failed.status, failed.error, failed.rows) == ("failed", "it broke", [])
    assert pending == third
    assert store.rows(STUDY, SCALE) == ROWS
    assert store.studies() == [(STUDY, SCALE)]


def test_progress_counts_the_current_units(store):
    assert store.progress() == []
    first, second, third = plan(store)
    run(store, first)
    store.start(second, "cpu", {}, CODE)
    (study,) = store.progress()
    assert (study.study, study.scale, study.planned) == (STUDY, SCALE, 3)
    told = ["number 1, seed 7"]  # what tells it from the others
    assert (study.done, study.failed, study.pending, study.running) == (1, 0, 1, told)
    assert study.finished_at == store.units(STUDY, SCALE)[0].finished_at
    store.fail(second, "it broke", 0.5)
    plan(store, UNITS[1:])  # the first is planned no more
    (study,) = store.progress()
    assert (study.done, study.failed, study.pending, study.running) == (0, 1, 1, [])
    assert third.status == "pending"


def test_planning_again_keeps_what_is_done(store):
    run(store, plan(store)[1])
    later = plan(store, settings=ToySettings(units=9))
    assert [unit.status for unit in later] == ["pending", "done", "pending"]
    assert [unit.settings["units"] for unit in later] == [9, 6, 9]


def test_units_out_of_the_plan_stay_but_do_not_speak(store):
    for unit in plan(store):
        run(store, unit, [{"number": unit.parameters["number"]}])
    plan(store, [UNITS[2], UNITS[0]])
    assert store.rows(STUDY, SCALE) == [{"number": 2}, {"number": 0}]
    every = store.units(STUDY, SCALE, outdated=True)
    assert [(unit.parameters["number"], unit.current) for unit in every] == [
        (2, True),
        (0, True),
        (1, False),
    ]
    plan(store)
    assert store.rows(STUDY, SCALE) == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_the_same_unit_twice_is_refused(store):
    with refused("study"):
        plan(store, [UNITS[0], UNITS[0]])


def test_scales_and_studies_are_apart(store):
    run(store, plan(store)[0])
    store.plan(STUDY, Scale.LAPTOP, ToySettings(), UNITS)
    store.plan("toy/other", SCALE, ToySettings(), UNITS)
    assert statuses(store) == ["done", "pending", "pending"]
    assert store.rows(STUDY, Scale.LAPTOP) == store.rows("toy/other", SCALE) == []


def test_hard_numbers_come_back_as_they_were(store):
    hard = {
        "nan": math.nan,
        "inf": math.inf,
        "minus": -math.inf,
        "tiny": 5e-324,
        "third": 1 / 3,
        "long": 2**70,
        "nested": [{"x": [None, True, "é"]}],
    }
    run(store, plan(store)[0], [hard])
    (back,) = store.rows(STUDY, SCALE)
    assert math.isnan(back.pop("nan"))
    del hard["nan"]
    assert back == hard


def test_rows_that_were_changed_or_lost_are_made_again(store):
    first, second, third = plan(store)
    for unit in (first, second, third):
        run(store, unit)
    store._db.execute("DELETE FROM rows WHERE key = ? AND number = 1", (first.key,))
    store._db.execute("UPDATE rows SET row = '{}' WHERE key = ? AND number = 0", (second.key,))
    assert statuses(store) == ["failed", "failed", "done"]
    lost = store.units(STUDY, SCALE)[0]
    assert "changed or lost" in lost.error
    assert lost.rows == []
    again, _, _ = plan(store)
    run(store, again)
    assert statuses(store) == ["done", "failed", "done"]


CHANGES = {  # of what is stored of a unit with its rows
    "parameters": '{"number": 8}',
    "seed": 8,
    "settings": '{"seeds": 2, "units": 6, "sleep_s": 0.0, "sizes": [2]}',
    "revision": 2,
    "seconds": 1.25,
    "error": "none",
    "device": "cuda:0",
    "versions": '{"torch": "3"}',
    "code": json.dumps(CODE._replace(library="l2")._asdict()),
    "started_at": "2020-01-01T00:00:00+00:00",
    "finished_at": "2030-01-01T00:00:00+00:00",
    "checksum": "0123456789abcdef",
}


@pytest.mark.parametrize("column", CHANGES)
def test_a_unit_that_was_changed_is_made_again(store, column):
    """Any column of a finished unit; the plan knows what the unit was."""
    for unit in plan(store)[:2]:
        run(store, unit)
    store._db.execute(f"UPDATE units SET {column} = ?", (CHANGES[column],))
    assert statuses(store) == ["failed", "failed", "pending"]
    for unit in store.units(STUDY, SCALE)[:2]:
        assert "changed or lost" in unit.error
        assert unit.rows == []
    for unit in plan(store):
        run(store, unit)
    again = store.units(STUDY, SCALE)
    assert [unit.parameters["number"] for unit in again] == [0, 1, 2]
    assert {(unit.seed, unit.revision, unit.code) for unit in again} == {(7, 1, CODE)}
    assert again[0].settings == again[2].settings
    assert statuses(store) == ["done"] * 3


@pytest.mark.parametrize("change", ["column", "row", "order", "plan", "unit"])
def test_the_digest_is_of_all_that_is_stored(store, change):
    """So what was concluded from it is kept under this name; another study changes nothing."""
    for unit in plan(store)[:2]:
        run(store, unit)
    before = store.digest(STUDY, SCALE)
    assert before == store.digest(STUDY, SCALE) != store.digest("toy/other", SCALE)
    store.plan("toy/other", SCALE, ToySettings(), UNITS)
    assert store.digest(STUDY, SCALE) == before
    match change:
        case "column":
            store._db.execute("UPDATE units SET device = 'cuda' WHERE study = ?", (STUDY,))
        case "row":
            store._db.execute("UPDATE rows SET row = '{}' WHERE number = 1")
        case "order":
            plan(store, UNITS[::-1])
        case "plan":
            plan(store, UNITS[:1])
        case "unit":
            run(store, store.units(STUDY, SCALE)[2])
    assert store.digest(STUDY, SCALE) != before


@pytest.mark.parametrize("column", ["parameters", "settings", "versions", "code"])
@pytest.mark.parametrize("text", ['{"a": 1', "[]", b"\xff{}"])
def test_text_that_is_no_json_is_made_again(store, column, text):
    """Of a unit in any state, and nothing else of the store is lost."""
    first, _, third = plan(store)
    for unit in (first, third):
        run(store, unit)
    store._db.execute(f"UPDATE units SET {column} = ? WHERE key != ?", (text, third.key))
    assert statuses(store) == ["failed", "failed", "done"]
    for unit in plan(store)[:2]:
        run(store, unit)
    assert statuses(store) == ["done"] * 3
    assert store.rows(STUDY, SCALE) == ROWS * 3


@pytest.mark.parametrize("texts", ["[]", "3", "null", '{"fingerprinu": "f1", "library": "l1"}'])
def test_code_that_is_none_is_damage(store, texts):
    """In a store with checksums of rows alone, too."""
    first, second, _ = plan(store)
    run(store, first)
    store.start(second, "cpu", {}, CODE)
    store.fail(second, "it broke", 0.5)
    old = checksum_of_rows(json.dumps(row) for row in ROWS)
    store._db.execute("UPDATE units SET code = ?, checksum = ?", (texts, old))
    assert statuses(store) == ["failed"] * 3
    run(store, plan(store)[0])
    assert statuses(store) == ["done", "failed", "failed"]


def test_code_of_another_version():
    """A field that is missing has its default, and one of a newer version is left out."""
    facts = CODE._asdict()
    assert read_code(facts) == CODE
    assert read_code(facts | {"compiler": "gcc"}) == CODE
    assert read_code({"fingerprint": "f1", "library": "l1"}) == Code("f1", "l1")
    assert read_code({}) is read_code(None) is None
    for wrong in ({"fingerprint": "f1"}, facts | {"clean": 1}, facts | {"library": None}):
        with pytest.raises(ValueError, match=r"library|clean"):
            read_code(wrong)


def older(folder):
    """Make of a store one as older versions wrote it: checksums of the rows alone."""
    with sqlite3.connect(folder / FILE) as file:
        for (key,) in file.execute("SELECT key FROM units WHERE status = 'done'").fetchall():
            rows = file.execute("SELECT row FROM rows WHERE key = ? ORDER BY number", (key,))
            checksum = checksum_of_rows(text for (text,) in rows)
            file.execute("UPDATE units SET checksum = ? WHERE key = ?", (checksum, key))
        file.execute("PRAGMA user_version = 2")
    file.close()


def test_an_older_store_is_read_and_gets_checksums_of_whole_units(tmp_path):
    with Store.open(tmp_path) as store:
        for unit in plan(store)[:2]:
            run(store, unit)
        before = store.units(STUDY, SCALE)
    older(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as file:  # damage that the older checksum knows
        file.execute("UPDATE rows SET row = '{}' WHERE key = ? AND number = 0", (before[1].key,))
    file.close()
    kept = (tmp_path / FILE).read_bytes()
    with Store.read(tmp_path) as store:
        assert store.units(STUDY, SCALE)[0] == before[0]
        assert statuses(store) == ["done", "failed", "pending"]
    assert (tmp_path / FILE).read_bytes() == kept
    for _ in range(2):
        with Store.open(tmp_path) as store:
            assert store.units(STUDY, SCALE)[0] == before[0]
            assert statuses(store) == ["done", "failed", "pending"]
            assert store._db.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
            store._db.execute("UPDATE units SET seed = 8")
            assert statuses(store)[:2] == ["failed", "failed"]
            store._db.execute("UPDATE units SET seed = 7")


def test_a_flip_anywhere_is_never_taken_for_a_result(tmp_path):
    """One bit of the file: a sentence, or units that are right or not done."""
    with Store.open(tmp_path / "a") as store:
        for unit in plan(store):
            run(store, unit)
        right = {unit.key: unit for unit in store.units(STUDY, SCALE)}
    content, seen = (tmp_path / "a" / FILE).read_bytes(), Counter()
    (tmp_path / "b").mkdir()
    chances = random.Random(0)
    for place in chances.sample(range(len(content)), 400):
        flipped = bytearray(content)
        flipped[place] ^= 1 << chances.randrange(8)
        (tmp_path / "b" / FILE).write_bytes(flipped)
        try:
            with Store.read(tmp_path / "b") as store:
                for study, scale in store.studies():
                    for unit in store.units(study, scale, outdated=True):
                        seen[unit.status] += 1
                        if unit.status == "done":
                            assert unit._replace(current=True) == right[unit.key]
        except StoreError:
            seen["sentence"] += 1
    assert seen["sentence"] > 10
    assert seen["done"] > 100


def test_units_that_are_reset_are_run_again(store):
    first, second, _ = plan(store)
    run(store, first)
    run(store, second)
    store.reset([first])
    assert statuses(store) == ["pending", "done", "pending"]
    assert store.units(STUDY, SCALE)[0].code is None
    run(store, first)
    assert store.rows(STUDY, SCALE) == ROWS + ROWS


def test_rows_as_a_table(store):
    run(store, plan(store)[0], [*ROWS, {"kind": "Other", "size": 2}])
    frame = store.frame(STUDY)
    assert list(frame["kind"]) == ["Loss", "Loss", "Other"]
    assert set(frame["scale"]) == {"smoke"}
    assert set(frame["seed"]) == {7}
    losses = store.frame(STUDY, SCALE, kind="Loss")
    assert list(losses["loss"]) == [0.1 + 0.2] * 2
    assert "size" not in losses
    with pytest.raises(StoreError, match="no rows of kind 'Los'; it has Loss, Other"):
        store.frame(STUDY, kind="Los")
    with pytest.raises(StoreError, match="no rows of study nothing"):
        store.frame("nothing")


def test_what_own_studies_concluded_is_kept(store):
    store.remember("mine", SCALE, {"a": 1})
    store.remember("mine", SCALE, {"a": 2})
    store.remember("mine", Scale.LAPTOP, {"a": 3})
    assert store.remembered() == {("mine", SCALE): {"a": 2}, ("mine", Scale.LAPTOP): {"a": 3}}


def test_a_unit_cannot_be_finished_twice(store):
    unit = plan(store)[0]
    run(store, unit)
    with pytest.raises(StoreError, match="cannot be ended, it is not running"):
        store.finish(unit, ROWS, 1.0)
    with pytest.raises(StoreError, match="cannot be started"):
        store.start(unit, "cpu", {}, CODE)
    assert store.rows(STUDY, SCALE) == ROWS


def test_rows_and_status_are_written_together(store, monkeypatch):
    """The row of the second number is refused by the disk: then the unit is not done either."""
    unit = plan(store)[0]
    store.start(unit, "cpu", {}, CODE)
    store._db.execute(
        "CREATE TRIGGER t BEFORE INSERT ON rows WHEN NEW.number = 1 "
        "BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    with pytest.raises(StoreError, match="could not be read or written"):
        store.finish(unit, ROWS, 1.0)
    assert statuses(store)[0] == "running"
    assert store._db.execute("SELECT COUNT(*) FROM rows").fetchone() == (0,)


def test_release_makes_running_units_pending(store):
    first, second, _ = plan(store)
    run(store, first)
    store.start(second, "cpu", {}, CODE)
    assert store.reset_running() == 1
    assert statuses(store) == ["done", "pending", "pending"]


def test_a_full_disk_is_a_sentence_and_loses_nothing(store):
    first, second, _ = plan(store)
    run(store, first)
    store.start(second, "cpu", {}, CODE)
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="is full: free some space and run the same command again"):
        store.finish(second, [{"text": "x" * 100_000}], 1.0)
    assert store.rows(STUDY, SCALE) == ROWS
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.finish(second, [{"text": "x" * 100_000}], 1.0)
    assert statuses(store) == ["done", "done", "pending"]


def test_a_full_disk_when_the_folder_is_made(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(StoreError, match="is full: free some space"):
        Store.open(tmp_path / "run")


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, store):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is not a folder"):
        Store.open(tmp_path / "file")
    with pytest.raises(StoreError, match="is not a folder"):
        Store.open(tmp_path / "file" / "run")
    (tmp_path / "odd" / FILE).mkdir(parents=True)
    with pytest.raises(StoreError, match="choose a folder that you may write to"):
        Store.open(tmp_path / "odd")
    store._db.execute("PRAGMA query_only = ON")  # root may write anywhere: let SQLite refuse
    with pytest.raises(StoreError, match="choose a folder that you may write to"):
        plan(store)

    def denied(*_, **__):
        raise PermissionError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(StoreError, match="choose a folder that you may write to"):
        Store.open(tmp_path / "run")


@pytest.mark.parametrize("spoil", ["text", "middle", "short"])
def test_a_damaged_file_is_left_as_it_is(tmp_path, spoil):
    with Store.open(tmp_path) as store:
        units = plan(store, [unit_of(number) for number in range(200)])
        for unit in units[:20]:
            run(store, unit, [{"text": "x" * 2000}])
    file = tmp_path / FILE
    content = file.read_bytes()
    if spoil == "text":
        content = b"this is no database" * 500
    elif spoil == "middle":
        content = content[:4096] + b"\xff" * 40_000 + content[44_096:]
    else:
        content = content[: len(content) // 2]
    file.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged .*: it was left as it is; move it away"):
        Store.open(tmp_path)
    assert file.read_bytes() == content


def test_a_newer_schema_and_another_program(tmp_path):
    with Store.open(tmp_path) as store:
        store._db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    for door in (Store.open, Store.read):
        with pytest.raises(StoreError, match="newer Triptych .*: upgrade Triptych, or run into"):
            door(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as older:
        older.execute("PRAGMA user_version = 1")
    older.close()
    with pytest.raises(StoreError, match="older Triptych, whose rows have no types"):
        Store.open(tmp_path)
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()
    (tmp_path / "other.sqlite").rename(tmp_path / FILE)
    with pytest.raises(StoreError, match="another program"):
        Store.open(tmp_path)


def test_another_program_that_holds_the_file(store, monkeypatch):
    store._db.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(store.folder / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="in use by another program"):
        plan(store)
    other.execute("ROLLBACK")
    other.close()
    assert len(plan(store)) == 3


def test_reading_alone_never_writes(tmp_path):
    with pytest.raises(StoreError, match="run a study into that folder first"):
        Store.read(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with Store.open(tmp_path) as store:
        run(store, plan(store)[0])
        with Store.read(tmp_path) as reader:  # while it is open elsewhere
            assert reader.rows(STUDY, SCALE) == ROWS
    with Store.read(tmp_path) as reader:
        assert reader.rows(STUDY, SCALE) == ROWS
        with pytest.raises(StoreError, match="choose a folder that you may write to"):
            reader.reset_running()


def test_the_file_is_what_it_says(store):
    run(store, plan(store)[0])
    with sqlite3.connect(store.folder / FILE) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert other.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
        texts = [text for (text,) in other.execute("SELECT row FROM rows ORDER BY number")]
    other.close()
    assert [json.loads(text) for text in texts] == ROWS
