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
    Numbers,
    UserError,
    as_count,
    as_end_token,
    as_flag,
    as_integers,
    as_list,
    check_callable,
    check_can,
    check_room,
    shown,
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

    def append(self, tokens: Numbers, rows: Numbers | None = None) -> None:
        tokens, rows = as_integers("tokens", tokens, dimensions=1), self._some(rows)
        self.decoder.append(tokens, rows)

    def rollback(self, counts: Numbers) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        self.decoder.rollback(as_integers("counts", counts, dimensions=1))

    def fork(self, rows: Numbers) -> "LocalDraws":
        """A new one whose row i is a copy of row `rows[i]`."""
        return self._over(self.decoder.fork(as_integers("rows", rows, dimensions=1)))

    def under(self, transform: Transform) -> "LocalDraws":
        """The same rows, drawn from changed laws."""
        check_callable("transform", transform, "transform(log_probs)")
        changed = self._over(self.decoder)
        changed.transform = transform
        return changed

    def draw(
        self,
        rows: Numbers,
        counts: Numbers,
        rng: Rng,
        banned: Sequence[frozenset[int]] | None = None,
        *,
        weigh: bool = True,
    ) -> Drawn:
        """The next tokens of these rows; none is put there."""
        rows, counts = self._as_asked(rows, counts)
        check_can("rng", rng, "categorical")
        as_flag("weigh", weigh)
        if banned is not None:
            banned = _as_banned(banned, len(rows), self.vocab_size)
            none = torch.tensor([len(tokens) == 0 for tokens in banned], device=rows.device)
            counts = torch.where(none, counts, 1)

        def choose(laws: Tensor) -> Tensor:
            return rng.categorical(laws)

        return self._write(rows, counts, choose, banned)

    def likeliest(self, rows: Numbers, counts: Numbers) -> Drawn:
        """The likeliest tokens, one after the other."""
        rows, counts = self._as_asked(rows, counts)
        return self._write(rows, counts, lambda laws: laws.argmax(-1), None)

    def top_law(
        self, rows: Numbers, k: Count
    ) -> tuple[Int[Tensor, "rows k"], Float[Tensor, "rows k"]]:
        """The k likeliest next tokens, ties to the smaller id, with their log-probabilities."""
        k = min(as_count("k", k, at_least=1), self.vocab_size)
        laws = self._laws(self.decoder, as_integers("rows", rows, dimensions=1))
        order = laws.sort(dim=-1, descending=True, stable=True)
        return order.indices[:, :k], order.values[:, :k]

    # ------------------------------------------------------------------ inside

    def _some(self, rows: Numbers | None) -> Int[Tensor, " rows"] | None:
        return None if rows is None else as_integers("rows", rows, dimensions=1)

    def _as_asked(
        self, rows: Numbers, counts: Numbers
    ) -> tuple[Int[Tensor, " rows"], Int[Tensor, " rows"]]:
        """Rows, and how many tokens each is asked for."""
        device = self.decoder.lengths.device
        rows = as_integers("rows", rows, dimensions=1, device=device)
        counts = as_integers("counts", counts, dimensions=1, device=device)
        if counts.shape != rows.shape:
            raise UserError(
                f"counts has {len(counts)} numbers for {len(rows)} rows; each row has one",
                parameter="counts",
            )
        if len(counts) and int(counts.min()) < 1:
            raise UserError(
                f"counts holds {int(counts.min())}; a row is asked for at least one token",
                parameter="counts",
            )
        if len(counts):
            check_room("the tokens that are drawn", len(rows), int(counts.max()))
        return rows, counts

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


def _as_banned(
    banned: Sequence[frozenset[int]], rows: int, vocab_size: int
) -> list[frozenset[int]]:
    """The tokens that each row must not draw."""
    given = as_list("banned", banned, "sets of tokens, one for each row")
    if len(given) != rows:
        raise UserError(
            f"banned has {len(given)} sets for {rows} rows; each row has one", parameter="banned"
        )
    found = []
    for gone in given:
        if not isinstance(gone, frozenset | set | list | tuple):
            raise UserError(
                f"banned holds {shown(gone)}; it must hold sets of tokens", parameter="banned"
            )
        tokens = [as_count("a token of banned", token, at_most=vocab_size - 1) for token in gone]
        found.append(frozenset(tokens))
    return found


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
