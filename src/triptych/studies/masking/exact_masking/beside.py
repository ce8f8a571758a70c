"""What the judges of `exact_masking` share: models that are needed, numbers that are shown."""

from collections.abc import Iterable, Sequence

from triptych.studies.api.decide import Check, Need, at_least, largest, shown

MODELS = 2  # are needed for every statement about models


def models_needed(names: Iterable[str], what: str = "models") -> Need:
    """At least two different models."""
    return at_least(what, len(set(names)), MODELS)


def most_beside(sentence: str, values: Sequence[float]) -> list[Check]:
    """The largest of some values, which decides nothing; no check where there are none."""
    return [shown(sentence, largest(values))] if values else []
