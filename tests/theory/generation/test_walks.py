"""The walk of VGB as a matrix: against its own step, by hand, and by other ways to the same law."""

import math

import mpmath
import numpy as np
import pytest
import torch
from tests.support import many_digits
from tests.support.grids import pairs

from triptych.core.divergences import total_variation
from triptych.core.enumeration import exact_transition_matrix
from triptych.core.table import Table, all_sequences
from triptych.inference.guided import vgb
from triptych.structures.constraints import AllZeros, SomeZero
from triptych.structures.uniform import Uniform
from triptych.studies.generation.shared import vgb_tasks as vgb_tasks
from triptych.theory.generation import walks
from triptych.theory.generation.walks import Walk
from triptych.verifiers.exact import ExactValue

pytestmark = pytest.mark.numerical


class Given:
    """log V by prefix, 0 for those that are not named."""

    def __init__(self, **log_values):
        self.values = {tuple(map(int, name[1:])): value for name, value in log_values.items()}

    def log_value(self, prefix):
        found = [self.values.get(tuple(row), 0.0) for row in prefix.tolist()]
        return torch.tensor(found, dtype=torch.float64)


class Everything:
    def log_value(self, prefix):
        return torch.zeros(len(prefix), dtype=torch.float64)


def fair(height):
    return Table.of(Uniform(2, height))


def close(found, wanted):
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64))


def nodes_of(walk):
    return [
        tuple(all_sequences(walk.vocab_size, depth)[rank].tolist())
        for depth, rank in zip(walk.depth.tolist(), walk.rank.tolist(), strict=True)
    ]


CASES = {
    "random": (Table.random(2, 4, seed=0), vgb._Arbitrary()),
    "three letters": (Table.random(3, 3, seed=1), vgb._Arbitrary()),
    "some zero": (fair(4), ExactValue(fair(4), SomeZero(4))),
    "a path": (fair(3), ExactValue(fair(3), AllZeros(3))),
    "dead ends": (fair(3), Given(x0=-math.inf, x10=-math.inf, x111=-math.inf)),
}
each_case = pytest.mark.parametrize(("table", "value"), CASES.values(), ids=CASES.keys())
ONE = Walk.of(fair(1), Given(x1=math.log(3)))  # conductances ½ and 3/2
TWO = Walk.of(fair(2), Everything())


# ------------------------------------------------------------------ the matrix


@each_case
def test_the_matrix_is_that_of_the_step(table, value):
    walk = Walk.of(table, value)
    wanted = exact_transition_matrix(
        nodes_of(walk), lambda node, rng: vgb.walk_step(node, table, value, table.length, rng)
    )
    np.testing.assert_allclose(walk.transition().toarray(), wanted.numpy(), atol=1e-14)


@each_case
def test_stationary_law_and_symmetric_form(table, value):
    walk = Walk.of(table, value)
    step, law = walk.transition().toarray(), walk.stationary.numpy()
    np.testing.assert_allclose(law @ step, law, atol=1e-15)
    weights = vgb.stationary_weights(table, value)
    reached = [weights[node] for node in nodes_of(walk)]
    np.testing.assert_allclose(law, np.array(reached) / sum(reached), atol=1e-14)
    root = np.sqrt(law)
    symmetric = walk.symmetric().toarray()
    np.testing.assert_allclose(symmetric, root[:, None] * step / root, atol=1e-14)
    np.testing.assert_allclose(symmetric, symmetric.T, atol=0)


def test_worked_walk():
    assert nodes_of(ONE) == [(), (0,), (1,)]
    close(ONE.conductance, [0.0, 1 / 3, 1.0])
    close(ONE.stationary, [1 / 2, 1 / 8, 3 / 8])
    wanted = [[1 / 2, 1 / 8, 3 / 8], [1 / 2, 1 / 2, 0], [1 / 2, 0, 1 / 2]]
    np.testing.assert_allclose(ONE.transition().toarray(), wanted)
    close(TWO.stationary, [1 / 4, 1 / 4, 1 / 4, *([1 / 16] * 4)])


