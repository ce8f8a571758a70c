"""First-order Markov chain over tokens: an HMM whose states are shown.

    p(x) = π(x_1) Π_t A(x_{t-1}, x_t)

Notation
--------
π   initial      [vocab]
A   transition   [vocab, vocab], A[x, y] = p(x_t = y | x_{t-1} = x)
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.display import card, counted, facts_table, heat_map
from triptych.core.ragged import as_weights
from triptych.core.randomness import RngLike
from triptych.core.validation import (
    Count,
    Hidden,
    Number,
    Numbers,
    Prefix,
    Tokens,
    as_distributions,
    as_size,
    check_room,
    moved_to,
    set_fields,
)
from triptych.fitting.fit import as_data, as_start, fit_rows
from triptych.fitting.result import Fit
from triptych.fitting.rows import Constraints, Parameters, Prior
from triptych.fitting.search import Search, as_search
from triptych.structures.hidden_markov.chain_data import ShownData
from triptych.structures.hidden_markov.hmm import HMM


@dataclass(frozen=True, eq=False, repr=False)
class Markov:
    """A Markov chain on sequences of `length` tokens.

    Worked value: π = (¼, ¾), A = [[0.9, 0.1], [0.3, 0.7]]: p(x = 1, 0, 0) = ¾·0.3·0.9 = 0.2025.
    """

    initial: Float[Tensor, " vocab"]
    transition: Float[Tensor, "vocab vocab"]
    length: int

    def __post_init__(self) -> None:
        initial = as_distributions("initial", self.initial, shape=(None,), meaning="[vocab]")
        set_fields(self, initial=initial)
        hmm = self._hmm  # building it checks the fields
        set_fields(self, transition=hmm.transition, length=hmm.length)

    def __repr__(self) -> str:
        return f"Markov({counted(self.vocab_size, 'symbol')}, length {self.length})"

    def _repr_html_(self) -> str:
        facts = {"symbols": self.vocab_size, "length": self.length}
        return card(
            repr(self),
            facts_table(facts),
            heat_map(self.initial[None], title="initial", columns="symbol"),
            heat_map(self.transition, title="transition", rows="symbol", columns="next symbol"),
        )

    @property
    def vocab_size(self) -> int:
        return self.initial.shape[0]

    @property
    def device(self) -> torch.device:
        return self.initial.device

    def to(self, device: torch.device | str) -> "Markov":
        return moved_to(self, device)

    def with_length(self, length: Count) -> "Markov":
        """The same chain on sequences of another length."""
        return replace(self, length=as_size("length", length))

    @classmethod
    def fit(
        cls,
        tokens: Tokens,
        *,
        hidden: Hidden | None = None,
        lengths: Numbers | None = None,
        weights: Numbers | None = None,
        vocab_size: Count | None = None,
        start: "Markov | None" = None,
        constraints: Constraints | None = None,
        prior: Prior | None = None,
        held_out: Number = 0.0,
        search: Search | None = None,
    ) -> "Fit[Markov]":
        """The chain that makes what is shown likeliest; one step where nothing is hidden.

        As `HMM.fit`; the parts are initial and transition.

        Worked value: rows 0, 1, 1 and 0, 0: p(0 | 0) = ½ and p(1 | 1) = 1.
        """
        given = as_start(start, cls)
        rows, symbols = as_data(tokens, vocab_size, given, hidden, lengths)
        check_room("the transition matrix", symbols, symbols)
        longest = int(rows.lengths.max())

        def rows_of(chain: Markov | HMM) -> Parameters:
            return {"initial": chain.initial[None], "transition": chain.transition}

        search = as_search(search)
        if not (rows.hidden & rows.inside).any():  # concave: every start ends alike
            search = replace(search, restarts=1)
        return fit_rows(
            ShownData(rows, as_weights(weights, len(rows.tokens)), symbols),
            lambda seed: rows_of(HMM.random(symbols, 1, longest, seed=seed)),
            lambda p: cls(p["initial"][0], p["transition"], longest),
            given=None if given is None else rows_of(given.to("cpu")),
            constraints=constraints,
            prior=prior,
            held_out=held_out,
            search=search,
        )

    def log_prob(
        self, tokens: Tokens, *, hidden: Hidden | None = None, lengths: Numbers | None = None
    ) -> Float[Tensor, " batch"]:
        if hidden is not None or lengths is not None:
            return self._hmm.log_prob(tokens, hidden=hidden, lengths=lengths)
        return self._hmm.log_prob(tokens)

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        return self._hmm.next_token_log_probs(prefix)

    def masked_log_probs(
        self,
        tokens: Tokens,
        hidden: Hidden,
        *,
        lengths: Numbers | None = None,
    ) -> Float[Tensor, "batch length vocab"]:
        if lengths is not None:
            return self._hmm.masked_log_probs(tokens, hidden, lengths=lengths)
        return self._hmm.masked_log_probs(tokens, hidden)

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        return self._hmm.sample(n, rng)

    @cached_property
    def _hmm(self) -> HMM:
        shown = torch.eye(len(self.initial), dtype=torch.float64, device=self.initial.device)
        return HMM(self.initial, self.transition, shown, self.length)


def examples() -> dict[str, Markov]:
    sticky = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    absorbing = torch.tensor(
        [[0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [0.0, 0.0, 1.0]], dtype=torch.float64
    )
    return {
        "sticky": Markov(torch.tensor([0.25, 0.75], dtype=torch.float64), sticky, length=3),
        "absorbing": Markov(
            torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64), absorbing, length=4
        ),
    }
