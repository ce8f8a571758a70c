"""A masked LM of Hugging Face's transformers, asked as our own network and the exact HMM are.

    masked_log_probs   p(x_i = · | shown)   from inputs with the model's mask token where hidden
    soft_masked_probs  the same from any vectors instead of the word embeddings: soft prompts

The model's vocabulary is its own; ours are the words 0..vocab_size-1 of a task. `ids` says which
token of the model each word is. The law on words is the model's law given that the token is one of
them: the softmax over their logits. Without `ids` every token of the model is a word.

The model always reads vectors, its own embeddings where tokens are asked about. So both methods
have one path, and a padding token is a token like any other: Roberta's family, given token ids,
would skip it when it counts positions.

Notation
--------
w     word          our token, 0..vocab_size-1
      ids[w]        the model's token id of w
v     vectors       [batch, t, width], instead of word embeddings, without positions

transformers is an optional dependency (`pip install 'transformers>=5,<6'`), imported when used.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.core.foreign_models import as_place, on_disk_alone, refuse_own_code
from triptych.core.logspace import with_point_masses
from triptych.core.validation import (
    Count,
    Hidden,
    Prefix,
    Tokens,
    UserError,
    as_asked,
    as_count,
    as_device,
    as_flag,
    as_integers,
    as_list,
    as_masked,
    as_tokens,
    set_fields,
)


@dataclass(frozen=True, eq=False)
class PretrainedMaskedLM:
    """A masked LM on up to `length` words, from any model of transformers' AutoModelForMaskedLM.

    The model is changed in place: dropout is off (evaluation mode) and its parameters are frozen,
    so gradients reach the vectors of `soft_masked_probs` and no weight. `mask_id` is the model's id
    of its mask token; the ids `before` and `after` stand around every input, as [CLS] and [SEP] do,
    and nothing is asked or answered about them. `ids` follows the model to its device.

    Vectors belong to the model and not to `ids`. To read whole sentences and answer with a few
    words (a verbaliser), embed with a wrapper that has no `ids` and ask a wrapper of the same model
    that has them: `answers.soft_masked_probs(reader.embed(tokens, hidden))`.
    """

    model: Any = field(repr=False)  # a PreTrainedModel of transformers, which may be missing
    mask_id: int
    ids: Int[Tensor, " words"] | None = None
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_model(self.model)
        size = self._embedding.num_embeddings
        for name, value in [("mask_id", self.mask_id), *self._around()]:
            _check_id(name, as_count(name, value), size)
        set_fields(self, mask_id=as_count("mask_id", self.mask_id))
        for name in ("before", "after"):
            side = tuple(as_count(name, token) for token in getattr(self, name))
            set_fields(self, **{name: side})
        if self.ids is not None:
            ids = as_integers("ids", self.ids, dimensions=1)
            _check_ids(ids, size)
            set_fields(self, ids=ids)
        if self.length < 1:
            raise UserError(
                f"before and after take {self._specials} positions; this model has "
                f"{_positions(self.model)}, so no word fits between them",
                parameter="before",
            )
        self.model.eval()
        self.model.requires_grad_(False)
        self._check_that_vectors_are_read_as_tokens_are()

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        local_files_only: bool = False,
        revision: str | None = None,
        words: Sequence[str] | None = None,
        trust_remote_code: bool = False,
    ) -> "PretrainedMaskedLM":
        """The model called `name` on the Hugging Face hub, or in the folder `name`.

        Its tokenizer says what the mask token is and what stands around a sentence. `words[w]` is
        word w as text, one token each; without them word w is the token with id w, and
        transformers' AutoTokenizer, called with add_special_tokens=False, turns text into words.
        Where spaces belong to tokens (Roberta), " great" and "great" are different words.
        `revision` pins a commit of the hub. Where the hub does not answer within seconds, or with
        local_files_only=True, what is on disk is taken.
        trust_remote_code=True runs the Python files of the model itself, with all your rights.
        """
        device = as_device(device)
        name = as_place("name", name, "a folder or a name on the hub")
        where: dict[str, Any] = {
            "trust_remote_code": as_flag("trust_remote_code", trust_remote_code),
            "local_files_only": on_disk_alone(name, local_files_only),
        }
        where |= {} if revision is None else {"revision": revision}
        model, tokenizer = _load(name, dtype, where)
        if tokenizer.mask_token_id is None:
            raise UserError(f"the tokenizer of {name!r} has no mask token; a masked LM needs one")
        before, after = _special_tokens_around(tokenizer)
        ids = None if words is None else _ids_of(words, tokenizer).to(device)
        return cls(model.to(device), tokenizer.mask_token_id, ids, before, after)

    # ------------------------------------------------------------------ what it is

    @property
    def vocab_size(self) -> int:
        return self._embedding.num_embeddings if self.ids is None else len(self.ids)

    @property
    def mask_token(self) -> int:
        """What `token_logits` reads for a hidden word; to the model that is `mask_id`."""
        return self.vocab_size

    @property
    def length(self) -> int:
        """How many words fit: the model's positions without those of `before` and `after`."""
        return _positions(self.model) - self._specials

    @property
    def width(self) -> int:
        return self._embedding.embedding_dim

    @property
    def device(self) -> torch.device:
        return self._embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self._embedding.weight.dtype

    # ------------------------------------------------------------------ what it answers

    @torch.no_grad()
    def masked_log_probs(
        self, tokens: Tokens, hidden: Hidden
    ) -> Float[Tensor, "batch length vocab"]:
        tokens, hidden = as_masked(tokens, hidden, self.vocab_size, device=self.device)
        log_probs = self._logits(self.embed(tokens, hidden)).double().log_softmax(-1)
        return with_point_masses(log_probs, tokens, hidden)

    @torch.no_grad()
    def asked_log_probs(
        self, tokens: Tokens, hidden: Hidden, asked: Hidden
    ) -> Float[Tensor, "asked vocab"]:
        """The `masked_log_probs` at the asked positions, row by row from the left, for less."""
        tokens, hidden = as_masked(tokens, hidden, self.vocab_size, device=self.device)
        asked = as_asked(asked, tokens)
        log_probs = self._logits(self.embed(tokens, hidden))[asked].double().log_softmax(-1)
        return with_point_masses(log_probs, tokens[asked], hidden[asked])

    def embed(self, tokens: Prefix, hidden: Hidden | None = None) -> Float[Tensor, "batch t width"]:
        """The model's word embeddings, without positions; that of its mask token where hidden."""
        if hidden is None:
            tokens = as_tokens(tokens, self.vocab_size, device=self.device)
        else:
            tokens, hidden = as_masked(tokens, hidden, self.vocab_size, device=self.device)
        shown = tokens if hidden is None else tokens.masked_fill(hidden, 0)
        read = shown if self.ids is None else self.ids.to(self.device)[shown]
        return self._embedding(read if hidden is None else read.masked_fill(hidden, self.mask_id))

    @property
    def soft_range(self) -> tuple[float, float]:
        """A network reads any vector."""
        return (-math.inf, math.inf)

    def soft_masked_probs(
        self, vectors: Float[Tensor, "batch t width"], *, at: Count | None = None
    ) -> Float[Tensor, "batch positions vocab"]:
        """Softmax over the words, for vectors instead of tokens; `at` one position alone.

        Differentiable in the vectors, which are cast to the model's dtype. The answer has that
        dtype too, or float32 from a model in half precision. The model computes every position
        whatever `at` is.
        """
        logits = self._logits(vectors)
        if at is not None:
            at = as_count("at", at, at_least=None)
            if not 0 <= at < vectors.shape[1]:
                raise UserError(
                    f"at is {at}; the input has positions 0 to {vectors.shape[1] - 1}",
                    parameter="at",
                )
            logits = logits[:, at : at + 1]
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)

    def token_logits(
        self, seen: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        """Logits of every word given `seen`, which may hold `mask_token`."""
        return self._logits(self.embed(seen, seen == self.mask_token))

    # ------------------------------------------------------------------ inside

    @property
    def _embedding(self) -> nn.Embedding:
        return self.model.get_input_embeddings()

    @property
    def _specials(self) -> int:
        return len(self.before) + len(self.after)

    def _around(self) -> list[tuple[str, int]]:
        sides = (("before", self.before), ("after", self.after))
        return [
            (f"{name}[{i}]", token)
            for name, side in sides
            for i, token in enumerate(as_list(name, side, "token ids"))
        ]

    def _logits(self, vectors: Float[Tensor, "batch t width"]) -> Float[Tensor, "batch t vocab"]:
        """Logits of the words, at the positions of `vectors` alone."""
        if vectors.ndim != 3 or vectors.shape[-1] != self.width:
            raise UserError(
                f"vectors have shape {tuple(vectors.shape)}; this model reads vectors of shape "
                f"(batch, t, {self.width})",
                parameter="vectors",
            )
        self._check_device("vectors", vectors)
        batch, t = vectors.shape[:2]
        if t > self.length:
            raise UserError(
                f"the input has {t} positions; this model reads at most {self.length}"
                + (f" besides {self._specials} special tokens" if self._specials else "")
            )
        parts = (self._special(self.before), vectors.to(self.dtype), self._special(self.after))
        inputs = torch.cat([part.expand(batch, -1, -1) for part in parts], dim=1)
        answer = self.model(
            inputs_embeds=inputs,
            attention_mask=torch.ones(inputs.shape[:2], dtype=torch.long, device=self.device),
        )
        logits = answer.logits[:, len(self.before) : len(self.before) + t]
        return logits if self.ids is None else logits[..., self.ids.to(self.device)]

    def _special(self, ids: tuple[int, ...]) -> Float[Tensor, "1 specials width"]:
        return self._embedding(torch.tensor([ids], dtype=torch.long, device=self.device))

    def _check_device(self, name: str, tensor: Tensor) -> None:
        if tensor.device != self.device:
            raise UserError(
                f"{name} are on {tensor.device} and the model on {self.device}; move one of them",
                parameter=name,
            )

    @torch.no_grad()
    def _check_that_vectors_are_read_as_tokens_are(self) -> None:
        """A family that does more to tokens than to embed them cannot be asked with vectors.

        ESM is one: given vectors, it adds no learned positions, and with token dropout it erases
        and rescales embeddings where it sees the mask token's id.
        """
        kind = type(self.model).__name__
        masks = (self.mask_id,) * min(2, self.length)
        ids = torch.tensor([self.before + masks + self.after], device=self.device)
        attention = torch.ones_like(ids)
        try:
            told = self.model(input_ids=ids, attention_mask=attention).logits
            soft = self.model(inputs_embeds=self._embedding(ids), attention_mask=attention).logits
        except (TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{kind} does not answer when it is given vectors (inputs_embeds) instead of "
                f"tokens, and soft prompts need that: {error}"
            ) from error
        if told.shape[-1] != self._embedding.num_embeddings:
            raise UserError(
                f"{kind} has {told.shape[-1]} outputs and embeds {self._embedding.num_embeddings} "
                "tokens; they must be as many"
            )
        scale = float(told.abs().max().clamp(min=1))
        difference = float((told - soft).abs().max())
        if not difference <= scale * torch.finfo(told.dtype).eps ** 0.5:
            raise UserError(
                f"{kind} answers differently to tokens and to their embeddings (logits differ by "
                f"{difference:.2g}): its family does more to tokens than to embed them, or mask_id "
                "is its padding token. A soft prompt on it would mean something else",
                parameter="mask_id",
            )


# ---------------------------------------------------------------------- loading


def _load(name: str, dtype: torch.dtype, where: Mapping[str, Any]) -> tuple[Any, Any]:
    """The model and its tokenizer; `where` is how transformers looks for them."""
    try:
        from transformers import AutoModelForMaskedLM, AutoTokenizer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "pretrained models need transformers, which is not installed: "
            "pip install 'transformers>=5,<6'",
            name=error.name,
        ) from error
    try:
        model, loaded = AutoModelForMaskedLM.from_pretrained(
            name, dtype=dtype, output_loading_info=True, **where
        )
        tokenizer = AutoTokenizer.from_pretrained(name, **where)
    except ValueError as error:
        refuse_own_code(name, error)
        raise UserError(
            f"{name!r} is not a masked LM that transformers can load: {_short(error)}",
            parameter=name,
        ) from error
    except Exception as error:  # the readers of damaged files raise classes of their own
        raise UserError(
            f"the masked LM {name!r} could not be loaded: {_short(error)} Check the name and "
            "the connection, or save the model and its tokenizer with save_pretrained where there "
            "is one and pass that folder (config.json, model.safetensors, tokenizer.json)"
        ) from error
    if loaded["missing_keys"]:
        missing = sorted(loaded["missing_keys"])
        raise UserError(
            f"{name!r} has no weights for {', '.join(missing[:3])}"
            + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
            + ": transformers would draw them at random. It may be an encoder that was saved "
            "without its masked-LM head"
        )
    # instead of a missing vocabulary transformers makes one of special tokens, with ids of its own
    if set(tokenizer.get_vocab().values()) <= set(tokenizer.all_special_ids):
        raise UserError(
            f"{name!r} has no vocabulary for its tokenizer; save the tokenizer there too "
            "(tokenizer.save_pretrained)",
            parameter=name,
        )
    return model, tokenizer