def test_what_cannot_be_reached_is_left_out():
    walk = Walk.of(*CASES["dead ends"])
    assert nodes_of(walk) == [(), (1,), (1, 1), (1, 1, 0)]
    with pytest.raises(ValueError, match="nowhere to go"):
        Walk.of(fair(1), Given(x0=-math.inf, x1=-math.inf))
    stuck = Walk.of(fair(2), Given(x00=-math.inf, x01=-math.inf, x1=-math.inf))
    with pytest.raises(ValueError, match="no leaf can be reached"):
        walks.first_leaf(stuck)


# ------------------------------------------------------------------ mass and speed


def test_worked_mass_and_its_bound():
    assert walks.leaf_mass(ONE) == pytest.approx(1 / 2)
    assert walks.leaf_mass(TWO) == pytest.approx(1 / 4)
    assert walks.leaf_mass_bound(3, 0.5) == 1 / 8
    assert walks.leaf_mass_bound(5, 0.0) == 1 / 10


@pytest.mark.parametrize(("name", "epsilon"), pairs(vgb_tasks.TASKS, [0.0, 0.3, 2.0]))
def test_bounds_hold_for_values_within_a_factor(name, epsilon):
    for seed in range(3):
        table, outcome = vgb_tasks.task(name, 5, seed)
        walk = Walk.of(table, vgb_tasks.off_by(epsilon, table, outcome, seed))
        exact = Walk.of(table, ExactValue(table, outcome))
        mass, bound = walks.leaf_mass(walk), walks.leaf_mass_bound(5, epsilon)
        assert mass >= bound * (1 - 1e-12)
        if epsilon == 0:
            assert mass == pytest.approx(1 / 10)
        time = walks.relaxation_time(walk)
        assert time <= walks.relaxation_bound(5, epsilon)
        assert time <= (1 + epsilon) ** 2 * walks.relaxation_time(exact) * (1 + 1e-9)


def test_the_leaf_bound_is_met_by_the_worst_values():
    """All inner values too large by 1 + ε."""
    walk = Walk.of(
        fair(3), Given(**{f"x{x}": math.log(1.5) for x in ("0", "1", "00", "01", "10", "11")})
    )
    assert walks.leaf_mass(walk) == pytest.approx(walks.leaf_mass_bound(3, 0.5))


def test_worked_gap():
    path = Walk.of(fair(2), ExactValue(fair(2), AllZeros(2)))
    assert walks.spectral_gap(path) == pytest.approx(1 / 2)
    edge = Walk.of(fair(1), AllZeros(1))
    assert walks.spectral_gap(edge) == pytest.approx(1)
    assert walks.relaxation_bound(2, 1.0) == 1152
    assert walks.relaxation_time(ONE) == pytest.approx(2)  # 1, ½ and 0


@pytest.mark.parametrize("height", [1, 2, 3, 5, 7, 9, 11])
def test_relaxation_time_of_fair_bits(height):
    """By hand; from height 8 on by the sparse method."""
    found = walks.relaxation_time(Walk.of(fair(height), Everything()))
    assert found == pytest.approx(walks.path_relaxation_time(height), rel=1e-9)


@each_case
def test_the_gap_by_all_eigenvalues(table, value):
    walk = Walk.of(table, value)
    values = np.linalg.eigvals(walk.transition().toarray())
    assert walks.spectral_gap(walk) == pytest.approx(1 - np.sort(values.real)[-2], rel=1e-9)


class Spread:
    """log V uniform on an interval of this width, drawn for each length with a seed."""

    def __init__(self, width, seed):
        self.width, self.seed = width, seed

    def log_value(self, prefix):
        draw = np.random.default_rng([self.seed, prefix.shape[1]])
        return torch.from_numpy(self.width * draw.random(len(prefix)))


@pytest.mark.parametrize("width", [5, 40, 80, 200, 500])
@pytest.mark.parametrize("height", [2, 3])
def test_gaps_against_many_digits(height, width):
    """From 1e-3 down to 1e-140: rounding changes each by a few units in its last digits."""
    for seed in range(2):
        walk = Walk.of(fair(height), Spread(width, seed))
        wanted = float(many_digits.walk_gap(walk, 40 + width))
        assert walks.spectral_gap(walk) == pytest.approx(wanted, rel=1e-12)
        assert walks.relaxation_time(walk) == pytest.approx(1 / wanted, rel=1e-12)


