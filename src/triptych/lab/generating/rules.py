"""The verifier of `triptych generate`, by what a user writes.

    json                 a JSON value          json:schema.json     one that fits the schema
    regex:PATTERN        a match of the whole pattern
    lark:FILE            a Lark grammar        python               source code
    brackets             balanced ( [ {
    rule.py:function     a function of the completion's text: True, False or a probability
    NAME                 such a function that an installed package offers (`triptych list`)

A schema, a pattern and a Lark grammar are read by the first grammar engine that is installed and
reads them, with masks of the whole vocabulary; our own rules on text (`triptych`) come last. Ours
are asked in this process. A function of a user or of a package is asked in a process of its own,
with a limit on the seconds of one question (`rule_process`).
"""

import difflib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from triptych.core.plugins import plugins
from triptych.core.validation import UserError, shown
from triptych.lab.generating.rule_process import (
    RuleFailed,
    RuleNotThere,
    RuleProcess,
    as_value,
    in_one_line,
)
from triptych.verifiers.grammars.engines import ENGINES, as_engine, engine_version
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.verifier import GrammarVerifier
from triptych.verifiers.grammars.vocabulary import every_byte
from triptych.verifiers.text import EndsText, KnowsCharacters

KINDS = ("json", "json:schema.json", "regex:PATTERN", "lark:FILE", "python", "brackets")
KINDS += ("rule.py:function",)
_REMEMBERED = 100_000  # answers
_SHOWN = 120  # characters of a text in a reason


class RuleSource(NamedTuple):
    """A verifier as plain data, which another process can make.

    kind      json, regex, lark, python, brackets, own or installed
    file      of a schema, a Lark grammar or a rule of one's own; the module of an installed one
    detail    the pattern, or the name of the function
    digest    of the file's bytes; the package and its version
    engine    that reads a grammar, and its version; empty where the verifier is no grammar
    """

    kind: str
    file: str = ""
    detail: str = ""
    digest: str = ""
    engine: str = ""

    @property
    def has_masks(self) -> bool:
        """An engine reads the grammar, by tokens; our own rules read text."""
        return self.engine.partition(" ")[0] not in ("", "triptych")


def find_rule(given: str, engine: str | None = None) -> RuleSource:
    """The rule that a user names; what cannot be one is an error here.

    engine   that reads the grammar; None is the first that is installed and reads it
    """
    source = _named(given)
    if not _is_grammar(source):
        if engine is not None:
            raise UserError(
                f"--grammar-engine is for json:schema.json, regex:PATTERN and lark:FILE; the "
                f"verifier is {given!r}"
            )
        return source
    if engine is not None and engine not in ENGINES:
        raise UserError(f"--grammar-engine is {engine!r}; it must be one of {', '.join(ENGINES)}")
    chosen = _grammar(source).on(every_byte(), None if engine is None else as_engine(engine)).engine
    return source._replace(engine=f"{chosen} {engine_version(chosen)}")


def on_tokens(source: RuleSource, model: Any) -> GrammarVerifier:
    """A grammar as its engine reads it on the tokens of a model, or of `every_byte()`."""
    name, _, version = source.engine.partition(" ")
    chosen = as_engine(name)
    if (there := engine_version(chosen)) != version:
        here = "is not installed" if there is None else f"{there} is installed"
        raise UserError(f"the run is by {source.engine}, and {here} where the model is loaded")
    return _grammar(source).on(model, chosen)


def grammar_warnings(source: RuleSource | None) -> tuple[str, ...]:
    """What is known of the engine about this grammar, in sentences."""
    if source is None or not source.engine:
        return ()
    return on_tokens(source, every_byte()).warnings


