"""A regular language of rows of tokens: a deterministic automaton that reads token after token.

A row is in the language when the automaton stands in an accepting state after it. On a canvas with
holes two questions have exact answers, by one pass from each end:

    completable   some filling of the holes is in the language
    allowed       which token may stand at a position, given that the other holes can be filled

Notation
--------
δ(s, w)   following[s, w]   the state after token w in state s; -1 where it is refused
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from triptych.core.display import counted
from triptych.core.validation import (
    Count,
    Hidden,
    Tokens,
    UserError,
    as_bool_mask,
    as_count,
    as_integers,
    as_list,
    as_masked,
    as_size,
    set_fields,
)

MAX_ENTRIES = 2**27
"""States times tokens of an automaton."""


class Kinds(NamedTuple):
    """Tokens that the automaton treats alike, in every state.

    of        the kind of each token
    following the state after a token of each kind, -1 where it is refused
    members   the tokens of each kind
    """

    of: Int[Tensor, " vocab"]
    following: Int[Tensor, "states kinds"]
    members: tuple[Int[Tensor, " tokens"], ...]


@dataclass(frozen=True, eq=False)
class Automaton:
    """A regular language on rows of tokens.

    following   the state after each token in each state, -1 where it is refused
    accepting   states in which a row may end
    start       the state before the first token

    Worked value: two states, a token 1 changes the state and 0 does not, accepting is state 0: rows
    of even sum. Of the canvas 1?? four fillings are possible and two are in the language.
    """

    following: Int[Tensor, "states vocab"]
    accepting: Bool[Tensor, " states"]
    start: int = 0
    kinds: Kinds = field(init=False, repr=False)

    def __post_init__(self) -> None:
        following = as_integers("following", self.following, dimensions=2)
        accepting = as_bool_mask("accepting", self.accepting, device=following.device)
        states, size = following.shape
        if states < 1 or size < 1:
            raise UserError(
                f"following has shape {tuple(following.shape)}; it must have a row for each state "
                "and a column for each token",
                parameter="following",
            )
        if states * size > MAX_ENTRIES:
            raise UserError(
                f"the automaton has {states} states and {size} tokens; their product must be at "
                f"most {MAX_ENTRIES}",
                parameter="following",
            )
        if ((following < -1) | (following >= states)).any():
            raise UserError(
                f"following must hold states 0 to {states - 1}, or -1 where a token is refused",
                parameter="following",
            )
        if accepting.shape != (states,):
            raise UserError(
                f"accepting has shape {tuple(accepting.shape)}; it must say True or False for "
                f"each of the {states} states",
                parameter="accepting",
            )
        set_fields(
            self,
            following=following,
            accepting=accepting,
            start=as_count("start", self.start, at_most=states - 1),
            kinds=_kinds(following),
        )

    def __repr__(self) -> str:
        return f"Automaton({counted(self.states, 'state')}, {self.vocab_size} tokens)"

    @property
    def states(self) -> int:
        return self.following.shape[0]

    @property
    def vocab_size(self) -> int:
        return self.following.shape[1]

    @classmethod
    def listing(cls, rows: Iterable[Sequence[Count]], vocab_size: Count) -> "Automaton":
        """The language of these rows and no others, as a tree of their beginnings.

        Worked value: of [0, 1] and [1] the states are "", 0, 01 and 1; 01 and 1 accept.
        """
        size = as_size("vocab_size", vocab_size)
        states: dict[tuple[int, ...], int] = {(): 0}
        moves: list[tuple[int, int, int]] = []
        ends: list[int] = []
        for row in as_list("rows", rows, "rows of tokens"):
            given = as_list("a row", row, "tokens")
            tokens = tuple(as_count("a token", token, at_most=size - 1) for token in given)
            for t in range(len(tokens)):
                if tokens[: t + 1] not in states:
                    states[tokens[: t + 1]] = len(states)
                    moves.append((states[tokens[:t]], tokens[t], states[tokens[: t + 1]]))
            ends.append(states[tokens])
        if not ends:
            raise UserError("rows is empty; the language must have at least one", parameter="rows")
        following = torch.full((len(states), size), -1)
        for state, token, after in moves:
            following[state, token] = after
        accepting = torch.zeros(len(states), dtype=torch.bool)
        accepting[ends] = True
        return cls(following, accepting)

    def to(self, device: torch.device) -> "Automaton":
        """The same where the tokens are."""
        if self.following.device == device:
            return self
        return Automaton(self.following.to(device), self.accepting.to(device), self.start)

    # ------------------------------------------------------------------ questions

    def accepts(self, tokens: Tokens) -> Bool[Tensor, " batch"]:
        """Which rows are in the language."""
        return self.completable(tokens, torch.zeros_like(torch.as_tensor(tokens), dtype=torch.bool))

    def completable(self, tokens: Tokens, hidden: Hidden | None) -> Bool[Tensor, " batch"]:
        """Rows whose holes can be filled so that they are in the language."""
        tokens, hidden = as_masked(tokens, hidden, self.vocab_size)
        return (self.to(tokens.device)._before(tokens, hidden)[-1] & self.accepting).any(-1)

    def allowed(self, tokens: Tokens, hidden: Hidden | None) -> Bool[Tensor, "batch length vocab"]:
        """Tokens that may stand at each position: with them, the other holes can be filled.

        Worked value: of even sum, the canvas 1?: 1 alone may stand at the hole.
        """
        tokens, hidden = as_masked(tokens, hidden, self.vocab_size)
        here = self.to(tokens.device)
        before, after = here._before(tokens, hidden), here._after(tokens, hidden)
        found = torch.zeros((*tokens.shape, self.vocab_size), dtype=torch.bool)
        found = found.to(tokens.device)
        for t in range(tokens.shape[1]):
            ends = here._read(after[t + 1])
            kinds = (before[t][:, :, None] & ends).any(1)
            found[:, t] = kinds[:, here.kinds.of]
        shown = torch.nn.functional.one_hot(tokens.masked_fill(hidden, 0), self.vocab_size).bool()
        return found & (shown | hidden[..., None])

    @property
    def alive(self) -> Bool[Tensor, " states"]:
        """States from which an accepting one can be reached, by tokens of any number."""
        alive = self.accepting
        while True:
            more = alive | self._read(alive[None]).any(-1)[0]
            if torch.equal(more, alive):
                return alive
            alive = more

    # ------------------------------------------------------------------ one pass from each end

    def _before(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> list[Bool[Tensor, "batch states"]]:
        """The states that can be reached before each position, and after the last."""
        reached = torch.zeros((len(tokens), self.states), dtype=torch.bool, device=tokens.device)
        reached[:, self.start] = True
        found = [reached]
        for t in range(tokens.shape[1]):
            moves = self._moves(tokens[:, t], hidden[:, t])
            after = torch.zeros_like(reached, dtype=torch.int32)
            source, kind = torch.nonzero(self.kinds.following >= 0, as_tuple=True)
            target = self.kinds.following[source, kind]
            on = (found[-1][:, source] & moves[:, kind]).int()
            after.index_add_(1, target, on)
            found.append(after > 0)
        return found

    def _after(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> list[Bool[Tensor, "batch states"]]:
        """The states before each position from which the rest can be filled."""
        found = [self.accepting.expand(len(tokens), -1)]
        for t in range(tokens.shape[1] - 1, -1, -1):
            moves = self._moves(tokens[:, t], hidden[:, t])
            found.insert(0, (self._read(found[0]) & moves[:, None, :]).any(-1))
        return found

    def _moves(
        self, tokens: Int[Tensor, " batch"], hidden: Bool[Tensor, " batch"]
    ) -> Bool[Tensor, "batch kinds"]:
        """Kinds of tokens that stand at a position, or may."""
        kinds = self.kinds.of[tokens.masked_fill(hidden, 0)]
        shown = torch.nn.functional.one_hot(kinds, len(self.kinds.members)).bool()
        return shown | hidden[:, None]

    def _read(self, good: Bool[Tensor, "batch states"]) -> Bool[Tensor, "batch states kinds"]:
        """Whether a token of each kind leads from each state into a good one."""
        following = self.kinds.following
        return good[:, following.clamp(min=0)] & (following >= 0)


def _kinds(following: Int[Tensor, "states vocab"]) -> Kinds:
    columns, of = torch.unique(following, dim=1, return_inverse=True)
    members = tuple(torch.nonzero(of == kind)[:, 0] for kind in range(columns.shape[1]))
    return Kinds(of, columns, members)
