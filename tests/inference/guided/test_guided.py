"""Guided algorithms: batches against single rows, ledgers and traces by hand, worked laws."""

import math

import pytest
import torch
from tests.support.grids import pairs
from tests.support.refusals import refused
from tests.support.toy_guided import ALGORITHMS, FirstDraws, Noisy, Values, ledger_of, standing_at

from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law
from triptych.core.randomness import TorchRng
from triptych.core.streams import RowStreams, hashed_uniform
from triptych.core.table import Table
from triptych.inference.guided import best_of_n, blocks, particles, rejection, tokenwise
from triptych.inference.guided.result import Reason
from triptych.inference.guided.transforms import nucleus
from triptych.structures.uniform import Uniform


class FromDecoder:
    """The same, read from a decoder's rows."""

    layer = None

    def log_values(self, asked):
        decoder, rows = asked.decoder, asked.at
        lengths, tokens = decoder.lengths[rows].tolist(), decoder.tokens[rows]
        values = [hashed_uniform(5, tokens[i : i + 1, :t]) for i, t in enumerate(lengths)]
        return torch.cat(values).log()


def strings_of(several, row):
    """The strings of one row, with what stands next to each."""
    numbers = several[2][row].tolist()
    pairs = zip(several.tokens[row].tolist(), several.lengths[row].tolist(), strict=True)
    return [(x[:t], pytest.approx(v)) for (x, t), v in zip(pairs, numbers, strict=True)]


PROMPTS = [[], [0, 1], [2], [1, 1, 0, 2, 0], [2, 0, 1, 1], [2]]


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(
    ("verifier", "seeds"),
    [
        pytest.param(Noisy(), (0,), id="tokens"),
        pytest.param(Noisy(), (1,), id="tokens, again", marks=pytest.mark.slow),
        pytest.param(FromDecoder(), (0,), id="decoder"),
    ],
)
def test_a_row_in_a_batch_does_what_it_does_alone(name, verifier, seeds):
    sample, options = ALGORITHMS[name]
    options = {**options, "length": 5, "end_token": 2, "transform": nucleus(0.95), "record": True}
    lm, numbers = Table.random(3, 5, seed=0), torch.arange(len(PROMPTS))
    for seed in seeds:
        together = sample(
            standing_at(lm, *PROMPTS), verifier, **options, rng=RowStreams(seed, numbers)
        )
        for row, prompt in enumerate(PROMPTS):
            rng = RowStreams(seed, numbers[row : row + 1])
            alone = sample(standing_at(lm, prompt), verifier, **options, rng=rng)
            assert together.completions()[row] == alone.completions()[0]
            assert together.tokens[row, : len(prompt)].tolist() == prompt
            assert together.complete[row] == alone.complete[0]
            assert ledger_of(together)[row] == ledger_of(alone)[0]
            assert together.verified[row] == alone.verified[0]
            assert together.accepted[row] == alone.accepted[0]
            assert together.reasons[row] == alone.reasons[0]
            for key, value in (alone.info._asdict() if alone.info else {}).items():
                seen = getattr(together.info, key)
                if key in ("candidates", "particles"):
                    assert strings_of(seen, row) == strings_of(value, 0)
                elif key != "visited":  # of all rows together
                    seen = seen[row]
                    torch.testing.assert_close(seen, value[0], rtol=1e-12, atol=0)
            events = [event._replace(row=0) for event in together.trace if event.row == row]
            assert events == list(alone.trace)
        rows = zip(together.completions(), together.complete.tolist(), PROMPTS, strict=True)
        for text, done, prompt in rows:
            assert 2 not in text[:-1]
            assert not done or text[-1:] == (2,) or len(prompt) + len(text) == 5


@pytest.mark.parametrize("name", ALGORITHMS)
def test_both_kinds_of_verifier_give_the_same(name):
    sample, options = ALGORITHMS[name]
    lm = Table.random(3, 5, seed=0)
    results = [
        sample(
            standing_at(lm, *PROMPTS), verifier, **options, length=5, record=True, rng=TorchRng(1)
        )
        for verifier in (Noisy(), FromDecoder())
    ]
    assert results[0].tokens.tolist() == results[1].tokens.tolist()
    assert results[0].trace == results[1].trace
    assert ledger_of(results[0]) == ledger_of(results[1])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_full_prompts_empty_prompts_and_batches_of_one(name):
    sample, options = ALGORITHMS[name]
    lm = Table.random(2, 3, seed=0)
    full = sample(standing_at(lm, [1, 0, 1]), Values(), **options, length=3, rng=TorchRng(0))
    assert full.completions() == [()]
    assert full.tokens.tolist() == [[1, 0, 1]]
    assert full.complete.tolist() == [True]
    assert ledger_of(full)[0][:3] == (0, 0, 0)
    empty = sample(RecomputingDecoder(lm, 1), Values(), **options, length=3, rng=TorchRng(0))
    assert len(empty.completions()[0]) == 3
    assert empty.complete.tolist() == [True]


