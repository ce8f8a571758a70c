"""The study `diffusion_gap`: every objective trains, and bounds are above the entropy."""

import pytest

from triptych.core.mask_laws import MaskLaw
from triptych.lab.running.workbench import WorkBench
from triptych.studies.api.study import Rows, Scale
from triptych.studies.training.diffusion_gap import OBJECTIVES, STUDY, run, truth, worst_variance
from triptych.theory.masking.blocks.dynamics import BlockDynamics, slowest


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_unit(objective, tmp_path):
    settings = STUDY.settings[Scale.SMOKE]
    unit = next(u for u in STUDY.units(settings) if u.objective == objective)
    (row,) = run(unit, WorkBench(0, "cpu", tmp_path))
    assert row.bound >= row.entropy - 1e-9
    assert (row.written is None) == (objective == "uniform noise")
    assert row.written is None or row.written > 0
    assert (row.mixing is not None) == objective.startswith("k = ")
    assert STUDY.figures[0](Rows([row])).panels


def test_whole_blocks_mix_at_once(tmp_path):
    """Redrawing more positions has a larger gap, and the truth is what its size says."""
    settings = STUDY.settings[Scale.SMOKE]
    both = [u for u in STUDY.units(settings) if u.objective.startswith("k = ")]
    rows = [next(iter(run(u, WorkBench(0, "cpu", tmp_path)))) for u in both if u.structure == "hmm"]
    assert rows[0].mixing < rows[1].mixing <= 1
    assert truth("ising", 3).vocab_size == 2


def test_training_is_as_efficient_as_the_sampler_is_fast():
    """li 4.1: the variance ratio is at most 1/gap; 1 for blocks of all positions."""
    for k in (1, 2, 3, 4):
        masks = MaskLaw.of_size(4, k)
        gap, _ = slowest(BlockDynamics(truth("ising", 4), masks))
        ratio = worst_variance(4, masks)
        assert 1 - 1e-9 <= ratio <= 1 / gap + 1e-9
        if k == 4:
            assert ratio == pytest.approx(1)
