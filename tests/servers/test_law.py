"""The law through a real server is the law in process: a test of total variation for every
algorithm that runs, on texts of two tokens."""

import math
import os

import pytest
import torch

from triptych.core.estimates import tv_tolerance
from triptych.core.streams import RowStreams
from triptych.core.table import Table
from triptych.inference.guided import (
    adaptive,
    ancestral,
    backtracking,
    best_of_n,
    blocks,
    majority,
    particles,
    rejection,
    tokenwise,
    vgb,
)
from triptych.inference.guided.transforms import Sampling

DRAWS = int(os.environ.get("TRIPTYCH_DRAWS", "5000"))
LEVEL = 1e-6
PROMPT = "x = "
KEPT = 3
SAMPLING = Sampling(top_k=KEPT)
TOGETHER = 500


class Tree:
    """The model's three likeliest tokens after the prompt, and after each of these its three.

    lm       the law of the pairs, on tokens 0, 1, ... that stand for `ids`
    refused  the likeliest pair of each first token
    """

    def __init__(self, model):
        self.prompt = model.encode([PROMPT])[0]

        def top(row):
            law = model.next_token_log_probs([row])[0]
            best = law.topk(KEPT + 1)
            gap = float(best.values[KEPT - 1] - best.values[KEPT])
            assert gap > 0.1, "the third and the fourth token are too near each other"
            return best.indices[:KEPT].tolist(), law[best.indices[:KEPT]].exp().tolist()

        first, self.p = top(self.prompt)
        second = {token: top([*self.prompt, token]) for token in first}
        self.ids = sorted({*first, *(t for tokens, _ in second.values() for t in tokens)})
        size, place = len(self.ids), {token: k for k, token in enumerate(self.ids)}
        self.first = [place[token] for token in first]
        self.pairs = {
            (place[a], place[b]): p * q / (sum(self.p) * sum(second[a][1]))
            for a, p in zip(first, self.p, strict=True)
            for b, q in zip(*second[a], strict=True)
        }
        table = torch.full((size, size), -torch.inf, dtype=torch.float64)
        for (a, b), p in self.pairs.items():
            table[a, b] = math.log(p)
        self.lm = Table(size, 2, table.reshape(-1))
        best = {a: max((p, b) for (c, b), p in self.pairs.items() if c == a) for a in self.first}
        self.refused = {(a, b) for a, (_, b) in best.items()}


class Judge:
    """V = 0 for refused pairs, and where `strict` for all that is not in the tree."""

    def __init__(self, tree, start, ids, *, soft=False, strict=False):
        self.tree, self.start, self.soft, self.strict = tree, start, soft, strict
        self.place = {token: k for k, token in enumerate(ids)}

    def value(self, pair):
        known = {*self.tree.pairs, *((a,) for a in self.tree.first)}
        if self.strict and pair not in known:
            return 0.0
        if pair in self.tree.refused:
            return 0.0
        return (
            (1 + (3 * sum(k for k in pair if k is not None) + len(pair)) % 4) / 4
            if self.soft
            else 1.0
        )

    def log_value(self, prefix):
        rows = [row[self.start :] for row in prefix.tolist()]
        values = [self.value(tuple(self.place.get(token) for token in row)) for row in rows]
        return torch.tensor(values, dtype=torch.float64).log()


@pytest.fixture(scope="module")
def tree(in_process):
    return Tree(in_process)


def first_leaf(tree, judge):
    """The law of a walk's first leaf: after a first token it goes on, or back to the root."""
    weights = {}
    for a in tree.first:
        p = sum(q for (c, _), q in tree.pairs.items() if c == a)
        below = {b: q / p * judge.value((a, b)) for (c, b), q in tree.pairs.items() if c == a}
        here = judge.value((a,))
        for b, weight in below.items():
            weights[a, b] = p * here * weight / (here + sum(below.values()))
    return {pair: w / sum(weights.values()) for pair, w in weights.items()}


def dict_of(law):
    found = law.as_dict() if isinstance(law, Table) else law
    total = sum(found.values())
    return {pair: p / total for pair, p in found.items() if p > 0}


