"""The hidden states of a causal model at every token of given rows, in few passes.

Rows are filled up at their end, and nothing looks to the right in a causal model, so the states of
a row are those that a decoder shows when the row has grown to each of its tokens.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import Count, UserError, as_count, as_list
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.causal_cache import as_layer, last_logits_only

_TOKENS_AT_ONCE = 2048


@torch.no_grad()
def states_of_rows(
    lm: PretrainedCausalLM, rows: Sequence[Sequence[int]], layer: Count
) -> list[Float[Tensor, "t width"]]:
    """The states of a layer at every token of each row, tokens without BOS; float32 or float64."""
    number = as_layer(layer, lm.model)
    read = [_checked(lm, b, row) for b, row in enumerate(as_list("rows", rows, "rows of tokens"))]
    found: dict[int, Tensor] = {}
    start = [] if lm.bos_token is None else [lm.bos_token]
    for part in _parts([len(start) + len(row) for row in read]):
        longest = max(len(read[b]) for b in part)
        fed = [[*start, *read[b], *[0] * (longest - len(read[b]))] for b in part]
        tokens = torch.tensor(fed, dtype=torch.long, device=lm.device)
        lengths = torch.tensor([len(start) + len(read[b]) for b in part], device=lm.device)
        seen = torch.arange(tokens.shape[1], device=lm.device) < lengths[:, None]
        answer = lm.model(
            input_ids=tokens,
            attention_mask=seen.long(),
            use_cache=False,
            return_dict=True,
            output_hidden_states=True,
            **last_logits_only(lm.model),
        )
        states = answer.hidden_states[number]
        states = states.to(torch.promote_types(states.dtype, torch.float32))
        for place, b in enumerate(part):
            found[b] = states[place, len(start) : len(start) + len(read[b])].clone()
    return [found[b] for b in range(len(read))]


def _checked(lm: PretrainedCausalLM, b: int, row: Sequence[int]) -> list[int]:
    tokens = [
        as_count(f"rows[{b}]", token, at_most=lm.vocab_size - 1)
        for token in as_list(f"rows[{b}]", row, "tokens")
    ]
    if not 1 <= len(tokens) <= lm.length:
        raise UserError(
            f"rows[{b}] has {len(tokens)} tokens; this model reads 1 to {lm.length} of them"
        )
    return tokens


def _parts(lengths: list[int]) -> list[list[int]]:
    """Numbers of rows that run together, short ones first: few tokens, little to fill up."""
    parts: list[list[int]] = []
    for b in sorted(range(len(lengths)), key=lengths.__getitem__):
        if parts and lengths[b] * (len(parts[-1]) + 1) <= _TOKENS_AT_ONCE:
            parts[-1].append(b)
        else:
            parts.append([b])
    return parts
