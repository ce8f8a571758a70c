"""What every algorithm wrote, token by token, on toy models whose laws are exact in float64.

The stored tokens are those of the algorithms before verifiers took questions and before algorithms
were values. They change only where an algorithm is changed on purpose:

    TRIPTYCH_STORE_TOKENS=1 pytest tests/inference/guided/test_same_tokens.py
"""

import json
import os
from pathlib import Path

import pytest
import torch
from tests.support.toy_guided import (
    ALGORITHMS,
    RECORDS,
    Noisy,
    ledger_of,
    sample_of,
    standing_at,
)

from triptych.core.randomness import TorchRng
from triptych.core.streams import RowStreams
from triptych.inference.guided.transforms import nucleus
from triptych.verifiers.text import TextRule
from triptych.verifiers.text_rules.regular import RegexPrefix

STORED = Path(__file__).with_name("same_tokens.json")
PROMPTS, LENGTH, END = ([], [0], [1, 2, 0], [0, 1, 1, 2], [0]), 9, 3
MORE = {  # options that the cases of `toy_guided` do not have
    "no redo": ("backtracking", {"quota": 3, "stride": 3, "redo_argmax": False}),
    "redone verified": ("backtracking", {"quota": 5, "stride": 2, "verify_redone": True}),
    "into the prompt": ("backtracking", {"quota": 3, "stride": 4, "into_prompt": 2}),
    "never resampled": ("particles", {"n": 4, "ess": 0.0}),
    "three estimates": ("adaptive", {"n": 4, "ess": 0.5, "tries": 1000, "estimates": 3}),
    "last node": ("vgb", {"steps": 30, "returns": "last", "candidates": 2}),
    "restarts": ("vgb", {"steps": 9, "restarts": 2, "lazy": False, "share": True}),
    "uniform node, forgetful": ("vgb", {"steps": 25, "returns": "uniform", "remember": False}),
}
CASES = ALGORITHMS | {label: (sample_of(name), options) for label, (name, options) in MORE.items()}


class Turning:
    """p(· | x) is (4, 2, 1, 1) / 8, turned by the sum of x and its length."""

    vocab_size = 4

    def next_token_log_probs(self, prefix):
        law = torch.tensor([4.0, 2.0, 1.0, 1.0], dtype=torch.float64).div(8).log()
        places = torch.arange(4) + prefix.sum(1, keepdim=True) + prefix.shape[1]
        return law[places % 4]


class Halves:
    """V is a half at odd sums and 1 at even ones, and 0 after 2, 2."""

    def log_value(self, prefix):
        odd = torch.where(prefix.sum(1) % 2 == 1, 0.5, 1.0).double()
        twos = (prefix[:, -2:] == 2).all(1) & torch.tensor(prefix.shape[1] > 1)
        return odd.log().masked_fill(twos, -torch.inf)


def letters(tokens):
    return "".join("abc."[token] for token in tokens)


VERIFIERS = {
    "halves": Halves,
    "noisy": Noisy,
    "text": lambda: TextRule(lambda text, finished: "cc" not in text, letters, end_token=END),
    "ends": lambda: TextRule(RegexPrefix("[abc]{3,6}|(ab|c)*"), letters, end_token=END),
}
RNGS = {
    "streams": lambda: RowStreams(3, torch.tensor([0, 1, 2, 3, 9])),
    "one stream": lambda: TorchRng(5),
}


def written(label, verifier, rng, cut):
    sample, options = CASES[label]
    result = sample(
        standing_at(Turning(), *PROMPTS),
        VERIFIERS[verifier](),
        length=LENGTH,
        end_token=END,
        transform=nucleus(0.8) if cut else None,
        rng=RNGS[rng](),
        **options,
    )
    marks = zip(result.complete.tolist(), result.accepted.tolist(), strict=True)
    return [
        f"{''.join(map(str, row)) or '-'} {'c' * complete}{'a' * accepted} {costs}"
        for row, (complete, accepted), costs in zip(
            result.completions(), marks, ledger_of(result), strict=True
        )
    ]


def every_case(label):
    rngs = [("streams", False), ("streams", True), ("one stream", False)]
    return {
        f"{verifier}, {rng}{', cut' * cut}": written(label, verifier, rng, cut)
        for verifier in VERIFIERS
        for rng, cut in rngs
    }


@pytest.mark.parametrize("label", CASES)
def test_the_same_tokens_and_costs(label):
    now = every_case(label)
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if os.environ.get("TRIPTYCH_STORE_TOKENS"):
        STORED.write_text(json.dumps(dict(sorted((stored | {label: now}).items())), indent=1))
        return
    assert now == stored[label]
    texts = {row.split()[0] for case in now.values() for row in case}
    assert len(texts) > 5  # they are not all alike


def test_every_algorithm_is_among_the_cases():
    assert {sample for sample, _ in CASES.values()} == {sample_of(name) for name in RECORDS}
