"""A learned value inside, the exact outcome at the leaves, as VGB's analysis has it [li, 3.3]."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.display import name_of
from triptych.core.protocols import Question, ReadsStates, Value, Verifier
from triptych.core.validation import (
    EndToken,
    as_end_token,
    as_size,
    check_can,
    set_fields,
)
from triptych.verifiers.exact import finished, values_of


@dataclass(frozen=True)
class ExactLeaves:
    """`value` where a row goes on, `outcome` where it is finished.

    A row is finished when it has `length` tokens or its last one is `end_token`, or one of them.
    Worked value: length 2, a value of ½ everywhere, the outcome "no 1": log V(0) = log ½,
    log V(00) = 0 and log V(01) = -inf.
    """

    value: Verifier
    outcome: Value
    length: int
    end_token: EndToken | None = None

    def __post_init__(self) -> None:
        check_can("value", self.value, "log_values")
        check_can("outcome", self.outcome, "log_value")
        length, end_token = as_size("length", self.length), as_end_token(self.end_token)
        set_fields(self, length=length, end_token=end_token)

    def __repr__(self) -> str:
        inside, leaves = name_of(self.value), name_of(self.outcome)
        return f"ExactLeaves({inside}, then {leaves} at length {self.length})"

    @property
    def layer(self) -> int | None:
        """The layer that `value` reads; None where it reads no states."""
        return self.value.layer if isinstance(self.value, ReadsStates) else None

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]:
        """log V of each row."""
        found = torch.zeros(len(asked.lengths), dtype=torch.float64, device=asked.tokens.device)
        goes_on = torch.ones_like(found, dtype=torch.bool)
        for same, prefix in asked.by_length():
            done = finished(prefix, self.length, self.end_token)
            if done.any():
                found[same[done]] = values_of(self.outcome, prefix[done])
                goes_on[same[done]] = False
        if goes_on.any():
            inside = asked.some(torch.nonzero(goes_on)[:, 0])
            found[goes_on] = self.value.log_values(inside).double()
        return found
