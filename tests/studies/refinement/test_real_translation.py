"""Real translation: words, scores, speedups and attention by hand; the way from text to rows."""

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.studies.refinement.shared.attention import last_pass, pair_values
from triptych.studies.refinement.shared.data import check_aligned, toy_pairs
from triptych.studies.refinement.shared.files import read_lines
from triptych.studies.refinement.shared.pipeline import Pairs
from triptych.studies.refinement.shared.rows import SpedUp, Timed
from triptych.studies.refinement.shared.scoring import (
    Scores,
    bleu_difference,
    bleu_of_counts,
    repeated_words,
    rows_of_latencies,
    speedup,
)
from triptych.studies.refinement.shared.translating import (
    Refinement,
    in_batches,
    refined_translations,
    search,
)

# ------------------------------------------------------------------ words and scores


@pytest.mark.parametrize(
    ("output", "reference", "count"),
    [
        ("the the man man man", "the man man", 2),
        ("a b c", "a b c", 0),
        ("very very good", "very very good", 0),
        ("a a a", "a", 2),
        ("", "a a", 0),
    ],
)
def test_repeated_words_by_hand(output: str, reference: str, count: int) -> None:
    assert repeated_words(output, reference) == count


def test_bleu_by_hand() -> None:
    """5 words, 4 of them right in order: precisions 4/5, 3/4, 2/3, 1/2, no brevity penalty."""
    counts = np.array([5, 5, 4, 3, 2, 1, 5, 4, 3, 2], dtype=float)
    assert bleu_of_counts(counts) == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    short = np.array([4, 8, 4, 3, 2, 1, 4, 3, 2, 1], dtype=float)
    assert bleu_of_counts(short) == pytest.approx(100 * np.exp(-1))


def test_bleu_is_sacrebleus() -> None:
    pytest.importorskip("sacrebleu")
    outputs = ["the cat sat on a mat .", "two dogs run fast", "nothing at all here"]
    references = ["the cat sat on the mat .", "two dogs are running fast", "there is something"]
    scores = Scores()
    found = scores.of(outputs, references)
    assert bleu_of_counts(scores.counts(outputs, references).sum(0)) == pytest.approx(found.bleu)
    assert found.chrf is not None
    assert "tok:13a" in found.signature
    written, wanted = scores.counts(outputs, references).sum(0)[:2]
    assert found.brevity == pytest.approx(np.exp(1 - wanted / written))


def test_a_difference_of_equal_outputs_is_nothing() -> None:
    counts = np.tile(np.array([5, 5, 4, 3, 2, 1, 5, 4, 3, 2], dtype=float), (20, 1))
    assert bleu_difference(counts, counts) == (0.0, 0.0, 0.0)


def test_speedup_by_hand() -> None:
    ratio, low, high = speedup([2.0, 4.0, 6.0], [1.0, 1.0, 1.0], 0.5)
    assert ratio == 4.0
    assert 2.0 <= low <= 4.0 <= high <= 6.0


def test_latencies_become_rows() -> None:
    records = [
        {"direction": "en-de", "seed": 0, "device": "cpu", "model": model, "how": how}
        | {"seconds": seconds, "passes": [2, 4, 3]}
        for model, how, seconds in (
            ("padir", "T=4", [1.0, 2.0, 1.0]),
            ("student", "beam 5", [3.0, 6.0, 3.0]),
        )
    ]
    rows = list(rows_of_latencies(records, data="toy"))
    timed = [row for row in rows if isinstance(row, Timed)]
    assert [(row.model, row.how, row.median, row.passes) for row in timed] == [
        ("padir", "T=4", 1.0, 3.0),
        ("student", "beam 5", 3.0, 3.0),
    ]
    sped = [row for row in rows if isinstance(row, SpedUp)]
    assert [(row.at, row.ratio) for row in sped] == [
        ("median", pytest.approx(3.0)),
        ("p99", pytest.approx(3.0)),
    ]


# ------------------------------------------------------------------ attention


