"""Gaps of reversible chains in as many digits as it takes: the oracle of the numerical tests."""

import mpmath


def gap(flow, digits):
    """The smallest positive eigenvalue of I - P, from p(x) P(x, y) for x ≠ y and from p.

    `flow` has p(x) P(x, y) off the diagonal and p(x) on it, up to a common factor, as numbers of
    mpmath: its exponents have no end.
    """
    size = flow.rows
    with mpmath.workdps(digits):
        matrix = mpmath.matrix(size, size)
        for x in range(size):
            away = mpmath.fsum(flow[x, y] for y in range(size) if y != x)
            matrix[x, x] = away / flow[x, x]
            for y in range(x):
                value = -flow[x, y] / mpmath.sqrt(flow[x, x] * flow[y, y])
                matrix[x, y] = matrix[y, x] = value
        return sorted(mpmath.eigsy(matrix, eigvals_only=True))[1]


def block_flow(table, masks, digits):
    """p(x) P(x, y) of block dynamics on the support, by the definition."""
    with mpmath.workdps(digits):
        log_p = table.log_probs.tolist()
        kept = [x for x, value in enumerate(log_p) if value > -mpmath.inf]
        words = table.sequences.tolist()
        chance = masks.log_prob(table.sequences).tolist()
        flow = mpmath.matrix(len(kept), len(kept))
        for m, block in enumerate(masks.blocks.tolist()):
            groups = {}
            for place, x in enumerate(kept):
                shown = tuple(w for w, hidden in zip(words[x], block, strict=True) if not hidden)
                weight = mpmath.exp(mpmath.mpf(log_p[x])) * mpmath.exp(mpmath.mpf(chance[x][m]))
                groups.setdefault(shown, []).append((place, weight))
            for members in groups.values():
                total = mpmath.fsum(weight for _, weight in members)
                for place, weight in members if total > 0 else ():
                    for other, its_weight in members:
                        flow[place, other] += weight * its_weight / total
        for place, x in enumerate(kept):
            flow[place, place] = mpmath.exp(mpmath.mpf(log_p[x]))
        return flow


def poincare(table, masks, digits=60):
    """C of block dynamics."""
    return 1 / gap(block_flow(table, masks, digits), digits)


def walk_gap(walk, digits=60):
    """The gap of a lazy walk on a tree, from its log-conductances."""
    with mpmath.workdps(digits):
        size, parent = len(walk.depth), walk.parent.tolist()
        logs = walk.log_conductance.tolist()
        flow = mpmath.matrix(size, size)
        for x in range(1, size):
            edge = mpmath.exp(mpmath.mpf(logs[x]))
            flow[x, parent[x]] = flow[parent[x], x] = edge
            flow[x, x] += 2 * edge
            flow[parent[x], parent[x]] += 2 * edge
        return gap(flow, digits)


def first_leaf(walk, digits):
    """{rank of a leaf: probability that it is the first}, and the expected lazy steps to a leaf."""
    with mpmath.workdps(digits):
        parent, leaves = walk.parent.tolist(), walk.leaves.tolist()
        edge = [mpmath.exp(mpmath.mpf(value)) for value in walk.log_conductance.tolist()]
        edge[0] = mpmath.mpf(0)
        weight = list(edge)
        for x in range(1, len(parent)):
            weight[parent[x]] += edge[x]
        inner = [x for x in range(len(parent)) if not leaves[x]]
        place = {x: i for i, x in enumerate(inner)}
        system = mpmath.eye(len(inner))
        for x in range(1, len(parent)):
            if x in place:
                system[place[parent[x]], place[x]] -= edge[x] / weight[parent[x]]
                system[place[x], place[parent[x]]] -= edge[x] / weight[x]
        start = mpmath.matrix([1] + [0] * (len(inner) - 1))
        visits = mpmath.lu_solve(system.T, start)
        law = {
            walk.rank.tolist()[x]: visits[place[parent[x]]] * edge[x] / weight[parent[x]]
            for x in range(len(parent))
            if leaves[x]
        }
        return law, 2 * mpmath.fsum(visits)
