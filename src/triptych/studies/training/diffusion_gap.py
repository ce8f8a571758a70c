"""How far is a trained denoiser from the truth, by what it is trained on?

Small networks learn an HMM and an Ising model by each objective of diffusion: masks at one rate, k
masks, masks at any rate, blocks in turn, uniform noise. The bound on -log p that each implies is
computed exactly, over all sequences and all masks, so that what is above the entropy is the
divergence of the network's path from the true one. Next to it stands the exact law of what random
order writes with the same network, and the spectral gap of the sampler that redraws as many
positions as the objective hides: li 4.1 bounds the efficiency of training by it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import scipy.linalg
import torch

from triptych.core.divergences import kl_divergence
from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.diffusion.law import sampler_law
from triptych.diffusion.samplers.random_order import RandomOrder
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.noised import NoisedLM
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Bench, Rows, Scale, Settings, Study, Unit
from triptych.theory.masking.blocks.dynamics import BlockDynamics, slowest
from triptych.theory.masking.families import IsingFamily
from triptych.theory.masking.information import fisher, score_covariance
from triptych.training.bounds import exact_masked_gap, exact_noised_gap
from triptych.training.loop import fit
from triptych.training.noise import any_rate, uniform_noise
from triptych.training.objectives import Objective, masked, positions
from triptych.training.step import Recipe

OBJECTIVES = ("15 %", "k = 1", "k = 2", "any rate", "blocks of 2", "uniform noise")
LEVELS = 16


@dataclass(frozen=True)
class DiffusionGap(Settings):
    """Which laws and objectives, and the size of the networks."""

    seeds: int = 2
    structures: tuple[str, ...] = ("hmm", "ising")
    objectives: tuple[str, ...] = OBJECTIVES
    length: int = 4
    steps: int = 300
    batch: int = 64
    width: int = 32
    layers: int = 2
    learning_rate: float = 4e-3


@dataclass(frozen=True)
class TrainDenoiser(Unit):
    """One network."""

    structure: str
    objective: str
    length: int
    steps: int
    batch: int
    width: int
    layers: int
    learning_rate: float


@dataclass(frozen=True)
class Denoised:
    """A trained network, in nats per sequence.

    bound      mean of its bound on -log p(x) over the truth; of blocks where it learned blocks
    entropy    of the truth; bound - entropy is the divergence of paths
    written    KL of the truth from what random order writes, one position a round; None for noise
    mixing     spectral gap of the sampler that redraws k positions of the truth, None without a k
    variance   of masked training with blocks of k over that of maximum likelihood, in the worst
               direction of the Ising model's own parameters; li 4.1 bounds it by 1/mixing
    """

    structure: str
    objective: str
    seed: int
    bound: float
    entropy: float
    written: float | None
    mixing: float | None
    variance: float | None


def units(settings: DiffusionGap) -> Sequence[TrainDenoiser]:
    """One trained network each."""
    return [
        TrainDenoiser.of(settings, structure=structure, objective=objective, seed=seed)
        for structure in settings.structures
        for objective in settings.objectives
        for seed in range(settings.seeds)
    ]


def truth(structure: str, length: int) -> Table:
    """An HMM of three tokens, or an Ising model."""
    if structure == "hmm":
        return Table.of(HMM.random(3, 3, length, seed=1))
    return Table.of(spins(length))


def spins(length: int) -> Ising:
    """The Ising model, whose couplings are the parameters of masked training."""
    return Ising.random(length, scale=0.7, seed=1)


def objective_of(name: str, words: int) -> Objective:
    """The objective by its name."""
    match name:
        case "15 %":
            return masked(words=words, p_m=0.15)
        case "any rate":
            return any_rate(words=words)
        case "blocks of 2":
            return any_rate(words=words, block=2)
        case "uniform noise":
            return uniform_noise(words=words, levels=LEVELS)
        case _:
            return positions(int(name.removeprefix("k = ")), words=words)


def run(unit: TrainDenoiser, bench: Bench) -> Iterable[Denoised]:
    """Train one network; its bound and what it writes, by enumeration."""
    p = truth(unit.structure, unit.length)
    noisy = unit.objective == "uniform noise"
    shape = Shape(
        p.vocab_size + (LEVELS if noisy else 1),
        p.length + noisy,
        width=unit.width,
        layers=unit.layers,
        heads=2,
        causal=False,
    )
    net = Transformer(shape, seed=unit.seed)
    lm = NoisedLM(net, LEVELS) if noisy else MaskedLM(net)
    recipe = Recipe(
        unit.steps,
        batch=unit.batch,
        learning_rate=unit.learning_rate,
        warmup=max(1, unit.steps // 20),
        decay="cosine",
        clip=1.0,
        quick=True,
    )
    objective = objective_of(unit.objective, p.vocab_size)
    fit(lm, p.sample, objective, recipe, bench.rng("training"))
    block = 2 if unit.objective == "blocks of 2" else None
    written = mixing = variance = None
    if isinstance(lm, NoisedLM):
        found = exact_noised_gap(lm, p, points=48)
    else:
        found = exact_masked_gap(lm, p, block=block)
        written = written_by(lm, p, block)
    if unit.objective.startswith("k = "):
        k = int(unit.objective.removeprefix("k = "))
        masks = MaskLaw.of_size(p.length, k)
        mixing = slowest(BlockDynamics(p, masks))[0]
        variance = worst_variance(p.length, masks) if unit.structure == "ising" else None
    yield Denoised(
        unit.structure,
        unit.objective,
        unit.seed,
        found.bound,
        found.entropy,
        written,
        mixing,
        variance,
    )


def worst_variance(length: int, masks: MaskLaw) -> float:
    """The largest ratio of asymptotic variances, masked training over maximum likelihood.

    Worked value: blocks of all positions are maximum likelihood: 1.
    """
    family = IsingFamily(spins(length))
    covariance = torch.linalg.inv(score_covariance(family, masks))
    smallest = torch.linalg.inv(fisher(family))
    ratios = scipy.linalg.eigh(covariance.numpy(), smallest.numpy(), eigvals_only=True)
    return float(ratios.max())


def written_by(lm: MaskedLM, p: Table, block: int | None) -> float:
    """KL of the truth from the exact law of random order, block by block if it learned blocks."""
    tokens = torch.zeros((1, p.length), dtype=torch.long)
    law = sampler_law(RandomOrder(), lm, tokens, block_length=block).probs
    probs = [law.get(tuple(text), 0.0) for text in p.sequences.tolist()]
    return float(kl_divergence(p.log_probs, torch.tensor(probs, dtype=torch.float64).log()))


def figure(rows: Rows[Denoised]) -> Figure:
    """Divergence of paths, and of texts, by objective."""
    panels = []
    for structure in dict.fromkeys(row.structure for row in rows.of(Denoised)):
        own = [row for row in rows.of(Denoised) if row.structure == structure]
        names = [name for name in OBJECTIVES if any(row.objective == name for row in own)]
        series = []
        kinds: dict[str, SeriesKind] = {"paths": "ours", "texts": "control"}
        for label, kind in kinds.items():
            x, y = [], []
            for number, name in enumerate(names):
                for row in own:
                    value = row.bound - row.entropy if label == "paths" else row.written
                    if row.objective == name and value is not None:
                        x.append(number)
                        y.append(value)
            series.append(Series(f"KL of {label}", kind, x, y, line=False))
        panels.append(
            Panel(
                series,
                "objective",
                "KL from the truth (nats)",
                "HMM" if structure == "hmm" else "Ising",
                y_log=True,
                x_names=names,
            )
        )
    return Figure(
        "diffusion_gap",
        "Distance of trained denoisers to the truth by objective",
        panels,
        "Each mark is a network. Paths: the exact bound minus the entropy. Texts: what random "
        "order writes, one position a round.",
    )


STUDY = Study(
    name="diffusion_gap",
    question="How far is a trained denoiser from the truth, by what it is trained on?",
    settings={
        Scale.SMOKE: DiffusionGap(seeds=1, length=3, steps=4, batch=8, width=8, layers=1),
        Scale.LAPTOP: DiffusionGap(),
        Scale.PAPER: DiffusionGap(seeds=5, length=5, steps=3000, batch=256, width=64),
    },
    units=units,
    run=run,
    rows=(Denoised,),
    figures=[figure],
)
