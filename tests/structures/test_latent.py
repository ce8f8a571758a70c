"""Structures with a hidden variable at each position: nothing is hidden unless it is said."""

import pytest
import torch

from triptych.lab.axioms.discovery import package_examples
from triptych.structures.hidden_markov.hmm import HMM

LATENT = {
    example.label: example.value
    for example in package_examples("triptych.structures")
    if hasattr(example.value, "log_posterior")
}


def test_the_worked_value():
    """Two states that write their own token for certain, and stay with ¾: x says z."""
    half, sure = torch.full((2,), 0.5, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    hmm = HMM(half, torch.tensor([[0.75, 0.25], [0.25, 0.75]]).double(), sure, 2)
    assert hmm.log_posterior([[0, 1]]).exp().tolist() == [[[1.0, 0.0], [0.0, 1.0]]]
    assert hmm.log_posterior([[0, 1]], [[0, 1]]).exp()[0, 1].tolist() == [0.75, 0.25]


@pytest.mark.parametrize("structure", LATENT.values(), ids=LATENT)
def test_all_is_shown_by_default_and_0_and_1_are_a_mask(structure):
    tokens = structure.sample(3, 0)
    nothing = torch.zeros_like(tokens, dtype=torch.bool)
    assert torch.equal(structure.log_posterior(tokens), structure.log_posterior(tokens, nothing))
    last = nothing.clone()
    last[:, -1] = True
    assert torch.equal(
        structure.log_posterior(tokens, last.long()), structure.log_posterior(tokens, last)
    )
    masked = structure.masked_log_probs(tokens, last.int().numpy())
    assert torch.equal(masked, structure.masked_log_probs(tokens, last))


def test_every_such_structure_is_here():
    assert {type(structure).__name__ for structure in LATENT.values()} == {
        "Dyck",
        "HMM",
        "LDA",
        "MemoryHMM",
        "Topics",
    }
