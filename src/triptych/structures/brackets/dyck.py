"""Balanced brackets of k types, depth at most D [li, 2.2.1 and 3.2.1].

A string is grown by one of three moves: open a bracket, close the innermost open one, or end.
The moves depend on the position t and the depth d only, and an opened bracket has type j with
probability type_probs[j]. Three laws of the thesis are such tables of moves:

    prefixes       [li, (2.39)]         the first N tokens of endless strings
    complete       [li, 2.2.3]          whole strings, conditioned on their length
    fixed_length   [li, (3.3)-(3.4)]    strings of exactly N tokens, as Remark 3.2.1 grows them

The open brackets form a stack; given all tokens it is known, given some it is a hidden state,
and message passing over the tree of stacks answers every masked question exactly.

Tokens: type j opens with 2j and closes with 2j + 1; the end token, where a law ends, is 2k.

Notation
--------
k   types      D   max_depth      N   length      q   probability to open where both moves are free
moves[t, d] = probabilities of (open, close, end) with t tokens written and d brackets open
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.deprecation import Renamed
from triptych.core.display import card, counted, facts_table
from triptych.core.logspace import with_point_masses
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Hidden,
    Number,
    Numbers,
    Prefix,
    Tokens,
    UserError,
    as_count,
    as_device,
    as_distributions,
    as_flag,
    as_masked,
    as_prefix,
    as_probability,
    as_size,
    as_text,
    as_tokens,
    check_same_device,
    moved_to,
    raise_if_impossible,
    set_fields,
)
from triptych.structures.brackets.moves import (
    CLOSE,
    END,
    OPEN,
    conditioned,
    depth_for,
    equal_types,
    free_moves,
    repeated,
)
from triptych.structures.brackets.parse import DyckError, Parse, error_kind
from triptych.structures.brackets.stacks import StackMessages, stack_messages, tree_of_stacks
from triptych.structures.strings import digits, likely_strings

BRACKETS = ("[]", "()", "{}", "<>")


@dataclass(frozen=True, eq=False, repr=False)
class Dyck:
    """Brackets grown by a table of moves; use the constructors for the laws of the thesis.

    Worked value: prefixes of Dyck with k = 2, D = 2, q = ¼. p("[(") = ½ · (¼·½) = 1/16, and
    p("[(" then ")]") = 1/16 · 1 · ¾ = 3/64: at depth 2 the bracket must close, at depth 1 it
    closes with probability 1 - q.
    """

    type_probs: Float[Tensor, " types"]
    moves: Float[Tensor, "length depths 3"]

    def __post_init__(self) -> None:
        type_probs = as_distributions(
            "type_probs", self.type_probs, shape=(None,), meaning="[types]"
        )
        moves = as_distributions(
            "moves", self.moves, shape=(None, None, 3), meaning="[length, depths, 3]"
        )
        check_same_device(type_probs=type_probs, moves=moves)
        set_fields(self, type_probs=type_probs, moves=moves)
        if not (self.type_probs > 0).all():
            raise UserError(
                "type_probs: every bracket type needs a positive probability; drop the others",
                parameter="type_probs",
            )
        as_size("length", self.length)
        as_size("max_depth", self.max_depth)
        if self.moves[:, -1, OPEN].any():
            raise UserError(
                "moves at the largest depth must have probability 0 to open", parameter="moves"
            )
        if self.moves[:, 0, CLOSE].any():
            raise UserError("moves at depth 0 must have probability 0 to close", parameter="moves")
        if self.moves[:, 1:, END].any():
            raise UserError("moves at depth > 0 must have probability 0 to end", parameter="moves")

    def __repr__(self) -> str:
        types = counted(self.types, "bracket type")
        end = ", with an end token" if self.ends else ""
        return f"Dyck({types}, depth at most {self.max_depth}, length {self.length}{end})"

    def _repr_html_(self) -> str:
        facts = {
            "bracket types": self.types,
            "largest depth": self.max_depth,
            "length": self.length,
            "end token": "none" if self.end_token is None else self.end_token,
        }
        texts = self.text if self.types <= len(BRACKETS) else digits
        return card(repr(self), facts_table(facts), likely_strings(self, texts))

    @property
    def types(self) -> int:
        return self.type_probs.shape[0]

    @property
    def length(self) -> int:
        return self.moves.shape[0]

    @property
    def max_depth(self) -> int:
        return self.moves.shape[1] - 1

    @property
    def ends(self) -> bool:
        """Whether strings end before `length`, so that there is an end token."""
        return bool(self.moves[:, 0, END].any())

    @property
    def vocab_size(self) -> int:
        return 2 * self.types + int(self.ends)

    @property
    def end_token(self) -> int | None:
        return 2 * self.types if self.ends else None

    @property
    def device(self) -> torch.device:
        return self.moves.device

    def to(self, device: torch.device | str) -> "Dyck":
        return moved_to(self, device)

    # ------------------------------------------------------------------ constructors

    @classmethod
    def prefixes(
        cls,
        types: Count,
        max_depth: Count,
        length: Count,
        *,
        q: Number,
        device: torch.device | str = "cpu",
    ) -> "Dyck":
        """The law (2.39) on Dyck_{k,D,N}: open at depth 0, close at depth D, else open with q."""
        device = as_device(device)
        moves = repeated(free_moves(max_depth, q), length)
        return cls(equal_types(types).to(device), moves.to(device))

    @classmethod
    def complete(
        cls,
        types: Count,
        max_depth: Count,
        length: Count,
        *,
        q: Number,
        stop: Number = 0.5,
        min_length: Count = 2,
        device: torch.device | str = "cpu",
    ) -> "Dyck":
        """Whole strings: at depth 0 end with probability `stop`, else as `prefixes`.

        Conditioned on min_length..length tokens, as if longer and shorter strings were thrown
        away; the end token fills the rest.
        """
        stop = as_probability("stop", stop, strictly=True)
        min_length, device = as_count("min_length", min_length), as_device(device)
        max_depth, length = as_size("max_depth", max_depth), as_size("length", length)
        step = free_moves(max_depth, q)
        step[0] = torch.tensor([1 - stop, 0.0, stop], dtype=torch.float64)
        final = torch.zeros(max_depth + 1, dtype=torch.float64)
        final[0] = stop
        weights = repeated(step, length)
        weights[:min_length, 0, END] = 0.0
        moves = conditioned(weights, final, f"{min_length}..{length} tokens")
        return cls(equal_types(types).to(device), moves.to(device))

    @classmethod
    def fixed_length(
        cls,
        length: Count,
        *,
        type_probs: Numbers,
        q: Number,
        max_depth: Count | None = None,
        end: bool = False,
        device: torch.device | str = "cpu",
    ) -> "Dyck":
        """Strings of exactly `length` tokens, grown as in Remark 3.2.1 of the thesis.

        At depth 0 open; when every remaining position is needed, close; else open with q.
        The thesis' p is type_probs = (p, 1 - p). `max_depth` adds a depth bound (the authors'
        data has 12). `end` puts an end token after every string, as one more position.
        Equation (3.4) as printed is another law: see `fixed_length_printed`.
        """
        length, device = as_size("length", length), as_device(device)
        bound = depth_for(length, max_depth)
        probs = as_distributions("type_probs", type_probs, shape=(None,), meaning="[types]")
        moves = repeated(free_moves(bound, q), length)
        for t in range(length):
            remaining = length - t
            moves[t, min(remaining, bound) :] = torch.tensor([0.0, 1.0, 0.0]).double()
        moves[:, 0] = torch.tensor([1.0, 0.0, 0.0]).double()
        if as_flag("end", end):
            last = moves[-1:].clone()
            last[:, 0] = torch.tensor([0.0, 0.0, 1.0]).double()
            moves = torch.cat([moves, last])
        return cls(probs.to(device), moves.to(device))

    @classmethod
    def fixed_length_printed(
        cls,
        length: Count,
        *,
        type_probs: Numbers,
        q: Number,
        device: torch.device | str = "cpu",
    ) -> "Dyck":
        """The law that (3.3)-(3.4) print, where forced closings also count a factor 1 - q.

        Every string then has (1 - q)^(N/2), so q only weighs brackets opened at depth ≥ 1.
        With N = 4 and one type, p("(())") = q / (1 + q), while Remark 3.2.1's process has q.
        """
        length, device = as_size("length", length), as_device(device)
        bound = depth_for(length, None)
        probs = as_distributions("type_probs", type_probs, shape=(None,), meaning="[types]")
        q = as_probability("q", q, strictly=True)
        weights = repeated(free_moves(bound, q), length)
        weights[:, 1:, CLOSE] = 1 - q
        final = torch.zeros(bound + 1, dtype=torch.float64)
        final[0] = 1.0
        moves = conditioned(weights, final, f"exactly {length} tokens")
        return cls(probs.to(device), moves.to(device))

    # ------------------------------------------------------------------ reading strings

    def parse(self, tokens: Prefix) -> Parse:
        """Read every row up to its first error (a move of probability 0), all rows at once."""
        tokens = as_tokens(tokens, self.vocab_size, device=self.device)
        batch, length = tokens.shape
        if length > self.length:
            raise UserError(
                f"{length} tokens; strings of this law have {self.length}", parameter="tokens"
            )
        zeros = torch.zeros(batch, dtype=torch.long, device=tokens.device)
        depth, error, position = zeros, zeros.clone(), torch.full_like(zeros, length)
        log_prob = torch.zeros(batch, dtype=torch.float64, device=tokens.device)
        stack = torch.zeros((batch, self.max_depth), dtype=torch.long, device=tokens.device)
        ended = torch.zeros(batch, dtype=torch.bool, device=tokens.device)
        log_moves, log_types = self.moves.log(), self.type_probs.log()
        every_move = torch.where(tokens == 2 * self.types, END, tokens % 2)
        every_kind = (tokens // 2).clamp(max=self.types - 1)
        log_kinds = log_types[every_kind].where(every_move == OPEN, 0.0)
        opens, closes, ends = every_move == OPEN, every_move == CLOSE, every_move == END
        for t in range(length):
            move, kind = every_move[:, t], every_kind[:, t]
            step = log_moves[t, depth, move] + log_kinds[:, t]
            step = torch.where(ended, torch.where(ends[:, t], 0.0, -torch.inf), step)
            top = stack.gather(1, (depth - 1).clamp(min=0)[:, None])[:, 0]
            mismatch = ~ended & closes[:, t] & (depth > 0) & (top != kind)
            step = step.masked_fill(mismatch, -torch.inf)

            alive = error == 0
            wrong = alive & torch.isneginf(step)
            if wrong.any():
                kinds = error_kind(move, depth, ended, mismatch, self.max_depth)
                error = torch.where(wrong, kinds, error)
                position = torch.where(wrong, t, position)
            log_prob = log_prob + step.where(alive, 0.0)

            go = alive & ~wrong & ~ended
            opening, closing = go & opens[:, t], go & closes[:, t]
            place = depth.clamp(max=self.max_depth - 1)[:, None]
            pushed = torch.where(opening[:, None], kind[:, None], stack.gather(1, place))
            stack = stack.scatter(1, place, pushed)
            depth = depth + opening.long() - closing.long()
            ended = ended | (go & ends[:, t])
        return Parse(log_prob, depth, stack, ended, error, position)

    def completable(self, prefix: Prefix) -> Bool[Tensor, " batch"]:
        """The process verifier: can this prefix be completed to a string of the language?"""
        prefix = as_tokens(prefix, self.vocab_size, name="prefix", device=self.device)
        return self.parse(prefix).error == DyckError.NONE

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        """0 where `completable`, -inf elsewhere."""
        possible = self.completable(prefix)
        return torch.zeros_like(possible, dtype=torch.float64).masked_fill(~possible, -torch.inf)

    def text(self, tokens: Prefix) -> list[str]:
        """Rows as brackets; a dot for the end token."""
        rows = as_tokens(tokens, self.vocab_size)
        letters = self._letters()
        return ["".join(letters[token] for token in row) for row in rows.tolist()]

    def tokens(self, *texts: str) -> Int[Tensor, "batch t"]:
        """The inverse of `text`, for strings of equal length."""
        letters = self._letters()
        for text in texts:
            unknown = set(as_text("a text", text)) - set(letters)
            if unknown:
                raise UserError(f"text {text!r}: {min(unknown)!r} is none of {letters!r}")
        if len({len(text) for text in texts}) > 1:
            raise UserError("strings of different lengths do not fit one tensor")
        width = len(texts[0]) if texts else 0
        rows = [[letters.index(letter) for letter in text] for text in texts]
        return torch.tensor(rows, dtype=torch.long, device=self.device).reshape(len(texts), width)

    def _letters(self) -> str:
        if self.types > len(BRACKETS):
            raise UserError(f"there are letters for {len(BRACKETS)} types, not {self.types}")
        return "".join(BRACKETS[: self.types]) + ("." if self.ends else "")

    # ------------------------------------------------------------------ exact answers

    def log_prob(self, tokens: Tokens) -> Float[Tensor, " batch"]:
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        return self.parse(tokens).log_prob

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)
        parse = self.parse(prefix)
        raise_if_impossible(parse.log_prob, "the prefix")
        top = parse.stack.gather(1, (parse.depth - 1).clamp(min=0)[:, None])[:, 0]
        return self._next(prefix.shape[1], parse.depth, top, parse.ended)

    def every_next_token_log_probs(self, tokens: Tokens) -> Float[Tensor, "batch length vocab"]:
        """log p(x_i = · | x_<i) for every i, in one pass over the brackets."""
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        raise_if_impossible(self.parse(tokens).log_prob, "the sequence")
        bracket = tokens < 2 * self.types
        change = torch.where(bracket, 1 - 2 * (tokens % 2), 0)
        depth = change.cumsum(1) - change  # before each token
        ended = (~bracket).cumsum(1) - (~bracket).long() > 0
        stack = torch.zeros((len(tokens), self.max_depth), dtype=torch.long, device=self.device)
        laws = []
        for t in range(self.length):
            top = stack.gather(1, (depth[:, t] - 1).clamp(min=0)[:, None])[:, 0]
            laws.append(self._next(t, depth[:, t], top, ended[:, t]))
            place = depth[:, t].clamp(max=self.max_depth - 1)[:, None]
            opening = (change[:, t] == 1)[:, None]
            pushed = torch.where(opening, tokens[:, t, None] // 2, stack.gather(1, place))
            stack = stack.scatter(1, place, pushed)
        return torch.stack(laws, 1)

    def masked_log_probs(
        self, tokens: Tokens, hidden: Hidden
    ) -> Float[Tensor, "batch length vocab"]:
        tokens, hidden = self._as_masked(tokens, hidden)
        return with_point_masses(self._messages(tokens, hidden).token, tokens, hidden)

    def log_posterior(
        self, tokens: Tokens, hidden: Hidden | None = None
    ) -> Float[Tensor, "batch length states"]:
        """log p(stack after position t | shown), stacks as in `stacks.tree_of_stacks`; the last
        state is "ended"."""
        return self._messages(*self._as_masked(tokens, hidden)).state

    posterior = Renamed("log_posterior")

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
        log_types = self.type_probs.log()[None]
        everyone = torch.zeros(n, dtype=torch.long, device=self.device)
        depth, ended = everyone, everyone.bool()
        stack = torch.zeros((n, self.max_depth), dtype=torch.long, device=self.device)
        tokens = torch.empty((n, self.length), dtype=torch.long, device=self.device)
        for t in range(self.length):
            move = torch.full_like(everyone, END)
            move[~ended] = rng.categorical(self.moves[t].log(), depth[~ended])
            opening, closing = move == OPEN, move == CLOSE
            kind = torch.zeros_like(everyone)
            kind[opening] = rng.categorical(log_types, everyone[opening])
            top = stack.gather(1, (depth - 1).clamp(min=0)[:, None])[:, 0]
            token = torch.where(opening, 2 * kind, 2 * top + 1)
            tokens[:, t] = torch.where(move == END, 2 * self.types, token)
            place = depth.clamp(max=self.max_depth - 1)[:, None]
            pushed = torch.where(opening[:, None], kind[:, None], stack.gather(1, place))
            stack = stack.scatter(1, place, pushed)
            depth = depth + opening.long() - closing.long()
            ended = ended | (move == END)
        return tokens

    # ------------------------------------------------------------------ inside

    def _next(
        self,
        t: int,
        depth: Int[Tensor, " batch"],
        top: Int[Tensor, " batch"],
        ended: Bool[Tensor, " batch"],
    ) -> Float[Tensor, "batch vocab"]:
        """log p of every token with t written, for a depth and an innermost bracket."""
        log_moves = self.moves[t, depth].log()  # batch 3
        law = torch.full(
            (len(depth), 2 * self.types + 1), -torch.inf, dtype=torch.float64, device=self.device
        )
        over = law.clone()
        over[:, -1] = 0.0
        law[:, 0:-1:2] = log_moves[:, OPEN, None] + self.type_probs.log()
        law.scatter_(1, 2 * top[:, None] + 1, log_moves[:, CLOSE, None])
        law[:, -1] = log_moves[:, END]
        return torch.where(ended[:, None], over, law)[:, : self.vocab_size]

    def _as_masked(self, tokens: Tokens, hidden: Hidden | None) -> tuple[Tensor, Tensor]:
        return as_masked(tokens, hidden, self.vocab_size, length=self.length, device=self.device)

    def _messages(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> StackMessages:
        tree = tree_of_stacks(self.types, self.max_depth, self.device)
        messages = stack_messages(self.moves, self.type_probs, tree, tokens, hidden)
        raise_if_impossible(messages.log_evidence, "what is shown")
        return messages._replace(token=messages.token[..., : self.vocab_size])


def examples() -> dict[str, Dyck]:
    half = torch.tensor([0.2, 0.8], dtype=torch.float64)
    one = torch.tensor([1.0], dtype=torch.float64)
    return {
        "prefixes": Dyck.prefixes(types=2, max_depth=2, length=5, q=0.3),
        "prefixes of one type": Dyck.prefixes(types=1, max_depth=3, length=7, q=0.6),
        "complete": Dyck.complete(types=2, max_depth=2, length=6, q=0.5),
        "complete, one depth": Dyck.complete(1, 1, 5, q=0.5, stop=0.3, min_length=0),
        "fixed length": Dyck.fixed_length(6, type_probs=half, q=0.5),
        "fixed length, with an end": Dyck.fixed_length(4, type_probs=half, q=0.5, end=True),
        "fixed length, depth 1": Dyck.fixed_length(6, type_probs=half, q=0.4, max_depth=1),
        "fixed length as printed": Dyck.fixed_length_printed(8, type_probs=one, q=0.25),
    }
