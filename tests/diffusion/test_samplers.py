"""Samplers of diffusion language models: promises by enumeration, and laws by other ways."""

import itertools

import pytest
import torch

from triptych.core.axioms import check_sampler
from triptych.core.enumeration import exact_law, exact_transition_matrix
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.streams import RowStreams
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.diffusion import promises
from triptych.diffusion.denoiser import RefinerDenoiser
from triptych.diffusion.denoising import QuestionBudget, Stop
from triptych.diffusion.law import sampler_law
from triptych.diffusion.sampler import blank, samplers
from triptych.diffusion.samplers.ancestral import Ancestral
from triptych.diffusion.samplers.block_gibbs import BlockGibbs
from triptych.diffusion.samplers.confidence import Confidence
from triptych.diffusion.samplers.entropy_bounded import EntropyBounded
from triptych.diffusion.samplers.gumbel_confidence import GumbelConfidence
from triptych.diffusion.samplers.path_planning import PathPlanning
from triptych.diffusion.samplers.predictor_corrector import PredictorCorrector
from triptych.diffusion.samplers.random_order import RandomOrder
from triptych.diffusion.samplers.refinement import Refinement
from triptych.diffusion.samplers.remdm import ReMDM
from triptych.diffusion.samplers.speculative import Speculative
from triptych.diffusion.samplers.uniform_ancestral import UniformAncestral
from triptych.diffusion.samplers.uniform_corrector import UniformCorrector
from triptych.diffusion.samplers.uniform_entropy_bounded import UniformEntropyBounded
from triptych.inference.chains import gibbs, parallel
from triptych.inference.chains.refinement import MaskedRefiner
from triptych.lab.axioms.discovery import package_examples

EXAMPLES = package_examples("triptych.diffusion")
TWO = Table.random(2, 2, seed=1)
THREE = Table.random(2, 3, seed=0)
FOUR = Table.random(2, 4, seed=2)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.label)
def test_keeps_its_promise(example, unchecked_shapes):
    for finding in check_sampler(example.value):
        assert finding.holds, str(finding)


def model_for(sampler, table):
    """The truth; for samplers that do not say how noisy a canvas is, a refiner of it."""
    if isinstance(sampler, Refinement | UniformEntropyBounded):
        return RefinerDenoiser(MaskedRefiner(table), table.vocab_size)
    return table


def few(kind):
    """The sampler with two steps, where it has steps."""
    return kind.of({"steps": 2} if any(o.name == "steps" for o in kind.options()) else {})


# ------------------------------------------------------------------ all of them


