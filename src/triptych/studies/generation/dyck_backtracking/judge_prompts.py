"""What the rows say on unseen prompts: Tables 3.3, 3.5, 3.16 and Figure 3.2 [li, 3.2.1, 3.2.3]."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from triptych.core.estimates import Estimate
from triptych.studies.api.decide import Check, Verdict, above, at_least, below, decide, shown
from triptych.studies.api.study import Claim, Rows
from triptych.studies.api.summaries import scaled
from triptych.studies.generation.dyck_backtracking.comparisons import (
    FEWEST_NETWORKS,
    ByNetwork,
    by_network,
    level,
    log_ratio,
    networks,
    over_networks,
    pooled,
    ratio,
)
from triptych.studies.generation.dyck_backtracking.published import (
    PUBLISHED_DISTINCT,
    PUBLISHED_ERRORS,
    PUBLISHED_GUIDED_DISTINCT,
    PUBLISHED_NO_REDO,
)
from triptych.studies.generation.dyck_backtracking.rows import (
    Diversity,
    PerfectDiversity,
    Row,
    Unseen,
    on_networks,
)

ERRORS_OF = 10_000  # prompts that published errors are counted in
NEARLY_ALL = 95.0  # %
KEPT = 0.9  # of the diversity


def _errors(
    rows: Iterable[Unseen], top_p: float, *, guided: bool, redo: bool = True, verify: bool = False
) -> dict[int, float]:
    """Errors of a repeat, mean of each network."""
    wanted = (top_p, guided, redo, verify)
    return by_network(
        (r.seed, r.errors)
        for r in rows
        if (r.top_p, r.quota > 0, r.redo_argmax, r.verify_redone) == wanted
    )


def _of_published(errors: ByNetwork, rows: Sequence[Unseen]) -> float:
    """Mean errors, counted in as many prompts as published ones."""
    return level(errors) * ERRORS_OF / rows[0].prompts


def judge_unseen(rows: Rows[Row]) -> Verdict:
    found = rows.of(Unseen)
    if not found:
        return decide(needs=[networks([])])
    checks: list[Check] = []
    measured: dict[str, float] = {}
    for top_p in (0.9, 1.0):
        plain, guided = (_errors(found, top_p, guided=g) for g in (False, True))
        also = _errors(found, top_p, guided=True, verify=True)
        effect = math.log(PUBLISHED_ERRORS[top_p, True] / PUBLISHED_ERRORS[top_p, False])
        sentence = f"top_p = {top_p}: log of errors with Algorithm 1 over errors without"
        checks.append(below(sentence, log_ratio(guided, plain), 0.0, published=effect))
        sentence = f"top_p = {top_p}: the same if redone tokens are verified too"
        checks.append(shown(sentence, log_ratio(also, plain), published=effect))
        name = f"top_p{round(10 * top_p):02d}"
        measured[name] = _of_published(plain, found)
        measured[f"{name}_Q4B4"] = _of_published(guided, found)
    return decide(*checks, needs=[networks(r.seed for r in found)], measured=measured)


def judge_redo(rows: Rows[Row]) -> Verdict:
    found = rows.of(Unseen)
    if not found:
        return decide(needs=[networks([])])
    redone, sampled = (_errors(found, 0.9, guided=True, redo=redo) for redo in (True, False))
    effect = math.log(PUBLISHED_ERRORS[0.9, True] / PUBLISHED_NO_REDO)
    return decide(
        below(
            "log of errors with the argmax redo over errors without",
            log_ratio(redone, sampled),
            0.0,
            published=effect,
        ),
        shown(
            "the same if redone tokens are verified too",
            log_ratio(_errors(found, 0.9, guided=True, verify=True), sampled),
            published=effect,
        ),
        needs=[networks(sampled)],
        measured={
            "algorithm_1": _of_published(redone, found),
            "no_argmax": _of_published(sampled, found),
        },
    )


class _Remaining(NamedTuple):
    """Errors that Algorithm 1 leaves, counted."""

    errors: int
    wrong_closing: int
    premature_end: int
    quota_exhausted: int


def _remaining(rows: Iterable[Unseen], *, verify: bool) -> list[_Remaining]:
    """Of every network that has errors left."""
    counts: dict[int, list[_Remaining]] = {}
    for r in rows:
        if r.quota and (r.top_p, r.redo_argmax, r.verify_redone) == (0.9, True, verify):
            closing = r.error_kinds.get("wrong_close", 0) + r.error_kinds.get("unmatched_close", 0)
            early = r.error_kinds.get("premature_end", 0)
            counts.setdefault(r.seed, []).append(
                _Remaining(r.errors, closing, early, r.quota_used_up)
            )
    summed = [_Remaining(*map(sum, zip(*some, strict=True))) for some in counts.values()]
    return [some for some in summed if some.errors]


def _share(parts: Iterable[int], networks: Sequence[_Remaining]) -> Estimate:
    """Of the errors that remain, in per cent."""
    return scaled(pooled(list(parts), [n.errors for n in networks]), 100.0)


def judge_remaining(rows: Rows[Row]) -> Verdict:
    """The algorithm whose redone tokens are verified too, which is near to what made the figure;
    the printed one beside it."""
    found = rows.of(Unseen)
    if not found:
        return decide(needs=[networks([])])
    variant, printed = (_remaining(found, verify=verify) for verify in (True, False))

    closing, used = 100 * 222 / 225, 100.0
    total = _Remaining(*map(sum, zip(*variant, strict=True))) if variant else _Remaining(0, 0, 0, 0)
    return decide(
        above(
            "wrong closings among the errors that remain, %",
            _share((n.wrong_closing for n in variant), variant),
            NEARLY_ALL,
            published=closing,
        ),
        above(
            "errors that remain with the quota used up, %",
            _share((n.quota_exhausted for n in variant), variant),
            NEARLY_ALL,
            published=used,
        ),
        shown(
            "wrong closings, Algorithm 1 as printed, %",
            _share((n.wrong_closing for n in printed), printed),
            published=closing,
        ),
        shown(
            "quota used up, Algorithm 1 as printed, %",
            _share((n.quota_exhausted for n in printed), printed),
            published=used,
        ),
        needs=[
            at_least("networks with errors", len(variant), FEWEST_NETWORKS),
            at_least("errors that remain", total.errors, 100),
        ],
        measured=total._asdict(),
    )


def _distinct(
    rows: Iterable[Diversity], top_p: float, *, guided: bool, verify: bool = False
) -> dict[int, float]:
    """Distinct completions of a prompt, mean of each network."""
    return by_network(
        (r.seed, sum(r.distinct) / len(r.distinct))
        for r in rows
        if (r.top_p, r.quota > 0, r.verify_redone) == (top_p, guided, verify)
    )


def judge_diversity(rows: Rows[Row]) -> Verdict:
    """Distinct completions with Algorithm 1 relative to both baselines, for both kinds of prompts;
    kept means more than nine tenths."""
    found, perfect = rows.of(Diversity), rows.of(PerfectDiversity)
    if not found:
        return decide(needs=[networks([])])
    prompts = sorted({(r.longest, r.shortest) for r in found}, reverse=True)
    checks: list[Check] = []
    measured: dict[str, float] = {}
    for longest, shortest in prompts:
        name = f"{shortest} to {longest} tokens" if longest > shortest else f"{shortest} tokens"
        here = [r for r in found if (r.shortest, r.longest) == (shortest, longest)]
        guided = _distinct(here, 1.0, guided=True)
        also = _distinct(here, 1.0, guided=True, verify=True)
        plain = {top_p: _distinct(here, top_p, guided=False) for top_p in PUBLISHED_DISTINCT}
        for top_p, published in PUBLISHED_DISTINCT.items():
            checks.append(
                above(
                    f"prompts of {name}: distinct with Algorithm 1 over distinct without, "
                    f"top_p = {top_p}",
                    ratio(guided, plain[top_p]),
                    KEPT,
                    published=PUBLISHED_GUIDED_DISTINCT / published,
                )
            )
        if also:
            sentence = f"prompts of {name}: the same if redone tokens are verified too"
            checks.append(shown(sentence, ratio(also, plain[1.0])))
        most = PUBLISHED_DISTINCT[1.0]
        sentence = f"prompts of {name}: distinct without a verifier, top_p = 1.0"
        checks.append(shown(sentence, over_networks(plain[1.0]), published=most))
        wanted = (shortest, longest, 1.0)
        exact = [r.distinct for r in perfect if (r.shortest, r.longest, r.top_p) == wanted]
        if exact:
            sentence = f"prompts of {name}: distinct from a model without error"
            checks.append(shown(sentence, exact[0], published=most))
        if not measured:  # the prompts of the text
            measured = {"Q4B4_top_p10": level(guided), "top_p10": level(plain[1.0])}
            measured["top_p09"] = level(plain[0.9])
    return decide(
        *checks,
        needs=[
            networks(r.seed for r in found),
            at_least("kinds of prompts, of several lengths and of one", len(prompts), 2),
        ],
        measured=measured,
    )


def _count(top_p: float, quota: int, errors: int) -> Unseen:
    kinds = {"wrong_close": errors}
    return Unseen(
        0, top_p, quota, quota, True, False, 0, 10_000, errors, kinds, errors, 60_000, 50_000
    )


_PLAIN, _GUIDED = _count(0.9, 0, 240), _count(0.9, 4, 179)
_WHOLE, _GUIDED_WHOLE = _count(1.0, 0, 462), _count(1.0, 4, 200)
_NO_REDO = replace(_GUIDED, errors=246, redo_argmax=False)
_LEFT = replace(
    _count(0.9, 4, 225),
    verify_redone=True,
    error_kinds={"wrong_close": 222, "premature_end": 3},
)


def _diverse(longest: int, top_p: float, quota: int, *distinct: int) -> Diversity:
    return Diversity(0, 25, longest, top_p, quota, False, 10, distinct, distinct)


_DIVERSE = {  # means 5.5, and 5.5 and 6 without a verifier
    longest: (
        _diverse(longest, 1.0, 4, 5, 6),
        _diverse(longest, 0.9, 0, 5, 6),
        _diverse(longest, 1.0, 0, 6, 6),
    )
    for longest in (31, 25)
}


def _diversities(longest: int | None = None, place: int = 0, *distinct: int) -> list[Row]:
    """Table 3.5 for both kinds of prompts, with one row's completions changed."""
    rows: list[Row] = []
    for where, some in _DIVERSE.items():
        for number, row in enumerate(some):
            changed = (where, number) == (longest, place)
            rows.append(replace(row, distinct=distinct) if changed else row)
    return on_networks(*rows)


