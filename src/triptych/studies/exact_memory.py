"""Attention heads and soft prompts on memory HMMs: Theorems 4.3, 4.6 and C.6 [wei, 4, C].

Each unit draws a model for which the assumptions hold, builds the head (and the prompt) of the
proof, and compares both sides of the statement on every short string of the support and on long
sampled strings: what the linear maps recover, where the head attends, the value there, the label.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.adaptation.attention import TIE
from triptych.core.estimates import Outcome
from triptych.core.table import all_sequences
from triptych.studies.figures import Figure, Panel, Series
from triptych.studies.judging import judge_equal, largest, rows_of
from triptych.studies.study import Bench, Claim, Row, Rows, Scale, Settings, Study, Unit, Verdict
from triptych.theory import memory_heads, memory_prompts
from triptych.theory.memory_prompts import Case

SIGN_MARGIN = 1e-9  # scores closer to 0, relative to P(M_j* in supp μ | x), have no sign to compare
TINY = 1e-100  # below it, P(M_j* in supp μ | x) has too few digits left to divide by
LONG = 128
HEAD, PROMPT, PROMPT_CELLS = "head", "prompt_one_cell", "prompt_several_cells"


@dataclass(frozen=True)
class ExactMemory(Settings):
    """Sizes of the models that are drawn.

    cells        memory cells N
    values       |supp μ|; the models of the prompt theorems have one more memory value
    enumerated   the short strings are all those of the largest length with at most so many
    strings      sampled strings of length 128 per model
    """

    seeds: int = 2
    cells: tuple[int, ...] = (1, 2, 3)
    values: tuple[int, ...] = (2, 3)
    enumerated: int = 2000
    strings: int = 200


def units(settings: ExactMemory) -> Sequence[Unit]:
    """One per theorem (head alone, or prompt and head), number of cells and values, and seed."""
    if min(settings.cells) < 1 or min(settings.values) < 2 or settings.strings < 1:
        raise ValueError("cells must be at least 1, values at least 2, strings at least 1")
    rest = {"enumerated": settings.enumerated, "strings": settings.strings}
    return [
        Unit({"kind": kind, "cells": cells, "values": values, **rest}, seed)
        for seed in range(settings.seeds)
        for cells in settings.cells
        for values in settings.values
        for kind in (HEAD, PROMPT if cells == 1 else PROMPT_CELLS)
    ]


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """One row: a model of the unit's theorem, both sides on all of its strings."""
    asked = unit.parameters
    prompted = asked["kind"] != HEAD
    case = memory_prompts.random_case(
        asked["cells"],
        asked["values"],
        contents=1 + unit.seed % 2,
        prompted=prompted,
        sparse_memory=unit.seed // 2 % 2 == 0,
        seed=unit.seed,
        device=bench.device,
    )
    model, cell, task = case
    values = memory_prompts.relevant(model, task) if prompted else None
    without = memory_heads.conditions(model, cell)
    holds = memory_prompts.conditions(model, cell, task) if prompted else without
    sizes = [t for t in range(1, LONG) if model.vocab_size**t <= asked["enumerated"]]
    short = all_sequences(model.vocab_size, max(sizes, default=1), model.device)
    short = short[memory_heads.supports(model, short).possible]
    long = model.with_length(LONG).sample(asked["strings"], bench.rng("strings"))
    yield {
        **asked,
        "seed": unit.seed,
        "syntax": model.syntax,
        "recoverable": int(memory_heads.recoverable(model, cell, values).sum()),
        "conditions_hold": holds.hold,
        "head_available": without.hold,
        "margin": holds.conditions[0].margin,
        "full_memory": bool((model.memory > 0).all()),
        "not_refused": _not_refused(case, prompted),
        **_combined([_compare(case, x, prompted) for t in (short, long) for x in _split(case, t)]),
    }


def _split(case: Case, tokens: Int[Tensor, "batch t"]) -> Sequence[Tensor]:
    return memory_heads.blocks(case.model, tokens)


