"""What the rows say at prefixes that led to an error: Tables 3.1, 3.2 and 3.4 [li, 3.2.1].

Algorithm 1 of the authors' program verifies redone tokens too and may erase a part of the prompt.
As printed it does neither. The verdict on Table 3.2 is about the program, and what the text says
is a second finding. Of the text there are rows for one quota and stride alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from triptych.core.estimates import Estimate, proportion
from triptych.studies.api.decide import Check, Verdict, above, decide, shown
from triptych.studies.api.study import Claim, Rows
from triptych.studies.api.summaries import scaled
from triptych.studies.generation.dyck_backtracking.comparisons import (
    average,
    by_network,
    jointly,
    level,
    networks,
    over_networks,
    paired,
)
from triptych.studies.generation.dyck_backtracking.prefixes import QUOTA_STRIDES, QUOTAS, STRIDES
from triptych.studies.generation.dyck_backtracking.published import (
    NEARLY_ALL,
    PUBLISHED_BACKTRACKS,
    PUBLISHED_GREEDY,
    PUBLISHED_PREFIXES,
    PUBLISHED_QUOTAS,
    PUBLISHED_REFUSED,
    PUBLISHED_STRIDES,
    points,
)
from triptych.studies.generation.dyck_backtracking.rows import (
    Config,
    Quota,
    Refused,
    Row,
    Stride,
    on_networks,
)


def _stride(rows: Iterable[Stride], config: Config, stride: int = 0) -> dict[int, float]:
    return by_network(
        (r.seed, r.accuracy) for r in rows if (r.config, r.stride) == (config, stride)
    )


def judge_strides(rows: Rows[Row]) -> Verdict:
    found = rows.of(Stride)
    if not found:
        return decide(needs=[networks([])])
    plain, greedy = _stride(found, "nucleus"), _stride(found, "greedy")
    erased = {b: _stride(found, "erased", b) for b in STRIDES}
    first, last = STRIDES[0], STRIDES[-1]
    base = PUBLISHED_STRIDES[0]
    return decide(
        *(
            above(
                f"B = {b} tokens erased once: accuracy minus that of plain nucleus sampling, "
                "percentage points",
                paired(erased[b], plain),
                0.0,
                published=points(PUBLISHED_STRIDES[b], base),
            )
            for b in STRIDES
        ),
        above(
            f"accuracy with B = {last} minus accuracy with B = {first}, percentage points",
            paired(erased[last], erased[first]),
            0.0,
            published=points(PUBLISHED_STRIDES[last], PUBLISHED_STRIDES[first]),
        ),
        needs=[networks(plain)],
        measured={
            "nucleus": level(plain),
            "greedy": level(greedy),
            **{f"B{b}": level(erased[b]) for b in STRIDES},
        },
    )


def _quota(
    rows: Iterable[Quota], quota: int, stride: int, *, prefix: bool = True, verify: bool = False
) -> dict[int, float]:
    """Accuracies, where the prefix may be erased, and redone tokens are verified or not."""
    wanted = (quota, stride, prefix, verify)
    return by_network(
        (r.seed, r.accuracy)
        for r in rows
        if (r.quota, r.stride, r.into_prompt, r.verify_redone) == wanted
    )


def judge_quotas(rows: Rows[Row]) -> Verdict:
    """Better than plain sampling; a longer stride helps at every quota, more quota at every
    stride. Seven intervals, which hold together with 95 %. All are of the program's Algorithm 1."""
    every, plain = rows.of(Quota), _stride(rows.of(Stride), "nucleus")
    if not every:
        return decide(needs=[networks([])])
    found = {(q, b): _quota(every, q, b, verify=True) for q in QUOTAS for b in QUOTA_STRIDES}
    (few, many), (short, long) = (QUOTAS[0], QUOTAS[-1]), (QUOTA_STRIDES[0], QUOTA_STRIDES[-1])
    confidence = jointly(1 + len(QUOTAS) + len(QUOTA_STRIDES))

    most = PUBLISHED_QUOTAS[many, long]

    def seven(found: Mapping[tuple[int, int], dict[int, float]]) -> list[Check]:
        """The checks for one variant of the algorithm; one without rows has a nan."""

        def gain(sentence: str, more: tuple[int, int], less: tuple[int, int]) -> Check:
            effect = points(PUBLISHED_QUOTAS[more], PUBLISHED_QUOTAS[less])
            gained = paired(found[more], found[less], confidence=confidence)
            return above(f"{sentence}, percentage points", gained, 0.0, published=effect)

        return [
            above(
                f"Q = {many}, B = {long}: accuracy with Algorithm 1 minus that of plain nucleus "
                "sampling, percentage points",
                paired(found[many, long], plain, confidence=confidence),
                0.0,
                published=points(most, PUBLISHED_STRIDES[0]),
            ),
            *(
                gain(
                    f"Q = {q}: accuracy with B = {long} minus with B = {short}",
                    (q, long),
                    (q, short),
                )
                for q in QUOTAS
            ),
            *(
                gain(f"B = {b}: accuracy with Q = {many} minus with Q = {few}", (many, b), (few, b))
                for b in QUOTA_STRIDES
            ),
        ]

    text = {at: _quota(every, *at, prefix=False) for at in found}
    return decide(
        *seven(found),
        shown(
            f"Q = {many}, B = {long}: accuracy, %",
            scaled(over_networks(found[many, long]), 100.0),
            published=points(most, 0.0),
        ),
        *(
            shown(
                f"B = {b}: accuracy with Q = {many} minus with Q = {few} if redone tokens are not "
                "verified and prompts erasable, percentage points",
                paired(_quota(every, many, b), _quota(every, few, b)),
                published=points(PUBLISHED_QUOTAS[many, b], PUBLISHED_QUOTAS[few, b]),
            )
            for b in QUOTA_STRIDES
        ),
        needs=[networks(found[many, long]), networks(plain, "networks without a verifier")],
        measured={f"Q{q}": [level(found[q, b]) for b in QUOTA_STRIDES] for q in QUOTAS},
        printed=seven(text) if any(text.values()) else (),
    )


