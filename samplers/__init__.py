"""Samplers of released libraries, each with the promise it makes, held against its exact law."""

import os

# Plain Python instead of machine code, so that the draws inside can be followed; and no search for a GPU by jax.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
