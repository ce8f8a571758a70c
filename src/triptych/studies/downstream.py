"""Pretrained networks, labelled inputs, accuracies: what studies of head and prompt tuning share.

A network is pretrained as a masked LM on a law that is known, and its distance to that law is
measured; tasks are labelled by exact posteriors; heads and prompts are tuned on the frozen network.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.adaptation.linear import best_linear_head
from triptych.adaptation.prompts import HeadKind, Tuning
from triptych.adaptation.tasks import draw_task, majority_rate
from triptych.core.divergences import kl_divergence
from triptych.core.protocols import SoftMasked
from triptych.core.randomness import TorchRng
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hmm import HMM
from triptych.structures.memory_hmm import MemoryHMM
from triptych.studies.study import Bench, Row, Rows, Settings
from triptych.training.corpus import Corpus
from triptych.training.gap import Gap
from triptych.training.loop import Recipe, Trainable, fit, gap_meter
from triptych.training.objectives import masked

VOCAB = 10  # symbols of the experiments
Law = HMM | MemoryHMM


@dataclass(frozen=True)
class Tuned(Settings):
    """Settings of a pretrained network and of what is tuned on it.

    length          tokens of a pretraining sequence
    targets         sampled: the token; exact: the exact conditional in its place
    corrupted       sampled targets only: share of selected tokens kept, and share replaced
    documents       pretraining documents, 0 for fresh sequences at every step
    snapshots       shares of the training steps after which the network is kept
    inputs          tokens of a downstream input, besides the hidden first one
    head_steps      training steps of a head alone; tuning_steps: of a prompt with its head
    """

    layers: int = 2
    width: int = 64
    heads: int = 4
    norm: str = "pre"
    tied: bool = False
    length: int = 26
    steps: int = 1000
    batch: int = 64
    warmup: int = 50
    decay: str = "cosine"
    mask_rate: float = 0.15
    targets: str = "exact"
    corrupted: float = 0.0
    documents: int = 0
    document_length: int = 0
    precision: str = "float32"
    compile: bool = False
    snapshots: tuple[float, ...] = (0.0, 0.0625, 0.25, 1.0)
    inputs: int = 17
    train: int = 2000
    test: int = 1000
    prompt_length: int = 8
    head_steps: int = 4000
    tuning_steps: int = 600
    tuning_rate: float = 0.03
    tuning_batch: int = 64

    def __post_init__(self) -> None:
        for name, choices in (
            ("targets", ("sampled", "exact")),
            ("norm", ("pre", "post")),
            ("precision", ("float32", "bfloat16")),
            ("decay", ("none", "linear", "cosine")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must be {' or '.join(choices)}"
                )
        if self.targets == "exact" and self.corrupted:
            raise ValueError("exact targets need corrupted = 0: see training.objectives.masked")
        shares = self.snapshots
        if list(shares) != sorted(shares) or not shares or shares[0] < 0 or shares[-1] != 1:
            raise ValueError("snapshots are shares of the training in rising order, the last one 1")
        for name in ("inputs", "train", "test", "steps", "prompt_length", "tuning_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        longest = self.prompt_length + 1 + self.inputs
        if longest > self.length:
            raise ValueError(
                f"a prompt and an input take {longest} positions, and pretraining sequences have "
                f"length {self.length}: positions that were never trained would be read"
            )
        if self.documents and not self.document_length:
            raise ValueError("documents need a document_length: a multiple of length")


# The paper's own setting [wei, D], without dropout; docs/log.md says what else differs.
PAPER: dict[str, Any] = {
    "layers": 6,
    "width": 768,
    "heads": 12,
    "norm": "post",
    "tied": True,
    "length": 512,
    "steps": 37_500,
    "batch": 8,
    "warmup": 500,
    "decay": "linear",
    "mask_rate": 0.05,
    "targets": "sampled",
    "corrupted": 0.1,
    "documents": 5000,
    "document_length": 10_240,
    "precision": "bfloat16",
    "compile": True,
    "snapshots": (1.0,),
    "inputs": 128,
    "train": 5000,
    "test": 1000,
    "prompt_length": 20,
    "head_steps": 4000,
    "tuning_steps": 4000,
    "tuning_rate": 0.01,
    "tuning_batch": 128,
}

SMOKE: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "length": 10,
    "steps": 8,
    "warmup": 2,
    "snapshots": (0.0, 1.0),
    "inputs": 7,
    "train": 60,
    "test": 40,
    "prompt_length": 2,
    "head_steps": 20,
    "tuning_steps": 10,
}

_TUNING = {"seeds", "inputs", "train", "test", "prompt_length", "head_steps"}
_PRETRAINING = tuple(
    field.name
    for field in fields(Tuned)
    if field.name not in _TUNING and not field.name.startswith("tuning_")
)


def parameters(settings: Tuned) -> dict[str, Any]:
    """The fields of `Tuned` but the seeds, as a unit carries them."""
    return {
        field.name: getattr(settings, field.name)
        for field in fields(Tuned)
        if field.name != "seeds"
    }


def vanilla(states: int, length: int, seed: int) -> HMM:
    """The random HMM of the experiments."""
    return HMM.random_permutation_mixture(states, VOCAB, length, seed=seed)


def with_memory(values: int, hidden: int, length: int, seed: int) -> MemoryHMM:
    """The random memory HMM of the experiments: one cell, `values` · `hidden` states."""
    return MemoryHMM.random_permutation_mixture(values, hidden, VOCAB, length, seed=seed)


class Snapshot(NamedTuple):
    """A network after `step` steps, and its KL to the law at masked positions, in nats."""

    step: int
    lm: MaskedLM
    kl: float


def pretrained(
    bench: Bench,
    law: Law,
    law_name: Mapping[str, Any],
    p: Mapping[str, Any],
    learning_rate: float,
    seed: int,
) -> list[Snapshot]:
    """Masked LMs trained on `law`, at every snapshot; kept on disk and trained once.

    `law_name` names the law in the cache: what it was made from.
    """
    shape = Shape(
        vocab_size=VOCAB + 1,
        length=p["length"],
        width=p["width"],
        layers=p["layers"],
        heads=p["heads"],
        causal=False,
        norm=p["norm"],
        tied=p["tied"],
    )
    key = {
        "network": "masked lm",
        "law": dict(law_name),
        "learning_rate": learning_rate,
        "seed": seed,
    } | {name: p[name] for name in _PRETRAINING}
    kept = bench.tensors(key, lambda: _train(bench, law, p, shape, learning_rate, seed))
    found = []
    for index, (step, kl) in enumerate(
        zip(kept["steps"].tolist(), kept["kl"].tolist(), strict=True)
    ):
        net = Transformer(shape, seed=seed, device=bench.device)
        prefix = f"{index}."
        net.load_state_dict(
            {name[len(prefix) :]: kept[name] for name in kept if name.startswith(prefix)}
        )
        net.requires_grad_(False).eval()
        found.append(Snapshot(int(step), MaskedLM(net), kl))
    return found


def _train(
    bench: Bench, law: Law, p: Mapping[str, Any], shape: Shape, rate: float, seed: int
) -> dict[str, Tensor]:
    device = bench.device
    if p["precision"] == "bfloat16" and torch.device(device).type == "cpu":
        raise ValueError("precision = bfloat16 is for a GPU: use --set precision=float32 on a CPU")
    there = law.with_length(p["length"]).to(device)
    lm = MaskedLM(Transformer(shape, seed=seed, device=device))
    exact = masked(words=VOCAB, p_m=p["mask_rate"], truth=there)
    objective = exact
    if p["targets"] == "sampled":
        kept = p["corrupted"]
        objective = masked(words=VOCAB, p_m=p["mask_rate"], p_c=kept, p_r=kept)
    sample: Callable[[int, TorchRng], Tensor] = there.sample
    if p["documents"]:
        rng = TorchRng(seed)  # on the CPU, where sampling long documents is fastest
        documents = law.with_length(p["document_length"])
        corpus = Corpus.draw(documents, p["documents"], rng, chunk=p["length"], device=device)
        sample = corpus.sample
    every = max(1, p["steps"] // 16)
    recipe = Recipe(
        steps=p["steps"],
        batch=p["batch"],
        learning_rate=rate,
        warmup=p["warmup"],
        decay=p["decay"],
        clip=1.0,
        autocast=p["precision"] if p["precision"] == "bfloat16" else "none",
        compile=p["compile"],
        meter_every=every,
    )
    held_out = there.sample(256, TorchRng(seed + 1_000_000, device))
    measured = gap_meter(exact, held_out, seed)
    wanted = {round(share * p["steps"] / every) * every for share in p["snapshots"][:-1]}
    wanted.add(p["steps"])
    kept_weights: dict[str, Tensor] = {}
    steps, gaps = list[int](), list[float]()

    def keep(model: Trainable, step: int, gap: Gap) -> None:
        for name, value in model.net.state_dict().items():
            kept_weights[f"{len(steps)}.{name}"] = value.detach().clone()
        steps.append(step)
        gaps.append(gap.kl)

    last = p["steps"]
    meter_calls = iter([step for step in range(1, last + 1) if step == last or not step % every])

    def meter(model: Trainable) -> Gap:
        gap, step = measured(model), next(meter_calls)
        if step in wanted:
            keep(model, step, gap)
        return gap

    if 0 in wanted:
        keep(lm, 0, measured(lm))
    # Not the unit's own rng: what is kept must depend on its name in the cache alone.
    fit(lm, sample, objective, recipe, TorchRng(seed + 2_000_000, device), meter=meter)
    kept_weights["steps"] = torch.tensor(steps)
    kept_weights["kl"] = torch.tensor(gaps, dtype=torch.float64)
    return kept_weights


class Labelled(NamedTuple):
    """Inputs x (behind a hidden first position), their labels, and the exact law there."""

    tokens: Int[Tensor, "batch t"]
    labels: Int[Tensor, " batch"]
    law: Float[Tensor, "batch vocab"]


class Downstream(NamedTuple):
    """A task: examples to train on and to test on, and how often it had to be drawn."""

    train: Labelled
    test: Labelled
    draws: int

    @property
    def row(self) -> Row:
        return {"draws": self.draws, "majority": majority_rate(self.test.labels)}


def downstream(law: Law, p: Mapping[str, Any], seed: int, rng: TorchRng) -> Downstream:
    """Inputs from `law`, labelled by the posterior of the hidden first state, or of the memory."""
    tokens = law.with_length(p["inputs"] + 1).sample(p["train"] + p["test"], rng)
    posteriors, laws = [], []
    for block in tokens.split(1000):
        posterior, exact = _exact(law, block, _first(block))
        posteriors.append(posterior)
        laws.append(exact)
    posterior, exact = torch.cat(posteriors), torch.cat(laws)
    n = p["train"]
    task, labels = draw_task(posterior[:n], seed=seed)
    return Downstream(
        Labelled(tokens[:n, 1:], labels, exact[:n]),
        Labelled(tokens[n:, 1:], task.labels(posterior[n:]), exact[n:]),
        task.draws,
    )


def _first(tokens: Int[Tensor, "batch t"]) -> Bool[Tensor, "batch t"]:
    hidden = torch.zeros_like(tokens, dtype=torch.bool)
    hidden[:, 0] = True
    return hidden


def _exact(law: Law, tokens: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """What the label is linear in, and the exact law of the hidden first token."""
    law = law.with_length(tokens.shape[1])
    first = law.masked_log_probs(tokens, hidden)[:, 0].exp()
    if isinstance(law, MemoryHMM):
        return law.posteriors(tokens, hidden).cell(0), first
    return law.posterior(tokens, hidden)[:, 0].exp(), first


def kl_at_first(lm: MaskedLM, data: Labelled) -> float:
    """KL(truth ‖ network) at the hidden first position, in nats: how good the features are."""
    padded = torch.nn.functional.pad(data.tokens, (1, 0))
    total = 0.0
    for tokens, exact in zip(padded.split(512), data.law.split(512), strict=True):
        predicted = lm.masked_log_probs(tokens, _first(tokens))[:, 0]
        total += float(kl_divergence(exact.log(), predicted).sum())
    return total / len(padded)


def head_accuracies(
    model: SoftMasked, data: Downstream, p: Mapping[str, Any], seed: int, head: HeadKind = "linear"
) -> Row:
    """Test accuracy of a head trained with the paper's recipe, and of the best linear head."""
    recipe = Recipe(
        steps=p["head_steps"],
        batch=128,
        learning_rate=0.01,
        warmup=p["head_steps"] // 8,
        decay="linear",
    )
    trained = Tuning(model, head=head, recipe=recipe, seed=seed)
    trained.fit(data.train.tokens, data.train.labels)
    row: Row = {"head": trained.score(data.test.tokens, data.test.labels)}
    if head == "linear":
        best = best_linear_head(trained.features(data.train.tokens), data.train.labels)
        row["best_head"] = best.score(trained.features(data.test.tokens), data.test.labels)
    return row


