"""diffusers' three discrete schedulers, unmodified, driven by our oracles: the same laws as ours.

One step of a scheduler from every canvas is enumerated through the door of torch (`law_of`), and
steps are multiplied. The schedulers compute probabilities in float32. As they stand they agree with
ours to single precision; where Tensor.float gives doubles instead, to 1e-12.

diffusers is in the environment of `make laws`; `make test-diffusion-peers` runs this there.
"""

import itertools

import pytest
import torch

from triptych.core.enumeration import exact_law
from triptych.core.table import Table
from triptych.diffusion.denoiser import Canvas, ExactDenoiser
from triptych.diffusion.law import sampler_law
from triptych.diffusion.sampler import blank
from triptych.diffusion.samplers.block_refinement import BlockRefinement
from triptych.diffusion.samplers.uniform_ancestral import UniformAncestral
from triptych.diffusion.samplers.uniform_corrector import UniformCorrector
from triptych.diffusion.samplers.uniform_entropy_bounded import UniformEntropyBounded
from triptych.laws.program import law_of

diffusers = pytest.importorskip("diffusers", reason="needs diffusers: make test-diffusion-peers")

SINGLE, EXACT = 2e-6, 1e-12
TABLE = Table.random(3, 2, seed=0)
TEXTS = list(itertools.product(range(3), repeat=2))
PRECISIONS = [
    pytest.param((False, SINGLE), id="as it stands"),
    pytest.param((True, EXACT), id="doubles"),
]


@pytest.fixture
def precision(request, monkeypatch):
    """How near the laws must be; with doubles, Tensor.float keeps them."""
    doubles, reach = request.param
    if doubles:
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    return reach


def answers(z, survival):
    """What the truth says of a noisy canvas, as logits."""
    tokens = torch.tensor([z])
    every = torch.ones_like(tokens, dtype=torch.bool)
    canvas = Canvas(tokens, ~every, every, survival, 0, len(z), torch.arange(1))
    return ExactDenoiser(TABLE).clean_log_probs(canvas, every).reshape(1, len(z), -1)


def after(law, step):
    """The law after a step from every canvas."""
    found = {}
    for z, mass in law.items():
        for x, chance in law_of(lambda z=z: step(z)).probs.items():
            found[x] = found.get(x, 0.0) + mass * chance
    return found


def distance(p, q):
    return 0.5 * sum(abs(p.get(x, 0.0) - q.get(x, 0.0)) for x in {*p, *q})


@pytest.mark.parametrize("precision", PRECISIONS, indirect=True)
def test_discrete_ddim_is_uniform_ancestral(precision, unchecked_shapes):
    steps = 3
    scheduler = diffusers.DiscreteDDIMScheduler(num_inference_steps=steps)
    law = dict.fromkeys(TEXTS, 1 / 9)
    for number in range(steps):

        def step(z, number=number):
            sample = torch.tensor([z])
            done = scheduler.step(answers(z, number / steps), number, sample, temperature=1.0)
            return tuple(done.prev_sample[0].tolist())

        law = after(law, step)
    ours = sampler_law(UniformAncestral(steps=steps), TABLE, *blank(1, 2))
    assert distance(law, ours.probs) < precision


@pytest.mark.parametrize("precision", PRECISIONS, indirect=True)
@pytest.mark.parametrize(
    "choice", ["random", "lowest_log_margin", "lowest_current_prob", "lowest_maxprob"]
)
def test_its_corrector_is_ours_with_every_choice(choice, precision, unchecked_shapes):
    steps = 2
    scheduler = diffusers.DiscreteDDIMScheduler(
        num_inference_steps=steps, corrector_steps=1, corrector_selection=choice
    )
    law = dict.fromkeys(TEXTS, 1 / 9)
    for number in range(steps):

        def step(z, number=number):
            sample = torch.tensor([z])
            done = scheduler.step(answers(z, number / steps), number, sample, temperature=1.0)
            return tuple(done.prev_sample[0].tolist())

        def correct(z, number=number):
            level = (number + 1) / steps
            done = scheduler.step_correct(answers(z, level), number, torch.tensor([z]))
            return tuple(done.prev_sample[0].tolist())

        law = after(law, step)
        if number + 1 < steps:
            law = after(law, correct)
    ours = sampler_law(UniformCorrector(steps=steps, choice=choice), TABLE, *blank(1, 2))
    assert distance(law, ours.probs) < precision


@pytest.mark.parametrize("precision", PRECISIONS, indirect=True)
@pytest.mark.parametrize("bound", [0.0, 0.4, 2.0])
def test_a_step_of_the_entropy_bound_is_ours(bound, precision, unchecked_shapes):
    """From every canvas of one position each and in every step: what is accepted, and the noise."""
    steps = 2
    scheduler = diffusers.EntropyBoundScheduler(entropy_bound=bound, num_inference_steps=steps)
    sampler = UniformEntropyBounded(steps=steps, bound=bound, stability=None)

    class Level(ExactDenoiser):
        """The truth at half noise, whatever the sampler says."""

        def clean_log_probs(self, canvas, asked):
            return super().clean_log_probs(Canvas(**{**vars(canvas), "survival": 0.5}), asked)

    for z, number in itertools.product(TEXTS, range(steps)):

        def theirs(z=z, number=number):
            done = scheduler.step(answers(z, 0.5), number, torch.tensor([z]))
            return tuple(done.prev_sample[0].tolist())

        def ours(rng, z=z, number=number):
            run, blocks = sampler.start(Level(TABLE), [list(z)], [[True, True]], rng)
            run.free, run.open = blocks[0], torch.tensor([True])
            run.tokens, run.masked = torch.tensor([z]), torch.zeros(1, 2).bool()
            sampler.step(run, number)
            return tuple(run.tokens[0].tolist())

        assert distance(law_of(theirs).probs, exact_law(ours).probs) < precision


@pytest.mark.parametrize("precision", PRECISIONS, indirect=True)
@pytest.mark.parametrize("threshold", [0.55, 1.0])
def test_block_refinement_is_ours(threshold, precision, unchecked_shapes):
    truth, steps, mask = Table.random(2, 3, seed=0), 2, 2
    scheduler = diffusers.BlockRefinementScheduler(
        block_length=3, num_inference_steps=steps, threshold=threshold
    )
    scheduler.set_timesteps(steps, block_length=3)
    law = {(mask,) * 3: 1.0}
    for number in range(steps):

        def step(z, number=number):
            tokens = torch.tensor([z])
            hidden = tokens == mask
            logits = truth.masked_log_probs(tokens.masked_fill(hidden, 0), hidden)
            done = scheduler.step(
                logits,
                number,
                tokens,
                mask_token_id=mask,
                temperature=1.0,
                sampling_method="multinomial",
            )
            return tuple(done.prev_sample[0].tolist())

        law = after(law, step)
    ours = sampler_law(BlockRefinement(steps=steps, threshold=threshold), truth, *blank(1, 3))
    assert distance(law, ours.probs) < precision
