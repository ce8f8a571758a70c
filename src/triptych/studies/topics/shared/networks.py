"""One-layer networks on topic documents: what the studies of section 2.1 share [li, 2.1.5.1].

The documents are LDA with T = 10 topics of v = 10 words, 100 to 150 words, Dirichlet 0.1, a corpus
of 10,000 drawn once. Masks are drawn again at every step. The network is
f(X) = W^E' W^V W^E X A + b with one head, no residual, no norm and no positions, evaluated on word
counts (`models.bags`).
`AuthorsNetwork` is the one of the authors' code, whose inputs are normalised.

Tokens: words 0..Tv-1, the mask Tv and, if wanted, a start token Tv+1 at the head of every document.
"""

import functools
import math
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.core.corruption import corrupt
from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.bags import BagLM, StackedBags, UniformBagLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.topics import LDA
from triptych.studies.api.study import Settings, Unit
from triptych.training.corpus import Corpus
from triptych.training.loop import History, fit, predictions
from triptych.training.objectives import (
    LossName,
    Objective,
    Prediction,
    member_scored_losses,
)
from triptych.training.step import Descent, Recipe, descend

Optimiser = Literal["sgd", "adam"]
PAIRS: tuple[tuple[LossName, Optimiser], ...] = (
    ("cross_entropy", "sgd"),
    ("cross_entropy", "adam"),
    ("squared", "sgd"),
    ("squared", "adam"),
)
NAMES = {
    "cross_entropy": "cross-entropy",
    "squared": "squared loss",
    "sgd": "SGD",
    "adam": "Adam",
}
DEFAULT = 0.0577  # standard deviation of PyTorch's default for a linear map of width 100


def pair_name(loss: LossName, optimiser: Optimiser) -> str:
    """As "squared loss + SGD"."""
    return f"{NAMES[loss]} + {NAMES[optimiser]}"


@dataclass(frozen=True)
class Documents:
    """The published documents and masking."""

    topics: int = 10
    words: int = 10
    concentration: float = 0.1
    min_length: int = 100
    length: int = 150
    count: int = 10_000
    p_m: float = 0.15
    p_c: float = 0.1
    p_r: float = 0.1

    @property
    def lda(self) -> LDA:
        return LDA(self.topics, self.words, self.concentration, self.min_length, self.length)

    @property
    def mask_token(self) -> int:
        return self.topics * self.words

    @property
    def start_token(self) -> int:
        return self.mask_token + 1

    def corpus(self, seed: int) -> Corpus:
        """`count` documents; the last few corpora that were asked for are kept."""
        return _corpus(self, seed)

    def topic_of_words(self) -> Int[Tensor, " words"]:
        return torch.arange(self.mask_token) // self.words


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The documents' sizes, which the settings and the units of every study here have."""

    topics: int = 10
    words: int = 10
    min_length: int = 100
    length: int = 150
    count: int = 10_000

    @property
    def documents(self) -> Documents:
        """Documents of these sizes, masked as published."""
        return Documents(
            topics=self.topics,
            words=self.words,
            min_length=self.min_length,
            length=self.length,
            count=self.count,
        )


@dataclass(frozen=True, kw_only=True)
class TopicSettings(Sizes, Settings):
    """Sizes of the documents and the seeds first_seed, first_seed + 1, … of the runs."""

    first_seed: int = 100

    @property
    def run_seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)


@dataclass(frozen=True, kw_only=True)
class TopicUnit(Sizes, Unit):
    """A network to train on documents of these sizes."""


# of a run at smoke scale
TINY = {"seeds": 1, "topics": 3, "words": 3, "min_length": 12, "length": 16, "count": 200}


@functools.lru_cache(maxsize=2)
def _corpus(documents: Documents, seed: int) -> Corpus:
    return Corpus.draw(documents.lda, documents.count, TorchRng(seed), chunk=documents.length)


