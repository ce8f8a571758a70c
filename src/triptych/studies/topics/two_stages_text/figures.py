"""Norms and turns by layer, as in Figure 2.9."""

from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Rows
from triptych.studies.topics.shared.stage_checks import run_clearness
from triptych.studies.topics.two_stages_text.rows import LayerCurves


def curves_figure(rows: Rows) -> Figure:
    """Every layer of the clearest run: norms above, turns below."""
    runs = rows.of(LayerCurves)
    norms, turns = [], []
    title = "Norms of value, key and query matrices by layer, on natural text"
    if runs:
        row = max(runs, key=lambda run: run_clearness(run.stages))
        title = f"Norms by layer, on natural text: {row.setting}, {row.corpus}"
        for i in range(len(row.key)):
            series = [
                Series("W^V", "ours", row.step, row.value[i]),
                Series("W^K", "control", row.step, row.key[i]),
                Series("W^Q", "truth", row.step, row.query[i]),
            ]
            norms.append(Panel(series, "training step", "Frobenius norm", f"layer {i + 1}"))
            turn = Series("W^V", "ours", row.step[1:], row.rotation[i])
            turns.append(Panel([turn], "training step", "rotation of W^V", f"layer {i + 1}"))
    return Figure(
        "text_stages",
        title,
        [*norms, *turns],
        "The clearest of all runs. Rotation is the cosine distance to 10 steps before, "
        "(1 - cos) / 2. Two stages: when W^V has made 80 % of its growth, W^K and W^Q have at most "
        "a fifth of its norm and of their own growth, and that is in the first half of the steps.",
    )
