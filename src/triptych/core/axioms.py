"""The axioms that structures and samplers must satisfy, as functions anyone can call on their own.

    for finding in check_structure(my_structure):
        print(finding)

A structure small enough to enumerate is compared with `Table`, which answers every question by
summing all probabilities. A sampler is compared with the law it promises, by enumerating its
choices. The tests and `triptych axioms` run these on every `examples()`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.conditionals import every_next_token_log_probs
from triptych.core.enumeration import ExactLaw, exact_law, exact_transition_matrix
from triptych.core.estimates import tv_tolerance
from triptych.core.protocols import Density, EveryNextToken, Masked, NextToken
from triptych.core.randomness import TorchRng
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
_FAILURE = 1e-9  # probability that a correct sampler fails its axiom
_COMPARISONS = 2_000_000


class Counterexample(NamedTuple):
    """Where an axiom fails most: what was asked, what the answer must be, and what it was.

    method
        The method that answered; `triptych axioms` looks up its file and line.
    """

    asked: str
    expected: str
    got: str
    method: str

    def __str__(self) -> str:
        return f"{self.asked}: expected {self.expected}, got {self.got}"


class Finding(NamedTuple):
    """One axiom, how far the structure is from it, how far it may be, and where it fails most."""

    axiom: str
    error: float
    tolerance: float
    counterexample: Counterexample | None = None

    @property
    def holds(self) -> bool:
        return self.error <= self.tolerance  # nan does not hold

    def __str__(self) -> str:
        sign = "ok  " if self.holds else "FAIL"
        line = f"{sign} {self.axiom}: off by {self.error:.2g} (at most {self.tolerance:.2g})"
        return f"{line}\n     {self.counterexample}" if self.counterexample else line


def check_structure(
    structure: Any, *, device: torch.device | str = "cpu", seed: Count = 0
) -> list[Finding]:
    """Every axiom that applies to what this structure can do."""
    device, seed = as_device(device), as_seed(seed)
    if not isinstance(structure, Density):
        raise UserError(
            f"structure: {type(structure).__name__} has no vocab_size, length and log_prob; "
            "the axioms need at least these",
            parameter="structure",
        )
    count = structure.vocab_size**structure.length
    if count > ENUMERABLE:
        raise UserError(
            f"{structure!r} has {structure.vocab_size}^{structure.length} sequences; the axioms "
            f"enumerate at most {ENUMERABLE}: give a shorter example",
            parameter="structure",
        )
    return list(_structure_axioms(structure, device, seed))


def _structure_axioms(structure: Any, device: torch.device, seed: int) -> Iterator[Finding]:
    every = all_sequences(structure.vocab_size, structure.length, device)
    total = structure.log_prob(every).logsumexp(0)
    sums = _Worst("log_prob")
    sums.compare(
        total[None], torch.zeros_like(total)[None], lambda _: f"sum over all {len(every)} sequences"
    )
    yield sums.finding("probabilities sum to one")
    table = Table.of(structure, device=device)
    if isinstance(structure, NextToken):
        yield _next_token_axiom(structure, table)
        yield _chain_rule(structure, table)
        if isinstance(structure, EveryNextToken):
            yield _every_next_token_axiom(structure, table)
        if len(table.support) < len(every):
            yield _impossible_prefixes(structure, table)
    if isinstance(structure, Masked):
        patterns = _patterns(table.length, len(table.support), seed).to(device)
        yield _masked_axiom(structure, table, patterns)
        yield _hidden_unread(structure, table)
    sample = getattr(structure, "sample", None)
    if sample is not None:
        yield from _sample_axioms(sample(_SAMPLES, TorchRng(seed, device)), table)


def check_sampler(example: OneShot | Chain) -> list[Finding]:
    """A sampler's promise, by enumeration of its choices."""
    match example:
        case OneShot(attempt, target, cutoff):
            check_callable("attempt of the example", attempt, "attempt(rng)")
            check_can("target of the example", target, "items")
            law = exact_law(attempt, cutoff=cutoff)
            accepted = law.given(lambda outcome: outcome is not None)
            off = accepted.total_variation(dict(target))
            tolerance = TOLERANCE + 2 * law.missing
            case = None
            if not off <= tolerance:
                wanted = ExactLaw(dict(target)).probs
                case = _worst_outcome("outcome {}", accepted.probs, wanted, "attempt")
            return [Finding("law is the target", off, tolerance, case)]
        case Chain(step, target, reversible):
            check_callable("step of the example", step, "step(state, rng)")
            check_can("target of the example", target, "items")
            states = list(target)
            p = torch.tensor([target[state] for state in states], dtype=torch.float64)
            p = p / p.sum()
            matrix = exact_transition_matrix(states, step)
            after = p @ matrix
            off, case = _largest(after - p), None
            if not off <= TOLERANCE:
                got, wanted = (dict(zip(states, x.tolist(), strict=True)) for x in (after, p))
                where = "state {} after one step from the target"
                case = _worst_outcome(where, got, wanted, "step")
            findings = [Finding("target is invariant", off, TOLERANCE, case)]
            if reversible:
                findings.append(_detailed_balance(states, p[:, None] * matrix))
            return findings
        case _:
            raise UserError(
                f"example is a {type(example).__name__}; it must be a OneShot or a Chain",
                parameter="example",
            )


