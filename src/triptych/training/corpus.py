"""A corpus drawn once, instead of fresh sequences: what training on finite data sees.

`Corpus` holds chunks of text, `PairCorpus` pairs of sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.protocols import Structure
from triptych.core.randomness import RngLike, TorchRng, as_rng
from triptych.core.validation import (
    Count,
    UserError,
    as_device,
    as_integers,
    as_list,
    as_size,
    check_can,
)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Chunks of text; `sample` draws some of them with replacement, as a `Sampler` for `fit`.

    Which chunks come is decided by the rng alone, so a run that was stopped resumes where it was.
    """

    chunks: Integer[Tensor, "chunks length"]

    def __post_init__(self) -> None:
        as_integers("chunks", self.chunks, dimensions=2)  # and kept in the small type it has
        as_size("the number of chunks", len(self.chunks))

    @classmethod
    @renamed(count="n")
    def draw(
        cls,
        documents: Structure,
        n: Count,
        rng: RngLike,
        *,
        chunk: Count,
        device: torch.device | str = "cpu",
    ) -> "Corpus":
        """`n` documents cut into chunks that do not cross them, kept on `device`."""
        check_can("documents", documents, "sample", "length", "vocab_size")
        n, chunk, device = as_size("n", n), as_size("chunk", chunk), as_device(device)
        if documents.length % chunk:
            raise UserError(
                f"documents of {documents.length} tokens do not divide into chunks of {chunk}",
                parameter="documents",
            )
        tokens = documents.sample(n, as_rng(rng)).reshape(-1, chunk)
        small = torch.uint8 if documents.vocab_size <= 256 else torch.int32
        return cls(tokens.to(device, small))

    def sample(self, n: Count, rng: TorchRng) -> Int[Tensor, "n length"]:
        """n chunks, uniform with replacement."""
        n = as_size("n", n, at_least=0)
        check_can("rng", rng, "generator")
        return self.chunks[self._rows(n, rng)].long()

    def sample_each(self, n: Count, rngs: Sequence[TorchRng]) -> Int[Tensor, "rngs n length"]:
        """n chunks for every rng, those that `sample` would give."""
        n, rngs = as_size("n", n, at_least=0), as_list("rngs", rngs, "TorchRngs")
        for rng in rngs:
            check_can("rng", rng, "generator")
        return self.chunks[torch.stack([self._rows(n, rng) for rng in rngs])].long()

    def _rows(self, n: int, rng: TorchRng) -> Int[Tensor, " n"]:
        rows = torch.randint(
            len(self.chunks), (n,), generator=rng.generator, device=rng.generator.device
        )
        return rows.to(self.chunks.device)


class PairBatch(NamedTuple):
    """Sentences and their translations, 0 beyond the end of each."""

    source: Int[Tensor, "batch source"]
    source_lengths: Int[Tensor, " batch"]
    target: Int[Tensor, "batch target"]
    target_lengths: Int[Tensor, " batch"]


class PairCorpus:
    """Pairs of sentences in groups of similar length, each drawn in batches of one shape.

    A batch of a group has about `tokens` target positions, padding included, so short sentences
    come in large batches. Shapes are few and fixed, which is what a recorded step needs. The group
    of a step is a function of its number: over many steps each comes as often as its share of all
    positions. Which pairs come is decided by the rng alone, so a run that was stopped resumes.

    Worked value: sentences of 3, 5 and 8 tokens, the longer of the two sides, with at most 6 in the
    first group and 8 in the second, and tokens=24: batches of 24/6 = 4 and 24/8 = 3 pairs.
    """

    def __init__(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        *,
        tokens: Count,
        widths: Sequence[int],
        device: torch.device | str = "cpu",
    ) -> None:
        tokens, device = as_size("tokens", tokens), as_device(device)
        widths = sorted({as_size("widths", width) for width in widths})
        if len(sources) != len(targets) or not sources:
            raise UserError(
                f"there are {len(sources)} sources and {len(targets)} targets; a corpus needs as "
                "many of one as of the other, and at least one pair"
            )
        longest = [max(len(a), len(b)) for a, b in zip(sources, targets, strict=True)]
        empty = sum(min(len(a), len(b)) == 0 for a, b in zip(sources, targets, strict=True))
        if empty or max(longest) > widths[-1]:
            raise UserError(
                f"{empty} pairs have an empty side and the longest sentence has {max(longest)} "
                f"tokens; every sentence needs 1 to {widths[-1]}",
                parameter="tokens",
            )
        self.groups: list[PairBatch] = []
        self.sizes: list[int] = []
        work: list[float] = []
        for low, high in zip([0, *widths], widths, strict=False):
            rows = [i for i, length in enumerate(longest) if low < length <= high]
            if rows:
                source = padded([sources[i] for i in rows], high, device)
                target = padded([targets[i] for i in rows], high, device)
                self.groups.append(PairBatch(*source, *target))
                self.sizes.append(max(1, tokens // high))
                work.append(len(rows) / self.sizes[-1])
        self._upto = (torch.tensor(work).cumsum(0) / sum(work)).tolist()

    def group_at(self, step: int) -> int:
        """The group of step 0, 1, ...: the golden ratio spreads the groups evenly."""
        place = (step + 1) * 0.6180339887498949 % 1.0
        return next((i for i, upto in enumerate(self._upto) if place < upto), len(self._upto) - 1)

    def batch(self, step: int, rng: TorchRng) -> PairBatch:
        """Pairs of the group of this step, uniform with replacement."""
        number = self.group_at(step)
        group, size = self.groups[number], self.sizes[number]
        device = rng.generator.device
        rows = torch.randint(len(group.source), (size,), generator=rng.generator, device=device)
        rows = rows.to(group.source.device)
        return PairBatch(*(part[rows].long() for part in group))


def padded(
    sentences: Sequence[Sequence[int]], width: int, device: torch.device | str = "cpu"
) -> tuple[Integer[Tensor, "batch width"], Integer[Tensor, " batch"]]:
    """The sentences as rows with 0 beyond their ends, and their lengths."""
    rows = torch.zeros(len(sentences), width, dtype=torch.int32)
    for row, sentence in zip(rows, sentences, strict=True):
        row[: len(sentence)] = torch.tensor(list(sentence), dtype=torch.int32)
    lengths = torch.tensor([len(sentence) for sentence in sentences], dtype=torch.int32)
    return rows.to(device), lengths.to(device)
