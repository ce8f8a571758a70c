"""What one layer of attention learns about topics, in closed form [li, 2.1.3, 2.1.4, 2.1.5.5].

Everything is exact: the loss over infinitely long documents is a quadratic of the matrices and a
rational function of the attention weights. The only randomness is in where training starts. The
judges are in `topic_theory_judges`; the figures, and the judges of the two landscapes, in
`topic_theory_figures`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import scipy.optimize
import torch
from jaxtyping import Float
from torch import Tensor

from triptych.studies import topic_theory_figures as figures
from triptych.studies import topic_theory_judges as judges
from triptych.studies.study import Bench, Claim, Row, Scale, Settings, Study, Unit
from triptych.theory import topic_attention, topics
from triptych.theory.topic_attention import Reading, Value, attention_loss
from triptych.theory.topics import Setting

MASKINGS = {  # p_m, p_c, p_r
    "as in BERT": (0.15, 0.1, 0.1),
    "many masked": (0.45, 0.05, 0.05),
    "many kept and replaced": (0.45, 0.4, 0.4),
    "most masked": (0.8, 0.1, 0.1),  # the two below are outside Assumption 2.1.4
    "mostly replaced": (0.15, 0.02, 0.5),
}
PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
SHARES = (0.01, 0.05, 0.1, 0.2)  # of the range of the loss: how far from the least still counts
SHOWN = {"topics": 4, "words": 3, "drawn": 2, "masking": "as in BERT"}  # the E of the picture
PER_DECADE = 4  # points of the pictures; edges are found on a finer grid


@dataclass(frozen=True)
class TopicTheory(Settings):
    """Sizes.

    seeds       starts of training the embeddings
    topics      T of the optima, with every τ from 1 to T;  words: v of them
    maskings    names of p_m, p_c, p_r within the assumptions;  outside: others
    growing     T of the attention weights, τ = T^exponent;  many_words: v there
    dense       τ as shares of T, where nothing is promised;  few_words: v, likewise
    drawn       τ of the landscapes, T = 100, v = 300
    """

    seeds: int = 5
    topics: tuple[int, ...] = (2, 3, 5, 8)
    words: tuple[int, ...] = (1, 2, 4)
    maskings: tuple[str, ...] = ("as in BERT", "many masked", "many kept and replaced")
    growing: tuple[int, ...] = (100, 10_000, 100_000, 1_000_000)
    exponents: tuple[float, ...] = (0.25, 0.5, 0.75)
    many_words: tuple[int, ...] = (10, 17, 50, 300)
    dense: tuple[float, ...] = (0.2, 0.5, 0.9)
    outside: tuple[str, ...] = ("most masked", "mostly replaced")
    few_words: tuple[int, ...] = (2, 4)
    drawn: tuple[int, ...] = (20, 40, 60, 80)


def units(settings: TopicTheory) -> Sequence[Unit]:
    """One per statement and masking, and per T, v or τ."""
    wrong = [name for name in (*settings.maskings, *settings.outside) if name not in MASKINGS]
    if wrong:
        raise ValueError(f"maskings are {', '.join(MASKINGS)}; given {', '.join(wrong)}")
    found = []
    for masking in settings.maskings:
        for count in settings.topics:
            common = {"masking": masking, "topics": count, "words": settings.words}
            found.append(Unit({"kind": "optima", **common}, 0))
        for sizes in ((3, 2, 1), (4, 3, 2), (5, 2, 3)):
            named = dict(zip(("topics", "words", "drawn"), sizes, strict=True))
            common = {"kind": "embedding", "masking": masking, **named}
            found += [Unit(common, seed) for seed in range(settings.seeds)]
    pairs = [(m, v) for m in settings.maskings for v in settings.many_words]
    pairs += [(m, v) for m in settings.outside for v in settings.many_words[-1:]]
    pairs += [(settings.maskings[0], v) for v in settings.few_words]
    for masking, v in pairs:
        common = {"kind": "attention", "masking": masking, "words": v, "topics": settings.growing}
        grown = {"exponents": settings.exponents, "dense": settings.dense}
        found.append(Unit(common | grown, 0))
    for name in ("diagonal", "blocks"):
        found += [Unit({"kind": "landscape", "value": name, "drawn": d}, 0) for d in settings.drawn]
    return found


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Dispatch on the statement; every row carries its kind and the seed."""
    gather: dict[str, Callable[[Unit, torch.Generator], Iterable[Row]]] = {
        "optima": _optima,
        "embedding": _embedding,
        "attention": _attention,
        "landscape": _landscape,
    }
    kind = unit.parameters["kind"]
    generator = torch.Generator().manual_seed(bench.rng("topics").seed)
    for row in gather[kind](unit, generator):
        yield {"kind": kind, "seed": unit.seed, **row}


