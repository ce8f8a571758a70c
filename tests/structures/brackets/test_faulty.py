"""Writers of brackets that make mistakes: worked values, the axioms, and what is impossible."""

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.axioms import check_structure
from triptych.core.validation import ImpossibleEvidence
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.faulty import CarelessBrackets, LeakyBrackets

TWO = torch.tensor([0.2, 0.8], dtype=torch.float64)
ONE = torch.ones(1, dtype=torch.float64)
EXAMPLES = {
    "leaky": LeakyBrackets(Dyck.fixed_length(4, type_probs=TWO, q=0.5), 0.25),
    "leaky, one type": LeakyBrackets(Dyck.fixed_length(2, type_probs=ONE, q=0.5), 0.5),
    "never leaky": LeakyBrackets(Dyck.fixed_length(4, type_probs=TWO, q=0.5), 0.0),
    "careless": CarelessBrackets(Dyck.fixed_length(4, type_probs=TWO, q=0.5), 0.25),
    "never careless": CarelessBrackets(Dyck.fixed_length(4, type_probs=TWO, q=0.3), 0.0),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_axioms_hold(name):
    findings = check_structure(EXAMPLES[name])
    assert len(findings) >= 3
    for finding in findings:
        assert finding.holds, str(finding)


def test_leaky_worked_value():
    model = EXAMPLES["leaky, one type"]
    probs = model.log_prob([[0, 1], [1, 0]]).exp()
    assert probs.tolist() == pytest.approx([9 / 16, 1 / 8])
    assert repr(model).endswith("leak 0.5)")


def test_careless_worked_value():
    """ "[)" has ½ ⅕ ... by hand: the first bracket opens; after it half of the mass closes."""
    model = CarelessBrackets(Dyck.fixed_length(4, type_probs=TWO, q=0.5), 0.25)
    after = model.next_token_log_probs(model.dyck.tokens("[")).exp()[0]
    assert after.tolist() == pytest.approx([1 / 10, 3 / 8, 4 / 10, 1 / 8])
    assert model.log_prob(model.dyck.tokens("[)[]")).exp().item() == pytest.approx(
        0.2 * (1 / 8) * 0.2 * (3 / 4)
    )


def test_without_mistakes_both_are_the_language_itself():
    dyck = EXAMPLES["never leaky"].dyck
    tokens = dyck.tokens("[()]", "[)()", "()[]", "]()[")
    for model in (LeakyBrackets(dyck, 0.0), CarelessBrackets(dyck, 0.0)):
        torch.testing.assert_close(model.log_prob(tokens), dyck.log_prob(tokens))


def test_what_cannot_be_is_refused():
    careless = EXAMPLES["careless"]
    with refused("log_evidence", ImpossibleEvidence):
        careless.next_token_log_probs(careless.dyck.tokens("[", "]"))
    with pytest.raises(ImpossibleEvidence):
        EXAMPLES["never leaky"].next_token_log_probs([[1]])
    with refused("dyck"):
        CarelessBrackets(Dyck.fixed_length(4, type_probs=ONE, q=0.5), 0.1)
    with refused("leak"):
        LeakyBrackets(Dyck.fixed_length(4, type_probs=TWO, q=0.5), 1.5)
    assert careless.next_token_log_probs(torch.zeros((0, 2), dtype=torch.long)).shape == (0, 4)
