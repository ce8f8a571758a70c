"""A verifier that is a function of text: what a completion reads so far.

A text rule is a plain function, `rule(text) -> bool | float`: can this text still become right?
A float is a probability. A rule that has a parameter `finished` is told whether the text is over,
and answers then whether it is right; one that has a parameter `prompt` is told what the text
continues. `verifiers.text_rules` has ready ones. `TextRule` puts a rule between token ids and text,
so that every algorithm of guided generation can use it.
"""

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from threading import Thread
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.display import counted
from triptych.core.protocols import CountsPasses, Question
from triptych.core.validation import (
    EndToken,
    EndTokens,
    Prefix,
    UserError,
    as_count,
    as_flag,
    as_integers,
    as_list,
    as_number,
    as_text,
    check_callable,
    set_fields,
    shown,
)
from triptych.verifiers.exact import as_ends

MAX_THREADS = 256
IN_FLIGHT = 64  # calls of a coroutine function at a time
MAX_HANGING = 100  # calls that go on after their time was up
_REMEMBERED = 100_000  # texts whose answer is kept
_KEPT_ERRORS = 1_000
_HALF_CHARACTER = 3  # bytes at most that a character of UTF-8 can have begun with


class Reading(NamedTuple):
    """A text that a rule is asked about, and whether it is over.

    prompt   what it continues, where the rule is told: the place in `prompt_texts`, or the tokens
    """

    text: str
    finished: bool
    prompt: int | tuple[int, ...] | None = None


class RuleError(NamedTuple):
    """A text for which a rule gave no answer, and why."""

    text: str
    reason: str


@runtime_checkable
class EndsText(Protocol):
    """A rule that knows when a text is over: it is right, and nothing but space may follow."""

    def over(self, text: str) -> bool: ...


@runtime_checkable
class Batched(Protocol):
    """A function that takes a list of texts, and says so."""

    batched: bool


@runtime_checkable
class KnowsCharacters(Protocol):
    """A rule that knows whether a character beyond ASCII may come next."""

    def beyond_ascii(self, text: str) -> bool: ...


