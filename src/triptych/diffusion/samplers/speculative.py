"""Speculative unmasking: draft many positions at once, accept as many as the model agrees with.

A step draws an order of the hidden positions and drafts a token at each from one answer, d_i. A
second pass asks for the law of each position given all drafts before it in the order, c_i. The
drafts are accepted one after another with min(1, c_i(x_i) / d_i(x_i)); the first that is refused is
drawn again from (c - d)_+, and the rest is hidden again. What is written has exactly the law of
drawing one position after another, for any answers; so for consistent ones it is the model's law.
The first draft is always accepted, so there are never more rounds than positions.

The second pass asks one question for each draft, in one batch: the price of waiting less.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.diffusion.choosing import uniform_positions
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt, pair, triple
from triptych.diffusion.sampler import Keeps, Sampler
from triptych.inference.settable import option


@dataclass(frozen=True)
class Speculative(Sampler):
    """Draft, check, keep.

    Worked value: p uniform on {00, 11}: the drafts 0 1 have ¼; the second is checked against 0 for
    sure, refused, and drawn again: 00. So 00 and 11 have ½ each, in two passes.
    """

    title = "Speculative unmasking"
    promise = "always: the law of one position after another"
    source = "any-subset speculative decoding, arXiv:2504.20456"
    when = "the law must be exact and passes are few; questions in a batch are cheap"
    keeps: ClassVar[Keeps] = "always"

    window: int = option(8, "drafts of a round", at_least=1)
    order: Literal["random", "left to right"] = option("random", "order of the positions")

    def rounds(self, size: int) -> int:
        """At most one for each position."""
        return size

    def step(self, run: Denoising, number: int) -> None:
        """One round of drafts, and its check."""
        hidden = run.hidden
        rows = torch.nonzero(hidden.any(-1))[:, 0]
        order, drafted = self._ordered(run, hidden)
        laws = run.ask(drafted)
        drafts = run.draw(laws, drafted)
        place = torch.zeros_like(order)
        place[drafted] = torch.arange(len(drafts), device=order.device)
        tokens = run.tokens.masked_scatter(drafted, drafts)
        checks = self._check(run, order, drafted, tokens)
        open_rows, turn = torch.zeros_like(run.open), 0
        open_rows[rows] = True
        kept, final = torch.zeros_like(drafted), tokens.clone()
        while bool((now := drafted & (order == turn) & open_rows[:, None]).any()):
            who, where = torch.nonzero(now, as_tuple=True)
            draft, check = laws[place[now]].double(), checks[place[now]].double()
            word = final[now][:, None]
            rest = (check.exp() - draft.exp()).clamp(min=0)
            ratio = (check.gather(1, word) - draft.gather(1, word)).clamp(max=0.0)[:, 0]
            ratio = ratio.masked_fill(rest.sum(-1) == 0, 0.0)  # equal laws, up to rounding
            agree = torch.stack([torch.log1p(-ratio.exp()), ratio], -1).log_softmax(-1)
            accepted = run.draw(agree, now).bool()
            refused = ~accepted
            if bool(refused.any()):
                rest = rest[refused]
                again = torch.zeros_like(now)
                again[who[refused], where[refused]] = True
                law = (rest / rest.sum(-1, keepdim=True)).log()
                final = final.masked_scatter(again, run.draw(law, again))
                open_rows[who[refused]] = False
            kept, turn = kept | now, turn + 1
        run.write(kept, final[kept])

    def _ordered(
        self, run: Denoising, hidden: Bool[Tensor, "batch length"]
    ) -> tuple[Int[Tensor, "batch length"], Bool[Tensor, "batch length"]]:
        """The turn of each drafted position in its row, -1 elsewhere; and which are drafted."""
        order = torch.full_like(run.tokens, -1)
        if self.order == "left to right":
            turns = hidden.cumsum(-1) - 1
            drafted = hidden & (turns < self.window)
            return torch.where(drafted, turns, order), drafted
        drafted = torch.zeros_like(hidden)
        for turn in range(min(self.window, int(hidden.sum(-1).max()))):
            one = uniform_positions(run, hidden & ~drafted, torch.ones_like(run.sizes))
            order[one], drafted = turn, drafted | one
        return order, drafted

    def _check(
        self,
        run: Denoising,
        order: Int[Tensor, "batch length"],
        drafted: Bool[Tensor, "batch length"],
        tokens: Int[Tensor, "batch length"],
    ) -> Float[Tensor, "drafts vocab"]:
        """The law of each draft given those before it, one question for each."""
        who, where = torch.nonzero(drafted, as_tuple=True)
        turns = order[who, where]
        shown = drafted[who] & (order[who] < turns[:, None])
        one = torch.zeros_like(shown)
        one[torch.arange(len(who), device=who.device), where] = True
        return run.ask_variants(who, tokens[who], run.masked[who] & ~shown, one)


def examples() -> dict[str, OneShot]:
    """Always p."""
    p, twins = triple(), pair()
    left = Speculative(order="left to right")
    return {
        "twins": OneShot(attempt(Speculative(), twins), twins.as_dict()),
        "random order": OneShot(attempt(Speculative(), p), p.as_dict()),
        "window of two": OneShot(attempt(Speculative(window=2), p), p.as_dict()),
        "from the left": OneShot(attempt(left, p), p.as_dict()),
    }
