"""How fast a canvas is written: survival by noise levels, or positions by rounds.

A schedule is a word, or numbers:

    linear, cosine     α = s and α = 1 - cos(πs/2) after the share s of the rounds
    larger first       positions as even as linear, with the larger rounds first (LLaDA, diffusers)
    0.2, 0.5, 1        α after each round, the last of them 1
    2+3+3              positions that each round reveals

`levels` are for samplers that follow a noise, `counts` for those that reveal a number of positions.
Both are made of any schedule: α times the number of positions, rounded down, are revealed; and what
is revealed, divided by all, is α.
"""

import math
from itertools import accumulate, pairwise

from triptych.core.validation import Count, UserError, as_count, as_size, as_text

WORDS = ("linear", "larger first", "cosine")
MAX_ROUNDS = 2**20
_ROUNDING = 1e-9


def as_schedule(text: str) -> str:
    """The schedule as it was written, if it is one."""
    text = as_text("schedule", text).strip()
    if text not in WORDS:
        _numbers(text)
    return text


def rounds(schedule: str, steps: Count) -> int:
    """How many rounds there are: `steps` of a word, and as many as there are numbers."""
    schedule, steps = as_schedule(schedule), as_size("steps", steps)
    return steps if schedule in WORDS else len(_numbers(schedule))


def levels(schedule: str, steps: Count) -> list[float]:
    """α before the first round and after each of them: from 0 to 1.

    Worked value: linear in 4 rounds: 0, ¼, ½, ¾, 1.
    """
    number = min(rounds(schedule, steps), MAX_ROUNDS)
    if (schedule := as_schedule(schedule)) not in WORDS:
        numbers = _numbers(schedule)
        if "+" not in schedule:
            return [0.0, *numbers]
        total = sum(numbers)
        return [0.0, *(part / total for part in accumulate(numbers))]
    shares = [r / number for r in range(number)]
    if schedule == "cosine":
        shares = [1 - math.cos(math.pi / 2 * share) for share in shares]
    return [*shares, 1.0]


def counts(schedule: str, positions: Count, steps: Count) -> list[int]:
    """How many positions each round reveals; a round may reveal none.

    Worked value: 8 positions in 3 rounds: linear 2, 3, 3; larger first 3, 3, 2; cosine 1, 3, 4.
    """
    schedule, positions = as_schedule(schedule), as_count("positions", positions)
    if schedule == "larger first":
        whole, more = divmod(positions, number := rounds(schedule, steps))
        return [whole + (r < more) for r in range(number)]
    if "+" in schedule:
        numbers = _numbers(schedule)
        if sum(numbers) != positions:
            raise UserError(
                f"the schedule {schedule} reveals {sum(numbers):g} positions, and {positions} are "
                "to be written",
                parameter="schedule",
            )
        return [int(number) for number in numbers]
    at = [math.floor(positions * alpha + _ROUNDING) for alpha in levels(schedule, steps)]
    return [after - before for before, after in pairwise(at)]


def _numbers(text: str) -> list[float]:
    """Levels that rise to 1, or whole numbers."""
    counted = "+" in text
    try:
        numbers = [float(part) for part in text.split("+" if counted else ",")]
    except ValueError:
        numbers = []
    whole = all(0 <= n < MAX_ROUNDS and n == int(n) for n in numbers)
    rises = all(a <= b for a, b in pairwise([0.0, *numbers, 1.0]))
    if numbers and (whole and sum(numbers) > 0 if counted else rises and numbers[-1] == 1):
        return numbers
    raise UserError(
        f"schedule is {text!r}; it must be one of {', '.join(WORDS)}, or numbers: positions of "
        "each round, as 2+3+3, or levels that rise to 1, as 0.2,0.5,1",
        parameter="schedule",
    )
