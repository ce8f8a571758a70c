"""The page on a verifier's error: how far each sampler's exact law is from the target.

The values are those of the study `vgb_errors`: exact on full strings, and before that off by the
factor 1 + ε or its inverse, by a coin for each prefix.
"""

import tempfile
from pathlib import Path
from typing import Any

from triptych.core.validation import as_count, as_number, as_seed
from triptych.lab.running.workbench import WorkBench
from triptych.lab.serving.questions import Question, as_choice, check_names
from triptych.studies.generation.vgb_errors import COLUMNS, Drift, run

TARGETS = ("few ones", "some zero", "random")
MAX_LENGTH = 8
MAX_ERROR = 3.0
LIMIT = "VGB, stationary"  # what VGB tends to, and not what it returns after some steps
TIE = 1e-9


def answer(question: Question) -> dict[str, Any]:
    """Total variation to the target for strings of 2, 3, ... tokens, by sampler; and who wins.

    winner    of the samplers that stop, the one nearest to the target at the full length; None
              where several are as near

    Worked value: with error 0 tokenwise rejection draws from the target, at distance 0.
    """
    check_names(question, ("target", "length", "error", "seed"))
    target = as_choice("target", question["target"], TARGETS)
    length = as_count("length", question["length"], at_least=2, at_most=MAX_LENGTH)
    error = as_number("error", question["error"], at_least=0, at_most=MAX_ERROR)
    seed = as_seed(question["seed"], at_most=2**31)
    heights = tuple(range(2, length + 1))
    unit = Drift(
        seed=seed, task=target, epsilon=error, heights=heights, particles=1, samples=1, sampled=0
    )
    bench = WorkBench(seed, "cpu", Path(tempfile.gettempdir()))  # exact laws draw and keep nothing
    rows = list(run(unit, bench))
    distances = {name: [read(row) for row in rows] for name, (_, read) in COLUMNS.items()}
    return {"lengths": list(heights), "distances": distances, "winner": _winner(distances)}


def _winner(distances: dict[str, list[float]]) -> str | None:
    last = sorted((found[-1], name) for name, found in distances.items() if name != LIMIT)
    (least, name), (second, _) = last[:2]
    return name if second - least > TIE else None
