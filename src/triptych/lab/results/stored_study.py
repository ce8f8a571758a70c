"""The rows and figures of one study, for Python and notebooks.

study = stored_study("vgb_errors", "runs")
study.figure("drift")               # a matplotlib figure
study.verdicts["li.vgb-errors"]     # what its judge says
study.frame("Drift")                # its rows of one kind, as a DataFrame
"""

import difflib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from triptych.core.display import card, facts_table
from triptych.core.plugins import plugins
from triptych.core.validation import UserError
from triptych.lab.results import crossings, evidence
from triptych.lab.results.ranking import SCALES
from triptych.lab.running.discovery import find_studies, load_study
from triptych.lab.running.selection import load_offered
from triptych.lab.running.store import FILE, JsonRow, Store, StoredUnit, of_kind, records_of
from triptych.lab.running.tables import frame_of
from triptych.studies.api.decide import Verdict
from triptych.studies.api.study import AnyStudy, Rows, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True)
class StoredStudy:
    """A study with its rows at one scale; `source` is the run folder or the file of evidence.

    records
        The same rows as JSON, each with its scale and its unit's key and seed.
    """

    study: AnyStudy
    scale: Scale
    rows: Rows[Any]
    source: str
    records: list[JsonRow] = field(default_factory=list, repr=False)

    @property
    def figures(self) -> list[str]:
        """The names of its figures."""
        return [make(self.rows).name for make in self.study.figures]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """What the judges say about these rows, by the id of the claim."""
        return {claim.id: claim.verdict(self.rows) for claim in self.study.claims}

    def frame(self, kind: str | None = None) -> Any:
        """The rows as a pandas DataFrame, of one kind if it is named; bundled ones like one's own.

        The columns `scale`, `unit` and `seed` come first, as in `Store.frame`.
        """
        return frame_of(of_kind(self.records, kind, self.study.name))

    def figure(self, name: str, theme: str = "light") -> "Canvas":
        """The figure of that name, drawn by matplotlib."""
        from triptych.lab.results.drawing import draw_figure

        drawn = [make(self.rows) for make in self.study.figures]
        for figure in drawn:
            if figure.name == name:
                return draw_figure(figure, theme)
        names = ", ".join(figure.name for figure in drawn) or "none"
        raise UserError(
            f"study {self.study.name} has no figure {name!r} (figures: {names})", parameter="study"
        )

    def __repr__(self) -> str:
        return f"StoredStudy({self.study.name!r}, {self.scale.value}, {len(self.rows)} rows)"

    def _repr_html_(self) -> str:
        facts = {
            "question": self.study.question,
            "rows": len(self.rows),
            "from": self.source,
            "figures": ", ".join(self.figures) or "none",
            **{name: verdict.outcome.value for name, verdict in self.verdicts.items()},
        }
        return card(f"Study {self.study.name}, {self.scale.value} scale", facts_table(facts))


def stored_study(name: str, out: str | Path = "runs", scale: str | None = None) -> StoredStudy:
    """A study with the rows of a run folder, or else with those that came with Triptych.

    name
        Of a study of ours, or a Python file of your own.
    scale
        "smoke", "laptop" or "paper"; the largest that has rows by default.
    """
    offered = plugins("studies")
    study = load_study(name) if str(name).endswith(".py") else find_studies().get(name)
    if study is None and name in offered:
        study = load_offered(offered[name])
    if study is None:
        raise UserError(f"there is no study {name!r} (`triptych list` shows them)")
    if scale is not None and scale not in SCALES:
        raise UserError(
            f"there is no scale {scale!r}: choose from {', '.join(SCALES)}", parameter="scale"
        )
    wanted = [Scale(each) for each in SCALES if scale in (None, each)]
    for each, units, source in _places(study, Path(out)):
        done = [unit for unit in units if unit.status == "done"]
        rows = [row for unit in done for row in unit.rows]
        if each in wanted and rows:
            typed = Rows(map(study.row_from_json, rows))
            return StoredStudy(study, each, typed, source, records_of(done))
    at = f" with --scale {scale}" if scale else ""
    raise UserError(
        f"{out} has no rows of study {study.name}{at}: run it there first", parameter="out"
    )


def _places(study: AnyStudy, out: Path) -> list[tuple[Scale, list[StoredUnit], str]]:
    """Where rows may be: the run folder from the largest scale down, then bundled evidence."""
    found: list[tuple[Scale, list[StoredUnit], str]] = []
    if (out / FILE).exists():
        with Store.read(out) as store:
            found += [(s, store.units(study.name, s), str(out)) for s in map(Scale, SCALES)]
    return [*found, *_bundled(study)]


def _bundled(study: AnyStudy) -> list[tuple[Scale, list[StoredUnit], str]]:
    """What came with Triptych: scale, units and the name of the file."""
    found = []
    for path in evidence.files(evidence.folder()):
        if path.name.startswith(f"{study.name}."):
            loaded = evidence.load(path)
            found.append(
                (loaded.scale, list(evidence.laid_out(loaded, study).units), evidence.called(path))
            )
    return found


class TableRows(NamedTuple):
    """Rows of a study for a table.

    bundled
        How many come from which file of evidence; none for rows of a run folder.
    """

    records: list[JsonRow]
    bundled: dict[str, int]


def table_rows(
    name: str,
    out: Path,
    scale: Scale | None = None,
    kind: str | None = None,
    *,
    bundled: bool = False,
    may_be_missing: bool = False,
    crossed: bool = False,
) -> TableRows:
    """The rows of a run folder, or the bundled ones where it has none of this study and scale.

    Bundled rows say their file, because those of several files may stand in one table.

    bundled
        The bundled ones, whatever the folder has.
    may_be_missing
        Whether there need not be such a folder.
    crossed
        Those of its crossed settings, each with its settings.
    """
    if crossed:
        return TableRows(of_kind(crossings.records(out, name, scale), kind, name), {})
    study = find_studies().get(name)
    own: list[JsonRow] = []
    if not bundled and ((out / FILE).exists() or not may_be_missing):
        with Store.read(out) as store:
            if any(known == name and scale in (None, at) for known, at in store.studies()):
                own = store.records(name, scale)
    if own:
        return TableRows(of_kind(own, kind, name), {})
    at = f" with --scale {scale.value}" if scale else ""
    if study is None:
        near = difflib.get_close_matches(name, find_studies(), n=1)
        hint = f"; did you mean {near[0]}?" if near else " (`triptych list` shows the studies)"
        raise UserError(
            f"{out} has no rows of study {name}{at}, nor are any bundled{hint}", parameter="bundled"
        )
    found = [
        {"file": file} | record
        for where, units, file in _bundled(study)
        if scale in (None, where)
        for record in records_of(unit for unit in units if unit.status == "done")
    ]
    if not found:
        raise UserError(
            f"{out} has no rows of study {name}{at}, nor are any bundled: "
            f"`triptych run {name}` makes them",
            parameter="bundled",
        )
    chosen = of_kind(found, kind, name)
    return TableRows(chosen, dict(Counter(record["file"] for record in chosen)))