def _named(given: str) -> RuleSource:
    kind, colon, rest = given.partition(":")
    offered = plugins("verifiers")
    if ".py" in given and kind != "regex":
        file, _, name = given.rpartition(":")
        if not file.endswith(".py") or not name.isidentifier():
            raise UserError(
                f"the verifier is {given!r}; a rule of your own is given as rule.py:function",
                parameter="given",
            )
        return RuleSource("own", str(Path(file).resolve()), name, _digest(file, "a rule"))
    if kind == "json" and colon:
        return RuleSource("json", str(Path(rest).resolve()), "", _digest(rest, "a schema"))
    if kind == "lark" and colon:
        return RuleSource("lark", str(Path(rest).resolve()), "", _digest(rest, "a Lark grammar"))
    if kind == "regex" and colon:
        return RuleSource("regex", detail=rest)
    if given in ("json", "python", "brackets"):
        return RuleSource(given)
    if given in offered:
        found = offered[given]
        found.load()  # refuses one that cannot be loaded
        return RuleSource("installed", found.module, found.attribute, found.package)
    names = ["json", "regex:", "lark:", "python", "brackets", *offered]
    near = difflib.get_close_matches(given, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    kinds = ", ".join([*KINDS, *offered])
    raise UserError(f"there is no verifier {given!r}{hint} It is one of {kinds}", parameter="given")


def _is_grammar(source: RuleSource) -> bool:
    return source.kind in ("regex", "lark") or (source.kind == "json" and bool(source.file))


def _grammar(source: RuleSource) -> Grammar:
    if source.kind == "regex":
        return Grammar.from_regex(source.detail)
    if source.kind == "json":
        return Grammar.from_json_schema(_schema(source.file))
    try:
        return Grammar.from_lark(Path(source.file).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"the grammar {source.file!r} is not UTF-8: {error}") from error


def _schema(file: str) -> Any:
    try:
        schema = json.loads(Path(file).read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"the schema {file!r} is not JSON: {error}", parameter="file") from error
    if not isinstance(schema, dict | bool):
        raise UserError(
            f"the schema {file!r} holds {shown(schema)}; it must be an object of JSON",
            parameter="file",
        )
    return schema


class AskedRule:
    """A rule that remembers its answers, and what went wrong last.

    failure   why the latest question had no answer, and the text it was about; None if it had one
    """

    def __init__(self, source: RuleSource, timeout: float) -> None:
        self._own: RuleProcess | None = None
        if source.kind in ("own", "installed"):
            try:
                self._own = RuleProcess(source.file, source.detail, timeout)
            except RuleNotThere as error:
                raise UserError(f"the verifier: {error}") from error
            except RuleFailed as error:
                raise UserError(f"the verifier cannot be started: {error}") from error
            self._told, self._function = self._own.told, self._own
        else:
            self._told, self._function = True, _ready_made(source)
        self._known: dict[tuple[str, bool], float | str] = {}
        self.failure: tuple[str, str] | None = None

    def __call__(self, text: str, finished: bool = False) -> float:
        question = (text, finished and self._told)
        if question not in self._known:
            self._known[question] = self._ask(*question)
            while len(self._known) > _REMEMBERED:
                self._known.pop(next(iter(self._known)))
        answer = self._known[question]
        if isinstance(answer, str):
            self.failure = (answer, text)
            raise RuleFailed(answer)
        return answer

    def over(self, text: str) -> bool:
        """A ready rule says that the text is over; one of the user's own never does."""
        return isinstance(self._function, EndsText) and self._function.over(text)

    def beyond_ascii(self, text: str) -> bool:
        """Whether a character beyond ASCII may come next, as far as the rule knows."""
        if not isinstance(self._function, KnowsCharacters):
            return True
        return self._function.beyond_ascii(text)

    def check(self) -> None:
        """Refuse a rule whose answers are of a wrong kind, by asking about the empty text."""
        try:
            self("")
        except RuleFailed as error:
            if str(error).startswith("TypeError: the answer is"):
                raise UserError(
                    f"the verifier answers a wrong thing to the empty text: {error}"
                ) from None
        self.failure = None

    def close(self) -> None:
        if self._own is not None:
            self._own.close()

    def _ask(self, text: str, finished: bool) -> float | str:
        """The value, or why there is none."""
        try:
            return as_value(self._function(text, finished))
        except RuleFailed as error:
            return str(error)
        except Exception as error:
            return in_one_line(error)


def failure_reason(why: str, text: str) -> str:
    """The reason of a row whose verifier gave no answer."""
    quoted = repr(text) if len(text) <= _SHOWN else "..." + repr(text[-_SHOWN:])
    return f"the verifier failed on the text {quoted}: {why}"


def _ready_made(source: RuleSource) -> Callable[..., Any]:
    from triptych.verifiers.text_rules.brackets import BracketPrefix
    from triptych.verifiers.text_rules.json_text import JsonPrefix
    from triptych.verifiers.text_rules.python_source import PythonPrefix
    from triptych.verifiers.text_rules.regular import RegexPrefix

    if source.kind == "regex":
        return RegexPrefix(source.detail)
    if source.kind == "python":
        return PythonPrefix()
    if source.kind == "brackets":
        return BracketPrefix()
    schema = _schema(source.file) if source.file else True
    return JsonPrefix(None if schema is True else schema)


def _digest(file: str, what: str) -> str:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise UserError(
            f"the verifier: {what} in {file!r} cannot be read ({error.strerror or error})",
            parameter="file",
        ) from error
