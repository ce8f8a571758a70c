"""Does backtracking guided by a light verifier mend the mistakes of a language model? [li, 3.2.1]

A network learns brackets and completes prompts of a kind that it has hardly seen; a probe on its
states learns to tell its mistakes; Algorithm 1 uses the probe. One unit is one trained network with
every table of the section: accuracies at error-inducing prefixes (Tables 3.1, 3.2 and 3.4), errors
on unseen prompts (3.3, 3.16), diversity (3.5), what the remaining errors are (Figure 3.2), and a
picture of the states (Figure 3.1).

Points where the source is silent, and what is done here: backtracking at error-inducing prefixes
(3.1, 3.2) may erase the prefix itself, since most of the stride reaches beyond what was generated;
the printed algorithm, which never does, is run beside it, and so is a variant, nearer to the
authors' program, in which redone tokens are verified too. The prefixes of these tables are fresh,
not those that the probe was trained on.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.decoders import PAD
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.inference.run import Result
from triptych.models.cache import CachedDecoder
from triptych.structures.bracket_parse import DyckError
from triptych.studies.api.study import Bench, Scale, Study
from triptych.studies.generation.completions import (
    Sampling,
    complete,
    completed_anyhow,
    correct_like,
    draw_prompts,
    gather_mistakes,
    guided,
    plainly,
    read,
    refused_prefixes,
    states_of,
)
from triptych.studies.generation.dyck_backtracking.rows import (
    ROWS,
    Config,
    Diversity,
    DyckBacktracking,
    Gathered,
    LanguageModel,
    OneNetwork,
    Picture,
    Quota,
    Refused,
    Row,
    Stride,
    Unseen,
    Verifier,
)
from triptych.studies.generation.trained_dyck import (
    SMALL,
    TINY,
    Trained,
    one_for_each_network,
    trained,
)
from triptych.studies.generation.tsne import neighbour_agreement, tsne
from triptych.verifiers.probe import Probe, split_score

TOP_PS = (0.9, 1.0)
STRIDES = (1, 2, 4, 8)  # of Table 3.1
QUOTAS, QUOTA_STRIDES = (1, 2, 4), (2, 4, 6)  # of Tables 3.2 and 3.4


def units(settings: DyckBacktracking) -> Sequence[OneNetwork]:
    """One for each network."""
    if not 1 <= settings.shortest_prompt <= settings.longest_prompt < settings.length:
        raise UserError(
            "prompts must have 1 ≤ shortest_prompt ≤ longest_prompt < length tokens; here "
            f"{settings.shortest_prompt}, {settings.longest_prompt} and {settings.length}"
        )
    return one_for_each_network(OneNetwork, settings)


def run(unit: OneNetwork, bench: Bench) -> Iterable[Row]:
    """Train, gather mistakes, train the probe, then every table."""
    model = trained(unit, bench, unit.seed)
    yield _language_model(unit, model, bench)
    mistakes = gather_mistakes(unit, model, 2 * unit.mistakes, bench.rng("mistakes"))
    half = len(mistakes.tokens) // 2
    yield Gathered(unit.seed, len(mistakes.tokens), mistakes.prompts)
    if half < 10:
        return  # the network hardly ever errs: there is nothing to learn a verifier from
    training = mistakes.take(0, half)
    right = correct_like(training, model.ood, bench.rng("correct strings"))
    states = torch.cat([states_of(model.lm, training.tokens), states_of(model.lm, right)])
    correct = torch.arange(len(states), device=states.device) >= half
    yield _probe_scores(unit, states, correct)
    yield _picture(unit, states, correct)
    layers = model.lm.net.shape.layers
    probe = Probe.fit(states, correct, layer=layers)
    prefixes = mistakes.take(half, 2 * half).inducing()
    yield from _strides(unit, model, prefixes, bench.rng("strides"))
    yield from _quotas(unit, model, probe, prefixes, bench.rng("quotas"))
    yield from _unseen(unit, model, probe, bench)
    yield from _diversity(unit, model, probe, bench.rng("diversity"))


def _language_model(unit: OneNetwork, model: Trained, bench: Bench) -> LanguageModel:
    """Completion accuracy in and out of distribution, and the right closing bracket by argmax."""
    rng = bench.rng("language model")
    inside, outside = (
        read(
            model.law,
            complete(
                model.lm,
                draw_prompts(unit, law, unit.unseen, rng),
                plainly(model.law, unit.top_p, rng),
            ),
        )
        for law in (model.law, model.ood)
    )
    tokens = model.law.sample(min(2000, unit.unseen), rng)
    closing = (tokens % 2 == 1) & (tokens < model.law.vocab_size - 1)
    logits = torch.cat([model.lm.every_next_token_log_probs(t) for t in tokens.split(500)])
    brackets = logits[..., 1:4:2].argmax(-1) * 2 + 1  # the likelier of the two closing brackets
    return LanguageModel(
        seed=unit.seed,
        kl=model.kl,
        prompts=unit.unseen,
        in_accuracy=inside.accuracy,
        in_errors=inside.errors,
        out_accuracy=outside.accuracy,
        out_errors=outside.errors,
        closing_accuracy=float((brackets == tokens)[closing].double().mean()),
    )


def _probe_scores(unit: OneNetwork, states: Tensor, correct: Tensor) -> Verifier:
    held_out = max(2, round(unit.held_out * len(states)))
    scores = split_score(states, correct, train=len(states) - held_out, repetitions=unit.splits)
    return Verifier(unit.seed, len(states), held_out, tuple(scores.tolist()))


def _picture(unit: OneNetwork, states: Tensor, correct: Tensor) -> Picture:
    """t-SNE of both kinds of strings, and how far neighbours are of one kind."""
    half = len(states) // 2
    some = min(half, unit.pictured)
    chosen = torch.cat([states[:some], states[half : half + some]]).double()
    labels = torch.cat([correct[:some], correct[half : half + some]])
    perplexity = min(30.0, some / 2)
    plane = tsne(chosen, perplexity=perplexity)
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    neighbours = min(10, some // 2)
    return Picture(
        seed=unit.seed,
        points=tuple((round(x, 2), round(y, 2)) for x, y in plane.tolist()),
        correct=tuple(labels.long().tolist()),
        agreement=neighbour_agreement(plane, labels, neighbours=neighbours),
        agreement_of_states=neighbour_agreement(chosen, labels, neighbours=neighbours),
        agreement_by_chance=neighbour_agreement(plane, shuffled, neighbours=neighbours),
    )


def _strides(
    unit: OneNetwork, model: Trained, prefixes: Int[Tensor, "count t"], rng: TorchRng
) -> Iterator[Stride]:
    """Table 3.1: erase B tokens once, by force, then go on sampling."""

    def row(config: Config, stride: int, sampling: Sampling) -> Stride:
        done = read(model.law, complete(model.lm, prefixes, sampling))
        return Stride(unit.seed, config, stride, done.accuracy, len(prefixes))

    yield row("nucleus", 0, plainly(model.law, unit.top_p, rng))
    yield row("greedy", 0, plainly(model.law, 0.0, rng))
    for stride in STRIDES:
        for redo in (False, True):

            def erased_first(
                decoder: CachedDecoder, stride: int = stride, redo: bool = redo
            ) -> Result:
                counts = decoder.lengths.clamp(max=stride)
                decoder.rollback(counts)
                if redo:
                    for step in range(stride):
                        rows = torch.nonzero(counts > step)[:, 0]
                        decoder.append(decoder.next_log_probs(rows).argmax(-1), rows)
                return plainly(model.law, unit.top_p, rng)(decoder)

            yield row("erased, redone by argmax" if redo else "erased", stride, erased_first)


def _quotas(
    unit: OneNetwork,
    model: Trained,
    probe: Probe,
    prefixes: Int[Tensor, "count t"],
    rng: TorchRng,
) -> Iterator[Quota | Refused]:
    """Table 3.2, and Table 3.4: what becomes of the refused prefixes without backtracking."""
    for quota in QUOTAS:
        for stride in QUOTA_STRIDES:
            for into_prompt, verify in ((unit.length, False), (0, False), (unit.length, True)):
                printed = into_prompt > 0 and not verify
                algorithm = guided(
                    model,
                    probe,
                    rng,
                    quota=quota,
                    stride=stride,
                    top_p=unit.top_p,
                    threshold=unit.threshold,
                    into_prompt=into_prompt,
                    verify_redone=verify,
                    record=printed,
                )
                results = complete(model.lm, prefixes, algorithm)
                accuracy = read(model.law, results).accuracy
                yield Quota(
                    unit.seed, quota, stride, into_prompt > 0, verify, accuracy, len(prefixes)
                )
                if printed:
                    refused = refused_prefixes(results, prefixes)
                    yield _without_backtracking(unit, model, quota, stride, refused, rng)


def _without_backtracking(
    unit: OneNetwork,
    model: Trained,
    quota: int,
    stride: int,
    refused: Int[Tensor, "refused t"],
    rng: TorchRng,
) -> Refused:
    """Complete the refused prefixes plainly, with and without the token that was refused."""
    if len(refused) == 0:
        return Refused(unit.seed, quota, stride, 0, None, None, None, None)
    lengths = (refused != PAD).sum(1)
    columns = torch.arange(refused.shape[1], device=refused.device)
    before = refused.masked_fill(columns >= lengths[:, None] - 1, PAD)
    # A refused string that has ended, or is full, has no completion: it counts as it stands.
    accuracies = [
        completed_anyhow(model, strings, plainly(model.law, top_p, rng))
        for strings in (before, refused)
        for top_p in (unit.top_p, 0.0)
    ]
    return Refused(unit.seed, quota, stride, len(refused), *accuracies)


def _unseen(unit: OneNetwork, model: Trained, probe: Probe, bench: Bench) -> Iterator[Unseen]:
    """Tables 3.3 and 3.16, and what the errors that remain are (Figure 3.2)."""
    prompts = draw_prompts(unit, model.ood, unit.unseen, bench.rng("unseen prompts"))
    rng = bench.rng("unseen")
    most = unit.quota
    configs = [(top_p, quota, True, False, 0) for top_p in TOP_PS for quota in (0, most)]
    configs += [(top_p, most, True, True, 0) for top_p in TOP_PS]
    configs += [(unit.top_p, most, False, False, 0), (unit.top_p, most, True, False, unit.length)]
    for repeat in range(unit.repeats):
        for top_p, quota, redo, verify, into_prompt in configs:
            sampling = guided(
                model,
                probe,
                rng,
                quota=quota,
                stride=unit.stride,
                top_p=top_p,
                threshold=unit.threshold,
                into_prompt=into_prompt,
                redo_argmax=redo,
                verify_redone=verify,
            )
            results = complete(model.lm, prompts, sampling)
            done = read(model.law, results)
            left = torch.cat([result.notes["quota_left"] for result in results])
            wrong = ~done.right
            kinds = {
                kind.name.lower(): int((done.error[wrong] == kind).sum()) for kind in DyckError
            }
            costs = [result.ledger.totals() for result in results]
            yield Unseen(
                seed=unit.seed,
                top_p=top_p,
                quota=quota,
                stride=unit.stride if quota else 0,
                redo_argmax=redo,
                verify_redone=verify,
                into_prompt=into_prompt > 0,
                repeat=repeat,
                prompts=len(prompts),
                errors=done.errors,
                error_kinds={name: count for name, count in kinds.items() if count},
                quota_used_up=int((left[wrong] == 0).sum()),
                generated=int(sum(cost["generated"] for cost in costs)),
                verifier_calls=int(sum(cost["verifier_calls"] for cost in costs)),
            )


def _diversity(
    unit: OneNetwork, model: Trained, probe: Probe, rng: TorchRng
) -> Iterator[Diversity]:
    """Table 3.5: distinct completions of a prompt, and distinct right ones."""
    prompts = draw_prompts(unit, model.ood, unit.diverse_prompts, rng)
    many = prompts.repeat_interleave(unit.diverse_completions, dim=0)
    for top_p, quota in ((1.0, unit.quota), (0.9, 0), (1.0, 0)):
        sampling = guided(
            model,
            probe,
            rng,
            quota=quota,
            stride=unit.stride,
            top_p=top_p,
            threshold=unit.threshold,
        )
        done = read(model.law, complete(model.lm, many, sampling))
        strings = done.tokens.reshape(len(prompts), unit.diverse_completions, -1).tolist()
        right = done.right.reshape(len(prompts), -1).tolist()
        yield Diversity(
            seed=unit.seed,
            top_p=top_p,
            quota=quota,
            completions=unit.diverse_completions,
            distinct=tuple(len({tuple(s) for s in some}) for some in strings),
            distinct_right=tuple(
                len({tuple(s) for s, good in zip(some, fine, strict=True) if good})
                for some, fine in zip(strings, right, strict=True)
            ),
        )


STUDY = Study(
    name="dyck_backtracking",
    question="Does backtracking guided by a light verifier mend a language model's mistakes?",
    settings={
        Scale.SMOKE: DyckBacktracking.like(
            TINY,
            seeds=1,
            mistakes=12,
            unseen=40,
            repeats=2,
            splits=2,
            diverse_prompts=4,
            diverse_completions=4,
            pictured=12,
        ),
        Scale.LAPTOP: DyckBacktracking.like(
            SMALL,
            seeds=6,
            mistakes=300,
            unseen=1000,
            repeats=2,
            pictured=150,
        ),
        Scale.PAPER: DyckBacktracking(),
    },
    units=units,
    run=run,
    rows=ROWS,
)
