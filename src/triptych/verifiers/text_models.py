"""Models of transformers that judge text, with their tokenizers: loading, prompts, labels, lengths.

What `RewardModel` and `ProcessReward` share. transformers is an optional dependency
(`pip install 'transformers>=5,<6'`), imported when used.
"""

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch

from triptych.core.deprecation import renamed
from triptych.core.foreign_models import as_place, on_disk_alone, refuse_own_code
from triptych.core.validation import Count, UserError, as_count, as_list, shown

BATCH = 32
"""Texts that are scored together where no number is given."""
_DTYPES = ("float32", "bfloat16", "float16", "float64")

Message = Mapping[str, str]
Prompt = str | Sequence[Message]
"""A text, or a conversation: messages with "role" and "content"."""

# ---------------------------------------------------------------------- what is given


def as_texts(texts: Any) -> list[Any]:
    if isinstance(texts, str):
        raise UserError(
            f"texts is the string {shown(texts)}; pass a list of texts", parameter="texts"
        )
    return as_list("texts", texts, "texts")


@renamed(number="n")
def as_prompts(prompt: Any, n: int) -> list[Prompt]:
    """A prompt for each text. A list of messages is one conversation, for all texts."""
    if prompt is None or isinstance(prompt, str):
        return [prompt or ""] * n
    given = as_list("prompt", prompt, "prompts")
    if given and all(isinstance(message, Mapping) for message in given):
        return [_checked_prompt(given)] * n
    if len(given) != n:
        raise UserError(
            f"prompt has {len(given)} prompts for {n} texts; each needs one",
            parameter="prompt",
        )
    return [_checked_prompt(one) for one in given]


def _checked_prompt(prompt: Any) -> Prompt:
    if isinstance(prompt, str):
        return prompt
    for message in as_list("a prompt", prompt, "messages"):
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise UserError(
                f"a prompt has the message {shown(message)}; a message is a dictionary with "
                "'role' and 'content'",
                parameter="prompt",
            )
    return prompt


def last_said(prompt: Prompt) -> str:
    """The text of a prompt, or of the last message of a conversation."""
    if isinstance(prompt, str):
        return prompt
    return str(prompt[-1]["content"]) if len(prompt) else ""


def messages_of(prompt: Prompt) -> list[Message]:
    """A prompt as a conversation: a text is what a user says."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [*prompt]


def conversation(tokenizer: Any, messages: Sequence[Message], *, answer: bool = False) -> str:
    """Messages in the chat template; with `answer`, up to where the assistant begins to speak."""
    try:
        return tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=answer
        )
    except Exception as error:  # templates raise what they like
        raise UserError(
            "the chat template of this reward model takes no conversation of a user and an "
            f"assistant: {short(error)}"
        ) from error


@contextlib.contextmanager
def cutting_the_beginning(tokenizer: Any) -> Iterator[None]:
    side = getattr(tokenizer, "truncation_side", "right")
    tokenizer.truncation_side = "left"
    try:
        yield
    finally:
        tokenizer.truncation_side = side


# ---------------------------------------------------------------------- what a model is like


def as_label(label: int | str | None, config: Any) -> int:
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
            "which one means good",
            parameter="label",
        )
    if isinstance(label, str):
        found = [key for key, name in names.items() if name == label]
        if not found:
            raise UserError(
                f"label is {label!r}; this classifier has {', '.join(map(repr, names.values()))}",
                parameter="label",
            )
        return found[0]
    return as_count("label", label, at_most=number - 1)


def as_length(length: Count | None, model: Any, tokenizer: Any) -> int | None:
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


def padding_token(model: Any, tokenizer: Any) -> int | None:
    """The token that fills shorter rows, made known to both; None: there is none."""
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        tokenizer.pad_token = tokenizer.eos_token
    pad = tokenizer.pad_token_id
    if pad is not None and getattr(model.config, "pad_token_id", None) is None:
        model.config.pad_token_id = pad
    return pad


def loaded(
    where: str | Path,
    auto: str,
    what: str,
    dtype: str,
    local_files_only: bool,
    trust_remote_code: bool,
) -> tuple[Any, Any]:
    """The model that transformers' class `auto` finds there, and its tokenizer.

    what   it must be, as "a sequence classifier", for the sentence if it is not
    """
    place = as_place("where", where, "a folder or a name on the hub")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise UserError(
            f"dtype is {shown(dtype)}; it must be one of {', '.join(_DTYPES)}", parameter="dtype"
        )
    if importlib.util.find_spec("transformers") is None:
        raise ModuleNotFoundError(
            "pretrained models need transformers, which is not installed: pip install transformers",
            name="transformers",
        )
    import transformers

    options: dict[str, Any] = {
        "local_files_only": on_disk_alone(place, local_files_only),
        "trust_remote_code": trust_remote_code,
    }
    try:
        both: Any = getattr(transformers, auto).from_pretrained(
            place, dtype=getattr(torch, dtype), output_loading_info=True, **options
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, **options)
    except Exception as error:  # the readers of damaged files raise classes of their own
        refuse_own_code(place, error)
        raise UserError(
            f"the reward model {place!r} could not be loaded: {short(error)} It must be a "
            f"folder with {what} and its tokenizer, or a name on the hub"
        ) from error
    model, info = both
    if missing := sorted(info["missing_keys"]):
        hint = ""
        if getattr(model.config, "auto_map", None) and not trust_remote_code:
            hint = (
                ". It has Python files of its own, which were not run; if you trust them, pass "
                "trust_remote_code=True: they run with all your rights"
            )
        raise UserError(
            f"{place!r} has no weights for {', '.join(missing[:3])}: transformers would draw "
            f"them at random, so it is not {what} that was trained{hint}"
        )
    return model, tokenizer


def short(error: Exception) -> str:
    """The text of an error in one sentence."""
    text = shorten(str(error) or type(error).__name__, width=200, placeholder=" ...")
    return text if text.endswith(".") else f"{text}."
