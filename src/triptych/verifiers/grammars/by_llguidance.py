"""Grammars by llguidance (https://github.com/guidance-ai/llguidance), an optional package.

It refuses what it does not read of a schema, in words. Copies of its state cost microseconds.
"""

import functools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from triptych.core.validation import UserError, shown
from triptych.verifiers.grammars.engines import Compiled, not_installed
from triptych.verifiers.grammars.vocabulary import Vocabulary

if TYPE_CHECKING:
    from triptych.verifiers.grammars.grammar import Grammar


def compiled(grammar: "Grammar", vocabulary: Vocabulary) -> Compiled:
    """The grammar as llguidance reads it; what it does not read is an error."""
    try:
        import llguidance
    except ImportError:
        raise not_installed("llguidance") from None
    tokenizer = _tokenizer(vocabulary)
    read = _read(llguidance.LLMatcher, grammar)
    wrong, said = llguidance.LLMatcher.validate_grammar_with_warnings(read, tokenizer)
    matcher = None if wrong else llguidance.LLMatcher(tokenizer, read, log_level=0)
    if matcher is None or matcher.is_error():
        why = said[0] if matcher is None else matcher.get_error()
        raise UserError(
            f"llguidance does not read the {grammar.kind} {shown(grammar.source)}: "
            f"{' '.join(why.split())[:300]}",
            parameter="grammar",
        )
    return Compiled(_Matcher(matcher, vocabulary), tuple(said))


def _read(engine: Any, grammar: "Grammar") -> str:
    if grammar.kind == "json_schema":
        return engine.grammar_from_json_schema(grammar.source)
    if grammar.kind == "lark":
        return engine.grammar_from_lark(grammar.source)
    if grammar.kind == "choices":
        choices = " | ".join(json.dumps(text) for text in grammar.choices)
        return engine.grammar_from_lark(f"start: {choices}")
    return engine.grammar_from_regex(grammar.pattern)


@functools.lru_cache(maxsize=8)
def _tokenizer(vocabulary: Vocabulary) -> Any:
    """The vocabulary, and behind it an end token of llguidance's own."""
    import llguidance

    class Wrapped:
        eos_token_id = len(vocabulary)
        bos_token_id = None
        tokens = (*vocabulary.tokens, b"<end>")
        special_token_ids = (
            *(i for i, token in enumerate(vocabulary.tokens) if not token),
            len(vocabulary),
        )
        is_tokenizer_wrapper = True

        def __call__(self, text: str | bytes) -> list[int]:
            return []  # how forced bytes are spelled; `_Matcher.mask` never lets it ask

    return llguidance.LLTokenizer(Wrapped())  # type: ignore[arg-type]


class _Matcher:
    """Where a grammar forces the next bytes, llguidance's own mask has one spelling of them alone,
    though it accepts every one; so the tokens that fit such bytes are looked up here."""

    def __init__(self, matcher: Any, vocabulary: Vocabulary) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary

    def mask(self) -> Bool[np.ndarray, " vocab"]:
        forced = self._matcher.compute_ff_bytes()
        if forced:
            return self._fitting(forced)
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        return np.unpackbits(bits, bitorder="little")[: len(self._vocabulary)].view(bool)

    def _fitting(self, forced: bytes) -> Bool[np.ndarray, " vocab"]:
        mask = np.zeros(len(self._vocabulary), dtype=bool)
        mask[self._vocabulary.within(forced)] = True
        mask[[t for t in self._vocabulary.beginning_with(forced) if self.allows(t)]] = True
        return mask

    def allows(self, token: int) -> bool:
        allowed = self._matcher.validate_tokens([token]) == 1
        self._check()
        return allowed

    def after(self, token: int) -> "_Matcher":
        copy = self._matcher.deep_copy()
        copy.consume_token(token)
        made = _Matcher(copy, self._vocabulary)
        made._check()
        return made

    def accepts(self) -> bool:
        return self._matcher.is_accepting()

    def _check(self) -> None:
        """Beyond its limits, as that of the size of a grammar, a matcher says so for good."""
        if self._matcher.is_error():
            why = " ".join(self._matcher.get_error().split())
            raise UserError(f"llguidance stopped in the middle of a text: {why[:300]}")
