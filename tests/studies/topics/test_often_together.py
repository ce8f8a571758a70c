"""Pairs that stand together: counts and PMI by hand and by brute force, the judge, a small run."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
from tests.support.fake_bench import Bench

from triptych.core.estimates import Status
from triptych.core.validation import UserError
from triptych.lab.results.plots import to_svg
from triptych.studies.api.study import Rows, Scale
from triptych.studies.topics import often_together as study
from triptych.theory.topics.read_text import ReadText
from triptych.theory.topics.word_pairs import top_pairs

(CLAIM,) = study.STUDY.claims
SETTINGS = study.STUDY.settings

# paragraphs: a b, a b c, c, c
FOUR = scipy.sparse.csr_matrix(np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1], [0, 0, 1]], np.float32))


def test_pmi_by_hand():
    """PMI(a, b) = log 2; PMI(a, c) = PMI(b, c) = log 2/3. Counts: 2, 1, 1."""
    assert study.pmi_pairs(FOUR, 3, fewest=1).tolist() == [[0, 1], [0, 2], [1, 2]]
    assert study.pmi_pairs(FOUR, 1, fewest=2).tolist() == [[0, 1]]
    assert top_pairs(FOUR, 1).tolist() == [[0, 1]]
    with pytest.raises(UserError, match="1 pairs of words stand in 2 paragraphs or more, and 2"):
        study.pmi_pairs(FOUR, 2, fewest=2)


@pytest.mark.parametrize("seed", range(3))
def test_pmi_against_brute_force(seed):
    random = np.random.default_rng(seed)
    table = (random.random((60, 8)) < random.random(8)).astype(np.float32)
    wanted = {}
    for a, b in itertools.combinations(range(8), 2):
        both = int((table[:, a] * table[:, b]).sum())
        if both >= 3:
            wanted[a, b] = math.log(both * 60 / (table[:, a].sum() * table[:, b].sum()))
    found = study.pmi_pairs(scipy.sparse.csr_matrix(table), len(wanted), fewest=3).tolist()
    values = [wanted[a, b] for a, b in found]
    assert sorted(map(tuple, found)) == sorted(wanted)
    assert values == sorted(values, reverse=True)


def test_a_rare_pair_wins_by_pmi_and_a_common_one_by_count():
    """Words 0 and 1 are in 50 of 60 paragraphs, 2 and 3 in the same 4."""
    table = np.zeros((60, 4), np.float32)
    table[:50, :2] = 1
    table[50:54, 2:] = 1
    occurs = scipy.sparse.csr_matrix(table)
    assert top_pairs(occurs, 1).tolist() == [[0, 1]]
    assert study.pmi_pairs(occurs, 1, fewest=1).tolist() == [[2, 3]]


def test_paragraphs_count_a_word_once():
    text = ReadText([[[5, 5, 7], [7]], [[9, 5]]])
    word_of = torch.full((10,), -1)
    word_of[5], word_of[7] = 0, 1
    found = study.occurrences(text, word_of, 2).toarray()
    assert found.tolist() == [[1, 1], [0, 1], [1, 0]]


# ------------------------------------------------------------------ the judge


def held():
    return list(CLAIM.held_by)


def test_pairs_by_pmi_are_shown_and_decide_nothing():
    rows = [
        replace(row, cosine_ratio=0.5, cosine_low=0.4, cosine_high=0.6) if row.by == "pmi" else row
        for row in held()
    ]
    verdict = CLAIM.verdict(rows)
    assert verdict.outcome is Status.HOLDS
    told = {
        c.sentence: c.value for c in verdict.checks if c.sentence.startswith("pairs by pointwise")
    }
    assert len(told) == 2
    assert sorted(told.values()) == pytest.approx([0.5, 0.88])
    assert CLAIM.verdict([row for row in rows if row.by == "pmi"]).outcome is Status.UNDECIDED


def test_the_weakest_model_decides():
    worst = [
        replace(row, attention_ratio=1.2, attention_low=1.1, attention_high=1.3)
        if (row.model, row.threshold) == ("second", 0.001)
        else row
        for row in held()
    ]
    assert CLAIM.verdict(worst).outcome is Status.FAILS
    one = [row for row in held() if row.model == "first"]
    assert CLAIM.verdict(one).outcome is Status.UNDECIDED
    for family in ("stand-in", "causal"):
        verdict = CLAIM.verdict([replace(row, family=family) for row in held()])
        assert verdict.outcome is Status.UNDECIDED
        assert verdict.missing == ("pretrained encoders with 3 fits of LDA: 0 of 2",)


def test_no_such_pair_in_the_passages_leaves_it_open():
    none = dict.fromkeys(
        ("attention_topic", "attention_pairs", "attention_ratio", "attention_low", "attention_high")
    )
    verdict = CLAIM.verdict([replace(row, **none) for row in held()])
    assert verdict.outcome is Status.UNDECIDED


# ------------------------------------------------------------------ the study


def test_common_words_count():
    assert all(settings.most == 1.0 for settings in SETTINGS.values())
    units = study.units(SETTINGS[Scale.PAPER])
    assert [(unit.model, unit.seed) for unit in units] == [
        (model, seed) for model in ("minilm", "mpnet") for seed in range(3)
    ]
    assert (units[0].steps, units[0].vocabulary) == (0, 0)


def test_what_was_not_fetched_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path))
    study._pretrained.cache_clear()
    unit, *_ = study.units(SETTINGS[Scale.PAPER])
    with pytest.raises(UserError, match="^not run: needs `triptych fetch minilm`$"):
        list(study.run(unit, Bench()))


def test_a_small_run():
    (unit,) = study.units(SETTINGS[Scale.SMOKE])
    rows = list(study.run(unit, Bench()))
    assert [(row.threshold, row.by) for row in rows] == [(0.01, "count"), (0.01, "pmi")]
    by_count, by_pmi = rows
    assert by_count.pairs == by_pmi.pairs == 8 * 7 // 2
    assert by_count.examples != by_pmi.examples
    assert by_count.cosine_topic == by_pmi.cosine_topic
    assert by_count.attention_ratio == pytest.approx(
        by_count.attention_topic / by_count.attention_pairs
    )
    assert CLAIM.verdict(rows).outcome is Status.UNDECIDED
    for figure in study.STUDY.figures:
        assert to_svg(figure(Rows(rows))).startswith("<svg")
        assert to_svg(figure(Rows([]))).startswith("<svg")
        assert len(figure(Rows(held())).panels) == 2
