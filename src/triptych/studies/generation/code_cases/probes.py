"""Verifiers: small classifiers on a model's states, trained on its own completions [li, 3.2.2.6].

A completion with an error gives one wrong state, that at its first wrong token, and one right state
at a random earlier token; a completion without an error gives a right state at a random token.
As many right states as wrong ones are kept. A verifier of lines learns from the states at line
ends: the first one from the error on, and a random one before it. The last tenth of the states is
left out.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import Decoder
from triptych.core.randomness import TorchRng
from triptych.inference.guided import ancestral
from triptych.structures.append_tests.evaluate import Evaluation, evaluate
from triptych.structures.append_tests.prompts import TRAINING_NAMES, Prompt, draw_prompts
from triptych.studies.api.study import Bench
from triptych.studies.generation.code_cases.rows import Level, Probed, Sizes
from triptych.studies.generation.code_cases.writers import NETWORK, Writer, padded
from triptych.verifiers.probe import Probe

HELD_OUT = 0.1
FEWEST = 20  # states that a verifier is trained on
LEVELS: tuple[Level, ...] = ("token", "line")


class Written(NamedTuple):
    """One completion: its prompt's tokens, its own, and what is right about it.

    error   the place of its first wrong token among its own, None where there is none
    """

    prompt: list[int]
    tokens: list[int]
    evaluation: Evaluation
    error: int | None


class Examples(NamedTuple):
    """Beginnings of completed prompts, and whether each is right; wrong and right ones alternate.

    faulty   completions with an error, of all that were gathered
    """

    rows: list[list[int]]
    correct: list[bool]
    gathered: int
    faulty: int


def gather(sizes: Sizes, writer: Writer, bench: Bench, seed: int) -> list[Written]:
    """Completions of prompts with training names, drawn from the model as it is.

    Their tokens are kept on disk: the states of every layer are read off the same ones.
    """
    names = [TRAINING_NAMES[number % len(TRAINING_NAMES)] for number in range(sizes.gathered)]
    prompts = draw_prompts(
        names,
        bench.rng("gathered prompts"),
        cases=sizes.cases,
        demonstrations=sizes.demonstrations,
    )
    rows = [writer.encode(prompt.text) for prompt in prompts]
    key: dict[str, object] = {"completions": "gathered", "seed": seed}
    key |= {name: getattr(sizes, name) for name in (*NETWORK, "model", "gathered", "at_once")}
    kept = bench.tensors(key, lambda: _complete(sizes, writer, bench, rows))
    tokens, ends = kept["tokens"].tolist(), kept["lengths"].tolist()
    return [
        written(writer, prompt, row, own[:end])
        for prompt, row, own, end in zip(prompts, rows, tokens, ends, strict=True)
    ]


def _complete(
    sizes: Sizes, writer: Writer, bench: Bench, rows: list[list[int]]
) -> dict[str, Tensor]:
    """What the model writes after these prompts, padded, and how long it is."""
    rng, found = bench.rng("gathered completions"), list[list[int]]()
    for first in range(0, len(rows), sizes.at_once):
        some = rows[first : first + sizes.at_once]
        result = ancestral.sample(
            writer.decoder(some, layer=sizes.layer, lines=sizes.cases),
            length=[len(row) + sizes.max_new_tokens for row in some],
            end_token=writer.end_tokens or None,
            rng=rng,
        )
        found += [list(tokens) for tokens in result.completions()]
    return {"tokens": padded(found, "cpu"), "lengths": torch.tensor([len(own) for own in found])}


def written(writer: Writer, prompt: Prompt, row: list[int], tokens: list[int]) -> Written:
    """A completion, read."""
    ended = bool(tokens) and tokens[-1] in writer.end_tokens
    text = writer.text_of(tokens)
    evaluation = evaluate(text, prompt.name, cases=prompt.cases, ended=ended)
    at, error = evaluation.first_error, None
    if at is not None:
        # The text of more tokens is longer: find the first whose text reaches beyond `at`.
        low, high = 0, len(tokens) - 1
        while low < high:
            middle = (low + high) // 2
            if len(writer.text_of(tokens[: middle + 1])) > at:
                high = middle
            else:
                low = middle + 1
        error = low
    return Written(row, tokens, evaluation, error)


def examples(
    completions: Sequence[Written], writer: Writer, level: Level, rng: TorchRng
) -> Examples:
    """Wrong and right beginnings, as many of one kind as of the other."""
    breaks = writer.breaks.tolist()
    wrong: list[list[int]] = []
    right: list[list[int]] = []
    for one in completions:
        ends = range(len(one.tokens))
        if level == "line":
            ends = [place for place in ends if breaks[one.tokens[place]]]
        if one.error is not None:
            first = next((place for place in ends if place >= one.error), None)
            if first is not None:
                wrong.append([*one.prompt, *one.tokens[: first + 1]])
        limit = len(one.tokens) if one.error is None else one.error
        before = [place for place in ends if place < limit]
        if before:
            place = before[_below(len(before), rng)]
            right.append([*one.prompt, *one.tokens[: place + 1]])
    faulty = sum(one.error is not None for one in completions)
    pairs = zip(wrong, right, strict=False)
    rows = [row for pair in pairs for row in pair]
    return Examples(rows, [False, True] * (len(rows) // 2), len(completions), faulty)


def _below(count: int, rng: TorchRng) -> int:
    law = torch.zeros((1, count), dtype=torch.float64, device=rng.device).log_softmax(-1)
    return int(rng.categorical(law)[0])


def states_at_ends(
    writer: Writer, rows: Sequence[list[int]], layer: int, at_once: int
) -> Float[Tensor, "rows width"]:
    """The layer's state at the last token of each row."""
    return torch.cat(
        [
            writer.start(list(rows[first : first + at_once]), layer).hidden_state().float()
            for first in range(0, len(rows), at_once)
        ]
    )


