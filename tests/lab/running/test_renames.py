"""The shape of code knows which public names were renamed, and takes no others for the same."""

import importlib.util
import inspect
from functools import cache

import pytest
from tests.core.test_deprecation import ours

from triptych.core.deprecation import RENAMED, Renamed
from triptych.lab.running import sources
from triptych.lab.running.renames import ATTRIBUTES, DEFINITIONS, KEYWORDS
from triptych.lab.running.shape import shape_of
from triptych.lab.running.sources import Source

API = "triptych.studies.api"
ROW = """
class Row:
    value: float
"""


@pytest.fixture
def shape(tmp_path):
    """The shape of what a function `run` with these lines is, after some imports."""

    def of(lines: str, imports: str = "", more: str = ROW) -> str:
        file = tmp_path / "renames_of_mine.py"
        file.write_text(f"{imports}\n{more}\ndef run(model, bench):\n    yield Row({lines})\n")
        sources._parsed.cache_clear()  # two edits in one tick of the clock look alike to it
        return shape_of([(Source("renames_of_mine", file), "run")]).text

    return of


@cache
def homes() -> dict[str, str]:
    """Label of what the shape calls a renamed function -> the module that it is in."""
    list(ours())  # decorators enter it when modules are imported
    found = {}
    for name in RENAMED:
        if name.startswith("triptych."):
            module = name
            while not _is_module(module):
                module = module.rpartition(".")[0]
            label = name.removeprefix(f"{module.rpartition('.')[0]}.").removesuffix(".__init__")
            assert label not in found, "two functions have one label"
            found[label] = module
    return found


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_the_tables_say_what_the_library_does():
    found = homes()
    listed = {
        name.removeprefix("triptych.").removesuffix(".__init__"): names
        for name, names in RENAMED.items()
    }
    wanted = {}
    for label, module in found.items():
        inside = module.removeprefix("triptych.").rpartition(".")[0]
        names = listed[".".join(filter(None, (inside, label)))]
        wanted[label] = {new: old for old, new in names.items()}
    assert wanted == KEYWORDS
    assert {each.new: each.old for each in renamed_attributes()} == ATTRIBUTES


def renamed_attributes():
    for module in ours():
        for thing in vars(module).values():
            if inspect.isclass(thing) and thing.__module__ == module.__name__:
                for each in vars(thing).values():
                    if isinstance(each, Renamed) and each.new not in thing.__annotations__:
                        yield each


def test_no_class_has_both_names_in_two_meanings():
    """Whatever object an attribute of the table is of, its two names are the same thing."""
    for module in ours():
        for thing in vars(module).values():
            if inspect.isclass(thing) and thing.__module__.startswith("triptych."):
                for new, old in ATTRIBUTES.items():
                    both = inspect.getattr_static(thing, old, None)
                    if hasattr(thing, new) and both is not None:
                        assert isinstance(both, Renamed)


@pytest.mark.parametrize("label", KEYWORDS)
def test_a_renamed_keyword(label, shape):
    module = homes()[label]
    stem, _, name = label.partition(".")
    imports = f"from {module} import {name.partition('.')[0]}"
    for new, old in KEYWORDS[label].items():
        today = shape(f"{name}(1, {new}=2)", imports)
        assert today == shape(f"{name}(1, {old}=2)", imports)
        whole = f"from {module.rpartition('.')[0]} import {stem} as m"
        assert today == shape(f"m.{name}(1, {old}=2)", whole)
        assert today != shape(f"{name}(1, {new}=3)", imports)
        assert today != shape(f"{name}(1, others=2)", imports)
        assert today != shape(f"{name}(1, 2)", imports)
        assert today != shape(f"{name}x(1, {new}=2)", imports.replace(name, f"{name}x"))
        for own in ("Row", "model", "model.random", "len"):  # nobody renamed these
            assert shape(f"{own}({new}=2)") != shape(f"{own}({old}=2)")


@pytest.mark.parametrize(("new", "old"), ATTRIBUTES.items())
def test_a_renamed_attribute(new, old, shape):
    today = shape(f"model.{new}(1).exp()")
    assert today == shape(f"model.{old}(1).exp()")
    for other in ("log_prob", f"{old}s", f"_{old}", f"{new}_", old.upper()):
        assert today != shape(f"model.{other}(1).exp()"), other
    assert today != shape(f"bench.{new}(1).exp()")
    assert shape(f'getattr(model, "{new}")') != shape(f'getattr(model, "{old}")')


@pytest.mark.parametrize(("new", "old"), ATTRIBUTES.items())
@pytest.mark.parametrize(
    "own",
    [
        "class Row:\n    {0}: float\n",
        "class Row:\n    {0} = 1.0\n",
        "class Row:\n    def {0}(self):\n        return 1\n",
        "class Row:\n    def __init__(self, value):\n        self.{0} = value\n",
    ],
)
def test_an_attribute_of_ones_own_is_no_renamed_one(new, old, own, shape):
    for name in (new, old):
        here = own.format(name)
        assert shape(f"model.{new}", more=here) != shape(f"model.{old}", more=here)


@pytest.mark.parametrize(("new", "old"), DEFINITIONS.items())
def test_a_renamed_definition(new, old, shape):
    stem, _, name = new.partition(".")
    (module,) = (
        each.__name__
        for each in (
            *ours(),
            importlib.import_module(f"{API}.figures"),
            importlib.import_module(f"{API}.verdicts"),
        )
        if each.__name__.endswith(f".{stem}") and name in vars(each)
    )
    before = old.partition(".")[2]
    today = shape(f"{name}(1)", f"from {module} import {name}")
    assert today == shape(f"{before}(1)", f"from {module} import {before}")
    assert today == shape(f"{stem}.{before}(1)", f"import {module} as {stem}")
    assert today != shape("Other(1)", f"from {module} import Other")
