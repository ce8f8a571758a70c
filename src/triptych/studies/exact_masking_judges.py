"""The judges of `exact_masking`, with rows that refute and rows that hold."""

import math
from collections.abc import Sequence
from typing import Any

from triptych.core.estimates import Outcome
from triptych.studies.exact_masking_finite import FINITE_HELD
from triptych.studies.judging import largest, rows_of, without_nan
from triptych.studies.study import Row, Rows, Verdict

EXACT = 1e-10  # agreement of two ways to a matrix, relative
CONVEX = 1e-9  # how far below 0 rounding may bring the least eigenvalue of a Hessian, relative
WHITENED = 1e-6  # by which a ratio of variances may exceed its bound, in any direction
CONDITION = 1e6  # of the information; beyond, whitened matrices lose too many digits to be judged
READINGS = ("as printed", "K = {0}", "K = {1}")  # of the example of Lemma 4.3.1
DIFFERENT = 1e-3  # probabilities, or parameters, that are said to differ do so by this much
_NO_ROWS = Verdict(Outcome.UNDECIDED, "there are no rows yet")


def _numbers(rows: Sequence[Row], columns: Sequence[str]) -> bool:
    """Whether all of these are finite numbers; None stands for "there is none"."""
    values = [row[column] for row in rows for column in columns]
    return all(value is None or math.isfinite(value) for value in values)


def _thin(rows: Sequence[Row], models: int = 2) -> str:
    """Why there is too little evidence, or nothing."""
    return "" if len({row["model"] for row in rows}) >= models else f"{models} models are needed; "


