"""The example package of a stranger, installed into a folder: commands, axioms and report know it.

It is copied as pip would place it, with the entry points of its own pyproject.toml.
"""

import json
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.command_line import run
from tests.support.installed import put_on_path

from triptych.core.plugins import plugins
from triptych.core.validation import UserError
from triptych.lab.axioms.discovery import offered_examples
from triptych.lab.generating.rules import AskedRule, find_rule
from triptych.lab.results.stored_study import stored_study
from triptych.lab.running.fingerprint import code_of
from triptych.lab.running.selection import choose_studies

WEATHER = Path(__file__).parents[2] / "examples" / "weather"


def install(site: Path, project: Path = WEATHER) -> Path:
    """Sources, metadata and entry points, where Python looks for packages; the package's folder."""
    facts = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    name, version = facts["name"], facts["version"]
    package = Path(shutil.copytree(project / "src" / name, site / name))
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in offered.items())
        for group, offered in facts["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    files = [*package.glob("*.py"), *info.iterdir()]
    (info / "RECORD").write_text("".join(f"{f.relative_to(site).as_posix()},,\n" for f in files))
    return package


@pytest.fixture
def weather(tmp_path, monkeypatch):
    """The package is installed, and gone from memory afterwards."""
    site = tmp_path / "site"
    site.mkdir()
    package = install(site)
    put_on_path(monkeypatch, site)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("triptych.lab.results.evidence.folder", lambda: None)
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "weather"]:
        del sys.modules[name]


@pytest.mark.usefixtures("weather")
def test_the_list_has_what_is_offered():
    offered = json.loads(run("list", "--json").stdout)["offered"]
    assert {(each["group"], each["name"], each["package"]) for each in offered} == {
        ("structures", "rain", "weather 1.0"),
        ("verifiers", "dry", "weather 1.0"),
        ("studies", "forecast", "weather 1.0"),
    }
    assert "weather 1.0" in run("list").stdout


@pytest.mark.usefixtures("weather")
def test_its_axioms_are_checked_with_ours(monkeypatch):
    monkeypatch.setattr("triptych.lab.axioms.findings.PACKAGES", ())
    done = run("axioms", "--json")
    assert done.exit_code == 0, done.output
    found = {(row["module"], row["example"]) for row in json.loads(done.stdout)}
    assert found == {
        ("weather 1.0: rain", "four days"),
        ("weather 1.0: rain", "the weather never changes"),
        ("weather 1.0: forecast", "forecast"),  # the form of the study
        ("weather 1.0: forecast", "weather.forecast"),
    }


def test_a_wrong_structure_of_a_package_fails(weather, monkeypatch):
    monkeypatch.setattr("triptych.lab.axioms.findings.PACKAGES", ())
    rain = weather / "rain.py"
    rain.write_text(rain.read_text().replace("self.stay + (1 - same)", "self.stay + (2 - same)"))
    done = run("axioms")
    assert done.exit_code == 1
    assert "FAILS" in done.stdout


def test_a_package_that_cannot_be_loaded_fails_and_stops_nothing_else(weather, monkeypatch):
    monkeypatch.setattr("triptych.lab.axioms.findings.PACKAGES", ())
    (weather / "rain.py").write_text("import no_such_module_anywhere\n")
    assert run("list").exit_code == 0
    done = run("axioms")
    assert done.exit_code == 1
    assert "weather 1.0" in done.stdout
    assert [type(each.value) for each in offered_examples()] == [UserError, UserError]
    assert choose_studies(["exact_gap"])[0].study.name == "exact_gap"
    refused = run("run", "forecast", "--scale", "smoke", "--workers", "0")
    assert refused.exit_code == 2
    assert "weather 1.0" in refused.stderr


def test_its_study_runs_and_is_in_the_report(weather, tmp_path):
    done = run("run", "forecast", "--workers", "0", "--set", "seeds=6")
    assert done.exit_code == 0, done.output
    assert "holds  weather.forecast" in done.stdout
    page = (tmp_path / "runs" / "report.html").read_text()
    assert "Tomorrow is mostly like today" in page
    assert "Forecasts that tomorrow is like today" in page
    done = run("report")  # of what the run concluded
    assert done.exit_code == 0, done.output
    assert "Tomorrow is mostly like today" in (tmp_path / "runs" / "report.html").read_text()
    assert len(stored_study("forecast").rows) == 12


def test_its_units_go_to_other_processes(weather, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{weather.parent}:{':'.join(filter(None, sys.path))}")
    done = run("run", "forecast", "--scale", "smoke", "--workers", "1", "--no-report")
    assert done.exit_code == 0, done.output


def test_rows_of_a_package_know_its_code(weather):
    """An installed package is no library here: an edit of what makes its rows is seen."""
    (chosen,) = choose_studies(["forecast"])
    before = code_of(chosen.study)
    assert before.fingerprint
    assert before.shape
    assert chosen.file == weather / "forecast.py"
    rain = weather / "rain.py"
    rain.write_text(rain.read_text().replace("(1 - self.stay)", "(1.0 - self.stay)"))
    assert code_of(chosen.study).shape != before.shape


@pytest.mark.parametrize(
    ("before", "after"),
    [('name="forecast"', 'name="exact_heads"'), ("STUDY = Study(", "STUDY = dict(")],
)
def test_what_is_no_study_of_this_name_is_refused(weather, before, after):
    file = weather / "forecast.py"
    file.write_text(file.read_text().replace(before, after))
    done = run("run", "forecast", "--scale", "smoke", "--workers", "0")
    assert done.exit_code == 2
    assert "weather 1.0" in done.stderr


def test_its_verifier_is_asked_in_a_process_of_its_own(weather):
    source = find_rule("dry")
    assert (source.kind, source.file, source.detail) == ("installed", "weather.dry", "dry")
    rule = AskedRule(source, 60.0)
    try:
        assert [rule("a sunny day"), rule("Rain at noon")] == [1.0, 0.0]
    finally:
        rule.close()
    (weather / "dry.py").unlink()
    sys.modules.pop("weather.dry")
    with pytest.raises(UserError, match="weather 1.0"):
        find_rule("dry")


def test_a_name_that_nobody_offers_is_refused(weather):
    with pytest.raises(UserError, match="dry"):
        find_rule("drt")
    shutil.rmtree(weather.parent / "weather-1.0.dist-info")
    assert plugins("verifiers") == {}
    with pytest.raises(UserError):
        find_rule("dry")