def weak_middle(log_c):
    """The path of edges 1, c, 1 from the root to 000."""
    blocked = dict.fromkeys(("x1", "x01", "x001"), -math.inf)
    return Walk.of(fair(3), Given(x00=log_c + math.log(2), x000=math.log(4), **blocked))


@pytest.mark.parametrize("log_c", [2.0, 0.0, -20.0, -38.0, -300.0, -680.0])
def test_a_path_with_a_weak_middle(log_c):
    """f = (u, v, -v, -u) with θ u = v and θ v = (1 - b) u - b v, b = c / (1 + c): θ = 1 - b, and
    the gap of the lazy walk is b / 2. At c = e^-38, 1 - λ is 0 in floats."""
    walk = weak_middle(log_c)
    b = 1 / (1 + math.exp(-log_c))
    assert walks.spectral_gap(walk) == pytest.approx(b / 2, rel=1e-13)
    assert walks.steps_to_a_leaf(walk) == pytest.approx(steps_over_a_path([1.0, b / (1 - b), 1.0]))


def steps_over_a_path(conductance):
    """Lazy steps from one end to the other: Σ_k (2 Σ_{j ≤ k} c_j - c_k) / c_k, twice."""
    total, steps = 0.0, 0.0
    for c in conductance:
        steps += 2 * (2 * total + c) / c
        total += c
    return steps


def test_a_gap_that_no_float_holds_is_a_sentence():
    with pytest.raises(ValueError, match="gap of the walk is below 1e-300"):
        walks.spectral_gap(weak_middle(-700.0))
    assert math.isfinite(walks.steps_to_a_leaf(weak_middle(-700.0)))
    with pytest.raises(ValueError, match=r"e\^8.* steps to a leaf on average"):
        walks.steps_to_a_leaf(weak_middle(-800.0))


def test_values_far_apart():
    """V(0) is e^900 times V(1), and the same again one token later: local ratios decide."""
    walk = Walk.of(fair(2), Given(x0=900.0, x00=900.0, x01=0.0, x10=-900.0, x11=-900.0))
    # from the root to 0 for sure; there 00 and the root have the weights e^900 / 4 and e^900 / 2
    one = walks.after(walk, 1)
    close(one, [1 / 2, 1 / 2, 0.0, 0.0, 0.0, 0.0, 0.0])
    close(walks.after(walk, 2), [5 / 12, 1 / 2, 0.0, 1 / 12, 0.0, 0.0, 0.0])
    close(walk.stationary, [1 / 3, 1 / 2, 0.0, 1 / 6, 0.0, 0.0, 0.0])
    assert walks.mixing_time(walk) == 1  # ½ |½ - ⅓| + ½ · ⅙ = ⅙
    assert walks.leaf_mass(walk) == pytest.approx(1 / 6)
    wanted = float(many_digits.walk_gap(walk))
    assert walks.spectral_gap(walk) == pytest.approx(wanted, rel=1e-12)
    close(walks.first_leaf(walk).log_probs.exp(), [1.0, 0.0, 0.0, 0.0])
    # from 0 to 00 with ⅓, else back: three moves from each of the root and 0, two lazy steps each
    assert walks.steps_to_a_leaf(walk) == pytest.approx(2 * (3 + 3))


@pytest.mark.parametrize("width", [40, 1500])
def test_the_first_leaf_of_far_apart_values(width):
    """By elimination of the inner nodes in many digits."""
    walk = Walk.of(fair(3), Spread(width, 3))
    law, steps = many_digits.first_leaf(walk, 60 + width)
    found = walks.first_leaf(walk).log_probs
    for rank, wanted in law.items():
        assert float(found[rank]) == pytest.approx(float(mpmath.log(wanted)), rel=1e-12, abs=1e-12)
    if steps < 1e300:
        assert walks.steps_to_a_leaf(walk) == pytest.approx(float(steps), rel=1e-11)
    else:
        with pytest.raises(ValueError, match="no float holds"):
            walks.steps_to_a_leaf(walk)


