"""Topics of text: counts and thresholds by hand, LDA on documents with planted topics."""

import builtins

import numpy as np
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.theory.topics import fitted_topics as ft

NAMES = [None, "frog", "the", "rare", "toad"]


def test_counts_keep_words_that_are_neither_rare_nor_common_nor_stopped():
    documents = [[1, 1, 2, 0], [1, 4, 2], [4, 2, 3], [2, 4, 4]]
    found = ft.count_words(documents, NAMES, stop=frozenset({"the"}), fewest=2, most=0.9)
    assert found.names == ("frog", "toad")
    assert found.tokens.tolist() == [1, 4]
    assert found.counts.toarray().tolist() == [[2, 0], [1, 1], [0, 1], [0, 2]]
    assert found.frequency.tolist() == [3, 4]
    assert found.index(5).tolist() == [-1, 0, -1, -1, 1]
    assert ft.count_words(documents, NAMES, fewest=2, most=0.7).names == ("frog",)
    with pytest.raises(UserError, match="no word stands in 9 documents or more"):
        ft.count_words(documents, NAMES, fewest=9)
    with refused("documents"):
        ft.count_words([[]], NAMES)


def test_planted_topics_are_found():
    rng = np.random.default_rng(0)
    truth = np.arange(20) // 10  # words 0-9 and 10-19
    counts = np.array(
        [np.bincount(rng.choice(10, 30) + 10 * (d % 2), minlength=20) for d in range(60)]
    )
    likelihood = ft.fit_topics(counts, 2, seed=1, passes=10)
    assert likelihood.sum(1).tolist() == pytest.approx([1, 1])
    membership = ft.assign_words(likelihood, 10, several=False)
    groups = membership.float().argmax(1).numpy()
    assert (groups == truth).all() or (groups == 1 - truth).all()
    with refused("topics"):
        ft.fit_topics(counts, 61, seed=0)
    with refused("topics"):
        ft.fit_topics(counts, 30, seed=0)


def test_words_of_topics_by_hand():
    likelihood = torch.tensor([[0.5, 0.4, 0.1], [0.2, 0.3, 0.5]])
    one, several = (ft.assign_words(likelihood, 2, several=s).int().tolist() for s in (False, True))
    assert several == [[1, 0], [1, 1], [0, 1]]
    assert one == [[1, 0], [1, 0], [0, 1]]


def test_thresholds_of_the_source():
    """15, 30 and 61 words; 105 and 435 pairs are published."""
    numbers = [ft.words_per_topic(threshold, 30522) for threshold in ft.THRESHOLDS]
    assert numbers == [15, 30, 61]
    assert [n * (n - 1) // 2 for n in numbers[:2]] == [105, 435]
    with refused("threshold"):
        ft.words_per_topic(0.001, 1500)


def test_without_scikit_learn_there_is_an_install_line(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("sklearn"):
            raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match="pip install 'scikit-learn"):
        ft.fit_topics(np.ones((3, 3)), 2, seed=0)
