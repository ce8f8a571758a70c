"""Tables 3.1, 3.2 and 3.4: completions of prefixes that led to an error [li, 3.2.1.3, 3.2.1.4 and
3.2.1.7].

Backtracking here may erase the prefix itself, since most of the stride reaches beyond what was
generated. As printed, Algorithm 1 never does; then it cannot help where the first generated token
is wrong. That reading is run once too, and so is a variant, nearer to the authors' program, in
which redone tokens are verified too.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from triptych.core.decoders import PAD
from triptych.core.randomness import TorchRng
from triptych.inference.guided.generation import Result
from triptych.models.remembered import PrefixMemory
from triptych.studies.generation.dyck_backtracking.rows import (
    Config,
    OneNetwork,
    Quota,
    Refused,
    Stride,
)
from triptych.studies.generation.shared.completions import (
    AnyDecoder,
    RefusedStrings,
    Sampling,
    complete_each,
    completed_anyhow,
    cut,
    guided,
    plainly,
    read,
    refused_strings,
)
from triptych.studies.generation.shared.trained_dyck import Trained
from triptych.verifiers.probe import Probe

STRIDES = (1, 2, 4, 8)  # of Table 3.1
QUOTAS, QUOTA_STRIDES = (1, 2, 4), (2, 4, 6)  # of Tables 3.2 and 3.4


def strides(
    unit: OneNetwork,
    model: Trained,
    prefixes: Int[Tensor, "count t"],
    rng: TorchRng,
    memory: PrefixMemory | None,
) -> Iterator[Stride]:
    """Table 3.1: erase B tokens once, by force, then go on sampling."""

    def erased(stride: int, redo: bool) -> Sampling:
        def sampling(decoder: AnyDecoder) -> Result:
            counts = decoder.lengths.clamp(max=stride)
            decoder.rollback(counts)
            if redo:
                for step in range(stride):
                    rows = torch.nonzero(counts > step)[:, 0]
                    decoder.append(decoder.next_log_probs(rows).argmax(-1), rows)
            return plainly(model.law, unit.top_p, rng)(decoder)

        return sampling

    configs: list[tuple[Config, int, int, Sampling]] = [
        ("nucleus", 0, unit.tries, plainly(model.law, unit.top_p, rng)),
        ("greedy", 0, 1, plainly(model.law, 0.0, rng)),  # is the same every time
    ]
    for stride in STRIDES:
        configs.append(("erased", stride, unit.tries, erased(stride, False)))
        configs.append(("erased, redone by argmax", stride, unit.tries, erased(stride, True)))
    samplings = [sampling for *_, tries, sampling in configs for _ in range(tries)]
    every = iter(complete_each(model.lm, prefixes, samplings, memory=memory))
    for config, stride, tries, _ in configs:
        right = [read(model.law, next(every)).accuracy for _ in range(tries)]
        yield Stride(unit.seed, config, stride, sum(right) / tries, len(prefixes), tries)


class Case(NamedTuple):
    """A way to run Algorithm 1."""

    quota: int
    stride: int
    into_prompt: bool = True
    verify_redone: bool = False

    @property
    def judged(self) -> bool:
        """The algorithm of Tables 3.2 and 3.4."""
        return self.into_prompt and not self.verify_redone


def quotas(
    unit: OneNetwork,
    model: Trained,
    probe: Probe,
    prefixes: Int[Tensor, "count t"],
    rng: TorchRng,
    refused_rng: TorchRng,
    memory: PrefixMemory | None,
) -> Iterator[Quota | Refused]:
    """Table 3.2, and Table 3.4: what becomes of the refused strings without backtracking."""
    pairs = [(quota, stride) for quota in QUOTAS for stride in QUOTA_STRIDES]
    cases = [Case(*pair, verify_redone=verify) for pair in pairs for verify in (False, True)]
    cases.append(Case(*pairs[-1], into_prompt=False))
    samplings = [
        guided(
            model,
            probe,
            rng,
            quota=case.quota,
            stride=case.stride,
            top_p=unit.top_p,
            threshold=unit.threshold,
            into_prompt=unit.length if case.into_prompt else 0,
            verify_redone=case.verify_redone,
            record=case.judged,
        )
        for case in cases
    ]
    every = complete_each(model.lm, prefixes, samplings, memory=memory)
    for case, results in zip(cases, every, strict=True):
        right = read(model.law, results).right
        accuracy = float(right.double().mean())
        yield Quota(unit.seed, *case, accuracy, len(prefixes))
        if case.judged:
            refused = refused_strings(results, prefixes)
            if len(refused.tokens):
                yield _without_backtracking(unit, model, case, right, refused, refused_rng, memory)


def _without_backtracking(
    unit: OneNetwork,
    model: Trained,
    case: Case,
    right: Bool[Tensor, " count"],
    refused: RefusedStrings,
    rng: TorchRng,
    memory: PrefixMemory | None,
) -> Refused:
    """Complete the refused strings plainly, with and without the token that was refused."""
    by_nucleus, by_argmax = (plainly(model.law, top_p, rng) for top_p in (unit.top_p, 0.0))
    nucleus, argmax = completed_anyhow(model, refused.tokens, [by_nucleus, by_argmax], memory)
    shorter = cut(refused.tokens, (refused.tokens != PAD).sum(1) - 1)
    (before,) = completed_anyhow(model, shorter, [by_nucleus], memory)
    return Refused(
        seed=unit.seed,
        quota=case.quota,
        stride=case.stride,
        prefixes=len(right),
        backtracks=len(refused.tokens),
        accuracy=float(right.double().mean()),
        nucleus=float(nucleus.double().mean()),
        argmax=float(argmax.double().mean()),
        before=float(before.double().mean()),
        nucleus_error=difference_error(right, nucleus, refused.prefix),
        argmax_error=difference_error(right, argmax, refused.prefix),
    )


def difference_error(
    right: Bool[Tensor, " count"],
    refused_right: Bool[Tensor, " refused"],
    prefix: Int[Tensor, " refused"],
) -> float | None:
    """Standard error of mean(right) - mean(refused_right), with prefixes as the trials.

    Several refused strings of one prefix are not independent, and neither are they of what became
    of the prefix: the second mean is linearised as a ratio of sums over prefixes. None for a single
    prefix. Worked value: four prefixes, each refused once, 1 0 1 1 and 0 0 1 0: the differences
    1 0 0 1 have the standard error √(1/3) / 2.
    """
    count = len(right)
    if count < 2:
        return None
    strings = torch.bincount(prefix, minlength=count).double()
    hits = torch.bincount(prefix, weights=refused_right.double(), minlength=count)
    share = hits.sum() / strings.sum()
    of_prefix = right.double() - (hits - share * strings) / strings.mean()
    return float(of_prefix.std() / count**0.5)
