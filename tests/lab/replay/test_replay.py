"""A replay holds every event of the run, stands alone, escapes what it shows, and plays."""

import itertools
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from tests.support.browser import Browser, walk
from tests.support.grids import pairs
from tests.support.refusals import refused
from typer.testing import CliRunner

from triptych.core.decoders import RecomputingDecoder
from triptych.core.files import NotWritten
from triptych.core.randomness import TorchRng
from triptych.inference.guided import backtracking, vgb
from triptych.inference.guided.algorithm import algorithms
from triptych.inference.guided.generation import Costs, Event, Result
from triptych.lab.cli.app import app
from triptych.lab.replay import demonstrations
from triptych.lab.replay.demonstrations import TASKS, demonstration
from triptych.lab.replay.page import render_trace, trace_data, write_trace
from triptych.lab.results.series_looks import THEMES
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.faulty import CarelessBrackets
from triptych.structures.uniform import Uniform
from triptych.verifiers.exact import Rule

EVIL = "</script><script>document.title='broken'</script> & \"q\" <b>"
VOID = {"meta", "input"}
ALGORITHMS = algorithms()


def result_of(events, tokens=((0,),), start=0, generated=0, erased=0):
    """A result by hand; the costs has the same numbers for every row."""
    table = torch.tensor(tokens)
    each = torch.ones(len(table), dtype=torch.long)
    costs = Costs(each * 2, each * generated, each * erased, each, each * 0, each * 0)
    lengths, complete = each * table.shape[1], each.bool()
    reasons = (None,) * len(table)
    return Result(
        *(table, lengths, tuple(events), costs, each * start),
        *(complete, complete, complete, reasons, None),
    )


def happened(action, tokens, value, calls, asked, prompt=0):
    return Event(0, action, tokens, value, calls, asked, prompt)


STORY = [
    happened("draw", (1,), None, 1, 0),
    happened("reject", (1,), -math.inf, 1, 1),
    happened("backtrack", (), None, 1, 1),
    happened("argmax", (0,), None, 2, 1),
]


def embedded(html):
    """The data in the page, and the events rebuilt from it."""
    (side,) = json.loads(re.search(r'id="trace-data">(.*?)</script>', html, re.S)[1])["sides"]
    return side


def rebuilt(data):
    events = []
    for number, row in enumerate(data["rows"]):
        strings = [()]
        for parent, token in row["nodes"][1:]:
            strings.append((*strings[parent], token))
        assert len(set(strings)) == len(strings)
        for action, node, value, calls, asked in row["events"]:
            value = -math.inf if value == "-inf" else value
            string, lost = strings[node], strings[node].count(-1)
            prompt = len(row["prompt"]) + lost
            events.append(Event(number, action, string[lost:], value, calls, asked, prompt))
    return events


# ---------------------------------------------------------------------- the data


def test_worked_value():
    (row,) = trace_data(result_of(STORY, generated=2, erased=1))["rows"]
    assert row["nodes"] == [[-1, -1], [0, 1], [0, 0]]
    assert row["events"] == [
        ["draw", 1, None, 1, 0],
        ["reject", 1, "-inf", 1, 1],
        ["backtrack", 0, None, 1, 1],
        ["argmax", 2, None, 2, 1],
    ]
    assert (row["generated"], row["erased"]) == ([1, 1, 1, 2], [0, 0, 1, 1])
    assert (row["prompt"], row["final"], row["complete"], row["correct"]) == ([], [0], True, None)
    assert row["reason"] is None


def test_a_refused_token_that_is_redrawn_is_erased_by_its_refusal():
    events = [
        happened("draw", (1,), None, 1, 0),
        happened("reject", (1,), -math.inf, 1, 1),
        happened("draw", (0,), None, 2, 1),
        happened("accept", (0,), 0.0, 2, 2),
        happened("draw", (0, 1), None, 3, 2),
        happened("reject", (0, 1), -math.inf, 3, 3),
    ]
    (row,) = trace_data(result_of(events, generated=3, erased=2))["rows"]
    assert row["generated"] == [1, 1, 2, 2, 3, 3]
    assert row["erased"] == [0, 1, 1, 1, 1, 2]


