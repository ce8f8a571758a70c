"""Text that is a Python program, by the parser of the Python that runs.

A parser reads tokens from left to right and stops at the first that fits nowhere. Of a text that
was cut at some place, the last token may be half of a longer one. So the text is cut once more,
before that token, and the parser is asked whether it reads what is left to its end.

The parser is asked with `PyCF_ALLOW_INCOMPLETE_INPUT`, as the module `codeop` of the standard
library does. Nothing is run.
"""

import ast
import codeop
import re
import threading
import warnings
from dataclasses import dataclass
from typing import Literal

from triptych.core.validation import UserError, as_flag, as_text, shown

_INCOMPLETE: int = getattr(codeop, "PyCF_ALLOW_INCOMPLETE_INPUT", 0x4000)
_SPACE = " \t\f\r\n"
_COMPLETE = "()[]{},;"  # tokens of one character that no longer token begins with
_TOKEN = re.compile(
    r"""(?P<comment> \#[^\r\n]*)
    | (?P<space> [ \t\f\r\n]+ | \\(?:\r\n|\r|\n|\Z))
    | (?P<string> (?P<prefix> [rRbBuUfF]{0,2}) (?P<quote> '''|\"""|'|"))
    | (?P<number> \.?[0-9](?:[eE][+-]|[\w.]|[^\x00-\x7f])*)
    | (?P<name> (?:\w|[^\x00-\x7f])+)
    | (?P<operator> (?:[-+*/%@&|^=<>!:~]|\.(?![0-9]))+)
    | (?P<other> .)""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"""[^\\\r\n'"{}]*""")  # of a string: without anything to look at
_WRONG = -1  # the end of a string that has none: the line is over
_MAX_FIELDS = 20  # f-strings inside f-strings
_TOO_DEEP = "the text is nested too deeply for Python's parser"
_MAY_GO_ON = ("", "incomplete input", _TOO_DEEP)
_warnings_lock = threading.Lock()  # `catch_warnings` changes a list that all threads share


@dataclass(frozen=True)
class PythonPrefix:
    """Some continuation of the text is a Python program ("exec") or one expression ("eval").

    What is promised: a prefix of a text that Python parses is never refused, wherever it is cut,
    and a finished text is right where Python parses it. Most other texts are refused at the first
    token that fits nowhere, as soon as the next token begins; a mistake inside a string (a field
    of an f-string) shows when the string is over. What Python finds after parsing, as a `return`
    outside a function, is no mistake here.

    Worked value: "if x", "if x:\\n  y = (1," and "x = 'a" can be continued; "x = )", "if if " and
    "if x:\\ny " cannot.
    """

    mode: Literal["exec", "eval"] = "exec"

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str) or self.mode not in ("exec", "eval"):
            raise UserError(
                f"mode is {shown(self.mode)}; it must be 'exec' or 'eval'", parameter="mode"
            )

    def __call__(self, text: str, finished: bool = False) -> bool:
        text, finished = as_text("text", text), as_flag("finished", finished)
        if finished:
            return _parse(text, self.mode, 0) == ""
        cut = _complete_tokens(text)
        if cut is None:
            return False
        # After the backslash the line goes on, and the text is over: the parser asks for a token
        # and learns that there is none, so a line that is cut short is not taken for a full one.
        return _parse(text[:cut] + "\\\n", self.mode, _INCOMPLETE) in _MAY_GO_ON

    def beyond_ascii(self, text: str) -> bool:
        """Whether a letter beyond ASCII may come next: in names, strings and comments.

        Worked value: yes after "x" and 'x = "', no after "x = (1)".
        """
        return self(as_text("text", text) + "é ")


def _complete_tokens(text: str) -> int | None:
    """Where the last token begins that more text may change; None: a string has no end.

    Worked value: "x = 1" is cut before "1", "x = a.b" before "b", and "f(x)" nowhere.
    """
    at = 0
    while at < len(text):
        token = _token(text, at)
        if token["string"] is not None:
            end = _string_end(text, token, 0)
            if end is None or end == _WRONG:
                return None if end == _WRONG else at
            # An empty string may be the beginning of a long one; both are strings to the parser.
        else:
            end = token.end()
            fixed = text[at] in _SPACE or text[at] in _COMPLETE
            if end == len(text) and not fixed:
                return at
        at = end
    return at


def _token(text: str, at: int) -> re.Match[str]:
    token = _TOKEN.match(text, at)
    assert token is not None  # every character is matched by some alternative
    return token


def _string_end(text: str, token: re.Match[str], depth: int) -> int | None:
    """The place after the closing quote; None where the text ends before, or _WRONG."""
    quote, at = token["quote"], token.end()
    formatted = "f" in token["prefix"].lower()
    while at < len(text):
        if text.startswith(quote, at):
            return at + len(quote)
        character, following = text[at], text[at + 1 : at + 2]
        if character in "\r\n" and len(quote) == 1:
            return _WRONG
        if character == "\\" and not (formatted and following in ("{", "}")):
            at += 3 if text.startswith("\r\n", at + 1) else 2
        elif formatted and character == "{" and following == "{":
            at += 2
        elif formatted and character == "{":
            end = _field_end(text, at + 1, quote, depth)
            if end is None or end == _WRONG:
                return end
            at = end
        else:
            at = _PLAIN.match(text, at + 1).end()  # pyright: ignore[reportOptionalMemberAccess]
    return None


def _field_end(text: str, at: int, quote: str, depth: int) -> int | None:
    """The place after the "}" of a field of an f-string that begins at `at`, or as above.

    Since Python 3.12 a field may hold every expression, also strings with the quotes of the
    f-string; older Pythons allow less, and where they allow a field its end is the same.
    """
    if depth > _MAX_FIELDS:
        return None
    open_brackets = 0
    while at < len(text):
        character = text[at]
        if open_brackets == 0 and character == "}":
            return at + 1
        if open_brackets == 0 and character == ":":
            return _format_end(text, at + 1, quote, depth)
        token = _token(text, at)
        if token["string"] is not None:
            end = _string_end(text, token, depth + 1)
            if end is None or end == _WRONG:
                return None  # where a field may not hold this quote, it ends the f-string
            at = end
        elif token["operator"] is not None:
            at += 1  # the operator may hold the ":" before a format
        else:
            open_brackets += (character in "([{") - (character in ")]}")
            at = token.end()
    return None


def _format_end(text: str, at: int, quote: str, depth: int) -> int | None:
    """The place after the "}" of a field whose format begins at `at`, or as above."""
    while at < len(text):
        if text[at] == "}":
            return at + 1
        if text.startswith(quote, at):
            return at  # the f-string ends inside a field, and Python refuses it
        if text[at] == "{":
            end = _field_end(text, at + 1, quote, depth + 1)
            if end is None or end == _WRONG:
                return end
            at = end
        else:
            at += 1
    return None


def _parse(text: str, mode: str, flags: int) -> str:
    """What Python says against a text; nothing if it parses."""
    try:
        with _warnings_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes such as "\d"
            compile(text, "<text>", mode, ast.PyCF_ONLY_AST | flags, dont_inherit=True)
    except SyntaxError as error:
        return error.msg
    except ValueError as error:  # a null character, or a lone surrogate
        return f"not a text: {error}"
    except (MemoryError, RecursionError, OverflowError):
        return _TOO_DEEP
    return ""
