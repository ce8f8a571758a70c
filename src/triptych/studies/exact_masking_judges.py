"""The judges of `exact_masking`, with rows that refute and rows that hold."""

import math
from collections.abc import Sequence
from typing import Any

from triptych.core.estimates import Outcome, proportion
from triptych.studies.judging import all_of, largest, rows_of, without_nan
from triptych.studies.study import Row, Rows, Verdict

EXACT = 1e-10  # agreement of two ways to a matrix, relative
ORDER = 1e-9  # how far below 0 rounding may bring the least eigenvalue of a difference, relative
DIFFERENT = 1e-3  # probabilities, or parameters, that are said to differ do so by this much
_NO_ROWS = Verdict(Outcome.UNDECIDED, "there are no rows yet")


def _numbers(rows: Sequence[Row], columns: Sequence[str]) -> bool:
    """Whether all of these are finite numbers; None stands for "there is none"."""
    values = [row[column] for row in rows for column in columns]
    return all(value is None or math.isfinite(value) for value in values)


def _thin(rows: Sequence[Row], models: int = 2) -> str:
    """Why there is too little evidence, or nothing."""
    return "" if len({row["model"] for row in rows}) >= models else f"{models} models are needed; "


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
    """Γ_{k+1} ⪯ Γ_k for every k: no eigenvalue of the difference below -1e-9, relative."""
    mine = rows_of(rows, "order")
    if not mine:
        return _NO_ROWS
    if not _numbers(mine, ["margin", "gain", "all_masks_margin"]):
        return Verdict(Outcome.UNDECIDED, "a margin is not a number")
    least, gains = min(row["margin"] for row in mine), [row["gain"] for row in mine]
    same = sum(row["margin"] <= ORDER for row in mine)
    every = min(mine, key=lambda row: row["all_masks_margin"])
    measured = {
        "least_margin": least,
        "least_gain": min(gains),
        "largest_gain": max(gains),
        "least_margin_all_masks": every["all_masks_margin"],
    }
    because = (
        f"Γ(k+1) ⪯ Γ(k) in all {len(mine)} steps (least eigenvalue of the difference {least:.0e} "
        f"of the largest of Γ(k)); the largest is "
        f"{min(gains):.0%} to {max(gains):.0%} of it. In {same} steps some direction gains "
        "nothing, so the order is not strict. That is with one mask drawn for each sequence"
    )
    if every["all_masks_margin"] < -ORDER:
        because += (
            f"; with all masks of each sequence the order fails (margin "
            f"{every['all_masks_margin']:.2g} on {every['model']}, k = {every['k']})"
        )
    if not least >= -ORDER:
        worst = min(mine, key=lambda row: row["margin"])
        because = (
            f"Γ(k+1) ⪯ Γ(k) fails on {worst['model']} at k = {worst['k']}: the difference has an "
            f"eigenvalue of {worst['margin']:.2g} of the largest of Γ(k)"
        )
    return _verdict(least >= -ORDER, _thin(mine), because, measured)


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
    if verdict.outcome is not Outcome.HOLDS or not known:
        return verdict
    gap, error = (largest([row[c] for row in known]) for c in ("pair_gap", "score_error"))
    share = min(row["score_share"] for row in known)
    measured = {**verdict.measured, "pair_gap": gap, "score_share": share, "score_error": error}
    because = (
        f"{verdict.because}. That is for the chain on sequences; read on pairs (x, K) with the "
        f"kernel (4.26) the statement is empty: K never moves, the gap is {gap:g}. And the proof's "
        f"Var(f) = vᵀIv for the conditional score is not so: its variance is that of the masked "
        f"score (to {error:.0e}), down to {share:.2g} of vᵀIv; the joint score repairs it"
    )
    if not (error <= EXACT and gap == 0):
        return Verdict(
            Outcome.FAILS, "the kernel on pairs is not what is said: " + because, measured
        )
    return verdict._replace(because=because, measured=measured)


