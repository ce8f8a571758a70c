"""Prompts that a bracket network has not seen the like of, its completions and its mistakes
[li, 3.2.1].
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import PAD
from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng
from triptych.inference.guided import ancestral, backtracking
from triptych.inference.guided.generation import Result
from triptych.inference.guided.transforms import nucleus
from triptych.models.cache import CachedDecoder
from triptych.models.language_models import CausalLM
from triptych.models.remembered import PrefixMemory, RememberedDecoder
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.parse import DyckError
from triptych.studies.generation.shared.trained_dyck import DyckNetwork, Trained
from triptych.verifiers.probe import Probe


def draw_prompts(
    law: Dyck, count: int, rng: TorchRng, *, shortest: int, longest: int
) -> Int[Tensor, "count t"]:
    """Beginnings of strings of a law, of shortest..longest tokens, -1 beyond each one's end."""
    tokens = law.sample(count, rng)
    lengths = torch.arange(shortest, longest + 1, device=tokens.device)
    alike = torch.full((1, len(lengths)), 1 / len(lengths), dtype=torch.float64).log()
    places = torch.zeros(count, dtype=torch.long, device=tokens.device)
    chosen = lengths[rng.categorical(alike.to(tokens.device), places)]
    return cut(tokens, chosen)[:, :longest]


def cut(tokens: Int[Tensor, "count t"], lengths: Int[Tensor, " count"]) -> Int[Tensor, "count t"]:
    """The first `lengths[b]` tokens of every row, -1 beyond."""
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    return tokens.masked_fill(columns >= lengths[:, None], PAD)


AnyDecoder = CachedDecoder | RememberedDecoder
Sampling = Callable[[AnyDecoder], Result]


def memory_of(lm: CausalLM) -> PrefixMemory | None:
    """A memory to share between calls of `complete_each`. None on a GPU, which runs many tokens
    sooner than it looks them up."""
    return PrefixMemory(lm) if lm.net.device.type == "cpu" else None


def complete(
    lm: CausalLM,
    prompts: Int[Tensor, "count t"],
    sampling: Sampling,
    *,
    layer: int = -1,
    at_once: int | None = None,
    memory: PrefixMemory | None = None,
) -> list[Result]:
    """`sampling(decoder)` on the prompts, in batches that fit the memory."""
    return [sampling(decoder) for decoder in _decoders(lm, prompts, layer, at_once, memory)]


def complete_each(
    lm: CausalLM,
    prompts: Int[Tensor, "count t"],
    samplings: Sequence[Sampling],
    *,
    layer: int = -1,
    at_once: int | None = None,
    memory: PrefixMemory | None = None,
) -> list[list[Result]]:
    """What `complete` gives for every way of sampling; the prompts run through the network once."""
    found: list[list[Result]] = [[] for _ in samplings]
    for decoder in _decoders(lm, prompts, layer, at_once, memory):
        decoder.hidden_state()  # runs the prompts
        rows = torch.arange(len(decoder.lengths), device=prompts.device)
        for results, sampling in zip(found, samplings, strict=True):
            results.append(sampling(decoder.fork(rows)))
    return found


def _decoders(
    lm: CausalLM,
    prompts: Int[Tensor, "count t"],
    layer: int,
    at_once: int | None,
    memory: PrefixMemory | None = None,
) -> Iterator[AnyDecoder]:
    for some in prompts.split(at_once or (5000 if prompts.is_cuda else 1000)):
        if memory is None:
            decoder = CachedDecoder(lm, len(some), layer=layer)
        else:
            decoder = RememberedDecoder(memory, len(some))
        decoder.extend(some)
        yield decoder


def plainly(law: Dyck, top_p: float, rng: Rng) -> Sampling:
    """Nucleus sampling; top_p = 0 is argmax and 1 the whole law."""
    return lambda decoder: ancestral.sample(
        decoder,
        length=law.length,
        end_token=law.end_token,
        transform=nucleus(top_p),
        rng=rng,
    )


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


def read(law: Dyck, results: Sequence[Result]) -> Completed:
    """Parse completed strings; one that is not complete is wrong."""
    tokens = torch.cat([_padded(law, result.tokens) for result in results])
    complete_rows = torch.cat([result.complete for result in results])
    parse = law.parse(tokens)
    return Completed(
        tokens, (parse.error == DyckError.NONE) & complete_rows, parse.error, parse.position
    )


def _padded(law: Dyck, tokens: Int[Tensor, "count t"]) -> Int[Tensor, "count length"]:
    """End tokens beyond each string's end, up to the law's length."""
    assert law.end_token is not None
    room = law.length - tokens.shape[1]
    tokens = torch.nn.functional.pad(tokens, (0, room), value=PAD)
    return torch.where(tokens == PAD, law.end_token, tokens)


class Mistakes(NamedTuple):
    """Strings that end with their first error, -1 beyond, and how many prompts it took."""

    tokens: Int[Tensor, "count t"]
    lengths: Int[Tensor, " count"]
    prompts: int

    def inducing(self) -> Int[Tensor, "count t"]:
        """The strings without the wrong token: the prefixes that induced it."""
        return cut(self.tokens, self.lengths - 1)

    def take(self, first: int, last: int) -> "Mistakes":
        return Mistakes(self.tokens[first:last], self.lengths[first:last], self.prompts)


