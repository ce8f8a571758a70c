"""`triptych bench`: speed against peers."""

import sys
from pathlib import Path

import typer


def bench() -> None:
    """Measure speed against peers (needs the source repository).

    Everything is measured in one run on this machine.

    Example: triptych bench
    """
    import importlib.util
    import subprocess

    from triptych.core.validation import UserError

    if importlib.util.find_spec("benchmarks") is None and not Path("benchmarks").is_dir():
        raise UserError(
            "the benchmarks are not part of the installed package; "
            "clone the repository and run `make bench`"
        )
    raise typer.Exit(subprocess.run([sys.executable, "-m", "benchmarks"], check=False).returncode)
