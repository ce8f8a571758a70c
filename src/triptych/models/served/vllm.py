"""vLLM's protocol: /v1/completions with token ids both ways. Read in, and run with, release 0.32.0.

    prompt                     token ids; add_special_tokens=False
    return_token_ids           the ids that were drawn, the end token included
    return_tokens_as_token_ids the likeliest tokens by id
    logprobs                   of the model's own law, before temperature and the rest
                               (logprobs_mode raw_logprobs, which is the default)
    logit_bias                 -100 for what is banned: it is left e^-100 of its probability, and
                               drawn again if it comes nonetheless

The server fills what a request leaves out from the model's generation_config.json, so every option
that changes the law is in the request. Its order is temperature, min_p, top_k, top_p. Ours has
min_p last, which is the same law unless both min_p and top_p cut.
"""

from dataclasses import dataclass
from typing import Any

from triptych.core.validation import UserError
from triptych.models.served.connection import Connection, Json
from triptych.models.served.dialect import (
    Changed,
    Facts,
    Said,
    Unreadable,
    Wanted,
    as_ids,
    as_numbers,
    chosen_model,
    part,
)

MOST_TOP = 20
"""Likeliest tokens that a server gives unless it was started with another --max-logprobs."""
_MARK = "token_id:"


@dataclass(frozen=True)
class Vllm:
    """How a vLLM server is asked."""

    name: str = "vllm"
    path: str = "/v1/completions"

    def speaks(self, server: Connection) -> bool:
        models = server.get("/v1/models")
        data = models.get("data") if isinstance(models, dict) else None
        return bool(data) and isinstance(data, list) and data[0].get("owned_by") == "vllm"

    def facts(self, server: Connection, model: str | None) -> Facts:
        data = part(server.get("/v1/models"), "data")
        name = chosen_model([str(each.get("id")) for each in data], model, server.url)
        own = next(each for each in data if each.get("id") == name)
        version = server.get("/version")
        said = version.get("version", "") if isinstance(version, dict) else ""
        return Facts(
            self.name,
            str(said),
            name,
            int(part(own, "max_model_len")),
            most_top=MOST_TOP,
            details={"root": own.get("root"), "parent": own.get("parent")},
        )

    def body(self, facts: Facts, wanted: Wanted) -> Json:
        """A request in which every option is neutral but those of `wanted`."""
        changed = wanted.changed
        if changed.min_p > 0 and changed.top_p < 1:
            raise UserError(
                "vLLM cuts by min_p before top_p, and here min_p comes last, which is another law; "
                "pass one of the two",
                parameter="sampling",
            )
        body: dict[str, Any] = {
            "model": facts.model,
            "prompt": list(wanted.prefix),
            "max_tokens": wanted.count,
            "n": 1,
            "echo": False,
            "stream": False,
            "add_special_tokens": False,
            "return_token_ids": True,
            "seed": wanted.seed,
            **neutral(changed),
        }
        if wanted.weigh or wanted.top:
            body |= {"logprobs": max(1, wanted.top), "return_tokens_as_token_ids": True}
        if wanted.banned:
            body["logit_bias"] = {str(token): -100 for token in sorted(wanted.banned)}
        return body

    def read(self, answer: Any, wanted: Wanted) -> Said:
        choice = part(answer, "choices", 0)
        tokens = as_ids(part(choice, "token_ids"), "token_ids")
        log_probs, tops = (), ()
        if wanted.weigh:
            log_probs = as_numbers(part(choice, "logprobs", "token_logprobs"), "token_logprobs")
        if wanted.top:
            listed = part(choice, "logprobs", "top_logprobs")
            tops = tuple(_top(each, wanted.top) for each in listed)
        ended = part(choice, "finish_reason")
        if ended not in ("stop", "length"):
            raise Unreadable(f"the answer was broken off (finish_reason {ended!r})")
        return Said(tokens, log_probs, tops, answer.get("model"), ended == "stop")

    def tokens_of(self, server: Connection, facts: Facts, text: str) -> list[int] | None:
        said = server.ask(
            "/tokenize", {"model": facts.model, "prompt": text, "add_special_tokens": False}
        )
        return None if said is None else list(as_ids(part(said, "tokens"), "tokens"))


def neutral(changed: Changed) -> dict[str, Any]:
    """Every option of the server that changes a law; none but those of `changed` does."""
    return {
        "temperature": changed.temperature,
        "top_p": changed.top_p,
        "top_k": changed.top_k or -1,
        "min_p": changed.min_p,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "min_tokens": 0,
        "ignore_eos": False,
        "stop": [],
        "stop_token_ids": [],
    }


def _top(listed: Any, most: int) -> tuple[tuple[int, float], ...]:
    """The likeliest tokens of one law, by id; the token that was drawn stands among them."""
    if not isinstance(listed, dict) or not all(key.startswith(_MARK) for key in listed):
        raise Unreadable("top_logprobs are not by token id")
    pairs = [(int(key.removeprefix(_MARK)), float(value)) for key, value in listed.items()]
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:most])
