"""Posteriors and expected counts of a chain's hidden states by the C program of `core.compiled`."""

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
    _check_symbols(symbols, count)
    if not out.is_contiguous():
        raise ValueError("out must be contiguous")
    rows = _rows_at_once(length, states)
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


def count_rows(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "batch length"],
    weights: Float[Tensor, " batch"],
    every: int,
    floor: float,
) -> tuple[Tensor, list[Tensor], Bool[Tensor, " batch"]]:
    """Log-evidence, expected counts (first, pairs, emitted), and which rows are at risk.

    The last row of the table says that a row is over. A row at risk is in none of the counts.
    """
    program = library()
    (batch, length), (count, states) = symbols.shape, table.shape
    shapes = (batch,), (states,), (states, states), (count - 1, states)
    log_evidence, *counts = (torch.zeros(shape, dtype=torch.float64) for shape in shapes)
    at_risk = torch.zeros(batch, dtype=torch.bool)
    if symbols.numel() == 0:
        return log_evidence, counts, at_risk
    _check_symbols(symbols, count)
    rows = _rows_at_once(length, states)
    work = torch.empty(program.count_work(rows, length, states, count), dtype=torch.float64)
    given = [initial, transition, transition.T, table]
    kept = [matrix.to(torch.float64).contiguous() for matrix in given]
    kept += [symbols.to(torch.int64).contiguous(), weights.to(torch.float64).contiguous()]
    pointers = [tensor.data_ptr() for tensor in kept]
    results = [tensor.data_ptr() for tensor in (*counts, log_evidence, at_risk, work)]
    program.count_rows(batch, length, states, count, *pointers, every, floor, rows, *results)
    return log_evidence, counts, at_risk


def _check_symbols(symbols: Int[Tensor, "batch length"], count: int) -> None:
    lowest, highest = (int(end) for end in symbols.aminmax())
    if lowest < 0 or highest >= count:
        raise IndexError(f"symbols holds {lowest}..{highest}; the table has rows 0..{count - 1}")


def _rows_at_once(length: int, states: int) -> int:
    return max(4, min(64, _BLOCK_NUMBERS // (length * states) // 4 * 4))
