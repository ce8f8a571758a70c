"""The laws that hold structures and samplers true, as functions anyone can call on their own.

    for finding in check_structure(my_structure):
        print(finding)

A structure small enough to enumerate is compared with `Table`, which answers every question by
summing all probabilities. A sampler is compared with the law it promises, by enumerating its
choices. The tests and `triptych verify` run these on every `examples()`.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.conditionals import every_next_token_log_probs
from triptych.core.estimates import tv_tolerance
from triptych.core.protocols import Density, EveryNextToken, Masked, NextToken
from triptych.core.randomness import TorchRng, exact_law, exact_transition_matrix
from triptych.core.samplers import Chain, OneShot
from triptych.core.table import Table, all_sequences
from triptych.core.validation import (
    Count,
    ImpossibleEvidence,
    UserError,
    as_device,
    as_seed,
    check_callable,
    check_can,
)

TOLERANCE = 1e-9
ENUMERABLE = 200_000
_SAMPLES = 20_000
_FAILURE = 1e-9  # probability that a correct sampler fails its law
_COMPARISONS = 2_000_000


class Finding(NamedTuple):
    """One law, how far the structure is from it, and how far it may be."""

    law: str
    error: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.error <= self.tolerance  # nan does not hold

    def __str__(self) -> str:
        sign = "ok  " if self.holds else "FAIL"
        return f"{sign} {self.law}: off by {self.error:.2g} (at most {self.tolerance:.2g})"


def check_structure(
    structure: Any, *, device: torch.device | str = "cpu", seed: Count = 0
) -> list[Finding]:
    """Every law that applies to what this structure can do."""
    device, seed = as_device(device), as_seed(seed)
    if not isinstance(structure, Density):
        raise UserError(
            f"structure: {type(structure).__name__} has no vocab_size, length and log_prob; "
            "the laws need at least these"
        )
    count = structure.vocab_size**structure.length
    if count > ENUMERABLE:
        raise UserError(
            f"{structure!r} has {structure.vocab_size}^{structure.length} sequences; the laws "
            f"enumerate at most {ENUMERABLE}: give a shorter example"
        )
    return list(_structure_laws(structure, device, seed))


def _structure_laws(structure: Any, device: torch.device, seed: int) -> Iterator[Finding]:
    every = all_sequences(structure.vocab_size, structure.length, device)
    log_probs = structure.log_prob(every)
    yield Finding("probabilities sum to one", _largest(log_probs.logsumexp(0)), TOLERANCE)
    table = Table.of(structure, device=device)
    if isinstance(structure, NextToken):
        yield Finding("next token equals the table", _next_token_error(structure, table), TOLERANCE)
        yield Finding(
            "log_prob is the sum of next tokens", _chain_rule(structure, table), TOLERANCE
        )
        if isinstance(structure, EveryNextToken):
            together = structure.every_next_token_log_probs(table.support)
            apart = every_next_token_log_probs(table, table.support)
            yield Finding("every next token at once", _log_error(together, apart), TOLERANCE)
        if len(table.support) < len(every):
            yield Finding(
                "an impossible prefix raises", _impossible_prefixes(structure, table), 0.0
            )
    if isinstance(structure, Masked):
        patterns = _patterns(table.length, len(table.support), seed).to(device)
        yield Finding(
            "masked equals the table", _masked_error(structure, table, patterns), TOLERANCE
        )
        yield Finding("a hidden token is not read", _hidden_unread(structure, table), TOLERANCE)
    sample = getattr(structure, "sample", None)
    if sample is not None:
        counts = torch.bincount(
            table.rank(sample(_SAMPLES, TorchRng(seed, device))), minlength=len(every)
        )
        tv = 0.5 * (counts / _SAMPLES - table.log_probs.exp()).abs().sum()
        reach = tv_tolerance(_SAMPLES, len(table.support), _FAILURE)
        yield Finding("samples follow the law", float(tv), reach)
        outside = counts[torch.isneginf(table.log_probs)].sum()
        yield Finding("no sample is outside the support", float(outside), 0.0)


def check_sampler(example: OneShot | Chain) -> list[Finding]:
    """A sampler's promise, by enumeration of its choices."""
    match example:
        case OneShot(attempt, target, cutoff):
            check_callable("attempt of the example", attempt, "attempt(rng)")
            check_can("target of the example", target, "items")
            law = exact_law(attempt, cutoff=cutoff)
            accepted = law.given(lambda outcome: outcome is not None)
            off = accepted.total_variation(dict(target))
            return [Finding("law is the target", off, TOLERANCE + 2 * law.missing)]
        case Chain(step, target, reversible):
            check_callable("step of the example", step, "step(state, rng)")
            check_can("target of the example", target, "items")
            states = list(target)
            p = torch.tensor([target[state] for state in states], dtype=torch.float64)
            p = p / p.sum()
            matrix = exact_transition_matrix(states, step)
            findings = [Finding("target is invariant", _largest(p @ matrix - p), TOLERANCE)]
            if reversible:
                flow = p[:, None] * matrix
                findings.append(Finding("detailed balance", _largest(flow - flow.T), TOLERANCE))
            return findings
        case _:
            raise UserError(
                f"example is a {type(example).__name__}; it must be a OneShot or a Chain"
            )


