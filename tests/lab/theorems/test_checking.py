"""`triptych theorems`: which theorem covers a model and a task of one's own, and what it prints."""

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from triptych.core.table import all_sequences
from triptych.lab.cli.app import app
from triptych.lab.theorems import checking
from triptych.lab.theorems import sentences as check_text
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.theory.tuning import essential, heads, memory_heads, memory_prompts, prompts

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples"
TWO_STATES = {
    "initial": [0.25, 0.75],
    "transition": [[0.5, 0.5], [0.25, 0.75]],
    "emission": [[1.0, 0.0], [0.5, 0.5]],
}


def run(*arguments):
    return CliRunner().invoke(app, ["theorems", *map(str, arguments)])


def example(name):
    return json.loads((EXAMPLES / name).read_text())


@pytest.fixture
def files(tmp_path):
    """Write a model and a task, and give the arguments of the command."""

    def write(model, task=None):
        if isinstance(model, HMM | MemoryHMM):
            names = ("initial", "transition", "emission")
            names = names if isinstance(model, HMM) else ("memory", *names)
            model = {name: getattr(model, name).tolist() for name in names}
        written = [tmp_path / "model.json"]
        written[0].write_text(model if isinstance(model, str) else json.dumps(model))
        if task is None:
            return written
        if isinstance(task, torch.Tensor):
            task = task.tolist()
        (tmp_path / "task.json").write_text(task if isinstance(task, str) else json.dumps(task))
        return [*written, "--task", tmp_path / "task.json"]

    return write


