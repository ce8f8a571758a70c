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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.decoders import PAD
from triptych.core.randomness import TorchRng
from triptych.inference.run import Result
from triptych.models.cache import CachedDecoder
from triptych.structures.bracket_parse import DyckError
from triptych.studies.dyck_claims import CLAIMS
from triptych.studies.dyck_pictures import FIGURES
from triptych.studies.study import Bench, Row, Scale, Study, Unit
from triptych.studies.trained_dyck import (
    SMALL,
    TINY,
    Sampling,
    Trained,
    TrainedDyck,
    complete,
    completed_anyhow,
    correct_like,
    draw_prompts,
    gather_mistakes,
    guided,
    one_for_each_network,
    plainly,
    read,
    refused_prefixes,
    states_of,
    trained,
)
from triptych.studies.tsne import neighbour_agreement, tsne
from triptych.verifiers.probe import Probe, split_score

TOP_PS = (0.9, 1.0)
STRIDES = (1, 2, 4, 8)  # of Table 3.1
QUOTAS, QUOTA_STRIDES = (1, 2, 4), (2, 4, 6)  # of Tables 3.2 and 3.4


@dataclass(frozen=True)
class DyckBacktracking(TrainedDyck):
    """Settings of the tables, besides those of the network.

    unseen      prompts of Tables 3.3 and 3.16, sampled `repeats` times each
    quota, stride   of Algorithm 1 there
    splits      random splits of the probe's strings, `held_out` of them for validation
    diverse_prompts, diverse_completions   of Table 3.5
    pictured    strings of each kind in Figure 3.1
    threshold   below which the probe's probability is a refusal
    """

    unseen: int = 10_000
    repeats: int = 5
    quota: int = 4
    stride: int = 4
    splits: int = 10
    held_out: float = 0.102
    diverse_prompts: int = 100
    diverse_completions: int = 10
    pictured: int = 441
    threshold: float = 0.5


