"""Gibbs sampling of spins: its law against enumeration, its tables against the conditionals."""

import math
import sys
from fractions import Fraction

import networkx
import pytest
import torch
from scipy import stats
from tests.support.refusals import refused

from benchmarks import sampling
from triptych.core.enumeration import exact_law, exact_transition_matrix
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.inference.chains import spins
from triptych.inference.chains.spins import MAX_NEIGHBOURS, REDONE, SpinGibbs, colours, split
from triptych.structures.ising import Ising

FAILURE = 1e-9


def gibbs(model: Ising) -> SpinGibbs:
    return SpinGibbs(model.coupling, model.field)


def uneven(rows: int, columns: int, seed: int) -> Ising:
    """A grid whose couplings and fields all differ."""
    generator = torch.Generator().manual_seed(seed)
    pattern = Ising.grid(rows, columns, 1.0).coupling
    raw = torch.randn(pattern.shape, generator=generator, dtype=torch.float64).triu(1)
    fields = 0.4 * torch.randn(len(pattern), generator=generator, dtype=torch.float64)
    return Ising(pattern * (raw + raw.T) * 0.6, fields)


def star(leaves: int) -> Ising:
    """One site with this many neighbours, all couplings different."""
    coupling = torch.zeros(leaves + 1, leaves + 1, dtype=torch.float64)
    coupling[0, 1:] = torch.linspace(-0.5, 0.6, leaves, dtype=torch.float64)
    return Ising(coupling + coupling.T, torch.linspace(-0.3, 0.4, leaves + 1, dtype=torch.float64))


MODELS = {
    "uneven 2 x 3": uneven(2, 3, seed=0),
    "frustrated, one colour a site": Ising.random(5, scale=0.6, seed=1),
    "clique and free": Ising.clique_and_free(5, 3, 0.5, [0.3, -0.1, 0.2, 1.0, -2.0]),
    "hub of nine": star(9),  # more neighbours than the tables take
    "free spins": Ising(
        torch.zeros(3, 3, dtype=torch.float64), torch.tensor([0.0, 0.4, -3.0]).double()
    ),
}
models = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def off_by(counts: torch.Tensor, probs: torch.Tensor) -> float:
    """The p-value of these counts; rare outcomes are thrown together so that χ² applies."""
    expected = probs * counts.sum()
    assert counts[probs == 0].sum() == 0
    rare = expected < 20
    cells = [*zip(counts[~rare].tolist(), expected[~rare].tolist(), strict=True)]
    if rare.any():
        cells.append((float(counts[rare].sum()), float(expected[rare].sum())))
    cells = [cell for cell in cells if cell[1] >= 1]
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    return float(stats.chi2.sf(statistic, len(cells) - 1))


# ------------------------------------------------------------------ colours


def test_colours_by_hand():
    assert colours(Ising.chain(4, 1.0).coupling) == [[0, 2], [1, 3]]
    triangle = torch.ones(3, 3, dtype=torch.float64).fill_diagonal_(0.0)
    assert colours(triangle) == [[0], [1], [2]]
    assert colours(torch.zeros(3, 3, dtype=torch.float64)) == [[0, 1, 2]]
    grid = [[8 * r + c for r in range(8) for c in range(8) if (r + c) % 2 == k] for k in (0, 1)]
    assert colours(Ising.grid(8, 8, -0.3).coupling) == grid


@pytest.mark.parametrize("seed", range(5))
def test_classes_have_no_coupling_inside(seed):
    graph = networkx.gnp_random_graph(20, 0.3, seed=seed)
    adjacency = torch.tensor(networkx.to_numpy_array(graph)) * -0.2
    classes = colours(adjacency)
    assert sorted(site for members in classes for site in members) == list(range(20))
    assert not any(graph.has_edge(i, j) for one in classes for i in one for j in one)
    assert len(classes) <= max(degree for _, degree in graph.degree) + 1


# ------------------------------------------------------------------ conditionals


