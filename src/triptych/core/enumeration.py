"""The exact law of a program that draws: run it once for every sequence of choices it can make.

`exact_law` turns any sampler with finitely many choices into its law, and
`exact_transition_matrix` a step of a chain into its matrix.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.deprecation import renamed_names
from triptych.core.display import MAX_BARS, bars, card, counted, facts_table
from triptych.core.protocols import Rng
from triptych.core.randomness import checked_probabilities
from triptych.core.validation import (
    Count,
    Number,
    UserError,
    as_count,
    as_list,
    as_number,
    check_callable,
    check_room,
    set_fields,
    shown,
)

__getattr__ = renamed_names(__name__, Law="ExactLaw")

_LINE = 80  # letters of outcomes that a law prints
_ROUNDING = 1e-6


class Dropped(BaseException):
    """Ends a run whose branch is dropped.

    Not an Exception, so that a program which catches its own errors does not catch this.
    """


class Choices:
    """Answers with decided outcomes in order, and from there on with the last possible one.

    The other outcomes of a choice wait for later runs. A batch is a sequence of single choices.
    """

    def __init__(self, cutoff: float, max_runs: int, max_choices: int) -> None:
        self.cutoff, self.max_runs, self.max_choices = cutoff, max_runs, max_choices
        self.waiting: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
        self.followed = 0
        self.missing = 0.0

    def begin(self) -> None:
        """Take the branch that came last; ends with `Dropped` if it is dropped."""
        decided, self.mass = self.waiting.pop()
        self.decided = list(decided)
        self.used = 0
        self._follow()

    def categorical(
        self,
        log_probs: Float[Tensor, "*table outcomes"],
        rows: Int[Tensor, "*batch"] | None = None,
    ) -> Int[Tensor, "..."]:
        probs = checked_probabilities(log_probs if rows is None else log_probs[rows])
        shape, flat = probs.shape[:-1], probs.reshape(-1, probs.shape[-1])
        drawn = [self.choose(row) for row in flat.tolist()]
        return torch.tensor(drawn, dtype=torch.long, device=log_probs.device).reshape(shape)

    def choose(self, probs: list[float]) -> int:
        """The outcome of a single choice among `probs`, which sum to 1."""
        if self.used == len(self.decided):
            self._decide(probs)
        self.used += 1
        return self.decided[self.used - 1]

    def _decide(self, probs: list[float]) -> None:
        possible = [k for k, p in enumerate(probs) if p > 0]
        if not possible:
            raise Dropped
        *others, last = possible
        self.waiting += [((*self.decided, k), self.mass * probs[k]) for k in others]
        self.decided.append(last)
        self.mass *= probs[last]
        self._follow()

    def _follow(self) -> None:
        if self.followed == self.max_runs:
            self.waiting.append((tuple(self.decided), self.mass))
            raise Dropped
        self.followed += 1
        if self.mass < self.cutoff or len(self.decided) > self.max_choices:
            self.missing += self.mass
            raise Dropped


@dataclass(frozen=True)
class ExactLaw:
    """An exact finite law.

    probs
        Outcome -> probability.
    missing
        Mass of the branches cut because they fell under `cutoff`; 0 for a program that
        always stops.
    """

    probs: dict[Any, float]
    missing: float = 0.0

    def __post_init__(self) -> None:
        probs = _as_probs("probs", self.probs)
        set_fields(self, probs=probs, missing=as_number("missing", self.missing, at_least=0))

    def __repr__(self) -> str:
        """The likeliest outcomes that fit in a line."""
        texts: list[str] = []
        for outcome, p in self._likeliest():
            text = f"{outcome!r}: {p:.4g}"
            if "\n" in text or sum(map(len, texts)) + len(text) > _LINE:
                break
            texts.append(text)
        if more := len(self.probs) - len(texts):
            texts.append(f"{more} more" if texts else counted(more, "outcome"))
        missing = [f"missing {self.missing:.3g}"] if self.missing else []
        return f"{type(self).__name__}({', '.join(texts + missing)})"

    def _repr_html_(self) -> str:
        found = self._likeliest()
        facts = {"outcomes": len(self.probs), "missing": self.missing}
        named = [(repr(outcome), p) for outcome, p in found[:MAX_BARS]]
        pieces = bars(named, title="most likely outcomes", more=max(0, len(found) - MAX_BARS))
        return card("ExactLaw", facts_table(facts), pieces)

    def _likeliest(self) -> list[tuple[Any, float]]:
        return sorted(self.probs.items(), key=lambda item: -item[1])

    def given(self, condition: Callable[[Any], bool]) -> "ExactLaw":
        """The law conditioned on an event; raises when the event has no mass."""
        check_callable("condition", condition, "condition(outcome)")
        kept = {x: p for x, p in self.probs.items() if condition(x)}
        mass = sum(kept.values())
        if mass == 0:
            raise UserError("the condition holds on no outcome of this law", parameter="condition")
        return ExactLaw({x: p / mass for x, p in kept.items()})

    def total_variation(self, target: "ExactLaw | dict[Any, float]") -> float:
        """½ Σ |p - q| over the union of the supports."""
        other = target.probs if isinstance(target, ExactLaw) else _as_probs("target", target)
        outcomes = self.probs.keys() | other.keys()
        return 0.5 * sum(abs(self.probs.get(x, 0.0) - other.get(x, 0.0)) for x in outcomes)

    def expectation(self, f: Callable[[Any], float]) -> float:
        """Σ p(x) f(x)."""
        check_callable("f", f, "f(outcome)")
        values = {x: f(x) for x in self.probs}
        return sum(
            p * (float(v) if isinstance(v, bool) else as_number(f"f({x!r})", v, finite=False))
            for (x, v), p in zip(values.items(), self.probs.values(), strict=True)
        )


def _as_probs(name: str, probs: Mapping[Any, Number]) -> dict[Any, float]:
    """Outcome -> probability, as sums of products have it: above 1 by rounding at most."""
    if not isinstance(probs, Mapping):
        raise UserError(
            f"{name} is {shown(probs)}; it must be a dict from outcomes to probabilities",
            parameter=name,
        )
    return {
        x: as_number(f"{name}[{x!r}]", p, at_least=0, at_most=1 + _ROUNDING)
        for x, p in probs.items()
    }


def exact_law(
    program: Callable[[Rng], Hashable],
    *,
    cutoff: Number = 0.0,
    max_runs: Count = 1_000_000,
    max_choices: Count = 10_000,
) -> ExactLaw:
    """The law of `program(rng)`, by depth-first search over its choices.

    `program` must be a function of its choices alone. A program that may run forever needs a
    `cutoff`: branches of smaller probability are dropped and their mass reported as `missing`, as
    are branches of more than `max_choices` choices. At most `max_runs` branches are followed: every
    sequence of choices that a run begins with counts as one.
    """
    check_callable("program", program, "program(rng)")
    cutoff = as_number("cutoff", cutoff, at_least=0)
    max_runs = as_count("max_runs", max_runs, at_least=1)
    max_choices = as_count("max_choices", max_choices)
    probs: dict[Hashable, float] = defaultdict(float)
    search = Choices(cutoff, max_runs, max_choices)
    while search.waiting and search.followed < max_runs:
        try:
            search.begin()
            outcome = program(search)
        except Dropped:
            continue
        if isinstance(outcome, Tensor):
            raise UserError(
                "the program returned a tensor, which has no value to compare by; return "
                "x.item() or tuple(x.tolist())",
                parameter="program",
            )
        if not isinstance(outcome, Hashable):
            raise UserError(
                f"the program returned a {type(outcome).__name__}, which is not hashable; "
                "return a tuple",
                parameter="program",
            )
        probs[outcome] += search.mass
    if search.waiting:
        raise UserError(
            f"exact_law gave up after {max_runs} branches of the program's choices; "
            "make the case smaller or pass a cutoff",
            parameter="max_runs",
        )
    return ExactLaw(dict(probs), search.missing)


def exact_transition_matrix(
    states: Sequence[Hashable], step: Callable[[Any, Rng], Hashable]
) -> Float[Tensor, "states states"]:
    """P[i, j] = probability that `step` moves states[i] to states[j]."""
    given = as_list("states", states, "states")
    check_callable("step", step, "step(state, rng)")
    if not all(isinstance(state, Hashable) for state in given):
        raise UserError("states must be hashable: give tuples instead of lists", parameter="states")
    check_room("the transition matrix", len(given), len(given))
    index = {state: i for i, state in enumerate(given)}
    matrix = torch.zeros(len(given), len(given), dtype=torch.float64)
    for state, i in index.items():
        law = exact_law(lambda rng, state=state: step(state, rng))
        for target, prob in law.probs.items():
            if target not in index:
                raise UserError(
                    f"step moves {state!r} to {target!r}, which is not in `states`",
                    parameter="step",
                )
            matrix[i, index[target]] += prob
    return matrix
