"""What do samplers return when a trained masked network stands in for the truth?

Small masked transformers learn spins and an HMM under different masking. Their sequences are short
enough to ask a network about every context, so the law of each sampler is exact: after any number
of steps, in the long run, and per question. Two errors come apart. One is the sampler's: drawing
several positions from one answer is wrong with the truth as oracle too. The other is the network's:
its conditionals are off, most of all where it was not trained, and belong to no joint law.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Rng
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.chains import gibbs, parallel
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.studies.api.study import Bench, Scale, Settings, Study, Unit
from triptych.studies.masking.learned_kernel.figures import FIGURES
from triptych.studies.masking.learned_kernel.rows import (
    MASKINGS,
    ORDERS,
    ROWS,
    STRUCTURES,
    Chain,
    Oracle,
    Row,
    Unmasked,
)
from triptych.theory.masking import consistency, kernels
from triptych.theory.masking.kernels import Conditionals
from triptych.training.loop import fit
from triptych.training.objectives import Objective, Prediction, masked, positions
from triptych.training.step import Recipe


@dataclass(frozen=True)
class LearnedKernel(Settings):
    """What is learned and how.

    structures   weak and strong: all spins but two form a clique [li, (4.6)]; hmm: three words
    maskings     one, all: this many positions are hidden in training; 15%, 40%, 80%: each with this
                 probability; any: their number is uniform, as masked diffusion models train
    moments      numbers of steps after which the law of a chain is compared with the truth
    """

    seeds: int = 3
    structures: tuple[str, ...] = tuple(STRUCTURES)
    maskings: tuple[str, ...] = tuple(MASKINGS)
    spins: int = 6
    words: int = 5
    steps: int = 600
    batch: int = 64
    width: int = 32
    layers: int = 2
    heads: int = 2
    learning_rate: float = 3e-3
    moments: tuple[int, ...] = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377)

    def __post_init__(self) -> None:
        for name, known in (("structures", tuple(STRUCTURES)), ("maskings", tuple(MASKINGS))):
            for value in getattr(self, name):
                if value not in known:
                    near = difflib.get_close_matches(value, known, n=1)
                    hint = f"; did you mean {near[0]!r}?" if near else ""
                    raise UserError(f"{name} has {value!r}, none of {', '.join(known)}{hint}")


def truth(name: str, spins: int, words: int) -> Ising | HMM:
    """Spins in two modes, of which all down is the smaller one; or words with a hidden state."""
    match name:
        case "weak":
            return Ising.clique_and_free(spins, spins - 2, 0.15, 0.1)
        case "strong":
            return Ising.clique_and_free(spins, spins - 2, 0.5, 0.1)
        case "hmm":
            return HMM.random_permutation_mixture(4, 3, words, seed=1, transition_temperature=0.2)
        case _:
            raise UserError(f"structure is {name!r}; it must be one of {', '.join(STRUCTURES)}")


def objective(masking: str, words: int, length: int) -> Objective:
    """Which positions the network predicts in training."""
    match masking:
        case "one":
            return positions(1, words=words)
        case "all":
            return positions(length, words=words)
        case "any":
            return any_number(words)
        case _:
            return masked(words=words, p_m=float(masking.rstrip("%")) / 100)


def any_number(words: int) -> Objective:
    """Predict k positions from all the others, k uniform in 1..N and they too, for each row."""

    def prepare(tokens: Int[Tensor, "batch length"], rng: Rng) -> Prediction:
        length = tokens.shape[1]
        same = torch.zeros((1, length), dtype=torch.float64, device=tokens.device).log_softmax(-1)
        count = rng.categorical(same, torch.zeros(len(tokens), dtype=torch.long).to(tokens.device))
        hidden = torch.zeros_like(tokens, dtype=torch.bool)
        for j in range(length):
            at = rng.categorical(gibbs.uniform_on(~hidden))
            hidden = hidden.scatter(1, at[:, None], (j <= count)[:, None])
        return Prediction(tokens.masked_fill(hidden, words), tokens, hidden, None)

    return prepare


@dataclass(frozen=True)
class TrainAndSample(Unit):
    """One trained network, or the truth as oracle."""

    structure: str
    masking: str
    spins: int
    words: int
    steps: int
    batch: int
    width: int
    layers: int
    heads: int
    learning_rate: float
    moments: tuple[int, ...]


def units(settings: LearnedKernel) -> Sequence[TrainAndSample]:
    """One trained network each; and the truth as oracle, once for each structure."""
    found = []
    for structure in settings.structures:
        found.append(TrainAndSample.of(settings, structure=structure, masking="truth", seed=0))
        found += [
            TrainAndSample.of(settings, structure=structure, masking=masking, seed=seed)
            for masking in settings.maskings
            for seed in range(settings.seeds)
        ]
    return found


def run(unit: TrainAndSample, bench: Bench) -> Iterable[Row]:
    """Train a network, ask it about every context, and compare what its samplers do."""
    structure = truth(unit.structure, unit.spins, unit.words)
    exact = Conditionals.of(structure, structure.length)
    learned = exact if unit.masking == "truth" else trained(unit, structure, bench)
    law = Table.of(structure).log_probs.exp()
    named = Named(unit.structure, unit.masking, unit.seed, structure.length)
    yield from measured(learned, exact, law, unit.moments, named)


def trained(unit: TrainAndSample, structure: Ising | HMM, bench: Bench) -> Conditionals:
    """Every answer of a network that saw fresh sequences of the structure."""
    length, words = structure.length, structure.vocab_size
    shape = Shape(
        words + 1,
        length,
        width=unit.width,
        layers=unit.layers,
        heads=unit.heads,
        causal=False,
    )
    lm = MaskedLM(Transformer(shape, seed=unit.seed, device=bench.device))
    recipe = Recipe(
        steps=unit.steps,
        batch=unit.batch,
        learning_rate=unit.learning_rate,
        warmup=max(1, unit.steps // 20),
        decay="cosine",
        clip=1.0,
    )
    source = structure.to(bench.device)
    hide = objective(unit.masking, words, length)
    fit(lm, source.sample, hide, recipe, bench.rng("training"))
    return Conditionals.of(lm, length, device=bench.device)


class Named(NamedTuple):
    """What was asked: the first fields of every row."""

    structure: str
    masking: str
    seed: int
    length: int


def measured(
    learned: Conditionals,
    exact: Conditionals,
    law: Float[Tensor, " count"],
    moments: Sequence[int],
    named: Named,
) -> Iterable[Row]:
    """The exact laws of every sampler on these conditionals, against the true law."""
    length = learned.length
    start = torch.zeros_like(law)
    start[0] = 1.0  # the sequence 00...0
    for name, matrix, cost in chains(learned):
        settled = kernels.stationary_law(matrix)
        laws = kernels.law_after(matrix, start, moments)
        yield Chain(
            *named,
            sampler=name,
            steps=tuple(moments),
            tv=tuple(kernels.distances(laws, law).tolist()),
            long_run_tv=float(kernels.distances(settled[None], law)[0]),
            irreversibility=kernels.irreversibility(matrix, settled),
            queries=cost.queries,
            passes=cost.passes,
        )
    for order in ORDERS:
        for rounds in range(1, length + 1):
            schedule = parallel.even_schedule(length, rounds)
            filled = kernels.unmask_law(learned, schedule, order)
            tv = float(kernels.distances(filled[None], law)[0])
            yield Unmasked(*named, order=order, rounds=rounds, tv=tv)
    off = consistency.inconsistency(learned, law)
    counts = tuple(range(1, length + 1))
    yield Oracle(
        *named,
        inconsistency=off.mean,
        worst_inconsistency=off.worst,
        hidden=counts,
        kl=tuple(consistency.conditional_error(learned, exact, law, count) for count in counts),
    )


def chains(learned: Conditionals) -> Iterable[tuple[str, Float[Tensor, "n n"], gibbs.Cost]]:
    """Name, exact transition matrix and cost of a step; blocks are of half the positions."""
    length = learned.length
    single, half = MaskLaw.of_size(length, 1), MaskLaw.of_size(length, max(1, length // 2))
    in_turn = kernels.filled_in_turn(learned, "random")
    one_question = gibbs.Cost(1.0, 1.0)
    yield "1-Gibbs", kernels.block_matrix(learned, single, in_turn), one_question
    yield (
        "k-Gibbs",
        kernels.block_matrix(learned, half, in_turn),
        gibbs.cost(half, learned.vocab_size),
    )
    at_once = kernels.block_matrix(learned, half, kernels.filled_at_once(learned))
    yield "block at once", at_once, one_question
    yield "independent", kernels.independent_matrix(learned), parallel.independent_cost(length)


STUDY = Study(
    name="learned_kernel",
    question="What do Gibbs, parallel decoding and unmasking return on a trained masked network?",
    settings={
        Scale.SMOKE: LearnedKernel(
            seeds=1,
            structures=("strong", "hmm"),
            maskings=("40%", "any"),
            spins=4,
            words=3,
            steps=5,
            batch=8,
            width=8,
            layers=1,
            moments=(1, 3, 10),
        ),
        Scale.LAPTOP: LearnedKernel(),
        Scale.PAPER: LearnedKernel(seeds=10, spins=8, words=6, steps=6000, batch=128, width=64),
    },
    units=units,
    run=run,
    rows=ROWS,
    figures=FIGURES,
)
