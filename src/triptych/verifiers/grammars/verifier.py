"""A grammar as a verifier of tokens: prefix rule, mask of the whole vocabulary, ends of texts.

States of the engine are kept by the tokens of a completion. So a row that is rolled back, forked or
copied finds its state again, whatever the algorithm did, and nothing is kept per row.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.protocols import Question
from triptych.core.validation import set_fields
from triptych.verifiers.grammars.engines import Engine, Matcher
from triptych.verifiers.grammars.vocabulary import Vocabulary

STATES = 4096  # of an engine, a few kilobytes each, that are kept
MASKS = 256  # of a byte for each token of the vocabulary


@dataclass(frozen=True, eq=False)
class GrammarVerifier:
    """log V of a row is 0 where its completion can become right, -inf elsewhere.

    A completion that holds an end token, or that is asked about as a finished text, must be right
    as it stands; what stands behind an end token is not read.

    vocabulary   the bytes of the tokens
    state        where the engine stands before the first token
    engine       its name
    warnings     what is known of the engine about this grammar, in sentences

    Worked value: for the choices "ab" and "b" of the tokens a and b, log V of [a] is 0 and its mask
    is b alone; log V of [a, a] is -inf.
    """

    vocabulary: Vocabulary
    state: Matcher = field(repr=False)
    engine: Engine
    warnings: tuple[str, ...] = ()
    _states: "OrderedDict[tuple[int, ...], Matcher]" = field(
        init=False, repr=False, default_factory=OrderedDict
    )
    _masks: "OrderedDict[tuple[int, ...], Tensor]" = field(
        init=False, repr=False, default_factory=OrderedDict
    )
    _ends: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        set_fields(self, _ends=frozenset(self.vocabulary.ends))

    def __repr__(self) -> str:
        return f"GrammarVerifier({self.engine}, {self.vocabulary})"

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]:
        """log V of each row: 0 or -inf."""
        over = asked.over.tolist()
        fine = [
            self._fits(row, finished)
            for row, finished in zip(_completions(asked), over, strict=True)
        ]
        return torch.tensor(fine, dtype=torch.float64, device=asked.tokens.device).log()

    def masks(self, asked: Question) -> Bool[Tensor, "rows vocab"]:
        """True where V of the row with this token after it is above 0."""
        masks = [self._mask(row) for row in _completions(asked)]
        if not masks:
            return torch.zeros((0, len(self.vocabulary)), dtype=torch.bool)
        return torch.stack(masks).to(asked.tokens.device)

    @property
    def reads_over(self) -> bool:
        """A text that is over must be right as it stands."""
        return True

    def over(self, asked: Question) -> Bool[Tensor, " rows"]:
        """Rows that are right as they stand, and that nothing but space may follow."""
        said = [self._is_over(row) for row in _completions(asked)]
        return torch.tensor(said, dtype=torch.bool, device=asked.tokens.device)

    def finished_values(self, completions: Sequence[Sequence[int]]) -> list[float]:
        """V of whole completions: 1 for one that is right as it stands, also where it was cut off.

        Worked value: for the choices "ab" and "b" of the tokens a and b, [0] gets 0 and [1] gets 1.
        """
        return [float(self._fits(tuple(row), finished=True)) for row in completions]

    # ------------------------------------------------------------------ of one completion

    def _fits(self, row: tuple[int, ...], finished: bool) -> bool:
        end = self._first_end(row)
        if end is not None or finished:
            state = self._at(row[:end])
            return state is not None and state.accepts()
        if not row:
            return True
        before = self._at(row[:-1])
        return before is not None and self._allows(before, row[-1])

    def _mask(self, row: tuple[int, ...]) -> Bool[Tensor, " vocab"]:
        known = self._masks.get(row)
        if known is not None:
            self._masks.move_to_end(row)
            return known
        state = None if self._first_end(row) is not None else self._at(row)
        if state is None:
            mask = np.zeros(len(self.vocabulary), dtype=bool)
        else:
            mask = state.mask()
            mask[list(self._ends)] = state.accepts()
        self._masks[row] = torch.from_numpy(mask)
        if len(self._masks) > MASKS:
            self._masks.popitem(last=False)
        return self._masks[row]

    def _is_over(self, row: tuple[int, ...]) -> bool:
        state = None if self._first_end(row) is not None else self._at(row)
        if state is None or not state.accepts():
            return False
        return not (self._mask(row).numpy() & self.vocabulary.signs).any()

    def _allows(self, state: Matcher, token: int) -> bool:
        """A token that writes nothing stands for no text."""
        return bool(self.vocabulary.tokens[token]) and state.allows(token)

    def _first_end(self, row: tuple[int, ...]) -> int | None:
        return next((i for i, token in enumerate(row) if token in self._ends), None)

    def _at(self, row: tuple[int, ...]) -> Matcher | None:
        """Where the engine stands after a completion; None where it is refused."""
        known = len(row)
        while known and row[:known] not in self._states:
            known -= 1
        state = self.state
        if known:
            state = self._states[row[:known]]
            self._states.move_to_end(row[:known])
        for i in range(known, len(row)):
            if not self._allows(state, row[i]):
                return None
            state = state.after(row[i])
            self._states[row[: i + 1]] = state
            if len(self._states) > STATES:
                self._states.popitem(last=False)
        return state


def _completions(asked: Question) -> Sequence[tuple[int, ...]]:
    """The tokens of each row behind its prompt."""
    rows = zip(asked.tokens.tolist(), asked.starts.tolist(), asked.lengths.tolist(), strict=True)
    return [tuple(row[start:length]) for row, start, length in rows]
