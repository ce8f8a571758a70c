"""Are trained embeddings and value matrices block-wise by topic, and when diagonal [li, 2.1.5.2]?

The published documents, everything at learning rate 0.01, for two losses and two optimisers:

    embeddings   everything is trained (W^E tied), the matrix is E = W^E' W^E      Figure 2.1
    small        the same from small embeddings
    ridge        uniform attention, one-hot words, with L2: W^V                    Figure 2.2
    plain        the same without L2                                               Figure 2.5
    joint        one-hot words, W^K, W^Q and W^V trained                           Figure 2.6
    search       more settings without L2, to find diagonal W^V                    Figure 2.10
    theorem      gradient descent on the population loss of the theorem's own documents

One-hot runs start from W ~ N(0, 0.0005²): the published off-block spread of 0.0006 after training
leaves no room for more. Embeddings start from N(0, 1) and W from 0.0577, as in the authors' code,
or from 0.1 and 0.0005.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from triptych.core.randomness import TorchRng
from triptych.models.transformer import Transformer
from triptych.studies import topic_judges as judges
from triptych.studies.figures import Figure, Heatmap, Panel, Series
from triptych.studies.judging import rows_of, without_nan
from triptych.studies.study import Bench, Claim, Row, Rows, Scale, Study, Unit
from triptych.studies.topic_judges import PAIRS, block_row, corner, maps, pattern
from triptych.studies.trained_topics import (
    TINY,
    TopicSizes,
    Training,
    embedding_products,
    from_parameters,
    guess,
    held_out_loss,
    parameters,
    trained,
    value_matrix,
)
from triptych.theory.topics import (
    Setting,
    distance_from_optima,
    population_loss,
    ridge,
    ridge_limit,
)

NEAR_ZERO = 0.0005
DEFAULT = 0.0577  # standard deviation of PyTorch's default for a linear map of width 100
L2 = 1e-4  # a twentieth of the least eigenvalue of E y y' that is not 0
SHARED = ("loss", "optimiser", "learning_rate", "init_scale", "embedding_scale", "steps")
PATH = 20  # points of a run that are kept


@dataclass(frozen=True)
class TopicMatrices(TopicSizes):
    """Sizes.

    uniform_steps   of the runs with uniform attention, which are cheap
    embedding_steps of those that train embeddings
    steps           of those that train the attention on one-hot words
    search_steps    of those that look for diagonal value matrices
    rates           learning rates of the search
    theorem_steps   of gradient descent on the population loss, drawn topics a document
    penalties       weights of L2 there
    """

    seeds: int = 3
    uniform_steps: int = 2000
    embedding_steps: int = 2000
    steps: int = 600
    search_steps: int = 300
    rates: tuple[float, ...] = (0.003, 0.01, 0.03)
    drawn: int = 3
    theorem_steps: int = 2500
    penalties: tuple[float, ...] = (0.0, 1e-4, 1e-3)


def units(settings: TopicMatrices) -> Sequence[Unit]:
    """One per figure, loss, optimiser and seed; the search has one seed for each setting."""
    documents = settings.documents
    everything = Training(
        embedding=True, embedding_scale=1.0, init_scale=DEFAULT, steps=settings.embedding_steps
    )
    small = replace(everything, embedding_scale=0.1, init_scale=NEAR_ZERO)
    one_hot = Training(init_scale=NEAR_ZERO, steps=settings.steps)
    uniform = replace(one_hot, attention=False, steps=settings.uniform_steps)
    kinds = {
        "embeddings": everything,
        "small": small,
        "ridge": replace(uniform, l2=L2),
        "plain": uniform,
        "joint": one_hot,
    }
    found = []
    for loss, optimiser in PAIRS:
        for kind, training in kinds.items():
            chosen = replace(training, loss=loss, optimiser=optimiser)
            found += [
                Unit({"kind": kind} | parameters(documents, chosen), seed)
                for seed in range(settings.seeds)
            ]
        for rate in settings.rates:
            few = {"learning_rate": rate, "steps": settings.search_steps}
            for start in (small, replace(one_hot, init_scale=DEFAULT)):
                chosen = replace(start, loss=loss, optimiser=optimiser, **few)
                found.append(Unit({"kind": "search"} | parameters(documents, chosen), 0))
    exact = replace(uniform, loss="squared", optimiser="sgd", steps=settings.theorem_steps)
    found += [
        Unit({"kind": "theorem"} | parameters(documents, replace(exact, l2=l2)), 0)
        for l2 in settings.penalties
    ]
    return [Unit({**unit.parameters, "drawn": settings.drawn}, unit.seed) for unit in found]


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Train, and keep the statistics of the matrices; a matrix itself only for seed 0."""
    values = unit.parameters
    if values["kind"] == "theorem":
        yield _theorem(unit)
        return
    documents, training = from_parameters(values)
    rng = TorchRng(bench.rng("permutations").seed)
    kept = {max(1, round(training.steps * (i + 1) / PATH)) for i in range(PATH)}
    topic, path, initial = documents.topic_of_words(), [], {}

    def watch(step: int, net: Transformer) -> None:
        if step == 0 and training.embedding:
            start = block_row(embedding_products(net), documents, rng)
            initial.update({f"initial_{name}": value for name, value in start.items()})
        if step in kept:
            found = judges.blocks_of(value_matrix(net), topic)
            block = found.same_word + (documents.words - 1) * found.same_topic
            path.append([step, block / documents.words, found.different_topic])

    row: Row = {"kind": values["kind"], "seed": unit.seed}
    row |= {name: values[name] for name in (*SHARED, "embedding", "attention")}
    try:
        net, _ = trained(documents, training, unit.seed, watch=watch)
    except FloatingPointError:
        yield row | {"kind": "diverged", "of": values["kind"]}
        return
    value = value_matrix(net)
    row |= {f"value_{k}": v for k, v in block_row(value, documents, rng).items()}
    row |= {
        "held_out": held_out_loss(net, documents, training, 10_000 + unit.seed),
        "guess": guess(documents, training),
        "closed_form_gap": Setting(documents.topics, documents.words, 1).constants[2]
        / documents.words,
        "path": path,
    }
    if training.embedding:
        products = embedding_products(net)
        row |= {f"embedding_{k}": v for k, v in block_row(products, documents, rng).items()}
        row |= initial
        if unit.seed == 0:
            row["embedding_corner"] = corner(products)
    if unit.seed == 0:
        row["value_corner"] = corner(value)
    yield row


