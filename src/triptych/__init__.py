"""Triptych: how structure in data meets training and inference in language models, exactly.

    import triptych

    hmm = triptych.HMM.random(states=4, vocab=5, length=12, seed=0)
    tokens = hmm.sample(100, triptych.TorchRng(0))
    hmm.log_prob(tokens)

Each of these names is loaded when it is first used, and has a help of its own.

Structures, whose truth is known exactly
    HMM, MemoryHMM, Markov, Topics, LDA, Dyck, CFG, Ising, Uniform; Table has every probability of a
    small one. All sample, and answer log_prob, next_token_log_probs and masked_log_probs.
Models, which answer the same questions
    Transformer of a Shape, as CausalLM or MaskedLM; PretrainedMaskedLM of Hugging Face.
Randomness and laws
    TorchRng; exact_law turns a small random program into its law; check_structure and check_sampler
    try the laws on your own; MaskLaw says which positions are hidden, or redrawn, together.
Guided generation, one module each with `sample`
    ancestral, rejection, tokenwise, backtracking, best_of_n, blocks, particles, vgb; the model is a
    RecomputingDecoder of anything with next_token_log_probs, the verifier a Rule or a value.
Studies of your own
    Study, Settings, Unit, Rows, Claim, Scale; checks of a judge: triptych.studies.api.decide.

On the command line: triptych --help.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from triptych.core.axioms import check_sampler as check_sampler
    from triptych.core.axioms import check_structure as check_structure
    from triptych.core.decoders import RecomputingDecoder as RecomputingDecoder
    from triptych.core.mask_laws import MaskLaw as MaskLaw
    from triptych.core.randomness import TorchRng as TorchRng
    from triptych.core.randomness import exact_law as exact_law
    from triptych.core.table import Table as Table
    from triptych.inference.guided import ancestral as ancestral
    from triptych.inference.guided import backtracking as backtracking
    from triptych.inference.guided import best_of_n as best_of_n
    from triptych.inference.guided import blocks as blocks
    from triptych.inference.guided import particles as particles
    from triptych.inference.guided import rejection as rejection
    from triptych.inference.guided import tokenwise as tokenwise
    from triptych.inference.guided import vgb as vgb
    from triptych.models.language_models import CausalLM as CausalLM
    from triptych.models.language_models import MaskedLM as MaskedLM
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
    from triptych.studies.api.study import Claim as Claim
    from triptych.studies.api.study import Rows as Rows
    from triptych.studies.api.study import Scale as Scale
    from triptych.studies.api.study import Settings as Settings
    from triptych.studies.api.study import Study as Study
    from triptych.studies.api.study import Unit as Unit
    from triptych.verifiers.exact import Rule as Rule

_HOME = {  # module -> what is taken from it
    "core.decoders": ["RecomputingDecoder"],
    "core.axioms": ["check_sampler", "check_structure"],
    "core.mask_laws": ["MaskLaw"],
    "core.randomness": ["TorchRng", "exact_law"],
    "core.table": ["Table"],
    "models.language_models": ["CausalLM", "MaskedLM"],
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
    "studies.api.study": ["Claim", "Rows", "Scale", "Settings", "Study", "Unit"],
    "verifiers.exact": ["Rule"],
}
_MODULES = [
    "ancestral",
    "backtracking",
    "best_of_n",
    "blocks",
    "particles",
    "rejection",
    "tokenwise",
    "vgb",
]
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted([*_MODULE_OF, *_MODULES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = importlib.import_module(f"triptych.inference.guided.{name}")
    elif name in _MODULE_OF:
        found = getattr(importlib.import_module(f"triptych.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'triptych' has no attribute {name!r}: see help(triptych)")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
