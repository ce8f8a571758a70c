"""Are trained embeddings and value matrices block-wise by topic, and when diagonal [li, 2.1.5.2]?

The published documents, everything at learning rate 0.01, for two losses and two optimisers:

    embeddings   the authors' network, everything trained: E = W^E' W^E           Figure 2.1
    tied         the same with the network as printed, tied, without LayerNorm
    ridge        uniform attention, one-hot words, with L2: W^V                   Figure 2.2
    plain        the same without L2                                              Figures 2.5, 2.10
    joint        one-hot words, W^K, W^Q and W^V trained                          Figures 2.6, 2.10
    coded        the last two with the inputs of the authors' code                the same figures
    descent      gradient descent on the population loss of the theorem's own documents

One-hot runs start from W ~ N(0, 0.0005²): the published off-block spread of 0.0006 after training
leaves no room for more. Embeddings of the authors' network start from N(0, 1) and its matrices from
0.0577, as in their code; it is read at its least held-out loss. Those of the printed one start from
1 and 0.0577, from 0.1 and 0.0005, or all from 0.02 as in BERT. One-hot inputs have length 1 in
print. The code normalises them, which makes them about √V = 10 long, puts a start token before a
document, and lets nobody attend to the words that are asked about. The L2 term is large enough to
change a matrix within the steps: with SGD it takes 1 / (2 λ rate) = 5000 of them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.transformer import Transformer
from triptych.studies.api.study import Bench, Scale, Study
from triptych.studies.topics.shared.blocks import Corner, columns, corner, statistics
from triptych.studies.topics.shared.measures import (
    embedding_products,
    guess,
    held_out_loss,
    held_out_meter,
    norms,
    value_matrix,
)
from triptych.studies.topics.shared.networks import (
    DEFAULT,
    PAIRS,
    TINY,
    Documents,
    Optimiser,
    TopicSettings,
    TopicUnit,
    Training,
    best_by_held_out_loss,
    network,
    trained,
)
from triptych.studies.topics.topic_matrices.figures import FIGURES
from triptych.studies.topics.topic_matrices.judge import CLAIMS
from triptych.studies.topics.topic_matrices.rows import (
    CODED,
    Descended,
    Diverged,
    Row,
    TiedEmbeddings,
    TrainedEmbeddings,
    TrainedValue,
    ValueKind,
)
from triptych.theory.topics.uniform_attention import (
    Setting,
    blocks_of,
    distance_from_optima,
    population_loss,
    ridge,
    ridge_limit,
)
from triptych.training.objectives import LossName

NEAR_ZERO = 0.0005
BERT = 0.02  # standard deviation of every matrix of BERT at the start
TIED_SCALES = {1.0: DEFAULT, 0.1: NEAR_ZERO, BERT: BERT}  # of W_E and of the other matrices
PATH = 40  # points of a run that are kept


@dataclass(frozen=True, kw_only=True)
class TopicMatrices(TopicSettings):
    """Sizes.

    uniform_steps   of the runs with uniform attention, which are cheap
    joint_steps     of those that train the attention on one-hot words
    l2              weight of ‖θ‖² in Figure 2.2
    embedding_seeds, embedding_steps
                    runs of a pair that train everything, and their steps at most
    every, patience steps between two looks at the held-out loss, and steps after which the run
                    ends if it has not fallen
    tied_steps      of the network as printed; 0 leaves it out
    theorem_steps   of gradient descent on the population loss, drawn topics a document
    penalties       weights of L2 there
    """

    seeds: int = 5
    uniform_steps: int = 2000
    joint_steps: int = 1000
    l2: float = 0.01
    embedding_seeds: int = 3
    embedding_steps: int = 3000
    every: int = 500
    patience: int = 1000
    tied_steps: int = 0
    drawn: int = 3
    theorem_steps: int = 2500
    penalties: tuple[float, ...] = (0.0, 1e-4, 1e-3)


@dataclass(frozen=True, kw_only=True)
class TrainEmbeddings(TopicUnit):
    """The authors' network, until its held-out loss stops falling."""

    loss: LossName
    optimiser: Optimiser
    embedding_steps: int
    every: int
    patience: int


@dataclass(frozen=True, kw_only=True)
class TrainTied(TopicUnit):
    """The network as printed."""

    loss: LossName
    optimiser: Optimiser
    embedding_scale: float
    tied_steps: int


@dataclass(frozen=True, kw_only=True)
class TrainValue(TopicUnit):
    """One-hot words."""

    figure: ValueKind
    loss: LossName
    optimiser: Optimiser
    l2: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class Descend(TopicUnit):
    """Exact gradients on the theorem's documents."""

    drawn: int
    l2: float
    theorem_steps: int


