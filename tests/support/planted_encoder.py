"""An encoder whose topics are known: planted embeddings and attention."""

from dataclasses import dataclass

import torch
from tests.support.tiny_encoder import ANIMALS, MUSIC, PLAIN

NAMES = [*PLAIN, *ANIMALS, *MUSIC]


@dataclass(frozen=True)
class Planted:
    """Animals and music have directions of their own; a word attends three times to its topic."""

    planted: bool = True
    name: str = "planted"
    family: str = "encoder"
    vocab_size: int = len(NAMES)
    context: int = 512

    def encode(self, texts):
        return [[NAMES.index(word) for word in text.split()] for text in texts]

    def words(self):
        return [name if len(name) > 2 and name.isalpha() else None for name in NAMES]

    def word_tokens(self, word):
        return [NAMES.index(word)] if word in NAMES else []

    def with_specials(self, tokens):
        return list(tokens)

    def _topic(self, tokens):
        return [NAMES[t] in ANIMALS if NAMES[t] in ANIMALS + MUSIC else None for t in tokens]

    def embeddings(self):
        table = torch.ones(len(NAMES), 3)
        for i, topic in enumerate(self._topic(range(len(NAMES)))):
            if topic is not None and self.planted:
                table[i, 1 + topic] = 3.0
        return table

    def inputs(self, tokens):
        return self.embeddings()[tokens]

    def attention(self, inputs):
        of = self._topic(inputs)
        weights = torch.ones(2, 1, len(of), len(of))
        for i, a in enumerate(of):
            for j, b in enumerate(of):
                if self.planted and a is not None and a == b:
                    weights[1, 0, i, j] = 3.0
        return weights / weights.sum(-1, keepdim=True)

    def untrained(self, seed):
        return Planted(False)
