"""Samplers that draw many positions at once: by hand, by enumeration, by counting."""

import math
from collections import defaultdict
from itertools import combinations, product

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.counting import Counted
from triptych.core.enumeration import exact_law, exact_transition_matrix
from triptych.core.estimates import tv_tolerance
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.core.validation import ImpossibleEvidence
from triptych.inference.chains import gibbs, parallel
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising

AGREE = Table(2, 2, torch.tensor([0.5, 0.0, 0.0, 0.5], dtype=torch.float64).log())


def law_of(step, state):
    law = exact_law(lambda rng: tuple(step(torch.tensor([state]), rng)[0].tolist()))
    return law.probs


def unmasked(oracle, length, schedule, order):
    def one(rng):
        tokens, hidden = parallel.blank(1, length)
        filled = parallel.unmask(oracle, tokens, hidden, rng, schedule=schedule, order=order)
        return tuple(filled[0].tolist())

    return exact_law(one).probs


# ------------------------------------------------------------------ chains


def test_independent_steps_by_hand():
    """Every bit becomes what the other was: 01 and 10 swap forever."""

    def move(tokens, rng):
        return parallel.independent_step(AGREE, tokens, rng)

    assert law_of(move, (0, 0)) == {(0, 0): 1.0}
    assert law_of(move, (0, 1)) == {(1, 0): 1.0}


def test_independent_steps_forget_the_coupling_of_two_spins():
    """p(agree) = sigmoid(2J), and the chain's own law is uniform."""
    model = Ising.chain(2, 0.9)
    states = [(0, 0), (0, 1), (1, 0), (1, 1)]

    def one(state, rng):
        return tuple(parallel.independent_step(model, torch.tensor([state]), rng)[0].tolist())

    matrix = exact_transition_matrix(states, one)
    uniform = torch.full((4,), 0.25, dtype=torch.float64)
    assert torch.allclose(uniform @ matrix, uniform)
    stay = 1 / (1 + math.exp(-1.8))
    assert matrix[0].tolist() == pytest.approx(
        [stay**2, stay * (1 - stay), stay * (1 - stay), (1 - stay) ** 2]
    )


def test_independent_steps_use_the_old_state_everywhere():
    table = Table.random(3, 3, seed=7)
    state = (2, 0, 1)
    alone = [
        table.masked_log_probs(torch.tensor([state]), torch.arange(3)[None] == i)[0, i].exp()
        for i in range(3)
    ]
    wanted = {
        (a, b, c): float(alone[0][a] * alone[1][b] * alone[2][c])
        for a, b, c in product(range(3), repeat=3)
    }
    found = law_of(lambda x, rng: parallel.independent_step(table, x, rng), state)
    assert found == pytest.approx(wanted)


def test_block_steps_by_hand():
    both = MaskLaw.of_size(2, 2)
    found = law_of(lambda x, rng: parallel.block_step(AGREE, x, both, rng), (0, 0))
    assert found == pytest.approx(dict.fromkeys(product((0, 1), repeat=2), 0.25))
    singles = MaskLaw.of_size(2, 1)
    alone = law_of(lambda x, rng: parallel.block_step(AGREE, x, singles, rng), (1, 1))
    assert alone == pytest.approx({(1, 1): 1.0})


def test_block_steps_are_products_of_marginals():
    table, masks = (
        Table.random(2, 3, seed=3),
        MaskLaw.weighted(3, [[0, 2], [1], []], [2.0, 1.0, 1.0]),
    )
    state = (1, 0, 1)
    wanted = defaultdict(float)
    wanted[state] += 0.25
    for block, weight in (((0, 2), 0.5), ((1,), 0.25)):
        hidden = torch.tensor([[i in block for i in range(3)]])
        laws = table.masked_log_probs(torch.tensor([state]), hidden)[0].exp()
        for drawn in product((0, 1), repeat=len(block)):
            after = list(state)
            for i, w in zip(block, drawn, strict=True):
                after[i] = w
            chance = math.prod(float(laws[i, w]) for i, w in zip(block, drawn, strict=True))
            wanted[tuple(after)] += weight * chance
    found = law_of(lambda x, rng: parallel.block_step(table, x, masks, rng), state)
    assert found == pytest.approx(dict(wanted))


