"""Python files in a model's folder run where the user says so, and nowhere else.

Every case is a process of its own, with "y" on standard input for whoever asks there.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from tests.support.command_line import run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs transformers"
)
KINDS = ("causal", "masked", "encoder", "reward")
LOAD = """
import json, sys
from triptych.core.validation import UserError
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.encoder import PretrainedEncoder
from triptych.models.pretrained.masked import PretrainedMaskedLM
from triptych.verifiers.reward import RewardModel

LOADERS = {
    "causal": PretrainedCausalLM,
    "masked": PretrainedMaskedLM,
    "encoder": PretrainedEncoder,
    "reward": RewardModel,
}
for options in json.loads(sys.argv[1]):
    said = {}
    for name, folder in json.loads(sys.argv[2]).items():
        try:
            loaded = LOADERS[name.partition(" ")[0]].from_pretrained(folder, **options)
            said[name] = type(loaded.model).__name__
        except UserError as error:
            said[name] = f"UserError: {error}"
    print(json.dumps(said))
"""


def in_a_process(words, place):
    """What a fresh interpreter prints; its copies of a model's files lie in `place`."""
    home = {"HF_HOME": str(place), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words],
        input="y\n" * 50,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | home | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.fixture
def folders(tmp_path):
    """A folder of every kind, and one whose tokenizer alone has code; and where markers will be."""
    from tests.support.own_code import add_own_tokenizer, save_own_model
    from tests.support.tiny_model_folder import save_tiny_model

    markers = {kind: save_own_model(kind, tmp_path / kind) for kind in KINDS}
    markers["causal tokenizer"] = add_own_tokenizer(save_tiny_model(tmp_path / "causal tokenizer"))
    return {name: tmp_path / name for name in markers}, markers


def loaded(folders, place, *options):
    """What came of every folder, for each of these options."""
    where = json.dumps({name: str(folder) for name, folder in folders.items()})
    done = in_a_process(["-c", LOAD, json.dumps(options), where], place)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()[-len(options) :]]


def test_the_library_does_not_run_it(folders, tmp_path):
    """Only True is a yes: a word such as "no" would count as one otherwise."""
    folders, markers = folders
    plain, word = loaded(folders, tmp_path / "home", {}, {"trust_remote_code": "no"})
    assert plain.keys() == word.keys() == markers.keys()
    for name, sentence in plain.items():
        assert sentence.startswith("UserError: "), name
        assert "trust_remote_code=True" in sentence
        assert str(folders[name]) in sentence
        assert word[name].startswith("UserError: trust_remote_code is 'no'")
        assert not markers[name].exists()


def test_the_library_runs_it_when_told(folders, tmp_path):
    folders, markers = folders
    (said,) = loaded(folders, tmp_path / "home", {"trust_remote_code": True})
    assert said == dict.fromkeys(KINDS, "OwnModel") | {"causal tokenizer": "LlamaForCausalLM"}
    assert all(marker.exists() for marker in markers.values())


def commands(folder, tmp_path):
    """Every command that loads a model of the user's, by the kind of model."""
    (tmp_path / "prompts.jsonl").write_text('"a"\n')
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(4):
        (texts / f"{number}.txt").write_text("frog toad lizard newt mozart bach violin piano " * 9)
    generate = ["generate", "--model", folder["causal"], "--prompts", tmp_path / "prompts.jsonl"]
    generate += ["--verifier", "brackets", "--max-new-tokens", "3", "--out", tmp_path / "o.jsonl"]
    topics = ["topics", "--model", folder["encoder"], "--corpus", texts, "--out", tmp_path / "t"]
    topics += ["--topics", "2", "--fewest", "1", "--most", "1", "--passes", "1", "--threshold"]
    topics += ["0.2", "--passages", "2", "--no-random-copy"]
    return {"causal": generate, "encoder": topics}


@pytest.mark.parametrize("kind", ["causal", "encoder"])
def test_the_command_line_does_not_run_it(folders, tmp_path, kind):
    folders, markers = folders
    done = run(*map(str, commands(folders, tmp_path)[kind]), stdin="y\n" * 50)
    assert done.exit_code == 2, done.output
    assert "--trust-remote-code" in done.stderr.strip().splitlines()[-1]
    assert not markers[kind].exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["causal", "encoder"])
def test_the_command_line_runs_it_when_told(folders, tmp_path, kind):
    folders, markers = folders
    words = [*map(str, commands(folders, tmp_path)[kind]), "--trust-remote-code"]
    done = in_a_process(["-m", "triptych", *words], tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert markers[kind].exists()
