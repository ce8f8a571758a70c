"""Every contract: its right sampler keeps it, its wrong one breaks it, and its worked value."""

import itertools

import pytest
import torch

from triptych.laws import law_of
from triptych.laws.contract import all_contracts, judge
from triptych.laws.contracts import (
    ancestral,
    best_of_n,
    chains,
    constrained,
    importance,
    rejection,
    speculative,
    unmasking,
)

CONTRACTS = all_contracts()


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_right_sampler_keeps_it_and_the_wrong_one_breaks_it(name):
    contract = CONTRACTS[name]
    kept = judge(contract, contract.right)
    assert (kept.says, kept.counterexample) == ("keeps its promise", "")
    assert kept.distance < 1e-12
    broken = judge(contract, contract.wrong)
    assert broken.says == "breaks its promise"
    assert broken.distance > 1e-3
    assert broken.counterexample
    assert abs(sum(contract.target.values()) - 1) < 1e-12


def test_blocks_keep_the_contract_of_speculative_sampling():
    assert judge(CONTRACTS["speculative"], speculative.by_blocks).says == "keeps its promise"


def test_a_sampler_that_cannot_be_entered():
    verdict = judge(CONTRACTS["top_k"], lambda logits, top_k: torch.rand(3).sum() > 1)
    assert (verdict.says, verdict.distance) == ("not entered", None)


def test_worked_values():
    halves = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64)
    assert ancestral.warped(halves.log(), top_p=0.6).tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert best_of_n.law(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]), 2)[1] == 0.75
    assert importance.resampled_law(1) == pytest.approx(dict(enumerate([0.5, 0.3, 0.2])))
    assert sum(rejection.law().values()) == pytest.approx(1.0)


def test_speculative_by_hand():
    p, q = torch.tensor([[0.25, 0.75]] * 2).double(), torch.tensor([[0.75, 0.25]]).double()
    accepted = law_of(lambda: len(speculative.one_by_one(p, q, torch.multinomial(q, 1)[0])) > 1)
    assert accepted.probs[True] == pytest.approx(0.5, abs=1e-12)


def test_chains_by_hand():
    law = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    flip = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    assert law_of(lambda: chains._metropolis(0, law, flip)).probs == {1: 1.0}
    assert law_of(lambda: chains._metropolis(1, law, flip)).probs[0] == pytest.approx(0.5)


def test_unmasking_by_hand():
    def equal_coins(tokens, position):
        other = tokens[1 - position]
        return torch.tensor([0.5, 0.5] if other is None else [1.0 - other, float(other)])

    law = law_of(lambda: unmasking._right(equal_coins, 2))
    assert law.probs == {(0, 0): 0.5, (1, 1): 0.5}


def test_masking_by_hand():
    """Two fair bits, 11 forbidden: masking gives 1/4, 1/4, 1/2."""

    def fair(prefix):
        return torch.tensor([0.5, 0.5])

    def no_ones(prefix):
        return prefix != (1, 1)

    masked = law_of(lambda: constrained._masking(fair, no_ones, 2))
    assert masked.probs == {(0, 0): 0.25, (0, 1): 0.25, (1, 0): 0.5}
    given = law_of(lambda: constrained._right(fair, no_ones, 2))
    assert given.total_variation(dict.fromkeys(masked.probs, 1 / 3)) < 1e-7
    broken = judge(CONTRACTS["constrained"], constrained._masking)
    assert broken.facts["nats"] > 0.01


def test_allowed_prefixes_are_those_with_a_completion():
    texts = [x for x in itertools.product(range(2), repeat=3) if constrained.allowed(x)]
    for n in range(3):
        for prefix in itertools.product(range(2), repeat=n):
            ends = any(text[:n] == prefix and constrained.allowed(text[:2]) for text in texts)
            assert constrained.allowed(prefix) == ends
