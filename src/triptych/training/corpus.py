"""A corpus drawn once, in place of fresh sequences: what training on finite data sees."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int, Integer
from torch import Tensor

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
    def draw(
        cls,
        documents: Structure,
        count: Count,
        rng: RngLike,
        *,
        chunk: Count,
        device: torch.device | str = "cpu",
    ) -> "Corpus":
        """`count` documents cut into chunks that do not cross them, kept on `device`."""
        check_can("documents", documents, "sample", "length", "vocab_size")
        count, chunk, device = as_size("count", count), as_size("chunk", chunk), as_device(device)
        if documents.length % chunk:
            raise UserError(
                f"documents of {documents.length} tokens do not divide into chunks of {chunk}"
            )
        tokens = documents.sample(count, as_rng(rng)).reshape(-1, chunk)
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
