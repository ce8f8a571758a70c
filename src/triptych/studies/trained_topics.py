"""One-layer networks on topic documents: what the studies of section 2.1 share [li, 2.1.5.1].

The documents are LDA with T = 10 topics of v = 10 words, 100 to 150 words, Dirichlet 0.1, a corpus
of 10,000 drawn once; masks are drawn anew at every step. The network is f(X) = W^E' W^V W^E X A + b
with one head, no residual, no norm, no positions, evaluated on word counts (`models.bags`).

Tokens: words 0..Tv-1, the mask Tv and, if wanted, a start token Tv+1 at the head of every document.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.masking import corrupt
from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng
from triptych.models.bags import BagLM, bag_attention, count_tokens, only_attention
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.topics import LDA
from triptych.studies.study import Settings
from triptych.training.corpus import Corpus
from triptych.training.loop import History, Recipe, fit
from triptych.training.objectives import LossName, Objective, Prediction, loss

Optimiser = Literal["sgd", "adam"]
LEARNT = 0.8  # of the way from a uniform guess to the best run's loss, or a run has failed


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


@dataclass(frozen=True)
class TopicSizes(Settings):
    """What every study of trained topic networks can be given: the documents' sizes."""

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
    steps: int = 5000
    batch: int = 40


def parameters(documents: Documents, training: Training) -> dict[str, Any]:
    """Both as one flat table of JSON values, for the parameters of a unit."""
    return dataclasses.asdict(documents) | dataclasses.asdict(training)


def from_parameters(values: Mapping[str, Any]) -> tuple[Documents, Training]:
    """What `parameters` was made from; other names are left out."""
    of_documents, of_training = (
        {field.name: values[field.name] for field in dataclasses.fields(kind)}
        for kind in (Documents, Training)
    )
    return Documents(**of_documents), Training(**of_training)


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
        tied=training.embedding,
        residual=False,
        norm="none",
        final_norm=False,
        output_projection=False,
    )
    net = Transformer(shape, seed=seed, init_scale=training.init_scale)
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


