"""Prompts in several precisions: the rounding, the zeros of a gradient, rows and judge."""

from dataclasses import replace

import pytest
import torch

from triptych.core.estimates import Status
from triptych.core.validation import UserError
from triptych.lab.running.workbench import WorkBench
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.studies.api.refutation import unmet
from triptych.studies.api.study import Rows, Scale
from triptych.studies.tuning import prompt_precision as study
from triptych.studies.tuning.prompt_precision import STUDY, PromptPrecision, Rounded
from triptych.studies.tuning.shared import downstream as tasks
from triptych.studies.tuning.shared.downstream import SMOKE

pytestmark = pytest.mark.numerical


def network():
    shape = Shape(vocab_size=11, length=10, width=16, layers=1, heads=2, causal=False)
    return MaskedLM(Transformer(shape, seed=0))


def data(rng):
    return tasks.downstream(HMM.random(3, 10, 10, seed=0), SMOKE, 0, rng)


@pytest.fixture
def task(tmp_path):
    return data(WorkBench(0, "cpu", tmp_path).rng("inputs"))


def test_a_rounded_network_is_near_the_network(task):
    """float16 keeps 11 bits, bfloat16 8: probabilities differ by about 0.001 and 0.01 at most."""
    lm = network()
    vectors = lm.embed(task.test.tokens)
    whole = lm.soft_masked_probs(vectors)
    for dtype, most in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
        rounded = Rounded.of(lm, dtype)
        assert (rounded.vocab_size, rounded.soft_range) == (lm.vocab_size, lm.soft_range)
        assert torch.equal(rounded.embed(task.test.tokens), vectors)
        probs = rounded.soft_masked_probs(vectors)
        assert probs.dtype is torch.float32
        assert 0 < float((probs - whole).detach().abs().max()) < most


def test_zeros_of_the_gradient(task):
    """None in float32. A network whose answers are scaled down by 2^-20 loses its gradient in
    float16, which has nothing below 2^-24, and keeps it in bfloat16."""
    lm = network()
    assert study.vanished(lm, task, SMOKE, 0) == 0

    class Faint(Rounded):
        def soft_masked_probs(self, vectors, *, at=None):
            return super().soft_masked_probs(vectors, at=at) * 2.0**-20

    for dtype, low, high in ((torch.float16, 0.9, 1.0), (torch.bfloat16, 0.0, 0.05)):
        faint = Faint(lm, Rounded.of(lm, dtype).copy, dtype)
        assert low <= study.vanished(faint, task, SMOKE, 0) <= high


def test_rows_and_the_judge(tmp_path):
    (claim,) = STUDY.claims
    assert not unmet(claim)
    (unit,) = STUDY.units(STUDY.settings[Scale.SMOKE])
    (row,) = STUDY.run(unit, WorkBench(unit.seed, "cpu", tmp_path))
    accuracies = (row.full, row.float16, row.bfloat16, row.head, row.short_head, row.short_prompt)
    assert all(0 <= accuracy <= 1 for accuracy in accuracies)
    assert row.zeros_full == 0
    rows = [replace(row, seed=seed, full=0.9, float16=0.6 + seed / 100) for seed in range(6)]
    rows = [replace(row, kl_first=0.0) for row in rows]
    verdict = study.judge(Rows(rows))
    assert verdict.outcome is Status.HOLDS
    assert verdict.checks[0].value == pytest.approx(27.5)  # 30, 29, …, 25 points
    assert study.judge(Rows(rows[:5])).missing == ("networks off their plateau: 5 of 6",)
    with pytest.raises(UserError, match="short_steps must be at least 1"):
        study.units(PromptPrecision(short_steps=0))
