"""A training step of the masked LM against Hugging Face's BertForMaskedLM of the same size.

    python -m benchmarks.network [--device cuda] [--file FILE]

Six layers, width 768, 12 heads, as in the head and prompt tuning experiments: 8 x 512 tokens on a
GPU in bfloat16, 2 x 128 tokens on a CPU in float32. Forward, loss at the masked tokens (5 %),
backward and AdamW step, no dropout in either network: both compute the same function of their
weights. Compiled: by torch.compile. Recorded: the whole step as a CUDA graph, around either
network. Where ours is recorded its last layer answers where it is scored alone, as in `fit`. Needs
torch, numpy, scipy, jaxtyping and transformers only.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import torch

from triptych.core.files import write_json
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.training.loop import loss_of_answers
from triptych.training.objectives import Prediction
from triptych.training.recorded import RecordedSteps
from triptych.training.step import Descent, Recipe

Row = dict[str, Any]
Step = Callable[[Sequence[torch.Tensor]], Any]
Loss = Callable[[Sequence[torch.Tensor]], torch.Tensor]
How = Literal["plain", "compiled", "compiled and recorded"]
PAIRS: list[tuple[How, How]] = [
    ("compiled and recorded", "compiled and recorded"),
    ("compiled and recorded", "compiled"),
    ("compiled", "compiled"),
    ("plain", "plain"),
]
VOCAB, LENGTH, WIDTH, LAYERS, HEADS, MASKED = 16, 512, 768, 6, 12, 0.05


def ours(device: str, how: How) -> Step:
    """A function that makes one training step."""
    shape = Shape.bert(VOCAB, LENGTH, width=WIDTH, layers=LAYERS, heads=HEADS)
    model = MaskedLM(Transformer(shape, seed=0, device=device, init="bert"))
    recorded = how == "compiled and recorded"
    recipe = Recipe(steps=1, autocast="none" if device == "cpu" else "bfloat16")

    def loss(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        prediction = Prediction.of(inputs)
        most = 80 if recorded else 0  # what `places_needed` finds for 5 % of 512 tokens
        return loss_of_answers(model, prediction, recipe, most=most, cached=not recorded)

    return _stepper(model.net, loss, device, how)


def theirs(device: str, how: How) -> Step:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    net: Any = BertForMaskedLM(config)
    net = net.to(device)

    def loss(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        seen, tokens, scored = inputs
        on_gpu, cached = device != "cpu", how != "compiled and recorded"
        half = torch.autocast("cuda", torch.bfloat16, enabled=on_gpu, cache_enabled=cached)
        with half if on_gpu else nullcontext():
            logits = net(seen).logits[..., : VOCAB - 1]
        labels = tokens.masked_fill(~scored, -100)
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    return _stepper(net, loss, device, how)


class Recorded:
    """Steps that are recorded and replayed, one after the other."""

    def __init__(self, steps: RecordedSteps) -> None:
        self.steps, self.done = steps, itertools.count()

    def __call__(self, inputs: Sequence[torch.Tensor]) -> None:
        self.steps.step(next(self.done), inputs)


def _not_recorded(step: Step) -> str | None:
    """Why a step that should be replayed is not; None where all is as it says."""
    return step.steps.failed if isinstance(step, Recorded) else None


def _stepper(net: torch.nn.Module, loss: Loss, device: str, how: How) -> Step:
    on_gpu = device != "cpu"
    optimiser = torch.optim.AdamW(net.parameters(), 1e-4, fused=on_gpu)
    loss = loss if how == "plain" else torch.compile(loss)
    if how == "compiled and recorded":
        recipe = Recipe(steps=1_000_000, learning_rate=1e-4, weight_decay=1e-2)
        steps = RecordedSteps(Descent(recipe, list(net.parameters()), recorded=on_gpu), loss)
        return Recorded(steps)

    def step(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        value = loss(inputs)
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        optimiser.step()
        return value

    return step


def run(device: str) -> Iterator[Row]:
    """Interleaved turns; the ratio of each turn is what counts."""
    batch, length, turns, steps = (8, 512, 9, 20) if device != "cpu" else (2, 128, 7, 1)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCAB - 1, (batch, length), generator=generator).to(device)
    scored = (torch.rand(tokens.shape, generator=generator) < MASKED).to(device)
    inputs = [tokens.masked_fill(scored, VOCAB - 1), tokens, scored]
    for our_way, their_way in PAIRS[-1:] if device == "cpu" else PAIRS:
        mine, peer = ours(device, our_way), theirs(device, their_way)
        for step in (mine, peer):
            for _ in range(6 if device != "cpu" else 1):  # a recording is made after three
                step(inputs)
        times = []
        for _ in range(turns):
            times.append([_seconds(step, inputs, steps, device) for step in (mine, peer)])
        ratios = [b / a for a, b in times]
        a, b = (statistics.median(column) for column in zip(*times, strict=True))
        yield {
            "what": f"training step, 6 x 768, {batch} x {length} tokens, {_where(device)}"
            + (f", ours {our_way}" if our_way != "plain" else "")
            + (f", theirs {their_way}" if their_way != "plain" else ""),
            "peer": "transformers BertForMaskedLM",
            "bar": 1.0 if device == "cpu" else 1.3,
            "ours": a,
            "theirs": b,
            "ratio": statistics.median(ratios),
            "low": min(ratios),
            "high": max(ratios),
            "tokens_per_second": batch * length / a,
            "ours_not_recorded": _not_recorded(mine),
            "theirs_not_recorded": _not_recorded(peer),
        }


def _where(device: str) -> str:
    return "CPU, float32" if device == "cpu" else f"{torch.cuda.get_device_name()}, bfloat16"


def _seconds(step: Step, inputs: Sequence[torch.Tensor], steps: int, device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        step(inputs)
    if device != "cpu":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--file", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for row in run(arguments.device):
        print(json.dumps(row), flush=True)
        rows.append(row)
    if arguments.file:
        write_json(arguments.file, rows, indent=2)


if __name__ == "__main__":
    main()
