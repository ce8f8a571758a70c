"""A translator from a user's own pairs: two text files in, a folder of weights out.

A parallel decoder learns best from what an autoregressive one translates: train that one first
and name its folder as `teacher`.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from triptych.core.files import lock_folder, write_json
from triptych.core.validation import UserError, as_device, as_size
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.models.translators import (
    SHAPE,
    VOCABULARY,
    WEIGHTS,
    SavedTranslator,
    load_translator,
    most_tokens,
    save_translator,
)
from triptych.models.vocabulary import Vocabulary
from triptych.studies.refinement.shared.translating import in_batches, search
from triptych.training.checkpoints import STATE
from triptych.training.corpus import PairCorpus
from triptych.training.step import Recipe
from triptych.training.translation import Corruption, TranslationHistory, fit_translator

BEGUN = "begun.json"
"""In the folder of a training: what it was begun with."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Sizes of a translator and of its training."""

    causal: bool = False
    steps: int = 4000
    seconds: float | None = None
    vocabulary: int = 8000
    width: int = 256
    layers: int = 4
    heads: int = 8
    feedforward: int = 1024
    length: int = 64
    dropout: float = 0.3
    tokens: int = 4096
    learning_rate: float = 1e-3
    seed: int = 0


def teach(
    sources: list[str],
    targets: list[str],
    out: Path,
    lesson: Lesson,
    *,
    teacher: Path | None = None,
    device: str = "cpu",
    say: Callable[[str], None] = lambda _: None,
) -> TranslationHistory:
    """Learn a vocabulary, train, and save; the run goes on where it was stopped.

    With a teacher, its vocabulary is used, and its translations of the sources are learned. A run
    goes on with the vocabulary that it began with, and only if lesson, pairs and teacher are the
    same.
    """
    if len(sources) != len(targets) or not sources:
        raise UserError(
            f"the source has {len(sources)} lines and the target {len(targets)}; aligned files "
            "have equally many, and at least one"
        )
    as_size("steps", lesson.steps)
    on = as_device(device)
    with lock_folder(out):
        return _teach(sources, targets, out, lesson, teacher, on, say)


