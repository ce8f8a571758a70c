"""The verifiers of a gateway by their names, and which of them a request gets.

A gateway with the model M and the rules A and B answers to the models M (which is M:A), M:A and
M:B. A request may name a rule in the field `triptych` instead. A JSON schema in `response_format`
is a rule for one request; a gateway whose rule holds for all lets no request put another in its
place.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from triptych.apps.gateway.refusals import Refused, wrong
from triptych.core.validation import UserError
from triptych.inference.guided.adaptive import Adaptive
from triptych.inference.guided.algorithm import AnyAlgorithm
from triptych.inference.guided.ancestral import Ancestral
from triptych.inference.guided.greedy import Greedy

Kind = Literal["none", "text", "grammar"]
"""No rule; a function of text; a grammar on the tokens of the model."""
SCHEMA = "response_format"
"""The name of a rule that a request brings as a JSON schema."""


@dataclass(frozen=True)
class Rule:
    """A verifier that a gateway has.

    words   what it is, for people
    make    a new one, for a thread of its own; None where there is none. What has a method `close`
            is closed in the end
    """

    name: str
    words: str
    kind: Kind
    make: Callable[[], Any]


NO_RULE = Rule("none", "no verifier", "none", lambda: None)


@dataclass(frozen=True)
class Chosen:
    """What a request gets.

    model      as the request named it, or the first that there is
    schema     that the request brought, as JSON; None: it brought none
    """

    model: str
    rule: str
    words: str
    kind: Kind
    algorithm: AnyAlgorithm
    schema: str | None


class Rules:
    """All rules of a gateway, on a model of this name.

    algorithm   that runs; None is the one that suits the rule, as in `guide`
    """

    def __init__(
        self, model: str, rules: Sequence[Rule] = (), algorithm: AnyAlgorithm | None = None
    ) -> None:
        given = [*rules] or [NO_RULE]
        names = [rule.name for rule in given]
        for rule in given:
            if not rule.name or set(rule.name) & set(":/ ") or names.count(rule.name) > 1:
                raise UserError(
                    f"a rule is called {rule.name!r}; names are words without space, colon and "
                    f"slash, each once: NAME={rule.words}",
                    parameter="rules",
                )
        if algorithm is not None and algorithm.needs_verifier and names == ["none"]:
            raise UserError(
                f"{algorithm.name} needs a rule; without one, ancestral samples from the model",
                parameter="algorithm",
            )
        self.model, self.algorithm = model, algorithm
        self.by_name = {rule.name: rule for rule in given}

    @property
    def first(self) -> Rule:
        return next(iter(self.by_name.values()))

    @property
    def models(self) -> dict[str, Rule]:
        """Every name that a request may give as its model, with its rule."""
        named = {f"{self.model}:{name}": rule for name, rule in self.by_name.items()}
        return {self.model: self.first} | named

    def choose(
        self,
        model: str | None,
        rule: str | None,
        schema: Mapping[str, Any] | bool | None,
        *,
        greedy: bool,
    ) -> Chosen:
        """The rule and the algorithm for a request."""
        models = self.models
        if model is not None and model not in models:
            raise Refused(
                404,
                f"there is no such model here; there are {', '.join(models)}",
                code="model_not_found",
                param="model",
            )
        named = self.model if model is None else model
        chosen = models[named]
        if rule is not None:
            if rule not in self.by_name:
                raise wrong(
                    "triptych",
                    f"there is no such rule here; there are {', '.join(self.by_name)}",
                    "rule_not_found",
                )
            if named != self.model and chosen.name != rule:
                raise wrong("triptych", "the model names one rule and triptych.rule another")
            chosen = self.by_name[rule]
        if schema is None:
            algorithm = self.algorithm_of(chosen.kind, greedy=greedy)
            return Chosen(named, chosen.name, chosen.words, chosen.kind, algorithm, None)
        if chosen.kind != "none":
            raise wrong(
                "response_format",
                f"this model keeps to the rule {chosen.name}, and a request cannot put a schema in "
                "its place",
                "has_a_rule",
            )
        algorithm = self.algorithm_of("grammar", greedy=greedy)
        words = "a JSON schema of the request"
        text = json.dumps(schema, ensure_ascii=False)
        return Chosen(named, SCHEMA, words, "grammar", algorithm, text)

    def algorithm_of(self, kind: Kind, *, greedy: bool) -> AnyAlgorithm:
        """What runs with a rule of this kind.

        With the masks of a grammar one particle of `adaptive` suffices, and its text can be told
        while it is written.
        """
        own = self.algorithm
        if kind == "none":
            return Ancestral() if own is None or own.needs_verifier else own
        if own is None:
            own = Greedy() if greedy else Adaptive()
        if kind == "grammar" and isinstance(own, Adaptive) and own.n is None:
            own = replace(own, n=1)
        return own