def test_counts_that_the_trace_does_not_tell_are_left_out():
    (row,) = trace_data(result_of(STORY, generated=7, erased=1))["rows"]
    assert row["generated"] is None
    assert row["erased"] is None
    assert row["totals"]["generated"] == 7


def test_prompt_and_completion_are_told_apart():
    events = [happened("draw", (3,), None, 1, 0, prompt=2)]
    (row,) = trace_data(result_of(events, tokens=((5, 4, 3),), start=2))["rows"]
    assert (row["prompt"], row["final"], row["origin"]) == ([5, 4], [3], 0)


# 5 4 | 3 is refused and erased with the 4; the row continues from 5 with 6.
INTO_THE_PROMPT = [
    happened("draw", (3,), None, 1, 0, prompt=2),
    happened("reject", (3,), -math.inf, 1, 1, prompt=2),
    happened("backtrack", (), None, 1, 1, prompt=1),
    happened("draw", (6,), None, 2, 1, prompt=1),
]


def into_the_prompt():
    return result_of(INTO_THE_PROMPT, tokens=((5, 6),), start=1, generated=2, erased=2)


def test_a_prompt_that_was_erased_has_unknown_tokens():
    (row,) = trace_data(into_the_prompt())["rows"]
    assert (row["prompt"], row["final"], row["origin"]) == ([5], [6], 1)
    assert row["nodes"] == [[-1, -1], [0, -1], [1, 3], [0, 6]]
    assert [event[1] for event in row["events"]] == [2, 2, 0, 3]
    assert row["erased"] == [0, 0, 2, 2]
    assert rebuilt({"rows": [row]}) == INTO_THE_PROMPT


def test_a_run_that_erases_its_prompt_round_trips():
    demo = demonstration("dyck", length=10, seed=0)
    decoder = RecomputingDecoder(demo.model, 3)
    decoder.extend(torch.tensor([[2, 0, 2]] * 3))
    result = backtracking.sample(
        decoder,
        demo.verifier,
        length=10,
        quota=6,
        stride=5,
        into_prompt=2,
        record=True,
        rng=TorchRng(0),
    )
    assert result.info.erased_prompt.max() > 0
    data = trace_data(result)
    assert rebuilt(data) == sorted(result.trace, key=lambda event: event.row)
    for number, row in enumerate(data["rows"]):
        assert row["origin"] == result.info.erased_prompt[number]
        assert row["erased"][-1] == result.costs.erased[number]


SMALL = {"dyck": 6, "zeros": 3, "parity": 4, "some-zero": 3, "attention": 4}


@pytest.mark.parametrize(("algorithm", "task"), pairs(ALGORITHMS, TASKS))
def test_every_algorithm_gives_a_page_with_every_event(algorithm, task):
    demo = demonstration(task, length=SMALL[task], seed=1)
    verifier, _ = demonstrations.noisy(demo, soft=ALGORITHMS[algorithm].soft, noise=0.1, seed=2)
    limit = {"vgb": {"steps": 60}, "rejection": {"attempts": 8}, "tokenwise": {"tries": 5}}
    chosen = ALGORITHMS[algorithm].of(limit.get(algorithm, {}))
    result = demonstrations.generate(chosen, demo, verifier, rows=2, seed=3)
    correct = demo.correct(result)
    data = embedded(render_trace(result, names=demo.names, correct=correct))
    by_row = sorted(result.trace, key=lambda event: event.row)
    assert rebuilt(data) == by_row
    assert data["names"] == list(demo.names)
    for number, row in enumerate(data["rows"]):
        assert row["prompt"] + row["final"] == list(result.completions()[number])
        assert row["correct"] is correct[number]
        for name in ("generator_calls", "verifier_calls", "generated", "erased"):
            assert row["totals"][name] == int(getattr(result.costs, name)[number])
        if row["generated"] is None:  # it asks about tokens that it does not write: totals alone
            assert algorithm == "adaptive"
            continue
        assert row["generated"][-1] == row["totals"]["generated"]
        assert row["erased"][-1] == row["totals"]["erased"]
        if algorithm not in (
            "adaptive",
            "best_of_n",
            "blocks",
            "majority",
            "particles",
        ):  # one string at a time
            kept = [a - b for a, b in zip(row["generated"], row["erased"], strict=True)]
            refused = [event[0] == "reject" for event in row["events"]]
            for event, number_kept, no in zip(rebuilt({"rows": [row]}), kept, refused, strict=True):
                assert len(event.tokens) - number_kept in ((0, 1) if no else (0,))


