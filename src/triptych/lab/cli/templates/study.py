"""How far is a sample from its distribution? A start for a study of your own.

`triptych run my_study.py` runs it, judges its claim and writes a report.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triptych.core.estimates import mean
from triptych.core.table import Table
from triptych.studies.api.decide import Verdict, at_least, below, decide
from triptych.studies.api.figures import Figure, Panel
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.api.summaries import mean_series


@dataclass(frozen=True)
class Sizes(Settings):  # it has `seeds`, too; `--set samples=[400]` changes it
    samples: tuple[int, ...] = (100, 400)


@dataclass(frozen=True)
class Draw(Unit):  # one piece of work, named by its fields and its seed
    samples: int


@dataclass(frozen=True)
class Drawn:  # a row: one fact
    samples: int
    distance: float


def units(settings: Sizes) -> Sequence[Draw]:
    return [Draw(n, seed=s) for n in settings.samples for s in range(settings.seeds)]


def run(unit: Draw, bench: Bench) -> Iterable[Drawn]:
    truth = Table.random(vocab_size=2, length=3, seed=0)
    ranks = truth.rank(truth.sample(unit.samples, bench.rng("samples")))
    shares = ranks.bincount(minlength=len(truth.log_probs)) / unit.samples
    distance = (shares - truth.log_probs.exp()).abs().sum() / 2
    yield Drawn(unit.samples, float(distance))


def judge(rows: Rows[Drawn]) -> Verdict:
    found = [row.distance for row in rows.of(Drawn) if row.samples == 400]
    checks = [below("distance of 400 samples", mean(found), 0.1)] if found else []
    return decide(*checks, needs=[at_least("trials", len(found), 5)])


def distances(rows: Rows[Drawn]) -> Figure:
    points = [(row.samples, row.distance) for row in rows.of(Drawn)]
    series = mean_series(points, "samples", "ours", percent=False)
    panel = Panel([series], "number of samples", "distance")
    return Figure("distances", "Distance of a sample to the truth", [panel])


NEAR = [Drawn(400, 0.05 + 0.001 * i) for i in range(5)]  # must hold
FAR = [Drawn(400, 0.25 + 0.001 * i) for i in range(5)]  # must fail
CLAIM = Claim("my_study.near", judge, [FAR], NEAR, title="400 samples are near")
STUDY = Study(
    name="my_study",
    question="How far is a sample from its distribution?",
    settings={Scale.SMOKE: Sizes(seeds=5), Scale.LAPTOP: Sizes(seeds=20)},
    units=units,
    run=run,
    rows=(Drawn,),
    claims=[CLAIM],
    figures=[distances],
)
