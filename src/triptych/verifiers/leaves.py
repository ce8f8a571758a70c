"""A learned value inside, the exact outcome at the leaves, as VGB's analysis has it [li, 3.3]."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import Decoder, DecoderValue, Value


@dataclass(frozen=True)
class ExactLeaves:
    """`value` where a row goes on, `outcome` where it is finished.

    A row is finished when it has `length` tokens or its last one is `end_token`. Worked value:
    length 2, a value of ½ everywhere, the outcome "no 1": log V(0) = log ½, log V(00) = 0 and
    log V(01) = -inf.
    """

    value: DecoderValue
    outcome: Value
    length: int
    end_token: int | None = None

    def decoder_log_value(
        self, decoder: Decoder, rows: Int[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]:
        """log V of each row."""
        lengths, tokens = decoder.lengths[rows], decoder.tokens[rows]
        done = lengths >= self.length
        if self.end_token is not None:
            last = tokens.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
            done = done | ((lengths > 0) & (last == self.end_token))
        found = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        if not done.all():
            found[~done] = self.value.decoder_log_value(decoder, rows[~done]).double()
        for length in lengths[done].unique().tolist():
            same = done & (lengths == length)
            found[same] = self.outcome.log_value(tokens[same, :length]).double()
        return found
