"""What every guided algorithm shares: the cursor, the verifier, the costs and the trace.

An algorithm is a function

    sample(decoder, verifier, ..., rng) -> Result(tokens, lengths, trace, costs, ...)

over a batch of rows that may stand at different lengths. The decoder holds the prompts and is used
up. A row is finished when it has `length` tokens or has drawn `end_token`; a prompt is never
finished by what it holds. A `Generation` asks the decoder and the verifier, refuses answers that
are no laws and no values, counts what was asked, and keeps a trace when told to.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Decoder, DecoderValue, Rng, Value, Verifier
from triptych.core.validation import (
    Count,
    UserError,
    as_end_token,
    as_flag,
    as_size,
    check_callable,
)
from triptych.inference.answers import HIGHEST_VALUE, check_laws, no_values
from triptych.inference.guided.options import check_parts
from triptych.inference.guided.transforms import Transform, of_laws

Action = Literal[
    "draw", "argmax", "accept", "reject", "backtrack", "restart", "choose", "down", "up", "stay"
]
_ROOM = 1e-9  # a probability may be above 1 by rounding


@dataclass
class Costs:
    """What a generation cost: per row, and for the batch as a whole.

    generator_calls   questions put to the model: a token drawn or taken, or a law looked at
    generated         tokens put at the end of a row; the thesis' query complexity C
    erased            tokens taken back
    verifier_calls    prefixes shown to the verifier
    forward_passes    batched questions to the decoder: what a parallel machine waits for
    verifier_passes   the same for the verifier
    seconds           wall-clock, in all and inside the generator and the verifier
    """

    generator_calls: Int[Tensor, " batch"]
    generated: Int[Tensor, " batch"]
    erased: Int[Tensor, " batch"]
    verifier_calls: Int[Tensor, " batch"]
    forward_passes: int = 0
    verifier_passes: int = 0
    seconds: float = 0.0
    generator_seconds: float = 0.0
    verifier_seconds: float = 0.0

    @classmethod
    def empty(cls, batch: int, device: torch.device) -> "Costs":
        zero = torch.zeros(batch, dtype=torch.long, device=device)
        return cls(zero, zero.clone(), zero.clone(), zero.clone())

    def totals(self) -> dict[str, int | float]:
        """Sums over the rows, by name."""
        return {
            name: int(value.sum()) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }


class Event(NamedTuple):
    """One thing that happened to one row.

    tokens       what the row has generated after it (or, for "reject", with the refused token)
    log_value    what the verifier said, where it was asked
    generator_calls, verifier_calls   of this row so far
    prompt       how many tokens of the row's prompt stand before `tokens`
    """

    row: int
    action: Action
    tokens: tuple[int, ...]
    log_value: float | None
    generator_calls: int
    verifier_calls: int
    prompt: int


class Result(NamedTuple):
    """What came out.

    tokens, lengths   prompt and completion of every row, -1 beyond a row's end
    complete          the row ended or has its full length (False: the algorithm gave up on it)
    trace             every event in order, empty unless `record=True`
    notes             what an algorithm says besides, by name
    """

    tokens: Int[Tensor, "batch t"]
    lengths: Int[Tensor, " batch"]
    trace: tuple[Event, ...]
    costs: Costs
    prompt_lengths: Int[Tensor, " batch"]
    complete: Bool[Tensor, " batch"]
    notes: Mapping[str, Any]

    def completions(self) -> list[tuple[int, ...]]:
        """What each row generated, without its prompt."""
        rows = zip(
            self.tokens.tolist(), self.prompt_lengths.tolist(), self.lengths.tolist(), strict=True
        )
        return [tuple(row[start:end]) for row, start, end in rows]


class VerifierError(RuntimeError):
    """The verifier failed; `prefix` is what it was asked about, `partial` what there was so far."""

    def __init__(self, sentence: str, prefix: tuple[int, ...], partial: Result) -> None:
        super().__init__(sentence)
        self.prefix, self.partial = prefix, partial


class Generation:
    """One generation in progress.

    length        tokens of a full row, prompt included
    end_token     a row that draws it is finished
    transform     of the model's laws; None leaves them
    probability   the verifier must answer probabilities: log V ≤ 0
    start         how long the prompt of each row is
    owner         for a fork, the row of the batch that each of its rows works for
    """

    def __init__(
        self,
        decoder: Decoder,
        verifier: Verifier | None,
        rng: Rng,
        length: Count,
        end_token: Count | None = None,
        transform: Transform | None = None,
        record: bool = False,
        probability: bool = True,
    ) -> None:
        check_parts(decoder, verifier, rng)
        if transform is not None:
            check_callable("transform", transform, "transform(log_probs)")
        self.decoder, self.verifier, self.rng = decoder, verifier, rng
        self.transform, self.probability = transform, probability
        self.record = as_flag("record", record)
        self.length = as_size("length", length, at_least=0)
        self.end_token = as_end_token(end_token, decoder.vocab_size)
        self.start = decoder.lengths
        if len(self.start) == 0:
            raise UserError("the decoder has no rows; it must have at least one")
        longest = int(self.start.max())
        if self.length < longest:
            raise UserError(f"length is {self.length}, and a prompt has {longest} tokens already")
        self.owner = torch.arange(len(self.start), device=self.start.device)
        self.costs = Costs.empty(len(self.start), self.start.device)
        self.trace: list[Event] = []
        self.notes: dict[str, Any] = {}
        self._began = time.perf_counter()

    # ------------------------------------------------------------------ where the rows stand

    @property
    def batch(self) -> int:
        return len(self.owner)

    def every_row(self) -> Int[Tensor, " batch"]:
        return torch.arange(self.batch, device=self.owner.device)

    def finished(self) -> Bool[Tensor, " batch"]:
        """Rows that have their full length, or generated the end token last."""
        lengths = self.decoder.lengths
        full = lengths >= self.length
        if self.end_token is None:
            return full
        return full | ((lengths > self.start) & (self._last() == self.end_token))

    def open_rows(self) -> Int[Tensor, " rows"]:
        return torch.nonzero(~self.finished())[:, 0]

    def _last(self) -> Int[Tensor, " batch"]:
        tokens, lengths = self.decoder.tokens, self.decoder.lengths
        if tokens.shape[1] == 0:
            return torch.full_like(lengths, -1)
        return tokens.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]

    # ------------------------------------------------------------------ the generator

    def laws(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """The transformed next-token law of each row; one forward pass, no call counted."""
        return self.transformed(self.model_laws(rows), rows)

    def model_laws(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """The model's own next-token law of each row; one forward pass, no call counted."""
        began = time.perf_counter()
        log_probs = self.decoder.next_log_probs(rows)
        self.costs.forward_passes += 1
        self.costs.generator_seconds += time.perf_counter() - began
        model = getattr(self.decoder, "lm", self.decoder)
        self._check_laws(log_probs, rows, type(model).__name__)
        return log_probs

    def transformed(
        self, log_probs: Float[Tensor, "rows vocab"], rows: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows vocab"]:
        """The transform of the laws of some rows; the laws themselves where there is none."""
        if self.transform is None:
            return log_probs
        if (plain := of_laws(self.transform)) is not None:
            return plain(log_probs)
        log_probs = self.transform(log_probs)
        self._check_laws(log_probs, rows, "the transform")
        return log_probs

    def _check_laws(self, log_probs: Tensor, rows: Int[Tensor, " rows"], whose: str) -> None:
        """Every row's law is one; otherwise name the row and its prefix."""
        decoder = self.decoder

        def at(place: int) -> str:
            row = rows[place]
            prefix = decoder.tokens[row, : int(decoder.lengths[row])].tolist()
            return f"after {prefix} (row {int(self.owner[row])})"

        check_laws(log_probs, (len(rows), decoder.vocab_size), rows.device, whose, at)

    def choose(
        self, log_probs: Float[Tensor, "rows outcomes"], rows: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        """A draw for each row through the door; with a stream per row, from that row's own."""
        of = getattr(self.rng, "of", None)
        rng = self.rng if of is None else of(self.owner[rows])
        return rng.categorical(log_probs)

    def draw(self, rows: Int[Tensor, " rows"]) -> None:
        """One token at the end of each row, drawn from its law."""
        self.put(self.choose(self.laws(rows), rows), rows, "draw")

    def take_argmax(self, rows: Int[Tensor, " rows"]) -> None:
        """The likeliest token at the end of each row, the smallest id among equals."""
        self.put(self.laws(rows).argmax(-1), rows, "argmax")

    def put(self, tokens: Int[Tensor, " rows"], rows: Int[Tensor, " rows"], action: Action) -> None:
        """Tokens that the generator was asked for: one call and one generated token a row."""
        self.count("generator_calls", rows)
        self.count("generated", rows)
        self.decoder.append(tokens, rows)
        self.note(action, rows)

    def erase(
        self, counts: Int[Tensor, " rows"], rows: Int[Tensor, " rows"], action: Action | None
    ) -> None:
        """Take back the last tokens of some rows; what is left of a prompt is its prompt now."""
        every = torch.zeros_like(self.owner).index_copy(0, rows, counts)
        self.decoder.rollback(every)
        self.start = torch.minimum(self.start, self.decoder.lengths)
        self.count("erased", rows, counts)
        self.note(action, rows)

    # ------------------------------------------------------------------ the verifier

    def log_values(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, " rows"]:
        """log V of each row's prefix; all accepted without a verifier."""
        if len(rows) == 0:
            return torch.zeros(0, dtype=torch.float64, device=rows.device)
        return self._ask(self.decoder, rows, self.owner[rows])

    def child_log_values(
        self, rows: Int[Tensor, " pairs"], tokens: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """log V of each row's prefix with one more token, which is not put there."""
        if len(rows) == 0:
            return torch.zeros(0, dtype=torch.float64, device=rows.device)
        if isinstance(self.verifier, DecoderValue):
            below = self.decoder.fork(rows)
            below.append(tokens)
            return self._ask(below, torch.arange(len(rows), device=rows.device), self.owner[rows])
        lengths = self.decoder.lengths[rows]
        table = torch.nn.functional.pad(self.decoder.tokens[rows], (0, 1), value=-1)
        table = table.scatter(1, lengths[:, None], tokens[:, None])
        return self._ask_tokens(table, lengths + 1, self.owner[rows])

    def _ask(
        self, decoder: Decoder, rows: Int[Tensor, " rows"], owner: Int[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]:
        if isinstance(self.verifier, DecoderValue):
            verifier = self.verifier
            return self._checked(
                lambda: verifier.decoder_log_value(decoder, rows),
                lambda: decoder.tokens[rows],
                decoder.lengths[rows],
                owner,
            )
        return self._ask_tokens(decoder.tokens[rows], decoder.lengths[rows], owner)

    def _ask_tokens(
        self,
        tokens: Int[Tensor, "rows t"],
        lengths: Int[Tensor, " rows"],
        owner: Int[Tensor, " rows"],
    ) -> Float[Tensor, " rows"]:
        """Rows of one length share a question."""
        answers = torch.zeros(len(lengths), dtype=torch.float64, device=lengths.device)
        verifier = self.verifier
        if verifier is None:
            return answers
        assert isinstance(verifier, Value)
        for length in lengths.unique().tolist():
            same = torch.nonzero(lengths == length)[:, 0]
            prefix = tokens[same, :length]
            answers[same] = self._checked(
                lambda prefix=prefix: verifier.log_value(prefix),
                lambda prefix=prefix: prefix,
                lengths[same],
                owner[same],
            )
        return answers

    def _checked(
        self, ask: Any, shown: Any, lengths: Int[Tensor, " rows"], owner: Int[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]:
        """The verifier's answers, counted, and refused where they are none."""
        self.costs.verifier_calls.index_add_(0, owner, torch.ones_like(owner))
        self.costs.verifier_passes += 1
        began = time.perf_counter()
        name = type(self.verifier).__name__
        try:
            values = ask()
        except Exception as error:
            raise self._failure(
                f"{name} raised {type(error).__name__}: {error}", shown(), lengths, owner
            ) from error
        finally:
            self.costs.verifier_seconds += time.perf_counter() - began
        if given := no_values(values, owner):
            raise self._failure(
                f"{name} must answer one number a prefix, {len(owner)} here; it gave {given}",
                *(shown(), lengths, owner),
            )
        values = values.double()
        highest = _ROOM if self.probability else HIGHEST_VALUE
        if (bad := values.isnan() | (values > highest)).any():
            row = int(bad.nonzero()[0])
            range_ = "log-probabilities, at most 0" if self.probability else "finite or -inf"
            raise self._failure(
                f"{name} says log V = {values[row].item():g}; values must be {range_}",
                *(shown()[row:], lengths[row:], owner[row:]),
            )
        return values

    def _failure(
        self, sentence: str, tokens: Tensor, lengths: Tensor, owner: Tensor
    ) -> VerifierError:
        prefix = tuple(tokens[0, : int(lengths[0])].tolist())
        where = f"row {int(owner[0])}, prefix {list(prefix)}"
        return VerifierError(f"{sentence} ({where})", prefix, self.result())

    # ------------------------------------------------------------------ several candidates

    def fork(self, rows: Int[Tensor, " copies"]) -> "Generation":
        """A run on copies of some rows, with the same costs; it notes whose copies they are."""
        copy = object.__new__(Generation)
        copy.__dict__.update(self.__dict__)
        copy.decoder = self.decoder.fork(rows)
        copy.start, copy.owner = self.start[rows], self.owner[rows]
        copy.notes = self.notes | {"owner": copy.owner}
        return copy

    def adopt(
        self,
        other: "Generation",
        rows: Int[Tensor, " batch"],
        chose: Int[Tensor, " chose"],
        log_values: Float[Tensor, " chose"] | None = None,
    ) -> None:
        """Go on with rows of a fork, one for each row of this run; `chose` had several of them."""
        self.decoder = other.decoder.fork(rows)
        self.note("choose", chose, log_values)

    # ------------------------------------------------------------------ bookkeeping

    def count(
        self, what: str, rows: Int[Tensor, " rows"], amounts: Int[Tensor, " rows"] | None = None
    ) -> None:
        column: Tensor = getattr(self.costs, what)
        amounts = torch.ones_like(rows) if amounts is None else amounts
        column.index_add_(0, self.owner[rows], amounts)

    def note(
        self,
        action: Action | None,
        rows: Int[Tensor, " rows"],
        log_values: Float[Tensor, " rows"] | None = None,
    ) -> None:
        """Write an event for each of the rows, when recording; an action of None writes none."""
        if not self.record or action is None:
            return
        lengths, tokens = self.decoder.lengths.tolist(), self.decoder.tokens.tolist()
        values: Sequence[float | None]
        values = [None] * len(rows) if log_values is None else log_values.tolist()
        for row, value in zip(rows.tolist(), values, strict=True):
            owner = int(self.owner[row])
            prompt = int(self.start[row])
            text = tuple(tokens[row][prompt : lengths[row]])
            calls = int(self.costs.generator_calls[owner])
            asked = int(self.costs.verifier_calls[owner])
            self.trace.append(Event(owner, action, text, value, calls, asked, prompt))

    def result(self) -> Result:
        """The rows as they stand."""
        self.costs.seconds = time.perf_counter() - self._began
        return Result(
            self.decoder.tokens,
            self.decoder.lengths,
            tuple(self.trace),
            self.costs,
            self.start,
            self.finished(),
            dict(self.notes),
        )
