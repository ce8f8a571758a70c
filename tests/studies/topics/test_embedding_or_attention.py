"""What is lost when a part is not trained: which parts there are, and the comparison by hand."""

import math

import pytest
from tests.support.fake_bench import Bench

from triptych.lab.results.plots import to_svg
from triptych.studies.api.study import Rows, Scale
from triptych.studies.topics import embedding_or_attention as study
from triptych.studies.topics.shared.networks import Documents, network


def row(part, rate, seed, loss, masking="all masked"):
    return study.Loss(seed, part, masking, rate, loss, 3.0, 4.6)


def test_parts_train_what_they_say():
    documents = Documents(topics=2, words=2, min_length=4, length=6)
    found = {}
    for part in study.PARTS:
        net = network(documents, study.training_of(part, documents, 0.01, 10), 0)
        trained = {name for name, p in net.named_parameters() if p.requires_grad}
        found[part] = {
            label
            for label, name in (
                ("W^E", "embedding.weight"),
                ("W^K", "blocks.0.attention.key.weight"),
                ("W^Q", "blocks.0.attention.query.weight"),
                ("W^V", "blocks.0.attention.value.weight"),
            )
            if name in trained
        }
    assert found == {
        "embedding": {"W^E"},
        "value": {"W^V"},
        "attention": {"W^K", "W^Q", "W^V"},
        "everything": {"W^E", "W^K", "W^Q", "W^V"},
    }


def test_the_better_rate_counts():
    rows = [row("value", 0.01, 0, 3.2), row("value", 0.01, 1, 3.4)]
    rows += [row("value", 0.003, 0, 3.1), row("value", 0.003, 1, 3.3)]
    rows += [row("value", 0.003, 0, 1.0, masking="published"), row("embedding", 0.1, 0, 1.0)]
    assert [r.loss for r in study.best(Rows(rows), "value", "all masked")] == [3.1, 3.3]
    assert study.best(Rows(rows), "attention", "all masked") == []
    panel = study.excess_figure(Rows(rows)).panels[0]
    assert panel.series[0].x == (1.0, 2.0)
    assert panel.series[0].y == pytest.approx((-2.0, 0.2))


def test_units_cover_parts_and_maskings():
    units = study.units(study.EmbeddingOrAttention(seeds=2, rates=(0.1, 0.2)))
    assert len(units) == 4 * 2 * 2 * 2
    masked = [unit for unit in units if unit.masking == "all masked"]
    assert len(masked) == len(units) / 2
    assert {unit.part for unit in masked} == set(study.PARTS)
    assert (masked[0].masked.p_c, masked[0].masked.p_r) == (0.0, 0.0)
    assert masked[0].documents.p_c == 0.1


def test_nothing_beats_the_exact_conditional_where_all_are_masked():
    """On the same documents: only by chance, and after 20 steps not by that either."""
    units = study.units(study.STUDY.settings[Scale.SMOKE])
    rows = [r for unit in units for r in study.run(unit, Bench())]
    for unit, found in zip(units, rows, strict=True):
        assert (found.part, found.masking) == (unit.part, unit.masking)
    for found in rows:
        assert math.isfinite(found.exact)
        assert found.exact < found.guess == pytest.approx(math.log(9))
        if found.masking == "all masked":
            assert found.loss > found.exact
    exact = {found.exact for found in rows}
    assert len(exact) == 1  # a reference that does not depend on the network
    for figure in study.STUDY.figures:
        assert to_svg(figure(Rows(rows))).startswith("<svg")
        assert to_svg(figure(Rows([]))).startswith("<svg")
