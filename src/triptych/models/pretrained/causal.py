"""A causal language model of Hugging Face's transformers behind our protocols, with its tokenizer.

    next_token_log_probs   log p(x_{t+1} = · | x_≤t)     by a pass over the whole prefix
    decoder                a batch of growing prefixes    with a cache of keys and values per row
    token_scores           log p(x_t | x_<t) at all t     by one pass over the whole row
    encode, decode, chat   between text and tokens

The vocabulary is the model's: a token is its token id. Every sequence begins with the model's BOS
token, as in training. We put it there: it is not part of a prefix, `encode` and `chat` leave it
out, and the empty prefix is answered through it.

Example
-------
    lm = PretrainedCausalLM.from_pretrained("SmolLM2-135M-Instruct.Q4_1.gguf")
    decoder = lm.decoder(["The capital of France is"])
    decoder.append(decoder.next_log_probs().argmax(-1))
    lm.decode(decoder.tokens)

transformers is an optional dependency (`pip install 'transformers>=5,<6'`), imported when used.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from triptych.core.validation import (
    Count,
    Prefix,
    UserError,
    as_count,
    as_device,
    as_prefix,
    as_size,
)
from triptych.models.pretrained.causal_cache import (
    PretrainedDecoder,
    attention_windows,
    last_logits_only,
)
from triptych.models.pretrained.causal_loading import load_causal
from triptych.models.pretrained.tokenised import Tokenised, as_rows, check_tokenizer

# when a family does not take a mask, positions or a cache of this kind
_WHAT_MODELS_RAISE = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)

_SCORED = 256  # places whose laws are held in float64 at once


class TokenScore(NamedTuple):
    """A token of a text, with what the model says of its place.

    log_prob   log p(token | what stands before it); None where nothing does
    top        the likeliest tokens there, with their log-probabilities, the likeliest first
    """

    token: int
    log_prob: float | None
    top: tuple[tuple[int, float], ...]


class PretrainedCausalLM(Tokenised):
    """A `NextToken` oracle from any decoder-only model of transformers' AutoModelForCausalLM.

    The model is changed in place: dropout is off (evaluation mode) and its parameters are frozen.
    Sequences have at most `length` tokens: what the model's context holds besides BOS, or less if
    you say so. With bos=True they begin with the tokenizer's BOS token, or the config's where there
    is no tokenizer; models that have none begin with the first token. bos=False never adds one, and
    a number is the id of the token to begin with.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        length: Count | None = None,
        bos: bool | Count = True,
    ) -> None:
        _check_model(model)
        attention_windows(model)  # refuses what cannot be rolled back
        self.model, self.tokenizer = model, tokenizer
        model.eval()
        model.requires_grad_(False)
        if tokenizer is not None:
            check_tokenizer(tokenizer, self.vocab_size)
        self.bos_token = self._bos_token(bos)
        self.length = self._checked_length(length)
        self.end_tokens = _end_tokens(model, tokenizer)
        self._check_that_nothing_looks_ahead()
        self._check_that_the_cache_is_exact()

    @classmethod
    def from_pretrained(
        cls,
        where: str | Path,
        *,
        dtype: torch.dtype | str = "float32",
        device: torch.device | str = "cpu",
        gguf_file: str | None = None,
        length: Count | None = None,
        bos: bool | Count = True,
        local_files_only: bool = False,
        revision: str | None = None,
        trust_remote_code: bool = False,
    ) -> "PretrainedCausalLM":
        """The model in the folder `where`, of that name on the hub, or in a .gguf file.

        `where` may be the path of the .gguf file, or the folder or hub name with `gguf_file` its
        name there. Its weights are expanded to `dtype`. `revision` pins a commit of the hub.
        Where the hub does not answer within seconds, or with local_files_only=True, what is on disk
        is taken.
        trust_remote_code=True runs the Python files of the model itself, with all your rights.
        """
        device = as_device(device)
        model, tokenizer = load_causal(
            where,
            dtype=dtype,
            gguf_file=gguf_file,
            local_files_only=local_files_only,
            revision=revision,
            trust_remote_code=trust_remote_code,
        )
        return cls(model.to(device), tokenizer, length=length, bos=bos)

    def __repr__(self) -> str:
        return (
            f"PretrainedCausalLM({type(self.model).__name__}, vocab_size={self.vocab_size}, "
            f"length={self.length}, bos_token={self.bos_token})"
        )

    # ------------------------------------------------------------------ what it is

    @property
    def vocab_size(self) -> int:
        return self.model.get_input_embeddings().num_embeddings

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    # ------------------------------------------------------------------ what it answers

    @torch.no_grad()
    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        """log p(x_{t+1} = · | x_≤t), float64, from a pass over BOS and the whole prefix."""
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)
        read = prefix
        if self.bos_token is not None:
            read = F.pad(prefix, (1, 0), value=self.bos_token)
        if read.shape[1] == 0:
            raise UserError(
                "the prefix is empty, and this model has no BOS token to begin with; pass a "
                "prefix of at least one token, or name a token with bos=ID",
                parameter="prefix",
            )
        if len(read) == 0:
            return torch.zeros((0, self.vocab_size), dtype=torch.float64, device=self.device)
        answer = self.model(
            input_ids=read,
            attention_mask=torch.ones_like(read),
            use_cache=False,
            return_dict=True,
            **last_logits_only(self.model),
        )
        return answer.logits[:, -1].double().log_softmax(-1)

    @torch.no_grad()
    def token_scores(self, rows: Prefix, *, top: Count = 0) -> list[list[TokenScore]]:
        """log p(x_t | x_<t) of every token of each row, by a pass over BOS and the row.

        rows   lists of tokens, without BOS
        top    how many of the likeliest tokens are told at every place

        The first token has no law where the model has no BOS: its `log_prob` is None.
        """
        found, top = [], as_count("top", top, at_most=self.vocab_size)
        for b, row in enumerate(as_rows("rows", rows)):
            row = self._checked_row(f"rows[{b}]", row)
            if len(row) > self.length:
                raise UserError(
                    f"rows[{b}] has {len(row)} tokens; sequences of this model have at most "
                    f"{self.length}",
                    parameter="rows",
                )
            found.append(self._scores_of(row, top))
        return found

    def _scores_of(self, row: list[int], top: int) -> list[TokenScore]:
        scores: list[TokenScore] = []
        if self.bos_token is None and row:
            scores.append(TokenScore(row[0], None, ()))
        if not (scored := row[len(scores) :]):
            return scores
        read = row if self.bos_token is None else [self.bos_token, *row]
        tokens = torch.tensor([read[:-1]], device=self.device)
        answer = self.model(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            use_cache=False,
            return_dict=True,
        )
        for part, logits in zip(
            (scored[i : i + _SCORED] for i in range(0, len(scored), _SCORED)),
            answer.logits[0].split(_SCORED),
            strict=True,
        ):
            laws = logits.double().log_softmax(-1)
            chosen = laws.gather(1, torch.tensor(part, device=self.device)[:, None])[:, 0]
            best = laws.topk(top, dim=-1)
            for token, log_prob, ids, values in zip(
                part, chosen.tolist(), best.indices.tolist(), best.values.tolist(), strict=True
            ):
                scores.append(TokenScore(token, log_prob, tuple(zip(ids, values, strict=True))))
        return scores

    def decoder(
        self,
        prompts: Sequence[str] | Prefix,
        *,
        layer: Count | None = None,
    ) -> PretrainedDecoder:
        """A `Decoder` whose row b begins with `prompts[b]`: texts, or tokens without BOS.

        Prompts may differ in length: pass a list of lists, or a tensor padded with -1 at the end.
        `layer` is the layer whose state `hidden_state` gives: 0 the embedding, -1 the last.
        """
        return self._decoder(self._prompts(prompts), layer)

    # ------------------------------------------------------------------ inside

    def _decoder(self, prompts: list[list[int]], layer: Count | None) -> PretrainedDecoder:
        return PretrainedDecoder(
            self.model,
            prompts,
            vocab_size=self.vocab_size,
            length=self.length,
            start_token=self.bos_token,
            layer=layer,
        )

    def _bos_source(self) -> Any:
        return self.model.config if self.tokenizer is None else self.tokenizer

    def _checked_length(self, length: Count | None) -> int:
        context = _context(self.model)
        if context is None:
            if length is None:
                raise UserError(
                    f"the config of {type(self.model).__name__} does not say how long its context "
                    "is; pass length",
                    parameter="length",
                )
            return as_size("length", length)
        most = context - (self.bos_token is not None)
        if most < 1:
            raise UserError(f"the context of this model is {context}: no token fits next to BOS")
        return most if length is None else as_count("length", length, at_least=1, at_most=most)

    @torch.no_grad()
    def _check_that_nothing_looks_ahead(self) -> None:
        """What a model says at one token must not depend on a later one; an encoder's does."""
        if self.length < 3:
            return
        a, b, c, d = (self.vocab_size * share // 5 for share in range(1, 5))
        rows = torch.tensor([[a, b, c], [a, b, d]], device=self.device)
        try:
            answer = self.model(
                input_ids=rows,
                attention_mask=torch.ones_like(rows),
                use_cache=False,
                return_dict=True,
            )
        except _WHAT_MODELS_RAISE:
            return  # the next check says what is wrong
        one, other = answer.logits[:, :2].double().log_softmax(-1)
        limit = float(one.abs().max().clamp(min=1)) * torch.finfo(self.dtype).eps ** 0.75
        if not float((one - other).abs().max()) <= limit:
            raise UserError(
                f"{type(self.model).__name__} looks at later tokens, as an encoder does; pass a "
                "causal language model, such as GPT-2 or Llama"
            )

    @torch.no_grad()
    def _check_that_the_cache_is_exact(self) -> None:
        """Rows of different lengths, one rolled back, answer as whole prefixes do.

        A family that counts positions in another way, or ignores masks of our own, fails here.
        """
        if self.length < 6:
            return
        kind = type(self.model).__name__
        a, b, c, d, e = (self.vocab_size * share // 7 for share in range(1, 6))
        try:
            decoder = self._decoder([[a, b, c, d], [e]], None)
            decoder.next_log_probs()
            decoder.rollback([1, 0])
            decoder.append([e, d])
            cached = decoder.next_log_probs()
            prefixes = [[[a, b, c, e]], [[e, d]]]
            whole = torch.cat([self.next_token_log_probs(prefix) for prefix in prefixes])
        except UserError:
            raise
        except _WHAT_MODELS_RAISE as error:
            raise UserError(
                f"{kind} cannot be asked through a cache with a mask and positions of our own, "
                f"and rollbacks need that: {error}"
            ) from error
        scale = float(whole.abs().max().clamp(min=1))
        difference = float((cached - whole).abs().max())
        if not difference <= scale * torch.finfo(self.dtype).eps ** 0.5:
            raise UserError(
                f"{kind} answers differently with a cache and without one (log-probabilities "
                f"differ by {difference:.2g}): its family counts positions or masks in another way"
            )


# ---------------------------------------------------------------------- checks


def _check_model(model: Any) -> None:
    known = isinstance(model, nn.Module) and hasattr(model, "get_input_embeddings")
    if not known or not hasattr(model, "config"):
        raise UserError(
            f"model is a {type(model).__name__}; pass a model of transformers' "
            "AutoModelForCausalLM, or its name to PretrainedCausalLM.from_pretrained",
            parameter="model",
        )
    network: Any = model
    table, head = network.get_input_embeddings(), network.get_output_embeddings()
    if not isinstance(table, nn.Embedding) or head is None:
        raise UserError(
            f"{type(model).__name__} is not a causal language model: it needs a table of token "
            "embeddings and an output for every token",
            parameter="model",
        )
    outputs = head.weight.shape[0]
    if outputs != table.num_embeddings:
        raise UserError(
            f"{type(model).__name__} has {outputs} outputs and embeds {table.num_embeddings} "
            "tokens; they must be as many",
            parameter="model",
        )


def _end_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every token that ends a text, by the model's generation config, its config, its tokenizer."""
    found: set[int] = set()
    config = model.config.get_text_config(decoder=True)
    for source in (getattr(model, "generation_config", None), model.config, config, tokenizer):
        tokens = getattr(source, "eos_token_id", None)
        if tokens is not None:
            found.update([tokens] if isinstance(tokens, int) else [int(token) for token in tokens])
    return tuple(sorted(found))


def _context(model: Any) -> int | None:
    """How many positions the model reads, by its config.

    Beyond its original context, LongRoPE turns keys by other angles than before, so that a cache
    would not fit any more.
    """
    config = model.config.get_text_config(decoder=True)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope" and "original_max_position_embeddings" in rope:
        return int(rope["original_max_position_embeddings"])
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        context = getattr(config, name, None)
        if isinstance(context, int) and context > 0:
            return context
    return None
