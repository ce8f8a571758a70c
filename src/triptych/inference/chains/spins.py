"""Gibbs sampling of spins in blocks, thousands of chains at once [li, 4.1.4.2].

    p(x) ∝ exp(½ sᵀJs + hᵀs),   s_i = 2 x_i - 1
    p(x_i = 1 | the others) = sigmoid(2 (h_i + Σ_j J_ij s_j))

The graph of the couplings is coloured. Sites of one colour do not act on each other, so given all
others they are independent, and drawing each from its conditional draws the whole block from its
joint conditional. Every such step leaves p invariant; a grid has two colours.

`SpinGibbs.sweep` draws through `rng.categorical`, so that its transition matrix can be enumerated.
`SpinGibbs.fast_sweep` has the same law and is what to use for many chains; it has two ways:

tables   up to 8 neighbours a site: the neighbours' tokens, read as a binary number c, name one of
         2^8 conditionals, tabulated once in float64. A draw costs 15 random bits. Bits alone would
         round p to a multiple of 2^-15, so each draw is, by a coin of its own, redone with
         probability ε = 2^-15 from 53 bits with another probability q, where

             p = (1 - ε) T / 2^15 + ε q,   T a whole number in 0..2^15,   0 ≤ q ≤ 1.

         Such T and q exist for every p, so the mixture has probability p, not a rounded one.
fields   any other graph: the fields J s in float64, and 53 random bits a draw.

Either way a conditional probability is right to 2^-52, the rounding of float64.

Notation
--------
x_i in {0, 1}   tokens   [chains, sites]        s_i in {-1, 1}   spins
J   coupling    [sites, sites]                  h   field        [sites]
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, cast, get_args

import torch
from jaxtyping import Float, Int, Int16, UInt8
from torch import Tensor

from triptych.core.display import counted
from triptych.core.logspace import log_normalise
from triptych.core.protocols import Rng
from triptych.core.randomness import RngLike, TorchRng, as_rng, check_goes_on
from triptych.core.samplers import Chain
from triptych.core.table import Table, all_sequences
from triptych.core.validation import (
    Count,
    Numbers,
    Tokens,
    UserError,
    as_count,
    as_floats,
    as_positions,
    as_size,
    as_tokens,
    check_can,
    check_same_device,
    set_fields,
)
from triptych.inference.guided.options import check_choice

Scan = Literal["colours", "random"]
MAX_NEIGHBOURS = 8
"""Beyond this many neighbours of a site, fields are computed and not looked up."""
MAX_PULL = 1e4
"""Of |h_i| + Σ_j |J_ij|: the rounding of larger fields would show in the conditionals."""
MAX_STEPS = 2**24  # of one call
REDONE = 2.0**-15
"""ε: how often a draw of the tables is redone from 53 bits."""
_LEVELS = 2**15
_LOW_BITS = 0x7FFF7FFF7FFF7FFF  # 15 of each 16 bits
_DRAWS_AT_ONCE = {"cpu": 2**17}  # what stays in the cache of a core
_DRAWS_ELSEWHERE = 2**26


def colours(coupling: Numbers) -> list[list[int]]:
    """Sites in classes without couplings inside, each site in the first class that admits it.

    At most (largest number of neighbours) + 1 classes. Worked value: a line 0 - 1 - 2 - 3 has the
    classes [0, 2] and [1, 3]; a triangle needs three.
    """
    coupling = as_floats("coupling", coupling, shape=(None, None), meaning="[sites, sites]")
    as_floats("coupling", coupling, shape=(len(coupling),) * 2)
    neighbours = [set(torch.nonzero(row)[:, 0].tolist()) for row in coupling]
    classes: list[list[int]] = []
    for site, near in enumerate(neighbours):
        free = next((members for members in classes if near.isdisjoint(members)), None)
        if free is None:
            classes.append([site])
        else:
            free.append(site)
    return classes


def split(probs: Numbers) -> tuple[Int[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """T and q with p = (1 - ε) T / 2^15 + ε q, T in 0..2^15 and q in [0, 1], for ε = 2^-15.

    T is the largest whole number with (1 - ε) T / 2^15 ≤ p. Worked values: p = 0 gives T = q = 0;
    p = 1 gives T = 2^15, q = 1; p = ½ gives T = 2^14 and q = (½ - (1 - ε) / 2) / ε = ½.
    """
    probs = as_floats("probs", probs)
    if ((probs < 0) | (probs > 1)).any():
        raise UserError(
            f"probs holds {probs.min().item():g} to {probs.max().item():g}; they must be "
            "probabilities, between 0 and 1",
            parameter="probs",
        )
    whole = (probs * (_LEVELS / (1 - REDONE))).floor().clamp(max=_LEVELS)
    rest = (probs - (1 - REDONE) * whole / _LEVELS) / REDONE
    return whole.long(), rest.clamp(0.0, 1.0)


class _Block(NamedTuple):
    """One colour: rows first..first + size of a state whose sites are in the order of the colours.

    neighbours   rows of each site's neighbours; row 0, with coupling 0, where there are no more
    start        where the 2^degree entries of each site begin in the tables
    below        T - 1: the draw is 1 if 15 random bits are at most this
    redone       q
    """

    first: int
    size: int
    neighbours: list[Int[Tensor, " size"]]
    start: Int[Tensor, "size 1"]
    below: Int16[Tensor, " entries"]
    redone: Float[Tensor, " entries"]


class _Scratch(NamedTuple):
    """What a step writes: codes, one neighbour, places in the tables, T - 1, random bits."""

    code: Tensor
    other: Tensor
    entry: Tensor
    bound: Tensor
    bits: Tensor

    def cut(self, size: int, chains: int) -> "_Scratch":
        """Views for a block of this many sites."""
        used, rows = size * chains, (size, chains)
        code, other, entry = (tensor[:used].view(rows) for tensor in self[:3])
        return _Scratch(code, other, entry, self.bound[:used], self.bits[:used])


@dataclass(frozen=True, eq=False, repr=False)
class SpinGibbs:
    """Gibbs sampling of the Ising model with these couplings and fields, one colour at a time.

    Worked value: two spins, J = ½ log 3, no field. Given x_0 = 1, p(x_1 = 1) = sigmoid(log 3) = ¾.
    """

    coupling: Float[Tensor, "sites sites"]
    field: Float[Tensor, " sites"]

    def __post_init__(self) -> None:
        field = as_floats("field", self.field, shape=(None,), meaning="[sites]")
        sites = as_size("the number of sites of the field", len(field))
        meaning = f"{(sites, sites)}: a system with {sites} field values"
        coupling = as_floats("coupling", self.coupling, shape=(sites, sites), meaning=meaning)
        check_same_device(coupling=coupling, field=field)
        set_fields(self, coupling=coupling, field=field)
        if coupling.diagonal().any() or not torch.equal(coupling, coupling.T):
            raise UserError(
                "coupling must be symmetric with a zero diagonal: conditionals of any other matrix "
                "belong to no common law",
                parameter="coupling",
            )
        pull = field.abs() + coupling.abs().sum(-1)
        if not (pull <= MAX_PULL).all():
            site = int(pull.argmax())
            raise UserError(
                f"at site {site} |h| + Σ |J| is {pull[site].item():.4g}; it must be at most "
                f"{MAX_PULL:g}, since float64 cannot tell larger fields apart"
            )

    def __repr__(self) -> str:
        return f"SpinGibbs({counted(self.sites, 'site')}, {counted(len(self.classes), 'colour')})"

    @property
    def sites(self) -> int:
        return self.field.shape[0]

    @property
    def device(self) -> torch.device:
        return self.field.device

    @cached_property
    def classes(self) -> list[list[int]]:
        """The blocks, one for each colour."""
        return colours(self.coupling)

    @property
    def tabulated(self) -> bool:
        """Whether `fast_sweep` looks conditionals up: no site has more than 8 neighbours."""
        return int((self.coupling != 0).sum(-1).max()) <= MAX_NEIGHBOURS

    # ------------------------------------------------------------------ through the door

    def conditional_log_probs(
        self, tokens: Tokens, at: Sequence[Count]
    ) -> Float[Tensor, "chains at 2"]:
        """log p(x_i = · | the others) for every i in `at`."""
        return self._conditionals(self._as_spins(tokens), as_positions("at", at, self.sites))

    def _conditionals(
        self, tokens: Int[Tensor, "chains sites"], at: list[int]
    ) -> Float[Tensor, "chains at 2"]:
        spins = (2 * tokens - 1).double()
        log_odds = 2 * (self.field[at] + spins @ self.coupling[:, at])
        return torch.nn.functional.logsigmoid(torch.stack([-log_odds, log_odds], dim=-1))

    def step(self, tokens: Tokens, block: Sequence[Count], rng: Rng) -> Int[Tensor, "chains sites"]:
        """The tokens with one class, or a part of it, redrawn given all others."""
        check_goes_on(rng)
        at = as_positions("block", block, self.sites)
        if self.coupling[at][:, at].any():
            raise UserError(
                f"block {at} has couplings inside; `classes` are blocks without any",
                parameter="block",
            )
        return self._step(self._as_spins(tokens), at, rng).to(_dtype(tokens))

    def _step(
        self, tokens: Int[Tensor, "chains sites"], block: list[int], rng: Rng
    ) -> Int[Tensor, "chains sites"]:
        after = tokens.clone()
        after[:, block] = rng.categorical(self._conditionals(tokens, block)).to(after)
        return after

    def sweep(
        self, tokens: Tokens, *, sweeps: Count, rng: RngLike, scan: Scan = "colours"
    ) -> Int[Tensor, "chains sites"]:
        """The tokens after `sweeps` times as many steps as there are colours.

        `scan`: the colours in order, which leaves p invariant, or at each step one drawn uniformly,
        for all chains together, which is reversible too.
        """
        spins, steps = self._as_spins(tokens), self._as_steps(sweeps)
        rng = as_rng(rng, self.device)
        check_choice("scan", scan, get_args(Scan))
        for number in range(steps):
            place = number % len(self.classes)
            if scan == "random":
                uniform = torch.full((1, len(self.classes)), -math.log(len(self.classes)))
                place = int(rng.categorical(uniform.double().to(self.device)))
            spins = self._step(spins, self.classes[place], rng)
        return spins.to(_dtype(tokens))

    def _as_spins(self, tokens: Tokens) -> Int[Tensor, "chains sites"]:
        return as_tokens(tokens, 2, length=self.sites, device=self.device)

    def _as_steps(self, sweeps: Count) -> int:
        count = len(self.classes)
        return as_count("sweeps", sweeps, at_most=MAX_STEPS // count) * count

    # ------------------------------------------------------------------ many chains

    def fast_sweep(
        self, tokens: Tokens, *, sweeps: Count, rng: TorchRng | Count, scan: Scan = "colours"
    ) -> Int[Tensor, "chains sites"]:
        """What `sweep` returns, in law; the stream is drawn from `rng.generator`.

        Chains are independent, but for the colours of a random scan, which they share.
        """
        spins, steps = self._as_spins(tokens), self._as_steps(sweeps)
        check_choice("scan", scan, get_args(Scan))
        rng = cast(TorchRng, as_rng(rng, self.device))
        check_can("rng", rng, "generator", "device")
        if rng.device.type != self.device.type:
            raise UserError(
                f"this rng draws on {rng.device} and the spins are on {self.device}; "
                f"make TorchRng(seed, device={str(self.device)!r})",
                parameter="rng",
            )
        count = len(self.classes)
        order = [number % count for number in range(steps)]
        if scan == "random":
            size, generator = (steps,), rng.generator
            order = torch.randint(count, size, generator=generator, device=rng.device).tolist()
        most = _DRAWS_AT_ONCE.get(self.device.type, _DRAWS_ELSEWHERE)
        parts = math.ceil(len(spins) * max(map(len, self.classes)) / most)
        run = self._by_tables if self.tabulated else self._by_fields
        after = [run(part, order, rng.generator) for part in spins.chunk(max(1, parts))]
        return torch.cat(after).to(_dtype(tokens))

    @cached_property
    def _order(self) -> Int[Tensor, " sites"]:
        """Sites by colour: the rows of a state in the two functions below."""
        return torch.tensor([site for one in self.classes for site in one], device=self.device)

    @cached_property
    def _blocks(self) -> list[_Block]:
        """The tables of every colour."""
        row_of = torch.argsort(self._order).tolist()
        blocks, first = [], 0
        for members in self.classes:
            near = [torch.nonzero(self.coupling[site])[:, 0].tolist() for site in members]
            degree = max(map(len, near))
            rows = torch.zeros(len(members), degree, dtype=torch.long)
            pulls = torch.zeros(len(members), degree, dtype=torch.float64)
            for k, (site, others) in enumerate(zip(members, near, strict=True)):
                rows[k, : len(others)] = torch.tensor([row_of[j] for j in others])
                pulls[k, : len(others)] = self.coupling[site, others].cpu()
            digits = all_sequences(2, degree).flip(-1)  # digit k of code c is c // 2^k % 2
            fields = self.field[members].cpu()[:, None] + pulls @ (2 * digits - 1).double().T
            whole, rest = split(torch.sigmoid(2 * fields).reshape(-1))
            starts = torch.arange(len(members), dtype=torch.int32)[:, None] * 2**degree
            blocks.append(
                _Block(
                    first,
                    len(members),
                    list(rows.T.contiguous().to(self.device)),
                    starts.to(self.device),
                    (whole - 1).to(torch.int16).to(self.device),
                    rest.to(self.device),
                )
            )
            first += len(members)
        return blocks

    def _by_tables(
        self, tokens: Int[Tensor, "chains sites"], order: list[int], generator: torch.Generator
    ) -> UInt8[Tensor, "chains sites"]:
        """Blocks redrawn in this order; a state is [sites by colour, chains]."""
        chains, device = len(tokens), self.device
        state = tokens.T[self._order].to(torch.uint8).contiguous()
        draws = chains * max(block.size for block in self._blocks)
        scratch = _Scratch(
            torch.zeros(draws, dtype=torch.uint8, device=device),
            torch.empty(draws, dtype=torch.uint8, device=device),
            torch.empty(draws, dtype=torch.int32, device=device),
            torch.empty(draws, dtype=torch.int16, device=device),
            torch.empty(-(-draws // 4) * 4, dtype=torch.int16, device=device),
        )
        words = scratch.bits.view(torch.int64)
        parts = [scratch.cut(block.size, chains) for block in self._blocks]
        drawn = [state[block.first : block.first + block.size].view(-1) for block in self._blocks]
        for place, lanes in zip(order, _redone(len(order), draws, generator), strict=True):
            block, (code, other, entry, bound, bits) = self._blocks[place], parts[place]
            for k, near in enumerate(block.neighbours):
                torch.index_select(state, 0, near, out=other if k else code)
                if k:
                    code.add_(other, alpha=2**k)
            entry.copy_(code).add_(block.start)
            torch.index_select(block.below, 0, entry.view(-1), out=bound)
            words.random_(generator=generator).bitwise_and_(_LOW_BITS)
            torch.le(bits, bound, out=drawn[place])
            if len(lanes):
                if len(bits) < draws:  # a smaller block does not use all draws
                    lanes = lanes[lanes < len(bits)]
                probs = block.redone.index_select(0, entry.view(-1).index_select(0, lanes))
                again = torch.rand(
                    probs.shape, generator=generator, dtype=torch.float64, device=device
                )
                drawn[place].index_copy_(0, lanes, (again < probs).to(torch.uint8))
        return state.T[:, torch.argsort(self._order)]

    def _by_fields(
        self, tokens: Int[Tensor, "chains sites"], order: list[int], generator: torch.Generator
    ) -> UInt8[Tensor, "chains sites"]:
        """The same with the fields of a block from a product of matrices."""
        coupling = self.coupling[self._order][:, self._order]
        field = self.field[self._order, None]
        spins = (2 * tokens.T[self._order] - 1).double()
        starts = [0, *torch.tensor([len(members) for members in self.classes]).cumsum(0).tolist()]
        for place in order:
            rows = slice(starts[place], starts[place + 1])
            probs = torch.addmm(field[rows], coupling[rows], spins).mul_(2).sigmoid_()
            uniform = torch.rand(
                probs.shape, generator=generator, dtype=torch.float64, device=self.device
            )
            torch.lt(uniform, probs, out=spins[rows])
            spins[rows].mul_(2).sub_(1)
        return (spins > 0).to(torch.uint8).T[:, torch.argsort(self._order)]


def _dtype(tokens: Tokens) -> torch.dtype:
    """Chains keep the type of their tokens, which may be small to save memory."""
    return tokens.dtype if isinstance(tokens, Tensor) else torch.long


def _redone(steps: int, draws: int, generator: torch.Generator) -> list[Int[Tensor, " lanes"]]:
    """Which draws of each step are redone: each with probability ε, so the gaps are geometric."""
    last, found = -1, [torch.zeros(0, dtype=torch.long, device=generator.device)]
    while last < steps * draws - 1:
        size = int(steps * draws * REDONE * 1.1) + 16
        uniform = torch.rand(
            size, generator=generator, dtype=torch.float64, device=generator.device
        )
        gaps = 1 + (torch.log1p(-uniform) / math.log1p(-REDONE)).floor().long()
        found.append(last + gaps.cumsum(0))
        last = int(found[-1][-1])
    every = torch.cat(found)
    every = every[every < steps * draws]
    counts = torch.bincount(every // max(1, draws), minlength=steps).tolist()
    return list((every % max(1, draws)).split(counts)) if steps else []


# ---------------------------------------------------------------------- the promise


def _target(gibbs: SpinGibbs) -> dict[tuple[int, ...], float]:
    """p of every state, by enumeration."""
    every = all_sequences(2, gibbs.sites)
    spins = (2 * every - 1).double()
    log_weights = 0.5 * ((spins @ gibbs.coupling) * spins).sum(-1) + spins @ gibbs.field
    return Table(2, gibbs.sites, log_normalise(log_weights)).as_dict()


def _chain(pairs: dict[tuple[int, int], float], field: list[float], scan: Scan) -> Chain:
    coupling = torch.zeros(len(field), len(field), dtype=torch.float64)
    for (i, j), value in pairs.items():
        coupling[i, j] = coupling[j, i] = value
    gibbs = SpinGibbs(coupling, torch.tensor(field, dtype=torch.float64))

    def step(state: tuple[int, ...], rng: Rng) -> tuple[int, ...]:
        after = gibbs.sweep(torch.tensor([state]), sweeps=1, rng=rng, scan=scan)
        return tuple(after[0].tolist())

    return Chain(step, _target(gibbs), reversible=scan == "random")


def examples() -> dict[str, Chain]:
    """Every sweep leaves p invariant; one that draws its colours at random is reversible."""
    square = {(0, 1): 0.7, (1, 3): -0.4, (2, 3): 0.3, (0, 2): 0.9}
    tailed = {(0, 1): 0.5, (1, 2): 0.8, (0, 2): -0.6, (2, 3): 1.1}
    return {
        "square, colours in order": _chain(square, [0.2, -0.1, 0.0, 0.4], "colours"),
        "square, random colours": _chain(square, [0.2, -0.1, 0.0, 0.4], "random"),
        "triangle with a tail": _chain(tailed, [0.1, 0.0, -0.3, 0.2], "colours"),
    }
