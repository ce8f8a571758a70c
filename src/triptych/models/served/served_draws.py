"""Rows of a served model: a `Draws` whose tokens are drawn by the server."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import PAD, Prefixes
from triptych.core.protocols import Drawn, Gives, NamedSampling, Rng
from triptych.core.validation import Numbers, UserError, as_count
from triptych.models.served.connection import NoServer
from triptych.models.served.dialect import OWN, Changed, Said, Wanted

if TYPE_CHECKING:
    from triptych.models.served.served_lm import ServedLM

_DIGIT = 1024
_DIGITS = 3  # of a seed
_MOST_REDRAWN = 100


class ServedDraws(Prefixes):
    """A batch of growing prefixes. Their tokens are kept here, and the model is the server's.

    Every request has a seed, which is drawn through the door: with a stream for each row, what a
    row draws depends on its stream, its prefix and the server alone.
    """

    def __init__(self, lm: "ServedLM", prompts: Sequence[Sequence[int]]) -> None:
        super().__init__(len(prompts), lm.vocab_size, lm.length, "cpu")
        longest = max(map(len, prompts), default=0)
        table = torch.full((len(prompts), longest), PAD)
        for row, prompt in enumerate(prompts):
            table[row, : len(prompt)] = torch.tensor(prompt, dtype=torch.long)
        self.extend(table)
        self.lm, self.changed = lm, OWN
        self._begun = self.lengths

    @property
    def gives(self) -> frozenset[Gives]:
        """Log-probabilities are the model's own, so under changed laws there are draws alone."""
        return frozenset({"draws", "log_probs", "top_laws"} if self.changed == OWN else {"draws"})

    @property
    def ahead(self) -> int:
        return self.lm.ahead

    def fork(self, rows: Numbers) -> "ServedDraws":
        """A new one whose row i is a copy of row `rows[i]`."""
        copy = self._copy_rows(rows)
        copy._begun = self._begun[self._chosen(rows)]
        return copy

    def over(self) -> Bool[Tensor, " batch"]:
        """Rows that the server has ended, by whatever token it ends texts."""
        last = self._tokens.gather(1, (self._lengths - 1).clamp(min=0)[:, None])[:, 0]
        ended = torch.isin(last, torch.tensor(sorted(self.lm.ended_by), dtype=torch.long))
        return ended & (self._lengths > self._begun)

    def under(self, transform: object) -> "ServedDraws":
        """The same rows, whose laws the server changes by its own samplers."""
        if not isinstance(transform, NamedSampling):
            raise UserError(
                "the transform is a function, and laws of a served model are changed where it is; "
                "pass Sampling(temperature=..., top_p=..., top_k=..., min_p=...)",
                parameter="transform",
            )
        copy = self.fork(torch.arange(len(self._lengths)))
        copy.changed = Changed(
            float(transform.temperature),
            int(transform.top_k),
            float(transform.top_p),
            float(transform.min_p),
        )
        return copy

    def draw(
        self,
        rows: Int[Tensor, " rows"],
        counts: Int[Tensor, " rows"],
        rng: Rng,
        banned: Sequence[frozenset[int]] | None = None,
        *,
        weigh: bool = True,
    ) -> Drawn:
        """The next tokens of these rows, each row by a request of its own."""
        without = [frozenset[int]()] * len(rows) if banned is None else list(banned)
        weighed = weigh and self.changed == OWN
        wanted = self._wanted(rows, counts, without, self.changed, weigh=weighed)
        answers: list[Said | None] = [None] * len(wanted)
        missing = list(range(len(wanted)))
        for _ in range(_MOST_REDRAWN):
            seeds = _seeds(rng, len(rows))
            asked = [_with_seed(wanted[k], seeds[k]) for k in missing]
            for k, said in zip(missing, self.lm.ask(asked), strict=True):
                answers[k] = said
            # A server that can only make a token unlikely may still draw it: then it draws again.
            missing = [k for k in missing if (said := answers[k]) and said.tokens[0] in without[k]]
            if not missing:
                break
        else:
            raise NoServer(
                f"the server {self.lm.server.url} goes on drawing tokens that are banned",
                parameter="url",
            )
        return self._drawn([each for each in answers if each is not None], wanted)

    def likeliest(self, rows: Int[Tensor, " rows"], counts: Int[Tensor, " rows"]) -> Drawn:
        """The likeliest tokens: draws at temperature 0."""
        wanted = self._wanted(
            rows, counts, [frozenset[int]()] * len(rows), Changed(temperature=0.0)
        )
        return self._drawn(self.lm.ask(wanted), wanted)

    def top_law(
        self, rows: Int[Tensor, " rows"], k: int
    ) -> tuple[Int[Tensor, "rows k"], Float[Tensor, "rows k"]]:
        """The k likeliest next tokens, by the server's own list, or as many as it gives."""
        k = min(as_count("k", k, at_least=1), self.vocab_size, self.lm.facts.most_top)
        one = torch.ones_like(rows)
        wanted = [
            Wanted(each.prefix, 1, top=k, weigh=False)
            for each in self._wanted(rows, one, [frozenset[int]()] * len(rows), OWN)
        ]
        tops = [said.tops[0][:k] if said.tops else () for said in self.lm.ask(wanted)]
        if any(len(top) < k for top in tops):
            raise NoServer(
                f"{self.lm!r} gave fewer than {k} likeliest tokens; ask for fewer, or start the "
                "server with a larger limit on log-probabilities",
                parameter="k",
            )
        tokens = torch.tensor([[token for token, _ in top] for top in tops]).reshape(-1, k)
        values = [[min(value, 0.0) for _, value in top] for top in tops]
        return tokens, torch.tensor(values, dtype=torch.float64).reshape(-1, k)

    # ------------------------------------------------------------------ inside

    def _wanted(
        self,
        rows: Int[Tensor, " rows"],
        counts: Int[Tensor, " rows"],
        banned: Sequence[frozenset[int]],
        changed: Changed,
        *,
        weigh: bool = False,
    ) -> list[Wanted]:
        rows = self._asked(rows)
        first = () if self.lm.bos_token is None else (self.lm.bos_token,)
        found = []
        table, lengths = self._tokens[rows].tolist(), self._lengths[rows].tolist()
        for row, length, count, gone in zip(table, lengths, counts.tolist(), banned, strict=True):
            prefix = (*first, *row[:length])
            if not prefix:
                raise UserError(
                    "a prefix is empty, and this model has no BOS token to begin with; pass a "
                    "prompt of at least one token, or name a token with bos=ID",
                    parameter="rows",
                )
            most = min(count, self.lm.longest, self.lm.length - length)
            found.append(Wanted(prefix, 1 if gone else most, 0, changed, 0, gone, weigh))
        return found

    def _drawn(self, said: Sequence[Said], wanted: Sequence[Wanted]) -> Drawn:
        """The answers as a table; a server may answer more tokens than it was asked for."""
        rows = [
            (each.tokens[: asked.count], each.log_probs[: asked.count])
            for each, asked in zip(said, wanted, strict=True)
        ]
        longest = max((len(tokens) for tokens, _ in rows), default=1)
        tokens = torch.full((len(rows), longest), PAD)
        log_probs = torch.full((len(rows), longest), math.nan, dtype=torch.float64)
        for row, (ids, values) in enumerate(rows):
            tokens[row, : len(ids)] = torch.tensor(ids)
            if values:
                held = torch.tensor(values, dtype=torch.float64)
                log_probs[row, : len(ids)] = held.clamp(max=0.0)  # a rounded 1 may be above 1
        return Drawn(tokens, log_probs)


def _seeds(rng: Rng, rows: int) -> list[int]:
    """A number below 2^30 for each row, drawn through the door."""
    law = torch.full((rows, _DIGIT), -math.log(_DIGIT), dtype=torch.float64)
    seeds = torch.zeros(rows, dtype=torch.long)
    for _ in range(_DIGITS):
        seeds = seeds * _DIGIT + rng.categorical(law)
    return seeds.tolist()


def _with_seed(wanted: Wanted, seed: int) -> Wanted:
    return replace(wanted, seed=seed)
