"""Guide a language model with a verifier: prompts in, texts out.

    lm = PretrainedCausalLM.from_pretrained("my-model")
    found = guide(lm, ["Write JSON: "], JsonPrefix(), max_new_tokens=40, rng=0)
    print(found.texts[0], found.accepted[0])
    guide(lm, prompts, rule, Backtracking(quota=4), sampling=Sampling(top_p=0.9), max_new_tokens=40)

The verifier is a plain function of the completion's text, `rule(text) -> bool | float`, or any
verifier of token ids. Every prompt draws from a stream of its own, so its text does not depend on
the other prompts or on the size of a batch.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    Any,
    NamedTuple,
    NotRequired,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    runtime_checkable,
)

from triptych.core.deprecation import renamed
from triptych.core.display import card, counted, records_table
from triptych.core.protocols import Decoder, Draws, ReadsStates, VerifierLike
from triptych.core.validation import (
    Count,
    Prefix,
    UserError,
    as_count,
    as_flag,
    as_list,
    as_seed,
    as_text,
    check_can,
    shown,
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
from triptych.guidance.canvas_lm import CanvasLM, canvas_algorithm, on_canvas_lm
from triptych.guidance.progress import Bar
from triptych.guidance.stops import as_stops
from triptych.inference.guided.algorithm import AnyAlgorithm
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.result import Event, Result
from triptych.inference.guided.transforms import PLAIN, Sampling
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.causal_cache import as_layer
from triptych.verifiers.grammars.grammar import Grammar

BATCH = 64
"""Prompts that are completed together where no number is given."""
_SHOWN = 10

_T = TypeVar("_T")
Message = Mapping[str, str]


class Streams(NamedTuple):
    """A seed, and the numbers of the streams from which prompts draw, one for each."""

    seed: Count
    numbers: Sequence[Count]


class Encoded(NamedTuple):
    """A prompt as tokens, without the model's BOS.

    prompt   what it stands for: the text or the conversation that a verifier is told
    """

    tokens: Sequence[int]
    prompt: Any


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


@runtime_checkable
class TextModel(Protocol):
    """A language model with its text side: `PretrainedCausalLM`, or `ServedLM` behind a URL."""

    tokenizer: Any
    bos_token: int | None
    length: int
    end_tokens: tuple[int, ...]

    @property
    def vocab_size(self) -> int: ...

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, without BOS."""
        ...

    def text_of(self, row: Sequence[int], *, special: bool = False) -> str:
        """The text of some tokens; with `special`, special tokens are written out too."""
        ...

    def chat(self, messages: str | Sequence[Message]) -> list[int]:
        """The tokens of a conversation, up to where the reply begins."""
        ...

    def decoder(
        self, prompts: Sequence[str] | Prefix, *, layer: Count | None = None
    ) -> Decoder | Draws:
        """Rows that stand at some prompts."""
        ...


