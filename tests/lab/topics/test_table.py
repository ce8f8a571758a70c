"""Tables of `triptych topics`, from records made by hand."""

import pytest

from triptych.lab.topics.reading import Reading
from triptych.lab.topics.table import lines, tables
from triptych.theory.topics.read_text import Sizes
from triptych.theory.topics.real_text import AttentionRatio, EmbeddingRatio, Fitted, HeadRatios
from triptych.theory.topics.topic_mixtures import TopicMixture, one_layer

ABOUT = {"model": "m", "family": "encoder", "seed": 0}
SETTING = {"threshold": 0.1, "several": False}


def embedding(measure, different=0.1, **changes):
    numbers = {"same": 0.2, "different": different, "ratio": 0.2 / different}
    ends = {"low": 1.5, "high": 2.5, "matched": 1.9, "shuffled": 1.0}
    kind = {"weights": "trained", "vectors": "word", "measure": measure, "words": 8}
    return EmbeddingRatio(**{**ABOUT, **SETTING, **numbers, **ends, **kind, **changes})


def attention(layer, ratio, **changes):
    numbers = {"same": ratio, "different": 1.0, "ratio": ratio, "low": ratio, "high": ratio}
    kind = {"weights": "trained", "shuffled": False, "layer": layer, "pairs": 4}
    return AttentionRatio(**{**ABOUT, **SETTING, **numbers, **kind, **changes})


FITTED = Fitted(**ABOUT, documents=9, tokens=99, words=8, topics=(("frog",), ("opera",)))
HEADS = HeadRatios(**ABOUT, weights="trained", threshold=0.1, ratios=((1.5, 2.5), (3.0, 1.0)))
MIXTURE = TopicMixture(
    **ABOUT, threshold=0.1, topics=10, words=4.0, documents=3.0, passages=4.2, share=0.125
)


def reading(*records):
    return Reading("m", "encoder", "texts", Sizes(topics=2), 1, [FITTED, *records])


def test_the_closed_form_by_hand():
    """τ = 4: a ratio of 1.5 gives the own topic 1.5 / 4.5 of the attention to words."""
    layers = [attention(None, 1.5), attention(1, 1.0), attention(2, 2.0)]
    *_, table = tables(reading(embedding("cosine"), embedding("dot"), *layers, HEADS, MIXTURE))
    (row,) = table.rows
    best = one_layer(10, 4, 4)
    shares = (f"{best.ratio / (best.ratio + 3):.0%}", "33%")
    assert row == (
        *("0.1", "4", "4.2", "12.5%", f"{best.ratio:.1f}", "1.50", "2.00 (layer 2)", "3.0"),
        *shares,
    )
    assert len(table.columns) == len(row)


def test_text_without_pairs_of_a_kind():
    """Where no passage has two topics, the table says so; it was a crash."""
    shuffled = [attention(layer, 1.0, shuffled=True) for layer in (None, 1, 2)]
    found = reading(embedding("cosine"), embedding("dot"), *shuffled, HEADS, MIXTURE)
    ratios, layers, _ = tables(found)
    assert ratios.rows[0][4:7] == ("2.00 [1.50, 2.50]", "2.00 [1.50, 2.50]", "no pairs")
    assert layers.rows == [
        ("1", "no pairs", "1.00"),
        ("2", "no pairs", "1.00"),
    ]
    assert layers.columns == ("layer", "trained", "topics shuffled")
    assert not any("closed form" in line for line in lines(found))


@pytest.mark.parametrize("different", [-0.1, -1e-9])
def test_a_ratio_over_a_mean_below_zero_is_not_shown(different):
    shuffled = [attention(1, 1.0, shuffled=True)]
    found = reading(embedding("cosine", different), embedding("dot", different), *shuffled)
    (row,) = tables(found)[0].rows
    assert row[4:6] == ("0/0", "0/0")
    assert row[7:9] == ("", "")
