"""Lines of text through a saved translator, and what each refinement step made of them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError, as_size
from triptych.models.translators import SavedTranslator, load_translator, most_tokens
from triptych.studies.refinement.shared.translating import (
    Refinement,
    refine_batch,
    refined_translations,
    search,
)


class TextTranslator:
    """A folder that `triptych teach` made, as a function of lines of text."""

    def __init__(self, folder: Path, *, device: str = "cpu", seed: int = 0) -> None:
        self.saved: SavedTranslator = load_translator(folder, device=device)
        self.rng = TorchRng(seed, torch.device(device))
        self._warned = False

    @property
    def parallel(self) -> bool:
        return not self.saved.net.shape.causal

    def translate(
        self,
        lines: Sequence[str],
        *,
        steps: int = 4,
        lengths: int = 5,
        beams: int = 5,
        first: int = 1,
        show: Callable[[str], None] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> list[str]:
        """A translation of every line; a line of blanks becomes empty. `first` numbers the lines.

        `show` is told every hypothesis of the best length, step after step. `warn` is told, once,
        of a line that has unknown signs only.
        """
        steps, lengths = as_size("steps", steps), as_size("lengths", lengths)
        beams = as_size("beams", beams)
        vocabulary, net = self.saved.vocabulary, self.saved.net
        room = most_tokens(net.shape)
        rows = vocabulary.encode(["" if line.isspace() else line for line in lines])
        for number, row in enumerate(rows, start=first):
            if len(row) > room:
                raise UserError(
                    f"line {number} has {len(row)} pieces of words; this translator reads at most "
                    f"{room}"
                )
            if row and warn is not None and not self._warned and self._unknown(row):
                self._warned = True
                warn(
                    f"line {number} has only signs that this translator has never seen; its "
                    "translation, and that of other lines like it, is a guess"
                )
        asked = [row for row in rows if row]
        if not asked:
            return ["" for _ in rows]
        if not self.parallel:
            found = search(net, asked, beams=beams).tokens
        else:
            how = Refinement(steps, lengths)
            state = self.rng.generator.get_state()
            found = refined_translations(net, asked, how, self.rng).tokens
            if show is not None:
                self.rng.generator.set_state(state)  # the same first hypotheses again
                self._show(asked, how, show)
        texts = iter(vocabulary.decode(found))
        return [next(texts) if row else "" for row in rows]

    def _unknown(self, row: Sequence[int]) -> bool:
        """Whether nothing but spaces is left without the unknown signs."""
        return not self.saved.vocabulary.decode([row])[0].strip()

    def _show(
        self, asked: Sequence[Sequence[int]], how: Refinement, show: Callable[[str], None]
    ) -> None:
        batch = refine_batch(self.saved.net, asked, how, self.rng, record=True)
        decode = self.saved.vocabulary.decode
        for row in batch.best.tolist():
            length = int(batch.lengths[row])
            show(f"start   {decode([batch.refined.trace[0].hypotheses[row, :length].tolist()])[0]}")
            for number, step in enumerate(batch.refined.trace, start=1):
                if bool(step.active[row]):
                    show(f"step {number:<2} {decode([step.tokens[row, :length].tolist()])[0]}")
