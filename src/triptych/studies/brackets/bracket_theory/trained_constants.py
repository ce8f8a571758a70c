"""The constant ‖S‖ N / P of networks that are trained, as N and the weight decay λ vary.

One layer of attention on the minimal first layer (2.55), a layer norm and a linear head, trained on
prefixes of N tokens with the squared loss of (2.40) and λ/2 ‖θ‖². Theorem 2.2.2 asks for a loss
that no training reaches; a row says by how much it is missed.
"""

import math
from collections.abc import Iterable

import torch

from triptych.core.randomness import TorchRng
from triptych.models.language_models import CausalLM
from triptych.structures.brackets.dyck import Dyck
from triptych.studies.brackets.bracket_theory.predictions import Q
from triptych.studies.brackets.bracket_theory.rows import TrainConstants, TrainedConstant
from triptych.studies.brackets.shared.measures import attention_of
from triptych.studies.brackets.shared.networks import (
    DATA_SEED,
    Architecture,
    Language,
    new_network,
)
from triptych.theory.brackets import balance
from triptych.training.corpus import Corpus
from triptych.training.ensembles import fit_ensemble
from triptych.training.objectives import next_token
from triptych.training.step import Recipe

RATE = 1e-2
STRINGS = 3572
TESTED = 200


def trained_constants(unit: TrainConstants, device: str) -> Iterable[TrainedConstant]:
    """One row for each network; those of a unit are trained at once."""
    language = Language(unit.types, unit.max_depth, "prefixes")
    law = language.long(unit.length)
    architecture = Architecture("joint", 1, width=unit.width)
    seeds = range(unit.seed, unit.seed + unit.members)
    models = [new_network(language, architecture, seed, device) for seed in seeds]
    corpus = Corpus.draw(law, STRINGS, TorchRng(DATA_SEED), chunk=unit.length, device=device)
    recipe = Recipe(
        unit.steps,
        unit.batch,
        learning_rate=RATE,
        decay="cosine",
        loss="squared",
        l2=unit.decay / 2,
    )
    streams = [TorchRng(seed, device) for seed in seeds]
    fit_ensemble(models, corpus, next_token(), recipe, streams)
    for seed, model in zip(seeds, models, strict=True):
        attention = attention_of(model, language, "joint")
        constants = balance.measured_constants(attention, unit.length)
        excess = excess_loss(model, law)
        yield TrainedConstant(
            seed=seed,
            types=unit.types,
            max_depth=unit.max_depth,
            length=unit.length,
            decay=unit.decay,
            steps=unit.steps,
            constant=float(constants.max()),
            typical=float(constants.mean()),
            norm=sum(float(p.detach().square().sum()) for p in model.net.parameters()),
            excess=excess,
            lipschitz=head_lipschitz(model),
            log10_missed=math.log10(excess) - balance.log10_loss_bound(unit.types, Q, unit.length),
        )


@torch.no_grad()
def excess_loss(model: CausalLM, law: Dyck) -> float:
    """Mean over positions of ‖T - law‖², on strings that were drawn: the loss over the truth's."""
    tokens = law.sample(TESTED, TorchRng(10_000))
    truth = law.every_next_token_log_probs(tokens).exp()
    said = model.token_logits(tokens.to(model.net.device)).double().cpu()
    never = said[..., law.vocab_size :].square().sum(-1)  # the end token, which prefixes have not
    return float(((said[..., : law.vocab_size] - truth).square().sum(-1) + never).mean())


@torch.no_grad()
def head_lipschitz(model: CausalLM) -> float:
    """γ of what follows a layer norm to the unit sphere: its gain, √m, and the linear head."""
    gains = {name: p for name, p in model.net.named_parameters() if name.endswith("norm.weight")}
    (gain,) = gains.values()
    weight = model.net.output.weight[: model.vocab_size].double()
    return float(torch.linalg.matrix_norm(weight * gain.double(), 2) * len(gain) ** 0.5)
