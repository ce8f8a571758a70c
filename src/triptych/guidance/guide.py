"""Guide a language model with a verifier: prompts in, texts out.

    lm = PretrainedCausalLM.from_pretrained("my-model")
    found = guide(lm, ["Write JSON: "], JsonPrefix(), max_new_tokens=40, rng=0)
    print(found.texts[0], found.accepted[0])

The verifier is a plain function of the completion's text, `rule(text) -> bool | float`, or any
verifier of token ids. Every prompt draws from a stream of its own, so its text does not depend on
the other prompts or on the size of a batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from triptych.core.display import card, counted, records_table
from triptych.core.protocols import ReadsStates, VerifierLike
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
    check_can,
)
from triptych.guidance.batches import (
    Candidate,
    Completion,
    Job,
    Particle,
    TextFunction,
    algorithm_called,
    text_function,
)
from triptych.inference.guided.algorithm import Algorithm
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.result import Result
from triptych.inference.guided.transforms import Transform, compose, nucleus, temperature, top_k
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.causal_cache import as_layer

BATCH = 64
"""Prompts that are completed together where no number is given."""
_SHOWN = 10

_T = TypeVar("_T")
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
    candidates   where the algorithm chose among whole texts, as best_of_n does: all of them with
                 their values, for each prompt; else None
    weights      where it weighed particles: all of them with their log-weights, which are
                 normalised for each prompt; else None
    log_evidence   with weights, the logarithm of the estimate of E[V] under the model, for each
                 prompt: -inf where every particle was refused
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
    candidates: list[list[Candidate]] | None = field(repr=False)
    weights: list[list[Particle]] | None = field(repr=False)
    log_evidence: list[float] | None
    results: list[Result[Any]] = field(repr=False)
    members: list[list[int]] = field(repr=False)

    def __repr__(self) -> str:
        return (
            f"Guided({counted(len(self.texts), 'text')}, {sum(self.complete)} complete, "
            f"{sum(bool(said) for said in self.accepted)} accepted)"
        )

    def _repr_html_(self) -> str:
        """For a notebook: a line for each of the first texts."""
        several = self.candidates or self.weights
        lines = [
            [
                self.prompts[b],
                self.texts[b],
                "complete" if self.complete[b] else self.reasons[b] or "",
                "accepted" if self.accepted[b] else "",
                self.costs[b]["generator_calls"],
                *([] if several is None else [len(several[b])]),
            ]
            for b in range(min(_SHOWN, len(self.texts)))
        ]
        more = len(self.texts) - len(lines)
        chosen_among = "candidates" if self.candidates is not None else "particles"
        columns = ("prompt", "text", "", "", "generator calls")
        columns += () if several is None else (chosen_among,)
        return card(repr(self), records_table(columns, lines, f"and {more} more" if more else ""))


def guide(
    model: PretrainedCausalLM,
    prompts: str | Sequence[str] | Sequence[Sequence[Message]],
    verifier: TextFunction | VerifierLike | None = None,
    algorithm: str | Algorithm | None = None,
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
                 with a parameter `finished` is told when the text is over, one with a parameter
                 `prompt` is told the prompt. Or a RewardModel, a probe, or a verifier of token ids.
                 None leaves the model alone.
    algorithm    its name or its record; None is "adaptive" for a function of text, "backtracking"
                 for a learned verifier and "ancestral" without one. `options` are its own, as
                 quota=4, and have the values of its demonstration where they are not given
    layer        of the hidden states that a verifier of states reads; a probe knows its own
    batch        prompts that are completed together
    numbers      of the prompts' streams; 0, 1, 2, ... where they are not given. A prompt draws the
                 same under the same number and seed, whichever prompts stand beside it.
    """
    check_language_model(model)
    chosen = algorithm_called(algorithm, verifier)
    settings = chosen.settings(options)
    text_function(verifier)  # refuses what is no verifier
    reads = layer_to_read(model, verifier, layer)
    limit, seed = as_count("max_new_tokens", max_new_tokens, at_least=1), as_seed(rng, name="rng")
    at_once = as_count("batch", batch, at_least=1)
    given, rows = _tokens(model, prompts, as_flag("chat", chat))
    _check_room(model, rows, limit)
    job = Job(
        rows,
        given,
        verifier,
        chosen,
        settings,
        decode=model.text_of,
        decoder=lambda begun: model.decoder(begun, layer=reads),
        limit=limit,
        ends=model.end_tokens,
        seed=seed,
        streams=_streams(numbers, len(rows)),
        transform=_transform(temperature, top_p, top_k),
        budget=budget,
        record=as_flag("record", record),
    )
    found: dict[int, Completion] = {}
    results: list[Result[Any]] = []
    members: list[list[int]] = []
    for part in job.run(at_once):
        results.append(part.result)
        members.append(part.numbers)
        found |= zip(part.numbers, job.completions(part), strict=True)
    made = [found[number] for number in range(len(rows))]
    return Guided(
        prompts=[_shown_prompt(prompt) for prompt in given],
        texts=[row.text for row in made],
        accepted=[row.accepted for row in made],
        complete=[row.complete for row in made],
        reasons=[row.reason for row in made],
        scores=[row.score for row in made],
        costs=[row.costs for row in made],
        totals=_totals(results),
        candidates=_all([row.candidates for row in made]),
        weights=_all([row.particles for row in made]),
        log_evidence=_all([row.log_evidence for row in made]),
        results=results,
        members=members,
    )


