"""Files are whole or as they were, and a folder has one writer."""

import ast
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from tests.support.full_disk import full_disk, small_files

import triptych
from triptych.core.errors import UserError
from triptych.core.files import (
    FolderInUse,
    NotWritten,
    lock_folder,
    remove_parts,
    replacing,
    write_bytes,
    write_json,
    write_tensors,
    write_text,
)

SOURCES = Path(triptych.__file__).parent


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_what_is_there(tmp_path):
    write_text(tmp_path / "a.txt", "ä\r\nb\n")
    assert (tmp_path / "a.txt").read_bytes() == b"\xc3\xa4\r\nb\n"
    write_json(tmp_path / "deep" / "b.json", {"x": [1.5, None]})
    assert json.loads((tmp_path / "deep" / "b.json").read_text()) == {"x": [1.5, None]}
    write_tensors(tmp_path / "c.safetensors", {"x": torch.arange(3)}, {"about": "three"})
    from safetensors import safe_open

    with safe_open(tmp_path / "c.safetensors", framework="pt") as opened:
        assert opened.get_tensor("x").tolist() == [0, 1, 2]
        assert opened.metadata() == {"about": "three"}
    assert names(tmp_path) == ["a.txt", "c.safetensors", "deep"], "nothing half-written is left"


def test_an_error_on_the_way_leaves_the_old_file(tmp_path):
    file = tmp_path / "a.txt"
    write_text(file, "old")

    def write_half():
        with replacing(file) as part:
            part.write_text("half of the n")
            raise RuntimeError("on the way")

    with pytest.raises(RuntimeError, match="on the way"):
        write_half()
    assert file.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_kill_leaves_the_old_file_and_the_next_lock_clears_up(tmp_path):
    file = tmp_path / "a.txt"
    write_text(file, "old")
    program = (
        "import sys, os, signal\n"
        "from triptych.core.files import replacing\n"
        "with replacing(sys.argv[1]) as part:\n"
        "    part.write_text('half of the n')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(file)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert file.read_text() == "old"
    assert len(names(tmp_path)) == 2
    with lock_folder(tmp_path):
        assert names(tmp_path) == ["a.txt", "run.lock"]


def test_half_files_of_living_writers_stay(tmp_path):
    with replacing(tmp_path / "a.txt") as part:
        remove_parts(tmp_path)
        assert part.exists()
        part.write_text("whole")
    assert names(tmp_path) == ["a.txt"]


def test_a_link_stays_a_link_and_a_file_keeps_its_permissions(tmp_path):
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    write_text(real, "old")
    real.chmod(0o640)
    link.symlink_to("real.txt")
    write_text(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path):
    write_text(tmp_path / "ours", "x")
    (tmp_path / "any").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "any")}
    assert len(modes) == 1


def test_a_full_disk_is_a_sentence_and_loses_nothing(tmp_path):
    with full_disk(tmp_path / "small", kilobytes=64) as small:
        write_text(small / "a.txt", "old")
        with pytest.raises(NotWritten, match=r"a\.txt cannot be written .*: make space"):
            write_bytes(small / "a.txt", b"x" * 200_000)
        with pytest.raises(NotWritten, match=r"b\.safetensors cannot be written"):
            write_tensors(small / "b.safetensors", {"x": torch.zeros(50_000)})
        assert (small / "a.txt").read_text() == "old"
        assert names(small) == ["a.txt"]


def test_a_file_that_may_not_grow_is_a_sentence_and_loses_nothing(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with small_files(10_000):
        with pytest.raises(NotWritten, match=r"a\.txt cannot be written"):
            write_bytes(tmp_path / "a.txt", b"x" * 20_000)
        with pytest.raises(NotWritten, match=r"b\.safetensors cannot be written"):
            write_tensors(tmp_path / "b.safetensors", {"x": torch.zeros(50_000)})
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("place", ["folder", "file/below"])
def test_a_place_that_cannot_be_a_file_is_a_sentence(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(NotWritten):
        write_text(tmp_path / place, "x")
    assert issubclass(NotWritten, UserError)


def test_many_writers_of_one_file_leave_one_of_their_texts(tmp_path):
    file, texts = tmp_path / "a.txt", [str(number) * 100_000 for number in range(8)]
    writers = [threading.Thread(target=write_text, args=(file, text)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert file.read_text() in texts
    assert names(tmp_path) == ["a.txt"]


def test_one_program_at_a_time_holds_a_folder(tmp_path):
    program = (
        "import sys; from pathlib import Path\n"
        "from triptych.core.files import lock_folder\n"
        "with lock_folder(Path(sys.argv[1])):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "new")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(FolderInUse, match=rf"pid {other.pid}"), lock_folder(tmp_path / "new"):
            pass
        other.kill()
    with lock_folder(tmp_path / "new"):
        assert (tmp_path / "new" / "run.lock").read_text() == str(os.getpid())


# What writes files and is not `core/files.py`, with the reason.
OTHER_WRITERS = {
    "lab/generating/rows.py": "a file of rows grows by whole lines",
    "lab/generating/rule_process.py": "a pipe",
    "models/pretrained/fetching.py": "downloads are compared with their sums, then moved",
    "models/pretrained/expanding.py": "a folder is written next to its place, then renamed",
    "lab/running/cache.py": "the lock of an entry, which is empty",
    "lab/results/plots.py": "into memory",
    "studies/generation/code_cases/writers.py": "a text for the stand-in; it writes no file",
    "core/compiled.py": "a folder for the C compiler that is gone a moment later",
}
WRITING = {"write_text", "write_bytes", "save_file", "savefig", "rename", "touch", "mkstemp"}
WRITING |= {"NamedTemporaryFile", "TemporaryDirectory", "save_pretrained", "copyfile", "copy2"}


def writes(tree):
    """Calls in a file that open a file for writing, or write one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Attribute):
            of_files = function.attr in WRITING
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            of_os = owner in ("os", "shutil") and function.attr in ("replace", "copy", "fdopen")
            opens = function.attr == "open" or of_os
        elif isinstance(function, ast.Name):
            of_files, of_os = False, function.id in ("save_file", "NamedTemporaryFile")
            opens = function.id == "open"
        else:
            continue
        modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
        modes += [k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)]
        mode = any(isinstance(m, str) and set(m) & set("wax") and len(m) < 4 for m in modes)
        if of_files or of_os or (opens and mode):
            yield node.lineno


def test_everything_else_writes_through_this_file():
    """A call that opens a file for writing, or a method that writes one, has to be listed here."""
    found = {}
    for path in SOURCES.rglob("*.py"):
        name = path.relative_to(SOURCES).as_posix()
        if name == "core/files.py" or name.startswith("lab/cli/templates/"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        ours = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "triptych.core.files"
            for alias in node.names
        }
        if lines := list(writes(tree)):
            found[name] = (lines, ours)
    part = {name for name, (_, ours) in found.items() if "replacing" in ours}
    assert set(found) - part == set(OTHER_WRITERS), {n: found[n] for n in found}
