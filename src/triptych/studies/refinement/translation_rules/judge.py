"""Repeated words and remasking, as checks [li, 4.2.3 and its footnote 18].

The verdict on repeated words is about the authors' program, which made the published rates. What
the text says, dropping every repeated token at the end, is the second finding: then hardly any
repeat can be left. What refinement had before anything was dropped stands next to both.

Captions (Multi30k) decide. Repeated words are counted over all sets and seeds of a direction.
"""

from collections.abc import Sequence

from triptych.core.estimates import Estimate
from triptych.studies.api.decide import Check, Verdict, above, at_least, decide, shown, within
from triptych.studies.api.study import Rows
from triptych.studies.refinement.shared.judging import (
    DECIDES,
    DIRECTIONS,
    SEEDS,
    by_system,
    captions,
    enough,
    over_sentences,
    rate,
    times_as_many,
)
from triptych.studies.refinement.shared.rows import Compared, Scored, Trained
from triptych.studies.refinement.shared.scoring import AUTOREGRESSIVE

__all__ = ["DECIDES", "PHASES", "remasking", "stutter"]

PHASES = ("teacher", "student", "padir", "rules")
TWICE = 2.0  # published: "2 or more times more frequent", for all datasets
VISIBLE = 1.0  # BLEU; the source calls losses of up to 1.35 "similar", and prints no other measure
TO = {"en-de": "English to German", "de-en": "German to English"}
RULES = {
    "least_sure": "the tokens that the network is least sure of become random words at every step",
    "random": "a repeated token becomes a random word before the next step",
    "keep": "a repeated token stays for the next step",
}

Row = Trained | Scored | Compared


def stutter(rows: Rows[Row]) -> Verdict:
    """Repeated words per word written, as a multiple of beam search's."""
    scored = captions(rows, Scored)
    program = by_system(scored, "rules program T=4")
    return decide(
        *_times(scored, "rules program T=4", "finished as in the authors' program"),
        *(
            shown(
                f"{TO[direction]}: times as many repeated words as beam search, before any is "
                "dropped, 4 steps",
                found,
            )
            for direction in TO
            if (found := _ratio(scored, "rules before T=4", direction)).n
        ),
        *(
            shown(f"repeated words in 1000, {text}", rate(own))
            for text, system in (
                ("1 step, authors' program", "rules program T=1"),
                ("4 steps, authors' program", "rules program T=4"),
                ("10 steps, authors' program", "rules program T=10"),
                ("4 steps, repeated tokens dropped as printed", "padir T=4"),
                ("4 steps, before any is dropped", "rules before T=4"),
                ("beam search with 5 beams", AUTOREGRESSIVE),
            )
            if (own := by_system(scored, system))
        ),
        needs=enough(program, captions(rows, Trained)),
        printed=_times(scored, "padir T=4", "repeated tokens dropped as printed"),
    )


def _times(scored: Sequence[Scored], system: str, how: str) -> list[Check]:
    return [
        above(
            f"{name}: times as many repeated words as beam search, refinement with 4 steps, {how}",
            _ratio(scored, system, direction),
            TWICE,
        )
        for direction, name in TO.items()
    ]


def _ratio(scored: Sequence[Scored], system: str, direction: str) -> Estimate:
    """On the sets that both have translated."""
    own, other = (
        [row for row in by_system(scored, name) if row.direction == direction]
        for name in (system, AUTOREGRESSIVE)
    )
    sets = {row.on for row in own} & {row.on for row in other}
    return times_as_many(
        [row for row in own if row.on in sets], [row for row in other if row.on in sets]
    )


def remasking(rows: Rows[Row]) -> Verdict:
    """Footnote 18: other schedules of remasking do not visibly change the results."""
    compared = [row for row in captions(rows, Compared) if row.on == DECIDES]

    def change(rule: str, steps: int) -> list[Compared]:
        asked = (f"rules {rule} T={steps}", f"padir T={steps}")
        return [row for row in compared if (row.first, row.second) == asked]

    decided = change("least_sure", 10)
    runs = {(row.direction, row.seed) for row in decided}
    return decide(
        *(
            within(
                f"{steps} steps: BLEU gained if {text}",
                over_sentences(change(rule, steps)),
                0.0,
                by=VISIBLE,
            )
            for rule, text in RULES.items()
            for steps in (4, 10)
        ),
        needs=[
            *enough(decided, captions(rows, Trained)),
            at_least("networks with another schedule", len(runs), DIRECTIONS * SEEDS),
        ],
    )
