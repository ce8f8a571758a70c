"""DiffusionGemma of transformers as a denoiser of uniform noise, block after block, with its cache.

Its encoder reads what stands before the block, once, into keys and values; its decoder reads the
noisy block and these. Each step runs the decoder alone. The model reads its own laws of the step
before (self-conditioning) and does not ask how noisy the block is.

All rows have the same prompt length, of at least one token, and blocks have the model's own length.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.validation import UserError, check_can, set_fields
from triptych.diffusion.denoiser import Canvas


@dataclass(eq=False)
class _Prefix:
    """What the encoder has read: tokens of all rows of the batch, and its keys and values."""

    rows: Int[Tensor, " batch"]
    tokens: Int[Tensor, "batch start"]
    cache: Any


@dataclass(frozen=True, eq=False)
class DiffusionGemmaDenoiser:
    """A `DiffusionGemmaForBlockDiffusion` of transformers.

    The law is the softmax of its logits in float32. Use `UniformEntropyBounded` with
    block_length=denoiser.block_length, as its own `generate` does.
    """

    model: Any = field(repr=False)
    reads_itself: bool = True
    _prefix: list[_Prefix] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        check_can("model", self.model, "config", "model", "eval")
        if getattr(self.model.config, "canvas_length", None) is None:
            raise UserError(
                f"model is a {type(self.model).__name__}; it must be a "
                "DiffusionGemmaForBlockDiffusion of transformers",
                parameter="model",
            )
        self.model.eval()
        self.model.requires_grad_(False)
        set_fields(self, _prefix=[])

    @property
    def vocab_size(self) -> int:
        return self.model.config.text_config.vocab_size

    @property
    def block_length(self) -> int:
        """How many tokens it writes at a time."""
        return self.model.config.canvas_length

    @torch.no_grad()
    def clean_log_probs(
        self, canvas: Canvas, asked: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "asked vocab"]:
        """The softmax of the decoder's logits, given what the encoder has read."""
        start, stop = canvas.start, canvas.stop
        if stop - start != self.block_length or start == 0:
            raise UserError(
                f"the block has columns {start} to {stop - 1}; this model writes "
                f"{self.block_length} at a time after a prompt of at least one token, the same "
                f"length for all rows: pass block_length={self.block_length}",
                parameter="block_length",
            )
        outside = asked[:, :start].any() | asked[:, stop:].any()
        if bool(outside) or bool(canvas.hidden[:, :stop].any()):
            raise UserError(
                "this model writes noise over whole blocks; take a sampler of uniform noise, and "
                "prompts without gaps"
            )
        prefix = self._read(canvas)
        batch = len(prefix.rows)
        among = torch.searchsorted(prefix.rows, canvas.rows)
        block = canvas.tokens.new_zeros((batch, stop - start))
        block[among] = canvas.tokens[:, start:stop]
        before = None
        if canvas.before is not None:
            kind = self.model.model.decoder.embed_tokens.weight.dtype
            before = canvas.before.new_zeros((batch, *canvas.before.shape[1:]), dtype=kind)
            before[among] = canvas.before.to(kind)
        shown = torch.ones((batch, stop), dtype=torch.bool, device=block.device)
        answer = self.model(
            decoder_input_ids=block,
            past_key_values=prefix.cache,
            self_conditioning_logits=before,
            decoder_attention_mask=shown,
            decoder_position_ids=torch.arange(start, stop, device=block.device)[None],
        )
        return answer.logits[among][asked[:, start:stop]].float().log_softmax(-1)

    def _read(self, canvas: Canvas) -> _Prefix:
        """Let the encoder read what it has not read of the tokens before the block."""
        from transformers import DynamicCache

        tokens, rows = canvas.tokens[:, : canvas.start], canvas.rows
        if self._prefix:
            kept = self._prefix[0]
            known = torch.isin(rows, kept.rows)
            if bool(known.all()):
                among = torch.searchsorted(kept.rows, rows)
                length = kept.tokens.shape[1]
                same = length <= tokens.shape[1] and torch.equal(
                    kept.tokens[among], tokens[:, :length]
                )
                if same and length == tokens.shape[1]:
                    return kept
                if same and len(rows) == len(kept.rows):
                    self._encode(kept.cache, tokens, length)
                    kept.tokens = tokens
                    return kept
            self._prefix.clear()
        config = self.model.config.get_text_config(decoder=True)
        order = rows.argsort()
        fresh = _Prefix(rows[order], tokens[order], DynamicCache(config=config))
        self._encode(fresh.cache, fresh.tokens, 0)
        self._prefix.append(fresh)
        return fresh

    def _encode(self, cache: Any, tokens: Int[Tensor, "batch start"], length: int) -> None:
        self.model.model.encoder(
            input_ids=tokens[:, length:],
            attention_mask=torch.ones_like(tokens),
            past_key_values=cache,
            position_ids=torch.arange(length, tokens.shape[1], device=tokens.device)[None],
        )
