"""The plain OpenAI protocol, which is refused, and why.

Its /v1/completions takes token ids and answers text. Two things are lost on the way. The text of a
token need not give the token back: of several tokens with one text, and of half a character, the
answer does not say which was drawn, and the next token would be drawn after another prefix than the
one before. And its log-probabilities are of texts, for the same reason. Every law here
is one of tokens, so an answer without ids has none of them.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

from triptych.core.validation import UserError
from triptych.models.served.connection import Connection, Json
from triptych.models.served.dialect import Facts, Said, Wanted


@dataclass(frozen=True)
class OpenAi:
    """A server that speaks it, and none of the others."""

    name: str = "openai"
    path: str = "/v1/completions"

    def speaks(self, server: Connection) -> bool:
        models = server.get("/v1/models")
        return isinstance(models, dict) and "data" in models

    def facts(self, server: Connection, model: str | None) -> NoReturn:
        raise UserError(
            f"the server {server.url} speaks the plain OpenAI protocol, which answers texts and no "
            "token ids; tokens of one text cannot be told apart then, and the law would be wrong. "
            "Serve the model with vLLM, llama.cpp or SGLang",
            parameter="dialect",
        )

    def body(self, facts: Facts, wanted: Wanted) -> Json:
        raise UserError("the plain OpenAI protocol is not asked for tokens", parameter="dialect")

    def read(self, answer: Any, wanted: Wanted) -> Said:
        raise UserError("the plain OpenAI protocol is not asked for tokens", parameter="dialect")

    def tokens_of(self, server: Connection, facts: Facts, text: str) -> list[int] | None:
        return None
