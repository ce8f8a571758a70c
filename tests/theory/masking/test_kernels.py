"""Exact kernels: against the enumerated samplers, by hand, and by other ways to the same law."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from triptych.core.enumeration import exact_law, exact_transition_matrix
from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Masked
from triptych.core.table import Table, all_sequences
from triptych.core.validation import ImpossibleEvidence
from triptych.inference.chains import gibbs, parallel
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.theory.masking import consistency, kernels
from triptych.theory.masking.kernels import Conditionals

pytestmark = pytest.mark.numerical


class Tilted:
    """Two bits: x_1 is fair given x_0, and x_0 equals x_1 with 0.8; no joint law has both."""

    vocab_size = 2

    def masked_log_probs(self, tokens, hidden):
        probs = torch.full((len(tokens), 2, 2), 0.5, dtype=torch.float64)
        copies = ~hidden[:, 1]
        same = 0.2 + 0.6 * (tokens[:, 1] == 0).double()
        probs[copies, 0] = torch.stack([same, 1 - same], -1)[copies]
        shown = torch.nn.functional.one_hot(tokens.masked_fill(hidden, 0), 2).double()
        return torch.where(hidden[..., None], probs, shown).log()


class Arbitrary:
    """Conditionals without a joint law: a softmax of numbers hashed from what is shown."""

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size

    def masked_log_probs(self, tokens, hidden):
        seen = tokens.masked_fill(hidden, self.vocab_size).double()
        code = (seen * torch.tensor([1.3, 2.9, 4.1, 5.7])[: tokens.shape[1]].double()).sum(-1)
        place = torch.arange(tokens.shape[1] * self.vocab_size).double()
        logits = 1.5 * torch.sin(code[:, None] + 1.7 * place).reshape(*tokens.shape, -1)
        shown = torch.nn.functional.one_hot(tokens.masked_fill(hidden, 0), self.vocab_size)
        return torch.where(hidden[..., None], logits.log_softmax(-1), shown.double().log())


def network(length=3, vocab=2):
    shape = Shape(vocab + 1, length, width=8, layers=1, heads=2, causal=False)
    net = Transformer(shape, seed=0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(4.0)  # answers that depend on what is shown
    return MaskedLM(net.eval())


def looking(length):
    blocks = [[i, (i + 1) % length] for i in range(length)]
    weights = torch.tensor([0.3, 1.0, 2.0])[:length].double()
    return MaskLaw.looking(length, blocks, lambda x: x.double() * weights)


def enumerated(vocab, length, step):
    states = [tuple(x) for x in all_sequences(vocab, length).tolist()]
    return exact_transition_matrix(
        states, lambda state, rng: tuple(step(torch.tensor([state]), rng)[0].tolist())
    )


def close(found, wanted, atol=1e-12):
    torch.testing.assert_close(
        found, torch.as_tensor(wanted, dtype=torch.float64), atol=atol, rtol=0
    )


ORACLES = {
    "arbitrary": (Arbitrary(2), 3),
    "three letters": (Arbitrary(3), 2),
}
each_oracle = pytest.mark.parametrize(("oracle", "length"), ORACLES.values(), ids=ORACLES.keys())


# ------------------------------------------------------------------ against the samplers


@each_oracle
def test_gibbs_equals_the_sampler(oracle, length):
    found = Conditionals.of(oracle, length)
    ways = [
        (MaskLaw.of_size(length, 2), "random"),
        (MaskLaw.independent(length, 0.4), "left to right"),
    ]
    for masks, order in ways:
        wanted = enumerated(
            oracle.vocab_size,
            length,
            lambda x, rng, m=masks, o=order: gibbs.step(oracle, x, m, rng, draw="in turn", order=o),
        )
        close(kernels.gibbs_matrix(found, masks, order), wanted)
    adaptive = looking(length)
    wanted = enumerated(
        oracle.vocab_size, length, lambda x, rng: gibbs.step(oracle, x, adaptive, rng)
    )
    close(kernels.gibbs_matrix(found, adaptive), wanted)


@each_oracle
def test_parallel_chains_equal_the_samplers(oracle, length):
    found, vocab = Conditionals.of(oracle, length), oracle.vocab_size
    wanted = enumerated(vocab, length, lambda x, rng: parallel.independent_step(oracle, x, rng))
    close(kernels.independent_matrix(found), wanted)
    for masks in (MaskLaw.of_size(length, 2), looking(length)):
        wanted = enumerated(
            vocab, length, lambda x, rng, m=masks: parallel.block_step(oracle, x, m, rng)
        )
        filled = kernels.filled_at_once(found)
        close(kernels.block_matrix(found, masks, filled), wanted)


@each_oracle
def test_unmasking_equals_the_sampler(oracle, length):
    found = Conditionals.of(oracle, length)

    def one(rng, schedule, order):
        tokens, hidden = parallel.blank(1, length)
        filled = parallel.unmask(oracle, tokens, hidden, rng, schedule=schedule, order=order)
        return tuple(filled[0].tolist())

    for order in ("random", "left to right", "confident position", "confident token"):
        for rounds in range(1, length + 1):
            schedule = parallel.even_schedule(length, rounds)
            law = exact_law(lambda rng, s=schedule, o=order: one(rng, s, o)).probs
            wanted = [law.get(x, 0.0) for x in product(range(oracle.vocab_size), repeat=length)]
            close(kernels.unmask_law(found, schedule, order), wanted)


def test_a_network_is_tabulated_as_it_answers():
    lm = network()
    found = Conditionals.of(lm, 3)
    assert isinstance(found, Masked)
    tokens = all_sequences(2, 3)
    hidden = torch.tensor([True, False, True]).expand_as(tokens)
    # float32 sums of other batch shapes differ in the last digits
    close(found.masked_log_probs(tokens, hidden), lm.masked_log_probs(tokens, hidden), atol=1e-5)
    masks = MaskLaw.of_size(3, 2)
    wanted = enumerated(2, 3, lambda x, rng: gibbs.step(found, x, masks, rng, order="random"))
    close(kernels.gibbs_matrix(found, masks, "random"), wanted)
    law = kernels.stationary_law(wanted)
    assert kernels.irreversibility(wanted, law) > 1e-4  # a network has no joint law
    wanted = enumerated(2, 3, lambda x, rng: parallel.independent_step(found, x, rng))
    close(kernels.independent_matrix(found), wanted, atol=1e-6)  # rows sum to 1 in float32 only


def test_filling_in_turn_is_unmasking_one_by_one():
    found = Conditionals.of(Arbitrary(3), 3)
    for order in ("left to right", "random"):
        filled = kernels.filled_in_turn(found, order)
        close(filled[-1], kernels.unmask_law(found, [1, 1, 1], order))
        close(filled.sum(-1), torch.ones(64))
    close(kernels.filled_at_once(found).sum(-1), torch.ones(64))


# ------------------------------------------------------------------ the truth keeps itself


def test_the_truth_is_kept_by_gibbs_and_by_nothing_parallel():
    hmm = HMM.random(3, 3, 4, seed=1)
    exact, p = Conditionals.of(hmm, 4), Table.of(hmm).log_probs.exp()
    for masks in (MaskLaw.of_size(4, 1), MaskLaw.of_size(4, 3), MaskLaw.spans(4, 2)):
        matrix = kernels.gibbs_matrix(exact, masks, "random")
        close(p @ matrix, p)
        close(kernels.stationary_law(matrix), p, atol=1e-11)
        assert kernels.irreversibility(matrix, p) < 1e-12
        assert kernels.irreversibility(matrix, torch.full_like(p, 1 / 81)) > 0.01
    assert consistency.inconsistency(exact, p).worst < 1e-12
    for rounds in (1, 2, 3):
        law = kernels.unmask_law(exact, parallel.even_schedule(4, rounds))
        assert 0.001 < kernels.distances(law[None], p)[0] < 0.5
    for order in ("random", "left to right", "confident position"):
        close(kernels.unmask_law(exact, [1] * 4, order), p)
    assert kernels.distances(kernels.unmask_law(exact, [1] * 4, "confident token")[None], p) > 0.01


def test_the_law_of_parallel_spins_in_closed_form():
    model = Ising.random(5, scale=0.6, seed=2)
    matrix = kernels.independent_matrix(Conditionals.of(model, 5))
    spins = (2 * all_sequences(2, 5) - 1).double()
    theta = model.field + spins @ model.coupling
    wanted = (spins @ model.field + theta.cosh().log().sum(-1)).softmax(0)
    law = kernels.stationary_law(matrix)
    close(law, wanted, atol=1e-11)
    assert kernels.irreversibility(matrix, law) < 1e-12
    assert kernels.distances(law[None], Table.of(model).log_probs.exp())[0] > 0.1


# ------------------------------------------------------------------ by hand


def test_two_inconsistent_bits_by_hand():
    """1-Gibbs: after x_1 is drawn the bits agree with ½, after x_0 with 0.8; 0.65 in the long run.

    The flow on each of four edges differs by 0.0375 between the two directions, so ½ · 8 · 0.0375.
    """
    found, uniform = Conditionals.of(Tilted(), 2), torch.full((4,), 0.25, dtype=torch.float64)
    matrix = kernels.gibbs_matrix(found, MaskLaw.of_size(2, 1))
    law = kernels.stationary_law(matrix)
    close(law, [0.325, 0.175, 0.175, 0.325])
    assert kernels.irreversibility(matrix, law) == pytest.approx(0.15)
    close(kernels.filled_in_turn(found)[-1], [0.25] * 4)
    close(kernels.filled_in_turn(found, "random")[-1], [0.325, 0.175, 0.175, 0.325])
    close(kernels.filled_at_once(found)[-1], [0.25] * 4)
    assert consistency.inconsistency(found, uniform) == pytest.approx((0.3, 0.3))


def test_inconsistency_is_weighed_by_the_truth():
    """Three bits: the pair (0, 1) is Tilted when x_2 = 0 and free when x_2 = 1; x_2 is free."""

    class Sometimes:
        vocab_size = 2

        def masked_log_probs(self, tokens, hidden):
            probs = torch.full((len(tokens), 3, 2), 0.5, dtype=torch.float64)
            copies = ~hidden[:, 1] & ~hidden[:, 2] & (tokens[:, 2] == 0)
            same = 0.2 + 0.6 * (tokens[:, 1] == 0).double()
            probs[copies, 0] = torch.stack([same, 1 - same], -1)[copies]
            shown = torch.nn.functional.one_hot(tokens.masked_fill(hidden, 0), 2).double()
            return torch.where(hidden[..., None], probs, shown).log()

    truth = torch.tensor([0.2, 0.05, 0.0, 0.25, 0.3, 0.0, 0.1, 0.1], dtype=torch.float64)
    found = consistency.inconsistency(Conditionals.of(Sometimes(), 3), truth)
    # pair (0, 1): 0.3 where x_2 = 0, which has 0.6. pair (0, 2): x_2 fair, then x_0 given x_1, x_2;
    # or x_0 fair given x_1 alone, then x_2: they differ by ½ · ½ · 0.6 = 0.15. pair (1, 2): 0
    # unless x_0 is asked for, which it is not.
    assert found.mean == pytest.approx((0.6 * 0.3 + 0.15 + 0.0) / 3)
    assert found.worst == pytest.approx(0.3)


def test_conditional_error_by_hand():
    """A bit that is surely 0 against ½: KL log 2; elsewhere log 2 minus the mean entropy."""

    class Half:
        vocab_size = 2

        def masked_log_probs(self, tokens, hidden):
            shown = torch.nn.functional.one_hot(tokens.masked_fill(hidden, 0), 2).double()
            return torch.where(hidden[..., None], torch.full_like(shown, 0.5), shown).log()

    sure = Table(2, 1, torch.tensor([0.0, -math.inf], dtype=torch.float64))
    p = sure.log_probs.exp()
    off = consistency.conditional_error(
        Conditionals.of(Half(), 1), Conditionals.of(sure, 1), p, hidden=1
    )
    assert off == pytest.approx(math.log(2))
    table = Table.random(2, 3, seed=1)
    exact, guess = Conditionals.of(table, 3), Conditionals.of(Half(), 3)
    p = table.log_probs.exp()
    for hidden in (1, 2, 3):
        found = consistency.conditional_error(guess, exact, p, hidden)
        total, number = 0.0, 0
        for block in [b for b in product((0, 1), repeat=3) if sum(b) == hidden]:
            mask = torch.tensor([block]).bool().expand(8, -1)
            laws = table.masked_log_probs(table.sequences, mask)
            entropy = -(laws.exp() * laws.clamp(min=-1e9)).sum(-1)
            total += float((p[:, None] * entropy * mask).sum())
            number += hidden
        assert found == pytest.approx(math.log(2) - total / number)
        assert consistency.conditional_error(exact, exact, p, hidden) == pytest.approx(0, abs=1e-12)


def test_laws_of_a_chain_of_two_states_by_hand():
    matrix = torch.tensor([[0.5, 0.5], [0.25, 0.75]], dtype=torch.float64)
    close(kernels.stationary_law(matrix), [1 / 3, 2 / 3])
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    laws = kernels.law_after(matrix, start, [0, 1, 2, 2])
    close(laws, [[1, 0], [0.5, 0.5], [3 / 8, 5 / 8], [3 / 8, 5 / 8]])
    close(
        kernels.distances(laws, torch.tensor([1 / 3, 2 / 3], dtype=torch.float64))[:2],
        [2 / 3, 1 / 6],
    )
    with pytest.raises(ValueError, match="decrease"):
        kernels.law_after(matrix, start, [2, 1])
    assert kernels.law_after(matrix, start, []).shape == (0, 2)


def test_going_round_is_not_reversible():
    matrix = torch.roll(torch.eye(3, dtype=torch.float64), 1, dims=1)
    law = kernels.stationary_law(matrix)  # periodic, and yet there is one law
    close(law, [1 / 3] * 3)
    assert kernels.irreversibility(matrix, law) == pytest.approx(1.0)


def test_stationary_law_of_hardly_mixing_and_of_falling_apart_chains():
    """Two halves joined by 1e-18: a solver with subtractions has no digit left."""
    e = 1e-18
    half = [[0.5 - e, 0.5, e, 0.0], [0.5, 0.5, 0.0, 0.0], [3 * e, 0.0, 0.5, 0.5], [0, 0, 0.5, 0.5]]
    law = kernels.stationary_law(torch.tensor(half, dtype=torch.float64))
    close(law, [0.375, 0.375, 0.125, 0.125])
    apart = torch.block_diag(torch.ones(2, 2) / 2, torch.ones(2, 2) / 2).double()
    with pytest.raises(ValueError, match="2 closed classes.*0 and 2 never meet"):
        kernels.stationary_law(apart)
    leaves = torch.tensor([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]], dtype=torch.float64)
    close(kernels.stationary_law(leaves), [0, 0.5, 0.5])
    with pytest.raises(ValueError, match="must be laws"):
        kernels.stationary_law(leaves * 0.9)


def test_stationary_law_of_states_that_are_hardly_ever_met():
    """A path that is climbed with ½ and left with e: π is 1, e, e² of the last state."""
    e = 1e-200
    path = [[0.5, 0.5, 0.0], [e, 0.5, 0.5], [0.0, e, 1.0]]
    law = kernels.stationary_law(torch.tensor(path, dtype=torch.float64))
    assert law.tolist() == pytest.approx([0.0, 2 * e, 1.0], rel=1e-12)
    e = 1e-310
    path = [[0.5, 0.5, 0.0], [e, 0.5, 0.5], [0.0, e, 1.0]]
    with pytest.raises(ValueError, match="state 2 is left with a probability of 1e-310"):
        kernels.stationary_law(torch.tensor(path, dtype=torch.float64))


def test_stationary_law_against_eigenvectors():
    generator = np.random.default_rng(0)
    matrix = generator.dirichlet(np.full(30, 0.1), size=30)
    values, vectors = np.linalg.eig(matrix.T)
    wanted = np.real(vectors[:, np.argmax(np.real(values))])
    close(kernels.stationary_law(torch.from_numpy(matrix)), wanted / wanted.sum(), atol=1e-10)


def test_confident_tokens_by_hand():
    bits = parallel._product([[0.9, 0.1], [0.6, 0.4]])
    law = kernels.unmask_law(Conditionals.of(bits, 2), [1, 1], "confident token")
    close(law, [0.594, 0.396, 0.006, 0.004])


# ------------------------------------------------------------------ impossible contexts, errors


def test_contexts_of_probability_zero():
    """Uniform on {00, 11}: blocks of both are defined from every state, blocks of one are too."""
    agree = Table(2, 2, torch.tensor([0.5, 0.0, 0.0, 0.5], dtype=torch.float64).log())
    found = Conditionals.of(agree, 2)
    both = kernels.gibbs_matrix(found, MaskLaw.of_size(2, 2))
    close(both, [[0.5, 0, 0, 0.5]] * 4)
    close(kernels.unmask_law(found, [1, 1]), [0.5, 0, 0, 0.5])
    with pytest.raises(ValueError, match="2 closed classes"):
        kernels.stationary_law(kernels.gibbs_matrix(found, MaskLaw.of_size(2, 1)))
    equal = torch.zeros(8, dtype=torch.float64)
    equal[0] = equal[7] = 0.5
    three = Conditionals.of(Table(2, 3, equal.log()), 3)
    close(kernels.unmask_law(three, [1, 1, 1]), equal)
    with pytest.raises(ImpossibleEvidence, match=r"probability 0 to \?01"):
        kernels.gibbs_matrix(three, MaskLaw.of_size(3, 1))
    with pytest.raises(ImpossibleEvidence):
        kernels.independent_matrix(three)
    with pytest.raises(ImpossibleEvidence):
        kernels.unmask_law(three, [2, 1])


def test_errors_are_sentences():
    found = Conditionals.of(Tilted(), 2)
    with pytest.raises(ValueError, match="too many to tabulate"):
        Conditionals.of(Ising.chain(14, 0.1), 14)
    with pytest.raises(ValueError, match="sum to the 2 positions"):
        kernels.unmask_law(found, [1])
    with pytest.raises(ValueError, match="blocks of 3 positions on sequences of 2"):
        kernels.gibbs_matrix(found, MaskLaw.of_size(3, 1))
    one = Conditionals.of(Ising.chain(1, 0.0), 1)
    with pytest.raises(ValueError, match="two positions"):
        consistency.inconsistency(one, torch.tensor([0.5, 0.5]).double())
