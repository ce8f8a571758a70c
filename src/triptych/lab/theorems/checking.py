"""`triptych theorems`: which theorems of [wei] cover a user's model and task, and by what margin.

Where a theorem applies, the head (and the prompt) of its proof is built and tried on strings: both
sides of

    what the head says of x = r_x μᵀ P[H_0 or M_j | x]          with the proof's formula for r_x > 0

on every possible string up to a length, and on long sampled ones. The answer is of JSON values;
`check_text` writes it for a terminal.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.lab.theorems.files import TaskFile, read_model, read_task
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.theory.conditions import Condition
from triptych.theory.tuning import essential, heads, memory_heads, memory_prompts, prompts

Json = dict[str, Any]
Found = TypeVar("Found")

EVERY = 2000  # strings are enumerated up to the length at which there would be more
SAMPLED, LONG = 200, 64
SIGN_MARGIN = 1e-12  # what is closer to 0, relative to the largest entry of the head, is rounding
LARGEST_ERROR = 1e-2  # of a score that was recovered; more means that floats cannot carry the head
_ZERO = 1e-12  # of a sum that is 0 but for rounding
TINY = 1e-100  # a probability below it has too few digits left to divide by
_STATEMENTS = {
    "3.3": "a linear head computes every linear task on P[H_0 | x]",
    "3.6": "a prompt and a linear head compute a task on essential states",
    "4.3": "an attention head computes every linear task on P[M_j | x] on R",
    "4.6": "a prompt and an attention head compute a task on P[M_j | x] on R",
    "C.6": "a prompt and an attention head compute a task on P[M_j | x] on R",
}


def check_model(model: Path, task: Path | None) -> Json:
    """What every theorem says about the model and the task of these files.

    `covered` is whether some theorem applies whose head was right about every input that was
    tried, and was tried on some; None without a task.
    """
    found = read_model(model)
    asked = None if task is None else read_task(task, found)
    if isinstance(found, HMM):
        sizes = {"kind": "HMM", "states": found.states, "vocab": found.vocab_size}
        theorems = [_theorem_3_3(found, asked), _theorem_3_6(found, asked)]
    else:
        sizes = {"kind": "memory HMM", "values": found.values, "cells": found.cells}
        sizes |= {"syntax": found.syntax, "vocab": found.vocab_size}
        theorems = _memory_theorems(found, asked)
    return _without_nan(
        {
            "model": sizes,
            "task": None if asked is None else _plain(asked._asdict()),
            "covered": None if asked is None else any(entry["works"] for entry in theorems),
            "theorems": theorems,
        }
    )


def _entry(
    theorem: str,
    conditions: Sequence[Condition],
    found: Json,
    witness: Json | None = None,
    check: Json | None = None,
    undecided: str | None = None,
) -> Json:
    """A theorem: whether it applies, what was found on the way, its witness, and the trial of it.

    `works` is whether the witness was right; None where there is none.
    """
    hold, works = all(condition.holds for condition in conditions), None
    if check is not None:
        right = check["wrong_labels"] == 0 and check["largest_error"] <= LARGEST_ERROR
        works = right and check["compared"] > 0
    return {
        "theorem": theorem,
        "statement": _STATEMENTS[theorem],
        "applies": None if undecided and hold else hold,
        "undecided": undecided,
        "conditions": [condition._asdict() for condition in conditions],
        "found": found,
        "witness": witness,
        "check": check,
        "works": works,
    }


# ---------------------------------------------------------------------- HMM


def _theorem_3_3(hmm: HMM, task: TaskFile | None) -> Json:
    conditions = heads.conditions(hmm)
    rank, *regularity = conditions.conditions
    proof = not rank.holds and all(condition.holds for condition in regularity)
    found = {"task_without_head": _task_without_head(hmm) if proof else None}
    if task is None or not conditions.hold:
        return _entry("3.3", conditions.conditions, found)
    head, ratio = heads.witness(hmm, task.weights), heads.shift(hmm)
    check = _check_hmm(
        hmm, task.weights, ratio, head, lambda tokens: heads.masked_first(hmm, tokens) @ head
    )
    return _entry("3.3", conditions.conditions, found, {"head": head.tolist()}, check)


def _task_without_head(hmm: HMM) -> Json | None:
    """A task that no linear head computes, with the inputs that prove it; None if none was found.

    The proof: Σ_x weights[x] G_1(x) = 0, with positive weights at label 1 and negative at label 0.
    """
    length, defeat = 0, None
    while defeat is None and hmm.vocab_size ** (length + 1) <= EVERY and length < LONG:
        length += 1
        defeat = heads.defeating_task(hmm, all_sequences(hmm.vocab_size, length))
    if defeat is None:
        return None
    scores = heads.state_before(hmm, defeat.inputs) @ defeat.task
    distance = (defeat.weights @ heads.masked_first(hmm, defeat.inputs)).abs().max()
    zero = distance <= _ZERO and distance <= 1e-3 * defeat.weights.abs().min()
    if not zero or (scores * defeat.weights.sign()).min() <= 1e-9:
        return None
    return _plain(defeat._asdict())


def _theorem_3_6(hmm: HMM, task: TaskFile | None) -> Json:
    """For the task; where it fails, also the largest H* of any task."""
    if task is None:
        return _theorem_3_6_without_task(hmm)
    conditions, limit = _searched(lambda: prompts.conditions(hmm, task.weights))
    if conditions is None:
        regularity = heads.conditions(hmm).conditions[1:]
        return _entry("3.6", regularity, {"largest_essential": None}, undecided=limit)
    if conditions.hold:
        return _prompted_hmm(hmm, task.weights, conditions.conditions)
    largest, _ = _searched(lambda: essential.maximal_essential_set(hmm))
    found = {"largest_essential": None if largest is None else _members(largest)}
    return _entry("3.6", conditions.conditions, found)


def _theorem_3_6_without_task(hmm: HMM) -> Json:
    """For the tasks on the largest H* that there is."""
    regularity = heads.conditions(hmm).conditions[1:]
    largest, limit = _searched(lambda: essential.maximal_essential_set(hmm))
    if largest is None:
        return _entry("3.6", regularity, {"largest_essential": None}, undecided=limit)
    margin = essential.margin(hmm, largest) if largest.any() else 0.0
    relaxed = Condition(
        "relaxed non-degeneracy (Assumption 3.5)",
        margin > heads.RANK_TOLERANCE,
        margin,
        "smallest singular value of the emission columns of the largest H*, 0 if there is none",
    )
    return _entry("3.6", [relaxed, *regularity], {"largest_essential": _members(largest)})


def _searched(search: Callable[[], Found]) -> tuple[Found | None, str | None]:
    """What a search finds; or None, and that it came to its limit."""
    try:
        return search(), None
    except ValueError as error:
        return None, str(error).split(";")[0]


def _prompted_hmm(
    hmm: HMM, task: Float[Tensor, " states"], conditions: Sequence[Condition]
) -> Json:
    witness = prompts.witness(hmm, task)
    ratio = prompts.prompt_and_state(hmm, witness.prompt) / hmm.initial
    check = _check_hmm(
        hmm, task, ratio, witness.head, lambda tokens: prompts.scores(hmm, witness, tokens)
    )
    told = {
        "prompt": witness.prompt.tolist(),
        "head": witness.head.tolist(),
        "chosen": _members(witness.chosen),
        "essential": _members(witness.essential),
    }
    return _entry("3.6", conditions, {"largest_essential": None}, told, check)


def _check_hmm(
    hmm: HMM,
    task: Float[Tensor, " states"],
    ratio: Float[Tensor, " states"],
    head: Float[Tensor, " vocab"],
    predict: Callable[[Tensor], Tensor],
) -> Json:
    """Whether b·G = r_x μᵀ P[H_0 | x] with 1 / r_x = ratio · P[H_0 | x], and 0 where that is 0."""
    emitting = replace(hmm, initial=hmm.initial @ hmm.transition)
    sides = []
    for strings in _strings(emitting):
        tokens = strings[heads.in_support(hmm, strings)]
        posterior = heads.state_before(hmm, tokens)
        one, mass = torch.ones(len(tokens)).double(), posterior @ ratio
        sides.append(_Sides(_lengths(tokens), posterior @ task, one, mass, predict(tokens)))
    return _compared(sides, task, float(head.abs().max()), hmm.vocab_size)


# ---------------------------------------------------------------------- memory HMM


def _memory_theorems(model: MemoryHMM, task: TaskFile | None) -> list[Json]:
    if task is None:
        return [_theorem_4_3(model, cell, None) for cell in range(model.cells)]
    assert task.cell is not None  # read_task names one for a memory HMM
    return [
        _theorem_4_3(model, task.cell, task.weights),
        _theorem_c_6(model, task.cell, task.weights),
    ]


def _theorem_4_3(model: MemoryHMM, cell: int, task: Float[Tensor, " values"] | None) -> Json:
    conditions = memory_heads.conditions(model, cell)
    syntax = memory_heads.recoverable(model, cell)
    found = {"cell": cell, "recoverable": _members(syntax)}
    if task is None or not conditions.hold:
        return _entry("4.3", conditions.conditions, found)
    head = memory_heads.witness(model, cell, task, LONG)
    check = _check_memory(model, cell, task, syntax, head, None)
    return _entry("4.3", conditions.conditions, found, {"head": _plain_head(head)}, check)


def _theorem_c_6(model: MemoryHMM, cell: int, task: Float[Tensor, " values"]) -> Json:
    """Theorem C.6, which is Theorem 4.6 for a memory of one cell."""
    theorem = "4.6" if model.cells == 1 else "C.6"
    conditions = memory_prompts.conditions(model, cell, task)
    values = memory_prompts.relevant(model, task)
    syntax = memory_heads.recoverable(model, cell, values)
    found = {"cell": cell, "values": _members(values), "recoverable": _members(syntax)}
    found["stationary_law"] = _stationary_law(model)
    if not conditions.hold:
        return _entry(theorem, conditions.conditions, found)
    witness = memory_prompts.witness(model, cell, task, LONG)
    check = _check_memory(model, cell, task, syntax, witness.head, witness.prompt)
    told = {"prompt": witness.prompt.tolist(), "head": _plain_head(witness.head)}
    return _entry(theorem, conditions.conditions, found, told, check)


def _stationary_law(model: MemoryHMM) -> list[float] | None:
    """The one law of the first hidden state that Assumption 4.4 allows, for an ergodic chain."""
    if not all(c.holds for c in memory_heads.regularity(model) if c.name.startswith("ergodic")):
        return None
    own = torch.eye(len(model.initial), dtype=torch.float64)
    return HMM(model.initial, model.transition, own, length=1).stationary().tolist()


@torch.no_grad()
def _check_memory(
    model: MemoryHMM,
    cell: int,
    task: Float[Tensor, " values"],
    syntax: Bool[Tensor, " syntax"],
    head: Any,
    prompt: Float[Tensor, " lifted"] | None,
) -> Json:
    """Whether the head says r_x μᵀ P[M_j | x] on the inputs of R.

    r_x is the mean of P(X_i = x_i | prompt, X_-i) over the positions that the head attends to,
    divided by P(M_j in supp μ | x) where there is a prompt.
    """
    counted = torch.ones_like(task) if prompt is None else (task != 0).double()
    sides, outside = [], []
    for rows in (rows for tokens in _strings(model) for rows in memory_heads.blocks(model, tokens)):
        support = memory_heads.supports(model, rows)
        inside = memory_heads.concentrated(model, support.hidden, cell, syntax).any(-1)
        outside.append(_lengths(rows[support.possible & ~inside]))
        tokens = rows[support.possible & inside]
        if prompt is None:
            probs, symbols = memory_heads.masked_probs(model, tokens), tokens
        else:
            probs = memory_prompts.masked_probs(model, prompt, tokens)
            symbols = memory_prompts.symbols(model, tokens)
        first = symbols.shape[1] - tokens.shape[1]
        likely = probs[:, first:].gather(-1, tokens[..., None])[..., 0]
        read = (head.attention(probs)[:, first:] * likely).sum(-1)
        shown = torch.zeros_like(tokens, dtype=torch.bool)
        posterior = model.with_length(tokens.shape[1]).posteriors(tokens, shown).cell(cell)
        score, mass = posterior @ task, posterior @ counted
        sides.append(_Sides(_lengths(tokens), score, read, mass, head(probs, symbols)[:, 0]))
    unit = float(head.mix.abs().max() * head.value.abs().max())
    left_out = torch.cat(outside)
    return {
        **_compared(sides, task, unit, model.vocab_size),
        "outside_r": len(left_out),
        "outside_r_sampled": int((left_out == LONG).sum()),
    }


def _plain_head(head: Any) -> Json:
    """The parameters of an attention head by name."""
    return {name: value.tolist() for name, value in head.named_parameters()}


# ---------------------------------------------------------------------- both sides, on strings


class _Sides(NamedTuple):
    """Inputs x, the score that decides their label, and what the head says of them.

    length[x]      tokens of x
    score[x]       μᵀ P[H_0 or M_j | x]
    factor[x]      r_x = factor / mass; x is impossible with the prompt where mass is 0
    mass[x]
    predicted[x]   what the head says: r_x score, or 0 where x is impossible
    """

    length: Int[Tensor, " inputs"]
    score: Float[Tensor, " inputs"]
    factor: Float[Tensor, " inputs"]
    mass: Float[Tensor, " inputs"]
    predicted: Float[Tensor, " inputs"]


def _compared(sides: Sequence[_Sides], task: Tensor, unit: float, vocab: int) -> Json:
    """Counts of labels, and the largest error of what the head says, divided by r_x, as a score.

    The error is relative to the largest weight of the task. Answers that are 0 but for rounding,
    relative to `unit`, the largest entry of the head, have neither sign nor error.
    """
    length, score, factor, mass, predicted = (torch.cat(part) for part in zip(*sides, strict=True))
    impossible, tiny = mass == 0, (mass > 0) & (mass <= TINY)
    sure = ~impossible & ~tiny
    wanted = torch.where(sure, factor * score / mass.clamp(min=TINY), 0.0)
    clear = (wanted.abs() > SIGN_MARGIN * unit) | (predicted.abs() > SIGN_MARGIN * unit)
    clear = (clear | ~torch.isfinite(predicted)) & ~tiny
    error = (predicted * mass / factor - score).abs()[clear & sure] / task.abs().max()
    wrong = ((score >= 0) != (predicted >= 0)) | ~torch.isfinite(predicted)
    return {
        "inputs": len(length),
        "sampled": int((length == LONG).sum()),
        "sampled_length": LONG,
        "every_length": every_length(vocab),
        "compared": int((clear & ~impossible).sum()),
        "too_close": int((~clear & ~impossible).sum()),
        "impossible_with_prompt": int(impossible.sum()),
        "wrong_labels": int((clear & (wrong | impossible)).sum()),
        "largest_error": float(error.max()) if len(error) else 0.0,
    }


def _strings(model: HMM | MemoryHMM) -> Iterator[Int[Tensor, "strings t"]]:
    """Every string of the lengths 1, 2, … while there are at most `EVERY`; then sampled ones."""
    for length in range(1, every_length(model.vocab_size) + 1):
        yield all_sequences(model.vocab_size, length)
    yield model.with_length(LONG).sample(SAMPLED, TorchRng(seed=0))


def every_length(vocab: int) -> int:
    """The largest T < LONG with vocab + vocab² + … + vocab^T ≤ EVERY."""
    counts = itertools.accumulate(vocab**length for length in range(1, LONG))
    return sum(1 for _ in itertools.takewhile(lambda count: count <= EVERY, counts))


def _lengths(tokens: Int[Tensor, "strings t"]) -> Int[Tensor, " strings"]:
    return torch.full((len(tokens),), tokens.shape[1])


# ---------------------------------------------------------------------- JSON values


def _members(chosen: Bool[Tensor, " options"]) -> list[int]:
    return chosen.nonzero()[:, 0].tolist()


def _plain(fields: Json) -> Json:
    return {
        name: value.tolist() if isinstance(value, Tensor) else value
        for name, value in fields.items()
    }


def _without_nan(value: Any) -> Any:
    """The same with null for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
