"""Linear heads on the exact masked LM: Proposition 3.4, Theorem 3.3 and its converse [wei, 3].

Each unit draws a model, builds what the proof builds, and gathers the distance between the two
sides of the statement on every short string and on long sampled ones.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from triptych.core.estimates import Outcome
from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.structures.hmm import HMM
from triptych.studies.figures import Figure, Panel, Series
from triptych.studies.judging import EXACT, judge_equal, rows_of
from triptych.studies.study import Bench, Claim, Row, Rows, Scale, Settings, Study, Unit, Verdict
from triptych.theory import heads

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


def units(settings: ExactHeads) -> Sequence[Unit]:
    """One per statement, size and seed."""
    if min(settings.states) < 1 or settings.vocab < 2 or settings.strings < 1:
        raise ValueError("states must be at least 1, vocab at least 2, strings at least 1")
    if min(settings.wide) <= settings.vocab:
        raise ValueError(f"wide must be above vocab, which is {settings.vocab}")
    found: list[Unit] = []
    for seed in range(settings.seeds):
        found.append(Unit({"kind": "conditional"}, seed))
        found.append(Unit({"kind": "twins"}, seed))
        for states in settings.states:
            size = {"states": states, "vocab": settings.vocab, "strings": settings.strings}
            found.append(Unit({"kind": "head", **size}, seed))
        for family, sizes in (
            ("dense", settings.wide),
            ("sparse", settings.wide),
            ("mixed", [settings.vocab]),
        ):
            for states in sizes:
                size = {"family": family, "states": states, "vocab": settings.vocab}
                found.append(Unit({"kind": "dependent", **size}, seed))
    return found


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Dispatch on the statement; every row carries the unit's parameters and seed."""
    gather: dict[str, Callable[[Unit, Bench], Row]] = {
        "conditional": _conditional,
        "head": _head,
        "twins": _twins,
        "dependent": _dependent,
    }
    row = gather[unit.parameters["kind"]](unit, bench)
    yield {**unit.parameters, "seed": unit.seed, **row}


