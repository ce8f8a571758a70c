"""Gibbs sampling by blocks, on any masked oracle: the truth or a trained network [li, 4.1.2].

A step draws a block K of positions for each chain and redraws it from its joint conditional,

    K ~ p(K | x),    x_K ~ p(x_K | x_-K, K) ∝ p(x) p(K | x)    as a function of x_K,

and leaves the rest. With the truth as oracle it is reversible with respect to p, for every law of
the block. All blocks of k positions, drawn uniformly, are the k-Gibbs sampler [li, Def. 4.1.10].

A masked oracle answers with marginals, one per hidden position, so a joint law takes several
questions. Two ways:

    jointly   every state of the block by the chain rule, then one draw: Σ_{j<k} V^j questions;
              an oracle that knows the joint law is asked for it in its place
    in turn   one position after another, each given those already drawn: k questions; the blocks
              must not look at the sequence, since p(K | x) would have to enter

For consistent conditionals the order of the positions changes nothing. Those of a trained network
are not consistent, so there the order is a part of the sampler.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.counting import Counted
from triptych.core.deprecation import renamed
from triptych.core.logspace import log_conditional
from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Masked, Rng
from triptych.core.randomness import RngLike, as_rng, check_goes_on
from triptych.core.samplers import Chain
from triptych.core.table import Table, all_sequences, places
from triptych.core.validation import (
    Count,
    Hidden,
    Tokens,
    UserError,
    as_count,
    as_integers,
    as_masked,
    as_size,
    check_callable,
    check_can,
)
from triptych.inference.answers import check_laws, described
from triptych.inference.chains.sequences import (
    as_chains,
    chain,
    check_masks,
    check_oracle,
    laws_at,
    positions_of,
    uniform_on,
)
from triptych.inference.guided.options import check_choice

Draw = Literal["jointly", "in turn"]
Order = Literal["left to right", "random"]

MAX_STATES = 2**20  # of one block
_ENTRIES_AT_ONCE = 2**23  # tokens of the candidates that are held together


@runtime_checkable
class BlockMasked(Masked, Protocol):
    """A masked oracle that also knows the joint law of a block given the rest."""

    def block_log_probs(
        self, tokens: Int[Tensor, "batch length"], block: Sequence[int]
    ) -> Float[Tensor, "batch states"]:
        """log p(x_block = state | the rest), states in lexicographic order."""
        ...


class Cost(NamedTuple):
    """What a step asks, for one chain, on average over the blocks.

    queries   sequences that the oracle reads (`Counted.queries`)
    passes    questions that wait for one another: the batches of a step of one chain
    """

    queries: float
    passes: float


# ------------------------------------------------------------------ one step


@renamed(oracle="lm")
def step(
    lm: Masked,
    tokens: Tokens,
    masks: MaskLaw,
    rng: Rng,
    *,
    draw: Draw | None = None,
    order: Order = "left to right",
) -> Int[Tensor, "chains length"]:
    """The next state of every chain; each chain draws its own block.

    draw    "jointly" or "in turn"; None is jointly where the blocks look at the sequence or the
            oracle knows joint laws, and in turn elsewhere
    order   of the positions that are drawn in turn; the chain rule of "jointly" reads from the left

    Worked value: p uniform on {00, 11} and blocks of one: no step ever leaves 00. With the block
    of both, one step goes to 11 with ½.
    """
    check_masks(masks)
    tokens = as_chains(lm, tokens, masks)
    check_goes_on(rng)
    check_choice("order", order, get_args(Order))
    if draw is None:
        knows = isinstance(lm, BlockMasked) and order == "left to right"
        draw = "jointly" if masks.adaptive or knows else "in turn"
    check_choice("draw", draw, get_args(Draw))
    if draw == "in turn" and masks.adaptive:
        raise UserError(
            "these blocks look at the sequence, and a position drawn in turn would miss the factor "
            "p(K | x) of the states not drawn yet; use draw='jointly'",
            parameter="draw",
        )
    if draw == "jointly" and order != "left to right":
        raise UserError("draw='jointly' has no order of positions; leave order='left to right'")
    chosen = masks.draw(tokens, rng)
    if draw == "in turn":
        return _in_turn(lm, tokens, masks.blocks[chosen], rng, order)
    out = tokens.clone()
    for rows, number in _groups(lm, masks, chosen):
        out[rows] = _jointly(lm, tokens[rows], masks, number, rng)
    return out


def cost(masks: MaskLaw, vocab_size: Count, *, draw: Draw = "in turn") -> Cost:
    """What a step asks of an oracle that knows marginals only.

    Worked value: blocks of 3, binary tokens: 3 questions in turn; jointly 1 + 2 + 4 = 7, in 3
    passes.
    """
    check_masks(masks)
    vocab_size = as_size("vocab_size", vocab_size)
    check_choice("draw", draw, get_args(Draw))
    sizes, level = masks.blocks.sum(-1).double().cpu(), torch.arange(masks.length).double()
    each = torch.where(level < sizes[:, None], vocab_size**level, 0.0)  # 1, V, V², ... questions
    asked = sizes if draw == "in turn" else each.sum(-1)
    if (sizes == sizes[0]).all():
        return Cost(float(asked[0]), float(sizes[0]))
    if masks.adaptive:
        raise UserError(
            "blocks of several sizes that look at the sequence: the cost depends on the sequence; "
            "measure it with Counted(oracle)"
        )
    probs = masks.log_probs.exp().cpu()
    asked = asked.masked_fill(probs == 0, 0.0)  # beyond all floats, they may be blocks never drawn
    return Cost(float((probs * asked).sum()), float((probs * sizes).sum()))


def _in_turn(
    lm: Masked,
    tokens: Int[Tensor, "chains length"],
    hidden: Bool[Tensor, "chains length"],
    rng: Rng,
    order: Order,
) -> Int[Tensor, "chains length"]:
    """One position of every chain per question, until none is hidden."""
    out, hidden = tokens.clone(), hidden.clone()
    while len(rows := torch.nonzero(hidden.any(-1))[:, 0]):
        left = hidden[rows]
        if order == "left to right":
            at = left.long().argmax(-1)  # the first that is hidden
        else:
            at = rng.categorical(uniform_on(left))
        out[rows, at] = rng.categorical(laws_at(lm, out[rows], left, at))
        hidden[rows, at] = False
    return out


def _groups(
    lm: Masked, masks: MaskLaw, chosen: Int[Tensor, " chains"]
) -> list[tuple[Int[Tensor, " rows"], Int[Tensor, " rows"]]]:
    """Chains that are answered together, with their blocks, and few enough to hold.

    The chain rule takes all blocks of one size at once; a joint law is asked for block by block.
    """
    sizes = masks.blocks.sum(-1)[chosen]
    apart = chosen if isinstance(lm, BlockMasked) else sizes
    groups = []
    for label in apart.unique().tolist():
        rows = torch.nonzero(apart == label)[:, 0]
        size = int(sizes[rows[0]])
        states = lm.vocab_size**size
        if states > MAX_STATES:
            raise UserError(
                f"a block of {size} positions has {lm.vocab_size}^{size} states, more than "
                f"the {MAX_STATES} that are enumerated; use smaller blocks"
                + ("" if masks.adaptive else " or draw='in turn'")
            )
        together = max(1, _ENTRIES_AT_ONCE // (states * masks.length))
        groups += [(part, chosen[part]) for part in rows.split(together)]
    return groups


def _jointly(
    lm: Masked,
    tokens: Int[Tensor, "rows length"],
    masks: MaskLaw,
    number: Int[Tensor, " rows"],
    rng: Rng,
) -> Int[Tensor, "rows length"]:
    """Redraw blocks of one size from the laws of all their states."""
    at = positions_of(masks.blocks[number])
    if at.shape[1] == 0:
        return tokens
    if isinstance(lm, BlockMasked):
        log_probs, block = lm.block_log_probs(tokens, at[0].tolist()), at[0].tolist()
        shape, name = (len(tokens), lm.vocab_size ** len(block)), type(lm).__name__
        where = f"for the block {block} of chain"
        check_laws(log_probs, shape, tokens.device, name, lambda row: f"{where} {row}")
    else:
        log_probs = block_log_probs(lm, tokens, masks.blocks[number])
    states = all_sequences(lm.vocab_size, at.shape[1], tokens.device)
    if masks.adaptive:
        every = tokens[:, None].expand(-1, len(states), -1).clone()
        every.scatter_(2, at[:, None].expand(-1, len(states), -1), states.expand(len(at), -1, -1))
        weight = masks.log_prob(every.flatten(0, 1)).reshape(*log_probs.shape, -1)
        mine = number[:, None, None].expand(-1, len(states), 1)
        log_probs = log_conditional(log_probs + weight.gather(2, mine)[..., 0], "the block")
    return tokens.scatter(1, at, states[rng.categorical(log_probs)])


@renamed(oracle="lm")
def block_log_probs(lm: Masked, tokens: Tokens, hidden: Hidden) -> Float[Tensor, "rows states"]:
    """log p(x_K = state | x_-K) by the chain rule from the left, states in lexicographic order.

    Every row hides the same number of positions, not the same ones. Worked value: p uniform on
    {00, 11}, both hidden: (½, 0, 0, ½); what follows a state of probability 0 is not asked.
    """
    check_oracle(lm)
    tokens, hidden = as_masked(tokens, hidden, lm.vocab_size)
    rows, vocab, at = len(tokens), lm.vocab_size, positions_of(hidden)
    out = torch.zeros((rows, 1), dtype=torch.float64, device=tokens.device)
    for j in range(at.shape[1]):
        states = all_sequences(vocab, j, tokens.device)
        row, state = torch.nonzero(out > -torch.inf, as_tuple=True)
        seen = tokens[row].scatter(1, at[row, :j], states[state])
        left = hidden[row].scatter(1, at[row, :j], False)
        laws = laws_at(lm, seen, left, at[row, j])
        longer = torch.full_like(out, -torch.inf)[..., None].repeat(1, 1, vocab)
        longer[row, state] = out[row, state][:, None] + laws.double()
        out = longer.reshape(rows, -1)
    return out


# ------------------------------------------------------------------ many steps


class Traces(NamedTuple):
    """Where the chains end, and what was recorded on the way.

    steps     at which something was recorded, 0 for the start
    values    name of a statistic -> its values, one row per record
    queries   questions asked until then, all chains together, if they were counted
    passes    batches asked until then
    """

    tokens: Int[Tensor, "chains length"]
    steps: list[int]
    values: dict[str, Tensor]
    queries: list[int]
    passes: list[int]


def run(
    step: Callable[[Int[Tensor, "chains length"], Rng], Int[Tensor, "chains length"]],
    tokens: Tokens,
    steps: Count,
    rng: RngLike,
    *,
    record: Mapping[str, Callable[[Int[Tensor, "chains length"]], Tensor]] | None = None,
    every: Count = 1,
    counted: Counted | None = None,
    budget: Count | None = None,
) -> Traces:
    """Move all chains `steps` times; of the states on the way only statistics are kept.

    record    name -> statistic of the states, as `{"sum": lambda x: x.sum(-1)}`; taken at the
              start, at every `every`-th step, and at the end
    counted   the oracle that `step` asks, where questions are to be counted
    budget    no step begins once this many questions were asked, all chains together
    """
    check_callable("step", step, "step(tokens, rng)")
    chains = as_integers("tokens", tokens, dimensions=2)
    rng = as_rng(rng, chains.device)
    steps, every = as_size("steps", steps, at_least=0), as_count("every", every, at_least=1)
    budget = None if budget is None else as_count("budget", budget)
    if budget is not None and counted is None:
        raise UserError("a budget needs counted=Counted(oracle), the oracle that the step asks")
    if counted is not None:
        check_can("counted", counted, "queries", "calls")
    if record is not None and not isinstance(record, Mapping):
        raise UserError(
            f"record is {record!r}; it must be a dict of names and statistics", parameter="record"
        )
    statistics = dict(record or {})
    for name, statistic in statistics.items():
        check_callable(f"record[{name!r}]", statistic, "statistic(tokens)")
    before = (0, 0) if counted is None else (counted.queries, counted.calls)
    traces = Traces(chains, [], {}, [], [])
    kept: dict[str, list[Tensor]] = {name: [] for name in statistics}

    def note(done: int) -> None:
        traces.steps.append(done)
        for name, statistic in statistics.items():
            kept[name].append(_value_of(name, statistic(chains), kept[name]))
        if counted is not None:
            traces.queries.append(counted.queries - before[0])
            traces.passes.append(counted.calls - before[1])

    note(0)
    done = 0
    while done < steps:
        if counted is not None and budget is not None and counted.queries - before[0] >= budget:
            break
        moved = step(chains, rng)
        if not isinstance(moved, Tensor) or moved.shape != chains.shape:
            raise UserError(
                f"the step answered {described(moved)}; it must give back the chains, of shape "
                f"{tuple(chains.shape)}",
                parameter="step",
            )
        chains, done = moved, done + 1
        if done % every == 0:
            note(done)
    if traces.steps[-1] != done:
        note(done)
    return traces._replace(
        tokens=chains, values={name: torch.stack(found) for name, found in kept.items()}
    )


def _value_of(name: str, value: object, before: list[Tensor]) -> Tensor:
    """What a statistic says, as a tensor like those before."""
    try:
        value = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(
            f"record[{name!r}] says {value!r}; it must be a tensor of numbers"
        ) from None
    if before and value.shape != before[0].shape:
        raise UserError(
            f"record[{name!r}] has shape {tuple(value.shape)} and had {tuple(before[0].shape)}; "
            "it must be the same at every step",
            parameter="before",
        )
    return value


class _Joint(Table):
    """A table that also answers for blocks."""

    def block_log_probs(
        self, tokens: Int[Tensor, "batch length"], block: Sequence[int]
    ) -> Float[Tensor, "batch states"]:
        place = places(self.vocab_size, self.length)
        states = all_sequences(self.vocab_size, len(block)) @ place[list(block)]
        kept = [i for i in range(self.length) if i not in block]
        context = tokens[:, kept] @ place[kept]
        return log_conditional(self.log_probs[context[:, None] + states], "what is shown")


def examples() -> dict[str, Chain]:
    """Reversible with respect to the oracle's own law, however blocks are drawn."""
    p, triple = Table.random(2, 3, seed=0), Table.random(3, 2, seed=1)
    joint = _Joint(2, 3, p.log_probs)

    def case(lm: Table, masks: MaskLaw, draw: Draw, order: Order = "left to right") -> Chain:
        def one(tokens: Int[Tensor, "1 length"], rng: Rng) -> Int[Tensor, "1 length"]:
            return step(lm, tokens, masks, rng, draw=draw, order=order)

        return chain(one, lm.as_dict(), reversible=True)

    def looks(tokens: Int[Tensor, "batch 3"]) -> Float[Tensor, "batch 3"]:
        """Where a token is 1 its block is hidden more often, and some blocks never."""
        x = tokens.double()
        return torch.stack([x[:, 0], 2 * x[:, 1], x[:, 2].log()], -1)

    adaptive = MaskLaw.looking(3, [[0, 1], [1, 2], [0, 2]], looks)
    lopsided = MaskLaw.weighted(3, [[0], [1, 2], [0, 1, 2]], [1.0, 2.0, 3.0])
    return {
        "1-Gibbs": case(p, MaskLaw.of_size(3, 1), "in turn"),
        "2-Gibbs": case(p, MaskLaw.of_size(3, 2), "in turn"),
        "2-Gibbs, random order": case(p, MaskLaw.of_size(3, 2), "in turn", "random"),
        "2-Gibbs, jointly": case(p, MaskLaw.of_size(3, 2), "jointly"),
        "3-Gibbs": case(p, MaskLaw.of_size(3, 3), "jointly"),
        "weighted": case(p, lopsided, "in turn"),
        "weighted, jointly": case(p, lopsided, "jointly"),
        "spans": case(p, MaskLaw.spans(3, 2), "in turn"),
        "every rate": case(p, MaskLaw.independent(3, 0.4), "in turn"),
        "adaptive": case(p, adaptive, "jointly"),
        "adaptive, joint oracle": case(joint, adaptive, "jointly"),
        "three letters": case(triple, MaskLaw.of_size(2, 2), "in turn", "random"),
    }
