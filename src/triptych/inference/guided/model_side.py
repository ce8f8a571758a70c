"""The model's side of a generation: laws of a decoder, or draws of a model that draws by itself.

What was drawn ahead waits here until it is taken; `ahead` says why the law is that of drawing when
it is needed.
"""

import time
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import (
    CountsPasses,
    Decoder,
    Drawn,
    Draws,
    Ends,
    OfModel,
    Rng,
    RowRng,
    UsedOnce,
    Verifier,
)
from triptych.core.validation import UserError
from triptych.inference.answers import check_laws
from triptych.inference.guided.ahead import Ahead
from triptych.inference.guided.costs import Costs
from triptych.inference.guided.result import Action
from triptych.inference.guided.transforms import Transform, of_laws

MAX_AHEAD = 2**31
"""Tokens that a row asks for where it may have all that are left."""


class ModelSide:
    """How a generation asks its model.

    draws   the model answers draws and no laws
    weigh   the log-probabilities of drawn tokens are wanted
    """

    decoder: Decoder | Draws
    draws: bool
    weigh: bool = False
    owner: Tensor
    limits: Tensor
    rng: Rng
    costs: Costs
    transform: Transform | None
    verifier: Verifier | None
    ends: Ends | None
    _drawn: Ahead
    _best: Ahead
    _counts_passes: bool
    _ends_rows: bool

    def put(self, tokens: Int[Tensor, " rows"], rows: Int[Tensor, " rows"], action: Action) -> None:
        raise NotImplementedError

    def count(
        self, what: str, rows: Int[Tensor, " rows"], amounts: Int[Tensor, " rows"] | None = None
    ) -> None:
        raise NotImplementedError

    def _last(self) -> Int[Tensor, " batch"]:
        raise NotImplementedError

    # ------------------------------------------------------------------ laws

    def laws(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """The transformed next-token law of each row; no call is counted."""
        return self.transformed(self.model_laws(rows), rows)

    def model_laws(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """The model's own next-token law of each row; no call is counted."""
        self._use_up()
        began, passes = time.perf_counter(), self._passes(self.decoder)
        log_probs = self._laws_of().next_log_probs(rows)
        made = self._passes(self.decoder) - passes if self._counts_passes else 1
        self.costs.forward_passes += made
        self.costs.generator_seconds += time.perf_counter() - began
        model = self.decoder.lm if isinstance(self.decoder, OfModel) else self.decoder
        self._check_laws(log_probs, rows, type(model).__name__)
        return log_probs

    def _laws_of(self) -> Decoder:
        if isinstance(self.decoder, Draws):
            raise UserError(
                "this algorithm asks for whole laws, and this model answers draws alone; say what "
                "the algorithm needs, as needs = 'draws'",
                parameter="decoder",
            )
        return self.decoder

    def drawing(self) -> Draws:
        """The model as one that answers draws; `draws` says whether it is."""
        assert isinstance(self.decoder, Draws)
        return self.decoder

    def _use_up(self) -> None:
        """From the first question or token on, no other generation may take this decoder."""
        if isinstance(self.decoder, UsedOnce):
            self.decoder.used = True

    def _passes(self, of: Decoder | Draws | Verifier | None) -> int:
        """Forward passes of a decoder or a verifier so far, 0 where it does not count them."""
        return of.passes if isinstance(of, CountsPasses) else 0

    def transformed(
        self, log_probs: Float[Tensor, "rows vocab"], rows: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows vocab"]:
        """The transform of the laws of some rows; the laws themselves where there is none."""
        if self.transform is None:
            return log_probs
        if (plain := of_laws(self.transform)) is not None:
            return plain(log_probs)
        log_probs = self.transform(log_probs)
        self._check_laws(log_probs, rows, "the transform")
        return log_probs

    def _check_laws(self, log_probs: Tensor, rows: Int[Tensor, " rows"], whose: str) -> None:
        """Every row's law is one; otherwise name the row and its prefix."""
        decoder = self.decoder

        def at(place: int) -> str:
            row = rows[place]
            prefix = decoder.tokens[row, : int(decoder.lengths[row])].tolist()
            return f"after {prefix} (row {int(self.owner[row])})"

        check_laws(log_probs, (len(rows), decoder.vocab_size), rows.device, whose, at)

    def choose(
        self, log_probs: Float[Tensor, "rows outcomes"], rows: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        """A draw for each row through the door; with a stream per row, from that row's own."""
        return self._rng_of(rows).categorical(log_probs)

    def _rng_of(self, rows: Int[Tensor, " rows"]) -> Rng:
        return self.rng.of(self.owner[rows]) if isinstance(self.rng, RowRng) else self.rng

    # ------------------------------------------------------------------ tokens at the end of rows

    def draw(
        self,
        rows: Int[Tensor, " rows"],
        ahead: Int[Tensor, " rows"] | int | None = None,
        refused: Int[Tensor, " rows"] | None = None,
    ) -> None:
        """One token at the end of each row, drawn from its law.

        ahead     how many tokens each row will need at least, if nothing is refused; where the
                  model answers draws, they are asked for at once. None is the model's own number
        refused   how often the row was refused where it stands: it draws several tokens there
        """
        if self.draws:
            tokens, _ = self.drawn_tokens(rows, ahead, refused)
        else:
            tokens = self.choose(self.laws(rows), rows)
        self.put(tokens, rows, "draw")

    def draw_or_argmax(
        self,
        rows: Int[Tensor, " rows"],
        best: Bool[Tensor, " rows"],
        ahead: Int[Tensor, " rows"],
    ) -> None:
        """One token at the end of each row: the likeliest where `best` says so, or a drawn one."""
        drawn, taken = rows[~best], rows[best]
        if self.draws:
            if len(taken):
                self.put(self._best_tokens(taken, ahead[best]), taken, "argmax")
            if len(drawn):
                self.draw(drawn, ahead[~best])
            return
        laws = self.laws(rows)
        self.put(laws[best].argmax(-1), taken, "argmax")
        if len(drawn):
            self.put(self.choose(laws[~best], drawn), drawn, "draw")

    @property
    def unjudged(self) -> int | None:
        """`ahead` of a row that nobody is asked about before its end: all that is left of it.

        None where stop strings or the verifier may end a row at any token.
        """
        ends = self.ends is not None or isinstance(self.verifier, Ends)
        ends = ends or (self._ends_rows and not self.draws)
        return None if ends else MAX_AHEAD

    # ------------------------------------------------------------------ draws

    def drawn_tokens(
        self,
        rows: Int[Tensor, " rows"],
        ahead: Int[Tensor, " rows"] | int | None = None,
        refused: Int[Tensor, " rows"] | None = None,
        banned: Sequence[frozenset[int]] | None = None,
    ) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
        """A token for each row of a model that answers draws, not put there, and its log p.

        What waits for a row is taken first, whatever is banned: the caller leaves out a token that
        it has seen.
        """
        lengths, last = self.decoder.lengths[rows].tolist(), self._last()[rows].tolist()
        lacking = self._drawn.lacking(rows.tolist(), lengths, last)
        if lacking:
            some = torch.tensor(lacking, device=rows.device)
            again = torch.zeros_like(some) if refused is None else refused[some]
            copies = (2 ** (again - 1).clamp(0, 30)).clamp(max=self.drawing().ahead)
            counts = self._counts(rows, ahead)[some]
            without = None if banned is None else [banned[k] for k in lacking]
            if without is not None:
                held = torch.tensor([len(gone) > 0 for gone in without], device=rows.device)
                again = torch.where(held, again.clamp(min=1), again)
            counts = torch.where(again > 0, 1, counts).repeat_interleave(copies)
            place = torch.arange(len(some), device=rows.device).repeat_interleave(copies)
            named = rows[some][place]
            if without is not None:
                without = [without[k] for k in place.tolist()]
            rng = self._rng_of(named)
            drawn = self._asked_draws(
                named, lambda: self.drawing().draw(named, counts, rng, without, weigh=self.weigh)
            )
            self._drawn.add(named.tolist(), self.decoder.lengths[named].tolist(), drawn)
        return self._drawn.take(rows, lengths)

    def forget_alternatives(self, rows: Int[Tensor, " rows"]) -> None:
        """Throw away what waits where these rows stand; what follows the last draw stays."""
        for row, length in zip(rows.tolist(), self.decoder.lengths[rows].tolist(), strict=True):
            self._drawn.forget(row, length)

    def drawn_aside(
        self, rows: Int[Tensor, " rows"], banned: Sequence[frozenset[int]]
    ) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
        """A token for each row that the row does not go on with, without those that are banned."""
        rng, one = self._rng_of(rows), torch.ones_like(rows)
        drawn = self._asked_draws(
            rows, lambda: self.drawing().draw(rows, one, rng, banned, weigh=self.weigh)
        )
        return drawn.tokens[:, 0], drawn.log_probs[:, 0].double()

    def top_laws(
        self, rows: Int[Tensor, " rows"], k: int
    ) -> tuple[Float[Tensor, "rows vocab"], Float[Tensor, " rows"]]:
        """Laws of a model that answers draws, on the k likeliest tokens; the mass that is cut."""
        self._use_up()
        began, passes = time.perf_counter(), self._passes(self.decoder)
        tokens, log_probs = self.drawing().top_law(rows, k)
        made = self._passes(self.decoder) - passes if self._counts_passes else 1
        self.costs.forward_passes += made
        self.count("requests", rows)
        self.costs.generator_seconds += time.perf_counter() - began
        size = (len(rows), self.decoder.vocab_size)
        laws = torch.full(size, -torch.inf, dtype=torch.float64, device=rows.device)
        laws.scatter_(1, tokens, log_probs.double())
        mass = laws.logsumexp(-1, keepdim=True)
        return laws - mass, (1 - mass[:, 0].exp()).clamp(min=0.0)

    def _best_tokens(
        self, rows: Int[Tensor, " rows"], ahead: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        lengths, last = self.decoder.lengths[rows].tolist(), self._last()[rows].tolist()
        lacking = self._best.lacking(rows.tolist(), lengths, last)
        if lacking:
            some = torch.tensor(lacking, device=rows.device)
            counts = self._counts(rows, ahead)[some]
            drawn = self._asked_draws(
                rows[some], lambda: self.drawing().likeliest(rows[some], counts)
            )
            self._best.add(rows[some].tolist(), [lengths[k] for k in lacking], drawn)
        return self._best.take(rows, lengths)[0]

    def _counts(
        self, rows: Int[Tensor, " rows"], ahead: Int[Tensor, " rows"] | int | None
    ) -> Int[Tensor, " rows"]:
        """How many tokens to ask for: those that are wanted, and no more than there is room for."""
        room = (self.limits[self.owner] - self.decoder.lengths)[rows]
        wanted = self.drawing().ahead if ahead is None else ahead
        return torch.minimum(room, torch.zeros_like(room) + wanted).clamp(min=1)

    def _asked_draws(self, rows: Int[Tensor, " rows"], ask: Callable[[], Drawn]) -> Drawn:
        """What the model drew, counted, and refused where it is none."""
        self._use_up()
        began, passes = time.perf_counter(), self._passes(self.decoder)
        drawn = ask()
        made = self._passes(self.decoder) - passes if self._counts_passes else 1
        self.costs.forward_passes += made
        self.costs.generator_seconds += time.perf_counter() - began
        tokens, vocab = drawn.tokens, self.decoder.vocab_size
        if (
            tokens.shape[:1] != rows.shape
            or tokens.shape[1:] == (0,)
            or bool(((tokens[:, 0] < 0) | (tokens >= vocab).any(1)).any())
        ):
            raise UserError(
                f"{type(self.decoder).__name__} must draw at least one token below {vocab} for "
                f"each of {len(rows)} rows; it gave {tokens.tolist()}",
                parameter="decoder",
            )
        self.count("requests", rows)
        self.count("drawn", rows, (tokens >= 0).sum(1))
        return drawn

    def take_argmax(self, rows: Int[Tensor, " rows"]) -> None:
        """The likeliest token at the end of each row, the smallest id among equals."""
        best, one = torch.ones_like(rows, dtype=torch.bool), torch.ones_like(rows)
        self.draw_or_argmax(rows, best, one)
