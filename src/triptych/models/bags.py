"""A one-layer network without positions, evaluated on word counts: the same function, faster.

Without positions, what attention does depends on the tokens alone: a query token q puts on all
copies of the token w together

    A(w | q) = n_w exp(s_qw) / Σ_w' n_w' exp(s_qw'),       n_w copies of w in the document,

so one table of V x V scores serves every document, and only the tokens that are asked about are
computed, once each: a document of 125 words has 19 questions, of which 15 show the mask.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from triptych.core.display import counted
from triptych.core.validation import UserError
from triptych.models.language_models import ScoredLogits
from triptych.models.layers import Attention, Block
from triptych.models.transformer import Transformer


@dataclass(frozen=True, eq=False)
class BagLM:
    """Reads a document and answers at some of its tokens: `Trainable` by `training.loop.fit`.

    In `seen`, the first `length` columns are the document, -1 where there is nothing, and each
    further column is a token of it that is asked about (-1 for no question).
    """

    net: Transformer
    length: int

    def __post_init__(self) -> None:
        _check(self.net)

    def __repr__(self) -> str:
        return f"BagLM({counted(self.net.shape.vocab_size, 'symbol')}, length {self.length})"

    def token_logits(
        self, seen: Int[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch queries vocab"]:
        document, queries = seen[:, : self.length], seen[:, self.length :]
        return bag_logits(
            self.net, count_tokens(document, self.net.shape.vocab_size), queries.clamp(min=0)
        )

    def scored_logits(
        self, seen: Int[Tensor, "batch columns"], scored: Bool[Tensor, "batch queries"]
    ) -> ScoredLogits:
        """The `token_logits` where scored; a token that a document asks about twice has one."""
        counts, document, queries = _questions(self.net, self.length, seen, scored)
        if self._input_length is None:
            return _answered_once(self.net, counts, document, queries)
        parts = [parameter[None] for parameter in self._parts]
        scale = only_attention(self.net).scale
        answers, place = _one_hot_answers(
            parts, self._input_length, scale, counts, document, queries
        )
        return ScoredLogits(answers[0], place)

    @functools.cached_property
    def _input_length(self) -> Float[Tensor, ""] | None:
        """c of a network with inputs c · I and output matrix I, both frozen; None of others."""
        net = self.net
        assert net.embedding is not None
        frozen = not (net.embedding.weight.requires_grad or net.output.weight.requires_grad)
        return _inputs(net)[0, 0] if frozen and _is_one_hot(net) else None

    @functools.cached_property
    def _parts(self) -> list[nn.Parameter]:
        """Those of `_STACKED`: to look them up by name takes a thirtieth of a step."""
        return [self.net.get_parameter(name) for name in _STACKED]


@dataclass(frozen=True, eq=False)
class UniformBagLM:
    """`BagLM` of a network with W^K = W^Q = 0: its answer is the same at every question.

    One row of logits per document instead of one per question.
    """

    net: Transformer
    length: int

    def __repr__(self) -> str:
        return f"UniformBagLM({counted(self.net.shape.vocab_size, 'symbol')}, length {self.length})"

    def token_logits(
        self, seen: Int[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch queries vocab"]:
        return self._answers(seen)[:, None].expand(-1, seen.shape[1] - self.length, -1)

    def scored_logits(
        self, seen: Int[Tensor, "batch columns"], scored: Bool[Tensor, "batch queries"]
    ) -> ScoredLogits:
        """The `token_logits` where scored: one answer for each document."""
        return ScoredLogits(self._answers(seen), scored.nonzero()[:, 0])

    def _answers(self, seen: Int[Tensor, "batch columns"]) -> Float[Tensor, "batch vocab"]:
        counts = count_tokens(seen[:, : self.length], self.net.shape.vocab_size)
        frequency = counts / counts.sum(1, keepdim=True)
        mixed = only_attention(self.net).value(frequency @ token_vectors(self.net))
        return self.net.read_out(mixed)


class StackedBags(nn.Module):
    """Several networks with one-hot inputs on the same documents, as one computation.

    Each is what `BagLM` reads, with one head; its inputs are c · I, and its output matrix is I. So
    W^Q of an input is a column of W^Q, and no product is needed. Only W^Q, W^K, W^V and the biases
    are parameters here, one slice for each network; `put_back` writes them into the networks.
    """

    def __init__(self, nets: Sequence[Transformer], length: int) -> None:
        super().__init__()
        if not nets or any(net.shape != nets[0].shape for net in nets):
            raise UserError("networks that are stacked must have one shape, and be at least one")
        for net in nets:
            _check(net)
            _check_one_hot(net)
        self.nets, self.length = list(nets), length  # a list: the networks are no submodules
        self.scale = only_attention(nets[0]).scale
        self.input_length = torch.stack([_inputs(net)[0, 0] for net in nets])[:, None, None]
        for name in _STACKED:
            values = torch.stack([net.get_parameter(name).detach() for net in nets])
            self.register_parameter(name.replace(".", "_"), nn.Parameter(values))

    def scored_logits(
        self, seen: Int[Tensor, "batch columns"], scored: Bool[Tensor, "batch queries"]
    ) -> tuple[Float[Tensor, "members answers vocab"], Int[Tensor, " scored"]]:
        """The answers that are needed, of every network, and which of them a question has."""
        questions = _questions(self.nets[0], self.length, seen, scored)
        return _one_hot_answers(list(self.parameters()), self.input_length, self.scale, *questions)

    def norms(self, part: str) -> Float[Tensor, " members"]:
        """Frobenius norm of W^Q, W^K or W^V of every network: "query", "key" or "value"."""
        weight = self.get_parameter(f"blocks_0_attention_{part}_weight")
        return weight.detach().flatten(1).norm(dim=1)

    @torch.no_grad()
    def put_back(self) -> None:
        """Write the parameters into the networks."""
        for name in _STACKED:
            stacked = self.get_parameter(name.replace(".", "_"))
            for net, value in zip(self.nets, stacked, strict=True):
                net.get_parameter(name).copy_(value)


_STACKED = (
    *(f"blocks.0.attention.{p}.{w}" for p in ("query", "key", "value") for w in ("weight", "bias")),
    "output.bias",
)


def _one_hot_answers(
    parts: Sequence[Float[Tensor, "members ..."]],
    input_length: Float[Tensor, "..."],
    scale: float,
    counts: Float[Tensor, "batch vocab"],
    document: Int[Tensor, " questions"],
    queries: Int[Tensor, " questions"],
) -> tuple[Float[Tensor, "members answers vocab"], Int[Tensor, " questions"]]:
    """The answers that are needed, of networks with inputs c e_w; `parts` as in `_STACKED`.

    W c e_w is c times a column of W: one row for each token, without a product.
    """
    *linear, output_bias = parts
    query, key, value = (
        input_length * weight.transpose(1, 2) + bias[:, None]
        for weight, bias in zip(linear[::2], linear[1::2], strict=True)
    )
    vocab = counts.shape[1]
    asked, place = (vocab * document + queries).unique(return_inverse=True)
    scores = scale * query @ key.transpose(1, 2)
    log_counts = counts.log()[asked // vocab]
    pattern = (scores.index_select(1, asked % vocab) + log_counts).softmax(-1)
    return pattern @ value + output_bias[:, None], place


def _questions(
    net: Transformer,
    length: int,
    seen: Int[Tensor, "batch columns"],
    scored: Bool[Tensor, "batch queries"],
) -> tuple[Float[Tensor, "batch vocab"], Int[Tensor, " questions"], Int[Tensor, " questions"]]:
    """Counts of the documents; and of every scored question, its document and its token."""
    counts = count_tokens(seen[:, :length], net.shape.vocab_size)
    document, question = scored.nonzero(as_tuple=True)
    return counts, document, seen[:, length:][document, question]


def count_tokens(
    document: Int[Tensor, "batch t"], vocab_size: int
) -> Float[Tensor, "batch {vocab_size}"]:
    """n_w of every token; -1 is not counted. Worked value: (2, 0, 2, -1) of 3 tokens: (1, 0, 2)."""
    counts = torch.zeros((len(document), vocab_size + 1), device=document.device)
    ones = torch.ones_like(document, dtype=counts.dtype)
    return counts.scatter_add(1, document + 1, ones)[:, 1:]


def bag_attention(
    net: Transformer, counts: Float[Tensor, "batch vocab"], queries: Int[Tensor, "batch queries"]
) -> Float[Tensor, "batch heads queries vocab"]:
    """A(w | q): the attention that goes to all copies of each token together.

    Worked value: with W^Q = W^K = 0 it is n_w / N, whatever the query.
    """
    scores = _scores(only_attention(net), token_vectors(net))
    with_counts = scores[:, queries].transpose(0, 1) + counts.to(scores.dtype).log()[:, None, None]
    return with_counts.softmax(-1)


def bag_logits(
    net: Transformer, counts: Float[Tensor, "batch vocab"], queries: Int[Tensor, "batch queries"]
) -> Float[Tensor, "batch queries vocab"]:
    """The logits that the network gives at any position that shows the token q.

    Most questions about a document show the same token, the mask: each is answered once.
    """
    _check(net)
    document = torch.arange(len(queries), device=queries.device)[:, None].expand_as(queries)
    answers, place = _answered_once(net, counts, document.flatten(), queries.flatten())
    assert place is not None
    return answers.index_select(0, place).unflatten(0, queries.shape)


def _answered_once(
    net: Transformer,
    counts: Float[Tensor, "batch vocab"],
    document: Int[Tensor, " questions"],
    queries: Int[Tensor, " questions"],
) -> ScoredLogits:
    """The logits of every document and token that some question has, each of them once."""
    attention, vectors, vocab = only_attention(net), token_vectors(net), net.shape.vocab_size
    asked, place = (vocab * document + queries).unique(return_inverse=True)
    document, token = asked // vocab, asked % vocab
    scores = _scores(attention, vectors)
    log_counts = counts.to(scores.dtype).log()[document]
    pattern = (scores.index_select(1, token) + log_counts).softmax(-1)  # heads asked vocab
    value = attention.value(vectors).unflatten(-1, (attention.heads, -1)).transpose(0, 1)
    return ScoredLogits(net.read_out(attention.join((pattern @ value)[None]))[0], place)


def _scores(
    attention: Attention, vectors: Float[Tensor, "vocab width"]
) -> Float[Tensor, "heads vocab vocab"]:
    """Scores of every query token with every key token."""
    query = attention.query(vectors).unflatten(-1, (attention.heads, -1)).transpose(0, 1)
    key = attention.key(vectors).unflatten(-1, (attention.heads, -1)).transpose(0, 1)
    return attention.scale * query @ key.transpose(-1, -2)


def only_attention(net: Transformer) -> Attention:
    """The attention of a network of one layer."""
    block = net.blocks[0]
    assert isinstance(block, Block)
    return block.attention


def token_vectors(net: Transformer) -> Float[Tensor, "vocab width"]:
    """What enters the layer for each token; without an embedding of its own a network has none."""
    tokens = torch.arange(net.shape.vocab_size, device=net.output.weight.device)
    return net.embed(tokens[None])[0]


def _inputs(net: Transformer) -> Float[Tensor, "vocab width"]:
    assert net.embedding is not None
    return net.embedding.weight.detach()


def _is_one_hot(net: Transformer) -> bool:
    """Its inputs are c · I, its output matrix is I, it has biases, one head and no W^O."""
    inputs, outputs, shape = _inputs(net), net.output.weight.detach(), net.shape
    one = torch.eye(shape.vocab_size, dtype=inputs.dtype, device=inputs.device)
    square = inputs.shape == one.shape and type(net) is Transformer
    plain = shape.bias and shape.heads == 1 and not shape.output_projection
    same = square and torch.equal(inputs, inputs[0, 0] * one) and torch.equal(outputs, one)
    return same and plain and net.final_norm is None and net.output_layer is None


def _check_one_hot(net: Transformer) -> None:
    if not _is_one_hot(net):
        raise UserError(
            "networks are stacked when their inputs are multiples of one-hot vectors, their output "
            "matrix is the identity, and they have biases, one head and no output projection"
        )


def _check(net: Transformer) -> None:
    shape = net.shape
    wrong = [
        text
        for text, bad in (
            (f"layers = {shape.layers}, not 1", shape.layers != 1),
            (f"positions = {shape.positions!r}, not 'none'", shape.positions != "none"),
            ("causal attention", shape.causal),
            ("a residual", shape.residual),
            ("a feed-forward", shape.feedforward_width != 0),
            (f"norm = {shape.norm!r}, not 'none'", shape.norm != "none"),
            ("a norm of its inputs", shape.input_norm),
            ("no embedding of its own", net.embedding is None),
        )
        if bad
    ]
    if wrong:
        raise UserError(
            "counts stand for a document only in one layer of plain attention; this network has "
            + "; ".join(wrong)
        )