class Verifiers:
    """The trained verifiers of one model, each made when it is first asked for.

    Completions and states are kept on disk: they depend on the network and the seed alone.
    """

    def __init__(self, sizes: Sizes, writer: Writer, bench: Bench, seed: int) -> None:
        self.sizes, self.writer, self.bench, self.seed = sizes, writer, bench, seed
        self._probes: dict[tuple[Level, int, int], tuple[Probe, Probed]] = {}
        self._kept: dict[tuple[Level, int], dict[str, Tensor]] = {}
        self._gathered: list[Written] | None = None

    @property
    def learnable(self) -> bool:
        """Whether there are mistakes enough to learn from."""
        return all(
            len(self._states(level, self.sizes.layer)["states"]) >= FEWEST for level in LEVELS
        )

    def probe(self, level: Level, layer: int, depth: int) -> Probe:
        return self._fitted(level, layer, depth)[0]

    def rows(self) -> Iterator[Probed]:
        """What every verifier of the tables says on states that were left out."""
        for level in LEVELS:
            for layer in self.sizes.layers if level == "token" else (self.sizes.layer,):
                yield self._fitted(level, layer, 1)[1]
        for depth in self.sizes.depths:
            yield self._fitted("token", self.sizes.layer, depth)[1]

    def _fitted(self, level: Level, layer: int, depth: int) -> tuple[Probe, Probed]:
        if (level, layer, depth) not in self._probes:
            self._probes[level, layer, depth] = self._fit(level, layer, depth)
        return self._probes[level, layer, depth]

    def _fit(self, level: Level, layer: int, depth: int) -> tuple[Probe, Probed]:
        kept = self._states(level, layer)
        states, correct = kept["states"], kept["correct"]
        held_out = max(2, int(HELD_OUT * len(states)))
        seen = slice(0, len(states) - held_out)
        probe = Probe.fit(states[seen], correct[seen], depth=depth, layer=layer, seed=self.seed)
        unseen = slice(len(states) - held_out, None)
        return probe, Probed(
            seed=self.seed,
            model=self.sizes.model,
            level=level,
            layer=layer,
            depth=depth,
            gathered=int(kept["gathered"]),
            faulty=int(kept["faulty"]),
            states=len(states) - held_out,
            held_out=held_out,
            accuracy=probe.score(states[unseen], correct[unseen]),
        )

    def _states(self, level: Level, layer: int) -> dict[str, Tensor]:
        if (level, layer) not in self._kept:
            named = (*NETWORK, "model", "gathered", "at_once", "layer")
            key = {"states of": level, "of layer": layer, "seed": self.seed}
            key |= {name: getattr(self.sizes, name) for name in named}
            made = self.bench.tensors(key, lambda: self._make_states(level, layer))
            self._kept[level, layer] = dict(made)
        return self._kept[level, layer]

    def _make_states(self, level: Level, layer: int) -> dict[str, Tensor]:
        if self._gathered is None:
            self._gathered = gather(self.sizes, self.writer, self.bench, self.seed)
        found = examples(self._gathered, self.writer, level, self.bench.rng(f"{level} states"))
        states = states_at_ends(self.writer, found.rows, layer, self.sizes.at_once)
        return {
            "states": states,
            "correct": torch.tensor(found.correct, device=states.device),
            "gathered": torch.tensor(found.gathered),
            "faulty": torch.tensor(found.faulty),
        }


class RandomVerifier:
    """Uniform on [0, 1] at every question, to three digits: the control of Table 3.9."""

    def __init__(self, rng: TorchRng) -> None:
        self._rng = rng
        self._law = torch.zeros((1, 1000), dtype=torch.float64, device=rng.device).log_softmax(-1)

    def decoder_log_value(
        self, decoder: Decoder, rows: Int[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]:
        drawn = self._rng.categorical(self._law, torch.zeros_like(rows))
        return ((drawn.double() + 0.5) / 1000).log()
