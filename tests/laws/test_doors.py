"""numpy and Python's random behind the door, in many styles; and what is refused."""

import bisect
import math
import random
import secrets
import sys
import threading
import time
import types
import uuid
from math import log as imported_log
from random import choices as imported_choices
from random import random as imported_random

import numpy as np
import pytest
import torch

from triptych.core.errors import UserError
from triptych.laws import BoundedLaw, Law, certify_by_draws, law_of

PROBS = [0.5, 0.3, 0.2]
P = np.array(PROBS)
TARGET = dict(enumerate(PROBS))
THIRDS = dict.fromkeys(range(3), 1 / 3)
KEPT = np.random.default_rng(5)
KEPT_STATE = np.random.RandomState(1)
KEPT_RANDOM = random.Random(3)


def cumulative():
    u, total = imported_random(), 0.0
    for k, p in enumerate(PROBS):
        total += p
        if u < total:
            return k
    return 2


def gumbel_of_python():
    return max(
        range(3), key=lambda k: math.log(PROBS[k]) - imported_log(-math.log(random.random()))
    )


STYLES = {
    "choices": (lambda: random.choices(range(3), PROBS)[0], TARGET),
    "imported choices": (lambda: imported_choices(range(3), PROBS)[0], TARGET),
    "cumulative choices": (lambda: random.choices(range(3), cum_weights=[5, 8, 10])[0], TARGET),
    "inverse": (cumulative, TARGET),
    "bisect": (lambda: bisect.bisect([0.5, 0.8, 1.0], random.random()), TARGET),
    "Gumbel": (gumbel_of_python, TARGET),
    "race": (lambda: min((random.expovariate(p), k) for k, p in enumerate(PROBS))[1], TARGET),
    "kept Random": (lambda: KEPT_RANDOM.randint(0, 2), THIRDS),
    "seeded Random": (lambda: random.Random(7).randrange(3), THIRDS),
    "uniform": (lambda: int(random.uniform(0, 3)), THIRDS),
    "np.choice": (lambda: np.random.choice(3, p=P), TARGET),
    "kept Generator": (lambda: KEPT.choice(3, p=P), TARGET),
    "new Generator": (lambda: np.random.default_rng(0).choice(3, p=P), TARGET),
    "RandomState": (lambda: KEPT_STATE.choice(3, p=P), TARGET),
    "np.searchsorted": (lambda: np.searchsorted(P.cumsum(), KEPT.random()), TARGET),
    "np.cumsum": (lambda: (P.cumsum() < np.random.rand()).sum(), TARGET),
    "np.digitize": (lambda: np.digitize(KEPT.random(), [0.5, 0.8, 1.0]), TARGET),
    "np.gumbel": (lambda: np.argmax(np.log(P) + KEPT.gumbel(size=3)), TARGET),
    "np.log log": (lambda: np.argmax(np.log(P) - np.log(-np.log(np.random.rand(3)))), TARGET),
    "np.exponential": (lambda: (KEPT.exponential(size=3) / P).argmin(), TARGET),
    "np scale": (lambda: KEPT.exponential(1 / P).argmin(), TARGET),
    "np.multinomial": (lambda: KEPT.multinomial(1, P).argmax(), TARGET),
    "np.integers": (lambda: KEPT.integers(1, 3, endpoint=True) - 1, THIRDS),
    "np floor": (lambda: (KEPT.random(1) * 3).astype(int)[0], THIRDS),
    "np.normal order": (lambda: KEPT.standard_normal(3).argmax(), THIRDS),
    "np.normal sign": (lambda: int(KEPT.normal() > 0), {0: 0.5, 1: 0.5}),
    "np.permutation": (lambda: np.random.permutation(3)[0], THIRDS),
    "np.shuffle": (lambda: (x := [0, 1, 2], np.random.shuffle(x))[0][2], THIRDS),
    "torch to numpy": (
        lambda: np.argmax(np.log(P) - np.log(-np.log(torch.rand(3).numpy()))),
        TARGET,
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_each_style_has_its_law(style):
    program, target = STYLES[style]
    law = law_of(program)
    assert isinstance(law, Law)
    assert law.total_variation(target) < 1e-15


def test_a_generator_as_an_argument():
    assert law_of(lambda rng: rng.choice(3, p=P), np.random.default_rng(0)).probs == TARGET


def test_without_replacement_is_plackett_luce():
    law = law_of(lambda: KEPT.choice(3, 2, replace=False, p=P))
    assert law.probs[(0, 1)] == pytest.approx(0.3, abs=1e-15)
    keys = law_of(lambda: np.argsort(KEPT.random(3) ** (1 / P))[::-1][:2])
    assert keys.total_variation(law) < 1e-15
    assert len(law_of(lambda: random.sample(range(4), 2)).probs) == 12


def test_systematic_and_stratified_resampling():
    """Weights .5 .3 .2, three particles: shares 1.5, .9, .6. One uniform, or three."""
    one = law_of(lambda: np.searchsorted(P.cumsum(), (KEPT.random() + np.arange(3)) / 3))
    assert one.probs[(0, 1, 2)] == pytest.approx(0.5, abs=1e-15)
    three = law_of(lambda: np.searchsorted(P.cumsum(), (KEPT.random(3) + np.arange(3)) / 3))
    assert three.probs[(0, 1, 2)] == pytest.approx(0.5 * 0.6, abs=1e-15)


def test_the_grid_of_half_precision():
    """float16 uniforms are multiples of 2^-11: 615 of 2048 are below 0.3."""
    law = law_of(lambda: bool(torch.rand((), dtype=torch.float16) < 0.3))
    assert law.probs[True] == 615 / 2048


def test_all_is_closed_after():
    before = (random.random, np.random.rand, np.random.Generator, math.log, random.Random.random)
    law_of(lambda: KEPT.random() < random.random() - 2)
    after = (random.random, np.random.rand, np.random.Generator, math.log, random.Random.random)
    assert before == after
    assert isinstance(KEPT.random() + random.random() + KEPT_RANDOM.random(), float)


def change_in_place(x):
    x += 1


class Keeps:
    count = 0

    def __call__(self):
        self.count += 1
        return self.count


REFUSED = {
    "the clock": (time.time_ns, "function of its choices"),
    "a counter": (Keeps(), "function of its choices"),
    "a thread": (lambda: threading.Thread(target=print).start(), "starts a thread"),
    "the system's entropy": (lambda: random.SystemRandom().random() < 0.5, "entropy"),
    "secrets": (lambda: secrets.randbelow(2), "entropy"),
    "uuid": (uuid.uuid4, "entropy"),
    "CUDA": (lambda: torch.rand(3, device="cuda").argmax(), "GPU"),
    "a returned uniform": (random.random, "returns a continuous draw"),
    "a returned tensor": (lambda: torch.rand(2), "returns a tensor of continuous draws"),
    "a mean": (lambda: KEPT.random(3).mean() > 0.5, "sum"),
    "a float": (lambda: float(torch.rand(())) < 0.5, "plain number"),
    "a gamma": (lambda: KEPT.gamma(2.0), "gamma"),
    "new weights": (lambda: torch.nn.init.normal_(torch.empty(2)).argmax(), "network before"),
    "C++ of torch": (
        lambda: (
            torch.nn.functional.scaled_dot_product_attention(
                *[torch.ones(1, 1, 2, 2)] * 3, dropout_p=0.5
            ).shape
        ),
        "no door sees",
    ),
    "many bits": (lambda: random.getrandbits(64), "more than can be enumerated"),
    "no weight": (lambda: torch.multinomial(torch.tensor([1.0, 0.0]), 2), "without replacement"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_finite_law_is_refused(name):
    if name == "CUDA" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    program, words = REFUSED[name]
    with pytest.raises(UserError, match=words):
        law_of(program)


@pytest.mark.parametrize("given", [torch.zeros(2), np.zeros(2)])
def test_arguments_that_are_changed(given):
    with pytest.raises(UserError, match="in place"):
        law_of(change_in_place, given)


def test_a_generator_that_no_door_sees():
    """A generator inside of a list of a module is not found; its draws are noticed."""
    hidden = [np.random.default_rng(0)]
    with pytest.raises(UserError, match="function of its choices"):
        law_of(lambda: hidden[0].random() < 0.5)


def test_a_branch_that_changes_later():
    """The first run repeats itself; the other branch draws from more things each time."""
    seen = []

    def program():
        if random.randrange(2) == 0:
            return 0
        seen.append(0)
        return random.randrange(1 + len(seen))

    with pytest.raises(UserError, match="after the same 1 of them"):
        law_of(program)


def test_the_generators_of_another_library(monkeypatch):
    """jax draws from keys, and so repeats itself: a law of one point would be wrong."""
    stand_in = types.ModuleType("jax.random")
    stand_in.categorical = lambda key, logits: 0
    stand_in.PRNGKey = lambda seed: seed
    monkeypatch.setitem(sys.modules, "jax.random", stand_in)
    with pytest.raises(UserError, match=r"jax\.random\.categorical"):
        law_of(lambda: stand_in.categorical(stand_in.PRNGKey(0), [0.0, 0.0]))
    assert stand_in.categorical(0, []) == 0


def test_errors_of_the_program_keep_their_class_and_say_the_choices():
    def program():
        return {0: "a"}[random.randrange(2)]

    with pytest.raises(KeyError) as caught:
        law_of(program)
    assert "gave 1 (p = 0.5)" in caught.value.__notes__[0]


def test_counts_of_several_draws():
    """Two draws of weights .5 .3 .2: both are 0 with .25; 0 and 1 come once each with .3."""
    law = law_of(lambda: KEPT.multinomial(2, P))
    assert law.probs[(2, 0, 0)] == pytest.approx(0.25, abs=1e-15)
    assert law.probs[(1, 1, 0)] == pytest.approx(0.3, abs=1e-15)
    assert set(map(sum, law.probs)) == {2}


def test_a_uniform_and_what_is_left_of_one():
    """1 - u is no fresh draw: -log(1 - u) < -log(0.7) says the same as u < 0.3."""

    def program():
        u = torch.rand((), dtype=torch.float64)
        return (
            bool(u < 0.3),
            bool(-torch.log(1 - u) < -math.log(0.7)),
            bool(u.log() < math.log(0.3)),
        )

    law = law_of(program)
    assert {outcome for outcome, p in law.probs.items() if p > 1e-12} == {
        (True, True, True),
        (False, False, False),
    }


SHARES = {
    "uniform_": (lambda: torch.empty(()).double().uniform_(1, 3) < 1.5, 0.25),
    "exponential_": (lambda: torch.empty(()).double().exponential_(2.0) < 1, 1 - math.exp(-2)),
    "normal_": (lambda: torch.empty(()).double().normal_(1.0, 2.0) > 1, 0.5),
    "bernoulli_": (lambda: torch.empty(()).bernoulli_(0.25) == 1, 0.25),
    "random_": (lambda: torch.empty(()).random_(1, 5) == 4, 0.25),
    "geometric_": (lambda: torch.empty(()).geometric_(0.25) == 1, 0.25),
    "log_normal_": (lambda: torch.empty(()).double().log_normal_(0.0, 1.0) > 1, 0.5),
    "rand_like": (lambda: torch.rand_like(torch.ones(()).double()) < 0.25, 0.25),
    "randn_like": (lambda: torch.randn_like(torch.ones(()).double()) < 0, 0.5),
    "torch.normal": (lambda: torch.normal(torch.ones(()).double(), 2.0) < 1, 0.5),
    "randint": (lambda: torch.randint(2, 6, ()) == 5, 0.25),
    "randint_like": (lambda: torch.randint_like(torch.ones(()), 4) == 3, 0.25),
    "poisson": (lambda: torch.poisson(torch.ones(()).double()) == 0, math.exp(-1)),
    "binomial": (lambda: torch.binomial(torch.tensor(2.0), torch.tensor(0.5)) == 2, 0.25),
    "dropout": (lambda: torch.nn.functional.dropout(torch.ones(()), 0.25) == 0, 0.25),
    "np.uniform": (lambda: KEPT.uniform(1, 3) < 1.5, 0.25),
    "np.exponential": (lambda: KEPT.exponential(0.5) < 1, 1 - math.exp(-2)),
    "np.gumbel": (lambda: KEPT.gumbel(1.0, 2.0) < 1.0, math.exp(-1)),
    "np.poisson": (lambda: KEPT.poisson(1.0) == 0, math.exp(-1)),
    "np.binomial": (lambda: KEPT.binomial(2, 0.5) == 2, 0.25),
    "np.geometric": (lambda: KEPT.geometric(0.25) == 1, 0.25),
    "np.randint": (lambda: np.random.randint(2, 6) == 5, 0.25),
    "random.uniform": (lambda: random.uniform(1, 3) < 1.5, 0.25),
    "random.gauss": (lambda: random.gauss(1.0, 2.0) > 1, 0.5),
    "random.expovariate": (lambda: random.expovariate(2.0) < 1, 1 - math.exp(-2)),
    "getrandbits": (lambda: random.getrandbits(2) == 3, 0.25),
    "Bernoulli": (lambda: torch.distributions.Bernoulli(0.25).sample() == 1, 0.25),
    "Exponential": (
        lambda: torch.distributions.Exponential(torch.tensor(2.0).double()).sample() < 1,
        1 - math.exp(-2),
    ),
    "Normal": (lambda: torch.distributions.Normal(1.0, 2.0).sample() > 1, 0.5),
    "Laplace": (lambda: torch.distributions.Laplace(1.0, 2.0).sample() > 1, 0.5),
}


@pytest.mark.parametrize("name", SHARES)
def test_each_draw_has_its_distribution(name):
    program, share = SHARES[name]
    law = law_of(lambda: bool(program()))
    probs = law.bounds(True) if isinstance(law, BoundedLaw) else (law.probs[True],) * 2
    assert probs[0] <= share + 1e-7
    assert probs[1] >= share - 1e-7
    assert probs[1] - probs[0] < 1e-6


@pytest.mark.parametrize("name", ["the last of a race", "the first two", "systematic", "sorted"])
def test_draws_agree_with_the_law(name):
    """Real draws, without a door; a right law is refuted with probability 1e-9."""
    programs = {
        "the last of a race": lambda: (
            torch.empty(3).exponential_() / torch.tensor(PROBS)
        ).argmax(),
        "the first two": lambda: (
            (torch.tensor(PROBS).log() - torch.rand(3).log().neg().log()).topk(2).indices
        ),
        "systematic": lambda: np.searchsorted(P.cumsum(), (KEPT.random() + np.arange(3)) / 3),
        "sorted": lambda: np.searchsorted(P.cumsum(), np.sort(KEPT.random(2))),
    }
    torch.manual_seed(0)
    law = law_of(programs[name])
    assert certify_by_draws(programs[name], law.probs, 1e-9, max_draws=2_000)
