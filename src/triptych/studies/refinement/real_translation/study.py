"""Is parallel decoding by refinement as good as beam search on real sentences [li, 4.2.2 to 4.2.4]?

For each direction and seed: an autoregressive teacher on the pairs, its translations of the
training sources by beam search, an autoregressive and a parallel student on these, and shorter
trainings with one practice left out. `pipeline` says it in phases.

The largest run is Multi30k (29,000 pairs of image captions), which decides, and pairs of software
texts next to it, with 4+4 layers of width 256: what fits the data. The source has WMT, 67 million
parameters and a commercial translator as the teacher. Rows depend on the clock where a phase ends
by its seconds; they say how many steps were done. Laptop scale is a toy language that shows the
parts at work and decides nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from triptych.core.validation import UserError
from triptych.studies.api.study import Bench, Claim, Scale, Settings, Study, Unit
from triptych.studies.refinement.real_translation import figures, judge, made_rows
from triptych.studies.refinement.shared.data import (
    SOFTWARE,
    TOY,
    load_pairs,
    ready_latencies,
    ready_phases,
)
from triptych.studies.refinement.shared.pipeline import (
    ABLATIONS,
    Found,
    Pipeline,
    Plan,
    latencies,
)
from triptych.studies.refinement.shared.rows import KINDS, Row
from triptych.studies.refinement.shared.scoring import rows_of_latencies, rows_of_phases
from triptych.studies.refinement.shared.translating import Refinement

LARGER: dict[str, dict[str, Any]] = {
    SOFTWARE: {
        "pairs": 60_000,
        "teacher_steps": 3000,
        "student_steps": 3000,
        "padir_steps": 8000,
        "ablations": (),
    }
}
"""What differs for corpora that are larger than Multi30k."""


@dataclass(frozen=True, kw_only=True)
class RealTranslation(Settings):
    """Pairs, directions, and the sizes of `pipeline.Plan`.

    corpora                   names of fetched corpora, or folders
    ..._steps, ..._seconds    of a training; it ends with whichever comes first
    timed                     sentences whose latency is measured
    """

    seeds: int = 2
    first_seed: int = 2
    corpora: tuple[str, ...] = ("multi30k", SOFTWARE)
    pairs: int = 0
    directions: tuple[str, ...] = ("en-de", "de-en")
    vocabulary: int = 8000
    width: int = 256
    layers: int = 4
    heads: int = 8
    feedforward: int = 1024
    length: int = 48
    dropout: float = 0.3
    tokens: int = 8192
    learning_rate: float = 1.5e-3
    teacher_steps: int = 2500
    teacher_seconds: float = 300.0
    student_steps: int = 2500
    student_seconds: float = 300.0
    padir_steps: int = 15_000
    padir_seconds: float = 900.0
    ablation_steps: int = 1100
    ablation_seconds: float = 300.0
    ablations: tuple[str, ...] = ABLATIONS
    beams: int = 5
    lengths: int = 5
    attention: int = 4000
    timed: int = 1000


@dataclass(frozen=True, kw_only=True)
class TranslatePairs(Unit):
    """One direction, one seed."""

    direction: str
    data: str
    pairs: int
    vocabulary: int
    width: int
    layers: int
    heads: int
    feedforward: int
    length: int
    dropout: float
    tokens: int
    learning_rate: float
    teacher_steps: int
    teacher_seconds: float
    student_steps: int
    student_seconds: float
    padir_steps: int
    padir_seconds: float
    ablation_steps: int
    ablation_seconds: float
    ablations: tuple[str, ...]
    beams: int
    lengths: int
    attention: int
    timed: int

    def plan(self) -> Plan:
        """The sizes and steps of a pipeline."""
        return Plan(
            pairs=self.pairs,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            feedforward=self.feedforward,
            length=self.length,
            dropout=self.dropout,
            tokens=self.tokens,
            learning_rate=self.learning_rate,
            teacher=(self.teacher_steps, self.teacher_seconds),
            student=(self.student_steps, self.student_seconds),
            padir=(self.padir_steps, self.padir_seconds),
            ablation=(self.ablation_steps, self.ablation_seconds),
            ablations=self.ablations,
            beams=self.beams,
            lengths=self.lengths,
            attention=self.attention,
        )


def units(settings: RealTranslation) -> Sequence[TranslatePairs]:
    """One for each corpus, direction and seed."""
    return [
        TranslatePairs.of(
            settings, data=data, direction=direction, seed=seed, **LARGER.get(data, {})
        )
        for data in settings.corpora
        for direction in settings.directions
        for seed in range(settings.first_seed, settings.first_seed + settings.seeds)
    ]


def run(unit: TranslatePairs, bench: Bench) -> Iterable[Row]:
    """Train, translate and score; or score what another machine has translated."""
    source, target = unit.direction.split("-")
    text = load_pairs(unit.data, sorted((source, target)), unit.vocabulary)
    references = {
        side.rsplit(".", 1)[0]: lines
        for side, lines in text.texts.items()
        if side.endswith(f".{target}")
    }
    ready = ready_phases(text.folder, unit.direction, unit.seed)
    if ready is None:
        work = Pipeline(
            text.pairs,
            source,
            target,
            unit.seed,
            unit.plan(),
            device=bench.device,
            recorded=bench.device != "cpu",
            other=text.other,
        )
        phases: Iterable[tuple[str, Found]] = ((name, do()) for name, do in work.phases())
        pairs = len(work.sources)
    else:
        phases, work = _checked(ready, unit, text.pairs.vocab_size), None
        pairs = int(ready[0]["pairs"])
    yield from rows_of_phases(
        phases,
        data=unit.data,
        direction=unit.direction,
        seed=unit.seed,
        pairs=pairs,
        references=references,
        decode=text.decode,
        decode_other=text.decode_other,
    )
    if work is None:
        records = ready_latencies(text.folder, unit.direction, unit.seed)
    else:
        records = list(_timed(work, unit, bench))
    yield from rows_of_latencies(records, data=unit.data)


def _checked(
    ready: Sequence[Found], unit: TranslatePairs, vocab_size: int
) -> Iterator[tuple[str, Found]]:
    """The phases of a run elsewhere, which must have had this unit's sizes."""
    plan = unit.plan()
    made_with = ready[0].get("vocab_size", vocab_size)
    if made_with != vocab_size:
        raise UserError(
            f"the translations of {unit.direction} were made with a vocabulary of {made_with} "
            f"pieces, and vocabulary.json has {vocab_size}"
        )
    for name, value in ready[0]["plan"].items():
        own = getattr(plan, name)
        if (list(own) if isinstance(own, tuple) else own) != value:
            raise UserError(
                f"the translations of {unit.direction} were made with {name} {value}, not {own}"
            )
    for record in ready[1:]:
        if "found" in record:
            yield record["phase"], record["found"]


