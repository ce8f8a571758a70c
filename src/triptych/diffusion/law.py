"""The exact law of a sampler on a small model, step by step.

A step draws what it draws given the canvas, and what the canvas was before does not matter. So the
law of canvases after a step is the law before it times the law of one step, which `exact_law`
enumerates; equal canvases are put together. That needs as many branches as one step has, times the
canvases that are possible; enumerating whole runs needs their product over all steps.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.enumeration import ExactLaw, exact_law
from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng
from triptych.core.validation import Count, Hidden, Tokens, UserError, as_size
from triptych.diffusion.denoiser import Canvas, Denoiser, as_denoiser
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.sampler import Sampler
from triptych.inference.guided.transforms import Transform

MAX_STATES = 2**18


class State(NamedTuple):
    """One canvas and what belongs to it, as plain values.

    tokens   -1 where masked
    before   laws that a self-conditioned denoiser reads, as bytes
    """

    tokens: tuple[int, ...]
    open: bool
    memory: tuple[float, ...]
    before: bytes | None


def sampler_law(
    sampler: Sampler,
    model: object,
    tokens: Tokens,
    hidden: Hidden | None = None,
    *,
    block_length: Count | None = None,
    transform: Transform | None = None,
    max_states: Count = MAX_STATES,
) -> ExactLaw:
    """The law of what the sampler writes on one row, text by text.

    Worked value: p uniform on {00, 11}; two positions in one round: each of the four texts with ¼;
    one position a round: p.
    """
    max_states = as_size("max_states", max_states)
    remembered = _Remembered(as_denoiser(model))
    run, blocks = sampler.start(
        remembered, tokens, hidden, TorchRng(0), block_length=block_length, transform=transform
    )
    if len(run.tokens) != 1:
        raise UserError(
            f"tokens has {len(run.tokens)} rows; the law is that of one row", parameter="tokens"
        )
    device = run.tokens.device

    def stage(states: dict[State, float], move: Callable[[Denoising], None]) -> dict[State, float]:
        """The law of canvases after a move that all open rows make."""
        after: dict[State, float] = defaultdict(float)
        for state, mass in states.items():

            def one(rng: Rng, state: State = state) -> State:
                put(state)
                run.rng = rng
                move(run)
                return take()

            for other, chance in exact_law(one).probs.items():
                after[other] += mass * chance
        if len(after) > max_states:
            raise UserError(
                f"the sampler reaches {len(after)} canvases, more than {max_states}; make the "
                "model smaller, or the block shorter",
                parameter="max_states",
            )
        return after

    def put(state: State) -> None:
        """Make the cursor stand where the state says."""
        row = torch.tensor([state.tokens], device=device)
        run.tokens, run.masked = row.clamp(min=0), row < 0
        run.open = torch.tensor([state.open], device=device)
        run.memory = torch.tensor([state.memory], dtype=torch.float64, device=device)
        run.before = None if state.before is None else kept[state.before]

    kept: dict[bytes, Float[Tensor, "batch block vocab"]] = {}

    def take() -> State:
        """What the cursor says now."""
        row = run.tokens.masked_fill(run.masked, -1)[0]
        key = None
        if run.before is not None:
            key = run.before.cpu().numpy().tobytes()
            kept[key] = run.before
        return State(tuple(row.tolist()), bool(run.open[0]), tuple(run.memory[0].tolist()), key)

    states: dict[State, float] = {take(): 1.0}
    for free in blocks:
        states = stage(states, lambda run, free=free: run.begin(free))
        run.free = free
        size = int(free.sum())
        for number in range(sampler.rounds(size)):
            going = {state: mass for state, mass in states.items() if state.open}
            if not going:
                break
            moved = stage(going, lambda run, number=number: sampler.advance(run, number))
            for state, mass in states.items():
                if not state.open:
                    moved[state] = moved.get(state, 0.0) + mass
            states = moved
        states = stage(states, lambda run: sampler.end(run))
    texts: dict[tuple[int, ...], float] = defaultdict(float)
    for state, mass in states.items():
        texts[state.tokens] += mass
    return ExactLaw(dict(texts))


class _Remembered:
    """A denoiser that is asked each question once."""

    def __init__(self, denoiser: Denoiser) -> None:
        self.denoiser = denoiser
        self.answers: dict[object, Float[Tensor, "asked vocab"]] = {}
        self.reads_itself = bool(getattr(denoiser, "reads_itself", False))

    @property
    def vocab_size(self) -> int:
        return self.denoiser.vocab_size

    def clean_log_probs(
        self, canvas: Canvas, asked: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "asked vocab"]:
        """The answer, from memory where the canvas was asked about before."""
        tokens: Int[Tensor, "rows length"] = canvas.tokens.masked_fill(canvas.hidden, -1)
        before = None if canvas.before is None else canvas.before.cpu().numpy().tobytes()
        key = (
            tuple(map(tuple, tokens.tolist())),
            tuple(map(tuple, canvas.noisy.tolist())),
            tuple(map(tuple, asked.tolist())),
            (canvas.survival, canvas.start, canvas.stop, before),
        )
        if key not in self.answers:
            self.answers[key] = self.denoiser.clean_log_probs(canvas, asked)
        return self.answers[key]
