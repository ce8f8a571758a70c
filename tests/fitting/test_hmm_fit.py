"""Fitting chains: EM rises, agrees with gradients and with hmmlearn, and says how sure it is."""

import itertools
import json
import math

import hmmlearn.hmm
import numpy as np
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.table import all_sequences
from triptych.fitting import climb
from triptych.fitting.result import NotConverged
from triptych.fitting.rows import Constraints
from triptych.fitting.search import Search
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.markov import Markov

ONE = Search(restarts=1, standard_errors=False)


def chain(initial, transition, emission, length):
    parts = (torch.tensor(p, dtype=torch.float64) for p in (initial, transition, emission))
    return HMM(*parts, length)


def steps(n, **settings):
    """Exactly n steps of EM from one start."""
    return Search(
        **{
            "method": "em",
            "restarts": 1,
            "max_steps": n,
            "tolerance": 0.0,
            "standard_errors": False,
        }
        | settings
    )


def stepped(*args, **kwargs):
    """A fit that is stopped on purpose."""
    with pytest.warns(NotConverged):
        return HMM.fit(*args, **kwargs)


@pytest.fixture(scope="module")
def gaps():
    """Tokens of an HMM with two clear states: rows of different length, a quarter hidden."""
    truth = chain([0.9, 0.1], [[0.8, 0.2], [0.3, 0.7]], [[0.9, 0.07, 0.03], [0.02, 0.18, 0.8]], 8)
    generator = torch.Generator().manual_seed(0)
    tokens = truth.sample(60, 0)
    hidden = torch.rand(tokens.shape, generator=generator) < 0.25
    lengths = torch.randint(2, 9, (60,), generator=generator)
    return {"tokens": tokens, "hidden": hidden, "lengths": lengths}


def brute_log_likelihood(hmm, tokens, hidden, lengths):
    """By the definition: a sum over all fillings of the hidden tokens and all paths of states."""
    total = 0.0
    for row, unseen, n in zip(tokens.tolist(), hidden.tolist(), lengths.tolist(), strict=True):
        choices = [
            range(hmm.vocab_size) if h else [x] for x, h in zip(row[:n], unseen, strict=False)
        ]
        mass = 0.0
        for x in itertools.product(*choices):
            for z in itertools.product(range(hmm.states), repeat=n):
                p = hmm.initial[z[0]] * hmm.emission[z[0], x[0]]
                for t in range(1, n):
                    p = p * hmm.transition[z[t - 1], z[t]] * hmm.emission[z[t], x[t]]
                mass += float(p)
        total += math.log(mass)
    return total


def test_the_log_likelihood_is_that_of_all_fillings_and_paths():
    hmm = HMM.random(2, 3, 4, seed=0)
    tokens = torch.tensor([[0, 1, 2, 0], [2, 2, 0, 0]])
    hidden = torch.tensor([[False, True, True, False], [True, False, False, False]])
    lengths = torch.tensor([4, 2])
    found = stepped(tokens, hidden=hidden, lengths=lengths, start=hmm, search=steps(1))
    assert found.trace[0] == pytest.approx(brute_log_likelihood(hmm, tokens, hidden, lengths))
    wanted = brute_log_likelihood(found.structure, tokens, hidden, lengths)
    assert found.log_likelihood == pytest.approx(wanted)
    assert (found.rows, found.tokens, found.structure.length) == (2, 3, 4)


def test_worked_value():
    found = HMM.fit([[0, 1, 1], [1]], 1)
    assert found.structure.emission.tolist() == [pytest.approx([0.25, 0.75])]
    assert found.log_likelihood == pytest.approx(math.log(0.25) + 3 * math.log(0.75))
    # of a share p of n = 4: √(p (1 - p) / n)
    assert found.standard_error("emission[1]") == pytest.approx(math.sqrt(0.1875 / 4), rel=1e-4)
    assert found.free_parameters == 1
    assert found.aic == pytest.approx(2 - 2 * found.log_likelihood)
    assert found.bic == pytest.approx(math.log(4) - 2 * found.log_likelihood)
    assert found.converged


