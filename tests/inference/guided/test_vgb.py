"""The walk of VGB over a batch: what it returns, what it remembers, what it costs."""

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law, exact_transition_matrix
from triptych.core.randomness import TorchRng
from triptych.core.streams import RowStreams
from triptych.core.table import Table
from triptych.inference.guided import generation, vgb
from triptych.inference.guided.generation import VerifierError
from triptych.inference.guided.transforms import nucleus, top_k
from triptych.inference.guided.visited import VisitedTree


class Wavy:
    """Positive values with no structure, above and below 1."""

    def log_value(self, prefix):
        place = torch.arange(1.0, prefix.shape[1] + 1, dtype=torch.float64)
        return torch.sin(1.0 + (prefix + 1.0).double() @ place)


class NoOnes:
    def log_value(self, prefix):
        return torch.where((prefix == 1).any(-1), -torch.inf, 0.0).double()


class Big:
    """A large vocabulary: token k has weight 1 / (k + 1), whatever came before."""

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size
        weights = -torch.arange(1.0, vocab_size + 1, dtype=torch.float64).log()
        self.log_probs = weights.log_softmax(0)

    def next_token_log_probs(self, prefix):
        return self.log_probs.expand(len(prefix), -1)


TABLE = Table.random(vocab_size=3, length=5, seed=1)
PROMPTS = torch.tensor([[0, 1], [2, -1], [-1, -1], [1, 1]])


def walk(rows=None, **options):
    rows = torch.arange(len(PROMPTS)) if rows is None else rows
    decoder = RecomputingDecoder(TABLE, len(rows))
    decoder.extend(PROMPTS[rows])
    options = {"length": 5, "steps": 300, "rng": RowStreams(3, rows), **options}
    return vgb.sample(decoder, options.pop("value", Wavy()), **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lazy": False},
        {"returns": "last", "steps": 17},
        {"returns": "uniform", "steps": 30, "restarts": 5},
        {"transform": nucleus(0.7)},
        {"remember": False},
        {"share": True},
        {"end_token": 2},
        {"outcome": NoOnes(), "value": Wavy()},
    ],
    ids=lambda options: ", ".join(options) or "plain",
)
def test_a_row_walks_alike_alone_and_among_others(options):
    options = {"steps": 100, **options}
    together = walk(**options)
    for row in range(len(PROMPTS)):
        alone = walk(torch.tensor([row]), **options)
        assert alone.completions()[0] == together.completions()[row]
        assert alone.info.steps[0] == together.info.steps[row]


def test_memory_changes_the_cost_and_nothing_else():
    remembering, forgetting = walk(), walk(remember=False)
    assert remembering.completions() == forgetting.completions()
    assert torch.equal(remembering.info.steps, forgetting.info.steps)
    assert torch.equal(remembering.costs.generated, forgetting.costs.generated)
    assert remembering.costs.generator_calls.sum() < forgetting.costs.generator_calls.sum()


def test_every_visited_inner_node_is_asked_about_once():
    result = walk(returns="last", steps=500, record=True)
    for row in range(len(PROMPTS)):
        places = {event.tokens for event in result.trace if event.row == row} | {()}
        full = 5 - int(result.prompt_lengths[row])
        inner = {place for place in places if len(place) < full}
        asked = int(result.costs.generator_calls[row])
        assert len(inner) - 1 <= asked <= len(inner)  # the last node may not have been left
        assert int(result.costs.verifier_calls[row]) == 3 * asked


def test_rows_with_one_prompt_can_share_their_memory():
    def run(share):
        decoder = RecomputingDecoder(TABLE, 6)
        rng = RowStreams(0, torch.arange(6))
        return vgb.sample(decoder, Wavy(), length=5, steps=200, share=share, rng=rng)

    apart, shared = run(False), run(True)
    assert apart.completions() == shared.completions()
    assert shared.costs.generator_calls.sum() < apart.costs.generator_calls.sum()


def test_a_hard_value_is_never_left_and_the_first_leaf_is_right():
    result = walk(value=NoOnes(), rows=torch.tensor([1, 2]))
    assert result.complete.all()
    assert all(1 not in row for row in result.completions())


def test_restarts_until_a_leaf():
    once = walk(returns="last", steps=20)
    often = walk(returns="last", steps=20, restarts=200)
    assert not once.complete.all()
    assert often.complete.all()
    assert (often.info.restarts <= 200).all()
    assert torch.equal(often.info.steps, 20 * (often.info.restarts + 1))


def test_first_leaf_stops_where_it_is():
    result = walk(record=True)
    last = {event.row: event for event in result.trace}
    for row, text in enumerate(result.completions()):
        assert last[row].tokens == text
        assert last[row].action == "down"


