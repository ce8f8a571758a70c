"""Draws from a model in this process: a `Draws` over any `Decoder`, through the one door.

An algorithm that needs draws alone runs on a served model, whose laws stay where it is. Here the
same questions are answered from laws, so that such an algorithm is tested, and enumerated, on
models whose laws are known.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import PAD, is_end
from triptych.core.protocols import Decoder, Drawn, Gives, OfModel, Rng, UsedOnce
from triptych.core.validation import (
    Count,
    EndTokens,
    UserError,
    as_count,
    as_end_token,
    check_can,
)

Transform = Callable[[Float[Tensor, "rows vocab"]], Float[Tensor, "rows vocab"]]
EVERYTHING: frozenset[Gives] = frozenset({"draws", "log_probs", "top_laws"})


class LocalDraws:
    """A `Draws` over a decoder.

    ahead       tokens that are drawn at once where an algorithm asks for no number; a decoder gains
                nothing by more than one
    end_token   nothing is drawn after it, or after one of them

    Worked value: after a prefix whose law is (½, ½, 0), with token 0 banned, token 1 is drawn, and
    its log-probability is log ½.
    """

    def __init__(
        self, decoder: Decoder, *, ahead: Count = 1, end_token: EndTokens | None = None
    ) -> None:
        check_can("decoder", decoder, "next_log_probs", "append", "rollback", "fork")
        self.decoder = decoder
        self._ahead = as_count("ahead", ahead, at_least=1)
        self.end_token = as_end_token(end_token, decoder.vocab_size)
        self.transform: Transform | None = None
        self.used = isinstance(decoder, UsedOnce) and decoder.used

    def __repr__(self) -> str:
        return f"LocalDraws({self.decoder!r}, ahead={self._ahead})"

    @property
    def vocab_size(self) -> int:
        return self.decoder.vocab_size

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        return self.decoder.lengths

    @property
    def tokens(self) -> Int[Tensor, "batch t"]:
        return self.decoder.tokens

    @property
    def gives(self) -> frozenset[Gives]:
        return EVERYTHING

    @property
    def ahead(self) -> int:
        return self._ahead

    @property
    def lm(self) -> object:
        """The model, for messages."""
        return self.decoder.lm if isinstance(self.decoder, OfModel) else self.decoder

    def append(
        self, tokens: Int[Tensor, " rows"], rows: Int[Tensor, " rows"] | None = None
    ) -> None:
        self.decoder.append(tokens, rows)

    def rollback(self, counts: Int[Tensor, " batch"]) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        self.decoder.rollback(counts)

    def fork(self, rows: Int[Tensor, " copies"]) -> "LocalDraws":
        """A new one whose row i is a copy of row `rows[i]`."""
        return self._over(self.decoder.fork(rows))

    def under(self, transform: Transform) -> "LocalDraws":
        """The same rows, drawn from changed laws."""
        changed = self._over(self.decoder)
        changed.transform = transform
        return changed

    def draw(
        self,
        rows: Int[Tensor, " rows"],
        counts: Int[Tensor, " rows"],
        rng: Rng,
        banned: Sequence[frozenset[int]] | None = None,
        *,
        weigh: bool = True,
    ) -> Drawn:
        """The next tokens of these rows; none is put there."""
        if banned is not None:
            none = torch.tensor([len(tokens) == 0 for tokens in banned], device=rows.device)
            counts = torch.where(none, counts, 1)

        def choose(laws: Tensor) -> Tensor:
            return rng.categorical(laws)

        return self._write(rows, counts, choose, banned)

    def likeliest(self, rows: Int[Tensor, " rows"], counts: Int[Tensor, " rows"]) -> Drawn:
        """The likeliest tokens, one after the other."""
        return self._write(rows, counts, lambda laws: laws.argmax(-1), None)

    def top_law(
        self, rows: Int[Tensor, " rows"], k: int
    ) -> tuple[Int[Tensor, "rows k"], Float[Tensor, "rows k"]]:
        """The k likeliest next tokens, ties to the smaller id, with their log-probabilities."""
        laws = self._laws(self.decoder, rows)
        k = min(as_count("k", k, at_least=1), laws.shape[1])
        order = laws.sort(dim=-1, descending=True, stable=True)
        return order.indices[:, :k], order.values[:, :k]

    # ------------------------------------------------------------------ inside

    def _over(self, decoder: Decoder) -> "LocalDraws":
        made = LocalDraws(decoder, ahead=self._ahead, end_token=self.end_token)
        made.transform = self.transform
        return made

    def _laws(
        self, decoder: Decoder, rows: Int[Tensor, " rows"] | None
    ) -> Float[Tensor, "_ vocab"]:
        laws = decoder.next_log_probs(rows).double()
        return laws if self.transform is None else self.transform(laws)

    def _write(
        self,
        rows: Int[Tensor, " rows"],
        counts: Int[Tensor, " rows"],
        choose: Callable[[Tensor], Tensor],
        banned: Sequence[frozenset[int]] | None,
    ) -> Drawn:
        """Write after copies of the rows, all of them at once, a token at a time."""
        copies = self.decoder.fork(rows)
        size = (len(rows), int(counts.max()) if len(rows) else 0)
        tokens = torch.full(size, PAD, device=rows.device)
        log_probs = torch.full(size, torch.nan, dtype=torch.float64, device=rows.device)
        going = counts > 0
        for step in range(size[1]):
            some = torch.nonzero(going)[:, 0]
            if len(some) == 0:
                break
            laws = self._laws(copies, some)
            # A row that is done draws from a law of one outcome: every row keeps its place.
            table = torch.full((len(rows), self.vocab_size), -torch.inf, dtype=torch.float64)
            table = table.to(rows.device)
            table[~going, 0] = 0.0
            table[some] = laws
            if step == 0 and banned is not None:
                table = _without(table, banned)
            drawn = choose(table)[some]
            tokens[some, step] = drawn
            log_probs[some, step] = laws.gather(1, drawn[:, None])[:, 0]
            going = self._going(going, some, drawn, counts > step + 1)
            if (more := going[some]).any():
                copies.append(drawn[more], some[more])
        return Drawn(tokens, log_probs)

    def _going(
        self,
        going: Bool[Tensor, " rows"],
        some: Int[Tensor, " some"],
        drawn: Int[Tensor, " some"],
        wanted: Bool[Tensor, " rows"],
    ) -> Bool[Tensor, " rows"]:
        after = going & wanted
        after[some] &= ~is_end(drawn, self.end_token)
        return after


def _without(
    table: Float[Tensor, "rows vocab"], banned: Sequence[frozenset[int]]
) -> Float[Tensor, "rows vocab"]:
    """Laws without some tokens, normalised."""
    table = table.clone()
    for row, tokens in enumerate(banned):
        if tokens:
            table[row, sorted(tokens)] = -torch.inf
            if bool(torch.isneginf(table[row]).all()):
                raise UserError(
                    f"all tokens that can follow row {row} are banned: nothing is left to draw",
                    parameter="banned",
                )
    return table.log_softmax(-1)
