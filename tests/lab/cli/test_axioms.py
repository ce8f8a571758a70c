"""`triptych axioms`."""

import json
import re

import pytest
import torch
from tests.support.command_line import OWN_STUDY, run
from tests.support.installed import package_in, put_on_path

GOOD = """
from triptych.structures.uniform import Uniform

def examples():
    return {"bits": Uniform(2, 3)}
"""


WRONG = """
from triptych.core.table import Table

class Flipped(Table):
    def next_token_log_probs(self, prefix):
        return super().next_token_log_probs(prefix).flip(-1)

def examples():
    table = Table.random(2, 3, seed=0)
    return {"flipped": Flipped(2, 3, table.log_probs)}
"""


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "good.py"
    file.write_text(GOOD)
    result = run("axioms", str(file))
    assert result.exit_code == 0
    assert "7 of 7 axioms hold." in result.stdout
    rows = json.loads(run("axioms", str(file), "--json").stdout)
    assert {row["module"] for row in rows} == {"good"}
    assert all(row["holds"] for row in rows)


def test_a_failing_axiom_is_named_and_sets_the_exit_code(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    result = run("axioms", str(file))
    assert result.exit_code == 1
    assert "FAILS: next token equals the table  (wrong: flipped)" in result.stdout
    assert re.search(r"asked +P\(next token [01] \| \[[01, ]*\]\)", result.stdout)
    assert f"{file}:5" in result.stdout
    rows = json.loads(run("axioms", str(file), "--json").stdout)
    (row,) = (row for row in rows if row["axiom"] == "next token equals the table")
    assert float(row["expected"]) + float(row["got"]) == pytest.approx(1)  # flipped
    assert row["place"] == f"{file}:5"
    assert all(row["asked"] == "" for row in rows if row["holds"])


def test_the_claims_of_a_study_are_checked(tmp_path):
    """Whether rows can refute them: as `triptych run` demands."""
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY)
    result = run("axioms", str(file))
    assert (result.exit_code, "15 of 15 axioms hold." in result.stdout) == (0, True), result.output
    file.write_text(OWN_STUDY.replace("[LOSSES], GAINS", "[GAINS], GAINS"))
    result = run("axioms", str(file))
    assert result.exit_code == 1
    assert "FAILS: the judge says FAILS on rows that refute  (mine: mine.gain)" in result.stdout
    assert re.search(r"asked +set 1 of refuted_by\n +expected +FAILS\n +got +HOLDS", result.stdout)
    rows = json.loads(run("axioms", str(file), "--json").stdout)
    wrong = [row["axiom"] for row in rows if not row["holds"]]
    assert wrong == [
        "the judge says FAILS on rows that refute",
        "every check that decides can fail",
    ]


@pytest.mark.parametrize(
    ("right", "wrong", "axiom", "words"),
    [
        ("[Trial(1,", "[Trial(1, seed=0), *(Trial(1,", "every unit is planned once", "twice"),
        ("Trial(1,", "Trial(random.randrange(10**6),", "the same settings", "in the second plan"),
        ("range(settings.seeds)", "range(0)", "there is something to run", "none"),
        ("Trial(1,", "Trial('1',", "units can be planned", "a is '1'"),
        ("Settings(seeds=3)", "Settings(seeds=0)", "units can be planned", "seeds = 0"),
        ("Gain(seed, 2.0 +", "Gain(str(seed), 2.0 +", "rows have the study's types", "seed is"),
        ("rows=(Gain,)", "rows=(Trial,)", "rows have the study's types", "rows of: Trial"),
        ("rows.of(Gain)", "(rows.of(Trial), rows.of(Gain))[1]", "a judge asks for rows", "Trial"),
    ],
)
def test_the_form_of_a_study_is_checked(tmp_path, right, wrong, axiom, words):
    """Each mistake breaks the rule that is about it, with what was got and where."""
    file = tmp_path / "mine.py"
    broken = OWN_STUDY.replace(right, wrong, 1 if right != "rows.of(Gain)" else -1)
    if "*(" in wrong:
        broken = broken.replace("range(settings.seeds)]", "range(settings.seeds))]")
    file.write_text("import random\n" + broken)
    result = run("axioms", str(file), "--json")
    assert result.exit_code == 1, result.output
    failing = [row for row in json.loads(result.stdout) if not row["holds"]]
    found = next(row for row in failing if row["axiom"].startswith(axiom))
    assert words in found["got"]
    assert found["place"].startswith(str(file)) or "mine.py:" in found["place"]


def test_planning_leaves_the_generators_as_they_were():
    """That of Python is also used by the checks of shapes, so torch's is looked at."""
    from triptych.lab.axioms.study_form import form_of
    from triptych.studies.generation.over_optimisation import STUDY

    state = torch.get_rng_state()
    assert all(demand.met for demand in form_of(STUDY))
    assert torch.equal(torch.get_rng_state(), state)


def test_what_raises_is_found_in_the_users_file(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(WRONG.replace("super().next_token_log_probs(prefix).flip(-1)", "prefix[:, 7]"))
    result = run("axioms", str(file))
    assert result.exit_code == 1
    assert "FAILS: could not be checked: IndexError" in result.stdout
    assert f"{file}:6" in result.stdout


def test_what_raises_in_a_package_is_found_where_it_was_called(tmp_path, monkeypatch):
    """Also in one that was installed outside of site-packages."""
    package_in(tmp_path / "target", "theirs_raises", text="def fail():\n    raise KeyError(3)\n")
    put_on_path(monkeypatch, tmp_path / "target")
    file = tmp_path / "wrong.py"
    called = "(__import__('theirs_raises').fail())"
    file.write_text(WRONG.replace("super().next_token_log_probs(prefix).flip(-1)", called))
    result = run("axioms", str(file))
    assert result.exit_code == 1
    assert "FAILS: could not be checked: KeyError" in result.stdout
    assert f"{file}:6" in result.stdout


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no file"),
        ("x = 1\n", "has no function examples()"),
        ("import not_a_module_at_all\n", "not_a_module_at_all"),
        ("def examples(:\n", "SyntaxError"),
        ("def examples():\n    return [1]\n", "returned a list, not a dictionary"),
        ("x = undefined_name\n", "NameError"),
    ],
)
def test_user_mistakes_are_one_sentence(tmp_path, content, sentence):
    file = tmp_path / "mine.py"
    if content is not None:
        file.write_text(content)
    result = run("axioms", str(file))
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_one_example_that_cannot_be_checked_does_not_hide_the_others(tmp_path):
    file = tmp_path / "mixed.py"
    file.write_text(
        GOOD.replace('{"bits"', '{"nothing": object(), "too large": Uniform(10, 10), "bits"')
    )
    result = run("axioms", str(file))
    assert result.exit_code == 1
    assert "could not be checked: UserError: structure: object has no vocab_size" in " ".join(
        result.stdout.split()
    )
    assert "7/7" in result.stdout
    rows = json.loads(run("axioms", str(file), "--json").stdout)
    assert [row["error"] for row in rows[:2]] == [None, None]


@pytest.mark.parametrize("device", ["cuda:99", "mps", "meta", "cpu:3"])
def test_a_device_that_is_not_there(device):
    result = run("axioms", "--device", device)
    assert result.exit_code == 2
    assert f"--device is '{device}'" in result.stderr
