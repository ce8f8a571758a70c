"""Which points of a picture lie together: neighbours of one kind, and clusters."""

import math

import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from triptych.core.validation import check_count


def neighbour_agreement(
    points: Float[Tensor, "n width"], labels: Bool[Tensor, " n"], *, neighbours: int = 10
) -> float:
    """The share of the nearest neighbours that have a point's own label, over all points.

    Two far clusters of one label each have 1; labels at random have their chance of agreeing.
    Worked value: on the line 0, 1, 10, 11 with labels a, a, b, b and one neighbour: 1; with labels
    a, b, a, b: 0.
    """
    return _agreement(_nearest(points, neighbours), labels)


def agreement_by_chance(
    points: Float[Tensor, "n width"],
    labels: Bool[Tensor, " n"],
    *,
    neighbours: int = 10,
    shuffles: int = 99,
    seed: int = 0,
) -> float:
    """The largest agreement when the labels are shuffled over the points, this many times.

    If labels and places have nothing to do with each other, the agreement exceeds this with
    probability 1 / (shuffles + 1).
    """
    near = _nearest(points, neighbours)
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(labels), generator=generator) for _ in range(shuffles)]
    return max(_agreement(near, labels[order.to(labels.device)]) for order in orders)


def clusters_holding(
    points: Float[Tensor, "n width"], *, share: float = 0.9, neighbours: int = 10
) -> int:
    """How many clusters it takes to hold this share of the points, the largest first.

    Two points are joined when each is among the other's nearest neighbours; clusters are what hangs
    together. Groups of about as many points as there are neighbours, or fewer, count as parts of
    what is near them. Worked value: on the line 0, 1, 10, 11, 12 with one neighbour, 0-1 and 10-11
    are joined; two clusters hold 80 %, and it takes the point 12 to hold 90 %.
    """
    check_count("points", len(points), at_least=1)
    near = _nearest(points, neighbours).cpu()
    joined = torch.zeros((len(points), len(points)), dtype=torch.bool)
    joined.scatter_(1, near, True)
    _, cluster = connected_components(csr_array((joined & joined.T).numpy()), directed=False)
    sizes = torch.bincount(torch.from_numpy(cluster)).sort(descending=True).values
    # A share such as 0.9 of 10 points rounds: 9 of them are enough.
    wanted = math.ceil(share * len(points) - 1e-9)
    return int((sizes.cumsum(0) < wanted).sum()) + 1


def _nearest(points: Float[Tensor, "n width"], neighbours: int) -> Int[Tensor, "n k"]:
    """The nearest other points of each, the first of equals first."""
    check_count("neighbours", neighbours, at_least=1)
    distance = torch.cdist(points.double(), points.double())
    distance.fill_diagonal_(torch.inf)
    order = distance.argsort(dim=-1, stable=True)
    return order[:, : min(neighbours, len(points) - 1)]


def _agreement(near: Int[Tensor, "n k"], labels: Bool[Tensor, " n"]) -> float:
    return float((labels[near] == labels[:, None]).double().mean())
