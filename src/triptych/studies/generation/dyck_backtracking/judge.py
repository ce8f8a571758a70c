"""What the rows of `dyck_backtracking` decide: the judges and figures of [li, 3.2.1].

A trained network is one trial: every number is a mean over networks with a t interval, and every
comparison is paired within a network. One network alone leaves a comparison UNDECIDED. Networks
differ in their errors by more than a factor of ten, so errors are compared by their ratio.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from triptych.core.estimates import Estimate, Outcome, above, below, mean
from triptych.studies.judging import all_of, rows_of
from triptych.studies.study import Row, Rows, Verdict

PUBLISHED_STRIDES = {0: 0.331, 1: 0.366, 2: 0.438, 4: 0.591, 8: 0.790}
PUBLISHED_QUOTAS = {
    (1, 2): 0.421,
    (1, 4): 0.5,
    (1, 6): 0.604,
    (2, 2): 0.457,
    (2, 4): 0.634,
    (2, 6): 0.762,
    (4, 2): 0.518,
    (4, 4): 0.762,
    (4, 6): 0.921,
}
LEAST_PROBE = 0.93 - 2 * 0.039  # two of its standard errors below the published accuracy
NEARLY_ALL = 0.95
KEPT = 0.9  # of the diversity, relative to the same nucleus without backtracking
NOTHING = Verdict(Outcome.UNDECIDED, "there are no rows yet")


def by_network(rows: Sequence[Row], column: str, **where: Any) -> dict[int, float]:
    """Mean of a column over the rows of each network that match."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if all(row[name] == value for name, value in where.items()):
            found.setdefault(row["seed"], []).append(float(row[column]))
    return {seed: sum(values) / len(values) for seed, values in sorted(found.items())}


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Estimate:
    """first - second within each network."""
    return mean([first[seed] - second[seed] for seed in first if seed in second])


def fewer(first: Mapping[int, float], second: Mapping[int, float]) -> Estimate:
    """log(errors of first / errors of second) within each network; ½ is added to every count."""
    shared = [seed for seed in first if seed in second]
    return mean([math.log((first[seed] + 0.5) / (second[seed] + 0.5)) for seed in shared])


def pooled(parts: Sequence[int], wholes: Sequence[int]) -> Estimate:
    """Σ parts / Σ wholes over networks, with a jackknife interval.

    Worked value: 1 of 2 and 3 of 4 make 4 of 6; leaving out one leaves ¾ and ½.
    """
    part, whole, n = sum(parts), sum(wholes), len(wholes)
    if n < 2:
        return mean([part / whole])
    without = [(part - a) / (whole - b) for a, b in zip(parts, wholes, strict=True)]
    spread = mean([n * part / whole - (n - 1) * value for value in without])
    reach = spread.half_width
    return Estimate(part / whole, part / whole - reach, part / whole + reach, n, spread.confidence)


def _shown(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)


def judge_language_model(rows: Rows) -> Verdict:
    """Right in distribution (99 of 100 at least), and less so out of distribution."""
    mine = rows_of(rows, "lm")
    if not mine:
        return NOTHING
    inside, outside = by_network(mine, "in_accuracy"), by_network(mine, "out_accuracy")
    more = fewer(by_network(mine, "out_errors"), by_network(mine, "in_errors"))
    level = _shown(inside)
    measured = {
        "in_distribution": level,
        "out_of_distribution": _shown(outside),
        "published_accuracy": 0.9423,
        "published_errors_of_10000": 240,
        "errors": sum(row["out_errors"] for row in mine) / len(mine),
        "prompts": mine[0]["prompts"],
        "log_ratio_of_errors": [more.value, more.low, more.high],
    }
    because = (
        f"{100 * level:.2f} % right in distribution, {100 * _shown(outside):.2f} % out of it: "
        f"{measured['errors']:.0f} errors in {mine[0]['prompts']} prompts (published both 94.23 % "
        "and 240 of 10,000)"
    )
    if not level >= 0.99:
        return Verdict(Outcome.FAILS, "not right in distribution: " + because, measured)
    return Verdict(above(more, 0.0), because, measured)


