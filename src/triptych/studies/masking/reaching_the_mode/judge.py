"""The judges of `reaching_the_mode`.

Every statement is judged on exact laws. Draws check that the exact laws are those of the samplers:
draws of the same matrix check the arithmetic of first times, runs on the spins that the matrix is
theirs. They are evidence that must be there and fit; they say nothing against a statement.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from scipy import stats

from triptych.studies.api.decide import (
    EXACT,
    Check,
    Need,
    Verdict,
    at_edge,
    at_least,
    decide,
    exactly,
    largest,
    none,
    shown,
)
from triptych.studies.api.study import Rows
from triptych.studies.masking.reaching_the_mode.rows import (
    BlockStep,
    DecoderStep,
    Drawn,
    Lumping,
    MadeLaw,
    MadeMap,
    MadeZeros,
    Modes,
    Reached,
    Row,
    Separated,
    SpinRun,
    Steps,
    Stuck,
)
from triptych.studies.masking.reaching_the_mode.steps import (
    BOUNDS,
    CLIQUE,
    FIELD,
    FIGURE,
    REPEATS,
    SPINS,
)

FAILURE = 1e-9  # chance that a right share is found wrong, for each comparison
NEVER = 0.01  # chance that one of ten repetitions arrives, below which "never" is what one sees
VISIBLE = 1e-3  # a relative change that no figure shows
FEWEST_EACH, FEWEST_SIZES = 2, 3  # couplings on each side of J = 5; block sizes
FEWEST_MODELS, FEWEST_CASES = 5, 4
PAIR_MARGIN = 0.0072  # Proposition 4.1.5 is false for |C| = 2 up to J_0 = 0.007198


# ------------------------------------------------------------------ do draws fit their law?


def share_fits(count: int | None, runs: int, exact: float) -> bool:
    """Whether this many of the runs are compatible with an exact probability; None was not drawn.

    Worked value: 1 of 2000 at probability 1e-5 fits, its p-value is 0.02; 10 of 2000 do not.
    """
    if count is None:
        return True
    return float(stats.binomtest(count, runs, min(1.0, exact)).pvalue) > FAILURE


def fits(row: Drawn) -> bool:
    """Whether every count of T ≤ t fits its exact probability."""
    pairs = zip(row.counts, row.exact_shares, strict=True)
    return all(share_fits(count, row.runs, exact) for count, exact in pairs)


def _all_fit(what: str, answers: Iterable[bool]) -> Need:
    """There are draws, and all of them fit."""
    found = list(answers)
    return at_least(f"{what} that fit the exact law", sum(found), max(1, len(found)))


def _most(sentence: str, values: Sequence[float]) -> list[Check]:
    """The largest value, shown; nothing where there is none."""
    return [shown(sentence, largest(values))] if values else []


def _least(sentence: str, values: Sequence[float]) -> list[Check]:
    return [shown(sentence, -largest([-value for value in values]))] if values else []


def _on_spins(rows: Rows[Row], setting: str, *, parallel: bool) -> list[SpinRun]:
    """Runs on the spins in one setting: of independent parallel, or of k-Gibbs."""
    found = [row for row in rows.of(SpinRun) if row.setting == setting]
    return [row for row in found if (row.k == 0) is parallel]


# ------------------------------------------------------------------ Figure 4.3


def arrives(row: Steps) -> float:
    """P(one of ten repetitions arrives within the budget)."""
    return -math.expm1(REPEATS * math.log1p(-min(math.exp(row.log_reached), 1 - 1e-16)))


def never_from(rows: Sequence[Steps], k: int) -> float | None:
    """The least J of the grid from which on the sampler does not arrive."""
    found = None
    for row in sorted(rows, key=lambda row: -row.coupling):
        if row.k != k:
            continue
        if not arrives(row) < NEVER:
            break
        found = row.coupling
    return found


def judge_figure(rows: Rows[Row]) -> Verdict:
    """Larger k is faster, larger J slower, and independent parallel does not arrive.

    The source does not say which J it tried. Where the coupling is at least the field, J ≥ 5,
    independent parallel must not arrive.
    """
    table = {(row.coupling, row.k): row for row in rows.of(Steps)}
    sizes = sorted({k for _, k in table} - {0})
    couplings = sorted({j for j, _ in table})
    couplings = [j for j in couplings if all((j, k) in table for k in (0, *sizes))]
    strong = [table[j, 0] for j in couplings if j >= FIELD]
    weak = [table[j, 0] for j in couplings if j < FIELD]
    # Between two weak J, or two strong ones, hardly anything changes: growth needs both.
    spread = min(len(strong), len(weak)) >= FEWEST_EACH
    pairs = [(table[j, k], table[j, more]) for j in couplings for k, more in pairwise(sizes)]
    means = {k: [table[j, k].capped_mean for j in couplings] for k in sizes}
    parts = [means[k] for k in sizes if k < SPINS and spread]
    whole = [means[k] for k in sizes if k == SPINS and spread]
    holding = [table[j, k] for j in couplings for k in sizes if k >= CLIQUE]
    lumped = rows.of(Lumping)
    return decide(
        none(
            "pairs of neighbouring block sizes, at one J, of which the larger is not faster in "
            "the mean",
            sum(not more.log_mean < less.log_mean for less, more in pairs),
            of=len(pairs),
        ),
        none(
            "block sizes k < N that are not slower at the largest J than at the smallest",
            sum(not _slower(values) for values in parts),
            of=len(parts),
        ),
        exactly(
            "k < N: largest share by which the mean number of steps falls as J grows",
            largest([_fall(values) for values in parts]),
            below=VISIBLE,
        ),
        at_edge(
            "k = N",
            none(
                "block size N, if it is not slower at the largest J than at the smallest",
                sum(not _slower(values) for values in whole),
                of=len(whole),
            ),
        ),
        none(
            "pairs of J and k ≥ |C| at which k-Gibbs arrives within 1000 steps with a chance "
            "below one half",
            sum(not math.exp(row.log_reached) >= 0.5 for row in holding),
            of=len(holding),
        ),
        none(
            "XX",
            sum(not arrives(row) < NEVER for row in strong),
            of=len(strong),
        ),
        *_least(
            "smallest J from which on the chance that any of ten such runs arrives is below 1 %",
            [] if (first := never_from(list(table.values()), 0)) is None else [first],
        ),
        needs=[
            at_least("couplings J < 5 with every sampler", len(weak), FEWEST_EACH),
            at_least("couplings J ≥ 5 with every sampler", len(strong), FEWEST_EACH),
            at_least("block sizes", len(sizes), FEWEST_SIZES),
            at_least(
                "block sizes whose chain of the count is that of all 2^10 states",
                sum(row.lumping_error <= EXACT for row in lumped),
                max(1, len(lumped)),
            ),
            _all_fit("draws of the chains", map(fits, table.values())),
            _all_fit(
                "runs of k-Gibbs on the spins", map(fits, _on_spins(rows, FIGURE, parallel=False))
            ),
            _all_fit(
                "runs of independent parallel on the spins",
                map(fits, _on_spins(rows, FIGURE, parallel=True)),
            ),
        ],
    )


def _slower(means: Sequence[float]) -> bool:
    return means[-1] > means[0] * (1 + VISIBLE)


def _fall(means: Sequence[float]) -> float:
    """The largest fall below what was reached before: 10, 20, 19 falls by 0.05."""
    return max(1 - now / most for most, now in zip(accumulate(means, max), means, strict=True))


# ------------------------------------------------------------------ Proposition 4.3.3


def judge_modes(rows: Rows[Row]) -> Verdict:
    """Every inequality as printed, strict ones strictly, on the exact extremes over all states."""
    models = [row for row in rows.of(Modes) if not row.violated]
    edge = [row for row in models if _pair_with_a_zero(row)]
    inside = [row for row in models if not _pair_with_a_zero(row)]
    counted = [row.enumeration_error for row in models if row.enumeration_error is not None]
    return decide(
        none(
            "models in which some state of the large mode R_1 is not more probable than every "
            "state of the small mode R_-1",
            sum(not row.large_over_small > 0 for row in models),
            of=len(models),
        ),
        none(
            "models in which some state of R_-1 is not more than e^(2 J_0) times as probable as "
            "every state outside both modes",
            sum(not row.small_over_rest > row.twice_margin for row in inside),
            of=len(inside),
        ),
        at_edge(
            "|C| = 2 with a clique field of 0",
            none(
                "models with |C| = 2 and a clique field of 0: some state of R_-1 is not more than "
                "e^(2 J_0) times as probable",
                sum(not row.small_over_rest > row.twice_margin for row in edge),
                of=len(edge),
            ),
        ),
        exactly(
            "logarithm of p(x) / p(x with the clique flipped) against 2 h_G: largest difference",
            largest([abs(row.flipped - row.twice_clique_sum) for row in models]),
        ),
        *_least(
            "logarithm of p(state of R_-1) / p(state outside both modes) minus 2 J_0: smallest",
            [r.small_over_rest - r.twice_margin for r in models],
        ),
        needs=[
            at_least("models within Assumption 4.1.5, off the edge", len(inside), FEWEST_MODELS),
            at_least("models on the edge", len(edge), 1),
            at_least(
                "models whose ratios are those of all 2^N states",
                sum(error <= EXACT for error in counted),
                max(1, len(counted)),
            ),
        ],
    )


def _pair_with_a_zero(row: Modes) -> bool:
    return row.clique == 2 and 0.0 in row.clique_fields


# ------------------------------------------------------------------ Proposition 4.1.4


def judge_reach(rows: Rows[Row]) -> Verdict:
    """From every start, R_1 is missed for ⌈log_c δ⌉ steps with probability at most δ."""
    cases = [row for row in rows.of(Reached) if not row.violated]
    loose = [statistics.median(row.steps / row.exact_steps for row in cases)] if cases else []
    return decide(
        exactly(
            "chance that the large mode is missed for the promised number of steps, minus δ: "
            "largest",
            largest([row.missed - row.delta for row in cases]),
        ),
        *_most("promised number of steps divided by the number that is needed, median", loose),
        needs=[
            at_least("cases within Assumption 4.1.5", len(cases), FEWEST_CASES),
            _all_fit(
                "draws of the chains",
                (
                    share_fits(row.drawn_missed, row.runs, row.missed_from_small)
                    for row in cases
                    if row.drawn_missed is not None
                ),
            ),
            _all_fit(
                "runs of k-Gibbs on the spins", map(fits, _on_spins(rows, BOUNDS, parallel=False))
            ),
        ],
    )


# ------------------------------------------------------------------ Proposition 4.1.5


def in_pair_edge(row: Stuck) -> bool:
    """Where the statement is false for some δ: a pair of spins with a small J_0."""
    return row.clique == 2 and row.margin < PAIR_MARGIN


def judge_stuck(rows: Rows[Row]) -> Verdict:
    """The magnetisation stays at most -2 for ⌊δ/2 exp(c_stuck)⌋ steps with probability 1 - δ."""
    promised = [row for row in rows.of(Stuck) if row.steps >= 1 and not row.violated]
    cliques = [row for row in promised if row.clique > 2]
    pairs = [row for row in promised if row.clique == 2 and not in_pair_edge(row)]
    edge = [row for row in promised if in_pair_edge(row)]
    drawn = [row for row in promised if row.drawn_stayed is not None]
    return decide(
        _broken(
            "|C| ≥ 3: chance that the sum of the clique exceeds -2 within the promised number of "
            "steps, minus δ: largest",
            cliques,
        ),
        _broken(
            "|C| = 2, J_0 ≥ 0.0072: chance that the sum of the clique exceeds -2 within the "
            "promised number of steps, minus δ: largest",
            pairs,
        ),
        at_edge(
            "|C| = 2 with J_0 < 0.0072",
            _broken(
                "|C| = 2, J_0 < 0.0072: chance that the sum of the clique exceeds -2 within the "
                "promised number of steps, minus δ: largest",
                edge,
            ),
        ),
        needs=[
            at_least("cases with |C| ≥ 3 that promise a step", len(cliques), 1),
            at_least("cases with |C| = 2 and J_0 ≥ 0.0072", len(pairs), 1),
            at_least("cases with |C| = 2 and J_0 < 0.0072", len(edge), 1),
            _all_fit(
                "draws of the chains",
                (share_fits(row.drawn_stayed, row.runs, row.stayed_from_small) for row in drawn),
            ),
            _all_fit(
                "runs of independent parallel on the spins",
                map(fits, _on_spins(rows, BOUNDS, parallel=True)),
            ),
        ],
    )


def _broken(sentence: str, cases: Sequence[Stuck]) -> Check:
    return exactly(sentence, largest([1 - row.stayed - row.delta for row in cases]))


# ------------------------------------------------------------------ Corollary 4.1.1


def judge_corollary(rows: Rows[Row]) -> Verdict:
    """Both parts together fail with probability at most δ."""
    cases = [row for row in rows.of(Separated) if not row.violated]
    reached = [row.log_parallel_reached / math.log(10) for row in cases]
    return decide(
        exactly(
            "chance that N-Gibbs misses the large mode in one step, plus chance that independent "
            "parallel reaches it in M steps, minus δ: largest",
            largest([row.failure - row.delta for row in cases]),
        ),
        *_most(
            "log10 of the chance that independent parallel reaches the large mode in M steps, "
            "largest",
            reached,
        ),
        needs=[
            at_least("cases with k = N", sum(row.block == row.spins for row in cases), 1),
            at_least("cases with k < N", sum(row.block < row.spins for row in cases), 1),
            _all_fit(
                "draws of the chains",
                (share_fits(row.drawn_missed, row.runs, row.missed_from_small) for row in cases),
            ),
        ],
    )


# ------------------------------------------------------------------ Propositions 4.1.2, 4.1.3


def judge_maps(rows: Rows[Row]) -> Verdict:
    """Every map is made by a network, also when it is applied again and again."""
    maps = rows.of(MadeMap)
    return decide(
        none(
            "pairs of start and number of steps after which the network's argmax is not the map's "
            "image",
            sum(row.wrong for row in maps),
            of=sum(row.states * row.steps for row in maps),
        ),
        needs=[at_least("random maps", len(maps), 2)],
    )


def judge_products(rows: Rows[Row]) -> Verdict:
    """Parallel decoders make product laws and every product law; k-Gibbs with k > 1 is none."""
    steps, laws, zeros = rows.of(DecoderStep), rows.of(MadeLaw), rows.of(MadeZeros)
    several = [row for row in rows.of(BlockStep) if row.k > 1 and row.coupled]
    single = [row for row in rows.of(BlockStep) if row.k == 1]
    return decide(
        exactly(
            "one step of a parallel decoder: distance from a product law, largest",
            largest([row.distance for row in steps]),
        ),
        exactly(
            "a product law and the network written down for it: largest difference",
            largest([row.error for row in laws]),
        ),
        exactly(
            "a product law with zeros and its network with the tail cut off: largest difference",
            largest([row.truncated_error for row in zeros]),
        ),
        none(
            "zeros of such a law that can still be drawn",
            sum(row.zeros_left for row in zeros),
            of=sum(row.zeros for row in zeros),
        ),
        none(
            "coupled models and k > 1 for which a step of k-Gibbs is a product law",
            sum(not row.distance > EXACT for row in several),
            of=len(several),
        ),
        none(
            "coupled models and k > 1 for which a step of k-Gibbs is a product law given each "
            "block",
            sum(not row.given_block > EXACT for row in several),
            of=len(several),
        ),
        *_least(
            "k-Gibbs, k > 1: distance of a step from a product law, smallest",
            [row.distance for row in several],
        ),
        *_most(
            "k-Gibbs, k > 1: total correlation of a step, nats, largest",
            [row.correlation for row in several],
        ),
        *_most(
            "1-Gibbs given the position: distance from a product law, largest",
            [row.given_block for row in single],
        ),
        *_most(
            "1-Gibbs with its random position: distance from a product law, largest",
            [row.distance for row in single],
        ),
        needs=[
            at_least("parallel decoders", len(steps), 4),
            at_least("product laws", len(laws), 1),
            at_least("product laws with zeros", len(zeros), 1),
            at_least("coupled models and k > 1", len(several), 2),
        ],
    )