MatrixUnit = TrainEmbeddings | TrainTied | TrainValue | Descend


def units(settings: TopicMatrices) -> Sequence[MatrixUnit]:
    """One per figure, loss, optimiser and seed; the network as printed always begins at seed 0."""
    if settings.l2 <= 0:
        raise UserError(f"l2 is {settings.l2}; Figure 2.2 needs a weight above 0")
    kinds: dict[ValueKind, tuple[float, int]] = {
        "ridge": (settings.l2, settings.uniform_steps),
        "plain": (0.0, settings.uniform_steps),
        "joint": (0.0, settings.joint_steps),
    }
    kinds |= {CODED[name]: kinds[name] for name in CODED}
    found: list[MatrixUnit] = []
    for loss, optimiser in PAIRS:
        for number, seed in enumerate(settings.run_seeds):
            pair = {"loss": loss, "optimiser": optimiser, "seed": seed}
            if number < settings.embedding_seeds:
                found.append(TrainEmbeddings.of(settings, **pair))
            found += [
                TrainValue.of(settings, figure=figure, l2=l2, steps=steps, **pair)
                for figure, (l2, steps) in kinds.items()
            ]
        if settings.tied_steps:
            found += [
                TrainTied.of(
                    settings, loss=loss, optimiser=optimiser, embedding_scale=scale, seed=seed
                )
                for scale in TIED_SCALES
                for seed in range(settings.seeds if scale == BERT else settings.embedding_seeds)
            ]
    found += [Descend.of(settings, l2=l2, seed=0) for l2 in settings.penalties]
    return found


def run(unit: MatrixUnit, bench: Bench) -> Iterable[Row]:
    """Train, and keep the statistics of the matrices; a matrix itself only of the first seed."""
    rng = TorchRng(bench.rng("permutations").seed)
    match unit:
        case TrainEmbeddings():
            yield _embeddings(unit, rng)
        case TrainTied():
            yield _tied(unit, rng)
        case TrainValue():
            yield _value(unit, rng)
        case Descend():
            yield _descended(unit)


def _picture(matrix: Float[Tensor, "V V"], unit: TopicUnit) -> Corner | None:
    """A corner of the matrix for one seed in a hundred: a figure shows one matrix."""
    return corner(matrix, unit.documents.mask_token) if unit.seed % 100 == 0 else None


def _embeddings(unit: TrainEmbeddings, rng: TorchRng) -> TrainedEmbeddings | Diverged:
    documents = unit.documents
    training = Training(
        embedding=True,
        authors=True,
        embedding_scale=1.0,
        init_scale=DEFAULT,
        start=True,
        blind=True,
        loss=unit.loss,
        optimiser=unit.optimiser,
        steps=unit.embedding_steps,
    )
    before = embedding_products(network(documents, training, unit.seed))
    first = blocks_of(before, documents.topic_of_words())
    try:
        best = best_by_held_out_loss(
            documents,
            training,
            unit.seed,
            every=unit.every,
            patience=unit.patience,
            look=embedding_products,
            held_out_loss=held_out_meter(documents, training, 10_000 + unit.seed),
        )
    except FloatingPointError:
        return Diverged("embeddings", unit.seed, unit.loss, unit.optimiser, 1.0)
    return TrainedEmbeddings(
        seed=unit.seed,
        loss=unit.loss,
        optimiser=unit.optimiser,
        finished=best.finished,
        step=best.step,
        held_out=best.loss,
        guess=guess(documents, training),
        initial_height=(first.same_word - first.different_topic) / first.spread,
        corner=_picture(best.found, unit),
        **columns(statistics(best.found, documents, rng)),
    )


def _tied(unit: TrainTied, rng: TorchRng) -> TiedEmbeddings | Diverged:
    documents = unit.documents
    training = Training(
        embedding=True,
        embedding_scale=unit.embedding_scale,
        init_scale=TIED_SCALES[unit.embedding_scale],
        loss=unit.loss,
        optimiser=unit.optimiser,
        steps=unit.tied_steps,
    )
    try:
        net, _ = trained(documents, training, unit.seed)
    except FloatingPointError:
        return Diverged("tied", unit.seed, unit.loss, unit.optimiser, unit.embedding_scale)
    products = embedding_products(net)
    value = blocks_of(value_matrix(net), documents.topic_of_words())
    return TiedEmbeddings(
        seed=unit.seed,
        loss=unit.loss,
        optimiser=unit.optimiser,
        embedding_scale=unit.embedding_scale,
        steps=unit.tied_steps,
        held_out=held_out_loss(net, documents, training, 10_000 + unit.seed),
        value_diagonality=value.diagonality,
        value_height=(value.same_word - value.different_topic) / value.spread,
        corner=_picture(products, unit),
        **columns(statistics(products, documents, rng)),
    )


