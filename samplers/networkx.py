"""NetworkX: random graphs and trees."""

import itertools
import math
from typing import Any

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("networkx")

EDGES = {(0, 1): 1.0, (1, 2): 2.0, (0, 2): 0.5}


def _key(graph: Any) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((min(e), max(e)) for e in graph.edges()))


def _tree(multiplicative: bool) -> Case:
    import networkx as nx

    graph = nx.Graph()
    for (a, b), weight in EDGES.items():
        graph.add_edge(a, b, weight=weight)

    def program() -> Any:
        return _key(nx.random_spanning_tree(graph, "weight", multiplicative=multiplicative))

    combine = math.prod if multiplicative else math.fsum
    weights = {
        tree: combine([EDGES[edge] for edge in tree])
        for tree in itertools.combinations(sorted(EDGES), 2)
    }
    return Case(program, definitions.normalised(weights))


@SHELF.add(
    "random_spanning_tree, multiplicative",
    promise="the probability of each tree is the product of its edge weight over the sum of the product of all the "
    "spanning trees",
    source="docstring of random_spanning_tree",
    note="a triangle with three weights",
)
def product_of_weights() -> Case:
    return _tree(True)


@SHELF.add(
    "random_spanning_tree, additive",
    promise="the probability is the sum of its edge weight over the sum of the sum of weights for all spanning trees",
    source="docstring of random_spanning_tree",
    note="a triangle with three weights",
)
def sum_of_weights() -> Case:
    return _tree(False)


@SHELF.add(
    "random_labeled_tree",
    promise="Returns a labeled tree on `n` nodes chosen uniformly at random",
    source="docstring",
    note="four nodes: sixteen trees",
)
def labeled_tree() -> Case:
    import networkx as nx

    trees = [
        edges
        for edges in itertools.combinations(itertools.combinations(range(4), 2), 3)
        if len(nx.Graph(edges)) == 4 and nx.is_tree(nx.Graph(edges))
    ]
    return Case(lambda: _key(nx.random_labeled_tree(4)), definitions.uniform(trees))


@SHELF.add(
    "random_unlabeled_rooted_tree",
    promise="Returns a number of unlabeled rooted trees uniformly at random",
    source="docstring",
    note="four nodes: four trees, told apart by the shape under the root",
)
def rooted_tree() -> Case:
    import networkx as nx

    def shape(tree: Any, node: int, parent: int | None = None) -> Any:
        return tuple(sorted(shape(tree, n, node) for n in tree[node] if n != parent))

    def program() -> Any:
        tree = nx.random_unlabeled_rooted_tree(4)
        return shape(tree, tree.graph["root"])

    leaf: Any = ()
    shapes = [
        (leaf, leaf, leaf),
        ((leaf,), leaf),
        ((leaf, leaf),),
        (((leaf,),),),
    ]
    return Case(program, definitions.uniform(tuple(sorted(s)) for s in shapes))


@SHELF.add(
    "dense_gnm_random_graph",
    promise="a graph is chosen uniformly at random from the set of all graphs with n nodes and m edges",
    source="docstring of dense_gnm_random_graph",
    note="four nodes, two edges",
)
def gnm() -> Case:
    import networkx as nx

    graphs = list(itertools.combinations(itertools.combinations(range(4), 2), 2))
    return Case(lambda: _key(nx.dense_gnm_random_graph(4, 2)), definitions.uniform(graphs))


@SHELF.add(
    "gnp_random_graph",
    promise="chooses each of the possible edges with probability p",
    source="docstring of gnp_random_graph",
    note="three nodes, p = 0.3",
)
def gnp() -> Case:
    import networkx as nx

    pairs = list(itertools.combinations(range(3), 2))
    target = {
        chosen: 0.3 ** len(chosen) * 0.7 ** (3 - len(chosen))
        for count in range(4)
        for chosen in itertools.combinations(pairs, count)
    }
    return Case(lambda: _key(nx.gnp_random_graph(3, 0.3)), target)
