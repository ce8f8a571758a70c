"""A checkpoint of another network is refused."""

from pathlib import Path

import pytest
from torch import nn

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.training.checkpoints import resume, save
from triptych.training.step import Descent, Recipe


@pytest.mark.parametrize("other", [nn.Linear(3, 4), nn.Linear(2, 3, bias=False)])
def test_a_network_of_another_shape_is_refused(tmp_path: Path, other: nn.Module) -> None:
    net, rng = nn.Linear(2, 3), TorchRng(0)
    save(tmp_path, Descent(Recipe(5), list(net.parameters())), net, 2, rng, [])
    with pytest.raises(UserError, match="network of another shape"):
        resume(tmp_path, Descent(Recipe(5), list(other.parameters())), other, rng)
    same = nn.Linear(2, 3)
    assert resume(tmp_path, Descent(Recipe(5), list(same.parameters())), same, rng)["step"] == 2
    assert same.weight.equal(net.weight)
