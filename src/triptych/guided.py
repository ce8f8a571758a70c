"""Guided generation on any decoder: algorithms, verifiers of tokens, what comes out.

    from triptych.guided import Backtracking, RecomputingDecoder, Rule

    decoder = RecomputingDecoder(triptych.Uniform(vocab_size=2, length=4), 1)
    few = Rule(lambda tokens: sum(tokens) <= 1)
    result = Backtracking(quota=4).sample(decoder, few, length=4, rng=0)

Algorithms, frozen dataclasses of their options with `sample`
    Adaptive, Ancestral, Backtracking, BestOfN, Blocks, Greedy, Majority, Particles, Rejection,
    Tokenwise, Vgb; algorithms() has them by name. One of your own is a class of Algorithm whose
    fields are option(...) and whose `run` moves a Generation.
What they ask
    A Decoder: RecomputingDecoder of a structure, CachedDecoder of a network. A Verifier answers a
    Question, a Value its simple form: Rule, ExactValue, RatioValue, DyckVerifier, or one with an
    error, AverageCase, Delayed, Flipped, WithinFactor.
What comes out
    A Result with Costs, Event of a trace, Candidates or a ParticleSet; Reason says why a row was
    not finished, VerifierError what a verifier answered. A Budget ends rows early, Sampling changes
    the laws of the model.

To guide a model of text with text rules, see `triptych.guide`.
"""

from typing import TYPE_CHECKING

from triptych.names import loaded_when_used

if TYPE_CHECKING:
    from triptych.core.decoders import RecomputingDecoder as RecomputingDecoder
    from triptych.core.protocols import Decoder as Decoder
    from triptych.core.protocols import Question as Question
    from triptych.core.protocols import Value as Value
    from triptych.core.protocols import Verifier as Verifier
    from triptych.inference.guided.adaptive import Adaptive as Adaptive
    from triptych.inference.guided.algorithm import Algorithm as Algorithm
    from triptych.inference.guided.algorithm import algorithms as algorithms
    from triptych.inference.guided.algorithm import option as option
    from triptych.inference.guided.ancestral import Ancestral as Ancestral
    from triptych.inference.guided.backtracking import Backtracking as Backtracking
    from triptych.inference.guided.best_of_n import BestOfN as BestOfN
    from triptych.inference.guided.blocks import Blocks as Blocks
    from triptych.inference.guided.costs import Budget as Budget
    from triptych.inference.guided.costs import Costs as Costs
    from triptych.inference.guided.generation import Generation as Generation
    from triptych.inference.guided.greedy import Greedy as Greedy
    from triptych.inference.guided.majority import Majority as Majority
    from triptych.inference.guided.particles import Particles as Particles
    from triptych.inference.guided.rejection import Rejection as Rejection
    from triptych.inference.guided.result import Candidates as Candidates
    from triptych.inference.guided.result import Event as Event
    from triptych.inference.guided.result import ParticleSet as ParticleSet
    from triptych.inference.guided.result import Reason as Reason
    from triptych.inference.guided.result import Result as Result
    from triptych.inference.guided.result import VerifierError as VerifierError
    from triptych.inference.guided.tokenwise import Tokenwise as Tokenwise
    from triptych.inference.guided.transforms import Sampling as Sampling
    from triptych.inference.guided.vgb import Vgb as Vgb
    from triptych.models.cache import CachedDecoder as CachedDecoder
    from triptych.verifiers.exact import DyckVerifier as DyckVerifier
    from triptych.verifiers.exact import ExactValue as ExactValue
    from triptych.verifiers.exact import RatioValue as RatioValue
    from triptych.verifiers.exact import Rule as Rule
    from triptych.verifiers.noisy import AverageCase as AverageCase
    from triptych.verifiers.noisy import Delayed as Delayed
    from triptych.verifiers.noisy import Flipped as Flipped
    from triptych.verifiers.noisy import WithinFactor as WithinFactor

# made from these imports by `python tools/names.py`
_HOME = {
    "Adaptive": "inference.guided.adaptive:Adaptive",
    "Algorithm": "inference.guided.algorithm:Algorithm",
    "Ancestral": "inference.guided.ancestral:Ancestral",
    "AverageCase": "verifiers.noisy:AverageCase",
    "Backtracking": "inference.guided.backtracking:Backtracking",
    "BestOfN": "inference.guided.best_of_n:BestOfN",
    "Blocks": "inference.guided.blocks:Blocks",
    "Budget": "inference.guided.costs:Budget",
    "CachedDecoder": "models.cache:CachedDecoder",
    "Candidates": "inference.guided.result:Candidates",
    "Costs": "inference.guided.costs:Costs",
    "Decoder": "core.protocols:Decoder",
    "Delayed": "verifiers.noisy:Delayed",
    "DyckVerifier": "verifiers.exact:DyckVerifier",
    "Event": "inference.guided.result:Event",
    "ExactValue": "verifiers.exact:ExactValue",
    "Flipped": "verifiers.noisy:Flipped",
    "Generation": "inference.guided.generation:Generation",
    "Greedy": "inference.guided.greedy:Greedy",
    "Majority": "inference.guided.majority:Majority",
    "ParticleSet": "inference.guided.result:ParticleSet",
    "Particles": "inference.guided.particles:Particles",
    "Question": "core.protocols:Question",
    "RatioValue": "verifiers.exact:RatioValue",
    "Reason": "inference.guided.result:Reason",
    "RecomputingDecoder": "core.decoders:RecomputingDecoder",
    "Rejection": "inference.guided.rejection:Rejection",
    "Result": "inference.guided.result:Result",
    "Rule": "verifiers.exact:Rule",
    "Sampling": "inference.guided.transforms:Sampling",
    "Tokenwise": "inference.guided.tokenwise:Tokenwise",
    "Value": "core.protocols:Value",
    "Verifier": "core.protocols:Verifier",
    "VerifierError": "inference.guided.result:VerifierError",
    "Vgb": "inference.guided.vgb:Vgb",
    "WithinFactor": "verifiers.noisy:WithinFactor",
    "algorithms": "inference.guided.algorithm:algorithms",
    "option": "inference.guided.algorithm:option",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = loaded_when_used(__name__, _HOME)
