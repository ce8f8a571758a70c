"""Which guided algorithm spends its queries best on a trained network with a trained value?
[li, 3.3.1]

A network completes bracket prompts on which it tends to err. The value of a prefix, the chance that
the network completes it rightly, is regressed on Monte-Carlo rollouts from the network's states;
full strings are judged exactly. Every algorithm samples many completions of each prompt, and is
compared with the exact law it aims at, the network's own law given a right string: accuracy,
distinct right strings and total variation, against what it costs the network. A verifier that reads
states needs the network too: VGB asks about every child of a node and runs each of them, so tokens
that were run are counted, not calls.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.decoders import PAD
from triptych.core.divergences import expected_distance
from triptych.core.protocols import Value as Verifier
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.inference.guided import (
    ancestral,
    backtracking,
    best_of_n,
    blocks,
    particles,
    rejection,
    tokenwise,
    vgb,
)
from triptych.inference.guided.generation import Result
from triptych.models.cache import CachedDecoder
from triptych.models.remembered import PrefixMemory
from triptych.studies.api.study import Bench, Scale, Study
from triptych.studies.generation.shared.completions import (
    AnyDecoder,
    complete,
    draw_prompts,
    gather_mistakes,
    memory_of,
    plainly,
    read,
    states_of,
)
from triptych.studies.generation.shared.trained_dyck import (
    SMALL,
    TINY,
    Trained,
    one_for_each_network,
    trained,
)
from triptych.studies.generation.vgb_dyck.figures import quality_figure
from triptych.studies.generation.vgb_dyck.judge import CLAIMS
from triptych.studies.generation.vgb_dyck.rows import OneNetwork, Row, Sampled, Value, VgbDyck
from triptych.verifiers.leaves import ExactLeaves
from triptych.verifiers.probe import Probe
from triptych.verifiers.values import rollout_values


def units(settings: VgbDyck) -> Sequence[OneNetwork]:
    """One for each network."""
    if not settings.to_go < settings.length:
        raise UserError(f"to_go is {settings.to_go}; strings have {settings.length} brackets")
    return one_for_each_network(OneNetwork, settings)


def run(unit: OneNetwork, bench: Bench) -> Iterable[Row]:
    """Train the network and the value, then every algorithm at every budget."""
    model = trained(unit, bench, unit.seed)
    value, quality = _value(unit, model, bench)
    yield quality
    prompts = _hard_prompts(unit, model, bench.rng("prompts"))
    targets = [target_law(model, prompt) for prompt in prompts]
    outcome = RememberedOutcome(model.law)
    guide = ExactLeaves(value, outcome, model.law.length, model.law.end_token)
    memory = memory_of(model.lm)
    for name, budget, sampling in _algorithms(unit, model, guide, bench.rng("sampling")):
        yield _measured(unit, name, budget, model, prompts, targets, sampling, memory)


def _value(p: OneNetwork, model: Trained, bench: Bench) -> tuple[Probe, Value]:
    """P(the network completes this prefix rightly), from its state; and how good that is."""
    rng, law = bench.rng("value"), model.law
    count = p.value_prefixes
    prompts = draw_prompts(
        model.ood, count, rng, shortest=p.shortest_prompt, longest=p.longest_prompt
    )
    done = read(law, complete(model.lm, prompts, plainly(law, 1.0, rng)))
    low = (prompts != PAD).sum(1)
    high = done.tokens.shape[1] - (done.tokens == law.end_token).sum(1)  # brackets written
    spread = torch.rand(count, generator=torch.Generator().manual_seed(rng.seed))
    cut = low + (spread.to(low.device) * (high - low + 1).clamp(min=1)).long()
    columns = torch.arange(done.tokens.shape[1], device=cut.device)
    prefixes = done.tokens.masked_fill(columns >= cut[:, None], PAD)
    chances = []
    for some in prefixes.split(500):
        decoder = CachedDecoder(model.lm, len(some))
        decoder.extend(some)
        chances.append(
            rollout_values(
                decoder,
                law,
                rollouts=p.rollouts,
                length=law.length,
                end_token=law.end_token,
                rng=rng,
            )
        )
    chance, states = torch.cat(chances), states_of(model.lm, prefixes)
    split = count * 9 // 10
    probe = Probe.fit(
        states[:split],
        chance[:split].to(states.dtype),
        depth=p.value_depth,
        layer=model.lm.net.shape.layers,
        floor=p.floor,
    )
    said = probe.log_value_of(states[split:]).exp()
    right = chance[split:]
    spread_out = float((right - right.mean()).square().mean())
    left = float((right - said).square().mean()) / spread_out if spread_out else 1.0
    return probe, Value(p.seed, count, p.rollouts, float(right.mean()), 1 - left)


def _hard_prompts(p: OneNetwork, model: Trained, rng: TorchRng) -> Int[Tensor, "prompts t"]:
    """Beginnings of strings that the network got wrong, with `to_go` brackets to go."""
    short = p.length - p.to_go
    mistakes = gather_mistakes(p, model, 4 * p.prompts, rng)
    long_enough = mistakes.tokens[mistakes.lengths > short][:, :short]
    if len(long_enough) == 0:  # a network that never errs: any prompts will do
        long_enough = model.ood.sample(p.prompts, rng)[:, :short]
    first = {tuple(row): place for place, row in reversed(list(enumerate(long_enough.tolist())))}
    return long_enough[sorted(first.values())[: p.prompts]]  # each once, as they came


class Target(NamedTuple):
    """The exact law of right completions under the network, and their share of its mass."""

    strings: dict[tuple[int, ...], int]
    probs: Float[Tensor, " strings"]
    mass: float


def target_law(model: Trained, prompt: Int[Tensor, " t"]) -> Target:
    """p(x | prompt, x is right), by growing every right completion."""
    law = model.law
    strings = prompt[None]
    for _ in range(law.length - len(prompt)):
        every = torch.arange(law.vocab_size, device=prompt.device)
        longer = torch.cat(
            [
                strings.repeat_interleave(law.vocab_size, 0),
                every.repeat(len(strings))[:, None],
            ],
            dim=1,
        )
        strings = longer[law.completable(longer)]
    log_probs = torch.cat([model.lm.log_prob(some) for some in strings.split(1000)])
    log_probs = log_probs - model.lm.log_prob(prompt[None])
    mass = log_probs.logsumexp(0)
    index = {tuple(string): i for i, string in enumerate(strings.tolist())}
    return Target(index, (log_probs - mass).exp().cpu(), float(mass.exp()))


class RememberedOutcome:
    """The answers of a verifier, each asked for once: algorithms come to the same leaves often."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier, self._said = verifier, dict[bytes, float]()

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
        names = [row.tobytes() for row in prefix.to("cpu", torch.int32).numpy()]
        new = {name: place for place, name in enumerate(names) if name not in self._said}
        if new:
            answers = self._verifier.log_value(prefix[list(new.values())])
            self._said.update(zip(new, answers.tolist(), strict=True))
        said = [self._said[name] for name in names]
        return torch.tensor(said, dtype=torch.float64, device=prefix.device)


