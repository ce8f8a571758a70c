"""A request of OpenAI's API as plain Python: every field is read, refused by name, or known to say
nothing here.

A field that would change the law of the text row by row has a meaning (temperature, top_p, top_k,
min_p: they change the model, and the algorithm runs on the changed model) or is refused (penalties,
logit_bias). docs/gateway.md has the table.
"""

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triptych.apps.gateway.limits import Limits
from triptych.apps.gateway.refusals import wrong
from triptych.inference.guided.transforms import Sampling

Prompt = str | tuple[int, ...] | tuple[Mapping[str, str], ...]
"""A text, token ids, or a conversation."""

_STOPS, _TOP = 16, 20  # strings, and tokens at a place, that a request may ask for
_DEFAULT_TOKENS = 16  # of a completion, as in OpenAI's API
_LARGEST = 2**63 - 1

_SHARED = {
    "model", "max_tokens", "n", "stop", "temperature", "top_p", "top_k", "min_p", "seed", "stream",
    "stream_options", "response_format", "logprobs", "triptych",
}  # fmt: skip
_COMPLETION = _SHARED | {"prompt", "echo"}
_CHAT = _SHARED | {"messages", "max_completion_tokens", "top_logprobs"}
_SAYS_NOTHING = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "verbosity",
}  # fmt: skip
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "best_of": (1,),
    "suffix": ("",),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": ("none",),
    "web_search_options": (),
}
"""Fields that are refused, but for these values, which change nothing, and null."""
_WHY = {
    "presence_penalty": "it would change the law of a text with its own past",
    "frequency_penalty": "it would change the law of a text with its own past",
    "repetition_penalty": "it would change the law of a text with its own past",
    "logit_bias": "it would change the model's law token by token",
    "best_of": "start the gateway with --algorithm best_of_n, which says what its choice is",
    "tools": "the gateway writes texts, and calls no tools",
    "functions": "the gateway writes texts, and calls no functions",
}


@dataclass(frozen=True)
class Asked:
    """A request, checked.

    max_tokens     None where a conversation names none: as many as fit
    logprobs       how many of the likeliest tokens to tell next to each token; None: nothing
    schema         a JSON schema that the text must fit; None: no such thing
    rule, trace    from the field `triptych`
    """

    chat: bool
    model: str | None
    prompts: tuple[Prompt, ...]
    n: int
    max_tokens: int | None
    stop: tuple[str, ...]
    sampling: Sampling
    seed: int | None
    logprobs: int | None
    echo: bool
    stream: bool
    include_usage: bool
    schema: Mapping[str, Any] | bool | None
    rule: str | None
    trace: bool


