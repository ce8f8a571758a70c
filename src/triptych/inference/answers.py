"""What a model and a verifier answer: laws and values, or a sentence that says what it was instead.

A law is a row of log-probabilities whose exponentials sum to 1; a value is a number or -inf.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import NextToken, Question, ReadsOver, Value, Verifier
from triptych.core.validation import UserError, check_can

LAW_TOLERANCE = 1e-4
"""How far the sum of a law may be from 1; as `rng.categorical`, it forgives single precision."""
HIGHEST_VALUE = 1e200
"""Of log V: the difference of two such values is a float again."""


def check_laws(
    log_probs: Tensor,
    shape: Sequence[int],
    device: torch.device,
    whose: str,
    at: Callable[[int], str],
) -> None:
    """`log_probs` has this shape and its rows are laws; `at(row)` says where a row stands."""
    check_answer(log_probs, shape, device, whose)
    check_sums(log_probs, whose, at)


def check_answer(log_probs: Tensor, shape: Sequence[int], device: torch.device, whose: str) -> None:
    """`log_probs` has this shape, on this device."""
    wrong = (
        not isinstance(log_probs, Tensor)
        or log_probs.shape != shape
        or log_probs.device != device
        or not log_probs.is_floating_point()
    )
    if wrong:
        raise UserError(
            f"{whose} answered {described(log_probs)}; it must answer log-probabilities of shape "
            f"{tuple(shape)} on {device}, one column a token",
            parameter="shape",
        )


def check_sums(
    log_probs: Float[Tensor, "*rows vocab"], whose: str, at: Callable[[int], str]
) -> None:
    """The exponentials of every row sum to 1: nan, logits and rows without mass do not."""
    if log_probs.numel() == 0:
        return
    totals = log_probs.double().exp().sum(-1)
    lowest, highest = totals.aminmax()
    if lowest.item() > 1 - LAW_TOLERANCE and highest.item() < 1 + LAW_TOLERANCE:
        return
    totals = totals.reshape(-1)
    row = int(((totals - 1).abs() < LAW_TOLERANCE).logical_not().nonzero()[0])  # nan is off too
    raise UserError(
        f"{whose} gives no law {at(row)}: the exponentials sum to {totals[row].item():.6g}; they "
        "must be log-probabilities, whose exponentials sum to 1 (log_softmax(-1) makes them)",
        parameter="whose",
    )


def probs_after(lm: NextToken, text: tuple[int, ...]) -> list[float]:
    """p(· | text) as plain numbers, for the laws that are found by recursion."""
    prefix = torch.tensor([text], dtype=torch.long).reshape(1, -1)
    log_probs, name = lm.next_token_log_probs(prefix), type(lm).__name__
    check_laws(log_probs, (1, lm.vocab_size), prefix.device, name, lambda _: f"after {list(text)}")
    return log_probs[0].exp().tolist()


def value_of(verifier: Value, text: tuple[int, ...], *, over: bool = False) -> float:
    """log V of one prefix that is not empty; `over`: it is asked about as a finished text."""
    row = torch.tensor([text], dtype=torch.long)
    if over and isinstance(verifier, ReadsOver) and isinstance(verifier, Verifier):
        return verifier.log_values(Question.about(row, over=True)).item()
    return values_of(verifier, row).item()


def no_values(values: Any, asked: Int[Tensor, " rows"]) -> str:
    """What a verifier gave instead of one real number for each row; "" if it gave that."""
    if not isinstance(values, Tensor) or values.shape != asked.shape:
        return described(values)
    return described(values) if values.is_complex() or values.device != asked.device else ""


def values_of(verifier: Value, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
    """log V of each prefix, float64, as the laws in closed form need them."""
    check_can("verifier", verifier, "log_value")
    values, name = verifier.log_value(prefix), type(verifier).__name__
    if given := no_values(values, torch.empty_like(prefix[:, :1]).sum(-1)):
        raise UserError(
            f"{name} must answer one number a prefix, {len(prefix)} here; it gave {given}",
            parameter="prefix",
        )
    values = values.double()
    if (bad := values.isnan() | (values > HIGHEST_VALUE)).any():
        row = int(bad.nonzero()[0])
        raise UserError(
            f"{name} says log V = {values[row].item():g} of {prefix[row].tolist()}; values must be "
            "finite or -inf",
            parameter="prefix",
        )
    return values


def described(answer: object) -> str:
    """An answer in a message: a tensor by its type, shape and device."""
    if not isinstance(answer, Tensor):
        return f"a {type(answer).__name__}"
    return f"{answer.dtype} of shape {tuple(answer.shape)} on {answer.device}"
