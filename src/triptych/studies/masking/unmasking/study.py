"""How far from the truth do published samplers of masked diffusion write, by number of passes?

The model is the truth itself, so a sampler's law is wrong through its steps alone. Every law is
enumerated. A sampler may write what the truth forbids, and then has no law to continue with; so all
laws here are 99 % of a structure's and 1 % of the uniform one. Next to the samplers stand the best
plans that dynamic programming finds, tasks on lists whose loss has a closed form, and the
entropy-bounded sampler with its bound.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor

from triptych.core.divergences import kl_divergence
from triptych.core.table import Table
from triptych.diffusion.dependence import dependence
from triptych.diffusion.law import sampler_law
from triptych.diffusion.optimal import (
    best_sets,
    best_sizes,
    loss_of_sizes,
    set_entropies,
    size_entropies,
)
from triptych.diffusion.sampler import Sampler
from triptych.diffusion.samplers.ancestral import Ancestral
from triptych.diffusion.samplers.block_gibbs import BlockGibbs
from triptych.diffusion.samplers.confidence import Confidence
from triptych.diffusion.samplers.confident_position import ConfidentPosition
from triptych.diffusion.samplers.entropy import Entropy
from triptych.diffusion.samplers.entropy_bounded import EntropyBounded
from triptych.diffusion.samplers.gumbel_confidence import GumbelConfidence
from triptych.diffusion.samplers.left_to_right import LeftToRight
from triptych.diffusion.samplers.margin import Margin
from triptych.diffusion.samplers.path_planning import PathPlanning
from triptych.diffusion.samplers.predictor_corrector import PredictorCorrector
from triptych.diffusion.samplers.random_order import RandomOrder
from triptych.diffusion.samplers.remdm import ReMDM
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.structures.topics import Topics
from triptych.structures.translation import Translations
from triptych.studies.api.figures import Figure
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.masking.unmasking.figures import limits_figure, passes_figure
from triptych.studies.masking.unmasking.judge import (
    held_bounds,
    held_confidence,
    held_lists,
    judge_bounds,
    judge_confidence,
    judge_lists,
    refuted_bounds,
    refuted_confidence,
    refuted_lists,
)
from triptych.studies.masking.unmasking.rows import Bounded, Lists, Planned, Row, Sampled

FAST = ("random order", "confidence", "confident position", "entropy", "margin", "left to right")
WIDER = ("ancestral", "gumbel", "path planning")
SLOW = ("remdm", "corrector", "corrector, unsure", "gibbs")
SEEDED = ("hmm", "ising")
UNIFORM = 0.01


@dataclass(frozen=True)
class Unmasking(Settings):
    """Which laws and samplers.

    structures   HMM and Ising are drawn for every seed, the others once
    slow         samplers whose laws take long, on seed 0 of HMM and Ising alone
    gammas       of the entropy-bounded sampler
    items        of the lists
    """

    seeds: int = 8
    length: int = 4
    structures: tuple[str, ...] = ("hmm", "ising", "topics", "dyck", "translation")
    slow: tuple[str, ...] = SLOW
    gammas: tuple[float, ...] = (0.0, 0.1, 0.5, 2.0)
    items: tuple[int, ...] = (2, 3, 4, 5)
    drawn: int = 500


@dataclass(frozen=True)
class OneLaw(Unit):
    """All samplers on one law."""

    structure: str
    length: int
    samplers: tuple[str, ...]
    gammas: tuple[float, ...]
    drawn: int


@dataclass(frozen=True)
class OneList(Unit):
    """The tasks on lists of one length."""

    items: int


def units(settings: Unmasking) -> Sequence[OneLaw | OneList]:
    """A law each, then a length of lists each."""
    found: list[OneLaw | OneList] = []
    for structure in settings.structures:
        for seed in range(settings.seeds if structure in SEEDED else 1):
            slow = settings.slow if structure in SEEDED else ()
            samplers = (*FAST, *((*WIDER, *slow) if seed == 0 else ("ancestral",)))
            found.append(OneLaw.of(settings, structure=structure, samplers=samplers, seed=seed))
    found += [OneList(items=items, seed=0) for items in settings.items]
    return found


def truth(structure: str, length: int, seed: int) -> Table:
    """The law as a table of all texts, with its share of the uniform law."""
    p = of_structure(structure, length, seed)
    floor = math.log(UNIFORM) - math.log(p.vocab_size) * p.length
    uniform = torch.full_like(p.log_probs, floor)
    return Table(
        p.vocab_size, p.length, torch.logaddexp(p.log_probs + math.log1p(-UNIFORM), uniform)
    )


def of_structure(structure: str, length: int, seed: int) -> Table:
    """The structure's own law."""
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    match structure:
        case "hmm":
            return Table.of(HMM.random(3, 2, length, seed=seed))
        case "ising":
            return Table.of(Ising.random(length, scale=1.0, seed=seed))
        case "topics":
            return Table.of(Topics(topics=2, words=2, drawn=1, length=3))
        case "dyck":
            return Table.of(Dyck.fixed_length(4, type_probs=half, q=0.5))
        case _:
            orders = torch.tensor([[1, 0, 2], [0, 1, 2], [0, 2, 1]])
            weights = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
            return Table.of(Translations(orders, weights, 0.5, 3))


