"""Triptych: how structure in data meets training and inference in language models, exactly.

    import triptych

    hmm = triptych.HMM.random(states=4, vocab=5, length=12, seed=0)
    tokens = hmm.sample(100, rng=0)
    hmm.log_prob(tokens)

Each of these names is loaded when it is first used, and has a help of its own.

Structures, whose truth is known exactly
    HMM, MemoryHMM, Markov, Topics, LDA, Dyck, CFG, Ising, Uniform; Table has every probability of a
    small one. All sample, and answer log_prob, next_token_log_probs and masked_log_probs.
Models, which answer the same questions
    Transformer of a Shape, as CausalLM or MaskedLM; of Hugging Face, PretrainedCausalLM and
    PretrainedMaskedLM.
Guide a language model, text in and text out
    guide(model, prompts, verifier, Backtracking(quota=4), max_new_tokens=40): the verifier is a
    function of the text. Adaptive, Ancestral, Backtracking, BestOfN, Blocks, Greedy, Majority,
    Particles, Rejection, Tokenwise and Vgb are the algorithms; Sampling has temperature, top_p,
    top_k, min_p. guide_each gives a completion at a time, guide_stream what happens.
    TextRule makes such a function a verifier of tokens; RewardModel is a classifier of Hugging Face
    as a verifier, ProcessReward one that judges steps, in a form of step_forms; train_probe makes
    one from good and bad texts. calibrate says by roll-outs how wrong a verifier is. hf has every
    algorithm as custom_generate of model.generate, and a logits processor.
Training and adapting them
    fit trains by a Recipe; objectives has what to predict, gap_meter says how far from the truth;
    Tuning adapts a model by a head or a soft prompt with a head.
Randomness and laws
    TorchRng, or a whole number in its place, the seed: rng=0. exact_law turns a small random
    program into its law; check_structure and check_sampler try the axioms on your own; MaskLaw
    says which positions are hidden, or redrawn, together.
Laws of anybody's sampler
    law_of(program) is the exact law of a program of torch, numpy or Python's random, as it stands:
    a Law. kernel_of(step, states) is the same for a chain; certify_by_draws tests what cannot be
    entered. pytest finds the fixtures assert_law, assert_invariant and certify_by_draws.
Guided generation on exact models, one module each with `sample`
    ancestral, rejection, tokenwise, backtracking, best_of_n, blocks, particles, adaptive, vgb; the
    model is a RecomputingDecoder of anything with next_token_log_probs, the verifier a Rule or a
    value.
Samplers of full sequences, one module each
    gibbs redraws blocks of positions, parallel draws many positions at once.
Diffusion language models
    diffusion has the published samplers by their names: diffusion.EntropyBounded().sample(model,
    *diffusion.blank(64, 128), rng=0). A model is a Denoiser, or any structure or masked LM;
    load_denoiser reads one of Hugging Face. sampler_law is the exact law of a sampler on a small
    model.
Studies of your own
    Study, Settings, Unit, Rows, Claim, Scale; checks of a judge: triptych.studies.api.decide; for
    figures: Figure, Panel, Series, Heatmap. A notebook draws them.

On the command line: triptych --help; triptych generate guides a model over a file of prompts.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from triptych import diffusion as diffusion
    from triptych import hf as hf
    from triptych.adaptation.prompts import Tuning as Tuning
    from triptych.core.axioms import check_sampler as check_sampler
    from triptych.core.axioms import check_structure as check_structure
    from triptych.core.decoders import RecomputingDecoder as RecomputingDecoder
    from triptych.core.enumeration import exact_law as exact_law
    from triptych.core.mask_laws import MaskLaw as MaskLaw
    from triptych.core.randomness import TorchRng as TorchRng
    from triptych.core.table import Table as Table
    from triptych.diffusion.denoiser import Denoiser as Denoiser
    from triptych.diffusion.law import sampler_law as sampler_law
    from triptych.diffusion.networks.masked_logits import load_denoiser as load_denoiser
    from triptych.guidance.calibrate import calibrate as calibrate
    from triptych.guidance.guide import guide as guide
    from triptych.guidance.guide import guide_each as guide_each
    from triptych.guidance.probes import train_probe as train_probe
    from triptych.guidance.streaming import guide_stream as guide_stream
    from triptych.inference.chains import gibbs as gibbs
    from triptych.inference.chains import parallel as parallel
    from triptych.inference.guided import adaptive as adaptive
    from triptych.inference.guided import ancestral as ancestral
    from triptych.inference.guided import backtracking as backtracking
    from triptych.inference.guided import best_of_n as best_of_n
    from triptych.inference.guided import blocks as blocks
    from triptych.inference.guided import particles as particles
    from triptych.inference.guided import rejection as rejection
    from triptych.inference.guided import tokenwise as tokenwise
    from triptych.inference.guided import vgb as vgb
    from triptych.inference.guided.adaptive import Adaptive as Adaptive
    from triptych.inference.guided.ancestral import Ancestral as Ancestral
    from triptych.inference.guided.backtracking import Backtracking as Backtracking
    from triptych.inference.guided.best_of_n import BestOfN as BestOfN
    from triptych.inference.guided.blocks import Blocks as Blocks
    from triptych.inference.guided.greedy import Greedy as Greedy
    from triptych.inference.guided.majority import Majority as Majority
    from triptych.inference.guided.particles import Particles as Particles
    from triptych.inference.guided.rejection import Rejection as Rejection
    from triptych.inference.guided.tokenwise import Tokenwise as Tokenwise
    from triptych.inference.guided.transforms import Sampling as Sampling
    from triptych.inference.guided.vgb import Vgb as Vgb
    from triptych.laws.certify import certify_by_draws as certify_by_draws
    from triptych.laws.kernel import kernel_of as kernel_of
    from triptych.laws.law import Law as Law
    from triptych.laws.program import law_of as law_of
    from triptych.models.language_models import CausalLM as CausalLM
    from triptych.models.language_models import MaskedLM as MaskedLM
    from triptych.models.pretrained.causal import PretrainedCausalLM as PretrainedCausalLM
    from triptych.models.pretrained.masked import PretrainedMaskedLM as PretrainedMaskedLM
    from triptych.models.transformer import Shape as Shape
    from triptych.models.transformer import Transformer as Transformer
    from triptych.structures.brackets.dyck import Dyck as Dyck
    from triptych.structures.cfg import CFG as CFG
    from triptych.structures.hidden_markov.hmm import HMM as HMM
    from triptych.structures.hidden_markov.memory_hmm import MemoryHMM as MemoryHMM
    from triptych.structures.ising import Ising as Ising
    from triptych.structures.markov import Markov as Markov
    from triptych.structures.topics import LDA as LDA
    from triptych.structures.topics import Topics as Topics
    from triptych.structures.uniform import Uniform as Uniform
    from triptych.studies.api.figures import Figure as Figure
    from triptych.studies.api.figures import Heatmap as Heatmap
    from triptych.studies.api.figures import Panel as Panel
    from triptych.studies.api.figures import Series as Series
    from triptych.studies.api.study import Claim as Claim
    from triptych.studies.api.study import Rows as Rows
    from triptych.studies.api.study import Scale as Scale
    from triptych.studies.api.study import Settings as Settings
    from triptych.studies.api.study import Study as Study
    from triptych.studies.api.study import Unit as Unit
    from triptych.training import objectives as objectives
    from triptych.training.loop import Recipe as Recipe
    from triptych.training.loop import fit as fit
    from triptych.training.loop import gap_meter as gap_meter
    from triptych.verifiers import step_forms as step_forms
    from triptych.verifiers.exact import Rule as Rule
    from triptych.verifiers.process_reward import ProcessReward as ProcessReward
    from triptych.verifiers.reward import RewardModel as RewardModel
    from triptych.verifiers.text import TextRule as TextRule

_HOME = {  # module -> what is taken from it
    "adaptation.prompts": ["Tuning"],
    "core.decoders": ["RecomputingDecoder"],
    "core.axioms": ["check_sampler", "check_structure"],
    "core.mask_laws": ["MaskLaw"],
    "core.enumeration": ["exact_law"],
    "core.randomness": ["TorchRng"],
    "core.table": ["Table"],
    "diffusion.denoiser": ["Denoiser"],
    "diffusion.law": ["sampler_law"],
    "diffusion.networks.masked_logits": ["load_denoiser"],
    "guidance.calibrate": ["calibrate"],
    "guidance.guide": ["guide", "guide_each"],
    "guidance.streaming": ["guide_stream"],
    "guidance.probes": ["train_probe"],
    "laws.certify": ["certify_by_draws"],
    "laws.kernel": ["kernel_of"],
    "laws.law": ["Law"],
    "laws.program": ["law_of"],
    "inference.guided.adaptive": ["Adaptive"],
    "inference.guided.ancestral": ["Ancestral"],
    "inference.guided.backtracking": ["Backtracking"],
    "inference.guided.best_of_n": ["BestOfN"],
    "inference.guided.blocks": ["Blocks"],
    "inference.guided.greedy": ["Greedy"],
    "inference.guided.majority": ["Majority"],
    "inference.guided.particles": ["Particles"],
    "inference.guided.rejection": ["Rejection"],
    "inference.guided.tokenwise": ["Tokenwise"],
    "inference.guided.vgb": ["Vgb"],
    "inference.guided.transforms": ["Sampling"],
    "models.language_models": ["CausalLM", "MaskedLM"],
    "models.pretrained.causal": ["PretrainedCausalLM"],
    "models.pretrained.masked": ["PretrainedMaskedLM"],
    "models.transformer": ["Shape", "Transformer"],
    "structures.cfg": ["CFG"],
    "structures.brackets.dyck": ["Dyck"],
    "structures.hidden_markov.hmm": ["HMM"],
    "structures.ising": ["Ising"],
    "structures.markov": ["Markov"],
    "structures.hidden_markov.memory_hmm": ["MemoryHMM"],
    "structures.topics": ["LDA", "Topics"],
    "structures.uniform": ["Uniform"],
    "studies.api.figures": ["Figure", "Heatmap", "Panel", "Series"],
    "studies.api.study": ["Claim", "Rows", "Scale", "Settings", "Study", "Unit"],
    "training.loop": ["Recipe", "fit", "gap_meter"],
    "verifiers.exact": ["Rule"],
    "verifiers.process_reward": ["ProcessReward"],
    "verifiers.reward": ["RewardModel"],
    "verifiers.text": ["TextRule"],
}
_MODULES = {  # package -> its modules that are names here
    "": ["diffusion", "hf"],
    "inference.chains": ["gibbs", "parallel"],
    "inference.guided": [
        "adaptive",
        "ancestral",
        "backtracking",
        "best_of_n",
        "blocks",
        "particles",
        "rejection",
        "tokenwise",
        "vgb",
    ],
    "training": ["objectives"],
    "verifiers": ["step_forms"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_PACKAGE_OF = {name: package for package, names in _MODULES.items() for name in names}

__all__ = sorted([*_MODULE_OF, *_PACKAGE_OF])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _PACKAGE_OF:
        home = filter(None, ("triptych", _PACKAGE_OF[name], name))
        found = importlib.import_module(".".join(home))
    elif name in _MODULE_OF:
        found = getattr(importlib.import_module(f"triptych.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'triptych' has no attribute {name!r}: see help(triptych)")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
