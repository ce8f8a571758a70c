"""`import triptych` gives what users need, at once, and loads nothing before it is used."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.documents.test_pages import tool

import triptych

FRONTS = [triptych, triptych.guided, triptych.chains, triptych.study]
EACH = [(front, name) for front in FRONTS for name in front.__all__]


@pytest.mark.parametrize(("front", "name"), EACH, ids=lambda each: getattr(each, "__name__", each))
def test_every_name_is_the_thing_itself(front, name):
    found = getattr(front, name)
    home = found.__name__ if inspect.ismodule(found) else found.__module__
    assert home.startswith("triptych.")
    assert home.rsplit(".", 1)[-1] == name or getattr(sys.modules[home], name) is found
    assert getattr(front, name) is found
    assert re.search(rf"\b{name}\b", front.__doc__ or ""), f"help({front.__name__}) names it"


@pytest.mark.parametrize("front", FRONTS)
def test_what_a_type_checker_sees_is_what_there_is(front):
    names = tool("names")
    text = Path(front.__file__).read_text("utf-8")
    assert names.written(text) == text, "run python tools/names.py"
    assert sorted(names.listed(text)) == front.__all__ == sorted(front._HOME)
    assert front.__name__.rpartition(".")[2].replace("triptych", "__init__") in names.MODULES


def test_a_name_that_is_listed_and_not_in_the_table_is_noticed():
    names = tool("names")
    text = Path(triptych.study.__file__).read_text("utf-8")
    line = "    from triptych.core.table import Table as Table\n"
    more = text.replace("if TYPE_CHECKING:\n", f"if TYPE_CHECKING:\n{line}")
    assert names.listed(more)["Table"] == "core.table:Table"
    assert '    "Table": "core.table:Table",\n' in names.written(more) != more


@pytest.mark.parametrize("front", FRONTS[1:])
def test_the_example_of_a_namespace_runs(front):
    example = re.search(r"\n\n((?:    .*\n|\n)+?)\n(?=\S)", front.__doc__ or "")[1]
    namespace = {"triptych": triptych}
    exec(inspect.cleandoc(example), namespace)  # our own text
    assert len(namespace) > 3


def test_nothing_heavy_is_loaded_before_it_is_used():
    program = "import sys, triptych; dir(triptych); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_import_is_instant():
    """Below 50 ms of computing, whatever else the machine does; the best of five."""
    clock = "time.process_time()"
    program = f"import time; t = {clock}; import triptych; print({clock} - t)"
    command = [sys.executable, "-c", program]
    tries = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    assert min(tries) < 0.05


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'Hmm': see help"):
        getattr(triptych, "Hmm")  # noqa: B009
    assert "HMM" in dir(triptych)
    assert not hasattr(triptych, "__wrapped__")


def test_the_example_of_the_help_runs():
    example = re.search(r"    (hmm = .*?)\n\nEach of", triptych.__doc__ or "", re.S)[1]
    namespace = {"triptych": triptych}
    exec(inspect.cleandoc(example), namespace)  # our own text
    assert namespace["tokens"].shape == (100, 12)
