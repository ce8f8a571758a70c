"""A decoder over a causal network that keeps every layer's keys and values.

Each token goes through the network once; rollback only lowers a length.

Slot 0 of the cache is the start token and slot s > 0 the row's s-th token, so a row of n tokens
needs slots 0..n to be asked for its next token. Tokens are run when something is asked of their
row, not when they are appended: the last token of a full row never is.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.decoders import Prefixes
from triptych.models.language_models import CausalLM
from triptych.models.layers import Block


class CachedDecoder(Prefixes):
    """A `Decoder` over a causal network that runs each token once.

    Rows hold at most `lm.length` tokens; a row of that many has no next token and no state.
    The cache is of the network's weights as they were when the tokens were run. `layer` names the
    states a verifier sees: 0 is the embedding, l the output of the l-th block, -1 the last.
    """

    def __init__(self, lm: CausalLM, batch: int, *, layer: int = -1) -> None:
        weight, shape = next(lm.net.parameters()), lm.net.shape
        if not -1 <= layer <= shape.layers:
            raise ValueError(f"layer is {layer}; this network has 0 to {shape.layers}, or -1")
        self.layer = shape.layers if layer == -1 else layer
        super().__init__(batch, lm.vocab_size, lm.length, weight.device)
        self.lm = lm
        self._known = torch.zeros_like(self._lengths)  # slots that are filled
        # Zeros and not whatever stands in memory: 0 times nan would be nan.
        heads = (shape.layers, batch, shape.heads, shape.length, shape.head_width)
        self._keys = weight.new_zeros(heads, requires_grad=False)
        self._values = weight.new_zeros(heads, requires_grad=False)
        self._states = weight.new_zeros((batch, shape.length, shape.width), requires_grad=False)
        last = self.layer == shape.layers
        self._seen = self._states if last else torch.zeros_like(self._states)

    @torch.no_grad()
    def next_log_probs(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the prefix of each row), float64; of the given rows only, if they are named."""
        rows = self._asked(rows)
        self._run_pending(rows)
        return self.lm.log_probs_of(self.lm.net.read_out(self._states[rows, self._lengths[rows]]))

    def hidden_state(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ width"]:
        """The chosen layer's state at the last token of each row (the start token when empty)."""
        rows = self._asked(rows)
        self._run_pending(rows)
        return self._seen[rows, self._lengths[rows]]

    def rollback(self, counts: Int[Tensor, " batch"]) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        super().rollback(counts)
        self._known = torch.minimum(self._known, self._lengths + 1)

    def fork(self, rows: Int[Tensor, " copies"]) -> "CachedDecoder":
        """A new decoder whose row i is a copy of row `rows[i]`, cache and all."""
        copy = self._copy_rows(rows)
        copy._known, copy._states = self._known[rows], self._states[rows]
        copy._seen = copy._states if self._seen is self._states else self._seen[rows]
        copy._keys, copy._values = self._keys[:, rows], self._values[:, rows]
        return copy

    @torch.no_grad()
    def _run_pending(self, rows: Int[Tensor, " rows"]) -> None:
        """Run what the rows have and the cache has not: a ragged block of slots, run at once."""
        needed = self._lengths + 1
        rows = rows[self._known[rows] < needed[rows]].unique()
        if len(rows) == 0:
            return
        known, needed = self._known[rows], needed[rows]
        steps = torch.arange(int((needed - known).max()), device=rows.device)
        # A row with fewer pending slots repeats its last one; only the first time is stored.
        slots = torch.minimum(known[:, None] + steps, needed[:, None] - 1)
        fresh = torch.nonzero(known[:, None] + steps < needed[:, None], as_tuple=True)
        self._run_slots(rows, slots, fresh, int(needed.max()))
        self._known[rows] = needed

    def _run_slots(
        self,
        rows: Int[Tensor, " rows"],
        slots: Int[Tensor, "rows t"],
        fresh: tuple[Int[Tensor, " stored"], ...],
        upto: int,
    ) -> None:
        """The network on `slots` of `rows`, attending to the slots before them."""
        net = self.lm.net
        row, slot = rows[fresh[0]], slots[fresh]
        everyone = len(rows) == len(self._known)
        before = torch.arange(upto, device=rows.device) <= slots[:, :, None]
        rotation = net.rotation(slots)
        x = net.place(net.embed(self._symbols(rows, slots)), slots)
        for layer, block in enumerate(net.blocks):
            assert isinstance(block, Block)
            if layer == self.layer:
                self._seen[row, slot] = x[fresh]
            query, key, value = block.attention.split(block.before(x), rotation)
            keys, values = self._keys[layer], self._values[layer]
            keys[row, :, slot] = key.transpose(1, 2)[fresh]
            values[row, :, slot] = value.transpose(1, 2)[fresh]
            keys, values = keys[:, :, :upto], values[:, :, :upto]
            mixed = F.scaled_dot_product_attention(
                query,
                keys if everyone else keys[rows],
                values if everyone else values[rows],
                attn_mask=before[:, None],
                scale=block.attention.scale,
            )
            x = block.after(x, block.attention.join(mixed))
        self._states[row, slot] = x[fresh]

    def _symbols(
        self, rows: Int[Tensor, " rows"], slots: Int[Tensor, "rows t"]
    ) -> Int[Tensor, "rows t"]:
        tokens = self._tokens[rows[:, None], (slots - 1).clamp(min=0)]
        return tokens.masked_fill(slots == 0, self.lm.start_token)