def judge_probe(rows: Rows) -> Verdict:
    """Validation accuracy at least two published standard errors below the published 93 %."""
    mine = rows_of(rows, "verifier")
    if not mine:
        return NOTHING
    scores = {row["seed"]: mean(row["accuracies"]).value for row in mine}
    found = mean(list(scores.values()))
    sizes = sorted({row["strings"] for row in mine})
    many = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
    measured = {"validation_accuracy": found.value, "strings": sizes}
    because = (
        f"one linear layer on {many} strings is right on {100 * found.value:.1f} % "
        f"of those left out (published 93 %; needed {100 * LEAST_PROBE:.1f} %)"
    )
    return Verdict(above(found, LEAST_PROBE), because, measured)


def judge_strides(rows: Rows) -> Verdict:
    """The longest stride beats no backtrack, and none is clearly worse than a shorter one."""
    mine = rows_of(rows, "stride")
    if not mine:
        return NOTHING
    strides = sorted({row["stride"] for row in mine if row["config"] == "erased"})
    found = {0: by_network(mine, "accuracy", config="nucleus")}
    found |= {b: by_network(mine, "accuracy", config="erased", stride=b) for b in strides}
    gain = paired(found[strides[-1]], found[0])
    outcomes = [above(gain, 0.0)]
    ladder = [0, *strides]
    for shorter, longer in itertools.pairwise(ladder):
        step = paired(found[longer], found[shorter])
        outcomes.append(Outcome.FAILS if step.high < 0 else Outcome.HOLDS)
    shown = {f"B{b}" if b else "nucleus": _shown(values) for b, values in found.items()}
    greedy = by_network(mine, "accuracy", config="greedy")
    measured = {**shown, "greedy": _shown(greedy)} if greedy else shown
    because = (
        f"erasing {strides[-1]} tokens once raises the accuracy from {100 * shown['nucleus']:.1f} "
        f"to {100 * shown[f'B{strides[-1]}']:.1f} % (published 33.1 to 79.0)"
    )
    return Verdict(all_of(outcomes), because, measured)


def judge_quotas(rows: Rows) -> Verdict:
    """Better than plain nucleus sampling; a longer stride helps at every quota, more quota at
    every stride."""
    every = rows_of(rows, "quota")
    mine = [row for row in every if row["into_prompt"] and not row["verify_redone"]]
    plain = by_network(rows_of(rows, "stride"), "accuracy", config="nucleus")
    if not mine or not plain:
        return NOTHING
    pairs = sorted({(row["quota"], row["stride"]) for row in mine})
    found = {(q, b): by_network(mine, "accuracy", quota=q, stride=b) for q, b in pairs}
    (quota, stride), most = pairs[-1], found[pairs[-1]]
    quotas, strides = sorted({q for q, _ in pairs}), sorted({b for _, b in pairs})
    longer = [paired(found[q, strides[-1]], found[q, strides[0]]) for q in quotas]
    oftener = [paired(found[quotas[-1], b], found[quotas[0], b]) for b in strides]
    outcomes = [above(gain, 0.0) for gain in (paired(most, plain), *longer, *oftener)]
    measured: Row = {f"Q{q}": [_shown(found[q, b]) for b in strides] for q in quotas}
    measured |= {"B": strides, "nucleus": _shown(plain)}
    because = (
        f"with Q = {quota}, B = {stride} the trained verifier raises the accuracy from "
        f"{100 * _shown(plain):.1f} to {100 * _shown(most):.1f} % (published 33.1 to 92.1); from "
        f"B = {strides[0]} to {strides[-1]} it gains {_points(longer)} points, from Q = "
        f"{quotas[0]} to {quotas[-1]} {_points(oftener)}"
    )
    variants = {
        "if redone tokens are verified too": {"into_prompt": True, "verify_redone": True},
        "if the prefix itself may not be erased": {"into_prompt": False, "verify_redone": False},
    }
    for name, which in variants.items():
        values = by_network(every, "accuracy", quota=quota, stride=stride, **which)
        if values:
            measured[name] = _shown(values)
            because += f"; {100 * _shown(values):.1f} % {name}"
    return Verdict(all_of(outcomes), because, measured)