_WAYS = {"nucleus": "nucleus sampling", "argmax": "argmax decoding"}


class _Way(NamedTuple):
    """A refused string's completion against its prefix's with backtracking, in one network."""

    gain: float
    error: float | None
    without: float


def _ways(rows: Sequence[Refused]) -> dict[str, list[_Way]]:
    return {
        "nucleus": [_Way(r.accuracy - r.nucleus, r.nucleus_error, r.nucleus) for r in rows],
        "argmax": [_Way(r.accuracy - r.argmax, r.argmax_error, r.argmax) for r in rows],
    }


def judge_necessary(rows: Rows[Row]) -> Verdict:
    """Refused strings complete worse without backtracking than their prefixes do with it.

    The comparison is one within a network, and networks differ in its size more than in its sign.
    So prefixes are the trials, 18 intervals hold together with 95 %, and the mean is that of the
    networks at hand. That most networks agree is asked too.
    """
    found = rows.of(Refused)
    if not found:
        return decide(needs=[networks([])])
    confidence = jointly(2 * len(PUBLISHED_REFUSED))
    checks: list[Check] = []
    measured: dict[str, list[float]] = {}
    for (q, b), published in PUBLISHED_REFUSED.items():
        here = _ways([r for r in found if (r.quota, r.stride) == (q, b)])
        for (way, values), without in zip(here.items(), published, strict=True):
            known = [value for value in values if value.error is not None]
            gain = average(
                [value.gain for value in known],
                [value.error or 0.0 for value in known],
                confidence=confidence,
            )
            checks.append(
                above(
                    f"Q = {q}, B = {b}: accuracy with Algorithm 1 minus that of {_WAYS[way]} "
                    "from where it backtracked, percentage points",
                    scaled(gain, 100.0),
                    0.0,
                    published=points(PUBLISHED_QUOTAS[q, b], without),
                )
            )
            mean = sum(value.without for value in values) / max(1, len(values))
            measured.setdefault(f"{way}_Q{q}", []).append(mean)
    gains = by_network((r.seed, r.accuracy - (r.nucleus + r.argmax) / 2) for r in found)
    better = proportion(sum(gain > 0 for gain in gains.values()), len(gains))
    sentence = "networks whose mean accuracy over all Q and B is higher with Algorithm 1, %"
    checks.append(above(sentence, scaled(better, 100.0), 50.0))
    with_backtracks = by_network((r.seed, r.accuracy) for r in found)
    before = by_network((r.seed, r.before) for r in found)
    sentence = (
        "accuracy with Algorithm 1 minus that of nucleus sampling from one token before it "
        "backtracked, percentage points"
    )
    return decide(
        *checks,
        shown(sentence, paired(with_backtracks, before)),
        needs=[networks(r.seed for r in found)],
        measured=measured,
    )


