"""Algorithms of prefixes on canvases: the same laws as on a model whose positions are reordered."""

import pytest
import torch

from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law
from triptych.core.protocols import Question
from triptych.core.streams import RowStreams
from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError
from triptych.diffusion.guided.any_order import AnyOrder, even_sum
from triptych.diffusion.guided.automaton import Automaton
from triptych.diffusion.guided.canvas_decoder import CanvasDecoder, canvas_decoder
from triptych.diffusion.guided.canvas_gibbs import CanvasGibbs, law
from triptych.diffusion.guided.canvas_verifier import (
    CanvasMasks,
    CanvasVerifier,
    MasksOnCanvas,
    Regular,
)
from triptych.diffusion.guided.remasking import Remasking
from triptych.inference.guided import tokenwise
from triptych.inference.guided.adaptive import Adaptive
from triptych.inference.guided.ancestral import Ancestral
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.best_of_n import BestOfN
from triptych.inference.guided.particles import Particles
from triptych.inference.guided.rejection import Rejection
from triptych.inference.guided.tokenwise import Tokenwise
from triptych.inference.guided.vgb import Vgb

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def automaton(following, accepting):
    return Automaton(torch.tensor(following), torch.tensor(accepting))


P = Table.random(2, 3, seed=4)
NOT_BOTH = automaton([[0, 1], [0, -1]], [True, True])  # no two ones next to each other


class Reversed:
    """`Regular` of the rows that read backwards, on prefixes of three tokens: the reference."""

    def __init__(self, automaton):
        every = all_sequences(2, 3)
        self.right = every[automaton.accepts(every)].flip(1)

    def log_value(self, prefix):
        t = prefix.shape[1]
        fits = (prefix[:, None] == self.right[None, :, :t]).all(-1).any(-1)
        return torch.zeros(len(prefix), dtype=torch.float64).masked_fill(~fits, -torch.inf)


class Soft:
    """A soft value of canvases, and the same of prefixes of the reversed row."""

    def canvas_log_values(self, asked):
        ones = ((asked.tokens == 1) & ~asked.hidden).sum(-1)
        shown = (~asked.hidden).sum(-1)
        return torch.log((1.0 + ones.double()) / (1.0 + shown.double()))

    def log_value(self, prefix):
        return torch.log((1.0 + prefix.sum(-1).double()) / (1.0 + prefix.shape[1]))


ALGORITHMS = [
    Ancestral(),
    Rejection(attempts=1),
    BestOfN(n=2),
    Backtracking(quota=1),
    Vgb(steps=3, returns="last"),
]


def on_canvas(algorithm, verifier, model=P):
    def one(rng):
        decoder = CanvasDecoder(model, torch.zeros((1, model.length), dtype=torch.long))
        sampler = AnyOrder("right to left", algorithm)
        done = sampler.sample(decoder, verifier, length=model.length, rng=rng)
        return tuple(done.tokens[0].tolist()) if done.complete[0] else None

    return exact_law(one)


def reference(algorithm, verifier, model=P):
    size = [model.vocab_size] * model.length
    back = tuple(reversed(range(model.length)))
    flipped = Table(
        model.vocab_size, model.length, model.log_probs.reshape(size).permute(back).reshape(-1)
    )

    def one(rng):
        decoder = RecomputingDecoder(flipped, 1)
        done = algorithm.sample(decoder, verifier, length=model.length, rng=rng)
        return tuple(done.tokens[0].flip(0).tolist()) if done.complete[0] else None

    return exact_law(one)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_from_the_right_it_is_the_algorithm_on_the_reversed_model(algorithm):
    """Regular's exact answers on canvases, next to brute force on prefixes."""
    hard = Regular(NOT_BOTH)
    found = on_canvas(algorithm, hard)
    wanted = reference(algorithm, Reversed(NOT_BOTH))
    assert found.total_variation(wanted) < 1e-12


@pytest.mark.parametrize(
    "algorithm", [Tokenwise(tries=1, accept="value"), Vgb(steps=2, returns="last")]
)
def test_soft_values_too(algorithm):
    found = on_canvas(algorithm, Soft())
    wanted = reference(algorithm, Soft())
    assert found.total_variation(wanted) < 1e-12


def test_masks_of_a_canvas_are_used():
    """Adaptive particles draw from the mask alone, and the law is that of the language."""
    two = Table.random(2, 2, seed=1)
    found = on_canvas(Adaptive(n=1), Regular(even_sum()), two)
    assert all(x is None or sum(x) % 2 == 0 for x in found.probs)
    masked = on_canvas(Tokenwise(tries=1), Regular(NOT_BOTH))
    flipped = Table(2, 3, P.log_probs.reshape(2, 2, 2).permute(2, 1, 0).reshape(-1))
    wanted = tokenwise.law(flipped, Reversed(NOT_BOTH))
    assert masked.total_variation({x[::-1]: q for x, q in wanted.as_dict().items()}) < 1e-12


def test_masks_behind_prompts_of_different_lengths():
    """The automaton reads the completion, at its own place on the canvas."""
    decoder = canvas_decoder(P, [[1, 1], [1], []], 1, reads=3)
    verifier = MasksOnCanvas(Regular(Automaton.listing([[0]], 2)), decoder)
    rows = torch.arange(3)
    asked = Question(decoder.tokens, decoder.lengths, decoder.lengths, rows > 9, rows)
    assert verifier.masks(asked).tolist() == [[True, False]] * 3