def test_a_conditional_by_hand():
    """J = ½ log 3: given x_0 = 1, p(x_1 = 1) = sigmoid(log 3) = ¾; a field ½ log 2 makes it 6/7."""
    tokens = torch.tensor([[1, 0], [0, 1]])
    pair = gibbs(Ising.chain(2, math.log(3) / 2))
    found = pair.conditional_log_probs(tokens, [1]).exp()
    torch.testing.assert_close(found, torch.tensor([[[0.25, 0.75]], [[0.75, 0.25]]]).double())
    pulled = gibbs(Ising.chain(2, math.log(3) / 2, math.log(2) / 2))
    assert pulled.conditional_log_probs(tokens, [1])[0, 0, 1].exp().item() == pytest.approx(6 / 7)


@models
def test_conditionals_equal_the_table(model):
    table, system = Table.of(model), gibbs(model)
    tokens = table.sequences
    for i in range(model.length):
        hidden = (torch.arange(model.length) == i).expand_as(tokens)
        wanted = table.masked_log_probs(tokens, hidden)[:, i]
        torch.testing.assert_close(system.conditional_log_probs(tokens, [i])[:, 0], wanted)


@pytest.mark.parametrize("field", [500.0, -500.0])
def test_certain_spins_stay_finite(field):
    law = gibbs(Ising.chain(1, 0.0, field)).conditional_log_probs(torch.tensor([[0]]), [0])
    assert law[0, 0].sort().values.tolist() == [-1000.0, 0.0]


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"hub of nine"}))
def test_what_the_tables_hold_is_the_conditional(name):
    """(1 - ε) T / 2^15 + ε q over all states, looked up by hand, against the conditionals."""
    model = MODELS[name]
    system = gibbs(model)
    tokens = all_sequences(2, model.length)
    row_of = {int(site): row for row, site in enumerate(system._order)}
    for block, members in zip(system._blocks, system.classes, strict=True):
        wanted = system.conditional_log_probs(tokens, members)[..., 1].exp()
        for k, site in enumerate(members):
            assert row_of[site] == block.first + k
            code = torch.zeros(len(tokens), dtype=torch.long)
            for digit, near in enumerate(block.neighbours):
                code += tokens[:, int(system._order[int(near[k])])] * 2**digit
            entry = int(block.start[k]) + code
            whole = block.below.double()[entry] + 1
            found = (1 - REDONE) * whole / 2**15 + REDONE * block.redone[entry]
            torch.testing.assert_close(found, wanted[:, k], rtol=0, atol=2**-51)


def test_a_probability_splits_by_hand():
    whole, rest = split(torch.tensor([0.0, 0.5, 1.0, 2.0**-16], dtype=torch.float64))
    assert whole.tolist() == [0, 2**14, 2**15, 0]
    assert rest.tolist() == [0.0, 0.5, 1.0, 0.5]


def test_a_probability_splits_exactly():
    """In rational arithmetic; probabilities from everywhere, and near the steps of T."""
    generator = torch.Generator().manual_seed(0)
    steps = torch.randint(2**15, (300,), generator=generator) / 2**15 * (1 - REDONE)
    tiny = torch.tensor([1e-300, 1e-17, 1 - 2**-53, 1 - 2**-20, 2**-30])
    probs = torch.cat(
        [torch.rand(300, generator=generator), tiny, steps, steps + 1e-12, (steps - 1e-12).abs()]
    ).double()
    whole, rest = split(probs)
    for p, t, q in zip(probs.tolist(), whole.tolist(), rest.tolist(), strict=True):
        assert 0 <= t <= 2**15
        assert 0 <= q <= 1
        epsilon = Fraction(1, 2**15)
        mixed = (1 - epsilon) * Fraction(t, 2**15) + epsilon * Fraction(q)
        assert abs(mixed - Fraction(p)) <= Fraction(1, 2**52)


# ------------------------------------------------------------------ the law of a sweep


def transition(system: SpinGibbs, order: list[int]) -> torch.Tensor:
    """The product of the steps' matrices, each from the definition: states that agree outside."""
    states = all_sequences(2, system.sites)
    product = torch.eye(len(states), dtype=torch.float64)
    spin = (2 * states - 1).double()
    energy = 0.5 * ((spin @ system.coupling) * spin).sum(-1) + spin @ system.field
    for place in order:
        outside = [i for i in range(system.sites) if i not in system.classes[place]]
        agree = (states[:, None, outside] == states[None, :, outside]).all(-1)
        law = energy.expand(len(states), -1).masked_fill(~agree, -torch.inf).softmax(-1)
        product = product @ law
    return product