@pytest.mark.parametrize("prior", [None, 2.0, {"transition": 1.5, "emission": [[3.0, 1, 1]] * 3}])
@pytest.mark.parametrize("seed", range(4))
def test_em_never_falls(gaps, seed, prior):
    found = stepped(**gaps, states=3, prior=prior, search=steps(40, seed=seed))
    gains = np.diff(found.trace)
    assert len(gains) == 40
    assert (gains >= -1e-10 * abs(found.trace[0])).all()


def log_likelihood(logits, data):
    """Differentiable, by the forward recursion in probabilities."""
    initial, transition, emission = (part.softmax(-1) for part in logits)
    total = 0.0
    for row, unseen, n in zip(
        data["tokens"], data["hidden"], data["lengths"].tolist(), strict=True
    ):
        message = initial[0]
        for t in range(n):
            seen = message if unseen[t] else message * emission[:, row[t]]
            message = seen @ transition
        total = total + seen.sum().log()
    return total


def test_fixed_points_have_no_gradient_and_both_ways_end_alike(gaps):
    """EM, L-BFGS and both, from one start; the gradient by automatic differentiation is 0 there.

    With a prior, because EM needs thousands of steps to a maximum at the boundary.
    """
    start = chain([0.5, 0.5], [[0.6, 0.4], [0.4, 0.6]], [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], 8)
    ends = {}
    for method in ("em", "gradient", "both"):
        search = Search(method=method, restarts=1, max_steps=2000, tolerance=1e-9)
        ends[method] = found = HMM.fit(**gaps, start=start, prior=1.5, search=search)
        assert found.converged
        logits = [
            part.log().clone().requires_grad_()
            for part in (
                found.structure.initial[None],
                found.structure.transition,
                found.structure.emission,
            )
        ]
        value = log_likelihood(logits, gaps)
        assert value.item() == pytest.approx(found.log_likelihood)
        value = value + 0.5 * sum(part.log_softmax(-1).sum() for part in logits)
        value.backward()
        assert value.item() == pytest.approx(found.objective)
        assert max(float(part.grad.abs().max()) for part in logits) < 2e-3
    values = [found.objective for found in ends.values()]
    assert max(values) - min(values) < 1e-6
    for name in ("transition", "emission"):
        parts = [getattr(found.structure, name) for found in ends.values()]
        for part in parts[1:]:
            torch.testing.assert_close(part, parts[0], atol=2e-3, rtol=0)


def test_standard_errors_are_those_of_the_second_derivative(gaps):
    """Against automatic differentiation twice, in logits, without the gauge of each row."""
    found = HMM.fit(**gaps, states=2, search=Search(restarts=2))
    hmm = found.structure
    shapes = [(1, 2), (2, 2), (2, 3)]
    flat = torch.cat([p.reshape(-1) for p in (hmm.initial, hmm.transition, hmm.emission)])

    def objective(theta):
        parts = theta.split([2, 4, 6])
        rows = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        return -log_likelihood(rows, gaps)

    hessian = torch.autograd.functional.hessian(objective, flat.log())
    jacobian = torch.block_diag(
        *(
            torch.diag(row) - torch.outer(row, row)
            for part in (hmm.initial[None], hmm.transition, hmm.emission)
            for row in part
        )
    )
    covariance = jacobian @ torch.linalg.pinv(hessian, rtol=1e-10) @ jacobian
    errors = [p.standard_error for p in found.parameters]
    known = [i for i, e in enumerate(errors) if e is not None]
    assert len(known) >= 10
    wanted = covariance.diagonal().sqrt()[known]
    torch.testing.assert_close(
        torch.tensor([errors[i] for i in known]).double(), wanted, rtol=2e-3, atol=0
    )
    assert 0 < found.least_share < 1


@pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array")  # hmmlearn, NumPy 2.5
def test_the_same_steps_as_hmmlearn():
    """From the same start, the same log-likelihood to 1e-8 after each of 20 steps."""
    hmm, start = HMM.random(4, 5, 30, seed=0), HMM.random(4, 5, 30, seed=1)
    tokens = hmm.sample(100, 0)
    peer = hmmlearn.hmm.CategoricalHMM(
        n_components=4, n_iter=20, tol=-np.inf, init_params="", n_features=5
    )
    peer.startprob_, peer.transmat_ = start.initial.numpy(), start.transition.numpy()
    peer.emissionprob_ = start.emission.numpy()
    peer.fit(tokens.reshape(-1, 1).numpy(), [30] * 100)
    ours = stepped(tokens, start=start, search=steps(20))
    np.testing.assert_allclose(
        ours.trace[:20], list(peer.monitor_.history)[-20:], rtol=0, atol=1e-8
    )
    np.testing.assert_allclose(ours.structure.emission, peer.emissionprob_, atol=1e-9)
    np.testing.assert_allclose(ours.structure.transition, peer.transmat_, atol=1e-9)


def test_lists_with_none_are_the_padded_batch(gaps):
    rows = [
        [None if h else x for x, h in zip(row[:n], unseen, strict=False)]
        for row, unseen, n in zip(
            gaps["tokens"].tolist(), gaps["hidden"].tolist(), gaps["lengths"].tolist(), strict=True
        )
    ]
    one = stepped(**gaps, states=2, search=steps(5))
    other = stepped(rows, states=2, search=steps(5))
    assert one.trace == other.trace
    garbage = gaps["tokens"].masked_fill(gaps["hidden"], 99)
    behind = torch.arange(8) >= gaps["lengths"][:, None]
    third = stepped(
        garbage.masked_fill(behind, -5), states=2, hidden=gaps["hidden"], lengths=gaps["lengths"],
        search=steps(5),
    )  # fmt: skip
    assert third.trace == one.trace


def test_a_weight_is_a_repetition():
    tokens = HMM.random(2, 3, 6, seed=3).sample(20, 0)
    weights = torch.arange(20) % 3
    one = stepped(tokens, states=2, weights=weights, vocab_size=3, search=steps(10))
    repeated = tokens.repeat_interleave(weights, 0)
    other = stepped(repeated, states=2, vocab_size=3, search=steps(10))
    np.testing.assert_allclose(one.trace, other.trace, rtol=1e-12)


def test_zeros_stay_tied_rows_are_equal_and_fixed_parts_do_not_move(gaps):
    left_to_right = Constraints(
        zeros={"transition": [[0, 0, 1], [1, 0, 0], [1, 1, 0]], "initial": [0, 1, 1]},
        tied={"emission": [[0, 2]]},
    )
    for method in ("em", "gradient", "both"):
        found = HMM.fit(
            **gaps,
            states=3,
            constraints=left_to_right,
            search=Search(method=method, restarts=1, max_steps=3000, tolerance=1e-6),
        )
        hmm = found.structure
        assert hmm.transition[torch.tensor([[0, 0, 1], [1, 0, 0], [1, 1, 0]]).bool()].eq(0).all()
        assert hmm.initial.tolist() == [1.0, 0.0, 0.0]
        assert torch.equal(hmm.emission[0], hmm.emission[2])
        assert found.free_parameters == 1 + 1 + 2 * 2
        assert found.trace[-1] > found.trace[0]
    whys = {p.name: p.why for p in found.parameters}
    assert whys["transition[1, 0]"] == "zero"
    start = HMM.random(2, 3, 8, seed=5)
    fixed = Constraints(fixed=["emission"])
    found = HMM.fit(**gaps, start=start, constraints=fixed, search=Search(restarts=1))
    assert torch.equal(found.structure.emission, start.emission)
    assert not torch.equal(found.structure.transition, start.transition)
    assert {p.why for p in found.parameters if p.name.startswith("emission")} == {"fixed"}