def test_a_full_prompt_is_a_leaf_at_once():
    decoder = RecomputingDecoder(TABLE, 2)
    decoder.extend(torch.tensor([[0, 1, 2, 0, 1], [0, 1, -1, -1, -1]]))
    result = vgb.sample(decoder, Wavy(), length=5, steps=500, rng=TorchRng(0))
    assert result.completions()[0] == ()
    assert result.info.steps[0] == 0
    assert result.complete.all()


def test_the_exact_outcome_rules_the_leaves():
    """Fair bits of length 1, τ(0) = 1, τ(1) = 3: the first leaf is 1 with probability ¾."""
    coin = Table(2, 1, torch.tensor([0.5, 0.5], dtype=torch.float64).log())

    class Status:
        def log_value(self, prefix):
            return (prefix[:, -1] * 2.0 + 1.0).double().log()

    class Never:
        def log_value(self, prefix):
            raise AssertionError("leaves are the outcome's")

    def one(rng):
        decoder = RecomputingDecoder(coin, 1)
        result = vgb.sample(
            decoder, Never(), length=1, steps=1, lazy=False, outcome=Status(), rng=rng
        )
        return result.completions()[0]

    law = exact_law(one)
    assert law.probs[(1,)] == pytest.approx(0.75, abs=1e-12)


def test_a_vocabulary_of_fifty_thousand():
    """Children are those of the nucleus; the result says how much of the model was cut."""
    asked = []

    class Counting:
        def log_value(self, prefix):
            asked.append(len(prefix))
            return torch.zeros(len(prefix), dtype=torch.float64)

    decoder = RecomputingDecoder(Big(50_000), 4)
    result = vgb.sample(
        decoder, Counting(), length=3, steps=400, transform=top_k(20), rng=TorchRng(0)
    )
    kept = Big(50_000).log_probs[:20].exp().sum()
    assert result.complete.all()
    assert max(asked) <= 4 * 20
    assert result.info.cut_mass.max() == pytest.approx(1 - float(kept), abs=1e-9)
    assert result.tokens.max() < 20


def test_children_are_asked_about_in_parts(monkeypatch):
    """A verifier that reads a decoder has a copy of the row for every child: a few at once."""
    held = []

    class FromDecoder:
        layer = None

        def log_values(self, asked):
            decoder, rows = asked.decoder, asked.at
            held.append(len(rows))
            pairs = zip(decoder.tokens[rows], decoder.lengths[rows].tolist(), strict=True)
            return torch.cat([Wavy().log_value(x[None, :t]) for x, t in pairs])

    def found():
        model = Table.random(vocab_size=5, length=4, seed=1)
        options = {"length": 4, "steps": 60, "rng": 3}
        return vgb.sample(RecomputingDecoder(model, 3), FromDecoder(), **options)

    whole = found()
    assert max(held) > 2
    held.clear()
    monkeypatch.setattr(generation, "CHILDREN", 2)
    parts = found()
    assert max(held) == 2
    assert torch.equal(parts.tokens, whole.tokens)
    assert torch.equal(parts.costs.verifier_calls, whole.costs.verifier_calls)


def test_uncut_models_say_so():
    info = walk().info
    assert (info.cut_mass == 0).all()
    assert (info.covered == 1).all()
    assert (info.asked == 3).all()


def test_the_default_bound_on_fifty_thousand_tokens():
    """64 children at most, the likeliest; the mass they have is in the result."""
    model = Big(50_000)
    result = vgb.sample(RecomputingDecoder(model, 2), Wavy(), length=3, steps=400, rng=0)
    assert result.complete.all()
    assert result.info.asked.tolist() == [64, 64]
    kept = float(model.log_probs[:64].exp().sum())
    assert result.info.covered.tolist() == pytest.approx([kept, kept], abs=1e-9)
    assert result.tokens.max() < 64
    looked = result.costs.generator_calls
    assert result.costs.verifier_calls.tolist() == (64 * looked).tolist()


def test_candidates_by_hand():
    """(½, 3/10, 1/5) and two candidates: 5/8 and 3/8, and 1/5 is cut away."""
    coin = Table(3, 1, torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log())
    said = []

    def one(rng):
        decoder = RecomputingDecoder(coin, 1)
        result = vgb.sample(decoder, Ones(), length=1, steps=1, lazy=False, candidates=2, rng=rng)
        said.append((result.info.asked.item(), result.info.covered.item()))
        return result.completions()[0]

    assert exact_law(one).probs == pytest.approx({(0,): 5 / 8, (1,): 3 / 8})
    assert said[0] == (2, pytest.approx(0.8))


