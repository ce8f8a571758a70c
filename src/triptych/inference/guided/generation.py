"""What every guided algorithm shares: the cursor, the verifier, the costs and the trace.

An algorithm is a function

    sample(decoder, verifier, *, length, ..., rng) -> Result(tokens, lengths, complete, ...)

over a batch of rows that may stand at different lengths. The decoder holds the prompts and is used
up: another generation refuses it. A row is finished when it has `length` tokens, has drawn an end
token, or is over by the word of the decoder (`EndsRows`) or of the verifier (`Ends`). A prompt
is never finished by the tokens that it holds. A `Generation` asks the decoder and the
verifier, refuses answers that are no laws and no values, counts what was asked, stops rows that are
over their budget, and keeps a trace when told to.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import is_end
from triptych.core.protocols import (
    CountsPasses,
    Decoder,
    Draws,
    Ends,
    EndsRows,
    Graded,
    Masks,
    Question,
    ReadsOver,
    ReadsStates,
    VerifierLike,
)
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    EndTokens,
    UserError,
    as_end_token,
    as_flag,
    check_callable,
    check_can,
)
from triptych.inference.answers import HIGHEST_VALUE, described
from triptych.inference.guided.ahead import Ahead
from triptych.inference.guided.asking import NoAnswer, answered, as_verifier, name_of_verifier
from triptych.inference.guided.costs import Budget as Budget
from triptych.inference.guided.costs import Costs as Costs
from triptych.inference.guided.model_side import ModelSide
from triptych.inference.guided.options import Lengths, as_lengths, check_parts
from triptych.inference.guided.result import Action as Action
from triptych.inference.guided.result import Event as Event
from triptych.inference.guided.result import InfoT, Reason
from triptych.inference.guided.result import Result as Result
from triptych.inference.guided.result import VerifierError as VerifierError
from triptych.inference.guided.transforms import Transform

_ROOM = 1e-9  # a probability may be above 1 by rounding
CHILDREN = 1024  # prefixes with one more token that a decoder holds at once


class Generation(ModelSide):
    """One generation in progress.

    length        tokens of a full row, prompt included; or a number for each row
    end_token     a row that draws it, or one of them, is finished
    transform     of the model's laws; None leaves them
    probability   the verifier must answer probabilities: log V ≤ 0
    smallest      log V from which a finished row is accepted; None accepts every V > 0
    budget        what a row may cost; None is no limit
    ends          what says which rows are over, next to the decoder and the verifier
    listen        is told every event as it happens
    start         how long the prompt of each row is
    owner         for a fork, the row of the batch that each of its rows works for
    draws         the model answers draws and no laws; `ahead` says why the tokens that are drawn
                  before they are needed have the same law
    """

    def __init__(
        self,
        decoder: Decoder | Draws,
        verifier: VerifierLike | None,
        rng: RngLike,
        length: Lengths,
        end_token: EndTokens | None = None,
        transform: Transform | None = None,
        record: bool = False,
        probability: bool = True,
        smallest: float | None = None,
        budget: Budget | None = None,
        ends: Ends | None = None,
        listen: Callable[[Event], None] | None = None,
    ) -> None:
        check_parts(decoder, budget)
        if transform is not None:
            check_callable("transform", transform, "transform(log_probs)")
        if listen is not None:
            check_callable("listen", listen, "listen(event)")
        if ends is not None:
            check_can("ends", ends, "over")
        self.verifier = as_verifier(verifier)
        self.draws = isinstance(decoder, Draws)
        if isinstance(decoder, Draws) and transform is not None:
            decoder, transform = decoder.under(transform), None
        self.decoder: Decoder | Draws = decoder
        if self.draws and isinstance(self.verifier, ReadsStates):
            raise UserError(
                f"{name_of_verifier(self.verifier)} reads the states of a network; this model "
                "answers draws, and keeps its states where it is",
                parameter="verifier",
            )
        self.rng = as_rng(rng, decoder.lengths.device)
        self.transform, self.probability = transform, probability
        self.smallest, self.budget, self.ends = smallest, budget, ends
        self.listen = listen
        self.record = as_flag("record", record)
        self.end_token = as_end_token(end_token, decoder.vocab_size)
        self.start = decoder.lengths
        if len(self.start) == 0:
            raise UserError(
                "the decoder has no rows; it must have at least one", parameter="decoder"
            )
        self.limits = as_lengths(length, self.start)
        self.owner = torch.arange(len(self.start), device=self.start.device)
        self._drawn, self._best = Ahead(len(self.owner)), Ahead(len(self.owner))
        self.costs = Costs.empty(len(self.start), self.start.device)
        self.trace: list[Event] = []
        # log V of each row as it stands; nan where nobody asked since its tokens changed
        self._said = torch.full_like(self.start, torch.nan, dtype=torch.float64)
        # of each row of the batch, like its costs: which of the reasons stopped it, 0 for none
        self._stopped, self._reasons = torch.zeros_like(self.start), [""]
        self._counts_passes = isinstance(decoder, CountsPasses)
        self._ends_rows = isinstance(decoder, EndsRows)
        self._began = time.perf_counter()

    # ------------------------------------------------------------------ where the rows stand

    @property
    def batch(self) -> int:
        return len(self.owner)

    def every_row(self) -> Int[Tensor, " batch"]:
        return torch.arange(self.batch, device=self.owner.device)

    def finished(self) -> Bool[Tensor, " batch"]:
        """Rows that have their full length, generated an end token last, or are over by the word
        of the decoder or the verifier."""
        lengths = self.decoder.lengths
        full = lengths >= self.limits[self.owner]
        if self._ends_rows and isinstance(decoder := self.decoder, EndsRows):
            full |= decoder.over()
        begun = lengths > self.start
        if self.end_token is not None:
            full |= begun & is_end(self._last(), self.end_token)
        for one in (self.ends, self.verifier):
            if not isinstance(one, Ends):
                continue
            rows = torch.nonzero(begun & ~full)[:, 0]
            if len(rows):  # that nothing else has ended; no question is counted
                began = time.perf_counter()
                full[rows] = one.over(self._question(rows))
                self.costs.verifier_seconds += time.perf_counter() - began
        return full

    def stopped(self) -> Bool[Tensor, " batch"]:
        """Rows that do not go on, for a reason."""
        return self._stopped[self.owner] > 0

    def open_rows(self, *, tokens: int = 1) -> Int[Tensor, " rows"]:
        """Rows that go on: not finished, not stopped, and with `tokens` more in their budget."""
        going = ~self.finished()
        if len(self._reasons) > 1:  # some row was stopped
            going &= ~self.stopped()
        return self.within_budget(torch.nonzero(going)[:, 0], tokens)

    def stop(self, rows: Int[Tensor, " rows"], reason: str) -> None:
        """These rows do not go on; a row that was stopped before keeps its first reason."""
        if len(rows) == 0:
            return
        if reason not in self._reasons:
            self._reasons.append(reason)
        owner = self.owner[rows]
        owner = owner[self._stopped[owner] == 0]
        self._stopped[owner] = self._reasons.index(reason)

    def within_budget(self, rows: Int[Tensor, " rows"], tokens: int = 1) -> Int[Tensor, " kept"]:
        """Those of the rows that have `tokens` more in their budget; the others are stopped."""
        budget = self.budget
        if budget is None or len(rows) == 0:
            return rows
        owner = self.owner[rows]
        if budget.tokens is not None:
            wanted = self.costs.generated.index_add(0, owner, torch.full_like(owner, tokens))
            self.stop(rows[wanted[owner] > budget.tokens], Reason.TOKENS)
        if budget.verifier_calls is not None:
            asked = self.costs.verifier_calls[owner]
            self.stop(rows[asked >= budget.verifier_calls], Reason.QUESTIONS)
        if budget.seconds is not None and time.perf_counter() - self._began >= budget.seconds:
            self.stop(rows, Reason.TIME)
        return rows[self._stopped[owner] == 0]

    def _last(self) -> Int[Tensor, " batch"]:
        tokens, lengths = self.decoder.tokens, self.decoder.lengths
        if tokens.shape[1] == 0:
            return torch.full_like(lengths, -1)
        return tokens.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]

    # ------------------------------------------------------------------ tokens

    def put(self, tokens: Int[Tensor, " rows"], rows: Int[Tensor, " rows"], action: Action) -> None:
        """Tokens that the generator was asked for: one call and one generated token a row."""
        self.count("generator_calls", rows)
        self.count("generated", rows)
        self._use_up()
        self.decoder.append(tokens, rows)
        self._said[rows] = torch.nan
        self.note(action, rows)

    def erase(
        self, counts: Int[Tensor, " rows"], rows: Int[Tensor, " rows"], action: Action | None
    ) -> None:
        """Take back the last tokens of some rows; what is left of a prompt is its prompt now."""
        every = torch.zeros_like(self.owner).index_copy(0, rows, counts)
        self.decoder.rollback(every)
        self.start = torch.minimum(self.start, self.decoder.lengths)
        self._said[rows[counts > 0]] = torch.nan
        if self.draws:
            lengths = self.decoder.lengths[rows].tolist()
            for waiting in (self._drawn, self._best):
                waiting.erased(rows.tolist(), lengths)
        self.count("erased", rows, counts)
        self.note(action, rows)

    # ------------------------------------------------------------------ the verifier

    def log_values(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, " rows"]:
        """log V of each row's prefix; all accepted without a verifier."""
        if len(rows) == 0:
            return torch.zeros(0, dtype=torch.float64, device=rows.device)
        if self.verifier is None:
            return torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        values = self._answers(self._question(rows))
        self.hear(rows, values)
        return values

    @property
    def has_masks(self) -> bool:
        """The verifier says of the whole vocabulary which tokens may come next."""
        return isinstance(self.verifier, Masks)

    @property
    def mask_says_all(self) -> bool:
        """What a mask allows has V = 1."""
        graded = isinstance(self.verifier, Graded) and self.verifier.graded
        return self.has_masks and not graded

    def masks(self, rows: Int[Tensor, " rows"]) -> Bool[Tensor, "rows vocab"]:
        """Which tokens may follow each row: one question a row, for the whole vocabulary."""
        verifier, owner = self.verifier, self.owner[rows]
        assert isinstance(verifier, Masks)
        asked = self._question(rows)
        self.costs.verifier_calls.index_add_(0, owner, torch.ones_like(owner))
        own, began, name = self._passes(verifier), time.perf_counter(), type(verifier).__name__
        try:
            allowed = verifier.masks(asked)
        except Exception as error:
            sentence = f"{name} raised {type(error).__name__}: {error}"
            raise self._failure(sentence, asked) from error
        finally:
            self.costs.verifier_seconds += time.perf_counter() - began
            made = self._passes(verifier) - own if isinstance(verifier, CountsPasses) else 1
            self.costs.verifier_passes += made
        size = (len(rows), self.decoder.vocab_size)
        right = isinstance(allowed, Tensor) and allowed.dtype == torch.bool
        if not right or allowed.shape != size or allowed.device != rows.device:
            raise self._failure(
                f"{name} must answer masks of shape {size}, True and False on {rows.device}; it "
                f"gave {described(allowed)}",
                asked,
            )
        return allowed

    def allowed_laws(
        self, rows: Int[Tensor, " rows"]
    ) -> tuple[Float[Tensor, "rows vocab"], Float[Tensor, " rows"]]:
        """The law of each row given what its mask allows, and the log of the mass that it allows.

        The law itself and 0 where the verifier has no masks. A row of mass 0 has no law.
        """
        laws = self.laws(rows).double()
        if not self.has_masks:
            return laws, torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        masked = laws.masked_fill(~self.masks(rows), -torch.inf)
        mass = masked.logsumexp(-1)
        return masked - torch.where(torch.isneginf(mass), 0.0, mass)[:, None], mass

    def drawn_log_values(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, " rows"]:
        """log V after a token that was drawn from the allowed law; nobody is asked if it is 0."""
        if not self.mask_says_all:
            return self.log_values(rows)
        values = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        self.hear(rows, values)
        return values

    def judge(
        self,
        rows: Int[Tensor, " rows"],
        log_values: Float[Tensor, " rows"],
        kept: Bool[Tensor, " rows"],
    ) -> Int[Tensor, " refused"]:
        """Note which rows are accepted and which are refused; those that are refused."""
        self.note("accept", rows[kept], log_values[kept])
        self.note("reject", rows[~kept], log_values[~kept])
        return rows[~kept]

    def cut_off(self) -> Bool[Tensor, " batch"]:
        """Rows that are finished because they have their full length, and not by an end token."""
        full = self.decoder.lengths >= self.limits[self.owner]
        rows = torch.nonzero(full)[:, 0]
        full[rows] = ~self._question(rows).over
        return full

    def finished_log_values(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, " rows"] | None:
        """log V of rows as texts that are over; None where the verifier makes no difference."""
        if not isinstance(self.verifier, ReadsOver) or not self.verifier.reads_over:
            return None
        return self._answers(self._question(rows, over=torch.ones_like(rows, dtype=torch.bool)))

    def hear(self, rows: Int[Tensor, " rows"], log_values: Float[Tensor, " rows"]) -> None:
        """Remember what the verifier said of rows as they stand; `result` tells who is accepted."""
        if self.verifier is not None:
            self._said[rows] = log_values

    def said(self, rows: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        """log V of rows as the verifier said it last; 0 without a verifier, nan if nobody asked."""
        return self._said[rows] if self.verifier is not None else torch.zeros_like(self._said)[rows]

    def child_log_values(
        self, rows: Int[Tensor, " pairs"], tokens: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """log V of each row's prefix with one more token, which is not put there."""
        if len(rows) == 0 or self.verifier is None:
            return torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        if isinstance(self.verifier, ReadsStates):  # a copy of the cache for every child
            parts = zip(rows.split(CHILDREN), tokens.split(CHILDREN), strict=True)
            return torch.cat([self._answers(self._below(*part)) for part in parts])
        lengths = self.decoder.lengths[rows]
        table = torch.nn.functional.pad(self.decoder.tokens[rows], (0, 1), value=-1)
        table = table.scatter(1, lengths[:, None], tokens[:, None])
        over = is_end(tokens, self.end_token)
        asked = Question(table, lengths + 1, self.start[rows], over, self.owner[rows])
        return self._answers(self._ended(asked))

    def _below(self, rows: Int[Tensor, " pairs"], tokens: Int[Tensor, " pairs"]) -> Question:
        """A question about children that stand in a decoder of their own."""
        below = self._laws_of().fork(rows)
        below.append(tokens)
        over, every = is_end(tokens, self.end_token), torch.arange(len(rows), device=rows.device)
        starts, owner = self.start[rows], self.owner[rows]
        asked = Question(below.tokens, below.lengths, starts, over, owner, below, every)
        return self._ended(asked)

    def _question(
        self, rows: Int[Tensor, " rows"], *, over: Bool[Tensor, " rows"] | None = None
    ) -> Question:
        """A question about rows as they stand; a row is over that has drawn an end token."""
        decoder, starts = self.decoder, self.start[rows]
        lengths = decoder.lengths[rows]
        owner, known = self.owner[rows], over is not None
        if over is None:
            over = (lengths > starts) & is_end(self._last()[rows], self.end_token)
        states = None if isinstance(decoder, Draws) else decoder
        asked = Question(decoder.tokens[rows], lengths, starts, over, owner, states, rows)
        return asked if known else self._ended(asked)

    def _ended(self, asked: Question) -> Question:
        """The question, whose rows are over where `ends` says so too."""
        if self.ends is None:
            return asked
        return replace(asked, over=asked.over | self.ends.over(asked))

    def _answers(self, asked: Question) -> Float[Tensor, " rows"]:
        """The verifier's answers, counted, and refused where they are none."""
        verifier, owner = self.verifier, asked.row
        assert verifier is not None
        self.costs.verifier_calls.index_add_(0, owner, torch.ones_like(owner))
        own, states = self._passes(verifier), self._passes(asked.decoder)
        began = time.perf_counter()
        every = torch.arange(len(owner), device=owner.device)
        try:
            values = answered(verifier, lambda: verifier.log_values(asked), every).double()
        except NoAnswer as error:
            cause = error.__cause__ or error
            raise self._failure(str(error), asked.some(error.places)) from cause
        finally:
            self.costs.verifier_seconds += time.perf_counter() - began
            made = self._passes(verifier) - own if isinstance(verifier, CountsPasses) else 1
            self.costs.verifier_passes += made
            self.costs.forward_passes += self._passes(asked.decoder) - states  # to read states
        highest = _ROOM if self.probability else HIGHEST_VALUE
        if (bad := values.isnan() | (values > highest)).any():
            row = int(bad.nonzero()[0])
            range_ = "log-probabilities, at most 0" if self.probability else "finite or -inf"
            name = name_of_verifier(verifier)
            raise self._failure(
                f"{name} says log V = {values[row].item():g}; values must be {range_}",
                asked.some(every[row:]),
            )
        return values

    def _failure(self, sentence: str, asked: Question) -> VerifierError:
        prefix = tuple(asked.tokens[0, : int(asked.lengths[0])].tolist())
        where = f"row {int(asked.row[0])}, prefix {list(prefix)}"
        open_rows = torch.nonzero(~self.finished())[:, 0]
        self.stop(open_rows, Reason.VERIFIER)
        return VerifierError(f"{sentence} ({where})", prefix, self.result(), self.owner)

    # ------------------------------------------------------------------ several candidates

    def fork(self, rows: Int[Tensor, " copies"], *, leave: bool = False) -> "Generation":
        """A run on copies of some rows, with the same costs; `owner` says whose copies they are.

        leave   this run goes no further: the first copy of a row has what was drawn ahead for it
        """
        copy = object.__new__(Generation)
        copy.__dict__.update(self.__dict__)
        copy.decoder = self.decoder.fork(rows)
        copy.start, copy.owner = self.start[rows], self.owner[rows]
        copy._said = self._said[rows]
        copy._drawn, copy._best = Ahead(len(rows)), Ahead(len(rows))
        if leave and self.draws:
            copy._drawn = self._drawn.moved(rows.tolist())
        return copy

    def adopt(
        self,
        other: "Generation",
        rows: Int[Tensor, " batch"],
        chose: Int[Tensor, " chose"],
        log_values: Float[Tensor, " chose"] | None = None,
        *,
        keep: bool = False,
    ) -> None:
        """Go on with rows of a fork, one for each row of this run; `chose` had several of them.

        A row that was stopped goes back to where it stood; with `keep` it stays as it is.
        """
        before = self.decoder.lengths
        self.decoder, self._said = other.decoder.fork(rows), other._said[rows]
        self._drawn, self._best = other._drawn.moved(rows.tolist()), Ahead(len(rows))
        self.note("choose", chose, log_values)
        more = self.decoder.lengths - before
        if keep:
            return
        if len(back := torch.nonzero(self.stopped() & (more > 0))[:, 0]):
            self.erase(more[back], back, "restart")

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
        tokens_after: Int[Tensor, " rows"] | None = None,
    ) -> None:
        """Write an event for each of the rows, when recording; an action of None writes none.

        tokens_after   a token that was asked about after each row, and that is not put there
        """
        if (not self.record and self.listen is None) or action is None:
            return
        lengths, tokens = self.decoder.lengths.tolist(), self.decoder.tokens.tolist()
        values: Sequence[float | None]
        values = [None] * len(rows) if log_values is None else log_values.tolist()
        more = [()] * len(rows) if tokens_after is None else [(t,) for t in tokens_after.tolist()]
        for row, value, after in zip(rows.tolist(), values, more, strict=True):
            owner = int(self.owner[row])
            prompt = int(self.start[row])
            text = (*tokens[row][prompt : lengths[row]], *after)
            calls = int(self.costs.generator_calls[owner])
            asked = int(self.costs.verifier_calls[owner])
            event = Event(owner, action, text, value, calls, asked, prompt)
            if self.record:
                self.trace.append(event)
            if self.listen is not None:
                self.listen(event)

    @overload
    def result(self) -> Result[None]: ...

    @overload
    def result(self, info: InfoT) -> Result[InfoT]: ...

    def result(self, info: Any = None) -> Result[Any]:
        """The rows as they stand; a row that is neither finished nor stopped was left."""
        self.costs.seconds = time.perf_counter() - self._began
        finished = self.finished()
        self.stop(torch.nonzero(~finished & ~self.stopped())[:, 0], Reason.LEFT)
        complete = finished & ~self.stopped()
        verified = complete & ~self._said.isnan()
        if self.smallest is None:
            accepted = verified & (self._said > -torch.inf)
        else:
            accepted = verified & (self._said >= self.smallest)
        return Result(
            self.decoder.tokens,
            self.decoder.lengths,
            tuple(self.trace),
            self.costs,
            self.start,
            complete,
            verified,
            accepted,
            tuple(self._reasons[code] or None for code in self._stopped[self.owner].tolist()),
            info,
        )
