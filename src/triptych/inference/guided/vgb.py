"""Value-guided sampling with backtracking: a random walk on the tree of prefixes [li, 3.3.1].

At a prefix x of length h the walk stays with probability ½ (lazy) and else moves

    to the parent    with weight V(x)                    (if x is not the root)
    to the child xy  with weight p(y | x) V(xy)          (if x is not a leaf)

The edge (x, xy) then carries the conductance p(xy) V(xy) seen from either end, so the walk is
reversible, its stationary law is π(x) ∝ p(x) [V(x) 1(h > 0) + Σ_y p(y | x) V(xy)], and on the
leaves that is p(x) V(x), whatever V says at the inner nodes.

A look into a node asks the verifier about every child. A model of 50,000 tokens has too many, so
the walk is on a smaller tree there: at a node with more than `candidates` children only the
likeliest ones exist, and p is the model's law on them, normalised. All that is said above holds
for this p. `Info.covered` says how much of the model it is.
"""

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, NamedTuple, Unpack, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder, is_end
from triptych.core.distinct import distinct_rows
from triptych.core.enumeration import exact_transition_matrix
from triptych.core.protocols import Decoder, Draws, NextToken, Rng, Value, VerifierLike
from triptych.core.samplers import Chain, OneShot
from triptych.core.table import Table
from triptych.core.validation import (
    Count,
    Prefix,
    UserError,
    as_count,
    as_flag,
    as_list,
    as_size,
    as_tokens,
    check_can,
)
from triptych.inference.answers import check_laws, values_of
from triptych.inference.guided.algorithm import Algorithm, Shared, option
from triptych.inference.guided.asking import as_verifier
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import check_table
from triptych.inference.guided.result import Reason, Result
from triptych.inference.guided.transforms import of_laws, top_k
from triptych.inference.guided.visited import VisitedTree

Node = tuple[int, ...]
Returned = Literal["leaf", "last", "uniform"]
RETURNS: tuple[Returned, ...] = get_args(Returned)
MAX_LISTED = 2**22
"""Tokens of all nodes of a tree that is listed."""
MAX_ALLOWED = 2**27
"""Rows times steps, where the number of steps is drawn from a table."""
CANDIDATES = 64
"""Children of a node that a walk asks about where no number is given."""


class Info(NamedTuple):
    """steps      of each row, those before a restart included
    restarts   of each row
    stuck      rows that have nowhere to walk: V of everything after the prompt is 0
    visited    nodes in memory, of all rows together
    cut_mass   the most of the model's mass that the transform and the bound on candidates took
               away at a node of the row
    asked      the most children of one node that the verifier was asked about, of each row
    """

    steps: Int[Tensor, " batch"]
    restarts: Int[Tensor, " batch"]
    stuck: Bool[Tensor, " batch"]
    visited: int
    cut_mass: Float[Tensor, " batch"]
    asked: Int[Tensor, " batch"]

    @property
    def covered(self) -> Float[Tensor, " batch"]:
        """The least of the model's mass that the children of a node have; 1 is all of it."""
        return 1 - self.cut_mass


