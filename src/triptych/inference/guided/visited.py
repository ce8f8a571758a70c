"""The part of the tree of prefixes that a walk has seen, as columns that grow.

A node that was looked into knows the tokens that may follow it, what each of them leads to, and
the law of the walk's next move, so coming back to it asks nobody anything.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

UNKNOWN = -1


class VisitedTree:
    """Nodes 0..count-1; the first `roots` of them are roots.

    parent, log_value       of each node; the root's value is never used
    leaf, known             whether it ends a string; whether it was looked into
    moves[n]                log-probabilities of (parent, child 0, child 1, …)
    child_token[n, k]       the token of the k-th child
    child_value[n, k], child[n, k]   its log-value, and its node once it was visited
    """

    def __init__(self, roots: int, device: torch.device) -> None:
        self.count = roots
        self.parent = torch.full((roots,), UNKNOWN, device=device)
        self.log_value = torch.zeros(roots, dtype=torch.float64, device=device)
        self.leaf = torch.zeros(roots, dtype=torch.bool, device=device)
        self.known = torch.zeros(roots, dtype=torch.bool, device=device)
        self.moves = torch.full((roots, 2), -torch.inf, dtype=torch.float64, device=device)
        self.child_token = torch.full((roots, 1), UNKNOWN, device=device)
        self.child_value = torch.full((roots, 1), -torch.inf, dtype=torch.float64, device=device)
        self.child = torch.full((roots, 1), UNKNOWN, device=device)

    def look_into(
        self,
        nodes: Int[Tensor, " nodes"],
        log_probs: Float[Tensor, "nodes vocab"],
        log_values: Float[Tensor, "nodes vocab"],
    ) -> None:
        """The children of inner nodes: those of positive probability under the model."""
        widest = max(1, int((log_probs > -torch.inf).sum(-1).max()))
        self._widen(widest)
        width = self.child_token.shape[1]
        kept, tokens = log_probs.topk(min(width, log_probs.shape[1]), dim=-1)
        tokens, order = tokens.sort(-1)  # by token, so that nothing depends on ties
        kept = kept.gather(-1, order)
        values = log_values.gather(-1, tokens).masked_fill(kept == -torch.inf, -torch.inf)
        short = width - tokens.shape[1]
        pad = torch.nn.functional.pad
        tokens, values = (
            pad(tokens, (0, short), value=UNKNOWN),
            pad(values, (0, short), value=-torch.inf),
        )
        kept = pad(kept, (0, short), value=-torch.inf)
        self._keep_children(nodes, tokens)
        self.child_token[nodes], self.child_value[nodes] = tokens, values
        self._set_moves(nodes, kept + values)

    def close(self, nodes: Int[Tensor, " nodes"]) -> None:
        """Leaves: the only move is back."""
        none = torch.full_like(self.child_value[nodes], -torch.inf)
        self._set_moves(nodes, none)

    def enter(
        self, nodes: Int[Tensor, " rows"], k: Int[Tensor, " rows"], leaf: Bool[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        """The k-th child of each node, made now if it was never visited."""
        fresh = torch.nonzero(self.child[nodes, k] == UNKNOWN)[:, 0]
        if len(fresh):
            width = self.child.shape[1]
            places, where = (nodes[fresh] * width + k[fresh]).unique(return_inverse=True)
            first = torch.zeros_like(places).scatter_reduce(
                0, where, fresh, "amin", include_self=False
            )
            parents, columns = places // width, places % width
            made = self._add(parents, self.child_value[parents, columns], leaf[first])
            self.child[parents, columns] = made
        return self.child[nodes, k]

    def _set_moves(self, nodes: Int[Tensor, " nodes"], down: Float[Tensor, "nodes k"]) -> None:
        """Normalise; where no move has weight the law is nan, and the node is `stuck`."""
        up = self.log_value[nodes].masked_fill(self.parent[nodes] == UNKNOWN, -torch.inf)
        weights = torch.cat([up[:, None], down], dim=1)
        self.moves[nodes] = weights.log_softmax(-1)
        self.known[nodes] = True

    def stuck(self, nodes: Int[Tensor, " rows"]) -> Bool[Tensor, " rows"]:
        """Roots all of whose children have value 0: the walk cannot leave them."""
        return self.moves[nodes].isnan().any(-1)

    def _keep_children(self, nodes: Int[Tensor, " nodes"], tokens: Int[Tensor, "nodes k"]) -> None:
        """A node that is looked into again keeps its children, unless its tokens changed."""
        same = (self.child_token[nodes] == tokens).all(-1)
        self.child[nodes[~same]] = UNKNOWN

    def _add(
        self,
        parents: Int[Tensor, " new"],
        log_values: Float[Tensor, " new"],
        leaf: Bool[Tensor, " new"],
    ) -> Int[Tensor, " new"]:
        made = torch.arange(self.count, self.count + len(parents), device=parents.device)
        self.count += len(parents)
        if self.count > len(self.parent):
            self._lengthen(max(self.count, 2 * len(self.parent)))
        self.parent[made], self.log_value[made], self.leaf[made] = parents, log_values, leaf
        return made

    def _lengthen(self, size: int) -> None:
        for name, value in self._columns().items():
            more = value.new_empty((size - len(value), *value.shape[1:])).fill_(_blank(value))
            setattr(self, name, torch.cat([value, more]))

    def _widen(self, width: int) -> None:
        if width <= self.child_token.shape[1]:
            return
        for name, value in self._columns().items():
            if value.ndim == 2:
                wide = width + (1 if name == "moves" else 0)
                more = value.new_empty((len(value), wide - value.shape[1])).fill_(_blank(value))
                setattr(self, name, torch.cat([value, more], dim=1))

    def _columns(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


def _blank(column: Tensor) -> float | int | bool:
    if column.dtype == torch.bool:
        return False
    return -torch.inf if column.is_floating_point() else UNKNOWN