@pytest.mark.parametrize("scan", ["colours", "random"])
def test_the_door_and_the_definition(scan):
    system = gibbs(uneven(1, 3, seed=3))
    states = [tuple(x) for x in all_sequences(2, 3).tolist()]

    def step(state, rng):
        return tuple(system.sweep(torch.tensor([state]), sweeps=1, rng=rng, scan=scan)[0].tolist())

    wanted = transition(system, [0, 1])
    if scan == "random":  # two steps, each with either colour
        wanted = sum(transition(system, [a, b]) for a in (0, 1) for b in (0, 1)) / 4
    torch.testing.assert_close(exact_transition_matrix(states, step), wanted)


def test_a_step_redraws_its_block_alone():
    """Two coupled spins, J = ½ log 3: from 11, redrawing the second leaves it with ¾."""
    pair = gibbs(Ising.chain(2, math.log(3) / 2))
    law = exact_law(lambda rng: tuple(pair.step(torch.tensor([[1, 1]]), [1], rng)[0].tolist()))
    assert law.probs == pytest.approx({(1, 1): 0.75, (1, 0): 0.25})


@models
@pytest.mark.parametrize(("sweeps", "redone"), [(1, REDONE), (2, REDONE), (1, 0.5)])
def test_many_chains_have_the_law_of_the_definition(model, sweeps, redone, monkeypatch):
    """All chains from one state: no burn-in, no stationarity, the law of exactly these steps.

    With ε = ½ too: q is then far from p, so draws redone too often or too seldom would show.
    """
    monkeypatch.setattr(spins, "REDONE", redone)
    system, chains = gibbs(model), 60_000
    start = torch.arange(model.length) % 2
    got = system.fast_sweep(start.repeat(chains, 1), sweeps=sweeps, rng=TorchRng(sweeps))
    table = Table.of(model)
    matrix = transition(system, list(range(len(system.classes))) * sweeps)
    law = matrix[table.rank(start[None])][0]
    counts = torch.bincount(table.rank(got), minlength=len(law)).double()
    assert off_by(counts, law) > FAILURE


@models
def test_both_ways_and_the_door_have_one_law(model, monkeypatch):
    """By fields where tables would do; chains in many parts; and through the door."""
    system, table, chains = gibbs(model), Table.of(model), 20_000
    start = torch.zeros(chains, model.length, dtype=torch.long)
    law = transition(system, list(range(len(system.classes))))[0]
    door = system.sweep(start, sweeps=1, rng=TorchRng(1))
    monkeypatch.setattr(spins, "_DRAWS_AT_ONCE", {"cpu": 9_999})
    parts = system.fast_sweep(start, sweeps=1, rng=TorchRng(2))
    monkeypatch.setattr(spins, "MAX_NEIGHBOURS", -1)
    assert not system.tabulated
    fields = system.fast_sweep(start, sweeps=1, rng=TorchRng(3))
    for got in (door, parts, fields):
        assert got.shape == start.shape
        counts = torch.bincount(table.rank(got), minlength=len(law)).double()
        assert off_by(counts, law) > FAILURE
    assert len(parts.unique(dim=0)) > 1


def test_a_random_scan_draws_its_colours_first():
    """The colours come from the same generator, so that the law given them is known."""
    model, chains = Ising.random(4, scale=0.7, seed=2), 60_000
    system, table = gibbs(model), Table.of(model)
    assert len(system.classes) == 4
    generator = torch.Generator().manual_seed(11)
    order = torch.randint(4, (8,), generator=generator).tolist()
    assert order != [0, 1, 2, 3] * 2
    start = torch.zeros(chains, 4, dtype=torch.long)
    got = system.fast_sweep(start, sweeps=2, rng=TorchRng(11), scan="random")
    counts = torch.bincount(table.rank(got), minlength=16).double()
    assert off_by(counts, transition(system, order)[0]) > FAILURE


