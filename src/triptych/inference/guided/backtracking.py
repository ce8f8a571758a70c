"""Algorithm 1: tokenwise rejection sampling with backtracking [li, 3.2].

    s ← ε
    while |s| < D and the last token is not <eos>:
        ŝ ~ O(x ∘ s);  s ← s ∘ ŝ
        if Q > 0 and V(x ∘ s) = 0:
            erase the last B tokens of s;  Q ← Q - 1
            redo the erased positions with argmax O(x ∘ s)

Every row has a quota of its own. As printed, tokens that are redone are not verified;
`verify_redone` verifies them too, which is nearer to the authors' program (it verifies a prefix
before each draw, the prompt first and the last token never). Two departures from the print: where s
has fewer than B tokens, exactly those that were erased are redone, not B; and a redo that reaches
<eos> stops there.
"""

from dataclasses import dataclass
from typing import NamedTuple, Unpack

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder, Draws, NextToken, Rng, Value, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import Count, EndTokens, Number, as_flag, as_size, check_can
from triptych.inference.answers import probs_after, value_of
from triptych.inference.guided.algorithm import Algorithm, Shared, option
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import (
    as_limit,
    check_full_length,
    end_set,
    log_threshold,
    path_counter,
)
from triptych.inference.guided.result import Event, Result


class Info(NamedTuple):
    """quota_left      backtracks that each row did not use
    erased_prompt   how many tokens of its prompt each row has erased
    """

    quota_left: Int[Tensor, " batch"]
    erased_prompt: Int[Tensor, " batch"]


@dataclass(frozen=True)
class Backtracking(Algorithm[Info]):
    """Complete every row; V < threshold is a refusal.

    quota, stride   Q backtracks a row, of B tokens each
    redo_argmax     False leaves the erased positions to the sampling that follows
    verify_redone   True asks the verifier about redone tokens too, and may backtrack there again
    into_prompt     how many tokens of its prompt a row may erase; 0 as printed
    """

    title = "Tokenwise rejection with backtracking"
    promise = (
        "at most quota * stride tokens of a row are erased; its law has no formula, and `law` "
        "computes it"
    )
    needs = "draws"

    quota: int = option(4, "how often a row may erase", at_least=0)
    stride: int = option(4, "how many tokens it erases at a time", at_least=1)
    redo_argmax: bool = option(True, "take the likeliest tokens where some were erased")
    verify_redone: bool = option(False, "ask the verifier about those tokens too")
    threshold: float = option(0.5, "a prefix with V below it is refused", at_least=0, at_most=1)
    into_prompt: int = option(0, "how many tokens of its prompt a row may erase", at_least=0)

    @property
    def smallest(self) -> float:
        """log V from which a text is accepted."""
        return log_threshold(self.threshold)

    @property
    def held_back(self) -> int | None:
        """(B - 1) tokens for each backtrack, and the one that is not judged yet.

        Each backtrack comes after at least one new token, so it takes back at most B - 1 of the
        tokens that stood there before. Where a row may erase its prompt, nothing is said.

        Worked value: 4 backtracks of 3 tokens hold back 4 * 2 + 1 = 9 tokens.
        """
        if self.into_prompt:
            return None
        return self.quota * (self.stride - 1) + 1 if self.quota else 0

    def settled(self, event: Event, backtracks: int) -> int:
        """Tokens that the backtracks which are left cannot reach."""
        if self.into_prompt or event.action == "reject":
            return 0
        left = max(0, self.quota - backtracks)
        judged = event.action in ("accept", "backtrack") or left == 0
        return max(0, len(event.tokens) - left * (self.stride - 1) - (not judged))

    def run(self, run: Generation) -> Info:
        """Draw, ask, erase, redo."""
        prompt, quota_left = run.start, torch.full_like(run.start, self.quota)
        floor = (prompt - self.into_prompt).clamp(min=0)
        unjudged = run.unjudged or self.stride  # tokens at once where nobody is asked any more
        redo_until = torch.zeros_like(prompt)  # positions before this one are taken by argmax
        while len(rows := run.open_rows()):
            left = redo_until[rows] - run.decoder.lengths[rows]
            redoing, drawn = left > 0, rows[left <= 0]
            ahead = torch.where(quota_left[rows] > 0, self.stride, unjudged)
            run.draw_or_argmax(rows, redoing, torch.where(redoing, left, ahead))
            asked = rows if self.verify_redone else drawn
            asked = asked[quota_left[asked] > 0]
            values = run.log_values(asked)
            refused = run.judge(asked, values, values >= self.smallest)
            if len(refused) == 0:
                continue
            ends = run.decoder.lengths[refused]
            if self.redo_argmax:
                redo_until[refused] = torch.maximum(redo_until[refused], ends)
            quota_left[refused] -= 1
            run.erase((ends - floor[refused]).clamp(max=self.stride), refused, "backtrack")
        return Info(quota_left, prompt - run.start)