def ways(length: int) -> Mapping[str, tuple[Callable[[int], Sampler], tuple[int, ...]]]:
    """Each sampler by its rounds, and the numbers of rounds that are tried."""
    every = tuple(dict.fromkeys((1, 2, length - 1, length)))
    few = (1, length)
    return {
        "random order": (lambda n: RandomOrder(steps=n), every),
        "confidence": (lambda n: Confidence(steps=n), every),
        "confident position": (lambda n: ConfidentPosition(steps=n), every),
        "entropy": (lambda n: Entropy(steps=n), every),
        "margin": (lambda n: Margin(steps=n), every),
        "left to right": (lambda n: LeftToRight(steps=n), every),
        "ancestral": (lambda n: Ancestral(steps=n), few),
        "gumbel": (lambda n: GumbelConfidence(steps=n, degree=1.0), few),
        "remdm": (lambda n: ReMDM(steps=n), (1, 2)),
        "path planning": (lambda n: PathPlanning(steps=n), few),
        "corrector": (lambda n: PredictorCorrector(steps=n), (1, 2)),
        "corrector, unsure": (lambda n: PredictorCorrector(steps=n, choice="unsure"), (1, 2)),
        "gibbs": (lambda n: BlockGibbs(steps=n), (1, 2)),
    }


