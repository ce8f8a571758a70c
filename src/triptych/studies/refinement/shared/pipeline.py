"""From pairs to translations: teacher, distillation, students, ablations, in phases.

    teacher      autoregressive, on the pairs as they are
    distil       its translations of the training sources by beam search
    student      autoregressive, on these
    ablations    parallel, shorter, one change each: `reference` has none
    padir        parallel, on these

Every phase has a number of steps and of seconds and ends with whichever comes first. What a phase
found is handed over at once, so that nothing is lost when a machine is. The numbers are integers:
text and scores are made elsewhere (`scoring`), where the packages for it are.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.models.short_attention import Kernels
from triptych.studies.refinement.shared.attention import measure_attention
from triptych.studies.refinement.shared.translating import (
    Refinement,
    Tokens,
    Translated,
    in_batches,
    refined_translations,
    search,
)
from triptych.training.corpus import PairCorpus
from triptych.training.step import Recipe
from triptych.training.translation import Corruption, TranslationHistory, fit_translator

SETS = ("val", "test", "test_2016_flickr", "test_2017_flickr")
"""Sets next to the training pairs; those that a corpus has are translated."""
STEPS = (1, 2, 4, 10)
ABLATIONS = (
    "reference",
    "raw_pairs",
    "one_stage",
    "no_positions",
    "half_right",
    "raw_other_vocabulary",
)
"""`raw_other_vocabulary` is `raw_pairs` with other pieces; the others change `reference`."""

Found = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes, steps and seconds of a run. A phase without steps is left out.

    pairs    training pairs, at most; 0: all
    """

    pairs: int = 0
    width: int = 256
    layers: int = 4
    heads: int = 8
    feedforward: int = 1024
    length: int = 48
    dropout: float = 0.3
    tokens: int = 8192
    widths: tuple[int, ...] = (12, 16, 20, 26, 47)
    learning_rate: float = 1.5e-3
    warmup: int = 300
    teacher: tuple[int, float] = (2500, 75.0)
    student: tuple[int, float] = (2000, 50.0)
    padir: tuple[int, float] = (6000, 190.0)
    ablation: tuple[int, float] = (1100, 240.0)
    ablations: tuple[str, ...] = ABLATIONS
    beams: int = 5
    lengths: int = 5
    attention: int = 4000  # training sentences whose attention is measured, next to the validation
    distil_batch: int = 1000
    batch: int = 250


@dataclass(frozen=True)
class Pairs:
    """Sentences as numbers, by set and language: sides["train.en"]."""

    vocab_size: int
    sides: Mapping[str, Tokens]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> "Pairs":
        """From `as_arrays`."""
        sides: dict[str, Tokens] = {}
        for name in arrays:
            if name.endswith(".ends"):
                side = name.removesuffix(".ends")
                ends = [int(end) for end in arrays[name]]
                flat = [int(token) for token in arrays[f"{side}.tokens"]]
                starts = [0, *ends[:-1]]
                sides[side] = [flat[a:b] for a, b in zip(starts, ends, strict=True)]
        return cls(int(arrays["vocab_size"]), sides)

    def as_arrays(self) -> dict[str, np.ndarray]:
        """All tokens in a row and where sentences end: small, and no pickle."""
        arrays = {"vocab_size": np.array(self.vocab_size)}
        for side, sentences in self.sides.items():
            flat = [token for sentence in sentences for token in sentence]
            arrays[f"{side}.tokens"] = np.array(flat, dtype=np.uint16)
            arrays[f"{side}.ends"] = np.cumsum([len(s) for s in sentences], dtype=np.int64)
        return arrays


