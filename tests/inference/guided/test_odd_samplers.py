"""Samplers at extremes: no nan, no run without end, and a sentence for what cannot be used.

The run-time shape checks are off here, as they are for a user.
"""

import decimal
import math

import numpy as np
import pytest
import torch
from tests.support.refusals import refused
from tests.support.toy_guided import ALGORITHMS, Noisy, Values, ledger_of, standing_at

from triptych.core.decoders import Prefixes, RecomputingDecoder
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.chains import gibbs, parallel
from triptych.inference.chains.sequences import positions_of, uniform_on
from triptych.inference.chains.spins import SpinGibbs, colours, split
from triptych.inference.guided import (
    ancestral,
    backtracking,
    best_of_n,
    blocks,
    particles,
    rejection,
    tokenwise,
    vgb,
)
from triptych.inference.guided.result import Reason
from triptych.inference.guided.transforms import argmax, compose, nucleus, temperature, top_k
from triptych.structures.ising import Ising
from triptych.structures.uniform import Uniform

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

EVERY = ALGORITHMS
INF, NAN = math.inf, math.nan


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def applied(transform, *probs, dtype=torch.float64):
    return transform(torch.tensor([probs], dtype=torch.float64).log().to(dtype))[0].exp().tolist()


# ------------------------------------------------------------------------------------ transforms


@pytest.mark.parametrize("p", [1e-12, 1e-13, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_tiny_nucleus_is_the_likeliest_token(p, dtype):
    assert applied(nucleus(p), 0.3, 0.5, 0.2, dtype=dtype) == [0, 1, 0]
    assert applied(nucleus(p), 0.4, 0.4, 0.2, dtype=dtype) == [1, 0, 0]


def powered(probs, degree):
    """p^(1/T), normalised, in decimal arithmetic of 400 digits and any exponent."""
    with decimal.localcontext() as context:
        context.prec, context.Emin, context.Emax = 400, -(10**17), 10**17
        context.traps[decimal.Underflow] = False
        logs = [decimal.Decimal(p).ln() if p else None for p in probs]
        most = max(log for log in logs if log is not None)
        if degree == INF:
            weights = [decimal.Decimal(int(log is not None)) for log in logs]
        else:
            powers = [log and (log - most) / decimal.Decimal(degree) for log in logs]
            cold = -(10**9)  # its exponential is 0 in every float
            weights = [
                decimal.Decimal(0) if x is None or x < cold else x.exp()
                for log, x in zip(logs, powers, strict=True)
            ]
            weights = [
                decimal.Decimal(1) if log == most else weight
                for log, weight in zip(logs, weights, strict=True)
            ]
        return [float(weight / sum(weights)) for weight in weights]


DEGREES = [5e-324, 1e-310, 1e-20, 9e-4, 1e-3, 0.5, 1.0, 7.0, 1e30, 2e30, 1e308, INF]


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize(
    "probs",
    [(0.5, 0.25, 0.25), (0.75, 0.0, 0.25), (0.25, 0.25, 0.5), (1.0,), (1 / 128,) * 128],
    ids=["half", "zero", "last", "one", "many"],
)
def test_every_temperature_has_its_power(degree, probs):
    wanted = powered(probs, degree)
    # log p is right to 1e-16, and a division by T leaves that relative error in an exponent that
    # matters only below 745: 1e-13 in all. In single precision log p is right to 1e-7, and is
    # divided by 1e-3 at least before 1/T is so large that only equal tokens are left.
    assert applied(temperature(degree), *probs) == pytest.approx(wanted, abs=1e-12)
    single = applied(temperature(degree), *probs, dtype=torch.float32)
    assert single == pytest.approx(wanted, abs=1e-4)


def test_limits_of_temperature_by_hand():
    assert applied(temperature(INF), 0.75, 0.0, 0.25) == pytest.approx([0.5, 0, 0.5])
    assert applied(temperature(1e-310), 0.4, 0.4, 0.2) == pytest.approx([0.5, 0.5, 0])
    assert applied(temperature(0.0), 0.4, 0.4, 0.2) == [1, 0, 0]  # argmax: the smallest id


@pytest.mark.parametrize("k", [3, 2**31, 2**63, 2**70, np.int64(9)])
def test_top_k_of_more_than_all_is_all(k):
    assert applied(top_k(k), 0.2, 0.5, 0.3) == pytest.approx([0.2, 0.5, 0.3])


def test_numbers_of_numpy_make_the_same_transforms():
    law = (0.5, 0.3, 0.2)
    assert applied(top_k(np.int32(2)), *law) == applied(top_k(2), *law)
    assert applied(nucleus(np.float64(0.6)), *law) == applied(nucleus(0.6), *law)
    assert applied(temperature(np.float64(0.5)), *law) == applied(temperature(0.5), *law)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: temperature(-1e-9), "temperature is -1e-09; it must be at least 0"),
        (lambda: temperature(-INF), "temperature is -inf"),
        (lambda: temperature("hot"), "temperature is 'hot'; it must be a number"),
        (lambda: temperature(None), "temperature is None"),
        (lambda: temperature(torch.ones(2)), "temperature is a tensor of shape"),
        (lambda: temperature(10**400), "temperature is beyond the range of floats"),
        (lambda: top_k(2.5), "k is 2.5; it must be a whole number"),
        (lambda: top_k(NAN), "k is nan"),
        (lambda: top_k(-(2**70)), "at least 1"),
        (lambda: top_k(True), "k is True"),
        (lambda: nucleus(-1e-300), "p is -1e-300; it must be a probability"),
        (lambda: nucleus(INF), "p is inf"),
        (lambda: nucleus("most"), "p is 'most'"),
        (lambda: compose(argmax, 0.9), r"transforms\[1\] is 0.9; it must be a function"),
    ],
)
def test_transforms_that_make_no_sense_are_refused_when_they_are_made(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()


OURS = {
    "cool": temperature(0.5),
    "cold": temperature(1e-20),
    "hot": temperature(INF),
    "top": top_k(2),
    "nucleus": nucleus(0.6),
    "all": nucleus(1.0),
    "argmax": argmax,
    "both": compose(temperature(0.5), nucleus(0.9)),
    "none": compose(),
}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (f64([0.5, 0.5]), "log_probs gives no law in row 0: the exponentials sum to 3.29744"),
        (f64([0.0, -INF], [NAN, 0.0]), "no law in row 1: the exponentials sum to nan"),
        (f64([-INF, -INF]), "sum to 0"),
        (f64([INF, 0.0]), "sum to inf"),
        (torch.zeros(2, 0), r"shape \(2, 0\); it needs one column for every token"),
        (torch.tensor(0.5), r"shape \(\)"),
        ("law", "log_probs is 'law'"),
        (torch.zeros(1, 1, dtype=torch.complex64), "log_probs has dtype torch.complex64"),
    ],
)
def test_transforms_refuse_what_is_no_law(name, given, sentence):
    with pytest.raises(UserError, match=sentence):
        OURS[name](given)


