"""A language model that a server holds, as `guide` takes it: text in, draws out.

    lm = ServedLM("http://127.0.0.1:8000", tokenizer="HuggingFaceTB/SmolLM2-135M-Instruct")
    guide(lm, ["The capital of France is"], rule, "backtracking", max_new_tokens=20)

The engine is the server's and the algorithm is ours. What the server answers are draws, several
tokens at once with their log-probabilities, so algorithms that need no whole law run on it. Tokens
are ids both ways: no text is tokenised twice.

Before the first prompt the server is asked what it is, which model it has, whether our tokenizer
writes and reads as its own does, and whether its draws are those of its law. Where it has another
model later on, the next question says so.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from triptych.core.validation import (
    Count,
    Number,
    Prefix,
    UserError,
    as_count,
    as_flag,
    check_can,
    shown,
)
from triptych.models.pretrained.causal_loading import load_tokenizer_alone
from triptych.models.pretrained.tokenised import Tokenised
from triptych.models.served.checking import (
    DRAWS,
    ROUND_TRIP,
    check_draws,
    check_tokens,
    same_model,
)
from triptych.models.served.connection import Connection, NoServer
from triptych.models.served.dialect import Dialect, NoTop, Said, Unreadable, Wanted
from triptych.models.served.llama_cpp import LlamaCpp
from triptych.models.served.openai import OpenAi
from triptych.models.served.served_draws import ServedDraws
from triptych.models.served.sglang import Sglang
from triptych.models.served.vllm import Vllm

DIALECTS: Mapping[str, Dialect] = {
    each.name: each for each in (Vllm(), LlamaCpp(), Sglang(), OpenAi())
}
AHEAD = 16
"""Tokens of a request, where an algorithm asks for no number."""
ATTEMPTS = 5
"""Times that an answer is asked for which cannot be read."""
_PROBE = "The"
_PROBED = 8  # likeliest tokens that tell one model from another


class ModelChanged(UserError):
    """The server has another model than before."""


class ServedLM(Tokenised):
    """A model behind a URL, with the tokenizer that it was trained with.

    model       its name there; None takes the only one
    tokenizer   of transformers, or where to load it from: a folder, a .gguf file or a hub name;
                None reads and writes tokens only
    api_key     sent as a bearer token, and shown nowhere
    dialect     vllm, llama.cpp, sglang or openai; None asks the server
    ahead       tokens of a request, where an algorithm asks for no number
    longest     tokens of a request at most
    timeout     seconds of one answer
    patience    seconds of faults after which the server is given up
    in_flight   requests at a time
    ended_by    tokens by which the server has ended texts, those of the tokenizer among them
    check       compare the tokenizer and the server's draws before the first prompt
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        tokenizer: Any = None,
        api_key: str | None = None,
        dialect: str | None = None,
        vocab_size: Count | None = None,
        length: Count | None = None,
        bos: bool | Count = True,
        ahead: Count = AHEAD,
        longest: Count = 512,
        timeout: Number = 120.0,
        patience: Number = 60.0,
        in_flight: Count = 64,
        check: bool = True,
    ) -> None:
        self.server = Connection(
            url, api_key=api_key, timeout=timeout, patience=patience, in_flight=in_flight
        )
        self.ahead = as_count("ahead", ahead, at_least=1)
        self.longest = as_count("longest", longest, at_least=1)
        self.dialect = _dialect(dialect, self.server)
        self._asked_for = model
        self.facts = self.dialect.facts(self.server, model)
        given = isinstance(tokenizer, str | Path)
        self.tokenizer = load_tokenizer_alone(tokenizer) if given else tokenizer
        if self.tokenizer is not None:
            check_can("tokenizer", self.tokenizer, "decode", "get_vocab", "__call__")
        self._vocab_size = self._find_vocab_size(vocab_size)
        self.bos_token = self._bos_token(bos)
        most = self.facts.length - (self.bos_token is not None)
        self.length = most if length is None else as_count("length", length, at_least=1)
        self.end_tokens = _end_tokens(self.tokenizer)
        self.ended_by = set(self.end_tokens)
        self._outages = self.server.outages
        self._likely: dict[int, float] = {}  # after the probe, once it was asked
        if as_flag("check", check):
            self.check_tokenizer()
        self._likely = self._probed()
        if check:
            self.check_draws()

    def __repr__(self) -> str:
        return f"ServedLM({self.facts.dialect} at {self.server.url}, {self.facts.model!r})"

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def fingerprint(self) -> str:
        """Which model this is: a digest of what the server says of it, without where it is."""
        facts = self.facts
        said = [facts.dialect, facts.model, facts.vocab_size, dict(facts.details)]
        said.append(max(self._likely, key=lambda token: self._likely[token]))
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def decoder(
        self, prompts: Sequence[str] | Prefix, *, layer: Count | None = None
    ) -> ServedDraws:
        """`Draws` whose row b begins with `prompts[b]`: texts, or tokens without BOS."""
        if layer is not None:
            raise UserError(
                "layer is given, and a server keeps the states of its model; a verifier of states "
                "needs the model in this process, PretrainedCausalLM",
                parameter="layer",
            )
        return ServedDraws(self, self._prompts(prompts))

    def ask(self, wanted: Sequence[Wanted]) -> list[Said]:
        """The answers to some questions; several are in flight. An answer of another model, or one
        that cannot be read, is refused."""
        answers: list[Said | None] = [None] * len(wanted)
        asked, missing, why = [*wanted], list(range(len(wanted))), ""
        for _ in range(ATTEMPTS):
            bodies = [self.dialect.body(self.facts, asked[k]) for k in missing]
            given = self.server.post_all(self.dialect.path, bodies)
            if self.server.outages != self._outages:  # it may have come back as another
                self._outages = self.server.outages
                if self._likely:
                    self.check_identity()
            again = []
            for k, answer in zip(missing, given, strict=True):
                try:
                    said = self._checked(self.dialect.read(answer, asked[k]), asked[k])
                    answers[k] = self._filled(said, asked[k])
                except Unreadable as error:
                    if isinstance(error, NoTop):  # what is drawn does not matter there
                        gone = asked[k].banned | {error.token}
                        asked[k] = replace(asked[k], banned=gone)
                    why = str(error)
                    again.append(k)
            missing = again
            if not missing:
                return [each for each in answers if each is not None]
        raise NoServer(
            f"the server {self.server.url} gave {ATTEMPTS} answers that cannot be read: {why}",
            parameter="url",
        )

    def close(self) -> None:
        """Let go of the connections."""
        self.server.close()

    # ------------------------------------------------------------------ what is checked

    def check_identity(self) -> None:
        """The server has the model that it had; a `ModelChanged` if not."""
        now, before = self.dialect.facts(self.server, self._asked_for), self.facts
        same = (now.model, now.details) == (before.model, before.details)
        if not same or not same_model(self._likely, self._probed()):
            raise ModelChanged(
                f"the server {self.server.url} had the model {before.model!r} and has another one "
                f"now ({now.model!r}); texts of two models are not mixed: serve the first one "
                "again, or begin with another file",
                parameter="url",
            )

    def check_tokenizer(self) -> None:
        """Our tokenizer writes a text with the tokens of the server's."""
        if self.tokenizer is None:
            return
        theirs = self.dialect.tokens_of(self.server, self.facts, ROUND_TRIP)
        if theirs is None:
            return
        check_tokens(self.encode([ROUND_TRIP])[0], theirs, self.facts.model)

    def check_draws(self) -> None:
        """The server draws from the law that it states, by a few draws after a fixed prefix."""
        prefix = self._probe()
        asked = [Wanted(prefix, 1, seed, weigh=False) for seed in range(DRAWS)]
        drawn = [said.tokens[0] for said in self.ask(asked)]
        check_draws(drawn, self._likely, self.server.url)

    def _checked(self, said: Said, wanted: Wanted) -> Said:
        """An answer of the right model, with tokens of its vocabulary and log-probabilities."""
        if said.model is not None and said.model != self.facts.model:
            raise ModelChanged(
                f"the server {self.server.url} answered by the model {said.model!r}; it was asked "
                f"for {self.facts.model!r}",
                parameter="url",
            )
        weighed = len(said.log_probs)
        if not said.tokens or weighed != len(said.tokens) * wanted.weigh:
            raise Unreadable(f"{len(said.tokens)} tokens came with {weighed} log-probabilities")
        if max(said.tokens) >= self._vocab_size:
            raise UserError(
                f"the server drew the token {max(said.tokens)}, and the tokenizer knows tokens "
                f"below {self._vocab_size}: pass the tokenizer of the served model, or vocab_size",
                parameter="vocab_size",
            )
        if said.ended:
            self.ended_by.add(said.tokens[-1])
        if any(each > 1e-3 for each in said.log_probs):
            raise Unreadable(f"log-probabilities are {said.log_probs}")
        return said

    def _filled(self, said: Said, wanted: Wanted) -> Said:
        """An answer whose log-probabilities are all there: what was left out is asked for."""
        if not any(map(math.isnan, said.log_probs)):
            return said
        found = [*said.log_probs]
        for k in (k for k, value in enumerate(found) if math.isnan(value)):
            token, prefix = said.tokens[k], (*wanted.prefix, *said.tokens[:k])
            for top in (self.facts.most_top, self.vocab_size):
                law = Wanted(prefix, 1, top=top, banned=frozenset({token}), weigh=False)
                listed = dict(self.ask([law])[0].tops[0])
                if token in listed:
                    break
            if token not in listed:
                raise Unreadable(f"no log-probability of the token {token}")
            found[k] = listed[token]
        return replace(said, log_probs=tuple(found))

    def _probe(self) -> tuple[int, ...]:
        """A fixed prefix."""
        first = () if self.bos_token is None else (self.bos_token,)
        token = [] if self.tokenizer is None else self.encode([_PROBE])[0]
        return (*first, *(token or [1]))

    def _probed(self) -> dict[int, float]:
        """The likeliest tokens after it, with their log-probabilities."""
        most = min(_PROBED, self.facts.most_top, self._vocab_size)
        said = self.ask([Wanted(self._probe(), 1, top=most, weigh=False)])[0]
        if not said.tops or len(said.tops[0]) < most:
            raise NoServer(
                f"the server {self.server.url} gives no log-probabilities of its likeliest tokens",
                parameter="url",
            )
        return dict(said.tops[0])

    # ------------------------------------------------------------------ inside

    def _find_vocab_size(self, given: Count | None) -> int:
        said = self.facts.vocab_size
        if given is not None:
            return as_count("vocab_size", given, at_least=2)
        if said is not None:
            return said
        if self.tokenizer is None:
            raise UserError(
                f"the server {self.server.url} does not say how many tokens its model has; pass "
                "tokenizer or vocab_size",
                parameter="vocab_size",
            )
        return max(self.tokenizer.get_vocab().values()) + 1


def _dialect(name: str | None, server: Connection) -> Dialect:
    if name is not None:
        if name not in DIALECTS:
            raise UserError(
                f"dialect is {shown(name)}; it must be one of {', '.join(DIALECTS)}",
                parameter="dialect",
            )
        return DIALECTS[name]
    for each in DIALECTS.values():
        if each.speaks(server):
            return each
    raise NoServer(
        f"the server {server.url} answers as none of {', '.join(DIALECTS)} does; check the URL",
        parameter="url",
    )


def _end_tokens(tokenizer: Any) -> tuple[int, ...]:
    token = getattr(tokenizer, "eos_token_id", None)
    return () if token is None else (int(token),)