# ---------------------------------------------------------------------- the page


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.words = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_well_formed_and_loads_nothing():
    html = render_trace(result_of(STORY), names=["a", "b"])
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "video", "audio"}
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    assert "url(" not in html
    assert "@import" not in html
    addresses = set(re.findall(r"https?://[^\s\"')]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG, which nothing fetches


def test_buttons_have_names_and_controls_exist():
    page = Page(render_trace(result_of(STORY)))
    buttons = [attributes for tag, attributes in page.tags if tag == "button"]
    wanted = {"first", "back", "play", "forward", "last", "smaller", "larger", "fit", "theme"}
    assert wanted <= {attributes["id"] for attributes in buttons}
    assert all(attributes["type"] == "button" for attributes in buttons)
    labels = {a["id"]: a.get("aria-label") for a in buttons}
    assert labels["first"] == "First step"
    assert labels["forward"] == "One step forward"
    (slider,) = [a for tag, a in page.tags if tag == "input"]
    assert (slider["type"], slider["aria-label"]) == ("range", "Step")


def test_everything_is_escaped():
    html = render_trace(result_of(STORY), names=[EVIL, "b"], title=EVIL, about=EVIL)
    page = Page(html)
    harmless = Page(render_trace(result_of(STORY), names=["a", "b"], title="t", about="a"))
    assert page.tags == harmless.tags
    assert embedded(html)["names"] == [EVIL, "b"]
    assert EVIL in page.words  # the title, as text
    script = re.search(r'id="trace-data">(.*?)</script>', html, re.S)[1]
    assert not set("<>&") & set(script)


def test_the_same_run_is_the_same_bytes():
    def page():
        demo = demonstration("dyck", length=8)
        result = demonstrations.generate("backtracking", demo, demo.verifier, seed=5)
        return render_trace(result, names=demo.names, correct=demo.correct(result))

    assert page() == page()


def test_the_dark_colours_are_those_of_the_report():
    dark = files("triptych.lab.results").joinpath("dark.css").read_text("utf-8")
    assert dark in render_trace(result_of(STORY))
    for name, colour in THEMES["dark"].items():  # of the drawings
        assert f"--{name}: {colour};" in dark


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"names": ["a"]}, r"names has 1 entries, and token 1 occurs: it needs 2"),
        ({"correct": [True, False]}, r"correct has 2 entries, and the result has 1 rows"),
    ],
)
def test_what_does_not_fit_is_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        render_trace(result_of(STORY), **options)


def test_a_result_without_a_trace_says_what_to_do():
    decoder = RecomputingDecoder(Uniform(2, 3), 1)
    value = Rule(lambda prefix: True)
    result = backtracking.sample(decoder, value, length=3, quota=1, stride=1, rng=TorchRng(0))
    with refused("result"):
        render_trace(result)


def test_the_verdict_may_be_a_tensor():
    (row,) = trace_data(result_of(STORY), correct=torch.tensor([False]))["rows"]
    assert row["correct"] is False


