"""Run the numerical tests under several instruction sets, one line of counts for each.

A result that depends on the order in which one CPU adds numbers is not a result. torch, OpenBLAS
(numpy, scipy) and MKL (torch) choose their kernels by the CPU, and an environment variable makes
them choose others. What the CPU cannot execute is left out, and so is a setting that makes the
libraries run what was tested before: they are asked which kernels they use.

    python tools/test_cpus.py [arguments of pytest]
"""

import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

AVX2 = {"avx2", "fma"}
AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
SETTINGS: list[tuple[str, str, set[str]]] = [  # variable, value, flags of the CPU that it needs
    ("ATEN_CPU_CAPABILITY", "default", set()),
    ("ATEN_CPU_CAPABILITY", "avx2", AVX2),
    ("ATEN_CPU_CAPABILITY", "avx512", AVX512),
    ("OPENBLAS_CORETYPE", "Nehalem", {"sse4_2"}),
    ("OPENBLAS_CORETYPE", "Haswell", AVX2),
    ("OPENBLAS_CORETYPE", "Zen", AVX2),
    ("OPENBLAS_CORETYPE", "SkylakeX", AVX512),
    ("MKL_CBWR", "COMPATIBLE", set()),
    ("MKL_CBWR", "AVX2", AVX2),
]
ASK = """
import numpy, scipy.linalg, torch
print("torch", torch.backends.cpu.get_cpu_capability())
scipy.linalg.cholesky(numpy.eye(9))
square = torch.eye(9, dtype=torch.float64)
square @ square
if not torch.backends.mkl.is_available():
    print("CNR:none")
"""


def cpu_flags() -> set[str]:
    """What the CPU can execute, as Linux names it; empty where that is not known."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(found[1].split()) if found else set()


def kernels(environment: dict[str, str]) -> str:
    """Which kernels torch, OpenBLAS and MKL use, in their own words."""
    loud = environment | {"OPENBLAS_VERBOSE": "2", "MKL_VERBOSE": "1"}
    asked = subprocess.run(
        [sys.executable, "-c", ASK], env=loud, capture_output=True, text=True, check=True
    )
    said = asked.stdout + asked.stderr
    words = {
        "torch": re.findall(r"^torch (\S+)", said, re.MULTILINE),
        "OpenBLAS": re.findall(r"Core: (\S+)", said),
        "MKL": re.findall(r"CNR:(\S+)", said),
    }
    return ", ".join(f"{name} {'/'.join(sorted(set(found)))}" for name, found in words.items())


def tested(environment: dict[str, str], arguments: list[str]) -> tuple[bool, str]:
    """Whether pytest passed, and what it counted."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "numerical and not slow", *arguments]
    start = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()[-300:]]
    counts = re.sub(r" in [\d.]+s.*", "", lines[-1]).strip("= ")
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    said = f"{counts} in {time.monotonic() - start:.0f} s"
    return done.returncode == 0, "\n    ".join([said, *failures])


def main(arguments: list[str]) -> int:
    flags, seen, failed = cpu_flags(), {}, []
    print(f"{platform.processor() or platform.machine()}: numerical tests", flush=True)
    for variable, value, needed in [("", "", set()), *SETTINGS]:
        name = f"{variable}={value}" if variable else "as the libraries choose"
        if missing := needed - flags:
            print(f"{name}: left out, the CPU has no {' '.join(sorted(missing))}", flush=True)
            continue
        environment = dict(os.environ) | ({variable: value} if variable else {})
        used = kernels(environment)
        if used in seen:
            print(f"{name}: left out, runs what '{seen[used]}' runs ({used})", flush=True)
            continue
        seen[used] = name
        passed, counts = tested(environment, arguments)
        print(f"{name} ({used}): {counts}", flush=True)
        if not passed:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
