"""`python -m triptych`."""

from triptych.lab.cli import app

app()
