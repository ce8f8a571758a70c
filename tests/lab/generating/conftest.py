import json

import pytest
from tests.support.tiny_model_folder import save_tiny_model

from triptych.inference.guided.costs import Budget
from triptych.inference.guided.transforms import Sampling
from triptych.lab.generating.settings import make_settings


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def settings(model_folder):
    """Settings of a run on the tiny model, with changes."""

    def make(**changes):
        given = {
            "model": str(model_folder),
            "verifier": "brackets",
            "algorithm": "tokenwise",
            "changes": [],
            "max_new_tokens": 4,
            "sampling": Sampling(),
            "chat": False,
            "seed": 0,
            "dtype": "float32",
            "budget": Budget(),
            "timeout": 30.0,
        }
        return make_settings(**given | changes)

    return make


@pytest.fixture
def read_rows():
    """The rows of a file, by id, without the times."""

    def read(path):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return {row["id"]: {k: v for k, v in row.items() if k != "seconds"} for row in rows}

    return read
