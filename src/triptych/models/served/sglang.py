"""SGLang's own protocol: /generate with token ids both ways. Written by its documentation; it was
not run against a server, because SGLang needs a GPU.

    input_ids                token ids
    return_logprob           meta_info.output_token_logprobs: (log-probability, id, text) of each
                             token, of the law before temperature and the rest
    top_logprobs_num         meta_info.output_top_logprobs, in the same form
    sampling_params          every option that changes the law, set to neutral

A seed of one request (sampling_seed) is read where the server runs with deterministic inference
alone. A ban is not among the documented options, so algorithms that need one are refused here.
"""

from dataclasses import dataclass
from typing import Any

from triptych.core.validation import UserError
from triptych.models.served.connection import Connection, Json
from triptych.models.served.dialect import (
    Facts,
    Said,
    Unreadable,
    Wanted,
    as_ids,
    as_numbers,
    chosen_model,
    part,
)

MOST_TOP = 100


@dataclass(frozen=True)
class Sglang:
    """How an SGLang server is asked."""

    name: str = "sglang"
    path: str = "/generate"

    def speaks(self, server: Connection) -> bool:
        said = server.get("/get_model_info")
        return isinstance(said, dict) and "model_path" in said

    def facts(self, server: Connection, model: str | None) -> Facts:
        """The only model of the server."""
        told, own = server.get("/get_server_info") or {}, server.get("/get_model_info")
        path = str(part(own, "model_path"))
        name = str(told.get("served_model_name") or path)
        length = told.get("context_length") or told.get("max_total_num_tokens")
        if length is None:
            raise UserError(
                f"the server {server.url} does not say how long its context is", parameter="url"
            )
        return Facts(
            self.name,
            str(told.get("version", "")),
            chosen_model([name], model, server.url),
            int(length),
            most_top=MOST_TOP,
            details={"model_path": path},
        )

    def body(self, facts: Facts, wanted: Wanted) -> Json:
        """A request in which every option is neutral but those of `wanted`."""
        changed = wanted.changed
        if wanted.banned:
            raise UserError(
                "SGLang's protocol has no way to ban tokens by id, and this algorithm needs one",
                parameter="banned",
            )
        if changed.min_p > 0 and changed.top_p < 1:
            raise UserError(
                "pass min_p or top_p: the order in which SGLang cuts by them is not ours",
                parameter="sampling",
            )
        return {
            "input_ids": list(wanted.prefix),
            "return_logprob": True,
            "top_logprobs_num": wanted.top,
            "stream": False,
            "sampling_params": {
                "max_new_tokens": wanted.count,
                "temperature": changed.temperature,
                "top_p": changed.top_p,
                "top_k": changed.top_k or -1,
                "min_p": changed.min_p,
                "repetition_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
                "min_new_tokens": 0,
                "ignore_eos": False,
                "sampling_seed": wanted.seed,
            },
        }

    def read(self, answer: Any, wanted: Wanted) -> Said:
        """The tokens of an answer that was not broken off."""
        told = part(answer, "meta_info")
        listed = part(told, "output_token_logprobs")
        if not isinstance(listed, list):
            raise Unreadable("output_token_logprobs are no list")
        tokens = as_ids([part(each, 1) for each in listed], "ids")
        log_probs = as_numbers([part(each, 0) for each in listed], "log-probabilities")
        tops = ()
        if wanted.top:
            tops = tuple(
                tuple((int(part(one, 1)), float(part(one, 0))) for one in each)
                for each in part(told, "output_top_logprobs")
            )
        reason = part(told, "finish_reason", "type")
        if reason not in ("stop", "length"):
            raise Unreadable(f"the answer was broken off (finish_reason {reason!r})")
        return Said(tokens, log_probs, tops, None, reason == "stop")

    def tokens_of(self, server: Connection, facts: Facts, text: str) -> list[int] | None:
        return None
