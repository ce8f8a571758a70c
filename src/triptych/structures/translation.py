"""Translations whose law is known exactly: one sentence, several ways to write it.

A source sentence x can be written in K ways: in several dialects, or in several word orders. Way k
writes the sentence s_k, of N tokens. With probability c the whole sentence is written in one way;
else every position chooses its way on its own:

    p(y | x) = c Σ_k π_k [y = s_k] + (1 - c) Π_i m_i(y_i),     m_i(v) = Σ_k π_k [s_k,i = v]

The agreement c is the dial for dependency. The marginals m_i are the same at every c, so all that
changes is how much the positions know of one another, the total correlation

    TC = KL(p ‖ Π_i m_i),     0 at c = 0, and Σ_i H(m_i) - H(p) in general.

Reading a hypothesis h in which each token of y was kept with probability r and is uniform otherwise
(r = 0.15 in the training of li, 4.2.3), the exact law of each token of y is `denoised_log_probs`:
the best that any network can learn from such pairs.

Notation
--------
s   sentences   [ways, length]     π   weights     [ways]
m   marginals   [length, vocab]    c   agreement   a number
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.display import card, facts_table
from triptych.core.logspace import with_point_masses
from triptych.core.ragged import answers_of_rows, log_prob_of_rows
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Hidden,
    Number,
    Numbers,
    Prefix,
    Tokens,
    UserError,
    as_count,
    as_distributions,
    as_integers,
    as_masked,
    as_prefix,
    as_probability,
    as_size,
    as_tokens,
    check_room,
    moved_to,
    raise_if_impossible,
    set_fields,
)
from triptych.structures.strings import digits, likely_strings

MAX_SUPPORT = 2**20
"""Sequences that `total_correlation` may sum over."""


@dataclass(frozen=True, eq=False)
class Translations:
    """The law of the translations of one source sentence.

    Worked value: two ways, 0 1 and 1 0, each with weight ½. At c = 1 only these two are possible,
    with ½ each. At c = 0 all four pairs have ¼: half of them repeat a word. The total correlation
    is log 2 at c = 1 and 0 at c = 0.
    """

    sentences: Int[Tensor, "ways length"]
    weights: Float[Tensor, " ways"]
    agreement: float
    vocab_size: int

    def __post_init__(self) -> None:
        vocab = as_size("vocab_size", self.vocab_size)
        sentences = as_tokens(self.sentences, vocab, name="sentences")
        if sentences.numel() == 0:
            raise UserError(
                f"sentences has shape {tuple(sentences.shape)}; it needs at least one way and one "
                "position",
                parameter="sentences",
            )
        weights = as_distributions(
            "weights",
            self.weights,
            shape=(len(sentences),),
            meaning=f"[{len(sentences)}], one for each way",
            device=sentences.device,
        )
        check_room("the marginals", sentences.shape[1], vocab)
        agreement = as_probability("agreement", self.agreement)
        set_fields(
            self, sentences=sentences, weights=weights, agreement=agreement, vocab_size=vocab
        )

    def __repr__(self) -> str:
        ways, length = self.sentences.shape
        return f"Translations({ways} ways, length {length}, agreement {self.agreement:g})"

    def _repr_html_(self) -> str:
        facts = {
            "length": self.length,
            "symbols": self.vocab_size,
            "agreement": self.agreement,
            "ways": ", ".join(digits(self.sentences)),
        }
        return card(repr(self), facts_table(facts), likely_strings(self, digits))

    @property
    def length(self) -> int:
        return self.sentences.shape[1]

    @property
    def device(self) -> torch.device:
        return self.sentences.device

    def to(self, device: torch.device | str) -> "Translations":
        return moved_to(self, device)

    @property
    def marginals(self) -> Float[Tensor, "length vocab"]:
        """m_i(v) = Σ_k π_k [s_k,i = v]: the same at every agreement."""
        return (self.weights[:, None, None] * self._points).sum(0)

    def distilled(self) -> "Translations":
        """What a teacher leaves who always writes the most probable sentence: one way.

        That is the sentence of a way, or where c is small the most probable token at each position.
        Of equal ones the first way. The total correlation of what is left is 0.
        """
        best = self.sentences[int(self.log_prob(self.sentences).argmax())]
        most = self.marginals.argmax(-1)
        rows = torch.stack([best, most])
        chosen = rows[int(self.log_prob(rows).argmax())]
        one = torch.ones(1, dtype=torch.float64, device=self.device)
        return Translations(chosen[None], one, 1.0, self.vocab_size)

    def log_prob(
        self, tokens: Tokens, *, hidden: Hidden | None = None, lengths: Numbers | None = None
    ) -> Float[Tensor, " batch"]:
        if hidden is not None or lengths is not None:
            return log_prob_of_rows(self, tokens, hidden, lengths)
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        shown = torch.ones_like(tokens, dtype=torch.bool)
        whole, apart = self._joint(self._evidence(tokens, shown))
        return torch.cat([whole, apart[:, None]], 1).logsumexp(1)

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)
        t = prefix.shape[1]
        tokens = torch.zeros((len(prefix), self.length), dtype=torch.long, device=self.device)
        tokens[:, :t] = prefix
        shown = (torch.arange(self.length, device=self.device) < t).expand_as(tokens)
        return self._posterior(self._evidence(tokens, shown), "the prefix")[:, t]

    def masked_log_probs(
        self,
        tokens: Tokens,
        hidden: Hidden,
        *,
        lengths: Numbers | None = None,
    ) -> Float[Tensor, "batch length vocab"]:
        if lengths is not None:
            return answers_of_rows(self, self.masked_log_probs, tokens, hidden, lengths)
        tokens, hidden = as_masked(
            tokens, hidden, self.vocab_size, length=self.length, device=self.device
        )
        law = self._posterior(self._evidence(tokens, ~hidden), "what is shown")
        return with_point_masses(law, tokens, hidden)

    def denoised_log_probs(
        self, tokens: Tokens, right: Number = 0.15
    ) -> Float[Tensor, "batch length vocab"]:
        """log p(y_i = · | h): each token of h is that of y with probability `right`, else uniform.

        Worked value: one position, two ways 0 and 1 with weight ½, two words, h = 0: the evidence
        is r + (1 - r)/2 for 0 and (1 - r)/2 for 1, so p(y = 0 | h) = (1 + r)/2.
        """
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        right = as_probability("right", right)
        own = torch.nn.functional.one_hot(tokens, self.vocab_size).double()
        evidence = (right * own + (1 - right) / self.vocab_size).log()
        return self._posterior(evidence, "the hypothesis")

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        """One way for all positions with probability c, else one for each of them."""
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
        coin = torch.tensor([[1 - self.agreement, self.agreement]], dtype=torch.float64)
        first = torch.zeros(n, dtype=torch.long, device=self.device)
        together = rng.categorical(coin.to(self.device).log(), first) == 1
        ways = rng.categorical(self.weights.log()[None], first[:, None].expand(-1, self.length))
        ways = torch.where(together[:, None], ways[:, :1], ways)
        return self.sentences.T.gather(1, ways.T).T

    def total_correlation(self) -> float:
        """KL(p ‖ product of its marginals) in nats, by a sum over all that the product can write.

        Worked value: two ways without a word in common and weights π: (N - 1) H(π) at c = 1.
        """
        choices = [torch.nonzero(m)[:, 0] for m in self.marginals]
        if math.prod(len(c) for c in choices) > MAX_SUPPORT:
            raise UserError(
                f"this law gives mass to more than {MAX_SUPPORT} sequences; its total correlation "
                "is a sum over all of them: make the sentence shorter"
            )
        every = torch.cartesian_prod(*choices).reshape(-1, self.length)
        log_p = self.log_prob(every)
        at = torch.arange(self.length, device=self.device)
        log_product = self.marginals.log()[at, every].sum(-1)
        p = log_p.exp()
        gap = torch.where(p > 0, log_p, 0.0) - torch.where(p > 0, log_product, 0.0)
        return max(0.0, float((p * gap).sum()))

    def is_one_way(self, tokens: Tokens) -> Bool[Tensor, " batch"]:
        """Whether a sentence is written in one way; else it mixes ways."""
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        return (tokens[:, None] == self.sentences).all(-1).any(-1)

    @property
    def _points(self) -> Float[Tensor, "ways length vocab"]:
        return torch.nn.functional.one_hot(self.sentences, self.vocab_size).double()

    def _evidence(
        self, tokens: Int[Tensor, "batch length"], shown: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        """0 for tokens that agree with what is shown, -inf for the others."""
        other = torch.arange(self.vocab_size, device=self.device) != tokens[..., None]
        zero = torch.zeros(other.shape, dtype=torch.float64, device=self.device)
        return zero.masked_fill(other & shown[..., None], -torch.inf)

    def _joint(
        self, evidence: Float[Tensor, "batch length vocab"]
    ) -> tuple[Float[Tensor, "batch ways"], Float[Tensor, " batch"]]:
        """log of: one way k for all, with the evidence; a way for each position, with it."""
        at = torch.arange(self.length, device=self.device)
        each = evidence[:, at, self.sentences].sum(-1)
        whole = math.log(self.agreement) if self.agreement > 0 else -math.inf
        apart = math.log1p(-self.agreement) if self.agreement < 1 else -math.inf
        own = (evidence + self.marginals.log()).logsumexp(-1).sum(-1)
        return each + self.weights.log() + whole, own + apart

    def _posterior(
        self, evidence: Float[Tensor, "batch length vocab"], what: str
    ) -> Float[Tensor, "batch length vocab"]:
        """log p(y_i = v | evidence), for evidence that is a product over positions."""
        whole, apart = self._joint(evidence)
        total = torch.cat([whole, apart[:, None]], 1).logsumexp(1)
        raise_if_impossible(total, what)
        together = ((whole - total[:, None]).exp() @ self._points.flatten(1)).reshape(
            len(evidence), self.length, self.vocab_size
        )
        own = evidence + self.marginals.log()
        alone = (own - own.logsumexp(-1, keepdim=True)).exp().nan_to_num(nan=0.0)
        share = (apart - total).exp()[:, None, None]
        return (together + share * alone).log().clamp(max=0.0)


class Pairs(NamedTuple):
    """Source sentences and their translations, row by row; `which` is the number of the source."""

    sources: Int[Tensor, "n words"]
    targets: Int[Tensor, "n length"]
    which: Int[Tensor, " n"]


@dataclass(frozen=True, eq=False)
class TranslationWorld:
    """Source sentences, all equally likely, and the ways to write each of them.

    sources     the words of each source sentence
    sentences   what each way writes for it; the law is `translations(source)`

    The constructors make three worlds. In `dialects` every word has its own token in each dialect:
    a sentence can mix dialects. In `orders` the same words stand in several orders: a sentence
    that mixes them can repeat a word, and lose another. In `split_words` this happens to words of
    two tokens, so that no two tokens in a row are equal when a word is repeated.
    """

    sources: Int[Tensor, "sources words"]
    sentences: Int[Tensor, "sources ways length"]
    weights: Float[Tensor, " ways"]
    agreement: float
    vocab_size: int

    def __post_init__(self) -> None:
        sources = as_integers("sources", self.sources, dimensions=2)
        sentences = as_integers("sentences", self.sentences, dimensions=3)
        if len(sources) != len(sentences) or sentences.numel() == 0 or sources.numel() == 0:
            raise UserError(
                f"sources has shape {tuple(sources.shape)} and sentences "
                f"{tuple(sentences.shape)}; they need the same number of rows, and at least one",
                parameter="sources",
            )
        as_tokens(sentences.flatten(1), as_size("vocab_size", self.vocab_size), name="sentences")
        one = Translations(sentences[0], self.weights, self.agreement, self.vocab_size)
        set_fields(
            self,
            sources=sources,
            sentences=sentences,
            weights=one.weights,
            agreement=one.agreement,
            vocab_size=one.vocab_size,
        )

    def __repr__(self) -> str:
        sources, ways, length = self.sentences.shape
        return f"TranslationWorld({sources} sources, {ways} ways, length {length})"

    @classmethod
    def dialects(
        cls,
        *,
        agreement: Number,
        words: Count = 4,
        weights: Sequence[float] = (0.6, 0.4),
    ) -> "TranslationWorld":
        """`words` words in every order as sources; dialect k writes word w as k · words + w."""
        words = as_count("words", words, at_least=1, at_most=7)
        sources = _arrangements(words, words)
        shift = torch.arange(_ways(weights))[:, None] * words
        vocab = words * _ways(weights)
        return cls(sources, sources[:, None] + shift, _law(weights), _c(agreement), vocab)

    @classmethod
    def orders(
        cls,
        *,
        agreement: Number,
        words: Count = 5,
        weights: Sequence[float] = (0.4, 0.3, 0.3),
    ) -> "TranslationWorld":
        """Four of `words` words; b a c d, a b c d and a c b d are the three orders of a b c d.

        With the default weights most orders begin with a, and of the words at the second place a
        has the largest weight: position by position the best answer is a a c d.
        """
        words = as_count("words", words, at_least=4, at_most=20)
        sources = _arrangements(words, 4)
        orders = torch.tensor([[1, 0, 2, 3], [0, 1, 2, 3], [0, 2, 1, 3]])
        _check_three(weights)
        return cls(sources, sources[:, orders], _law(weights), _c(agreement), words)

    @classmethod
    def split_words(
        cls,
        *,
        agreement: Number,
        words: Count = 2,
        weights: Sequence[float] = (0.4, 0.3, 0.3),
    ) -> "TranslationWorld":
        """Words of two tokens: a source a b is written B a, a X or a Y, where B, X, Y are b.

        Each of the `words` first words has two tokens of its own; each of as many second words
        three forms of two tokens, one for every way. So a has two places and can be written twice.
        """
        words = as_count("words", words, at_least=1, at_most=1000)
        pieces = torch.arange(2)
        firsts, seconds = torch.meshgrid(torch.arange(words), torch.arange(words), indexing="ij")
        sources = torch.stack([firsts.reshape(-1), words + seconds.reshape(-1)], 1)
        first = 2 * sources[:, :1] + pieces
        forms = [2 * words + 6 * (sources[:, 1:] - words) + 2 * way + pieces for way in range(3)]
        ways = [
            torch.cat([forms[0], first], 1),
            torch.cat([first, forms[1]], 1),
            torch.cat([first, forms[2]], 1),
        ]
        _check_three(weights)
        return cls(sources, torch.stack(ways, 1), _law(weights), _c(agreement), 8 * words)

    @property
    def length(self) -> int:
        """The length of a translation, in tokens."""
        return self.sentences.shape[2]

    def translations(self, source: Count) -> Translations:
        """The law of the translations of the source sentence with this number."""
        number = as_size("source", source, at_least=0)
        if number >= len(self.sources):
            raise UserError(
                f"source is {number}; there are sources 0..{len(self.sources) - 1}",
                parameter="source",
            )
        return Translations(self.sentences[number], self.weights, self.agreement, self.vocab_size)

    def sample(self, n: Count, rng: RngLike) -> Pairs:
        """n pairs: a source, uniform, and a translation of it."""
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.sources.device)
        uniform = torch.zeros((1, len(self.sources)), dtype=torch.float64).log_softmax(-1)
        first = torch.zeros(n, dtype=torch.long)
        which = rng.categorical(uniform, first)
        coin = torch.tensor([[1 - self.agreement, self.agreement]], dtype=torch.float64).log()
        together = rng.categorical(coin, first) == 1
        ways = rng.categorical(self.weights.log()[None], first[:, None].expand(-1, self.length))
        ways = torch.where(together[:, None], ways[:, :1], ways)
        targets = self.sentences[which].gather(1, ways[:, None])[:, 0]
        return Pairs(self.sources[which], targets, which)


def _arrangements(words: int, length: int) -> Int[Tensor, "count length"]:
    """All sentences of `length` different words."""
    return torch.tensor(list(itertools.permutations(range(words), length)))


def _law(weights: Sequence[float]) -> Float[Tensor, " ways"]:
    return as_distributions("weights", weights, shape=(None,), meaning="[ways]")


def _ways(weights: Sequence[float]) -> int:
    return len(_law(weights))


def _check_three(weights: Sequence[float]) -> None:
    if _ways(weights) != 3:
        raise UserError(
            f"weights has {_ways(weights)} numbers; this world has three ways", parameter="weights"
        )


def _c(agreement: Number) -> float:
    return as_probability("agreement", agreement)


def examples() -> dict[str, Translations]:
    orders = torch.tensor([[1, 0, 2], [0, 1, 2], [0, 2, 1]])
    weights = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
    dialects = torch.tensor([[0, 1], [2, 3]])
    halves = torch.tensor([0.5, 0.5], dtype=torch.float64)
    return {
        "orders, half agreed": Translations(orders, weights, 0.5, 3),
        "orders, always agreed": Translations(orders, weights, 1.0, 3),
        "dialects, never agreed": Translations(dialects, halves, 0.0, 4),
    }
