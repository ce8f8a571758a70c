"""The judges of masked training: what is thin, what is empty, and what each sentence rests on."""

import math

from triptych.core.estimates import Outcome
from triptych.studies import exact_masking_judges as judges
from triptych.studies.exact_masking_finite import FINITE_HELD, judge_finite


def test_infinite_constants_do_not_hold():
    held = [dict(row) for row in judges.HELD]
    for row in held:
        if row["kind"] == "law":
            row["poincare"] = math.inf
    for judge in (judges.judge_bound, judges.judge_adaptive_bound):
        assert judge(held).outcome is Outcome.UNDECIDED


def test_order_with_all_masks_is_told_and_not_judged():
    held = [dict(row) for row in judges.HELD]
    broken = [row | {"all_masks_kept": 1.1} if row["kind"] == "order" else row for row in held]
    verdict = judges.judge_order(broken)
    assert verdict.outcome is Outcome.HOLDS
    assert "with all masks of each sequence the order fails" in verdict.because
    assert "all masks" not in judges.judge_order(held).because


def changed(kind, **changes):
    """The rows that hold, with changes to those of one kind."""
    return [row | (changes if row["kind"] == kind else {}) for row in judges.HELD]


def undecided(judge, rows, sentence):
    verdict = judge(rows)
    assert verdict.outcome is Outcome.UNDECIDED
    assert sentence in verdict.because
    assert "nan" not in verdict.because


def test_no_direction_may_exceed_the_bound():
    """Twice the bound, or a millionth part of ten above it, is not held, whatever its direction."""
    for ratio in (8.0, 4.4, 4 * (1 + 1e-5)):
        rows = changed("law", worst_ratio=ratio)
        for judge in (judges.judge_bound, judges.judge_adaptive_bound):
            assert judge(rows).outcome is Outcome.FAILS
    assert judges.judge_bound(changed("law", worst_ratio=4.0)).outcome is (Outcome.HOLDS)
    for kept in (1 + 1e-5, 1.1):
        verdict = judges.judge_order(changed("order", most_kept=kept))
        assert verdict.outcome is Outcome.FAILS


def test_badly_conditioned_families_are_left_out_and_counted():
    bad = {"condition": 2e6, "worst_ratio": 9.0, "most_kept": 2.0}
    one = [row | (bad if row.get("model") == "hmm 3" else {}) for row in judges.HELD]
    more = [row | {"model": "grid"} for row in one if row.get("model") == "chain 3 0.5"]
    for judge in (judges.judge_bound, judges.judge_adaptive_bound, judges.judge_order):
        undecided(judge, one, "2 models are needed")
        verdict = judge(one + more)
        assert verdict.outcome is Outcome.HOLDS
        assert "1 model is left out" in verdict.because
        assert "left out" not in judge(judges.HELD).because
        every = [row | {"condition": math.inf} for row in judges.HELD]
        undecided(judge, every, "no family is well conditioned (2 models are left out")


def test_few_samples_leave_the_bound_undecided():
    undecided(judge_finite, changed("finite", held=5, repeats=5, below_one=5), "5 samples")
    undecided(judge_finite, changed("finite", held=49, repeats=49, below_one=49), "49 samples")


def test_a_bound_that_says_nothing_is_undecided():
    sentence = "right sides below 1 are needed in 3 settings in each reading"
    undecided(judge_finite, changed("finite", strict=50.0, below_one=0), sentence)
    undecided(judge_finite, changed("finite", below_one=59), sentence)
    held = FINITE_HELD
    assert judge_finite(held).outcome is Outcome.HOLDS
    for reading in ("cross-entropy", "divergence"):
        undecided(judge_finite, [r for r in held if r.get("reading") != reading], sentence)
        less = [r for r in held if not (r.get("reading") == reading and r.get("n") == 100)]
        undecided(judge_finite, less, sentence)
        empty = [r | ({"below_one": 0} if r.get("reading") == reading else {}) for r in held]
        undecided(judge_finite, empty, sentence)
    undecided(judge_finite, held[:1], sentence)
    twice = [
        r | {"delta": d} for r in held[:1] for d in (0.1, 0.5, 0.6)
    ]  # one setting all the same
    undecided(judge_finite, twice, sentence)


def test_samples_are_counted_once():
    """Three settings of sixty, however many readings and δ; the worst row of each counts."""
    rows = FINITE_HELD + [r | {"delta": 0.5} for r in FINITE_HELD[:-1]]
    rows[0] = rows[0] | {"held": 59}
    assert judge_finite(rows).measured["held"] == [179, 180]


def test_sentences_follow_the_rows():
    because = judge_finite(FINITE_HELD).because
    assert "2/C_AT is not met (1.30 times" in because
    assert "1/C_AT is met (0.90 times" in because
    other = [r | {"over_printed": 0.9, "over_proved": 1.2} for r in FINITE_HELD]
    assert "2/C_AT is met (0.90 times" in judge_finite(other).because
    assert "1/C_AT is not met (1.20 times" in judge_finite(other).because
    assert "C_AT is" not in judge_finite(FINITE_HELD[:-1]).because
    control = next(row for row in judges.HELD if row["kind"] == "convexity")
    for least, said in ((-0.3, True), (0.3, False)):
        rows = [*judges.HELD, control | {"ising": False, "least_eigenvalue": least}]
        verdict = judges.judge_convexity(rows)
        assert verdict.outcome is Outcome.HOLDS
        assert ("not log-linear" in verdict.because) is said
    assert "is not ergodic" in judges.judge_dirichlet(judges.HELD).because
    assert "ergodic" not in judges.judge_dirichlet(changed("law", pair_gap=0.5)).because
    assert "of vᵀIv" in judges.judge_adaptive_bound(judges.HELD).because
    assert "of vᵀIv" not in judges.judge_adaptive_bound(changed("law", score_share=1.0)).because
    assert "not strict" not in judges.judge_order(judges.HELD).because
    assert "not strict" in judges.judge_order(changed("order", most_kept=1.0)).because
    missing = [row for row in judges.HELD if row.get("reading") != "K = {1}"]
    undecided(judges.judge_conditioning, missing, "readings are missing")


def test_statements_on_pairs_need_pairs_of_two_models():
    pairs = dict.fromkeys(
        ("pair_error", "pair_balance_error", "pair_gap", "score_share", "score_error")
    )
    none = changed("law", **pairs)
    one = [row | (pairs if row.get("model") == "hmm 3" else {}) for row in judges.HELD]
    undecided(judges.judge_adaptive_bound, none, "with the kernel on pairs 2 models are needed")
    undecided(judges.judge_adaptive_bound, one, "with the kernel on pairs 2 models are needed")
    undecided(judges.judge_dirichlet, none, "no rows")
    undecided(judges.judge_dirichlet, one, "2 models are needed")
