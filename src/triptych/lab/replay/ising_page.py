"""The page of two samplers on a grid of spins: one HTML file that opens from disk.

`ising.html.jinja` is the page, `ising.js` draws the grids and charts, `report.css` and `ising.css`
are its look; all of them end up inside the file.
"""

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from triptych.core.validation import UserError
from triptych.lab.replay.ising import SpinReplay
from triptych.lab.replay.page import rendered, write_page

_DIGITS = 5


def render_spins(replay: SpinReplay) -> str:
    """The page of both samplers."""
    if not isinstance(replay, SpinReplay):
        raise UserError(
            f"replay is a {type(replay).__name__}; it must come from replayed(...)",
            parameter="replay",
        )
    return rendered(
        "ising",
        title="Gibbs sampling and parallel decoding on an Ising grid",
        about=about(replay),
        sides=replay.sides,
        data=Markup(json.dumps(spin_data(replay), separators=(",", ":"), allow_nan=False)),
    )


def write_spins(replay: SpinReplay, path: Path | str) -> Path:
    """Write the page of `render_spins`, whole or not at all; returns where it is."""
    return write_page(render_spins(replay), path)


def about(replay: SpinReplay) -> list[str]:
    """What the page says above the grids."""
    n = replay.size
    field = f" and the field h = {replay.field:g}" if replay.field else " and no field"
    model = (
        f"{n} × {n} spins with the coupling J = {replay.coupling:g}{field}. Both samplers start "
        "with the same random spins and ask the same number of exact conditionals: one question "
        "for each spin in a round."
    )
    gibbs = (
        "Gibbs sampling draws one spin after the other, so the law of its chain tends to the "
        "model's law."
    )
    if replay.sides[1].passes[-1] < replay.sides[0].passes[-1]:
        other = (
            "Parallel decoding draws all spins from the same old state. It needs one pass for a "
            "round, but neighbours do not see each other's new values: where they are coupled, its "
            "law tends to another one."
        )
    else:
        other = (
            "The other sampler hides a square of spins and draws each of them from its marginal, "
            "without a look at the others of the square: where they are coupled, its law tends to "
            "another one."
        )
    return [model, f"{gibbs} {other}"]


def spin_data(replay: SpinReplay) -> dict[str, Any]:
    """What the script reads: a string of 0 and 1 for every round, and rounded numbers.

    Worked value: the spins [[0, 1], [1, 1]] of two rounds are "01" and "11".
    """
    sides = []
    for side in replay.sides:
        known = side._asdict()
        known["states"] = ["".join(map(str, state)) for state in side.states]
        for name in ("magnetisation", "energy", "distance"):
            known[name] = known[name] and [round(value, _DIGITS) for value in known[name]]
        sides.append(known)
    exact = {name: round(value, _DIGITS) for name, value in replay.exact._asdict().items()}
    return {"size": replay.size, "sides": sides, "exact": exact}
