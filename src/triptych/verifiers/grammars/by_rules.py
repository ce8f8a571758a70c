"""Grammars by our own rules on text: slow and exact, with object keys in any order.

A rule is asked about the text with every token after it; a branch of the vocabulary is left as soon
as its beginning is refused.
"""

import codecs
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from triptych.core.validation import UserError
from triptych.verifiers.grammars.engines import Compiled
from triptych.verifiers.grammars.vocabulary import Vocabulary
from triptych.verifiers.text_rules.json_text import JsonPrefix
from triptych.verifiers.text_rules.regular import RegexPrefix

if TYPE_CHECKING:
    from triptych.verifiers.grammars.grammar import Grammar


def compiled(grammar: "Grammar", vocabulary: Vocabulary) -> Compiled:
    """The grammar as `verifiers.text_rules` reads it; what it does not read is an error."""
    if grammar.kind == "lark":
        raise UserError("triptych has no rule for Lark grammars; take llguidance or xgrammar")
    if grammar.kind == "json_schema":
        if grammar.schema is False:
            raise UserError("the schema is False; it must allow some value")
        rule: Any = JsonPrefix(None if grammar.schema is True else grammar.schema)
    else:
        rule = RegexPrefix(grammar.pattern)
    return Compiled(_Matcher(rule, vocabulary, b""))


class _Branch(NamedTuple):
    """Tokens that begin alike: those that end here, and the branches by their next byte."""

    tokens: list[int]
    longer: dict[int, "_Branch"]


@functools.lru_cache(maxsize=8)
def _tree(vocabulary: Vocabulary) -> _Branch:
    root = _Branch([], {})
    for i, token in enumerate(vocabulary.tokens):
        place = root
        for byte in token:
            place = place.longer.setdefault(byte, _Branch([], {}))
        if token:
            place.tokens.append(i)
    return root


class _Matcher:
    def __init__(self, rule: Callable[..., bool], vocabulary: Vocabulary, written: bytes) -> None:
        self._rule, self._vocabulary, self._written = rule, vocabulary, written

    def mask(self) -> Bool[np.ndarray, " vocab"]:
        mask = np.zeros(len(self._vocabulary), dtype=bool)
        waiting = [(self._written, _tree(self._vocabulary))]
        while waiting:
            written, branch = waiting.pop()
            for byte, longer in branch.longer.items():
                text = written + bytes([byte])
                if self._can_go_on(text):
                    mask[longer.tokens] = True
                    waiting.append((text, longer))
        return mask

    def allows(self, token: int) -> bool:
        more = self._vocabulary.tokens[token]
        return bool(more) and self._can_go_on(self._written + more)

    def after(self, token: int) -> "_Matcher":
        written = self._written + self._vocabulary.tokens[token]
        return _Matcher(self._rule, self._vocabulary, written)

    def accepts(self) -> bool:
        text, half = _read(self._written)
        return text is not None and not half and self._rule(text, finished=True)

    def _can_go_on(self, written: bytes) -> bool:
        """Half a character may stand where the rule says that one beyond ASCII may come."""
        text, half = _read(written)
        if text is None or not self._rule(text):
            return False
        return not half or self._rule.beyond_ascii(text)  # type: ignore[attr-defined]


def _read(written: bytes) -> tuple[str | None, bool]:
    """The whole characters, None where the bytes are no UTF-8; and whether half of one follows."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(written)
    except UnicodeDecodeError:
        return None, False
    return text, bool(decoder.getstate()[0])
