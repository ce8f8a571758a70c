"""The notebooks with exercises: every check says "not yet", and with a solution "right"."""

import re
import time
from pathlib import Path

import pytest
from tests.documents.solutions import SOLUTIONS
from tests.support.notebooks import cells, run_cell, stored

from triptych.lab.exercises.checking import CHAPTERS, Checked, check, exercises_of
from triptych.lab.serving.pages import PAGES

FOLDER = Path(__file__).parents[2] / "docs" / "exercises"
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS)


def executed(chapter, solved):
    """What the checks of a notebook say, with its answer cells as they are or solved."""
    namespace, said = {"__name__": chapter}, []
    for cell in stored(FOLDER / f"{chapter}.ipynb"):
        if cell["cell_type"] != "code":
            continue
        source, name = "".join(cell["source"]), cell["id"]
        if solved and name.startswith("answer-"):
            source = SOLUTIONS[chapter, int(name.removeprefix("answer-"))]
        value = run_cell(source, namespace)
        if name.startswith("check-"):
            said.append(value)
    return said


def test_every_chapter_has_a_notebook_and_every_exercise_a_solution():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(CHAPTERS)
    numbers = {(chapter, i + 1) for chapter in CHAPTERS for i in range(len(exercises_of(chapter)))}
    assert set(SOLUTIONS) == numbers
    assert all(len(exercises_of(chapter)) == 5 for chapter in CHAPTERS)


@each_chapter
def test_left_empty_every_check_says_not_yet(chapter, unchecked_shapes):
    said = executed(chapter, solved=False)
    assert [each.status for each in said] == ["not yet"] * 5
    assert not any(each.hint for each in said)


@each_chapter
def test_solved_every_check_says_right(chapter, unchecked_shapes):
    start = time.process_time()
    said = executed(chapter, solved=True)
    assert [each.status for each in said] == ["right"] * 5, said
    assert time.process_time() - start < 20


@each_chapter
def test_a_notebook_asks_and_does_not_tell(chapter):
    """A question before each answer cell, no output, and no solution in its text."""
    path = FOLDER / f"{chapter}.ipynb"
    found = stored(path)
    assert not any(cell.get("outputs") for cell in found)
    ids = [cell["id"] for cell in found if cell["cell_type"] == "code"]
    for i in range(1, 6):
        assert ids.index(f"check-{i}") == ids.index(f"answer-{i}") + 1
    empty = ["".join(cell["source"]) for cell in found if cell["id"].startswith("answer-")]
    assert all(re.fullmatch(r"\w+ = \.\.\.  # .+", source) for source in empty)
    questions = [text for text in cells(path, "markdown") if text.startswith("## Exercise")]
    assert len(questions) == 5
    assert all("?" in text or re.search(r"\b(Give|Write|Find)\b", text) for text in questions)
    whole = "\n".join(cells(path, "markdown") + cells(path, "code"))
    for (of, _), solution in SOLUTIONS.items():
        last = solution.strip().splitlines()[-1].partition("=")[2].strip()
        assert of != chapter or len(last) < 4 or last not in whole
    for page in re.findall(r"--page (\S+?)[#`]", whole):
        assert page in PAGES


WRONG = {
    ("tuning", 1): [1.0, 0.0, 0.0, 0.0],
    ("tuning", 2): 4,
    ("tuning", 3): [0.0, 0.0, 1.0, -1.0, 0.0],
    ("tuning", 4): [0.5, 0.5, 0.0],
    ("tuning", 5): [1.0] * 8,
    ("topics", 1): 1 / 30,
    ("topics", 2): 0.9,
    ("topics", 3): [[0.0] * 101] * 101,
    ("topics", 4): 1.0,
    ("topics", 5): 0.1,
    ("brackets", 1): [0.5, 0.0, 0.0, 0.5],
    ("brackets", 2): 16,
    ("brackets", 3): "[([)])()",
    ("brackets", 4): [[float(i * j % 5) for i in range(17)] for j in range(17)],
    ("brackets", 5): 10,
    ("generation", 1): 8,
    ("generation", 2): [1 / 3, 1 / 3, 1 / 3, 0.0],
    ("generation", 3): 1 / 3,
    ("generation", 4): lambda bits: True,
    ("generation", 5): (2, 4),
    ("masking", 1): 0.5,
    ("masking", 2): 0.5,
    ("masking", 3): [[0, 5], [1, 3], [2, 4]],
    ("masking", 4): 0.4,
    ("masking", 5): 10,
    ("refinement", 1): 0.0,
    ("refinement", 2): 1.0,
    ("refinement", 3): 0.5,
    ("refinement", 4): 0.9,
    ("refinement", 5): "law",
}


@pytest.mark.parametrize(("name", "answer"), WRONG.items(), ids=lambda each: str(each)[:20])
def test_what_is_not_right_gets_a_sentence_and_a_hint(name, answer):
    said = check(*name, answer)
    assert said.status == "not right"
    assert said.sentence.endswith((".", "…")) or said.sentence
    assert said.hint == exercises_of(name[0])[name[1] - 1].hint


def test_an_odd_answer_is_never_right_and_never_an_error():
    def broken(*_):
        raise RuntimeError("no")

    for name in WRONG:
        for odd in ("x", [], {}, float("nan"), -1e300, [[1]], object(), broken, b"", True):
            if (name, odd) == (("masking", 3), []):
                continue
            assert check(*name, odd).status == "not right", (name, odd)


def test_what_a_notebook_shows_is_escaped():
    said = Checked("not right", "<b>", "<i>")
    assert "<b>" not in said._repr_html_()
    assert "&lt;b&gt;" in said._repr_html_()
    assert repr(said) == "Not right. <b> Hint: <i>"
    assert repr(Checked("right")) == "Right."
