"""The bytes of tokens, against what engines read of the same tokenizers themselves."""

import pytest
from tests.support.tiny_text_model import tiny_lm, tiny_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from triptych.core.validation import UserError
from triptych.verifiers.grammars.vocabulary import Vocabulary, every_byte

TEXT = ['{"name": "é", "list": [1, 2.5, null]}', "the cat, the dog and the 日本 cat"] * 20


def byte_level():
    """A tokenizer as GPT-2 has it, trained on a few lines."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<end>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")


def byte_fallback():
    """A tokenizer as Llama 2 has it: pieces with ▁ for a space, and bytes for what has none."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [*'▁{}[]":,0123456789.-+abcdefghijklmnopqrstuvwxyz', "▁a", "na", "▁[", '":']
    tokenizer = Tokenizer(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            [("▁", "a"), ("n", "a"), ("▁", "["), ('"', ":")],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", bos_token="<s>", unk_token="<unk>"
    )


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_llguidance_reads_the_same_bytes(make):
    hf = pytest.importorskip("llguidance.hf", reason="llguidance is not installed")
    tokenizer = make()
    ours, theirs = Vocabulary.of(tokenizer), hf.from_tokenizer(tokenizer)
    for token in range(len(ours)):
        if ours.tokens[token].strip(b"\xff"):  # special tokens are marked so
            assert theirs.decode_bytes([token]) == ours.tokens[token]
    assert sum(bool(token) for token in ours.tokens) > 256


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_xgrammar_reads_the_same_bytes(make):
    xgrammar = pytest.importorskip("xgrammar", reason="xgrammar is not installed")
    tokenizer = make()
    ours = Vocabulary.of(tokenizer)
    theirs = xgrammar.TokenizerInfo.from_huggingface(tokenizer).decoded_vocab
    for token, written in enumerate(ours.tokens):
        if written:
            assert theirs[token] == written


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
@pytest.mark.parametrize("text", ['{"a": [1, "né"]}', "日本 and a", "\U0001f600"])
def test_the_bytes_of_a_text(make, text):
    tokenizer = make()
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert Vocabulary.of(tokenizer).text(tokens) == text.encode()


def test_that_of_a_model_has_its_size_and_its_ends():
    lm = tiny_lm()
    vocabulary = Vocabulary.of(lm)
    assert len(vocabulary) == lm.vocab_size
    assert vocabulary.ends == tuple(lm.end_tokens)
    assert vocabulary.tokens[:4] == (b"", b"", b"", b"")
    assert vocabulary.tokens[4:6] == (b"a", b"b")
    assert Vocabulary.of(vocabulary) is vocabulary


def test_worked_values():
    assert Vocabulary(["a", "é"]).tokens == (b"a", b"\xc3\xa9")
    some = Vocabulary(["a", "ab", "b", "abc"])
    assert some.spelled("abb") == [1, 2]
    assert some.within(b"abx") == [0, 1]
    assert some.beginning_with(b"a") == [1, 3]
    assert some.text([1, 2]) == b"abb"
    assert list(Vocabulary([" ", "\n", " a"]).signs) == [False, False, True]
    assert len(every_byte()) == 257


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Vocabulary([]), "tokens is empty"),
        (lambda: Vocabulary("ab"), "tokens is 'ab'"),
        (lambda: Vocabulary([1]), r"tokens\[0\] is 1; it must be a string or bytes"),
        (lambda: Vocabulary(["a"], [1]), "ends holds the token 1; there are 1 tokens"),
        (lambda: Vocabulary(["a"], [-1]), "a token of ends is -1"),
        (lambda: Vocabulary(["a"]).spelled("b"), "no token of the vocabulary writes"),
        (lambda: Vocabulary.of(3), "is 3; it needs get_vocab"),
    ],
)
def test_what_is_no_vocabulary(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()


def test_a_tokenizer_whose_tokens_do_not_stand_alone_is_refused():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(UserError, match="decodes by WordPiece"):
        Vocabulary.of(tokenizer)
