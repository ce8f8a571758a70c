"""Runs: the same rows for any engine, batch and interruption, and finished prompts are left."""

import io
import json
import time
from collections import Counter

import pytest

from triptych.core.validation import UserError
from triptych.lab.generating import completing, engines, run
from triptych.lab.generating.engines import Lost, run_on_actors
from triptych.lab.generating.progress import PromptProgress
from triptych.lab.generating.prompts import Prompt
from triptych.lab.generating.run import Spread, Summary, generate
from triptych.lab.running.engines.ray import MAX_ATTEMPTS

PROMPTS = [Prompt(i, text) for i, text in enumerate(["a", "ab", "(", "a", "b0", "[1", "b"])]


class InlineCluster:
    """Actors in this process. Some chunks lose their actor, so often."""

    def __init__(self, losses=()):
        self.losses = Counter(losses)
        self.started, self.stopped = 0, 0

    def start(self):
        self.started += 1
        return f"actor {self.started}"

    def submit(self, actor, chunk):
        return (actor, chunk)

    def wait(self, pending):
        return pending[:1]

    def result(self, ready):
        chunk = ready[1]
        if self.losses[chunk.key] > 0:
            self.losses[chunk.key] -= 1
            return Lost("the machine is gone")
        return completing.complete_chunk(chunk)

    def stop(self, actor):
        self.stopped += 1


@pytest.fixture
def rows_of(tmp_path, settings, read_rows):
    """The rows of a run in a new file."""

    def make(*, prompts=PROMPTS, spread=None, name="out.jsonl", **changes):
        out = tmp_path / name
        generate(prompts, settings(**changes), out, spread or Spread(batch=3))
        return read_rows(out)

    return make


@pytest.fixture(scope="module")
def known():
    """What a run of all prompts in one batch makes, made once."""
    return {}


@pytest.fixture
def right(rows_of, known):
    if not known:
        known.update(rows_of(name="right.jsonl", spread=Spread(batch=7)))
    return known


def test_rows_do_not_depend_on_batch_or_order(rows_of, right):
    assert len(right) == 7
    assert list(right) == list(range(7))
    assert rows_of(name="a.jsonl", spread=Spread(batch=2)) == right
    assert rows_of(name="b.jsonl", prompts=PROMPTS[::-1]) == right


@pytest.mark.slow
def test_the_local_engine_makes_the_same_rows(rows_of, right):
    assert rows_of(spread=Spread("local", workers=1, batch=4)) == right


def test_actors_make_the_same_rows(rows_of, right, monkeypatch):
    """The loop of the Ray engine, with actors in this process; one is lost on the way."""
    cluster = InlineCluster(losses=["3"])
    monkeypatch.setattr(
        engines, "run_on_ray", lambda chunks, workers, _: run_on_actors(chunks, workers, cluster)
    )
    assert rows_of(spread=Spread("ray", workers=2, batch=3)) == right
    assert cluster.started == cluster.stopped == 3


def test_a_chunk_whose_actors_are_always_lost_has_failed(rows_of, right, monkeypatch, capsys):
    cluster = InlineCluster(losses=["3"] * MAX_ATTEMPTS)
    monkeypatch.setattr(
        engines, "run_on_ray", lambda chunks, workers, _: run_on_actors(chunks, workers, cluster)
    )
    rows = rows_of(spread=Spread("ray", workers=1, batch=3))
    assert [rows[i]["failed"] for i in range(7)] == [3 <= i < 6 for i in range(7)]
    assert rows[4]["reason"].startswith("the model failed: the machine is gone (tried 3 times)")
    assert {i: row for i, row in rows.items() if not row["failed"]}.items() <= right.items()
    assert "a batch failed" in capsys.readouterr().err


@pytest.mark.slow
def test_ray_makes_the_same_rows(rows_of, right):
    pytest.importorskip("ray")
    assert rows_of(spread=Spread("ray", workers=2, batch=3)) == right


def test_finished_prompts_are_never_done_again(tmp_path, settings, right, read_rows, monkeypatch):
    out, asked = tmp_path / "out.jsonl", []
    complete = completing.complete_chunk

    def noted(chunk):
        asked.extend(each[0] for each in chunk.prompts)
        return complete(chunk)

    monkeypatch.setattr(engines, "complete_chunk", noted)
    first = generate(PROMPTS, settings(), out, Spread(batch=2), limit=3)
    assert (len(first.rows), len(first.made)) == (3, 3)
    out.write_bytes(out.read_bytes()[:-9])  # killed in the middle of a line
    second = generate(PROMPTS, settings(), out, Spread(batch=2))
    assert (len(second.rows), len(second.made)) == (7, 5)
    assert asked == [0, 1, 2, 2, 3, 4, 5, 6]
    assert read_rows(out) == right
    before = out.read_bytes()
    third = generate(PROMPTS, settings(), out, Spread(batch=2))
    assert third.made == []
    assert third.lines()[1] == "Nothing was left to do."
    assert len(asked) == 8
    assert out.read_bytes() == before


def test_ctrl_c_keeps_what_is_done(tmp_path, settings, right, read_rows, monkeypatch):
    out, complete, calls = tmp_path / "out.jsonl", completing.complete_chunk, []

    def stopped(chunk):
        calls.append(chunk.key)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return complete(chunk)

    monkeypatch.setattr(engines, "complete_chunk", stopped)
    with pytest.raises(KeyboardInterrupt):
        generate(PROMPTS, settings(), out, Spread(batch=3))
    assert set(read_rows(out)) == {0, 1, 2}
    generate(PROMPTS, settings(), out, Spread(batch=3))
    assert read_rows(out) == right