def _points(gains: Sequence[Estimate]) -> str:
    """The least and the most of several gains, in per cent."""
    values = sorted(100 * gain.value for gain in gains)
    return f"{values[0]:+.1f} to {values[-1]:+.1f}"


def _errors(rows: Rows, top_p: float, quota: int, **more: Any) -> dict[int, float]:
    where = {"redo_argmax": True, "verify_redone": False, "into_prompt": False} | more
    mine = rows_of(rows, "unseen")
    return by_network(mine, "errors", top_p=top_p, quota=quota, **where)


def judge_unseen(rows: Rows) -> Verdict:
    """Fewer errors with Algorithm 1 than without it, for both nuclei."""
    mine = rows_of(rows, "unseen")
    if not mine:
        return NOTHING
    quota = max(row["quota"] for row in mine)
    outcomes, measured, said = [], {}, []
    for top_p in (0.9, 1.0):
        plain, guided = _errors(rows, top_p, 0), _errors(rows, top_p, quota)
        if not (quota and plain and guided):
            return NOTHING
        outcomes.append(below(fewer(guided, plain), 0.0))
        name = f"top_p{round(10 * top_p):02d}"
        measured |= {name: _shown(plain), f"{name}_Q4B4": _shown(guided)}
        said.append(f"{_shown(plain):.1f} to {_shown(guided):.1f} at top_p = {top_p}")
    measured["prompts"] = mine[0]["prompts"]
    because = (
        f"errors on {mine[0]['prompts']} unseen prompts fall from "
        + " and ".join(said)
        + " (published 240.0 to 179.4 and 461.8 to 200.0 of 10,000)"
    )
    return Verdict(all_of(outcomes), because, measured)


def judge_redo(rows: Rows) -> Verdict:
    """Fewer errors when the erased positions are redone by argmax."""
    mine = rows_of(rows, "unseen")
    if not mine:
        return NOTHING
    quota = max(row["quota"] for row in mine)
    redone, sampled = _errors(rows, 0.9, quota), _errors(rows, 0.9, quota, redo_argmax=False)
    if not redone or not sampled:
        return NOTHING
    measured = {"algorithm_1": _shown(redone), "no_argmax": _shown(sampled)}
    because = (
        f"{_shown(redone):.1f} errors with the argmax redo, {_shown(sampled):.1f} without, of "
        f"{mine[0]['prompts']} (published 179.4 and 245.8 of 10,000)"
    )
    return Verdict(below(fewer(redone, sampled), 0.0), because, measured)


def judge_picture(rows: Rows) -> Verdict:
    """In the plane, neighbours are of one kind: nearer to always than to what chance gives."""
    mine = rows_of(rows, "picture")
    if not mine:
        return NOTHING
    found = mean(list(by_network(mine, "agreement").values()))
    chance = _shown(by_network(mine, "agreement_by_chance"))
    needed = (1 + chance) / 2
    measured = {"agreement": found.value, "by_chance": chance, "needed": needed}
    because = (
        f"{100 * found.value:.1f} % of the ten nearest neighbours in the t-SNE plane are of a "
        f"string's own kind, {100 * chance:.1f} % with shuffled labels "
        f"(needed {100 * needed:.1f} %)"
    )
    return Verdict(above(found, needed), because, measured)


def judge_necessary(rows: Rows) -> Verdict:
    """Strings at which the verifier said no, completed plainly, do worse than Table 3.2: in each
    setting, by nucleus and by argmax.

    The refused token is a part of such a string. Completions from before it are shown beside.
    """
    mine = [row for row in rows_of(rows, "quota") if row.get("backtracks")]
    if not mine:
        return NOTHING
    outcomes, measured, before = [], {}, []
    for quota, stride in sorted({(row["quota"], row["stride"]) for row in mine}):
        some = [row for row in mine if (row["quota"], row["stride"]) == (quota, stride)]
        guided = by_network(some, "accuracy")
        plain = by_network(some, "with_refused_nucleus")
        greedy = by_network(some, "with_refused_argmax")
        earlier = by_network(some, "before_refused_nucleus")
        outcomes += [above(paired(guided, other), 0.0) for other in (plain, greedy)]
        before.append(paired(guided, earlier).low)
        shown = {"guided": guided, "nucleus": plain, "argmax": greedy, "without token": earlier}
        measured[f"Q = {quota}, B = {stride}"] = {k: _shown(v) for k, v in shown.items()}
    clear = [
        sum(outcome is kind for outcome in outcomes) for kind in (Outcome.HOLDS, Outcome.FAILS)
    ]
    because = (
        f"in {clear[0]} of {len(outcomes)} comparisons what the verifier refused completes clearly "
        f"worse without backtracking, in {clear[1]} clearly better; from before the refused token "
        f"it is clearly worse in {sum(low > 0 for low in before)} of {len(before)} settings"
    )
    return Verdict(all_of(outcomes), because, measured)


