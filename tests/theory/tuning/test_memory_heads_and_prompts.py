"""Theorems 4.3, 4.6 and C.6: by hand, against enumeration of memories and paths, and refusals."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.grids import pairs
from tests.support.refusals import refused

from triptych.core.errors import UserError
from triptych.core.estimates import Status
from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.lab.running.workbench import WorkBench
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.studies.api.study import Rows
from triptych.studies.tuning.exact_memory import judge as judges
from triptych.studies.tuning.exact_memory import study as exact_memory
from triptych.theory.tuning import heads, memory_heads, memory_prompts

pytestmark = pytest.mark.numerical


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def bools(*values):
    return torch.tensor(values, dtype=torch.bool)


# ------------------------------------------------------------------ by hand


def worked():
    """One cell. Syntax 0 emits (¾, ¼) or (¼, ¾) by the memory, syntax 1 the token 2, after which
    comes syntax 0. π = (2/3, 1/3) is stationary."""
    emission = f64([[[[0.75, 0.25, 0], [0, 0, 1]]], [[[0.25, 0.75, 0], [0, 0, 1]]]])
    transition = f64([[0.5, 0.5], [1.0, 0.0]])
    return MemoryHMM(f64([0.5, 0.5]), f64([2 / 3, 1 / 3]), transition, emission, 2)


def test_worked_head():
    """V̄ is the axis of token 2 and W* = [[¾, ¼], [¼, ¾]] next to it, with singular values 1 and ½
    and inverse [[3/2, -½], [-½, 3/2]]. On x = (2, 0) the second position is certain:
    G_2 = (½, ½, 0), Θ(2) G_2 = (½, ½), times e(0) = (¾, ¼), with μ = (1, -1): ¼ = r · ½."""
    model, task = worked(), f64([1.0, -1.0])
    syntax = memory_heads.recoverable(model, 0)
    assert syntax.tolist() == [True, False]
    assert memory_heads.margin(model, 0, syntax) == pytest.approx(0.5)
    assert memory_heads.margin(model, 0, bools(False, True)) == pytest.approx(0.0, abs=1e-15)
    maps = memory_heads.recoverers(model, 0, syntax)
    torch.testing.assert_close(maps.joint[:, 0], f64([[1.5, -0.5, 0], [-0.5, 1.5, 0]]))
    assert (maps.joint[:, 1] == 0).all()
    torch.testing.assert_close(maps.hidden, f64([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    head = memory_heads.witness(model, 0, task, 2)
    tokens = torch.tensor([[2, 0]])
    probs = memory_heads.masked_probs(model, tokens)
    torch.testing.assert_close(probs[0, 1], f64([0.5, 0.5, 0.0]))
    # Position 1: P(H_1 = 0 | X_2 = 0) = (2/3·½) / (2/3·½ + 1/3) = ½.
    torch.testing.assert_close(head.scores(probs).detach(), f64([[0.5, 1.0]]))
    torch.testing.assert_close(memory_heads.scores(model, head, tokens), f64([0.25]))
    torch.testing.assert_close(memory_heads.label_scores(model, tokens, 0, task), f64([0.5]))
    assert memory_heads.recoverable_positions(model, tokens, 0, syntax).tolist() == [[False, True]]
    impossible = torch.tensor([[2, 2], [0, 0]])
    assert memory_heads.supports(model, impossible).possible.tolist() == [False, True]
    assert not memory_heads.recoverable_inputs(model, impossible, 0, syntax).any()


def three_values(outside):
    """The worked model with a third value, for which syntax 0 emits the law `outside`."""
    model = worked()
    third = torch.stack([f64(outside), f64([0.0, 0.0, 1.0])])[None, None]
    emission = torch.cat([model.emission, third])
    return replace(model, memory=f64([0.25, 0.25, 0.5]), emission=emission)


def test_worked_prompt():
    """The third law (½, ½, 0) is the mean of the others, so Theorem 4.3 has nothing to say. With
    μ = (1, -1, 0) the prompt leaves the worked model: value ¼ on x = (2, 0), and the label's
    score is P(0|x) - P(1|x) = (3 - 1) / (3 + 1 + 4) = ¼, so r = ½ / (½)."""
    model, task = three_values([0.5, 0.5, 0.0]), f64([1.0, -1.0, 0.0])
    assert not memory_heads.recoverable(model, 0).any()
    with pytest.raises(ValueError, match=r"Theorem 4.3 does not apply.*Assumption 4.2"):
        memory_heads.witness(model, 0, task, 2)
    found = memory_prompts.witness(model, 0, task, 2)
    assert found.prompt.tolist() == [1, 1, 1, 1, 0, 0]
    tokens = torch.tensor([[2, 0]])
    torch.testing.assert_close(memory_prompts.scores(model, found, tokens), f64([0.25]))
    torch.testing.assert_close(memory_heads.label_scores(model, tokens, 0, task), f64([0.25]))


def test_the_prompt_can_settle_what_was_open():
    """With the third value syntax 0 can emit token 2 as well. Then (2, 0) has no recoverable
    position, but given the prompt the second one is: Î is empty, I is not, the label is right.
    If the third value never occurs, nothing was open."""
    model, task = three_values([0.25, 0.25, 0.5]), f64([1.0, -1.0, 0.0])
    found = memory_prompts.witness(model, 0, task, 2)
    tokens = torch.tensor([[2, 0]])
    assert not memory_heads.recoverable_inputs(model, tokens, 0, found.syntax).any()
    never = replace(model, memory=f64([0.5, 0.5, 0.0]))
    assert memory_heads.recoverable_inputs(never, tokens, 0, found.syntax).all()
    given = memory_prompts.supports(model, tokens, 0, task)
    attended = memory_heads.concentrated(model, given.hidden, 0, found.syntax)
    assert attended.tolist() == [[False, True]]
    torch.testing.assert_close(memory_prompts.scores(model, found, tokens), f64([0.25]))


def misleading_prompt():
    """Θ(1) is (6, -4, 1, 0) for H*: 1 on both recoverable columns, 0 on V̄, 6 on a column of the
    value that the task ignores. At the prompt's own position that value is not ruled out."""
    content = f64([[0.5, 0.5, 0, 0], [0.3, 0.3, 0.4, 0], [1, 0, 0, 0]])
    filler = f64([[0.4, 0.6, 0, 0], [0.4, 0.6, 0, 0], [1, 0, 0, 0]])
    marker = f64([[0, 0, 0, 1]] * 3)
    emission = torch.stack([content, filler, marker], 1)[:, None]
    third = 1 / 3
    transition = f64([[third, third, third], [third, third, third], [1, 0, 0]])
    initial = f64([0.5, 0.25, 0.25])
    memory = f64([0.1, 0.1, 0.8])
    return MemoryHMM(memory, initial, transition, emission, 2), f64([1.0, -3.0, 0.0])


