"""Judges of the memory theorems: labels and values on R; the steps of the proofs are shown."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from triptych.studies.api.decide import (
    Check,
    Need,
    Verdict,
    at_least,
    decide,
    exactly,
    largest,
    none,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.tuning.exact_memory.rows import HeadAlone, Prompted, Recovered, Row

ModelT = TypeVar("ModelT", HeadAlone, Prompted)
ENOUGH = 200  # labels to compare, at least a tenth of this many of each sign


def judge_head(rows: Rows[Row]) -> Verdict:
    models = _regular(rows.of(HeadAlone))
    return decide(*_statement(models), *_steps(models), needs=_evidence(models))


def judge_prompt(rows: Rows[Row]) -> Verdict:
    models = [row for row in _regular(rows.of(Prompted)) if row.cells == 1]
    return decide(
        *_statement(models),
        *_steps(models),
        *_offsets(models),
        needs=[*_evidence(models), *_prompt_evidence(models)],
    )


def judge_prompt_cells(rows: Rows[Row]) -> Verdict:
    """The case of one cell can refute the theorem, but only several cells are evidence for it."""
    models = _regular(rows.of(Prompted))
    several = [row for row in models if row.cells > 1]
    return decide(
        *_statement(models),
        *_steps(models),
        *_offsets(models),
        needs=[*_evidence(several), *_prompt_evidence(several)],
    )


def _regular(models: Sequence[ModelT]) -> list[ModelT]:
    return [row for row in models if row.conditions_hold]


def _statement(models: Sequence[Recovered]) -> list[Check]:
    return [
        none(
            "wrong labels of the head that the proof builds",
            sum(row.wrong_labels for row in models),
            of=_labels(models),
        ),
        exactly(
            "value at an attended position against a positive multiple of μᵀP[M_j* | x]: largest "
            "difference",
            largest([row.value_error for row in models]),
        ),
        exactly(
            "largest score on inputs that are impossible, with the prompt if there is one; it "
            "must be 0",
            largest([row.off_support_value for row in models]),
        ),
    ]


def _steps(models: Sequence[Recovered]) -> list[Check]:
    return [
        shown(
            "step of the proof: recovered law of memory and hidden state against the true one, "
            "largest difference",
            largest([row.joint_error for row in models]),
        ),
        shown(
            "step of the proof: recovered law of the hidden state against the true one, largest "
            "difference",
            largest([row.state_error for row in models]),
        ),
        shown(
            "step of the proof: positions that are attended wrongly, or wrongly left out",
            _total([row.attention_mismatches for row in models]),
        ),
    ]


def _offsets(models: Sequence[Prompted]) -> list[Check]:
    """How often the head attends to the prompt itself, with our offset and the printed one."""
    return [
        shown(
            "inputs on which the head attends to the prompt itself",
            _total([row.prompt_attended for row in models]),
        ),
        shown(
            "inputs on which the head attends to the prompt itself, with the printed offset -2",
            _total([row.published_offset_attended for row in models]),
        ),
        shown(
            "wrong labels with the printed offset -2",
            _total([row.published_offset_wrong for row in models]),
        ),
    ]


def _total(counts: Sequence[int]) -> float:
    return float(sum(counts))


def _labels(models: Sequence[Recovered]) -> int:
    return sum(row.positive + row.negative for row in models)


def _evidence(models: Sequence[Recovered]) -> list[Need]:
    partial = sum(not row.full_memory for row in models)
    return [
        at_least("labels on R", _labels(models), ENOUGH),
        at_least("positive labels", sum(row.positive for row in models), ENOUGH // 10),
        at_least("negative labels", sum(row.negative for row in models), ENOUGH // 10),
        at_least("models whose memory lacks full support", partial, 1),
    ]


def _prompt_evidence(models: Sequence[Prompted]) -> list[Need]:
    unavailable = sum(not row.head_available for row in models)
    wider = sum(row.larger_attention for row in models)
    return [
        at_least("models on which the head alone is not available", unavailable, 1),
        at_least("inputs on which the prompt is impossible", sum(r.off_support for r in models), 1),
        at_least("inputs on which the prompt makes a position certain", wider, 1),
    ]


_HEAD = HeadAlone(
    seed=0,
    cells=1,
    values=3,
    syntax=4,
    recoverable=2,
    conditions_hold=True,
    margin=0.1,
    full_memory=False,
    joint_error=1e-13,
    state_error=1e-13,
    value_error=1e-13,
    off_support_value=0.0,
    wrong_labels=0,
    too_close_to_call=10,
    inputs=2000,
    in_recoverable=1000,
    positive=500,
    negative=490,
    off_support=0,
    attention_mismatches=0,
    near_ties=0,
)
_PROMPT = Prompted(
    **vars(replace(_HEAD, off_support=100, in_recoverable=1100)),
    head_available=False,
    prompt_attended=0,
    larger_attention=50,
    published_offset_attended=80,
    published_offset_wrong=4,
)
_CELLS = replace(_PROMPT, cells=2)


def _refuting(good: ModelT) -> list[list[ModelT]]:
    return [
        [good, replace(good, wrong_labels=1)],
        [good, replace(good, value_error=1e-3)],
        [good, replace(good, off_support_value=1e-3)],
    ]


CLAIMS: list[Claim[Row]] = [
    Claim("wei.thm-4.3", judge_head, refuted_by=_refuting(_HEAD), held_by=[_HEAD]),
    Claim("wei.thm-4.6", judge_prompt, refuted_by=_refuting(_PROMPT), held_by=[_PROMPT]),
    Claim(
        "wei.thm-C.6",
        judge_prompt_cells,
        refuted_by=[*_refuting(_CELLS), [_CELLS, replace(_PROMPT, wrong_labels=1)]],
        held_by=[_CELLS],
    ),
]
