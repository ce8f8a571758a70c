"""Gibbs sampling next to parallel decoding on a grid: exact numbers, costs, page, command."""

import json
import math
import re

import pytest
import torch
from tests.support.browser import CHROMIUM, Browser, walk
from tests.support.command_line import run
from tests.support.refusals import refused

from triptych.core.enumeration import exact_transition_matrix
from triptych.core.mask_laws import MaskLaw
from triptych.core.table import all_sequences
from triptych.core.validation import UserError
from triptych.inference.chains import gibbs, parallel
from triptych.lab.replay.ising import OPTIONS, _squares, parse, replayed
from triptych.lab.replay.ising_laws import (
    AtOnce,
    Expectations,
    HiddenBlocks,
    distances,
    expectations,
    law_of,
)
from triptych.lab.replay.ising_page import render_spins, spin_data, write_spins
from triptych.structures.ising import Ising

SMALL = {"size": 2, "rounds": 3}


@pytest.fixture(scope="module")
def made():
    return replayed("parallel", seed=1, settings={"size": 3, "rounds": 5, "coupling": 0.7})


# ------------------------------------------------------------------ exact numbers


@pytest.mark.parametrize(
    ("rows", "columns", "coupling", "field"),
    [(1, 1, 0.3, 0.4), (1, 3, 0.7, 0.1), (3, 2, -0.5, 0.2), (2, 4, 0.4, 0.0)],
)
def test_expectations_are_those_of_the_enumerated_law(rows, columns, coupling, field):
    ising = Ising.grid(rows, columns, coupling, field)
    every, p = all_sequences(2, rows * columns), law_of(ising)
    exact = expectations(rows, columns, coupling, field)
    assert math.isclose(exact.magnetisation, float(ising.magnetisation().mean()), abs_tol=1e-12)
    energy = -float(p @ ising.log_weight(every)) / (rows * columns)
    assert math.isclose(exact.energy, energy, abs_tol=1e-12)


def test_expectations_of_two_spins_by_hand():
    found = expectations(1, 2, 0.7, 0.0)
    assert found == pytest.approx(Expectations(0.0, -0.7 * math.tanh(0.7) / 2))


def transition(step, length):
    """The matrix of a sampler, by every draw that it can make."""
    states = [tuple(state) for state in all_sequences(2, length).tolist()]

    def one(state, rng):
        return tuple(step(torch.tensor([state]), rng)[0].tolist())

    return exact_transition_matrix(states, one)


@pytest.mark.parametrize("sampler", ["gibbs", "parallel", "blocks"])
def test_a_law_moves_as_the_enumerated_sampler_moves_it(sampler):
    """Every choice of the sampler is enumerated through the door; the law is moved by arrays."""
    ising = Ising.grid(2, 2, 0.6, 0.3)
    pairs = [[0, 1], [2, 3], [0, 2]]
    masks = MaskLaw.weighted(4, pairs)
    step, mover = {
        "gibbs": (
            lambda x, rng: gibbs.step(ising, x, MaskLaw.of_size(4, 1), rng),
            HiddenBlocks(ising, [[0], [1], [2], [3]]),
        ),
        "parallel": (lambda x, rng: parallel.independent_step(ising, x, rng), AtOnce(ising)),
        "blocks": (
            lambda x, rng: parallel.block_step(ising, x, masks, rng),
            HiddenBlocks(ising, pairs),
        ),
    }[sampler]
    law = torch.linspace(1.0, 2.0, 16, dtype=torch.float64)
    law /= law.sum()
    assert torch.allclose(mover.moved(law), law @ transition(step, 4), atol=1e-12)


def test_gibbs_keeps_the_law_and_parallel_decoding_forgets_the_coupling():
    """On a grid without a field the two colours become independent: the mean energy is 0."""
    ising = Ising.grid(3, 3, 0.4)
    p = law_of(ising)
    assert torch.allclose(HiddenBlocks(ising, [[i] for i in range(9)]).moved(p), p, atol=1e-14)
    law, mover = p, AtOnce(ising)
    for _ in range(200):
        law = mover.moved(law)
    spins = (2 * all_sequences(2, 9) - 1).double()
    field = spins @ ising.coupling
    closed = (2 * field.cosh()).log().sum(-1).softmax(0)  # what `parallel.py` proves
    assert torch.allclose(law, closed, atol=1e-9)
    assert abs(float(law @ ising.log_weight(all_sequences(2, 9)))) < 1e-9
    assert expectations(3, 3, 0.4, 0.0).energy < -0.2


def test_distances_by_hand():
    """Two spins, J = ½ log 3: p = (3, 1, 1, 3) / 8; from 00 the distance is 5/8, then as below."""
    ising = Ising.chain(2, math.log(3) / 2)
    assert distances(ising, AtOnce(ising), [0, 0], records=0, every=1) == pytest.approx([5 / 8])
    # 00 keeps each spin with ¾: (9, 3, 3, 1) / 16 against (6, 2, 2, 6) / 16
    found = distances(ising, AtOnce(ising), [0, 0], records=1, every=1)
    assert found[1] == pytest.approx(5 / 16)
    both = distances(ising, HiddenBlocks(ising, [[0, 1]]), [0, 0], records=2, every=1)
    assert both[1:] == pytest.approx([1 / 4, 1 / 4])  # the four states have ¼ each


# ------------------------------------------------------------------ what is recorded


