"""Which positions an attention head behind a prompt can attend to: Lemma C.9 of [wei].

The lemma says that some choice of keys, query and position embeddings attends, on every input, to
exactly the positions whose hidden state is certain without the prompt. A linear programme over all
such heads looks for one, on a model made by hand and on random models of Theorem C.6.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from triptych.core.table import all_sequences
from triptych.core.validation import UserError
from triptych.studies.api.decide import EXACT, Verdict, at_least, decide, none, shown
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.theory.tuning import attended_sets, memory_prompts

ENOUGH = 3  # models
BY_HAND = "by hand"


@dataclass(frozen=True)
class AttendedPositions(Settings):
    """Sizes of the random models.

    cells, values    N, and how many memory values count in the task; the memory has one more
    enumerated       inputs are all strings of the largest length with at most this many
    """

    seeds: int = 4
    cells: tuple[int, ...] = (1, 2)
    values: tuple[int, ...] = (2, 3)
    enumerated: int = 4000


@dataclass(frozen=True)
class ModelByHand(Unit):
    """The model of `attended_sets.worked_case`, on all strings of length 5."""


@dataclass(frozen=True)
class DrawModel(Unit):
    """A random model of Theorem C.6."""

    cells: int
    values: int
    enumerated: int


@dataclass(frozen=True)
class Attended:
    """One model, and every head on it.

    model            "by hand" or "random"
    conditions_hold  those of Theorem C.6
    inputs           with a position that is certain without the prompt
    larger           of these, inputs on which the prompt makes further positions certain
    margin           most by which any head can score the certain positions above the others on all
                     inputs, weights up to 1 in size: an upper bound that is proved
    """

    seed: int
    model: str
    cells: int
    values: int
    conditions_hold: bool
    inputs: int
    larger: int
    margin: float


def units(settings: AttendedPositions) -> Sequence[ModelByHand | DrawModel]:
    """The model by hand, then the random ones."""
    if min(settings.cells) < 1 or min(settings.values) < 2:
        raise UserError("cells must be at least 1, values at least 2")
    return [
        ModelByHand.of(settings, seed=0),
        *(
            DrawModel.of(settings, cells=cells, values=values, seed=seed)
            for seed in range(settings.seeds)
            for cells in settings.cells
            for values in settings.values
        ),
    ]


def run(unit: ModelByHand | DrawModel, bench: Bench) -> Iterable[Attended]:
    """One row: the linear programme over all heads, on all short strings of the model."""
    if isinstance(unit, ModelByHand):
        name, case, most = BY_HAND, attended_sets.worked_case(), 6**5
    else:
        name, most = "random", unit.enumerated
        case = memory_prompts.random_case(
            unit.cells,
            unit.values,
            contents=1 + unit.seed % 2,
            prompted=True,
            sparse_memory=False,
            seed=unit.seed,
        )
    model = case.model
    length = max(t for t in range(1, 32) if t == 1 or model.vocab_size**t <= most)
    tokens = all_sequences(model.vocab_size, length, torch.device("cpu"))
    probs, wanted, attended = attended_sets.prompted_sets(case, tokens)
    yield Attended(
        seed=unit.seed,
        model=name,
        cells=model.cells,
        values=model.values,
        conditions_hold=memory_prompts.conditions(model, case.cell, case.task).hold,
        inputs=len(wanted),
        larger=int((attended & ~wanted).any(1).sum()),
        margin=attended_sets.attended_margin(probs, wanted),
    )


# ------------------------------------------------------------------ the judge


def judge(rows: Rows[Attended]) -> Verdict:
    """Lemma C.9 as printed: a model without such a head refutes it."""
    models = [row for row in rows.of(Attended) if row.conditions_hold]
    without = [row for row in models if row.margin <= EXACT]
    hand = [row for row in without if row.model == BY_HAND]
    return decide(
        none(
            "models on which no choice of keys, query and position embeddings attends to exactly "
            "the positions that are certain without the prompt",
            len(without),
            of=len(models),
        ),
        shown(
            "models made by hand, with two inputs, on which no such head exists", float(len(hand))
        ),
        shown(
            "inputs on which the prompt makes further positions certain",
            float(sum(row.larger for row in models)),
        ),
        shown("inputs looked at", float(sum(row.inputs for row in models))),
        needs=[at_least("models in which Theorem C.6 applies", len(models), ENOUGH)],
    )


_MODEL = Attended(
    seed=0,
    model="random",
    cells=1,
    values=3,
    conditions_hold=True,
    inputs=100,
    larger=0,
    margin=0.5,
)
_MODELS = [replace(_MODEL, seed=seed) for seed in range(ENOUGH)]

STUDY = Study(
    name="attended_positions",
    question="Can a head behind a prompt attend to exactly the positions that Lemma C.9 names?",
    settings={
        Scale.SMOKE: AttendedPositions(seeds=1, cells=(1,), enumerated=500),
        Scale.LAPTOP: AttendedPositions(),
        Scale.PAPER: AttendedPositions(seeds=8, enumerated=8000),
    },
    units=units,
    run=run,
    rows=(Attended,),
    claims=[
        Claim(
            "wei.lem-C.9",
            judge,
            refuted_by=[[*_MODELS, replace(_MODEL, margin=1e-16)]],
            held_by=_MODELS,
        )
    ],
)
