"""Diffusion language models: denoisers, and the published samplers by their names and laws.

    from triptych import diffusion

    sampler = diffusion.EntropyBounded(gamma=0.1)
    done = sampler.sample(model, *diffusion.blank(64, 128), rng=0)

Each sampler is a file of `diffusion.samplers` with its promise; `sampler.samplers()` has them by
name. docs/diffusion.md is a tutorial.
"""

from triptych.diffusion.denoiser import Canvas as Canvas
from triptych.diffusion.denoiser import Denoiser as Denoiser
from triptych.diffusion.denoiser import ExactDenoiser as ExactDenoiser
from triptych.diffusion.denoiser import MaskedDenoiser as MaskedDenoiser
from triptych.diffusion.denoiser import RefinerDenoiser as RefinerDenoiser
from triptych.diffusion.denoiser import as_denoiser as as_denoiser
from triptych.diffusion.denoising import QuestionBudget as QuestionBudget
from triptych.diffusion.law import sampler_law as sampler_law
from triptych.diffusion.networks.diffusion_gemma import (
    DiffusionGemmaDenoiser as DiffusionGemmaDenoiser,
)
from triptych.diffusion.networks.masked_logits import MaskedLogits as MaskedLogits
from triptych.diffusion.networks.masked_logits import load_denoiser as load_denoiser
from triptych.diffusion.sampler import Denoised as Denoised
from triptych.diffusion.sampler import Sampler as Sampler
from triptych.diffusion.sampler import blank as blank
from triptych.diffusion.samplers.ancestral import Ancestral as Ancestral
from triptych.diffusion.samplers.block_gibbs import BlockGibbs as BlockGibbs
from triptych.diffusion.samplers.block_refinement import BlockRefinement as BlockRefinement
from triptych.diffusion.samplers.confidence import Confidence as Confidence
from triptych.diffusion.samplers.confident_position import ConfidentPosition as ConfidentPosition
from triptych.diffusion.samplers.entropy import Entropy as Entropy
from triptych.diffusion.samplers.entropy_bounded import EntropyBounded as EntropyBounded
from triptych.diffusion.samplers.gumbel_confidence import GumbelConfidence as GumbelConfidence
from triptych.diffusion.samplers.left_to_right import LeftToRight as LeftToRight
from triptych.diffusion.samplers.margin import Margin as Margin
from triptych.diffusion.samplers.path_planning import PathPlanning as PathPlanning
from triptych.diffusion.samplers.predictor_corrector import (
    PredictorCorrector as PredictorCorrector,
)
from triptych.diffusion.samplers.random_order import RandomOrder as RandomOrder
from triptych.diffusion.samplers.refinement import Refinement as Refinement
from triptych.diffusion.samplers.remdm import ReMDM as ReMDM
from triptych.diffusion.samplers.speculative import Speculative as Speculative
from triptych.diffusion.samplers.uniform_ancestral import UniformAncestral as UniformAncestral
from triptych.diffusion.samplers.uniform_corrector import UniformCorrector as UniformCorrector
from triptych.diffusion.samplers.uniform_entropy_bounded import (
    UniformEntropyBounded as UniformEntropyBounded,
)
