"""Soft prompts on the exact masked LM: Lemmas B.1 and B.2 and Theorem 3.6 [wei, 3.1 and B].

Each unit draws a model, builds what the proof builds, and gathers the distance between the two
sides of the statement on every short string of the support and on long sampled ones. Models:

    dense    every entry positive, |H| ≤ |X|
    sparse   2 to 4 successors per state, every token possible everywhere
    zeros    2 to 4 successors and 2 tokens per state: prompts that make a string impossible

Tasks live on states drawn from the largest essential set, so Assumption 3.5 holds by design, and
are shifted so that both labels are common.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from triptych.core.estimates import Outcome
from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.structures.hmm import HMM
from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.judging import judge_equal, largest, rows_of
from triptych.studies.study import Bench, Claim, Row, Rows, Scale, Settings, Study, Unit, Verdict
from triptych.theory import essential, heads, prompts

SIGN_MARGIN = 1e-9  # scores closer to 0, relative to the head's largest weight, have no sign
ENOUGH_INPUTS = 100
LONG = 128


@dataclass(frozen=True)
class ExactPrompts(Settings):
    """Sizes of the models that are drawn.

    narrow, wide   |H| of the models of Theorem 3.6, at most and above |X| = vocab
    enumerate      all strings are taken while there are at most so many
    strings        sampled strings of length 128 per model
    """

    seeds: int = 2
    narrow: tuple[int, ...] = (3, 6, 10)
    wide: tuple[int, ...] = (12, 20, 40)
    vocab: int = 10
    enumerate: int = 1000
    strings: int = 500


def units(settings: ExactPrompts) -> Sequence[Unit]:
    """One per statement, family, size, kind of prompt and seed."""
    if min(settings.narrow) < 2 or settings.vocab < 2 or settings.strings < 1:
        raise ValueError("narrow must be at least 2, vocab at least 2, strings at least 1")
    if max(settings.narrow) > settings.vocab or min(settings.wide) <= settings.vocab:
        raise ValueError(f"narrow must be at most and wide above vocab = {settings.vocab}")
    families = [
        *((family, states) for family in ("dense", "zeros") for states in settings.narrow),
        *((family, states) for family in ("sparse", "zeros") for states in settings.wide),
    ]
    common = {name: getattr(settings, name) for name in ("vocab", "enumerate", "strings")}
    found: list[Unit] = []
    for seed in range(settings.seeds):
        for family in ("dense", "zeros"):
            for prompt in ("inside", "corner", "zero"):
                size = {"states": 4, "vocab": 3, "strings": settings.strings}
                choice = {"family": family, "prompt": prompt}
                found.append(Unit({"kind": "fake_token", **choice, **size}, seed))
        for family, states in families:
            size = {"family": family, "states": states, **common}
            prompt = ("inside", "corner")[seed % 2]
            found.append(Unit({"kind": "disentangle", "prompt": prompt, **size}, seed))
            found.append(Unit({"kind": "prompt", **size}, seed))
    return found


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Dispatch on the statement; every row carries the unit's parameters and seed."""
    gather: dict[str, Callable[[Unit, Bench], Row]] = {
        "fake_token": _fake_token,
        "disentangle": _disentangle,
        "prompt": _prompt,
    }
    row = gather[unit.parameters["kind"]](unit, bench)
    yield {**unit.parameters, "seed": unit.seed, **row}


def _model(unit: Unit, attempt: int = 0) -> HMM:
    family, states, vocab = (unit.parameters[name] for name in ("family", "states", "vocab"))
    seed, successors = 1000 * unit.seed + attempt, min(states, 2 + unit.seed % 3)
    if family == "dense":
        return HMM.random(states, vocab, 1, seed=seed)
    if family == "sparse":
        return HMM.random_sparse(states, vocab, 1, seed=seed, successors=successors)
    return essential.random_with_zeros(states, vocab, seed=seed, successors=successors)


def _model_and_task(unit: Unit) -> tuple[HMM, Tensor]:
    """The first model of the family with two essential states, and a task on them."""
    for attempt in range(100):
        hmm = _model(unit, attempt)
        task = essential.random_task(hmm, seed=1000 * unit.seed + attempt)
        if task is not None:
            return hmm, task
    raise ValueError(f"100 models of {unit} had fewer than two essential states")


