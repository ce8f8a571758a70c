"""Pairs of networks, and the folder that holds them: weights as safetensors, the rest as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from triptych.core.files import sum_of, write_json, write_tensors
from triptych.core.validation import UserError
from triptych.lab.traps.truth import (
    TEST_SEED,
    TESTED,
    Measured,
    Network,
    Sentences,
    Truth,
    apart,
    measure,
    truth_of,
)
from triptych.models.constructions.heads import HeadsTransformer
from triptych.studies.brackets.shared.heads import TrainedHeads

KINDS = {
    "far": "same function, attention far apart",
    "pattern": "same attention, one needs its pattern",
    "head": "same attention, another head matters",
    "balance": "same attention, one is not balanced",
    "function": "same attention, one ignores it",
    "trained_far": "trained, attention far apart",
    "trained_head": "trained, same attention, another head",
}
FORMAT = 1
WEIGHTS, RECORD = "networks.safetensors", "trap.json"


@dataclass(frozen=True)
class Member:
    """One network of a pair, and what is true of it."""

    about: str
    network: Network
    measured: Measured
    truth: Truth


@dataclass(frozen=True)
class Pair:
    """Two networks of one language.

    apart
        Mean squared distance of their patterns, for each head and sentence; 0 where they are equal.
    """

    kind: str
    members: tuple[Member, Member]
    apart: float


@dataclass(frozen=True)
class Trap:
    """All pairs, and the seed that they were made from."""

    seed: int
    pairs: Sequence[Pair]

    @property
    def members(self) -> list[Member]:
        return [member for pair in self.pairs for member in pair.members]


class Examiner:
    """Measures networks, on the same sentences for all networks of a language."""

    def __init__(self) -> None:
        self._sentences: dict[tuple[int, int], Sentences] = {}

    def sentences(self, network: Network) -> Sentences:
        language = network.types, network.max_depth
        if language not in self._sentences:
            self._sentences[language] = Sentences.draw(*language, TESTED, TEST_SEED)
        return self._sentences[language]

    def member(self, network: Network, about: str) -> Member:
        measured = measure(network, self.sentences(network))
        return Member(about, network, measured, truth_of(measured))

    def pair(self, kind: str, first: Member, second: Member) -> Pair:
        tokens = self.sentences(first.network).tokens
        distance = apart(first.network.patterns(tokens), second.network.patterns(tokens))
        return Pair(kind, (first, second), distance)


# ------------------------------------------------------------------ the folder


def write_trap(trap: Trap, folder: Path) -> None:
    """networks.safetensors in a folder, and then trap.json with its sum."""
    tensors: dict[str, Tensor] = {}
    record: list[dict[str, Any]] = []
    for number, pair in enumerate(trap.pairs):
        members = []
        for letter, member in zip("ab", pair.members, strict=True):
            name = f"{number:03}{letter}"
            for key, part in member.network.weights().items():
                tensors[f"{name}/{key}"] = part.clone()  # two members may share a tensor
            members.append(
                {
                    "name": name,
                    "about": member.about,
                    "truth": member.truth._asdict(),
                    "measured": member.measured._asdict(),
                }
            )
        record.append({"kind": pair.kind, "apart": pair.apart, "members": members})
    write_tensors(folder / WEIGHTS, tensors)
    whole = {"format": FORMAT, "seed": trap.seed, "sum": sum_of(folder / WEIGHTS), "pairs": record}
    write_json(folder / RECORD, whole)


def read_trap(folder: Path) -> Trap:
    """What `write_trap` wrote."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not (folder / RECORD).is_file() or not (folder / WEIGHTS).is_file():
        raise UserError(
            f"there is no trap in {str(folder)!r}: make one with `triptych trap make {folder}`",
            parameter="folder",
        )
    try:
        whole = json.loads((folder / RECORD).read_text("utf-8"))
        if whole["format"] != FORMAT:
            raise UserError(
                f"the trap in {str(folder)!r} has format {whole['format']}; this version reads "
                f"format {FORMAT}: make it again",
                parameter="folder",
            )
        if whole.get("sum", "") not in ("", sum_of(folder / WEIGHTS)):
            raise UserError(
                f"the trap in {str(folder)!r} is not whole: {WEIGHTS} and {RECORD} were written at "
                "different times, or are damaged: make it again with `triptych trap make`",
                parameter="folder",
            )
        networks = _networks(load_file(folder / WEIGHTS))
        pairs = [_pair(entry, networks) for entry in whole["pairs"]]
        return Trap(int(whole["seed"]), pairs)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"the trap in {str(folder)!r} cannot be read: make it again with `triptych trap make`",
            parameter="folder",
        ) from error


def _networks(tensors: Mapping[str, Tensor]) -> dict[str, Network]:
    named: dict[str, dict[str, Tensor]] = {}
    for name, part in tensors.items():
        network, _, key = name.partition("/")
        named.setdefault(network, {})[key] = part
    read: Callable[[Mapping[str, Tensor]], Network]
    found: dict[str, Network] = {}
    for name, parts in named.items():
        read = TrainedHeads.from_weights if "trained" in parts else HeadsTransformer.from_weights
        found[name] = read(parts)
    return found


def _pair(entry: Mapping[str, Any], networks: Mapping[str, Network]) -> Pair:
    first, second = (
        Member(
            member["about"],
            networks[member["name"]],
            Measured(**{name: _tuples(value) for name, value in member["measured"].items()}),
            Truth(**member["truth"]),
        )
        for member in entry["members"]
    )
    return Pair(entry["kind"], (first, second), entry["apart"])


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
