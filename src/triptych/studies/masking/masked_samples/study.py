"""The steps of the finite-sample bound, by enumeration [li, 4.3.3.1 and 4.3.4].

Lemma 4.3.2: what conditioning on the mask averages to. Proposition 4.3.2: the divergences of the
masked loss are bounded. Lemma 4.3.5 and Corollaries 4.3.1, 4.3.2: the loss under m masks of each
sequence is near the loss under all of them. Lemma 4.3.6: the law of n sequences is near the truth.
Chances are summed, and nothing is drawn but parameters.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.studies.api.study import Bench, Scale, Settings, Study, Unit
from triptych.studies.masking.masked_samples.judge import CLAIMS
from triptych.studies.masking.masked_samples.rows import (
    DEFINED,
    LEMMA,
    POINT,
    PROOF,
    ROWS,
    UNIFORM,
    Averaged,
    Bounded,
    EmpiricalLaw,
    MaskBound,
    Row,
)
from triptych.studies.masking.shared.models import family_named, law_named
from triptych.theory.masking import concentration
from triptych.theory.masking.information import block_log_conditionals

DELTAS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.95)
SHARES = (0.1, 0.5, 0.9)  # of the allowed chance that the masks have, the sequences the rest
ALLOWED = (0.05, 0.2, 0.5, 0.9)  # chances of Lemma 4.3.5
SPREAD = 0.7  # of random parameters around the truth, standard deviation
FACTORS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # of a bound: how much of it is needed


@dataclass(frozen=True)
class MaskedSamples(Settings):
    """Sizes.

    models       of the identity and of the bounded divergences, with the mask laws `laws`
    pairs        "model, mask law with two blocks, n": of the lemmas on masks
    masks        m
    points       parameters for each
    alphabets    |Ω|^N of the laws of Lemma 4.3.6, each with the sizes n of `sizes`
    """

    seeds: int = 2
    models: tuple[str, ...] = ("chain 2 0.4", "chain 3 0.5", "hmm 2", "table 2 3")
    laws: tuple[str, ...] = ("size 1", "independent 0.3", "ones 1.5", "changes 1.5")
    pairs: tuple[str, ...] = (
        "chain 2 0.4, size 1, 8",
        "chain 3 0.5, spans 2, 4",
        "chain 3 0.5, changes 1.5, 4",
        "hmm 2, size 1, 3",
    )
    masks: tuple[int, ...] = (10_000, 1_000_000)
    points: int = 3
    alphabets: tuple[int, ...] = (2, 3, 4, 8)
    sizes: tuple[int, ...] = (1, 2, 5, 10, 20, 40, 100)


@dataclass(frozen=True)
class Identities(Unit):
    """Lemma 4.3.2 and Proposition 4.3.2 on one model."""

    model: str
    laws: tuple[str, ...]
    points: int


@dataclass(frozen=True)
class Masks(Unit):
    """Lemma 4.3.5 and its corollaries on one model."""

    pair: str
    masks: tuple[int, ...]
    points: int


@dataclass(frozen=True)
class Sequences(Unit):
    """Lemma 4.3.6 for laws on one number of outcomes."""

    outcomes: int
    sizes: tuple[int, ...]


AnyUnit = Identities | Masks | Sequences


def units(settings: MaskedSamples) -> Sequence[AnyUnit]:
    """Models, pairs of model and mask law, alphabets; then the next seed."""
    if settings.points < 1 or min(settings.masks) < 1 or min(settings.alphabets) < 2:
        raise UserError("points and masks must be at least 1, alphabets at least 2")
    return [
        unit
        for seed in range(settings.seeds)
        for unit in (
            *(Identities.of(settings, model=model, seed=seed) for model in settings.models),
            *(Masks.of(settings, pair=pair, seed=seed) for pair in settings.pairs),
            *(Sequences.of(settings, outcomes=size, seed=seed) for size in settings.alphabets),
        )
    ]


def run(unit: AnyUnit, bench: Bench) -> Iterable[Row]:
    """Rows of one model, one pair or one alphabet."""
    if isinstance(unit, Identities):
        yield from _identities(unit)
    elif isinstance(unit, Masks):
        yield from _masks(unit)
    else:
        yield from _sequences(unit)


def _identities(unit: Identities) -> Iterator[Row]:
    family = family_named(unit.model, unit.seed)
    table = Table(family.vocab_size, family.length, family.table.log_probs)
    for law in unit.laws:
        masks = law_named(law, family.length)
        plain = concentration.plain_conditional(table, masks)
        mixed = concentration.mixed_conditional(table, masks)
        given = block_log_conditionals(table.log_probs, masks, table.vocab_size)
        meet = given > -torch.inf
        yield Averaged(
            model=unit.model,
            seed=unit.seed,
            law=law,
            adaptive=masks.adaptive,
            error=float((mixed - plain).abs().max()),
            moved=float((given.exp() - plain)[meet].abs().max()),
        )
        least, most, laws = math.inf, 0.0, 0
        for theta in _parameters(unit.model, unit.seed, unit.points):
            logs = block_log_conditionals(family.table_log_probs(theta), masks, family.vocab_size)
            margin = -float(logs[logs > -torch.inf].min())
            for n in (1, 2):
                for _, _, law_of_n in concentration.samples(table, n):
                    apart = concentration.divergences(logs, law_of_n, table, masks)
                    least = min(least, float(apart.min()) / margin)
                    most, laws = max(most, float(apart.max()) / margin), laws + 1
        yield Bounded(unit.model, unit.seed, law, laws, least, most)


def _parameters(model: str, seed: int, points: int) -> Iterator[torch.Tensor]:
    """The truth, and random parameters around it."""
    family = family_named(model, seed)
    generator = torch.Generator().manual_seed(seed)
    for point in range(points):
        away = torch.randn(len(family.names), generator=generator, dtype=torch.float64)
        yield family.theta + SPREAD * away * (point > 0)


class _Statement(NamedTuple):
    """Bounds and allowed chances of one statement."""

    name: str
    bounds: np.ndarray
    allowed: np.ndarray


def _masks(unit: Masks) -> Iterator[Row]:
    model, law, size = (part.strip() for part in unit.pair.split(","))
    family, n = family_named(model, unit.seed), int(size)
    table, masks = family.table, law_named(law, family.length)
    second = masks.log_prob(table.sequences).exp()[:, 1].numpy()
    found = list(concentration.samples(table, n))
    for m in unit.masks:
        for point, theta in enumerate(_parameters(model, unit.seed, unit.points)):
            logs = block_log_conditionals(family.table_log_probs(theta), masks, family.vocab_size)
            margin = -float(logs[logs > -torch.inf].min())
            sizes = _Sizes(margin, family.length, family.vocab_size, n, m)
            for reading in (DEFINED, PROOF):
                jumps = [
                    concentration.mask_jumps(
                        -logs
                        if reading == DEFINED
                        else concentration.divergences(logs, seen, table, masks)
                    )
                    for _, _, seen in found
                ]
                ends = [np.full(len(second), margin)] * len(found)
                for statement in _statements(sizes):
                    uniform = statement.name == UNIFORM
                    missed = _missed(found, m, second, ends if uniform else jumps, statement)
                    yield MaskBound(
                        statement=statement.name,
                        model=model,
                        seed=unit.seed,
                        law=law,
                        point=point,
                        reading=reading,
                        n=n,
                        m=m,
                        settings=len(statement.bounds),
                        telling=int((statement.bounds < margin).sum()),
                        chance=float((missed[0] / statement.allowed).max()),
                        needed=min(
                            factor
                            for factor, chances in zip(FACTORS, missed, strict=True)
                            if factor == 1 or (chances <= statement.allowed).all()
                        ),
                    )


class _Sizes(NamedTuple):
    """What the bounds depend on."""

    log_margin: float
    length: int
    vocab_size: int
    n: int
    m: int


def _statements(sizes: _Sizes) -> Iterator[_Statement]:
    """Lemma 4.3.5 for ε and t that divide an allowed chance, and the corollaries for every δ."""
    strings = 2.0 ** (sizes.length - 2) * sizes.vocab_size**sizes.length
    found = []
    for allowed in ALLOWED:
        for share in SHARES:
            epsilon = math.sqrt(strings / (allowed * share * sizes.m))
            t = sizes.log_margin * math.sqrt(sizes.n * math.log(2 / (allowed * (1 - share))) / 2)
            found.append(concentration.lemma_bound(epsilon, t, **sizes._asdict()))
    yield _Statement(LEMMA, *(np.array(part) for part in zip(*found, strict=True)))
    bounds = [concentration.corollary_bound(delta, **sizes._asdict()) for delta in DELTAS]
    for name in (POINT, UNIFORM):
        yield _Statement(name, np.array(bounds), np.array(DELTAS))


def _missed(
    found: Sequence[tuple[float, np.ndarray, torch.Tensor]],
    m: int,
    second: np.ndarray,
    jumps: Sequence[np.ndarray],
    statement: _Statement,
) -> np.ndarray:
    """Chances that the difference is at least each factor of each bound; never too small."""
    thresholds = np.outer(FACTORS, statement.bounds)
    total = np.zeros(thresholds.size)
    for (chance, counts, _), jump in zip(found, jumps, strict=True):
        total += chance * concentration.missed_by_masks(
            counts, m, second, jump, thresholds.ravel(), absolute=statement.name == UNIFORM
        )
    return total.reshape(thresholds.shape)


def _sequences(unit: Sequences) -> Iterator[Row]:
    draw = np.random.default_rng(unit.seed)
    size = unit.outcomes
    laws = {
        "uniform": np.full(size, 1 / size),
        "two outcomes": np.array([0.5, 0.5] + [0.0] * (size - 2)),
        "peaked": np.array([0.9] + [0.1 / (size - 1)] * (size - 1)),
        "random": draw.dirichlet(np.ones(size)),
    }
    for n in unit.sizes:
        if math.comb(n + size - 1, size - 1) > 20_000:
            continue
        for name, probs in laws.items():
            deltas = np.array(DELTAS)
            missed = concentration.missed_by_empirical_law(probs, n, deltas)
            yield EmpiricalLaw(
                outcomes=size,
                seed=unit.seed,
                law=name,
                n=n,
                telling=int((size**3 / (16 * deltas * n) < 1).sum()),
                chance=float((missed / deltas).max()),
            )


STUDY = Study(
    name="masked_samples",
    question="Do the steps of the finite-sample bound hold, with every chance summed exactly?",
    settings={
        Scale.SMOKE: MaskedSamples(
            seeds=1,
            models=("chain 2 0.4", "chain 3 0.5"),
            pairs=("chain 2 0.4, size 1, 2",),
            masks=(10_000,),
            points=1,
            alphabets=(2, 3),
            sizes=(5, 20),
        ),
        Scale.LAPTOP: MaskedSamples(masks=(10_000,), points=2),
        Scale.PAPER: MaskedSamples(seeds=3),
    },
    units=units,
    run=run,
    rows=ROWS,
    claims=CLAIMS,
)
