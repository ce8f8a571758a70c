"""Does backtracking with a light verifier help a code model to write test cases? [li, 3.2.2, 3.2.3]

A model is shown a function that appends an item to a list and asked for test cases of it. Methods
are compared by the share of distinct correct cases and by the tokens that they draw. Largest run:
a pretrained model of code, of half a billion parameters where the thesis has CodeLlama with seven.
Laptop scale is a stand-in: a network of some hundred thousand parameters that is trained here, on
shorter prompts followed by imperfect test cases. It shows what happens and decides nothing.

All methods stop by one rule (`completing`). Verifiers read the layer that they were trained on, the
whole vocabulary is sampled from, and Algorithm 1 redoes exactly the erased positions: in these
three points the authors' program does something else.
"""

from collections.abc import Iterable, Sequence

from triptych.core.validation import UserError
from triptych.studies.api.study import Bench, Scale, Study
from triptych.studies.generation.code_cases import (
    judge_algorithm,
    judge_grid,
    judge_verifiers,
    judge_walk,
)
from triptych.studies.generation.code_cases.completing import Completions
from triptych.studies.generation.code_cases.configs import VERIFIERS, configurations
from triptych.studies.generation.code_cases.figures import FIGURES
from triptych.studies.generation.code_cases.probes import Verifiers
from triptych.studies.generation.code_cases.rows import (
    ROWS,
    CodeCases,
    Row,
    TrainedNetwork,
    Work,
)
from triptych.studies.generation.code_cases.writers import PRETRAINED, STAND_IN, writer_of


def units(settings: CodeCases) -> Sequence[Work]:
    """One for each network; or, apart, one for each configuration and some repeats, the most
    decisive first."""
    for name in ("seeds", "repeats", "together", "cases", "prompts", "completions", "gathered"):
        if getattr(settings, name) < 1:
            raise UserError(f"{name} is {getattr(settings, name)}; it must be at least 1")
    if settings.layer not in settings.layers:
        raise UserError(f"layer is {settings.layer}; it must be one of {settings.layers}")
    if settings.model != STAND_IN and settings.seeds > 1:
        raise UserError(
            f"seeds is {settings.seeds}; there is one {settings.model}, so it must be 1"
        )
    repeats = tuple(range(settings.repeats))
    names = (VERIFIERS, *configurations(settings))
    found = []
    for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
        if not settings.apart:
            found.append(Work.of(settings, seed=seed, configs=names, repeats=repeats))
            continue
        firsts = range(0, settings.repeats, settings.together)
        groups = [repeats[first : first + settings.together] for first in firsts]
        for name in names:
            found += [
                Work.of(settings, seed=seed, configs=(name,), repeats=own)
                for own in (groups if name != VERIFIERS else [()])
            ]
    return found


def run(unit: Work, bench: Bench) -> Iterable[Row]:
    """The verifiers' accuracies, and the completions of every configuration."""
    writer = writer_of(unit, bench, unit.seed)
    verifiers = Verifiers(unit, writer, bench, unit.seed)
    known = configurations(unit)
    again = len(unit.configs) > 1
    completions = Completions(unit, unit.repeats, writer, verifiers, bench, unit.seed, again=again)
    for name in unit.configs:
        if name == VERIFIERS:
            if writer.loss is not None:
                yield TrainedNetwork(seed=unit.seed, loss=writer.loss)
            if verifiers.learnable:
                yield from verifiers.rows()
        elif known[name].verifier != "probe" or verifiers.learnable:
            yield from completions.run(known[name])


STUDY = Study(
    name="code_cases",
    question="Does backtracking with a light verifier help a code model to write test cases?",
    settings={
        Scale.SMOKE: CodeCases(
            seeds=1,
            repeats=1,
            cases=1,
            demonstrations=1,
            prompts=2,
            completions=2,
            max_new_tokens=14,
            layer=1,
            layers=(1, 2),
            depths=(2,),
            gathered=60,
            walks=True,
            temperatures=(1.0,),
            top_ps=(0.95,),
            longest_list=0,
            network_layers=2,
            heads=2,
            width=16,
            texts=100,
            steps=100,
            batch=8,
            learning_rate=1e-2,
        ),
        Scale.LAPTOP: CodeCases(seeds=1, repeats=3),
        Scale.PAPER: CodeCases(
            model=PRETRAINED,
            seeds=1,
            apart=True,
            cases=8,
            demonstrations=8,
            max_new_tokens=384,
            layer=20,
            layers=(3, 6, 9, 12, 15, 18, 19, 20, 21, 22, 23, 24),
            gathered=1400,
            repeats=10,
            at_once=1000,
            temperatures=(0.2, 0.4, 0.6, 0.8, 1.0, 1.2),
            top_ps=(0.7, 0.8, 0.9, 0.95, 1.0),
            walks=True,
        ),
    },
    units=units,
    run=run,
    rows=ROWS,
    claims=[
        *judge_algorithm.CLAIMS,
        *judge_verifiers.CLAIMS,
        *judge_grid.CLAIMS,
        *judge_walk.CLAIMS,
    ],
    figures=FIGURES,
)
