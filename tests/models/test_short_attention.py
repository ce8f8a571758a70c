"""Attention of short sentences: by hand, by torch, and its programs where Triton is there."""

import math
import os
import subprocess
import sys

import pytest
import torch
from tests.support.refusals import refused

from triptych.models import short_attention
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.models.short_attention import attend, fits

CASES = [
    # batch, heads, t, source, width, a mask, causal
    (3, 2, 12, 12, 16, True, False),
    (2, 2, 17, 9, 32, True, False),
    (2, 4, 13, 13, 32, False, True),
    (1, 1, 47, 47, 32, True, False),
    (2, 2, 1, 5, 16, True, False),
]


def test_by_hand() -> None:
    query = torch.full((1, 1, 2, 1), math.log(3.0))
    key, value = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0])
    key, value = key.reshape(1, 1, 2, 1), value.reshape(1, 1, 2, 1)
    assert attend(query, key, value).flatten().tolist() == pytest.approx([1.5, 1.5])
    assert attend(query, key, value, causal=True).flatten().tolist() == pytest.approx([0.0, 1.5])
    first = torch.tensor([True, False])[None, None, None]
    assert attend(query, key, value, first).flatten().tolist() == [0.0, 0.0]


def test_on_a_cpu_the_programs_are_those_of_torch() -> None:
    query = torch.randn(2, 2, 3, 16)
    assert not fits(query, query, None)
    found = attend(query, query, query, kernels="short")
    assert torch.equal(found, attend(query, query, query))


@pytest.mark.parametrize(
    ("t", "source", "width", "rows", "fitting"),
    [
        (64, 64, 32, 1, True),
        (65, 12, 32, 1, False),  # too long
        (12, 65, 32, 1, False),
        (12, 12, 24, 1, False),  # no such width
        (12, 12, 32, 12, False),  # a mask for every position
    ],
)
def test_what_fits(
    t: int, source: int, width: int, rows: int, fitting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short_attention, "HAS_TRITON", True)

    class OnGpu(torch.Tensor):
        is_cuda = True

    query = torch.empty(2, 2, t, width).as_subclass(OnGpu)
    key = torch.empty(2, 2, source, width)
    allowed = torch.ones(2, 1, rows, source, dtype=torch.bool)
    assert short_attention.fits(query, key, allowed) == fitting


def test_kernels_of_a_translator_are_chosen_by_name() -> None:
    net = EncoderDecoder(PairShape(9, 6, width=8, layers=1, heads=2, feedforward=8), seed=0)
    net.use_kernels("short")
    kernels = {part.kernels for part in net.modules() if hasattr(part, "kernels")}
    assert kernels == {"short"}
    with refused("choices"):
        net.use_kernels("shrt")


def inputs(case: tuple, device: str = "cpu") -> tuple[list[torch.Tensor], torch.Tensor | None]:
    batch, heads, t, source, width, masked, _ = case
    draws = torch.Generator().manual_seed(t)
    sizes = [(batch, t), (batch, source), (batch, source)]
    drawn = [torch.randn(*size, heads, width, generator=draws) for size in sizes]
    lengths = torch.randint(1, source + 1, (batch, 1), generator=draws)
    allowed = (torch.arange(source) < lengths)[:, None, None].to(device) if masked else None
    return [x.to(device).transpose(1, 2).requires_grad_() for x in drawn], allowed


def both_ways(case: tuple, device: str) -> None:
    """Outputs and gradients by the programs, and by torch."""
    given, allowed = inputs(case, device)
    causal = case[-1]
    wanted = attend(*given, allowed, causal=causal)
    shown = None if allowed is None else allowed[:, 0, 0]
    found = short_attention._operation(*given, shown, causal)
    gradient = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(0)).to(device)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    for a, b in zip(
        torch.autograd.grad(found, given, gradient),
        torch.autograd.grad(wanted, given, gradient),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


BOTH_WAYS = """
import sys
from tests.models.test_short_attention import CASES, both_ways
for case in CASES:
    print(case)
    both_ways(case, sys.argv[1])
"""


def in_a_process_of_its_own(device: str, **settings: str) -> None:
    """All cases where no shape is checked: Triton compiles the sources of functions."""
    done = subprocess.run(
        [sys.executable, "-c", BOTH_WAYS, device],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]


@pytest.mark.cuda
def test_the_programs_are_torchs_on_a_gpu() -> None:
    in_a_process_of_its_own("cuda")


@pytest.mark.skipif(
    not short_attention.HAS_TRITON, reason="Triton is not installed: it comes with torch for CUDA"
)
def test_the_programs_are_torchs_by_tritons_interpreter() -> None:
    in_a_process_of_its_own("cpu", TRITON_INTERPRET="1")
