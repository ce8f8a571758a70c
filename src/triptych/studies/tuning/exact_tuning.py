"""Head and prompt tuning with no network at all: on the exact masked model of the HMM [wei, 3].

The model is the HMM's own message passing, so nothing is lost in pretraining and what remains is
what the theory is about: the best linear head on the exact law G at the masked first position,
against one soft token before it, trained by gradient descent together with a head. The prompt
reaches the masked position through one law over states, whatever its length, so one vector does
what twenty do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.adaptation.linear import best_linear_head
from triptych.adaptation.prompts import Tuning
from triptych.adaptation.tasks import draw_task, majority_rate
from triptych.core.validation import UserError
from triptych.structures.hidden_markov.hmm import HMM
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Bench, Rows, Scale, Settings, Study, Unit
from triptych.studies.api.summaries import mean_series
from triptych.studies.tuning.shared.networks import VOCAB, vanilla
from triptych.theory.tuning.heads import smallest_singular_value
from triptych.training.step import Recipe

SMALLEST = 1e-20  # where a margin of 0 is drawn


@dataclass(frozen=True)
class ExactTuning(Settings):
    """Sizes of the models and of the tuning.

    hidden           |H| of the HMMs; they have 10 symbols
    prompt_lengths   soft tokens before the masked position
    """

    seeds: int = 6
    hidden: tuple[int, ...] = (4, 8, 10, 15, 25, 30)
    prompt_lengths: tuple[int, ...] = (1,)
    inputs: int = 128
    train: int = 3000
    test: int = 1000
    steps: int = 1500
    learning_rate: float = 0.1


@dataclass(frozen=True)
class TuneExactly(Unit):
    """One HMM and one task."""

    states: int
    prompt_lengths: tuple[int, ...]
    inputs: int
    train: int
    test: int
    steps: int
    learning_rate: float


@dataclass(frozen=True)
class Tuned:
    """Soft tokens with the best linear head after them, and the best linear head alone.

    draws           how often the task was drawn, until both labels occurred
    majority        accuracy of always saying the most frequent label
    summary_error   largest error of the two soft tokens that stand for the whole input
    margin          smallest singular value of the emission matrix
    """

    states: int
    seed: int
    draws: int
    majority: float
    summary_error: float
    margin: float
    head: float
    prompt_length: int
    prompt: float


def units(settings: ExactTuning) -> Sequence[TuneExactly]:
    """All sizes of a seed before the next seed."""
    if min(settings.hidden) < 1 or min(settings.prompt_lengths) < 1:
        raise UserError("hidden sizes and prompt_lengths must be at least 1")
    return [
        TuneExactly.of(settings, states=states, seed=seed)
        for seed in range(1, settings.seeds + 1)
        for states in settings.hidden
    ]


def summary(hmm: HMM, posterior: Float[Tensor, "batch states"]) -> Float[Tensor, "batch 2 states"]:
    """(∅, s): two soft tokens that act at ∅ as (∅, x_1, …, x_T) does.

    The embedding model reads any nonnegative vector, and s(h) ∝ P[x | H = h] at the first token
    says all that x says. It is the posterior of that state over its law, scaled to at most 1. A
    state without a law has no posterior to read P[x | H = h] from, and a prompt may reach it.
    """
    law = hmm.initial @ hmm.transition
    if not (law > 0).all():
        raise UserError(
            f"state {int(law.argmin())} cannot stand at the first token; a summary needs every "
            "state there to have a positive probability"
        )
    likelihood = posterior / law
    likelihood = likelihood / likelihood.amax(-1, keepdim=True)
    return torch.stack([torch.ones_like(likelihood), likelihood], dim=1)


def run(unit: TuneExactly, bench: Bench) -> Iterable[Tuned]:
    """The best head on the exact law, and soft tokens with a head."""
    hmm = vanilla(unit.states, unit.inputs + 1, unit.seed).to(bench.device)
    n = unit.train
    tokens = hmm.sample(n + unit.test, bench.rng("inputs"))
    hidden = torch.zeros_like(tokens, dtype=torch.bool)
    hidden[:, 0] = True
    posterior = hmm.log_posterior(tokens, hidden).exp()
    exact = hmm.masked_log_probs(tokens, hidden)[:, 0].exp()
    task, labels = draw_task(posterior[:n, 0], seed=unit.seed)
    wanted = task.labels(posterior[n:, 0])
    vectors = summary(hmm, posterior[:, 1])
    agreement = (hmm.soft_masked_probs(vectors, at=0)[:, 0] - exact).abs().max()
    head = best_linear_head(exact[:n], labels).score(exact[n:], wanted)
    no_symbols = torch.full(vectors.shape[:2], VOCAB, device=tokens.device)
    recipe = Recipe(
        steps=unit.steps,
        batch=128,
        learning_rate=unit.learning_rate,
        warmup=unit.steps // 8,
        decay="linear",
    )
    for length in unit.prompt_lengths:
        tuned = Tuning(hmm, prompt_length=length, recipe=recipe, seed=unit.seed)
        tuned.fit_vectors(vectors[:n], no_symbols[:n], labels)
        features = tuned.features_of(vectors)
        best = best_linear_head(features[:n], labels)
        yield Tuned(
            states=unit.states,
            seed=unit.seed,
            draws=task.draws,
            majority=majority_rate(wanted),
            summary_error=float(agreement),
            margin=smallest_singular_value(hmm.emission.T),
            head=head,
            prompt_length=length,
            prompt=best.score(features[n:], wanted),
        )


def accuracy_figure(rows: Rows[Tuned]) -> Figure:
    """Accuracy against |H|, without any network."""
    trials = rows.of(Tuned)
    lengths = sorted({row.prompt_length for row in trials})
    first = [row for row in trials if row.prompt_length == lengths[0]]
    series = [
        mean_series(
            [(row.states, row.prompt) for row in trials if row.prompt_length == length],
            f"{length} soft token{'s' if length > 1 else ''} and a head",
            "ours",
        )
        for length in lengths
    ]
    heads = [(row.states, row.head) for row in first]
    series.append(mean_series(heads, "best linear head", "control"))
    majority = [(row.states, row.majority) for row in first]
    always = mean_series(majority, "always the majority label", "truth")
    series.append(replace(always, low=(), high=()))
    gains = [
        Series(
            f"one trial, |H| {sign} 10",
            kind,
            [max(row.margin, SMALLEST) for row in some],
            [100 * (row.prompt - row.head) for row in some],
            line=False,
        )
        for sign, kind, some in _by_size(first)
        if some
    ]
    return Figure(
        "exact_tuning",
        "One soft token and a head, against the best linear head, on exact probabilities",
        [
            Panel(series, "hidden states |H| (10 symbols)", "test accuracy (%)"),
            Panel(
                gains,
                "smallest singular value of the emission matrix",
                "prompt minus best head (points)",
                x_log=True,
            ),
        ],
        "No network: the masked model is the HMM's own message passing. The head is the best of "
        "convex problems with ever weaker ridges, with and without the soft token, found by "
        "gradient descent and may miss its optimum. Means over trials with 95 % intervals. Right: "
        f"the margin of Assumption 3.1, which fails at 0 (drawn at {SMALLEST:.0e}): the only place "
        "for |H| > 10.",
    )


def _by_size(rows: Sequence[Tuned]) -> list[tuple[str, SeriesKind, list[Tuned]]]:
    beyond = [row for row in rows if row.states > VOCAB]
    within = [row for row in rows if row.states <= VOCAB]
    return [(">", "ours", beyond), ("<=", "control", within)]


STUDY = Study(
    name="exact_tuning",
    question="What do heads and prompts reach on the exact masked model, with no network at all?",
    settings={
        Scale.SMOKE: ExactTuning(
            seeds=1, hidden=(4, 12), prompt_lengths=(1, 2), inputs=10, train=80, test=40, steps=20
        ),
        Scale.LAPTOP: ExactTuning(),
        Scale.PAPER: ExactTuning(seeds=20, prompt_lengths=(1, 5, 20), train=5000, steps=4000),
    },
    units=units,
    run=run,
    rows=(Tuned,),
    figures=[accuracy_figure],
)
