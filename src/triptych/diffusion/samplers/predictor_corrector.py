"""Predictor and corrector: reveal in rounds, after each round redraw shown positions one by one.

The predictor is random order. A correction takes one shown position i and draws it again from
p(x_i | the others that are shown): a step of Gibbs sampling on the shown tokens, which has their
law as a fixed point, if the position is chosen without looking at the tokens:

    random     uniform: keeps the law, and pulls what parallel rounds made towards it
    unsure     weights p(x_i | others)^(-1/τ): published correctors look for unsure tokens. The
               position depends on the token, p(i | x) enters, and the law is another one
    accepted   the same choice i ~ q(i | x), corrected: the new text y is accepted with
               min(1, q(i | y) / q(i | x)) (Metropolis, Hastings). Keeps the law

`random` asks one question a correction; the others ask about every shown position, in one pass.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.diffusion.choosing import Rounds, dense, uniform_positions
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt, independent, product, triple
from triptych.diffusion.sampler import Keeps
from triptych.inference.settable import option


@dataclass(frozen=True)
class PredictorCorrector(Rounds):
    """Reveal, then redraw some of what is shown.

    Worked value: p uniform on {00, 11}, both positions in one round and one random correction: the
    redrawn position copies the other, so the law is p.
    """

    title = "Predictor and corrector"
    promise = "one position a round: the model's law, by random and accepted; unsure breaks it"
    source = "arXiv:2211.15089, 2107.03006; diffusers step_correct for uniform noise"
    when = "few rounds, then repair: random keeps the law"
    keeps: ClassVar[Keeps] = "one position a round"
    returns = True

    corrections: int = option(1, "positions redrawn after each round", at_least=0)
    choice: Literal["random", "unsure", "accepted"] = option("random", "how the position is chosen")
    tau: float = option(1.0, "temperature of the choice; small ones are greedy", at_least=1e-6)

    def step(self, run: Denoising, number: int) -> None:
        """One round of the predictor, then the corrections."""
        now = uniform_positions(run, run.hidden, self.quota(run, number))
        run.write(now, run.draw(run.ask(now), now))
        for _ in range(self.corrections):
            if self.choice == "random":
                one = uniform_positions(run, run.shown, run.open.long())
                run.write(one, run.draw(run.ask_without(one), one))
            else:
                self._look(run)

    def _look(self, run: Denoising) -> None:
        """Redraw a position that is chosen by its token."""
        shown = run.shown & run.open[:, None]
        weights, laws = self._weights(run, shown)
        rows = torch.nonzero(shown.any(-1))[:, 0]
        if len(rows) == 0:
            return
        column = run.draw(weights[rows], _first(rows, shown))
        one = torch.zeros_like(shown)
        one[rows, column] = True
        old = run.tokens
        run.write(one, run.draw(laws[one[shown]], one))
        if self.choice == "accepted":
            back, _ = self._weights(run, shown)
            ratio = (back[rows, column] - weights[rows, column]).clamp(max=0).exp()
            stays = torch.stack([1 - ratio, ratio], -1).log()
            accepted = run.draw(stays, _first(rows, shown)).bool()
            keep = torch.ones_like(run.open)
            keep[rows] = accepted
            run.tokens = torch.where(keep[:, None], run.tokens, old)

    def _weights(
        self, run: Denoising, shown: Bool[Tensor, "batch length"]
    ) -> tuple[Float[Tensor, "batch length"], Float[Tensor, "asked vocab"]]:
        """log q(i | x) of every row, and the law of each shown position without itself."""
        laws = run.ask_without(shown)
        own = laws.gather(-1, run.tokens[shown][:, None])[:, 0]
        keys = dense(-own / self.tau, shown)
        impossible = torch.isinf(keys) & (keys > 0)  # a token without chance is chosen for sure
        keys = torch.where(
            impossible.any(-1, keepdim=True), torch.where(impossible, 0.0, -torch.inf), keys
        )
        return keys.log_softmax(-1), laws


def _first(
    rows: Int[Tensor, " rows"], shown: Bool[Tensor, "batch length"]
) -> Bool[Tensor, "batch length"]:
    """One place in each of these rows, for draws that belong to a row."""
    places = torch.zeros_like(shown)
    places[rows, 0] = True
    return places


def examples() -> dict[str, OneShot]:
    """The law is kept by both right choices; and what one correction makes of a product."""
    p, two = triple(), Table.random(2, 2, seed=1)
    accepted = PredictorCorrector(choice="accepted", tau=0.5)
    parallel = PredictorCorrector(steps=1)
    return {
        "random": OneShot(attempt(PredictorCorrector(), two), two.as_dict()),
        "accepted": OneShot(attempt(accepted, two), two.as_dict()),
        "of a product": OneShot(attempt(parallel, p), _redrawn(p).as_dict()),
    }


def _redrawn(p: Table) -> Table:
    """The mean over i of (Σ_u Π p(x_j) with x_i = u) p(x_i | x_-i)."""
    grid = p.log_probs.exp().reshape([p.vocab_size] * 3)
    start, total = product(p).log_probs.exp().reshape(grid.shape), torch.zeros_like(grid)
    for i in range(3):
        others = [j for j in range(3) if j != i]
        total += start.sum(i, keepdim=True) * independent(grid, [i], others) / 3
    return Table(p.vocab_size, 3, total.reshape(-1).log())
