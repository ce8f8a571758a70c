"""What the rows decide: confident tokens, lists in closed form, the bound of entropy.

Limits were written before the rows of laptop scale: an exact equation is held to 1e-9, a difference
between samplers must have an interval over random laws that excludes 0.
"""

from collections.abc import Sequence
from dataclasses import replace

from triptych.core.estimates import mean
from triptych.studies.api.decide import above, at_least, decide, exactly, largest, shown
from triptych.studies.api.study import Rows
from triptych.studies.api.verdicts import Verdict
from triptych.studies.masking.unmasking.rows import Bounded, Lists, Row, Sampled

RANDOM_LAWS = ("hmm", "ising")
FEWEST = 3


def judge_confidence(rows: Rows[Row]) -> Verdict:
    """Confidence in drawn tokens, one position a round, next to ancestral samples."""
    found = [row for row in rows.of(Sampled) if row.structure in RANDOM_LAWS]
    most = max((row.rounds or 0 for row in found), default=0)

    def of(way: str, rounds: int) -> list[Sampled]:
        return [row for row in found if (row.way, row.rounds) == (way, rounds)]

    one, steps = of("confidence", 1), of("confidence", most)
    ancestral, position = of("ancestral", most), of("confident position", most)
    enough = len(steps) >= 2 and len(one) == len(steps) == len(ancestral)
    if not enough:
        return decide(needs=[at_least("random laws with both samplers", 0, FEWEST)])
    worse = mean([a.tv - b.tv for a, b in zip(steps, ancestral, strict=True)])
    slower = mean([a.tv - b.tv for a, b in zip(steps, one, strict=True)])
    flatter = mean([a.of_truth - a.entropy for a in steps])
    return decide(
        above("confident tokens minus ancestral, as many rounds as positions, TV", worse, 0.0),
        above("confident tokens, as many rounds as positions minus one round, TV", slower, 0.0),
        above("entropy of the truth minus that of confident tokens, nats", flatter, 0.0),
        exactly("TV of confident positions, one a round", largest([a.tv for a in position])),
        shown("ancestral, as many rounds as positions, TV", mean([a.tv for a in ancestral])),
        needs=[at_least("random laws with both samplers", len(steps), FEWEST)],
    )


def judge_lists(rows: Rows[Row]) -> Verdict:
    """Copy, replace and shuffle against their formulas."""
    found = rows.of(Lists)
    tasks = {row.task for row in found}
    longest = max((row.items for row in found), default=0)
    return decide(
        exactly(
            "largest error of the loss, nats", largest([abs(r.lost - r.formula) for r in found])
        ),
        exactly(
            "largest error of the chance of a right list",
            largest([abs(r.right - r.right_formula) for r in found]),
        ),
        needs=[at_least("tasks", len(tasks), 3), at_least("items of the longest list", longest, 3)],
    )


def judge_bounds(rows: Rows[Row]) -> Verdict:
    """KL ≤ γ times the steps that can lose; and fewer passes than positions where γ > 0."""
    found = rows.of(Bounded)
    over = [max(0.0, row.kl - row.gamma * row.steps) for row in found]
    structures = sorted({row.structure for row in found})
    ordered = sorted(found, key=lambda row: row.gamma)
    passes = [[row.passes for row in ordered if row.structure == name] for name in structures]
    saved = mean([own[0] - own[-1] for own in passes] or [0.0])
    return decide(
        exactly("largest KL above γ times the steps that can lose, nats", largest(over)),
        above("passes with the smallest γ minus those with the largest", saved, 0.0),
        needs=[
            at_least("values of γ", len({row.gamma for row in found}), 2),
            at_least("structures", len(structures), 2),
        ],
    )


# ---------------------------------------------------------------------- rows that decide by hand


def _sampled(way: str, rounds: int, tv: float, number: int, entropy: float = 2.0) -> Sampled:
    return Sampled("hmm", way, rounds, float(rounds), tv + 0.001 * number, 0.1, 0.0, entropy, 2.5)


def held_confidence(
    *, tokens: float = 0.4, once: float = 0.2, positions: float = 0.0, entropy: float = 2.0
) -> list[Row]:
    """Four laws, one position a round in four rounds."""
    rows: list[Row] = []
    for number in range(4):
        rows += [
            _sampled("confidence", 1, once, number),
            _sampled("confidence", 4, tokens, 2 * number, entropy + 0.01 * number),
            _sampled("ancestral", 4, 0.1, number),
            replace(_sampled("confident position", 4, 0.0, 0), tv=positions),
        ]
    return rows


def refuted_confidence() -> list[Sequence[Row]]:
    """No effect; then each check broken alone."""
    return [
        held_confidence(tokens=0.05, once=0.3, entropy=2.6, positions=0.2),
        held_confidence(tokens=0.05, once=0.01),
        held_confidence(once=0.6),
        held_confidence(entropy=2.7),
        held_confidence(positions=0.01),
    ]


def held_lists() -> list[Row]:
    """Three tasks on three items, right."""
    return [
        Lists("copy", 3, 0.0, 0.0, 1.0, 1.0),
        Lists("replace", 3, 0.8109302162, 0.8109302162, 4 / 9, 4 / 9),
        Lists("shuffle", 3, 1.504077397, 1.504077397, 2 / 9, 2 / 9),
    ]


def refuted_lists() -> list[Sequence[Row]]:
    """A wrong loss; a wrong chance; both."""
    *before, last = held_lists()
    assert isinstance(last, Lists)
    return [
        [*before, replace(last, lost=1.4, right=0.3)],
        [*before, replace(last, lost=1.5040773)],
        [*before, replace(last, right=0.2)],
    ]


def held_bounds(*, kl: float = 0.3, passes: float = 2.0) -> list[Row]:
    """Two structures, two values of γ."""
    return [
        row
        for structure in ("hmm", "dyck")
        for row in (
            Bounded(structure, 0.0, 2, 0.0, 4.0),
            Bounded(structure, 0.5, 2, kl, passes + 0.1 * (structure == "dyck") * (passes < 4)),
        )
    ]


def refuted_bounds() -> list[Sequence[Row]]:
    """Both broken; a divergence over the bound; passes that are not saved."""
    return [held_bounds(kl=1.5, passes=4.5), held_bounds(kl=1.1), held_bounds(passes=4.5)]