@dataclass(frozen=True)
class Vgb(Algorithm[Info]):
    """Algorithm 2: a walk of each row on the tree of completions of its prompt.

    returns     "leaf": the first leaf reached, within `steps` steps (the thesis' experiments);
                "last": the node after `steps` steps; "uniform": the node after a uniform number of
                1..steps steps (the analysed output)
    restarts    how often a walk that returned no leaf is begun again from its prompt
    remember    a prefix that was visited before costs no question
    share       rows with the same prompt share what they remember
    candidates  children of a node at most, the likeliest ones, ties to the smaller id; None is all
    outcome     the exact value of full strings, where there is one [li, Algorithm 2, line 2]

    With a transform the walk is on the transformed model: children outside its nucleus do not
    exist. A model with at most `candidates` tokens is not cut. `info.asked` and `info.covered` say
    how many children were asked about, and how much of the model they are. A row whose walk never
    returned a leaf is not complete.
    """

    title = "Value-guided sampling with backtracking"
    promise = (
        "after many steps a leaf has the law p(x) V(x), normalised, whatever V says before the "
        "end, where p is the model, cut to its likeliest candidates if it has more tokens; the "
        "first leaf is near it"
    )
    soft = True
    probability = False
    needs = "top_laws"

    steps: int = option(2000, "the longest walk", at_least=1)
    returns: Returned = option("leaf", "what comes out of a walk")
    restarts: int = option(0, "how often a walk without a leaf begins again", at_least=0)
    lazy: bool = option(True, "stay in half of the steps")
    remember: bool = option(True, "ask nothing at a prefix that was visited before")
    share: bool = option(False, "rows with the same prompt share what they remember")
    candidates: int | None = option(
        CANDIDATES, "likeliest tokens asked about at a prefix, at most", at_least=1
    )
    outcome: Value | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outcome is not None:
            check_can("outcome", self.outcome, "log_value")

    def run(self, run: Generation) -> Info:
        """Walk until every row is done."""
        if self.returns == "uniform" and self.steps * run.batch > MAX_ALLOWED:
            raise UserError(
                f"steps is {self.steps} and there are {run.batch} rows; returns='uniform' draws "
                f"from a table of their product, which must be at most {MAX_ALLOWED}",
                parameter="steps",
            )
        if run.draws and self.candidates is None:
            raise UserError(
                "candidates is None, every token; a model that answers draws gives the likeliest "
                "alone: pass a number of them",
                parameter="candidates",
            )
        walk = _Walk(run, self)
        taken = torch.zeros_like(run.start)  # steps of this attempt
        total, begun = torch.zeros_like(taken), torch.zeros_like(taken)
        allowed = _allowed_steps(run, run.every_row(), self.steps, self.returns)
        active = torch.nonzero(~run.finished())[:, 0]
        stuck = torch.zeros_like(run.start, dtype=torch.bool)
        while len(active := run.within_budget(active)):
            rows = walk.ready(active)
            nowhere = walk.tree.stuck(walk.node[rows])
            if nowhere.any():
                stuck[rows[nowhere]] = True
                rows, active = rows[~nowhere], active[~stuck[active]]
                if len(rows) == 0:
                    continue
            walk.step(rows, lazy=self.lazy)
            taken[rows] += 1
            total[rows] += 1
            leaf = walk.tree.leaf[walk.node[rows]]
            over = taken[rows] >= allowed[rows]
            ended = leaf if self.returns == "leaf" else over & leaf
            again = rows[over & ~leaf & (begun[rows] < self.restarts)]
            if len(again):
                walk.restart(again)
                begun[again] += 1
                taken[again] = 0
                allowed[again] = _allowed_steps(run, again, self.steps, self.returns)
            ended = ended | (over & (taken[rows] > 0))
            if ended.any():
                open_rows = torch.ones_like(run.start, dtype=torch.bool)
                open_rows[rows[ended]] = False
                active = active[open_rows[active]]
        run.stop(torch.nonzero(stuck)[:, 0], Reason.NOTHING)
        run.stop(torch.nonzero(~run.finished())[:, 0], Reason.STEPS)
        walked = torch.nonzero(walk.node != walk.root)[:, 0]
        walk.judge.hear(walked, walk.tree.log_value[walk.node[walked]])
        return Info(total, begun, stuck, walk.tree.count, walk.cut_mass, walk.asked)


def sample(
    decoder: Decoder | Draws,
    verifier: VerifierLike,
    *,
    steps: Count,
    returns: Returned = "leaf",
    restarts: Count = 0,
    outcome: Value | None = None,
    lazy: bool = True,
    remember: bool = True,
    share: bool = False,
    candidates: Count | None = CANDIDATES,
    **shared: Unpack[Shared],
) -> Result[Info]:
    """Complete every row by a walk; see `Vgb`."""
    own = {"steps": steps, "returns": returns, "restarts": restarts, "lazy": lazy}
    own |= {"remember": remember, "share": share, "candidates": candidates, "outcome": outcome}
    return Vgb.of(own).sample(decoder, verifier, **shared)


def _allowed_steps(
    run: Generation, rows: Int[Tensor, " rows"], steps: int, returns: Returned
) -> Int[Tensor, " rows"]:
    """How many steps each walk takes: all of them, or 1..steps alike."""
    if returns != "uniform":
        return torch.full_like(rows, steps)
    law = torch.full((len(rows), steps), -math.log(steps), dtype=torch.float64, device=rows.device)
    return run.choose(law, rows) + 1


