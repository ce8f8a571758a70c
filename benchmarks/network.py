"""A training step of the masked LM against Hugging Face's BertForMaskedLM of the same size.

    python -m benchmarks.network [--device cuda] [--file FILE]

Six layers, width 768, 12 heads, as in the head and prompt tuning experiments: 8 x 512 tokens on a
GPU in bfloat16, 2 x 128 tokens on a CPU in float32. Forward, loss, backward and AdamW step, no
dropout in either network. Needs torch, numpy, scipy, jaxtyping and transformers only.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer

Row = dict[str, Any]
VOCAB, LENGTH, WIDTH, LAYERS, HEADS = 16, 512, 768, 6, 12


def ours(device: str, compiled: bool) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A function that makes one training step and returns the loss."""
    shape = Shape(
        VOCAB, LENGTH, width=WIDTH, layers=LAYERS, heads=HEADS, causal=False, norm="post", tied=True
    )
    model = MaskedLM(Transformer(shape, seed=0, device=device))
    forward = torch.compile(model.token_logits) if compiled else model.token_logits
    return _stepper(model.net, lambda seen: forward(seen), device)


def theirs(device: str, compiled: bool) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
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
    net = BertForMaskedLM(config).to(device)
    forward = torch.compile(net) if compiled else net
    return _stepper(net, lambda seen: forward(seen).logits[..., : VOCAB - 1], device)


def _stepper(
    net: torch.nn.Module, forward: Callable[[torch.Tensor], torch.Tensor], device: str
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    on_gpu = device != "cpu"
    optimiser = torch.optim.AdamW(net.parameters(), 1e-4, fused=on_gpu)

    def step(seen: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16) if on_gpu else nullcontext():
            logits = forward(seen)
        value = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())
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
    seen = tokens.masked_fill(torch.rand(tokens.shape, device=device) < 0.15, VOCAB - 1)
    pairs = [(False, False)] if device == "cpu" else [(False, False), (True, False), (True, True)]
    for our_compile, their_compile in pairs:
        mine, peer = ours(device, our_compile), theirs(device, their_compile)
        for step in (mine, peer):
            for _ in range(3 if device != "cpu" else 1):
                step(seen, tokens)
        times = []
        for _ in range(turns):
            times.append([_seconds(step, seen, tokens, steps, device) for step in (mine, peer)])
        ratios = [b / a for a, b in times]
        a, b = (statistics.median(column) for column in zip(*times, strict=True))
        yield {
            "what": f"training step, 6 x 768, {batch} x {length} tokens, {_where(device)}"
            + (", ours compiled" if our_compile else "")
            + (", theirs compiled" if their_compile else ""),
            "peer": "transformers BertForMaskedLM",
            **({} if our_compile and their_compile else {"bar": 1.0 if device == "cpu" else 1.3}),
            "ours": a,
            "theirs": b,
            "ratio": statistics.median(ratios),
            "low": min(ratios),
            "high": max(ratios),
            "tokens_per_second": batch * length / a,
        }


def _where(device: str) -> str:
    return "CPU, float32" if device == "cpu" else f"{torch.cuda.get_device_name()}, bfloat16"


def _seconds(
    step: Callable[..., Any], seen: torch.Tensor, tokens: torch.Tensor, steps: int, device: str
) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        step(seen, tokens)
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
        arguments.file.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