def run(unit: OneLaw | OneList, bench: Bench) -> Iterable[Row]:
    """Laws by enumeration; passes by draws."""
    if isinstance(unit, OneList):
        yield from lists(unit.items)
        return
    p = truth(unit.structure, unit.length, unit.seed)
    possible = of_structure(unit.structure, unit.length, unit.seed).log_probs > -math.inf
    yield from plans(unit.structure, p)
    known = ways(p.length)
    for way in unit.samplers:
        make, numbers = known[way]
        for rounds in numbers:
            passes, law = measured(make(rounds), p, unit.drawn, bench)
            yield sampled(unit.structure, way, rounds, passes, law, p, possible)
    for gamma in unit.gammas:
        passes, law = measured(EntropyBounded(gamma=gamma), p, unit.drawn, bench)
        row = sampled(unit.structure, "entropy bounded", None, passes, law, p, possible)
        yield row
        if row.kl is not None:
            yield Bounded(unit.structure, gamma, p.length // 2, row.kl, passes)


def measured(sampler: Sampler, p: Table, drawn: int, bench: Bench) -> tuple[float, Tensor]:
    """The mean number of passes of a row, and the probabilities of all texts."""
    tokens = torch.zeros((1, p.length), dtype=torch.long)
    law = sampler_law(sampler, p, tokens).probs
    probs = [law.get(tuple(text), 0.0) for text in p.sequences.tolist()]
    run = sampler.sample(p, tokens.repeat(drawn, 1), rng=bench.rng("passes"))
    passes = float(run.costs.generator_calls.double().mean())
    return passes, torch.tensor(probs, dtype=torch.float64)


def sampled(
    structure: str,
    way: str,
    rounds: int | None,
    passes: float,
    law: Tensor,
    p: Table,
    possible: Tensor,
) -> Sampled:
    """The distances of a law from the truth; `possible` texts are those of the structure."""
    probs = p.log_probs.exp()
    kl = float(kl_divergence(p.log_probs, law.log()))
    return Sampled(
        structure,
        way,
        rounds,
        passes,
        tv=float((probs - law).abs().sum() / 2),
        kl=kl if math.isfinite(kl) else None,
        outside=float(law[~possible].sum()),
        entropy=float(-torch.special.xlogy(law, law).sum()),
        of_truth=float(-torch.special.xlogy(probs, probs).sum()),
    )


def plans(structure: str, p: Table) -> Iterator[Planned]:
    """The best plans of 1, 2, ... rounds."""
    entropies = set_entropies(p)
    means = size_entropies(entropies)
    for rounds in range(1, p.length + 1):
        whole, more = divmod(p.length, rounds)
        even = [whole + (number < more) for number in range(rounds)]
        best = best_sets(entropies, rounds).loss
        sizes = best_sizes(means, rounds).loss
        yield Planned(structure, rounds, best, sizes, loss_of_sizes(means, even))


def lists(items: int) -> Iterator[Lists]:
    """Three tasks on a list of n different items, whose answers are laws on lists.

    copy      the list itself
    replace   one item, drawn uniformly, becomes another, fixed one
    shuffle   a uniform order of the items
    """
    same = tuple(range(items))
    replaced = [(*same[:i], items, *same[i + 1 :]) for i in range(items)]
    rest = items - 1
    uneven = rest * math.log(items / rest) if rest else 0.0
    tasks: dict[str, tuple[int, list[tuple[int, ...]], float, float]] = {
        "copy": (items, [same], 0.0, 1.0),
        "replace": (items + 1, replaced, uneven, (rest / items) ** rest),
        "shuffle": (
            items,
            list(permutations(range(items))),
            items * math.log(items) - math.lgamma(items + 1),
            math.factorial(items) / items**items,
        ),
    }
    for task, (words, answers, formula, right) in tasks.items():
        log_probs = torch.full([words] * items, -math.inf, dtype=torch.float64)
        for answer in answers:
            log_probs[answer] = -math.log(len(answers))
        p = Table(words, items, log_probs.reshape(-1))
        tokens = torch.zeros((1, items), dtype=torch.long)
        hidden = torch.ones((1, items), dtype=torch.bool)
        lost = dependence(p, tokens, hidden).total.value
        law = sampler_law(RandomOrder(steps=1), p, tokens).probs
        found = math.fsum(law.get(answer, 0.0) for answer in answers)
        yield Lists(task, items, lost, formula, found, right)


def figures() -> list[Callable[[Rows[Row]], Figure]]:
    """By passes for each structure; and the limits of plans."""
    return [passes_figure, limits_figure]


STUDY = Study(
    name="unmasking",
    question="How far from the truth do samplers of masked diffusion write, by number of passes?",
    settings={
        Scale.SMOKE: Unmasking(
            seeds=2, length=3, slow=("corrector",), gammas=(0.0, 0.5), items=(2, 3), drawn=20
        ),
        Scale.LAPTOP: Unmasking(),
        Scale.PAPER: Unmasking(seeds=40, length=5, items=(2, 3, 4, 5, 6)),
    },
    units=units,
    run=run,
    rows=(Sampled, Planned, Lists, Bounded),
    claims=[
        Claim(
            "diffusion.confident-tokens",
            judge_confidence,
            refuted_by=refuted_confidence(),
            held_by=held_confidence(),
        ),
        Claim("diffusion.lists", judge_lists, refuted_by=refuted_lists(), held_by=held_lists()),
        Claim(
            "diffusion.entropy-bound",
            judge_bounds,
            refuted_by=refuted_bounds(),
            held_by=held_bounds(),
        ),
    ],
    figures=figures(),
)
