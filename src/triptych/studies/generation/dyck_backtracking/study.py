"""Does backtracking guided by a light verifier mend the mistakes of a language model? [li, 3.2.1]

A network learns brackets and completes prompts of a kind that it has hardly seen; a probe on its
states learns to tell its mistakes; Algorithm 1 uses the probe. One unit is one trained network with
every table of the section: accuracies at error-inducing prefixes (Tables 3.1, 3.2 and 3.4), errors
on unseen prompts (3.3, 3.16), diversity (3.5), what the remaining errors are (Figure 3.2), and a
picture of the states (Figure 3.1). The prefixes of these tables are fresh, not those that the probe
was trained on.
"""

from collections.abc import Iterable, Sequence

import torch

from triptych.core.validation import UserError
from triptych.studies.api.study import Bench, Scale, Study
from triptych.studies.generation.dyck_backtracking import (
    judge_prefixes,
    judge_prompts,
    judge_states,
)
from triptych.studies.generation.dyck_backtracking.figures import FIGURES
from triptych.studies.generation.dyck_backtracking.prefixes import quotas, strides
from triptych.studies.generation.dyck_backtracking.prompts import diversity, unseen
from triptych.studies.generation.dyck_backtracking.rows import (
    ROWS,
    DyckBacktracking,
    Gathered,
    LanguageModel,
    OneNetwork,
    Row,
)
from triptych.studies.generation.dyck_backtracking.states import FEWEST, fit_probe
from triptych.studies.generation.shared.completions import (
    complete,
    draw_prompts,
    gather_mistakes,
    memory_of,
    plainly,
    read,
)
from triptych.studies.generation.shared.trained_dyck import (
    SMALL,
    TINY,
    Trained,
    one_for_each_network,
    trained,
)


def units(settings: DyckBacktracking) -> Sequence[OneNetwork]:
    """One for each network."""
    if not 1 <= settings.shortest_prompt <= settings.longest_prompt < settings.length:
        raise UserError(
            "prompts must have 1 ≤ shortest_prompt ≤ longest_prompt < length tokens; here "
            f"{settings.shortest_prompt}, {settings.longest_prompt} and {settings.length}"
        )
    counts = ("seeds", "tries", "unseen", "repeats", "splits", "mistakes", "diverse_prompts")
    for name, least in [*((name, 1) for name in counts), ("pictured", FEWEST)]:
        if getattr(settings, name) < least:
            raise UserError(f"{name} is {getattr(settings, name)}; it must be at least {least}")
    return one_for_each_network(OneNetwork, settings)


def run(unit: OneNetwork, bench: Bench) -> Iterable[Row]:
    """Train, gather mistakes, train the probe, then every table."""
    model = trained(unit, bench, unit.seed)
    yield _language_model(unit, model, bench)
    mistakes = gather_mistakes(unit, model, 2 * unit.mistakes, bench.rng("mistakes"))
    half = len(mistakes.tokens) // 2
    yield Gathered(unit.seed, len(mistakes.tokens), mistakes.prompts)
    if half < 10:
        return  # the network hardly ever errs: there is nothing to learn a verifier from
    wrong, same_end = mistakes.take(0, half), bench.rng("same end")
    probe, found = fit_probe(unit, model, wrong, bench.rng("correct strings"), same_end)
    yield from found
    prefixes, memory = mistakes.take(half, 2 * half).inducing(), memory_of(model.lm)
    yield from strides(unit, model, prefixes, bench.rng("strides"), memory)
    drawn, redrawn = bench.rng("quotas"), bench.rng("refused")
    yield from quotas(unit, model, probe, prefixes, drawn, redrawn, memory)
    yield from unseen(unit, model, probe, bench.rng("unseen prompts"), bench.rng("unseen"))
    yield from diversity(unit, model, probe, bench.rng("diversity"))


def _language_model(unit: OneNetwork, model: Trained, bench: Bench) -> LanguageModel:
    """Completion accuracy in and out of distribution, and the right closing bracket by argmax."""
    rng = bench.rng("language model")
    lengths = {"shortest": unit.shortest_prompt, "longest": unit.longest_prompt}
    inside, outside = (
        read(
            model.law,
            complete(
                model.lm,
                draw_prompts(law, unit.unseen, rng, **lengths),
                plainly(model.law, unit.top_p, rng),
            ),
        )
        for law in (model.law, model.ood)
    )
    tokens = model.law.sample(min(2000, unit.unseen), rng)
    closing = (tokens % 2 == 1) & (tokens < model.law.vocab_size - 1)
    logits = torch.cat([model.lm.every_next_token_log_probs(t) for t in tokens.split(500)])
    brackets = logits[..., 1:4:2].argmax(-1) * 2 + 1  # the likelier of the two closing brackets
    return LanguageModel(
        seed=unit.seed,
        kl=model.kl,
        prompts=unit.unseen,
        in_accuracy=inside.accuracy,
        in_errors=inside.errors,
        out_accuracy=outside.accuracy,
        out_errors=outside.errors,
        closing_accuracy=float((brackets == tokens)[closing].double().mean()),
    )


STUDY = Study(
    name="dyck_backtracking",
    question="Does backtracking guided by a light verifier mend a language model's mistakes?",
    settings={
        Scale.SMOKE: DyckBacktracking.like(
            TINY,
            seeds=1,
            mistakes=12,
            tries=1,
            unseen=40,
            repeats=2,
            splits=2,
            diverse_prompts=4,
            diverse_completions=4,
            pictured=12,
        ),
        Scale.LAPTOP: DyckBacktracking.like(
            SMALL,
            seeds=8,
            first_seed=100,
            mistakes=300,
            unseen=1000,
            repeats=4,
            splits=5,
            diverse_prompts=60,
            pictured=150,
        ),
        Scale.PAPER: DyckBacktracking(seeds=32, first_seed=100, most_prompts=1_000_000),
    },
    units=units,
    run=run,
    rows=ROWS,
    claims=[*judge_states.CLAIMS, *judge_prefixes.CLAIMS, *judge_prompts.CLAIMS],
    figures=FIGURES,
)
