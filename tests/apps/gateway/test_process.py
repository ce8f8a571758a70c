"""A gateway that was really started, asked by real clients: curl and the openai package."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import openai
import pytest
from tests.support.fake_served import FakeServer
from tests.support.started_gateway import started, write_rule
from tests.support.tiny_model_folder import save_tiny_model
from tests.support.tiny_text_model import LETTERS, tiny_tokenizer

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway")
    save_tiny_model(folder / "tiny", length=400, letters="Helo" + LETTERS)  # "Hello" is printed
    write_rule(folder)
    (folder / "person.json").write_text('{"enum": ["a", "b", "ab"]}')
    return folder


@pytest.fixture(scope="module")
def errors(folder):
    with (folder / "errors.txt").open("w") as file:
        yield file


@pytest.fixture(scope="module")
def gateway(folder, errors):
    rules = ("plain=none", f"slow={folder}/rule.py:slow", f"loud={folder}/rule.py:loud")
    named = [word for rule in rules for word in ("--verifier", rule)]
    more = ("--schema", folder / "person.json", "--requests", "3", "--port", "0")
    with started("--model", folder / "tiny", *named, *more, errors=errors) as running:
        yield running


@pytest.fixture
def client(gateway):
    with openai.OpenAI(base_url=gateway.base, api_key="none", max_retries=0) as made:
        yield made


# ---------------------------------------------------------------- what a user copies


def test_the_curl_line_works_as_it_is_printed(gateway):
    [line] = [line for line in gateway.lines if line.startswith("curl ")]
    done = subprocess.run(
        ["curl", "-sS", "--fail-with-body", *shlex.split(line)[1:]], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["object"] == "text_completion"


def test_the_lines_of_python_work_as_they_are_printed(gateway):
    first = gateway.lines.index("from openai import OpenAI")
    program = "\n".join(gateway.lines[first:])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Completion(")


# ---------------------------------------------------------------- the openai package


def test_openai_completions(client):
    answer = client.completions.create(
        model="tiny:plain", prompt=["a", "b"], n=2, max_tokens=5, seed=1, logprobs=1, echo=True
    )
    assert len(answer.choices) == 4
    assert all(len(c.logprobs.tokens) == len(c.logprobs.token_logprobs) for c in answer.choices)
    assert answer.usage.completion_tokens >= 4
    assert answer.model_extra["triptych"]["algorithm"] == "ancestral"
    assert [model.id for model in client.models.list()][:2] == ["tiny", "tiny:plain"]


def test_openai_chat_and_streams(client):
    said = [{"role": "user", "content": "ab"}]
    shared = {"model": "tiny:plain", "messages": said, "max_completion_tokens": 20, "seed": 3}
    whole = client.chat.completions.create(**shared)
    usage = {"include_usage": True}
    with client.chat.completions.create(**shared, stream=True, stream_options=usage) as stream:
        pieces = [*stream]
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == whole.choices[0].message.content
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens
    with client.chat.completions.stream(**shared) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.content == text


def test_openai_response_format(client):
    schema = {"name": "one", "schema": {"enum": [0, 1, 10]}, "strict": True}
    answer = client.chat.completions.create(
        model="tiny:plain",
        messages=[{"role": "user", "content": "ab"}],
        response_format={"type": "json_schema", "json_schema": schema},
        max_tokens=8,
    )
    assert json.loads(answer.choices[0].message.content) in (0, 1, 10)
    kept = client.completions.create(model="tiny:person", prompt="a", max_tokens=20)
    assert json.loads(kept.choices[0].text) in ("a", "b", "ab")


def test_openai_errors_have_their_classes(client, gateway):
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="tiny", prompt="a", presence_penalty=1)
    assert error.value.param == "presence_penalty"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt", prompt="a")
    with pytest.raises(openai.UnprocessableEntityError):
        client.completions.create(model="tiny:loud", prompt="a")


# ---------------------------------------------------------------- many at once


@pytest.mark.slow
def test_one_request_too_many_is_told_to_come_back_and_others_are_served(gateway, client):
    body = {"model": "tiny:slow", "prompt": "a", "max_tokens": 10}
    found = []

    def ask(seed):
        try:
            found.append(client.completions.create(**body, seed=seed).choices[0].text)
        except openai.RateLimitError as error:
            found.append(int(error.response.headers["retry-after"]))

    threads = [threading.Thread(target=ask, args=[seed]) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert 1 in found
    assert len([text for text in found if isinstance(text, str)]) >= 3
    with openai.OpenAI(base_url=gateway.base, api_key="none", max_retries=20) as patient:
        assert patient.completions.create(**body).choices


def test_work_stops_when_the_client_goes_away(gateway, client):
    before = gateway.metric("abandoned_total")
    body = {"model": "tiny:slow", "prompt": "a", "max_tokens": 300, "n": 4}
    with pytest.raises(openai.APITimeoutError):
        client.completions.create(**body, timeout=0.5)
    stream = client.completions.create(**body, stream=True)
    next(iter(stream))
    stream.close()
    until = time.monotonic() + 30
    while gateway.metric("abandoned_total") < before + 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert gateway.metric("running_requests") == 0


def test_lines_hold_no_prompt_no_key_and_no_word_of_a_verifier(gateway, client, folder):
    with openai.OpenAI(base_url=gateway.base, api_key="sk-hidden", max_retries=0) as other:
        other.completions.create(model="tiny:plain", prompt="ababab", max_tokens=1)
        with pytest.raises(openai.UnprocessableEntityError):
            other.completions.create(model="tiny:loud", prompt="ababab")
    said = (folder / "errors.txt").read_text()
    assert "POST /v1/completions 200" in said
    for word in ("ababab", "sk-hidden", "secret", "Traceback"):
        assert word not in said


# ---------------------------------------------------------------- how it ends


@pytest.mark.slow
def test_sigterm_finishes_what_runs_and_takes_nothing_new(folder):
    rule = f"{folder}/rule.py:slow"
    with started("--model", folder / "tiny", "--verifier", rule, "--port", "0") as gateway:
        found = []

        def ask():
            with openai.OpenAI(base_url=gateway.base, api_key="none", max_retries=0) as client:
                answer = client.completions.create(model="tiny", prompt="a", max_tokens=12, n=2)
                found.append(answer)

        thread = threading.Thread(target=ask)
        thread.start()
        while not gateway.metric("running_requests"):
            time.sleep(0.02)
        code, rest = gateway.stop(signal.SIGTERM)
        thread.join()
        assert code == 0
        assert rest.startswith("Stopped")
        assert len(found[0].choices) == 2
        with (
            pytest.raises(openai.APIConnectionError),
            openai.OpenAI(base_url=gateway.base, api_key="none", max_retries=0) as client,
        ):
            client.models.list()


@pytest.mark.slow
def test_after_kill_9_a_patient_client_has_every_prompt_once(folder):
    """The gateway keeps nothing on the disk: it starts again on its port, and answers the same."""
    words = ["--model", folder / "tiny", "--verifier", f"{folder}/rule.py:slow"]
    before = set(os.listdir(folder))
    answers, port = {}, 0
    with started(*words, "--port", "0") as gateway:
        port = gateway.port

        def ask():
            url = f"http://127.0.0.1:{port}/v1"
            with openai.OpenAI(base_url=url, api_key="none", max_retries=100) as client:
                for seed in range(8):
                    text = client.completions.create(
                        model="tiny", prompt="a", max_tokens=4, seed=seed
                    )
                    answers.setdefault(seed, []).append(text.choices[0].text)

        thread = threading.Thread(target=ask)
        thread.start()
        while len(answers) < 2:
            time.sleep(0.01)
        assert gateway.stop(signal.SIGKILL)[0] == -signal.SIGKILL
        killed_at = len(answers)
    with started(*words, "--port", port):
        thread.join(timeout=100)
        assert not thread.is_alive()
    assert killed_at < 8
    assert {seed: len(texts) for seed, texts in answers.items()} == dict.fromkeys(range(8), 1)
    assert set(os.listdir(folder)) == before


# ---------------------------------------------------------------- a model upstream


def test_a_gateway_in_front_of_a_server(folder, errors):
    """The server's key comes from the environment, and is in no line."""

    def law(prefix):
        weights = [1.0 + 5.0 * ((3 * token + prefix[-1]) % 7 == 0) for token in range(20)]
        weights[0] = weights[1] = 0.0  # padding and BOS
        return [weight / sum(weights) for weight in weights]

    plain = save_tiny_model(folder / "plain")
    more = {"vocab_size": 20, "tokenizer": tiny_tokenizer(), "ends": (2, 3), "key": "sk-upstream"}
    with FakeServer(law, **more) as server:
        words = ("--upstream", server.url, "--model", plain, "--verifier", "brackets")
        words = (*words, "--algorithm", "backtracking", "--port", "0")
        known = {"TRIPTYCH_API_KEY": "sk-upstream"}
        with (
            started(*words, environment=known, errors=errors) as gateway,
            openai.OpenAI(base_url=gateway.base, api_key="none", max_retries=0) as client,
        ):
            answer = client.completions.create(model="tiny", prompt="(a", n=3, max_tokens=8, seed=1)
            assert len(answer.choices) == 3
            assert answer.model_extra["triptych"]["algorithm"] == "backtracking"
            printed = "\n".join(gateway.lines)
    assert set(server.keys) == {"Bearer sk-upstream"}
    assert "sk-upstream" not in printed + (folder / "errors.txt").read_text()


# ---------------------------------------------------------------- how it is started


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "token"),
        (["--algorithm", "backtracking"], "rule"),
        (["--set", "quota=4"], "--algorithm"),
        (["--verifier", "nothing"], "nothing"),
        (["--verifier", "a=json", "--verifier", "a=python"], "'a'"),
        (["--schema", "absent.json"], "absent.json"),
        (["--token-file", "absent.txt"], "absent.txt"),
        (["--max-tokens", "0"], "max_tokens"),
    ],
    ids=str,
)
def test_what_a_user_gets_wrong_is_a_sentence(folder, words, said, monkeypatch):
    from tests.support.command_line import run

    monkeypatch.delenv("TRIPTYCH_GATEWAY_TOKEN", raising=False)
    done = run("gateway", "--model", str(folder / "tiny"), "--port", "0", *words)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert re.match(r"(Warning.*\n)?triptych: ", done.stderr)


def test_a_port_in_use_is_a_sentence(gateway, folder):
    from tests.support.command_line import run

    done = run("gateway", "--model", str(folder / "tiny"), "--port", str(gateway.port))
    assert done.exit_code == 2
    assert str(gateway.port) in done.stderr
