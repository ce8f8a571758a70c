"""The study of real text: what is not fetched, how fits are put together, the stand-in."""

import math

import pytest
import torch
from tests.support.fake_bench import Bench

from triptych.core.estimates import Estimate, Status
from triptych.core.validation import UserError
from triptych.models.pretrained.encoder import TextEncoder
from triptych.studies.api.study import Rows, Scale
from triptych.studies.topics.real_text import figures, judge
from triptych.studies.topics.real_text import study as real_text
from triptych.studies.topics.shared import fits
from triptych.studies.topics.shared.stand_in import stand_in
from triptych.theory.topics.real_text import GROUPS, AttentionRatio, HeadRatios
from triptych.theory.topics.topic_mixtures import TopicMixture, one_layer

SETTINGS = real_text.STUDY.settings


def test_what_was_not_fetched_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path))
    real_text._pretrained.cache_clear()
    unit, *_ = real_text.units(SETTINGS[Scale.PAPER])
    with pytest.raises(UserError, match="^not run: needs `triptych fetch minilm`$"):
        list(real_text.run(unit, Bench()))


def test_units_are_models_times_fits():
    units = real_text.units(SETTINGS[Scale.PAPER])
    assert [unit.model for unit in units] == ["minilm"] * 5 + ["mpnet"] * 5 + ["smollm2-135m"] * 5
    assert [unit.seed for unit in units[:5]] == [0, 0, 1, 2, 0]
    assert units[0].groups == GROUPS
    assert units[1].topics == 100
    assert isinstance(units[4], real_text.CountTopics)


def found(ratio, low, high, model="a", seed=0):
    return fits.Found(model, 0.001, seed, ratio, low, high)


def test_fits_are_put_together():
    two = [found(2.0, 1.0, 3.0), found(4.0, 3.0, 6.0, seed=1)]
    assert fits.over_fits(two) == Estimate(3.0, 1.0, 6.0, 2)
    assert math.isnan(fits.over_fits([*two, found(None, None, None)]).value)
    assert math.isnan(fits.over_fits([]).value)
    others = [found(1.5, 1.4, 1.6, model="b"), found(0.9, 0.2, 1.1, model="c")]
    assert fits.lowest([*two, *others]).low == 0.2
    assert fits.highest([*two, *others]).high == 6.0
    assert fits.furthest(others).value == 0.9
    share = judge._share_above(fits.cells([*two, *others]).values())
    assert (share.value, share.low, share.high) == (pytest.approx(2 / 3), pytest.approx(1 / 3), 1)


def test_the_stand_in_decides_nothing():
    """The same rows of a stand-in and of a causal model leave every claim undecided."""
    for family in ("stand-in", "causal"):
        rows = Rows([type(row)(**{**vars(row), "family": family}) for row in judge.HELD])
        for claim in real_text.STUDY.claims:
            verdict = claim.verdict(rows)
            assert verdict.outcome is Status.UNDECIDED
            assert verdict.missing
            assert not any(math.isnan(check.value) for check in verdict.checks)


def test_one_encoder_is_not_enough():
    rows = Rows([row for row in judge.HELD if row.model == "first"])
    for claim in real_text.STUDY.claims:
        assert claim.verdict(rows).outcome is Status.UNDECIDED


def test_the_stand_in_answers_as_an_encoder_does():
    model = stand_in("python-help", vocabulary=60, width=8, layers=2, steps=2, bench=Bench())
    assert isinstance(model, TextEncoder)
    assert model.vocab_size == 60
    tokens = model.encode(["the class of the instance"])[0]
    attention = model.attention(model.with_specials(tokens))
    assert attention.shape == (2, 4, 5, 5)
    assert torch.allclose(attention.sum(-1), torch.ones(2, 4, 5))
    inputs = model.inputs(torch.tensor(tokens))
    position = model.net.position.weight[0]
    assert torch.allclose(inputs, model.embeddings()[tokens] + position)
    assert model.untrained(0).family == "stand-in"
    assert not torch.equal(model.untrained(0).embeddings(), model.embeddings())


def test_the_figure_beside_the_closed_form():
    """One panel a model, at the threshold at which heads were measured; fits are averaged."""
    rows = []
    for seed, ratio in enumerate((1.2, 1.6)):
        about = {"model": "m", "family": "encoder", "seed": seed}
        ends = {"same": ratio, "different": 1.0, "low": ratio - 0.1, "high": ratio + 0.1}
        for layer in (None, 1, 2):
            for threshold in (0.1, 0.2):
                rows.append(
                    AttentionRatio(
                        **about, **ends, ratio=ratio, layer=layer, threshold=threshold, pairs=9,
                        weights="trained", several=False, shuffled=False,
                    )
                )  # fmt: skip
        heads = ((1.0, 2.0 + seed), (3.0, 1.0))
        rows.append(HeadRatios(**about, weights="trained", threshold=0.1, ratios=heads))
        for threshold in (0.1, 0.2):
            rows.append(
                TopicMixture(
                    **about, threshold=threshold, topics=20, words=9.0, documents=4.0,
                    passages=3.0 + seed, share=0.1,
                )
            )  # fmt: skip
    (panel,) = figures.closed_form_figure(Rows(rows)).panels
    assert panel.title == "m, 3.0 topics a passage"
    best, highest, every = panel.series
    assert best.y == (one_layer(20, 9, 3).ratio,) * 2
    assert (highest.y, highest.low, highest.high) == ((2.5, 3.0), (2.0, 3.0), (3.0, 3.0))
    assert every.y == pytest.approx((1.4, 1.4))
    assert (every.low, every.high) == (pytest.approx((1.1, 1.1)), pytest.approx((1.7, 1.7)))
    assert figures.closed_form_figure(Rows([])).panels == []