def test_the_published_offset_is_too_small():
    model, task = misleading_prompt()
    assert memory_prompts.conditions(model, 0, task).hold
    found = memory_prompts.witness(model, 0, task, 2)
    assert found.syntax.tolist() == [True, False, False]
    offset = memory_prompts.prompt_offset(model, 0, found.syntax, bools(True, True, False))
    assert offset == pytest.approx(-8.0)
    tokens = torch.tensor([[3, 0]])
    # P(M | x) ∝ (0.1·½, 0.1·0.3, 0.8·1): the score has the sign of 0.05 - 0.09.
    truth = memory_heads.label_scores(model, tokens, 0, task)
    torch.testing.assert_close(truth, f64([-0.04 / 0.88]))
    assert memory_prompts.scores(model, found, tokens).item() < 0
    probs = memory_prompts.masked_probs(model, found.prompt, tokens)
    assert found.head.attention(probs)[0, 0] == 0
    with torch.no_grad():
        found.head.position[0, -1] = memory_prompts.PUBLISHED_OFFSET
    assert found.head.attention(probs)[0, 0] == 1
    assert memory_prompts.scores(model, found, tokens).item() > 0


# ------------------------------------------------------------------ Assumptions 4.2 and C.5


def admissible(model, cell, chosen, values):
    """rank [W* V̄] = |W*| + rank V̄, with the columns collected one by one."""
    wanted, others = [], []
    states = itertools.product(range(model.values), range(model.cells), range(model.syntax))
    for m, j, s in states:
        column = model.emission[m, j, s].numpy()
        if j != cell:
            others.append(column)
        elif values[m]:
            (wanted if s in chosen else others).append(column)
    if not wanted:
        return True
    rank = np.linalg.matrix_rank(np.array(others), tol=1e-9) if others else 0
    whole = np.linalg.matrix_rank(np.array(wanted + others), tol=1e-9)
    return whole == len(wanted) + rank


