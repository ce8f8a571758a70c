"""Tokenwise guidance as a logits processor of transformers.

At every step the verifier is asked about the likeliest continuations s ∘ t of each row s, and

    accept = "value"        log p(t | s) ← log p(t | s) + log V(s ∘ t)
    accept = "threshold"    log p(t | s) ← -inf where V(s ∘ t) < threshold

so that a token has the law p(t | s) a(s ∘ t), normalised, with a = V or 1[V ≥ threshold]. That is
the law of `tokenwise` [li, Definition 3.1.5] when every token with mass is a candidate, and no
redraws are needed. It is not p restricted to the accepted texts. A verifier with masks is asked
for one mask a row, for all tokens at once.

`generate` applies temperature, top-k and top-p after this: at temperature T the values count as
V^(1/T). For `accept="threshold"` and for hard verifiers that changes nothing.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.decoders import PAD
from triptych.core.protocols import Ends, Graded, Masks, Question, ReadsStates, VerifierLike
from triptych.core.validation import (
    Count,
    EndTokens,
    Number,
    UserError,
    as_count,
    as_end_token,
    check_can,
    shown,
)
from triptych.guidance.batches import TextFunction, text_function
from triptych.inference.guided.asking import NoAnswer, answered, as_verifier, name_of_verifier
from triptych.inference.guided.options import check_choice, log_threshold
from triptych.inference.guided.tokenwise import ACCEPT, Accept
from triptych.verifiers.text import Batched, TextRule

CANDIDATES = 50
_ROOM = 1e-9  # a probability may be above 1 by rounding


class ValueLogitsProcessor:
    """A logits processor that asks a verifier about the likeliest tokens.

    verifier        a function of the completion's text, or a verifier of token ids
    tokenizer       of the model; only a verifier of token ids does without one
    candidates      how many tokens it is asked about at a time, the likeliest first; if all are
                    refused it is asked about the next ones. None: all tokens at once
    accept          "value" weighs a token by V, "threshold" refuses it where V is below threshold
    end_token       tokens that end a text, instead of the tokenizer's own
    prompt_length   columns before the completion; None: those of the first call of a generation

    Tokens that it was not asked about get -inf. When no token is accepted there is a UserError;
    `custom_generate` with backtracking can go back there. A row that has ended is left alone.
    """

    def __init__(
        self,
        verifier: TextFunction | VerifierLike,
        tokenizer: Any = None,
        *,
        candidates: Count | None = CANDIDATES,
        accept: Accept = "value",
        threshold: Number = 0.5,
        end_token: EndTokens | None = None,
        prompt_length: Count | None = None,
    ) -> None:
        if isinstance(verifier, ReadsStates):
            raise UserError(
                f"{type(verifier).__name__} reads hidden states, which a logits processor does "
                "not see; use it with guide or custom_generate"
            )
        function = text_function(verifier)
        if verifier is None:
            raise UserError("verifier is None; pass a function of text, verifier(text)")
        if function is not None and tokenizer is None:
            raise UserError(
                "the verifier is a function of text, and there is no tokenizer; pass that of the "
                "model"
            )
        if tokenizer is not None:
            check_can("tokenizer", tokenizer, "decode", "eos_token_id")
        self.tokenizer: Any = tokenizer
        self.candidates = (
            None if candidates is None else as_count("candidates", candidates, at_least=1)
        )
        check_choice("accept", accept, ACCEPT)
        self.accept, self._smallest = accept, log_threshold(threshold)
        ends = getattr(tokenizer, "eos_token_id", None) if end_token is None else end_token
        ends = as_end_token(ends)
        self.ends = () if ends is None else (ends,) if isinstance(ends, int) else ends
        self._given_start = (
            None if prompt_length is None else as_count("prompt_length", prompt_length)
        )
        self.verifier = as_verifier(
            verifier
            if function is None
            else TextRule(
                function,
                self._text,
                start=None,
                end_token=self.ends or None,
                batched=isinstance(function, Batched) and function.batched is True,
            )
        )
        self._prompt: Tensor | None = None
        self._width = 0

    def __call__(
        self, input_ids: Int[Tensor, "batch t"], scores: Float[Tensor, "batch vocab"]
    ) -> Float[Tensor, "batch vocab"]:
        """The scores of the next tokens, with the verifier's word in them."""
        start = self._start(input_ids)
        written = input_ids[:, start:]
        ends = torch.tensor(self.ends, dtype=torch.long, device=input_ids.device)
        rows = torch.nonzero(~torch.isin(written, ends).any(1))[:, 0]
        added = torch.full_like(scores, -torch.inf, dtype=torch.float64)
        over = self._over(input_ids, rows, start)
        added[over[:, None], ends] = 0.0
        rows = rows[~torch.isin(rows, over)]
        if isinstance(self.verifier, Masks) and len(rows):
            return self._masked(input_ids, scores, added, rows, over, start)
        order = scores.argsort(dim=-1, descending=True, stable=True)
        most = scores.shape[-1] if self.candidates is None else self.candidates
        pending, rank = rows, 0
        while len(pending):
            chosen = order[pending, rank : rank + most]
            possible = scores[pending].gather(1, chosen) > -torch.inf
            place, column = torch.nonzero(possible, as_tuple=True)
            if len(place) == 0:
                self._refuse(input_ids[pending[0]], start)
            row, token = pending[place], chosen[place, column]
            longer = torch.cat([input_ids[row], token[:, None]], 1)
            added[row, token] = self._log_accept(self._question(longer, row, start))
            none = ~(added[pending] > -torch.inf).any(1)
            pending, rank = pending[none], rank + most
        return self._with(scores, added, rows, over)

    # ------------------------------------------------------------------ inside

    def _masked(
        self,
        input_ids: Int[Tensor, "batch t"],
        scores: Float[Tensor, "batch vocab"],
        added: Float[Tensor, "batch vocab"],
        rows: Int[Tensor, " rows"],
        over: Int[Tensor, " over"],
        start: int,
    ) -> Float[Tensor, "batch vocab"]:
        """The scores of what the masks allow: one question a row. A graded verifier is asked about
        the `candidates` likeliest of these."""
        verifier = self.verifier
        assert isinstance(verifier, Masks)
        allowed = verifier.masks(self._question(input_ids[rows], rows, start))
        size = (len(rows), scores.shape[1])
        if not isinstance(allowed, Tensor) or allowed.shape != size or allowed.dtype != torch.bool:
            name = type(verifier).__name__
            raise UserError(f"{name} must answer masks of shape {size}; it gave {shown(allowed)}")
        left = scores[rows].masked_fill(~allowed, -torch.inf)
        stuck = torch.isneginf(left).all(1)
        if stuck.any():
            self._refuse(input_ids[rows[stuck.nonzero()[0, 0]]], start)
        added[rows] = torch.where(torch.isneginf(left), -torch.inf, 0.0).double()
        if isinstance(verifier, Graded) and verifier.graded:
            most = scores.shape[1] if self.candidates is None else self.candidates
            chosen = left.topk(min(most, scores.shape[1])).indices
            possible = left.gather(1, chosen) > -torch.inf
            place, column = torch.nonzero(possible, as_tuple=True)
            row, token = rows[place], chosen[place, column]
            longer = torch.cat([input_ids[row], token[:, None]], 1)
            added[rows] = -torch.inf
            added[row, token] = self._log_accept(self._question(longer, row, start))
        return self._with(scores, added, rows, over)

    def _with(
        self,
        scores: Float[Tensor, "batch vocab"],
        added: Float[Tensor, "batch vocab"],
        rows: Int[Tensor, " rows"],
        over: Int[Tensor, " over"],
    ) -> Float[Tensor, "batch vocab"]:
        """The scores with the verifier's word in them; rows that have ended are left alone."""
        ended = torch.ones_like(added, dtype=torch.bool).index_fill(0, rows, False)
        scores = torch.where(ended, scores, (scores.double() + added).to(scores.dtype))
        scores[over] = added[over].to(scores.dtype)
        return scores

    def _start(self, input_ids: Int[Tensor, "batch t"]) -> int:
        """Columns of the prompts: a call that does not go on with the last one begins again."""
        if self._given_start is not None:
            return self._given_start
        prompt, width = self._prompt, input_ids.shape[1]
        goes_on = (
            prompt is not None
            and width == self._width + 1
            and len(prompt) == len(input_ids)
            and bool((input_ids[:, : prompt.shape[1]] == prompt.to(input_ids)).all())
        )
        if prompt is None or not goes_on:
            prompt = self._prompt = input_ids.clone()
        self._width = width
        return prompt.shape[1]

    def _over(
        self, input_ids: Int[Tensor, "batch t"], rows: Int[Tensor, " rows"], start: int
    ) -> Int[Tensor, " over"]:
        """Those of the rows whose text is over by the verifier's word: the end comes next."""
        over = torch.zeros_like(rows, dtype=torch.bool)
        # nothing can be over where nothing is written yet
        if isinstance(self.verifier, Ends) and self.ends and input_ids.shape[1] > start:
            over = self.verifier.over(self._question(input_ids[rows], rows, start))
        return rows[over]

    def _log_accept(self, asked: Question) -> Float[Tensor, " pairs"]:
        """log of the probability that each row of the question is accepted."""
        verifier = self.verifier
        assert verifier is not None
        every = torch.arange(len(asked.row), device=asked.row.device)
        try:
            values = answered(verifier, lambda: verifier.log_values(asked), every).double()
        except NoAnswer as error:
            why = error.__cause__
            raise (why if isinstance(why, UserError) else UserError(str(error))) from error
        if ((values > _ROOM) | values.isnan()).any():
            raise UserError(
                f"{name_of_verifier(verifier)} says log V = {float(values.max()):g}; values must "
                "be log-probabilities, at most 0"
            )
        if self.accept == "value":
            return values
        return torch.where(values >= self._smallest, 0.0, -torch.inf).double()

    def _question(
        self, ids: Int[Tensor, "pairs t"], rows: Int[Tensor, " pairs"], start: int
    ) -> Question:
        """A question about rows without the padding before their prompts."""
        pad, width = getattr(self.tokenizer, "pad_token_id", None), ids.shape[1]
        left = torch.zeros_like(rows)
        if pad is not None:
            left = (ids == pad).long().cumprod(1).sum(1).clamp(max=start)
        places = torch.arange(width, device=ids.device) + left[:, None]
        tokens = ids.gather(1, places.clamp(max=width - 1)).masked_fill(places >= width, PAD)
        over = torch.zeros_like(rows, dtype=torch.bool)
        if width > start:
            over = torch.isin(ids[:, -1], torch.tensor(self.ends, device=ids.device))
        return Question(tokens, width - left, start - left, over, rows)

    def _text(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def _refuse(self, row: Int[Tensor, " t"], start: int) -> None:
        written = row[start:].tolist()
        text = repr(self._text(written)) if self.tokenizer is not None else str(written)
        raise UserError(
            f"the verifier refuses every token after {text}; a rule must accept a text that can "
            "still become right, or use custom_generate=triptych.hf.backtracking(...), which goes "
            "back"
        )