@dataclass(frozen=True, eq=False)
class TextRule:
    """log V of a row is the log of what a function answers to the row's completion, as text.

    function    function(text), or function(text, finished=..., prompt=...) with either or both of
                these: it answers True, False or a probability
    decode      function of a list of token ids, or an object with such a method `decode`, as the
                tokenizers of Hugging Face are; it gets the completion alone, without the prompt
    start       tokens of the prompt, the same for all rows; None: what a question says of each row
    prompt_texts   what a function with a parameter `prompt` is told, one for each row of the
                batch; where they are not given, it is told the decoded prompt
    length      a row of this many tokens is finished, prompt included
    end_token   a row is finished by it, or by one of several; what stands from there on is not
                read
    batched     the function takes a list of texts (and lists for `finished` and `prompt`), and
                answers a list
    threads     this many calls at once, for a function that waits. A coroutine function needs none:
                up to 64 of its calls are in flight at once, and answers keep their order.
    timeout     seconds per call. A call that takes longer is a refusal, and its reason is in
                `errors`; its thread cannot be stopped and runs on until the function returns.
    on_error    what comes of a function that raises: "raise" a UserError, or "reject" the text
                and keep the reason in `errors`

    A tokenizer of bytes shows half a character as U+FFFD; at the end of a text that is not
    finished, up to three of these are left out, unless the function has a method
    `beyond_ascii(text)` which says that no character beyond ASCII may come next. If it has a method
    `over(text)`, a text that is over by its word ends there, without an end token. Answers are
    remembered by text, so the function must always answer the same.

    Worked value: with decode=lambda ids: "".join("ab"[i] for i in ids) and the rule
    lambda text: text.count("b") <= 1, log V of [0, 1] is 0 and that of [1, 1] is -inf. With
    start=1 the texts are "b" and "b", and both get 0.
    """

    function: Callable[..., Any]
    decode: Any
    _: KW_ONLY
    start: int | None = 0
    prompt_texts: Sequence[Any] | None = None
    length: int | None = None
    end_token: EndTokens | None = None
    batched: bool = False
    threads: int = 1
    timeout: float | None = None
    on_error: Literal["raise", "reject"] = "raise"
    _told: frozenset[str] = field(init=False, repr=False)
    _ends: frozenset[int] = field(init=False, repr=False)
    _first: list[int] = field(init=False, repr=False)
    _decoded: dict[tuple[int, ...], str] = field(init=False, repr=False, default_factory=dict)
    _calls: list[int] = field(init=False, repr=False, default_factory=lambda: [0])
    _known: dict[Reading, float] = field(init=False, repr=False, default_factory=dict)
    _over: dict[tuple[int, ...], bool] = field(init=False, repr=False, default_factory=dict)
    _errors: deque[RuleError] = field(init=False, repr=False)
    _hanging: list[Thread] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        check_callable("function", self.function, "function(text)")
        if not callable(getattr(self.decode, "decode", self.decode)):
            raise UserError(
                f"decode is {shown(self.decode)}; it must be a function, decode(list of token "
                "ids), or an object with such a method",
                parameter="decode",
            )
        start = None if self.start is None else as_count("start", self.start)
        texts = None if self.prompt_texts is None else _as_prompt_texts(self.prompt_texts)
        length, end_token = as_ends(self.length, self.end_token)
        batched = as_flag("batched", self.batched)
        threads = as_count("threads", self.threads, at_least=1, at_most=MAX_THREADS)
        timeout = None if self.timeout is None else as_number("timeout", self.timeout, above=0)
        if batched and (threads > 1 or timeout is not None):
            raise UserError(
                f"batched is True, threads is {threads} and timeout is {timeout}; threads and "
                "timeout are for functions of one text, so pass batched=False",
                parameter="batched",
            )
        if not isinstance(self.on_error, str) or self.on_error not in ("raise", "reject"):
            raise UserError(
                f"on_error is {shown(self.on_error)}; it must be 'raise' or 'reject'",
                parameter="on_error",
            )
        set_fields(
            self,
            start=start,
            prompt_texts=texts,
            length=length,
            end_token=end_token,
            batched=batched,
            threads=threads,
            timeout=timeout,
            _told=_check_parameters(self.function),
            _ends=frozenset(_as_several(end_token)),
            _first=_first_equals(texts or []),
            _errors=deque(maxlen=_KEPT_ERRORS),
        )
        if isinstance(self.function, EndsText):
            set_fields(self, __class__=EndingTextRule)

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        texts = self.prompt_texts
        after = "" if texts is None else f" after {counted(len(texts), 'prompt')}"
        return f"TextRule({name}{after})"

    @property
    def errors(self) -> list[RuleError]:
        """Texts for which the function raised or hung, the latest 1000, oldest first."""
        return list(self._errors)

    @property
    def reads_over(self) -> bool:
        """A finished text must be right; one that goes on must only be able to become so."""
        return True

    @property
    def passes(self) -> int:
        """Passes of the function so far, or the questions with a text that it was not asked yet."""
        own = self.function
        return own.passes if isinstance(own, CountsPasses) else self._calls[0]

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        """log V of rows of one length, each a row of the batch."""
        return self.log_values(Question.about(as_integers("prefix", prefix, dimensions=2)))

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]:
        """log V of each row's completion as text."""
        values = self._values([self._read(*row) for row in _rows_of(asked)])
        return torch.tensor(values, dtype=torch.float64, device=asked.tokens.device).log()

    def finished_values(
        self, texts: Sequence[str], rows: Sequence[int] | None = None
    ) -> list[float]:
        """V of whole texts, without their prompts; `rows` has the row of the batch of each one."""
        texts = [as_text("a text", text) for text in as_list("texts", texts, "texts")]
        given = [-1] * len(texts) if rows is None else as_list("rows", rows, "rows")
        if len(given) != len(texts):
            raise UserError(
                f"{len(texts)} texts have {len(given)} rows; each needs one", parameter="texts"
            )
        numbers = [as_count("a row of rows", row, at_least=-1) for row in given]
        return self._values(
            [Reading(t, True, self._prompt(r, ())) for t, r in zip(texts, numbers, strict=True)]
        )

    def _values(self, readings: list[Reading]) -> list[float]:
        asked = [reading for reading in dict.fromkeys(readings) if reading not in self._known]
        answers = {reading: self._known[reading] for reading in readings if reading in self._known}
        answers |= self._answers(asked)
        values = [answers[reading] for reading in readings]
        while len(self._known) > _REMEMBERED:
            self._known.pop(next(iter(self._known)))
        return values

    # ------------------------------------------------------------------ from tokens to text

    def _read(self, row: list[int], begins: int, over: bool, number: int) -> Reading:
        """The text of a row's completion."""
        start = self._start_of(row, begins)
        completion, prompt = row[start:], self._prompt(number, tuple(row[:start]))
        finished = over or (self.length is not None and len(row) >= self.length)
        ends = [i for i, token in enumerate(completion) if token in self._ends]
        if ends:
            completion, finished = completion[: ends[0]], True
        text = self._text_of(completion)
        return Reading(text if finished else self._begun_characters(text), finished, prompt)

    def _prompt(self, number: int, tokens: tuple[int, ...]) -> int | tuple[int, ...] | None:
        """What a row continues, as far as the function is told."""
        if "prompt" not in self._told:
            return None
        if self.prompt_texts is None or number < 0:
            return tokens
        if number >= len(self._first):
            raise UserError(
                f"there are {len(self._first)} prompt_texts, and the question is about row "
                f"{number} of the batch; every row needs one",
                parameter="prompt_texts",
            )
        return self._first[number]

    def _begun_characters(self, text: str) -> str:
        """The text without the half of a character at its end, if that character may come there."""
        whole, rule = _whole_characters(text), self.function
        if len(whole) == len(text) or not isinstance(rule, KnowsCharacters):
            return whole
        return whole if rule.beyond_ascii(whole) else text

    def _text_of(self, tokens: list[int]) -> str:
        decode = getattr(self.decode, "decode", self.decode)
        try:
            text = decode(list(tokens))
        except Exception as error:
            raise UserError(
                f"decode failed with {_told(error)} on the tokens {shown(tokens)}; it must "
                "answer their text",
                parameter="decode",
            ) from error
        if not isinstance(text, str):
            raise UserError(
                f"decode answered {shown(text)} to the tokens {shown(tokens)}; it must answer "
                "a string",
                parameter="decode",
            )
        return text

    def _start_of(self, row: list[int], begins: int) -> int:
        """Where a row's completion begins: where the question says, or where this rule says."""
        if self.start is None:
            return begins
        if len(row) < self.start:
            raise UserError(
                f"prefix has a row of {len(row)} tokens and start is {self.start}; a row must "
                "hold its prompt"
            )
        return self.start

    # ------------------------------------------------------------------ asking the function

    def _answers(self, readings: list[Reading]) -> dict[Reading, float]:
        """What the function says to texts that it was not asked about before."""
        if not readings:
            return {}
        self._calls[0] += 1
        if self.batched:
            answers = self._ask_together(readings)
        elif _is_coroutine(self.function):
            answers = self._ask_all_in_flight(readings)
        elif self.threads > 1 or self.timeout is not None:
            answers = self._ask_in_threads(readings)
        else:
            answers = {reading: self._ask(reading) for reading in readings}
        self._known.update(answers)
        return answers

    def _call(self, text: Any, finished: Any, prompt: Any) -> Any:
        """The function's answer to a text, or to a list of them with lists for the others."""
        said: dict[str, Any] = {}
        if "finished" in self._told:
            said["finished"] = finished
        if "prompt" in self._told:
            said["prompt"] = (
                [*map(self._prompt_of, prompt)] if self.batched else self._prompt_of(prompt)
            )
        return self.function(text, **said)

    def _prompt_of(self, prompt: int | tuple[int, ...]) -> Any:
        """What the function is told of a prompt."""
        if isinstance(prompt, int):
            assert self.prompt_texts is not None
            return self.prompt_texts[prompt]
        if prompt not in self._decoded:
            self._decoded[prompt] = self._text_of(list(prompt))
        return self._decoded[prompt]

    def _ask(self, reading: Reading) -> float:
        try:
            answer = self._call(*reading)
        except Exception as error:
            return self._failed(reading, error)
        return _as_value(answer, reading)

    def _failed(self, reading: Reading, error: Exception) -> float:
        """The value of a text on which the function raised."""
        if self.on_error == "raise":
            raise UserError(
                f"function failed with {_told(error)} on the text {_tail(reading.text)}; mend it, "
                "or pass on_error='reject' to count such texts as refused",
                parameter="function",
            ) from error
        self._errors.append(RuleError(reading.text, _told(error)))
        return 0.0

    def _ask_together(self, readings: list[Reading]) -> dict[Reading, float]:
        texts, finished, prompts = (list(part) for part in zip(*readings, strict=True))
        try:
            answers = self._call(texts, finished, prompts)
        except Exception as error:
            return {reading: self._failed(reading, error) for reading in readings}
        if isinstance(answers, Tensor | np.ndarray):
            answers = answers.tolist()
        if not isinstance(answers, Sequence) or isinstance(answers, str):
            raise UserError(
                f"function answered {shown(answers)} to {len(texts)} texts; with batched=True it "
                "must answer a list",
                parameter="function",
            )
        if len(answers) != len(texts):
            raise UserError(
                f"function answered {len(answers)} values to {len(texts)} texts; with "
                "batched=True it must answer one for each",
                parameter="function",
            )
        return {r: _as_value(answer, r) for r, answer in zip(readings, answers, strict=True)}

    def _ask_all_in_flight(self, readings: list[Reading]) -> dict[Reading, float]:
        """The answers of a coroutine function: `IN_FLIGHT` calls at a time, in a loop of our own.

        The loop runs in a thread, because a notebook has one that runs already.
        """

        async def ask(reading: Reading, room: asyncio.Semaphore) -> float:
            async with room:
                try:
                    call = self._call(*reading)
                    answer = await asyncio.wait_for(call, self.timeout)
                except TimeoutError:
                    why = TimeoutError(f"no answer in {self.timeout:g} seconds")
                    return self._failed(reading, why)
                except Exception as error:
                    return self._failed(reading, error)
            return _as_value(answer, reading)

        async def ask_all() -> list[float]:
            room = asyncio.Semaphore(IN_FLIGHT)
            return await asyncio.gather(*(ask(reading, room) for reading in readings))

        with ThreadPoolExecutor(1) as pool:
            values = pool.submit(asyncio.run, ask_all()).result()
        return dict(zip(readings, values, strict=True))

    def _ask_in_threads(self, readings: list[Reading]) -> dict[Reading, float]:
        waiting, answers = deque(readings), {}
        running: dict[Future[Any], tuple[Reading, Thread, float]] = {}
        while waiting or running:
            while waiting and len(running) < self.threads:
                reading = waiting.popleft()
                future, thread = self._started(reading)
                running[future] = (reading, thread, time.monotonic())
            done, _ = wait(running, timeout=self._time_left(running), return_when=FIRST_COMPLETED)
            for future in done:
                reading, _, _ = running.pop(future)
                error = future.exception()
                if isinstance(error, Exception):
                    answers[reading] = self._failed(reading, error)
                else:  # `result` raises what is no Exception, as the end of the program
                    answers[reading] = _as_value(future.result(), reading)
            for future in self._overdue(running):
                reading, thread, _ = running.pop(future)
                answers[reading] = self._hung(reading, thread)
        return {reading: answers[reading] for reading in readings}

    def _started(self, reading: Reading) -> tuple[Future[Any], Thread]:
        """A call that is under way, in a thread that does not keep the program from ending."""
        future: Future[Any] = Future()

        def call() -> None:
            try:
                answer = self._call(*reading)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(answer)

        thread = Thread(target=call, daemon=True)
        thread.start()
        return future, thread

    def _time_left(self, running: dict[Future[Any], tuple[Reading, Thread, float]]) -> float | None:
        if self.timeout is None:
            return None
        oldest = min(began for _, _, began in running.values())
        return max(0.0, oldest + self.timeout - time.monotonic())

    def _overdue(self, running: dict[Future[Any], tuple[Reading, Thread, float]]) -> list[Any]:
        if self.timeout is None:
            return []
        now = time.monotonic()
        return [
            future
            for future, (_, _, began) in running.items()
            if now - began >= self.timeout and not future.done()
        ]

    def _hung(self, reading: Reading, thread: Thread) -> float:
        """The value of a text on which the function took too long."""
        reason = f"no answer in {self.timeout:g} seconds"
        self._errors.append(RuleError(reading.text, reason))
        self._hanging[:] = [other for other in self._hanging if other.is_alive()] + [thread]
        if len(self._hanging) > MAX_HANGING:
            raise UserError(
                f"function gave {reason} and {len(self._hanging)} such calls still run, the "
                f"latest on the text {_tail(reading.text)}; they cannot be stopped, so give it a "
                "longer timeout, or one of its own",
                parameter="function",
            )
        return 0.0


