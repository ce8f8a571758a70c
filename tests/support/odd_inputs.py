"""Calls every public callable with one odd argument, as a user would: without run-time checks.

`test_odd_inputs.py` starts this file as one process and talks to it in lines of JSON:

    {"list": true}                                  -> every call with its parameters
    {"call": ..., "parameter": ..., "value": spec}  -> {"outcome": "answer" | "refused" | ..., ...}

What is public is found by looking into the modules. How to call it rightly comes from `examples()`
for the methods of structures, and from `odd_arguments.py` for everything else; what has no entry is
reported, so that nothing new goes unnoticed.
"""

import dataclasses
import dis
import enum
import importlib
import inspect
import json
import math
import pkgutil
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tests.support.odd_arguments import ARGUMENTS, BY_NAME, LAW, OBJECTS, ROWS, Kwargs

import triptych
from triptych.core.randomness import TorchRng

PACKAGES = ("core", "structures", "inference", "verifiers")
SECONDS = 15  # that one call may take, on a busy machine; valid ones take milliseconds
MEMORY = 12 * 2**30  # so that a request for all the memory there is fails at once

# ------------------------------------------------------------------ what is public


class Call(NamedTuple):
    """A public function, constructor or method, and its parameters."""

    name: str
    function: Callable[..., Any]
    parameters: dict[str, inspect.Parameter]
    method_of: type | None


def public_calls(packages: Sequence[str] = PACKAGES) -> Iterator[Call]:
    for package in packages:
        folder = importlib.import_module(f"triptych.{package}")
        for info in pkgutil.walk_packages(folder.__path__, f"triptych.{package}."):
            module = importlib.import_module(info.name)
            for name, thing in vars(module).items():
                if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__:
                    yield from _calls_of(f"{package}.{info.name.rpartition('.')[2]}.{name}", thing)


def _calls_of(name: str, thing: Any) -> Iterator[Call]:
    if inspect.isfunction(thing) and thing.__name__ != "examples":
        yield _call(name, thing, None)
    if not inspect.isclass(thing) or issubclass(thing, BaseException | enum.Enum):
        return
    if getattr(thing, "_is_protocol", False):  # says what an object must have; nothing to call
        return
    if not issubclass(thing, tuple | dict):  # a named tuple is a record that we hand out
        yield _call(name, thing, None)
    for method, static in inspect.getmembers_static(thing):
        bound = isinstance(static, classmethod | staticmethod)
        ours = str(getattr(getattr(thing, method, None), "__module__", "")).startswith("triptych")
        if method.startswith("_") or not ours or not (bound or inspect.isfunction(static)):
            continue
        yield _call(f"{name}.{method}", getattr(thing, method), None if bound else thing)


def _call(name: str, function: Callable[..., Any], method_of: type | None) -> Call:
    parameters = dict(inspect.signature(function).parameters)
    parameters = {
        name: p for name, p in parameters.items() if p.kind is not inspect.Parameter.VAR_KEYWORD
    }
    if method_of is not None:
        parameters.pop("self")
    return Call(name, function, parameters, method_of)


def prepared(call: Call) -> tuple[Callable[..., Any], Kwargs]:
    """The bound function and right arguments; a KeyError names what is not known."""
    function, kwargs = call.function, {}
    if call.method_of is not None:
        thing = _object(call)
        function = getattr(thing, call.name.rsplit(".", 1)[1])
    if call.name in ARGUMENTS:
        return function, ARGUMENTS[call.name]()
    for name, parameter in call.parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            continue
        if call.method_of is None or name not in BY_NAME:
            raise KeyError(f"{call.name}({name})")
        kwargs[name] = BY_NAME[name](thing)
    return function, kwargs


def _object(call: Call) -> Any:
    assert call.method_of is not None
    name = call.method_of.__name__
    if name in OBJECTS:
        return OBJECTS[name]()
    examples = getattr(sys.modules[call.method_of.__module__], "examples", dict)()
    for example in examples.values():
        if isinstance(example, call.method_of):
            return example
    raise KeyError(name)


# ------------------------------------------------------------------ odd values


def built(spec: Any) -> Any:
    """The value that a line of JSON describes."""
    match spec:
        case {"float": text}:
            return float(text)
        case {"int": text}:
            return int(text)
        case {"numpy": dtype, "data": data}:
            return np.array(built(data), dtype=dtype)
        case {"scalar": dtype, "data": data}:
            return np.dtype(dtype).type(built(data))
        case {"tensor": dtype, "data": data}:
            return torch.tensor(built(data), dtype=getattr(torch, dtype))
        case {"empty": shape, "dtype": dtype}:
            return torch.empty(shape, dtype=getattr(torch, dtype))
        case {"complex": _}:
            return complex(0, 1)
        case {"object": _}:
            return object()
        case {"function": _}:
            return lambda *arguments: None
        case {"dict": _}:
            return {"odd": 1}
        case list():
            return [built(item) for item in spec]
        case _:
            return spec


# ------------------------------------------------------------------ what comes of it


