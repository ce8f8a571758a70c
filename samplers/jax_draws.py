"""Draws of jax, as draws of torch: `jax.random` is replaced while a program runs, and nothing else.

jax draws from keys by pure functions, which no door of torch or numpy sees. Here `bernoulli`, `categorical` and `choice` ask
torch instead, with the same probabilities, so that the program can be enumerated as others are. A program that is
compiled or mapped has no numbers to ask for: `jax.disable_jit` runs its loops in Python.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch


@contextlib.contextmanager
def jax_draws(loops: bool = True) -> Iterator[None]:
    """While this is open, jax's discrete draws come from torch; without loops nothing is kept from compiling."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, **_: Any) -> Any:
        p = jnp.broadcast_to(jnp.asarray(p), shape if shape is not None else jnp.shape(p))
        drawn = torch.bernoulli(torch.tensor(np.asarray(p, dtype=np.float64)))
        return jnp.asarray(drawn.numpy().astype(bool))

    def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None, **_: Any) -> Any:
        rows = torch.tensor(np.moveaxis(np.asarray(logits, dtype=np.float64), axis, -1))
        flat = rows.reshape(-1, rows.shape[-1])
        drawn = torch.multinomial(flat.softmax(-1), 1).reshape(rows.shape[:-1])
        found = jnp.asarray(drawn.numpy())
        return found if shape is None else jnp.broadcast_to(found, shape)

    def choice(key: Any, a: int, shape: Any = (), p: Any = None, **_: Any) -> Any:
        assert shape == (), "one draw at a time"
        weights = np.ones(a) if p is None else np.asarray(p, dtype=np.float64)
        return jnp.asarray(torch.multinomial(torch.tensor(weights), 1)[0].numpy())

    draws = {"bernoulli": bernoulli, "categorical": categorical, "choice": choice}
    with contextlib.ExitStack() as stack:
        if loops:
            stack.enter_context(jax.disable_jit())
        for name, draw in draws.items():
            stack.enter_context(mock.patch.object(jax.random, name, draw))
        yield


def seed() -> int:
    """A seed for a key, from numpy: for programs of jax that are judged by draws."""
    import numpy as np

    return int(np.random.randint(2**31 - 1))
