"""Counts for Prometheus, in its text format; no label holds anything that a client wrote."""

from threading import Lock

_HELP = {
    "requests_total": ("counter", "answers by path and status"),
    "texts_total": ("counter", "texts by what the verifier says of them"),
    "prompt_tokens_total": ("counter", "tokens of prompts"),
    "completion_tokens_total": ("counter", "tokens of texts that were given back"),
    "generated_tokens_total": ("counter", "tokens that were written, also those that were erased"),
    "erased_tokens_total": ("counter", "tokens that were taken back"),
    "generator_calls_total": ("counter", "questions to the model"),
    "verifier_calls_total": ("counter", "questions to the verifier"),
    "batches_total": ("counter", "batches that ran"),
    "batch_rows_total": ("counter", "rows in these batches"),
    "batch_seconds_total": ("counter", "seconds that these batches took"),
    "abandoned_total": ("counter", "requests whose client went away"),
    "waiting_requests": ("gauge", "requests that wait for their turn"),
    "running_requests": ("gauge", "requests that run"),
}


class Metrics:
    """Numbers by name and labels. Worked value: after add("batches_total") the text has a line
    "triptych_batches_total 1"."""

    def __init__(self) -> None:
        self._lock, self._values = Lock(), dict[tuple[str, str], int | float]()
        for name in _HELP:
            if name not in ("requests_total", "texts_total"):
                self._values[name, ""] = 0

    def add(self, name: str, amount: int | float = 1, **labels: str) -> None:
        """Count something."""
        with self._lock:
            key = name, _written(labels)
            self._values[key] = self._values.get(key, 0) + amount

    def set(self, name: str, value: int | float) -> None:
        """A number as it is now."""
        with self._lock:
            self._values[name, ""] = value

    def text(self) -> str:
        """All of them."""
        with self._lock:
            values = dict(self._values)
        lines = []
        for name, (kind, meaning) in _HELP.items():
            full = f"triptych_{name}"
            lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}"]
            found = sorted((labels, value) for (of, labels), value in values.items() if of == name)
            lines += [f"{full}{labels} {value:.15g}" for labels, value in found]
        return "\n".join([*lines, ""])


def _written(labels: dict[str, str]) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    return f"{{{inside}}}" if inside else ""
