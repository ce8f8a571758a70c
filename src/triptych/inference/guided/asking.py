"""Verifiers of every form as one that is asked a `Question`.

Verifier            log_values(asked)                       as it is
Value               log_value(prefix), rows of one length   `ByLength`
of a decoder        decoder_log_value(decoder, rows)        `ByDecoder`
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import Decoder, Question, Value, Verifier
from triptych.core.validation import UserError
from triptych.inference.answers import no_values


class NoAnswer(Exception):
    """A verifier gave no answer; `places` are the rows of the question that it was about."""

    def __init__(self, sentence: str, places: Int[Tensor, " places"]) -> None:
        super().__init__(sentence)
        self.places = places


@runtime_checkable
class OfDecoder(Protocol):
    """A verifier of a network's states in its simple form: no question, rows of a decoder."""

    def decoder_log_value(
        self, decoder: Decoder, rows: Int[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]: ...


@dataclass(eq=False)
class ByLength:
    """A `Value` as a `Verifier`: it is asked about the rows of one length at a time.

    passes   questions to the value so far

    Worked value: three rows of 2, 3 and 2 tokens are two questions to the value.
    """

    value: Value
    passes: int = field(init=False, default=0)

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]:
        answers = torch.zeros(len(asked.lengths), dtype=torch.float64, device=asked.tokens.device)
        for places, prefix in asked.by_length():
            self.passes += 1
            values = answered(self.value, lambda rows=prefix: self.value.log_value(rows), places)
            answers[places] = values.double()
        return answers


@dataclass(frozen=True, eq=False)
class ByDecoder:
    """A verifier of a decoder's rows as a `Verifier`.

    layer   of the network, whichever the decoder shows
    """

    value: OfDecoder
    layer: None = None

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]:
        if asked.decoder is None or asked.at is None:
            raise UserError(
                f"{type(self.value).__name__} reads a decoder; this question has none",
                parameter="value",
            )
        return self.value.decoder_log_value(asked.decoder, asked.at)


def as_verifier(verifier: Any) -> Verifier | None:
    """A verifier of any form as one that takes questions; None stays None."""
    if verifier is None or isinstance(verifier, Verifier):
        return verifier
    if isinstance(verifier, Value):
        return ByLength(verifier)
    if isinstance(verifier, OfDecoder):
        return ByDecoder(verifier)
    raise UserError(
        "a verifier has log_values(asked), or log_value(prefix) for rows of one length; "
        f"{type(verifier).__name__} has neither",
        parameter="verifier",
    )


def name_of_verifier(verifier: object) -> str:
    """The class of what a user gave."""
    given = verifier.value if isinstance(verifier, ByLength | ByDecoder) else verifier
    return type(given).__name__


def answered(
    verifier: object, ask: Callable[[], Any], places: Int[Tensor, " places"]
) -> Float[Tensor, " places"]:
    """One number for each of the places, or `NoAnswer`."""
    name = name_of_verifier(verifier)
    try:
        values = ask()
    except NoAnswer:
        raise
    except Exception as error:
        raise NoAnswer(f"{name} raised {type(error).__name__}: {error}", places) from error
    if given := no_values(values, places):
        raise NoAnswer(
            f"{name} must answer one number a prefix, {len(places)} here; it gave {given}", places
        )
    return values
