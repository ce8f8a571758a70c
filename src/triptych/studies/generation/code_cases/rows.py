"""Settings, units and rows of `code_cases`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from triptych.studies.api.study import Settings, Unit

Names = Literal["random", "meaningful"]
Method = Literal["sampling", "backtracking", "blocks", "particles", "vgb"]
VerifierKind = Literal["none", "probe", "random", "rule", "distinct rule"]
Level = Literal["token", "line"]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of the prompts, the model and its verifiers, as fields of settings and of units alike.

    model            "stand-in": a network trained here; or the name of a fetched model
    cases            test cases that a prompt asks for; demonstrations: sums that it shows
    prompts          each with a name of its own, completed `completions` times
    max_new_tokens   of a completion
    layer            whose states the verifier reads, unless said otherwise
    layers           that are compared; the last of them is the last one of the model
    depths           of verifiers that are compared with one linear layer
    gathered         completions of training names, from which verifiers learn
    at_once          completions that are sampled together, all candidates counted
    temperatures, top_ps   of the grid of sampling without a verifier
    beyond           particles and a rule that wants distinct cases, which the thesis has not
    walks            VGB, which asks a verifier about every child of every prefix: very slow
    longest_list     of a test case of the stand-in; the rest is its network and its training
    """

    model: str = "stand-in"
    cases: int = 4
    demonstrations: int = 2
    prompts: int = 10
    completions: int = 10
    max_new_tokens: int = 100
    layer: int = 2
    layers: tuple[int, ...] = (1, 2, 3)
    depths: tuple[int, ...] = (2, 4, 8)
    gathered: int = 500
    at_once: int = 250
    temperatures: tuple[float, ...] = (0.4, 0.8, 1.0, 1.2)
    top_ps: tuple[float, ...] = (0.8, 0.95, 1.0)
    beyond: bool = True
    walks: bool = False
    longest_list: int = 3
    network_layers: int = 3
    heads: int = 4
    width: int = 64
    texts: int = 8000
    steps: int = 1000
    batch: int = 16
    learning_rate: float = 3e-3


@dataclass(frozen=True, kw_only=True)
class CodeCases(Sizes, Settings):
    """Networks, repeats, and how they are cut into units.

    seeds     networks of the stand-in, and the seed of the first; 1 for a pretrained model
    repeats   each with fresh prompts and draws
    apart     every configuration is a unit of its own, which suits a long run
    together  repeats in such a unit
    """

    seeds: int = 3
    first_seed: int = 0
    repeats: int = 5
    apart: bool = False
    together: int = 5


@dataclass(frozen=True, kw_only=True)
class Work(Sizes, Unit):
    """Some configurations on some repeats, with one network.

    configs   their names; "verifiers" says how well each verifier predicts errors
    """

    configs: tuple[str, ...]
    repeats: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Config:
    """One way of completing prompts, as a row says it.

    config          its name
    top_p, temperature   of the sampling
    quota, stride, threshold, redo_argmax, verify_redone   of Algorithm 1
    verifier, layer, depth, level   what is asked whether a prefix is right; token: at every token,
                    line: at the end of every line
    n               candidates of a line, or particles
    names           of the functions in the prompts
    """

    config: str
    method: Method
    top_p: float
    temperature: float
    quota: int = 0
    stride: int = 0
    threshold: float = 0.0
    redo_argmax: bool = True
    verify_redone: bool = False
    verifier: VerifierKind = "none"
    layer: int | None = None
    depth: int | None = None
    level: Level = "token"
    n: int = 1
    names: Names = "random"


@dataclass(frozen=True, kw_only=True)
class Completed(Config):
    """What one configuration gave on one repeat.

    requested       test cases in all
    correct         of the lines that count; within, pooled: distinct ones, see `count_cases`
    by_type         within and pooled where 1, True and 1.0 differ
    faults          how many lines have each fault, by name
    kept            tokens of the completions; erased: taken back by Algorithm 1 or a walk
    queries         tokens that were drawn: kept, erased, and those of discarded candidates
    network_tokens  tokens that went through the network, those that only a verifier asked about
                    included and prompts not
    program_queries kept + erased, which the authors' program counts for every method
    limit_queries   queries, if a completion that was stopped after its last case had gone on to the
                    limit, as in the thesis; candidates of lines stop there too
    verifier_calls  prefixes shown to the verifier
    stopped         completions that were over after the last case
    out_of_quota    completions without a backtrack left
    """

    seed: int
    repeat: int
    model: str
    requested: int
    correct: int
    within: int
    pooled: int
    by_type: tuple[int, int]
    faults: Mapping[str, int]
    kept: int
    erased: int
    queries: int
    network_tokens: int
    program_queries: int
    limit_queries: int
    verifier_calls: int
    stopped: int
    out_of_quota: int


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A trained verifier on states that were left out.

    gathered   completions, of which `faulty` have an error
    states     that it learned from, half of them wrong; held_out: left out
    accuracy   on those, ½ by chance
    """

    seed: int
    model: str
    level: Level
    layer: int
    depth: int
    gathered: int
    faulty: int
    states: int
    held_out: int
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class TrainedNetwork:
    """The stand-in after training: nats a token on its last batches."""

    seed: int
    loss: float


Row = Completed | Probed | TrainedNetwork
ROWS = (Completed, Probed, TrainedNetwork)
