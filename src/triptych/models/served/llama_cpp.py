"""llama.cpp's own protocol: /completion with token ids both ways. Run with the server of xllamacpp
2026.10.

    prompt          token ids, to which nothing is added
    n_probs         log-probabilities of the model's own law, before every sampler
    samplers        which samplers run, and in which order: ours, and none where nothing is changed
    logit_bias      false for what is banned: it is never drawn
    cache_prompt    what the server has read stays read, so that erasing costs nothing

A token that is half a character has no entry among the log-probabilities, and where all tokens are
such there is no list (seen in that release; the ids are there). Such a token is kept, since to draw
again would change the law. Its log-probability is asked for.

The answer repeats the settings that were used, and they are compared with those that were asked.
"""

import math
from dataclasses import dataclass
from typing import Any

from triptych.models.served.connection import Connection, Json
from triptych.models.served.dialect import (
    Changed,
    Facts,
    NoTop,
    Said,
    Unreadable,
    Wanted,
    as_ids,
    chosen_model,
    part,
)

MOST_TOP = 1000
"""Likeliest tokens that are asked for at most: a law of 50,000 takes half a second."""


@dataclass(frozen=True)
class LlamaCpp:
    """How a llama.cpp server is asked."""

    name: str = "llama.cpp"
    path: str = "/completion"

    def speaks(self, server: Connection) -> bool:
        said = server.get("/props")
        return isinstance(said, dict) and "default_generation_settings" in said

    def facts(self, server: Connection, model: str | None) -> Facts:
        props, models = server.get("/props"), server.get("/v1/models")
        listed = part(models, "data")
        name = chosen_model([str(each.get("id")) for each in listed], model, server.url)
        own = next(each for each in listed if each.get("id") == name)
        meta = own.get("meta") or {}
        keys = ("n_params", "size", "n_embd", "ftype")
        return Facts(
            self.name,
            str(props.get("build_info", "")),
            name,
            int(part(props, "default_generation_settings", "n_ctx")),
            vocab_size=int(meta["n_vocab"]) if "n_vocab" in meta else None,
            most_top=MOST_TOP,
            details={key: meta.get(key) for key in keys},
        )

    def body(self, facts: Facts, wanted: Wanted) -> Json:
        body: dict[str, Any] = {
            "prompt": list(wanted.prefix),
            "n_predict": wanted.count,
            "seed": wanted.seed,
            "n_probs": max(int(wanted.weigh), wanted.top),
            "post_sampling_probs": False,
            "return_tokens": True,
            "cache_prompt": True,
            "stream": False,
            "stop": [],
            "ignore_eos": False,
            "logit_bias": [[token, False] for token in sorted(wanted.banned)],
            **_samplers(wanted.changed),
        }
        return body

    def read(self, answer: Any, wanted: Wanted) -> Said:
        """The tokens of an answer, if they were drawn as they were asked for."""
        tokens, log_probs, tops = as_ids(part(answer, "tokens"), "tokens"), (), ()
        weighed = wanted.weigh or wanted.top > 0
        listed = answer.get("completion_probabilities", []) if weighed else []
        if not isinstance(listed, list):
            raise Unreadable("completion_probabilities are no list")
        if weighed:
            log_probs = _along(tokens, listed)
        if wanted.top and len(listed) < len(tokens):
            raise NoTop(tokens[0])
        if wanted.top:
            tops = tuple(
                tuple(
                    (int(part(one, "id")), float(part(one, "logprob")))
                    for one in part(each, "top_logprobs")
                )
                for each in listed
            )
        if answer.get("truncated"):
            raise Unreadable("the prompt was cut to fit the server's context")
        used = part(answer, "generation_settings", "samplers")
        if used != _samplers(wanted.changed)["samplers"]:
            raise Unreadable(f"the server drew with the samplers {used}, which were not asked for")
        ended = answer.get("stop_type") == "eos"
        return Said(tokens, log_probs if wanted.weigh else (), tops, answer.get("model"), ended)

    def tokens_of(self, server: Connection, facts: Facts, text: str) -> list[int] | None:
        body = {"content": text, "add_special": False, "parse_special": False}
        said = server.ask("/tokenize", body)
        return None if said is None else list(as_ids(part(said, "tokens"), "tokens"))


def _along(tokens: tuple[int, ...], listed: list[Any]) -> tuple[float, ...]:
    """The log-probability of each token, nan for one that is left out of the list."""
    found, place = [], 0
    for token in tokens:
        if place < len(listed) and part(listed[place], "id") == token:
            found.append(float(part(listed[place], "logprob")))
            place += 1
        else:
            found.append(math.nan)
    if place < len(listed):
        raise Unreadable("the tokens of the answer are not those of its log-probabilities")
    return tuple(found)


def _samplers(changed: Changed) -> dict[str, Any]:
    """Which samplers run, in our order: temperature, top_k, top_p, min_p."""
    named: list[tuple[str, str, float, float]] = [
        ("temperature", "temperature", changed.temperature, 1.0),
        ("top_k", "top_k", changed.top_k, 0),
        ("top_p", "top_p", changed.top_p, 1.0),
        ("min_p", "min_p", changed.min_p, 0.0),
    ]
    settings: dict[str, Any] = {option: value for _, option, value, _ in named}
    settings["samplers"] = [sampler for sampler, _, value, off in named if value != off]
    return settings
