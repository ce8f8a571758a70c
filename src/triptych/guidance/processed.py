"""A decoder whose laws went through the logits processors of `generate`.

A processor of transformers maps the scores of the next token to new scores, and may look at the
tokens so far. It must be a function of these two: rows are erased and forked here, so one that
counts its calls would be wrong.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import Numbers, UserError
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.causal_cache import PretrainedDecoder

Processor = Callable[[Tensor, Tensor], Tensor]


class ProcessedDecoder(PretrainedDecoder):
    """A `Decoder` with logits processors; they see the padding before a row, as in `generate`.

    padding   tokens that stand before each row where the processors look
    """

    def __init__(
        self,
        lm: PretrainedCausalLM,
        prompts: Sequence[Sequence[int]],
        padding: Sequence[Sequence[int]],
        processors: Processor,
        layer: int | None = None,
    ) -> None:
        super().__init__(
            lm.model,
            prompts,
            vocab_size=lm.vocab_size,
            length=lm.length,
            start_token=lm.bos_token,
            layer=layer,
        )
        self._padding = [torch.tensor(row, dtype=torch.long) for row in padding]
        self._processors = processors

    def next_log_probs(self, rows: Numbers | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the prefix of each row) after the processors, float64."""
        rows = self._asked(rows)
        self._run_pending(rows)
        scores = self._logits[rows]
        ids = [self._ids(row) for row in rows.tolist()]
        widths = torch.tensor([len(row) for row in ids], device=rows.device)
        processed = torch.empty_like(scores, dtype=torch.float64)
        for width in widths.unique().tolist():
            same = torch.nonzero(widths == width)[:, 0]
            seen = torch.stack([ids[place] for place in same.tolist()])
            processed[same] = self._processors(seen, scores[same]).double()
        stuck = ~(processed > -torch.inf).any(-1)
        if stuck.any():
            place = int(stuck.nonzero()[0])
            raise UserError(
                f"the logits processors leave no token after {ids[place].tolist()}; take one of "
                "them away"
            )
        return processed.log_softmax(-1)

    def fork(self, rows: Numbers) -> "ProcessedDecoder":
        copy: Any = super().fork(rows)
        copy._padding = [self._padding[row] for row in self._chosen(rows).tolist()]
        return copy

    def _ids(self, row: int) -> Tensor:
        tokens = self._tokens[row, : int(self._lengths[row])]
        return torch.cat([self._padding[row].to(tokens), tokens])