# ---------------------------------------------------------------------------- ledgers and traces


def test_rejection_by_hand():
    """Row 0: 10 refused, 01 kept. Row 1, standing at 1: 11 refused, 11 refused, given up."""
    verifier = Values(_10=0.2, _11=0.4, _01=0.5)
    result = rejection.sample(
        standing_at(Uniform(2, 2), [], [1]),
        verifier,
        length=2,
        attempts=2,
        record=True,
        rng=FirstDraws(1, 1, 0, 1, 0, 1),
    )
    assert result.completions() == [(0, 1), ()]
    assert result.complete.tolist() == [True, False]
    assert result.accepted.tolist() == result.verified.tolist() == [True, False]
    assert result.reasons == (None, Reason.ATTEMPTS)
    assert result.info.attempts.tolist() == [2, 2]
    assert verifier.asked == ["11", "10", "11", "01"]  # full strings alone
    assert ledger_of(result) == [(4, 4, 2, 2), (2, 2, 2, 2)]
    assert result.costs.forward_passes == 5  # both rows apart, both at one token, row 0 twice
    mine = [(e.action, e.tokens, e.generator_calls, e.verifier_calls) for e in result.trace]
    row0 = [event for event, e in zip(mine, result.trace, strict=True) if e.row == 0]
    assert row0 == [
        ("draw", (1,), 1, 0),
        ("draw", (1, 0), 2, 0),
        ("reject", (1, 0), 2, 1),
        ("restart", (), 2, 1),
        ("draw", (0,), 3, 1),
        ("draw", (0, 1), 4, 1),
        ("accept", (0, 1), 4, 2),
    ]
    refusals = [e.log_value for e in result.trace if e.action == "reject"]
    assert refusals == pytest.approx([math.log(v) for v in (0.4, 0.2, 0.4)])


def test_a_refused_full_prompt_is_complete_and_not_accepted():
    result = rejection.sample(
        standing_at(Uniform(2, 2), [1, 1], [0, 1]), Values(_11=0.0), length=2, rng=TorchRng(0)
    )
    assert result.complete.tolist() == result.verified.tolist() == [True, True]
    assert result.accepted.tolist() == [False, True]
    assert result.reasons == (None, None)
    assert ledger_of(result) == [(0, 0, 0, 1), (0, 0, 0, 1)]


def test_tokenwise_by_hand():
    """Row 0: 1 refused, 0, then 1 (V = ½ is accepted). Row 1, standing at 1: 1 refused twice."""
    verifier = Values(_1=0.2, _01=0.5, _11=0.0)
    result = tokenwise.sample(
        standing_at(Uniform(2, 2), [], [1]),
        verifier,
        length=2,
        tries=2,
        record=True,
        rng=FirstDraws(1, 1, 0, 1, 1),
    )
    assert result.completions() == [(0, 1), ()]
    assert result.complete.tolist() == [True, False]
    assert result.reasons == (None, Reason.TRIES)
    assert result.accepted.tolist() == [True, False]
    assert ledger_of(result) == [(3, 3, 1, 3), (2, 2, 2, 2)]
    assert result.costs.forward_passes == 3  # one for each prompt, one for row 0 at its 0
    events = [(e.action, e.tokens, e.log_value) for e in result.trace if e.row == 0]
    assert events == [
        ("draw", (1,), None),
        ("reject", (1,), math.log(0.2)),
        ("draw", (0,), None),
        ("accept", (0,), 0.0),
        ("draw", (0, 1), None),
        ("accept", (0, 1), math.log(0.5)),
    ]


def test_tries_are_counted_per_token():
    """Two refusals at each of two positions, with three tries a token."""
    verifier = Values(_1=0.0, _01=0.0)
    rng = FirstDraws(1, 1, 0, 1, 1, 0)
    decoder = RecomputingDecoder(Uniform(2, 2), 1)
    result = tokenwise.sample(decoder, verifier, length=2, tries=3, rng=rng)
    assert result.completions() == [(0, 0)]
    assert ledger_of(result) == [(6, 6, 4, 6)]
    assert result.costs.forward_passes == 2


