"""Every study at smoke scale; every judge refuses what refutes it; settings explode usefully."""

import dataclasses
import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from triptych.core.estimates import Status
from triptych.core.validation import UserError
from triptych.lab.results.ledger import load_ledger
from triptych.lab.results.plots import to_svg
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.refutation import unmet
from triptych.studies.api.study import Rows, Scale, Settings, override

STUDIES = find_studies()
LEDGER = {entry.id: entry for entry in load_ledger()}
each_study = pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES.keys())
CLAIMS = [(study, claim) for study in STUDIES.values() for claim in study.claims]
each_claim = pytest.mark.parametrize(
    ("study", "claim"), CLAIMS, ids=[claim.id for _, claim in CLAIMS]
)


@functools.cache
def smoke_rows(name):
    """Rows of a study at smoke scale, made once for all its claims."""
    study = STUDIES[name]
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        summary = run_study(Plan.of(study, Scale.SMOKE), store=store, workers=0)
        assert summary.failed == 0
        assert summary.nan == ()
        assert run_study(Plan.of(study, Scale.SMOKE), store=store, workers=0).done == 0
        return Rows(study.row_from_json(row) for row in store.rows(study, Scale.SMOKE))


# Ten seconds and more each. Their own tests run their units; that of `exact_masking` runs them all.
SLOW = {"bracket_theory", "code_cases", "dyck_backtracking", "exact_masking", "masking_more"}
SLOW |= {"reaching_the_mode", "topic_theory"}
each_study_in_time = pytest.mark.parametrize(
    "study",
    [
        pytest.param(study, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, study in STUDIES.items()
    ],
)


@each_study_in_time
def test_runs_at_smoke_scale(study, unchecked_shapes):
    """Shape checks make a study up to five times as slow; its own tests have them."""
    rows = smoke_rows(study.name)
    assert rows
    for claim in study.claims:
        assert claim.verdict(rows).outcome in Status
    for figure in study.figures:
        assert to_svg(figure(rows)).startswith("<svg")


# Minutes with the checks.
LONG = {"refinement_truth"}
LONG |= {
    "bracket_attention",
    "bracket_length",
    "bracket_training",
    "copying_patterns",
    "bracket_theory",
    "code_cases",
}
LONG |= {"dyck_backtracking", "exact_masking", "exact_memory", "exact_prompts", "masking_more"}
LONG |= {"reaching_the_mode", "real_text", "topic_matrices", "topic_theory", "two_stages_text"}
LONG |= {"head_importance", "real_translation", "who_wins"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STUDIES.keys() - LONG))
def test_shapes_at_smoke_scale(name):
    assert smoke_rows.__wrapped__(name)


@each_claim
def test_rows_can_refute_it_and_bear_it_out(study, claim):
    """As a user's own claims must, when they are run (tests/studies/api/test_refutation.py)."""
    assert claim.id in LEDGER
    assert [str(demand) for demand in unmet(claim)] == []


@each_claim
def test_a_number_has_a_tolerance(study, claim):
    """Kind `number` promises that a published value is landed near: a check `within` or exact."""
    if LEDGER[claim.id].kind == "number" and claim.held_by:
        rules = {check.rule for check in claim.verdict(claim.held_by).checks}
        assert rules & {"within", "exactly"}


@each_claim
def test_nan_never_holds(study, claim):
    """A nan in any float of a row that the judge looks at must not pass."""
    kinds = [type(row) for row in claim.held_by]
    for number in sorted({kinds.index(kind) for kind in kinds} | {len(kinds) - 1}):
        row = claim.held_by[number]
        for field in dataclasses.fields(row):
            if isinstance(getattr(row, field.name), float):
                spoiled = list(claim.held_by)
                spoiled[number] = dataclasses.replace(row, **{field.name: float("nan")})
                rows = Rows(spoiled)
                if claim.verdict(rows).outcome is Status.HOLDS:
                    assert type(row) not in rows.asked, f"{type(row).__name__}.{field.name}"


@each_study
def test_every_scale_has_units_with_distinct_names(study):
    for scale in Scale:
        units = Plan.of(study, scale).units
        assert units
        assert len({unit.key for unit in units}) == len(units)


@dataclass(frozen=True)
class Sizes(Settings):
    depths: tuple[int, ...] = (1, 2)
    rate: float = 0.5
    name: str = "a"
    names: tuple[str, ...] = ("a",)
    steps: int = 3


def test_settings_are_overridden_by_type():
    changed = override(
        Sizes(), {"depths": "[3, 4]", "rate": "1", "name": "7", "steps": "9", "seeds": "2"}
    )
    assert changed == Sizes(depths=(3, 4), rate=1.0, name="7", steps=9, seeds=2)
    assert override(Sizes(), {"depths": "5"}).depths == (5,)
    assert override(Sizes(), {"depths": "5, 6"}).depths == (5, 6)
    assert override(Sizes(), {"names": "b,c"}).names == ("b", "c")
    assert override(Sizes(), {"names": ""}).names == ()


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("dephts", "1", "did you mean 'depths'"),
        ("steps", "1.5", "steps is 1.5; it must be int"),
        ("steps", "true", "steps is True; it must be int"),
        ("rate", "fast", "rate is 'fast'; it must be float"),
        ("depths", '["a"]', "depths is a list; it must be tuple"),
    ],
)
def test_settings_that_do_not_exist_or_fit_explode(name, text, sentence):
    with pytest.raises(UserError, match=sentence):
        override(Sizes(), {name: text})
