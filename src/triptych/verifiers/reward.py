"""A reward model of Hugging Face as a verifier of text: V is the probability that a text is good.

    one label       V = 1 / (1 + exp(-score))
    several labels  V = softmax(scores)[label]

A reward model reads the prompt and the completion together, with its own tokenizer: in its chat
template where it has one, as the user's and the assistant's message, and else as a pair of texts.
Worked value: the score 0 of one label, or equal scores of two, give V = ½.

    reward = RewardModel.from_pretrained("my-reward-model")
    found = guide(lm, prompts, reward, BestOfN(n=8), max_new_tokens=60)

Most reward models were trained on whole replies; what they say of half a reply is their guess.
transformers is an optional dependency (`pip install 'transformers>=5,<6'`), imported when used.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.core.validation import (
    Count,
    UserError,
    as_count,
    as_device,
    as_flag,
    as_text,
    check_can,
    shown,
)
from triptych.verifiers.text_models import (
    BATCH,
    Prompt,
    as_label,
    as_length,
    as_prompts,
    as_texts,
    conversation,
    cutting_the_beginning,
    last_said,
    loaded,
    messages_of,
    padding_token,
)


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
        self.label = as_label(label, model.config)
        self.length = as_length(length, model, tokenizer)
        self.batch = as_count("batch", batch, at_least=1)
        self.truncated, self.passes = 0, 0
        self._pad_token = padding_token(model, tokenizer)

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
        model, tokenizer = loaded(
            where,
            "AutoModelForSequenceClassification",
            "a sequence classifier",
            dtype,
            local_files_only,
            trust_remote_code,
        )
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
        completions = [as_text(f"texts[{i}]", t) for i, t in enumerate(as_texts(texts))]
        prompts = as_prompts(prompt, len(completions))
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
            said = [*messages_of(prompt), {"role": "assistant", "content": completion}]
            texts, special = (conversation(tokenizer, said),), False
        elif said := last_said(prompt):
            texts = (said, completion)
        row = tokenizer(*texts, add_special_tokens=special)
        if self.length is not None and len(row["input_ids"]) > self.length:
            row = self._truncated(texts, special, len(row["input_ids"]))
        if not row["input_ids"]:  # no prompt, and a completion that ended at once
            first = tokenizer.bos_token_id, tokenizer.eos_token_id, self._pad_token, 0
            token = next(token for token in first if token is not None)
            row = {"input_ids": [token], "attention_mask": [1]}
        return dict(row)

    def _truncated(self, texts: tuple[str, ...], special: bool, tokens: int) -> Any:
        """The end of a text that is too long; what is cut first is the beginning."""
        if not self.truncated:
            warnings.warn(
                f"a text has {tokens} tokens and this reward model reads {self.length}: its "
                "beginning is cut, as in all such texts (`truncated` counts them)",
                stacklevel=2,
            )
        self.truncated += 1
        with cutting_the_beginning(self.tokenizer):
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


def _tensors(row: Mapping[str, list[int]]) -> dict[str, Int[Tensor, "1 t"]]:
    return {name: torch.tensor([part]) for name, part in row.items()}


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
            "AutoModelForSequenceClassification, or its name to RewardModel.from_pretrained",
            parameter="model",
        )
