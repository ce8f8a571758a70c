"""Aligned text for the study: a folder of plain files, or a toy language.

A folder has a file for every set and language, a sentence a line, compressed or not:

    train.en  train.de  val.en  val.de  test_2016_flickr.en ...

The training and validation sets are needed, and one test set. `multi30k` is such a folder in the
cache of `triptych fetch`; `software` is one that you make of your own pairs (`splitting`). If a
folder has a folder `translations`, what a machine with a GPU has translated
(tools/translate_on_gpu.py) is scored instead of training here.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triptych.core.validation import UserError
from triptych.models.vocabulary import SPECIAL, Vocabulary
from triptych.studies.refinement.shared.files import find_folder, read_lines
from triptych.studies.refinement.shared.pipeline import SETS, Found, Pairs
from triptych.studies.refinement.shared.scoring import Decode

TOY = "toy"
_TOY_SETS = ("val", "test_2016_flickr", "test_2017_flickr")
TRANSLATIONS = "translations"
SOFTWARE = "software"
_LEARNED_FROM = 120_000  # sentences for a vocabulary of another kind of text


@dataclass(frozen=True)
class TextPairs:
    """Sentences as text and as numbers.

    texts      by set and language: texts["train.en"]
    decode     numbers to text; `decode_other` for numbers of another vocabulary
    other      the sentences in the pieces of that vocabulary: the one learned on software texts,
               where these are here
    """

    texts: dict[str, list[str]]
    pairs: Pairs
    decode: Decode
    decode_other: Decode
    folder: Path | None = None
    other: Pairs | None = None


def load_pairs(data: str, languages: Sequence[str], vocabulary: int) -> TextPairs:
    """The pairs of a name or a folder."""
    if data == TOY:
        return toy_pairs(languages)
    try:
        folder = find_folder(data)
    except UserError as error:
        raise UserError(f"not run: {error}") from error
    texts = {
        f"{name}.{language}": read_lines(folder, f"{name}.{language}")
        for name in ("train", "val", *sets_in(folder, languages))
        for language in languages
    }
    check_aligned(texts, languages)
    kept = folder / TRANSLATIONS
    own = _vocabulary(kept / "vocabulary.json")
    other = _vocabulary(kept / "vocabulary-other.json")
    if own is None and any(kept.glob("*.jsonl")):
        raise UserError(
            f"{kept} has translations and no vocabulary.json, without which nobody can read them; "
            "put the file there that the translations were made with"
        )
    if own is None:
        own = Vocabulary.learn(
            [t for side in languages for t in texts[f"train.{side}"]], vocabulary
        )
        other = _of_software(data, languages, vocabulary)
    return TextPairs(
        texts,
        _encoded(own, texts),
        own.decode,
        other.decode if other is not None else _unreadable,
        folder,
        None if other is None else _encoded(other, texts),
    )


def _encoded(vocabulary: Vocabulary, texts: dict[str, list[str]]) -> Pairs:
    return Pairs(vocabulary.size, {side: vocabulary.encode(lines) for side, lines in texts.items()})


def _of_software(data: str, languages: Sequence[str], size: int) -> Vocabulary | None:
    """A vocabulary that is not the pairs' own: of software texts, where they are here."""
    if Path(data).name == SOFTWARE:
        return None
    try:
        folder = find_folder(SOFTWARE)
        lines = [line for side in languages for line in read_lines(folder, f"train.{side}")]
    except UserError:
        return None
    return Vocabulary.learn(lines[:: max(1, len(lines) // _LEARNED_FROM)], size)


def _unreadable(_: Sequence[Sequence[int]]) -> list[str]:
    raise UserError(
        "there are translations in the pieces of another vocabulary and no vocabulary-other.json "
        "to read them with"
    )


def sets_in(folder: Path, languages: Sequence[str]) -> list[str]:
    """The test sets that a folder has."""
    names = [
        name
        for name in SETS
        if name != "val"
        and any((folder / f"{name}.{languages[0]}{end}").is_file() for end in ("", ".gz"))
    ]
    if not names:
        raise UserError(f"{folder} has no test set; it needs test.{languages[0]}, or one of {SETS}")
    return names


def check_aligned(texts: dict[str, list[str]], languages: Sequence[str]) -> None:
    """Both sides of a set have as many lines."""
    first, second = languages
    for side, lines in texts.items():
        name = side.rsplit(".", 1)[0]
        counts = [len(texts[f"{name}.{language}"]) for language in (first, second)]
        if counts[0] != counts[1] or not lines:
            raise UserError(
                f"{name}.{first} has {counts[0]} lines and {name}.{second} {counts[1]}; aligned "
                "files have equally many, and at least one"
            )


def _vocabulary(path: Path) -> Vocabulary | None:
    return Vocabulary.load(path) if path.is_file() else None


def ready_phases(folder: Path | None, direction: str, seed: int) -> list[Found] | None:
    """What another machine translated, as tools/translate_on_gpu.py wrote it; None without."""
    return _records(folder, f"{direction}-{seed}.jsonl")


def ready_latencies(folder: Path | None, direction: str, seed: int) -> list[Found]:
    """What was timed elsewhere."""
    records = _records(folder, "latency.jsonl") or []
    return [r for r in records if (r["direction"], r["seed"]) == (direction, seed)]


def _records(folder: Path | None, name: str) -> list[Found] | None:
    path = folder / TRANSLATIONS / name if folder is not None else None
    if path is None or not path.is_file():
        return None
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


# ------------------------------------------------------------------ a toy language


def toy_pairs(languages: Sequence[str], *, train: int = 160, held_out: int = 12) -> TextPairs:
    """Sentences of five words out of twenty; the second language says them in another order.

    Word w of the first language is "w7", of the second "v7", and the last word comes first.
    """
    first, second = languages
    sizes = {"train": train, **dict.fromkeys(_TOY_SETS, held_out)}
    texts: dict[str, list[str]] = {}
    for number, (name, count) in enumerate(sizes.items()):
        lines = [
            [(3 * i + i * i * j + 7 * j + number) % 20 for j in range(5)] for i in range(count)
        ]
        texts[f"{name}.{first}"] = [" ".join(f"w{w}" for w in line) for line in lines]
        texts[f"{name}.{second}"] = [
            " ".join(f"v{w}" for w in (line[-1], *line[:-1])) for line in lines
        ]
    words = [f"{letter}{w}" for letter in "wv" for w in range(20)]
    numbers = {word: number for number, word in enumerate(words, start=len(SPECIAL))}
    names: dict[int, str] = {number: word for word, number in numbers.items()}

    def decode(sentences: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(names[t] for t in s if t in names) for s in sentences]

    sides: dict[str, Any] = {
        side: [[numbers[word] for word in line.split()] for line in lines]
        for side, lines in texts.items()
    }
    return TextPairs(texts, Pairs(len(words) + len(SPECIAL), sides), decode, decode)
