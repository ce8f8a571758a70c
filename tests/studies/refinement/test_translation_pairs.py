"""The number of pairs: what is left exactly, slopes by hand, trainings here and elsewhere."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.support.fake_bench import Bench

from triptych.core.estimates import Status
from triptych.core.validation import UserError
from triptych.structures.translation import Translations
from triptych.studies.api.study import Rows, Scale
from triptych.studies.refinement.shared import data
from triptych.studies.refinement.shared.more_phases import WatchedPipeline
from triptych.studies.refinement.shared.pipeline import Pipeline, Plan
from triptych.studies.refinement.translation_pairs import judge, made_rows
from triptych.studies.refinement.translation_pairs.exact import (
    one_way,
    unseen,
    what_is_left,
    written,
    zipf,
)
from triptych.studies.refinement.translation_pairs.rows import Gap, Learned, Left, Scored
from triptych.studies.refinement.translation_pairs.study import (
    STUDY,
    ComputeLeft,
    TranslateSome,
    TranslationPairs,
    run,
    units,
)

# ------------------------------------------------------------------ exactly


def test_clues_that_were_never_seen_by_hand() -> None:
    """Two clues of frequency ½: after one pair the next clue is the other one with ½."""
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert [unseen(half, n) for n in (0, 1, 2)] == [1.0, 0.5, 0.25]
    assert zipf(2).tolist() == pytest.approx([2 / 3, 1 / 3])


def test_two_ways_have_log_2_to_lose_by_hand() -> None:
    """0 1 and 1 0 with ½ each: a step writes all four pairs alike, so log 2 and half are mixed."""
    weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    ways = Translations(torch.tensor([[0, 1], [1, 0]]), weights, 1.0, 2)
    tc, kl, mixed, itself = written(ways, ways)
    assert tc == pytest.approx(math.log(2))
    assert kl == pytest.approx(math.log(2))
    assert len(mixed) == 4
    assert itself == 0.0
    tc, kl, mixed, itself = written(one_way(ways, 1), ways)
    assert (tc, itself) == (0.0, 0.0)
    assert kl == pytest.approx(0.0, abs=1e-12)
    assert mixed == pytest.approx([0.0] * 4)


def test_what_is_left_is_in_proportion_to_the_unseen() -> None:
    """The order b a c d has 40 %, the two others 30 %: total correlation 1.284 nats."""
    none_seen, some = what_is_left("orders", 100, (0, 50))
    assert none_seen.unseen == pytest.approx(1.0)
    assert none_seen.total_correlation == pytest.approx(1.2839, abs=1e-4)
    share = some.unseen
    assert some.total_correlation == pytest.approx(share * none_seen.total_correlation)
    assert some.mixed == pytest.approx([share * m for m in none_seen.mixed])
    # 124 of 256 starts, and 44, as in the tests of the laws that refinement writes
    assert none_seen.mixed[0] == pytest.approx(124 / 256)
    assert none_seen.mixed[2] == pytest.approx(44 / 256)


def test_a_majority_way_is_never_mixed() -> None:
    (left,) = what_is_left("dialects", 10, (0,))
    assert left.total_correlation > 1.0
    assert left.mixed == (0.0,) * 4


# ------------------------------------------------------------------ judges


def test_the_slope_by_hand() -> None:
    """5.6 / 5 = 1.12, standard error √(0.048 / 2 / 5), Student's 4.3027 with 2 degrees."""
    points = [judge.Point(float(x), y) for x, y in enumerate((0.0, 1.0, 2.0, 3.4))]
    found = judge.slope(points)
    assert found.value == pytest.approx(1.12)
    assert found.half_width == pytest.approx(4.3027 * math.sqrt(0.048 / 2 / 5), abs=1e-4)


def test_the_chance_of_the_sentences_is_in_the_slope() -> None:
    """A straight line has no residuals. Weights ±½ and halves of 1: √(¼ + ¼). More seeds: same."""
    line = [judge.Point(x, x, 1.0) for x in (0.0, 1.0, 2.0)]
    assert judge.slope(line).half_width == pytest.approx(math.sqrt(0.5))
    assert judge.slope(line * 3).half_width == pytest.approx(math.sqrt(0.5))
    assert math.isnan(judge.slope(line[:1] * 5).value)


def test_fewer_sizes_decide_nothing() -> None:
    few = [row for row in made_rows.GAP_HELD if row.pairs < 100_000]
    said = judge.gap_closes(Rows(few))
    assert said.outcome is Status.UNDECIDED
    assert said.missing == (
        "numbers of pairs: 3 of 4",
        "runs of at least 250,000 pairs: 0 of 1",
    )


