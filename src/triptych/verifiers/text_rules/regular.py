"""Text that matches a regular expression of Python's `re`.

The pattern becomes a nondeterministic automaton without states that lead nowhere, so a text can be
continued to a match exactly where some state is left. The time of an answer is linear in the text.
`re` parses the pattern and decides which characters a class holds; its parser is an inner module
(`re._parser`) that Python 3.11 and later have.
"""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from triptych.core.validation import UserError, as_flag, as_text, set_fields, shown

MAX_STATES = 20_000  # of one automaton
_REMEMBERED = 50_000  # steps of an automaton that are kept
_CHARACTERS = 0x110000

_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")
_BEGINNINGS = [(_parser.AT, at) for at in (_parser.AT_BEGINNING, _parser.AT_BEGINNING_STRING)]
_ENDS = [(_parser.AT, at) for at in (_parser.AT_END, _parser.AT_END_STRING)]

States = frozenset[int]


@dataclass(frozen=True)
class RegexPrefix:
    """Some continuation of the text matches the whole pattern; a finished text matches itself.

    Both answers are exact. A pattern may have characters, classes, groups, alternatives,
    repetitions and flags, "^" at its start and "$" at its end; greedy and lazy repetitions are the
    same here. Back-references, look-arounds, word boundaries, and atomic and possessive parts are
    refused: they are not regular.

    Worked value: of "ab*c", "a" and "abb" can be continued, "ac" is a match, "b" and "acc" are
    refused.
    """

    pattern: str
    _automaton: "_Automaton" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pattern = as_text("pattern", self.pattern)
        try:
            parsed = _parser.parse(pattern)
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            why = " ".join(str(error).split())
            raise UserError(
                f"pattern is {shown(pattern)}; it must be a regular expression: {why}"
            ) from None
        automaton = _Automaton(pattern, parsed)
        if not automaton.start:
            raise UserError(f"pattern is {shown(pattern)}; it must match some text")
        set_fields(self, pattern=pattern, _automaton=automaton)

    def __call__(self, text: str, finished: bool = False) -> bool:
        text, finished = as_text("text", text), as_flag("finished", finished)
        states = self._automaton.start
        for character in text:
            if not states:
                return False
            states = self._automaton.step(states, character)
        return self._automaton.end in states if finished else bool(states)


class _Automaton:
    """States 0, 1, ...: `silent[s]` are steps without a character, `moves[s]` steps that read one.

    start   the states before the first character
    end     the state of a match
    """

    def __init__(self, pattern: str, parsed: Any) -> None:
        self.pattern = pattern
        self.silent: list[list[int]] = []
        self.moves: list[list[tuple[Callable[[str], bool], int]]] = []
        self._leaves: dict[str, Callable[[str], bool] | None] = {}
        self._steps: dict[tuple[States, str], States] = {}
        first, items = self._state(), list(parsed)
        if items and items[0] in _BEGINNINGS:
            items.pop(0)
        if items and items[-1] in _ENDS:
            items.pop()
        self.end = self._sequence(first, items, parsed.state.flags)
        self._alive = self._leading_to_the_end()
        self.start = self._closure({first})

    def step(self, states: States, character: str) -> States:
        """The states after one more character."""
        known = self._steps.get((states, character))
        if known is None:
            reached = {
                target for s in states for reads, target in self.moves[s] if reads(character)
            }
            known = self._closure(reached)
            if len(self._steps) >= _REMEMBERED:
                self._steps.clear()
            self._steps[states, character] = known
        return known

    def _closure(self, states: set[int]) -> States:
        """These states and all that silent steps lead to, as far as they lead to the end."""
        waiting, reached = list(states), set(states)
        while waiting:
            for target in self.silent[waiting.pop()]:
                if target not in reached:
                    reached.add(target)
                    waiting.append(target)
        return frozenset(reached & self._alive)

    def _leading_to_the_end(self) -> set[int]:
        before: list[list[int]] = [[] for _ in self.silent]
        for s, (silent, moves) in enumerate(zip(self.silent, self.moves, strict=True)):
            for target in [*silent, *(target for _, target in moves)]:
                before[target].append(s)
        waiting, alive = [self.end], {self.end}
        while waiting:
            for s in before[waiting.pop()]:
                if s not in alive:
                    alive.add(s)
                    waiting.append(s)
        return alive

    # ------------------------------------------------------------------ from a parsed pattern

    def _state(self) -> int:
        if len(self.silent) >= MAX_STATES:
            raise UserError(
                f"pattern is {shown(self.pattern)}; written out it must have at most {MAX_STATES} "
                "states: repeat a part less often"
            )
        self.silent.append([])
        self.moves.append([])
        return len(self.silent) - 1

    def _sequence(self, state: int, items: Any, flags: int) -> int:
        """The state that is reached from `state` when all items have been read, in order."""
        for operation, argument in items:
            state = self._item(state, operation, argument, flags)
        return state

    def _item(self, state: int, operation: Any, argument: Any, flags: int) -> int:
        if operation is _parser.SUBPATTERN:
            _, added, removed, items = argument
            return self._sequence(state, items, (flags | added) & ~removed)
        if operation is _parser.BRANCH:
            ends = [self._sequence(self._after(state), items, flags) for items in argument[1]]
            after = self._state()
            for end in ends:
                self.silent[end].append(after)
            return after
        if operation in (_parser.MAX_REPEAT, _parser.MIN_REPEAT):
            at_least, at_most, items = argument
            return self._repeated(state, at_least, at_most, items, flags)
        if operation in (_parser.LITERAL, _parser.NOT_LITERAL, _parser.ANY, _parser.IN):
            after = self._state()
            reads = self._reads(operation, argument, flags)
            if reads is not None:
                self.moves[state].append((reads, after))
            return after
        raise UserError(
            f"pattern is {shown(self.pattern)}; it must be regular: without back-references, "
            "look-arounds, word boundaries, atomic and possessive parts, and with '^' and '$' at "
            "its ends only"
        )

    def _after(self, state: int) -> int:
        """A new state that a silent step leads to."""
        after = self._state()
        self.silent[state].append(after)
        return after

    def _repeated(self, state: int, at_least: int, at_most: int, items: Any, flags: int) -> int:
        for _ in range(at_least):
            state = self._sequence(self._after(state), items, flags)
        if at_most == _parser.MAXREPEAT:
            begin = self._after(state)
            self.silent[self._sequence(self._after(begin), items, flags)].append(begin)
            return self._after(begin)
        skipping = [state]
        for _ in range(at_most - at_least):
            state = self._sequence(self._after(state), items, flags)
            skipping.append(state)
        after = self._state()
        for s in skipping:
            self.silent[s].append(after)
        return after

    def _reads(self, operation: Any, argument: Any, flags: int) -> Callable[[str], bool] | None:
        """Whether one character is of a class, as `re` has it; None for a class without any."""
        key = f"{operation} {argument} {flags}"
        if key not in self._leaves:
            state = _parser.State()
            state.flags, state.str = flags, self.pattern
            leaf = _compiler.compile(_parser.SubPattern(state, [(operation, argument)]), flags)
            some = any(leaf.fullmatch(chr(code)) for code in range(_CHARACTERS))
            self._leaves[key] = (lambda c: leaf.fullmatch(c) is not None) if some else None
        return self._leaves[key]
