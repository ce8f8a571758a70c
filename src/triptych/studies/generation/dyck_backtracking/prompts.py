"""Tables 3.3, 3.16 and 3.5 and Figure 3.2: completions of unseen prompts [li, 3.2.1.5, 3.2.1.8,
3.2.1.9 and 3.2.3].
"""

from collections.abc import Iterator, Sequence

import torch

from triptych.core.randomness import TorchRng
from triptych.inference.guided.generation import Result
from triptych.structures.brackets.parse import DyckError
from triptych.studies.generation.dyck_backtracking.rows import (
    Diversity,
    OneNetwork,
    PerfectDiversity,
    Unseen,
)
from triptych.studies.generation.shared.completions import (
    complete_each,
    draw_prompts,
    guided,
    memory_of,
    read,
)
from triptych.studies.generation.shared.perfect_model import perfect_diversity
from triptych.studies.generation.shared.trained_dyck import Trained
from triptych.verifiers.probe import Probe

TOP_PS = (0.9, 1.0)


def unseen(
    unit: OneNetwork, model: Trained, probe: Probe, prompts_rng: TorchRng, rng: TorchRng
) -> Iterator[Unseen]:
    """Tables 3.3 and 3.16, and what the errors that remain are (Figure 3.2)."""
    prompts = draw_prompts(
        model.ood,
        unit.unseen,
        prompts_rng,
        shortest=unit.shortest_prompt,
        longest=unit.longest_prompt,
    )
    most = unit.quota
    configs = [(top_p, quota, True, False) for top_p in TOP_PS for quota in (0, most)]
    configs += [(top_p, most, True, True) for top_p in TOP_PS]
    configs.append((unit.top_p, most, False, False))
    cases = [(repeat, *config) for repeat in range(unit.repeats) for config in configs]
    samplings = [
        guided(
            model,
            probe,
            rng,
            quota=quota,
            stride=unit.stride,
            top_p=top_p,
            threshold=unit.threshold,
            redo_argmax=redo,
            verify_redone=verify,
        )
        for _, top_p, quota, redo, verify in cases
    ]
    every = complete_each(model.lm, prompts, samplings, memory=memory_of(model.lm))
    for (repeat, top_p, quota, redo, verify), results in zip(cases, every, strict=True):
        done = read(model.law, results)
        wrong, left = ~done.right, torch.cat([result.info.quota_left for result in results])
        kinds = {kind.name.lower(): int((done.error[wrong] == kind).sum()) for kind in DyckError}
        yield Unseen(
            seed=unit.seed,
            top_p=top_p,
            quota=quota,
            stride=unit.stride if quota else 0,
            redo_argmax=redo,
            verify_redone=verify,
            repeat=repeat,
            prompts=len(prompts),
            errors=done.errors,
            error_kinds={name: count for name, count in kinds.items() if count},
            quota_used_up=int((left[wrong] == 0).sum()),
            generated=_total(results, "generated"),
            verifier_calls=_total(results, "verifier_calls"),
        )


def _total(results: Sequence[Result], cost: str) -> int:
    return int(sum(result.costs.totals()[cost] for result in results))


def diversity(
    unit: OneNetwork, model: Trained, probe: Probe, rng: TorchRng
) -> Iterator[Diversity | PerfectDiversity]:
    """Table 3.5, for prompts of all lengths and for the shortest alone.

    The text has prompts of 25 to 31 tokens, on which no model can be as diverse as the table says:
    a model without error, which is exact, is shown too.
    """
    exact = model.law.to("cpu")
    for longest in dict.fromkeys((unit.longest_prompt, unit.shortest_prompt)):
        lengths = {"shortest": unit.shortest_prompt, "longest": longest}
        prompts = draw_prompts(model.ood, unit.diverse_prompts, rng, **lengths)
        many = prompts.repeat_interleave(unit.diverse_completions, dim=0)
        configs = [(1.0, unit.quota, False), (0.9, 0, False), (1.0, 0, False)]
        configs.append((1.0, unit.quota, True))
        samplings = [
            guided(
                model,
                probe,
                rng,
                quota=quota,
                stride=unit.stride,
                top_p=top_p,
                threshold=unit.threshold,
                verify_redone=verify,
            )
            for top_p, quota, verify in configs
        ]
        every = complete_each(model.lm, many, samplings, memory=memory_of(model.lm))
        for (top_p, quota, verify), results in zip(configs, every, strict=True):
            done = read(model.law, results)
            strings = done.tokens.reshape(len(prompts), unit.diverse_completions, -1).tolist()
            right = done.right.reshape(len(prompts), -1).tolist()
            yield Diversity(
                seed=unit.seed,
                **lengths,
                top_p=top_p,
                quota=quota,
                verify_redone=verify,
                completions=unit.diverse_completions,
                distinct=tuple(len({tuple(s) for s in some}) for some in strings),
                distinct_right=tuple(
                    len({tuple(s) for s, good in zip(some, fine, strict=True) if good})
                    for some, fine in zip(strings, right, strict=True)
                ),
            )
        for top_p in TOP_PS:
            yield PerfectDiversity(
                seed=unit.seed,
                **lengths,
                top_p=top_p,
                completions=unit.diverse_completions,
                distinct=perfect_diversity(
                    exact, **lengths, draws=unit.diverse_completions, top_p=top_p
                ),
            )