def test_one_seed_of_all_sizes_decides() -> None:
    one = [row for row in made_rows.GAP_HELD if row.seed == 0]
    assert judge.gap_closes(Rows(one)).outcome is Status.HOLDS


def test_where_the_line_would_be_a_point_below() -> None:
    """-4 at 2^10 pairs and -2 at 2^12 and -3 between: a point a doubling, so -1 at 2^13."""
    gaps = [
        Gap(
            data="software",
            direction="en-de",
            seed=0,
            pairs=2**n,
            steps=4,
            on="test",
            difference=n - 14.0,
            low=n - 14.5,
            high=n - 13.5,
        )
        for n in (10, 11, 12)
    ]
    (check,) = judge._reaching(gaps)
    assert check.value == pytest.approx(2**13 / 1e6)
    assert judge._reaching([replace(row, difference=-5.0) for row in gaps]) == []


# ------------------------------------------------------------------ trainings


def tiny_pipeline(kind: type[Pipeline], seed: int = 0, **sizes: int) -> Pipeline:
    toy = data.toy_pairs(["de", "en"])
    plan = Plan(width=16, layers=1, heads=2, feedforward=16, length=12, tokens=64)
    plan = replace(
        plan, dropout=0.3, teacher=(sizes.get("steps", 60), 1e6), learning_rate=5e-3, beams=2
    )
    return kind(toy.pairs, "en", "de", seed, plan)


def test_a_look_at_the_validation_pairs_changes_no_training() -> None:
    plain, watched = tiny_pipeline(Pipeline), tiny_pipeline(WatchedPipeline)
    assert isinstance(watched, WatchedPipeline)
    expected = plain.train_teacher()["training"]["losses"]
    found = watched._with_losses(watched.train_teacher)
    assert found["training"]["losses"] == expected
    assert 2 <= len(found["validation"]) <= 10
    for ours, theirs in zip(
        watched.nets["teacher"].parameters(), plain.nets["teacher"].parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_the_loss_of_a_network_that_knows_nothing_by_hand() -> None:
    """All 45 pieces alike: log 45 for every token."""
    work = tiny_pipeline(WatchedPipeline, steps=1)
    assert isinstance(work, WatchedPipeline)
    work.train_teacher()
    net = work.nets["teacher"]
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    assert work.validation(net, None) == pytest.approx(math.log(45))


def test_all_sizes_of_a_seed_come_before_the_next_seed() -> None:
    planned = [unit for unit in units(TranslationPairs()) if isinstance(unit, TranslateSome)]
    assert [unit.seed for unit in planned] == [2] * 5 + [3] * 5
    assert [unit.pairs for unit in planned[:5]] == [20_000, 40_000, 80_000, 160_000, 310_000]
    assert planned[4].plan().padir == (16_000, 220.0)
    with pytest.raises(UserError, match="there are 2 numbers of pairs"):
        units(TranslationPairs(pairs=(10, 20)))


def test_rows_of_a_run_elsewhere_are_those_of_a_run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = units(STUDY.settings[Scale.SMOKE])
    (exact,) = [unit for unit in every if isinstance(unit, ComputeLeft)]
    assert {type(row) for row in run(exact, Bench())} == {Left}
    unit = next(unit for unit in every if isinstance(unit, TranslateSome))
    here = list(run(unit, Bench()))
    assert {type(row) for row in here} >= {Learned, Scored}
    assert {row.pairs for row in here if not isinstance(row, Left)} == {120}
    text = data.toy_pairs(["de", "en"])
    work = WatchedPipeline(text.pairs, "en", "de", unit.seed, unit.plan())
    head = {"phase": "begin", "plan": vars(unit.plan()), "vocab_size": text.pairs.vocab_size}
    lines = [json.dumps(head)]
    for name, do in work.phases_of_pairs():
        lines.append(json.dumps({"phase": name, "found": do()}))
    kept = tmp_path / data.TRANSLATIONS
    kept.mkdir()
    (kept / f"en-de-{unit.seed}-120.jsonl").write_text("\n".join(lines))
    toy = data.TextPairs(text.texts, text.pairs, text.decode, text.decode_other, tmp_path)
    monkeypatch.setattr(
        "triptych.studies.refinement.translation_pairs.study.load_pairs", lambda *_: toy
    )
    there = list(run(unit, Bench()))
    timeless = [
        [replace(r, seconds=0.0) if isinstance(r, Learned) else r for r in rows]
        for rows in (here, there)
    ]
    assert timeless[0] == timeless[1]
