"""What a run on natural text leaves behind: norms and turns of every layer."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from triptych.studies.topics.shared.stages import Stages, stages


class Setting(NamedTuple):
    """What the runs of one setting share."""

    optimiser: str
    learning_rate: float
    init_scale: float
    steps: int

    def __str__(self) -> str:
        """As "SGD 0.3 from 1e-6, 400 steps"."""
        name = {"sgd": "SGD", "adam": "Adam"}[self.optimiser]
        scale = f"{self.init_scale:g}".replace("e-0", "e-")
        return f"{name} {self.learning_rate:g} from {scale}, {self.steps} steps"


@dataclass(frozen=True, kw_only=True)
class LayerCurves:
    """Norms of W^K, W^Q and W^V at some steps, for every layer, and turns of W^V between them."""

    seed: int
    corpus: str
    optimiser: Literal["sgd", "adam"]
    learning_rate: float
    init_scale: float
    first_loss: float
    last_loss: float
    step: tuple[float, ...]
    key: tuple[tuple[float, ...], ...]
    query: tuple[tuple[float, ...], ...]
    value: tuple[tuple[float, ...], ...]
    rotation: tuple[tuple[float, ...], ...]

    @property
    def setting(self) -> Setting:
        return Setting(self.optimiser, self.learning_rate, self.init_scale, int(self.step[-1]))

    @property
    def by_layer(self) -> list[Stages]:
        each = zip(self.key, self.query, self.value, strict=True)
        return [stages(self.step, *layer) for layer in each]

    @property
    def stages(self) -> Stages:
        """The stages of the whole network: in every condition the worst layer."""
        found = self.by_layer
        return Stages(
            switch=max(each.switch for each in found),
            when=max(each.when for each in found),
            size=max(each.size for each in found),
            early=max(each.early for each in found),
            grown=min(each.grown for each in found),
        )

    @property
    def turning(self) -> float:
        """Mean rotation before the switch over that after it, in the layer where it is least.

        1 where a layer has no step on one of the sides, because its switch is at an end.
        """
        found = []
        for layer, turns in zip(self.by_layer, self.rotation, strict=True):
            timed = list(zip(self.step[1:], turns, strict=True))
            early = [turn for step, turn in timed if step <= layer.switch]
            late = [turn for step, turn in timed if step > layer.switch]
            if not early or not late or not sum(late):
                found.append(1.0)
            else:
                found.append(sum(early) / len(early) / (sum(late) / len(late)))
        return min(found)


@dataclass(frozen=True, kw_only=True)
class Diverged:
    """A run whose loss became infinite."""

    seed: int
    corpus: str
    optimiser: Literal["sgd", "adam"]
    learning_rate: float
    init_scale: float
