"""What a running unit is given: its device, its randomness, a cache of tensors, a tracker."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex

import torch
from torch import Tensor

from triptych import __version__
from triptych.core.randomness import TorchRng
from triptych.lab.running.cache import TensorCache
from triptych.lab.running.fingerprint import fingerprint_of, library_digest
from triptych.lab.running.tracking import Tracker, checked


class WorkBench:
    """A running unit's device, randomness and cache on disk."""

    def __init__(self, seed: int, device: str, cache: Path, tracker: Tracker | None = None) -> None:
        self._seed = seed
        self._device = device
        self._asked = False
        self._cache = TensorCache(cache)
        self._tracker = tracker

    @property
    def device(self) -> str:
        self._asked = True
        return self._device

    @property
    def used_device(self) -> str:
        """Where the unit computed, as "cuda:0": on the CPU if it never asked for its device."""
        if not self._asked or self._device == "cpu" or not torch.cuda.is_initialized():
            return "cpu"
        index = torch.device(self._device).index
        return f"cuda:{torch.cuda.current_device() if index is None else index}"

    def rng(self, purpose: str = "") -> TorchRng:
        """A generator that depends on the unit's seed and the purpose alone."""
        return TorchRng(derived_seed(self._seed, purpose), self.device)

    def track(self, step: SupportsIndex, **numbers: SupportsFloat) -> None:
        """Hand numbers at a step to the tracker of the run, if it has one; rows have no part in it.

        bench.track(step, loss=0.5, kl=0.1)
        """
        if self._tracker is not None:
            self._tracker.write(*checked(step, numbers))

    def tensors(
        self, key: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]
    ) -> Mapping[str, Tensor]:
        """Named tensors on the device, made once and kept on disk.

        An entry depends on the key, and besides on the kind of device, the version of torch, and
        the code of Triptych and of the study that makes it.
        """
        device = self.device
        made_by = {
            "key": dict(key),
            "device": torch.device(device).type,
            "triptych": __version__,
            "library": library_digest(),
            "made by": fingerprint_of(make),
            "torch": torch.__version__,
        }
        found = self._cache.get(made_by, make)
        return {title: tensor.to(device) for title, tensor in found.items()}


def derived_seed(seed: int, purpose: str) -> int:
    """A seed of 63 bits that depends on both; different purposes give unrelated streams."""
    digest = hashlib.sha256(json.dumps([seed, purpose]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
