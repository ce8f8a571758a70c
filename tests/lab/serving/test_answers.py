"""The answers of the hands-on pages: against the library, and by hand."""

import json
import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.lab.serving import block_gibbs, hidden_tokens, verifier_error
from triptych.structures.ising import Ising
from triptych.theory.masking.blocks.dynamics import BlockDynamics, slowest
from triptych.theory.masking.blocks.mixing import mixing_time

HIDDEN = {"states": 2, "stay": 0.75, "clear": 0.75, "tokens": [0, 0], "hidden": [False, True]}
BLOCKS = {"graph": "chain", "spins": 2, "coupling": 0.5, "block": 1, "seed": 0}
ERROR = {"target": "few ones", "length": 3, "error": 0.5, "seed": 0}
ANSWERS = [(hidden_tokens, HIDDEN), (block_gibbs, BLOCKS), (verifier_error, ERROR)]


def test_a_hidden_token_by_hand():
    found = hidden_tokens.answer(HIDDEN)
    assert found["states"] == [pytest.approx([3 / 4, 1 / 4]), pytest.approx([5 / 8, 3 / 8])]
    assert found["tokens"] == [[1.0, 0.0], pytest.approx([9 / 16, 7 / 16])]


def test_hidden_tokens_against_enumeration():
    row, hidden = [0, 2, 2, 1], [True, False, True, False]
    asked = HIDDEN | {"states": 3, "stay": 0.6, "clear": 0.8, "tokens": row, "hidden": hidden}
    table = Table.of(hidden_tokens.persistent(3, 0.6, 0.8, 4))
    expected = table.masked_log_probs([row], [hidden])[0].exp()
    assert torch.allclose(torch.tensor(hidden_tokens.answer(asked)["tokens"]).double(), expected)


def test_two_spins_by_hand():
    found = block_gibbs.answer(BLOCKS)
    assert found["gaps"] == pytest.approx([1 / (1 + math.e), 1.0])
    # all down has probability ½ sigmoid(2J)
    assert found["distance"][0] == pytest.approx(1 - 0.5 / (1 + math.exp(-1)))
    assert found["distance"] == sorted(found["distance"], reverse=True)
    jumps = zip(found["path"], found["path"][1:], strict=False)
    assert all(sum(a != b for a, b in zip(*pair, strict=True)) <= 1 for pair in jumps)
    assert found["path"][0] == [0, 0]
    assert len(found["path"]) == len(found["distance"]) == block_gibbs.STEPS + 1


@pytest.mark.parametrize("graph", block_gibbs.GRAPHS)
def test_blocks_against_the_library(graph):
    ising = Ising.chain(4, 0.7) if graph == "chain" else Ising.clique_and_free(4, 4, 0.7, 0.0)
    dynamics = BlockDynamics(Table.of(ising), MaskLaw.of_size(4, 2))
    asked = BLOCKS | {"graph": graph, "spins": 4, "coupling": 0.7, "block": 2}
    found = block_gibbs.answer(asked)
    assert found["gaps"][1] == slowest(dynamics)[0]
    assert found["mixing"] == mixing_time(dynamics)
    assert found["gaps"] == sorted(found["gaps"]), "larger blocks mix faster"


def test_without_an_error_tokenwise_rejection_is_exact():
    found = verifier_error.answer(ERROR | {"error": 0})
    assert found["lengths"] == [2, 3]
    assert found["distances"]["tokenwise rejection"] == pytest.approx([0, 0], abs=1e-12)
    assert found["winner"] is None, "VGB's first leaf is exact as well"


def test_one_wrong_value_by_hand():
    """Fair bits, τ = 2^-ones: V*(x_1) is 3/4 and 3/8. Off by 1 + ε = 2 either way, p V̂ at the
    first token is 3/8 and 3/16, each times 2 or ½. The target has 2/3 on a first 0."""
    for seed, first in [(0, 8 / 9), (1, 2 / 3), (3, 1 / 3)]:  # 2 and ½; equal; ½ and 2
        found = verifier_error.answer(ERROR | {"length": 2, "error": 1.0, "seed": seed})
        tokenwise = found["distances"]["tokenwise rejection"]
        assert tokenwise == pytest.approx([abs(first - 2 / 3)], abs=1e-12)
        assert found["distances"][verifier_error.LIMIT] == pytest.approx([0], abs=1e-12)


def test_with_an_error_a_walk_wins():
    found = verifier_error.answer(ERROR | {"length": 6, "error": 1.0})
    assert found["winner"].startswith("VGB")
    assert found["winner"] != verifier_error.LIMIT, "which no walk of finite length returns"
    last = {name: values[-1] for name, values in found["distances"].items()}
    assert last["tokenwise rejection"] > 0.1 > last[found["winner"]]


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(("page", "question"), ANSWERS)
def test_an_answer_is_json_and_odd_questions_are_refused(page, question):
    json.dumps(page.answer(question), allow_nan=False)
    for name in question:
        for odd in (None, "x", -1, 2**70, float("nan"), [], {}, [[1]], True):
            with pytest.raises(UserError):
                page.answer(question | {name: odd})
        with refused("question"):
            page.answer({key: value for key, value in question.items() if key != name})
    with refused("question"):
        page.answer(question | {"speed": 1})
    for odd in (None, [], 3):
        with refused("question"):
            page.answer(odd)
