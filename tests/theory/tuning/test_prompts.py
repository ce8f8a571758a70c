"""Soft prompts: worked values, brute force over paths and subsets, tables of the modified model."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from tests.support.grids import some

from triptych.core.estimates import Status
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError
from triptych.structures.hidden_markov.hmm import HMM
from triptych.studies.api.study import Rows
from triptych.studies.tuning import exact_heads
from triptych.studies.tuning.exact_prompts import judge as judges
from triptych.studies.tuning.exact_prompts import study as exact_prompts
from triptych.theory.tuning import essential, heads, prompts

pytestmark = pytest.mark.numerical


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def worked():
    """The HMM of the docstrings: 0 -> {0, 1}, 1 -> {2}, 2 -> {0}; three states, two tokens."""
    return HMM(
        f64([0.25, 0.5, 0.25]),
        f64([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
        f64([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]),
        1,
    )


def random_prompt(states, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(states, generator=generator, dtype=torch.float64)
    return values * (torch.rand(states, generator=generator) < 0.6)


MODELS = {
    "worked": worked(),
    "dense": HMM.random(3, 3, 1, seed=0),
    "sparse": HMM.random_sparse(4, 3, 1, seed=1),
    "zeros": essential.random_with_zeros(4, 3, seed=2),
    "more states than tokens": essential.random_with_zeros(5, 3, seed=3),
}
each_model = pytest.mark.parametrize("hmm", MODELS.values(), ids=MODELS.keys())


# ---------------------------------------------------------------- Lemma B.1


def test_worked_fake_token():
    """u = (1, 0, ½), x = (0): P[H_1] = (3/8, 1/8, ½). Position 2 given z̃ and X_3 = 0:
    P[z̃, H_2] = (3/8 · ½ + ¼ · 1, 3/8 · ½, 0) = (7/16, 3/16, 0); a state is followed by token 0
    with probability ½, ½, 1; so τ_2 = (7/32, 3/32, 0) and G_2 = (7/10, 3/10)."""
    hmm, prompt, tokens = worked(), f64([1.0, 0.0, 0.5]), torch.tensor([[0]])
    gap = torch.tensor([[1, 0]])  # any token stands for the masked one
    torch.testing.assert_close(prompts.prompt_and_state(hmm, prompt), f64([7 / 16, 3 / 16, 0]))
    found = prompts.messages(hmm, prompt, gap)
    torch.testing.assert_close(found.state[0, 1] * found.log_mass[0, 1].exp(), f64([7, 3, 0]) / 32)
    wanted = f64([[0.7, 0.3]])
    torch.testing.assert_close(prompts.masked_second(hmm, prompt, tokens), wanted)
    for truth in (
        prompts.left_out(hmm, prompt, gap, [2]),
        prompts.LeftOut(*(x[:, 1:2] for x in prompts.left_out_by_paths(hmm, prompt, gap))),
    ):
        assert truth.log_mass.item() == pytest.approx(math.log(10 / 32))
        torch.testing.assert_close(truth.state[0, 0], f64([0.7, 0.3, 0.0]))
        torch.testing.assert_close(truth.token[0, 0], f64([0.7, 0.3, 0.0]))


def modified_table(hmm, prompt, length):
    """The law of X̂ as a table, from the definition: no HMM code but its parameters."""
    symbols, states = hmm.vocab_size + 1, hmm.states
    first = hmm.initial @ hmm.transition
    probs = []
    for string in itertools.product(range(symbols), repeat=length):
        total = 0.0
        for path in itertools.product(range(states), repeat=length):
            term = float(first[path[0]])
            for before, after in itertools.pairwise(path):
                term *= float(hmm.transition[before, after])
            for t, (state, symbol) in enumerate(zip(path, string, strict=True)):
                u = float(prompt[state]) if t == 0 else 0.0
                fake = symbol == hmm.vocab_size
                term *= u if fake else (1 - u) * float(hmm.emission[state, symbol])
            total += term
        probs.append(total)
    return Table(symbols, length, f64(probs).log())


def test_the_fake_token_hmm_is_the_modified_model():
    for hmm in (worked(), essential.random_with_zeros(3, 2, seed=4)):
        prompt = random_prompt(3, seed=1)
        table = modified_table(hmm, prompt, 3)
        fake = prompts.fake_token_hmm(hmm, prompt, 3)
        torch.testing.assert_close(fake.log_prob(table.sequences), table.log_probs)
        tokens = all_sequences(hmm.vocab_size, 2)
        outputs = prompts.model(hmm, prompt, tokens)
        for string, output in zip(tokens, outputs, strict=True):
            shown = torch.cat([torch.tensor([hmm.vocab_size]), string])
            for i in (1, 2):  # beyond the prompt, G is the law of the next token of X̂
                completed = shown.repeat(table.vocab_size, 1)
                completed[:, i] = torch.arange(table.vocab_size)
                weights = table.log_prob(completed).exp()
                wanted = weights / weights.sum() if weights.sum() > 0 else 0 * weights
                torch.testing.assert_close(output[i], wanted[:-1])


@each_model
@pytest.mark.parametrize("prompt", ["inside", "ones", "zero", "first"])
def test_a_prompt_is_a_fake_token(hmm, prompt):
    prompt = {
        "inside": random_prompt(hmm.states, 5),
        "ones": torch.ones(hmm.states).double(),
        "zero": torch.zeros(hmm.states).double(),
        "first": torch.eye(hmm.states).double()[0],
    }[prompt]
    tokens = all_sequences(hmm.vocab_size, 3)
    found, outputs = prompts.messages(hmm, prompt, tokens), prompts.model(hmm, prompt, tokens)
    by_paths = prompts.left_out_by_paths(hmm, prompt, tokens)
    by_hmm = prompts.left_out(hmm, prompt, tokens, [1, 2, 3, 4])
    for truth in (by_paths, by_hmm):
        torch.testing.assert_close(found.log_mass, truth.log_mass)
        torch.testing.assert_close(found.state, truth.state)
        torch.testing.assert_close(outputs, truth.state @ hmm.emission)
        torch.testing.assert_close(outputs[:, 1:], truth.token[:, 1:, :-1])
        assert (outputs[torch.isneginf(truth.log_mass)] == 0).all()
    torch.testing.assert_close(by_paths.token, by_hmm.token)
    if not prompt.any():
        assert (outputs[:, 1:] == 0).all()
        assert (outputs[:, 0].sum(-1) > 0.99).any()  # H_1 is not told of the prompt itself


# ---------------------------------------------------------------- Lemma B.2


def test_worked_disentangling():
    """As in `witness`: r_x = 10/3, D (P[z̃, H_2] ∘ P[H_0 | x]) = (4·3/16·1/5, 2·3/16·2/5, 0)."""
    sides = prompts.disentangled(worked(), f64([1.0, 0.0, 0.0]), torch.tensor([[0]]))
    torch.testing.assert_close(sides.scale, f64([10 / 3]))
    torch.testing.assert_close(sides.product, f64([[0.15, 0.15, 0.0]]))
    torch.testing.assert_close(sides.posterior, f64([[0.5, 0.5, 0.0]]))


@each_model
@pytest.mark.parametrize("seed", range(3))
def test_a_prompt_rescales_the_posterior(hmm, seed):
    tokens = all_sequences(hmm.vocab_size, 3)
    tokens = tokens[heads.in_support(hmm, tokens)]
    prompt = random_prompt(hmm.states, seed)
    sides = prompts.disentangled(hmm, prompt, tokens)
    torch.testing.assert_close(sides.posterior, sides.scale[:, None] * sides.product)
    assert (sides.scale[sides.supported] > 0).all()
    assert (sides.product[~sides.supported] == 0).all()
    gap = torch.nn.functional.pad(tokens, (1, 0))
    by_paths = prompts.left_out_by_paths(hmm, prompt, gap)
    torch.testing.assert_close(sides.posterior, by_paths.state[:, 1])


# ---------------------------------------------------------------- Theorem 3.6


def test_worked_witness():
    hmm, tokens = worked(), torch.tensor([[0], [1]])
    found = prompts.witness(hmm, f64([1.0, -1.0, 0.0]))
    assert found.chosen.tolist() == [True, False, False]
    assert found.essential.tolist() == [True, True, False]
    assert found.prompt.tolist() == [1.0, 0.0, 0.0]
    torch.testing.assert_close(found.head, f64([4 / 3, -8 / 3]))
    torch.testing.assert_close(prompts.scores(hmm, found, tokens)[0], f64(-2 / 3))


def test_worked_prompt_off_the_support():
    """μ = e_2 needs H* = {2}, so B = {1}. State 2 is always followed by token 0, so the prompt
    makes x = (1) impossible: G_2 = 0, and indeed P[H_0 = 2 | X_1 = 1] = 0."""
    hmm, task, tokens = worked(), f64([0.0, 0.0, 1.0]), torch.tensor([[1], [0]])
    found = prompts.witness(hmm, task)
    assert found.chosen.tolist() == [False, True, False]
    assert prompts.scores(hmm, found, tokens)[0] == 0.0
    assert (heads.state_before(hmm, tokens) @ task)[0] == 0.0
    assert prompts.scores(hmm, found, tokens)[1] > 0
    assert prompts.disentangled(hmm, found.prompt, tokens).supported.tolist() == [False, True]


@pytest.mark.parametrize("seed", some(4, range(12)))
@pytest.mark.parametrize(("states", "vocab"), [(4, 5), (7, 4), (12, 3)])
def test_prompt_and_head_compute_the_task(states, vocab, seed):
    """r_x is taken from the posterior: the two sides of Lemma B.2 sum to 1."""
    models = [HMM.random_sparse, essential.random_with_zeros]
    hmm = models[seed % 2](states, vocab, **({} if seed % 2 else {"length": 1}), seed=seed)
    task = essential.random_task(hmm, seed=seed)
    if task is None:
        assert essential.maximal_essential_set(hmm).sum() < 2
        return
    assert prompts.conditions(hmm, task).hold
    found = prompts.witness(hmm, task)
    assert found.essential[task != 0].all()
    tokens = all_sequences(vocab, 4)
    tokens = tokens[heads.in_support(hmm, tokens)]
    posterior, predicted = heads.state_before(hmm, tokens), prompts.scores(hmm, found, tokens)
    weight = prompts.prompt_and_state(hmm, found.prompt) / hmm.initial
    total = posterior @ weight
    wanted = torch.where(total > 0, (posterior @ task) / total, 0.0)
    assert (predicted - wanted).abs().max() < 1e-11 * found.head.abs().max()
    assert (predicted[total == 0] == 0).all()
    assert ((posterior @ task)[total == 0] == 0).all()


def test_a_task_that_asks_nothing_needs_no_prompt():
    found = prompts.witness(worked(), f64([0.0, 0.0, 0.0]))
    assert not found.chosen.any()
    assert (prompts.scores(worked(), found, torch.tensor([[0], [1]])) == 0).all()
    assert prompts.conditions(worked(), f64([0.0, 0.0, 0.0])).conditions[0].margin == math.inf


def test_long_strings_keep_their_sign():
    hmm = essential.random_with_zeros(40, 10, seed=0, successors=3)
    task = essential.random_task(hmm, seed=0)
    assert task is not None
    found = prompts.witness(hmm, task)
    tokens = hmm.with_length(128).sample(200, TorchRng(0))
    score, predicted = heads.state_before(hmm, tokens) @ task, prompts.scores(hmm, found, tokens)
    assert ((score >= 0) == (predicted >= 0)).all()


def test_what_fails_is_named():
    hmm = worked()
    with pytest.raises(ValueError, match="relaxed non-degeneracy"):
        prompts.witness(hmm, f64([1.0, 1.0, 1.0]))
    certain = replace(hmm, initial=f64([0.5, 0.5, 0.0]))
    with pytest.raises(ValueError, match="full support"):
        prompts.witness(certain, f64([1.0, -1.0, 0.0]))
    periodic = HMM(f64([0.5, 0.5]), f64([[0.0, 1.0], [1.0, 0.0]]), torch.eye(2).double(), 1)
    with pytest.raises(ValueError, match="ergodic"):
        prompts.witness(periodic, f64([1.0, -1.0]))
    failing = [c.name for c in prompts.conditions(periodic, f64([1.0, -1.0])).conditions]
    assert len(failing) == 3
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        prompts.model(hmm, f64([1.0, 2.0, 0.0]), torch.tensor([[0]]))
    with pytest.raises(ValueError, match="positions 1 to 2"):
        prompts.left_out(hmm, f64([1.0, 0.0, 0.0]), torch.tensor([[0]]), [3])


# ---------------------------------------------------------------- essential sets


def every_choice(hmm):
    """(B, H*, margin) for every subset B, straight from Assumption 3.5."""
    for bits in itertools.product([False, True], repeat=hmm.states):
        chosen = torch.tensor(bits)
        reached = torch.zeros(hmm.states, dtype=torch.bool)
        for h in range(hmm.states):
            if chosen[h]:
                reached |= hmm.transition[h] > 0
        columns = hmm.emission.T[:, reached]
        margin = heads.smallest_singular_value(columns) if reached.any() else math.inf
        yield chosen, reached, margin


def small_models(seed):
    states, vocab = 3 + seed % 5, 2 + seed % 4
    models = [
        HMM.random_sparse(states, vocab, 1, seed=seed),
        HMM.random_sparse(states, vocab, 1, seed=seed, successors=3),
        essential.random_with_zeros(states, vocab, seed=seed, emitted=1),
        essential.random_with_zeros(states, vocab, seed=seed),
    ]
    skewed = models[0].transition.clone()
    skewed[:, 0] += torch.arange(states) % 2  # one-step sets of different sizes
    return [*models, replace(models[0], transition=skewed / skewed.sum(1, keepdim=True))]


@pytest.mark.parametrize("seed", some(7, range(20)))
def test_searches_agree_with_all_subsets(seed):
    generator = torch.Generator().manual_seed(seed)
    for hmm in small_models(seed):
        good = [c for c in every_choice(hmm) if c[2] > heads.RANK_TOLERANCE]
        found = essential.maximal_essential_set(hmm)
        assert found.sum() == max(reached.sum() for _, reached, _ in good)
        assert any((found == reached).all() for _, reached, _ in good)
        for _ in range(4):
            task = torch.randn(hmm.states, generator=generator, dtype=torch.float64)
            task = task * (torch.rand(hmm.states, generator=generator) < 0.4)
            serving = [c for c in good if c[1][task != 0].all()]
            choice = essential.smallest_choice(hmm, task)
            if choice is None:
                assert not serving
                continue
            fewest = min(int(chosen.sum()) for chosen, _, _ in serving)
            assert int(choice.sum()) == fewest
            best = max(m for chosen, _, m in serving if int(chosen.sum()) == fewest)
            reached = essential.essential_states(hmm, choice)
            assert essential.margin(hmm, reached) == pytest.approx(best)


def test_worked_choices():
    hmm = worked()
    assert essential.smallest_choice(hmm, f64([1, -1, 0])).tolist() == [True, False, False]
    assert essential.smallest_choice(hmm, f64([1, 0, 1])).tolist() == [False, True, True]
    assert essential.smallest_choice(hmm, f64([1, 1, 1])) is None
    assert essential.maximal_essential_set(hmm).sum() == 2


def test_searches_stop_at_the_limit():
    hmm = HMM.random_sparse(40, 10, 1, seed=0)
    with pytest.raises(ValueError, match="visited 3 nodes"):
        essential.maximal_essential_set(hmm, node_limit=3)
    task = essential.maximal_essential_set(hmm).double()
    with pytest.raises(ValueError, match="smallest set B"):
        essential.smallest_choice(hmm, task, node_limit=3)


# ---------------------------------------------------------------- the converse


@pytest.mark.parametrize("seed", range(4))
def test_dependent_columns_defeat_every_head(seed):
    mixed = HMM.random(4, 5, 1, seed=seed)
    emission = mixed.emission.clone()
    emission[3] = (emission[0] + emission[1]) / 2
    wide = HMM.random(9, 3, 1, seed=seed)
    for hmm, inputs in ((wide, 4), (replace(mixed, emission=emission), 4)):
        found = heads.defeating_task(hmm, all_sequences(hmm.vocab_size, 3))
        assert found is not None
        assert len(found.inputs) <= inputs
        features = heads.masked_first(hmm, found.inputs)
        score = heads.state_before(hmm, found.inputs) @ found.task
        assert (score * found.weights.sign() > 1e-9).all()
        assert (found.weights @ features).abs().max() < 1e-12
        assert found.weights.abs().sum().item() == pytest.approx(2.0)
        assert not heads.linearly_separable(features, score >= 0, margin=1e-7)


def test_twins_are_found():
    hmm, _ = heads.twin_states(3)
    found = heads.defeating_task(hmm, all_sequences(4, 1))
    assert found is not None
    assert sorted(found.inputs.tolist()) == [[1], [2]]
    assert found.weights.abs().tolist() == pytest.approx([1.0, 1.0])
    features = heads.masked_first(hmm, found.inputs)
    torch.testing.assert_close(features[0], features[1], rtol=0, atol=1e-15)
    score = heads.state_before(hmm, found.inputs) @ found.task
    assert score.min() < 0 < score.max()


def test_full_rank_is_never_defeated():
    assert heads.defeating_task(HMM.random(4, 4, 1, seed=0), all_sequences(4, 3)) is None
    wide = HMM.random(9, 3, 1, seed=0)  # two strings cannot show what W loses
    assert heads.defeating_task(wide, torch.tensor([[0, 0], [1, 1]])) is None


def test_the_least_hinge_loss_by_hand():
    """Points (1, 0) and (1, 1)/√2 labelled +, (0, 1) labelled -: b = (1 + √2, -1) has loss 0."""
    points, labels = f64([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), torch.tensor([True, True, False])
    head = heads.least_hinge_head(points, labels)
    assert ((points @ head >= 0) == labels).all()
    mixed = torch.tensor([True, False, True])  # (1, 1) lies between the two
    assert ((points @ heads.least_hinge_head(points, mixed) >= 0) == mixed).sum() == 2


# ---------------------------------------------------------------- the judges


def held(id_):
    """(judge, the row on which it holds) of a claim."""
    (claim,) = [claim for claim in judges.CLAIMS if claim.id == id_]
    (row,) = claim.held_by
    return lambda *rows: claim.judge(Rows(rows)), row


def test_the_judge_asks_for_wide_models_and_for_prompts_off_the_support():
    judge, row = held("wei.thm-3.6")
    assert judge(row).outcome is Status.HOLDS
    for change in ({"vocab": 12}, {"off_support": 0}, {"inputs": 50}, {"conditions_hold": False}):
        assert judge(replace(row, **change)).outcome is Status.UNDECIDED, change
    assert judge(row, replace(row, states=3, inputs=50)).outcome is Status.HOLDS
    for id_ in ("wei.lem-B.1", "wei.lem-B.2"):
        judge, row = held(id_)
        assert judge(row).outcome is Status.HOLDS
        for change in ({"off_support": 0}, {"supported": 5}):
            assert judge(replace(row, **change)).outcome is Status.UNDECIDED, change


def test_what_a_head_alone_does_decides_nothing():
    judge, row = held("wei.thm-3.6")
    alone = replace(row, head_alone_works=True, head_alone_wrong_share=0.0)
    assert judge(alone).outcome is Status.HOLDS
    assert [check.value for check in judge(row, alone).checks if check.outcome is None] == [2, 1]


def test_a_prompt_without_any_string_has_no_scale():
    """Neither a refutation nor evidence."""
    judge, row = held("wei.lem-B.2")
    empty = replace(row, smallest_scale=None, supported=0)
    assert judge(row, empty).outcome is Status.HOLDS
    assert judge(empty).outcome is Status.UNDECIDED


def test_sizes_that_cannot_be_are_explained():
    for changes, sentence in (
        ({"narrow": (1, 3)}, "narrow must be at least 2"),
        ({"narrow": (3, 12)}, "narrow must be at most and wide above vocab = 10"),
        ({"wide": (10,)}, "narrow must be at most and wide above vocab = 10"),
    ):
        with pytest.raises(UserError, match=sentence):
            exact_prompts.units(exact_prompts.ExactPrompts(**changes))


def test_the_converse_asks_for_both_kinds_of_evidence():
    judge = exact_heads.judge_needs_rank
    twins, defeat = exact_heads._TWINS, exact_heads._DEFEAT
    assert judge(Rows([twins, defeat])).outcome is Status.HOLDS
    assert judge(Rows([twins])).outcome is Status.UNDECIDED
    assert judge(Rows([defeat])).outcome is Status.UNDECIDED
