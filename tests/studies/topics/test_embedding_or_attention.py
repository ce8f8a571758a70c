"""What is lost when a part is not trained: which parts there are, and the comparison by hand."""

import math

import pytest
from tests.support.fake_bench import Bench

from triptych.core.estimates import Status
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


CLAIMS = {claim.id: claim for claim in study.STUDY.claims}


def test_a_tenth_of_the_gain_is_the_limit():
    """By hand: 3.3 and 3.4 for a part, 3.15 for the whole, 4.6 for a guess: 0.15 / 1.45 = 0.103
    and 0.25 / 1.45 = 0.172 of the gain; 3.25 is 0.069."""
    for loss, share, wanted in ((3.25, 0.069, "HOLDS"), (3.4, 0.172, "FAILS")):
        rows = [row("value", 0.01, seed, loss, "published") for seed in range(3)]
        rows += [row("attention", 0.01, seed, 3.15, "published") for seed in range(3)]
        verdict = CLAIMS["li.attention-frozen"].verdict(rows)
        assert verdict.outcome is Status[wanted]
        assert verdict.checks[0].value == pytest.approx(share, abs=5e-4)
        assert verdict.checks[1].value == pytest.approx(loss - 3.15)
        assert CLAIMS["li.embedding-alone"].verdict(rows).outcome is Status.UNDECIDED


def test_the_published_masking_decides_and_seeds_are_paired():
    """Losses of a seed differ by 0.05 whatever the seed is; with all masked nothing is decided."""
    parts = {"embedding": 0.05, "everything": 0.0}
    rows = [
        row(part, 0.01, seed, 3.0 + 0.2 * seed + more, "published")
        for part, more in parts.items()
        for seed in range(3)
    ]
    verdict = CLAIMS["li.embedding-alone"].verdict(rows)
    assert verdict.outcome is Status.HOLDS
    assert verdict.checks[1].high - verdict.checks[1].low == pytest.approx(0.0, abs=1e-9)
    masked = [row(r.part, r.learning_rate, r.seed, r.loss) for r in rows]
    verdict = CLAIMS["li.embedding-alone"].verdict(masked)
    assert verdict.outcome is Status.UNDECIDED
    assert verdict.missing == ("seeds with both networks (embedding, everything): 0 of 3",)
    worse = [row("embedding", 0.01, r.seed, 4.0) if r.part == "embedding" else r for r in masked]
    verdict = CLAIMS["li.embedding-alone"].verdict([*rows, *worse])
    assert verdict.outcome is Status.HOLDS
    assert verdict.checks[2].value > 0.4


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
