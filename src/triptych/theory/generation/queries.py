"""How many questions constrained generation needs: Theorem 3.1.1 and Proposition 3.1.1 of [li].

The hidden string. There are N = 2^(D-1) oracles O_ŝ (`structures.parity.HiddenParity`); the only
even string with mass is ŝ and its parity bit. A question at a prefix shorter than D - 1 has the
same answers under every ŝ; one at a prefix of D - 1 bits tells whether it is ŝ and nothing else.
So an algorithm searches for one of N equally likely things by asking "is it this one?":

    f(1) = 0,    f(n) = 1 + (n-1)/n f(n-1)    =>    f(N) = (N + 1)/2 - 1/N

questions, averaged over ŝ, and none needs fewer: the last candidate need not be asked. The order
that starts at a random place needs f(N) under every ŝ, so by Yao's lemma f(N) is also what the
best randomised algorithm needs at its worst ŝ. The printed bound, 2^(D-1) = N, is what a searcher
without memory needs, and twice too much for one that never asks twice.

The theorem only says that some task needs N questions, and one does: let the bit after ŝ be even
with probability q alone. The answers say nothing until the first even one, so the best order goes
round and round, and needs N (1 - q)/q + (N + 1)/2 questions: at least N for q ≤ 2/3.

Notation
--------
D   length        N   2^(D-1), the number of secrets        ŝ   secret, D - 1 bits
"""

from functools import cache
from math import inf
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.protocols import NextToken, Value
from triptych.core.randomness import RngLike, as_rng
from triptych.core.table import Table, all_sequences, places
from triptych.core.validation import check_count
from triptych.structures.parity import HiddenParity

_MOST_ENUMERATED = 4  # 2^8 sets of secrets; one bit more squares that number


def secrets(length: int) -> int:
    """N = 2^(D-1): also the bound that Theorem 3.1.1 prints. Worked value: D = 3: 4."""
    check_count("length", length, at_least=2)
    return 2 ** (length - 1)


def fewest_questions(length: int) -> float:
    """(N + 1)/2 - 1/N: the best possible expected number of questions, for a uniform secret.

    Worked values: D = 2: ask one of two, 1. D = 3: found at the first, second or third question
    or known after the third, (1 + 2 + 3 + 3)/4 = 9/4.
    """
    n = secrets(length)
    return (n + 1) / 2 - 1 / n


def fewest_questions_until_asked(length: int) -> float:
    """(N + 1)/2: the same if the secret itself must be asked, as the printed proof counts.

    Worked value: D = 3: (1 + 2 + 3 + 4)/4 = 5/2.
    """
    return (secrets(length) + 1) / 2


def fewest_questions_if_even_is_rare(length: int, probability: float) -> float:
    """N (1 - q)/q + (N + 1)/2, where the bit after the secret is even with probability q.

    Worked value: D = 2, q = ½: asked in turn, the two succeed at questions 1, 2, 3, 4, … with
    probability ¼, ¼, ⅛, ⅛, …: 3/4 + 7/8 + 11/16 + … = 7/2.
    """
    _check_even(probability)
    n = secrets(length)
    return n * (1 - probability) / probability + (n + 1) / 2


def _check_even(probability: float) -> None:
    if not 0 < probability <= 1:
        raise ValueError(f"probability is {probability}; it must be above 0 and at most 1")


def fewest_questions_by_search(length: int) -> float:
    """The optimum over all strategies, by dynamic programming on the sets of possible secrets.

    A question is any prefix of less than D bits; its answers are looked up in the oracles
    themselves. A question that leaves the set as it was is never worth its price.
    """
    n = secrets(length)
    if length > _MOST_ENUMERATED:
        raise ValueError(
            f"the search goes through 2^(2^(D-1)) sets of secrets: D = {length} is too long, "
            f"{_MOST_ENUMERATED} is the most"
        )
    oracles = [HiddenParity(secret) for secret in all_sequences(2, length - 1)]
    questions = [
        torch.stack([o.next_token_log_probs(prefix[None])[0].exp() for o in oracles])
        for t in range(length)
        for prefix in all_sequences(2, t)
    ]  # each [secret, token]: P(token | question) under every secret

    @cache
    def cost(possible: frozenset[int]) -> float:
        if len(possible) == 1:
            return 0.0
        options = []
        for answers in questions:
            expected = 1.0
            for token in range(2):
                weight = {s: float(answers[s, token]) for s in possible}
                left = frozenset(s for s in possible if weight[s] > 0)
                if left == possible:
                    break  # no secret is ruled out, and none becomes likelier: no information
                if left:
                    expected += sum(weight.values()) / len(possible) * cost(left)
            else:
                options.append(expected)
        return min(options)

    return cost(frozenset(range(n)))


def questions_if_even_is_rare_at_least(
    length: int, probability: float, horizon: int | None = None
) -> float:
    """A lower bound on the fewest questions if the even bit is rare, over all strategies.

    Dynamic programming on how often each secret was asked. An odd answer there makes it (1 - q)
    times as likely; shorter questions say nothing. After `horizon` questions (five for each secret,
    24 at least) the search ends for free, which makes the answer a bound from below.

    Worked value: D = 2, q = 1, horizon 1: one question, then free: 1.
    """
    if length > _MOST_ENUMERATED:
        raise ValueError(f"D = {length} is too long to go through all strategies")
    _check_even(probability)
    kept, n = 1 - probability, secrets(length)
    last = max(5 * n, 24) if horizon is None else horizon

    @cache
    def cost(asked: tuple[int, ...]) -> float:
        total = sum(kept**count for count in asked)
        if sum(asked) == last or total == 0:
            return 0.0
        best = inf
        for place, count in enumerate(asked):
            if place and asked[place - 1] == count:
                continue  # secrets that were asked equally often are alike
            misses = 1 - probability * kept**count / total
            after = tuple(sorted((*asked[:place], count + 1, *asked[place + 1 :])))
            best = min(best, 1 + misses * (cost(after) if misses else 0.0))
        return best

    return cost((0,) * n)


