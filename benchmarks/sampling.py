"""Gibbs sampling of spins against thrml and eager torch; the exact theory of masking, in seconds.

Every program has one core: the process may run on no other while they are measured.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from benchmarks.timing import compare, one_core, seconds
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.inference.chains.spins import SpinGibbs, colours
from triptych.structures.ising import Ising
from triptych.theory.masking.blocks.dynamics import BlockDynamics, poincare_constant
from triptych.theory.masking.families import IsingFamily
from triptych.theory.masking.information import asymptotic_covariance

Row = dict[str, Any]
SIDE, COUPLING, FIELD = 8, 0.3, 0.1
CHAINS, SWEEPS, TURNS = 1000, 100, 9
MINUTE = 60.0
SPINS = [8, 10, 12, 14]


def run() -> Iterator[Row]:
    with one_core():
        yield spins_against_thrml()
        yield spins_against_eager()
        yield covariances()
        for k in (1, 2, 7):
            yield poincare(k)
        for k in (1, 2, 7):
            yield poincare_growth(k)


# ---------------------------------------------------------------------- spins


def spins_against_thrml() -> Row:
    what, model = _what(), Ising.grid(SIDE, SIDE, COUPLING, FIELD)
    try:
        peer = thrml_sweeps(model, CHAINS, SWEEPS)
    except ImportError as error:
        return {"what": what, "peer": "thrml", "not_run": f"{error}; pip install thrml"}
    peer()  # compiles
    return {**_row(model, peer, "thrml (JAX, compiled)", bar=1.0), "cores_theirs": cores_of(peer)}


def spins_against_eager() -> Row:
    model = Ising.grid(SIDE, SIDE, COUPLING, FIELD)
    generator = torch.Generator().manual_seed(0)
    return _row(
        model,
        lambda: eager_sweeps(model, CHAINS, SWEEPS, generator),
        "eager torch, the same blocks, float32",
    )


def _what() -> str:
    return f"Gibbs sampling, {SIDE} x {SIDE} grid, {CHAINS} chains, {SWEEPS} sweeps"


def _row(model: Ising, peer: Callable[[], Tensor], name: str, **bar: float) -> Row:
    """Both programs in turn; their mean energies a site show that they sample the same law."""
    gibbs, rng = SpinGibbs(model.coupling, model.field), TorchRng(0)
    start = torch.zeros(CHAINS, model.length, dtype=torch.long)

    def ours() -> Int[Tensor, "chains sites"]:
        return gibbs.fast_sweep(start, sweeps=SWEEPS, rng=rng)

    result = compare(ours, peer, turns=TURNS)
    updates = CHAINS * SWEEPS * model.length
    mine, theirs = _energies(model, ours()), _energies(model, peer())
    error = math.sqrt((mine.var() + theirs.var()).item() / CHAINS)
    return {
        "what": _what(),
        "peer": name,
        **bar,
        **result._asdict(),
        "updates_per_second": updates / result.ours,
        "updates_per_second_theirs": updates / result.theirs,
        "energy_apart_in_standard_errors": (mine.mean() - theirs.mean()).item() / error,
    }


def _energies(model: Ising, tokens: Int[Tensor, "chains sites"]) -> Float[Tensor, " chains"]:
    return -model.log_weight(tokens) / model.length


def eager_sweeps(
    model: Ising, chains: int, sweeps: int, generator: torch.Generator
) -> Int[Tensor, "chains sites"]:
    """Block Gibbs as one writes it down: fields, sigmoid, uniform, compare."""
    coupling, field = model.coupling.float(), model.field.float()
    classes = [torch.tensor(members) for members in colours(model.coupling)]
    spins = -torch.ones(model.length, chains)
    for _ in range(sweeps):
        for at in classes:
            probs = torch.sigmoid(2 * (field[at, None] + coupling[at] @ spins))
            spins[at] = 2 * (torch.rand(probs.shape, generator=generator) < probs).float() - 1
    return (spins.T > 0).long()


def thrml_sweeps(
    model: Ising, chains: int, sweeps: int
) -> Callable[[], Int[Tensor, "chains sites"]]:
    """thrml's block Gibbs sampler with one block a colour, mapped over chains and compiled."""
    import jax
    import numpy as np
    from thrml import Block, SamplingSchedule, SpinNode, sample_states
    from thrml.models import IsingEBM, IsingSamplingProgram, hinton_init

    nodes: list[Any] = [SpinNode() for _ in range(model.length)]
    pairs = torch.nonzero(model.coupling.triu()).tolist()
    weights = jax.numpy.array([float(model.coupling[i, j]) for i, j in pairs])
    law = IsingEBM(
        nodes,
        [(nodes[i], nodes[j]) for i, j in pairs],
        jax.numpy.array(model.field.tolist()),
        weights,
        jax.numpy.array(1.0),
    )
    blocks: list[Any] = [Block([nodes[i] for i in members]) for members in colours(model.coupling)]
    program = IsingSamplingProgram(law, blocks, [])
    schedule = SamplingSchedule(n_warmup=sweeps, n_samples=1, steps_per_sample=1)
    start = hinton_init(jax.random.key(0), law, blocks, (chains,))
    keys = jax.random.split(jax.random.key(1), chains)

    @jax.jit
    @jax.vmap
    def sample(key: Any, state: Any) -> Any:
        return sample_states(key, program, schedule, state, [], [Block(nodes)])[0][0]

    return lambda: torch.from_numpy(np.array(jax.block_until_ready(sample(keys, start)))).long()


