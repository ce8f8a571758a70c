"""A language model trained on brackets: what the studies of guided generation on Dyck share
[li, 3.2.1].

The language has two bracket types, square ones with probability p. The network learns strings with
p = 0.2 and is asked to complete beginnings of strings with p = 0.8.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.brackets.dyck import Dyck
from triptych.studies.api.study import Bench, Settings, Unit
from triptych.training.corpus import Corpus
from triptych.training.loop import fit, gap_meter
from triptych.training.objectives import next_token
from triptych.training.step import Recipe

UnitT = TypeVar("UnitT", bound=Unit)
NetworkT = TypeVar("NetworkT", bound="DyckNetwork")

# What decides a network's weights besides its seed.
NETWORK = (
    "length",
    "square",
    "q",
    "layers",
    "heads",
    "width",
    "feedforward",
    "strings",
    "steps",
    "batch",
    "learning_rate",
    "warmup",
    "weight_decay",
    "ema",
)


@dataclass(frozen=True, kw_only=True)
class DyckNetwork:
    """The language, the network and its training, as fields of settings and of units alike; the
    thesis' setting is the default.

    length       tokens of a string, its end token not counted
    square       probability of square brackets in training; ood_square: in the prompts
    q            probability to open where both moves are free
    strings      training strings, drawn once and seen in random order
    shortest_prompt, longest_prompt   tokens of a prompt, uniform
    top_p        of the nucleus that completes prompts unless said otherwise
    mistakes     wrong strings gathered to train the probe, and as many again for the tables
    most_prompts how many prompts may be tried in gathering them
    """

    length: int = 32
    square: float = 0.2
    ood_square: float = 0.8
    q: float = 0.5
    layers: int = 6
    heads: int = 8
    width: int = 512
    feedforward: int = 1024
    strings: int = 300_000
    steps: int = 9375
    batch: int = 32
    learning_rate: float = 3e-4
    warmup: int = 100
    weight_decay: float = 0.1
    ema: float = 0.999
    shortest_prompt: int = 25
    longest_prompt: int = 31
    top_p: float = 0.9
    mistakes: int = 441
    most_prompts: int = 100_000

    @classmethod
    def like(cls: "type[NetworkT]", network: "DyckNetwork", **own: Any) -> "NetworkT":
        """The fields of a network, and the class's own."""
        return cls(**(vars(network) | own))


@dataclass(frozen=True, kw_only=True)
class Networks(Settings):
    """How many networks are trained, and the seed of the first."""

    seeds: int = 5
    first_seed: int = 0


# Networks that train in a second, and in a minute or two.
TINY = DyckNetwork(
    length=12,
    layers=1,
    heads=2,
    width=16,
    feedforward=32,
    strings=500,
    steps=60,
    learning_rate=1e-2,
    warmup=10,
    ema=0.9,
    shortest_prompt=6,
    longest_prompt=10,
    most_prompts=1000,
)
SMALL = DyckNetwork(
    layers=2,
    heads=4,
    width=128,
    feedforward=256,
    strings=64_000,
    steps=2000,
    learning_rate=1e-3,
    ema=0.99,
    most_prompts=20_000,
)


def one_for_each_network(kind: type[UnitT], settings: Networks) -> Sequence[UnitT]:
    """A unit for every seed, with the fields of the settings."""
    first = settings.first_seed
    return [kind.of(settings, seed=seed) for seed in range(first, first + settings.seeds)]


def language(p: DyckNetwork, square: float, device: str) -> Dyck:
    """Strings of `length` brackets and an end token, square ones with this probability."""
    types = torch.tensor([square, 1 - square], dtype=torch.float64)
    return Dyck.fixed_length(p.length, type_probs=types, q=p.q, end=True, device=device)


class Trained(NamedTuple):
    """The network, its distance to the law it learned, and the prompts' law."""

    lm: CausalLM
    kl: float
    law: Dyck
    ood: Dyck


def trained(p: DyckNetwork, bench: Bench, seed: int) -> Trained:
    """The network of this seed, trained once and kept in the cache."""
    law = language(p, p.square, bench.device)
    # One position more than the tokens, so that a full string has a state to be judged by.
    shape = Shape(
        vocab_size=law.vocab_size + 1,
        length=law.length + 1,
        width=p.width,
        layers=p.layers,
        heads=p.heads,
        feedforward=p.feedforward,
        positions="rotary",
    )
    key = {"network": "dyck lm", "seed": seed} | {name: getattr(p, name) for name in NETWORK}
    kept = bench.tensors(key, lambda: _train(p, bench, law, shape, seed))
    net = Transformer(shape, seed=seed, device=bench.device)
    net.load_state_dict({name: value for name, value in kept.items() if name != "kl"})
    net.requires_grad_(False).eval()
    return Trained(CausalLM(net), float(kept["kl"]), law, language(p, p.ood_square, bench.device))


def _train(p: DyckNetwork, bench: Bench, law: Dyck, shape: Shape, seed: int) -> dict[str, Tensor]:
    lm = CausalLM(Transformer(shape, seed=seed, device=bench.device))
    strings = TorchRng(seed)
    corpus = Corpus.draw(law.to("cpu"), p.strings, strings, chunk=law.length, device=bench.device)
    recipe = Recipe(
        steps=p.steps,
        batch=p.batch,
        learning_rate=p.learning_rate,
        warmup=p.warmup,
        decay="linear",
        weight_decay=p.weight_decay,
        ema=p.ema,
    )
    history = fit(
        lm,
        corpus.sample,
        next_token(),
        recipe,
        TorchRng(seed + 1, bench.device),
        meter=gap_meter(next_token(law), law.sample(512, TorchRng(seed + 2, bench.device))),
    )
    kl = torch.tensor(history.gaps[-1][1].kl, dtype=torch.float64)
    return {**lm.net.state_dict(), "kl": kl}
