"""A small network that learns to refine the translations of one sentence."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import Rng
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.translation import Translations
from triptych.studies.api.study import Bench
from triptych.theory.refinement.ideal import TabledRefiner
from triptych.training.loop import fit
from triptych.training.objectives import Objective, Prediction
from triptych.training.step import Recipe


@dataclass(frozen=True)
class Size:
    """Sizes of the network and of its training."""

    steps: int
    batch: int
    width: int
    layers: int
    learning_rate: float


def denoising(lm: MaskedLM, *, right: float, stages: int) -> Objective:
    """Predict all tokens from a corrupted target; with two stages, from the own answer too.

    A token is kept with probability `right` and uniform otherwise. The second stage reads the most
    probable tokens of the first answer, without a gradient; the loss is the mean over the stages.
    """
    vocab = lm.vocab_size
    fates = torch.tensor([[right, *[(1 - right) / vocab] * vocab]], dtype=torch.float64).log()

    def prepare(tokens: Int[Tensor, "batch length"], rng: Rng) -> Prediction:
        """Both stages, one below the other."""
        fate = rng.categorical(fates.to(tokens.device), torch.zeros_like(tokens))
        seen = torch.where(fate == 0, tokens, fate - 1)
        if stages == 2:
            with torch.no_grad():
                answer = lm.token_logits(seen).argmax(-1)
            seen, tokens = torch.cat([seen, answer]), torch.cat([tokens, tokens])
        return Prediction(seen, tokens, torch.ones_like(tokens, dtype=torch.bool), None)

    return prepare


def trained(
    law: Translations, *, right: float, stages: int, size: Size, seed: int, bench: Bench
) -> TabledRefiner:
    """A network that saw fresh translations, and its answers to every hypothesis."""
    shape = Shape(
        law.vocab_size + 1,
        law.length,
        width=size.width,
        layers=size.layers,
        heads=2,
        causal=False,
    )
    lm = MaskedLM(Transformer(shape, seed=seed, device=bench.device))
    recipe = Recipe(
        steps=size.steps,
        batch=size.batch,
        learning_rate=size.learning_rate,
        warmup=max(1, size.steps // 20),
        decay="cosine",
        clip=1.0,
    )
    objective = denoising(lm, right=right, stages=stages)
    fit(lm, law.to(bench.device).sample, objective, recipe, bench.rng("training"))
    return TabledRefiner.of(_Network(lm), law.vocab_size, law.length)


class _Network:
    """The network as a refiner."""

    def __init__(self, lm: MaskedLM) -> None:
        self.lm = lm

    @torch.no_grad()
    def log_probs(
        self, hypotheses: Int[Tensor, "batch length"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch length vocab"]:
        logits = self.lm.token_logits(hypotheses.to(self.lm.net.device))
        return logits.double().log_softmax(-1).cpu()