class _Walk:
    """Where each row stands in the tree, its decoder next to it."""

    def __init__(self, run: Generation, own: Vgb) -> None:
        self.run, self.remember, self.candidates = run, own.remember, own.candidates
        self.judge = copy.copy(run)  # asks about full strings, on the same costs
        if own.outcome is not None:
            self.judge.verifier = as_verifier(own.outcome)
        self.root = run.every_row()
        if own.share:
            prompts = torch.nn.functional.pad(run.decoder.tokens, (0, 1))  # none may be empty
            self.root = distinct_rows(prompts).group
        self.tree = VisitedTree(int(self.root.max()) + 1, self.root.device)
        self.node = self.root.clone()
        self.cut_mass = torch.zeros(run.batch, dtype=torch.float64, device=self.root.device)
        self.asked = torch.zeros_like(self.root)

    def ready(self, active: Int[Tensor, " active"]) -> Int[Tensor, " rows"]:
        """Rows that know where they may go.

        Asking about a few nodes costs a network nearly as much as asking about many: rows at new
        nodes wait until they are most of those that walk, and then all of them are asked about.
        """
        known = self.tree.known[self.node[active]]
        rows = active[known]
        if 2 * len(rows) > len(active):
            return rows
        self._look(active[~known])
        return active

    def step(self, rows: Int[Tensor, " rows"], *, lazy: bool) -> None:
        """One move of every row."""
        tree, run = self.tree, self.run
        here = self.node[rows]
        moves = tree.moves[here]
        first = 1 if lazy else 0
        if lazy:
            half = torch.full_like(moves[:, :1], math.log(0.5))
            moves = torch.cat([half, moves + math.log(0.5)], dim=1)
        move = run.choose(moves, rows) - first
        self._up(rows[move == 0])
        down = move > 0
        self._down(rows[down], move[down] - 1)
        run.note("stay", rows[move < 0], tree.log_value[self.node[rows[move < 0]]])
        if not self.remember:
            tree.known[here[move >= 0]] = False

    def restart(self, rows: Int[Tensor, " rows"]) -> None:
        """Back to the prompt."""
        if len(rows) == 0:
            return
        self.node[rows] = self.root[rows]
        counts = self.run.decoder.lengths[rows] - self.run.start[rows]
        self.run.erase(counts, rows, "restart")

    def _up(self, rows: Int[Tensor, " rows"]) -> None:
        if len(rows) == 0:
            return
        self.node[rows] = self.tree.parent[self.node[rows]]
        every = torch.zeros_like(self.node).index_fill(0, rows, 1)
        self.run.decoder.rollback(every)
        self.run.count("erased", rows)
        self.run.note("up", rows, self.tree.log_value[self.node[rows]])

    def _down(self, rows: Int[Tensor, " rows"], k: Int[Tensor, " rows"]) -> None:
        if len(rows) == 0:
            return
        tokens = self.tree.child_token[self.node[rows], k]
        self.run.decoder.append(tokens, rows)
        self.run.count("generated", rows)
        self.node[rows] = self.tree.enter(self.node[rows], k, self.run.finished()[rows])
        self.run.note("down", rows, self.tree.log_value[self.node[rows]])

    def _look(self, rows: Int[Tensor, " rows"]) -> None:
        """Ask the model and the verifier about the nodes that are not known."""
        if len(rows) == 0:
            return
        nodes, where = self.node[rows].unique(return_inverse=True)
        first = torch.zeros_like(nodes).scatter_reduce(
            0, where, torch.arange(len(rows), device=rows.device), "amin", include_self=False
        )
        rows = rows[first]
        leaf = self.tree.leaf[nodes]
        if leaf.any():
            self.tree.close(nodes[leaf])
        nodes, rows = nodes[~leaf], rows[~leaf]
        if len(rows) == 0:
            return
        self.run.count("generator_calls", rows)
        if self.run.draws:
            assert self.candidates is not None  # `run` refuses that
            whole, beyond = self.run.top_laws(rows, self.candidates)
            self.cut_mass[rows] = torch.maximum(self.cut_mass[rows], beyond)
            log_probs = whole
        else:
            whole = self.run.model_laws(rows)
            log_probs = self._cut(self.run.transformed(whole, rows))
        counts = (log_probs > -torch.inf).sum(-1)
        self.asked[rows] = torch.maximum(self.asked[rows], counts)
        if log_probs is not whole:
            cut = whole.exp().masked_fill(log_probs > -torch.inf, 0.0).sum(-1)
            self.cut_mass[rows] = torch.maximum(self.cut_mass[rows], cut.double())
        self.tree.look_into(nodes, log_probs.double(), self._child_values(rows, log_probs))

    def _cut(self, log_probs: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        """The laws on their likeliest candidates; a law with few children stays as it is."""
        if self.candidates is None or log_probs.shape[1] <= self.candidates:
            return log_probs
        many = (log_probs > -torch.inf).sum(-1) > self.candidates
        if not many.any():
            return log_probs
        likeliest = of_laws(top_k(self.candidates))
        assert likeliest is not None
        return torch.where(many[:, None], likeliest(log_probs), log_probs)

    def _child_values(
        self, rows: Int[Tensor, " rows"], log_probs: Float[Tensor, "rows vocab"]
    ) -> Float[Tensor, "rows vocab"]:
        """log V of every child of positive probability; full strings are judged by `outcome`."""
        run = self.run
        if run.mask_says_all and self.judge.verifier is run.verifier:
            allowed = run.masks(rows) & (log_probs > -torch.inf)
            zeros = torch.zeros_like(log_probs, dtype=torch.float64)
            return zeros.masked_fill(~allowed, -torch.inf)
        place, tokens = torch.nonzero(log_probs > -torch.inf, as_tuple=True)
        parents = rows[place]
        full = run.decoder.lengths[parents] + 1 >= run.limits[run.owner[parents]]
        full = full | is_end(tokens, run.end_token)
        values = torch.full_like(log_probs, -torch.inf, dtype=torch.float64)
        for asked, judge in ((full, self.judge), (~full, run)):
            answers = judge.child_log_values(parents[asked], tokens[asked])
            values[place[asked], tokens[asked]] = answers
        return values


# ---------------------------------------------------------------- one walk, slow and obvious


def move_log_weights(
    prefix: Prefix, lm: NextToken, value: Value, length: Count
) -> Float[Tensor, " moves"]:
    """log-weights of [parent, child 0, …, child vocab-1], -inf for a move that is absent."""
    check_can("lm", lm, "vocab_size", "next_token_log_probs")
    vocab, length = lm.vocab_size, as_size("length", length, at_least=0)
    prefix = as_tokens(prefix, vocab, name="prefix")
    t = prefix.shape[1]
    if len(prefix) != 1 or t > length:
        raise UserError(
            f"prefix has shape {tuple(prefix.shape)}; it must be one row of at most "
            f"{length} tokens",
            parameter="prefix",
        )
    parent = values_of(value, prefix)
    if t == 0:
        parent = torch.full_like(parent, -torch.inf)
    if t == length:
        children = parent.new_full((vocab,), -torch.inf)
    else:
        tokens = torch.arange(vocab, device=prefix.device)[:, None]
        below = torch.cat([prefix.expand(vocab, t), tokens], dim=1)
        law, name = lm.next_token_log_probs(prefix), type(lm).__name__
        check_laws(law, (1, vocab), prefix.device, name, lambda _: f"after {prefix[0].tolist()}")
        children = law[0] + values_of(value, below)
    return torch.cat([parent, children])


def step(
    prefix: Prefix,
    lm: NextToken,
    value: Value,
    length: Count,
    rng: Rng,
    *,
    lazy: bool = True,
) -> Int[Tensor, "1 s"]:
    """One move of the walk. It needs an rng: a seed would make the same move every time."""
    lazy = as_flag("lazy", lazy)
    if isinstance(rng, Integral):
        raise UserError(
            f"rng is {rng}; one step needs an rng that goes on, such as TorchRng({rng}): a seed "
            "would make the same draw at every step",
            parameter="rng",
        )
    check_can("rng", rng, "categorical")
    weights = move_log_weights(prefix, lm, value, length)
    prefix = as_tokens(prefix, lm.vocab_size, name="prefix")
    total = weights.logsumexp(0)
    if torch.isneginf(total):
        raise UserError(
            f"the walk cannot leave {prefix[0].tolist()}: nothing there has a positive value",
            parameter="prefix",
        )
    moves = weights - total
    if lazy:
        half = torch.tensor(0.5, dtype=moves.dtype).log()
        moves = torch.cat([half[None], moves + half])
    move = int(rng.categorical(moves)) - int(lazy)
    if move < 0:
        return prefix
    if move == 0:
        return prefix[:, :-1]
    return torch.cat([prefix, torch.tensor([[move - 1]], device=prefix.device)], dim=1)


def nodes(vocab_size: Count, length: Count) -> list[Node]:
    """Every prefix, the root first, the leaves last."""
    vocab_size, length = as_size("vocab_size", vocab_size), as_size("length", length, at_least=0)
    deep = length > 2**11  # 2^22 tokens even with a vocabulary of one
    if deep or sum(max(1, t) * vocab_size**t for t in range(length + 1)) > MAX_LISTED:
        raise UserError(
            f"the tree of {vocab_size}^{length} strings is too large to list; its nodes may have "
            f"{MAX_LISTED} tokens, all together"
        )
    return [
        node for t in range(length + 1) for node in itertools.product(range(vocab_size), repeat=t)
    ]


def stationary_weights(lm: Table, value: Value) -> dict[Node, float]:
    """π(x) up to a constant: the conductance of all edges at x."""
    check_table(lm)
    weights = {}
    for node in nodes(lm.vocab_size, lm.length):
        prefix = torch.tensor(node, dtype=torch.long).reshape(1, -1)
        mass = lm.log_probs.reshape(lm.vocab_size ** len(node), -1).logsumexp(-1)
        rank = int(sum(x * lm.vocab_size**i for i, x in enumerate(reversed(node))))
        moves = move_log_weights(prefix, lm, value, lm.length).logsumexp(0)
        weights[node] = float((mass[rank] + moves).exp())
    return weights


def walk_step(node: Node, lm: NextToken, value: Value, length: Count, rng: Rng) -> Node:
    """`step` on a node written as a tuple, for enumeration."""
    tokens = [as_count("a token of the node", token) for token in as_list("node", node, "tokens")]
    return tuple(step([tokens], lm, value, length, rng)[0].tolist())


class _Arbitrary:
    """Positive values with no structure at all."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        place = torch.arange(1.0, prefix.shape[1] + 1, dtype=torch.float64)
        return torch.sin(1.0 + (prefix + 1.0).double() @ place)


def examples() -> dict[str, Chain | OneShot]:
    """The walk on the tree of an arbitrary p with an arbitrary positive V; what `sample` returns
    against powers of the walk's transition matrix, leaves absorbing for the first leaf."""
    p, value = Table.random(vocab_size=2, length=3, seed=0), _Arbitrary()
    short = Table.random(vocab_size=2, length=2, seed=1)
    tree = nodes(2, 2)
    matrix = exact_transition_matrix(tree, lambda node, rng: walk_step(node, short, value, 2, rng))

    def case(returned: Returned, steps: int) -> Callable[[Rng], Node]:
        def one(rng: Rng) -> Node:
            decoder = RecomputingDecoder(short, 1)
            result = sample(decoder, value, length=2, steps=steps, returns=returned, rng=rng)
            return result.completions()[0]

        return one

    def as_law(weights: Float[Tensor, " nodes"], tree: list[Node] = tree) -> dict[Node, float]:
        return {x: float(w) for x, w in zip(tree, weights, strict=True) if w > 0}

    wide = Table.random(vocab_size=3, length=2, seed=3)
    narrow = _on_candidates(wide, 2)
    strings = [x for x, q in narrow.as_dict().items() if q > 0]
    small = sorted({x[:t] for x in strings for t in range(3)}, key=lambda node: (len(node), node))
    moves = exact_transition_matrix(small, lambda node, rng: walk_step(node, narrow, value, 2, rng))
    second = torch.linalg.matrix_power(moves, 3)[0]

    def on_two(rng: Rng) -> Node:
        decoder = RecomputingDecoder(wide, 1)
        result = sample(decoder, value, length=2, steps=3, returns="last", candidates=2, rng=rng)
        return result.completions()[0]

    caught = matrix.clone()  # the same walk, but a leaf is never left
    for i, node in enumerate(tree):
        if len(node) == 2:
            caught[i] = torch.eye(len(tree), dtype=matrix.dtype)[i]
    powers = [torch.linalg.matrix_power(matrix, t)[0] for t in range(1, 5)]
    return {
        "arbitrary value": Chain(
            lambda node, rng: walk_step(node, p, value, 3, rng),
            stationary_weights(p, value),
            reversible=True,
        ),
        "last node": OneShot(case("last", 4), as_law(powers[3])),
        "uniform node": OneShot(case("uniform", 3), as_law(torch.stack(powers[:3]).mean(0))),
        "first leaf": OneShot(case("leaf", 4), as_law(torch.linalg.matrix_power(caught, 4)[0])),
        "last node, two candidates of three": OneShot(on_two, as_law(second, small)),
    }


def _on_candidates(lm: Table, most: int) -> Table:
    """The law of strings whose every token is among the `most` likeliest at its prefix."""
    log_probs = []
    for node in itertools.product(range(lm.vocab_size), repeat=lm.length):
        prefixes = [torch.tensor([node[:t]], dtype=torch.long) for t in range(lm.length)]
        laws = [top_k(most)(lm.next_token_log_probs(prefix))[0] for prefix in prefixes]
        log_probs.append(sum(law[token] for law, token in zip(laws, node, strict=True)))
    return Table(lm.vocab_size, lm.length, torch.stack(log_probs))
