"""Guided algorithms inside `model.generate` of transformers, as its `custom_generate`.

    search = triptych.hf.backtracking(rule, quota=4, stride=4, tokenizer=tokenizer)
    ids = model.generate(**inputs, custom_generate=search, do_sample=True, max_new_tokens=40)

`generate` prepares the prompts, the generation config and the logits processors, and then calls us
instead of its own loop. We honour

    max_new_tokens, max_length, max_time, eos_token_id, pad_token_id, num_return_sequences
    temperature, top_k, top_p and every other logits processor, and do_sample=False, the argmax
    attention_mask of prompts that are filled up on the left
    return_dict_in_generate, with `sequences`, `complete` and `accepted`
    streamer, which gets a text when it is done, because tokens may be taken back

and refuse the rest in one sentence: beams, assistants, stop strings, scores of every step.
"""

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from triptych.core.protocols import VerifierLike
from triptych.core.validation import (
    Count,
    UserError,
    as_count,
    as_seed,
    check_can,
    shown,
)
from triptych.guidance.batches import (
    Completion,
    Job,
    TextFunction,
    algorithm_called,
    text_function,
)
from triptych.guidance.guide import BATCH, as_sampling, layer_to_read
from triptych.guidance.processed import ProcessedDecoder
from triptych.inference.guided.algorithm import AnyAlgorithm
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.transforms import PLAIN, Sampling, argmax
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.tokenised import check_tokenizer

_MODES = ("greedy_search", "sample")
_OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
_CRITERIA = ("MaxLengthCriteria", "EosTokenCriteria", "MaxTimeCriteria")
_PROCESSORS = (
    "UnbatchedClassifierFreeGuidanceLogitsProcessor",
    "SynthIDTextWatermarkLogitsProcessor",
)
_FRAMES = 16  # that may lie between `generate` and us: tools that check types add some
# what `generate` gives to every model, and we make ourselves
_OURS = ("attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep")