@renamed(model="lm")
def guide(
    lm: TextModel | CanvasLM,
    prompts: str | Sequence[str] | Sequence[Sequence[Message]],
    verifier: TextFunction | VerifierLike | Grammar | None = None,
    algorithm: str | AnyAlgorithm | None = None,
    *,
    max_new_tokens: Count,
    rng: Count | Streams = 0,
    sampling: Sampling = PLAIN,
    stop: str | Sequence[str] = (),
    chat: bool = False,
    batch: Count = BATCH,
    budget: Budget | None = None,
    record: bool = False,
    progress: bool = False,
) -> Guided:
    """Complete every prompt, guided by the verifier.

    lm           a PretrainedCausalLM; or a CanvasLM, a diffusion language model with its tokens
    prompts      texts; with chat=True what a user says, or conversations, in the model's template
    verifier     a function of the completion's text that answers True, False or a probability; one
                 with a parameter `finished` is told when the text is over, one with a parameter
                 `prompt` is told the prompt. A coroutine function does too. Or a Grammar, for the
                 first engine that reads it; a RewardModel, a probe, or a verifier of token ids.
                 None leaves the model alone.
    algorithm    Backtracking(quota=4), or its name, "backtracking", with the defaults of its
                 options; None is "adaptive" for a function of text and a grammar, "backtracking"
                 for a learned verifier, "ancestral" without one, and "greedy" at temperature 0
                 with one. On a canvas "completion" for a grammar that is regular
    rng          a seed: prompt b draws from the stream of its number b. Streams(seed, numbers)
                 gives the prompts other numbers; a prompt draws the same under the same number and
                 seed, whichever prompts stand next to it
    sampling     temperature, top_p, top_k and min_p of the model's laws
    stop         strings that end a text, which does not hold them
    batch        prompts that are completed together
    progress     show on standard error how many prompts are done
    """
    check_language_model(lm)
    rule = _of_tokens(lm, verifier, algorithm)
    given = [prompts] if isinstance(prompts, str) else as_list("prompts", prompts, "prompts")
    if not given:
        raise UserError("prompts is empty; pass at least one")
    job = make_job(
        lm,
        given,
        rule,
        algorithm,
        max_new_tokens=max_new_tokens,
        rng=rng,
        sampling=sampling,
        stop=stop,
        chat=chat,
        budget=budget,
        record=record,
    )
    found: dict[int, Completion] = {}
    results: list[Result[Any]] = []
    members: list[list[int]] = []
    at_once = as_count("batch", batch, at_least=1)
    with Bar(len(given), shown=as_flag("progress", progress)) as bar:
        for part in job.run(at_once):
            results.append(part.result)
            members.append(part.numbers)
            found |= zip(part.numbers, job.completions(part), strict=True)
            bar.add(len(part.numbers), int(part.result.costs.generated.sum()))
    made = [found[number] for number in range(len(job.rows))]
    return Guided(
        prompts=[_shown_prompt(prompt) for prompt in job.prompt_texts],
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


class Asked(TypedDict):
    """What `guide_each` and `guide_stream` take besides; `guide` says what it means."""

    max_new_tokens: Count
    rng: NotRequired[Count]
    sampling: NotRequired[Sampling]
    stop: NotRequired[str | Sequence[str]]
    chat: NotRequired[bool]
    budget: NotRequired[Budget | None]


@renamed(model="lm")
def guide_each(
    lm: TextModel | CanvasLM,
    prompts: Iterable[Any],
    verifier: TextFunction | VerifierLike | Grammar | None = None,
    algorithm: str | AnyAlgorithm | None = None,
    *,
    batch: Count = BATCH,
    **asked: Unpack[Asked],
) -> Iterator[Completion]:
    """A `Completion` for every prompt of an iterable, in order; `batch` of them are held at once.

    The texts are those of `guide` with the same prompts and seed.
    """
    check_language_model(lm)
    rule = _of_tokens(lm, verifier, algorithm)
    at_once, seed = as_count("batch", batch, at_least=1), as_seed(asked.get("rng", 0), name="rng")
    waiting, begun = iter(prompts), 0
    while some := list(itertools.islice(waiting, at_once)):
        streams = Streams(seed, range(begun, begun + len(some)))
        more: dict[str, Any] = {**asked, "rng": streams}
        job = make_job(lm, some, rule, algorithm, **more)
        for part in job.run(at_once):
            yield from job.completions(part)
        begun += len(some)


@renamed(model="lm")
def make_job(
    lm: TextModel | CanvasLM,
    prompts: list[Any],
    verifier: TextFunction | VerifierLike | None,
    algorithm: str | AnyAlgorithm | None,
    *,
    max_new_tokens: Count,
    rng: Count | Streams = 0,
    sampling: Sampling = PLAIN,
    stop: str | Sequence[str] = (),
    chat: bool = False,
    budget: Budget | None = None,
    record: bool = False,
    listen: Callable[[int, Event], None] | None = None,
    left: Callable[[int], bool] | None = None,
) -> Job:
    """What is to be done, with everything checked that was given.

    prompts   as `guide` takes them, or all of them `Encoded`
    left      says of a prompt whether nobody waits for it any more
    """
    greedy = as_sampling(sampling).temperature == 0
    choose = canvas_algorithm if isinstance(lm, CanvasLM) else algorithm_called
    chosen = choose(algorithm, verifier, greedy=greedy)
    if greedy and chosen.name == "greedy":  # it takes the likeliest of what is accepted
        sampling = replace(sampling, temperature=1.0)
    text_function(verifier)  # refuses what is no verifier
    reads = layer_to_read(lm, verifier)
    limit = as_count("max_new_tokens", max_new_tokens, at_least=1)
    given, rows = _tokens(lm, prompts, as_flag("chat", chat))
    _check_room(lm, rows, limit)
    seed, numbers = _streams(rng, len(rows))
    return Job(
        rows,
        given,
        verifier,
        chosen,
        decode=lm.text_of,
        decoder=lambda begun: (
            lm.decoder(begun, limit) if isinstance(lm, CanvasLM) else lm.decoder(begun, layer=reads)
        ),
        limit=limit,
        ends=lm.end_tokens,
        seed=seed,
        streams=numbers,
        transform=sampling.transform(),
        budget=budget,
        record=as_flag("record", record),
        stop=as_stops(stop),
        listen=listen,
        left=left,
    )


def _all(values: list[_T | None]) -> list[_T] | None:
    """The values, or None where there are none."""
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None


def _of_tokens(
    lm: TextModel | CanvasLM, verifier: Any, algorithm: str | AnyAlgorithm | None
) -> Any:
    """A grammar as a verifier of this model's tokens; others as they are."""
    if isinstance(lm, CanvasLM):
        return on_canvas_lm(lm, verifier, algorithm)
    return verifier.on(lm) if isinstance(verifier, Grammar) else verifier


def _tokens(
    lm: TextModel | CanvasLM, given: list[Any], chat: bool
) -> tuple[list[Any], list[list[int]]]:
    """The prompts as they were given, and as tokens."""
    if all(isinstance(each, Encoded) for each in given):
        return [each.prompt for each in given], [list(each.tokens) for each in given]
    if chat:
        if isinstance(lm, CanvasLM):
            raise UserError("a canvas has no template of conversations; pass texts and chat=False")
        return given, [lm.chat(said) for said in given]
    texts = [as_text(f"prompts[{b}]", text) for b, text in enumerate(given)]
    rows = lm.encode(texts)
    for b, row in enumerate(rows):
        if not row and lm.bos_token is None and not isinstance(lm, CanvasLM):
            raise UserError(
                f"prompts[{b}] is empty, and this model has no BOS token to begin with; write at "
                "least one character, or make the model with bos=ID"
            )
    return texts, rows


def _shown_prompt(prompt: Any) -> str:
    """A text, or what was said last in a conversation."""
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


@renamed(model="lm")
def check_language_model(lm: object) -> None:
    """Text goes in and comes out; a name or a bare model of transformers must be wrapped first."""
    if isinstance(lm, str):
        raise UserError(f"lm is {lm!r}; load it first, PretrainedCausalLM.from_pretrained({lm!r})")
    if hasattr(lm, "generate") and not hasattr(lm, "decoder"):
        raise UserError(
            f"lm is a {type(lm).__name__} of transformers; pass it with its tokenizer, "
            "PretrainedCausalLM(model, tokenizer)"
        )
    check_can("lm", lm, "decoder", "encode", "text_of", "end_tokens")


@runtime_checkable
class ChecksModel(Protocol):
    """A verifier that refuses a language model that it was not made for."""

    def check_model(self, lm: Any, /) -> None: ...


def layer_to_read(lm: TextModel | CanvasLM, verifier: object) -> int | None:
    """The layer whose states the verifier reads, if it reads any."""
    if isinstance(lm, CanvasLM):
        if isinstance(verifier, ReadsStates):
            raise UserError(
                f"{type(verifier).__name__} reads the states of an autoregressive model, and a "
                "canvas has none; take a function of text or a grammar"
            )
        return None
    if isinstance(verifier, ChecksModel):
        verifier.check_model(lm)
    if not isinstance(verifier, ReadsStates):
        return None
    if not isinstance(lm, PretrainedCausalLM):
        raise UserError(
            f"{type(verifier).__name__} reads the states of a network, which {lm!r} keeps where "
            "it is; load the model here, PretrainedCausalLM.from_pretrained, or pass a verifier of "
            "texts",
            parameter="verifier",
        )
    return as_layer(-1 if verifier.layer is None else verifier.layer, lm.model)


def _check_room(lm: TextModel | CanvasLM, rows: list[list[int]], limit: int) -> None:
    for b, row in enumerate(rows):
        if len(row) + limit > lm.length:
            raise UserError(
                f"prompts[{b}] has {len(row)} tokens and max_new_tokens is {limit}; this model "
                f"reads at most {lm.length}: shorten the prompt or max_new_tokens"
            )


def _streams(rng: Count | Streams, prompts: int) -> tuple[int, Sequence[int]]:
    """The seed, and the number of the stream from which each prompt draws."""
    if not isinstance(rng, Streams):
        return as_seed(rng, name="rng"), range(prompts)
    given = as_list("numbers", rng.numbers, "numbers, one for each prompt")
    if len(given) != prompts:
        raise UserError(
            f"numbers has {len(given)} numbers; there are {prompts} prompts, and each has one"
        )
    most = 2**63 - 1
    numbers = [as_count("a number of numbers", number, at_most=most) for number in given]
    return as_seed(rng.seed, name="rng"), numbers


def as_sampling(sampling: Sampling) -> Sampling:
    """The sampling itself; a dictionary or a number is none."""
    if not isinstance(sampling, Sampling):
        raise UserError(
            f"sampling is {shown(sampling)}; it must be a Sampling(temperature=..., top_p=..., "
            "top_k=..., min_p=...)"
        )
    return sampling


def _totals(results: Sequence[Result[Any]]) -> dict[str, int | float]:
    totals: dict[str, int | float] = {}
    for result in results:
        for name, value in result.costs.totals().items():
            totals[name] = totals.get(name, 0) + value
    return totals
