"""What one request, and all of them together, may take."""

from dataclasses import dataclass

from triptych.core.validation import as_count, as_number, set_fields


@dataclass(frozen=True)
class Limits:
    """Bounds that a gateway keeps.

    max_tokens     new tokens of a text
    rows           texts of one request: its prompts times `n`
    together       rows that one batch holds, of one request or of several
    requests       that wait or run; one more is told to come back (429)
    seconds        that a batch may run, and that a request may wait for its turn
    body_bytes     of a request
    body_seconds   that a client may take to send it
    schema_bytes   of a JSON schema in a request
    """

    max_tokens: int = 1024
    rows: int = 64
    together: int = 64
    requests: int = 64
    seconds: int | float = 300.0
    body_bytes: int = 1 << 20
    body_seconds: int | float = 30.0
    schema_bytes: int = 1 << 16

    def __post_init__(self) -> None:
        counts = ("max_tokens", "rows", "together", "requests", "body_bytes", "schema_bytes")
        for name in counts:
            set_fields(self, **{name: as_count(name, getattr(self, name), at_least=1)})
        for name in ("seconds", "body_seconds"):
            set_fields(self, **{name: as_number(name, getattr(self, name), above=0)})
