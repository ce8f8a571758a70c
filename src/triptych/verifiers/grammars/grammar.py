"""A grammar as it is given, before any engine reads it.

    Grammar.from_json_schema(schema)     JSON that fits a schema
    Grammar.from_pydantic(Model)         JSON that a pydantic model reads
    Grammar.from_python_type(list[int])  JSON of a Python type, by pydantic
    Grammar.from_regex(pattern)          a match of a regular expression of Python
    Grammar.from_choices(["yes", "no"])  one of some texts
    Grammar.from_lark(text)              a Lark grammar, in the engine's own dialect

`grammar.on(lm)` makes a verifier of tokens, with the mask of the whole vocabulary.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from triptych.core.deprecation import renamed, renamed_names
from triptych.core.validation import UserError, as_flag, as_list, as_text, shown
from triptych.verifiers.grammars.engines import (
    ENGINES,
    Compiled,
    Engine,
    as_engine,
    engine_version,
    not_installed,
)
from triptych.verifiers.grammars.features import Complaint, complaints, pattern_complaints
from triptych.verifiers.grammars.verifier import GrammarVerifier
from triptych.verifiers.grammars.vocabulary import Vocabulary
from triptych.verifiers.text_rules.regular import RegexPrefix

__getattr__ = renamed_names(__name__, Kind="GrammarKind")

GrammarKind = Literal["json_schema", "regex", "choices", "lark"]


@dataclass(frozen=True)
class Grammar:
    """Which texts are right. Made by one of the `from_` methods.

    kind     json_schema, regex, choices or lark
    source   the schema as JSON, the pattern, the choices as JSON, or the text of the grammar
    """

    kind: GrammarKind
    source: str

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in get_args(GrammarKind):
            raise UserError(
                f"kind is {shown(self.kind)}; it must be one of {', '.join(get_args(GrammarKind))}",
                parameter="kind",
            )
        as_text("source", self.source)

    @classmethod
    def from_json_schema(cls, schema: Mapping[str, Any] | bool | str) -> "Grammar":
        """JSON that fits a schema: a dict, True, False, or the schema as JSON."""
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except ValueError as error:
                raise UserError(
                    f"schema is {shown(schema)}, which is not JSON: {error}", parameter="schema"
                ) from None
        if not isinstance(schema, Mapping | bool):
            raise UserError(
                f"schema is {shown(schema)}; it must be a dict of JSON Schema", parameter="schema"
            )
        try:
            return cls("json_schema", json.dumps(schema, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(
                f"schema is {shown(schema)}; it must be what JSON can say: {error}",
                parameter="schema",
            ) from None

    @classmethod
    def from_pydantic(cls, model: Any) -> "Grammar":
        """JSON that a pydantic model reads, by its own schema."""
        schema = getattr(model, "model_json_schema", None)
        if not callable(schema):
            raise UserError(
                f"model is {shown(model)}; it must be a class that inherits from "
                "pydantic.BaseModel",
                parameter="model",
            )
        return cls.from_json_schema(_schema_by(schema, model))

    @classmethod
    def from_python_type(cls, type_: Any) -> "Grammar":
        """JSON of a Python type, as pydantic reads it: list[int], a TypedDict, a dataclass, ...

        Worked value: of `int | None` the schema is anyOf integer and null.
        """
        try:
            from pydantic import TypeAdapter
        except ImportError:
            raise UserError(
                "a schema of a Python type needs pydantic, which is not installed: "
                "pip install pydantic"
            ) from None
        return cls.from_json_schema(_schema_by(lambda: TypeAdapter(type_).json_schema(), type_))

    @classmethod
    def from_regex(cls, pattern: str) -> "Grammar":
        """A match of the whole pattern. It must be regular, in the way of Python's `re`."""
        return cls("regex", RegexPrefix(pattern).pattern)

    @classmethod
    def from_choices(cls, choices: Sequence[str]) -> "Grammar":
        """One of some texts."""
        texts = [as_text("a choice", text) for text in as_list("choices", choices, "texts")]
        if not texts:
            raise UserError("choices is empty; it must hold at least one text", parameter="choices")
        return cls("choices", json.dumps(list(dict.fromkeys(texts)), ensure_ascii=False))

    @classmethod
    def from_lark(cls, text: str) -> "Grammar":
        """A Lark grammar with a rule `start`; engines differ in what of Lark they read."""
        if not as_text("text", text).strip():
            raise UserError("text is empty; it must be a Lark grammar with a rule `start`")
        return cls("lark", text)

    @renamed(model="lm")
    def on(
        self,
        lm: Any,
        engine: Engine | None = None,
        *,
        strict: bool = True,
    ) -> GrammarVerifier:
        """A verifier of the tokens of a model: log V is 0 where the text can become right.

        lm       a PretrainedCausalLM, a fast tokenizer, or a `Vocabulary`
        engine   llguidance, xgrammar or triptych; None is the first of these that is installed and
                 reads the grammar
        strict   a schema with a feature that the engine is known to read too widely is refused;
                 with False the verifier lists it in its `warnings`

        What an engine cannot read is a UserError, here and not at the first token. A feature that
        makes an engine refuse texts that are right, as another order of properties, is in
        `warnings`.
        """
        vocabulary, strict = Vocabulary.of(lm), as_flag("strict", strict)
        if engine is not None:
            return self._by(as_engine(engine), vocabulary, strict)
        refused = []
        installed: list[Engine] = [one for one in ENGINES if engine_version(one) is not None]
        for there in installed:
            try:
                return self._by(there, vocabulary, strict)
            except UserError as error:
                refused.append(str(error))
        raise UserError(
            f"no engine that is installed reads the grammar. {'. '.join(refused)}"
            + ("" if "llguidance" in installed else f". {not_installed('llguidance')}")
        )

    def _by(self, engine: Engine, vocabulary: Vocabulary, strict: bool) -> GrammarVerifier:
        known = self.complaints(engine)
        if strict and (wrong := [said for said in known if said.accepts_too_much]):
            raise UserError(
                f"{engine} {engine_version(engine)} would accept what is wrong: "
                + "; ".join(said.sentence for said in wrong)
                + ". Take another engine; in Python, strict=False puts this into `warnings`"
            )
        compiled = self.compiled(engine, vocabulary)
        said = (*(found.sentence for found in known), *compiled.warnings)
        return GrammarVerifier(vocabulary, compiled.start, engine, tuple(dict.fromkeys(said)))

    def complaints(self, engine: Engine) -> tuple[Complaint, ...]:
        """What is known of an engine about this grammar."""
        if self.kind == "json_schema":
            return complaints(self.schema, engine)
        return pattern_complaints(self.source, engine) if self.kind == "regex" else ()

    def compiled(self, engine: Engine, vocabulary: Vocabulary) -> Compiled:
        """The grammar as an engine reads it, with no word of what is known about the engine."""
        if as_engine(engine) == "llguidance":
            from triptych.verifiers.grammars import by_llguidance as module
        elif engine == "xgrammar":
            from triptych.verifiers.grammars import by_xgrammar as module
        else:
            from triptych.verifiers.grammars import by_rules as module
        return module.compiled(self, vocabulary)

    @cached_property
    def schema(self) -> Any:
        """The JSON schema as Python has it."""
        return json.loads(self.source)

    @cached_property
    def choices(self) -> list[str]:
        """The choices."""
        return json.loads(self.source)

    @property
    def pattern(self) -> str:
        """A regular expression for a pattern or for choices."""
        if self.kind == "choices":
            return "|".join(re.escape(text) for text in self.choices)
        return self.source


def _schema_by(make: Any, of: Any) -> Any:
    try:
        return make()
    except Exception as error:  # pydantic has many errors for what has no schema
        raise UserError(
            f"pydantic makes no JSON schema of {shown(of)}: {' '.join(str(error).split())[:200]}",
            parameter="of",
        ) from error
