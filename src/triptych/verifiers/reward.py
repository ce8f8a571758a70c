"""A reward model of Hugging Face as a verifier of text: V is the probability that a text is good.

    one label       V = 1 / (1 + exp(-score))
    several labels  V = softmax(scores)[label]

A reward model reads the prompt and the completion together, with its own tokenizer: in its chat
template where it has one, as the user's and the assistant's message, and else as a pair of texts.
Worked value: the score 0 of one label, or equal scores of two, give V = ½.

    reward = RewardModel.from_pretrained("my-reward-model")
    found = guide(lm, prompts, reward, "best_of_n", n=8, max_new_tokens=60)

Most reward models were trained on whole replies; what they say of half a reply is their guess.
transformers is an optional dependency (`pip install 'transformers>=5,<6'`), imported when used.
"""

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.core.foreign_models import as_place, refuse_own_code
from triptych.core.validation import (
    Count,
    UserError,
    as_count,
    as_device,
    as_flag,
    as_list,
    as_text,
    check_can,
    shown,
)

BATCH = 32
"""Texts that are scored together where no number is given."""
_DTYPES = ("float32", "bfloat16", "float16", "float64")

Prompt = str | Sequence[Mapping[str, str]]
"""A text, or a conversation: messages with "role" and "content"."""


class RewardModel:
    """V(prompt, completion) from a sequence classifier of transformers and its tokenizer.

    label    which label means good, by its number or its name in the config; for one label there
             is nothing to choose, for two it is the second one where none is given
    length   tokens that the model reads at most; a longer text loses its beginning, which is said
             in a warning the first time and counted in `truncated`
    batch    texts that are scored together
    passes   of the model so far: of n texts ⌈n / batch⌉, whatever their lengths

    The model is changed in place: evaluation mode, parameters frozen, and a padding token if it
    had none. Scores become probabilities in float64, whatever precision the model has.
    """

    batched = True  # `TextRule` and `guide` give it lists of texts

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        label: int | str | None = None,
        length: Count | None = None,
        batch: Count = BATCH,
    ) -> None:
        _check_classifier(model)
        check_can("tokenizer", tokenizer, "decode", "pad", "__call__")
        self.model, self.tokenizer = model.eval().requires_grad_(False), tokenizer
        self.label = _as_label(label, model.config)
        self.length = _as_length(length, model, tokenizer)
        self.batch = as_count("batch", batch, at_least=1)
        self.truncated, self.passes = 0, 0
        self._pad_token = _padding(model, tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        where: str | Path,
        *,
        label: int | str | None = None,
        length: Count | None = None,
        batch: Count = BATCH,
        dtype: str = "float32",
        device: torch.device | str = "cpu",
        local_files_only: bool = False,
        trust_remote_code: bool = False,
    ) -> "RewardModel":
        """The classifier in the folder `where`, or of that name on the hub.

        trust_remote_code=True runs the Python files of the model itself, with all your rights.
        """
        trust_remote_code = as_flag("trust_remote_code", trust_remote_code)
        model, tokenizer = _load(where, dtype, local_files_only, trust_remote_code)
        model = model.to(as_device(device))
        return cls(model, tokenizer, label=label, length=length, batch=batch)

    def __repr__(self) -> str:
        labels = self.model.config.num_labels
        reads = "the score" if labels == 1 else f"label {self.label} of {labels}"
        return f"RewardModel({type(self.model).__name__}, reads {reads})"

    def __call__(
        self, texts: Sequence[str], prompt: Sequence[Prompt] | Prompt | None = None
    ) -> list[float]:
        """V of each completion; `prompt` is one for all of them, or a list with one for each."""
        completions = [as_text(f"texts[{i}]", t) for i, t in enumerate(_as_texts(texts))]
        prompts = _as_prompts(prompt, len(completions))
        rows = [self._encoded(p, text) for p, text in zip(prompts, completions, strict=True)]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]["input_ids"]))
        values = [0.0] * len(rows)
        for begin in range(0, len(order), self._at_once):
            part = order[begin : begin + self._at_once]
            for i, value in zip(part, self._values([rows[i] for i in part]), strict=True):
                values[i] = value
        return values

    # ------------------------------------------------------------------ inside

    @property
    def _at_once(self) -> int:
        return 1 if self._pad_token is None else self.batch

    def _encoded(self, prompt: Prompt, completion: str) -> dict[str, list[int]]:
        """Tokens of a prompt and its completion, as the model was trained to read them."""
        tokenizer, texts, special = self.tokenizer, (completion,), True
        if getattr(tokenizer, "chat_template", None) is not None:
            texts, special = (self._conversation(prompt, completion),), False
        elif said := _last_said(prompt):
            texts = (said, completion)
        row = tokenizer(*texts, add_special_tokens=special)
        if self.length is not None and len(row["input_ids"]) > self.length:
            row = self._truncated(texts, special, len(row["input_ids"]))
        if not row["input_ids"]:  # no prompt, and a completion that ended at once
            first = tokenizer.bos_token_id, tokenizer.eos_token_id, self._pad_token, 0
            token = next(token for token in first if token is not None)
            row = {"input_ids": [token], "attention_mask": [1]}
        return dict(row)

    def _conversation(self, prompt: Prompt, completion: str) -> str:
        before = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [*prompt]
        said = [*before, {"role": "assistant", "content": completion}]
        try:
            return self.tokenizer.apply_chat_template(said, tokenize=False)
        except Exception as error:  # templates raise what they like
            raise UserError(
                "the chat template of this reward model takes no conversation of a user and an "
                f"assistant: {_short(error)}"
            ) from error

    def _truncated(self, texts: tuple[str, ...], special: bool, tokens: int) -> Any:
        """The end of a text that is too long; what is cut first is the beginning."""
        if not self.truncated:
            warnings.warn(
                f"a text has {tokens} tokens and this reward model reads {self.length}: its "
                "beginning is cut, as in all such texts (`truncated` counts them)",
                stacklevel=2,
            )
        self.truncated += 1
        with _cutting_the_beginning(self.tokenizer):
            return self.tokenizer(
                *texts, add_special_tokens=special, truncation=True, max_length=self.length
            )

    @torch.no_grad()
    def _values(self, rows: list[dict[str, list[int]]]) -> list[float]:
        fed = self.tokenizer.pad(rows, return_tensors="pt") if len(rows) > 1 else _tensors(rows[0])
        self.passes += 1
        answer = self.model(**{name: part.to(self.model.device) for name, part in fed.items()})
        return self._probabilities(answer.logits).tolist()

    def _probabilities(self, scores: Float[Tensor, "batch labels"]) -> Float[Tensor, " batch"]:
        scores = scores.double()
        if not torch.isfinite(scores).all():
            raise UserError(
                "this reward model answered nan or inf; load it with dtype='float32', or look at "
                "its weights"
            )
        if scores.shape[-1] == 1:
            return scores[:, 0].sigmoid()
        return scores.softmax(-1)[:, self.label]


