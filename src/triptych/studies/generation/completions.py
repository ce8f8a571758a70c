"""Prompts that a bracket network has not seen the like of, its completions and its mistakes
[li, 3.2.1].
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import PAD
from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng
from triptych.inference import ancestral, backtracking
from triptych.inference.run import Result
from triptych.inference.transforms import nucleus
from triptych.models.cache import CachedDecoder
from triptych.models.language_models import CausalLM
from triptych.structures.bracket_parse import DyckError
from triptych.structures.dyck import Dyck
from triptych.studies.generation.trained_dyck import DyckNetwork, Trained
from triptych.verifiers.probe import Probe


def draw_prompts(p: DyckNetwork, law: Dyck, count: int, rng: TorchRng) -> Int[Tensor, "count t"]:
    """Beginnings of strings of a law, -1 beyond each one's end."""
    tokens = law.sample(count, rng)
    lengths = torch.arange(p.shortest_prompt, p.longest_prompt + 1, device=tokens.device)
    alike = torch.full((1, len(lengths)), 1 / len(lengths), dtype=torch.float64).log()
    places = torch.zeros(count, dtype=torch.long, device=tokens.device)
    chosen = lengths[rng.categorical(alike.to(tokens.device), places)]
    beyond = torch.arange(tokens.shape[1], device=tokens.device) >= chosen[:, None]
    return tokens.masked_fill(beyond, PAD)[:, : p.longest_prompt]


Sampling = Callable[[CachedDecoder], Result]


def complete(
    lm: CausalLM,
    prompts: Int[Tensor, "count t"],
    sampling: Sampling,
    *,
    layer: int = -1,
    at_once: int | None = None,
) -> list[Result]:
    """`sampling(decoder)` on the prompts, in batches that fit the memory."""
    at_once = at_once or (5000 if prompts.is_cuda else 1000)
    results = []
    for some in prompts.split(at_once):
        decoder = CachedDecoder(lm, len(some), layer=layer)
        decoder.extend(some)
        results.append(sampling(decoder))
    return results


def plainly(law: Dyck, top_p: float, rng: Rng) -> Sampling:
    """Nucleus sampling; top_p = 0 is argmax and 1 the whole law."""
    return lambda decoder: ancestral.sample(
        decoder,
        length=law.length,
        end_token=law.end_token,
        transform=nucleus(top_p),
        rng=rng,
    )


class Completed(NamedTuple):
    """Strings padded with end tokens, and what the parser found in each.

    position   of the first error, the number of tokens where there is none
    """

    tokens: Int[Tensor, "count t"]
    right: Bool[Tensor, " count"]
    error: Int[Tensor, " count"]
    position: Int[Tensor, " count"]

    @property
    def accuracy(self) -> float:
        return float(self.right.double().mean())

    @property
    def errors(self) -> int:
        return int((~self.right).sum())


def read(law: Dyck, results: list[Result]) -> Completed:
    """Parse completed strings; one that is not complete is wrong."""
    rows = []
    for result in results:
        room = law.length - result.tokens.shape[1]
        rows.append(torch.nn.functional.pad(result.tokens, (0, room), value=PAD))
    tokens = torch.cat(rows)
    complete_rows = torch.cat([result.complete for result in results])
    assert law.end_token is not None
    tokens = torch.where(tokens == PAD, law.end_token, tokens)
    parse = law.parse(tokens)
    return Completed(
        tokens, (parse.error == DyckError.NONE) & complete_rows, parse.error, parse.position
    )


class Mistakes(NamedTuple):
    """Strings that end with their first error, -1 beyond, and how many prompts it took."""

    tokens: Int[Tensor, "count t"]
    lengths: Int[Tensor, " count"]
    prompts: int

    def inducing(self) -> Int[Tensor, "count t"]:
        """The strings without the wrong token: the prefixes that induced it."""
        columns = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return self.tokens.masked_fill(columns >= self.lengths[:, None] - 1, PAD)

    def take(self, first: int, last: int) -> "Mistakes":
        return Mistakes(self.tokens[first:last], self.lengths[first:last], self.prompts)


