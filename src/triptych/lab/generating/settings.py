"""What decides the texts of a run, as plain data, and its fingerprint.

The batch, the engine, the workers and the device are not among it: a text does not depend on them,
except through the rounding of the model.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from triptych.core.validation import UserError, as_count, as_number, as_seed, shown
from triptych.guidance.stops import as_stops
from triptych.inference.guided.algorithm import AnyAlgorithm
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.transforms import Sampling
from triptych.lab.generating.rules import RuleSource, find_rule
from triptych.lab.replay.demonstrations import find_algorithm
from triptych.models.pretrained.causal_loading import as_dtype

TIMEOUT = 30.0
"""Seconds of one question to a rule of the user's own, where no number is given."""
_SAMPLE = 1 << 16  # bytes at both ends of a model's file that its digest reads


@dataclass(frozen=True)
class GenerateSettings:
    """What decides the texts.

    model       where it is loaded from: a folder, a .gguf file, or a name on the hub
    weights     a digest of its files, empty for a model of the hub
    algorithm   its name, or the file of the user's own; `own_algorithm` is that file's digest
    options     of the algorithm, all of them
    trust_remote_code
                the model's own Python files may run; it is in the JSON only where it is so, and
                min_p, stop and the engine of a grammar only where there are some
    """

    model: str
    weights: str
    verifier: RuleSource | None
    algorithm: str
    own_algorithm: str
    options: Mapping[str, Any]
    max_new_tokens: int
    temperature: float
    top_p: float
    top_k: int
    chat: bool
    seed: int
    dtype: str
    budget_tokens: int | None
    budget_questions: int | None
    budget_seconds: float | None
    timeout: float
    trust_remote_code: bool = False
    min_p: float = 0.0
    stop: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain data; a limit of infinity is None there."""
        plain = asdict(self)
        if self.verifier is not None:
            fields = self.verifier._asdict()
            plain["verifier"] = {k: v for k, v in fields.items() if k != "engine" or v}
        plain["timeout"] = None if math.isinf(self.timeout) else self.timeout
        if not self.trust_remote_code:
            del plain["trust_remote_code"]
        if self.min_p == 0:
            del plain["min_p"]
        if not self.stop:
            del plain["stop"]
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "GenerateSettings":
        verifier = RuleSource(**plain["verifier"]) if plain["verifier"] else None
        timeout = math.inf if plain["timeout"] is None else plain["timeout"]
        stop = tuple(plain.get("stop", ()))
        return cls(**{**plain, "verifier": verifier, "timeout": timeout, "stop": stop})

    @property
    def fingerprint(self) -> str:
        text = json.dumps(self.as_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def budget(self) -> Budget | None:
        limits = (self.budget_tokens, self.budget_questions, self.budget_seconds)
        return None if limits == (None, None, None) else Budget(*limits)

    @property
    def model_name(self) -> str:
        """What a person calls the model: a folder, a file without its ending, or a hub name."""
        path = Path(self.model)
        return path.stem if path.is_file() else path.name if path.is_dir() else self.model

    def read_files(self) -> dict[str, str]:
        """The files that these settings name, by the option that names them."""
        found = {"--algorithm": self.algorithm} if self.own_algorithm else {}
        if self.verifier is not None and self.verifier.kind in ("own", "json", "lark"):
            found |= {"--verifier": self.verifier.file} if self.verifier.file else {}
        return found | ({"--model": self.model} if Path(self.model).is_file() else {})

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_p, self.top_k, self.min_p)

    def own(self) -> AnyAlgorithm:
        """The algorithm with its options."""
        return find_algorithm(self.algorithm).of(self.options)


def make_settings(
    *,
    model: str,
    verifier: str | None,
    algorithm: str | None,
    changes: Sequence[str],
    max_new_tokens: int,
    sampling: Sampling,
    chat: bool,
    seed: int,
    dtype: str,
    budget: Budget,
    timeout: float,
    trust_remote_code: bool = False,
    stop: Sequence[str] = (),
    grammar_engine: str | None = None,
) -> GenerateSettings:
    """Settings from what a user wrote; all that is wrong with it is said here.

    Every verifier here is a grammar or a function of text, so the algorithm is "adaptive" where
    none is named, and "ancestral" without a verifier, as `guide` has them.
    """
    if algorithm is None:
        with_rule = "greedy" if sampling.temperature == 0 else "adaptive"
        algorithm = "ancestral" if verifier is None else with_rule
    chosen = find_algorithm(algorithm).parse(changes)
    if verifier is None and chosen.needs_verifier:
        raise UserError(
            f"{chosen.name} needs --verifier; without one, --algorithm ancestral samples from the "
            "model"
        )
    if verifier is None and grammar_engine is not None:
        raise UserError("--grammar-engine needs --verifier, as json:schema.json")
    own = Path(algorithm) if algorithm.endswith(".py") else None
    where = find_model(model)
    return GenerateSettings(
        model=where,
        weights=_weights(where),
        verifier=None if verifier is None else find_rule(verifier, grammar_engine),
        algorithm=str(own.resolve()) if own else chosen.name,
        own_algorithm=hashlib.sha256(own.read_bytes()).hexdigest()[:16] if own else "",
        options=chosen.settings(),
        max_new_tokens=as_count("--max-new-tokens", max_new_tokens, at_least=1),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        stop=tuple(as_stops(stop)),
        chat=chat,
        seed=as_seed(seed, name="--seed"),
        dtype=str(as_dtype(dtype)).removeprefix("torch."),
        budget_tokens=budget.tokens,
        budget_questions=budget.verifier_calls,
        budget_seconds=budget.seconds,
        timeout=as_number("--timeout", timeout, above=0, finite=False),
        trust_remote_code=trust_remote_code,
    )


def find_model(given: str) -> str:
    """Where a model is loaded from: a path, a fetched name, or a name on the hub."""
    from triptych.models.pretrained.fetching import CATALOGUE, fetched

    path = Path(given)
    if given and path.is_dir():
        if not (path / "config.json").is_file():
            inside = sorted(path.glob("*.gguf"))
            if len(inside) == 1:
                return str(inside[0].resolve())
            raise UserError(
                f"the folder {given!r} holds no model: it has no config.json; give a folder that "
                "save_pretrained wrote, or a .gguf file",
                parameter="given",
            )
        return str(path.resolve())
    if path.is_file():
        if path.suffix != ".gguf":
            raise UserError(
                f"the model {given!r} is a file; give a folder or a .gguf file", parameter="given"
            )
        return str(path.resolve())
    if given in CATALOGUE:
        return str(fetched(given))
    if path.suffix == ".gguf" or given.startswith((".", "/", "~")) or given.count("/") > 1:
        raise UserError(f"there is no file or folder {given!r}", parameter="given")
    if not given or given.count("/") != 1:
        known = ", ".join(name for name, entry in CATALOGUE.items() if entry.kind == "causal model")
        raise UserError(
            f"the model is {shown(given)}; there is no such folder, and it is not the name of a "
            f"model on the hub, as owner/name, or of one to fetch ({known})",
            parameter="given",
        )
    return given


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two settings, in words: "temperature was 1.0 and is 0.7"."""
    return [
        f"{name} was {_in_words(before.get(name))} and is {_in_words(now.get(name))}"
        for name in now
        if before.get(name) != now[name]
    ]


def _in_words(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, str) else value or "nothing"


def _weights(where: str) -> str:
    """A digest of a model's files: their names, sizes, and both ends of each."""
    path = Path(where)
    if not path.exists():
        return ""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(each for each in path.iterdir() if each.is_file())
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(_SAMPLE))
            opened.seek(max(0, size - _SAMPLE))
            digest.update(opened.read(_SAMPLE))
    return digest.hexdigest()[:16]
