"""What the study of real translation finds: typed facts, no limits."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Run:
    """Which pairs, which direction and which seed a row is about.

    data        "multi30k", which decides; "software" or a folder; "toy": a toy language
    direction   as "en-de"
    """

    data: str
    direction: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Trained(Run):
    """One training. `recorded`: steps ran as CUDA graphs."""

    model: str
    parameters: int
    pairs: int
    steps: int
    seconds: float
    recorded: bool
    loss: float


@dataclass(frozen=True, kw_only=True)
class Scored(Run):
    """One system on one set.

    model, how      "student" and "beam 5"; "padir" and "T=4"
    on              the set
    bleu, chrf      SacreBLEU and chrF++; None where sacrebleu is not installed, and chrF++ is of
                    the students on test sets alone
    repeats         words that repeat the word before them, where the reference does not
    words           that were written
    token_repeats   equal neighbours among the tokens before they were dropped, of `tokens`
    passes          of the decoder, mean over sentences
    brevity         the factor in BLEU for outputs that are too short; earlier rows have none
    """

    model: str
    how: str
    on: str
    sentences: int
    bleu: float | None
    chrf: float | None
    repeats: int
    words: int
    token_repeats: int
    tokens: int
    passes: float
    signature: str
    brevity: float | None = None


@dataclass(frozen=True, kw_only=True)
class Compared(Run):
    """BLEU of the first system minus that of the second, with a paired bootstrap interval."""

    on: str
    first: str
    second: str
    difference: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Timed(Run):
    """Seconds for one sentence at a time."""

    device: str
    model: str
    how: str
    sentences: int
    median: float
    p99: float
    passes: float


@dataclass(frozen=True, kw_only=True)
class SpedUp(Run):
    """How many times faster the first system is than the second, on the same sentences.

    at    "median" or "p99" of the seconds of each; the interval is a bootstrap over sentences
    """

    device: str
    first: str
    second: str
    at: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Attended(Run):
    """One measure of attention over adjacent pairs that stutter, or do not (see `attention`)."""

    steps: int
    stutter: bool
    measure: str
    count: int
    mean: float
    deviation: float


Row = Trained | Scored | Compared | Timed | SpedUp | Attended
KINDS = (Trained, Scored, Compared, Timed, SpedUp, Attended)
