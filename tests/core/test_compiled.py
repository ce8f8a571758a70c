"""The C programs: building them, and draws that are those of torch. Posteriors are tested in
`structures/hidden_markov`."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest
import torch
from tests.support.refusals import refused

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
        with refused("rows"):
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


FAKES = {  # what a compiler that exits with 0 leaves under the name after -o
    "nothing": "",
    "an empty file": ': > "$out"',
    "junk": 'echo "no library at all" > "$out"',
    "a folder": 'mkdir -p "$out"',
    "its first bytes": f'head -c 50 "{sys.executable}" > "$out"',
    "half of it": f'head -c 9000 "{sys.executable}" > "$out"',
    "all but its end": f'head -c -1 "{sys.executable}" > "$out"',
    "another library": 'echo "int other(void) { return 1; }" | cc -shared -fPIC -x c - -o "$out"',
}


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("fake", FAKES)
def test_a_compiler_that_makes_no_library_is_a_sentence(monkeypatch, tmp_path, fake, memory):
    if fake == "another library" and not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(compiled, "_built", None)
    if not memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    compiler = tmp_path / "cc"
    find = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done'
    compiler.write_text(f"#!/bin/sh\n{find}\n{FAKES[fake]}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with refused("compiler"):
        compiled.use_compiled()
    assert not compiled.is_used()


@pytest.fixture
def noexec_folder(tmp_path, monkeypatch):
    """A real folder where no program may run, which is also the one for temporary files."""
    folder = tmp_path / "noexec"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "noexec,size=8m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"a folder cannot be mounted here: {error}")
    if mounted.returncode:
        pytest.skip(f"a folder cannot be mounted here: {mounted.stderr.strip()}")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # dlopen leaves a map


@needs_compiler
@pytest.mark.usefixtures("turned_off_at_the_end")
@pytest.mark.parametrize("memory", [True, False])
def test_where_temporary_folders_run_no_programs(noexec_folder, monkeypatch, memory):
    """It is loaded from memory; and where a system has no such files, there is a sentence."""
    monkeypatch.setattr(compiled, "_built", None)
    if memory and hasattr(os, "memfd_create"):
        compiled.use_compiled()
        assert compiled.is_used()
        assert compiled.library().packed_numbers(3, 5) > 0
    else:
        monkeypatch.delattr(os, "memfd_create", raising=False)
        with refused("compiler"):
            compiled.use_compiled()
        assert not compiled.is_used()
    assert list(noexec_folder.iterdir()) == []


def test_no_folder_for_temporary_files_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "_built", None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(UserError, match="set TMPDIR"):
        compiled.use_compiled()


def test_without_a_compiler_the_user_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "_built", None)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiled, "_COMPILERS", ("no-such-compiler",))
    with pytest.raises(UserError, match=r"no C compiler was found \(no-such-compiler\)"):
        compiled.use_compiled()
    assert not compiled.is_used()
    monkeypatch.setenv("CC", str(tmp_path / "nothing"))
    with refused("command"):
        compiled.use_compiled()
    monkeypatch.setenv("CC", "false")
    with pytest.raises(UserError, match="could not build the C programs: it said nothing"):
        compiled.use_compiled()
    with pytest.raises(UserError, match="not built yet"):
        compiled.library()
