"""The judges of masked training: what is thin, what is empty, and what is shown too."""

import math
from dataclasses import replace

import pytest

from triptych.core.estimates import Status
from triptych.studies.masking.exact_masking.rows import (
    Bounded,
    Curvature,
    Estimates,
    Example,
    MaskedTraining,
    OneParameter,
    Step,
    Tensorised,
)
from triptych.studies.masking.exact_masking.study import STUDY

CLAIMS = {claim.id: claim for claim in STUDY.claims}
MATRICES = ("li.thm-4.1.1", "li.thm-4.1.2", "li.thm-4.1.3")


def verdict(claim, rows=None):
    return CLAIMS[claim].verdict(CLAIMS[claim].held_by if rows is None else rows)


def changed(claim, kind, **changes):
    """The rows that hold, with changes to those of one kind."""
    held = CLAIMS[claim].held_by
    return [replace(row, **changes) if isinstance(row, kind) else row for row in held]


def undecided(claim, rows, sentence):
    said = verdict(claim, rows)
    assert said.outcome is Status.UNDECIDED
    assert any(sentence in line for line in said.missing), said.missing


def shown(said):
    """Sentence -> value of what decides nothing."""
    return {check.sentence: check.value for check in said.checks if check.outcome is None}


# ------------------------------------------------------------------ matrices


def test_infinite_constants_are_no_evidence():
    for claim in ("li.thm-4.1.2", "li.thm-4.1.3"):
        rows = changed(claim, MaskedTraining, poincare=math.inf)
        undecided(claim, rows, "models with a finite constant: 0 of 2")


def test_order_with_all_masks_is_shown_and_not_judged():
    said = verdict("li.thm-4.1.1", changed("li.thm-4.1.1", Step, all_masks_kept=1.1))
    assert said.outcome is Status.HOLDS
    sentence = (
        "every sequence seen under all its masks, outside of the theorem: largest excess over 1"
    )
    assert shown(said)[sentence] == pytest.approx(0.1)


@pytest.mark.parametrize("ratio", [8.0, 4.4, 4 * (1 + 1e-5)])
def test_no_direction_may_exceed_the_bound(ratio):
    """Twice the bound, or a millionth part of ten above it, is not held, whatever its direction."""
    for claim in ("li.thm-4.1.2", "li.thm-4.1.3"):
        rows = changed(claim, MaskedTraining, worst_ratio=ratio)
        assert verdict(claim, rows).outcome is Status.FAILS
        rows = changed(claim, MaskedTraining, worst_ratio=4.0)
        assert verdict(claim, rows).outcome is Status.HOLDS


@pytest.mark.parametrize("kept", [1 + 1e-5, 1.1])
def test_no_direction_may_lose_by_masking_more(kept):
    rows = changed("li.thm-4.1.1", Step, most_kept=kept)
    assert verdict("li.thm-4.1.1", rows).outcome is Status.FAILS


@pytest.mark.parametrize("claim", MATRICES)
def test_badly_conditioned_families_are_left_out_and_counted(claim):
    kind, column = (
        (Step, "most_kept") if claim == "li.thm-4.1.1" else (MaskedTraining, "worst_ratio")
    )
    bad = {"condition": 2e6, column: 9.0}
    held = CLAIMS[claim].held_by
    one = [replace(row, **bad) if row.model == "hmm 3" else row for row in held]
    undecided(claim, one, "1 of 2")
    more = [replace(row, model="grid") for row in held if row.model == "chain 3 0.5"]
    said = verdict(claim, one + more)
    assert said.outcome is Status.HOLDS
    sentence = "models left out because their information is too ill-conditioned, above 1e+06"
    assert shown(said)[sentence] == 1
    assert sentence not in shown(verdict(claim))
    undecided(claim, changed(claim, kind, condition=math.inf), "0 of 2")


def test_each_theorem_has_its_own_masks():
    """What happens under masks of the other kind does not decide."""
    held = CLAIMS["li.thm-4.1.2"].held_by
    for claim, wrong in (("li.thm-4.1.2", True), ("li.thm-4.1.3", False), ("li.lem-4.1.2", True)):
        broken = [
            replace(r, worst_ratio=9.0, information_error=1.0) if r.adaptive is wrong else r
            for r in held
        ]
        assert verdict(claim, broken).outcome is Status.HOLDS
    undecided("li.lem-4.1.2", [row for row in held if row.adaptive], "models: 0 of 2")


