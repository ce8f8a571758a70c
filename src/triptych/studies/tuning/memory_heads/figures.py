"""Accuracies of both heads on both kinds of data, against the number of states."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.api.summaries import mean_series
from triptych.studies.tuning.memory_heads.rows import MEMORY, STATES, VANILLA, Data, Trial
from triptych.studies.tuning.shared.trials import best_rate


def accuracy_figure(rows: Rows[Trial]) -> Figure:
    """Figure 3 right, with the published means."""
    trials = best_rate(rows.of(Trial))
    memory = [trial for trial in trials if trial.data == "memory"]
    plain = [trial for trial in trials if trial.data == "vanilla"]
    series = [
        *_means(memory, lambda t: t.attention, "memory HMM, attention head", "ours"),
        *_means(plain, lambda t: t.linear, "vanilla HMM, linear head", "control"),
        Series("published, memory", "published", STATES, MEMORY, line=False),
        Series("published, vanilla", "published", STATES, VANILLA, line=False),
        *(
            replace(majority, low=(), high=())
            for majority in _means(
                memory, lambda t: t.majority, "memory tasks: the majority label", "truth"
            )
        ),
    ]
    return Figure(
        "memory_heads",
        "An attention head on data with a memory, against a linear head on plain data",
        [Panel(series, "states |M| |H|, |H| = 4", "test accuracy (%)")],
        "Means over trials (data, network and task) with 95 % intervals, networks on their plateau "
        "included.",
    )


def crossed_figure(rows: Rows[Trial]) -> Figure:
    """Is it the data or the head? Both heads on both kinds of data."""
    trials, panels = best_rate(rows.of(Trial)), []
    kinds: tuple[tuple[Data, str], ...] = (("memory", "memory HMM"), ("vanilla", "vanilla HMM"))
    for data, title in kinds:
        some = [trial for trial in trials if trial.data == data]
        if some:
            series = [
                *_means(some, lambda t: t.attention, "attention head", "ours"),
                *_means(
                    some,
                    lambda t: t.best_linear,
                    "best linear head at the first position",
                    "control",
                ),
                *_means(some, lambda t: t.exact_head, "the same on the exact law", "truth"),
            ]
            panels.append(Panel(series, "states", "test accuracy (%)", title))
    return Figure(
        "crossed_heads",
        "Both heads on both kinds of data",
        panels,
        "What the head and what the data contributes. Means over trials with 95 % intervals. On "
        "the memory HMM the label is about the memory, on the vanilla HMM about the first hidden "
        "state.",
    )


def _means(
    trials: Sequence[Trial], accuracy: Callable[[Trial], float], label: str, kind: SeriesKind
) -> list[Series]:
    """One series, or none where there are no trials."""
    return [mean_series([(t.states, accuracy(t)) for t in trials], label, kind)] if trials else []
