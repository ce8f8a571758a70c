"""The endpoint in process: what each field does, and what is refused."""

import json
import math

import pytest

from triptych.apps.gateway.limits import Limits
from triptych.apps.gateway.rules import Rule
from triptych.apps.gateway.site import stream_numbers
from triptych.core.errors import UserError
from triptych.guidance.guide import Streams, guide
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.best_of_n import BestOfN
from triptych.inference.guided.tokenwise import Tokenwise
from triptych.inference.guided.transforms import Sampling


def error_of(answer):
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    return answer["error"]


def events(response):
    """The events of a stream."""
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line and not line.startswith(":")]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


# ---------------------------------------------------------------- texts


def test_a_completion_is_what_guide_writes(ask, lm):
    """The same seed and the same streams: the texts of `guide`, token for token."""
    answer = ask(model="tiny:none", prompt=["a", "b(0"], n=2, seed=5, temperature=0.8, top_p=0.9)
    wanted = guide(
        lm,
        ["a", "a", "b(0", "b(0"],
        max_new_tokens=8,
        rng=Streams(0, stream_numbers(5, 2, 2)),
        sampling=Sampling(temperature=0.8, top_p=0.9),
    )
    assert [choice["text"] for choice in answer["choices"]] == wanted.texts
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["object"] == "text_completion"
    assert answer["usage"]["prompt_tokens"] == 4  # "a" and "b(0", each once
    assert answer["usage"]["completion_tokens"] == sum(row["generated"] for row in wanted.costs)
    assert answer["triptych"]["seed"] == 5


def test_a_text_does_not_depend_on_its_neighbours(ask):
    alone = [ask(prompt="a", seed=seed)["choices"][0]["text"] for seed in range(4)]
    again = [ask(prompt="a", seed=seed)["choices"][0]["text"] for seed in range(4)]
    assert alone == again
    assert len(set(alone)) > 1


def test_stream_numbers_are_of_a_seed_and_a_place():
    """Worked value: the number of text 1 of prompt 0 under seed 7 is of SHA-256 of "7 0 1"."""
    assert stream_numbers(7, 1, 2)[1] == 8989450545270230591
    assert len(set(stream_numbers(7, 5, 5)) | set(stream_numbers(8, 5, 5))) == 50


@pytest.mark.parametrize(
    ("prompt", "text"),
    [("ab", "ab"), ([4, 5], "ab"), ([[4, 5]], "ab"), (["ab"], "ab"), ([1, 4, 5], "ab")],
)
def test_prompts_are_texts_or_tokens(ask, prompt, text):
    """Token 1 is BOS, which we put there ourselves."""
    answer = ask(model="tiny:none", prompt=prompt, seed=1, echo=True)
    assert answer["choices"][0]["text"].startswith(text)
    assert (
        answer["choices"][0]["text"]
        == ask(model="tiny:none", prompt="ab", seed=1, echo=True)["choices"][0]["text"]
    )


def test_a_conversation(ask):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    answer = ask(
        messages=[{"role": "developer", "content": "b"}, {"role": "user", "content": parts}]
    )
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["usage"]["prompt_tokens"] == 5  # "b:ab:" in the template of this tokenizer


def test_a_conversation_without_max_tokens_may_fill_the_context(started):
    _, client = started()
    said = [{"role": "user", "content": "ab"}]
    for limit in ({}, {"max_completion_tokens": 56}):
        answer = client.post("/v1/chat/completions", json={"messages": said, **limit})
        assert answer.status_code == 200, answer.text
    answer = client.post(
        "/v1/chat/completions", json={"messages": said, "max_completion_tokens": 57}
    )
    assert error_of(answer.json())["code"] == "context_length_exceeded"


