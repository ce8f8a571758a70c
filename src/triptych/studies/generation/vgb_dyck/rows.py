"""Settings, units and rows of `vgb_dyck`."""

from dataclasses import dataclass

from triptych.studies.api.study import Unit
from triptych.studies.generation.shared.trained_dyck import DyckNetwork, Networks


@dataclass(frozen=True, kw_only=True)
class Comparison(DyckNetwork):
    """Sizes of the comparison, besides those of the network.

    value_prefixes, rollouts   prefixes the value is regressed on, and completions of each
    value_depth, floor         linear layers of the value, and the least it says
    prompts, to_go             prompts compared, with this many brackets to go
    samples                    completions of each prompt
    budgets                    the dial of each algorithm: its tries, candidates or particles
    """

    value_prefixes: int = 20_000
    rollouts: int = 8
    value_depth: int = 2
    floor: float = 0.01
    prompts: int = 20
    to_go: int = 8
    samples: int = 200
    budgets: tuple[int, ...] = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class VgbDyck(Comparison, Networks):
    """Networks with their comparison."""

    seeds: int = 3


@dataclass(frozen=True, kw_only=True)
class OneNetwork(Comparison, Unit):
    """A trained network with a value, and every algorithm on it."""


@dataclass(frozen=True)
class Value:
    """The value that was regressed on rollouts.

    mean_chance   that the network completes a held-out prefix rightly
    explained     share of the variance of held-out rollouts
    """

    seed: int
    prefixes: int
    rollouts: int
    mean_chance: float
    explained: float


@dataclass(frozen=True)
class Sampled:
    """What an algorithm sampled at a budget, and its cost a string.

    complete          share of strings that the algorithm did not give up on
    distinct          right strings a prompt
    total_variation   to the network's own law given a right string; floor: of as many exact draws
    model_mass        share of right strings in the network's own law
    network_tokens    tokens that ran through the network, the prompts not counted
    """

    seed: int
    algorithm: str
    budget: int
    prompts: int
    accuracy: float
    complete: float
    distinct: float
    total_variation: float
    floor: float
    model_mass: float
    generator_calls: float
    generated: float
    verifier_calls: float
    network_tokens: float


Row = Value | Sampled
