"""Where the judgement of each step stands: the forms of process reward models in use.

    TokenClassifier       two classes at the last token of the separator after each step (TRL)
    StepTokens            two classes at a token of its own after each step (Qwen2.5-Math-PRM)
    TaggedSteps           "+" against "-" read off a causal model at a tag (Math-Shepherd)
    JudgedTurns           "+" against "-" as the assistant's answer to each step (RLHFlow)
    SequenceClassifier    a classifier of whole texts, asked about the text up to each step

A form turns a prompt and its steps into rows of tokens with marks, and what the model says at the
marks into probabilities: of the good label among the labels, of "+" among {+, -}. Worked value:
equal logits are ½, and logits 0 and log 3 for "-" and "+" are ¾.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import UserError, as_count, as_flag, as_text, set_fields, shown
from triptych.verifiers.text_models import (
    Prompt,
    as_label,
    conversation,
    last_said,
    messages_of,
)


class MarkedRow(NamedTuple):
    """What the model reads, and where the judgements stand in it.

    marks   positions of the judged steps, in order; None for a model that answers once a row, which
            is a judgement of the last step
    kinds   which text each token belongs to, for models that read pairs of texts; else None
    """

    tokens: list[int]
    marks: list[int] | None
    kinds: list[int] | None = None


@runtime_checkable
class StepForm(Protocol):
    """One of the forms above."""

    @property
    def what(self) -> str:
        """What the model must be, in words."""
        ...

    def auto(self, trust_remote_code: bool) -> str:
        """The class of transformers that loads it."""
        ...

    @property
    def last_only(self) -> bool:
        """A row has a judgement of its last step alone."""
        ...

    def columns(self, model: Any, tokenizer: Any) -> list[int]:
        """The columns of the model's answer that are compared, the good one first."""
        ...

    def row(self, tokenizer: Any, prompt: Prompt, steps: Sequence[str]) -> MarkedRow:
        """What is asked about these steps."""
        ...


@dataclass(frozen=True)
class TokenClassifier:
    """A token classifier as TRL trains it: steps are tokens of their own, each with a separator.

    separator   encoded after each step; the label stands at its last token
    chat        the prompt goes through the chat template first; TRL's own trainer does not do that
    label       which label means good, by number or name; of two it is the second

    Worked value: the prompt "a" and the steps "b", "c" with the separator ";" are read as the
    tokens of "a", "b", ";", "c", ";", after BOS where there is one, with marks at both ";".
    """

    separator: str = "\n\n"
    chat: bool = False
    label: int | str | None = None

    def __post_init__(self) -> None:
        set_fields(
            self,
            separator=_as_mark("separator", self.separator),
            chat=as_flag("chat", self.chat),
            label=_as_name_of_label(self.label),
        )

    what = "a token classifier"
    last_only = False

    def auto(self, trust_remote_code: bool) -> str:
        return "AutoModelForTokenClassification"

    def columns(self, model: Any, tokenizer: Any) -> list[int]:
        return _columns_of_labels(self.label, model)

    def row(self, tokenizer: Any, prompt: Prompt, steps: Sequence[str]) -> MarkedRow:
        """Prompt and steps as tokens of their own, with a mark at the end of each separator."""
        if self.chat:
            tokens = _encoded(tokenizer, conversation(tokenizer, messages_of(prompt), answer=True))
        else:
            bos = tokenizer.bos_token_id
            said = _encoded(tokenizer, last_said(prompt))
            tokens = said if bos is None else [bos, *said]
        end = _encoded(tokenizer, self.separator)
        if not end:
            raise UserError(
                f"separator is {self.separator!r}, of which this tokenizer makes no token; a "
                "token classifier needs one to stand after each step",
                parameter="separator",
            )
        marks: list[int] = []
        for step in steps:
            tokens = [*tokens, *_encoded(tokenizer, step), *end]
            marks.append(len(tokens) - 1)
        return MarkedRow(tokens, marks)


@dataclass(frozen=True)
class StepTokens:
    """Two classes at a token that stands after each step, in the chat template.

    token    after each step; it must be one token of the tokenizer
    label    which class means good
    system   what the model was told first, where it was trained with that

    Models of this form bring Python of their own (`trust_remote_code=True`), which is then loaded
    by AutoModel; without, the folder must hold a token classifier.
    """

    token: str = "<extra_0>"
    label: int | str | None = None
    system: str | None = None

    def __post_init__(self) -> None:
        system = None if self.system is None else as_text("system", self.system)
        label = _as_name_of_label(self.label)
        set_fields(self, token=_as_mark("token", self.token), label=label, system=system)

    what = "a token classifier"
    last_only = False

    def auto(self, trust_remote_code: bool) -> str:
        return "AutoModel" if trust_remote_code else "AutoModelForTokenClassification"

    def columns(self, model: Any, tokenizer: Any) -> list[int]:
        _one_token("token", self.token, tokenizer)
        return _columns_of_labels(self.label, model)

    def row(self, tokenizer: Any, prompt: Prompt, steps: Sequence[str]) -> MarkedRow:
        """The conversation with the step token after each step, and marks at these."""
        before = [] if self.system is None else [{"role": "system", "content": self.system}]
        said = "".join(step + self.token for step in steps)
        text, begin = _answered(tokenizer, [*before, *messages_of(prompt)], prompt, said)
        return _marked(tokenizer, text, _ends(begin, steps, self.token))


