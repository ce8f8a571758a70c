"""The C program gives the posteriors of torch; `test_hmm.py` runs the hard cases with both."""

import math
import shutil

import numpy as np
import pytest
import torch

from triptych.core import compiled
from triptych.core.randomness import TorchRng
from triptych.structures.hidden_markov import fast_messages
from triptych.structures.hidden_markov.hmm import HMM

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


@pytest.fixture
def turned_off_at_the_end():
    yield
    compiled.use_compiled(False)


@needs_compiler
@pytest.mark.usefixtures("turned_off_at_the_end")
@pytest.mark.parametrize("states", [1, 2, 3, 4, 5, 8, 11, 12, 13, 16, 20, 29, 64])
def test_every_width_and_any_number_of_rows(states):
    """Panels of one, two and three vectors, padded or not; blocks that are full and that are not;
    with and without a readout; rows that are rescaled and that are not."""
    hmm = HMM.random(states, 3, 37, seed=states)
    for rows in (1, 5, 70):
        tokens = hmm.sample(rows, TorchRng(rows))
        hidden = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.3
        symbols, table = tokens.masked_fill(hidden, 3), hmm._evidence_table()
        for readout in (None, hmm.emission):
            given = (hmm.initial, hmm.transition, table, symbols, readout)
            compiled.use_compiled(False)
            plain = fast_messages.smooth(*given)
            compiled.use_compiled()
            fast = fast_messages.smooth(*given)
            torch.testing.assert_close(fast.log_probs, plain.log_probs, atol=1e-12, rtol=1e-13)
            torch.testing.assert_close(fast.log_evidence, plain.log_evidence, atol=0, rtol=1e-13)
            assert fast.log_probs.stride() == plain.log_probs.stride()


@needs_compiler
@pytest.mark.usefixtures("turned_off_at_the_end")
def test_logarithms_are_right_to_the_last_place():
    """One position and one state for each number: the posterior of a law is its logarithm."""
    compiled.use_compiled()
    powers = np.random.default_rng(0).uniform(-140, 0, size=999)
    special = [1e-140, 0.1, 0.25, 0.5, math.sqrt(0.5), 0.75, 0.999999, 0.0]
    values = torch.tensor(np.array([*10.0**powers, *special]))
    law = torch.cat([values / 2000, 1 - values.sum(0, keepdim=True) / 2000])
    states = len(law)
    given = (law, torch.eye(states).double(), torch.ones(1, states).double())
    found = fast_messages.smooth(*given, torch.zeros((1, 1), dtype=torch.long)).log_probs[0, 0]
    assert np.isneginf(found[-2].item())
    positive = law > 0
    wanted = np.log((law / law.sum())[positive].numpy())
    np.testing.assert_allclose(found[positive].numpy(), wanted, rtol=1e-15, atol=3e-16)


@needs_compiler
@pytest.mark.usefixtures("turned_off_at_the_end")
def test_ten_thousand_tokens():
    """As with torch, which `test_hmm.py` compares with log-space on such a chain."""
    hmm = HMM.random(5, 10, 10240, seed=0)
    tokens = hmm.sample(3, TorchRng(0))
    given = (hmm.initial, hmm.transition, hmm.emission.T, tokens)
    plain = fast_messages.smooth(*given)
    compiled.use_compiled()
    fast = fast_messages.smooth(*given)
    torch.testing.assert_close(fast.log_probs, plain.log_probs, atol=1e-11, rtol=1e-12)
    torch.testing.assert_close(fast.log_evidence, plain.log_evidence, atol=0, rtol=1e-13)


@needs_compiler
@pytest.mark.usefixtures("turned_off_at_the_end")
def test_worked_value():
    """π = (½, ½), A = [[¾, ¼], [¼, ¾]], W = [[1, 0], [½, ½]]: p(z_1 = 0 | x = 0, 1) = 2/5."""
    compiled.use_compiled()
    parts = [[0.5, 0.5], [[0.75, 0.25], [0.25, 0.75]], [[1.0, 0.0], [0.5, 0.5]]]
    hmm = HMM(*(torch.tensor(part, dtype=torch.float64) for part in parts), length=2)
    tokens = torch.tensor([[0, 1]])
    posterior = hmm.log_posterior(tokens, torch.zeros_like(tokens, dtype=torch.bool)).exp()
    wanted = torch.tensor([[0.4, 0.6], [0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(posterior[0], wanted)
    assert compiled.is_used()
    compiled.use_compiled(False)
    assert not compiled.is_used()


@needs_compiler
@pytest.mark.usefixtures("turned_off_at_the_end")
def test_no_rows_and_symbols_that_are_not_there():
    compiled.use_compiled()
    hmm = HMM.random(3, 2, 4, seed=0)
    none = torch.empty((0, 4), dtype=torch.long)
    given = (hmm.initial, hmm.transition, hmm.emission.T)
    assert fast_messages.smooth(*given, none).log_probs.shape == (0, 4, 3)
    for symbol in (-1, 2):
        with pytest.raises(IndexError, match=r"rows 0\.\.1"):
            fast_messages.smooth(*given, torch.full((1, 4), symbol))
