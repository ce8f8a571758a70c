"""Pictures of what the trap is made of, as figures."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from triptych.core.validation import UserError
from triptych.lab.results.figure_files import write_figure
from triptych.lab.traps.explicit import RATIO, Design, Look, Maker, head_scores
from triptych.lab.traps.truth import LENGTH, Q, Sentences, measure
from triptych.models.constructions.balanced import balanced
from triptych.structures.brackets.dyck import Dyck
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series, SeriesKind
from triptych.theory.brackets import pumping

TYPES, MAX_DEPTH = 2, 3
WORD = "[[[]]]((()))"
PAIRS_INSERTED = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
TESTED, TEST_SEED = 40, 10_000


def figures() -> list[Figure]:
    """All pictures of docs/attention-is-not-explanation.md."""
    return [different_patterns(), same_attention(), forgetting()]


def write_pictures(folder: Path) -> list[Path]:
    """An SVG file for each figure, on a white ground so that it reads on light and dark pages."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for figure in figures():
            written += write_figure(
                figure, folder / figure.name, formats=("svg",), themes=("light",)
            )
    except OSError as error:
        raise UserError(
            f"{str(folder)!r} cannot be written to: {error.strerror}", parameter="folder"
        ) from error
    return written


def different_patterns() -> Figure:
    """Four networks that predict exactly, and attend quite differently."""
    generator = torch.Generator().manual_seed(0)
    word = Dyck.prefixes(TYPES, MAX_DEPTH, len(WORD), q=Q).tokens(WORD)
    looks: Sequence[tuple[Look, str]] = (
        ("stack", "attends like a stack"),
        ("outermost", "attends to the outermost bracket"),
        ("start", "attends to the start token"),
        ("random", "attends at random"),
    )
    maps = []
    for look, title in looks:
        scores = head_scores(TYPES, MAX_DEPTH, Design(look, RATIO), generator)
        model = balanced(TYPES, MAX_DEPTH, LENGTH, q=Q, scores=scores)
        maps.append(_pattern(model.pattern(word)[0], title))
    return Figure(
        "trap-different-patterns",
        "Four balanced networks that predict the next bracket exactly",
        maps,
        f"Attention on {WORD}.",
    )


def same_attention() -> Figure:
    """Two networks with the same two heads, and what they lose without each head."""
    maker = Maker(TYPES, MAX_DEPTH, torch.Generator().manual_seed(1))
    scores = maker.scores(Design("stack", RATIO)), maker.scores(Design("start", RATIO))
    sizes = maker.sizes()
    networks = [maker.network(scores, sizes, read=read) for read in (0, 1)]
    word = Dyck.prefixes(TYPES, MAX_DEPTH, len(WORD), q=Q).tokens(WORD)
    patterns = networks[0].patterns(word)[0]
    sentences = Sentences.draw(TYPES, MAX_DEPTH, TESTED, TEST_SEED)
    found = [measure(network, sentences) for network in networks]
    kinds: Sequence[SeriesKind] = ("ours", "control")
    series = [
        Series(f"network {name}", kind, (0, 1, 2), (each.accuracy, *each.without), line=False)
        for name, kind, each in zip("AB", kinds, found, strict=True)
    ]
    bars = Panel(
        series, "0: all heads;  1: without head 0;  2: without head 1", "accuracy at lookups"
    )
    maps = [
        _pattern(patterns[head], f"head {head}: the same weights in A and in B") for head in (0, 1)
    ]
    return Figure(
        "trap-same-attention",
        "Two networks with the same attention, of which each needs another head",
        [*maps, bars],
        "Both predict exactly.",
    )


def forgetting() -> Figure:
    """Two prefixes that end in different open brackets, after more and more closed pairs."""
    pump = pumping.Pump(pair_type=1, pair_level=2, query_type=0, query_level=3)
    stack, other = torch.tensor([1, 0]), torch.tensor([1, 1])
    models = {
        "not balanced": balanced(TYPES, MAX_DEPTH, LENGTH, q=Q, leak=0.5),
        "balanced": balanced(TYPES, MAX_DEPTH, LENGTH, q=Q),
    }
    kinds: Sequence[SeriesKind] = ("ours", "truth")
    errors, directions = [], []
    for (name, model), kind in zip(models.items(), kinds, strict=True):
        told = [
            pumping.confusion(model, pump, stack, other, pairs, q=Q).error
            for pairs in PAIRS_INSERTED
        ]
        errors.append(Series(name, kind, PAIRS_INSERTED, told))
        query = pumping.query_kind(pump, MAX_DEPTH)
        found = [
            [
                pumping.direction_from_counts(
                    model, pumping.kind_counts(pump, each, pairs, model), query
                )
                for each in (stack, other)
            ]
            for pairs in PAIRS_INSERTED
        ]
        gaps = [float((first - second).norm()) for first, second in found]
        directions.append(Series(name, kind, PAIRS_INSERTED, gaps))
    inserted = "closed pairs before the two prefixes"
    return Figure(
        "trap-forgetting",
        "A network that is not balanced forgets the open bracket",
        [
            Panel(
                directions,
                inserted,
                "distance of the two layer norms",
                "What the layer norm keeps of the two",
                x_log=True,
                y_log=True,
            ),
            Panel(
                errors,
                inserted,
                "error on one of the two, at least",
                "What the prediction must get wrong",
                x_log=True,
            ),
        ],
        "Two prefixes that end in different open brackets.",
    )


def _pattern(pattern: Tensor, title: str) -> Heatmap:
    names = ["start", *WORD]
    rows = [[round(value, 4) for value in row] for row in pattern.tolist()]
    return Heatmap(rows, title, "attended to", "position", limits=(0.0, 1.0), names=names)