@dataclass(frozen=True)
class Training:
    """Which parts are trained, and how.

    embedding   train W^E (tied to the output), else it is the frozen identity
    attention   train W^K and W^Q, else they are 0 and attention is uniform
    value       train W^V, else it is the frozen identity
    l2          weight of ‖θ‖², summed over the trained parameters and added to the loss
    start       put a start token before every document
    blind       nobody attends to the words that are to be predicted, masked or not
    input_length      length of the frozen one-hot inputs; the output is the plain identity
    init_scale  standard deviation of W^K, W^Q and W^V at the start; biases are 0
    embedding_scale   that of W^E, if it is trained
    authors     the network of the authors' code (`AuthorsNetwork`); W^E must be trained
    """

    embedding: bool = False
    attention: bool = True
    value: bool = True
    loss: LossName = "cross_entropy"
    optimiser: Optimiser = "adam"
    learning_rate: float = 0.01
    l2: float = 0.0
    start: bool = False
    blind: bool = False
    input_length: float = 1.0
    init_scale: float = 0.02
    embedding_scale: float = 0.1
    authors: bool = False
    steps: int = 5000
    batch: int = 40

    def __post_init__(self) -> None:
        if self.authors and not self.embedding:
            raise UserError("authors=True is about trained embeddings: set embedding=True too")


