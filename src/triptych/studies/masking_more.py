"""Does hiding more at once fit an Ising model better from the same data [li, 4.2.1, 4.2.1.1]?

Four spins, all coupled by J, no field. Data sets of n sequences are fitted by k-pseudolikelihood,
k = 1..4, with one drawn block per sequence [li, Def. 4.1.2], and for comparison with all blocks of
every sequence. The same sequences serve every k. The squared error of θ̂ = (h, J) stands beside its
exact limit tr Γ / n. Judges and figures are in `masking_more_judges`.
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
from triptych.structures.ising import Ising
from triptych.studies import masking_more_judges as judges
from triptych.studies.study import Bench, Claim, Row, Scale, Settings, Study, Unit
from triptych.theory import estimators
from triptych.theory.families import IsingFamily
from triptych.theory.masking import asymptotic_covariance

SPINS = 4
BLOCKS = (1, 2, 3, 4)  # k
COUPLINGS = (judges.WEAK, judges.PEAKY)
DESCENTS = 10  # data sets that are also fitted by gradient descent
_AT_ONCE = 2**20  # sequences held in memory


@dataclass(frozen=True)
class MaskingMore(Settings):
    """How much data.

    sizes     n, the sequences of a data set
    repeats   data sets for each n and seed
    """

    seeds: int = 4
    sizes: tuple[int, ...] = (100, 300, 1000, 3000, 10_000, 30_000)
    repeats: int = 250


def units(settings: MaskingMore) -> Sequence[Unit]:
    """One per coupling, size and seed; one more per coupling compares the two ways to minimise."""
    found = [
        Unit({"kind": "fit", "coupling": J, "samples": n, "repeats": settings.repeats}, seed)
        for J in COUPLINGS
        for n in settings.sizes
        for seed in range(settings.seeds)
    ]
    return found + [
        Unit({"kind": "descent", "coupling": J, "samples": 1000, "repeats": DESCENTS}, 0)
        for J in COUPLINGS
    ]


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """The same data for every k, others for every coupling, size and seed."""
    given = unit.parameters
    purpose = f"data, {given['kind']}, J = {given['coupling']}, n = {given['samples']}"
    rng = TorchRng(bench.rng(purpose).seed)
    ising = Ising.clique_and_free(SPINS, SPINS, given["coupling"], 0.0)
    data = gather(ising, given["samples"], given["repeats"], rng)
    rows = _descents(ising, data) if given["kind"] == "descent" else _fits(ising, data)
    for row in rows:
        yield {
            "kind": given["kind"],
            "coupling": given["coupling"],
            "samples": given["samples"],
            "seed": unit.seed,
            **row,
        }


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


def _fits(ising: Ising, data: Data) -> Iterator[Row]:
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
            yield {
                "k": k,
                "masks": label,
                "errors": [e if is_one else None for e, is_one in zip(errors, exists, strict=True)],
                "without_estimate": exists.count(False),
                "largest_gradient": float(norms.max()) if len(norms) else 0.0,
                "limit": float(limit),
            }


def _descents(ising: Ising, data: Data) -> Iterator[Row]:
    """Newton's method against gradient descent, which the source used, on the same data."""
    family = IsingFamily(ising)
    for k in BLOCKS:
        masks = MaskLaw.of_size(SPINS, k)
        newton = estimators.fit(family, masks, data.drawn[k])
        descent = estimators.fit(family, masks, data.drawn[k], method="gradient", tolerance=1e-5)
        both = newton.exists & descent.exists
        gap = (newton.theta - descent.theta)[both].abs()
        yield {
            "k": k,
            "data_sets": int(both.sum()),
            "gap": float(gap.max()) if len(gap) else None,
            "steps": int(descent.steps.max()),
        }


STUDY = Study(
    name="masking_more",
    about="Does hiding more spins at once fit an Ising model better from the same data?",
    settings={
        Scale.SMOKE: MaskingMore(seeds=1, sizes=(100, 1000, 3000), repeats=100),
        Scale.LAPTOP: MaskingMore(),
        Scale.PAPER: MaskingMore(seeds=20),
    },
    units=units,
    run=run,
    claims=[
        Claim(
            "li.fig-4.1",
            judges.judge_weak,
            judges.refuted(judges.WEAK),
            held_by=judges.held(judges.WEAK),
        ),
        Claim(
            "li.fig-4.2",
            judges.judge_peaky,
            judges.refuted(judges.PEAKY),
            held_by=judges.held(judges.PEAKY),
        ),
    ],
    figures=[judges.error_figure, judges.gain_figure, judges.ten_figure],
)