def sample(
    decoder: Decoder | Draws,
    verifier: VerifierLike,
    *,
    quota: Count,
    stride: Count,
    redo_argmax: bool = True,
    verify_redone: bool = False,
    threshold: Number = 0.5,
    into_prompt: Count = 0,
    **shared: Unpack[Shared],
) -> Result[Info]:
    """Complete every row; see `Backtracking`."""
    own = {"quota": quota, "stride": stride, "redo_argmax": redo_argmax}
    own |= {"verify_redone": verify_redone, "threshold": threshold, "into_prompt": into_prompt}
    return Backtracking.of(own).sample(decoder, verifier, **shared)


def law(
    lm: NextToken,
    verifier: Value,
    length: Count,
    quota: Count,
    stride: Count,
    *,
    redo_argmax: bool = True,
    verify_redone: bool = False,
    end_token: EndTokens | None = None,
) -> dict[tuple[int, ...], float]:
    """The exact law of `sample` from the empty prompt, by following (s, Q): slow and obvious."""
    check_can("lm", lm, "vocab_size", "next_token_log_probs")
    check_full_length(verifier)
    length, ends = as_size("length", length), end_set(end_token, lm.vocab_size)
    quota, stride = as_limit("quota", quota, at_least=0), as_limit("stride", stride, at_least=1)
    redo_argmax = as_flag("redo_argmax", redo_argmax)
    verify_redone = as_flag("verify_redone", verify_redone)
    found: dict[tuple[int, ...], float] = {}
    # Each is s, the backtracks left, the position before which argmax is taken, and the mass.
    paths: list[tuple[tuple[int, ...], int, int, float]] = [((), quota, 0, 1.0)]
    count_path = path_counter()
    while paths:
        count_path()
        s, q, until, mass = paths.pop()
        if len(s) >= length or (s and s[-1] in ends):
            found[s] = found.get(s, 0.0) + mass
            continue
        probs, redoing = probs_after(lm, s), len(s) < until
        best = probs.index(max(probs))
        for token, prob in enumerate(probs):
            chance = float(token == best) if redoing else prob
            if chance == 0:
                continue
            longer = (*s, token)
            asked = q > 0 and (verify_redone or not redoing)
            if asked and value_of(verifier, longer) == -torch.inf:
                kept = longer[: max(0, len(longer) - stride)]
                again = max(until, len(longer)) if redo_argmax else until
                paths.append((kept, q - 1, again, mass * chance))
            else:
                paths.append((longer, q, until, mass * chance))
    return found


class _NoTwoAlike:
    """Refuses a prefix whose last two tokens are equal."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        same = prefix[:, -1] == prefix[:, -2] if prefix.shape[1] > 1 else prefix[:, 0] < 0
        return torch.where(same, -torch.inf, 0.0).double()


def examples() -> dict[str, OneShot]:
    """The law of the recursion above, with and without the redo, with and without an end token."""
    p, verifier = Table.random(vocab_size=2, length=4, seed=3), _NoTwoAlike()

    def case(
        quota: int,
        stride: int,
        redo: bool,
        *,
        verify: bool = False,
        end: int | None = None,
        length: int = 4,
    ) -> OneShot:
        """`sample` with these options, and the law of the recursion."""

        def one(rng: Rng) -> tuple[int, ...]:
            result = sample(
                RecomputingDecoder(p, 1),
                verifier,
                length=length,
                quota=quota,
                stride=stride,
                redo_argmax=redo,
                verify_redone=verify,
                end_token=end,
                rng=rng,
            )
            return result.completions()[0]

        wanted = law(
            p,
            verifier,
            length,
            quota,
            stride,
            redo_argmax=redo,
            verify_redone=verify,
            end_token=end,
        )
        return OneShot(one, wanted)

    return {
        "quota 2, stride 2": case(2, 2, True),
        "quota 1, stride 3": case(1, 3, True),
        "no redo": case(2, 2, False, length=3),
        "quota 0 is the model": OneShot(case(0, 1, True).attempt, p.as_dict()),
        "redone tokens verified": case(3, 2, True, verify=True),
        "with an end token": case(2, 2, True, end=1),
    }
