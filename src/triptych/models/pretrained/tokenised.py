"""Between text and the tokens of a model: what every model with a tokenizer does alike.

    encode, decode, text_of, chat    between text and tokens

Every sequence begins with the model's BOS token where it has one. It is put there by the model: it
is not part of a prefix, and `encode` and `chat` leave it out.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor

from triptych.core.validation import (
    Count,
    Prefix,
    UserError,
    as_count,
    as_flag,
    as_integers,
    as_list,
    as_text,
    check_can,
    shown,
)


class Tokenised:
    """The text side of a model.

    tokenizer    of transformers, or None: then it reads and writes tokens only
    bos_token    put before every prefix, or None
    length       tokens of a sequence at most, without BOS
    end_tokens   every token that ends a text
    """

    tokenizer: Any
    bos_token: int | None
    length: int
    end_tokens: tuple[int, ...]

    @property
    def vocab_size(self) -> int:
        raise NotImplementedError

    def _bos_source(self) -> Any:
        """What says which token is BOS."""
        return self.tokenizer

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, without BOS and other special tokens around it."""
        tokenizer = self._needs_tokenizer()
        rows = []
        for b, text in enumerate(as_list("texts", texts, "texts")):
            text = as_text(f"texts[{b}]", text)
            row = tokenizer(text, add_special_tokens=False)["input_ids"]
            rows.append(self._checked_row(f"texts[{b}]", row))
        return rows

    def decode(self, tokens: Prefix, *, special: bool = False) -> list[str]:
        """The text of each row of tokens; with `special`, special tokens are written out too."""
        return [self.text_of(row, special=special) for row in as_rows("tokens", tokens)]

    def text_of(self, row: Sequence[int] | Tensor, *, special: bool = False) -> str:
        """The text of one row of tokens; -1 at its end is padding."""
        tokenizer, special = self._needs_tokenizer(), as_flag("special", special)
        tokens = self._checked_row("row", _without_padding("row", row))
        return tokenizer.decode(
            tokens, skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )

    def chat(self, messages: str | Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens of a conversation, up to where the model's reply begins, without BOS.

        One string is what the user says. Otherwise every message is {"role": ..., "content": ...}.
        """
        tokenizer = self._needs_tokenizer()
        if getattr(tokenizer, "chat_template", None) is None:
            raise UserError(
                "this tokenizer has no chat template: its model was not trained on conversations; "
                "write the prompt as one text, or set tokenizer.chat_template"
            )
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        said = as_list("messages", messages, "messages")
        for i, message in enumerate(said):
            if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
                raise UserError(
                    f"messages[{i}] is {shown(message)}; a message is a dictionary with "
                    "'role' and 'content'",
                    parameter="messages",
                )
        if not said:
            raise UserError(
                "messages is empty; a conversation has at least one message", parameter="messages"
            )
        text = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        row = tokenizer(text, add_special_tokens=False)["input_ids"]
        if self.bos_token is not None and row[:1] == [self.bos_token]:
            row = row[1:]
        return self._checked_row("the conversation", row)

    # ------------------------------------------------------------------ inside

    def _bos_token(self, bos: bool | Count) -> int | None:
        if isinstance(bos, bool):
            source = self._bos_source()
            token = getattr(source, "bos_token_id", None) if bos else None
        else:
            token = as_count("bos", bos)
        if token is not None and not 0 <= token < self.vocab_size:
            raise UserError(
                f"the BOS token is {token}; the tokens of this model are 0..{self.vocab_size - 1}"
            )
        return token

    def _needs_tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise UserError(
                "this model has no tokenizer, so it reads and writes tokens only; pass one, "
                "PretrainedCausalLM(model, tokenizer)"
            )
        return self.tokenizer

    def _prompts(self, prompts: Sequence[str] | Prefix) -> list[list[int]]:
        if isinstance(prompts, str):
            raise UserError(
                f"prompts is the string {shown(prompts)}; pass a list of prompts",
                parameter="prompts",
            )
        if isinstance(prompts, Sequence) and any(isinstance(text, str) for text in prompts):
            rows = self.encode(prompts)
        else:
            rows = as_rows("prompts", prompts)
            rows = [self._checked_row(f"prompts[{b}]", row) for b, row in enumerate(rows)]
            self._check_no_padding(rows)
        if not rows:
            raise UserError(
                "prompts is empty; pass at least one, [[]] for an empty one", parameter="prompts"
            )
        for b, row in enumerate(rows):
            if self.bos_token is not None and row[:1] == [self.bos_token]:
                raise UserError(
                    f"prompts[{b}] begins with {self.bos_token}, the BOS token, which is put "
                    "before every prompt; leave it out, or make the model with bos=False",
                    parameter="prompts",
                )
            if len(row) >= self.length:
                raise UserError(
                    f"prompts[{b}] has {len(row)} tokens; sequences of this model have at most "
                    f"{self.length}, and one must follow the prompt",
                    parameter="prompts",
                )
        return rows

    def _check_no_padding(self, rows: list[list[int]]) -> None:
        """A tokenizer's padding would be read as text; where it is also BOS or EOS, two of them."""
        pad = getattr(self.tokenizer, "pad_token_id", None)
        if pad is None:
            return
        others = (self.bos_token, self.tokenizer.unk_token_id, *self.end_tokens)
        shared = pad in others
        for b, row in enumerate(rows):
            twice = any(pair == (pad, pad) for pair in (*pairwise(row[:2]), *pairwise(row[-2:])))
            if twice if shared else pad in row:
                raise UserError(
                    f"prompts[{b}] has the padding token {pad} of this tokenizer in it; pass "
                    "prompts of different lengths as a list of lists, without padding"
                )

    def _checked_row(self, name: str, row: list[int]) -> list[int]:
        vocab_size = self.vocab_size  # looked up in the model, which takes longer than the check
        bad = [token for token in row if not 0 <= token < vocab_size]
        if bad:
            raise UserError(
                f"{name} has the token {bad[0]}; the tokens of this model are 0..{vocab_size - 1}",
                parameter=name,
            )
        return row


def check_tokenizer(tokenizer: Any, vocab_size: int) -> None:
    """Added tokens may lie beyond the model's: Gemma's tokenizer has one for images."""
    check_can("tokenizer", tokenizer, "decode", "get_vocab", "get_added_vocab", "__call__")
    added = tokenizer.get_added_vocab()
    beyond = [id_ for text, id_ in tokenizer.get_vocab().items() if text not in added]
    if max(beyond, default=0) >= vocab_size:
        raise UserError(
            f"the tokenizer has a token {max(beyond)} and the model has tokens "
            f"0..{vocab_size - 1}: it is the tokenizer of another model",
            parameter="tokenizer",
        )


# ---------------------------------------------------------------------- rows


def as_rows(name: str, tokens: Any) -> list[list[int]]:
    """Rows of tokens as lists: from lists of different lengths, or a tensor padded with -1."""
    if hasattr(tokens, "tolist"):  # a tensor or an array
        tokens = as_integers(name, tokens, dimensions=2).tolist()
    rows = as_list(name, tokens, "rows of tokens")
    return [_without_padding(f"{name}[{b}]", row) for b, row in enumerate(rows)]


def _without_padding(name: str, row: Any) -> list[int]:
    row = [
        token if type(token) is int else as_count(name, token, at_least=None)
        for token in as_list(name, row, "tokens")
    ]
    while row and row[-1] == -1:
        row.pop()
    return row
