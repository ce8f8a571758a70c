"""How far masked decoding is from the model's own law of right texts, in nats.

A mask that keeps the tokens which can become right, and redraws among them, writes a text x with
q(x) = p(x) / Π_t Z_t, where Z_t is the model's mass on the tokens that the mask keeps at step t.
The model's own law of right texts is p(x) / Z. So with w = Π_t Z_t

    Z = E_q[w],    KL(q ‖ p(· | right)) = log Z - E_q[log w],

which is 0 where every text lost the same mass on its way. Texts that are not over at their
full length, or that run into a place without a token, count apart: q is then the law of the others.

    exactly    by all texts that the mask lets be written, where there are few
    estimated  by texts drawn with the mask, with an interval

Source: tokenwise rejection sampling [li, Definition 3.1.5], whose law this is.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.estimates import bootstrap
from triptych.core.protocols import Decoder, NextToken, Question, Rng
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import Count, UserError, as_count, as_list, check_can
from triptych.verifiers.grammars.verifier import GrammarVerifier


class Bending(NamedTuple):
    """What a mask does to a law.

    nats         KL(q ‖ p given right); low and high are its 95 % interval, the number itself where
                 it is exact
    log_right    log Z, the model's mass of right texts
    unfinished   q's mass of texts that do not end well
    texts        how many were summed, or drawn
    """

    nats: float
    low: float
    high: float
    log_right: float
    unfinished: float
    texts: int
    exact: bool


def exactly(
    lm: NextToken,
    verifier: GrammarVerifier,
    *,
    length: Count,
    prompt: Sequence[int] = (),
    most: Count = 20_000,
) -> Bending | None:
    """The bending, by all texts; None where there are more than `most` prefixes.

    length   tokens of a text at most, without the prompt

    Worked value: for fair letters a and b and the choices "aa", "ab", "ba", of two letters, q is
    ¼, ¼, ½ and the law ⅓ each, so the bending is log 3 - 1.5 log 2 = 0.0589.
    """
    check_can("lm", lm, "next_token_log_probs")
    check_can("verifier", verifier, "masks", "log_values", "over", "vocabulary")
    length, most = as_count("length", length, at_least=1), as_count("most", most, at_least=1)
    start = _as_prompt(prompt)
    rows, log_q, log_w = start[None], _zeros(1), _zeros(1)
    ended: list[tuple[Tensor, Tensor]] = []  # log q and log w of texts that are right
    seen = 0
    for _ in range(length):
        log_probs = _kept(lm.next_token_log_probs(rows).double(), verifier, rows, start)
        log_kept = log_probs.logsumexp(-1)
        at, token = torch.nonzero(log_probs > -torch.inf, as_tuple=True)
        seen += len(at)
        if seen > most:
            return None
        rows = torch.cat([rows[at], token[:, None]], -1)
        log_q = log_q[at] + log_probs[at, token] - log_kept[at]
        log_w = log_w[at] + log_kept[at]
        over = _over(verifier, rows, start)
        ended.append((log_q[over], log_w[over]))
        rows, log_q, log_w = rows[~over], log_q[~over], log_w[~over]
        if len(rows) == 0:
            break
    if len(rows):
        right = verifier.log_values(_asked(rows, start, over=True)) == 0
        ended.append((log_q[right], log_w[right]))
    log_q, log_w = (torch.cat(part) for part in zip(*ended, strict=True))
    if len(log_q) == 0:
        raise UserError(
            f"no text of at most {length} tokens is right and has a chance", parameter="most"
        )
    q = log_q.exp()
    finished, log_right = float(q.sum()), float((log_q + log_w).logsumexp(0))
    nats = log_right - float((q * log_w).sum()) / finished - math.log(finished)
    return Bending(nats, nats, nats, log_right, max(0.0, 1 - finished), len(log_q), True)


def estimated(
    decoder: Decoder,
    verifier: GrammarVerifier,
    *,
    length: Count,
    rng: RngLike,
    resamples: Count = 2000,
) -> Bending:
    """The bending, by a text for each row of a decoder, which holds the same prompt in all rows.

    The interval is by resampling the texts. Where few of them carry the mass of right texts, as
    `log_right` of few texts tells, both ends are too low.
    """
    check_can("decoder", decoder, "next_log_probs", "append", "tokens", "lengths")
    check_can("verifier", verifier, "masks", "log_values", "over", "vocabulary")
    length, rng = as_count("length", length, at_least=1), as_rng(rng, decoder.lengths.device)
    start = decoder.tokens[0, : int(decoder.lengths[0])]
    n = len(decoder.lengths)
    log_w, going = _zeros(n), torch.arange(n)
    finished = torch.zeros(n, dtype=torch.bool)
    for _ in range(length):
        rows = decoder.tokens[going, : int(decoder.lengths[going[0]])]
        laws = decoder.next_log_probs(going).double()
        log_probs = _kept(laws, verifier, rows, start)
        log_kept = log_probs.logsumexp(-1)
        alive = log_kept > -torch.inf
        going, log_probs, log_kept = going[alive], log_probs[alive], log_kept[alive]
        if len(going) == 0:
            break
        _append(decoder, log_probs - log_kept[:, None], going, rng)
        log_w[going] += log_kept
        rows = decoder.tokens[going, : int(decoder.lengths[going[0]])]
        over = _over(verifier, rows, start)
        finished[going[over]] = True
        going = going[~over]
        if len(going) == 0:
            break
    if len(going):
        rows = decoder.tokens[going, : int(decoder.lengths[going[0]])]
        finished[going] = verifier.log_values(_asked(rows, start, over=True)) == 0
    if not finished.any():
        raise UserError(
            f"none of {n} texts was right after {length} tokens; allow more tokens or draw more",
            parameter="length",
        )
    values = log_w[finished].numpy()
    found = bootstrap(values, _gap, resamples=resamples)
    share = float(finished.double().mean())
    log_right = float(np.logaddexp.reduce(values)) - math.log(n)
    return Bending(found.value, found.low, found.high, log_right, 1 - share, n, False)


def _gap(values: np.ndarray, axis: int = 0) -> Any:
    """log mean w - mean log w."""
    highest = values.max(axis=axis, keepdims=True)
    mean = np.exp(values - highest).mean(axis=axis)
    return np.log(mean) + highest.squeeze(axis) - values.mean(axis=axis)


def _append(decoder: Decoder, log_probs: Tensor, rows: Int[Tensor, " rows"], rng: Rng) -> None:
    decoder.append(rng.categorical(log_probs), rows)


def _kept(laws: Tensor, verifier: GrammarVerifier, rows: Tensor, start: Tensor) -> Tensor:
    """The laws of rows, -inf for tokens that the mask refuses."""
    return laws.masked_fill(~verifier.masks(_asked(rows, start)), -torch.inf)


def _over(verifier: GrammarVerifier, rows: Tensor, start: Tensor) -> Tensor:
    """Rows whose last token ends them, and rows that nothing but space may follow."""
    ended = torch.isin(rows[:, -1], torch.tensor(verifier.vocabulary.ends, dtype=torch.long))
    return ended | verifier.over(_asked(rows, start))


def _asked(rows: Tensor, start: Tensor, over: bool = False) -> Question:
    return Question.about(rows, start=len(start), over=over)


def _zeros(n: int) -> Float[Tensor, " n"]:
    return torch.zeros(n, dtype=torch.float64)


def _as_prompt(prompt: Sequence[int]) -> Int[Tensor, " t"]:
    tokens = [as_count("a token of prompt", token) for token in as_list("prompt", prompt, "tokens")]
    return torch.tensor(tokens, dtype=torch.long)
