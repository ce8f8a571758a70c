import functools

import pytest
from starlette.testclient import TestClient
from tests.support.tiny_text_model import tiny_lm

from triptych.apps.gateway.limits import Limits
from triptych.apps.gateway.rules import NO_RULE, Rule, Rules
from triptych.apps.gateway.site import Gateway
from triptych.verifiers.grammars.grammar import Grammar


@functools.cache
def model():
    return tiny_lm(seed=3, length=60)


def no_braces(text):
    return "{" not in text and "}" not in text


RULES = [
    Rule("text", "no braces", "text", lambda: no_braces),
    Rule("bits", "regex:[01]{2,4}", "grammar", lambda: Grammar.from_regex("[01]{2,4}").on(model())),
    NO_RULE,
]


@pytest.fixture
def lm():
    return model()


@pytest.fixture
def started(lm):
    """Gateways with changes of what they have, closed after the test; each with its client."""
    opened = []

    def start(*, rules=RULES, algorithm=None, limits=None, host="127.0.0.1", **more):
        gateway = Gateway(lm, Rules("tiny", rules, algorithm), limits=limits or Limits(), **more)
        client = TestClient(gateway.app(), base_url=f"http://{host}", raise_server_exceptions=True)
        opened.append(gateway)
        return gateway, client

    yield start
    for gateway in opened:
        gateway.workers.close(seconds=30.0)


@pytest.fixture
def ask(started):
    """The answer of a gateway to a completion, or with messages to a conversation."""
    _, client = started()

    def answer(status=200, **body):
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        response = client.post(path, json={"max_tokens": 8} | body)
        assert response.status_code == status, response.text
        return response.json()

    return answer
