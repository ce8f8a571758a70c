"""Are exact models found again from their own samples, and are the standard errors right?

Samples of a truth are fitted from random starts. A consistent estimate has an error of order 1/√n,
and an interval of two standard errors holds the truth in 95 of 100 cases. The states of an HMM have
no names, so they are matched with those of the truth first.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from triptych.core.mask_laws import MaskLaw
from triptych.fitting.result import Fit
from triptych.fitting.search import Search
from triptych.structures.cfg import CFG
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.structures.markov import Markov
from triptych.structures.topics import LDA
from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Bench, Rows, Scale, Settings, Study, Unit

NAMES = {
    "markov": "Markov chain",
    "hmm": "HMM",
    "hmm, gaps": "HMM, a quarter hidden",
    "cfg": "grammar",
    "lda": "LDA",
    "ising": "Ising, exact",
    "ising, masks": "Ising, one spin masked",
}


@dataclass(frozen=True)
class FittedTruths(Settings):
    """How many rows are drawn, and of which truths."""

    sizes: tuple[int, ...] = (100, 400, 1600)
    truths: tuple[str, ...] = tuple(NAMES)


@dataclass(frozen=True)
class FitOne(Unit):
    truth: str
    n: int


@dataclass(frozen=True)
class Recovered:
    """error       root of the mean squared error of the free parameters
    covered      how many of them lie within two standard errors of the truth
    judged       how many have a standard error
    converged    whether the search ended by itself
    """

    truth: str
    n: int
    seed: int
    error: float
    covered: int
    judged: int
    converged: bool


def units(settings: FittedTruths) -> Sequence[FitOne]:
    return [
        FitOne(truth, n, seed=seed)
        for truth in settings.truths
        for n in settings.sizes
        for seed in range(settings.seeds)
    ]


def run(unit: FitOne, bench: Bench) -> Iterable[Recovered]:
    """Draw, fit, and compare with the truth."""
    found, wanted = _FITS[unit.truth](unit.n, unit.seed, bench)
    pairs = [
        (p.value, p.standard_error, true)
        for p, true in zip(found.parameters, wanted, strict=True)
        if 0 < true < 1 or "ising" in unit.truth
    ]
    errors = [value - true for value, _, true in pairs]
    judged = [(abs(v - t), e) for v, e, t in pairs if e is not None and e > 0]
    yield Recovered(
        truth=unit.truth,
        n=unit.n,
        seed=unit.seed,
        error=math.sqrt(sum(e * e for e in errors) / len(errors)),
        covered=sum(distance <= 2 * error for distance, error in judged),
        judged=len(judged),
        converged=found.converged,
    )


def _tensor(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


TWO_STATES = HMM(
    _tensor([0.7, 0.3]),
    _tensor([[0.8, 0.2], [0.3, 0.7]]),
    _tensor([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]),
    length=12,
)
CHAIN = Markov(_tensor([0.25, 0.75]), _tensor([[0.9, 0.1], [0.3, 0.7]]), length=10)
# A rule such as S → S S would not do: on short strings the law has its p and 1 - p alike.
GRAMMAR = CFG.from_rules(
    {
        "S": {("N", "V"): 1.0},
        "N": {"cat": 0.7, ("D", "N"): 0.3},
        "D": {"big": 0.8, "small": 0.2},
        "V": {"runs": 0.6, "sleeps": 0.4},
    },
    length=6,
)
MIXTURE = LDA(3, 2, 0.5, 4, 8)
SPINS = Ising.chain(5, coupling=0.4, field=0.1)

Found = tuple[Fit[Any], list[float]]


def _markov(n: int, seed: int, bench: Bench) -> Found:
    found = Markov.fit(CHAIN.sample(n, bench.rng("rows")), vocab_size=2)
    return found, [*CHAIN.initial.tolist(), *CHAIN.transition.flatten().tolist()]


def _hmm(n: int, seed: int, bench: Bench, gaps: bool = False) -> Found:
    rng = bench.rng("rows")
    tokens = TWO_STATES.sample(n, rng)
    hidden = None
    if gaps:
        coin = _tensor([[0.75, 0.25]]).log()
        hidden = rng.categorical(coin, torch.zeros_like(tokens)).bool()
    search = Search(restarts=2, seed=seed)
    found = HMM.fit(tokens, 2, hidden=hidden, vocab_size=3, search=search)
    distance = torch.cdist(TWO_STATES.emission, found.structure.emission).numpy()
    _, order = linear_sum_assignment(distance)  # state i of the truth is order[i] of the fit
    place = np.argsort(order)
    initial = TWO_STATES.initial[place]
    transition = TWO_STATES.transition[place][:, place]
    parts = (initial, transition, TWO_STATES.emission[place])
    return found, [x for part in parts for x in part.flatten().tolist()]


def _cfg(n: int, seed: int, bench: Bench) -> Found:
    even = CFG.from_rules(
        {
            "S": {("N", "V"): 1.0},
            "N": {"cat": 0.5, ("D", "N"): 0.5},
            "D": {"big": 0.5, "small": 0.5},
            "V": {"runs": 0.5, "sleeps": 0.5},
        },
        length=6,
    )
    found = CFG.fit(GRAMMAR.sample(n, bench.rng("rows")), even, search=Search(restarts=1))
    return found, torch.cat([GRAMMAR.binary.flatten(1), GRAMMAR.terminal], 1).flatten().tolist()


def _lda(n: int, seed: int, bench: Bench) -> Found:
    return LDA.fit(MIXTURE.sample(n, bench.rng("rows")), 3, 2), [MIXTURE.concentration]


def _ising(n: int, seed: int, bench: Bench, masks: MaskLaw | None = None) -> Found:
    found = Ising.fit(SPINS.sample(n, bench.rng("rows")), masks=masks)
    i, j = torch.triu_indices(5, 5, 1)
    return found, [*SPINS.field.tolist(), *SPINS.coupling[i, j].tolist()]


_FITS: dict[str, Callable[[int, int, Bench], Found]] = {
    "markov": _markov,
    "hmm": _hmm,
    "hmm, gaps": lambda n, seed, bench: _hmm(n, seed, bench, gaps=True),
    "cfg": _cfg,
    "lda": _lda,
    "ising": _ising,
    "ising, masks": lambda n, seed, bench: _ising(n, seed, bench, MaskLaw.of_size(5, 1)),
}


# ------------------------------------------------------------------ figures


def errors_figure(rows: Rows[Recovered]) -> Figure:
    """The error against n, next to a line of slope -1/2 through its first point."""
    panels = []
    for truth, name in NAMES.items():
        own = [row for row in rows.of(Recovered) if row.truth == truth]
        sizes = sorted({row.n for row in own})
        if not sizes:
            continue
        means = [float(np.mean([row.error for row in own if row.n == n])) for n in sizes]
        rate = [means[0] * math.sqrt(sizes[0] / n) for n in sizes]
        series = [
            Series("root mean square error", "ours", list(sizes), means),
            Series("1/√n", "truth", list(sizes), rate),
        ]
        panels.append(Panel(series, "rows", "error", name, x_log=True, y_log=True))
    return Figure(
        "recovery",
        "Error of models fitted to samples of a truth",
        panels,
        "Root of the mean squared error of all free parameters, mean over seeds.",
    )


def coverage_figure(rows: Rows[Recovered]) -> Figure:
    """How often two standard errors hold the truth."""
    panels = []
    for truth, name in NAMES.items():
        own = [row for row in rows.of(Recovered) if row.truth == truth]
        sizes = sorted({row.n for row in own})
        if not sizes:
            continue
        shares = []
        for n in sizes:
            here = [row for row in own if row.n == n]
            judged = max(1, sum(row.judged for row in here))
            shares.append(100 * sum(row.covered for row in here) / judged)
        wanted = Series("normal law", "truth", list(sizes), [95.45] * len(sizes))
        panels.append(
            Panel(
                [Series("covered", "ours", list(sizes), shares), wanted],
                "rows",
                "parameters within two standard errors, %",
                name,
                x_log=True,
            )
        )
    return Figure(
        "coverage",
        "How often two standard errors of a fit hold the truth",
        panels,
        "Share of the parameters with a standard error, over all seeds.",
    )


STUDY = Study(
    name="fitted_truths",
    question="Are exact models found again from their own samples, and are the errors right?",
    settings={
        Scale.SMOKE: FittedTruths(seeds=1, sizes=(60,)),
        Scale.LAPTOP: FittedTruths(seeds=4),
        Scale.PAPER: FittedTruths(seeds=50, sizes=(100, 400, 1600, 6400)),
    },
    units=units,
    run=run,
    rows=(Recovered,),
    figures=[errors_figure, coverage_figure],
)