def syntaxes():
    """Models with dependent, overlapping and independent syntax states, and a set of values."""
    for seed, cells, prompted in itertools.product(range(3), (1, 2), (False, True)):
        case = memory_prompts.random_case(
            cells, 2, contents=2, prompted=prompted, sparse_memory=False, seed=seed
        )
        yield case.model, case.cell, case.task != 0
        yield case.model, case.cell, torch.ones(case.model.values, dtype=torch.bool)
    free = MemoryHMM.random(2, 2, 3, 12, 3, seed=0)
    yield free, 1, bools(True, True)
    twins = free.emission.clone()
    twins[:, 1, 1] = twins[:, 1, 0]  # independent among themselves, not of each other
    yield replace(free, emission=twins), 1, bools(True, True)
    shared = free.emission.clone()
    shared[0, 0, 2] = 0.5 * (shared[0, 1, 1] + shared[1, 1, 1])  # another cell speaks alike
    yield replace(free, emission=shared), 1, bools(True, True)
    yield replace(free, emission=shared), 1, bools(True, False)
    shared = free.emission.clone()
    shared[1, 0, 2] = shared[0, 1, 1]  # a value outside M*, but of another cell
    yield replace(free, emission=shared), 1, bools(True, False)
    yield MemoryHMM.random(3, 1, 2, 4, 3, seed=1), 0, bools(True, True, False)


@pytest.mark.parametrize("which", range(len(list(syntaxes()))))
def test_the_largest_recoverable_set(which):
    """The admissible sets are closed downwards and under unions; the largest is returned."""
    model, cell, values = list(syntaxes())[which]
    everything = range(model.syntax)
    sets = [set(c) for k in range(model.syntax + 1) for c in itertools.combinations(everything, k)]
    good = [chosen for chosen in sets if admissible(model, cell, chosen, values)]
    for one, other in itertools.product(good, good):
        assert one | other in good
    assert all(part in good for whole in good for part in sets if part <= whole)
    found = memory_heads.recoverable(model, cell, values)
    assert set(found.nonzero()[:, 0].tolist()) == max(good, key=len)
    for chosen in sets[1:]:
        syntax = torch.tensor([s in chosen for s in everything])
        assert (memory_heads.margin(model, cell, syntax, values) > 1e-9) == (chosen in good)


def test_the_sets_are_not_all_alike():
    sizes = {int(memory_heads.recoverable(*case).sum()) for case in syntaxes()}
    assert {0, 1, 2, 3} <= sizes


# ------------------------------------------------------------------ enumeration


def weights(model, evidence, skip=None):
    """p(m, h-path, evidence) for all memories and paths: [assignments, paths], and the paths."""
    length = len(evidence)
    paths = all_sequences(len(model.initial), length)
    prior = model.initial[paths[:, 0]]
    for t in range(1, length):
        prior = prior * model.transition[paths[:, t - 1], paths[:, t]]
    whole = model.memory.reshape(-1)[:, None] * prior
    for t in range(length):
        if t != skip:
            whole = whole * evidence[t][:, paths[:, t]]
    return whole, paths


def token_evidence(model, tokens):
    """W(m_j, j, s, x) as [assignments, hidden], one per token, by loops."""
    found = []
    for x in tokens:
        rows = [
            [model.emission[m[j], j, s, x] for j in range(model.cells) for s in range(model.syntax)]
            for m in itertools.product(range(model.values), repeat=model.cells)
        ]
        found.append(f64(rows))
    return found


