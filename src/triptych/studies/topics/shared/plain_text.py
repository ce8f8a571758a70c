"""Text in words, for small networks that are trained here: a vocabulary, and chunks of it.

A word is a run of letters, a run of digits, or one other sign, in small letters. Words beyond the
vocabulary are one token, `other`.
"""

import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.validation import UserError
from triptych.models.pretrained.documents import Document, read_documents

_TOKEN = re.compile(r"[a-z]+|[0-9]+|[^\sa-z0-9]")
OTHER = "<other>"


def corpus_documents(name: str) -> list[Document]:
    """The documents of a corpus; one that was not fetched is not run."""
    try:
        return read_documents(name)
    except UserError as error:
        if "triptych fetch" in str(error):
            raise UserError(f"not run: needs `triptych fetch {name}`") from error
        raise


@dataclass(frozen=True, eq=False)
class Words:
    """names[w] is word w; the last one stands for all others."""

    names: tuple[str, ...]
    index: dict[str, int]

    @classmethod
    def of(cls, documents: Sequence[Document], size: int) -> "Words":
        """The most frequent words, `size` with the one for all others; ties by the alphabet."""
        counts: Counter[str] = Counter()
        for document in documents:
            for paragraph in document:
                counts.update(split(paragraph))
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        names = (*ordered[: size - 1], OTHER)
        return cls(names, {word: i for i, word in enumerate(names)})

    def encode(self, text: str) -> list[int]:
        other = len(self.names) - 1
        return [self.index.get(word, other) for word in split(text)]


def split(text: str) -> list[str]:
    """Worked value: "W^V of 2 Heads" is w ^ v of 2 heads."""
    return _TOKEN.findall(text.lower())


@functools.lru_cache(maxsize=2)
def words_and_chunks(corpus: str, size: int, length: int) -> tuple[Words, Int[Tensor, "n length"]]:
    """The vocabulary of a corpus, and its text in chunks that do not cross documents."""
    documents = corpus_documents(corpus)
    words = Words.of(documents, size)
    chunks: list[list[int]] = []
    for document in documents:
        tokens = [token for paragraph in document for token in words.encode(paragraph)]
        chunks += [tokens[i : i + length] for i in range(0, len(tokens) - length + 1, length)]
    if not chunks:
        raise UserError(f"no document of {corpus} has {length} words; there is nothing to train on")
    return words, torch.tensor(chunks)
