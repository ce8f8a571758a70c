"""Linear heads on the exact masked LM: Proposition 3.4, Theorem 3.3 and its converse [wei, 3].

Each unit draws a model, builds what the proof builds, and gathers the distance between the two
sides of the statement on every short string and on long sampled ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.core.validation import UserError
from triptych.structures.hidden_markov.hmm import HMM
from triptych.studies.api.decide import EXACT, Verdict, at_least, decide, exactly, largest, none
from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.theory.tuning import heads

SIGN_MARGIN = 1e-9  # scores closer to 0 have no sign to compare
WEIGHT_MARGIN = 1e-9  # Σ c G1 is 0 when it is this much smaller than every weight c


@dataclass(frozen=True)
class ExactHeads(Settings):
    """Sizes of the models that are drawn.

    states    |H| of the models, each with |X| = vocab
    wide      |H| of the models with dependent emission columns, |X| = vocab
    strings   sampled strings of length 128 per model
    """

    seeds: int = 2
    states: tuple[int, ...] = (2, 4, 6)
    wide: tuple[int, ...] = (7, 12, 40)
    vocab: int = 6
    strings: int = 500


@dataclass(frozen=True)
class DrawConditional(Unit):
    """U independent of V given Z."""


@dataclass(frozen=True)
class DrawTwins(Unit):
    """An HMM with two states that emit alike."""


@dataclass(frozen=True)
class DrawRegular(Unit):
    """A random HMM with independent emission columns."""

    states: int
    vocab: int
    strings: int


@dataclass(frozen=True)
class DrawDependent(Unit):
    """A random HMM with dependent emission columns.

    family    dense, sparse: more states than tokens; mixed: one state emits like a mix of two
    """

    family: str
    states: int
    vocab: int


ModelUnit = DrawConditional | DrawTwins | DrawRegular | DrawDependent


@dataclass(frozen=True)
class Conditional:
    """Both equations of Proposition 3.4 on random laws."""

    seed: int
    equation_error: float
    recovery_error: float
    smallest_singular_value: float


@dataclass(frozen=True)
class Head:
    """The head of Theorem 3.3 on every short string, and on long sampled ones."""

    seed: int
    states: int
    conditions_hold: bool
    smallest_singular_value: float
    identity_error: float
    wrong_labels: int
    too_close_to_call: int
    inputs: int


@dataclass(frozen=True)
class Twins:
    """Two inputs with equal G_1 and different labels; and a random task beyond the rank.

    regular    every condition of the theorem but the rank holds
    """

    seed: int
    feature_distance: float
    score_first: float
    score_second: float
    regular: bool
    random_wide_task_separable: bool


@dataclass(frozen=True)
class Defeat:
    """A task made to defeat every head on one model, and the proof that it does.

    mixture_distance    |Σ c G1|, where c > 0 on inputs of label 1 and c < 0 on inputs of label 0
    separable           what a linear programme says, which does not know the proof
    """

    seed: int
    family: str
    states: int
    dependent_columns: bool
    regular: bool
    inputs_of_proof: int
    mixture_distance: float
    smallest_score: float
    smallest_weight: float
    separable: bool


@dataclass(frozen=True)
class NoDefeat:
    """A model with dependent columns for which no such task was found."""

    seed: int
    family: str
    states: int


Row = Conditional | Head | Twins | Defeat | NoDefeat


def units(settings: ExactHeads) -> Sequence[ModelUnit]:
    """One per statement, size and seed."""
    if min(settings.states) < 1 or settings.vocab < 2 or settings.strings < 1:
        raise UserError("states must be at least 1, vocab at least 2, strings at least 1")
    if min(settings.wide) <= settings.vocab:
        raise UserError(f"wide must be above vocab, which is {settings.vocab}")
    found: list[ModelUnit] = []
    for seed in range(settings.seeds):
        found.append(DrawConditional(seed=seed))
        found.append(DrawTwins(seed=seed))
        for states in settings.states:
            found.append(DrawRegular(states, settings.vocab, settings.strings, seed=seed))
        for family, sizes in (
            ("dense", settings.wide),
            ("sparse", settings.wide),
            ("mixed", [settings.vocab]),
        ):
            found += [DrawDependent(family, size, settings.vocab, seed=seed) for size in sizes]
    return found


def run(unit: ModelUnit, bench: Bench) -> Iterable[Row]:
    """What one model says about its statement."""
    match unit:
        case DrawConditional():
            yield _conditional(unit)
        case DrawTwins():
            yield _twins(unit)
        case DrawRegular():
            yield _head(unit, bench)
        case DrawDependent():
            yield _dependent(unit)


def _rows_of_probabilities(rows: int, outcomes: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    weights = -torch.rand(rows, outcomes, generator=generator, dtype=torch.float64).log()
    return weights / weights.sum(-1, keepdim=True)


def _conditional(unit: DrawConditional) -> Conditional:
    z_given_v = _rows_of_probabilities(7, 4, 3 * unit.seed)  # [v, z]
    u_given_z = _rows_of_probabilities(4, 5, 3 * unit.seed + 1)  # [z, u]
    p_v = _rows_of_probabilities(1, 7, 3 * unit.seed + 2)[0]
    joint = p_v[:, None, None] * z_given_v[:, :, None] * u_given_z[None]  # [v, z, u]
    u_given_v = joint.sum(1) / joint.sum((1, 2))[:, None]
    predicted = z_given_v @ u_given_z
    recovered = u_given_v @ heads.left_inverse(u_given_z.T).T
    return Conditional(
        seed=unit.seed,
        equation_error=float((u_given_v - predicted).abs().max()),
        recovery_error=float((recovered - z_given_v).abs().max()),
        smallest_singular_value=heads.smallest_singular_value(u_given_z.T),
    )


def _head(unit: DrawRegular, bench: Bench) -> Head:
    hmm = HMM.random(unit.states, unit.vocab, 1, seed=unit.seed)
    generator = torch.Generator().manual_seed(unit.seed)
    task = torch.randn(unit.states, generator=generator, dtype=torch.float64)
    head = heads.witness(hmm, task)
    holds = heads.conditions(hmm)
    short = all_sequences(unit.vocab, 3)
    long = hmm.with_length(128).sample(unit.strings, TorchRng(bench.rng("strings").seed))
    errors, wrong, near = [], 0, 0
    for tokens in (short, long):
        posterior, features = heads.state_before(hmm, tokens), heads.masked_first(hmm, tokens)
        score, predicted = posterior @ task, features @ head
        scale = 1.0 / (posterior @ heads.shift(hmm))
        errors.append(float((predicted - scale * score).abs().max()))
        clear = score.abs() > SIGN_MARGIN
        wrong += int(((score >= 0) != (predicted >= 0))[clear].sum())
        near += int((~clear).sum())
    return Head(
        seed=unit.seed,
        states=unit.states,
        conditions_hold=holds.hold,
        smallest_singular_value=holds.conditions[0].margin,
        identity_error=largest(errors),
        wrong_labels=wrong,
        too_close_to_call=near,
        inputs=len(short) + len(long),
    )


def _twins(unit: DrawTwins) -> Twins:
    hmm, task = heads.twin_states(unit.seed)
    inputs = torch.tensor([[1], [2]])
    features, scores = heads.masked_first(hmm, inputs), heads.state_before(hmm, inputs) @ task
    wide = HMM.random(12, 3, 1, seed=unit.seed)
    generator = torch.Generator().manual_seed(unit.seed)
    mu = torch.randn(12, generator=generator, dtype=torch.float64)
    strings = all_sequences(3, 6)
    score = heads.state_before(wide, strings) @ mu
    score = score - score.median()  # the same task with μ shifted, so that both labels occur
    clear = score.abs() > 1e-6
    separable = heads.linearly_separable(
        heads.masked_first(wide, strings)[clear], (score >= 0)[clear], margin=1e-7
    )
    return Twins(
        seed=unit.seed,
        feature_distance=float((features[0] - features[1]).abs().max()),
        score_first=float(scores[0]),
        score_second=float(scores[1]),
        regular=all(c.holds for c in heads.conditions(hmm).conditions[1:]),
        random_wide_task_separable=separable,
    )


def _with_dependent_columns(family: str, states: int, vocab: int, seed: int) -> HMM:
    """dense, sparse: more states than tokens. mixed: one state emits like an even mix of two."""
    if family == "sparse":
        return HMM.random_sparse(states, vocab, 1, seed=seed, successors=3)
    hmm = HMM.random(states, vocab, 1, seed=seed)
    if family == "mixed":
        emission = hmm.emission.clone()
        emission[-1] = (emission[0] + emission[1]) / 2
        hmm = replace(hmm, emission=emission)
    return hmm


def _dependent(unit: DrawDependent) -> Defeat | NoDefeat:
    hmm = _with_dependent_columns(unit.family, unit.states, unit.vocab, unit.seed)
    found = heads.defeating_task(hmm, all_sequences(unit.vocab, 3))
    if found is None:
        return NoDefeat(unit.seed, unit.family, unit.states)
    features = heads.masked_first(hmm, found.inputs)
    score = heads.state_before(hmm, found.inputs) @ found.task
    holds = heads.conditions(hmm).conditions
    return Defeat(
        seed=unit.seed,
        family=unit.family,
        states=unit.states,
        dependent_columns=not holds[0].holds,
        regular=all(c.holds for c in holds[1:]),
        inputs_of_proof=len(found.inputs),
        mixture_distance=float((found.weights @ features).abs().max()),
        smallest_score=float((score * found.weights.sign()).min()),
        smallest_weight=float(found.weights.abs().min()),
        separable=heads.linearly_separable(features, score >= 0, margin=1e-7),
    )


def judge_conditional(rows: Rows[Row]) -> Verdict:
    laws = rows.of(Conditional)
    return decide(
        exactly(
            "P[U | V] against P[U | Z] P[Z | V]: largest difference",
            largest([r.equation_error for r in laws]),
        ),
        exactly(
            "P[Z | V] against what the left inverse recovers: largest difference",
            largest([r.recovery_error for r in laws]),
        ),
        needs=[at_least("random laws", len(laws), 1)],
    )


def judge_head(rows: Rows[Row]) -> Verdict:
    models = [row for row in rows.of(Head) if row.conditions_hold]
    inputs = sum(row.inputs - row.too_close_to_call for row in models)
    return decide(
        none(
            "wrong labels of the head that the proof builds",
            sum(row.wrong_labels for row in models),
            of=inputs,
        ),
        exactly(
            "score of the head against a positive multiple of the task μᵀP[H0 | x]: largest "
            "difference",
            largest([r.identity_error for r in models]),
        ),
        needs=[at_least("inputs with a label", inputs, 100)],
    )


def _confused(row: Twins) -> bool:
    """Two inputs with equal G1 and different labels, and nothing but the rank is wrong."""
    return (
        row.regular
        and row.feature_distance <= EXACT
        and row.score_first > SIGN_MARGIN
        and row.score_second < -SIGN_MARGIN
    )


def _defeated(row: Defeat) -> bool:
    """The proof is sound, its model is as the statement asks, and the programme agrees."""
    return (
        row.dependent_columns
        and row.regular
        and row.mixture_distance <= WEIGHT_MARGIN * row.smallest_weight
        and row.smallest_score > SIGN_MARGIN
        and not row.separable
    )


def judge_needs_rank(rows: Rows[Row]) -> Verdict:
    twins, defeats, missed = rows.of(Twins), rows.of(Defeat), rows.of(NoDefeat)
    spared = len(missed) + sum(not _defeated(row) for row in defeats)
    return decide(
        none(
            "models with two states that emit alike, on which no two inputs have equal G1 and "
            "different labels",
            sum(not _confused(row) for row in twins),
            of=len(twins),
        ),
        none(
            "random models with dependent columns on which a linear head exists for every task "
            "tried",
            spared,
            of=len(defeats) + len(missed),
        ),
        needs=[
            at_least("twin models", len(twins), 1),
            at_least("random models with dependent columns", len(defeats) + len(missed), 1),
        ],
        measured={"random_inseparable": sum(not r.random_wide_task_separable for r in twins)},
    )


def margin_figure(rows: Rows[Row]) -> Figure:
    """The error of the head against the margin of the assumption."""
    models = sorted(rows.of(Head), key=lambda row: row.smallest_singular_value)
    margins = [row.smallest_singular_value for row in models]
    errors = [max(row.identity_error, 1e-17) for row in models]
    return Figure(
        "head_margin",
        "Error of the linear head that the proof builds, on the exact masked LM",
        [
            Panel(
                [Series("largest error of b·G1", "ours", margins, errors, line=False)],
                "smallest singular value of the emission matrix",
                "error",
                x_log=True,
                y_log=True,
            )
        ],
        "One point per random HMM; rounding error grows as the assumption comes close to failing.",
    )


_CONDITIONAL = Conditional(0, 0.0, 0.0, 0.1)
_HEAD = Head(0, 4, True, 0.1, 1e-12, 0, 0, 1000)
_TWINS = Twins(0, 0.0, 1.0, -1.0, True, False)
_DEFEAT = Defeat(0, "dense", 12, True, True, 9, 0.0, 0.1, 0.1, False)

STUDY = Study(
    name="exact_heads",
    question="Does the head that the proof builds compute the task on the exact masked LM?",
    settings={
        Scale.SMOKE: ExactHeads(seeds=2, states=(2, 4), wide=(7, 12), strings=50),
        Scale.LAPTOP: ExactHeads(seeds=10, strings=2000),
        Scale.PAPER: ExactHeads(seeds=40, states=(2, 3, 4, 5, 6), strings=5000),
    },
    units=units,
    run=run,
    rows=(Conditional, Head, Twins, Defeat, NoDefeat),
    claims=[
        Claim(
            "wei.prop-3.4",
            judge_conditional,
            refuted_by=[
                [replace(_CONDITIONAL, equation_error=1e-3)],
                [replace(_CONDITIONAL, recovery_error=1e-3)],
            ],
            held_by=[_CONDITIONAL],
        ),
        Claim(
            "wei.thm-3.3",
            judge_head,
            refuted_by=[[replace(_HEAD, wrong_labels=1)], [replace(_HEAD, identity_error=1e-3)]],
            held_by=[_HEAD],
        ),
        Claim(
            "wei.thm-3.3-needs-rank",
            judge_needs_rank,
            refuted_by=[
                [_DEFEAT, replace(_TWINS, feature_distance=0.1)],
                [_DEFEAT, replace(_TWINS, score_first=-1.0)],
                [_DEFEAT, replace(_TWINS, score_second=1.0)],
                [_DEFEAT, replace(_TWINS, regular=False)],
                [_TWINS, NoDefeat(0, "dense", 12)],
                [_TWINS, replace(_DEFEAT, dependent_columns=False)],
                [_TWINS, replace(_DEFEAT, regular=False)],
                [_TWINS, replace(_DEFEAT, mixture_distance=1e-3)],
                [_TWINS, replace(_DEFEAT, smallest_score=-0.1)],
                [_TWINS, replace(_DEFEAT, smallest_weight=0.0, mixture_distance=1e-12)],
                [_TWINS, replace(_DEFEAT, separable=True)],
            ],
            held_by=[_TWINS, _DEFEAT],
        ),
    ],
    figures=[margin_figure],
)
