"""Hugging Face diffusers: schedulers of discrete diffusion."""

import itertools
import math
from typing import Any

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("diffusers")

FLOAT32 = 1e-6
TOKENS, PLACES, STEPS = 3, 3, 8


# DiscreteDDIMScheduler, with a truth that can be enumerated.


def _truth() -> torch.Tensor:
    """p(x) of all strings of three tokens out of three: softmax of 2 randn, torch seed 0, in float64."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(TOKENS**PLACES, dtype=torch.float64, generator=generator)
    return logits.softmax(-1)


def _strings() -> list[tuple[int, ...]]:
    return list(itertools.product(range(TOKENS), repeat=PLACES))


def _noised(clean: torch.Tensor, alpha: float) -> dict[tuple[int, ...], float]:
    """p_s: the law of a string whose tokens each survive with probability alpha and else become uniform."""
    found = {}
    for x in _strings():
        chance = 0.0
        for y, p in zip(_strings(), clean.tolist(), strict=True):
            chance += p * math.prod(
                alpha * (a == b) + (1 - alpha) / TOKENS for a, b in zip(x, y, strict=True)
            )
        found[x] = chance
    return found


def _denoiser(clean: torch.Tensor, alpha: float, x: tuple[int, ...]) -> torch.Tensor:
    """log p(x_0 at each place | x_s = x), exactly: what a perfect network answers."""
    posterior = torch.zeros(PLACES, TOKENS, dtype=torch.float64)
    for y, p in zip(_strings(), clean.tolist(), strict=True):
        chance = p * math.prod(
            alpha * (a == b) + (1 - alpha) / TOKENS for a, b in zip(x, y, strict=True)
        )
        for place, token in enumerate(y):
            posterior[place, token] += chance
    return (posterior / posterior.sum(-1, keepdim=True)).log()[None]


def _correct(selection: str) -> Case:
    from diffusers import DiscreteDDIMScheduler

    scheduler = DiscreteDDIMScheduler(
        num_inference_steps=STEPS, corrector_steps=1, corrector_selection=selection
    )
    clean, step = _truth(), 3
    alpha = (step + 1) / STEPS
    answers = {x: _denoiser(clean, alpha, x) for x in _strings()}

    def program(x: tuple[int, ...]) -> tuple[int, ...]:
        after = scheduler.step_correct(answers[x], step, torch.tensor([x]))
        return tuple(after.prev_sample[0].tolist())

    p_s = _noised(clean, alpha)
    return Case(program, p_s, start=p_s)


KEEPS_P_S = "The sweep preserves `p_s`, so it refines the sample without changing its marginal"
SWEEP = "docstring of DiscreteDDIMScheduler.step_correct"
LOOKS = (
    "the place to redraw is chosen by looking at its token, so that the law of the place given the other tokens enters. "
    "An exact denoiser, 3 tokens, 3 places, alpha 0.5, one sweep from p_s"
)


@SHELF.add(
    "DiscreteDDIMScheduler.step_correct, default selection",
    promise=KEEPS_P_S,
    source=SWEEP,
    note=f"lowest_log_margin: {LOOKS}. The pipeline's default is no sweep",
    issue="diffusers-step-correct.md",
)
def lowest_log_margin() -> Case:
    return _correct("lowest_log_margin")


@SHELF.add(
    "DiscreteDDIMScheduler.step_correct, lowest_current_prob",
    promise=KEEPS_P_S,
    source=SWEEP,
    note=LOOKS,
    issue="diffusers-step-correct.md",
)
def lowest_current_prob() -> Case:
    return _correct("lowest_current_prob")


@SHELF.add(
    "DiscreteDDIMScheduler.step_correct, lowest_maxprob",
    promise=KEEPS_P_S,
    source=SWEEP,
    note="the place is chosen by the best probability at each place, which does not look at the place's own token, "
    "but at the others, which change with it: the least of the three errors",
    issue="diffusers-step-correct.md",
)
def lowest_maxprob() -> Case:
    return _correct("lowest_maxprob")


@SHELF.add(
    "DiscreteDDIMScheduler.step_correct, random",
    promise=KEEPS_P_S,
    source=SWEEP,
    note="the same setting with corrector_selection='random'",
)
def random_places() -> Case:
    return _correct("random")


@SHELF.add(
    "DiscreteDDIMScheduler.step",
    promise="samples every block position from the exact posterior q(x_s | x_t, x0)",
    source="docstring of DiscreteDDIMScheduler",
    note="two places, three tokens, step 3 of 8, temperature 1: x0 is drawn first, then the posterior",
    rounding=FLOAT32,
)
def ancestral() -> Case:
    from diffusers import DiscreteDDIMScheduler

    scheduler = DiscreteDDIMScheduler(num_inference_steps=STEPS)
    logits = _logits(places=2)
    before, step = (0, 2), 3

    def program() -> tuple[int, ...]:
        after = scheduler.step(logits, step, torch.tensor([before]), temperature=1.0)
        return tuple(after.prev_sample[0].tolist())

    alpha_t, alpha_s = step / STEPS, (step + 1) / STEPS
    survival = alpha_t / alpha_s
    laws = []
    for row, x_t in zip(logits[0].tolist(), before, strict=True):
        mixed = dict.fromkeys(range(TOKENS), 0.0)
        for x_0, p in definitions.softmax(row).items():
            posterior = definitions.normalised(
                {
                    x: (survival * (x == x_t) + (1 - survival) / TOKENS)
                    * (alpha_s * (x == x_0) + (1 - alpha_s) / TOKENS)
                    for x in range(TOKENS)
                }
            )
            for x, q in posterior.items():
                mixed[x] += p * q
        laws.append(mixed)
    return Case(program, definitions.product(*laws))


def _logits(places: int, tokens: int = TOKENS, seed: int = 1, dtype: Any = torch.float64) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(1, places, tokens, dtype=dtype, generator=generator)


@SHELF.add(
    "EntropyBoundScheduler.step",
    promise="Accept the lowest-entropy positions under the entropy bound and renoise the rest",
    source="docstring of EntropyBoundScheduler.step",
    note="three places, three tokens, bound 0.5; candidates at the annealed temperature",
    rounding=FLOAT32,
)
def entropy_bound() -> Case:
    from diffusers import EntropyBoundScheduler

    from samplers.transformers import entropy_bounded

    scheduler = EntropyBoundScheduler(entropy_bound=0.5, num_inference_steps=4)
    logits = _logits(places=3)

    def program() -> tuple[int, ...]:
        after = scheduler.step(logits, 1, torch.tensor([[0, 1, 2]]))
        return tuple(after.prev_sample[0].tolist())

    temperature = 0.4 + (0.8 - 0.4) * 3 / 4
    laws = [definitions.softmax(row, temperature) for row in logits[0].tolist()]
    return Case(program, definitions.product(*entropy_bounded(laws, 0.5)))


@SHELF.add(
    "BlockRefinementScheduler.step, masks, top_k and top_p",
    promise="samples candidate tokens from model logits and commits those with the highest confidence",
    source="docstring of BlockRefinementScheduler",
    note="three masked places of four tokens, one is committed; temperature 0.7, top_k 3, top_p 0.8, in this order",
    rounding=FLOAT32,
)
def block_refinement() -> Case:
    from diffusers import BlockRefinementScheduler

    scheduler = BlockRefinementScheduler(block_length=3, num_inference_steps=3, threshold=2.0)
    scheduler.set_timesteps(3, block_length=3)
    logits, mask = _logits(places=3, tokens=4), 9

    def program() -> tuple[int, ...]:
        after = scheduler.step(
            logits,
            0,
            torch.full((1, 3), mask),
            mask_token_id=mask,
            temperature=0.7,
            top_k=3,
            top_p=0.8,
        )
        return tuple(after.prev_sample[0].tolist())

    laws = [
        definitions.nucleus(definitions.top_k(definitions.softmax(row, 0.7), 3), 0.8)
        for row in logits[0].tolist()
    ]

    def committed(drawn: tuple[int, ...]) -> tuple[int, ...]:
        confidence = [law[x] for law, x in zip(laws, drawn, strict=True)]
        best = max(range(3), key=lambda i: confidence[i])
        return tuple(x if i == best else mask for i, x in enumerate(drawn))

    return Case(program, definitions.merged(definitions.product(*laws), committed))


@SHELF.add(
    "mask_by_random_topk of AmusedScheduler",
    promise="Mask tokens by selecting the top-k lowest confidence scores with temperature-based randomness",
    source="docstring of mask_by_random_topk",
    note="two of four places: the others are drawn one after another with weights p ** (1 / temperature), "
    "which is what Gumbel noise on log p gives",
    rounding=FLOAT32,
)
def random_topk() -> Case:
    from diffusers.schedulers.scheduling_amused import mask_by_random_topk

    confidence, temperature = [0.1, 0.2, 0.3, 0.4], 0.5
    probs = torch.tensor([confidence])

    def program() -> tuple[bool, ...]:
        return tuple(mask_by_random_topk(torch.tensor([[2]]), probs, temperature)[0].tolist())

    kept = definitions.ordered_without_replacement([p ** (1 / temperature) for p in confidence], 2)
    return Case(
        program, definitions.merged(kept, lambda chosen: tuple(i not in chosen for i in range(4)))
    )


@SHELF.add(
    "AmusedScheduler.step",
    promise="iteratively unmasks tokens based on their confidence scores",
    source="docstring of AmusedScheduler",
    note="three masked places, two tokens, linear schedule, step 1 of 3: one place is masked again",
    rounding=FLOAT32,
)
def amused() -> Case:
    from diffusers import AmusedScheduler

    mask = 9
    scheduler = AmusedScheduler(mask_token_id=mask, masking_schedule="linear")
    scheduler.set_timesteps(3, temperature=(2, 0))
    logits = _logits(places=3, tokens=2, dtype=torch.float32)

    def program() -> tuple[int, ...]:
        after = scheduler.step(logits, 1, torch.full((1, 3), mask))
        return tuple(after.prev_sample[0].tolist())

    laws = [definitions.softmax(row) for row in logits[0].double().tolist()]
    target: definitions.Law = {}
    for drawn, p in definitions.product(*laws).items():
        # At the second of three steps the temperature is 1, and one place of three is masked again.
        weights = [law[x] for law, x in zip(laws, drawn, strict=True)]
        for kept, q in definitions.ordered_without_replacement(weights, 2).items():
            after = tuple(x if i in kept else mask for i, x in enumerate(drawn))
            target[after] = target.get(after, 0.0) + p * q
    return Case(program, target)


@SHELF.add(
    "VQDiffusionScheduler.step",
    promise="p(x_{t-1} | x_t) = sum( q(x_t | x_{t-1}) * q(x_{t-1} | x_0) * p(x_0) / q(x_t | x_0) )",
    source="docstring of VQDiffusionScheduler.q_posterior",
    note="three classes and the mask, one pixel that is shown, step 4 of 10; held against the product of its matrices",
    rounding=1e-5,
)
def vq_diffusion() -> Case:
    from diffusers import VQDiffusionScheduler

    # Schedules milder than the default, so that every class has mass.
    scheduler = VQDiffusionScheduler(4, 10, 0.9, 0.1, 0.05, 0.8)
    logits = torch.tensor([0.3, -0.4, 1.0]).log_softmax(-1)
    t, x_t = 4, 1

    def program() -> int:
        return int(
            scheduler.step(logits[None, :, None], t, torch.tensor([[x_t]])).prev_sample[0, 0]
        )

    def matrix(a: float, b: float, c: float) -> torch.Tensor:
        """q(after | before) as matrix[after, before]: stay, any class, the mask."""
        q = torch.full((4, 4), b, dtype=torch.float64)
        q += a * torch.eye(4, dtype=torch.float64)
        q[3] = c
        q[:, 3] = torch.tensor([0.0, 0.0, 0.0, 1.0])
        return q

    def rates(names: tuple[str, ...], at: int) -> list[float]:
        return [float(getattr(scheduler, name)[at].double().exp()) for name in names]

    one = matrix(*rates(("log_at", "log_bt", "log_ct"), t))
    before = matrix(*rates(("log_cumprod_at", "log_cumprod_bt", "log_cumprod_ct"), t - 1))
    whole = one @ before
    weights = {}
    for x in range(4):
        weights[x] = sum(
            float(one[x_t, x] * before[x, x_0] * p / whole[x_t, x_0])
            for x_0, p in definitions.softmax(logits.double().tolist()).items()
        )
    return Case(program, definitions.normalised(weights))
