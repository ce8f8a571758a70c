"""A verifier from examples: a small classifier on a language model's own states, from texts.

    probe = train_probe(lm, good, bad, layer=8)
    print(probe.held_out)
    found = guide(lm, prompts, probe, "backtracking", max_new_tokens=60)
    probe.save("my-probe.safetensors")

Every state of a training text is an example: the state after each token of the completion, which
is what the probe sees when it guides. What it learns depends on what is known of the bad texts:

    a bad text, nothing else      all its states are bad. The probe learns P(the text is good in
                                  the end | state): a value function
    a bad text and the place of   its states before the error are good, those from there on are
    its error                     bad. The probe learns P(no error so far | state)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.display import card, counted, facts_table
from triptych.core.files import write_tensors
from triptych.core.protocols import Question
from triptych.core.validation import (
    Count,
    Number,
    UserError,
    as_count,
    as_flag,
    as_list,
    as_text,
    check_can,
    shown,
)
from triptych.guidance.guide import check_language_model
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.causal_cache import as_layer
from triptych.models.pretrained.causal_states import states_of_rows
from triptych.verifiers.probe import Probe, held_out

Example = str | tuple[Any, str] | tuple[Any, str, int]
"""A completion; or a prompt and a completion; or these and where its error is, in characters."""


class HeldOut(NamedTuple):
    """What the probe says of texts that it was not trained on.

    texts      how many
    states     of these texts
    accuracy   share of the states whose class it gets right
    majority   share of the commoner class: the accuracy of always saying that
    at_end     share of the texts whose last state it gets right
    """

    texts: int
    states: int
    accuracy: float
    majority: float
    at_end: float


@dataclass(frozen=True, eq=False, repr=False)
class TextProbe:
    """A probe that knows the model and the layer it reads; `guide` takes it as it is.

    model       name or folder of the language model, for people
    kind        class of the language model; another one is refused
    held_out    how good the probe is on texts that were left out
    """

    probe: Probe
    model: str
    kind: str
    held_out: HeldOut

    @property
    def layer(self) -> int:
        """The layer of the language model whose states it reads."""
        assert self.probe.layer is not None
        return self.probe.layer

    def __repr__(self) -> str:
        scored = self.held_out
        return (
            f"TextProbe(layer {self.layer} of {self.model}, {scored.accuracy:.1%} right on "
            f"{counted(scored.states, 'state')} of {counted(scored.texts, 'text')} left out; "
            f"the commoner class is {scored.majority:.1%})"
        )

    def _repr_html_(self) -> str:
        facts = {name.replace("_", " "): value for name, value in self.held_out._asdict().items()}
        return card(repr(self), facts_table(facts))

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]:
        """log P(good | the last state of each row)."""
        return self.probe.log_values(asked)

    def check_model(self, lm: PretrainedCausalLM) -> None:
        """Refuse a language model whose states are not those of the training."""
        check_can("lm", lm, "model", "decoder")
        kind, width = type(lm.model).__name__, lm.model.get_input_embeddings().embedding_dim
        if (kind, width) != (self.kind, self.probe.width):
            raise UserError(
                f"this probe was trained on {self.model}, a {self.kind} with states of "
                f"{self.probe.width} numbers; the model is a {kind} with {width}"
            )
        as_layer(self.layer, lm.model)

    def to(self, device: torch.device | str) -> "TextProbe":
        """A copy whose tensors are on `device`."""
        return TextProbe(self.probe.to(device), self.model, self.kind, self.held_out)

    def save(self, file: str | Path) -> None:
        """Write a safetensors file, with the layer and the model's name in it."""
        about = {
            "model": self.model,
            "kind": self.kind,
            "layer": str(self.layer),
            "held_out": json.dumps(self.held_out._asdict()),
        }
        tensors = {name: part.cpu().contiguous() for name, part in self.probe.state().items()}
        write_tensors(_as_path(file), tensors, about)

    @classmethod
    def load(cls, file: str | Path) -> "TextProbe":
        """The probe that `save` wrote."""
        from safetensors import SafetensorError, safe_open

        path = _as_path(file)
        if not path.is_file():
            raise UserError(f"there is no file {str(file)!r}; pass one that probe.save wrote")
        try:
            with safe_open(str(path), framework="pt") as opened:
                about: Mapping[str, str] = opened.metadata() or {}
                state = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            scored = HeldOut(**json.loads(about["held_out"]))
            probe = Probe.from_state(state)
            if probe.layer is None:
                raise KeyError("layer")
            return cls(probe, about["model"], about["kind"], scored)
        except (SafetensorError, LookupError, TypeError, ValueError) as error:
            raise UserError(
                f"{str(file)!r} holds no probe of a language model; pass a file that probe.save "
                "wrote"
            ) from error


