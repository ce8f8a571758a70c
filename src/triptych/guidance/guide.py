"""Guide a language model with a verifier: prompts in, texts out.

    lm = PretrainedCausalLM.from_pretrained("my-model")
    found = guide(lm, ["Write JSON: "], JsonPrefix(), max_new_tokens=40, rng=0)
    print(found.texts[0], found.accepted[0])

The verifier is a plain function of the completion's text, `rule(text) -> bool | float`, or any
verifier of token ids. Every prompt draws from a stream of its own, so its text does not depend on
the other prompts or on the size of a batch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from triptych.core.display import card, counted, records_table
from triptych.core.protocols import DecoderValue, Value, Verifier
from triptych.core.streams import RowStreams
from triptych.core.validation import (
    Count,
    Number,
    UserError,
    as_count,
    as_flag,
    as_list,
    as_number,
    as_probability,
    as_seed,
    as_text,
    check_callable,
    check_can,
)
from triptych.inference.guided.algorithm import Algorithm, algorithms
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.result import Result
from triptych.inference.guided.transforms import Transform, compose, nucleus, temperature, top_k
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.verifiers.text import TextRule

BATCH = 64
"""Prompts that are completed together where no number is given."""
THRESHOLD = 0.5
"""V from which a finished text is accepted, where the algorithm has no threshold of its own."""
_SHOWN = 10

TextFunction = Callable[..., Any]
Message = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Guided:
    """What came out, a place for every prompt.

    texts        the completions, without their prompts
    accepted     what the verifier says of the finished text: True or False; None where it was
                 not asked, which is only with a verifier of token ids or none
    complete     the model ended the text or wrote all `max_new_tokens`
    reasons      why a text is not complete, or None
    scores       V of the finished text, where the verifier is a function of text; else None
    costs        of each prompt: generator_calls, generated, erased, verifier_calls
    totals       forward passes and seconds, over all batches
    results      what the algorithm returned for each batch: tokens, traces, its `info`
    members      the prompts of each batch, by their place
    """

    prompts: list[str]
    texts: list[str]
    accepted: list[bool | None]
    complete: list[bool]
    reasons: list[str | None]
    scores: list[float | None]
    costs: list[dict[str, int]]
    totals: dict[str, int | float]
    results: list[Result[Any]] = field(repr=False)
    members: list[list[int]] = field(repr=False)

    def __repr__(self) -> str:
        return (
            f"Guided({counted(len(self.texts), 'text')}, {sum(self.complete)} complete, "
            f"{sum(bool(said) for said in self.accepted)} accepted)"
        )

    def _repr_html_(self) -> str:
        """For a notebook: a line for each of the first texts."""
        lines = [
            [
                prompt,
                text,
                "complete" if complete else reason or "",
                "accepted" if accepted else "",
                costs["generator_calls"],
            ]
            for prompt, text, complete, reason, accepted, costs in zip(
                self.prompts[:_SHOWN],
                self.texts[:_SHOWN],
                self.complete[:_SHOWN],
                self.reasons[:_SHOWN],
                self.accepted[:_SHOWN],
                self.costs[:_SHOWN],
                strict=True,
            )
        ]
        more = len(self.texts) - len(lines)
        columns = ("prompt", "text", "", "", "generator calls")
        return card(repr(self), records_table(columns, lines, f"and {more} more" if more else ""))


def guide(
    model: PretrainedCausalLM,
    prompts: str | Sequence[str] | Sequence[Sequence[Message]],
    verifier: TextFunction | Verifier | None = None,
    algorithm: str | Algorithm = "backtracking",
    *,
    max_new_tokens: Count,
    rng: Count = 0,
    temperature: Number = 1.0,
    top_p: Number = 1.0,
    top_k: Count = 0,
    chat: bool = False,
    layer: Count | None = None,
    batch: Count = BATCH,
    numbers: Sequence[Count] | None = None,
    budget: Budget | None = None,
    record: bool = False,
    **options: Any,
) -> Guided:
    """Complete every prompt, guided by the verifier.

    prompts      texts; with chat=True what a user says, or conversations, in the model's template
    verifier     a function of the completion's text that answers True, False or a probability; one
                 with a parameter `finished` is told when the text is over. Or a verifier of token
                 ids. None leaves the model alone (algorithm="ancestral").
    algorithm    its name or its record; `options` are its own, as quota=4, and have the values of
                 its demonstration where they are not given
    layer        of the hidden states that a verifier of states reads
    batch        prompts that are completed together
    numbers      of the prompts' streams; 0, 1, 2, ... where they are not given. A prompt draws the
                 same under the same number and seed, whichever prompts stand beside it.
    """
    check_can("model", model, "decoder", "encode", "text_of", "end_tokens")
    chosen = _algorithm(algorithm, verifier)
    settings = chosen.settings(options)
    limit, seed = as_count("max_new_tokens", max_new_tokens, at_least=1), as_seed(rng, name="rng")
    at_once = as_count("batch", batch, at_least=1)
    texts, rows = _tokens(model, prompts, as_flag("chat", chat))
    _check_room(model, rows, limit)
    streams = _streams(numbers, len(rows))
    transform = _transform(temperature, top_p, top_k)
    threshold = float(settings.get("threshold", THRESHOLD))
    function = _function(verifier)
    found: dict[int, _Row] = {}
    results: list[Result[Any]] = []
    batches = _batches(rows, at_once, apart=function is not None)
    for members in batches:
        begun = [rows[number] for number in members]
        rule = verifier
        if function is not None:
            rule = TextRule(
                function, model.text_of, prompts=begun, end_token=model.end_tokens or None
            )
        decoder = model.decoder(begun, layer=layer)
        result = chosen.sample(
            decoder,
            rule,
            length=[len(row) + limit for row in begun],
            end_token=model.end_tokens or None,
            transform=transform,
            budget=budget,
            record=record,
            rng=RowStreams(
                seed, torch.tensor([streams[n] for n in members], device=decoder.lengths.device)
            ),
            **settings,
        )
        results.append(result)
        for place, number in enumerate(members):
            found[number] = _row(model, result, place, function, threshold)
    made = [found[number] for number in range(len(rows))]
    return Guided(
        prompts=texts,
        texts=[row.text for row in made],
        accepted=[row.accepted for row in made],
        complete=[row.complete for row in made],
        reasons=[row.reason for row in made],
        scores=[row.score for row in made],
        costs=[row.costs for row in made],
        totals=_totals(results),
        results=results,
        members=batches,
    )


@dataclass(frozen=True)
class _Row:
    text: str
    complete: bool
    reason: str | None
    accepted: bool | None
    score: float | None
    costs: dict[str, int]


def _row(
    model: PretrainedCausalLM,
    result: Result[Any],
    place: int,
    function: TextFunction | None,
    threshold: float,
) -> _Row:
    """What came out of one prompt; a function of text is asked about the finished text."""
    tokens = list(result.completions()[place])
    ends = set(model.end_tokens)
    while tokens and tokens[-1] in ends:
        tokens.pop()
    text = model.text_of(tokens)
    complete, score = bool(result.complete[place]), None
    accepted = bool(result.accepted[place]) if bool(result.verified[place]) else None
    if function is not None:
        score = _score(function, text)
        accepted = complete and score >= threshold
    costs = result.costs
    columns = ("generator_calls", "generated", "erased", "verifier_calls")
    return _Row(
        text,
        complete,
        result.reasons[place],
        accepted,
        score,
        {name: int(getattr(costs, name)[place]) for name in columns},
    )


def _score(function: TextFunction, text: str) -> float:
    """V of a finished text."""
    rule = TextRule(function, lambda tokens: text, length=1)
    return math.exp(float(rule.log_value(torch.zeros((1, 1), dtype=torch.long))[0]))


def _algorithm(algorithm: str | Algorithm, verifier: object) -> Algorithm:
    if isinstance(algorithm, Algorithm):
        return algorithm
    known = algorithms()
    name = as_text("algorithm", algorithm).replace("-", "_")
    if name not in known:
        raise UserError(f"there is no algorithm {algorithm!r}; there are {', '.join(known)}")
    if verifier is None and name != "ancestral":
        raise UserError(
            f"{name} needs a verifier; without one, pass algorithm='ancestral', which samples from "
            "the model"
        )
    return known[name]


def _function(verifier: TextFunction | Verifier | None) -> TextFunction | None:
    """The verifier, if it is a function of text."""
    if verifier is None or isinstance(verifier, Value | DecoderValue):
        return None
    check_callable("verifier", verifier, "verifier(text)")
    return verifier


def _tokens(
    model: PretrainedCausalLM, prompts: Any, chat: bool
) -> tuple[list[str], list[list[int]]]:
    """The prompts as texts and as tokens."""
    given = [prompts] if isinstance(prompts, str) else as_list("prompts", prompts, "prompts")
    if not given:
        raise UserError("prompts is empty; pass at least one")
    if not chat:
        texts = [as_text(f"prompts[{b}]", text) for b, text in enumerate(given)]
        return texts, model.encode(texts)
    rows = [model.chat(said) for said in given]
    return [said if isinstance(said, str) else str(said[-1]["content"]) for said in given], rows


def _check_room(model: PretrainedCausalLM, rows: list[list[int]], limit: int) -> None:
    for b, row in enumerate(rows):
        if len(row) + limit > model.length:
            raise UserError(
                f"prompts[{b}] has {len(row)} tokens and max_new_tokens is {limit}; this model "
                f"reads at most {model.length}: shorten the prompt or max_new_tokens"
            )


def _streams(numbers: Sequence[Count] | None, prompts: int) -> list[int]:
    """The number of the stream from which each prompt draws."""
    if numbers is None:
        return list(range(prompts))
    given = as_list("numbers", numbers, "numbers, one for each prompt")
    if len(given) != prompts:
        raise UserError(
            f"numbers has {len(given)} numbers; there are {prompts} prompts, and each has one"
        )
    return [as_count("a number of numbers", number, at_most=2**63 - 1) for number in given]


def _transform(heat: Number, share: Number, most: Count) -> Transform | None:
    """Temperature, then top-k, then nucleus, as `generate` of transformers has them."""
    parts: list[Transform] = []
    heat = as_number("temperature", heat, above=0)
    share, most = as_probability("top_p", share), as_count("top_k", most)
    if heat != 1:
        parts.append(temperature(heat))
    if most:
        parts.append(top_k(most))
    if share < 1:
        parts.append(nucleus(share))
    return compose(*parts) if parts else None


def _batches(rows: list[list[int]], at_once: int, *, apart: bool) -> list[list[int]]:
    """The numbers of the prompts of every batch, in order.

    A rule on text finds a row's prompt by its beginning. So with `apart` no prompt of a batch is
    the beginning of another one there.
    """
    batches: list[list[int]] = []
    for number, row in enumerate(rows):
        for members in batches:
            if len(members) < at_once and not (
                apart and any(_begins(row, rows[other]) for other in members)
            ):
                members.append(number)
                break
        else:
            batches.append([number])
    return batches


def _begins(one: list[int], other: list[int]) -> bool:
    """One of two different rows is the beginning of the other."""
    short = min(len(one), len(other))
    return len(one) != len(other) and one[:short] == other[:short]


def _totals(results: Sequence[Result[Any]]) -> dict[str, int | float]:
    totals: dict[str, int | float] = {}
    for result in results:
        for name, value in result.costs.totals().items():
            totals[name] = totals.get(name, 0) + value
    return totals
