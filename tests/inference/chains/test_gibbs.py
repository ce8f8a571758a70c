"""Block Gibbs: its laws by enumeration, its cost by counting, its errors as sentences."""

import math

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
from triptych.inference.chains import gibbs
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising

AGREE = Table(2, 2, torch.tensor([0.5, 0.0, 0.0, 0.5], dtype=torch.float64).log())


def matrix_of(oracle, masks, **options):
    states = [tuple(x) for x in all_sequences(oracle.vocab_size, masks.length).tolist()]

    def one(state, rng):
        return tuple(gibbs.step(oracle, torch.tensor([state]), masks, rng, **options)[0].tolist())

    return exact_transition_matrix(states, one)


def by_definition(table, masks, careless=False):
    """P[x, y] = Σ_K p(K | x) w_K(y) / Σ_y' w_K(y'), w_K = p(y) p(K | y), over y equal outside K.

    The careless chain leaves p(K | y) out.
    """
    x, p, law = table.sequences, table.log_probs.exp(), masks.log_prob(table.sequences).exp()
    out = torch.zeros(len(x), len(x), dtype=torch.float64)
    for m, block in enumerate(masks.blocks):
        same = (x[:, None, ~block] == x[None, :, ~block]).all(-1)
        weight = same * (p if careless else p * law[:, m])
        total = weight.sum(-1, keepdim=True)
        out += law[:, m, None] * weight / total.masked_fill(total == 0, 1.0)
    return out


def looking(length=3):
    """Blocks of two; those that hold many ones are hidden more often."""
    blocks = [[i, (i + 1) % length] for i in range(length)]
    weights = torch.tensor([0.3, 1.0, 2.0])[:length].double()
    return MaskLaw.looking(length, blocks, lambda x: x.double() * weights)


class Tilted:
    """Two bits: x_1 is fair given x_0, and x_0 equals x_1 with 0.8; no joint law has both."""

    vocab_size = 2

    def masked_log_probs(self, tokens, hidden):
        probs = torch.full((len(tokens), 2, 2), 0.5, dtype=torch.float64)
        copies = ~hidden[:, 1]
        same = 0.2 + 0.6 * (tokens[:, 1] == 0).double()
        probs[copies, 0] = torch.stack([same, 1 - same], -1)[copies]
        shown = torch.nn.functional.one_hot(tokens.masked_fill(hidden, 0), 2).double()
        return torch.where(hidden[..., None], probs, shown).log()


# ------------------------------------------------------------------ worked values


def test_a_step_by_hand():
    singles, both = MaskLaw.of_size(2, 1), MaskLaw.of_size(2, 2)
    stuck = exact_law(
        lambda rng: tuple(gibbs.step(AGREE, torch.tensor([[0, 0]]), singles, rng)[0].tolist())
    )
    assert stuck.probs == pytest.approx({(0, 0): 1.0})
    for draw in ("jointly", "in turn"):
        moved = exact_law(
            lambda rng, draw=draw: tuple(
                gibbs.step(AGREE, torch.tensor([[0, 0]]), both, rng, draw=draw)[0].tolist()
            )
        )
        assert moved.probs == pytest.approx({(0, 0): 0.5, (1, 1): 0.5})


def test_the_order_is_a_part_of_the_sampler_of_inconsistent_conditionals():
    """From the left ¼ for all; x_1 first, then x_0: agree with 0.8; a random order: the mean."""
    both = MaskLaw.of_size(2, 2)
    left = matrix_of(Tilted(), both, draw="in turn")
    assert torch.allclose(left, torch.full((4, 4), 0.25, dtype=torch.float64))
    jointly = matrix_of(Tilted(), both, draw="jointly")
    assert torch.allclose(jointly, left)
    mixed = matrix_of(Tilted(), both, order="random")
    row = torch.tensor([0.325, 0.175, 0.175, 0.325], dtype=torch.float64)
    assert torch.allclose(mixed, row.expand(4, 4))


