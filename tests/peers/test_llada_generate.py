"""LLaDA's own generate loop, as published, has the law of `GumbelConfidence`.

The file is not part of this repository. TRIPTYCH_LLADA names it (generate.py of ML-GSAI/LLaDA), as
`make test-diffusion-peers LLADA=path/to/generate.py` does; without it this is skipped.
"""

import importlib.util
import os
from types import SimpleNamespace

import pytest
import torch

from triptych.core.table import Table
from triptych.diffusion.law import sampler_law
from triptych.diffusion.sampler import blank
from triptych.diffusion.samplers.gumbel_confidence import GumbelConfidence
from triptych.laws.program import law_of

FILE = os.environ.get("TRIPTYCH_LLADA")
pytestmark = pytest.mark.skipif(not FILE, reason="TRIPTYCH_LLADA does not name its generate.py")
TRUTH, MASK = Table.random(2, 3, seed=0), 2


@pytest.fixture(scope="module")
def published():
    place = importlib.util.spec_from_file_location("llada_generate", FILE)
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module.generate


class Model:
    """The truth with the interface of LLaDA; the mask's own logit is as low as it can be."""

    device = torch.device("cpu")

    def __call__(self, ids, attention_mask=None):
        hidden = ids == MASK
        laws = TRUTH.masked_log_probs(ids.masked_fill(hidden, 0), hidden)
        never = torch.full((*ids.shape, 1), -1e30, dtype=laws.dtype)
        return SimpleNamespace(logits=torch.cat([laws, never], -1))


@pytest.mark.parametrize(
    ("degree", "remasking", "steps", "block"),
    [
        (0.0, "low_confidence", 3, 3),
        (1.0, "low_confidence", 3, 3),
        (0.5, "low_confidence", 3, 3),
        (1.0, "low_confidence", 2, 3),
        (1.0, "random", 3, 3),
        (1.0, "low_confidence", 3, 1),
    ],
)
def test_its_law_is_ours(published, degree, remasking, steps, block, unchecked_shapes):
    def program():
        written = published(
            Model(),
            torch.zeros(1, 0).long(),
            steps=steps,
            gen_length=3,
            block_length=block,
            temperature=degree,
            remasking=remasking,
            mask_id=MASK,
        )
        return tuple(written[0].tolist())

    sampler = GumbelConfidence(degree=degree, remasking=remasking, steps=steps * block // 3)
    ours = sampler_law(sampler, TRUTH, *blank(1, 3), block_length=block)
    assert ours.total_variation(dict(law_of(program).probs)) < 1e-12
