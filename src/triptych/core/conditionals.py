"""Next-token laws at every position of a sequence, for any oracle."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import EveryNextToken, NextToken


def every_next_token_log_probs(
    oracle: NextToken, tokens: Int[Tensor, "batch length"]
) -> Float[Tensor, "batch length vocab"]:
    """log p(x_i = · | x_<i) for every i: in one pass if the oracle can, else by prefixes."""
    if isinstance(oracle, EveryNextToken):
        return oracle.every_next_token_log_probs(tokens)
    laws = [oracle.next_token_log_probs(tokens[:, :t]) for t in range(tokens.shape[1])]
    return torch.stack(laws, dim=1)
