"""First times of small chains, by hand and by powers of the matrix."""

import decimal
import itertools
import math

import mpmath
import pytest
import torch

from triptych.theory.numerics.hitting import Hitting, whole_exp

pytestmark = pytest.mark.numerical


def geometric(q):
    return Hitting(
        torch.tensor([[1 - q, q], [0.25, 0.75]]).double().log(), torch.tensor([False, True])
    )


def test_a_geometric_time_by_hand():
    half = geometric(0.5)
    assert half.log_mean().exp().tolist() == pytest.approx([2.0, 1 + 0.25 * 2])
    assert half.capped_mean(2, 0) == pytest.approx((1.5, 0.5))
    assert half.capped_mean(1, 0) == (1.0, 0.0)
    assert half.quantile(0.7, 0) == 2
    assert half.quantile(0.5, 0) == 1
    assert half.survival(3, 0).tolist() == [1.0, 0.5, 0.25, 0.125]
    reached, missed = half.within(3)
    assert reached.exp().tolist() == pytest.approx([7 / 8, 0.75 + 0.25 * 0.75])
    assert missed.exp().tolist() == pytest.approx([1 / 8, 0.25 / 4])
    assert half.within(0)[0].exp().tolist() == [0.0, 0.0]


def test_rare_escapes_keep_their_digits():
    """q = 1e-30: P(T ≤ t) ≈ qt, the mean 1/q and the median log 2 / q, at times beyond 1e29."""
    log_q = -30 * math.log(10)
    rare = Hitting(
        torch.tensor([[-(10.0**-30), log_q], [-math.inf, 0.0]], dtype=torch.float64),
        torch.tensor([False, True]),
    )
    assert rare.within(10**20)[0][0].item() == pytest.approx(-10 * math.log(10), rel=1e-9)
    assert rare.log_mean()[0].item() == pytest.approx(-log_q, rel=1e-12)
    reached, missed = rare.within(10**30)
    assert missed[0].item() == pytest.approx(-1.0, rel=1e-9)
    assert reached[0].exp().item() == pytest.approx(1 - math.exp(-1), rel=1e-9)
    assert rare.quantile(0.5, 0) == pytest.approx(math.log(2) * 1e30, rel=1e-9)


def test_long_times_do_not_drift():
    """Two states that mix and are left from the first with q = 1e-20: on the long run the chain is
    there a share 2/5 of the time, so T is exponential with rate 2q/5, also after 66 squarings."""
    q = 1e-20
    matrix = torch.tensor([[0.7, 0.3, q], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    slow = Hitting(matrix.log(), torch.tensor([False, False, True]))
    for steps in (10**12, 10**19, 10**20, 10**21):
        reached, missed = slow.within(steps)
        rate = 0.4 * q * steps
        assert reached[:2].exp().tolist() == pytest.approx([-math.expm1(-rate)] * 2, rel=1e-9)
        assert missed[:2].tolist() == pytest.approx([-rate] * 2, rel=1e-6)
    assert slow.log_mean()[1].exp().item() == pytest.approx(2.5e20, rel=1e-9)
    assert slow.quantile(0.5, 1) == pytest.approx(2.5e20 * math.log(2), rel=1e-9)


def test_hitting_times_against_powers_of_the_matrix():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.rand(6, 6, generator=generator, dtype=torch.float64) ** 4
    matrix /= matrix.sum(-1, keepdim=True)
    target = torch.tensor([False, True, False, False, True, False])
    hitting = Hitting(matrix.log(), target)
    stay = matrix.clone()
    stay[:, target] = 0.0
    for steps in (1, 2, 3, 7, 13, 64):
        missed = torch.linalg.matrix_power(stay, steps).sum(-1)  # not in the set at 1..t
        reached, log_missed = hitting.within(steps)
        assert torch.allclose(log_missed.exp(), missed, rtol=1e-11)
        assert torch.allclose(reached.exp(), 1 - missed, rtol=1e-11)
        assert hitting.survival(steps, 3)[-1].item() == pytest.approx(missed[3].item(), rel=1e-11)
    mean = torch.linalg.solve(torch.eye(6).double() - stay, torch.ones(6).double())
    assert torch.allclose(hitting.log_mean().exp(), mean, rtol=1e-11)
    capped = hitting.capped_mean(7, 0)
    alive = [torch.linalg.matrix_power(stay, t).sum(-1)[0].item() for t in range(8)]
    law = {t: alive[t - 1] - (alive[t] if t < 7 else 0.0) for t in range(1, 8)}
    first = sum(t * p for t, p in law.items())
    second = sum(t * t * p for t, p in law.items())
    assert capped == pytest.approx((first, math.sqrt(second - first**2)))
    for q in (0.1, 0.5, 0.99):
        wanted = next(
            t for t in itertools.count(1) if 1 - torch.linalg.matrix_power(stay, t).sum(-1)[2] >= q
        )
        assert hitting.quantile(q, 2) == wanted
        assert hitting.quantile(q) == max(hitting.quantile(q, start) for start in range(6))
    each = [hitting.quantile(0.99, start) for start in range(6)]
    assert min(each) < each[0] < max(each)  # the worst start is neither the first nor any


def test_whole_numbers_beyond_floats():
    """⌊½ · 5⌋ = 2; e^1980 has 860 digits, and Python's decimals agree on the first twelve."""
    assert whole_exp(0.5, math.log(5)) == 2
    assert whole_exp(1.0, 0.0) == 1
    assert whole_exp(0.5, 0.0) == 0
    with decimal.localcontext(prec=40):
        for factor, exponent in ((0.25, 699.9), (0.25, 700.1), (0.25, 1978.25), (3.0, 5000.0)):
            wanted = decimal.Decimal(factor) * decimal.Decimal(exponent).exp()
            assert abs(decimal.Decimal(whole_exp(factor, exponent)) / wanted - 1) < 1e-12


def test_what_is_never_reached_is_said():
    apart = torch.eye(2).double().log()
    with pytest.raises(ValueError, match="never reached"):
        Hitting(apart, torch.tensor([False, True])).log_mean()
    with pytest.raises(ValueError, match="has no state"):
        Hitting(apart, torch.tensor([False, False]))
    with pytest.raises(ValueError, match="probability law"):
        Hitting(torch.zeros(2, 2).double(), torch.tensor([False, True]))
    with pytest.raises(ValueError, match="0 < q < 1"):
        geometric(0.5).quantile(1.0, 0)


@pytest.mark.parametrize("q", [0.3, 1e-6, 1e-12, 1e-20, 1e-200])
def test_the_spread_of_a_time_that_is_hardly_ever_reached(q):
    """min(T, 50) of a geometric T: its mean is 50 in floats, and its spread is not 0."""
    hitting = Hitting(
        torch.tensor([[math.log1p(-q), math.log(q)], [-math.inf, 0.0]], dtype=torch.float64),
        torch.tensor([False, True]),
    )
    with mpmath.workdps(450):
        alive = [(1 - mpmath.mpf(q)) ** t for t in range(50)]
        mean = mpmath.fsum(alive)
        square = mpmath.fsum((2 * t + 1) * p for t, p in enumerate(alive))
        wanted = float(mean), float(mpmath.sqrt(square - mean**2))
    assert hitting.capped_mean(50, 0) == pytest.approx(wanted, rel=1e-12)