# ------------------------------------------------------------------ uniform attention


def _optima(unit: Unit, generator: torch.Generator) -> Iterable[Row]:
    """The family of Lemma 2.1.1 against the minimisers of the loss; the limit of ridge."""
    count, masking = unit.parameters["topics"], unit.parameters["masking"]
    for v in unit.parameters["words"]:
        for drawn in range(1, count + 1):
            setting = Setting(count, v, drawn, *MASKINGS[masking])
            common = {"masking": masking, "topics": count, "words": v, "drawn": drawn}
            yield {**common, **_family(setting, generator), **_ridges(setting)}


def _family(setting: Setting, generator: torch.Generator) -> Row:
    """Random members of the family, and where gradient flow from a random start ends."""
    vocab, v, moments = setting.vocab, setting.words, setting.moments
    member = topics.optimum(setting, _noise(generator, vocab), _noise(generator, vocab, v))
    apart = _noise(generator, vocab, setting.topics, v)
    member[:, :-1] += (apart - apart.mean(-1, keepdim=True)).flatten(1)
    values, axes = torch.linalg.eigh(moments.yy)
    null = axes[:, values < 1e-12 * values[-1]]
    solution = moments.py @ torch.linalg.pinv(moments.yy, hermitian=True)
    reached = solution + _noise(generator, vocab, vocab) @ null @ null.T
    free, family = topics.degrees_of_freedom(setting)
    return {
        "free": float(free),
        "family": float(family),
        "loss_error": abs(float(topics.population_loss(setting, member)) - setting.least_loss),
        "reached_error": abs(float(topics.population_loss(setting, reached)) - setting.least_loss),
        "distance": topics.distance_from_optima(setting, reached),
        "from_least_norm": _apart(reached, solution),
        "least_norm_error": _apart(solution, topics.printed_ridge_limit(setting)),
    }


def _ridges(setting: Setting) -> Row:
    limit, last = topics.printed_ridge_limit(setting), PENALTIES[-1]
    straight = 2 * topics.ridge(setting, last) - topics.ridge(setting, 2 * last)
    return {
        "penalties": list(PENALTIES),
        "ridge_errors": [_apart(topics.ridge(setting, p), limit) for p in PENALTIES],
        "limit_error": _apart(straight, limit),
        "c1": setting.constants[0],
    }


def _apart(first: Float[Tensor, "V V"], second: Float[Tensor, "V V"]) -> float:
    return float((first - second).abs().max())


def _noise(generator: torch.Generator, *shape: int) -> Float[Tensor, "..."]:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


# ------------------------------------------------------------------ embeddings


def _embedding(unit: Unit, generator: torch.Generator) -> Iterable[Row]:
    """W_E trained from a random start, with the bias on the words alone and on the mask too."""
    sizes = {name: unit.parameters[name] for name in ("topics", "words", "drawn")}
    masking = unit.parameters["masking"]
    setting = Setting(sizes["topics"], sizes["words"], sizes["drawn"], *MASKINGS[masking])
    start = 0.5 * _noise(generator, setting.vocab, setting.vocab)
    c1, c2, c3 = setting.constants
    eye = c3 * torch.eye(setting.vocab, dtype=torch.float64)
    example = topics.population_loss(setting, eye, topics.embedding_bias(setting))
    for where in ("words", "mask too"):
        bias = topics.embedding_bias(setting)
        if where == "mask too":
            bias[-1] = bias[0]
        products, loss = trained_products(setting, bias, start)
        moved = topics.absorbed_bias(setting, products)
        printed = topics.distance_from_optima(setting, moved)
        if where == "mask too":
            moved[-1, -1] -= c1
        u = topics.fitted_constants(setting, moved)
        of_topics = u[:-1].reshape(setting.topics, setting.words)
        level = -float(u[-1]) / c2
        row: Row = {
            **sizes,
            "masking": masking,
            "bias": where,
            "excess": loss - setting.least_loss,
            "violation": printed,
            "corrected": topics.distance_from_optima(setting, moved),
            "mask_off": float(products[-1, -1] + c2 * u[-1]),
            "c1": c1,
            "least_eigenvalue": float(torch.linalg.eigvalsh(products).min()),
            "level": level,
            "topic_means": of_topics.mean(1).tolist(),
            "deviation": float((of_topics - of_topics.mean(1, keepdim=True)).abs().max()),
            "example_excess": float(example) - setting.least_loss,
        }
        if where == "words" and unit.seed == 0 and SHOWN.items() <= unit.parameters.items():
            row["matrix"] = [[round(x, 4) for x in line] for line in products.tolist()]
        yield row


