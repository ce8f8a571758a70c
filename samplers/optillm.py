"""optillm: entropy decoding."""

import importlib.util
from pathlib import Path
from typing import Any

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("optillm")

LOGITS = [1.6, 1.1, 0.6, -0.4, -1.4]


def _entropy_decoding() -> Any:
    """The installed file alone: the package's own import starts what its server needs."""
    place = importlib.util.find_spec("optillm")
    if place is None or not place.submodule_search_locations:
        raise ModuleNotFoundError("optillm is not installed")
    file = Path(place.submodule_search_locations[0]) / "entropy_decoding.py"
    spec = importlib.util.spec_from_file_location("optillm_entropy_decoding", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sample(**options: Any) -> Any:
    sample = _entropy_decoding()._sample
    logits = torch.tensor(LOGITS, dtype=torch.float64)[None, None]
    settings = {"temperature": 1.0, "top_p": 1.0, "top_k": 5, "min_p": 0.0, **options}
    return lambda: int(sample(logits, **settings))


@SHELF.add(
    "entropy_decoding._sample, top_k",
    promise="top_k=27",
    source="signature of _sample",
    note="five tokens, top_k 3, temperature 0.666",
)
def top_k() -> Case:
    law = definitions.top_k(definitions.softmax(LOGITS, 0.666), 3)
    return Case(_sample(top_k=3, temperature=0.666), law)


@SHELF.add(
    "entropy_decoding._sample, top_p",
    promise="top_p=0.90",
    source="signature of _sample; the README links entropix for the method",
    note="the probabilities are sorted upwards before they are added, so that the likeliest token goes first",
    issue="optillm-entropy-decoding.md",
)
def top_p() -> Case:
    return Case(_sample(top_p=0.5), definitions.nucleus(definitions.softmax(LOGITS), 0.5))


@SHELF.add(
    "entropy_decoding._sample, min_p",
    promise="min_p: float = 0.0",
    source="signature of _sample",
    note="the mask is applied to logits that are not read again",
    issue="optillm-entropy-decoding.md",
)
def min_p() -> Case:
    return Case(_sample(min_p=0.3), definitions.min_p(definitions.softmax(LOGITS), 0.3))