@dataclass(frozen=True)
class TaggedSteps:
    """P("+") among {+, -}, read off a causal model at a tag that stands after each step.

    tag         after each step; the token of its last character is where "+" or "-" would follow
    good, bad   one token each
    joiner      between a tagged step and the next one
    chat        prompt and steps go through the chat template
    """

    tag: str = " ки"
    good: str = "+"
    bad: str = "-"
    joiner: str = "\n"
    chat: bool = False

    def __post_init__(self) -> None:
        _clean_signs(self, tag=_as_mark("tag", self.tag), joiner=as_text("joiner", self.joiner))
        set_fields(self, chat=as_flag("chat", self.chat))

    what = "a causal language model"
    last_only = False

    def auto(self, trust_remote_code: bool) -> str:
        return "AutoModelForCausalLM"

    def columns(self, model: Any, tokenizer: Any) -> list[int]:
        return _signs(self.good, self.bad, tokenizer)

    def row(self, tokenizer: Any, prompt: Prompt, steps: Sequence[str]) -> MarkedRow:
        """Prompt and tagged steps as one text, with marks at the tags."""
        said = self.joiner.join(step + self.tag for step in steps)
        if self.chat:
            text, begin = _answered(tokenizer, messages_of(prompt), prompt, said)
        else:
            asked = last_said(prompt)
            begin = len(asked) + 1 if asked else 0
            text = f"{asked} {said}" if asked else said
        ends = _ends(begin, steps, self.tag, self.joiner)
        return _marked(tokenizer, text, ends, special=not self.chat)


@dataclass(frozen=True)
class JudgedTurns:
    """P("+") among {+, -} as the assistant's answer, where the user says one step in each turn.

    The prompt stands before the first step, with a space between. All steps before the one that is
    judged were answered by `good`. It needs a chat template that only adds to what stood before.
    """

    good: str = "+"
    bad: str = "-"

    def __post_init__(self) -> None:
        _clean_signs(self)

    what = "a causal language model"
    last_only = False

    def auto(self, trust_remote_code: bool) -> str:
        return "AutoModelForCausalLM"

    def columns(self, model: Any, tokenizer: Any) -> list[int]:
        _need_template(tokenizer, "JudgedTurns")
        return _signs(self.good, self.bad, tokenizer)

    def row(self, tokenizer: Any, prompt: Prompt, steps: Sequence[str]) -> MarkedRow:
        """The conversation of all steps, with marks where each answer begins."""
        asked = last_said(prompt)
        turns = [] if isinstance(prompt, str) else [*prompt[:-1]]
        begun: list[str] = []
        for number, step in enumerate(steps):
            said = f"{asked} {step}" if number == 0 and asked else step
            turns.append({"role": "user", "content": said})
            begun.append(conversation(tokenizer, turns, answer=True))
            turns.append({"role": "assistant", "content": self.good})
        for one, longer in itertools.pairwise(begun):
            if not longer.startswith(one + self.good):
                raise UserError(
                    "the chat template of this model does not only add to what stood before, so "
                    f"that no place can be found where it says {self.good!r} or {self.bad!r}; use "
                    "TaggedSteps or another template"
                )
        text = begun[-1] if begun else ""
        return _marked(tokenizer, text, [len(one) for one in begun])


@dataclass(frozen=True)
class SequenceClassifier:
    """A classifier of whole texts, asked about the text up to the end of each step.

    separator   between steps
    label       which label means good
    """

    separator: str = "\n\n"
    label: int | str | None = None

    def __post_init__(self) -> None:
        label = _as_name_of_label(self.label)
        set_fields(self, separator=_as_mark("separator", self.separator), label=label)

    what = "a sequence classifier"
    last_only = True

    def auto(self, trust_remote_code: bool) -> str:
        return "AutoModelForSequenceClassification"

    def columns(self, model: Any, tokenizer: Any) -> list[int]:
        return _columns_of_labels(self.label, model)

    def row(self, tokenizer: Any, prompt: Prompt, steps: Sequence[str]) -> MarkedRow:
        """The text up to the last of these steps, without marks."""
        completion = self.separator.join(steps)
        if getattr(tokenizer, "chat_template", None) is not None:
            turns = [*messages_of(prompt), {"role": "assistant", "content": completion}]
            read = tokenizer(conversation(tokenizer, turns), add_special_tokens=False)
        else:
            asked = last_said(prompt)
            read = tokenizer(*((asked, completion) if asked else (completion,)))
        return MarkedRow([*read["input_ids"]], None, read.get("token_type_ids"))