def test_many_chains_follow_the_law_of_one(monkeypatch):
    """Tolerances fail with 1e-9; the questions are put in parts."""
    hmm, n = HMM.random(3, 3, 3, seed=0), 40_000
    monkeypatch.setattr(parallel, "_ENTRIES_AT_ONCE", 3 * 3 * 3 * 9999)
    oracle = Counted(hmm)
    start = torch.tensor([[2, 0, 1]]).expand(n, -1)
    after = parallel.independent_step(oracle, start, TorchRng(0))
    assert (oracle.queries, oracle.calls) == (n * parallel.independent_cost(3).queries, 5)
    wanted = law_of(lambda x, rng: parallel.independent_step(hmm, x, rng), (2, 0, 1))
    found = torch.bincount((after * torch.tensor([9, 3, 1])).sum(-1), minlength=27) / n
    exact = torch.tensor([wanted[tuple(x)] for x in all_sequences(3, 3).tolist()])
    assert 0.5 * (found - exact).abs().sum() < tv_tolerance(n, 27, failure=1e-9)
    oracle.reset()
    parallel.block_step(oracle, start, MaskLaw.of_size(3, 2), TorchRng(0))
    assert (oracle.queries, oracle.calls) == (n, 1)


def test_independent_steps_may_leave_the_support():
    """Three equal bits at 010: the first is asked for given 10, which has probability 0."""
    equal = torch.zeros(8, dtype=torch.float64)
    equal[0] = equal[7] = 0.5
    table = Table(2, 3, equal.log())
    with pytest.raises(ImpossibleEvidence):
        parallel.independent_step(table, torch.tensor([[0, 1, 0]]), TorchRng(0))


# ------------------------------------------------------------------ unmasking


def test_confident_tokens_make_rare_ones_rarer():
    """Independent bits with P(1) = 0.1 and 0.4: x_0 = 1 must be drawn twice, so it has 0.01."""
    bits = parallel._product([[0.9, 0.1], [0.6, 0.4]])
    exact = bits.as_dict()
    for order in ("random", "left to right", "confident position"):
        assert unmasked(bits, 2, [1, 1], order) == pytest.approx(exact)
    found = unmasked(bits, 2, [1, 1], "confident token")
    wanted = {(0, 0): 0.594, (0, 1): 0.396, (1, 0): 0.006, (1, 1): 0.004}
    assert found == pytest.approx(wanted)


def test_rounds_of_several_positions_by_definition():
    """Confident positions two at a time: a product of marginals, then the rest given them."""
    table = Table.random(2, 4, seed=5)
    nothing = torch.zeros(1, 4, dtype=torch.long)
    laws = table.masked_log_probs(nothing, torch.ones(1, 4, dtype=torch.bool))[0].exp()
    sure = sorted(range(4), key=lambda i: -float(laws[i].max()))[:2]
    wanted = {}
    for x in product((0, 1), repeat=4):
        left = torch.tensor([[i not in sure for i in range(4)]])
        rest = table.masked_log_probs(torch.tensor([x]), left)[0].exp()
        first = math.prod(float(laws[i, x[i]]) for i in sure)
        wanted[x] = first * math.prod(float(rest[i, x[i]]) for i in range(4) if i not in sure)
    assert unmasked(table, 4, [2, 2], "confident position") == pytest.approx(wanted)


def test_confident_tokens_by_definition():
    """Draw all, keep the two surest, draw the third again: summed over the first draws."""
    table = Table.random(3, 3, seed=2)
    nothing = torch.zeros(1, 3, dtype=torch.long)
    laws = table.masked_log_probs(nothing, torch.ones(1, 3, dtype=torch.bool))[0].exp()
    wanted = defaultdict(float)
    for x in product(range(3), repeat=3):
        chance = math.prod(float(laws[i, x[i]]) for i in range(3))
        last = min(range(3), key=lambda i: float(laws[i, x[i]]))
        again = table.masked_log_probs(torch.tensor([x]), torch.arange(3)[None] == last)
        for w in range(3):
            y = tuple(w if i == last else x[i] for i in range(3))
            wanted[y] += chance * float(again[0, last, w].exp())
    assert unmasked(table, 3, [2, 1], "confident token") == pytest.approx(dict(wanted))


def test_left_to_right_and_random_rounds():
    table = Table.random(2, 3, seed=8)
    grid = table.log_probs.exp().reshape(2, 2, 2)
    pair = grid.sum((1, 2))[:, None] * grid.sum((0, 2))[None]
    wanted = pair[..., None] * grid / grid.sum(2, keepdim=True)
    found = unmasked(table, 3, [2, 1], "left to right")
    assert [found[x] for x in product((0, 1), repeat=3)] == pytest.approx(wanted.flatten().tolist())
    # random: pairs (i, j) first, a third each
    total = defaultdict(float)
    for i, j in combinations(range(3), 2):
        k = 3 - i - j
        for x in product((0, 1), repeat=3):
            alone = [float(grid.sum([a for a in range(3) if a != b])[x[b]]) for b in (i, j)]
            total[x] += alone[0] * alone[1] * float((grid / grid.sum(k, keepdim=True))[x]) / 3
    assert unmasked(table, 3, [2, 1], "random") == pytest.approx(dict(total))