def _bounded(mine: Sequence[Row]) -> Verdict:
    if not mine:
        return _NO_ROWS
    if not _numbers(mine, ["bound_margin", "poincare", "worst_ratio"]):
        return Verdict(Outcome.UNDECIDED, "a margin or a constant is not a finite number")
    worst = min(mine, key=lambda row: row["bound_margin"])
    used = [row["worst_ratio"] / row["poincare"] for row in mine]
    measured = {
        "least_margin": worst["bound_margin"],
        "closest": max(used),
        "loosest": min(used),
        "largest_constant": max(row["poincare"] for row in mine),
    }
    because = (
        f"Γ ⪯ C/I on all {len(mine)} pairs of a model and a mask law, C up to "
        f"{measured['largest_constant']:.3g}; the worst direction uses {min(used):.1%} to "
        f"{max(used):.1%} of the bound (all of it where every string has its own parameter)"
    )
    if not worst["bound_margin"] >= -ORDER:
        because = (
            f"Γ ⪯ C/I fails on {worst['model']} with masks “{worst['law']}”: an eigenvalue of "
            f"{worst['bound_margin']:.2g} of the largest of C/I"
        )
    return _verdict(worst["bound_margin"] >= -ORDER, _thin(mine), because, measured)


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
        f"(4.26), reversible to {worst['pair_balance']:.0e}, and to {worst['on_sequences']:.0e} "
        f"for functions of x with the chain on sequences, under {len(mine)} laws that look at x; "
        "the kernel (4.26) keeps K and so is not ergodic, as Definition 4.1.4 asks"
    )
    return _verdict(all(v <= EXACT for v in worst.values()), _thin(mine), because, worst)


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
    worst = max(looking, key=lambda row: row["bias"])
    measured["bias"] = worst["bias"]
    because = (
        f"p(x_K | x_-K, K) and p(x_K | x_-K) differ, {text} (the print has K = {{0}} and x_1; both "
        f"consistent readings differ as well). A loss that forgets K is least at parameters off by "
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
    error = max(row["formula_error"] for row in mine)
    others = [row["least_eigenvalue"] for row in every if not row["ising"]]
    measured = {"least_eigenvalue": least, "least_chord": chord, "formula_error": error}
    points = sum(row["points"] for row in mine)
    control = f"; that of a hidden Markov model is not ({min(others):.2g})" if others else ""
    because = (
        f"at {points} random parameters the least eigenvalue of the Hessian is {least:.0e} of the "
        f"largest and no chord is below the loss ({chord:.0e}); the Hessian is a mean of "
        f"conditional covariances (to {error:.0e}), which have no negative eigenvalue{control}"
    )
    holds = min(least, chord) >= -ORDER and error <= 1e-8
    return _verdict(holds, _thin(mine), because, measured)


# ------------------------------------------------------------------ finite samples


@without_nan
def judge_finite(rows: Rows) -> Verdict:
    """The inequality holds with frequency 1 - δ, for every n, in both readings of the loss.

    With the smallest right side: one cell, ε = 0, the Poincaré constant in place of C_AT. A Wilson
    interval of the frequency that reaches below 1 - δ leaves it UNDECIDED. Theorem 4.1.4 has no
    content where its right side is above 1; how often that is so is reported, not judged.
    """
    mine = rows_of(rows, "finite")
    if not mine:
        return _NO_ROWS
    if not _numbers(mine, ["distance", "strict", "printed", "closest", "delta"]):
        return Verdict(Outcome.UNDECIDED, "a side of the inequality is not a number")
    outcomes = []
    for row in mine:
        frequency = proportion(int(row["held"]), int(row["repeats"]))
        wanted = 1 - row["delta"]
        low = Outcome.FAILS if frequency.high < wanted else Outcome.UNDECIDED
        outcomes.append(Outcome.HOLDS if frequency.low >= wanted else low)
    held, trials = sum(row["held"] for row in mine), sum(row["repeats"] for row in mine)
    empty = {
        side: sum(row[side] >= 1 for row in mine) / len(mine) for side in ("strict", "printed")
    }
    floor = [row for row in mine if row["reading"] == "cross-entropy"]
    least = min((row["strict"] for row in floor), default=math.nan)
    most = max(row["n"] for row in mine)
    down = min((row["strict"] for row in mine if row["n"] == most), default=math.nan)
    closest = max(row["closest"] for row in mine)
    rates = rows_of(rows, "rate")
    measured: dict[str, Any] = {
        "held": [held, trials],
        "closest": closest,
        "right_side_at_least_1": empty,
        "least_right_side_cross_entropy": least,
    }
    because = (
        f"held in {held} of {trials} checks with the smallest right side (at most {closest:.1%} "
        f"of it used); it is at least 1, so says nothing, in {empty['strict']:.0%} of the settings,"
        f" and with the covering number and a proved C_AT in {empty['printed']:.0%}. With the loss "
        f"as defined, a cross-entropy, it never falls below {least:.2f}; with the divergence of "
        f"the proof it falls with n (to {down:.2f} at n = {most:g})"
    )
    if rates:
        over = largest([row["over_printed"] for row in rates])
        proved = largest([row["over_proved"] for row in rates])
        measured |= {"entropy_over_printed_rate": over, "entropy_over_proved_rate": proved}
        because += (
            f". (The rate 2/C_AT printed for the entropy is not met: it is {over:.2f} times what "
            f"that allows on one bit; 1/C_AT is right)"
        )
    return Verdict(all_of(outcomes), because, measured)


# ------------------------------------------------------------------ rows made by hand


def _law(model: str, law: str, **changes: Any) -> Row:
    row: Row = {
        "kind": "law",
        "model": model,
        "law": law,
        "adaptive": law.startswith("ones"),
        "blocks": 5,
        "poincare": 4.0,
        "worst_ratio": 3.0,
        "trace_ratio": 2.0,
        "bound_margin": 0.1,
        "score_share": 0.5,
        "pair_gap": 0.0,
    }
    errors = ("information", "gradient", "dirichlet", "pair", "pair_balance", "score")
    return row | {f"{name}_error": 1e-14 for name in errors} | changes


def _order(model: str, **changes: Any) -> Row:
    row: Row = {"kind": "order", "model": model, "k": 1, "margin": 0.01, "gain": 0.3}
    return row | {"all_masks_margin": 0.0} | changes


def _example(reading: str, given: float, without: float) -> Row:
    return {"kind": "example", "reading": reading, "with_block": given, "without": without}


def _forgetting(strength: float, **changes: Any) -> Row:
    row: Row = {"kind": "forgetting", "strength": strength, "distance": 0.1 * strength}
    return row | {"bias": 0.2 * strength, "gradient_error": 1e-15} | changes


def _convex(model: str, **changes: Any) -> Row:
    row: Row = {"kind": "convexity", "model": model, "ising": True, "law": "size 1", "points": 9}
    return row | {"least_eigenvalue": 0.01, "least_chord": 0.1, "formula_error": 1e-12} | changes


def _finite(reading: str, **changes: Any) -> Row:
    row: Row = {"kind": "finite", "model": "chain 2 0.4", "law": "size 1", "n": 100}
    row |= {"reading": reading, "delta": 0.1, "repeats": 60, "held": 60, "distance": 0.1}
    return row | {"strict": 0.9, "printed": 9.0, "closest": 0.2} | changes


_READINGS = [
    _example("as printed", 9 / 13, 3 / 5),
    _example("K = {0}", 6 / 7, 3 / 4),
    _example("K = {1}", 9 / 17, 3 / 5),
]
_TRAINED = [_forgetting(0.0), _forgetting(1.0)]
_RATE: Row = {"kind": "rate", "chance": 0.01, "over_printed": 1.3, "over_proved": 0.9}
HELD: list[Row] = [
    *(_law(model, law) for model in ("chain 3 0.5", "hmm 3") for law in ("size 1", "ones 1.5")),
    *(_order(model) for model in ("chain 3 0.5", "hmm 3")),
    *_READINGS,
    *_TRAINED,
    *(_convex(model) for model in ("chain 3 0.5", "clique 4 0.3")),
    _finite("cross-entropy"),
    _finite("divergence"),
    _RATE,
]
INFORMATION_REFUTED = [
    [*HELD, _law("hmm 3", "size 1", information_error=1e-6)],
    [*HELD, _law("hmm 3", "size 1", gradient_error=1e-6)],
]
ORDER_REFUTED = [[*HELD, _order("hmm 3", margin=-1e-3)]]
BOUND_REFUTED = [[*HELD, _law("hmm 3", "size 1", bound_margin=-1e-3)]]
ADAPTIVE_REFUTED = [
    [*HELD, _law("hmm 3", "ones 1.5", bound_margin=-1e-3)],
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
FINITE_REFUTED = [
    [_finite("cross-entropy"), _finite("divergence", held=40)],
    [_finite("cross-entropy", held=40), _finite("divergence")],
]
