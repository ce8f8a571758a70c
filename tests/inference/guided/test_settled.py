"""What an algorithm says of a growing row: tokens that stay, and how many may still change."""

import pytest
import torch
from tests.support.toy_guided import ALGORITHMS, Noisy

from triptych.core.decoders import RecomputingDecoder
from triptych.core.streams import RowStreams, hashed_uniform
from triptych.core.table import Table
from triptych.inference.guided.adaptive import Adaptive
from triptych.inference.guided.algorithm import algorithms
from triptych.inference.guided.ancestral import Ancestral
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.blocks import Blocks
from triptych.inference.guided.greedy import Greedy
from triptych.inference.guided.tokenwise import Tokenwise

ROWS, LENGTH = 16, 9
SAYS = [
    Ancestral(),
    Greedy(threshold=0.3),
    Tokenwise(threshold=0.3, tries=4),
    Tokenwise(accept="value"),
    Backtracking(quota=3, stride=3),
    Backtracking(quota=3, stride=3, redo_argmax=False),
    Backtracking(quota=4, stride=2, verify_redone=True),
    Backtracking(quota=0),
    Backtracking(quota=5, stride=1, redo_argmax=False),
    Backtracking(quota=2, stride=4, into_prompt=1),
    Blocks(block=2, n=3),
    Blocks(block=3, n=2),
    Adaptive(n=1, tries=2),
    Adaptive(n=3),
]


class Sometimes:
    """Refuses two prefixes in five."""

    def log_value(self, prefix):
        return torch.where(hashed_uniform(9, prefix) < 0.4, -torch.inf, 0.0).double()


class Later:
    """Refuses nothing, so that every backtrack is left to the end."""

    def log_value(self, prefix):
        return torch.zeros(len(prefix), dtype=torch.float64)


def followed(algorithm, verifier, end_token=2):
    """Of each row of a run: what was settled after each event, with the row as it then stood."""
    model = Table.random(vocab_size=3, length=LENGTH, seed=2)
    decoder = RecomputingDecoder(model, ROWS)
    decoder.extend(torch.zeros(ROWS, 1, dtype=torch.long))
    result = algorithm.sample(
        decoder,
        verifier,
        length=LENGTH,
        end_token=end_token,
        record=True,
        rng=RowStreams(3, torch.arange(ROWS)),
    )
    steps = [[] for _ in range(ROWS)]
    backtracks, most = [0] * ROWS, [()] * ROWS
    for event in result.trace:
        row = event.row
        backtracks[row] += event.action == "backtrack"
        settled = algorithm.settled(event, backtracks[row])
        assert 0 <= settled <= len(event.tokens)
        if settled > len(most[row]):
            most[row] = event.tokens[:settled]
        steps[row].append((most[row], event))
    return result, steps


@pytest.mark.parametrize("verifier", [Noisy(), Sometimes()], ids=["soft", "hard"])
@pytest.mark.parametrize("algorithm", SAYS, ids=repr)
def test_what_is_settled_stays_and_the_rest_is_bounded(algorithm, verifier):
    result, steps = followed(algorithm, verifier)
    for final, told in zip(result.completions(), steps, strict=True):
        for settled, event in told:
            assert final[: len(settled)] == settled
            if algorithm.held_back is not None and event.action not in ("reject", "stay"):
                assert len(event.tokens) - len(settled) <= algorithm.held_back


def test_the_bound_of_backtracking_is_reached():
    """Worked value: 3 backtracks of 3 tokens hold back 3 * 2 + 1 = 7 tokens."""
    algorithm = Backtracking(quota=3, stride=3, redo_argmax=False)
    _, steps = followed(algorithm, Later(), end_token=None)
    behind = [len(event.tokens) - len(settled) for told in steps for settled, event in told]
    assert max(behind) == algorithm.held_back == 7


def test_something_is_told_before_the_end():
    for algorithm in (
        Ancestral(),
        Greedy(threshold=0.1),
        Tokenwise(threshold=0.1),
        Blocks(block=2),
    ):
        _, steps = followed(algorithm, Noisy())
        assert any(0 < len(settled) < LENGTH - 2 for told in steps for settled, _ in told)


def test_an_algorithm_that_says_nothing_holds_back_all():
    names = {type(algorithm).name for algorithm in SAYS}
    for name in algorithms().keys() - names:
        algorithm = algorithms()[name]()
        _, steps = followed(algorithm, Noisy())
        assert algorithm.held_back is None
        assert all(settled == () for told in steps for settled, _ in told)
    assert len(ALGORITHMS) > len(names)
