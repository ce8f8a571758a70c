"""A process reward model as a verifier of text: V of a text from a judgement of each of its steps.

    reward = ProcessReward.from_pretrained("my-prm", StepTokens("<extra_0>"), combine="min")
    found = guide(lm, prompts, reward, BestOfN(n=8), max_new_tokens=200)

A completion is cut into steps by a separator. A step that its separator has ended is finished, and
so is the last one of a text that is over; steps without a visible character are passed over. With
v_1, ..., v_k of the finished steps,

    last v_k      product v_1 ... v_k      mean (v_1 + ... + v_k) / k
    min           geometric_mean (v_1 ... v_k)^(1/k), the exponential of the mean of log v

An unfinished step has no judgement: the value stays that of the finished steps, so a wrong step
is refused when it ends and no token before. Before the first step is finished the value is
`before`, 1 where nothing is given. The sum of log v that some authors rank by is log of the
product. Worked value: v = (½, 1, ¼) give ¼, ⅛, 7/12, ¼ and ½.

Models of the field and their forms are in `verifiers.step_forms`. None of the models named there
can be had offline, so the forms are tested on small random models.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from triptych.core.validation import (
    Count,
    Number,
    UserError,
    as_count,
    as_device,
    as_flag,
    as_list,
    as_probability,
    as_text,
    check_can,
    shown,
)
from triptych.verifiers.step_forms import MarkedRow, StepForm, at_marks, probabilities
from triptych.verifiers.text_models import (
    BATCH,
    Prompt,
    as_length,
    as_prompts,
    as_texts,
    loaded,
    padding_token,
)

Combine = Literal["last", "product", "mean", "min", "geometric_mean"]
COMBINES: tuple[Combine, ...] = get_args(Combine)
_REMEMBERED = 100_000  # texts up to a step, whose judgements are kept


class _Asked(NamedTuple):
    """A prompt with finished steps; equal ones are asked about once."""

    prompt: str
    steps: tuple[str, ...]


class ProcessReward:
    """V(prompt, completion) from a model of transformers that judges steps, and its tokenizer.

    form        where the judgements stand: one of `verifiers.step_forms`
    separator   what ends a step in the completion
    combine     how the judgements of the finished steps become one value
    before      the value of a completion without a finished step
    length      tokens that the model reads at most; a longer row loses its beginning, and with it
                the judgements that stood there. A warning says so the first time, and `truncated`
                counts such rows.
    batch       rows that go through the model together

    A question is a list of texts. Those that differ in their unfinished step alone are one row;
    rows that were asked before are remembered; the others take ⌈rows / batch⌉ passes, whatever
    their lengths. `passes` counts them. The model is changed in place: evaluation mode, parameters
    frozen, and a padding token if it had none. Probabilities are made in float64.
    """

    batched = True  # `TextRule` and `guide` give it lists of texts

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        form: StepForm,
        *,
        separator: str = "\n\n",
        combine: Combine = "last",
        before: Number = 1.0,
        length: Count | None = None,
        batch: Count = BATCH,
    ) -> None:
        self.form: StepForm = _checked_form(form)
        if not isinstance(model, nn.Module) or not hasattr(model, "config"):
            raise UserError(
                f"model is {shown(model)}; pass {form.what} of transformers, or its folder to "
                "ProcessReward.from_pretrained",
                parameter="model",
            )
        check_can("tokenizer", tokenizer, "decode", "__call__")
        self.model, self.tokenizer = model.eval().requires_grad_(False), tokenizer
        self.separator = _as_separator(separator)
        self.combine: Combine = _as_combine(combine)
        self.before = as_probability("before", before)
        self._columns = form.columns(model, tokenizer)
        self.length = as_length(length, model, tokenizer)
        self.batch = as_count("batch", batch, at_least=1)
        self._padding = padding_token(model, tokenizer)
        self.passes = self.truncated = 0
        self._known: dict[_Asked, list[float]] = {}

    @classmethod
    def from_pretrained(
        cls,
        where: str | Path,
        form: StepForm,
        *,
        separator: str = "\n\n",
        combine: Combine = "last",
        before: Number = 1.0,
        length: Count | None = None,
        batch: Count = BATCH,
        dtype: str = "float32",
        device: torch.device | str = "cpu",
        local_files_only: bool = False,
        trust_remote_code: bool = False,
    ) -> "ProcessReward":
        """The model in the folder `where`, or of that name on the hub.

        trust_remote_code=True runs the Python files of the model itself, with all your rights.
        """
        trust_remote_code = as_flag("trust_remote_code", trust_remote_code)
        model, tokenizer = loaded(
            where,
            _checked_form(form).auto(trust_remote_code),
            form.what,
            dtype,
            local_files_only,
            trust_remote_code,
        )
        return cls(
            model.to(as_device(device)),
            tokenizer,
            form,
            separator=separator,
            combine=combine,
            before=before,
            length=length,
            batch=batch,
        )

    def __repr__(self) -> str:
        read, form = type(self.model).__name__, type(self.form).__name__
        return f"ProcessReward({read}, read by {form}, {self.combine} of the steps)"

    def __call__(
        self,
        texts: Sequence[str],
        prompt: Sequence[Prompt] | Prompt | None = None,
        finished: Sequence[bool] | bool = False,
    ) -> list[float]:
        """V of each completion; prompt and finished are one for all of them, or a list."""
        judged = self._judged(texts, prompt, finished, last=self.combine == "last")
        return [combined(values, self.combine, self.before) for values in judged]

    def steps(
        self,
        texts: Sequence[str],
        prompt: Sequence[Prompt] | Prompt | None = None,
        finished: Sequence[bool] | bool = False,
    ) -> list[list[float]]:
        """The judgement of each finished step of each completion."""
        return self._judged(texts, prompt, finished, last=False)

    # ------------------------------------------------------------------ inside

    def _judged(self, texts: Any, prompt: Any, finished: Any, *, last: bool) -> list[list[float]]:
        """The judgements of the steps of each completion; `last`: no others need to be there."""
        given = [as_text(f"texts[{i}]", text) for i, text in enumerate(as_texts(texts))]
        prompts, over = as_prompts(prompt, len(given)), _as_flags(finished, len(given))
        asked: list[list[_Asked]] = []
        of: dict[str, Prompt] = {}
        for text, said, done in zip(given, prompts, over, strict=True):
            key = repr(said)
            of[key] = said
            steps = tuple(finished_steps(text, self.separator, done))
            least = len(steps) if last or not self.form.last_only else 1
            asked.append([_Asked(key, steps[:n]) for n in range(max(1, least), len(steps) + 1)])
        self._ask([*dict.fromkeys(one for several in asked for one in several)], of)
        answers = [[v for one in several for v in self._known[one]] for several in asked]
        while len(self._known) > _REMEMBERED:
            self._known.pop(next(iter(self._known)))
        return answers

    def _ask(self, asked: list[_Asked], of: dict[str, Prompt]) -> None:
        """Ask the model about what it was not asked before."""
        fresh = [one for one in asked if one not in self._known]
        rows = [
            self._fitted(self.form.row(self.tokenizer, of[one.prompt], one.steps)) for one in fresh
        ]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].tokens))
        for begin in range(0, len(order), self.batch):
            part = order[begin : begin + self.batch]
            said = self._pass([rows[i] for i in part])
            self._known |= zip([fresh[i] for i in part], said, strict=True)

    def _fitted(self, row: MarkedRow) -> MarkedRow:
        """The end of a row that is too long; what is cut first is the beginning."""
        if self.length is None or len(row.tokens) <= self.length:
            return row
        cut = len(row.tokens) - self.length
        marks = None if row.marks is None else [t - cut for t in row.marks if t >= cut]
        if marks == []:
            raise UserError(
                f"a row has {len(row.tokens)} tokens and this process reward model reads "
                f"{self.length}, the last ones, where no judgement stands",
                parameter="row",
            )
        if not self.truncated:
            warnings.warn(
                f"a row has {len(row.tokens)} tokens and this process reward model reads "
                f"{self.length}: its beginning is cut with the judgements that stood there, as in "
                "all such rows (`truncated` counts them)",
                stacklevel=2,
            )
        self.truncated += 1
        return MarkedRow(row.tokens[cut:], marks, None if row.kinds is None else row.kinds[cut:])

    @torch.no_grad()
    def _pass(self, rows: list[MarkedRow]) -> list[list[float]]:
        """The judgements of each row, by one pass of the model."""
        self.passes += 1
        width = max(1, *(len(row.tokens) for row in rows))
        pad = self._padding or 0
        tokens = torch.full((len(rows), width), pad, dtype=torch.long)
        shown_tokens = torch.zeros_like(tokens)
        kinds = torch.zeros_like(tokens)
        for b, row in enumerate(rows):
            n = len(row.tokens)
            tokens[b, :n] = torch.tensor(row.tokens, dtype=torch.long)
            shown_tokens[b, :n] = 1
            if row.kinds is not None:
                kinds[b, :n] = torch.tensor(row.kinds)
        fed = {"input_ids": tokens, "attention_mask": shown_tokens}
        if rows[0].kinds is not None:
            fed["token_type_ids"] = kinds
        device = next(self.model.parameters()).device
        answer = _logits(self.model(**{name: part.to(device) for name, part in fed.items()}))
        self._check_answer(answer)
        values = probabilities(at_marks(answer, [row.marks for row in rows]), self._columns)
        if not torch.isfinite(values).all():
            raise UserError(
                "this process reward model answered nan or inf; load it with dtype='float32', or "
                "look at its weights"
            )
        counts = [1 if row.marks is None else len(row.marks) for row in rows]
        return [part.tolist() for part in values.split(counts)]

    def _check_answer(self, answer: Tensor) -> None:
        wanted = 2 if self.form.last_only else 3
        if answer.ndim != wanted or answer.shape[-1] <= max(self._columns):
            raise UserError(
                f"this {type(self.model).__name__} answers a tensor of shape "
                f"{tuple(answer.shape)}; {type(self.form).__name__} reads {wanted} dimensions, the "
                f"last of more than {max(self._columns)} numbers: pass {self.form.what}",
                parameter="answer",
            )


def finished_steps(text: str, separator: str, over: bool) -> list[str]:
    """The steps of a completion that have ended, blank ones left out.

    Worked value: "a;b;c" with ";" has the steps a, b, and c too if the text is over.
    """
    parts = as_text("text", text).split(_as_separator(separator))
    ended = parts if as_flag("over", over) else parts[:-1]
    return [part for part in ended if part.strip()]


def combined(values: Sequence[Number], combine: Combine, before: Number = 1.0) -> float:
    """One value from those of the steps; `before` where there are none.

    Worked value: (½, 1, ¼): last ¼, product ⅛, mean 7/12, min ¼, geometric_mean ½.
    """
    given = as_list("values", values, "judgements, from 0 to 1")
    judged = [as_probability("a judgement of values", value) for value in given]
    combine, before = _as_combine(combine), as_probability("before", before)
    if not judged:
        return before
    match combine:
        case "last":
            return judged[-1]
        case "product":
            return float(np.prod(judged))
        case "mean":
            return float(np.mean(judged))
        case "min":
            return min(judged)
        case "geometric_mean":
            with np.errstate(divide="ignore"):  # a step of value 0 makes 0
                return float(np.exp(np.log(judged).mean()))


def _as_separator(separator: str) -> str:
    if not as_text("separator", separator):
        raise UserError(
            "separator is ''; it must have at least one character", parameter="separator"
        )
    return separator


def _as_combine(combine: Any) -> Combine:
    if not isinstance(combine, str) or combine not in COMBINES:
        raise UserError(
            f"combine is {shown(combine)}; it must be one of {', '.join(COMBINES)}",
            parameter="combine",
        )
    return combine


def _logits(answer: Any) -> Tensor:
    found = getattr(answer, "logits", None)
    if found is None and isinstance(answer, Sequence) and answer:
        found = answer[0]
    if not isinstance(found, Tensor):
        found = getattr(answer, "last_hidden_state", None)
    if not isinstance(found, Tensor):
        raise UserError(
            f"this process reward model answers a {type(answer).__name__} without logits; it must "
            "answer as token classifiers of transformers do",
            parameter="answer",
        )
    return found


def _checked_form(form: Any) -> StepForm:
    if isinstance(form, type) or not isinstance(form, StepForm):
        raise UserError(
            f"form is {shown(form)}; pass TokenClassifier(), StepTokens(), TaggedSteps(), "
            "JudgedTurns() or SequenceClassifier() of triptych.verifiers.step_forms",
            parameter="form",
        )
    return form


def _as_flags(finished: Any, number: int) -> list[bool]:
    if isinstance(finished, bool | np.bool_):
        return [bool(finished)] * number
    given = as_list("finished", finished, "True or False, one for each text")
    if len(given) != number:
        raise UserError(
            f"finished has {len(given)} answers for {number} texts; each needs one",
            parameter="finished",
        )
    return [as_flag("an answer of finished", one) for one in given]
