"""What a sampler is here: a small program that calls unmodified code, and the law that its documents promise."""

import importlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

Probabilities = Mapping[Hashable, float]


@dataclass(frozen=True)
class Case:
    """A program with the law that it promises.

    program
        Draws one outcome with the library's code; from `start`, it is given a state and returns the next one.
    target
        Outcome -> promised probability.
    start
        The law of the state that a step begins from; None for a program without arguments.
    reading
        What is compared with the target, when this is not the law itself: a function of the law's probabilities.
        A sampler of weighted outcomes promises a mean weight for each outcome, for example.
    """

    program: Callable[..., Hashable]
    target: Probabilities
    start: Probabilities | None = None
    reading: Callable[[Probabilities], dict[Hashable, float]] | None = None


@dataclass(frozen=True)
class Sampler:
    """A sampler of a release, and what is said about it.

    package
        The distribution, as pip names it.
    name
        The function and its setting.
    promise, source
        Words of its own documents, and where they stand. A name that the field has defined, as top-k, is a promise.
    prepare
        Makes the case. It imports the package.
    note
        What was set, and for a broken promise the reason.
    rounding
        The distance that the arithmetic of the code explains: 1e-9 in float64, 1e-6 in float32.
    entered
        False: the code draws where no door reaches, so that only draws can be compared.
    issue
        The draft of an issue, a file of docs/sampler-issues.
    """

    package: str
    name: str
    promise: str
    source: str
    prepare: Callable[[], Case]
    note: str = ""
    rounding: float = 1e-9
    entered: bool = True
    issue: str = ""

    @property
    def version(self) -> str:
        """The installed version; empty where the package is absent."""
        return installed_version(self.package)


@dataclass
class Shelf:
    """The samplers of one library, in the order in which its file defines them."""

    package: str
    samplers: list[Sampler] = field(default_factory=list)

    def add(self, name: str, *, promise: str, source: str, **more: Any) -> Callable:
        """A decorator for the function that prepares the case."""

        def keep(prepare: Callable[[], Case]) -> Callable[[], Case]:
            self.samplers.append(Sampler(self.package, name, promise, source, prepare, **more))
            return prepare

        return keep


LIBRARIES = (
    "transformers",
    "diffusers",
    "genlm_control",
    "llamppl",
    "its_hub",
    "litgpt",
    "optillm",
    "rwkv",
    "x_transformers",
    "speculative_decoding",
    "vector_quantize_pytorch",
    "palm_rlhf_pytorch",
    "pyro",
    "particles",
    "filterpy",
    "blackjax",
    "hmmlearn",
    "pomegranate",
    "dynamax",
    "thrml",
    "markovify",
    "networkx",
    "torch",
    "numpy",
    "python",
)


def all_samplers() -> list[Sampler]:
    """Every sampler of every library of this folder, whether its package is installed or not."""
    shelves = [importlib.import_module(f"samplers.{name}").SHELF for name in LIBRARIES]
    return [sampler for shelf in shelves for sampler in shelf.samplers]


def installed_version(package: str) -> str:
    """What pip says is installed; the version of Python for its own modules."""
    if package == "python":
        import platform

        return platform.python_version()
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
