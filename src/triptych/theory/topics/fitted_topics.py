"""Topics of real text: LDA on a model's own tokens, and the words of a topic [li, 2.1.5.4].

Only tokens that are whole words count, without stop words, very rare and very common ones. LDA
gives every topic t a likelihood p(w | t) of every word. Topic t keeps its θn likeliest words, n the
size of the model's vocabulary and θ the ambiguity threshold. A word may be kept by several topics.
With one topic per word it stays where its likelihood is largest.

Notation
--------
θ   threshold      share of the vocabulary that a topic keeps
p   likelihood     [topics, words], rows sum to 1
M   membership     [words, topics], True where a topic keeps a word

LDA is scikit-learn's, imported when used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.validation import UserError, as_count, as_number, as_seed

THRESHOLDS = (0.0005, 0.001, 0.002)
"""Ambiguity thresholds of the source."""

DOCUMENT_PRIOR, WORD_PRIOR = 0.1, 0.01  # Dirichlet, of topics in a document and words in a topic
_INNER_STEPS = 20  # updates of a document in one pass, at most


@dataclass(frozen=True, eq=False)
class CountedWords:
    """Words that a topic may have.

    tokens      the model's token of every word
    names       the words as text
    counts      [documents, words], how often a word occurs, a sparse matrix
    """

    tokens: Int[Tensor, " words"]
    names: tuple[str, ...]
    counts: Any

    @property
    def frequency(self) -> Float[Tensor, " words"]:
        """How often each word occurs in all documents."""
        return torch.from_numpy(np.asarray(self.counts.sum(0)).ravel())

    def index(self, vocab_size: int) -> Int[Tensor, " vocab"]:
        """The word of every token, -1 where it is none."""
        found = torch.full((vocab_size,), -1)
        found[self.tokens] = torch.arange(len(self.tokens))
        return found


def stop_words() -> frozenset[str]:
    """The English stop words of scikit-learn."""
    _sklearn()
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return ENGLISH_STOP_WORDS


def count_words(
    documents: Sequence[Sequence[int]],
    names: Sequence[str | None],
    *,
    stop: frozenset[str] = frozenset(),
    fewest: int = 10,
    most: float = 0.1,
) -> CountedWords:
    """Words that stand in `fewest` documents or more and in at most a share `most` of them.

    `names[w]` is token w as a word, None if it is none.
    """
    if not documents or not any(len(tokens) for tokens in documents):
        raise UserError("the corpus has no words; give documents with text", parameter="documents")
    fewest, most = as_count("fewest", fewest, at_least=1), as_number("most", most, above=0)
    rows = np.repeat(np.arange(len(documents)), [len(tokens) for tokens in documents])
    columns = np.concatenate([np.asarray(tokens, dtype=np.int64) for tokens in documents])
    ones = np.ones(len(columns))
    counts: Any = scipy.sparse.csr_matrix((ones, (rows, columns)), (len(documents), len(names)))
    counts.sum_duplicates()
    occurs = np.bincount(counts.indices, minlength=len(names))
    wanted = np.array([name is not None and name not in stop for name in names])
    kept = np.flatnonzero(wanted & (occurs >= fewest) & (occurs <= most * len(documents)))
    if not len(kept):
        raise UserError(
            f"no word stands in {fewest} documents or more and in at most {most:.0%} of the "
            f"{len(documents)}; give more text, or set fewest lower or most higher"
        )
    texts = tuple(str(names[i]) for i in kept.tolist())
    return CountedWords(torch.from_numpy(kept), texts, counts[:, kept])


def fit_topics(
    counts: Any, topics: int, *, seed: int, passes: int = 30
) -> Float[Tensor, "topics words"]:
    """p(w | t) of LDA by variational Bayes, `passes` times over all documents."""
    topics, seed = as_count("topics", topics, at_least=2), as_seed(seed, at_most=2**32 - 1)
    passes = as_count("passes", passes, at_least=1)
    documents, words = counts.shape
    if documents < topics:
        raise UserError(
            f"{documents} documents are too few for {topics} topics; give at least as many "
            "documents as topics",
            parameter="topics",
        )
    if words < topics:
        raise UserError(
            f"{words} words are too few for {topics} topics; give more text", parameter="topics"
        )
    lda = _sklearn().LatentDirichletAllocation(
        topics,
        doc_topic_prior=DOCUMENT_PRIOR,
        topic_word_prior=WORD_PRIOR,
        learning_method="batch",
        max_iter=passes,
        max_doc_update_iter=_INNER_STEPS,
        random_state=seed,
    )
    lda.fit(counts)
    likelihood = torch.from_numpy(np.asarray(lda.components_))
    return likelihood / likelihood.sum(1, keepdim=True)


def assign_words(
    likelihood: Float[Tensor, "topics words"], keep: int, *, several: bool
) -> Bool[Tensor, "words topics"]:
    """M: every topic keeps its `keep` likeliest words; one topic per word, unless `several`.

    Worked value: likelihoods (.5 .4 .1) and (.2 .3 .5) with keep 2 give the topics {0, 1} and
    {1, 2}. With one topic per word, word 1 stays in the first.
    """
    keep = as_count("keep", keep, at_least=1)
    topics, words = likelihood.shape
    best = likelihood.topk(min(keep, words), dim=1).indices
    kept = torch.zeros(topics, words, dtype=torch.bool).scatter(1, best, True)
    if not several:
        first = torch.where(kept, likelihood, -1.0).argmax(0)
        kept &= first == torch.arange(topics)[:, None]
    return kept.T


def words_per_topic(threshold: float, vocab_size: int) -> int:
    """θn, rounded down. Worked value: 0.0005 of 30522 tokens are 15, 0.001 are 30."""
    threshold = as_number("threshold", threshold, above=0, below=1)
    keep = int(threshold * as_count("vocab_size", vocab_size, at_least=1))
    if keep < 2:
        raise UserError(
            f"a threshold of {threshold:g} of {vocab_size} tokens keeps {keep} words a topic; two "
            f"or more make a pair, so the threshold must be at least {_upwards(2 / vocab_size)}",
            parameter="threshold",
        )
    return keep


def _upwards(value: float) -> str:
    """Two digits, rounded up. Worked value: 2/280 = 0.00714… is 0.0072."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / step - 1e-9) * step:.2g}"


def _sklearn() -> Any:
    try:
        import sklearn.decomposition as found
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "topics of real text need scikit-learn, which is not installed: "
            "pip install 'scikit-learn>=1.5,<2'",
            name=error.name,
        ) from error
    return found