def _well_conditioned(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """The rows whose Fisher information has a condition number that can be judged, and a clause."""
    kept = [row for row in rows if row["condition"] <= CONDITION]
    left = {(row["model"], row["seed"]) for row in rows if not row["condition"] <= CONDITION}
    if not left:
        return kept, ""
    models = "model is" if len(left) == 1 else "models are"
    return kept, f" ({len(left)} {models} left out: the condition of I is above {CONDITION:g})"


def _verdict(holds: bool, thin: str, because: str, measured: dict[str, Any]) -> Verdict:
    if not holds:
        return Verdict(Outcome.FAILS, because, measured)
    return Verdict(Outcome.UNDECIDED if thin else Outcome.HOLDS, thin + because, measured)


# ------------------------------------------------------------------ matrices


@without_nan
def judge_information(rows: Rows) -> Verdict:
    """Hessian of the loss = covariance of the scores at the truth, to 1e-10, and no gradient.

    With masks that look at x too [li, Lemma 4.3.3]. UNDECIDED on one model.
    """
    mine = rows_of(rows, "law")
    if not mine:
        return _NO_ROWS
    worst = {c: largest([row[c] for row in mine]) for c in ("information_error", "gradient_error")}
    looking = sum(row["adaptive"] for row in mine)
    because = (
        f"the Hessian of the loss and the covariance of the scores differ by at most "
        f"{worst['information_error']:.0e} of their size on {len(mine)} pairs of a model and a "
        f"mask law ({looking} of them look at the sequence); the gradient at the truth is at most "
        f"{worst['gradient_error']:.0e}"
    )
    return _verdict(all(v <= EXACT for v in worst.values()), _thin(mine), because, worst)


@without_nan
def judge_order(rows: Rows) -> Verdict:
    """Γ_{k+1} ⪯ Γ_k for every k: no direction keeps more than 1 + 1e-6 of its variance.

    That is the largest eigenvalue of Γ_k^-½ Γ_{k+1} Γ_k^-½, so stiff directions count as much as
    others. Families whose information has a condition number above 1e6 are left out.
    """
    every = rows_of(rows, "order")
    if not every:
        return _NO_ROWS
    if not _numbers(every, ["most_kept", "least_kept", "all_masks_kept"]):
        return Verdict(Outcome.UNDECIDED, "a ratio of variances is not a number")
    mine, left = _well_conditioned(every)
    if not mine:
        return Verdict(Outcome.UNDECIDED, f"no family is well conditioned{left}")
    worst, gains = max(mine, key=lambda r: r["most_kept"]), [1 - row["least_kept"] for row in mine]
    same = sum(row["most_kept"] >= 1 - WHITENED for row in mine)
    all_masks = max(mine, key=lambda row: row["all_masks_kept"])
    measured = {
        "most_kept": worst["most_kept"],
        "least_gain": min(gains),
        "largest_gain": max(gains),
        "most_kept_all_masks": all_masks["all_masks_kept"],
    }
    because = (
        f"Γ(k+1) ⪯ Γ(k) in all {len(mine)} steps{left}: no direction keeps more than 1 "
        f"{worst['most_kept'] - 1:+.0e} of its variance; the one that gains most gains "
        f"{min(gains):.0%} to {max(gains):.0%}. That is with one mask drawn for each sequence"
    )
    if same:
        because += f"; in {same} steps some direction gains nothing, so the order is not strict"
    if all_masks["all_masks_kept"] > 1 + WHITENED:
        because += (
            f"; with all masks of each sequence the order fails (a direction keeps 1 "
            f"{all_masks['all_masks_kept'] - 1:+.1e} on {all_masks['model']}, k = {all_masks['k']})"
        )
    holds = worst["most_kept"] <= 1 + WHITENED
    if not holds:
        because = (
            f"Γ(k+1) ⪯ Γ(k) fails on {worst['model']} at k = {worst['k']}: a direction keeps "
            f"{worst['most_kept']:.7g} of its variance"
        )
    return _verdict(holds, _thin(mine), because, measured)


@without_nan
def judge_bound(rows: Rows) -> Verdict:
    """Γ ⪯ C I⁻¹ under masks that do not look at x, with the exact Poincaré constant."""
    return _bounded([row for row in rows_of(rows, "law") if not row["adaptive"]])


@without_nan
def judge_adaptive_bound(rows: Rows) -> Verdict:
    """The same under masks that look at x, with the constant of the chain on sequences.

    On pairs (x, K) the kernel that keeps K has no gap, which is reported: there the statement has
    no content. And the variance on pairs of the conditional score, which the proof takes for the
    Fisher information, must be what it is here said to be: the covariance of the masked score.
    """
    mine = [row for row in rows_of(rows, "law") if row["adaptive"]]
    verdict = _bounded(mine)
    known = [row for row in mine if row["pair_gap"] is not None and row["blocks"] > 1]
    if verdict.outcome is not Outcome.HOLDS:
        return verdict
    thin = _thin(known)
    if thin:
        return Verdict(Outcome.UNDECIDED, f"with the kernel on pairs {thin}{verdict.because}")
    gap, error = (largest([row[c] for row in known]) for c in ("pair_gap", "score_error"))
    share = min(row["score_share"] for row in known)
    measured = {**verdict.measured, "pair_gap": gap, "score_share": share, "score_error": error}
    because = (
        f"{verdict.because}. That is for the chain on sequences; read on pairs (x, K) with the "
        f"kernel (4.26) the statement is empty: K never moves, the gap is {gap:g}. The variance on "
        f"pairs of the conditional score is that of the masked score (to {error:.0e})"
    )
    if share < 1 - DIFFERENT:
        because += f", down to {share:.2g} of vᵀIv, for which the proof takes it"
    if not (error <= EXACT and gap == 0):
        return Verdict(
            Outcome.FAILS, "the kernel on pairs is not what is said: " + because, measured
        )
    return verdict._replace(because=because, measured=measured)


def _bounded(every: Sequence[Row]) -> Verdict:
    """The largest eigenvalue of I^½ Γ I^½ is at most C (1 + 1e-6)."""
    if not every:
        return _NO_ROWS
    if not _numbers(every, ["poincare", "worst_ratio"]):
        return Verdict(Outcome.UNDECIDED, "a ratio or a constant is not a finite number")
    mine, left = _well_conditioned(every)
    if not mine:
        return Verdict(Outcome.UNDECIDED, f"no family is well conditioned{left}")
    worst = max(mine, key=lambda row: row["worst_ratio"] / row["poincare"])
    used = [row["worst_ratio"] / row["poincare"] for row in mine]
    measured = {
        "closest": max(used),
        "loosest": min(used),
        "largest_constant": max(row["poincare"] for row in mine),
    }
    because = (
        f"Γ ⪯ C/I on all {len(mine)} pairs of a model and a mask law{left}, C up to "
        f"{measured['largest_constant']:.3g}; the worst direction uses {min(used):.1%} to "
        f"{max(used):.1%} of the bound"
    )
    tables = [u for u, row in zip(used, mine, strict=True) if row["model"].startswith("table")]
    if tables:
        because += f" (at least {min(tables):.1%} where every string has its own parameter)"
    holds = max(used) <= 1 + WHITENED
    if not holds:
        because = (
            f"Γ ⪯ C/I fails on {worst['model']} with masks “{worst['law']}”: a direction has "
            f"{worst['worst_ratio']:.7g} times the variance of maximum likelihood, and C is "
            f"{worst['poincare']:.7g}"
        )
    return _verdict(holds, _thin(mine), because, measured)


@without_nan
def judge_dirichlet(rows: Rows) -> Verdict:
    """E(f, g) by moves = mean local covariance, on pairs with their block and on sequences."""
    mine = [row for row in rows_of(rows, "law") if row["adaptive"]]
    known = [row for row in mine if row["pair_error"] is not None]
    if not known:
        return _NO_ROWS
    worst = {
        "on_sequences": largest([row["dirichlet_error"] for row in mine]),
        "on_pairs": largest([row["pair_error"] for row in known]),
        "pair_balance": largest([row["pair_balance_error"] for row in known]),
    }
    because = (
        f"the two forms agree to {worst['on_pairs']:.0e} for functions of x and K with the kernel "
        f"(4.26), reversible to {worst['pair_balance']:.0e}, under {len(known)} laws that look at "
        f"x, and to {worst['on_sequences']:.0e} for functions of x with the chain on sequences, "
        f"under {len(mine)}"
    )
    still = sum(row["pair_gap"] == 0 for row in known if row["blocks"] > 1)
    if still:
        because += (
            f"; in {still} of them the kernel (4.26), which keeps K, has no gap: it is not ergodic,"
            " and Definition 4.1.4 asks for an ergodic chain"
        )
    return _verdict(all(v <= EXACT for v in worst.values()), _thin(known), because, worst)


# ------------------------------------------------------------------ conditioning, convexity


@without_nan
def judge_conditioning(rows: Rows) -> Verdict:
    """The example's conditionals differ with and without K, in every reading; and it matters.

    As printed they are 9/13 and 3/5. Training that forgets K must go to other parameters wherever
    masks look at x, and to the truth where they do not.
    """
    examples, trained = rows_of(rows, "example"), rows_of(rows, "forgetting")
    if not examples:
        return _NO_ROWS
    columns = ["strength", "bias", "distance", "gradient_error"]
    if not (_numbers(examples, ["with_block", "without"]) and _numbers(trained, columns)):
        return Verdict(Outcome.UNDECIDED, "a probability or a parameter is not a number")
    shown = {row["reading"]: [row["with_block"], row["without"]] for row in examples}
    measured: dict[str, Any] = dict(shown)
    text = "; ".join(f"{name}: {a:.4f} and {b:.4f}" for name, (a, b) in shown.items())
    printed = shown.get("as printed", [math.nan, math.nan])
    if not (abs(printed[0] - 9 / 13) <= EXACT and abs(printed[1] - 3 / 5) <= EXACT):
        return Verdict(Outcome.FAILS, f"the printed 9/13 and 3/5 are not met: {text}", measured)
    if not all(abs(a - b) > DIFFERENT for a, b in shown.values()):
        return Verdict(Outcome.FAILS, f"K makes no difference in a reading: {text}", measured)
    looking = [row for row in trained if row["strength"] > 0]
    blind = [row for row in trained if row["strength"] == 0]
    if any(not row["bias"] > DIFFERENT for row in looking):
        return Verdict(Outcome.FAILS, "forgetting K costs nothing in training", measured)
    if any(not row["bias"] <= 1e-6 for row in blind):
        return Verdict(Outcome.FAILS, "training goes astray without looking at x", measured)
    if any(not row["gradient_error"] <= EXACT for row in trained):
        return Verdict(Outcome.FAILS, "the truth does not minimise the loss given K", measured)
    if not looking or not blind:
        return Verdict(Outcome.UNDECIDED, "masks that look and masks that do not are needed")
    if not shown.keys() >= set(READINGS):
        return Verdict(Outcome.UNDECIDED, f"readings are missing: {', '.join(READINGS)} are needed")
    worst = max(looking, key=lambda row: row["bias"])
    measured["bias"] = worst["bias"]
    because = (
        f"p(x_K | x_-K, K) and p(x_K | x_-K) differ, {text} (the print has K = {{0}} with x_1, the "
        f"two others do not mix them). A loss that forgets K is least at parameters off by "
        f"{worst['bias']:.2f}, a law {worst['distance']:.2f} away in total variation, where masks "
        f"prefer ones by e^{worst['strength']:g}"
    )
    return Verdict(Outcome.HOLDS, because, measured)


@without_nan
def judge_convexity(rows: Rows) -> Verdict:
    """No negative eigenvalue of the Hessian, no chord below the loss, at any point, for Ising.

    And the Hessian is a mean of conditional covariances, which is the reason. Losses of families
    that are not log-linear are a control and not judged.
    """
    every = rows_of(rows, "convexity")
    mine = [row for row in every if row["ising"]]
    if not mine:
        return _NO_ROWS
    if not _numbers(every, ["least_eigenvalue", "least_chord", "formula_error"]):
        return Verdict(Outcome.UNDECIDED, "an eigenvalue or a chord is not a number")
    least = min(row["least_eigenvalue"] for row in mine)
    chord = min(row["least_chord"] for row in mine)
    if any(row["formula_error"] is None for row in mine):
        return Verdict(Outcome.UNDECIDED, "the Hessian by covariances is missing for an Ising row")
    error = max(row["formula_error"] for row in mine)
    others = [row["least_eigenvalue"] for row in every if not row["ising"]]
    measured = {"least_eigenvalue": least, "least_chord": chord, "formula_error": error}
    points = sum(row["points"] for row in mine)
    control = ""
    if others and min(others) < -CONVEX:
        control = f"; that of a family that is not log-linear has one ({min(others):.2g})"
    because = (
        f"at {points} random parameters the least eigenvalue of the Hessian is {least:.0e} of the "
        f"largest and no chord is below the loss ({chord:.0e}); the Hessian is a mean of "
        f"conditional covariances (to {error:.0e}), which have no negative eigenvalue{control}"
    )
    holds = min(least, chord) >= -CONVEX and error <= 1e-8
    return _verdict(holds, _thin(mine), because, measured)


# ------------------------------------------------------------------ rows made by hand


def _law(model: str, law: str, **changes: Any) -> Row:
    row: Row = {
        "kind": "law",
        "model": model,
        "seed": 0,
        "condition": 10.0,
        "law": law,
        "adaptive": law.startswith("ones"),
        "blocks": 5,
        "poincare": 4.0,
        "worst_ratio": 3.0,
        "trace_ratio": 2.0,
        "score_share": 0.5,
        "pair_gap": 0.0,
    }
    errors = ("information", "gradient", "dirichlet", "pair", "pair_balance", "score")
    return row | {f"{name}_error": 1e-14 for name in errors} | changes


def _order(model: str, **changes: Any) -> Row:
    row: Row = {"kind": "order", "model": model, "seed": 0, "condition": 10.0, "k": 1}
    return row | {"most_kept": 0.99, "least_kept": 0.7, "all_masks_kept": 1.0} | changes


def _example(reading: str, given: float, without: float) -> Row:
    return {"kind": "example", "reading": reading, "with_block": given, "without": without}


def _forgetting(strength: float, **changes: Any) -> Row:
    row: Row = {"kind": "forgetting", "strength": strength, "distance": 0.1 * strength}
    row |= {"given_bias": 0.0, "given_distance": 0.0}
    return row | {"bias": 0.2 * strength, "gradient_error": 1e-15} | changes


def _convex(model: str, **changes: Any) -> Row:
    row: Row = {"kind": "convexity", "model": model, "ising": True, "law": "size 1", "points": 9}
    return row | {"least_eigenvalue": 0.01, "least_chord": 0.1, "formula_error": 1e-12} | changes


_READINGS = [
    _example("as printed", 9 / 13, 3 / 5),
    _example("K = {0}", 6 / 7, 3 / 4),
    _example("K = {1}", 9 / 17, 3 / 5),
]
_TRAINED = [_forgetting(0.0), _forgetting(1.0)]
HELD: list[Row] = [
    *(_law(model, law) for model in ("chain 3 0.5", "hmm 3") for law in ("size 1", "ones 1.5")),
    *(_order(model) for model in ("chain 3 0.5", "hmm 3")),
    *_READINGS,
    *_TRAINED,
    *(_convex(model) for model in ("chain 3 0.5", "clique 4 0.3")),
    *FINITE_HELD,
]
INFORMATION_REFUTED = [
    [*HELD, _law("hmm 3", "size 1", information_error=1e-6)],
    [*HELD, _law("hmm 3", "size 1", gradient_error=1e-6)],
]
ORDER_REFUTED = [[*HELD, _order("hmm 3", most_kept=1.00001)]]
BOUND_REFUTED = [[*HELD, _law("hmm 3", "size 1", worst_ratio=4.0001)]]
ADAPTIVE_REFUTED = [
    [*HELD, _law("hmm 3", "ones 1.5", worst_ratio=4.0001)],
    [*HELD, _law("hmm 3", "ones 1.5", score_error=1e-3)],
    [*HELD, _law("hmm 3", "ones 1.5", pair_gap=0.5)],
]
DIRICHLET_REFUTED = [
    [*HELD, _law("hmm 3", "ones 1.5", dirichlet_error=1e-3)],
    [*HELD, _law("hmm 3", "ones 1.5", pair_error=1e-3)],
    [*HELD, _law("hmm 3", "ones 1.5", pair_balance_error=1e-3)],
]
EXAMPLE_REFUTED = [
    [_example("as printed", 0.7, 3 / 5), *_READINGS[1:], *_TRAINED],
    [*_READINGS[:2], _example("K = {1}", 3 / 5, 3 / 5), *_TRAINED],
    [*_READINGS, *_TRAINED, _forgetting(1.0, bias=0.0)],
    [*_READINGS, *_TRAINED, _forgetting(0.0, bias=0.1)],
    [*_READINGS, *_TRAINED, _forgetting(1.0, gradient_error=0.1)],
]
CONVEXITY_REFUTED = [
    [*HELD, _convex("clique 4 0.3", least_eigenvalue=-1e-3)],
    [*HELD, _convex("clique 4 0.3", least_chord=-1e-3)],
    [*HELD, _convex("clique 4 0.3", formula_error=1e-3)],
]
