"""Translations that another machine made, as tools/translate_on_gpu.py wrote them."""

import json
from collections.abc import Iterator
from pathlib import Path

from triptych.core.validation import UserError
from triptych.studies.refinement.shared.data import TRANSLATIONS
from triptych.studies.refinement.shared.pipeline import Found, Plan

FREE = ("ablation", "ablations", "attention")
"""Parts of a plan that may differ: nothing that is read here depends on them."""


def phases_elsewhere(
    folder: Path | None, names: list[str], plan: Plan, vocab_size: int
) -> list[tuple[str, Found]] | None:
    """The phases in these files, in turn; None without the first one.

    The run must have had this plan and vocabulary, which the first line of its file says.
    """
    if folder is None or not (folder / TRANSLATIONS / names[0]).is_file():
        return None
    return [
        each for name in names for each in _read(folder / TRANSLATIONS / name, plan, vocab_size)
    ]


def _read(path: Path, plan: Plan, vocab_size: int) -> Iterator[tuple[str, Found]]:
    if not path.is_file():
        raise UserError(
            f"{path} is missing; it belongs to the translations beside it"  # prose: said
        )
    head, *records = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
    if head.get("vocab_size") != vocab_size:
        raise UserError(
            f"{path} was made with a vocabulary of {head.get('vocab_size')} pieces, and "
            f"vocabulary.json has {vocab_size}"
        )
    for name, value in head["plan"].items():
        own = getattr(plan, name)
        if name not in FREE and (list(own) if isinstance(own, tuple) else own) != value:
            raise UserError(f"{path} was made with {name} {value}, not {own}")
    for record in records:
        if "found" in record:
            yield record["phase"], record["found"]