# ---------------------------------------------------------------------- tokens and places


def _encoded(tokenizer: Any, text: str) -> list[int]:
    return [*tokenizer(text, add_special_tokens=False)["input_ids"]]


def _ends(begin: int, steps: Sequence[str], mark: str, joiner: str = "") -> list[int]:
    """Where the mark after each step ends, counted in characters."""
    found: list[int] = []
    for step in steps:
        begin += len(step) + len(mark)
        found.append(begin)
        begin += len(joiner)
    return found


def _answered(tokenizer: Any, turns: Sequence[Any], prompt: Prompt, said: str) -> tuple[str, int]:
    """A conversation with the assistant's answer `said`, and where that answer begins."""
    if getattr(tokenizer, "chat_template", None) is None:
        asked = last_said(prompt)
        return asked + said, len(asked)
    text = conversation(tokenizer, [*turns, {"role": "assistant", "content": said}])
    begin = text.rfind(said)
    if begin < 0:
        raise UserError(
            "the chat template of this model changes what the assistant says, so that its steps "
            "cannot be found again in the text that the model reads"
        )
    return text, begin


def _marked(tokenizer: Any, text: str, ends: Sequence[int], *, special: bool = False) -> MarkedRow:
    """The tokens of a text, with marks at those of the characters before `ends`.

    special   the tokenizer adds its special tokens, as a template has written them already
    """
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(
            f"tokenizer is a {type(tokenizer).__name__}, which does not say where its tokens stand "
            "in the text; this form needs a fast tokenizer (AutoTokenizer loads one)",
            parameter="tokenizer",
        )
    read = tokenizer(text, add_special_tokens=special, return_offsets_mapping=True)
    places = read["offset_mapping"]
    marks: list[int] = []
    at = 0
    for end in ends:
        while at < len(places) and not places[at][0] < end <= places[at][1]:
            at += 1
        if at == len(places):
            raise UserError(
                f"no token of the text {shown(text[max(0, end - 40) : end])} holds its last "
                "character, where a judgement should stand"
            )
        marks.append(at)
    return MarkedRow([*read["input_ids"]], marks)


def _one_token(name: str, text: str, tokenizer: Any) -> int:
    found = _encoded(tokenizer, text)
    if len(found) != 1 or found[0] == getattr(tokenizer, "unk_token_id", None):
        raise UserError(
            f"{name} is {text!r}, which this tokenizer reads as {len(found)} tokens or does not "
            "know; it must be one token",
            parameter=name,
        )
    return found[0]


def _signs(good: str, bad: str, tokenizer: Any) -> list[int]:
    both = [_one_token("good", good, tokenizer), _one_token("bad", bad, tokenizer)]
    if both[0] == both[1]:
        raise UserError(
            f"good and bad are the same token, {good!r} and {bad!r}; give two", parameter="good"
        )
    return both


def _columns_of_labels(label: int | str | None, model: Any) -> list[int]:
    good = as_label(label, model.config)
    return [good, *(k for k in range(model.config.num_labels) if k != good)]


def _need_template(tokenizer: Any, form: str) -> None:
    if getattr(tokenizer, "chat_template", None) is None:
        raise UserError(
            f"the tokenizer has no chat template, and {form} needs one", parameter="tokenizer"
        )


def _as_name_of_label(label: Any) -> int | str | None:
    return label if label is None or isinstance(label, str) else as_count("label", label)


def _as_mark(name: str, text: str) -> str:
    if not as_text(name, text):
        raise UserError(f"{name} is ''; it must have at least one character", parameter=name)
    return text


def _clean_signs(form: "TaggedSteps | JudgedTurns", **others: str) -> None:
    set_fields(form, good=_as_mark("good", form.good), bad=_as_mark("bad", form.bad), **others)


def probabilities(
    logits: Float[Tensor, "marks outcomes"], columns: list[int]
) -> Float[Tensor, " marks"]:
    """The probability of the first of these columns among them; of one column, its sigmoid."""
    chosen = logits[:, columns].double()
    return chosen[:, 0].sigmoid() if len(columns) == 1 else chosen.softmax(-1)[:, 0]


def at_marks(
    answer: Float[Tensor, "rows ..."], marks: Sequence[Sequence[int] | None]
) -> Float[Tensor, "marks outcomes"]:
    """What the model says at the marks of each row; of one answer a row, that answer."""
    if answer.ndim == 2:
        return answer
    row = [b for b, several in enumerate(marks) for _ in several or ()]
    place = [t for several in marks for t in several or ()]
    return answer[row, place]
