"""Samplers that draw many positions at once, as masked language models do [li, 4.1.4].

One question about a masked sequence is answered by one law per hidden position. Drawing all of them
from that one answer makes the new tokens independent given what was shown, whatever the oracle:

    independent_step   every x_i ~ p(· | x_-i) from one old state [li, Def. 4.1.11]: N questions
    block_step         hide a block, draw each hidden position from its marginal: one question
    unmask             from nothing shown, reveal positions in rounds: one question per round

None of the chains keeps p, not even with the truth as oracle. Where the oracle is an Ising model,
`independent_step` is reversible with respect to another law in closed form: with θ_i(s) = h_i +
Σ_j J_ij s_j it moves s to s' with probability Π_i exp(s'_i θ_i(s)) / 2 cosh θ_i(s), and

    π(s) ∝ exp(hᵀs) Π_i 2 cosh θ_i(s),    π(s) P(s, s') ∝ exp(hᵀs + hᵀs' + s'ᵀJs),

which is symmetric in s and s'. Two spins with coupling J and no field: θ = (J s_2, J s_1), so π is
uniform and forgets the coupling, while p(agree) = sigmoid(2J).

`unmask` reveals exactly p, with the truth as oracle, when every round reveals one position and the
position is chosen without looking at the token that is drawn for it. The usual rule of confidence,
draw everywhere and keep the tokens of highest probability, does look: rare tokens are drawn twice
before they are kept.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Masked, Rng
from triptych.core.randomness import RngLike, as_rng, check_goes_on
from triptych.core.samplers import Chain, OneShot
from triptych.core.table import Table, all_sequences
from triptych.core.validation import (
    Count,
    Hidden,
    Numbers,
    Tokens,
    UserError,
    as_bool_mask,
    as_count,
    as_device,
    as_floats,
    as_integers,
    as_list,
    as_masked,
    as_size,
)
from triptych.inference.answers import check_sums
from triptych.inference.chains.gibbs import Cost
from triptych.inference.chains.positions import drawn_positions, highest
from triptych.inference.chains.sequences import (
    as_chains,
    chain,
    check_masks,
    check_oracle,
    masked_answer,
)
from triptych.inference.guided.options import check_choice

Reveal = Literal["random", "left to right", "confident position", "confident token"]

MAX_POSITIONS = 2**24
"""Of one schedule."""
MAX_TOKENS = 2**30
"""Of all chains that are begun together."""
_ENTRIES_AT_ONCE = 2**22


# ------------------------------------------------------------------ chains


@renamed(oracle="lm")
def independent_step(lm: Masked, tokens: Tokens, rng: Rng) -> Int[Tensor, "chains length"]:
    """x'_i ~ p(· | x_-i) for every i at once, given the old state.

    Worked value: p uniform on {00, 11}: 00 and 11 stay forever; the other states, to which p gives
    nothing, swap: 01 becomes 10.
    """
    tokens = as_chains(lm, tokens)
    check_goes_on(rng)
    length = tokens.shape[1]
    each = torch.eye(length, dtype=torch.bool, device=tokens.device)
    at_once = max(1, _ENTRIES_AT_ONCE // (length * length * max(length, lm.vocab_size)))
    laws = []
    for part in tokens.split(at_once):
        asked = part.repeat_interleave(length, 0)
        answer = masked_answer(lm, asked, each.repeat(len(part), 1))
        answer = answer.reshape(len(part), length, length, -1)
        laws.append(answer.diagonal(dim1=1, dim2=2).movedim(-1, 1))
    every = torch.cat(laws)
    check_sums(every, type(lm).__name__, _place(length))
    return rng.categorical(every)


@renamed(oracle="lm")
def block_step(
    lm: Masked, tokens: Tokens, masks: MaskLaw, rng: Rng
) -> Int[Tensor, "chains length"]:
    """Hide a block of each chain and draw its positions independently, from one answer.

    Worked value: p uniform on {00, 11} and the block of both: a step goes to each of the four
    states with ¼. With blocks of one it is 1-Gibbs.
    """
    check_masks(masks)
    tokens = as_chains(lm, tokens, masks)
    check_goes_on(rng)
    hidden = masks.blocks[masks.draw(tokens, rng)]
    laws = masked_answer(lm, tokens, hidden)[hidden]
    place = _place(hidden.shape[1])
    check_sums(laws, type(lm).__name__, lambda k: place(_nth(hidden, k)))
    drawn = rng.categorical(laws)
    return tokens.masked_scatter(hidden, drawn)


def independent_cost(length: Count) -> Cost:
    """N questions in one pass."""
    return Cost(float(as_size("length", length)), 1.0)


# ------------------------------------------------------------------ from nothing


def blank(
    chains: Count, length: Count, device: torch.device | str = "cpu"
) -> tuple[Int[Tensor, "{chains} {length}"], Bool[Tensor, "{chains} {length}"]]:
    """Tokens and what is hidden of them, for `unmask`: everything."""
    chains, length = as_size("chains", chains), as_size("length", length)
    if chains * length > MAX_TOKENS:
        raise UserError(
            f"chains is {chains} and length is {length}; their product must be at most "
            f"{MAX_TOKENS}",
            parameter="chains",
        )
    device = as_device(device)
    tokens = torch.zeros((chains, length), dtype=torch.long, device=device)
    return tokens, torch.ones_like(tokens, dtype=torch.bool)


def even_schedule(hidden: Count, rounds: Count) -> list[int]:
    """How many positions each round reveals: as equal as can be, the larger rounds last.

    Worked value: 8 positions in 3 rounds: 2, 3, 3.
    """
    hidden = as_count("hidden", hidden, at_most=MAX_POSITIONS)
    rounds = as_count("rounds", rounds, at_least=1)
    if rounds > hidden:
        raise UserError(
            f"{rounds} rounds for {hidden} positions: a round would reveal nothing",
            parameter="rounds",
        )
    return [(hidden * (r + 1)) // rounds - (hidden * r) // rounds for r in range(rounds)]


@renamed(oracle="lm")
def unmask(
    lm: Masked,
    tokens: Tokens,
    hidden: Hidden,
    rng: RngLike,
    *,
    schedule: Sequence[Count],
    order: Reveal = "random",
) -> Int[Tensor, "chains length"]:
    """Fill the hidden positions, `schedule[r]` of them in round r, each round from one answer.

    order   random               positions uniform among the hidden ones
            left to right        the first ones
            confident position   those with the largest max_w p(x_i = w | shown)
            confident token      draw a token everywhere and keep the most probable ones; the others
                                 are hidden again. So generate MaskGIT and masked diffusion models.

    Worked value: two independent bits, P(x_0 = 1) = 0.1 and P(x_1 = 1) = 0.4, one position a round.
    By confident tokens x_0 = 1, less probable than any token of x_1, is never kept in the first
    round, so it is drawn twice: P(x_0 = 1) = 0.01. Every other order gives 0.1.
    """
    check_oracle(lm)
    anything = torch.ones_like(as_integers("tokens", tokens, dimensions=2), dtype=torch.bool)
    as_chains(lm, tokens, hidden=anything)
    tokens, hidden = as_masked(tokens, hidden, lm.vocab_size)
    rng = as_rng(rng, tokens.device)
    check_choice("order", order, get_args(Reveal))
    out, left = tokens.clone(), hidden.clone()
    for count in _as_schedule(hidden, schedule):
        laws = masked_answer(lm, out, left)
        check_sums(laws, type(lm).__name__, _place(tokens.shape[1]))
        if order == "confident token":
            drawn = rng.categorical(laws)
            confidence = laws.gather(-1, drawn[..., None])[..., 0].exp()
            now = most_confident(confidence, left, count)
            out = torch.where(now, drawn, out)
        else:
            if order == "random":
                now = _random(left, count, rng)
            elif order == "left to right":
                now = left & (left.cumsum(-1) <= count)
            else:
                now = most_confident(laws.amax(-1).exp(), left, count)
            drawn = rng.categorical(laws[now])  # only these are drawn
            out = out.masked_scatter(now, drawn)
        left = left & ~now
    return out


@renamed(count="n")
def most_confident(confidence: Numbers, hidden: Hidden, n: Count) -> Bool[Tensor, "rows length"]:
    """The `n` hidden positions of largest confidence; of equal ones the leftmost.

    Worked value: confidences 0.5, 0.9, 0.5, 0.7 with the last not hidden, two of them: 0.9 and the
    first 0.5.
    """
    if isinstance(confidence, Tensor) and confidence.is_floating_point():
        confidence = confidence.double()
    confidence = as_floats("confidence", confidence, shape=(None, None), finite=False)
    hidden = as_bool_mask("hidden", hidden)
    if hidden.shape != confidence.shape:
        raise UserError(
            f"confidence has shape {tuple(confidence.shape)} and hidden {tuple(hidden.shape)}; "
            "they must be equal",
            parameter="confidence",
        )
    n = min(as_count("n", n), hidden.shape[1])
    return highest(confidence, hidden, torch.full_like(hidden.sum(-1), n))


def _random(hidden: Bool[Tensor, "rows length"], count: int, rng: Rng) -> Bool[Tensor, "rows _"]:
    """`count` hidden positions of each row, uniform without replacement."""
    counts = torch.full_like(hidden.sum(-1), count)
    return drawn_positions(torch.zeros(hidden.shape, device=hidden.device), hidden, counts, rng)


def _as_schedule(hidden: Bool[Tensor, "chains length"], schedule: Sequence[Count]) -> list[int]:
    """Whole numbers that add up to what every row hides."""
    counts = [
        as_count(f"schedule[{r}]", one, at_least=1, at_most=MAX_POSITIONS)
        for r, one in enumerate(as_list("schedule", schedule, "whole numbers"))
    ]
    wrong = torch.nonzero(hidden.sum(-1) != sum(counts))[:, 0].tolist()
    if wrong:
        raise UserError(
            f"the schedule reveals {sum(counts)} positions and row {wrong[0]} hides "
            f"{int(hidden[wrong[0]].sum())}; even_schedule(hidden, rounds) makes one that fits",
            parameter="schedule",
        )
    return counts


def _place(length: int) -> Callable[[int], str]:
    """Where the k-th law of chains of this length stands."""
    return lambda k: f"at position {k % length} of chain {k // length}"


def _nth(hidden: Bool[Tensor, "chains length"], k: int) -> int:
    """The place of the k-th hidden position among all positions."""
    return int(torch.nonzero(hidden.reshape(-1))[k])


# ------------------------------------------------------------------ promises


def examples() -> dict[str, Chain | OneShot]:
    """Laws by other ways: closed forms, products of marginals, sums over what is revealed."""
    p = Table.random(2, 3, seed=0)
    coupling = torch.tensor([[0.0, 0.7, -0.3], [0.7, 0.0, 0.5], [-0.3, 0.5, 0.0]]).double()
    field = torch.tensor([0.2, -0.4, 0.1]).double()
    singles, whole = MaskLaw.of_size(3, 1), MaskLaw.of_size(3, 3)
    bits = _product([[0.9, 0.1], [0.6, 0.4]])
    free = _product([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])

    def chained(lm: Table, masks: MaskLaw | None, target: Table) -> Chain:
        def one(tokens: Int[Tensor, "1 length"], rng: Rng) -> Int[Tensor, "1 length"]:
            if masks is None:
                return independent_step(lm, tokens, rng)
            return block_step(lm, tokens, masks, rng)

        return chain(one, target.as_dict(), reversible=True)

    def revealed(lm: Table, schedule: Sequence[int], order: Reveal, target: Table) -> OneShot:
        def one(rng: Rng) -> tuple[int, ...]:
            tokens, hidden = blank(1, lm.length)
            filled = unmask(lm, tokens, hidden, rng, schedule=schedule, order=order)
            return tuple(filled[0].tolist())

        return OneShot(one, target.as_dict())

    spins = _ising(coupling, field)
    return {
        "independent, spins": chained(spins, None, _parallel_spins(coupling, field)),
        "independent, free bits": chained(free, None, free),
        "block of all": chained(p, whole, _product_of_marginals(p)),
        "blocks of one": chained(p, singles, p),
        "unmask one by one": revealed(p, [1, 1, 1], "random", p),
        "unmask from the left": revealed(p, [1, 1, 1], "left to right", p),
        "unmask confident positions": revealed(p, [1, 1, 1], "confident position", p),
        "unmask all at once": revealed(p, [3], "random", _product_of_marginals(p)),
        "unmask two, then one": revealed(p, [2, 1], "random", _two_then_one(p)),
        "unmask confident tokens": revealed(
            bits, [1, 1], "confident token", _product([[0.99, 0.01], [0.6, 0.4]])
        ),
    }


def _product(marginals: Sequence[Sequence[float]]) -> Table:
    law = torch.ones(1, dtype=torch.float64)
    for marginal in marginals:
        law = (law[:, None] * torch.tensor(marginal, dtype=torch.float64)).reshape(-1)
    return Table(len(marginals[0]), len(marginals), law.log())


def _product_of_marginals(p: Table) -> Table:
    grid = p.log_probs.exp().reshape([p.vocab_size] * p.length)
    others = [[j for j in range(p.length) if j != i] for i in range(p.length)]
    return _product([grid.sum(rest).tolist() for rest in others])


def _two_then_one(p: Table) -> Table:
    """The mean over pairs (i, j) of p(x_i) p(x_j) p(x_l | x_i, x_j), for three positions."""
    grid = p.log_probs.exp().reshape([p.vocab_size] * 3)
    total = torch.zeros_like(grid)
    for pair in combinations(range(3), 2):
        alone = [grid.sum([j for j in range(3) if j != i], keepdim=True) for i in pair]
        last = next(i for i in range(3) if i not in pair)
        total += alone[0] * alone[1] * grid / grid.sum(last, keepdim=True) / 3
    return Table(p.vocab_size, 3, total.reshape(-1).log())


def _ising(coupling: Float[Tensor, "n n"], field: Float[Tensor, " n"]) -> Table:
    spins = (2 * all_sequences(2, len(field)) - 1).double()
    log_weights = 0.5 * ((spins @ coupling) * spins).sum(-1) + spins @ field
    return Table(2, len(field), log_weights.log_softmax(0))


def _parallel_spins(coupling: Float[Tensor, "n n"], field: Float[Tensor, " n"]) -> Table:
    """π(s) ∝ exp(hᵀs) Π_i 2 cosh θ_i(s)."""
    spins = (2 * all_sequences(2, len(field)) - 1).double()
    theta = field + spins @ coupling
    log_weights = spins @ field + (math.log(2) + theta.cosh().log()).sum(-1)
    return Table(2, len(field), log_weights.log_softmax(0))