Sampler = Callable[..., Result]


def _algorithms(
    p: OneNetwork, model: Trained, guide: ExactLeaves, rng: TorchRng
) -> Iterator[tuple[str, int, Callable[[AnyDecoder], Result]]]:
    """Every algorithm at every budget."""
    law = model.law
    common = {"length": law.length, "end_token": law.end_token, "rng": rng}
    rounds = 4 * p.to_go

    def one(name: str, budget: int, sample: Sampler, verifier: Any, **more: Any):
        return name, budget, lambda decoder: sample(decoder, verifier, **common, **more)

    yield one("no verifier", 1, ancestral.sample, None)
    for budget in p.budgets:
        yield one("rejection", budget, rejection.sample, law, attempts=budget)
        redraws = 2 * budget
        keep = partial(tokenwise.sample, accept="value", tries=redraws)
        yield one("tokenwise rejection", budget, keep, guide)
        yield one("Algorithm 1", budget, backtracking.sample, guide, quota=budget, stride=4)
        yield one("best of n", budget, best_of_n.sample, guide, n=budget)
        yield one("block best of n", budget, blocks.sample, guide, block=2, n=budget)
        yield one("particles", budget, particles.sample, guide, n=budget)
        walk = partial(vgb.sample, returns="leaf", lazy=False)  # staying changes no leaf
        yield one("VGB, first leaf", budget, walk, guide, steps=4 * rounds * budget)
        mixed = partial(vgb.sample, returns="uniform", restarts=2 * p.to_go)
        yield one("VGB, uniform node", budget, mixed, guide, steps=rounds * budget)


