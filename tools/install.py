"""Install Triptych with the pinned, tested versions into the environment that runs this file.

    python tools/install.py [extra ...]

The environment variable TRIPTYCH_CONSTRAINTS names another file of versions, such as
constraints-oldest.txt, or is `newest`: then pip takes the newest ones that pyproject.toml allows.

On a machine without a GPU it first asks pip what installing torch would bring, and stops before
any download if that includes CUDA packages (several gigabytes that such a machine cannot use).
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEWEST = "newest"
CUDA = re.compile(r"^(nvidia|cuda|triton)([-_.]|$)")

NO_CPU_BUILD = """\
This machine has no GPU, and the only build of torch that pip finds here is the CUDA build, with
{packages}.
Nothing was downloaded. Point pip at a CPU build, for example at PyTorch's own CPU wheel index
through the environment variable PIP_EXTRA_INDEX_URL or at a folder with the wheel through
PIP_FIND_LINKS, and run again; or set TRIPTYCH_ALLOW_CUDA=1 to install the CUDA build anyway.
"""


def has_gpu() -> bool:
    """Whether the driver's own tool lists a GPU."""
    if shutil.which("nvidia-smi") is None:
        return False
    answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return answer.returncode == 0 and "GPU" in answer.stdout


def cuda_packages(report: dict) -> list[str]:
    """Names of the CUDA packages in a pip installation report."""
    names = [entry["metadata"]["name"].lower() for entry in report.get("install", [])]
    return sorted(name for name in names if CUDA.match(name))


def pip(*arguments: str, capture: bool = False) -> str:
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check"]
    done = subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE if capture else None
    )
    return done.stdout or ""


def pins() -> Path | None:
    """The file of versions to install; None for the newest ones."""
    named = os.environ.get("TRIPTYCH_CONSTRAINTS") or "constraints.txt"
    if named == NEWEST:
        return None
    file = ROOT / named
    if not file.is_file():
        sys.exit(f"TRIPTYCH_CONSTRAINTS is {named}, and there is no file {file}")
    return file


def main(extras: list[str]) -> None:
    file = pins()
    if sys.platform == "linux" and not has_gpu() and "TRIPTYCH_ALLOW_CUDA" not in os.environ:
        lines = file.read_text("utf-8").splitlines() if file else []
        wanted = next((line for line in lines if line.startswith("torch==")), "torch")
        plan = pip("install", "--dry-run", "--quiet", "--report", "-", wanted, capture=True)
        packages = cuda_packages(json.loads(plan))
        if packages:
            sys.exit(NO_CPU_BUILD.format(packages=", ".join(packages)))
    target = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    constraint = ["--constraint", str(file)] if file else ["--upgrade"]
    pip("install", "--quiet", *constraint, "--editable", target)


if __name__ == "__main__":
    main(sys.argv[1:])