def gather_mistakes(p: DyckNetwork, model: Trained, count: int, rng: TorchRng) -> Mistakes:
    """Complete out-of-distribution prompts until `count` strings went wrong."""
    found: list[Tensor] = []
    tried = have = 0
    at_once = 5000 if rng.device.type == "cuda" else 500
    while have < count and tried < p.most_prompts:
        prompts = draw_prompts(
            model.ood, at_once, rng, shortest=p.shortest_prompt, longest=p.longest_prompt
        )
        done = read(model.law, complete(model.lm, prompts, plainly(model.law, p.top_p, rng)))
        tried += len(prompts)
        wrong = cut(done.tokens, done.position + 1)[~done.right]
        found.append(wrong)
        have += len(wrong)
    tokens = torch.cat(found)[:count]
    return Mistakes(tokens, (tokens != PAD).sum(1), tried)


def correct_like(mistakes: Mistakes, ood: Dyck, rng: TorchRng) -> Int[Tensor, "count t"]:
    """Beginnings of strings of the prompts' law, of the same lengths."""
    return cut(ood.sample(len(mistakes.tokens), rng), mistakes.lengths)


class Partners(NamedTuple):
    """Correct strings of the same lengths and last tokens as mistakes, each used once.

    found   the mistakes that have one, in order: partner i is that of mistake found[i]
    """

    tokens: Int[Tensor, "pairs t"]
    found: Int[Tensor, " pairs"]


def correct_with_same_end(
    mistakes: Mistakes, ood: Dyck, rng: TorchRng, *, tries: int = 40
) -> Partners:
    """For every mistake a beginning of a string of the prompts' law that ends in the same token.

    Some have none: no correct string ends early, or opens a bracket at its last position. `tries`
    strings are drawn for each mistake, so that rare tokens are found too.
    """
    drawn = ood.sample(tries * len(mistakes.tokens), rng)
    last = last_tokens(mistakes)
    partner = torch.full_like(last, -1)
    free = torch.ones(len(drawn), dtype=torch.bool, device=drawn.device)
    for length, token in torch.stack([mistakes.lengths, last], 1).unique(dim=0).tolist():
        wanting = torch.nonzero((mistakes.lengths == length) & (last == token))[:, 0]
        ready = torch.nonzero(free & (drawn[:, length - 1] == token))[: len(wanting), 0]
        partner[wanting[: len(ready)]] = ready
        free[ready] = False
    found = torch.nonzero(partner >= 0)[:, 0]
    return Partners(cut(drawn[partner[found]], mistakes.lengths[found]), found)


def last_tokens(mistakes: Mistakes) -> Int[Tensor, " count"]:
    return mistakes.tokens.gather(1, (mistakes.lengths - 1)[:, None])[:, 0]


def states_of(
    lm: CausalLM, strings: Int[Tensor, "count t"], *, layer: int = -1
) -> Float[Tensor, "count width"]:
    """The network's state at the last token of each string."""
    return torch.cat([d.hidden_state() for d in _decoders(lm, strings, layer, 1000)])


def completed_anyhow(
    model: Trained,
    strings: Int[Tensor, "count t"],
    samplings: Sequence[Sampling],
    memory: PrefixMemory | None = None,
) -> list[Bool[Tensor, " count"]]:
    """Which completions of the strings are right, for every way of sampling.

    A string that has ended, or is full, has no completion: it counts as it stands.
    """
    law = model.law
    ended = (strings == law.end_token).any(1) | ((strings != PAD).sum(1) >= law.length)
    as_they_stand = torch.zeros_like(ended)
    if ended.any():
        whole = _padded(law, strings[ended])
        as_they_stand[ended] = law.parse(whole).error == DyckError.NONE
    found = [as_they_stand.clone() for _ in samplings]
    if not ended.all():
        every = complete_each(model.lm, strings[~ended], samplings, memory=memory)
        for right, results in zip(found, every, strict=True):
            right[~ended] = read(law, results).right
    return found


class RefusedStrings(NamedTuple):
    """Every string at which the verifier refused, its last token included, -1 beyond.

    prefix   the row of the prefixes that it came from
    """

    tokens: Int[Tensor, "refused t"]
    prefix: Int[Tensor, " refused"]


def refused_strings(results: Sequence[Result], prefixes: Int[Tensor, "count t"]) -> RefusedStrings:
    """What was refused on the way, from the traces."""
    found: list[tuple[int, list[int]]] = []
    first = 0
    for result in results:
        prompts = prefixes[first : first + len(result.lengths)].tolist()
        found += [
            (first + event.row, [*prompts[event.row][: event.prompt], *event.tokens])
            for event in result.trace
            if event.action == "reject"
        ]
        first += len(result.lengths)
    longest = max((len(string) for _, string in found), default=0)
    padded = [string + [PAD] * (longest - len(string)) for _, string in found]
    device = prefixes.device
    tokens = torch.tensor(padded, dtype=torch.long, device=device).reshape(len(found), longest)
    return RefusedStrings(tokens, torch.tensor([row for row, _ in found], device=device).long())
