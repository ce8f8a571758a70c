"""Masked losses and their information: by hand, by brute force, and two routes to one matrix."""

import math
from itertools import product

import pytest
import torch
from tests.support.grids import named_pairs
from tests.support.refusals import refused

from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.theory.masking import information as masking
from triptych.theory.masking.blocks.dynamics import BlockDynamics
from triptych.theory.masking.families import HMMFamily, IsingFamily, TableFamily, identifiable

pytestmark = pytest.mark.numerical


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(found, wanted, **tolerance):
    torch.testing.assert_close(found, wanted, **tolerance)


def adaptive(length):
    """A law that prefers to hide ones, and hides pairs too."""
    blocks = [[i] for i in range(length)] + [[i, i + 1] for i in range(length - 1)]

    def log_weights(x):
        ones = torch.stack([x[:, block].sum(-1) for block in blocks], 1)
        return 0.7 * ones.double()

    return MaskLaw.looking(length, blocks, log_weights)


def lemma():
    """The law of Lemma 4.3.1, with zeros: p(x) and p(K | x)."""
    table = Table(2, 2, vector(1 / 2, 1 / 3, 1 / 6, 0).log())
    first = vector(1 / 2, 1 / 3, 1 / 4, 1)

    def log_weights(x):
        given = first[2 * x[:, 0] + x[:, 1]]
        return torch.stack([given, 1 - given], 1).log()

    return table, MaskLaw.looking(2, [[0], [1]], log_weights)


HOLES = Table(3, 2, (vector(1, 2, 0, 3, 1, 1, 0, 2, 5) / 15).log())
FAMILIES = {
    "ising": IsingFamily(Ising.random(3, scale=0.7, seed=0)),
    "couplings": IsingFamily(Ising.random(3, scale=0.7, seed=1), fields=False),
    "table": TableFamily(Table.random(2, 3, seed=3)),
    "holes": TableFamily(HOLES),
    "hmm": identifiable(HMMFamily(HMM.random(2, 2, 3, seed=0), 3)),
    "emissions": HMMFamily(HMM.random(2, 3, 4, seed=1), 3, free="emission"),
}
LAWS = {
    "one": lambda n: MaskLaw.of_size(n, 1),
    "two": lambda n: MaskLaw.of_size(n, 2),
    "weighted": lambda n: MaskLaw.weighted(n, [[0], range(n), range(1, n)], [1.0, 2.0, 3.0]),
    "looking": adaptive,
    "an empty block": lambda n: MaskLaw.weighted(n, [[], range(n)], [1.0, 2.0]),
}
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
each_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
each_pair = pytest.mark.parametrize(("family", "law"), named_pairs(FAMILIES, LAWS))


def conditional(table, masks, m, x):
    """p(x_K | x_-K, K) by the definition: a sum over all sequences that agree outside K."""
    block = masks.blocks[m].tolist()

    def joint(y):
        tokens = torch.tensor([y])
        return float((table.log_prob(tokens) + masks.log_prob(tokens)[:, m]).exp())

    agreeing = [
        y
        for y in product(range(table.vocab_size), repeat=table.length)
        if all(hidden or a == b for a, b, hidden in zip(x, y, block, strict=True))
    ]
    return joint(x) / sum(joint(y) for y in agreeing) if joint(x) else 0.0


# ------------------------------------------------------------------ conditionals and losses


@each_law
@pytest.mark.parametrize("table", [Table.random(2, 3, seed=0), HOLES], ids=["full", "holes"])
def test_block_conditionals_are_the_definition(table, law):
    masks = law(table.length)
    found = masking.block_log_conditionals(table.log_probs, masks, table.vocab_size).exp()
    for m in range(len(masks.blocks)):
        wanted = [conditional(table, masks, m, tuple(x)) for x in table.sequences.tolist()]
        close(found[m], vector(*wanted))


def test_conditioning_on_the_block_by_hand():
    """[li, Lemma 4.3.1], with K the block that is hidden."""
    table, masks = lemma()
    found = masking.block_log_conditionals(table.log_probs, masks, 2).exp()
    close(found[1], vector(9 / 17, 8 / 17, 1, 0))
    close(found[0], vector(6 / 7, 1, 1 / 7, 0))
    blind = masking.block_log_conditionals(table.log_probs, MaskLaw.of_size(2, 1), 2).exp()
    close(blind[1], vector(3 / 5, 2 / 5, 1, 0))


