"""A verdict is a list of checks, each with a sentence, a number and a limit; `decide` makes it.

    decide(
        above("prompt minus head, points", gain, 0.0, published=10.7),
        within("accuracy of the probe, %", probe, 93.0, by=7.8),
        exactly("largest error of the identity", error),
        none("wrong labels", wrong, of=labels),
        needs=[at_least("trials with |H| > 10", len(beyond), 3)],
    )

The rules, for every judge alike:

- An absent effect can fail. A check with a published effect FAILS when its whole interval is weaker
  than half of that effect, whether or not it contains the limit.
- Nothing is decided by chance: an interval that contains the limit leaves a check UNDECIDED.
- nan is never evidence: it leaves a check UNDECIDED.
- Evidence that is missing leaves a verdict UNDECIDED, whatever the trials so far say; but one exact
  counterexample is enough to FAIL.
- A statement that fails at an edge of its scope alone HOLDS except there (`at_edge`).
- A judge says nothing about proofs, constants or captions: those are remarks of the ledger.
- Where the source's text and its program differ, the checks are about what made the published
  number, the program; a theorem is what the text says. The other is a second finding (`printed`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from triptych.core.estimates import Estimate, Status
from triptych.studies.api.verdicts import Check, CheckRule, Verdict

EXACT = 1e-9  # float64 agreement of two sides of an equation


class Need(NamedTuple):
    """This many of something are wanted, this many there are."""

    what: str
    have: int
    wanted: int


def at_least(what: str, have: int, wanted: int) -> Need:
    """The evidence that a judge asks for before it decides."""
    return Need(what, have, wanted)


def above(sentence: str, found: Estimate, limit: float, *, published: float | None = None) -> Check:
    """HOLDS above the limit; FAILS below it, or where half of the published effect is excluded.

    Worked value: [-0.2, 0.1] with limit 0 and 31.7 published FAILS, because 0.1 < 15.85.
    """
    least = limit if published is None else limit + (published - limit) / 2
    _published_on_the_right_side(sentence, published, published is None or published > limit)
    holds, fails = found.low > limit, found.high < least
    return _estimated(sentence, found, f"> {limit:g}", holds, fails, "above", published)


def below(sentence: str, found: Estimate, limit: float, *, published: float | None = None) -> Check:
    """The mirror image of `above`."""
    most = limit if published is None else limit + (published - limit) / 2
    _published_on_the_right_side(sentence, published, published is None or published < limit)
    holds, fails = found.high < limit, found.low > most
    return _estimated(sentence, found, f"< {limit:g}", holds, fails, "below", published)


def within(sentence: str, found: Estimate, target: float, *, by: float) -> Check:
    """HOLDS when the interval lies within `by` of the target, FAILS when outside.

    Worked value: 93 ± 7.8 and [90, 95] HOLDS, [80, 84] FAILS, [84, 90] is UNDECIDED.
    """
    low, high = target - by, target + by
    inside = low <= found.low and found.high <= high
    outside = found.high < low or found.low > high
    return _estimated(sentence, found, f"{target:g} ± {by:g}", inside, outside, "within", None)


def exactly(sentence: str, error: float, *, below: float = EXACT) -> Check:
    """An equation or a bound without noise: HOLDS when the largest error is at most `below`."""
    outcome = Status.HOLDS if error <= below else Status.FAILS
    if math.isnan(error):
        outcome = Status.UNDECIDED
    return Check(sentence, float(error), None, None, f"≤ {below:g}", outcome, "exactly")


def none(sentence: str, count: int, *, of: int) -> Check:
    """Counterexamples: HOLDS when none of `of` cases is one, UNDECIDED when there are no cases."""
    outcome = Status.FAILS if count else Status.HOLDS if of else Status.UNDECIDED
    return Check(sentence, float(count), None, None, f"0 of {of}", outcome, "none")


def shown(sentence: str, found: Estimate | float, *, published: float | None = None) -> Check:
    """A number that stands next to and decides nothing."""
    if isinstance(found, Estimate):
        low, high = found.low, found.high
        return Check(sentence, found.value, low, high, "", None, "shown", published)
    return Check(sentence, float(found), None, None, "", None, "shown", published)


def at_edge(where: str, check: Check) -> Check:
    """A check on an edge of the statement's scope: if it FAILS, the verdict says "except where"."""
    return replace(check, edge=where)


def decide(
    *checks: Check,
    needs: Sequence[Need] = (),
    measured: Mapping[str, Any] | None = None,
    printed: Sequence[Check] = (),
) -> Verdict:
    """FAILS if a check fails, UNDECIDED if one is undecided or evidence is missing, else HOLDS.

    printed
        Checks of the variant in the source's text, where the checks above are of its program. They
        make a second finding and decide nothing here.
    """
    missing = tuple(f"{n.what}: {n.have} of {n.wanted}" for n in needs if n.have < n.wanted)
    deciding = [check for check in checks if check.outcome is not None and not check.edge]
    if not deciding:
        missing = missing or ("rows: 0",)
    outcomes = [check.outcome for check in deciding]
    if any(check.exact and check.outcome is Status.FAILS for check in deciding):
        outcome = Status.FAILS
    elif missing or (Status.UNDECIDED in outcomes and Status.FAILS not in outcomes):
        outcome = Status.UNDECIDED
    else:
        outcome = Status.FAILS if Status.FAILS in outcomes else Status.HOLDS
    exceptions = tuple(
        dict.fromkeys(c.edge for c in checks if c.edge and c.outcome is Status.FAILS)
    )
    return Verdict(
        outcome,
        measured=dict(measured or {}),
        checks=checks,
        missing=missing,
        exceptions=exceptions if outcome is Status.HOLDS else (),
        printed=decide(*printed, needs=needs) if printed else None,
    )


def largest(values: Sequence[float]) -> float:
    """The largest value; nan if one of them is (`max` would pass it over) or if there is none."""
    if not values or any(math.isnan(value) for value in values):
        return math.nan
    return max(values)


def _estimated(
    sentence: str,
    found: Estimate,
    wanted: str,
    holds: bool,
    fails: bool,
    rule: CheckRule,
    published: float | None,
) -> Check:
    outcome = Status.HOLDS if holds else Status.FAILS if fails else Status.UNDECIDED
    if any(math.isnan(number) for number in (found.value, found.low, found.high)):
        outcome = Status.UNDECIDED
    return Check(sentence, found.value, found.low, found.high, wanted, outcome, rule, published)


def _published_on_the_right_side(sentence: str, published: float | None, right: bool) -> None:
    if not right:
        raise ValueError(
            f"the check {sentence!r} has a published value of {published}, which is on the wrong "
            "side of its limit"
        )