def gather_mistakes(p: DyckNetwork, model: Trained, count: int, rng: TorchRng) -> Mistakes:
    """Complete out-of-distribution prompts until `count` strings went wrong."""
    found: list[Tensor] = []
    tried = have = 0
    at_once = 5000 if rng.device.type == "cuda" else 500
    while have < count and tried < p.most_prompts:
        prompts = draw_prompts(p, model.ood, at_once, rng)
        done = read(model.law, complete(model.lm, prompts, plainly(model.law, p.top_p, rng)))
        tried += len(prompts)
        columns = torch.arange(done.tokens.shape[1], device=done.tokens.device)
        wrong = done.tokens.masked_fill(columns > done.position[:, None], PAD)[~done.right]
        found.append(wrong)
        have += len(wrong)
    tokens = torch.cat(found)[:count]
    return Mistakes(tokens, (tokens != PAD).sum(1), tried)


def correct_like(mistakes: Mistakes, ood: Dyck, rng: TorchRng) -> Int[Tensor, "count t"]:
    """Beginnings of strings of the prompts' law, of the same lengths."""
    tokens = ood.sample(len(mistakes.tokens), rng)
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    return tokens.masked_fill(columns >= mistakes.lengths[:, None], PAD)


def states_of(
    lm: CausalLM, strings: Int[Tensor, "count t"], *, layer: int = -1
) -> Float[Tensor, "count width"]:
    """The network's state at the last token of each string."""
    found = []
    for some in strings.split(1000):
        decoder = CachedDecoder(lm, len(some), layer=layer)
        decoder.extend(some)
        found.append(decoder.hidden_state())
    return torch.cat(found)


def guided(
    model: Trained,
    probe: Probe,
    rng: TorchRng,
    *,
    quota: int,
    stride: int,
    top_p: float,
    threshold: float,
    into_prompt: int = 0,
    redo_argmax: bool = True,
    verify_redone: bool = False,
    record: bool = False,
) -> Sampling:
    """Algorithm 1 with the probe."""
    return lambda decoder: backtracking.sample(
        decoder,
        probe,
        length=model.law.length,
        quota=quota,
        stride=stride,
        redo_argmax=redo_argmax,
        verify_redone=verify_redone,
        threshold=threshold,
        into_prompt=into_prompt,
        end_token=model.law.end_token,
        transform=nucleus(top_p),
        record=record,
        rng=rng,
    )


def completed_anyhow(model: Trained, strings: Int[Tensor, "count t"], how: Sampling) -> float:
    """Accuracy of completing strings, some of which may have ended."""
    law = model.law
    ended = (strings == law.end_token).any(1) | ((strings != PAD).sum(1) >= law.length)
    right = 0
    if ended.any():
        whole = torch.where(strings[ended] == PAD, law.vocab_size - 1, strings[ended])
        room = law.length - whole.shape[1]
        whole = torch.nn.functional.pad(whole, (0, room), value=law.vocab_size - 1)
        right += int((law.parse(whole).error == DyckError.NONE).sum())
    if (~ended).any():
        done = read(law, complete(model.lm, strings[~ended], how))
        right += int(done.right.sum())
    return right / len(strings)


def refused_prefixes(
    results: list[Result], prefixes: Int[Tensor, "count t"]
) -> Int[Tensor, "refused _"]:
    """Every prefix at which the verifier refused, its last token included, from the traces."""
    found: list[list[int]] = []
    first = 0
    for result in results:
        prompts = prefixes[first : first + len(result.lengths)].tolist()
        found += [
            [*prompts[event.row][: event.prompt], *event.tokens]
            for event in result.trace
            if event.action == "reject"
        ]
        first += len(result.lengths)
    longest = max((len(row) for row in found), default=0)
    padded = [row + [PAD] * (longest - len(row)) for row in found]
    return torch.tensor(padded, dtype=torch.long, device=prefixes.device).reshape(
        len(found), longest
    )
