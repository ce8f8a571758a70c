"""A chunk of prompts to rows: what a worker does, in whichever process.

A worker loads the model and the rule once. A prompt that does not fit gets a row with the reason.
When the verifier gives no answer, the chunk is taken apart into halves until the prompt stands
alone: it gets the reason, and all others get their texts. Every prompt draws from a stream of its
own, so it draws the same after that as before.
"""

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from triptych.core.validation import UserError
from triptych.guidance.batches import Candidate, Particle
from triptych.guidance.guide import Guided, Streams, guide
from triptych.inference.guided.result import VerifierError
from triptych.lab.generating.progress import hide_bars
from triptych.lab.generating.prompts import Prompt
from triptych.lab.generating.rows import Row
from triptych.lab.generating.rules import AskedRule, failure_reason, on_tokens
from triptych.lab.generating.settings import GenerateSettings
from triptych.lab.running.items import Ended
from triptych.models.pretrained.causal import PretrainedCausalLM

_NO_COSTS = {"generator_calls": 0, "generated": 0, "erased": 0, "verifier_calls": 0}


class Chunk(NamedTuple):
    """Prompts for a worker, as plain data.

    settings   of the run, as JSON text
    prompts    ids and prompts, which are completed together
    trace      keep the trace of each
    threads    of torch; None leaves them as they are
    """

    key: str
    settings: str
    device: str
    prompts: tuple[tuple[str | int, Any], ...]
    trace: bool
    threads: int | None


def complete_chunk(chunk: Chunk) -> Ended:
    """The rows of a chunk and their traces, or an error.

    An error that begins with "UserError: " concerns the whole run, any other one this chunk. Its
    seconds are without those of loading.
    """
    began = time.perf_counter()
    try:
        if chunk.threads is not None:
            torch.set_num_threads(chunk.threads)
        completer = _completer(chunk.settings, chunk.device)
        torch.set_num_threads(completer.threads)
        began = time.perf_counter()
        rows = completer.complete([Prompt(*each) for each in chunk.prompts], trace=chunk.trace)
    except Exception as error:
        words = " ".join(str(error).split()) or "no message"
        kind = "UserError" if isinstance(error, UserError) else type(error).__name__
        return Ended(chunk.key, None, f"{kind}: {words}", time.perf_counter() - began)
    return Ended(chunk.key, rows, None, time.perf_counter() - began)


_loaded: dict[tuple[str, str], "Completer"] = {}  # at most one: the model stays in the process


def _completer(settings: str, device: str) -> "Completer":
    if (settings, device) not in _loaded:
        release()
        _loaded[settings, device] = Completer(
            GenerateSettings.from_json(json.loads(settings)), device
        )
    return _loaded[settings, device]


def release() -> None:
    """Let go of the model that this process holds, and end the process of its rule."""
    while _loaded:
        _loaded.popitem()[1].close()


def load_model(settings: GenerateSettings, device: str) -> PretrainedCausalLM:
    """The model of the settings; what cannot be loaded is one sentence."""
    hide_bars()
    try:
        return PretrainedCausalLM.from_pretrained(
            settings.model,
            dtype=settings.dtype,
            device=device,
            trust_remote_code=settings.trust_remote_code,
        )
    except (OSError, ModuleNotFoundError) as error:
        raise UserError(str(error)) from error


_MUCH_SLOWER = 2.0


def fitting_threads(model: PretrainedCausalLM) -> int:
    """Threads of torch for this model: as many as now, or one where that is much faster.

    On a machine that is busy with other work, threads wait for the one that has no core. A pass of
    a small model then takes many times as long as with one thread.
    """
    threads = torch.get_num_threads()
    if threads == 1 or model.device.type != "cpu":
        return threads

    def seconds(number: int) -> float:
        torch.set_num_threads(number)
        began = time.perf_counter()
        model.next_token_log_probs([[0] * min(8, model.length)])
        return time.perf_counter() - began

    try:
        seconds(threads)  # the first pass of a process takes longer
        several = min(seconds(threads) for _ in range(2))
        return 1 if several > _MUCH_SLOWER * seconds(1) else threads
    finally:
        torch.set_num_threads(threads)