def test_joint_laws_by_the_chain_rule():
    tokens = torch.tensor([[0, 0], [1, 0]])
    hidden = torch.tensor([[True, True], [True, True]])
    found = gibbs.block_log_probs(AGREE, tokens, hidden).exp()
    assert found.tolist() == [[0.5, 0, 0, 0.5], [0.5, 0, 0, 0.5]]
    single = gibbs.block_log_probs(AGREE, tokens, torch.tensor([[True, False], [False, True]]))
    assert single.exp().tolist() == [[1, 0], [0, 1]]
    none = gibbs.block_log_probs(AGREE, tokens, torch.zeros(2, 2, dtype=torch.bool))
    assert none.tolist() == [[0.0], [0.0]]
    with refused("hidden"):
        gibbs.block_log_probs(AGREE, tokens, torch.tensor([[True, True], [False, True]]))


def test_the_chain_rule_against_the_joint_law_of_an_ising_model():
    model = Ising.random(5, scale=0.8, seed=1)
    tokens = all_sequences(2, 5)[::3]
    for block in ([0, 2], [1, 3, 4], [0, 1, 2, 3, 4]):
        hidden = torch.zeros_like(tokens, dtype=torch.bool)
        hidden[:, block] = True
        found = gibbs.block_log_probs(model, tokens, hidden)
        assert torch.allclose(found, model.block_log_probs(tokens, block), atol=1e-10)


# ------------------------------------------------------------------ exact matrices


@pytest.mark.parametrize("masks", [MaskLaw.of_size(3, 2), MaskLaw.spans(3, 2), looking()], ids=repr)
def test_against_the_definition(masks):
    table = Table.random(2, 3, seed=4)
    wanted = by_definition(table, masks)
    for draw in ["jointly"] if masks.adaptive else ["jointly", "in turn"]:
        assert torch.allclose(matrix_of(table, masks, draw=draw), wanted, atol=1e-12)


def test_an_oracle_that_knows_joint_laws_is_asked_for_them(unchecked_shapes):
    model = Ising.random(3, scale=1.0, seed=3)
    assert isinstance(model, gibbs.BlockMasked)
    assert not isinstance(Counted(model), gibbs.BlockMasked)
    for masks in (MaskLaw.of_size(3, 2), looking()):
        wanted = by_definition(Table.of(model), masks)
        assert torch.allclose(matrix_of(model, masks), wanted, atol=1e-12)
        assert torch.allclose(matrix_of(Counted(model), masks), wanted, atol=1e-12)
    pairs = MaskLaw.of_size(3, 2)  # a joint law has no order, so with one it is drawn in turn
    wanted = by_definition(Table.of(model), pairs)
    assert torch.allclose(matrix_of(model, pairs, order="random"), wanted, atol=1e-12)


def test_a_block_that_looks_at_the_sequence_is_not_drawn_as_if_it_did_not():
    table, masks = Table.random(2, 3, seed=4), looking()
    careless = by_definition(table, masks, careless=True)
    p = table.log_probs.exp()
    assert (p @ careless - p).abs().max() > 1e-3
    assert (p @ matrix_of(table, masks) - p).abs().max() < 1e-12


def test_chains_with_other_blocks_and_sizes_run_in_one_batch():
    """Thousands of chains at once follow the law of one; tolerance fails with 1e-9."""
    hmm, masks = HMM.random(3, 3, 3, seed=0), MaskLaw.independent(3, 0.5)
    wanted = by_definition(Table.of(hmm), masks)[5]
    start = all_sequences(3, 3)[5].expand(40_000, -1)
    for draw in ("jointly", "in turn"):
        after = gibbs.step(hmm, start, masks, TorchRng(0), draw=draw)
        found = torch.bincount((after * torch.tensor([9, 3, 1])).sum(-1), minlength=27) / 40_000
        tv = 0.5 * (found - wanted).abs().sum()
        assert tv < tv_tolerance(40_000, 27, failure=1e-9)


