"""The inline engine: units run in this process, one after the other."""

from collections.abc import Iterator, Sequence

from triptych.lab.running.items import Event, Started, WorkItem
from triptych.lab.running.worker import run_item
from triptych.studies.api.study import AnyStudy


def run_inline(items: Sequence[WorkItem], study: AnyStudy) -> Iterator[Event]:
    """Run the units here, in order: for debugging, and for a study that no file holds."""
    for item in items:
        yield Started(item.key)
        yield run_item(item, study)
