"""What the studies of masked training share: models and mask laws by name, and efficiency."""

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.theory.masking.families import (
    Family,
    HMMFamily,
    IsingFamily,
    TableFamily,
    identifiable,
)

FIELD = 0.1  # on every spin, so that no symmetry hides a difference
DRAWN = ("random", "hmm", "table")  # models that depend on the seed


def family_named(name: str, seed: int = 0) -> Family:
    """A family around a truth.

    "hmm 3": two states, three letters, length 3. "table 2 3": any law on 2^3 strings. Otherwise as
    `ising_named` has it.
    """
    kind, *numbers = name.split()
    match kind:
        case "hmm":
            length = int(numbers[0])
            return identifiable(HMMFamily(HMM.random(2, 3, length, seed=seed), length))
        case "table":
            return TableFamily(Table.random(int(numbers[0]), int(numbers[1]), seed=seed))
        case _:
            return IsingFamily(ising_named(name, seed))


def ising_named(name: str, seed: int = 0) -> Ising:
    """ "chain 4 0.3", "grid 2 3 0.4", "clique 4 0.3" or "random 4 0.8", in a field."""
    kind, *sizes, last = name.split()
    counts, coupling = [int(size) for size in sizes], float(last)
    match kind, counts:
        case "chain", [spins]:
            return Ising.chain(spins, coupling, FIELD)
        case "grid", [rows, columns]:
            return Ising.grid(rows, columns, coupling, FIELD)
        case "clique", [spins]:
            return Ising.clique_and_free(spins, spins, coupling, FIELD)
        case "random", [spins]:
            return Ising.random(spins, scale=coupling, seed=seed)
    raise UserError(f"{name!r} is no model: use for instance 'chain 4 0.3' or 'grid 2 3 0.4'")


def law_named(name: str, length: int) -> MaskLaw:
    """ "size 2", "spans 2", "independent 0.3"; those that look at x are "ones 1.5", "changes 1.5".

    "ones a": single positions and neighbours, in proportion to e^(a · ones in the block).
    "changes a": two neighbours, in proportion to e^a where they differ.
    """
    kind, value = name.split()
    singles = [[i] for i in range(length)]
    pairs = [[i, i + 1] for i in range(length - 1)]
    match kind:
        case "size":
            return MaskLaw.of_size(length, int(value))
        case "spans":
            return MaskLaw.spans(length, int(value))
        case "independent":
            return MaskLaw.independent(length, float(value))
        case "ones":
            blocks = singles + pairs

            def ones(tokens: Tensor) -> Tensor:
                counts = [(tokens[:, block] > 0).sum(1) for block in blocks]
                return float(value) * torch.stack(counts, 1).double()

            return MaskLaw.looking(length, blocks, ones)
        case "changes":

            def changes(tokens: Tensor) -> Tensor:
                return float(value) * (tokens[:, 1:] != tokens[:, :-1]).double()

            return MaskLaw.looking(length, pairs, changes)
    raise UserError(f"{name!r} is no mask law: use for instance 'size 2', 'spans 2', 'ones 1.5'")


def efficiency(fisher: Float[Tensor, "d d"], gamma: Float[Tensor, "d d"]) -> tuple[float, float]:
    """The largest eigenvalue of I^½ Γ I^½, and tr Γ / tr I⁻¹: 1 and 1 for maximum likelihood.

    Worked value: I = 1 and Γ = diag(2, 2, 1), two free spins with blocks of one: 2 and 5/3.
    """
    values, vectors = torch.linalg.eigh(fisher)
    root = vectors * values.sqrt() @ vectors.T
    worst = torch.linalg.eigvalsh(root @ gamma @ root)[-1]
    return float(worst), float(gamma.trace() / (1 / values).sum())