def test_worked_mixing_time():
    assert walks.mixing_time(Walk.of(fair(1), Everything())) == 1
    assert walks.mixing_time(TWO, 0.25) == 1  # (½, ½, 0) against (¼, ½, ¼) by levels
    assert walks.mixing_time(TWO, 0.24) == 2
    assert walks.mixing_time(TWO, 0.8) == 0  # at the root: 1 - ¼
    with pytest.raises(ValueError, match="distance is 0"):
        walks.mixing_time(TWO, 0.0)
    with pytest.raises(RuntimeError, match="not within 0.01"):
        walks.mixing_time(TWO, 0.01, most=3)


@each_case
def test_mixing_time_is_the_first(table, value):
    walk = Walk.of(table, value)
    steps = walks.mixing_time(walk, 0.1)
    at = [
        float(0.5 * (walks.after(walk, t) - walk.stationary).abs().sum()) for t in range(steps + 1)
    ]
    assert at[-1] <= 0.1
    assert all(distance > 0.1 for distance in at[:-1])


# ------------------------------------------------------------------ what it returns


@each_case
def test_laws_on_the_way(table, value):
    walk = Walk.of(table, value)
    step = torch.from_numpy(walk.transition().toarray())
    laws = [torch.linalg.matrix_power(step, t)[0] for t in range(6)]
    torch.testing.assert_close(walks.after(walk, 5), laws[5])
    torch.testing.assert_close(walks.uniform_on_path(walk, 5), sum(laws[1:]) / 5)
    leaf = walks.given_leaf(walk, laws[5])
    mass = dict(zip(nodes_of(walk), laws[5].tolist(), strict=True))
    total = sum(p for node, p in mass.items() if len(node) == table.length)
    for x, p in leaf.as_dict().items():
        assert p == pytest.approx(mass.get(x, 0.0) / total)


def test_worked_laws():
    close(walks.after(ONE, 0), [1.0, 0.0, 0.0])
    close(walks.after(ONE, 1), [1 / 2, 1 / 8, 3 / 8])
    close(walks.uniform_on_path(ONE, 2), [1 / 2, 1 / 8, 3 / 8])
    close(walks.given_leaf(ONE, ONE.stationary).log_probs.exp(), [1 / 4, 3 / 4])
    close(walks.first_leaf(ONE).log_probs.exp(), [1 / 4, 3 / 4])
    with pytest.raises(ValueError, match="at least 2 steps"):
        walks.given_leaf(TWO, walks.after(TWO, 1))


@each_case
def test_the_first_leaf_by_stopping_the_walk(table, value):
    """Leaves made absorbing, and very many steps."""
    walk = Walk.of(table, value)
    step = torch.from_numpy(walk.transition().toarray())
    step[walk.leaves] = torch.eye(len(step)).double()[walk.leaves]
    law = torch.linalg.matrix_power(step, 2**14)[0]
    assert float(law[~walk.leaves].sum()) < 1e-12
    wanted = walks.given_leaf(walk, law).log_probs.exp()
    torch.testing.assert_close(walks.first_leaf(walk).log_probs.exp(), wanted)
    slow = sum(float(torch.linalg.matrix_power(step, t)[0][~walk.leaves].sum()) for t in range(3))
    assert walks.steps_to_a_leaf(walk) > slow


@pytest.mark.parametrize("height", [1, 2, 4, 6])
def test_steps_to_a_leaf(height):
    """A fair walk from 0 to H, reflected at 0, takes H² moves, and a lazy one twice as long."""
    walk = Walk.of(fair(height), Everything())
    assert walks.steps_to_a_leaf(walk) == pytest.approx(2 * height**2)


def test_long_walks_end_at_the_target():
    table, outcome = vgb_tasks.task("random", 5, 0)
    walk = Walk.of(table, vgb_tasks.off_by(1.0, table, outcome, 0))
    target = table.tilt(outcome.log_value).log_probs
    leaf = walks.given_leaf(walk, walks.after(walk, 4000)).log_probs
    assert float(total_variation(leaf, target)) < 1e-12
    assert float(total_variation(walks.first_leaf(walk).log_probs, target)) > 0.05
