"""Samplers of diffusion language models: promises by enumeration, and laws by other ways."""

import pytest

from triptych.core.axioms import check_sampler
from triptych.lab.axioms.discovery import package_examples

EXAMPLES = package_examples("triptych.diffusion")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.label)
def test_keeps_its_promise(example, unchecked_shapes):
    for finding in check_sampler(example.value):
        assert finding.holds, str(finding)
