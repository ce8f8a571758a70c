"""Does hiding more at once fit an Ising model better from the same data [li, 4.2.1, 4.2.1.1]?

Four spins, all coupled by J, no field. Data sets of n sequences are fitted by k-pseudolikelihood,
k = 1..4, with one drawn block per sequence [li, Def. 4.1.2], and for comparison with all blocks of
every sequence. The same sequences serve every k. The squared error of θ̂ = (h, J) stands next to its
exact limit tr Γ / n.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.core.validation import UserError
from triptych.structures.ising import Ising
from triptych.studies.api.study import Bench, Scale, Settings, Study, Unit
from triptych.studies.masking.masking_more.figures import FIGURES
from triptych.studies.masking.masking_more.judge import CLAIMS
from triptych.studies.masking.masking_more.rows import (
    BLOCKS,
    PEAKY,
    ROWS,
    WEAK,
    Descended,
    Fitted,
    Row,
)
from triptych.theory.masking import estimators
from triptych.theory.masking.families import IsingFamily
from triptych.theory.masking.information import asymptotic_covariance

SPINS = 4
DESCENTS = 10  # data sets that are also fitted by gradient descent
_AT_ONCE = 2**20  # sequences held in memory


@dataclass(frozen=True)
class MaskingMore(Settings):
    """How much data.

    sizes        n, the sequences of a data set
    repeats      data sets for each n and seed
    first_seed   the seeds are this one and those after it
    """

    seeds: int = 4
    sizes: tuple[int, ...] = (100, 300, 1000, 3000, 10_000, 30_000)
    repeats: int = 250
    first_seed: int = 0


@dataclass(frozen=True)
class FitData(Unit):
    """Fit data sets of one size by every k."""

    coupling: float
    samples: int
    repeats: int


@dataclass(frozen=True)
class CompareDescent(Unit):
    """Fit data sets in two ways."""

    coupling: float
    samples: int
    repeats: int


def units(settings: MaskingMore) -> Sequence[FitData | CompareDescent]:
    """One per coupling, size and seed; one more per coupling compares the two ways to minimise."""
    if settings.repeats < 1 or min(settings.sizes, default=1) < 1:
        raise UserError("repeats and sizes must be at least 1")
    seeds = range(settings.first_seed, settings.first_seed + settings.seeds)
    found: list[FitData | CompareDescent] = [
        FitData(coupling, n, settings.repeats, seed=seed)
        for coupling in (WEAK, PEAKY)
        for n in settings.sizes
        for seed in seeds
    ]
    return found + [
        CompareDescent(coupling, 1000, DESCENTS, seed=settings.first_seed)
        for coupling in (WEAK, PEAKY)
    ]


def run(unit: FitData | CompareDescent, bench: Bench) -> Iterable[Row]:
    """The same data for every k, others for every coupling, size and seed."""
    kind = "fit" if isinstance(unit, FitData) else "descent"
    rng = TorchRng(bench.rng(f"data, {kind}, J = {unit.coupling}, n = {unit.samples}").seed)
    ising = Ising.clique_and_free(SPINS, SPINS, unit.coupling, 0.0)
    data = gather(ising, unit.samples, unit.repeats, rng)
    match unit:
        case FitData():
            return _fits(unit, ising, data)
        case CompareDescent():
            return _descents(unit, ising, data)


@dataclass(frozen=True)
class Data:
    """Counts of the same data sets: drawn[k], one block per sequence; every[k], all of them."""

    drawn: dict[int, Float[Tensor, "repeats blocks count"]]
    every: dict[int, Float[Tensor, "repeats blocks count"]]


def gather(ising: Ising, samples: int, repeats: int, rng: Rng) -> Data:
    """Sequences, and a block of each size for every sequence; only their counts are kept."""
    laws = {k: MaskLaw.of_size(SPINS, k) for k in BLOCKS}
    drawn: dict[int, list[Tensor]] = {k: [] for k in BLOCKS}
    left = repeats
    while left:
        now = min(left, max(1, _AT_ONCE // samples))
        tokens = ising.sample(now * samples, rng)
        shaped = tokens.reshape(now, samples, SPINS)
        for k, law in laws.items():
            blocks = law.draw(tokens, rng).reshape(now, samples, 1)
            drawn[k].append(estimators.pair_counts(shaped, law, 2, blocks))
        left -= now
    counts = {k: torch.cat(parts) for k, parts in drawn.items()}
    seen = counts[SPINS]  # the one block of all spins: how often each sequence came
    given = {k: law.log_prob(all_sequences(2, SPINS)).exp().T for k, law in laws.items()}
    return Data(counts, {k: seen * given[k] for k in BLOCKS})


def _fits(unit: FitData, ising: Ising, data: Data) -> Iterator[Fitted]:
    """‖θ̂ - θ*‖² for every data set, None where there is no estimate."""
    family = IsingFamily(ising)
    for k in BLOCKS:
        masks = MaskLaw.of_size(SPINS, k)
        for label, counts, m in (("one", data.drawn[k], 1), ("all", data.every[k], None)):
            found = estimators.fit(family, masks, counts)
            errors = (found.theta - family.theta).square().sum(1).tolist()
            exists = found.exists.tolist()
            norms = found.gradient_norm[found.exists]
            limit = asymptotic_covariance(family, masks, masks_per_sample=m).trace()
            yield Fitted(
                coupling=unit.coupling,
                samples=unit.samples,
                seed=unit.seed,
                k=k,
                masks=label,
                errors=tuple(
                    _short(e) if one else None for e, one in zip(errors, exists, strict=True)
                ),
                without_estimate=exists.count(False),
                largest_gradient=float(norms.max()) if len(norms) else 0.0,
                limit=float(limit),
            )


def _short(error: float) -> float:
    """Six digits: thousands of errors are kept, each far less sure than that."""
    return float(f"{error:.6g}")


def _descents(unit: CompareDescent, ising: Ising, data: Data) -> Iterator[Descended]:
    """Both ways to the minimum, for every k."""
    family = IsingFamily(ising)
    for k in BLOCKS:
        masks = MaskLaw.of_size(SPINS, k)
        newton = estimators.fit(family, masks, data.drawn[k])
        descent = estimators.fit(family, masks, data.drawn[k], method="gradient", tolerance=1e-5)
        both = newton.exists & descent.exists
        gap = (newton.theta - descent.theta)[both].abs()
        yield Descended(
            coupling=unit.coupling,
            samples=unit.samples,
            seed=unit.seed,
            k=k,
            data_sets=int(both.sum()),
            gap=float(gap.max()) if len(gap) else None,
            steps=int(descent.steps.max()),
        )


STUDY = Study(
    name="masking_more",
    question="Does hiding more spins at once fit an Ising model better from the same data?",
    settings={
        Scale.SMOKE: MaskingMore(seeds=1, sizes=(100, 1000, 3000), repeats=100),
        Scale.LAPTOP: MaskingMore(first_seed=100),
        Scale.PAPER: MaskingMore(seeds=20, first_seed=100),
    },
    units=units,
    run=run,
    rows=ROWS,
    claims=CLAIMS,
    figures=FIGURES,
    revision=2,
)