CLAIMS = [
    Claim(
        "li.tab-3.3",
        judge_unseen,
        refuted_by=[
            on_networks(replace(_PLAIN, errors=170), _GUIDED, _WHOLE, _GUIDED_WHOLE),
            on_networks(replace(_PLAIN, errors=179), _GUIDED, _WHOLE, _GUIDED_WHOLE),
            on_networks(_PLAIN, _GUIDED, replace(_WHOLE, errors=150), _GUIDED_WHOLE),
            on_networks(_PLAIN, _GUIDED, replace(_WHOLE, errors=200), _GUIDED_WHOLE),
            on_networks(_PLAIN, replace(_GUIDED, errors=240), _WHOLE, replace(_WHOLE, quota=4)),
        ],
        held_by=on_networks(_PLAIN, _GUIDED, _WHOLE, _GUIDED_WHOLE),
    ),
    Claim(
        "li.fig-3.2",
        judge_remaining,
        refuted_by=[
            on_networks(replace(_LEFT, error_kinds={"too_late": 125, "wrong_close": 100})),
            on_networks(replace(_LEFT, error_kinds={"premature_end": 25, "wrong_close": 200})),
            on_networks(replace(_LEFT, quota_used_up=50)),
            on_networks(replace(_LEFT, quota_used_up=200)),
            on_networks(replace(_LEFT, quota_used_up=0)),
        ],
        held_by=on_networks(_LEFT),
    ),
    Claim(
        "li.tab-3.5",
        judge_diversity,
        refuted_by=[
            *(_diversities(longest, 0, 3, 3) for longest in (31, 25)),  # less with Algorithm 1
            *(_diversities(longest, 1, 7, 7) for longest in (31, 25)),  # more at top_p = 0.9
            *(_diversities(longest, 2, 8, 8) for longest in (31, 25)),  # more at top_p = 1.0
            on_networks(
                *(replace(row, distinct=(1, 1)) for row, *_ in _DIVERSE.values()),
                *(row for _, *rows in _DIVERSE.values() for row in rows),
            ),  # the same completion every time
        ],
        held_by=_diversities(),
    ),
    Claim(
        "li.tab-3.16",
        judge_redo,
        refuted_by=[
            on_networks(_GUIDED, replace(_NO_REDO, errors=150)),
            on_networks(_GUIDED, replace(_NO_REDO, errors=179)),  # no effect
        ],
        held_by=on_networks(_GUIDED, _NO_REDO),
    ),
]