def test_filling_in_leaves_what_is_shown():
    oracle = Counted(HMM.random(3, 3, 5, seed=1))
    tokens = torch.tensor([[0, 1, 2, 0, 1], [2, 2, 2, 2, 2]])
    hidden = torch.tensor([[True, False, True, False, True], [False, True, True, True, False]])
    for order in ("random", "confident token", "confident position", "left to right"):
        oracle.reset()
        out = parallel.unmask(oracle, tokens, hidden, TorchRng(3), schedule=[1, 2], order=order)
        assert torch.equal(out[~hidden], tokens[~hidden])
        assert (oracle.queries, oracle.calls) == (4, 2)


def test_unmasking_many_rows_at_once():
    """Each row reveals its own positions; the tolerance fails with 1e-9."""
    hmm, n = HMM.random(3, 2, 4, seed=5), 40_000
    tokens, hidden = parallel.blank(n, 4)
    table = Table.of(hmm)
    for order in ("random", "confident position"):
        out = parallel.unmask(hmm, tokens, hidden, TorchRng(1), schedule=[1] * 4, order=order)
        found = torch.bincount(table.rank(out), minlength=16) / n
        tv = 0.5 * (found - table.log_probs.exp()).abs().sum()
        assert tv < tv_tolerance(n, 16, failure=1e-9)


def test_most_confident_by_hand():
    confidence = torch.tensor([[0.5, 0.9, 0.5, 0.99], [0.2, 0.1, 0.3, 0.9]])
    hidden = torch.tensor([[True, True, True, False], [True, True, True, True]])
    found = parallel.most_confident(confidence, hidden, 2)
    assert found.tolist() == [[True, True, False, False], [False, False, True, True]]
    nearly = torch.tensor(
        [[0.5, 0.5 + 1e-15, 0.4]], dtype=torch.float64
    )  # rounding decides nothing
    assert parallel.most_confident(nearly, torch.ones(1, 3).bool(), 1).tolist() == [
        [True, False, False]
    ]


def test_schedules():
    assert parallel.even_schedule(8, 3) == [2, 3, 3]
    assert parallel.even_schedule(4, 4) == [1, 1, 1, 1]
    assert parallel.even_schedule(5, 1) == [5]
    with refused("rounds"):
        parallel.even_schedule(5, 6)


# ------------------------------------------------------------------ errors


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schedule": [1, 1]}, "reveals 2 positions and row 0 hides 3"),
        ({"schedule": [3, 0]}, "at least 1"),
        ({"order": "sure"}, "order is 'sure'; it must be one of 'random'"),
        ({"hidden": torch.ones(1, 4, dtype=torch.bool)}, "hidden has shape"),
        ({"tokens": torch.zeros(0, 3, dtype=torch.long)}, "no chains"),
    ],
)
def test_errors_are_sentences(change, sentence):
    tokens, hidden = parallel.blank(1, 3)
    given = {
        "lm": Table.random(2, 3, seed=0),
        "tokens": tokens,
        "hidden": hidden,
        "rng": TorchRng(0),
        "schedule": [3],
    }
    with pytest.raises(ValueError, match=sentence):
        parallel.unmask(**(given | change))


@pytest.mark.usefixtures("unchecked_shapes")
def test_other_errors():
    table = Table.random(2, 3, seed=0)
    with refused("tokens"):
        parallel.block_step(
            table, torch.zeros(1, 3, dtype=torch.long), MaskLaw.of_size(2, 1), TorchRng(0)
        )
    with refused("lm"):
        parallel.independent_step(object(), torch.zeros(1, 3, dtype=torch.long), TorchRng(0))
    with refused("chains"):
        parallel.blank(0, 3)


def test_a_run_of_parallel_steps():
    model = Ising.chain(5, 0.4)
    oracle = Counted(model)
    found = gibbs.run(
        lambda x, rng: parallel.independent_step(oracle, x, rng),
        torch.zeros(10, 5, dtype=torch.long),
        4,
        TorchRng(0),
        record={"up": lambda x: x.double().mean()},
        counted=oracle,
    )
    assert found.queries == [0, 50, 100, 150, 200]
    assert found.passes == [0, 1, 2, 3, 4]


@pytest.mark.cuda
def test_on_a_gpu():
    model, rng = Ising.chain(4, 0.5).to("cuda"), TorchRng(0, "cuda")
    tokens, hidden = parallel.blank(100, 4, "cuda")
    for order in ("random", "left to right", "confident position", "confident token"):
        filled = parallel.unmask(model, tokens, hidden, rng, schedule=[2, 2], order=order)
        assert filled.is_cuda
    assert parallel.independent_step(model, filled, rng).is_cuda
    assert parallel.block_step(model, filled, MaskLaw.of_size(4, 2).to("cuda"), rng).is_cuda