def test_many_candidates_are_taken_in_parts(monkeypatch):
    model, masks = Ising.random(4, scale=0.5, seed=0), MaskLaw.of_size(4, 3)
    start = Counted(model)
    tokens = model.sample(50, TorchRng(1))
    monkeypatch.setattr(gibbs, "_ENTRIES_AT_ONCE", 8 * 4 * 7)  # seven chains at a time
    after = gibbs.step(start, tokens, masks, TorchRng(2), draw="jointly")
    assert start.calls == math.ceil(50 / 7) * 3
    assert start.queries == 50 * 7
    assert ((after != tokens).sum(-1) <= 3).all()


def test_an_empty_block_leaves_the_chain_where_it_is():
    masks = MaskLaw.weighted(2, [[], [0, 1]], [1.0, 1.0])
    for draw in ("jointly", "in turn"):
        found = matrix_of(AGREE, masks, draw=draw)[0]
        assert torch.allclose(found, torch.tensor([0.75, 0, 0, 0.25], dtype=torch.float64))


def test_impossible_states_are_never_drawn_and_never_asked_about():
    types = torch.tensor([1.0], dtype=torch.float64)
    dyck = Dyck.fixed_length(6, type_probs=types, q=0.5)
    tokens = dyck.sample(200, TorchRng(0))
    for draw in ("jointly", "in turn"):
        after = gibbs.step(dyck, tokens, MaskLaw.of_size(6, 3), TorchRng(1), draw=draw)
        assert (dyck.log_prob(after) > -math.inf).all()
        assert not torch.equal(after, tokens)
    with pytest.raises(ImpossibleEvidence):
        gibbs.step(dyck, torch.ones(1, 6, dtype=torch.long), MaskLaw.of_size(6, 1), TorchRng(1))


# ------------------------------------------------------------------ cost and traces


@pytest.mark.parametrize("draw", ["in turn", "jointly"])
def test_cost_is_what_is_counted(draw):
    masks, oracle = MaskLaw.of_size(4, 3), Counted(HMM.random(2, 2, 4, seed=0))
    expected = gibbs.cost(masks, 2, draw=draw)
    assert expected == ((3.0, 3.0) if draw == "in turn" else (7.0, 3.0))
    gibbs.step(oracle, torch.zeros(10, 4, dtype=torch.long), masks, TorchRng(0), draw=draw)
    assert (oracle.queries, oracle.calls) == (10 * expected.queries, expected.passes)


def test_cost_is_a_mean_over_blocks():
    masks = MaskLaw.weighted(3, [[0], [0, 1, 2]], [3.0, 1.0])
    assert gibbs.cost(masks, 3) == (1.5, 1.5)
    assert gibbs.cost(masks, 3, draw="jointly") == (0.75 + 13 / 4, 1.5)
    assert gibbs.cost(looking(), 2, draw="jointly") == pytest.approx((3.0, 2.0))
    uneven = MaskLaw.looking(2, [[0], [0, 1]], lambda x: x.double())
    with pytest.raises(ValueError, match="depends on the sequence"):
        gibbs.cost(uneven, 2, draw="jointly")


def test_traces_keep_statistics_and_count_questions():
    oracle = Counted(HMM.random(2, 2, 4, seed=0))
    masks = MaskLaw.of_size(4, 2)
    oracle.queries = 5  # asked before

    def move(tokens, rng):
        return gibbs.step(oracle, tokens, masks, rng)

    start = torch.zeros(3, 4, dtype=torch.long)
    found = gibbs.run(
        move,
        start,
        7,
        TorchRng(0),
        record={"ones": lambda x: x.sum(-1), "mean": lambda x: x.double().mean()},
        every=3,
        counted=oracle,
    )
    assert found.steps == [0, 3, 6, 7]
    assert found.queries == [0, 18, 36, 42]
    assert found.passes == [0, 6, 12, 14]
    assert found.values["ones"].shape == (4, 3)
    assert found.values["ones"][0].tolist() == [0, 0, 0]
    assert torch.equal(found.values["ones"][-1], found.tokens.sum(-1))
    assert found.values["mean"].shape == (4,)
    # by hand: the same seed, step by step
    again, rng = start, TorchRng(0)
    for _ in range(7):
        again = gibbs.step(oracle.oracle, again, masks, rng)
    assert torch.equal(again, found.tokens)


