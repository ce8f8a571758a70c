"""Does tomorrow's weather follow from today's? A study that comes with a package."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triptych.core.estimates import mean
from triptych.studies.api.decide import Verdict, above, at_least, decide
from triptych.studies.api.figures import Figure, Panel
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.api.summaries import mean_series

from weather.rain import Rain


@dataclass(frozen=True)
class Sizes(Settings):
    stays: tuple[float, ...] = (0.5, 0.75)


@dataclass(frozen=True)
class Season(Unit):
    stay: float


@dataclass(frozen=True)
class Forecast:
    stay: float
    right: float


def units(settings: Sizes) -> Sequence[Season]:
    return [Season(stay, seed=s) for stay in settings.stays for s in range(settings.seeds)]


def run(unit: Season, bench: Bench) -> Iterable[Forecast]:
    days = Rain(unit.stay, 8).sample(500, bench.rng("days"))
    right = (days[:, 1:] == days[:, :-1]).double().mean()
    yield Forecast(unit.stay, float(right))


def judge(rows: Rows[Forecast]) -> Verdict:
    found = [row.right for row in rows.of(Forecast) if row.stay == 0.75]
    checks = [above("share of right forecasts", mean(found), 0.6)] if found else []
    return decide(*checks, needs=[at_least("seasons", len(found), 5)])


def shares(rows: Rows[Forecast]) -> Figure:
    points = [(row.stay, row.right) for row in rows.of(Forecast)]
    series = mean_series(points, "as today", "ours", percent=False)
    panel = Panel([series], "how likely the weather stays", "share of right forecasts")
    return Figure("shares", "Forecasts that tomorrow is like today", [panel])


GOOD = [Forecast(0.75, 0.75 + 0.001 * i) for i in range(5)]  # must hold
BAD = [Forecast(0.75, 0.5 + 0.001 * i) for i in range(5)]  # must fail
CLAIM = Claim("weather.forecast", judge, [BAD], GOOD, title="Tomorrow is mostly like today")
STUDY = Study(
    name="forecast",
    question="Does tomorrow's weather follow from today's?",
    settings={Scale.SMOKE: Sizes(seeds=5), Scale.LAPTOP: Sizes(seeds=20)},
    units=units,
    run=run,
    rows=(Forecast,),
    claims=[CLAIM],
    figures=[shares],
)
