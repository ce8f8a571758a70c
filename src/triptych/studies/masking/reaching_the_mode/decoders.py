"""Propositions 4.1.2 and 4.1.3: networks written down by hand, decoders enumerated, k-Gibbs.

A parallel decoder is enumerated by running its code on every choice that it can make
(`exact_transition_matrix`); nothing of that knows that the answer should be a product law.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.divergences import total_variation
from triptych.core.enumeration import exact_transition_matrix
from triptych.core.logspace import log_normalise
from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Rng
from triptych.core.table import Table, all_sequences
from triptych.inference.chains.parallel import independent_step
from triptych.inference.guided.transforms import argmax, nucleus
from triptych.models import constructions
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.ising import Ising
from triptych.studies.api.study import Unit
from triptych.studies.masking.reaching_the_mode.rows import (
    BlockStep,
    DecoderStep,
    MadeLaw,
    MadeMap,
    MadeZeros,
)
from triptych.theory.masking import kernels, parallel
from triptych.theory.masking.blocks.dynamics import BlockDynamics
from triptych.theory.masking.kernels import Conditionals

_STEPS = 7  # of a map that is applied again and again
_LENGTH = 3  # of the sequences of bits that decoders are enumerated on
_DROPPED = -40.0  # log-probability below which a truncating sampler drops a token
_NUCLEUS = 0.8
_SOFT = 0.3  # scale of random weights: with larger ones laws are near point masses

Step = Callable[[Int[Tensor, "1 length"], Rng], Int[Tensor, "1 length"]]


@dataclass(frozen=True)
class WriteDecoders(Unit):
    """Random maps on V^N sequences, decoders and samplers of one seed."""

    maps: tuple[str, ...]


def write_decoders(
    unit: WriteDecoders, rng: Rng
) -> Iterable[MadeMap | MadeLaw | MadeZeros | DecoderStep | BlockStep]:
    """Networks by hand, networks with random weights, and the samplers of Ising models."""
    for name in unit.maps:
        yield _made_map(name, unit.seed, rng)
    wanted = torch.rand(2**_LENGTH, _LENGTH, 2, generator=torch.Generator().manual_seed(unit.seed))
    wanted = wanted.double()
    wanted /= wanted.sum(-1, keepdim=True)
    by_hand = constructions.compiled_law(wanted)
    chain = _enumerated(by_hand.sample, _LENGTH)
    off = (chain - parallel.product_chain(wanted)).abs().max()
    yield MadeLaw(seed=unit.seed, states=len(wanted), error=float(off))
    yield _with_zeros(wanted, unit.seed)
    yield _decoder_step("weights by hand", chain, unit.seed)
    for name, step in _random_decoders(unit.seed).items():
        yield _decoder_step(f"random weights, {name}", _enumerated(step, _LENGTH), unit.seed)
    models = {"random couplings": Ising.random(3, scale=1.0, seed=unit.seed)}
    if unit.seed == 0:
        models["pair, J = 0"] = Ising.chain(2, 0.0)
        models["pair, J = 1"] = Ising.chain(2, 1.0)
        models["clique, J = 1"] = Ising.clique_and_free(4, 3, 1.0, 0.3)
    for name, ising in models.items():
        yield from _samplers(name, ising, unit.seed)


def _made_map(name: str, seed: int, rng: Rng) -> MadeMap:
    vocab, length = sizes_of(name)
    states = all_sequences(vocab, length)
    uniform = torch.full((1, len(states)), 1 / len(states), dtype=torch.float64).log()
    image = rng.categorical(uniform, torch.zeros(len(states), dtype=torch.long))
    net = constructions.compiled_map(states[image], vocab)
    at, found, wrong = torch.arange(len(states)), states, 0
    for _ in range(_STEPS):
        at, found = image[at], net.argmax(found)
        wrong += int((found != states[at]).any(-1).sum())
    return MadeMap(seed=seed, name=name, states=len(states), steps=_STEPS, wrong=wrong)


def sizes_of(name: str) -> tuple[int, int]:
    """V and N of "V^N". Worked value: "3^2" is (3, 2)."""
    vocab, length = name.split("^")
    return int(vocab), int(length)


def _with_zeros(laws: Float[Tensor, "states length vocab"], seed: int) -> MadeZeros:
    """The same laws with every other one a point mass, which a softmax cannot be."""
    sure = torch.eye(2, dtype=torch.float64)[laws.argmax(-1)]
    odd = (torch.arange(laws[..., 0].numel()) % 2 == 1).reshape(*laws.shape[:2], 1)
    wanted = torch.where(odd, sure, laws)
    made = constructions.compiled_law(wanted).log_probs(all_sequences(2, _LENGTH))
    kept = log_normalise(made.masked_fill(made < _DROPPED, -torch.inf))
    return MadeZeros(
        seed=seed,
        zeros=int((wanted == 0).sum()),
        leak=float(made.exp()[wanted == 0].max()),
        softmax_error=float((made.exp() - wanted).abs().max()),
        truncated_error=float((kept.exp() - wanted).abs().max()),
        zeros_left=int((kept[wanted == 0] > -torch.inf).sum()),
    )


# ------------------------------------------------------------------ decoders


def _random_decoders(seed: int) -> Mapping[str, Step]:
    """Ways to decode a network with random weights in parallel [li, (4.61)-(4.63)]."""
    shape = Shape(3, _LENGTH, width=8, layers=2, heads=2, causal=False)
    lm = MaskedLM(Transformer(shape, seed=seed, init_scale=_SOFT, dtype=torch.float64))

    def laws(tokens: Int[Tensor, "1 length"]) -> Float[Tensor, "length vocab"]:
        return lm.token_logits(tokens).detach().log_softmax(-1)[0]

    return {
        "drawn": lambda tokens, rng: rng.categorical(laws(tokens))[None],
        "drawn from the nucleus": lambda tokens, rng: rng.categorical(
            nucleus(_NUCLEUS)(laws(tokens))
        )[None],
        "argmax": lambda tokens, rng: rng.categorical(argmax(laws(tokens)))[None],
        "each position given the others": lambda tokens, rng: independent_step(lm, tokens, rng),
    }


def _enumerated(step: Step, length: int) -> Float[Tensor, "states states"]:
    """The transition matrix of a sampler on sequences of bits."""

    def move(state: tuple[int, ...], rng: Rng) -> tuple[int, ...]:
        return tuple(step(torch.tensor([state]), rng)[0].tolist())

    return exact_transition_matrix([tuple(x) for x in all_sequences(2, length).tolist()], move)


def _decoder_step(name: str, chain: Float[Tensor, "states states"], seed: int) -> DecoderStep:
    check = parallel.is_product(chain, 2, len(chain).bit_length() - 1)
    return DecoderStep(seed=seed, name=name, distance=check.distance, correlation=check.correlation)


# ------------------------------------------------------------------ samplers of Ising models


def _samplers(name: str, ising: Ising, seed: int) -> Iterable[DecoderStep | BlockStep]:
    """How far k-Gibbs is from a product, and what drawing its blocks factorised does to the law."""
    table, length = Table.of(ising), ising.length
    truth, coupled = table.log_probs.exp(), bool(ising.coupling.any())
    conditionals = Conditionals.of(table, length)
    together = _enumerated(lambda tokens, rng: independent_step(ising, tokens, rng), length)
    yield _decoder_step(f"independent parallel, {name}", together, seed)
    for k in range(1, length + 1):
        masks = MaskLaw.of_size(length, k)
        chain = BlockDynamics(table, masks).transition()
        apart = kernels.block_matrix(conditionals, masks, kernels.filled_at_once(conditionals))
        closest = parallel.closest_product(chain, 2, length)
        check = parallel.is_product(chain, 2, length)
        joint_off, factorised_off, closest_off, independent_off = (
            float(total_variation(kernels.stationary_law(matrix).log(), truth.log()))
            for matrix in (chain, apart, closest, together)
        )
        yield BlockStep(
            seed=seed,
            model=name,
            k=k,
            coupled=coupled,
            distance=check.distance,
            correlation=check.correlation,
            given_block=max(
                parallel.is_product(given_block(truth, hidden), 2, length).distance
                for hidden in masks.blocks
            ),
            joint_off=joint_off,
            factorised_off=factorised_off,
            closest_off=closest_off,
            independent_off=independent_off,
        )


def given_block(
    probs: Float[Tensor, " states"], hidden: Bool[Tensor, " length"]
) -> Float[Tensor, "states states"]:
    """P(y | x) of the step that redraws these bits jointly: p(y) on the y that agree with x else.

    Worked value: p uniform on {00, 11}, the second bit redrawn: 00 and 11 stay.
    """
    shown = all_sequences(2, len(hidden))[:, ~hidden]
    agree = (shown[:, None] == shown[None]).all(-1)
    matrix = torch.where(agree, probs, 0.0)
    return matrix / matrix.sum(-1, keepdim=True)