def _largest(difference: Float[Tensor, "..."]) -> float:
    return float(difference.abs().max())


def _log_error(got: Float[Tensor, "..."], wanted: Float[Tensor, "..."]) -> float:
    """Largest difference of logarithms; inf when one is -inf and the other is not."""
    same = got == wanted  # also where both are -inf
    return _largest(
        torch.where(same, torch.zeros_like(got), got - wanted).nan_to_num(nan=torch.inf)
    )


def _next_token_error(structure: NextToken, table: Table) -> float:
    errors = []
    for t in range(table.length):
        prefixes = table.support[:, :t]
        errors.append(
            _log_error(
                structure.next_token_log_probs(prefixes), table.next_token_log_probs(prefixes)
            )
        )
    return max(errors)


def _chain_rule(structure: Any, table: Table) -> float:
    tokens = table.support
    total = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
    for t in range(table.length):
        log_probs = structure.next_token_log_probs(tokens[:, :t])
        total += log_probs.gather(1, tokens[:, t : t + 1])[:, 0]
    return _log_error(structure.log_prob(tokens), total)


def _impossible_prefixes(structure: NextToken, table: Table) -> float:
    """How many prefixes of probability 0 are answered as if they had a conditional."""
    answered = 0
    for t in range(1, table.length):
        every = all_sequences(table.vocab_size, t, table.device)
        mass = table.log_probs.reshape(len(every), -1).logsumexp(-1)
        for prefix in every[torch.isneginf(mass)][:20]:
            answered += not _raises(structure.next_token_log_probs, prefix[None])
    return float(answered)


def _raises(ask: Callable[[Tensor], Tensor], prefix: Int[Tensor, "1 t"]) -> bool:
    try:
        ask(prefix)
    except ImpossibleEvidence:
        return True
    return False


def _patterns(length: int, sequences: int, seed: int) -> Bool[Tensor, "patterns length"]:
    """Every set of hidden positions, or a random choice of them when there are too many."""
    every = all_sequences(2, length).bool()
    affordable = max(8, _COMPARISONS // max(1, sequences))
    if len(every) <= affordable:
        return every
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    return every[order[:affordable]]


def _masked_error(
    structure: Masked, table: Table, patterns: Bool[Tensor, "patterns length"]
) -> float:
    """Every pattern on the support, and all patterns mixed in one batch."""
    tokens, errors = table.support, []
    for pattern in patterns:
        hidden = pattern.expand_as(tokens)
        errors.append(
            _log_error(
                structure.masked_log_probs(tokens, hidden), table.masked_log_probs(tokens, hidden)
            )
        )
    rows = torch.arange(min(len(tokens), 64), device=tokens.device)
    mixed, hidden = tokens[rows], patterns[rows % len(patterns)]
    errors.append(
        _log_error(structure.masked_log_probs(mixed, hidden), table.masked_log_probs(mixed, hidden))
    )
    return max(errors)


def _hidden_unread(structure: Masked, table: Table) -> float:
    """Garbage under `hidden` must change nothing."""
    tokens = table.support[:50]
    hidden = torch.arange(table.length, device=tokens.device).expand_as(tokens) % 2 == 0
    garbage = torch.where(hidden, -7, tokens)
    return _log_error(
        structure.masked_log_probs(garbage, hidden), structure.masked_log_probs(tokens, hidden)
    )
