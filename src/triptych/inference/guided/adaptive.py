"""Particles that draw again: each token is proposed by adaptive weighted rejection sampling
[Lipkin et al. 2025, arXiv 2504.05410].

`particles` draws one token a step, and a particle whose token is refused is lost. Here a particle
goes on drawing until a token is accepted, and its weight says what that was worth. A token t is
accepted if V(s t) > 0. At a prefix s, with p = p(· | s) and R the tokens refused so far:

    search    draw y from p without R, up to `tries` times. If y is refused, put it into R. The
              first y that is accepted is the particle's next token x.
    estimate  draw z from p without R and x, and ask about it. The weight of the step is
              w = p(x) + (1 - p(R) - p(x)) 1[z is accepted]
              If x was the last of the `tries`, no z is drawn and w = 1 - p(R).

If nothing is accepted, w = 0. The weight of a particle is multiplied by w V(s x) / V(s). Then the
particles are resampled as in `particles`.

The step is unbiased: E[w f(x)] = Σ p(t) f(t) over the accepted tokens t, for every f and any
number of `tries`. Proof, by induction on `tries`, with Z the accepted mass Σ p(t). One try: x = t
has probability p(t), and w = 1. More tries: the first draw y is one of two.

    accepted   then x = y, and given x, E[w] = p(x) + (1 - p(x)) (Z - p(x)) / (1 - p(x)) = Z.
               In all that is Σ p(t) Z f(t).
    refused    the rest is the same step for the law p(·) / (1 - p(y)), with one try less and with
               all its weights times 1 - p(y). By induction E[w f(x) | y] = Σ p(t) f(t). All
               refused y together have mass 1 - Z: in all that is (1 - Z) Σ p(t) f(t).

The two sum to Σ p(t) f(t). With more draws z_1, ..., z_m (`estimates`), each without the tokens
known so far, w is the mean of the m numbers A + B 1[z_i is accepted], where A is the known
accepted mass and B the unknown mass before z_i. Each has mean A + (Z - A) = Z given what was drawn
before, so the proof stands. Where B = 0 the number is A itself, and nothing is drawn.

A verifier with masks says at once which tokens are accepted: then x is drawn from these, and w = Z
exactly, without a question about any token.

With one try this is `particles`. Worked value: p = (½, ¼, ¼), and token 0 is refused. The draws
1, 2 have probability ¼ · ⅓ and weight ¼ + ¾ = 1; the draws 1, 0 have ¼ · ⅔ and weight ¼; the draws
0, 1, 2 have ½ · ½ and weight ¼ + ¼ = ½. So E[w; x = 1] = 1/12 + 1/24 + 1/8 = ¼ = p(1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.distinct import distinct_rows
from triptych.core.protocols import Decoder, NextToken, Rng, Value, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import (
    Count,
    EndTokens,
    Number,
    UserError,
    as_count,
    as_flag,
    as_list,
    as_number,
    as_probability,
    as_size,
    check_can,
    shown,
)
from triptych.inference.answers import probs_after, value_of
from triptych.inference.guided import particles
from triptych.inference.guided.algorithm import Algorithm, Shared, option
from triptych.inference.guided.best_of_n import values_of_full_prompts
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import (
    as_copies,
    as_limit,
    end_set,
    path_counter,
)
from triptych.inference.guided.resampling import (
    MAX_FOLLOWED,
    Text,
    cloud_law,
    effective_size,
    even_out,
    finish,
    open_particles,
)
from triptych.inference.guided.result import ParticleSet, Result

PARTICLES = 6
"""Candidates of a row where no number is given, and the verifier has no masks."""
TRIES = 1000
"""Tokens that are tried for one place where no number is given."""
_PAGE = 256  # tokens on a page; of a larger vocabulary a page is drawn, and then a token on it


class Info(NamedTuple):
    """died             rows whose particles all have weight 0
    log_normaliser   the logarithm of the mean weight of each row: the estimate of the evidence
    smallest_ess     the effective sample size of each row at its lowest
    questions        prefixes of each row that were shown to the verifier
    refused          tokens that a particle of the row drew as its next one, and that were refused
    particles        all n of each row, with their weights
    """

    died: Bool[Tensor, " batch"]
    log_normaliser: Float[Tensor, " batch"]
    smallest_ess: Float[Tensor, " batch"]
    questions: Int[Tensor, " batch"]
    refused: Int[Tensor, " batch"]
    particles: ParticleSet


@dataclass(frozen=True)
class Adaptive(Algorithm[Info]):
    """Complete every row with one of n particles.

    ess         resample a row when its effective sample size falls below ess · n; 1.0 always
                resamples, 0.0 never does
    tries       tokens that a particle draws for one place at most
    estimates   draws for the estimate of the accepted mass; more of them, less noise

    Every draw is one call of the generator, and only tokens that are kept are written. Particles
    of a row with the same text share the verifier's answers. A row whose particles all have weight
    0 has died: it keeps the unfinished text that weighed most. So does a row that is over its
    budget, which is looked at before every draw. About a prompt of full length the verifier is
    asked once.
    """

    title = "Particles with adaptive rejection"
    promise = (
        "as n grows the law tends to p(x) V(x), normalised; the mean weight is an unbiased "
        "estimate of the normaliser, for any number of tries"
    )
    soft = True
    probability = False

    n: int | None = option(None, "candidates; none: 1 with masks, else 6", at_least=1)
    ess: float = option(
        0.5, "resample when the effective sample size is below ess * n", at_least=0, at_most=1
    )
    tries: int = option(1000, "tokens drawn for one place at most", at_least=1)
    estimates: int = option(1, "draws that estimate how much is accepted", at_least=1)

    def _particles(self, run: Generation) -> int:
        return self.n or (1 if run.mask_says_all else PARTICLES)

    def run(self, run: Generation) -> Info:
        """Draw again until a token is accepted, weigh, resample."""
        n = as_copies(self._particles(run), run.batch)
        log_weights = values_of_full_prompts(run)[:, None].repeat(1, n)
        values = torch.zeros_like(log_weights)
        smallest = effective_size(log_weights)
        last = log_weights  # of each particle, when it was above 0
        refused = torch.zeros_like(run.owner)
        begun = run.open_rows(tokens=n)  # stops rows that have no token for each particle
        first = run.laws(begun) if len(begun) else None  # a row's particles share its first law
        cloud = run.fork(run.every_row().repeat_interleave(n))
        drawn = torch.nonzero(torch.isin(cloud.owner, begun))[:, 0]
        while len(drawn):
            laws = cloud.laws(drawn) if first is None else first.repeat_interleave(n, 0)
            step, first = _Step(cloud, drawn, laws), None
            if run.has_masks:
                step.take_allowed()
            else:
                step.search(self.tries)
                step.estimate(self.estimates, self.tries)
            refused.index_add_(0, cloud.owner[drawn], step.refused)
            log_weights, values = step.write(log_weights, values)
            cloud, log_weights, values, size = even_out(run, cloud, log_weights, values, self.ess)
            last = torch.where(torch.isneginf(log_weights), last, log_weights)
            smallest = torch.minimum(smallest, size)
            drawn = open_particles(cloud, log_weights)
        ended = finish(run, cloud, log_weights, values, last)
        asked = run.costs.verifier_calls.clone()
        return Info(ended.died, ended.log_normaliser, smallest, asked, refused, ended.particles)


def sample(
    decoder: Decoder,
    verifier: VerifierLike,
    *,
    n: Count,
    ess: Number = 0.5,
    tries: Count | None = None,
    estimates: Count = 1,
    **shared: Unpack[Shared],
) -> Result[Info]:
    """Complete every row with one of n particles; `tries` None is `TRIES`."""
    own = {"n": n, "ess": ess, "tries": TRIES if tries is None else tries, "estimates": estimates}
    return Adaptive.of(own).sample(decoder, verifier, **shared)


class _Step:
    """The next token of some particles: its search, its estimate, its weight.

    A large vocabulary is cut into pages. A page is drawn first, and then a token on it: the law is
    the same, and each of perhaps a thousand tries looks at few numbers.

    rows      the particles, as rows of `cloud`
    laws      their next-token laws
    left      log-probabilities of the tokens that a particle has not drawn, by page; -inf for the
              others, and beyond the last token
    pages     log-probability of each page: of the tokens on it that are left
    token     what was accepted, -1 for nothing so far
    tried     tokens drawn in the search
    log_mass  log w of the module's docstring
    refused   tokens refused in the search
    """

    def __init__(
        self,
        cloud: Generation,
        rows: Int[Tensor, " rows"],
        laws: Float[Tensor, "rows vocab"],
    ) -> None:
        self.cloud, self.rows = cloud, rows
        self.laws = laws.double().log_softmax(-1)
        self.token, self.refused = torch.full_like(rows, -1), torch.zeros_like(rows)
        self.tried = torch.zeros_like(rows)
        self.log_mass = torch.full_like(self.laws[:, 0], -torch.inf)
        self.log_value, self.log_prob = self.log_mass.clone(), self.log_mass.clone()
        tokens = cloud.decoder.tokens[rows]
        texts = torch.cat([cloud.owner[rows, None], cloud.decoder.lengths[rows, None], tokens], 1)
        self._text = distinct_rows(texts).group.tolist()
        self._known: dict[tuple[int, int], float] = {}  # log V of (text, token)

    def take_allowed(self) -> None:
        """Draw from what the mask allows, whose mass is the weight: nothing is refused."""
        first: dict[int, int] = {}
        places = [first.setdefault(text, place) for place, text in enumerate(self._text)]
        several = torch.tensor([*first.values()], device=self.rows.device)  # texts, each once
        ranked = {place: rank for rank, place in enumerate(first.values())}
        whose = torch.tensor([ranked[place] for place in places], device=self.rows.device)
        allowed = self.cloud.masks(self.rows[several])[whose]
        left = self.laws.masked_fill(~allowed, -torch.inf)
        self.log_mass = left.logsumexp(-1)
        some = torch.nonzero(self.log_mass > -torch.inf)[:, 0]
        if len(some) == 0:
            return
        law = left[some] - self.log_mass[some, None]
        self.token[some] = self.cloud.choose(law, self.rows[some])
        self.log_value[some] = 0.0
        if not self.cloud.mask_says_all:
            self.log_value[some] = self._ask(some, self.token[some])

    def search(self, most: int) -> None:
        """Draw until a token is accepted, at most `most` times."""
        left, page = self.laws, min(_PAGE, self.laws.shape[-1])
        left = F.pad(left, (0, -left.shape[1] % page), value=-torch.inf)
        self.left = left.unflatten(1, (-1, page))
        self.pages = self.left.logsumexp(-1)
        active = torch.arange(len(self.rows), device=self.rows.device)
        for number in range(1, most + 1):
            active, log_left = self._with_mass(active)
            if len(active) == 0:
                return
            drawn, log_probs, log_values = self._draw(active, log_left)
            kept = log_values > -torch.inf
            found, lost = active[kept], active[~kept]
            self.token[found], self.tried[found] = drawn[kept], number
            self.log_value[found], self.log_prob[found] = log_values[kept], log_probs[kept]
            self.log_mass[found] = log_left[kept]
            self.refused[lost] += 1
            self.cloud.count("generator_calls", self.rows[lost])
            self.cloud.note("reject", self.rows[lost], log_values[~kept], drawn[~kept])
            active = lost

    def estimate(self, draws: int, most: int) -> None:
        """The accepted mass, for tokens that were found before the last try."""
        active = torch.nonzero((self.token >= 0) & (self.tried < most))[:, 0]
        known, mean = self.log_prob.clone(), torch.full_like(self.log_mass, -torch.inf)
        for number in range(draws):
            some, log_left = self._with_mass(active)
            if len(some) == 0:  # the accepted mass is known: all numbers that are left are A
                mean = torch.logaddexp(mean, known + math.log((draws - number) / draws))
                break
            _, log_probs, log_values = self._draw(some, log_left)
            self.cloud.count("generator_calls", self.rows[some])
            kept = log_values > -torch.inf
            yes = some[kept]
            here = known.clone()  # A, and A + B where z is accepted
            here[yes] = torch.logaddexp(known[yes], log_left[kept])
            known[yes] = torch.logaddexp(known[yes], log_probs[kept])
            mean = torch.logaddexp(mean, here - math.log(draws))
        self.log_mass[active] = mean[active]

    def write(
        self, log_weights: Float[Tensor, "batch n"], values: Float[Tensor, "batch n"]
    ) -> tuple[Float[Tensor, "batch n"], Float[Tensor, "batch n"]]:
        """Put the accepted tokens; the weights and the log-values of all particles after that."""
        cloud, found = self.cloud, self.token >= 0
        stopped = cloud.stopped()[self.rows]
        cloud.count("generator_calls", self.rows[found & stopped])  # drawn, and not written
        found &= ~stopped
        rows, log_value = self.rows[found], self.log_value[found]
        if len(rows):
            cloud.put(self.token[found], rows, "draw")
            cloud.hear(rows, log_value)
            cloud.note("accept", rows, log_value)
        gain = torch.zeros_like(log_weights).reshape(-1)
        gain[self.rows[~found]] = -torch.inf
        gain[rows] = self.log_mass[found] + log_value - values.reshape(-1)[rows]
        after = values.reshape(-1).index_copy(0, rows, log_value)
        return log_weights + gain.reshape(log_weights.shape), after.reshape(values.shape)

    def _with_mass(
        self, active: Int[Tensor, " active"]
    ) -> tuple[Int[Tensor, " some"], Float[Tensor, " some"]]:
        """Those that have a token left and are within their budget; the log of the mass left."""
        if len(active):
            going = self.cloud.within_budget(self.rows[active])
            active = active[torch.isin(self.rows[active], going)]
        log_left = self.pages[active].logsumexp(-1)
        some = log_left > -torch.inf
        return active[some], log_left[some]

    def _draw(
        self, active: Int[Tensor, " active"], log_left: Float[Tensor, " active"]
    ) -> tuple[Int[Tensor, " active"], Float[Tensor, " active"], Float[Tensor, " active"]]:
        """A token that was not drawn before, its log p, and its log V."""
        rows, page = self.rows[active], torch.zeros_like(active)
        if self.pages.shape[1] > 1:
            page = self.cloud.choose(self.pages[active] - log_left[:, None], rows)
        left = self.left[active, page]
        place = self.cloud.choose(left - self.pages[active, page, None], rows)
        log_probs = self.left[active, page, place]
        self.left[active, page, place] = -torch.inf
        self.pages[active, page] = self.left[active, page].logsumexp(-1)
        drawn = page * self.left.shape[2] + place
        return drawn, log_probs, self._ask(active, drawn)

    def _ask(
        self, active: Int[Tensor, " active"], tokens: Int[Tensor, " active"]
    ) -> Float[Tensor, " active"]:
        """log V of the particles' texts with these tokens; what is known is not asked again."""
        keys = [(self._text[k], t) for k, t in zip(active.tolist(), tokens.tolist(), strict=True)]
        new: dict[tuple[int, int], int] = {}
        for place, key in enumerate(keys):
            if key not in self._known:
                new.setdefault(key, place)
        if new:
            places = torch.tensor(list(new.values()), device=active.device)
            answers = self.cloud.child_log_values(self.rows[active[places]], tokens[places])
            self._known.update(zip(new, answers.tolist(), strict=True))
        said = [self._known[key] for key in keys]
        return torch.tensor(said, dtype=torch.float64, device=active.device)


