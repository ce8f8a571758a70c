"""Models of transformers: where they are, and that nothing of their own code runs unasked.

A model may name classes in Python files of its own (`auto_map` in its JSON files). Loading such a
model runs these files with all rights of the user. Left to itself, transformers asks about it on
standard input.
"""

import re
from contextlib import suppress
from pathlib import Path

from triptych.core.errors import UserError
from triptych.core.scalars import shown

HUB_SECONDS = 3.0
"""That the hub may take to answer before the disk alone is read."""


def as_place(name: str, where: str | Path, what: str) -> str:
    """A folder, a file or a name on the hub as transformers takes it; `what` says which of them."""
    if isinstance(where, str | Path) and str(where):
        return str(where)
    hint = ""
    if where is None:  # what `cached` says of a model that is not here
        hint = "; `triptych fetch NAME` brings a model here, and cached(NAME) is its path then"
    raise UserError(f"{name} is {shown(where)}; pass {what}{hint}", parameter=name)


def on_disk_alone(place: str, local_files_only: bool) -> bool:
    """Whether transformers shall read the disk alone: asked for, or the hub does not answer.

    The hub is asked once, with a limit of seconds; its own client would try five times. A model
    that is not on the disk is refused then.
    """
    on_hub = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", place)
    if local_files_only or not on_hub or Path(place).exists():
        return local_files_only
    try:
        from huggingface_hub import constants
    except ModuleNotFoundError:  # then transformers is not installed, and the loader says so
        return local_files_only
    offline = constants.is_offline_mode()
    if not offline and _hub_answers():
        return False
    kept = Path(constants.HF_HUB_CACHE) / f"models--{place.replace('/', '--')}"
    if not kept.is_dir():
        why = "HF_HUB_OFFLINE is set" if offline else "the hub does not answer"
        raise UserError(
            f"there is no folder {place!r}, the hub's cache has no model of that name, and {why}; "
            "check the name and the connection (HF_HUB_OFFLINE=1 never asks the hub)",
            parameter="place",
        )
    return True


def _hub_answers() -> bool:
    """Whether one request to the hub has any answer."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    with suppress(Exception):  # its client raises many classes for one thing
        get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)
        return True
    return False


def refuse_own_code(where: str, error: Exception) -> None:
    """Raise a sentence if `error` of transformers is that a model needs Python of its own."""
    if "trust_remote_code" in str(error):
        raise UserError(
            f"the model {where!r} needs its own Python files, and they were not run; if you trust "
            "them, pass trust_remote_code=True (--trust-remote-code): they run with all your rights"
        ) from error
