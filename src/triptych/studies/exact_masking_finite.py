"""The units of `exact_masking` on finite samples: Theorem 4.1.4 and the decay of entropy."""

from collections.abc import Iterator

import torch

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.studies.masking_models import ising_named, law_named
from triptych.studies.study import Row, Unit
from triptych.theory import finite_sample, tensorisation
from triptych.theory.block_dynamics import BlockDynamics
from triptych.theory.families import IsingFamily

RADIUS = 1.0  # of the box of parameters
EPSILON = 0.01  # of the covering number that is printed
MASKS = 10**9  # per sequence: the bound is empty with few
DELTAS = (0.1, 0.5)


def rate_rows() -> Iterator[Row]:
    """One bit redrawn whole, C_AT = 1: entropy in continuous time against two rates."""
    times = torch.tensor([0.1, 0.5, 1.0, 2.0], dtype=torch.float64)
    for chance in (0.5, 0.1, 0.01):
        table = Table(2, 1, torch.tensor([1 - chance, chance], dtype=torch.float64).log())
        dynamics = BlockDynamics(table, MaskLaw.of_size(1, 1))
        even = torch.tensor([0.4, 0.6], dtype=torch.float64)
        start = tensorisation.both_sides(dynamics, even)[0]
        left = tensorisation.continuous_decay(dynamics, even, times) / start
        yield {
            "kind": "rate",
            "chance": chance,
            "over_printed": float((left / (-2 * times).exp()).max()),
            "over_proved": float((left / (-times).exp()).max()),
        }


def finite_rows(unit: Unit) -> Iterator[Row]:
    """Both sides of Theorem 4.1.4 for samples of one size, in both readings of the loss."""
    parameters = unit.parameters
    name, law, n = parameters["model"], parameters["law"], parameters["n"]
    family = IsingFamily(ising_named(name))
    masks, dimension = law_named(law, family.length), len(family.names)
    margin = finite_sample.support_margin(family, masks, RADIUS)
    cover = finite_sample.covering_number(dimension, RADIUS, EPSILON)
    samples = [
        finite_sample.draw_sample(family.table, masks, n, MASKS, seed=n + repeat)
        for repeat in range(parameters["repeats"])
    ]
    for reading in ("cross-entropy", "divergence"):
        fits = [
            finite_sample.fitted(family, masks, sample, RADIUS, divergence=reading == "divergence")
            for sample in samples
        ]
        for delta in DELTAS:
            common = {
                "margin": margin,
                "delta": delta,
                "length": family.length,
                "vocab_size": 2,
                "n": n,
                "m": float(MASKS),
            }
            strict, printed = (
                [
                    finite_sample.right_side(
                        constant=getattr(fit, side), loss=fit.loss, cover=c, epsilon=e, **common
                    )
                    for fit in fits
                ]
                for side, c, e in (("lower", 1.0, 0.0), ("upper", cover, EPSILON))
            )
            distances = [fit.distance for fit in fits]
            yield {
                "kind": "finite",
                "model": name,
                "law": law,
                "n": n,
                "reading": reading,
                "delta": delta,
                "repeats": len(fits),
                "held": sum(d < r for d, r in zip(distances, strict, strict=True)),
                "distance": sum(distances) / len(fits),
                "strict": sum(strict) / len(fits),
                "printed": sum(printed) / len(fits),
                "closest": max(d / r for d, r in zip(distances, strict, strict=True)),
            }
