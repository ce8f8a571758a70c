"""Sizes of networks and lengths of trainings, which settings and units share."""

from dataclasses import dataclass

from triptych.studies.refinement.shared.pipeline import Plan


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """As in `pipeline.Plan`.

    ..._seconds    of a training; it ends with its steps or its seconds, whichever comes first
    """

    vocabulary: int = 8000
    width: int = 256
    layers: int = 4
    heads: int = 8
    feedforward: int = 1024
    length: int = 48
    dropout: float = 0.3
    tokens: int = 8192
    learning_rate: float = 1.5e-3
    teacher_seconds: float = 300.0
    student_seconds: float = 300.0
    padir_seconds: float = 900.0
    beams: int = 5
    lengths: int = 5


def plan_of(sizes: Sizes, pairs: int, teacher: int, student: int, padir: int) -> Plan:
    """A pipeline of these sizes, with this many steps of each training and nothing left out."""
    return Plan(
        pairs=pairs,
        width=sizes.width,
        layers=sizes.layers,
        heads=sizes.heads,
        feedforward=sizes.feedforward,
        length=sizes.length,
        dropout=sizes.dropout,
        tokens=sizes.tokens,
        learning_rate=sizes.learning_rate,
        teacher=(teacher, sizes.teacher_seconds),
        student=(student, sizes.student_seconds),
        padir=(padir, sizes.padir_seconds),
        ablations=(),
        beams=sizes.beams,
        lengths=sizes.lengths,
    )


TINY = {
    "vocabulary": 45,
    "width": 16,
    "layers": 1,
    "heads": 2,
    "feedforward": 16,
    "length": 12,
    "dropout": 0.0,
    "tokens": 64,
    "learning_rate": 5e-3,
    "beams": 2,
    "lengths": 2,
}
"""Networks for the toy language that only show that the parts work."""