def _combined(parts: Sequence[Row]) -> Row:
    """Counts add up; of errors the largest counts."""
    whole: Row = {}
    for name, value in parts[0].items():
        found = [part[name] for part in parts]
        whole[name] = largest(found) if isinstance(value, float) else sum(found)
    return whole


@torch.no_grad()
def _compare(case: Case, tokens: Int[Tensor, "batch t"], prompted: bool) -> Row:
    """Both sides of every identity of the proof, on strings of the support."""
    model, cell, task = case
    values = memory_prompts.relevant(model, task)
    first = int(prompted)  # the position of the first token
    if prompted:
        prompt, head, syntax = memory_prompts.witness(model, cell, task, tokens.shape[1])
        vectors = memory_prompts.prompted(model, prompt, tokens)
        symbols = memory_prompts.symbols(model, tokens)
        allowed = memory_prompts.supports(model, tokens, cell, task)
    else:
        syntax = memory_heads.recoverable(model, cell)
        head = memory_heads.witness(model, cell, task, tokens.shape[1])
        vectors, symbols = model.lift(model.embed(tokens)), tokens
        allowed = memory_heads.supports(model, tokens)
    probs = model.soft_masked_probs(vectors)
    maps = memory_heads.recoverers(model, cell, syntax, values if prompted else None)

    # Claims C.3 and C.10: what the linear maps recover, against the messages themselves.
    message = model.lower(model.lifted_messages(vectors))[:, first:]
    total = message.sum(-1, keepdim=True)
    addressed = (message / total.masked_fill(total == 0, 1.0)).unflatten(
        -1, (model.values, model.cells, model.syntax)
    )
    joint = addressed[:, :, :, cell] * syntax
    hidden = addressed.sum(2).flatten(2)
    inside = memory_heads.recoverable_hidden(model, cell, syntax)
    got_joint = torch.einsum("btx,vsx->btvs", probs[:, first:], maps.joint)
    got_hidden = probs[:, first:] @ maps.hidden.T
    missing = hidden[..., ~inside].sum(-1) - got_hidden[..., ~inside].sum(-1)
    state = (got_hidden - hidden)[..., inside].flatten().abs()

    # Lemmas C.2 and C.9: where the head attends, against supports without rounding.
    before = memory_heads.recoverable_positions(model, tokens, cell, syntax)  # Î
    exact = memory_heads.concentrated(model, allowed.hidden, cell, syntax)  # I
    in_r = before.any(-1)
    on = in_r & allowed.possible
    attended = head.attention(probs) > 0
    extra = attended[:, first:] & ~exact & on[:, None]
    tied = extra & (hidden[..., inside].sum(-1) >= 1.0 - 2.0 * TIE)
    wrong_set = (exact & ~attended[:, first:]) | (before & ~exact) | (extra & ~tied)

    # Lemmas C.4 and C.13: the value is r μᵀP[M_j* | x] with r > 0, at all of I; then the label.
    shown = torch.zeros_like(tokens, dtype=torch.bool)
    posterior = model.with_length(tokens.shape[1]).posteriors(tokens, shown).cell(cell)
    score = posterior @ task
    mass = posterior[:, values].sum(-1) if prompted else torch.ones_like(score)
    clear = on & (mass > TINY)
    likely = probs[:, first:].gather(-1, tokens[..., None])[..., 0]
    wanted = likely * (score / mass.masked_fill(~clear, 1.0))[:, None]
    error = (head.values(probs, symbols)[:, first:, 0] - wanted).abs()
    answer = head(probs, symbols)[:, 0]
    published = deepcopy(head)
    published.position[:first, -1] = memory_prompts.PUBLISHED_OFFSET
    plain = published(probs, symbols)[:, 0]
    off = in_r & ~allowed.possible
    called = clear & (score.abs() > SIGN_MARGIN * mass)
    return {
        "joint_error": _top((got_joint - joint).abs()),
        "state_error": largest([_top(state), _top(missing.abs())]),
        "value_error": _top(error[exact & clear[:, None]]),
        "off_support_value": _top(torch.cat([score[off], answer[off]]).abs()),
        "wrong_labels": int(((score >= 0) != (answer >= 0))[called].sum()),
        "too_close_to_call": int((in_r & ~called & ~off).sum()),
        "inputs": len(tokens),
        "in_recoverable": int(in_r.sum()),
        "positive": int((called & (score > 0)).sum()),
        "negative": int((called & (score < 0)).sum()),
        "off_support": int(off.sum()),
        "attention_mismatches": int((wrong_set & on[:, None]).sum()),
        "prompt_attended": int(attended[in_r, :first].sum()),
        "near_ties": int(tied.sum()),
        "larger_attention": int((on & (exact & ~before).any(-1)).sum()),
        "published_offset_attended": int((published.attention(probs)[:, :first] > 0)[in_r].sum()),
        "published_offset_wrong": int(((score >= 0) != (plain >= 0))[called].sum()),
    }


