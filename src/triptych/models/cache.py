"""A batch of growing prefixes, each row at its own length, over a causal language model.

`CachedDecoder` keeps every layer's keys and values, so that each token goes through the network
once; rollback only lowers a length. `RecomputingDecoder` asks any `NextToken` oracle anew.

Slot 0 of the cache is the start token and slot s > 0 the row's s-th token, so a row of n tokens
needs slots 0..n to be asked for its next token. Tokens are run when something is asked of their
row, not when they are appended: the last token of a full row never is.
"""

from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import Density, NextToken
from triptych.core.validation import check_count, check_tokens
from triptych.models.language_models import CausalLM
from triptych.models.layers import Block

PAD = -1  # stands beyond the end of a row; no token has this id

PrefixesT = TypeVar("PrefixesT", bound="Prefixes")


class Prefixes:
    """The tokens of a batch of rows that grow and shrink; what does not fit is refused."""

    def __init__(
        self, batch: int, vocab_size: int, longest: int | None, device: torch.device
    ) -> None:
        check_count("batch", batch, at_least=1)
        self._vocab_size, self._longest = vocab_size, longest
        self._tokens = torch.full((batch, longest or 16), PAD, device=device)
        self._lengths = torch.zeros(batch, dtype=torch.long, device=device)

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        return self._lengths.clone()

    @property
    def tokens(self) -> Int[Tensor, "batch t"]:
        """The rows cut at the longest of them, -1 beyond each row's end."""
        longest = int(self._lengths.max()) if len(self._lengths) else 0
        beyond = torch.arange(longest, device=self._lengths.device) >= self._lengths[:, None]
        return self._tokens[:, :longest].masked_fill(beyond, PAD)

    def append(
        self, tokens: Int[Tensor, " rows"], rows: Int[Tensor, " rows"] | None = None
    ) -> None:
        """One token at the end of each of the rows, all of them when none are named."""
        self._grow(tokens[:, None], rows)

    def extend(self, tokens: Int[Tensor, "batch t"]) -> None:
        """t tokens at the end of every row."""
        self._grow(tokens, None)

    def rollback(self, counts: Int[Tensor, " batch"]) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        if counts.shape != self._lengths.shape:
            raise ValueError(f"{len(counts)} counts are given for {len(self._lengths)} rows")
        bad = (counts < 0) | (counts > self._lengths)
        if bad.any():
            row = int(bad.nonzero()[0])
            raise ValueError(
                f"cannot erase {int(counts[row])} tokens of row {row}, which has "
                f"{int(self._lengths[row])}"
            )
        self._lengths -= counts

    def _copy_rows(self: PrefixesT, rows: Int[Tensor, " copies"]) -> PrefixesT:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        rows = self._chosen(rows)
        copy._tokens, copy._lengths = self._tokens[rows], self._lengths[rows]
        return copy

    def _chosen(self, rows: Int[Tensor, " rows"] | None) -> Int[Tensor, " rows_or_all"]:
        """The rows that are named, all of them when none are."""
        batch = len(self._lengths)
        if rows is None:
            return torch.arange(batch, device=self._lengths.device)
        bad = (rows < 0) | (rows >= batch)
        if bad.any():
            raise ValueError(f"row {int(rows[bad][0])} is outside 0..{batch - 1}")
        return rows

    def _asked(self, rows: Int[Tensor, " rows"] | None) -> Int[Tensor, " rows_or_all"]:
        """The rows that are named; each of them has a next token."""
        rows = self._chosen(rows)
        full = rows[self._lengths[rows] >= self._longest] if self._longest is not None else rows[:0]
        if len(full):
            raise ValueError(
                f"row {int(full[0])} already has {self._longest} tokens, the most this model "
                "knows: nothing follows it. Roll it back, or name the other rows in `rows`"
            )
        return rows

    def _grow(self, tokens: Int[Tensor, "rows t"], rows: Int[Tensor, " _"] | None) -> None:
        rows = self._chosen(rows)
        if len(tokens) != len(rows):
            raise ValueError(
                f"tokens are given for {len(tokens)} rows, but {len(rows)} are to grow"
            )
        if len(rows.unique()) < len(rows):
            raise ValueError(f"a row is named twice in rows = {rows.tolist()}; each may grow once")
        check_tokens(tokens, self._vocab_size)
        if tokens.numel() == 0:
            return
        self._make_room(rows, tokens.shape[1])
        steps = torch.arange(tokens.shape[1], device=rows.device)
        self._tokens[rows[:, None], self._lengths[rows][:, None] + steps] = tokens.long()
        self._lengths[rows] += len(steps)

    def _make_room(self, rows: Int[Tensor, " rows"], more: int) -> None:
        needed = self._lengths[rows] + more
        if self._longest is not None and (needed > self._longest).any():
            row = int(rows[needed > self._longest][0])
            raise ValueError(
                f"row {row} has {int(self._lengths[row])} tokens and cannot take {more} more: "
                f"the model's length is {self._longest}"
            )
        room = self._tokens.shape[1]
        if needed.max() > room:
            self._tokens = F.pad(self._tokens, (0, max(room, int(needed.max()) - room)), value=PAD)


