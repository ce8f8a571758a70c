"""What a program returns, as a value that can be compared and be the key of a dict."""

import dataclasses
import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triptych.core.errors import UserError
from triptych.laws.continuous import Draw
from triptych.laws.search import Refused, Site

_HOW = "return a number, a string, a tensor, an array, or lists and dicts of these"


def canonical(outcome: Any) -> Hashable:
    """Tensors, arrays and lists as nested tuples; dicts and dataclasses as tuples of items."""
    if isinstance(outcome, bool | int | str | bytes | type(None)):
        return outcome
    if isinstance(outcome, float):
        return (
            math.nan if math.isnan(outcome) else outcome
        )  # one nan, which equals itself in a dict
    if isinstance(outcome, Tensor):
        return _nested(outcome.detach().cpu().tolist())
    if isinstance(outcome, np.ndarray | np.generic):
        return _nested(outcome.tolist())
    if isinstance(outcome, list | tuple):
        return tuple(canonical(item) for item in outcome)
    if isinstance(outcome, set | frozenset):
        return frozenset(canonical(item) for item in outcome)
    if isinstance(outcome, Mapping):
        return tuple(sorted(((k, canonical(v)) for k, v in outcome.items()), key=repr))
    if dataclasses.is_dataclass(outcome) and not isinstance(outcome, type):
        return tuple(
            canonical(getattr(outcome, field.name)) for field in dataclasses.fields(outcome)
        )
    if isinstance(outcome, Draw):
        raise Refused(
            f"the program returns a continuous draw ({outcome.source.what}), which has no finite "
            "law; return what it decides with it",
            Site("the result", 0, "return"),
        )
    if isinstance(outcome, Hashable) and type(outcome).__eq__ is not object.__eq__:
        return outcome
    raise UserError(
        f"the program returned a {type(outcome).__name__}, which cannot be compared; {_HOW}"
    )


def _nested(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(_nested(item) for item in value)
    return canonical(value)


def is_tensor_with(outcome: Any, holds: Any) -> bool:
    """Whether some tensor in the outcome has continuous draws."""
    if isinstance(outcome, Tensor):
        return bool(holds(outcome))
    if isinstance(outcome, Mapping):
        return any(is_tensor_with(item, holds) for item in outcome.values())
    if isinstance(outcome, list | tuple):
        return any(is_tensor_with(item, holds) for item in outcome)
    return False


def as_probs(name: str, probs: Any) -> dict[Hashable, float]:
    """A law that a user hands over: outcomes to probabilities, or a tensor of them."""
    if isinstance(getattr(probs, "probs", None), dict):
        return dict(probs.probs)
    if isinstance(probs, Tensor | np.ndarray):
        table = torch.as_tensor(probs).double()
        places = torch.cartesian_prod(*(torch.arange(n) for n in table.shape))
        keys = places.tolist() if table.ndim > 1 else places.reshape(-1).tolist()
        probs = dict(zip(map(canonical, keys), table.reshape(-1).tolist(), strict=True))
    if not isinstance(probs, Mapping):
        raise UserError(
            f"{name} is a {type(probs).__name__}; it must be a dict from outcomes to "
            "probabilities, or a tensor of probabilities"
        )
    found: dict[Hashable, float] = {}
    for outcome, p in probs.items():
        value = float(p)
        if not -1e-12 <= value <= 1 + 1e-6:
            raise UserError(f"{name}[{outcome!r}] is {value:.6g}, which is no probability")
        key = canonical(outcome)
        found[key] = found.get(key, 0.0) + value
    total = math.fsum(found.values())
    if abs(total - 1) > 1e-6:
        raise UserError(f"the probabilities of {name} sum to {total:.8g}, and must sum to 1")
    return found