def test_tying_is_the_fit_of_one_row():
    """All emission rows tied: the counts of the tokens, whatever the states are."""
    tokens = [[0, 0, 1], [2, 0, 1]]
    constraints = Constraints(tied={"emission": [[0, 1]]})
    found = HMM.fit(tokens, 2, constraints=constraints, search=ONE)
    assert found.structure.emission.tolist() == [pytest.approx([3 / 6, 2 / 6, 1 / 6])] * 2


def test_the_prior_is_added_to_counts():
    """One state, concentrations (3, 1): (1 + 2) / (4 + 2) and 3 / 6."""
    found = HMM.fit([[0, 1, 1, 1]], 1, prior={"emission": [[3.0, 1.0]]})
    assert found.structure.emission.tolist() == [pytest.approx([0.5, 0.5])]
    assert found.objective == pytest.approx(found.log_likelihood + 2 * math.log(0.5))
    # the curvature of the objective is that of six tokens
    assert found.standard_error("emission[0]") == pytest.approx(math.sqrt(0.25 / 6), rel=1e-4)


def test_zeros_of_a_start_stay_with_a_prior(gaps):
    start = chain([1.0, 0.0], [[0.5, 0.5], [0.0, 1.0]], [[0.4, 0.3, 0.3], [0.2, 0.4, 0.4]], 8)
    found = HMM.fit(**gaps, start=start, prior=2.0, search=ONE)
    assert found.structure.transition[1].tolist() == [0.0, 1.0]


def test_what_is_not_identified_is_said():
    """Two states that emit alike: nothing tells how one follows the other."""
    start = chain([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]], 3)
    tokens = [[0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]]
    same = Constraints(fixed=["emission"])
    found = HMM.fit(tokens, start=start, constraints=same, search=Search(restarts=1))
    assert any("not identified" in note for note in found.notes)
    whys = {p.name: p.why for p in found.parameters}
    assert whys["transition[0, 1]"] == "not identified"
    assert found.least_share == pytest.approx(0, abs=1e-8)


def test_restarts_and_their_ends(gaps):
    found = HMM.fit(**gaps, states=3, search=Search(restarts=4, seed=7, standard_errors=False))
    assert len(found.ends) == 4
    assert found.log_likelihood == max(found.ends)
    assert found.spread == pytest.approx(max(found.ends) - min(found.ends))
    again = HMM.fit(**gaps, states=3, search=Search(restarts=4, seed=7, standard_errors=False))
    assert again.trace == found.trace
    alone = HMM.fit(**gaps, states=3, search=Search(restarts=1, seed=8, standard_errors=False))
    assert alone.log_likelihood == pytest.approx(found.ends[1], abs=1e-9)


def test_a_search_that_ends_early_says_so(gaps):
    with pytest.warns(NotConverged, match="did not converge in 2 steps"):
        found = HMM.fit(**gaps, states=2, search=Search(restarts=1, max_steps=2))
    assert not found.converged
    assert (found.steps, len(found.trace)) == (2, 3)
    assert found.gain == found.trace[-1] - found.trace[-2]
    assert "NOT converged after 2 steps" in repr(found)
    assert "NO, after 2 steps" in str(found)


def test_a_saddle_is_called_one():
    """From two equal states EM does not move, and the objective still curves upward there."""
    start = chain([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.5, 0.5]], 4)
    tokens = [[0, 0, 0, 0], [1, 1, 1, 1]]
    found = HMM.fit(tokens, start=start, search=Search(restarts=1, method="em"))
    assert found.log_likelihood == pytest.approx(8 * math.log(0.5))
    assert any("no maximum" in note for note in found.notes)


