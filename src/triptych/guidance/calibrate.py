"""How wrong a verifier is for your model and prompts, by roll-outs, and what to expect of it.

    found = calibrate(verifier, lm, prompts, is_right, max_new_tokens=60)
    print(*found.prompts[0].sentences(), sep="\\n")

Texts are drawn from the model alone. The verifier is asked about each text after every token, the
outcome is known of every finished text, and at some depths the text is cut and finished again. What
is computed of this, and by which intervals, is in `theory.generation.value_errors`. Nothing but
the texts of the model enters, so where a right text is rare, many texts are needed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.display import card, counted, records_table
from triptych.core.estimates import Estimate
from triptych.core.protocols import Decoder, Question, ReadsStates, Verifier, VerifierLike
from triptych.core.streams import RowStreams
from triptych.core.validation import (
    Count,
    EndTokens,
    Number,
    UserError,
    as_count,
    as_end_token,
    as_list,
    as_number,
    as_probability,
    as_seed,
    as_text,
    check_can,
)
from triptych.guidance.batches import TextFunction, text_function
from triptych.inference.guided import ancestral
from triptych.inference.guided.asking import as_verifier, name_of_verifier
from triptych.theory.generation.value_errors import Calibration, Drawn, calibration
from triptych.verifiers.text import Batched, TextRule

_AT_ONCE = 4096  # texts that are drawn together
_ROOM = 1e-9  # a probability may be above 1 by rounding


@dataclass(frozen=True, eq=False)
class Calibrated:
    """What is known of each prompt, and on average over them; all intervals hold together with
    probability `confidence`.

    prompts   a `Calibration` for each
    """

    given: tuple[Any, ...]
    prompts: tuple[Calibration, ...]
    confidence: float

    @property
    def success(self) -> Estimate:
        """P(right) of the model alone, on average."""
        return _average([one.success for one in self.prompts])

    @property
    def tilted(self) -> Estimate:
        """P(right) of VGB after many steps and of many particles, on average."""
        return _average([one.tilted for one in self.prompts])

    @property
    def best_of_n(self) -> Mapping[int, Estimate]:
        """P(right) of the best of n, on average."""
        known = set.intersection(*(set(one.best_of_n) for one in self.prompts))
        return {n: _average([one.best_of_n[n] for one in self.prompts]) for n in sorted(known)}

    def __repr__(self) -> str:
        return (
            f"Calibrated({counted(len(self.prompts), 'prompt')}, right {self.success}, with many "
            f"particles {self.tilted})"
        )

    def _repr_html_(self) -> str:
        rows = [
            [given, one.success, one.tilted, f"{one.factor.low:.3g}", one.leaf_mass]
            for given, one in zip(self.given, self.prompts, strict=True)
        ]
        columns = ("prompt", "right", "VGB, particles", "factor at least", "VGB at full texts")
        return card(repr(self), records_table(columns, rows))


def calibrate(
    verifier: TextFunction | VerifierLike,
    lm: Any,
    prompts: str | Sequence[Any],
    outcome: TextFunction | VerifierLike,
    *,
    max_new_tokens: Count,
    texts: Count = 200,
    rollouts: Count = 1,
    depths: Sequence[Count] | None = None,
    n: Sequence[Count] = (1, 2, 4, 8, 16),
    threshold: Number = 0.5,
    confidence: Number = 0.95,
    end_token: EndTokens | None = None,
    rng: Count = 0,
) -> Calibrated:
    """The error of a verifier along the model's own texts, with intervals, for each prompt.

    verifier    a function of text, as `guide` takes it, or a verifier of token ids: what is tried
    lm          a PretrainedCausalLM and prompts that are texts; or anything with
                next_token_log_probs and prompts that are lists of token ids
    outcome     of the finished text, as a function or verifier of the same kind: what is right
    texts       of each prompt
    rollouts    of each text at each depth; their number times that of the depths, and one, times
                `texts` completions are drawn
    depths      after how many tokens texts are cut; about a quarter, half and three quarters of
                max_new_tokens where none are given
    n           of best-of-n; those above `texts` are left out
    threshold   V̂ from which a hard verifier made of this one accepts
    """
    limit = as_count("max_new_tokens", max_new_tokens, at_least=1)
    number = as_count("texts", texts, at_least=2)
    extra = as_count("rollouts", rollouts, at_least=1)
    chosen = as_list("n", n, "numbers of candidates")
    sizes = [as_count("a number of n", each, at_least=1) for each in chosen]
    mark = as_number("threshold", threshold)
    sure = as_probability("confidence", confidence, strictly=True)
    seed = as_seed(rng, name="rng")
    cuts = _depths(depths, limit)
    given, rows = _prompts(lm, prompts)
    each = 1 - (1 - sure) / len(rows)
    found: list[Calibration] = []
    for place, row in enumerate(rows):
        asker = _Asker(lm, row, given[place], limit, end_token, seed, place)
        drawn = asker.draw(verifier, outcome, number, cuts, extra)
        found.append(calibration(drawn, n=sizes, threshold=mark, confidence=each))
    return Calibrated(tuple(given), tuple(found), sure)


class _Asker:
    """One prompt: texts of the model, and what verifier and outcome say of them."""

    def __init__(
        self,
        lm: Any,
        row: list[int],
        given: Any,
        limit: int,
        end_token: EndTokens | None,
        seed: int,
        place: int,
    ) -> None:
        self.lm, self.row, self.given, self.limit = lm, row, given, limit
        self.is_text = hasattr(lm, "text_of")
        ends = lm.end_tokens if self.is_text and end_token is None else end_token
        self.ends = as_end_token(ends or None, lm.vocab_size)
        self.seed, self.used = seed, place << 40  # texts of a prompt, each with a stream

    def draw(
        self,
        verifier: Any,
        outcome: Any,
        number: int,
        depths: tuple[int, ...],
        extra: int,
    ) -> Drawn:
        """`number` texts, and `extra` roll-outs from each of them at each depth."""
        said, right = self._asked("verifier", verifier), self._asked("outcome", outcome)
        tokens, lengths = self._completed([self.row] * number)
        start = len(self.row)
        values = np.zeros((number, self.limit))
        for depth in range(1, self.limit + 1):
            reached = (lengths - start >= depth).numpy()
            if reached.any():
                rows = tokens[reached, : start + depth]
                over = (lengths - start == depth)[reached]
                values[reached, depth - 1] = self._answers(said, rows, over)
            values[~reached, depth - 1] = values[~reached, depth - 2]
        known = self._outcomes(right, tokens, lengths)
        again = np.repeat(known[:, None, None], len(depths), 1).repeat(extra, 2)
        for k, depth in enumerate(depths):
            open_rows = torch.nonzero(lengths - start > depth)[:, 0]
            if len(open_rows) == 0:
                continue
            begun = tokens[open_rows, : start + depth].repeat_interleave(extra, 0).tolist()
            longer, ends = self._completed(begun)
            again[open_rows.numpy(), k] = self._outcomes(right, longer, ends).reshape(-1, extra)
        return Drawn(values, (lengths - start).numpy(), known, depths, again)

    def _completed(self, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        """The rows with the model's continuation, and their lengths."""
        tokens: list[Tensor] = []
        lengths: list[Tensor] = []
        for begin in range(0, len(rows), _AT_ONCE):
            part = rows[begin : begin + _AT_ONCE]
            decoder = self._decoder(part)
            offset = decoder.lengths - torch.tensor([len(row) for row in part])
            end = len(self.row) + self.limit + offset
            streams = torch.arange(self.used, self.used + len(part))
            self.used += len(part)
            result = ancestral.sample(
                decoder,
                length=end.tolist(),
                end_token=self.ends,
                rng=RowStreams(self.seed, streams),
            )
            first = int(offset[0])  # a BOS that the decoder wrote before all rows
            tokens.append(
                torch.nn.functional.pad(
                    result.tokens[:, first:],
                    (0, len(self.row) + self.limit - result.tokens.shape[1] + first),
                    value=-1,
                )
            )
            lengths.append(result.lengths - first)
        return torch.cat(tokens).cpu(), torch.cat(lengths).cpu()

    def _decoder(self, rows: list[list[int]], layer: int | None = None) -> Decoder:
        """A decoder at rows of one length that begin with the prompt."""
        decoder: Decoder
        if self.is_text:
            decoder, start = self.lm.decoder([self.row] * len(rows), layer=layer), len(self.row)
        else:
            decoder, start = RecomputingDecoder(self.lm, len(rows)), 0
        for column in torch.tensor(rows).T.reshape(-1, len(rows))[start:]:
            decoder.append(column.long())
        return decoder

    def _outcomes(self, right: Verifier, tokens: Tensor, lengths: Tensor) -> np.ndarray:
        found = np.zeros(len(tokens))
        for length in lengths.unique().tolist():
            same = (lengths == length).numpy()
            over = torch.ones(int(same.sum()), dtype=torch.bool)
            found[same] = self._answers(right, tokens[same, :length], over)
        return found

    def _answers(self, verifier: Verifier, rows: Tensor, over: Tensor) -> np.ndarray:
        """V of rows of one length; of those that are over, as finished texts."""
        asked = Question.about(rows, start=len(self.row))
        decoder, at = None, None
        if isinstance(verifier, ReadsStates):
            decoder, at = self._decoder(rows.tolist(), verifier.layer), torch.arange(len(rows))
        row = torch.zeros_like(asked.row)  # of the one prompt
        said = verifier.log_values(replace(asked, over=over, row=row, decoder=decoder, at=at))
        if not (said <= _ROOM).all():
            raise UserError(
                f"{name_of_verifier(verifier)} says log V = {float(said.max()):g}; what is "
                "calibrated and what is right are probabilities"
            )
        return said.double().exp().clamp(max=1.0).cpu().numpy()

    def _asked(self, name: str, verifier: Any) -> Verifier:
        """A verifier of tokens; a function of text is put between tokens and text."""
        function = text_function(verifier)
        if function is None:
            made = as_verifier(verifier)
            if made is None:
                raise UserError(f"{name} is None; pass a function of text or a verifier of tokens")
            return made
        if not self.is_text:
            raise UserError(
                f"{name} is a function of text, and the model has no text; pass a verifier of "
                "token ids"
            )
        return TextRule(
            function,
            self.lm.text_of,
            start=None,
            prompt_texts=[self.given],
            end_token=self.ends,
            batched=isinstance(function, Batched) and function.batched is True,
        )


