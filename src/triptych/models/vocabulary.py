"""Pieces of words that two languages share, learned from text: the tokens of a translator.

Byte-pair encoding with the spaces of SentencePiece [Kudo and Richardson, 2018]: a space is a part
of the piece after it, so that decoding puts the spaces back where they were. Two things are lost:
Unicode's NFKC makes one of signs that mean the same ("ﬁ" becomes "fi"), and a sign that was not in
the text to learn from becomes `<unk>`. A `lossless` vocabulary is made of bytes instead, as that of
GPT-2, and its text comes back byte by byte. The package `tokenizers` does the work and is an extra:
`pip install triptych[translation]`.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from triptych.core.files import write_text
from triptych.core.validation import Count, UserError, as_flag, as_size

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
"""They stand first, with the numbers 0 to 4."""


class Vocabulary:
    """Text to numbers and back."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # A text that has "<s>" in it is a text, and has no start token there.
        tokenizer.encode_special_tokens = True

    @classmethod
    def learn(cls, texts: Iterable[str], size: Count, *, lossless: bool = False) -> "Vocabulary":
        """`size` pieces, the five special ones included, from both languages' texts.

        There are fewer where the texts are too short for this many. Every sign of the texts is a
        piece, so there are more where `size` is too small for that: 26 letters, the space and the
        special ones are 32 pieces; a lossless vocabulary has 256 bytes and the special ones.
        """
        size = as_size("size", size, at_least=len(SPECIAL) + 1)
        tokenizers = _tokenizers()
        if as_flag("lossless", lossless):
            return cls._learn_bytes(tokenizers, texts, size)
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
        tokenizer.normalizer = tokenizers.normalizers.NFKC()
        split = tokenizers.pre_tokenizers
        tokenizer.pre_tokenizer = split.Sequence(
            [split.Metaspace(), split.Punctuation("isolated")]  # no piece is half a full stop
        )
        tokenizer.decoder = tokenizers.decoders.Metaspace()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size, special_tokens=list(SPECIAL), show_progress=False
        )
        tokenizer.train_from_iterator(list(texts), trainer)
        return cls(tokenizer)

    @classmethod
    def _learn_bytes(cls, tokenizers: Any, texts: Iterable[str], size: int) -> "Vocabulary":
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=max(size, len(SPECIAL) + len(alphabet)),
            special_tokens=list(SPECIAL),
            initial_alphabet=alphabet,
            show_progress=False,
        )
        tokenizer.train_from_iterator(list(texts), trainer)
        return cls(tokenizer)

    @property
    def size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each text's pieces, without start and end; 1 for unknown signs."""
        return [found.ids for found in self._tokenizer.encode_batch(list(texts))]

    def decode(self, sentences: Iterable[Sequence[int]]) -> list[str]:
        """The texts; special tokens are left out, so unknown signs are lost."""
        kept = [[t for t in sentence if t >= len(SPECIAL)] for sentence in sentences]
        return self._tokenizer.decode_batch(kept)

    @property
    def digest(self) -> str:
        """The same for vocabularies with the same pieces in the same order."""
        pieces = "\n".join(self.pieces(range(self.size)))
        return hashlib.sha256(pieces.encode()).hexdigest()

    def pieces(self, sentence: Sequence[int]) -> list[str]:
        """The pieces of one sentence, to look at."""
        return [self._tokenizer.id_to_token(t) for t in sentence]

    def save(self, path: Path) -> None:
        write_text(path, self._tokenizer.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        tokenizers = _tokenizers()
        try:
            return cls(tokenizers.Tokenizer.from_file(str(path)))
        except Exception as error:  # the package raises this class itself
            raise UserError(
                f"the vocabulary {path} cannot be read: {error}", parameter="path"
            ) from error


def _tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.normalizers
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise UserError(
            "a vocabulary needs the package tokenizers; install it with "
            "`pip install triptych[translation]`"
        ) from error
    return tokenizers