def prompt_accuracies(model: SoftMasked, data: Downstream, p: Mapping[str, Any], seed: int) -> Row:
    """Test and training accuracy of a prompt trained with a linear head.

    `best_prompt` is the same prompt with the best linear head in place of the trained one.
    """
    recipe = Recipe(
        steps=p["tuning_steps"],
        batch=p["tuning_batch"],
        learning_rate=p["tuning_rate"],
        warmup=p["tuning_steps"] // 8,
        decay="linear",
    )
    tuned = Tuning(model, prompt_length=p["prompt_length"], recipe=recipe, seed=seed)
    tuned.fit(data.train.tokens, data.train.labels)
    best = best_linear_head(tuned.features(data.train.tokens), data.train.labels)
    return {
        "prompt": tuned.score(data.test.tokens, data.test.labels),
        "best_prompt": best.score(tuned.features(data.test.tokens), data.test.labels),
        "prompt_train": tuned.score(data.train.tokens, data.train.labels),
        "prompt_loss": sum(tuned.losses[-20:]) / len(tuned.losses[-20:]),
    }


def exact_head_accuracy(data: Downstream) -> float:
    """Test accuracy of the best linear head on the exact law: no network, no training error."""
    train, test = data.train, data.test
    return best_linear_head(train.law, train.labels).score(test.law, test.labels)


def use_fast_products(device: str) -> None:
    """Let a GPU multiply float32 matrices in its 19-bit format, ten times faster."""
    if torch.device(device).type == "cuda":
        torch.set_float32_matmul_precision("high")


def best_rate(rows: Rows) -> list[Row]:
    """The rows of the learning rate whose networks came closest to the truth.

    Rates are compared on the trials that all of them have, so that a rate that has only begun
    does not win by its easy trials; when there are none, the rate with most trials stands.
    """
    found: dict[float, dict[tuple, float]] = {}
    for row in rows:
        trial = (row.get("data"), row["states"], row["seed"])
        found.setdefault(row["learning_rate"], {})[trial] = row["kl_first"]
    if len(found) < 2:
        return [dict(row) for row in rows]
    common = set.intersection(*(set(trials) for trials in found.values()))

    def distance(rate: float) -> float:
        trials = found[rate]
        return sum(trials[trial] for trial in common) if common else -float(len(trials))

    best = min(sorted(found), key=distance)
    return [dict(row) for row in rows if row["learning_rate"] == best]