# ------------------------------------------------------------------ where an axiom fails most


class _Worst:
    """The largest error of the answers of one method so far, and where it was."""

    def __init__(self, method: str) -> None:
        self.method, self.error = method, 0.0
        self.case: Counterexample | None = None

    def compare(
        self,
        got: Float[Tensor, "..."],
        wanted: Float[Tensor, "..."],
        asked: Callable[[tuple[int, ...]], str],
    ) -> None:
        """Compare logarithms of probabilities; `asked` describes the entry at an index."""
        if got.shape != wanted.shape:
            raise UserError(
                f"{self.method} answers with shape {tuple(got.shape)} where it must be "
                f"{tuple(wanted.shape)}"
            )
        off = _log_errors(got, wanted)
        if not off.numel() or float(off.max()) <= self.error:
            return
        at = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
        self.error = float(off[at])
        self.case = Counterexample(
            asked(at), _probability(float(wanted[at])), _probability(float(got[at])), self.method
        )

    def finding(self, axiom: str, tolerance: float = TOLERANCE) -> Finding:
        fails = not self.error <= tolerance
        return Finding(axiom, self.error, tolerance, self.case if fails else None)


def _probability(log: float) -> str:
    """exp(log), and the logarithm itself where the digits of the first do not tell.

    Worked values: log ½ is "0.5"; -2000 is "exp(-2000)".
    """
    return f"{math.exp(log):.10g}" if -30 < log < 30 or log == -math.inf else f"exp({log:.10g})"


