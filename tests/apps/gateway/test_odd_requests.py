"""Bodies of every form: none gives a 5xx, a traceback, or an answer that is no JSON."""

import json
import random
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAMES = [
    "model", "prompt", "messages", "max_tokens", "max_completion_tokens", "n", "stop",
    "temperature", "top_p", "top_k", "min_p", "seed", "stream", "stream_options", "logprobs",
    "top_logprobs", "echo", "response_format", "triptych", "logit_bias", "best_of", "suffix",
    "presence_penalty", "tools", "user", "nothing",
]  # fmt: skip
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 70),
    st.floats(allow_nan=False, width=32),
    st.text(max_size=6),
    st.sampled_from(["a", "ab01", "tiny", "tiny:bits", "bits", "text", "json_schema", "user"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "text",
                    "schema",
                    "json_schema",
                    "rule",
                    "trace",
                    "enum",
                ]
            )
            | st.text(max_size=4),
            inside,
            max_size=4,
        )
    ),
    max_leaves=8,
)
RIGHT = {
    "prompt": "a",
    "messages": [{"role": "user", "content": "a"}],
    "max_tokens": 3,
    "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [1, 0]}}},
    "triptych": {"trace": True},
    "stop": ["b"],
    "n": 2,
    "logprobs": 1,
    "model": "tiny:none",
}


@pytest.fixture(scope="module")
def client():
    from starlette.testclient import TestClient
    from tests.apps.gateway.conftest import RULES, model

    from triptych.apps.gateway.limits import Limits
    from triptych.apps.gateway.rules import Rules
    from triptych.apps.gateway.site import Gateway

    gateway = Gateway(model(), Rules("tiny", RULES), limits=Limits(max_tokens=8, rows=8))
    yield TestClient(gateway.app(), base_url="http://localhost", raise_server_exceptions=False)
    assert gateway.workers.alive
    gateway.workers.close(30)


def check(answer):
    assert answer.status_code < 500, answer.text
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert "Traceback" not in error["message"]
    elif answer.headers["content-type"].startswith("application/json"):
        assert answer.json()["choices"]
    else:
        assert answer.text.endswith("data: [DONE]\n\n")
        assert '"server_error"' not in answer.text


# Checks of types in the threads of the gateway draw by `random`, while hypothesis watches it.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@given(
    changes=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3),
    left=st.sets(st.sampled_from(sorted(RIGHT)), max_size=4),
    chat=st.booleans(),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[*HealthCheck], derandomize=True)
def test_objects_with_odd_fields(client, changes, left, chat):
    body = {name: value for name, value in RIGHT.items() if name not in left} | changes
    body.pop("prompt" if chat else "messages", None)
    path = "/v1/chat/completions" if chat else "/v1/completions"
    check(client.post(path, json=body))


def test_bytes_that_were_changed(client):
    rng = random.Random(0)
    whole = json.dumps(RIGHT).encode()
    for _ in range(150):
        body = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(len(body))
            how = rng.choice(["set", "cut", "put"])
            if how == "set":
                body[place] = rng.randrange(256)
            elif how == "cut":
                del body[place : place + rng.randint(1, 9)]
            else:
                body[place:place] = rng.choice([b"[" * 500, b'"', b"null", b"9" * 5000, b"\\ud800"])
        answer = client.post(
            rng.choice(["/v1/completions", "/v1/chat/completions"]),
            content=bytes(body),
            headers={"Content-Type": "application/json"},
        )
        check(answer)


def test_odd_headers_and_paths(client):
    rng = random.Random(1)
    letters = string.ascii_letters + string.digits + "/:.%?#"
    for _ in range(50):
        path = "/" + "".join(rng.choice(letters) for _ in range(rng.randint(0, 30)))
        assert client.get(path).status_code < 500
    for headers in (
        {"Content-Length": "x"},
        {"Content-Length": "-1"},
        {"Content-Type": "\xff"},
        {"Host": "["},
        {"Host": ""},
        {"Origin": "null"},
        {"Authorization": "Bearer \xff"},
    ):
        headers = {name: value.encode("latin-1") for name, value in headers.items()}
        given = {"Content-Type": b"application/json"} | headers
        assert client.post("/v1/completions", content=b"{}", headers=given).status_code < 500
