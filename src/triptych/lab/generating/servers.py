"""The served model of `triptych generate`: where it is, which one it is, and the key to it.

A text depends on the model and not on where it is served: the settings of a run have its name and
fingerprint, and a server that moves to another port goes on with the same file. The key is read
from the environment, where it is needed, and is in no file.
"""

import os
from typing import NamedTuple

from triptych.core.validation import UserError
from triptych.models.served.served_lm import ServedLM

KEY = "TRIPTYCH_API_KEY"
"""The environment variable whose value is sent as the key, where no other is named."""


class Server(NamedTuple):
    """Where a model is served, as plain data.

    model, dialect   as the user gave them; empty asks the server
    key_variable     the environment variable that holds the key
    """

    url: str
    model: str = ""
    dialect: str = ""
    key_variable: str = KEY


class Served(NamedTuple):
    """Which model it is: part of what decides a text."""

    dialect: str
    model: str
    fingerprint: str


def connect(server: Server, tokenizer: str) -> ServedLM:
    """The model of a server; its tokenizer is that of the folder, file or name."""
    key = os.environ.get(server.key_variable)
    if key is None and server.key_variable != KEY:
        raise UserError(
            f"--key-variable names {server.key_variable}, and the environment has no such variable"
        )
    return ServedLM(
        server.url,
        model=server.model or None,
        tokenizer=tokenizer,
        api_key=key or None,
        dialect=server.dialect or None,
    )


def which(lm: ServedLM) -> Served:
    """What is written into the settings and the rows."""
    return Served(lm.facts.dialect, lm.facts.model, lm.fingerprint)
