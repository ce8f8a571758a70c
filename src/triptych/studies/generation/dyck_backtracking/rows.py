"""Settings, units and rows of `dyck_backtracking`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from triptych.studies.api.study import Unit
from triptych.studies.generation.shared.trained_dyck import DyckNetwork, Networks


@dataclass(frozen=True, kw_only=True)
class Tables(DyckNetwork):
    """Sizes of the tables, besides those of the network.

    tries       completions of each prefix in Table 3.1
    unseen      prompts of Tables 3.3 and 3.16, sampled `repeats` times each
    quota, stride   of Algorithm 1 there
    splits      random splits of the probe's strings, `held_out` of them for validation
    diverse_prompts, diverse_completions   of Table 3.5
    pictured    strings of each kind in Figure 3.1
    threshold   below which the probe's probability is a refusal
    """

    tries: int = 4
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
    """The probe on strings that were left out, for several random splits.

    layers, width         of the network whose states it reads
    strings               wrong and correct ones, of which `held_out` are left out
    last_token_accuracy   of the best guess from the last token alone, on the same strings
    same_end_strings, same_end_accuracies   the same for probes on wrong strings and correct ones
                          that end in the same tokens
    """

    seed: int
    layers: int
    width: int
    strings: int
    held_out: int
    accuracies: tuple[float, ...]
    last_token_accuracy: float | None = None
    same_end_strings: int | None = None
    same_end_accuracies: tuple[float, ...] = ()


@dataclass(frozen=True)
class Picture:
    """States of wrong strings, and of correct ones of the same lengths and last tokens, in the
    t-SNE plane.

    correct               1 for a correct string, 0 for a wrong one
    agreement             share of the ten nearest neighbours that are of a string's own kind
    agreement_by_chance   the largest such share in 99 shuffles of the kinds
    agreement_of_states   as `agreement`, by distances between the states themselves
    clusters              how many hold 90 % of the wrong strings, in the plane
    clusters_of_correct   the same of the correct strings
    clusters_of_states    the same of the wrong strings, by distances between the states
    without_partner       wrong strings left out: no correct one ends like them
    """

    seed: int
    points: tuple[tuple[float, float], ...]
    correct: tuple[int, ...]
    agreement: float
    agreement_by_chance: float
    agreement_of_states: float
    clusters: int
    clusters_of_correct: int
    clusters_of_states: int
    without_partner: int


Config = Literal["nucleus", "greedy", "erased", "erased, redone by argmax"]


@dataclass(frozen=True)
class Stride:
    """Completions of error-inducing prefixes after `stride` tokens were erased once, by force."""

    seed: int
    config: Config
    stride: int
    accuracy: float
    prefixes: int
    tries: int


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
    """Strings at which Algorithm 1 refused, completed without backtracking.

    accuracy         with backtracking, as in the row of `Quota`
    nucleus, argmax  from the refused string, its last token included
    before           from the string without the refused token, by nucleus
    nucleus_error, argmax_error   standard errors of `accuracy` minus `nucleus` and `argmax`; a
                     prefix is one trial, however often it was refused
    """

    seed: int
    quota: int
    stride: int
    prefixes: int
    backtracks: int
    accuracy: float
    nucleus: float
    argmax: float
    before: float
    nucleus_error: float | None
    argmax_error: float | None


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
    repeat: int
    prompts: int
    errors: int
    error_kinds: Mapping[str, int]
    quota_used_up: int
    generated: int
    verifier_calls: int


@dataclass(frozen=True)
class Diversity:
    """Distinct completions of each prompt, and distinct right ones.

    shortest, longest   tokens of a prompt
    """

    seed: int
    shortest: int
    longest: int
    top_p: float
    quota: int
    verify_redone: bool
    completions: int
    distinct: tuple[int, ...]
    distinct_right: tuple[int, ...]


@dataclass(frozen=True)
class PerfectDiversity:
    """Distinct completions that a model without error is expected to give: exact."""

    seed: int
    shortest: int
    longest: int
    top_p: float
    completions: int
    distinct: float


Row = (
    LanguageModel
    | Gathered
    | Verifier
    | Picture
    | Stride
    | Quota
    | Refused
    | Unseen
    | Diversity
    | PerfectDiversity
)
ROWS = (
    LanguageModel,
    Gathered,
    Verifier,
    Picture,
    Stride,
    Quota,
    Refused,
    Unseen,
    Diversity,
    PerfectDiversity,
)


def on_networks(*rows: Row, count: int = 5) -> list[Row]:
    """The same rows for several networks: what judges are tried on."""
    return [replace(row, seed=seed) for seed in range(count) for row in rows]
