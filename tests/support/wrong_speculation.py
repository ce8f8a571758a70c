"""Mistakes in speculative sampling: each takes target, draft and drafted tokens."""

import torch
from tests.support.right_samplers import uniform


def _verify(target, draft, drafted, accepts, residual, bonus=-1):
    written = []
    for k, token in enumerate(drafted.tolist()):
        if accepts(target[k, token], draft[k, token], k):
            written.append(token)
            continue
        return [*written, residual(target[k], draft[k], token)]
    return [*written, int(torch.multinomial(target[bonus], 1))]


def _ratio(p, q, k):
    return bool(uniform() < p / q)


def _residual(p, q, token):
    return int(torch.multinomial((p - q).clamp(min=0), 1))


def inverted_ratio(*given):
    return _verify(*given, lambda p, q, k: bool(uniform() < q / p), _residual)


def always_accepts(*given):
    return _verify(*given, lambda p, q, k: True, _residual)


def accepts_by_target(*given):
    return _verify(*given, lambda p, q, k: bool(uniform() < p), _residual)


def residual_not_renormalised(*given):
    """The rest of the mass goes to the last token."""

    def last(p, q, token):
        return min(int((uniform(1) > (p - q).clamp(min=0).cumsum(0)).sum()), len(p) - 1)

    return _verify(*given, _ratio, last)


def residual_of_the_draft(*given):
    return _verify(*given, _ratio, lambda p, q, token: _residual(q, p, token))


def residual_without_the_token(*given):
    def others(p, q, token):
        p = p.clone()
        p[token] = 0
        return int(torch.multinomial(p, 1))

    return _verify(*given, _ratio, others)


def absolute_residual(*given):
    return _verify(*given, _ratio, lambda p, q, token: int(torch.multinomial((p - q).abs(), 1)))


def one_uniform_for_all(target, draft, drafted):
    u = uniform()
    return _verify(target, draft, drafted, lambda p, q, k: bool(u < p / q), _residual)


def bonus_of_the_first_row(*given):
    return _verify(*given, _ratio, _residual, bonus=0)


def repeats_the_last(target, draft, drafted):
    found = _verify(target, draft, drafted, _ratio, _residual)
    return [*found[:-1], int(drafted[-1])]


WRONG = [
    inverted_ratio,
    always_accepts,
    accepts_by_target,
    residual_not_renormalised,
    residual_of_the_draft,
    residual_without_the_token,
    absolute_residual,
    one_uniform_for_all,
    bonus_of_the_first_row,
    repeats_the_last,
]
