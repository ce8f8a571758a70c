"""The bytes of every token of a vocabulary, which is all that a grammar needs to know of a model.

Engines read bytes: a token may hold half a character. What stands for no text (end tokens, padding,
places that a model has and its tokenizer does not) has no bytes, and no grammar allows it.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool

from triptych.core.deprecation import renamed
from triptych.core.validation import UserError, as_count, as_list, check_can, set_fields, shown

_PROBE = '{"name": [1, -2.5e3, "a b"], "é": {}}'


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """What each token writes, and which tokens end a text.

    tokens   the bytes of token 0, 1, ...; a string stands for its UTF-8; b"" for one that writes
             nothing
    ends     tokens that end a text; what bytes they have is not read

    Worked value: Vocabulary(["a", "é"]).tokens is (b"a", b"\\xc3\\xa9").
    """

    tokens: Sequence[Any]
    ends: Sequence[Any] = ()

    def __post_init__(self) -> None:
        given = as_list("tokens", self.tokens, "tokens, each a string or bytes")
        if not given:
            raise UserError("tokens is empty; it must hold at least one token", parameter="tokens")
        tokens = tuple(_as_bytes(f"tokens[{i}]", token) for i, token in enumerate(given))
        ends = [as_count("a token of ends", end) for end in as_list("ends", self.ends, "tokens")]
        if beyond := [end for end in ends if end >= len(tokens)]:
            raise UserError(
                f"ends holds the token {beyond[0]}; there are {len(tokens)} tokens",
                parameter="ends",
            )
        written = tuple(b"" if i in ends else token for i, token in enumerate(tokens))
        set_fields(self, tokens=written, ends=tuple(sorted(set(ends))))

    @classmethod
    @renamed(model="lm")
    def of(cls, lm: Any) -> "Vocabulary":
        """That of a PretrainedCausalLM with its tokenizer, or of a fast tokenizer alone."""
        if isinstance(lm, Vocabulary):
            return lm
        tokenizer = getattr(lm, "tokenizer", lm)
        check_can("lm", tokenizer, "get_vocab", "decode", "__call__")
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise UserError(
                f"the tokenizer is a {type(tokenizer).__name__}; a grammar needs a fast one, which "
                "says how its tokens are written as bytes",
                parameter="tokens",
            )
        ends = getattr(lm, "end_tokens", None)
        if ends is None:
            ends = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        read = _bytes_of(tokenizer)
        size = getattr(lm, "vocab_size", None) if lm is not tokenizer else None
        size = max(read) + 1 if size is None else size
        made = cls([read.get(i, b"") for i in range(size)], tuple(ends))
        _check_reading(tokenizer, made)
        return made

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens, ends {list(self.ends)})"

    @cached_property
    def signs(self) -> Bool[np.ndarray, " vocab"]:
        """Tokens that write something besides space."""
        return np.array([bool(token.strip(b" \t\r\n")) for token in self.tokens])

    def text(self, tokens: Iterable[int]) -> bytes:
        """What tokens write."""
        return b"".join(self.tokens[token] for token in tokens)

    def spelled(self, text: str | bytes) -> list[int]:
        """Tokens that write a text, the longest one first at every place.

        Worked value: of ["a", "ab", "b"], "abb" is [1, 2].
        """
        rest = _as_bytes("text", text)
        found: list[int] = []
        while rest:
            fitting = self.within(rest)
            if not fitting:
                raise UserError(f"no token of the vocabulary writes the beginning of {rest!r}")
            found.append(fitting[-1])
            rest = rest[len(self.tokens[found[-1]]) :]
        return found

    def within(self, text: bytes) -> list[int]:
        """Tokens that write the beginning of a text or all of it, the short ones first."""
        most = min(self._longest, len(text))
        return [i for n in range(1, most + 1) for i in self._by_bytes.get(text[:n], ())]

    def beginning_with(self, text: bytes) -> list[int]:
        """Tokens that write a text, and more after it."""
        written, numbers = self._sorted
        at = bisect_right(written, text)
        found = []
        while at < len(written) and written[at].startswith(text):
            found.append(numbers[at])
            at += 1
        return found

    @cached_property
    def _sorted(self) -> tuple[list[bytes], list[int]]:
        numbers = sorted(range(len(self.tokens)), key=lambda i: self.tokens[i])
        return [self.tokens[i] for i in numbers], numbers

    @cached_property
    def _by_bytes(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for i, token in enumerate(self.tokens):
            if token:
                found.setdefault(token, []).append(i)
        return found

    @cached_property
    def _longest(self) -> int:
        return max(len(token) for token in self.tokens)


def every_byte() -> Vocabulary:
    """The 256 bytes, and the token 256, which ends a text."""
    return Vocabulary([*(bytes([i]) for i in range(256)), b""], (256,))


def _as_bytes(name: str, token: Any) -> bytes:
    if isinstance(token, str):
        return token.encode("utf-8", "surrogatepass")
    if not isinstance(token, bytes | bytearray):
        raise UserError(f"{name} is {shown(token)}; it must be a string or bytes", parameter=name)
    return bytes(token)


# ------------------------------------------------------------------ tokenizers of Hugging Face


def _bytes_of(tokenizer: Any) -> dict[int, bytes]:
    """What each token of a fast tokenizer writes; special ones write nothing."""
    written = json.loads(tokenizer.backend_tokenizer.to_str())
    added = {token["id"]: token for token in written.get("added_tokens") or ()}
    parts = _parts(written.get("decoder"))
    kinds = {part["type"] for part in parts}
    unknown = kinds - {"ByteLevel", "ByteFallback", "Replace", "Metaspace", "Fuse", "Strip"}
    if unknown:
        raise UserError(
            f"the tokenizer decodes by {', '.join(sorted(unknown))}, which is not one token after "
            "another; a grammar needs one of bytes, as most causal models have",
            parameter="tokenizer",
        )
    spaces = [part["pattern"]["String"] for part in parts if part["type"] == "Replace"]
    if "Metaspace" in kinds:
        spaces += [part["replacement"] for part in parts if part["type"] == "Metaspace"]
    found: dict[int, bytes] = {}
    for text, i in tokenizer.get_vocab().items():
        if i in added:
            found[i] = b"" if added[i]["special"] else added[i]["content"].encode()
        elif "ByteLevel" in kinds:
            found[i] = _from_byte_level(text)
        elif "ByteFallback" in kinds and len(text) == 6 and text.startswith("<0x"):
            found[i] = bytes([int(text[3:5], 16)])
        else:
            for space in spaces:
                text = text.replace(space, " ")
            found[i] = text.encode()
    return found


def _parts(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    return list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]


def _byte_characters() -> dict[str, int]:
    """The character that stands for each byte in vocabularies of the kind of GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _byte_characters()


def _from_byte_level(text: str) -> bytes:
    if all(character in _BYTES for character in text):
        return bytes(_BYTES[character] for character in text)
    return text.encode()


def _check_reading(tokenizer: Any, vocabulary: Vocabulary) -> None:
    """Our bytes of a text's tokens are the text that the tokenizer itself makes of them."""
    tokens = [int(token) for token in tokenizer(_PROBE, add_special_tokens=False)["input_ids"]]
    said = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    ours = vocabulary.text(token for token in tokens if token < len(vocabulary))
    if ours.decode("utf-8", "replace").lstrip(" ") != said.lstrip(" "):
        raise UserError(
            f"the tokens of {_PROBE!r} read {shown(ours)} by their bytes and {shown(said)} by the "
            "tokenizer itself; a grammar needs a tokenizer that writes one token after another",
            parameter="tokenizer",
        )