def _top(values: Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _not_refused(case: Case, prompted: bool) -> int:
    """How many models with one assumption broken get a witness, or a refusal that hides why."""
    model, cell, _ = case
    same = model.emission.clone()
    same[:, cell] = same[:1, cell]
    still = torch.eye(len(model.initial), dtype=torch.float64, device=model.device)
    sure = still[0]
    broken = [
        (replace(model, emission=same), "recoverable hidden states"),
        (replace(model, transition=still), "ergodic chain"),
        (replace(model, initial=sure), "full support"),
    ]
    if prompted:
        broken.append((replace(model, initial=0.5 * (model.initial + sure)), "stationarity"))
    build = memory_prompts.witness if prompted else memory_heads.witness
    tries = [(build, changed, named) for changed, named in broken]
    if prompted and not memory_heads.conditions(model, cell).hold:
        tries.append((memory_heads.witness, model, "recoverable hidden states"))
    return sum(not _refused(make, case._replace(model=m), n) for make, m, n in tries)


def _refused(build: Callable[..., object], case: Case, named: str) -> bool:
    try:
        build(case.model, case.cell, case.task, 3)
    except ValueError as refusal:
        return named in str(refusal)
    return False


# ------------------------------------------------------------------ judges

_EXACT_COLUMNS = ["joint_error", "state_error", "value_error", "off_support_value"]
_NEVER = ["wrong_labels", "attention_mismatches", "prompt_attended", "not_refused"]
_SEEN = [
    "inputs",
    "in_recoverable",
    "positive",
    "negative",
    "too_close_to_call",
    "near_ties",
    "off_support",
    "larger_attention",
    "published_offset_attended",
    "published_offset_wrong",
]
_PROMPT_CASES = [
    "memory_without_full_support",
    "head_not_available",
    "off_support",
    "larger_attention",
]
_ENOUGH = 200  # labels to compare, at least a tenth of so many of each sign


def _judge(rows: Sequence[Row], evidence: Sequence[Row], needed: Sequence[str]) -> Verdict:
    """Every row must agree; the rows of `evidence` must show the labels and cases asked for."""
    rows = [row for row in rows if row["conditions_hold"]]
    evidence = [row for row in evidence if row["conditions_hold"]]
    verdict = judge_equal(rows, _EXACT_COLUMNS, "the proof's identities")
    if verdict.outcome is Outcome.UNDECIDED:
        return verdict
    total = {name: sum(int(row[name]) for row in rows) for name in _NEVER}
    seen = {name: sum(int(row[name]) for row in evidence) for name in _SEEN}
    seen["memory_without_full_support"] = sum(not row["full_memory"] for row in evidence)
    seen["head_not_available"] = sum(not row["head_available"] for row in evidence)
    measured = {**verdict.measured, **total, **seen}
    wrong = [f"{count} {name.replace('_', ' ')}" for name, count in total.items() if count]
    labels = seen["positive"] + seen["negative"]
    because = f"{labels} labels on R right in {len(evidence)} models; {verdict.because}"
    if wrong or verdict.outcome is Outcome.FAILS:
        said = "; ".join([*wrong, verdict.because])
        return Verdict(Outcome.FAILS, said, measured)
    if labels < _ENOUGH or min(seen["positive"], seen["negative"]) < _ENOUGH // 10:
        few = f"{seen['positive']} positive and {seen['negative']} negative labels are too few"
        return Verdict(Outcome.UNDECIDED, few, measured)
    missing = [name.replace("_", " ") for name in needed if seen[name] == 0]
    if missing:
        return Verdict(Outcome.UNDECIDED, f"no case of: {', '.join(missing)}", measured)
    return Verdict(Outcome.HOLDS, because, measured)


def judge_head(rows: Rows) -> Verdict:
    mine = rows_of(rows, HEAD)
    return _judge(mine, mine, ["memory_without_full_support"])


def judge_prompt(rows: Rows) -> Verdict:
    mine = rows_of(rows, PROMPT)
    return _judge(mine, mine, _PROMPT_CASES)


def judge_prompt_cells(rows: Rows) -> Verdict:
    """The case of one cell can refute the theorem, but only several cells are evidence for it."""
    several = rows_of(rows, PROMPT_CELLS)
    return _judge([*rows_of(rows, PROMPT), *several], several, _PROMPT_CASES)


# ------------------------------------------------------------------ figures


def margin_figure(rows: Rows) -> Figure:
    """The error of the value against the margin of the assumption, for each number of cells."""

    def points(label: str, cells: int, *, head: bool) -> Series:
        mine = [row for row in rows if row["cells"] == cells and (row["kind"] == HEAD) is head]
        margins = [row["margin"] for row in mine]
        errors = [max(row["value_error"], 1e-17) for row in mine]
        return Series(label, "control" if head else "ours", margins, errors, line=False)

    panels = [
        Panel(
            [
                points("head alone (Theorem 4.3)", cells, head=True),
                points(f"prompt and head (Theorem {theorem})", cells, head=False),
            ],
            "margin of the recoverable emissions",
            "error of the value",
            title=f"{cells} memory cell{'s' if cells > 1 else ''}",
            x_log=True,
            y_log=True,
        )
        for cells in sorted({row["cells"] for row in rows})
        for theorem in ["4.6" if cells == 1 else "C.6"]
    ]
    return Figure(
        "memory_margin",
        "The proofs' attention heads compute μᵀP[M_j* | x] up to a positive factor, to rounding",
        panels,
        "One point per random model: the largest difference between the value the head reads and "
        "r·μᵀP[M_j* | x], on all short strings and on strings of length 128. The models of the "
        "prompt violate the assumption of the head alone.",
    )


# ------------------------------------------------------------------ what would refute the claims

_GOOD: Row = {
    "kind": HEAD,
    "conditions_hold": True,
    "head_available": True,
    "full_memory": False,
    **dict.fromkeys(_EXACT_COLUMNS, 1e-13),
    **dict.fromkeys(_NEVER, 0),
    **dict.fromkeys(_SEEN, 500),
}


def _refuting(good: Row) -> list[list[Row]]:
    return [[good | {name: 1e-3}] for name in _EXACT_COLUMNS] + [
        [good | {name: 1}] for name in _NEVER
    ]


_GOOD_PROMPT = _GOOD | {"kind": PROMPT, "head_available": False}
_GOOD_CELLS = _GOOD_PROMPT | {"kind": PROMPT_CELLS}

STUDY = Study(
    name="exact_memory",
    about="Do the attention head and the soft prompt of the proofs recover the memory's posterior?",
    settings={
        Scale.SMOKE: ExactMemory(seeds=2, cells=(1, 2), enumerated=1500, strings=10),
        Scale.LAPTOP: ExactMemory(seeds=6, enumerated=4000, strings=150),
        Scale.PAPER: ExactMemory(seeds=8, values=(2, 3, 4), enumerated=8000, strings=200),
    },
    units=units,
    run=run,
    claims=[
        Claim("wei.thm-4.3", judge_head, _refuting(_GOOD)),
        Claim("wei.thm-4.6", judge_prompt, _refuting(_GOOD_PROMPT)),
        Claim("wei.thm-C.6", judge_prompt_cells, _refuting(_GOOD_CELLS)),
    ],
    figures=[margin_figure],
)
