"""The study of one layer on topics: its rows against the theory, its judges on made-up rows."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from triptych.core.corruption import corrupt
from triptych.core.enumeration import exact_law
from triptych.core.estimates import Status
from triptych.core.validation import UserError
from triptych.lab.running.workbench import WorkBench
from triptych.studies.api.figures import Heatmap
from triptych.studies.api.study import Rows, Scale
from triptych.studies.topics.topic_theory import figures, judge, judge_weights, study
from triptych.studies.topics.topic_theory import optima as gathered
from triptych.studies.topics.topic_theory import weights as weighed
from triptych.studies.topics.topic_theory.rows import (
    DrawLandscape,
    FindOptima,
    FindWeights,
    MaskDocuments,
    TrainEmbedding,
)
from triptych.theory.topics import uniform_attention as topics
from triptych.theory.topics.attention import Value, attention_loss
from triptych.theory.topics.uniform_attention import Setting

HALF = {"p_m": 0.5, "p_c": 0.25, "p_r": 0.25}
CLAIMS = {claim.id: claim for claim in study.STUDY.claims}


@pytest.fixture
def gather(tmp_path):
    def rows(unit):
        found = list(study.run(unit, WorkBench(unit.seed, "cpu", tmp_path)))
        for number, row in enumerate(found):  # they can be stored
            assert study.STUDY.row_from_json(study.STUDY.row_to_json(row, number)) == row
        return found

    return rows


def check_of(verdict, sentence):
    (check,) = [each for each in verdict.checks if sentence in each.sentence]
    return check


# ------------------------------------------------------------------ masked documents


def test_the_law_of_masking_a_word_by_hand():
    """p_m = ½, p_c = p_r = ¼, two words: kept 1/2 + 1/8 + 1/16, the other word 1/16, mask 4/16."""
    found = gathered.corruption_law(Setting(2, 1, 1, **HALF))
    wanted = torch.tensor([[11, 1, 4], [1, 11, 4]]).double() / 16
    torch.testing.assert_close(found, wanted)


def test_a_whole_document_has_the_frequencies_of_its_positions():
    """A document of three words, masked as a whole: the mean over all that can come out."""
    setting = Setting(3, 1, 2, **HALF)
    document = torch.tensor([[0, 2, 2]])

    def masked(rng):
        return tuple(corrupt(document, rng, words=3, mask_token=3, **HALF).tokens[0].tolist())

    frequency = torch.zeros(4, dtype=torch.float64)
    for seen, probability in exact_law(masked).probs.items():
        for token in seen:
            frequency[token] += probability / 3
    law = gathered.corruption_law(setting)
    torch.testing.assert_close(frequency, (law[0] + 2 * law[2]) / 3)


def test_rows_of_masked_documents(gather):
    rows = gather(MaskDocuments("many kept and replaced", 3, (1, 2), seed=0))
    assert [(row.words, row.drawn) for row in rows] == list(itertools.product((1, 2), (1, 2, 3)))
    assert [row.documents for row in rows[:3]] == [3, 3, 1]
    for row in rows:
        assert max(row.present_error, row.mask_error) < 1e-15
        assert (row.absent_error is None) == (row.drawn == 3)
        assert row.absent_error is None or row.absent_error < 1e-15


def test_frequencies_that_are_not_as_printed_are_found(gather, monkeypatch):
    """A masking whose random words never are the word that stood there."""
    law = gathered.corruption_law

    def other(setting):
        table = law(setting)
        n = setting.vocab - 1
        table[:, :n].fill_diagonal_(setting.left)
        table[:, :n] = table[:, :n] * (1 - setting.masked) / table[:, :n].sum(1, keepdim=True)
        return table

    monkeypatch.setattr(gathered, "corruption_law", other)
    rows = gather(MaskDocuments("as in BERT", 3, (1, 2), seed=0))
    rows += gather(MaskDocuments("as in BERT", 2, (1, 2), seed=0))
    verdict = CLAIMS["li.prop-2.1.1"].verdict(rows)
    assert verdict.outcome is Status.FAILS
    assert check_of(verdict, "the mask").outcome is Status.HOLDS


# ------------------------------------------------------------------ optima


def test_rows_of_the_optima(gather):
    rows = gather(FindOptima("as in BERT", 3, (1, 2), seed=0))
    assert [(row.words, row.drawn) for row in rows] == [
        (v, tau) for v in (1, 2) for tau in (1, 2, 3)
    ]
    for row in rows:
        assert row.family == 3 * (row.words - 1) + 1
        assert (row.free == row.family) == (row.drawn < 3)
        assert row.loss_error < 1e-12
        assert row.reached_error < 1e-12
        assert row.from_least_norm > 0.1  # the start is remembered where the loss is flat
        assert (row.distance < 1e-9) == (row.drawn < 3)
        assert (row.limit_error < 1e-6) == (row.drawn < 3)
        assert (row.least_norm_error < 1e-9) == (row.drawn < 3)
        setting = Setting(3, row.words, row.drawn)
        closed_form = topics.printed_ridge_limit(setting)
        off = topics.ridge(setting, 1e-4) - closed_form
        at = row.penalties.index(1e-4)
        assert row.ridge_errors[at] == pytest.approx(float(off.abs().max()))
        assert row.c1 == pytest.approx(setting.constants[0])


def test_the_extrapolated_limit_is_close_in_large_settings(gather):
    """Penalties of 1e-7 are not small where the least eigenvalue of the moments is 6e-6."""
    setting = Setting(16, 10, 15, *gathered.MASKINGS["many masked"])
    closed_form = topics.printed_ridge_limit(setting)
    fixed = 2 * topics.ridge(setting, 1e-7) - topics.ridge(setting, 2e-7)
    assert float((fixed - closed_form).abs().max()) > judge.NUMERICAL_LIMIT
    rows = gather(FindOptima("many masked", 16, (10,), seed=0))
    assert max(row.limit_error for row in rows if row.drawn < 16) < judge.NUMERICAL_LIMIT / 10


# ------------------------------------------------------------------ embeddings


def test_rows_of_the_embeddings(gather):
    words, both = gather(TrainEmbedding("as in BERT", 3, 2, 1, 7, seed=1))
    setting = Setting(3, 2, 1)
    c1, _, c3 = setting.constants
    assert (words.bias, both.bias) == ("words", "mask too")
    assert max(words.excess, both.excess) < 1e-12
    assert max(words.violation, words.corrected, both.corrected) < 1e-6
    assert both.violation > c1 / 10
    assert both.mask_off == pytest.approx(c1, abs=1e-6)
    assert words.mask_off == pytest.approx(0.0, abs=1e-6)
    assert words.topic_means == pytest.approx([words.level] * 3, abs=1e-6)
    assert words.level > 0
    assert words.example_excess == pytest.approx((c3 * setting.masked) ** 2)
    assert words.matrix is None


def test_the_embedding_that_is_drawn(gather):
    rows = gather(TrainEmbedding("as in BERT", *gathered.PICTURED, 13, seed=0))
    assert rows[0].matrix is not None
    assert len(rows[0].matrix) == 13
    assert rows[1].matrix is None
    drawn = figures.embedding_figure(Rows(rows)).panels[1]
    assert isinstance(drawn, Heatmap)
    a = Setting(4, 3, 2).left
    for word, line in enumerate(drawn.values):  # own topic less the others
        own = line[word // 3]
        assert all(own - x == pytest.approx(1 / a, abs=1e-3) for x in line if x != own)


def test_the_equations_fail_where_all_topics_are_drawn(gather):
    words, _ = gather(TrainEmbedding("as in BERT", 3, 2, 3, 7, seed=0))
    assert abs(words.excess) < 1e-12
    assert words.violation > 0.1


def test_narrow_embeddings_cannot_satisfy_the_equations(gather):
    """Summed over topics an optimal E is positive definite, so its rank is at least T."""
    setting = Setting(3, 2, 1)
    least = topics.embedding_optimum(setting)
    assert int(torch.linalg.matrix_rank(least)) == 3
    loss = topics.population_loss(setting, least, topics.embedding_bias(setting))
    assert float(loss) == pytest.approx(setting.least_loss)
    words, _ = gather(TrainEmbedding("as in BERT", 3, 2, 1, 2, seed=0))
    assert words.excess > 0.01
    assert words.violation > 0.1


def test_training_follows_the_loss():
    setting = Setting(2, 2, 1)
    start = torch.eye(5, dtype=torch.float64)
    products, loss = gathered.trained_products(setting, topics.embedding_bias(setting), start)
    assert loss == pytest.approx(setting.least_loss, abs=1e-12)
    again = topics.population_loss(setting, products, topics.embedding_bias(setting))
    assert float(again) == pytest.approx(loss)


@pytest.mark.parametrize("sizes", study.SQUARE)
@pytest.mark.parametrize("masking", study.TopicTheory().maskings)
def test_a_violation_costs_loss(sizes, masking):
    """The tolerance of the equations is more than an ended training can violate them by."""
    setting = Setting(*sizes, *gathered.MASKINGS[masking])
    one_word_each = [*range(0, setting.vocab - 1, setting.words), setting.vocab - 1]
    sums = setting.moments.yy[one_word_each][:, one_word_each]
    zero, least = torch.linalg.eigvalsh(sums)[:2].tolist()  # 0: the direction of u
    assert abs(zero) < 1e-15
    assert least > 0.0027
    assert math.sqrt(judge.AT_THE_END / least) < judge.TRAINED / 5


# ------------------------------------------------------------------ attention weights


def test_rows_of_the_weights(gather):
    rows = gather(FindWeights("as in BERT", 10, (100,), (0.5,), (0.9,), seed=0))
    assert [(r.topics, r.drawn, r.sparse) for r in rows[::3]] == [
        (100, 10, True),
        (100, 90, False),
    ]
    assert {row.reading for row in rows} == {"shared", "ignored", "printed"}
    first, a = rows[0], 0.865
    assert first.assumed
    assert first.gamma_low == pytest.approx(0.88 * 1.135 / (2 * a) * 9)
    assert first.gamma_proved == pytest.approx(0.88 * (1 - 2 * 0.135) / (2 * a) * 9)
    assert first.gamma_high == pytest.approx(100 * (a / 0.015 + 1) * 100)
    assert first.beta_low == pytest.approx(0.88 / 100 * 10 * 10)
    assert first.ratio == pytest.approx(1 / (9 * a))
    assert first.limit == pytest.approx(1 / 0.135)
    setting = Setting(100, 10, 10)
    gamma = torch.tensor([first.gamma], dtype=torch.float64)
    best = attention_loss(setting, Value.blocks(setting), gamma, gamma)
    axis = torch.logspace(0, 4, 400, dtype=torch.float64)
    assert float(best) <= float(attention_loss(setting, Value.blocks(setting), axis, axis).min())


@pytest.mark.parametrize("name", ["diagonal", "blocks"])
def test_rows_of_a_landscape(gather, name):
    rows = gather(DrawLandscape(name, 40, seed=0))
    assert [row.picture is None for row in rows] == [row.reading != "printed" for row in rows]
    shown = next(row for row in rows if row.reading == "printed")
    setting = Setting(100, 300, 40)
    value = getattr(Value, name)(setting)
    size = 11 * weighed.PER_DECADE + 1
    assert len(shown.picture) == len(shown.picture[0]) == size
    assert min(map(min, shown.picture)) == 0.0
    assert max(map(max, shown.picture)) == 1.0
    # the corners: α grows to the right and β to the top
    axis = torch.logspace(-4, 7, size, dtype=torch.float64)
    table = attention_loss(setting, value, axis[:, None], axis[None], "printed")
    share = (table - table.min()) / (table.max() - table.min())
    assert shown.picture[0][-1] == pytest.approx(float(share[-1, -1]), abs=1e-3)
    assert shown.picture[0][0] == pytest.approx(float(share[0, -1]), abs=1e-3)
    assert shown.picture[-1][-1] == pytest.approx(float(share[-1, 0]), abs=1e-3)
    place = shown.beta if name == "diagonal" else shown.gamma
    for (low, high), share in zip(shown.edges, shown.shares, strict=True):
        assert low <= place <= high
        limit = shown.least + share * (shown.most - shown.least)
        if name == "blocks":  # at the edge the loss has the value that makes it one
            for edge in (low, high):
                point = torch.full((1,), edge, dtype=torch.float64)
                loss = float(attention_loss(setting, value, point, point, "printed"))
                assert loss == pytest.approx(limit, abs=0.02 * (shown.most - shown.least))
    if name == "blocks":
        assert shown.strays == 0
        assert shown.arms
    assert shown.gaps[0] == 0


def test_gaps_in_a_region_are_counted(monkeypatch, gather):
    """A loss with two valleys in β, at 1 and at 100, of half a decade each."""

    def valleys(setting, value, alpha, beta, reading):
        log = torch.log10(beta)
        near = ((log.abs() < 0.25) | ((log - 2).abs() < 0.25)).double()
        return (1 - near).expand(torch.broadcast_shapes(alpha.shape, beta.shape))

    monkeypatch.setattr(weighed, "attention_loss", valleys)
    row = gather(DrawLandscape("diagonal", 40, seed=0))[0]
    assert row.gaps[0] == pytest.approx(1.5 * 200, abs=2)  # 200 places in a decade
    assert row.edges[0] == pytest.approx((10**-0.25, 10**2.25), rel=0.02)


# ------------------------------------------------------------------ the plan


def test_units_of_unknown_maskings_are_refused():
    with pytest.raises(UserError, match="maskings are as in BERT"):
        study.units(study.TopicTheory(maskings=("none",)))


def test_every_masking_is_inside_or_outside_as_it_says():
    for settings in study.STUDY.settings.values():
        for inside, names in ((True, settings.maskings), (False, settings.outside)):
            for name in names:
                p_m, p_c, p_r = gathered.MASKINGS[name]
                assert (p_m < 0.5 and p_c == p_r) == inside


def test_the_published_landscapes_are_in_the_plan():
    for scale in (Scale.LAPTOP, Scale.PAPER):
        units = study.units(study.STUDY.settings[scale])
        found = {(u.value, u.drawn) for u in units if isinstance(u, DrawLandscape)}
        assert found == {(name, tau) for name in ("diagonal", "blocks") for tau in (20, 40, 60, 80)}


def test_the_edges_are_in_the_plan():
    for scale in Scale:
        units = study.units(study.STUDY.settings[scale])
        trained = [u for u in units if isinstance(u, TrainEmbedding)]
        assert any(u.drawn == u.topics for u in trained)
        assert any(u.width < u.topics for u in trained)


# ------------------------------------------------------------------ judges


def test_a_statement_that_fails_at_an_edge_holds_except_there():
    for name, held in (
        ("li.lem-2.1.1", judge.OPTIMA_HELD),
        ("li.thm-2.1.2", judge.OPTIMA_HELD),
        ("li.thm-2.1.4", judge.OPTIMA_HELD),
        ("li.thm-2.1.1", judge.EMBEDDING_HELD),
    ):
        verdict = CLAIMS[name].verdict(held)
        assert verdict.outcome is Status.HOLDS
        assert verdict.exceptions[0] == "τ = T"
        inner = [row for row in held if row.drawn < row.topics]
        verdict = CLAIMS[name].verdict(inner)  # an edge that was not looked at is missing
        assert verdict.outcome is Status.UNDECIDED
        assert "τ = T" in " ".join(verdict.missing)
    assert CLAIMS["li.thm-2.1.1"].verdict(judge.EMBEDDING_HELD).exceptions == ("τ = T", "d < T")


def test_a_statement_that_holds_at_its_edge_has_no_exception():
    fine = [
        replace(row, free=row.family, distance=0.0, least_norm_error=0.0)
        for row in judge.OPTIMA_HELD
    ]
    for name in ("li.lem-2.1.1", "li.thm-2.1.2"):
        assert CLAIMS[name].verdict(fine).exceptions == ()
    fine = [replace(row, violation=0.0) for row in judge.EMBEDDING_HELD]
    assert CLAIMS["li.thm-2.1.1"].verdict(fine).exceptions == ()


def test_optima_need_two_sizes():
    for row in judge.OPTIMA_HELD:
        for name in ("li.lem-2.1.1", "li.thm-2.1.2"):
            assert CLAIMS[name].verdict([row]).outcome is Status.UNDECIDED
    assert CLAIMS["li.prop-2.1.1"].verdict(judge.MASKED_HELD[1:]).outcome is Status.UNDECIDED


def test_a_start_that_is_no_minimiser_says_nothing_about_the_family():
    astray = replace(judge.OPTIMA_HELD[-1], reached_error=0.1, distance=1.0)
    verdict = CLAIMS["li.lem-2.1.1"].verdict([*judge.OPTIMA_HELD, astray])
    assert verdict.outcome is Status.UNDECIDED


def test_training_that_has_not_ended_decides_nothing():
    held, claim = judge.EMBEDDING_HELD, CLAIMS["li.thm-2.1.1"]
    stuck = replace(held[-1], excess=1e-6, violation=1.0)
    assert claim.verdict([*held[:-1], stuck]).outcome is Status.UNDECIDED
    assert claim.verdict([*held, stuck]).outcome is Status.HOLDS  # two other starts have ended
    assert claim.verdict(held[3:4]).outcome is Status.UNDECIDED


def test_narrow_embeddings_are_judged_by_their_best_start():
    good, bad = (
        replace(judge.EMBEDDING_HELD[2], excess=excess, violation=off, seed=seed)
        for seed, excess, off in ((0, 0.1, 0.0), (1, 0.2, 1.0))
    )
    others = [row for row in judge.EMBEDDING_HELD if row.width >= row.topics]
    verdict = CLAIMS["li.thm-2.1.1"].verdict([*others, bad, good])
    assert check_of(verdict, "d < T dimensions, best starts").value == 0.0
    assert verdict.exceptions == ("τ = T",)


def test_weights_outside_the_assumptions_or_at_small_t_are_told_and_not_judged():
    last = judge_weights.WEIGHTS_HELD[-1]
    bad = replace(last, gamma=1.0, beta=1.0)
    extra = [replace(bad, assumed=False), replace(bad, sparse=False), replace(bad, topics=100)]
    for name in ("li.thm-2.1.3", "li.thm-2.1.5"):
        verdict = CLAIMS[name].verdict([*judge_weights.WEIGHTS_HELD, *extra])
        assert verdict.outcome is Status.HOLDS
        for where in ("T below", "fixed share", "outside the assumptions"):
            assert check_of(verdict, where).value == 1.0


def test_weights_need_growth():
    held = judge_weights.WEIGHTS_HELD
    for name in ("li.thm-2.1.3", "li.thm-2.1.5"):
        claim = CLAIMS[name]
        assert claim.verdict(held[:-1]).outcome is Status.UNDECIDED  # one T
        one_v = [row for row in held if row.words == 10]
        assert claim.verdict(one_v * 2).outcome is Status.UNDECIDED
        one_rate = [row for row in held if row.rate == 0.4]
        assert claim.verdict(one_rate).outcome is Status.UNDECIDED
        # inside, but further from the limit than before
        far = replace(held[-1], gamma=4e5, beta=4e6, alpha=0.0)
        assert claim.verdict([*held[:-1], far]).outcome is Status.UNDECIDED


def test_exponents_by_hand():
    first = judge_weights.WEIGHTS_HELD[0]
    rows = [
        replace(
            first,
            topics=t,
            drawn=tau,
            rate=math.log(tau, t),
            words=v,
            gamma=3.0 * v * tau,
            beta=v * math.sqrt(tau * t),
        )
        for t in (10**5, 10**6, 10**7)
        for tau in (10, 50, 1000)
        for v in (10, 20)
    ]
    rows.append(replace(rows[0], topics=10, gamma=1e9, beta=1e9))  # too small to count
    assert judge_weights.exponents(rows, lambda row: row.gamma) == pytest.approx((1.0, 0.0))
    assert judge_weights.exponents(rows, lambda row: row.beta) == pytest.approx((0.5, 0.5))
    assert judge_weights.exponents(rows[:1], lambda row: row.gamma) is None


def test_landscapes_need_four_values():
    for name, rows in (
        ("li.fig-2.7", judge_weights.DIAGONAL_PICTURE_HELD),
        ("li.fig-2.8", judge_weights.BLOCKS_PICTURE_HELD),
    ):
        claim = CLAIMS[name]
        assert claim.verdict(rows[:3]).outcome is Status.UNDECIDED
        other = [replace(row, reading="shared") for row in rows]
        other[-1] = replace(other[-1], edges=rows[0].edges)
        assert claim.verdict([*rows, *other]).outcome is Status.FAILS  # every reading counts
        same = [replace(row, reading="shared") for row in rows]
        assert claim.verdict(same).outcome is Status.UNDECIDED  # without the printed one


def test_an_upper_edge_of_a_wider_region_may_leave_the_grid():
    rows = [
        replace(row, edges=(row.edges[0], (row.edges[1][0], 1e7)))
        for row in judge_weights.DIAGONAL_PICTURE_HELD
    ]
    verdict = CLAIMS["li.fig-2.7"].verdict(rows)
    assert verdict.outcome is Status.HOLDS
    assert check_of(verdict, "end of the grid").value == 1.0


def test_figures_of_nothing():
    for draw in study.STUDY.figures:
        assert draw(Rows([])).title
