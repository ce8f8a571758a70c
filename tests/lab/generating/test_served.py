"""`triptych generate --server`: rows say which model made them, each prompt is answered once."""

import json
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

import pytest
from tests.support.command_line import run
from tests.support.fake_served import LLAMA, VLLM, FakeServer
from tests.support.tiny_model_folder import save_tiny_model
from tests.support.tiny_text_model import BOS, END, EOS, tiny_tokenizer

from triptych.lab.generating import servers
from triptych.models.served.served_lm import ServedLM

TOKENS = 20
PROMPTS = [
    {"id": f"p{k}", "prompt": prompt} for k, prompt in enumerate(["a", "ab", "b", "(a", "0"])
]
KEY = "sk-in-no-file-98765"


def law(prefix):
    """Every token may come; what is likely depends on the last one."""
    weights = [1.0 + 5.0 * ((3 * token + prefix[-1]) % 7 == 0) for token in range(TOKENS)]
    weights[0] = weights[BOS] = 0.0
    return [weight / sum(weights) for weight in weights]


def serve(dialect=LLAMA, **more):
    options = {"vocab_size": TOKENS, "tokenizer": tiny_tokenizer(), "ends": (EOS, END)}
    return FakeServer(law, dialect=dialect, **{**options, **more})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(servers, "ServedLM", partial(ServedLM, patience=1.0))


@pytest.fixture
def words(model, tmp_path):
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PROMPTS))

    def make(at, **changes):
        given = {
            "server": at.url,
            "model": model,
            "prompts": tmp_path / "prompts.jsonl",
            "verifier": "brackets",
            "algorithm": "backtracking",
            "max_new_tokens": 6,
            "batch": 2,
            "out": tmp_path / "out.jsonl",
        }
        found = ["generate"]
        for name, value in (given | changes).items():
            if value is not None:
                found += [f"--{name.replace('_', '-')}"] + [str(value)] * (value is not True)
        return found

    return make


def rows_of(file):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["reason"] for row in rows if row["failed"]] == []
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["text"] for row in rows}


@pytest.mark.parametrize("dialect", [LLAMA, VLLM])
def test_rows_say_which_model_made_them(dialect, words, tmp_path):
    with serve(dialect, model="tiny-1") as server:
        done = run(*words(server, trace=True))
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [prompt["id"] for prompt in PROMPTS]
    assert {(row["served"]["dialect"], row["served"]["model"]) for row in rows} == {
        (dialect, "tiny-1")
    }


def test_a_key_is_in_no_file(words, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with serve(key=KEY) as server:
        done = run(*words(server, trace=True, key_variable="MY_KEY"))
        assert done.exit_code == 0, done.output
        server.faults = [500] * 99
        failed = run(*words(server, key_variable="MY_KEY", out=tmp_path / "b.jsonl"))
        assert failed.exit_code == 2
        monkeypatch.setenv("MY_KEY", f"{KEY}-wrong")
        wrong = run(*words(server, key_variable="MY_KEY", out=tmp_path / "c.jsonl"))
        assert wrong.exit_code == 2
    written = [each.read_text() for each in tmp_path.rglob("*") if each.is_file()]
    assert written
    assert not any(KEY in text for text in [*written, done.output, failed.output, wrong.output])


def test_a_server_that_dies_in_the_middle_loses_nothing(words, tmp_path):
    with serve() as server:
        whole = run(*words(server, out=tmp_path / "whole.jsonl"))
        assert whole.exit_code == 0, whole.output
        every = len(server.asked)
    wanted = rows_of(tmp_path / "whole.jsonl")
    with serve() as server:
        server.faults = [None] * (every - 4) + ["drop"] * 9999
        stopped = run(*words(server))
        assert stopped.exit_code == 2, stopped.output
    with serve() as server:  # on another port
        done = run(*words(server))
    assert done.exit_code == 0, done.output
    assert rows_of(tmp_path / "out.jsonl") == wanted


def client(command):
    """`triptych generate` in a process of its own."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-m", "triptych", *command], **quiet)


@pytest.mark.slow
def test_a_client_that_is_killed_answers_every_prompt_once(words, tmp_path):
    with serve() as server:
        whole = run(*words(server, out=tmp_path / "whole.jsonl"))
        assert whole.exit_code == 0, whole.output
        every, out = len(server.asked), tmp_path / "out.jsonl"
        server.delay = 0.02
        first = client(words(server, batch=1))
        while len(server.asked) < 2 * every - 4:
            assert first.poll() is None
            time.sleep(0.005)
        first.kill()
        first.wait()
        assert len(rows_of(out)) < len(PROMPTS)
        server.delay = 0.0
        assert run(*words(server, batch=1)).exit_code == 0
    assert rows_of(out) == rows_of(tmp_path / "whole.jsonl")


@pytest.mark.slow
def test_a_hundred_kills_of_server_and_client(words, tmp_path):
    """kill -9 of one or the other, 100 times, at moments that a fixed stream of numbers gives."""
    import random

    moments, killed, number = random.Random(0), 0, 0
    with serve() as server:
        whole = run(*words(server, out=tmp_path / "whole.jsonl"))
        assert whole.exit_code == 0, whole.output
        wanted = rows_of(tmp_path / "whole.jsonl")
        port = server._port

    def serving():
        program = (
            "import sys; sys.path.insert(0, '.')\n"
            "from tests.lab.generating.test_served import serve\n"
            f"with serve(port={port}) as server:\n"
            "    server.delay = 0.02\n    print('ready', flush=True)\n    input()\n"
        )
        running = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert running.stdout.readline() == b"ready\n"
        return running

    running = serving()
    try:
        while killed < 100:
            out, number = tmp_path / f"{number}.jsonl", number + 1
            command = words(server, out=out, batch=1)
            while True:
                mine = client(command)
                with suppress(subprocess.TimeoutExpired):
                    mine.wait(moments.uniform(1.0, 8.0))
                if mine.poll() is None and killed < 100:
                    killed += 1
                    if moments.random() < 0.5:
                        running.kill()
                        running.communicate()
                        running = serving()
                    else:
                        mine.kill()
                if mine.wait() == 0:
                    break
            assert rows_of(out) == wanted
    finally:
        running.kill()
        running.communicate()


def test_another_model_does_not_go_on_with_the_file(words, tmp_path):
    with serve(model="one") as server:
        assert run(*words(server, limit=2)).exit_code == 0
    with serve(model="two") as server:
        done = run(*words(server))
    assert done.exit_code == 2
    assert len(rows_of(tmp_path / "out.jsonl")) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"server": None, "dialect": "vllm"},
        {"server": None, "server_model": "a"},
        {"dialect": "tgi"},
        {"server_model": "another"},
        {"algorithm": "greedy"},
        {"key_variable": "NOT_IN_THE_ENVIRONMENT"},
        {"server": "http://me:secret@127.0.0.1"},
        {"server": "http://127.0.0.1:1"},
    ],
)
def test_mistakes_are_sentences(changes, words):
    with serve() as server:
        done = run(*words(server, **changes))
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    assert "secret@" not in done.output
