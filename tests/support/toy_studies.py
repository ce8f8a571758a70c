"""Small studies for the tests of the lab: well behaved, misbehaving, and busy."""

import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from triptych.studies.api.study import Scale, Settings, Study, Unit


@dataclass(frozen=True)
class ToySettings(Settings):
    units: int = 6
    sleep_s: float = 0.0
    sizes: tuple[int, ...] = (2,)


@dataclass(frozen=True)
class Draw(Unit):
    number: int
    size: int
    sleep_s: float


@dataclass(frozen=True)
class Drawn:
    number: int
    seed: int
    part: int
    share: float
    other: tuple[int, ...]
    weight: float
    worst: float
    threads: int


def units(settings):
    return [
        Draw(number, size, settings.sleep_s, seed=seed)
        for seed in range(settings.seeds)
        for size in settings.sizes
        for number in range(settings.units)
    ]


def run(unit, bench):
    """Every source of randomness a unit may use, and numbers that JSON finds hard."""
    time.sleep(unit.sleep_s)
    uniform = torch.full((1000, unit.size), 1 / unit.size, dtype=torch.float64).log()
    drawn = bench.rng("tokens").categorical(uniform)
    for part in range(2):
        yield Drawn(
            number=unit.number,
            seed=unit.seed,
            part=part,
            share=drawn.double().mean().item(),
            other=tuple(bench.rng(f"part {part}").categorical(uniform[:8]).tolist()),
            weight=torch.nn.Linear(3, 1).weight.sum().item(),
            worst=-torch.inf,
            threads=torch.get_num_threads(),
        )


def settings(**changes):
    return {Scale.SMOKE: ToySettings(**changes), Scale.LAPTOP: ToySettings(seeds=2, **changes)}


STUDY = Study("toy/plain", "Draws a few numbers.", settings(), units, run, (Drawn,))
SLOW = replace(STUDY, name="toy/slow", settings=settings(units=12, sleep_s=0.02))
STUCK = replace(STUDY, name="toy/stuck", settings=settings(units=4, sleep_s=600.0))

FAULTS = ("none", "raises", "tensor", "exits", "killed", "leaves", "hangs", "none ", "nan", "dict")


@dataclass(frozen=True)
class Fault(Unit):
    fault: str


@dataclass(frozen=True)
class Had:
    fault: str


@dataclass(frozen=True)
class Loss:
    loss: float


def faulty_units(settings):
    return [Fault(fault, seed=0) for fault in FAULTS]


def faulty_run(unit, bench):
    yield Had(unit.fault)
    match unit.fault:
        case "raises":
            raise ArithmeticError("the numbers do not add up")
        case "tensor":
            yield Loss(torch.tensor(1.0))
        case "exits":
            os._exit(1)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "leaves":
            sys.exit("enough")
        case "hangs":
            time.sleep(600)
        case "nan":
            yield Loss(float("nan"))
        case "dict":
            yield {"loss": 1.0}


FAULTY = Study("toy/faulty", "Fails.", settings(), faulty_units, faulty_run, (Had, Loss))


@dataclass(frozen=True)
class Total:
    number: int
    total: int


def busy_run(unit, bench):
    """About 0.2 s of pure computing."""
    total = 0
    for step in range(2_500_000):
        total += step * step % 7
    yield Total(unit.number, total)


BUSY = Study("toy/busy", "Computes.", settings(units=40), units, busy_run, (Total,))


@dataclass(frozen=True)
class Shared:
    made: int
    sum: float


def sharing_run(unit, bench):
    """Units that need the same costly tensor; says whether this one made it."""
    made = []

    def make():
        time.sleep(0.3)
        made.append(os.getpid())
        return {"weight": torch.arange(4.0)}

    weight = bench.tensors({"width": 4}, make)["weight"]
    yield Shared(len(made), weight.sum().item())


SHARING = Study("toy/sharing", "Shares.", settings(units=4), units, sharing_run, (Shared,))


@dataclass(frozen=True)
class GatedSettings(Settings):
    folder: str = ""


@dataclass(frozen=True)
class Gated(Unit):
    number: int
    folder: str


@dataclass(frozen=True)
class Passed:
    number: int


def gated_units(settings):
    return [Gated(number, settings.folder, seed=0) for number in range(4)]


def gated_run(unit, bench):
    """Writes down that it begins, and waits until somebody opens the gate."""
    folder = Path(unit.folder)
    with (folder / "begun").open("a") as begun:
        begun.write(f"{unit.number} {os.getpid()}\n")
    while not (folder / "open").exists():
        time.sleep(0.05)
    yield Passed(unit.number)


GATED = Study(
    "toy/gated", "Waits.", {Scale.SMOKE: GatedSettings()}, gated_units, gated_run, (Passed,)
)
NEEDY = replace(STUDY, name="toy/needy", needs=("no_such_module",))