# ------------------------------------------------------------------ what was given, what comes back


class EndingTextRule(TextRule):
    """A `TextRule` of a function with a method `over`: texts that it calls over end there."""

    def over(self, asked: Question) -> Bool[Tensor, " rows"]:
        """Rows whose text is over by the function's word."""
        said = [self._is_over(row, begins) for row, begins, *_ in _rows_of(asked)]
        return torch.tensor(said, dtype=torch.bool, device=asked.tokens.device)

    def _is_over(self, row: list[int], begins: int) -> bool:
        completion, rule = tuple(row[self._start_of(row, begins) :]), self.function
        if not completion or not isinstance(rule, EndsText):
            return False
        if completion not in self._over:
            if len(self._over) >= _REMEMBERED:
                self._over.clear()
            self._over[completion] = bool(rule.over(self._text_of(list(completion))))
        return self._over[completion]


def _rows_of(asked: Question) -> Iterator[tuple[list[int], int, bool, int]]:
    """Each row: its tokens, where its completion begins, whether it is over, and whose it is."""
    rows, lengths, starts = asked.tokens.tolist(), asked.lengths.tolist(), asked.starts.tolist()
    whose = zip(rows, lengths, starts, asked.over.tolist(), asked.row.tolist(), strict=True)
    return ((row[:length], start, over, number) for row, length, start, over, number in whose)


