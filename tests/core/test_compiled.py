"""The C programs: building them, and draws that are those of torch. Posteriors are tested in
`structures/hidden_markov`."""

import shutil

import pytest
import torch

from triptych.core import compiled
from triptych.core.randomness import TorchRng, _Alias
from triptych.core.validation import UserError
from triptych.structures.hidden_markov.hmm import HMM

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


@pytest.fixture
def turned_off_at_the_end():
    yield
    compiled.use_compiled(False)


@needs_compiler
@pytest.mark.usefixtures("turned_off_at_the_end")
@pytest.mark.parametrize("outcomes", [1, 2, 3, 10, 64, 200])
def test_draws_are_the_same(outcomes):
    """Random laws, some with zeros: alias tables of both, and the columns' edges."""
    generator = torch.Generator().manual_seed(outcomes)
    weights = torch.rand((7, outcomes), generator=generator, dtype=torch.float64)
    weights[:, 1:] *= torch.rand((7, outcomes - 1), generator=generator) < 0.7
    log_probs = (weights / weights.sum(-1, keepdim=True)).log()
    rows = torch.randint(7, (50, 40 * outcomes), generator=generator)
    drawn = {}
    for wanted in (False, True):
        compiled.use_compiled(wanted)
        rng = TorchRng(3)
        drawn[wanted] = torch.stack([rng.categorical(log_probs, rows) for _ in range(2)])
    assert torch.equal(drawn[False], drawn[True])
    table = _Alias.of(log_probs)
    edges = torch.arange(outcomes, dtype=torch.float64) / outcomes
    ups = torch.nextafter(edges, torch.ones_like(edges))
    uniform = torch.cat([edges, ups, (edges + table.keep[:outcomes] / outcomes).clamp(max=0.999)])
    first = torch.zeros(len(uniform), dtype=torch.long)
    found = torch.empty_like(first)
    compiled.draw_alias(uniform, first, table.keep, table.other, found, outcomes)
    assert torch.equal(found, table.draw(first, uniform.clone()))


@needs_compiler
@pytest.mark.usefixtures("turned_off_at_the_end")
def test_a_chain_is_the_same_and_rows_that_are_not_there_are_refused():
    hmm = HMM.random(5, 4, 30, seed=0)
    wanted = hmm.sample_with_states(200, TorchRng(1))
    compiled.use_compiled()
    found = hmm.sample_with_states(200, TorchRng(1))
    assert torch.equal(found.tokens, wanted.tokens)
    assert torch.equal(found.states, wanted.states)
    for row in (-1, 5):
        with pytest.raises(UserError, match=r"log_probs has rows 0\.\.4"):
            TorchRng(0).categorical(hmm.transition.log(), torch.full((500,), row))


@needs_compiler
@pytest.mark.usefixtures("turned_off_at_the_end")
def test_worked_draws():
    """p = (½, ½, 0) on three columns: u in [0, 1/3) is column 0, kept; column 2 is never kept."""
    compiled.use_compiled()
    assert compiled.is_used()
    keep = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
    other = torch.tensor([0, 0, 1])
    uniform = torch.tensor([0.0, 0.3, 0.4, 0.6, 0.7, 0.99], dtype=torch.float64)
    rows = torch.zeros(6, dtype=torch.long)
    drawn = torch.empty_like(rows)
    compiled.draw_alias(uniform, rows, keep, other, drawn, 3)
    assert drawn.tolist() == [0, 0, 1, 0, 1, 1]
    with pytest.raises(ValueError, match="contiguous"):
        compiled.draw_alias(uniform, rows, keep, other, torch.empty(6, 2).long()[:, 0], 3)
    compiled.use_compiled(False)
    assert not compiled.is_used()


def test_without_a_compiler_the_user_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "_built", None)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiled, "_COMPILERS", ("no-such-compiler",))
    with pytest.raises(UserError, match=r"no C compiler was found \(no-such-compiler\)"):
        compiled.use_compiled()
    assert not compiled.is_used()
    monkeypatch.setenv("CC", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match="cannot be run"):
        compiled.use_compiled()
    monkeypatch.setenv("CC", "false")
    with pytest.raises(UserError, match="could not build the C programs: it said nothing"):
        compiled.use_compiled()
    with pytest.raises(UserError, match="not built yet"):
        compiled.library()
