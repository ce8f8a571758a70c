"""The page on blocks: how fast Gibbs sampling of an Ising model mixes, by coupling and block size.

A step redraws a block of spins, chosen uniformly among all blocks of one size, given the others.
"""

from typing import Any

import torch

from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.core.validation import as_count, as_number, as_seed
from triptych.inference.chains import gibbs
from triptych.lab.serving.questions import Question, as_choice, check_names
from triptych.structures.ising import Ising
from triptych.theory.masking.blocks.dynamics import BlockDynamics, slowest
from triptych.theory.masking.blocks.mixing import mixing_time

GRAPHS = ("chain", "all pairs")
MAX_SPINS = 7
MAX_COUPLING = 2.0
STEPS = 60


def answer(question: Question) -> dict[str, Any]:
    """The gap of every block size, and one chain of this size that starts with all spins down.

    gaps      1 - λ_2 for blocks of 1, 2, ... spins
    mixing    steps until the law is within ¼ of the target, from the worst start
    path      the spins after 0, 1, ... steps of a chain that is drawn with this seed
    distance  total variation between its exact law and the target after 0, 1, ... steps

    Worked value: two spins with coupling J, blocks of 1: the gap is 1 / (1 + e^(2J)).
    """
    check_names(question, ("graph", "spins", "coupling", "block", "seed"))
    graph = as_choice("graph", question["graph"], GRAPHS)
    spins = as_count("spins", question["spins"], at_least=2, at_most=MAX_SPINS)
    coupling = as_number("coupling", question["coupling"], at_least=0, at_most=MAX_COUPLING)
    block = as_count("block", question["block"], at_least=1, at_most=spins)
    seed = as_seed(question["seed"])
    ising = ising_on(graph, spins, coupling)
    table = Table.of(ising)
    sizes = [BlockDynamics(table, MaskLaw.of_size(spins, k)) for k in range(1, spins + 1)]
    chosen = sizes[block - 1]
    return {
        "gaps": [slowest(dynamics)[0] for dynamics in sizes],
        "mixing": mixing_time(chosen),
        "path": _path(ising, chosen.masks, seed),
        "distance": _distances(chosen),
    }


def ising_on(graph: str, spins: int, coupling: float) -> Ising:
    """Spins without a field, each coupled to its neighbours on a line or to all others."""
    if graph == "chain":
        return Ising.chain(spins, coupling)
    return Ising.clique_and_free(spins, spins, coupling, 0.0)


def _path(ising: Ising, masks: MaskLaw, seed: int) -> list[list[int]]:
    rng = TorchRng(seed)
    now = torch.zeros(1, ising.length, dtype=torch.long)
    path = [now[0].tolist()]
    for _ in range(STEPS):
        now = gibbs.step(ising, now, masks, rng)
        path.append(now[0].tolist())
    return path


def _distances(dynamics: BlockDynamics) -> list[float]:
    law = torch.zeros_like(dynamics.stationary)
    law[0] = 1.0  # all spins down
    found = []
    for _ in range(STEPS + 1):
        found.append(0.5 * float((law - dynamics.stationary).abs().sum()))
        law = dynamics.moved(law)
    return found
