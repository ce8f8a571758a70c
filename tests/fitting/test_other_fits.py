"""Fitting memory HMMs, grammars, LDA and Ising models, each against its own exact structure."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from tests.support.refusals import refused

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import all_sequences
from triptych.fitting.result import NotConverged
from triptych.fitting.rows import Constraints
from triptych.fitting.search import Search
from triptych.structures.cfg import CFG
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.structures.ising import Ising
from triptych.structures.topics import LDA
from triptych.theory.masking import estimators
from triptych.theory.masking.families import IsingFamily
from triptych.theory.masking.information import asymptotic_covariance

STEPS = Search(method="em", restarts=1, max_steps=25, tolerance=0.0, standard_errors=False)
ONE = Search(restarts=1)


def log_shown(structure, row):
    """log p of what is shown, None being hidden: a sum over every filling."""
    fillings = all_sequences(structure.vocab_size, len(row))
    fits = [
        all(r is None or r == x for r, x in zip(row, filling, strict=True))
        for filling in fillings.tolist()
    ]
    return float(structure.log_prob(fillings[torch.tensor(fits)]).logsumexp(0))


# ------------------------------------------------------------------ memory HMMs

MEMORY = MemoryHMM.random(2, 2, 1, 2, 4, seed=0)
GAPS = [[0, None, 1, 1], [None, 0, 0, 1], [1, 1, None, None], [0, 0, 1, 0]]


def test_em_of_a_memory_hmm_never_falls_and_has_its_log_likelihood():
    with pytest.warns(NotConverged):
        found = MemoryHMM.fit(GAPS, start=MEMORY, search=STEPS)
    assert found.trace[0] == pytest.approx(sum(log_shown(MEMORY, row) for row in GAPS))
    assert found.log_likelihood == pytest.approx(
        sum(log_shown(found.structure, row) for row in GAPS)
    )
    assert (np.diff(found.trace) >= -1e-12).all()
    assert found.trace[-1] > found.trace[0] + 0.1


def test_a_step_of_a_memory_hmm_by_every_memory_and_path():
    """Posterior counts by enumeration of memories and paths, for rows of different length."""
    rows = [[0, 1, 1], [1, 0], [0, 0, 1]]
    parts = {
        "memory": torch.zeros(4), "initial": torch.zeros(2), "transition": torch.zeros(2, 2),
        "emission": torch.zeros(2, 2, 1, 2),
    }  # fmt: skip
    counts = {name: part.double() for name, part in parts.items()}
    for row in rows:
        masses = {}
        for m, path in itertools.product(range(4), itertools.product(range(2), repeat=len(row))):
            cells = MEMORY.assignments[m].tolist()
            mass = MEMORY.memory.reshape(-1)[m] * MEMORY.initial[path[0]]
            for t, x in enumerate(row):
                if t:
                    mass = mass * MEMORY.transition[path[t - 1], path[t]]
                mass = mass * MEMORY.emission[cells[path[t]], path[t], 0, x]
            masses[m, path] = float(mass)
        total = sum(masses.values())
        for (m, path), mass in masses.items():
            cells, share = MEMORY.assignments[m].tolist(), mass / total
            counts["memory"][m] += share
            counts["initial"][path[0]] += share
            for t, x in enumerate(row):
                if t:
                    counts["transition"][path[t - 1], path[t]] += share
                counts["emission"][cells[path[t]], path[t], 0, x] += share
    with pytest.warns(NotConverged):
        found = MemoryHMM.fit(rows, start=MEMORY, search=replace(STEPS, max_steps=1)).structure
    for name, count in counts.items():
        wanted = count.reshape(1, -1) if name == "memory" else count
        wanted = (wanted / wanted.sum(-1, keepdim=True)).reshape(getattr(found, name).shape)
        torch.testing.assert_close(getattr(found, name), wanted)


def test_both_ways_end_alike_for_a_memory_hmm():
    rows = MEMORY.sample(30, 0)
    settings = replace(STEPS, max_steps=3000, tolerance=1e-6)
    ends = [
        MemoryHMM.fit(
            rows, start=MEMORY, prior=2.0, search=replace(settings, method=method)
        ).objective
        for method in ("em", "gradient", "both")
    ]
    assert max(ends) - min(ends) < 1e-3


def test_worked_value_of_a_memory_hmm():
    found = MemoryHMM.fit([[0, 1, 1], [1]], 1, 1, 1)
    assert found.structure.emission.flatten().tolist() == pytest.approx([0.25, 0.75])


# ------------------------------------------------------------------ grammars

SENTENCES = CFG.from_rules(
    {
        "S": {("N", "V"): 0.6, ("S", "S"): 0.4},
        "N": {"cat": 0.7, ("N", "N"): 0.3},
        "V": {"runs": 1.0},
    },
    length=5,
)


def test_worked_value_of_a_grammar():
    """At most two words, five a and one aa: p (1 - p) = 1/5 for the binary rule."""
    found = CFG.fit([[0]] * 5 + [[0, 0]], symbols=1, words=1)
    p = found.structure.binary.item()
    assert p * (1 - p) == pytest.approx(0.2, abs=1e-6)
    assert found.log_likelihood == pytest.approx(5 * math.log(5 / 6) + math.log(1 / 6))
    assert [entry.name for entry in found.parameters] == ["0 → 0 0", "0 → 0"]


def test_the_counts_of_rules_are_the_slope_of_log_p():
    """Fisher's identity against differences of the structure's own log-probabilities, with gaps."""
    end = SENTENCES.end_token
    tokens = torch.tensor([[0, 1, end, end, end], [0, 0, 1, 0, 1], [0, 0, 1, end, end]])
    seen = torch.ones_like(tokens, dtype=torch.bool)
    seen[1, 1] = seen[2, 0] = False
    rows = [
        [x if s else None for x, s in zip(row, own, strict=True)]
        for row, own in zip(tokens.tolist(), seen.tolist(), strict=True)
    ]
    rules = torch.cat([SENTENCES.binary.flatten(1), SENTENCES.terminal], 1)

    def value(moved):
        grammar = CFG(moved[:, :9].reshape(3, 3, 3), moved[:, 9:], 5)
        return sum(log_shown(grammar, row) for row in rows)

    own, counts = SENTENCES.rule_counts(tokens, seen, torch.ones(3).double())
    blank = torch.zeros((1, 5), dtype=torch.long)
    total, normaliser = SENTENCES.rule_counts(blank, blank.bool(), torch.full((1,), 3.0).double())
    assert float((own - total).sum()) == pytest.approx(value(rules))
    slope = counts - normaliser
    slope = slope - rules * slope.sum(1, keepdim=True)
    for place in torch.nonzero(rules > 0).tolist():
        logits = [rules.log().clone(), rules.log().clone()]
        logits[0][tuple(place)] += 1e-5
        logits[1][tuple(place)] -= 1e-5
        ups, downs = (value(logit.softmax(1)) for logit in logits)
        assert (ups - downs) / 2e-5 == pytest.approx(float(slope[tuple(place)]), abs=1e-6)


def test_em_of_a_grammar_never_falls_and_ends_where_gradients_do():
    tokens = SENTENCES.sample(80, 0)
    hidden = (torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.2) & (
        tokens != SENTENCES.end_token
    )
    start = CFG.from_rules(
        {
            "S": {("N", "V"): 0.5, ("S", "S"): 0.5},
            "N": {"cat": 0.5, ("N", "N"): 0.5},
            "V": {"runs": 1.0},
        },
        length=5,
    )
    ends = []
    for method in ("em", "gradient", "both"):
        search = Search(method=method, restarts=1, tolerance=1e-9)
        found = CFG.fit(tokens, start, hidden=hidden, search=search)
        assert (np.diff(found.trace) >= -1e-9).all() or method == "gradient"
        ends.append(found.log_likelihood)
        assert found.structure.binary[2].eq(0).all()  # rules that start excludes stay out
    assert max(ends) - min(ends) < 1e-5
    assert found.structure.word_names == ("cat", "runs")


def test_strings_may_be_shorter_lists():
    whole = CFG.fit([[0, 1, 2, 2, 2], [0, 0, 1, 2, 2]], SENTENCES, search=ONE)
    lists = CFG.fit([[0, 1], [0, 0, 1]], SENTENCES, length=5, search=ONE)
    assert lists.log_likelihood == pytest.approx(whole.log_likelihood)
    assert lists.tokens == whole.tokens == 5


# ------------------------------------------------------------------ LDA


def test_worked_value_of_lda():
    found = LDA.fit([[0, 0], [0, 0], [0, 1]], 2, 1)
    assert found.structure.concentration == pytest.approx(1, abs=1e-6)
    assert found.log_likelihood == pytest.approx(math.log(4 / 8 / 27))


def test_lda_is_fitted_by_its_own_log_prob():
    """Against a search on `LDA.log_prob`, with its second difference; lengths are 4 to 6."""
    truth = LDA(3, 2, 0.5, 4, 6)
    tokens = truth.sample(300, 0)
    found = LDA.fit(tokens, 3, 2)

    def loss(log_alpha):
        return -float(LDA(3, 2, math.exp(log_alpha), 4, 6).log_prob(tokens).sum())

    best = minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-8}).x
    assert math.log(found.structure.concentration) == pytest.approx(best, abs=1e-5)
    assert found.log_likelihood == pytest.approx(-loss(best))
    bend = (loss(best + 1e-3) - 2 * loss(best) + loss(best - 1e-3)) / 1e-6
    wanted = math.exp(best) / math.sqrt(bend)
    assert found.parameters[0].standard_error == pytest.approx(wanted, rel=1e-3)
    assert found.structure.min_length == 4
    assert abs(found.structure.concentration - 0.5) < 5 * wanted


def test_hidden_words_of_lda_are_no_evidence():
    rows = [[0, None, 1], [1, 1, None], [None, 3, 3], [0, 2, 1]]
    found = LDA.fit(rows, 2, 2)
    shown = sum(log_shown(found.structure, row) for row in rows)
    assert found.log_likelihood == pytest.approx(shown)


@pytest.mark.parametrize(
    ("rows", "why"), [([[0, 0], [1, 1]], "one topic"), ([[0, 1], [1, 0]], "as evenly")]
)
def test_lda_without_a_maximum_says_so(rows, why):
    with pytest.warns(NotConverged):
        found = LDA.fit(rows, 2, 1)
    assert not found.converged
    assert any(why in note for note in found.notes)
    assert found.parameters[0].standard_error is None


def test_a_prior_gives_lda_a_maximum():
    found = LDA.fit([[0, 0], [1, 1]], 2, 1, prior=(2.0, 1.0))
    assert found.converged
    assert 1e-3 < found.structure.concentration < 3


# ------------------------------------------------------------------ Ising models

SPINS = Ising.random(4, scale=0.5, seed=1)


def test_worked_value_of_an_ising_model():
    found = Ising.fit([[0], [1], [1], [1]])
    assert found.structure.field.item() == pytest.approx(0.5 * math.log(3))
    # ¼ / (n p (1 - p)) of the logit, whose half h is
    assert found.standard_error("field[0]") == pytest.approx(0.5 / math.sqrt(4 * 0.1875), rel=1e-5)


def test_the_exact_fit_is_the_theory_s():
    """Against the Newton method and the Fisher information of `theory.masking`."""
    tokens = SPINS.sample(500, 0)
    found = Ising.fit(tokens)
    family, whole = IsingFamily(SPINS), MaskLaw.of_size(4, 4)
    wanted = estimators.fit_tokens(family, whole, tokens)
    theta = torch.tensor([p.value for p in found.parameters]).double()
    torch.testing.assert_close(theta, wanted.theta[0], atol=1e-6, rtol=0)
    assert found.log_likelihood == pytest.approx(float(found.structure.log_prob(tokens).sum()))
    at = IsingFamily(found.structure)
    probs = at.table.log_probs.exp()
    scores = at.scores()
    covariance = torch.linalg.inv(500 * (probs[:, None] * scores).T @ scores)
    errors = torch.tensor([p.standard_error for p in found.parameters]).double()
    torch.testing.assert_close(errors, covariance.diagonal().sqrt(), rtol=1e-4, atol=0)


MASKS = {
    "one spin": MaskLaw.of_size(4, 1),
    "two spins": MaskLaw.of_size(4, 2),
    "uneven": MaskLaw.weighted(4, [[0], [1, 2], [0, 1, 3], [2, 3]], [1, 2, 3, 4]),
    "looking": MaskLaw.looking(
        4, [[0, 1], [2, 3], [1, 2]],
        lambda x: torch.stack([x[:, 0], x[:, 3], x[:, 1] + x[:, 2]], 1).double(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("masks", MASKS)
def test_masked_prediction_is_the_theory_s(masks):
    """Estimates are those of `estimators`; on the truth itself as data, errors are those of Γ_∞."""
    law = MASKS[masks]
    tokens = SPINS.sample(400, 0)
    found = Ising.fit(tokens, masks=law)
    wanted = estimators.fit_tokens(IsingFamily(SPINS), law, tokens)
    theta = torch.tensor([p.value for p in found.parameters]).double()
    torch.testing.assert_close(theta, wanted.theta[0], atol=1e-5, rtol=0)
    assert found.objective == pytest.approx(-400 * float(wanted.loss))
    every, probs = all_sequences(2, 4), IsingFamily(SPINS).table.log_probs.exp()
    exact = Ising.fit(every, weights=probs, masks=law)
    torch.testing.assert_close(exact.structure.coupling, SPINS.coupling, atol=1e-6, rtol=0)
    gamma = asymptotic_covariance(IsingFamily(SPINS), law, masks_per_sample=None)
    errors = torch.tensor([p.standard_error for p in exact.parameters]).double()
    torch.testing.assert_close(errors, gamma.diagonal().sqrt(), rtol=1e-4, atol=1e-6)


def test_hidden_spins_are_summed_over():
    rows = SPINS.sample(200, 0)
    hidden = torch.rand(rows.shape, generator=torch.Generator().manual_seed(1)) < 0.25
    found = Ising.fit(rows, hidden=hidden, search=Search(restarts=2))
    shown = [
        [None if h else x for x, h in zip(row, own, strict=True)]
        for row, own in zip(rows.tolist(), hidden.tolist(), strict=True)
    ]
    total = sum(log_shown(found.structure, row) for row in shown)
    assert found.log_likelihood == pytest.approx(total)
    assert found.converged
    more = [p.standard_error for p in found.parameters]
    less = [p.standard_error for p in Ising.fit(rows).parameters]
    assert all(a > b for a, b in zip(more, less, strict=True))


def test_pairs_that_are_not_free_stay():
    rows = SPINS.sample(300, 0)
    chain = torch.zeros((4, 4), dtype=torch.bool)
    for i in range(3):
        chain[i, i + 1] = chain[i + 1, i] = True
    found = Ising.fit(rows, pairs=chain, fields=False)
    assert found.free_parameters == 3
    assert found.structure.coupling[~chain].eq(0).all()
    assert found.structure.field.eq(0).all()


def test_data_without_an_estimate_are_called_so():
    """A spin that is always up; a prior gives the estimate that the likelihood has not."""
    rows = [[1, 0], [1, 1], [1, 0], [1, 1]]
    with pytest.warns(NotConverged):
        found = Ising.fit(rows)
    assert not found.converged
    assert found.parameters[0].standard_error is None
    assert any("no unique estimate" in note for note in found.notes)
    assert Ising.fit(rows, prior=0.1).converged


def test_more_than_twenty_spins_are_fitted_by_masks():
    truth = Ising.grid(3, 8, 0.3, 0.1)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 2, (300, 24), generator=generator)
    for _ in range(30):  # a Gibbs sampler, one spin at a time
        for i in range(24):
            odds = truth.site_log_odds(rows)[:, i]
            rows[:, i] = (torch.rand(300, generator=generator) < odds.sigmoid()).long()
    found = Ising.fit(rows, pairs=truth.coupling != 0)
    assert any("pseudolikelihood" in note for note in found.notes)
    wanted = [truth.field[0].item()] * 24 + [0.3] * (found.free_parameters - 24)
    z = [(p.value - w) / p.standard_error for p, w in zip(found.parameters, wanted, strict=True)]
    assert max(map(abs, z)) < 5
    assert 0.5 < sum(x * x for x in z) / len(z) < 2


@pytest.mark.parametrize(
    ("parameter", "mistake"),
    [
        ("values", lambda: MemoryHMM.fit([[0, 1]], cells=1, syntax=1)),
        ("cells", lambda: MemoryHMM.fit(GAPS, cells=3, start=MEMORY)),
        ("symbols", lambda: CFG.fit([[0]], words=1)),
        ("length", lambda: CFG.fit([[0, 1, 0]], SENTENCES, length=2)),
        ("start", lambda: CFG.fit([[0]], 3)),
        ("start", lambda: CFG.fit([[1, 1]], SENTENCES)),  # two verbs alone
        ("tokens", lambda: LDA.fit([[2, 2], [0, 1]], 2, 1)),
        ("prior", lambda: LDA.fit([[0, 0]], 2, 1, prior=[1.0])),
        ("pairs", lambda: Ising.fit([[0, 1]], pairs=[[0, 1], [0, 0]])),
        ("masks", lambda: Ising.fit([[0, 1]], masks=MaskLaw.of_size(3, 1))),
        ("masks", lambda: Ising.fit([[0, 1]], masks=2)),
        ("hidden", lambda: Ising.fit([[0, 1]], hidden=[[0, 1]], masks=MaskLaw.of_size(2, 1))),
        ("hidden", lambda: Ising.fit([[0] * 21], hidden=[[1] * 21])),
        ("start", lambda: Ising.fit([[0, 1]], start=SPINS)),
        ("pairs", lambda: Ising.fit(torch.zeros((1, 60)).long())),
        ("zeros", lambda: CFG.fit([[0]], SENTENCES, constraints=Constraints(zeros={"binary": []}))),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked_shapes")
def test_mistakes_are_sentences(parameter, mistake):
    with refused(parameter):
        mistake()