# ---------------------------------------------------------------- one step and its law, by paths


def proposals(
    probs: Sequence[Number],
    accepted: Sequence[bool],
    *,
    tries: Count | None = None,
    estimates: Count = 1,
) -> dict[tuple[int, float], float]:
    """The probability of every (token, weight) that one step can give; token -1 is none.

    All paths of the step are followed. Σ probability · weight over the entries of a token t is
    p(t) if t is accepted; the test of that is the test of the estimator.
    """
    p = [
        as_number(f"probs[{t}]", q, at_least=0) for t, q in enumerate(as_list("probs", probs, "p"))
    ]
    if not math.isclose(sum(p), 1.0, abs_tol=1e-6):
        raise UserError(f"probs sum to {sum(p):g}; they must sum to 1", parameter="probs")
    says = as_list("accepted", accepted, "True or False")
    if len(says) != len(p) or not all(isinstance(said, bool) for said in says):
        raise UserError(
            f"accepted is {shown(accepted)}; it must be True or False for each of the {len(p)} "
            "probs",
            parameter="accepted",
        )
    most = as_limit("tries", TRIES if tries is None else tries, at_least=1)
    draws = as_limit("estimates", estimates, at_least=1)
    found: dict[tuple[int, float], float] = {}
    count_path = path_counter()

    def add(token: int, weight: float, chance: float) -> None:
        count_path()
        found[token, weight] = found.get((token, weight), 0.0) + chance

    def next_draws(gone: frozenset[int]) -> list[tuple[int, float]]:
        """Every token that is left, with its probability; none where nothing is left."""
        left = math.fsum(q for t, q in enumerate(p) if t not in gone)
        return [(t, q / left) for t, q in enumerate(p) if t not in gone and q > 0]

    def search(gone: frozenset[int], number: int, chance: float) -> None:
        left = math.fsum(q for t, q in enumerate(p) if t not in gone)
        options = next_draws(gone) if number <= most else []
        if not options:
            add(-1, 0.0, chance)
        for t, q in options:
            if not says[t]:
                search(gone | {t}, number + 1, chance * q)
            elif number == most:
                add(t, left, chance * q)
            else:
                estimate(t, gone | {t}, p[t], [], chance * q)

    def estimate(
        token: int, gone: frozenset[int], known: float, numbers: list[float], chance: float
    ) -> None:
        options = next_draws(gone)
        if len(numbers) == draws or not options:
            rest = known * (draws - len(numbers))  # the accepted mass is known
            add(token, math.fsum([*numbers, rest]) / draws, chance)
            return
        left = math.fsum(q for t, q in enumerate(p) if t not in gone)
        for t, q in options:
            more = p[t] if says[t] else 0.0
            number = known + (left if says[t] else 0.0)
            estimate(token, gone | {t}, known + more, [*numbers, number], chance * q)

    search(frozenset(), 1, 1.0)
    return found