def test_a_consistent_truth_does_not_depend_on_the_order():
    for order in ("left to right", "right to left", "random"):

        def one(rng, order=order):
            decoder = CanvasDecoder(P, torch.zeros((1, 3), dtype=torch.long))
            done = AnyOrder(order, Ancestral()).sample(decoder, None, length=3, rng=rng)
            return tuple(done.tokens[0].tolist())

        assert exact_law(one).total_variation(P.as_dict()) < 1e-12


def test_shown_tokens_stay_and_particles_are_texts():
    decoder = CanvasDecoder(P, [[0, 1, 0]] * 4, [[True, False, True]] * 4)
    done = AnyOrder("random", Particles(n=60)).sample(decoder, Regular(NOT_BOTH), length=3, rng=0)
    assert (done.tokens[:, 1] == 1).all()
    assert done.tokens.tolist() == [[0, 1, 0]] * 4
    assert done.info.particles.tokens[..., 1].eq(1).all()


def test_prefix_verifiers_hear_the_text_before_the_first_hole():
    """In a random order a verifier of prefixes says the same about full canvases."""

    class Seen:
        def __init__(self):
            self.asked = []

        def log_value(self, prefix):
            self.asked += prefix.tolist()
            return torch.where(prefix.sum(-1) % 2 == 0, 0.0, -torch.inf).double()

    seen = Seen()
    decoder = CanvasDecoder(P, torch.zeros((30, 3), dtype=torch.long))
    done = AnyOrder("random", Rejection(attempts=50)).sample(decoder, seen, length=3, rng=0)
    assert (done.tokens.sum(-1) % 2 == 0).all()
    assert done.accepted.all()
    assert all(len(row) == 3 for row in seen.asked)


# ------------------------------------------------------------------ chains and erasing


def test_gibbs_keeps_the_law_given_the_verifier():
    """The matrix of a redraw has p(x) V(x) as a fixed point, and goes there."""
    values = torch.tensor([1.0, 0.5, 0.0, 0.25, 1.0, 0.0, 0.5, 1.0], dtype=torch.float64)
    weights = P.log_probs.exp() * values
    rest = Table(2, 3, (weights / weights.sum()).log())
    many = law(P, values, 200, 2)
    assert sum(abs(many[x] - q) for x, q in rest.as_dict().items()) / 2 < 1e-9


def test_gibbs_finds_the_language_and_counts():
    decoder = CanvasDecoder(P, torch.zeros((20, 3), dtype=torch.long))
    done = CanvasGibbs(steps=20).sample(decoder, Regular(even_sum()), length=3, rng=1)
    assert done.accepted.all()
    assert (done.tokens.sum(-1) % 2 == 0).all()
    assert torch.equal(done.costs.generated - done.costs.erased, torch.full((20,), 3))
    assert (done.info.right >= 0).all()
    assert (done.info.kept > 0).any()


def test_gibbs_leaves_the_prompt():
    decoder = CanvasDecoder(P, [[1, 0, 0]] * 10, [[False, True, True]] * 10)
    done = CanvasGibbs(steps=5).sample(decoder, Regular(even_sum()), length=3, rng=1)
    assert (done.tokens[:, 0] == 1).all()


def test_remasking_keeps_what_is_not_blamed():
    decoder = CanvasDecoder(P, torch.zeros((30, 3), dtype=torch.long))
    done = Remasking(window=0, tries=60).sample(decoder, Regular(NOT_BOTH), length=3, rng=0)
    assert done.accepted.all()
    assert done.complete.all()
    assert NOT_BOTH.accepts(done.tokens).all()
    assert torch.equal(done.costs.erased, done.info.erased)
    assert torch.equal(done.costs.generated - done.costs.erased, torch.full((30,), 3))


def test_the_blamed_position_goes_alone():
    """0110 with no two ones together: position 2 is erased, and 0 at position 3 stays."""
    sure = torch.full((16,), -torch.inf, dtype=torch.float64)
    sure[0b0110] = 0.0
    decoder = CanvasDecoder(Table(2, 4, sure), torch.zeros((1, 4), dtype=torch.long))
    sampler = Remasking(window=0, tries=2)
    done = sampler.sample(decoder, Regular(NOT_BOTH), length=4, rng=0, record=True)
    erased = [event.tokens for event in done.trace if event.action == "backtrack"]
    assert erased == [(0, 1, 0)]


def test_remasking_gives_up_in_words():
    decoder = CanvasDecoder(P, torch.zeros((2, 3), dtype=torch.long))
    never = Regular(automaton([[0, 0]], [False]))
    done = Remasking(tries=3).sample(decoder, never, length=3, rng=0)
    assert not done.complete.any()
    assert all(done.reasons)


def test_protocols():
    assert isinstance(Regular(NOT_BOTH), CanvasMasks)
    assert isinstance(Soft(), CanvasVerifier)
    with pytest.raises(UserError):
        Regular("no automaton")
    with pytest.raises(UserError):
        AnyOrder("random", AnyOrder())
    with pytest.raises(UserError):
        AnyOrder("sideways")


@pytest.mark.parametrize("sampler", [CanvasGibbs(steps=3), Remasking(window=0), AnyOrder()])
def test_a_row_does_not_depend_on_its_batch(sampler):
    """With a stream for each row, four rows together and alone are the same."""
    even = Regular(even_sum())

    def made(rows):
        decoder = CanvasDecoder(P, torch.zeros((len(rows), 3), dtype=torch.long))
        rng = RowStreams(5, torch.tensor(rows))
        return sampler.sample(decoder, even, length=3, rng=rng)

    together = made([0, 1, 2, 3])
    for row in range(4):
        alone = made([row])
        assert alone.completions()[0] == together.completions()[row]
        assert alone.costs.generator_calls[0] == together.costs.generator_calls[row]
