"""Denoisers of the truth and of networks: laws by the definition, and what they refuse."""

import itertools
import math

import pytest
import torch

from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.diffusion.denoiser import (
    Canvas,
    Denoiser,
    ExactDenoiser,
    MaskedDenoiser,
    RefinerDenoiser,
    as_denoiser,
)
from triptych.inference.chains.refinement import MaskedRefiner
from triptych.models.language_models import MaskedLM
from triptych.models.transformer import Shape, Transformer
from triptych.structures.hidden_markov.hmm import HMM


def canvas(tokens, hidden=None, noisy=None, survival=None) -> Canvas:
    tokens = torch.tensor(tokens)
    none = torch.zeros_like(tokens, dtype=torch.bool)
    return Canvas(
        tokens,
        none if hidden is None else torch.tensor(hidden).bool(),
        none if noisy is None else torch.tensor(noisy).bool(),
        survival,
        0,
        tokens.shape[1],
        torch.arange(len(tokens)),
    )


def everywhere(shown: Canvas):
    return torch.ones_like(shown.hidden)


PAIR = Table(2, 2, torch.tensor([0.5, 0.0, 0.0, 0.5]).double().log())  # uniform on {00, 11}


def test_the_worked_values():
    masks = canvas([[0, 0], [0, 0]], hidden=[[0, 1], [1, 1]])
    for denoiser in (MaskedDenoiser(PAIR), ExactDenoiser(PAIR)):
        laws = denoiser.clean_log_probs(masks, masks.hidden).exp()
        assert laws.tolist() == [[1, 0], [0.5, 0.5], [0.5, 0.5]]
    noise = canvas([[0, 1], [0, 0]], noisy=[[1, 1], [1, 1]], survival=0.5)
    laws = ExactDenoiser(PAIR).clean_log_probs(noise, everywhere(noise)).exp()
    assert torch.allclose(laws[:2], torch.tensor(0.5).double())
    assert torch.allclose(laws[2:, 0], torch.tensor(0.9).double())


@pytest.mark.parametrize("survival", [0.0, 0.3, 1.0])
def test_the_truth_under_both_noises_by_the_definition(survival):
    """Σ over all texts, written with plain loops, for a canvas with every kind of position."""
    p = Table.random(3, 4, seed=1)
    z = [2, 0, 1, 1]
    kinds = ["shown", "noisy", "hidden", "noisy"]
    shown = canvas(
        [z],
        hidden=[[kind == "hidden" for kind in kinds]],
        noisy=[[kind == "noisy" for kind in kinds]],
        survival=survival,
    )
    wanted = [[0.0] * 3 for _ in z]
    for x, prob in zip(
        itertools.product(range(3), repeat=4), p.log_probs.exp().tolist(), strict=True
    ):
        for kind, a, b in zip(kinds, z, x, strict=True):
            if kind == "shown":
                prob *= a == b
            if kind == "noisy":
                prob *= survival * (a == b) + (1 - survival) / 3
        for place, word in enumerate(x):
            wanted[place][word] += prob
    laws = ExactDenoiser(p).clean_log_probs(shown, everywhere(shown)).exp().tolist()
    for law, masses in zip(laws, wanted, strict=True):
        total = math.fsum(masses)
        assert law == pytest.approx([mass / total for mass in masses], abs=1e-12)


def test_every_masked_oracle_is_one():
    hmm = HMM.random(2, 3, 4, seed=0)
    net = Transformer(Shape(4, 4, width=8, layers=1, heads=1, causal=False), seed=0)
    hidden = torch.tensor([[True, False, True, True], [False, False, True, False]])
    tokens = torch.tensor([[0, 1, 2, 0], [1, 1, 0, 2]])
    for oracle in (hmm, MaskedLM(net)):
        denoiser = as_denoiser(oracle)
        assert isinstance(denoiser, Denoiser)
        shown = canvas(tokens.tolist(), hidden.tolist())
        got = denoiser.clean_log_probs(shown, hidden)
        wanted = oracle.masked_log_probs(tokens, hidden)[hidden]
        assert torch.allclose(got, wanted, atol=1e-6)
        mixed = ~hidden
        mixed[0, 0] = True  # shown positions are point masses in both
        got = denoiser.clean_log_probs(shown, mixed).exp()
        assert torch.allclose(got, oracle.masked_log_probs(tokens, hidden)[mixed].exp(), atol=1e-6)


def test_a_refiner_is_one_with_its_vocabulary():
    p = Table.random(2, 3, seed=4)
    refiner = MaskedRefiner(p, mask_token=2)
    denoiser = RefinerDenoiser(refiner, vocab_size=2, mask_token=2)
    shown = canvas([[0, 1, 1], [1, 0, 0]], hidden=[[0, 0, 1], [0, 0, 0]])
    read = torch.tensor([[0, 1, 2], [1, 0, 0]])
    wanted = refiner.log_probs(read, torch.tensor([3, 3]))
    assert torch.equal(denoiser.clean_log_probs(shown, everywhere(shown)), wanted.reshape(-1, 2))


def test_the_rows_of_a_refiner_stay_its_own():
    """A refiner that holds a source for each row is asked with all rows, whichever are open."""

    class Sourced:
        def log_probs(self, hypotheses, lengths):
            laws = torch.eye(4)[[3, 1, 2]].log()
            return laws[:, None].expand(-1, hypotheses.shape[1], -1)

    denoiser = RefinerDenoiser(Sourced(), vocab_size=4, lengths=torch.tensor([2, 2, 2]))
    shown = canvas([[0, 0], [0, 0]])
    some = Canvas(**{**vars(shown), "rows": torch.tensor([2, 0])})
    laws = denoiser.clean_log_probs(some, everywhere(shown))
    assert laws.argmax(-1).tolist() == [2, 2, 3, 3]


def test_what_is_no_denoiser_is_refused():
    with pytest.raises(UserError, match="clean_log_probs"):
        as_denoiser(object())
    with pytest.raises(UserError, match="RefinerDenoiser"):
        as_denoiser(MaskedRefiner(PAIR))
    noise = canvas([[0, 1]], noisy=[[1, 1]], survival=0.5)
    with pytest.raises(UserError, match="uniform noise"):
        MaskedDenoiser(HMM.random(2, 3, 2, seed=0)).clean_log_probs(noise, everywhere(noise))
    unknown = canvas([[0, 1]], noisy=[[1, 1]])
    with pytest.raises(UserError, match="how noisy"):
        ExactDenoiser(PAIR).clean_log_probs(unknown, everywhere(unknown))
    masks = canvas([[0, 1]], hidden=[[1, 0]])
    with pytest.raises(UserError, match="mask"):
        RefinerDenoiser(MaskedRefiner(PAIR), 2).clean_log_probs(masks, everywhere(masks))