class CustomGenerate:
    """One algorithm with its verifier and options, to be called by `model.generate`.

    Calls with the same object draw on: the rows of all calls are numbered, and each number has a
    stream of its own, named by `rng`. `completions` has what came out last, a place for each row:
    text, accepted, reasons, costs, candidates, particles.
    """

    def __init__(
        self,
        algorithm: str | AnyAlgorithm,
        verifier: TextFunction | VerifierLike | None = None,
        *,
        tokenizer: Any = None,
        rng: Count = 0,
        sampling: Sampling = PLAIN,
        batch: Count = BATCH,
        budget: Budget | None = None,
    ) -> None:
        self.algorithm = algorithm_called(algorithm, verifier)
        if text_function(verifier) is not None and tokenizer is None:
            raise UserError(
                "the verifier is a function of text, and there is no tokenizer; pass "
                "tokenizer=..., that of the model"
            )
        if tokenizer is not None:
            check_can("tokenizer", tokenizer, "decode", "get_vocab", "__call__")
        self.verifier, self.tokenizer = verifier, tokenizer
        self.seed, self.sampling = as_seed(rng, name="rng"), as_sampling(sampling)
        self.batch = as_count("batch", batch, at_least=1)
        self.budget = budget
        self.completions: list[Completion] = []
        self._rows_before = 0
        self._lm: PretrainedCausalLM | None = None

    def __repr__(self) -> str:
        options = "".join(
            f", {name}={value!r}" for name, value in self.algorithm.settings().items()
        )
        return f"triptych.hf.{self.algorithm.name}({shown(self.verifier)}{options})"

    def __call__(
        self,
        model: Any,
        input_ids: Int[Tensor, "batch t"],
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        generation_config: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """What `generate` returns: ids of prompts and completions, or an output that has them."""
        given = _arguments_of_generate()
        _check_config(generation_config, given.get("assistant_model"))
        _check_lists(logits_processor, stopping_criteria)
        mask = _checked_mask(input_ids, model_kwargs)
        _check_inputs(model_kwargs)
        with _as_it_was(model):
            job, padding = self._job(
                model, input_ids, mask, logits_processor or _unchanged, generation_config
            )
            found: dict[int, tuple[Completion, list[int]]] = {}
            for part in job.run(self.batch):
                done, result = job.completions(part), part.result
                whole = zip(result.tokens.tolist(), result.lengths.tolist(), strict=True)
                rows = [row[:length] for row, length in whole]
                found |= zip(part.numbers, zip(done, rows, strict=True), strict=True)
        self._rows_before += len(input_ids)
        self.completions = [found[b][0] for b in range(len(input_ids))]
        rows = [[*padding[b], *found[b][1]] for b in range(len(input_ids))]
        _stream(given.get("streamer"), [row[input_ids.shape[1] :] for row in rows])
        pad = _padding_token(generation_config, self.tokenizer)
        return _returned(_filled(rows, pad).to(input_ids), self.completions, generation_config)

    def _job(
        self,
        model: Any,
        input_ids: Int[Tensor, "batch t"],
        mask: Int[Tensor, "batch t"],
        processors: Any,
        config: Any,
    ) -> tuple[Job, list[list[int]]]:
        """What is to be done, and the padding before each row."""
        if self._lm is None or self._lm.model is not model:
            self._lm = PretrainedCausalLM(model, bos=False)
            if self.tokenizer is not None:
                check_tokenizer(self.tokenizer, self._lm.vocab_size)
        lm = self._lm
        left = (mask == 0).sum(1).tolist()
        ids = input_ids.tolist()
        rows = [row[skip:] for row, skip in zip(ids, left, strict=True)]
        padding = [row[:skip] for row, skip in zip(ids, left, strict=True)]
        limit = int(config.max_length) - input_ids.shape[1]
        _check_room(rows, limit, lm.length)
        reads = layer_to_read(lm, self.verifier)
        by_row: dict[tuple[int, ...], list[int]] = {}
        for row, before in zip(rows, padding, strict=True):
            by_row[tuple(row)] = before
        if not config.do_sample and self.algorithm.needs_verifier:
            warnings.warn(
                f"generate was called without do_sample=True, so {self.algorithm.name} only ever "
                "sees the likeliest token; pass do_sample=True to let it draw",
                stacklevel=4,
            )
        job = Job(
            rows,
            [self._text(row) for row in rows] if self.tokenizer is not None else rows,
            self.verifier,
            self.algorithm,
            decode=self._text,
            decoder=lambda begun: ProcessedDecoder(
                lm, begun, [by_row[tuple(row)] for row in begun], processors, reads
            ),
            limit=limit,
            ends=_ends(config),
            seed=self.seed,
            streams=range(self._rows_before, self._rows_before + len(rows)),
            transform=self.sampling.transform() if config.do_sample else argmax,
            budget=_budget(self.budget, config),
        )
        return job, padding

    def _text(self, tokens: Any) -> str:
        if self.tokenizer is None:
            return ""
        return self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


def factory(kind: type[AnyAlgorithm]) -> Callable[..., CustomGenerate]:
    """The function that makes a `custom_generate` of an algorithm; its help is the algorithm's."""
    shared = inspect.signature(CustomGenerate).parameters
    own = inspect.signature(kind).parameters

    def make(verifier: TextFunction | VerifierLike | None = None, **given: Any) -> CustomGenerate:
        ours = {name: given.pop(name) for name in [*given] if name in shared}
        return CustomGenerate(kind.of(given), verifier, **ours)

    kept = [shared["verifier"], *(p for p in shared.values() if p.kind is p.KEYWORD_ONLY)]
    mine = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own.values()]
    setattr(make, "__signature__", inspect.Signature([*kept, *mine]))  # noqa: B010
    make.__name__ = make.__qualname__ = kind.name
    options = kind.options()
    meanings = "\n".join(f"    {o.name:<14} {o.meaning} ({o.default!r})" for o in options)
    make.__doc__ = (
        f"{kind.title}, as custom_generate of model.generate.\n\nPromise: {kind.promise}.\n\n"
        f"{meanings}\n    tokenizer      needed where the verifier is a function of text"
    )
    return make


# ---------------------------------------------------------------------- what generate was given


def _arguments_of_generate() -> dict[str, Any]:
    """The streamer and the assistant that `generate` was called with.

    It does not hand them to a function like ours. Not to look would be to ignore an assistant, and
    to let a reader of the streamer wait forever.
    """
    frame = inspect.currentframe()
    for _ in range(_FRAMES):
        frame = None if frame is None else frame.f_back
        if frame is not None and frame.f_code.co_name == "generate":
            return {name: frame.f_locals.get(name) for name in ("streamer", "assistant_model")}
    return {}


