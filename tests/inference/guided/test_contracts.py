"""What every guided algorithm keeps: results, reasons, budgets, costs, decoders, end tokens, seeds.

Each test runs over the records that `algorithms()` finds, so a new algorithm is held to them too.
"""

import numpy as np
import pytest
import torch
from tests.support.grids import pairs, some
from tests.support.refusals import refused
from tests.support.toy_guided import ALGORITHMS, FirstDraws, Noisy, Values, ledger_of, standing_at

from triptych.core.counting import Counted
from triptych.core.decoders import Prefixes, RecomputingDecoder, is_end
from triptych.core.enumeration import exact_law
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.core.validation import UserError
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
from triptych.inference.guided.generation import Budget, Generation
from triptych.inference.guided.result import Reason
from triptych.models.cache import CachedDecoder
from triptych.models.language_models import CausalLM
from triptych.models.transformer import Shape, Transformer
from triptych.structures.uniform import Uniform

PROMPTS = [[], [0, 1], [2], [1, 1, 0, 2, 0], [2, 0, 1, 1], [2]]
TABLE = Table.random(3, 5, seed=0)
each = pytest.mark.parametrize("name", ALGORITHMS)


class Never:
    def log_value(self, prefix):
        return torch.full((len(prefix),), -torch.inf, dtype=torch.float64)


def run(name, decoder=None, verifier=None, **options):
    sample, own = ALGORITHMS[name]
    decoder = standing_at(TABLE, *PROMPTS) if decoder is None else decoder
    options = {"length": 5, "end_token": 2, "rng": TorchRng(3), **own, **options}
    return sample(decoder, Noisy() if verifier is None else verifier, **options)


# ------------------------------------------------------------------- complete, accepted, reasons


@each
@pytest.mark.parametrize("verifier", [Noisy(), Never(), Values()], ids=["noisy", "never", "always"])
def test_a_row_that_is_not_complete_has_a_reason_and_is_not_accepted(name, verifier):
    result = run(name, verifier=verifier)
    assert [why is None for why in result.reasons] == result.complete.tolist()
    assert (result.accepted <= result.verified).all()
    assert (result.verified <= result.complete).all()
    if verifier.__class__ is Never:
        assert not result.accepted.any()
    for text, prompt, complete in zip(
        result.completions(), PROMPTS, result.complete.tolist(), strict=True
    ):
        ended = text[-1:] == (2,) or len(prompt) + len(text) == 5
        assert ended or not complete


class Remembering:
    """Noisy, and keeps what it answered to each prefix."""

    def __init__(self):
        self.said = {}

    def log_value(self, prefix):
        values = Noisy().log_value(prefix)
        self.said |= dict(zip(map(tuple, prefix.tolist()), values.exp().tolist(), strict=True))
        return values


@each
def test_accepted_is_what_the_verifier_said_of_the_finished_row(name):
    """By the threshold of the algorithm, or V > 0; never of a row that it was not asked about."""
    verifier = Remembering()
    result = run(name, verifier=verifier)
    least = {"rejection": 0.7, "backtracking": 0.5, "tokenwise threshold": 0.4}.get(name, 1e-300)
    for row, prompt in enumerate(PROMPTS):
        string = (*prompt, *result.completions()[row])
        asked = string in verifier.said and bool(result.complete[row])
        if result.verified[row]:
            assert asked
            assert bool(result.accepted[row]) == (verifier.said[string] >= least)
        if name not in ("ancestral", "backtracking", "vgb") and len(string) > len(prompt):
            assert bool(result.verified[row]) == asked
    if name == "ancestral":
        assert not result.verified.any()


@pytest.mark.usefixtures("unchecked_shapes")
def test_without_a_verifier_nothing_is_accepted():
    result = tokenwise.sample(RecomputingDecoder(Uniform(2, 3), 2), None, length=3, rng=0)
    assert result.complete.all()
    assert not result.verified.any()


def test_a_redone_token_that_was_not_verified_is_not_accepted():
    """11 is refused and redone as 0, 0, which nobody verifies; a second row is accepted."""
    decoder = standing_at(Uniform(2, 2), [], [1])
    result = backtracking.sample(
        decoder, Values(_11=0.0, _10=0.9), length=2, quota=1, stride=2, rng=FirstDraws(1, 0, 1)
    )
    assert result.completions() == [(0, 0), (0,)]
    assert result.verified.tolist() == result.accepted.tolist() == [False, True]