CASES = {
    "ancestral": (ancestral, {}, {}, lambda p, v, t: p),
    "rejection": (rejection, {"attempts": 100}, {}, lambda p, v, t: p.tilt(v.log_value)),
    "tokenwise": (tokenwise, {"tries": 1000}, {}, lambda p, v, t: tokenwise.law(p, v)),
    "backtracking": (
        backtracking,
        {"quota": 2, "stride": 2},
        {},
        lambda p, v, t: backtracking.law(p, v, 2, 2, 2),
    ),
    "best_of_n": (best_of_n, {"n": 2}, {"soft": True}, lambda p, v, t: best_of_n.law(p, v, 2)),
    "blocks": (
        blocks,
        {"block": 1, "n": 2},
        {"soft": True},
        lambda p, v, t: blocks.law(p, v, 1, 2),
    ),
    "majority": (majority, {"n": 3}, {"soft": True}, lambda p, v, t: majority.law(p, v, 3)),
    "particles": (
        particles,
        {"n": 2, "ess": 0.8},
        {"soft": True},
        lambda p, v, t: particles.law(p, v, 2, 2, ess=0.8),
    ),
    "adaptive": (adaptive, {"n": 1}, {"strict": True}, lambda p, v, t: tokenwise.law(p, v)),
    "vgb": (
        vgb,
        {"steps": 2000, "candidates": KEPT},
        {"soft": True},
        lambda p, v, t: first_leaf(t, v),
    ),
}
_OWN = ("adaptive", "vgb")  # they read log-probabilities, so the server changes nothing for them


@pytest.mark.parametrize("name", CASES)
def test_the_law_through_a_server_is_the_law_in_process(
    name, served, running, tree, record_property
):
    module, options, kind, law = CASES[name]
    wanted = dict_of(law(tree.lm, Judge(tree, 0, range(len(tree.ids)), **kind), tree))
    judge = Judge(tree, len(tree.prompt), tree.ids, **kind)
    place, counts = {token: k for k, token in enumerate(tree.ids)}, {}
    requests = drawn = left = 0
    for begun in range(0, DRAWS, TOGETHER):
        rows = min(TOGETHER, DRAWS - begun)
        run = module.sample(
            served.decoder([tree.prompt] * rows),
            judge,
            length=len(tree.prompt) + 2,
            end_token=served.end_tokens,
            transform=None if name in _OWN else SAMPLING.transform(),
            rng=RowStreams(1, torch.arange(begun, begun + rows)),
            **options,
        )
        requests += int(run.costs.requests.sum())
        drawn += int(run.costs.drawn.sum())
        for text, complete in zip(run.completions(), run.complete.tolist(), strict=True):
            if complete:
                pair = tuple(place.get(token) for token in text)
                counts[pair] = counts.get(pair, 0) + 1
            else:
                left += 1
    total = sum(counts.values())
    outcomes = {*wanted, *counts}
    off = sum(abs(counts.get(x, 0) / total - wanted.get(x, 0.0)) for x in outcomes) / 2
    most = tv_tolerance(total, len(wanted), LEVEL)
    print(
        f"\n{running.name} {name}: total variation {off:.4f} (at most {most:.4f}), {total} texts, "
        f"{left} given up, {requests} requests, {drawn} tokens"
    )
    assert off <= most
    assert left == 0 or name == "particles"


def test_a_wrong_law_is_found(served, tree):
    """The same test against the law of another algorithm: tokenwise rejection is not rejection."""
    judge = Judge(tree, 0, range(len(tree.ids)))
    one, other = dict_of(tokenwise.law(tree.lm, judge)), dict_of(tree.lm.tilt(judge.log_value))
    off = sum(abs(one.get(x, 0.0) - other.get(x, 0.0)) for x in {*one, *other}) / 2
    assert off > 2 * tv_tolerance(5000, len(one), LEVEL)


def test_how_far_the_rounding_of_a_server_is(served, running, in_process):
    """Log-probabilities of the likeliest tokens, here and there."""
    rows = in_process.encode(["The capital of", "In the", "a", "there is"])
    differences = []
    for row in rows:
        tokens, there = served.decoder([row]).top_law(torch.tensor([0]), 20)
        here = in_process.next_token_log_probs([row])[0][tokens[0]]
        differences.append(float((here - there[0]).abs().max()))
    print(f"\n{running.name}: log-probabilities differ by {max(differences):.2g} at most")
    assert max(differences) < 1e-2