def test_the_law_of_a_soft_tokenwise_sampler_by_hand():
    """One fair bit, V(0) = 0.6, V(1) = 0.2: ¾ by value; by threshold 0.3 only 0 is left."""
    p, verifier = Table.of(Uniform(2, 1)), Values(_0=0.6, _1=0.2)
    assert tokenwise.law(p, verifier, accept="value").as_dict() == pytest.approx(
        {(0,): 0.75, (1,): 0.25}
    )
    assert tokenwise.law(p, verifier, threshold=0.3).as_dict() == {(0,): 1.0, (1,): 0.0}
    with refused("verifier"):
        tokenwise.law(p, verifier, threshold=0.7)


def test_laws_on_tables_with_impossible_strings():
    """p = ½ on 00 and on 10, V(1) = ½; no law is asked for given 01 or 11."""
    weights = torch.tensor([0.5, 0.0, 0.5, 0.0], dtype=torch.float64)
    p, verifier = Table(2, 2, weights.log()), Values(_1=0.5, _10=0.1)
    law = tokenwise.law(p, verifier, accept="value").as_dict()
    assert law == pytest.approx({(0, 0): 2 / 3, (0, 1): 0, (1, 0): 1 / 3, (1, 1): 0})
    law = blocks.law(p, verifier, 1, 2).as_dict()
    assert law == pytest.approx({(0, 0): 3 / 4, (0, 1): 0, (1, 0): 1 / 4, (1, 1): 0})
    assert best_of_n.law(p, verifier, 2).as_dict()[(1, 0)] == pytest.approx(1 / 4)


def test_best_of_n_by_hand():
    """Three candidates: 00, 11, 01; the last two have the same value, and the first of them stays.

    Two draws of the first token need one law; those of the second token three.
    """
    verifier = Values(_00=0.5, _11=3.0, _01=3.0)
    result = best_of_n.sample(
        standing_at(Uniform(2, 2), []),
        verifier,
        length=2,
        n=3,
        record=True,
        rng=FirstDraws(0, 1, 0, 0, 1, 1),
    )
    assert result.completions() == [(1, 1)]
    assert verifier.asked == ["00", "11", "01"]
    assert ledger_of(result) == [(6, 6, 0, 3)]
    assert result.costs.forward_passes == 2
    assert result.info.log_value.tolist() == pytest.approx([math.log(3)])
    ends = [(e.action, e.tokens, e.log_value) for e in result.trace if e.action != "draw"]
    assert ends == [
        ("reject", (0, 0), math.log(0.5)),
        ("reject", (0, 1), math.log(3)),
        ("choose", (1, 1), math.log(3)),
    ]


def test_blocks_by_hand():
    """Row 0 of length 3 in blocks of 2 and 1; row 1 stands at 2 tokens and has one block of 1."""
    verifier = Values(_01=0.9, _10=0.8, _011=0.3, _010=0.4, _110=0.1, _111=0.2)
    result = blocks.sample(
        standing_at(Uniform(2, 3), [], [1, 1]),
        verifier,
        length=3,
        block=2,
        n=2,
        record=True,
        rng=FirstDraws(1, 0, 0, 1, 0, 1, 1, 0),
    )
    assert result.completions() == [(0, 1, 0), (1,)]
    assert ledger_of(result) == [(6, 6, 0, 4), (2, 2, 0, 2)]
    assert sorted(verifier.asked) == ["01", "010", "011", "10", "110", "111"]
    assert result.info.log_value.exp().tolist() == pytest.approx([0.4, 0.2])
    chosen = [(e.row, e.tokens) for e in result.trace if e.action == "choose"]
    assert chosen == [(0, (0, 1)), (1, (1,)), (0, (0, 1, 0))]


def test_blocks_end_with_the_end_token():
    """Candidates 1 (ended, V = 2) and 00: the first is kept, and the row is finished."""
    result = blocks.sample(
        RecomputingDecoder(Uniform(2, 4), 1),
        Values(_1=2.0),
        length=4,
        block=2,
        n=2,
        end_token=1,
        rng=FirstDraws(1, 0, 0),
    )
    assert result.completions() == [(1,)]
    assert ledger_of(result) == [(3, 3, 0, 2)]


class Counts:
    """V = 1 + the number of ones."""

    def log_value(self, prefix):
        return (1.0 + prefix.sum(-1).double()).log()


