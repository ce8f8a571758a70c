"""Threads that write the texts: requests wait in a queue, and those that ask for the same run in
one batch.

The first request in the queue runs, and with it all that wait and have the same rule, sampling,
stop strings and limits, up to `together` rows. Every row draws from a stream of its own, so what
it gets does not depend on who runs with it, up to the rounding of the model. A request that comes
while a batch runs waits for the next one.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from triptych.apps.gateway.limits import Limits
from triptych.apps.gateway.metrics import Metrics
from triptych.apps.gateway.refusals import Refused
from triptych.apps.gateway.rules import Chosen, Rules
from triptych.apps.gateway.traces import trace_row
from triptych.core.validation import UserError
from triptych.guidance.batches import Completion, Job
from triptych.guidance.guide import Encoded, Streams, TextModel, make_job
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.result import Event, Reason, Result, VerifierError
from triptych.inference.guided.transforms import Sampling
from triptych.models.pretrained.causal import TokenScore
from triptych.models.served.connection import NoServer
from triptych.models.served.served_lm import ModelChanged
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import Vocabulary

_SCHEMAS = 32  # of requests, whose verifiers a thread keeps
_SEED = 0  # of all streams: a request's own seed is in their numbers
_CUT = (Reason.TOKENS, Reason.QUESTIONS, Reason.TIME)


class Task(NamedTuple):
    """What requests must share to run in one batch."""

    chosen: Chosen
    sampling: Sampling
    stop: tuple[str, ...]
    limit: int
    record: bool


class Made(NamedTuple):
    """A text that came out.

    tokens   of the text, with the one that ended it
    finish   why it ends, as OpenAI's API says it: stop, length or content_filter
    scores   of prompt and text, where they were asked for
    trace    its row of a trace, where that was asked for
    """

    completion: Completion
    tokens: tuple[int, ...]
    finish: str
    scores: list[TokenScore] | None
    trace: dict[str, Any] | None


@dataclass(eq=False)
class Ticket:
    """A request in the queue.

    prompts   one for each text
    numbers   of the streams from which the texts draw
    top       likeliest tokens to tell at each place; None scores nothing
    heard     is told every event of each text as it happens
    future    what comes out: a `Made` for each prompt
    """

    task: Task
    prompts: Sequence[Encoded]
    numbers: Sequence[int]
    top: int | None = None
    heard: Callable[[int, Event], None] | None = None
    future: "Future[list[Made]]" = field(default_factory=Future)
    came: float = field(default_factory=time.monotonic)
    left: bool = False

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self.left = True


@runtime_checkable
class Scores(Protocol):
    """A model that tells the log-probability of every token of a text."""

    def token_scores(
        self, rows: Sequence[Sequence[int]], *, top: int = 0
    ) -> list[list[TokenScore]]: ...


class _Abandoned(BaseException):
    """Nobody waits for any row of a batch."""


class Workers:
    """Threads that take requests from one queue."""

    def __init__(
        self,
        lm: TextModel,
        rules: Rules,
        limits: Limits,
        metrics: Metrics,
        threads: int = 1,
    ) -> None:
        self.lm, self.rules, self.limits, self.metrics = lm, rules, limits, metrics
        self._waiting: deque[Ticket] = deque()
        self._running, self._closed = 0, False
        self._changed = threading.Condition()
        self._vocabulary: Vocabulary | None = None
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, ticket: Ticket) -> "Future[list[Made]]":
        """Put a request into the queue; one too many is refused."""
        with self._changed:
            if self._closed:
                raise Refused(503, "the gateway is stopping", code="stopping", retry_after=5)
            if len(self._waiting) + self._running >= self.limits.requests:
                raise Refused(
                    429,
                    f"{self.limits.requests} requests wait or run already; come back in a moment",
                    code="too_many_requests",
                    retry_after=1,
                )
            self._waiting.append(ticket)
            self._tell()
            self._changed.notify()
        return ticket.future

    def close(self, seconds: int | float = 0.0) -> None:
        """Take no more; wait so long for what runs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    @property
    def alive(self) -> bool:
        """All threads still take requests."""
        return all(thread.is_alive() for thread in self._threads)

    def vocabulary(self) -> Vocabulary:
        """That of the model, read once."""
        with self._changed:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary.of(self.lm)
            return self._vocabulary

    # ------------------------------------------------------------------ the threads

    def _work(self) -> None:
        verifiers = _Verifiers(self)
        try:
            while (tickets := self._take()) is not None:
                try:
                    self._serve(tickets, verifiers)
                finally:
                    with self._changed:
                        self._running -= len(tickets)
                        self._tell()
        finally:
            verifiers.close()

    def _take(self) -> list[Ticket] | None:
        """The first request that somebody waits for, and all that can run with it."""
        with self._changed:
            while True:
                while self._waiting and self._waiting[0].left:
                    self._abandon(self._waiting.popleft())
                if self._waiting:
                    break
                if self._closed:
                    return None
                self._changed.wait()
            first = self._waiting.popleft()
            taken, rows, others = [first], len(first.prompts), deque[Ticket]()
            for ticket in self._waiting:
                fits = rows + len(ticket.prompts) <= self.limits.together
                if fits and not ticket.left and ticket.task == first.task:
                    taken.append(ticket)
                    rows += len(ticket.prompts)
                else:
                    others.append(ticket)
            self._waiting = others
            self._running += len(taken)
            self._tell()
            return taken

    def _tell(self) -> None:
        self.metrics.set("waiting_requests", len(self._waiting))
        self.metrics.set("running_requests", self._running)

    def _abandon(self, ticket: Ticket) -> None:
        self.metrics.add("abandoned_total")
        ticket.future.cancel()

    def _serve(self, tickets: list[Ticket], verifiers: "_Verifiers") -> None:
        """Give every request its texts, or the reason why there are none."""
        now, waited = time.monotonic(), []
        for ticket in tickets:
            if now - ticket.came > self.limits.seconds:
                late = f"the request waited {self.limits.seconds:g} seconds for its turn"
                ticket.future.set_exception(Refused(503, late, code="waited", retry_after=5))
            else:
                waited.append(ticket)
        if not waited:
            return
        try:
            found = [*self._run(waited, verifiers)]
        except _Abandoned:
            for ticket in waited:
                self._abandon(ticket)
        except Exception as error:
            if len(waited) > 1:  # each alone: the others need not suffer
                for ticket in waited:
                    self._serve([ticket], verifiers)
            else:
                waited[0].future.set_exception(_reason(error))
        else:
            for ticket, made in zip(waited, found, strict=True):
                if ticket.left:
                    self._abandon(ticket)
                else:
                    ticket.future.set_result(made)

    def _run(self, tickets: list[Ticket], verifiers: "_Verifiers") -> Iterator[list[Made]]:
        task = tickets[0].task
        places = [(t, i) for t, ticket in enumerate(tickets) for i in range(len(ticket.prompts))]
        prompts = [tickets[t].prompts[i] for t, i in places]
        made = [_nothing()] * len(prompts)
        if task.limit:
            made = self._write(tickets, places, prompts, verifiers)
        for t, ticket in enumerate(tickets):
            own = [row for (of, _), row in zip(places, made, strict=True) if of == t]
            yield own if ticket.top is None else self._scored(ticket, own)

    def _write(
        self,
        tickets: list[Ticket],
        places: list[tuple[int, int]],
        prompts: list[Encoded],
        verifiers: "_Verifiers",
    ) -> list[Made]:
        task = tickets[0].task

        def left(row: int) -> bool:
            if all(ticket.left for ticket in tickets):
                raise _Abandoned
            return tickets[places[row][0]].left

        def listen(row: int, event: Event) -> None:
            t, i = places[row]
            if (heard := tickets[t].heard) is not None:
                heard(i, event)

        job = make_job(
            self.lm,
            prompts,
            verifiers.of(task.chosen),
            task.chosen.algorithm,
            max_new_tokens=task.limit,
            rng=Streams(_SEED, [tickets[t].numbers[i] for t, i in places]),
            sampling=task.sampling,
            stop=task.stop,
            budget=Budget(seconds=self.limits.seconds),
            record=task.record,
            listen=listen if any(ticket.heard for ticket in tickets) else None,
            left=left,
        )
        made: list[Made] = []
        for batch in job.run(self.limits.together):
            completions, result = job.completions(batch), batch.result
            self._count(completions, result)
            for place, (completion, tokens) in enumerate(
                zip(completions, result.completions(), strict=True)
            ):
                trace = trace_row(result, place, job.decode) if task.record else None
                finish = finish_reason(job, completion, tokens)
                made.append(Made(completion, tokens, finish, None, trace))
        return made

    def _scored(self, ticket: Ticket, made: list[Made]) -> list[Made]:
        rows = [
            [*prompt.tokens, *row.tokens] for prompt, row in zip(ticket.prompts, made, strict=True)
        ]
        assert isinstance(self.lm, Scores)
        scores = self.lm.token_scores(rows, top=ticket.top or 0)
        return [row._replace(scores=found) for row, found in zip(made, scores, strict=True)]

    def _count(self, completions: Sequence[Completion], result: Result[Any]) -> None:
        metrics, costs = self.metrics, result.costs.totals()
        metrics.add("batches_total")
        metrics.add("batch_rows_total", len(completions))
        metrics.add("batch_seconds_total", costs["seconds"])
        metrics.add("generated_tokens_total", costs["generated"])
        metrics.add("erased_tokens_total", costs["erased"])
        for name in ("generator_calls", "verifier_calls"):
            metrics.add(f"{name}_total", costs[name])
        said = {True: "accepted", False: "refused", None: "not_asked"}
        for completion in completions:
            metrics.add("texts_total", verifier=said[completion.accepted])


