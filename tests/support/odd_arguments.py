"""Right arguments for every public callable that `examples()` cannot tell how to call."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel

from triptych.core import samplers
from triptych.core.counting import Counted
from triptych.core.decoders import Prefixes, RecomputingDecoder
from triptych.core.enumeration import ExactLaw
from triptych.core.mask_laws import MaskLaw
from triptych.core.plugins import Plugin
from triptych.core.protocols import Question
from triptych.core.randomness import TorchRng
from triptych.core.streams import RowStreams
from triptych.core.table import Table
from triptych.inference.chains.refinement import MaskedRefiner
from triptych.inference.chains.spins import SpinGibbs
from triptych.inference.guided.algorithm import Option
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.costs import Costs
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.transforms import Sampling
from triptych.inference.guided.visited import VisitedTree
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.faulty import CarelessBrackets, LeakyBrackets
from triptych.structures.constraints import AllZeros, EvenParity, Knapsack, SomeZero
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.structures.ising import Ising
from triptych.structures.topics import LDA, Topics
from triptych.structures.translation import TranslationWorld
from triptych.structures.uniform import Uniform
from triptych.training.step import Recipe
from triptych.verifiers.exact import DyckVerifier, ExactValue, Outcome, RatioValue, Rule
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import Vocabulary
from triptych.verifiers.leaves import ExactLeaves
from triptych.verifiers.noisy import AverageCase, Delayed, Flipped, WithinFactor
from triptych.verifiers.probe import Probe
from triptych.verifiers.text import TextRule
from triptych.verifiers.text_rules.json_schema import read_schema
from triptych.verifiers.text_rules.json_text import JsonPrefix
from triptych.verifiers.text_rules.python_source import PythonPrefix
from triptych.verifiers.text_rules.regular import RegexPrefix
from triptych.verifiers.values import TokenValue

Kwargs = dict[str, Any]


class Settings(BaseModel):
    """A model of pydantic."""

    size: int


def f64(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


BITS = Uniform(2, 3)
TABLE = Table.random(2, 3, seed=0)
ROWS = torch.tensor([[0, 1, 0], [1, 1, 0]])
HIDDEN = torch.tensor([[True, False, False], [False, True, False]])
LAW = f64([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]).log()
STATES = f64([[0.0, 1.0], [1.0, 0.0], [0.2, 0.9], [0.8, 0.1]])
CORRECT = torch.tensor([True, False, True, False])
RECIPE = Recipe(steps=2, batch=4)
PROBE = Probe(f64([0.0, 0.0]), f64([1.0, 1.0]), (f64([[0.0, 1.0], [1.0, 0.0]]),), (f64([0, 0]),))
POSITIONS = Probe(f64([0.0] * 9), f64([1.0] * 9), (f64([[0.0] * 9] * 2),), (f64([0, 0]),))
RULES = {"S": {("S", "S"): 0.3, "a": 0.7}}


def decoder() -> RecomputingDecoder:
    return RecomputingDecoder(BITS, 2)


def guided() -> Kwargs:
    return {"decoder": decoder(), "verifier": SomeZero(3), "length": 3, "rng": TorchRng(0)}


def run() -> Generation:
    return Generation(decoder(), SomeZero(3), TorchRng(0), 3)


def tree() -> VisitedTree:
    visited = VisitedTree(2, torch.device("cpu"))
    visited.look_into(torch.tensor([0, 1]), LAW[:, :2].log_softmax(-1), f64([[0.0, 0.0]] * 2))
    return visited


class Everything:
    """An oracle for every question that can be counted."""

    vocab_size = 2
    next_token_log_probs = TABLE.next_token_log_probs
    masked_log_probs = TABLE.masked_log_probs
    log_value = SomeZero(3).log_value


class Constant:
    """A verifier that is asked questions."""

    def log_values(self, asked: Question) -> torch.Tensor:
        return torch.zeros(len(asked.row), dtype=torch.float64)


def fair(rng: Any) -> int:
    return int(rng.categorical(f64([0.5, 0.5]).log()))


def flip(state: int, rng: Any) -> int:
    return fair(rng)


def letters(tokens: list[int]) -> str:
    return "".join("ab"[token] for token in tokens)


LETTERS = Vocabulary(["a", "b"])
CHOICES = Grammar.from_choices(["aba", "bab", "bbb"]).on(LETTERS, "triptych")

# Objects whose methods are called, by class; structures come from their modules' `examples()`.
TWO_TYPES = Dyck.fixed_length(4, type_probs=[0.5, 0.5], q=0.5)

OBJECTS: dict[str, Callable[[], Any]] = {
    "Backtracking": lambda: Backtracking(quota=2, stride=1),
    "Sampling": lambda: Sampling(temperature=0.5),
    "Counted": lambda: Counted(Everything()),
    "Table": lambda: TABLE,
    "Prefixes": lambda: Prefixes(2, 2, 3, torch.device("cpu")),
    "RecomputingDecoder": decoder,
    "MaskLaw": lambda: MaskLaw.of_size(3, 1),
    "Plugin": lambda: Plugin("structures", "table", "triptych.core.table", "", "triptych"),
    "ExactLaw": lambda: ExactLaw({"a": 0.5, "b": 0.5}),
    "TorchRng": lambda: TorchRng(0),
    "RowStreams": lambda: RowStreams(0, torch.arange(2)),
    "EvenParity": lambda: EvenParity(3),
    "AllZeros": lambda: AllZeros(3),
    "SomeZero": lambda: SomeZero(3),
    "Knapsack": lambda: Knapsack((3, 5, 2), 5),
    "LeakyBrackets": lambda: LeakyBrackets(TWO_TYPES, 0.25),
    "CarelessBrackets": lambda: CarelessBrackets(TWO_TYPES, 0.25),
    "Topics": lambda: Topics(3, 2, 2, 4),
    "LDA": lambda: LDA(2, 1, 0.1, 2, 3),
    "Posteriors": lambda: MemoryHMM.random(2, 2, 1, 2, 3, seed=0).posteriors(ROWS, HIDDEN),
    "Option": lambda: Option("depth", int, 2, "how deep"),
    "Costs": lambda: Costs.empty(2, torch.device("cpu")),
    "Result": lambda: run().result(),
    "Generation": run,
    "TranslationWorld": lambda: TranslationWorld.dialects(agreement=0.5, words=2),
    "MaskedRefiner": lambda: MaskedRefiner(TABLE, 2),
    "SpinGibbs": lambda: SpinGibbs(Ising.chain(3, 0.4).coupling, f64([0.1, 0.0, 0.2])),
    "VisitedTree": tree,
    "ExactValue": lambda: ExactValue(TABLE, SomeZero(3)),
    "RatioValue": lambda: RatioValue(BITS, TABLE),
    "DyckVerifier": lambda: DyckVerifier(Dyck.prefixes(1, 2, 3, q=0.5)),
    "Rule": lambda: Rule(lambda x: sum(x) <= 1),
    "Outcome": lambda: Outcome(SomeZero(3), 3),
    "Grammar": lambda: Grammar.from_choices(["a", "b"]),
    "Vocabulary": lambda: LETTERS,
    "TextRule": lambda: TextRule(lambda text: text != "b", letters),
    "ExactLeaves": lambda: ExactLeaves(Constant(), SomeZero(3), 3),
    "WithinFactor": lambda: WithinFactor(SomeZero(3), 0.5, 0),
    "AverageCase": lambda: AverageCase(SomeZero(3), 0.5, 0),
    "Delayed": lambda: Delayed(SomeZero(3)),
    "Flipped": lambda: Flipped(SomeZero(3), 0.1, 0.1, 0),
    "Probe": lambda: PROBE,
    "TokenValue": lambda: TokenValue(POSITIONS, 2, 3),
    "JsonPrefix": lambda: JsonPrefix(),
    "RegexPrefix": lambda: RegexPrefix("ab*"),
    "PythonPrefix": lambda: PythonPrefix(),
}

# Parameters of methods, by name; `thing` is the object.
BY_NAME: dict[str, Callable[[Any], Any]] = {
    "tokens": lambda thing: thing.sample(2, TorchRng(0)) if hasattr(thing, "sample") else ROWS,
    "hidden": lambda thing: (
        torch.arange(thing.length).expand(2, -1) % 2 == 0 if hasattr(thing, "sample") else HIDDEN
    ),
    "prefix": lambda thing: (
        thing.sample(2, TorchRng(0))[:, :1] if hasattr(thing, "sample") else ROWS[:, :1]
    ),
    "rng": lambda thing: TorchRng(0),
    "n": lambda thing: 2,
    "device": lambda thing: "cpu",
    "length": lambda thing: 3,
    "rows": lambda thing: torch.tensor([0, 1]),
    "states": lambda thing: STATES,
    "correct": lambda thing: CORRECT,
    "decoder": lambda thing: decoder(),
}

# Arguments of everything else.
ARGUMENTS: dict[str, Callable[[], Kwargs]] = {
    "verifiers.audit.audit": lambda: {"schema": {"const": 1}, "engine": "triptych", "tries": 5},
    "verifiers.bending.estimated": lambda: {
        "decoder": decoder(),
        "verifier": CHOICES,
        "length": 3,
        "rng": TorchRng(0),
    },
    "verifiers.bending.exactly": lambda: {
        "lm": Uniform(2, 20),
        "verifier": CHOICES,
        "length": 3,
    },
    "verifiers.engines.as_engine": lambda: {"engine": "triptych"},
    "verifiers.engines.engine_version": lambda: {"engine": "triptych"},
    "verifiers.engines.not_installed": lambda: {"engine": "xgrammar"},
    "verifiers.grammar.Grammar": lambda: {"kind": "regex", "source": "ab*"},
    "verifiers.grammar.Grammar.from_choices": lambda: {"choices": ["a", "b"]},
    "verifiers.grammar.Grammar.from_json_schema": lambda: {"schema": {"type": "integer"}},
    "verifiers.grammar.Grammar.from_lark": lambda: {"text": 'start: "a"'},
    "verifiers.grammar.Grammar.from_pydantic": lambda: {"model": Settings},
    "verifiers.grammar.Grammar.from_python_type": lambda: {"type_": int},
    "verifiers.grammar.Grammar.from_regex": lambda: {"pattern": "ab*"},
    "verifiers.grammar.Grammar.on": lambda: {"lm": LETTERS, "engine": "triptych"},
    "verifiers.vocabulary.Vocabulary": lambda: {"tokens": ["a", "b"], "ends": [1]},
    "verifiers.vocabulary.Vocabulary.of": lambda: {"lm": LETTERS},
    "verifiers.vocabulary.Vocabulary.spelled": lambda: {"text": "abba"},
    "core.conditionals.every_next_token_log_probs": lambda: {"lm": BITS, "tokens": ROWS},
    "core.counting.Counted": lambda: {"oracle": Everything()},
    "core.decoders.Prefixes": lambda: {
        "batch": 2,
        "vocab_size": 2,
        "longest": 3,
        "device": torch.device("cpu"),
    },
    "core.decoders.Prefixes.append": lambda: {"tokens": torch.tensor([0, 1])},
    "core.decoders.Prefixes.extend": lambda: {"tokens": torch.tensor([[0, 1], [1, 1]])},
    "core.decoders.Prefixes.rollback": lambda: {"counts": torch.tensor([0, 0])},
    "core.decoders.RecomputingDecoder": lambda: {"lm": BITS, "batch": 2},
    "core.decoders.RecomputingDecoder.append": lambda: {"tokens": torch.tensor([0, 1])},
    "core.decoders.RecomputingDecoder.extend": lambda: {"tokens": torch.tensor([[0, 1], [1, 1]])},
    "core.decoders.RecomputingDecoder.rollback": lambda: {"counts": torch.tensor([0, 0])},
    "core.divergences.chi_square": lambda: {"log_p": LAW, "log_q": LAW.flip(0)},
    "core.divergences.entropy": lambda: {"log_p": LAW},
    "core.divergences.expected_distance": lambda: {"probs": f64([0.5, 0.5]), "n": 3},
    "core.divergences.kl_divergence": lambda: {"log_p": LAW, "log_q": LAW.flip(0)},
    "core.divergences.total_variation": lambda: {"log_p": LAW, "log_q": LAW.flip(0)},
    "core.estimates.Estimate": lambda: {"value": 0.5, "low": 0.4, "high": 0.6, "n": 10},
    "core.estimates.bootstrap": lambda: {"samples": [0.1, 0.5, 0.3, 0.9], "resamples": 99},
    "core.estimates.mean": lambda: {"samples": [0.1, 0.5, 0.3]},
    "core.estimates.paired_difference": lambda: {"first": [0.1, 0.5], "second": [0.2, 0.1]},
    "core.estimates.proportion": lambda: {"successes": 2, "n": 5},
    "core.estimates.tv_tolerance": lambda: {"n": 100, "outcomes": 8, "failure": 1e-3},
    "core.axioms.check_sampler": lambda: {"example": samplers.OneShot(fair, {0: 0.5, 1: 0.5})},
    "core.axioms.check_structure": lambda: {"structure": TABLE},
    "core.mask_laws.MaskLaw": lambda: {
        "blocks": torch.eye(3).bool(),
        "log_probs": f64([1 / 3] * 3).log(),
    },
    "core.mask_laws.MaskLaw.independent": lambda: {"length": 3, "rate": 0.5},
    "core.mask_laws.MaskLaw.looking": lambda: {
        "length": 3,
        "blocks": [[0], [1], [2]],
        "log_weights": lambda x: x.double(),
    },
    "core.mask_laws.MaskLaw.of_size": lambda: {"length": 3, "k": 1},
    "core.mask_laws.MaskLaw.spans": lambda: {"length": 3, "k": 2},
    "core.mask_laws.MaskLaw.weighted": lambda: {
        "length": 3,
        "blocks": [[0], [1, 2]],
        "weights": [1.0, 2.0],
    },
    "core.corruption.as_rates": lambda: {"p_m": 0.5, "p_c": 0.1, "p_r": 0.1},
    "core.corruption.corrupt": lambda: {
        "tokens": ROWS,
        "rng": TorchRng(0),
        "words": 2,
        "mask_token": 2,
        "p_m": 0.5,
    },
    "core.enumeration.ExactLaw": lambda: {"probs": {0: 0.5, 1: 0.5}},
    "core.enumeration.ExactLaw.expectation": lambda: {"f": lambda x: 1.0},
    "core.enumeration.ExactLaw.given": lambda: {"condition": lambda x: x == "a"},
    "core.enumeration.ExactLaw.total_variation": lambda: {"target": {"a": 1.0}},
    "core.plugins.plugins": lambda: {"group": "studies"},
    "core.randomness.TorchRng": lambda: {"seed": 0},
    "core.randomness.TorchRng.categorical": lambda: {"log_probs": LAW},
    "core.randomness.as_rng": lambda: {"rng": TorchRng(0)},
    "core.randomness.checked_probabilities": lambda: {"log_probs": LAW},
    "core.enumeration.exact_law": lambda: {"program": fair, "max_runs": 100},
    "core.enumeration.exact_transition_matrix": lambda: {"states": [0, 1], "step": flip},
    "core.streams.RowStreams": lambda: {"seed": 0, "numbers": torch.arange(2)},
    "core.streams.RowStreams.categorical": lambda: {"log_probs": LAW},
    "core.streams.hashed_uniform": lambda: {"seed": 0, "prefix": ROWS},
    "core.table.Table": lambda: {"vocab_size": 2, "length": 1, "log_probs": f64([0.5, 0.5]).log()},
    "core.table.Table.of": lambda: {"density": BITS},
    "core.table.Table.random": lambda: {"vocab_size": 2, "length": 3, "seed": 0},
    "core.table.Table.tilt": lambda: {"log_weight": SomeZero(3).log_value},
    "core.table.all_sequences": lambda: {"vocab_size": 2, "length": 3},
    "core.table.places": lambda: {"vocab_size": 2, "length": 3},
    "core.table.rows_by_pattern": lambda: {"hidden": HIDDEN},
    "structures.prompts.Prompt": lambda: {"text": "", "name": "f", "cases": 2},
    "structures.prompts.asked": lambda: {"cases": 2, "name": "f"},
    "structures.prompts.make_prompt": lambda: {"name": "knk", "sums": [(1, 2)], "cases": 2},
    "structures.prompts.draw_prompts": lambda: {"names": ["knk"], "rng": 0, "cases": 2},
    "structures.prompts.random_names": lambda: {"n": 2, "rng": 0},
    "structures.prompts.name_and_completion": lambda: {"text": "a"},
    "structures.evaluate.evaluate": lambda: {"text": "a", "name": "f"},
    "structures.evaluate.count_cases": lambda: {"prompts": [[]]},
    "structures.moves.conditioned": lambda: {
        "weights": f64([[[1.0, 0, 0], [0, 1.0, 0]]] * 2),
        "final": f64([1.0, 0.0]),
        "on": "2 tokens",
    },
    "structures.moves.depth_for": lambda: {"length": 4, "max_depth": 2},
    "structures.moves.equal_types": lambda: {"types": 2},
    "structures.moves.repeated": lambda: {
        "step": f64([[1.0, 0, 0], [0, 1.0, 0]]),
        "length": 2,
    },
    "structures.moves.free_moves": lambda: {"max_depth": 2, "q": 0.5},
    "structures.parse.minimal_first_layer": lambda: {
        "tokens": ROWS,
        "types": 1,
        "max_depth": 2,
    },
    "structures.parse.type_and_depth": lambda: {"tokens": ROWS, "types": 1},
    "structures.cfg.CFG": lambda: {
        "binary": f64([[[0.3]]]),
        "terminal": f64([[0.7]]),
        "length": 3,
        "word_names": ("a",),
    },
    "structures.cfg.CFG.from_rules": lambda: {"rules": RULES, "length": 3},
    "structures.cfg.CFG.log_inside": lambda: {"log_evidence": torch.zeros((1, 3, 1)).double()},
    "structures.constraints.AllZeros": lambda: {"length": 3},
    "structures.constraints.EvenParity": lambda: {"length": 3},
    "structures.constraints.SomeZero": lambda: {"length": 3},
    "structures.constraints.Knapsack": lambda: {"weights": (3, 5, 2), "capacity": 5},
    "structures.constraints.restricted": lambda: {"density": BITS, "constraint": SomeZero(3)},
    "structures.dyck.Dyck": lambda: {
        "type_probs": f64([0.5, 0.5]),
        "moves": f64([[[1.0, 0, 0], [0, 1.0, 0]]] * 2),
    },
    "structures.dyck.Dyck.complete": lambda: {
        "types": 2,
        "max_depth": 2,
        "length": 4,
        "q": 0.5,
    },
    "structures.dyck.Dyck.fixed_length": lambda: {
        "length": 4,
        "type_probs": f64([0.5, 0.5]),
        "q": 0.5,
    },
    "structures.dyck.Dyck.fixed_length_printed": lambda: {
        "length": 4,
        "type_probs": f64([0.5, 0.5]),
        "q": 0.5,
    },
    "structures.dyck.Dyck.prefixes": lambda: {
        "types": 2,
        "max_depth": 2,
        "length": 4,
        "q": 0.5,
    },
    "structures.dyck.Dyck.tokens": lambda: {"texts": "[]"},
    "structures.translation.Translations": lambda: {
        "sentences": [[0, 1, 0], [1, 1, 0]],
        "weights": [0.5, 0.5],
        "agreement": 0.5,
        "vocab_size": 2,
    },
    "structures.translation.TranslationWorld": lambda: {
        "sources": [[0]],
        "sentences": [[[0, 1, 0], [1, 1, 0]]],
        "weights": [0.5, 0.5],
        "agreement": 0.5,
        "vocab_size": 2,
    },
    "structures.translation.TranslationWorld.dialects": lambda: {"agreement": 0.5, "words": 2},
    "structures.translation.TranslationWorld.orders": lambda: {"agreement": 0.5, "words": 4},
    "structures.translation.TranslationWorld.split_words": lambda: {"agreement": 0.5, "words": 1},
    "structures.translation.TranslationWorld.translations": lambda: {"source": 0},
    "structures.hmm.HMM": lambda: {
        "initial": f64([0.5, 0.5]),
        "transition": f64([[0.5, 0.5], [0.1, 0.9]]),
        "emission": f64([[1.0, 0.0], [0.5, 0.5]]),
        "length": 3,
    },
    "structures.hmm.HMM.random": lambda: {
        "states": 2,
        "vocab_size": 2,
        "length": 3,
        "seed": 0,
    },
    "structures.hmm.HMM.random_permutation_mixture": lambda: {
        "states": 2,
        "vocab_size": 2,
        "length": 3,
        "seed": 0,
    },
    "structures.hmm.HMM.random_sparse": lambda: {
        "states": 3,
        "vocab_size": 2,
        "length": 3,
        "seed": 0,
    },
    "structures.hmm.HMM.soft_masked_probs": lambda: {"vectors": f64([[[0.5, 1.0]] * 3])},
    "structures.hmm.HMM.state_messages": lambda: {"vectors": f64([[[0.5, 1.0]] * 3])},
    "core.compiled.use_compiled": lambda: {"wanted": False},
    "structures.permutations.mixture": lambda: {
        "states": 3,
        "permutations": 2,
        "temperature": 0.1,
        "draw": np.random.RandomState(0),
    },
    "structures.permutations.softmax": lambda: {
        "logits": np.array([0.0, 1.0]),
        "temperature": 0.1,
    },
    "structures.ising.Ising": lambda: {
        "coupling": f64([[0.0, 0.5], [0.5, 0.0]]),
        "field": f64([0.1, 0.2]),
    },
    "structures.ising.Ising.block_log_probs": lambda: {
        "tokens": torch.tensor([[0, 1, 0, 1]]),
        "block": [0, 1],
    },
    "structures.ising.Ising.chain": lambda: {"length": 3, "coupling": 0.5},
    "structures.ising.Ising.clique_and_free": lambda: {
        "spins": 3,
        "clique": 2,
        "coupling": 0.5,
        "field": [0.1, 0.2, 0.3],
    },
    "structures.ising.Ising.grid": lambda: {"rows": 2, "columns": 2, "coupling": 0.5},
    "structures.ising.Ising.random": lambda: {"length": 3, "scale": 1.0, "seed": 0},
    "structures.markov.Markov": lambda: {
        "initial": f64([0.5, 0.5]),
        "transition": f64([[0.5, 0.5], [0.1, 0.9]]),
        "length": 3,
    },
    "structures.memory_hmm.MemoryHMM": lambda: {
        "memory": f64([0.5, 0.5]),
        "initial": f64([1.0]),
        "transition": f64([[1.0]]),
        "emission": f64([[[[1.0, 0.0]]], [[[0.5, 0.5]]]]),
        "length": 2,
    },
    "structures.memory_hmm.MemoryHMM.lift": lambda: {"vectors": torch.ones((1, 3, 6)).double()},
    "structures.memory_hmm.MemoryHMM.lower": lambda: {"vectors": torch.ones((1, 3, 6)).double()},
    "structures.memory_hmm.MemoryHMM.lifted_messages": lambda: {
        "vectors": torch.ones((1, 3, 6)).double()
    },
    "structures.memory_hmm.MemoryHMM.soft_masked_probs": lambda: {
        "vectors": torch.ones((1, 3, 6)).double()
    },
    "structures.memory_hmm.MemoryHMM.random": lambda: {
        "values": 2,
        "cells": 2,
        "syntax": 1,
        "vocab_size": 2,
        "length": 3,
        "seed": 0,
    },
    "structures.memory_hmm.MemoryHMM.random_permutation_mixture": lambda: {
        "values": 2,
        "hidden": 2,
        "vocab_size": 2,
        "length": 3,
        "seed": 0,
    },
    "structures.memory_hmm.Posteriors.cell": lambda: {"j": 0},
    "structures.parity.HiddenParity": lambda: {"secret": torch.tensor([0, 1])},
    "structures.parity.HiddenParity.random": lambda: {"length": 3, "seed": 0},
    "structures.stacks.tree_of_stacks": lambda: {"types": 2, "max_depth": 2},
    "structures.topics.Topics": lambda: {"topics": 3, "words": 2, "drawn": 2, "length": 4},
    "structures.topics.LDA": lambda: {
        "topics": 2,
        "words": 1,
        "concentration": 0.1,
        "min_length": 2,
        "length": 3,
    },
    "structures.topics.Topics.limit_corrupted_probs": lambda: {
        "present": torch.tensor([[True, True, False]]),
        "p_m": 0.5,
        "p_c": 0.1,
        "p_r": 0.1,
    },
    "structures.topics.Topics.limit_word_probs": lambda: {
        "present": torch.tensor([[True, True, False]])
    },
    "structures.topics.Topics.topic_probs": lambda: {"seen": torch.tensor([[True, False, False]])},
    "structures.faulty.LeakyBrackets": lambda: {"dyck": TWO_TYPES, "leak": 0.25},
    "structures.faulty.CarelessBrackets": lambda: {"dyck": TWO_TYPES, "slip": 0.25},
    "structures.faulty.LeakyBrackets.log_prob": lambda: {"tokens": torch.tensor([[0, 1, 2, 3]])},
    "structures.faulty.CarelessBrackets.log_prob": lambda: {"tokens": torch.tensor([[0, 1, 2, 3]])},
    "structures.faulty.CarelessBrackets.next_token_log_probs": lambda: {
        "prefix": torch.tensor([[0, 1]])
    },
    "structures.uniform.Uniform": lambda: {"vocab_size": 2, "length": 3},
    "inference.beam.beam_search": lambda: {
        "decoder": decoder(),
        "beams": 2,
        "length": 3,
        "end_token": 1,
    },
    "inference.settable.Option": lambda: {
        "name": "depth",
        "type": int,
        "default": 2,
        "meaning": "how deep",
    },
    "inference.settable.Option.parse": lambda: {"text": "3"},
    "inference.transforms.min_p": lambda: {"share": 0.5},
    "inference.transforms.Sampling": dict,
    "inference.adaptive.Adaptive": dict,
    "inference.backtracking.Backtracking": dict,
    "inference.greedy.Greedy": dict,
    "inference.majority.Majority": dict,
    "inference.majority.law": lambda: {"lm": TABLE, "verifier": SomeZero(3), "n": 2},
    "inference.majority.sample": lambda: guided() | {"n": 2},
    "inference.greedy.sample": guided,
    "inference.backtracking.Backtracking.of": lambda: {"given": {"quota": 3}},
    "inference.backtracking.Backtracking.parse": lambda: {"changes": ["quota=3"]},
    "inference.backtracking.Backtracking.sample": guided,
    "inference.best_of_n.BestOfN": dict,
    "inference.blocks.Blocks": dict,
    "inference.particles.Particles": dict,
    "inference.rejection.Rejection": dict,
    "inference.tokenwise.Tokenwise": dict,
    "inference.vgb.Vgb": dict,
    "inference.adaptive.sample": lambda: guided() | {"n": 2, "tries": 3},
    "inference.adaptive.law": lambda: {
        "lm": Uniform(2, 2),
        "verifier": SomeZero(2),
        "length": 2,
        "n": 2,
        "tries": 2,
    },
    "inference.adaptive.proposals": lambda: {
        "probs": [0.5, 0.25, 0.25],
        "accepted": [False, True, True],
        "tries": 2,
    },
    "inference.ancestral.sample": guided,
    "inference.backtracking.sample": lambda: guided() | {"quota": 2, "stride": 1},
    "inference.backtracking.law": lambda: {
        "lm": BITS,
        "verifier": SomeZero(3),
        "length": 3,
        "quota": 1,
        "stride": 1,
    },
    "inference.options.as_lengths": lambda: {"length": 3, "start": torch.tensor([0, 1])},
    "inference.best_of_n.sample": lambda: guided() | {"n": 2},
    "inference.best_of_n.law": lambda: {"lm": TABLE, "verifier": SomeZero(3), "n": 2},
    "inference.best_of_n.kept_probs": lambda: {
        "probs": LAW.exp(),
        "values": LAW.exp(),
        "n": 2,
    },
    "inference.blocks.sample": lambda: guided() | {"block": 1, "n": 2, "block_end": 1},
    "inference.blocks.law": lambda: {
        "lm": TABLE,
        "verifier": SomeZero(3),
        "block": 1,
        "n": 2,
        "block_end": 1,
    },
    "inference.sequences.check_oracle": lambda: {"lm": TABLE},
    "inference.sequences.positions_of": lambda: {"hidden": HIDDEN},
    "inference.sequences.uniform_on": lambda: {"allowed": HIDDEN},
    "inference.gibbs.step": lambda: {
        "lm": TABLE,
        "tokens": ROWS,
        "masks": MaskLaw.of_size(3, 1),
        "rng": TorchRng(0),
    },
    "inference.gibbs.cost": lambda: {"masks": MaskLaw.of_size(3, 1), "vocab_size": 2},
    "inference.gibbs.block_log_probs": lambda: {
        "lm": TABLE,
        "tokens": ROWS,
        "hidden": HIDDEN,
    },
    "inference.gibbs.run": lambda: {
        "step": lambda x, rng: x,
        "tokens": ROWS,
        "steps": 2,
        "rng": TorchRng(0),
    },
    "inference.sequences.chain": lambda: {
        "step": lambda x, rng: x,
        "target": TABLE.as_dict(),
        "reversible": True,
    },
    "inference.refinement.MaskedRefiner": lambda: {"lm": TABLE},
    "inference.refinement.MaskedRefiner.log_probs": lambda: {
        "hypotheses": ROWS,
        "lengths": [3, 3],
    },
    "inference.refinement.best_hypotheses": lambda: {
        "log_probs": LAW,
        "lengths": [3, 2],
        "each": 2,
    },
    "inference.refinement.drop_stutter": lambda: {"tokens": ROWS, "lengths": [3, 2]},
    "inference.refinement.mask_start": lambda: {"lengths": [3, 2], "mask_token": 2},
    "inference.refinement.random_start": lambda: {"lengths": [3, 2], "vocab_size": 2, "rng": 0},
    "inference.refinement.refine": lambda: {
        "refiner": MaskedRefiner(TABLE, 2),
        "initial": ROWS,
        "lengths": [3, 3],
        "steps": 2,
    },
    "inference.refinement.scores": lambda: {"log_probs": LAW, "lengths": [3, 2]},
    "inference.refinement.stutters": lambda: {"tokens": ROWS, "lengths": [3, 2]},
    "inference.parallel.independent_step": lambda: {
        "lm": TABLE,
        "tokens": ROWS,
        "rng": TorchRng(0),
    },
    "inference.parallel.block_step": lambda: {
        "lm": TABLE,
        "tokens": ROWS,
        "masks": MaskLaw.of_size(3, 1),
        "rng": TorchRng(0),
    },
    "inference.parallel.independent_cost": lambda: {"length": 3},
    "inference.parallel.blank": lambda: {"chains": 2, "length": 3},
    "inference.parallel.even_schedule": lambda: {"hidden": 3, "rounds": 2},
    "inference.parallel.unmask": lambda: {
        "lm": TABLE,
        "tokens": ROWS,
        "hidden": HIDDEN,
        "rng": TorchRng(0),
        "schedule": [1],
    },
    "inference.parallel.most_confident": lambda: {
        "confidence": f64([[0.1, 0.2, 0.3]] * 2),
        "hidden": HIDDEN,
        "n": 1,
    },
    "inference.particles.sample": lambda: guided() | {"n": 2},
    "inference.particles.law": lambda: {
        "lm": Uniform(2, 2),
        "verifier": SomeZero(2),
        "length": 2,
        "n": 2,
    },
    "inference.rejection.sample": lambda: guided() | {"attempts": 9},
    "inference.costs.Costs": lambda: dict.fromkeys(
        ("generator_calls", "generated", "erased", "verifier_calls"), torch.zeros(2).long()
    ),
    "inference.costs.Costs.empty": lambda: {"batch": 2, "device": torch.device("cpu")},
    "inference.costs.Budget": lambda: {"tokens": 5, "verifier_calls": 6, "seconds": 60.0},
    "inference.generation.Generation": guided,
    "inference.options.log_threshold": lambda: {"threshold": 0.5},
    "inference.options.check_full_length": lambda: {"verifier": SomeZero(3)},
    "inference.spins.SpinGibbs": lambda: {
        "coupling": f64([[0.0, 0.5], [0.5, 0.0]]),
        "field": f64([0.1, 0.2]),
    },
    "inference.spins.SpinGibbs.conditional_log_probs": lambda: {"tokens": ROWS, "at": [0]},
    "inference.spins.SpinGibbs.fast_sweep": lambda: {
        "tokens": ROWS,
        "sweeps": 1,
        "rng": TorchRng(0),
    },
    "inference.spins.SpinGibbs.step": lambda: {
        "tokens": ROWS,
        "block": [0],
        "rng": TorchRng(0),
    },
    "inference.spins.SpinGibbs.sweep": lambda: {
        "tokens": ROWS,
        "sweeps": 1,
        "rng": TorchRng(0),
    },
    "inference.spins.colours": lambda: {"coupling": f64([[0.0, 0.5], [0.5, 0.0]])},
    "inference.spins.split": lambda: {"probs": f64([0.2, 0.7])},
    "inference.tokenwise.sample": lambda: guided() | {"tries": 9},
    "inference.tokenwise.law": lambda: {"lm": TABLE, "verifier": SomeZero(3)},
    "inference.transforms.temperature": lambda: {"degree": 0.5},
    "inference.transforms.top_k": lambda: {"k": 2},
    "inference.transforms.nucleus": lambda: {"p": 0.5},
    "inference.transforms.argmax": lambda: {"log_probs": LAW},
    "inference.transforms.compose": lambda: {"transforms": lambda log_probs: log_probs},
    "inference.vgb.sample": lambda: guided() | {"steps": 5},
    "inference.vgb.move_log_weights": lambda: {
        "prefix": ROWS[:1, :1],
        "lm": BITS,
        "value": SomeZero(3),
        "length": 3,
    },
    "inference.vgb.step": lambda: {
        "prefix": ROWS[:1, :1],
        "lm": BITS,
        "value": SomeZero(3),
        "length": 3,
        "rng": TorchRng(0),
    },
    "inference.vgb.nodes": lambda: {"vocab_size": 2, "length": 2},
    "inference.vgb.stationary_weights": lambda: {"lm": TABLE, "value": SomeZero(3)},
    "inference.vgb.walk_step": lambda: {
        "node": (0,),
        "lm": BITS,
        "value": SomeZero(3),
        "length": 3,
        "rng": TorchRng(0),
    },
    "verifiers.process_reward.combined": lambda: {"values": [0.5, 1.0], "combine": "mean"},
    "verifiers.process_reward.finished_steps": lambda: {
        "text": "a;b",
        "separator": ";",
        "over": True,
    },
    "verifiers.probe.as_labels": lambda: {"correct": CORRECT},
    "verifiers.exact.ExactValue": lambda: {"table": TABLE, "outcome": SomeZero(3)},
    "verifiers.exact.RatioValue": lambda: {"lm": BITS, "target": TABLE},
    "verifiers.exact.DyckVerifier": lambda: {"dyck": Dyck.prefixes(1, 2, 3, q=0.5)},
    "verifiers.exact.Rule": lambda: {"function": lambda x: True},
    "verifiers.exact.Outcome": lambda: {"value": SomeZero(3), "length": 3},
    "verifiers.exact.finished": lambda: {"prefix": ROWS, "length": 3},
    "verifiers.leaves.ExactLeaves": lambda: {
        "value": Constant(),
        "outcome": SomeZero(3),
        "length": 3,
    },
    "verifiers.noisy.WithinFactor": lambda: {"value": SomeZero(3), "epsilon": 0.5, "seed": 0},
    "verifiers.noisy.AverageCase": lambda: {"value": SomeZero(3), "epsilon": 0.5, "seed": 0},
    "verifiers.noisy.Delayed": lambda: {"value": SomeZero(3)},
    "verifiers.noisy.Flipped": lambda: {
        "value": SomeZero(3),
        "false_accept": 0.1,
        "false_reject": 0.1,
        "seed": 0,
    },
    "verifiers.probe.Probe": lambda: {
        "mean": PROBE.mean,
        "scale": PROBE.scale,
        "weights": PROBE.weights,
        "biases": PROBE.biases,
    },
    "verifiers.probe.Probe.fit": lambda: {"states": STATES, "correct": CORRECT, "recipe": RECIPE},
    "verifiers.probe.Probe.from_state": lambda: {"state": PROBE.state()},
    "verifiers.probe.held_out": lambda: {"labels": [True, True, False, False], "share": 0.5},
    "verifiers.probe.split_score": lambda: {
        "states": STATES,
        "correct": CORRECT,
        "train": 3,
        "repetitions": 1,
        "recipe": RECIPE,
    },
    "verifiers.text.TextRule": lambda: {"function": lambda text: text != "b", "decode": letters},
    "verifiers.text.TextRule.finished_values": lambda: {"texts": ["a", "b"]},
    "verifiers.brackets.BracketPrefix": lambda: {"pairs": "()"},
    "verifiers.append_tests.AppendTestsPrefix": lambda: {"name": "f", "cases": 2},
    "verifiers.append_tests.PromptedAppendTests": lambda: {"cases": 2},
    "verifiers.regular.RegexPrefix": lambda: {"pattern": "ab*"},
    "verifiers.python_source.PythonPrefix": lambda: {"mode": "eval"},
    "verifiers.json_text.JsonPrefix": lambda: {"schema": {"type": "object"}, "max_depth": 3},
    "verifiers.json_text.JsonPrefix.beyond_ascii": lambda: {"text": "[1"},
    "verifiers.json_text.JsonPrefix.over": lambda: {"text": "[1]"},
    "verifiers.regular.RegexPrefix.beyond_ascii": lambda: {"text": "a"},
    "verifiers.regular.RegexPrefix.over": lambda: {"text": "ab"},
    "verifiers.python_source.PythonPrefix.beyond_ascii": lambda: {"text": "x"},
    "verifiers.json_schema.read_schema": lambda: {"schema": {"type": "object"}},
    "verifiers.json_schema.satisfiable": lambda: {"schema": read_schema(None)},
    "verifiers.values.TokenValue": lambda: {"probe": POSITIONS, "vocab_size": 2, "length": 3},
    "verifiers.values.TokenValue.fit": lambda: {
        "prefixes": ROWS,
        "targets": f64([0.2, 0.8]),
        "vocab_size": 2,
        "length": 3,
        "recipe": RECIPE,
    },
    "verifiers.values.one_hot_positions": lambda: {"prefixes": ROWS, "vocab_size": 2, "length": 3},
    "verifiers.values.rollout_values": lambda: {
        "decoder": decoder(),
        "outcome": SomeZero(3),
        "rollouts": 2,
        "length": 3,
        "rng": TorchRng(0),
    },
}