def _prompts(lm: Any, prompts: Any) -> tuple[list[Any], list[list[int]]]:
    """The prompts as they were given, and as tokens."""
    check_can("lm", lm, "vocab_size")
    if hasattr(lm, "text_of"):
        given = [prompts] if isinstance(prompts, str) else as_list("prompts", prompts, "texts")
        texts = [as_text(f"prompts[{b}]", text) for b, text in enumerate(given)]
        rows = lm.encode(texts)
    else:
        check_can("lm", lm, "next_token_log_probs")
        given = as_list("prompts", prompts, "lists of token ids")
        rows = [
            [as_count("a token of prompts", token) for token in as_list("a prompt", row, "tokens")]
            for row in given
        ]
    if not rows:
        raise UserError("prompts is empty; pass at least one")
    return given, rows


def _depths(depths: Any, limit: int) -> tuple[int, ...]:
    if depths is None:
        return tuple(sorted({max(1, math.ceil(limit * part / 4)) for part in (1, 2, 3)}))
    given = as_list("depths", depths, "numbers of tokens")
    found = {as_count("a depth of depths", depth, at_least=1, at_most=limit) for depth in given}
    if not found:
        raise UserError("depths is []; give at least one")
    return tuple(sorted(found))


def _average(found: Sequence[Estimate]) -> Estimate:
    """The mean, between the means of the ends, which hold together."""
    value, low, high = (
        math.fsum(getattr(one, end) for one in found) / len(found)
        for end in ("value", "low", "high")
    )
    return Estimate(value, low, high, sum(one.n for one in found), found[0].confidence)
