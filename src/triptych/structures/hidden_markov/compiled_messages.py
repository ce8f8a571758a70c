"""Posteriors of a chain's hidden states by the C program of `core.compiled`."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.compiled import library

_BLOCK_NUMBERS = 2**17  # of the messages of the rows that are computed together: 1 MB


def smooth_rows(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "batch length"],
    readout: Float[Tensor, "states outcomes"] | None,
    every: int,
    floor: float,
    out: Float[Tensor, "length batch outcomes"],
) -> tuple[Float[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """Fill `out` with log-posteriors; return log-evidence and which rows are at risk.

    Rescales after `every` steps; a rescaled positive entry below `floor` puts its row at risk.
    """
    program = library()
    (batch, length), (count, states), outcomes = symbols.shape, table.shape, out.shape[-1]
    log_evidence = torch.empty(batch, dtype=torch.float64)
    at_risk = torch.empty(batch, dtype=torch.bool)
    if symbols.numel() == 0:
        return log_evidence.zero_(), at_risk.zero_()
    lowest, highest = (int(end) for end in symbols.aminmax())
    if lowest < 0 or highest >= count:
        raise IndexError(f"symbols holds {lowest}..{highest}; the table has rows 0..{count - 1}")
    if not out.is_contiguous():
        raise ValueError("out must be contiguous")
    rows = max(4, min(64, _BLOCK_NUMBERS // (length * states) // 4 * 4))
    sizes = (batch, length, states, count, outcomes)
    work = torch.empty(program.smooth_work(rows, *sizes[1:]), dtype=torch.float64)
    given = [initial, transition, transition.T, table]
    kept = [matrix.to(torch.float64).contiguous() for matrix in given]
    kept += [symbols.to(torch.int64).contiguous()]
    if readout is not None:
        kept += [readout.to(torch.float64).contiguous()]
    pointers = [tensor.data_ptr() for tensor in kept] + [None] * (readout is None)
    results = [tensor.data_ptr() for tensor in (out, log_evidence, at_risk, work)]
    program.smooth_rows(*sizes, *pointers, every, floor, rows, *results)
    return log_evidence, at_risk