def _soft_prompt(unit: Unit) -> Tensor:
    """inside: some entries 0, the others in (0, 1). corner: 0 or 1, one of them 1. zero: all 0."""
    draw, states = np.random.default_rng([unit.seed, 3]), unit.parameters["states"]
    taken = draw.random(states) < 0.4
    taken[draw.integers(states)] = True
    values = {"inside": draw.random(states), "corner": np.ones(states), "zero": np.zeros(states)}
    return torch.tensor(np.where(taken, values[unit.parameters["prompt"]], 0.0))


def _every_short(hmm: HMM, at_most: int) -> Tensor:
    """Every string of the support, of the largest length with at most so many strings."""
    length = 1
    while hmm.vocab_size ** (length + 1) <= at_most:
        length += 1
    tokens = all_sequences(hmm.vocab_size, length)
    return tokens[heads.in_support(hmm, tokens)]


def _sampled(hmm: HMM, count: int, bench: Bench) -> Tensor:
    first = replace(hmm, initial=hmm.initial @ hmm.transition, length=LONG)
    return first.sample(count, TorchRng(bench.rng("strings").seed))  # on the CPU, as the models


def _fake_token(unit: Unit, bench: Bench) -> Row:
    """τ and G against a sum over hidden paths, and on long strings against the HMM with z̃."""
    hmm, prompt = _model(unit), _soft_prompt(unit)
    short = all_sequences(hmm.vocab_size, 3)
    by_paths = prompts.left_out_by_paths(hmm, prompt, short)
    first = _compared(hmm, prompt, short, [1, 2, 3, 4], by_paths)
    long, where = _sampled(hmm, unit.parameters["strings"], bench), [1, 2, LONG // 2, LONG + 1]
    second = _compared(hmm, prompt, long, where, prompts.left_out(hmm, prompt, long, where))
    return {
        name: value + second[name] if isinstance(value, int) else largest([value, second[name]])
        for name, value in first.items()
    }


def _compared(
    hmm: HMM, prompt: Tensor, tokens: Tensor, positions: list[int], truth: prompts.LeftOut
) -> Row:
    """The embedding model against X̂. Its tokens are those of X̂ beyond H_1, where z̃ may stand."""
    where = [position - 1 for position in positions]
    state, log_mass = (part[:, where] for part in prompts.messages(hmm, prompt, tokens))
    outputs = prompts.model(hmm, prompt, tokens)[:, where]
    possible = ~torch.isneginf(truth.log_mass)
    later = possible & (torch.tensor(positions) > 1)
    return {
        "state_error": _most([(state - truth.state).abs()]),
        "output_error": _most([(outputs - truth.state @ hmm.emission)[possible].abs()]),
        "token_error": _most([(outputs - truth.token[..., :-1])[later].abs()]),
        "log_mass_error": _most([(log_mass - truth.log_mass)[possible].abs()]),
        "value_off_support": _most([outputs[~possible].abs()]),
        "support_mismatches": int((torch.isneginf(log_mass) == possible).sum()),
        "supported": int(possible.sum()),
        "off_support": int((~possible).sum()),
    }


def _disentangle(unit: Unit, bench: Bench) -> Row:
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
    return {
        "equation_error": _most(errors),
        "smallest_scale": float(positive.min()) if len(positive) else 0.0,
        "value_off_support": _most(values),
        "supported": len(positive),
        "off_support": off,
    }


def _prompt(unit: Unit, bench: Bench) -> Row:
    """The prompt and head of Theorem 3.6, and whether any head alone would do."""
    hmm, task = _model_and_task(unit)
    holds, found = prompts.conditions(hmm, task), prompts.witness(hmm, task)
    unit_of_score = float(found.head.abs().max())
    errors: list[Tensor] = []
    wrong = near = off = off_wrong = inputs = 0
    alone: Row = {}
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
        if not alone:  # the short strings
            alone = _head_alone(heads.masked_first(hmm, tokens)[clear], (score >= 0)[clear])
    return {
        "conditions_hold": holds.hold,
        "margin": holds.conditions[0].margin,
        "chosen": int(found.chosen.sum()),
        "essential": int(found.essential.sum()),
        "identity_error": _most(errors),
        "wrong_labels": wrong,
        "too_close_to_call": near,
        "off_support": off,
        "off_support_wrong": off_wrong,
        "inputs": inputs,
        **alone,
    }


def _head_alone(features: Tensor, labels: Tensor) -> Row:
    """Whether a linear head without a prompt gets these labels right, by a linear programme."""
    head = heads.least_hinge_head(features, labels)
    return {
        "head_alone_works": heads.linearly_separable(features, labels, margin=1e-7),
        "head_alone_wrong_share": float(((features @ head >= 0) != labels).double().mean()),
        "positive_share": float(labels.double().mean()),
    }


def _inputs(hmm: HMM, unit: Unit, bench: Bench) -> Iterable[Tensor]:
    yield _every_short(hmm, unit.parameters["enumerate"])
    yield from _sampled(hmm, unit.parameters["strings"], bench).split(500)


def _most(parts: Sequence[Tensor]) -> float:
    """The largest entry; 0 without any, nan if one is."""
    return largest([float(part.max()) for part in parts if part.numel()] or [0.0])


# ---------------------------------------------------------------- judging


def judge_fake_token(rows: Rows) -> Verdict:
    mine = rows_of(rows, "fake_token")
    columns = ["state_error", "output_error", "token_error", "log_mass_error"]
    verdict = judge_equal(mine, columns, "τ = P[H_i, X̂_-i] and G = W P[H_i | X̂_-i]")
    return _with_zeros(verdict, mine, "support_mismatches")


def judge_disentangle(rows: Rows) -> Verdict:
    mine = rows_of(rows, "disentangle")
    verdict = judge_equal(mine, ["equation_error"], "P[H2|z̃,x] = r D (P[z̃,H2] ∘ P[H0|x])")
    if mine and not all(row["smallest_scale"] > 0 for row in mine):
        verdict = Verdict(Outcome.FAILS, f"r_x is not positive; {verdict.because}")
    return _with_zeros(verdict, mine)


def _with_zeros(verdict: Verdict, rows: Sequence[Row], *counts: str) -> Verdict:
    """The verdict on the equation, and exact zeros off the support, which must have occurred."""
    if not rows:
        return verdict
    supported, off = (sum(row[name] for row in rows) for name in ("supported", "off_support"))
    value = largest([float(row["value_off_support"]) for row in rows])
    mismatches = sum(row[name] for row in rows for name in counts)
    because = f"{verdict.because}; exactly 0 on {off} inputs off the support, {supported} on it"
    measured = {**verdict.measured, "supported": supported, "off_support": off}
    if value != 0.0 or mismatches:
        because = f"off the support: largest value {value:.1e}, {mismatches} mismatches"
        return Verdict(Outcome.FAILS, because, measured)
    if verdict.outcome is Outcome.HOLDS and (supported < ENOUGH_INPUTS or not off):
        return Verdict(Outcome.UNDECIDED, f"too few inputs: {because}", measured)
    return Verdict(verdict.outcome, because, measured)


def judge_prompt(rows: Rows) -> Verdict:
    """HOLDS needs |H| > |X| among the models and prompts off the support among the inputs."""
    mine = [row for row in rows_of(rows, "prompt") if row["conditions_hold"]]
    verdict = judge_equal(mine, ["identity_error"], "b·G2 = r·μᵀP[H0|x]")
    if not mine:
        return verdict
    wide = [row for row in mine if row["states"] > row["vocab"]]
    wrong = sum(row["wrong_labels"] + row["off_support_wrong"] for row in mine)
    off = sum(row["off_support"] for row in mine)
    called = [
        sum(row["inputs"] - row["too_close_to_call"] - row["off_support"] for row in some)
        for some in (mine, wide)
    ]
    defeated = sum(not row["head_alone_works"] for row in wide)
    because = (
        f"{wrong} wrong labels on {called[0]} inputs and {off} off the support, {len(wide)} of "
        f"{len(mine)} models with |H| > |X|, on {defeated} of which no linear head works without "
        f"a prompt; {verdict.because}"
    )
    measured = {
        **verdict.measured,
        "wrong_labels": wrong,
        "inputs": called[0],
        "off_support": off,
        "wide_models": len(wide),
        "wide_models_no_head": defeated,
    }
    if wrong or verdict.outcome is Outcome.FAILS:
        return Verdict(Outcome.FAILS, because, measured)
    if called[1] < ENOUGH_INPUTS or not off:
        return Verdict(Outcome.UNDECIDED, f"too few inputs: {because}", measured)
    return Verdict(Outcome.HOLDS, because, measured)


def contrast_figure(rows: Rows) -> Figure:
    """Wrong labels with and without the prompt, and the error against the margin."""
    mine = rows_of(rows, "prompt")
    ratios = [row["states"] / row["vocab"] for row in mine]
    alone = [row["head_alone_wrong_share"] for row in mine]
    prompted = [row["wrong_labels"] / row["inputs"] for row in mine]

    def errors(label: str, kind: Kind, some: list[Row]) -> Series:
        margins, largest = [row["margin"] for row in some], [row["identity_error"] for row in some]
        return Series(label, kind, margins, [max(e, 1e-17) for e in largest], line=False)

    labels = [
        Series("head alone, least hinge loss", "control", ratios, alone, line=False),
        Series("prompt and head of the proof", "ours", ratios, prompted, line=False),
    ]
    margins = [
        errors("|H| ≤ |X|", "control", [row for row in mine if row["states"] <= row["vocab"]]),
        errors("|H| > |X|", "ours", [row for row in mine if row["states"] > row["vocab"]]),
    ]
    sigma = "smallest singular value of the essential emission columns"
    return Figure(
        "prompt_contrast",
        "With more states than tokens, a prompt and a head do what no linear head does alone",
        [
            Panel(labels, "|H| / |X|", "share of wrong labels"),
            Panel(margins, sigma, "largest error of b·G2", x_log=True, y_log=True),
        ],
        "One point per random HMM and task on its essential states. Left: every string of a short "
        "length. Right: also long strings; errors relative to the head's largest weight.",
    )


_ZEROS: Row = {"value_off_support": 0.0, "supported": 1000, "off_support": 10}
_ERRORS: Row = {"state_error": 0.0, "output_error": 0.0, "token_error": 0.0, "log_mass_error": 0.0}
_FAKE_TOKEN: Row = {"kind": "fake_token", **_ERRORS, "support_mismatches": 0, **_ZEROS}
_DISENTANGLE: Row = {"kind": "disentangle", "equation_error": 0.0, "smallest_scale": 1.0, **_ZEROS}
_WIDE: Row = {"states": 12, "vocab": 4, "conditions_hold": True, "head_alone_works": False}
_COUNTS: Row = {"inputs": 1000, "too_close_to_call": 0, "off_support": 10, "off_support_wrong": 0}
_PROMPT: Row = {"kind": "prompt", **_WIDE, "identity_error": 0.0, "wrong_labels": 0, **_COUNTS}


def _broken(row: Row, **values: int | float) -> list[list[Row]]:
    """One set of rows per value, with that value alone out of place."""
    return [[row, row | {name: value}] for name, value in values.items()]


STUDY = Study(
    name="exact_prompts",
    about="Do a soft prompt and a linear head compute the task where no linear head does alone?",
    settings={
        Scale.SMOKE: ExactPrompts(seeds=2, narrow=(4,), wide=(6, 12), vocab=4, strings=20),
        Scale.LAPTOP: ExactPrompts(seeds=5, strings=300),
        Scale.PAPER: ExactPrompts(seeds=15, wide=(12, 20, 30, 40)),
    },
    units=units,
    run=run,
    claims=[
        Claim(
            "wei.lem-B.1",
            judge_fake_token,
            _broken(
                _FAKE_TOKEN,
                **dict.fromkeys(_ERRORS, 1e-3),
                value_off_support=1e-300,
                support_mismatches=1,
            ),
        ),
        Claim(
            "wei.lem-B.2",
            judge_disentangle,
            _broken(
                _DISENTANGLE, equation_error=1e-3, smallest_scale=0.0, value_off_support=1e-300
            ),
        ),
        Claim(
            "wei.thm-3.6",
            judge_prompt,
            _broken(_PROMPT, identity_error=1e-3, wrong_labels=1, off_support_wrong=1),
        ),
    ],
    figures=[contrast_figure],
)
