"""Muon: the matrices of hidden layers move in orthogonal directions.

The gradient of a matrix, averaged over steps, is dominated by a few directions. Muon replaces it by
the nearest matrix whose singular values are all about 1, so that every direction moves alike
[Jordan et al., 2024]. Small masked LMs are then about as near to their law after a third of the
steps, and a step costs a fifth to a third more (docs/log.md).

torch has an optimiser of this name. It orthogonalises in bfloat16, which is slow on a CPU and
crashes on virtual ones that announce units that they do not have; and it takes matrices one by one.
This one stays in the precision of the weights and takes those of one shape in one product. What is
not such a matrix (embeddings, norms, biases, the output) moves by AdamW, as usual with Muon.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from triptych.core.validation import UserError

MOMENTUM = 0.95  # of the running mean of gradients
ROUNDS = 5
LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315  # of the polynomial that a round applies


def orthogonalised(
    matrices: Float[Tensor, "n rows columns"], *, rounds: int = ROUNDS
) -> Float[Tensor, "n rows columns"]:
    """The same singular vectors with singular values near 1, without a decomposition.

    Each matrix X is divided by its Frobenius norm. A round maps it to aX + b XXᵀX + c XXᵀXXᵀX,
    and thereby each singular value s to as + bs³ + cs⁵; small ones grow by 3.4 a round. After five,
    values from 0.01 to 1 are between 0.68 and 1.14. Cheapest with rows ≤ columns.

    Worked value: one round on [[3, 0], [0, 4]] makes the singular values 0.6 and 0.8 of it, and
    then 3.4445·0.6 - 4.775·0.216 + 2.0315·0.07776 = 1.19327 and, for 0.8, 0.97648.
    """
    x = matrices / (matrices.flatten(1).norm(dim=1)[:, None, None] + 1e-12)
    for _ in range(rounds):
        square = x @ x.mT
        x = LINEAR * x + torch.baddbmm(square, square, square, beta=CUBIC, alpha=QUINTIC) @ x
    return x


class Muon(torch.optim.Optimizer):
    """Muon for `matrices`; with them, the optimiser `rest` moves the parameters that it has.

    A step of a matrix has entries of mean square about 1 before the rate, as a step of AdamW has at
    first, so that a rate that is good for one is good for the other. Weight decay is apart from the
    gradient, as in AdamW.
    """

    def __init__(
        self,
        matrices: Sequence[nn.Parameter],
        learning_rate: float,
        *,
        weight_decay: float = 0.0,
        rest: torch.optim.Optimizer | None = None,
    ) -> None:
        if not matrices:
            raise UserError(
                "muon needs the matrices of hidden layers; there are none", parameter="matrices"
            )
        if any(matrix.ndim != 2 for matrix in matrices):
            raise UserError(
                "muon moves matrices; a parameter among them has another shape",
                parameter="matrices",
            )
        super().__init__(
            [{"params": list(matrices)}], {"lr": learning_rate, "weight_decay": weight_decay}
        )
        self._rest = rest
        if rest is not None:
            self.param_groups += rest.param_groups
            rest.state = self.state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Also after `load_state_dict`, both parts have one state and their own groups."""
        super().__setstate__(state)
        if self._rest is not None:
            self._rest.state, self._rest.param_groups = self.state, self.param_groups[1:]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step against the gradients that the parameters have; those without one stay."""
        if self._rest is not None:
            self._rest.step()
        group = self.param_groups[0]
        rate, decay = group["lr"], group["weight_decay"]
        by_shape: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for matrix in group["params"]:
            if matrix.grad is not None:
                by_shape.setdefault(tuple(sorted(matrix.shape)), []).append(matrix)
        for shape, matrices in by_shape.items():
            ahead = torch.stack([_wide(self._ahead(matrix)) for matrix in matrices])
            change = orthogonalised(ahead) * max(shape) ** 0.5
            for matrix, wide in zip(matrices, change, strict=True):
                if decay:
                    matrix.mul_(1 - rate * decay)
                matrix.sub_(wide if tuple(matrix.shape) == shape else wide.mT, alpha=rate)

    def _ahead(self, matrix: nn.Parameter) -> Tensor:
        """The mean gradient as it will be if the next gradient is this one again (Nesterov)."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(matrix)
        mean = state["momentum"].lerp_(matrix.grad, 1 - MOMENTUM)
        return matrix.grad.lerp(mean, MOMENTUM)


def _wide(matrix: Tensor) -> Tensor:
    """With at least as many columns as rows."""
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
