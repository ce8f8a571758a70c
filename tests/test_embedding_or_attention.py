"""What is lost when a part is not trained: which parts there are, and the comparison by hand."""

import math

import pytest

from triptych.core.randomness import TorchRng
from triptych.lab.plots import to_svg
from triptych.studies import embedding_or_attention as study
from triptych.studies.study import Scale
from triptych.studies.trained_topics import Documents, network


class Bench:
    device = "cpu"

    def rng(self, purpose=""):
        return TorchRng(sum(map(ord, purpose)))

    def tensors(self, key, make):
        return make()


def row(part, rate, seed, loss, masking="all masked"):
    return {
        "kind": "loss",
        "part": part,
        "masking": masking,
        "learning_rate": rate,
        "seed": seed,
        "loss": loss,
        "exact": 3.0,
        "guess": 4.6,
    }


def test_parts_train_what_they_say():
    documents = Documents(topics=2, words=2, min_length=4, length=6)
    found = {}
    for part, training in study.trainings(documents, 0.01, 10).items():
        net = network(documents, training, 0)
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
    assert [r["loss"] for r in study.best(rows, "value", "all masked")] == [3.1, 3.3]
    assert study.best(rows, "attention", "all masked") == []
    panel = study.excess_figure(rows).panels[0]
    assert panel.series[0].x == (1.0, 2.0)
    assert panel.series[0].y == pytest.approx((-2.0, 0.2))


def test_units_cover_parts_and_maskings():
    units = study.units(study.EmbeddingOrAttention(seeds=2, rates=(0.1, 0.2)))
    assert len(units) == 4 * 2 * 2 * 2
    masked = [unit for unit in units if unit.parameters["p_c"] == unit.parameters["p_r"] == 0]
    assert len(masked) == len(units) / 2
    assert {unit.parameters["part"] for unit in masked} == set(study.PARTS)


def test_nothing_beats_the_exact_conditional_where_all_are_masked():
    """On the same documents: only by chance, and after 20 steps not by that either."""
    units = study.units(study.STUDY.settings[Scale.SMOKE])
    rows = [r for unit in units for r in study.run(unit, Bench())]
    for unit, found in zip(units, rows, strict=True):
        wanted = "published" if unit.parameters["p_c"] else "all masked"
        assert (found["part"], found["masking"]) == (unit.parameters["part"], wanted)
    for found in rows:
        assert math.isfinite(found["exact"])
        assert found["exact"] < found["guess"] == pytest.approx(math.log(9))
        if found["masking"] == "all masked":
            assert found["loss"] > found["exact"]
    exact = {found["exact"] for found in rows}
    assert len(exact) == 1  # a reference that does not depend on the network
    for figure in study.STUDY.figures:
        assert to_svg(figure(rows)).startswith("<svg")
        assert to_svg(figure([])).startswith("<svg")
