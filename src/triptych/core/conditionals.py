"""Next-token laws at every position of a sequence, for any oracle."""

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.protocols import EveryNextToken, NextToken
from triptych.core.validation import Tokens, UserError, as_tokens, check_can


@renamed(oracle="lm")
def every_next_token_log_probs(
    lm: NextToken, tokens: Tokens
) -> Float[Tensor, "batch length vocab"]:
    """log p(x_i = · | x_<i) for every i: in one pass if the model can, else by prefixes."""
    check_can("lm", lm, "next_token_log_probs", "vocab_size")
    tokens = as_tokens(tokens, lm.vocab_size)
    if isinstance(lm, EveryNextToken):
        return lm.every_next_token_log_probs(tokens)
    if tokens.shape[1] == 0:
        raise UserError(
            "tokens have length 0: there is no next token to predict", parameter="tokens"
        )
    laws = [lm.next_token_log_probs(tokens[:, :t]) for t in range(tokens.shape[1])]
    return torch.stack(laws, dim=1)