def judge_remaining(rows: Rows) -> Verdict:
    """Nearly all errors that are left are wrong closings, and had the quota used up."""
    found = _remaining(rows, verify_redone=False)
    if found is None:
        return NOTHING
    wrong, used, errors = found
    measured: Row = {
        "errors": errors,
        "wrong_closing": round(wrong.value * errors),
        "quota_exhausted": round(used.value * errors),
        "share_of_wrong_closings": [wrong.value, wrong.low, wrong.high],
        "share_with_quota_exhausted": [used.value, used.low, used.high],
    }
    because = (
        f"{100 * wrong.value:.1f} % of the remaining errors are wrong closing brackets (published "
        f"98.7), and in {100 * used.value:.1f} % the quota was used up (published 100)"
    )
    other = _remaining(rows, verify_redone=True)
    if other is not None:
        measured["redone tokens verified"] = [other[0].value, other[1].value]
        because += (
            f"; {100 * other[0].value:.1f} and {100 * other[1].value:.1f} % if redone tokens are "
            "verified too"
        )
    return Verdict(all_of([above(wrong, NEARLY_ALL), above(used, NEARLY_ALL)]), because, measured)


def _remaining(rows: Rows, *, verify_redone: bool) -> tuple[Estimate, Estimate, int] | None:
    """Shares of wrong closings and of used-up quotas among the errors of Algorithm 1."""
    counts: dict[int, list[int]] = {}
    for row in rows_of(rows, "unseen"):
        printed = row["redo_argmax"] and not row["into_prompt"] and row["top_p"] == 0.9
        if row["quota"] and printed and row["verify_redone"] is verify_redone and row["errors"]:
            kinds, found = row["error_kinds"], counts.setdefault(row["seed"], [0, 0, 0])
            found[0] += kinds.get("wrong_close", 0) + kinds.get("unmatched_close", 0)
            found[1] += row["quota_used_up"]
            found[2] += row["errors"]
    if not counts:
        return None
    wrong, used, errors = (list(column) for column in zip(*counts.values(), strict=True))
    return pooled(wrong, errors), pooled(used, errors), sum(errors)


def judge_diversity(rows: Rows) -> Verdict:
    """Distinct completions with Algorithm 1, relative to the same nucleus without it."""
    mine = [
        row | {"mean": sum(row["distinct"]) / len(row["distinct"])}
        for row in rows_of(rows, "diversity")
    ]
    if not mine:
        return NOTHING
    quota = max(row["quota"] for row in mine)
    guided = by_network(mine, "mean", quota=quota, top_p=1.0)
    plain = by_network(mine, "mean", quota=0, top_p=1.0)
    narrow = by_network(mine, "mean", quota=0, top_p=0.9)
    ratio = mean([guided[seed] / plain[seed] for seed in guided])
    measured = {
        "Q4B4_top_p10": _shown(guided),
        "top_p09": _shown(narrow),
        "top_p10": _shown(plain),
        "ratio": [ratio.value, ratio.low, ratio.high],
    }
    because = (
        f"{_shown(guided):.2f} distinct completions of {mine[0]['completions']} with Algorithm 1, "
        f"{_shown(plain):.2f} without, {_shown(narrow):.2f} at top_p = 0.9 (published 5.52, 5.84, "
        "5.47)"
    )
    return Verdict(above(ratio, KEPT), because, measured)
