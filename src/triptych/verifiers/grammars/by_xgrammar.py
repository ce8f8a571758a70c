"""Grammars by xgrammar (https://github.com/mlc-ai/xgrammar), an optional package.

Schemas are read with strict_mode=False: keys and items that a schema does not name are allowed, as
JSON Schema has it. xgrammar reads past keywords that it does not know; `features` has the list.
"""

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from triptych.core.validation import UserError, shown
from triptych.verifiers.grammars.engines import Compiled, not_installed
from triptych.verifiers.grammars.vocabulary import Vocabulary

if TYPE_CHECKING:
    from triptych.verifiers.grammars.grammar import Grammar


def compiled(grammar: "Grammar", vocabulary: Vocabulary) -> Compiled:
    """The grammar as xgrammar reads it; what it does not read is an error."""
    try:
        import xgrammar  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise not_installed("xgrammar") from None
    compiler = _compiler(vocabulary)
    try:
        if grammar.kind == "json_schema":
            read = compiler.compile_json_schema(grammar.source, strict_mode=False)
        elif grammar.kind == "lark":
            read = compiler.compile_lark(grammar.source)
        else:
            read = compiler.compile_regex(grammar.pattern)
        matcher = xgrammar.GrammarMatcher(read)
    except (RuntimeError, ValueError, TypeError) as error:
        raise UserError(
            f"xgrammar does not read the {grammar.kind} {shown(grammar.source)}: "
            f"{' '.join(str(error).split())[:300]}",
            parameter="grammar",
        ) from error
    return Compiled(_Matcher(matcher, len(vocabulary)))


@functools.lru_cache(maxsize=8)
def _compiler(vocabulary: Vocabulary) -> Any:
    """The vocabulary, and behind it a stop token of xgrammar's own."""
    import xgrammar  # pyright: ignore[reportMissingImports]

    info = xgrammar.TokenizerInfo(
        [*vocabulary.tokens, b""], xgrammar.VocabType.RAW, stop_token_ids=[len(vocabulary)]
    )
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


class _Matcher:
    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher, self._size = matcher, size

    def mask(self) -> Bool[np.ndarray, " vocab"]:
        bits = np.full((1, (self._size + 32) // 32), -1, dtype=np.int32)
        self._matcher.fill_next_token_bitmask(bits)
        return np.unpackbits(bits.view(np.uint8)[0], bitorder="little")[: self._size].view(bool)

    def allows(self, token: int) -> bool:
        if not self._matcher.accept_token(token):
            return False
        self._matcher.rollback(1)
        return True

    def after(self, token: int) -> "_Matcher":
        copy = self._matcher.fork()
        copy.accept_token(token)
        return _Matcher(copy, self._size)

    def accepts(self) -> bool:
        return self._matcher.is_completed()
