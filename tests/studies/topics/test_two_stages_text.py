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


def test_the_worst_layer_counts():
    assert ROW.stages.two
    (broken, *_) = judge.REFUTED[0]
    assert [layer.two for layer in broken.by_layer] == [True, True, True, False]
    assert not broken.stages.two
    assert broken.stages.size == max(layer.size for layer in broken.by_layer)


def test_turning_by_hand():
    """W^V makes 80 % of its growth at step 75: one turn of 40 steps before it, nine after."""
    switch = ROW.by_layer[0].switch
    assert 40 < switch < 80
    assert ROW.turning == pytest.approx(0.5 / ((0.3 + 0.2 + 7 * 0.01) / 9))
    still = replace(ROW, rotation=((0.0,) * 10,) * 4)
    assert still.turning == 1.0


def test_a_single_layer_without_stages_refutes():
    rows = Rows(judge.HELD)
    assert judge.judge(rows).outcome is Status.HOLDS
    few = Rows(judge.HELD[:6])
    assert judge.judge(few).missing == (
        "settings with 3 runs: 2 of 12",
        "settings with 3 runs of 1000 steps or more: 0 of 6",
    )
    short = Rows([replace(row, step=ROW.step) for row in judge.HELD])
    assert judge.judge(short).missing == ("settings with 3 runs of 1000 steps or more: 0 of 6",)
    assert not math.isnan(judge.judge(rows).checks[0].value)


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
    assert marks.x[0] < 0.5
    assert marks.y[0] < 0.2
    layers = [f"layer {i}" for i in (1, 2, 3, 4)]
    assert [panel.title for panel in norms.panels] == layers
    assert [series.label for series in turns.panels[0].series] == layers
    assert not any(draw(Rows([])).panels for draw in text_stages.STUDY.figures)