def test_the_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "replay.html"
    assert write_trace(result_of(STORY), str(path), title="one") == path
    before = path.read_text("utf-8")
    assert before == render_trace(result_of(STORY), title="one")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(NotWritten, match="disk full"):
        write_trace(result_of(STORY), path, title="two")
    assert path.read_text("utf-8") == before
    assert [file.name for file in path.parent.iterdir()] == ["replay.html"]


# ---------------------------------------------------------------------- the tasks


def test_the_careless_writer():
    types = torch.tensor([0.2, 0.8], dtype=torch.float64)
    dyck = Dyck.fixed_length(4, type_probs=types, q=0.5)
    law = CarelessBrackets(dyck, 0.25).next_token_log_probs(dyck.tokens("[", "(")).exp()
    wanted = [[1 / 10, 3 / 8, 4 / 10, 1 / 8], [1 / 10, 1 / 8, 4 / 10, 3 / 8]]
    torch.testing.assert_close(law, torch.tensor(wanted, dtype=torch.float64))
    closed = CarelessBrackets(dyck, 0.25).next_token_log_probs(dyck.tokens("[)")).exp()
    assert closed.tolist() == [[0.2, 0.0, 0.8, 0.0]]  # a wrong bracket closes all the same
    careful = CarelessBrackets(dyck, 0.0)
    for text in ("", "[", "[(", "()", "[()", "([]"):
        prefix = dyck.tokens(text) if text else torch.zeros((1, 0), dtype=torch.long)
        mine, exact = (m.next_token_log_probs(prefix).exp() for m in (careful, dyck))
        torch.testing.assert_close(mine, exact)


@pytest.mark.parametrize("task", TASKS)
def test_the_value_is_the_probability_of_a_right_completion(task):
    """V*(x) = Σ_y p(y | x) V*(xy), and on full strings V* is the verifier: this defines V*."""
    demo = demonstration(task, length=4, seed=7)
    vocab = len(demo.names)
    assert demo.model.vocab_size == vocab
    full = torch.tensor(list(itertools.product(range(vocab), repeat=4)))
    torch.testing.assert_close(demo.value.log_value(full), demo.verifier.log_value(full))
    reached = [()]
    for t in range(4):
        prefix = torch.tensor(reached).long().reshape(len(reached), t)
        law = demo.model.next_token_log_probs(prefix).exp()
        torch.testing.assert_close(law.sum(-1), torch.ones(len(prefix)).double())
        below = torch.cat(
            [prefix.repeat_interleave(vocab, 0), torch.arange(vocab).repeat(len(prefix))[:, None]],
            1,
        )
        after = demo.value.log_value(below).exp().reshape(-1, vocab)
        torch.testing.assert_close(demo.value.log_value(prefix).exp(), (law * after).sum(-1))
        possible = law.reshape(-1) > 0
        reached = [tuple(row) for row in below[possible].tolist()]
    hard = demo.verifier.log_value(torch.tensor(reached)) == 0
    assert hard.any()


def test_noise_flips_before_the_end_only():
    demo = demonstration("zeros", length=4)
    same, told = demonstrations.noisy(demo, soft=False, noise=0.0, seed=0)
    assert same is demo.verifier
    assert "wrong" not in told
    wrong, told = demonstrations.noisy(demo, soft=False, noise=1.0, seed=0)
    assert "wrong 100% of the time" in told
    prefix = torch.tensor([[0, 0], [0, 1]])
    assert wrong.log_value(prefix).tolist() == [-math.inf, 0.0]
    end = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 1]])
    assert wrong.log_value(end).tolist() == [0.0, -math.inf]
    soft, told = demonstrations.noisy(demo, soft=True, noise=0.5, seed=0)
    assert "factor of up to 1.5" in told
    ratio = (soft.log_value(prefix[:1]) - demo.value.log_value(prefix[:1])).exp().item()
    assert 1 / 1.5 <= ratio <= 1.5
    assert ratio != 1.0