def _log_errors(got: Float[Tensor, "..."], wanted: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Differences of logarithms; 0 where both are -inf, inf where one is or one is nan."""
    same = got == wanted
    return torch.where(same, torch.zeros_like(got), got - wanted).abs().nan_to_num(nan=torch.inf)


def _largest(difference: Float[Tensor, "..."]) -> float:
    return float(difference.abs().max())


def _worst_outcome(
    asked: str, got: Mapping[Any, float], wanted: Mapping[Any, float], method: str
) -> Counterexample:
    """The outcome whose probability is furthest from the one that it must have."""
    apart = {x: abs(got.get(x, 0.0) - wanted.get(x, 0.0)) for x in [*wanted, *got]}
    x = max(apart, key=lambda outcome: apart[outcome])
    return Counterexample(
        "probability of " + asked.format(x),
        f"{wanted.get(x, 0.0):.10g}",
        f"{got.get(x, 0.0):.10g}",
        method,
    )


def _detailed_balance(states: list[Any], flow: Float[Tensor, "states states"]) -> Finding:
    apart = (flow - flow.T).abs()
    error = float(apart.max())
    case = None
    if not error <= TOLERANCE:
        i, j = divmod(int(apart.argmax()), len(states))
        case = Counterexample(
            f"P(at {states[i]}, then {states[j]})",
            f"{float(flow[j, i]):.10g}, the probability of the way back",
            f"{float(flow[i, j]):.10g}",
            "step",
        )
    return Finding("detailed balance", error, TOLERANCE, case)


# ------------------------------------------------------------------ the axioms of structures


def _next_token_axiom(structure: NextToken, table: Table) -> Finding:
    worst = _Worst("next_token_log_probs")
    for t in range(table.length):
        prefixes = table.support[:, :t]
        worst.compare(
            structure.next_token_log_probs(prefixes),
            table.next_token_log_probs(prefixes),
            lambda at, prefixes=prefixes: f"P(next token {at[1]} | {prefixes[at[0]].tolist()})",
        )
    return worst.finding("next token equals the table")


def _chain_rule(structure: Any, table: Table) -> Finding:
    tokens = table.support
    total = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
    for t in range(table.length):
        log_probs = structure.next_token_log_probs(tokens[:, :t])
        total += log_probs.gather(1, tokens[:, t : t + 1])[:, 0]
    worst = _Worst("log_prob")
    worst.compare(structure.log_prob(tokens), total, lambda at: f"P({tokens[at[0]].tolist()})")
    return worst.finding("log_prob is the sum of next tokens")


def _every_next_token_axiom(structure: EveryNextToken, table: Table) -> Finding:
    worst, tokens = _Worst("every_next_token_log_probs"), table.support
    worst.compare(
        structure.every_next_token_log_probs(tokens),
        every_next_token_log_probs(table, tokens),
        lambda at: (
            f"P(next token {at[2]} | {tokens[at[0], : at[1]].tolist()}), position {at[1]} "
            f"of {tokens[at[0]].tolist()}"
        ),
    )
    return worst.finding("every next token at once")


def _impossible_prefixes(structure: NextToken, table: Table) -> Finding:
    """How many prefixes of probability 0 are answered as if they had a conditional."""
    answered: list[list[int]] = []
    for t in range(1, table.length):
        every = all_sequences(table.vocab_size, t, table.device)
        mass = table.log_probs.reshape(len(every), -1).logsumexp(-1)
        for prefix in every[torch.isneginf(mass)][:20]:
            if not _raises(structure.next_token_log_probs, prefix[None]):
                answered.append(prefix.tolist())
    case = None
    if answered:
        asked = f"next token after {answered[0]}, which has probability 0"
        case = Counterexample(asked, "ImpossibleEvidence", "an answer", "next_token_log_probs")
    return Finding("an impossible prefix raises", float(len(answered)), 0.0, case)


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


def _masked_axiom(
    structure: Masked, table: Table, patterns: Bool[Tensor, "patterns length"]
) -> Finding:
    """Every pattern on the support, and all patterns mixed in one batch."""
    worst, tokens = _Worst("masked_log_probs"), table.support

    def compare(tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]) -> None:
        worst.compare(
            structure.masked_log_probs(tokens, hidden),
            table.masked_log_probs(tokens, hidden),
            lambda at: _masked_question(at, tokens, hidden),
        )

    for pattern in patterns:
        compare(tokens, pattern.expand_as(tokens))
    rows = torch.arange(min(len(tokens), 64), device=tokens.device)
    compare(tokens[rows], patterns[rows % len(patterns)])
    return worst.finding("masked equals the table")


def _masked_question(
    at: tuple[int, ...],
    tokens: Int[Tensor, "batch length"],
    hidden: Bool[Tensor, "batch length"],
) -> str:
    """In words; the position that is asked about and every hidden one are shown as ?."""
    row, position, token = at
    pairs = zip(tokens[row].tolist(), hidden[row].tolist(), strict=True)
    shown = ", ".join("?" if unseen else str(token) for token, unseen in pairs)
    return f"P(token {token} at position {position} | [{shown}])"


def _hidden_unread(structure: Masked, table: Table) -> Finding:
    """Garbage under `hidden` must change nothing."""
    tokens = table.support[:50]
    hidden = torch.arange(table.length, device=tokens.device).expand_as(tokens) % 2 == 0
    garbage = torch.where(hidden, -7, tokens)
    worst = _Worst("masked_log_probs")
    worst.compare(
        structure.masked_log_probs(garbage, hidden),
        structure.masked_log_probs(tokens, hidden),
        lambda at: _masked_question(at, tokens, hidden) + " with -7 in the hidden places",
    )
    return worst.finding("a hidden token is not read")


def _sample_axioms(samples: Int[Tensor, "samples length"], table: Table) -> Iterator[Finding]:
    """The shares of all sequences, and what must never be drawn."""
    counts = torch.bincount(table.rank(samples), minlength=len(table.log_probs))
    probs, shares = table.log_probs.exp(), counts / _SAMPLES
    tv, case = float(0.5 * (shares - probs).abs().sum()), None
    reach = tv_tolerance(_SAMPLES, len(table.support), _FAILURE)
    sequences = all_sequences(table.vocab_size, table.length, table.device)
    if not tv <= reach:
        at = int((shares - probs).abs().argmax())
        asked = f"share of {sequences[at].tolist()} among {_SAMPLES} samples"
        case = Counterexample(
            asked, f"{float(probs[at]):.4g}", f"{float(shares[at]):.4g}", "sample"
        )
    yield Finding("samples follow the law", tv, reach, case)
    outside = torch.where(torch.isneginf(table.log_probs), counts, 0)
    count, case = int(outside.sum()), None
    if count:
        at = int(outside.argmax())
        asked = f"samples equal to {sequences[at].tolist()}, which has probability 0"
        case = Counterexample(asked, "0", str(int(outside[at])), "sample")
    yield Finding("no sample is outside the support", float(count), 0.0, case)
