"""Entry points of other installed packages, with distributions written by hand."""

import pytest
from tests.support.installed import package_in, put_on_path

from triptych.core.plugins import GROUPS, Plugin, plugins
from triptych.core.validation import UserError


def offer(folder, package, text, entry_points):
    package_in(folder, package, text=text)
    (folder / f"{package}-1.0.dist-info" / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def weather(tmp_path, monkeypatch):
    """The package `weather_for_a_test 1.0` offers a rule and a module."""
    text = (
        "class Rules:\n    @staticmethod\n    def dry(text):\n        return 'rain' not in text\n"
    )
    points = (
        "[triptych.verifiers]\ndry = weather_for_a_test:Rules.dry\n"
        "[triptych.structures]\nrain = weather_for_a_test\nbroken = weather_for_a_test.none\n"
    )
    offer(tmp_path, "weather_for_a_test", text, points)
    put_on_path(monkeypatch, tmp_path)
    return tmp_path


@pytest.mark.usefixtures("weather")
def test_what_a_package_offers_is_found_by_its_name():
    found = plugins("verifiers")["dry"]
    package = "weather_for_a_test 1.0"
    assert found == Plugin("verifiers", "dry", "weather_for_a_test", "Rules.dry", package)
    assert found.place == "weather_for_a_test:Rules.dry"
    assert found.load()("rain at noon") is False
    module = plugins("structures")["rain"].load()
    assert module.__name__ == "weather_for_a_test"
    assert list(plugins("structures")) == ["broken", "rain"], "in the order of the names"
    assert plugins("studies") == plugins("algorithms") == {}


@pytest.mark.usefixtures("weather")
def test_a_package_that_cannot_be_loaded_is_named():
    broken = plugins("structures")["broken"]
    with pytest.raises(UserError) as refused:
        broken.load()
    for part in ("weather_for_a_test 1.0", "broken", "ModuleNotFoundError"):
        assert part in str(refused.value)
    with pytest.raises(UserError):
        broken._replace(module="weather_for_a_test", attribute="nothing").load()


def test_two_packages_with_one_name_are_refused(weather, monkeypatch):
    offer(weather, "other_for_a_test", "", "[triptych.verifiers]\ndry = other_for_a_test:dry\n")
    put_on_path(monkeypatch, weather)
    with pytest.raises(UserError) as refused:
        plugins("verifiers")["dry"].load()
    assert "weather_for_a_test 1.0" in str(refused.value)
    assert "other_for_a_test 1.0" in str(refused.value)


@pytest.mark.parametrize("group", ["", "study", "console_scripts"])
def test_a_group_is_one_of_ours(group):
    with pytest.raises(UserError):
        plugins(group)


def test_there_are_four_groups():
    assert GROUPS == ("structures", "algorithms", "verifiers", "studies")
