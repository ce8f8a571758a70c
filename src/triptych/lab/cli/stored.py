"""The results of a run folder, for the commands that show them."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triptych.lab.results.gathering import Results

DEFAULT_FOLDER = Path("runs")


def stored_results(folder: Path) -> "Results":
    """What a run folder holds and what is shipped; the default folder need not be there yet."""
    from triptych.lab.results.gathering import gather
    from triptych.lab.running.store import FILE, Store

    if folder == DEFAULT_FOLDER and not (folder / FILE).exists():
        return gather(None)
    return gather(Store.read(folder))