def trained_products(
    setting: Setting, bias: Float[Tensor, " V"], start: Float[Tensor, "V V"]
) -> tuple[Float[Tensor, "V V"], float]:
    """E = W_Eᵀ W_E after training W_E on the exact loss with L-BFGS, and the loss.

    Worked value: W_E is square, so the least loss 1 - 1/(τ v) is reached.
    """

    def loss_at(x: np.ndarray) -> tuple[float, np.ndarray]:
        weight = torch.from_numpy(x).reshape(start.shape).requires_grad_()
        loss = topics.population_loss(setting, weight.T @ weight, bias)
        gradient = torch.autograd.grad(loss, weight)[0]
        return float(loss.detach()), gradient.reshape(-1).numpy()

    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 0.0, "gtol": 1e-13, "maxcor": 50}
    found: Any = scipy.optimize.minimize(
        loss_at, start.reshape(-1).numpy(), jac=True, method="L-BFGS-B", options=options
    )
    weight = torch.from_numpy(found.x).reshape(start.shape)
    return weight.T @ weight, float(found.fun)


# ------------------------------------------------------------------ attention weights


def _attention(unit: Unit, generator: torch.Generator) -> Iterable[Row]:
    """The best weights for both matrices: documents of few topics (τ = T^a), and of many."""
    sizes, masking = unit.parameters["topics"], unit.parameters["masking"]
    drawn = [(t, round(t**a), a, True) for t in sizes for a in unit.parameters["exponents"]]
    drawn += [(t, round(t * s), s, False) for t in sizes[:2] for s in unit.parameters["dense"]]
    for count, tau, rate, sparse in drawn:
        setting = Setting(count, unit.parameters["words"], tau, *MASKINGS[masking])
        for reading in get_args(Reading):
            yield {
                "masking": masking,
                "words": setting.words,
                "topics": count,
                "drawn": tau,
                "sparse": sparse,
                "rate": rate,
                "reading": reading,
                "assumed": topic_attention.within_assumptions(setting),
                **best_weights(setting, reading),
            }


def best_weights(setting: Setting, reading: Reading) -> Row:
    """The minimisers for both matrices, what the theorems say of them, and their exact limits."""
    blocks = topic_attention.minimiser(setting, Value.blocks(setting), reading)
    diagonal = topic_attention.minimiser(setting, Value.diagonal(setting), reading)
    bounds = topic_attention.bounds(setting)
    a, seen = setting.left, 1 - setting.masked
    return {
        "gamma": blocks.gamma,
        "gamma_low": bounds.lambda_1 * (setting.drawn - 1),
        "gamma_proved": seen * (2 * a - 1) / (2 * a) * (setting.drawn - 1),
        "gamma_high": bounds.lambda_2 * setting.topics,
        "alpha": diagonal.alpha,
        "beta": diagonal.beta,
        "beta_low": bounds.lambda_3 * setting.drawn,
        "beta_high": bounds.lambda_4 * setting.topics,
        "ratio": bounds.lambda_5,
        "limit": topic_attention.limit_per_topic(setting, reading),
    }


def _landscape(unit: Unit, generator: torch.Generator) -> Iterable[Row]:
    """The loss over (α, β) in 1e-4 .. 1e7, T = 100, v = 300, masking as in BERT."""
    setting = Setting(100, 300, unit.parameters["drawn"], *MASKINGS["as in BERT"])
    name = unit.parameters["value"]
    value = getattr(Value, name)(setting)
    for reading in get_args(Reading):
        found = topic_attention.minimiser(setting, value, reading)
        row: Row = {
            "value": name,
            "drawn": setting.drawn,
            "reading": reading,
            "shares": list(SHARES),
            "alpha": found.alpha,
            "beta": found.beta,
            "gamma": found.gamma,
            "ratio": topic_attention.bounds(setting).lambda_5,
            **regions(setting, value, reading),
        }
        if reading == "printed":
            axis = torch.logspace(-4, 7, 11 * PER_DECADE + 1, dtype=torch.float64)
            table = attention_loss(setting, value, axis[None], axis.flip(0)[:, None], reading)
            share = (table - table.min()) / (table.max() - table.min())
            row["picture"] = [[round(x, 3) for x in line] for line in share.tolist()]
        yield row


