"""Configurations compared on the same prompts: within each repeat, then over networks or repeats.
Also, how a configuration is called in a sentence.

Where several networks were trained, a network is one trial, whatever the number of its repeats.
Where there is one pretrained model, a repeat is: fresh prompts and fresh draws.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.decide import Check, Need, at_least, shown
from triptych.studies.generation.code_cases.configs import configurations
from triptych.studies.generation.code_cases.published import GRID, SHARES
from triptych.studies.generation.code_cases.rows import CodeCases, Completed, Probed
from triptych.studies.generation.code_cases.writers import PRETRAINED, STAND_IN

FEWEST = 3  # networks, or repeats of one model
MAX_POWER = 700.0  # beyond it, exp overflows

Trial = tuple[int, int]
Values = Mapping[Trial, float]


CASES = "percentage points of distinct correct cases"  # the unit of a difference of shares
_SETTINGS = re.compile(r"(sampling|Algorithm 1) p=(\S+) T=([^ ,]+)(?:, (.*))?")


_WORDS = {
    "rule": "a rule as its verifier",
    "meaningful names": "names with another meaning",
}


def said(config: str) -> str:
    """A configuration in a sentence.

    Worked value: "Algorithm 1 p=1 T=1.2, B=10" is "Algorithm 1 (top_p 1, temperature 1.2, B = 10)".
    """
    known = _SETTINGS.fullmatch(config)
    if known is None:
        return config
    method, top_p, temperature, more = known.groups()
    settings = [f"top_p {top_p}", f"temperature {temperature}"]
    for part in more.split(", ") if more else ():
        settings.append(_WORDS.get(part) or re.sub(r"^([QB])=", r"\1 = ", part))
    return f"{method} ({', '.join(settings)})"


def share(row: Completed) -> float:
    """Distinct correct cases of those requested, in per cent; pooled, as in the thesis."""
    return 100 * row.pooled / row.requested


def of(
    rows: Iterable[Completed], config: str, value: Callable[[Completed], float] = share
) -> dict[Trial, float]:
    """A number of one configuration, by network and repeat."""
    return {(row.seed, row.repeat): value(row) for row in rows if row.config == config}


def combined(first: Values, second: Values, how: Callable[[float, float], float]) -> Values:
    """A number of two configurations, on the repeats that both have."""
    return {trial: how(first[trial], second[trial]) for trial in first if trial in second}


def minus(first: Values, second: Values) -> Values:
    return combined(first, second, lambda a, b: a - b)


def over_trials(values: Values) -> Estimate:
    """Mean with a t interval over networks, or over repeats where there is one network."""
    if not values or any(math.isnan(value) for value in values.values()):
        return Estimate(math.nan, math.nan, math.nan, 0)
    by_network: dict[int, list[float]] = {}
    for (network, _), value in sorted(values.items()):
        by_network.setdefault(network, []).append(value)
    if len(by_network) == 1:
        return mean(next(iter(by_network.values())))
    return mean([sum(some) / len(some) for some in by_network.values()])


def gains(rows: Sequence[Completed], first: str, second: str) -> Estimate:
    """first - second, in points of distinct correct cases."""
    return over_trials(minus(of(rows, first), of(rows, second)))


def trials(rows: Sequence[Completed | Probed]) -> list[Need]:
    """The fewest repeats that may decide. The tables are about a pretrained model, so a stand-in
    shows what happens and decides nothing."""
    repeats = {
        (row.seed, row.repeat)
        for row in rows
        if isinstance(row, Completed) and row.model != STAND_IN
    }
    return [at_least("repeats with a pretrained model", len(repeats), FEWEST)]


def repeats_of_all(rows: Sequence[Completed], configs: Iterable[str], wanted: int) -> Need:
    """How many repeats with a pretrained model are wanted that have each of these settings."""
    known = [
        {(row.seed, row.repeat) for row in rows if row.config == config and row.model != STAND_IN}
        for config in configs
    ]
    return at_least("repeats of every setting compared", len(set.intersection(*known)), wanted)


def ratio(first: Values, second: Values) -> Estimate:
    """The geometric mean of first / second over the repeats that both have.

    Worked value: 2 / 1 in one repeat and 1 / 2 in another make 1.
    """
    log = over_trials(combined(first, second, lambda a, b: math.log(a / b)))
    ends = [math.inf if end > MAX_POWER else math.exp(end) for end in (log.low, log.high)]
    return replace(log, value=math.exp(log.value), low=ends[0], high=ends[1])


def stands_for(rows: Sequence[Completed | Probed]) -> list[Check]:
    """Says, where it is so, that the numbers are of a stand-in."""
    networks = {row.seed for row in rows if row.model == STAND_IN}
    sentence = "small networks trained here, instead of one pretrained model"
    return [shown(sentence, float(len(networks)))] if networks else []


def as_published(
    *names: str,
    shares: Mapping[str, float] | None = None,
    queries: Mapping[str, int] | None = None,
    count: int = FEWEST,
) -> list[Completed]:
    """Rows with the published shares, or others, `count` times: what judges are tried on."""
    top_ps, temperatures = (tuple({at[k] for at in GRID}) for k in (0, 1))
    known = configurations(CodeCases(top_ps=top_ps, temperatures=temperatures, walks=True))
    rows = []
    for name in names:
        found = (shares or {}).get(name, SHARES.get(name, 0.7))
        drawn = (queries or {}).get(name, 40_000)
        rows += [
            Completed(
                **vars(known[name]),
                seed=seed,
                repeat=0,
                model=PRETRAINED,
                requested=8000,
                correct=8000,
                within=round(8000 * found),
                pooled=round(8000 * found),
                by_type=(round(8000 * found), round(8000 * found)),
                faults={},
                kept=drawn,
                erased=0,
                queries=drawn,
                network_tokens=drawn,
                program_queries=drawn,
                limit_queries=drawn,
                verifier_calls=0,
                stopped=0,
                out_of_quota=0,
            )
            for seed in range(count)
        ]
    return rows
