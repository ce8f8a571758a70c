"""What a decoder with a cache asks of a network's layers, by the C programs of `core.compiled`.

Products with matrices that are rearranged once, and attention that reads the cache as it lies in
memory. Float32 on a CPU, without gradients; everything else goes on as it is. Answers are those of
torch to rounding.
"""

import copy
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.core.compiled import is_used, library

_LANES = 8  # numbers that attention handles at once
_FEW = 8  # queries of a row; more are faster as products of matrices


class PackedLinear(nn.Linear):
    """A linear map with its matrix as the C program wants it: as it was when this was made."""

    def __init__(self, linear: nn.Linear) -> None:
        sizes, biased = (linear.in_features, linear.out_features), linear.bias is not None
        super().__init__(*sizes, bias=biased, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        matrix = linear.weight.detach().contiguous()
        self.panels = torch.empty(library().packed_numbers(*matrix.shape))
        library().pack_matrix(*matrix.shape, matrix.data_ptr(), self.panels.data_ptr())

    def forward(self, input: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows columns"]:
        """W x + b for every row x.

        Worked value: W = [[1, 2], [3, 4]], b = (1, 0) and x = (1, 1) give (4, 7).
        """
        if torch.is_grad_enabled() or not _is_plain(input):
            return super().forward(input)
        x = input.contiguous()
        out = torch.empty(*x.shape[:-1], self.out_features)
        bias = None if self.bias is None else self.bias.detach().contiguous()
        rows = math.prod(x.shape[:-1])
        addresses = [None if t is None else t.data_ptr() for t in (x, self.panels, bias, out)]
        library().packed_product(rows, self.in_features, self.out_features, *addresses)
        return out


def packed(blocks: nn.ModuleList) -> nn.ModuleList:
    """The same layers with packed linear maps, where the programs are in use and serve them."""
    parameters = list(blocks.parameters())
    if not (is_used() and all(map(_is_plain, parameters))):
        return blocks
    shared = {id(parameter): parameter for parameter in parameters}
    found = copy.deepcopy(blocks, shared)  # new modules with the same parameters
    for module in list(found.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))
    return found


def is_attended(
    query: Float[Tensor, "rows heads t head_width"],
    keys: Float[Tensor, "batch length heads head_width"],
) -> bool:
    """Whether the programs are in use, and compute this: few queries of a row."""
    few, fits = query.shape[2] <= _FEW, query.shape[-1] % _LANES == 0
    return is_used() and few and fits and _is_plain(query) and _is_plain(keys)


def attend_rows(
    query: Float[Tensor, "rows heads t head_width"],
    keys: Float[Tensor, "batch length heads head_width"],
    values: Float[Tensor, "batch length heads head_width"],
    rows: Int[Tensor, " rows"],
    slots: Int[Tensor, "rows t"],
    scale: float,
) -> Float[Tensor, "rows heads t head_width"]:
    """Σ_j P_ij v_j over the slots j ≤ slots[r, i] of row rows[r] of the cache.

    Worked value: two slots with keys 0 and log 3, the query 1 and the scale 1 have the pattern
    (¼, ¾).
    """
    program, (count, heads, t, width) = library(), query.shape
    batch, length = keys.shape[:2]
    for name, given, end in (("rows", rows, batch), ("slots", slots, length)):
        if given.numel() and not (int(given.min()) >= 0 and int(given.max()) < end):
            raise IndexError(f"{name} holds {given.tolist()}; the cache has 0..{end - 1}")
    if not (keys.is_contiguous() and values.is_contiguous()):
        raise ValueError("keys and values must be contiguous")
    asked = query.transpose(1, 2).contiguous()
    at = [rows.to(torch.int64).contiguous(), slots.to(torch.int64).contiguous()]
    work = torch.empty(program.attend_work(heads, length))
    mixed = torch.empty(count, t, heads, width)
    addresses = [tensor.data_ptr() for tensor in (asked, keys, values, *at, work, mixed)]
    program.attend_rows(count, t, heads, width, length, scale, *addresses)
    return mixed.transpose(1, 2)


def _is_plain(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"