def _teach(
    sources: list[str],
    targets: list[str],
    out: Path,
    lesson: Lesson,
    teacher: Path | None,
    on: torch.device,
    say: Callable[[str], None],
) -> TranslationHistory:
    """`teach`, in a folder that is ours alone."""
    known = load_translator(teacher, device=on) if teacher is not None else None
    training = out / "training"
    begun = _begun_with(sources, targets, lesson, teacher)
    vocabulary = known.vocabulary if known else None
    goes_on = (training / STATE).is_file()
    if goes_on:
        vocabulary = _go_on(training, begun, vocabulary)
    else:
        _refuse_what_is_there(out)
    if vocabulary is None:
        vocabulary = Vocabulary.learn([*sources, *targets], lesson.vocabulary)
    shape = PairShape(
        vocabulary.size,
        lesson.length,
        width=lesson.width,
        layers=lesson.layers,
        heads=lesson.heads,
        feedforward=lesson.feedforward,
        causal=lesson.causal,
        positional_attention=not lesson.causal,
        dropout=lesson.dropout,
    )
    pairs = list(zip(vocabulary.encode(sources), vocabulary.encode(targets), strict=True))
    room = most_tokens(shape)
    kept = [(a, b) for a, b in pairs if min(len(a), len(b)) > 0 and max(len(a), len(b)) <= room]
    if not kept:
        raise UserError(
            f"none of {len(pairs)} pairs has 1 to {room} tokens on both sides; give a longer "
            "--length"
        )
    say(f"{len(kept)} of {len(pairs)} pairs, {vocabulary.size} pieces")
    asked, wanted = [a for a, _ in kept], [b for _, b in kept]
    if known is not None:
        asked, wanted = distilled(known, asked, room, say)
    net = EncoderDecoder(shape, seed=lesson.seed, device=on)
    longest = max(max(len(a), len(b)) for a, b in zip(asked, wanted, strict=True))
    widths = sorted({*(w for w in (12, 16, 20, 26, 36) if w < longest), longest})
    corpus = PairCorpus(asked, wanted, tokens=lesson.tokens, widths=widths, device=on)
    recipe = Recipe(
        lesson.steps,
        learning_rate=lesson.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=0.01,
        warmup=max(1, min(300, lesson.steps // 10)),
        decay="cosine",
        clip=1.0,
        ema=0.998 if lesson.steps >= 1000 else 0.9,
        autocast="none" if on.type == "cpu" else "bfloat16",
    )
    if not goes_on:
        _begin(training, begun, vocabulary)
    history = fit_translator(
        net,
        corpus,
        recipe,
        lesson.seed,
        corruption=None if lesson.causal else Corruption(),
        seconds=lesson.seconds,
        recorded=on.type != "cpu",
        checkpoint=training,
        checkpoint_every=500,
        report=lambda step, loss: say(f"step {step} of {lesson.steps}, loss {loss:.3f}"),
    )
    save_translator(out, net, vocabulary, steps=history.steps, pairs=len(asked))
    return history


def _begun_with(
    sources: list[str], targets: list[str], lesson: Lesson, teacher: Path | None
) -> dict[str, object]:
    """What must be the same for a training to go on: settings as they are, data as digests."""
    settings = {name: value for name, value in asdict(lesson).items() if name != "seconds"}
    pairs = hashlib.sha256(json.dumps([sources, targets]).encode()).hexdigest()
    weights = (teacher / WEIGHTS).read_bytes() if teacher is not None else b""
    return {**settings, "pairs": pairs, "teacher": hashlib.sha256(weights).hexdigest()}


def _refuse_what_is_there(out: Path) -> None:
    """A training that begins writes over no file of anybody."""
    there = [name for name in (WEIGHTS, SHAPE, VOCABULARY) if (out / name).exists()]
    if there:
        raise UserError(
            f"{out} has {' and '.join(there)}, and no training that made them: choose another "
            "--out, or remove them"
        )


def _begin(training: Path, begun: dict[str, object], vocabulary: Vocabulary) -> None:
    """Keep what a training begins with."""
    vocabulary.save(training / VOCABULARY)
    write_json(training / BEGUN, {**begun, "pieces": vocabulary.digest}, indent=None)


def _go_on(training: Path, begun: dict[str, object], given: Vocabulary | None) -> Vocabulary:
    """The vocabulary of a training that was begun; refused, if it was begun with something else."""
    advice = f"choose another --out, or delete {training} to begin again"
    try:
        old = dict(json.loads((training / BEGUN).read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"{training} does not say what its training was begun with ({BEGUN}); {advice}"
        ) from error
    vocabulary = given or Vocabulary.load(training / VOCABULARY)
    words = {
        "causal": "the other decoder",
        "pairs": "other pairs",
        "teacher": "another teacher, or none",
        "pieces": "other pieces of words",
    }
    changed = [
        words.get(name, f"{name} {old.get(name)}, not {new}")
        for name, new in {**begun, "pieces": vocabulary.digest}.items()
        if old.get(name) != new
    ]
    if changed:
        raise UserError(f"the training in {training} was begun with {'; '.join(changed)}: {advice}")
    return vocabulary


def distilled(
    teacher: SavedTranslator, sources: list[list[int]], room: int, say: Callable[[str], None]
) -> tuple[list[list[int]], list[list[int]]]:
    """The sources and the teacher's translations by beam search; empty ones are left out."""
    if not teacher.net.shape.causal:
        raise UserError("the teacher is a parallel decoder; distil from an autoregressive one")
    say(f"translating {len(sources)} sentences with the teacher")
    short = [source for source in sources if len(source) <= most_tokens(teacher.net.shape)]
    found = in_batches(short, 100, lambda some: search(teacher.net, some, beams=5))
    pairs = [(a, b[:room]) for a, b in zip(short, found.tokens, strict=True) if b]
    if not pairs:
        raise UserError("the teacher translates every sentence into nothing; train it longer")
    return [a for a, _ in pairs], [b for _, b in pairs]
