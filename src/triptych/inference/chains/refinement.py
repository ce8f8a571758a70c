"""Parallel decoding by iterative refinement: all positions are written again, T times [li, 4.2.2].

A refiner reads a whole hypothesis and answers one law for every position, in one parallel pass. A
step takes the most probable token of each law (or draws one), at all positions at once:

    X^(t+1)_i = argmax_w p_i(w | X^(t))     for every i                          [li, Eq. 4.9]

Given X^(t) the new tokens know nothing of one another, so two neighbours may both take a word that
belongs into the sentence once. Such a stutter, a token equal to its left neighbour, is replaced
before the next step (`stutter`) and dropped at the end (`drop_stutter`) [li, 4.2.3].

    random_start, mask_start   the first hypothesis
    refine                     T steps; a row that does not change any more stops
    drop_stutter               each run of equal tokens becomes one token
    best_hypotheses            of several hypotheses for one sentence, the most probable
    MaskedRefiner              any `Masked` oracle as a refiner

Rows have lengths of their own: what stands beyond the end of a row is never read or written.
"""

import time
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.deprecation import renamed, renamed_fields
from triptych.core.protocols import Masked, Rng
from triptych.core.randomness import RngLike, as_rng
from triptych.core.samplers import OneShot
from triptych.core.streams import RowStreams
from triptych.core.table import Table, all_sequences
from triptych.core.validation import (
    Count,
    Numbers,
    Tokens,
    UserError,
    as_count,
    as_flag,
    as_floats,
    as_integers,
    as_size,
    check_can,
    set_fields,
)
from triptych.inference.answers import check_answer, check_sums, described
from triptych.inference.chains.sequences import check_oracle, masked_answer
from triptych.inference.guided.costs import Costs
from triptych.inference.guided.options import check_choice

Stutter = Literal["previous", "initial", "mask", "random", "keep"]
Score = Literal["mean", "sum"]

SAME = 1e-9
"""Log-probabilities closer than this are equal, and the lowest token is taken."""
MAX_TOKENS = 2**30
"""Of all hypotheses that are begun together."""
_ENTRIES_AT_ONCE = 2**22


