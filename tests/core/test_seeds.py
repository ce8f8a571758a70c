"""Everything with an rng takes a whole number, its seed, but for the steps of a chain."""

import dataclasses

import pytest
import torch
from tests.support.odd_inputs import Call, prepared, public_calls
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng, check_goes_on
from triptych.models.constructions import compiled_map
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.parity import HiddenParity
from triptych.theory.numerics.hitting import Hitting
from triptych.theory.topics.attended_pairs import AttentionSums
from triptych.theory.topics.read_text import ReadText
from triptych.theory.topics.word_pairs import pair_sums
from triptych.training import gap, objectives

# Called again and again: a seed would make the same draw every time.
STEPS = [
    "inference.gibbs.step",
    "inference.parallel.block_step",
    "inference.parallel.independent_step",
    "inference.spins.SpinGibbs.step",
]
# Parts of a run, which has made its rng already.
INSIDE = [
    "core.draws.LocalDraws.draw",
    "core.randomness.check_goes_on",  # the refusal itself
    "inference.positions.draw",
    "inference.positions.drawn_positions",
]
WALK = torch.tensor([[0.5, 0.5], [0.25, 0.75]], dtype=torch.float64)
THEORY = {
    "theory.queries.orders_from_random_starts": lambda: {"length": 4, "runs": 3},
    "theory.queries.questions_without_memory": lambda: {
        "lm": HiddenParity(torch.tensor([1, 0])),
        "length": 3,
        "runs": 4,
    },
    "theory.hitting.simulate": lambda: {
        "hitting": Hitting(WALK.log(), torch.tensor([False, True])),
        "start": torch.tensor([0, 0, 0, 0]),
        "budget": 20,
    },
    "theory.attended_pairs.AttentionSums.ratio": lambda: {
        "self": AttentionSums(
            torch.ones(4, 1, 3, 2, 2, dtype=torch.float64).cumsum(0),
            torch.ones(4, 1, 3, dtype=torch.float64),
        ),
        "setting": 0,
    },
    "theory.read_text.ReadText.passages": lambda: {
        "self": ReadText([[list(range(n, n + 20))] for n in range(9)]),
        "n": 5,
    },
    "theory.word_pairs.multiplicities": lambda: {"of": 5, "resamples": 3},
    "theory.word_pairs.permutation": lambda: {"n": 9},
    "theory.word_pairs.shuffled": lambda: {"membership": torch.eye(6, dtype=torch.bool)},
    "theory.word_pairs.topic_ratio": lambda: {
        "sums": pair_sums(
            torch.arange(12.0).reshape(6, 2), torch.eye(3, dtype=torch.bool).repeat(2, 1)
        ),
        "resamples": 9,
    },
}
CALLS = {
    call.name: call
    for call in public_calls(("core", "structures", "inference", "verifiers", "theory"))
    if "rng" in call.parameters
    and not call.function.__module__.startswith("triptych.inference.guided")
    and call.name not in INSIDE
}


def called(call: Call, rng: object) -> object:
    if call.name in THEORY:
        return call.function(**THEORY[call.name]() | {"rng": rng})
    function, kwargs = prepared(call)
    return function(**kwargs | {"rng": rng})


def plain(answer: object) -> object:
    """An answer as lists, to compare."""
    if isinstance(answer, torch.Tensor):
        return answer.tolist()
    if isinstance(answer, TorchRng):
        return answer.seed
    if isinstance(answer, tuple | list):
        return [plain(part) for part in answer]
    if isinstance(answer, dict):
        return {name: plain(part) for name, part in answer.items()}
    if dataclasses.is_dataclass(answer):
        kept = {name: part for name, part in vars(answer).items() if "seconds" not in name}
        return {name: plain(part) for name, part in kept.items()}
    return answer


def test_there_is_something_to_call():
    assert set(STEPS) < set(CALLS)
    assert {"core.table.Table.sample", "structures.hmm.HMM.sample_with_states"} < set(CALLS)
    assert {name for name in CALLS if name.startswith("theory.")} == set(THEORY)
    assert len(CALLS) >= 22


@pytest.mark.parametrize("name", sorted(set(CALLS) - set(STEPS)))
def test_a_seed_is_an_rng(name):
    """The same as the rng of that seed; the seed 7 is there to tell it from a constant."""
    for seed in (0, 7):
        assert plain(called(CALLS[name], seed)) == plain(called(CALLS[name], TorchRng(seed)))


@pytest.mark.parametrize("name", STEPS)
def test_a_step_refuses_a_seed(name, unchecked_shapes):
    with refused("rng"):
        called(CALLS[name], 0)
    with refused("rng"):
        called(CALLS[name], None)
    called(CALLS[name], TorchRng(0))


def test_a_model_of_every_position_and_the_gap_take_a_seed():
    swap = compiled_map(torch.tensor([[1], [0]]), 2)
    assert swap.sample(torch.tensor([[0], [1]]), 0).tolist() == [[1], [0]]
    hmm = HMM.random(2, 3, 4, seed=0)

    def logits(tokens):
        return torch.zeros(*tokens.shape, 3)

    objective = objectives.masked(words=3, p_m=0.5, truth=hmm)
    first, second = (
        gap.measure(logits, objective, hmm.sample(5, rng=1), rng) for rng in (3, TorchRng(3))
    )
    assert first == second


def test_what_goes_on():
    check_goes_on(TorchRng(0))
    with refused("rng"):
        check_goes_on(5)