@pytest.fixture
def told(files):
    """The answer as JSON and the exit code."""

    def ask(model, task=None):
        result = run(*files(model, task), "--json")
        assert result.exit_code in (0, 1), result.output
        return json.loads(result.stdout, parse_constant=pytest.fail), result.exit_code

    return ask


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def same(one, other):
    """Equal up to rounding, which may differ between two calls."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


def the(answer, theorem):
    (found,) = [entry for entry in answer["theorems"] if entry["theorem"] == theorem]
    return found


# ------------------------------------------------------------------ worked by hand


def test_two_states_by_hand(files, told):
    """P[H_1] = (5/16, 11/16), D = (5/4, 11/12), W⁺ = [[1, -1], [0, 2]]: b = (4/5, -4/5)."""
    answer, code = told(TWO_STATES, [1, 0])
    entry = the(answer, "3.3")
    assert code == 0
    assert answer["covered"] is True
    assert entry["applies"] is True
    assert entry["witness"]["head"] == pytest.approx([0.8, -0.8], abs=1e-12)
    # the rows have the products 1, ½, ½: σ² is a root of s² - (3/2) s + ¼
    assert entry["conditions"][0]["margin"] == pytest.approx(math.sqrt((3 - math.sqrt(5)) / 4))
    text = run(*files(TWO_STATES, [1, 0])).stdout
    assert "head b = 0.8, -0.8" in text


def test_three_states_by_hand(told):
    """The worked value of `prompts.witness`: only Theorem 3.6, with B = {0} and H* = {0, 1}."""
    answer, code = told(example("hmm.json"), example("hmm_task.json"))
    assert code == 0
    assert the(answer, "3.3")["applies"] is False
    assert the(answer, "3.3")["witness"] is None
    entry = the(answer, "3.6")
    assert entry["witness"] == {
        "prompt": [1.0, 0.0, 0.0],
        "head": pytest.approx([4 / 3, -8 / 3]),
        "chosen": [0],
        "essential": [0, 1],
    }
    assert [c["margin"] for c in entry["conditions"]] == pytest.approx([1, 0.25, 1])
    short = entry["check"]["inputs"] - 200
    assert short == sum(_possible(length) for length in range(1, 10))
    assert entry["check"]["wrong_labels"] == 0
    assert entry["check"]["largest_error"] < 1e-14


def _possible(length):
    """Strings that the three-state example can emit, by walking over sets of states."""
    after = {0: {0, 1}, 1: {2}, 2: {0}}
    emits = {0: {0}, 1: {1}, 2: {0, 1}}
    reached = {(): {0, 1, 2}}
    for _ in range(length):
        longer = {}
        for string, states in reached.items():
            for token in (0, 1):
                later = {z for s in states for z in after[s] if token in emits[z]}
                if later:
                    longer[(*string, token)] = later
        reached = longer
    return len(reached)


def test_memory_by_hand(told):
    """docs/theorems.md: x = (2, 0) has G_2 = (7/12, 5/12, 0) after the prompt, the head 5/12."""
    answer, code = told(example("memory_hmm.json"), example("memory_task.json"))
    assert code == 0
    assert the(answer, "4.3")["applies"] is False
    entry = the(answer, "4.6")
    assert entry["found"]["values"] == [0, 1]
    assert entry["found"]["recoverable"] == [0]
    assert entry["found"]["stationary_law"] == pytest.approx([0.8, 0.2])
    assert entry["conditions"][0]["margin"] == pytest.approx(0.5)
    head = {name: torch.tensor(part) for name, part in entry["witness"]["head"].items()}
    assert entry["witness"]["prompt"] == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    law = torch.tensor([7 / 12, 5 / 12, 0.0])
    score = head["query"] @ (head["key"] @ law + head["position"][2])
    value = head["mix"] @ ((head["value"] @ law) * head["embedding"][0])
    assert float(score) == pytest.approx(1.0)
    assert value.tolist() == pytest.approx([5 / 12])
    assert float(head["query"] @ head["position"][0]) == pytest.approx(-3.0)
    # R: a filler (token 2) next to some other position. Strings: neither 22 nor length 1.
    short = [s for length in range(1, 7) for s in all_sequences(3, length).tolist()]
    possible = [s for s in short if (2, 2) not in itertools.pairwise(s)]
    in_r = [s for s in possible if 2 in s and len(s) > 1]
    assert entry["check"]["inputs"] - entry["check"]["sampled"] == len(in_r)
    outside = entry["check"]["outside_r"] - entry["check"]["outside_r_sampled"]
    assert outside == len(possible) - len(in_r)


# ------------------------------------------------------------------ random models


@pytest.mark.parametrize("seed", range(4))
def test_a_head_where_columns_are_independent(told, seed):
    hmm = HMM.random(3, 5, 1, seed=seed)
    task = double([1.0, -0.7, 0.2])
    answer, code = told(hmm, task)
    assert (answer["covered"], code) == (True, 0)
    entry = the(answer, "3.3")
    assert entry["works"] is True
    assert entry["found"]["task_without_head"] is None
    assert entry["witness"]["head"] == pytest.approx(heads.witness(hmm, task).tolist())
    assert the(answer, "3.6")["works"] is True
    assert entry["check"]["inputs"] == 5 + 25 + 125 + 625 + 200
    assert entry["check"]["compared"] + entry["check"]["too_close"] == 980


@pytest.mark.parametrize("seed", range(4))
def test_only_a_prompt_where_there_are_more_states_than_tokens(told, seed):
    hmm = essential.random_with_zeros(9, 5, seed=seed)
    task = essential.random_task(hmm, seed=seed)
    assert task is not None
    answer, code = told(hmm, task)
    assert (answer["covered"], code) == (True, 0)
    assert the(answer, "3.3")["works"] is None
    entry = the(answer, "3.6")
    mine = prompts.witness(hmm, task)
    assert entry["works"] is True
    assert entry["witness"]["head"] == pytest.approx(mine.head.tolist())
    assert entry["witness"]["prompt"] == mine.prompt.tolist()
    assert entry["check"]["largest_error"] < 1e-12


def test_prompts_meet_strings_they_make_impossible(told):
    hmm = essential.random_with_zeros(9, 5, seed=0)
    answer, _ = told(hmm, essential.random_task(hmm, seed=0))
    check = the(answer, "3.6")["check"]
    assert check["impossible_with_prompt"] > 0
    parts = ("compared", "too_close", "impossible_with_prompt")
    assert sum(check[part] for part in parts) == check["inputs"]


@pytest.mark.parametrize("seed", range(3))
def test_the_task_without_a_head_is_proved(told, seed):
    """Equal mixtures of G_1 on inputs whose labels differ, and a linear programme agrees."""
    hmm = HMM.random(5, 3, 1, seed=seed)
    answer, code = told(hmm, [1, -1, 0, 0, 0])
    assert code == 1  # a dense chain reaches all five states from anywhere
    assert answer["covered"] is False
    proof = the(answer, "3.3")["found"]["task_without_head"]
    inputs, weights = torch.tensor(proof["inputs"]), double(proof["weights"])
    features = heads.masked_first(hmm, inputs)
    scores = heads.state_before(hmm, inputs) @ double(proof["task"])
    assert (weights @ features).abs().max() < 1e-12
    assert (scores.sign() == weights.sign()).all()
    assert not heads.linearly_separable(features, scores >= 0, margin=1e-7)
    assert the(answer, "3.6")["found"]["largest_essential"] == []


def test_nothing_applies_to_twins(files, told):
    hmm, task = heads.twin_states(0)
    answer, code = told(hmm, task)
    assert code == 1
    assert [entry["applies"] for entry in answer["theorems"]] == [False, False]
    assert the(answer, "3.6")["found"]["largest_essential"] == [2, 3]
    assert sorted(the(answer, "3.3")["found"]["task_without_head"]["inputs"]) == [[1], [2]]
    result = run(*files(hmm, task))
    assert result.exit_code == 1
    assert result.stdout.startswith("No theorem covers this task.\n")
    assert "G_1 is equal on x = (2) and (1), whose labels differ" in result.stdout
    assert "H* = {2, 3}; a task on it would be covered" in result.stdout


def test_a_dependence_that_is_only_near_is_no_proof(told):
    hmm = HMM.random(3, 3, 1, seed=0)
    emission = hmm.emission.clone()
    emission[2] = 0.5 * (emission[0] + emission[1]) + 1e-8 * (emission[2] - emission[0])
    answer, _ = told(replace(hmm, emission=emission), [1, -1, 0])
    assert the(answer, "3.3")["applies"] is False
    assert the(answer, "3.3")["found"]["task_without_head"] is None


def test_irregular_chains_are_not_covered(told):
    swap = {**TWO_STATES, "transition": [[0.0, 1.0], [1.0, 0.0]], "initial": [0.5, 0.5]}
    sure = {**TWO_STATES, "initial": [1.0, 0.0]}
    for model, failing in ((swap, "ergodic"), (sure, "full support")):
        answer, code = told(model, [1, -1])
        assert code == 1
        for entry in [*answer["theorems"], *told(model)[0]["theorems"]]:
            assert (entry["applies"], entry["witness"]) == (False, None)
            broken = [c["name"] for c in entry["conditions"] if not c["holds"]]
            assert len(broken) == 1
            assert broken[0].startswith(failing)


@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_memories_of_one_and_two_cells(told, cells, prompted, seed):
    case = memory_prompts.random_case(
        cells, 2, contents=1, prompted=prompted, sparse_memory=False, seed=seed
    )
    model, cell, task = case
    answer, code = told(model, {"cell": cell, "weights": task.tolist()})
    assert (answer["covered"], code) == (True, 0)
    name = "4.6" if cells == 1 else "C.6"
    assert [entry["theorem"] for entry in answer["theorems"]] == ["4.3", name]
    entry = the(answer, name if prompted else "4.3")
    assert the(answer, "4.3")["applies"] is not prompted
    assert entry["works"] is True
    assert entry["found"]["cell"] == cell
    values = memory_prompts.relevant(model, task) if prompted else None
    syntax = memory_heads.recoverable(model, cell, values)
    assert entry["found"]["recoverable"] == syntax.nonzero()[:, 0].tolist()
    assert entry["check"]["largest_error"] < 1e-12
    assert entry["check"]["compared"] > 50
    head = entry["witness"]["head"]
    assert list(head) == ["query", "key", "position", "value", "mix", "embedding"]
    assert torch.tensor(head["embedding"]).shape == (
        model.vocab_size + 1,
        model.emission[..., 0].numel(),
    )
    assert len(head["position"]) == 64 + prompted


def test_both_cells_are_reported_without_a_task(files, told):
    case = memory_prompts.random_case(2, 2, contents=1, prompted=False, sparse_memory=False, seed=0)
    answer, code = told(case.model)
    assert code == 0
    assert answer["covered"] is None
    assert [entry["found"]["cell"] for entry in answer["theorems"]] == [0, 1]
    for entry in answer["theorems"]:
        margin = memory_heads.conditions(case.model, entry["found"]["cell"]).conditions[0].margin
        assert entry["conditions"][0]["margin"] == pytest.approx(margin)
        assert entry["applies"] is (entry["found"]["cell"] == case.cell)
    text = run(*files(case.model)).stdout
    assert text.startswith(f"Theorem 4.3 applies to cell {case.cell}: every task on it")


def test_an_empty_r_covers_nothing(files, told):
    """Everything is possible everywhere, so no position leaves only S* = {0} possible."""
    model = MemoryHMM.random(2, 1, 2, 5, 1, seed=0)
    emission = model.emission.clone()
    emission[1, 0, 1] = emission[0, 0, 1]
    model = replace(model, emission=emission)
    answer, code = told(model, [1, -1])
    entry = the(answer, "4.3")
    assert entry["applies"] is True
    assert entry["works"] is False
    assert (entry["check"]["inputs"], entry["check"]["outside_r"]) == (0, 980)
    assert (answer["covered"], code) == (False, 1)
    text = run(*files(model, [1, -1])).stdout
    assert text.startswith("Theorem 4.3 applies, but says nothing: no input that was tried")


def test_a_start_that_is_not_stationary_is_told_the_right_one(files, told):
    model = example("memory_hmm.json") | {"initial": [0.5, 0.5]}
    result = run(*files(model, example("memory_task.json")))
    assert result.exit_code == 1
    assert "FAILS  0.75       stationarity (Assumption 4.4)" in result.stdout
    assert "it would hold for initial = 0.8, 0.2" in result.stdout


# ------------------------------------------------------------------ tasks


def test_two_rows_are_their_difference(files, told):
    one, _ = told(TWO_STATES, [1, -3])
    two, _ = told(TWO_STATES, [[1, 2], [2, -1]])
    assert two["task"] == {"weights": [1.0, -3.0], "cell": None, "two_rows": True}
    assert one["task"]["two_rows"] is False
    assert same(two["theorems"], one["theorems"])
    assert "row 1 minus row 0 of the file" in run(*files(TWO_STATES, [[1, 2], [2, -1]])).stdout
    assert "row 1 minus" not in run(*files(TWO_STATES, [1, -3])).stdout


def test_a_task_may_be_an_object(told):
    plain, _ = told(TWO_STATES, [1, -3])
    assert same(told(TWO_STATES, {"weights": [1, -3]})[0], plain)
    alone, _ = told(example("memory_hmm.json"), [1, -1, 0])
    assert same(told(example("memory_hmm.json"), example("memory_task.json"))[0], alone)
    rows = {"cell": 0, "weights": [[0, 1, 0], [1, 0, 0]]}
    assert same(told(example("memory_hmm.json"), rows)[0]["theorems"], alone["theorems"])


def test_the_labels_are_of_the_task_and_not_of_its_negative(told):
    """The head of -μ is minus the head of μ."""
    plus, _ = told(TWO_STATES, [1, -3])
    minus, _ = told(TWO_STATES, [-1, 3])
    head = the(plus, "3.3")["witness"]["head"]
    assert the(minus, "3.3")["witness"]["head"] == pytest.approx([-value for value in head])


def test_without_a_task_every_model_is_described(told):
    answer, code = told(TWO_STATES)
    assert (answer["covered"], answer["task"], code) == (None, None, 0)
    assert [entry["applies"] for entry in answer["theorems"]] == [True, True]
    assert the(answer, "3.6")["found"]["largest_essential"] == [0, 1]
    answer, code = told(example("hmm.json"))
    assert code == 0
    assert the(answer, "3.6")["found"]["largest_essential"] == [0, 1]
    assert the(answer, "3.6")["applies"] is True
    answer, code = told(HMM.random(5, 3, 1, seed=0))
    assert code == 0
    assert [entry["applies"] for entry in answer["theorems"]] == [False, False]
    assert all(entry["witness"] is None for entry in answer["theorems"])


def test_what_is_said_without_a_task(files):
    assert run(*files(TWO_STATES)).stdout.startswith("Theorem 3.3 applies: every task has a")
    first = run(*files(example("hmm.json"))).stdout.splitlines()[0]
    assert first == "Theorem 3.3 does not apply; Theorem 3.6 covers every task on states 0 and 1."
    nothing = run(*files(HMM.random(5, 3, 1, seed=0))).stdout
    assert nothing.startswith("No theorem applies to this model.\n")
    memory = run(*files(example("memory_hmm.json"))).stdout
    assert memory.startswith("Theorem 4.3 applies to no cell; Theorem 4.6 may, for a --task.")


def test_a_search_without_an_end_is_not_decided(files, told, monkeypatch):
    def endless(*_arguments, **_options):
        raise ValueError("the search for the best visited 7 nodes without an end; give a larger")

    monkeypatch.setattr(essential, "maximal_essential_set", endless)
    answer, code = told(example("hmm.json"))
    assert code == 0
    assert the(answer, "3.6")["applies"] is None
    assert the(answer, "3.6")["undecided"].endswith("7 nodes without an end")
    assert "Theorem 3.6 was not decided" in run(*files(example("hmm.json"))).stdout
    monkeypatch.setattr(essential, "smallest_choice", endless)
    result = run(*files(example("hmm.json"), example("hmm_task.json")))
    assert result.exit_code == 1
    assert result.stdout.startswith("No theorem is known to cover this task; one was not decided.")
    assert "Theorem 3.6 is NOT DECIDED" in result.stdout
    swap = {**example("hmm.json"), "transition": [[0, 1, 0], [0, 0, 1], [1, 0, 0]]}
    assert the(told(swap, [1, -1, 0])[0], "3.6")["applies"] is False  # periodic, whatever H* is


# ------------------------------------------------------------------ trying the head


def test_a_wrong_head_is_found_out(files, told, monkeypatch):
    right = heads.witness
    monkeypatch.setattr(heads, "witness", lambda hmm, task: right(hmm, task) + 0.1)
    answer, code = told(TWO_STATES, [1, -3])
    entry = the(answer, "3.3")
    assert entry["applies"] is True
    assert entry["works"] is False
    assert entry["check"]["largest_error"] > 1e-3
    assert (answer["covered"], code) == (True, 0)  # by Theorem 3.6
    monkeypatch.setattr(heads, "witness", lambda hmm, task: -right(hmm, task))
    check = the(told(TWO_STATES, [1, -3])[0], "3.3")["check"]
    assert check["wrong_labels"] == check["compared"] > 0


def test_a_wrong_prompt_is_found_out(told, monkeypatch):
    right = prompts.witness

    def elsewhere(hmm, task):
        return right(hmm, task)._replace(prompt=double([0.0, 1.0, 0.0]))

    monkeypatch.setattr(prompts, "witness", elsewhere)
    answer, code = told(example("hmm.json"), example("hmm_task.json"))
    assert the(answer, "3.6")["works"] is False
    assert code == 1


def test_an_answer_where_the_prompt_makes_x_impossible_is_found_out(told, monkeypatch):
    hmm = essential.random_with_zeros(9, 5, seed=0)
    task, right = essential.random_task(hmm, seed=0), prompts.scores

    def never_zero(*arguments):
        scores = right(*arguments)
        return torch.where(scores == 0, 1.0, scores)

    monkeypatch.setattr(prompts, "scores", never_zero)
    check = the(told(hmm, task)[0], "3.6")["check"]
    assert check["wrong_labels"] == check["impossible_with_prompt"] > 0


def test_sampled_strings_begin_one_step_after_the_first_state(told, monkeypatch):
    """H_0 is 0 or 1, one as likely as the other, and H_1 is nearly always 0, which emits 0."""
    seen, right = [], heads.in_support
    monkeypatch.setattr(heads, "in_support", lambda hmm, x: seen.append(x) or right(hmm, x))
    rows = [[0.999, 0.001], [0.999, 0.001]]
    told({"initial": [0.5, 0.5], "transition": rows, "emission": [[1, 0], [0, 1]]}, [1, -1])
    (long, *_) = (x for x in seen if x.shape[1] == 64)
    assert long.shape == (200, 64)
    assert (long[:, 0] == 0).sum() > 180  # fixed seed; expected 199.8


def test_a_head_that_reads_the_prompt_is_found_out(files, told, monkeypatch):
    monkeypatch.setattr(memory_prompts, "prompt_offset", lambda *_: 5.0)
    model, task = example("memory_hmm.json"), example("memory_task.json")
    answer, code = told(model, task)
    assert the(answer, "4.6")["works"] is False
    assert code == 1
    first = run(*files(model, task)).stdout.splitlines()[0]
    assert first == "Theorem 4.6 applies, but its head is wrong in floating point: see below."


def test_a_head_of_nan_is_wrong_and_null(told, monkeypatch):
    right = heads.witness
    monkeypatch.setattr(heads, "witness", lambda hmm, task: right(hmm, task) * math.nan)
    answer, _ = told(TWO_STATES, [1, -3])
    entry = the(answer, "3.3")
    assert entry["works"] is False
    assert entry["witness"]["head"] == [None, None]
    assert entry["check"]["largest_error"] is None
    assert entry["check"]["wrong_labels"] == entry["check"]["inputs"]


@pytest.mark.parametrize(
    ("vocab", "length"), [(1, 63), (2, 9), (3, 6), (44, 2), (45, 1), (2000, 1), (2001, 0)]
)
def test_strings_are_enumerated_up_to_two_thousand(vocab, length):
    assert checking.every_length(vocab) == length


def test_what_is_too_close_to_0_is_not_counted_as_checked(files, told):
    """The model of the paper's experiments: many short strings are next to impossible."""
    model = MemoryHMM.random_permutation_mixture(4, 5, 25, 1, seed=0)
    answer, code = told(model, [1, -1, 0, 0.5])
    entry = the(answer, "4.3")
    check = entry["check"]
    assert code == 0
    assert check["too_close"] > 0
    assert check["compared"] + check["too_close"] == check["inputs"] == 25 + 625 + 200
    text = run(*files(model, [1, -1, 0, 0.5])).stdout
    assert f"checked on {check['compared']} inputs of R: 0 wrong labels" in text
    assert f"{check['too_close']} more are too close to 0" in text


