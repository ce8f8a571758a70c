"""Files are whole or as they were, and a folder has one writer."""

import ast
import json
import os
import signal
import socket
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

ROOT = Path(triptych.__file__).parents[2]


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


def test_the_content_is_on_the_disk_before_it_has_the_name(tmp_path, monkeypatch):
    """And the name after that. After a power cut a file is what it was, or what was written."""
    file, seen = tmp_path / "a.txt", []
    write_text(file, "old")
    to_disk = os.fsync

    def watched(descriptor):
        what = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append((what.is_dir(), what.is_file() and what.read_text(), file.read_text()))
        to_disk(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_text(file, "new")
    assert seen == [(False, "new", "old"), (True, False, "new")]
    seen.clear()
    write_text(file, "quick", durable=False)
    assert (seen, file.read_text()) == ([], "quick")


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


def test_a_lock_leaves_nothing_behind_and_one_at_a_time_holds_it(tmp_path):
    """Four processes add 1 to a number a hundred times; a removed lock is never held by two."""
    number, folder = tmp_path / "number", tmp_path / "folder"
    number.write_text("0")
    program = (
        "import sys; from pathlib import Path\n"
        "from triptych.core.files import FolderInUse, lock_folder\n"
        "folder, number, done = Path(sys.argv[1]), Path(sys.argv[2]), 0\n"
        "while done < 100:\n"
        "    try:\n"
        "        with lock_folder(folder):\n"
        "            number.write_text(str(int(number.read_text()) + 1)); done += 1\n"
        "    except FolderInUse:\n"
        "        pass\n"
    )
    command = [sys.executable, "-c", program, str(folder), str(number)]
    for adder in [subprocess.Popen(command) for _ in range(4)]:
        assert adder.wait() == 0
    assert number.read_text() == "400"
    assert names(folder) == []


@pytest.mark.parametrize("name", ["ä" * 120, "字" * 80, "a" * 250, "x.json"])
def test_any_name_that_a_file_may_have_can_be_written(tmp_path, name):
    write_text(tmp_path / name, "old")
    write_text(tmp_path / name, "new")
    assert (tmp_path / name).read_text() == "new"
    assert len(names(tmp_path)) == 1


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    """Nor is a device: as root, a renaming onto /dev/null would take it away from the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NotWritten, match="a device or a pipe"):
        write_text(pipe, "x")
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]


def test_half_files_of_other_machines_stay_for_a_day(tmp_path):
    """Their processes cannot be seen from here; a cache may lie on a disk that machines share."""
    host = socket.gethostname().replace(".", "-")
    theirs = tmp_path / f".a.txt.not-{host}.{2**22 - 1}-0a.part"
    ours = tmp_path / f".a.txt.{host}.{2**22 - 1}-0a.part"
    other = tmp_path / f".b.txt.{host}.{2**22 - 1}-0a.part"
    users = tmp_path / ".mine.part"
    for path in (theirs, ours, other, users):
        path.write_text("half")
    remove_parts(tmp_path, "a.txt")
    assert {theirs, other, users} == set(tmp_path.iterdir())
    os.utime(theirs, (0, 0))
    remove_parts(tmp_path)
    assert names(tmp_path) == [users.name]


# What writes files and is not `core/files.py`, with the reason.
OTHER_WRITERS = {
    "src/triptych/lab/generating/rows.py": "a file of rows grows by whole lines",
    "src/triptych/lab/generating/rule_process.py": "a pipe",
    "src/triptych/lab/running/cache.py": "the lock of an entry, which is empty",
    "src/triptych/lab/running/database.py": "SQLite",
    "src/triptych/lab/results/plots.py": "into memory",
    "src/triptych/lab/results/verification.py": "a folder that is gone a moment later",
    "src/triptych/models/pretrained/copies.py": "into a locked folder, then moved",
    "src/triptych/models/pretrained/fetching.py": "into a locked folder; sums, then moved",
    "src/triptych/studies/generation/code_cases/writers.py": "a text for the stand-in, no file",
    "src/triptych/core/compiled.py": "a folder for the C compiler that is gone a moment later",
    "src/triptych/lab/running/tracking.py": "a file of losses grows by whole lines",
    "src/triptych/diffusion/law.py": "the text of a row, no file",
    "tools/name_vllm.py": "an environment that is made just then",
    "benchmarks/canvas.py": "rows of a benchmark, at the place that was named",
    "benchmarks/lab.py": "a folder that is gone a moment later",
    "tools/names.py": "sources that git has",
    "tools/pages.py": "a folder that is gone a moment later",
    "tools/translate_on_gpu.py": "a file of results grows by whole lines",
    "tools/check_dist.py": "an environment that is gone a moment later",
    "tools/test_on_gpu.py": "a log grows by whole lines while the tests run",
}
WRITING = {"write_text", "write_bytes", "writelines", "touch", "rename", "renames", "truncate"}
WRITING |= {"symlink_to", "hardlink_to", "link", "symlink", "savefig", "imsave", "imwrite"}
WRITING |= {"save_file", "save_pretrained", "save_model", "tofile", "savez", "savez_compressed"}
WRITING |= {"savetxt", "to_csv", "to_parquet", "to_pickle", "to_excel", "to_feather"}
WRITING |= {"mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory", "TemporaryFile"}
WRITING |= {"copy2", "copyfile", "copyfileobj", "copytree", "move", "make_archive", "fdopen"}
WRITING |= {"extractall", "urlretrieve", "FileHandler", "write_html", "write_image"}
OF_MODULES = {("os", "replace"), ("shutil", "copy"), ("torch", "save"), ("numpy", "save")}
OF_MODULES |= {("np", "save"), ("pickle", "dump"), ("sqlite3", "connect"), ("os", "open")}


def writes(tree, ours=frozenset()):
    """Lines of the calls that write a file or open one for writing.

    What is called by a name that came from `core/files.py`, and what happens inside `replacing`,
    writes through it.
    """
    through = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(
            isinstance(item.context_expr, ast.Call)
            and isinstance(item.context_expr.func, ast.Name)
            and item.context_expr.func.id in ours & {"replacing"}
            for item in node.items
        ):
            through |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or id(node) in through:
            continue
        function = node.func
        if isinstance(function, ast.Attribute):
            name = function.attr
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
        elif isinstance(function, ast.Name):
            name, owner = function.id, ""
        else:
            continue
        if name in ours:
            continue
        given = node.args[1:] if isinstance(function, ast.Name) else node.args
        modes = [a.value for a in given if isinstance(a, ast.Constant)]
        modes += [k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)]
        for_writing = any(
            isinstance(mode, str) and set(mode) & set("wax+") and len(mode) < 4 for mode in modes
        )
        opens = name in ("open", "ZipFile", "TarFile", "GzipFile", "memmap") and for_writing
        of_path = name == "replace" and len(node.args) == 1 and not node.keywords  # not of texts
        of_path &= isinstance(function, ast.Attribute)
        if opens or of_path or name in WRITING or (owner, name) in OF_MODULES:
            yield node.lineno


def names_of_files(tree):
    """What a file imports from `core/files.py`."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "triptych.core.files"
        for alias in node.names
    }