def test_what_was_said_of_a_row_holds_until_its_tokens_change():
    """Asked at 0, then 1 is drawn: nothing is known of 01; asked again, it is accepted."""
    decoder = RecomputingDecoder(Uniform(2, 2), 1)
    run, row = Generation(decoder, Values(_01=0.3), FirstDraws(0, 1), 2), torch.tensor([0])
    run.draw(row)
    run.log_values(row)
    run.draw(row)
    assert run.result().verified.tolist() == [False]
    run.log_values(row)
    result = run.result()
    assert result.complete.tolist() == result.accepted.tolist() == [True]
    run.smallest = -1.0  # log 0.3 is below
    assert run.result().accepted.tolist() == [False]


def test_reasons_by_hand():
    bits = Uniform(2, 3)
    walk = vgb.sample(RecomputingDecoder(bits, 1), Never(), length=3, steps=5, rng=0)
    assert walk.reasons == (Reason.NOTHING,) == ("nothing can follow",)
    walk = vgb.sample(RecomputingDecoder(bits, 1), Values(), length=3, steps=1, rng=0)
    assert walk.reasons == (Reason.STEPS,)
    died = particles.sample(RecomputingDecoder(bits, 1), Never(), length=3, n=2, rng=0)
    assert died.reasons == (Reason.PARTICLES,)

    def left(decoder):
        return Generation(decoder, None, 0, 3).result()

    assert left(RecomputingDecoder(bits, 1)).reasons == (Reason.LEFT,)


def test_a_refusing_verifier_ends_soon():
    """Nothing runs forever: 1000 draws of one token."""
    result = tokenwise.sample(RecomputingDecoder(Uniform(2, 3), 1), Never(), length=3, rng=0)
    assert result.reasons == (Reason.TRIES,)
    assert int(result.costs.generated) == tokenwise.TRIES == 1000


# --------------------------------------------------------------------------------------- budgets


@each
@pytest.mark.parametrize("tokens", some(2, [0, 3, 1, 7]))
def test_a_budget_of_tokens_is_kept_and_says_so(name, tokens):
    result = run(name, budget=Budget(tokens=tokens), end_token=None)
    assert (result.costs.generated <= tokens).all()
    free = run(name, end_token=None)
    for row, prompt in enumerate(PROMPTS):
        assert result.tokens[row, : len(prompt)].tolist() == prompt
        if free.costs.generated[row] <= tokens and tokens > 0:
            continue  # other draws than the free run's, but it may well come out
        if tokens == 0 and len(prompt) < 5:
            assert result.reasons[row] == Reason.TOKENS
            assert result.completions()[row] == ()
    assert [why is None for why in result.reasons] == result.complete.tolist()


@each
def test_a_budget_that_is_large_changes_nothing(name):
    free, kept = run(name), run(name, budget=Budget(10**6, 10**6, 1e6))
    assert free.tokens.tolist() == kept.tokens.tolist()
    assert ledger_of(free) == ledger_of(kept)
    assert free.reasons == kept.reasons


@each
def test_a_row_over_its_budget_stops_and_the_others_go_on(name):
    """Three tokens to go and one to go, with one candidate's worth of tokens for the second."""
    candidates = ALGORITHMS[name][1].get("n", 1)
    decoder = standing_at(TABLE, [0, 1], [2, 0, 1, 1])
    result = (
        run(name, decoder, Values(), budget=Budget(tokens=candidates), end_token=None, lazy=False)
        if name == "vgb"
        else run(name, decoder, Values(), budget=Budget(tokens=candidates), end_token=None)
    )
    assert result.complete.tolist() == [False, True]
    assert result.reasons == (Reason.TOKENS, None)


def test_a_budget_of_questions_by_hand():
    """Tokenwise, two questions: 1 is refused, 0 kept, and then the row is stopped at 0."""
    result = tokenwise.sample(
        RecomputingDecoder(Uniform(2, 3), 1),
        Values(_1=0.0),
        length=3,
        budget=Budget(verifier_calls=2),
        rng=FirstDraws(1, 0),
    )
    assert result.completions() == [(0,)]
    assert result.reasons == (Reason.QUESTIONS,) == ("verifier budget used up",)
    assert ledger_of(result) == [(2, 2, 1, 2)]