def regions(setting: Setting, value: Value, reading: Reading) -> Row:
    """Where the loss is within a share of its range of the least, on a grid of 111 by 2201.

    edges[k]    from where to where β (for uniform blocks γ) lies there, for the k-th share
    steepest[k] the largest α/β there
    corner[k]   of the blocks' region: all γ in an interval and no other, with two arms that reach
                α = 1e-4 and β = 1e-4; strays counts the points of the grid that say otherwise
    """
    coarse = torch.logspace(-4, 7, 111, dtype=torch.float64)
    fine = torch.logspace(-4, 7, 2201, dtype=torch.float64)
    table = attention_loss(setting, value, coarse[:, None], fine[None], reading)
    least, most = float(table.min()), float(table.max())
    v = setting.words
    gamma = (v - 1) / v * coarse[:, None] + fine[None] / v
    place = gamma if value.same_word == value.same_topic else fine.expand_as(table)
    edges, steepest, strays, arms = [], [], [], []
    for share in SHARES:
        near = table <= least + share * (most - least)
        low, high = float(place[near].min()), float(place[near].max())
        edges.append([low, high])
        steepest.append(float((coarse[:, None] / fine[None])[near].max()))
        strays.append(int((near != ((place >= low) & (place <= high))).sum()))
        arms.append(bool(near[0].any() and near[:, 0].any()))
    return {
        "edges": edges,
        "steepest": steepest,
        "strays": float(max(strays)),
        "arms": all(arms),
        "least": least,
        "most": most,
    }


STUDY = Study(
    name="topic_theory",
    about="What does one layer of attention learn about topics, in closed form?",
    settings={
        Scale.SMOKE: TopicTheory(
            seeds=2,
            topics=(2, 4),
            words=(1, 2),
            maskings=("as in BERT",),
            growing=(100, 10_000),
            exponents=(0.5,),
            many_words=(10,),
            dense=(),
            outside=(),
            few_words=(),
            drawn=(20, 80),
        ),
        Scale.LAPTOP: TopicTheory(),
        Scale.PAPER: TopicTheory(
            seeds=20,
            topics=(2, 3, 4, 5, 8, 10, 16),
            words=(1, 2, 3, 4, 10),
            growing=(100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000),
            exponents=(0.2, 0.25, 0.4, 0.5, 0.6, 0.75, 0.8),
        ),
    },
    units=units,
    run=run,
    claims=[
        Claim(name, judges.judge_family, judges.FAMILY_REFUTED, held_by=judges.FAMILY_HELD)
        for name in ("li.lem-2.1.1", "li.thm-2.1.4")
    ]
    + [
        Claim(
            "li.thm-2.1.1",
            judges.judge_embedding,
            judges.EMBEDDING_REFUTED,
            held_by=judges.EMBEDDING_HELD,
        ),
        Claim("li.thm-2.1.2", judges.judge_ridge, judges.RIDGE_REFUTED, held_by=judges.RIDGE_HELD),
        Claim(
            "li.thm-2.1.3", judges.judge_blocks, judges.BLOCKS_REFUTED, held_by=judges.WEIGHTS_HELD
        ),
        Claim(
            "li.thm-2.1.5",
            judges.judge_diagonal,
            judges.DIAGONAL_REFUTED,
            held_by=judges.WEIGHTS_HELD,
        ),
        Claim(
            "li.fig-2.7",
            figures.judge_diagonal_picture,
            figures.DIAGONAL_PICTURE_REFUTED,
            held_by=figures.DIAGONAL_PICTURE_HELD,
        ),
        Claim(
            "li.fig-2.8",
            figures.judge_blocks_picture,
            figures.BLOCKS_PICTURE_REFUTED,
            held_by=figures.BLOCKS_PICTURE_HELD,
        ),
    ],
    figures=[
        figures.family_figure,
        figures.ridge_figure,
        figures.embedding_figure,
        figures.weights_figure,
        figures.diagonal_figure,
        figures.blocks_figure,
    ],
)
