"""Settings, units and rows of `dyck_backtracking`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from triptych.studies.api.study import Unit
from triptych.studies.generation.trained_dyck import DyckNetwork, Networks


@dataclass(frozen=True, kw_only=True)
class Tables(DyckNetwork):
    """Sizes of the tables, besides those of the network.

    unseen      prompts of Tables 3.3 and 3.16, sampled `repeats` times each
    quota, stride   of Algorithm 1 there
    splits      random splits of the probe's strings, `held_out` of them for validation
    diverse_prompts, diverse_completions   of Table 3.5
    pictured    strings of each kind in Figure 3.1
    threshold   below which the probe's probability is a refusal
    """

    unseen: int = 10_000
    repeats: int = 5
    quota: int = 4
    stride: int = 4
    splits: int = 10
    held_out: float = 0.102
    diverse_prompts: int = 100
    diverse_completions: int = 10
    pictured: int = 441
    threshold: float = 0.5


@dataclass(frozen=True, kw_only=True)
class DyckBacktracking(Tables, Networks):
    """Networks with their tables."""


@dataclass(frozen=True, kw_only=True)
class OneNetwork(Tables, Unit):
    """A trained network with every table."""


@dataclass(frozen=True)
class LanguageModel:
    """Completion accuracy in and out of distribution.

    kl                 nats a token, to the law that was trained on
    closing_accuracy   how often the likelier closing bracket is the right one, in distribution
    """

    seed: int
    kl: float
    prompts: int
    in_accuracy: float
    in_errors: int
    out_accuracy: float
    out_errors: int
    closing_accuracy: float


@dataclass(frozen=True)
class Gathered:
    """How many wrong strings came out of how many prompts."""

    seed: int
    found: int
    prompts: int


@dataclass(frozen=True)
class Verifier:
    """The probe on strings that were left out, for several random splits."""

    seed: int
    strings: int
    held_out: int
    accuracies: tuple[float, ...]


@dataclass(frozen=True)
class Picture:
    """States of wrong and correct strings in the t-SNE plane."""

    seed: int
    points: tuple[tuple[float, float], ...]
    correct: tuple[int, ...]
    agreement: float
    agreement_of_states: float
    agreement_by_chance: float


Config = Literal["nucleus", "greedy", "erased", "erased, redone by argmax"]


@dataclass(frozen=True)
class Stride:
    """Completions of error-inducing prefixes after `stride` tokens were erased once, by force."""

    seed: int
    config: Config
    stride: int
    accuracy: float
    prefixes: int


@dataclass(frozen=True)
class Quota:
    """Algorithm 1 with the probe at error-inducing prefixes.

    into_prompt     the prefix itself may be erased
    verify_redone   the probe is asked about redone tokens too
    """

    seed: int
    quota: int
    stride: int
    into_prompt: bool
    verify_redone: bool
    accuracy: float
    prefixes: int


@dataclass(frozen=True)
class Refused:
    """Strings at which the probe said no, completed without backtracking.

    with_…     from the refused string, its last token included
    before_…   from the string without the refused token
    """

    seed: int
    quota: int
    stride: int
    backtracks: int
    before_refused_nucleus: float | None
    before_refused_argmax: float | None
    with_refused_nucleus: float | None
    with_refused_argmax: float | None


@dataclass(frozen=True)
class Unseen:
    """Errors on out-of-distribution prompts.

    error_kinds     how many errors of each kind, by name
    quota_used_up   errors of rows that had no backtrack left
    """

    seed: int
    top_p: float
    quota: int
    stride: int
    redo_argmax: bool
    verify_redone: bool
    into_prompt: bool
    repeat: int
    prompts: int
    errors: int
    error_kinds: Mapping[str, int]
    quota_used_up: int
    generated: int
    verifier_calls: int


@dataclass(frozen=True)
class Diversity:
    """Distinct completions of each prompt, and distinct right ones."""

    seed: int
    top_p: float
    quota: int
    completions: int
    distinct: tuple[int, ...]
    distinct_right: tuple[int, ...]


Row = LanguageModel | Gathered | Verifier | Picture | Stride | Quota | Refused | Unseen | Diversity
ROWS = (LanguageModel, Gathered, Verifier, Picture, Stride, Quota, Refused, Unseen, Diversity)
