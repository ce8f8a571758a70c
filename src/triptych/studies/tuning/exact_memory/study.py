"""Attention heads and soft prompts on memory HMMs: Theorems 4.3, 4.6 and C.6 [wei, 4, C].

Each unit draws a model for which the assumptions hold, builds the head (and the prompt) of the
proof, and compares both sides of the statement on every short string of the support and on long
sampled strings: what the linear maps recover, where the head attends, the value there, the label.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.adaptation.attention import TIE
from triptych.core.table import all_sequences
from triptych.core.validation import UserError
from triptych.studies.api.decide import largest
from triptych.studies.api.study import Bench, Scale, Settings, Study, Unit
from triptych.studies.tuning.exact_memory.figures import margin_figure
from triptych.studies.tuning.exact_memory.judge import CLAIMS
from triptych.studies.tuning.exact_memory.rows import HeadAlone, Prompted, Row
from triptych.theory.tuning import memory_heads, memory_prompts
from triptych.theory.tuning.memory_prompts import Case

SIGN_MARGIN = 1e-9  # scores closer to 0, relative to P(M_j* in supp μ | x), have no sign to compare
TINY = 1e-100  # below it, P(M_j* in supp μ | x) has too few digits left to divide by
LONG = 128


@dataclass(frozen=True)
class ExactMemory(Settings):
    """Sizes of the models that are drawn.

    cells        memory cells N
    values       |supp μ|; the models of the prompt theorems have one more memory value
    enumerated   the short strings are all those of the largest length with at most this many
    strings      sampled strings of length 128 per model
    """

    seeds: int = 2
    cells: tuple[int, ...] = (1, 2, 3)
    values: tuple[int, ...] = (2, 3)
    enumerated: int = 2000
    strings: int = 200


@dataclass(frozen=True)
class DrawHead(Unit):
    """A random model for the head alone, Theorem 4.3."""

    cells: int
    values: int
    enumerated: int
    strings: int


@dataclass(frozen=True)
class DrawPrompt(Unit):
    """A random model for prompt and head: Theorem 4.6 with one cell, C.6 with several."""

    cells: int
    values: int
    enumerated: int
    strings: int


ModelUnit = DrawHead | DrawPrompt


def units(settings: ExactMemory) -> Sequence[ModelUnit]:
    """One per theorem (head alone, or prompt and head), number of cells and values, and seed."""
    if min(settings.cells) < 1 or min(settings.values) < 2 or settings.strings < 1:
        raise UserError("cells must be at least 1, values at least 2, strings at least 1")
    return [
        draw.of(settings, cells=cells, values=values, seed=seed)
        for seed in range(settings.seeds)
        for cells in settings.cells
        for values in settings.values
        for draw in (DrawHead, DrawPrompt)
    ]


def run(unit: ModelUnit, bench: Bench) -> Iterable[Row]:
    """One row: a model of the unit's theorem, both sides on all of its strings."""
    prompted = isinstance(unit, DrawPrompt)
    case = memory_prompts.random_case(
        unit.cells,
        unit.values,
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
    sizes = [t for t in range(1, LONG) if model.vocab_size**t <= unit.enumerated]
    short = all_sequences(model.vocab_size, max(sizes, default=1), model.device)
    short = short[memory_heads.supports(model, short).possible]
    long = model.with_length(LONG).sample(unit.strings, bench.rng("strings"))
    errors, counts = _combined(
        [
            _compare(case, part, prompted)
            for tokens in (short, long)
            for part in memory_heads.blocks(model, tokens)
        ]
    )
    row = HeadAlone(
        seed=unit.seed,
        cells=unit.cells,
        values=unit.values,
        syntax=model.syntax,
        recoverable=int(memory_heads.recoverable(model, cell, values).sum()),
        conditions_hold=holds.hold,
        margin=holds.conditions[0].margin,
        full_memory=bool((model.memory > 0).all()),
        joint_error=errors.joint_error,
        state_error=errors.state_error,
        value_error=errors.value_error,
        off_support_value=errors.off_support_value,
        wrong_labels=counts.wrong_labels,
        too_close_to_call=counts.too_close_to_call,
        inputs=counts.inputs,
        in_recoverable=counts.in_recoverable,
        positive=counts.positive,
        negative=counts.negative,
        off_support=counts.off_support,
        attention_mismatches=counts.attention_mismatches,
        near_ties=counts.near_ties,
    )
    yield (
        row
        if not prompted
        else Prompted(
            **vars(row),
            head_available=without.hold,
            prompt_attended=counts.prompt_attended,
            larger_attention=counts.larger_attention,
            published_offset_attended=counts.published_offset_attended,
            published_offset_wrong=counts.published_offset_wrong,
        )
    )


class _Errors(NamedTuple):
    """The errors of a row, on some strings."""

    joint_error: float
    state_error: float
    value_error: float
    off_support_value: float


class _Counts(NamedTuple):
    """Its counts."""

    wrong_labels: int
    too_close_to_call: int
    inputs: int
    in_recoverable: int
    positive: int
    negative: int
    off_support: int
    attention_mismatches: int
    prompt_attended: int
    near_ties: int
    larger_attention: int
    published_offset_attended: int
    published_offset_wrong: int


def _combined(parts: Sequence[tuple[_Errors, _Counts]]) -> tuple[_Errors, _Counts]:
    """The largest of errors, and the sums of counts."""
    errors, counts = zip(*parts, strict=True)
    return _Errors(*map(largest, zip(*errors, strict=True))), _Counts(
        *map(sum, zip(*counts, strict=True))
    )


@torch.no_grad()
def _compare(case: Case, tokens: Int[Tensor, "batch t"], prompted: bool) -> tuple[_Errors, _Counts]:
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
    errors = _Errors(
        joint_error=_top((got_joint - joint).abs()),
        state_error=largest([_top(state), _top(missing.abs())]),
        value_error=_top(error[exact & clear[:, None]]),
        off_support_value=_top(torch.cat([score[off], answer[off]]).abs()),
    )
    counts = _Counts(
        wrong_labels=int(((score >= 0) != (answer >= 0))[called].sum()),
        too_close_to_call=int((in_r & ~called & ~off).sum()),
        inputs=len(tokens),
        in_recoverable=int(in_r.sum()),
        positive=int((called & (score > 0)).sum()),
        negative=int((called & (score < 0)).sum()),
        off_support=int(off.sum()),
        attention_mismatches=int((wrong_set & on[:, None]).sum()),
        prompt_attended=int(attended[in_r, :first].sum()),
        near_ties=int(tied.sum()),
        larger_attention=int((on & (exact & ~before).any(-1)).sum()),
        published_offset_attended=int((published.attention(probs)[:, :first] > 0)[in_r].sum()),
        published_offset_wrong=int(((score >= 0) != (plain >= 0))[called].sum()),
    )
    return errors, counts


def _top(values: Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


STUDY = Study(
    name="exact_memory",
    question="Do the attention head and the prompt of the proofs recover the memory's posterior?",
    settings={
        Scale.SMOKE: ExactMemory(seeds=1, cells=(1, 2), enumerated=1500, strings=10),
        Scale.LAPTOP: ExactMemory(seeds=6, enumerated=4000, strings=150),
        Scale.PAPER: ExactMemory(seeds=8, values=(2, 3, 4), enumerated=8000, strings=200),
    },
    units=units,
    run=run,
    rows=(HeadAlone, Prompted),
    claims=CLAIMS,
    figures=[margin_figure],
)
