"""How does the distance of refinement from beam search depend on the number of training pairs?

Software texts, English to German, 20 to 310 thousand pairs evenly spread over all: an
autoregressive teacher, its translations of the training sources, and an autoregressive and a
parallel student on these. Both translate the test texts, which are of packages that no training
saw. Trainings have a number of steps that grows with the pairs, and seconds; the loss on validation
pairs is measured all along, so that one sees whether it is flat at the end.

Next to it, exactly: a world in which each pair says which way of writing goes with a clue, so that
the dependency that is left after n pairs is known (`exact`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from triptych.core.validation import UserError
from triptych.studies.api.study import Bench, Claim, Scale, Settings, Study, Unit
from triptych.studies.refinement.shared import rows as shared_rows
from triptych.studies.refinement.shared.data import SOFTWARE, TOY, load_pairs
from triptych.studies.refinement.shared.elsewhere import phases_elsewhere
from triptych.studies.refinement.shared.more_phases import WatchedPipeline
from triptych.studies.refinement.shared.pipeline import Found, Plan
from triptych.studies.refinement.shared.scoring import rows_of_phases
from triptych.studies.refinement.shared.sizes import TINY, Sizes, plan_of
from triptych.studies.refinement.translation_pairs import figures, judge, made_rows
from triptych.studies.refinement.translation_pairs.exact import what_is_left
from triptych.studies.refinement.translation_pairs.rows import (
    KINDS,
    Gap,
    Learned,
    Row,
    Scored,
)


@dataclass(frozen=True, kw_only=True)
class TranslationPairs(Sizes, Settings):
    """Numbers of pairs, with the steps of each training at each of them.

    pairs    at most; of 310,000 software pairs 309,594 are short enough
    clues    of the exact world, and `exact_pairs` its numbers of pairs
    """

    seeds: int = 2
    first_seed: int = 2
    corpora: tuple[str, ...] = (SOFTWARE,)
    directions: tuple[str, ...] = ("en-de",)
    pairs: tuple[int, ...] = (20_000, 40_000, 80_000, 160_000, 310_000)
    teacher_steps: tuple[int, ...] = (2000, 2500, 3500, 4500, 6000)
    student_steps: tuple[int, ...] = (2000, 2500, 3500, 4500, 5000)
    padir_steps: tuple[int, ...] = (5000, 6500, 9000, 12_000, 16_000)
    teacher_seconds: float = 85.0
    student_seconds: float = 65.0
    padir_seconds: float = 220.0
    worlds: tuple[str, ...] = ("dialects", "orders", "split words")
    clues: int = 100_000
    exact_pairs: tuple[int, ...] = (20_000, 40_000, 80_000, 160_000, 310_000)


@dataclass(frozen=True, kw_only=True)
class TranslateSome(Sizes, Unit):
    """One direction, one seed, one number of pairs."""

    data: str
    direction: str
    pairs: int
    teacher_steps: int
    student_steps: int
    padir_steps: int

    def plan(self) -> Plan:
        """The sizes and steps of a pipeline."""
        steps = (self.teacher_steps, self.student_steps, self.padir_steps)
        return plan_of(self, self.pairs, *steps)


@dataclass(frozen=True, kw_only=True)
class ComputeLeft(Unit):
    """What is left in one world, for all numbers of pairs."""

    world: str
    clues: int
    exact_pairs: tuple[int, ...]


def units(settings: TranslationPairs) -> Sequence[TranslateSome | ComputeLeft]:
    """The exact worlds, then the translations: all sizes of the first seed before the next seed."""
    lists = (settings.teacher_steps, settings.student_steps, settings.padir_steps)
    if any(len(steps) != len(settings.pairs) for steps in lists):
        raise UserError(
            f"there are {len(settings.pairs)} numbers of pairs, and steps of trainings for "
            f"{[len(steps) for steps in lists]} of them; give steps for each"
        )
    found: list[TranslateSome | ComputeLeft] = [
        ComputeLeft.of(settings, world=world, seed=0) for world in settings.worlds
    ]
    for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
        for data in settings.corpora:
            for direction in settings.directions:
                for pairs, teacher, student, padir in zip(settings.pairs, *lists, strict=True):
                    found.append(
                        TranslateSome.of(
                            settings,
                            seed=seed,
                            data=data,
                            direction=direction,
                            pairs=pairs,
                            teacher_steps=teacher,
                            student_steps=student,
                            padir_steps=padir,
                        )
                    )
    return found


def run(unit: TranslateSome | ComputeLeft, bench: Bench) -> Iterable[Row]:
    if isinstance(unit, ComputeLeft):
        yield from what_is_left(unit.world, unit.clues, unit.exact_pairs)
    else:
        yield from translated(unit, bench)


def translated(unit: TranslateSome, bench: Bench) -> Iterator[Row]:
    """Train, translate and score; or score what another machine has translated."""
    source, target = unit.direction.split("-")
    text = load_pairs(unit.data, sorted((source, target)), unit.vocabulary)
    references = {
        side.rsplit(".", 1)[0]: lines
        for side, lines in text.texts.items()
        if side.endswith(f".{target}")
    }
    file = f"{unit.direction}-{unit.seed}-{unit.pairs}.jsonl"
    phases = phases_elsewhere(text.folder, [file], unit.plan(), text.pairs.vocab_size)
    if phases is None:
        work = WatchedPipeline(
            text.pairs,
            source,
            target,
            unit.seed,
            unit.plan(),
            device=bench.device,
            recorded=bench.device != "cpu",
        )
        phases = [(name, do()) for name, do in work.phases_of_pairs()]
    rows = rows_of_phases(
        phases,
        data=unit.data,
        direction=unit.direction,
        seed=unit.seed,
        pairs=unit.pairs,
        references=references,
        decode=text.decode,
        decode_other=text.decode_other,
    )
    yield from _with_pairs(rows, dict(phases), unit)


def _with_pairs(
    rows: Iterable[shared_rows.Row], phases: dict[str, Found], unit: TranslateSome
) -> Iterator[Row]:
    """The rows of a pipeline with the number of its pairs."""
    trial = {
        "data": unit.data,
        "direction": unit.direction,
        "seed": unit.seed,
        "pairs": unit.pairs,
    }
    for row in rows:
        match row:
            case shared_rows.Trained():
                yield Learned(
                    **trial,
                    model=row.model,
                    steps=row.steps,
                    seconds=row.seconds,
                    validation=tuple(float(v) for v in phases[row.model]["validation"]),
                )
            case shared_rows.Scored() if row.model in ("student", "padir"):
                yield Scored(**trial, system=row.how, on=row.on, bleu=row.bleu, brevity=row.brevity)
            case shared_rows.Compared():
                yield Gap(
                    **trial,
                    steps=int(row.first.split("=")[1]),
                    on=row.on,
                    difference=row.difference,
                    low=row.low,
                    high=row.high,
                )
            case _:
                pass


_TOY = {"corpora": (TOY,), "seeds": 1, "worlds": ("orders",)}

STUDY = Study(
    name="translation_pairs",
    question="How does the distance from beam search depend on the number of training pairs?",
    settings={
        Scale.SMOKE: TranslationPairs(
            **TINY,
            **_TOY,
            pairs=(120, 160),
            teacher_steps=(60, 60),
            student_steps=(4, 4),
            padir_steps=(4, 4),
            clues=100,
            exact_pairs=(10, 100),
        ),
        Scale.LAPTOP: TranslationPairs(
            **TINY,
            corpora=(TOY,),
            seeds=1,
            pairs=(40, 80, 160),
            teacher_steps=(60, 60, 60),
            student_steps=(60, 60, 60),
            padir_steps=(120, 120, 120),
        ),
        Scale.PAPER: TranslationPairs(),
    },
    units=units,
    run=run,
    rows=KINDS,
    claims=[
        Claim(
            "li.padir-pairs", judge.gap_closes, made_rows.GAP_REFUTED, held_by=made_rows.GAP_HELD
        ),
        Claim(
            "li.padir-pairs-exact",
            judge.what_is_left,
            made_rows.LEFT_REFUTED,
            held_by=made_rows.LEFT_HELD,
        ),
    ],
    figures=[figures.pairs_figure, figures.left_figure],
)
