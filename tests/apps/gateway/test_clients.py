"""lm-eval and Inspect, unchanged, against a gateway that was really started.

`make test-gateway` installs them into an environment of their own and names its Python in
TRIPTYCH_CLIENTS.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.support.started_gateway import started
from tests.support.tiny_model_folder import save_tiny_model
from tests.support.tiny_text_model import tiny_lm

PYTHON = os.environ.get("TRIPTYCH_CLIENTS", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="lm-eval and Inspect are in `make test-gateway`"),
]
QUESTIONS = [
    {"question": "ab(", "choices": ["01", "ba", "1"], "answer": 0},
    {"question": "[0", "choices": ["a1b", "]", "0)"], "answer": 1},
    {"question": "a", "choices": ["b", "bb", "10"], "answer": 2},
]
CHOICES = """
task: tiny_choices
output_type: multiple_choice
doc_to_choice: "{{choices}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
TEXTS = """
task: tiny_texts
output_type: generate_until
generation_kwargs: {until: [":"], max_gen_toks: 10, temperature: 0.5}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
SHARED = """
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
target_delimiter: ""
"""
INSPECT = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import pattern
from inspect_ai.solver import generate

@task
def bits():
    samples = [Sample(input="ab", target="0"), Sample(input="ba", target="1")]
    return Task(dataset=samples, solver=generate(), scorer=pattern("^([01]{3,8})$"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clients")
    save_tiny_model(folder / "tiny", length=200)
    return folder


@pytest.fixture(scope="module")
def gateway(folder):
    rules = ("--verifier", "plain=none", "--verifier", "bits=regex:[01]{3,8}")
    with started("--model", folder / "tiny", *rules, "--port", "0") as running:
        yield running


def client(folder, *words, **environment):
    """What a client's command prints; it has nothing of ours on its path."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    known |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "home")}
    done = subprocess.run(
        [PYTHON, "-m", *map(str, words)],
        cwd=folder,
        env=known | environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_lm_eval(gateway, folder):
    """Its log-likelihoods are those of the model in process, and its texts end before the stop."""
    tasks = folder / "tasks"
    tasks.mkdir()
    (tasks / "questions.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    shared = SHARED.replace("FILE", str(tasks / "questions.jsonl"))
    (tasks / "choices.yaml").write_text(CHOICES + shared)
    (tasks / "texts.yaml").write_text(TEXTS + shared)
    settings = {
        "model": "tiny:plain",
        "base_url": f"{gateway.base}/completions",
        "tokenizer_backend": "huggingface",
        "tokenizer": folder / "tiny",
        "num_concurrent": 4,
        "max_length": 199,
    }
    told = client(
        folder,
        *("lm_eval", "run", "--model", "local-completions"),
        *("--model_args", ",".join(f"{name}={value}" for name, value in settings.items())),
        *("--tasks", "tiny_choices,tiny_texts", "--include_path", tasks),
        *("--output_path", folder / "out", "--log_samples"),
        OPENAI_API_KEY="none",
    )
    assert re.search(r"tiny_choices\|.*\|acc ", told)

    lm = tiny_lm(length=200)
    for sample in samples_of(folder / "out", "tiny_choices"):
        question = lm.encode([sample["doc"]["question"]])[0]
        for choice, [[log_prob, _]] in zip(sample["doc"]["choices"], sample["resps"], strict=True):
            row = [*question, *lm.encode([choice])[0]]
            [scores] = lm.token_scores([row])
            wanted = sum(score.log_prob for score in scores[len(question) :])
            assert float(log_prob) == pytest.approx(wanted, abs=1e-4)
    texts = [sample["resps"][0][0] for sample in samples_of(folder / "out", "tiny_texts")]
    assert len(texts) == 3
    assert not any(":" in text for text in texts)


def samples_of(folder: Path, task):
    [file] = folder.rglob(f"samples_{task}_*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_inspect(gateway, folder):
    (folder / "bits.py").write_text(INSPECT)
    client(
        folder,
        *("inspect_ai", "eval", "bits.py", "--model", "openai-api/triptych/tiny:bits"),
        *("--max-tokens", "12", "--temperature", "0.7", "--seed", "3", "--display", "plain"),
        *("--log-format", "json", "--log-dir", "logs"),
        TRIPTYCH_BASE_URL=gateway.base,
        TRIPTYCH_API_KEY="none",
    )
    [file] = (folder / "logs").glob("*.json")
    log = json.loads(file.read_text())
    assert log["status"] == "success"
    for sample in log["samples"]:
        output = sample["output"]
        assert re.fullmatch("[01]{3,8}", output["completion"])
        assert output["choices"][0]["stop_reason"] == "stop"
        assert output["usage"]["output_tokens"] == len(output["completion"]) + 1  # the end token
