"""The results of a run folder, for the commands that show them."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triptych.lab.results.gathering import Results

DEFAULT_FOLDER = Path("runs")


def stored_results(folder: Path, *, shown: bool = True) -> "Results":
    """What a run folder holds and what is bundled; the default folder need not be there yet.

    shown
        With all that a report shows; verdicts alone are there at once.
    """
    from triptych.lab.results.gathering import gather
    from triptych.lab.running.store import FILE, Store

    if folder == DEFAULT_FOLDER and not (folder / FILE).exists():
        return gather(None, shown=shown)
    return gather(Store.read(folder), shown=shown)