def _backtracks(rows: Iterable[Refused], quota: int, stride: int) -> Estimate:
    """Backtracks for a hundred prefixes, mean over networks."""
    here = [r for r in rows if (r.quota, r.stride) == (quota, stride)]
    values = by_network((r.seed, 100 * r.backtracks / r.prefixes) for r in here)
    return over_networks(values)


def judge_backtracks(rows: Rows[Row]) -> Verdict:
    """Table 3.4: with a quota of 1 nearly every prefix is backtracked from.

    With larger quotas the counts depend on whether redone tokens are verified. The rows are of
    those that are not, and the published counts of those that are, so they decide nothing.
    """
    found = rows.of(Refused)
    if not found:
        return decide(needs=[networks([])])
    published = {at: 100 * n / PUBLISHED_PREFIXES for at, n in PUBLISHED_BACKTRACKS.items()}
    few = QUOTAS[0]
    return decide(
        *(
            above(
                f"Q = {few}, B = {b}: prefixes at which Algorithm 1 backtracks, %",
                _backtracks(found, few, b),
                NEARLY_ALL,
                published=published[few, b],
            )
            for b in QUOTA_STRIDES
        ),
        *(
            shown(
                f"Q = {q}, B = {b}: backtracks for 100 prefixes, if redone tokens are not verified",
                _backtracks(found, q, b),
                published=published[q, b],
            )
            for q in QUOTAS[1:]
            for b in QUOTA_STRIDES
        ),
        needs=[networks(r.seed for r in found)],
        measured={
            f"Q{q}": [_backtracks(found, q, b).value / 100 for b in QUOTA_STRIDES] for q in QUOTAS
        },
    )


# The published numbers as rows.
_PLAIN = [
    Stride(0, "nucleus", 0, PUBLISHED_STRIDES[0], 441, 1),
    Stride(0, "greedy", 0, PUBLISHED_GREEDY, 441, 1),
]
_ERASED = {b: Stride(0, "erased", b, PUBLISHED_STRIDES[b], 441, 1) for b in STRIDES}


def _strides(**accuracies: float) -> list[Row]:
    """Table 3.1 with some of its accuracies changed, as B4=0.3."""
    changed = [replace(r, accuracy=accuracies.get(f"B{b}", r.accuracy)) for b, r in _ERASED.items()]
    return on_networks(*_PLAIN, *changed)


_QUOTAS = {(q, b): Quota(0, q, b, True, True, a, 441) for (q, b), a in PUBLISHED_QUOTAS.items()}


def _quotas(plain: float = PUBLISHED_STRIDES[0], **accuracies: float) -> list[Row]:
    """Table 3.2 with some of its accuracies changed, as Q4B6=0.6."""
    changed = [
        replace(r, accuracy=accuracies.get(f"Q{q}B{b}", r.accuracy))
        for (q, b), r in _QUOTAS.items()
    ]
    return on_networks(replace(_PLAIN[0], accuracy=plain), *changed)


