"""Soft prompts on the exact masked LM: Lemmas B.1 and B.2 and Theorem 3.6 [wei, 3.1 and B].

Each unit draws a model, builds what the proof builds, and gathers the distance between the two
sides of the statement on every short string of the support and on long sampled ones. Models:

    dense    every entry positive, |H| ≤ |X|
    sparse   2 to 4 successors per state, every token possible everywhere
    zeros    2 to 4 successors and 2 tokens per state: prompts that make a string impossible

Tasks live on states drawn from the largest essential set, so Assumption 3.5 holds by design, and
are shifted so that both labels are common.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.core.validation import UserError
from triptych.structures.hidden_markov.hmm import HMM
from triptych.studies.api.decide import largest
from triptych.studies.api.study import Bench, Scale, Settings, Study, Unit
from triptych.studies.tuning.exact_prompts.figures import contrast_figure
from triptych.studies.tuning.exact_prompts.judge import CLAIMS
from triptych.studies.tuning.exact_prompts.rows import (
    Disentangled,
    FakeToken,
    Family,
    Prompted,
    PromptKind,
    Row,
)
from triptych.theory.tuning import essential, heads, prompts

SIGN_MARGIN = 1e-9  # scores closer to 0, relative to the head's largest weight, have no sign
LONG = 128


@dataclass(frozen=True)
class ExactPrompts(Settings):
    """Sizes of the models that are drawn.

    narrow, wide   |H| of the models of Theorem 3.6, at most and above |X| = vocab
    enumerate      all strings are taken while there are at most this many
    strings        sampled strings of length 128 per model
    """

    seeds: int = 2
    narrow: tuple[int, ...] = (3, 6, 10)
    wide: tuple[int, ...] = (12, 20, 40)
    vocab: int = 10
    enumerate: int = 1000
    strings: int = 500


@dataclass(frozen=True)
class DrawModel(Unit):
    """A random HMM of a family."""

    family: Family
    states: int
    vocab: int
    strings: int


@dataclass(frozen=True)
class DrawFakeToken(DrawModel):
    """With a prompt, for Lemma B.1."""

    prompt: PromptKind


@dataclass(frozen=True)
class DrawDisentangled(DrawModel):
    """With a prompt, for Lemma B.2."""

    prompt: PromptKind
    enumerate: int


@dataclass(frozen=True)
class DrawTask(DrawModel):
    """With a task on its essential states, for Theorem 3.6."""

    enumerate: int


ModelUnit = DrawFakeToken | DrawDisentangled | DrawTask


def units(settings: ExactPrompts) -> Sequence[ModelUnit]:
    """One per statement, family, size, kind of prompt and seed."""
    if min(settings.narrow) < 2 or settings.vocab < 2 or settings.strings < 1:
        raise UserError("narrow must be at least 2, vocab at least 2, strings at least 1")
    if max(settings.narrow) > settings.vocab or min(settings.wide) <= settings.vocab:
        raise UserError(f"narrow must be at most and wide above vocab = {settings.vocab}")
    narrow: tuple[Family, ...] = ("dense", "zeros")
    wide: tuple[Family, ...] = ("sparse", "zeros")
    every: tuple[PromptKind, ...] = ("inside", "corner", "zero")
    families = [
        *((family, states) for family in narrow for states in settings.narrow),
        *((family, states) for family in wide for states in settings.wide),
    ]
    found: list[ModelUnit] = []
    for seed in range(settings.seeds):
        for family in narrow:
            for prompt in every:
                size = {"states": 4, "vocab": 3, "seed": seed}
                found.append(DrawFakeToken.of(settings, family=family, prompt=prompt, **size))
        for family, states in families:
            size = {"family": family, "states": states, "seed": seed}
            found.append(DrawDisentangled.of(settings, prompt=every[seed % 2], **size))
            found.append(DrawTask.of(settings, **size))
    return found


def run(unit: ModelUnit, bench: Bench) -> Iterable[Row]:
    """What one model says about its statement."""
    match unit:
        case DrawFakeToken():
            yield _fake_token(unit, bench)
        case DrawDisentangled():
            yield _disentangled(unit, bench)
        case DrawTask():
            yield _prompted(unit, bench)


def _model(unit: DrawModel, attempt: int = 0) -> HMM:
    states, vocab = unit.states, unit.vocab
    seed, successors = 1000 * unit.seed + attempt, min(states, 2 + unit.seed % 3)
    match unit.family:
        case "dense":
            return HMM.random(states, vocab, 1, seed=seed)
        case "sparse":
            return HMM.random_sparse(states, vocab, 1, seed=seed, successors=successors)
        case "zeros":
            return essential.random_with_zeros(states, vocab, seed=seed, successors=successors)


def _model_and_task(unit: DrawTask) -> tuple[HMM, Tensor]:
    """The first model of the family with two essential states, and a task on them."""
    for attempt in range(100):
        hmm = _model(unit, attempt)
        task = essential.random_task(hmm, seed=1000 * unit.seed + attempt)
        if task is not None:
            return hmm, task
    raise UserError(
        f"100 random models ({unit.family}, {unit.states} states, {unit.vocab} tokens) had fewer "
        "than two essential states: choose other sizes"
    )


def _soft_prompt(unit: DrawFakeToken | DrawDisentangled) -> Tensor:
    """inside: some entries 0, the others in (0, 1). corner: 0 or 1, one of them 1. zero: all 0."""
    draw, states = np.random.default_rng([unit.seed, 3]), unit.states
    taken = draw.random(states) < 0.4
    taken[draw.integers(states)] = True
    match unit.prompt:
        case "inside":
            values = draw.random(states)
        case "corner":
            values = np.ones(states)
        case "zero":
            values = np.zeros(states)
    return torch.tensor(np.where(taken, values, 0.0))


def _every_short(hmm: HMM, at_most: int) -> Tensor:
    """Every string of the support, of the largest length with at most this many strings."""
    length = 1
    while hmm.vocab_size ** (length + 1) <= at_most:
        length += 1
    tokens = all_sequences(hmm.vocab_size, length)
    return tokens[heads.in_support(hmm, tokens)]


def _sampled(hmm: HMM, count: int, bench: Bench) -> Tensor:
    first = replace(hmm, initial=hmm.initial @ hmm.transition, length=LONG)
    return first.sample(count, TorchRng(bench.rng("strings").seed))  # on the CPU, as the models


def _fake_token(unit: DrawFakeToken, bench: Bench) -> FakeToken:
    """τ and G against a sum over hidden paths, and on long strings against the HMM with z̃."""
    hmm, prompt = _model(unit), _soft_prompt(unit)
    short = all_sequences(hmm.vocab_size, 3)
    by_paths = prompts.left_out_by_paths(hmm, prompt, short)
    long, where = _sampled(hmm, unit.strings, bench), [1, 2, LONG // 2, LONG + 1]
    parts = [
        _compared(hmm, prompt, short, [1, 2, 3, 4], by_paths),
        _compared(hmm, prompt, long, where, prompts.left_out(hmm, prompt, long, where)),
    ]
    return FakeToken(
        seed=unit.seed,
        family=unit.family,
        states=unit.states,
        prompt=unit.prompt,
        state_error=largest([part.state_error for part in parts]),
        output_error=largest([part.output_error for part in parts]),
        token_error=largest([part.token_error for part in parts]),
        log_mass_error=largest([part.log_mass_error for part in parts]),
        value_off_support=largest([part.value_off_support for part in parts]),
        support_mismatches=sum(part.support_mismatches for part in parts),
        supported=sum(part.supported for part in parts),
        off_support=sum(part.off_support for part in parts),
    )


class _Compared(NamedTuple):
    """The fields of `FakeToken` on some strings."""

    state_error: float
    output_error: float
    token_error: float
    log_mass_error: float
    value_off_support: float
    support_mismatches: int
    supported: int
    off_support: int


def _compared(
    hmm: HMM, prompt: Tensor, tokens: Tensor, positions: list[int], truth: prompts.LeftOut
) -> _Compared:
    """The embedding model against X̂. Its tokens are those of X̂ beyond H_1, where z̃ may stand."""
    where = [position - 1 for position in positions]
    state, log_mass = (part[:, where] for part in prompts.messages(hmm, prompt, tokens))
    outputs = prompts.model(hmm, prompt, tokens)[:, where]
    possible = ~torch.isneginf(truth.log_mass)
    later = possible & (torch.tensor(positions) > 1)
    return _Compared(
        state_error=_most([(state - truth.state).abs()]),
        output_error=_most([(outputs - truth.state @ hmm.emission)[possible].abs()]),
        token_error=_most([(outputs - truth.token[..., :-1])[later].abs()]),
        log_mass_error=_most([(log_mass - truth.log_mass)[possible].abs()]),
        value_off_support=_most([outputs[~possible].abs()]),
        support_mismatches=int((torch.isneginf(log_mass) == possible).sum()),
        supported=int(possible.sum()),
        off_support=int((~possible).sum()),
    )


def _disentangled(unit: DrawDisentangled, bench: Bench) -> Disentangled:
    """Both sides of Lemma B.2 with r_x from its formula."""
    hmm, prompt = _model(unit), _soft_prompt(unit)
    errors, scales, off, values = [], [], 0, []
    for tokens in _inputs(hmm, unit, bench):
        sides = prompts.disentangled(hmm, prompt, tokens)
        errors.append((sides.posterior - sides.scale[:, None] * sides.product).abs())
        scales.append(sides.scale[sides.supported])
        values.append(sides.product[~sides.supported])
        off += int((~sides.supported).sum())
    positive = torch.cat(scales)
    return Disentangled(
        seed=unit.seed,
        family=unit.family,
        states=unit.states,
        vocab=unit.vocab,
        prompt=unit.prompt,
        equation_error=_most(errors),
        smallest_scale=float(positive.min()) if len(positive) else None,
        value_off_support=_most(values),
        supported=len(positive),
        off_support=off,
    )


def _prompted(unit: DrawTask, bench: Bench) -> Prompted:
    """The prompt and head of Theorem 3.6, and whether any head alone would do."""
    hmm, task = _model_and_task(unit)
    holds, found = prompts.conditions(hmm, task), prompts.witness(hmm, task)
    unit_of_score = float(found.head.abs().max())
    errors: list[Tensor] = []
    wrong = near = off = off_wrong = inputs = 0
    short: tuple[Tensor, Tensor] | None = None
    for tokens in _inputs(hmm, unit, bench):
        score = heads.state_before(hmm, tokens) @ task
        sides = prompts.disentangled(hmm, found.prompt, tokens)
        predicted = prompts.scores(hmm, found, tokens)
        wanted = sides.scale * score
        errors.append((predicted - wanted).abs() / unit_of_score)
        clear = wanted.abs() > SIGN_MARGIN * unit_of_score
        wrong += int(((score >= 0) != (predicted >= 0))[clear].sum())
        near += int((~clear & sides.supported).sum())
        off += int((~sides.supported).sum())
        off_wrong += int(((score != 0) | (predicted != 0))[~sides.supported].sum())
        inputs += len(tokens)
        if short is None:
            short = heads.masked_first(hmm, tokens)[clear], (score >= 0)[clear]
    assert short is not None  # the short strings come first
    features, labels = short
    alone = heads.least_hinge_head(features, labels)
    return Prompted(
        seed=unit.seed,
        family=unit.family,
        states=unit.states,
        vocab=unit.vocab,
        conditions_hold=holds.hold,
        margin=holds.conditions[0].margin,
        chosen=int(found.chosen.sum()),
        essential=int(found.essential.sum()),
        identity_error=_most(errors),
        wrong_labels=wrong,
        too_close_to_call=near,
        off_support=off,
        off_support_wrong=off_wrong,
        inputs=inputs,
        head_alone_works=heads.linearly_separable(features, labels, margin=1e-7),
        head_alone_wrong_share=float(((features @ alone >= 0) != labels).double().mean()),
        positive_share=float(labels.double().mean()),
    )


def _inputs(hmm: HMM, unit: DrawDisentangled | DrawTask, bench: Bench) -> Iterable[Tensor]:
    yield _every_short(hmm, unit.enumerate)
    yield from _sampled(hmm, unit.strings, bench).split(500)


def _most(parts: Sequence[Tensor]) -> float:
    """The largest entry; 0 without any, nan if one is."""
    return largest([float(part.max()) for part in parts if part.numel()] or [0.0])


STUDY = Study(
    name="exact_prompts",
    question="Do a soft prompt and a linear head compute the task where no linear head does alone?",
    settings={
        Scale.SMOKE: ExactPrompts(seeds=1, narrow=(4,), wide=(6, 12), vocab=4, strings=20),
        Scale.LAPTOP: ExactPrompts(seeds=5, strings=300),
        Scale.PAPER: ExactPrompts(seeds=15, wide=(12, 20, 30, 40)),
    },
    units=units,
    run=run,
    rows=(FakeToken, Disentangled, Prompted),
    claims=CLAIMS,
    figures=[contrast_figure],
)
