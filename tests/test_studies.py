"""Every study at smoke scale; every judge refuses what refutes it; settings explode usefully."""

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from triptych.core.estimates import Outcome
from triptych.lab.ledger import load_ledger
from triptych.lab.plots import to_svg
from triptych.lab.runner import find_studies, run_study
from triptych.lab.store import Store
from triptych.studies.study import Scale, Settings, Unit, override, short_labels

STUDIES = find_studies()
LEDGER = {entry.id for entry in load_ledger()}
each_study = pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES.keys())
CLAIMS = [(study, claim) for study in STUDIES.values() for claim in study.claims]


@functools.cache
def smoke_rows(name):
    """Rows of a study at smoke scale, made once for all its claims."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        run_study(STUDIES[name], Scale.SMOKE, store=store, workers=0)
        return store.rows(name, Scale.SMOKE)


@each_study
def test_runs_at_smoke_scale(study, tmp_path):
    store = Store.open(tmp_path)
    summary = run_study(study, Scale.SMOKE, store=store, workers=0)
    assert summary.failed == 0
    rows = store.rows(study.name, Scale.SMOKE)
    assert rows
    for claim in study.claims:
        verdict = claim.judge(rows)
        assert verdict.outcome in Outcome
        assert verdict.because
    for figure in study.figures:
        assert to_svg(figure(rows)).startswith("<svg")
    again = run_study(study, Scale.SMOKE, store=store, workers=0)
    assert again.done == 0


@pytest.mark.parametrize(("study", "claim"), CLAIMS, ids=[claim.id for _, claim in CLAIMS])
def test_can_be_refuted_and_needs_evidence(study, claim):
    assert claim.id in LEDGER
    assert claim.refuted_by
    for rows in claim.refuted_by:
        assert claim.judge(rows).outcome is Outcome.FAILS
    assert claim.judge([]).outcome is Outcome.UNDECIDED


@pytest.mark.parametrize(("study", "claim"), CLAIMS, ids=[claim.id for _, claim in CLAIMS])
def test_nan_never_holds(study, claim):
    """A nan in any number a judge looks at, on the last row of its kind, must not pass."""
    rows = claim.held_by or smoke_rows(study.name)
    assert claim.judge(rows).outcome is Outcome.HOLDS
    looked_at = {name for refuting in claim.refuted_by for row in refuting for name in row}
    kinds = {row["kind"] for refuting in claim.refuted_by for row in refuting}
    for name in looked_at:
        spoiled = [dict(row) for row in rows]
        mine = [row for row in spoiled if row["kind"] in kinds and isinstance(row.get(name), float)]
        if mine:
            mine[-1][name] = float("nan")
            assert claim.judge(spoiled).outcome is not Outcome.HOLDS, name


@each_study
def test_every_scale_has_units_with_distinct_names(study):
    for scale in Scale:
        units = study.units(study.settings[scale])
        assert units
        assert len({unit.key for unit in units}) == len(units)


@dataclass(frozen=True)
class Sizes(Settings):
    depths: tuple[int, ...] = (1, 2)
    rate: float = 0.5
    name: str = "a"
    steps: int = 3


def test_settings_are_overridden_by_type():
    changed = override(
        Sizes(), {"depths": "[3, 4]", "rate": "1", "name": "7", "steps": "9", "seeds": "2"}
    )
    assert changed == Sizes(depths=(3, 4), rate=1.0, name="7", steps=9, seeds=2)
    assert override(Sizes(), {"depths": "5"}).depths == (5,)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("dephts", "1", "did you mean 'depths'"),
        ("steps", "1.5", "steps = '1.5' is not of type int"),
        ("steps", "true", "not of type int"),
        ("rate", "fast", "not of type float"),
        ("depths", '["a"]', "depths"),
    ],
)
def test_settings_that_do_not_exist_or_fit_explode(name, text, sentence):
    with pytest.raises(ValueError, match=sentence):
        override(Sizes(), {name: text})


def test_a_unit_is_named_by_what_it_is():
    unit = Unit({"a": 1, "b": [2, 3]}, seed=4)
    assert unit.key == Unit({"b": [2, 3], "a": 1}, seed=4).key
    assert unit.key != Unit({"a": 1, "b": [2, 3]}, seed=5).key
    assert str(unit) == "a=1, b=[2, 3], seed=4"
    other = Unit({"a": 1, "b": [2]}, seed=4)
    assert short_labels([unit, other])[unit.key] == "b [2, 3], seed 4"
