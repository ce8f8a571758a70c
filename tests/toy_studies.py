"""Small studies for the tests of the lab: well behaved, misbehaving, and busy."""

import os
import signal
import sys
import time
from dataclasses import dataclass

import torch

from triptych.studies.study import Scale, Settings, Study, Unit


@dataclass(frozen=True)
class ToySettings(Settings):
    units: int = 6
    sleep_s: float = 0.0
    sizes: tuple[int, ...] = (2,)


def units(settings):
    return [
        Unit({"number": number, "size": size, "sleep_s": settings.sleep_s}, seed)
        for seed in range(settings.seeds)
        for size in settings.sizes
        for number in range(settings.units)
    ]


def run(unit, bench):
    """Every source of randomness a unit may use, and numbers that JSON finds hard."""
    time.sleep(unit.parameters["sleep_s"])
    size = unit.parameters["size"]
    uniform = torch.full((1000, size), 1 / size, dtype=torch.float64).log()
    drawn = bench.rng("tokens").categorical(uniform)
    for part in range(2):
        yield {
            "number": unit.parameters["number"],
            "seed": unit.seed,
            "part": part,
            "share": drawn.double().mean().item(),
            "other": bench.rng(f"part {part}").categorical(uniform[:8]).tolist(),
            "weight": torch.nn.Linear(3, 1).weight.sum().item(),
            "worst": -torch.inf,
            "threads": torch.get_num_threads(),
        }


def settings(**changes):
    return {Scale.SMOKE: ToySettings(**changes), Scale.LAPTOP: ToySettings(seeds=2, **changes)}


STUDY = Study("toy/plain", "Draws a few numbers.", settings(), units, run)
SLOW = Study("toy/slow", "As plain, slowly.", settings(units=12, sleep_s=0.02), units, run)
STUCK = Study("toy/stuck", "Takes for ever.", settings(units=4, sleep_s=600.0), units, run)

FAULTS = ("none", "raises", "tensor", "exits", "killed", "leaves", "hangs", "none ")


def faulty_units(settings):
    return [Unit({"fault": fault}, 0) for fault in FAULTS]


def faulty_run(unit, bench):
    fault = unit.parameters["fault"]
    yield {"fault": fault}
    if fault == "raises":
        raise ArithmeticError("the numbers do not add up")
    if fault == "tensor":
        yield {"loss": torch.tensor(1.0)}
    if fault == "exits":
        os._exit(1)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "leaves":
        sys.exit("enough")
    if fault == "hangs":
        time.sleep(600)


FAULTY = Study("toy/faulty", "Fails in every way.", settings(), faulty_units, faulty_run)


def busy_run(unit, bench):
    """About 0.2 s of pure computing."""
    total = 0
    for step in range(2_500_000):
        total += step * step % 7
    yield {"number": unit.parameters["number"], "total": total}


BUSY = Study("toy/busy", "Computes.", settings(units=40), units, busy_run)


def sharing_run(unit, bench):
    """Units that need the same costly tensor; says whether this one made it."""
    made = []

    def make():
        time.sleep(0.3)
        made.append(os.getpid())
        return {"weight": torch.arange(4.0)}

    weight = bench.tensors({"width": 4}, make)["weight"]
    yield {"made": len(made), "sum": weight.sum().item()}


SHARING = Study("toy/sharing", "Shares a tensor.", settings(units=4), units, sharing_run)
NEEDY = Study("toy/needy", "", settings(), units, run, needs=("no_such_module",))