def _theorem(unit: Unit) -> Row:
    """Gradient descent on the exact loss, without a bias as in the theorem, from near zero.

    to_ridge    largest entry of the difference from argmin L + λ‖W‖², λ > 0
    to_limit    from the closed form for vanishing λ
    to_family   from the nearest of the optima that exist without L2
    """
    p = unit.parameters
    setting = Setting(p["topics"], p["words"], p["drawn"])
    generator = torch.Generator().manual_seed(unit.seed)
    shape = (setting.vocab, setting.vocab)
    weight = NEAR_ZERO * torch.randn(shape, generator=generator, dtype=torch.float64)
    weight.requires_grad_(True)
    rate = 0.5 / float(torch.linalg.eigvalsh(setting.moments.yy)[-1] + p["l2"])
    for _ in range(p["steps"]):
        loss = population_loss(setting, weight) + p["l2"] * weight.square().sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight -= rate * gradient
    found = weight.detach()
    away = (found - ridge(setting, p["l2"])).abs().max() if p["l2"] else None
    return {
        "kind": "theorem",
        "seed": unit.seed,
        "l2": p["l2"],
        "drawn": p["drawn"],
        "steps": p["steps"],
        "to_ridge": None if away is None else float(away),
        "to_limit": float((found - ridge_limit(setting)).abs().max()),
        "to_family": distance_from_optima(setting, found),
        "excess": float(population_loss(setting, found)) - setting.least_loss,
        "gap": setting.constants[2] / setting.words,
    }


# ------------------------------------------------------------------ pictures


_MAPS = (
    "The first 40 words by the first 40 words of one run; a topic has 10 words. Score: same-topic "
    "mean minus different-topic mean, the diagonal left out, in units of the spread between "
    "different topics, mean over runs. "
)


def embeddings_figure(rows: Rows) -> Figure:
    """W_E' W_E of four trainings, from small embeddings."""
    mine = rows_of(rows, "small")
    return Figure(
        "topic_embeddings",
        "Dot products of trained embeddings, by loss and optimiser",
        maps(mine, "embedding_corner", "embedding"),
        _MAPS + "Embeddings start as N(0, 0.01), whose dot products are a diagonal already: what "
        "training adds is what lies beside it.",
    )


def ridge_figure(rows: Rows) -> Figure:
    return Figure(
        "value_with_l2",
        "Value matrices under uniform attention, with L2",
        maps(rows_of(rows, "ridge"), "value_corner", "value"),
        _MAPS + f"The term is {L2:g} times the sum of squares of all trained parameters.",
    )


def plain_figure(rows: Rows) -> Figure:
    """W^V without L2."""
    return Figure(
        "value_without_l2",
        "Value matrices under uniform attention, without L2",
        maps(rows_of(rows, "plain"), "value_corner", "value"),
        _MAPS,
    )


def joint_figure(rows: Rows) -> Figure:
    """W^V when attention is trained too."""
    return Figure(
        "value_with_attention",
        "Value matrices when keys and queries are trained too",
        maps(rows_of(rows, "joint"), "value_corner", "value"),
        _MAPS,
    )