def cell_law(model, whole, cell):
    """Σ over all but the value of the cell: [values, ...]."""
    memories = list(itertools.product(range(model.values), repeat=model.cells))
    rows = [
        whole[[k for k, m in enumerate(memories) if m[cell] == v]].sum(0)
        for v in range(model.values)
    ]
    return torch.stack(rows)


def joint_law(model, whole, paths, t, cell):
    """p(m_j* = v, h_t = (j*, s), evidence): [values, syntax]; and p(h_t, evidence)."""
    by_value = cell_law(model, whole, cell)
    by_state = [by_value[:, paths[:, t] == h].sum(1) for h in range(len(model.initial))]
    joint = torch.stack(by_state, 1)
    return joint[:, cell * model.syntax : (cell + 1) * model.syntax], joint.sum(0)


CASES = [
    (1, 2, 1, False),
    (1, 3, 1, False),
    (2, 2, 1, False),
    (2, 2, 2, False),
    (3, 2, 1, False),
    (1, 2, 1, True),
    (1, 3, 2, True),
    (2, 2, 1, True),
    (2, 2, 2, True),
    (3, 2, 1, True),
]


def drawn(case, count):
    """Some strings of length 3 (2 for many states): all kinds of them."""
    size = 3 if len(case.model.initial) < 9 else 2
    every = all_sequences(case.model.vocab_size, size)
    every = every[memory_heads.supports(case.model, every).possible]
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))
    return every[order[:count]]


@pytest.mark.parametrize(("sizes", "sparse"), pairs(CASES, [True, False]))
def test_every_step_by_enumeration(sizes, sparse):
    """Claims C.3 and C.10, Lemma C.7, the attended set, the value with its factor, the label."""
    cells, values, contents, prompted = sizes
    case = memory_prompts.random_case(
        cells, values, contents=contents, prompted=prompted, sparse_memory=sparse, seed=cells
    )
    model, cell, task = case
    tokens = drawn(case, 12)
    first, keep = int(prompted), task != 0
    if prompted:
        prompt, head, syntax = memory_prompts.witness(model, cell, task, tokens.shape[1])
        probs = memory_prompts.masked_probs(model, prompt, tokens)
        answers = memory_prompts.scores(
            model, memory_prompts.MemoryPromptWitness(prompt, head, syntax), tokens
        )
        symbols = memory_prompts.symbols(model, tokens)
        possible = memory_prompts.supports(model, tokens, cell, task)
    else:
        syntax = memory_heads.recoverable(model, cell)
        head = memory_heads.witness(model, cell, task, tokens.shape[1])
        probs, symbols = memory_heads.masked_probs(model, tokens), tokens
        answers = memory_heads.scores(model, head, tokens)
        possible = memory_heads.supports(model, tokens)
    maps = memory_heads.recoverers(model, cell, syntax, keep if prompted else None)
    inside = memory_heads.recoverable_hidden(model, cell, syntax)
    truth = memory_heads.label_scores(model, tokens, cell, task)
    read = head.values(probs, symbols).detach()[..., 0]
    memories = itertools.product(range(model.values), repeat=cells)
    fake = f64([[float(keep[m[cell]])] * len(inside) for m in memories])
    compared = 0
    for b, row in enumerate(tokens.tolist()):
        shown = token_evidence(model, row)
        posterior = cell_law(model, weights(model, shown)[0], cell).sum(1)
        posterior = posterior / posterior.sum()
        torch.testing.assert_close(truth[b], posterior @ task)
        evidence = [fake, *shown] if prompted else shown
        chosen = []
        for i in range(first, len(evidence)):
            whole, paths = weights(model, evidence, skip=i)
            total = whole.sum()
            assert bool(total > 0) == bool(possible.hidden[b, i - first].any())
            if total == 0:
                assert (probs[b, i] == 0).all()
                continue
            joint, hidden = joint_law(model, whole / total, paths, i, cell)
            got = maps.joint @ probs[b, i]
            torch.testing.assert_close(got[:, syntax], joint[:, syntax], atol=1e-11, rtol=0)
            state = maps.hidden @ probs[b, i]
            torch.testing.assert_close(state[inside], hidden[inside], atol=1e-11, rtol=0)
            assert state.sum().item() == pytest.approx(1.0, abs=1e-11)
            assert possible.hidden[b, i - first].tolist() == (hidden > 0).tolist()
            seen = (weights(model, evidence)[0].sum() / total).item()  # P(X_i = x_i | the others)
            if not hidden[~inside].any():
                chosen.append(i)
                mass = posterior[keep].sum() if prompted else 1.0
                wanted = seen * (posterior @ task) / mass if mass > 0 else f64(0.0)
                torch.testing.assert_close(read[b, i], wanted, atol=1e-11, rtol=0)
        attended = head.attention(probs).detach()[b].nonzero()[:, 0].tolist()
        if chosen:
            assert attended == chosen
            assert answers[b].item() == pytest.approx(read[b, chosen].mean().item())
            if truth[b].abs() > 1e-9:
                assert (answers[b] >= 0) == (truth[b] >= 0)
                compared += 1
        if prompted and posterior[keep].sum() == 0:
            assert truth[b] == 0
            assert answers[b].item() == pytest.approx(0.0, abs=1e-13)
    assert compared > 0


