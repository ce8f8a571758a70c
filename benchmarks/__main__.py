"""`python -m benchmarks [--only PART] [--page]`: run, print a table, save results.json.

With --only the rows of the other parts stay as they were saved. With --page the table between the
markers of docs/benchmarks.md is replaced by the new one.
"""

import argparse
import itertools
import json
import re
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import fitting, guided, hmm, lab, network, sampling, text, translation
from benchmarks.table import markdown, readable
from triptych.core.files import write_json, write_text
from triptych.lab.running.environment import environment

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
MARKED = re.compile(r"(<!-- benchmarks -->\n).*?(<!-- /benchmarks -->)", re.DOTALL)


PARTS = {
    "hmm": hmm.run,
    "fitting": fitting.run,
    "network": lambda: network.run("cpu"),
    "guided": lambda: guided.run("cpu"),
    "text": text.run,
    "translation": translation.run,
    "lab": lab.run,
    "sampling": sampling.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="run this part alone")
    parser.add_argument("--page", action="store_true", help="update docs/benchmarks.md")
    asked = parser.parse_args()
    update = asked.page
    torch.set_num_threads(1)
    console = Console()
    kept = {}
    if asked.only and (HERE / "results.json").exists():
        kept = {_name(row): row for row in json.loads((HERE / "results.json").read_text())["rows"]}
    chosen = [PARTS[asked.only]] if asked.only else list(PARTS.values())
    for row in itertools.chain.from_iterable(part() for part in chosen):
        console.print(" | ".join(readable(row)), highlight=False)
        kept[_name(row)] = row
    rows = list(kept.values())
    table = Table(box=None, header_style="bold")
    for title in ("what", "against", "ours", "theirs", "ratio", "bar"):
        table.add_column(title)
    for row in rows:
        table.add_row(*readable(row))
    console.print(table)
    results = {"environment": environment(), "rows": rows}
    write_json(HERE / "results.json", results, indent=2)
    if update:
        page = PAGE.read_text()
        write_text(PAGE, MARKED.sub(lambda m: m[1] + markdown(rows) + m[2], page))


def _name(row: dict[str, Any]) -> tuple[str, str]:
    return row["what"], row.get("peer", "")


if __name__ == "__main__":
    main()
