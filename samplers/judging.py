"""The verdict on a sampler: its exact law against its promise, or draws where the code cannot be entered."""

import math
import random
import time
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from samplers.record import Case, Sampler
from triptych.core.errors import UserError
from triptych.laws import BoundedKernel, BoundedLaw, certify_by_draws, kernel_of, law_of

KEEPS, BREAKS, NOT_ENTERED = "keeps its promise", "breaks it", "not entered"
ABSENT = "not installed"
LEVEL = 1e-6  # of a comparison by draws: the chance of a false alarm
DETECTED = 0.02  # the distance that draws shall see, if there are enough of them
FEW = 2_000  # draws where nobody asks for more


@dataclass(frozen=True)
class Worst:
    """The outcome where the two laws differ most."""

    outcome: str
    found: float
    promised: float


@dataclass(frozen=True)
class Draws:
    """Draws with the library's own generator, by the sequential test `certify_by_draws`.

    against
        "law": what was enumerated; "promise": the target, where the code was not entered.
    detects
        A sampler that is this far away in total variation would have failed with probability 0.99.
    outcome, share, expected
        Of a refutation: how often an outcome came, and its probability.
    """

    against: str
    agree: bool
    number: int
    detects: float
    outcome: str = ""
    share: float = 0.0
    expected: float = 0.0


@dataclass(frozen=True)
class Row:
    """What is said about one sampler.

    distance
        Total variation between what was found and what was promised: 0.5 * sum |found - promised|. For bounds
        the least that it can be.
    missing
        The mass that was not enumerated: 0 for an exact law.
    long_run
        Of a step that is repeated without end: the distance of its own law from the promised one.
    seconds
        Of one core, for the law, after the package was imported.
    quoted
        Whether the words of the promise were found in the installed package.
    """

    package: str
    version: str
    name: str
    promise: str
    source: str
    note: str
    issue: str
    verdict: str = ABSENT
    how: str = ""
    distance: float | None = None
    missing: float = 0.0
    long_run: float | None = None
    rounding: float = 0.0
    worst: Worst | None = None
    draws: Draws | None = None
    runs: int = 0
    seconds: float = 0.0
    refusal: str = ""
    quoted: bool = False

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, record: dict[str, Any]) -> "Row":
        """From JSON."""
        parts = {"worst": Worst, "draws": Draws}
        return cls(**{k: parts[k](**v) if k in parts and v else v for k, v in record.items()})


def distance(found: Mapping[Any, float], target: Mapping[Any, float]) -> float:
    """0.5 * sum |found - promised|."""
    return 0.5 * math.fsum(abs(found.get(x, 0.0) - target.get(x, 0.0)) for x in {*found, *target})


def worst(found: Mapping[Any, float], target: Mapping[Any, float]) -> Worst:
    """Where the two differ most."""
    outcome = max(
        {*found, *target}, key=lambda x: (abs(found.get(x, 0.0) - target.get(x, 0.0)), repr(x))
    )
    return Worst(repr(outcome), found.get(outcome, 0.0), target.get(outcome, 0.0))


@dataclass(frozen=True)
class Found:
    """The law of a case as it was enumerated, with what is missing of it.

    long_run
        The law that a chain of these steps has in the end; None for a program that is no step.
    """

    law: Mapping[Any, float]
    missing: float
    runs: int = 0
    long_run: Mapping[Any, float] | None = None


def enumerated(case: Case) -> Found:
    """The law of the program; of a step, the law of the state after it."""
    if case.start is not None:
        kernel = kernel_of(case.program, list(case.start))
        if isinstance(kernel, BoundedKernel):
            followed = {x: low for x, (low, _) in kernel.after(case.start).items()}
            return Found(followed, 1 - math.fsum(followed.values()) + kernel.left_out)
        return Found(kernel.after(case.start), kernel.left_out, 0, kernel.stationary())
    found = law_of(case.program)
    missing = found.missing if isinstance(found, BoundedLaw) else 0.0
    return Found(found.probs, found.left_out + missing, found.runs)


def read(case: Case, law: Mapping[Any, float]) -> Mapping[Any, float]:
    """What is compared with the target."""
    return law if case.reading is None else case.reading(law)


def drawn(case: Case, law: Mapping[Any, float], against: str, most: int) -> Draws:
    """Draws held against a law of outcomes."""
    program = case.program
    if case.start is not None:
        states, chances = list(case.start), list(case.start.values())

        def program() -> Hashable:
            return case.program(random.choices(states, chances)[0])

    found = certify_by_draws(program, law, LEVEL, distance=DETECTED, max_draws=most)
    draws = Draws(against, found.passed, found.draws, found.detects)
    if found.passed:
        return draws
    return replace(draws, outcome=repr(found.outcome), share=found.seen, expected=found.target)


def judged(sampler: Sampler, *, draws: int = 0) -> Row:
    """The verdict.

    draws
        At most this many draws are held against the law that was found, where a promise breaks. A sampler that
        cannot be entered is drawn from in any case.
    """
    row = Row(
        package=sampler.package,
        version=sampler.version,
        name=sampler.name,
        promise=sampler.promise,
        source=sampler.source,
        note=sampler.note,
        issue=sampler.issue,
        rounding=sampler.rounding,
    )
    if not row.version:
        return row
    case = sampler.prepare()
    start = time.process_time()
    if sampler.entered:
        try:
            row = _entered(row, case, draws)
        except UserError as problem:
            row = replace(row, refusal=str(problem))
    if row.verdict == ABSENT:
        seen = drawn(case, case.target, "promise", draws or FEW)
        verdict = NOT_ENTERED if seen.agree else BREAKS
        row = replace(row, verdict=verdict, how="draws", draws=seen)
        row = replace(row, seconds=time.process_time() - start)
    return row


def _entered(row: Row, case: Case, draws: int) -> Row:
    """The row with what enumeration says."""
    start = time.process_time()
    found = enumerated(case)
    spent = time.process_time() - start
    answer = read(case, found.law)
    off = distance(answer, case.target)
    least = max(0.0, off - found.missing)
    verdict = BREAKS if least > row.rounding else KEEPS
    if verdict == KEEPS and off + found.missing > row.rounding:
        raise UserError(f"the mass that was not enumerated, {found.missing:.3g}, leaves it open")
    ends = None if found.long_run is None else distance(found.long_run, case.target)
    checked = drawn(case, found.law, "law", draws) if draws and verdict == BREAKS else None
    return replace(
        row,
        verdict=verdict,
        how="exact" if found.missing <= row.rounding else "bounds",
        distance=least,
        missing=found.missing,
        long_run=ends,
        worst=worst(answer, case.target),
        draws=checked,
        runs=found.runs,
        seconds=spent,
    )