def outcome_of(call: Call, parameter: str, value: Any) -> Kwargs:
    """One call with one odd argument: answered, refused, or neither."""
    function, kwargs = prepared(call)
    kind = call.parameters[parameter].kind
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning of numpy is a raw error that was let off
            signal.alarm(SECONDS)
            answer = _asked(function, call, kwargs, parameter, value, kind)
            signal.alarm(0)
    except TimeoutError:
        return {"outcome": "hang"}
    except Exception as error:
        signal.alarm(0)
        return _refusal(error, parameter, value)
    return {"outcome": "nan"} if has_nan(answer) else {"outcome": "answer"}


def _asked(
    function: Callable[..., Any],
    call: Call,
    kwargs: Kwargs,
    parameter: str,
    value: Any,
    kind: Any,
) -> Any:
    if kind is inspect.Parameter.VAR_POSITIONAL:
        answer = function(value)
    elif any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in call.parameters.values()):
        raise NotImplementedError(call.name)
    else:
        answer = function(**kwargs | {parameter: value})
    return used(answer)


def used(answer: Any) -> Any:
    """What was made, and what it says: a bad value may show only when the object is asked."""
    if inspect.isgenerator(answer):
        return list(answer)
    if inspect.isfunction(answer):  # a transform of laws
        return answer(LAW)
    if isinstance(answer, torch.Tensor | Mapping | tuple | type):
        return answer
    said: list[Any] = [answer]
    if hasattr(answer, "log_value"):
        for t in (0, 1):
            said.append(answer.log_value(ROWS[:, :t]))
    if hasattr(answer, "sample") and hasattr(answer, "log_prob"):
        said.append(answer.log_prob(answer.sample(1, TorchRng(0))))
    if isinstance(answer, TorchRng):
        said.append(answer.categorical(LAW))
    return said


def _refusal(error: Exception, parameter: str, value: Any) -> Kwargs:
    frames = traceback.extract_tb(error.__traceback__)
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    assert last is not None
    ours = Path(triptych.__file__).parent in Path(frames[-1].filename).parents
    raised = last.tb_frame.f_code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    kind = type(error).__module__.startswith("triptych") or isinstance(
        error, ValueError | TypeError
    )
    message = str(error)
    said = {"error": type(error).__name__, "message": message[:300], "at": str(frames[-1])[:200]}
    if not (ours and raised and kind):
        return {"outcome": "raw"} | said
    if "\n" in message or not names(message, parameter, value):
        return {"outcome": "unclear"} | said
    return {"outcome": "refused"} | said


def names(message: str, parameter: str, value: Any) -> bool:
    """Does the sentence say which argument it is about, or what its value is?"""
    stem = parameter.lower().replace("_", " ").removesuffix("es").removesuffix("s")
    return stem in message.lower().replace("_", " ") or any(
        text in message for text in _texts(value) if text
    )


def _texts(value: Any) -> set[str]:
    if isinstance(value, torch.Tensor | np.ndarray):
        shown = {str(tuple(value.shape)), str(value.dtype)}
        return shown | {str(x) for x in np.asarray(value.tolist(), dtype=object).flat}
    if isinstance(value, list):
        return {repr(value)} | {text for item in value for text in _texts(item)}
    return {repr(value), str(value), f"a {type(value).__name__}"}


def has_nan(answer: Any, depth: int = 0) -> bool:
    if isinstance(answer, torch.Tensor):
        floats = answer.is_floating_point() or answer.is_complex()
        return floats and bool(answer.isnan().any())
    if isinstance(answer, np.ndarray):
        return answer.dtype.kind in "fc" and bool(np.isnan(answer).any())
    if isinstance(answer, float | np.floating):
        return math.isnan(answer)
    if depth > 4:
        return False
    if isinstance(answer, Mapping):
        return any(has_nan(x, depth + 1) for pair in answer.items() for x in pair)
    if isinstance(answer, list | tuple | set):
        return any(has_nan(x, depth + 1) for x in answer)
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        return any(has_nan(x, depth + 1) for x in vars(answer).values())
    return False


def _time_is_up(*_: Any) -> None:
    raise TimeoutError


def main() -> None:
    signal.signal(signal.SIGALRM, _time_is_up)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    calls = {call.name: call for call in public_calls()}
    for line in sys.stdin:
        asked = json.loads(line)
        if "list" in asked:
            answer = {name: _described(call) for name, call in calls.items()}
        else:
            parameter, value = asked["parameter"], built(asked["value"])
            answer = outcome_of(calls[asked["call"]], parameter, value)
        print(json.dumps(answer), flush=True)


def _described(call: Call) -> Kwargs:
    """Parameters, and why the call cannot be made rightly, if it cannot."""
    try:
        function, kwargs = prepared(call)
        names = call.parameters
        if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in names.values()):
            used(function(*kwargs.values()))
        else:
            used(function(**kwargs))
    except Exception as error:
        return {"parameters": list(call.parameters), "problem": f"{type(error).__name__}: {error}"}
    return {"parameters": list(call.parameters), "problem": None}


if __name__ == "__main__":
    main()
