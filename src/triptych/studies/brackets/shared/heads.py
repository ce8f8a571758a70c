"""Bracket networks with several heads: a minimal first layer, and one layer of attention.

The layer is that of `networks` (no residual, no feed-forward) with more than one head and a matrix
W^O, so that a head can be switched off for good: where its rows of W^V and its columns of W^O are
0, all their gradients are 0 too, and training leaves them 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError, as_tokens, check_shape
from triptych.models.language_models import CausalLM
from triptych.models.layers import Attention, Block
from triptych.models.transformer import Shape, Transformer
from triptych.studies.brackets.shared.networks import (
    DATA_SEED,
    MAX_POSITIONS,
    Language,
    at_closing_brackets,
    minimal_layer,
    reader,
)
from triptych.training.corpus import Corpus
from triptych.training.ensembles import fit_ensemble
from triptych.training.step import Recipe

START = 0.02  # standard deviation of the weights of a Transformer before training


@dataclass(frozen=True, eq=False)
class TrainedHeads:
    """A network that was trained, or is about to be."""

    language: Language
    model: CausalLM

    @classmethod
    def new(
        cls,
        language: Language,
        heads: int,
        width: int,
        *,
        seed: int,
        sharpness: float = START,
        device: str = "cpu",
    ) -> "TrainedHeads":
        """A network before training; sharpness: standard deviation of its queries and keys."""
        shape = Shape(
            2 * language.types + 2,
            MAX_POSITIONS,
            width=width,
            layers=1,
            heads=heads,
            feedforward=0,
            positions="none",
            embedding="given",
            residual=False,
            norm="post",
        )
        layer = minimal_layer(language, "joint", width).to(device)
        net = Transformer(shape, seed=seed, device=device)
        network = cls(language, CausalLM(net, reader(language, layer)))
        with torch.no_grad():
            for part in (network.attention.query, network.attention.key):
                part.weight.mul_(sharpness / START)
        return network

    @property
    def types(self) -> int:
        return self.language.types

    @property
    def max_depth(self) -> int:
        return self.language.max_depth

    @property
    def head_count(self) -> int:
        return self.model.net.shape.heads

    @property
    def attention(self) -> Attention:
        block = self.model.net.blocks[0]
        assert isinstance(block, Block)
        return block.attention

    def copy(self) -> "TrainedHeads":
        """A network of its own with the same weights."""
        return TrainedHeads.from_weights(self.weights())

    @torch.no_grad()
    def switch_off(self, head: int) -> None:
        """The head writes nothing from now on, also when the network is trained further."""
        width = self.model.net.shape.head_width
        rows = slice(head * width, (head + 1) * width)
        layer = self.attention
        assert layer.output is not None
        layer.value.weight[rows] = 0.0
        layer.value.bias[rows] = 0.0
        layer.output.weight[:, rows] = 0.0

    def freeze_patterns(self) -> None:
        """Training leaves queries and keys, and with them all patterns, as they are."""
        kinds = ("query.weight", "query.bias", "key.weight", "key.bias")
        self.model.net.freeze(*(f"blocks.0.attention.{kind}" for kind in kinds))

    def with_patterns_of(self, other: "TrainedHeads") -> "TrainedHeads":
        """A network with the queries and keys of another one, and the rest of this one."""
        taken = {
            name: part
            for name, part in other.weights().items()
            if ".attention.query." in name or ".attention.key." in name
        }
        return TrainedHeads.from_weights({**self.weights(), **taken})

    @torch.no_grad()
    def patterns(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch heads n n"]:
        """The attention weights of every head; the start token is position 0."""
        return self.model.net.inspect(vectors=self._vectors(tokens)).patterns[0]

    @torch.no_grad()
    def predictions(
        self,
        tokens: Int[Tensor, "batch t"],
        patterns: Float[Tensor, "batch heads n n"] | None = None,
    ) -> Float[Tensor, "batch n vocab"]:
        """Probabilities of the next bracket after the start token and after every token.

        patterns: used as they stand instead of the network's own. A head with weights 0 is off.
        """
        vectors = self._vectors(tokens)
        if patterns is None:
            logits = self.model.net(vectors=vectors)
        else:
            n = vectors.shape[1]
            because = f"{len(vectors)} sentences of {n - 1} tokens and {self.head_count} heads"
            check_shape("patterns", patterns, (len(vectors), self.head_count, n, n), because)
            logits = self.model.net(vectors=vectors, attention=[patterns.to(vectors)])
        return logits[..., : 2 * self.types].softmax(-1).double()

    def _vectors(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch t+1 width"]:
        tokens = as_tokens(tokens, 2 * self.types, device=self.model.net.device)
        assert self.model.first_layer is not None
        started = torch.nn.functional.pad(tokens, (1, 0), value=self.model.start_token)
        return self.model.first_layer(started)

    # ------------------------------------------------------------------ weights in a file

    def weights(self) -> dict[str, Tensor]:
        """Every tensor by name, to save; `from_weights` reads them."""
        shape = self.model.net.shape
        sizes = torch.tensor([self.types, self.max_depth, shape.heads, shape.width])
        state = self.model.net.state_dict()
        return {
            "trained": sizes,
            **{name: part.detach().clone().contiguous() for name, part in state.items()},
        }

    @classmethod
    def from_weights(cls, named: Mapping[str, Tensor]) -> "TrainedHeads":
        """The inverse of `weights`."""
        if "trained" not in named:
            raise UserError("the weights have no trained, the sizes of a trained network")
        types, max_depth, heads, width = (int(size) for size in named["trained"])
        network = cls.new(Language(types, max_depth, "prefixes"), heads, width, seed=0)
        state = {name: part for name, part in named.items() if name != "trained"}
        try:
            network.model.net.load_state_dict(state)
        except RuntimeError:
            raise UserError("the weights are not those of a trained network with heads") from None
        return network


def heads_recipe(steps: int, batch: int = 16, learning_rate: float = 1e-2) -> Recipe:
    """AdamW with a cosine decay, as in the other studies of trained brackets."""
    return Recipe(steps, batch, learning_rate=learning_rate, decay="cosine")


def train(
    networks: Sequence[TrainedHeads],
    recipe: Recipe,
    seeds: Sequence[int],
    *,
    strings: int,
    device: str = "cpu",
) -> None:
    """Train all networks at once, in place, on prefixes; each as it would be alone."""
    law = networks[0].language.law()
    corpus = Corpus.draw(law, strings, TorchRng(DATA_SEED), chunk=law.length, device=device)
    fit_ensemble(
        [network.model for network in networks],
        corpus.sample,
        at_closing_brackets(networks[0].types),
        recipe,
        [TorchRng(seed, device) for seed in seeds],
    )
