"""From a model of rows and its starts to a `Fit`: climbs, standard errors, held-out rows."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.ragged import Ragged, as_ragged, seen_vocab
from triptych.core.validation import (
    Count,
    Hidden,
    Number,
    Numbers,
    Tokens,
    UserError,
    as_size,
    shown,
)
from triptych.fitting.climb import Climb, climb
from triptych.fitting.information import errors
from triptych.fitting.result import Fit, Score, named, warn_unless_converged
from triptych.fitting.rows import Constraints, Groups, Parameters, Prior, RowModel, as_constraints
from triptych.fitting.search import Search, as_search, as_share

S = TypeVar("S")


def fit_rows(
    model: RowModel,
    drawn: Callable[[int], Parameters],
    build: Callable[[Parameters], S],
    *,
    given: Parameters | None = None,
    constraints: Constraints | None = None,
    prior: Prior | None = None,
    held_out: Number = 0.0,
    search: Search | None = None,
    notes: tuple[str, ...] = (),
) -> Fit[S]:
    """The best end of all starts.

    drawn(seed)   random start parameters; `given`, if there is one, is the first start
    build         the structure of some parameters
    """
    search, share = as_search(search), as_share(held_out)
    model, apart = split(model, share, search.seed)
    shapes = {part: (p.shape[0], p.shape[1]) for part, p in (given or drawn(search.seed)).items()}
    groups = Groups.make(shapes, as_constraints(constraints), prior)
    if given is not None:
        groups = groups.keeping_zeros_of(given)
    starts = [] if given is None else [given]
    starts += [drawn(search.seed + k) for k in range(search.restarts - len(starts))]
    climbs: list[Climb] = [climb(model, groups.obeyed(start), groups, search) for start in starts]
    best = max(climbs, key=lambda one: one.trace[-1])
    found = errors(model, best.parameters, groups, wanted=search.standard_errors)
    parameters = [
        entry
        for part, p in best.parameters.items()
        for entry in named(
            part, p.shape, p.tolist(), found.standard_errors[part].tolist(), found.why[part]
        )
    ]
    result = Fit(
        structure=build(best.parameters),
        log_likelihood=best.log_likelihood,
        objective=best.trace[-1],
        rows=model.rows,
        tokens=model.shown,
        free_parameters=groups.count_free(best.parameters),
        converged=best.converged,
        steps=best.steps,
        gain=best.gain,
        remaining=best.remaining,
        ended=best.ended,
        trace=tuple(best.trace),
        ends=tuple(one.log_likelihood for one in climbs),
        parameters=tuple(parameters),
        least_share=found.least_share,
        held_out=None if apart is None else score(apart, best.parameters),
        notes=(*notes, *filter(None, [found.sentence])),
    )
    warn_unless_converged(
        result, f"give it more than max_steps={search.max_steps}, or more tolerance"
    )
    return result


def as_data(
    tokens: Tokens,
    vocab_size: Count | None,
    start: Any,
    hidden: Hidden | None,
    lengths: Numbers | None,
) -> tuple[Ragged, int]:
    """Rows of tokens, and how many different tokens there are: as given, or as seen."""
    if vocab_size is None and start is not None:
        vocab_size = start.vocab_size
    symbols = None if vocab_size is None else as_size("vocab_size", vocab_size)
    if start is not None and symbols != start.vocab_size:
        raise UserError(
            f"vocab_size is {symbols}, and start has {start.vocab_size}", parameter="vocab_size"
        )
    rows = as_ragged(tokens, symbols, hidden=hidden, lengths=lengths, device="cpu")
    return rows, seen_vocab(rows) if symbols is None else symbols


def as_start(start: S | None, kind: type[S]) -> S | None:
    """A structure of this kind to start from, or none."""
    if start is not None and not isinstance(start, kind):
        raise UserError(
            f"start is {shown(start)}; it must be a {kind.__name__}, or None", parameter="start"
        )
    return start


def split(model: RowModel, share: float, seed: int) -> tuple[RowModel, RowModel | None]:
    """Rows to fit and rows held out, drawn by the seed; None where none is held out."""
    if share == 0:
        return model, None
    chosen, rest = split_rows(model.rows, share, seed)
    return model.some(rest), model.some(chosen)


def split_rows(rows: int, share: float, seed: int) -> tuple[Int[Tensor, " a"], Int[Tensor, " b"]]:
    """The numbers of the rows that are held out, and of the others; at least one of each."""
    if rows < 2:
        raise UserError(
            f"held_out is {share}, and there is {rows} row: a row cannot be held out of one",
            parameter="held_out",
        )
    count = min(rows - 1, max(1, round(share * rows)))
    order = torch.from_numpy(np.random.default_rng(seed).permutation(rows))
    return order[:count].sort().values, order[count:].sort().values


def score(model: RowModel, parameters: Parameters) -> Score:
    """The log-likelihood of these rows."""
    return Score(model.expected(parameters).log_likelihood, model.rows, model.shown)
