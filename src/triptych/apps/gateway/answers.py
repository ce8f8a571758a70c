"""Answers in the form of OpenAI's API, with what we have to say under the key `triptych`.

usage.completion_tokens   tokens of the texts that are given back
usage.triptych            what they cost: tokens generated and erased, questions
triptych                  the rule, the algorithm with its options and promise; for each text
                          whether it is accepted, its value, its costs, the evidence; the seed;
                          the trace, where it was asked for
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from triptych.apps.gateway.fields import Asked
from triptych.apps.gateway.rules import Chosen
from triptych.apps.gateway.traces import trace_document
from triptych.apps.gateway.work import Made
from triptych.guidance.guide import Encoded
from triptych.models.pretrained.causal import TokenScore

_COSTS = ("generator_calls", "generated", "erased", "verifier_calls")


class Answer(NamedTuple):
    """What all answers to a request share.

    prompts   one for each text, n times the same after one another
    shown     the prompts as texts, for `echo`
    begun     BOS, for a prompt whose token ids began with it; else None
    written   the text of one token
    """

    id: str
    created: int
    asked: Asked
    chosen: Chosen
    prompts: Sequence[Encoded]
    shown: Sequence[str]
    begun: Sequence[int | None]
    seed: int
    written: Callable[[int], str]

    # ------------------------------------------------------------------ whole

    def whole(self, made: Sequence[Made]) -> dict[str, Any]:
        """The answer to a request that is not streamed."""
        choices = [self._choice(index, row) for index, row in enumerate(made)]
        return self._head() | {
            "choices": choices,
            "usage": self.usage(made),
            "triptych": self.about(made),
        }

    def _choice(self, index: int, row: Made) -> dict[str, Any]:
        text = row.completion.text
        if not self.asked.chat:
            text = self.shown[index] + text if self.asked.echo else text
            said = {"index": index, "text": text, "finish_reason": row.finish}
            return said | {"logprobs": self._logprobs(index, row)}
        message = {"role": "assistant", "content": text, "refusal": None}
        return {
            "index": index,
            "message": message,
            "finish_reason": row.finish,
            "logprobs": self._chat_logprobs(index, row),
        }

    def usage(self, made: Sequence[Made]) -> dict[str, Any]:
        """What it cost; a prompt that has several texts counts once, as in OpenAI's API."""
        prompt = sum(len(each.tokens) for each in self.prompts[:: self.asked.n])
        texts = sum(len(row.tokens) for row in made)
        costs = {name: sum(row.completion.costs[name] for row in made) for name in _COSTS}
        return {
            "prompt_tokens": prompt,
            "completion_tokens": texts,
            "total_tokens": prompt + texts,
            "triptych": costs,
        }

    def about(self, made: Sequence[Made]) -> dict[str, Any]:
        """What there is to say besides."""
        said = self.promise() | {
            "seed": self.seed,
            "choices": [
                {
                    "accepted": row.completion.accepted,
                    "complete": row.completion.complete,
                    "reason": None if row.completion.reason is None else str(row.completion.reason),
                    "value": _finite(row.completion.score),
                    "log_evidence": _finite(row.completion.log_evidence),
                    "costs": row.completion.costs,
                }
                for row in made
            ],
        }
        if self.asked.trace:
            rows = [row.trace for row in made if row.trace is not None]
            said["trace"] = trace_document(rows, self.chosen.algorithm, self.chosen.words)
        return said

    def promise(self) -> dict[str, Any]:
        """What is known before the first token."""
        algorithm = self.chosen.algorithm
        return {
            "rule": self.chosen.rule,
            "verifier": self.chosen.words,
            "algorithm": algorithm.name,
            "options": algorithm.settings(),
            "promise": algorithm.promise,
            "held_back": algorithm.held_back,
        }

    # ------------------------------------------------------------------ in pieces

    def first(self, index: int) -> dict[str, Any]:
        """What a stream says before the text of a choice."""
        if self.asked.chat:
            return self._piece(index, {"role": "assistant", "content": ""}, None)
        return self._piece(index, self.shown[index] if self.asked.echo else "", None)

    def piece(self, index: int, text: str) -> dict[str, Any]:
        """More of a text."""
        return self._piece(index, {"content": text} if self.asked.chat else text, None)

    def last(self, index: int, row: Made) -> dict[str, Any]:
        """The end of a text."""
        return self._piece(index, {} if self.asked.chat else "", row.finish)

    def costs(self, made: Sequence[Made]) -> dict[str, Any]:
        """What a stream says in the end, where `include_usage` asks for it."""
        return self._head(".chunk") | {"choices": [], "usage": self.usage(made)}

    def _piece(self, index: int, inside: Any, finish: str | None) -> dict[str, Any]:
        name = "delta" if self.asked.chat else "text"
        choice = {"index": index, name: inside, "finish_reason": finish, "logprobs": None}
        usage = {"usage": None} if self.asked.include_usage else {}
        return self._head(".chunk") | {"choices": [choice]} | usage

    def _head(self, of_chat: str = "") -> dict[str, Any]:
        kind = f"chat.completion{of_chat}" if self.asked.chat else "text_completion"
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.chosen.model,
            "system_fingerprint": None,
        }

    # ------------------------------------------------------------------ log-probabilities

    def _logprobs(self, index: int, row: Made) -> dict[str, Any] | None:
        """Log-probabilities of a completion, and of its prompt where that is echoed."""
        if (scores := self._told_scores(index, row)) is None:
            return None
        tokens = [self.written(score.token) for score in scores]
        offsets = [0] if tokens else []
        for token in tokens[:-1]:
            offsets.append(offsets[-1] + len(token))
        begin = 0 if self.asked.echo else len(self.shown[index])
        return {
            "tokens": tokens,
            "token_logprobs": [score.log_prob for score in scores],
            "top_logprobs": [self._top(score) for score in scores] if self.asked.logprobs else None,
            "text_offset": [begin + offset for offset in offsets],
        }

    def _top(self, score: TokenScore) -> dict[str, float] | None:
        """The likeliest tokens by their texts, and the one that stands there.

        Two tokens with one text have the log-probability of the likelier one.
        """
        if score.log_prob is None:
            return None
        told: dict[str, float] = {}
        for token, log_prob in (*score.top, (score.token, score.log_prob)):
            told.setdefault(self.written(token), log_prob)
        return told

    def _chat_logprobs(self, index: int, row: Made) -> dict[str, Any] | None:
        if (scores := self._told_scores(index, row)) is None:
            return None
        content = [
            self._said(score.token, score.log_prob)
            | {"top_logprobs": [self._said(*each) for each in score.top]}
            for score in scores
        ]
        return {"content": content, "refusal": None}

    def _said(self, token: int, log_prob: float | None) -> dict[str, Any]:
        text = self.written(token)
        return {"token": text, "logprob": log_prob, "bytes": list(text.encode())}

    def _told_scores(self, index: int, row: Made) -> list[TokenScore] | None:
        if row.scores is None:
            return None
        if not self.asked.echo:
            return row.scores[len(self.prompts[index].tokens) :]
        bos = self.begun[index]  # a client counts the tokens that it gave
        return row.scores if bos is None else [TokenScore(bos, None, ()), *row.scores]


def now() -> int:
    """Seconds since 1970."""
    return int(time.time())


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