def law(
    lm: NextToken,
    verifier: Value,
    length: Count,
    n: Count,
    *,
    ess: Number = 0.5,
    tries: Count | None = None,
    estimates: Count = 1,
    masks: bool = False,
    end_token: EndTokens | None = None,
) -> dict[tuple[int, ...], float]:
    """The exact law of `sample` from the empty prompt, by following the particles and their
    weights: slow and obvious. The probabilities sum to that of not dying.

    masks   the verifier has masks, so the weight of a step is the accepted mass itself
    """
    masks = as_flag("masks", masks)
    check_can("lm", lm, "vocab_size", "next_token_log_probs")
    length, ends = as_size("length", length), end_set(end_token, lm.vocab_size)
    n = as_count("n", n, at_least=1, at_most=MAX_FOLLOWED)
    ess = as_probability("ess", ess)

    def extend(x: Text, weight: float) -> list[tuple[Text, float, float]]:
        """What a particle can become: itself, its log-weight, and the probability."""
        values = [
            value_of(verifier, (*x, token), over=token in ends) for token in range(lm.vocab_size)
        ]
        before = value_of(verifier, x) if x else 0.0
        probs, says = probs_after(lm, x), [value > -math.inf for value in values]
        step = proposals(probs, says, tries=tries, estimates=estimates) if not masks else {}
        mass = math.fsum(q for q, said in zip(probs, says, strict=True) if said)
        if masks:
            step = {
                (token, mass): q / mass
                for token, (q, said) in enumerate(zip(probs, says, strict=True))
                if said and q > 0
            } or {(-1, 0.0): 1.0}
        return [
            ((*x, token), weight + math.log(w) + values[token] - before, q)
            if token >= 0
            else (x, -math.inf, q)
            for (token, w), q in step.items()
        ]

    return cloud_law(extend, length, ends, n, ess, verifier)


