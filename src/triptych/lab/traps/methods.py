"""What a method is asked about a network, and what it may look at.

A method is a Python file with one, two or three of these functions:

    needs_pattern(network)     how sure it is, from 0 to 1, that uniform attention would do worse
    important_head(network)    the head that matters most: 0, 1, …
    is_balanced(network)       how sure it is, from 0 to 1, that matching brackets leave no trace

Each gets a `Subject`. What a method looked at is noted: patterns, predictions, weights, its own
sentences (`run` with other tokens), and interventions (`run` with other patterns).
"""

import importlib.util
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.validation import UserError, as_count, as_number
from triptych.lab.traps.truth import LENGTH, Network, Q, Sentences
from triptych.structures.brackets.dyck import Dyck
from triptych.theory.brackets.lookups import Lookups, lookups

QUESTIONS = {
    "needs_pattern": "Does the network need its attention patterns?",
    "important_head": "Which head matters most?",
    "is_balanced": "Is the attention balanced?",
}
SHOWN = 20  # sentences
SHOWN_SEED = 20_000

Answer = float | int


class Subject:
    """A network of the trap, as a method sees it.

    types, max_depth    of the brackets               heads      how many there are
    tokens              20 sentences of 28 brackets; type j opens with 2j and closes with 2j + 1
    texts               the same as strings           lookups    where it must look back
    """

    def __init__(self, network: Network, sentences: Sentences, texts: Sequence[str]) -> None:
        self._network = network
        self.types, self.max_depth = network.types, network.max_depth
        self.heads = network.head_count
        self.tokens: Int[Tensor, "batch t"] = sentences.tokens
        self.lookups: Lookups = sentences.lookups
        self.texts = list(texts)
        self.looked_at: set[str] = set()

    @property
    def patterns(self) -> Float[Tensor, "batch heads n n"]:
        """patterns[b, h, i, j]: weight of position j for position i; 0 is the start token."""
        self.looked_at.add("patterns")
        return self._patterns.clone()

    @property
    def predictions(self) -> Float[Tensor, "batch n vocab"]:
        """predictions[b, i, v]: probability that token v comes after position i."""
        self.looked_at.add("predictions")
        return self._predictions.clone()

    @property
    def weights(self) -> dict[str, Tensor]:
        """Every weight by its name."""
        self.looked_at.add("weights")
        return {name: part.clone() for name, part in self._network.weights().items()}

    def run(
        self,
        tokens: Int[Tensor, "batch t"] | None = None,
        patterns: Float[Tensor, "batch heads n n"] | None = None,
    ) -> Float[Tensor, "batch n vocab"]:
        """Predictions on other sentences, or with other patterns; a head of zeros is off."""
        if tokens is not None:
            self.looked_at.add("own sentences")
        if patterns is not None:
            self.looked_at.add("interventions")
        if tokens is None and patterns is None:
            return self.predictions
        return self._network.predictions(self.tokens if tokens is None else tokens, patterns)

    def find_lookups(self, tokens: Int[Tensor, "batch t"]) -> Lookups:
        """Where sentences of one's own need a look back."""
        return lookups(tokens, self.types)

    @cached_property
    def _patterns(self) -> Tensor:
        return self._network.patterns(self.tokens)

    @cached_property
    def _predictions(self) -> Tensor:
        return self._network.predictions(self.tokens)


class Gallery:
    """Makes subjects; those of one language have the same sentences."""

    def __init__(self) -> None:
        self._sentences: dict[tuple[int, int], tuple[Sentences, list[str]]] = {}

    def subject(self, network: Network) -> Subject:
        language = network.types, network.max_depth
        if language not in self._sentences:
            sentences = Sentences.draw(*language, SHOWN, SHOWN_SEED)
            law = Dyck.prefixes(*language, LENGTH, q=Q)
            self._sentences[language] = sentences, law.text(sentences.tokens)
        return Subject(network, *self._sentences[language])


@dataclass
class Method:
    """Functions by the question they answer, and what they looked at so far."""

    name: str
    functions: Mapping[str, Callable[[Subject], Any]]
    looked_at: set[str] = field(default_factory=set)

    def answer(self, question: str, subject: Subject) -> Answer:
        """The answer, checked; an error of the method is a sentence about it."""
        where = f"{self.name}: {question}"
        subject.looked_at = set()
        try:
            with torch.no_grad():
                given = self.functions[question](subject)
        except Exception as error:
            told = " ".join(str(error).split())
            raise UserError(f"{where} fails with {type(error).__name__}: {told}") from error
        self.looked_at |= subject.looked_at
        return checked(where, question, given, subject.heads)


def checked(where: str, question: str, given: Any, heads: int) -> Answer:
    """A head's number, or a number from 0 to 1; True and False are 1 and 0."""
    if question == "important_head":
        return as_count(f"the answer of {where}", given, at_least=0, at_most=heads - 1)
    if isinstance(given, Tensor | np.ndarray) and math.prod(given.shape) == 1:
        given = given.item()
    if isinstance(given, bool | np.bool_):
        return float(given)
    if isinstance(given, float) and math.isnan(given):
        raise UserError(f"the answer of {where} is nan; it must be a number from 0 to 1")
    return as_number(f"the answer of {where}", given, at_least=0, at_most=1)


def load_method(file: Path) -> Method:
    """The functions of a user's file."""
    if file.suffix != ".py":
        raise UserError(
            f"a method is a Python file, as my_method.py; given {str(file)!r}", parameter="file"
        )
    if not file.is_file():
        raise UserError(f"there is no file {str(file)!r}", parameter="file")
    spec = importlib.util.spec_from_file_location(f"trap_method_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        told = " ".join(str(error).split())
        raise UserError(
            f"{file} cannot be read: {type(error).__name__}: {told}", parameter="file"
        ) from error
    functions = {name: vars(module).get(name) for name in QUESTIONS}
    wrong = [name for name, value in functions.items() if value is not None and not callable(value)]
    if wrong:
        raise UserError(
            f"{file}: {wrong[0]} is not a function; it must be {wrong[0]}(network)",
            parameter="file",
        )
    found = {name: value for name, value in functions.items() if callable(value)}
    if not found:
        raise UserError(
            f"{file} has none of the functions needs_pattern(network), important_head(network) "
            "and is_balanced(network): write at least one of them",
            parameter="file",
        )
    return Method(file.stem, found)