def _all(values: list[_T | None]) -> list[_T] | None:
    """The values, or None where there are none."""
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None


def _tokens(
    model: PretrainedCausalLM, prompts: Any, chat: bool
) -> tuple[list[Any], list[list[int]]]:
    """The prompts as they were given, and as tokens."""
    given = [prompts] if isinstance(prompts, str) else as_list("prompts", prompts, "prompts")
    if not given:
        raise UserError("prompts is empty; pass at least one")
    if chat:
        return given, [model.chat(said) for said in given]
    texts = [as_text(f"prompts[{b}]", text) for b, text in enumerate(given)]
    rows = model.encode(texts)
    for b, row in enumerate(rows):
        if not row and model.bos_token is None:
            raise UserError(
                f"prompts[{b}] is empty, and this model has no BOS token to begin with; write at "
                "least one character, or make the model with bos=ID"
            )
    return texts, rows


def _shown_prompt(prompt: Any) -> str:
    """A text, or what was said last in a conversation."""
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


def check_language_model(model: object) -> None:
    """Text goes in and comes out; a name or a bare model of transformers must be wrapped first."""
    if isinstance(model, str):
        raise UserError(
            f"model is {model!r}; load it first, PretrainedCausalLM.from_pretrained({model!r})"
        )
    if hasattr(model, "generate") and not hasattr(model, "decoder"):
        raise UserError(
            f"model is a {type(model).__name__} of transformers; pass it with its tokenizer, "
            "PretrainedCausalLM(model, tokenizer)"
        )
    check_can("model", model, "decoder", "encode", "text_of", "end_tokens", "model")


@runtime_checkable
class ChecksModel(Protocol):
    """A verifier that refuses a language model that it was not made for."""

    def check_model(self, model: PretrainedCausalLM) -> None: ...


def layer_to_read(model: PretrainedCausalLM, verifier: object, layer: Count | None) -> int | None:
    """The layer whose states the verifier reads: its own, if it has one."""
    own = verifier.layer if isinstance(verifier, ReadsStates) else None
    if isinstance(verifier, ChecksModel):
        verifier.check_model(model)
    if layer is None:
        return own
    asked = as_layer(layer, model.model)
    if own is not None and own != asked:
        raise UserError(
            f"layer is {asked}, and the verifier was trained on layer {own}; leave layer out"
        )
    return asked


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


def _totals(results: Sequence[Result[Any]]) -> dict[str, int | float]:
    totals: dict[str, int | float] = {}
    for result in results:
        for name, value in result.costs.totals().items():
            totals[name] = totals.get(name, 0) + value
    return totals