class _Refusing:
    """Values without structure; 0 where a prefix ends in 0, 1 or begins with 2."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        place = torch.arange(1.0, prefix.shape[1] + 1, dtype=torch.float64)
        ends = prefix[:, -2:]
        bad = (ends == torch.tensor([0, 1])[-ends.shape[1] :]).all(-1) & (ends.shape[1] == 2)
        bad |= prefix[:, 0] == 2
        return torch.sin((prefix + 1.0).double() @ place).masked_fill(bad, -torch.inf)


def examples() -> dict[str, OneShot]:
    """The law of the recursion above, given that the row does not die; with one try, the law of
    `particles`."""
    verifier = _Refusing()

    def case(vocab: int, n: int, ess: float, **own: int) -> OneShot:
        """`sample` with these options on two tokens, and the law of the recursion."""
        p = Table.random(vocab_size=vocab, length=2, seed=7)
        options: dict[str, Any] = {"n": n, "ess": ess, **own}

        def one(rng: Rng) -> tuple[int, ...] | None:
            result = sample(RecomputingDecoder(p, 1), verifier, length=2, rng=rng, **options)
            return result.completions()[0] if result.complete[0] else None

        return OneShot(one, _given_alive(law(p, verifier, 2, **options)))

    p = Table.random(vocab_size=2, length=2, seed=7)
    plain = particles.law(p, verifier, 2, 2, ess=0.9)
    return {
        "n = 1": case(3, 1, 0.5),
        "n = 1, two tries, two estimates": case(3, 1, 0.5, tries=2, estimates=2),
        "n = 2, resampled, an end token": case(2, 2, 0.9, end_token=1),
        "one try is `particles`": OneShot(case(2, 2, 0.9, tries=1).attempt, _given_alive(plain)),
    }


def _given_alive(found: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
    return {x: q / sum(found.values()) for x, q in found.items()}
