"""Language models made of a transformer: they answer what an exact structure answers.

    CausalLM   p(x_i = · | x_<i)       from inputs  <start> x_1 .. x_{i-1}
    MaskedLM   p(x_i = · | shown)      from inputs with <mask> at the hidden positions

The network's vocabulary is one larger than the language's: its last id is the special token, and
the laws are softmaxes over the other outputs.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.display import counted
from triptych.core.logspace import with_point_masses
from triptych.core.validation import (
    Hidden,
    Prefix,
    Tokens,
    UserError,
    as_asked,
    as_masked,
    as_prefix,
    as_tokens,
    check_callable,
)
from triptych.models.transformer import Transformer

FirstLayer = Callable[[Int[Tensor, "batch t"]], Float[Tensor, "batch t width"]]


class ScoredLogits(NamedTuple):
    """Logits at some positions, in reading order.

    answers    every answer that is needed, once
    place      which of them each position has; None: the i-th position has the i-th answer
    """

    answers: Float[Tensor, "answers vocab"]
    place: Int[Tensor, " scored"] | None = None


@dataclass(frozen=True, eq=False)
class CausalLM:
    """An autoregressive model on sequences of up to `length` tokens.

    `length` tokens fit: the start token takes the first position, and no token reads the last one.
    A network with embedding "given" needs a `first_layer` that maps token ids, the start token
    among them, to vectors: the minimal first layer of [li, 2.2], or any other.
    """

    net: Transformer
    first_layer: FirstLayer | None = None

    def __post_init__(self) -> None:
        _check_net(self.net, causal=True, first_layer=self.first_layer)

    def __repr__(self) -> str:
        symbols = counted(self.vocab_size, "symbol")
        return f"CausalLM({symbols}, length {self.length}, {_size(self.net)})"

    @property
    def vocab_size(self) -> int:
        return self.net.shape.vocab_size - 1

    @property
    def start_token(self) -> int:
        return self.vocab_size

    @property
    def length(self) -> int:
        return self.net.shape.length

    def token_logits(
        self, tokens: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        """Logits of the i-th token given the earlier ones, at every i; differentiable."""
        return self._run(self._started(tokens)[:, :-1])[..., : self.vocab_size]

    @torch.no_grad()
    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.net.device)
        return self.log_probs_of(self._run(self._started(prefix))[:, -1])

    @torch.no_grad()
    def every_next_token_log_probs(self, tokens: Tokens) -> Float[Tensor, "batch length vocab"]:
        """log p(x_i = · | x_<i) for every i, in one pass."""
        tokens = as_tokens(tokens, self.vocab_size, device=self.net.device)
        return self.log_probs_of(self.token_logits(tokens))

    def log_prob(self, tokens: Tokens) -> Float[Tensor, " batch"]:
        """log p(x) = Σ_i log p(x_i | x_<i), in one pass; a shorter x is taken as a prefix."""
        tokens = as_tokens(tokens, self.vocab_size, device=self.net.device)
        if tokens.shape[1] == 0:
            return torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
        log_probs = self.every_next_token_log_probs(tokens)
        return log_probs.gather(-1, tokens[..., None])[..., 0].sum(-1)

    def log_probs_of(
        self, logits: Float[Tensor, "*rows outputs"]
    ) -> Float[Tensor, "*rows {self.vocab_size}"]:
        """The law on tokens that the network's logits mean: the special token is left out."""
        return _log_probs(logits, self.vocab_size)

    def _run(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch t outputs"]:
        if self.first_layer is None:
            return self.net(tokens)
        return self.net(vectors=self.first_layer(tokens))

    def _started(self, tokens: Int[Tensor, "batch t"]) -> Int[Tensor, "batch t+1"]:
        return torch.nn.functional.pad(tokens, (1, 0), value=self.start_token)


@dataclass(frozen=True, eq=False)
class MaskedLM:
    """A masked model on sequences of up to `length` tokens."""

    net: Transformer

    def __post_init__(self) -> None:
        _check_net(self.net, causal=False, first_layer=None)

    def __repr__(self) -> str:
        symbols = counted(self.vocab_size, "symbol")
        return f"MaskedLM({symbols}, length {self.length}, {_size(self.net)})"

    @property
    def vocab_size(self) -> int:
        return self.net.shape.vocab_size - 1

    @property
    def mask_token(self) -> int:
        return self.vocab_size

    @property
    def length(self) -> int:
        return self.net.shape.length

    def token_logits(
        self, seen: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        """Logits of every token given `seen`, which may hold `mask_token`; differentiable."""
        return self.net(seen)[..., : self.vocab_size]

    def scored_logits(
        self, seen: Int[Tensor, "batch length"], scored: Bool[Tensor, "batch length"]
    ) -> ScoredLogits:
        """The `token_logits` where scored, to rounding, for less."""
        return ScoredLogits(self.net.logits_where(seen, scored)[..., : self.vocab_size])

    def placed_logits(
        self, seen: Int[Tensor, "batch length"], at: Int[Tensor, "batch places"]
    ) -> Float[Tensor, "batch places vocab"]:
        """The `token_logits` at some positions of every row, to rounding, for less."""
        return self.net.logits_at(seen, at)[..., : self.vocab_size]

    def embed(self, tokens: Prefix, hidden: Hidden | None = None) -> Float[Tensor, "batch t width"]:
        """The embedding of each token, without its position; the mask token's where hidden."""
        if hidden is None:
            return self.net.embed(as_tokens(tokens, self.vocab_size, device=self.net.device))
        tokens, hidden = as_masked(tokens, hidden, self.vocab_size, device=self.net.device)
        return self.net.embed(tokens.masked_fill(hidden, self.mask_token))

    @property
    def soft_range(self) -> tuple[float, float]:
        """A network reads any vector."""
        return (-math.inf, math.inf)

    def soft_masked_probs(
        self, vectors: Float[Tensor, "batch t width"], *, at: int | None = None
    ) -> Float[Tensor, "batch positions vocab"]:
        """Softmax over the words, for vectors instead of tokens; `at` one position alone."""
        logits = self.net(vectors=vectors, at=at)[..., : self.vocab_size]
        return logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))

    @torch.no_grad()
    def masked_log_probs(
        self, tokens: Tokens, hidden: Hidden
    ) -> Float[Tensor, "batch length vocab"]:
        tokens, hidden = as_masked(tokens, hidden, self.vocab_size, device=self.net.device)
        seen = tokens.masked_fill(hidden, self.mask_token)
        log_probs = _log_probs(self.token_logits(seen), self.vocab_size)
        return with_point_masses(log_probs, tokens, hidden)

    @torch.no_grad()
    def asked_log_probs(
        self, tokens: Tokens, hidden: Hidden, asked: Hidden
    ) -> Float[Tensor, "asked vocab"]:
        """The `masked_log_probs` at the asked positions, row by row from the left, for less."""
        tokens, hidden = as_masked(tokens, hidden, self.vocab_size, device=self.net.device)
        asked = as_asked(asked, tokens)
        seen = tokens.masked_fill(hidden, self.mask_token)
        log_probs = _log_probs(self.scored_logits(seen, asked).answers, self.vocab_size)
        return with_point_masses(log_probs, tokens[asked], hidden[asked])


