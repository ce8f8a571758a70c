"""Masked prediction as an estimator: its loss, its information, its covariance, exactly [li, 4.1].

A mask law draws a block K, also looking at x, and the loss is -log p_θ(x_K | x_-K, K). Everything
here is a sum over all sequences and blocks. At the truth the gradient of the loss for (x, K) is

    -g,   g(x, K) = S(x) - E[S | x_-K, K],

the scores centred within the block, so its mean is 0 given x_-K and K. The Hessian of the loss at
the truth is E[g gᵀ] [li, Lemmas 4.1.2 and 4.3.3]; `loss_hessian` gets it by differentiating the
loss twice, `score_covariance` by centring, and neither knows of the other.

How many masks a sequence is seen under matters. With m masks drawn for each of n sequences,
√n (θ̂ - θ*) has the covariance

    Γ_m = H⁻¹ [V + (H - V) / m] H⁻¹,   H = E[g gᵀ],   V = Cov_x(E_K[g | x]),

so Γ_1 = H⁻¹, and with all masks of every sequence (m → ∞, what is mostly meant by
pseudolikelihood) Γ_∞ = H⁻¹ V H⁻¹. With P the block dynamics of the same masks, E_K[g | x] is
(I - P)S: H = ⟨S, (I - P)S⟩ and V = ⟨(I - P)S, (I - P)S⟩. If P maps the span of S to itself, Γ_∞ is
the inverse Fisher information whatever the masks are; for a product law with Ising parameters so
it is. Theorem 4.1.1 orders Γ_1; Γ_∞ is not ordered in k (tests have the counterexamples), and for
pairwise Ising models with all parameters free it is the inverse information as soon as k ≥ N - 2,
because E[S | x_-K] is then a function of two spins.

Notation
--------
K   a block               [blocks, length]        S   scores              [count, d]
w   p(x) p(K | x)         [blocks, count]         g   centred scores      [count, d], per block
H   Hessian of the loss   [d, d]                  Γ   covariance of √n (θ̂ - θ*)   [d, d]
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import all_sequences
from triptych.core.validation import check_count, check_shape
from triptych.theory.masking.blocks.dynamics import conditional_mean
from triptych.theory.masking.families import NEGLIGIBLE, Family

_LOG_ZERO = -1e200  # a zero in log-space whose gradient is 0 and not nan
_STEPS = 60
_FLAT = 1e-10  # a gradient this small ends the search for a minimiser,
_CURVED = 1e3  # if the curvature is this much larger: both vanish together on the way to infinity
_ROUNDING = 1e-13  # what a gradient of 0 may come out as


# ------------------------------------------------------------------ losses


def block_log_conditionals(
    log_probs: Float[Tensor, " count"], masks: MaskLaw, vocab_size: int
) -> Float[Tensor, "blocks count"]:
    """log p(x_K | x_-K, K) for every block and sequence; -inf where x and K never meet.

    Differentiable in `log_probs`. Worked value: the law ½, ⅓, ⅙, 0 on two bits with
    p({0} | x) = ½, ⅓, ¼ (and {1} otherwise) [li, Lemma 4.3.1]: for K = {1}, x_0 = 0, the joint
    masses are ½·½ = ¼ and ⅓·⅔ = 2/9, so p(x_1 = 0 | x_0 = 0, K) = 9/17, where p(x_1 = 0 | x_0 = 0)
    is 3/5.
    """
    log_masks = masks.log_prob(all_sequences(vocab_size, masks.length, log_probs.device))
    return _block_conditionals(log_probs, log_masks.T, masks, vocab_size)


def _block_conditionals(
    log_probs: Float[Tensor, " count"],
    log_masks: Float[Tensor, "blocks count"],
    masks: MaskLaw,
    vocab_size: int,
) -> Float[Tensor, "blocks count"]:
    """log p(x) p(K | x) less its logsumexp over x_K."""
    grid = [vocab_size] * masks.length
    possible = (log_probs > -torch.inf) & (log_masks > -torch.inf)
    joint = torch.where(possible, log_probs + log_masks, _LOG_ZERO)
    out = []
    for block, row in zip(masks.blocks.tolist(), joint, strict=True):
        axes = [i for i, hidden in enumerate(block) if hidden]
        inside = row.reshape(grid)
        total = inside.logsumexp(axes, keepdim=True) if axes else inside
        out.append((inside - total).reshape(-1))
    return torch.stack(out).masked_fill(~possible, -torch.inf)


def population_loss(
    family: Family, masks: MaskLaw, theta: Float[Tensor, " d"] | None = None
) -> Float[Tensor, ""]:
    """E[-log p_θ(x_K | x_-K, K)] under the truth [li, Defs 4.1.2, 4.1.7]; at θ* if θ is None.

    Worked value: two free spins, blocks of one: every guess is a fair coin, log 2.
    """
    return _loss(family, masks, theta, forgetful=False)


def forgetful_loss(
    family: Family, masks: MaskLaw, theta: Float[Tensor, " d"] | None = None
) -> Float[Tensor, ""]:
    """E[-log p_θ(x_K | x_-K)]: blocks drawn from p(K | x), and a model that does not know it.

    The same as `population_loss` for masks that do not look at x. For those that do, the truth
    does not minimise it: see `forgetful_minimiser`.
    """
    return _loss(family, masks, theta, forgetful=True)


def _loss(
    family: Family, masks: MaskLaw, theta: Float[Tensor, " d"] | None, *, forgetful: bool
) -> Float[Tensor, ""]:
    _check_lengths(family, masks)
    truth = family.table.log_probs
    log_masks = masks.log_prob(family.table.sequences).T
    weight = (truth + log_masks).exp()
    log_probs = family.table_log_probs(family.theta if theta is None else theta)
    flat = torch.zeros_like(log_masks)
    seen = _block_conditionals(
        log_probs, flat if forgetful else log_masks, masks, family.vocab_size
    )
    return -(weight * torch.where(weight > 0, seen, 0.0)).sum()


def loss_gradient(
    family: Family, masks: MaskLaw, theta: Float[Tensor, " d"] | None = None
) -> Float[Tensor, " d"]:
    """∇L by automatic differentiation; 0 at θ*."""
    at = family.theta if theta is None else theta
    return torch.func.grad(lambda value: population_loss(family, masks, value))(at)


def loss_hessian(
    family: Family, masks: MaskLaw, theta: Float[Tensor, " d"] | None = None
) -> Float[Tensor, "d d"]:
    """∇²L by automatic differentiation of the loss, at θ* if θ is None.

    Worked value: two free spins with θ = (h_0, h_1, J). The block {i} is guessed with log-odds
    2 (h_i + J s_j), and the Hessian of its loss at 0 is the mean of v vᵀ with v = (1, s_j) on
    (h_i, J): so J is seen through both blocks, h_i through one. Blocks of one: diag(½, ½, 1);
    the block {0, 1}: the identity, which is the Fisher information.
    """
    at = family.theta if theta is None else theta
    gradient = torch.func.grad(lambda value: population_loss(family, masks, value))
    return torch.func.jacrev(gradient)(at)


def forgetful_minimiser(family: Family, masks: MaskLaw) -> Float[Tensor, " d"]:
    """The θ that minimises `forgetful_loss`, where training goes with infinite data.

    Worked value: two fair bits, blocks {0} and {1} drawn with weights (1 + x_0, 1 + x_1): given
    K = {0} the odds of x_0 = 1 are 4/3 if x_1 = 0 and 3/2 if x_1 = 1, so h_0 - J = ½ log 4/3 and
    h_0 + J = ½ log 3/2: the fields go to ¼ log 2 and the coupling to ¼ log 9/8, from 0. Found by
    Newton's method; for families on which the loss is convex, and where a minimum exists.
    """

    def loss(value: Tensor) -> Tensor:
        return forgetful_loss(family, masks, value)

    theta = family.theta
    for _ in range(_STEPS):
        gradient = torch.func.grad(loss)(theta)
        hessian = torch.func.jacrev(torch.func.grad(loss))(theta)
        curved = torch.linalg.eigvalsh(hessian)[0] > _CURVED * gradient.norm().clamp(min=_ROUNDING)
        if float(gradient.abs().max()) <= _FLAT and bool(curved):
            return theta
        step, singular = torch.linalg.solve_ex(hessian, gradient)
        size, here = 1.0, loss(theta)
        most = here + 8 * torch.finfo(here.dtype).eps * here.abs()  # what rounding may add
        while size > 1e-6 and not loss(theta - size * step) <= most:
            size /= 2
        if int(singular) or not bool(torch.isfinite(step).all()) or size <= 1e-6:
            break
        theta = theta - size * step
    raise ValueError(
        "Newton's method found no minimum of the forgetful loss: either it has none (under this "
        "mask law some conditional is certain) or it is not convex on this family"
    )


# ------------------------------------------------------------------ information


def fisher(family: Family) -> Float[Tensor, "d d"]:
    """I = E[S Sᵀ] at θ*. Worked value: free spins, the identity."""
    scores = family.scores()
    return (family.table.log_probs.exp()[:, None] * scores).T @ scores


def score_covariance(family: Family, masks: MaskLaw) -> Float[Tensor, "d d"]:
    """E[g gᵀ], the covariance of ∇ log p_θ(x_K | x_-K, K) at θ*; see `loss_hessian` for values."""
    scores = family.scores()
    total = torch.zeros_like(scores[:0].T @ scores[:0])
    for weight, centred in _centred(family, masks, scores):
        total = total + (weight[:, None] * centred).T @ centred
    return total


def averaged_score_covariance(family: Family, masks: MaskLaw) -> Float[Tensor, "d d"]:
    """V = Cov_x(E_K[g | x]): what is left of the noise when every sequence is seen under all masks.

    Worked value: two free spins, blocks of one: E_K[g | x] = ½ (s_0, s_1, 2 s_0 s_1), so V is
    diag(¼, ¼, 1).
    """
    scores = family.scores()
    probs = family.table.log_probs.exp()
    mean = torch.zeros_like(scores)
    for weight, centred in _centred(family, masks, scores):
        given = weight / torch.where(probs > 0, probs, 1.0)
        mean = mean + given[:, None] * centred
    return (probs[:, None] * mean).T @ mean


def _centred(
    family: Family, masks: MaskLaw, scores: Float[Tensor, "count d"]
) -> Iterator[tuple[Float[Tensor, " count"], Float[Tensor, "count d"]]]:
    """For every block, p(x) p(K | x) and g(x, K)."""
    _check_lengths(family, masks)
    weights = (family.table.log_probs + masks.log_prob(family.table.sequences).T).exp()
    for block, weight in zip(masks.blocks, weights, strict=True):
        yield weight, scores - conditional_mean(scores, weight, block, family.vocab_size)


def asymptotic_covariance(
    family: Family, masks: MaskLaw, *, masks_per_sample: int | None = 1
) -> Float[Tensor, "d d"]:
    """Γ_m, the covariance of √n (θ̂ - θ*) [li, Lemma 4.1.1]; `None`: all masks of every sequence.

    The sandwich H⁻¹ Cov H⁻¹ with H from `loss_hessian` and Cov from the centred scores; for m = 1
    it is H⁻¹. A singular H is refused: the masked loss does not see some direction of θ (see
    `families.identifiable`). A direction is seen if it has 1e-9 of the largest curvature; one that
    hardly has is inverted to 1e-6.

    Worked value: two free spins, blocks of one: Γ_1 = diag(2, 2, 1) and Γ_∞ = identity = I⁻¹.
    """
    hessian = loss_hessian(family, masks)
    values = torch.linalg.eigvalsh(hessian)
    unseen = int((values <= NEGLIGIBLE * values[-1]).sum())
    if unseen:
        raise ValueError(
            f"the masked loss is flat at the truth in {unseen} of {len(values)} directions, so it "
            "does not determine the parameters: fit families.identifiable(family), or a mask law "
            "whose block dynamics reaches every sequence"
        )
    if masks_per_sample is None:
        noise = averaged_score_covariance(family, masks)
    else:
        check_count("masks_per_sample", masks_per_sample, at_least=1)
        noise = score_covariance(family, masks)
        if masks_per_sample > 1:
            shared = averaged_score_covariance(family, masks)
            noise = shared + (noise - shared) / masks_per_sample
    inverse = torch.linalg.inv(hessian)
    out = inverse @ noise @ inverse
    return 0.5 * (out + out.T)


def psd_margin(larger: Float[Tensor, "d d"], smaller: Float[Tensor, "d d"]) -> float:
    """The smallest eigenvalue of larger - smaller, in units of the largest of `larger`.

    At least 0 (up to rounding) says smaller ⪯ larger. Worked value: diag(2, 1) and diag(1, 1.5)
    have the margin -½ / 2 = -¼.
    """
    check_shape("smaller", smaller, tuple(larger.shape), "matrices that are compared")
    scale = torch.linalg.eigvalsh(larger).abs().max()
    return float(torch.linalg.eigvalsh(larger - smaller)[0] / scale)


def _check_lengths(family: Family, masks: MaskLaw) -> None:
    if masks.length != family.length:
        raise ValueError(
            f"blocks of {masks.length} positions on sequences of {family.length}: the mask law and "
            "the family must have the same length"
        )