class Found(NamedTuple):
    """The even string with mass of each run, and how many questions it took."""

    tokens: Int[Tensor, "runs length"]
    questions: Int[Tensor, " runs"]


def search(lm: NextToken, orders: Int[Tensor, "runs secrets bits"]) -> Found:
    """Each run asks the prefixes in its order until one is the secret, or only one is left.

    Worked value: D = 3, ŝ = 10, in the order 00, 01, 10, 11: the third question finds it. With
    ŝ = 11 the third question rules out all others.
    """
    runs, count, bits = orders.shape
    if count != 2**bits or any(len(order.unique(dim=0)) < count for order in orders):
        raise ValueError(
            f"an order has {count} prefixes of {bits} bits; it must have each of the {2**bits} once"
        )
    found = orders[:, -1].clone()  # what is left if no question finds it
    questions = torch.full((runs,), count - 1)
    searching = torch.arange(runs)
    for asked in range(count - 1):
        prefix = orders[searching, asked]
        last = lm.next_token_log_probs(prefix).argmax(-1)
        even = (prefix.sum(-1) + last) % 2 == 0
        found[searching[even]], questions[searching[even]] = prefix[even], asked + 1
        searching = searching[~even]
        if len(searching) == 0:
            break
    return Found(torch.cat([found, found.sum(-1, keepdim=True) % 2], 1), questions)


def orders_from_random_starts(
    length: int, runs: int, rng: RngLike
) -> Int[Tensor, "runs secrets bits"]:
    """Every prefix of D - 1 bits once: x ⊕ r for x in order, with uniform bits r for each run.

    The place of every secret in it is uniform, so `search` needs `fewest_questions` on average
    under each of them.
    """
    half = torch.full((1, 2), 0.5, dtype=torch.float64).log()
    start = as_rng(rng).categorical(half, torch.zeros((runs, length - 1), dtype=torch.long))
    return all_sequences(2, length - 1) ^ start[:, None]


def questions_without_memory(
    lm: NextToken, length: int, runs: int, rng: RngLike
) -> Int[Tensor, " runs"]:
    """Questions of a searcher that asks a uniform prefix of D - 1 bits each time; N on average."""
    rng = as_rng(rng)
    count = torch.zeros(runs, dtype=torch.long)
    open_runs = torch.arange(runs)
    half = torch.full((1, 2), 0.5, dtype=torch.float64).log()
    while len(open_runs):
        zero = torch.zeros((len(open_runs), length - 1), dtype=torch.long)
        prefix = rng.categorical(half, zero)
        last = lm.next_token_log_probs(prefix).argmax(-1)
        count[open_runs] += 1
        open_runs = open_runs[(prefix.sum(-1) + last) % 2 == 1]
    return count


def retried_calls(length: int, tries: int) -> float:
    """(N - 1)(D - 1 + k) + D: calls of tokenwise rejection that starts again after k refusals.

    With the process verifier of the even strings, which sees nothing before the last bit, against
    the hidden string; a wrong prefix is refused forever, so without a limit it never ends. With
    one try it is plain rejection, N D. Worked value: D = 2, k = 3: one wrong attempt of 1 + 3 calls
    on average, and a right one of 2: 6.
    """
    check_count("tries", tries, at_least=1)
    return (secrets(length) - 1) * (length - 1 + tries) + float(length)


def rejection_calls(table: Table, verifier: Value) -> float:
    """D / Σ_x p(x) V(x): expected calls of plain rejection; inf if nothing is ever accepted.

    Worked value: fair bits, A = {00}: 2 calls an attempt, a quarter succeeds: 8.
    """
    accepted = (table.log_probs + verifier.log_value(table.sequences)).logsumexp(0).exp()
    return float(table.length / accepted)


def tokenwise_calls(table: Table, verifier: Value) -> float:
    """Σ_t E[1 / P(accepted | x_<t)]: expected calls of tokenwise rejection, x_<t by its own law.

    Worked value: fair bits, A = {00}: two draws for each token: 4.
    """
    vocab = table.vocab_size
    reached = torch.ones(1, dtype=torch.float64)  # the law of the prefixes of t tokens
    total = 0.0
    for t in range(table.length):
        level = table.log_probs.reshape(vocab**t, vocab, -1).logsumexp(-1).exp()
        value = verifier.log_value(all_sequences(vocab, t + 1)).exp().reshape(-1, vocab)
        here = torch.nonzero(reached > 0)[:, 0]
        kept = level[here] / level[here].sum(-1, keepdim=True) * value[here]
        accepted = kept.sum(-1)
        total += float((reached[here] / accepted).sum())
        longer = torch.zeros_like(level)
        longer[here] = (reached[here] / accepted)[:, None] * kept
        reached = longer.flatten()
    return total


def subsets_with_sum(weights: tuple[int, ...], capacity: int) -> Int[Tensor, "subsets items"]:
    """Every 0/1 assignment a with Σ a_i X_i = c, by trying all 2^D of them.

    Worked value: weights (3, 5, 2), capacity 5: 010 and 101.
    """
    rank = torch.arange(2 ** len(weights))
    bits = (rank[:, None] // places(2, len(weights))) % 2
    return bits[(bits * torch.tensor(weights)).sum(-1) == capacity]