LanguageModel = TypeVar("LanguageModel", bound=CausalLM | MaskedLM)


@renamed(model="lm")
def in_precision(lm: LanguageModel, dtype: torch.dtype) -> LanguageModel:
    """A copy of the model whose weights and states have this type."""
    return replace(lm, net=copy.deepcopy(lm.net).to(dtype))


def _log_probs(logits: Float[Tensor, "*rows outputs"], vocab_size: int) -> Tensor:
    return logits[..., :vocab_size].double().log_softmax(-1)


def _size(net: Transformer) -> str:
    layers, size = counted(net.shape.layers, "layer"), sum(p.numel() for p in net.parameters())
    return f"{layers} of width {net.shape.width}, {size:,} parameters"


def _check_net(net: Transformer, *, causal: bool, first_layer: FirstLayer | None) -> None:
    kind = "causal" if causal else "masked"
    if not isinstance(net, Transformer):
        raise UserError(f"net is a {type(net).__name__}; it must be a Transformer", parameter="net")
    if first_layer is not None:
        check_callable("first_layer", first_layer, "first_layer(tokens)")
    if net.shape.causal != causal:
        raise UserError(
            f"a {kind} language model needs a network with causal={causal}; "
            f"this one has causal={net.shape.causal}",
            parameter="causal",
        )
    if net.shape.embedding == "given" and first_layer is None:
        raise UserError(
            f"a {kind} language model reads tokens; this network has embedding='given'"
            + (": pass a first_layer that maps tokens to vectors" if causal else "")
        )
    if net.shape.embedding != "given" and first_layer is not None:
        raise UserError(
            "a first_layer needs a network with embedding='given'", parameter="first_layer"
        )
    if net.shape.vocab_size < 2:
        raise UserError(
            f"the network's vocabulary has {net.shape.vocab_size} id; a {kind} language model "
            "needs at least one token besides the special one, which is the last id",
            parameter="net",
        )