def test_stop_strings_and_finish_reasons(ask, lm):
    answers = ask(model="tiny:none", prompt="a", n=40, seed=2, stop=["b", "0"], max_tokens=12)
    wanted = guide(
        lm,
        ["a"] * 40,
        max_new_tokens=12,
        stop=["b", "0"],
        rng=Streams(0, stream_numbers(2, 1, 40)),
    )
    assert [choice["text"] for choice in answers["choices"]] == wanted.texts
    assert [about["costs"] for about in answers["triptych"]["choices"]] == wanted.costs
    for choice, about in zip(answers["choices"], answers["triptych"]["choices"], strict=True):
        assert not {"b", "0"} & set(choice["text"])
        assert about["accepted"] is None
    reasons = {choice["finish_reason"] for choice in answers["choices"]}
    assert reasons == {"stop", "length"}
    short = ask(model="tiny:none", prompt="a", n=40, seed=2, max_tokens=1)
    assert {c["finish_reason"] for c in short["choices"]} == {"stop", "length"}


def test_a_rule_is_kept(ask):
    answer = ask(model="tiny:bits", prompt="a", n=12, seed=0)
    for choice, about in zip(answer["choices"], answer["triptych"]["choices"], strict=True):
        assert set(choice["text"]) <= {"0", "1"}
        assert 2 <= len(choice["text"]) <= 4
        assert choice["finish_reason"] == "stop"
        assert about["accepted"] is True
        assert about["log_evidence"] < 0
    assert answer["triptych"]["algorithm"] == "adaptive"
    assert answer["triptych"]["options"]["n"] == 1
    assert answer["triptych"]["rule"] == "bits"


def test_what_is_refused_says_so(started):
    """A rule that refuses everything: no text is accepted, and none is called fine."""
    refuses = Rule("never", "never", "text", lambda: lambda text: not text)
    _, client = started(rules=[refuses], algorithm=Tokenwise(tries=2))
    answer = client.post("/v1/completions", json={"prompt": "a"}).json()
    assert answer["choices"][0]["finish_reason"] == "content_filter"
    about = answer["triptych"]["choices"][0]
    assert about["accepted"] is False
    assert about["complete"] is False
    assert about["reason"] == "tries used up"


