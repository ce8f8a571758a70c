"""Text that is a JSON value, read from left to right.

The grammar is that of RFC 8259: no NaN, no trailing commas, no comments, and control characters in
strings are escaped. Nothing is evaluated.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any, NoReturn

from triptych.core.validation import as_count, as_flag, as_text, set_fields
from triptych.verifiers.text_rules.json_schema import Schema, read_schema, satisfiable

MAX_DEPTH = 200  # that a user may ask for
_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u([0-9a-fA-F]{4}))')
_HALF_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{0,3}))?")
_ESCAPED_CHARACTER = re.compile(r"\\.", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_HALF_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*|(?:\.[0-9]+)?[eE][+-]?[0-9]*)?)?")
_NUMBER_CHARACTERS = re.compile(r"[-+.0-9eE]+")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_DIGIT, _AFTER_A_DIGIT = "0123456789", "0123456789.eE"
_DIGITS = 1000  # of a number, that are compared with bounds while it grows
_ANY = read_schema(None)


@dataclass(frozen=True, eq=False)
class JsonPrefix:
    """Some continuation of the text is a JSON value that fits the schema, with space around it.

    Without a schema the answer is exact, for growing and for finished texts. With one
    (`json_schema` lists the keywords) a growing text is refused as soon as no continuation fits:
    at the first character of a value of another type, in a key or a string of which no allowed one
    begins so, at digits that lead out of the bounds, at a closing brace before all required keys.
    One case is seen late: the exponent of a number, which is compared with the bounds when the
    number is over.

    Objects and arrays inside each other beyond `max_depth` are refused.

    Worked value: '{"a": [1, tru' can be continued, '{"a" 1' and '[1,]' cannot. With the schema
    {"enum": ["red", "green"]}, '"gr' can be continued, '"b' and '1' cannot.
    """

    schema: Mapping[str, Any] | None = None
    max_depth: int = 100
    _read: Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        max_depth = as_count("max_depth", self.max_depth, at_least=0, at_most=MAX_DEPTH)
        set_fields(self, max_depth=max_depth, _read=read_schema(self.schema))

    def __call__(self, text: str, finished: bool = False) -> bool:
        text, finished = as_text("text", text), as_flag("finished", finished)
        reader = _Reader(text, finished, self.max_depth, self.schema is not None)
        try:
            reader.skip_space()
            reader.value(self._read, 0)
            reader.skip_space()
        except _Cut:
            return not finished
        except _Refused:
            return False
        return reader.at == len(text)

    def over(self, text: str) -> bool:
        """The text is such a value, and nothing but space may follow.

        Worked value: yes for '[1]' and '12 '; no for '12', which may become '123', and for '[1'.
        """
        if not self(text, finished=True):
            return False
        return text[-1] not in _DIGIT or not any(self(text + more) for more in _AFTER_A_DIGIT)

    def beyond_ascii(self, text: str) -> bool:
        """Whether a character beyond ASCII may come next: inside of a string, and nowhere else.

        Worked value: yes after '{"na', no after '{"name"' and after '{"name": "\\""'.
        """
        return _ESCAPED_CHARACTER.sub("", as_text("text", text)).count('"') % 2 == 1


class _Cut(Exception):
    """The text is over, and some continuation of it is right."""


class _Refused(Exception):
    """No continuation of the text is right."""


class _Reader:
    """Reads values from `at` on; unique: an object has every key once."""

    def __init__(self, text: str, finished: bool, max_depth: int, unique: bool) -> None:
        self.text, self.finished, self.max_depth, self.unique = text, finished, max_depth, unique
        self.at = 0

    def skip_space(self) -> None:
        self.at = _end(_SPACE, self.text, self.at)

    def next_character(self) -> str:
        """The next character that is no space; it is not read yet."""
        self.skip_space()
        if self.at == len(self.text):
            raise _Cut
        return self.text[self.at]

    def value(self, schema: Schema, depth: int) -> None:
        character = self.next_character()
        if character == '"' and schema.strings:
            self.string(schema.enum_strings)
        elif character in "-0123456789" and schema.numbers:
            self.number(schema)
        elif character == "{" and schema.objects and depth < self.max_depth:
            self.object(schema, depth + 1)
        elif character == "[" and schema.arrays and depth < self.max_depth:
            self.array(schema, depth + 1)
        else:
            self.literal(schema.literals)

    def literal(self, allowed: tuple[str, ...]) -> None:
        for word in allowed:
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return
            if word.startswith(self.text[self.at :]):
                raise _Cut
        raise _Refused

    # ------------------------------------------------------------------ objects and arrays

    def object(self, schema: Schema, depth: int) -> None:
        """Read an object; a key is read as one of those that may come next."""
        self.at += 1
        seen: set[str] = set()
        character = self.next_character()
        while character != "}":
            if character != '"':
                raise _Refused
            key = self.string(self._free_keys(schema, seen))
            inner = schema.properties.get(key, _ANY)
            if (self.unique and key in seen) or not satisfiable(inner):
                raise _Refused
            seen.add(key)
            if self.next_character() != ":":
                raise _Refused
            self.at += 1
            self.value(inner, depth)
            character = self.next_character()
            if character == ",":
                self.at += 1
                if self._free_keys(schema, seen) == ():
                    raise _Refused
                character = self.next_character()
                if character == "}":
                    raise _Refused
            elif character != "}":
                raise _Refused
        if not schema.required <= seen:
            raise _Refused
        self.at += 1

    def _free_keys(self, schema: Schema, seen: set[str]) -> tuple[str, ...] | None:
        """The keys that may come next; None: all."""
        if schema.others:
            return None
        return tuple(
            key
            for key, inner in schema.properties.items()
            if key not in seen and satisfiable(inner)
        )

    def array(self, schema: Schema, depth: int) -> None:
        self.at += 1
        items = _ANY if schema.items is None else schema.items
        character = self.next_character()
        while character != "]":
            self.value(items, depth)
            character = self.next_character()
            if character == ",":
                self.at += 1  # a value must follow
            elif character != "]":
                raise _Refused
        self.at += 1

    # ------------------------------------------------------------------ strings

    def string(self, allowed: tuple[str, ...] | None) -> str:
        """Read a string, one of those that are allowed, and say what it is."""
        self.at += 1
        parts: list[str] = []
        while True:
            end = _end(_PLAIN, self.text, self.at)
            parts.append(self.text[self.at : end])
            self.at = end
            if end == len(self.text):
                self._cut_in_string(parts, allowed, None)
            if self.text[end] == '"':
                self.at += 1
                text = _from_units(_units("".join(parts)))
                if allowed is not None and text not in allowed:
                    raise _Refused
                return text
            escape = _ESCAPE.match(self.text, end)
            if escape is not None:
                code, self.at = escape[1], escape.end()
                parts.append(
                    chr(int(code, 16)) if code else _ESCAPED.get(escape[0][1], escape[0][1])
                )
                continue
            half = _HALF_ESCAPE.fullmatch(self.text, end)
            if half is None:
                raise _Refused
            self._cut_in_string(parts, allowed, half[1] or "")

    def _cut_in_string(
        self, parts: list[str], allowed: tuple[str, ...] | None, escape: str | None
    ) -> NoReturn:
        """The text is over in a string; `escape`: the digits of an escape that was begun."""
        if allowed is None:
            raise _Cut
        units = _units("".join(parts))
        begun = units + (escape or "").lower()
        longer = 0 if escape is None else 1
        for text in allowed:
            whole = _units(text)
            if whole.startswith(begun) and len(whole) >= len(units) + longer:
                raise _Cut
        raise _Refused

    # ------------------------------------------------------------------ numbers

    def number(self, schema: Schema) -> None:
        end = _end(_NUMBER_CHARACTERS, self.text, self.at)
        written, self.at = self.text[self.at : end], end
        if not schema.fractions and set(written) & set(".eE"):
            raise _Refused
        if end < len(self.text) or self.finished:
            if _NUMBER.fullmatch(written) is None or not _fits(written, schema):
                raise _Refused
            return
        if _HALF_NUMBER.fullmatch(written) is None:
            raise _Refused
        if any(_may_reach(written, *bounds, schema.fractions) for bounds in _ranges(schema)):
            raise _Cut
        raise _Refused


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _units(text: str) -> str:
    """The UTF-16 code units of a text, four hexadecimal digits each, as "\\u" escapes have them."""
    return text.encode("utf-16-be", "surrogatepass").hex()


def _from_units(units: str) -> str:
    """The text of code units; two that are a pair become one character."""
    return bytes.fromhex(units).decode("utf-16-be", "surrogatepass")


def _ranges(schema: Schema) -> list[tuple[Decimal, Decimal]]:
    """The allowed numbers, as intervals."""
    if schema.enum_numbers is not None:
        return [(number, number) for number in schema.enum_numbers]
    return [(schema.minimum, schema.maximum)]


def _fits(written: str, schema: Schema) -> bool:
    try:
        number = Decimal(written)
    except InvalidOperation:  # an exponent of more than 18 digits: as good as 0 or infinite
        mantissa, _, exponent = written.lower().partition("e")
        zero = exponent.startswith("-") or not set(mantissa) & set("123456789")
        number = Decimal(0) if zero else Decimal("-Infinity" if written[0] == "-" else "Infinity")
    return any(low <= number <= high for low, high in _ranges(schema))


def _may_reach(written: str, low: Decimal, high: Decimal, fractions: bool) -> bool:
    """Some number that begins as `written` lies between two numbers; exponents may be anything.

    With digits M, without a point and leading zeros, the numbers M·10^k ≤ x < (M + 1)·10^k can be
    reached: for every k, or for k ≥ 0 where there are no fractions. Worked value: "7" reaches no
    integer from 10 to 60, because 7 is too small and 70 too large.
    """
    if not fractions:
        low = low.to_integral_value(ROUND_CEILING)
        high = high.to_integral_value(ROUND_FLOOR)
    if written.startswith("-"):
        low, high = high.copy_negate(), low.copy_negate()
    mantissa = written.lstrip("-").lower().partition("e")[0]
    digits = mantissa.replace(".", "").lstrip("0")
    if not mantissa:
        return high >= 0
    if not digits:
        return high >= 0 and (fractions or low <= 0)
    if high <= 0:
        return False
    if high.is_infinite():
        return True
    unread = max(0, len(digits) - _DIGITS)  # digits that are read over: their numbers all count
    first = int(digits[:_DIGITS])
    k = high.adjusted() - len(str(first)) + 1
    if Decimal((0, tuple(map(int, str(first))), k)) > high:
        k -= 1
    if not fractions and k < unread:
        return False
    return Decimal((0, tuple(map(int, str(first + 1))), k)) > low
