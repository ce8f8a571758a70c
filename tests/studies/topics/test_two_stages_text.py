"""Norms and turns by layer: by hand, on a network that is known, and the worst layer decides."""

import math
from dataclasses import replace

import pytest
import torch
from tests.support.fake_bench import Bench

from triptych.core.estimates import Status
from triptych.core.validation import UserError
from triptych.studies.api.study import Rows, Scale
from triptych.studies.topics.shared.plain_text import Words, split, words_and_chunks
from triptych.studies.topics.two_stages_text import judge
from triptych.studies.topics.two_stages_text import study as text_stages
from triptych.studies.topics.two_stages_text.rows import LayerCurves

SMOKE = text_stages.STUDY.settings[Scale.SMOKE]
(ROW, *_) = judge.HELD
TOLD = (
    "settings in which W^K and W^Q of all layers grow to twice their first norms, or of 5,000 steps"
)


def test_rotation_by_hand():
    a, b = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])
    assert text_stages.rotation(a, 3 * a) == 0
    assert text_stages.rotation(a, -a) == 1
    assert text_stages.rotation(a, b) == pytest.approx((1 - 0.5**0.5) / 2)


def test_norms_are_those_of_the_network():
    """The first norms are those of the start, near zero; all heads are counted together."""
    unit = next(u for u in text_stages.units(SMOKE) if u.optimiser == "sgd")
    (row,) = text_stages.run(unit, Bench())
    assert isinstance(row, LayerCurves)
    words, _ = words_and_chunks(unit.corpus, unit.vocabulary, unit.length)
    net = text_stages.network(unit, len(words.names))
    for i, layer in enumerate(text_stages.layers_of(net)):
        firsts = (row.key[i][0], row.query[i][0], row.value[i][0])
        assert firsts == tuple(float(m.detach().norm()) for m in layer)
        assert firsts[2] == pytest.approx(unit.init_scale * unit.width, rel=0.2)
    other = net.blocks[0].feedforward.inner.weight
    assert float(other.detach().std()) == pytest.approx(text_stages.DEFAULT, rel=0.1)
    assert row.step == (0, 10, 20, 30, 40)
    assert [len(turns) for turns in row.rotation] == [4, 4]
    assert all(0 <= turn <= 1 for turns in row.rotation for turn in turns)
    assert row.last_loss < row.first_loss


def test_a_run_that_diverges_is_said():
    unit = replace(text_stages.units(SMOKE)[0], learning_rate=1e30, steps=60)
    (row,) = text_stages.run(unit, Bench())
    assert isinstance(row, text_stages.Diverged)


def test_order_by_hand():
    """W^V makes 20 % of its growth of 4.3, to 0.96, at 40 · 0.86 / 1.9 = 18.1; W^K of 2.9, to 0.68,
    at 200 + 40 · 0.18 / 0.5 = 214.4, and 0.1 to 3 is 4.9 doublings. Before step 214 W^V turns by
    (0.5 + 0.3 + 0.2 + 0.01 + 0.01) / 5 in 40 steps, then by 0.01."""
    (layer, *others) = judge.orders(ROW)
    assert len(others) == 3
    assert layer.value == pytest.approx(18.105, abs=1e-3)
    assert layer.later == pytest.approx(214.4 / 18.105, rel=1e-4)
    assert layer.doublings == pytest.approx(math.log2(30))
    assert layer.turning == pytest.approx((1.02 / 5) / 0.01)
    still = replace(ROW, rotation=((0.0,) * 10,) * 4)
    assert judge.worst_layer(still).turning == 1.0


def test_the_earlier_of_keys_and_queries_and_the_worst_layer_count():
    early = replace(ROW, query=(*ROW.query[:-1], ROW.value[-1]))
    *good, bad = judge.orders(early)
    assert all(layer.later > 10 for layer in good)
    assert bad.later == pytest.approx(1.0)
    assert judge.worst_layer(early).later == pytest.approx(1.0)
    flat = replace(ROW, query=(*ROW.query[:-1], (0.1,) * 11))
    assert judge.worst_layer(flat).doublings == 0.0
    slow = replace(ROW, value=(*ROW.value[:-1], (0.1, *[0.2] * 9, 4.4)))
    assert judge.worst_layer(slow).value > 300


def test_one_setting_is_enough_and_refuting_takes_many():
    assert judge.judge(Rows(judge.HELD)).outcome is Status.HOLDS
    assert judge.judge(Rows(judge.HELD[:3])).outcome is Status.HOLDS
    assert judge.judge(Rows(judge.HELD[:2])).missing == ("settings with 3 runs: 0 of 12",)
    bad = judge.REFUTED[0]
    assert judge.judge(Rows(bad[:6])).missing == (
        "settings with 3 runs: 2 of 12",
        f"{TOLD}: 2 of 6",
    )
    one = [*judge.HELD[:3], *bad[3:]]
    verdict = judge.judge(Rows(one))
    assert verdict.outcome is Status.HOLDS
    assert verdict.measured["clearest"] == "SGD 0.1 from 0.001, 400 steps"


def test_settings_in_which_nothing_comes_second_refute_nothing():
    """W^K of one layer grows by a tenth in all settings: whether it is second is not known."""
    still = [
        replace(row, key=(*row.key[:-1], (*[0.1] * 10, 0.11)), query=row.key) for row in judge.HELD
    ]
    assert judge.judge(Rows(still)).outcome is Status.FAILS  # half of them have 8,000 steps
    short = [replace(row, step=ROW.step) for row in still]
    verdict = judge.judge(Rows(short))
    assert verdict.outcome is Status.UNDECIDED
    assert verdict.missing == (f"{TOLD}: 0 of 6",)


def test_words_of_text():
    assert split("W^V of 2 Heads") == ["w", "^", "v", "of", "2", "heads"]
    words = Words.of([["a a b", "b a c"]], 3)
    assert words.names == ("a", "b", "<other>")
    assert words.encode("A c b") == [0, 2, 1]


def test_a_corpus_that_was_not_fetched_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="^not run: needs `triptych fetch wikitext2`$"):
        words_and_chunks("wikitext2", 10, 4)


def test_longer_runs_are_settings_of_their_own():
    settings = replace(SMOKE, longer=80, longer_rates=(0.1, 0.2))
    units = text_stages.units(settings)
    assert [(u.optimiser, u.learning_rate, u.steps) for u in units] == [
        ("sgd", 0.3, 40),
        ("adam", 0.001, 40),
        ("sgd", 0.1, 80),
        ("sgd", 0.2, 80),
    ]
    assert [u.steps for u in text_stages.units(SMOKE)] == [40, 40]
    longer = replace(ROW, step=tuple(2 * step for step in ROW.step))
    assert str(ROW.setting) == "SGD 0.1 from 0.001, 400 steps"
    assert str(longer.setting) == "SGD 0.1 from 0.001, 800 steps"
    assert len(judge.by_setting([ROW, longer])) == 2


def test_figures_show_every_setting():
    rows = Rows(judge.HELD)
    settings, norms, turns = (draw(rows) for draw in text_stages.STUDY.figures)
    (panel,) = settings.panels
    (marks, corner) = panel.series
    assert (len(marks.x), marks.line, corner.kind) == (12, False, "truth")
    assert marks.x[0] == pytest.approx(math.log2(30))
    assert marks.y[0] > 10
    layers = [f"layer {i}" for i in (1, 2, 3, 4)]
    assert [panel.title for panel in norms.panels] == layers
    assert [series.label for series in turns.panels[0].series] == layers
    assert not any(draw(Rows([])).panels for draw in text_stages.STUDY.figures)