def test_supports_do_not_round():
    """A state whose probability is 1e-2560 is possible; a float cannot say so."""
    emission = f64([[1.0 - 1e-20, 1e-20], [1.0, 0.0]]).reshape(1, 1, 2, 2)
    emission[0, 0, 1] = f64([0.5, 0.5])
    model = MemoryHMM(f64([1.0]), f64([0.5, 0.5]), torch.eye(2).double(), emission, 128)
    tokens = torch.ones(1, 128, dtype=torch.long)
    assert memory_heads.supports(model, tokens).hidden.all()
    hidden = torch.zeros_like(tokens).bool()
    assert model.posteriors(tokens, hidden).hidden[0, 5, 0, 0] == 0
    emission[0, 0, 0] = f64([1.0, 0.0])
    never = memory_heads.supports(replace(model, emission=emission), tokens)
    assert never.hidden[0].tolist() == [[False, True]] * 128
    assert never.possible.all()


def test_no_memory_is_left():
    model = worked()
    none = memory_heads.supports(model, torch.tensor([[0, 1]]), bools(False, False))
    assert not none.hidden.any()
    assert not none.possible.any()


@pytest.mark.parametrize("cells", [1, 2, 3])
def test_long_strings(cells):
    """Length 128, where the attended set comes from supports: value and label agree."""
    case = memory_prompts.random_case(
        cells, 2, contents=1, prompted=True, sparse_memory=cells > 1, seed=10 + cells
    )
    model, cell, task = case
    tokens = model.with_length(128).sample(40, TorchRng(cells))
    found = memory_prompts.witness(model, cell, task, 128)
    truth = memory_heads.label_scores(model, tokens, cell, task)
    answers = memory_prompts.scores(model, found, tokens)
    in_r = memory_heads.recoverable_inputs(model, tokens, cell, found.syntax)
    possible = memory_prompts.supports(model, tokens, cell, task).possible
    assert in_r.sum() > 20
    assert 0 < possible.sum() < 40
    clear = in_r & (truth.abs() > 1e-9)
    assert ((answers >= 0) == (truth >= 0))[clear].all()
    assert (truth[~possible] == 0).all()
    assert answers[~possible].abs().max() < 1e-12


# ------------------------------------------------------------------ pieces and refusals


def test_the_prompt_asks_for_the_right_cell():
    """Two cells of two values, one syntax state; μ on value 1 of cell 1: memories 01 and 11."""
    model = MemoryHMM.random(2, 2, 1, 8, 3, seed=0)
    u = memory_prompts.prompt(model, 1, f64([0.0, 2.0]))
    assert u.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert memory_prompts.relevant_memories(model, 0, f64([0.0, 2.0])).tolist() == [
        False,
        False,
        True,
        True,
    ]


