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

from triptych.core.decoders import PAD
from triptych.core.protocols import Decoder, Rng, Value
from triptych.core.validation import check_count, check_tokens
from triptych.training.loop import Recipe
from triptych.verifiers.probe import RECIPE, Probe

_AT_ONCE = 4096  # completions that are grown together


def rollout_values(
    decoder: Decoder,
    outcome: Value,
    *,
    rollouts: int,
    length: int,
    end_token: int | None = None,
    transform: Callable[[Tensor], Tensor] | None = None,
    rng: Rng,
) -> Float[Tensor, " batch"]:
    """The mean outcome of `rollouts` completions of each row; the decoder itself stays as it is.

    A row is complete when it has `length` tokens or has drawn `end_token`; a transform of the
    next-token laws (temperature, nucleus) makes the completions those of the transformed model.

    Worked value: fair bits, τ = 1 without a 1. The rows 0 and 1 of two bits have means near ½ and
    exactly 0.
    """
    check_count("rollouts", rollouts, at_least=1)
    start = decoder.lengths
    if length < int(start.max()):
        raise ValueError(f"length is {length}, and a row has {int(start.max())} tokens already")
    if end_token is not None and not 0 <= end_token < decoder.vocab_size:
        raise ValueError(f"end_token is {end_token}; tokens are 0 to {decoder.vocab_size - 1}")
    batch = len(start)
    source = torch.arange(batch, device=start.device).repeat_interleave(rollouts)
    total = torch.zeros(batch, dtype=torch.float64, device=start.device)
    for rows in source.split(_AT_ONCE):
        grown = decoder.fork(rows)
        _complete(grown, length, end_token, transform, rng)
        total.index_add_(0, rows, _outcomes(grown, outcome))
    return total / rollouts


def _complete(
    decoder: Decoder,
    length: int,
    end_token: int | None,
    transform: Callable[[Tensor], Tensor] | None,
    rng: Rng,
) -> None:
    """Draw token after token until every row is complete."""
    going = torch.nonzero(decoder.lengths < length)[:, 0]
    while len(going):
        log_probs = decoder.next_log_probs(going)
        drawn = rng.categorical(log_probs if transform is None else transform(log_probs))
        decoder.append(drawn, going)
        more = decoder.lengths[going] < length
        going = going[more if end_token is None else more & (drawn != end_token)]


def _outcomes(decoder: Decoder, outcome: Value) -> Float[Tensor, " batch"]:
    """τ of each row; rows of one length share a question."""
    tokens, lengths = decoder.tokens, decoder.lengths
    values = torch.empty(len(lengths), dtype=torch.float64, device=lengths.device)
    for t in lengths.unique().tolist():
        same = lengths == t
        values[same] = outcome.log_value(tokens[same, :t]).double().exp()
    bad = ~torch.isfinite(values)
    if bad.any():
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"{type(outcome).__name__} says {values[row].item()} of "
            f"{tokens[row, : lengths[row]].tolist()}; an outcome is a finite number, at least 0"
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
        wanted = self.length * (self.vocab_size + 1)
        if self.probe.width != wanted:
            raise ValueError(
                f"the probe reads {self.probe.width} features; {self.length} positions of "
                f"{self.vocab_size} tokens and none have {wanted}"
            )

    @classmethod
    def fit(
        cls,
        prefixes: Int[Tensor, "batch t"],
        targets: Float[Tensor, " batch"],
        *,
        vocab_size: int,
        length: int,
        depth: int = 2,
        width: int = 256,
        recipe: Recipe = RECIPE,
        seed: int = 0,
        floor: float = 0.0,
    ) -> "TokenValue":
        """Fit probabilities of success; shorter prefixes end in -1, as the tokens of a decoder."""
        probe = Probe.fit(
            one_hot_positions(prefixes, vocab_size, length),
            targets,
            depth=depth,
            width=width,
            recipe=recipe,
            seed=seed,
            floor=floor,
        )
        return cls(probe, vocab_size, length)

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
        check_tokens(prefix, self.vocab_size)
        return self.probe.log_value_of(one_hot_positions(prefix, self.vocab_size, self.length))


def one_hot_positions(
    prefixes: Int[Tensor, "batch t"], vocab_size: int, length: int
) -> Float[Tensor, "batch features"]:
    """One-hot vectors of the tokens at each of `length` positions, the last for none (-1) yet.

    Worked value: the prefix (1) of two bits is 010 001.
    """
    check_count("length", length, at_least=1)
    none = prefixes == PAD
    check_tokens(prefixes, vocab_size, hidden=none)
    if prefixes.shape[1] > length:
        raise ValueError(f"the prefix has {prefixes.shape[1]} tokens; these values know {length}")
    if (none[:, :-1] & ~none[:, 1:]).any():
        raise ValueError("-1 pads the end of a prefix; one stands before a token")
    symbols = prefixes.masked_fill(none, vocab_size)
    symbols = F.pad(symbols, (0, length - prefixes.shape[1]), value=vocab_size)
    return F.one_hot(symbols.long(), vocab_size + 1).flatten(1).float()
