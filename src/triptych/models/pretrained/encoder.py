"""Embeddings and attention of any encoder or causal model of transformers, for given text.

    embeddings      E          the table of word embeddings
    inputs          h_0(w)     what the first layer reads for one token alone: its embedding, and
                               whatever the model adds and normalises (position, type, LayerNorm)
    attention       A^l,h      the weights of layer l and head h on a passage, rows sum to 1

A small network of our own answers the same questions (`TextEncoder`), so that what is measured on
a pretrained model is measured on it too. `untrained` is the same model with random weights.

Notation
--------
w   token          0..vocab_size-1, the model's own
L   inputs         tokens of a passage with the special ones around them

transformers is an optional dependency (`pip install 'transformers>=5,<6'`), imported when used.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.core.foreign_models import as_place, on_disk_alone, refuse_own_code
from triptych.core.validation import UserError, as_count, as_flag, as_seed, check_can
from triptych.models.pretrained.causal_loading import load_causal
from triptych.models.pretrained.fetching import CATALOGUE, fetched

WORD = re.compile(r"[A-Za-z]{3,}")
"""Tokens that can be words of a topic: three letters or more, at the beginning of a word."""


@runtime_checkable
class TextEncoder(Protocol):
    """A model that reads text, and shows its embeddings and attention."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str:
        """ "encoder", "causal", or "stand-in" for a small one of our own."""
        ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def context(self) -> int:
        """Inputs of a passage, at most."""
        ...

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of every text, without special ones."""
        ...

    def words(self) -> list[str | None]:
        """Every token as a word, in small letters; None for pieces of words, numbers, signs."""
        ...

    def word_tokens(self, word: str) -> list[int]:
        """The tokens of one word in the middle of a sentence; none if it is unknown."""
        ...

    def with_specials(self, tokens: Sequence[int]) -> list[int]:
        """The inputs of a passage: its tokens with the special ones around them."""
        ...

    def embeddings(self) -> Float[Tensor, "vocab width"]: ...

    def inputs(self, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n width"]: ...

    def attention(self, inputs: Sequence[int]) -> Float[Tensor, "layers heads t t"]: ...

    def untrained(self, seed: int) -> "TextEncoder": ...


class _Reached(Exception):
    """The first layer was about to read this."""

    def __init__(self, states: Tensor) -> None:
        self.states = states


@dataclass(frozen=True, eq=False)
class PretrainedEncoder:
    """A model of transformers' AutoModel with its tokenizer.

    The model is changed in place: evaluation mode, frozen parameters, attention written out. Of an
    encoder-decoder (Bart, T5) the encoder is read.
    """

    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    name: str
    family: str = "encoder"

    def __post_init__(self) -> None:
        check_can("tokenizer", self.tokenizer, "convert_ids_to_tokens", "get_vocab")
        table = getattr(self.model, "get_input_embeddings", lambda: None)()
        if not isinstance(self.model, nn.Module) or not isinstance(table, nn.Embedding):
            raise UserError(
                f"{self.name} is a {type(self.model).__name__}, which has no table of word "
                "embeddings; give an encoder or a causal model that reads text",
                parameter="model",
            )
        self.model.eval()
        self.model.requires_grad_(False)
        write_out = getattr(self.model, "set_attn_implementation", None)
        if write_out is not None:
            write_out("eager")
        object.__setattr__(self, "family", self._probed_family())

    @classmethod
    def from_pretrained(
        cls,
        where: str | Path,
        *,
        name: str | None = None,
        local_files_only: bool = False,
        trust_remote_code: bool = False,
    ) -> "PretrainedEncoder":
        """The model in a folder or a .gguf file, or with this name on the hub.

        trust_remote_code=True runs the Python files of the model itself, with all your rights.
        """
        trust_remote_code = as_flag("trust_remote_code", trust_remote_code)
        model, tokenizer = _load(where, local_files_only, trust_remote_code)
        return cls(model, tokenizer, name or Path(where).name)

    # ------------------------------------------------------------------ text

    @property
    def vocab_size(self) -> int:
        return min(self._table.num_embeddings, len(self.tokenizer))

    @property
    def context(self) -> int:
        """Positions of the model, as far as it says; Roberta's family never uses two of them."""
        most = getattr(self.model.config, "max_position_embeddings", None)
        return most - 2 if isinstance(most, int) else 512

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        return self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]

    def words(self) -> list[str | None]:
        mark = _start_of_word(self._pieces)
        special = set(self.tokenizer.all_special_ids)
        return [None if i in special else _as_word(p, mark) for i, p in enumerate(self._pieces)]

    def word_tokens(self, word: str) -> list[int]:
        before = " " if _start_of_word(self._pieces) == "Ġ" else ""
        found = self.encode([before + word])[0]
        return [] if self.tokenizer.unk_token_id in found else found

    def with_specials(self, tokens: Sequence[int]) -> list[int]:
        before, after = self._around
        return [*before, *tokens, *after]

    # ------------------------------------------------------------------ what the model has

    def embeddings(self) -> Float[Tensor, "vocab width"]:
        return self._table.weight.detach()[: self.vocab_size].float()

    @torch.no_grad()
    def inputs(self, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n width"]:
        """h_0 of every token alone, at the first position."""
        layers = self._layers()
        if layers is None:
            states = [
                self.model(input_ids=some[:, None], output_hidden_states=True).hidden_states[0]
                for some in tokens.split(256)
            ]
            return torch.cat(states)[:, 0].float()
        hook = layers[0].register_forward_pre_hook(_stop, with_kwargs=True)
        try:
            self.model(input_ids=tokens[:, None])
        except _Reached as reached:
            return reached.states[:, 0].float()
        finally:
            hook.remove()
        raise UserError(
            f"{self.name} does not read its first layer; its inputs cannot be seen",
            parameter="name",
        )

    @torch.no_grad()
    def attention(self, inputs: Sequence[int]) -> Float[Tensor, "layers heads t t"]:
        ids = torch.tensor([list(inputs)])
        answer = self.model(
            input_ids=ids, attention_mask=torch.ones_like(ids), output_attentions=True
        )
        return torch.cat(list(answer.attentions)).float()

    def untrained(self, seed: int) -> "PretrainedEncoder":
        """The same model with weights as its family draws them."""
        seed = as_seed(seed)
        config = self.model.config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = type(self.model)(config)
        return replace(self, model=fresh, name=f"{self.name}, random weights")

    # ------------------------------------------------------------------ inside

    @functools.cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text."""
        plain = self.tokenizer("the", add_special_tokens=False)["input_ids"]
        whole = self.tokenizer("the")["input_ids"]
        first = next(i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
        return whole[:first], whole[first + len(plain) :]

    @functools.cached_property
    def _pieces(self) -> list[str]:
        return self.tokenizer.convert_ids_to_tokens(list(range(self.vocab_size)))

    @property
    def _table(self) -> nn.Embedding:
        return self.model.get_input_embeddings()

    def _layers(self) -> nn.ModuleList | None:
        depth = getattr(self.model.config, "num_hidden_layers", None)
        lists = (m for m in self.model.modules() if isinstance(m, nn.ModuleList))
        return next((each for each in lists if len(each) == depth), None)

    def _probed_family(self) -> str:
        """Causal if nothing looks ahead; a model without attention weights is refused."""
        try:
            seen = self.attention(self.with_specials(list(range(4))))
        except (TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise UserError(
                f"{self.name} ({type(self.model).__name__}) does not show attention weights for "
                f"text; give an encoder or a causal model: {str(error)[:120]}",
                parameter="model",
            ) from error
        return "causal" if not seen.triu(1).any() else "encoder"


def _stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    raise _Reached(args[0] if args else kwargs["hidden_states"])


def _start_of_word(pieces: Sequence[str]) -> str:
    """How a tokenizer marks the beginning of a word; "##" marks what does not begin one."""
    for mark in ("##", "Ġ", "▁"):
        if sum(piece.startswith(mark) for piece in pieces) > len(pieces) / 100:
            return mark
    return ""


def _as_word(piece: str, mark: str) -> str | None:
    """Worked value: "frog" is a word with the mark "##", and "Ġfrog" with the mark "Ġ"."""
    if mark in ("Ġ", "▁"):
        if not piece.startswith(mark):
            return None
        piece = piece.removeprefix(mark)
    return piece.lower() if WORD.fullmatch(piece) else None


def cut_passage(encoder: TextEncoder, tokens: Sequence[int], most: int) -> list[int]:
    """A passage as the model reads it, `most` inputs or fewer."""
    most = min(as_count("most", most, at_least=4), encoder.context)
    room = most - len(encoder.with_specials([]))
    return encoder.with_specials(list(tokens[:room]))


# ---------------------------------------------------------------------- loading


def _load(where: str | Path, local_files_only: bool, trust_remote_code: bool) -> tuple[Any, Any]:
    place = as_place("where", where, "a folder, a name on the hub or a path to a .gguf file")
    if place in CATALOGUE and not Path(place).exists():
        place = str(fetched(place))
    if Path(place).suffix == ".gguf":
        model, tokenizer = load_causal(
            place, dtype="float32", gguf_file=None, local_files_only=True, revision=None
        )
        return model.base_model, tokenizer
    try:
        from transformers import AutoModel, AutoTokenizer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "pretrained models need transformers, which is not installed: "
            "pip install 'transformers>=5,<6'",
            name=error.name,
        ) from error
    options: dict[str, Any] = {
        "local_files_only": on_disk_alone(place, local_files_only),
        "trust_remote_code": trust_remote_code,
    }
    try:
        both: Any = AutoModel.from_pretrained(
            place, dtype=torch.float32, output_loading_info=True, **options
        )
        tokenizer = AutoTokenizer.from_pretrained(place, **options)
    except Exception as error:  # readers of damaged or other files raise classes of their own
        refuse_own_code(place, error)
        raise UserError(
            f"{place!r} is neither an encoder nor a causal model with a tokenizer that "
            f"transformers can load: {' '.join(str(error).split())[:160]}"
        ) from error
    model, loaded = both
    missing = sorted(key for key in loaded["missing_keys"] if "pooler" not in key)
    if missing:
        raise UserError(
            f"{place!r} has no weights for {', '.join(missing[:3])}: transformers would draw "
            "them at random"
        )
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
    return model, tokenizer