def test_costs_tell_erased_tokens_apart(started):
    _, client = started(algorithm=Backtracking(quota=6, stride=2))
    answer = client.post("/v1/completions", json={"prompt": "a", "n": 16, "seed": 0}).json()
    usage, costs = answer["usage"], answer["usage"]["triptych"]
    assert costs["erased"] > 0
    assert costs["generated"] - costs["erased"] == usage["completion_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert costs["generated"] == sum(c["costs"]["generated"] for c in answer["triptych"]["choices"])


def test_temperature_zero_is_greedy_where_no_algorithm_is_named(ask, started):
    answer = ask(model="tiny:bits", prompt="a", temperature=0)
    assert answer["triptych"]["algorithm"] == "greedy"
    assert (
        answer["choices"][0]["text"]
        == ask(model="tiny:bits", prompt="a", temperature=0, seed=9)["choices"][0]["text"]
    )
    _, client = started(algorithm=BestOfN(n=2))
    answer = client.post("/v1/completions", json={"prompt": "a", "temperature": 0}).json()
    assert answer["triptych"]["algorithm"] == "best_of_n"


def test_a_schema_in_a_request_is_kept(ask):
    schema = {"type": "array", "items": {"enum": [0, 1]}, "minItems": 1, "maxItems": 3}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    said = [{"role": "user", "content": "a"}]
    answer = ask(model="tiny:none", messages=said, response_format=wanted, n=8, max_tokens=20)
    for choice in answer["choices"]:
        value = json.loads(choice["message"]["content"])
        assert 1 <= len(value) <= 3
        assert set(value) <= {0, 1}
    assert answer["triptych"]["rule"] == "response_format"
    refused = ask(400, model="tiny:bits", messages=said, response_format=wanted)
    assert error_of(refused)["code"] == "has_a_rule"
    text = ask(model="tiny:bits", messages=said, response_format={"type": "text"})
    assert text["triptych"]["rule"] == "bits"


# ---------------------------------------------------------------- log-probabilities


def test_loglikelihood_requests_of_lm_eval(ask, lm):
    """echo, logprobs=1, one new token: the sum over the continuation is that of the model."""
    row = lm.encode(["ab(01)"])[0]
    answer = ask(
        model="tiny:none", prompt=[row], max_tokens=1, logprobs=1, echo=True, temperature=0, seed=1
    )
    told = answer["choices"][0]["logprobs"]
    assert len(told["tokens"]) == len(told["token_logprobs"]) == len(told["top_logprobs"]) == 7
    assert told["tokens"][:6] == [*"ab(01)"]
    wanted = [float(lm.next_token_log_probs([row[:t]])[0, token]) for t, token in enumerate(row)]
    assert told["token_logprobs"][:-1] == pytest.approx(wanted, abs=1e-5)
    for log_prob, top in zip(told["token_logprobs"], told["top_logprobs"], strict=True):
        assert max(top.values()) >= log_prob
    # at temperature 0 the new token is the likeliest
    assert told["token_logprobs"][-1] == max(told["top_logprobs"][-1].values())


def test_a_client_that_gives_bos_gets_it_back(ask, lm):
    """It counts its own tokens: the place of each log-probability must not move."""
    body = {"model": "tiny:none", "max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1}
    with_bos = ask(prompt=[1, 4, 5], **body)["choices"][0]["logprobs"]
    without = ask(prompt=[4, 5], **body)["choices"][0]["logprobs"]
    assert with_bos["token_logprobs"] == [None, *without["token_logprobs"]]
    assert with_bos["tokens"] == ["<bos>", *without["tokens"]]


def test_echo_alone_writes_nothing(ask):
    answer = ask(model="tiny:none", prompt="ab", max_tokens=0, echo=True, logprobs=0)
    assert answer["choices"][0]["text"] == "ab"
    assert answer["usage"]["completion_tokens"] == 0
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == 2


def test_logprobs_of_what_was_written(ask):
    answer = ask(model="tiny:bits", prompt="ab", logprobs=2, seed=3)
    told = answer["choices"][0]["logprobs"]
    text = answer["choices"][0]["text"]
    assert "".join(told["tokens"]).startswith(text)
    assert told["text_offset"][: len(text)] == [*range(len(text))]
    assert all(len(top) in (2, 3) for top in told["top_logprobs"])
    said = [{"role": "user", "content": "a"}]
    chat = ask(model="tiny:bits", messages=said, logprobs=True, top_logprobs=2)
    content = chat["choices"][0]["logprobs"]["content"]
    assert all(len(each["top_logprobs"]) == 2 for each in content)
    assert all(bytes(each["bytes"]).decode() == each["token"] for each in content)
    assert all(math.isfinite(each["logprob"]) for each in content)


# ---------------------------------------------------------------- streams


@pytest.mark.parametrize(
    "algorithm",
    [None, Tokenwise(), Backtracking(quota=4, stride=3), BestOfN(n=3)],
    ids=["default", "tokenwise", "backtracking", "best_of_n"],
)
@pytest.mark.parametrize("name", ["text", "bits", "none"])
def test_a_stream_is_the_text_in_pieces(started, algorithm, name):
    _, client = started(algorithm=algorithm)
    body = {"model": f"tiny:{name}", "prompt": ["a", "b("], "n": 3, "seed": 4, "max_tokens": 10}
    body |= {"stop": ["a", ":b"], "echo": True}
    whole = client.post("/v1/completions", json=body).json()
    told = events(client.post("/v1/completions", json=body | {"stream": True}))
    texts, finished = [""] * 6, [None] * 6
    for event in told:
        for choice in event["choices"]:
            assert finished[choice["index"]] is None
            texts[choice["index"]] += choice["text"]
            finished[choice["index"]] = choice["finish_reason"]
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert finished == [choice["finish_reason"] for choice in whole["choices"]]
    assert told[-1]["triptych"]["choices"] == whole["triptych"]["choices"]
    assert told[0]["triptych"]["held_back"] == whole["triptych"]["held_back"]


def test_a_stream_tells_early_what_cannot_be_erased(started):
    """Ancestral sampling: a piece for every token. The best of n: all in the end."""
    _, client = started()
    body = {"model": "tiny:none", "prompt": "a", "seed": 3, "max_tokens": 12, "stream": True}
    pieces = [
        e for e in events(client.post("/v1/completions", json=body)) if e["choices"][0]["text"]
    ]
    assert len(pieces) > 4
    _, client = started(algorithm=BestOfN(n=2))
    body["model"] = "tiny:text"
    pieces = [
        e for e in events(client.post("/v1/completions", json=body)) if e["choices"][0]["text"]
    ]
    assert len(pieces) == 1


def test_a_streamed_conversation_with_usage(started):
    _, client = started()
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 8, "stream": True}
    told = events(
        client.post("/v1/chat/completions", json=body | {"stream_options": {"include_usage": True}})
    )
    assert told[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {event["object"] for event in told} == {"chat.completion.chunk"}
    assert [event["usage"] is None for event in told] == [True] * (len(told) - 1) + [False]
    assert told[-1]["choices"] == []
    assert told[-1]["usage"]["completion_tokens"] > 0
    assert "usage" not in events(client.post("/v1/chat/completions", json=body))[0]


# ---------------------------------------------------------------- which model


def test_models_and_rules(started):
    _, client = started()
    names = [each["id"] for each in client.get("/v1/models").json()["data"]]
    assert names == ["tiny", "tiny:text", "tiny:bits", "tiny:none"]
    told = client.get("/v1/models/tiny:bits").json()
    assert told["triptych"]["rule"] == "bits"
    assert error_of(client.get("/v1/models/other").json())["code"] == "model_not_found"
    assert client.get("/v1/models/other").status_code == 404


def test_the_first_rule_holds_where_none_is_named(ask):
    assert ask(prompt="a")["triptych"]["rule"] == "text"
    assert ask(prompt="a", model="tiny")["triptych"]["rule"] == "text"
    assert ask(prompt="a", triptych={"rule": "bits"})["triptych"]["rule"] == "bits"
    assert ask(prompt="a", model="tiny:none")["triptych"]["algorithm"] == "ancestral"
    assert error_of(ask(404, prompt="a", model="gpt"))["param"] == "model"
    assert error_of(ask(400, prompt="a", triptych={"rule": "x"}))["code"] == "rule_not_found"
    both = ask(400, prompt="a", model="tiny:bits", triptych={"rule": "text"})
    assert error_of(both)["param"] == "triptych"


def test_names_of_rules_are_words_each_once(started):
    twice = [Rule("a", "", "none", lambda: None)] * 2
    for rules in (twice, [Rule("a:b", "", "none", lambda: None)], [Rule("", "", "none", str)]):
        with pytest.raises(UserError):
            started(rules=rules)
    with pytest.raises(UserError):
        started(rules=[], algorithm=Backtracking())


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperatur": 1}, "temperatur"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"n": 0}, "n"),
        ({"n": 65}, "n"),
        ({"n": 33, "prompt": ["a", "b"]}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 59}, "max_tokens"),
        ({"max_tokens": 10**6}, "max_tokens"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 4]}, "prompt"),
        ({"prompt": [4, 1000]}, "prompt"),
        ({"prompt": [[]] * 65}, "prompt"),
        ({"logprobs": 99}, "logprobs"),
        ({"logprobs": 1, "stream": True}, "logprobs"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"x": 1}}, "stream_options"),
        ({"triptych": {"verifier": "def rule(text): ..."}}, "triptych"),
        ({"triptych": {"trace": 1}}, "triptych"),
        ({"response_format": {"type": "python"}}, "response_format"),
        ({"seed": 2**70}, "seed"),
        ({"seed": "x"}, "seed"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(ask, body, param):
    error = error_of(ask(400, **{"prompt": "a"} | body))
    assert error["type"] == "invalid_request_error"
    if body.get("triptych") != {"trace": 1}:
        assert error["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        {"user": "me", "metadata": {"a": "b"}, "store": False},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "best_of": 1},
        {"suffix": None, "logprobs": None, "top_k": -1, "stream_options": None, "stop": None},
    ],
    ids=str,
)
def test_what_changes_nothing_is_taken(ask, body):
    assert ask(prompt="a", seed=1, **body)["choices"] == ask(prompt="a", seed=1)["choices"]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "a",
        [{"role": "user"}],
        [{"content": "a"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "assistant", "content": "a", "tool_calls": [{"id": "x"}]}],
    ],
    ids=str,
)
def test_conversations_that_are_none(started, messages):
    _, client = started()
    answer = client.post("/v1/chat/completions", json={"messages": messages})
    assert answer.status_code == 400
    assert error_of(answer.json())["param"].startswith("messages")


