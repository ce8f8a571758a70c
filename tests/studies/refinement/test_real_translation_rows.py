"""Real translation from phases to rows and verdicts: counts, judges, runs made elsewhere."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.models.vocabulary import Vocabulary
from triptych.studies.api.study import Rows, Scale
from triptych.studies.refinement.real_translation import judge, made_rows, study
from triptych.studies.refinement.shared import data, judging
from triptych.studies.refinement.shared.attention import MEASURES, measure_attention
from triptych.studies.refinement.shared.pipeline import Pipeline, Plan
from triptych.studies.refinement.shared.rows import Attended, Compared, Scored, Trained
from triptych.studies.refinement.shared.scoring import (
    Scores,
    bleu_of_counts,
    rows_of_phases,
)
from triptych.studies.refinement.shared.translating import (
    Refinement,
    equal_neighbours,
    first_hypotheses,
    refine_batch,
)

RUN = {"data": "multi30k", "direction": "en-de", "seed": 0}


def scored(model: str, how: str, *, on: str = "val", **more: object) -> Scored:
    found = {"bleu": 30.0, "chrf": None, "repeats": 0, "words": 100, "token_repeats": 0}
    found |= {"sentences": 10, "tokens": 100, "passes": 1.0, "signature": ""}
    return Scored(**(RUN | {"model": model, "how": how, "on": on} | found | more))


def test_what_short_outputs_cost_by_hand() -> None:
    """BLEU 18 with a factor 0.9 and 36 with 0.9 against 24 and 40 with 1: 20 - 24 and 40 - 40."""
    on = judge.DECIDES
    rows = [
        scored("padir", "T=4", on=on, bleu=18.0, brevity=0.9),
        scored("student", "beam 5", on=on, bleu=24.0, brevity=1.0),
        scored("padir", "T=4", on=on, bleu=36.0, brevity=0.9, seed=1),
        scored("student", "beam 5", on=on, bleu=40.0, brevity=1.0, seed=1),
    ]
    short, other, left = judge._brevity(Rows(rows))
    assert [check.value for check in (short, other, left)] == pytest.approx([0.9, 1.0, -2.0])
    assert judge._brevity(Rows([scored("padir", "T=4", on=on)])) == []  # rows from before


# ------------------------------------------------------------------ counting


def test_no_word_in_common_is_no_bleu() -> None:
    pytest.importorskip("sacrebleu")
    outputs, references = ["a b c d e"], ["v w x y z"]
    scores = Scores()
    assert scores.of(outputs, references)[0] == 0.0
    assert bleu_of_counts(scores.counts(outputs, references).sum(0)) == 0.0


@pytest.mark.parametrize(
    ("stutter", "before", "tokens"),
    [
        ([0, 0], 3, 7),  # beam search: counts none and drops none, 3 stand in the output
        ([3, 0], 3, 7),  # refinement that keeps them
    ],
)
def test_repeated_tokens_that_were_kept(stutter: list[int], before: int, tokens: int) -> None:
    assert equal_neighbours([5, 5, 5, 7, 7]) == 3
    row = rows_of_one([[5, 5, 5, 7, 7], [8, 9]], stutter)
    assert (row.token_repeats, row.tokens) == (before, tokens)


def test_repeated_tokens_that_were_dropped() -> None:
    """5 7 and 8 9 are left of seven tokens, three of which repeated their neighbour."""
    row = rows_of_one([[5, 7], [8, 9]], [3, 0])
    assert (row.token_repeats, row.tokens) == (3, 7)


def rows_of_one(tokens: list[list[int]], stutter: list[int]) -> Scored:
    translated = {"tokens": tokens, "stutter": stutter, "passes": [4, 4], "seconds": 1.0}
    phases = [("padir", {"outputs": {"T=4": {"val": translated}}})]
    rows = rows_of_phases(
        phases,
        data="toy",
        direction="en-de",
        seed=0,
        pairs=2,
        references={"val": ["a", "b"]},
        decode=lambda some: [" ".join(map(str, each)) for each in some],
        decode_other=lambda some: [],
    )
    return next(row for row in rows if isinstance(row, Scored))


# ------------------------------------------------------------------ judges by hand


def compared(difference: float, half: float) -> Compared:
    names = {"on": "val", "first": "padir T=4", "second": "student beam 5"}
    low, high = difference - half, difference + half
    return Compared(**RUN, **names, difference=difference, low=low, high=high)


def test_the_chance_of_the_sentences_is_in_the_interval() -> None:
    """-1 and -3, each ± 0.5: Student's 12.7062 · √2 / √2 and the bootstrap's 0.5."""
    found = judging.over_sentences([compared(-1.0, 0.5), compared(-3.0, 0.5)])
    assert found.value == -2.0
    assert found.high == pytest.approx(-2 + np.hypot(12.7062, 0.5), abs=1e-3)
    many = judging.over_sentences([compared(-2.0, 0.5)] * 50)  # more runs on the same sentences
    assert many.half_width == pytest.approx(0.5)


def test_rates_of_repeated_words_by_hand() -> None:
    """30 in 1000 words against 10 in 500: rates 0.03 and 0.02."""
    rows = [
        scored("padir", "T=4", repeats=30, words=1000),
        scored("student", "beam 5", repeats=10, words=500),
    ]
    assert judging.rate(rows) == pytest.approx(1000 * 40 / 1500)
    own, other = (judging.by_system(rows, name) for name in ("padir T=4", "student beam 5"))
    found = judging.times_as_many(own, other)
    assert found.value == pytest.approx(1.5)
    assert found.low < 1.5 < found.high
    assert np.isnan(judging.times_as_many(own, []).value)


def test_a_weak_baseline_decides_nothing() -> None:
    """Refinement within a point of students that are two points below their teachers."""
    assert judge.translations(Rows(made_rows.TRANSLATIONS_HELD)).outcome.value == "holds"
    weak = [
        dataclasses.replace(row, bleu=36.0)
        if isinstance(row, Scored) and row.model == "student"
        else row
        for row in made_rows.TRANSLATIONS_HELD
    ]
    verdict = judge.translations(Rows(weak))
    assert verdict.outcome.value == "undecided"
    assert "teachers" in verdict.missing[0]


def test_ablations_of_unequal_length_decide_nothing() -> None:
    longer = [
        dataclasses.replace(row, steps=1100)
        if isinstance(row, Trained) and row.model == "ablation no_positions"
        else row
        for row in made_rows.ABLATION_HELD
    ]
    assert judge.ablations(Rows(made_rows.ABLATION_HELD)).outcome.value == "holds"
    verdict = judge.ablations(Rows(longer))
    assert verdict.outcome.value == "undecided"
    assert "steps: 4 of 20" in verdict.missing[0]


def test_every_ablation_needs_its_steps() -> None:
    short = [
        dataclasses.replace(row, steps=990)
        if isinstance(row, Trained) and row.model == "ablation no_positions"
        else row
        for row in made_rows.ABLATION_HELD
    ]
    assert judge.ablations(Rows(short)).missing == (
        "training steps of a shorter run, the fewest: 990 of 1000",
    )


def test_a_second_stage_is_shown_and_decides_nothing() -> None:
    """The thesis names four critical practices (4, contributions); the stages are none of them."""
    lost = made_rows._all_compared(
        "ablation one_stage T=4", "ablation reference T=4", judge.ABLATED, 5.0
    )
    verdict = judge.ablations(Rows([*made_rows.ABLATION_HELD, *lost]))
    assert verdict.outcome.value == "holds"
    (check,) = [c for c in verdict.checks if "one stage" in c.sentence]
    assert check.outcome is None
    assert check.value == pytest.approx(-5.0)
    assert set(judge.CHANGES) == {
        "raw_pairs",
        "no_positions",
        "half_right",
        "raw_other_vocabulary",
    }


def test_software_texts_count_for_attention_by_hand() -> None:
    """Captions 0.97 to 1.00 in four networks, and software texts 0.5 in four: 0.7425."""
    rows = made_rows.ATTENTION_HELD
    elsewhere = [
        dataclasses.replace(row, data="software", mean=0.1 if row.stutter else 0.2)
        for row in rows
        if isinstance(row, Attended)
    ]
    alone, both = (judge._ratios(Rows(r), 4, "self_avg") for r in (rows, [*rows, *elsewhere]))
    assert alone == pytest.approx([0.97, 0.98, 0.99, 1.0])
    assert sorted(both) == pytest.approx([0.5] * 4 + [0.97, 0.98, 0.99, 1.0])
    toy = [dataclasses.replace(row, data="toy") for row in elsewhere]
    assert judge._ratios(Rows([*rows, *toy]), 4, "self_avg") == alone
    shown = [c.value for c in judge.self_attention(Rows([*rows, *elsewhere])).checks]
    assert shown[0] == pytest.approx((4 * 0.5 + 3.94) / 8)
    assert judge.self_attention(Rows(elsewhere)).outcome.value == "undecided"  # no captions


def test_one_pass_by_hand() -> None:
    """25.5 to 25.8 BLEU after one pass and 30 by beam search: 0.855 on average."""
    said = judge.one_pass(Rows(made_rows.ONE_PASS_HELD))
    assert said.checks[0].value == pytest.approx(0.855)
    no_beam = [r for r in made_rows.ONE_PASS_HELD if getattr(r, "model", "") != "student"]
    assert judge.one_pass(Rows(no_beam)).outcome.value == "undecided"


def test_what_cannot_be_run_says_so() -> None:
    assert judge.published_tables(Rows([])).missing == (
        "directions of WMT14, WMT16 and WMT17 (the pairs cannot be had here): 0 of 6",
    )
    some = made_rows.TABLES_HELD[:5]
    assert judge.published_tables(Rows(some)).outcome.value == "undecided"


def test_the_verdict_says_how_much_smaller_all_is() -> None:
    checks = judge.translations(Rows(made_rows.TRANSLATIONS_HELD)).checks
    sizes = {c.sentence: c.value for c in checks if "published: " in c.sentence}
    assert sizes == {
        "training pairs (published: 4,500,000)": 29_000.0,
        "parameters, million (published: 67)": 10.0,
        "training steps (published: 500,000)": 4000.0,
    }


def test_no_check_holds_without_rows() -> None:
    for claim in study.STUDY.claims:
        assert all(
            check.outcome is None or check.outcome.value == "undecided"
            for check in claim.judge(Rows([])).checks
        )


# ------------------------------------------------------------------ attention


def test_attention_of_neighbours_against_loops() -> None:
    shape = PairShape(45, 12, width=16, layers=1, heads=2, feedforward=16, causal=False)
    net = EncoderDecoder(shape, seed=3).eval()
    sources, how = [[5, 6, 7, 8], [9, 10], [11, 12, 13]], Refinement(2, 2)
    found = measure_attention(net, sources, how, TorchRng(0))
    done = refine_batch(net, sources, how, TorchRng(0), record=True)
    values: dict[str, list[float]] = {"yes": [], "no": []}
    for row in done.best.tolist():
        passes = [step for step in done.refined.trace if step.active[row]]
        read, length = passes[-1].hypotheses[row : row + 1], int(done.lengths[row])
        encoded = done.encoded.rows(torch.tensor([row]))
        seen = net.inspect(read, encoded, done.lengths[row : row + 1])
        tokens = done.refined.tokens[row].tolist()
        for i in range(length - 1):
            gaps = (seen.cross[0, :, i] - seen.cross[0, :, i + 1]).abs().sum(-1) / 2
            values["yes" if tokens[i] == tokens[i + 1] else "no"].append(gaps.mean().item())
    assert values["no"]
    for name, expected in values.items():
        assert found[name]["count"]["tv_avg"] == len(expected)
        assert found[name]["total"]["tv_avg"] == pytest.approx(sum(expected), abs=1e-5)
        assert set(found[name]["count"]) == set(MEASURES)


def test_first_hypotheses_are_words_up_to_the_length() -> None:
    lengths = torch.tensor([2, 4])
    rows = first_hypotheses(lengths, 45, "random", TorchRng(0))
    assert rows[0, 2:].tolist() == [0, 0]
    assert rows[0, :2].min() >= 5
    assert rows[1].min() >= 5
    assert rows.max() < 45


# ------------------------------------------------------------------ runs


def toy_pipeline(source: str, target: str) -> Pipeline:
    toy = data.toy_pairs(["de", "en"], train=20, held_out=3)
    plan = Plan(
        width=8,
        layers=1,
        heads=1,
        feedforward=8,
        length=8,
        tokens=32,
        widths=(6,),
        warmup=1,
        teacher=(2, 1e6),
        student=(2, 1e6),
        padir=(2, 1e6),
        ablation=(2, 1e6),
        ablations=("reference", "raw_pairs"),
        beams=2,
        lengths=2,
        attention=4,
    )
    return Pipeline(toy.pairs, source, target, 0, plan)


def test_two_directions_of_a_seed_have_networks_of_their_own() -> None:
    """Otherwise they would begin with the same weights, and count as two runs."""
    seeds = [toy_pipeline(*pair)._rng("teacher").seed for pair in (("en", "de"), ("de", "en"))]
    assert seeds[0] != seeds[1]


def test_rows_of_a_run_elsewhere_are_those_of_a_run_here(tmp_path: Path) -> None:
    """Phases travel as lines of JSON; what is scored from them is the same."""
    work = toy_pipeline("en", "de")
    phases = [(name, do()) for name, do in work.phases()]
    folder = tmp_path / data.TRANSLATIONS
    folder.mkdir()
    lines = [{"phase": "begin", "pairs": 20}]
    lines += [{"phase": name, "found": found} for name, found in phases]
    (folder / "en-de-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ready = data.ready_phases(tmp_path, "en-de", 0)
    assert ready is not None
    assert data.ready_phases(tmp_path, "en-de", 1) is None
    toy = data.toy_pairs(["de", "en"], train=20, held_out=3)
    references = {name: toy.texts[f"{name}.de"] for name in data._TOY_SETS}

    def rows(some):
        return list(
            rows_of_phases(
                some,
                data="toy",
                direction="en-de",
                seed=0,
                pairs=20,
                references=references,
                decode=toy.decode,
                decode_other=toy.decode,
            )
        )

    assert rows(phases) == rows((line["phase"], line["found"]) for line in ready[1:])


def aligned(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, side in itertools.product(("train", "val", "test"), ("de", "en")):
        (folder / f"{name}.{side}").write_text("a man\na dog runs\n" * 10)
    return folder


def test_translations_without_their_vocabulary_are_refused(tmp_path: Path) -> None:
    folder = aligned(tmp_path / "pairs")
    (folder / data.TRANSLATIONS).mkdir()
    (folder / data.TRANSLATIONS / "en-de-0.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="no vocabulary.json"):
        data.load_pairs(str(folder), ["de", "en"], 60)
    Vocabulary.learn(["a man", "a dog runs"], 60).save(
        folder / data.TRANSLATIONS / "vocabulary.json"
    )
    found = data.load_pairs(str(folder), ["de", "en"], 60)
    with pytest.raises(UserError, match=r"no vocabulary-other.json"):
        found.decode_other([[5]])


def test_a_vocabulary_of_software_texts_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path))
    folder = aligned(tmp_path / "pairs")
    assert data.load_pairs(str(folder), ["de", "en"], 60).other is None
    aligned(tmp_path / "software")
    found = data.load_pairs(str(folder), ["de", "en"], 60)
    assert found.other is not None
    assert found.decode_other(found.other.sides["val.en"][:1]) == ["a man"]


def test_translations_of_another_vocabulary_are_refused() -> None:
    unit = study.units(study.STUDY.settings[Scale.SMOKE])[0]
    begin = {"plan": {}, "vocab_size": 50}
    assert list(study._checked([begin], unit, 50)) == []
    with pytest.raises(UserError, match="a vocabulary of 50 pieces"):
        list(study._checked([begin], unit, 60))
    with pytest.raises(UserError, match="made with width 7"):
        list(study._checked([{"plan": {"width": 7}}], unit, 60))
