"""Benchmark rows as text: the same words on the terminal and in docs/benchmarks.md."""

from typing import Any

Row = dict[str, Any]


def readable(row: Row) -> list[str]:
    """What, against whom, our time, their time, ratio, bar."""
    if "not_run" in row:
        return [row["what"], row["peer"], "", "", "not run: " + row["not_run"], ""]
    if "exponent" in row:
        return [row["what"], row["peer"], "", "", f"{row['exponent']:.2f}", ""]
    bar = f"≥ {row['bar']:g}" if "bar" in row else ""
    ratio = f"{row['ratio']:.0f} ({row['low']:.0f}-{row['high']:.0f})"
    if row["ratio"] < 10:
        ratio = f"{row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})"
    if row["ratio"] < row.get("bar", 0.0):
        ratio += ", below the bar"
    return [row["what"], row["peer"], _time(row["ours"]), _time(row["theirs"]), ratio, bar]


def _time(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def markdown(rows: list[Row]) -> str:
    lines = [
        "| what | against | ours | theirs | theirs / ours (range) | bar |",
        "|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(readable(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"
