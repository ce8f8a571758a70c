"""One sentence at a time: beam search against transformers, and refinement against beam search.

    python -m benchmarks.translation

Networks of the published size (6+6 layers, width 512, 32,000 pieces, 67 million parameters) with
random weights: time does not depend on what is said. Every translation of 16 tokens has 16 tokens,
from left to right (the end token is never taken) and in parallel (lengths 14 to 18 are tried, and
no sentence stops before the last step). Tokenisation is not in it. Trained networks, lengths as
they come and a GPU are in the study real_translation.
"""

from collections.abc import Iterator
from typing import Any

import torch
from rich.console import Console

from benchmarks.table import readable
from benchmarks.timing import compare
from triptych.core.randomness import TorchRng
from triptych.inference.beam import beam_search
from triptych.inference.chains.refinement import best_hypotheses, refine
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.models.translators import SourceDecoder, SourceRefiner
from triptych.studies.refinement.shared.translating import encode, first_hypotheses
from triptych.training.translation import END, FIRST_WORD, START

Row = dict[str, Any]
VOCAB, LENGTH, TOKENS, TURNS = 32_000, 64, 16, 5
SOURCE = list(range(100, 100 + TOKENS))


def run() -> Iterator[Row]:
    yield against_transformers(beams=1)
    yield against_transformers(beams=5)
    for steps, beams in ((4, 5), (4, 1), (10, 5)):
        yield refinement_against_search(steps, beams)


def network(*, causal: bool) -> EncoderDecoder:
    """The published size."""
    shape = PairShape(VOCAB, LENGTH, causal=causal, positional_attention=not causal)
    return EncoderDecoder(shape, seed=0).eval()


@torch.no_grad()
def refined(net: EncoderDecoder, steps: int, rng: TorchRng) -> torch.Tensor:
    """The best of five lengths; every step is made, also if nothing changes any more."""
    lengths = torch.arange(TOKENS - 2, TOKENS + 3)
    encoded = encode(net, [SOURCE]).rows(torch.zeros(5, dtype=torch.long))
    net.length_logits(encoded)  # what a prediction of the lengths costs
    initial = first_hypotheses(lengths, VOCAB, "random", rng)
    found = refine(
        SourceRefiner(net, encoded),
        initial,
        lengths,
        steps=steps,
        stop_when_stable=False,
        lowest=FIRST_WORD,
        rng=rng,
    )
    assert found.steps.tolist() == [steps] * 5
    return found.tokens[best_hypotheses(found.log_probs, lengths, each=5)]


class NeverEnds:
    """A decoder whose end token has probability 0, so that all translations are equally long."""

    def __init__(self, inner: SourceDecoder) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def next_log_probs(self) -> torch.Tensor:
        log_probs = self._inner.next_log_probs()
        log_probs[:, END] = -torch.inf
        return log_probs


@torch.no_grad()
def search(net: EncoderDecoder, beams: int) -> Any:
    decoder: Any = NeverEnds(SourceDecoder(net, encode(net, [SOURCE]), start_token=START))
    found = beam_search(decoder, beams=beams, length=TOKENS, end_token=END)
    assert found.tokens.shape[-1] == TOKENS
    return found


def against_transformers(beams: int) -> Row:
    import transformers

    config = transformers.MarianConfig(
        vocab_size=VOCAB,
        max_position_embeddings=LENGTH,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        pad_token_id=0,
        eos_token_id=END,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = transformers.MarianMTModel(config).eval()
    torch.set_num_threads(1)
    source, net = torch.tensor([SOURCE]), network(causal=True)
    how = {"num_beams": beams, "do_sample": False, "max_new_tokens": TOKENS}
    how["min_new_tokens"] = TOKENS

    @torch.no_grad()
    def generate() -> None:
        found = theirs.generate(source, attention_mask=torch.ones_like(source), **how)
        assert found.shape[1] == 1 + TOKENS

    name = f"beam {beams}" if beams > 1 else "greedy"
    return {
        "what": f"translation, one sentence of {TOKENS} tokens, {name} with a cache, 67 M, CPU",
        "peer": "transformers MarianMTModel.generate",
        **compare(lambda: search(net, beams), generate, turns=TURNS)._asdict(),
        "bar": 1.0,
    }


def refinement_against_search(steps: int, beams: int) -> Row:
    parallel, causal = network(causal=False), network(causal=True)
    rng = TorchRng(0)
    name = f"beam {beams}" if beams > 1 else "greedy decoding"
    return {
        "what": f"translation, one sentence of {TOKENS} tokens, refinement with T = {steps}, 5 "
        "lengths, 67 M, CPU",
        "peer": f"our own {name} with a cache, {TOKENS} passes",
        **compare(
            lambda: refined(parallel, steps, rng), lambda: search(causal, beams), turns=TURNS
        )._asdict(),
    }


def main() -> None:
    torch.set_num_threads(1)
    for row in run():
        Console().print(" | ".join(readable(row)), highlight=False)


if __name__ == "__main__":
    main()