class Completer:
    """A model with a rule and settings, which completes chunks of prompts.

    threads   of torch that suit the model on this machine
    """

    def __init__(
        self,
        settings: GenerateSettings,
        device: str = "cpu",
        model: PretrainedCausalLM | None = None,
    ) -> None:
        self.settings = settings
        source = settings.verifier
        masks = source is not None and source.has_masks
        self.rule = AskedRule(source, settings.timeout) if source and not masks else None
        try:
            if self.rule is not None:
                self.rule.check()
            self.model = model or load_model(settings, device)
            self.grammar = on_tokens(source, self.model) if source and masks else None
            self.threads = fitting_threads(self.model)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.rule is not None:
            self.rule.close()

    def complete(self, prompts: Sequence[Prompt], *, trace: bool = False) -> list[Row]:
        """A row for every prompt, in their order; with `trace`, each has its events as `trace`."""
        made: dict[str, Row] = {}
        fitting: list[Prompt] = []
        for prompt in prompts:
            if (reason := self._why_not(prompt)) is None:
                fitting.append(prompt)
            else:
                made[str(prompt.id)] = self._failed(prompt, reason)
        for kind in (False, True):
            group = [prompt for prompt in fitting if self._is_chat(prompt) == kind]
            for row in self._together(group, trace):
                made[str(row["id"])] = row
        return [made[str(prompt.id)] for prompt in prompts]

    # ------------------------------------------------------------------ before a model is asked

    def _is_chat(self, prompt: Prompt) -> bool:
        return self.settings.chat or prompt.is_conversation

    def _why_not(self, prompt: Prompt) -> str | None:
        """Why a prompt cannot be completed at all, or None."""
        model, limit = self.model, self.settings.max_new_tokens
        chat = self._is_chat(prompt)
        if chat and getattr(model.tokenizer, "chat_template", None) is None:
            raise UserError(
                f"the prompt {prompt.id} is a conversation and this model has no chat template; "
                "give prompts as texts, without --chat",
                parameter="prompt",
            )
        try:
            row = model.chat(prompt.prompt) if chat else model.encode([str(prompt.prompt)])[0]
        except Exception as error:  # templates raise errors of their own, as on roles they refuse
            return f"the prompt cannot be read: {' '.join(str(error).split())[:300]}"
        if len(row) + limit > model.length:
            return (
                f"the prompt has {len(row)} tokens and may get {limit} more; this model reads at "
                f"most {model.length}"
            )
        if not row and model.bos_token is None:
            return "the prompt is empty, and this model has no token to begin with"
        return None

    # ------------------------------------------------------------------ prompts that fit

    def _together(self, prompts: Sequence[Prompt], trace: bool) -> Iterator[Row]:
        """Rows of prompts that are all texts, or all conversations."""
        if not prompts:
            return
        began = time.perf_counter()
        if self.rule is not None:
            self.rule.failure = None
        try:
            found = self._guide(prompts, trace)
        except Exception as error:
            reason = self._no_answer(error)
            full = isinstance(error, torch.OutOfMemoryError) and len(prompts) > 1
            if reason is None and not full:
                raise
            if len(prompts) > 1:
                middle = len(prompts) // 2
                yield from self._together(prompts[:middle], trace)
                yield from self._together(prompts[middle:], trace)
                return
            assert reason is not None
            text = self.rule.failure[1] if self.rule and self.rule.failure else ""
            seconds = time.perf_counter() - began
            yield self._failed(prompts[0], reason, text, _costs_of(error), seconds)
            return
        share = (time.perf_counter() - began) / len(prompts)
        events = self._traces(prompts, found) if trace else None
        for place, prompt in enumerate(prompts):
            row = self._row(prompt, found, place, share)
            yield row if events is None else row | {"trace": events[place]}

    def _no_answer(self, error: Exception) -> str | None:
        """Why the verifier gave no answer; None where something else went wrong."""
        if self.rule is not None:
            return failure_reason(*self.rule.failure) if self.rule.failure else None
        if self.grammar is not None and isinstance(error.__cause__, VerifierError):
            return f"the verifier failed: {error}"
        return None

    def _guide(self, prompts: Sequence[Prompt], trace: bool) -> Guided:
        settings = self.settings
        said: Any = [prompt.prompt for prompt in prompts]
        return guide(
            self.model,
            said,
            self.grammar if self.rule is None else self.rule,
            settings.own(),
            max_new_tokens=settings.max_new_tokens,
            rng=Streams(settings.seed, [prompt.stream for prompt in prompts]),
            sampling=settings.sampling,
            stop=settings.stop,
            chat=self._is_chat(prompts[0]),
            batch=len(prompts),
            budget=settings.budget,
            record=trace,
        )

    # ------------------------------------------------------------------ rows

    def _row(self, prompt: Prompt, found: Guided, place: int, seconds: float) -> Row:
        row = {
            "id": prompt.id,
            "prompt": prompt.prompt,
            "text": found.texts[place],
            "accepted": found.accepted[place],
            "complete": found.complete[place],
            "failed": False,
            "reason": _plain(found.reasons[place]),
            "score": _plain(found.scores[place]),
            "costs": found.costs[place],
            "seconds": round(seconds, 4),
        }
        for name in ("candidates", "weights", "log_evidence"):
            every = getattr(found, name)
            if every is not None:
                row[name] = _plain(every[place])
        return row | {"settings": self.settings.fingerprint}

    def _failed(
        self,
        prompt: Prompt,
        reason: str,
        text: str = "",
        costs: Mapping[str, int] = _NO_COSTS,
        seconds: float = 0.0,
    ) -> Row:
        return failed_row(self.settings, prompt, reason, text, costs, seconds)

    def _traces(self, prompts: Sequence[Prompt], found: Guided) -> list[list[Row]]:
        """The events of every prompt, in order."""
        events: list[list[Row]] = [[] for _ in prompts]
        for members, result in zip(found.members, found.results, strict=True):
            for event in result.trace:
                events[members[event.row]].append(
                    {
                        "action": event.action,
                        "text": self.model.text_of(event.tokens),
                        "tokens": list(event.tokens),
                        "log_value": _plain(event.log_value),
                        "generator_calls": event.generator_calls,
                        "verifier_calls": event.verifier_calls,
                    }
                )
        return events


def failed_row(
    settings: GenerateSettings,
    prompt: Prompt,
    reason: str,
    text: str = "",
    costs: Mapping[str, int] = _NO_COSTS,
    seconds: float = 0.0,
) -> Row:
    """The row of a prompt whose text could not be made."""
    return {
        "id": prompt.id,
        "prompt": prompt.prompt,
        "text": text,
        "accepted": False,
        "complete": False,
        "failed": True,
        "reason": reason,
        "score": None,
        "costs": dict(costs),
        "seconds": round(seconds, 4),
        "settings": settings.fingerprint,
    }


def _costs_of(error: BaseException) -> Mapping[str, int]:
    """What a row cost that stood alone when the verifier failed."""
    failure = error.__cause__  # `guide` says in a sentence why the verifier gave no answer
    if not isinstance(failure, VerifierError):
        return _NO_COSTS
    totals = failure.partial.costs.totals()
    return {name: int(totals[name]) for name in _NO_COSTS}


def _plain(value: Any) -> Any:
    """A value for JSON: numbers that are not finite are None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Candidate | Particle):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, Iterable):
        return [_plain(each) for each in value]
    return value
