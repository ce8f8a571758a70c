"""The language model that writes test cases: a small network trained here, or a pretrained one."""

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from triptych.core.decoders import PAD
from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.cache import CachedDecoder
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.pretrained import expanding, fetching
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.transformer import Transformer
from triptych.studies.api.study import Bench
from triptych.studies.generation.code_cases import stand_in
from triptych.studies.generation.code_cases.lines import LineDecoder, TextOf
from triptych.studies.generation.code_cases.rows import Sizes
from triptych.training.corpus import Corpus
from triptych.training.loop import fit
from triptych.training.objectives import Prediction, next_token
from triptych.training.step import Recipe

STAND_IN = "stand-in"
PRETRAINED = "qwen-coder-0.5b"

# What decides a stand-in's weights besides its seed.
NETWORK = (
    "cases",
    "demonstrations",
    "max_new_tokens",
    "longest_list",
    "network_layers",
    "heads",
    "width",
    "texts",
    "steps",
    "batch",
    "learning_rate",
)


@dataclass(frozen=True, eq=False)
class Writer:
    """A language model between texts and tokens.

    start        function of rows of tokens and a layer, which gives a decoder with these rows
    end_tokens   that end a text
    breaks       breaks[token]: the token's text has a line break in it
    loss         of the stand-in, in nats a token after training
    """

    encode: Callable[[str], list[int]]
    text_of: TextOf
    start: Callable[[list[list[int]], int], Any]
    end_tokens: tuple[int, ...]
    breaks: Bool[Tensor, " vocab"]
    loss: float | None = None

    def decoder(self, rows: list[list[int]], *, layer: int, lines: int) -> LineDecoder:
        """A decoder of these prompts whose rows are over after this many lines."""
        return LineDecoder(self.start(rows, layer), self.text_of, self.breaks, lines)

    def line_breaks(self) -> list[int]:
        return torch.nonzero(self.breaks)[:, 0].tolist()


def writer_of(sizes: Sizes, bench: Bench, seed: int) -> Writer:
    """The model of the settings; a stand-in is trained once for every seed."""
    if sizes.model == STAND_IN:
        return _stand_in(sizes, bench, seed)
    return _loaded(model_file(sizes.model, bench.device), bench.device)


# ---------------------------------------------------------------------- a pretrained model


def model_file(name: str, device: str) -> Path:
    """Where a fetched model is; for a GPU its expanded copy, if there is one: the same weights."""
    found = fetching.cached(name)
    if device.startswith("cuda"):
        found = expanding.expanded(name) or found
    if found is None:
        raise UserError(f"not run: needs `triptych fetch {name}`")
    return found


@functools.lru_cache(1)
def _loaded(file: Path, device: str) -> Writer:
    """The model, loaded once in a process; bfloat16 where a GPU computes.

    Its tokenizer puts no token before a text, and neither do we.
    """
    dtype = "bfloat16" if device.startswith("cuda") else "float32"
    lm = PretrainedCausalLM.from_pretrained(file, dtype=dtype, device=device, bos=False)
    return pretrained_writer(lm)


def pretrained_writer(lm: PretrainedCausalLM) -> Writer:
    """A writer of any pretrained model with a tokenizer.

    A text is also over where the model begins another one, with the token that begins texts.
    """
    texts = (lm.text_of([token]) for token in range(_known_tokens(lm)))
    breaks = torch.zeros(lm.vocab_size, dtype=torch.bool)
    for token, text in enumerate(texts):
        breaks[token] = "\n" in text
    return Writer(
        encode=lambda text: lm.encode([text])[0],
        text_of=lm.text_of,
        start=lambda rows, layer: _extended(lm, rows, layer),
        end_tokens=tuple(sorted({*lm.end_tokens, *_begin_token(lm)})),
        breaks=breaks.to(lm.device),
    )


