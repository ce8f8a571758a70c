"""The released code itself: samplers whose package is installed, and numbers that are quoted."""

import importlib
import json

import pytest

from samplers.judging import BREAKS, KEEPS, NOT_ENTERED, judged
from samplers.record import LIBRARIES, all_samplers, installed_version
from triptych.lab.laws.released import RECORDED as RECORDED_ROWS

RESULTS = json.loads(RECORDED_ROWS.read_text())
RECORDED = {(row["package"], row["name"]): row for row in RESULTS["rows"]}
SHELVES = [importlib.import_module(f"samplers.{name}").SHELF for name in LIBRARIES]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shelf", SHELVES, ids=LIBRARIES)
def test_the_verdicts_of_a_library(shelf):
    """Where the recorded release is installed, its verdicts come out again, and fast."""
    recorded = {row["version"] for row in RECORDED.values() if row["package"] == shelf.package}
    installed = installed_version(shelf.package)
    if not installed:
        pytest.skip(f"{shelf.package} is not installed; `make laws` runs it")
    same = recorded == {installed}
    for sampler in shelf.samplers:
        row = judged(sampler)
        assert row.verdict in (KEEPS, BREAKS, NOT_ENTERED)
        if same:
            known = RECORDED[sampler.package, sampler.name]
            assert row.verdict == known["verdict"], sampler.name
            if row.distance is not None and row.verdict == BREAKS:
                assert row.distance == pytest.approx(known["distance"], abs=1e-6)


def one(package, name):
    if not installed_version(package):
        pytest.skip(f"{package} is not installed; `make laws` runs it")
    (found,) = [s for s in all_samplers() if (s.package, s.name) == (package, name)]
    return judged(found)


@pytest.mark.filterwarnings("ignore")
def test_speculative_sampling_of_transformers_with_honest_drafts():
    row = one("transformers", "_speculative_sampling, drafts from the declared law")
    assert row.distance is not None
    assert row.distance < 1e-12


@pytest.mark.filterwarnings("ignore")
def test_speculative_sampling_of_transformers_with_greedy_drafts():
    row = one("transformers", "_speculative_sampling, greedy drafts with raw logits declared")
    assert row.distance == pytest.approx(0.3048, abs=5e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("selection", "distance"),
    [
        ("default selection", 0.0787),
        ("lowest_current_prob", 0.0445),
        ("lowest_maxprob", 0.0108),
        ("random", 0.0),
    ],
)
def test_the_corrector_of_diffusers(selection, distance):
    row = one("diffusers", f"DiscreteDDIMScheduler.step_correct, {selection}")
    assert row.distance == pytest.approx(distance, abs=5e-5 if distance else 1e-12)
    assert row.long_run is not None
    if selection == "default selection":
        assert row.long_run == pytest.approx(0.27, abs=5e-3)
