"""Rules for repeated tokens by hand; the judges of the program and of the text."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.support.fake_bench import Bench

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.studies.api.study import Rows, Scale
from triptych.studies.refinement.shared import data
from triptych.studies.refinement.shared.elsewhere import phases_elsewhere
from triptych.studies.refinement.shared.more_phases import RulesPipeline
from triptych.studies.refinement.shared.pipeline import Plan
from triptych.studies.refinement.shared.repeats import (
    finished_by_the_program,
    refine_with_a_schedule,
    translated_by,
)
from triptych.studies.refinement.shared.rows import Compared, Scored
from triptych.studies.refinement.shared.translating import Refinement, refined_translations
from triptych.studies.refinement.translation_rules import judge, made_rows
from triptych.studies.refinement.translation_rules.study import STUDY, run, units

SOURCES = [[5, 6, 7, 8], [9, 10], [11, 12, 13]]


def small_net() -> EncoderDecoder:
    shape = PairShape(45, 12, width=16, layers=1, heads=2, feedforward=16, causal=False)
    return EncoderDecoder(shape, seed=0).eval()


def test_the_end_of_the_program_by_hand() -> None:
    """The second 3 becomes the 8 that was read; 2 stood in the first hypothesis and goes."""
    first, read = torch.tensor([[7, 1, 2, 9]]), torch.tensor([[7, 8, 2, 9]])
    answer = torch.tensor([[3, 3, 2, 4]])
    assert finished_by_the_program(first, read, answer, torch.tensor([4])) == [[3, 8, 4]]
    assert finished_by_the_program(first, read, answer, torch.tensor([2])) == [[3, 8]]


def test_after_one_step_the_program_drops_what_repeats() -> None:
    """What was read is the first hypothesis, so that what is put back is left out."""
    first = torch.tensor([[7, 1, 2, 9]])
    answer = torch.tensor([[3, 3, 3, 4]])
    assert finished_by_the_program(first, first, answer, torch.tensor([4])) == [[3, 4]]


def test_the_unsure_half_is_drawn_again_by_hand() -> None:
    """N = 4 and T = 2: after the first step the two least probable tokens are random words."""
    asked: list[list[int]] = []

    def log_probs(hypotheses: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        asked.append(hypotheses[0].tolist())
        sure = torch.tensor([0.9, 0.6, 0.7, 0.8])
        laws = torch.full((1, 4, 1000), 1e-9).log()
        laws[0, torch.arange(4), torch.tensor([10, 11, 12, 13])] = sure.log()
        return laws

    start = torch.tensor([[5, 5, 5, 5]])
    refiner = SimpleNamespace(log_probs=log_probs)
    tokens, sure = refine_with_a_schedule(
        refiner, start, torch.tensor([4]), TorchRng(0), steps=2, vocab=1000
    )
    assert asked[0] == [5, 5, 5, 5]
    assert (asked[1][0], asked[1][3]) == (10, 13)
    assert not {11, 12} & set(asked[1])
    assert tokens.tolist() == [[10, 11, 12, 13]]
    assert sure.exp()[0].tolist() == pytest.approx([0.9, 0.6, 0.7, 0.8])


def test_fewer_tokens_are_drawn_again_after_every_step() -> None:
    """N = 4 and T = 4: after steps 1, 2 and 3 there are 3, 2 and 1 random words."""
    kept: list[int] = []

    def log_probs(hypotheses: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        kept.append(int((hypotheses[0] == torch.tensor([10, 11, 12, 13])).sum()))
        laws = torch.full((1, 4, 100_000), 1e-9).log()
        laws[0, torch.arange(4), torch.tensor([10, 11, 12, 13])] = -0.1
        return laws

    refiner, start = SimpleNamespace(log_probs=log_probs), torch.full((1, 4), 5)
    lengths = torch.tensor([4])
    refine_with_a_schedule(refiner, start, lengths, TorchRng(0), steps=4, vocab=100_000)
    assert kept == [0, 1, 2, 3]


def test_nothing_beyond_a_length_is_read_or_drawn() -> None:
    net = small_net()
    found = translated_by(net, SOURCES, "least_sure", TorchRng(0), steps=4, lengths=2)
    assert len(found.tokens) == len(found.passes) == 3
    assert all(min(row, default=5) >= 0 and len(row) <= 12 for row in found.tokens)


def test_the_published_rule_is_that_of_the_other_study() -> None:
    net = small_net()
    how = Refinement(4, 2)
    expected = refined_translations(net, SOURCES, how, TorchRng(3)).tokens
    found = translated_by(net, SOURCES, "published", TorchRng(3), steps=4, lengths=2)
    assert found.tokens == expected
    before = translated_by(net, SOURCES, "before", TorchRng(3), steps=4, lengths=2)
    squeezed = [
        [t for place, t in enumerate(row) if place == 0 or row[place - 1] != t]
        for row in before.tokens
    ]
    assert squeezed == expected


# ------------------------------------------------------------------ judges


def test_the_verdict_is_about_the_program_and_the_text_stands_beside() -> None:
    said = judge.stutter(Rows(made_rows.STUTTER_HELD))
    assert (said.outcome.value, said.printed.outcome.value) == ("holds", "holds")
    dropped = [
        row
        if not isinstance(row, Scored) or row.model != "padir"
        else Scored(**(vars(row) | {"repeats": 1}))
        for row in made_rows.STUTTER_HELD
    ]
    said = judge.stutter(Rows(dropped))
    assert (said.outcome.value, said.printed.outcome.value) == ("holds", "fails")


def test_times_as_many_by_hand() -> None:
    """80 in 12,000 words against 10 in 12,000, in both directions: 8 times."""
    checks = judge.stutter(Rows(made_rows.STUTTER_HELD)).checks
    values = [check.value for check in checks if check.outcome is not None]
    assert values == pytest.approx([8.0, 8.0])


def test_remasking_needs_all_networks() -> None:
    few = [row for row in made_rows.REMASKING_HELD if getattr(row, "seed", 0) == 0]
    assert judge.remasking(Rows(few)).outcome.value == "undecided"
    gain = 1.0 + judge.VISIBLE
    visible = made_rows._changed(keep_4=gain)
    assert judge.remasking(Rows(visible)).outcome.value == "fails"


# ------------------------------------------------------------------ from here and from elsewhere


def test_rows_of_a_run_elsewhere_are_those_of_a_run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (unit,) = units(STUDY.settings[Scale.SMOKE])
    here = list(run(unit, Bench()))
    assert {type(row).__name__ for row in here} >= {"Trained", "Scored"}
    assert any(isinstance(row, Scored) and row.how == "program T=4" for row in here)
    text = data.toy_pairs(["de", "en"])
    plan = study_plan(unit)
    work = RulesPipeline(text.pairs, "en", "de", unit.seed, plan)
    head = {"phase": "begin", "plan": vars(plan), "vocab_size": text.pairs.vocab_size}
    kept = tmp_path / data.TRANSLATIONS
    kept.mkdir()
    lines: dict[str, list[str]] = {"": [], ".rules": []}
    for name, do in work.phases_of_rules():
        record = json.dumps({"phase": name, "found": do()})
        lines[".rules" if name == "rules" else ""].append(record)
    for end, own in lines.items():
        content = "\n".join([json.dumps(head), *own])
        (kept / f"en-de-{unit.seed}{end}.jsonl").write_text(content)
    toy = data.TextPairs(text.texts, text.pairs, text.decode, text.decode_other, tmp_path)
    monkeypatch.setattr(
        "triptych.studies.refinement.translation_rules.study.load_pairs", lambda *_: toy
    )
    there = list(run(unit, Bench()))

    def timeless(rows):
        return [
            {k: v for k, v in vars(row).items() if k != "seconds"}
            for row in rows
            if not isinstance(row, Compared)
        ]

    assert timeless(there) == timeless(here)


def study_plan(unit) -> Plan:
    from triptych.studies.refinement.shared.sizes import plan_of

    return plan_of(unit, 0, unit.teacher_steps, unit.student_steps, unit.padir_steps)


def test_another_plan_or_vocabulary_is_refused(tmp_path: Path) -> None:
    assert phases_elsewhere(None, ["a.jsonl"], Plan(), 45) is None
    assert phases_elsewhere(tmp_path, ["a.jsonl"], Plan(), 45) is None
    kept = tmp_path / data.TRANSLATIONS
    kept.mkdir()
    path = kept / "a.jsonl"
    plan = vars(Plan()) | {"attention": 7}  # nothing that is read here depends on it
    path.write_text(json.dumps({"phase": "begin", "plan": plan, "vocab_size": 45}))
    assert phases_elsewhere(tmp_path, ["a.jsonl"], Plan(), 45) == []
    with pytest.raises(UserError, match="45 pieces, and"):
        phases_elsewhere(tmp_path, ["a.jsonl"], Plan(), 46)
    with pytest.raises(UserError, match="width 256, not 8"):
        phases_elsewhere(tmp_path, ["a.jsonl"], Plan(width=8), 45)
    with pytest.raises(UserError, match=r"b\.jsonl is missing"):
        phases_elsewhere(tmp_path, ["a.jsonl", "b.jsonl"], Plan(), 45)
