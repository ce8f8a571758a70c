"""Triptych: how structure in data meets training and inference in language models, exactly.

    import triptych

    hmm = triptych.HMM.random(states=4, vocab_size=5, length=12, seed=0)
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
Guided generation on exact models, one module each with `sample`; guided has all that belongs to it
    ancestral, rejection, tokenwise, backtracking, best_of_n, blocks, particles, adaptive, vgb; the
    model is a RecomputingDecoder of anything with next_token_log_probs, the verifier a Rule or a
    value.
Samplers of full sequences, one module each; chains has all that belongs to them
    gibbs redraws blocks of positions, parallel draws many positions at once.
Studies of your own; study has all that belongs to them
    Study, Settings, Unit, Rows, Claim, Scale; checks of a judge: study.above and more; for
    figures: Figure, Panel, Series, Heatmap. A notebook draws them.

On the command line: triptych --help; triptych generate guides a model over a file of prompts.
"""

from typing import TYPE_CHECKING

from triptych.names import loaded_when_used

__version__ = "0.1.0"

if TYPE_CHECKING:
    from triptych import chains as chains
    from triptych import guided as guided
    from triptych import hf as hf
    from triptych import study as study
    from triptych.adaptation.prompts import Tuning as Tuning
    from triptych.core.axioms import check_sampler as check_sampler
    from triptych.core.axioms import check_structure as check_structure
    from triptych.core.decoders import RecomputingDecoder as RecomputingDecoder
    from triptych.core.enumeration import exact_law as exact_law
    from triptych.core.mask_laws import MaskLaw as MaskLaw
    from triptych.core.randomness import TorchRng as TorchRng
    from triptych.core.table import Table as Table
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

# made from these imports by `python tools/names.py`
_HOME = {
    "Adaptive": "inference.guided.adaptive:Adaptive",
    "Ancestral": "inference.guided.ancestral:Ancestral",
    "Backtracking": "inference.guided.backtracking:Backtracking",
    "BestOfN": "inference.guided.best_of_n:BestOfN",
    "Blocks": "inference.guided.blocks:Blocks",
    "CFG": "structures.cfg:CFG",
    "CausalLM": "models.language_models:CausalLM",
    "Claim": "studies.api.study:Claim",
    "Dyck": "structures.brackets.dyck:Dyck",
    "Figure": "studies.api.figures:Figure",
    "Greedy": "inference.guided.greedy:Greedy",
    "HMM": "structures.hidden_markov.hmm:HMM",
    "Heatmap": "studies.api.figures:Heatmap",
    "Ising": "structures.ising:Ising",
    "LDA": "structures.topics:LDA",
    "Law": "laws.law:Law",
    "Majority": "inference.guided.majority:Majority",
    "Markov": "structures.markov:Markov",
    "MaskLaw": "core.mask_laws:MaskLaw",
    "MaskedLM": "models.language_models:MaskedLM",
    "MemoryHMM": "structures.hidden_markov.memory_hmm:MemoryHMM",
    "Panel": "studies.api.figures:Panel",
    "Particles": "inference.guided.particles:Particles",
    "PretrainedCausalLM": "models.pretrained.causal:PretrainedCausalLM",
    "PretrainedMaskedLM": "models.pretrained.masked:PretrainedMaskedLM",
    "ProcessReward": "verifiers.process_reward:ProcessReward",
    "Recipe": "training.loop:Recipe",
    "RecomputingDecoder": "core.decoders:RecomputingDecoder",
    "Rejection": "inference.guided.rejection:Rejection",
    "RewardModel": "verifiers.reward:RewardModel",
    "Rows": "studies.api.study:Rows",
    "Rule": "verifiers.exact:Rule",
    "Sampling": "inference.guided.transforms:Sampling",
    "Scale": "studies.api.study:Scale",
    "Series": "studies.api.figures:Series",
    "Settings": "studies.api.study:Settings",
    "Shape": "models.transformer:Shape",
    "Study": "studies.api.study:Study",
    "Table": "core.table:Table",
    "TextRule": "verifiers.text:TextRule",
    "Tokenwise": "inference.guided.tokenwise:Tokenwise",
    "Topics": "structures.topics:Topics",
    "TorchRng": "core.randomness:TorchRng",
    "Transformer": "models.transformer:Transformer",
    "Tuning": "adaptation.prompts:Tuning",
    "Uniform": "structures.uniform:Uniform",
    "Unit": "studies.api.study:Unit",
    "Vgb": "inference.guided.vgb:Vgb",
    "adaptive": "inference.guided.adaptive",
    "ancestral": "inference.guided.ancestral",
    "backtracking": "inference.guided.backtracking",
    "best_of_n": "inference.guided.best_of_n",
    "blocks": "inference.guided.blocks",
    "calibrate": "guidance.calibrate:calibrate",
    "certify_by_draws": "laws.certify:certify_by_draws",
    "chains": "chains",
    "check_sampler": "core.axioms:check_sampler",
    "check_structure": "core.axioms:check_structure",
    "exact_law": "core.enumeration:exact_law",
    "fit": "training.loop:fit",
    "gap_meter": "training.loop:gap_meter",
    "gibbs": "inference.chains.gibbs",
    "guide": "guidance.guide:guide",
    "guide_each": "guidance.guide:guide_each",
    "guide_stream": "guidance.streaming:guide_stream",
    "guided": "guided",
    "hf": "hf",
    "kernel_of": "laws.kernel:kernel_of",
    "law_of": "laws.program:law_of",
    "objectives": "training.objectives",
    "parallel": "inference.chains.parallel",
    "particles": "inference.guided.particles",
    "rejection": "inference.guided.rejection",
    "step_forms": "verifiers.step_forms",
    "study": "study",
    "tokenwise": "inference.guided.tokenwise",
    "train_probe": "guidance.probes:train_probe",
    "vgb": "inference.guided.vgb",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = loaded_when_used(__name__, _HOME)
