"""Algorithm 1 step by step, transforms by hand, and what happens when something is wrong."""

import math

import pytest
import torch
from tests.support.refusals import refused
from tests.support.toy_guided import ALGORITHMS, FirstDraws, Values, ledger_of, standing_at

from triptych.core.decoders import RecomputingDecoder
from triptych.core.randomness import TorchRng
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
from triptych.inference.guided.generation import Costs, VerifierError
from triptych.inference.guided.result import Reason
from triptych.inference.guided.transforms import argmax, compose, nucleus, temperature, top_k
from triptych.structures.uniform import Uniform


class Leaning:
    """0.7 for one token, which depends on the length alone, and 0.1 for each of the others."""

    vocab_size = 4

    def __init__(self, likeliest):
        self.likeliest = likeliest

    def next_token_log_probs(self, prefix):
        law = torch.full((len(prefix), 4), 0.1, dtype=torch.float64)
        law[:, self.likeliest[prefix.shape[1]]] = 0.7
        return law.log()


def algorithm_1(prompts, verifier, draws, *, likeliest=(3, 3, 3, 3), **options):
    options = {"length": 4, "quota": 1, "stride": 2, "record": True, **options}
    decoder, rng = standing_at(Leaning(likeliest), *prompts), FirstDraws(*draws)
    result = backtracking.sample(decoder, verifier, **options, rng=rng)
    assert not rng.choices  # every written choice was used
    return result


def test_one_backtrack():
    """1, 12 (refused): both erased and redone as 33, which no one verifies; then 1, 1 freely."""
    verifier = Values(_12=0.1, _3=0.0, _33=0.0, _331=0.0)
    result = algorithm_1([[]], verifier, [1, 2, 1, 1])
    assert result.completions() == [(3, 3, 1, 1)]
    assert verifier.asked == ["1", "12"]
    assert ledger_of(result) == [(6, 6, 2, 2)]
    assert result.info.quota_left.tolist() == [0]
    assert [(e.action, e.tokens) for e in result.trace] == [
        ("draw", (1,)),
        ("accept", (1,)),
        ("draw", (1, 2)),
        ("reject", (1, 2)),
        ("backtrack", ()),
        ("argmax", (3,)),
        ("argmax", (3, 3)),
        ("draw", (3, 3, 1)),
        ("draw", (3, 3, 1, 1)),
    ]
    assert result.trace[3].log_value == pytest.approx(math.log(0.1))


def test_a_stride_beyond_what_was_generated_stops_at_the_prompt():
    """One token was generated after 22: one is erased and one redone."""
    result = algorithm_1([[2, 2]], Values(_221=0.0), [1, 0], stride=5)
    assert result.tokens.tolist() == [[2, 2, 3, 0]]
    assert ledger_of(result) == [(3, 3, 1, 1)]
    assert result.info.erased_prompt.tolist() == [0]


def test_into_the_prompt_where_that_is_allowed():
    """221 refused: 1 and one 2 of the prompt go, and both positions are redone."""
    result = algorithm_1([[2, 2]], Values(_221=0.0), [1, 0], stride=5, into_prompt=1)
    assert result.tokens.tolist() == [[2, 3, 3, 0]]
    assert result.completions() == [(3, 3, 0)]
    assert ledger_of(result) == [(4, 4, 2, 1)]
    assert result.info.erased_prompt.tolist() == [1]
    result = algorithm_1([[2, 2]], Values(_221=0.0), [1, 0], stride=5, into_prompt=9)
    assert result.tokens.tolist() == [[3, 3, 3, 0]]
    assert result.info.erased_prompt.tolist() == [2]


def test_a_redo_ends_with_the_end_token():
    """111 refused: the redo says 0, then 3, which is the end: the third position stays empty."""
    result = algorithm_1(
        [[]], Values(_111=0.0), [1, 1, 1], likeliest=(0, 3, 0, 0), stride=3, end_token=3
    )
    assert result.completions() == [(0, 3)]
    assert result.complete.tolist() == [True]
    assert ledger_of(result) == [(5, 5, 3, 3)]