def growth_figure(rows: Rows) -> Figure:
    """Block and off-block means of squared loss + SGD over steps, with the published ones."""
    panels = []
    for kind, title, block, off in (
        ("plain", "uniform attention", 0.00552563, -0.00015675),
        ("joint", "attention trained too", 0.006545205, -0.0006503917),
    ):
        mine = [r for r in rows_of(rows, kind) if (r["loss"], r["optimiser"]) == ("squared", "sgd")]
        if not mine:
            continue
        path = mine[0]["path"]
        steps = [point[0] for point in path]
        end = [steps[-1]] * 2
        series = [
            Series("same topic, the diagonal counted", "ours", steps, [p[1] for p in path]),
            Series("different topics", "control", steps, [p[2] for p in path]),
            Series("published, step unknown", "published", end, [block, off], line=False),
        ]
        panels.append(Panel(series, "training step", "mean entry of the value matrix", title))
    return Figure(
        "block_growth",
        "Squared loss + SGD at 0.01: blocks grow steadily, a ninth of them negative between topics",
        panels,
        "One run. The bias learns the mean frequencies within a few hundred steps; what is left to "
        "the value matrix sums to 0 over the ten topics, so entries between topics are -1/9 of "
        "those within, whatever the step.",
    )


def theorem_figure(rows: Rows) -> Figure:
    """Gradient descent on the theorem's own documents against the closed form."""
    mine = sorted((r for r in rows_of(rows, "theorem") if r["l2"]), key=lambda r: r["l2"])
    weights = [r["l2"] for r in mine]
    return Figure(
        "closed_form_distance",
        "On the theorem's own documents gradient descent ends at the closed form as L2 vanishes",
        [
            Panel(
                [
                    Series(
                        "trained to the closed form of vanishing L2",
                        "ours",
                        weights,
                        [r["to_limit"] for r in mine],
                    ),
                    Series(
                        "height of a block in the closed form",
                        "truth",
                        weights,
                        [r["gap"] for r in mine],
                    ),
                ],
                "weight of the L2 term",
                "largest difference of an entry",
                x_log=True,
                y_log=True,
            )
        ],
        "Exact population loss of infinitely long documents of three topics of ten; no sampling.",
    )


def diagonal_figure(rows: Rows) -> Figure:
    """Diagonality of every run without L2 against what was trained, and one diagonal matrix."""
    mine = [
        r for k in ("plain", "joint", "embeddings", "small", "search") for r in rows_of(rows, k)
    ]
    groups = {
        "one-hot words": [r for r in mine if not r["embedding"]],
        "trained embeddings": [r for r in mine if r["embedding"]],
    }
    series = [
        Series(
            name,
            "ours" if name.startswith("trained") else "control",
            [r["value_diagonality"] for r in some],
            [(r["value_same_word"] - r["value_different_topic"]) / r["value_spread"] for r in some],
            line=False,
        )
        for name, some in groups.items()
        if some
    ]
    panels: list[Panel | Heatmap] = [
        Panel(
            series,
            "diagonality: 0 uniform blocks, 1 diagonal",
            "height of the diagonal in off-block spreads",
            "every run without L2",
        )
    ]
    chosen = [r for r in mine if pattern(r) == "diagonal" and r.get("value_corner")]
    if chosen:
        best = max(chosen, key=lambda r: r["value_same_word"] / r["value_spread"])
        title = f"a diagonal W^V: {judges.NAMES[best['loss']]} + {judges.NAMES[best['optimiser']]}"
        axis = "coordinate" if best["embedding"] else "word"
        panels.append(Heatmap(best["value_corner"], title, axis, axis))
    return Figure(
        "diagonal_value",
        "Value matrices are diagonal with trained embeddings, and with squared loss + Adam",
        panels,
        f"A run is called diagonal where its diagonality is at least {judges.HALF} and the "
        f"diagonal stands out by more than {judges.VISIBLE} spreads. With trained embeddings "
        "rows and columns of W^V are coordinates and not words.",
    )


_TINY = TopicMatrices(
    **TINY,
    uniform_steps=30,
    embedding_steps=20,
    steps=20,
    search_steps=10,
    rates=(0.01,),
    drawn=2,
    theorem_steps=500,
    penalties=(0.0, 1e-3, 1e-2),
)

STUDY = Study(
    name="topic_matrices",
    about="Are trained embeddings and value matrices block-wise by topic, and when diagonal?",
    settings={
        Scale.SMOKE: _TINY,
        Scale.LAPTOP: TopicMatrices(),
        Scale.PAPER: TopicMatrices(
            uniform_steps=5000, embedding_steps=24_000, steps=5000, search_steps=5000
        ),
    },
    units=units,
    run=run,
    claims=[
        Claim(name, without_nan(judge), refuted, held_by=held)
        for name, judge, refuted, held in judges.MATRIX_CLAIMS
    ],
    figures=[
        embeddings_figure,
        ridge_figure,
        plain_figure,
        joint_figure,
        growth_figure,
        theorem_figure,
        diagonal_figure,
    ],
)
