"""What the rows of `bracket_attention` decide: Figures 2.11, 2.12 and all of `attention_judges`.

A network counts when it predicts at least 97 % of the closing brackets of its own distribution, as
all published ones do.
"""

from collections.abc import Sequence
from dataclasses import replace

from triptych.core.estimates import mean, proportion
from triptych.studies.api.decide import (
    Check,
    Verdict,
    above,
    at_least,
    decide,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.brackets.shared.attention_judges import (
    BOTH_POSITIONS,
    ENOUGH,
    JOINT,
    STACK,
    good,
    made_networks,
    stack_share,
    variation,
)
from triptych.studies.brackets.shared.attention_rows import (
    Network,
    Row,
)
from triptych.studies.brackets.shared.spread import (
    farther_from_others,
)

# ------------------------------------------------------------------ Figure 2.11


def judge_patterns(rows: Rows[Row]) -> Verdict:
    """Few accurate networks have a stack-like last layer."""
    checks: list[Check] = []
    needs = []
    for positions, label in BOTH_POSITIONS:
        found = good(rows, first="standard", data="complete", positions=positions)
        needs.append(at_least(f"networks at 97 % or more, {label}", len(found), ENOUGH))
        if found:
            checks += [
                stack_share(found, label),
                shown(
                    f"{label}: weight on the innermost open bracket, on the word",
                    mean([row.likeness for row in found]),
                ),
                shown(
                    f"{label}: weight on the innermost open bracket, on sampled sentences",
                    mean([row.sampled for row in found]),
                ),
                shown(
                    f"{label}: share of closing brackets with the largest weight on the "
                    "innermost open bracket",
                    mean([row.top for row in found]),
                ),
            ]
    checks += _wide_networks(good(rows, first="standard", wide=True, data="complete"))
    return decide(*checks, needs=needs)


def _wide_networks(found: Sequence[Network]) -> list[Check]:
    """Those of Figures 2.11a and 2.12a, next to the others."""
    if len(found) < 2:
        return []
    label = f"width {found[0].width}, learning rate {found[0].learning_rate:g}"
    stacks = sum(row.likeness > STACK for row in found)
    return [
        shown(f"{label}: share of stack-like networks", proportion(stacks, len(found))),
        shown(
            f"{label}: weight on the innermost open bracket, on the word",
            mean([row.likeness for row in found]),
        ),
        shown(f"{label}: variation of two networks, ‖A - A'‖²", variation(found)),
    ]


# ------------------------------------------------------------------ Figure 2.12


def judge_minimal(rows: Rows[Row]) -> Verdict:
    """Patterns differ by embedding and by learning rate, and are mostly not stack-like."""
    kinds: dict[str, list[Network]] = {
        "(2.55), rate 0.01": good(rows, first="joint", data="complete", learning_rate=1e-2),
        "(2.55)": good(rows, first="joint", data="complete", learning_rate=3e-3),
        "(2.56)": good(rows, first="separate", data="complete", learning_rate=3e-3),
        "(2.57)": good(rows, first="angle", data="complete", learning_rate=3e-3),
    }
    checks = []
    for first, second in (
        ("(2.55), rate 0.01", "(2.55)"),
        ("(2.55)", "(2.56)"),
        ("(2.55)", "(2.57)"),
        ("(2.56)", "(2.57)"),
    ):
        if kinds[first] and kinds[second]:
            one, other = ([row.pattern for row in kinds[name]] for name in (first, second))
            sentence = (
                f"embeddings {first} and {second}: variation ‖A - A'‖² of networks of both kinds "
                "minus that of two of one kind"
            )
            checks.append(above(sentence, farther_from_others(one, other), 0.0))
    every = [row for found in kinds.values() for row in found]
    if every:
        checks.append(stack_share(every, "all four kinds"))
    checks += [
        shown(f"{name}: variation of two networks, ‖A - A'‖²", variation(found))
        for name, found in kinds.items()
        if found
    ]
    checks += [
        shown(
            f"{name}: share of closing brackets with the largest weight on the innermost open one",
            mean([row.top for row in found]),
        )
        for name, found in kinds.items()
        if found
    ]
    checks += _wide_networks(good(rows, first="joint", wide=True, data="complete"))
    return decide(
        *checks,
        needs=[
            at_least(f"networks at 97 % or more, {name}", len(found), ENOUGH)
            for name, found in kinds.items()
        ],
    )


PATTERNS_HELD = [*made_networks(1.0), *made_networks(1.0, positions="linear")]
PATTERNS_REFUTED = [
    [*made_networks(1.0, likeness=0.9), *made_networks(1.0, positions="linear")],
    [*made_networks(1.0), *made_networks(1.0, positions="linear", likeness=0.9)],
]
_FAST = made_networks(0.01, 0.0, **JOINT, learning_rate=1e-2)
_SLOW = made_networks(0.01, 1.0, **JOINT)
_SEPARATE = made_networks(0.01, 2.0, first="separate", layers=1)
_ANGLE = made_networks(0.01, 3.0, first="angle", layers=1)
MINIMAL_HELD = [*_FAST, *_SLOW, *_SEPARATE, *_ANGLE]
MINIMAL_REFUTED = [
    [*made_networks(0.01, 1.0, **JOINT, learning_rate=1e-2), *_SLOW, *_SEPARATE, *_ANGLE],
    [*_FAST, *_SLOW, *made_networks(0.01, 1.0, first="separate", layers=1), *_ANGLE],
    [*_FAST, *_SLOW, *_SEPARATE, *made_networks(0.01, 1.0, first="angle", layers=1)],
    [*_FAST, *_SLOW, *_SEPARATE, *made_networks(0.01, 2.0, first="angle", layers=1)],
    [replace(row, likeness=0.9) for row in MINIMAL_HELD],
]
CLAIMS = [
    Claim("li.fig-2.11", judge_patterns, PATTERNS_REFUTED, PATTERNS_HELD),
    Claim("li.fig-2.12", judge_minimal, MINIMAL_REFUTED, MINIMAL_HELD),
]