def test_the_error_grows_as_the_margin_shrinks(told):
    errors = []
    for distance in (1.0, 1e-3, 1e-6):
        hmm = HMM.random(3, 3, 1, seed=0)
        emission = hmm.emission.clone()
        emission[2] = 0.5 * (emission[0] + emission[1]) * (1 - distance) + distance * emission[2]
        entry = the(told(replace(hmm, emission=emission), [1, -1, 0])[0], "3.3")
        assert entry["works"] is True
        errors.append(entry["check"]["largest_error"])
    assert errors[0] < 1e-13 < errors[1] < errors[2] < 1e-6


def test_the_scale_of_a_task_changes_nothing(told):
    one, _ = told(example("hmm.json"), [1, -1, 0])
    for scale in (1e-12, 1e12):
        other, code = told(example("hmm.json"), [scale, -scale, 0])
        assert code == 0
        for name in ("compared", "too_close", "wrong_labels"):
            assert the(other, "3.6")["check"][name] == the(one, "3.6")["check"][name]
        assert the(other, "3.6")["check"]["largest_error"] < 1e-14


# ------------------------------------------------------------------ files that are wrong

BAD_MODELS = [
    ("{", "is not JSON"),
    ("[1, 2]", "holds a list; it must hold an object with initial, transition and emission"),
    ("3", "holds the value 3; it must hold an object"),
    ("[" * 100_000, "is nested too deep"),
    ({}, "lacks initial, transition, emission"),
    ({"memory": [1.0]}, "lacks initial, transition, emission"),
    ({**TWO_STATES, "memroy": [1]}, "has a field memroy (did you mean memory?)"),
    ({**TWO_STATES, "emission": 3}, "emission in {} is not a table of numbers: it is the value 3"),
    ({**TWO_STATES, "emission": [["a", "b"]] * 2}, 'emission[0][0] is the value "a"'),
    ({**TWO_STATES, "emission": [[True, False]] * 2}, "emission[0][0] is the value true"),
    ({**TWO_STATES, "emission": [[1.0, None]] * 2}, "emission[0][1] is the value null"),
    ({**TWO_STATES, "emission": [[1.0], [0.5, 0.5]]}, "emission[1] has 2 entries but emission[0]"),
    ({**TWO_STATES, "emission": [[0.5, 0.5], 1]}, "emission[1] has no entries (it is a number)"),
    ({**TWO_STATES, "initial": []}, "initial is an empty list"),
    ({**TWO_STATES, "emission": [[math.nan, 0.5]] * 2}, "emission[0][0] is NaN"),
    ({**TWO_STATES, "emission": [[math.inf, 0.5]] * 2}, "emission[0, 0] is inf"),
    ({**TWO_STATES, "emission": [[10**400, 0.5]] * 2}, "emission in {} is not a table of numbers"),
    ({**TWO_STATES, "emission": [[0.5, 0.5], [0.5, 0.6]]}, "emission[1] sums to 1.1"),
    ({**TWO_STATES, "emission": [[0.5, 0.5], [0.5, 0.500001]]}, "emission[1] sums to 1.000001"),
    ({**TWO_STATES, "transition": [[0.5, 0.5], [1.5, -0.5]]}, "transition[1, 1] is -0.5"),
    ({**TWO_STATES, "initial": [0.3, 0.3, 0.4]}, "transition has shape (2, 2)"),
    ({**TWO_STATES, "emission": [[[[0.5, 0.5]]]]}, "lacks memory"),
    ({**TWO_STATES, "memory": [0.5, 0.5]}, "emission has shape (2, 2)"),
    (example("memory_hmm.json") | {"memory": [0.5, 0.5]}, "memory has shape (2,)"),
    (example("memory_hmm.json") | {"memory": [0.5, 0.5, 0.5]}, "memory sums to 1.5"),
]


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(("model", "sentence"), BAD_MODELS)
def test_a_bad_model_is_answered_by_a_sentence(files, model, sentence):
    arguments = files(model)
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert sentence.replace("{}", str(arguments[0])) in result.stderr
    assert str(arguments[0]) in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


