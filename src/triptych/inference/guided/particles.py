"""Sequential Monte Carlo: n particles a row, weighted by a process verifier and resampled.

    draw       x_t ~ p(· | x_<t) for every particle
    weigh      w ← w V(x_≤t) / V(x_<t), the first time w ← V(x_≤t): the prompt's value cancels
    resample   when (Σ w)² / Σ w² < ess · n, replace the particles by n draws with weights w,
               each of which gets the mean weight

In the end one particle is drawn by its weight. The mean weight is an unbiased estimate of
E_p[V(x); V > 0 at every prefix of x], whatever else V says at inner prefixes, and as n grows the
particle's law tends to p(x) V(x), normalised. For one particle the weights choose nothing: its law
is p, given that no prefix has value 0. Worked value: one fair bit, V(0) = 1, V(1) = 2, n = 2: the
pairs 00, 01, 10, 11 give a 1 with 0, ⅔, ⅔, 1, so P(1) = 7/12, between ½ and ⅔; the mean weight is
1, 3/2, 3/2, 2, on average 3/2 = E_p[V].
"""

from dataclasses import dataclass
from typing import NamedTuple, Unpack

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder, NextToken, Rng, Value, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import (
    Count,
    EndTokens,
    Number,
    as_count,
    as_probability,
    as_size,
    check_can,
)
from triptych.inference.answers import probs_after, value_of
from triptych.inference.guided.algorithm import Algorithm, Shared, option
from triptych.inference.guided.best_of_n import branch, values_of_full_prompts
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import as_copies, end_set
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


class Info(NamedTuple):
    """died             rows whose particles all have weight 0
    log_normaliser   the logarithm of the mean weight of each row
    smallest_ess     the effective sample size of each row at its lowest
    particles        all n of each row, with their weights
    """

    died: Bool[Tensor, " batch"]
    log_normaliser: Float[Tensor, " batch"]
    smallest_ess: Float[Tensor, " batch"]
    particles: ParticleSet


@dataclass(frozen=True)
class Particles(Algorithm[Info]):
    """Complete every row with one of n particles.

    ess   resample a row when its effective sample size falls below ess · n; 1.0 always resamples,
          0.0 never does, which is importance sampling

    A particle of value 0 is not extended, one that has ended keeps its weight. A row whose
    particles all have weight 0 has died: it stands at its prompt. So does a row that is over its
    budget. About a prompt of full length the verifier is asked once.
    """

    title = "Sequential Monte Carlo"
    promise = (
        "as n grows the law tends to p(x) V(x), normalised; the mean weight is an unbiased "
        "estimate of the normaliser"
    )
    soft = True
    probability = False

    n: int = option(6, "candidates", at_least=1)
    ess: float = option(
        0.5, "resample when the effective sample size is below ess * n", at_least=0, at_most=1
    )

    def run(self, run: Generation) -> Info:
        """Draw, weigh, resample."""
        n = as_copies(self.n, run.batch)
        log_weights = values_of_full_prompts(run)[:, None].repeat(1, n)
        values = torch.zeros_like(log_weights)
        smallest = effective_size(log_weights)
        run.open_rows(tokens=n)  # stops rows that have no token for each particle
        copies = run.every_row().repeat_interleave(n)
        drawn = torch.nonzero((~run.finished() & ~run.stopped())[copies])[:, 0]
        cloud = branch(run, copies)
        while len(drawn):
            log_weights, values = _weigh(cloud, drawn, log_weights, values)
            cloud, log_weights, values, size = even_out(run, cloud, log_weights, values, self.ess)
            smallest = torch.minimum(smallest, size)
            drawn = open_particles(cloud, log_weights)
            if len(drawn):
                cloud.draw(drawn)
        ended = finish(run, cloud, log_weights, values)
        return Info(ended.died, ended.log_normaliser, smallest, ended.particles)