class _Verifiers:
    """The verifiers of one thread: those of the rules, and of the latest schemas."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._rules: dict[str, Any] = {}
        self._schemas: OrderedDict[str, Any] = OrderedDict()

    def of(self, chosen: Chosen) -> Any:
        """The verifier of a request."""
        if chosen.schema is None:
            if chosen.rule not in self._rules:
                self._rules[chosen.rule] = self._workers.rules.by_name[chosen.rule].make()
            return self._rules[chosen.rule]
        if chosen.schema not in self._schemas:
            vocabulary = self._workers.vocabulary()
            self._schemas[chosen.schema] = Grammar.from_json_schema(chosen.schema).on(vocabulary)
            if len(self._schemas) > _SCHEMAS:
                self._schemas.popitem(last=False)
        self._schemas.move_to_end(chosen.schema)
        return self._schemas[chosen.schema]

    def close(self) -> None:
        """End what the rules have started."""
        for verifier in self._rules.values():
            if callable(close := getattr(verifier, "close", None)):
                with suppress(Exception):
                    close()


def finish_reason(job: Job, completion: Completion, tokens: Sequence[int]) -> str:
    """Why a text ends, in the words of OpenAI's API.

    stop             the model, a stop string or the verifier ended it, and it is not refused
    length           it has as many tokens as it may, or the time of its batch was up
    content_filter   the verifier refuses it, or the algorithm gave up
    """
    if not completion.complete:
        return "length" if completion.reason in _CUT else "content_filter"
    ended = len(tokens) < job.limit or tokens[-1] in job.ends
    if not ended and not (job.stop and any(stop in job.decode(tokens) for stop in job.stop)):
        return "length"
    return "content_filter" if completion.accepted is False else "stop"


def _nothing() -> Made:
    """What a request gets that asks for no new token."""
    costs = {"generator_calls": 0, "generated": 0, "erased": 0, "verifier_calls": 0}
    empty = Completion("", True, None, None, None, costs, None, None, None)
    return Made(empty, (), "length", None, None)


def _reason(error: Exception) -> Exception:
    """What a client is told; what is no mistake of anybody stays as it is."""
    if not isinstance(error, UserError):
        return error
    if isinstance(error, NoServer | ModelChanged):
        told = "the server of the model does not answer, or has another model now"
        return Refused(502, told, code="no_upstream", retry_after=5)
    asked = error.parameter in ("function", "answer")
    if asked or isinstance(error.__cause__, VerifierError):
        return Refused(422, f"the verifier gave no answer: {error}", code="verifier_failed")
    return Refused(400, str(error), code="not_possible", param=error.parameter)
