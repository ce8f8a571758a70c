"""`triptych generate`: from the command line to the file of rows, and a sentence for mistakes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.support import gpus
from tests.support.command_line import run
from tests.support.tiny_model_folder import save_tiny_model

from triptych.lab.generating import completing


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, prompts and rules."""
    folder = tmp_path_factory.mktemp("place")
    save_tiny_model(folder / "model")
    (folder / "prompts.jsonl").write_text('"a"\n{"id": "x", "prompt": "ab"}\n"b"\n')
    (folder / "rule.py").write_text(
        "def few(text):\n    return text.count('0') <= 1\n"
        "def words(text):\n    return 'yes'\n"
        "def raises(text):\n    return 1 / 0\n"
    )
    return folder


@pytest.fixture
def words(place, tmp_path, monkeypatch):
    """The words of a command, with changes; None leaves an option out."""
    monkeypatch.chdir(place)

    def make(**changes):
        given = {
            "model": "model",
            "prompts": "prompts.jsonl",
            "verifier": "brackets",
            "algorithm": "tokenwise",
            "max_new_tokens": "5",
            "out": str(tmp_path / "out.jsonl"),
        }
        found = ["generate"]
        for name, value in (given | changes).items():
            if value is not None:
                found += [f"--{name.replace('_', '-')}"] + [str(value)] * (value is not True)
        return found

    return make


def test_texts_into_a_file(words, tmp_path):
    done = run(*words(verifier="rule.py:few", set="tries=7", trace=True))
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [1, "x", 3]
    assert all(row["text"].count("0") <= 1 for row in rows if row["accepted"])
    assert done.stdout.startswith("3 rows: ")
    assert "generator calls" in done.stdout
    assert (tmp_path / "out.trace.jsonl").exists()
    again = run(*words(verifier="rule.py:few", set="tries=7"))
    assert again.exit_code == 0
    assert "Nothing was left to do." in again.stdout
    changed = run(*words(verifier="rule.py:few", set="tries=8"))
    assert changed.exit_code == 2
    assert 'options was {"tries": 7' in changed.stderr


def test_without_a_verifier_and_from_standard_input(words, place, tmp_path, monkeypatch):
    out = tmp_path / "out.jsonl"
    options = {"verifier": None, "algorithm": "ancestral", "prompts": "-", "top_k": 3}
    done = run(*words(**options), stdin='"a"\n')
    assert done.exit_code == 0, done.output
    assert json.loads(out.read_text())["accepted"] is None


def test_a_share_that_must_be_accepted_and_stop_strings(words, tmp_path):
    few = {"verifier": "rule.py:few", "set": "tries=7"}
    assert run(*words(**few, require_accepted=0.0)).exit_code == 0
    done = run(*words(**few, require_accepted=1.0, out=str(tmp_path / "o.jsonl"), stop="a"))
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    share = sum(bool(row["accepted"]) for row in rows) / 3
    assert done.exit_code == int(share < 1)
    assert ("Fewer than 100.0% are accepted." in done.stderr) == (share < 1)
    assert f"accepted ({share:.0%})" in done.stdout
    assert not any("a" in row["text"] for row in rows)
    none = run(
        *words(verifier="rule.py:few", set="attempts=1", algorithm="rejection", require_accepted=2)
    )
    assert (none.exit_code, "--require-accepted is 2.0" in none.stderr) == (2, True)