class AuthorsNetwork(Transformer):
    """The network of the authors' code: a word w enters as LayerNorm(e_w + t), gain and bias
    trained, where the vector t is the same for all words; the output matrix is its own.

    e_w and t start as N(0, 1), the output matrix like the attention.
    """

    def __init__(self, shape: Shape, *, seed: int, init_scale: float) -> None:
        super().__init__(shape, seed=seed, init_scale=init_scale)
        generator = torch.Generator().manual_seed(seed + 2_000_003)
        self.every_word = nn.Parameter(torch.randn(shape.width, generator=generator))
        self.input_norm = nn.LayerNorm(shape.width)

    def embed(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch t width"]:
        return self.input_norm(super().embed(tokens) + self.every_word)


def network(documents: Documents, training: Training, seed: int) -> Transformer:
    """The one-layer network, its untrained parts frozen."""
    vocab = documents.mask_token + 1 + training.start
    shape = Shape(
        vocab_size=vocab,
        length=documents.length + 1,
        width=vocab,
        layers=1,
        heads=1,
        feedforward=0,
        causal=False,
        positions="none",
        embedding="learned" if training.embedding else "one_hot",
        tied=training.embedding and not training.authors,
        residual=False,
        norm="none",
        final_norm=False,
        output_projection=False,
    )
    kind = AuthorsNetwork if training.authors else Transformer
    net = kind(shape, seed=seed, init_scale=training.init_scale)
    if training.embedding:
        assert net.embedding is not None
        with torch.no_grad():  # drawn N(0, init_scale²)
            net.embedding.weight.mul_(training.embedding_scale / training.init_scale)
    else:
        net.set_matrix("embedding.weight", training.input_length * torch.eye(vocab))
        net.set_matrix("output.weight", torch.eye(vocab))
    if not training.attention:
        for name in ("query", "key"):
            weight = f"blocks.0.attention.{name}.weight"
            net.set_matrix(weight, torch.zeros(vocab, vocab))
            net.set_matrix(f"blocks.0.attention.{name}.bias", torch.zeros(vocab))
    if not training.value:
        net.set_matrix("blocks.0.attention.value.weight", torch.eye(vocab))
        net.set_matrix("blocks.0.attention.value.bias", torch.zeros(vocab))
    return net


def masked_words(documents: Documents, training: Training) -> Objective:
    """Predict the selected words; `seen` is the document and then its selected tokens."""
    end, words = documents.lda.end_token, documents.mask_token

    def prepare(tokens: Int[Tensor, "batch length"], rng: Rng) -> Prediction:
        """Corrupt, and put what is asked about, gathered to the left, behind the document."""
        real = tokens != end
        seen, selected = corrupt(
            tokens,
            rng,
            words=words,
            mask_token=words,
            p_m=documents.p_m,
            p_c=documents.p_c,
            p_r=documents.p_r,
        )
        seen, selected = seen.masked_fill(~real, -1), selected & real
        most = max(1, int(selected.sum(1).max()))
        at = selected.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        scored = selected.gather(1, at)
        queries = seen.gather(1, at).masked_fill(~scored, -1)
        answers = tokens.gather(1, at).masked_fill(~scored, 0)
        if training.blind:
            seen = seen.masked_fill(selected, -1)
        if training.start:
            seen = torch.cat([torch.full_like(seen[:, :1], documents.start_token), seen], dim=1)
        return Prediction(torch.cat([seen, queries], dim=1), answers, scored, None)

    return prepare


def reader(net: Transformer, documents: Documents, training: Training) -> BagLM | UniformBagLM:
    """The network as what `fit` trains; `token_logits` answers what `masked_words` asks."""
    length = documents.length + training.start
    return BagLM(net, length) if training.attention else UniformBagLM(net, length)


def _recipe(training: Training) -> Recipe:
    return Recipe(
        steps=training.steps,
        batch=training.batch,
        optimiser=training.optimiser,
        learning_rate=training.learning_rate,
        l2=training.l2,
        loss=training.loss,
        quick=True,
    )


def trained(
    documents: Documents,
    training: Training,
    seed: int,
    *,
    watch: Callable[[int, Transformer], None] | None = None,
) -> tuple[Transformer, History]:
    """A network trained on a corpus of its own; `watch(step, net)` is called before and after
    every step."""
    net = network(documents, training, seed)
    corpus = documents.corpus(seed)
    recipe = _recipe(training)
    if watch is not None:
        watch(0, net)
    history = fit(
        reader(net, documents, training),
        corpus.sample,
        masked_words(documents, training),
        recipe,
        TorchRng(seed + 1_000_003),
        report=None if watch is None else lambda step, value, gap: watch(step, net),
    )
    return net, history


class _Enough(Exception):
    """Nothing is left to train: all losses are infinite, or the held-out loss falls no more."""


def trained_together(
    documents: Documents,
    trainings: Sequence[Training],
    seed: int,
    *,
    watch: Callable[[int, StackedBags], None],
    at: Collection[int],
) -> list[Transformer | None]:
    """One-hot networks trained on the same documents, None where a loss became infinite.

    They may differ in `init_scale` and `input_length`. `watch(step, nets)` is called when the
    number of steps is one of `at`; when no network has a finite loss any more, all is over.
    """
    first = trainings[0]
    nets = [network(documents, training, seed) for training in trainings]
    stacked = StackedBags(nets, documents.length + first.start)
    recipe = _recipe(first)
    descent = Descent(recipe, list(stacked.parameters()), members=len(nets), finite=False)
    sample, objective = documents.corpus(seed).sample, masked_words(documents, first)
    data = predictions(sample, objective, recipe.batch, TorchRng(seed + 1_000_003))

    def loss_at(step: int) -> Float[Tensor, " members"]:
        prediction = next(data)
        answers, place = stacked.scored_logits(prediction.seen, prediction.scored)
        return member_scored_losses(answers, place, prediction, recipe.loss)

    def finite() -> list[bool]:
        """Which networks have had finite losses only."""
        return [all(map(math.isfinite, losses)) for losses in zip(*descent.losses, strict=True)]

    def after(done: int) -> None:
        if done in at:
            descent.settle(done)
            if not any(finite()):
                raise _Enough
            watch(done, stacked)

    if 0 in at:
        watch(0, stacked)
    with suppress(_Enough):
        descend(descent, loss_at, after=after)
    stacked.put_back()
    return [net if alive else None for net, alive in zip(nets, finite(), strict=True)]


# ------------------------------------------------------------------ stopping by a held-out loss

Found = TypeVar("Found")


@dataclass(frozen=True)
class Best(Generic[Found]):
    """The network at its least held-out loss.

    step, loss  when, and how much
    found       what was looked at then
    finished    no lower loss came for `patience` steps; else the steps ran out first
    """

    step: int
    loss: float
    found: Found
    finished: bool


def best_by_held_out_loss(
    documents: Documents,
    training: Training,
    seed: int,
    *,
    every: int,
    patience: int,
    look: Callable[[Transformer], Found],
    held_out_loss: Callable[[Transformer], float],
) -> Best[Found]:
    """Train until the held-out loss, asked for at every `every` steps, has had no new least value
    for `patience` steps, or for `training.steps`; `look` at the network whenever it has one.

    The authors' code asks at every 1000 steps and stops when the best is more than 4 epochs, that
    is 1000 steps, old: every = 1000, patience = 2000. Worked value: losses 3, 2, 2.5, 2.4, … at
    steps 1, 2, 3, 4, … with patience 2 end at step 4, and the best is step 2.
    """
    if every < 1 or training.steps < every:
        raise UserError(f"every is {every}; it must be 1 to {training.steps}, the number of steps")
    best: list[Best[Found]] = []

    def watch(step: int, net: Transformer) -> None:
        if step == 0 or step % every:
            return
        value = held_out_loss(net)
        if not best or value < best[-1].loss:
            best.append(Best(step, value, look(net), finished=False))
        elif step - best[-1].step >= patience:
            raise _Enough

    finished = False
    try:
        trained(documents, training, seed, watch=watch)
    except _Enough:
        finished = True
    return replace(best[-1], finished=finished)