def test_the_random_cases_are_what_they_say():
    for seed, cells, values in itertools.product(range(3), (1, 2, 3), (2, 3)):
        for prompted in (False, True):
            model, cell, task = memory_prompts.random_case(
                cells, values, contents=2, prompted=prompted, sparse_memory=True, seed=seed
            )
            assert memory_heads.conditions(model, cell).hold is not prompted
            assert int((task != 0).sum()) == values
            assert task.min() < 0 < task.max()
            if prompted:
                assert memory_prompts.conditions(model, cell, task).hold
                found = memory_heads.recoverable(model, cell, task != 0)
                assert found.tolist() == [True, True, False, False]


def failing(conditions):
    return [condition.name for condition in conditions.conditions if not condition.holds]


def test_conditions_name_what_fails():
    model, task = worked(), f64([1.0, -1.0])
    assert memory_heads.conditions(model, 0).hold
    assert memory_prompts.conditions(model, 0, task).hold
    moved = replace(model, initial=f64([0.5, 0.5]))
    assert memory_heads.conditions(moved, 0).hold
    assert failing(memory_prompts.conditions(moved, 0, task)) == ["stationarity (Assumption 4.4)"]
    residual = memory_prompts.conditions(moved, 0, task).conditions[-1].margin
    assert residual == pytest.approx(0.5)  # (½, ½) moves to (¾, ¼)
    with pytest.raises(ValueError, match="Theorem 4.6 does not apply .*stationarity"):
        memory_prompts.witness(moved, 0, task, 3)
    periodic = replace(model, transition=f64([[0.0, 1.0], [1.0, 0.0]]), initial=f64([0.5, 0.5]))
    assert failing(memory_heads.conditions(periodic, 0)) == ["ergodic chain (Assumption 3.2)"]
    sure = replace(model, initial=f64([1.0, 0.0]))
    assert failing(memory_heads.conditions(sure, 0)) == ["full support of H_0 (Assumption 3.2)"]
    alike = replace(model, emission=model.emission[:1].expand(2, -1, -1, -1))
    refused = failing(memory_prompts.conditions(alike, 0, task))
    assert refused == ["recoverable hidden states (Assumption 4.5)"]


@pytest.mark.usefixtures("unchecked_shapes")
def test_bad_input_is_explained():
    model = worked()
    with pytest.raises(ValueError, match=r"cell is 1; this memory has the cells 0..0"):
        memory_heads.recoverable(model, 1)
    with pytest.raises(ValueError, match="the task is 0 for every memory value"):
        memory_prompts.witness(model, 0, f64([0.0, 0.0]), 2)
    with refused("task"):
        memory_prompts.prompt(model, 0, f64([1.0, 0.0, 0.0]))
    with refused("hidden"):
        memory_heads.recoverable_inputs(model, torch.tensor([[7]]), 0, bools(True, False))
    with pytest.raises(ValueError, match="the input has 4 positions"):
        memory_heads.scores(
            model, memory_heads.witness(model, 0, f64([1.0, -1.0]), 3), torch.tensor([[2, 0, 0, 0]])
        )


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_model_with_one_assumption_broken_gets_no_witness(cells, prompted, seed):
    """And the refusal names the assumption."""
    case = memory_prompts.random_case(
        cells, 2, contents=1 + seed, prompted=prompted, sparse_memory=seed == 0, seed=seed
    )
    model, cell, task = case
    same = model.emission.clone()
    same[:, cell] = same[:1, cell]
    still = torch.eye(len(model.initial), dtype=torch.float64)
    broken = [
        (replace(model, emission=same), "recoverable hidden states"),
        (replace(model, transition=still), "ergodic chain"),
        (replace(model, initial=still[0]), "full support"),
    ]
    if prompted:
        not_stationary = replace(model, initial=0.5 * (model.initial + still[0]))
        broken.append((not_stationary, "stationarity"))
        assert not memory_heads.conditions(model, cell).hold
        with pytest.raises(ValueError, match="recoverable hidden states"):
            memory_heads.witness(model, cell, task, 3)
    build = memory_prompts.witness if prompted else memory_heads.witness
    for changed, named in broken:
        with pytest.raises(ValueError, match=named):
            build(changed, cell, task, 3)