def test_bodies_that_are_too_large_or_no_json(started):
    _, client = started(limits=Limits(body_bytes=200, schema_bytes=40))
    for body, status in (
        (b"{", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b'{"prompt": NaN}', 400),
        (b"[" * 190, 400),
        (b'{"prompt": "\\ud800"}', 400),  # half of a character
        (b'{"seed": ' + b"9" * 100 + b"}", 400),
        (b'{"prompt": "' + b"a" * 300 + b'"}', 413),
    ):
        answer = client.post(
            "/v1/completions", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == status, body
        error_of(answer.json())
    parts = (b"a" * 100 for _ in range(5))  # no length is said beforehand
    answer = client.post(
        "/v1/completions", content=parts, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413
    schema = {"type": "json_schema", "json_schema": {"schema": {"enum": ["a" * 50]}}}
    answer = client.post(
        "/v1/completions", json={"model": "tiny:none", "prompt": "a", "response_format": schema}
    )
    assert error_of(answer.json())["code"] == "schema_too_large"
    plain = client.post("/v1/completions", content=b"{}", headers={"Content-Type": "text/plain"})
    assert plain.status_code == 415


def test_a_schema_that_no_engine_reads(ask):
    wanted = {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://elsewhere/x"}}}
    error = error_of(ask(400, model="tiny:none", prompt="a", response_format=wanted))
    assert error["code"] == "schema_not_read"


def test_a_verifier_that_fails_is_said_to_the_one_whose_text_it_was(started):
    def picky(text, finished=False, prompt=""):
        if prompt == "b":
            raise ValueError("no opinion")
        return True

    _, client = started(rules=[Rule("picky", "picky", "text", lambda: picky)])
    answer = client.post("/v1/completions", json={"prompt": "b", "max_tokens": 3})
    assert answer.status_code == 422
    assert error_of(answer.json())["code"] == "verifier_failed"
    assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 3}).status_code == 200


# ---------------------------------------------------------------- who may ask


def test_only_this_machine_may_ask_without_a_token(started):
    gateway, client = started(host="evil.example")
    assert client.get("/v1/models").status_code == 421
    assert client.get("/health").status_code == 200
    _, client = started()
    assert client.get("/v1/models", headers={"Origin": "https://evil.example"}).status_code == 403
    assert client.get("/v1/models", headers={"Origin": "http://localhost:3000"}).status_code == 200
    gateway.stopping = True


def test_a_token_is_asked_for(started):
    _, client = started(token="secret-token", host="evil.example")
    for header in (None, "secret-token", "Bearer wrong", "Basic secret-token", "Bearer "):
        answer = client.get("/v1/models", headers={"Authorization": header} if header else {})
        assert answer.status_code == 401
        assert error_of(answer.json())["type"] == "authentication_error"
        assert answer.headers["www-authenticate"] == "Bearer"
    answer = client.get("/v1/models", headers={"Authorization": "Bearer secret-token"})
    assert answer.status_code == 200
    assert client.get("/metrics").status_code == 401


def test_other_paths_and_methods(started):
    _, client = started()
    assert error_of(client.get("/v1/other").json())["code"] == "not_found"
    assert client.get("/v1/completions").status_code == 405
    error_of(client.get("/v1/completions").json())


def test_a_gateway_that_stops_takes_nothing_new(started):
    gateway, client = started()
    gateway.stopping = True
    answer = client.post("/v1/completions", json={"prompt": "a"})
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert client.get("/health").status_code == 503


def test_metrics_and_lines_hold_nothing_that_a_client_wrote(started):
    lines = []
    _, client = started(token="tok-secret", log=lines.append)
    known = {"Authorization": "Bearer tok-secret"}
    client.post("/v1/completions", json={"prompt": "ab01", "user": "me-secret"}, headers=known)
    client.get("/v1/ab01-secret", headers=known)
    client.get("/v1/models/ab01-secret?key=tok-secret", headers=known)
    text = client.get("/metrics", headers=known).text
    for word in ("ab01", "secret"):
        assert word not in text
        assert not any(word in line for line in lines)
    assert 'triptych_requests_total{path="/v1/completions",status="200"} 1' in text
    assert 'triptych_texts_total{verifier="accepted"} 1' in text
    assert len(lines) == 4