class Ones:
    def log_value(self, prefix):
        return torch.zeros(len(prefix), dtype=torch.float64)


def test_a_bound_that_cuts_nothing_changes_nothing():
    """Bit for bit, memory included; and a bound is the same as the transform that cuts alike."""
    free = walk(candidates=None, steps=40)
    for bound in (3, 10**9):
        bounded = walk(candidates=bound, steps=40)
        assert bounded.tokens.tolist() == free.tokens.tolist()
        assert bounded.info.steps.tolist() == free.info.steps.tolist()
        assert bounded.costs.verifier_calls.tolist() == free.costs.verifier_calls.tolist()
    cut, transformed = walk(candidates=2, steps=40), walk(transform=top_k(2), steps=40)
    assert cut.tokens.tolist() == transformed.tokens.tolist()
    assert cut.info.cut_mass.tolist() == transformed.info.cut_mass.tolist()
    assert cut.tokens.tolist() != free.tokens.tolist()


def test_leaves_of_a_cut_walk_have_the_law_of_the_cut_model():
    """The left eigenvector of the walk on the cut tree, at the leaves: p'(x) V(x), normalised."""
    cut = vgb._on_candidates(Table.random(vocab_size=3, length=2, seed=3), 2)
    assert cut.log_probs.logsumexp(0).item() == pytest.approx(0.0, abs=1e-12)
    leaves = {x: q for x, q in cut.as_dict().items() if q > 0}
    assert len(leaves) == 4
    tree = sorted({x[:t] for x in leaves for t in range(3)})
    matrix = exact_transition_matrix(
        tree, lambda node, rng: vgb.walk_step(node, cut, Wavy(), 2, rng)
    )
    weights = dict(zip(tree, torch.linalg.matrix_power(matrix, 2**12)[0].tolist(), strict=True))
    wanted = {x: q * Wavy().log_value(torch.tensor([x])).exp().item() for x, q in leaves.items()}
    ratios = [weights[x] / wanted[x] for x in leaves]
    assert ratios == pytest.approx([ratios[0]] * 4, rel=1e-9)


def test_a_row_with_nowhere_to_walk_stops_and_the_others_go_on():
    class NothingAfterOne:
        def log_value(self, prefix):
            return torch.where(prefix[:, 0] == 1, -torch.inf, 0.0).double()

    result = walk(value=NothingAfterOne())  # the last prompt is 1, 1
    assert result.info.stuck.tolist() == [False, False, False, True]
    assert result.complete.tolist() == [True, True, True, False]
    assert result.completions()[3] == ()


def test_bad_options_are_answered_by_a_sentence():
    with refused("steps"):
        walk(steps=0)
    with refused("restarts"):
        walk(restarts=-1)


def test_a_value_that_is_nan_names_the_prefix():
    class Broken:
        def log_value(self, prefix):
            return torch.full((len(prefix),), torch.nan, dtype=torch.float64)

    with pytest.raises(VerifierError, match=r"log V = nan") as caught:
        walk(value=Broken(), rows=torch.tensor([0]))
    assert caught.value.prefix[:2] == (0, 1)
    assert caught.value.partial.tokens.shape == (1, 2)


def test_a_visited_tree_by_hand():
    """Root with p = (¼, ¾), V = (1, 2): moves to the children 1/7 and 6/7; from child 1, whose V is
    2, with p = (1, 0) and V = (4, ·) below: back with ⅓, on with ⅔."""
    tree = VisitedTree(1, torch.device("cpu"))
    here = torch.tensor([0])
    tree.look_into(
        here,
        torch.tensor([[0.25, 0.75]], dtype=torch.float64).log(),
        torch.tensor([[1.0, 2.0]], dtype=torch.float64).log(),
    )
    assert torch.allclose(tree.moves[0].exp(), torch.tensor([0, 1 / 7, 6 / 7]).double())
    child = tree.enter(here, torch.tensor([1]), torch.tensor([False]))
    assert int(child) == 1
    assert tree.log_value[1].exp() == pytest.approx(2)
    tree.look_into(
        child,
        torch.tensor([[0.0, -torch.inf]], dtype=torch.float64),
        torch.tensor([[4.0, 9.0]], dtype=torch.float64).log(),
    )
    assert torch.allclose(tree.moves[1].exp(), torch.tensor([1 / 3, 2 / 3, 0]).double())
    assert int(tree.enter(here, torch.tensor([1]), torch.tensor([False]))) == 1  # not made twice
    leaf = tree.enter(child, torch.tensor([0]), torch.tensor([True]))
    tree.close(leaf)
    assert torch.allclose(tree.moves[int(leaf)].exp(), torch.tensor([1.0, 0, 0]).double())
