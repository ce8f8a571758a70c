"""The tiny model of `tiny_text_model` in a folder, as save_pretrained writes it."""

from pathlib import Path

from tests.support.tiny_text_model import LETTERS, tiny_lm


def save_tiny_model(folder: Path, seed: int = 0, length: int = 40, letters: str = LETTERS) -> Path:
    lm = tiny_lm(seed, length, letters)
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    return folder