class Pipeline:
    """One direction and one seed, on one device."""

    def __init__(
        self,
        pairs: Pairs,
        source: str,
        target: str,
        seed: int,
        plan: Plan,
        *,
        device: torch.device | str = "cpu",
        recorded: bool = False,
        compiled: bool = False,
        kernels: Kernels = "torch",
        other: Pairs | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.pairs, self.plan, self.seed = pairs, plan, seed
        self.other = other  # the same sentences in the pieces of another vocabulary
        self.device, self.recorded, self.say = torch.device(device), recorded, say
        self.compiled = compiled
        self.kernels: Kernels = kernels
        self.source, self.target = source, target
        self.sources, self.targets = self._training_pairs()
        self.nets: dict[str, EncoderDecoder] = {}
        self.distilled: Tokens = []

    def _side(self, name: str, language: str) -> Tokens:
        side = f"{name}.{language}"
        if side not in self.pairs.sides:
            raise UserError(f"the pairs have no {side}; they have {', '.join(self.pairs.sides)}")
        return list(self.pairs.sides[side])

    def _training_pairs(self) -> tuple[Tokens, Tokens]:
        """What is not too long to read and to write."""
        sides = (self._side("train", self.source), self._side("train", self.target))
        kept = [
            (a, b)
            for a, b in zip(*sides, strict=True)
            if min(len(a), len(b)) > 0 and max(len(a), len(b)) < self.plan.length
        ]
        most = self.plan.pairs
        if 0 < most < len(kept):  # evenly spread
            kept = [kept[i * len(kept) // most] for i in range(most)]
        return [a for a, _ in kept], [b for _, b in kept]

    def questions(self, name: str) -> Tokens:
        """The sources of a set, cut to the longest that training has."""
        most = self.plan.length - 1
        return [source[:most] for source in self._side(name, self.source)]

    def timed(self) -> Tokens:
        """The sources whose latency is measured: of the first test set."""
        return self.questions(self._sets(("test", "test_2016_flickr"))[0])

    # ------------------------------------------------------------------ phases

    def phases(self) -> list[tuple[str, Callable[[], Found]]]:
        """Every phase in turn: its name, and what runs it."""
        return [
            ("teacher", self.train_teacher),
            ("distil", self.distil),
            ("student", self.train_student),
            *(
                (f"ablation {name}", functools.partial(self.ablation, name))
                for name in self.plan.ablations
                if name != "raw_other_vocabulary" or self.other is not None
            ),
            ("padir", self.train_padir),
            ("remasking", self.remasking),
            ("attention", self.attention),
        ]

    def train_teacher(self) -> Found:
        net, history = self._train("teacher", self.sources, self.targets, self.plan.teacher)
        return {"training": _told(net, history), "outputs": self._searched(net, ("val",), (1, 5))}

    def distil(self) -> Found:
        """The teacher's translations of the training sources."""
        began = time.perf_counter()
        found = self._search(self.nets["teacher"], self.sources, self.plan.beams, distil=True)
        room = self.plan.length - 1
        pairs = [
            (a, b[:room]) for a, b in zip(self.sources, found.tokens, strict=True) if len(b) > 0
        ]
        self.distilled = [b for _, b in pairs]
        self.distilled_sources = [a for a, _ in pairs]
        same = sum(a == b for a, b in zip(found.tokens, self.targets, strict=True))
        return {
            "sentences": len(pairs),
            "same_as_reference": same,
            "seconds": time.perf_counter() - began,
            "sample": found.tokens[:50],
        }

    def train_student(self) -> Found:
        sources, targets = self.distilled_sources, self.distilled
        net, history = self._train("student", sources, targets, self.plan.student)
        sets = self._sets()
        return {"training": _told(net, history), "outputs": self._searched(net, sets, (1, 5))}

    def train_padir(self) -> Found:
        sources, targets = self.distilled_sources, self.distilled
        net, history = self._train(
            "padir", sources, targets, self.plan.padir, corruption=Corruption()
        )
        sets = self._sets()
        return {"training": _told(net, history), "outputs": self._refined(net, sets, STEPS)}

    def remasking(self) -> Found:
        """The trained parallel decoder with other rules for repeated tokens, and other starts."""
        net, outputs = self.nets["padir"], {}
        kinds = {
            "keep": Refinement(stutter="keep"),
            "random": Refinement(stutter="random"),
            "kept_to_the_end": Refinement(stutter="keep", drop=False),
            "one_length": Refinement(lengths=1),
            "by_sum": Refinement(by="sum"),
        }
        for name, how in kinds.items():
            for steps in (4, 10):
                outputs[f"{name} T={steps}"] = self._outputs(
                    net, ("val",), replace(how, steps=steps)
                )
        return {"outputs": outputs}

    def attention(self) -> Found:
        """Tables 4.4 and 4.5, on translations of the validation and of training sentences."""
        net = self.nets["padir"]
        sources = [*self.questions("val"), *self.sources[: self.plan.attention]]
        return {
            f"T={steps}": measure_attention(
                net,
                sources,
                Refinement(steps, self.plan.lengths),
                self._rng(f"attention {steps}"),
                batch=self.plan.batch,
            )
            for steps in (1, 4)
        }

    def ablation(self, name: str) -> Found:
        """A shorter training with one change."""
        corruption, sources, targets = Corruption(), self.distilled_sources, self.distilled
        positional = True
        match name:
            case "reference":
                pass
            case "raw_pairs":
                sources, targets = self.sources, self.targets
            case "raw_other_vocabulary":
                return self._with_other_vocabulary()
            case "one_stage":
                corruption = replace(corruption, stages=1)
            case "no_positions":
                positional = False
            case "half_right":
                corruption = replace(corruption, right=0.5)
            case _:
                raise UserError(f"ablation {name!r} is not known; choose of {ABLATIONS}")
        net, history = self._train(
            f"ablation {name}",
            sources,
            targets,
            self.plan.ablation,
            corruption=corruption,
            positional=positional,
        )
        sets = self._sets(("val", "test", "test_2016_flickr"))
        return {"training": _told(net, history), "outputs": self._refined(net, sets, (1, 4, 10))}

    def _with_other_vocabulary(self) -> Found:
        assert self.other is not None
        own, name = self.pairs, "raw_other_vocabulary"
        self.pairs = self.other
        try:
            sources, targets = self._training_pairs()
            budget = self.plan.ablation
            net, history = self._train(
                f"ablation {name}", sources, targets, budget, corruption=Corruption()
            )
            sets = self._sets(("val", "test", "test_2016_flickr"))
            return {
                "training": _told(net, history),
                "outputs": self._refined(net, sets, (1, 4, 10)),
            }
        finally:
            self.pairs = own

    # ------------------------------------------------------------------ parts

    def _sets(self, names: Sequence[str] = SETS) -> tuple[str, ...]:
        """Those that the pairs have."""
        return tuple(name for name in names if f"{name}.{self.source}" in self.pairs.sides)

    def _rng(self, purpose: str) -> TorchRng:
        purpose = f"{self.source}-{self.target} {purpose}"
        number = sum(ord(letter) * 31**i for i, letter in enumerate(purpose)) % 1_000_003
        return TorchRng(self.seed * 1_000_003 + number, self.device)

    def _train(
        self,
        name: str,
        sources: Tokens,
        targets: Tokens,
        budget: tuple[int, float],
        *,
        corruption: Corruption | None = None,
        positional: bool = True,
        refit_lengths: bool = True,
        report: Callable[[int, float], None] | None = None,
    ) -> tuple[EncoderDecoder, TranslationHistory]:
        plan = self.plan
        shape = PairShape(
            self.pairs.vocab_size,
            plan.length,
            width=plan.width,
            layers=plan.layers,
            heads=plan.heads,
            feedforward=plan.feedforward,
            causal=corruption is None,
            positional_attention=positional and corruption is not None,
            dropout=plan.dropout,
        )
        net = EncoderDecoder(shape, seed=self._rng(name).seed, device=self.device)
        net.use_kernels(self.kernels)
        corpus = PairCorpus(
            sources,
            targets,
            tokens=plan.tokens,
            widths=[*(w for w in plan.widths if w < plan.length - 1), plan.length - 1],
            device=self.device,
        )
        recipe = Recipe(
            budget[0],
            learning_rate=plan.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=0.01,
            warmup=min(plan.warmup, max(1, budget[0] // 10)),
            decay="cosine",
            clip=1.0,
            ema=0.998 if budget[0] >= 1000 else 0.9,
            autocast="bfloat16" if self.device.type == "cuda" else "none",
            compile=self.compiled,
        )
        history = fit_translator(
            net,
            corpus,
            recipe,
            self._rng(f"train {name}"),
            corruption=corruption,
            refit_lengths=refit_lengths,
            seconds=budget[1],
            recorded=self.recorded,
            report=report,
        )
        self.say(
            f"{name}: {history.steps} steps in {history.seconds:.0f} s, "
            f"recorded {history.recorded} ({history.why_not}), loss {history.losses[-1]:.3f}"
        )
        self.nets[name] = net
        return net, history

    def _search(
        self, net: EncoderDecoder, sources: Tokens, beams: int, *, distil: bool = False
    ) -> Translated:
        size = self.plan.distil_batch if distil else self.plan.batch
        return in_batches(sources, size, lambda some: search(net, some, beams=beams))

    def _searched(
        self, net: EncoderDecoder, sets: Sequence[str], beams: Sequence[int]
    ) -> dict[str, Found]:
        return {
            f"beam {count}": {
                name: _as_found(self._search(net, self.questions(name), count)) for name in sets
            }
            for count in beams
        }

    def _refined(
        self, net: EncoderDecoder, sets: Sequence[str], steps: Sequence[int]
    ) -> dict[str, Found]:
        each = self.plan.lengths
        return {f"T={count}": self._outputs(net, sets, Refinement(count, each)) for count in steps}

    def _outputs(self, net: EncoderDecoder, sets: Sequence[str], how: Refinement) -> Found:
        found = {}
        for name in sets:
            rng = self._rng(f"start {name}")
            sources = self.questions(name)
            found[name] = _as_found(
                in_batches(
                    sources,
                    self.plan.batch,
                    lambda some, rng=rng: refined_translations(net, some, how, rng),
                )
            )
        return found


def latencies(
    systems: Sequence[tuple[EncoderDecoder, Refinement | int]],
    sources: Tokens,
    seed: int,
    *,
    warm_up: int = 10,
    limit: float = 240.0,
) -> list[Found]:
    """Seconds and passes of one sentence at a time, for at most `limit` seconds in all.

    A system is a network with a refinement or a number of beams. All systems translate a sentence
    before the next one comes, so that a machine that is busy for a while slows all of them.
    """
    rngs = [TorchRng(seed, net.device) for net, _ in systems]
    seconds, passes = ([list[float]() for _ in systems] for _ in range(2))
    first = [*sources[:warm_up]]
    until = time.perf_counter() + limit
    for number, source in enumerate([*first, *sources]):
        for place, ((net, how), rng) in enumerate(zip(systems, rngs, strict=True)):
            _wait(net)
            began = time.perf_counter()
            if isinstance(how, Refinement):
                found = refined_translations(net, [source], how, rng)
            else:
                found = search(net, [source], beams=how)
            _wait(net)
            if number >= len(first):
                seconds[place].append(time.perf_counter() - began)
                passes[place].append(found.passes[0])
        if time.perf_counter() > until and number >= len(first):
            break
    return [{"seconds": a, "passes": b} for a, b in zip(seconds, passes, strict=True)]


def _wait(net: EncoderDecoder) -> None:
    if net.device.type == "cuda":
        torch.cuda.synchronize()


def _as_found(translated: Translated) -> Found:
    return {
        "tokens": translated.tokens,
        "passes": translated.passes,
        "stutter": translated.stutter,
        "seconds": translated.seconds,
    }


def _told(net: EncoderDecoder, history: TranslationHistory) -> Found:
    losses = history.losses
    return {
        "parameters": net.shape.parameter_count,
        "steps": history.steps,
        "seconds": history.seconds,
        "recorded": history.recorded,
        "why_not": history.why_not,
        "losses": [round(value, 4) for value in losses[:: max(1, len(losses) // 100)]],
        "last_loss": losses[-1],
    }
