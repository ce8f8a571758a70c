"""A verifier: no text may speak of rain."""


def dry(text: str) -> bool:
    """Whether no rain has been mentioned so far."""
    return "rain" not in text.lower()
