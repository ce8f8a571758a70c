"""Writers of brackets that make mistakes: models for a verifier to guide.

`LeakyBrackets` draws any token now and then; `CarelessBrackets` counts the open brackets but
mistakes their type. Both say exactly how likely every string is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.display import card, facts_table
from triptych.core.protocols import NextToken
from triptych.core.validation import (
    Prefix,
    Tokens,
    UserError,
    as_prefix,
    as_probability,
    as_tokens,
    check_can,
    raise_if_impossible,
    set_fields,
)
from triptych.structures.brackets.dyck import Dyck


@dataclass(frozen=True, eq=False)
class LeakyBrackets:
    """(1 - leak) dyck(· | x) + leak · uniform, and uniform after an error.

    Worked value: one type, length 2, leak ½: p("[") = ½ + ¼ = ¾ and p("]" | "[") = ¾, so
    p("[]") = 9/16; p("][") = ¼ · ½ = 1/8, as "]" is an error.
    """

    dyck: Dyck
    leak: float

    def __post_init__(self) -> None:
        check_can("dyck", self.dyck, "completable", "next_token_log_probs")
        set_fields(self, leak=as_probability("leak", self.leak))

    def __repr__(self) -> str:
        return f"LeakyBrackets({self.dyck!r}, leak {self.leak:g})"

    def _repr_html_(self) -> str:
        facts = {"leak": self.leak, "length": self.length, "symbols": self.vocab_size}
        return card("LeakyBrackets", facts_table(facts), self.dyck._repr_html_())

    @property
    def vocab_size(self) -> int:
        return self.dyck.vocab_size

    @property
    def length(self) -> int:
        return self.dyck.length

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length)
        size = (len(prefix), self.vocab_size)
        probs = torch.full(size, 1 / self.vocab_size, dtype=torch.float64, device=prefix.device)
        fine = self.dyck.completable(prefix)
        if not self.leak:
            raise_if_impossible(torch.where(fine, 0.0, -torch.inf), "the prefix")
        if fine.any():
            known = self.dyck.next_token_log_probs(prefix[fine]).exp()
            probs[fine] = (1 - self.leak) * known + self.leak * probs[fine]
        return probs.log()

    def log_prob(self, tokens: Tokens) -> Float[Tensor, " batch"]:
        tokens = as_tokens(tokens, self.vocab_size, length=self.length)
        if not self.leak:
            return self.dyck.log_prob(tokens)
        return _chain_rule(self, tokens)


@dataclass(frozen=True, eq=False)
class CarelessBrackets:
    """A writer who counts the open brackets, and closes one with a wrong type at times.

    The moves are those of `dyck`; a closing bracket has the type of the innermost open one with
    probability 1 - slip, and each other type equally often. A wrong one closes it all the same.

    Worked value: two types of probability ⅕ and ⅘, q = ½, slip = ¼, length 4. After "[" the law of
    [ ] ( ) is 1/10, 3/8, 4/10, 1/8.
    """

    dyck: Dyck
    slip: float

    def __post_init__(self) -> None:
        check_can("dyck", self.dyck, "moves", "type_probs")
        set_fields(self, slip=as_probability("slip", self.slip))
        if self.dyck.types < 2 or self.dyck.ends:
            raise UserError(
                f"dyck is {self.dyck!r}; a careless writer needs two types of brackets or more, "
                "and strings without an end token",
                parameter="dyck",
            )

    def __repr__(self) -> str:
        return f"CarelessBrackets({self.dyck!r}, slip {self.slip:g})"

    def _repr_html_(self) -> str:
        facts = {"slip": self.slip, "length": self.length, "symbols": self.vocab_size}
        return card("CarelessBrackets", facts_table(facts), self.dyck._repr_html_())

    @property
    def vocab_size(self) -> int:
        return self.dyck.vocab_size

    @property
    def length(self) -> int:
        return self.dyck.length

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length)
        laws = [list(self._laws(row)) for row in prefix.tolist()]
        short = torch.tensor([len(found) <= prefix.shape[1] for found in laws], dtype=torch.bool)
        raise_if_impossible(torch.where(short, -torch.inf, 0.0), "the prefix")
        last = [found[-1] for found in laws]
        empty = prefix.new_zeros((0, self.vocab_size), dtype=torch.float64)
        return (torch.stack(last) if last else empty).log()

    def log_prob(self, tokens: Tokens) -> Float[Tensor, " batch"]:
        tokens = as_tokens(tokens, self.vocab_size, length=self.length)
        log_probs = torch.full((len(tokens),), -torch.inf, dtype=torch.float64)
        for row, text in enumerate(tokens.tolist()):
            laws = list(self._laws(text))
            if len(laws) > self.length:
                chosen = [law[token] for law, token in zip(laws, text, strict=False)]
                log_probs[row] = torch.stack(chosen).log().sum()
        return log_probs.to(tokens.device)

    def _laws(self, text: Sequence[int]) -> Iterator[Float[Tensor, " vocab"]]:
        """The law after every prefix of `text`; they end before a token that cannot be there."""
        open_types: list[int] = []
        for t in range(len(text) + 1):
            law = self._law(t, open_types)
            yield law
            if t == len(text) or law[text[t]] == 0:
                return
            if text[t] % 2 == 0:
                open_types.append(text[t] // 2)
            else:
                open_types.pop()

    def _law(self, t: int, open_types: Sequence[int]) -> Float[Tensor, " vocab"]:
        law = torch.zeros(self.vocab_size, dtype=torch.float64)
        if t == self.length:  # nothing follows
            return law
        opening, closing, _ = self.dyck.moves[t, len(open_types)].tolist()
        law[0::2] = opening * self.dyck.type_probs
        if open_types:
            law[1::2] = closing * self.slip / (self.dyck.types - 1)
            law[2 * open_types[-1] + 1] = closing * (1 - self.slip)
        return law


def _chain_rule(model: NextToken, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
    """Σ_t log p(x_t | x_<t)."""
    steps = [
        model.next_token_log_probs(tokens[:, :t]).gather(1, tokens[:, t : t + 1])[:, 0]
        for t in range(tokens.shape[1])
    ]
    return torch.stack(steps).sum(0)
