"""The inline engine: units run in this process, one after the other."""

from collections.abc import Iterator, Sequence

from triptych.lab.running.items import Started, UnitEvent, WorkItem
from triptych.lab.running.plan import Plan
from triptych.lab.running.worker import run_item


def run_inline(items: Sequence[WorkItem], plan: Plan) -> Iterator[UnitEvent]:
    """Run the units here, in order: for debugging, and for a study that no file holds."""
    for item in items:
        yield Started(item.key)
        yield run_item(item, plan)