def test_what_remains():
    """Gains 8, 4: two more of 2 + 1 + ... remain, which is 4. One gain says nothing."""
    assert climb._remaining([0.0, 8.0, 12.0]) == 4.0
    assert climb._remaining([0.0, 8.0]) == math.inf
    assert climb._remaining([0.0, 4.0, 12.0]) == math.inf  # it speeds up
    assert climb._remaining([0.0, 8.0, 8.0]) == 0.0


def test_what_remains_is_what_comes(gaps):
    """After 40 steps the ratio of two gains foretells the rest of the way to a factor of 2."""
    start = chain([0.9, 0.1], [[0.8, 0.2], [0.3, 0.7]], [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]], 8)
    short = stepped(**gaps, start=start, search=steps(40))
    long = HMM.fit(**gaps, start=start, search=Search(restarts=1, tolerance=1e-12))
    comes = long.log_likelihood - short.log_likelihood
    assert 0.5 * comes < short.remaining < 2 * comes


def test_held_out_rows_are_not_fitted(gaps):
    found = HMM.fit(**gaps, states=2, held_out=0.2, search=ONE)
    assert (found.rows, found.held_out.rows) == (48, 12)
    assert found.tokens + found.held_out.tokens == HMM.fit(**gaps, states=2, search=ONE).tokens
    assert -2 < found.held_out.per_token < -0.5


def test_batches_end_where_em_ends(gaps):
    whole = HMM.fit(**gaps, states=2, search=Search(restarts=1, seed=3))
    parts = HMM.fit(**gaps, states=2, search=Search(restarts=1, seed=3, batch=20))
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-3)
    assert parts.converged


def test_a_truth_is_found_again():
    """5000 rows of three clear states: every probability within five standard errors."""
    truth = chain(
        [0.6, 0.3, 0.1],
        [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]],
        [[0.8, 0.1, 0.05, 0.05], [0.1, 0.8, 0.05, 0.05], [0.05, 0.05, 0.2, 0.7]],
        10,
    )
    found = HMM.fit(truth.sample(2000, 0), start=truth, search=Search(restarts=1))
    wanted = torch.cat([p.reshape(-1) for p in (truth.initial, truth.transition, truth.emission)])
    errors = [p.standard_error for p in found.parameters]
    scores = [
        (p.value - w) / p.standard_error
        for p, w in zip(found.parameters, wanted.tolist(), strict=True)
    ]
    assert None not in errors
    assert max(map(abs, scores)) < 5  # 24 parameters: chance 1.4e-5 by the normal law
    assert sum(s * s for s in scores) / len(scores) < 3


def test_a_page_and_plain_types(gaps):
    found = HMM.fit(**gaps, states=2, held_out=0.1, search=Search(restarts=2))
    page = found._repr_html_()
    assert "standard error" in page
    assert "transition[0, 1]" in page
    assert "<script" not in page
    text = str(found)
    assert "emission[1, 2]" in text
    assert "converged" in text
    record = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert record["converged"] is True
    assert record["parameters"][0]["name"] == "initial[0]"


# ------------------------------------------------------------------ Markov chains


def test_a_markov_chain_without_gaps_is_counted():
    found = Markov.fit([[0, 1, 1], [0, 0]])
    assert found.structure.transition.tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert found.structure.initial.tolist() == [1.0, 0.0]
    assert found.log_likelihood == pytest.approx(2 * math.log(0.5))
    assert found.converged
    assert found.standard_error("transition[0, 1]") == pytest.approx(math.sqrt(0.25 / 2), rel=1e-4)


def test_a_markov_chain_with_gaps_sums_over_fillings():
    rows = [[0, None, 1], [0, 1, None, 0], [1, 1, 0]]
    found = Markov.fit(rows, search=Search(restarts=3, tolerance=1e-10, max_steps=5000))
    chain = found.structure
    total = 0.0
    for row in rows:
        fill = all_sequences(2, len(row))
        fits = [
            all(r is None or r == x for r, x in zip(row, f, strict=True)) for f in fill.tolist()
        ]
        law = Markov(chain.initial, chain.transition, len(row)).log_prob(fill)
        total += float(law[torch.tensor(fits)].logsumexp(0))
    assert found.log_likelihood == pytest.approx(total)


