"""Verifiers with masks: the laws of their algorithms are those of the same V without masks."""

import math

import pytest
import torch
from tests.support.toy_guided import RECORDS, standing_at

from triptych.core.counting import Counted
from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law
from triptych.core.table import Table
from triptych.inference.guided import adaptive, greedy, tokenwise, vgb
from triptych.inference.guided.adaptive import Adaptive
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.greedy import Greedy
from triptych.inference.guided.result import Reason, VerifierError
from triptych.inference.guided.tokenwise import Tokenwise
from triptych.inference.guided.vgb import Vgb

P = Table.random(vocab_size=3, length=3, seed=7)
SMALL = Table.random(vocab_size=3, length=2, seed=7)


class Refusing:
    """V = 0 where a prefix ends in 0, 1 or begins with 2; else 1, or by the sum of its tokens."""

    def __init__(self, graded):
        self.soft = graded

    def log_value(self, prefix):
        ends = prefix[:, -2:]
        bad = (ends == torch.tensor([0, 1])[-ends.shape[1] :]).all(-1) & (ends.shape[1] == 2)
        bad |= prefix[:, 0] == 2
        values = torch.where(prefix.sum(1) % 2 == 1, 0.5, 1.0) if self.soft else torch.ones(1)
        return values.expand(len(prefix)).double().log().masked_fill(bad, -torch.inf)


class Masking(Refusing):
    """The same, with masks."""

    def __init__(self, graded, vocab=3):
        super().__init__(graded)
        self.graded, self.vocab = graded, vocab
        self.about, self.asked = 0, 0

    def log_values(self, asked):
        self.asked += len(asked.row)
        rows = [self.log_value(rows) for _, rows in asked.by_length()]
        places = [places for places, _ in asked.by_length()]
        return torch.cat(rows)[torch.cat(places).argsort()]

    def masks(self, asked):
        self.about += len(asked.row)
        found = torch.zeros(len(asked.row), self.vocab, dtype=torch.bool)
        for places, rows in asked.by_length():
            for token in range(self.vocab):
                longer = torch.nn.functional.pad(rows, (0, 1), value=token)
                found[places, token] = self.log_value(longer) > -torch.inf
        return found


def law_of(algorithm, verifier, lm=P, end_token=None):
    def draw(rng):
        result = algorithm.sample(
            RecomputingDecoder(lm, 1), verifier, length=lm.length, end_token=end_token, rng=rng
        )
        return result.completions()[0] if result.complete[0] else None

    return exact_law(draw).probs


@pytest.mark.parametrize(
    ("graded", "accept"), [(False, "threshold"), (False, "value"), (True, "threshold")]
)
def test_tokenwise_has_the_same_law_with_masks(graded, accept):
    """With one try of each token; without masks that takes as many as are needed."""
    found = law_of(Tokenwise(1, accept), Masking(graded))
    exact = tokenwise.law(P, Refusing(graded), accept=accept).as_dict()
    assert found == pytest.approx({x: q for x, q in exact.items() if q > 0})


def test_tokenwise_still_weighs_a_graded_value():
    """One token, V = 1, 1/2, 0: kept with V, drawn again else; 2e-4 is left after twelve tries."""
    lm = Table.random(vocab_size=3, length=1, seed=2)
    found = law_of(Tokenwise(12, "value"), Masking(True), lm)
    p = lm.log_probs.exp().tolist()
    total = p[0] + p[1] / 2
    assert found[0,] == pytest.approx(p[0] / total, abs=1e-3)
    assert found[1,] == pytest.approx(p[1] / 2 / total, abs=1e-3)
    assert (2,) not in found


@pytest.mark.parametrize("graded", [False, True], ids=["hard", "graded"])
@pytest.mark.parametrize("n", [1, 2])
def test_adaptive_takes_the_mass_of_the_mask_as_its_weight(graded, n):
    """The law by recursion; of one particle it is the law without masks too."""
    verifier = Masking(graded)
    found = law_of(Adaptive(n), verifier, SMALL)
    expected = adaptive.law(SMALL, Refusing(graded), 2, n, masks=True)
    assert {x: q for x, q in found.items() if x is not None} == pytest.approx(expected)
    if n == 1:
        assert adaptive.law(SMALL, Refusing(graded), 2, n) == pytest.approx(expected)


