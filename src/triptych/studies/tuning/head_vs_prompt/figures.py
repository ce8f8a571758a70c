"""Accuracies and distances to the truth of head and prompt tuning; which networks can be read."""

from dataclasses import replace

from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Rows
from triptych.studies.api.summaries import mean_series
from triptych.studies.tuning.head_vs_prompt.rows import HEAD, HIDDEN, PROMPT, Trial
from triptych.studies.tuning.shared.networks import vanilla
from triptych.studies.tuning.shared.trials import PLATEAU, best_rate
from triptych.theory.tuning.reach import reach

X_LABEL = "hidden states |H| (10 symbols)"
FURTHEST = 100  # tokens apart, at most, for what two tokens say about each other


def accuracy_figure(rows: Rows[Trial]) -> Figure:
    """Figure 3 left, with the majority rate and the published means."""
    trials = best_rate(rows.of(Trial))
    majority = mean_series(
        [(t.states, t.majority) for t in trials], "always the majority label", "truth"
    )
    series = [
        mean_series([(t.states, t.prompt) for t in trials], "prompt tuning", "ours"),
        mean_series([(t.states, t.head) for t in trials], "head tuning", "control"),
        Series("published, prompt", "published", HIDDEN, PROMPT, line=False),
        Series("published, head", "published", HIDDEN, HEAD, line=False),
        replace(majority, low=(), high=()),
    ]
    return Figure(
        "head_vs_prompt",
        "Prompt tuning against head tuning on the same pretrained network",
        [Panel(series, X_LABEL, "test accuracy (%)")],
        "Means over trials (HMM, network and task) with 95 % intervals, networks on their plateau "
        "included. A linear head reads the network's law at the masked first position; prompt "
        "tuning adds vectors before it.",
    )


def best_figure(rows: Rows[Trial]) -> Figure:
    """Is it the recipe? The best linear head, on the network and on the exact law."""
    trials = best_rate(rows.of(Trial))
    accuracies = [
        mean_series(
            [(t.states, t.best_prompt) for t in trials if t.best_prompt is not None],
            "prompt and best linear head",
            "ours",
        ),
        mean_series(
            [(t.states, t.best_head) for t in trials], "best linear head on the network", "control"
        ),
        mean_series(
            [(t.states, t.exact_head) for t in trials], "best linear head on the exact law", "truth"
        ),
    ]
    distances = [
        mean_series(
            [(t.states, t.kl_first) for t in trials], "pretrained networks", "ours", percent=False
        ),
        mean_series(
            [(t.states, t.kl_constant) for t in trials],
            "a law that ignores the input (plateau)",
            "control",
            percent=False,
        ),
    ]
    return Figure(
        "best_heads",
        "Prompt tuning against the best linear heads, on the network and on the exact law",
        [
            Panel(accuracies, X_LABEL, "test accuracy (%)"),
            Panel(distances, X_LABEL, "KL to the truth at the first position (nats)"),
        ],
        "The best linear head is the best of convex problems with ever weaker ridges, so what it "
        "misses is not a matter of training. Right: how far the networks are from the exact law.",
    )


def plateau_figure(rows: Rows[Trial]) -> Figure:
    """Distance to the truth against what two tokens of the HMM share, a mark for each trial."""
    trials = [t for t in best_rate(rows.of(Trial)) if t.kl_constant > 0]
    at = [reach(vanilla(t.states, 1, t.seed), FURTHEST) for t in trials]
    ends = [min(at), max(at)] if at else []
    series = [
        Series("networks", "ours", at, [t.kl_first / t.kl_constant for t in trials], line=False),
        Series("left out above", "control", ends, [PLATEAU for _ in ends]),
    ]
    return Figure(
        "plateau",
        "Which networks leave their plateau, by how much tokens say about each other",
        [
            Panel(
                series,
                f"information of two tokens, summed over distances 1 to {FURTHEST} (nats)",
                "KL to the truth, over that of a constant law",
                x_log=True,
            )
        ],
        "One mark for each HMM. Information is exact, by the HMM's matrices. At 1 a network has "
        "learned how frequent tokens are and nothing else.",
    )