def _rows_of_probabilities(rows: int, outcomes: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    weights = -torch.rand(rows, outcomes, generator=generator, dtype=torch.float64).log()
    return weights / weights.sum(-1, keepdim=True)


def _conditional(unit: Unit, bench: Bench) -> Row:
    """U independent of V given Z, drawn at random: both equations of Proposition 3.4."""
    z_given_v = _rows_of_probabilities(7, 4, 3 * unit.seed)  # [v, z]
    u_given_z = _rows_of_probabilities(4, 5, 3 * unit.seed + 1)  # [z, u]
    p_v = _rows_of_probabilities(1, 7, 3 * unit.seed + 2)[0]
    joint = p_v[:, None, None] * z_given_v[:, :, None] * u_given_z[None]  # [v, z, u]
    u_given_v = joint.sum(1) / joint.sum((1, 2))[:, None]
    predicted = z_given_v @ u_given_z
    recovered = u_given_v @ heads.left_inverse(u_given_z.T).T
    return {
        "equation_error": float((u_given_v - predicted).abs().max()),
        "recovery_error": float((recovered - z_given_v).abs().max()),
        "smallest_singular_value": heads.smallest_singular_value(u_given_z.T),
    }


def _head(unit: Unit, bench: Bench) -> Row:
    """The head of Theorem 3.3 on every short string, and on long sampled ones."""
    states, vocab = unit.parameters["states"], unit.parameters["vocab"]
    hmm = HMM.random(states, vocab, 1, seed=unit.seed)
    generator = torch.Generator().manual_seed(unit.seed)
    task = torch.randn(states, generator=generator, dtype=torch.float64)
    head = heads.witness(hmm, task)
    holds = heads.conditions(hmm)
    short = all_sequences(vocab, 3)
    long = hmm.with_length(128).sample(
        unit.parameters["strings"], TorchRng(bench.rng("strings").seed)
    )
    errors, wrong, near = [], 0, 0
    for tokens in (short, long):
        posterior, features = heads.state_before(hmm, tokens), heads.masked_first(hmm, tokens)
        score, predicted = posterior @ task, features @ head
        scale = 1.0 / (posterior @ heads.shift(hmm))
        errors.append(float((predicted - scale * score).abs().max()))
        clear = score.abs() > SIGN_MARGIN
        wrong += int(((score >= 0) != (predicted >= 0))[clear].sum())
        near += int((~clear).sum())
    return {
        "conditions_hold": holds.hold,
        "smallest_singular_value": holds.conditions[0].margin,
        "identity_error": max(errors),
        "wrong_labels": wrong,
        "too_close_to_call": near,
        "inputs": len(short) + len(long),
    }


def _twins(unit: Unit, bench: Bench) -> Row:
    """Two inputs with equal G_1 and different labels; and random tasks beyond the rank."""
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
    return {
        "feature_distance": float((features[0] - features[1]).abs().max()),
        "score_first": float(scores[0]),
        "score_second": float(scores[1]),
        "regular": all(c.holds for c in heads.conditions(hmm).conditions[1:]),
        "random_wide_task_separable": separable,
    }


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


def _dependent(unit: Unit, bench: Bench) -> Row:
    """A random model with dependent emission columns, and a task made to defeat every head."""
    states, vocab = unit.parameters["states"], unit.parameters["vocab"]
    hmm = _with_dependent_columns(unit.parameters["family"], states, vocab, unit.seed)
    strings = all_sequences(vocab, 3)
    found = heads.defeating_task(hmm, strings)
    if found is None:
        return {"defeated": False}
    features = heads.masked_first(hmm, found.inputs)
    score = heads.state_before(hmm, found.inputs) @ found.task
    holds = heads.conditions(hmm).conditions
    return {
        "defeated": True,
        "dependent_columns": not holds[0].holds,
        "regular": all(c.holds for c in holds[1:]),
        "inputs_of_proof": len(found.inputs),
        "mixture_distance": float((found.weights @ features).abs().max()),
        "smallest_score": float((score * found.weights.sign()).min()),
        "smallest_weight": float(found.weights.abs().min()),
        "separable": heads.linearly_separable(features, score >= 0, margin=1e-7),
    }


def judge_conditional(rows: Rows) -> Verdict:
    return judge_equal(
        rows_of(rows, "conditional"), ["equation_error", "recovery_error"], "both sides agree"
    )


def judge_head(rows: Rows) -> Verdict:
    mine = [row for row in rows_of(rows, "head") if row["conditions_hold"]]
    verdict = judge_equal(mine, ["identity_error"], "b·G1 = r·μᵀP[H0|x]")
    if verdict.outcome is Outcome.UNDECIDED:
        return verdict
    wrong = sum(row["wrong_labels"] for row in mine)
    inputs = sum(row["inputs"] - row["too_close_to_call"] for row in mine)
    if wrong == 0 and inputs < 100:
        return Verdict(Outcome.UNDECIDED, f"only {inputs} inputs have a label to compare")
    outcome = verdict.outcome if wrong == 0 else Outcome.FAILS
    because = f"{wrong} wrong labels on {inputs} inputs; {verdict.because}"
    return Verdict(outcome, because, {**verdict.measured, "wrong_labels": wrong, "inputs": inputs})


def judge_needs_rank(rows: Rows) -> Verdict:
    """Two inputs with equal G1 on every twin model; a proof of defeat on every random one.

    The proof is Σ c G1 = 0 with c > 0 on inputs of label 1 and c < 0 on inputs of label 0, and
    the linear programme, which does not know it, agrees.
    """
    twins, dependent = rows_of(rows, "twins"), rows_of(rows, "dependent")
    shown = [
        row
        for row in twins
        if row["regular"]
        and row["feature_distance"] <= EXACT
        and row["score_first"] > SIGN_MARGIN
        and row["score_second"] < -SIGN_MARGIN
    ]
    proved = [
        row
        for row in dependent
        if row["defeated"]
        and row["dependent_columns"]
        and row["regular"]
        and row["mixture_distance"] <= WEIGHT_MARGIN * row["smallest_weight"]
        and row["smallest_score"] > SIGN_MARGIN
        and not row["separable"]
    ]
    inseparable = sum(not row["random_wide_task_separable"] for row in twins)
    measured = {
        "counterexamples": len(shown),
        "models": len(twins),
        "random_inseparable": inseparable,
        "defeated": len(proved),
        "dependent_models": len(dependent),
    }
    because = (
        f"{len(shown)} of {len(twins)} models have two inputs with equal G1 and different labels; "
        f"{len(proved)} of {len(dependent)} random models with dependent emission columns have a "
        "task with mixtures of inputs of either label whose G1 are equal; a linear programme finds "
        f"no head for {inseparable} of {len(twins)} random tasks with |H| = 12, |X| = 3"
    )
    if len(shown) < len(twins) or len(proved) < len(dependent):
        return Verdict(Outcome.FAILS, because, measured)
    if not twins or not dependent:
        return Verdict(Outcome.UNDECIDED, f"one kind of model has no rows yet: {because}", measured)
    return Verdict(Outcome.HOLDS, because, measured)


def margin_figure(rows: Rows) -> Figure:
    """The error of the head against the margin of the assumption."""
    mine = sorted(rows_of(rows, "head"), key=lambda row: row["smallest_singular_value"])
    margins = [row["smallest_singular_value"] for row in mine]
    errors = [max(row["identity_error"], 1e-17) for row in mine]
    return Figure(
        "head_margin",
        "A linear head on the exact masked LM computes every linear task on P[H0 | x]",
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


_CONDITIONAL: Row = {"kind": "conditional", "equation_error": 0.0, "recovery_error": 0.0}
_HEAD: Row = {
    "kind": "head",
    "conditions_hold": True,
    "identity_error": 1e-12,
    "wrong_labels": 0,
    "too_close_to_call": 0,
    "inputs": 1000,
}
_TWINS: Row = {
    "kind": "twins",
    "regular": True,
    "feature_distance": 0.0,
    "score_first": 1.0,
    "score_second": -1.0,
    "random_wide_task_separable": False,
}
_DEPENDENT: Row = {
    "kind": "dependent",
    "defeated": True,
    "dependent_columns": True,
    "regular": True,
    "mixture_distance": 0.0,
    "smallest_score": 0.1,
    "smallest_weight": 0.1,
    "separable": False,
}

STUDY = Study(
    name="exact_heads",
    about="Does the head that the proof builds compute the task on the exact masked LM?",
    settings={
        Scale.SMOKE: ExactHeads(seeds=2, states=(2, 4), wide=(7, 12), strings=50),
        Scale.LAPTOP: ExactHeads(seeds=10, strings=2000),
        Scale.PAPER: ExactHeads(seeds=40, states=(2, 3, 4, 5, 6), strings=5000),
    },
    units=units,
    run=run,
    claims=[
        Claim(
            "wei.prop-3.4",
            judge_conditional,
            [[_CONDITIONAL | {"equation_error": 1e-3}], [_CONDITIONAL | {"recovery_error": 1e-3}]],
        ),
        Claim(
            "wei.thm-3.3",
            judge_head,
            [[_HEAD | {"wrong_labels": 1}], [_HEAD | {"identity_error": 1e-3}]],
        ),
        Claim(
            "wei.thm-3.3-needs-rank",
            judge_needs_rank,
            [
                [_DEPENDENT, _TWINS | {"feature_distance": 0.1}],
                [_DEPENDENT, _TWINS | {"score_first": -1.0}],
                [_DEPENDENT, _TWINS | {"score_second": 1.0}],
                [_DEPENDENT, _TWINS | {"regular": False}],
                [_TWINS, _DEPENDENT | {"defeated": False}],
                [_TWINS, _DEPENDENT | {"dependent_columns": False}],
                [_TWINS, _DEPENDENT | {"regular": False}],
                [_TWINS, _DEPENDENT | {"mixture_distance": 1e-3}],
                [_TWINS, _DEPENDENT | {"smallest_score": -0.1}],
                [_TWINS, _DEPENDENT | {"smallest_weight": 0.0, "mixture_distance": 1e-12}],
                [_TWINS, _DEPENDENT | {"separable": True}],
            ],
        ),
    ],
    figures=[margin_figure],
)
