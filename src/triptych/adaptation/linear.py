"""A linear head on features, fitted as scikit-learn's estimators are: fit, predict, score.

    scores = features @ weightsᵀ + bias,   label = argmax

"newton" minimises the regularised cross-entropy, a strictly convex function, to its only minimum;
"recipe" is stochastic training with the paper's optimiser and schedule [wei, D].
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError, as_integers, as_number, as_seed
from triptych.training.classifier import check_labels, train_classifier
from triptych.training.step import Recipe

Solver = Literal["newton", "recipe"]

# [wei, D] says 5 epochs of 5000 examples, which is less than the warm-up; the authors' code runs
# 100 epochs of 40 batches, and that is what their figures show.
PAPER_RECIPE = Recipe(steps=4000, batch=128, learning_rate=0.01, warmup=500, decay="linear")


class LinearHead:
    """A classifier linear in its features.

    ridge
        λ of mean cross-entropy + ½ λ |weights, bias|²; "newton" only.

    Worked value: one feature, -1 and 1 with labels 0 and 1, λ → 0 has no minimum; for any λ > 0
    the two rows of weights are opposite, and the bias is 0, by symmetry.
    """

    weights: Float[Tensor, "classes features"]
    bias: Float[Tensor, " classes"]

    def __init__(
        self,
        solver: Solver = "newton",
        *,
        ridge: float = 1e-6,
        recipe: Recipe = PAPER_RECIPE,
        seed: int = 0,
    ) -> None:
        if solver not in ("newton", "recipe"):
            raise UserError(
                f"solver is {solver!r}; it must be 'newton' or 'recipe'", parameter="solver"
            )
        ridge, seed = as_number("ridge", ridge), as_seed(seed)
        if not ridge > 0:
            raise UserError(
                f"ridge is {ridge}; it must be positive for the minimum to exist", parameter="ridge"
            )
        self.solver, self.ridge, self.recipe, self.seed = solver, ridge, recipe, seed
        self.gradient_norm = float("nan")  # of the fitted objective: the certificate of the minimum

    def fit(
        self, features: Float[Tensor, "batch features"], labels: Int[Tensor, " batch"]
    ) -> "LinearHead":
        """Fit to labels 0, 1, …; there must be at least two of them."""
        classes = _check(features, labels)
        if self.solver == "newton":
            self._newton(features.double(), labels, classes)
        else:
            self._train(features, labels, classes)
        return self

    def decision(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch classes"]:
        """The scores whose argmax is the prediction."""
        if not hasattr(self, "weights"):
            raise RuntimeError("this classifier has not been fitted: call fit first")
        return features.to(self.weights) @ self.weights.T + self.bias

    def predict(self, features: Float[Tensor, "batch features"]) -> Int[Tensor, " batch"]:
        return self.decision(features).argmax(-1)

    def score(
        self, features: Float[Tensor, "batch features"], labels: Int[Tensor, " batch"]
    ) -> float:
        """The share of right predictions."""
        return float((self.predict(features) == labels).double().mean())

    def _newton(
        self, features: Tensor, labels: Tensor, classes: int, start: "LinearHead | None" = None
    ) -> None:
        """Damped Newton steps on the regularised cross-entropy until the gradient is rounding."""
        n, count = features.shape
        x = torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
        target = F.one_hot(labels, classes).double()
        theta = torch.zeros(classes, count + 1, dtype=torch.float64, device=x.device)
        if start is not None:
            theta = torch.cat([start.weights, start.bias[:, None]], dim=1)

        def objective(theta: Tensor) -> Tensor:
            log_probs = (x @ theta.T).log_softmax(-1)
            return -(target * log_probs).sum() / n + 0.5 * self.ridge * theta.square().sum()

        value = objective(theta)
        for _ in range(200):
            probs = (x @ theta.T).softmax(-1)
            gradient = (probs - target).T @ x / n + self.ridge * theta
            self.gradient_norm = float(gradient.norm())
            if self.gradient_norm < 1e-10:
                break
            # H[(c, i), (d, j)] = mean p_c (1[c = d] - p_d) x_i x_j + λ
            spread = torch.diag_embed(probs) - probs[:, :, None] * probs[:, None, :]
            hessian = torch.einsum("ncd,ni,nj->cidj", spread, x, x).reshape(theta.numel(), -1) / n
            hessian += self.ridge * torch.eye(theta.numel(), dtype=x.dtype, device=x.device)
            step = torch.linalg.solve(hessian, gradient.reshape(-1)).reshape(theta.shape)
            slope, size = float((gradient * step).sum()), 1.0
            allowed = value * (1 + 1e-13)  # near the minimum, differences are below rounding
            while objective(theta - size * step) > allowed - 1e-4 * size * slope and size > 1e-8:
                size /= 2
            theta = theta - size * step
            value = objective(theta)
        self.weights, self.bias = theta[:, :-1], theta[:, -1]

    def _train(self, features: Tensor, labels: Tensor, classes: int) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        count, spread = features.shape[1], features.shape[1] ** -0.5
        start = (torch.rand(classes, count + 1, generator=generator) * 2 - 1) * spread
        theta = nn.Parameter(start.to(features))

        def scores(rows: Tensor) -> Tensor:
            return features[rows] @ theta[:, :-1].T + theta[:, -1]

        rng = TorchRng(self.seed, features.device)
        train_classifier(scores, labels, [theta], self.recipe, rng)
        self.weights, self.bias = theta.detach()[:, :-1], theta.detach()[:, -1]


RIDGES = (1e-6, 1e-8, 1e-10, 1e-12, 1e-14)


def best_linear_head(
    features: Float[Tensor, "batch features"], labels: Int[Tensor, " batch"]
) -> LinearHead:
    """The head with most right labels on these examples, along a path of ever weaker ridges.

    Features that tell two states apart by σ need weights of about 1/σ, which a ridge forbids: a
    single λ would judge the penalty and not the features. Ties go to the stronger ridge.
    """
    classes = _check(features, labels)
    best, most, last = None, -1.0, None
    for ridge in RIDGES:
        head = LinearHead("newton", ridge=ridge)
        head._newton(features.double(), labels, classes, last)
        last, right = head, head.score(features, labels)
        if right > most:
            best, most = head, right
    assert best is not None
    return best


def _check(features: Tensor, labels: Tensor) -> int:
    if not isinstance(features, Tensor) or not features.is_floating_point():
        raise UserError(
            f"features is a {type(features).__name__}; it must be a float tensor",
            parameter="features",
        )
    labels = as_integers("labels", labels, dimensions=1)
    if features.ndim != 2 or len(features) != len(labels):
        raise UserError(
            f"features have shape {tuple(features.shape)} and there are {len(labels)} labels; "
            "give one row of features for every label",
            parameter="features",
        )
    if not torch.isfinite(features).all():
        raise UserError("features must be finite: one is inf or nan", parameter="features")
    check_labels(labels)
    return int(labels.max()) + 1