_REFUSED = {
    (q, b): Refused(0, q, b, 441, 400, PUBLISHED_QUOTAS[q, b], *plain, 0.4, 0.01, 0.01)
    for (q, b), plain in PUBLISHED_REFUSED.items()
}


_COUNTED = {
    at: replace(row, prefixes=PUBLISHED_PREFIXES, backtracks=PUBLISHED_BACKTRACKS[at])
    for at, row in _REFUSED.items()
}


def _refused(changed: Refused | None = None) -> list[Row]:
    """Table 3.4, with one row instead of the one of its setting."""
    rows = dict(_REFUSED)
    if changed is not None:
        rows[changed.quota, changed.stride] = changed
    return on_networks(*rows.values())


def _mixed(better: int) -> list[Row]:
    """Table 3.4 where this many of 20 networks do better with backtracks, hugely, and the others a
    little worse."""
    found: list[Row] = []
    for seed in range(20):
        plain = {"nucleus": 0.0, "argmax": 0.0}
        for r in _REFUSED.values():
            if seed >= better:
                plain = {"nucleus": r.accuracy + 0.01, "argmax": r.accuracy + 0.01}
            found.append(replace(r, seed=seed, **plain))
    return found


CLAIMS = [
    Claim(
        "li.tab-3.1",
        judge_strides,
        refuted_by=[
            *(_strides(**{f"B{b}": PUBLISHED_STRIDES[0] - 0.05}) for b in STRIDES),
            *(_strides(**{f"B{b}": PUBLISHED_STRIDES[0]}) for b in STRIDES),
            _strides(B1=0.790, B8=0.700),
            _strides(B1=0.5, B2=0.5, B4=0.5, B8=0.5),
            _strides(**{f"B{b}": PUBLISHED_STRIDES[0] for b in STRIDES}),  # no effect
        ],
        held_by=_strides(),
    ),
    Claim(
        "li.tab-3.2",
        judge_quotas,
        refuted_by=[
            _quotas(plain=0.95),
            *(_quotas(**{f"Q{q}B6": PUBLISHED_QUOTAS[q, 2]}) for q in QUOTAS),
            *(_quotas(**{f"Q4B{b}": PUBLISHED_QUOTAS[1, b]}) for b in QUOTA_STRIDES),
            _quotas(Q4B2=PUBLISHED_QUOTAS[4, 6]),
            _quotas(Q4B2=0.421, Q4B4=0.5, Q4B6=0.604),  # the quota has no effect
            _quotas(Q1B6=0.421, Q2B6=0.457, Q4B6=0.518),  # the stride has none
            _quotas(**{f"Q{q}B{b}": PUBLISHED_STRIDES[0] for q, b in _QUOTAS}),  # no effect
        ],
        held_by=_quotas(),
    ),
    Claim(
        "li.tab-3.4",
        judge_necessary,
        refuted_by=[
            *(_refused(replace(r, nucleus=r.accuracy)) for r in _REFUSED.values()),
            *(_refused(replace(r, argmax=r.accuracy)) for r in _REFUSED.values()),
            *(_refused(replace(r, nucleus=r.accuracy + 0.1)) for r in _REFUSED.values()),
            on_networks(
                *(replace(r, nucleus=r.accuracy, argmax=r.accuracy) for r in _REFUSED.values())
            ),  # no effect
            _mixed(better=4),
        ],
        held_by=_refused(),
    ),
    Claim(
        "li.tab-3.4-backtracks",
        judge_backtracks,
        refuted_by=[
            *(
                on_networks(*(_COUNTED | {(1, b): replace(_COUNTED[1, b], backtracks=82)}).values())
                for b in QUOTA_STRIDES
            ),
            on_networks(*(replace(r, backtracks=20) for r in _COUNTED.values())),  # hardly ever
        ],
        held_by=on_networks(*_COUNTED.values()),
    ),
]
