"""Decoders and refiners over an encoder-decoder, saved translators, and vocabularies."""

import json
from pathlib import Path

import pytest
import torch
from tests.support import gpus
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.inference.beam import beam_search
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.models.translators import (
    SourceDecoder,
    SourceRefiner,
    load_translator,
    save_translator,
)
from triptych.models.vocabulary import SPECIAL, Vocabulary

START, END = 2, 3


def net(*, causal: bool, vocab: int = 9) -> EncoderDecoder:
    shape = PairShape(vocab, 6, width=8, layers=2, heads=2, feedforward=16, causal=causal)
    return EncoderDecoder(shape, seed=1).eval()


SOURCE, LENGTHS = torch.tensor([[5, 6, 7], [8, 4, 0]]), torch.tensor([3, 2])


@torch.no_grad()
def test_a_decoder_answers_as_the_network_on_the_whole_prefix() -> None:
    model = net(causal=True)
    encoded = model.encode(SOURCE, LENGTHS)
    decoder, written = SourceDecoder(model, encoded, start_token=START), [[START], [START]]
    for tokens in ([5, 6], [7, 8], [4, 4]):
        whole = model.decode(torch.tensor(written), encoded)[:, -1].log_softmax(-1)
        torch.testing.assert_close(decoder.next_log_probs(), whole)
        decoder.append(torch.tensor(tokens))
        for row, token in zip(written, tokens, strict=True):
            row.append(token)
    assert decoder.tokens.tolist() == [row[1:] for row in written]
    assert (decoder.lengths.tolist(), decoder.passes) == ([3, 3], 3)


@torch.no_grad()
def test_a_fork_goes_its_own_way() -> None:
    model = net(causal=True)
    encoded = model.encode(SOURCE, LENGTHS)
    decoder = SourceDecoder(model, encoded, start_token=START)
    decoder.next_log_probs()
    fork = decoder.fork(torch.tensor([1, 0, 1]))
    fork.append(torch.tensor([5, 6, 7]))
    prefixes = torch.tensor([[START, 5], [START, 6], [START, 7]])
    whole = model.decode(prefixes, encoded.rows(torch.tensor([1, 0, 1])))[:, -1]
    torch.testing.assert_close(fork.next_log_probs(), whole.log_softmax(-1))
    decoder.append(torch.tensor([8, 8]))
    whole = model.decode(torch.tensor([[START, 8], [START, 8]]), encoded)[:, -1]
    torch.testing.assert_close(decoder.next_log_probs(), whole.log_softmax(-1))


@torch.no_grad()
def test_beam_search_scores_what_the_network_scores() -> None:
    model = net(causal=True)
    encoded = model.encode(SOURCE, LENGTHS)
    decoder = SourceDecoder(model, encoded, start_token=START)
    found = beam_search(decoder, beams=4, length=5, end_token=END)
    for row in range(2):
        for beam in range(4):
            tokens = found.tokens[row, beam, : found.lengths[row, beam]].tolist()
            wanted = [*tokens, END] if found.ended[row, beam] else tokens
            reads = torch.tensor([[START, *wanted[:-1]]])
            log_probs = model.decode(reads, encoded.rows(torch.tensor([row]))).log_softmax(-1)[0]
            total = sum(log_probs[i, token].item() for i, token in enumerate(wanted))
            assert found.log_probs[row, beam].item() == pytest.approx(total, abs=1e-4)


@torch.no_grad()
def test_a_refiner_answers_with_laws() -> None:
    model = net(causal=False)
    encoded = model.encode(SOURCE, LENGTHS)
    laws = SourceRefiner(model, encoded).log_probs(
        torch.tensor([[5, 6, 7], [8, 5, 0]]), torch.tensor([3, 2])
    )
    torch.testing.assert_close(laws.exp().sum(-1), torch.ones(2, 3))


def test_each_decoder_has_its_algorithm() -> None:
    for causal, kind in ((True, SourceRefiner), (False, SourceDecoder)):
        model = net(causal=causal)
        encoded = model.encode(SOURCE, LENGTHS)
        with pytest.raises(UserError, match="use"):
            kind(model, encoded, **({} if causal else {"start_token": START}))


# ------------------------------------------------------------------ vocabulary and folders

TEXTS = [f"{a}{b} {b}{a}, {a}{a}{b}." for a in "bdfg" for b in "aeiou"]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    pytest.importorskip("tokenizers")
    return Vocabulary.learn(TEXTS, 60)


def test_a_vocabulary_gives_the_text_back(vocabulary: Vocabulary) -> None:
    assert vocabulary.decode(vocabulary.encode(TEXTS)) == TEXTS
    rows = vocabulary.encode(TEXTS)
    assert min(map(min, rows)) >= len(SPECIAL)
    assert vocabulary.size <= 60
    assert vocabulary.decode([[0, 2, *rows[0], 3, 4]]) == TEXTS[:1]
    assert "".join(vocabulary.pieces(rows[0])).replace("▁", " ").strip() == TEXTS[0]


def test_a_full_stop_is_a_piece_of_its_own(vocabulary: Vocabulary) -> None:
    assert vocabulary.pieces(vocabulary.encode(["ba."])[0])[-1] == "."


def test_words_that_look_like_special_tokens_are_text(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    texts = [text for special in SPECIAL for text in (special, f"ba {special} da", f"ba{special}")]
    vocabulary.save(tmp_path / "vocabulary.json")
    loaded = Vocabulary.load(tmp_path / "vocabulary.json")
    for each in (vocabulary, loaded):
        for row in each.encode(texts):
            assert not {0, 2, 3, 4} & set(row)
    letters = Vocabulary.learn(["<pad> </s> unk mask"], 60)
    assert letters.decode(letters.encode(["<pad> </s> <unk> <mask>"])) == [
        "<pad> </s> <unk> <mask>"
    ]


def test_a_vocabulary_has_every_sign_and_forgets_the_unknown() -> None:
    pytest.importorskip("tokenizers")
    letters = Vocabulary.learn(["abcdefghijklmnopqrstuvwxyz"], 10)
    assert letters.size == 32
    assert letters.decode(letters.encode(["a日b", "ﬁ"])) == ["ab", "fi"]


def test_a_digest_tells_vocabularies_apart(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json").digest == vocabulary.digest
    assert Vocabulary.learn(TEXTS, 50).digest != vocabulary.digest


def test_a_device_that_is_not_here_is_refused(
    vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_translator(tmp_path, net(causal=True, vocab=vocabulary.size), vocabulary)
    with refused("device"):
        load_translator(tmp_path, device="foo")
    for count in (0, 1):
        gpus.pretend(monkeypatch, count)
        with refused("device"):
            load_translator(tmp_path, device="cuda:1")


def test_a_translator_comes_back_as_it_was(vocabulary: Vocabulary, tmp_path: Path) -> None:
    model = net(causal=True, vocab=vocabulary.size)
    save_translator(tmp_path, model, vocabulary, steps=7)
    saved = load_translator(tmp_path)
    assert saved.net.shape == model.shape
    assert saved.about == {"steps": 7}
    assert saved.vocabulary.encode(TEXTS) == vocabulary.encode(TEXTS)
    for a, b in zip(model.parameters(), saved.net.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_folder_that_is_no_translator_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    with refused("folder"):
        load_translator(tmp_path)
    save_translator(tmp_path, net(causal=True), vocabulary)
    with refused("folder"):
        load_translator(tmp_path)
    record = json.loads((tmp_path / "shape.json").read_text())
    record["shape"]["width"] = 10
    (tmp_path / "shape.json").write_text(json.dumps(record))
    with refused("folder"):
        load_translator(tmp_path)
