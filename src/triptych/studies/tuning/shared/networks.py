"""Masked LMs pretrained on a law that is known, and kept on disk.

The laws are the random HMMs of the experiments [wei, D], with and without a memory. How far a
network is from its law is measured against exact conditionals, whatever it was trained on.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.studies.api.study import Bench
from triptych.training.corpus import Corpus
from triptych.training.gap import Gap
from triptych.training.loop import Trainable, fit, gap_meter
from triptych.training.objectives import masked
from triptych.training.step import Recipe

VOCAB = 10  # symbols of the experiments
Law = HMM | MemoryHMM
LawName = Mapping[str, str | int]  # what a law was made from: its name in the cache


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """How a network is pretrained: all that names it in the cache, besides law, rate and seed.

    norm         pre or post: LayerNorm before or after attention and feed-forward; bert: after, and
                 all else as in BERT (`Shape.bert`), which was the network of the source
    length       tokens of a sequence
    optimiser    adamw or muon (see `training.muon`)
    targets      sampled: the token; exact: the exact conditional in its place
    corrupted    sampled targets only: share of selected tokens kept, and share replaced
    documents    how many there are, 0 for fresh sequences at every step
    snapshots    shares of the training steps after which the network is kept
    """

    layers: int = 2
    width: int = 64
    heads: int = 4
    norm: Literal["pre", "post", "bert"] = "pre"
    tied: bool = False
    length: int = 26
    steps: int = 1000
    batch: int = 64
    warmup: int = 50
    decay: Literal["none", "linear", "cosine"] = "cosine"
    optimiser: Literal["adamw", "muon"] = "adamw"
    mask_rate: float = 0.15
    targets: Literal["sampled", "exact"] = "sampled"
    corrupted: float = 0.0
    documents: int = 0
    document_length: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    snapshots: tuple[float, ...] = (0.0, 0.0625, 0.25, 1.0)

    def __post_init__(self) -> None:
        for name, choices in (
            ("targets", ("sampled", "exact")),
            ("norm", ("pre", "post", "bert")),
            ("precision", ("float32", "bfloat16")),
            ("decay", ("none", "linear", "cosine")),
            ("optimiser", ("adamw", "muon")),
        ):
            if getattr(self, name) not in choices:
                raise UserError(
                    f"{name} is {getattr(self, name)!r}; it must be {' or '.join(choices)}"
                )
        if self.norm == "bert" and not self.tied:
            raise UserError("norm = bert needs tied = true: BERT writes and reads with one matrix")
        if self.steps < 1:
            raise UserError(f"steps is {self.steps}; it must be at least 1")
        if self.targets == "exact" and self.corrupted:
            raise UserError("exact targets need corrupted = 0: see training.objectives.masked")
        shares = self.snapshots
        if list(shares) != sorted(shares) or not shares or shares[0] < 0 or shares[-1] != 1:
            raise UserError("snapshots are shares of the training in rising order, the last one 1")
        if self.documents and not self.document_length:
            raise UserError("documents need a document_length: a multiple of length")


def vanilla(states: int, length: int, seed: int) -> HMM:
    """The random HMM of the experiments."""
    return HMM.random_permutation_mixture(states, VOCAB, length, seed=seed)


def vanilla_name(states: int, seed: int) -> LawName:
    return {"kind": "hmm", "states": states, "seed": seed}


def with_memory(values: int, hidden: int, length: int, seed: int) -> MemoryHMM:
    """The random memory HMM of the experiments: one cell, `values` · `hidden` states."""
    return MemoryHMM.random_permutation_mixture(values, hidden, VOCAB, length, seed=seed)


def with_memory_name(values: int, hidden: int, seed: int) -> LawName:
    return {"kind": "memory hmm", "values": values, "hidden": hidden, "seed": seed}


class Snapshot(NamedTuple):
    """A network after `step` steps, and its KL to the law at masked positions, in nats."""

    step: int
    lm: MaskedLM
    kl: float


def pretrained(
    bench: Bench,
    law: Law,
    law_name: LawName,
    pretraining: Pretraining,
    learning_rate: float,
    seed: int,
) -> list[Snapshot]:
    """Masked LMs trained on `law`, at every snapshot; kept on disk and trained once."""
    key = {
        "network": "masked lm",
        "law": dict(law_name),
        "learning_rate": learning_rate,
        "seed": seed,
    } | {field.name: getattr(pretraining, field.name) for field in fields(Pretraining)}
    kept = bench.tensors(key, lambda: _train(bench, law, pretraining, learning_rate, seed))
    found = []
    for index, (step, kl) in enumerate(
        zip(kept["steps"].tolist(), kept["kl"].tolist(), strict=True)
    ):
        net = _network(pretraining, seed, bench.device)
        prefix = f"{index}."
        net.load_state_dict(
            {name[len(prefix) :]: kept[name] for name in kept if name.startswith(prefix)}
        )
        net.requires_grad_(False).eval()
        found.append(Snapshot(int(step), MaskedLM(net), kl))
    return found


def shape_of(how: Pretraining) -> Shape:
    """The network's shape; a token more than the symbols, for what is hidden."""
    width, layers, heads = how.width, how.layers, how.heads
    if how.norm == "bert":
        return Shape.bert(VOCAB + 1, how.length, width=width, layers=layers, heads=heads)
    return Shape(
        VOCAB + 1,
        how.length,
        width=width,
        layers=layers,
        heads=heads,
        causal=False,
        norm=how.norm,
        tied=how.tied,
    )