def _measured(
    p: OneNetwork,
    algorithm: str,
    budget: int,
    model: Trained,
    prompts: Int[Tensor, "prompts t"],
    targets: Sequence[Target],
    sampling: Callable[[AnyDecoder], Result],
    memory: PrefixMemory | None,
) -> Sampled:
    """Accuracy, diversity and distance of what is sampled for the prompts, and its cost."""
    many = prompts.repeat_interleave(p.samples, dim=0)
    spent: list[int] = []

    def counted(decoder: AnyDecoder) -> Result:
        decoder.hidden_state()  # the prompts are run before the count begins
        before = decoder.slots_run
        result = sampling(decoder)
        spent.append(decoder.slots_run - before)
        return result

    # some algorithms fork each row
    results = complete(model.lm, many, counted, at_once=800, memory=memory)
    done = read(model.law, results)
    right = done.right.reshape(len(prompts), -1).tolist()
    strings = done.tokens.reshape(len(prompts), p.samples, -1).tolist()
    distances, floors, distinct = [], [], []
    for target, some, fine in zip(targets, strings, right, strict=True):
        counts = torch.zeros(len(target.probs) + 1, dtype=torch.float64)  # the last: wrong strings
        for string, good in zip(some, fine, strict=True):
            counts[target.strings[tuple(string)] if good else -1] += 1
        wanted = torch.cat([target.probs, torch.zeros(1, dtype=torch.float64)])
        distances.append(0.5 * float((counts / p.samples - wanted).abs().sum()))
        floors.append(expected_distance(target.probs, p.samples))
        distinct.append(int((counts[:-1] > 0).sum()))
    costs = [result.costs.totals() for result in results]

    def per_string(name: str) -> float:
        return sum(cost[name] for cost in costs) / len(many)

    return Sampled(
        seed=p.seed,
        algorithm=algorithm,
        budget=budget,
        prompts=len(prompts),
        accuracy=done.accuracy,
        complete=float(torch.cat([result.complete for result in results]).double().mean()),
        distinct=sum(distinct) / len(distinct),
        total_variation=sum(distances) / len(distances),
        floor=sum(floors) / len(floors),
        model_mass=sum(target.mass for target in targets) / len(targets),
        generator_calls=per_string("generator_calls"),
        generated=per_string("generated"),
        verifier_calls=per_string("verifier_calls"),
        network_tokens=sum(spent) / len(many),
    )


STUDY = Study(
    name="vgb_dyck",
    question="On a trained network with a trained value, which algorithm spends queries best?",
    settings={
        Scale.SMOKE: VgbDyck.like(
            TINY,
            seeds=1,
            value_prefixes=60,
            rollouts=2,
            prompts=1,
            to_go=2,
            samples=4,
            budgets=(1,),
        ),
        Scale.LAPTOP: VgbDyck.like(
            SMALL,
            seeds=2,
            first_seed=100,  # networks of dyck_backtracking
            value_prefixes=3000,
            rollouts=4,
            prompts=8,
            samples=100,
        ),
        Scale.PAPER: VgbDyck(
            seeds=8,
            first_seed=132,  # networks of dyck_backtracking
            value_prefixes=10_000,
            prompts=12,
            samples=100,
        ),
    },
    units=units,
    run=run,
    rows=(Value, Sampled),
    claims=CLAIMS,
    figures=[quality_figure],
    revision=2,  # a memory of prefixes rounds the network's laws otherwise
)