BAD_TASKS = [
    ("nonsense", "is not JSON"),
    ("3", "it is the value 3"),
    ([1], "has shape (1,); it must be a list of weights, one per hidden state, 2 in all"),
    ([[1, 0], [0, 1], [1, 1]], "has shape (3, 2)"),
    ([[[1, 0]]], "has shape (1, 1, 2)"),
    ([1, "x"], 'weights[1] is the value "x"'),
    ([1, math.inf], "must be finite"),
    ([0, 0], "is no task: every weight is 0"),
    ([[1, 2], [1, 2]], "is no task: both rows are the same"),
    ({"weight": [1, 0]}, "has a field weight (did you mean weights?)"),
    ({}, "lacks weights"),
    ({"cell": 0, "weights": [1, 0]}, "names a memory cell, but the model is an HMM"),
]


@pytest.mark.parametrize(("task", "sentence"), BAD_TASKS)
def test_a_bad_task_is_answered_by_a_sentence(files, task, sentence):
    arguments = files(TWO_STATES, task)
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert str(arguments[-1]) in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("cells", "task", "sentence"),
    [
        (2, [1, -1], "must name the memory cell"),
        (2, {"weights": [1, -1]}, "the cells of this memory are 0..1"),
        (2, {"cell": 2, "weights": [1, -1]}, "is 2; the cells of this memory are 0..1"),
        (2, {"cell": -1, "weights": [1, -1]}, "is -1; the cells"),
        (1, {"cell": "0", "weights": [1, -1]}, 'is "0"; the cells of this memory are 0..0'),
        (1, {"cell": True, "weights": [1, -1]}, "is true; the cells"),
        (1, [1, -1, 0], "one per memory value, 2 in all"),
    ],
)
def test_a_bad_cell_is_answered_by_a_sentence(files, cells, task, sentence):
    result = run(*files(MemoryHMM.random(2, cells, 2, 4, 1, seed=0), task))
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr


