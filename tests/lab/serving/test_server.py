"""The server: who is let in, what is at each path, a store that grows, Ctrl-C."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from tests.support.command_line import run as command
from tests.support.refusals import refused

from triptych.core.files import LOCK
from triptych.lab.running.fingerprint import code_of
from triptych.lab.running.interrupts import EXIT_CODE
from triptych.lab.running.plan import Plan
from triptych.lab.running.store import Store
from triptych.lab.serving import live, pages, replays, site
from triptych.lab.serving.server import Server
from triptych.lab.serving.site import ANSWERS, MAX_QUESTION, NotFound, Site
from triptych.studies.api.study import Scale, short_labels
from triptych.studies.generation.vgb_walk import STUDY

ERROR = {"target": "few ones", "length": 3, "error": 0.5, "seed": 0}
REPLAY = {"algorithms": ["ancestral"], "task": "zeros", "noise": 0, "seed": 0}

BLOCKS = {"graph": "chain", "spins": 2, "coupling": 0.5, "block": 1, "seed": 0}


@pytest.fixture
def server(tmp_path):
    with Server(Site(tmp_path / "runs")) as opened:
        thread = threading.Thread(target=opened.serve_forever, args=(0.01,))
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def ask(server, path, *, token=None, host=None, method="GET"):
    """The status, the headers and the text of a reply; `path` is sent as it stands."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    prefix = f"/{server.token if token is None else token}/"
    connection.putrequest(method, prefix + path, skip_host=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{server.port}")
    connection.endheaders()
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, reply.headers, text


def asked(question):
    return "?question=" + quote(json.dumps(question))


def test_every_request_needs_the_token(server):
    assert urlsplit(server.address).hostname == "127.0.0.1"
    assert len(server.token) >= 32
    for path in ("", "live", "report", "answers/blocks", "files/a.html"):
        for token in ("", "x", server.token[:-1], server.token + "x", "%C3%A9", "live"):
            status, _, text = ask(server, path, token=token)
            assert (status, server.token in text) == (403, False)
    assert ask(server, "")[0] == 200
    with Server(Site(Path("other"))) as another:
        assert another.token != server.token


def test_the_report_of_the_folder_comes_at_once(tmp_path, monkeypatch):
    """It is sent as it lies there, and a new one is made behind it; older than the rows, it is not.

    A page of a file may not read the other pages.
    """
    plan = Plan.of(STUDY, Scale.SMOKE)
    with Store.open(tmp_path) as store:
        store.plan(STUDY.name, Scale.SMOKE, plan.settings, plan.units[:1])
    (tmp_path / "report.html").write_text("as written")
    may_render = threading.Event()

    def render(folder):
        assert may_render.wait(20)
        return "as rendered"

    monkeypatch.setattr(site, "_rendered_report", render)
    opened = Site(tmp_path)
    first = opened.answer("report")
    assert (first.text, first.alone) == ("as written", True)
    assert opened.answer("report").text == "as written"
    may_render.set()
    opened._behind.join(20)
    second = opened.answer("report")
    assert (second.text, second.alone) == ("as rendered", False)
    os.utime(tmp_path / "report.html", ns=(0, 0))
    assert Site(tmp_path).answer("report").text == "as rendered"


def test_only_this_machine_is_answered_for(server):
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1:1", ""):
        assert ask(server, "", host=host)[0] == 421
    assert ask(server, "", host=f"localhost:{server.port}")[0] == 200
    assert server.server_address[0] == "127.0.0.1"


def test_it_only_reads(server):
    for method in ("POST", "PUT", "DELETE"):
        assert ask(server, "", method=method)[0] == 501


def test_pages_load_nothing_from_elsewhere(server):
    for path in pages.PAGES.keys() - {"report"}:
        status, headers, text = ask(server, path)
        assert status == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "no-referrer"
        assert not re.search(r'(src|href)="(https?:)?//', text)
        assert text.count('aria-current="page"') == 1
    assert ask(server, "", token=server.token + "/..")[0] == 404
    assert ask(server, "nothing")[0] == 404


def test_a_folder_gives_its_pages_and_nothing_else(server, tmp_path):
    folder = tmp_path / "runs"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "secret.html").write_text("secret")
    (folder / "deep" / "page.html").write_text("secret")
    (folder / "notes.txt").write_text("secret")
    (folder / "link.html").symlink_to(tmp_path / "secret.html")
    (folder / "my replay.html").write_text("<p>mine</p>")
    status, headers, text = ask(server, "files/my%20replay.html")
    assert (status, text) == (200, "<p>mine</p>")
    assert "sandbox allow-scripts" in headers["Content-Security-Policy"]
    for name in (
        "../secret.html",
        "..%2Fsecret.html",
        "%2e%2e/secret.html",
        f"{quote(str(tmp_path / 'secret.html'), safe='')}",
        "deep/page.html",
        "deep%2Fpage.html",
        "notes.txt",
        "link.html",
        "",
    ):
        status, _, text = ask(server, f"files/{name}")
        assert (status, "secret\n" in text, text == "secret") == (404, False, False)
    assert json.loads(ask(server, "live")[2])["files"] == ["my replay.html"]


