"""Posteriors by a small C program, for who wants them faster: `use_compiled()`.

The program (`smooth.c`) is built with the machine's own C compiler when it is first asked for, in
about a second, and serves the process that asked. Without it, and on a GPU, posteriors are
computed with torch (`fast_messages`), which stays the reference: both agree to rounding, and the
last bits differ. So nothing here is turned on by itself, and no study turns it on.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.validation import UserError, as_flag

SOURCE = Path(__file__).with_name("smooth.c")
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = (["-O3", "-march=native"], ["-O3", "-mcpu=native"], ["-O3"])  # the first that works
_BLOCK_NUMBERS = 2**17  # of the messages of the rows that are computed together: 1 MB

_built: ctypes.CDLL | None = None
_used = False


def use_compiled(wanted: bool = True) -> None:
    """From now on this process computes posteriors of chains with the C program, or no more."""
    global _built, _used
    wanted = as_flag("wanted", wanted)
    if wanted and _built is None:
        _built = _build()
    _used = wanted


def is_used() -> bool:
    """Whether posteriors on a CPU are computed by the C program."""
    return _used


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
    if _built is None:
        raise UserError("the C program is not built yet: call use_compiled() first")
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
    work = torch.empty(_built.smooth_work(rows, *sizes[1:]), dtype=torch.float64)
    given = [initial, transition, transition.T, table]
    kept = [matrix.to(torch.float64).contiguous() for matrix in given]
    kept += [symbols.to(torch.int64).contiguous()]
    if readout is not None:
        kept += [readout.to(torch.float64).contiguous()]
    pointers = [tensor.data_ptr() for tensor in kept] + [None] * (readout is None)
    results = [tensor.data_ptr() for tensor in (out, log_evidence, at_risk, work)]
    _built.smooth_rows(*sizes, *pointers, every, floor, rows, *results)
    return log_evidence, at_risk


def _build() -> ctypes.CDLL:
    """Compile and load; the file is not needed any more once it is loaded."""
    asked = os.environ.get("CC", "").split()
    compiler = asked or [name for name in map(shutil.which, _COMPILERS) if name][:1]
    if not compiler:
        raise UserError(
            f"no C compiler was found ({', '.join(_COMPILERS)}); install one, or leave "
            "use_compiled away: posteriors are then computed with torch"
        )
    said = ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        target = Path(folder) / "smooth.so"
        for flags in _FLAGS:
            command = [*compiler, *flags, "-shared", "-fPIC", str(SOURCE), "-o", str(target), "-lm"]
            try:
                made = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as error:
                raise UserError(f"the C compiler {compiler[0]} cannot be run: {error}") from error
            if made.returncode == 0:
                return _declared(ctypes.CDLL(str(target)))
            said = (made.stderr.strip().splitlines() or ["it said nothing"])[0]
    raise UserError(f"the C compiler {compiler[0]} could not build {SOURCE.name}: {said}")


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    whole, real, address = ctypes.c_long, ctypes.c_double, ctypes.c_void_p
    library.smooth_work.argtypes, library.smooth_work.restype = [whole] * 5, whole
    library.smooth_rows.argtypes = [
        *[whole] * 5,
        *[address] * 6,
        whole,
        real,
        whole,
        *[address] * 4,
    ]
    library.smooth_rows.restype = None
    return library
