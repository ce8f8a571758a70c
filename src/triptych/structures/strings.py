"""Likely strings of a structure, for people to look at in a notebook."""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.display import bars
from triptych.core.distinct import distinct_rows
from triptych.core.protocols import Structure
from triptych.core.randomness import TorchRng
from triptych.core.table import Table

MAX_LISTED = 2**12  # sequences of which all probabilities are computed
_DRAWN = 6


def likely_strings(
    structure: Structure, texts: Callable[[Int[Tensor, "n length"]], list[str]]
) -> str:
    """The likeliest strings with bars; of a large structure, a few that were drawn with rng=0."""
    device = getattr(structure, "device", "cpu")
    if structure.vocab_size**structure.length <= MAX_LISTED:
        table = Table.of(structure, device=device)
        found, title = table.likeliest(12), "most likely strings"
        more = len(table.support) - len(found)
        rows = torch.tensor([sequence for sequence, _ in found], device=device)
        return bars(_named(texts(rows), [p for _, p in found]), title=title, more=more)
    rows = distinct_rows(structure.sample(_DRAWN, TorchRng(0, device))).rows
    probs = structure.log_prob(rows).exp()
    best = probs.argsort(descending=True)
    named = _named(texts(rows[best]), probs[best].tolist())
    return bars(named, title="some strings, drawn with rng=0, and their probabilities")


def digits(rows: Int[Tensor, "n length"]) -> list[str]:
    """Each row as its tokens, with spaces between them where one has two digits."""
    apart = " " if rows.numel() and int(rows.max()) > 9 else ""
    return [apart.join(map(str, row)) for row in rows.tolist()]


def _named(texts: list[str], probs: list[float]) -> list[tuple[str, float]]:
    return [(text or "(empty)", p) for text, p in zip(texts, probs, strict=True)]