def test_answers_and_refusals_are_json(server):
    status, _, text = ask(server, "answers/verifier-error" + asked(ERROR))
    assert (status, json.loads(text)) == (200, ANSWERS["verifier-error"](ERROR))
    for query, said in [
        ("", "0 questions"),
        (asked(ERROR | {"length": 99}), "length is 99; it must be at most 8"),
        ("?question=[", "no JSON"),
        ("?question=" + "[" * 3000, "no JSON"),
        ("?question=" + "1" * MAX_QUESTION, "at most 4000"),
    ]:
        status, headers, text = ask(server, "answers/verifier-error" + query)
        assert (status, headers["Content-Type"]) == (400, "application/json; charset=utf-8")
        assert said in json.loads(text)["error"]


def test_a_replay_and_its_costs(server, tmp_path):
    page = ask(server, "replay-page" + asked(REPLAY))[2]
    (line,) = re.findall(r"<tbody>\s*<tr>(.*?)</tr>", page, re.S)
    assert re.findall(r"<td>(\d+)</td>", line) == ["8", "0", "8", "0"]
    assert ("not right" in line) == ("0" * 8 not in line)
    both = replays.page(REPLAY | {"algorithms": ["ancestral", "vgb"]})
    assert len(re.findall(r'<section class="one"', both)) == 2
    (tmp_path / "own.py").write_text("raise SystemExit('it was run')")
    for odd in ([str(tmp_path / "own.py")], [], ["vgb"] * 3, "vgb", [3], None):
        with refused("algorithms"):
            replays.page(REPLAY | {"algorithms": odd})


def test_a_demonstration_has_the_hands_on_pages_alone(tmp_path):
    shown = Site(None)
    assert set(shown.pages) == {"", "replay", "hidden-tokens", "blocks", "verifier-error"}
    first = shown.answer("").text
    assert all(f'href="{path}"' in first for path in shown.pages if path)
    assert 'href="report"' not in first
    for path in ("run", "report", "live", "files/report.html"):
        with pytest.raises(NotFound):
            shown.answer(path)
    assert "gaps" in shown.answer("answers/blocks", asked(BLOCKS)[1:]).text
    for words in (["--out", "elsewhere"], ["--page", "report"], ["--page", "nothing#a=1"]):
        assert command("serve", "--demo", *words).exit_code == 2


def test_the_live_page_follows_a_store_that_grows(server, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "find_studies", lambda: {STUDY.name: STUDY})  # quicker than all

    def state():
        return json.loads(ask(server, "live")[2])

    nothing = {"running": False, "left": None, "studies": [], "verdicts": [], "files": []}
    assert state() == nothing
    plan = Plan.of(STUDY, Scale.SMOKE)
    with Store.open(tmp_path / "runs") as store:
        first, second = store.plan(STUDY.name, Scale.SMOKE, plan.settings, plan.units[:2])
        (study,) = state()["studies"]
        assert (study["planned"], study["done"], study["running"]) == (2, 0, [])
        assert state()["verdicts"] == []
        store.start(first, "cpu", {}, code_of(STUDY))
        assert state()["running"] is False, "no process holds the folder"
        (tmp_path / "runs" / LOCK).write_text(str(os.getpid()))
        assert state()["running"] is True
        told = short_labels([(unit.parameters, unit.seed) for unit in (first, second)])
        assert state()["studies"][0]["running"] == told[:1]
        store.fail(first, "it broke", 0.1)
        store.start(second, "cpu", {}, code_of(STUDY))
        store.finish(second, [], 0.1)
    (study,) = state()["studies"]
    assert (study["done"], study["failed"]) == (1, 1)
    verdicts = state()["verdicts"]
    assert {line["id"] for line in verdicts} == {claim.id for claim in STUDY.claims}
    assert all(line["title"] for line in verdicts)
    assert state()["running"] is False


def test_a_study_is_judged_again_only_when_units_have_ended(tmp_path, monkeypatch):
    judged = []
    monkeypatch.setattr(live, "find_studies", lambda: {STUDY.name: STUDY})
    monkeypatch.setattr(live, "judge_study", lambda *given: judged.append(given) or {})
    plan = Plan.of(STUDY, Scale.SMOKE)
    watched = live.Live(tmp_path)
    with Store.open(tmp_path) as store:
        for unit in store.plan(STUDY.name, Scale.SMOKE, plan.settings, plan.units[:2]):
            store.start(unit, "cpu", {}, code_of(STUDY))
            store.finish(unit, [], 0.1)
            before = watched.stamp()
            watched.state()
            watched.state()
            assert watched.stamp() == before
    assert len(judged) == 2


def test_a_port_in_use_and_an_empty_folder_are_sentences(server, tmp_path):
    with refused("port"):
        Server(Site(tmp_path), server.port)
    with refused("port"):
        Server(Site(tmp_path), 70000)
    done = command("serve", "--out", str(tmp_path))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "there are no results in" in done.stderr


def test_ctrl_c_ends_it(tmp_path):
    program = [sys.executable, "-m", "triptych", "serve", "--port", "0"]
    served = subprocess.Popen(
        program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    first = served.stdout.readline()
    assert first.startswith("Open http://127.0.0.1:")
    assert served.stdout.readline() == "Ctrl-C stops it.\n"
    served.send_signal(signal.SIGINT)
    rest, errors = served.communicate(timeout=20)
    assert (served.returncode, rest) == (EXIT_CODE, "")
    assert "no results in runs yet" in errors
    assert errors.endswith("\nStopped.\n")
    assert list(tmp_path.iterdir()) == [], "it writes nothing"