def read_json(body: bytes) -> dict[str, Any]:
    """The object that a body is."""
    try:
        found = json.loads(body.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise wrong(None, f"the body is not JSON: {why}", "invalid_json") from None
    if not isinstance(found, dict):
        raise wrong(None, "the body must be a JSON object", "invalid_json")
    return found


def read_request(body: Mapping[str, Any], limits: Limits, *, chat: bool) -> Asked:
    """What is asked, with everything checked that needs no model."""
    given = {name: value for name, value in body.items() if value is not None}
    _refuse_others(given, _CHAT if chat else _COMPLETION)
    stream, options = _flag(given, "stream"), _object(given, "stream_options")
    _refuse_names(options, {"include_usage", "include_obfuscation"}, "stream_options")
    own = _object(given, "triptych")
    _refuse_names(own, {"rule", "trace"}, "triptych")
    prompts = (_conversation(given),) if chat else _prompts(given, limits)
    n = _count(given, "n", 1, 1, limits.rows)
    if len(prompts) * n > limits.rows:
        raise wrong(
            "n",
            f"{len(prompts)} prompts with n = {n} make {len(prompts) * n} texts; this gateway "
            f"writes at most {limits.rows} for one request",
            "too_many_rows",
        )
    asked = Asked(
        chat=chat,
        model=_text(given, "model"),
        prompts=prompts,
        n=n,
        max_tokens=_max_tokens(given, limits, chat),
        stop=_stop(given),
        sampling=_sampling(given),
        seed=_count(given, "seed", None, -_LARGEST - 1, _LARGEST),
        logprobs=_chat_logprobs(given) if chat else _count(given, "logprobs", None, 0, _TOP),
        echo=_flag(given, "echo"),
        stream=stream,
        include_usage=_flag(options, "include_usage"),
        schema=_schema(given, limits),
        rule=_text(own, "rule"),
        trace=_flag(own, "trace"),
    )
    if asked.max_tokens == 0 and not asked.echo:
        raise wrong("max_tokens", "max_tokens is 0, which only echo=true makes sense of")
    if stream and asked.logprobs is not None:
        raise wrong(
            "logprobs",
            "logprobs are told with whole texts alone; leave out stream",
            "not_supported",
        )
    return asked


# ---------------------------------------------------------------- which fields there are


def _refuse_others(given: Mapping[str, Any], known: set[str]) -> None:
    for name, value in given.items():
        if name in known or name in _SAYS_NOTHING:
            continue
        if name not in _NEUTRAL:
            near = difflib.get_close_matches(name, [*known, *_NEUTRAL], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise wrong(_shown(name), f"there is no field {_shown(name)!r}{hint}", "unknown_field")
        if not any(type(value) is type(one) and value == one for one in _NEUTRAL[name]) and not (
            _is_number(value) and value in _NEUTRAL[name]
        ):
            why = _WHY.get(name, "this gateway does not do it")
            raise wrong(name, f"{name} is not supported: {why}", "not_supported")


def _refuse_names(given: Mapping[str, Any], known: set[str], of: str) -> None:
    for name in given:
        if name not in known:
            raise wrong(
                of, f"{of} has no field {_shown(name)!r}; it has {', '.join(sorted(known))}",
                "unknown_field",
            )  # fmt: skip


# ---------------------------------------------------------------- prompts


def _prompts(given: Mapping[str, Any], limits: Limits) -> tuple[Prompt, ...]:
    prompt = given.get("prompt")
    if isinstance(prompt, str):
        return (_clean("prompt", prompt),)
    if not isinstance(prompt, list) or not prompt:
        raise wrong("prompt", "prompt must be a text, a list of texts, token ids or lists of them")
    if len(prompt) > limits.rows and not _is_whole(prompt[0]):
        raise wrong(
            "prompt",
            f"prompt has {len(prompt)} prompts; this gateway takes at most {limits.rows}",
            "too_many_rows",
        )
    if all(isinstance(each, str) for each in prompt):
        return tuple(_clean("prompt", each) for each in prompt)
    if all(_is_whole(each) for each in prompt):
        return (tuple(prompt),)
    if all(isinstance(each, list) and all(map(_is_whole, each)) for each in prompt):
        return tuple(tuple(each) for each in prompt)
    raise wrong("prompt", "prompt mixes texts, token ids and other things; give one kind")


def _conversation(given: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", "messages must be a list of at least one message")
    return tuple(_message(f"messages[{i}]", message) for i, message in enumerate(messages))


def _message(name: str, message: Any) -> Mapping[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise wrong(name, f"{name} must have a role and a content, both texts")
    role, content = message["role"], message.get("content")
    others = {key for key, value in message.items() if value} - {"role", "content", "name"}
    if others:
        raise wrong(name, f"{name} has {_shown(min(others))!r}, which this gateway does not read")
    if isinstance(content, list):
        content = "".join(_part(f"{name}.content[{i}]", part) for i, part in enumerate(content))
    if not isinstance(content, str):
        raise wrong(name, f"{name}.content must be a text, or parts of type text")
    role = "system" if role == "developer" else role
    return {"role": _clean(name, role), "content": _clean(name, content)}


def _part(name: str, part: Any) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return part["text"]
    raise wrong(name, f"{name} must be a part of type text; this gateway reads nothing else")


# ---------------------------------------------------------------- numbers and words


def _max_tokens(given: Mapping[str, Any], limits: Limits, chat: bool) -> int | None:
    names = ("max_completion_tokens", "max_tokens") if chat else ("max_tokens",)
    for name in names:
        found = _count(given, name, None, 0, _LARGEST)
        if found is None:
            continue
        if found > limits.max_tokens:
            raise wrong(
                name,
                f"{name} is {found}; this gateway writes at most {limits.max_tokens} tokens a text",
                "too_many_tokens",
            )
        return found
    return None if chat else min(_DEFAULT_TOKENS, limits.max_tokens)


def _sampling(given: Mapping[str, Any]) -> Sampling:
    top_k = _count(given, "top_k", 0, -1, _LARGEST)
    return Sampling(
        temperature=_number(given, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(given, "top_p", 1.0, 0.0, 1.0),
        top_k=max(0, top_k or 0),  # some servers write -1 for all
        min_p=_number(given, "min_p", 0.0, 0.0, 1.0),
    )


def _stop(given: Mapping[str, Any]) -> tuple[str, ...]:
    stop = given.get("stop", [])
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(each, str) and each for each in stops):
        raise wrong("stop", "stop must be a text or a list of texts, none of them empty")
    if len(stops) > _STOPS:
        raise wrong("stop", f"stop has {len(stops)} texts; at most {_STOPS} are looked for")
    return tuple(_clean("stop", each) for each in stops)


def _chat_logprobs(given: Mapping[str, Any]) -> int | None:
    wanted, top = _flag(given, "logprobs"), _count(given, "top_logprobs", None, 0, _TOP)
    if top is not None and not wanted:
        raise wrong("top_logprobs", "top_logprobs needs logprobs: true")
    return (top or 0) if wanted else None


def _schema(given: Mapping[str, Any], limits: Limits) -> Mapping[str, Any] | bool | None:
    """The schema of `response_format`, which is data: no code comes with a request."""
    wanted = _object(given, "response_format")
    if not wanted or wanted.get("type") == "text":
        return None
    if wanted.get("type") == "json_object":
        return {"type": "object"}
    if wanted.get("type") != "json_schema":
        raise wrong(
            "response_format", "response_format.type must be text, json_object or json_schema"
        )
    inside = wanted.get("json_schema")
    schema = inside.get("schema") if isinstance(inside, dict) else None
    if not isinstance(schema, dict | bool):
        raise wrong("response_format", "response_format.json_schema.schema must be a JSON schema")
    try:
        size = len(json.dumps(schema).encode())
    except (ValueError, RecursionError):
        raise wrong("response_format", "the schema is nested too deeply") from None
    if size > limits.schema_bytes:
        raise wrong(
            "response_format",
            f"the schema has {size} bytes; this gateway reads at most {limits.schema_bytes}",
            "schema_too_large",
        )
    return schema


def _object(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name, {})
    if not isinstance(found, dict):
        raise wrong(name, f"{name} must be an object")
    return {key: value for key, value in found.items() if value is not None}


def _flag(given: Mapping[str, Any], name: str) -> bool:
    found = given.get(name, False)
    if not isinstance(found, bool):
        raise wrong(name, f"{name} must be true or false")
    return found


def _text(given: Mapping[str, Any], name: str) -> str | None:
    found = given.get(name)
    if found is not None and not isinstance(found, str):
        raise wrong(name, f"{name} must be a text")
    return None if found is None else _clean(name, found)


def _count(given: Mapping[str, Any], name: str, default: Any, least: int, most: int) -> Any:
    found = given.get(name, default)
    if found is default:
        return default
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if not _is_whole(found) or not least <= found <= most:
        raise wrong(name, f"{name} must be a whole number from {least} to {most}")
    return found


def _number(
    given: Mapping[str, Any], name: str, default: float, least: float, most: float
) -> float:
    found = given.get(name, default)
    if not _is_number(found) or not least <= found <= most:
        raise wrong(name, f"{name} must be a number from {least:g} to {most:g}")
    return float(found)


def _is_whole(value: Any) -> bool:
    return type(value) is int and -_LARGEST - 1 <= value <= _LARGEST


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (type(value) is float and math.isfinite(value))


def _clean(name: str, text: str) -> str:
    """A text that can be written as UTF-8: JSON may hold half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise wrong(name, f"{name} holds half of a surrogate pair, which is no text") from None
    return text


def _shown(name: str) -> str:
    return name[:60].encode("ascii", "backslashreplace").decode()


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")