def units(settings: DyckBacktracking) -> Sequence[Unit]:
    """One for each network."""
    if not 1 <= settings.shortest_prompt <= settings.longest_prompt < settings.length:
        raise ValueError(
            "prompts must have 1 ≤ shortest_prompt ≤ longest_prompt < length tokens; here "
            f"{settings.shortest_prompt}, {settings.longest_prompt} and {settings.length}"
        )
    return one_for_each_network(settings)


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Train, gather mistakes, train the probe, then every table."""
    p = unit.parameters
    model = trained(p, bench, unit.seed)
    for row in _tables(p, model, bench):
        yield {"seed": unit.seed, **row}


def _tables(p: Mapping[str, Any], model: Trained, bench: Bench) -> Iterator[Row]:
    yield _language_model(p, model, bench)
    mistakes = gather_mistakes(p, model, 2 * p["mistakes"], bench.rng("mistakes"))
    half = len(mistakes.tokens) // 2
    yield {"kind": "mistakes", "found": len(mistakes.tokens), "prompts": mistakes.prompts}
    if half < 10:
        return  # the network hardly ever errs: there is nothing to learn a verifier from
    training = mistakes.take(0, half)
    right = correct_like(training, model.ood, bench.rng("correct strings"))
    states = torch.cat([states_of(model.lm, training.tokens), states_of(model.lm, right)])
    correct = torch.arange(len(states), device=states.device) >= half
    yield _probe_scores(p, states, correct)
    yield _picture(p, states, correct)
    layers = model.lm.net.shape.layers
    probe = Probe.fit(states, correct, layer=layers)
    prefixes = mistakes.take(half, 2 * half).inducing()
    yield from _strides(p, model, prefixes, bench.rng("strides"))
    yield from _quotas(p, model, probe, prefixes, bench.rng("quotas"))
    yield from _unseen(p, model, probe, bench)
    yield from _diversity(p, model, probe, bench.rng("diversity"))


def _language_model(p: Mapping[str, Any], model: Trained, bench: Bench) -> Row:
    """Completion accuracy in and out of distribution, and the right closing bracket by argmax."""
    rng = bench.rng("language model")
    found: Row = {"kind": "lm", "kl": model.kl, "prompts": p["unseen"]}
    for name, law in (("in", model.law), ("out", model.ood)):
        prompts = draw_prompts(p, law, p["unseen"], rng)
        done = read(model.law, complete(model.lm, prompts, plainly(p, model.law, p["top_p"], rng)))
        found |= {f"{name}_accuracy": done.accuracy, f"{name}_errors": done.errors}
    tokens = model.law.sample(min(2000, p["unseen"]), rng)
    closing = (tokens % 2 == 1) & (tokens < model.law.vocab_size - 1)
    logits = torch.cat([model.lm.every_next_token_log_probs(t) for t in tokens.split(500)])
    brackets = logits[..., 1:4:2].argmax(-1) * 2 + 1  # the likelier of the two closing brackets
    found["closing_accuracy"] = float((brackets == tokens)[closing].double().mean())
    return found


def _probe_scores(p: Mapping[str, Any], states: Tensor, correct: Tensor) -> Row:
    held_out = max(2, round(p["held_out"] * len(states)))
    scores = split_score(states, correct, train=len(states) - held_out, repetitions=p["splits"])
    return {
        "kind": "verifier",
        "strings": len(states),
        "held_out": held_out,
        "accuracies": scores.tolist(),
    }


def _picture(p: Mapping[str, Any], states: Tensor, correct: Tensor) -> Row:
    """t-SNE of both kinds of strings, and how far neighbours are of one kind."""
    half = len(states) // 2
    some = min(half, p["pictured"])
    chosen = torch.cat([states[:some], states[half : half + some]]).double()
    labels = torch.cat([correct[:some], correct[half : half + some]])
    perplexity = min(30.0, some / 2)
    plane = tsne(chosen, perplexity=perplexity)
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    neighbours = min(10, some // 2)
    return {
        "kind": "picture",
        "points": [[round(x, 2) for x in point] for point in plane.tolist()],
        "correct": labels.long().tolist(),
        "agreement": neighbour_agreement(plane, labels, neighbours=neighbours),
        "agreement_of_states": neighbour_agreement(chosen, labels, neighbours=neighbours),
        "agreement_by_chance": neighbour_agreement(plane, shuffled, neighbours=neighbours),
    }


def _strides(
    p: Mapping[str, Any], model: Trained, prefixes: Int[Tensor, "count t"], rng: TorchRng
) -> Iterator[Row]:
    """Table 3.1: erase B tokens once, by force, then go on sampling."""

    def row(config: str, stride: int, sampling: Sampling) -> Row:
        done = read(model.law, complete(model.lm, prefixes, sampling))
        return {
            "kind": "stride",
            "config": config,
            "stride": stride,
            "accuracy": done.accuracy,
            "prefixes": len(prefixes),
        }

    yield row("nucleus", 0, plainly(p, model.law, p["top_p"], rng))
    yield row("greedy", 0, plainly(p, model.law, 0.0, rng))
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
                return plainly(p, model.law, p["top_p"], rng)(decoder)

            yield row("erased, redone by argmax" if redo else "erased", stride, erased_first)


def _quotas(
    p: Mapping[str, Any],
    model: Trained,
    probe: Probe,
    prefixes: Int[Tensor, "count t"],
    rng: TorchRng,
) -> Iterator[Row]:
    """Table 3.2, and Table 3.4: what becomes of the refused prefixes without backtracking."""
    for quota in QUOTAS:
        for stride in QUOTA_STRIDES:
            for into_prompt, verify in ((p["length"], False), (0, False), (p["length"], True)):
                printed = into_prompt > 0 and not verify
                algorithm = guided(
                    p,
                    model,
                    probe,
                    rng,
                    quota=quota,
                    stride=stride,
                    top_p=p["top_p"],
                    into_prompt=into_prompt,
                    verify_redone=verify,
                    record=printed,
                )
                results = complete(model.lm, prefixes, algorithm)
                row: Row = {
                    "kind": "quota",
                    "quota": quota,
                    "stride": stride,
                    "into_prompt": into_prompt > 0,
                    "verify_redone": verify,
                    "accuracy": read(model.law, results).accuracy,
                    "prefixes": len(prefixes),
                }
                if printed:
                    row |= _without_backtracking(p, model, results, prefixes, rng)
                yield row


def _without_backtracking(
    p: Mapping[str, Any],
    model: Trained,
    results: list[Result],
    prefixes: Int[Tensor, "count t"],
    rng: TorchRng,
) -> Row:
    """Complete the refused prefixes plainly, with and without the token that was refused."""
    refused = refused_prefixes(results, prefixes)
    found: Row = {"backtracks": len(refused)}
    if len(refused) == 0:
        return found
    lengths = (refused != PAD).sum(1)
    columns = torch.arange(refused.shape[1], device=refused.device)
    before = refused.masked_fill(columns >= lengths[:, None] - 1, PAD)
    for name, strings in (("before", before), ("with", refused)):
        # A refused string that has ended, or is full, has no completion: it counts as it stands.
        for way, top_p in (("nucleus", p["top_p"]), ("argmax", 0.0)):
            accuracy = completed_anyhow(model, strings, plainly(p, model.law, top_p, rng))
            found[f"{name}_refused_{way}"] = accuracy
    return found


def _unseen(p: Mapping[str, Any], model: Trained, probe: Probe, bench: Bench) -> Iterator[Row]:
    """Tables 3.3 and 3.16, and what the errors that remain are (Figure 3.2)."""
    prompts = draw_prompts(p, model.ood, p["unseen"], bench.rng("unseen prompts"))
    rng = bench.rng("unseen")
    most = p["quota"]
    configs = [(top_p, quota, True, False, 0) for top_p in TOP_PS for quota in (0, most)]
    configs += [(top_p, most, True, True, 0) for top_p in TOP_PS]
    configs += [(p["top_p"], most, False, False, 0), (p["top_p"], most, True, False, p["length"])]
    for repeat in range(p["repeats"]):
        for top_p, quota, redo, verify, into_prompt in configs:
            sampling = guided(
                p,
                model,
                probe,
                rng,
                quota=quota,
                stride=p["stride"],
                top_p=top_p,
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
            yield {
                "kind": "unseen",
                "top_p": top_p,
                "quota": quota,
                "stride": p["stride"] if quota else 0,
                "redo_argmax": redo,
                "verify_redone": verify,
                "into_prompt": into_prompt > 0,
                "repeat": repeat,
                "prompts": len(prompts),
                "errors": done.errors,
                "error_kinds": {name: count for name, count in kinds.items() if count},
                "quota_used_up": int((left[wrong] == 0).sum()),
                "generated": sum(cost["generated"] for cost in costs),
                "verifier_calls": sum(cost["verifier_calls"] for cost in costs),
                "seconds": sum(cost["seconds"] for cost in costs),
            }


def _diversity(p: Mapping[str, Any], model: Trained, probe: Probe, rng: TorchRng) -> Iterator[Row]:
    """Table 3.5: distinct completions of a prompt, and distinct right ones."""
    prompts = draw_prompts(p, model.ood, p["diverse_prompts"], rng)
    many = prompts.repeat_interleave(p["diverse_completions"], dim=0)
    for top_p, quota in ((1.0, p["quota"]), (0.9, 0), (1.0, 0)):
        sampling = guided(p, model, probe, rng, quota=quota, stride=p["stride"], top_p=top_p)
        done = read(model.law, complete(model.lm, many, sampling))
        strings = done.tokens.reshape(len(prompts), p["diverse_completions"], -1).tolist()
        right = done.right.reshape(len(prompts), -1).tolist()
        yield {
            "kind": "diversity",
            "top_p": top_p,
            "quota": quota,
            "completions": p["diverse_completions"],
            "distinct": [len({tuple(s) for s in some}) for some in strings],
            "distinct_right": [
                len({tuple(s) for s, good in zip(some, fine, strict=True) if good})
                for some, fine in zip(strings, right, strict=True)
            ],
        }


STUDY = Study(
    name="dyck_backtracking",
    about="Does backtracking guided by a light verifier mend a language model's mistakes?",
    settings={
        Scale.SMOKE: DyckBacktracking(
            seeds=1,
            **TINY,
            mistakes=12,
            unseen=40,
            repeats=2,
            splits=2,
            diverse_prompts=4,
            diverse_completions=4,
            pictured=12,
        ),
        Scale.LAPTOP: DyckBacktracking(
            seeds=6,
            **SMALL,
            mistakes=300,
            unseen=1000,
            repeats=2,
            pictured=150,
        ),
        Scale.PAPER: DyckBacktracking(),
    },
    units=units,
    run=run,
    claims=CLAIMS,
    figures=FIGURES,
)