def test_all_prompts_fail(words, tmp_path):
    done = run(*words(verifier="rule.py:raises"))
    assert done.exit_code == 1
    assert "3 failed" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert all("ZeroDivisionError" in row["reason"] for row in rows)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "."}, "holds no model: it has no config.json"),
        ({"model": "rule.py"}, "is a file; give a folder or a .gguf"),
        ({"model": "./none"}, "there is no file or folder './none'"),
        ({"model": "none.gguf"}, "there is no file or folder"),
        ({"model": "smolm"}, "not the name of a model on the hub, as owner/name"),
        ({"model": "smollm2-135m"}, "not here yet: run `triptych fetch smollm2-135m`"),
        ({"model": ""}, "the model is ''"),
        ({"verifier": "rule.py:none"}, "has no function none; it has few, words, raises"),
        ({"verifier": "rule.py:words"}, "the answer is 'yes'; it must be True, False"),
        ({"verifier": "jsonn"}, "there is no verifier 'jsonn'; did you mean json"),
        ({"verifier": None}, "tokenwise needs --verifier"),
        ({"set": "quta=3"}, "tokenwise has no --quta; it takes --"),
        ({"set": "tries"}, "sets no option"),
        ({"algorithm": "vbg"}, "vgb"),
        ({"prompts": "rule.py"}, "line 1 is not JSON"),
        ({"prompts": "none"}, "cannot be read"),
        ({"out": "rule.py"}, "rule.py is not a file of rows"),
        ({"out": "rule.py", "fresh": True}, "rule.py is not a file of rows"),
        ({"out": "prompts.jsonl", "fresh": True}, "--prompts and --out are the same file"),
        ({"temperature": -1}, "temperature is -1"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"device": "cuda:99"}, "--device"),
        ({"engine": "spark"}, "there is no engine 'spark'"),
        ({"timeout": 0}, "--timeout is 0"),
        ({"limit": 0}, "--limit is 0"),
        ({"max_new_tokens": 0}, "--max-new-tokens is 0"),
        ({"budget_tokens": -1}, "tokens is -1"),
        ({"seed": -1}, "--seed"),
    ],
)
def test_mistakes_get_a_sentence(words, place, changes, sentence, monkeypatch, tmp_path):
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path / "empty"))
    before = {file: file.read_bytes() for file in place.iterdir() if file.is_file()}
    done = run(*words(**changes))
    assert done.exit_code == 2, done.output
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2  # with the line of progress
    assert {file: file.read_bytes() for file in place.iterdir() if file.is_file()} == before


def test_a_gpu_that_is_not_there_where_there_is_one(words, monkeypatch, tmp_path):
    gpus.pretend(monkeypatch, 1)
    done = run(*words(device="cuda:9"))
    assert done.exit_code == 2, done.output
    assert "--device is 'cuda:9', and this machine has 1 GPU" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_hub_that_cannot_be_reached(words, monkeypatch):
    from transformers import AutoModelForCausalLM

    def unreachable(*_, **__):
        raise OSError("We couldn't connect to 'https://huggingface.co'")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", unreachable)
    done = run(*words(model="owner/name"))
    assert done.exit_code == 2
    assert "the hub does not answer" in done.stderr
    assert "owner/name" in done.stderr


def test_the_tokenizer_of_another_model(words, tmp_path):
    """It has more tokens than the model embeds."""
    folder = save_tiny_model(tmp_path / "other")
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"]["zzz"] = 77
    file.write_text(json.dumps(tokenizer))
    done = run(*words(model=str(folder)))
    assert done.exit_code == 2
    assert "it is the tokenizer of another model" in done.stderr


def test_a_fetched_name_is_a_model(words, place, monkeypatch):
    monkeypatch.setattr("triptych.models.pretrained.fetching.cached", lambda name: place / "model")
    assert run(*words(model="smollm2-135m")).exit_code == 0


STOPPED = """
import sys
from triptych.lab.generating import completing, engines

complete, calls = completing.complete_chunk, []

def slowly(chunk):
    calls.append(chunk)
    if len(calls) == 2:
        print("second", flush=True)
        while True:
            pass
    return complete(chunk)

engines.complete_chunk = slowly
from triptych.__main__ import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_goes_on(words, place, tmp_path, number):
    """Ctrl-C: exit code 130 and a sentence. Both: what is done stays, and the next run goes on."""
    command = words(batch="2")
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout.readline() == "second\n"
    time.sleep(0.1)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert ("the same command goes on" in err) == (number == signal.SIGINT)
    out = tmp_path / "out.jsonl"
    first = out.read_text()
    assert len(first.splitlines()) == 2
    assert run(*command).exit_code == 0
    assert out.read_text().startswith(first)
    assert len(out.read_text().splitlines()) == 3


def test_the_model_is_loaded_once(words, monkeypatch):
    loaded = []
    load = completing.load_model
    monkeypatch.setattr(
        completing, "load_model", lambda *given: loaded.append(given) or load(*given)
    )
    completing.release()
    assert run(*words(batch="1")).exit_code == 0
    assert len(loaded) == 1
