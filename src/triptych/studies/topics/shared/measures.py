"""What the studies of trained topic networks measure: matrices, norms, losses, attention by kind of
pair."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.bags import bag_attention, count_tokens, only_attention
from triptych.models.transformer import Transformer
from triptych.studies.topics.shared.networks import Documents, Training, masked_words, reader
from triptych.training.objectives import LossName, Prediction, loss

LEARNT = 0.8  # of the way from a uniform guess to the best run's loss, or a run has failed


def value_matrix(net: Transformer) -> Float[Tensor, "V V"]:
    """W^V: rows are predictions, columns what is attended to."""
    return only_attention(net).value.weight.detach()


def embedding_products(net: Transformer) -> Float[Tensor, "V V"]:
    """E = W^E' W^E: the dot product of every two words' embeddings."""
    assert net.embedding is not None
    weight = net.embedding.weight.detach()
    return weight @ weight.T


class Norms(NamedTuple):
    """Frobenius norms of W^K, W^Q and W^V."""

    key: float
    query: float
    value: float


def norms(net: Transformer) -> Norms:
    attention = only_attention(net)
    linear = (attention.key, attention.query, attention.value)
    return Norms(*(float(each.weight.detach().norm()) for each in linear))


def held_out(documents: Documents, training: Training, seed: int, count: int = 2000) -> Prediction:
    """Fresh documents, corrupted; the same for every network that is asked about."""
    rng = TorchRng(seed)
    tokens = documents.lda.sample(count, rng)
    return masked_words(documents, training)(tokens, rng)


def guess(documents: Documents, training: Training) -> float:
    """The loss of the uniform guess on words. Worked value: log 100 nats, or 1 - 1/100 squared."""
    words = documents.mask_token
    return math.log(words) if training.loss == "cross_entropy" else 1 - 1 / words


def has_learnt(loss: float, guess: float, best: float) -> bool:
    """Has a loss come LEARNT of the way from a guess to the best of all runs?

    Worked value: a guess costs 4.6 nats, the best run 3.1; then 3.4 is the most.
    """
    return guess - loss >= LEARNT * (guess - best)


def held_out_loss(
    net: Transformer, documents: Documents, training: Training, seed: int, count: int = 2000
) -> float:
    """The training loss, without its L2 term, on fresh documents."""
    return _loss_on(net, documents, training, held_out(documents, training, seed, count))


def held_out_meter(
    documents: Documents, training: Training, seed: int, count: int = 2000
) -> Callable[[Transformer], float]:
    """`held_out_loss` of many networks: the documents are drawn once."""
    prediction = held_out(documents, training, seed, count)
    return lambda net: _loss_on(net, documents, training, prediction)


def _loss_on(
    net: Transformer, documents: Documents, training: Training, prediction: Prediction
) -> float:
    with torch.no_grad():
        logits = reader(net, documents, training).token_logits(prediction.seen)
        return float(loss(logits, prediction, training.loss))


def exact_loss(documents: Documents, name: LossName, seed: int, count: int = 2000) -> float:
    """The least possible loss on the documents of `held_out_loss`: that of the exact conditional.

    Every selected word must be masked: a word that was kept or replaced would tell more than the
    conditional given the shown words knows. That a masked token is a word, and not after the end,
    is known to the network, and so it is here.
    """
    if documents.p_c or documents.p_r:
        raise UserError(
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

    special: from a word to a start token, a class of its own; None without one.
    """

    same_word: float
    same_topic: float
    different_topic: float
    special: float | None


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
    return AttentionMeans(means[0], means[1], means[2], means[3] if start else None)