def test_our_remarks_do_not_decide():
    """The kernel on pairs, the gradient at the truth, the formula of the Hessian are shown."""
    held = CLAIMS["li.thm-4.1.3"].held_by
    pairs = [
        replace(row, pairs=replace(row.pairs, gap=0.5, score_error=1.0, balance_error=1.0))
        for row in held
    ]
    assert verdict("li.thm-4.1.3", pairs).outcome is Status.HOLDS
    assert verdict("li.prop-4.1.1", pairs).outcome is Status.HOLDS
    none = changed("li.thm-4.1.3", MaskedTraining, pairs=None)
    assert verdict("li.thm-4.1.3", none).outcome is Status.HOLDS
    steep = changed("li.lem-4.1.2", MaskedTraining, gradient_error=1.0)
    assert verdict("li.lem-4.1.2", steep).outcome is Status.HOLDS
    other = changed("li.prop-4.3.6", Curvature, formula_error=1.0)
    assert verdict("li.prop-4.3.6", other).outcome is Status.HOLDS


def test_the_dirichlet_form_needs_pairs_of_two_models():
    held = CLAIMS["li.prop-4.1.1"].held_by
    one = [replace(row, pairs=None) if row.model == "hmm 3" else row for row in held]
    undecided("li.prop-4.1.1", one, "1 of 2")
    none = changed("li.prop-4.1.1", MaskedTraining, pairs=None)
    undecided("li.prop-4.1.1", none, "0 of 2")


# ------------------------------------------------------------------ conditioning, convexity


def test_one_reading_that_differs_is_enough():
    """The lemma says that there is such a law; the mixed reading of the print is no evidence."""
    printed, first, second = CLAIMS["li.lem-4.3.1"].held_by
    same = replace(second, with_block=second.without)
    assert verdict("li.lem-4.3.1", [printed, first, same]).outcome is Status.HOLDS
    assert verdict("li.lem-4.3.1", [first]).outcome is Status.HOLDS
    undecided("li.lem-4.3.1", [printed], "readings of the example: 0 of 1")
    wrong = replace(printed, with_block=0.7)  # another number in the proof refutes no existence
    assert verdict("li.lem-4.3.1", [wrong, first, second]).outcome is Status.HOLDS


def test_nan_is_no_counterexample():
    _, first, second = CLAIMS["li.lem-4.3.1"].held_by
    for rows in ([replace(first, with_block=math.nan)], [replace(first, without=math.nan), second]):
        assert verdict("li.lem-4.3.1", rows).outcome is Status.UNDECIDED
    lost = [Example("K = {0}", 0.5, 0.5), Example("K = {1}", math.nan, 0.5)]
    assert verdict("li.lem-4.3.1", lost).outcome is Status.UNDECIDED


def test_convexity_is_judged_on_ising_models_under_masks_that_do_not_look():
    held = CLAIMS["li.prop-4.3.6"].held_by
    for other in ({"ising": False}, {"adaptive": True}):
        rows = [*held, replace(held[0], least_eigenvalue=-0.3, **other)]
        said = verdict("li.prop-4.3.6", rows)
        assert said.outcome is Status.HOLDS
        assert 0.3 in shown(said).values()
        undecided("li.prop-4.3.6", [replace(row, **other) for row in held], "Ising models: 0 of 2")


# ------------------------------------------------------------------ finite samples


def test_few_samples_leave_the_bound_undecided():
    """20 of 20 have the Wilson interval [0.74, 1] at 95 per cent for six rows together."""
    few = {"repeats": 20, "held": 20, "held_largest": 20, "below_one": 20}
    rows = changed("li.thm-4.1.4", Bounded, **few)
    rows = [replace(r, largest_below_one=min(20, r.largest_below_one)) for r in rows]
    assert verdict("li.thm-4.1.4", rows).outcome is Status.UNDECIDED


@pytest.mark.parametrize(
    ("reading", "label"),
    [("cross-entropy", "loss as defined"), ("divergence", "loss of the proof")],
)
def test_rows_that_say_nothing_are_no_evidence(reading, label):
    held = CLAIMS["li.thm-4.1.4"].held_by
    sentence = f"settings that say something, {label}: {{}} of 3"
    empty = [replace(r, below_one=0) if r.reading == reading else r for r in held]
    undecided("li.thm-4.1.4", empty, sentence.format(0))
    almost = [replace(r, below_one=99) if r.reading == reading else r for r in held]
    undecided("li.thm-4.1.4", almost, sentence.format(0))
    without = [r for r in held if r.reading != reading]
    undecided("li.thm-4.1.4", without, sentence.format(0))
    less = [r for r in held if not (r.reading == reading and r.n == 1000)]
    undecided("li.thm-4.1.4", less, sentence.format(2))
    # the same setting with other δ is one setting all the same
    twice = less + [replace(r, delta=0.5) for r in less]
    undecided("li.thm-4.1.4", twice, sentence.format(2))


