"""One line that tests `append`, read from left to right: is it right, and can it become right?

    assert NAME(LIST, ITEM) == RESULT

The line is right when RESULT is LIST with ITEM at its end. Here it is read in plain form: lists,
tuples, strings in one pair of quotes with simple escapes, whole numbers of up to 9 digits,
fractions of up to 6 more, True, False and None; RESULT repeats the literals of LIST and ITEM as
they were written, but for spaces and the kind of quotes. A ";" and a comment may follow. Then both
questions have exact answers in time linear in the line. Nothing is evaluated.
"""

import ast
import re
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

MAX_DEPTH = 20
"""Lists and tuples inside each other."""
MAX_DIGITS, MAX_FRACTION = 9, 6  # together 15: such numbers differ as floats where they differ

_SPACE = re.compile(r"[ \t]*")
_FORBIDDEN = r"\x00-\x1f\ud800-\udfff"  # in a line that Python reads
_BODY = {
    quote: re.compile(rf"[^{_FORBIDDEN}\\{quote}]*(?:\\[\\'\"nrtabfv][^{_FORBIDDEN}\\{quote}]*)*")
    for quote in "'\""
}
_COMMENT = re.compile(f"[^{_FORBIDDEN}]*")
_NUMBER_BEGUN = re.compile(
    rf"-?(?:(?:0|[1-9][0-9]{{0,{MAX_DIGITS - 1}}})(?:\.([0-9]{{0,{MAX_FRACTION}}}))?)?"
)
_WORDS = ("True", "False", "None")


class Case(NamedTuple):
    """What a test case tests: a list and an item, as hashable keys.

    By `key` equal values are equal as in Python: 1, True and 1.0 are the same.
    """

    list: Any
    item: Any

    @classmethod
    def of(cls, list_: Any, item: Any) -> "Case":
        return cls(key(list_), key(item))


def key(value: Any) -> Any:
    """A hashable key of a literal, the same for what Python calls equal."""
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(key, value))
    if isinstance(value, dict):
        return ("dict", frozenset((key(name), key(each)) for name, each in value.items()))
    if isinstance(value, set | frozenset):
        return ("set", frozenset(map(key, value)))
    return value


def typed_key(value: Any) -> Any:
    """A hashable key of a literal that also tells 1, True and 1.0 apart."""
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(typed_key, value))
    if isinstance(value, dict):
        pairs = ((typed_key(name), typed_key(each)) for name, each in value.items())
        return ("dict", frozenset(pairs))
    if isinstance(value, set | frozenset):
        return ("set", frozenset(map(typed_key, value)))
    return (type(value).__name__, value)


class Cut(Exception):
    """The line is over, and some continuation of it is right."""