@pytest.mark.parametrize("name", OURS)
def test_transforms_of_lists_and_of_no_rows(name):
    law = np.log([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    want = OURS[name](torch.tensor(law))
    assert torch.equal(OURS[name](law), want)
    assert torch.equal(OURS[name](law.tolist()), want)
    assert OURS[name](torch.zeros(0, 3)).shape == (0, 3)
    torch.testing.assert_close(want.exp().sum(-1), torch.ones(2).double())


# ---------------------------------------------------------------------- the laws of the model


class Said(Prefixes):
    """A decoder whose law after two tokens is what it is told to answer."""

    def __init__(self, answer, batch=2):
        super().__init__(batch, 3, None, torch.device("cpu"))
        self.answer = answer

    def next_log_probs(self, rows=None):
        rows = self._asked(rows)
        good = torch.full((len(rows), 3), 1 / 3, dtype=torch.float64).log()
        return self.answer(good) if (self.lengths[rows] == 2).any() else good

    def fork(self, rows):
        return self._copy_rows(rows)


def filled(value):
    return lambda law: torch.full_like(law, value)


NO_LAWS = {
    "logits": (filled(0.3), r"Said gives no law after \[.*\] \(row [01]\).* sum to 4.0"),
    "nan": (filled(NAN), "sum to nan"),
    "nothing": (filled(-INF), "sum to 0"),
    "infinite": (filled(INF), "sum to inf"),
    "columns": (lambda law: law[:, :2], r"Said answered .* shape \(\d, 2\).* of shape \(\d, 3\)"),
    "one row": (lambda law: law[0], r"answered torch.float64 of shape \(3,\)"),
    "no tensor": (lambda law: law.tolist(), "answered a list"),
    "whole numbers": (lambda law: torch.zeros(law.shape).long(), "answered torch.int64"),
    "elsewhere": (lambda law: law.to("meta"), "on meta; it must answer .* on cpu"),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("fault", NO_LAWS)
def test_every_algorithm_refuses_a_model_without_laws(name, fault):
    sample, options = EVERY[name]
    answer, sentence = NO_LAWS[fault]
    with pytest.raises(UserError, match=sentence):
        sample(Said(answer), Values(), **options, length=4, rng=TorchRng(0))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("fault", NO_LAWS)
def test_every_algorithm_refuses_a_transform_without_laws(name, fault):
    """A transform of ours would turn logits into a law: those of the model are seen first."""
    sample, options = EVERY[name]
    answer, sentence = NO_LAWS[fault]
    for transform in (answer, compose(nucleus(0.9), answer)):
        with pytest.raises(UserError, match=sentence.replace("Said", "the transform")):
            sample(
                Said(lambda x: x),
                Values(),
                **options,
                length=4,
                transform=transform,
                rng=TorchRng(0),
            )
    if fault in ("logits", "nan"):
        with pytest.raises(UserError, match=sentence):
            sample(Said(answer), Values(), **options, length=4, transform=top_k(3), rng=TorchRng(0))


class LogitsAfterOne:
    """Fair bits, but no law after a prefix that begins with 1."""

    vocab_size = 2

    def next_token_log_probs(self, prefix):
        law = torch.full((len(prefix), 2), 0.5, dtype=torch.float64).log()
        return law + 1.0 * (prefix[:, :1] == 1)


@pytest.mark.parametrize("name", EVERY)
def test_the_row_without_a_law_is_named_and_not_the_first(name):
    sample, options = EVERY[name]
    decoder = standing_at(LogitsAfterOne(), [0, 0], [1, 0], [0, 1])
    with refused("whose"):
        sample(decoder, Values(), **options, length=4, rng=TorchRng(0))


class TwoColumns:
    """A model of three tokens that answers for two."""

    vocab_size = 3

    def next_token_log_probs(self, prefix):
        return torch.full((len(prefix), 2), 0.5, dtype=torch.float64).log()


@pytest.mark.parametrize("name", EVERY)
def test_a_model_with_too_few_columns_is_refused(name):
    sample, options = EVERY[name]
    with refused("prefix"):
        sample(RecomputingDecoder(TwoColumns(), 2), Values(), **options, length=3, rng=TorchRng(0))


@pytest.mark.parametrize("name", EVERY)
def test_laws_in_single_precision_are_laws(name):
    sample, options = EVERY[name]
    result = sample(
        Said(lambda x: x.float()),
        Values(),
        **options,
        length=4,
        transform=top_k(2),
        rng=TorchRng(0),
    )
    assert result.complete.all()


# ------------------------------------------------------------------------- options of a run


LENGTHS = [2.5, 3.0, INF, NAN, 1e308, "3", None, True, -1, 2**31, 2**70, [3], [3, 2.5], [3, -1], 1j]


@pytest.mark.parametrize("name", EVERY)
def test_lengths_that_are_none(name):
    sample, options = EVERY[name]
    for length in LENGTHS:
        decoder = Said(lambda x: x)
        with refused("length"):
            sample(decoder, Values(), **options, length=length, rng=TorchRng(0))
        assert decoder.lengths.tolist() == [0, 0]


@pytest.mark.parametrize("name", EVERY)
def test_end_tokens_that_are_none(name):
    sample, options = EVERY[name]
    for end in (0.5, 1.0, NAN, -1, 3, "a", True, 2**70, [0.5], [3], [[1]], {1: 1}):
        with refused("end_token"):
            sample(Said(lambda x: x), Values(), **options, length=3, end_token=end, rng=TorchRng(0))


COUNTS = {
    "backtracking": ("quota", "stride", "into_prompt"),
    "rejection": ("attempts",),
    "tokenwise value": ("tries",),
    "best of n": ("n",),
    "blocks": ("block", "n"),
    "particles": ("n",),
    "adaptive": ("n", "tries", "estimates"),
    "vgb": ("steps", "restarts", "candidates"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_that_are_none(name):
    sample, options = EVERY[name]
    for option in COUNTS[name]:
        for count in (2.5, 2.0, NAN, INF, "2", -1, True, [2], 1j):
            given = {**options, option: count}
            with pytest.raises(UserError, match=f"{option} is "):
                sample(Said(lambda x: x), Values(), **given, length=3, rng=TorchRng(0))


@pytest.mark.parametrize("name", COUNTS)
def test_huge_counts_are_a_limit_or_refused(name):
    """Nothing is refused here and n alone costs memory."""
    sample, options = EVERY[name]
    for option in COUNTS[name]:
        for count in (2**40, 2**62, 2**63, 2**80):
            given = {**options, option: count, "length": 3, "rng": TorchRng(0)}
            if option == "n" or count > 2**62:
                with pytest.raises(UserError, match=f"{option} is {count}"):
                    sample(Said(lambda x: x), Values(), **given)
            else:
                assert sample(Said(lambda x: x), Values(), **given).complete.all()


@pytest.mark.parametrize("name", EVERY)
def test_numbers_of_numpy_draw_the_same(name):
    sample, options = EVERY[name]
    lm = Table.random(3, 5, seed=0)

    def drawn(whole, real):
        given = {
            key: whole(value)
            if type(value) is int
            else real(value)
            if type(value) is float
            else value
            for key, value in {**options, "length": 5, "end_token": 2}.items()
        }
        decoder = standing_at(lm, [0], [], [1, 1])
        return sample(decoder, Noisy(), **given, record=True, rng=TorchRng(7))

    plain = drawn(int, float)
    for whole, real in ((np.int64, np.float64), (np.uint8, float), (torch.tensor, torch.tensor)):
        if real is torch.tensor:
            real = lambda value: torch.tensor(value, dtype=torch.float64)  # noqa: E731
        other = drawn(whole, real)
        assert other.tokens.tolist() == plain.tokens.tolist()
        assert other.trace == plain.trace
        assert ledger_of(other) == ledger_of(plain)


def test_parts_that_are_none():
    table = Table.random(2, 3, seed=0)
    good = {"length": 3, "rng": TorchRng(0)}
    with refused("decoder"):
        ancestral.sample(table, **good)
    with refused("rng"):
        ancestral.sample(RecomputingDecoder(table, 1), length=3, rng=None)
    with refused("transform"):
        ancestral.sample(RecomputingDecoder(table, 1), transform=0.9, **good)
    with refused("record"):
        ancestral.sample(RecomputingDecoder(table, 1), record="yes", **good)
    with refused("decoder"):
        ancestral.sample(RecomputingDecoder(table, 1).fork(torch.zeros(0).long()), **good)
    with refused("outcome"):
        vgb.sample(RecomputingDecoder(table, 1), Values(), steps=1, outcome=max, **good)
    for flag in ("lazy", "remember", "share"):
        with pytest.raises(UserError, match=f"{flag} is 2; it must be True or False"):
            vgb.sample(RecomputingDecoder(table, 1), Values(), steps=1, **{flag: 2}, **good)
    for flag in ("redo_argmax", "verify_redone"):
        with pytest.raises(UserError, match=f"{flag} is None"):
            backtracking.sample(
                RecomputingDecoder(table, 1), Values(), quota=1, stride=1, **{flag: None}, **good
            )
    with refused("returns"):
        vgb.sample(RecomputingDecoder(table, 1), Values(), steps=1, returns=3, **good)


def test_n_is_refused_before_memory_runs_out():
    decoder = standing_at(Uniform(2, 3), [0], [1])
    with refused("n"):
        best_of_n.sample(decoder, Values(), length=3, n=2**24, rng=TorchRng(0))
    with refused("steps"):
        vgb.sample(decoder, Values(), length=3, steps=10**8, returns="uniform", rng=TorchRng(0))


# ------------------------------------------------------------------------------- runs that end


class Never:
    """Refuses everything."""

    def log_value(self, prefix):
        return torch.full((len(prefix),), -INF, dtype=torch.float64)


@pytest.mark.parametrize("accept", ["threshold", "value"])
def test_a_token_that_is_never_accepted_ends_the_row(monkeypatch, accept):
    """Standing at 1 everything is refused; the other row goes on. A fair bit a draw."""
    assert tokenwise.TRIES == 1000  # a second at most
    monkeypatch.setattr(tokenwise, "TRIES", 7)

    class NothingAfterOne:
        def log_value(self, prefix):
            return torch.where(prefix[:, 0] == 1, -INF, 0.0).double()

    def run(**tries):
        decoder = standing_at(Uniform(2, 3), [1], [0])
        return tokenwise.sample(
            decoder, NothingAfterOne(), length=3, accept=accept, rng=TorchRng(0), **tries
        )

    for tries in ({}, {"tries": None}, {"tries": 7}):
        result = run(**tries)
        assert result.reasons == (Reason.TRIES, None)
        assert result.complete.tolist() == [False, True]
        assert result.completions()[0] == ()
        assert ledger_of(result) == [(7, 7, 7, 7), (2, 2, 0, 2)]


def test_a_string_that_is_never_accepted_ends_the_row(monkeypatch):
    assert rejection.ATTEMPTS >= 10_000
    monkeypatch.setattr(rejection, "ATTEMPTS", 5)
    for attempts in ({}, {"attempts": None}, {"attempts": 5}):
        decoder = standing_at(Uniform(2, 3), [1])
        result = rejection.sample(decoder, Never(), length=3, rng=TorchRng(0), **attempts)
        assert result.info.attempts.tolist() == [5]
        assert result.accepted.tolist() == result.complete.tolist() == [False]
        assert result.reasons == (Reason.ATTEMPTS,)
        assert ledger_of(result) == [(10, 10, 10, 5)]


# ------------------------------------------------------------------------------ extreme values


class Extreme:
    """log V from one end of the floats to the other, by the last token."""

    def __init__(self, *values):
        self.values = f64(*values)

    def log_value(self, prefix):
        return self.values[prefix[:, -1]]


@pytest.mark.parametrize("values", [(1e200, -1.7e308), (1e200, -INF), (-1.7e308, -1.7e308)])
@pytest.mark.parametrize("ess", [0.0, 0.5, 1.0])
def test_particles_of_extreme_weight(values, ess):
    decoder = RecomputingDecoder(Uniform(2, 6), 4)
    result = particles.sample(decoder, Extreme(*values), length=6, n=3, ess=ess, rng=TorchRng(0))
    for note in ("log_normaliser", "smallest_ess"):
        assert not getattr(result.info, note).isnan().any()


@pytest.mark.parametrize("name", ["best of n", "blocks", "particles", "vgb"])
def test_values_beyond_all_bounds_are_refused(name):
    sample, options = EVERY[name]
    decoder = RecomputingDecoder(Uniform(2, 3), 1)
    with pytest.raises(RuntimeError, match=r"Extreme says log V = 1e\+201"):
        sample(decoder, Extreme(1e201, 1e201), **options, length=3, rng=TorchRng(0))


@pytest.mark.parametrize("answer", [lambda x: x + 0j, lambda x: x.to("meta")])
def test_values_that_are_not_real_or_not_here(answer):
    class Odd:
        def log_value(self, prefix):
            return answer(torch.zeros(len(prefix), dtype=torch.float64))

    decoder = RecomputingDecoder(Uniform(2, 3), 1)
    with pytest.raises(RuntimeError, match="Odd must answer one number a prefix, 1 here; it gave"):
        tokenwise.sample(decoder, Odd(), length=3, rng=TorchRng(0))


# ------------------------------------------------------------------------ laws in closed form


class Broken:
    def __init__(self, answer):
        self.answer = answer

    def log_value(self, prefix):
        return self.answer(torch.zeros(len(prefix), dtype=torch.float64))


CLOSED = {
    "best of n": lambda v, p: best_of_n.law(p, v, 2),
    "blocks": lambda v, p: blocks.law(p, v, 1, 2),
    "tokenwise": lambda v, p: tokenwise.law(p, v),
    "particles": lambda v, p: particles.law(p, v, 2, 2),
    "backtracking": lambda v, p: backtracking.law(p, v, 2, 1, 1),
    "walk": lambda v, p: vgb.stationary_weights(p, v),
}


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda x: x + NAN, "Broken says log V = nan of "),
        (lambda x: x + INF, "Broken says log V = inf of "),
        (lambda x: x[:, None], "Broken must answer one number a prefix"),
        (lambda x: None, "it gave a NoneType"),
    ],
)
def test_laws_refuse_values_that_are_none(name, answer, sentence):
    with pytest.raises(UserError, match=sentence):
        CLOSED[name](Broken(answer), Table.random(2, 2, seed=0))


class Logits:
    vocab_size, length = 2, 2

    def next_token_log_probs(self, prefix):
        return torch.ones(len(prefix), 2, dtype=torch.float64)


@pytest.mark.parametrize("name", CLOSED)
def test_laws_refuse_models_that_are_none(name):
    with pytest.raises(UserError, match=r"Logits gives no law after \[\]|lm is a Logits"):
        CLOSED[name](Values(), Logits())


def test_laws_with_too_many_paths_end():
    with refused("n"):
        particles.law(Uniform(2, 9), Values(), 9, 99)
    with refused("n"):
        best_of_n.law(Table.of(Uniform(2, 2)), Values(), 2**16 + 1)
    with pytest.raises(UserError, match="too large to list"):
        vgb.nodes(2, 64)
    with pytest.raises(UserError, match="too large to list"):
        vgb.nodes(1, 10**9)
    assert len(vgb.nodes(np.int64(3), np.int64(4))) == 1 + 3 + 9 + 27 + 81


def test_too_many_paths_are_counted(monkeypatch):
    monkeypatch.setattr("triptych.inference.guided.options.MAX_PATHS", 30)
    with pytest.raises(UserError, match="more than 30 paths"):
        particles.law(Uniform(2, 5), Noisy(), 5, 2)
    with pytest.raises(UserError, match="more than 30 paths"):
        backtracking.law(Uniform(2, 5), Noisy(), 5, 1, 1)


def test_a_long_string_of_one_token_is_no_deep_recursion():
    """The law of a model that can write one string alone, 1200 tokens long."""
    lm = Uniform(1, 1200)
    assert backtracking.law(lm, Values(), 1200, 0, 1) == {(0,) * 1200: 1.0}


def test_the_law_of_particles_with_values_beyond_exp():
    """One fair bit, log V = 800 and 800 + log 2: the law of V = 1 and 2, P(1) = 7/12."""
    law = particles.law(Uniform(2, 1), Extreme(800.0, 800.0 + math.log(2)), 1, 2)
    assert law == pytest.approx({(0,): 5 / 12, (1,): 7 / 12}, rel=1e-12)


def test_a_walk_with_nowhere_to_go_says_so():
    with refused("prefix"):
        vgb.walk_step((), Uniform(2, 2), Never(), 2, TorchRng(0))
    with refused("prefix"):
        vgb.step([[0, 1, 1]], Uniform(2, 3), Values(), 2, TorchRng(0))
    with pytest.raises(UserError, match="a token of the node is 0.5"):
        vgb.walk_step((0.5,), Uniform(2, 2), Values(), 2, TorchRng(0))


# ------------------------------------------------------------------------------------- chains


def chains(dtype):
    return torch.tensor([[0, 1, 1], [1, 0, 1], [0, 0, 0]], dtype=dtype)


def stepped(name, tokens):
    table, rng = Table.random(2, 3, seed=0), TorchRng(3)
    masks = MaskLaw.of_size(3, 2)
    spins = SpinGibbs(Ising.chain(3, 0.4).coupling, Ising.chain(3, 0.4, 0.1).field)
    hidden = torch.tensor([[True, True, False]] * 3)
    looking = MaskLaw.looking(3, [[0, 1], [1, 2]], lambda x: x[:, :2].double())
    return {
        "in turn": lambda: gibbs.step(table, tokens, masks, rng, draw="in turn"),
        "jointly": lambda: gibbs.step(table, tokens, masks, rng, draw="jointly"),
        "adaptive": lambda: gibbs.step(table, tokens, looking, rng),
        "ising": lambda: gibbs.step(Ising.chain(3, 0.4), tokens, masks, rng, draw="jointly"),
        "block": lambda: parallel.block_step(table, tokens, masks, rng),
        "independent": lambda: parallel.independent_step(table, tokens, rng),
        "unmask": lambda: parallel.unmask(table, tokens, hidden, rng, schedule=[1, 1]),
        "sweep": lambda: spins.sweep(tokens, sweeps=2, rng=rng),
        "fast": lambda: spins.fast_sweep(tokens, sweeps=2, rng=rng),
        "run": lambda: (
            gibbs.run(lambda x, r: gibbs.step(table, x, masks, r), tokens, 3, rng).tokens
        ),
    }[name]()


STEPS = ["in turn", "jointly", "adaptive", "ising", "block", "independent"]
STEPS += ["unmask", "sweep", "fast", "run"]


@pytest.mark.parametrize("name", STEPS)
def test_chains_of_other_integers_move_the_same(name):
    want = stepped(name, chains(torch.int64))
    for dtype in (torch.int32, torch.int16, torch.uint8):
        assert stepped(name, chains(dtype)).tolist() == want.tolist()
    assert stepped(name, chains(torch.int64).numpy().astype(np.int16)).tolist() == want.tolist()
    assert stepped(name, chains(torch.int64).tolist()).tolist() == want.tolist()


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (torch.zeros(2, 3), "dtype torch.float32"),
        (torch.zeros(3).long(), "2 dimensions"),
        ([[0, 1], [0]], "tokens is"),
        ("011", "tokens is '011'"),
        (None, "tokens is None"),
        ([[NAN, 0, 1]], "tokens holds .*nan.*; it must hold whole numbers"),
    ],
)
def test_chains_that_are_none(name, tokens, sentence):
    with pytest.raises(UserError, match=sentence):
        stepped(name, tokens)