@each_pair
def test_the_loss_is_a_sum_over_pairs(family, law):
    masks, theta = law(family.length), family.theta + 0.2
    table, model = (
        family.table,
        Table(family.vocab_size, family.length, family.table_log_probs(family.theta + 0.2)),
    )
    total = 0.0
    for x in table.support.tolist():
        tokens = torch.tensor([x])
        for m in range(len(masks.blocks)):
            weight = float((table.log_prob(tokens) + masks.log_prob(tokens)[:, m]).exp())
            if weight:
                total -= weight * math.log(conditional(model, masks, m, tuple(x)))
    assert float(masking.population_loss(family, masks, theta)) == pytest.approx(total, rel=1e-12)


def test_losses_by_hand():
    free = IsingFamily(Ising.clique_and_free(2, 2, 0.0, 0.0))
    assert float(masking.population_loss(free, MaskLaw.of_size(2, 1))) == pytest.approx(math.log(2))
    assert float(masking.population_loss(free, MaskLaw.of_size(2, 2))) == pytest.approx(math.log(4))
    skewed = masking.population_loss(free, MaskLaw.of_size(2, 1), vector(0.5, 0, 0))
    wanted = 0.5 * math.log(2) + 0.5 * (math.log(2 * math.cosh(0.5)))  # E log(1 + e^{∓2h}), h = ½
    assert float(skewed) == pytest.approx(wanted)


@each_pair
def test_the_truth_is_a_stationary_point_of_the_loss(family, law):
    masks = law(family.length)
    close(masking.loss_gradient(family, masks), torch.zeros_like(family.theta), atol=1e-13, rtol=0)
    off = masking.loss_gradient(family, masks, family.theta + 0.1)
    step = torch.zeros_like(family.theta)
    step[0] = 1e-5
    rise = masking.population_loss(family, masks, family.theta + 0.1 + step)
    fall = masking.population_loss(family, masks, family.theta + 0.1 - step)
    close(off[0], (rise - fall) / 2e-5, atol=1e-9, rtol=1e-6)


# ------------------------------------------------------------------ the information equality


@each_pair
def test_the_hessian_is_the_covariance_of_the_scores(family, law):
    """Lemmas 4.1.2 and 4.3.3: two routes that share nothing but the table."""
    masks = law(family.length)
    hessian = masking.loss_hessian(family, masks)
    close(hessian, masking.score_covariance(family, masks), atol=1e-12, rtol=1e-9)


def test_away_from_the_truth_the_equality_fails():
    family, masks = FAMILIES["ising"], MaskLaw.of_size(3, 1)
    moved = masking.loss_hessian(family, masks, family.theta + 0.3)
    assert (moved - masking.score_covariance(family, masks)).abs().max() > 1e-2


@each_family
def test_one_block_of_everything_is_maximum_likelihood(family):
    masks = MaskLaw.of_size(family.length, family.length)
    close(masking.score_covariance(family, masks), masking.fisher(family))
    close(masking.asymptotic_covariance(family, masks), torch.linalg.inv(masking.fisher(family)))


def test_information_of_free_spins_by_hand():
    free = IsingFamily(Ising.clique_and_free(2, 2, 0.0, 0.0))
    one = MaskLaw.of_size(2, 1)
    close(masking.fisher(free), torch.eye(3, dtype=torch.float64))
    close(masking.loss_hessian(free, one), torch.diag(vector(0.5, 0.5, 1)))
    close(masking.averaged_score_covariance(free, one), torch.diag(vector(0.25, 0.25, 1)))
    close(masking.asymptotic_covariance(free, one), torch.diag(vector(2, 2, 1)))
    for m, wanted in {
        2: vector(1.5, 1.5, 1),
        4: vector(1.25, 1.25, 1),
        None: vector(1, 1, 1),
    }.items():
        found = masking.asymptotic_covariance(free, one, masks_per_sample=m)
        close(found, torch.diag(wanted))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_traces_of_four_free_spins_by_hand(k):
    """h_i is seen by blocks that hold i, J_ij by those that hold i or j."""
    free = IsingFamily(Ising.clique_and_free(4, 4, 0.0, 0.0))
    masks = MaskLaw.of_size(4, k)
    missed = math.comb(2, k) / math.comb(4, k)  # neither of a pair
    trace = masking.asymptotic_covariance(free, masks).trace()
    assert float(trace) == pytest.approx(4 * 4 / k + 6 / (1 - missed))
    every = masking.asymptotic_covariance(free, masks, masks_per_sample=None).trace()
    assert float(every) == pytest.approx(10)