def test_the_last_token_and_the_end_token_are_verified():
    result = algorithm_1(
        [[]], Values(_3=0.0), [3, 1, 1, 1], likeliest=(0,) * 4, stride=1, end_token=3
    )
    assert result.completions() == [(0, 1, 1, 1)]
    result = algorithm_1([[2, 2, 2]], Values(_2221=0.0), [1])
    assert result.tokens.tolist() == [[2, 2, 2, 3]]


@pytest.mark.parametrize(("threshold", "refused"), [(0.5, False), (0.6, False), (0.7, True)])
def test_the_threshold_itself_is_accepted(threshold, refused):
    result = algorithm_1([[2, 2]], Values(_221=0.6), [1, 0], threshold=threshold)
    assert (result.info.quota_left.item() == 0) == refused


def test_without_the_redo_the_erased_positions_are_drawn():
    result = algorithm_1([[]], Values(_12=0.0), [1, 2, 0, 1, 2, 0], redo_argmax=False)
    assert result.completions() == [(0, 1, 2, 0)]
    assert ledger_of(result) == [(6, 6, 2, 2)]
    assert "argmax" not in [e.action for e in result.trace]


def test_every_row_has_its_own_quota():
    """Row 0 uses its backtrack at its first token and is not asked about again; row 1 has the same
    quota left for its third token."""
    verifier = Values(_1=0.0, _31=0.0, _210=0.0)
    draws = [1, 2, 1, 1, 0, 1, 1, 1]  # rows in turn; one that redoes a token draws none
    result = algorithm_1([[], []], verifier, draws, stride=1)
    assert result.completions() == [(3, 1, 1, 1), (2, 1, 3, 1)]
    assert verifier.asked == ["1", "2", "21", "210"]
    assert result.info.quota_left.tolist() == [0, 0]
    assert ledger_of(result) == [(5, 5, 1, 1), (5, 5, 1, 3)]


def test_without_a_quota_nothing_is_verified():
    verifier = Values(_1=0.0)
    assert algorithm_1([[]], verifier, [1, 1, 1, 1], quota=0).completions() == [(1, 1, 1, 1)]
    assert verifier.asked == []


# ------------------------------------------------------------------------------------ transforms


def applied(transform, *probs):
    return transform(torch.tensor([probs], dtype=torch.float64).log())[0].exp().tolist()


def test_worked_values_of_the_transforms():
    assert applied(temperature(0.5), 0.75, 0.25) == pytest.approx([0.9, 0.1])
    assert applied(temperature(1.0), 0.75, 0.25) == pytest.approx([0.75, 0.25])
    assert applied(temperature(0.0), 0.3, 0.4, 0.3) == [0, 1, 0]
    assert applied(top_k(2), 0.2, 0.5, 0.3) == pytest.approx([0, 5 / 8, 3 / 8])
    assert applied(top_k(1), 0.4, 0.4, 0.2) == [1, 0, 0]
    assert applied(top_k(9), 0.4, 0.6) == pytest.approx([0.4, 0.6])
    assert applied(nucleus(0.6), 0.3, 0.5, 0.2) == pytest.approx([3 / 8, 5 / 8, 0])
    assert applied(nucleus(0.5), 0.5, 0.3, 0.2) == [1, 0, 0]  # reached by the first alone
    assert applied(nucleus(0.3), 0.7, 0.2, 0.1) == [1, 0, 0]
    assert applied(nucleus(1.0), 0.7, 0.0, 0.3) == pytest.approx([0.7, 0, 0.3])
    assert applied(nucleus(0.0), 0.3, 0.4, 0.3) == applied(argmax, 0.3, 0.4, 0.3) == [0, 1, 0]
    assert applied(argmax, 0.4, 0.4, 0.2) == [1, 0, 0]
    ten = [0.1] * 10  # ten times 0.1 sums to less than 1 in floating point
    assert applied(nucleus(0.3), *ten) == pytest.approx([1 / 3] * 3 + [0] * 7)