@renamed(model="lm")
def train_probe(
    lm: PretrainedCausalLM,
    good: Sequence[Example],
    bad: Sequence[Example],
    *,
    layer: Count = -1,
    chat: bool = False,
    share: Number = 0.2,
    depth: Count = 1,
    floor: Number = 0.0,
    seed: Count = 0,
) -> TextProbe:
    """Train a probe on the states of one layer, from texts that are right and texts that are wrong.

    good, bad   completions; or pairs of a prompt and a completion; for bad ones also triples of a
                prompt, a completion and the character at which it goes wrong
    layer       0 is the embedding, l the output of the l-th block, -1 the last
    chat        prompts are what a user says, in the model's chat template
    share       of the good and of the bad texts that is left out of training, to judge the probe
    depth       linear layers of the probe, 1 is a linear one
    floor       smallest value that it answers when it guides
    seed        draws what is left out and the start of training

    The texts are whole: the model's end token follows each of them. All states come from one pass
    of the model over every text.
    """
    check_language_model(lm)
    number, chat = as_layer(layer, lm.model), as_flag("chat", chat)
    texts = [
        _read(lm, text, name=name, chat=chat, correct=name == "good")
        for name, given in (("good", good), ("bad", bad))
        for text in as_list(name, given, "texts")
    ]
    correct = [text.correct for text in texts]
    if True not in correct or False not in correct:
        missing = "good" if True not in correct else "bad"
        raise UserError(f"{missing} is empty; a probe needs texts of both kinds")
    out = held_out(correct, share, seed=seed).tolist()
    states = states_of_rows(lm, [text.tokens for text in texts], number)
    states = [part[text.start :] for part, text in zip(states, texts, strict=True)]
    kept = [i for i, left_out in enumerate(out) if not left_out]
    probe = Probe.fit(
        torch.cat([states[i] for i in kept]),
        torch.cat([_labels(texts[i]) for i in kept]).to(lm.device),
        depth=depth,
        floor=floor,
        seed=seed,
        layer=number,
    )
    others = [i for i, left_out in enumerate(out) if left_out]
    scored = _score(probe, [states[i] for i in others], [_labels(texts[i]) for i in others])
    return TextProbe(probe, _name(lm), type(lm.model).__name__, scored)


class _Text(NamedTuple):
    """A training text as tokens.

    start   tokens of the prompt; one token at least is seen before a state counts
    wrong   the first token of the completion after which the text is wrong; None: it is right
    """

    tokens: list[int]
    start: int
    correct: bool
    wrong: int | None


def _read(lm: PretrainedCausalLM, given: Any, *, name: str, chat: bool, correct: bool) -> _Text:
    """A training text, as the user gave it."""
    parts = ("", given) if isinstance(given, str) else given
    if not isinstance(parts, tuple | list) or len(parts) not in ((2,) if correct else (2, 3)):
        more = "" if correct else ", or (prompt, completion, place of the error)"
        raise UserError(
            f"{name} holds {shown(given)}; every text must be a completion, or (prompt, "
            f"completion){more}"
        )
    completion = as_text(f"a completion of {name}", parts[1])
    before = parts[0]
    if chat:
        prompt = lm.chat(before)
    else:
        (prompt,) = lm.encode([as_text(f"a prompt of {name}", before)])
    (tokens,) = lm.encode([completion])
    if not tokens:
        raise UserError(f"{name} holds an empty completion; every text needs a character")
    wrong = None if correct else 0
    if len(parts) == 3:
        place = as_count("the place of an error", parts[2], at_most=len(completion) - 1)
        wrong = _token_at(lm, tokens, place)
    row = [*prompt, *tokens, *_end(lm)]
    if len(row) > lm.length:
        raise UserError(
            f"{name} has a text of {len(row)} tokens; this model reads at most {lm.length}"
        )
    return _Text(row, len(prompt), correct, wrong)


def _token_at(model: PretrainedCausalLM, tokens: list[int], place: int) -> int:
    """The number of the token in which a character stands."""
    for number in range(len(tokens)):
        if len(model.text_of(tokens[: number + 1]).rstrip("\ufffd")) > place:
            return number
    return len(tokens) - 1


def _end(model: PretrainedCausalLM) -> list[int]:
    """The token that ends a text: the tokenizer's own, if the model ends texts with it."""
    own = getattr(model.tokenizer, "eos_token_id", None)
    return [own] if own in model.end_tokens else [*model.end_tokens[:1]]


def _labels(text: _Text) -> Tensor:
    """True for each state of a completion that is right."""
    places = torch.arange(len(text.tokens) - text.start)
    return torch.ones_like(places, dtype=torch.bool) if text.wrong is None else places < text.wrong


def _score(probe: Probe, states: list[Tensor], labels: list[Tensor]) -> HeldOut:
    every, correct = torch.cat(states), torch.cat(labels).to(states[0].device)
    right = float(correct.double().mean())
    last = torch.stack([part[-1] for part in states])
    ends = torch.stack([part[-1] for part in labels]).to(last.device)
    return HeldOut(
        texts=len(states),
        states=len(every),
        accuracy=probe.score(every, correct),
        majority=max(right, 1 - right),
        at_end=probe.score(last, ends),
    )


def _name(lm: PretrainedCausalLM) -> str:
    """Name on the hub, or of the folder; the class where there is none."""
    name = str(getattr(lm.model.config, "_name_or_path", "") or "")
    if not name:
        return type(lm.model).__name__
    return Path(name).name if Path(name).is_absolute() else name


def _as_path(file: str | Path) -> Path:
    if not isinstance(file, str | Path) or not str(file):
        raise UserError(f"file is {shown(file)}; it must be a path")
    return Path(file)
