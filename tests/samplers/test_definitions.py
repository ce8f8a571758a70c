"""The laws that names promise, against numbers worked out by hand."""

import math

import pytest

from samplers import definitions

LAW = {0: 0.5, 1: 0.25, 2: 0.15, 3: 0.1}


def close(found, wanted):
    assert set(found) == set(wanted)
    assert all(math.isclose(found[x], p, abs_tol=1e-12) for x, p in wanted.items())


def test_softmax_at_a_temperature():
    close(definitions.softmax([math.log(4), 0.0], 2.0), {0: 2 / 3, 1: 1 / 3})


@pytest.mark.parametrize(
    ("law", "kept"),
    [
        (definitions.top_k(LAW, 2), {0, 1}),
        (definitions.nucleus(LAW, 0.75), {0, 1}),  # 0.5 + 0.25 is enough
        (definitions.nucleus(LAW, 0.76), {0, 1, 2}),
        (definitions.nucleus(LAW, 0.1), {0}),
        (definitions.min_p(LAW, 0.3), {0, 1, 2}),  # 0.15 = 0.3 * 0.5
        (definitions.top_a(LAW, 0.8, 2.0), {0, 1}),  # 0.8 * 0.25 = 0.2
        (definitions.at_least(LAW, 0.2), {0, 1}),
        (definitions.at_least(LAW, 0.9), {0}),
        (definitions.typical(LAW, 0.2), {1}),  # entropy 1.208, surprise of 1 is 1.386
    ],
)
def test_what_a_rule_keeps(law, kept):
    total = sum(LAW[x] for x in kept)
    close(law, {x: LAW[x] / total for x in kept})


def test_eta_is_a_floor_below_the_entropy():
    floor = min(0.3, math.sqrt(0.3) * math.exp(-definitions.entropy(LAW)))
    assert 0.15 < floor < 0.25
    close(definitions.eta(LAW, 0.3), {0: 2 / 3, 1: 1 / 3})


def test_one_after_another_without_replacement():
    found = definitions.ordered_without_replacement([0.5, 0.3, 0.2], 2)
    assert math.isclose(found[0, 1], 0.5 * 0.3 / 0.5)
    assert math.isclose(found[2, 0], 0.2 * 0.5 / 0.8)
    assert math.isclose(sum(found.values()), 1.0)


def test_systematic_resampling_of_two():
    """Points u/2 and (u + 1)/2 against 0.75: the second is beyond it for u > 1/2."""
    close(definitions.systematic_resampling([0.75, 0.25], 2), {(0, 0): 0.5, (0, 1): 0.5})


def test_stratified_resampling_of_two():
    """The second point is uniform on [1/2, 1): half of it is below 0.75."""
    close(definitions.stratified_resampling([0.75, 0.25], 2), {(0, 0): 0.5, (0, 1): 0.5})


def test_residual_resampling_keeps_whole_copies():
    """2 * 0.75 = 1 copy and a half: the other place is 0 or 1 with equal chances."""
    close(definitions.residual_resampling([0.75, 0.25], 2), {(0, 0): 0.5, (0, 1): 0.5})


@pytest.mark.parametrize(
    "scheme",
    [
        definitions.multinomial_resampling,
        definitions.stratified_resampling,
        definitions.systematic_resampling,
        definitions.residual_resampling,
    ],
)
@pytest.mark.parametrize("weights", [[0.45, 0.3, 0.25], [0.05, 0.9, 0.05], [1 / 3, 1 / 3, 1 / 3]])
def test_every_scheme_gives_a_particle_its_share(scheme, weights):
    law = scheme(weights, 3)
    assert math.isclose(sum(law.values()), 1.0)
    for k, weight in enumerate(weights):
        mean = sum(p * drawn.count(k) for drawn, p in law.items())
        assert math.isclose(mean, 3 * weight, abs_tol=1e-12)


def test_a_hidden_markov_model_of_length_two():
    law = definitions.hidden_markov(
        [0.6, 0.4], [[0.7, 0.3], [0.2, 0.8]], [[1.0, 0.0], [0.5, 0.5]], 2
    )
    assert math.isclose(law[(0, 1), (0, 1)], 0.6 * 0.3 * 0.5)
    assert math.isclose(sum(law.values()), 1.0)
    seen = definitions.given(law, lambda pair: pair[1] == (1, 1))
    assert set(seen) == {((1, 1), (1, 1))}
