"""A verifier that looks at the states of a network: a small classifier on one of its layers.

    P(correct | h) = softmax(W_d ReLU(… W_1 (h - mean) / scale + b_1 …) + b_d)[1]

Class 1 is "correct" [li, 3.2.1.2]. Depth 1 is one linear layer, whose trainable parameters are
those of the thesis' 512 by 2 matrix and a bias; deeper ones are ReLU networks. The targets may be
probabilities instead of right and wrong: then the probe is a value function, regressed on, say,
`values.rollout_values`.

A probe knows the layer that it was trained on and refuses states of another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from triptych.core.display import counted
from triptych.core.protocols import Question
from triptych.core.randomness import TorchRng
from triptych.core.validation import (
    Count,
    Number,
    Numbers,
    UserError,
    as_count,
    as_device,
    as_floats,
    as_integers,
    as_list,
    as_number,
    as_probability,
    as_size,
    set_fields,
    shown,
)
from triptych.training.classifier import train_classifier
from triptych.training.step import Recipe

RECIPE = Recipe(steps=300, batch=2048, learning_rate=3e-3, weight_decay=0.1)
CORRECT = 1  # the class of correct prefixes

Targets = Bool[Tensor, " batch"] | Int[Tensor, " batch"] | Float[Tensor, " batch"] | Numbers


@runtime_checkable
class _Layered(Protocol):
    """A decoder that shows the states of one layer, and says which."""

    @property
    def layer(self) -> int: ...

    def hidden_state(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ width"]:
        """The layer's state at the end of each row."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Probe:
    """log P(correct | state), a `Verifier` that reads states.

    mean, scale   of each feature, in training
    weights       weights[k] is [out, in] of layer k; the last one has two rows, wrong and correct
    layer         of the network whose states it reads; None: it reads no network
    floor         smallest value that it answers as a verifier

    Worked value: one feature, mean 1, scale 2, W = (0, 1)ᵀ, b = 0. The state 3 has scores (0, 1),
    so P(correct) = e / (1 + e), and the state 1 has P(correct) = ½.
    """

    mean: Float[Tensor, " width"]
    scale: Float[Tensor, " width"]
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    layer: int | None = None
    floor: float = 0.0

    def __post_init__(self) -> None:
        floor = as_number("floor", self.floor, at_least=0, below=1)
        set_fields(self, layer=_as_layer(self.layer), floor=floor)
        for name in ("mean", "scale"):
            set_fields(self, **{name: _as_states(getattr(self, name), name)})
        for name in ("weights", "biases"):
            parts = as_list(name, getattr(self, name), "matrices")
            set_fields(self, **{name: tuple(_as_states(part, name) for part in parts)})
        if any(part.ndim != 1 for part in (self.mean, self.scale, *self.biases)):
            raise UserError(
                "the mean, the scale and the biases of a probe have one dimension each",
                parameter="mean",
            )
        if (
            not self.weights
            or len(self.weights) != len(self.biases)
            or (self.biases[-1].shape != (2,))
        ):
            raise UserError(
                f"{len(self.weights)} weights and {len(self.biases)} biases are given; a probe "
                "needs a bias for each of its weights, and two classes"
            )
        sizes = [self.width, *(len(bias) for bias in self.biases)]
        shapes = [self.mean.shape, self.scale.shape, *(weight.shape for weight in self.weights)]
        if shapes != [(self.width,), (self.width,), *((b, a) for a, b in pairwise(sizes))]:
            raise UserError(
                f"mean, scale and the weights of a probe have shapes {[tuple(s) for s in shapes]}; "
                "they must be [width], [width], and [out, in] of each layer",
                parameter="mean",
            )
        for values in (self.mean, self.scale, *self.weights, *self.biases):
            if not torch.isfinite(values).all():
                raise UserError("a probe holds nan or inf; its states or its training were extreme")
        if not (self.scale > 0).all():
            raise UserError(
                "the scale of every feature of a probe must be above 0", parameter="scale"
            )

    def __repr__(self) -> str:
        reads = "no network" if self.layer is None else f"layer {self.layer}"
        layers = counted(len(self.weights), "layer")
        return f"Probe({layers} on {counted(self.width, 'feature')}, reads {reads})"

    @classmethod
    def fit(
        cls,
        states: Numbers,
        correct: Targets,
        *,
        depth: Count = 1,
        width: Count = 256,
        recipe: Recipe = RECIPE,
        seed: Count = 0,
        layer: Count | None = None,
        floor: Number = 0.0,
    ) -> "Probe":
        """Train on states that are correct (True, 1), wrong (False, 0), or correct with a chance.

        depth counts the linear layers, and width is that of the layers between. The result is a
        function of the arguments alone.
        """
        depth, width, seed = as_size("depth", depth), as_size("width", width), _as_seed(seed)
        layer, floor = _as_layer(layer), as_number("floor", floor, at_least=0, below=1)
        _check_recipe(recipe)
        states, labels = _checked_examples(states, correct)
        exact = states.double()
        same = exact.amax(0) == exact.amin(0)  # a feature that never changes is left as it is
        scale = exact.std(0, correction=0).masked_fill(same, 1.0)
        mean = exact.mean(0)
        sizes = [states.shape[1], *[width] * (depth - 1), 2]
        layers = _initial_layers(sizes, states, seed)
        start = cls(
            mean.to(states),
            scale.to(states),
            tuple(weight for weight, _ in layers),
            tuple(bias for _, bias in layers),
            layer,
            floor,
        )
        scaled = start._standardised(states)
        parameters = [parameter for pair in layers for parameter in pair]
        train_classifier(
            lambda rows: start._scores(scaled[rows]),
            labels,
            parameters,
            recipe,
            TorchRng(seed, states.device),
        )
        weights = tuple(weight.detach() for weight in start.weights)
        return replace(start, weights=weights, biases=tuple(b.detach() for b in start.biases))

    @property
    def width(self) -> int:
        """Number of features of a state."""
        return len(self.mean)

    def log_prob_correct(self, states: Numbers) -> Float[Tensor, " batch"]:
        """log P(correct | state) of each state."""
        return self._decision(states).log_softmax(-1)[:, CORRECT]

    def log_value_of(self, states: Numbers) -> Float[Tensor, " batch"]:
        """log max(P(correct | state), floor)."""
        floor = torch.tensor(self.floor, dtype=torch.float64, device=self.mean.device).log()
        return torch.maximum(self.log_prob_correct(states), floor)

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]:
        """log V of each row, from its last state."""
        decoder = asked.decoder
        if self.layer is None:
            raise UserError(
                "this probe does not know its layer: fit it with layer=decoder.layer",
                parameter="layer",
            )
        if not isinstance(decoder, _Layered):
            raise UserError(
                f"a probe reads the states of a network; {type(decoder).__name__} has no "
                "hidden_state and layer (CachedDecoder has)",
                parameter="layer",
            )
        if decoder.layer != self.layer:
            raise UserError(
                f"this probe was trained on layer {self.layer} and the decoder shows layer "
                f"{decoder.layer}: make CachedDecoder(lm, batch, layer={self.layer})",
                parameter="layer",
            )
        return self.log_value_of(decoder.hidden_state(asked.at))

    def score(self, states: Numbers, correct: Targets) -> float:
        """The share of states whose likelier class is the right one; ½ and above is correct."""
        states, labels = _as_states(states), as_labels(correct)
        if states.numel() == 0 or labels.shape != states.shape[:1]:
            raise UserError(
                f"{len(states) if states.ndim else 0} states and "
                f"{len(labels) if labels.ndim else 0} labels (correct): there must be as many, "
                "not 0",
                parameter="states",
            )
        said = self._decision(states).argmax(-1) == CORRECT
        return float((said == (labels >= 0.5)).double().mean())

    def state(self) -> dict[str, Tensor]:
        """Everything as named tensors, as safetensors saves them; `from_state` is the inverse."""
        layer = -1 if self.layer is None else self.layer
        return {
            "mean": self.mean,
            "scale": self.scale,
            "layer": torch.tensor(layer),
            "floor": torch.tensor(self.floor, dtype=torch.float64),
            **{f"weight.{k}": weight for k, weight in enumerate(self.weights)},
            **{f"bias.{k}": bias for k, bias in enumerate(self.biases)},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "Probe":
        """The probe that `state` describes."""
        if not isinstance(state, Mapping):
            raise UserError(
                f"state is a {type(state).__name__}; it must be a dict of tensors, as "
                "probe.state()",
                parameter="state",
            )
        depth = sum(str(name).startswith("weight.") for name in state)
        names = [f"{kind}.{k}" for kind in ("weight", "bias") for k in range(depth)]
        wanted = {"mean", "scale", "layer", "floor", *names}
        if depth == 0 or set(state) != wanted:
            raise UserError(
                "a probe's state has mean, scale, layer, floor, and weight.k and bias.k for "
                f"k = 0, 1, …; given {sorted(state)}",
                parameter="state",
            )
        layer = as_count("layer", state["layer"], at_least=-1)
        return cls(
            state["mean"],
            state["scale"],
            tuple(state[f"weight.{k}"] for k in range(depth)),
            tuple(state[f"bias.{k}"] for k in range(depth)),
            None if layer == -1 else layer,
            as_number("floor", state["floor"]),
        )

    def to(self, device: torch.device | str) -> "Probe":
        """A copy whose tensors are on `device`."""
        device = as_device(device)
        return Probe.from_state({name: value.to(device) for name, value in self.state().items()})

    def _decision(self, states: Numbers) -> Float[Tensor, "batch 2"]:
        states = _as_states(states)
        if states.device != self.mean.device:
            raise UserError(
                f"the states are on {states.device} and the probe is on {self.mean.device}: "
                f"use probe.to({str(states.device)!r})",
                parameter="states",
            )
        if states.ndim != 2 or states.shape[1] != self.width:
            raise UserError(
                f"states have shape {tuple(states.shape)}; this probe reads [batch, {self.width}]",
                parameter="states",
            )
        _check_finite(states)
        scores = self._scores(self._standardised(states.to(self.mean.dtype))).double()
        if not torch.isfinite(scores).all():
            row = int((~torch.isfinite(scores)).any(1).nonzero()[0])
            raise UserError(
                f"the state in row {row} is too far from those of training: its scores overflow"
            )
        return scores

    def _standardised(self, states: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        return (states - self.mean) / self.scale

    def _scores(self, x: Float[Tensor, "batch width"]) -> Float[Tensor, "batch 2"]:
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = F.linear(x if k == 0 else x.relu(), weight, bias)
        return x


def split_score(
    states: Numbers,
    correct: Targets,
    *,
    train: Count = 792,
    repetitions: Count = 10,
    depth: Count = 1,
    width: Count = 256,
    recipe: Recipe = RECIPE,
    seed: Count = 0,
) -> Float[Tensor, " repetitions"]:
    """Accuracy on the states left out, of probes trained on `train` of them, drawn at random.

    The thesis trains on 792 of 882 and has 93 % on the other 90, over 10 repetitions.
    """
    repetitions, train = as_size("repetitions", repetitions), as_size("train", train)
    seed, states, labels = _as_seed(seed), _as_states(states), as_labels(correct)
    _check_recipe(recipe)
    _checked_examples(states, labels)
    if not train < len(states):
        raise UserError(
            f"train is {train} of {len(states)} states; some must be left to judge the probe by",
            parameter="train",
        )
    generator = torch.Generator().manual_seed(seed)
    scores: list[float] = []
    for repetition in range(repetitions):
        order = torch.randperm(len(states), generator=generator).to(states.device)
        seen, unseen = order[:train], order[train:]
        probe = Probe.fit(
            states[seen],
            labels[seen],
            depth=depth,
            width=width,
            recipe=recipe,
            seed=seed + repetition,
        )
        scores.append(probe.score(states[unseen], labels[unseen]))
    return torch.tensor(scores, dtype=torch.float64)


def held_out(labels: Targets, share: Number, *, seed: Count = 0) -> Bool[Tensor, " batch"]:
    """Which examples to leave out of training: a share of each class, at least one, at random.

    Worked value: of 10 correct and 5 wrong examples, a share of 0.2 leaves out 2 and 1.
    """
    kinds = as_labels(labels, "labels") >= 0.5
    share, seed = as_probability("share", share, strictly=True), _as_seed(seed)
    if kinds.ndim != 1:
        raise UserError(
            f"labels has shape {tuple(kinds.shape)}; it must be a list of labels",
            parameter="labels",
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.zeros_like(kinds)
    for kind, word in ((True, "correct"), (False, "wrong")):
        places = torch.nonzero(kinds == kind)[:, 0]
        number = max(1, round(share * len(places)))
        if len(places) <= number:
            raise UserError(
                f"labels has {counted(len(places), f'{word} example')} and {number} would be held "
                "out; give more of them, or a smaller share",
                parameter="labels",
            )
        order = torch.randperm(len(places), generator=generator).to(places.device)
        chosen[places[order[:number]]] = True
    return chosen


def _initial_layers(
    sizes: list[int], like: Tensor, seed: int
) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Weights and biases uniform on ±1/√in, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    layers: list[tuple[nn.Parameter, nn.Parameter]] = []
    for fan_in, fan_out in pairwise(sizes):
        drawn = (torch.rand(fan_out, fan_in + 1, generator=generator) * 2 - 1) * fan_in**-0.5
        theta = drawn.to(like)
        layers.append(
            (nn.Parameter(theta[:, :-1].contiguous()), nn.Parameter(theta[:, -1].contiguous()))
        )
    return layers


def _checked_examples(
    states: Numbers, correct: Targets
) -> tuple[Float[Tensor, "batch width"], Int[Tensor, " batch"] | Float[Tensor, "batch 2"]]:
    """States in float32 or float64, and labels as `train_classifier` takes them."""
    states, labels = _as_states(states), as_labels(correct)
    if states.ndim != 2 or labels.ndim != 1 or len(states) != len(labels) or states.numel() == 0:
        raise UserError(
            f"states have shape {tuple(states.shape)} and correct has {tuple(labels.shape)}; "
            "give one row of features for every label, and at least two",
            parameter="states",
        )
    if states.device != labels.device:
        raise UserError(
            f"the states are on {states.device} and correct is on {labels.device}; they must be "
            "on one device",
            parameter="states",
        )
    _check_finite(states)
    if (labels == 0).all() or (labels == 1).all():
        raise UserError(
            f"all {len(labels)} states are {'correct' if labels[0] == 1 else 'wrong'}: a probe "
            "needs examples of both kinds (correct)"
        )
    if states.dtype not in (torch.float32, torch.float64):
        states = states.float()
    if not labels.is_floating_point():
        return states, labels.long()
    right = labels.to(states)
    return states, torch.stack([1 - right, right], dim=1)


def _as_states(states: Numbers, name: str = "states") -> Float[Tensor, "..."]:
    """Features of any precision; lists and arrays become a tensor."""
    if isinstance(states, Tensor) and states.is_floating_point():
        return states
    return as_floats(name, states, finite=False)


def _check_recipe(recipe: Recipe) -> None:
    if not isinstance(recipe, Recipe):
        raise UserError(
            f"recipe is a {type(recipe).__name__}; it must be a Recipe", parameter="recipe"
        )


def as_labels(
    correct: Targets, name: str = "correct"
) -> Bool[Tensor, "..."] | Int[Tensor, "..."] | Float[Tensor, "..."]:
    """Labels of any type; lists and arrays become a tensor."""
    try:
        array = np.asarray(correct) if isinstance(correct, list | tuple | np.ndarray) else None
    except ValueError:  # rows of several lengths, which `as_floats` says
        array = None
    if isinstance(correct, Tensor) and not correct.is_complex():
        labels = correct
    elif array is not None and array.dtype == bool:
        labels = torch.tensor(array)
    elif array is not None and array.dtype.kind in "iu":
        labels = as_integers(name, array, dimensions=array.ndim)
    else:
        labels = as_floats(name, correct, finite=False)
    if not ((labels >= 0) & (labels <= 1)).all():
        raise UserError(
            "labels are True and False, 0 and 1, or probabilities between 0 and 1; one of "
            f"{name} is not"
        )
    return labels


def _check_finite(states: Tensor) -> None:
    if not torch.isfinite(states).all():
        row = int((~torch.isfinite(states)).any(1).nonzero()[0])
        raise UserError(f"the state in row {row} is not finite: it holds nan or inf")


def _as_layer(layer: Count | None) -> int | None:
    try:
        return None if layer is None else as_count("layer", layer)
    except UserError:
        raise UserError(
            f"layer is {shown(layer)}; give the layer's own number, which a decoder has as "
            "decoder.layer",
            parameter="layer",
        ) from None


def _as_seed(seed: Count) -> int:
    """As torch takes it."""
    return as_count("seed", seed, at_least=-(2**63), at_most=2**64 - 1)