def test_worked_laws_of_best_of_n_and_blocks():
    """Two fair bits and V by the number of ones. Best of 2: 11 unless both miss it, 7/16; 00 only
    if both are 00. Blocks of 1: each bit is 1 with ¾."""
    p = Table.of(Uniform(2, 2))
    whole = {(0, 0): 1 / 16, (0, 1): 4 / 16, (1, 0): 4 / 16, (1, 1): 7 / 16}
    assert best_of_n.law(p, Counts(), 2).as_dict() == pytest.approx(whole)
    assert blocks.law(p, Counts(), 2, 2).as_dict() == pytest.approx(whole)
    assert blocks.law(p, Counts(), 7, 2).as_dict() == pytest.approx(whole)
    apart = {(0, 0): 1 / 16, (0, 1): 3 / 16, (1, 0): 3 / 16, (1, 1): 9 / 16}
    assert blocks.law(p, Counts(), 1, 2).as_dict() == pytest.approx(apart)
    probs = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64)
    kept = best_of_n.kept_probs(probs, torch.tensor([[1.0, 1.0, 2.0]]).double(), 2)
    assert kept.tolist() == [[3 / 8, 3 / 16, 7 / 16]]


def test_blocks_that_end_at_a_token_by_hand():
    """Two fair bits, V the number of ones, a block ends after a 1: P(11) = 5/8 · 3/4."""
    p, verifier = Table.of(Uniform(2, 2)), Counts()
    law = blocks.law(p, verifier, 2, 2, block_end=1).as_dict()
    wanted = {(0, 0): 1 / 16, (0, 1): 5 / 16, (1, 0): 5 / 32, (1, 1): 15 / 32}
    assert law == pytest.approx(wanted)
    # Where every token ends a block, blocks have one token; where none does, nothing changes.
    p = Table.random(vocab_size=3, length=3, seed=4)
    same = [
        (blocks.law(p, Counts(), 3, 2, block_end=[0, 1, 2]), blocks.law(p, Counts(), 1, 2)),
        (blocks._law_by_prefix(p, Counts(), 2, 3, frozenset()), blocks.law(p, Counts(), 2, 3)),
    ]
    for one, other in same:
        assert one.as_dict() == pytest.approx(other.as_dict())


def test_a_block_may_end_on_the_way():
    """The tokens of all candidates are counted, and the row goes on after the end of a block."""
    p = Table.of(Uniform(2, 4))
    result = blocks.sample(
        RecomputingDecoder(p, 50), Counts(), length=4, block=4, n=2, block_end=1, rng=TorchRng(0)
    )
    assert result.complete.all()
    assert (result.lengths == 4).all()
    assert (result.costs.generated >= 5).all()  # every block has a second candidate
    assert (result.costs.generated != 8).any()  # and candidates differ in length


@pytest.mark.parametrize("block", [1, 5, 8, 12])
def test_the_law_of_blocks_at_the_size_of_a_study(block):
    """4096 strings: it sums to 1, and blocks of equal value change nothing."""
    p = Table.random(2, 12, seed=0)
    assert blocks.law(p, Noisy(), block, 4).log_probs.logsumexp(0).item() == pytest.approx(0)
    torch.testing.assert_close(blocks.law(p, Values(), block, 4).log_probs, p.log_probs)


# ------------------------------------------------------------------------------------- particles


def test_particles_by_hand():
    """One fair bit, V(0) = 1, V(1) = 2: P(1) = 7/12 and mean weights 1, 3/2, 3/2, 2."""
    lm, found = Uniform(2, 1), {}

    def program(rng):
        result = particles.sample(RecomputingDecoder(lm, 1), Counts(), length=1, n=2, rng=rng)
        found[result.info.log_normaliser.exp().round(decimals=9).item()] = ledger_of(result)[0]
        return result.completions()[0]

    assert exact_law(program).probs == pytest.approx({(0,): 5 / 12, (1,): 7 / 12})
    assert found == {1.0: (2, 2, 0, 2), 1.5: (2, 2, 0, 2), 2.0: (2, 2, 0, 2)}


class SometimesZero:
    """Values below and above 1; a prefix that ends in 11 has value 0."""

    def log_value(self, prefix):
        t = prefix.shape[1]
        bad = (prefix[:, -2:] == 1).all(-1) & torch.tensor(t > 1)
        return (2 * hashed_uniform(8, prefix)).log().masked_fill(bad, -torch.inf)


