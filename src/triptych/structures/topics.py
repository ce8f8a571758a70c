"""Documents about a few topics, each topic a set of words of its own [li, 2.1.1].

`Topics` draws τ distinct topics of T, then every word independently: one of the τ topics, one of
its v words, uniformly. Since a word names its topic, a document with u distinct topics lies in
the support of C(T-u, τ-u) topic sets out of C(T, τ), and everything has a closed form:

    p(w) = (τ v)^-N C(T-u, τ-u) / C(T, τ)
    p(a given topic is in the document | shown) = 1 if a shown word has it, else (τ-u) / (T-u)

`LDA` mixes all T topics with Dirichlet(α) weights, documents of random length. With disjoint
topics it is Pólya's urn over topics, so it is exact as well.

Word w has topic w // v. The mask token of the corruption scheme is T v, one past the words.

Notation
--------
T   topics          v   words per topic          τ   drawn, topics per document
u   distinct topics among the shown words        N   length
"""

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.corruption import as_rates
from triptych.core.deprecation import Renamed
from triptych.core.display import MAX_CELLS, card, counted, facts_table, heat_map
from triptych.core.logspace import with_point_masses
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Hidden,
    Number,
    Numbers,
    Prefix,
    Tokens,
    UserError,
    as_bool_mask,
    as_device,
    as_masked,
    as_number,
    as_prefix,
    as_size,
    as_tokens,
    raise_if_impossible,
    set_fields,
)

MAX_SETS = 200_000


