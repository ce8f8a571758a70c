"""A decoder over a causal network that keeps every layer's keys and values.

Each token goes through the network once; rollback only lowers a length.

Slot 0 of the cache is the start token and slot s > 0 the row's s-th token, so a row of n tokens
needs slots 0..n to be asked for its next token. Tokens are run when something is asked of their
row, not when they are appended: the last token of a full row never is. Long prompts of many rows
are run some rows at a time: what a layer computes then stays in the processor's cache.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import Prefixes
from triptych.core.distinct import distinct_rows
from triptych.core.validation import Count, Numbers, UserError, as_count, as_size
from triptych.models.compiled_layers import attend_rows, is_attended, packed
from triptych.models.language_models import CausalLM
from triptych.models.layers import Block

_SLOTS_ON_A_CPU = 2048  # run at once; a layer of width 512 then keeps 4 MB for each of its results
_SLOTS_ON_A_GPU = 65536
_ROWS_COPIED = 64
_NEIGHBOURS = 16  # rows in a run that pays


class CachedDecoder(Prefixes):
    """A `Decoder` over a causal network that runs each token once.

    Rows hold at most `lm.length` tokens; a row of that many has no next token and no state.
    The cache is of the network's weights as they were when the tokens were run; with
    `use_compiled`, as they were when the decoder was made. `layer` names the states a verifier
    sees: 0 is the embedding, l the output of the l-th block, -1 the last.
    """

    def __init__(self, lm: CausalLM, batch: Count, *, layer: Count = -1) -> None:
        if not isinstance(lm, CausalLM):
            raise UserError(f"lm is a {type(lm).__name__}; it must be a CausalLM", parameter="lm")
        batch, layer = as_size("batch", batch), as_count("layer", layer, at_least=None)
        weight, shape = next(lm.net.parameters()), lm.net.shape
        if not -1 <= layer <= shape.layers:
            raise UserError(
                f"layer is {layer}; this network has 0 to {shape.layers}, or -1", parameter="layer"
            )
        self.layer = shape.layers if layer == -1 else layer
        super().__init__(batch, lm.vocab_size, lm.length, weight.device)
        self.lm, self._blocks = lm, packed(lm.net.blocks)
        self._known = torch.zeros_like(self._lengths)  # slots that are filled
        self._spent, self._passes = [0], [0]  # shared with forks
        # Zeros and not whatever stands in memory: 0 times nan would be nan.
        heads = (shape.layers, batch, shape.length, shape.heads, shape.head_width)
        self._keys, self._values = _zeros(weight, *heads), _zeros(weight, *heads)
        self._states = _zeros(weight, batch, shape.length, shape.width)
        last = self.layer == shape.layers
        self._seen = self._states if last else torch.zeros_like(self._states)

    @torch.no_grad()
    def next_log_probs(self, rows: Numbers | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the prefix of each row), float64; of the given rows only, if they are named."""
        rows = self._asked(rows)
        self._run_pending(rows)
        return self.lm.log_probs_of(self.lm.net.read_out(self._states[rows, self._lengths[rows]]))

    def hidden_state(self, rows: Numbers | None = None) -> Float[Tensor, "_ width"]:
        """The chosen layer's state at the last token of each row (the start token when empty)."""
        rows = self._asked(rows)
        self._run_pending(rows)
        return self._seen[rows, self._lengths[rows]]

    @property
    def slots_run(self) -> int:
        """Tokens that went through the network so far, in this decoder, its origin and forks."""
        return self._spent[0]

    @property
    def passes(self) -> int:
        """Runs of the network so far, each on some rows, in this decoder, its origin and forks."""
        return self._passes[0]

    def rollback(self, counts: Numbers) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        super().rollback(counts)
        self._known = torch.minimum(self._known, self._lengths + 1)

    def fork(self, rows: Numbers) -> "CachedDecoder":
        """A new decoder whose row i is a copy of row `rows[i]`, cache and all."""
        rows = self._chosen(rows)
        copy = self._copy_rows(rows)
        copy._known, copy._states = self._known[rows], self._states[rows]
        copy._seen = copy._states if self._seen is self._states else self._seen[rows]
        copy._keys, copy._values = self._keys[:, rows], self._values[:, rows]
        return copy

    @torch.no_grad()
    def _run_pending(self, rows: Int[Tensor, " rows"]) -> None:
        """Run what the rows have and the cache has not."""
        rows = rows[self._known[rows] <= self._lengths[rows]].unique()
        if len(rows):
            self._run_to(self._lengths[rows], rows)

    def _run_to(self, lengths: Int[Tensor, " rows"], rows: Int[Tensor, " rows"]) -> None:
        """Run the slots of the rows' first `lengths` tokens; on a CPU, common beginnings once."""
        on_cpu = rows.device.type == "cpu"
        most = _SLOTS_ON_A_CPU if on_cpu else _SLOTS_ON_A_GPU
        if on_cpu and len(rows) * (int(lengths.max()) + 1) > most // 4:
            self._share(lengths, rows, worth=most // 4)
        pending = lengths + 1 - self._known[rows]
        # Rows with equally much to run stand together, so that few slots are run in vain.
        order = pending.argsort(stable=True)
        order = order[pending[order] > 0]
        if len(order):
            for part in order.split(max(1, most // int(pending.max()))):
                self._run_rows(rows[part], lengths[part])

    def _share(
        self, lengths: Int[Tensor, " rows"], rows: Int[Tensor, " rows"], *, worth: int
    ) -> None:
        """Run what new rows have in common in one of them, and copy it to the others."""
        new = self._known[rows] == 0
        rows, lengths = rows[new], lengths[new]
        if len(rows) < 2:
            return
        common = _common_beginnings(self._tokens[rows, : int(lengths.min())])
        depth = int(common.saved.argmax())
        if common.saved[depth] < worth:
            return
        group = common.groups(depth)
        place = torch.arange(len(rows), device=rows.device)
        first = torch.full_like(place, len(rows)).scatter_reduce(0, group, place, "amin")
        leaders = rows[first[: int(group.max()) + 1]]
        self._run_to(torch.full_like(leaders, depth), leaders)
        follows = place != first[group]
        others, leader = rows[follows], leaders[group[follows]]
        filled = [*self._keys, *self._values, self._states]
        for cache in filled if self._seen is self._states else [*filled, self._seen]:
            begun = cache[:, : depth + 1]
            begun.index_copy_(0, others, begun.index_select(0, leader))
        self._known[others] = depth + 1

    def _run_rows(self, rows: Int[Tensor, " rows"], lengths: Int[Tensor, " rows"]) -> None:
        """The network on the pending slots of these rows: a ragged block, run at once."""
        self._passes[0] += 1
        net = self.lm.net
        places = _places(rows, self._known[rows], lengths + 1)
        slots = places.slots
        rotation = net.rotation(slots)
        x = net.place(net.embed(self._symbols(rows, slots)), slots)
        for layer, block in enumerate(self._blocks):
            assert isinstance(block, Block)
            if layer == self.layer:
                places.store(self._seen, x)
            query, key, value = block.attention.split(block.before(x), rotation)
            places.store(self._keys[layer], key.transpose(1, 2))
            places.store(self._values[layer], value.transpose(1, 2))
            scale = block.attention.scale
            if places.new:
                mixed = F.scaled_dot_product_attention(
                    query, key, value, is_causal=True, scale=scale
                )
            else:
                mixed = places.attend(query, self._keys[layer], self._values[layer], scale)
            x = block.after(x, block.attention.join(mixed))
        places.store(self._states, x)
        self._spent[0] += int((lengths + 1 - self._known[rows]).sum())
        self._known[rows] = lengths + 1

    def _symbols(
        self, rows: Int[Tensor, " rows"], slots: Int[Tensor, "rows t"]
    ) -> Int[Tensor, "rows t"]:
        tokens = self._tokens[rows[:, None], (slots - 1).clamp(min=0)]
        return tokens.masked_fill(slots == 0, self.lm.start_token)


def _zeros(like: Tensor, *shape: int) -> Tensor:
    """Zeros of the type and on the device of `like`.

    On a CPU through numpy: the system hands out pages of zeros when they are first written, and
    nothing fills them before.
    """
    if like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64):
        kind = np.float32 if like.dtype == torch.float32 else np.float64
        return torch.from_numpy(np.zeros(shape, dtype=kind))
    return like.new_zeros(shape, requires_grad=False)


class _Common(NamedTuple):
    """What rows have in common, from the rows in lexicographic order.

    rank     of every row among the distinct ones
    shared   how many tokens each distinct row shares with the one before it
    saved    saved[s] slots need not be run when rows with the same first s tokens run them once
    """

    rank: Int[Tensor, " rows"]
    shared: Int[Tensor, " distinct-1"]
    saved: Int[Tensor, " depths"]

    def groups(self, depth: int) -> Int[Tensor, " rows"]:
        """Rows with the same first `depth` tokens have the same number, 0, 1, ..."""
        return F.pad((self.shared < depth).long().cumsum(0), (1, 0))[self.rank]


def _common_beginnings(tokens: Int[Tensor, "rows t"]) -> _Common:
    """Worked value: 0 1, 0 1, 0 2 share the start and one token: saved 2, 4 and 3 slots."""
    distinct, rank, _ = distinct_rows(F.pad(tokens, (1, 0)))  # the start first
    shared = (distinct[1:] == distinct[:-1]).long().cumprod(1).sum(1) - 1
    depths = torch.arange(tokens.shape[1] + 1, device=tokens.device)
    groups = 1 + (shared[:, None] < depths).sum(0)
    return _Common(rank, shared, (depths + 1) * (len(tokens) - groups))


class _Places(NamedTuple):
    """Where a block of slots stands in the cache.

    rows     of the cache; a slice where they are neighbours, which reads them without a copy
    slots    of every row; one with fewer pending slots repeats its last one
    fresh    which of those to store: (row, slot) of the cache and of the block, or None for a
             block that is level, the same slots in every row
    before   what each slot may attend to, None where it is everything or `new`
    new      nothing of these rows was known: they attend to this block alone
    upto     slots of the longest row
    parts    of the block, with their rows of the cache: neighbours are read without a copy,
             scattered rows are copied some at a time
    numbers  of these rows of the cache
    """

    rows: slice | Tensor
    slots: Int[Tensor, "rows t"]
    fresh: tuple[Tensor, Tensor, tuple[Tensor, ...]] | None
    before: Bool[Tensor, "rows 1 t upto"] | None
    new: bool
    upto: int
    parts: Sequence[tuple[slice, slice | Tensor]]
    numbers: Int[Tensor, " rows"]

    def store(
        self, cache: Float[Tensor, "batch length *entry"], block: Float[Tensor, "rows t *entry"]
    ) -> None:
        """Write the slots' entries; a repeated slot is written once."""
        if self.fresh is None:
            cache[self.rows, self.upto - block.shape[1] : self.upto] = block
        else:
            row, slot, chosen = self.fresh
            cache[row, slot] = block[chosen]

    def attend(
        self,
        query: Float[Tensor, "rows heads t head_width"],
        keys: Float[Tensor, "batch length heads head_width"],
        values: Float[Tensor, "batch length heads head_width"],
        scale: float,
    ) -> Float[Tensor, "rows heads t head_width"]:
        """Σ_j P_ij v_j over the slots of the cache."""
        if is_attended(query, keys):
            return attend_rows(query, keys, values, self.numbers, self.slots, scale)
        mixed, keys, values = [], keys[:, : self.upto], values[:, : self.upto]
        for part, rows in self.parts:
            mixed.append(
                F.scaled_dot_product_attention(
                    query[part],
                    keys[rows].transpose(1, 2),
                    values[rows].transpose(1, 2),
                    attn_mask=None if self.before is None else self.before[part],
                    scale=scale,
                )
            )
        return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


def _places(
    rows: Int[Tensor, " rows"], known: Int[Tensor, " rows"], needed: Int[Tensor, " rows"]
) -> _Places:
    """For rows whose slots known..needed-1 are pending; one word with the device in all."""
    count, start = len(rows), rows[0]
    apart = (rows - torch.arange(count, device=rows.device) != start).sum()
    low, high, shortest, upto, t, apart, start = torch.stack(
        [*known.aminmax(), *needed.aminmax(), (needed - known).max(), apart, start]
    ).tolist()
    level, new = low == high and shortest == upto, high == 0
    steps = torch.arange(t, device=rows.device)
    slots, fresh, before = known[:, None] + steps, None, None
    if not level:
        slots = slots.minimum(needed[:, None] - 1)
        chosen = torch.nonzero(steps < (needed - known)[:, None], as_tuple=True)
        fresh = rows[chosen[0]], slots[chosen], chosen
    if not new and not (level and t == 1):
        before = (torch.arange(upto, device=rows.device) <= slots[:, :, None])[:, None]
    together = rows if apart else slice(start, start + count)
    parts = [(slice(0, count), together)]
    if apart and not new and rows.device.type == "cpu":
        parts = [
            (
                slice(first, last),
                slice(start, start + last - first) if start >= 0 else rows[first:last],
            )
            for first, last, start in _runs(rows.tolist())
        ]
    return _Places(together, slots, fresh, before, new, upto, parts, rows)


def _runs(rows: list[int]) -> list[tuple[int, int, int]]:
    """(first, last, row) of long runs of neighbours, (first, last, -1) of what is between them.

    Worked value: 5, 6, ..., 40, 90, 80 is the run (0, 36, 5) and the rest (36, 38, -1).
    """
    breaks = [i for i in range(1, len(rows)) if rows[i] != rows[i - 1] + 1]
    found: list[tuple[int, int, int]] = []
    for first, last in itertools.pairwise([0, *breaks, len(rows)]):
        if last - first >= _NEIGHBOURS:
            found.append((first, last, rows[first]))
        elif found and found[-1][2] < 0 and last - found[-1][0] <= _ROWS_COPIED:
            found[-1] = (found[-1][0], last, -1)
        else:
            found.append((first, last, -1))
    return found