class CachedDecoder(Prefixes):
    """A `Decoder` over a causal network that runs each token once.

    Rows hold at most `lm.length` tokens; a row of that many has no next token and no state.
    The cache is of the network's weights as they were when the tokens were run.
    """

    def __init__(self, lm: CausalLM, batch: int) -> None:
        weight, shape = next(lm.net.parameters()), lm.net.shape
        super().__init__(batch, lm.vocab_size, lm.length, weight.device)
        self.lm = lm
        self._known = torch.zeros_like(self._lengths)  # slots that are filled
        # Zeros and not whatever stands in memory: 0 times nan would be nan.
        heads = (shape.layers, batch, shape.heads, shape.length, shape.head_width)
        self._keys = weight.new_zeros(heads, requires_grad=False)
        self._values = weight.new_zeros(heads, requires_grad=False)
        self._states = weight.new_zeros((batch, shape.length, shape.width), requires_grad=False)

    @torch.no_grad()
    def next_log_probs(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the prefix of each row), float64; of the given rows only, if they are named."""
        return self.lm.log_probs_of(self.lm.net.read_out(self.hidden_state(rows)))

    def hidden_state(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ width"]:
        """The last layer's state at the last token of each row (the start token when empty)."""
        rows = self._asked(rows)
        self._run_pending(rows)
        return self._states[rows, self._lengths[rows]]

    def rollback(self, counts: Int[Tensor, " batch"]) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        super().rollback(counts)
        self._known = torch.minimum(self._known, self._lengths + 1)

    def fork(self, rows: Int[Tensor, " copies"]) -> "CachedDecoder":
        """A new decoder whose row i is a copy of row `rows[i]`, cache and all."""
        copy = self._copy_rows(rows)
        copy._known, copy._states = self._known[rows], self._states[rows]
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


class RecomputingDecoder(Prefixes):
    """A `Decoder` over any `NextToken` oracle, asked anew each time: the reference.

    Rows of equal length share a call. An oracle that also knows its `length` bounds the rows.
    """

    def __init__(self, lm: NextToken, batch: int, *, device: torch.device | str = "cpu") -> None:
        longest = lm.length if isinstance(lm, Density) else None
        super().__init__(batch, lm.vocab_size, longest, torch.device(device))
        self.lm = lm

    def next_log_probs(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the prefix of each row); of the given rows only, if they are named."""
        rows = self._asked(rows)
        lengths, size = self._lengths[rows], (len(rows), self.lm.vocab_size)
        answers = torch.empty(size, dtype=torch.float64, device=rows.device)
        for length in lengths.unique().tolist():
            same = lengths == length
            prefix = self._tokens[rows[same], :length]
            answers[same] = self.lm.next_token_log_probs(prefix).double()
        return answers

    def fork(self, rows: Int[Tensor, " copies"]) -> "RecomputingDecoder":
        """A new decoder whose row i is a copy of row `rows[i]`."""
        return self._copy_rows(rows)
