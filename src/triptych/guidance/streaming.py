"""Texts while they are written: an iterator of what happens, in order for each prompt.

    for event in guide_stream(lm, prompts, rule, "tokenwise", max_new_tokens=40):
        match event:
            case Token(prompt, text): ...

Every event has the whole text of its prompt as it stands. An algorithm with several candidates
tells what happens to each of them, and only `Done` says which one is kept.
"""

import queue
from collections.abc import Iterator, Sequence
from threading import Event as Flag
from threading import Thread
from typing import Any, NamedTuple, Unpack

from triptych.core.deprecation import renamed
from triptych.core.protocols import VerifierLike
from triptych.core.validation import Count, UserError, as_count, as_list
from triptych.guidance.batches import Completion, TextFunction
from triptych.guidance.guide import BATCH, Asked, check_language_model, make_job
from triptych.inference.guided.algorithm import AnyAlgorithm
from triptych.inference.guided.result import Event
from triptych.models.pretrained.causal import PretrainedCausalLM

_WAITING = 1000  # events that are told before anybody took them


class Token(NamedTuple):
    """A token was put at the end of the text of this prompt."""

    prompt: int
    text: str


class Refused(NamedTuple):
    """The verifier refused this text."""

    prompt: int
    text: str


class Erased(NamedTuple):
    """The end of a text was taken back; this is left."""

    prompt: int
    text: str


class Done(NamedTuple):
    """A text is finished, or given up."""

    prompt: int
    completion: Completion


Happened = Token | Refused | Erased | Done
_KINDS: dict[str, type[Token] | type[Refused] | type[Erased]] = {
    "draw": Token,
    "argmax": Token,
    "down": Token,
    "reject": Refused,
    "backtrack": Erased,
    "restart": Erased,
    "up": Erased,
}


@renamed(model="lm")
def guide_stream(
    lm: PretrainedCausalLM,
    prompts: str | Sequence[Any],
    verifier: TextFunction | VerifierLike | None = None,
    algorithm: str | AnyAlgorithm | None = None,
    *,
    batch: Count = BATCH,
    **asked: Unpack[Asked],
) -> Iterator[Happened]:
    """What happens while `guide` completes the prompts; the texts are the same.

    The work is done in a thread. It stops when the iterator is closed.
    """
    check_language_model(lm)
    at_once = as_count("batch", batch, at_least=1)
    given = [prompts] if isinstance(prompts, str) else as_list("prompts", prompts, "prompts")
    if not given:
        raise UserError("prompts is empty; pass at least one")
    told: queue.Queue[Happened | BaseException | None] = queue.Queue(_WAITING)
    closed = Flag()

    def tell(event: Happened | BaseException | None) -> None:
        while not closed.is_set():
            try:
                return told.put(event, timeout=0.1)
            except queue.Full:
                continue
        raise _Closed

    def listen(prompt: int, event: Event) -> None:
        if kind := _KINDS.get(event.action):
            tell(kind(prompt, job.text_of(event.tokens)))

    more: dict[str, Any] = {**asked}
    job = make_job(lm, given, verifier, algorithm, listen=listen, **more)

    def work() -> None:
        try:
            for part in job.run(at_once):
                for prompt, completion in zip(part.numbers, job.completions(part), strict=True):
                    tell(Done(prompt, completion))
            tell(None)
        except _Closed:
            return
        except BaseException as error:
            tell(error)

    return _taken(told, closed, Thread(target=work, daemon=True))


class _Closed(BaseException):
    """Nobody listens any more."""


def _taken(
    told: "queue.Queue[Happened | BaseException | None]", closed: Flag, worker: Thread
) -> Iterator[Happened]:
    """The events as they come."""
    worker.start()
    try:
        while (event := told.get()) is not None:
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        closed.set()
        worker.join(timeout=60)
