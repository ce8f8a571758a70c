"""Attention patterns as heat maps, with the brackets written along the sides."""

from triptych.structures.brackets.dyck import Dyck
from triptych.studies.api.figures import Heatmap
from triptych.studies.brackets.shared.spread import Matrix
from triptych.theory.brackets.patterns import stack_pattern

WORD = "[[[[]]]](((())))"
SENTENCE = 19  # brackets of a sentence of Table 2.6
START = "▸"  # the start token


def picture(pattern: Matrix, title: str) -> Heatmap:
    """A pattern on the word, with or without a start token before it."""
    names = [START, *WORD] if len(pattern) == len(WORD) + 1 else [*WORD][: len(pattern)]
    return Heatmap(
        pattern,
        title,
        "bracket that is attended to",
        "bracket",
        limits=(0.0, 1.0),
        names=names,
    )


def picture_of_a_stack() -> Heatmap:
    """What a stack would do: all weight on the innermost open bracket, or on the start token."""
    (tokens,) = Dyck.prefixes(2, 4, len(WORD), q=0.5).tokens(WORD)
    pattern = tuple(tuple(row) for row in stack_pattern(tokens, 2).tolist())
    return picture(pattern, "a stack, for comparison")