# ---------------------------------------------------------------------- what is given


def _as_texts(texts: Any) -> list[Any]:
    if isinstance(texts, str):
        raise UserError(f"texts is the string {shown(texts)}; pass a list of texts")
    return as_list("texts", texts, "texts")


def _as_prompts(prompt: Any, number: int) -> list[Prompt]:
    """A prompt for each text. A list of messages is one conversation, for all texts."""
    if prompt is None or isinstance(prompt, str):
        return [prompt or ""] * number
    given = as_list("prompt", prompt, "prompts")
    if given and all(isinstance(message, Mapping) for message in given):
        return [_checked_prompt(given)] * number
    if len(given) != number:
        raise UserError(f"prompt has {len(given)} prompts for {number} texts; each needs one")
    return [_checked_prompt(one) for one in given]


def _checked_prompt(prompt: Any) -> Prompt:
    if isinstance(prompt, str):
        return prompt
    for message in as_list("a prompt", prompt, "messages"):
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise UserError(
                f"a prompt has the message {shown(message)}; a message is a dictionary with "
                "'role' and 'content'"
            )
    return prompt


def _last_said(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return str(prompt[-1]["content"]) if len(prompt) else ""


def _tensors(row: Mapping[str, list[int]]) -> dict[str, Int[Tensor, "1 t"]]:
    return {name: torch.tensor([part]) for name, part in row.items()}


@contextlib.contextmanager
def _cutting_the_beginning(tokenizer: Any) -> Iterator[None]:
    side = getattr(tokenizer, "truncation_side", "right")
    tokenizer.truncation_side = "left"
    try:
        yield
    finally:
        tokenizer.truncation_side = side


# ---------------------------------------------------------------------- what a model is like


def _check_classifier(model: Any) -> None:
    labels = getattr(getattr(model, "config", None), "num_labels", None)
    named = type(model).__name__.endswith("ForSequenceClassification") or hasattr(model, "score")
    if (
        not isinstance(model, nn.Module)
        or not isinstance(labels, int)
        or not (named or hasattr(model, "classifier"))
    ):
        raise UserError(
            f"model is {shown(model)}; pass a model of transformers' "
            "AutoModelForSequenceClassification, or its name to RewardModel.from_pretrained"
        )


def _as_label(label: int | str | None, config: Any) -> int:
    """The number of the label that means good."""
    number = config.num_labels
    names = {int(key): str(name) for key, name in (config.id2label or {}).items()}
    if number == 1 and label is None:
        return 0
    if label is None:
        if number == 2:
            return 1
        raise UserError(
            f"this classifier has {number} labels, {', '.join(names.values())}; say with label= "
            "which one means good"
        )
    if isinstance(label, str):
        found = [key for key, name in names.items() if name == label]
        if not found:
            raise UserError(
                f"label is {label!r}; this classifier has {', '.join(map(repr, names.values()))}"
            )
        return found[0]
    return as_count("label", label, at_most=number - 1)


def _as_length(length: Count | None, model: Any, tokenizer: Any) -> int | None:
    """Tokens that are read at most: by the config and the tokenizer, or fewer."""
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else None
    said = [
        getattr(config, "max_position_embeddings", None),
        getattr(tokenizer, "model_max_length", None),
    ]
    known = [n for n in said if isinstance(n, int) and 0 < n < 2**31]
    if getattr(config, "model_type", None) in ("roberta", "xlm-roberta", "camembert") and known:
        known[0] -= 2  # they count positions from the padding token on
    most = min(known) if known else None
    return most if length is None else as_count("length", length, at_least=1, at_most=most)


def _padding(model: Any, tokenizer: Any) -> int | None:
    """The token that fills shorter rows, made known to both; None: rows run one by one."""
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        tokenizer.pad_token = tokenizer.eos_token
    pad = tokenizer.pad_token_id
    if pad is not None and getattr(model.config, "pad_token_id", None) is None:
        model.config.pad_token_id = pad
    return pad


def _load(
    where: str | Path, dtype: str, local_files_only: bool, trust_remote_code: bool
) -> tuple[Any, Any]:
    place = as_place("where", where, "a folder or a name on the hub")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise UserError(f"dtype is {shown(dtype)}; it must be one of {', '.join(_DTYPES)}")
    if importlib.util.find_spec("transformers") is None:
        raise ModuleNotFoundError(
            "pretrained models need transformers, which is not installed: pip install transformers",
            name="transformers",
        )
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    options: dict[str, Any] = {
        "local_files_only": local_files_only,
        "trust_remote_code": trust_remote_code,
    }
    try:
        both: Any = AutoModelForSequenceClassification.from_pretrained(
            place, dtype=getattr(torch, dtype), output_loading_info=True, **options
        )
        tokenizer = AutoTokenizer.from_pretrained(place, **options)
    except Exception as error:  # the readers of damaged files raise classes of their own
        refuse_own_code(place, error)
        raise UserError(
            f"the reward model {place!r} could not be loaded: {_short(error)} It must be a "
            "folder with a sequence classifier and its tokenizer, or a name on the hub"
        ) from error
    model, loaded = both
    if missing := sorted(loaded["missing_keys"]):
        raise UserError(
            f"{place!r} has no weights for {', '.join(missing[:3])}: transformers would draw "
            "them at random, so it is no trained classifier"
        )
    return model, tokenizer


def _short(error: Exception) -> str:
    text = shorten(str(error) or type(error).__name__, width=200, placeholder=" ...")
    return text if text.endswith(".") else f"{text}."
