"""Sums over many blocks of positions at once, sharing what the blocks have in common.

A block is summed out position by position, in increasing order: {0, 1, 4} and {0, 1, 6} share the
sum over {0, 1}. So the sets that are met form a tree, all sets of one size are one tensor, and a
level needs one addition per position. The way back spreads a function of x_-K over x.

Notation
--------
d   level: the size of the sets summed out so far
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class BlockSums:
    """A plan for the blocks of one mask law.

    steps     for each level, (position i, the sets of that level to which i is added)
    ends      for each size of blocks, (level, where its blocks stand among the sets of the level)
    numbers   for each size of blocks, the numbers of the blocks
    """

    vocab_size: int
    length: int
    steps: tuple[tuple[tuple[int, Tensor | slice], ...], ...]
    ends: tuple[tuple[int, Tensor], ...]
    numbers: tuple[Tensor, ...]
    widths: tuple[int, ...]  # sets at each level

    @classmethod
    def of(cls, blocks: Bool[Tensor, "blocks length"], vocab_size: int) -> "BlockSums":
        """The plan. Worked value: blocks {0, 1} and {0, 2}: one set at level 1, two at level 2."""
        length = blocks.shape[1]
        sets = [tuple(i for i, hidden in enumerate(row) if hidden) for row in blocks.tolist()]
        place: dict[tuple[int, ...], int] = {(): 0}
        levels, steps, widths = [place], [], [1]
        for d in range(max(map(len, sets))):
            wanted = {block[: d + 1] for block in sets if len(block) > d}
            order = sorted(wanted, key=lambda s: (s[-1], levels[d][s[:-1]]))
            parents: dict[int, list[int]] = {}
            for s in order:
                parents.setdefault(s[-1], []).append(levels[d][s[:-1]])
            steps.append(tuple((i, _prefix(rows)) for i, rows in parents.items()))
            levels.append({s: at for at, s in enumerate(order)})
            widths.append(len(order))
        sizes = sorted({len(block) for block in sets})
        numbers = [[m for m, block in enumerate(sets) if len(block) == size] for size in sizes]
        ends = [
            (size, torch.tensor([levels[size][sets[m]] for m in mine]))
            for size, mine in zip(sizes, numbers, strict=True)
        ]
        return cls(
            vocab_size,
            length,
            tuple(steps),
            tuple(ends),
            tuple(torch.tensor(mine) for mine in numbers),
            tuple(widths),
        )

    @property
    def entries(self) -> int:
        """Numbers held for one function, at the widest level."""
        return max(
            width * self.vocab_size ** (self.length - d) for d, width in enumerate(self.widths)
        )

    def forward(self, f: Float[Tensor, "count columns"]) -> list[Tensor]:
        """Σ_{x_K} f for every block: a tensor [blocks, x_-K, columns] for each size of blocks."""
        level, found, ends = f[None], [], dict(self.ends)
        for d in range(len(self.widths)):
            if d in ends:
                found.append(level[ends[d]])
            if d < len(self.steps):
                level = torch.cat([self._summed(level, d, i, rows) for i, rows in self.steps[d]])
        return found

    def backward(self, values: list[Tensor]) -> Float[Tensor, "count columns"]:
        """Σ_K v_K(x_-K), as a function of x."""
        given = {d: (at, v) for (d, at), v in zip(self.ends, values, strict=True)}
        columns = values[0].shape[-1]
        level = values[0].new_zeros(0)
        for d in reversed(range(len(self.widths))):
            shape = (self.widths[d], self.vocab_size ** (self.length - d), columns)
            above = values[0].new_zeros(shape)
            if d in given:
                above.index_add_(0, *given[d])
            at = 0
            for i, rows in self.steps[d] if d < len(self.steps) else ():
                parts = self._split(above, d, i)
                chosen = parts[rows]
                spread = level[at : at + len(chosen)].reshape(
                    *chosen.shape[:2], 1, *chosen.shape[3:]
                )
                at += len(chosen)
                if isinstance(rows, slice):
                    chosen += spread
                else:
                    parts.index_add_(0, rows, spread.expand_as(chosen))
            level = above
        return level[0]

    def _split(self, level: Tensor, d: int, i: int) -> Tensor:
        """[sets, before i, x_i, after i, columns]."""
        before = self.vocab_size ** (i - d)
        return level.reshape(len(level), before, self.vocab_size, -1, level.shape[-1])

    def _summed(self, level: Tensor, d: int, i: int, rows: Tensor | slice) -> Tensor:
        parts = self._split(level, d, i)[rows]
        total = parts[:, :, 0] + parts[:, :, 1] if self.vocab_size > 1 else parts[:, :, 0]
        for x in range(2, self.vocab_size):
            total = total + parts[:, :, x]
        return total.reshape(len(parts), -1, level.shape[-1])


def _prefix(rows: list[int]) -> Tensor | slice:
    """Rows 0, 1, .., n - 1 as a slice, which needs no copy."""
    return slice(len(rows)) if rows == list(range(len(rows))) else torch.tensor(rows)