@pytest.mark.parametrize("name", ["in turn", "jointly", "block", "independent", "unmask", "sweep"])
def test_chains_outside_the_vocabulary(name):
    tokens = torch.tensor([[0, 1, 7]] * 3)
    with refused("hidden"):
        stepped(name, tokens)


class Answering:
    """A masked oracle that changes the answers of a table."""

    vocab_size = 2

    def __init__(self, change):
        self.table, self.change = Table.random(2, 3, seed=0), change

    def masked_log_probs(self, tokens, hidden):
        return self.change(self.table.masked_log_probs(tokens, hidden))


class Joint(Answering):
    """The same for joint laws."""

    def block_log_probs(self, tokens, block):
        return self.change(gibbs.block_log_probs(self.table, tokens, _hidden(tokens, block)))


def _hidden(tokens, block):
    return torch.zeros_like(tokens, dtype=torch.bool).index_fill(1, torch.tensor(block), True)


WRONG = {
    "columns": (lambda x: torch.cat([x, x], -1), "of shape .*; it must answer log-probabilities"),
    "logits": (lambda x: x + 1, "gives no law .* sum to 2.718"),
    "nan": (lambda x: x + NAN, "sum to nan"),
    "list": (lambda x: x.tolist(), "answered a list"),
    "meta": (lambda x: x.to("meta"), "on meta"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("oracle", [Answering, Joint])
@pytest.mark.parametrize("adaptive", [False, True])
def test_oracles_that_answer_something_else(wrong, oracle, adaptive):
    """Blocks that look at the sequence normalise what they weigh, and would hide it."""
    change, sentence = WRONG[wrong]
    tokens, rng = chains(torch.int64), TorchRng(0)
    masks = MaskLaw.of_size(3, 2)
    if adaptive:
        masks = MaskLaw.looking(3, [[0, 1], [1, 2]], lambda x: x[:, :2].double())
    asked = oracle(change)
    for draw in ("jointly",) if adaptive else ("jointly", "in turn"):
        with pytest.raises(UserError, match=f"{oracle.__name__} .*{sentence}"):
            gibbs.step(asked, tokens, masks, rng, draw=draw)
    with pytest.raises(UserError, match=sentence):
        parallel.block_step(asked, tokens, masks, rng)
    with pytest.raises(UserError, match=sentence):
        parallel.independent_step(asked, tokens, rng)
    hidden = torch.tensor([[True, True, False]] * 3)
    for order in ("random", "left to right", "confident position", "confident token"):
        with pytest.raises(UserError, match=sentence):
            parallel.unmask(asked, tokens, hidden, rng, schedule=[2], order=order)


def test_what_the_samplers_share_refuses_too():
    with refused("allowed"):
        uniform_on(torch.tensor([[True, False], [False, False]]))
    with refused("hidden"):
        positions_of(torch.tensor([[True, False], [True, True]]))
    assert positions_of(torch.zeros(0, 3).bool()).shape == (0, 0)
    with pytest.raises(UserError, match=r"confidence\[0, 1\] is nan"):
        parallel.most_confident(f64([0.1, NAN]), torch.ones(1, 2).bool(), 1)
    with refused("n"):
        parallel.most_confident(f64([0.1, 0.2]), torch.ones(1, 2).bool(), -1)
    for schedule in (3, "3", [1.5, 1.5], [2**70]):
        with refused("schedule"):
            parallel.unmask(
                Table.random(2, 3, seed=0), *parallel.blank(1, 3), TorchRng(0), schedule=schedule
            )
    with refused("chains"):
        parallel.blank(2**30, 2**10)
    with refused("hidden"):
        parallel.even_schedule(NAN, 1)
    with refused("hidden"):
        parallel.even_schedule(2**30, 2**29)
    with refused("masks"):
        gibbs.step(Table.random(2, 3, seed=0), chains(torch.int64), torch.eye(3), TorchRng(0))
    with refused("vocab_size"):
        gibbs.cost(MaskLaw.of_size(3, 1), 0)


def test_costs_beyond_all_floats():
    """Blocks of 40 of a billion tokens: 1e360 questions, but such a block is never drawn."""
    masks = MaskLaw.weighted(40, [[i] for i in range(40)] + [range(40)], [1.0] * 40 + [0.0])
    assert gibbs.cost(masks, 10**9, draw="jointly") == (pytest.approx(1.0), pytest.approx(1.0))


def test_a_run_of_chains_refuses():
    tokens, rng = chains(torch.int64), TorchRng(0)
    stay = lambda x, r: x  # noqa: E731
    with refused("step"):
        gibbs.run(lambda x, r: None, tokens, 2, rng)
    sizes = iter([2, 1, 1])
    with refused("before"):
        gibbs.run(stay, tokens, 1, rng, record={"half": lambda x: x[:, : next(sizes)]})
    with pytest.raises(UserError, match=r"record\['odd'\] says <object.*; it must be a tensor"):
        gibbs.run(stay, tokens, 1, rng, record={"odd": lambda x: object()})
    for option, sentence in (
        ({"steps": 2.5}, "steps is 2.5"),
        ({"every": 0}, "every is 0"),
        ({"budget": NAN}, "budget is nan"),
        ({"step": 3}, "step is 3; it must be a function"),
        ({"record": {"odd": 3}}, r"record\['odd'\] is 3; it must be a function"),
    ):
        with pytest.raises(UserError, match=sentence):
            gibbs.run(**({"step": stay, "tokens": tokens, "steps": 1, "rng": rng} | option))
    found = gibbs.run(
        stay, tokens, np.int64(4), rng, every=np.int64(2), record={"one": lambda x: 1}
    )
    assert found.steps == [0, 2, 4]
    assert found.values["one"].tolist() == [1, 1, 1]


# -------------------------------------------------------------------------------------- spins


def test_spins_refuse():
    zeros = torch.zeros(2, 2).double()
    for pull in (1.1e4, 1e15, 1e308):
        with pytest.raises(
            UserError, match=r"at site 1 \|h\| \+ Σ \|J\| is .*; it must be at most"
        ):
            SpinGibbs(zeros, f64(0.0, pull))
    with pytest.raises(UserError, match=r"field\[1\] is nan"):
        SpinGibbs(zeros, [0.0, NAN])
    pair = SpinGibbs([[0.0, 0.5], [0.5, 0.0]], np.array([0.0, 0.1]))
    tokens, rng = torch.zeros(3, 2).long(), TorchRng(0)
    with refused("block"):
        pair.step(tokens, [0, 1], rng)
    with refused("block"):
        pair.step(tokens, [2], rng)
    for sweep in (pair.sweep, pair.fast_sweep):
        for sweeps in (2.5, NAN, -1, "2", 2**63, 2**40):
            with refused("sweeps"):
                sweep(tokens, sweeps=sweeps, rng=rng)
        with refused("rng"):
            sweep(tokens, sweeps=1, rng=None)
    for probs in (f64(1.1), f64(-0.1), f64(NAN)):
        with pytest.raises(UserError, match="probs"):
            split(probs)
    with refused("coupling"):
        colours(torch.zeros(2, 3).double())


def test_strong_spins_are_certain():
    """The largest pull that is taken: p(x_0 = 1) = sigmoid(2e4) = 1 to all digits."""
    strong = SpinGibbs(torch.zeros(1, 1).double(), f64(1e4))
    tokens = torch.zeros(50, 1).long()
    assert strong.conditional_log_probs(tokens, [0])[0, 0].tolist() == [-2e4, 0.0]
    for sweep in (strong.sweep, strong.fast_sweep):
        assert sweep(tokens, sweeps=1, rng=TorchRng(0)).all()