@pytest.mark.parametrize("way", ["tables", "fields"])
def test_moments_of_a_grid_of_sixteen(way, monkeypatch):
    """Means and all products of two spins of a 4 x 4 grid against enumeration.

    Started anywhere, a sweep brings two chains together by a factor 4 tanh 0.15 < 0.6 at least
    (Dobrushin), so after 40 sweeps the law is off by less than 16 · 0.6^40 = 2e-8. Hoeffding for
    136 averages of chains values in [-1, 1].
    """
    if way == "fields":
        monkeypatch.setattr(spins, "MAX_NEIGHBOURS", -1)
    model, chains = Ising.grid(4, 4, 0.15, 0.1), 40_000
    table = Table.of(model)
    spin, probs = (2 * table.sequences - 1).double(), table.log_probs.exp()
    start = torch.randint(2, (chains, 16), generator=torch.Generator().manual_seed(0))
    got = gibbs(model).fast_sweep(start, sweeps=40, rng=TorchRng(5))
    drawn = (2 * got - 1).double()
    reach = math.sqrt(2 * math.log(2 * 136 / FAILURE) / chains) + 2e-8
    torch.testing.assert_close(probs @ spin, model.magnetisation())
    assert (drawn.mean(0) - model.magnetisation()).abs().max() < reach
    products = drawn.T @ drawn / chains - spin.T @ (probs[:, None] * spin)
    assert products.abs().max() < reach
    assert reach < 0.05 < model.magnetisation().min()


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_rare_values_are_as_rare_as_they_should_be(sign):
    """p = 2^-17 is below the 15 bits of a draw: all of it comes from draws that are redone.

    6.4 million draws, 48.8 expected, with the binomial's own tails.
    """
    field = 0.5 * math.log(2.0**-17 / (1 - 2.0**-17)) * sign
    free = gibbs(Ising(torch.zeros(64, 64).double(), torch.full((64,), field).double()))
    start = torch.zeros(100_000, 64, dtype=torch.long)
    got = free.fast_sweep(start, sweeps=1, rng=TorchRng(0))
    rare = int((got == (1 if sign > 0 else 0)).sum())
    low, high = stats.binom.ppf([FAILURE, 1 - FAILURE], got.numel(), 2.0**-17)
    assert 0 < low <= rare <= high


@pytest.mark.parametrize(("draws", "rate"), [(100_001, REDONE), (401, 0.25)])
def test_redone_draws_are_a_coin_each(draws, rate, monkeypatch):
    """How many, how they lie in the steps, and the gaps between them: ε (1 - ε)^(g - 1)."""
    monkeypatch.setattr(spins, "REDONE", rate)
    steps = 500
    redone = spins._redone(steps, draws, torch.Generator().manual_seed(0))
    assert len(redone) == steps
    low, high = stats.binom.ppf([FAILURE, 1 - FAILURE], steps * draws, rate)
    assert low <= sum(map(len, redone)) <= high
    assert all(((lanes >= 0) & (lanes < draws)).all() for lanes in redone)
    places = torch.cat([lanes + number * draws for number, lanes in enumerate(redone)])
    edges = torch.tensor(stats.geom.ppf([0.25, 0.5, 0.75], rate))
    law = torch.tensor([0.0, *stats.geom.cdf(edges, rate), 1.0]).double().diff()
    gaps = torch.bincount(torch.bucketize(places.diff(), edges), minlength=4).double()
    assert places.diff().min() >= 1
    assert off_by(gaps, law) > FAILURE
    sizes = torch.tensor([float(len(lanes)) for lanes in redone])
    spread = sizes.var() / sizes.mean() / (1 - rate)
    assert spread == pytest.approx(1.0, abs=6 * math.sqrt(2 / steps))
    assert [len(x) for x in spins._redone(2, 0, torch.Generator())] == [0, 0]


# ------------------------------------------------------------------ streams and edges


