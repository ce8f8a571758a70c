"""Small C programs that do the same as torch, faster: `use_compiled()`.

The programs (the folder `c`) are built with the machine's own C compiler when they are first asked
for, in a second or two, and serve the process that asked, on its CPU. The code in torch stays the
reference. Draws are the same to the last bit; posteriors of chains and the states of a cached
decoder agree to rounding, and their last bits differ. So nothing is turned on by itself, and no
study turns it on.
"""

import ctypes
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.validation import UserError, as_flag

SOURCES = {  # with what each may do to a product and a sum: round once, or twice as torch does
    "smooth.c": "-ffp-contract=fast",
    "draw_alias.c": "-ffp-contract=off",
    "attend.c": "-ffp-contract=fast",
    "product.c": "-ffp-contract=fast",
}
_FOLDER = Path(__file__).with_name("c")
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = (["-O3", "-march=native"], ["-O3", "-mcpu=native"], ["-O3"])  # the first that works

_WITHOUT = "leave use_compiled away: everything is then computed with torch"

_built: ctypes.CDLL | None = None
_used = False


def use_compiled(wanted: bool = True) -> None:
    """From now on this process computes with the C programs where there are some, or no more."""
    global _built, _used
    wanted = as_flag("wanted", wanted)
    if wanted and _built is None:
        _built = _build()
    _used = wanted


def is_used() -> bool:
    """Whether this process computes with the C programs."""
    return _used


def library() -> ctypes.CDLL:
    """The programs, as ctypes calls them."""
    if _built is None:
        raise UserError("the C programs are not built yet: call use_compiled() first")
    return _built


def draw_alias(
    uniform: Float[Tensor, " draws"],
    rows: Int[Tensor, " draws"],
    keep: Float[Tensor, " entries"],
    other: Int[Tensor, " entries"],
    drawn: Int[Tensor, " draws"],
    outcomes: int,
) -> None:
    """Fill `drawn` with outcomes from alias tables: draw i is from the law rows[i]."""
    tensors = (uniform, rows, keep, other, drawn)
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("all tensors must be contiguous")
    addresses = [tensor.data_ptr() for tensor in tensors]
    if library().draw_alias(len(rows), len(keep) // outcomes, outcomes, *addresses):
        raise IndexError("a row that is not there")


def _build() -> ctypes.CDLL:
    """Compile and load; the file is not needed any more once it is loaded."""
    try:
        return _build_in_a_folder()
    except OSError as error:
        raise UserError(
            f"the C programs could not be built ({error}): set TMPDIR to a folder with some space "
            f"where programs may run, or {_WITHOUT}"
        ) from error


def _build_in_a_folder() -> ctypes.CDLL:
    asked = os.environ.get("CC", "").split()
    compiler = asked or [name for name in map(shutil.which, _COMPILERS) if name][:1]
    if not compiler:
        raise UserError(
            f"no C compiler was found ({', '.join(_COMPILERS)}); install one, or {_WITHOUT}"
        )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        said = ""
        for flags in _FLAGS:
            objects, target = [], str(Path(folder) / "triptych.so")
            commands = []
            for name, rounding in SOURCES.items():
                objects.append(str(Path(folder) / f"{name}.o"))
                source = ["-c", str(_FOLDER / name), "-o", objects[-1]]
                commands.append([*compiler, *flags, rounding, "-fPIC", *source])
            commands.append([*compiler, "-shared", *objects, "-o", target, "-lm"])
            said = next((error for error in map(_error_of, commands) if error), "")
            if not said:
                return _loaded(Path(target), compiler[0])
    raise UserError(f"the C compiler {compiler[0]} could not build the C programs: {said}")


def _loaded(library: Path, compiler: str) -> ctypes.CDLL:
    """The library that was built, from a file in memory where its folder may not run programs."""
    content = library.read_bytes() if library.is_file() else b""
    if _is_cut(content):
        raise UserError(
            f"the C compiler {compiler} says that it built the C programs and wrote no library: "
            f"choose another by the variable CC, or {_WITHOUT}",
            parameter="compiler",
        )
    try:
        try:
            return _declared(ctypes.CDLL(str(library)))
        except OSError:
            if not hasattr(os, "memfd_create"):
                raise
            with open(os.memfd_create("triptych"), "wb") as file:
                file.write(content)
                file.flush()
                return _declared(ctypes.CDLL(f"/proc/self/fd/{file.fileno()}"))
    except (OSError, AttributeError) as error:
        raise UserError(
            f"the C programs that {compiler} built cannot be loaded ({error}): set TMPDIR to a "
            f"folder where programs may run, choose another compiler by CC, or {_WITHOUT}",
            parameter="compiler",
        ) from error


def _is_cut(content: bytes) -> bool:
    """Whether a library ends too early. To load one of Linux that does would end this process."""
    if content[:5] != b"\x7fELF\x02":  # of 64 bits
        return not content
    if len(content) < 64:
        return True
    (table,) = struct.unpack_from("=Q", content, 40)  # of the sections: the end of the file
    size, count = struct.unpack_from("=HH", content, 58)
    return table + size * count > len(content)


def _error_of(command: list[str]) -> str:
    """The first line that a failing command says; nothing when it succeeds."""
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(
            f"the C compiler {command[0]} cannot be run: {error}", parameter="command"
        ) from error
    said = made.stderr.strip().splitlines() or ["it said nothing"]
    return said[0] if made.returncode else ""


def _declared(built: ctypes.CDLL) -> ctypes.CDLL:
    """Types of arguments: `whole` numbers of the C type int64_t or long, real ones, addresses."""
    whole, real, address = ctypes.c_long, ctypes.c_double, ctypes.c_void_p
    sizes, steps = [whole] * 5, [whole, real, whole]
    built.smooth_work.argtypes, built.smooth_work.restype = sizes, whole
    built.smooth_rows.argtypes = [*sizes, *[address] * 6, *steps, *[address] * 4]
    built.smooth_rows.restype = None
    built.count_work.argtypes, built.count_work.restype = [whole] * 4, whole
    built.count_rows.argtypes = [*[whole] * 4, *[address] * 6, *steps, *[address] * 6]
    built.count_rows.restype = None
    built.draw_alias.argtypes, built.draw_alias.restype = [whole] * 3 + [address] * 5, whole
    built.attend_work.argtypes, built.attend_work.restype = [whole] * 2, whole
    built.attend_rows.argtypes = [whole] * 5 + [real] + [address] * 7
    built.attend_rows.restype = None
    built.packed_numbers.argtypes, built.packed_numbers.restype = [whole] * 2, whole
    built.pack_matrix.argtypes, built.pack_matrix.restype = [whole] * 2 + [address] * 2, None
    built.packed_product.argtypes = [whole] * 3 + [address] * 4
    built.packed_product.restype = None
    return built
