"""Tensors that hold continuous draws: plain ones, and next to their storage what is in each cell.

A cell with a draw has nan in the tensor itself. Views share a storage, so a slice that is filled in
place is known in the whole tensor. What only moves cells runs a second time, on their numbers.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.laws.continuous import Draw, Value
from triptych.laws.search import refuse

_PLAIN = -1


class Cells:
    """Number of a draw for every cell of every storage that has draws; forgotten after a run."""

    def __init__(self) -> None:
        self.draws: list[Draw] = []
        self.storages: dict[int, tuple[Tensor, Int[Tensor, " cells"]]] = {}

    def clear(self) -> None:
        self.draws.clear()
        self.storages.clear()

    def may_hold(self, args: Iterable[Any]) -> bool:
        """Whether some argument is a draw, or shares a storage with draws; it is asked often."""
        storages = self.storages
        for arg in args:
            if isinstance(arg, Tensor):
                if storages and arg.untyped_storage().data_ptr() in storages:
                    return True
            elif isinstance(arg, Draw) or (isinstance(arg, list | tuple) and self.may_hold(arg)):
                return True
        return False

    def numbers(self, tensor: Tensor) -> Tensor | None:
        """The number of the draw in each cell, as a view to write into; None without draws."""
        entry = self.storages.get(tensor.untyped_storage().data_ptr())
        if entry is None or tensor.numel() == 0:
            return None
        if tensor.element_size() != entry[0].element_size():
            raise refuse("the bytes of continuous draws are read as another dtype")
        return entry[1].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def has_draws(self, tensor: Tensor) -> bool:
        numbers = self.numbers(tensor)
        return numbers is not None and bool((numbers >= 0).any())

    def numbers_or_plain(self, tensor: Tensor) -> Tensor:
        numbers = self.numbers(tensor)
        if numbers is None:
            return torch.full(tensor.shape, _PLAIN, dtype=torch.long, device=tensor.device)
        return numbers

    def put_numbers(self, tensor: Tensor, numbers: Tensor) -> None:
        """Say which draws the cells of a tensor hold."""
        own = self.numbers(tensor)
        if own is None:
            if tensor.numel() == 0 or not bool((numbers >= 0).any()):
                return
            storage = tensor.untyped_storage()
            size = storage.nbytes() // tensor.element_size()
            every = torch.full((size,), _PLAIN, dtype=torch.long)
            self.storages[storage.data_ptr()] = (tensor.detach(), every)
            own = self.numbers(tensor)
            assert own is not None
        own.copy_(numbers)

    def values(self, tensor: Tensor, shape: Sequence[int] | None = None) -> list[Value]:
        """What is in each cell, in the order of rows; as if expanded to `shape`."""
        plain = tensor.detach()
        numbers = self.numbers(tensor)
        if shape is not None:
            plain = plain.expand(shape)
        found: list[Any] = plain.reshape(-1).tolist()
        if numbers is not None:
            if shape is not None:
                numbers = numbers.expand(shape)
            for k, number in enumerate(numbers.reshape(-1).tolist()):
                if number >= 0:
                    found[k] = self.draws[number]
        return found

    def put(self, tensor: Tensor, values: Sequence[Value]) -> Tensor:
        """Fill a tensor with draws and plain numbers, in the order of rows."""
        if not any(isinstance(value, Draw) for value in values) and (
            tensor.untyped_storage().data_ptr() not in self.storages
        ):
            plain = torch.tensor(values, dtype=tensor.dtype).reshape(tensor.shape)
            tensor.detach().copy_(plain)
            return tensor
        numbers = []
        plain = []
        for value in values:
            if isinstance(value, Draw):
                numbers.append(len(self.draws))
                self.draws.append(value)
                plain.append(math.nan)
            else:
                numbers.append(_PLAIN)
                plain.append(value)
        if tensor.is_floating_point():
            tensor.detach().copy_(torch.tensor(plain, dtype=tensor.dtype).reshape(tensor.shape))
        elif any(number >= 0 for number in numbers):
            raise refuse("continuous draws are written into a tensor of whole numbers")
        else:
            tensor.copy_(torch.tensor(plain, dtype=tensor.dtype).reshape(tensor.shape))
        self.put_numbers(tensor, torch.tensor(numbers).reshape(tensor.shape))
        return tensor

    def moved(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """What `function` gives, which only moves cells: it runs on tensors and on the numbers."""
        found = function(*args, **kwargs)
        shadow = function(
            *(self._as_numbers(arg) for arg in args),
            **{name: self._as_numbers(arg) for name, arg in kwargs.items() if name != "dtype"},
        )
        self._attach(found, shadow)
        return found

    def _as_numbers(self, arg: Any) -> Any:
        if isinstance(arg, Tensor):
            return self.numbers_or_plain(arg).clone() if arg.is_floating_point() else arg
        if isinstance(arg, list | tuple):
            return type(arg)(self._as_numbers(item) for item in arg)
        return _PLAIN if isinstance(arg, float) else arg

    def _attach(self, found: Any, shadow: Any) -> None:
        if isinstance(found, Tensor):
            if found.is_floating_point():
                self.put_numbers(found, shadow)
        elif isinstance(found, list | tuple):
            for item, numbers in zip(found, shadow, strict=True):
                self._attach(item, numbers)
