"""Which rows of a tensor are equal.

torch finds distinct rows on a GPU by a sort that fails now and then with CUDA 13 (an illegal memory
access, which several processes on one card all get to see). So rows go to the CPU for it: they are
prompts and patterns, a few hundred kilobytes, and the answer is waited for in any case.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor


class Distinct(NamedTuple):
    """rows    the distinct ones, in lexicographic order
    group   which of them each row is
    first   the first row that is equal to each of them
    """

    rows: Shaped[Tensor, "distinct length"]
    group: Int[Tensor, " n"]
    first: Int[Tensor, " distinct"]


def distinct_rows(rows: Shaped[Tensor, "n length"]) -> Distinct:
    """The distinct rows of at least one column, on the device of the rows.

    Worked value: 3 1, 0 2, 3 1 are 0 2 and 3 1; the groups are 1, 0, 1, and the first rows 1, 0.
    """
    found, group = rows.cpu().unique(dim=0, return_inverse=True)
    place = torch.arange(len(rows))
    first = torch.full((len(found),), len(rows)).scatter_reduce(0, group, place, "amin")
    return Distinct(*(tensor.to(rows.device) for tensor in (found, group, first)))
