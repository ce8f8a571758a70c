"""The files for a public forge: workflows that call the make targets, pinned actions, and forms.

The workflows have run nowhere yet; this is what can be known of them here.
"""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
FORGE = ROOT / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
RUN = re.compile(r"make ([a-z-]+)( [A-Z]+=[\w.-]+)*")
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


def read(path):
    return yaml.safe_load(path.read_text("utf-8"))


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def test_the_workflows_are_there():
    assert {path.stem for path in WORKFLOWS} == {"tests", "nightly", "release"}
    assert {"test", "test-slow", "docs", "dist", "api"} <= TARGETS


@each_workflow
def test_a_workflow_calls_make_targets_alone(path):
    runs = [step["run"] for step in steps(read(path)) if "run" in step]
    for line in runs:
        found = RUN.fullmatch(line.strip())
        assert found, f"{line!r} is no call of make"
        assert found[1] in TARGETS, line


@each_workflow
def test_actions_are_pinned_to_a_commit_with_its_version(path):
    for step in steps(read(path)):
        assert "run" in step or PINNED.fullmatch(step["uses"]), step
    for line in path.read_text("utf-8").splitlines():
        assert "uses:" not in line or re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@each_workflow
def test_a_workflow_may_read_and_no_more(path):
    """One job alone, which publishes, gets more: a token of its identity."""
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    more = {
        name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job
    }
    assert more == ({"publish": {"id-token": "write"}} if path.stem == "release" else {})
    for step in steps(workflow):
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_every_python_and_system_is_tested():
    matrix = read(FORGE / "workflows" / "tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert {name.split("-")[0] for name in matrix["system"]} == {"ubuntu", "macos"}


def test_a_release_is_what_was_built_and_is_published_without_a_password():
    workflow = read(FORGE / "workflows" / "release.yml")
    assert workflow[True] == {"push": {"tags": ["v*"]}}, "YAML reads `on` as True"
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert build["env"]["RELEASE_TAG"] == "${{ github.ref_name }}"
    assert any(step.get("run", "").startswith("make dist") for step in build["steps"])
    assert publish["needs"] == "build"
    assert publish["steps"][-1]["with"] == {"attestations": True}
    assert "secrets." not in (FORGE / "workflows" / "release.yml").read_text()


def test_nightly_has_the_newest_and_the_oldest():
    job = read(FORGE / "workflows" / "nightly.yml")["jobs"]["dependencies"]
    versions = job["strategy"]["matrix"]["versions"]
    assert versions == ["newest", "constraints-oldest.txt"]
    assert all((ROOT / name).is_file() for name in versions[1:])


def test_the_oldest_versions_are_the_lower_ends_of_the_ranges():
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in lines if "==" in line)
    oldest = {canonicalize_name(name): Version(version) for name, version in oldest.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    wanted += [text for name in ("test", "hf", "ray", "translation") for text in extras[name]]
    for text in wanted:
        requirement = Requirement(text)
        low = next(Version(s.version) for s in requirement.specifier if s.operator == ">=")
        assert oldest.pop(canonicalize_name(requirement.name), low) == low, text
    assert not oldest


@pytest.mark.parametrize("path", sorted(FORGE.rglob("*.yml")), ids=lambda path: path.name)
def test_every_form_and_setting_is_yaml(path):
    assert isinstance(read(path), dict)


def test_forms_ask_for_what_is_needed():
    for name in ("bug", "result", "proposal"):
        form = read(FORGE / "ISSUE_TEMPLATE" / f"{name}.yml")
        assert {"name", "description", "body"} <= set(form)
        ids = [field["id"] for field in form["body"]]
        assert len(ids) == len(set(ids))
        assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_hooks_run_what_make_lint_runs():
    hooks = read(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    called = [re.sub(r"^\.venv/bin/| --force-exclude$", "", hook["entry"]) for hook in hooks]
    lint = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    assert all(f"$(BIN)/{command}" in lint for command in called)


def test_citation_is_whole():
    citation = read(ROOT / "CITATION.cff")
    assert {"cff-version", "title", "message", "authors", "version", "license"} <= set(citation)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["license"] == project["license"]
    assert [entry["type"] for entry in citation["references"]] == ["conference-paper", "thesis"]


def test_no_address_is_invented():
    """There is no public repository yet: no link of ours may look like one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "urls" not in project
    assert "repository-code" not in read(ROOT / "CITATION.cff")