def cores_of(program: Callable[[], Any]) -> float:
    """Processor time over wall-clock time: how many cores a program keeps busy."""
    before = time.process_time()
    wall = seconds(program)
    return (time.process_time() - before) / wall


# ---------------------------------------------------------------------- theory


def covariances() -> Row:
    """Γ for every k at 8 spins: fields and all pairs are parameters, 36 of them."""
    family = IsingFamily(Ising.grid(2, 4, COUPLING, FIELD))

    def every() -> None:
        for k in range(1, 9):
            asymptotic_covariance(family, MaskLaw.of_size(8, k))

    return _against_a_minute(
        "asymptotic covariance of k-masked prediction, 8 spins, every k", every
    )


def _dynamics(spins: int, k: int) -> BlockDynamics:
    model = Ising.grid(2, spins // 2, COUPLING, FIELD)
    return BlockDynamics(Table.of(model), MaskLaw.of_size(spins, k))


def poincare(k: int) -> Row:
    spins = SPINS[-1]
    what = f"Poincaré constant, 2^{spins} states, all {math.comb(spins, k)} blocks of {k}"
    return _against_a_minute(what, lambda: poincare_constant(_dynamics(spins, k)))


def _against_a_minute(what: str, program: Callable[[], Any]) -> Row:
    times = [seconds(program) for _ in range(3)]
    return {
        "what": what,
        "peer": "the bar of 60 s",
        "bar": 1.0,
        "ours": statistics.median(times),
        "theirs": MINUTE,
        "ratio": MINUTE / statistics.median(times),
        "low": MINUTE / max(times),
        "high": MINUTE / min(times),
    }


def poincare_growth(k: int) -> Row:
    """Slope of log time against log states, without a matrix at any size."""
    times = []
    for spins in SPINS:

        def once(spins: int = spins) -> float:
            return poincare_constant(_dynamics(spins, k), method="lanczos")

        times.append(min(seconds(once) for _ in range(3)))
    states = [2**spins for spins in SPINS]
    return {
        "what": f"growth of that with states, blocks of {k}, 2^{SPINS[0]} to 2^{SPINS[-1]}",
        "peer": "exponent (seconds against states)",
        "exponent": math.log(times[-1] / times[0]) / math.log(states[-1] / states[0]),
        "sizes": states,
        "seconds": times,
    }