def test_an_empty_row_can_neither_hold_nor_fail():
    held = list(CLAIMS["li.thm-4.1.4"].held_by)
    lost = replace(held[0], n=10, below_one=0, largest_below_one=0, held=0, held_largest=0)
    said = verdict("li.thm-4.1.4", [*held, lost])
    assert said.outcome is Status.HOLDS
    assert shown(said)["settings in which the bound is 1 or more and says nothing"] == 1


def test_only_the_largest_right_side_refutes():
    """Where the smallest fails and the largest holds, the theorem may be true: undecided."""
    held = list(CLAIMS["li.thm-4.1.4"].held_by)
    between = replace(held[0], n=10, held=40)
    assert verdict("li.thm-4.1.4", [*held, between]).outcome is Status.UNDECIDED
    beyond = replace(between, held_largest=40)
    assert verdict("li.thm-4.1.4", [*held, beyond]).outcome is Status.FAILS
    # and it is the failing row that is shown, not one whose low end is smaller
    lower = replace(held[0], n=20, held=10)
    said = verdict("li.thm-4.1.4", [*held, beyond, lower])
    assert said.outcome is Status.FAILS


def test_somewhere_even_the_largest_right_side_must_say_something():
    rows = changed("li.thm-4.1.4", Bounded, largest_below_one=0)
    sentence = "settings in which even the largest right side is below 1: 0 of 1"
    undecided("li.thm-4.1.4", rows, sentence)


def test_intervals_are_corrected_for_their_number():
    """More rows, wider intervals: 100 of 100 is above 0.9 for a handful, not for two hundred."""
    held = list(CLAIMS["li.thm-4.1.4"].held_by)
    many = [replace(held[0], n=n) for n in range(200)]
    assert verdict("li.thm-4.1.4", [*held, *many]).outcome is Status.UNDECIDED


# ------------------------------------------------------------------ Proposition 4.3.1, Lemma 4.1.1


def test_a_law_above_what_is_attained_leaves_the_proposition_undecided():
    rows = changed("li.prop-4.3.1", Tensorised, over_smallest=1.1)
    undecided("li.prop-4.3.1", rows, "an attained value of C_AT, empirical laws: 0 of 4")
    rounded = changed("li.prop-4.3.1", Tensorised, over_smallest=1 + 1e-15)
    assert verdict("li.prop-4.3.1", rounded).outcome is Status.HOLDS


def test_the_proposition_needs_both_laws():
    held = CLAIMS["li.prop-4.3.1"].held_by
    undecided("li.prop-4.3.1", [r for r in held if r.sequences is None], "empirical laws: 0 of 2")
    undecided("li.prop-4.3.1", [r for r in held if r.sequences], "models, the truth: 0 of 2")


def test_a_bound_that_is_too_wide_refutes_no_limit():
    """The proved distance lies between two bounds: a large upper one alone says nothing."""
    held = list(CLAIMS["li.lem-4.1.1"].held_by)
    wide = replace(held[0], at_most=0.3)
    assert isinstance(wide, OneParameter)
    assert verdict("li.lem-4.1.1", [*held, wide]).outcome is Status.UNDECIDED
    away = replace(wide, at_least=0.2)
    assert verdict("li.lem-4.1.1", [*held, wide, away]).outcome is Status.FAILS


def test_the_limit_needs_many_sequences_and_many_estimates():
    rows = changed("li.lem-4.1.1", Estimates, n=1000)
    undecided("li.lem-4.1.1", rows, "sequences in the largest data sets: 1000 of 1000000")
    few = changed("li.lem-4.1.1", Estimates, repeats=500)  # ± 0.09
    assert verdict("li.lem-4.1.1", few).outcome is Status.UNDECIDED
    alone = [row for row in CLAIMS["li.lem-4.1.1"].held_by if isinstance(row, OneParameter)]
    undecided("li.lem-4.1.1", alone, "models, all parameters: 0 of 2")


def test_only_the_largest_size_is_near_its_limit():
    held = list(CLAIMS["li.lem-4.1.1"].held_by)
    small = [replace(row, n=1000, distance=0.3) for row in held if isinstance(row, Estimates)]
    far = [
        replace(r, n=10**4, at_least=0.01, at_most=0.02)
        for r in held
        if isinstance(r, OneParameter)
    ]
    said = verdict("li.lem-4.1.1", [*held, *small, *far])
    assert said.outcome is Status.HOLDS
    assert (
        shown(said)["all parameters, smallest n: Kolmogorov distance from the normal limit"] == 0.3
    )
    looking = [replace(r, adaptive=True, distance=0.9) for r in held if isinstance(r, Estimates)]
    assert verdict("li.lem-4.1.1", [*held, *looking]).outcome is Status.HOLDS