def test_masks_per_sample_against_the_covariance_of_drawn_gradients():
    """For each x, the mean of m gradients drawn independently: enumerate the m-tuples."""
    family, masks = FAMILIES["ising"], adaptive(3)
    probs, scores = family.table.log_probs.exp(), family.scores()
    given = masks.log_prob(family.table.sequences).exp()
    dynamics = BlockDynamics(family.table, masks)
    g = [scores - dynamics.conditional_mean(scores, m) for m in range(len(masks.blocks))]
    noise = torch.zeros_like(masking.fisher(family))
    for first, second in product(range(len(g)), repeat=2):
        mean = 0.5 * (g[first] + g[second])
        noise += (mean * (probs * given[:, first] * given[:, second])[:, None]).T @ mean
    inverse = torch.linalg.inv(masking.loss_hessian(family, masks))
    close(
        masking.asymptotic_covariance(family, masks, masks_per_sample=2), inverse @ noise @ inverse
    )


@each_pair
def test_one_mask_gives_the_inverse_of_the_hessian(family, law):
    masks = law(family.length)
    found = masking.asymptotic_covariance(family, masks)
    close(
        found @ masking.loss_hessian(family, masks),
        torch.eye(len(found)).double(),
        atol=1e-7,
        rtol=0,
    )
    many = [masking.asymptotic_covariance(family, masks, masks_per_sample=m) for m in (2, 50, None)]
    for larger, smaller in zip(
        [found, *many], [*many, torch.linalg.inv(masking.fisher(family))], strict=True
    ):
        assert masking.psd_margin(larger, smaller) > -1e-10


def test_the_noise_is_that_of_the_block_dynamics():
    """H = ⟨S, (I - P)S⟩ and V = ⟨(I - P)S, (I - P)S⟩, also for a law that looks."""
    family, masks = FAMILIES["ising"], adaptive(3)
    probs, scores = family.table.log_probs.exp()[:, None], family.scores()
    left = scores - BlockDynamics(family.table, masks).transition() @ scores
    close(masking.score_covariance(family, masks), (probs * scores).T @ left)
    close(masking.averaged_score_covariance(family, masks), (probs * left).T @ left)


# ------------------------------------------------------------------ forgetting how blocks are drawn


def test_forgetting_biases_the_fit_by_hand():
    free = IsingFamily(Ising.clique_and_free(2, 2, 0.0, 0.0))
    masks = MaskLaw.looking(2, [[0], [1]], lambda x: (1.0 + x).log())
    wanted = 0.25 * vector(2, 2, 9 / 8).log()
    close(masking.forgetful_minimiser(free, masks), wanted, atol=1e-9, rtol=0)
    at_truth, there = (masking.forgetful_loss(free, masks, t) for t in (free.theta, wanted))
    assert there < at_truth - 1e-3
    right = masking.population_loss(free, masks, free.theta)
    assert right < masking.population_loss(free, masks, wanted) - 1e-3


@pytest.mark.parametrize("weight", [0.25, 0.5, 0.75])
def test_the_last_step_to_a_forgetful_minimum_may_be_below_rounding(weight):
    family = IsingFamily(Ising.chain(3, 0.4, 0.1))
    blocks = [[0], [1], [2], [0, 1], [1, 2]]
    inside = torch.zeros(5, 3, dtype=torch.float64)
    for m, block in enumerate(blocks):
        inside[m, block] = weight
    masks = MaskLaw.looking(3, blocks, lambda x: x.double() @ inside.T)
    theta = masking.forgetful_minimiser(family, masks)
    gradient = torch.func.grad(lambda at: masking.forgetful_loss(family, masks, at))(theta)
    assert gradient.abs().max() < 1e-9


