"""The tutorials run as they stand: their Python blocks in order, and their pictures are there."""

import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"
TUTORIALS = [
    page for page in sorted(DOCS.glob("*.md")) if re.search(r"^```python$", page.read_text(), re.M)
]
each_tutorial = pytest.mark.parametrize("page", TUTORIALS, ids=[page.stem for page in TUTORIALS])


def test_there_are_tutorials():
    assert "from-a-theorem-to-a-number" in {page.stem for page in TUTORIALS}


@each_tutorial
def test_python_blocks_run_in_order(page):
    namespace = {"__name__": page.stem}
    torch.manual_seed(0)
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
    for block in blocks:
        exec(compile(block, page.name, "exec"), namespace)  # our own text, not a model's


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_pictures_and_links_are_there(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
