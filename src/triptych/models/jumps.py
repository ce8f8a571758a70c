"""What uniform noise costs a denoiser: the bound of a continuous-time chain, position by position.

Noise redraws each token, at random times, from the uniform law on N words. At a time when a token
was never redrawn with probability α, the law of a noisy token z is

    p(z) = α [z = x] + (1 - α) / N                     for the token x
    q(z) = α d(z)    + (1 - α) / N                     for what a denoiser d thinks of x

Backwards in time z jumps to y at the rate β/N p(y)/p(z). A denoiser has q instead of p. The
divergence of the true jumps from the denoiser's, integrated over time, bounds -log p(x). Per unit
of β, at one position [Lou et al., 2024; Schiff et al., 2024]:

    1/N ( 1/q(z) - 1/p(z) + Σ_{y ≠ z} r(y) log( r(y) q(z) / q(y) ) )        r(y) = p(y) / p(z)

With α = 1 - t for t from 0 to 1, β = 1/α. The best d is the law of x_i given the noisy tokens of
the other positions. What all of z says, and what cross-entropy on all of z would learn, is d(x)
times the chance of z_i from x: `posterior_of`.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def jump_losses(
    log_probs: Float[Tensor, "batch length words"],
    noisy: Int[Tensor, "batch length"],
    tokens: Int[Tensor, "batch length"],
    kept: Float[Tensor, " batch"],
) -> Float[Tensor, "batch length"]:
    """The divergence at every position, in nats per unit of β; `log_probs` is log d, `kept` is α.

    Worked value: two words, α = ½, d = (½, ½). Then p = (¾, ¼) and q = (½, ½). A kept token costs
    ½ (2 - 4/3 + ⅓ log ⅓) = (2 - log 3)/6, one that jumped ½ (2 - 4 + 3 log 3) = (3 log 3)/2 - 1.
    """
    words = log_probs.shape[-1]
    alpha = kept.to(log_probs.dtype)[:, None]
    uniform = (1 - alpha) / words
    low = uniform / (alpha + uniform)  # r of another token, where z is the token itself
    log_low = low.log()
    log_q = torch.logaddexp(log_probs + alpha.log()[..., None], uniform.log()[..., None])
    total = log_q.sum(-1)
    at_noisy = log_q.gather(-1, noisy[..., None])[..., 0]
    at_token = log_q.gather(-1, tokens[..., None])[..., 0]
    stayed = low * ((words - 1) * log_low + words * at_noisy - total) - 1 / (alpha + uniform)
    to_token = (at_noisy - at_token - log_low) / low
    jumped = to_token + (words - 1) * at_noisy + at_token - total - 1 / uniform
    return ((-at_noisy).exp() + torch.where(noisy == tokens, stayed, jumped)) / words


def posterior_of(
    log_probs: Float[Tensor, "batch length words"],
    noisy: Int[Tensor, "batch length"],
    kept: Float[Tensor, " batch"],
    *,
    back: bool = False,
) -> Float[Tensor, "batch length words"]:
    """The law of each token given all noisy ones, from that given the others; `back` undoes it.

    Worked value: two words, α = ½, d = (½, ½) and z = 0: the posterior is (¾, ¼).
    """
    words, most = log_probs.shape[-1], 1 - torch.finfo(log_probs.dtype).eps
    alpha = kept.to(log_probs.dtype).clamp(max=most)[:, None]
    odds = torch.log1p(alpha * words / (1 - alpha))[..., None].expand(*noisy.shape, 1)
    if back:
        odds = -odds
    moved = log_probs.scatter_add(-1, noisy[..., None], odds)
    return moved.log_softmax(-1)