@dataclass(frozen=True)
class Topics:
    """τ distinct topics of T in every document of `length` words.

    Worked value: T = 3, v = 2, τ = 2, length 2. Two words of one topic, (0, 1): u = 1, and
    p = (2·2)^-2 · C(2, 1) / C(3, 2) = 1/16 · 2/3 = 1/24. Two of different topics, (0, 2): u = 2,
    p = 1/16 · 1/3 = 1/48.
    """

    topics: int
    words: int
    drawn: int
    length: int
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        sizes = {
            name: as_size(name, getattr(self, name))
            for name in ("topics", "words", "drawn", "length")
        }
        set_fields(self, **sizes, device=as_device(self.device))
        as_size("topics * words", self.vocab_size)
        if self.drawn > self.topics:
            raise UserError(f"{self.drawn} distinct topics cannot be drawn of {self.topics}")

    def __repr__(self) -> str:
        topics = f"{self.drawn} of {counted(self.topics, 'topic')}"
        return f"Topics({topics}, {counted(self.words, 'word')} each, length {self.length})"

    def _repr_html_(self) -> str:
        facts = {
            "topics": self.topics,
            "topics of a document": self.drawn,
            "words of a topic": self.words,
            "length": self.length,
        }
        return card(repr(self), facts_table(facts), _words_map(self.topics, self.words))

    @property
    def vocab_size(self) -> int:
        return self.topics * self.words

    def to(self, device: torch.device | str) -> "Topics":
        return Topics(self.topics, self.words, self.drawn, self.length, device)

    def log_prob(self, tokens: Tokens) -> Float[Tensor, " batch"]:
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        return self._log_evidence(self._seen(tokens, torch.ones_like(tokens, dtype=torch.bool)))

    def log_posterior(
        self, tokens: Tokens, hidden: Hidden | None = None
    ) -> Float[Tensor, "batch length states"]:
        """log p(topic of position i | shown)."""
        tokens, hidden = as_masked(
            tokens, hidden, self.vocab_size, length=self.length, device=self.device
        )
        seen = self._seen(tokens, ~hidden)
        raise_if_impossible(self._log_evidence(seen), "what is shown")
        law = (self._topic_probs(seen) / self.drawn).log()
        topic = torch.where(hidden, 0, tokens // self.words)
        return with_point_masses(law[:, None].expand(-1, self.length, -1), topic, hidden)

    posterior = Renamed("log_posterior")

    def masked_log_probs(
        self, tokens: Tokens, hidden: Hidden
    ) -> Float[Tensor, "batch length vocab"]:
        tokens, hidden = as_masked(
            tokens, hidden, self.vocab_size, length=self.length, device=self.device
        )
        seen = self._seen(tokens, ~hidden)
        raise_if_impossible(self._log_evidence(seen), "what is shown")
        law = self._word_log_probs(seen)
        return with_point_masses(law[:, None].expand(-1, self.length, -1), tokens, hidden)

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)
        seen = self._seen(prefix, torch.ones_like(prefix, dtype=torch.bool))
        raise_if_impossible(self._log_evidence(seen), "the prefix")
        return self._word_log_probs(seen)

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
        free = torch.ones((n, self.topics), dtype=torch.float64, device=self.device)
        chosen = []
        for _ in range(self.drawn):  # without replacement: a chosen topic loses its weight
            topic = rng.categorical((free / free.sum(-1, keepdim=True)).log())
            free = free.scatter(1, topic[:, None], 0.0)
            chosen.append(topic)
        uniform = _uniform(self.drawn * self.words, self.device)
        place = rng.categorical(
            uniform[None], torch.zeros((n, self.length), dtype=torch.long, device=self.device)
        )
        topic = torch.stack(chosen, 1).gather(1, place // self.words)
        return topic * self.words + place % self.words

    # ------------------------------------------------------------------ the topics themselves

    def topic_probs(self, seen: Numbers) -> Float[Tensor, "batch topics"]:
        """p(topic is in the document | `seen` topics occur among the shown words).

        `seen[b, t]` is True where topic t occurs; a document of `drawn` topics shows no more.
        """
        seen = self._as_topics("seen", seen)
        if (seen.sum(-1) > self.drawn).any():
            raise UserError(
                f"seen marks more than {self.drawn} topics, which a document has", parameter="seen"
            )
        return self._topic_probs(seen)

    def _topic_probs(self, seen: Bool[Tensor, "batch topics"]) -> Float[Tensor, "batch topics"]:
        u = seen.sum(-1, keepdim=True).double()
        rest = (self.drawn - u) / (self.topics - u).clamp(min=1.0)
        return torch.where(seen, torch.ones_like(rest), rest)

    def log_set_posterior(
        self, tokens: Tokens, hidden: Hidden
    ) -> tuple[Int[Tensor, "sets drawn"], Float[Tensor, "batch sets"]]:
        """Every topic set, and log p(set | shown), by enumeration of the C(T, τ) sets."""
        tokens, hidden = as_masked(
            tokens, hidden, self.vocab_size, length=self.length, device=self.device
        )
        count = math.comb(self.topics, self.drawn)
        if count > MAX_SETS:
            raise UserError(
                f"there are {count} sets of {self.drawn} topics out of {self.topics}; enumeration "
                f"stops at {MAX_SETS} (topic_probs and log_posterior have a closed "
                "form at any size)",
                parameter="topics",
            )
        sets = torch.tensor(
            list(itertools.combinations(range(self.topics), self.drawn)), device=self.device
        )
        inside = torch.zeros((len(sets), self.topics), dtype=torch.bool, device=self.device)
        inside = inside.scatter(1, sets, True)
        seen = self._seen(tokens, ~hidden)
        fits = (~seen[:, None, :] | inside).all(-1)  # batch sets
        log_weight = torch.zeros_like(fits, dtype=torch.float64).masked_fill(~fits, -torch.inf)
        raise_if_impossible(log_weight.logsumexp(-1), "what is shown")
        return sets, log_weight - log_weight.logsumexp(-1, keepdim=True)

    set_posterior = Renamed("log_set_posterior")

    # ------------------------------------------------------------------ long documents

    def limit_word_probs(self, present: Numbers) -> Float[Tensor, "batch vocab"]:
        """Word frequencies of an infinitely long document: 1/(τ v) on its topics."""
        present = self._as_present(present)
        return present.double().repeat_interleave(self.words, -1) / (self.drawn * self.words)

    def limit_corrupted_probs(
        self, present: Numbers, *, p_m: Number, p_c: Number, p_r: Number
    ) -> Float[Tensor, "batch vocab_and_mask"]:
        """Frequencies after masking, in the infinite-document limit [li, (2.17)]; mask last.

        Worked value: T = 2, v = 1, τ = 1, p_m = ½, p_c = p_r = ¼. A word of the topic has
        1 - ¾·½ + ½·¼/2 = 11/16, the other word ½·¼/2 = 1/16, the mask ½·½ = 4/16.
        """
        p_m, p_c, p_r = as_rates(p_m, p_c, p_r)
        replaced = p_m * p_r / self.vocab_size
        words = (1 - (1 - p_c) * p_m) * self.limit_word_probs(present) + replaced
        return torch.cat([words, torch.full_like(words[:, :1], p_m * (1 - p_c - p_r))], dim=-1)

    # ------------------------------------------------------------------ inside

    def _as_topics(self, name: str, values: Numbers) -> Bool[Tensor, "batch topics"]:
        meaning = f"True or False for each of the {self.topics} topics, in one row per document"
        mask = as_bool_mask(name, values, meaning=meaning, device=self.device)
        if mask.ndim != 2 or mask.shape[1] != self.topics:
            raise UserError(
                f"{name} has shape {tuple(mask.shape)}; it must be {meaning}", parameter=name
            )
        return mask

    def _as_present(self, present: Numbers) -> Bool[Tensor, "batch topics"]:
        mask = self._as_topics("present", present)
        if not (mask.sum(-1) == self.drawn).all():
            raise UserError(
                f"each row must mark exactly {self.drawn} of {self.topics} topics as present",
                parameter="topics",
            )
        return mask

    def _seen(
        self, tokens: Int[Tensor, "batch t"], shown: Bool[Tensor, "batch t"]
    ) -> Bool[Tensor, "batch topics"]:
        """Which topics occur among the shown words."""
        return _topic_counts(tokens, shown, self.topics, self.words) > 0

    def _log_evidence(self, seen: Bool[Tensor, "batch topics"]) -> Float[Tensor, " batch"]:
        """log p(shown), up to the factor (τ v)^-N of a full document, which is included there."""
        # C(T-u, τ-u) / C(T, τ) = Π_{i<u} (τ-i) / (T-i), and a document shows at most N topics.
        i = torch.arange(min(self.topics, self.length), dtype=torch.float64, device=seen.device)
        factors = (self.drawn - i).clamp(min=0.0) / (self.topics - i)
        ratio = torch.nn.functional.pad(factors.log().cumsum(0), (1, 0))
        each = -self.length * math.log(self.drawn * self.words)
        return (ratio + each)[seen.sum(-1)]

    def _word_log_probs(self, seen: Bool[Tensor, "batch topics"]) -> Float[Tensor, "batch vocab"]:
        law = self._topic_probs(seen) / (self.drawn * self.words)
        return law.log().repeat_interleave(self.words, -1)


class _Evidence(NamedTuple):
    """What the shown tokens of an LDA document say.

    counts[b, t]          shown words of each topic
    shortest, longest     the lengths N that fit what is shown (none if shortest > longest)
    """

    counts: Float[Tensor, "batch topics"]
    shortest: Int[Tensor, " batch"]
    longest: Int[Tensor, " batch"]


@dataclass(frozen=True)
class LDA:
    """Latent Dirichlet allocation with disjoint topics; N uniform on min_length..length.

    The end token, T v, pads every document to `length`. Worked value: T = 2, v = 1, α = 1,
    N = 2 always. By Pólya's urn p(0, 0) = ½ · 2/3 = 1/3 and p(0, 1) = ½ · 1/3 = 1/6.
    """

    topics: int
    words: int
    concentration: float
    min_length: int
    length: int
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        sizes = {
            name: as_size(name, getattr(self, name)) for name in ("topics", "words", "min_length")
        }
        length = as_size("length", self.length, at_least=sizes["min_length"])
        concentration = as_number("concentration", self.concentration)
        if not 1e-6 <= concentration <= 1e6:
            raise UserError(
                f"concentration is {concentration}; it must lie between 1e-6 and 1e6 "
                "(beyond that the urn's probabilities lose their digits)",
                parameter="concentration",
            )
        device = as_device(self.device)
        set_fields(self, **sizes, length=length, concentration=concentration, device=device)
        as_size("topics * words", self.end_token)

    def __repr__(self) -> str:
        topics, words = counted(self.topics, "topic"), counted(self.words, "word")
        lengths = f"length {self.min_length} to {self.length}"
        return f"LDA({topics}, {words} each, concentration {self.concentration:g}, {lengths})"

    def _repr_html_(self) -> str:
        facts = {
            "topics": self.topics,
            "concentration": self.concentration,
            "words of a topic": self.words,
            "length": f"{self.min_length} to {self.length}",
            "end token": self.end_token,
        }
        return card(repr(self), facts_table(facts), _words_map(self.topics, self.words))

    @property
    def end_token(self) -> int:
        return self.topics * self.words

    @property
    def vocab_size(self) -> int:
        return self.end_token + 1

    def to(self, device: torch.device | str) -> "LDA":
        return LDA(
            self.topics, self.words, self.concentration, self.min_length, self.length, device
        )

    def log_prob(self, tokens: Tokens) -> Float[Tensor, " batch"]:
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        return self._log_evidence(self._read(tokens, torch.ones_like(tokens, dtype=torch.bool)))

    def masked_log_probs(
        self, tokens: Tokens, hidden: Hidden
    ) -> Float[Tensor, "batch length vocab"]:
        return self._word_log_probs(tokens, hidden)

    def _word_log_probs(
        self, tokens: Tokens, hidden: Hidden | None
    ) -> Float[Tensor, "batch length vocab"]:
        tokens, hidden = as_masked(
            tokens, hidden, self.vocab_size, length=self.length, device=self.device
        )
        evidence = self._read(tokens, ~hidden)
        raise_if_impossible(self._log_evidence(evidence), "what is shown")
        return with_point_masses(self._predict(evidence), tokens, hidden)

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)
        t = prefix.shape[1]
        padded = torch.nn.functional.pad(prefix, (0, self.length - t))
        shown = torch.arange(self.length, device=prefix.device).expand_as(padded) < t
        evidence = self._read(padded, shown)
        raise_if_impossible(self._log_evidence(evidence), "the prefix")
        return self._predict(evidence)[:, t]

    def log_posterior(
        self, tokens: Tokens, hidden: Hidden | None = None
    ) -> Float[Tensor, "batch length states"]:
        """log p(topic of position i | shown); the last state is "after the end"."""
        words = self._word_log_probs(tokens, hidden)
        by_topic = words[..., :-1].unflatten(-1, (self.topics, self.words)).logsumexp(-1)
        return torch.cat([by_topic, words[..., -1:]], dim=-1)

    posterior = Renamed("log_posterior")

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
        everyone = torch.zeros(n, dtype=torch.long, device=self.device)
        lengths = self.length - self.min_length + 1
        ends = self.min_length + rng.categorical(_uniform(lengths, self.device)[None], everyone)
        shape = (n, self.topics)
        counts = torch.full(shape, self.concentration, dtype=torch.float64, device=self.device)
        topics = []
        for _ in range(self.length):  # Pólya's urn: a drawn topic becomes more likely by one
            topic = rng.categorical((counts / counts.sum(-1, keepdim=True)).log())
            counts.scatter_add_(1, topic[:, None], torch.ones_like(counts[:, :1]))
            topics.append(topic)
        topic = torch.stack(topics, 1)
        word = rng.categorical(_uniform(self.words, self.device)[None], torch.zeros_like(topic))
        after = torch.arange(self.length, device=self.device) >= ends[:, None]
        return torch.where(after, self.end_token, topic * self.words + word)

    # ------------------------------------------------------------------ inside

    def _read(
        self, tokens: Int[Tensor, "batch length"], shown: Bool[Tensor, "batch length"]
    ) -> _Evidence:
        position = torch.arange(self.length, device=tokens.device)
        ended = shown & (tokens == self.end_token)
        word = shown & ~ended
        counts = _topic_counts(tokens, word, self.topics, self.words)
        shortest = torch.where(word, position + 1, 0).amax(1).clamp(min=self.min_length)
        longest = torch.where(ended, position, self.length).amin(1)
        return _Evidence(counts, shortest, longest)

    def _log_evidence(self, evidence: _Evidence) -> Float[Tensor, " batch"]:
        """Lengths that fit, times Pólya's law of the shown topics, times 1/v per shown word."""
        counts, shortest, longest = evidence
        fitting = (longest - shortest + 1).clamp(min=0).double()
        log_length = (fitting / (self.length - self.min_length + 1)).log()
        alpha = torch.full_like(counts, self.concentration)
        total, shown = alpha.sum(-1), counts.sum(-1)
        urn = torch.lgamma(total) - torch.lgamma(total + shown)
        urn = urn + (torch.lgamma(alpha + counts) - torch.lgamma(alpha)).sum(-1)
        return log_length + urn - shown * math.log(self.words)

    def _predict(self, evidence: _Evidence) -> Float[Tensor, "batch length vocab"]:
        """The law of a hidden token at every position."""
        counts, shortest, longest = evidence
        position = torch.arange(self.length, device=counts.device)
        ended = (torch.minimum(position, longest[:, None]) - shortest[:, None] + 1).clamp(min=0)
        p_end = ended.double() / (longest - shortest + 1)[:, None]  # batch length
        weight = counts + self.concentration
        by_word = (weight / weight.sum(-1, keepdim=True) / self.words).repeat_interleave(
            self.words, -1
        )
        words = (1 - p_end)[..., None] * by_word[:, None]
        return torch.cat([words, p_end[..., None]], dim=-1).log()


