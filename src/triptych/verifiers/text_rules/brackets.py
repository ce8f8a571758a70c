"""Text whose brackets match; all other characters are read over."""

from dataclasses import dataclass

from triptych.core.validation import UserError, as_flag, as_text, set_fields, shown


@dataclass(frozen=True)
class BracketPrefix:
    """Every closing bracket closes the last open one; a finished text leaves none open.

    `pairs` holds the brackets, each opening one before its closing one. Brackets inside quotes
    count like all others.

    Worked value: "([" and "([])" can be completed, "(]" and ")" cannot; finished, only "([])" is
    right.
    """

    pairs: str = "()[]{}"

    def __post_init__(self) -> None:
        pairs = as_text("pairs", self.pairs)
        if not pairs or len(pairs) % 2 or len(set(pairs)) < len(pairs):
            raise UserError(
                f"pairs is {shown(pairs)}; it must hold an opening and a closing bracket for every "
                "kind, all different, as in '()[]{}'",
                parameter="pairs",
            )
        set_fields(self, pairs=pairs)

    def __call__(self, text: str, finished: bool = False) -> bool:
        text, finished = as_text("text", text), as_flag("finished", finished)
        closing = dict(zip(self.pairs[::2], self.pairs[1::2], strict=True))
        expected: list[str] = []  # the closing brackets of all that is open
        for character in text:
            if character in closing:
                expected.append(closing[character])
            elif character in self.pairs and (not expected or expected.pop() != character):
                return False
        return not (finished and expected)
