"""What samplers of masks share: rounds that reveal some positions, and how these are chosen."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.validation import set_fields
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.sampler import Keeps, Sampler
from triptych.diffusion.schedules import as_schedule, counts, rounds
from triptych.inference.chains.positions import drawn_positions, highest
from triptych.inference.guided.transforms import temperature
from triptych.inference.settable import option


@dataclass(frozen=True)
class Rounds(Sampler):
    """A sampler that reveals a number of positions in each round."""

    steps: int | None = option(
        None, "rounds for each block; none is one position a round", at_least=1
    )
    schedule: str = option("linear", "how many positions each round reveals")

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, schedule=as_schedule(self.schedule))

    def rounds(self, size: int) -> int:
        """As many as there are steps, or positions."""
        return rounds(self.schedule, self.steps or size)

    def quota(self, run: Denoising, number: int) -> Int[Tensor, " batch"]:
        """How many positions of each row this round reveals."""
        sizes = run.sizes.tolist()
        table = {size: _counts(self.schedule, size, self.steps) for size in set(sizes)}
        shares = [table[size][number] if number < len(table[size]) else 0 for size in sizes]
        return torch.tensor(shares, device=run.tokens.device)


@dataclass(frozen=True)
class ByPosition(Rounds):
    """Chooses positions by the laws of all hidden ones, then draws there.

    The choice does not look at the tokens that are drawn. So one position a round keeps the law.
    """

    keeps: ClassVar[Keeps] = "one position a round"
    degree: float = option(
        1.0, "temperature of the draws; 0 takes the most probable token", at_least=0
    )

    @abstractmethod
    def scores(self, laws: Float[Tensor, "asked vocab"]) -> Float[Tensor, " asked"]:
        """The higher, the earlier a position is revealed."""
        raise NotImplementedError

    def step(self, run: Denoising, number: int) -> None:
        """Reveal the positions of highest score."""
        hidden, quota = run.hidden, self.quota(run, number)
        hidden = hidden & (quota > 0)[:, None]
        laws = run.ask(hidden)
        now = highest(dense(self.scores(laws), hidden), hidden, quota)
        run.write(now, run.draw(temperature(self.degree)(laws[now[hidden]]), now))


@lru_cache(maxsize=256)
def _counts(schedule: str, size: int, steps: int | None) -> list[int]:
    return counts(schedule, size, steps or size) if size else []


def dense(
    values: Float[Tensor, " asked"], at: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch length"]:
    """The values at their positions, -inf elsewhere."""
    grid = torch.full(at.shape, -torch.inf, dtype=torch.float64, device=at.device)
    return grid.masked_scatter(at, values.double())


def entropies(laws: Float[Tensor, "asked vocab"]) -> Float[Tensor, " asked"]:
    """-Σ p log p of each law, in nats; a token of probability 0 adds nothing."""
    return torch.special.entr(laws.exp()).sum(-1)


def uniform_positions(
    run: Denoising, among: Bool[Tensor, "batch length"], quota: Int[Tensor, " batch"]
) -> Bool[Tensor, "batch length"]:
    """A quota of these positions of each row, uniformly; nothing is drawn where it is all."""
    every = (quota >= among.sum(-1))[:, None]
    some = torch.where(every[:, 0], 0, quota)
    return among & every | drawn_positions(
        torch.zeros(among.shape, device=among.device), among, some, run.rng
    )