def test_measures_of_a_pair_by_hand() -> None:
    cross = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]])
    own = torch.tensor([[[[0.9, 0.1], [0.3, 0.7]], [[0.2, 0.8], [0.6, 0.4]]]])
    values = pair_values(own, cross)
    for name, expected in {"tv_min": 0.0, "tv_avg": 0.5, "tv_max": 1.0}.items():
        assert values[name].flatten().tolist() == pytest.approx([expected])
    for name, expected in {"cosine_min": 0.0, "cosine_avg": 0.5, "cosine_max": 1.0}.items():
        assert values[name].flatten().tolist() == pytest.approx([expected], abs=1e-6)
    # heads 0.1 and 0.8 from the first to the second, 0.3 and 0.6 back
    assert values["self_min"].flatten().tolist() == pytest.approx([0.1, 0.3])
    assert values["self_avg"].flatten().tolist() == pytest.approx([0.45, 0.45])
    assert values["self_max"].flatten().tolist() == pytest.approx([0.8, 0.6])
    assert values["self_top1"].flatten().tolist() == [0.5, 0.5]
    assert values["self_top2"].flatten().tolist() == [1.0, 1.0]
    assert values["cross_top1"].flatten().tolist() == [0.5]
    assert values["cross_top2"].flatten().tolist() == [1.0]


def test_the_last_pass_of_each_row() -> None:
    read = [torch.tensor([[1], [2]]), torch.tensor([[3], [4]])]
    active = [torch.tensor([True, True]), torch.tensor([True, False])]
    assert last_pass(read, active).tolist() == [[3], [2]]


# ------------------------------------------------------------------ translating


def toy_net(*, causal: bool) -> EncoderDecoder:
    shape = PairShape(45, 12, width=16, layers=1, heads=2, feedforward=16, causal=causal)
    return EncoderDecoder(shape, seed=0).eval()


def test_batches_change_nothing_for_beam_search() -> None:
    net, sources = toy_net(causal=True), [[5, 6, 7], [8, 9], [10, 11, 12, 13], [6]]
    alone = [search(net, [source], beams=2).tokens[0] for source in sources]
    together = in_batches(sources, 2, lambda some: search(net, some, beams=2)).tokens
    # A batch may write longer translations than a short sentence alone: compare the beginnings.
    for one, other in zip(alone, together, strict=True):
        assert one == other[: len(one)]


def test_refined_translations_have_no_repeats_left() -> None:
    net, rng = toy_net(causal=False), TorchRng(0)
    found = refined_translations(net, [[5, 6, 7], [8, 9]], Refinement(3, 2), rng)
    assert len(found.tokens) == 2
    for row in found.tokens:
        assert all(a != b for a, b in itertools.pairwise(row))
    assert all(1 <= passes <= 3 for passes in found.passes)


def test_too_long_a_source_is_refused() -> None:
    with pytest.raises(UserError, match="reads 1 to 12"):
        search(toy_net(causal=True), [[5] * 13], beams=1)


# ------------------------------------------------------------------ data


def test_pairs_travel_as_arrays() -> None:
    pairs = Pairs(50, {"train.en": [[5, 6], [7]], "train.de": [[8], [9, 10, 11]]})
    again = Pairs.from_arrays(pairs.as_arrays())
    assert again.vocab_size == 50
    assert dict(again.sides) == dict(pairs.sides)


def test_the_toy_language_is_aligned() -> None:
    toy = toy_pairs(["de", "en"])
    assert toy.texts["val.de"][0].split()[-1][1:] == toy.texts["val.en"][0].split()[0][1:]
    assert toy.decode(toy.pairs.sides["train.en"][:3]) == toy.texts["train.en"][:3]


def test_files_plain_or_compressed(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("a b\nc\n")
    with gzip.open(tmp_path / "train.de.gz", "wt", encoding="utf-8") as file:
        file.write("ä b\nc\n")
    assert read_lines(tmp_path, "train.en") == ["a b", "c"]
    assert read_lines(tmp_path, "train.de") == ["ä b", "c"]
    with pytest.raises(UserError, match="has no file val.en"):
        read_lines(tmp_path, "val.en")
    (tmp_path / "val.en").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        read_lines(tmp_path, "val.en")


def test_files_that_are_not_aligned_are_refused() -> None:
    with pytest.raises(UserError, match="val.en has 2 lines and val.de 1"):
        check_aligned({"val.en": ["a", "b"], "val.de": ["c"]}, ["en", "de"])


def test_found_numbers_are_json() -> None:
    """What phases find is written as lines of JSON: nothing in it may be a tensor."""
    from triptych.studies.refinement.shared.pipeline import Pipeline, Plan

    toy = toy_pairs(["de", "en"], train=20, held_out=3)
    plan = Plan(width=8, layers=1, heads=1, feedforward=8, length=8, tokens=32, warmup=1)
    work = Pipeline(toy.pairs, "en", "de", 0, plan)
    work.nets["padir"] = toy_net(causal=False)
    assert json.dumps(work.attention())
    assert json.dumps(work.remasking())