@pytest.mark.parametrize("name", samplers())
def test_step_by_step_is_the_law_of_whole_runs(name, unchecked_shapes):
    """Canvases that are put together after each step, against every sequence of draws."""
    sampler = few(samplers()[name])
    model = model_for(sampler, TWO)
    whole = exact_law(promises.attempt(sampler, model, length=2))
    steps = sampler_law(sampler, model, *blank(1, 2))
    assert steps.total_variation(whole) < 1e-12
    assert sum(steps.probs.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", samplers())
def test_what_is_shown_stays(name):
    sampler = few(samplers()[name])
    model = model_for(sampler, FOUR)
    tokens = torch.tensor([[1, 0, 0, 1], [0, 0, 1, 0]])
    hidden = torch.tensor([[False, True, True, False], [True, False, False, True]])
    done = sampler.sample(model, tokens, hidden, rng=0, record=True)
    assert torch.equal(done.tokens[~hidden], tokens[~hidden])
    assert done.complete.all()
    assert not done.hidden.any()
    for step in done.trace:
        assert not (step.written & ~hidden).any()
        assert torch.equal(step.tokens[~hidden], tokens[~hidden])
    assert torch.equal(done.trace[-1].hidden, done.hidden)


@pytest.mark.parametrize("name", samplers())
def test_a_row_does_not_depend_on_its_batch(name):
    """With a stream for each row, five rows together and alone are the same."""
    sampler = few(samplers()[name])
    model = model_for(sampler, FOUR)
    together = sampler.sample(model, *blank(5, 4), rng=RowStreams(0, torch.arange(5)))
    for row in range(5):
        alone = sampler.sample(model, *blank(1, 4), rng=RowStreams(0, torch.tensor([row])))
        assert torch.equal(alone.tokens[0], together.tokens[row])
        assert alone.costs.generator_calls[0] == together.costs.generator_calls[row]


@pytest.mark.parametrize("name", samplers())
def test_what_keeps_the_law_keeps_it(name, unchecked_shapes):
    """By its word `keeps`: exactly, or less and less far with more steps; the others are off."""
    kind = samplers()[name]
    if kind.keeps == "always":
        assert sampler_law(kind(), THREE, *blank(1, 3)).total_variation(THREE.as_dict()) < 1e-12
    elif kind.keeps == "one position a round":
        sampler = EntropyBounded(gamma=0.0) if kind is EntropyBounded else kind()
        assert sampler_law(sampler, THREE, *blank(1, 3)).total_variation(THREE.as_dict()) < 1e-12
        assert (
            sampler_law(sampler, THREE, *blank(1, 3), block_length=2).total_variation(
                THREE.as_dict()
            )
            < 1e-12
        )
    elif kind.keeps == "as steps grow":
        near, nearer = (
            sampler_law(kind.of({"steps": n}), TWO, *blank(1, 2)).total_variation(TWO.as_dict())
            for n in (4, 16)
        )
        assert nearer < 0.02
        assert nearer < 0.5 * near or nearer < 1e-9
    else:
        sampler = kind.of({"draws": True} if kind is Refinement else {})
        if kind is UniformEntropyBounded:
            sampler = few(kind)
        if kind is GumbelConfidence:
            sampler = kind(degree=1.0)
        law = sampler_law(sampler, model_for(sampler, THREE), *blank(1, 3))
        assert law.total_variation(THREE.as_dict()) > 0.01


@pytest.mark.parametrize("name", samplers())
def test_words_for_tables(name):
    kind = samplers()[name]
    assert kind.title
    assert kind.promise
    assert kind.source
    assert kind().rounds(7) >= 1


# ------------------------------------------------------------------ against the chains of inference


@pytest.mark.parametrize(
    ("sampler", "schedule", "order"),
    [
        (RandomOrder(schedule="2+1"), [2, 1], "random"),
        (samplers()["left_to_right"](schedule="1+2"), [1, 2], "left to right"),
        (samplers()["confident_position"](schedule="2+1"), [2, 1], "confident position"),
        (Confidence(schedule="1+2"), [1, 2], "confident token"),
    ],
)
def test_the_same_as_unmask(sampler, schedule, order, unchecked_shapes):
    def program(rng):
        tokens, hidden = parallel.blank(1, 3)
        done = parallel.unmask(THREE, tokens, hidden, rng, schedule=schedule, order=order)
        return tuple(done[0].tolist())

    law = sampler_law(sampler, THREE, *blank(1, 3))
    assert law.total_variation(exact_law(program)) < 1e-12


@pytest.mark.parametrize("positions", [1, 2, 3])
def test_a_redraw_is_a_step_of_gibbs(positions, unchecked_shapes):
    """The law after the filling and two redraws: the product times the chain's matrix, twice."""
    states = list(itertools.product(range(2), repeat=3))
    masks = MaskLaw.of_size(3, positions)

    def step(state, rng):
        after = gibbs.step(THREE, [state], masks, rng, draw="in turn", order="random")
        return tuple(after[0].tolist())

    matrix = exact_transition_matrix(states, step)
    start = promises.product(THREE).log_probs.exp()
    wanted = dict(zip(states, (start @ matrix @ matrix).tolist(), strict=True))
    law = sampler_law(BlockGibbs(steps=2, positions=positions), THREE, *blank(1, 3))
    assert law.total_variation(wanted) < 1e-12


# ------------------------------------------------------------------ slow oracles of published rules


def conditional(table, shown):
    """p(x_i = 1 | shown) of every position, from all texts, with plain loops; shown: {i: token}."""
    ones, total = [0.0] * table.length, 0.0
    for x, prob in table.as_dict().items():
        if all(x[i] == token for i, token in shown.items()):
            total += prob
            ones = [one + prob * bit for one, bit in zip(ones, x, strict=True)]
    return [one / total for one in ones]


def by_loops(table, rounds):
    """The law of masks under `rounds`: functions from {i: token} to [({i: token}, chance)]."""
    states = {(): 1.0}
    for one in rounds:
        after = {}
        for state, mass in states.items():
            for shown, chance in one(dict(state)):
                key = tuple(sorted(shown.items()))
                after[key] = after.get(key, 0.0) + mass * chance
        states = after
    return {tuple(token for _, token in state): mass for state, mass in states.items()}


def drawn(table, shown, places):
    """All ways to draw these places independently, with their chances."""
    laws = conditional(table, shown)
    for bits in itertools.product(range(2), repeat=len(places)):
        chance = 1.0
        for place, bit in zip(places, bits, strict=True):
            chance *= laws[place] if bit else 1 - laws[place]
        yield dict(zip(places, bits, strict=True)), chance


@pytest.mark.parametrize("eta", [0.3, 1.0])
@pytest.mark.parametrize("rule", ["cap", "rescale"])
def test_remdm_by_its_definition(rule, eta, unchecked_shapes):
    """Every position by itself: hidden again with σ, revealed with (α_s - (1-σ)α_t)/(1-α_t)."""
    alphas = [0.0, 0.25, 0.5, 1.0]

    def one(before, after):
        sigma = 0.0
        if before > 0:
            most = min(1.0, (1 - after) / before)
            sigma = min(eta, most) if rule == "cap" else eta * most
        reveal = (after - (1 - sigma) * before) / (1 - before)

        def step(shown):
            rest = [i for i in range(3) if i not in shown]
            for again in promises.subsets(len(shown)):
                lost = [sorted(shown)[k] for k in again]
                kept = {i: t for i, t in shown.items() if i not in lost}
                chance = sigma ** len(lost) * (1 - sigma) ** len(kept)
                for chosen in promises.subsets(len(rest)):
                    fresh = [rest[k] for k in chosen]
                    mass = reveal ** len(fresh) * (1 - reveal) ** (len(rest) - len(fresh))
                    for bits, prob in drawn(THREE, shown, fresh):
                        yield kept | bits, chance * mass * prob

        return step

    wanted = by_loops(THREE, list(itertools.starmap(one, itertools.pairwise(alphas))))
    sampler = ReMDM(schedule="0.25,0.5,1", rule=rule, eta=eta)
    assert sampler_law(sampler, THREE, *blank(1, 3)).total_variation(wanted) < 1e-12


def test_remdm_conf_by_its_definition(unchecked_shapes):
    """σ_i = σ_max softmax(-p_i) over the shown, p_i the chance that the token had when revealed."""
    table, alphas = TWO, [0.0, 0.5, 0.75, 1.0]
    states = {((), ()): 1.0}  # shown tokens and their chances
    for before, after in itertools.pairwise(alphas):
        most = min(1.0, (1 - after) / before) if before else 1.0
        reveal = (after - before) / (1 - before)
        moved = {}
        for (shown, sure), mass in states.items():
            shown, sure = dict(shown), dict(sure)
            weights = {i: torch.tensor(-p).exp().item() for i, p in sure.items()}
            rest = [i for i in range(2) if i not in shown]
            laws = conditional(table, shown)
            for again in promises.subsets(len(shown)):
                lost = [sorted(shown)[k] for k in again]
                chance = 1.0
                for i in shown:
                    sigma = most * weights[i] / sum(weights.values())
                    chance *= sigma if i in lost else 1 - sigma
                for chosen in promises.subsets(len(rest)):
                    fresh = [rest[k] for k in chosen]
                    here = reveal ** len(fresh) * (1 - reveal) ** (len(rest) - len(fresh))
                    for bits, prob in drawn(table, shown, fresh):
                        after_shown = {i: t for i, t in shown.items() if i not in lost} | bits
                        after_sure = {i: p for i, p in sure.items() if i not in lost}
                        for i, bit in bits.items():
                            after_sure[i] = laws[i] if bit else 1 - laws[i]
                        key = (
                            tuple(sorted(after_shown.items())),
                            tuple(sorted(after_sure.items())),
                        )
                        moved[key] = moved.get(key, 0.0) + mass * chance * here * prob
        states = moved
    wanted = {}
    for (shown, _), mass in states.items():
        text = tuple(token for _, token in shown)
        wanted[text] = wanted.get(text, 0.0) + mass
    sampler = ReMDM(schedule="0.5,0.75,1", rule="conf")
    assert sampler_law(sampler, table, *blank(1, 2)).total_variation(wanted) < 1e-6


def test_the_rates_of_the_loop():
    """t_on 0.5, t_off 0.25, α_on 0.8, 8 steps: up to 0.8 at t = ½, flat, then up to 1."""
    sampler = ReMDM(steps=8, rule="loop", eta=0.1, t_on=0.5, t_off=0.25, alpha_on=0.8)
    rates = [sampler.rates(number) for number in range(8)]
    assert [rate.sigma for rate in rates] == [0, 0, 0, 0, 0.1, 0.1, 0, 0]
    assert rates[0].reveal == pytest.approx(0.2)  # from 0 to 0.2
    assert rates[3].reveal == pytest.approx(0.2 / 0.4)  # from 0.6 to 0.8
    assert rates[4].reveal == pytest.approx(0.1 * 0.8 / 0.2)  # as fast as tokens are hidden
    assert rates[6].reveal == pytest.approx(0.1 / 0.2)  # from 0.8 to 0.9
    assert rates[7].reveal == 1


@pytest.mark.parametrize("planner", ["model", "left out"])
@pytest.mark.parametrize("eta", [1.0, 3.0])
def test_path_planning_by_its_definition(planner, eta, unchecked_shapes):
    table = THREE

    def one(kept_count):
        def step(shown):
            rest = [i for i in range(3) if i not in shown]
            for bits, prob in drawn(table, shown, rest):
                scores = {}
                laws = conditional(table, shown)
                for i, bit in bits.items():
                    scores[i] = laws[i] if bit else 1 - laws[i]
                for i, bit in shown.items():
                    others = shown if planner == "model" else {j: shown[j] for j in shown if j != i}
                    chance = conditional(table, others)[i]
                    scores[i] = (chance if bit else 1 - chance) ** eta
                ranked = sorted(scores, key=lambda i: (-round(scores[i], 9), i))[:kept_count]
                yield {i: t for i, t in (shown | bits).items() if i in ranked}, prob

        return step

    wanted = by_loops(table, [one(1), one(2), one(3)])
    sampler = PathPlanning(planner=planner, eta=eta)
    assert sampler_law(sampler, table, *blank(1, 3)).total_variation(wanted) < 1e-12


def test_the_model_as_planner_never_hides_again_and_a_left_out_one_does():
    """The truth is certain of what it reads: that is how P2 fails to remask without a trace."""
    model = PathPlanning(steps=4).sample(FOUR, *blank(64, 4), rng=0)
    assert model.costs.erased.sum() == 0
    left_out = PathPlanning(steps=4, planner="left out").sample(FOUR, *blank(64, 4), rng=0)
    assert left_out.costs.erased.sum() > 0


def test_correctors_that_look_break_the_law(unchecked_shapes):
    """Of masks and of uniform noise: random and accepted keep it, the others do not."""
    off = {
        choice: sampler_law(
            PredictorCorrector(choice=choice, tau=0.5), THREE, *blank(1, 3)
        ).total_variation(THREE.as_dict())
        for choice in ("random", "unsure", "accepted")
    }
    assert off["random"] < 1e-12
    assert off["accepted"] < 1e-12
    assert off["unsure"] > 0.01


def test_uniform_correctors_keep_the_noisy_law_or_not(unchecked_shapes):
    """One correction from p_½ itself, on three tokens: the chain that diffusers' docs promise."""
    table, survival = Table.random(3, 2, seed=0), 0.5
    texts = list(itertools.product(range(3), repeat=2))
    law = table.as_dict()
    noisy = {
        z: sum(
            p
            * torch.tensor(
                [survival * (a == b) + (1 - survival) / 3 for a, b in zip(z, x, strict=True)]
            ).prod()
            for x, p in law.items()
        ).item()
        for z in texts
    }
    off = {}
    for choice in (
        "random",
        "accepted",
        "lowest_log_margin",
        "lowest_current_prob",
        "lowest_maxprob",
    ):
        sampler = UniformCorrector(choice=choice)

        def step(z, rng, sampler=sampler):
            run, blocks = sampler.start(table, [list(z)], [[True, True]], rng)
            run.free, run.open = blocks[0], torch.tensor([True])
            run.tokens, run.masked = torch.tensor([z]), torch.zeros(1, 2).bool()
            sampler.correct(run, survival)
            return tuple(run.tokens[0].tolist())

        matrix = exact_transition_matrix(texts, step)
        start = torch.tensor([noisy[z] for z in texts], dtype=torch.float64)
        off[choice] = 0.5 * (start @ matrix - start).abs().sum().item()
    assert off.pop("random") < 1e-7  # the start above is rounded to float32
    assert off.pop("accepted") < 1e-7
    assert min(off.values()) > 1e-3


def test_speculative_needs_fewer_rounds_where_positions_are_free():
    free = promises.product(FOUR)
    done = Speculative().sample(free, *blank(200, 4), rng=0)
    assert done.costs.forward_passes == 2  # every draft is accepted
    tied = Speculative().sample(promises.pair(), *blank(200, 2), rng=0)
    assert tied.costs.forward_passes == 2
    assert (tied.tokens[:, 0] == tied.tokens[:, 1]).all()


def test_speculative_is_the_law_of_its_order_for_answers_of_no_joint_law(unchecked_shapes):
    """Conditionals of a network: from the left it is the chain rule from the left."""

    class Answers:
        vocab_size = 2

        def masked_log_probs(self, tokens, hidden):
            seen = torch.where(hidden, 2, tokens).double() @ torch.tensor([1.0, 3.0, 5.0]).double()
            logits = torch.stack(
                [
                    seen[:, None] * torch.tensor([0.3, -0.2, 0.1]).double(),
                    torch.zeros(len(tokens), 3).double(),
                ],
                -1,
            )
            laws = logits.log_softmax(-1)
            point = torch.nn.functional.one_hot(tokens, 2).double().log()
            return torch.where(hidden[..., None], laws, point)

    sampler = Speculative(order="left to right")
    chained = sampler_law(samplers()["left_to_right"](), Answers(), *blank(1, 3))
    assert sampler_law(sampler, Answers(), *blank(1, 3)).total_variation(chained) < 1e-12
    other = sampler_law(RandomOrder(), Answers(), *blank(1, 3))
    assert sampler_law(Speculative(), Answers(), *blank(1, 3)).total_variation(other) < 1e-12
    assert chained.total_variation(other) > 0.01


def test_three_routes_are_one_draw():
    """The posterior of uniform noise by the routes of the published program."""
    size, before, after, token = 3, 0.3, 0.6, 1
    clean = torch.tensor([0.2, 0.5, 0.3]).double()
    ratio = before / after
    wanted = torch.zeros(size).double()
    for word, p in enumerate(clean.tolist()):
        same = float(word == token)
        routes = torch.tensor(
            [
                after * (1 - ratio) / size + ratio * after * same,
                ratio * (1 - after) / size,
                (1 - ratio) * (1 - after) / size,
            ]
        ).double()
        routes = routes / routes.sum()
        wanted[word] += p * routes[0]
        wanted[token] += p * routes[1]
        wanted += p * routes[2] / size
    from triptych.diffusion.samplers.uniform_ancestral import posterior

    law = posterior(clean.log()[None], torch.tensor([token]), before, after)[0].exp()
    assert torch.allclose(law, wanted, atol=1e-7)
    worked = posterior(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([0]), 0.5, 0.75).exp()
    assert worked[0, 0].item() == pytest.approx(25 / 36, abs=1e-7)


# ------------------------------------------------------------------ costs, budgets, mistakes


def test_the_model_is_asked_only_where_something_is_revealed():
    """1,000 steps of ancestral sampling on 4 positions ask each row at most 4 times."""
    done = Ancestral(steps=1000).sample(FOUR, *blank(16, 4), rng=0)
    assert (done.costs.generator_calls <= 4).all()
    assert (done.costs.generated == 4).all()
    assert done.costs.forward_passes <= 64


def test_costs_of_rounds():
    done = RandomOrder(steps=2).sample(FOUR, *blank(3, 4), rng=0)
    assert done.costs.forward_passes == 2
    assert done.costs.generator_calls.tolist() == [2, 2, 2]
    assert done.costs.generated.tolist() == [4, 4, 4]
    assert done.costs.erased.tolist() == [0, 0, 0]


def test_a_budget_ends_rows_and_says_why():
    done = RandomOrder().sample(FOUR, *blank(3, 4), rng=0, budget=QuestionBudget(questions=2))
    assert done.hidden.sum(-1).tolist() == [2, 2, 2]
    assert not done.complete.any()
    assert done.stops == (Stop.QUESTIONS,) * 3
    late = RandomOrder().sample(FOUR, *blank(2, 4), rng=0, budget=QuestionBudget(seconds=0.0))
    assert late.stops == (Stop.TIME,) * 2
    noisy = UniformAncestral(steps=4).sample(
        FOUR, *blank(2, 4), rng=0, budget=QuestionBudget(questions=2)
    )
    assert not noisy.complete.any()  # noise is left, though nothing is hidden


def test_blocks_are_written_one_after_another():
    done = RandomOrder().sample(FOUR, *blank(2, 4), rng=0, block_length=2, record=True)
    for step in done.trace:
        assert step.written[:, 2 * step.block : 2 * step.block + 2].sum() == step.written.sum()
    infill = torch.tensor([[True, False, True, True], [True, True, True, True]])
    done = RandomOrder().sample(FOUR, torch.zeros(2, 4).long(), infill, rng=0, block_length=2)
    assert done.complete.all()


def test_mistakes_are_sentences():
    with pytest.raises(UserError, match="nothing to write"):
        RandomOrder().sample(FOUR, torch.zeros(0, 4).long(), rng=0)
    with pytest.raises(UserError, match="reveals 5"):
        RandomOrder(schedule="2+3").sample(FOUR, *blank(1, 4), rng=0)
    with pytest.raises(UserError, match="schedule"):
        RandomOrder(schedule="often")
    with pytest.raises(UserError, match="QuestionBudget"):
        RandomOrder().sample(FOUR, *blank(1, 4), rng=0, budget=3)
    with pytest.raises(UserError, match="loop needs"):
        ReMDM(rule="loop", t_on=0.1, t_off=0.2)
    with pytest.raises(UserError, match="one position"):
        UniformCorrector(choice="accepted", positions=2)
    with pytest.raises(UserError, match="rows"):
        sampler_law(RandomOrder(), FOUR, *blank(2, 4))
    with pytest.raises(UserError, match="canvases"):
        sampler_law(RandomOrder(), FOUR, *blank(1, 4), max_states=3)
    with pytest.raises(UserError, match="how noisy"):
        UniformEntropyBounded().sample(FOUR, *blank(1, 4), rng=TorchRng(0))
