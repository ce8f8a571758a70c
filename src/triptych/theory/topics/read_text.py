"""A text in a model's own tokens, and the topics that LDA finds in it.

text = ReadText.of(model, read_documents("wikitext2"))
fitted = fit_text(model, text, Sizes(), seed=0)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from jaxtyping import Float
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.randomness import RngLike
from triptych.core.validation import UserError, as_count, as_list, as_seed, set_fields
from triptych.models.pretrained.documents import Document
from triptych.models.pretrained.encoder import TextEncoder
from triptych.theory.topics.fitted_topics import (
    THRESHOLDS,
    CountedWords,
    count_words,
    fit_topics,
    stop_words,
    words_per_topic,
)
from triptych.theory.topics.word_pairs import permutation

Tell = Callable[[str], None]
"""Told what is being done."""

_SHORTEST = 16  # tokens of a passage


@dataclass(frozen=True)
class Sizes:
    """How topics are fitted and measured.

    passes      of LDA over the documents
    fewest      documents that a word stands in, at least
    most        share of the documents that a word stands in, at most
    passages    on which attention is measured, from different documents where there are enough
    inputs      tokens of a passage with its special ones, at most
    shuffles    of the topics, whose mean is a control
    """

    topics: int = 100
    thresholds: tuple[float, ...] = THRESHOLDS
    passes: int = 30
    fewest: int = 10
    most: float = 0.1
    passages: int = 150
    inputs: int = 128
    shuffles: int = 10

    def __post_init__(self) -> None:
        for name in ("topics", "passes", "fewest", "passages", "inputs", "shuffles"):
            set_fields(self, **{name: as_count(name, getattr(self, name), at_least=1)})
        given = as_list("thresholds", self.thresholds, "numbers")
        set_fields(self, thresholds=tuple(float(each) for each in given))
        if not self.thresholds:
            raise UserError(
                "thresholds is empty; give one or more, as 0.001", parameter="thresholds"
            )


@dataclass(frozen=True, eq=False)
class ReadText:
    """Documents in a model's tokens: their paragraphs, of 16 tokens or more."""

    documents: list[list[list[int]]]

    @classmethod
    def of(cls, model: TextEncoder, documents: Sequence[Document]) -> "ReadText":
        """Every paragraph is read once."""
        texts = list(chain.from_iterable(documents))
        read = iter(model.encode(texts))
        found = [[next(read) for _ in document] for document in documents]
        if not any(tokens for document in found for tokens in document):
            raise UserError(
                "the corpus is empty: its documents have no tokens", parameter="documents"
            )
        return cls(found)

    def whole(self) -> list[list[int]]:
        """The tokens of every document."""
        return [list(chain.from_iterable(document)) for document in self.documents]

    @renamed(number="n")
    def passages(self, n: int, rng: RngLike) -> list[list[int]]:
        """This many paragraphs, one of each document first, then others."""
        long = self._long()
        places = [(i, j) for i, document in enumerate(long) for j in range(len(document))]
        if not places:
            raise UserError(f"no paragraph has {_SHORTEST} tokens; give text with sentences")
        order = permutation(len(places), rng).tolist()
        seen: set[int] = set()
        first, later = [], []
        for place in order:
            i, j = places[place]
            (later if i in seen else first).append(long[i][j])
            seen.add(i)
        return (first + later)[:n]

    def long_paragraphs(self) -> list[list[int]]:
        """All paragraphs of which passages are taken."""
        return list(chain.from_iterable(self._long()))

    def _long(self) -> list[list[list[int]]]:
        return [[p for p in d if len(p) >= _SHORTEST] for d in self.documents]


@dataclass(frozen=True, eq=False)
class FittedText:
    """The words of a text that may have topics, and the topics of one fit of LDA."""

    seed: int
    counted: CountedWords
    likelihood: Float[Tensor, "topics words"]


def fit_text(
    model: TextEncoder, text: ReadText, sizes: Sizes, *, seed: int, tell: Tell | None = None
) -> FittedText:
    """Count words and fit LDA; every step is told."""
    seed, tell = as_seed(seed), tell or (lambda what: None)
    for threshold in sizes.thresholds:
        words_per_topic(threshold, model.vocab_size)  # too small a one is said before the fit
    tell("counting words")
    documents = text.whole()
    counted = count_words(
        documents, model.words(), stop=stop_words(), fewest=sizes.fewest, most=sizes.most
    )
    tell(f"fitting {sizes.topics} topics to {len(documents)} documents")
    likelihood = fit_topics(counted.counts, sizes.topics, seed=seed, passes=sizes.passes)
    return FittedText(seed, counted, likelihood)
