"""Our own network of uniform noise as a denoiser: it is told how noisy the canvas is."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.validation import UserError, shown
from triptych.diffusion.denoiser import Canvas
from triptych.models.noised import NoisedLM


@dataclass(frozen=True, eq=False)
class NoisedDenoiser:
    """A `NoisedLM` for samplers that write on uniform noise.

    It knows one level for a whole row. Shown tokens are read as they stand, as if they were noisy,
    and only noisy positions are asked about.
    """

    lm: NoisedLM

    def __post_init__(self) -> None:
        if not isinstance(self.lm, NoisedLM):
            raise UserError(f"lm is {shown(self.lm)}; it must be a NoisedLM", parameter="lm")

    def __repr__(self) -> str:
        return f"NoisedDenoiser({self.vocab_size} symbols, {self.lm.levels} levels)"

    @property
    def vocab_size(self) -> int:
        return self.lm.vocab_size

    def clean_log_probs(
        self, canvas: Canvas, asked: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "asked vocab"]:
        """log p(x_i = w | all of the canvas) at the asked positions."""
        if bool(canvas.hidden.any()):
            raise UserError("a NoisedLM reads noise, and positions of the canvas are hidden")
        if canvas.survival is None:
            raise UserError(
                "a NoisedLM needs to know how noisy the canvas is, and this sampler does not say; "
                "its samplers are those that follow a schedule of noise"
            )
        kept = torch.full(
            (len(canvas.tokens),), canvas.survival, dtype=torch.float64, device=asked.device
        )
        return self.lm.denoised_log_probs(canvas.tokens, kept)[asked]
