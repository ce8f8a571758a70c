"""The sampler of DiffusionGemma: entropy-bounded acceptance on uniform noise, block after block.

A step asks about the whole block, at a temperature that falls from t_max to t_min; accepts the
positions of smallest entropy for which Σ H - max H ≤ bound and draws them; and puts a uniform token
at all others. It stops when the most probable canvas was the same in the step before (`stability`
steps of them) and the mean entropy is small. What comes out is the most probable canvas of the last
step, not the accepted one.

The model says itself how noisy it finds the canvas, so no level is passed on. Its own laws of the
step before are read by a self-conditioned model.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.diffusion.choosing import dense, entropies
from triptych.diffusion.denoiser import RefinerDenoiser
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt
from triptych.diffusion.sampler import Sampler
from triptych.diffusion.samplers.entropy_bounded import bounded
from triptych.inference.guided.transforms import temperature
from triptych.inference.settable import option


@dataclass(frozen=True)
class UniformEntropyBounded(Sampler):
    """Accept what is sure, put noise elsewhere.

    Worked value: in one step nothing that was accepted is read again: the most probable token of
    each position, given a uniform canvas.
    """

    title = "Entropy bounded, uniform noise (DiffusionGemma)"
    promise = "another law than the model's: the most probable canvas of the last step"
    source = (
        "transformers DiffusionGemmaForBlockDiffusion.generate; diffusers EntropyBoundScheduler"
    )
    when = "DiffusionGemma, as it was tuned"
    noise = "uniform"

    steps: int = option(48, "steps for each block at most", at_least=1)
    bound: float = option(0.1, "nats that accepted positions may share", at_least=0)
    t_max: float = option(0.8, "temperature of the first step", at_least=0)
    t_min: float = option(0.4, "temperature after the last step", at_least=0)
    stability: int | None = option(1, "steps without a change before it stops", at_least=0)
    confidence: float = option(0.005, "mean entropy below which it stops", at_least=0)

    def rounds(self, size: int) -> int:
        """At most so many."""
        return self.steps

    def step(self, run: Denoising, number: int) -> None:
        """Accept, put noise elsewhere, and see whether to stop."""
        shown, left = run.shown, self.steps - number
        degree = self.t_min + (self.t_max - self.t_min) * left / self.steps
        laws = temperature(degree)(run.ask(shown))
        run.remember(shown, laws)
        entropy = entropies(laws)
        spread = dense(entropy, shown)
        accepted = bounded(dense(-entropy, shown), spread, self.bound)
        best = run.tokens.masked_scatter(shown, laws.argmax(-1))
        run.write(accepted, run.draw(laws[accepted[shown]], accepted))
        run.noise(shown & ~accepted)
        same = self._steady(run, best)
        mean = torch.where(shown, spread, 0.0).sum(-1) / shown.sum(-1).clamp(min=1)
        if self.stability is not None:
            run.close(same & (mean < self.confidence) & run.open)

    def _steady(self, run: Denoising, best: torch.Tensor) -> torch.Tensor:
        """Rows whose most probable canvas has not changed for `stability` steps.

        Memory holds, for each position, the best token and how long the row has had its canvas.
        """
        size = run.denoiser.vocab_size
        old, age = (run.memory % (size + 1)).long(), (run.memory // (size + 1)).long().amax(-1)
        same = ((old == best + 1) | ~run.free).all(-1)
        most = self.stability or 0
        age = torch.where(same, (age + 1).clamp(max=most), torch.zeros_like(age))
        fresh = (best + 1 + age[:, None] * (size + 1)).double() * run.free
        run.memory = torch.where(run.open[:, None], fresh, run.memory)
        return age >= most

    def end(self, run: Denoising) -> None:
        """The most probable canvas is what comes out."""
        best = (run.memory % (run.denoiser.vocab_size + 1)).long() - 1
        run.tokens = torch.where(run.free & (best >= 0), best, run.tokens)


class _Copies:
    """A refiner on two bits that trusts the left token: it says 3/4 for it at both positions."""

    def log_probs(self, hypotheses: Tensor, lengths: Tensor) -> Float[Tensor, "batch length vocab"]:
        """(¾, ¼) or (¼, ¾), by the first token of the hypothesis."""
        table = torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64).log()
        return table[hypotheses[:, :1]].expand(-1, hypotheses.shape[1], -1)


def examples() -> dict[str, OneShot]:
    """One step writes the first token of the noise twice; a second step by hand.

    At temperature 1 a bound of 0 accepts one position, the left one of two equal entropies. It is
    drawn with ¾ as it was, and it alone decides the next canvas.
    """
    model = RefinerDenoiser(_Copies(), vocab_size=2)
    one = UniformEntropyBounded(steps=1)
    two = UniformEntropyBounded(steps=2, bound=0.0, t_min=1.0, t_max=1.0, stability=None)
    even = {(0, 0): 0.5, (1, 1): 0.5}
    return {
        "one step": OneShot(attempt(one, model, length=2), even),
        "two steps": OneShot(attempt(two, model, length=2), even),
    }
