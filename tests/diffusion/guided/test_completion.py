"""Exact completion: laws by enumeration, evidence that is unbiased, and what cannot run."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych.core.enumeration import exact_law
from triptych.core.randomness import TorchRng
from triptych.core.streams import RowStreams
from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError
from triptych.diffusion.guided.any_order import even_sum
from triptych.diffusion.guided.automaton import Automaton
from triptych.diffusion.guided.canvas_decoder import CanvasDecoder, canvas_decoder
from triptych.diffusion.guided.canvas_verifier import Regular
from triptych.diffusion.guided.completion import Completion
from triptych.diffusion.guided.completion_law import CompletionLaw, product_chain
from triptych.diffusion.law import sampler_law
from triptych.diffusion.samplers.left_to_right import LeftToRight
from triptych.structures.hidden_markov.hmm import HMM

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def automaton(following, accepting):
    return Automaton(torch.tensor(following), torch.tensor(accepting))


EVEN = Regular(even_sum())


def law_of(sampler, model, tokens, hidden, verifier=EVEN, **more):
    """The exact law of the text of one row; None where there is none."""
    tokens, hidden = torch.tensor([tokens]), torch.tensor([hidden])

    def one(rng):
        decoder = CanvasDecoder(model, tokens, hidden, **more)
        done = sampler.sample(decoder, verifier, length=tokens.shape[1], rng=rng)
        return tuple(done.tokens[0].tolist()) if done.complete[0] else None

    return exact_law(one)


def restricted(table, tokens, hidden, automaton, start=0):
    """p(x | shown, the completion is in L), by enumeration."""
    probs = {}
    for x, q in table.as_dict().items():
        shown = all(h or a == b for a, b, h in zip(x, tokens, hidden, strict=True))
        if shown and q > 0 and bool(automaton.accepts([x[start:]])[0]):
            probs[x] = q
    return {x: q / sum(probs.values()) for x, q in probs.items()}


@given(st.integers(0, 200))
@settings(max_examples=25)
def test_mass_and_draws_of_a_product(seed):
    """Forward-backward against a sum over all rows."""
    generator = torch.Generator().manual_seed(seed)
    laws = torch.rand(2, 3, 3, generator=generator, dtype=torch.float64).log_softmax(-1)
    following = torch.randint(-1, 3, (3, 3), generator=generator)
    automaton = Automaton(following, torch.rand(3, generator=generator) < 0.6)
    every = all_sequences(3, 3)
    probs = laws[:, torch.arange(3), every].sum(-1).exp() * automaton.accepts(every)
    law = CompletionLaw(product_chain(laws), automaton)
    assert torch.allclose(law.log_mass.exp(), probs.sum(-1), atol=1e-14)
    for row in range(2):
        if probs[row].sum() == 0:
            continue
        one = CompletionLaw(product_chain(laws[row : row + 1]), automaton)
        drawn = exact_law(
            lambda rng, one=one: tuple(one.draw(rng, torch.zeros(1).long())[0].tolist())
        )
        target = dict(
            zip(map(tuple, every.tolist()), (probs[row] / probs[row].sum()).tolist(), strict=True)
        )
        assert drawn.total_variation(target) < 1e-12


def test_worked_values():
    half = torch.full((1, 2, 2), 0.5, dtype=torch.float64).log()
    law = CompletionLaw(product_chain(half), even_sum())
    assert law.log_mass.tolist() == pytest.approx([math.log(0.5)])
    twins = Table(2, 2, torch.tensor([0.5, 0.0, 0.0, 0.5], dtype=torch.float64).log())
    some_one = Regular(automaton([[0, 1], [1, 1]], [False, True]))
    once = law_of(Completion(), twins, [0, 0], [True, True], some_one)
    assert once.probs == pytest.approx({(0, 1): 1 / 3, (1, 0): 1 / 3, (1, 1): 1 / 3})
    twice = law_of(Completion(steps=2), twins, [0, 0], [True, True], some_one)
    assert twice.probs == pytest.approx({(1, 1): 2 / 3, None: 1 / 3})


def test_long_rows_do_not_underflow():
    laws = torch.full((1, 1000, 2), 0.5, dtype=torch.float64).log()
    only_zeros = automaton([[0, -1]], [True])
    law = CompletionLaw(product_chain(laws), only_zeros)
    assert law.log_mass.tolist() == pytest.approx([1000 * math.log(0.5)])
    assert not law.draw(TorchRng(0), torch.zeros(1).long()).any()


# ------------------------------------------------------------------ hidden Markov models


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("start", [0, 2])
def test_a_hidden_markov_model_is_exact(seed, start):
    """p(x | shown, x in L) on a canvas with a prompt and a token in the middle."""
    hmm = HMM.random(2, 2, 4, seed=seed)
    tokens, hidden = [1, 0, 1, 0], [start == 0, start == 0, False, True]
    verifier = Regular(even_sum())
    found = law_of(Completion(), hmm, tokens, hidden, verifier, starts=[start])
    target = restricted(Table.of(hmm), tokens, hidden, verifier.automaton, start)
    assert found.total_variation(target) < 1e-12


def test_the_worked_value_of_the_chain():
    hmm = HMM(
        [0.5, 0.5], [[0.75, 0.25], [0.25, 0.75]], [[1, 0], [0.5, 0.5]], length=2
    )  # p(01) = 5/32 by hand; p(10) = ½ · ½ · (¼ + ¾ · ½) = 5/32
    found = law_of(
        Completion(),
        hmm,
        [0, 0],
        [True, True],
        Regular(Automaton.listing([[0, 1], [1, 0], [1, 1]], 2)),
    )
    p11 = 0.5 * 0.5 * 0.75 * 0.5
    total = 10 / 32 + p11
    assert found.probs == pytest.approx(
        {(0, 1): 5 / 32 / total, (1, 0): 5 / 32 / total, (1, 1): p11 / total}
    )


def test_evidence_of_a_hidden_markov_model():
    hmm = HMM.random(3, 2, 4, seed=5)
    table = Table.of(hmm)
    decoder = CanvasDecoder(hmm, [[1, 0, 0, 0]], [[False, True, True, True]])
    done = Completion().sample(decoder, EVEN, length=4, rng=0)
    given_one = {x: q for x, q in table.as_dict().items() if x[0] == 1}
    even = sum(q for x, q in given_one.items() if sum(x[1:]) % 2 == 0) / sum(given_one.values())
    assert float(done.info.log_normaliser[0]) == pytest.approx(math.log(even))
    assert done.info.exact


# ------------------------------------------------------------------ rounds and particles


@pytest.mark.parametrize(
    ("steps", "n", "length"), [(None, 1, 3), (2, 1, 3), (None, 2, 2), (1, 2, 2)]
)
def test_the_mean_weight_is_unbiased(steps, n, length):
    """E[mean weight] = P(L) under the same rounds without a language, by enumeration."""
    p = Table.random(2, length, seed=3)

    def one(rng):
        decoder = CanvasDecoder(p, torch.zeros((1, length), dtype=torch.long))
        sampler = Completion(steps=steps, n=n, ess=1.0)
        return float(sampler.sample(decoder, EVEN, length=length, rng=rng).info.log_normaliser[0])

    found = exact_law(one)
    schedule = {"steps": steps, "schedule": "larger first"} if steps else {}
    free = sampler_law(LeftToRight(**schedule), p, torch.zeros((1, length), dtype=torch.long))
    even = sum(q for x, q in free.probs.items() if sum(x) % 2 == 0)
    assert sum(math.exp(v) * q for v, q in found.probs.items()) == pytest.approx(even, abs=1e-12)


def test_particles_bring_the_law_nearer():
    """One position a round: with more particles nearer to p(x | L), and in the language always."""
    p = Table.random(2, 2, seed=8)
    target = restricted(p, [0, 0], [True, True], even_sum())
    far = [
        law_of(Completion(steps=None, n=n, ess=0.0), p, [0, 0], [True, True]).total_variation(
            target
        )
        for n in (1, 2, 3)
    ]
    assert far[0] > far[1] > far[2] > 0


@pytest.mark.parametrize("order", ["random", "right to left"])
@pytest.mark.parametrize("steps", [1, 2, None])
def test_what_comes_out_is_in_the_language(order, steps):
    p = Table.random(3, 4, seed=1)
    language = Regular(Automaton.listing([[0, 1, 2, 0], [1, 1, 0, 2], [2, 0, 0, 0]], 3))
    decoder = CanvasDecoder(p, torch.zeros((40, 4), dtype=torch.long))
    done = Completion(steps=steps, order=order).sample(decoder, language, length=4, rng=0)
    assert done.complete.all()
    assert done.accepted.all()
    assert language.automaton.accepts(done.tokens).all()
    assert torch.equal(done.costs.generated, torch.full((40,), 4))
    assert done.costs.forward_passes == (steps or 4)


def test_a_row_does_not_depend_on_its_batch():
    p = Table.random(2, 4, seed=1)
    sampler = Completion(steps=2, order="random", n=2)
    rows = [[], [1], [0, 1]]
    decoder = canvas_decoder(p, rows, 2, reads=4)
    streams = RowStreams(0, torch.arange(3))
    together = sampler.sample(decoder, EVEN, length=[2, 3, 4], rng=streams)
    for b, row in enumerate(rows):
        alone = sampler.sample(
            canvas_decoder(p, [row], 2, reads=4),
            EVEN,
            length=[len(row) + 2],
            rng=RowStreams(0, torch.tensor([b])),
        )
        assert alone.completions()[0] == together.completions()[b]


def test_an_empty_language_dies():
    p = Table.random(2, 2, seed=0)
    nothing = Regular(automaton([[0, 0]], [False]))
    done = Completion(n=2).sample(CanvasDecoder(p, [[0, 0]]), nothing, length=2, rng=0)
    assert not done.complete[0]
    assert done.info.died[0]
    assert done.info.log_normaliser.tolist() == [-math.inf]
    assert done.reasons[0]


def test_what_cannot_run():
    p = Table.random(2, 2, seed=0)

    class Soft:
        def log_value(self, prefix):
            return torch.zeros(len(prefix)).double()

    with pytest.raises(UserError, match="regular"):
        Completion().sample(CanvasDecoder(p, [[0, 0]]), Soft(), length=2, rng=0)
    other = Regular(automaton([[0, 0, 0]], [True]))
    with pytest.raises(UserError, match="3 tokens"):
        Completion().sample(CanvasDecoder(p, [[0, 0]]), other, length=2, rng=0)
    from triptych.core.decoders import RecomputingDecoder

    with pytest.raises(UserError, match="canvas"):
        Completion().sample(RecomputingDecoder(p, 1), EVEN, length=2, rng=0)
    decoder = CanvasDecoder(p, [[0, 0]]).fork(torch.tensor([0, 0]))
    with pytest.raises(UserError, match="copies"):
        Completion().sample(decoder, EVEN, length=2, rng=0)


def test_regular_is_a_verifier_of_prefixes_too():
    """Masks and values from left to right, against a look at all continuations up to four."""
    generator = torch.Generator().manual_seed(3)
    following = torch.randint(-1, 4, (4, 2), generator=generator)
    automaton = Automaton(following, torch.tensor([False, True, False, False]))
    from triptych.core.protocols import Question

    verifier = Regular(automaton)
    for t in range(3):
        prefixes = all_sequences(2, t) if t else torch.zeros((1, 0), dtype=torch.long)
        values = verifier.log_values(Question.about(prefixes))
        masks = verifier.masks(Question.about(prefixes))
        for row, value, mask in zip(
            prefixes.tolist(), values.tolist(), masks.tolist(), strict=True
        ):
            longer = [
                [*row, *more] for n in range(5) for more in itertools.product((0, 1), repeat=n)
            ]
            right = [x for x in longer if bool(automaton.accepts([x])[0])] if t else None
            if right is not None:
                assert (value == 0.0) == bool(right)
                for token in (0, 1):
                    assert mask[token] == any(len(x) > t and x[t] == token for x in right)
