"""Kill a piece of work at any moment on its way to the disk: no `finally` runs after it."""

import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_DONE, _KILLED, _RAISED = 0, 9, 1


def kills(work: Callable[[int], object]) -> Iterator[int]:
    """Run `work(moment)` in a process of its own that dies at its first, second, ... moment.

    A moment is the opening of a new file, the flush of a file or folder to the disk, a renaming or
    a removal. Yields the number after each death, and ends when the work does.
    """
    moment = 1
    while _ended(work, moment) == _KILLED:
        yield moment
        moment += 1


def _ended(work: Callable[[int], object], moment: int) -> int:
    child = os.fork()
    if child == 0:
        code = _RAISED
        try:
            _die_at(moment)
            work(moment)
            code = _DONE
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (_DONE, _KILLED), f"the work raised, or was killed by {-code}"
    return code


def _die_at(moment: int) -> None:
    """In this process the moment-th step towards the disk is the last thing that happens."""
    steps = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == moment:
                os._exit(_KILLED)
            return real(*given, **options)

        return step

    for name in ("open", "fsync", "replace"):
        setattr(os, name, counted(getattr(os, name)))
    Path.unlink = counted(Path.unlink)
