"""Exact completion: fill a canvas by the law of its positions, given that it is in a language.

One pass asks for the laws of all holes. Their product, restricted to a regular language, is drawn
from exactly by forward-backward over positions (`completion_law`). So every row is in the language,
and two truths are drawn from exactly in one round:

    positions that are independent given the canvas        p(x | shown, x in L)
    a hidden Markov model, whose states join the messages   p(x | shown, x in L)

For other models a round keeps some positions of what it drew and asks again about the rest. A row
is still in the language for sure. Its law is that of rounds, q, and not p(x | x in L). Particles
repair it: what a round drew at K has weight

    Z / Z_K,    Z = P(L) under the product of the laws,  Z_K = the same once x_K stands there,

which is Π_{i in K} p(x_i | canvas) over q(x_K | canvas). The mean of the products of these weights
is an unbiased estimate of P(L) under the same rounds without a language, and as n grows the law of
the particle that is picked tends to that of these rounds, given L. With one position a round this
is the model's own law in the order of the holes.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Decoder, Draws, Rng, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.diffusion.denoiser import MaskedDenoiser
from triptych.diffusion.guided.any_order import even_sum
from triptych.diffusion.guided.automaton import Automaton
from triptych.diffusion.guided.canvas_decoder import CanvasDecoder, Canvases, needs_canvas
from triptych.diffusion.guided.canvas_verifier import Regular
from triptych.diffusion.guided.completion_law import (
    CompletionLaw,
    HiddenMarkov,
    hidden_markov_chain,
    product_chain,
)
from triptych.diffusion.guided.orders import Order, draw_order, in_place
from triptych.diffusion.promises import product
from triptych.inference.guided.algorithm import Algorithm, option
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import as_copies
from triptych.inference.guided.resampling import effective_size, even_out, finish, open_particles
from triptych.inference.guided.result import ParticleSet, Reason, Result


class Info(NamedTuple):
    """died             rows of which nothing is left: no filling is in the language
    log_normaliser   the logarithm of the mean weight of each row, an estimate of log P(L)
    smallest_ess     the effective sample size of each row at its lowest
    particles        all n of each row, with their weights
    exact            the model is a hidden Markov model: the law is p(x | shown, x in L)
    """

    died: Bool[Tensor, " batch"]
    log_normaliser: Float[Tensor, " batch"]
    smallest_ess: Float[Tensor, " batch"]
    particles: ParticleSet
    exact: bool


@dataclass(frozen=True)
class Completion(Algorithm[Info]):
    """Fill every canvas with a row of a regular language.

    steps   rounds; none is one position a round
    order   in which rounds keep positions
    n       particles; with one, nothing is weighed
    ess     resample a row when its effective sample size falls below ess * n

    Worked value: p uniform on {00, 11}, the language 01, 10 and 11. In one round the product is
    uniform on four rows, so each of the three has ⅓, and the estimate of P(L) is ¾. In two rounds
    from the left the first token is 1 with ⅔, and then the second follows the model: 11. After a 0
    the model allows 0 alone and the language 1 alone, so the row dies.
    """

    title = "Exact completion"
    promise = (
        "every row is in the language; its law is p(x | shown, x in L) for a hidden Markov model "
        "and, in one round, for independent positions; for any model, as n grows, that of the same "
        "rounds without a language, given L"
    )
    soft = True
    probability = False

    steps: int | None = option(1, "rounds; none is one position a round", at_least=1)
    order: Order = option("left to right", "in which rounds keep positions")
    n: int = option(1, "particles", at_least=1)
    ess: float = option(
        0.5, "resample when the effective sample size is below ess * n", at_least=0, at_most=1
    )

    def sample(
        self, decoder: Decoder | Draws, verifier: VerifierLike | None = None, **shared: Any
    ) -> Result[Info]:
        """Complete every canvas of the decoder; see `Algorithm.sample`."""
        canvas = needs_canvas(decoder, self.title)
        shared |= {"end_token": None, "ends": None}  # the language knows where a text ends
        return in_place(super().sample(decoder, verifier, **shared), canvas)

    def run(self, run: Generation) -> Info:
        """Ask, draw a row of the language, keep some positions; again, until no hole is left."""
        canvas, language = needs_canvas(run.decoder, self.title), _language_of(run)
        n = as_copies(self.n, run.batch)
        draw_order(run, canvas, self.order)
        model = canvas.lm.lm if isinstance(canvas.lm, MaskedDenoiser) else canvas.lm
        chain = model if isinstance(model, HiddenMarkov) and run.transform is None else None
        copies = run.every_row().repeat_interleave(n)
        log_weights = torch.zeros((run.batch, n), dtype=torch.float64, device=run.owner.device)
        full = torch.nonzero(run.start >= run.limits)[:, 0]
        if len(full):
            log_weights[full] = run.log_values(full)[:, None]
        values, smallest = torch.zeros_like(log_weights), effective_size(log_weights)
        cloud, most = run.fork(copies), int((run.limits - run.start).max())
        rounds = 1 if chain is not None else min(self.steps or most, most)
        for number in range(rounds):
            rows = open_particles(cloud, log_weights)
            if len(rows) == 0:
                break
            gains = _round(cloud, rows, language, rounds - number, chain)
            log_weights = log_weights.reshape(-1).index_add(0, rows, gains).reshape(-1, n)
            cloud, log_weights, values, size = even_out(run, cloud, log_weights, values, self.ess)
            smallest = torch.minimum(smallest, size)
        ended = finish(run, cloud, log_weights, values)
        run.stop(torch.nonzero(ended.died)[:, 0], Reason.NOTHING)
        return Info(ended.died, ended.log_normaliser, smallest, ended.particles, chain is not None)


def _language_of(run: Generation) -> Automaton:
    """The regular language of the verifier."""
    if not isinstance(run.verifier, Regular):
        raise UserError(
            "Completion needs a regular language, and the verifier is a "
            f"{type(run.verifier).__name__}; give Regular(automaton), or a Grammar that is regular "
            "(a regular expression, choices, a schema without recursion), or take AnyOrder or an "
            "algorithm of prefixes, which run with other verifiers",
            parameter="verifier",
        )
    language = run.verifier.automaton
    if language.vocab_size != run.decoder.vocab_size:
        raise UserError(
            f"the language has {language.vocab_size} tokens and the model "
            f"{run.decoder.vocab_size}; they must be equal",
            parameter="verifier",
        )
    return language


def _round(
    cloud: Generation,
    rows: Int[Tensor, " rows"],
    language: Automaton,
    left: int,
    model: HiddenMarkov | None,
) -> Float[Tensor, " rows"]:
    """Draw rows of the language and keep a part of each: log Z - log Z_K, -inf where none is.

    left   rounds that are left, with this one
    """
    decoder = cloud.decoder
    assert isinstance(decoder, CanvasDecoder)
    gains = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    canvases = decoder.canvases(rows)
    sizes = torch.stack([canvases.starts, canvases.widths], -1)
    for start, width in sizes.unique(dim=0).tolist():
        same = torch.nonzero((sizes == torch.tensor([start, width]).to(sizes)).all(-1))[:, 0]
        some, part = rows[same], Canvases(*(each[same] for each in canvases))
        laws: Float[Tensor, "same positions vocab"] | None = None
        if model is None:
            laws = _laws(cloud, decoder, some, part, start, width)
            law = CompletionLaw(product_chain(laws), language)
            gain = law.log_mass
        else:
            tokens, hidden = part.tokens[:, :width], part.hidden[:, :width]
            chain = hidden_markov_chain(model, tokens, hidden, start)
            law = CompletionLaw(chain, language)
            gain = law.log_mass - CompletionLaw(chain, _every_row(language)).log_mass
        drawn = law.draw(cloud.rng, cloud.owner[some])
        holes = decoder.widths[cloud.owner[some]] - decoder.lengths[some]
        counts = (holes + left - 1) // left
        counts = torch.where(torch.isneginf(gain), 0, counts)
        kept = _write(cloud, decoder, some, drawn, start, counts)
        if laws is not None and left > 1:
            words = torch.nn.functional.one_hot(drawn.clamp(min=0), laws.shape[-1]).bool()
            narrowed = torch.where(kept[..., None], words.double().log(), laws)
            after = CompletionLaw(product_chain(narrowed), language).log_mass
            gain = torch.where(torch.isneginf(gain), gain, gain - after)
        gains[same] = gain
    return gains


def _laws(
    cloud: Generation,
    decoder: CanvasDecoder,
    rows: Int[Tensor, " rows"],
    canvases: Canvases,
    start: int,
    width: int,
) -> Float[Tensor, "rows positions vocab"]:
    """log p(x_i = · | canvas) at every position of the completion; a point mass where shown."""
    passes = decoder.passes
    asked = decoder.ask(canvases, canvases.hidden, rows)
    cloud.costs.forward_passes += decoder.passes - passes
    asked = cloud.transformed(asked, rows[torch.nonzero(canvases.hidden)[:, 0]])
    tokens, hidden = canvases.tokens[:, start:width], canvases.hidden[:, start:width]
    laws = torch.nn.functional.one_hot(tokens, decoder.vocab_size).double().log()
    return laws.masked_scatter(hidden[..., None], asked)


def _write(
    cloud: Generation,
    decoder: CanvasDecoder,
    rows: Int[Tensor, " rows"],
    drawn: Int[Tensor, "rows positions"],
    start: int,
    counts: Int[Tensor, " rows"],
) -> Bool[Tensor, "rows positions"]:
    """Put what was drawn into the next holes of each row; which positions these are."""
    kept = torch.zeros_like(drawn, dtype=torch.bool)
    for turn in range(int(counts.max())):
        going = torch.nonzero(counts > turn)[:, 0]
        some = rows[going]
        position = decoder.next_place(decoder.lengths[some], cloud.owner[some]) - start
        kept[going, position] = True
        cloud.put(drawn[going, position], some, "draw")
    done = torch.nonzero(decoder.lengths[rows] >= cloud.limits[cloud.owner[rows]])[:, 0]
    cloud.hear(rows[done], torch.zeros(len(done), dtype=torch.float64, device=rows.device))
    return kept


def _every_row(language: Automaton) -> Automaton:
    """All rows of these tokens."""
    size, device = language.vocab_size, language.following.device
    following = torch.zeros((1, size), dtype=torch.long, device=device)
    return Automaton(following, torch.ones(1, dtype=torch.bool, device=device))


def examples() -> dict[str, OneShot]:
    """The product of the marginals given the language; and p given it, where p is a product."""
    p, language = Table.random(2, 3, seed=0), Regular(even_sum())

    def given(table: Table) -> dict[tuple[int, ...], float]:
        even = {x: q for x, q in table.as_dict().items() if sum(x) % 2 == 0}
        return {x: q / sum(even.values()) for x, q in even.items()}

    def case(model: Table, target: Table, sampler: Completion) -> OneShot:
        def one(rng: Rng) -> tuple[int, ...]:
            decoder = CanvasDecoder(model, torch.zeros((1, 3), dtype=torch.long))
            return sampler.sample(decoder, language, length=3, rng=rng).completions()[0]

        return OneShot(one, given(target))

    independent = product(p)
    return {
        "one round": case(p, independent, Completion()),
        "independent positions": case(independent, independent, Completion(n=2)),
        "independent positions, in turn": case(
            independent, independent, Completion(steps=None, order="random")
        ),
    }