def _short(error: Exception) -> str:
    """The first sentence or so of an error, which may run to pages."""
    text = shorten(str(error) or type(error).__name__, width=200, placeholder=" ...")
    return text if text.endswith(".") else f"{text}."


def _special_tokens_around(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that this tokenizer puts before and after a text."""
    ids = tokenizer(tokenizer.mask_token)["input_ids"]
    middle = ids.index(tokenizer.mask_token_id)
    special = set(tokenizer.all_special_ids)
    before, after = ids[:middle], ids[middle + 1 :]
    return tuple(i for i in before if i in special), tuple(i for i in after if i in special)


def _ids_of(words: Sequence[str], tokenizer: Any) -> Int[Tensor, " words"]:
    """The token id of each word."""
    if isinstance(words, str):
        raise UserError(f"words is the string {words!r}; pass a list of words", parameter="words")
    found: dict[int, str] = {}
    for word in words:
        ids = tokenizer(word, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            pieces = tokenizer.convert_ids_to_tokens(ids)
            raise UserError(
                f"the word {word!r} is {len(ids)} tokens of this tokenizer, {pieces}; "
                "each word must be one",
                parameter="tokenizer",
            )
        if ids[0] == tokenizer.unk_token_id and word != tokenizer.unk_token:
            raise UserError(
                f"the word {word!r} is not in the vocabulary of this tokenizer",
                parameter="tokenizer",
            )
        if ids[0] in found:
            raise UserError(
                f"the words {found[ids[0]]!r} and {word!r} are the same token of this tokenizer",
                parameter="words",
            )
        found[ids[0]] = word
    return torch.tensor(list(found), dtype=torch.long)


# ---------------------------------------------------------------------- checks


def _check_model(model: Any) -> None:
    table: Any = getattr(model, "get_input_embeddings", None)
    if not isinstance(model, nn.Module) or table is None:
        raise UserError(
            f"model is a {type(model).__name__}; pass a model of transformers' "
            "AutoModelForMaskedLM, or its name to PretrainedMaskedLM.from_pretrained",
            parameter="model",
        )
    if not isinstance(table(), nn.Embedding):
        raise UserError(
            f"the input embeddings of {type(model).__name__} are a {type(table()).__name__}; "
            "a model that reads words has a table of them (torch.nn.Embedding)",
            parameter="model",
        )


def _check_id(name: str, value: int, size: int) -> None:
    if not 0 <= value < size:
        raise UserError(
            f"{name} is {value}; the model's token ids are 0..{size - 1}", parameter=name
        )


def _check_ids(ids: Tensor, size: int) -> None:
    if len(ids) == 0:
        raise UserError("ids is empty; a language has at least one word", parameter="ids")
    first: dict[int, int] = {}
    for word, value in enumerate(ids.tolist()):
        _check_id(f"ids[{word}]", value, size)
        if first.setdefault(value, word) != word:
            raise UserError(
                f"ids[{first[value]}] and ids[{word}] are both {value}; each word needs its own "
                "token",
                parameter="ids",
            )


def _positions(model: Any) -> int:
    """How many positions the model reads.

    In Roberta's family positions are counted from padding_idx + 1, so that many of the table's
    rows are never used; rotary positions have no table, and the config says how many there are.
    """
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - unused
    positions = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(positions, int):
        raise UserError(
            f"{type(model).__name__} does not say how many positions it reads: it has no position "
            "embeddings and no max_position_embeddings in its config",
            parameter="model",
        )
    return positions
