"""The suite checks shapes at run time: in the first calls of a test, and in some of all others."""

import jaxtyping
import pytest
import torch
from tests.support.shape_checks import EVERY, FIRST

from triptych.core.logspace import log_normalise

WHOLE = torch.zeros(2, 3, dtype=torch.int64)  # log-weights are floats


@pytest.mark.parametrize("test", [1, 2])
def test_first_calls_are_checked_in_every_test(test):
    for _ in range(FIRST):
        with pytest.raises(jaxtyping.TypeCheckError):
            log_normalise(WHOLE)


def test_some_of_all_other_calls_are_checked():
    refused = []
    for call in range(1, 5 * EVERY + 1):
        try:
            log_normalise(WHOLE)
        except jaxtyping.TypeCheckError:
            refused.append(call)
        except RuntimeError:  # torch has no logsumexp of whole numbers
            continue
    later = [call for call in refused if call > FIRST]
    assert later == [call for call in range(FIRST + 1, 5 * EVERY + 1) if call % EVERY == 0]
    assert refused[:FIRST] == list(range(1, FIRST + 1))


def test_what_comes_out_is_what_the_function_gives():
    weights = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    for _ in range(3 * EVERY):
        assert log_normalise(weights).exp().tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert log_normalise.__name__ == "log_normalise"