def _check_config(config: Any, assistant: Any) -> None:
    if config is None or getattr(config, "max_length", None) is None:
        raise UserError(
            "this is a custom_generate; pass it to model.generate(**inputs, custom_generate=..., "
            "max_new_tokens=...)"
        )
    mode = config.get_generation_mode(assistant)
    mode = str(getattr(mode, "value", mode))
    if mode not in _MODES:
        raise UserError(
            f"generate was asked for {mode.replace('_', ' ')}; a guided algorithm samples, so "
            "leave num_beams, assistant_model and the like out"
        )
    asked = [name for name in _OUTPUTS if getattr(config, name, None)]
    if asked:
        raise UserError(
            f"{' and '.join(asked)}: an algorithm that may go back has no list of steps; ask for "
            "sequences alone"
        )
    if getattr(config, "watermarking_config", None) is not None:
        raise UserError("a watermark cannot be kept by an algorithm that may go back; leave it out")


def _check_lists(processors: Any, criteria: Any) -> None:
    for processor in processors or ():
        if type(processor).__name__ in _PROCESSORS:
            raise UserError(
                f"{type(processor).__name__} has a memory of its own, and rows may go back here; "
                "leave it out"
            )
    for criterion in criteria or ():
        if type(criterion).__name__ not in _CRITERIA:
            raise UserError(
                f"{type(criterion).__name__} cannot be honoured: a text ends by an end token or "
                "its length; write what must end it into the verifier"
            )


def _checked_mask(input_ids: Tensor, model_kwargs: dict[str, Any]) -> Tensor:
    """1 for the tokens of every prompt, which stand together at the right."""
    mask = model_kwargs.get("attention_mask")
    if mask is None:
        return torch.ones_like(input_ids)
    if mask.shape != input_ids.shape or ((mask[:, 1:] == 0) & (mask[:, :-1] != 0)).any():
        raise UserError(
            "attention_mask must be 0 before a prompt and 1 on it; fill prompts up on the left, "
            "tokenizer(texts, padding=True, padding_side='left')"
        )
    return mask


def _check_inputs(model_kwargs: dict[str, Any]) -> None:
    cache = model_kwargs.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        raise UserError("past_key_values is given; a guided algorithm keeps a cache of its own")
    types = model_kwargs.get("token_type_ids")
    if types is not None and not types.any():
        model_kwargs = {k: v for k, v in model_kwargs.items() if k != "token_type_ids"}
    other = [k for k, v in model_kwargs.items() if k not in _OURS and v is not None]
    if other:
        raise UserError(
            f"{' and '.join(sorted(other))}: only token ids can be guided; leave it out"
        )


def _check_room(rows: list[list[int]], limit: int, length: int) -> None:
    for b, row in enumerate(rows):
        if len(row) + limit > length:
            raise UserError(
                f"row {b} has a prompt of {len(row)} tokens and {limit} may follow; this model "
                f"reads at most {length}: shorten the prompt or max_new_tokens"
            )


def _ends(config: Any) -> tuple[int, ...]:
    ends = config.eos_token_id
    if ends is None:
        return ()
    ends = ends.tolist() if isinstance(ends, Tensor) else ends
    return (ends,) if isinstance(ends, int) else tuple(sorted(map(int, ends)))


def _budget(budget: Budget | None, config: Any) -> Budget | None:
    """The user's budget, with max_time in it."""
    seconds = getattr(config, "max_time", None)
    if seconds is None:
        return budget
    own = budget or Budget()
    if own.seconds is not None:
        seconds = min(seconds, own.seconds)
    return Budget(tokens=own.tokens, verifier_calls=own.verifier_calls, seconds=seconds)


def _padding_token(config: Any, tokenizer: Any) -> int:
    for source in (config, tokenizer):
        token = getattr(source, "pad_token_id", None)
        if token is not None:
            return int(token)
    return next(iter(_ends(config)), 0)


# ---------------------------------------------------------------------- what generate gives back


def _filled(rows: list[list[int]], pad: int) -> Int[Tensor, "batch t"]:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])


def _returned(sequences: Tensor, completions: list[Completion], config: Any) -> Any:
    if not config.return_dict_in_generate:
        return sequences
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    output: Any = GenerateDecoderOnlyOutput(sequences=sequences)  # pyright: ignore[reportArgumentType]
    output["complete"] = torch.tensor([row.complete for row in completions])
    output["accepted"] = torch.tensor([bool(row.accepted) for row in completions])
    return output


def _stream(streamer: Any, completions: list[list[int]]) -> None:
    """The text of one row, when it is done."""
    if streamer is None:
        return
    for token in completions[0]:
        streamer.put(torch.tensor([token]))
    streamer.end()


def _unchanged(input_ids: Tensor, scores: Tensor) -> Tensor:
    return scores


@contextlib.contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and frozen parameters inside; afterwards the model is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    learning = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, learns in learning:
            parameter.requires_grad_(learns)