class Refused(Exception):
    """No continuation of the line is right; `at` is the first character that is wrong."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Literal(NamedTuple):
    """A literal of the plain form.

    spellings   how it may be repeated, for a literal without parts
    parts       of a list or a tuple, whose brackets are `ends`
    """

    value: Any
    spellings: tuple[str, ...] = ()
    ends: str = ""
    parts: tuple["Literal", ...] = ()


def read_line(line: str, name: str, used: AbstractSet[Case] = frozenset()) -> tuple[list[Any], Any]:
    """LIST and ITEM of a right line; raises Cut or Refused for any other line.

    A case that is among `used` is refused as soon as it can become no other one.
    """
    reader = _Reader(line)
    reader.word("assert")
    reader.space(at_least=1)
    reader.word(name)
    reader.mark("(")
    reader.peek("[")
    first = reader.literal(0)
    reader.mark(",")
    reader.skip()
    item = reader.item(Case.of(first.value, None).list, used)
    reader.mark(")")
    reader.mark("=")
    reader.word("=")
    reader.skip()
    reader.repeat(first._replace(parts=(*first.parts, item)))
    reader.end()
    return first.value, item.value


class _Reader:
    """Reads a line from `at` on."""

    def __init__(self, line: str) -> None:
        self.line, self.at = line, 0
        self.skip()

    def skip(self) -> None:
        space = _SPACE.match(self.line, self.at)
        assert space is not None  # it matches no character too
        self.at = space.end()

    def next(self) -> str:
        """The next character; it is not read yet."""
        if self.at == len(self.line):
            raise Cut
        return self.line[self.at]

    def word(self, word: str) -> None:
        """These characters, and none between them."""
        for character in word:
            if self.next() != character:
                raise Refused(self.at)
            self.at += 1

    def space(self, *, at_least: int) -> None:
        before = self.at
        self.skip()
        if self.at - before < at_least:
            self.next()
            raise Refused(self.at)

    def peek(self, mark: str) -> None:
        self.skip()
        if self.next() != mark:
            raise Refused(self.at)

    def mark(self, mark: str) -> None:
        self.peek(mark)
        self.at += 1

    def end(self) -> None:
        """Nothing follows but a semicolon and a comment."""
        self.skip()
        if self.line[self.at : self.at + 1] == ";":
            self.at += 1
            self.skip()
        if self.line[self.at : self.at + 1] == "#":
            comment = _COMMENT.match(self.line, self.at)
            assert comment is not None
            self.at = comment.end()
        if self.at < len(self.line):
            raise Refused(self.at)

    # ------------------------------------------------------------------ literals that are free

    def literal(self, depth: int) -> Literal:
        character = self.next()
        if character in "[(":
            return self._sequence(character, depth + 1)
        if character in "'\"":
            return self._string(character)
        if character in "-0123456789":
            return self._number()
        for word in _WORDS:
            if word[0] == character:
                self.word(word)
                return Literal(ast.literal_eval(word), (word,))
        raise Refused(self.at)

    def item(self, first: Any, used: AbstractSet[Case]) -> Literal:
        """A literal that makes no case of `used` with the list whose key is `first`."""
        start = self.at
        try:
            item = self.literal(0)
        except Cut:
            possible = _possible(self.line[start:])
            if possible and all(Case(first, key(value)) in used for value in possible):
                raise Refused(len(self.line) - 1) from None
            raise
        if Case(first, key(item.value)) in used:
            # The character after a number is the one that ends it.
            number = self.line[start] in "-0123456789"
            raise Refused(self.at if number else self.at - 1)
        return item

    def _sequence(self, bracket: str, depth: int) -> Literal:
        if depth > MAX_DEPTH:
            raise Refused(self.at)
        ends = "[]" if bracket == "[" else "()"
        self.at += 1
        self.skip()
        parts: list[Literal] = []
        while self.next() != ends[1]:
            if parts:
                if self.next() != ",":
                    raise Refused(self.at)
                self.at += 1
                self.skip()
                if self.next() == ends[1]:  # a comma may stand at the end
                    break
            parts.append(self.literal(depth))
            self.skip()
            if ends == "()" and len(parts) == 1 and self.next() == ")":
                raise Refused(self.at)  # no tuple without a comma
        self.at += 1
        values = [part.value for part in parts]
        return Literal(values if ends == "[]" else tuple(values), (), ends, tuple(parts))

    def _string(self, quote: str) -> Literal:
        start = self.at
        body = _BODY[quote].match(self.line, start + 1)
        assert body is not None
        self.at = body.end()
        character = self.next()
        if character == "\\":  # at the end of the line, or of an escape that is not plain
            if self.at + 1 == len(self.line):
                raise Cut
            raise Refused(self.at + 1)
        if character != quote:
            raise Refused(self.at)
        self.at += 1
        spelled, text = self.line[start : self.at], body[0]
        spellings = (spelled,)
        if not set(text) & set("\\'\""):
            spellings = (f"'{text}'", f'"{text}"')
        # Only an escape needs Python to read it; megabytes of plain text do not.
        value = ast.literal_eval(spelled) if "\\" in text else text
        return Literal(value, spellings)

    def _number(self) -> Literal:
        number = _NUMBER_BEGUN.match(self.line, self.at)
        assert number is not None  # it matches no character too
        start, self.at = self.at, number.end()
        character, spelled = self.next(), number[0]
        if spelled[-1:] in ("-", ".") or character in "0123456789.":
            raise Refused(self.at)
        assert self.at > start
        value = int(spelled) if number[1] is None else float(spelled)
        return Literal(value, (spelled,))

    # ------------------------------------------------------------------ literals that are repeated

    def repeat(self, literal: Literal) -> None:
        """The literal once more."""
        if literal.ends:
            self.word(literal.ends[0])
            for number, part in enumerate(literal.parts):
                if number:
                    self.mark(",")
                self.skip()
                self.repeat(part)
            self.skip()
            if literal.parts and (self.next() == "," or self._needs_comma(literal)):
                self.mark(",")
            self.mark(literal.ends[1])
            return
        rest = self.line[self.at : self.at + max(map(len, literal.spellings))]
        read = 0
        for spelling in literal.spellings:
            if rest.startswith(spelling):
                self.at += len(spelling)
                return
            read = max(read, _in_common(rest, spelling))
        if self.at + read == len(self.line):
            raise Cut
        raise Refused(self.at + read)

    @staticmethod
    def _needs_comma(literal: Literal) -> bool:
        """A tuple of one part is none without it."""
        return literal.ends == "()" and len(literal.parts) == 1


def _in_common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def _possible(begun: str) -> list[Any]:
    """All values that a literal can have that begins so; [] where they are many.

    Worked value: "Tr" can only become True, "1.00001" one of ten numbers, "1" and "[" many.
    """
    for word in _WORDS:
        if begun[:1] == word[0]:
            return [ast.literal_eval(word)]
    number = _NUMBER_BEGUN.fullmatch(begun)
    if number is None or number[1] is None:
        return []
    missing = MAX_FRACTION - len(number[1])
    if 10**missing >= 1000:  # more than a prompt may ask for
        return []
    return [
        float(f"{begun}{more:0{missing}d}" if missing else begun) for more in range(10**missing)
    ]