def test_a_row_that_was_given_up_is_not_correct():
    demo = demonstration("zeros", length=12)
    result = demonstrations.generate(ALGORITHMS["rejection"](1), demo, demo.verifier)
    assert result.lengths.tolist() == [0]  # which could be completed, and is not
    assert demo.correct(result) == [False]


def test_a_row_is_the_same_alone_and_among_others():
    demo = demonstration("dyck", length=8)
    one = demonstrations.generate("backtracking", demo, demo.verifier, seed=1, rows=1)
    three = demonstrations.generate("backtracking", demo, demo.verifier, seed=1, rows=3)
    assert one.trace == tuple(event for event in three.trace if event.row == 0)


# ---------------------------------------------------------------------- the command


def run(*arguments):
    return CliRunner().invoke(app, ["replay", *arguments])


def test_the_command_writes_a_page_and_a_summary(tmp_path):
    out = tmp_path / "deep" / "replay.html"
    done = run("--prompt", "([", "--rows", "2", "--out", str(out))
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[-1] == f"Open {out}"
    data = embedded(out.read_text("utf-8"))
    for line, row in zip(lines, data["rows"], strict=False):
        text = "".join(data["names"][token] for token in row["prompt"] + row["final"])
        assert line.startswith(f"{text}  {'' if row['correct'] else 'not '}correct; ")
        assert f"{row['totals']['generator_calls']} generator calls" in line
        assert f"{row['totals']['erased']} erased" in line
        assert row["prompt"] == [2, 0]
        assert row["correct"] is balanced(text)
    assert "Example: triptych replay" in run("--help").stdout


def balanced(text):
    while "()" in text or "[]" in text:
        text = text.replace("()", "").replace("[]", "")
    return not text


def test_the_default_replay_backtracks_and_comes_out_right(tmp_path):
    done = run("--out", str(tmp_path / "replay.html"))
    (row,) = embedded((tmp_path / "replay.html").read_text("utf-8"))["rows"]
    assert row["correct"] is True
    assert [event[0] for event in row["events"]].count("backtrack") >= 2
    assert " correct; " in done.stdout


