"""The program `triptych`; also `python -m triptych`."""

import os

from triptych.lab.running.interrupts import end_at_once


def main() -> None:
    """Run the command line. Ctrl-C ends it at once, unless a command has to put things in order."""
    end_at_once()
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries: the program has its own
    from triptych.lab.cli.app import app

    app()


if __name__ == "__main__":
    main()
