"""Text that matches a regular expression of Python's `re`.

The pattern becomes a nondeterministic automaton without states that lead nowhere, so a text can be
continued to a match exactly where some state is left. The time of an answer is linear in the text.
`re` parses the pattern and decides which characters a class holds; its parser is an inner module
(`re._parser`) that Python 3.11 and later have.
"""

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from triptych.core.validation import UserError, as_flag, as_list, as_text, set_fields, shown

MAX_STATES = 20_000  # of one automaton
_REMEMBERED = 50_000  # steps of an automaton that are kept
_CHARACTERS = 0x110000

_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")
_BEGINNINGS = [(_parser.AT, at) for at in (_parser.AT_BEGINNING, _parser.AT_BEGINNING_STRING)]
_ENDS = [(_parser.AT, at) for at in (_parser.AT_END, _parser.AT_END_STRING)]

States = frozenset[int]


class Table(NamedTuple):
    """A deterministic automaton over pieces of text.

    following   the state after each piece, -1 where the text cannot become a match; state 0 is the
                start
    matches     states in which the text is a match
    """

    following: Int[np.ndarray, "states pieces"]
    matches: Bool[np.ndarray, " states"]


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
                f"pattern is {shown(pattern)}; it must be a regular expression: {why}",
                parameter="pattern",
            ) from None
        automaton = _Automaton(pattern, parsed)
        if not automaton.start:
            raise UserError(
                f"pattern is {shown(pattern)}; it must match some text", parameter="pattern"
            )
        set_fields(self, pattern=pattern, _automaton=automaton)

    def __call__(self, text: str, finished: bool = False) -> bool:
        finished, states = as_flag("finished", finished), self._after(text)
        return self._automaton.end in states if finished else bool(states)

    def over(self, text: str) -> bool:
        """The text is a match, and nothing but space may follow.

        Worked value: of "ab*c?" "ac" is over, "a" and "ab" are not; of "a\\s*" "a" is over.
        """
        states = self._after(text)
        return self._automaton.end in states and not states & self._automaton.before_a_sign

    def beyond_ascii(self, text: str) -> bool:
        """Whether a character beyond ASCII may come next.

        Worked value: yes after "a" for "ab?[é-ü]", no after "a" for "ab[é-ü]".
        """
        moves = (move for s in self._after(text) for move in self._automaton.moves[s])
        alive = self._automaton.alive
        return any(target in alive and reads.beyond_ascii for reads, target in moves)

    def over_pieces(self, pieces: Sequence[str], most: int = MAX_STATES) -> Table:
        """The same as a deterministic automaton, over pieces of text instead of characters.

        An empty piece is refused everywhere. Worked value: of "ab*c" over "a", "b" and "c" the
        states are those before a, after a, after b and after c; the last one is a match.
        """
        tree: dict[str, Any] = {}
        for i, piece in enumerate(as_list("pieces", pieces, "texts")):
            place = tree
            for character in as_text(f"pieces[{i}]", piece):
                place = place.setdefault(character, {})
            if piece:
                place.setdefault("", []).append(i)
        known, rows = {self._automaton.start: 0}, []
        waiting = [self._automaton.start]
        while waiting:
            row = np.full(len(pieces), -1, dtype=np.int64)
            for states, found in self._reached(waiting.pop(0), tree):
                if states not in known:
                    if len(known) >= most:
                        raise UserError(
                            f"pattern is {shown(self.pattern)}; over these pieces it has more than "
                            f"{most} states",
                            parameter="pieces",
                        )
                    known[states] = len(known)
                    waiting.append(states)
                row[found] = known[states]
            rows.append(row)
        return Table(np.stack(rows), np.array([self._automaton.end in states for states in known]))

    def _reached(self, states: "States", tree: dict[str, Any]) -> list[tuple["States", list[int]]]:
        """Pieces that can be read from here, and where they lead."""
        found = [(states, tree[""])] if "" in tree else []
        for character, longer in tree.items():
            if character and (after := self._automaton.step(states, character)):
                found += self._reached(after, longer)
        return found

    def _after(self, text: str) -> "States":
        """The states after a text; none where it cannot become a match."""
        states = self._automaton.start
        for character in as_text("text", text):
            if not states:
                break
            states = self._automaton.step(states, character)
        return states


class _Characters:
    """The characters that a class of a pattern holds, as `re` has them."""

    def __init__(self, leaf: re.Pattern[str]) -> None:
        self._leaf = leaf

    def __contains__(self, character: str) -> bool:
        return self._leaf.fullmatch(character) is not None

    @cached_property
    def some(self) -> bool:
        """It holds a character."""
        return self._leaf.search(_every_character()) is not None

    @cached_property
    def sign(self) -> bool:
        """It holds one that is no space."""
        return any(not found[0].isspace() for found in self._leaf.finditer(_every_character()))

    @cached_property
    def beyond_ascii(self) -> bool:
        """It holds one beyond ASCII."""
        return self._leaf.search(_every_character(), 128) is not None


@cache
def _every_character() -> str:
    return "".join(map(chr, range(_CHARACTERS)))


class _Automaton:
    """States 0, 1, ...: `silent[s]` are steps without a character, `moves[s]` steps that read one.

    start   the states before the first character
    end     the state of a match
    alive   the states that lead to the end
    """

    def __init__(self, pattern: str, parsed: Any) -> None:
        self.pattern = pattern
        self.silent: list[list[int]] = []
        self.moves: list[list[tuple[_Characters, int]]] = []
        self._leaves: dict[str, _Characters] = {}
        self._steps: dict[tuple[States, str], States] = {}
        first, items = self._state(), list(parsed)
        if items and items[0] in _BEGINNINGS:
            items.pop(0)
        if items and items[-1] in _ENDS:
            items.pop()
        self.end = self._sequence(first, items, parsed.state.flags)
        self.alive = self._leading_to({self.end})
        self.start = self._closure({first})

    @cached_property
    def before_a_sign(self) -> set[int]:
        """The states after which a character that is no space can come, now or later."""
        return self._leading_to(
            {
                s
                for s, moves in enumerate(self.moves)
                if any(target in self.alive and reads.sign for reads, target in moves)
            }
        )

    def step(self, states: States, character: str) -> States:
        """The states after one more character."""
        known = self._steps.get((states, character))
        if known is None:
            reached = {
                target for s in states for reads, target in self.moves[s] if character in reads
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
        return frozenset(reached & self.alive)

    def _leading_to(self, goal: set[int]) -> set[int]:
        """The states from which some step, or none, leads into the goal."""
        before: list[list[int]] = [[] for _ in self.silent]
        for s, (silent, moves) in enumerate(zip(self.silent, self.moves, strict=True)):
            for target in [*silent, *(target for _, target in moves)]:
                before[target].append(s)
        waiting, leading = list(goal), set(goal)
        while waiting:
            for s in before[waiting.pop()]:
                if s not in leading:
                    leading.add(s)
                    waiting.append(s)
        return leading

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
            if reads.some:
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

    def _reads(self, operation: Any, argument: Any, flags: int) -> _Characters:
        key = f"{operation} {argument} {flags}"
        if key not in self._leaves:
            state = _parser.State()
            state.flags, state.str = flags, self.pattern
            leaf = _compiler.compile(_parser.SubPattern(state, [(operation, argument)]), flags)
            self._leaves[key] = _Characters(leaf)
        return self._leaves[key]
