"""Guided decoding: Algorithm 1 against its authors' scheme, our cache against Hugging Face's, VGB.

    python -m benchmarks.guided [--device cuda] [--file FILE]

The network has the size of the thesis' Dyck model: 6 layers, 8 heads, width 512, rotary positions,
float32, with random weights, large enough that its laws differ from prefix to prefix. Needs torch,
numpy, scipy, jaxtyping and transformers only. On a CPU ours runs twice: with torch, as it runs by
itself, and with the C programs of `use_compiled()`.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from benchmarks.timing import Comparison, Seconds, measured, with_programs
from triptych.core.decoders import PAD
from triptych.core.files import write_json
from triptych.core.protocols import NetworkDecoder, Question
from triptych.core.randomness import TorchRng
from triptych.core.streams import RowStreams
from triptych.inference.guided import ancestral, backtracking, vgb
from triptych.inference.guided.generation import Result
from triptych.inference.guided.transforms import nucleus
from triptych.models.cache import CachedDecoder
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.brackets.dyck import Dyck

Row = dict[str, Any]
VOCAB, WIDTH, LAYERS, HEADS = 5, 512, 6, 8  # two types of brackets, and the end
LENGTH, QUOTA, STRIDE, CUT = 33, 4, 4, nucleus(0.9)


def network(length: int, feedforward: int, device: str) -> CausalLM:
    shape = Shape(
        VOCAB + 1,
        length,
        width=WIDTH,
        layers=LAYERS,
        heads=HEADS,
        feedforward=feedforward,
        positions="rotary",
    )
    return CausalLM(Transformer(shape, seed=0, init_scale=0.05, device=device))


def brackets() -> Dyck:
    """Strings of 32 brackets, the types as likely as out of the distribution of training."""
    types = torch.tensor([0.8, 0.2], dtype=torch.float64)
    return Dyck.fixed_length(LENGTH - 1, type_probs=types, q=0.5)


def prompts(count: int, device: str) -> Int[Tensor, "count t"]:
    """Prefixes of 25 to 31 tokens, the short ones first, -1 beyond the end of each."""
    tokens = brackets().sample(count, TorchRng(1))[:, :31]
    sizes = 25 + torch.arange(count) * 7 // count
    return tokens.masked_fill(torch.arange(31) >= sizes[:, None], PAD).to(device)


@dataclass(frozen=True)
class Probe:
    """V = sigmoid(w · state + bias) at the last token, as a linear probe on a network says it."""

    weight: Float[Tensor, " width"]
    bias: float

    @classmethod
    def random(cls, device: str) -> "Probe":
        weight = torch.randn(WIDTH, generator=torch.Generator().manual_seed(0)) / WIDTH**0.5
        return cls(weight.to(device), 0.85)  # refuses one token in six

    def log_value(self, states: Float[Tensor, "rows width"]) -> Float[Tensor, " rows"]:
        return torch.nn.functional.logsigmoid((states @ self.weight + self.bias).double())

    layer = None

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]:
        assert isinstance(asked.decoder, NetworkDecoder)
        return self.log_value(asked.decoder.hidden_state(asked.at))


def together(lm: CausalLM, probe: Probe, prompts: Int[Tensor, "rows t"]) -> Result:
    """Algorithm 1 on all prompts at once, with a cache; `prompts` go from short to long."""
    decoder = CachedDecoder(lm, len(prompts))
    decoder.extend(prompts)
    numbers = torch.arange(len(prompts), device=prompts.device)
    return backtracking.sample(
        decoder,
        probe,
        length=LENGTH,
        quota=QUOTA,
        stride=STRIDE,
        transform=CUT,
        rng=RowStreams(0, numbers),
    )


class OneByOne:
    """Algorithm 1 as its authors ran it: one prompt at a time and no cache.

    A token costs a pass over the whole prefix for its law, and another one for the state that the
    probe reads. The same choices as `together`: row i draws from the i-th stream.
    """

    def __init__(self, lm: CausalLM, probe: Probe) -> None:
        self.lm, self.probe, self.passes = lm, probe, 0
        assert lm.net.final_norm is not None
        lm.net.final_norm.register_forward_pre_hook(self._keep)

    def _keep(self, _: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.state = inputs[0][:, -1]  # of the last layer, at the last token
        self.passes += 1

    def law(self, tokens: list[int]) -> Float[Tensor, "1 vocab"]:
        return CUT(self.lm.next_token_log_probs(self._batch(tokens)))

    def refuses(self, tokens: list[int]) -> bool:
        self.lm.next_token_log_probs(self._batch(tokens))
        return self.probe.log_value(self.state).exp().item() < 0.5

    def _batch(self, tokens: list[int]) -> Int[Tensor, "1 t"]:
        return torch.tensor([tokens], device=self.probe.weight.device)

    def complete(self, prompt: Int[Tensor, " t"], number: int) -> list[int]:
        tokens: list[int] = prompt[prompt != PAD].tolist()
        rng = RowStreams(0, torch.tensor([number], device=prompt.device))
        start, quota = len(tokens), QUOTA
        while len(tokens) < LENGTH:
            tokens.append(int(rng.categorical(self.law(tokens))))
            if quota > 0 and self.refuses(tokens):
                quota -= 1
                erased = min(STRIDE, len(tokens) - start)
                del tokens[-erased:]
                for _ in range(erased):
                    tokens.append(int(self.law(tokens).argmax()))
        return tokens


def algorithm(
    device: str,
    *,
    compiled: bool = False,
    count: int = 1000,
    turns: int = 5,
    compared: int = 8,
) -> Row:
    """Every turn: all prompts together, then `compared` others of them one by one.

    No end token: the rows have their 33 tokens, as with a network that was trained on them. The
    time one by one is scaled by the number of passes, which our own count of calls gives.
    """
    lm, probe, given = (
        network(LENGTH + 1, 1024, device),
        Probe.random(device),
        prompts(count, device),
    )
    single = OneByOne(lm, probe)
    result = together(lm, probe, given)
    calls = result.costs.generator_calls + result.costs.verifier_calls
    refused = QUOTA * count - int(result.info.quota_left.sum())
    wanted, same, times = result.tokens.tolist(), 0, []
    single.complete(given[0], 0)
    for turn in range(turns):
        chosen = range(turn, count, max(1, count // compared))[:compared]  # of every length
        ours = measured(lambda: together(lm, probe, given).tokens.tolist())
        found: list[list[int]] = []
        before = single.passes
        theirs = measured(
            lambda chosen=chosen, found=found: found.extend(
                single.complete(given[i], i) for i in chosen
            )
        )
        same += sum(text == wanted[i] for text, i in zip(found, chosen, strict=True))
        times.append((ours, theirs.times(int(calls.sum()) / (single.passes - before))))
    return {
        "what": f"Algorithm 1{_in_c(compiled)}, {count} Dyck prompts, quota {QUOTA}, stride "
        f"{STRIDE}, {_where(device)}; {same} of {turns * compared} strings the same",
        "peer": "the authors' scheme: one by one, no cache, two passes a token",
        "bar": 20.0,
        "same_strings": same,
        "compared_strings": turns * compared,
        "refusal_rate": refused / int(result.costs.verifier_calls.sum()),
        "passes_one_by_one": int(calls.sum()),
        **_ratios(times, device),
    }


def generation(
    device: str, *, compiled: bool = False, batch: int = 64, new: int = 64, turns: int = 7
) -> Row:
    """Our cached decoder against `generate` of a Llama of the same size, both sampling.

    Llama's gated feed-forward has three matrices of 512 x 1024; our two are of 512 x 1536.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB + 1,
        hidden_size=WIDTH,
        intermediate_size=1024,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=new + 1,
        bos_token_id=VOCAB,
        eos_token_id=None,
        pad_token_id=0,
    )
    peer = transformers.LlamaForCausalLM(config).to(device).eval()
    torch.set_num_threads(1)
    start = torch.full((batch, 1), VOCAB, device=device)
    lm = network(new + 1, 1536, device)

    def theirs() -> list[list[int]]:
        return peer.generate(
            start,
            attention_mask=torch.ones_like(start),
            do_sample=True,
            top_k=0,
            max_new_tokens=new,
            min_new_tokens=new,
            use_cache=True,
        ).tolist()

    def ours() -> list[list[int]]:
        decoder = CachedDecoder(lm, batch)
        return ancestral.sample(decoder, length=new, rng=TorchRng(0, device)).tokens.tolist()

    assert [len(row) for row in theirs()] == [new + 1] * batch  # the start token is among them
    assert [len(row) for row in ours()] == [new] * batch
    times = [(measured(ours), measured(theirs)) for _ in range(turns)]
    return {
        "what": f"sampling{_in_c(compiled)}, {batch} x {new} tokens with a cache, {_where(device)}",
        "peer": "transformers LlamaForCausalLM.generate",
        "bar": 1.2,
        "parameters": _parameters(lm.net),
        "parameters_theirs": _parameters(peer),
        **_ratios(times, device),
    }