def test_both_sides_ask_the_same_number_of_questions(made):
    left, right = made.sides
    assert left.questions == right.questions == [0, 9, 18, 27, 36, 45]
    assert (left.passes, right.passes) == ([0, 9, 18, 27, 36, 45], [0, 1, 2, 3, 4, 5])
    assert left.states[0] == right.states[0]
    blocks = replayed("blocks", settings=SMALL).sides[1]
    assert (blocks.questions, blocks.passes) == ([0, 4, 8, 12], [0, 4, 8, 12])


def test_numbers_are_those_of_the_states(made):
    ising = Ising.grid(3, 3, 0.7)
    for side in made.sides:
        states = torch.tensor(side.states)
        assert side.magnetisation == pytest.approx((2.0 * states - 1).mean(-1).tolist())
        assert side.energy == pytest.approx((-ising.log_weight(states) / 9).tolist())
        assert side.distance is not None
        assert side.distance[0] == pytest.approx(1 - math.exp(ising.log_prob(states[:1])))


def test_the_same_seed_gives_the_same_replay():
    assert replayed(seed=3, settings=SMALL) == replayed(seed=3, settings=SMALL)
    assert replayed(seed=3, settings=SMALL) != replayed(seed=4, settings=SMALL)


def test_a_large_grid_has_exact_means_and_no_distance():
    large = replayed(settings={"size": 5, "rounds": 1})
    assert large.sides[0].distance is None
    assert "distance" not in "".join(large.lines())
    assert 'id="chart-distance"' not in render_spins(large)


def test_squares_by_hand():
    assert _squares(3, 2) == [[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]]


@pytest.mark.parametrize(
    ("against", "settings", "sentence"),
    [
        ("paralell", {}, "did you mean parallel"),
        ("parallel", {"size": 1}, "size is 1"),
        ("parallel", {"size": 13}, "size is 13"),
        ("parallel", {"coupling": 3.0}, "coupling is 3"),
        ("parallel", {"rounds": 0}, "rounds is 0"),
        ("blocks", {"size": 2, "width": 3}, "width is 3"),
        ("parallel", {"speed": 1}, "no option 'speed'"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(against, settings, sentence, unchecked_shapes):
    with pytest.raises(UserError, match=sentence):
        replayed(against, settings=settings)


def test_words_become_settings():
    assert parse(["size=6", "coupling=0.4"]) == {"size": 6, "coupling": 0.4}
    for word, sentence in (("size", "OPTION=VALUE"), ("size=big", "whole"), ("a=1", "no option")):
        with pytest.raises(UserError, match=sentence):
            parse([word])


# ------------------------------------------------------------------ the page and the command


def test_the_page_has_the_data_and_loads_nothing(made, tmp_path, unchecked_shapes):
    page = write_spins(made, tmp_path / "spins.html").read_text()
    data = json.loads(re.search(r'id="replay-data">(.*?)</script>', page, re.S)[1])
    assert data == spin_data(made)
    assert data["sides"][0]["states"][0] == "".join(map(str, made.sides[0].states[0]))
    assert not re.search(r'(src|href)="(https?:)?//', page)
    assert "prefers-reduced-motion" in page
    with refused("replay"):
        render_spins("a")


def test_the_command_writes_the_page(tmp_path):
    out = tmp_path / "ising.html"
    words = ["replay", "ising", "--size", "2", "--rounds=2", "--coupling", "0.5"]
    done = run(*words, "--against", "blocks", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "Gibbs: one spin at a time: 8 questions in 8 passes" in done.stdout
    assert "Exact: mean energy" in done.stdout
    assert f"Open {out}" in done.stdout
    assert "Blocks: 2 × 2 spins at once" in out.read_text()
    for more, sentence in (
        (["--prompt", "a"], "--prompt a says nothing"),
        (["--rows", "2"], "--rows 2 says nothing"),
        (["--against", "vgb"], "no sampler 'vgb'"),
        (["--size", "big"], "whole number"),
    ):
        refused = run("replay", "ising", *more, "--out", str(out))
        assert (refused.exit_code, sentence in refused.stderr) == (2, True), refused.output
    told = run("replay", "--help").stdout
    assert all(option.flag in told for option in OPTIONS)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_page_steps_with_the_keyboard(made, tmp_path):
    path = write_spins(made, tmp_path / "spins.html")
    with Browser(tmp_path / "profile") as page:
        page.open(path.as_uri() + "#round=1")
        for key, round in (("ArrowRight", 2), ("ArrowLeft", 1), ("End", 5), ("Home", 0)):
            page.press(key)
            assert page.value("document.getElementById('round').textContent") == str(round)
        page.press("ArrowRight")
        up = page.value("document.querySelectorAll('#grid-1 .spin.up').length")
        assert up == sum(made.sides[1].states[1])
        assert page.value("document.getElementById('questions-1').textContent") == "9"
        flips = page.value("document.querySelectorAll('#grid-1 .flipped.on').length")
        before, now = made.sides[1].states[:2]
        assert flips == sum(a != b for a, b in zip(before, now, strict=True))
        stops = walk(page)
        assert stops[0]["text"] == "Skip to the replay"
        assert [stop["id"] for stop in stops[1:]] == [
            *("theme", "first", "back", "play", "forward", "last", "slider")
        ]
        assert [stop for stop in stops if not stop["name"]] == []
        page.press(" ")
        page.wait("document.getElementById('round').textContent === '5'")
        page.wait("document.getElementById('play-word').textContent === 'Play'")
