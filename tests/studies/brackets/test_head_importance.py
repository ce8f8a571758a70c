"""Which head matters: what is measured, against another way to compute it, and by hand."""

import pytest
import torch
from tests.support.fake_bench import Bench

from triptych.core.estimates import Status
from triptych.core.randomness import TorchRng
from triptych.studies.api.study import Rows
from triptych.studies.brackets.head_importance import (
    HELD,
    STUDY,
    HeadOff,
    Survivor,
    TrainHeads,
    judge_adapting,
    judge_stack,
    parts,
    rank_correlation,
    run,
    without,
)
from triptych.studies.brackets.shared.heads import TrainedHeads, heads_recipe, train
from triptych.studies.brackets.shared.networks import Language
from triptych.theory.brackets.lookups import lookup_accuracy, lookups

UNIT = TrainHeads(
    heads=3,
    width=15,
    sharpness=1.0,
    steps=20,
    further=20,
    batch=4,
    strings=20,
    members=1,
    tested=20,
    seed=9,
)


@pytest.mark.usefixtures("unchecked_shapes")
def test_rows_against_another_way_to_compute_them():
    rows = list(run(UNIT, Bench()))
    heads = [row for row in rows if isinstance(row, HeadOff)]
    (last,) = [row for row in rows if isinstance(row, Survivor)]
    assert [row.head for row in heads] == [0, 1, 2]
    assert sorted(row.stack_rank for row in heads) == [1, 2, 3]
    best = max(heads, key=lambda row: row.stack)
    assert best.stack_rank == 1

    language = Language(2, 3, "prefixes")
    tokens = language.law().sample(20, TorchRng(10_000))
    where = lookups(tokens, 2)
    network = TrainedHeads.new(language, 3, 15, seed=9, sharpness=1.0)
    train([network], heads_recipe(20, 4), [9], strings=20)
    patterns = network.patterns(tokens)
    own = lookup_accuracy(network.predictions(tokens), where)
    for row in heads:
        off = patterns.clone()
        off[:, row.head] = 0.0  # the head's weights are 0, not its values
        lost = own - lookup_accuracy(network.predictions(tokens, off), where)
        assert row.fixed == pytest.approx(lost, abs=0.02)
        assert row.accuracy == pytest.approx(own, abs=0.02)

    further = [without(network, [head]) for head in range(3)] + [network.copy()]
    accuracies = []
    for each in further:  # alone, instead of all at once
        train([each], heads_recipe(20, 4), [20_009], strings=20)
        accuracies.append(lookup_accuracy(each.predictions(tokens), where))
    assert abs(own - accuracies[-1]) > 0.05, "training further changed something"
    for row in heads:
        wanted = accuracies[-1] - accuracies[row.head]
        assert row.adapted == pytest.approx(wanted, abs=0.02)
    assert len(last.accuracies) == 2
    assert last.accuracies[0] == pytest.approx(max(accuracies[:3]), abs=0.02)
    assert last.stack == heads[last.head].stack
    assert last.others == pytest.approx(
        sum(row.stack for row in heads if row.head != last.head) / 2
    )


def test_small_things_by_hand():
    assert rank_correlation([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]) == pytest.approx(0.5)
    assert rank_correlation([1.0, 1.0, 1.0], [1.0, 3.0, 2.0]) == 0.0
    assert parts([1, 2, 3, 4], 2) == [[1, 2], [3, 4]]


def test_networks_that_learned_nothing_are_no_evidence():
    rows = [
        HeadOff(seed, 0, accuracy=0.6, fixed=0.2, adapted=0.0, stack=0.1, stack_rank=1)
        for seed in range(12)
    ]
    for judge in (judge_adapting, judge_stack):
        verdict = judge(Rows(rows))
        assert verdict.outcome is Status.UNDECIDED
        assert verdict.missing[0] == "networks that learned the brackets: 0 of 10"


def test_the_figure_has_every_head():
    (draw,) = STUDY.figures
    scattered, pruned = draw(Rows(HELD)).panels
    assert [len(series.x) for series in scattered.series] == [48, 48]
    assert pruned.series[0].x == (1.0, 2.0, 3.0)
    assert torch.tensor(pruned.series[0].y).allclose(torch.tensor([1.0, 1.0, 0.99]))
