"""`triptych translate` and `triptych teach`: from your own pairs to translations."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.options import Device
from triptych.lab.plain_text import echo, plain

_TOGETHER = 16  # lines that are translated together


class DecoderName(StrEnum):
    parallel = "parallel"
    causal = "causal"


def translate(
    model: Annotated[Path, typer.Option(help="A folder that `teach` made.")],
    steps: Annotated[int, typer.Option(help="Refinement steps of a parallel decoder.")] = 4,
    lengths: Annotated[int, typer.Option(help="Target lengths that are tried.")] = 5,
    beams: Annotated[int, typer.Option(help="Beams of a causal decoder; 1 is greedy.")] = 5,
    show: Annotated[
        bool, typer.Option("--show", help="Write every hypothesis to stderr, step after step.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the first hypotheses.")] = 0,
    device: Device = "cpu",
) -> None:
    """Translate lines from stdin to stdout.

    A parallel decoder writes all words at once and refines them a few times; a causal decoder
    writes from left to right with beam search. Lines in, lines out, in the same order.

    Example: triptych translate --model en-de --steps 4 --show < sentences.txt
    """
    from triptych.core.validation import UserError
    from triptych.lab.cli.errors import warn
    from triptych.studies.refinement.shared.texts import TextTranslator

    translator = TextTranslator(model, device=device, seed=seed)
    if show and not translator.parallel:
        raise UserError(
            "--show watches a parallel decoder; this one writes from left to right",
            parameter="show",
        )
    for first, lines in _some_lines():
        found = translator.translate(
            lines,
            steps=steps,
            lengths=lengths,
            beams=beams,
            first=first,
            show=(lambda text: typer.echo(f"  {plain(text)}", err=True)) if show else None,
            warn=warn,
        )
        for text in found:
            echo(text)


def _some_lines() -> Iterator[tuple[int, list[str]]]:
    """Lines of stdin, some at a time, with the number of the first; one at a time by hand."""
    from triptych.core.validation import UserError

    together = 1 if sys.stdin.isatty() else _TOGETHER
    lines: list[str] = []
    number = 1
    try:
        for line in sys.stdin.buffer:  # bytes: what text stdin reads depends on the locale
            text = line.decode("utf-8-sig" if number == 1 and not lines else "utf-8")
            lines.append(text.removesuffix("\n").removesuffix("\r"))
            if len(lines) == together:
                yield number, lines
                number, lines = number + len(lines), []
    except UnicodeDecodeError as error:
        wrong = number + len(lines)
        raise UserError(f"line {wrong} of stdin is not text in UTF-8: {error}") from error
    if lines:
        yield number, lines


def teach(
    data: Annotated[
        Path,
        typer.Option(help="Folder with train.SOURCE and train.TARGET, or a corpus of fetch."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the translator.")],
    source: Annotated[str, typer.Option(help="Ending of the source files, as en.")],
    target: Annotated[str, typer.Option(help="Ending of the target files, as de.")],
    decoder: Annotated[
        DecoderName, typer.Option(help="parallel: refines; causal: from left to right.")
    ] = DecoderName.parallel,
    teacher: Annotated[
        Path | None, typer.Option(help="A causal translator whose translations are learned.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of training.")] = 4000,
    minutes: Annotated[float | None, typer.Option(help="Fewer steps, if time is over.")] = None,
    vocabulary: Annotated[int, typer.Option(help="Pieces of words, of both languages.")] = 8000,
    width: Annotated[int, typer.Option(help="Width of the network.")] = 256,
    layers: Annotated[int, typer.Option(help="Layers of the encoder and of the decoder.")] = 4,
    length: Annotated[int, typer.Option(help="Most pieces of a sentence; causal: one fewer.")] = 64,
    seed: Annotated[int, typer.Option(help="Random seed of weights and batches.")] = 0,
    device: Device = "cpu",
) -> None:
    """Train a translator on your own pairs.

    The files are plain text or .gz, a sentence a line, line by line translations of each other. The
    same command goes on where an earlier one was stopped; a changed one needs another --out. For a
    good parallel decoder, train a causal one first and name it as --teacher.

    Example: triptych teach --data multi30k --source en --target de --decoder causal
    --out teacher
    """
    from triptych.studies.refinement.shared.files import find_folder, read_lines
    from triptych.studies.refinement.shared.teaching import Lesson
    from triptych.studies.refinement.shared.teaching import teach as teach_pairs

    lesson = Lesson(
        causal=decoder is DecoderName.causal,
        steps=steps,
        seconds=None if minutes is None else 60 * minutes,
        vocabulary=vocabulary,
        width=width,
        layers=layers,
        heads=8 if width % 8 == 0 else 1,
        feedforward=4 * width,
        length=length,
        seed=seed,
    )
    folder = find_folder(data)
    history = teach_pairs(
        read_lines(folder, f"train.{source}"),
        read_lines(folder, f"train.{target}"),
        out,
        lesson,
        teacher=teacher,
        device=device,
        say=lambda text: typer.echo(text, err=True),
    )
    typer.echo(f"{history.steps} steps, loss {history.losses[-1]:.3f}")
    typer.echo(f"Try: echo ... | triptych translate --model {out}")