def walk(
    device: str,
    *,
    batch: int = 16,
    to_go: int = 8,
    steps: int = 1000,
    forgetful_steps: int = 150,
    turns: int = 3,
) -> Row:
    """Steps of VGB with and without its memory of visited nodes; the verifier is exact.

    Without a memory every step costs the same, so a shorter walk is timed and scaled; with one, a
    step costs the less the longer the walk is. The strings compared are those of the shorter walk.
    """
    law, lm = brackets().to(device), network(LENGTH + 1, 1024, device)
    given = law.sample(batch, TorchRng(2, device))[:, : law.length - to_go]

    def walked(remember: bool, steps: int) -> list[list[int]]:
        decoder = CachedDecoder(lm, batch)
        decoder.extend(given)
        result = vgb.sample(
            decoder,
            OnBrackets(law),
            length=law.length,
            steps=steps,
            returns="last",
            remember=remember,
            rng=RowStreams(0, torch.arange(batch, device=device)),
        )
        return result.tokens.tolist()

    short = [walked(remember, forgetful_steps) for remember in (True, False)]
    scale, times = steps / forgetful_steps, []
    for _ in range(turns):
        ours = measured(lambda: walked(True, steps))
        times.append((ours, measured(lambda: walked(False, forgetful_steps)).times(scale)))
    row = _ratios(times, device)
    return {
        "what": f"VGB, {batch} Dyck prompts with {to_go} tokens to go, {steps} steps, "
        f"{_where(device)}",
        "peer": "the same without a memory of visited nodes",
        "bar": 5.0,
        "same_strings": sum(a == b for a, b in zip(*short, strict=True)),
        "compared_strings": batch,
        "steps_per_second": batch * steps / row["ours"],
        **row,
    }


@dataclass(frozen=True)
class OnBrackets:
    """Whether a prefix can be completed; the network's end token, which the law has not, cannot."""

    law: Dyck

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
        ended = (prefix == 2 * self.law.types).any(1)
        values = self.law.log_value(prefix.clamp(max=2 * self.law.types - 1))
        return values.masked_fill(ended, -torch.inf)


def run(device: str) -> Iterator[Row]:
    for compiled in (False, True) if device == "cpu" else (False,):
        for measure in (algorithm, generation):
            yield with_programs(compiled, lambda c, m=measure: m(device, compiled=c))
    yield walk(device)


def _ratios(times: list[tuple[Seconds, Seconds]], device: str) -> dict[str, float]:
    """Medians, and the median and range of each turn's theirs / ours.

    On a GPU, where the processor only waits, in wall-clock time.
    """
    if device != "cpu":
        times = [(Seconds(a.wall, a.wall), Seconds(b.wall, b.wall)) for a, b in times]
    return Comparison.of(times)._asdict()


def _parameters(net: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def _in_c(compiled: bool) -> str:
    return ", in C" if compiled else ""


def _where(device: str) -> str:
    return "CPU" if device == "cpu" else torch.cuda.get_device_name()


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
