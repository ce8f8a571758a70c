"""Values learnt from the model's own completions: Monte-Carlo rollouts, and a fit to their means.

    V(x_≤t) ≈ (1/n) Σ_k τ(X_k),   X_1, …, X_n ~ p(· | x_≤t)

`rollout_values` has these means; they are unbiased, and a network fitted to them with the
cross-entropy is pulled towards V itself, as the loss is linear in its target. On the states of a
network the fit is `Probe.fit(states, means)`; `TokenValue` fits the tokens themselves, for models
that have no states.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.decoders import PAD, is_end
from triptych.core.display import counted
from triptych.core.protocols import Decoder, Rng, Value
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    EndToken,
    EndTokens,
    Number,
    Numbers,
    Prefix,
    UserError,
    as_end_token,
    as_integers,
    as_size,
    as_tokens,
    check_callable,
    check_can,
    set_fields,
)
from triptych.training.step import Recipe
from triptych.verifiers.exact import check_laws, values_of
from triptych.verifiers.probe import RECIPE, Probe, as_labels

MAX_FEATURES = 2**30  # of all prefixes that are encoded together
_AT_ONCE = 4096  # completions that are grown together


def rollout_values(
    decoder: Decoder,
    outcome: Value,
    *,
    rollouts: Count,
    length: Count,
    end_token: EndTokens | None = None,
    transform: Callable[[Tensor], Tensor] | None = None,
    rng: RngLike,
) -> Float[Tensor, " batch"]:
    """The mean outcome of `rollouts` completions of each row; the decoder itself stays as it is.

    A row is complete when it has `length` tokens or has drawn an end token; a transform of the
    next-token laws (temperature, nucleus) makes the completions those of the transformed model.

    Worked value: fair bits, τ = 1 without a 1. The rows 0 and 1 of two bits have means near ½ and
    exactly 0.
    """
    if not hasattr(decoder, "next_log_probs"):
        raise UserError(
            f"decoder is a {type(decoder).__name__}; it must be a batch of growing prefixes: "
            "RecomputingDecoder(model, batch) makes one of any model",
            parameter="decoder",
        )
    check_can("outcome", outcome, "log_value")
    if transform is not None:
        check_callable("transform", transform, "transform(log_probs)")
    rollouts, length = as_size("rollouts", rollouts), as_size("length", length, at_least=0)
    ends = as_end_token(end_token, decoder.vocab_size)
    start = decoder.lengths
    rng = as_rng(rng, start.device)
    batch = len(start)
    if batch == 0:
        raise UserError("the decoder has no rows; it must have at least one", parameter="decoder")
    if length < int(start.max()):
        raise UserError(
            f"length is {length}, and a row has {int(start.max())} tokens already",
            parameter="length",
        )
    total = torch.zeros(batch, dtype=torch.float64, device=start.device)
    for first in range(0, batch * rollouts, _AT_ONCE):
        last = min(first + _AT_ONCE, batch * rollouts)
        rows = torch.arange(first, last, device=start.device) // rollouts
        grown = decoder.fork(rows)
        _complete(grown, length, ends, transform, rng)
        total.index_add_(0, rows, _outcomes(grown, outcome))
    return total / rollouts


def _complete(
    decoder: Decoder,
    length: int,
    end_token: EndToken | None,
    transform: Callable[[Tensor], Tensor] | None,
    rng: Rng,
) -> None:
    """Draw token after token until every row is complete."""
    going = torch.nonzero(decoder.lengths < length)[:, 0]
    while len(going):
        shape = (len(going), decoder.vocab_size)
        log_probs = decoder.next_log_probs(going)

        def at(row: int, going: Int[Tensor, " rows"] = going) -> str:
            place = int(going[row])
            return f"after {decoder.tokens[place, : decoder.lengths[place]].tolist()}"

        check_laws(log_probs, shape, type(getattr(decoder, "lm", decoder)).__name__, at)
        if transform is not None:
            log_probs = transform(log_probs)
            check_laws(log_probs, shape, "the transform", at)
        drawn = rng.categorical(log_probs)
        decoder.append(drawn, going)
        more = decoder.lengths[going] < length
        going = going[more if end_token is None else more & ~is_end(drawn, end_token)]


def _outcomes(decoder: Decoder, outcome: Value) -> Float[Tensor, " batch"]:
    """τ of each row; rows of one length share a question."""
    tokens, lengths = decoder.tokens, decoder.lengths
    values = torch.empty(len(lengths), dtype=torch.float64, device=lengths.device)
    for t in lengths.unique().tolist():
        same = lengths == t
        values[same] = values_of(outcome, tokens[same, :t]).exp()
    if (bad := torch.isinf(values)).any():
        row = int(bad.nonzero()[0])
        raise UserError(
            f"{type(outcome).__name__} says inf of {tokens[row, : lengths[row]].tolist()}; an "
            "outcome is a finite number, at least 0",
            parameter="outcome",
        )
    return values


@dataclass(frozen=True, eq=False, repr=False)
class TokenValue:
    """A value on prefixes of at most `length` tokens, by a probe on their one-hot encoding.

    Position i has vocab_size + 1 features: which token stands there, or none yet.
    """

    probe: Probe
    vocab_size: int
    length: int

    def __post_init__(self) -> None:
        if not isinstance(self.probe, Probe):
            raise UserError(
                f"probe is a {type(self.probe).__name__}; it must be a Probe", parameter="probe"
            )
        vocab, length = as_size("vocab_size", self.vocab_size), as_size("length", self.length)
        set_fields(self, vocab_size=vocab, length=length)
        wanted = length * (vocab + 1)
        if self.probe.width != wanted:
            raise UserError(
                f"the probe reads {self.probe.width} features; {self.length} positions of "
                f"{self.vocab_size} tokens and none have {wanted}",
                parameter="probe",
            )

    def __repr__(self) -> str:
        return f"TokenValue({counted(self.vocab_size, 'symbol')}, length {self.length})"

    @classmethod
    def fit(
        cls,
        prefixes: Prefix,
        targets: Numbers,
        *,
        vocab_size: Count,
        length: Count,
        depth: Count = 2,
        width: Count = 256,
        recipe: Recipe = RECIPE,
        seed: Count = 0,
        floor: Number = 0.0,
    ) -> "TokenValue":
        """Fit probabilities of success; shorter prefixes end in -1, as the tokens of a decoder."""
        vocab_size, length = as_size("vocab_size", vocab_size), as_size("length", length)
        encoded = one_hot_positions(prefixes, vocab_size, length)
        labels = as_labels(targets, "targets")
        if labels.shape != (len(encoded),) or len(encoded) == 0:
            raise UserError(
                f"{len(encoded)} prefixes and targets of shape {tuple(labels.shape)}; give one "
                "target for every prefix"
            )
        probe = Probe.fit(
            encoded,
            labels,
            depth=depth,
            width=width,
            recipe=recipe,
            seed=seed,
            floor=floor,
        )
        return cls(probe, vocab_size, length)

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        prefix = as_tokens(prefix, self.vocab_size, name="prefix")
        return self.probe.log_value_of(one_hot_positions(prefix, self.vocab_size, self.length))


def one_hot_positions(
    prefixes: Prefix, vocab_size: Count, length: Count
) -> Float[Tensor, "batch features"]:
    """One-hot vectors of the tokens at each of `length` positions, the last for none (-1) yet.

    Worked value: the prefix (1) of two bits is 010 001.
    """
    vocab_size, length = as_size("vocab_size", vocab_size), as_size("length", length)
    prefixes = as_integers("prefixes", prefixes, dimensions=2)
    none = prefixes == PAD
    as_tokens(prefixes, vocab_size, hidden=none, name="prefixes")
    if len(prefixes) * length * (vocab_size + 1) > MAX_FEATURES:
        raise UserError(
            f"the encoding of {len(prefixes)} prefixes would have {length} x {vocab_size + 1} "
            f"features each; at most {MAX_FEATURES} are made at once",
            parameter="prefixes",
        )
    if prefixes.shape[1] > length:
        raise UserError(f"the prefix has {prefixes.shape[1]} tokens; these values know {length}")
    if (none[:, :-1] & ~none[:, 1:]).any():
        raise UserError("-1 pads the end of a prefix; one stands before a token")
    symbols = prefixes.masked_fill(none, vocab_size)
    symbols = F.pad(symbols, (0, length - prefixes.shape[1]), value=vocab_size)
    return F.one_hot(symbols.long(), vocab_size + 1).flatten(1).float()