def _topic_counts(
    tokens: Int[Tensor, "batch t"], shown: Bool[Tensor, "batch t"], topics: int, words: int
) -> Float[Tensor, "batch topics"]:
    """How often each topic occurs among the shown words."""
    topic = torch.where(shown, tokens, 0) // words
    counts = torch.zeros((len(tokens), topics), dtype=torch.float64, device=tokens.device)
    return counts.scatter_add(1, topic, shown.double())


def _words_map(topics: int, words: int) -> str:
    """The law of the words of each topic, as far as a picture shows it."""
    shown = min(topics, MAX_CELLS), min(topics * words, MAX_CELLS)
    owner = torch.arange(shown[1]) // words
    law = (owner == torch.arange(shown[0])[:, None]).double() / words
    size = (topics, topics * words)
    return heat_map(law, title="words of each topic", rows="topic", columns="word", size=size)


def _uniform(outcomes: int, device: torch.device | str) -> Float[Tensor, " outcomes"]:
    return torch.full((outcomes,), -math.log(outcomes), dtype=torch.float64, device=device)


def examples() -> dict[str, Topics | LDA]:
    return {
        "two of three topics": Topics(topics=3, words=2, drawn=2, length=4),
        "one of two topics": Topics(topics=2, words=2, drawn=1, length=4),
        "all topics": Topics(topics=2, words=1, drawn=2, length=5),
        "LDA, tiny": LDA(topics=2, words=1, concentration=0.1, min_length=2, length=3),
        "LDA, one length": LDA(topics=2, words=2, concentration=0.1, min_length=4, length=4),
        "LDA, several lengths": LDA(topics=2, words=1, concentration=0.7, min_length=2, length=5),
    }
