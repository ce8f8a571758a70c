"""Verifiers that are never wrong: the value of a prefix, by summation, by the chain rule, by rule.

The value of a prefix is the expected outcome of its completions by the model p,

    V*(x_≤t) = E_p[τ(X) | X_≤t = x_≤t],

for an outcome τ ≥ 0 of full strings [li, 3.3]. Guided by V*, drawing token by token with weights
p(x | x_≤t) V*(x_≤t x) gives the tilted law q ∝ p τ. A hard verifier says 1 or 0: whether a prefix
can be completed; `Dyck` and the sets of `structures.constraints` are such verifiers themselves.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import is_end
from triptych.core.deprecation import renamed_fields
from triptych.core.display import name_of
from triptych.core.protocols import NextToken, Value
from triptych.core.table import Table, places
from triptych.core.validation import (
    Count,
    EndToken,
    EndTokens,
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
from triptych.structures.brackets.dyck import Dyck

LAW_TOLERANCE = 1e-4  # of a sum of probabilities, as `rng.categorical` has it
_REMEMBERED = 1_000_000  # prefixes whose value is kept


def finished(
    prefix: Prefix, length: Count | None, end_token: EndTokens | None = None
) -> Bool[Tensor, " batch"]:
    """Which prefixes are full strings: of `length` tokens, or with an end token last."""
    prefix = as_integers("prefix", prefix, dimensions=2)
    length, end_token = as_ends(length, end_token, at_least=0)
    t = prefix.shape[1]
    full = torch.full(
        (len(prefix),), length is not None and t >= length, dtype=torch.bool, device=prefix.device
    )
    return full if end_token is None or t == 0 else full | is_end(prefix[:, -1], end_token)


def as_ends(
    length: Count | None, end_token: EndTokens | None, *, at_least: int = 1
) -> tuple[int | None, EndToken | None]:
    """Where strings are over: after this many tokens, after one of some tokens, or nowhere."""
    full = None if length is None else as_size("length", length, at_least=at_least)
    return full, as_end_token(end_token)


def values_of(value: Value, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
    """What another verifier says of each prefix: a finite number or -inf, as float64."""
    values, name = value.log_value(prefix), type(value).__name__
    if not isinstance(values, Tensor) or values.shape != (len(prefix),) or values.is_complex():
        raise UserError(
            f"{name} answered {_described(values)}; it must answer one number a prefix, "
            f"{len(prefix)} here",
            parameter="prefix",
        )
    values = values.double()
    if (bad := values.isnan() | (values == torch.inf)).any():
        row = int(bad.nonzero()[0])
        raise UserError(
            f"{name} says log V = {values[row].item()} of {prefix[row].tolist()}; values must be "
            "finite or -inf",
            parameter="prefix",
        )
    return values


def check_laws(
    log_probs: Tensor, shape: tuple[int, int], whose: str, at: Callable[[int], str]
) -> None:
    """`log_probs` has this shape and its rows are laws; `at(row)` says where a row stands."""
    if not isinstance(log_probs, Tensor) or log_probs.shape != shape:
        raise UserError(
            f"{whose} answered {_described(log_probs)}; it must answer log-probabilities of shape "
            f"{shape}, one column a token",
            parameter="shape",
        )
    total = log_probs.double().exp().sum(-1)
    if (bad := ~((total - 1).abs() < LAW_TOLERANCE)).any():  # written so that nan is bad
        row = int(bad.nonzero()[0])
        raise UserError(
            f"{whose} gives no law {at(row)}: the exponentials sum to {total[row].item():.6g}; "
            "they must be log-probabilities, whose exponentials sum to 1 (log_softmax(-1) makes "
            "them)",
            parameter="whose",
        )


def _described(answer: object) -> str:
    if not isinstance(answer, Tensor):
        return f"a {type(answer).__name__}"
    return f"{answer.dtype} of shape {tuple(answer.shape)}"


@dataclass(frozen=True, eq=False)
class ExactValue:
    """V*(x_≤t) = E_p[τ(X) | x_≤t], by summation over all completions in a table.

    Where no completion has p τ > 0, V* is 0: there too where p(x_≤t) = 0, on prefixes that the
    model cannot write.

    Worked value: two fair bits, τ = 1, ½, 0, 0 on 00, 01, 10, 11. V*(0) = ¾, V*(1) = 0 and
    V*(empty) = 3/8.
    """

    table: Table
    outcome: Value

    def __post_init__(self) -> None:
        if not isinstance(self.table, Table):
            name = type(self.table).__name__
            raise UserError(
                f"table is a {name}; it must be a Table: Table.of(density) makes one",
                parameter="table",
            )
        check_can("outcome", self.outcome, "log_value")

    def __repr__(self) -> str:
        return f"ExactValue({name_of(self.outcome)} under {name_of(self.table)})"

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        vocab = self.table.vocab_size
        prefix = as_tokens(prefix, vocab, name="prefix", device=self.table.device)
        t = prefix.shape[1]
        if t > self.table.length:
            raise UserError(
                f"the prefix has {t} tokens; this table's have {self.table.length}",
                parameter="prefix",
            )
        rank = (prefix * places(vocab, t, prefix.device)).sum(-1)
        joint = self._log_tilted.reshape(vocab**t, -1).logsumexp(-1)[rank]
        marginal = self.table.log_probs.reshape(vocab**t, -1).logsumexp(-1)[rank]
        return torch.where(torch.isneginf(joint), joint, joint - marginal)

    @cached_property
    def _log_tilted(self) -> Float[Tensor, " count"]:
        """log p(x) τ(x) of every string."""
        return self.table.log_probs + values_of(self.outcome, self.table.sequences)


@renamed_fields(model="lm")
@dataclass(frozen=True, eq=False)
class RatioValue:
    """V*(x_≤t) = q(x_≤t) / p(x_≤t) for τ = q/p, by the chain rule: exact at any length.

    E_p[q(X)/p(X) | x_≤t] = Σ q(x) / p(x_≤t) over the completions of x_≤t. It is 0 where q(x_≤t) is
    0; where only p(x_≤t) is 0 there is no such τ, and that is an error. Answers are remembered, so
    that a longer prefix costs one step more: make a new one when a model has changed.

    Worked value: p = two fair bits, q the law whose first bit is 1 with probability ¾ and whose
    second repeats the first. V*(1) = ¾ / ½ = 3/2, V*(11) = ¾ / ¼ = 3 and V*(10) = 0.
    """

    lm: NextToken
    target: NextToken
    _known: dict[tuple[int, ...], float] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name, each in (("lm", self.lm), ("target", self.target)):
            check_can(name, each, "vocab_size", "next_token_log_probs")
        if self.lm.vocab_size != self.target.vocab_size:
            raise UserError(
                f"the model has {self.lm.vocab_size} tokens and the target "
                f"{self.target.vocab_size}; a ratio needs laws on the same strings",
                parameter="lm",
            )

    def __repr__(self) -> str:
        return f"RatioValue({name_of(self.target)} over {name_of(self.lm)})"

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        """log q(x_≤t) - log p(x_≤t)."""
        prefix = as_tokens(prefix, self.lm.vocab_size, name="prefix")
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        self._known[()] = 0.0
        unknown = [self._unknown(prefix)]
        while len(unknown[-1]):
            unknown.append(self._unknown(unknown[-1][:, :-1]))
        for rows in reversed(unknown):
            self._learn(rows)
        answers = [self._known[tuple(row)] for row in prefix.tolist()]
        return torch.tensor(answers, dtype=torch.float64, device=prefix.device)

    def _unknown(self, prefix: Int[Tensor, "batch t"]) -> Int[Tensor, "rows t"]:
        """The rows not asked before, each once."""
        fresh = {tuple(row): i for i, row in enumerate(prefix.tolist())}
        return prefix[[i for row, i in fresh.items() if row not in self._known]]

    def _learn(self, rows: Int[Tensor, "rows t"]) -> None:
        """One step of the chain rule from prefixes whose value is known."""
        keys = [tuple(row) for row in rows.tolist()]
        before = [self._known[key[:-1]] for key in keys]
        self._known.update(dict.fromkeys(keys, -math.inf))
        live = [i for i, value in enumerate(before) if value > -math.inf]  # q(x_<t) > 0
        if not live:
            return
        one_of = {keys[i][:-1]: i for i in live}  # children of one parent share its law
        place = {parent: k for k, parent in enumerate(one_of)}
        of = [place[keys[i][:-1]] for i in live]
        parents, token = rows[list(one_of.values()), :-1], rows[live, -1]
        log_q = _laws_of(self.target, parents)[of, token].tolist()
        log_p = _laws_of(self.lm, parents)[of, token].tolist()
        for i, q, p in zip(live, log_q, log_p, strict=True):
            if q > -math.inf and p == -math.inf:
                self._known.clear()
                raise UserError(
                    f"the target writes {list(keys[i])} and the model never does, so q/p is no "
                    "number there; give a model that writes all that the target can",
                    parameter="target",
                )
            if q > -math.inf:
                self._known[keys[i]] = before[i] + q - p


@dataclass(frozen=True, eq=False)
class DyckVerifier:
    """Hard: can this text be completed to a string of the Dyck language?

    As `dyck.log_value`, but for text from a model that may know other words: a token that is no
    bracket of the language, or a text that is too long, is an error of the text and gets -inf.

    Worked value: of two types and 4 tokens, "[(" and "[]" can be completed; "[)" closes the wrong
    bracket, and "[[[" leaves no room to close.
    """

    dyck: Dyck

    def __post_init__(self) -> None:
        check_can("dyck", self.dyck, "vocab_size", "length", "log_value")

    def __repr__(self) -> str:
        return f"DyckVerifier({self.dyck!r})"

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        prefix = as_integers("prefix", prefix, dimensions=2)
        known = ((prefix >= 0) & (prefix < self.dyck.vocab_size)).all(1)
        known &= prefix.shape[1] <= self.dyck.length
        values = torch.full((len(prefix),), -torch.inf, dtype=torch.float64, device=prefix.device)
        values[known] = self.dyck.log_value(prefix[known, : self.dyck.length])
        return values


@dataclass(frozen=True)
class Rule:
    """A verifier that is a plain function of one prefix, a list of ints: a bool or a probability.

    Worked value: Rule(lambda x: sum(x) <= 1) says log V = 0, 0, -inf to [], [1], [1, 1]; with
    lambda x: 0.5 ** sum(x) it says 0, log ½, log ¼.
    """

    function: Callable[[list[int]], bool | float]

    def __post_init__(self) -> None:
        check_callable("function", self.function, "function(list of tokens)")

    def __repr__(self) -> str:
        return f"Rule({name_of(self.function)})"

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        prefix = as_integers("prefix", prefix, dimensions=2)
        values = [self._asked(row) for row in prefix.tolist()]
        return torch.tensor(values, dtype=torch.float64, device=prefix.device).log()

    def _asked(self, prefix: list[int]) -> float:
        shown = list(prefix)
        answer = self.function(prefix)
        if isinstance(answer, np.generic) or (isinstance(answer, Tensor) and answer.numel() == 1):
            answer = answer.item()
        if not isinstance(answer, Real) or not 0 <= float(answer) <= 1:
            raise UserError(
                f"the function of a rule answers True, False or a probability; this one answered "
                f"{answer!r} to {shown}",
                parameter="function",
            )
        return float(answer)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A verifier that judges full strings only, and says 1 before: what a baseline is given.

    Worked value: for the bit strings without 1 and length 2, log V(1) = 0 and log V(10) = -inf.
    """

    value: Value
    length: int
    end_token: EndToken | None = None

    def __post_init__(self) -> None:
        check_can("value", self.value, "log_value")
        length, end_token = as_size("length", self.length), as_end_token(self.end_token)
        set_fields(self, length=length, end_token=end_token)

    def __repr__(self) -> str:
        return f"Outcome({name_of(self.value)}, at length {self.length})"

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        prefix = as_integers("prefix", prefix, dimensions=2)
        full = finished(prefix, self.length, self.end_token)
        values = torch.zeros(len(prefix), dtype=torch.float64, device=prefix.device)
        if full.any():
            values[full] = values_of(self.value, prefix[full])
        return values


def _laws_of(lm: NextToken, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, "batch vocab"]:
    """The model's next-token laws."""
    laws = lm.next_token_log_probs(prefix)
    check_laws(
        laws,
        (len(prefix), lm.vocab_size),
        type(lm).__name__,
        lambda row: f"after {prefix[row].tolist()}",
    )
    return laws
