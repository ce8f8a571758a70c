"""A gateway on a model behind a URL: OpenAI in, OpenAI out, with a server of known laws between."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from starlette.testclient import TestClient
from tests.support.fake_served import LLAMA, VLLM, FakeServer, PairTokenizer

from triptych.apps.gateway.limits import Limits
from triptych.apps.gateway.rules import NO_RULE, Rule, Rules
from triptych.apps.gateway.site import Gateway
from triptych.core.estimates import tv_tolerance
from triptych.inference.guided.backtracking import Backtracking, law
from triptych.inference.guided.greedy import Greedy
from triptych.models.served.served_lm import ServedLM

PROBS = {  # after the last token; token 0 ends a text
    0: (0.2, 0.2, 0.2, 0.2, 0.2),
    1: (0.1, 0.2, 0.4, 0.1, 0.2),
    2: (0.15, 0.35, 0.1, 0.3, 0.1),
    3: (0.3, 0.3, 0.1, 0.1, 0.2),
    4: (0.05, 0.5, 0.3, 0.1, 0.05),
}
DRAWS = 5000


def no_b_twice(text):
    return "bb" not in text


@pytest.fixture(params=[LLAMA, VLLM])
def server(request):
    options = {"vocab_size": 5, "tokenizer": PairTokenizer(), "ends": (0,)}
    with FakeServer(lambda prefix: PROBS[prefix[-1]], dialect=request.param, **options) as running:
        yield running


@pytest.fixture
def start(server):
    opened = []

    def made(*rules, algorithm=None, threads=4, limits=None, patience=20.0):
        lm = ServedLM(
            server.url, tokenizer=PairTokenizer(), patience=patience, timeout=5.0, check=False
        )
        known = Rules("served", rules or [NO_RULE], algorithm)
        opened.append(Gateway(lm, known, threads=threads, limits=limits))
        return TestClient(opened[-1].app(), base_url="http://localhost")

    yield made
    for gateway in opened:
        gateway.workers.close(30)
        gateway.lm.close()


RULE = Rule("once", "no bb", "text", lambda: no_b_twice)


def test_texts_streams_and_costs(start, server):
    client = start(RULE, NO_RULE, algorithm=Backtracking(quota=3, stride=2))
    body = {"prompt": "a", "n": 4, "max_tokens": 8, "seed": 1}
    answer = client.post("/v1/completions", json=body).json()
    assert answer["triptych"]["algorithm"] == "backtracking"
    again = client.post("/v1/completions", json=body).json()
    assert [c["text"] for c in again["choices"]] == [c["text"] for c in answer["choices"]]
    told = client.post("/v1/completions", json=body | {"stream": True}).text
    assert told.endswith("data: [DONE]\n\n")
    plain = client.post("/v1/completions", json=body | {"model": "served:none"}).json()
    assert plain["triptych"]["algorithm"] == "ancestral"
    assert server.asked


def test_what_a_server_does_not_tell_is_refused_by_name(start):
    client = start(RULE, algorithm=None)
    answer = client.post("/v1/completions", json={"prompt": "a", "logprobs": 1, "echo": True})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "logprobs"
    client = start(RULE, algorithm=Greedy())
    answer = client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "not_possible"


def test_a_server_that_is_gone_is_said_and_comes_back(start, server):
    client = start(RULE, patience=0.2)
    body = {"prompt": "a", "max_tokens": 3, "seed": 1}
    wanted = client.post("/v1/completions", json=body).json()["choices"]
    server.faults = [500] * 20
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "no_upstream"
    assert server.url not in answer.text
    server.faults = []
    assert client.post("/v1/completions", json=body).json()["choices"] == wanted


@pytest.mark.slow
def test_the_law_through_both_is_the_law_in_process(start):
    """Two new tokens, by backtracking that erases: 5,000 draws, level 1e-6."""
    algorithm = Backtracking(quota=1, stride=2, redo_argmax=False)
    client = start(RULE, algorithm=algorithm, limits=Limits(rows=250, together=250))

    def ask(seed):
        body = {"prompt": "a", "n": 250, "max_tokens": 2, "seed": seed}
        answer = client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return [choice["text"] for choice in answer.json()["choices"]]

    with ThreadPoolExecutor(4) as pool:
        found = Counter(text for texts in pool.map(ask, range(DRAWS // 250)) for text in texts)

    tokenizer = PairTokenizer()

    class AfterA:
        vocab_size, length = 5, 2

        def next_token_log_probs(self, prefix):
            rows = [PROBS[row[-1] if row else 1] for row in prefix.tolist()]
            return torch.tensor(rows, dtype=torch.float64).log()

    class Once:
        def log_value(self, prefix):
            texts = [tokenizer.decode([t for t in row if t]) for row in prefix.tolist()]
            fine = [float(no_b_twice(text)) for text in texts]
            return torch.tensor(fine, dtype=torch.float64).log()

    exact = Counter()
    strings = law(AfterA(), Once(), 2, 1, 2, redo_argmax=False, end_token=0)
    for tokens, chance in strings.items():
        exact[tokenizer.decode([t for t in tokens if t])] += chance
    assert sum(exact.values()) == pytest.approx(1)
    away = 0.5 * sum(abs(found[x] / DRAWS - exact[x]) for x in found.keys() | exact.keys())
    assert away <= tv_tolerance(DRAWS, len(exact), 1e-6)
