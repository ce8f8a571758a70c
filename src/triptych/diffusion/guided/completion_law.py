"""The exact law of a row given that it is in a regular language, by forward-backward.

The row is a chain: a hidden state z_t at every position, and a token that it emits,

    p(x, z) = π(z_1) e_1(z_1, x_1) Π_t A(z_{t-1}, z_t) e_t(z_t, x_t).

A hidden Markov model is one, and what is shown is in its e_t; so is a product of positions, with
one hidden state. Next to z_t walks the state s_t of an automaton, and p(x | x in L) is a chain on
pairs:

    β_t(z, s)  =  the chance that the row is in L, given z_t = z and s_t = s
    R_t(z, s)  =  Σ_w e_t(z, w) β_t(z, δ(s, w))
    β_{t-1}(z, s)  =  Σ_z' A(z, z') R_t(z', s)

A row is drawn from the left, (z_t, the kind of x_t) and then x_t, each by its exact law. Tokens
that the automaton treats alike are one kind, so the cost is states times kinds, not times tokens.

Notation
--------
e   emission    [rows, length, states, vocab]   not normalised where a token is shown
L   automaton   a regular language
"""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Rng
from triptych.diffusion.guided.automaton import Automaton
from triptych.inference.chains.positions import draw

_ENTRIES_AT_ONCE = 2**24


@runtime_checkable
class HiddenMarkov(Protocol):
    """A hidden Markov model on tokens, which is a chain as it stands."""

    @property
    def initial(self) -> Float[Tensor, " states"]: ...

    @property
    def transition(self) -> Float[Tensor, "states states"]: ...

    @property
    def emission(self) -> Float[Tensor, "states vocab"]: ...


class Chain(NamedTuple):
    """A hidden state and a token at every position; see above."""

    initial: Float[Tensor, "rows states"]
    transition: Float[Tensor, "states states"]
    emission: Float[Tensor, "rows length states vocab"]


def product_chain(laws: Float[Tensor, "rows length vocab"]) -> Chain:
    """Positions that are independent, by their log-laws."""
    one = torch.ones((1, 1), dtype=torch.float64, device=laws.device)
    return Chain(one.expand(len(laws), -1), one, laws.double().exp()[:, :, None])


def hidden_markov_chain(
    model: HiddenMarkov,
    tokens: Int[Tensor, "rows width"],
    hidden: Bool[Tensor, "rows width"],
    start: int,
) -> Chain:
    """A hidden Markov model from position `start` on, with evidence where tokens are shown.

    What stands before `start` is shown, and its evidence is in the law of the first state. Worked
    value: π = (½, ½), A = [[¾, ¼], [¼, ¾]], W = [[1, 0], [½, ½]], behind a 1: the state before was
    the second for sure, so the first is (¼, ¾).
    """
    initial, transition = model.initial.double(), model.transition.double()
    emission = model.emission.double()
    front = initial.expand(len(tokens), -1)
    for t in range(start):
        seen = front * emission[:, tokens[:, t]].T
        front = (seen / seen.sum(-1, keepdim=True)) @ transition
    some, holes = tokens[:, start:], hidden[:, start:]
    shown = torch.nn.functional.one_hot(some.masked_fill(holes, 0), emission.shape[1]).bool()
    open_ = (shown | holes[..., None])[:, :, None]
    every = emission.expand(*some.shape, *emission.shape)
    return Chain(front, transition, every.masked_fill(~open_, 0.0))


class CompletionLaw:
    """p(x | x in L) of every row of a chain.

    log_mass   log Σ_{x in L} p(x), of each row; -inf where nothing of the language is possible

    Worked value: two fair bits, independent, L the rows of even sum: log_mass is log ½, and 00 and
    11 have ½ each.
    """

    def __init__(self, chain: Chain, automaton: Automaton) -> None:
        self.chain, self.automaton = chain, automaton.to(chain.emission.device)
        kinds = self.automaton.kinds
        rows, length, states, _ = chain.emission.shape
        self._target = kinds.following.clamp(min=0)
        self._possible = kinds.following >= 0
        by_kind = torch.zeros(
            (rows, length, states, len(kinds.members)), dtype=torch.float64, device=kinds.of.device
        )
        self._by_kind = by_kind.index_add_(-1, kinds.of, chain.emission)
        self.log_mass = self._backward()

    def _backward(self) -> Float[Tensor, " rows"]:
        """Every β_t, each divided by its largest entry; and the logarithm of what they sum to."""
        rows, length, states, _ = self._by_kind.shape
        last = self.automaton.accepting.double().expand(rows, states, -1)
        scale = torch.zeros(rows, dtype=torch.float64, device=last.device)
        self.betas = [last]
        for t in range(length - 1, -1, -1):
            read = self._read(t, self.betas[0])
            if t > 0:
                before = torch.einsum("yz,bzs->bys", self.chain.transition, read)
                largest = before.flatten(1).amax(-1)
                scale += largest.log()
                largest = torch.where(largest > 0, largest, 1.0)
                self.betas.insert(0, before / largest[:, None, None])
            else:
                start = read[:, :, self.automaton.start]
                return scale + (start * self.chain.initial).sum(-1).log()
        return (last[:, :, self.automaton.start] * self.chain.initial).sum(-1).log()

    def _read(
        self, t: int, beta: Float[Tensor, "rows states places"]
    ) -> Float[Tensor, "rows states places"]:
        """R_t."""
        size = max(1, _ENTRIES_AT_ONCE // (beta.shape[1] * self._target.numel()))
        found = []
        for part in torch.arange(len(beta), device=beta.device).split(size):
            reached = beta[part][:, :, self._target] * self._possible
            found.append(torch.einsum("bzk,bzsk->bzs", self._by_kind[part, t], reached))
        return torch.cat(found)

    def draw(self, rng: Rng, owner: Int[Tensor, " rows"]) -> Int[Tensor, "rows length"]:
        """A row of tokens for each row whose mass is above 0; `owner` says whose draw it is.

        Rows of mass 0 come back as -1.
        """
        chain, kinds = self.chain, self.automaton.kinds
        rows, length = chain.emission.shape[:2]
        tokens = torch.full((rows, length), -1, device=owner.device)
        alive = torch.nonzero(~torch.isneginf(self.log_mass))[:, 0]
        place = torch.full((len(alive),), self.automaton.start, device=owner.device)
        state: Int[Tensor, " alive"] | None = None
        for t in range(length):
            if len(alive) == 0:
                break
            moves = chain.initial[alive]
            if state is not None:
                moves = chain.transition[state]
            target = self._target[place]
            rest = self.betas[t][alive]
            reached = rest.gather(2, target[:, None, :].expand(-1, rest.shape[1], -1))
            joint = moves[:, :, None] * self._by_kind[alive, t] * reached
            joint = joint * self._possible[place][:, None, :]
            flat = joint.flatten(1)
            law = (flat / flat.sum(-1, keepdim=True)).log()
            drawn = draw(rng, law, owner[alive])
            state, kind = drawn // joint.shape[2], drawn % joint.shape[2]
            words = chain.emission[alive, t, state].masked_fill(
                kinds.of[None, :] != kind[:, None], 0.0
            )
            law = (words / words.sum(-1, keepdim=True)).log()
            tokens[alive, t] = draw(rng, law, owner[alive])
            place = target.gather(1, kind[:, None])[:, 0]
        return tokens
