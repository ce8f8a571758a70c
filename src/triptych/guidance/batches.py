"""Prompts through an algorithm, some at a time, and what comes out of each as text.

Every prompt draws from a stream of its own, named by the seed and the prompt's number, so what it
gets does not depend on the other prompts or on the size of a batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triptych.core.logspace import log_normalise
from triptych.core.protocols import Decoder, Draws, Ends, Masks, Value, Verifier, VerifierLike
from triptych.core.streams import RowStreams
from triptych.core.validation import UserError, as_text, check_callable
from triptych.guidance.stops import Left, Stops
from triptych.inference.guided.algorithm import Algorithm, AnyAlgorithm, algorithms
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.result import Compared, Event, Result, VerifierError, Weighed
from triptych.inference.guided.transforms import Transform
from triptych.verifiers.grammars.verifier import GrammarVerifier
from triptych.verifiers.text import Batched, TextRule

TextFunction = Callable[..., Any]
THRESHOLD = 0.5
"""V from which a finished text is accepted, where the algorithm has no threshold of its own."""


class Candidate(NamedTuple):
    """A completion that an algorithm could have kept.

    value   V of it, as the algorithm heard it; 0 where the verifier was not asked
    """

    text: str
    value: float


class Particle(NamedTuple):
    """A completion with its share of the weight of all particles of its prompt.

    log_weight   the weights of a prompt sum to 1; -inf for every particle if all were refused
    """

    text: str
    log_weight: float


class Completion(NamedTuple):
    """What came out of one prompt; `Guided` says what the columns mean."""

    text: str
    complete: bool
    reason: str | None
    accepted: bool | None
    score: float | None
    costs: dict[str, int]
    candidates: list[Candidate] | None
    particles: list[Particle] | None
    log_evidence: float | None


class Batch(NamedTuple):
    """Prompts that ran together.

    numbers   of the prompts
    result    what the algorithm returned, a row for each
    rule      the verifier between tokens and text, if it is a function of text
    """

    numbers: list[int]
    result: Result[Any]
    rule: TextRule | None


class Job(NamedTuple):
    """What all batches share; `rows` are the prompts as tokens.

    prompt_texts   what a verifier with a parameter `prompt` is told, one for each row
    decode         the text of a list of tokens
    decoder        a decoder that stands at some prompts
    limit          tokens at most after a prompt
    ends           the tokens that end a text
    stop           strings that end one
    listen         is told every event as it happens, with the number of its prompt
    streams        a number for each row; with the seed it names the stream that the row draws from
    left           says of a row whether nobody waits for it any more: it ends where it stands
    """

    rows: list[list[int]]
    prompt_texts: list[Any]
    verifier: TextFunction | VerifierLike | None
    algorithm: AnyAlgorithm
    decode: Callable[[Sequence[int]], str]
    decoder: Callable[[list[list[int]]], Decoder | Draws]
    limit: int
    ends: tuple[int, ...]
    seed: int
    streams: Sequence[int]
    transform: Transform | None = None
    budget: Budget | None = None
    record: bool = False
    stop: Sequence[str] = ()
    listen: Callable[[int, Event], None] | None = None
    left: Callable[[int], bool] | None = None

    def run(self, at_once: int) -> Iterator[Batch]:
        """Every prompt, `at_once` together."""
        function = text_function(self.verifier)
        for first in range(0, len(self.rows), at_once):
            numbers = [*range(first, min(first + at_once, len(self.rows)))]
            begun = [self.rows[number] for number in numbers]
            rule = None if function is None else self._rule(function, numbers)
            yield Batch(numbers, self._sample(numbers, begun, rule), rule)

    def _rule(self, function: TextFunction, numbers: list[int]) -> TextRule:
        return TextRule(
            function,
            self.read,
            start=None,
            prompt_texts=[self.prompt_texts[number] for number in numbers],
            end_token=self.ends or None,
            batched=isinstance(function, Batched) and function.batched is True,
        )

    def _sample(
        self, numbers: list[int], begun: list[list[int]], rule: TextRule | None
    ) -> Result[Any]:
        decoder = self.decoder(begun)
        verifier: Any = self.verifier if rule is None else rule
        streams, listen = [self.streams[number] for number in numbers], self.listen
        told = None if listen is None else lambda event: listen(numbers[event.row], event)
        try:
            return self.algorithm.of_text(self.text_of).sample(
                decoder,
                verifier,
                length=[len(row) + self.limit for row in begun],
                end_token=self.ends or None,
                transform=self.transform,
                budget=self.budget,
                record=self.record,
                ends=self._ends(numbers),
                listen=told,
                rng=RowStreams(self.seed, torch.tensor(streams, device=decoder.lengths.device)),
            )
        except VerifierError as error:  # which keeps what there was so far
            reason = error.__cause__
            raise UserError(str(reason if isinstance(reason, UserError) else error)) from error

    def _ends(self, numbers: list[int]) -> Ends | None:
        """What says which rows are over, next to the model and the verifier."""
        stops = Stops(self.stop, self.decode) if self.stop else None
        left = self.left
        return stops if left is None else Left(lambda row: left(numbers[row]), stops)

    # ------------------------------------------------------------------ from tokens to text

    @property
    def threshold(self) -> float:
        """V from which a finished text is accepted."""
        own = self.algorithm.settings().get("threshold", THRESHOLD)
        return float(own) if isinstance(own, int | float) else THRESHOLD

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of a completion, without the token that ended it."""
        end = len(tokens)
        while end and tokens[end - 1] in self.ends:
            end -= 1
        return self.read(tokens[:end])

    def read(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, up to a stop string."""
        return Stops(self.stop, self.decode).cut(tokens) if self.stop else self.decode(tokens)

    def completions(self, batch: Batch) -> list[Completion]:
        """What came out of each prompt; a function of text is asked about the finished texts."""
        result, rule = batch.result, batch.rule
        threshold = self.threshold
        texts = [self.text_of(tokens) for tokens in result.completions()]
        scores: list[float | None] = [None] * len(texts)
        if rule is not None:
            scores = [*rule.finished_values(texts, range(len(texts)))]
        elif isinstance(self.verifier, GrammarVerifier):
            scores = [*self.verifier.finished_values(result.completions())]
        candidates, particles = self.candidates(batch), self.particles(batch)
        evidence = result.info.log_normaliser if isinstance(result.info, Weighed) else None
        columns = ("generator_calls", "generated", "erased", "verifier_calls")
        found = []
        for place, (text, score) in enumerate(zip(texts, scores, strict=True)):
            complete = bool(result.complete[place])
            accepted = bool(result.accepted[place]) if bool(result.verified[place]) else None
            if score is not None:
                accepted = complete and score >= threshold
            found.append(
                Completion(
                    text,
                    complete,
                    result.reasons[place],
                    accepted,
                    score,
                    {name: int(getattr(result.costs, name)[place]) for name in columns},
                    None if candidates is None else candidates[place],
                    None if particles is None else particles[place],
                    None if evidence is None else float(evidence[place]),
                )
            )
        return found

    def candidates(self, batch: Batch) -> list[list[Candidate]] | None:
        """All candidates of every prompt of a batch, where the algorithm has kept them."""
        if not isinstance(info := batch.result.info, Compared):
            return None
        found = info.candidates
        texts = self._texts(batch.result, found.tokens, found.lengths)
        return [
            [Candidate(text, _exp(value)) for text, value in zip(*pair, strict=True)]
            for pair in zip(texts, found.log_values.tolist(), strict=True)
        ]

    def particles(self, batch: Batch) -> list[list[Particle]] | None:
        """All particles of every prompt of a batch, where the algorithm has kept them."""
        if not isinstance(info := batch.result.info, Weighed):
            return None
        found = info.particles
        texts = self._texts(batch.result, found.tokens, found.lengths)
        largest = found.log_weights.amax(-1, keepdim=True)
        near = found.log_weights - torch.where(largest.isfinite(), largest, 0.0)
        return [
            [Particle(text, weight) for text, weight in zip(*pair, strict=True)]
            for pair in zip(texts, log_normalise(near).tolist(), strict=True)
        ]

    def _texts(self, result: Result[Any], tokens: Tensor, lengths: Tensor) -> list[list[str]]:
        return [
            [self.text_of(row[start:length]) for row, length in zip(rows, ends, strict=True)]
            for rows, ends, start in zip(
                tokens.tolist(), lengths.tolist(), result.prompt_lengths.tolist(), strict=True
            )
        ]


def algorithm_called(
    algorithm: str | AnyAlgorithm | None, verifier: Any, *, greedy: bool = False
) -> AnyAlgorithm:
    """The algorithm of a name, with the defaults of its options; all but a few need a verifier.

    greedy   the temperature is 0: where no algorithm is named and there is a verifier, "greedy"
    """
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        raise UserError(
            f"algorithm is the class {algorithm.__name__}; pass an object of it, "
            f"{algorithm.__name__}(...)"
        )
    if algorithm is None:
        name = default_algorithm(verifier)
        return algorithms()["greedy" if greedy and verifier is not None else name]()
    known = algorithms()
    if isinstance(algorithm, Algorithm):
        chosen = algorithm
    else:
        name = as_text("algorithm", algorithm).replace("-", "_")
        if name not in known:
            raise UserError(f"there is no algorithm {algorithm!r}; there are {', '.join(known)}")
        chosen = known[name]()
    if verifier is None and chosen.needs_verifier:
        raise UserError(
            f"{chosen.name} needs a verifier; without one, pass algorithm='ancestral', which "
            "samples from the model"
        )
    return chosen


def default_algorithm(verifier: TextFunction | VerifierLike | None) -> str:
    """The algorithm that suits a verifier, where none is named.

    "adaptive" for a function of text and for a verifier with masks, because it keeps what they
    refuse out of every text; "backtracking" for a verifier that was learned, which may be wrong;
    "ancestral" without one.
    """
    if verifier is None:
        return "ancestral"
    learned = text_function(verifier) is None and not isinstance(verifier, Masks)
    return "backtracking" if learned else "adaptive"


def text_function(verifier: TextFunction | VerifierLike | None) -> TextFunction | None:
    """The verifier, if it is a function of text."""
    if isinstance(verifier, type):
        name = verifier.__name__
        raise UserError(f"verifier is the class {name}; pass an object of it, {name}(...)")
    if verifier is None or isinstance(verifier, Verifier | Value):
        return None
    check_callable("verifier", verifier, "verifier(text)")
    return verifier


def _exp(log_value: float) -> float:
    return math.exp(log_value) if log_value < 709 else math.inf
