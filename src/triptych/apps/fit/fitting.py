"""Fit a structure by its name to a table, name its parameters by the tokens, save it, score."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from triptych.apps.fit.reading import Table
from triptych.core.ragged import as_ragged, as_weights
from triptych.core.validation import UserError
from triptych.fitting.result import Fit, Score
from triptych.fitting.search import Search
from triptych.structures import saved
from triptych.structures.cfg import CFG
from triptych.structures.hidden_markov.chain_data import weighted
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.structures.ising import Ising
from triptych.structures.markov import Markov

Sizes = Mapping[str, int | None]


class Kind(NamedTuple):
    """needs   the sizes that must be given       fit   from rows, their vocabulary and sizes"""

    needs: tuple[str, ...]
    fit: Callable[..., Fit[Any]]


KINDS = {
    "hmm": Kind(
        ("states",),
        lambda rows, words, given, **rest: HMM.fit(rows, given["states"], vocab_size=words, **rest),
    ),
    "markov": Kind(
        (), lambda rows, words, given, **rest: Markov.fit(rows, vocab_size=words, **rest)
    ),
    "memory-hmm": Kind(
        ("values", "cells", "syntax"),
        lambda rows, words, given, **rest: MemoryHMM.fit(rows, **given, vocab_size=words, **rest),
    ),
    "cfg": Kind(
        ("symbols",),
        lambda rows, words, given, **rest: CFG.fit(
            rows, symbols=given["symbols"], words=words, **rest
        ),
    ),
    "ising": Kind((), lambda rows, words, given, **rest: _fit_ising(rows, words, **rest)),
}


def fit_table(
    table: Table,
    structure: str,
    sizes: Sizes,
    *,
    search: Search,
    held_out: float = 0.0,
    prior: float | None = None,
) -> Fit[Any]:
    """The fit, with its parameters named by the tokens of the table."""
    if structure not in KINDS:
        raise UserError(
            f"structure is {structure!r}; it must be one of {', '.join(KINDS)}",
            parameter="structure",
        )
    kind = KINDS[structure]
    missing = [name for name in kind.needs if sizes.get(name) is None]
    if missing:
        raise UserError(
            f"--structure {structure} needs --{missing[0]}: how many {missing[0]} there are",
            parameter=missing[0],
        )
    extra = [n for n, size in sizes.items() if size is not None and n not in kind.needs]
    if extra:
        raise UserError(f"--{extra[0]} is no size of --structure {structure}", parameter=extra[0])
    given = {name: sizes[name] for name in kind.needs}
    rest: dict[str, Any] = {"search": search, "held_out": held_out}
    if prior is not None:
        rest["prior"] = prior
    found = kind.fit(table.rows, len(table.vocabulary), given, **rest)
    renamed = [
        replace(p, name=named(p.name, structure, table.vocabulary)) for p in found.parameters
    ]
    return replace(found, parameters=tuple(renamed))


def named(name: str, structure: str, vocabulary: tuple[str, ...]) -> str:
    """A parameter by its tokens. Worked value: emission[0, 1] of a, b is emission[0, b]."""
    if structure == "cfg":
        left, _, right = name.partition(" → ")
        alone = right.isdigit()
        return f"{left} → {vocabulary[int(right)]}" if alone else name
    match = re.fullmatch(r"(\w+)\[([\d, ]+)\]", name)
    if match is None:
        return name
    part, index = match[1], [int(i) for i in match[2].split(", ")]
    texts = [str(i) for i in index]
    if structure == "markov":
        texts = [vocabulary[i] for i in index]
    elif part == "emission":
        texts[-1] = vocabulary[index[-1]]
    return f"{part}[{', '.join(texts)}]"


def _fit_ising(rows: list[list[int | None]], words: int, **rest: Any) -> Fit[Ising]:
    """Rows of one length of two tokens; the last cells of a line may be empty, and are hidden."""
    if words > 2:
        raise UserError(
            f"the table has {words} different tokens; an Ising model has two", parameter="file"
        )
    width = max(map(len, rows))
    full = as_ragged([row + [None] * (width - len(row)) for row in rows], 2, device="cpu")
    return Ising.fit(full.tokens, hidden=full.hidden, **rest)


def save(found: Fit[Any], table: Table, path: Path) -> None:
    """The structure, its vocabulary and how it was fitted."""
    words = table.vocabulary
    about = {key: value for key, value in found.to_json().items() if key != "trace"}
    saved.save(found.structure, path, vocabulary=words, about={"fit": about})


def score(model: saved.Saved, table: Table) -> Score:
    """log p of what a table shows, under a model from a file."""
    structure, rows = model.structure, table.rows
    ragged = as_ragged(rows, structure.vocab_size, device="cpu")
    longest = ragged.tokens.shape[1]
    if longest > structure.length and hasattr(structure, "with_length"):
        structure = structure.with_length(longest)
    logs = structure.log_prob(ragged.tokens, hidden=ragged.hidden, lengths=ragged.lengths)
    return Score(weighted(logs, as_weights(None, len(rows))), len(rows), ragged.shown)