def test_failed_rows_are_made_again_when_asked(tmp_path, settings, right, read_rows, monkeypatch):
    out, complete = tmp_path / "out.jsonl", completing.complete_chunk
    with monkeypatch.context() as broken:
        broken.setattr(
            engines, "complete_chunk", lambda chunk: completing.Ended(chunk.key, None, "no", 0.0)
        )
        summary = generate(PROMPTS, settings(), out, Spread())
    assert summary.exit_code == 1
    assert generate(PROMPTS, settings(), out, Spread()).made == []
    assert generate(PROMPTS, settings(), out, Spread(), retry_failed=True).exit_code == 0
    assert read_rows(out) == right
    assert complete is engines.complete_chunk


def test_a_mistake_that_a_worker_finds_stops_the_run(tmp_path, settings, monkeypatch):
    made = settings()
    broken = type(made)(**vars(made) | {"model": str(tmp_path / "gone")})
    with pytest.raises(UserError, match="gone.* could not be loaded"):
        generate(PROMPTS, broken, tmp_path / "out.jsonl", Spread())


def test_traces_are_a_file_beside(tmp_path, settings, right, read_rows):
    out = tmp_path / "out.jsonl"
    generate(PROMPTS, settings(), out, Spread(batch=4, trace=True))
    assert read_rows(out) == right
    lines = [json.loads(line) for line in (tmp_path / "out.trace.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == list(range(7))
    assert all(line["events"] for line in lines)


def test_the_summary():
    costs = {"generator_calls": 5, "generated": 4, "erased": 1, "verifier_calls": 3}
    row = {"accepted": True, "complete": True, "failed": False, "costs": costs}
    bad = row | {"accepted": False, "complete": False, "failed": True}
    summary = Summary([row, row, bad], [row, bad], 2.0)
    assert summary.lines() == [
        "3 rows: 2 accepted (67%), 2 complete, 1 failed (their `reason` says why)",
        "This run for 2 of them: 10 generator calls, 6 verifier questions, 8 tokens in 2.0 s "
        "(4 tokens/s)",
    ]
    assert Summary([row], [row], 2.0, 20.0).lines()[1].endswith("after 20 s of loading")
    assert summary.exit_code == 0
    assert Summary([bad], [bad], 1.0).exit_code == 1
    free = row | {"accepted": None}
    assert Summary([free], [free], 1.0).lines()[0] == "1 row: 1 complete"


def test_loading_is_not_completing(tmp_path, settings, monkeypatch):
    """Neither the seconds of the rows nor the rate count it."""
    load = completing.load_model

    def slowly(*given):
        time.sleep(1.5)
        return load(*given)

    completing.release()
    monkeypatch.setattr(completing, "load_model", slowly)
    began = time.monotonic()
    summary = generate(PROMPTS, settings(), tmp_path / "out.jsonl", Spread(batch=3))
    assert summary.loading >= 1.5
    assert summary.loading + summary.seconds <= time.monotonic() - began + 1e-6
    assert 0 < sum(row["seconds"] for row in summary.made) <= summary.seconds + 1e-3


def test_progress_lines_and_bar(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("triptych.lab.generating.progress.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    show = PromptProgress(stream)
    show.begin(3, 2, "my-model")
    now[0] = 5.0
    show.loaded(5.0)
    now[0] = 7.0
    show.done(1, 0, 50)  # too early for a line
    now[0] = 25.0
    show.done(1, 1, 50)
    show.done(1, 0, 0)
    show.end()
    assert stream.getvalue().splitlines() == [
        "generate: 3 prompts to complete (2 are done); loading my-model ...",
        "generate: 4/5 prompts, 1 failed, 5 tokens/s, about 10 s left",
        "generate: 5/5 prompts, 1 failed, 5 tokens/s",
    ]

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    show = PromptProgress(terminal)
    show.begin(2, 1, "my-model")
    assert "loading my-model" in terminal.getvalue()
    show.loaded(25.0)
    show.done(2, 1, 10)
    show.end()
    assert "3/3" in terminal.getvalue()
    assert "tokens/s" in terminal.getvalue()


@pytest.mark.parametrize(
    ("spread", "sentence"),
    [
        (Spread("dask"), "there is no engine 'dask'; the engines are inline, local, ray"),
        (Spread(batch=0), "--batch is 0"),
        (Spread("local", workers=0), "--workers is 0"),
        (Spread(workers=2), "the engine inline has one"),
        (Spread(ray_address="auto"), "--ray-address is for --engine ray"),
        (Spread(device="tpu9"), "--device"),
        (Spread(device="meta"), "--device"),
        (Spread("ray", device="mps"), "--device"),
    ],
)
def test_how_it_is_spread_is_checked(tmp_path, settings, spread, sentence):
    with pytest.raises(UserError, match=sentence):
        generate(PROMPTS, settings(), tmp_path / "out.jsonl", spread)
    assert not (tmp_path / "out.jsonl").exists()


def test_workers_are_few_by_default(monkeypatch):
    monkeypatch.setattr(run, "_cores", lambda: 8)
    assert run._workers(Spread()) == 1
    assert run._workers(Spread("local")) == 2
    assert run._workers(Spread("local", device="cuda")) == 1
    assert run._workers(Spread("ray", workers=5)) == 5