@pytest.mark.parametrize(("ess", "end"), pairs([0.0, 0.9, 1.0], [None, 0]))
def test_the_mean_weight_is_unbiased(ess, end, unchecked_shapes):
    """E[exp log_normaliser] = Σ p(x) V(x) over the strings with no prefix of value 0."""
    lm, verifier, length = Table.random(2, 2, seed=6), SometimesZero(), 2

    def program(rng):
        result = particles.sample(
            RecomputingDecoder(lm, 1),
            verifier,
            length=length,
            n=2,
            ess=ess,
            end_token=end,
            rng=rng,
        )
        assert result.info.died.item() == (result.info.log_normaliser.item() == -math.inf)
        return result.info.log_normaliser.exp().item()

    got = exact_law(program).expectation(float)
    first = lm.next_token_log_probs(torch.zeros(1, 0, dtype=torch.long)).exp()[0].tolist()
    strings = lm.as_dict()
    if end == 0:
        strings = {(0,): first[0]} | {x: q for x, q in strings.items() if x[0] == 1}
    wanted = sum(q * verifier.log_value(torch.tensor([x])).exp().item() for x, q in strings.items())
    assert got == pytest.approx(wanted, rel=1e-12)
    assert wanted != pytest.approx(1.0, rel=1e-2)


def test_resampling_by_hand():
    """Weights 1 and 3 after one token: effective size 16/10 < 2 · 0.9; both become copies of the
    second; weights are then 2 and 2, times V(1·)/V(1)."""
    verifier = Values(_0=1.0, _1=3.0, _10=6.0, _11=1.5)
    result = particles.sample(
        RecomputingDecoder(Uniform(2, 2), 1),
        verifier,
        length=2,
        n=2,
        ess=0.9,
        record=True,
        rng=FirstDraws(0, 1, 1, 1, 0, 1, 0),
    )
    assert result.completions() == [(1, 0)]
    assert result.info.log_normaliser.exp().item() == pytest.approx((2 * 2 + 2 * 0.5) / 2)
    assert result.info.smallest_ess.item() == pytest.approx(25 / 17)  # of weights 4 and 1
    assert verifier.asked == ["0", "1", "10", "11"]
    assert [e.tokens for e in result.trace if e.action == "choose"] == [(1,), (1,), (1, 0)]
    assert result.costs.forward_passes == 2


@pytest.mark.parametrize(("ess", "kept"), [(1.0, (1, 0)), (0.99, (0, 1))])
def test_ess_of_one_resamples_equal_weights_too(ess, kept):
    """The choices 1, 1 are two copies of the second particle; or else the next two tokens."""
    rng = FirstDraws(0, 1, 1, 1, 0, 0)
    decoder = RecomputingDecoder(Uniform(2, 2), 1)
    result = particles.sample(decoder, Values(), length=2, n=2, ess=ess, rng=rng)
    assert result.completions() == [kept]


def test_dead_particles_are_not_extended_and_dead_rows_stand_at_their_prompt():
    """Row 0: one of two particles dies at once and costs nothing more. Row 1 is at 1 and dies."""
    verifier = Values(_1=0.0, _10=0.0, _11=0.0)
    result = particles.sample(
        standing_at(Uniform(2, 2), [], [1]),
        verifier,
        length=2,
        n=2,
        ess=0.0,
        rng=FirstDraws(1, 0, 0, 1, 1),
    )
    assert result.completions() == [(0, 1), ()]
    assert result.info.died.tolist() == [False, True]
    assert result.reasons == (None, Reason.PARTICLES)
    assert result.complete.tolist() == [True, False]
    assert result.info.smallest_ess.tolist() == [1.0, 0.0]
    assert result.info.log_normaliser.tolist() == pytest.approx([math.log(0.5), -math.inf])
    assert ledger_of(result)[0] == (3, 3, 0, 3)
    assert ledger_of(result)[1][1] == 2


def test_a_full_prompt_keeps_its_value():
    result = particles.sample(
        standing_at(Uniform(2, 1), [1], [0]), Values(_1=3.0, _0=0.0), length=1, n=4, rng=TorchRng(0)
    )
    assert result.info.log_normaliser.exp().tolist() == pytest.approx([3.0, 0.0])
    assert result.complete.tolist() == [True, True]
    assert result.accepted.tolist() == [True, False]
    assert ledger_of(result) == [(0, 0, 0, 1), (0, 0, 0, 1)]
