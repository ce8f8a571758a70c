"""What a program may not do while its choices are enumerated, and how that is noticed.

It changes its arguments, starts a thread, or draws from a generator that no door knows.
"""

import builtins
import contextlib
import importlib
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, no_type_check

import numpy as np
import torch
from torch import Tensor

from triptych.core.errors import UserError
from triptych.laws.search import refuse


class Watch:
    """Holds what must not change during the enumeration against what it was before."""

    def __init__(self, program: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
        self.given = {f"argument {k}": arg for k, arg in enumerate(args)} | kwargs
        self.before = {name: _fingerprint(value) for name, value in self.given.items()}

    def __enter__(self) -> "Watch":
        self.patches = contextlib.ExitStack()
        self._put(threading.Thread, "start", _no_thread)
        self._put(os, "urandom", _no_entropy)
        for name in ("random", "getrandbits", "_randbelow", "randbytes"):
            self._put(random.SystemRandom, name, _no_entropy)
        for library in _OTHER_LIBRARIES & set(sys.modules):
            for name, value in list(vars(sys.modules[library]).items()):
                if callable(value) and name not in _KEYS and not name.startswith("_"):
                    self._put(sys.modules[library], name, _no_other(library, name))
        self.states = _states()
        return self

    def __exit__(self, *problem: Any) -> None:
        self.patches.close()
        if problem[0] is None:
            self._check_states()

    def _put(self, owner: Any, name: str, value: Any) -> None:
        """An attribute for as long as the program is watched."""
        own = vars(owner)
        if name in own:
            self.patches.callback(setattr, owner, name, own[name])
        else:
            self.patches.callback(delattr, owner, name)
        setattr(owner, name, value)

    def check_arguments(self) -> None:
        for name, value in self.given.items():
            if _fingerprint(value) != self.before[name]:
                raise UserError(
                    f"the program changes its {name} in place, so each run would begin with what "
                    "the run before left; pass a copy: law_of(lambda: program(x.clone()))"
                )

    def _check_states(self) -> None:
        for name, state in _states().items():
            if state != self.states[name]:
                raise UserError(
                    f"the program drew from {name} by a way that no door sees (compiled code, or a "
                    "function kept from before); its law is not what was enumerated"
                )


@contextlib.contextmanager
@no_type_check  # a checker that is made at the first call imports modules itself
def imports_with(paused: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """Modules that are loaded while the program runs are loaded inside of `paused()`."""
    plain, by_name = builtins.__import__, importlib.import_module

    def load(
        name: str, names: Any = None, local: Any = None, wanted: Any = (), level: int = 0
    ) -> Any:
        whole = name
        if level and names:
            package = names.get("__package__") or ""
            whole = f"{package.rsplit('.', level - 1)[0] if level > 1 else package}.{name}".strip(
                "."
            )
        if whole in sys.modules:
            return plain(name, names, local, wanted, level)
        with paused():
            return plain(name, names, local, wanted, level)

    def load_by_name(name: str, package: str | None = None) -> Any:
        if name in sys.modules:
            return by_name(name, package)
        with paused():
            return by_name(name, package)

    builtins.__import__, importlib.import_module = load, load_by_name
    try:
        yield
    finally:
        builtins.__import__, importlib.import_module = plain, by_name


def _states() -> dict[str, Any]:
    kind, keys, place, *rest = np.random.get_state(legacy=True)
    states = {
        "torch's generator": torch.get_rng_state().numpy().tobytes(),
        "numpy's global generator": (kind, keys.tobytes(), place, *rest),  # type: ignore[union-attr]
    }
    if "beartype" not in sys.modules:  # which draws there which items of a list it checks
        states["Python's random"] = random.getstate()
    return states


_OTHER_LIBRARIES = {"jax.random", "tensorflow.random", "cupy.random", "mlx.core.random"}
_KEYS = {"PRNGKey", "key", "split", "fold_in", "key_data", "wrap_key_data", "key_impl", "clone"}


def _no_other(library: str, name: str) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        raise refuse(
            f"the program draws with {library}.{name}, which no door answers; its law is not known "
            "here, and certify_by_draws can test it"
        )

    return draw


def _no_entropy(*args: Any, **kwargs: Any) -> Any:
    raise refuse(
        "the program draws from the entropy of the system (os.urandom, random.SystemRandom or "
        "secrets), which no door answers; draw with random.Random"
    )


def _no_thread(thread: threading.Thread) -> None:
    raise refuse(
        "the program starts a thread; which one draws first is no choice of the program, so it has "
        "no law that can be enumerated"
    )


def _fingerprint(value: Any, depth: int = 0) -> Any:
    """Something that differs after a change in place."""
    if isinstance(value, Tensor):
        return ("tensor", id(value), -1 if value.is_inference() else value._version)
    if isinstance(value, np.ndarray):
        return ("array", value.shape, value.tobytes() if value.nbytes < 1_000_000 else value.sum())
    if isinstance(value, list | tuple) and depth < 4 and len(value) < 10_000:
        return tuple(_fingerprint(item, depth + 1) for item in value)
    if isinstance(value, dict) and depth < 4 and len(value) < 10_000:
        return tuple((key, _fingerprint(item, depth + 1)) for key, item in value.items())
    if isinstance(value, int | float | str | bool | bytes | type(None)):
        return value
    return id(value)