@pytest.mark.parametrize(
    "line",
    [
        "open('a', 'w')",
        "open('a', mode='ab')",
        "path.open('r+')",
        "path.open('x', encoding='utf-8')",
        "gzip.open(path, 'wt')",
        "path.write_text('x')",
        "path.write_bytes(b'')",
        "path.replace(other)",
        "os.replace(part, path)",
        "path.rename(other)",
        "shutil.copy(a, b)",
        "shutil.move(a, b)",
        "save_file(tensors, path)",
        "canvas.savefig(path)",
        "frame.to_csv(path)",
        "np.save(path, array)",
        "torch.save(net, path)",
        "zipfile.ZipFile(path, 'w')",
        "from triptych.core.files import replacing\nwith replacing(a): pass\nb.write_text('x')",
    ],
)
def test_writers_are_found_by_their_syntax(line):
    tree = ast.parse(line)
    assert list(writes(tree, names_of_files(tree)))


@pytest.mark.parametrize(
    "line",
    [
        "open('a')",
        "path.open('rb')",
        "text.replace('a', 'b')",
        "dataclasses.replace(unit, seed=1)",
        "reading.to_json()",
        "from triptych.core.files import write_text\nwrite_text(path, 'x')",
        "from triptych.core.files import replacing\nwith replacing(a) as part: fig.savefig(part)",
    ],
)
def test_what_writes_no_file_is_not_found(line):
    tree = ast.parse(line)
    assert not list(writes(tree, names_of_files(tree)))


def test_everything_else_writes_through_this_file():
    """A call that opens a file for writing, or that writes one, has to be listed here."""
    found = {}
    for root in ("src/triptych", "benchmarks", "tools", "docs"):
        for path in (ROOT / root).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if name == "src/triptych/core/files.py" or "/cli/templates/" in name:
                continue
            tree = ast.parse(path.read_text("utf-8"))
            if lines := list(writes(tree, names_of_files(tree))):
                found[name] = lines
    assert set(found) == set(OTHER_WRITERS), found