def test_what_a_stopped_row_keeps():
    """Rejection and best-of-n go back to the prompt; blocks keep what was chosen."""
    bits = Uniform(2, 4)
    for sample, options in ((rejection.sample, {}), (best_of_n.sample, {"n": 1})):
        result = sample(
            standing_at(bits, [1]), Values(), length=4, budget=Budget(tokens=2), rng=0, **options
        )
        assert result.tokens.tolist() == [[1]]
        assert ledger_of(result)[0][:3] == (2, 2, 2)
    result = blocks.sample(
        RecomputingDecoder(bits, 1),
        Values(_01=2.0),
        length=4,
        block=2,
        n=2,
        budget=Budget(tokens=6),
        rng=FirstDraws(0, 1, 1, 0, 0, 0),
    )
    assert result.completions() == [(0, 1)]
    assert result.info.log_value.exp().tolist() == pytest.approx([2.0])
    assert result.reasons == (Reason.TOKENS,)


@each
def test_no_time_is_no_token(name):
    result = run(name, budget=Budget(seconds=0.0))
    assert [why for why in result.reasons if why] == [Reason.TIME] * 5
    assert result.costs.generated.sum() == 0


@pytest.mark.usefixtures("unchecked_shapes")
def test_budgets_that_are_none():
    for name in ("tokens", "verifier_calls", "seconds"):
        for value in (-1, "3", float("nan")):
            with pytest.raises(UserError, match=f"{name} is"):
                Budget(**{name: value})
    assert Budget(tokens=np.int64(3)).tokens == 3
    with refused("budget"):
        run("ancestral", budget=5)


# ----------------------------------------------------------------------------------------- costs


@each
def test_forward_passes_are_what_an_outside_counter_sees(name):
    """Rows of different lengths need a call each."""
    lm = Counted(TABLE)
    result = run(name, standing_at(lm, *PROMPTS))
    assert result.costs.forward_passes == lm.calls
    assert lm.calls >= 3


class FromStates:
    """A verifier that reads a network's states, and lets everything pass."""

    layer = None

    def log_values(self, asked):
        return asked.decoder.hidden_state(asked.at).sum(-1).double() * 0.0


@each
@pytest.mark.parametrize("verifier", [Noisy(), FromStates()], ids=["tokens", "states"])
def test_passes_of_a_network_are_counted_wherever_they_are_made(name, verifier, monkeypatch):
    lm = CausalLM(Transformer(Shape(4, 6, width=8, layers=1, heads=2), seed=0))
    decoder = CachedDecoder(lm, 3)
    decoder.extend(torch.tensor([[0, 1], [2, -1], [1, 1]]))
    runs = []
    inner = CachedDecoder._run_rows
    monkeypatch.setattr(
        CachedDecoder, "_run_rows", lambda self, *a: (runs.append(1), inner(self, *a))[1]
    )
    result = run(name, decoder, verifier, length=4, end_token=None)
    assert result.costs.forward_passes == len(runs) == decoder.passes > 0


def test_a_decoder_that_does_not_count_has_one_pass_a_question():
    class Plain(Prefixes):
        def next_log_probs(self, rows=None):
            rows = self._asked(rows)
            return torch.full((len(rows), 2), 0.5, dtype=torch.float64).log()

        def fork(self, rows):
            return self._copy_rows(rows)

    result = ancestral.sample(Plain(2, 2, None, "cpu"), length=3, rng=0)
    assert result.costs.forward_passes == 3


# -------------------------------------------------------------------------------------- decoders


@each
def test_a_used_decoder_is_refused_and_a_fork_is_not(name):
    decoder = standing_at(TABLE, [0], [])
    fork = decoder.fork(torch.tensor([0, 1]))
    first = run(name, decoder)
    with refused("decoder"):
        run(name, decoder)
    assert run(name, fork).completions() == first.completions()


def test_a_fork_of_a_used_decoder_goes_on_from_there():
    decoder = RecomputingDecoder(Uniform(2, 4), 2)
    half = ancestral.sample(decoder, length=2, rng=0)
    whole = ancestral.sample(decoder.fork(torch.tensor([0, 1])), length=4, rng=1)
    assert whole.tokens[:, :2].tolist() == half.tokens.tolist()
    assert whole.prompt_lengths.tolist() == [2, 2]