def test_a_row_that_is_given_up(tmp_path):
    arguments = ("tokenwise", "--task", "parity", "--tries", "3", "--seed", "1")
    done = run(*arguments, "--out", str(tmp_path / "replay.html"))
    assert done.exit_code == 0
    assert "  not finished (tries used up); " in done.stdout
    (row,) = embedded((tmp_path / "replay.html").read_text("utf-8"))["rows"]
    assert (row["complete"], row["reason"]) == (False, "tries used up")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("bactracking",), "there is no algorithm 'bactracking'; did you mean backtracking?"),
        (("--task", "dick"), "there is no task 'dick'; did you mean dyck? (tasks: dyck, zeros"),
        (("vgb", "--quota", "3"), "vgb has no --quota; it takes --steps"),
        (("ancestral", "--n", "3"), "ancestral has no --n; it takes no option of its own"),
        (("--length", "7"), "7"),
        (("--length", "0"), "length"),
        (("--rows", "0"), "batch"),
        (("--quota", "-1"), "quota"),
        (("--noise", "1.5"), "noise is 1.5; it must be a probability"),
        (("vgb", "--noise", "-1"), "epsilon is -1.0"),
        (("--prompt", "(a"), "the prompt has 'a'; this task is written in [ ] ( )"),
        (("--length", "2", "--prompt", "()()"), "token"),
        (("--length", "2", "--prompt", "()"), "no trace to replay"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence, tmp_path):
    out = tmp_path / "replay.html"
    done = run(*arguments, "--out", str(out))
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert done.stderr.startswith("triptych: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert not out.exists()


def test_every_option_of_every_record_is_an_option_of_the_command(tmp_path):
    shown = run("--help").stdout
    for record in ALGORITHMS.values():
        assert record.name in shown
        for option in record.options():
            assert option.flag in shown


@pytest.mark.parametrize(
    "written",
    [
        ("--quota", "2", "--stride=3", "--no-redo-argmax"),
        ("--set", "quota=2", "--set", "stride=3", "--set", "redo_argmax=no"),
        ("--stride", "9", "--set", "stride=3", "--quota=2", "--redo_argmax=false"),
    ],
)
def test_options_may_be_written_in_two_ways(written, tmp_path):
    out = tmp_path / "replay.html"
    assert run(*written, "--seed", "3", "--out", str(out)).exit_code == 0
    demo = demonstration("dyck", seed=3)
    chosen = ALGORITHMS["backtracking"](quota=2, stride=3, redo_argmax=False)
    result = demonstrations.generate(chosen, demo, demo.verifier, seed=3)
    data = embedded(out.read_text("utf-8"))
    assert rebuilt(data) == list(result.trace)
    settings = "quota = 2, stride = 3, redo_argmax = False".replace(
        " = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
    )
    assert settings in out.read_text("utf-8")


def test_an_option_without_its_value():
    done = run("--quota")
    assert done.exit_code == 2
    assert "--quota needs a value" in done.stderr


OWN = """
from dataclasses import dataclass

from triptych.inference.guided.algorithm import Algorithm, option


@dataclass(frozen=True)
class ZerosFirst(Algorithm[None]):
    \"\"\"`zeros` times token 0, then draws.\"\"\"

    title = "Zeros first"
    promise = "none"
    zeros: int = option(2, "how many")

    def run(self, run):
        while len(rows := run.open_rows()):
            if int(run.decoder.lengths[0]) < self.zeros:
                run.put(rows * 0, rows, "argmax")
            else:
                run.draw(rows)
"""


def test_an_algorithm_of_ones_own(tmp_path):
    """`--zeros` is an option of that file alone; with its default."""
    file, out = tmp_path / "mine.py", tmp_path / "replay.html"
    file.write_text(OWN)
    for written, zeros in ((), 2), (("--zeros", "3"), 3):
        done = run(str(file), "--task", "some-zero", *written, "--out", str(out))
        assert done.exit_code == 0, done.output
        (row,) = embedded(out.read_text("utf-8"))["rows"]
        assert [event[0] for event in row["events"]] == ["argmax"] * zeros + ["draw"] * (8 - zeros)
        assert row["final"][:zeros] == [0] * zeros
        assert "Zeros first: strings with a 0" in out.read_text("utf-8")
    assert "--zeros <int>" in run(str(file), "--help").stdout
    assert "--attempts" not in run(str(file), "--help").stdout
    (tmp_path / "empty.py").write_text("")
    assert "has no algorithm; it needs a class" in run(str(tmp_path / "empty.py")).stderr
    assert "there is no file" in run(str(tmp_path / "none.py")).stderr


def test_names_may_be_written_with_hyphens(tmp_path):
    done = run("best-of-n", "--task", "some_zero", "--out", str(tmp_path / "replay.html"))
    assert done.exit_code == 0, done.stderr


# ---------------------------------------------------------------------- in a browser


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_script_is_javascript(tmp_path):
    file = tmp_path / "trace.js"
    file.write_text(files("triptych.lab.replay").joinpath("page.js").read_text("utf-8"), "utf-8")
    done = subprocess.run(["node", "--check", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


class Shown(HTMLParser):
    """The text of the elements with an id, the tokens, and the nodes of the tree in sight."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.by_id, self.tokens, self.nodes, self.current = [], {}, [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        classes = (attributes.get("class") or "").split()
        self.stack.append((tag, attributes.get("id"), classes, attributes))
        if "node" in classes and "future" not in classes:
            self.nodes.append(classes)
        if "token" in classes:
            self.tokens.append([" ".join(classes[1:]), ""])
        if tag in VOID | {"path"} and tag != "path":
            self.stack.pop()

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for tag, identity, classes, attributes in self.stack:
            if identity:
                self.by_id[identity] = self.by_id.get(identity, "") + data
            if "token" in classes:
                self.tokens[-1][1] += data
            if tag == "button" and "aria-current" in attributes:
                self.current.append(data)

    def __getitem__(self, identity):
        return self.by_id.get(identity, "").strip()


def opened(path, tmp_path, place):
    """The page as Chromium has it after its script ran."""
    done = subprocess.run(
        [
            str(CHROMIUM),
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--virtual-time-budget=3000", "--dump-dom"),
            f"--user-data-dir={tmp_path / 'profile'}",
            f"{path.as_uri()}#{place}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return Shown(re.sub(r'<details class="key".*?</details>', "", done.stdout, flags=re.S))


@in_a_browser
def test_a_step_is_shown_with_its_tokens_numbers_and_tree(tmp_path):
    """A story by hand: 5 | draws 1 and 0, is refused, erases both; step 4 is the erasure."""
    events = [
        happened("draw", (1,), None, 1, 0),
        happened("draw", (1, 0), None, 2, 0),
        happened("reject", (1, 0), -math.inf, 2, 1),
        happened("backtrack", (), None, 2, 1),
        happened("argmax", (0,), None, 3, 1),
        happened("accept", (0,), math.log(0.25), 3, 2),
    ]
    events = [event._replace(prompt=1) for event in events]
    result = result_of(events, tokens=((2, 0),), start=1, generated=3, erased=2)
    names = ["<a>", EVIL, "p"]
    path = write_trace(result, tmp_path / "replay.html", names=names, correct=[False])
    shown = opened(path, tmp_path, "step=4")
    assert shown.tokens == [["prompt", "p"], ["struck", EVIL.replace(" ", "␣")], ["struck", "<a>"]]
    assert shown["happened"] == "Step 4: erased 2 tokens"
    assert (shown["step-number"], shown["step-count"]) == ("4", "6")
    assert [shown[name] for name in ("generator-calls", "verifier-calls")] == ["2", "1"]
    assert [shown[name] for name in ("generated", "erased")] == ["2", "2"]
    assert len(shown.nodes) == 3  # the prompt, 1, 10; not yet 0
    assert sorted("here" in classes for classes in shown.nodes) == [False, False, True]
    assert sum("refused" in classes for classes in shown.nodes) == 1
    assert shown["verdict"] == "not correct"
    assert "".join(shown.current).startswith("4")
    assert shown["theme"] == "Theme: auto"


@in_a_browser
def test_an_erased_prompt_is_shown_as_unknown(tmp_path):
    path = write_trace(into_the_prompt(), tmp_path / "replay.html")
    shown = opened(path, tmp_path, "step=0")
    assert shown.tokens == [["prompt", "5"], ["prompt", "?"]]
    assert "erased the last token of its prompt" in shown["remark"]


KEYS = """<pre id="log"></pre><script>
  const log = [];
  const keys = "End ArrowLeft ArrowLeft ArrowRight Home ArrowLeft ArrowRight";
  for (const key of keys.split(" ")) {
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    const seen = document.querySelectorAll(".node:not(.future)").length;
    log.push(document.getElementById("step-number").textContent + ":" + seen);
  }
  const space = () => new KeyboardEvent("keydown", { key: " ", bubbles: true });
  const play = () => document.body.dispatchEvent(space());
  const word = () => document.getElementById("play-word").textContent;
  for (const [what, number] of [["#events button", 2], [".node", 0]]) {
    const one = document.querySelectorAll(what)[number];
    play();
    one.dispatchEvent(new MouseEvent("click", { bubbles: true }));  // pauses and goes there
    log.push(document.getElementById("step-number").textContent + word());
  }
  document.getElementById("speed").value = "20";
  play();
  log.push(word());
  document.getElementById("log").textContent = log.join(" ");
</script>"""


@in_a_browser
def test_keys_step_and_play(tmp_path):
    """STORY shows 1, 2, 2, 2, 3 nodes at steps 0 to 4, forwards and backwards; Space plays on.

    A click on the third event goes to step 3, one on the prompt to step 0; both pause."""
    path = tmp_path / "replay.html"
    page = render_trace(result_of(STORY, generated=2, erased=1))
    path.write_text(page.replace("</body>", KEYS + "</body>"), "utf-8")
    shown = opened(path, tmp_path, "step=2")
    assert shown["log"] == "4:3 3:2 2:2 3:2 0:1 0:1 1:2 3Play 0Play Pause"
    assert (shown["step-number"], shown["play-word"]) == ("4", "Play")


@in_a_browser
@pytest.mark.slow
def test_a_long_walk_is_drawn_near_the_row_and_stays_are_one_step(tmp_path):
    decoder = RecomputingDecoder(Uniform(12, 12), 2)
    value = Rule(lambda prefix: 0.7 ** sum(token % 3 == 0 for token in prefix))
    result = vgb.sample(
        decoder, value, length=12, steps=400, returns="last", record=True, rng=TorchRng(0)
    )
    path = write_trace(result, tmp_path / "replay.html")
    shown = opened(path, tmp_path, "row=1&step=last")
    mine = [event for event in result.trace if event.row == 1]
    steps = sum(
        not (b.action == "stay" and a.action == "stay") for a, b in itertools.pairwise(mine)
    )
    assert shown["step-count"] == shown["step-number"] == str(steps + 1)
    assert shown["generator-calls"] == str(int(result.costs.generator_calls[1]))
    assert shown["erased"] == str(int(result.costs.erased[1]))
    assert [text for _, text in shown.tokens] == [str(t) for t in result.completions()[1]]
    last = result.completions()[1]
    prefixes = {event.tokens[:end] for event in mine for end in range(len(event.tokens) + 1)}
    beside = {p for p in prefixes if p == () or last[: len(p) - 1] == p[:-1]}
    assert len(shown.nodes) == len(beside) < len(prefixes)


@pytest.mark.slow
@in_a_browser
def test_the_replay_is_used_with_the_keyboard_alone(tmp_path):
    events = [happened("draw", (1,), None, 1, 0), happened("draw", (1, 0), None, 2, 0)]
    result = result_of(events, tokens=((1, 0),), generated=2, erased=0)
    path = write_trace(result, tmp_path / "replay.html", names=["a", "b"])
    with Browser(tmp_path / "keys") as page:
        page.open(path.as_uri())
        step = "document.getElementById('step-number').textContent"
        for key, number in (("ArrowRight", 1), ("End", 2), ("ArrowLeft", 1), ("Home", 0)):
            page.press(key)
            assert page.value(step) == str(number)
        stops = walk(page)
        ids = [stop["id"] for stop in stops]
        assert {"theme", "play", "forward", "last", "slider", "tokens", "canvas", "fit"} <= set(ids)
        assert [stop for stop in stops if not stop["name"]] == []
        page.press(" ")  # on nothing: plays to the end
        page.wait(f"{step} === '2'")


def test_an_earlier_page_stays_unless_the_user_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("replay.html").write_text("an earlier one")
    Path("replay-3.html").write_text("another")
    for arguments in (["--length", "6"], ["--length", "8"], ["ising", "--size", "2"]):
        assert run(*arguments).exit_code == 0
    assert Path("replay.html").read_text() == "an earlier one"
    assert Path("replay-3.html").read_text() == "another"
    pages = ["replay-2.html", "replay-3.html", "replay-4.html", "replay-5.html", "replay.html"]
    assert sorted(path.name for path in tmp_path.iterdir()) == pages
    assert run("--out", "replay.html").exit_code == 0
    assert "<html" in Path("replay.html").read_text()
