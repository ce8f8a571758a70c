"""The command line as tests call it, and a small study of a user's own."""

from typer.testing import CliRunner

from triptych.lab.cli.app import app

OWN_STUDY = """\
from dataclasses import dataclass
from triptych.core.estimates import mean
from triptych.studies.api.decide import above, at_least, decide
from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Claim, Scale, Settings, Study, Unit

@dataclass(frozen=True)
class Trial(Unit):
    a: int

@dataclass(frozen=True)
class Gain:
    seed: int
    gain: float

def units(settings):
    return [Trial(1, seed=seed) for seed in range(settings.seeds)]

def run(unit, bench):
    yield Gain(unit.seed, -1.0 - 0.1 * unit.seed)

def judge(rows):
    gains = [row.gain for row in rows.of(Gain)]
    if not gains:
        return decide(needs=[at_least("trials", 0, 1)])
    return decide(above("my own gain", mean(gains), 0.0, published=2.0))

def draw(rows):
    gains = [row.gain for row in rows.of(Gain)]
    return Figure("gains", "My gains", [Panel([Series("g", "ours", gains, gains)], "x", "y")])

LOSSES = [Gain(seed, -1.0 - 0.1 * seed) for seed in range(3)]
GAINS = [Gain(seed, 2.0 + 0.1 * seed) for seed in range(3)]
STUDY = Study(
    name="mine",
    question="Is it so?",
    settings={Scale.SMOKE: Settings(), Scale.LAPTOP: Settings(seeds=3)},
    units=units,
    run=run,
    rows=(Gain,),
    claims=[Claim("mine.gain", judge, [LOSSES], GAINS, title="There is a gain")],
    figures=[draw],
)
"""


def run(*arguments, stdin=None):
    """The result of `triptych ARGUMENTS`."""
    return CliRunner().invoke(app, list(arguments), input=stdin)


def run_own(file, *more, scale="laptop"):
    """Run a study file into the folder next to it."""
    out = str(file.parent / "runs")
    return run("run", str(file), "--scale", scale, "--workers", "0", "--out", out, *more)