def test_a_decoder_that_was_refused_for_another_reason_may_be_used():
    decoder = RecomputingDecoder(Uniform(2, 3), 2)
    with refused("length"):
        ancestral.sample(decoder, length=-1, rng=0)
    with refused("n"):
        best_of_n.sample(decoder, Values(), length=3, n=2**24, rng=0)
    assert ancestral.sample(decoder, length=3, rng=0).complete.all()


# ------------------------------------------------------------------------------------ end tokens


@pytest.mark.parametrize(
    ("name", "ends"),
    pairs(ALGORITHMS, [[1, 2], (2, 1, 1), {1, 2}, np.array([1, 2]), torch.tensor([2, 1])]),
)
def test_any_of_several_end_tokens_ends_a_row(name, ends):
    result = run(name, end_token=ends)
    for text, prompt, complete in zip(
        result.completions(), PROMPTS, result.complete.tolist(), strict=True
    ):
        assert not {1, 2} & set(text[:-1])
        if complete:
            assert len(prompt) + len(text) == 5 or text[-1] in (1, 2)


@each
def test_one_end_token_may_stand_in_a_list_and_none_is_none(name):
    assert run(name, end_token=[2]).tokens.tolist() == run(name, end_token=2).tokens.tolist()
    assert run(name, end_token=[]).tokens.tolist() == run(name, end_token=None).tokens.tolist()


def test_a_walk_asks_the_outcome_about_strings_that_end():
    """Tokens 1 and 2 end a string; the value is asked about the others alone."""

    class Inside:
        def log_value(self, prefix):
            assert not (prefix > 0).any()
            assert prefix.shape[1] < 3
            return torch.zeros(len(prefix), dtype=torch.float64)

    class Ended:
        def log_value(self, prefix):
            assert ((prefix[:, -1] > 0) | torch.tensor(prefix.shape[1] == 3)).all()
            return torch.zeros(len(prefix), dtype=torch.float64)

    result = vgb.sample(
        RecomputingDecoder(Uniform(3, 3), 20),
        Inside(),
        length=3,
        steps=99,
        outcome=Ended(),
        end_token=[1, 2],
        rng=0,
    )
    assert result.accepted.all()


@pytest.mark.parametrize("name", ["backtracking", "particles"])
def test_laws_know_several_end_tokens(name, unchecked_shapes):
    """The recursion against the enumerated program; tokens 0 and 2 of three end a string."""
    p, options = Table.random(3, 2, seed=5), {"end_token": [0, 2]}
    module = {"backtracking": backtracking, "particles": particles}[name]
    own = {"quota": 1, "stride": 1} if name == "backtracking" else {"n": 2}

    def program(rng):
        decoder = RecomputingDecoder(p, 1)
        result = module.sample(decoder, Values(_10=0.0), length=2, **own, **options, rng=rng)
        return result.completions()[0] if result.complete[0] else None

    law = module.law(p, Values(_10=0.0), 2, *own.values(), **options)
    assert {x for x, q in law.items() if q > 0} == {(0,), (2,), (1, 1), (1, 2)}
    found = exact_law(program).probs
    found.pop(None, None)  # both particles died
    assert found == pytest.approx(law)


def test_is_end_by_hand():
    tokens = torch.tensor([[0, 1], [2, 3]])
    assert is_end(tokens, None).tolist() == [[False, False], [False, False]]
    assert is_end(tokens, 2).tolist() == [[False, False], [True, False]]
    assert is_end(tokens, (1, 2)).tolist() == [[False, True], [True, False]]


# ------------------------------------------------------------------------------------------ seeds


@each
def test_a_seed_stands_for_an_rng(name):
    assert run(name, rng=3).tokens.tolist() == run(name).tokens.tolist()


@pytest.mark.usefixtures("unchecked_shapes")
def test_one_step_needs_an_rng():
    with refused("rng"):
        vgb.step([[0]], Uniform(2, 2), Values(), 2, 0)
    with refused("rng"):
        vgb.walk_step((0,), Uniform(2, 2), Values(), 2, 0)