@dataclass(frozen=True, eq=False)
class UniformBagLM:
    """`BagLM` of a network with W^K = W^Q = 0: its answer is the same at every question.

    One row of logits per document in place of one per question.
    """

    net: Transformer
    length: int

    def token_logits(
        self, seen: Int[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch queries vocab"]:
        counts = count_tokens(seen[:, : self.length], self.net.shape.vocab_size)
        frequency = counts / counts.sum(1, keepdim=True)
        assert self.net.embedding is not None
        mixed = only_attention(self.net).value(frequency @ self.net.embedding.weight)
        return self.net.read_out(mixed)[:, None].expand(-1, seen.shape[1] - self.length, -1)


def _reader(net: Transformer, documents: Documents, training: Training) -> BagLM | UniformBagLM:
    length = documents.length + training.start
    return BagLM(net, length) if training.attention else UniformBagLM(net, length)


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
    recipe = Recipe(
        steps=training.steps,
        batch=training.batch,
        optimiser=training.optimiser,
        learning_rate=training.learning_rate,
        l2=training.l2,
        loss=training.loss,
    )
    if watch is not None:
        watch(0, net)
    history = fit(
        _reader(net, documents, training),
        corpus.sample,
        masked_words(documents, training),
        recipe,
        TorchRng(seed + 1_000_003),
        report=None if watch is None else lambda step, value, gap: watch(step, net),
    )
    return net, history


# ------------------------------------------------------------------ what to look at


def value_matrix(net: Transformer) -> Float[Tensor, "V V"]:
    """W^V: rows are predictions, columns what is attended to."""
    return only_attention(net).value.weight.detach()


def embedding_products(net: Transformer) -> Float[Tensor, "V V"]:
    """E = W^E' W^E: the dot product of every two words' embeddings."""
    assert net.embedding is not None
    weight = net.embedding.weight.detach()
    return weight @ weight.T


def norms(net: Transformer) -> dict[str, float]:
    """Frobenius norms of W^K, W^Q and W^V."""
    attention = only_attention(net)
    return {
        name: float(linear.weight.detach().norm())
        for name, linear in (
            ("key", attention.key),
            ("query", attention.query),
            ("value", attention.value),
        )
    }


def held_out(documents: Documents, training: Training, seed: int, count: int = 2000) -> Prediction:
    """Fresh documents, corrupted; the same for every network that is asked about."""
    rng = TorchRng(seed)
    tokens = documents.lda.sample(count, rng)
    return masked_words(documents, training)(tokens, rng)


def guess(documents: Documents, training: Training) -> float:
    """The loss of the uniform guess on words. Worked value: log 100 nats, or 1 - 1/100 squared."""
    words = documents.mask_token
    return math.log(words) if training.loss == "cross_entropy" else 1 - 1 / words


def has_learnt(row: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> bool:
    """Has its loss come LEARNT of the way from a guess to the best of the others?

    Worked value: a guess costs 4.6 nats, the best run 3.1; then 3.4 is the most.
    """
    best = min(other["held_out"] for other in others)
    return row["guess"] - row["held_out"] >= LEARNT * (row["guess"] - best)


def held_out_loss(
    net: Transformer, documents: Documents, training: Training, seed: int, count: int = 2000
) -> float:
    """The training loss, without its L2 term, on fresh documents."""
    prediction = held_out(documents, training, seed, count)
    with torch.no_grad():
        logits = _reader(net, documents, training).token_logits(prediction.seen)
        return float(loss(logits, prediction, training.loss))


def exact_loss(documents: Documents, name: LossName, seed: int, count: int = 2000) -> float:
    """The least possible loss on the documents of `held_out_loss`: that of the exact conditional.

    Every selected word must be masked: a word that was kept or replaced would tell more than the
    conditional given the shown words knows. That a masked token is a word, and not after the end,
    is known to the network, and so it is here.
    """
    if documents.p_c or documents.p_r:
        raise ValueError(
            f"the exact conditional is known for p_c = p_r = 0; given p_c = {documents.p_c}, "
            f"p_r = {documents.p_r}"
        )
    prediction = held_out(documents, Training(), seed, count)
    document = prediction.seen[:, : documents.length]
    hidden = document == documents.mask_token
    tokens = document.masked_fill(hidden, 0)
    tokens = tokens.masked_fill(document == -1, documents.lda.end_token)
    law = documents.lda.masked_log_probs(tokens, hidden)
    first = hidden.to(torch.uint8).argmax(1)  # hidden words of a document all have the same law
    words = law[torch.arange(count), first, :-1]
    words = words.masked_fill(~hidden.any(1, keepdim=True), 0.0).log_softmax(-1)  # not asked
    words = torch.nn.functional.pad(words, (0, 1), value=-torch.inf)  # the mask is no answer
    answer = words if name == "cross_entropy" else words.exp()
    return float(loss(answer[:, None].expand(-1, prediction.tokens.shape[1], -1), prediction, name))


@dataclass(frozen=True)
class AttentionMeans:
    """Mean attention per ordered pair of positions, by kind of pair.

    special: from a word to a start token, a class of its own; 0 pairs without one.
    """

    same_word: float
    same_topic: float
    different_topic: float
    special: float


def attention_means(
    net: Transformer,
    documents: Documents,
    *,
    start: bool,
    seed: int,
    count: int = 500,
    cut: int = 100,
) -> AttentionMeans:
    """Mean weight over ordered pairs of words (a position and itself is the same word), pooled.

    As in the source: unmasked documents cut to `cut` tokens, a start token among them, weights not
    rescaled because every document has the same length.
    """
    words = documents.lda.sample(count, TorchRng(seed))[:, : cut - start]
    tokens = words
    if start:
        tokens = torch.cat([torch.full_like(words[:, :1], documents.start_token), words], dim=1)
    topic = documents.topic_of_words()
    sums = torch.zeros(4, dtype=torch.float64)
    pairs = torch.zeros(4, dtype=torch.float64)
    with torch.no_grad():
        counts = count_tokens(tokens, net.shape.vocab_size)
        mass = bag_attention(net, counts, words)[:, 0]  # document, word position, token
    per_copy = (mass / counts[:, None].clamp(min=1)).gather(
        2, tokens[:, None].expand(-1, words.shape[1], -1)
    )
    is_start = tokens == documents.start_token
    key_topic = topic[tokens.clamp(max=documents.mask_token - 1)]
    same_word = words[:, :, None] == tokens[:, None]
    same_topic = (topic[words][:, :, None] == key_topic[:, None]) & ~same_word
    kinds = (
        same_word,
        same_topic & ~is_start[:, None],
        ~same_word & ~same_topic & ~is_start[:, None],
        is_start[:, None].expand_as(same_word),
    )
    for k, kind in enumerate(kinds):
        sums[k], pairs[k] = per_copy[kind].double().sum(), kind.sum()
    means = (sums / pairs).tolist()
    return AttentionMeans(
        *(m if n else math.nan for m, n in zip(means, pairs.tolist(), strict=True))
    )
