"""Unmasking by block refinement: tokens a second against diffusers' pipeline on the same network.

    python -m benchmarks.diffusion [--rows 64 --prompt 16 --tokens 16 --steps 4 --turns 3]
    python -m benchmarks.diffusion --device cuda --tokens 128 --prompt 128 --steps 32

The network is a BERT of transformers with about 30 million parameters and random weights: time does
not depend on what is said. Both sides draw at temperature 1 and keep as many tokens a step, in the
same number of passes. The bar is 1.0. diffusers is in the environment of `make laws`.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.timing import Comparison, Seconds
from triptych.diffusion.networks.masked_logits import MaskedLogits
from triptych.diffusion.samplers.block_refinement import BlockRefinement

VOCAB, MASK, BAR = 8192, 8191, 1.0


def network(device: str, length: int) -> Any:
    """About 30 million parameters."""
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCAB,
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        intermediate_size=2048,
        max_position_embeddings=max(512, length),
    )
    return transformers.BertForMaskedLM(config).to(device).eval()


def timed(program: Callable[[], Any], device: str) -> Seconds:
    """One call; of a GPU until it is done."""
    if device != "cpu":
        torch.cuda.synchronize()
    wall, processor = time.perf_counter(), time.process_time()
    program()
    if device != "cpu":
        torch.cuda.synchronize()
    return Seconds(time.process_time() - processor, time.perf_counter() - wall)


def against_diffusers(
    *, rows: int, prompt: int, tokens: int, steps: int, turns: int, device: str
) -> dict[str, Any]:
    """Turn by turn, in one process; the ratio of each turn is what counts."""
    from diffusers import BlockRefinementScheduler, LLaDA2Pipeline

    model = network(device, prompt + tokens)
    prompts = torch.randint(MASK, (rows, prompt), device=device)
    pipeline = LLaDA2Pipeline(model=model, scheduler=BlockRefinementScheduler(), tokenizer=None)
    pipeline.set_progress_bar_config(disable=True)
    denoiser = MaskedLogits(model, mask_id=MASK, vocab_size=VOCAB, rows_at_once=rows)
    sampler = BlockRefinement(steps=steps, threshold=1.0)
    canvas = torch.cat([prompts, torch.zeros_like(prompts[:, :1]).repeat(1, tokens)], 1)
    hidden = torch.zeros_like(canvas, dtype=torch.bool)
    hidden[:, prompt:] = True

    def ours() -> None:
        done = sampler.sample(denoiser, canvas, hidden, rng=0)
        assert done.complete.all()
        assert done.costs.forward_passes == steps

    def theirs() -> None:
        pipeline(
            input_ids=prompts,
            gen_length=tokens,
            block_length=tokens,
            num_inference_steps=steps,
            temperature=1.0,
            sampling_method="multinomial",
            threshold=1.0,
            editing_threshold=None,
            eos_early_stop=False,
            mask_token_id=MASK,
            output_type="seq",
        )

    ours(), theirs()
    found = Comparison.of([(timed(ours, device), timed(theirs, device)) for _ in range(turns)])
    each = rows * tokens
    size = sum(weight.numel() for weight in model.parameters())
    return {
        "what": f"{rows} rows, {tokens} tokens after {prompt}, {steps} steps, {size:,} parameters",
        "tokens a second, ours": each / found.wall_ours,
        "tokens a second, diffusers": each / found.wall_theirs,
        "ratio of wall-clock time": found.wall_ratio,
        "lowest and highest": (found.wall_low, found.wall_high),
        "ratio of processor time": found.ratio,
        "bar": BAR,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"rows": 64, "prompt": 16, "tokens": 16, "steps": 4, "turns": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    asked = vars(parser.parse_args())
    if asked["prompt"] % asked["tokens"]:
        parser.error("the pipeline wants a prompt of whole blocks: a multiple of --tokens")
    if asked["device"] == "cpu":
        torch.set_num_threads(1)
    for name, value in against_diffusers(**asked).items():
        print(f"{name:<28}{value}")


if __name__ == "__main__":
    main()
