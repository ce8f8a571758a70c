"""Small networks that learn brackets: the data, the architectures and their training [li, 2.2.3].

Tokens 0..2k-1 are brackets, 2k ends a string and fills its row, 2k + 1 starts it. The loss counts
at closing brackets alone, as in the authors' code: an opening bracket has a type that nobody knows.

first layer    standard    one-hot tokens, and at least two layers after them
               joint, separate, angle    a minimal first layer (2.55)-(2.57), and one layer of
                           attention and a layer norm: no residual, no feed-forward, no W^O
positions      linear: i / 6000 in a coordinate of its own, as in the authors' code
norm           feedforward: one norm a layer, before the feed-forward.  kept: Table 2.6
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.models.constructions.brackets import Encoding, first_layer
from triptych.models.language_models import CausalLM, FirstLayer
from triptych.models.transformer import Shape, Transformer
from triptych.structures.brackets.dyck import Dyck
from triptych.training.corpus import Corpus
from triptych.training.ensembles import Contrast, fit_ensemble
from triptych.training.objectives import Objective, Prediction, RowByRow
from triptych.training.step import Recipe

Data = Literal["complete", "prefixes"]
First = Literal["standard", "joint", "separate", "angle"]
Positions = Literal["none", "linear"]
Norm = Literal["feedforward", "kept"]

Q = 0.5
TRAIN_LENGTH = 28  # whole strings are shorter, prefixes have as many tokens
MAX_POSITIONS = 6000  # of the linear positions
DATA_SEED = 1  # the training strings are the same for all networks, as in the authors' code


@dataclass(frozen=True)
class Language:
    """Brackets of k types, depth at most D."""

    types: int
    max_depth: int
    data: Data

    def law(self, length: int = TRAIN_LENGTH) -> Dyck:
        """Whole strings of fewer than `length` tokens, or prefixes of exactly this many."""
        if self.data == "complete":
            longest = 2 * ((length - 1) // 2)
            return Dyck.complete(self.types, self.max_depth, longest, q=Q)
        return Dyck.prefixes(self.types, self.max_depth, length, q=Q)

    def long(self, length: int) -> Dyck:
        """Prefixes of this many tokens: what length generalisation is measured on."""
        return Dyck.prefixes(self.types, self.max_depth, length, q=Q)


@dataclass(frozen=True)
class Architecture:
    """What a network is made of; see the head of this file."""

    first: First
    layers: int
    positions: Positions = "none"
    norm: Norm = "feedforward"
    width: int = 50

    @property
    def minimal(self) -> bool:
        return self.first != "standard"


def new_network(
    language: Language, architecture: Architecture, seed: int, device: str = "cpu"
) -> CausalLM:
    """A network before training."""
    tokens = 2 * language.types + 2
    if architecture.first != "standard":
        shape = Shape(
            tokens,
            MAX_POSITIONS,
            width=architecture.width,
            layers=1,
            heads=1,
            feedforward=0,
            positions="none",
            embedding="given",
            residual=False,
            norm="post",
            output_projection=False,
        )
        net = Transformer(shape, seed=seed, device=device)
        layer = minimal_layer(language, architecture.first, architecture.width).to(device)
        return CausalLM(net, reader(language, layer))
    shape = Shape(
        tokens,
        MAX_POSITIONS,
        width=architecture.width,
        layers=architecture.layers,
        heads=1,
        feedforward=architecture.width,
        positions=architecture.positions,
        embedding="one_hot",
        norm=architecture.norm,
    )
    net = Transformer(shape, seed=seed, device=device)
    if architecture.positions == "linear":
        last = torch.zeros(architecture.width)
        last[-1] = 1.0
        net.set_matrix("position_direction", last)
    return CausalLM(net)


def minimal_layer(
    language: Language, encoding: Encoding, width: int
) -> Float[Tensor, "kinds width"]:
    """The vectors of every kind, filled up with zeros; the start token's kind is the last."""
    vectors = first_layer(language.types, language.max_depth, encoding).float()
    return torch.nn.functional.pad(vectors, (0, width - vectors.shape[1]))


def reader(language: Language, vectors: Float[Tensor, "kinds width"]) -> FirstLayer:
    """Token ids to the vectors of their kinds; ends have that of the start token.

    Where the end token stands, nothing is scored afterwards.
    """

    def read(tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch t width"]:
        return vectors[token_kinds(tokens, language.types, language.max_depth)]

    return read


def token_kinds(tokens: Int[Tensor, "batch t"], types: int, depth: int) -> Int[Tensor, "batch t"]:
    """The kind of every token, start tokens and ends among them.

    Worked value: start "[()]" with k = 2, D = 3 has kinds 12, 0, 7, 10, 3.
    """
    bracket = tokens < 2 * types
    step = torch.where(tokens % 2 == 0, 1, -1) * bracket
    after = step.cumsum(1)
    level = torch.where(step < 0, after + 1, after).clamp(1, depth)
    return torch.where(bracket, tokens * depth + level - 1, 2 * types * depth)


def at_closing_brackets(types: int) -> Objective:
    """Predict every closing bracket from what stands before it."""

    def prepare(tokens: Int[Tensor, "batch length"]) -> Prediction:
        return Prediction(tokens, tokens, is_closing(tokens, types), None)

    return RowByRow(prepare)


def is_closing(tokens: Int[Tensor, "batch t"], types: int) -> Tensor:
    return (tokens % 2 == 1) & (tokens < 2 * types)


def trained(
    language: Language,
    architecture: Architecture,
    recipe: Recipe,
    seeds: Sequence[int],
    *,
    strings: int,
    device: str = "cpu",
    contrast: Contrast | None = None,
) -> list[CausalLM]:
    """A network for every seed, trained at once; each is what it would be alone, up to rounding."""
    law = language.law()
    corpus = Corpus.draw(law, strings, TorchRng(DATA_SEED), chunk=law.length, device=device)
    models = [new_network(language, architecture, seed, device) for seed in seeds]
    streams = [TorchRng(seed, device) for seed in seeds]
    objective = at_closing_brackets(language.types)
    fit_ensemble(models, corpus, objective, recipe, streams, contrast=contrast)
    return models
