"""The replay of a canvas: a line for every step, and what happened to each box."""

import re

import pytest
import torch

from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.diffusion.sampler import blank
from triptych.diffusion.samplers.path_planning import PathPlanning
from triptych.diffusion.samplers.random_order import RandomOrder
from triptych.lab.replay.canvas_page import render_canvas

FOUR = Table.random(2, 4, seed=2)


def cells(page):
    rows = re.findall(r"<tr><th>(.*?)</th>(.*?)</tr>", page, re.S)
    return {label: re.findall(r"<td(?: class=\"(.*?)\")?><b>(.*?)</b>", row) for label, row in rows}


def test_every_step_is_a_line():
    done = RandomOrder(schedule="1+3").sample(FOUR, *blank(1, 4), rng=0, record=True)
    page = render_canvas(done, names="ab")
    lines = cells(page)
    assert list(lines) == ["start", "step 1", "step 2", "after 2 questions"]
    assert sum(kind == "refined-new" for kind, _ in lines["step 1"]) == 1
    assert sum(text == "&#9617;" for _, text in lines["step 1"]) == 3
    assert sum(kind == "refined-new" for kind, _ in lines["step 2"]) == 3
    final = "".join(text for _, text in lines["after 2 questions"])
    assert final == "".join("ab"[token] for token in done.tokens[0].tolist())


def test_what_is_taken_back_is_struck_through():
    sampler = PathPlanning(planner="left out", eta=3.0)
    done = sampler.sample(FOUR, *blank(20, 4), rng=1, record=True)
    struck = render_canvas(done).count('refined-replaced"')
    erased = sum(int((step.erased & step.hidden).sum()) for step in done.trace)
    assert struck == erased > 0


def test_a_page_shows_text_as_text():
    done = RandomOrder().sample(FOUR, *blank(1, 4), rng=0, record=True)
    page = render_canvas(done, names=["<b>", "&"], title="<script>", headings=["<i>"])
    assert "<script>" not in page
    assert "<i>" not in page
    assert "&lt;b&gt;" in page


def test_mistakes_are_sentences():
    done = RandomOrder().sample(FOUR, *blank(1, 4), rng=0)
    with pytest.raises(UserError, match="record=True"):
        render_canvas(done)
    done = RandomOrder().sample(FOUR, *blank(2, 4), rng=0, record=True)
    with pytest.raises(UserError, match="headings"):
        render_canvas(done, headings=["one"])
    with pytest.raises(UserError, match="names has no entry"):
        render_canvas(done, names=["a"])
    with pytest.raises(UserError, match="done is"):
        render_canvas(torch.zeros(2))