def test_files_that_cannot_be_read(tmp_path, files):
    missing = run(tmp_path / "none.json")
    assert (missing.exit_code, "there is no file" in missing.stderr) == (2, True)
    folder = run(tmp_path)
    assert (folder.exit_code, "cannot be read" in folder.stderr) == (2, True)
    binary = tmp_path / "model.bin"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "is not text, so not JSON" in run(binary).stderr
    no_task = run(files(TWO_STATES)[0], "--task", tmp_path / "none.json")
    assert (no_task.exit_code, "there is no file" in no_task.stderr) == (2, True)


# ------------------------------------------------------------------ what is printed

ENTRY = {
    "theorem", "statement", "applies", "undecided", "conditions", "found", "witness", "check",
    "works",
}  # fmt: skip
CHECK = {
    "inputs", "sampled", "sampled_length", "every_length", "compared", "too_close",
    "impossible_with_prompt", "wrong_labels", "largest_error",
}  # fmt: skip
FOUND = {
    "3.3": {"task_without_head"},
    "3.6": {"largest_essential"},
    "4.3": {"cell", "recoverable"},
    "4.6": {"cell", "recoverable", "values", "stationary_law"},
}


@pytest.mark.parametrize("kind", ["hmm", "memory_hmm"])
@pytest.mark.parametrize("with_task", [True, False])
def test_the_json_has_the_keys_of_the_docs(told, kind, with_task):
    task = example(f"{kind.split('_')[0]}_task.json") if with_task else None
    answer, _ = told(example(f"{kind}.json"), task)
    page = (ROOT / "docs" / "theorems.md").read_text().split("## JSON")[1]
    assert list(answer) == ["model", "task", "covered", "theorems"]
    assert with_task == (answer["task"] is not None)
    sizes = ["states"] if kind == "hmm" else ["values", "cells", "syntax"]
    assert list(answer["model"]) == ["kind", *sizes, "vocab"]
    for entry in answer["theorems"]:
        assert set(entry) == ENTRY
        assert set(entry["found"]) == FOUND[entry["theorem"]]
        named = set(entry) | set(entry["found"]) | set(entry["witness"] or {})
        for condition in entry["conditions"]:
            assert list(condition) == ["name", "holds", "margin", "meaning"]
        if entry["check"] is not None:
            more = {"outside_r", "outside_r_sampled"} if kind == "memory_hmm" else set()
            assert set(entry["check"]) == CHECK | more
            named |= set(entry["check"])
        for name in named:
            assert f"`{name}`" in page, name