def _timed(work: Pipeline, unit: TranslatePairs, bench: Bench) -> Iterator[Found]:
    sources = work.timed()[: unit.timed]
    systems: list[tuple[str, str, Refinement | int]] = [
        ("padir", "T=4", Refinement(4, unit.lengths)),
        ("padir", "T=10", Refinement(10, unit.lengths)),
        ("student", "beam 1", 1),
        ("student", "beam 5", 5),
    ]
    found = latencies(
        [(work.nets[model], setting) for model, _, setting in systems], sources, unit.seed
    )
    for (model, how, _), timed in zip(systems, found, strict=True):
        yield {
            "direction": unit.direction,
            "seed": unit.seed,
            "device": bench.device,
            "model": model,
            "how": how,
            **timed,
        }


_TOY = RealTranslation(
    seeds=1,
    corpora=(TOY,),
    directions=("en-de",),
    vocabulary=45,
    width=16,
    layers=1,
    heads=2,
    feedforward=16,
    length=12,
    dropout=0.0,
    tokens=64,
    learning_rate=5e-3,
    teacher_steps=4,
    teacher_seconds=1e6,
    student_steps=4,
    student_seconds=1e6,
    padir_steps=4,
    padir_seconds=1e6,
    ablation_steps=2,
    ablation_seconds=1e6,
    ablations=("reference", "one_stage"),
    beams=2,
    lengths=2,
    attention=8,
    timed=2,
)

STUDY = Study(
    name="real_translation",
    question="Is parallel decoding by refinement as good as beam search on real sentences?",
    settings={
        Scale.SMOKE: _TOY,
        Scale.LAPTOP: RealTranslation(
            seeds=1,
            corpora=(TOY,),
            vocabulary=45,
            width=32,
            layers=2,
            heads=2,
            feedforward=64,
            length=12,
            dropout=0.1,
            tokens=192,
            learning_rate=3e-3,
            teacher_steps=150,
            teacher_seconds=1e6,
            student_steps=150,
            student_seconds=1e6,
            padir_steps=300,
            padir_seconds=1e6,
            ablation_steps=100,
            ablation_seconds=1e6,
            ablations=("reference", "raw_pairs", "one_stage", "no_positions", "half_right"),
            attention=100,
            timed=12,
        ),
        Scale.PAPER: RealTranslation(),
    },
    units=units,
    run=run,
    rows=KINDS,
    claims=[
        Claim(
            "li.tab-4.1",
            judge.translations,
            made_rows.TRANSLATIONS_REFUTED,
            held_by=made_rows.TRANSLATIONS_HELD,
        ),
        Claim(
            "li.wmt-tables",
            judge.published_tables,
            made_rows.TABLES_REFUTED,
            held_by=made_rows.TABLES_HELD,
        ),
        Claim(
            "li.padir-one-pass",
            judge.one_pass,
            made_rows.ONE_PASS_REFUTED,
            held_by=made_rows.ONE_PASS_HELD,
        ),
        Claim(
            "li.tab-4.4",
            judge.self_attention,
            made_rows.SELF_REFUTED,
            held_by=made_rows.ATTENTION_HELD,
        ),
        Claim(
            "li.tab-4.5",
            judge.cross_attention,
            made_rows.CROSS_REFUTED,
            held_by=made_rows.ATTENTION_HELD,
        ),
        Claim(
            "li.padir-ablation",
            judge.ablations,
            made_rows.ABLATION_REFUTED,
            held_by=made_rows.ABLATION_HELD,
        ),
    ],
    figures=[figures.quality_figure, figures.latency_figure, figures.attention_figure],
    # 2: lengths are fitted again at the end. 3: averages without the initial weights. 4: brevity
    revision=4,
)