def _network(how: Pretraining, seed: int, device: str) -> Transformer:
    """The network before its first step."""
    init = "bert" if how.norm == "bert" else "gpt2"
    return Transformer(shape_of(how), seed=seed, device=device, init=init)


def _train(bench: Bench, law: Law, how: Pretraining, rate: float, seed: int) -> dict[str, Tensor]:
    device = bench.device
    if how.precision == "bfloat16" and torch.device(device).type == "cpu":
        raise UserError("precision = bfloat16 is for a GPU: use --set precision=float32 on a CPU")
    there = law.with_length(how.length).to(device)
    lm = MaskedLM(_network(how, seed, device))
    exact = masked(words=VOCAB, p_m=how.mask_rate, truth=there)
    objective = exact
    if how.targets == "sampled":
        objective = masked(words=VOCAB, p_m=how.mask_rate, p_c=how.corrupted, p_r=how.corrupted)
    sample: Callable[[int, TorchRng], Tensor] = there.sample
    if how.documents:
        rng = TorchRng(seed)  # on the CPU, where sampling long documents is fastest
        documents = law.with_length(how.document_length)
        corpus = Corpus.draw(documents, how.documents, rng, chunk=how.length, device=device)
        sample = corpus.sample
    every = max(1, how.steps // 16)
    recipe = Recipe(
        steps=how.steps,
        batch=how.batch,
        optimiser=how.optimiser,
        learning_rate=rate,
        warmup=how.warmup,
        decay=how.decay,
        clip=1.0,
        autocast="bfloat16" if how.precision == "bfloat16" else "none",
        compile=how.compile,
        meter_every=every,
        quick=True,
        recorded=how.optimiser == "adamw",
    )
    held_out = there.sample(256, TorchRng(seed + 1_000_000, device))
    measured = gap_meter(exact, held_out, seed)
    wanted = {round(share * how.steps / every) * every for share in how.snapshots[:-1]}
    wanted.add(how.steps)
    kept_weights: dict[str, Tensor] = {}
    steps, gaps = list[int](), list[float]()

    def keep(model: Trainable, step: int, gap: Gap) -> None:
        for name, value in model.net.state_dict().items():
            kept_weights[f"{len(steps)}.{name}"] = value.detach().clone()
        steps.append(step)
        gaps.append(gap.kl)

    last = how.steps
    meter_calls = iter([step for step in range(1, last + 1) if step == last or not step % every])

    def meter(model: Trainable) -> Gap:
        """Measures snapshots alone: what is between them is read by nobody."""
        step = next(meter_calls)
        if step not in wanted:
            return Gap(math.nan, math.nan, math.nan)
        gap = measured(model)
        keep(model, step, gap)
        return gap

    if 0 in wanted:
        keep(lm, 0, measured(lm))
    # Not the unit's own rng: what is kept must depend on its name in the cache alone.
    fit(lm, sample, objective, recipe, TorchRng(seed + 2_000_000, device), meter=meter)
    kept_weights["steps"] = torch.tensor(steps)
    kept_weights["kl"] = torch.tensor(gaps, dtype=torch.float64)
    return kept_weights


def use_fast_products(device: str) -> None:
    """Let a GPU multiply float32 matrices in its 19-bit format, ten times faster."""
    if torch.device(device).type == "cuda":
        torch.set_float32_matmul_precision("high")
