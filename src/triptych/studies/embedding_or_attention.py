"""How much is lost when only the embedding, or only the attention, may learn [li, 2.1.3, 2.1.4.2]?

Cross-entropy on held-out documents of networks of which a part is trained:

    embedding    W^E alone, tied; uniform attention, W^V = I
    value        W^V alone; uniform attention, one-hot words
    attention    W^K, W^Q and W^V; one-hot words
    everything   all of it

The source says that the first is "only slightly worse" than the last, and the second "only slightly
greater" than the third. When every selected word is masked (p_c = p_r = 0) the exact conditional is
known, and what a network loses is its loss minus the exact one on the same documents. With the
published masking the words that are kept or replaced can be told from the rest, and the optimum is
lower; the exact loss for masks is then a reference only.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from triptych.core.estimates import mean
from triptych.studies.figures import Figure, Panel, Series
from triptych.studies.judging import rows_of
from triptych.studies.study import Bench, Row, Rows, Scale, Study, Unit
from triptych.studies.topic_matrices import DEFAULT
from triptych.studies.trained_topics import (
    TINY,
    Documents,
    TopicSizes,
    Training,
    exact_loss,
    from_parameters,
    held_out_loss,
    parameters,
    trained,
)

PARTS = ("embedding", "value", "attention", "everything")


@dataclass(frozen=True)
class EmbeddingOrAttention(TopicSizes):
    """Sizes; every part is trained with every rate, and its best mean counts."""

    seeds: int = 3
    steps: int = 2500
    rates: tuple[float, ...] = (0.003, 0.01)
    held_out: int = 4000


def trainings(documents: Documents, rate: float, steps: int) -> dict[str, Training]:
    """What is trained in each part; one-hot words are √V long, so that the rates suit them."""
    one_hot = Training(
        learning_rate=rate,
        steps=steps,
        init_scale=DEFAULT,
        input_length=math.sqrt(documents.mask_token + 1),
    )
    everything = replace(one_hot, embedding=True, embedding_scale=1.0, input_length=1.0)
    return {
        "embedding": replace(everything, attention=False, value=False, embedding_scale=0.1),
        "value": replace(one_hot, attention=False),
        "attention": one_hot,
        "everything": everything,
    }


def units(settings: EmbeddingOrAttention) -> Sequence[Unit]:
    """One per part, masking, rate and seed."""
    published = settings.documents
    return [
        Unit(
            {"part": part, "held_out": settings.held_out} | parameters(documents, training),
            seed,
        )
        for documents in (replace(published, p_c=0.0, p_r=0.0), published)
        for rate in settings.rates
        for part, training in trainings(documents, rate, settings.steps).items()
        for seed in range(settings.seeds)
    ]


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Train, and compare with the exact conditional on documents that nobody was trained on."""
    p = unit.parameters
    documents, training = from_parameters(p)
    net, _ = trained(documents, training, unit.seed)
    masked = replace(documents, p_c=0.0, p_r=0.0)
    seed = 10_000 + unit.seed
    yield {
        "kind": "loss",
        "part": p["part"],
        "masking": "all masked" if documents == masked else "published",
        "learning_rate": training.learning_rate,
        "seed": unit.seed,
        "loss": held_out_loss(net, documents, training, seed, p["held_out"]),
        "exact": exact_loss(masked, "cross_entropy", seed, p["held_out"]),
        "guess": math.log(documents.mask_token),
    }


def best(rows: Rows, part: str, masking: str) -> list[Row]:
    """The runs of a part at the learning rate whose mean loss is least."""
    mine = [r for r in rows_of(rows, "loss") if (r["part"], r["masking"]) == (part, masking)]
    by_rate: dict[float, list[Row]] = {}
    for row in mine:
        by_rate.setdefault(row["learning_rate"], []).append(row)
    return min(
        by_rate.values(), key=lambda some: sum(r["loss"] for r in some) / len(some), default=[]
    )


def excess_figure(rows: Rows) -> Figure:
    """Loss minus the exact one, by what is trained, for both maskings."""
    panels = []
    for masking, label in (
        ("all masked", "every selected word is masked"),
        ("published", "published masking: 10 % kept, 10 % replaced"),
    ):
        places, found = [], []
        for place, part in enumerate(PARTS, 1):
            of = [row["loss"] - row["exact"] for row in best(rows, part, masking)]
            if of:
                places.append(place)
                found.append(mean(of))
        low = [e.low if e.n > 1 else e.value for e in found]
        high = [e.high if e.n > 1 else e.value for e in found]
        values = [e.value for e in found]
        series = [
            Series("trained", "ours", places, values, low, high, line=False),
            Series("exact conditional given masks", "truth", (1, len(PARTS)), (0, 0)),
        ]
        axis = ", ".join(f"{place} {part}" for place, part in enumerate(PARTS, 1))
        panels.append(Panel(series, axis, "nats a word above the exact conditional", label))
    return Figure(
        "embedding_or_attention",
        "What is lost when only the embedding, or only the attention, learns",
        panels,
        "Means over runs with 95 % intervals, each part at its better learning rate. The exact "
        "conditional is the least possible where every selected word is masked; with the published "
        "masking a network can also use a word that was kept, so it can go below.",
    )


STUDY = Study(
    name="embedding_or_attention",
    about="How much is lost when only the embedding, or only the attention, may learn topics?",
    settings={
        Scale.SMOKE: EmbeddingOrAttention(
            **TINY,
            steps=20,
            rates=(0.01,),
            held_out=100,
        ),
        Scale.LAPTOP: EmbeddingOrAttention(),
        Scale.PAPER: EmbeddingOrAttention(seeds=5, steps=5000, rates=(0.001, 0.003, 0.01)),
    },
    units=units,
    run=run,
    figures=[excess_figure],
)