# ------------------------------------------------------------------ the study's judges

CLAIMS = {claim.id: claim for claim in judges.CLAIMS}
each_claim = pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())


@each_claim
def test_a_judge_holds_only_with_the_evidence_it_asks_for(claim):
    (good,) = claim.held_by

    def outcome(*rows):
        return claim.verdict(Rows(rows)).outcome

    assert outcome(good) is Status.HOLDS
    thin = [
        {"positive": 10},
        {"positive": 90, "negative": 90},
        {"full_memory": True},
        {"conditions_hold": False},
    ]
    if claim.id != "wei.thm-4.3":
        thin += [{"off_support": 0}, {"larger_attention": 0}, {"head_available": True}]
    for change in thin:
        assert outcome(replace(good, **change)) is Status.UNDECIDED, change
    assert outcome(good, replace(good, value_error=math.nan)) is Status.UNDECIDED


@each_claim
def test_the_steps_of_the_proof_decide_nothing(claim):
    """The statement is judged; what its proof says about other things is shown too."""
    (good,) = claim.held_by
    steps = {"joint_error": 1.0, "state_error": 1.0, "attention_mismatches": 7}
    if claim.id != "wei.thm-4.3":
        steps |= {"prompt_attended": 7, "published_offset_wrong": 7}
    for name, value in steps.items():
        verdict = claim.verdict([replace(good, **{name: value})])
        assert verdict.outcome is Status.HOLDS, name
        assert value in [check.value for check in verdict.checks if check.outcome is None], name


def test_one_cell_is_no_evidence_for_several_but_can_refute_them():
    (one,), (several,) = CLAIMS["wei.thm-4.6"].held_by, CLAIMS["wei.thm-C.6"].held_by
    judge = CLAIMS["wei.thm-C.6"].verdict
    assert judge([one]).outcome is Status.UNDECIDED
    assert judge([several, replace(one, wrong_labels=1)]).outcome is Status.FAILS
    assert CLAIMS["wei.thm-4.6"].verdict([several]).outcome is Status.UNDECIDED
    assert CLAIMS["wei.thm-4.3"].verdict([one, several]).outcome is Status.UNDECIDED


def test_a_row_counts_what_the_theorem_speaks_of(tmp_path):
    unit = exact_memory.DrawPrompt(cells=1, values=3, enumerated=100, strings=5, seed=0)
    (row,) = exact_memory.run(unit, WorkBench(0, "cpu", tmp_path))
    case = memory_prompts.random_case(1, 3, contents=1, prompted=True, sparse_memory=True, seed=0)
    vocab = case.model.vocab_size
    short = all_sequences(vocab, int(math.log(100, vocab)))
    assert row.inputs == int(memory_heads.supports(case.model, short).possible.sum()) + 5
    counted = row.positive + row.negative + row.off_support + row.too_close_to_call
    assert counted == row.in_recoverable
    assert row.margin == memory_prompts.conditions(*case).conditions[0].margin


def test_of_errors_the_largest_counts_and_counts_add_up():
    """A nan must not vanish among them."""
    small = exact_memory._Errors(1e-15, 1e-14, 0.0, 0.0)
    large = exact_memory._Errors(0.0, 1.0, 2.0, 3.0)
    counts = exact_memory._Counts(*range(13))
    errors, total = exact_memory._combined([(small, counts), (large, counts)])
    assert errors == (1e-15, 1, 2, 3)
    assert total == tuple(2 * number for number in range(13))
    nan = small._replace(value_error=math.nan)
    assert math.isnan(exact_memory._combined([(nan, counts), (large, counts)])[0].value_error)


@pytest.mark.parametrize("device", ["mps", "meta", "cpu:3", ""])
def test_random_cases_are_where_we_compute(device):
    def case(device):
        return memory_prompts.random_case(
            2, 2, contents=1, prompted=False, sparse_memory=False, seed=0, device=device
        )

    for make in (lambda device: heads.twin_states(0, device=device), case):
        make("cpu")
        with pytest.raises(UserError, match="device"):
            make(device)