def _as_prompt_texts(texts: Sequence[Any]) -> list[Any]:
    """Texts, or conversations: lists of messages."""
    found = as_list("prompt_texts", texts, "texts")
    for text in found:
        said = isinstance(text, list | tuple) and all(isinstance(m, Mapping) for m in text)
        if not isinstance(text, str) and not said:
            raise UserError(
                f"prompt_texts holds {shown(text)}; each must be a text, or a list of messages"
            )
    return found


def _first_equals(texts: list[Any]) -> list[int]:
    """The place of the first text that is equal to each; conversations are lists of dicts."""
    first: dict[str, int] = {}
    return [first.setdefault(repr(text), place) for place, text in enumerate(texts)]


def _as_several(end_token: EndToken | None) -> tuple[int, ...]:
    if end_token is None:
        return ()
    return (end_token,) if isinstance(end_token, int) else end_token


def _check_parameters(function: Callable[..., Any]) -> frozenset[str]:
    """What the function is told besides the text; one that does not take a text is refused."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return frozenset()
    told = frozenset(
        name
        for name, parameter in signature.parameters.items()
        if name in ("finished", "prompt")
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    )
    try:
        signature.bind("", **dict.fromkeys(told))
    except TypeError:
        raise UserError(
            f"function has the parameters {signature}; it must take one text, function(text), and "
            "besides at most `finished` and `prompt` are given to it",
            parameter="function",
        ) from None
    return told


def _is_coroutine(function: Callable[..., Any]) -> bool:
    """A coroutine function, or an object whose `__call__` is one."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def _whole_characters(text: str) -> str:
    """A text without the half of a character at its end."""
    stem = text.rstrip("\ufffd")
    return text[: max(len(stem), len(text) - _HALF_CHARACTER)]


def _as_value(answer: Any, reading: Reading) -> float:
    number = answer
    if isinstance(answer, np.generic) or (isinstance(answer, Tensor) and answer.numel() == 1):
        number = answer.item()
    if not isinstance(number, Real) or not 0 <= float(number) <= 1:
        raise UserError(
            f"function answered {shown(answer)} to the text {_tail(reading.text)}; it must answer "
            "True, False or a probability",
            parameter="answer",
        )
    return float(number)


def _told(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def _tail(text: str) -> str:
    """A text in a message: its end, where the mistake is."""
    return repr(text) if len(text) <= 200 else "..." + repr(text[-200:])