def test_counting_is_the_e_step_of_the_general_way():
    rows = HMM.random(1, 3, 5, seed=0).sample(30, 0)
    fast = Markov.fit(rows, vocab_size=3)
    start = HMM(fast.structure.initial, fast.structure.transition, torch.eye(3).double(), 5)
    slow = HMM.fit(rows, start=start, constraints=Constraints(fixed=["emission"]), search=ONE)
    assert slow.log_likelihood == pytest.approx(fast.log_likelihood)
    torch.testing.assert_close(slow.structure.transition, fast.structure.transition)


# ------------------------------------------------------------------ mistakes


ROWS = [[0, 1, 1], [1, 0, 0]]


def kept(**constraints):
    return HMM.fit(ROWS, 2, constraints=Constraints(**constraints))


@pytest.mark.parametrize(
    ("parameter", "mistake"),
    [
        ("states", lambda: HMM.fit(ROWS)),
        ("states", lambda: HMM.fit(ROWS, 3, start=HMM.random(2, 2, 3, seed=0))),
        ("vocab_size", lambda: HMM.fit(ROWS, start=HMM.random(2, 2, 3, seed=0), vocab_size=3)),
        ("start", lambda: HMM.fit(ROWS, 2, start=3)),
        ("hidden", lambda: HMM.fit(ROWS, 2, vocab_size=1)),
        ("lengths", lambda: HMM.fit(ROWS, 2, lengths=[1, 4])),
        ("lengths", lambda: HMM.fit(ROWS, 2, lengths=[1])),
        ("lengths", lambda: HMM.fit([[0], [0, 1]], 2, lengths=[1, 2])),
        ("hidden", lambda: HMM.fit([[0], [0, 1]], 2, hidden=[[1]])),
        ("weights", lambda: HMM.fit(ROWS, 2, weights=[1.0])),
        ("weights", lambda: HMM.fit(ROWS, 2, weights=[1.0, -1.0])),
        ("weights", lambda: HMM.fit(ROWS, 2, weights=[0.0, 0.0])),
        ("prior", lambda: HMM.fit(ROWS, 2, prior=0.5)),
        ("prior", lambda: HMM.fit(ROWS, 2, prior={"A": 2})),
        ("prior", lambda: HMM.fit(ROWS, 2, prior={"emission": [1, 1, 1]})),
        ("zeros", lambda: kept(zeros={"B": [[1]]})),
        ("zeros", lambda: kept(zeros={"initial": [1, 1]})),
        ("zeros", lambda: kept(zeros={"initial": [1, 0, 0, 0]})),
        ("tied", lambda: kept(tied={"emission": [[0, 2]]})),
        ("tied", lambda: kept(tied={"emission": [[0, 1], [1, 0]]})),
        ("constraints", lambda: HMM.fit(ROWS, 2, constraints=[1])),
        ("search", lambda: HMM.fit(ROWS, 2, search="em")),
        ("held_out", lambda: HMM.fit(ROWS, 2, held_out=1.0)),
        ("held_out", lambda: HMM.fit([[0, 1]], 2, held_out=0.5)),
        ("method", lambda: Search(method="newton")),
        ("batch", lambda: Search(method="gradient", batch=2)),
        ("start", lambda: HMM.fit(ROWS, start=chain([1, 0], [[0, 1], [1, 0]], [[1, 0]] * 2, 3))),
        ("name", lambda: HMM.fit([[0, 1]], 1).standard_error("x")),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked_shapes")
def test_mistakes_are_sentences(parameter, mistake):
    with refused(parameter):
        mistake()