@each_family
def test_without_looking_there_is_nothing_to_forget(family):
    masks, theta = MaskLaw.of_size(family.length, 2), family.theta + 0.1
    close(
        masking.forgetful_loss(family, masks, theta), masking.population_loss(family, masks, theta)
    )


@pytest.mark.slow
def test_the_forgetful_minimiser_is_the_limit_of_training():
    """Where scipy, started elsewhere, finds the minimum of the same loss."""
    from scipy.optimize import minimize

    family, masks = IsingFamily(Ising.random(3, scale=0.5, seed=4)), adaptive(3)
    found = masking.forgetful_minimiser(family, masks)

    def loss(theta):
        return float(masking.forgetful_loss(family, masks, torch.from_numpy(theta)))

    peer = minimize(loss, family.theta.numpy() + 0.5, method="BFGS", options={"gtol": 1e-8})
    close(found, torch.from_numpy(peer.x), atol=1e-5, rtol=0)
    assert (found - family.theta).abs().max() > 0.1


@pytest.mark.slow
def test_no_forgetful_minimum_is_a_sentence():
    """Bit 0 is hidden only where it is 1: whoever forgets that is sure of it."""
    free = IsingFamily(Ising.clique_and_free(2, 2, 0.0, 0.0))
    masks = MaskLaw.looking(2, [[0], [1]], lambda x: torch.stack([x[:, 0], 1 - x[:, 0]], 1).log())
    with pytest.raises(ValueError, match="found no minimum"):
        masking.forgetful_minimiser(free, masks)


# ------------------------------------------------------------------ orders and answers


def test_margin_by_hand():
    assert masking.psd_margin(torch.diag(vector(2, 1)), torch.diag(vector(1, 1.5))) == -0.25
    assert masking.psd_margin(torch.diag(vector(4, 1)), torch.diag(vector(1, 1))) == 0


def test_flat_directions_are_a_sentence():
    family = HMMFamily(HMM.random(2, 2, 3, seed=0), 2)
    with pytest.raises(ValueError, match="flat at the truth in 2 of 5 directions"):
        masking.asymptotic_covariance(family, MaskLaw.of_size(2, 1))
    cut = identifiable(family)
    assert torch.isfinite(masking.asymptotic_covariance(cut, MaskLaw.of_size(2, 1))).all()


def test_a_chain_that_cannot_move_learns_nothing():
    """Two bits that always agree: a single hidden bit is known, so blocks of one see nothing."""
    table = Table(2, 2, vector(0.25, 0, 0, 0.75).log())
    family = TableFamily(table)
    with pytest.raises(ValueError, match="whose block dynamics reaches every sequence"):
        masking.asymptotic_covariance(family, MaskLaw.of_size(2, 1))
    found = masking.asymptotic_covariance(family, MaskLaw.of_size(2, 2))
    close(found, vector(16 / 3)[:, None])  # 1 / (¼ · ¾)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="blocks of 2 positions on sequences of 3"):
        masking.population_loss(FAMILIES["ising"], MaskLaw.of_size(2, 1))
    with refused("masks_per_sample"):
        masking.asymptotic_covariance(FAMILIES["ising"], MaskLaw.of_size(3, 1), masks_per_sample=0)


def test_drawn_data_have_the_predicted_gradient_noise():
    """The gradient at the truth of n drawn pairs, times √n, has covariance H: within 6 s.e."""
    family, masks, n = FAMILIES["ising"], adaptive(3), 40_000
    rng = TorchRng(0)
    tokens = family.table.sample(n, rng)
    drawn = masks.draw(tokens, rng)
    scores, dynamics = family.scores(), BlockDynamics(family.table, masks)
    g = torch.stack(
        [scores - dynamics.conditional_mean(scores, m) for m in range(len(masks.blocks))]
    )
    seen = g[drawn, family.table.rank(tokens)]
    wanted = masking.score_covariance(family, masks)
    spread = (seen[:, :, None] * seen[:, None, :]).std(0) / math.sqrt(n)
    assert ((seen.T @ seen / n - wanted).abs() <= 6 * spread + 1e-12).all()
