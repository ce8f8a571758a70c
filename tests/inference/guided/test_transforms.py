"""Nucleus and top-k sampling against their definition by a stable sort of all tokens."""

import math

import pytest
import torch

from triptych.inference.guided import transforms
from triptych.inference.guided.transforms import nucleus, top_k


def kept_by_definition(log_probs, p):
    """Sort all tokens, ties by id; keep those before which there is less than p."""
    rows = []
    for row in log_probs.tolist():
        order = sorted(range(len(row)), key=lambda token: (-row[token], token))
        before, kept = 0.0, set()
        for token in order:
            if kept and before >= p - 1e-12:
                break
            kept.add(token)
            before += math.exp(row[token])
        rows.append([token in kept for token in range(len(row))])
    return torch.tensor(rows)


@pytest.mark.parametrize("vocab", [3, 40, 700])
@pytest.mark.parametrize("p", [1e-15, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("sharp", [0.0, 1.0, 8.0])
def test_a_nucleus_is_that_of_a_sort_of_all_tokens(vocab, p, sharp, monkeypatch):
    """Also where few tokens are sorted at first, some rows have larger nuclei, and many tie."""
    rng = torch.Generator().manual_seed(vocab)
    scores = torch.randn((6, vocab), generator=rng, dtype=torch.float64) * sharp
    scores = (scores * 2).round() / 2  # many equal ones
    scores[0] = 0.0
    log_probs = scores.log_softmax(-1)
    expected = kept_by_definition(log_probs, p)
    for ranked in (1, 7, 512):
        monkeypatch.setattr(transforms, "_RANKED", ranked)
        found = nucleus(p)(log_probs)
        assert torch.equal(torch.isfinite(found), expected)
        assert torch.allclose(found.exp().sum(-1), torch.ones(6, dtype=torch.float64))
        single = nucleus(p)(log_probs[3])
        assert torch.equal(single, found[3])


def test_worked_values():
    law = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    assert torch.allclose(nucleus(0.6)(law).exp(), torch.tensor([5 / 8, 3 / 8, 0]).double())
    tied = torch.tensor([0.2, 0.4, 0.2, 0.2], dtype=torch.float64).log()
    assert torch.allclose(top_k(2)(tied).exp(), torch.tensor([1 / 3, 2 / 3, 0, 0]).double())
