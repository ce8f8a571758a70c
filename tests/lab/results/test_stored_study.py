"""A study with its rows, in Python."""

import pytest
from matplotlib.figure import Figure as Canvas
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.lab.results import evidence
from triptych.lab.results.stored_study import stored_study
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored") / "runs"
    with Store.open(folder) as store:
        run_study(Plan.of(find_studies()["exact_heads"], Scale.SMOKE), store=store, workers=0)
    return folder


def test_figures_and_verdicts_of_a_run(folder):
    study = stored_study("exact_heads", folder)
    assert (study.scale, study.source) == (Scale.SMOKE, str(folder))
    assert study.figures == ["head_margin"]
    canvas = study.figure("head_margin", theme="dark")
    assert isinstance(canvas, Canvas)
    assert "linear head" in canvas.texts[0].get_text()
    assert set(study.verdicts) == {"wei.prop-3.4", "wei.thm-3.3", "wei.thm-3.3-needs-rank"}
    assert "head_margin" in study._repr_html_()
    assert repr(study) == f"StoredStudy('exact_heads', smoke, {len(study.rows)} rows)"


def test_bundled_rows_where_nothing_was_run(tmp_path):
    study = stored_study("two_stages", tmp_path / "nothing")
    assert study.source == "two_stages.paper.json"
    assert study.scale is Scale.PAPER
    assert not (tmp_path / "nothing").exists()


def test_mistakes_are_one_sentence(folder, monkeypatch):
    with refused("study"):
        stored_study("exact_heads", folder).figure("x")
    with pytest.raises(UserError, match="there is no study 'nothing'"):
        stored_study("nothing")
    monkeypatch.setattr(evidence, "folder", lambda: None)
    with pytest.raises(UserError, match="has no rows of study vgb_errors with --scale paper"):
        stored_study("vgb_errors", folder, scale="paper")
    with refused("scale"):
        stored_study("exact_heads", folder, scale="big")


def test_bundled_rows_as_a_frame_like_ones_own(folder, tmp_path):
    """The same columns first, and as many rows as the study has."""
    own = stored_study("exact_heads", folder)
    assert len(own.frame()) == len(own.rows)
    bundled = stored_study("two_stages", tmp_path / "nothing")
    frame = bundled.frame()
    assert list(frame.columns)[:4] == ["scale", "unit", "seed", "kind"]
    assert len(frame) == len(bundled.rows)
    kind = frame["kind"][0]
    assert set(bundled.frame(kind)["kind"]) == {kind}
    with pytest.raises(UserError, match="no rows of kind"):
        bundled.frame("Nothing")
