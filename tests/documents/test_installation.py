"""The set-up: no CUDA package on a machine without a GPU, pins inside the declared ranges."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


install = tool("install")


def report(*names):
    return {"install": [{"metadata": {"name": name}} for name in names]}


def test_cuda_packages_are_recognised():
    found = install.cuda_packages(
        report("torch", "nvidia-cublas", "nvidia-cudnn-cu13", "triton", "cuda-bindings", "sympy")
    )
    assert found == ["cuda-bindings", "nvidia-cublas", "nvidia-cudnn-cu13", "triton"]
    assert install.cuda_packages(report("torch", "numpy", "cudatext")) == []


def test_no_cuda_package_was_installed_here():
    """Where there is no GPU, this very environment has none of them."""
    import importlib.metadata

    if install.has_gpu():
        return
    names = {(d.metadata["Name"] or "").lower() for d in importlib.metadata.distributions()}
    assert not {name for name in names if install.CUDA.match(name)}


def test_pins_satisfy_the_declared_ranges():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {
        canonicalize_name(line.split("==")[0]): line.split("==")[1]
        for line in lines
        if "==" in line
    }
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    for text in wanted:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text
        assert any(s.operator == "<" for s in requirement.specifier), f"{text} has no upper bound"
    assert pins["torch"] == "2.13.0"


def test_the_version_is_one_version():
    from triptych import __version__

    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {re.escape(__version__)}$", citation, re.MULTILINE)
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_contributing_says_what_ran_in_every_python_that_is_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    lines = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    assert [
        version for version in named if any(f"| {version} |" in line for line in lines)
    ] == named
    assert project["requires-python"] == f">={named[0]}"


def test_tests_on_a_gpu_take_words_for_pytest(monkeypatch):
    on_gpu, asked = tool("test_on_gpu"), []
    monkeypatch.setattr(on_gpu, "run", lambda folder, log, words: asked.append(words) or 7)
    for words in ([], ["--"], ["--", "-x", "tests/core"]):
        with pytest.raises(SystemExit) as ended:
            on_gpu.main(["run", "wheels", "--log", "log", *words])
        assert ended.value.code == 7
    assert asked == [[], [], ["-x", "tests/core"]]