def sample(
    decoder: Decoder,
    verifier: VerifierLike,
    *,
    n: Count,
    ess: Number = 0.5,
    **shared: Unpack[Shared],
) -> Result[Info]:
    """Complete every row with one of n particles; see `Particles`."""
    return Particles.of({"n": n, "ess": ess}).sample(decoder, verifier, **shared)


def _weigh(
    cloud: Generation,
    drawn: Int[Tensor, " rows"],
    log_weights: Float[Tensor, "batch n"],
    values: Float[Tensor, "batch n"],
) -> tuple[Float[Tensor, "batch n"], Float[Tensor, "batch n"]]:
    """Weights and log-values after the particles in `drawn` got a token."""
    said = cloud.log_values(drawn)
    cloud.judge(drawn, said, ~torch.isneginf(said))
    gain = torch.zeros_like(log_weights).reshape(-1)
    gain[drawn] = said - values.reshape(-1)[drawn]
    after = values.reshape(-1).index_copy(0, drawn, said)
    return log_weights + gain.reshape(log_weights.shape), after.reshape(values.shape)


def law(
    lm: NextToken,
    verifier: Value,
    length: Count,
    n: Count,
    *,
    ess: Number = 0.5,
    end_token: EndTokens | None = None,
) -> dict[tuple[int, ...], float]:
    """The exact law of `sample` from the empty prompt, by following the particles and their
    weights: slow and obvious. The probabilities sum to that of not dying."""
    check_can("lm", lm, "vocab_size", "next_token_log_probs")
    length, ends = as_size("length", length), end_set(end_token, lm.vocab_size)
    n = as_count("n", n, at_least=1, at_most=MAX_FOLLOWED)
    ess = as_probability("ess", ess)

    def extend(x: Text, weight: float) -> list[tuple[Text, float, float]]:
        """What a particle can become: itself, its log-weight, and the probability."""
        longer = [((*x, token), q) for token, q in enumerate(probs_after(lm, x)) if q > 0]
        before = value_of(verifier, x) if x else 0.0
        return [
            (y, weight + value_of(verifier, y, over=y[-1] in ends) - before, q) for y, q in longer
        ]

    return cloud_law(extend, length, ends, n, ess, verifier)


class _Soft:
    """Values below and above 1, without structure; strings that begin with 11 have value 0."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        place = torch.arange(1.0, prefix.shape[1] + 1, dtype=torch.float64)
        bad = (prefix[:, :2] == 1).all(-1) & torch.tensor(prefix.shape[1] > 1)
        return torch.sin((prefix + 1.0).double() @ place).masked_fill(bad, -torch.inf)


def examples() -> dict[str, OneShot]:
    """The law of the recursion above, given that the row does not die."""
    verifier = _Soft()

    def case(length: int, n: int, ess: float, end: int | None = None) -> OneShot:
        """`sample` with these options, and the law of the recursion."""
        p = Table.random(vocab_size=2, length=length, seed=4)

        def one(rng: Rng) -> tuple[int, ...] | None:
            result = sample(
                RecomputingDecoder(p, 1),
                verifier,
                length=length,
                n=n,
                ess=ess,
                end_token=end,
                rng=rng,
            )
            return result.completions()[0] if result.complete[0] else None

        wanted = law(p, verifier, length, n, ess=ess, end_token=end)
        return OneShot(one, {x: q / sum(wanted.values()) for x, q in wanted.items()})

    p = Table.random(vocab_size=2, length=3, seed=4)
    alive = {x: q for x, q in p.as_dict().items() if x[:2] != (1, 1)}
    return {
        "n = 2, always resampled": case(2, 2, 1.0),
        "n = 2, never resampled": case(2, 2, 0.0),
        "n = 2, resampled below 0.9": case(3, 2, 0.9, end=0),
        "n = 3, with an end token": case(2, 3, 0.7, end=0),
        "n = 1 is the model, alive": OneShot(
            case(3, 1, 0.5).attempt, {x: q / sum(alive.values()) for x, q in alive.items()}
        ),
    }
