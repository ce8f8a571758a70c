"""The page on hidden tokens: an HMM's exact laws, given the tokens that are shown.

The chain stays in its state with probability `stay`, and else moves to any other state alike. State
z writes token z with probability `clear`, and else any other token alike.
"""

from typing import Any

import torch

from triptych.core.validation import as_count, as_list, as_masked, as_probability
from triptych.lab.serving.questions import Question, check_names
from triptych.structures.hidden_markov.hmm import HMM

MAX_STATES = 5
MAX_LENGTH = 16


def answer(question: Question) -> dict[str, Any]:
    """p(state at each position | shown tokens), and p(token | shown tokens) where one is hidden.

    Worked value: two states, stay = clear = ¾, tokens 0 ?: the second state is 0 with
    ¾·¾ + ¼·¼ = 5/8, and its token with 5/8·¾ + 3/8·¼ = 9/16.
    """
    check_names(question, ("states", "stay", "clear", "tokens", "hidden"))
    states = as_count("states", question["states"], at_least=2, at_most=MAX_STATES)
    stay = as_probability("stay", question["stay"], strictly=True)
    clear = as_probability("clear", question["clear"], strictly=True)
    row = as_list("tokens", question["tokens"], "tokens")
    covered = as_list("hidden", question["hidden"], "True or False")
    length = as_count("the number of tokens", len(row), at_least=1, at_most=MAX_LENGTH)
    tokens, hidden = as_masked([row], [covered], states, length=length)
    hmm = persistent(states, stay, clear, length)
    return {
        "states": hmm.log_posterior(tokens, hidden)[0].exp().tolist(),
        "tokens": hmm.masked_log_probs(tokens, hidden)[0].exp().tolist(),
    }


def persistent(states: int, stay: float, clear: float, length: int) -> HMM:
    """The HMM of this page; its first state is uniform."""
    return HMM(
        torch.full((states,), 1 / states, dtype=torch.float64),
        _mostly_same(states, stay),
        _mostly_same(states, clear),
        length,
    )


def _mostly_same(size: int, same: float) -> torch.Tensor:
    """`same` on the diagonal, and the rest shared alike."""
    other = (1 - same) / (size - 1)
    matrix = torch.full((size, size), other, dtype=torch.float64)
    return matrix.fill_diagonal_(same)
