"""Verifiers at extremes: no nan, and a sentence for what cannot be used.

The run-time shape checks are off here, as they are for a user.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.decoders import Prefixes, RecomputingDecoder
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.guided.transforms import nucleus
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.constraints import AllZeros, EvenParity, SomeZero
from triptych.structures.uniform import Uniform
from triptych.training.step import Recipe
from triptych.verifiers.exact import (
    DyckVerifier,
    ExactValue,
    Outcome,
    RatioValue,
    Rule,
    finished,
)
from triptych.verifiers.leaves import ExactLeaves
from triptych.verifiers.noisy import AverageCase, Delayed, Flipped, WithinFactor
from triptych.verifiers.probe import Probe, split_score
from triptych.verifiers.values import TokenValue, one_hot_positions, rollout_values

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

INF, NAN = math.inf, math.nan
ROWS = [[0, 1], [1, 1], [0, 0]]
HARD = AllZeros(3)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


class Says:
    """A verifier that answers what it is told, of as many prefixes as it is asked."""

    def __init__(self, answer):
        self.answer = answer

    def log_value(self, prefix):
        return self.answer(torch.zeros(len(prefix), dtype=torch.float64))


class ByState:
    layer = None

    def log_values(self, asked):
        return torch.zeros(len(asked.row), dtype=torch.float64)


ENDED = {
    "WithinFactor": lambda **ends: WithinFactor(HARD, 0.5, 0, **ends),
    "AverageCase": lambda **ends: AverageCase(HARD, 0.5, 0, **ends),
    "Delayed": lambda **ends: Delayed(HARD, **ends),
    "Flipped": lambda **ends: Flipped(HARD, 0.1, 0.1, 0, **ends),
    "Outcome": lambda **ends: Outcome(HARD, **{"length": 3, **ends}),
    "ExactLeaves": lambda **ends: ExactLeaves(ByState(), HARD, **{"length": 3, **ends}),
    "finished": lambda **ends: finished(ROWS, **{"length": 3, **ends}),
}


@pytest.mark.parametrize("name", ENDED)
def test_lengths_and_end_tokens_that_are_none(name):
    for length in (NAN, INF, "a", 0, -1, 2.5, 3.0, True, 2**70, [3], 1j):
        if name == "finished" and length == 0:
            continue  # of strings without tokens all are full
        with refused("length"):
            ENDED[name](length=length)
    for end in (0.5, NAN, "a", -1, True, [0.5], [1, -1], [[1]]):
        with refused("end_token"):
            ENDED[name](end_token=end)


@pytest.mark.parametrize("name", [name for name in ENDED if name != "finished"])
def test_numbers_of_numpy_are_kept_as_plain_ones(name):
    several = ENDED[name](length=2, end_token=np.array([2, 1, 1]))
    assert several.end_token == (1, 2)
    made = ENDED[name](length=np.int64(2), end_token=np.uint8(1))
    assert (made.length, made.end_token) == (2, 1)
    assert (type(made.length), type(made.end_token)) == (int, int)
    if name == "ExactLeaves":
        return
    plain = ENDED[name](length=2, end_token=1)
    want = plain.log_value(torch.tensor(ROWS))
    for rows in (ROWS, np.array(ROWS, dtype=np.int16), torch.tensor(ROWS, dtype=torch.int32)):
        assert torch.equal(made.log_value(rows), want)


@pytest.mark.parametrize("kind", [EvenParity, AllZeros, SomeZero])
def test_lengths_of_constraints(kind):
    for length in (NAN, INF, "a", 0, -1, 2.5, None):
        with refused("length"):
            kind(length)


# ------------------------------------------------------------------------------------- noise


def test_an_error_beyond_all_floats_is_refused():
    """log M = arccosh(1 + ε / rare) needs an M that is a float: 2 ε / rare below 2^1024."""
    for epsilon, rare in ((1e308, 0.01), (1e308, 1.0), (1e306, 0.01), (1.0, 1e-308)):
        with refused("epsilon"):
            AverageCase(HARD, epsilon, 0, rare=rare)
    rows = torch.tensor([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
    for epsilon, rare in ((7e305, 0.01), (7e307, 1.0), (1e-308, 1.0), (5e-324, 0.5), (0.0, 1e-300)):
        noisy = AverageCase(Says(lambda x: x), epsilon, 0, rare=rare)
        assert math.isfinite(noisy.factor)
        assert torch.isfinite(noisy.log_value(rows)).all()


def test_the_largest_factor_by_hand():
    """ε = 4e307, rare = 1: M + 1/M = 2 + 8e307, so M = 8e307 to 15 digits, everywhere."""
    noisy = AverageCase(Says(lambda x: x), 4e307, 0, rare=1.0)
    assert noisy.factor == pytest.approx(8e307, rel=1e-12)
    said = noisy.log_value(torch.arange(20)[:, None]).abs()
    assert said.tolist() == pytest.approx([math.log(8) + 307 * math.log(10)] * 20)


def test_within_a_huge_factor():
    said = WithinFactor(Says(lambda x: x), 1e308, 0, extremes=True).log_value([[0], [1], [2], [3]])
    assert said.abs().tolist() == pytest.approx([math.log(1e308)] * 4)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: WithinFactor(HARD, "a", 0), "epsilon is 'a'; it must be a number"),
        (lambda: WithinFactor(HARD, 0.1, 0.5), "seed is 0.5"),
        (lambda: WithinFactor(HARD, 0.1, 2**63), "seed is 9223372036854775808"),
        (lambda: WithinFactor(HARD, 0.1, 0, extremes="no"), "extremes is 'no'"),
        (lambda: WithinFactor(max, 0.1, 0), "value is max; it needs log_value"),
        (lambda: AverageCase(HARD, 0.1, 0, rare=0.0), "rare is 0.0; .*above 0"),
        (lambda: AverageCase(HARD, 0.1, 0, rare="b"), "rare is 'b'"),
        (lambda: Flipped(HARD, 0.1, [0.1], 0), r"false_reject is \[0.1\]"),
        (lambda: Flipped(HARD, 0.1, 0.1, 0, soft=None), "soft is None"),
        (lambda: Delayed(None), "value is None; it needs log_value"),
        (lambda: Outcome(3, 3), "value is 3; it needs log_value"),
        (lambda: Rule(3), "function is 3; it must be a function"),
        (lambda: ExactValue(Uniform(2, 2), HARD), r"table is a Uniform; .*Table.of\(density\)"),
        (lambda: ExactValue(Table.of(Uniform(2, 2)), 3), "outcome is 3"),
        (lambda: RatioValue(Uniform(2, 2), "q"), "target is 'q'; it needs vocab_size"),
        (lambda: DyckVerifier("()"), r"dyck is '\(\)'; it needs"),
        (lambda: ExactLeaves(HARD, HARD, 3), "value is a AllZeros; it needs log_values"),
    ],
)
def test_dials_that_make_no_sense(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()


AROUND = {
    "WithinFactor": lambda value: WithinFactor(value, 0.5, 0),
    "AverageCase": lambda value: AverageCase(value, 0.5, 0),
    "Delayed": Delayed,
    "Flipped": lambda value: Flipped(value, 0.1, 0.1, 0),
    "Outcome": lambda value: Outcome(value, 2),
    "ExactValue": lambda value: ExactValue(Table.of(Uniform(2, 2)), value),
}


@pytest.mark.parametrize("name", AROUND)
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda x: x + NAN, r"Says says log V = nan of \["),
        (lambda x: x + INF, "Says says log V = inf"),
        (lambda x: x[:, None], r"Says answered torch.float64 of shape \(\d, 1\)"),
        (lambda x: x[:1], "it must answer one number a prefix"),
        (lambda x: x + 0j, "torch.complex128"),
        (lambda x: x.tolist(), "Says answered a list"),
    ],
)
def test_what_is_wrapped_must_answer(name, answer, sentence):
    with pytest.raises(UserError, match=sentence):
        AROUND[name](Says(answer)).log_value(torch.tensor(ROWS))


SAYING = {
    **{name: lambda make=make: make(Says(lambda x: x)) for name, make in AROUND.items()},
    "RatioValue": lambda: RatioValue(Uniform(2, 2), Table.random(2, 2, seed=0)),
    "DyckVerifier": lambda: DyckVerifier(Dyck.prefixes(1, 2, 3, q=0.5)),
    "Rule": lambda: Rule(lambda x: sum(x) <= 1),
    "TokenValue": lambda: TokenValue(_flat(6), 2, 2),
}


def _flat(width):
    return Probe(
        f64([0.0] * width), f64([1.0] * width), (f64([[0.0] * width] * 2),), (f64([0, 0]),)
    )


@pytest.mark.parametrize("name", SAYING)
def test_prefixes_in_other_forms(name):
    value = SAYING[name]()
    want = value.log_value(torch.tensor(ROWS))
    for rows in (ROWS, np.array(ROWS, dtype=np.int16), torch.tensor(ROWS, dtype=torch.int32)):
        assert torch.equal(value.log_value(rows), want)
    assert value.log_value(torch.zeros(0, 2).long()).shape == (0,)


@pytest.mark.parametrize("name", SAYING)
def test_prefixes_that_are_none(name):
    value = SAYING[name]()
    for rows, sentence in (
        ([0, 1], "2 dimensions"),
        ([[0], [0, 1]], "prefix is"),
        ([[0.5, 1.0]], "prefix holds .*0.5.*; it must hold whole numbers"),
        (torch.zeros(2, 2), "prefix has dtype torch.float32"),
        ("01", "prefix is '01'"),
        (None, "prefix is None"),
    ):
        with pytest.raises(UserError, match=sentence):
            value.log_value(rows)


# -------------------------------------------------------------------------------------- ratios


class Answers:
    vocab_size = 2

    def __init__(self, answer):
        self.answer = answer

    def next_token_log_probs(self, prefix):
        return self.answer(torch.full((len(prefix), 2), 0.5, dtype=torch.float64).log())


NO_LAWS = {
    "nan": (lambda x: x + NAN, r"Answers gives no law after \[.*\]: .* sum to nan"),
    "logits": (lambda x: x + 1, r"Answers gives no law after \[.*\]: .* sum to 2.718"),
    "nothing": (lambda x: x - INF, "sum to 0"),
    "columns": (lambda x: x[:, :1], r"answered torch.float64 of shape \(\d, 1\)"),
    "list": (lambda x: x.tolist(), "answered a list"),
}


@pytest.mark.parametrize("wrong", NO_LAWS)
def test_ratios_of_models_without_laws(wrong):
    """A nan of the target used to be read as a value of 0."""
    answer, sentence = NO_LAWS[wrong]
    for model, target in ((Answers(answer), Uniform(2, 2)), (Uniform(2, 2), Answers(answer))):
        with pytest.raises(UserError, match=sentence):
            RatioValue(model, target).log_value([[0, 1], [1, 1]])


# ------------------------------------------------------------------------------------- rollouts


class Said(Prefixes):
    """A decoder whose laws are what it is told to answer."""

    def __init__(self, answer):
        super().__init__(2, 2, None, torch.device("cpu"))
        self.answer = answer

    def next_log_probs(self, rows=None):
        return self.answer(torch.full((len(self._asked(rows)), 2), 0.5, dtype=torch.float64).log())

    def fork(self, rows):
        return self._copy_rows(rows)


@pytest.mark.parametrize("wrong", NO_LAWS)
def test_rollouts_of_models_without_laws(wrong):
    answer, sentence = NO_LAWS[wrong]
    options = {"rollouts": 2, "length": 2, "rng": TorchRng(0)}
    for transform in (None, nucleus(0.9)):
        with pytest.raises(UserError, match=sentence.replace("Answers", "Said")):
            rollout_values(Said(answer), HARD, transform=transform, **options)
    with pytest.raises(UserError, match=sentence.replace("Answers", "the transform")):
        rollout_values(Said(lambda x: x), HARD, transform=answer, **options)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"length": 2.5}, "length is 2.5"),
        ({"length": INF}, "length is inf"),
        ({"length": NAN}, "length is nan"),
        ({"length": 2**70}, "length is"),
        ({"end_token": 0.5}, r"end_token is 0.5; it must be a token, 0\.\.1"),
        ({"rollouts": 1.5}, "rollouts is 1.5"),
        ({"rollouts": NAN}, "rollouts is nan"),
        ({"outcome": 3}, "outcome is 3"),
        ({"rng": None}, "rng is None"),
        ({"transform": 3}, "transform is 3"),
        ({"decoder": Uniform(2, 2)}, "decoder is a Uniform"),
        ({"outcome": Says(lambda x: x + 1e5)}, r"Says says inf of \[[01], [01]\]"),
    ],
)
def test_rollouts_refuse(change, sentence):
    given = {
        "decoder": Said(lambda x: x),
        "outcome": HARD,
        "rollouts": 2,
        "length": 2,
        "rng": TorchRng(0),
    }
    with pytest.raises(UserError, match=sentence):
        rollout_values(**(given | change))


def test_rollouts_with_numbers_of_numpy():
    decoder = RecomputingDecoder(Table.random(2, 3, seed=0), 2)
    plain = rollout_values(decoder, HARD, rollouts=9, length=3, end_token=1, rng=TorchRng(0))
    other = rollout_values(
        decoder,
        HARD,
        rollouts=np.int64(9),
        length=np.uint8(3),
        end_token=np.int8(1),
        rng=TorchRng(0),
    )
    assert torch.equal(plain, other)


# --------------------------------------------------------------------------------------- probes


STATES = f64([[0.0, 1.0], [1.0, 0.0], [0.2, 0.9], [0.8, 0.1]])
CORRECT = torch.tensor([True, False, True, False])
RECIPE = Recipe(steps=3, batch=4)


def test_probes_of_lists_and_arrays():
    probe = Probe.fit(STATES, CORRECT, recipe=RECIPE)
    other = Probe.fit(
        STATES.tolist(), CORRECT.tolist(), recipe=RECIPE, depth=np.int64(1), seed=np.int64(0)
    )
    for name, value in probe.state().items():
        assert torch.equal(other.state()[name], value)
    assert torch.equal(probe.log_value_of(STATES.numpy()), probe.log_value_of(STATES))
    assert probe.score(STATES.tolist(), CORRECT.numpy()) == probe.score(STATES, CORRECT)
    one = Probe(
        [1.0], np.array([2.0]), ([[0.0], [1.0]],), [[0.0, 0.0]], np.int64(2), np.float64(0.1)
    )
    assert one.log_prob_correct([[3.0]]).exp().tolist() == pytest.approx([math.e / (1 + math.e)])
    assert (one.layer, one.floor) == (2, 0.1)


@pytest.mark.parametrize(
    ("states", "correct", "sentence"),
    [
        ("states", CORRECT, "states is 'states'"),
        (STATES, None, "correct is None"),
        (STATES, ["a", "b", "c", "d"], "correct holds .*'a'"),
        (torch.zeros(4, 0), CORRECT, "one row of features"),
        (STATES * 1e308, CORRECT, "not finite|nan or inf"),
        (STATES.to("meta"), CORRECT, "on meta"),
        (STATES + 0j, CORRECT, "states has dtype torch.complex128"),
    ],
)
def test_probes_refuse_examples(states, correct, sentence):
    with pytest.raises(UserError, match=sentence):
        Probe.fit(states, correct, recipe=RECIPE)
    with pytest.raises(UserError, match=sentence):
        split_score(states, correct, train=3, repetitions=1, recipe=RECIPE)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"depth": 1.5}, "depth is 1.5"),
        ({"width": NAN}, "width is nan"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"layer": 2.5}, "layer is 2.5; give the layer's own number"),
        ({"floor": "low"}, "floor is 'low'"),
    ],
)
def test_probes_refuse_options(option, sentence):
    with pytest.raises(UserError, match=sentence):
        Probe.fit(STATES, CORRECT, recipe=RECIPE, **option)


def test_probes_refuse_parts_that_do_not_fit():
    probe = _flat(2)
    for wrong, sentence in (
        ({"scale": f64([1.0, 0.0])}, "scale of every feature .* above 0"),
        ({"scale": f64([1.0, -1.0])}, "scale of every feature"),
        ({"scale": f64([1.0])}, "shapes"),
        ({"mean": f64([NAN, 0.0])}, "holds nan or inf"),
        ({"weights": (f64([[0.0, INF]] * 2),)}, "holds nan or inf"),
        ({"weights": (f64([[0.0]] * 2),)}, "shapes"),
        ({"biases": (f64([0.0]),)}, "two classes"),
    ):
        with pytest.raises(UserError, match=sentence):
            replace(probe, **wrong)
    for name in ("layer", "floor"):
        with pytest.raises(UserError, match=name):
            Probe.from_state({**probe.state(), name: torch.tensor(2.5)})


def test_states_far_from_training_are_no_nan():
    """Scores of ±1e308 · 1e308 are no numbers; those that are large are certain."""
    probe = Probe(f64([0.0]), f64([1e-300]), (f64([[-1e5], [1e5]]),), (f64([0.0, 0.0]),))
    with pytest.raises(UserError, match="the state in row 1 is too far from those of training"):
        probe.log_prob_correct([[0.0], [1e10]])
    assert probe.log_prob_correct([[0.0], [1e-299]]).exp().tolist() == [0.5, 1.0]


def test_token_values_refuse():
    for call, sentence in (
        (lambda: TokenValue(3, 2, 2), "probe is a int"),
        (lambda: TokenValue(_flat(6), 2.5, 2), "vocab_size is 2.5"),
        (lambda: TokenValue(_flat(6), 2, NAN), "length is nan"),
        (lambda: one_hot_positions([[0]], 2, 2**31 - 1), "would have"),
        (lambda: one_hot_positions([[0]], 0, 2), "vocab_size is 0"),
        (lambda: one_hot_positions("01", 2, 2), "prefixes is '01'"),
        (lambda: TokenValue.fit([[0]], [0.5], vocab_size=2.0, length=1), "vocab_size is 2.0"),
    ):
        with pytest.raises(UserError, match=sentence):
            call()
    assert one_hot_positions([[1]], 2, 2).tolist() == [[0, 1, 0, 0, 0, 1]]
