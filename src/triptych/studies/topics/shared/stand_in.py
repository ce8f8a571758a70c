"""A small encoder trained here, where no pretrained one is at hand.

It reads words, fills masks (15 %, of these 80 % masked, 10 % kept, 10 % replaced) and shows its
embeddings and attention as a pretrained model does. It is a stand-in: what it shows is said with
its name and decides nothing about pretrained models.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.models.language_models import MaskedLM
from triptych.models.pretrained.encoder import WORD
from triptych.models.transformer import Shape, Transformer
from triptych.studies.api.study import Bench
from triptych.studies.topics.shared.plain_text import Words, words_and_chunks
from triptych.training.corpus import Corpus
from triptych.training.loop import fit
from triptych.training.objectives import masked
from triptych.training.step import Recipe

STAND_IN = "stand-in"
LENGTH = 64  # words that it reads


@dataclass(frozen=True, eq=False)
class StandIn:
    """A `TextEncoder` around a network of our own."""

    net: Transformer = field(repr=False)
    vocabulary: Words = field(repr=False)
    name: str = STAND_IN
    family: str = STAND_IN

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary.names)

    @property
    def context(self) -> int:
        return LENGTH

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.vocabulary.encode(text) for text in texts]

    def words(self) -> list[str | None]:
        return [name if WORD.fullmatch(name) else None for name in self.vocabulary.names]

    def word_tokens(self, word: str) -> list[int]:
        return self.vocabulary.encode(word)

    def with_specials(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)

    def embeddings(self) -> Float[Tensor, "vocab width"]:
        assert self.net.embedding is not None
        return self.net.embedding.weight.detach()[: self.vocab_size]

    @torch.no_grad()
    def inputs(self, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n width"]:
        return self.net.inspect(tokens[:, None]).hidden[0][:, 0]

    @torch.no_grad()
    def attention(self, inputs: Sequence[int]) -> Float[Tensor, "layers heads t t"]:
        return torch.cat(self.net.inspect(torch.tensor([list(inputs)])).patterns)

    def untrained(self, seed: int) -> "StandIn":
        fresh = Transformer(self.net.shape, seed=seed)
        return StandIn(fresh, self.vocabulary, f"{self.name}, random weights", self.family)


def stand_in(
    corpus: str, *, vocabulary: int, width: int, layers: int, steps: int, bench: Bench
) -> StandIn:
    """The encoder, trained once and kept."""
    words, chunks = words_and_chunks(corpus, vocabulary, LENGTH)
    shape = Shape(
        vocab_size=len(words.names) + 1,  # the mask
        length=LENGTH,
        width=width,
        layers=layers,
        heads=4,
        causal=False,
        tied=True,
    )
    key = {"corpus": corpus, "vocabulary": vocabulary, "width": width}
    key |= {"layers": layers, "steps": steps}
    net = Transformer(shape, seed=1)

    def train() -> dict[str, Tensor]:
        recipe = Recipe(steps, batch=16, learning_rate=2e-3, warmup=steps // 10, decay="linear")
        objective = masked(words=len(words.names), p_m=0.15, p_c=0.1, p_r=0.1)
        fit(MaskedLM(net), Corpus(chunks).sample, objective, recipe, TorchRng(1))
        return {name: value.detach() for name, value in net.named_parameters()}

    found = bench.tensors(key, train)
    with torch.no_grad():
        for name, value in net.named_parameters():
            value.copy_(found[name])
    net.eval()
    return StandIn(net, words)
