"""Latency at the published size and lengths: what is timed, and the judge by hand."""

import numpy as np
import pytest
from tests.support.fake_bench import Bench

from triptych.core.randomness import TorchRng
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.studies.api.study import Rows, Scale
from triptych.studies.refinement import translation_speed as speed


def small_net(*, causal: bool) -> EncoderDecoder:
    shape = PairShape(50, 64, width=16, layers=1, heads=2, feedforward=16, causal=causal)
    return EncoderDecoder(shape, seed=0).eval()


def test_lengths_are_those_of_the_source_on_average() -> None:
    """Mean 31 ± 12 / √4000 · 5; nothing shorter than 4 or longer than the network reads."""
    drawn = [n for seed in range(4) for n in speed.target_lengths(1000, seed, 251)]
    assert abs(np.mean(drawn) - 31) < 5 * 12 / np.sqrt(4000)
    assert abs(np.std(drawn) - 12) < 1
    assert min(drawn) >= 4
    assert max(drawn) <= 120
    assert max(speed.target_lengths(1000, 0, 40)) == 40
    assert speed.PUBLISHED_MEANS[0] <= np.mean(speed.target_lengths(250, 0, 251)) <= 33


@pytest.mark.parametrize("beams", [1, 5])
def test_beam_search_writes_as_many_tokens_as_asked(beams: int) -> None:
    assert speed._searched(small_net(causal=True), [7, 8, 9], 11, beams) == 11


def test_refinement_takes_all_of_its_steps() -> None:
    net = small_net(causal=False)
    assert [speed._refined(net, [7, 8, 9], 9, steps, 5, TorchRng(0)) for steps in (4, 10)] == [
        4,
        10,
    ]


def test_every_sentence_by_every_system() -> None:
    (unit,) = speed.units(speed.STUDY.settings[Scale.SMOKE])
    rows = list(speed.run(unit, Bench()))
    assert len(rows) == 2 * 4
    assert {row.system for row in rows} == set(speed.SYSTEMS)
    assert all(row.seconds > 0 for row in rows)
    beam = [row for row in rows if row.system == speed.BEAM]
    assert [row.passes for row in beam] == [row.target for row in beam]


def test_the_published_network_has_67_million_parameters() -> None:
    settings = speed.STUDY.settings[Scale.PAPER]
    shape = PairShape(settings.vocabulary, settings.length)
    assert shape.parameter_count // 1_000_000 == speed.MILLION
    assert (settings.width, settings.layers, settings.feedforward) == (512, 6, 2048)


def test_speedups_by_hand() -> None:
    """1 s against 3 s, and 7 s for every 20th sentence: 3 at the median, 7 at the 99th."""
    checks = speed.judge(Rows(speed._made(3.0, 7.0))).checks
    assert [check.value for check in checks[:2]] == [3.0, 7.0]


def test_other_lengths_and_smaller_networks_decide_nothing() -> None:
    short = [speed.Timed(**(vars(row) | {"target": 13})) for row in speed._made(3.0, 7.0)]
    assert "of 28 to 33 tokens on average: 0 of 1000" in speed.judge(Rows(short)).missing[0]
    small = [speed.Timed(**(vars(r) | {"parameters": 10_000_000})) for r in speed._made(3.0, 7.0)]
    assert speed.judge(Rows(small)).missing == ("million parameters, the fewest: 10 of 67",)
    few = speed._made(3.0, 7.0, count=300)
    assert speed.judge(Rows(few)).outcome.value == "undecided"
    cpu = [speed.Timed(**(vars(row) | {"device": "cpu"})) for row in speed._made(3.0, 7.0)]
    assert speed.judge(Rows(cpu)).outcome.value == "undecided"


def test_systems_are_compared_on_the_same_sentences() -> None:
    rows = speed._made(3.0, 7.0, count=40)
    assert speed.seconds_of(rows[::-1], speed.BEAM) == speed.seconds_of(rows, speed.BEAM)
