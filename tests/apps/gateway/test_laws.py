"""The law of texts that come through the gateway is the law of the algorithm in process.

The laws are enumerated, on two tokens with two outcomes each (`top_k` is 2). Several requests are
in flight, so that rows of some run in one batch.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from starlette.testclient import TestClient
from tests.support.tiny_text_model import tiny_lm

from triptych.apps.gateway.limits import Limits
from triptych.apps.gateway.rules import Rule, Rules
from triptych.apps.gateway.site import Gateway
from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law
from triptych.core.estimates import tv_tolerance
from triptych.inference.guided.adaptive import Adaptive
from triptych.inference.guided.ancestral import Ancestral
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.best_of_n import BestOfN
from triptych.inference.guided.blocks import Blocks
from triptych.inference.guided.particles import Particles
from triptych.inference.guided.rejection import Rejection
from triptych.inference.guided.tokenwise import Tokenwise
from triptych.inference.guided.transforms import Sampling
from triptych.verifiers.text import TextRule

DRAWS, TOGETHER, FAILURE = 5000, 250, 1e-6
QUICK = [
    Ancestral(),
    Rejection(attempts=3),
    Tokenwise(tries=2),
    Backtracking(quota=2, stride=2),
]
OTHERS = [BestOfN(n=2), Blocks(block=1, n=2), Particles(n=2), Adaptive(n=2, tries=1)]


class Known:
    """The laws of a model, each computed once."""

    def __init__(self, lm, length):
        self.lm, self.vocab_size, self.length, self._laws = lm, lm.vocab_size, length, {}

    def next_token_log_probs(self, prefix):
        rows = [tuple(row) for row in prefix.tolist()]
        for row in rows:
            if row not in self._laws:
                self._laws[row] = self.lm.next_token_log_probs([row])[0]
        return torch.stack([self._laws[row] for row in rows])


VALUES = {"": 1.0, "a": 1.0, "0": 0.4, "a0": 0.6, "aa": 0.1, "00": 0.9}
"""Of the texts that this model writes, about equally likely; half of them are below ½."""


def rule(text):
    return VALUES[text]


@pytest.fixture(scope="module")
def lm():
    return tiny_lm(seed=2, length=20, letters="ab01")


def law_in_process(lm, known, algorithm, temperature):
    row = lm.encode(["ab"])[0]

    def attempt(rng):
        decoder = RecomputingDecoder(known, 1)
        decoder.extend([row])
        asked = TextRule(rule, lm.text_of, start=None, end_token=lm.end_tokens)
        result = algorithm.sample(
            decoder,
            asked,
            length=4,
            end_token=lm.end_tokens,
            transform=Sampling(temperature=temperature, top_k=2).transform(),
            rng=rng,
        )
        tokens = [t for t in result.completions()[0] if t not in lm.end_tokens]
        return lm.text_of(tokens)

    return exact_law(attempt).probs


def drawn(lm, algorithm, temperature):
    """Texts of 20 requests, several of them in flight."""
    rules = Rules("tiny", [Rule("differ", "differ", "text", lambda: rule)], algorithm)
    gateway = Gateway(lm, rules, limits=Limits(rows=TOGETHER, together=2 * TOGETHER))
    client = TestClient(gateway.app(), base_url="http://localhost")
    body = {"temperature": temperature, "prompt": "ab", "max_tokens": 2, "n": TOGETHER, "top_k": 2}

    def ask(seed):
        answer = client.post("/v1/completions", json=body | {"seed": seed})
        assert answer.status_code == 200, answer.text
        return [choice["text"] for choice in answer.json()["choices"]]

    with ThreadPoolExecutor(4) as pool:
        texts = [text for some in pool.map(ask, range(DRAWS // TOGETHER)) for text in some]
    gateway.workers.close(30.0)
    return Counter(texts)


def distance(one, other):
    return 0.5 * sum(abs(one.get(x, 0) - other.get(x, 0)) for x in one.keys() | other.keys())


@pytest.mark.parametrize(
    "algorithm",
    [*QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)],
    ids=lambda one: one.name,
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_the_law_is_that_of_the_algorithm(lm, algorithm):
    law = law_in_process(lm, Known(lm, 4), algorithm, 0.7)
    found = {text: count / DRAWS for text, count in drawn(lm, algorithm, 0.7).items()}
    assert sum(found.values()) == pytest.approx(1)
    assert distance(found, law) <= tv_tolerance(DRAWS, len(law), FAILURE)


@pytest.mark.usefixtures("unchecked_shapes")
def test_another_law_would_be_noticed(lm):
    """The laws of these algorithms are further apart than that."""
    known = Known(lm, 4)
    laws = {one.name: law_in_process(lm, known, one, 0.7) for one in [*QUICK, *OTHERS[:1]]}
    limit = tv_tolerance(DRAWS, 5, FAILURE)
    names = [*laws]
    far = [distance(laws[a], laws[b]) for a in names for b in names if a < b]
    assert min(far) > 1.5 * limit
