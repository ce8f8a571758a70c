"""How often a method is right about the networks of a trap.

A pair is right when both of its networks are. That is what a trap is for: where two networks have
the same attention and different truths, a method that reads attention alone gives one answer for
both, and has exactly one of them right. A coin has both right one time in four.

An answer from 0 to 1 says yes above one half, and no below; one half itself is never right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from triptych.core.estimates import Estimate, proportion
from triptych.core.validation import UserError
from triptych.lab.traps.baselines import baselines
from triptych.lab.traps.methods import QUESTIONS, Answer, Gallery, Method, Subject
from triptych.lab.traps.pairs import KINDS, Pair, Trap
from triptych.lab.traps.truth import Truth

ASKED = {
    "needs_pattern": ("far", "pattern", "function", "trained_far"),
    "important_head": ("far", "pattern", "head", "trained_far", "trained_head"),
    "is_balanced": ("balance",),
}


@dataclass(frozen=True)
class Score:
    """A method on the pairs of one kind, for one question.

    pairs        share of pairs with both networks right, with a Wilson interval
    answers      how many single networks were asked about;  right: of these
    """

    method: str
    question: str
    kind: str
    pairs: Estimate
    answers: int
    right: int


@dataclass(frozen=True)
class Scores:
    """All scores of some methods on a trap.

    looked_at    what each method looked at
    ranking      how often a network with the answer yes was given a higher number than one with the
                 answer no, by method and question; one half for a coin
    """

    methods: Sequence[str]
    scores: Sequence[Score]
    looked_at: Mapping[str, Sequence[str]]
    ranking: Mapping[tuple[str, str], float]

    def of(self, method: str, question: str, kind: str) -> Score | None:
        for score in self.scores:
            if (score.method, score.question, score.kind) == (method, question, kind):
                return score
        return None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "looked_at": {name: list(seen) for name, seen in self.looked_at.items()},
            "scores": [asdict(score) for score in self.scores],
            "ranking": [
                {"method": method, "question": question, "share": share}
                for (method, question), share in self.ranking.items()
            ],
        }


def score_method(trap: Trap, method: Method, *, compare: bool = True) -> Scores:
    """Score a method, next to the baselines unless `compare` is False."""
    methods = [method, *(baselines() if compare else [])]
    names = [each.name for each in methods]
    if len(set(names)) < len(names):
        raise UserError(
            f"a method cannot be called {method.name!r}, like one of the baselines: rename "
            "the file",
            parameter="method",
        )
    gallery = Gallery()
    subjects = [[gallery.subject(member.network) for member in pair.members] for pair in trap.pairs]
    found: list[Score] = []
    ranking: dict[tuple[str, str], float] = {}
    for each in methods:
        for question in QUESTIONS:
            if question not in method.functions or question not in each.functions:
                continue
            answers = _answers(trap, subjects, each, question)
            found += _scores(trap, answers, each.name, question)
            if question != "important_head":
                share = _ranked(trap, answers, question)
                if share is not None:
                    ranking[each.name, question] = share
    looked_at = {each.name: sorted(each.looked_at) for each in methods}
    return Scores(names, found, looked_at, ranking)


Answers = Mapping[tuple[int, int], Answer]


def _answers(
    trap: Trap, subjects: Sequence[Sequence[Subject]], method: Method, question: str
) -> Answers:
    """By pair and member, wherever there is a truth."""
    return {
        (number, side): method.answer(question, subjects[number][side])
        for number, pair in enumerate(trap.pairs)
        if pair.kind in ASKED[question]
        for side, member in enumerate(pair.members)
        if getattr(member.truth, question) is not None
    }


def _scores(trap: Trap, answers: Answers, method: str, question: str) -> list[Score]:
    found = []
    for kind in ASKED[question]:
        right, both, complete = [], 0, 0
        for number, pair in enumerate(trap.pairs):
            if pair.kind != kind:
                continue
            each = _pair_right(pair, question, [answers.get((number, side)) for side in (0, 1)])
            right += each
            complete += len(each) == 2
            both += len(each) == 2 and all(each)
        if complete:
            share = proportion(both, complete)
            found.append(Score(method, question, kind, share, len(right), sum(right)))
    return found


def _pair_right(pair: Pair, question: str, answers: Sequence[Answer | None]) -> list[bool]:
    return [
        is_right(question, answer, member.truth)
        for member, answer in zip(pair.members, answers, strict=True)
        if answer is not None
    ]


def is_right(question: str, answer: Answer, truth: Truth) -> bool:
    """Worked value: 0.6 is right for yes, 0.5 for neither yes nor no."""
    wanted = getattr(truth, question)
    if question == "important_head":
        return answer == wanted
    return answer > 0.5 if wanted else answer < 0.5


def _ranked(trap: Trap, answers: Answers, question: str) -> float | None:
    """P(number of a yes > number of a no) + ½ P(equal), over all pairs of a yes and a no."""
    split: dict[bool, list[float]] = {True: [], False: []}
    for (number, side), answer in answers.items():
        split[getattr(trap.pairs[number].members[side].truth, question)].append(float(answer))
    if not split[True] or not split[False]:
        return None
    wins = sum((a > b) + 0.5 * (a == b) for a in split[True] for b in split[False])
    return wins / (len(split[True]) * len(split[False]))


# ------------------------------------------------------------------ as text


def lines(trap: Trap, scores: Scores) -> list[str]:
    """A table for each question: a row for each kind of pair, a column for each method."""
    text = [f"{len(trap.pairs)} pairs, {len(trap.members)} networks, made from seed {trap.seed}."]
    text.append("A number is the share of pairs with both networks right, in per cent, with its")
    text.append("95 % interval.")
    for question, meaning in QUESTIONS.items():
        kinds = [kind for kind in ASKED[question] if _row(scores, question, kind)]
        if not kinds:
            continue
        text += ["", f"{question}: {meaning}"]
        head = f"  {'kind of pair':<38}{'pairs':>5}"
        text.append(head + "".join(f"{name[:13]:>14}" for name in scores.methods))
        for kind in kinds:
            row = _row(scores, question, kind)
            cells = "".join(f"{_cell(row.get(name)):>14}" for name in scores.methods)
            pairs = next(iter(row.values())).pairs.n
            text.append(f"  {KINDS[kind]:<38}{pairs:>5}{cells}")
        shares = [scores.ranking.get((name, question)) for name in scores.methods]
        if any(share is not None for share in shares):
            cells = "".join(f"{'' if s is None else format(100 * s, '.0f'):>14}" for s in shares)
            text.append(f"  {'a yes is ranked above a no':<43}{cells}")
    text.append("")
    for name in scores.methods:
        text.append(f"{name} looked at: {', '.join(scores.looked_at[name]) or 'nothing'}.")
    if set(scores.looked_at[scores.methods[0]]) <= {"patterns"}:
        text.append(
            "Where two networks have the same attention, a method that looks at patterns alone "
            "gives\none answer for both: it cannot have both right."
        )
    return text


def _row(scores: Scores, question: str, kind: str) -> dict[str, Score]:
    found = {name: scores.of(name, question, kind) for name in scores.methods}
    return {name: score for name, score in found.items() if score is not None}


def _cell(score: Score | None) -> str:
    """ "45 [26, 66]"."""
    if score is None:
        return ""
    value, low, high = (100 * x for x in (score.pairs.value, score.pairs.low, score.pairs.high))
    return f"{value:.0f} [{low:.0f}, {high:.0f}]"
