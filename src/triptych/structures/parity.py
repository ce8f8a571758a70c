"""The oracle with a hidden string, for the lower bound on queries [li, Theorem 3.1.1].

The first D - 1 bits are uniform. The last bit is determined: it makes the sum of all bits odd,
except after the hidden string ŝ, where it makes it even. So exactly one string of even parity has
positive probability, and only a query at ŝ can tell which.

Notation
--------
ŝ   secret   [length - 1] of 0 and 1
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.display import card, cut, facts_table
from triptych.core.logspace import point_mass, with_point_masses
from triptych.core.ragged import answers_of_rows, log_prob_of_rows
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Hidden,
    Numbers,
    Prefix,
    Tokens,
    as_device,
    as_integers,
    as_masked,
    as_prefix,
    as_seed,
    as_size,
    as_tokens,
    moved_to,
    raise_if_impossible,
    set_fields,
)
from triptych.structures.strings import digits, likely_strings


@dataclass(frozen=True, eq=False)
class HiddenParity:
    """Uniform bits, then the bit that makes the sum odd, even only after the secret.

    Worked value: secret (1, 0), D = 3. After 0, 0 the last bit is 1 (sum odd); after the secret
    1, 0 it is 1 (sum even). p(1, 0, 1) = ¼ is the only even string with mass.
    """

    secret: Int[Tensor, " bits"]

    def __post_init__(self) -> None:
        secret = as_integers("secret", self.secret, dimensions=1)
        as_tokens(secret[None], 2, name="secret")
        set_fields(self, secret=secret)

    def __repr__(self) -> str:
        secret = cut("".join(map(str, self.secret.tolist())), 40)
        return f"HiddenParity(secret {secret}, length {self.length})"

    def _repr_html_(self) -> str:
        bits = [*self.secret.tolist(), int(self.secret.sum()) % 2]
        facts = {
            "length": self.length,
            "secret": "".join(map(str, bits[:-1])),
            "the even string": "".join(map(str, bits)),
        }
        return card(repr(self), facts_table(facts), likely_strings(self, digits))

    @classmethod
    def random(
        cls, length: Count, *, seed: Count, device: torch.device | str = "cpu"
    ) -> "HiddenParity":
        """A uniform secret of length - 1 bits."""
        length, device = as_size("length", length), as_device(device)
        generator = torch.Generator().manual_seed(as_seed(seed))
        return cls(torch.randint(2, (length - 1,), generator=generator).to(device))

    @property
    def vocab_size(self) -> int:
        return 2

    @property
    def length(self) -> int:
        return len(self.secret) + 1

    @property
    def device(self) -> torch.device:
        return self.secret.device

    def to(self, device: torch.device | str) -> "HiddenParity":
        return moved_to(self, device)

    def log_prob(
        self, tokens: Tokens, *, hidden: Hidden | None = None, lengths: Numbers | None = None
    ) -> Float[Tensor, " batch"]:
        if hidden is not None or lengths is not None:
            return log_prob_of_rows(self, tokens, hidden, lengths)
        tokens = as_tokens(tokens, 2, length=self.length, device=self.device)
        right = tokens[:, -1] == self._last_bit(tokens[:, :-1])
        each = -(self.length - 1) * math.log(2)
        law = torch.full((len(tokens),), each, dtype=torch.float64, device=tokens.device)
        return law.masked_fill(~right, -torch.inf)

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, 2, self.length, device=self.device)
        if prefix.shape[1] < self.length - 1:
            return torch.full(
                (len(prefix), 2), -math.log(2), dtype=torch.float64, device=prefix.device
            )
        return point_mass(self._last_bit(prefix), 2)

    def masked_log_probs(
        self,
        tokens: Tokens,
        hidden: Hidden,
        *,
        lengths: Numbers | None = None,
    ) -> Float[Tensor, "batch length vocab"]:
        """Counting: of the 2^k fillings of k hidden bits, those whose last bit fits.

        A filling with an odd sum fits unless its first bits are the secret; the one even string
        fits too. So among the fillings that agree with what is shown, drop one and add one.
        """
        if lengths is not None:
            return answers_of_rows(self, self.masked_log_probs, tokens, hidden, lengths)
        tokens, hidden = as_masked(tokens, hidden, 2, length=self.length, device=self.device)
        counts = torch.stack([self._fitting(tokens, hidden, bit) for bit in (0, 1)], -1)
        total = torch.where(hidden[:, 0], counts[:, 0].sum(-1), counts[:, 0, 0])
        raise_if_impossible(total.log(), "what is shown")
        return with_point_masses((counts / total[:, None, None]).log(), tokens, hidden)

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
        half = torch.full((1, 2), -math.log(2), dtype=torch.float64, device=self.device)
        first = rng.categorical(
            half, torch.zeros((n, self.length - 1), dtype=torch.long, device=self.device)
        )
        return torch.cat([first, self._last_bit(first)[:, None]], dim=1)

    def _last_bit(self, first: Int[Tensor, "batch bits"]) -> Int[Tensor, " batch"]:
        is_secret = (first == self.secret).all(-1)
        return (first.sum(-1) + 1 - is_secret.long()) % 2

    def _fitting(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"], bit: int
    ) -> Float[Tensor, "batch length"]:
        """For every position i: how many strings of the support agree with what is shown and
        have `bit` at i (a shown position keeps its own token)."""
        free = hidden.sum(-1, keepdim=True) - hidden.long()  # hidden positions besides i
        shown_sum = tokens.masked_fill(hidden, 0).sum(-1, keepdim=True)
        fixed = shown_sum + torch.where(hidden, bit, 0)
        # Half of the fillings of at least one free bit are odd; with none, the sum decides.
        # All counts are in units of 2^most, the size of the largest, so that none overflows.
        most = (hidden.sum(-1, keepdim=True) - 1).clamp(min=0)
        unit = 2.0 ** (-most).double()
        half = 2.0 ** (free - 1 - most).double()
        odd = torch.where(free > 0, half, (fixed % 2) * unit)
        even_string = torch.cat([self.secret, self.secret.sum()[None] % 2])
        odd_string = torch.cat([self.secret, 1 - self.secret.sum()[None] % 2])
        gained = _agrees(tokens, hidden, even_string, bit)
        return odd + unit * (gained - _agrees(tokens, hidden, odd_string, bit))


def _agrees(
    tokens: Int[Tensor, "batch length"],
    hidden: Bool[Tensor, "batch length"],
    string: Int[Tensor, " length"],
    bit: int,
) -> Float[Tensor, "batch length"]:
    """1 where `string` agrees with what is shown and has `bit` at a hidden position i."""
    fits = (hidden | (tokens == string)).all(-1, keepdim=True)
    return (fits & (~hidden | (string == bit))).double()


def examples() -> dict[str, HiddenParity]:
    return {
        "three bits": HiddenParity(torch.tensor([1, 0])),
        "five bits": HiddenParity(torch.tensor([0, 1, 1, 0])),
    }