def _value(unit: TrainValue, rng: TorchRng) -> TrainedValue | Diverged:
    documents, coded = unit.documents, unit.figure in CODED.values()
    training = Training(
        attention=unit.figure in ("joint", CODED["joint"]),
        start=coded,
        blind=coded,
        input_length=math.sqrt(documents.mask_token + 2) if coded else 1.0,
        init_scale=NEAR_ZERO,
        loss=unit.loss,
        optimiser=unit.optimiser,
        l2=unit.l2,
        steps=unit.steps,
    )
    power = 2 if coded else 1  # long inputs learn faster: more of the first steps are kept
    kept = {max(1, round(unit.steps * (i / PATH) ** power)) for i in range(1, PATH + 1)} | {0}
    path: list[tuple[int, float, float, float]] = []

    def watch(step: int, net: Transformer) -> None:
        if step in kept:
            path.append((step, *_on_the_way(net, documents)))

    try:
        net, _ = trained(documents, training, unit.seed, watch=watch)
    except FloatingPointError:
        return Diverged(unit.figure, unit.seed, unit.loss, unit.optimiser, None)
    steps, block, off, spread = zip(*path, strict=True)
    value = value_matrix(net)
    return TrainedValue(
        figure=unit.figure,
        seed=unit.seed,
        loss=unit.loss,
        optimiser=unit.optimiser,
        l2=unit.l2,
        steps=unit.steps,
        held_out=held_out_loss(net, documents, training, 10_000 + unit.seed),
        norm=norms(net).value,
        path_steps=steps,
        path_block=block,
        path_off=off,
        path_spread=spread,
        corner=_picture(value, unit),
        **columns(statistics(value, documents, rng)),
    )


def _on_the_way(net: Transformer, documents: Documents) -> tuple[float, float, float]:
    """Block mean with the diagonal, mean and spread between topics."""
    found = blocks_of(value_matrix(net), documents.topic_of_words())
    block = (found.same_word + (documents.words - 1) * found.same_topic) / documents.words
    return block, found.different_topic, found.spread


def _descended(unit: Descend) -> Descended:
    setting = Setting(unit.topics, unit.words, unit.drawn)
    generator = torch.Generator().manual_seed(unit.seed)
    shape = (setting.vocab, setting.vocab)
    weight = NEAR_ZERO * torch.randn(shape, generator=generator, dtype=torch.float64)
    weight.requires_grad_(True)
    rate = 0.5 / float(torch.linalg.eigvalsh(setting.moments.yy)[-1] + unit.l2)
    for _ in range(unit.theorem_steps):
        loss = population_loss(setting, weight) + unit.l2 * weight.square().sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight -= rate * gradient
    found = weight.detach()
    away = float((found - ridge(setting, unit.l2)).abs().max()) if unit.l2 else None
    return Descended(
        seed=unit.seed,
        l2=unit.l2,
        drawn=unit.drawn,
        steps=unit.theorem_steps,
        to_ridge=away,
        to_limit=float((found - ridge_limit(setting)).abs().max()),
        to_family=distance_from_optima(setting, found),
        excess=float(population_loss(setting, found)) - setting.least_loss,
        gap=setting.constants[2] / setting.words,
    )


_TINY = TopicMatrices(
    **TINY,
    first_seed=0,
    uniform_steps=30,
    joint_steps=20,
    embedding_seeds=1,
    embedding_steps=20,
    every=5,
    patience=10,
    tied_steps=20,
    drawn=2,
    theorem_steps=500,
    penalties=(0.0, 1e-3, 1e-2),
)

STUDY = Study(
    name="topic_matrices",
    question="Are trained embeddings and value matrices block-wise by topic, and when diagonal?",
    settings={
        Scale.SMOKE: _TINY,
        Scale.LAPTOP: TopicMatrices(),
        Scale.PAPER: TopicMatrices(
            uniform_steps=5000,
            joint_steps=5000,
            embedding_steps=20_000,
            every=1000,
            patience=2000,
            tied_steps=24_000,
        ),
    },
    units=units,
    run=run,
    rows=(TrainedEmbeddings, TiedEmbeddings, TrainedValue, Diverged, Descended),
    claims=CLAIMS,
    figures=FIGURES,
    revision=2,
)
