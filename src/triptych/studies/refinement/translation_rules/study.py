"""What does the rule for repeated tokens change, in the output of refinement [li, 4.2.3]?

The thesis says that a repeated token is replaced between steps and dropped at the end. The authors'
program does something else at the end (`shared.repeats`). The same networks translate with either
rule, and with a remasking schedule, of which footnote 18 says that it changes nothing visibly.

For each direction and seed of Multi30k: an autoregressive teacher, its translations of the training
sources, and an autoregressive and a parallel student on these, as in `real_translation`. Laptop
scale is a toy language, which shows the parts at work and decides nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from triptych.studies.api.study import Bench, Claim, Scale, Settings, Study, Unit
from triptych.studies.refinement.shared.data import TOY, load_pairs
from triptych.studies.refinement.shared.elsewhere import phases_elsewhere
from triptych.studies.refinement.shared.more_phases import RulesPipeline
from triptych.studies.refinement.shared.pipeline import Found
from triptych.studies.refinement.shared.rows import Compared, Scored, Trained
from triptych.studies.refinement.shared.scoring import Scores, bleu_difference, rows_of_phases
from triptych.studies.refinement.shared.sizes import TINY, Sizes, plan_of
from triptych.studies.refinement.translation_rules import figures, judge, made_rows

Row = Trained | Scored | Compared


@dataclass(frozen=True, kw_only=True)
class TranslationRules(Sizes, Settings):
    """Pairs, directions, sizes, and steps of the trainings."""

    seeds: int = 2
    first_seed: int = 4
    corpora: tuple[str, ...] = ("multi30k",)
    directions: tuple[str, ...] = ("en-de", "de-en")
    teacher_steps: int = 2500
    student_steps: int = 2500
    padir_steps: int = 6000


@dataclass(frozen=True, kw_only=True)
class TranslateByRules(Sizes, Unit):
    """One direction, one seed."""

    data: str
    direction: str
    teacher_steps: int
    student_steps: int
    padir_steps: int


def units(settings: TranslationRules) -> Sequence[TranslateByRules]:
    """One for each corpus, direction and seed."""
    return [
        TranslateByRules.of(settings, data=data, direction=direction, seed=seed)
        for data in settings.corpora
        for direction in settings.directions
        for seed in range(settings.first_seed, settings.first_seed + settings.seeds)
    ]


def run(unit: TranslateByRules, bench: Bench) -> Iterable[Row]:
    """Train, translate and score; or score what another machine has translated."""
    source, target = unit.direction.split("-")
    text = load_pairs(unit.data, sorted((source, target)), unit.vocabulary)
    references = {
        side.rsplit(".", 1)[0]: lines
        for side, lines in text.texts.items()
        if side.endswith(f".{target}")
    }
    plan = plan_of(unit, 0, unit.teacher_steps, unit.student_steps, unit.padir_steps)
    name = f"{unit.direction}-{unit.seed}"
    files = [f"{name}.jsonl", f"{name}.rules.jsonl"]
    phases = phases_elsewhere(text.folder, files, plan, text.pairs.vocab_size)
    if phases is None:
        work = RulesPipeline(
            text.pairs,
            source,
            target,
            unit.seed,
            plan,
            device=bench.device,
            recorded=bench.device != "cpu",
        )
        phases = [(name, do()) for name, do in work.phases_of_rules()]
    wanted = [(name, found) for name, found in phases if name in judge.PHASES]
    for row in rows_of_phases(
        wanted,
        data=unit.data,
        direction=unit.direction,
        seed=unit.seed,
        pairs=len(text.texts[f"train.{source}"]),
        references=references,
        decode=text.decode,
        decode_other=text.decode_other,
    ):
        if isinstance(row, Trained | Scored):
            yield row
    run_of = {"data": unit.data, "direction": unit.direction, "seed": unit.seed}
    yield from _against_the_published_rule(dict(wanted), references, text.decode, run_of)


def _against_the_published_rule(
    phases: dict[str, Found], references: dict[str, list[str]], decode: Any, run_of: dict[str, Any]
) -> Iterable[Compared]:
    """BLEU of each other rule minus that of the published one, on the set kept aside."""
    scores, on = Scores(), judge.DECIDES
    if not scores.ready:
        return

    def counts(phase: str, how: str) -> Any:
        outputs = decode(phases[phase]["outputs"][how][on]["tokens"])
        return scores.counts(outputs, references[on])

    published = {how: counts("padir", how) for how in ("T=4", "T=10")}
    for how, sets in phases["rules"]["outputs"].items():
        steps = how.split()[-1]
        if steps in published and on in sets:
            found = bleu_difference(counts("rules", how), published[steps])
            yield Compared(
                **run_of,
                on=on,
                first=f"rules {how}",
                second=f"padir {steps}",
                difference=found[0],
                low=found[1],
                high=found[2],
            )


STUDY = Study(
    name="translation_rules",
    question="What does the rule for repeated tokens change in the output of refinement?",
    settings={
        Scale.SMOKE: TranslationRules(
            **TINY,
            seeds=1,
            corpora=(TOY,),
            directions=("en-de",),
            teacher_steps=4,
            student_steps=4,
            padir_steps=4,
        ),
        Scale.LAPTOP: TranslationRules(
            **TINY,
            seeds=1,
            corpora=(TOY,),
            teacher_steps=100,
            student_steps=100,
            padir_steps=200,
        ),
        Scale.PAPER: TranslationRules(),
    },
    units=units,
    run=run,
    rows=(Trained, Scored, Compared),
    claims=[
        Claim(
            "li.padir-stutter",
            judge.stutter,
            made_rows.STUTTER_REFUTED,
            held_by=made_rows.STUTTER_HELD,
        ),
        Claim(
            "li.padir-remasking",
            judge.remasking,
            made_rows.REMASKING_REFUTED,
            held_by=made_rows.REMASKING_HELD,
        ),
    ],
    figures=[figures.repeats_figure],
)