def test_a_budget_ends_a_run():
    oracle = Counted(HMM.random(2, 2, 4, seed=0))
    masks = MaskLaw.of_size(4, 2)
    found = gibbs.run(
        lambda x, rng: gibbs.step(oracle, x, masks, rng),
        torch.zeros(3, 4, dtype=torch.long),
        100,
        TorchRng(0),
        counted=oracle,
        budget=13,
    )
    assert found.steps == [0, 1, 2, 3]  # 6 questions a step: at 12 another one begins
    assert found.queries == [0, 6, 12, 18]
    nothing = gibbs.run(lambda x, rng: x, found.tokens, 0, TorchRng(0))
    assert (nothing.steps, nothing.queries, nothing.values) == ([0], [], {})


# ------------------------------------------------------------------ errors


class Mute:
    vocab_size = 2


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"masks": MaskLaw.of_size(4, 1)}, "blocks are of 4 positions and the sequences have 3"),
        ({"tokens": torch.zeros(0, 3, dtype=torch.long)}, "no chains"),
        ({"tokens": torch.zeros(3, dtype=torch.long)}, "2 dimensions"),
        ({"tokens": torch.zeros(1, 3)}, "long"),
        ({"masks": looking(), "draw": "in turn"}, "look at the sequence"),
        ({"draw": "jointly", "order": "random"}, "no order"),
        ({"draw": "together"}, "draw is 'together'; it must be one of 'jointly'"),
        ({"order": "backwards"}, "order is 'backwards'"),
    ],
)
def test_errors_are_sentences(change, sentence):
    given = {
        "lm": Table.random(2, 3, seed=0),
        "tokens": torch.zeros(1, 3, dtype=torch.long),
        "masks": MaskLaw.of_size(3, 1),
        "rng": TorchRng(0),
    }
    with pytest.raises(ValueError, match=sentence):
        gibbs.step(**(given | change))


@pytest.mark.usefixtures("unchecked_shapes")
def test_an_oracle_must_answer_masked_questions():
    masks = MaskLaw.of_size(3, 1)
    with refused("lm"):
        gibbs.step(Mute(), torch.zeros(1, 3, dtype=torch.long), masks, TorchRng(0))


def test_blocks_too_large_to_enumerate():
    hmm, masks = HMM.random(2, 2, 22, seed=0), MaskLaw.of_size(22, 22)
    tokens = torch.zeros(1, 22, dtype=torch.long)
    with pytest.raises(ValueError, match=r"2\^22 states.*draw='in turn'"):
        gibbs.step(hmm, tokens, masks, TorchRng(0), draw="jointly")
    assert gibbs.step(hmm, tokens, masks, TorchRng(0)).shape == (1, 22)


def test_a_run_needs_a_count_for_its_budget():
    with pytest.raises(ValueError, match="counted"):
        gibbs.run(lambda x, rng: x, torch.zeros(1, 2).long(), 3, TorchRng(0), budget=5)


@pytest.mark.cuda
def test_chains_on_a_gpu_follow_the_same_law():
    """The tolerance fails with 1e-9."""
    model, n = Ising.random(3, scale=0.7, seed=0), 40_000
    masks, start = MaskLaw.of_size(3, 2), torch.tensor([[0, 1, 0]]).expand(n, -1).cuda()
    wanted = by_definition(Table.of(model), masks)[2]
    for oracle in (model.to("cuda"), Counted(model.to("cuda"))):
        for draw in ("jointly", "in turn"):
            rng = TorchRng(0, "cuda")
            after = gibbs.step(oracle, start, masks.to("cuda"), rng, draw=draw)
            assert after.is_cuda
            rank = (after.cpu() * torch.tensor([4, 2, 1])).sum(-1)
            found = torch.bincount(rank, minlength=8) / n
            assert 0.5 * (found - wanted).abs().sum() < tv_tolerance(n, 8, failure=1e-9)
    with pytest.raises(ValueError, match=r"masks\.to\('cuda"):
        gibbs.step(model.to("cuda"), start, masks, TorchRng(0, "cuda"))