def without_rounding(text):
    """Errors of rounding differ between machines."""
    return re.sub(r"largest error \d\S*", "largest error …", text)


def test_the_docs_show_what_is_printed(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "theorems.md").read_text()
    commands = re.findall(r"^triptych theorems (.*)$", page, re.MULTILINE)
    outputs = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(commands) == len(outputs) == 2
    for command, shown in zip(commands, outputs, strict=True):
        result = run(*command.split())
        assert result.exit_code == 0
        assert without_rounding(result.stdout).endswith(without_rounding(shown))


def test_lines_are_short_and_the_verdict_comes_first(files):
    cases = [
        (TWO_STATES, [1, -3]),
        (example("hmm.json"), example("hmm_task.json")),
        (example("memory_hmm.json"), example("memory_task.json")),
        (HMM.random(30, 6, 1, seed=0), [1.0] + [0.0] * 28 + [-1 / 3]),
        (HMM.random(20, 40, 1, seed=0), None),
    ]
    for model, task in cases:
        text = run(*files(model, task)).stdout
        assert max(map(len, text.splitlines())) <= check_text.WIDTH
        assert re.match(r"This task is covered by|No theorem covers|Theorem 3.3 applies: ", text)
        blocks = text.split("\n\n")
        assert [block.split()[0] for block in blocks[2:]] == ["Theorem", "Theorem"]


def test_long_vectors_are_cut(files):
    text = run(*files(HMM.random(20, 40, 1, seed=0), [1.0, -1.0] * 10)).stdout
    assert "(20 in all: --json)" in text
    assert "(40 in all: --json)" in text


def test_help_says_what_the_exit_codes_mean():
    text = " ".join(run("--help").stdout.split())
    assert "Exit code 1 means that a task is given and no theorem covers it" in text
    assert "docs/theorems.md" in text