def test_a_seed_names_a_stream():
    system, start = gibbs(Ising.grid(3, 3, 0.4)), torch.zeros(50, 9, dtype=torch.long)
    one, same, other = (system.fast_sweep(start, sweeps=3, rng=TorchRng(k)) for k in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    rng = TorchRng(0)
    first = system.fast_sweep(start, sweeps=3, rng=rng)
    assert not torch.equal(first, system.fast_sweep(start, sweeps=3, rng=rng))  # it goes on
    assert not start.any()  # what is given is not changed


def test_little_input_is_input():
    system = gibbs(Ising.grid(2, 2, 0.4))
    start = torch.ones(3, 4, dtype=torch.int32)
    for sweep in (system.sweep, system.fast_sweep):
        assert torch.equal(sweep(start, sweeps=0, rng=TorchRng(0)), start)
        after = sweep(start, sweeps=2, rng=TorchRng(0))
        assert after.dtype == torch.int32
        assert sweep(start[:0], sweeps=2, rng=TorchRng(0)).shape == (0, 4)
    lone = gibbs(Ising.chain(1, 0.0, 30.0))
    assert lone.fast_sweep(torch.zeros(9, 1).long(), sweeps=1, rng=TorchRng(0)).all()
    assert repr(system) == "SpinGibbs(4 sites, 2 colours)"


def test_which_way_is_taken():
    assert gibbs(star(MAX_NEIGHBOURS)).tabulated
    assert not gibbs(star(MAX_NEIGHBOURS + 1)).tabulated


def test_bad_input_is_answered_by_a_sentence(unchecked_shapes):
    zeros, field = torch.zeros(2, 2).double(), torch.zeros(2).double()
    with refused("coupling"):
        SpinGibbs(torch.tensor([[0.0, 1.0], [0.5, 0.0]]).double(), field)
    with refused("coupling"):
        SpinGibbs(torch.eye(2).double(), field)
    with refused("coupling"):
        SpinGibbs(torch.zeros(3, 3).double(), field)
    with refused("coupling"):
        SpinGibbs(zeros.float(), field)
    with pytest.raises(ValueError, match="at least 1"):
        SpinGibbs(torch.zeros(0, 0).double(), torch.zeros(0).double())
    system, tokens = SpinGibbs(zeros, field), torch.zeros(5, 2).long()
    for sweep in (system.sweep, system.fast_sweep):
        with refused("tokens"):
            sweep(torch.zeros(5, 3).long(), sweeps=1, rng=TorchRng(0))
        with refused("hidden"):
            sweep(tokens - 1, sweeps=1, rng=TorchRng(0))
        with refused("sweeps"):
            sweep(tokens, sweeps=-1, rng=TorchRng(0))
        with refused("scan"):
            sweep(tokens, sweeps=1, rng=TorchRng(0), scan="rows")  # pyright: ignore


def test_an_rng_of_another_device_is_refused():
    class Elsewhere(TorchRng):
        @property
        def device(self):
            return torch.device("cuda:0")

    system = gibbs(Ising.chain(2, 0.1))
    with refused("rng"):
        system.fast_sweep(torch.zeros(1, 2).long(), sweeps=1, rng=Elsewhere(0))


def test_the_benchmark_compares_equals(monkeypatch):
    """Eager torch has the law of the definition; without thrml its row is a sentence."""
    model = MODELS["uneven 2 x 3"]
    got = sampling.eager_sweeps(model, 60_000, 1, torch.Generator().manual_seed(0))
    counts = torch.bincount(Table.of(model).rank(got), minlength=64).double()
    assert off_by(counts, transition(gibbs(model), [0, 1])[0]) > FAILURE
    monkeypatch.setitem(sys.modules, "thrml", None)
    monkeypatch.setitem(sys.modules, "jax", None)
    assert "pip install thrml" in sampling.spins_against_thrml()["not_run"]


@pytest.mark.cuda
@models
def test_the_law_on_a_gpu(model):
    there, chains = model.to("cuda"), 60_000
    start = torch.zeros(chains, model.length, dtype=torch.long, device="cuda")
    got = gibbs(there).fast_sweep(start, sweeps=2, rng=TorchRng(0, "cuda")).cpu()
    system, table = gibbs(model), Table.of(model)
    law = transition(system, list(range(len(system.classes))) * 2)[0]
    counts = torch.bincount(table.rank(got), minlength=len(law)).double()
    assert off_by(counts, law) > FAILURE
