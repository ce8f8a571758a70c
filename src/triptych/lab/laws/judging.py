"""Find the sampler and the target that a command names, and say what the verdict is."""

import difflib
import importlib
import importlib.util
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from triptych.core.errors import UserError
from triptych.laws.contract import Contract, Verdict, all_contracts, judge, judge_law

EXIT_CODES = {"keeps its promise": 0, "breaks its promise": 1, "not entered": 3}


def listed(*, as_json: bool) -> str:
    """The ready contracts, with what they promise and how they call a sampler."""
    known = all_contracts().values()
    if as_json:
        rows = [{"name": c.name, "promise": c.promise, "call": c.call} for c in known]
        return json.dumps(rows, indent=2)
    return "\n".join(f"{c.name}\n  promise: {c.promise}\n  call:    {c.call}" for c in known)


def answer(place: str | None, target: str | None, tolerance: float, budget: int) -> dict[str, Any]:
    """The verdict as plain data."""
    if place is None:
        raise UserError("name a sampler: package.module:function, or a file my_sampler.py")
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise UserError(
            f"--tolerance is {tolerance}; it must be a number of at least 0", parameter="tolerance"
        )
    if budget < 1:
        raise UserError(f"--budget is {budget}; it must be at least 1", parameter="budget")
    module, name = _module_of(place)
    sampler = _function(module, name or "sampler", place)
    promised = _target_of(module, target, place)
    verdict = _judged(sampler, promised, tolerance, budget)
    return {
        "sampler": place,
        "promise": promised.promise if isinstance(promised, Contract) else "the law of the file",
        "verdict": verdict.says,
        "distance": verdict.distance,
        "exact": verdict.exact,
        "counterexample": verdict.counterexample,
        "seconds": round(verdict.seconds, 3),
        **{name: value for name, value in verdict.facts.items() if math.isfinite(value)},
    }


def _judged(sampler: Callable[..., Any], promised: Any, tolerance: float, budget: int) -> Verdict:
    if isinstance(promised, Contract):
        return judge(promised, sampler, tolerance, budget=budget)
    import time

    start = time.perf_counter()
    try:
        verdict = judge_law(sampler, promised, tolerance, budget=budget)
    except UserError as reason:
        if "target" in str(reason):
            raise
        verdict = Verdict("not entered", None, str(reason))
    return Verdict(**{**vars(verdict), "seconds": time.perf_counter() - start})


def sentences(found: dict[str, Any]) -> str:
    """The verdict for a terminal."""
    lines = [f"{found['sampler']}: {found['verdict']}", f"  promise: {found['promise']}"]
    if found["distance"] is not None:
        kind = "exact" if found["exact"] else "a bound"
        lines.append(f"  distance: {found['distance']:.6g} ({kind})")
    if "nats" in found:
        lines.append(f"  divergence: {found['nats']:.6g} nats")
    if found["counterexample"]:
        lines.append("  " + found["counterexample"].replace("\n", "\n  "))
    return "\n".join([*lines, f"  {found['seconds']} s"])


def _module_of(place: str) -> tuple[Any, str | None]:
    where, _, name = place.partition(":")
    if where.endswith(".py"):
        return _from_file(Path(where)), name or None
    if not name:
        raise UserError(
            f"{place!r} names no function: write package.module:function", parameter="place"
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(where), name
    except ImportError as problem:
        raise UserError(f"the module {where!r} cannot be imported: {problem}") from problem
    finally:
        sys.path.remove(str(Path.cwd()))


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise UserError(f"there is no file {str(path)!r}", parameter="path")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{str(path)!r} is no Python file", parameter="path")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise UserError(
            f"{str(path)!r} cannot be run: {type(problem).__name__}: {problem}",
            parameter="path",
        ) from problem
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


def _function(module: Any, name: str, place: str) -> Callable[..., Any]:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UserError(f"{place!r} has no function {name!r}", parameter="place")
    return found


def _target_of(module: Any, target: str | None, place: str) -> Any:
    """A contract by its name, a law by its place, or the `target` of the file."""
    if target is None:
        found = getattr(module, "target", None)
        if found is None:
            raise UserError(
                f"{place!r} has no `target`; give --target CONTRACT (triptych law --list has "
                "them), or define `target` there: a dict from outcomes to probabilities",
                parameter="target",
            )
        return found() if callable(found) else _named(found) if isinstance(found, str) else found
    if ":" in target:
        held, name = _module_of(target)
        found = getattr(held, name or "target", None)
        if found is None:
            raise UserError(f"{target!r} is not there", parameter="target")
        return found() if callable(found) else found
    return _named(target)


def _named(name: str) -> Contract:
    known = all_contracts()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; the nearest is {near[0]!r}" if near else ""
        raise UserError(f"there is no contract {name!r}{hint} (triptych law --list has them)")
    return known[name]
