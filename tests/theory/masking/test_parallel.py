"""Product chains, samplers as matrices, and the transformer written by hand."""

import itertools
import math

import pytest
import torch

from triptych.core.enumeration import exact_transition_matrix
from triptych.core.logspace import log_normalise
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.models import constructions
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.ising import Ising
from triptych.theory.masking import kernels, parallel
from triptych.theory.masking.blocks.dynamics import BlockDynamics

pytestmark = pytest.mark.numerical


def gibbs_chain(table, k):
    return BlockDynamics(table, MaskLaw.of_size(table.length, k)).transition()


def random_laws(vocab, length, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(vocab**length, length, vocab, generator=generator, dtype=torch.float64)
    return logits.softmax(-1)


def brute_product(laws):
    states, length, vocab = laws.shape
    out = torch.zeros(states, states, dtype=torch.float64)
    for x in range(states):
        for y, to in enumerate(itertools.product(range(vocab), repeat=length)):
            out[x, y] = math.prod(float(laws[x, i, to[i]]) for i in range(length))
    return out


# ------------------------------------------------------------------ product laws


def test_products_and_their_marginals():
    fixed = torch.tensor([[0.5, 0.5], [0.75, 0.25]], dtype=torch.float64).expand(4, 2, 2)
    assert parallel.product_chain(fixed)[2].tolist() == [3 / 8, 1 / 8, 3 / 8, 1 / 8]
    loose = 1.001 * fixed[:1]
    assert parallel.site_products(loose)[0].tolist() == pytest.approx(
        [1.002001 * share for share in (3 / 8, 1 / 8, 3 / 8, 1 / 8)]
    )
    laws = random_laws(3, 2, seed=0)
    chain = parallel.product_chain(laws)
    assert torch.allclose(chain, brute_product(laws), atol=1e-15)
    assert torch.allclose(parallel.site_laws(chain, 3, 2), laws, atol=1e-14)
    assert parallel.is_product(chain, 3, 2).holds
    one = torch.tensor([[0.5, 0.5], [0.25, 0.75]], dtype=torch.float64)
    assert torch.equal(parallel.site_laws(one, 2, 1)[:, 0], one)  # length 1: always a product
    assert parallel.is_product(one, 2, 1).distance == 0.0


def test_marginals_by_going_through_all_targets():
    """An arbitrary chain on 2^3 states: sums over the targets that have token v at place i."""
    matrix = torch.rand(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    matrix /= matrix.sum(-1, keepdim=True)
    laws = parallel.site_laws(matrix, 2, 3)
    targets = all_sequences(2, 3)
    for x in range(8):
        for i in range(3):
            up = matrix[x][targets[:, i] == 1].sum()
            assert laws[x, i].tolist() == pytest.approx([1 - up.item(), up.item()])
    product = brute_product(laws)
    apart = 0.5 * (matrix - product).abs().sum(-1)
    assert torch.allclose(parallel.distance_from_product(matrix, 2, 3), apart)
    lost = (matrix * (matrix / product).log()).sum(-1)
    assert torch.allclose(parallel.total_correlation(matrix, 2, 3), lost)
    assert torch.allclose(parallel.closest_product(matrix, 2, 3), product)
    check = parallel.is_product(matrix, 2, 3)
    assert check.worst == tuple(targets[int(apart.argmax())].tolist())
    assert check.distance == pytest.approx(apart.max().item())
    assert check.correlation == pytest.approx(lost[int(apart.argmax())].item())
    assert not check.holds
    assert parallel.is_product(matrix, 2, 3, tolerance=1.001 * apart.max().item()).holds
    assert not parallel.is_product(matrix, 2, 3, tolerance=0.999 * apart.max().item()).holds


def test_a_row_of_two_equal_sequences_has_correlation_log_two():
    matrix = torch.tensor([0.5, 0.0, 0.0, 0.5], dtype=torch.float64).expand(4, 4)
    assert parallel.total_correlation(matrix, 2, 2).tolist() == pytest.approx([math.log(2)] * 4)
    assert parallel.distance_from_product(matrix, 2, 2).tolist() == pytest.approx([0.5] * 4)


def test_the_closest_product_is_closest():
    """No product of other marginals has a smaller KL from the row."""
    row = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64)
    best = parallel.total_correlation(row.expand(4, 4), 2, 2)[0].item()
    grid = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    for a, b in itertools.product(grid.tolist(), grid.tolist()):
        other = torch.tensor([(1 - a) * (1 - b), (1 - a) * b, a * (1 - b), a * b]).double()
        assert (row * (row / other).log()).sum() >= best - 1e-7


@pytest.mark.parametrize("coupling", [0.0, 0.4])
def test_one_gibbs_is_no_product_at_random_places_and_one_at_given_places(coupling):
    """q²/2 from an aligned state, q = sigmoid(-2J): 1/8 even for independent fair spins."""
    table = Table.of(Ising.chain(2, coupling))
    q = 1 / (1 + math.exp(2 * coupling))
    apart = parallel.distance_from_product(gibbs_chain(table, 1), 2, 2)
    assert apart[0].item() == pytest.approx(q * q / 2)
    assert apart[1].item() == pytest.approx((1 - q) ** 2 / 2)
    laws = parallel.independent_parallel_laws(table)
    stay = torch.eye(2, dtype=torch.float64)[all_sequences(2, 2)]
    for place in range(2):  # systematic scan: this place is redrawn, the other stays
        given = stay.clone()
        given[:, place] = laws[:, place]
        assert parallel.is_product(parallel.product_chain(given), 2, 2).holds


def test_two_product_steps_are_no_product():
    step = parallel.product_chain(random_laws(2, 2, seed=3))
    assert parallel.is_product(step, 2, 2).holds
    assert parallel.is_product(step @ step, 2, 2).distance > 1e-3


# ------------------------------------------------------------------ samplers as matrices


@pytest.mark.parametrize("k", [1, 2, 3])
def test_k_gibbs_by_the_definition(k):
    """Joint redrawing and redrawing each position by itself, straight from their definitions."""
    table = Table.random(2, 3, seed=4)
    states = list(itertools.product(range(2), repeat=3))
    p = dict(zip(states, table.log_probs.exp().tolist(), strict=True))
    joint = torch.zeros(8, 8, dtype=torch.float64)
    apart = torch.zeros(8, 8, dtype=torch.float64)
    blocks = list(itertools.combinations(range(3), k))
    for (a, x), (b, y) in itertools.product(enumerate(states), enumerate(states)):
        for block in blocks:
            if any(x[i] != y[i] for i in range(3) if i not in block):
                continue
            agree = [z for z in states if all(z[i] == x[i] for i in range(3) if i not in block)]
            total = sum(p[z] for z in agree)
            joint[a, b] += p[y] / total / len(blocks)
            sites = (sum(p[z] for z in agree if z[i] == y[i]) / total for i in block)
            apart[a, b] += math.prod(sites) / len(blocks)
    assert torch.allclose(gibbs_chain(table, k), joint, atol=1e-14)
    asked = kernels.Conditionals.of(table, 3)
    at_once = kernels.block_matrix(asked, MaskLaw.of_size(3, k), kernels.filled_at_once(asked))
    assert torch.allclose(at_once, apart, atol=1e-14)


def test_independent_parallel_uses_the_conditionals_of_single_sites():
    ising = Ising.random(3, scale=1.0, seed=7)
    laws = parallel.independent_parallel_laws(Table.of(ising))
    odds = ising.site_log_odds(all_sequences(2, 3))
    assert torch.allclose(laws[..., 1], odds.sigmoid(), atol=1e-13)


# ------------------------------------------------------------------ a transformer by hand


@pytest.mark.parametrize(("vocab", "length"), [(2, 1), (2, 3), (3, 2), (4, 2), (2, 5)])
def test_any_function_is_a_transformer_and_so_are_its_powers(vocab, length):
    states = all_sequences(vocab, length)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        image = torch.randint(len(states), (len(states),), generator=generator)
        net = constructions.compiled_map(states[image], vocab)
        at, found = torch.arange(len(states)), states
        for _ in range(6):
            at, found = image[at], net.argmax(found)
            assert torch.equal(found, states[at])


def test_the_map_that_swaps_two_tokens():
    net = constructions.compiled_map(torch.tensor([[1], [0]]), 2)
    assert net.argmax(torch.tensor([[0], [1]])).tolist() == [[1], [0]]
    assert len(net.blocks) == 2


def test_ties_go_to_the_first_token():
    net = constructions.compiled_law(torch.full((4, 2, 2), 0.5, dtype=torch.float64))
    assert net.argmax(all_sequences(2, 2)).tolist() == [[0, 0]] * 4


@pytest.mark.parametrize(("vocab", "length"), [(2, 3), (3, 2)])
def test_any_product_chain_is_a_transformer(vocab, length):
    laws = random_laws(vocab, length, seed=8)
    net = constructions.compiled_law(laws)
    states = all_sequences(vocab, length)
    assert torch.allclose(net.log_probs(states), laws.log(), atol=1e-12)

    def step(state, rng):
        return tuple(net.sample(torch.tensor([state]), rng)[0].tolist())

    enumerated = exact_transition_matrix([tuple(x) for x in states.tolist()], step)
    assert torch.allclose(enumerated, brute_product(laws), atol=1e-12)


def test_a_zero_is_met_up_to_the_floor():
    """Softmax of (0, floor) has e^floor / (1 + e^floor) where the law has 0."""
    laws = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    net = constructions.compiled_law(laws, floor=-3.0)
    leak = math.exp(-3) / (1 + math.exp(-3))
    assert net.log_probs(torch.tensor([[0]])).exp().flatten().tolist() == pytest.approx(
        [1 - leak, leak]
    )
    with pytest.raises(ValueError, match="negative"):
        constructions.compiled_law(laws, floor=-math.inf)


def test_attention_is_softmax_over_the_keys():
    """A block with random weights against the formula, written with the columns of [li, (4.57)]."""
    generator = torch.Generator().manual_seed(9)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    block = constructions.Block(
        draw(2, 5), draw(2, 5), draw(2, 5), draw(5, 2), draw(7, 5), draw(7), draw(5, 7), draw(5)
    )
    x = draw(1, 4, 5)
    columns = x[0].T
    scores = (block.key @ columns).T @ (block.query @ columns)
    weights = scores.exp() / scores.exp().sum(0, keepdim=True)
    mixed = columns + block.output @ block.value @ columns @ weights
    hidden = (block.inner @ mixed + block.inner_bias[:, None]).clamp(min=0)
    wanted = mixed + block.outer @ hidden + block.outer_bias[:, None]
    assert torch.allclose(block(x)[0].T, wanted, atol=1e-12)


def test_a_network_that_decodes_in_parallel_makes_a_product_chain():
    """Its own sampling, enumerated choice by choice."""
    shape = Shape(3, 3, width=8, layers=1, heads=2, causal=False)
    lm = MaskedLM(Transformer(shape, seed=0, init_scale=0.5, dtype=torch.float64))

    def step(state, rng):
        return tuple(
            rng.categorical(log_normalise(lm.token_logits(torch.tensor([state]))))[0].tolist()
        )

    states = [tuple(x) for x in all_sequences(2, 3).tolist()]
    with torch.no_grad():
        chain = exact_transition_matrix(states, step)
    assert parallel.is_product(chain, 2, 3).holds
    assert (chain[0] - chain[7]).abs().max() > 1e-3  # the state matters


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: parallel.site_laws(torch.eye(3).double(), 2, 2), "2\\^2 sequences"),
        (lambda: parallel.is_product(torch.ones(4, 4).double(), 2, 2), "sums to 4"),
        (lambda: parallel.product_chain(torch.ones(3, 2, 2).double()), "given for 3 states"),
        (lambda: constructions.compiled_law(torch.ones(4, 2, 2).double()), "sums to 2"),
        (lambda: constructions.compiled_law(torch.full((3, 2, 2), 0.5).double()), "3 states"),
        (lambda: constructions.compiled_map(torch.tensor([[2], [0]]), 2), "tokens in 0..1"),
    ],
)
def test_bad_input_is_answered_by_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_sampling_by_a_torch_rng_has_the_law():
    """5 standard errors at every entry of 8; fails less than 1e-5 of the time."""
    laws = random_laws(2, 3, seed=10)
    net = constructions.compiled_law(laws)
    drawn = net.sample(torch.zeros(20_000, 3, dtype=torch.long), TorchRng(0))
    share = torch.bincount((drawn * torch.tensor([4, 2, 1])).sum(-1), minlength=8) / 20_000
    wanted = brute_product(laws)[0]
    assert ((share - wanted).abs() < 5 * (wanted * (1 - wanted) / 20_000).sqrt()).all()
