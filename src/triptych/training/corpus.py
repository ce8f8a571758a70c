"""A corpus drawn once, in place of fresh sequences: what training on finite data sees."""

from dataclasses import dataclass

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from triptych.core.protocols import Structure
from triptych.core.randomness import TorchRng
from triptych.core.validation import check_count


@dataclass(frozen=True, eq=False)
class Corpus:
    """Chunks of text; `sample` draws some of them with replacement, as a `Sampler` for `fit`.

    Which chunks come is decided by the rng alone, so a run that was stopped resumes where it was.
    """

    chunks: Integer[Tensor, "chunks length"]

    @classmethod
    def draw(
        cls,
        documents: Structure,
        count: int,
        rng: TorchRng,
        *,
        chunk: int,
        device: torch.device | str = "cpu",
    ) -> "Corpus":
        """`count` documents cut into chunks that do not cross them, kept on `device`."""
        check_count("chunk", chunk, at_least=1)
        if documents.length % chunk:
            raise ValueError(
                f"documents of {documents.length} tokens do not divide into chunks of {chunk}"
            )
        tokens = documents.sample(count, rng).reshape(-1, chunk)
        small = torch.uint8 if documents.vocab_size <= 256 else torch.int32
        return cls(tokens.to(device, small))

    def sample(self, n: int, rng: TorchRng) -> Int[Tensor, "n length"]:
        """n chunks, uniform with replacement."""
        rows = torch.randint(
            len(self.chunks), (n,), generator=rng.generator, device=rng.generator.device
        )
        return self.chunks[rows.to(self.chunks.device)].long()