def test_composition_applies_the_first_one_first():
    """½, 3/10, 1/5: cooled first it is 25, 9, 4 of 38, and 25/38 > 0.6; cut first, 25, 9 of 34."""
    law = (0.5, 0.3, 0.2)
    assert applied(compose(temperature(0.5), nucleus(0.6)), *law) == [1, 0, 0]
    wanted = [25 / 34, 9 / 34, 0]
    assert applied(compose(nucleus(0.6), temperature(0.5)), *law) == pytest.approx(wanted)
    assert applied(compose(), *law) == pytest.approx(law)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: temperature(-1.0), "temperature is -1.0; it must be at least 0"),
        (lambda: temperature(math.nan), "temperature is nan"),
        (lambda: top_k(0), "k is 0"),
        (lambda: nucleus(1.5), "p is 1.5; it must be a probability"),
        (lambda: nucleus(math.nan), "p is nan; it must be a probability"),
    ],
)
def test_transforms_that_make_no_sense(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_greedy_decoding():
    lm = Leaning((3, 2, 1, 0))
    result = ancestral.sample(
        RecomputingDecoder(lm, 3), length=4, transform=argmax, rng=TorchRng(0)
    )
    assert result.completions() == [(3, 2, 1, 0)] * 3
    assert ledger_of(result) == [(4, 4, 0, 0)] * 3
    assert result.costs.forward_passes == 4


# ---------------------------------------------------------------------------------------- faults


class Faulty:
    """Says 1 of shorter prefixes and something wrong of those with two tokens or more."""

    def __init__(self, answer):
        self.answer = answer

    def log_value(self, prefix):
        if prefix.shape[1] < 2:
            return torch.zeros(len(prefix), dtype=torch.float64)
        return self.answer(prefix)


def raising(prefix):
    raise KeyError("no such bracket")


FAULTS = {
    "raises": (raising, "Faulty raised KeyError: 'no such bracket'"),
    "nan": (lambda x: torch.full((len(x),), torch.nan), "Faulty says log V = nan"),
    "infinite": (lambda x: torch.full((len(x),), torch.inf), "Faulty says log V = inf"),
    "shape": (lambda x: torch.zeros(len(x), 2), "must answer one number a prefix"),
    "no tensor": (lambda x: [0.0] * len(x), "it gave a list"),
}
ASKING = [name for name in ALGORITHMS if name != "ancestral"]


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_verifier_is_named_with_its_prefix_and_what_there_was(name, fault):
    sample, options = ALGORITHMS[name]
    answer, sentence = FAULTS[fault]
    decoder = standing_at(Table.random(2, 3, seed=0), [0], [])
    with pytest.raises(VerifierError) as caught:
        sample(decoder, Faulty(answer), **options, length=3, rng=TorchRng(0))
    error, partial = caught.value, caught.value.partial
    assert sentence in str(error)
    assert f"prefix {list(error.prefix)}" in str(error)
    rows = zip(partial.tokens.tolist(), partial.lengths.tolist(), strict=True)
    texts = [tuple(row[:length]) for row, length in rows]
    child = name in ("adaptive", "greedy", "vgb")  # they ask about children
    asked_of = error.prefix[:-1] if child else error.prefix
    assert asked_of in texts
    assert len(error.prefix) >= 2
    whose = error.owner.tolist()
    wanted = [None if whole else Reason.VERIFIER for whole in partial.complete.tolist()]
    assert list(partial.reasons) == wanted
    owner = whose[texts.index(asked_of)]
    assert f"row {owner}" in str(error)
    assert partial.prompt_lengths.tolist() == [[1, 0][row] for row in whose]
    assert int(partial.costs.verifier_calls.sum()) >= 1


def test_the_failing_row_is_named_and_not_the_first():
    """Of rows 00, 01, 11 the verifier fails on the second alone."""
    decoder = standing_at(Uniform(2, 3), [0, 0], [0, 1], [1, 1])
    bad = Faulty(lambda x: torch.where(x[:, 1] > x[:, 0], torch.nan, 0.0))
    with pytest.raises(VerifierError, match=r"\(row 1, prefix \[0, 1, 0\]\)"):
        tokenwise.sample(decoder, bad, length=3, transform=argmax, rng=TorchRng(0))


@pytest.mark.parametrize("name", ASKING)
def test_values_above_one_are_refused_where_probabilities_are_needed(name):
    sample, options = ALGORITHMS[name]

    def call(log_value):
        verifier = Faulty(lambda x: torch.full((len(x),), log_value, dtype=torch.float64))
        decoder = standing_at(Table.random(2, 3, seed=0), [0])
        return sample(decoder, verifier, **options, length=3, rng=TorchRng(0))

    assert call(1e-12).complete.all()  # 1, but for rounding
    modules = (adaptive, best_of_n, blocks, majority, particles, vgb)
    if sample in {module.sample for module in modules}:
        assert call(0.5).complete.all()
    else:
        with pytest.raises(VerifierError, match="log V = 0.5; values must be log-prob.* at most 0"):
            call(0.5)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("sample", "options", "sentence"),
    [
        (ancestral.sample, {"length": 1}, "length is 1, and a prompt has 2 tokens"),
        (ancestral.sample, {"end_token": 2}, r"end_token is 2; it must be a token, 0\.\.1"),
        (ancestral.sample, {"end_token": -1}, "end_token is -1"),
        (backtracking.sample, {"quota": -1, "stride": 1}, "quota is -1"),
        (backtracking.sample, {"quota": 1, "stride": 0}, "stride is 0"),
        (backtracking.sample, {"quota": 1, "stride": 1, "into_prompt": -1}, "into_prompt is -1"),
        (backtracking.sample, {"quota": 1, "stride": 1, "threshold": 1.5}, "threshold is 1.5"),
        (rejection.sample, {"attempts": 0}, "attempts is 0"),
        (rejection.sample, {"threshold": -0.1}, "threshold is -0.1"),
        (tokenwise.sample, {"tries": 0}, "tries is 0"),
        (tokenwise.sample, {"accept": "always"}, "accept is 'always'"),
        (tokenwise.sample, {"threshold": 2.0}, "threshold is 2.0"),
        (best_of_n.sample, {"n": 0}, "n is 0"),
        (blocks.sample, {"n": 2, "block": 0}, "block is 0"),
        (blocks.sample, {"n": 1.5, "block": 1}, "n is 1.5; it must be a whole number"),
        (particles.sample, {"n": 0}, "n is 0"),
        (particles.sample, {"n": 2, "ess": 1.1}, "ess is 1.1"),
    ],
)
def test_bad_options_are_sentences(sample, options, sentence):
    decoder = standing_at(Uniform(2, 3), [0, 1])
    with pytest.raises(ValueError, match=sentence):
        sample(decoder, Values(), **{"length": 3, **options}, rng=TorchRng(0))
    assert decoder.lengths.tolist() == [2]


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_verifier_must_be_one():
    with refused("verifier"):
        rejection.sample(standing_at(Uniform(2, 3), [0]), object(), length=3, rng=TorchRng(0))


def test_laws_have_bad_options_too():
    p = Table.of(Uniform(2, 2))
    for call in (
        lambda: best_of_n.law(p, Values(), 0),
        lambda: blocks.law(p, Values(), 1, 0),
        lambda: blocks.law(p, Values(), 0, 1),
        lambda: tokenwise.law(p, Values(), threshold=2.0),
    ):
        with pytest.raises(ValueError, match="is 0; it must be at least 1|threshold is 2"):
            call()


def test_totals_of_a_ledger():
    costs = Costs.empty(2, torch.device("cpu"))
    costs.generated += torch.tensor([3, 4])
    costs.forward_passes = 5
    totals = costs.totals()
    assert (totals["generated"], totals["erased"], totals["forward_passes"]) == (7, 0, 5)
