"""A decoder that runs a causal network once for every prefix, however many rows hold it.

A `PrefixMemory` is a tree of prefixes. A node keeps what the network says after its prefix, and the
keys and values of its last token, which longer prefixes attend to. Rows of `RememberedDecoder` are
nodes of one tree: they share its answers with each other, with forks, and with all decoders on the
same memory. This pays where many completions of few prompts are sampled and the vocabulary is
small.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.decoders import Prefixes
from triptych.core.validation import Count, Numbers, UserError, as_count, as_size
from triptych.models.language_models import CausalLM
from triptych.models.layers import Block

_NODES_AT_ONCE = 1024  # keys and values of their prefixes are copied together
_NONE = -1


class PrefixMemory:
    """What a causal network says after every prefix that it was asked about.

    Node 0 is the empty prefix. The memory is of the weights as they were when a prefix was run.

    layer            whose states are kept: 0 is the embedding, l the output of the l-th block
    path[n, t]       the node of the first t tokens of node n
    child[n, v]      the node of one more token, -1 if there is none yet
    asked[n]         whether the network ran there
    """

    def __init__(self, lm: CausalLM, *, layer: Count = -1) -> None:
        if not isinstance(lm, CausalLM):
            raise UserError(f"lm is a {type(lm).__name__}; it must be a CausalLM", parameter="lm")
        layer, shape = as_count("layer", layer, at_least=None), lm.net.shape
        if not -1 <= layer <= shape.layers:
            raise UserError(
                f"layer is {layer}; this network has 0 to {shape.layers}, or -1", parameter="layer"
            )
        self.lm, self.layer = lm, shape.layers if layer == -1 else layer
        self.passes = 0
        self.count = 1
        weight = next(lm.net.parameters())
        device = weight.device
        entry = (1, shape.heads, shape.head_width)
        self._columns = {
            "token": torch.full((1,), lm.start_token, device=device),
            "depth": torch.zeros(1, dtype=torch.long, device=device),
            "path": torch.zeros((1, shape.length + 1), dtype=torch.long, device=device),
            "child": torch.full((1, lm.vocab_size), _NONE, device=device),
            "asked": torch.zeros(1, dtype=torch.bool, device=device),
            "law": torch.zeros((1, lm.vocab_size), dtype=torch.float64, device=device),
            "state": weight.new_zeros((1, shape.width), requires_grad=False),
        }
        for number in range(shape.layers):
            for name in ("key", "value"):
                self._columns[f"{name} {number}"] = weight.new_zeros(entry, requires_grad=False)

    def __len__(self) -> int:
        """How many prefixes there are, the empty one among them."""
        return self.count

    def children(
        self, nodes: Int[Tensor, " rows"], tokens: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        """The nodes of one more token, made now where there are none."""
        vocab = self.lm.vocab_size
        places = nodes * vocab + tokens
        found = self._columns["child"].view(-1)[places]
        if (found == _NONE).any():
            self._add(places[found == _NONE].unique())
            found = self._columns["child"].view(-1)[places]
        return found

    def laws(self, nodes: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """log p(· | prefix) of each node, float64."""
        self.run(nodes)
        return self._columns["law"][nodes]

    def states(self, nodes: Int[Tensor, " rows"]) -> Float[Tensor, "rows width"]:
        """The chosen layer's state at the last token of each node."""
        self.run(nodes)
        return self._columns["state"][nodes]

    @torch.no_grad()
    def run(self, nodes: Int[Tensor, " rows"]) -> None:
        """Run the network where it has not run yet, shorter prefixes before longer ones."""
        asked, depth = self._columns["asked"], self._columns["depth"]
        new = nodes[~asked[nodes]].unique()
        if len(new) == 0:
            return
        path = self._columns["path"][new, : int(depth[new].max()) + 1].unique()
        pending = path[~asked[path]]
        while len(pending):
            ready = asked[self._parents(pending)] | (pending == 0)
            for some in pending[ready].split(_NODES_AT_ONCE):
                self._run(some)
            pending = pending[~ready]

    def _parents(self, nodes: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
        above = (self._columns["depth"][nodes] - 1).clamp(min=0)
        return self._columns["path"][nodes, above]

    def _run(self, nodes: Int[Tensor, " rows"]) -> None:
        """The network on the last token of these prefixes; it has run on what stands before."""
        self.passes += 1
        columns, net = self._columns, self.lm.net
        slots = columns["depth"][nodes][:, None]
        longest = int(slots.max()) + 1
        before = columns["path"][nodes, :longest]
        allowed = None
        if int(slots.min()) + 1 < longest:
            allowed = (torch.arange(longest, device=nodes.device) <= slots)[:, None, None]
        rotation = net.rotation(slots)
        x = net.place(net.embed(columns["token"][nodes][:, None]), slots)
        for number, block in enumerate(net.blocks):
            assert isinstance(block, Block)
            if number == self.layer:
                columns["state"][nodes] = x[:, 0]
            query, *entries = block.attention.split(block.before(x), rotation)
            seen: list[Tensor] = []
            for name, entry in zip(("key", "value"), entries, strict=True):
                column = columns[f"{name} {number}"]
                column[nodes] = entry[:, :, 0]
                seen.append(column.index_select(0, before.reshape(-1)))
            key, value = (part.unflatten(0, before.shape).transpose(1, 2) for part in seen)
            mixed = F.scaled_dot_product_attention(
                query, key, value, attn_mask=allowed, scale=block.attention.scale
            )
            x = block.after(x, block.attention.join(mixed))
        if self.layer == net.shape.layers:
            columns["state"][nodes] = x[:, 0]
        columns["law"][nodes] = self.lm.log_probs_of(net.read_out(x[:, 0])).double()
        columns["asked"][nodes] = True

    def _add(self, places: Int[Tensor, " new"]) -> None:
        """Nodes for places node * vocab + token of the table of children."""
        vocab = self.lm.vocab_size
        made = torch.arange(self.count, self.count + len(places), device=places.device)
        self.count += len(places)
        if self.count > len(self._columns["token"]):
            self._lengthen(max(self.count, 2 * len(self._columns["token"])))
        columns, parents = self._columns, places // vocab
        depth = columns["depth"][parents] + 1
        columns["child"].view(-1)[places] = made
        columns["token"][made], columns["depth"][made] = places % vocab, depth
        columns["path"][made] = columns["path"][parents]
        columns["path"][made, depth] = made

    def _lengthen(self, size: int) -> None:
        for name, column in self._columns.items():
            longer = column.new_zeros((size, *column.shape[1:]))
            if name == "child":
                longer.fill_(_NONE)
            longer[: len(column)] = column
            self._columns[name] = longer


class RememberedDecoder(Prefixes):
    """A `Decoder` whose rows are prefixes of a memory; answers are those of `CachedDecoder`, up to
    rounding.

    Worked value: two rows with the tokens 0 1 and 0 2 are asked for their next tokens. The network
    runs at 4 prefixes: the empty one, 0, 0 1 and 0 2. A decoder without memory runs 6 tokens.
    """

    def __init__(self, memory: PrefixMemory, batch: Count) -> None:
        if not isinstance(memory, PrefixMemory):
            raise UserError(
                f"memory is a {type(memory).__name__}; it must be a PrefixMemory",
                parameter="memory",
            )
        lm, batch = memory.lm, as_size("batch", batch)
        super().__init__(batch, lm.vocab_size, lm.length, lm.net.device)
        self.memory, self.lm, self.layer = memory, lm, memory.layer
        self._nodes = self._lengths.new_zeros((batch, lm.length + 1))  # of the first t tokens
        self._known = torch.zeros_like(self._lengths)  # slots that a decoder of its own has run
        self._spent = [0]  # shared with forks

    def next_log_probs(self, rows: Numbers | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the prefix of each row), float64; of the given rows only, if they are named."""
        return self.memory.laws(self._ends(self._asked(rows)))

    def hidden_state(self, rows: Numbers | None = None) -> Float[Tensor, "_ width"]:
        """The chosen layer's state at the last token of each row (the start token when empty)."""
        return self.memory.states(self._ends(self._asked(rows)))

    @property
    def slots_run(self) -> int:
        """Tokens that a decoder without memory would have run, with its origin and forks."""
        return self._spent[0]

    @property
    def passes(self) -> int:
        """Runs of the network so far, by all decoders on this memory."""
        return self.memory.passes

    def rollback(self, counts: Numbers) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        super().rollback(counts)
        self._known = torch.minimum(self._known, self._lengths + 1)

    def fork(self, rows: Numbers) -> "RememberedDecoder":
        """A new decoder whose row i is a copy of row `rows[i]`, on the same memory."""
        rows = self._chosen(rows)
        copy = self._copy_rows(rows)
        copy._nodes, copy._known = self._nodes[rows], self._known[rows]
        return copy

    def _ends(self, rows: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
        """The nodes of whole rows; what each of them would have run is counted."""
        lengths = self._lengths[rows]
        needed = self._lengths + 1
        due = torch.zeros_like(self._known, dtype=torch.bool).index_fill(0, rows, True)
        pending = (needed - self._known).clamp(min=0)
        self._spent[0] += int(pending[due].sum())
        self._known = torch.where(due, torch.maximum(self._known, needed), self._known)
        return self._nodes[rows, lengths]

    def _grow(self, tokens: Int[Tensor, "rows t"], rows: Numbers | None) -> None:
        chosen = self._chosen(rows)
        before = self._lengths[chosen]
        super()._grow(tokens, rows)
        nodes = self._nodes[chosen, before]
        for step, column in enumerate(tokens.unbind(1), start=1):
            nodes = self.memory.children(nodes, column)
            self._nodes[chosen, before + step] = nodes