@runtime_checkable
class Refiner(Protocol):
    """A model that reads hypotheses and answers with a law for every position.

    What it is conditioned on, such as the encoded source of each row, it holds itself; row b of
    the hypotheses always belongs to row b of that.
    """

    def log_probs(
        self, hypotheses: Int[Tensor, "batch length"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch length vocab"]:
        """log p_i(· | hypothesis), for all positions in one pass; beyond a length, anything."""
        ...


class Iteration(NamedTuple):
    """One step of refinement.

    hypotheses   what the refiner read
    tokens       what it answered: the most probable tokens, or those drawn
    log_probs    their log-probabilities; 0 beyond the length
    replaced     stutter that was replaced in `tokens` before the next step
    active       rows that took part; the others had stopped before
    """

    hypotheses: Int[Tensor, "batch length"]
    tokens: Int[Tensor, "batch length"]
    log_probs: Float[Tensor, "batch length"]
    replaced: Bool[Tensor, "batch length"]
    active: Bool[Tensor, " batch"]


class Refined(NamedTuple):
    """What came of a refinement.

    tokens      the last answer for each row, stutter included
    log_probs   what the refiner gave these tokens in the last pass of each row; 0 beyond the length
    steps       passes that each row took part in
    trace       every step, if `record` was set; else empty
    costs       questions, tokens written and replaced for each row, and passes of the batch
    """

    tokens: Int[Tensor, "batch length"]
    log_probs: Float[Tensor, "batch length"]
    steps: Int[Tensor, " batch"]
    trace: tuple[Iteration, ...]
    costs: Costs


# ------------------------------------------------------------------ the first hypothesis


@renamed(vocab="vocab_size")
def random_start(
    lengths: Numbers, vocab_size: Count, rng: RngLike, *, lowest: Count = 0
) -> Int[Tensor, "batch length"]:
    """Every token uniform on lowest..vocab_size-1; 0 beyond the length of a row.

    `lowest` leaves out special tokens that stand at the beginning of a vocabulary.
    """
    lengths = _as_lengths(lengths)
    vocab_size, lowest = as_size("vocab_size", vocab_size), as_count("lowest", lowest)
    rng = as_rng(rng, lengths.device)
    return _random_tokens(_inside(lengths, int(lengths.max())), vocab_size, lowest, rng)


def mask_start(lengths: Numbers, mask_token: Count) -> Int[Tensor, "batch length"]:
    """The mask token everywhere; 0 beyond the length of a row."""
    lengths = _as_lengths(lengths)
    mask_token = as_size("mask_token", mask_token, at_least=0)
    inside = _inside(lengths, int(lengths.max()))
    return torch.where(inside, mask_token, 0)


# ------------------------------------------------------------------ refinement


def refine(
    refiner: Refiner,
    initial: Tokens,
    lengths: Numbers,
    *,
    steps: Count,
    stutter: Stutter = "previous",
    stop_when_stable: bool = True,
    record: bool = False,
    sample: bool = False,
    rng: RngLike | None = None,
    mask_token: Count | None = None,
    lowest: Count = 0,
) -> Refined:
    """Write every position again, at most `steps` times, each time from one answer.

    stutter            what replaces a token that equals its left neighbour, between two steps:
                       previous   the token that the refiner read at this position
                       initial    the token of the first hypothesis
                       mask       `mask_token`
                       random     a token drawn uniformly from lowest..vocab-1
                       keep       nothing; the token stays
    stop_when_stable   a row stops when its next hypothesis is the one that it was made from. It
                       does not stop after a step in which a random token was put in.
    sample             draw each token from its law; else take the most probable one. Where some
                       are equal, this is the lowest.

    The tokens that come out are the last answer: stutter is replaced between steps, not after the
    last one. `drop_stutter` removes it.

    Worked value: two positions, both with the law (0.6, 0.4) whatever is read. One step writes
    0 0 from every start.
    """
    check_can("refiner", refiner, "log_probs")
    lengths = _as_lengths(lengths)
    initial = _as_hypotheses("initial", initial, lengths)
    steps = as_count("steps", steps, at_least=1)
    check_choice("stutter", stutter, get_args(Stutter))
    stop_when_stable = as_flag("stop_when_stable", stop_when_stable)
    record, sample = as_flag("record", record), as_flag("sample", sample)
    lowest = as_count("lowest", lowest)
    mask = _as_mask_token(mask_token, stutter)
    door = _as_door(rng, sample, stutter, initial.device)
    inside = _inside(lengths, initial.shape[1])
    began = time.perf_counter()

    hypotheses, tokens = initial, initial.clone()
    log_probs = torch.zeros(initial.shape, dtype=torch.float64, device=initial.device)
    active = torch.ones_like(lengths, dtype=torch.bool)
    costs, trace = Costs.empty(len(initial), initial.device), []
    for step in range(steps):
        asked = time.perf_counter()
        laws = refiner.log_probs(hypotheses, lengths)
        costs.generator_seconds += time.perf_counter() - asked
        costs.forward_passes += 1
        written = inside & active[:, None]
        at = _written_laws(laws, initial, written, refiner)
        answer = _draw(at, written, door) if sample else _most_probable(at)
        tokens = tokens.masked_scatter(written, answer)
        chosen = at.gather(-1, answer[:, None])[:, 0].double()
        log_probs = log_probs.masked_scatter(written, chosen)
        costs.generator_calls += active.long()
        costs.generated += written.sum(-1)

        last = step == steps - 1
        replaced = torch.zeros_like(inside)
        if not last and stutter != "keep":
            replaced = stutters(tokens, lengths) & written
        costs.erased += replaced.sum(-1)
        instead = hypotheses if stutter == "previous" else initial
        if stutter == "mask":
            instead = torch.full_like(tokens, mask)
        if stutter == "random":
            instead = _random_tokens(replaced, laws.shape[-1], lowest, door)
        following = torch.where(replaced, instead, tokens)
        if record:
            trace.append(Iteration(hypotheses, tokens, log_probs, replaced, active))
        if stop_when_stable:
            stable = ((following == hypotheses) | ~inside).all(-1)
            if stutter == "random":
                stable &= ~replaced.any(-1)
            active = active & ~stable
        hypotheses = following
        if last or not active.any():
            break
    costs.seconds = time.perf_counter() - began
    return Refined(tokens, log_probs, costs.generator_calls.clone(), tuple(trace), costs)


def stutters(tokens: Tokens, lengths: Numbers) -> Bool[Tensor, "batch length"]:
    """Where a token equals its left neighbour in the same row.

    Worked value: 3 3 3 1: the second and the third position. The first has no left neighbour.
    """
    lengths = _as_lengths(lengths)
    tokens = _as_hypotheses("tokens", tokens, lengths)
    repeated = torch.zeros_like(tokens, dtype=torch.bool)
    repeated[:, 1:] = tokens[:, 1:] == tokens[:, :-1]
    return repeated & _inside(lengths, tokens.shape[1])


def drop_stutter(
    tokens: Tokens, lengths: Numbers, *, fill: Count = 0
) -> tuple[Int[Tensor, "batch length"], Int[Tensor, " batch"]]:
    """Each run of equal tokens becomes one token; the new rows, and their lengths.

    The rows keep their width: `fill` stands beyond the new ends.

    Worked value: 3 3 1 1 1 3 becomes 3 1 3.
    """
    lengths = _as_lengths(lengths)
    tokens = _as_hypotheses("tokens", tokens, lengths)
    fill = as_size("fill", fill, at_least=0)
    kept = _inside(lengths, tokens.shape[1]) & ~stutters(tokens, lengths)
    order = (~kept).long().argsort(dim=-1, stable=True)
    shorter = kept.sum(-1)
    dropped = tokens.gather(1, order).masked_fill(~_inside(shorter, tokens.shape[1]), fill)
    return dropped, shorter


# ------------------------------------------------------------------ several hypotheses


def scores(log_probs: Numbers, lengths: Numbers, *, by: Score = "mean") -> Float[Tensor, " batch"]:
    """Σ_i log p_i of each row, or its mean over the positions.

    The sum prefers short hypotheses, because each position has a log-probability below 0.

    Worked value: log-probabilities -1, -3 and then nothing: the sum is -4, the mean -2.
    """
    lengths = _as_lengths(lengths)
    if isinstance(log_probs, Tensor) and log_probs.is_floating_point():
        log_probs = log_probs.double()
    each = as_floats("log_probs", log_probs, shape=(len(lengths), None), finite=False)
    _check_width("log_probs", each, lengths)
    check_choice("by", by, get_args(Score))
    total = torch.where(_inside(lengths, each.shape[1]), each, 0.0).sum(-1)
    return total / lengths if by == "mean" else total


def best_hypotheses(
    log_probs: Numbers, lengths: Numbers, *, each: Count, by: Score = "mean"
) -> Int[Tensor, " sentences"]:
    """The row of the best hypothesis of every sentence, when `each` rows in turn belong to one.

    Of equal ones the first. Worked value: scores -1, -2, -4, -3 with two hypotheses a sentence:
    rows 0 and 3.
    """
    found = scores(log_probs, lengths, by=by)
    each = as_size("each", each)
    if len(found) % each:
        raise UserError(
            f"each is {each} and there are {len(found)} rows; every sentence must have {each} "
            "hypotheses",
            parameter="each",
        )
    grouped = found.reshape(-1, each)
    best = (grouped >= grouped.amax(-1, keepdim=True) - SAME).long().argmax(-1)
    return best + torch.arange(len(grouped), device=best.device) * each


# ------------------------------------------------------------------ a masked oracle as a refiner


@renamed_fields(oracle="lm")
@dataclass(frozen=True)
class MaskedRefiner:
    """Any `Masked` oracle as a refiner: the law of each position given all the others.

    p_i(· | x) = p(x_i = · | x_-i), one question for each position, in one batch. Where x holds
    `mask_token`, the oracle is told that the position is hidden, for the other positions too. All
    rows must have the same length, because a structure has one.

    One step with draws is `parallel.independent_step`; the first step from masks alone gives the
    product of the marginals. Evidence of probability 0 has no conditional and raises.
    """

    lm: Masked
    mask_token: int | None = None

    def __post_init__(self) -> None:
        check_oracle(self.lm)
        if self.mask_token is not None:
            set_fields(self, mask_token=as_size("mask_token", self.mask_token, at_least=0))

    def log_probs(
        self, hypotheses: Tokens, lengths: Numbers
    ) -> Float[Tensor, "batch length vocab"]:
        """log p(x_i = · | x_-i) for every position i."""
        lengths = _as_lengths(lengths)
        rows = _as_hypotheses("hypotheses", hypotheses, lengths)
        width = rows.shape[1]
        if (lengths != width).any():
            raise UserError(
                f"lengths are {lengths.tolist()[:8]} and rows have {width} tokens; the rows of a "
                "masked oracle are full",
                parameter="lengths",
            )
        masked = torch.zeros_like(rows, dtype=torch.bool)
        if self.mask_token is not None:
            masked = rows == self.mask_token
        each = torch.eye(width, dtype=torch.bool, device=rows.device)
        vocab = self.lm.vocab_size
        at_once = max(1, _ENTRIES_AT_ONCE // (width * width * max(width, vocab)))
        laws = []
        for part, hidden in zip(rows.split(at_once), masked.split(at_once), strict=True):
            asked = part.repeat_interleave(width, 0)
            unseen = hidden.repeat_interleave(width, 0) | each.repeat(len(part), 1)
            answer = masked_answer(self.lm, asked, unseen)
            answer = answer.reshape(len(part), width, width, -1)
            laws.append(answer.diagonal(dim1=1, dim2=2).movedim(-1, 1))
        return torch.cat(laws)


# ------------------------------------------------------------------ parts


def _as_lengths(lengths: Numbers) -> Int[Tensor, " batch"]:
    lengths = as_integers("lengths", lengths, dimensions=1)
    if len(lengths) == 0:
        raise UserError(
            "lengths is empty; there must be one for every row, and at least one row",
            parameter="lengths",
        )
    if int(lengths.min()) < 1:
        raise UserError(
            f"lengths holds {int(lengths.min())}; every row has at least one token",
            parameter="lengths",
        )
    if int(lengths.max()) * len(lengths) > MAX_TOKENS:
        raise UserError(
            f"lengths holds {int(lengths.max())} and there are {len(lengths)} rows; at most "
            f"{MAX_TOKENS} tokens are held together",
            parameter="lengths",
        )
    return lengths


def _as_hypotheses(
    name: str, tokens: Tokens, lengths: Int[Tensor, " batch"]
) -> Int[Tensor, "batch length"]:
    rows = as_integers(name, tokens, dimensions=2, device=lengths.device)
    if len(rows) != len(lengths):
        raise UserError(
            f"{name} has {len(rows)} rows and lengths has {len(lengths)} numbers", parameter=name
        )
    _check_width(name, rows, lengths)
    read = rows.masked_fill(~_inside(lengths, rows.shape[1]), 0)
    if int(read.min()) < 0:
        raise UserError(
            f"{name} holds {int(read.min())}; tokens are numbers from 0", parameter=name
        )
    return rows


def _check_width(name: str, rows: Tensor, lengths: Int[Tensor, " batch"]) -> None:
    if rows.shape[1] < int(lengths.max()):
        raise UserError(
            f"lengths holds {int(lengths.max())} and {name} has only {rows.shape[1]} positions",
            parameter="lengths",
        )


def _as_mask_token(mask_token: Count | None, stutter: Stutter) -> int:
    if mask_token is not None:
        return as_size("mask_token", mask_token, at_least=0)
    if stutter == "mask":
        raise UserError(
            "stutter is 'mask' and mask_token is None; say which token the mask is",
            parameter="stutter",
        )
    return 0


def _as_door(rng: RngLike | None, sample: bool, stutter: Stutter, device: torch.device) -> Rng:
    if rng is not None:
        return as_rng(rng, device)
    if sample or stutter == "random":
        why = "sample is True" if sample else "stutter is 'random'"
        raise UserError(
            f"{why} and rng is None; pass an rng, or a seed such as rng=0", parameter="rng"
        )
    return as_rng(0, device)  # nothing is drawn from it


def _written_laws(
    laws: Tensor,
    hypotheses: Int[Tensor, "batch length"],
    written: Bool[Tensor, "batch length"],
    refiner: Refiner,
) -> Float[Tensor, "written vocab"]:
    """What the refiner answered at the positions that are written, which must be laws."""
    name = type(refiner).__name__
    if not isinstance(laws, Tensor) or laws.ndim != 3 or laws.shape[-1] == 0:
        raise UserError(
            f"the refiner ({name}) answered {described(laws)}; it must answer log-probabilities of "
            f"shape [{len(hypotheses)}, {hypotheses.shape[1]}, vocab]",
            parameter="refiner",
        )
    check_answer(laws, (*hypotheses.shape, laws.shape[-1]), hypotheses.device, name)
    asked = laws[written]
    if laws.dtype == torch.float64:
        where = torch.nonzero(written)
        check_sums(asked, name, lambda k: "at row {}, position {}".format(*where[k].tolist()))
    elif bool(asked.isnan().any()):  # the sums of a large network cost more than they tell
        raise UserError(
            f"the refiner ({name}) answered nan; it must answer log-probabilities",
            parameter="refiner",
        )
    return asked


def _most_probable(laws: Float[Tensor, "written vocab"]) -> Int[Tensor, " written"]:
    """The argmax of each law; of tokens that are equal up to rounding, the lowest."""
    return (laws >= laws.amax(-1, keepdim=True) - SAME).to(torch.uint8).argmax(-1)


def _draw(
    laws: Float[Tensor, "laws outcomes"],
    chosen: Bool[Tensor, "batch length"],
    rng: Rng,
    which: Int[Tensor, " chosen"] | None = None,
) -> Int[Tensor, " chosen"]:
    """One draw for each chosen position; an rng with a stream for each row uses the row's own."""
    if isinstance(rng, RowStreams):
        return rng.of(torch.nonzero(chosen)[:, 0]).categorical(laws, which)
    return rng.categorical(laws, which)


def _random_tokens(
    chosen: Bool[Tensor, "batch length"], vocab: int, lowest: int, rng: Rng
) -> Int[Tensor, "batch length"]:
    """A token uniform on lowest..vocab_size-1 at each chosen position, 0 elsewhere."""
    if lowest >= vocab:
        raise UserError(
            f"lowest is {lowest}; it must be below the vocabulary's size, {vocab}",
            parameter="lowest",
        )
    law = torch.zeros(vocab - lowest, dtype=torch.float64, device=chosen.device).log_softmax(-1)
    one = torch.zeros(int(chosen.sum()), dtype=torch.long, device=chosen.device)
    drawn = lowest + _draw(law[None], chosen, rng, one)
    return torch.zeros_like(chosen, dtype=torch.long).masked_scatter(chosen, drawn)


def _inside(lengths: Int[Tensor, " batch"], width: int) -> Bool[Tensor, "batch width"]:
    return torch.arange(width, device=lengths.device) < lengths[:, None]


# ------------------------------------------------------------------ promises


def examples() -> dict[str, OneShot]:
    """Laws by other ways: products of marginals, and sums over what was written before."""
    p = Table.random(2, 3, seed=0)
    pair = Table.random(2, 2, seed=1)

    def attempted(lm: Table, steps: int, stutter: Stutter, *, masks: bool) -> OneShot:
        """Sampled steps from masks or from a random start, and their law by sums."""
        refiner = MaskedRefiner(lm, mask_token=lm.vocab_size)

        def one(rng: Rng) -> tuple[int, ...]:
            lengths, mask = torch.tensor([lm.length]), lm.vocab_size
            start = mask_start(lengths, mask) if masks else random_start(lengths, mask, rng)
            options = {"stop_when_stable": False, "sample": True, "mask_token": mask}
            out = refine(refiner, start, lengths, steps=steps, stutter=stutter, rng=rng, **options)
            return tuple(out.tokens[0].tolist())

        return OneShot(one, _by_sums(lm, steps, stutter, masks=masks))

    return {
        "one step from masks": attempted(p, 1, "previous", masks=True),
        "one step from a random start": attempted(pair, 1, "previous", masks=False),
        "two steps from masks, stutter kept": attempted(pair, 2, "keep", masks=True),
        "two steps, stutter masked": attempted(pair, 2, "mask", masks=False),
    }


def _by_sums(
    p: Table, steps: int, stutter: Stutter, *, masks: bool
) -> dict[tuple[int, ...], float]:
    """The law of the output by sums over the table, with no sampler and no refiner."""
    mask, length = p.vocab_size, p.length
    grid = p.log_probs.exp().reshape([mask] * length)
    every = [tuple(x) for x in all_sequences(mask, length).tolist()]

    def law(i: int, x: tuple[int, ...]) -> list[float]:
        rest = [
            slice(None) if j == i or x[j] == mask else slice(x[j], x[j] + 1) for j in range(length)
        ]
        left = grid[tuple(rest)].sum([j for j in range(length) if j != i])
        return (left / left.sum()).tolist()

    def step(x: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        laws = [law(i, x) for i in range(length)]
        out = {}
        for y in every:
            out[y] = 1.0
            for i, token in enumerate(y):
                out[y] *= laws[i][token]
        return out

    def masked(y: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(mask if i and y[i - 1] == y[i] else y[i] for i in range(length))

    current = {(mask,) * length: 1.0} if masks else dict.fromkeys(every, 1 / len(every))
    for number in range(steps):
        following: dict[tuple[int, ...], float] = {}
        for x, mass in current.items():
            for y, prob in step(x).items():
                shown = masked(y) if stutter == "mask" and number < steps - 1 else y
                following[shown] = following.get(shown, 0.0) + mass * prob
        current = following
    return current