def _extended(lm: PretrainedCausalLM, rows: list[list[int]], layer: int) -> Any:
    """A decoder with these rows. A prompt may hold no padding token, and what a model has written
    may: so only the first token of a row is its prompt."""
    decoder = lm.decoder([row[:1] for row in rows], layer=layer)
    decoder.extend(padded([row[1:] for row in rows], lm.device))
    return decoder


def _begin_token(lm: PretrainedCausalLM) -> tuple[int, ...]:
    token = getattr(lm.tokenizer, "bos_token_id", None)
    return () if token is None else (token,)


def _known_tokens(lm: PretrainedCausalLM) -> int:
    """Tokens that the tokenizer knows; a model may have more outputs, which it never learned."""
    return min(lm.vocab_size, len(lm.tokenizer))


# ---------------------------------------------------------------------- the stand-in


def _stand_in(sizes: Sizes, bench: Bench, seed: int) -> Writer:
    language = stand_in.Sizes(sizes.cases, sizes.demonstrations, sizes.longest_list)
    # Room for a completion of full length, and for the state at its last token.
    completed = stand_in.longest_prompt(language) + sizes.max_new_tokens
    shape = Shape(
        vocab_size=stand_in.VOCAB_SIZE + 1,
        length=max(stand_in.longest_text(language), completed) + 1,
        width=sizes.width,
        layers=sizes.network_layers,
        heads=sizes.heads,
        feedforward=2 * sizes.width,
        positions="rotary",
    )
    key = {"network": "code cases", "seed": seed}
    key |= {name: getattr(sizes, name) for name in NETWORK}
    kept = bench.tensors(key, lambda: _train(sizes, bench, language, shape, seed))
    net = Transformer(shape, seed=seed, device=bench.device)
    net.load_state_dict({name: value for name, value in kept.items() if name != "loss"})
    net.requires_grad_(False).eval()
    lm = CausalLM(net)
    breaks = torch.tensor(["\n" in word for word in (*stand_in.WORDS, "")], device=bench.device)
    return Writer(
        encode=stand_in.encode,
        text_of=stand_in.text_of,
        start=lambda rows, layer: _started(lm, rows, layer),
        end_tokens=(stand_in.END,),
        breaks=breaks,
        loss=float(kept["loss"]),
    )


def _started(lm: CausalLM, rows: list[list[int]], layer: int) -> CachedDecoder:
    decoder = CachedDecoder(lm, len(rows), layer=layer)
    decoder.extend(padded(rows, lm.net.device))
    return decoder


def padded(rows: Sequence[Sequence[int]], device: torch.device | str) -> Int[Tensor, "rows t"]:
    """Rows of different lengths, -1 beyond each one's end."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], device=device)


def _train(
    sizes: Sizes, bench: Bench, language: stand_in.Sizes, shape: Shape, seed: int
) -> dict[str, Tensor]:
    lm = CausalLM(Transformer(shape, seed=seed, device=bench.device))
    source, longest = random.Random(seed), stand_in.longest_text(language)
    rows = []
    for _ in range(sizes.texts):
        tokens = stand_in.encode(stand_in.write_text(source, language))
        rows.append([*tokens, *[stand_in.END] * (longest - len(tokens))])
    corpus = Corpus(torch.tensor(rows, dtype=torch.uint8, device=bench.device))
    recipe = Recipe(
        steps=sizes.steps,
        batch=sizes.batch,
        learning_rate=sizes.learning_rate,
        warmup=max(1, sizes.steps // 10),
        decay="linear",
        weight_decay=0.01,
        ema=0.99,
    )
    history = fit(lm, corpus.sample, _whole_texts, recipe, TorchRng(seed, bench.device))
    last = history.losses[-50:]
    return {**lm.net.state_dict(), "loss": torch.tensor(sum(last) / len(last))}


def _whole_texts(tokens: Int[Tensor, "batch length"], rng: Rng) -> Prediction:
    """Predict every token up to the first end token."""
    ended = (tokens == stand_in.END).long().cumsum(1)
    return next_token()(tokens, rng)._replace(scored=ended <= 1)