def test_adaptive_asks_no_question_where_a_mask_says_all():
    verifier = Masking(False)
    result = Adaptive(4).sample(standing_at(P, [], [0], [1]), verifier, length=3, rng=0)
    assert result.complete.all()
    assert verifier.asked == 0
    assert verifier.about > 0
    assert result.costs.verifier_calls.sum() == verifier.about
    assert (result.info.refused == 0).all()
    assert Adaptive()._particles(_run(Masking(False))) == 1
    assert Adaptive()._particles(_run(Masking(True))) == adaptive.PARTICLES
    assert Adaptive()._particles(_run(Refusing(False))) == adaptive.PARTICLES


def _run(verifier):
    from triptych.inference.guided.generation import Generation

    return Generation(RecomputingDecoder(P, 1), verifier, 0, 3)


def test_the_estimate_of_the_evidence_is_exact_where_it_can_be():
    """One step: the weight is the accepted mass, whatever is drawn."""
    lm = Table.random(vocab_size=3, length=1, seed=2)
    mass = lm.log_probs[:2].exp().sum()
    for seed in range(5):
        result = Adaptive(1).sample(RecomputingDecoder(lm, 1), Masking(False), length=1, rng=seed)
        assert result.info.log_normaliser.exp().item() == pytest.approx(mass.item())


@pytest.mark.parametrize("algorithm", [Backtracking(2, 2), Vgb(4, returns="last"), Vgb(3)])
@pytest.mark.parametrize("graded", [False, True], ids=["hard", "graded"])
def test_backtracking_and_walks_have_the_same_law_with_masks(algorithm, graded):
    verifier = Masking(graded)
    found = law_of(algorithm, verifier, SMALL)
    assert found == pytest.approx(law_of(algorithm, Refusing(graded), SMALL))


def test_a_walk_asks_for_a_mask_in_place_of_its_children():
    verifier = Masking(False)
    lm = Counted(P)
    result = vgb.sample(RecomputingDecoder(lm, 1), verifier, length=3, steps=50, rng=0)
    assert verifier.asked == 0
    assert verifier.about == result.costs.verifier_calls.item()
    plain = vgb.sample(RecomputingDecoder(P, 1), Refusing(False), length=3, steps=50, rng=0)
    assert plain.completions() == result.completions()
    assert plain.costs.verifier_calls.item() > result.costs.verifier_calls.item()


@pytest.mark.parametrize("verifier", [Refusing(False), Masking(False)], ids=["asked", "masks"])
def test_greedy_takes_the_likeliest_token_that_is_accepted(verifier):
    """By hand: at every prefix the argmax over the tokens with V = 1."""
    written = Greedy().sample(RecomputingDecoder(P, 1), verifier, length=3, rng=0).completions()[0]
    text = ()
    for _ in range(3):
        probs = P.next_token_log_probs(torch.tensor([text]).long().reshape(1, -1))[0].exp()
        fine = [
            token
            for token in range(3)
            if Refusing(False).log_value(torch.tensor([(*text, token)])) == 0
        ]
        text = (*text, max(fine, key=lambda token: float(probs[token])))
    assert written == text


class Nothing(Masking):
    def masks(self, asked):
        return super().masks(asked) & False


@pytest.mark.parametrize("algorithm", [Tokenwise(), Greedy(), Adaptive(2)])
def test_a_mask_that_allows_nothing_ends_the_row_with_a_reason(algorithm):
    result = algorithm.sample(RecomputingDecoder(P, 2), Nothing(False), length=3, rng=0)
    assert not result.complete.any()
    expected = Reason.PARTICLES if isinstance(algorithm, Adaptive) else Reason.NOTHING
    assert set(result.reasons) == {expected}


@pytest.mark.parametrize(
    "answer", [torch.ones(1, 3), torch.ones(1, 2, dtype=torch.bool), None, [True] * 3]
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_masks_of_a_wrong_kind_are_refused(answer):
    class Wrong(Masking):
        def masks(self, asked):
            return answer

    with pytest.raises(VerifierError, match="Wrong must answer masks of shape"):
        tokenwise.sample(RecomputingDecoder(P, 1), Wrong(False), length=3, rng=0)


def test_every_algorithm_takes_a_verifier_with_masks():
    for kind in RECORDS.values():
        result = kind().sample(standing_at(P, [], [0]), Masking(False), length=3, rng=0)
        assert len(result.lengths) == 2
        assert math.isfinite(result.costs.seconds)
    assert greedy.examples()
