"""An even number of a's: a start for a verifier of texts of your own.

Change `my_verifier` and run `triptych axioms my_verifier.py`: it enumerates short texts.
`triptych generate --verifier my_verifier.py:my_verifier ...` asks it about a model's texts.
"""

from itertools import product

import torch
from triptych.core.protocols import Rng
from triptych.core.samplers import OneShot

LETTERS, LENGTH = "ab", 4  # of the texts that are enumerated


def my_verifier(text: str, finished: bool = False) -> bool:
    """Whether the text may stand; before it is finished, whether it can still become right.

    Worked value: "a" may go on to "aa", and is wrong where it ends.
    """
    even = text.count("a") % 2 == 0
    return even if finished else len(text) < LENGTH or even


def draw(rng: Rng) -> str:
    """A text of fair letters that the verifier accepts; "" as soon as it says no."""
    fair = torch.zeros(len(LETTERS), dtype=torch.float64).log_softmax(-1)
    text = ""
    while len(text) < LENGTH:
        text += LETTERS[int(rng.categorical(fair))]
        if not my_verifier(text):
            return ""
    return text if my_verifier(text, finished=True) else ""


def examples() -> dict[str, OneShot]:
    """An early no is never wrong: every text that is right at its end is drawn as often as others.

    The law that is promised asks about finished texts alone.
    """
    texts = ["".join(letters) for letters in product(LETTERS, repeat=LENGTH)]
    right = [text for text in texts if my_verifier(text, finished=True)]
    law = {text: 1 / len(texts) for text in right}
    if len(right) < len(texts):
        law[""] = 1 - len(right) / len(texts)
    return {f"texts of {LENGTH} letters": OneShot(draw, law)}
