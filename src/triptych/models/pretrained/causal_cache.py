"""A decoder over a causal model of transformers that keeps keys and values per row.

Slot s of a row is position s: slot 0 is the start token (BOS) where the model has one, and the
row's tokens follow. A rollback only lowers a length. Its slots are written again later, so no slot
is ever wasted and the cache is never compacted. The attention mask and the positions are explicit:

    a query at position p sees the slots q of its own row with  p - window < q ≤ p

and q ≤ p alone in layers without a window. Windows count positions, whatever was erased. So a row's
answer does not depend on the other rows.

Tokens run when something is asked of their row. Rows that have fewer tokens to run than others in
the same pass repeat their first one, so the last token of every row stands at the end of the block.
"""

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.decoders import Prefixes
from triptych.core.distinct import distinct_rows
from triptych.core.validation import Count, Numbers, UserError, as_count
from triptych.models.pretrained.grouped_attention import grouped

_SLOTS_ON_A_CPU = 2048  # run at once, at most
_SLOTS_ON_A_GPU = 16384
_ROOM = 64  # slots at first; a row that grows longer gets more


class PretrainedDecoder(Prefixes):
    """A `Decoder` over a causal model of transformers; `PretrainedCausalLM.decoder` makes one.

    `passes` counts forward calls of the model and `slots_run` the tokens in them that were new,
    both together with the decoders that were forked from this one. After a rollback the last token
    of the row runs once more, with whatever else there is to run: the model keeps no old answers.
    `layer` names the state that `hidden_state` gives: 0 is the embedding, l the output of the l-th
    block, -1 the last one, after the model's final norm. Without a layer no state is kept.
    """

    def __init__(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        *,
        vocab_size: Count,
        length: Count,
        start_token: int | None,
        layer: Count | None = None,
    ) -> None:
        super().__init__(len(prompts), vocab_size, length, model.device)
        self.layer = None if layer is None else as_layer(layer, model)
        self._model, self._start = model, start_token
        self._windows = attention_windows(model)
        self._cache = _SlotCache(len(_layer_kinds(model)), len(prompts))
        self._known = torch.zeros_like(self._lengths)  # slots that are filled
        self._answered = torch.full_like(self._lengths, -1)  # length that the answer is for
        dtype = torch.promote_types(model.dtype, torch.float32)
        self._logits = torch.zeros(
            (len(prompts), self.vocab_size), dtype=dtype, device=model.device
        )
        self._states: Tensor | None = None
        self._options: dict[str, Any] = {"use_cache": True, "return_dict": True}
        self._options |= last_logits_only(model)
        if self.layer is not None:
            self._options["output_hidden_states"] = True
        self._spent = [0, 0]  # passes and slots, shared with forks
        longest = max((len(prompt) for prompt in prompts), default=0)
        if longest:
            padded = [[*prompt, *[-1] * (longest - len(prompt))] for prompt in prompts]
            self.extend(padded)

    @property
    def passes(self) -> int:
        """Forward calls of the model so far, in this decoder, its origin and forks."""
        return self._spent[0]

    @property
    def slots_run(self) -> int:
        """Tokens that went through the model so far, in this decoder, its origin and forks."""
        return self._spent[1]

    @torch.no_grad()
    def next_log_probs(self, rows: Numbers | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the prefix of each row), float64; of the given rows only, if they are named."""
        rows = self._asked(rows)
        self._run_pending(rows)
        return self._logits[rows].double().log_softmax(-1)

    def hidden_state(self, rows: Numbers | None = None) -> Float[Tensor, "_ width"]:
        """The chosen layer's state at the last token of each row (the start token when empty)."""
        if self.layer is None:
            raise UserError(
                "this decoder keeps no hidden states; make it with decoder(prompts, layer=-1), or "
                "another layer"
            )
        rows = self._asked(rows)
        self._run_pending(rows)
        if self._states is None:  # no row was asked about
            return self._logits.new_zeros((0, self._model.get_input_embeddings().embedding_dim))
        return self._states[rows]

    def rollback(self, counts: Numbers) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        super().rollback(counts)
        self._known = torch.minimum(self._known, self._lengths + self._offset)
        self._answered[self._answered > self._lengths] = -1

    def fork(self, rows: Numbers) -> "PretrainedDecoder":
        """A new decoder whose row i is a copy of row `rows[i]`, cache and all."""
        rows = self._chosen(rows)
        copy = self._copy_rows(rows)
        copy._known, copy._answered = self._known[rows], self._answered[rows]
        copy._logits = self._logits[rows]
        copy._states = None if self._states is None else self._states[rows]
        copy._cache = self._cache.select(rows, int(copy._known.max()) if len(rows) else 0)
        return copy

    # ------------------------------------------------------------------ inside

    @property
    def _offset(self) -> int:
        """Slots before a row's first token."""
        return 0 if self._start is None else 1

    @torch.no_grad()
    def _run_pending(self, rows: Int[Tensor, " rows"]) -> None:
        """Run what the rows have and the cache has not, and each row's last token."""
        rows = rows[self._answered[rows] != self._lengths[rows]].unique()
        if len(rows) == 0:
            return
        needed = self._lengths[rows] + self._offset
        if int(needed.min()) == 0:
            raise UserError(
                f"row {int(rows[needed == 0][0])} is empty, and this model has no BOS token to "
                "begin with; give it a prompt of at least one token, or name a token with "
                "PretrainedCausalLM(..., bos=ID)",
                parameter="rows",
            )
        self._known[rows] = torch.minimum(self._known[rows], needed - 1)
        rows, copies = self._first_of_equals(rows)
        self._run(rows)
        if copies is not None:
            self._copy(*copies)

    def _run(self, rows: Int[Tensor, " rows"]) -> None:
        most = _SLOTS_ON_A_CPU if rows.device.type == "cpu" else _SLOTS_ON_A_GPU
        pending = self._lengths[rows] + self._offset - self._known[rows]
        order = pending.argsort(stable=True)  # rows with equally much to run stand together
        for part in order.split(max(1, most // int(pending.max()))):
            self._run_in_blocks(rows[part.sort().values], most)

    def _run_in_blocks(self, rows: Int[Tensor, " rows"], most: int) -> None:
        """At most `most` tokens of a row at once: a very long prompt takes several passes."""
        while len(rows):
            needed = self._lengths[rows] + self._offset
            upto = torch.minimum(needed, self._known[rows] + most)
            self._run_block(rows, upto)
            rows = rows[upto < needed]

    def _run_block(self, rows: Int[Tensor, " rows"], upto: Int[Tensor, " rows"]) -> None:
        """One forward pass on the slots known..upto-1 of these rows, which may differ in number."""
        block = _block(rows, self._known[rows], upto)
        self._cache.prepare(block, self._room(block.upto))
        with grouped(self._model):
            answer = self._model(
                input_ids=self._symbols(rows, block.slots),
                attention_mask=self._masks(block),
                position_ids=block.slots,
                past_key_values=self._cache.cache,
                **self._options,
            )
        self._logits[rows] = answer.logits[:, -1].to(self._logits.dtype)
        if self.layer is not None:
            state = answer.hidden_states[self.layer][:, -1].to(self._logits.dtype)
            states = self._states
            if states is None:
                states = state.new_zeros((len(self._lengths), state.shape[-1]))
            states[rows] = state
            self._states = states
        self._known[rows], self._answered[rows] = upto, upto - self._offset
        self._spent[0] += 1
        self._spent[1] += block.new

    def _room(self, upto: int) -> int:
        """Slots to have: twice as many as before when they do not suffice."""
        assert self._longest is not None
        have = self._cache.room
        return have if upto <= have else min(max(upto, 2 * have, _ROOM), self._longest + 1)

    def _symbols(
        self, rows: Int[Tensor, " rows"], slots: Int[Tensor, "rows t"]
    ) -> Int[Tensor, "rows t"]:
        tokens = self._tokens[rows[:, None], (slots - self._offset).clamp(min=0)]
        return tokens if self._start is None else tokens.masked_fill(slots == 0, self._start)

    def _masks(self, block: "_Block") -> Tensor | dict[str, Tensor]:
        """What is added to the scores of attention: 0 where a query sees a slot.

        One mask, or where layers differ one for every kind of layer, by the config's names of them.
        """
        slots = torch.arange(block.upto, device=block.slots.device)
        query = block.slots[:, :, None]
        masks = {}
        for kind, window in self._windows.items():
            unseen = slots > query
            if window is not None:
                unseen |= slots <= query - window
            mask = torch.zeros(unseen.shape, dtype=self._model.dtype, device=slots.device)
            masks[kind] = mask.masked_fill(unseen, torch.finfo(mask.dtype).min)[:, None]
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _first_of_equals(
        self, rows: Int[Tensor, " rows"]
    ) -> tuple[Int[Tensor, " some"], tuple[Tensor, Tensor] | None]:
        """New rows with the same tokens run once: the rows to run, and (from, to) of the others."""
        new = rows[self._known[rows] == 0]
        if len(new) < 2:
            return rows, None
        longest = int(self._lengths[new].max())
        beyond = torch.arange(longest, device=rows.device) >= self._lengths[new, None]
        texts = F.pad(self._tokens[new, :longest].masked_fill(beyond, -1), (1, 0))
        distinct, group, first = distinct_rows(texts)
        if len(distinct) == len(new):
            return rows, None
        leader = new[first[group]]
        follows = leader != new
        others = rows[~torch.isin(rows, new[follows])]
        return others, (leader[follows], new[follows])

    def _copy(self, source: Int[Tensor, " rows"], target: Int[Tensor, " rows"]) -> None:
        self._cache.copy(source, target, int(self._known[source].max()))
        kept = [self._known, self._answered, self._logits]
        for values in kept if self._states is None else [*kept, self._states]:
            values[target] = values[source]


# ---------------------------------------------------------------------- the slots


class _Block(NamedTuple):
    """The slots that one pass runs.

    rows     of the cache; a slice where they are neighbours, which reads them without a copy
    slots    of every row; one with fewer pending slots repeats its first one
    fresh    which of those to store: (row, slot) of the cache and of the block, or None for a
             block that is level, the same slots in every row
    upto     slots of the longest row
    new      how many slots are new
    """

    rows: slice | Tensor
    slots: Int[Tensor, "rows t"]
    fresh: tuple[Tensor, Tensor, tuple[Tensor, ...]] | None
    upto: int
    new: int


def _block(
    rows: Int[Tensor, " rows"], known: Int[Tensor, " rows"], needed: Int[Tensor, " rows"]
) -> _Block:
    """For rows whose slots known..needed-1 are pending; one word with the device in all.

    Worked value: known 3, 0 and needed 4, 3 give slots 3 3 3 and 0 1 2; (0, 2) and row 1 are new.
    """
    apart = (rows - torch.arange(len(rows), device=rows.device) != rows[0]).any().long()
    pending = needed - known
    low, high, shortest, upto, t, apart, start, count = torch.stack(
        [*known.aminmax(), *needed.aminmax(), pending.max(), apart, rows[0], pending.sum()]
    ).tolist()
    steps = torch.arange(t, device=rows.device)
    slots, fresh = (needed[:, None] - t + steps).maximum(known[:, None]), None
    if low != high or shortest != upto:
        chosen = torch.nonzero(steps >= t - pending[:, None], as_tuple=True)
        fresh = rows[chosen[0]], slots[chosen], chosen
    together = rows if apart else slice(start, start + len(rows))
    return _Block(together, slots, fresh, upto, count)


class _SlotCache:
    """Keys and values of every layer, behind the Cache that models of transformers write to."""

    def __init__(self, layers: int, batch: int) -> None:
        from transformers.cache_utils import Cache, CacheLayerMixin

        CacheLayerMixin.register(_SlotLayer)  # it cannot be a subclass: the import is optional
        self.shared = _Shared(batch)
        self.layers = [_SlotLayer(self.shared) for _ in range(layers)]
        self.cache: Any = Cache(layers=self.layers)  # pyright: ignore[reportArgumentType]

    @property
    def room(self) -> int:
        return self.shared.room

    def prepare(self, block: _Block, room: int) -> None:
        """The next pass writes this block."""
        self.shared.block, more = block, room - self.room
        if more > 0:
            for layer in self.layers:
                layer.tensors = [F.pad(part, (0, 0, 0, more)) for part in layer.tensors]
            self.shared.room = room

    def select(self, rows: Int[Tensor, " copies"], upto: int) -> "_SlotCache":
        """A copy of some rows, with as many slots as they need."""
        copy = _SlotCache(len(self.layers), len(rows))
        room = copy.shared.room = min(upto + _ROOM, self.room)
        for old, new in zip(self.layers, copy.layers, strict=True):
            new.tensors = [part[:, :, :room].index_select(0, rows) for part in old.tensors]
        return copy

    def copy(self, source: Int[Tensor, " rows"], target: Int[Tensor, " rows"], upto: int) -> None:
        for layer in self.layers:
            for part in layer.tensors:
                begun = part[:, :, :upto]
                begun.index_copy_(0, target, begun.index_select(0, source))


class _Shared:
    """What all layers need to know. Layers do not point at the cache itself: in a circle, gigabytes
    of keys and values would wait for the garbage collector."""

    def __init__(self, batch: int) -> None:
        self.batch, self.room = batch, 0
        self.block: _Block | None = None


class _SlotLayer:
    """The keys and values of one layer; it has the methods of a cache layer of transformers."""

    is_sliding = False
    is_compileable = False
    is_croppable = False
    is_initialized = True

    def __init__(self, shared: _Shared) -> None:
        self.shared = shared
        self.tensors: list[Tensor] = []  # keys and values, [batch, heads, slots, head_width]

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Write the new keys and values into their slots, and give the rows' slots so far."""
        block = self.shared.block
        assert block is not None
        given = (key_states, value_states)
        if not self.tensors:  # zeros and not whatever stands in memory: 0 times nan would be nan
            self.tensors = [
                part.new_zeros((self.shared.batch, part.shape[1], self.shared.room, part.shape[3]))
                for part in given
            ]
        return tuple(
            self._written(kept, new, block) for kept, new in zip(self.tensors, given, strict=True)
        )

    def get_seq_length(self) -> int:
        block = self.shared.block
        return 0 if block is None else block.upto - block.slots.shape[1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1

    @staticmethod
    def _written(
        kept: Float[Tensor, "batch heads slots head_width"],
        new: Float[Tensor, "rows heads t head_width"],
        block: _Block,
    ) -> Float[Tensor, "rows heads upto head_width"]:
        if block.fresh is None:
            kept[block.rows, :, block.upto - new.shape[2] : block.upto] = new
        else:
            row, slot, chosen = block.fresh
            kept[row, :, slot] = new.transpose(1, 2)[chosen]
        return kept[:, :, : block.upto][block.rows]


# ---------------------------------------------------------------------- what a model is like


def attention_windows(model: Any) -> dict[str, int | None]:
    """The window of every kind of attention layer, None for full attention; others are refused."""
    kind = type(model).__name__
    config = model.config.get_text_config(decoder=True)
    if model.config.is_encoder_decoder:
        raise UserError(
            f"{kind} has an encoder; a causal model has a decoder alone", parameter="model"
        )
    if getattr(model, "_is_stateful", False):
        raise UserError(
            f"{kind} keeps a recurrent state, and that cannot go back to an earlier token; use a "
            "model whose layers are all attention",
            parameter="model",
        )
    how = getattr(config, "_attn_implementation", None) or "eager"
    if how not in ("sdpa", "eager"):
        raise UserError(
            f"{kind} was loaded with attn_implementation={how!r}, which takes no mask of our own; "
            "load it with attn_implementation='sdpa' or 'eager'"
        )
    if "local" in (getattr(config, "attention_layers", None) or ()):
        raise UserError(
            f"{kind} has local attention that counts slots of the cache and not positions; use "
            "another family of models"
        )
    windows: dict[str, int | None] = {}
    for layer in _layer_kinds(model):
        if layer == "full_attention":
            windows[layer] = None
        elif layer == "sliding_attention":
            windows[layer] = int(config.sliding_window)
        else:
            raise UserError(
                f"{kind} has layers of the kind {layer!r}; only 'full_attention' and "
                "'sliding_attention' can be rolled back exactly"
            )
    return windows


def last_logits_only(model: Any) -> dict[str, Any]:
    """The option that makes a model compute the logits of the last position alone, if it has it."""
    options = inspect.signature(model.forward).parameters
    return {"logits_to_keep": 1} if "logits_to_keep" in options else {}


def _layer_kinds(model: Any) -> list[str]:
    """The kind of every attention layer, by the names of transformers' configs."""
    config = model.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return list(kinds)
    if getattr(config, "sliding_window", None) is not None:
        return ["sliding_attention"] * config.num_hidden_layers
    if getattr(config, "attention_chunk_size", None) is not None:
        return ["chunked_attention"] * config.num_hidden_layers
    return ["full_attention"] * config.num_hidden_layers


def as_layer(layer: Count, model: Any) -> int:
    """The number of a layer: 0 the embedding, l the output of the l-th block, -1 the last."""
    layer = as_count("layer", layer, at_least=None)
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    if not -1 <= layer <= layers:
        raise UserError(f"layer is {layer}; this model has 0 to {layers}, or -1", parameter="layer")
    return layers if layer == -1 else layer
