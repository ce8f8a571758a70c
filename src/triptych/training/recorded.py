"""A training step recorded once as a CUDA graph and replayed: no waiting for kernel launches.

A small network on a large GPU spends its time on launching kernels. A recorded step launches all
of them at once. Every shape of the inputs has a recording of its own. Where recording fails, and on
a CPU, the same step runs as it is written.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.training.step import Descent

_WARM_UP = (
    3  # steps of a shape before it is recorded, so that kernels are chosen and memory is held
)


class RecordedSteps:
    """Steps of a `Descent` on inputs of a few shapes.

    The descent must be made with `recorded=True`, which keeps the learning rate in a tensor.
    failed    why recording was given up, or None
    """

    def __init__(
        self, descent: Descent, loss: Callable[[Sequence[Tensor]], Float[Tensor, ""]]
    ) -> None:
        self.descent, self.loss = descent, loss
        self.failed: str | None = None
        self._seen: dict[tuple[torch.Size, ...], int] = {}
        self._graphs: dict[
            tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]
        ] = {}
        self._pool: Any = None

    def step(self, number: int, inputs: Sequence[Tensor]) -> None:
        """One step on these inputs; `number` counts from 0 and sets the rate."""
        shape = tuple(each.shape for each in inputs)
        seen = self._seen[shape] = self._seen.get(shape, 0) + 1
        self.descent.set_rate(number)
        on_gpu = all(each.is_cuda for each in inputs)
        if on_gpu and self.failed is None and seen > _WARM_UP:
            if shape not in self._graphs:
                self._record(shape, inputs)
            if shape in self._graphs:
                graph, held, value = self._graphs[shape]
                for mine, given in zip(held, inputs, strict=True):
                    mine.copy_(given)
                graph.replay()
                self.descent.note(number, value.clone())
                return
        self.descent.note(number, self._as_written(inputs) if not on_gpu else self._aside(inputs))

    def _as_written(self, inputs: Sequence[Tensor]) -> Float[Tensor, ""]:
        value = self.loss(inputs)
        self.descent.update(value)
        return value.detach()

    def _aside(self, inputs: Sequence[Tensor]) -> Float[Tensor, ""]:
        """On a stream of its own, so that a recording finds nothing that waits on the main one."""
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            value = self._as_written(inputs)
        torch.cuda.current_stream().wait_stream(self._side)
        return value

    @functools.cached_property
    def _side(self) -> torch.cuda.Stream:
        return torch.cuda.Stream()

    def _record(self, shape: tuple[torch.Size, ...], inputs: Sequence[Tensor]) -> None:
        """Capturing runs nothing: the parameters stay as they are."""
        held = [each.clone() for each in inputs]
        graph = torch.cuda.CUDAGraph()
        try:
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool=self._pool):
                value = self._as_written(held)
        except (RuntimeError, ValueError) as error:
            self.failed = f"{type(error).__name__}: {error}".splitlines()[0]
            torch.cuda.synchronize()
            return
        self._pool = graph.pool()
        self._graphs[shape] = (graph, held, value)
